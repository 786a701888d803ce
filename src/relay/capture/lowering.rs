//! The walk that lowers an event: over its envelope, down the paths of its type's fields, and past everything else.
//!
//! It has a stack of its own, no deeper than the longest path, and can stop after any part: an event of the largest
//! size is lowered over many turns. What becomes of a member is the business of `payload.rs`.
//!
//! Hostile repetition: the sentence and the label are written once per object, later copies go. Otherwise a megabyte of
//! two-byte labels beside a megabyte of `id` would become a terabyte.
//!
//! Invariant: what is written does not depend on where the walk stopped.

use super::annotations::{AnnotatedField, Below, fields};
use super::payload::{FieldVerdict, name, prompt, scalar_text, verdict};
use super::splice::{Container, PartSpan, SplicePart, copy};
use crate::relay::event::{Capture, Event};
use crate::wire::json::{self, Kind, ValueWalk};

/// What looking at a part costs, whatever its size, in bytes of a budget.
const PART_COST: usize = 16;

/// An event being lowered; see the module.
#[derive(Debug)]
pub struct Lowering {
    level: Capture,
    fields: Option<&'static [AnnotatedField]>,
    stack: Vec<DepthLevel>,
    /// The part whose value is being walked.
    walking: Option<Walking>,
}

/// A container being written.
#[derive(Debug)]
struct DepthLevel {
    container: Container,
    rule: FieldRule,
    /// Of the envelope: whether it has said its capture level. Of an object: whether its sentence or label is written.
    has_written: bool,
}

/// What a container's parts are judged by.
#[derive(Debug, Clone, Copy)]
enum FieldRule {
    Envelope,
    /// An object of the payload whose members' joined names begin so.
    Object(&'static str),
    /// An array of such objects.
    Array(&'static str),
    /// Only numbers and booleans stay.
    Values,
    /// Nothing is written: the last member of the name that its parent needs, for the part that waits for it.
    Seek {
        wanted: Below,
        found: Option<usize>,
        part: PartSpan,
    },
}

#[derive(Debug)]
struct Walking {
    walk: ValueWalk,
    fate: Fate,
}

/// What becomes of a part.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// It is copied; so far, up to here.
    Keep(usize),
    LeaveOut,
    /// Another value has been written.
    Replaced,
}

/// What a part was found to be.
enum FoundMember {
    Walk(Fate),
    Inside(FieldRule),
    Seek(Below),
}

impl Lowering {
    /// Of an event, to that level.
    #[must_use]
    pub fn begin(event: &Event<'_>, level: Capture, out: &mut Vec<u8>) -> Self {
        let fields = if level == Capture::None { None } else { fields(event.kind()) };
        let container = Container::open(event.raw_text(), 0, out);
        let envelope = DepthLevel { container, rule: FieldRule::Envelope, has_written: false };
        Self { level, fields, stack: vec![envelope], walking: None }
    }

    /// Goes on with the same event, as far as the budget lasts. Answers whether all is written.
    pub fn walk(&mut self, event: &Event<'_>, budget: &mut usize, out: &mut Vec<u8>) -> bool {
        while !self.stack.is_empty() {
            if *budget == 0 {
                return false;
            }
            if self.walking.is_some() {
                self.walk_value(event.raw_text(), budget, out);
            } else {
                *budget = budget.saturating_sub(PART_COST);
                self.next_part(event, out);
            }
        }
        true
    }

    fn walk_value(&mut self, text: &str, budget: &mut usize, out: &mut Vec<u8>) {
        let (Some(walking), Some(level)) = (&mut self.walking, self.stack.last_mut()) else { return };
        let before = walking.walk.at();
        let ended = walking.walk.go_on(text.as_bytes(), *budget) || walking.walk.at() >= text.len();
        let end = walking.walk.at();
        *budget = budget.saturating_sub(end - before);
        if let Fate::Keep(copied) = &mut walking.fate {
            copy(text, std::mem::replace(copied, end), end, out);
        }
        if ended {
            let separator = level.container.step_behind(text, end);
            if !matches!(walking.fate, Fate::LeaveOut) {
                copy(text, end, separator, out);
            }
            self.walking = None;
        }
    }

    fn next_part(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let text = event.raw_text();
        let Some(level) = self.stack.last_mut() else { return };
        let Some(part) = level.container.next_part(text) else { return self.close(event, out) };
        match Self::found(self.level, self.fields, level, &part) {
            FoundMember::Walk(fate) => {
                match fate {
                    Fate::Keep(_) => {
                        level.container.part(out);
                    }
                    // Of the envelope's capture alone; a sentence and a label are sought first.
                    Fate::Replaced => {
                        let out = level.container.part(out);
                        copy(text, part.span.from, part.span.value, out);
                        super::write_level(self.level, out);
                    }
                    Fate::LeaveOut => {}
                }
                self.walking = Some(Walking { walk: ValueWalk::from(part.span.value), fate });
            }
            FoundMember::Inside(rule) => {
                let out = level.container.part(out);
                copy(text, part.span.from, part.span.value, out);
                let container = Container::open(text, part.span.value, out);
                self.stack.push(DepthLevel { container, rule, has_written: false });
            }
            FoundMember::Seek(wanted) => {
                level.has_written = true;
                let container = Container::at(text, level.container.start);
                let rule = FieldRule::Seek { wanted, found: None, part: part.span };
                self.stack.push(DepthLevel { container, rule, has_written: false });
            }
        }
    }

