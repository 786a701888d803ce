//! For the log: what may happen thousands of times a second and is said once a minute.
//!
//! The first time is said at once; from then on it counts, and one line a minute says how often. Shared by threads,
//! each of which may be the one that says it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::time::Now;

const PAUSE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub struct Seldom {
    /// Times that nobody has told of.
    times: AtomicU64,
    /// When it may be said again, ms.
    next: AtomicU64,
}

impl Seldom {
    /// It has happened. If it is to be said now: how often it has happened since it was last said, 1 or more.
    pub fn happened(&self, now: Now) -> Option<u64> {
        self.times.fetch_add(1, Ordering::Relaxed);
        let next = self.next.load(Ordering::Relaxed);
        let is_mine = next <= now.0
            && self.next.compare_exchange(next, now.after(PAUSE).0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        is_mine.then(|| self.times.swap(0, Ordering::Relaxed).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_once_and_then_once_a_minute() {
        let seldom = Seldom::default();
        assert_eq!(seldom.happened(Now(5)), Some(1));
        assert_eq!([6, 30_000, 60_004].map(|at| seldom.happened(Now(at))), [None; 3]);
        assert_eq!(seldom.happened(Now(60_005)), Some(4));
        assert_eq!(seldom.happened(Now(60_006)), None);
    }
}
