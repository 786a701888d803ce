//! The admission path: one pass of the strict scanner, then the rules of contract §2 over the outermost members.
//!
//! Owns: the buffers of one core's parsing, reused from event to event, so that steady state allocates nothing.
//!
//! Order of judgement: the JSON itself, whether it is an object, whether its `type` makes it an event at all, then the
//! members as they stand, then what is missing, then what the scope asks for. The first fault is the answer.

mod sliced;

use std::borrow::Cow;
use std::fmt;

pub use sliced::SlicedParse;

use super::grammar::{is_extension_name, is_traceparent, scope_of};
use super::{
    ATTRIBUTES, Attribute, Capture, Event, EventMeta, Extension, ExtensionValue, Fingerprinter, Scope, Severity, Span,
};
use crate::wire::json::{self, JsonFault, Kind, MemberSpan};
use crate::wire::rfc3339::is_date_time;

/// Bytes each buffer may keep from one event to the next; one huge event must not pin memory for ever.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Characters of a peer's member name that a fault repeats.
const NAME_SHOWN_MAX: usize = 64;

/// Why bytes are no event. The relay decides what that means on its protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventFault {
    /// No JSON the relay takes.
    Json(JsonFault),
    /// JSON, but no object.
    NotAnObject,
    /// An object whose `type` is missing, no string, or without a dot: over WebSocket that is a frame. Of a repeated
    /// `type` the first decides.
    Undotted,
    /// An event that breaks a rule.
    Invalid {
        /// The attribute at fault.
        attribute: Cow<'static, str>,
        /// What it must be.
        rule: &'static str,
        /// The event's `id`, if it has exactly one and that is legal.
        id: Option<String>,
    },
}

impl fmt::Display for EventFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(fault) => fault.fmt(f),
            Self::NotAnObject => f.write_str("an event must be a JSON object"),
            Self::Undotted => f.write_str("type: required, a string of dotted tokens"),
            Self::Invalid { attribute, rule, .. } => write!(f, "{attribute}: {rule}"),
        }
    }
}

impl std::error::Error for EventFault {}

impl From<JsonFault> for EventFault {
    fn from(fault: JsonFault) -> Self {
        Self::Json(fault)
    }
}

/// Parses events, one at a time.
#[derive(Debug)]
pub struct Parser {
    /// The event without white space, if it came with line breaks.
    compacted: Vec<u8>,
    pub(super) judge: Judge,
}

/// Reads an event out of the members of a checked object.
#[derive(Debug)]
pub(super) struct Judge {
    fingerprinter: Fingerprinter,
    /// Members of the event being read.
    pub(super) members: Vec<MemberSpan>,
    /// Attributes that had escapes, unescaped.
    text: String,
    extensions: Vec<Extension>,
    meta: EventMeta,
}

impl Parser {
    /// A parser whose fingerprints agree with those of all parsers made from copies of `fingerprinter`.
    #[must_use]
    pub fn new(fingerprinter: Fingerprinter) -> Self {
        let judge =
            Judge { fingerprinter, members: Vec::new(), text: String::new(), extensions: Vec::new(), meta: EMPTY };
        Self { compacted: Vec::new(), judge }
    }

    /// The event these bytes are. It borrows from both until it is copied
    /// ([`crate::relay::event::batch::Batch::push`]).
    ///
    /// # Errors
    /// The first rule of §2 that is broken.
    pub fn parse<'a>(&'a mut self, source: &'a [u8]) -> Result<Event<'a>, EventFault> {
        self.reset();
        let members = &mut self.judge.members;
        let mut root = json::scan_members(source, |member| members.push(member))?.root;
        if root.kind != Kind::Object {
            return Err(EventFault::NotAnObject);
        }
        if json::has_line_break(root.text.as_bytes()) {
            json::compact(root.text.as_bytes(), &mut self.compacted);
            members.clear();
            root = json::scan_members(&self.compacted, |member| members.push(member))?.root;
        }
        self.judge.read(root)
    }

    /// Empties the buffers, and gives back what an unusually large event made them hold.
    pub(super) fn reset(&mut self) {
        let Judge { members, text, extensions, meta, .. } = &mut self.judge;
        *meta = EMPTY;
        members.clear();
        members.shrink_to(KEPT_BYTES_MAX / size_of::<MemberSpan>());
        self.compacted.clear();
        self.compacted.shrink_to(KEPT_BYTES_MAX);
        text.clear();
        text.shrink_to(KEPT_BYTES_MAX);
        extensions.clear();
        extensions.shrink_to(KEPT_BYTES_MAX / size_of::<Extension>());
    }
}

