//! What the two sides of a run and its watcher share: counters, a gate, and the first thing that went wrong.
//!
//! `due` counts deliveries owed for what was sent, `delivered` those made or announced as shed. The gate keeps a
//! publisher that may only be so far ahead waiting until `delivered` reaches what it `wanted`; the consumer thread that
//! gets there wakes it. Both sides write their own word first and read the other's behind it, in one total order, so
//! that no wake is missed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::failure::Failure;

/// Troubles kept in words; the rest are only counted.
const TROUBLES_MAX: usize = 5;
/// Nobody waits at the gate.
const NOBODY: u64 = u64::MAX;

/// Shared by all threads of a run.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Times of the run count from here.
    origin: Instant,
    /// Tells this run's events from others.
    pub(crate) run: u32,
    /// Events sent, per session.
    published: Vec<AtomicU64>,
    /// Consumers that follow a session and read, per session.
    followers: Vec<AtomicU64>,
    /// Deliveries owed.
    pub(crate) due: AtomicU64,
    /// Deliveries made for the first time, or announced as shed.
    pub(crate) delivered: AtomicU64,
    /// Events sent.
    pub(crate) sent: AtomicU64,
    /// Consumers subscribed.
    pub(crate) open: AtomicU64,
    /// Connections the server ended.
    pub(crate) ended: AtomicU64,
    /// Latencies of events stamped before this are not recorded, in nanoseconds of the run; at first none is.
    pub(crate) measured_from: AtomicU64,
    /// The run is over.
    pub(crate) stop: AtomicBool,
    /// No more is to be published.
    winding_up: AtomicBool,
    wanted: AtomicU64,
    gate: OnceLock<mio::Waker>,
    troubles: Mutex<Vec<String>>,
    failure: Mutex<Option<Failure>>,
}

impl Shared {
    pub(crate) fn new(run: u32, sessions: u32) -> Self {
        let zeros = || (0..sessions).map(|_| AtomicU64::new(0)).collect();
        Self {
            origin: Instant::now(),
            run,
            published: zeros(),
            followers: zeros(),
            due: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            open: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            measured_from: AtomicU64::new(u64::MAX),
            stop: AtomicBool::new(false),
            winding_up: AtomicBool::new(false),
            wanted: AtomicU64::new(NOBODY),
            gate: OnceLock::new(),
            troubles: Mutex::new(Vec::new()),
            failure: Mutex::new(None),
        }
    }

    /// Nanoseconds since the run began.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Events sent, per session.
    pub(crate) fn published(&self) -> Vec<u64> {
        self.published.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }

    /// A consumer follows a session from here on, or from its beginning.
    pub(crate) fn on_follower(&self, session: u32, from_beginning: bool) {
        let session = session as usize;
        if let Some(followers) = self.followers.get(session) {
            followers.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(published) = self.published.get(session).filter(|_| from_beginning) {
            self.due.fetch_add(published.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }

    /// Followers an event has on average.
    pub(crate) fn mean_followers(&self) -> f64 {
        let total: u64 = self.followers.iter().map(|followers| followers.load(Ordering::SeqCst)).sum();
        total as f64 / self.followers.len().max(1) as f64
    }

    /// The next number of a session: its event is about to be sent.
    pub(crate) fn next_seq(&self, session: u32) -> u64 {
        let session = session as usize;
        let followers = self.followers.get(session).map_or(0, |followers| followers.load(Ordering::SeqCst));
        self.due.fetch_add(followers, Ordering::SeqCst);
        self.sent.fetch_add(1, Ordering::SeqCst);
        self.published.get(session).map_or(1, |published| published.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Deliveries were made.
    pub(crate) fn on_delivered(&self, count: u64) {
        let delivered = self.delivered.fetch_add(count, Ordering::SeqCst) + count;
        if delivered >= self.wanted.load(Ordering::SeqCst) {
            self.wanted.store(NOBODY, Ordering::SeqCst);
            self.open_gate();
        }
    }

    /// Deliveries announced as shed are owed again.
    pub(crate) fn on_undelivered(&self, count: u64) {
        self.delivered.fetch_sub(count, Ordering::SeqCst);
    }

    /// Where a waiting publisher is woken.
    pub(crate) fn set_gate(&self, waker: mio::Waker) {
        // A run has one publishing side; a second gate would never be waited at.
        let _kept = self.gate.set(waker);
    }

    fn open_gate(&self) {
        if let Some(gate) = self.gate.get() {
            // A wake that fails costs the publisher its time-out, no more.
            let _woken = gate.wake();
        }
    }

    /// Whether no more than `ahead` deliveries are owed. If not, the gate's waker is called once they are.
    pub(crate) fn is_within(&self, ahead: u64) -> bool {
        let wanted = self.due.load(Ordering::SeqCst).saturating_sub(ahead);
        if self.delivered.load(Ordering::SeqCst) >= wanted {
            return true;
        }
        self.wanted.store(wanted, Ordering::SeqCst);
        self.delivered.load(Ordering::SeqCst) >= wanted
    }

    /// Whether everything owed was delivered.
    pub(crate) fn is_settled(&self) -> bool {
        self.delivered.load(Ordering::SeqCst) >= self.due.load(Ordering::SeqCst)
    }

    /// Something went wrong that the run survives.
    pub(crate) fn trouble(&self, what: impl Into<String>) {
        let (what, mut troubles) = (what.into(), self.troubles.lock());
        if troubles.len() < TROUBLES_MAX && !troubles.contains(&what) {
            troubles.push(what);
        }
    }

    /// What went wrong so far.
    pub(crate) fn troubles(&self) -> Vec<String> {
        self.troubles.lock().clone()
    }

    /// Ends publishing; what is on its way may still arrive.
    pub(crate) fn wind_up(&self) {
        self.winding_up.store(true, Ordering::SeqCst);
    }

    /// Whether no more is to be published.
    pub(crate) fn is_winding_up(&self) -> bool {
        self.winding_up.load(Ordering::SeqCst)
    }

    /// Ends the run; of several failures the first is told.
    pub(crate) fn fail(&self, failure: Failure) {
        self.failure.lock().get_or_insert(failure);
        self.stop.store(true, Ordering::SeqCst);
        self.open_gate();
    }

    /// The failure that ended the run.
    pub(crate) fn take_failure(&self) -> Option<Failure> {
        self.failure.lock().take()
    }

    /// Whether the run is over.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_follows_from_followers_and_events() {
        let shared = Shared::new(1, 2);
        shared.on_follower(0, false);
        shared.on_follower(0, false);
        assert_eq!((shared.next_seq(0), shared.next_seq(0), shared.next_seq(1)), (1, 2, 1));
        assert_eq!(shared.due.load(Ordering::SeqCst), 4);
        shared.on_follower(0, true);
        assert_eq!(shared.due.load(Ordering::SeqCst), 6);
        assert_eq!(shared.published(), [2, 1]);
    }

    #[test]
    fn the_gate_opens_when_no_more_than_allowed_is_owed() {
        let shared = Shared::new(1, 1);
        shared.on_follower(0, false);
        shared.next_seq(0);
        shared.next_seq(0);
        assert!(shared.is_within(2));
        assert!(!shared.is_within(1));
        shared.on_delivered(1);
        assert!(shared.is_within(1));
        assert!(!shared.is_settled());
        shared.on_delivered(1);
        assert!(shared.is_settled());
    }
}
