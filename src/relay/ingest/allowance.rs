//! Who publishes little, and need not wait for those who publish much (contract §9).
//!
//! Each publisher, that is each connection, has an allowance: [`ALLOWANCE_BYTES`] a second, and as much at once. It is
//! drawn on only while not everything is admitted ([`Admits::Little`]): what it covers goes on then, the rest waits.
//!
//! Invariants: whoever is not in the table has a whole allowance, so it holds nobody but those who drew on theirs
//! within the last moments, and is swept when it has doubled; what one item overdraws is at most another allowance.
//!
//! [`ALLOWANCE_BYTES`]: crate::limits::ALLOWANCE_BYTES

use std::collections::HashMap;

use crate::base::time::Now;
use crate::base::token_bucket::TokenBucket;
use crate::engine::service::{Admits, ConnId};

/// Entries that are not worth a sweep.
const SWEEP_MIN: usize = 64;

/// The allowances of the publishers of one core.
#[derive(Debug)]
pub struct Allowances {
    /// Bytes per second, and at once.
    bytes: usize,
    drawn: HashMap<ConnId, TokenBucket>,
    /// Entries at which the whole ones are dropped.
    sweep_at: usize,
}

impl Allowances {
    /// Every publisher has so many bytes a second.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { bytes, drawn: HashMap::new(), sweep_at: SWEEP_MIN }
    }

    /// Whether the connection may go on with an item of so many bytes, which has not gone yet and draws on its
    /// allowance.
    pub fn passes(&mut self, admits: Admits, conn: ConnId, bytes: usize, now: Now) -> bool {
        match admits {
            Admits::Everything => true,
            Admits::Nothing => false,
            Admits::Little => {
                let covered = bytes <= self.bytes && self.is_left(conn, now);
                if covered {
                    self.draw(conn, bytes, now);
                }
                covered
            }
        }
    }

    /// Whether the connection may go on behind an item of so many bytes that has gone already.
    pub fn goes_on(&mut self, admits: Admits, conn: ConnId, bytes: usize, now: Now) -> bool {
        if admits != Admits::Everything {
            self.draw(conn, bytes, now);
        }
        self.may_publish(admits, conn, now)
    }

    /// Whether the connection may publish something, of whatever size.
    pub fn may_publish(&mut self, admits: Admits, conn: ConnId, now: Now) -> bool {
        match admits {
            Admits::Everything => true,
            Admits::Little => self.is_left(conn, now),
            Admits::Nothing => false,
        }
    }

    /// Whether something is left of the connection's allowance.
    fn is_left(&mut self, conn: ConnId, now: Now) -> bool {
        let Some(bucket) = self.drawn.get(&conn) else { return true };
        bucket.refill(now);
        !bucket.is_empty()
    }

    fn draw(&mut self, conn: ConnId, bytes: usize, now: Now) {
        if self.drawn.len() >= self.sweep_at {
            self.drawn.retain(|_, bucket| {
                bucket.refill(now);
                !bucket.is_full()
            });
            self.sweep_at = SWEEP_MIN.max(2 * self.drawn.len());
        }
        let whole = || {
            let bucket = TokenBucket::new(self.bytes as u64, self.bytes);
            bucket.refill(now);
            bucket
        };
        let bucket = self.drawn.entry(conn).or_insert_with(whole);
        bucket.refill(now);
        bucket.take(bytes.min(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1000;
    const NOW: Now = Now(50_000);

    fn conn(slot: u32) -> ConnId {
        ConnId { slot, generation: 0 }
    }

    #[test]
    fn an_allowance_is_drawn_on_only_while_not_everything_is_admitted() {
        let mut allowances = Allowances::new(BYTES);
        for _ in 0..10 {
            assert!(allowances.passes(Admits::Everything, conn(1), BYTES, NOW));
            assert!(!allowances.passes(Admits::Nothing, conn(1), 1, NOW));
        }
        assert!(allowances.drawn.is_empty());
        assert!(!allowances.passes(Admits::Little, conn(1), BYTES + 1, NOW), "more than there ever is");
        assert!(allowances.passes(Admits::Little, conn(1), BYTES, NOW));
        assert!(!allowances.passes(Admits::Little, conn(1), 1, NOW));
        assert!(allowances.passes(Admits::Little, conn(2), 1, NOW), "everybody has one of their own");
        assert!(allowances.passes(Admits::Little, conn(1), 1, Now(NOW.0 + 1)), "time gives it back");
    }

    #[test]
    fn what_has_gone_already_is_owed_once_at_most() {
        let mut allowances = Allowances::new(BYTES);
        assert!(allowances.goes_on(Admits::Little, conn(1), 1, NOW));
        assert!(!allowances.goes_on(Admits::Little, conn(1), 100 * BYTES, NOW));
        assert!(!allowances.is_left(conn(1), NOW));
        assert!(allowances.is_left(conn(1), Now(NOW.0 + 2)));
        assert!(!allowances.goes_on(Admits::Nothing, conn(2), 1, NOW));
        assert!(allowances.goes_on(Admits::Everything, conn(2), 100 * BYTES, NOW));
    }

    #[test]
    fn who_drew_nothing_lately_is_forgotten() {
        let mut allowances = Allowances::new(BYTES);
        for slot in 0..10_000 {
            let now = Now(NOW.0 + u64::from(slot));
            assert!(allowances.passes(Admits::Little, conn(slot), 100, now));
            assert!(allowances.drawn.len() <= 2 * SWEEP_MIN + 400, "{}", allowances.drawn.len());
        }
    }
}
