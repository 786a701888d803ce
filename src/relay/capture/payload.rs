//! The payload of a registered type at a lower level (contract §5).
//!
//! One walk down the paths of the type's fields. All fields still in play share the joined names walked so far, so the
//! state of the walk is that one prefix; it recurses no deeper than the longest path and looks into nothing that no path
//! leads to.
//!
//! Names are compared joined and unescaped: a member called `a.b` is as good as `b` inside `a`, and what lies beneath a
//! field by name (`result.text` for `result`) shares its fate, for some reader will take it for a part of the field.
//!
//! Hostile repetition: the sentence and the label are written once per object, later copies go. Otherwise a megabyte of
//! two-byte labels beside a megabyte of `id` would become a terabyte.

use std::borrow::Cow;

use super::annotations::{Below, Field};
use super::splice::Container;
use crate::relay::event::{Attribute, Capture, Event};
use crate::wire::json::{self, Kind, Value};

/// What lowers one event's payload.
#[derive(Debug)]
pub(super) struct Payload<'e> {
    agent: &'e str,
    subject: Option<&'e str>,
    fields: &'static [Field],
    level: Capture,
}

/// What becomes of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
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

impl<'e> Payload<'e> {
    pub(super) fn new(event: &Event<'e>, fields: &'static [Field], level: Capture) -> Self {
        Self { agent: event.agent(), subject: event.attribute(Attribute::Subject), fields, level }
    }

    /// Writes `data`, which begins at `start` of the text, lowered; answers where it ends.
    pub(super) fn write(&self, text: &str, start: usize, out: &mut Vec<u8>) -> usize {
        self.object(text, start, "", out)
    }

    /// Writes an object whose members' joined names begin with `at`.
    fn object(&self, text: &str, start: usize, at: &'static str, out: &mut Vec<u8>) -> usize {
        let mut container = Container::open(text, start, out);
        let mut replaced = false;
        while let Some(part) = container.next_part() {
            match (self.verdict(at, &name(part.name)), part.kind) {
                (Verdict::Keep, _) | (Verdict::Entry, Kind::Number | Kind::True | Kind::False) => container.keep(part),
                (Verdict::Object(at), Kind::Object) => {
                    container.write_inside(part, |start, out| self.object(text, start, at, out));
                }
                (Verdict::Array(at), Kind::Array) => {
                    container.write_inside(part, |start, out| self.array(text, start, at, out));
                }
                (Verdict::Lower(Below::Values), Kind::Object) => {
                    container.write_inside(part, |start, out| values(text, start, out));
                }
                (Verdict::Lower(Below::Prompt), Kind::String) if !replaced => {
                    replaced = true;
                    container.write_instead(part, |out| self.prompt(json::value_at(text, start), out));
                }
                (Verdict::Lower(Below::Label), _) if !replaced => {
                    replaced = true;
                    match last(json::value_at(text, start), "id").and_then(scalar_text) {
                        Some(id) => container.write_instead(part, |out| quote(id, out)),
                        None => container.leave_out(part),
                    }
                }
                _ => container.leave_out(part),
            }
        }
        container.close()
    }

    /// Writes an array of objects; items of any other kind go.
    fn array(&self, text: &str, start: usize, at: &'static str, out: &mut Vec<u8>) -> usize {
        let mut container = Container::open(text, start, out);
        while let Some(part) = container.next_part() {
            if part.kind == Kind::Object {
                container.write_inside(part, |start, out| self.object(text, start, at, out));
            } else {
                container.leave_out(part);
            }
        }
        container.close()
    }

    /// What becomes of the member called `name` where the joined names so far are `at`.
    fn verdict(&self, at: &str, name: &str) -> Verdict {
        for field in self.fields.iter().filter(|field| field.minimum > self.level) {
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
                    return Verdict::Array(at);
                }
                if let Some(at) = inside.strip_prefix('.').and_then(|deeper| field.path.strip_suffix(deeper)) {
                    return Verdict::Object(at);
                }
            } else if let Some(beneath) = name.strip_prefix(rest) {
                match field.below {
                    Below::Values if beneath.starts_with('.') => return Verdict::Entry,
                    _ if beneath.starts_with(['.', '[']) => return Verdict::Remove,
                    _ => {}
                }
            }
        }
        Verdict::Keep
    }

    /// Writes the sentence that stands for a prompt. A `kind` that is no text counts as missing.
    fn prompt(&self, data: Option<Value<'_>>, out: &mut Vec<u8>) {
        let kind = last(data, "kind").and_then(|kind| json::unescape(kind.raw_string()?).ok());
        let kind = kind.as_deref().unwrap_or("attention");
        let subject = self.subject.map_or(String::new(), |subject| format!(": {subject}"));
        json::write_string(out, &format!("{} requests {kind}{subject}", self.agent));
    }
}

/// The verdict on a field itself, which its last names `rest` led to. A label whose name spells out the arrays it should
/// lie in has no `id` of its own beside it.
fn lowered(below: Below, rest: &str) -> Verdict {
    match below {
        Below::Removed => Verdict::Remove,
        Below::Label if rest.contains(['.', '[']) => Verdict::Remove,
        below => Verdict::Lower(below),
    }
}

/// Writes the numbers and booleans of an object.
fn values(text: &str, start: usize, out: &mut Vec<u8>) -> usize {
    let mut container = Container::open(text, start, out);
    while let Some(part) = container.next_part() {
        if matches!(part.kind, Kind::Number | Kind::True | Kind::False) {
            container.keep(part);
        } else {
            container.leave_out(part);
        }
    }
    container.close()
}

/// The value of the last member of that name: the one most parsers take.
fn last<'a>(object: Option<Value<'a>>, wanted: &str) -> Option<Value<'a>> {
    object?.members().filter(|member| name(member.name) == wanted).last().map(|member| member.value)
}

/// What an `id` reads as inside quotes: a string as written, a number or boolean by its text.
fn scalar_text(value: Value<'_>) -> Option<&str> {
    match value.kind {
        Kind::String => value.raw_string(),
        Kind::Number | Kind::True | Kind::False => Some(value.text),
        Kind::Object | Kind::Array | Kind::Null => None,
    }
}

fn quote(raw: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(raw.as_bytes());
    out.push(b'"');
}

/// A member's name without escapes. In a payload a lone surrogate is legal; no path holds one, so it is enough that what
/// stands before it is kept.
fn name(raw: &str) -> Cow<'_, str> {
    json::unescape(raw).unwrap_or_else(|_| {
        let mut text = String::new();
        if json::unescape_into(raw, &mut text).is_err() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        Cow::Owned(text)
    })
}
