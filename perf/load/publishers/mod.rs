//! The sending side: all publishers in one thread, each with one batch on its way at a time.
//!
//! At a fixed rate every batch has its time, and its events are stamped with it however late they leave, so that a
//! server that makes publishers wait pays for it in latency (no coordinated omission). What we are late ourselves, from
//! the moment a batch could have gone, is kept apart: it tells whether the generator was the bottleneck.

mod publisher;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hdrhistogram::Histogram;
use mio::{Events, Poll, Token, Waker};

use super::arguments::{LoadArgs, Publishing};
use super::consumers::nanoseconds;
use super::event::Author;
use super::failure::Failure;
use super::shared::Shared;
use super::target::{Target, Written};

use publisher::{Publisher, Turn};

const GATE: Token = Token(usize::MAX);
/// Longest sleep: a run that was stopped is noticed after it.
const IDLE_TURN: Duration = Duration::from_millis(50);
/// `epoll` sleeps whole milliseconds: what is due before is slept for by the clock.
const POLL_RESOLUTION_NS: u64 = 2_000_000;

/// How events are published for a while.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Events of one batch.
    pub(crate) batch: u32,
    /// Events a second, all publishers together; none: as fast as the server takes them.
    pub(crate) rate: Option<f64>,
    /// Events that may be on their way to consumers.
    pub(crate) window: Option<u64>,
    /// How long, and how many events at most.
    pub(crate) duration: Duration,
    pub(crate) events: u64,
    /// Every session gets as many, give or take one, whichever publisher is faster; `events` is finite then.
    pub(crate) evenly: bool,
}

impl Pace {
    /// The pace the arguments ask for.
    pub(crate) fn new(load: &LoadArgs) -> Self {
        Self {
            batch: load.batch,
            rate: load.rate,
            window: load.window,
            duration: load.duration,
            events: load.events.unwrap_or(u64::MAX),
            evenly: false,
        }
    }
}

/// A stretch of publishing under way.
#[derive(Debug)]
struct Stretch {
    start: u64,
    end: u64,
    /// Nanoseconds between two batches of one publisher, at a fixed rate.
    interval: Option<f64>,
    publishers: usize,
    batch: u64,
    /// Deliveries that may be owed when a batch goes.
    ahead: u64,
    /// Events that may still be sent.
    left: u64,
}

/// What a stretch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// This time.
    At(u64),
    /// Answers to batches on their way.
    Answer,
    /// Consumers that are behind.
    Gate,
}

impl Next {
    fn or_at(self, due: u64) -> Self {
        match self {
            Self::At(earlier) => Self::At(earlier.min(due)),
            _ => Self::At(due),
        }
    }
}

impl Stretch {
    fn new(pace: &Pace, shared: &Shared, publishers: usize) -> Self {
        let start = shared.now();
        let batch = u64::from(pace.batch);
        let ahead = |window: u64| (window.saturating_sub(batch) as f64 * shared.mean_followers()).round() as u64;
        Self {
            start,
            end: start.saturating_add(u64::try_from(pace.duration.as_nanos()).unwrap_or(u64::MAX)),
            interval: pace.rate.map(|rate| batch as f64 * publishers as f64 / rate * 1e9),
            publishers,
            batch,
            ahead: pace.window.map_or(u64::MAX, ahead),
            left: pace.events,
        }
    }

    /// When a publisher's first batch is due: they take turns.
    fn first_due(&self, publisher: usize) -> u64 {
        let offset = self.interval.map_or(0.0, |interval| interval * publisher as f64 / self.publishers as f64);
        self.start.saturating_add(offset as u64)
    }

    fn is_over(&self, now: u64) -> bool {
        now >= self.end || self.left == 0
    }

    /// Events of the next batch, of a publisher that may send `share` more.
    fn take_batch(&mut self, share: u64) -> u64 {
        let batch = self.batch.min(self.left).min(share);
        self.left -= batch;
        batch
    }
}

