//! Capture ceilings: an event above a subscription's ceiling is rewritten, never dropped (contract §5).
//!
//! [`lower`] works on the event's text: what stays is copied byte for byte, what goes is cut out with its comma. It
//! builds no tree and reads no number, so untouched bytes cannot change. A lowered event is itself a valid event of the
//! level reached.
//!
//! A hop cannot vouch that text was redacted, so the only levels ever reached are `none` and `metadata`.
//!
//! It does not know who asked, nor that the result is kept for others (`fanout.rs`).
//!
//! Invariant: the output is at most the input, plus the attributes and ids that `payload.rs` repeats once each.

mod annotations;
mod payload;
mod splice;

pub use annotations::{Below, Field, fields, registered_types};

use self::payload::Payload;
use self::splice::Container;
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
    envelope(event, level, out);
    Lowered::Rewritten(level)
}

/// Writes the event with `data` and `capture` lowered to `level` and everything else as it stands.
fn envelope(event: &Event<'_>, level: Capture, out: &mut Vec<u8>) {
    let fields = if level == Capture::None { None } else { fields(event.kind()) };
    let text = event.raw_text();
    let mut container = Container::open(text, 0, out);
    let mut has_capture = false;
    while let Some(part) = container.next_part() {
        // Names of an admitted event hold no lone surrogates.
        let name = json::unescape(part.name).unwrap_or_default();
        match (name.as_ref(), fields) {
            ("data", None) => container.leave_out(part),
            ("data", Some(fields)) => {
                let payload = Payload::new(event, fields, level);
                container.write_inside(part, |start, out| payload.write(text, start, out));
            }
            ("capture", _) => {
                has_capture = true;
                container.write_instead(part, |out| write_level(level, out));
            }
            _ => container.keep(part),
        }
    }
    if !has_capture {
        container.add(|out| {
            out.extend_from_slice(b"\"capture\":");
            write_level(level, out);
        });
    }
    container.close();
}

fn write_level(level: Capture, out: &mut Vec<u8>) {
    json::write_string(out, level.as_str());
}

#[cfg(test)]
mod tests;
