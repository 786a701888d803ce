//! What the cores of one process share: plain atomics, no lock, nothing on the path of a single event.
//!
//! Owns the process-wide counts that bounds are checked against. It does not decide: who reads a count and what happens
//! then is written where the count is used (`listener.rs`, `core/input.rs`, `io/pacing.rs`, `core/drain.rs`).
//!
//! Invariants: each count is raised and lowered by the same core for the same thing, so it returns to 0 when all
//! connections are gone. Counts may be a little stale elsewhere; every bound tolerates one connection per core more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::base::time::Now;
use crate::base::token_bucket::TokenBucket;
use crate::engine::mailbox::Inbox;
use crate::engine::pace::GroupPace;
use crate::engine::reached::Reached;
use crate::engine::service::{ConnId, CoreId, GROUPS, Group};
use crate::limits::{BORROWERS_MAX, CORES_MAX, FAVOUR_BYTES_PER_SECOND_MIN, FAVOUR_TIME, Limits, RECEIVE_BYTES_FREE};

/// A core hands accepted sockets over when it has this many connections more than the smallest.
const IMBALANCE_MAX: usize = 8;

/// How long a core leaves the favour that one of its connections had to the other cores, which look for it every
/// millisecond: a core that knows first would otherwise keep it for its own.
const FAVOUR_REST_MS: u64 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) limits: Limits,
    pub(super) inboxes: Arc<[Inbox]>,
    loads: Vec<Load>,
    connections: AtomicUsize,
    receiving_bytes: AtomicUsize,
    /// Who has the favour, or had it last; see [`Favour::of`].
    favoured: AtomicU64,
    /// Until when, in milliseconds. From then on whoever waits may take it.
    favoured_until: AtomicU64,
    /// Connections that have read beyond the bound and hold that.
    borrowers: AtomicUsize,
    /// The favoured one is not lent anything, since others have borrowed all there is.
    wants_back: AtomicBool,
    backlog_bytes: AtomicUsize,
    /// By group.
    paces: [GroupPace; GROUPS],
    draining: AtomicBool,
    pub(super) reached: Reached,
}

/// What one core tells the others, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Load {
    connections: AtomicUsize,
    largest_backlog_bytes: AtomicUsize,
}

/// What a connection may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grant {
    /// Whatever there is.
    All,
    /// So many bytes, which everybody may.
    Few(usize),
    /// Whatever there is, for it is favoured: what it reads is borrowed.
    Lent,
    /// It has to wait.
    Nothing,
}

/// The name of a connection among all cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Favour(u64);

impl Favour {
    /// Two connections could share a name only 2^26 generations apart.
    pub(super) const fn of(core: CoreId, conn: ConnId) -> Self {
        Self((core.0 as u64) << Self::CORE_SHIFT | (conn.generation as u64 & 0x3ff_ffff) << 32 | conn.slot as u64)
    }

    const CORE_SHIFT: u32 = 58;

    const fn core(self) -> u64 {
        self.0 >> Self::CORE_SHIFT
    }

    /// No connection of the same core: none has the last slot there could be.
    const fn nobody(self) -> Self {
        Self(self.0 | ((1 << Self::CORE_SHIFT) - 1))
    }
}

impl Process {
    pub(super) fn new(limits: Limits, inboxes: Arc<[Inbox]>, throttle: impl Fn() -> TokenBucket) -> Self {
        assert!((1..=CORES_MAX).contains(&inboxes.len()), "a process has 1 to {CORES_MAX} cores");
        Self {
            paces: std::array::from_fn(|_| GroupPace::new(throttle())),
            limits,
            loads: inboxes.iter().map(|_| Load::default()).collect(),
            inboxes,
            connections: AtomicUsize::new(0),
            receiving_bytes: AtomicUsize::new(0),
            favoured: AtomicU64::new(Favour(0).nobody().0),
            favoured_until: AtomicU64::new(0),
            borrowers: AtomicUsize::new(0),
            wants_back: AtomicBool::new(false),
            backlog_bytes: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            reached: Reached::default(),
        }
    }

    pub(super) fn cores(&self) -> usize {
        self.loads.len()
    }

    /// Asks every core to drain. Idempotent; callable from any thread.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.inboxes.iter().for_each(Inbox::wake);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Counts a new connection for the core that shall have it, which is `here` unless that core has too many: then the
    /// one with the fewest. None if the process has its maximum.
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

    /// Whether there is room for more of these.
    pub(super) fn has_room(&self) -> bool {
        self.receiving_bytes.load(Ordering::Relaxed) < self.limits.receiving_bytes_max
    }

