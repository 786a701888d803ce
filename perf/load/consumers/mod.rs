//! The receiving side: many consumers in a few threads, each with its own `Poll`.
//!
//! [`Fleet`] spreads the consumers over threads and gathers what they saw; [`crew`] is one thread; [`consumer`] one
//! consumer, which keeps its account across connections. Threads share nothing but [`Shared`].

mod consumer;
mod crew;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use hdrhistogram::Histogram;

use super::arguments::{Binding, ConsumerArgs, Filter};
use super::check::{Follows, Tally};
use super::failure::Failure;
use super::shared::Shared;
use super::target::Target;

use crew::Crew;

/// What one consumer is to do.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) websocket: bool,
    pub(crate) follows: Follows,
    /// attr-match filters it subscribes with.
    pub(crate) filters: Arc<[String]>,
    /// Stops reading once subscribed.
    pub(crate) stalls: bool,
    /// Begins with what the sessions already hold.
    pub(crate) from_beginning: bool,
    /// Cuts its connection after this many events, and resumes.
    pub(crate) cut_every: Option<u64>,
}

/// The consumers of a run as the arguments describe them.
pub(crate) fn plans(arguments: &ConsumerArgs, run: u32, sessions: u32) -> Vec<Plan> {
    let everything: Arc<[String]> = Arc::new(["{}".to_owned()]);
    let plan = |index: u32| {
        let (follows, filters) = match arguments.filter {
            Filter::All => (Follows::all(sessions), Arc::clone(&everything)),
            Filter::Sessions(count) => {
                let first = (u64::from(index) * u64::from(count) % u64::from(sessions)) as u32;
                let follows = Follows { first, count, of: sessions };
                (follows, Arc::new([session_filter(run, follows)]) as Arc<[String]>)
            }
        };
        let websocket = match arguments.binding {
            Binding::Sse => false,
            Binding::Ws => true,
            Binding::Mix => index % 2 == 1,
        };
        Plan { websocket, follows, filters, stalls: false, from_beginning: false, cut_every: None }
    };
    (0..arguments.consumers).map(plan).collect()
}

fn session_filter(run: u32, follows: Follows) -> String {
    let names: Vec<String> =
        follows.sessions().map(|session| format!("\"{}\"", super::event::session_name(run, session))).collect();
    format!("{{\"session\":[{}]}}", names.join(","))
}

/// What the consumers of a run saw.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) tally: Tally,
    /// Nanoseconds from an event's stamp to its receipt.
    pub(crate) latency: Histogram<u64>,
    /// Nanoseconds from connecting to being subscribed.
    pub(crate) opening: Histogram<u64>,
    /// Connections consumers cut, and resumed.
    pub(crate) cuts: u64,
    /// Times the relay said that something was evicted.
    pub(crate) exhausted: u64,
    /// Consumers that had stopped reading and were cut by the server.
    pub(crate) stalled_cut: u64,
    /// Events the server said it left out for consumers that had stopped reading.
    pub(crate) stalled_shed: u64,
}

impl Seen {
    pub(crate) fn new() -> Self {
        Self {
            tally: Tally::default(),
            latency: nanoseconds(),
            opening: nanoseconds(),
            cuts: 0,
            exhausted: 0,
            stalled_cut: 0,
            stalled_shed: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        self.tally.add(&other.tally);
        add_histogram(&mut self.latency, &other.latency);
        add_histogram(&mut self.opening, &other.opening);
        self.cuts += other.cuts;
        self.exhausted += other.exhausted;
        self.stalled_cut += other.stalled_cut;
        self.stalled_shed += other.stalled_shed;
    }
}

/// A histogram of durations in nanoseconds, to three digits; it grows as far as it has to.
pub(crate) fn nanoseconds() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are allowed")
}

fn add_histogram(sum: &mut Histogram<u64>, other: &Histogram<u64>) {
    // Both grow by themselves, so that nothing is out of range.
    let added = sum.add(other);
    debug_assert!(added.is_ok());
}

/// The consumers of a run, at work.
#[derive(Debug)]
pub(crate) struct Fleet {
    shared: Arc<Shared>,
    crews: Vec<JoinHandle<Seen>>,
    stop: Arc<std::sync::atomic::AtomicBool>,
}

impl Fleet {
    /// Starts `plans` in `threads` threads, opening `ramp` connections a second at most.
    pub(crate) fn start(
        target: &Arc<Target>,
        shared: &Arc<Shared>,
        plans: Vec<Plan>,
        threads: usize,
        ramp: Option<f64>,
    ) -> Result<Self, Failure> {
        let threads = threads.clamp(1, plans.len().max(1));
        let mut shares: Vec<Vec<Plan>> = (0..threads).map(|_| Vec::new()).collect();
        for (index, plan) in plans.into_iter().enumerate() {
            if let Some(share) = shares.get_mut(index % threads) {
                share.push(plan);
            }
        }
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut crews = Vec::new();
        for share in shares {
            let ramp = ramp.map(|ramp| ramp / threads as f64);
            let crew = Crew::new(Arc::clone(target), Arc::clone(shared), Arc::clone(&stop), share, ramp)?;
            let thread = std::thread::Builder::new().name("consumers".into());
            crews.push(thread.spawn(move || crew.run()).map_err(|error| Failure::Local("a consumer thread", error))?);
        }
        Ok(Self { shared: Arc::clone(shared), crews, stop })
    }

    /// Ends all consumers and returns what they saw.
    pub(crate) fn finish(self) -> Seen {
        self.stop.store(true, Ordering::SeqCst);
        let mut seen = Seen::new();
        for crew in self.crews {
            match crew.join() {
                Ok(share) => seen.add(&share),
                Err(_) => {
                    self.shared.fail(Failure::Local("a consumer thread", std::io::Error::other("it panicked")));
                }
            }
        }
        seen
    }
}
