//! What the cores of one process share: plain atomics, no lock, nothing on the path of a single event.
//!
//! Owns the process-wide counts that bounds are checked against. It does not decide: who reads a count and what happens
//! then is written where the count is used (`listener.rs`, `input.rs`, `pacing.rs`, `drain.rs`).
//!
//! Invariants: each count is raised and lowered by the same core for the same thing, so it returns to 0 when all
//! connections are gone. Counts may be a little stale elsewhere; every bound tolerates one connection per core more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::base::time::Now;
use crate::base::token_bucket::TokenBucket;
use crate::engine::mailbox::Bell;
use crate::engine::service::{Admits, ConnId, CoreId};
use crate::limits::{CORES_MAX, Limits};

/// A core hands accepted sockets over when it has this many connections more than the smallest.
const IMBALANCE_MAX: usize = 8;

/// No connection is favoured. A favoured one is stored as core, slot and generation, see [`Favour::of`].
const NOBODY: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) limits: Limits,
    pub(super) bells: Arc<[Bell]>,
    loads: Vec<Load>,
    connections: AtomicUsize,
    receiving_bytes: AtomicUsize,
    favoured: AtomicU64,
    backlog_bytes: AtomicUsize,
    /// One bit per core that is behind with its consumers: only who publishes little may go on.
    behind: AtomicU64,
    /// One bit per core that is so far behind that nobody may.
    far_behind: AtomicU64,
    /// One bit per core with consumers that need time.
    slows: AtomicU64,
    /// What may be admitted while some core needs time.
    throttle: TokenBucket,
    draining: AtomicBool,
}

/// What one core tells the others, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Load {
    connections: AtomicUsize,
    largest_backlog_bytes: AtomicUsize,
}

/// What a core owes its consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Debt {
    /// What may be published before it has written more.
    pub(super) admits: Admits,
    /// Some consumer needs time.
    pub(super) slow: bool,
}

/// The name of a connection among all cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Favour(u64);

impl Favour {
    /// Two connections could share a name only 2^26 generations apart.
    pub(super) const fn of(core: CoreId, conn: ConnId) -> Self {
        Self((core.0 as u64) << 58 | (conn.generation as u64 & 0x3ff_ffff) << 32 | conn.slot as u64)
    }
}

impl Process {
    pub(super) fn new(limits: Limits, bells: Arc<[Bell]>, throttle: TokenBucket) -> Self {
        assert!((1..=CORES_MAX).contains(&bells.len()), "a process has 1 to {CORES_MAX} cores");
        Self {
            throttle,
            limits,
            loads: bells.iter().map(|_| Load::default()).collect(),
            bells,
            connections: AtomicUsize::new(0),
            receiving_bytes: AtomicUsize::new(0),
            favoured: AtomicU64::new(NOBODY),
            backlog_bytes: AtomicUsize::new(0),
            behind: AtomicU64::new(0),
            far_behind: AtomicU64::new(0),
            slows: AtomicU64::new(0),
            draining: AtomicBool::new(false),
        }
    }

    pub(super) fn cores(&self) -> usize {
        self.loads.len()
    }

