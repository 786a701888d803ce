//! Bytes → [`Event`]: the envelope attributes, the scopes and the type grammar (contract §2).
//!
//! A [`Batch`] holds whole events, each as the bytes that will be delivered (`raw`), and their attributes as
//! spans: into `bytes` where the value stands unescaped in the text, into `text` where it had escapes. After
//! this module there is an event, not a checked map: whatever is in a batch has passed every rule of §2.
//!
//! Invariants: `raw` of each event is one JSON object without line breaks; every span lies inside its store;
//! all stores are UTF-8.

use std::fmt;

/// How loud an event is (§2); ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Severity {
    /// `debug`
    Debug,
    /// `info`, the default
    #[default]
    Info,
    /// `notice`
    Notice,
    /// `warning`
    Warning,
    /// `error`
    Error,
    /// `critical`
    Critical,
}

/// How much of the payload an event carries (§2, §5); ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Capture {
    /// `none`
    None,
    /// `metadata`, the default
    #[default]
    Metadata,
    /// `redacted`
    Redacted,
    /// `full`
    Full,
}

/// How an event is addressed (§2, Scope).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// `agent.*`: no session, live only.
    Agent,
    /// A command: routed to its session's claimant (§7).
    Command,
    /// `attention.routed`: a session, no `seq`.
    Routed,
    /// Everything else: a session and a `seq`.
    Session,
}

/// A position inside one session; ordered lexicographically (§2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Epoch, 0 … 2^63−1.
    pub epoch: u64,
    /// Sequence number, 0 … 2^63−1.
    pub seq: u64,
}

impl fmt::Display for Position {
    /// `{epoch}:{seq}`, as SSE ids and comments write it (§4).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.seq)
    }
}

/// The string attributes that filters, routing or delivery read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Attribute {
    /// `id`
    Id,
    /// `type`
    Type,
    /// `source`
    Source,
    /// `agent`
    Agent,
    /// `session`
    Session,
    /// `run`
    Run,
    /// `step`
    Step,
    /// `subject`
    Subject,
    /// `cause`
    Cause,
}

/// How many [`Attribute`]s there are.
pub const ATTRIBUTES: usize = 9;

/// A piece of one of a batch's two stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Start in its store, bytes.
    pub start: u32,
    /// Length in bytes; attributes are never empty, so 0 stands for an absent one.
    pub len: u32,
    /// Whether the span lies in the store of unescaped text instead of the raw bytes.
    pub unescaped: bool,
}

/// A scalar: an extension attribute's value, or what a filter compares with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// A string.
    Text(&'a str),
    /// An integer written without fraction or exponent.
    Integer(i64),
    /// A boolean.
    Boolean(bool),
}

/// What is known of one event of a batch.
#[derive(Debug, Clone)]
pub struct EventMeta {
    /// The event as it is delivered.
    pub raw: Span,
    /// String attributes, by [`Attribute`].
    pub attributes: [Span; ATTRIBUTES],
    /// First of its extension attributes in the batch's list, and how many.
    pub extensions: (u32, u32),
    /// `seq`, if it bears one.
    pub seq: Option<u64>,
    /// `epoch`, 0 if absent.
    pub epoch: u64,
    /// `severity`, with its default.
    pub severity: Severity,
    /// `capture`, with its default.
    pub capture: Capture,
    /// What kind of event it is.
    pub scope: Scope,
}

/// One extension attribute of an event.
#[derive(Debug, Clone, Copy)]
pub struct Extension {
    /// Its name.
    pub name: Span,
    /// Its value; text lies in the batch.
    pub value: ExtensionValue,
}

/// An extension attribute's value as the batch stores it.
#[derive(Debug, Clone, Copy)]
pub enum ExtensionValue {
    /// A string.
    Text(Span),
    /// An integer.
    Integer(i64),
    /// A boolean.
    Boolean(bool),
}

/// Events of one sender for one owner core, in the order they were sent.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    text: String,
    events: Vec<EventMeta>,
    extensions: Vec<Extension>,
}

/// One event of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    batch: &'a Batch,
    meta: &'a EventMeta,
}
