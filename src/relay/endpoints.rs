//! The relay as a protocol: its paths, and what requests of them ask for (contract §4).
//!
//! Owns the checks of a request whose path, method and token are in order: version, type, size, parameters, handshake.
//! What is taken goes to the rest of the relay.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use crate::engine::service::{
    Admits, ConnId, CoreId, Ending, Flow, Group, HttpFault, Message, Post, Response, Verdict, WebSocketUpgrade, Work,
};
use crate::limits::{PEER_SILENCE_MAX, PING_INTERVAL};
use crate::ops::metrics;
use crate::protocol::routes::{Auth, Path};
use crate::protocol::shares::ACTIVITY;
use crate::protocol::{Protocol, Refused, Request};
use crate::wire::http1::answer::json_response;
use crate::wire::http1::chunk::StreamFraming;
use crate::wire::http1::{Framing, RequestHead};
use crate::wire::json::ObjectWriter;
use crate::wire::websocket::handshake::Handshake;

use super::error::{Code, Refusal};
use super::ingest::BodyKind;
use super::{Relay, RelayMail, fault, stream};
use crate::relay::frames::discovery;
use crate::relay::shared::REMEMBERS_TOO_MUCH;

/// Body tags of `POST /events`.
const TAG_SINGLE: u32 = 0;
const TAG_LINES: u32 = 1;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivityEndpoint {
    /// `GET /events`, `GET /.well-known/aep`
    Discovery,
    /// `POST /events`
    Publish,
    /// `GET /stream`
    Stream,
    /// `GET /socket`
    Socket,
    /// `GET /connections`
    Connections,
}

const PATHS: &[Path<ActivityEndpoint>] = &[
    Path {
        pattern: "/events",
        label: metrics::Endpoint::Events,
        methods: &[
            ("GET", Auth::Token, ActivityEndpoint::Discovery),
            ("HEAD", Auth::Token, ActivityEndpoint::Discovery),
            ("POST", Auth::Token, ActivityEndpoint::Publish),
        ],
    },
    Path {
        pattern: "/.well-known/aep",
        label: metrics::Endpoint::Discovery,
        methods: &[
            ("GET", Auth::Token, ActivityEndpoint::Discovery),
            ("HEAD", Auth::Token, ActivityEndpoint::Discovery),
        ],
    },
    Path {
        pattern: "/stream",
        label: metrics::Endpoint::Stream,
        methods: &[("GET", Auth::Token, ActivityEndpoint::Stream)],
    },
    Path {
        pattern: "/socket",
        label: metrics::Endpoint::Socket,
        methods: &[("GET", Auth::Token, ActivityEndpoint::Socket)],
    },
    Path {
        pattern: "/connections",
        label: metrics::Endpoint::Connections,
        methods: &[("GET", Auth::Token, ActivityEndpoint::Connections)],
    },
];

impl Relay {
    /// `POST /events`: version, type, size; then the body.
    fn on_publish(&self, head: &RequestHead<'_>) -> Verdict {
        if !head.field("aep-version").is_none_or(is_known_version) {
            return Verdict::Respond(json_response(426, Vec::new(), &b"{\"versions\":[\"0.1\"]}"[..]));
        }
        let refused = |detail: &'static str| {
            Verdict::Respond(Refusal::new(Code::UnsupportedMediaType, detail).response(Vec::new()))
        };
        let tag = match head.field("content-type").map(media_type) {
            Some(kind) if kind.eq_ignore_ascii_case(b"application/json") => TAG_SINGLE,
            Some(kind) if kind.eq_ignore_ascii_case(b"application/x-ndjson") => TAG_LINES,
            _ => return refused("content-type: application/json or application/x-ndjson"),
        };
        if head.fields_named("content-encoding").any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
            return refused("content-encoding: only identity");
        }
        let bytes_max = self.shared.limits.body_bytes_max;
        if matches!(head.framing, Framing::Length(length) if length > bytes_max as u64) {
            return Verdict::Respond(fault::response(HttpFault::BodyTooLarge(bytes_max)));
        }
        Verdict::ReadBody { tag, bytes_max }
    }

    /// `GET /stream`: parameters; then the subscription.
    fn on_stream_asked(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, request: &Request<'_>) -> Verdict {
        let Request { head, target, .. } = request;
        match stream::wanted(*target, head.field("last-event-id"), self.ask_bounds()) {
            Ok(wanted) if self.refuses_to_remember(&wanted, out.out().now()) => {
                let refusal = Refusal::new(Code::Busy, REMEMBERS_TOO_MUCH);
                Verdict::Respond(refusal.response(fault::come_back_later()))
            }
            Ok(wanted) => {
                self.on_stream(out.outbox(), conn, StreamFraming::of(head.version), wanted);
                Verdict::Later
            }
            Err(refusal) => Verdict::Respond(refusal.response(Vec::new())),
        }
    }

    /// `GET /socket`: the handshake, then whether its page may open it.
    fn on_upgrade(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, request: &Request<'_>) -> Verdict {
        let refused =
            |code, detail: &'static str, fields| Verdict::Respond(Refusal::new(code, detail).response(fields));
        let upgrade = ("upgrade", Cow::Borrowed("websocket"));
        let accept = match Handshake::of(request.head) {
            Handshake::Accept(accept) => accept,
            Handshake::NotAnUpgrade => {
                return refused(Code::UpgradeRequired, "this path speaks WebSocket only", vec![upgrade]);
            }
            Handshake::BadVersion => {
                let fields = vec![upgrade, ("sec-websocket-version", Cow::Borrowed("13"))];
                return refused(Code::UpgradeRequired, "sec-websocket-version: 13", fields);
            }
            Handshake::BadKey(detail) => return refused(Code::BadRequest, detail, Vec::new()),
        };
        if request.is_foreign {
            return refused(Code::ForbiddenOrigin, "this origin may not open a WebSocket", Vec::new());
        }
        self.on_socket(out.outbox(), conn);
        Verdict::Upgrade(WebSocketUpgrade {
            group: ACTIVITY.group,
            accept,
            message_bytes_max: self.shared.limits.body_bytes_max,
            first_message_bytes_max: self.shared.limits.hello_bytes_max,
            ping_interval: PING_INTERVAL,
            silence_max: PEER_SILENCE_MAX,
        })
    }
}

