//! The activity relay's table of refusals: code on the wire and HTTP status (contract §4, §6, §7).
//!
//! A refusal over HTTP is a [`Refusal`], which becomes one JSON body; on a WebSocket the same codes travel in
//! `error` frames (`frames/message.rs`). Adding a code means adding a row to [`Code::row`].

use std::borrow::Cow;

use crate::wire::http1::answer::{Fields, Response, json_response};
use crate::wire::json::ObjectWriter;

/// Every code the relay answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The request breaks HTTP.
    BadRequest,
    /// Token wrong or missing; on a WebSocket also: not this role, or control without a token.
    Unauthorized,
    /// A command by POST.
    ControlRequiresDuplex,
    /// The origin may neither change anything nor open a WebSocket.
    ForbiddenOrigin,
    /// The request is for another host.
    Misdirected,
    /// No such path.
    NotFound,
    /// The path knows other methods.
    MethodNotAllowed,
    /// Head or body too slow.
    Timeout,
    /// Body over its limit.
    PayloadTooLarge,
    /// Batch over its limit.
    TooManyEvents,
    /// Request line over the head limit.
    UriTooLong,
    /// Content type or coding not served.
    UnsupportedMediaType,
    /// `Expect` other than `100-continue`.
    ExpectationFailed,
    /// The path speaks WebSocket only, or another WebSocket version is asked for.
    UpgradeRequired,
    /// Head over its limit.
    HeadTooLarge,
    /// Another HTTP version.
    VersionNotSupported,
    /// Over the connection limit.
    Busy,
    /// The process is stopping.
    Draining,
    /// Not JSON.
    InvalidJson,
    /// JSON, but no event.
    InvalidEvent,
    /// No filter, or on a WebSocket any fault of a `subscribe`.
    InvalidFilter,
    /// No capture level.
    InvalidCapture,
    /// No resume position.
    InvalidFrom,
    /// A named limit is exceeded.
    LimitExceeded,
    /// The first message was no hello, or none came.
    HelloRequired,
    /// No common protocol version.
    VersionUnsupported,
    /// A hello that breaks its rules.
    InvalidHello,
    /// A frame that cannot be answered otherwise.
    InvalidFrame,
    /// No live claimant.
    NoRoute,
    /// Several claimants.
    Ambiguous,
    /// The claimant does not accept the command.
    Unsupported,
}

impl Code {
    /// Wire word and HTTP status (0: never sent over HTTP).
    const fn row(self) -> (&'static str, u16) {
        match self {
            Self::BadRequest => ("bad-request", 400),
            Self::Unauthorized => ("unauthorized", 401),
            Self::ControlRequiresDuplex => ("control-requires-duplex", 403),
            Self::ForbiddenOrigin => ("forbidden-origin", 403),
            Self::Misdirected => ("misdirected", 421),
            Self::NotFound => ("not-found", 404),
            Self::MethodNotAllowed => ("method-not-allowed", 405),
            Self::Timeout => ("timeout", 408),
            Self::PayloadTooLarge => ("payload-too-large", 413),
            Self::TooManyEvents => ("too-many-events", 413),
            Self::UriTooLong => ("uri-too-long", 414),
            Self::UnsupportedMediaType => ("unsupported-media-type", 415),
            Self::ExpectationFailed => ("expectation-failed", 417),
            Self::UpgradeRequired => ("upgrade-required", 426),
            Self::HeadTooLarge => ("head-too-large", 431),
            Self::VersionNotSupported => ("bad-request", 505),
            Self::Busy => ("busy", 503),
            Self::Draining => ("draining", 503),
            Self::InvalidJson => ("invalid-json", 400),
            Self::InvalidEvent => ("invalid-event", 400),
            Self::InvalidFilter => ("invalid-filter", 400),
            Self::InvalidCapture => ("invalid-capture", 400),
            Self::InvalidFrom => ("invalid-from", 400),
            Self::LimitExceeded => ("limit-exceeded", 400),
            Self::HelloRequired => ("hello-required", 0),
            Self::VersionUnsupported => ("version-unsupported", 0),
            Self::InvalidHello => ("invalid-hello", 0),
            Self::InvalidFrame => ("invalid-frame", 0),
            Self::NoRoute => ("no-route", 0),
            Self::Ambiguous => ("ambiguous", 0),
            Self::Unsupported => ("unsupported", 0),
        }
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The HTTP status it is answered with.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.row().1
    }
}

/// Why something was refused, in the relay's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub code: Code,
    /// What was at fault: an attribute, a limit, a rule. Never a secret, never a payload.
    pub detail: Cow<'static, str>,
    /// 1-based line of a batch, if it was one of its lines.
    pub line: Option<u64>,
}

impl Refusal {
    /// A refusal without a line.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into(), line: None }
    }

    /// The HTTP answer: `{"error":…,"detail":…,"line":…}` under `fields`.
    #[must_use]
    pub fn response(&self, fields: Fields) -> Response {
        let mut body = ObjectWriter::with_capacity(64 + self.detail.len());
        body.string("error", self.code.as_str());
        body.string("detail", &self.detail);
        if let Some(line) = self.line {
            body.number("line", line);
        }
        json_response(self.code.status(), fields, body.finish())
    }
}
