//! Bytes → [`Event`]: the envelope attributes, the scopes and the type grammar (contract §2).
//!
//! A [`Parser`] turns the bytes of one event into an [`Event`] that borrows them; a [`Batch`] keeps copies of whole
//! events so that they can travel to their owner core. Both hold each event as the bytes that will be delivered (`raw`)
//! and its attributes as spans: into `raw` where the value stands unescaped in the text, into `text` where it had
//! escapes. After this module there is an event, not a checked map: whatever is an [`Event`] has passed every rule of
//! §2.
//!
//! Does not know: what becomes of an event, or what its `data` says.
//!
//! Invariants: `raw` is one JSON object without line breaks and without white space around it; every span of an
//! event lies inside its own `raw` or `text`; an absent attribute is the empty span, since no attribute may be empty;
//! extension attributes are sorted by name and no name occurs twice.

#[cfg(test)]
pub(super) mod testing;

mod attribute;
mod batch;
mod fingerprint;
mod grammar;
mod parser;

pub use attribute::{ATTRIBUTES, Attribute, Capture, Position, Scalar, Scope, Severity, UnknownLevel};
pub use batch::Batch;
pub use fingerprint::Fingerprinter;
pub use grammar::is_extension_name;
pub use parser::{EventFault, Parser, SlicedParse};

/// A piece of an event's `raw`, or of its unescaped `text`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Span {
    /// Start in its store, bytes.
    start: u32,
    /// Length in bytes.
    len: u32,
    /// Whether it lies in `text` instead of `raw`.
    unescaped: bool,
}

impl Span {
    fn of<'a>(self, raw: &'a str, text: &'a str) -> &'a str {
        let store = if self.unescaped { text } else { raw };
        let start = self.start as usize;
        let found = store.get(start..start + self.len as usize);
        debug_assert!(found.is_some(), "{self:?} lies outside its store");
        found.unwrap_or_default()
    }
}

/// What is known of one event, beside its bytes.
#[derive(Debug, Clone, Copy)]
struct EventMeta {
    attributes: [Span; ATTRIBUTES],
    seq: Option<u64>,
    epoch: u64,
    severity: Severity,
    capture: Capture,
    scope: Scope,
    fingerprint: u128,
}

/// Where an event's `type` stands in its bytes, and how much it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outline {
    kind_start: u32,
    /// 0 if the type was written with escapes and stands nowhere.
    kind_bytes: u32,
    /// `capture`, with its default.
    pub capture: Capture,
}

impl Outline {
    /// Of an event that has to be read.
    pub const NONE: Self = Self { kind_start: 0, kind_bytes: 0, capture: Capture::Full };

    /// The type, in the bytes this outline was made of; `None` if it has to be read.
    #[must_use]
    pub fn kind<'a>(&self, raw: &'a [u8]) -> Option<&'a str> {
        let start = self.kind_start as usize;
        let kind = raw.get(start..start + self.kind_bytes as usize).filter(|kind| !kind.is_empty())?;
        std::str::from_utf8(kind).ok()
    }
}

/// One extension attribute of an event.
#[derive(Debug, Clone, Copy)]
struct Extension {
    name: Span,
    value: ExtensionValue,
}

#[derive(Debug, Clone, Copy)]
enum ExtensionValue {
    Text(Span),
    Integer(i64),
    Boolean(bool),
}

/// One valid event. It borrows: from a [`Parser`] and the bytes it read, or from a [`Batch`].
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    raw: &'a str,
    text: &'a str,
    meta: &'a EventMeta,
    extensions: &'a [Extension],
}

impl<'a> Event<'a> {
    /// The event as it is delivered: one JSON object on one line, nothing around it.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.raw.as_bytes()
    }

    /// The same as text.
    #[must_use]
    pub fn raw_text(&self) -> &'a str {
        self.raw
    }

    /// A string attribute, unescaped; nothing if the event does not bear it.
    #[must_use]
    pub fn attribute(&self, attribute: Attribute) -> Option<&'a str> {
        let span = self.meta.attributes[attribute as usize];
        (span.len > 0).then(|| span.of(self.raw, self.text))
    }

    fn required(&self, attribute: Attribute) -> &'a str {
        let value = self.attribute(attribute);
        debug_assert!(value.is_some(), "a valid event bears {attribute:?}");
        value.unwrap_or_default()
    }

    /// `id`
    #[must_use]
    pub fn id(&self) -> &'a str {
        self.required(Attribute::Id)
    }

    /// `type`
    #[must_use]
    pub fn kind(&self) -> &'a str {
        self.required(Attribute::Type)
    }

    /// `source`
    #[must_use]
    pub fn source(&self) -> &'a str {
        self.required(Attribute::Source)
    }

    /// `agent`
    #[must_use]
    pub fn agent(&self) -> &'a str {
        self.required(Attribute::Agent)
    }

    /// What a replay needs to know of the event to frame it without reading it again.
    #[must_use]
    pub fn outline(&self) -> Outline {
        let kind = self.meta.attributes[Attribute::Type as usize];
        let (kind_start, kind_bytes) = if kind.unescaped { (0, 0) } else { (kind.start, kind.len) };
        Outline { kind_start, kind_bytes, capture: self.meta.capture }
    }

    /// `session`: some exactly when the scope is not [`Scope::Agent`].
    #[must_use]
    pub fn session(&self) -> Option<&'a str> {
        self.attribute(Attribute::Session)
    }

    /// `seq`: some exactly when the scope is [`Scope::Session`].
    #[must_use]
    pub fn seq(&self) -> Option<u64> {
        self.meta.seq
    }

    /// `epoch`, 0 by default.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.meta.epoch
    }

    /// Where it stands in its session, if it bears a `seq`.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.meta.seq.map(|seq| Position { epoch: self.meta.epoch, seq })
    }

    /// `severity`, `info` by default.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.meta.severity
    }

    /// `capture`, `metadata` by default.
    #[must_use]
    pub fn capture(&self) -> Capture {
        self.meta.capture
    }

    /// How it is addressed.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.meta.scope
    }

    /// The same for every copy of this event within the process; see [`Fingerprinter`].
    #[must_use]
    pub fn fingerprint(&self) -> u128 {
        self.meta.fingerprint
    }

    /// The extension attribute of this name.
    #[must_use]
    pub fn extension(&self, name: &str) -> Option<Scalar<'a>> {
        let at = self.extensions.binary_search_by(|extension| self.span(extension.name).cmp(name)).ok()?;
        Some(self.scalar(self.extensions[at].value))
    }

    /// All extension attributes, by name.
    pub fn extensions(&self) -> impl ExactSizeIterator<Item = (&'a str, Scalar<'a>)> + use<'a> {
        let event = *self;
        self.extensions.iter().map(move |extension| (event.span(extension.name), event.scalar(extension.value)))
    }

    fn span(&self, span: Span) -> &'a str {
        span.of(self.raw, self.text)
    }

    fn scalar(&self, value: ExtensionValue) -> Scalar<'a> {
        match value {
            ExtensionValue::Text(span) => Scalar::Text(self.span(span)),
            ExtensionValue::Integer(integer) => Scalar::Integer(integer),
            ExtensionValue::Boolean(boolean) => Scalar::Boolean(boolean),
        }
    }
}

#[cfg(test)]
mod tests;
