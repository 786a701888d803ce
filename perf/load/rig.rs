//! Both sides of a run together, watched: what is shared by every scenario.
//!
//! Owns the target, the shared counters and the progress line; measures [`Span`]s. What ends a run before anything
//! was measured is an error; what ends it later leaves its measured part, and the report says that it is one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};

use super::arguments::{Common, LoadArgs};
use super::consumers::{Fleet, Plan};
use super::failure::Failure;
use super::process;
use super::publishers::{Pace, Press};
use super::report::Report;
use super::shared::Shared;
use super::span::{Span, Timeline};
use super::target::Target;

/// How often the run is looked at.
const TICK: Duration = Duration::from_millis(10);
/// How long what is on its way may take to arrive when the run is interrupted.
const GRACE: Duration = Duration::from_millis(500);

/// A run being prepared and watched.
#[derive(Debug)]
pub(crate) struct Rig<'a> {
    pub(crate) target: Arc<Target>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) sessions: u32,
    common: &'a Common,
    bar: ProgressBar,
    /// Why the measured part is not all that was asked for.
    cut_short: RefCell<Option<Failure>>,
}

/// What a span is the difference to.
#[derive(Debug)]
struct Before {
    at: Instant,
    sent: u64,
    delivered: u64,
    server_cpu: Option<Duration>,
    threads: HashMap<u32, Duration>,
}

impl<'a> Rig<'a> {
    /// A run against the target of `common`, which is asked first whether it is there.
    pub(crate) fn new(common: &'a Common, sessions: u32) -> Result<Self, Failure> {
        let target = Target::new(&common.target, common.kind)?;
        if let Some(pid) = process::first_absent(&common.pid) {
            return Err(Failure::Usage(format!("--pid: there is no process {pid}")));
        }
        target.preflight()?;
        // Different for every run on this machine, so that a relay that remembers is not confused.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let run = (since.as_nanos() >> 10) as u32;
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        let (target, shared) = (Arc::new(target), Arc::new(Shared::new(run, sessions)));
        Ok(Self { target, shared, sessions, common, bar, cut_short: RefCell::default() })
    }

    /// Memory of the server now, if it was named. Bytes.
    pub(crate) fn server_memory(&self) -> Option<u64> {
        (!self.common.pid.is_empty()).then(|| process::memory(&self.common.pid))
    }

    /// Starts consumers, and waits until all are subscribed.
    pub(crate) fn open(&self, plans: Vec<Plan>) -> Result<Fleet, Failure> {
        let (fleet, _, ended) = self.opening(plans, None, false)?;
        ended.map_or(Ok(fleet), Err)
    }

    /// Starts consumers and measures until all are subscribed and, if `replay`, have what the sessions hold.
    pub(crate) fn measured_opening(
        &self,
        plans: Vec<Plan>,
        ramp: Option<f64>,
        replay: bool,
    ) -> Result<(Fleet, Span), Failure> {
        let (fleet, span, ended) = self.opening(plans, ramp, replay)?;
        let measured = if replay { span.delivered } else { self.shared.open.load(Ordering::SeqCst) };
        self.keep_if(measured > 0, ended)?;
        Ok((fleet, span))
    }

    /// Opens, and what ended it early.
    fn opening(
        &self,
        plans: Vec<Plan>,
        ramp: Option<f64>,
        replay: bool,
    ) -> Result<(Fleet, Span, Option<Failure>), Failure> {
        let wanted = self.shared.open.load(Ordering::SeqCst) + plans.len() as u64;
        let resumes = plans.iter().any(|plan| plan.cut_every.is_some());
        let before = self.before();
        let fleet = Fleet::start(&self.target, &self.shared, plans, self.consumer_threads(), ramp)?;
        let mut timeline = Timeline::new(before.at, before.sent, before.delivered);
        let watched = self.watch(&mut timeline, "opening", Duration::ZERO, || {
            let all_open = self.shared.open.load(Ordering::SeqCst) == wanted;
            all_open && (!replay || self.shared.is_settled() || (!resumes && self.nobody_left().is_some()))
        });
        let open = self.shared.open.load(Ordering::SeqCst);
        let ended = match watched {
            Err(failure) => Some(failure),
            Ok(()) if open < wanted => {
                Some(Failure::Stuck(format!("only {open} of {wanted} subscriptions were answered")))
            }
            Ok(()) if replay && !resumes && !self.shared.is_settled() => self.nobody_left(),
            Ok(()) => None,
        };
        Ok((fleet, self.span(&before, None, timeline), ended))
    }

