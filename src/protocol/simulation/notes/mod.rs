//! A small protocol of streams and bodies, to be driven by the machine: what is posted comes out of every stream,
//! numbered by the core that owns it. It has deferred answers, an alarm per stream, and deadlines that are no
//! connection's.
//!
//! Invariants: a note that was taken is numbered, fanned out and answered, whoever is gone meanwhile; answers of
//! `GET /notes/later` are due at the deadline told.

mod world;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::rules::{GROUP, Lives, Numbered, Order};
use crate::base::time::Deadline;
use crate::engine::service::{
    Admits, ConnId, CoreId, Ending, EventStreamOpen, Group, HttpFault, Lane, Post, Pushed, Response, Verdict,
    WebSocketClose, Work,
};
use crate::limits::Room;
use crate::ops::metrics;
use crate::protocol::routes::{Auth, Path};
use crate::protocol::simulation::outbox::{FANOUT, INGEST};
use crate::protocol::{Protocol, Refused, Request};
use crate::wire::http1::chunk::StreamFraming;
use crate::wire::json::ObjectWriter;

const BODY_BYTES_MAX: usize = 200;
/// Between two beats of a stream.
const BEAT: Duration = Duration::from_millis(300);
const LATER: Duration = Duration::from_millis(120);

#[derive(Debug, Clone, Copy)]
enum Endpoint {
    Stream,
    Post,
    Later,
    Show,
}

const PATHS: &[Path<Endpoint>] = &[
    Path {
        pattern: "/notes",
        label: metrics::Endpoint::Other,
        methods: &[("GET", Auth::Open, Endpoint::Stream), ("POST", Auth::Open, Endpoint::Post)],
    },
    Path { pattern: "/notes/later", label: metrics::Endpoint::Other, methods: &[("GET", Auth::Open, Endpoint::Later)] },
    Path { pattern: "/notes/{}", label: metrics::Endpoint::Other, methods: &[("GET", Auth::Open, Endpoint::Show)] },
];

/// What its cores tell one another.
#[derive(Debug)]
enum Note {
    /// To the owner: a note, and who waits for its number.
    Posted { text: Vec<u8>, conn: ConnId },
    /// From the owner to all.
    Taken { number: u64, text: Vec<u8> },
    /// From the owner to who has asked.
    Answer { number: u64, conn: ConnId },
}

type Out<'a> = &'a mut dyn Post<Numbered<Note>>;

#[derive(Debug, Default)]
struct Notes {
    lives: Lives,
    order: Order,
    /// Each with the time of its next beat.
    streams: BTreeMap<ConnId, Deadline>,
    /// Notes that wait for room, with their owners.
    waiting: VecDeque<(CoreId, Note)>,
    /// Posts that are to be answered.
    owed: BTreeSet<ConnId>,
    later: BTreeSet<(Deadline, ConnId)>,
    /// Notes numbered, as an owner.
    taken: u64,
    is_draining: bool,
}

impl Notes {
    fn fan_out(&mut self, out: Out<'_>, to: CoreId, note: Note) {
        out.mail_fanout(to, self.order.number(FANOUT, to, 0, note));
    }

    /// Sends what waits, as far as its owners have room.
    fn hand_over(&mut self, out: Out<'_>) -> Work {
        while let Some((owner, note)) = self.waiting.pop_front() {
            if out.ingest_room(owner, GROUP) < Admits::Everything {
                self.waiting.push_front((owner, note));
                return Work::Held;
            }
            out.mail_ingest(owner, self.order.number(INGEST, owner, 1000, note));
        }
        Work::Idle
    }

    fn deliver(&self, out: Out<'_>, text: &str) {
        let mut chunk = Vec::new();
        StreamFraming::Chunked.encode(&mut chunk, text.as_bytes());
        let run = out.outbox().write_run(Lane(3), &chunk);
        for &conn in self.streams.keys() {
            if out.outbox().push_run(conn, run, Room::Whole, 0) == Pushed::Full {
                out.outbox().cut(conn, b"", WebSocketClose { code: 1013, reason: "" });
            }
        }
    }
}

fn answer(status: u16, body: impl Into<Cow<'static, [u8]>>) -> Response {
    Response { status, fields: Vec::new(), body: body.into(), close: false }
}

impl Protocol for Notes {
    type Mail = Numbered<Note>;
    type Endpoint = Endpoint;

