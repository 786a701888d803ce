//! The gateway: hosts, origins, routes, authentication, CORS; hands a connection to its protocol (contract §4).
//!
//! [`Gateway`] is the engine's service, composed of up to three protocols ([`Protocols`]). It decides whether a request
//! may be, in the contract's order (host and origin, path, method, token), states the terms of its answer, and answers
//! what concerns no protocol: `/healthz`, `/metrics`, preflights, and what is refused before its path is known. The
//! protocol whose path it is refuses in its own form. Everything else is that protocol's.
//!
//! Invariant: it keeps nothing of a connection but which protocol it belongs to.

mod absent;
mod cors;
mod protocols;
mod routes;

use std::borrow::Cow;
use std::sync::Arc;

use crate::base::time::Deadline;
use crate::engine::service::{
    Admits, ConnId, CoreId, Ending, Flow, Group, HttpFault, Message, Outbox, Post, Response, Service, Terms, Verdict,
    Work,
};
use crate::ops::auth::Access;
use crate::ops::hosts::Hosts;
use crate::ops::metrics::{self, Metrics};
use crate::ops::origins::Origins;
use crate::protocol::routes::{Auth, Match, Route};
use crate::protocol::{Protocol, Refused, Request};
use crate::relay::error::{Code, Refusal};
use crate::relay::fault;
use crate::wire::http1::RequestHead;
use crate::wire::http1::answer::json_response;
use crate::wire::json::ObjectWriter;
use crate::wire::url::{Target, authority};

pub use absent::Absent;
pub use protocols::{OneOf, Protocols};

use cors::Cors;
use protocols::EndpointOf;

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

/// The gateway of one core, in front of its protocols.
#[derive(Debug)]
pub struct Gateway<A, B, C> {
    config: Arc<GatewayConfig>,
    cors: Cors,
    protocols: Protocols<A, B, C>,
}

/// Who answers a request: the gateway, or a protocol.
#[derive(Debug, Clone, Copy)]
enum Handler<E> {
    Own(routes::OwnEndpoint),
    Protocol(E),
}

type HandlerOf<A, B, C> = Handler<EndpointOf<A, B, C>>;

impl<A: Protocol, B: Protocol, C: Protocol> Gateway<A, B, C> {
    /// The gateway of a core.
    #[must_use]
    pub fn new(config: Arc<GatewayConfig>, protocols: Protocols<A, B, C>) -> Self {
        let cors = Cors::new(config.origins.clone());
        Self { config, cors, protocols }
    }

    fn find<'a>(&self, path: &'a str, method: &str) -> Option<Match<'a, HandlerOf<A, B, C>>> {
        match routes::find(path, method, self.config.exposition.is_some()) {
            Some(found) => Some(found.map(Handler::Own)),
            None => self.protocols.find(path, method).map(|found| found.map(Handler::Protocol)),
        }
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

    /// Whether the request is for a host that is served. Without `Host` (HTTP/1.0) it is from no browser.
    fn is_for_us(&self, head: &RequestHead<'_>) -> bool {
        let Some(hosts) = &self.config.hosts else { return true };
        // RFC 9112 §3.2.2: of absolute-form, the target counts.
        let host = authority(head.target).map(str::as_bytes).or_else(|| head.field("host"));
        host.is_none_or(|host| hosts.include(host))
    }

    /// Decides a request: host, origin, path, method, token.
    fn admit(
        &self,
        head: &RequestHead<'_>,
        target: Target<'_>,
        route: Option<Route<HandlerOf<A, B, C>>>,
    ) -> Result<HandlerOf<A, B, C>, Response> {
        let refused = |code, detail: &'static str| Err(Refusal::new(code, detail).response(Vec::new()));
        if !self.is_for_us(head) {
            return refused(Code::Misdirected, "AEP_HOSTS: requests for this host are not served");
        }
        if !matches!(head.method, "GET" | "HEAD" | "OPTIONS") && !self.cors.admits(head) {
            return refused(Code::ForbiddenOrigin, "AEP_ORIGINS: pages of this origin may not change anything");
        }
        match route {
            None => refused(Code::NotFound, "no such path"),
            Some(Route::Preflight(allow)) => Err(self.cors.preflight(allow, head)),
            Some(Route::NotAllowed(allow)) => {
                Err(self.refuse(target.path, Refused::Method, ("allow", Cow::Owned(allow))))
            }
            Some(Route::To(auth, handler)) => match auth {
                Auth::TokenOrForbidden if !self.config.access.control_enabled() => {
                    Err(self.answer_to(target.path, Refused::Forbidden))
                }
                Auth::Token | Auth::TokenOrForbidden if !self.is_authorized(head, target) => {
                    let scheme = ("www-authenticate", Cow::Borrowed("Bearer"));
                    Err(self.refuse(target.path, Refused::Unauthorized, scheme))
                }
                Auth::Open | Auth::Own | Auth::Token | Auth::TokenOrForbidden => Ok(handler),
            },
        }
    }

    /// A refusal in the form of the protocol that knows the path, with a field of the gateway's in front.
    fn refuse(&self, path: &str, refused: Refused, field: (&'static str, Cow<'static, str>)) -> Response {
        let mut response = self.answer_to(path, refused);
        response.fields.insert(0, field);
        response
    }

    fn answer_to(&self, path: &str, refused: Refused) -> Response {
        self.protocols.refuse(path, refused).unwrap_or_else(|| fault::refusal(refused))
    }

    fn health(&self, out: &dyn Outbox, authorized: bool) -> Response {
        if !authorized {
            return json_response(200, Vec::new(), &b"{\"ok\":true}"[..]);
        }
        let mut members = ObjectWriter::with_capacity(128);
        members.raw("ok", b"true");
        self.protocols.health(&mut members);
        members.number("uptime_s", out.now().0 / 1000);
        json_response(200, Vec::new(), members.finish())
    }

    fn exposition(&self) -> Response {
        let text = self.config.exposition.as_ref().map(Metrics::exposition).unwrap_or_default();
        let fields = vec![("content-type", Cow::Borrowed(metrics::CONTENT_TYPE))];
        Response { status: 200, fields, body: text.into_bytes().into(), close: false }
    }
}

