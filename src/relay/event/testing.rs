//! Events for the unit tests of this floor.

use crate::relay::event::{Event, Fingerprinter, Parser};

/// Runs `look` on the event with these members, each given as JSON text; required ones that are missing are added.
pub(in crate::relay) fn with_event<R>(members: &str, look: impl FnOnce(Event<'_>) -> R) -> R {
    let mut text = format!("{{{members}");
    for (name, member) in [
        ("aep", r#""aep":"0.1""#),
        ("id", r#""id":"e1""#),
        ("time", r#""time":"2026-01-01T00:00:00Z""#),
        ("source", r#""source":"src""#),
        ("agent", r#""agent":"worker""#),
    ] {
        if !members.contains(&format!("\"{name}\":")) {
            text.push(',');
            text.push_str(member);
        }
    }
    text.push('}');
    parsed(text.as_bytes(), look)
}

/// Runs `look` on the event that these bytes are.
pub(in crate::relay) fn parsed<R>(text: &[u8], look: impl FnOnce(Event<'_>) -> R) -> R {
    let mut parser = Parser::new(Fingerprinter::new());
    match parser.parse(text) {
        Ok(event) => look(event),
        Err(fault) => panic!("{}: {fault}", text.escape_ascii()),
    }
}