    /// A failure that leaves something measured ends the run short; another is the run's.
    fn keep_if(&self, measured: bool, ended: Option<Failure>) -> Result<(), Failure> {
        match ended {
            Some(failure) if measured => {
                self.cut_short.borrow_mut().get_or_insert(failure);
                Ok(())
            }
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Whether the run ended early: nothing more is to be begun.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.cut_short.borrow().is_some()
    }

    /// Connects publishers.
    pub(crate) fn press(&self, load: &LoadArgs) -> Result<Press, Failure> {
        Press::new(&self.target, &self.shared, load, self.sessions, self.common.patience)
    }

    /// Publishes what is not measured, and waits until it was delivered.
    pub(crate) fn prepare(&self, press: &mut Press, pace: &Pace, doing: &str) -> Result<(), Failure> {
        let (_, ended) = self.stretch(press, pace, doing);
        ended.map_or(Ok(()), Err)
    }

    /// Publishes for a while, waits until everything was delivered or nothing moves any more, and measures that.
    pub(crate) fn publish(&self, press: &mut Press, pace: &Pace, doing: &str) -> Result<Span, Failure> {
        self.shared.measured_from.store(self.shared.now(), Ordering::SeqCst);
        let (span, ended) = self.stretch(press, pace, doing);
        self.keep_if(!press.answering.is_empty(), ended)?;
        Ok(span)
    }

    /// Publishes, and what ended it early.
    fn stretch(&self, press: &mut Press, pace: &Pace, doing: &str) -> (Span, Option<Failure>) {
        press.reset();
        let before = self.before();
        let mut timeline = Timeline::new(before.at, before.sent, before.delivered);
        let failed = AtomicBool::new(false);
        let (published, cpu) = std::thread::scope(|scope| {
            let publishing = scope.spawn(|| {
                let published = press.publish(pace);
                failed.store(published.is_err(), Ordering::SeqCst);
                (published, process::this_thread_cpu())
            });
            let watched = self.watch(&mut timeline, doing, GRACE, || {
                publishing.is_finished() && (self.shared.is_settled() || failed.load(Ordering::SeqCst))
            });
            if let Err(failure) = watched {
                self.shared.fail(failure);
            }
            publishing.join().unwrap_or_else(|_| {
                let died = std::io::Error::other("it panicked");
                (Err(Failure::Local("the publishing thread", died)), Duration::ZERO)
            })
        });
        // A consumer that was refused ends the publishing too, and says why.
        let ended = self.shared.take_failure().or(published.err());
        let ended = ended.or_else(|| self.shared.is_winding_up().then_some(Failure::Interrupted));
        (self.span(&before, Some(cpu), timeline), ended)
    }

    /// Watches for a time.
    pub(crate) fn hold(&self, time: Duration) -> Result<Span, Failure> {
        let before = self.before();
        let mut timeline = Timeline::new(before.at, before.sent, before.delivered);
        let ended = loop {
            let left = time.saturating_sub(before.at.elapsed());
            if left.is_zero() {
                break None;
            }
            if let Err(failure) = self.watch_once(&mut timeline, "holding", left.min(TICK)) {
                break Some(failure);
            }
            if self.is_interrupted() {
                break Some(Failure::Interrupted);
            }
            if let Some(failure) = self.nobody_left() {
                break Some(failure);
            }
        };
        self.keep_if(true, ended)?;
        Ok(self.span(&before, None, timeline))
    }

    /// Ends the progress line; the report is told whether all was measured that was asked for.
    pub(crate) fn finish(&self, report: &mut Report) {
        self.bar.finish_and_clear();
        let ended = self.cut_short.take().or(self.shared.take_failure());
        if let Some(failure) = ended {
            report.incomplete.get_or_insert(failure.to_string());
        }
    }

    /// What it means when the server has ended every consumer's connection, and none comes back.
    fn nobody_left(&self) -> Option<Failure> {
        let (ended, open) = (&self.shared.ended, &self.shared.open);
        let all = ended.load(Ordering::SeqCst) >= open.load(Ordering::SeqCst);
        all.then(|| Failure::Stuck("the server ended every connection".into()))
    }

    fn is_interrupted(&self) -> bool {
        self.common.interrupted.load(Ordering::SeqCst)
    }

    /// Returns once `done`, or when nothing has moved for as long as patience lasts. When the run is interrupted, what
    /// is under way may still be done within `grace`.
    fn watch(
        &self,
        timeline: &mut Timeline,
        doing: &str,
        grace: Duration,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), Failure> {
        let mut last = (self.movement(), Instant::now());
        let mut interrupted = None;
        while !done() {
            self.watch_once(timeline, doing, TICK)?;
            if self.is_interrupted() {
                self.shared.wind_up();
                if interrupted.get_or_insert_with(Instant::now).elapsed() >= grace {
                    return Err(Failure::Interrupted);
                }
            }
            let movement = self.movement();
            if movement != last.0 {
                last = (movement, Instant::now());
            } else if last.1.elapsed() > self.common.patience * 2 {
                // Twice: a publisher that is stuck says so first, and better.
                return Ok(());
            }
        }
        Ok(())
    }

    fn watch_once(&self, timeline: &mut Timeline, doing: &str, tick: Duration) -> Result<(), Failure> {
        std::thread::sleep(tick);
        if self.shared.is_stopped()
            && let Some(failure) = self.shared.take_failure()
        {
            return Err(failure);
        }
        if let Some(sample) = timeline.look(&self.shared) {
            self.bar.set_message(format!(
                "{doing}: {} consumers, {} published, {} of {} delivered, {:.0}/s",
                self.shared.open.load(Ordering::Relaxed),
                self.shared.sent.load(Ordering::Relaxed),
                self.shared.delivered.load(Ordering::Relaxed),
                self.shared.due.load(Ordering::Relaxed),
                sample.deliveries_per_s,
            ));
            self.bar.tick();
        }
        Ok(())
    }

    fn movement(&self) -> [u64; 3] {
        [&self.shared.delivered, &self.shared.sent, &self.shared.open].map(|count| count.load(Ordering::Relaxed))
    }

    fn consumer_threads(&self) -> usize {
        self.common.threads.map_or_else(|| processors().saturating_sub(1).max(1), usize::from)
    }

    fn before(&self) -> Before {
        Before {
            at: Instant::now(),
            sent: self.shared.sent.load(Ordering::SeqCst),
            delivered: self.shared.delivered.load(Ordering::SeqCst),
            server_cpu: (!self.common.pid.is_empty()).then(|| process::cpu(&self.common.pid)),
            threads: process::own_threads_cpu(),
        }
    }

    fn span(&self, before: &Before, publisher: Option<Duration>, timeline: Timeline) -> Span {
        let seconds = before.at.elapsed().as_secs_f64();
        let server_cpu = before.server_cpu.map(|cpu| process::cpu(&self.common.pid).saturating_sub(cpu));
        let threads: Vec<f64> = process::own_threads_cpu()
            .into_iter()
            .map(|(thread, cpu)| cpu.saturating_sub(before.threads.get(&thread).copied().unwrap_or_default()))
            .chain(publisher)
            .map(|cpu| cpu.as_secs_f64() / seconds)
            .collect();
        Span {
            seconds,
            sent: self.shared.sent.load(Ordering::SeqCst) - before.sent,
            delivered: self.shared.delivered.load(Ordering::SeqCst) - before.delivered,
            server_cpu,
            busiest_thread: threads.iter().copied().fold(0.0, f64::max),
            generator: threads.iter().sum::<f64>() / processors() as f64,
            timeline: timeline.samples,
        }
    }
}

/// Processors this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