    /// What a part is to the container that it stands in.
    fn found(
        lowered: Capture,
        fields: Option<&'static [AnnotatedField]>,
        level: &mut DepthLevel,
        part: &SplicePart<'_>,
    ) -> FoundMember {
        let keep = FoundMember::Walk(Fate::Keep(part.span.from));
        let leave_out = FoundMember::Walk(Fate::LeaveOut);
        let is_value = matches!(part.kind, Kind::Number | Kind::True | Kind::False);
        match &mut level.rule {
            FieldRule::Envelope => match (&*name(part.name), fields) {
                ("data", None) => leave_out,
                ("data", Some(_)) => FoundMember::Inside(FieldRule::Object("")),
                ("capture", _) => {
                    level.has_written = true;
                    FoundMember::Walk(Fate::Replaced)
                }
                _ => keep,
            },
            FieldRule::Array(at) if part.kind == Kind::Object => FoundMember::Inside(FieldRule::Object(at)),
            FieldRule::Array(_) => leave_out,
            FieldRule::Values => {
                if is_value {
                    keep
                } else {
                    leave_out
                }
            }
            FieldRule::Seek { wanted, found, .. } => {
                if name(part.name) == sought(*wanted) {
                    *found = Some(part.span.value);
                }
                leave_out
            }
            FieldRule::Object(at) => {
                let verdict = verdict(fields.unwrap_or_default(), lowered, at, &name(part.name));
                Self::of_verdict(verdict, part, level.has_written)
            }
        }
    }

    fn of_verdict(verdict: FieldVerdict, part: &SplicePart<'_>, has_written: bool) -> FoundMember {
        let keep = FoundMember::Walk(Fate::Keep(part.span.from));
        match (verdict, part.kind) {
            (FieldVerdict::Keep, _) | (FieldVerdict::Entry, Kind::Number | Kind::True | Kind::False) => keep,
            (FieldVerdict::Object(at), Kind::Object) => FoundMember::Inside(FieldRule::Object(at)),
            (FieldVerdict::Array(at), Kind::Array) => FoundMember::Inside(FieldRule::Array(at)),
            (FieldVerdict::Lower(Below::Values), Kind::Object) => FoundMember::Inside(FieldRule::Values),
            (FieldVerdict::Lower(Below::Prompt), Kind::String) if !has_written => FoundMember::Seek(Below::Prompt),
            (FieldVerdict::Lower(Below::Label), _) if !has_written => FoundMember::Seek(Below::Label),
            _ => FoundMember::Walk(Fate::LeaveOut),
        }
    }

    /// The innermost container is at its end.
    fn close(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let text = event.raw_text();
        let Some(mut level) = self.stack.pop() else { return };
        match level.rule {
            FieldRule::Seek { wanted, found, part } => self.replace(event, wanted, found, part, out),
            FieldRule::Envelope => {
                if !level.has_written {
                    let out = level.container.part(out);
                    out.extend_from_slice(b"\"capture\":");
                    super::write_level(self.level, out);
                }
                level.container.close(text, out);
            }
            FieldRule::Object(_) | FieldRule::Array(_) | FieldRule::Values => {
                let end = level.container.close(text, out);
                if let Some(parent) = self.stack.last_mut() {
                    let separator = parent.container.step_behind(text, end);
                    copy(text, end, separator, out);
                }
            }
        }
    }

    /// Writes the sentence, or the label, that a part has instead of its value; a label without an `id` goes.
    fn replace(&mut self, event: &Event<'_>, wanted: Below, found: Option<usize>, part: PartSpan, out: &mut Vec<u8>) {
        let text = event.raw_text();
        let Some(level) = self.stack.last_mut() else { return };
        let value = found.and_then(|start| json::value_at(text, start));
        let mut written = Vec::new();
        if wanted == Below::Prompt {
            prompt(event, value, &mut written);
        } else if let Some(id) = value.and_then(scalar_text) {
            written.push(b'"');
            written.extend_from_slice(id.as_bytes());
            written.push(b'"');
        }
        let fate = if written.is_empty() {
            Fate::LeaveOut
        } else {
            let out = level.container.part(out);
            copy(text, part.from, part.value, out);
            out.extend_from_slice(&written);
            Fate::Replaced
        };
        self.walking = Some(Walking { walk: ValueWalk::from(part.value), fate });
    }
}

/// The member that what stands below a field is made of.
fn sought(below: Below) -> &'static str {
    if below == Below::Prompt { "kind" } else { "id" }
}
