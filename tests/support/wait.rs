//! Waiting: for a condition, with a deadline, never for a guessed time.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine before its test fails.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Polls until `condition` holds; fails after [`DEADLINE`], naming what did not come.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "did not happen within {DEADLINE:?}: {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}
