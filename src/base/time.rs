//! Time as plain values, passed in and never read here.
//!
//! The clock has one home, `engine/core/`, which reads it once per turn; everybody else is handed a
//! [`Now`]. Both values count milliseconds of the monotonic clock since the process started, so steps of the
//! wall clock change nothing.

use std::time::Duration;

/// The present, in milliseconds since the process started (monotonic).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now(pub u64);

/// A moment in the future (or just past), on the scale of [`Now`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub u64);

impl Now {
    /// The deadline that lies `after` from now; saturates.
    #[must_use]
    pub fn after(self, after: Duration) -> Deadline {
        Deadline(self.0.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Deadline {
    /// Whether the deadline has been reached.
    #[must_use]
    pub fn is_due(self, now: Now) -> bool {
        self.0 <= now.0
    }
}
