//! The gateway: routes, authentication, CORS and refusals; hands a connection to its protocol (contract §4).
//!
//! [`Gateway`] is the engine's service. It decides what a request is and whether it may be, in the contract's order (host and
//! origin, path, method, token, version, type, size), and answers what needs no protocol. Everything else it delegates to the
//! activity relay. It keeps no state of a connection.

mod cors;
mod refusal;
mod routes;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::time::Deadline;
use crate::engine::service::{
    Admits, ConnId, CoreId, Ending, Flow, HttpFault, Message, Outbox, Post, Response, Service, Terms, Verdict,
    WebSocketUpgrade, Work,
};
use crate::limits::{PEER_SILENCE_MAX, PING_INTERVAL};
use crate::ops::auth::Access;
use crate::ops::hosts::Hosts;
use crate::ops::metrics::{self, Metrics};
use crate::ops::origins::Origins;
use crate::relay::error::{Code, Refusal};
use crate::relay::ingest::BodyKind;
use crate::relay::ownership::REMEMBERS_TOO_MUCH;
use crate::relay::{Relay, RelayMail, discovery, stream};
use crate::wire::http1::answer::json_response;
use crate::wire::http1::chunk::StreamFraming;
use crate::wire::http1::{Framing, RequestHead};
use crate::wire::url::{Target, authority};
use crate::wire::websocket::handshake::Handshake;

use cors::Cors;
use routes::{Endpoint, Path, Route};

/// Body tags of `POST /events`.
const TAG_SINGLE: u32 = 0;
const TAG_LINES: u32 = 1;

/// What the gateways of all cores share.
#[derive(Debug)]
pub struct GatewayConfig {
    /// Who may do what.
    pub access: Access,
    /// Who may read from a browser.
    pub origins: Origins,
    /// What hosts a request may be for; all, if none.
    pub hosts: Option<Hosts>,
    /// The metrics, if they are served.
    pub exposition: Option<Metrics>,
}

/// The gateway of one core.
#[derive(Debug)]
pub struct Gateway {
    config: Arc<GatewayConfig>,
    cors: Cors,
    relay: Relay,
}

impl Gateway {
    /// The gateway of a core, in front of its relay.
    #[must_use]
    pub fn new(config: Arc<GatewayConfig>, relay: Relay) -> Self {
        let cors = Cors::new(config.origins.clone());
        Self { config, cors, relay }
    }