    fn paths(&self) -> &'static [Path<Endpoint>] {
        PATHS
    }

    fn on_request(&mut self, out: Out<'_>, conn: ConnId, endpoint: Endpoint, request: &Request<'_>) -> Verdict {
        assert!(!self.is_draining, "a process that drains takes no request");
        self.lives.request(conn);
        let now = out.out().now();
        match endpoint {
            Endpoint::Stream => {
                let open = EventStreamOpen {
                    group: GROUP,
                    fields: Vec::new(),
                    first: b": notes\n\n",
                    heartbeat: b"",
                    heartbeat_interval: Duration::MAX,
                };
                out.outbox().open_event_stream(conn, open);
                self.lives.open(conn);
                out.outbox().arm(conn, now.after(BEAT));
                self.streams.insert(conn, now.after(BEAT));
                Verdict::Later
            }
            Endpoint::Post => {
                self.lives.ask_body(conn);
                Verdict::ReadBody { tag: 7, bytes_max: BODY_BYTES_MAX }
            }
            Endpoint::Later => {
                self.later.insert((now.after(LATER), conn));
                Verdict::Later
            }
            Endpoint::Show => {
                self.lives.answer(conn);
                Verdict::Respond(answer(200, request.segment.unwrap().to_owned().into_bytes()))
            }
        }
    }

    fn refusal(&self, refused: Refused) -> Response {
        assert_eq!(refused, Refused::Fault(HttpFault::BodyTooLarge(BODY_BYTES_MAX)));
        answer(413, b"".as_slice())
    }

    fn health(&self, _: &mut ObjectWriter) {}

    fn on_body(&mut self, out: Out<'_>, conn: ConnId, tag: u32, text: Vec<u8>) {
        assert_eq!(tag, 7);
        self.lives.body(conn);
        self.owed.insert(conn);
        let owner = CoreId(u16::from(text[0]) % u16::try_from(out.out().cores()).unwrap());
        self.waiting.push_back((owner, Note::Posted { text, conn }));
    }

    fn on_alarm(&mut self, out: Out<'_>, conn: ConnId) {
        self.lives.input(conn);
        let now = out.out().now();
        let beat = self.streams.get_mut(&conn).unwrap();
        assert!(beat.is_due(now), "an alarm never comes early");
        *beat = now.after(BEAT);
        out.outbox().arm(conn, *beat);
        let mut chunk = Vec::new();
        StreamFraming::Chunked.encode(&mut chunk, b": beat\n\n");
        out.outbox().push(conn, &chunk, 0);
    }

    fn group(&self) -> Group {
        GROUP
    }

    fn on_mail(&mut self, out: Out<'_>, from: CoreId, mail: Numbered<Note>) {
        match self.order.take(from, mail) {
            Note::Posted { text, conn } => {
                let number = self.taken;
                self.taken += 1;
                for to in (0..out.out().cores()).map(|core| CoreId(u16::try_from(core).unwrap())) {
                    self.fan_out(out, to, Note::Taken { number, text: text.clone() });
                }
                self.fan_out(out, from, Note::Answer { number, conn });
            }
            Note::Taken { number, text } => {
                let text = String::from_utf8(text).unwrap();
                self.deliver(out, &format!("data: {} {number} {text}\n\n", from.0));
            }
            Note::Answer { number, conn } => {
                if self.owed.remove(&conn) {
                    self.lives.answer(conn);
                    out.outbox().respond(conn, answer(202, number.to_string().into_bytes()));
                }
            }
        }
    }

    fn on_turn(&mut self, out: Out<'_>) -> Work {
        let now = out.out().now();
        while let Some((_, conn)) = self.later.first().filter(|(due, _)| due.is_due(now)).copied() {
            self.later.pop_first();
            self.lives.answer(conn);
            out.outbox().respond(conn, answer(200, b"later".as_slice()));
        }
        self.hand_over(out)
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.later.first().map(|(due, _)| *due)
    }

    fn on_closing(&mut self, _: Out<'_>, conn: ConnId) {
        self.lives.closing(conn);
        self.streams.remove(&conn);
        self.owed.remove(&conn);
        self.later.retain(|(_, other)| *other != conn);
    }

    fn on_gone(&mut self, _: Out<'_>, conn: ConnId, _: Ending) {
        self.lives.gone(conn);
    }

    fn on_drain(&mut self, _: Out<'_>) {
        self.is_draining = true;
    }

    fn is_quiescent(&self) -> bool {
        self.owed.is_empty() && self.later.is_empty() && self.waiting.is_empty()
    }

    fn on_goodbye(&mut self, out: Out<'_>) -> Work {
        assert!(self.is_draining);
        self.streams.keys().for_each(|conn| out.outbox().end_event_stream(*conn, b": no more\n\n"));
        Work::Idle
    }
}
