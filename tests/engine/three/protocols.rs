//! Two small protocols to stand beside the activity relay, and a record of what each of the three hears.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aep_relay::base::time::Deadline;
use aep_relay::engine::service::{
    Admits, ConnId, CoreId, Ending, EventStreamOpen, Flow, Group, HttpFault, Lane, Mail, Message, Post, Pushed,
    Response, Verdict, WebSocketClose, WebSocketUpgrade, Work,
};
use aep_relay::limits::Room;
use aep_relay::ops::metrics::Endpoint;
use aep_relay::protocol::routes::{Auth, Path};
use aep_relay::protocol::{Protocol, Refused, Request};
use aep_relay::wire::http1::StreamFraming;
use aep_relay::wire::json::ObjectWriter;
use aep_relay::wire::websocket::Handshake;
use aep_relay::wire::websocket::frame::encode_text;

use crate::service::response;

/// What was heard: by which protocol, of which connection, in which call.
pub type Record = Arc<Mutex<Vec<(&'static str, CoreId, ConnId, &'static str)>>>;

/// A protocol whose calls about connections are recorded.
#[derive(Debug)]
pub struct Recorded<P> {
    pub name: &'static str,
    pub record: Record,
    pub protocol: P,
}

impl<P: Protocol> Recorded<P> {
    fn note(&self, out: &mut dyn Post<P::Mail>, conn: ConnId, call: &'static str) {
        self.record.lock().unwrap().push((self.name, out.out().core(), conn, call));
    }
}

impl<P: Protocol> Protocol for Recorded<P> {
    type Mail = P::Mail;
    type Endpoint = P::Endpoint;

    fn paths(&self) -> &'static [Path<P::Endpoint>] {
        self.protocol.paths()
    }

    fn on_request(
        &mut self,
        out: &mut dyn Post<P::Mail>,
        conn: ConnId,
        endpoint: P::Endpoint,
        request: &Request<'_>,
    ) -> Verdict {
        self.note(out, conn, "request");
        self.protocol.on_request(out, conn, endpoint, request)
    }

    fn refusal(&self, refused: Refused) -> Response {
        self.protocol.refusal(refused)
    }

    fn health(&self, members: &mut ObjectWriter) {
        self.protocol.health(members);
    }

    fn on_body(&mut self, out: &mut dyn Post<P::Mail>, conn: ConnId, tag: u32, body: Vec<u8>) {
        self.note(out, conn, "body");
        self.protocol.on_body(out, conn, tag, body);
    }

    fn on_message(&mut self, out: &mut dyn Post<P::Mail>, conn: ConnId, message: Message<'_>) -> Flow {
        self.note(out, conn, "message");
        self.protocol.on_message(out, conn, message)
    }

    fn on_drained(&mut self, out: &mut dyn Post<P::Mail>, conn: ConnId) {
        self.note(out, conn, "drained");
        self.protocol.on_drained(out, conn);
    }

    fn on_overflow(&mut self, out: &mut dyn Post<P::Mail>, conn: ConnId) {
        self.note(out, conn, "overflow");
        self.protocol.on_overflow(out, conn);
    }

    fn on_alarm(&mut self, out: &mut dyn Post<P::Mail>, conn: ConnId) {
        self.note(out, conn, "alarm");
        self.protocol.on_alarm(out, conn);
    }

    fn group(&self) -> Group {
        self.protocol.group()
    }

    fn takes_ingest(&self) -> bool {
        self.protocol.takes_ingest()
    }

    fn admits(&self) -> Admits {
        self.protocol.admits()
    }

    fn on_mail(&mut self, out: &mut dyn Post<P::Mail>, from: CoreId, mail: P::Mail) {
        self.protocol.on_mail(out, from, mail);
    }

    fn on_turn(&mut self, out: &mut dyn Post<P::Mail>) -> Work {
        self.protocol.on_turn(out)
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.protocol.next_deadline()
    }

    fn on_closing(&mut self, out: &mut dyn Post<P::Mail>, conn: ConnId) {
        self.note(out, conn, "closing");
        self.protocol.on_closing(out, conn);
    }

    fn on_gone(&mut self, out: &mut dyn Post<P::Mail>, conn: ConnId, ending: Ending) {
        self.note(out, conn, "gone");
        self.protocol.on_gone(out, conn, ending);
    }

    fn on_drain(&mut self, out: &mut dyn Post<P::Mail>) {
        self.protocol.on_drain(out);
    }

    fn is_quiescent(&self) -> bool {
        self.protocol.is_quiescent()
    }

    fn on_goodbye(&mut self, out: &mut dyn Post<P::Mail>) -> Work {
        self.protocol.on_goodbye(out)
    }
}

