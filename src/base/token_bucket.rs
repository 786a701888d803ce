//! The one rate limiter: a bucket of tokens that time refills. Fed with time, shared between threads.
//!
//! Invariants: it never holds more than its burst; what was taken beyond what there was is owed, and refilled first.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::base::time::Now;

/// See the module.
#[derive(Debug)]
pub struct TokenBucket {
    per_second: u64,
    burst: i64,
    /// Below 0 after more was taken at once than there was.
    tokens: AtomicI64,
    refilled: AtomicU64,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens that gains `per_second`.
    #[must_use]
    pub fn new(per_second: u64, burst: usize) -> Self {
        let burst = tokens(burst);
        Self { per_second, burst, tokens: AtomicI64::new(burst), refilled: AtomicU64::new(0) }
    }

    /// Whether nothing is left, or something is owed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.load(Ordering::Relaxed) <= 0
    }

    /// What was taken beyond what there was, and is not refilled yet.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed).min(0).unsigned_abs()
    }

    /// Whether it holds as much as it can.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.tokens.load(Ordering::Relaxed) >= self.burst
    }

    /// Takes tokens, whether there are enough or not.
    pub fn take(&self, count: usize) {
        self.tokens.fetch_sub(tokens(count), Ordering::Relaxed);
    }

    /// Adds what has become due since the last refill, whichever thread made that.
    pub fn refill(&self, now: Now) {
        let before = self.refilled.load(Ordering::Relaxed);
        let due = now.0.saturating_sub(before).saturating_mul(self.per_second) / 1000;
        if due == 0 || self.refilled.compare_exchange(before, now.0, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let due = i64::try_from(due).unwrap_or(i64::MAX);
        let more = |left: i64| Some(left.saturating_add(due).min(self.burst));
        let _always = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

fn tokens(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_refilled_first_and_the_burst_is_the_most() {
        let bucket = TokenBucket::new(1000, 100);
        bucket.take(350);
        bucket.refill(Now(200));
        assert_eq!(bucket.owed(), 50);
        assert!(bucket.is_empty(), "50 are owed still");
        bucket.refill(Now(251));
        assert!(!bucket.is_empty());
        assert_eq!(bucket.owed(), 0);
        bucket.refill(Now(100_000));
        assert!(bucket.is_full());
        bucket.take(100);
        assert!(bucket.is_empty(), "a long time fills no more than the burst");
    }

    #[test]
    fn a_refill_too_small_to_count_is_not_lost() {
        let bucket = TokenBucket::new(10, 1);
        bucket.take(1);
        for now in 1..100 {
            bucket.refill(Now(now));
            assert!(bucket.is_empty(), "{now}");
        }
        bucket.refill(Now(100));
        assert!(!bucket.is_empty());
    }
}