/// The publishers of a run.
#[derive(Debug)]
pub(crate) struct Press {
    target: Arc<Target>,
    shared: Arc<Shared>,
    author: Author,
    sessions: u32,
    publishing: Publishing,
    poll: Poll,
    publishers: Vec<Publisher>,
    /// Events of the batch being made; kept for their buffers.
    written: Vec<Written>,
    /// Nanoseconds between the moment a batch could go and the moment it went.
    pub(crate) own_lag: Histogram<u64>,
    /// Nanoseconds from a batch's sending to its answer.
    pub(crate) answering: Histogram<u64>,
    /// Bytes of events sent.
    pub(crate) bytes: u64,
    patience: Duration,
}

impl Press {
    /// Connects the publishers of `load`; each writes its share of `sessions`.
    pub(crate) fn new(
        target: &Arc<Target>,
        shared: &Arc<Shared>,
        load: &LoadArgs,
        sessions: u32,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let poll = Poll::new().map_err(|error| Failure::Local("a poll", error))?;
        let gate = Waker::new(poll.registry(), GATE).map_err(|error| Failure::Local("a waker", error))?;
        shared.set_gate(gate);
        let time = humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string();
        let author = Author::new(shared.run, sessions, load.size, &load.event_type, load.severity.as_deref(), &time);
        let publishers = (0..load.publishers)
            .map(|index| {
                let own = (index..sessions).step_by(load.publishers as usize).collect();
                Publisher::connect(target, load.publish, own, poll.registry(), Token(index as usize), shared.now())
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            target: Arc::clone(target),
            shared: Arc::clone(shared),
            author,
            sessions,
            publishing: load.publish,
            poll,
            publishers,
            written: Vec::new(),
            own_lag: nanoseconds(),
            answering: nanoseconds(),
            bytes: 0,
            patience,
        })
    }

    /// Forgets what was measured so far.
    pub(crate) fn reset(&mut self) {
        self.own_lag.reset();
        self.answering.reset();
        self.bytes = 0;
    }

    /// Publishes at `pace`, and returns when every batch was answered.
    pub(crate) fn publish(&mut self, pace: &Pace) -> Result<(), Failure> {
        let mut stretch = Stretch::new(pace, &self.shared, self.publishers.len());
        for (index, publisher) in self.publishers.iter_mut().enumerate() {
            let share = if pace.evenly { publisher.share_of(pace.events, self.sessions) } else { u64::MAX };
            publisher.begin(stretch.first_due(index), share);
        }
        let mut events = Events::with_capacity(256);
        let mut moved = (self.movement(), self.shared.now());
        while !self.shared.is_stopped() {
            let now = self.shared.now();
            if self.shared.is_winding_up() {
                stretch.left = 0;
            }
            if stretch.is_over(now) && self.publishers.iter().all(Publisher::is_ready) {
                return Ok(());
            }
            let next = self.send_due(&mut stretch, now)?;
            if self.movement() != moved.0 || matches!(next, Next::At(_)) {
                moved = (self.movement(), now);
            } else if Duration::from_nanos(now - moved.1) > self.patience {
                if next == Next::Answer {
                    return Err(Failure::Stuck("the server stopped answering publishers".into()));
                }
                self.shared.trouble("deliveries stopped while publishers waited for them");
                return Ok(());
            }
            let wake = match next {
                Next::At(due) => due.min(stretch.end),
                // Past the end there is nothing to be on time for.
                _ if now >= stretch.end => u64::MAX,
                _ => stretch.end,
            };
            self.wait(&mut events, wake)?;
        }
        Ok(())
    }

    /// Sends every batch that may go now; tells what comes next.
    fn send_due(&mut self, stretch: &mut Stretch, now: u64) -> Result<Next, Failure> {
        let mut next = Next::Answer;
        if stretch.is_over(now) {
            return Ok(next);
        }
        for index in 0..self.publishers.len() {
            let Some(publisher) = self.publishers.get(index).filter(|publisher| publisher.is_ready()) else { continue };
            if stretch.interval.is_some() && publisher.due > now {
                next = next.or_at(publisher.due);
            } else if stretch.left == 0 {
                break;
            } else if publisher.share == 0 {
                continue;
            } else if !self.shared.is_within(stretch.ahead) {
                return Ok(Next::Gate);
            } else {
                let batch = stretch.take_batch(publisher.share);
                self.send(index, batch, stretch.interval)?;
                next = Next::At(now);
            }
        }
        Ok(next)
    }