/// They share one, beside that of the activity relay.
const GROUP: Group = Group(1);

/// A text for every member of a protocol, on every core.
#[derive(Debug, Clone)]
pub struct Text(Arc<[u8]>);

impl Mail for Text {
    fn weight(&self) -> usize {
        self.0.len()
    }

    fn group(&self) -> Group {
        GROUP
    }
}

type Out<'a> = &'a mut dyn Post<Text>;

fn send_to_all(out: Out<'_>, text: &[u8]) {
    let text = Text(text.into());
    for core in (0..out.out().cores()).map(|core| CoreId(core as u16)) {
        out.mail_fanout(core, text.clone());
    }
}

/// Streams and bodies: what is posted comes out of every stream.
#[derive(Debug, Default)]
pub struct Notes {
    body_bytes_max: usize,
    streams: Vec<ConnId>,
    later: Vec<ConnId>,
    is_draining: bool,
}

impl Notes {
    pub fn new(body_bytes_max: usize) -> Self {
        Self { body_bytes_max, ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum NotesEndpoint {
    Stream,
    Post,
    Show,
    Forget,
    Later,
}

const NOTES: &[Path<NotesEndpoint>] = &[
    Path {
        pattern: "/notes",
        label: Endpoint::Other,
        methods: &[("GET", Auth::Token, NotesEndpoint::Stream), ("POST", Auth::Open, NotesEndpoint::Post)],
    },
    Path { pattern: "/notes/later", label: Endpoint::Other, methods: &[("GET", Auth::Open, NotesEndpoint::Later)] },
    Path {
        pattern: "/notes/{}",
        label: Endpoint::Other,
        methods: &[("GET", Auth::Open, NotesEndpoint::Show), ("DELETE", Auth::TokenOrForbidden, NotesEndpoint::Forget)],
    },
];

impl Protocol for Notes {
    type Mail = Text;
    type Endpoint = NotesEndpoint;

    fn paths(&self) -> &'static [Path<NotesEndpoint>] {
        NOTES
    }

    fn on_request(&mut self, out: Out<'_>, conn: ConnId, endpoint: NotesEndpoint, request: &Request<'_>) -> Verdict {
        match endpoint {
            NotesEndpoint::Post => Verdict::ReadBody { tag: 0, bytes_max: self.body_bytes_max },
            NotesEndpoint::Show => Verdict::Respond(response(200, request.segment.unwrap().to_owned().into_bytes())),
            NotesEndpoint::Forget => Verdict::Respond(response(204, b"".as_slice())),
            NotesEndpoint::Later => {
                self.later.push(conn);
                Verdict::Later
            }
            NotesEndpoint::Stream => {
                let open = EventStreamOpen {
                    group: GROUP,
                    fields: Vec::new(),
                    first: b": notes\n\n",
                    heartbeat: b": ping\n\n",
                    heartbeat_interval: Duration::from_secs(15),
                };
                out.outbox().open_event_stream(conn, open);
                self.streams.push(conn);
                Verdict::Later
            }
        }
    }

    fn refusal(&self, refused: Refused) -> Response {
        let status = match refused {
            Refused::Method => 405,
            Refused::Unauthorized => 401,
            Refused::Forbidden => 403,
            Refused::Fault(HttpFault::BodyTooLarge(_)) => 413,
            Refused::Fault(HttpFault::Timeout) => 408,
            Refused::Fault(_) => 400,
        };
        response(status, format!("notes: {refused:?}").into_bytes())
    }

    fn health(&self, members: &mut ObjectWriter) {
        members.number("notes", self.streams.len() as u64);
    }

    fn on_body(&mut self, out: Out<'_>, conn: ConnId, _tag: u32, body: Vec<u8>) {
        send_to_all(out, &body);
        out.outbox().respond(conn, response(202, b"".as_slice()));
    }

    fn on_mail(&mut self, out: Out<'_>, _from: CoreId, Text(text): Text) {
        let mut framed = Vec::new();
        StreamFraming::Chunked.encode(&mut framed, &[b"data: ", &*text, b"\n\n"].concat());
        let run = out.outbox().write_run(Lane(13), &framed);
        for &conn in &self.streams {
            assert_ne!(out.outbox().push_run(conn, run, Room::Whole, 0), Pushed::Full);
        }
    }

    fn on_turn(&mut self, out: Out<'_>) -> Work {
        for conn in self.later.drain(..) {
            out.outbox().respond(conn, response(200, b"later".as_slice()));
        }
        Work::Idle
    }

    fn on_gone(&mut self, _: Out<'_>, conn: ConnId, _: Ending) {
        self.streams.retain(|other| *other != conn);
        self.later.retain(|other| *other != conn);
    }

    fn on_drain(&mut self, _: Out<'_>) {
        self.is_draining = true;
    }

    fn on_goodbye(&mut self, out: Out<'_>) -> Work {
        assert!(self.is_draining);
        for &conn in &self.streams {
            out.outbox().end_event_stream(conn, b": no more notes\n\n");
        }
        Work::Idle
    }

    fn is_quiescent(&self) -> bool {
        self.later.is_empty()
    }

    fn group(&self) -> Group {
        GROUP
    }
}

/// WebSockets: what one says all hear. It looks at its tokens itself.
#[derive(Debug, Default)]
pub struct Chat {
    members: Vec<ConnId>,
}

const CHAT: &[Path<()>] = &[Path { pattern: "/chat", label: Endpoint::Other, methods: &[("GET", Auth::Own, ())] }];

impl Protocol for Chat {
    type Mail = Text;
    type Endpoint = ();

    fn paths(&self) -> &'static [Path<()>] {
        CHAT
    }

    fn on_request(&mut self, _: Out<'_>, conn: ConnId, (): (), request: &Request<'_>) -> Verdict {
        if request.head.field("authorization").is_some_and(|field| field != b"Bearer mine") {
            return Verdict::Respond(response(401, b"chat: not mine".as_slice()));
        }
        let Handshake::Accept(accept) = Handshake::of(request.head) else {
            return Verdict::Respond(response(426, b"".as_slice()));
        };
        self.members.push(conn);
        Verdict::Upgrade(WebSocketUpgrade {
            group: GROUP,
            accept,
            message_bytes_max: 1000,
            first_message_bytes_max: 1000,
            ping_interval: Duration::from_secs(30),
            silence_max: Duration::from_secs(90),
        })
    }

    fn refusal(&self, refused: Refused) -> Response {
        response(400, format!("chat: {refused:?}").into_bytes())
    }

    fn health(&self, members: &mut ObjectWriter) {
        members.number("chat", self.members.len() as u64);
    }

    fn on_message(&mut self, out: Out<'_>, _: ConnId, message: Message<'_>) -> Flow {
        let Message::Text(text) = message else { return Flow::Continue };
        send_to_all(out, text);
        Flow::Continue
    }

    fn on_mail(&mut self, out: Out<'_>, _from: CoreId, Text(text): Text) {
        let mut framed = Vec::new();
        encode_text(&mut framed, &text);
        let run = out.outbox().write_run(Lane(14), &framed);
        for &conn in &self.members {
            assert_ne!(out.outbox().push_run(conn, run, Room::Whole, 0), Pushed::Full);
        }
    }

    fn on_gone(&mut self, _: Out<'_>, conn: ConnId, _: Ending) {
        self.members.retain(|other| *other != conn);
    }

    fn on_goodbye(&mut self, out: Out<'_>) -> Work {
        for &conn in &self.members {
            out.outbox().close_websocket(conn, WebSocketClose { code: 4000, reason: "no more chat" });
        }
        Work::Idle
    }

    fn on_body(&mut self, _: Out<'_>, _: ConnId, _: u32, _: Vec<u8>) {
        panic!("it has no bodies")
    }

    fn group(&self) -> Group {
        GROUP
    }

    fn on_turn(&mut self, _: Out<'_>) -> Work {
        Work::Idle
    }

    fn is_quiescent(&self) -> bool {
        true
    }
}
