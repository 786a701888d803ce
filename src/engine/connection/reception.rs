//! The time of one body or message that is being received: how long it may take, and how long it may wait for us.
//!
//! Sans-IO: it is told what came and when, and judges when asked. What happens then is `io/receiving.rs`'s business.
//!
//! - A reception has its time, whatever it brings. After that it goes on as long as it has brought [`QUOTA_BYTES`]
//!   (less if all its time is less) within the last [`QUOTA_TIME`]: `until` is moved on by each quota, never by more
//!   than that time, so what came early earns no standing still.
//! - While it waits for memory its own pace is not judged. It waits for as long as it may take, in one piece.
//! - Who has read on borrowed room is looked at every [`FAVOUR_TIME`].

use std::time::Duration;

use crate::base::time::{Deadline, Now};
use crate::limits::{BODY_BYTES_PER_SECOND_MIN, BODY_RATE_TIME, FAVOUR_TIME};

/// Size of the read buffer, and what one connection may bring in one turn.
pub(in crate::engine) const CONNECTION_BYTES_MAX: usize = 256 << 10;
/// What has to come within [`QUOTA_TIME`].
const QUOTA_BYTES: usize = BODY_BYTES_PER_SECOND_MIN * BODY_RATE_TIME.as_secs() as usize;
/// A second more than the rate's own time: who sends evenly at just that rate is not late by a piece that is on its
/// way.
const QUOTA_TIME: Duration = Duration::from_secs(BODY_RATE_TIME.as_secs() + 1);

/// See the module.
#[derive(Debug)]
pub(in crate::engine) struct Reception {
    /// Content that has come.
    bytes: usize,
    /// Content that completes the present quota.
    quota_at: usize,
    /// When it is late, unless it waits.
    until: Deadline,
    /// When it has waited for too long; some exactly while it waits.
    waits_until: Option<Deadline>,
    /// When it is looked at for the room it has borrowed.
    looked_at: Option<Deadline>,
}

/// What a look tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Standing {
    /// It goes on.
    Good,
    /// The sender is too slow.
    TooSlow,
    /// There is no memory for it.
    NoRoom,
}

impl Reception {
    /// It begins, and has that much time.
    pub(in crate::engine) fn new(now: Now, time: Duration) -> Self {
        let first = BODY_BYTES_PER_SECOND_MIN * time.min(BODY_RATE_TIME).as_millis() as usize / 1000;
        Self { bytes: 0, quota_at: first.max(1), until: now.after(time), waits_until: None, looked_at: None }
    }

    /// So many bytes of content have come altogether.
    pub(in crate::engine) fn on_bytes(&mut self, bytes: usize, now: Now) {
        if bytes == self.bytes {
            return;
        }
        self.bytes = bytes;
        // What stood still on our side begins anew.
        let waited = self.waits_until.take().is_some();
        if waited || bytes >= self.quota_at {
            self.quota_at = bytes + QUOTA_BYTES;
            self.until = self.until.max(now.after(QUOTA_TIME));
        }
    }

    /// There is no memory for more, and that is how long it may wait in one piece.
    pub(in crate::engine) fn on_waiting(&mut self, now: Now, time: Duration) {
        self.waits_until.get_or_insert(now.after(time));
    }

    /// It reads on though the bound is reached.
    pub(in crate::engine) fn on_borrowing(&mut self, now: Now) {
        self.looked_at.get_or_insert(now.after(FAVOUR_TIME));
    }

    /// Whether it has read beyond the bound.
    pub(in crate::engine) const fn is_borrowing(&self) -> bool {
        self.looked_at.is_some()
    }

    /// When to look at it next.
    pub(in crate::engine) fn deadline(&self) -> Deadline {
        let end = self.waits_until.unwrap_or(self.until);
        self.looked_at.map_or(end, |look| look.min(end))
    }

