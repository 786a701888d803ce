//! What the cores of a process tell one another of one pace group: whether its publishers have to wait.
//!
//! Each core publishes its own judgement (`io/pacing.rs`), and everybody who publishes in the group reads all of them
//! at once. A connection that needs time slows down the publishers of its own group and nobody else.
//!
//! Invariant: a core's bit is written by that core alone, and only on a change, for the line is read by all.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::base::time::Now;
use crate::base::token_bucket::TokenBucket;
use crate::engine::service::{Admits, CoreId};

/// See the module.
#[derive(Debug)]
pub(super) struct GroupPace {
    /// One bit per core that is behind with its consumers: only who publishes little may go on.
    behind: AtomicU64,
    /// One bit per core that is so far behind that nobody may.
    far_behind: AtomicU64,
    /// One bit per core with consumers that need time.
    slows: AtomicU64,
    /// What may be admitted while some core needs time.
    throttle: TokenBucket,
    /// Backlogs of its connections, all cores.
    backlog_bytes: AtomicUsize,
}

/// What a core owes the consumers of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Debt {
    /// What may be published before it has written more.
    pub(super) admits: Admits,
    /// Some consumer needs time.
    pub(super) slow: bool,
}

impl GroupPace {
    pub(super) const fn new(throttle: TokenBucket) -> Self {
        Self {
            behind: AtomicU64::new(0),
            far_behind: AtomicU64::new(0),
            slows: AtomicU64::new(0),
            throttle,
            backlog_bytes: AtomicUsize::new(0),
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

    /// The count of backlog bytes.
    pub(super) const fn backlog(&self) -> &AtomicUsize {
        &self.backlog_bytes
    }
}

fn set_bit(mask: &AtomicU64, core: CoreId, on: bool) {
    let bit = 1 << core.0;
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
    use super::*;

    #[test]
    fn who_publishes_little_may_go_on_for_longer() {
        const OVERDRAFT: usize = 50;
        let pace = GroupPace::new(TokenBucket::new(1000, 100));
        let owe = |core, admits, slow| pace.set_debt(CoreId(core), Debt { admits, slow });
        assert_eq!(pace.admits(OVERDRAFT), Admits::Everything);
        owe(1, Admits::Little, false);
        assert_eq!(pace.admits(OVERDRAFT), Admits::Little);
        owe(0, Admits::Nothing, false);
        assert_eq!(pace.admits(OVERDRAFT), Admits::Nothing, "of any core");
        owe(0, Admits::Everything, true);
        owe(1, Admits::Everything, false);
        assert_eq!(pace.admits(OVERDRAFT), Admits::Everything);
        pace.count_admitted(100);
        assert_eq!(pace.admits(OVERDRAFT), Admits::Little, "what may be admitted meanwhile is used up");
        pace.count_admitted(OVERDRAFT + 1);
        assert_eq!(pace.admits(OVERDRAFT), Admits::Nothing);
        owe(0, Admits::Everything, false);
        assert_eq!(pace.admits(OVERDRAFT), Admits::Everything, "nobody asks for time any more");
    }
}