/// `0.` and digits.
fn is_known_version(version: &[u8]) -> bool {
    version.strip_prefix(b"0.").is_some_and(|minor| !minor.is_empty() && minor.iter().all(u8::is_ascii_digit))
}

/// A media type without its parameters.
fn media_type(field: &[u8]) -> &[u8] {
    field.split(|b| *b == b';').next().unwrap_or_default().trim_ascii()
}

impl Protocol for Relay {
    type Mail = RelayMail;
    type Endpoint = ActivityEndpoint;

    fn paths(&self) -> &'static [Path<ActivityEndpoint>] {
        PATHS
    }

    fn on_request(
        &mut self,
        out: &mut dyn Post<RelayMail>,
        conn: ConnId,
        endpoint: ActivityEndpoint,
        request: &Request<'_>,
    ) -> Verdict {
        match endpoint {
            ActivityEndpoint::Discovery => {
                let document = discovery::document(self.shared.limits.buffer_events_max);
                Verdict::Respond(json_response(200, Vec::new(), document.into_bytes()))
            }
            ActivityEndpoint::Publish => self.on_publish(request.head),
            ActivityEndpoint::Stream => self.on_stream_asked(out, conn, request),
            ActivityEndpoint::Socket => self.on_upgrade(out, conn, request),
            ActivityEndpoint::Connections => {
                self.on_connections(conn);
                Verdict::Later
            }
        }
    }

    fn refusal(&self, refused: Refused) -> Response {
        fault::refusal(refused)
    }

    fn health(&self, members: &mut ObjectWriter) {
        members.number("sessions", self.shared.sessions() as u64);
        members.number("subscribers", self.shared.subscribers.load(Ordering::Relaxed) as u64);
        members.number("connections", self.shared.parties.load(Ordering::Relaxed) as u64);
    }

    fn on_body(&mut self, _out: &mut dyn Post<RelayMail>, conn: ConnId, tag: u32, body: Vec<u8>) {
        let kind = if tag == TAG_LINES { BodyKind::Lines } else { BodyKind::Single };
        self.on_events(conn, kind, body);
    }

    fn on_message(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, message: Message<'_>) -> Flow {
        self.on_message(out, conn, message)
    }

    fn on_drained(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId) {
        self.on_drained(out.outbox(), conn);
    }

    fn on_overflow(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId) {
        self.on_overflow(out.outbox(), conn);
    }

    fn on_alarm(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId) {
        self.on_alarm(out.outbox(), conn);
    }

    fn group(&self) -> Group {
        ACTIVITY.group
    }

    fn takes_ingest(&self) -> bool {
        self.takes_ingest()
    }

    fn admits(&self) -> Admits {
        self.admits()
    }

    fn on_mail(&mut self, out: &mut dyn Post<RelayMail>, from: CoreId, mail: RelayMail) {
        self.on_mail(out, from, mail);
    }

    fn on_turn(&mut self, out: &mut dyn Post<RelayMail>) -> Work {
        self.on_turn(out)
    }

    fn on_gone(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, ending: Ending) {
        self.on_gone(out, conn, ending);
    }

    fn is_quiescent(&self) -> bool {
        self.is_quiescent()
    }

    fn on_goodbye(&mut self, out: &mut dyn Post<RelayMail>) -> Work {
        self.on_goodbye(out.outbox())
    }
}