    /// Asks every core to drain. Idempotent; callable from any thread.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.bells.iter().for_each(Bell::ring);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Counts a new connection for the core that shall have it, which is `here` unless that core has too many: then the one
    /// with the fewest. None if the process has its maximum.
    pub(super) fn place(&self, here: CoreId) -> Option<CoreId> {
        if self.connections.fetch_add(1, Ordering::Relaxed) >= self.limits.connections_max {
            self.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let count = |load: &Load| load.connections.load(Ordering::Relaxed);
        let own = self.load(here).map_or(0, count);
        let smallest = (0..).map(CoreId).zip(&self.loads).min_by_key(|(_, load)| count(load));
        let core = match smallest {
            Some((core, load)) if own >= count(load) + IMBALANCE_MAX => core,
            _ => here,
        };
        if let Some(load) = self.load(core) {
            load.connections.fetch_add(1, Ordering::Relaxed);
        }
        Some(core)
    }

    /// A connection that [`Self::place`] gave to that core is over.
    pub(super) fn unplace(&self, core: CoreId) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(load) = self.load(core) {
            load.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Bytes that a connection holds of requests and messages not yet complete, before and now.
    pub(super) fn count_receiving(&self, before: usize, now: usize) {
        count(&self.receiving_bytes, before, now);
    }

    /// Whether a connection may read on: there is room, or it is the one that is favoured, without which all could
    /// wait for each other.
    pub(super) fn may_receive(&self, favour: Favour) -> bool {
        self.receiving_bytes.load(Ordering::Relaxed) < self.limits.receiving_bytes_max
            || self.favoured.compare_exchange(NOBODY, favour.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            || self.favoured.load(Ordering::Relaxed) == favour.0
    }

    /// The connection holds nothing any more; another one may be favoured.
    pub(super) fn unfavour(&self, favour: Favour) {
        // Asked after every read, so the shared line is only read where it need not be written.
        if self.favoured.load(Ordering::Relaxed) == favour.0 {
            self.favoured.store(NOBODY, Ordering::Relaxed);
        }
    }

    /// Bytes of a connection's backlog, before and now.
    pub(super) fn count_backlog(&self, before: usize, now: usize) {
        count(&self.backlog_bytes, before, now);
    }

    /// Whether all backlogs together are over their bound.
    pub(super) fn is_backlog_over(&self) -> bool {
        self.backlog_bytes() > self.limits.backlog_bytes_max
    }

    /// Bytes of all backlogs together.
    pub(super) fn backlog_bytes(&self) -> usize {
        self.backlog_bytes.load(Ordering::Relaxed)
    }

    /// Publishes the core's largest backlog. While all together are over their bound, answers whether it is this core that has
    /// the largest of all; otherwise wakes the one that has, so that it finds out.
    pub(super) fn has_largest_backlog(&self, core: CoreId, bytes: usize) -> bool {
        if let Some(load) = self.load(core) {
            load.largest_backlog_bytes.store(bytes, Ordering::Relaxed);
        }
        let largest = |load: &Load| load.largest_backlog_bytes.load(Ordering::Relaxed);
        let holder = (0..).map(CoreId).zip(&self.loads).max_by_key(|(_, load)| largest(load));
        match holder {
            Some((other, load)) if other != core && largest(load) > bytes => {
                if let Some(bell) = self.bells.get(usize::from(other.0)) {
                    bell.ring();
                }
                false
            }
            _ => bytes > 0,
        }
    }

    /// Publishes how far the core is behind with consumers that do read.
    pub(super) fn set_debt(&self, core: CoreId, debt: Debt) {
        set_bit(&self.behind, core, debt.admits <= Admits::Little);
        set_bit(&self.far_behind, core, debt.admits == Admits::Nothing);
        set_bit(&self.slows, core, debt.slow);
    }

    /// What may be published for all that cores have told; while some core asks for time, everything until what may be
    /// admitted meanwhile is used up, and little until so much more is owed.
    pub(super) fn admits(&self, overdraft_bytes: usize) -> Admits {
        let slow = self.is_slow();
        if self.far_behind.load(Ordering::Relaxed) != 0 || (slow && self.throttle.owed() > overdraft_bytes as u64) {
            Admits::Nothing
        } else if self.behind.load(Ordering::Relaxed) != 0 || (slow && self.throttle.is_empty()) {
            Admits::Little
        } else {
            Admits::Everything
        }
    }

    fn is_slow(&self) -> bool {
        self.slows.load(Ordering::Relaxed) != 0
    }

    /// Bytes of events have been admitted.
    pub(super) fn count_admitted(&self, bytes: usize) {
        if self.is_slow() {
            self.throttle.take(bytes);
        }
    }

    /// Lets time pass for what may be admitted.
    pub(super) fn refill(&self, now: Now) {
        self.throttle.refill(now);
    }

    fn load(&self, core: CoreId) -> Option<&Load> {
        self.loads.get(usize::from(core.0))
    }
}

fn count(total: &AtomicUsize, before: usize, now: usize) {
    if now > before {
        total.fetch_add(now - before, Ordering::Relaxed);
    } else if before > now {
        total.fetch_sub(before - now, Ordering::Relaxed);
    }
}

fn set_bit(mask: &AtomicU64, core: CoreId, on: bool) {
    let bit = 1 << core.0;
    // Written only on a change: the line is read by all cores.
    if (mask.load(Ordering::Relaxed) & bit != 0) == on {
        return;
    }
    if on {
        mask.fetch_or(bit, Ordering::Relaxed);
    } else {
        mask.fetch_and(!bit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token, Waker};

    use super::*;

    fn process(cores: usize, change: impl FnOnce(&mut Limits)) -> Process {
        let mut limits = Limits::default();
        change(&mut limits);
        let bell = || Bell::new(Waker::new(Poll::new().unwrap().registry(), Token(0)).unwrap());
        Process::new(limits, (0..cores).map(|_| bell()).collect(), TokenBucket::new(1000, 100))
    }

    #[test]
    fn a_core_with_too_many_hands_over() {
        let process = process(3, |_| {});
        for _ in 0..IMBALANCE_MAX {
            assert_eq!(process.place(CoreId(1)), Some(CoreId(1)));
        }
        assert_eq!(process.place(CoreId(1)), Some(CoreId(0)));
        assert_eq!(process.place(CoreId(1)), Some(CoreId(2)));
        assert_eq!(process.place(CoreId(1)), Some(CoreId(1)), "the smallest has one by now");
    }

    #[test]
    fn the_limit_is_exact_and_comes_free_again() {
        let process = process(1, |limits| limits.connections_max = 2);
        assert!(process.place(CoreId(0)).is_some());
        assert!(process.place(CoreId(0)).is_some());
        assert_eq!(process.place(CoreId(0)), None);
        process.unplace(CoreId(0));
        assert!(process.place(CoreId(0)).is_some());
    }

    #[test]
    fn over_the_receiving_bound_one_connection_goes_on() {
        let process = process(1, |limits| limits.receiving_bytes_max = 10);
        let favour = |slot| Favour::of(CoreId(0), ConnId { slot, generation: 3 });
        assert!(process.may_receive(favour(1)));
        process.count_receiving(0, 10);
        assert!(process.may_receive(favour(1)));
        assert!(!process.may_receive(favour(2)));
        process.unfavour(favour(2));
        assert!(process.may_receive(favour(1)));
        process.unfavour(favour(1));
        assert!(process.may_receive(favour(2)));
        process.count_receiving(10, 9);
        assert!(process.may_receive(favour(1)));
    }

    #[test]
    fn who_publishes_little_may_go_on_for_longer() {
        const OVERDRAFT: usize = 50;
        let process = process(2, |_| {});
        let owe = |core, admits, slow| process.set_debt(CoreId(core), Debt { admits, slow });
        assert_eq!(process.admits(OVERDRAFT), Admits::Everything);
        owe(1, Admits::Little, false);
        assert_eq!(process.admits(OVERDRAFT), Admits::Little);
        owe(0, Admits::Nothing, false);
        assert_eq!(process.admits(OVERDRAFT), Admits::Nothing, "of any core");
        owe(0, Admits::Everything, true);
        owe(1, Admits::Everything, false);
        assert_eq!(process.admits(OVERDRAFT), Admits::Everything);
        process.count_admitted(100);
        assert_eq!(process.admits(OVERDRAFT), Admits::Little, "what may be admitted meanwhile is used up");
        process.count_admitted(OVERDRAFT + 1);
        assert_eq!(process.admits(OVERDRAFT), Admits::Nothing);
        owe(0, Admits::Everything, false);
        assert_eq!(process.admits(OVERDRAFT), Admits::Everything, "nobody asks for time any more");
    }

    #[test]
    fn the_core_with_the_largest_backlog_is_the_one_to_cut() {
        let process = process(2, |limits| limits.backlog_bytes_max = 100);
        process.count_backlog(0, 101);
        assert!(process.is_backlog_over());
        assert!(process.has_largest_backlog(CoreId(0), 60));
        assert!(process.has_largest_backlog(CoreId(1), 61));
        assert!(!process.has_largest_backlog(CoreId(0), 60));
    }
}