    /// Grows whenever anything moves.
    fn movement(&self) -> (u64, u64) {
        (self.shared.delivered.load(Ordering::Relaxed), self.answering.len())
    }

    /// Sends a batch of one publisher.
    fn send(&mut self, index: usize, batch: u64, interval: Option<f64>) -> Result<(), Failure> {
        let Some(publisher) = self.publishers.get_mut(index) else { return Ok(()) };
        let now = self.shared.now();
        let stamp = if interval.is_some() { publisher.due } else { now };
        if interval.is_some() {
            // Grows by itself: nothing is out of range.
            let recorded = self.own_lag.record(now.saturating_sub(publisher.due.max(publisher.ready_since)));
            debug_assert!(recorded.is_ok());
        }
        self.written.resize_with(batch as usize, Written::default);
        for written in &mut self.written {
            written.session = publisher.next_session();
            written.text.clear();
            let seq = self.shared.next_seq(written.session);
            self.author.write(&mut written.text, written.session, seq, stamp);
            self.bytes += written.text.len() as u64;
        }
        let answers = self.target.push_batch(publisher.out(), self.publishing, self.shared.run, &self.written);
        publisher.on_sent(now, batch, answers, interval);
        match publisher.flush() {
            Ok(()) => Ok(()),
            Err(error) => Err(Failure::Local("a publisher's connection", error)),
        }
    }

    /// Handles what comes until `due`, and wakes no later than that.
    fn wait(&mut self, events: &mut Events, due: u64) -> Result<(), Failure> {
        let now = self.shared.now();
        let left = due.saturating_sub(now);
        let timeout = if left > POLL_RESOLUTION_NS {
            Duration::from_nanos(left - POLL_RESOLUTION_NS / 2).min(IDLE_TURN)
        } else {
            Duration::ZERO
        };
        if timeout.is_zero() && left > 0 {
            // Answers wait meanwhile, which no latency depends on.
            std::thread::sleep(Duration::from_nanos(left.min(POLL_RESOLUTION_NS / 4)));
        }
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(Failure::Local("polling", error)),
            _ => {}
        }
        let now = self.shared.now();
        for event in events.iter().filter(|event| event.token() != GATE) {
            let Some(publisher) = self.publishers.get_mut(event.token().0) else { continue };
            match publisher.turn(now, event.is_read_closed(), &mut self.answering) {
                Turn::On => {}
                Turn::Refused(status, answer) => {
                    return Err(self.target.refused("publishing", status, answer));
                }
                Turn::Ended(why) => {
                    return Err(Failure::Stuck(format!("the server ended a publisher's connection: {why}")));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_gives_each_publisher_its_times_and_its_share() {
        let shared = Shared::new(1, 1);
        shared.on_follower(0, false);
        shared.on_follower(0, false);
        let duration = Duration::from_secs(1);
        let pace = Pace { batch: 4, rate: Some(1000.0), window: Some(10), duration, events: 6, evenly: false };
        let mut stretch = Stretch::new(&pace, &shared, 2);
        assert_eq!(stretch.interval, Some(8e6), "eight events in 8 ms");
        assert_eq!(stretch.first_due(1) - stretch.first_due(0), 4_000_000);
        assert_eq!(stretch.ahead, (10 - 4) * 2);
        assert_eq!((stretch.take_batch(1), stretch.is_over(stretch.start)), (1, false));
        assert_eq!((stretch.take_batch(u64::MAX), stretch.is_over(stretch.start)), (4, false));
        assert_eq!((stretch.take_batch(u64::MAX), stretch.is_over(stretch.start)), (1, true));
        assert!(stretch.is_over(stretch.end));
    }
}