impl Judge {
    /// The event that this object is; its members are those of `members`.
    pub(super) fn read<'a>(&'a mut self, root: json::Value<'a>) -> Result<Event<'a>, EventFault> {
        let mut reader = AttributeReader {
            raw: root.text,
            origin: root.start,
            text: &mut self.text,
            extensions: &mut self.extensions,
            meta: &mut self.meta,
        };
        if let Err(fault) = reader.read(&self.members) {
            return Err(reader.refusal(&self.members, fault));
        }
        let Self { fingerprinter, text, extensions, meta, .. } = self;
        let event = Event { raw: root.text, text, meta, extensions };
        let fingerprint = fingerprinter.fingerprint(event.source(), event.id());
        meta.fingerprint = fingerprint;
        Ok(Event { raw: root.text, text, meta, extensions })
    }
}

#[cfg(test)]
impl Parser {
    /// Bytes of memory the buffers hold.
    pub(super) fn kept_bytes(&self) -> usize {
        let Judge { members, text, extensions, .. } = &self.judge;
        members.capacity() * size_of::<MemberSpan>()
            + self.compacted.capacity()
            + text.capacity()
            + extensions.capacity() * size_of::<Extension>()
    }
}

/// What an event without any attribute would be.
const EMPTY: EventMeta = EventMeta {
    attributes: [Span { start: 0, len: 0, unescaped: false }; ATTRIBUTES],
    seq: None,
    epoch: 0,
    severity: Severity::Info,
    capture: Capture::Metadata,
    scope: Scope::Session,
    fingerprint: 0,
};

/// The envelope's own members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CoreAttributes {
    Text(Attribute),
    Aep,
    Time,
    Traceparent,
    Seq,
    Epoch,
    Severity,
    Capture,
    Data,
}

impl CoreAttributes {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "id" => Self::Text(Attribute::Id),
            "type" => Self::Text(Attribute::Type),
            "source" => Self::Text(Attribute::Source),
            "agent" => Self::Text(Attribute::Agent),
            "session" => Self::Text(Attribute::Session),
            "run" => Self::Text(Attribute::Run),
            "step" => Self::Text(Attribute::Step),
            "subject" => Self::Text(Attribute::Subject),
            "cause" => Self::Text(Attribute::Cause),
            "aep" => Self::Aep,
            "time" => Self::Time,
            "traceparent" => Self::Traceparent,
            "seq" => Self::Seq,
            "epoch" => Self::Epoch,
            "severity" => Self::Severity,
            "capture" => Self::Capture,
            "data" => Self::Data,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Text(attribute) => attribute.as_str(),
            Self::Aep => "aep",
            Self::Time => "time",
            Self::Traceparent => "traceparent",
            Self::Seq => "seq",
            Self::Epoch => "epoch",
            Self::Severity => "severity",
            Self::Capture => "capture",
            Self::Data => "data",
        }
    }

    /// Its bit in the set of members seen.
    fn bit(self) -> u32 {
        1 << match self {
            Self::Text(attribute) => attribute as u32,
            Self::Aep => ATTRIBUTES as u32,
            Self::Time => ATTRIBUTES as u32 + 1,
            Self::Traceparent => ATTRIBUTES as u32 + 2,
            Self::Seq => ATTRIBUTES as u32 + 3,
            Self::Epoch => ATTRIBUTES as u32 + 4,
            Self::Severity => ATTRIBUTES as u32 + 5,
            Self::Capture => ATTRIBUTES as u32 + 6,
            Self::Data => ATTRIBUTES as u32 + 7,
        }
    }
}

/// Without these there is no event.
const REQUIRED: [CoreAttributes; 6] = [
    CoreAttributes::Aep,
    CoreAttributes::Text(Attribute::Id),
    CoreAttributes::Text(Attribute::Type),
    CoreAttributes::Time,
    CoreAttributes::Text(Attribute::Source),
    CoreAttributes::Text(Attribute::Agent),
];

/// The attribute at fault and its rule.
type RuleFault = (Cow<'static, str>, &'static str);

/// A rule broken by the value of one member.
type EventRule = &'static str;

const REPEATED: EventRule = "must not be repeated";
const LONE_SURROGATE: EventRule = "must not hold a lone surrogate";
const TEXT: EventRule = "must be a non-empty string";
const POSITION: EventRule = "must be an integer from 0 to 2^63-1, without fraction or exponent";

/// Reads the members of one object into an event's parts.
struct AttributeReader<'a> {
    raw: &'a str,
    /// Where `raw` begins in what the member spans count from.
    origin: usize,
    text: &'a mut String,
    extensions: &'a mut Vec<Extension>,
    meta: &'a mut EventMeta,
}