    /// What a connection may read that has received so much of a body or message, and has borrowed for it or not; see
    /// `io/receiving.rs`.
    pub(super) fn may_receive(&self, received: usize, borrows: bool, favour: Favour, now: Now) -> Grant {
        if self.has_room() {
            return Grant::All;
        }
        if received < RECEIVE_BYTES_FREE {
            return Grant::Few(RECEIVE_BYTES_FREE - received);
        }
        if !self.is_favoured(favour) && !self.take_favour(favour, now) {
            return Grant::Nothing;
        }
        let lends = borrows || self.borrowers.load(Ordering::Relaxed) < BORROWERS_MAX;
        if self.wants_back.load(Ordering::Relaxed) == lends {
            self.wants_back.store(!lends, Ordering::Relaxed);
        }
        if lends { Grant::Lent } else { Grant::Nothing }
    }

    /// Whether a connection borrows, before and now.
    pub(super) fn count_borrower(&self, before: bool, now: bool) {
        count(&self.borrowers, before.into(), now.into());
    }

    /// Whether who is favoured needs what this connection has borrowed. Asked for one connection that then gives it
    /// back: the favoured one asks again if that is not enough.
    pub(super) fn takes_back(&self, favour: Favour) -> bool {
        !self.is_favoured(favour) && self.wants_back.swap(false, Ordering::Relaxed)
    }

    pub(super) fn is_favoured(&self, favour: Favour) -> bool {
        self.favoured.load(Ordering::Relaxed) == favour.0
    }

    /// Takes the favour if its holder has let it go, or has not kept it by what it brought. Two cores that meet here
    /// may both think for one read that it is theirs; then it is the later one's.
    fn take_favour(&self, favour: Favour, now: Now) -> bool {
        let holder = Favour(self.favoured.load(Ordering::Relaxed));
        let rest = if holder.core() == favour.core() { FAVOUR_REST_MS } else { 0 };
        let is_held = now.0 < self.favoured_until.load(Ordering::Relaxed) + rest;
        if is_held || !self.pass_favour(holder, favour) {
            return false;
        }
        self.favoured_until.store(now.after(FAVOUR_TIME).0, Ordering::Relaxed);
        true
    }