impl<A: Protocol, B: Protocol, C: Protocol> Service for Gateway<A, B, C> {
    type Mail = OneOf<A::Mail, B::Mail, C::Mail>;

    fn terms(&self, head: Option<&RequestHead<'_>>) -> Terms {
        let path = head.map(|head| Target::parse(head.target).path);
        let label = path.and_then(|path| {
            routes::label(path, self.config.exposition.is_some()).or_else(|| self.protocols.label(path))
        });
        Terms { fields: self.cors.fields(head), endpoint: label.unwrap_or(metrics::Endpoint::Other) }
    }

    fn on_request(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId, head: &RequestHead<'_>) -> Verdict {
        let target = Target::parse(head.target);
        let (segment, route) = match self.find(target.path, head.method) {
            Some(Match { segment, route }) => (segment, Some(route)),
            None => (None, None),
        };
        match self.admit(head, target, route) {
            Ok(Handler::Protocol(endpoint)) => {
                let request = Request { head, target, segment, is_foreign: !self.cors.admits(head) };
                self.protocols.on_request(out, conn, endpoint, &request)
            }
            Ok(Handler::Own(endpoint)) => {
                self.protocols.release(conn);
                Verdict::Respond(match endpoint {
                    routes::OwnEndpoint::Health => self.health(out.out(), self.is_authorized(head, target)),
                    routes::OwnEndpoint::Metrics => self.exposition(),
                })
            }
            Err(response) => {
                self.protocols.release(conn);
                Verdict::Respond(response)
            }
        }
    }

    fn answers_guests(&self, head: &RequestHead<'_>) -> bool {
        // Both of its own tell how the process is.
        routes::label(Target::parse(head.target).path, self.config.exposition.is_some()).is_some()
    }

    fn on_body(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId, tag: u32, body: Vec<u8>) {
        self.protocols.on_body(out, conn, tag, body);
    }

    fn refusal(&self, found: HttpFault, conn: Option<ConnId>) -> Response {
        conn.and_then(|conn| self.protocols.refuse_of(conn, found)).unwrap_or_else(|| fault::response(found))
    }

    fn on_message(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId, message: Message<'_>) -> Flow {
        self.protocols.on_message(out, conn, message)
    }

    fn on_drained(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId) {
        self.protocols.on_drained(out, conn);
    }

    fn on_alarm(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId) {
        self.protocols.on_alarm(out, conn);
    }

    fn on_overflow(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId) {
        self.protocols.on_overflow(out, conn);
    }

    fn takes_ingest(&self, group: Group) -> bool {
        self.protocols.takes_ingest(group)
    }

    fn admits(&self, group: Group) -> Admits {
        self.protocols.admits(group)
    }

    fn on_mail(&mut self, out: &mut dyn Post<Self::Mail>, from: CoreId, mail: Self::Mail) {
        self.protocols.on_mail(out, from, mail);
    }

    fn on_turn(&mut self, out: &mut dyn Post<Self::Mail>) -> Work {
        self.protocols.on_turn(out)
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.protocols.next_deadline()
    }

    fn on_closing(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId) {
        self.protocols.on_closing(out, conn);
    }

    fn on_gone(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId, ending: Ending) {
        self.protocols.on_gone(out, conn, ending);
    }

    fn on_drain(&mut self, out: &mut dyn Post<Self::Mail>) {
        self.protocols.on_drain(out);
    }

    fn is_quiescent(&self) -> bool {
        self.protocols.is_quiescent()
    }

    fn on_goodbye(&mut self, out: &mut dyn Post<Self::Mail>) -> Work {
        self.protocols.on_goodbye(out)
    }
}
