//! Capture ceilings: an event above a subscription's ceiling is rewritten, never dropped (contract §5).
//!
//! [`lower`] works on the event's text: what stays is copied byte for byte, what goes is cut out with its comma. It
//! builds no tree and reads no number, so untouched bytes cannot change. A lowered event is itself a valid event of the
//! level reached.
//!
//! A hop cannot vouch that text was redacted, so the only levels ever reached are `none` and `metadata`.
//!
//! It does not know who asked, nor that the result is kept for others (`reader/fanout.rs`).
//!
//! Invariant: the output is at most the input, plus the attributes and ids that `payload.rs` repeats once each.

mod annotations;
mod lowering;
mod payload;
mod splice;

pub use annotations::{AnnotatedField, Below, fields, registered_types};
pub use lowering::Lowering;

use super::event::{Capture, Event};
use crate::wire::json;

/// What [`lower`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lowered {
    /// The event is within the ceiling: deliver what was received. Nothing was written.
    Unchanged,
    /// A form of this level was appended to the output.
    Rewritten(Capture),
}

/// The level an event is delivered at under a ceiling.
#[must_use]
pub fn delivered_level(capture: Capture, ceiling: Capture) -> Capture {
    if capture <= ceiling { capture } else { ceiling.min(Capture::Metadata) }
}

/// Appends the form of `event` that `ceiling` allows to `out`, if that is not the event as it is.
pub fn lower(event: &Event<'_>, ceiling: Capture, out: &mut Vec<u8>) -> Lowered {
    let level = delivered_level(event.capture(), ceiling);
    if level == event.capture() {
        return Lowered::Unchanged;
    }
    let mut all = usize::MAX;
    Lowering::begin(event, level, out).walk(event, &mut all, out);
    Lowered::Rewritten(level)
}

fn write_level(level: Capture, out: &mut Vec<u8>) {
    json::write_string(out, level.as_str());
}

#[cfg(test)]
mod tests;