    fn pass_favour(&self, from: Favour, to: Favour) -> bool {
        self.favoured.compare_exchange(from.0, to.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The connection has brought bytes. If it is favoured they keep the favour for as long as they may take at the
    /// least rate, [`FAVOUR_TIME`] from now at most.
    pub(super) fn extend_favour(&self, favour: Favour, bytes: usize, now: Now) {
        if self.is_favoured(favour) {
            let earned_ms = bytes * 1000 / FAVOUR_BYTES_PER_SECOND_MIN;
            let until = self.favoured_until.load(Ordering::Relaxed).max(now.0) + earned_ms as u64;
            self.favoured_until.store(until.min(now.after(FAVOUR_TIME).0), Ordering::Relaxed);
        }
    }

    /// The connection is receiving nothing that could wait any more; another one may be favoured.
    pub(super) fn unfavour(&self, favour: Favour, now: Now) {
        // Asked after every read, so the shared line is only read where it need not be written.
        if self.is_favoured(favour) && self.pass_favour(favour, favour.nobody()) {
            self.favoured_until.store(now.0, Ordering::Relaxed);
        }
    }

    /// Bytes of a connection's backlog, before and now, and of what group it is.
    pub(super) fn count_backlog(&self, group: Option<Group>, before: usize, now: usize) {
        count(&self.backlog_bytes, before, now);
        if let Some(group) = group {
            count(self.pace(group).backlog(), before, now);
        }
    }

    /// Whether all backlogs together are over their bound.
    pub(super) fn is_backlog_over(&self) -> bool {
        self.backlog_bytes.load(Ordering::Relaxed) > self.limits.backlog_bytes_max
    }

    /// Publishes the core's largest backlog. While all together are over their bound, answers whether it is this core
    /// that has the largest of all; otherwise wakes the one that has, so that it finds out.
    pub(super) fn has_largest_backlog(&self, core: CoreId, bytes: usize) -> bool {
        if let Some(load) = self.load(core) {
            load.largest_backlog_bytes.store(bytes, Ordering::Relaxed);
        }
        let largest = |load: &Load| load.largest_backlog_bytes.load(Ordering::Relaxed);
        let holder = (0..).map(CoreId).zip(&self.loads).max_by_key(|(_, load)| largest(load));
        match holder {
            Some((other, load)) if other != core && largest(load) > bytes => {
                if let Some(inbox) = self.inboxes.get(usize::from(other.0)) {
                    inbox.wake();
                }
                false
            }
            _ => bytes > 0,
        }
    }

    /// What cores tell one another of a group.
    pub(super) fn pace(&self, group: Group) -> &GroupPace {
        &self.paces[group.index()]
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

#[cfg(test)]
mod tests {
    use mio::{Poll, Token, Waker};

    use super::*;

    fn process(cores: usize, change: impl FnOnce(&mut Limits)) -> Process {
        let mut limits = Limits::default();
        change(&mut limits);
        let inbox = || Inbox::new(Waker::new(Poll::new().unwrap().registry(), Token(0)).unwrap());
        Process::new(limits, (0..cores).map(|_| inbox()).collect(), || TokenBucket::new(1000, 100))
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

    /// A process at its receiving bound.
    fn crowded(cores: usize) -> Process {
        let process = process(cores, |limits| limits.receiving_bytes_max = 10);
        process.count_receiving(0, 10);
        process
    }

    fn conn(core: u16, slot: u32) -> Favour {
        Favour::of(CoreId(core), ConnId { slot, generation: 3 })
    }

    const LARGE: usize = RECEIVE_BYTES_FREE;

    #[test]
    fn over_the_receiving_bound_one_connection_goes_on() {
        let process = crowded(1);
        let may = |slot, now| process.may_receive(LARGE, false, conn(0, slot), Now(now));
        assert_eq!(may(1, 10), Grant::Lent);
        assert_eq!(may(2, 10), Grant::Nothing);
        process.unfavour(conn(0, 2), Now(11));
        assert_eq!((may(1, 11), may(2, 11)), (Grant::Lent, Grant::Nothing));
        process.unfavour(conn(0, 1), Now(12));
        assert_eq!(may(2, 12 + FAVOUR_REST_MS), Grant::Lent);
        process.count_receiving(10, 9);
        assert_eq!((may(1, 20), may(2, 20)), (Grant::All, Grant::All));
    }

    #[test]
    fn what_is_small_never_waits() {
        let process = crowded(2);
        assert_eq!(process.may_receive(LARGE, false, conn(0, 1), Now(10)), Grant::Lent);
        process.count_receiving(10, 1000);
        for (received, grant) in [(0, Grant::Few(LARGE)), (LARGE - 1, Grant::Few(1)), (LARGE, Grant::Nothing)] {
            assert_eq!(process.may_receive(received, false, conn(1, 2), Now(10)), grant);
        }
    }

    #[test]
    fn what_is_borrowed_is_asked_back_from_one_who_is_not_favoured() {
        let process = crowded(1);
        let may = |slot, borrows, now| process.may_receive(LARGE, borrows, conn(0, slot), Now(now));
        for slot in 0..BORROWERS_MAX as u32 {
            assert_eq!(may(slot, false, 10_000 * u64::from(slot + 1)), Grant::Lent);
            process.count_borrower(false, true);
        }
        assert!(!process.takes_back(conn(0, 0)), "nobody needs it");
        // The next one is favoured, and has to wait for what others have.
        assert_eq!(may(7, false, 50_000), Grant::Nothing);
        assert!(process.is_favoured(conn(0, 7)) && !process.takes_back(conn(0, 7)));
        assert!(process.takes_back(conn(0, 0)) && !process.takes_back(conn(0, 1)), "of one, not of all");
        process.count_borrower(true, false);
        assert_eq!(may(7, false, 50_001), Grant::Lent);
        process.count_borrower(false, true);
        assert_eq!(may(7, true, 50_002), Grant::Lent);
        assert!(!process.takes_back(conn(0, 1)));
    }

    #[test]
    fn the_favour_is_kept_by_what_comes_and_else_taken_over() {
        let process = crowded(2);
        let may = |core, slot, now| process.may_receive(LARGE, false, conn(core, slot), Now(now)) == Grant::Lent;
        assert!(may(0, 1, 1_000));
        assert!(!may(1, 1, 1_999));
        // A second at the least rate, brought in time, is a second more; more than that is no more.
        for (now, bytes) in [(1_900, FAVOUR_BYTES_PER_SECOND_MIN), (2_800, 1 << 30)] {
            process.extend_favour(conn(0, 1), bytes, Now(now));
            assert!(!may(1, 1, now + 999));
        }
        // Half of it does not keep it.
        process.extend_favour(conn(0, 1), FAVOUR_BYTES_PER_SECOND_MIN / 20, Now(3_700));
        assert!(may(0, 1, 3_900), "as long as nobody takes it");
        assert!(may(1, 1, 3_900));
        assert!(!may(0, 1, 3_900));
        process.extend_favour(conn(0, 1), 1 << 30, Now(3_900));
        assert!(may(0, 1, 4_900), "nobody extends another's");
    }

    #[test]
    fn other_cores_come_first_when_a_core_lets_the_favour_go() {
        let process = crowded(2);
        let may = |core, slot, now| process.may_receive(LARGE, false, conn(core, slot), Now(now)) == Grant::Lent;
        assert!(may(0, 1, 10));
        process.unfavour(conn(0, 1), Now(20));
        assert!(!may(0, 1, 20) && !may(0, 2, 21), "not even to the same connection");
        assert!(may(1, 7, 21));
        process.unfavour(conn(1, 7), Now(21));
        assert!(may(0, 2, 21));
    }

    #[test]
    fn the_core_with_the_largest_backlog_is_the_one_to_cut() {
        let process = process(2, |limits| limits.backlog_bytes_max = 100);
        process.count_backlog(None, 0, 101);
        assert!(process.is_backlog_over());
        assert!(process.has_largest_backlog(CoreId(0), 60));
        assert!(process.has_largest_backlog(CoreId(1), 61));
        assert!(!process.has_largest_backlog(CoreId(0), 60));
    }
}