    /// Looks at it. `has_room`: whether all may be read; `takes_back`: whether what it has borrowed is needed.
    pub(in crate::engine) fn judge(&mut self, now: Now, has_room: bool, takes_back: bool) -> Standing {
        if has_room {
            self.looked_at = None;
            // Others have just made way: it is about to be read.
            if self.waits_until.is_some_and(|until| until.is_due(now)) {
                self.waits_until = Some(now.after(FAVOUR_TIME));
            }
        }
        let is_over = self.waits_until.unwrap_or(self.until).is_due(now);
        if (takes_back && self.is_borrowing()) || (is_over && self.waits_until.is_some()) {
            return Standing::NoRoom;
        }
        if is_over {
            return Standing::TooSlow;
        }
        if let Some(look) = &mut self.looked_at {
            *look = now.after(FAVOUR_TIME);
        }
        Standing::Good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    fn at(reception: &mut Reception, second: u64) -> Standing {
        reception.judge(Now(second * 1000), false, false)
    }

    #[test]
    fn whatever_it_brings_it_has_its_time_and_no_more_without_the_rate() {
        let mut reception = Reception::new(Now(500), TIME);
        reception.on_bytes(QUOTA_BYTES - 1, Now(29_000));
        assert_eq!(reception.deadline(), Deadline(30_500));
        assert_eq!(at(&mut reception, 30), Standing::Good);
        assert_eq!(at(&mut reception, 31), Standing::TooSlow);
    }

    #[test]
    fn with_less_time_than_the_rate_is_judged_over_the_rate_is_the_same() {
        let passes = |bytes| {
            let mut reception = Reception::new(Now(0), Duration::from_secs(2));
            reception.on_bytes(bytes, Now(1_900));
            at(&mut reception, 2) == Standing::Good
        };
        assert!(passes(2048) && !passes(2047));
    }

    #[test]
    fn what_came_early_earns_no_standing_still() {
        let mut reception = Reception::new(Now(0), TIME);
        for second in 0..30 {
            reception.on_bytes((second + 1) << 20, Now(second as u64 * 1000));
        }
        assert_eq!(reception.deadline(), Deadline(29_000 + 11_000));
        assert_eq!(at(&mut reception, 39), Standing::Good);
        assert_eq!(at(&mut reception, 40), Standing::TooSlow);
    }

    #[test]
    fn a_steady_sender_passes_at_the_least_rate_and_not_below() {
        for (bytes_per_second, passes) in [(1024, true), (100 << 10, true), (900, false)] {
            let mut reception = Reception::new(Now(0), TIME);
            let standing = (1..16_384).map(|second| {
                // Its pieces are up to 0.9 s late now and then.
                let late = if second % 7 == 0 { 900 } else { 0 };
                let now = Now(second * 1000 + late);
                let before = reception.judge(now, false, false);
                reception.on_bytes(second as usize * bytes_per_second, now);
                before
            });
            assert_eq!(standing.into_iter().all(|standing| standing == Standing::Good), passes, "{bytes_per_second}");
        }
    }

    #[test]
    fn who_waits_for_memory_is_told_in_its_own_time() {
        let mut reception = Reception::new(Now(0), TIME);
        reception.on_bytes(100, Now(0));
        reception.on_waiting(Now(2_000), TIME);
        reception.on_waiting(Now(20_000), TIME);
        assert_eq!(reception.deadline(), Deadline(32_000));
        assert_eq!(at(&mut reception, 31), Standing::Good);
        assert_eq!(at(&mut reception, 32), Standing::NoRoom);
        // Unless there is room by now.
        assert_eq!(reception.judge(Now(32_000), true, false), Standing::Good);
        assert_eq!(reception.deadline(), Deadline(33_000));
        // Read on, it has to bring something again, in time for a whole quota.
        reception.on_bytes(101, Now(33_000));
        assert_eq!(reception.deadline(), Deadline(44_000));
        assert_eq!(at(&mut reception, 44), Standing::TooSlow);
    }

    #[test]
    fn what_was_borrowed_is_given_back_when_it_is_needed() {
        let mut reception = Reception::new(Now(0), TIME);
        assert_eq!(reception.judge(Now(0), false, true), Standing::Good, "nothing was borrowed");
        reception.on_bytes(1 << 20, Now(0));
        reception.on_borrowing(Now(0));
        assert_eq!(reception.deadline(), Deadline(1_000));
        assert_eq!(reception.judge(Now(1_000), false, false), Standing::Good);
        assert_eq!(reception.deadline(), Deadline(2_000));
        assert_eq!(reception.judge(Now(2_000), false, true), Standing::NoRoom);
        // Once there is room for all, nothing is owed.
        assert_eq!(reception.judge(Now(3_000), true, false), Standing::Good);
        assert!(!reception.is_borrowing());
        assert_eq!(reception.deadline(), Deadline(30_000));
    }
}
