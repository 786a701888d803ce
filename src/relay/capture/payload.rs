//! The payload of a registered type at a lower level (contract §5): what becomes of each of its members.
//!
//! All fields still in play share the joined names walked so far, so the state of a walk down their paths is that one
//! prefix; it goes no deeper than the longest path and looks into nothing that no path leads to.
//!
//! Names are compared joined and unescaped: a member called `a.b` is as good as `b` inside `a`, and what lies beneath a
//! field by name (`result.text` for `result`) shares its fate, for some reader will take it for a part of the field.

use std::borrow::Cow;

use super::annotations::{AnnotatedField, Below};
use crate::relay::event::{Attribute, Capture, Event};
use crate::wire::json::{self, Kind, Value};

/// What becomes of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldVerdict {
    Keep,
    Remove,
    /// It is a field that is replaced or thinned out.
    Lower(Below),
    /// It is an entry of a field that keeps only numbers and booleans.
    Entry,
    /// Fields lie inside: it must be an object; the joined names up to its members.
    Object(&'static str),
    /// Fields lie inside its items: it must be an array of objects; the joined names up to their members.
    Array(&'static str),
}

/// What becomes of the member called `name` where the joined names so far are `at`.
pub(super) fn verdict(fields: &[AnnotatedField], level: Capture, at: &str, name: &str) -> FieldVerdict {
    for field in fields.iter().filter(|field| field.minimum > level) {
        let Some(rest) = field.path.strip_prefix(at) else { continue };
        // Nearly every member of a large payload is none of these.
        if name.bytes().next() != rest.bytes().next() {
            continue;
        }
        if let Some(inside) = rest.strip_prefix(name) {
            if inside.is_empty() {
                return lowered(field.below, rest);
            }
            if let Some(at) = inside.strip_prefix("[].").and_then(|deeper| field.path.strip_suffix(deeper)) {
                return FieldVerdict::Array(at);
            }
            if let Some(at) = inside.strip_prefix('.').and_then(|deeper| field.path.strip_suffix(deeper)) {
                return FieldVerdict::Object(at);
            }
        } else if let Some(beneath) = name.strip_prefix(rest) {
            match field.below {
                Below::Values if beneath.starts_with('.') => return FieldVerdict::Entry,
                _ if beneath.starts_with(['.', '[']) => return FieldVerdict::Remove,
                _ => {}
            }
        }
    }
    FieldVerdict::Keep
}

/// Writes the sentence that stands for a prompt beside this `kind`. One that is no text counts as missing.
pub(super) fn prompt(event: &Event<'_>, kind: Option<Value<'_>>, out: &mut Vec<u8>) {
    let kind = kind.and_then(|kind| json::unescape(kind.raw_string()?).ok());
    let kind = kind.as_deref().unwrap_or("attention");
    let subject = event.attribute(Attribute::Subject).map_or(String::new(), |subject| format!(": {subject}"));
    json::write_string(out, &format!("{} requests {kind}{subject}", event.agent()));
}

/// The verdict on a field itself, which its last names `rest` led to. A label whose name spells out the arrays it
/// should lie in has no `id` of its own beside it.
fn lowered(below: Below, rest: &str) -> FieldVerdict {
    match below {
        Below::Removed => FieldVerdict::Remove,
        Below::Label if rest.contains(['.', '[']) => FieldVerdict::Remove,
        below => FieldVerdict::Lower(below),
    }
}

/// What an `id` reads as inside quotes: a string as written, a number or boolean by its text.
pub(super) fn scalar_text(value: Value<'_>) -> Option<&str> {
    match value.kind {
        Kind::String => value.raw_string(),
        Kind::Number | Kind::True | Kind::False => Some(value.text),
        Kind::Object | Kind::Array | Kind::Null => None,
    }
}

/// A member's name without escapes. In a payload a lone surrogate is legal; no path holds one, so it is enough that
/// what stands before it is kept.
pub(super) fn name(raw: &str) -> Cow<'_, str> {
    json::unescape(raw).unwrap_or_else(|_| {
        let mut text = String::new();
        if json::unescape_into(raw, &mut text).is_err() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        Cow::Owned(text)
    })
}