impl AttributeReader<'_> {
    fn read(&mut self, members: &[MemberSpan]) -> Result<(), RuleFault> {
        let mut seen = 0_u32;
        for member in members {
            let name = self.name_span(member).map_err(|rule| (self.shown_name(member), rule))?;
            let Some(core) = CoreAttributes::named(self.resolve(name)) else {
                self.extension(name, member).map_err(|rule| (self.shown_name(member), rule))?;
                continue;
            };
            if seen & core.bit() != 0 {
                return Err((core.name().into(), REPEATED));
            }
            seen |= core.bit();
            self.core(core, member).map_err(|rule| (core.name().into(), rule))?;
        }
        if let Some(missing) = REQUIRED.iter().find(|core| seen & core.bit() == 0) {
            return Err((missing.name().into(), "required"));
        }
        self.sort_extensions()?;
        self.scope(seen).map_err(|(core, rule)| (core.name().into(), rule))
    }

    /// A member the envelope defines.
    fn core(&mut self, core: CoreAttributes, member: &MemberSpan) -> Result<(), EventRule> {
        match core {
            CoreAttributes::Text(attribute) => {
                let span = self.string(member, TEXT)?;
                if span.len == 0 {
                    return Err(TEXT);
                }
                self.meta.attributes[attribute as usize] = span;
                if attribute == Attribute::Type {
                    self.meta.scope = scope_of(self.resolve(span))
                        .ok_or("must be {category}.{token}… of a known category, or x.{vendor}.{token}.{token}…")?;
                }
            }
            CoreAttributes::Aep => {
                const RULE: EventRule = "must be \"0.1\"";
                self.check(member, RULE, |text| text == "0.1")?;
            }
            CoreAttributes::Time => {
                self.check(member, "must be an RFC 3339 date-time with a zone", is_date_time)?;
            }
            CoreAttributes::Traceparent => {
                self.check(member, "must be a W3C traceparent", is_traceparent)?;
            }
            CoreAttributes::Seq => self.meta.seq = Some(self.position(member)?),
            CoreAttributes::Epoch => self.meta.epoch = self.position(member)?,
            CoreAttributes::Severity => {
                const RULE: EventRule = "must be debug, info, notice, warning, error or critical";
                self.meta.severity = self.word(member, RULE)?;
            }
            CoreAttributes::Capture => {
                const RULE: EventRule = "must be none, metadata, redacted or full";
                self.meta.capture = self.word(member, RULE)?;
            }
            CoreAttributes::Data if member.kind == Kind::Object => {}
            CoreAttributes::Data => return Err("must be an object"),
        }
        Ok(())
    }

    /// A member the envelope does not define.
    fn extension(&mut self, name: Span, member: &MemberSpan) -> Result<(), EventRule> {
        const SCALAR: EventRule = "an extension attribute must be a string, a boolean or an integer of 64 bits";
        if !is_extension_name(self.resolve(name)) {
            return Err("an extension attribute's name must be 1 to 20 of a-z and 0-9");
        }
        let value = match member.kind {
            Kind::String => ExtensionValue::Text(self.string(member, SCALAR)?),
            Kind::Number => ExtensionValue::Integer(self.integer(member).ok_or(SCALAR)?),
            Kind::True => ExtensionValue::Boolean(true),
            Kind::False => ExtensionValue::Boolean(false),
            Kind::Object | Kind::Array | Kind::Null => return Err(SCALAR),
        };
        self.extensions.push(Extension { name, value });
        Ok(())
    }

    /// Orders extension attributes by name, which shows repeated ones and lets them be looked up.
    fn sort_extensions(&mut self) -> Result<(), RuleFault> {
        let (raw, text) = (self.raw, &*self.text);
        self.extensions.sort_unstable_by_key(|extension| extension.name.of(raw, text));
        let mut pairs = self.extensions.windows(2);
        let repeated = pairs.find_map(|pair| match pair {
            [one, next] if one.name.of(raw, text) == next.name.of(raw, text) => Some(one.name.of(raw, text)),
            _ => None,
        });
        repeated.map_or(Ok(()), |name| Err((name.to_owned().into(), REPEATED)))
    }

    /// What the scope requires and forbids.
    fn scope(&self, seen: u32) -> Result<(), (CoreAttributes, EventRule)> {
        const SESSION: CoreAttributes = CoreAttributes::Text(Attribute::Session);
        let has = |core: CoreAttributes| seen & core.bit() != 0;
        match self.meta.scope {
            Scope::Agent => {
                let forbidden = [
                    SESSION,
                    CoreAttributes::Text(Attribute::Run),
                    CoreAttributes::Text(Attribute::Step),
                    CoreAttributes::Seq,
                ];
                match forbidden.into_iter().find(|&core| has(core)) {
                    Some(core) => Err((core, "forbidden in agent.* events")),
                    None => Ok(()),
                }
            }
            _ if !has(SESSION) => Err((SESSION, "required by this type")),
            Scope::Session if !has(CoreAttributes::Seq) => Err((CoreAttributes::Seq, "required by this type")),
            Scope::Command if has(CoreAttributes::Seq) => Err((CoreAttributes::Seq, "forbidden in commands")),
            Scope::Routed if has(CoreAttributes::Seq) => Err((CoreAttributes::Seq, "forbidden in attention.routed")),
            Scope::Session | Scope::Command | Scope::Routed => Ok(()),
        }
    }

    fn check(&mut self, member: &MemberSpan, rule: EventRule, legal: impl Fn(&str) -> bool) -> Result<(), EventRule> {
        let span = self.string(member, rule)?;
        if legal(self.resolve(span)) { Ok(()) } else { Err(rule) }
    }

    fn word<T: std::str::FromStr>(&mut self, member: &MemberSpan, rule: EventRule) -> Result<T, EventRule> {
        let span = self.string(member, rule)?;
        self.resolve(span).parse().map_err(|_| rule)
    }

    fn position(&self, member: &MemberSpan) -> Result<u64, EventRule> {
        let value = (member.kind == Kind::Number).then(|| self.integer(member)).flatten();
        value.and_then(|value| u64::try_from(value).ok()).ok_or(POSITION)
    }

    fn integer(&self, member: &MemberSpan) -> Option<i64> {
        json::integer(self.resolve(self.raw_span(member.value_start, member.value_end)))
    }

    /// The text of a string member; `rule` is broken if it is none.
    fn string(&mut self, member: &MemberSpan, rule: EventRule) -> Result<Span, EventRule> {
        if member.kind != Kind::String {
            return Err(rule);
        }
        let span = self.raw_span(member.value_start + 1, member.value_end - 1);
        if member.value_escaped { self.unescape(span) } else { Ok(span) }
    }

    fn name_span(&mut self, member: &MemberSpan) -> Result<Span, EventRule> {
        let span = self.raw_span(member.name_start, member.name_end);
        if member.name_escaped { self.unescape(span) } else { Ok(span) }
    }

    /// A span of `raw` from offsets that count from the source.
    fn raw_span(&self, start: u32, end: u32) -> Span {
        Span { start: start - self.origin as u32, len: end - start, unescaped: false }
    }

    fn unescape(&mut self, escaped: Span) -> Result<Span, EventRule> {
        let start = self.text.len();
        json::unescape_into(escaped.of(self.raw, ""), self.text).map_err(|_| LONE_SURROGATE)?;
        Ok(Span { start: start as u32, len: (self.text.len() - start) as u32, unescaped: true })
    }

    fn resolve(&self, span: Span) -> &str {
        span.of(self.raw, self.text)
    }

    /// A member's name as a fault repeats it: as written, shortened.
    #[cold]
    fn shown_name(&self, member: &MemberSpan) -> Cow<'static, str> {
        let name = self.resolve(self.raw_span(member.name_start, member.name_end));
        match name.char_indices().nth(NAME_SHOWN_MAX) {
            Some((end, _)) => format!("{}…", &name[..end]).into(),
            None => name.to_owned().into(),
        }
    }

    /// The answer to an object that broke a rule: none of ours if its `type` has no dot, else with its `id`.
    #[cold]
    fn refusal(&self, members: &[MemberSpan], (attribute, rule): RuleFault) -> EventFault {
        let is_dotted = |kind: &str| match json::unescape(kind) {
            Ok(kind) => kind.contains('.'),
            Err(_) => kind.contains('.'),
        };
        if !self.strings_named("type", members).next().flatten().is_some_and(is_dotted) {
            return EventFault::Undotted;
        }
        let mut ids = self.strings_named("id", members);
        let id = match (ids.next(), ids.next()) {
            (Some(Some(id)), None) if !id.is_empty() => json::unescape(id).ok().map(Cow::into_owned),
            _ => None,
        };
        EventFault::Invalid { attribute, rule, id }
    }

    /// For each member of this name the inside of its value, if that is a string.
    fn strings_named<'m>(&'m self, name: &'m str, members: &'m [MemberSpan]) -> impl Iterator<Item = Option<&'m str>> {
        let named = move |member: &&MemberSpan| {
            let raw = self.resolve(self.raw_span(member.name_start, member.name_end));
            json::unescape(raw).is_ok_and(|unescaped| unescaped == name)
        };
        members.iter().filter(named).map(|member| {
            (member.kind == Kind::String)
                .then(|| self.resolve(self.raw_span(member.value_start + 1, member.value_end - 1)))
        })
    }
}
