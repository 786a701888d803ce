//! What peers send, handed over piece by piece: heads, bodies in the pieces in which they come, messages.

use std::hash::Hash;

use crate::engine::service::{Ending, Flow, HttpFault, Message, Outbox, Verdict};
use crate::protocol::routes::{self, Match, Route};
use crate::protocol::simulation::machine::{At, Machine};
use crate::protocol::simulation::socket::{Ask, Exchange, Kind};
use crate::protocol::{Protocol, Refused, Request};
use crate::wire::http1::RequestHead;
use crate::wire::url::Target;

impl<P: Protocol> Machine<P> {
    /// Hands over what comes next of a connection. Whether something did.
    pub(in crate::protocol::simulation) fn take_input(&mut self, at: At) -> bool {
        let core = &mut self.cores[at.core];
        let draining = core.is_draining();
        let Some(socket) = core.out.sockets.get_mut(&at.conn).filter(|socket| socket.has_input(draining)) else {
            return false;
        };
        match (socket.kind, &mut socket.exchange) {
            (Kind::WebSocket, _) => self.read_message(at),
            (_, Exchange::Body { bytes, to_come, .. }) => {
                bytes.extend(to_come.pop_front().unwrap_or_default());
                self.read_body(at);
            }
            _ => self.read_request(at),
        }
        true
    }

    fn read_message(&mut self, at: At) {
        let core = &mut self.cores[at.core];
        let Some(socket) = core.out.sockets.get_mut(&at.conn) else { return };
        let Some(mut text) = socket.inbox.pop_front() else { return };
        (at.conn, &text).hash(&mut core.out.trace);
        // A resume in the same call cancels the park.
        socket.parked = true;
        let flow = core.protocol.on_message(&mut core.out, at.conn, Message::Text(&mut text));
        if let (Flow::Continue, Some(socket)) = (flow, core.out.sockets.get_mut(&at.conn)) {
            socket.parked = false;
        }
    }

    fn read_request(&mut self, at: At) {
        let core = &mut self.cores[at.core];
        let Some(socket) = core.out.sockets.get_mut(&at.conn) else { return };
        let Some(Ask { head, mut body }) = socket.requests.pop_front() else { return };
        socket.exchange = Exchange::Answer;
        (at.conn, &head).hash(&mut core.out.trace);
        let head = RequestHead::decode_whole(head.as_bytes()).expect("a well-formed head");
        let target = Target::parse(head.target);
        let found = routes::find(core.protocol.paths(), target.path, head.method);
        let Some(Match { segment, route: Route::To(_, endpoint) }) = found else {
            panic!("no protocol hears of {} {}", head.method, head.target)
        };
        let request = Request { head: &head, target, segment, is_foreign: false };
        match core.protocol.on_request(&mut core.out, at.conn, endpoint, &request) {
            Verdict::Respond(response) => core.out.respond(at.conn, response),
            Verdict::ReadBody { tag, bytes_max } => {
                let exchange = core.exchange_of(at.conn);
                assert!(matches!(exchange, Exchange::Answer), "a request is answered once");
                let bytes = body.pop_front().unwrap_or_default();
                *exchange = Exchange::Body { tag, bytes_max, bytes, to_come: body };
                self.read_body(at);
            }
            Verdict::Later => {}
            Verdict::Upgrade(_) => {
                let exchange = core.exchange_of(at.conn);
                assert!(matches!(exchange, Exchange::Answer), "a request is answered once");
                *exchange = Exchange::Idle;
                core.out.sockets.get_mut(&at.conn).expect("it is open").kind = Kind::WebSocket;
            }
        }
    }

    /// A piece of a body has come: it may be the last, or too much.
    fn read_body(&mut self, at: At) {
        let core = &mut self.cores[at.core];
        let exchange = core.exchange_of(at.conn);
        let Exchange::Body { tag, bytes_max, bytes, to_come } = exchange else { return };
        let (tag, bytes_max) = (*tag, *bytes_max);
        if bytes.len() > bytes_max {
            *exchange = Exchange::Answer;
            let refusal = core.protocol.refusal(Refused::Fault(HttpFault::BodyTooLarge(bytes_max)));
            core.out.respond(at.conn, refusal);
            core.out.sockets.get_mut(&at.conn).expect("it is open").end(Ending::ProtocolError);
        } else if to_come.is_empty() {
            let body = std::mem::take(bytes);
            *exchange = Exchange::Answer;
            (at.conn, &body).hash(&mut core.out.trace);
            core.protocol.on_body(&mut core.out, at.conn, tag, body);
        }
    }
}