    fn path(&self, target: Target<'_>) -> Option<&'static Path> {
        routes::path(target.path, self.config.exposition.is_some())
    }

    /// Whether the request bears the token, if one is needed.
    fn is_authorized(&self, head: &RequestHead<'_>, target: Target<'_>) -> bool {
        // Browsers' EventSource and WebSocket cannot set fields, so GET may carry the token in the query. One that does
        // not decode is no token.
        let query = (head.method == "GET")
            .then(|| target.first("access_token"))
            .flatten()
            .map(|token| token.unwrap_or(Cow::Borrowed("\0")));
        self.config.access.permits(head.field("authorization"), query.as_deref().filter(|token| !token.is_empty()))
    }

    fn unauthorized() -> Response {
        let fields = vec![("www-authenticate", Cow::Borrowed("Bearer"))];
        json_response(401, fields, &b"{\"error\":\"unauthorized\"}"[..])
    }

    /// Whether the request is for a host that is served. Without `Host` (HTTP/1.0) it is from no browser.
    fn is_for_us(&self, head: &RequestHead<'_>) -> bool {
        let Some(hosts) = &self.config.hosts else { return true };
        // RFC 9112 §3.2.2: of absolute-form, the target counts.
        let host = authority(head.target).map(str::as_bytes).or_else(|| head.field("host"));
        host.is_none_or(|host| hosts.include(host))
    }

    /// Decides a request: host, origin, path, method, token, then what its endpoint asks for.
    fn decide(
        &mut self,
        out: &mut dyn Outbox,
        conn: ConnId,
        head: &RequestHead<'_>,
        target: Target<'_>,
        path: Option<&Path>,
    ) -> Verdict {
        if !self.is_for_us(head) {
            let detail = "AEP_HOSTS: requests for this host are not served";
            return Verdict::Respond(Refusal::new(Code::Misdirected, detail).response(Vec::new()));
        }
        if !matches!(head.method, "GET" | "HEAD" | "OPTIONS") && !self.cors.admits(head) {
            let detail = "AEP_ORIGINS: pages of this origin may not change anything";
            return Verdict::Respond(Refusal::new(Code::ForbiddenOrigin, detail).response(Vec::new()));
        }
        let Some(path) = path else {
            return Verdict::Respond(Refusal::new(Code::NotFound, "no such path").response(Vec::new()));
        };
        match path.route(head.method) {
            Route::Preflight => Verdict::Respond(self.cors.preflight(path, head)),
            Route::NotAllowed => {
                let fields = vec![("allow", Cow::Borrowed(path.allow))];
                Verdict::Respond(Refusal::new(Code::MethodNotAllowed, "see Allow").response(fields))
            }
            Route::To(endpoint) => {
                if endpoint != Endpoint::Health && !self.is_authorized(head, target) {
                    return Verdict::Respond(Self::unauthorized());
                }
                self.on_routed(out, conn, head, target, endpoint)
            }
        }
    }

    /// Decides a request that has a route and may take it.
    fn on_routed(
        &mut self,
        out: &mut dyn Outbox,
        conn: ConnId,
        head: &RequestHead<'_>,
        target: Target<'_>,
        endpoint: Endpoint,
    ) -> Verdict {
        match endpoint {
            Endpoint::Health => Verdict::Respond(self.health(out, self.is_authorized(head, target))),
            Endpoint::Discovery => {
                let document = discovery::document(self.relay.shared().limits.buffer_events_max);
                Verdict::Respond(json_response(200, Vec::new(), document.into_bytes()))
            }
            Endpoint::Publish => self.on_publish(head),
            Endpoint::Stream => match stream::wanted(target, head.field("last-event-id"), self.relay.ask_bounds()) {
                Ok(wanted) if self.relay.refuses_to_remember(&wanted, out.now()) => {
                    let fields = refusal::come_back_later();
                    Verdict::Respond(Refusal::new(Code::Busy, REMEMBERS_TOO_MUCH).response(fields))
                }
                Ok(wanted) => {
                    self.relay.on_stream(out, conn, StreamFraming::of(head.version), wanted);
                    Verdict::Later
                }
                Err(refusal) => Verdict::Respond(refusal.response(Vec::new())),
            },
            Endpoint::Socket => self.on_upgrade(out, conn, head),
            Endpoint::Connections => {
                self.relay.on_connections(conn);
                Verdict::Later
            }
            Endpoint::Metrics => Verdict::Respond(self.exposition()),
        }
    }

    fn health(&self, out: &dyn Outbox, authorized: bool) -> Response {
        if !authorized {
            return json_response(200, Vec::new(), &b"{\"ok\":true}"[..]);
        }
        let shared = self.relay.shared();
        let body = format!(
            "{{\"ok\":true,\"sessions\":{},\"subscribers\":{},\"connections\":{},\"uptime_s\":{}}}",
            shared.sessions(),
            shared.subscribers.load(Ordering::Relaxed),
            shared.parties.load(Ordering::Relaxed),
            out.now().0 / 1000
        );
        json_response(200, Vec::new(), body.into_bytes())
    }

    fn exposition(&self) -> Response {
        let text = self.config.exposition.as_ref().map(Metrics::exposition).unwrap_or_default();
        let fields = vec![("content-type", Cow::Borrowed(metrics::CONTENT_TYPE))];
        Response { status: 200, fields, body: text.into_bytes().into(), close: false }
    }

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
            _ => {
                let detail = "content-type: application/json or application/x-ndjson";
                return refused(detail);
            }
        };
        if head.fields_named("content-encoding").any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
            return refused("content-encoding: only identity");
        }
        let bytes_max = self.relay.shared().limits.body_bytes_max;
        if matches!(head.framing, Framing::Length(length) if length > bytes_max as u64) {
            return Verdict::Respond(refusal::of_fault(HttpFault::BodyTooLarge(bytes_max)));
        }
        Verdict::ReadBody { tag, bytes_max }
    }

    /// `GET /socket`.
    fn on_upgrade(&mut self, out: &mut dyn Outbox, conn: ConnId, head: &RequestHead<'_>) -> Verdict {
        let mut fields = Vec::new();
        let refused =
            |code, detail: &'static str, fields| Verdict::Respond(Refusal::new(code, detail).response(fields));
        let accept = match Handshake::of(head) {
            Handshake::Accept(accept) => accept,
            Handshake::NotAnUpgrade => {
                fields.push(("upgrade", Cow::Borrowed("websocket")));
                return refused(Code::UpgradeRequired, "this path speaks WebSocket only", fields);
            }
            Handshake::BadVersion => {
                fields.push(("upgrade", Cow::Borrowed("websocket")));
                fields.push(("sec-websocket-version", Cow::Borrowed("13")));
                return refused(Code::UpgradeRequired, "sec-websocket-version: 13", fields);
            }
            Handshake::BadKey(detail) => return refused(Code::BadRequest, detail, fields),
        };
        if !self.cors.admits(head) {
            return refused(Code::ForbiddenOrigin, "this origin may not open a WebSocket", fields);
        }
        self.relay.on_socket(out, conn);
        Verdict::Upgrade(WebSocketUpgrade {
            accept,
            fields: Vec::new(),
            message_bytes_max: self.relay.shared().limits.body_bytes_max,
            first_message_bytes_max: self.relay.shared().limits.hello_bytes_max,
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

impl Service for Gateway {
    type Mail = RelayMail;

    fn terms(&self, head: Option<&RequestHead<'_>>) -> Terms {
        let path = head.and_then(|head| self.path(Target::parse(head.target)));
        Terms { fields: self.cors.fields(head), endpoint: path.map_or(metrics::Endpoint::Other, Path::label) }
    }

    fn on_request(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, head: &RequestHead<'_>) -> Verdict {
        let target = Target::parse(head.target);
        let path = self.path(target);
        self.decide(out.outbox(), conn, head, target, path)
    }

    fn answers_guests(&self, head: &RequestHead<'_>) -> bool {
        self.path(Target::parse(head.target)).is_some_and(Path::is_for_watchers)
    }

    fn on_body(&mut self, _out: &mut dyn Post<RelayMail>, conn: ConnId, tag: u32, body: Vec<u8>) {
        let kind = if tag == TAG_LINES { BodyKind::Lines } else { BodyKind::Single };
        self.relay.on_events(conn, kind, body);
    }

    fn refusal(&self, fault: HttpFault, _conn: Option<ConnId>) -> Response {
        refusal::of_fault(fault)
    }

    fn on_message(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, message: Message<'_>) -> Flow {
        self.relay.on_message(out, conn, message)
    }

    fn on_drained(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId) {
        self.relay.on_drained(out.outbox(), conn);
    }

    fn on_alarm(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId) {
        self.relay.on_alarm(out.outbox(), conn);
    }

    fn on_overflow(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId) {
        self.relay.on_overflow(out.outbox(), conn);
    }

    fn takes_ingest(&self) -> bool {
        self.relay.takes_ingest()
    }

    fn admits(&self) -> Admits {
        self.relay.admits()
    }

    fn on_mail(&mut self, out: &mut dyn Post<RelayMail>, from: CoreId, mail: RelayMail) {
        self.relay.on_mail(out, from, mail);
    }

    fn on_turn(&mut self, out: &mut dyn Post<RelayMail>) -> Work {
        self.relay.on_turn(out)
    }

    fn next_deadline(&self) -> Option<Deadline> {
        None
    }

    fn on_closing(&mut self, _out: &mut dyn Post<RelayMail>, _conn: ConnId) {}

    fn on_gone(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, ending: Ending) {
        self.relay.on_gone(out, conn, ending);
    }

    fn on_drain(&mut self, _out: &mut dyn Post<RelayMail>) {
        tracing::debug!("draining");
    }

    fn is_quiescent(&self) -> bool {
        self.relay.is_quiescent()
    }

    fn on_goodbye(&mut self, out: &mut dyn Post<RelayMail>) -> Work {
        self.relay.on_goodbye(out.outbox())
    }
}
