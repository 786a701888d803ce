//! A small protocol for driving the engine: echo, a broadcast over all cores, an event stream and a WebSocket.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aep_relay::base::time::{Deadline, Now};
use aep_relay::engine::service::{
    Admits, ConnId, CoreId, Ending, EventStreamOpen, Flow, Group, HttpFault, Lane, Mail, Message, Post, Pushed,
    Response, Run, Service, Terms, Verdict, WebSocketClose, WebSocketUpgrade, Work,
};
use aep_relay::limits::{Room, STANDSTILL_MIN};
use aep_relay::ops::metrics::Endpoint;
use aep_relay::wire::http1::{RequestHead, StreamFraming};
use aep_relay::wire::websocket::Handshake;
use aep_relay::wire::websocket::frame::encode_text;

const ECHO: u32 = 1;
const PUBLISH: u32 = 2;
/// How long a core does not run when it is told to stand still, as if its process had been stopped.
pub const STANDSTILL: Duration = STANDSTILL_MIN.saturating_add(Duration::from_secs(1));

/// The interval of open streams once it was changed.
const HEARTBEAT_CHANGED: Duration = Duration::from_millis(50);

/// Bounds that tests change.
#[derive(Debug, Clone)]
pub struct Settings {
    pub body_bytes_max: usize,
    pub heartbeat_interval: Duration,
    pub ping_interval: Duration,
    pub silence_max: Duration,
    /// How many consumers were cut.
    pub cuts: Arc<AtomicUsize>,
    /// How far apart the deadlines are that no connection has, if there are any.
    pub deadline_interval: Option<Duration>,
    /// What was due in a turn, and the time of that turn.
    pub dues: Arc<Mutex<Vec<(Deadline, Now)>>>,
    /// What was told of ends, in the order of each core.
    pub told: Arc<Mutex<Vec<Told>>>,
    /// No ingest mail is taken.
    pub takes_no_ingest: Arc<AtomicBool>,
    /// The numbered letters of all cores.
    pub numbered: Arc<Mutex<Vec<(CoreId, Numbered)>>>,
    /// How long after an overflow the next turn came, milliseconds and one; 0 before.
    pub turn_after_overflow: Arc<AtomicU64>,
}

/// What a service hears of a connection's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    pub core: CoreId,
    pub conn: ConnId,
    pub end: End,
    /// The time of the turn in which it was told.
    pub at: Now,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Closing,
    Gone,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            body_bytes_max: 32 << 20,
            heartbeat_interval: Duration::from_secs(15),
            ping_interval: Duration::from_secs(30),
            silence_max: Duration::from_secs(90),
            cuts: Arc::default(),
            deadline_interval: None,
            dues: Arc::default(),
            told: Arc::default(),
            takes_no_ingest: Arc::default(),
            numbered: Arc::default(),
            turn_after_overflow: Arc::default(),
        }
    }
}

/// One core's part. Consumers are told apart by how their messages are framed.
#[derive(Debug, Default)]
pub struct Demo {
    settings: Settings,
    chunked: Vec<ConnId>,
    until_close: Vec<ConnId>,
    websockets: Vec<ConnId>,
    /// Requests that are answered in the next call of `on_turn`.
    later: Vec<ConnId>,
    parked: Vec<ConnId>,
    deadline: Option<Deadline>,
    framed: Vec<u8>,
    /// A run that is kept for another turn, which is against the rules.
    kept: Option<Run>,
    overflow_at: Option<Now>,
    /// Mail is sent with the goodbye, which is against the rules: into the ingest lane, or the other.
    late: Option<bool>,
}

#[derive(Debug)]
pub enum Letter {
    /// To the one core that puts all events in order.
    Admit(Arc<[u8]>),
    /// To every core.
    Deliver(Arc<[u8]>),
    /// Of a thread that is no core.
    Numbered(Numbered),
}

/// A numbered letter, and the lane it was sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    pub ingest: bool,
    pub number: usize,
}

/// What a numbered letter weighs.
pub const NUMBERED_BYTES: usize = 100;

impl Mail for Letter {
    fn weight(&self) -> usize {
        match self {
            Self::Admit(event) | Self::Deliver(event) => event.len(),
            Self::Numbered(_) => NUMBERED_BYTES,
        }
    }

    fn group(&self) -> Group {
        match self {
            Self::Deliver(event) | Self::Admit(event) => group_of(event),
            Self::Numbered(_) => Group(0),
        }
    }
}

/// What begins with a 1 is for the other group.
fn group_of(event: &[u8]) -> Group {
    Group(u8::from(event.first() == Some(&b'1')))
}

type Out<'a> = &'a mut dyn Post<Letter>;

impl Demo {
    pub fn new(settings: Settings) -> Self {
        let deadline = settings.deadline_interval.map(|interval| Now(0).after(interval));
        Self { settings, deadline, ..Self::default() }
    }

    fn deliver(&mut self, out: Out<'_>, event: &[u8]) {
        let message = [b"data: ", event, b"\n\n"].concat();
        let mut run = |lane, encode: &dyn Fn(&mut Vec<u8>)| {
            self.framed.clear();
            encode(&mut self.framed);
            out.outbox().write_run(Lane(lane), &self.framed)
        };
        let chunked = run(0, &|framed| StreamFraming::Chunked.encode(framed, &message));
        let until_close = run(1, &|framed| StreamFraming::UntilClose.encode(framed, &message));
        let websocket = run(2, &|framed| encode_text(framed, event));
        self.push_all(out, &self.chunked, chunked);
        self.push_all(out, &self.until_close, until_close);
        self.push_all(out, &self.websockets, websocket);
    }

    fn push_all(&self, out: Out<'_>, consumers: &[ConnId], run: Run) {
        for &conn in consumers {
            if out.outbox().push_run(conn, run, Room::Whole, 1) == Pushed::Full {
                self.cut(out, conn);
            }
        }
    }

    fn cut(&self, out: Out<'_>, conn: ConnId) {
        let mut last = Vec::new();
        encode_text(&mut last, b"too slow");
        out.outbox().cut(conn, &last, WebSocketClose { code: 1013, reason: "" });
        self.settings.cuts.fetch_add(1, Ordering::Relaxed);
    }
}

impl Demo {
    fn tell(&self, out: Out<'_>, conn: ConnId, end: End) {
        self.settings.told.lock().unwrap().push(Told { core: out.out().core(), conn, end, at: out.out().now() });
    }
}

/// Sends an event to the one core that puts all in order. Who publishes waits for its answer, so the room needs no
/// look.
fn admit(out: Out<'_>, event: &[u8]) {
    let _room = out.ingest_room(CoreId(0), group_of(event));
    out.mail_ingest(CoreId(0), Letter::Admit(event.into()));
}

pub fn response(status: u16, body: impl Into<Cow<'static, [u8]>>) -> Response {
    Response { status, fields: vec![("Content-Type", "text/plain".into())], body: body.into(), close: false }
}

impl Service for Demo {
    type Mail = Letter;

    fn terms(&self, head: Option<&RequestHead<'_>>) -> Terms {
        let origin = head.and_then(|head| head.field("origin")).unwrap_or_default();
        let fields = vec![("For", String::from_utf8_lossy(origin).into_owned().into())];
        Terms { fields, endpoint: Endpoint::Stream }
    }

    fn on_request(&mut self, out: Out<'_>, conn: ConnId, head: &RequestHead<'_>) -> Verdict {
        match (head.method, head.target) {
            ("GET" | "HEAD", "/now") => Verdict::Respond(response(200, b"now".as_slice())),
            ("POST", "/refused") => Verdict::Respond(response(403, b"no".as_slice())),
            ("POST", "/echo") => Verdict::ReadBody { tag: ECHO, bytes_max: self.settings.body_bytes_max },
            ("POST", "/publish") => Verdict::ReadBody { tag: PUBLISH, bytes_max: self.settings.body_bytes_max },
            ("GET", "/time") => {
                let since = out.out().time_of_day().duration_since(SystemTime::UNIX_EPOCH).unwrap();
                Verdict::Respond(response(200, since.as_nanos().to_string().into_bytes()))
            }
            ("POST", "/created") => Verdict::Respond(response(201, b"".as_slice())),
            ("POST", "/conflict") => Verdict::Respond(response(409, b"".as_slice())),
            ("POST", "/gone") => Verdict::Respond(response(410, b"".as_slice())),
            ("GET", "/heartbeat") => {
                for &conn in self.chunked.iter().chain(&self.until_close) {
                    out.outbox().set_heartbeat(conn, HEARTBEAT_CHANGED);
                }
                Verdict::Respond(response(200, b"".as_slice()))
            }
            ("GET", "/later") => {
                self.later.push(conn);
                Verdict::Later
            }
            ("GET", "/early") => {
                let pushed = out.outbox().push(conn, b"before there is a stream", 0);
                Verdict::Respond(response(200, format!("{pushed:?}").into_bytes()))
            }
            ("GET", "/forgotten") => Verdict::Later,
            ("GET", "/admits") => {
                let admits: Vec<Admits> = (0..2).map(|group| out.out().admits(Group(group))).collect();
                Verdict::Respond(response(200, format!("{admits:?}").into_bytes()))
            }
            ("GET", "/late/ingest" | "/late/fanout") => {
                self.late = Some(head.target == "/late/ingest");
                Verdict::Respond(response(200, b"".as_slice()))
            }
            ("GET", "/unasked") => {
                out.mail_ingest(CoreId(0), Letter::Admit(b"0".as_slice().into()));
                Verdict::Later
            }
            ("GET", "/stream" | "/stream?1") => {
                let open = EventStreamOpen {
                    group: Group(u8::from(head.target == "/stream?1")),
                    fields: vec![("Content-Type", "text/event-stream".into())],
                    first: b": open\n\n",
                    heartbeat: b": ping\n\n",
                    heartbeat_interval: self.settings.heartbeat_interval,
                };
                out.outbox().open_event_stream(conn, open);
                match StreamFraming::of(head.version) {
                    StreamFraming::Chunked => self.chunked.push(conn),
                    StreamFraming::UntilClose => self.until_close.push(conn),
                }
                Verdict::Later
            }
            ("GET", "/socket") => match Handshake::of(head) {
                Handshake::Accept(accept) => {
                    self.websockets.push(conn);
                    Verdict::Upgrade(WebSocketUpgrade {
                        group: Group(0),
                        accept,
                        message_bytes_max: self.settings.body_bytes_max,
                        first_message_bytes_max: self.settings.body_bytes_max,
                        ping_interval: self.settings.ping_interval,
                        silence_max: self.settings.silence_max,
                    })
                }
                _ => Verdict::Respond(response(426, b"".as_slice())),
            },
            _ => Verdict::Respond(response(404, b"".as_slice())),
        }
    }

    fn answers_guests(&self, head: &RequestHead<'_>) -> bool {
        head.target == "/watched"
    }

    fn on_body(&mut self, out: Out<'_>, conn: ConnId, tag: u32, body: Vec<u8>) {
        if tag == PUBLISH {
            admit(out, &body);
            out.outbox().respond(conn, response(202, b"".as_slice()));
        } else {
            out.outbox().respond(conn, response(200, body));
        }
    }

    fn refusal(&self, fault: HttpFault, conn: Option<ConnId>) -> Response {
        let status = match fault {
            HttpFault::Malformed(_) => 400,
            HttpFault::Version => 505,
            HttpFault::UriTooLong => 414,
            HttpFault::HeadTooLarge | HttpFault::TooManyFields => 431,
            HttpFault::Expectation => 417,
            HttpFault::BodyTooLarge(_) => 413,
            HttpFault::Timeout => 408,
            HttpFault::Busy | HttpFault::NoRoom | HttpFault::Draining => 503,
        };
        response(status, format!("{fault:?} {}", conn.is_some()).into_bytes())
    }

    fn on_message(&mut self, out: Out<'_>, conn: ConnId, message: Message<'_>) -> Flow {
        let Message::Text(text) = message else {
            out.outbox().close_websocket(conn, WebSocketClose { code: 1008, reason: "too large" });
            return Flow::Continue;
        };
        if let Some(event) = text.strip_prefix(b"publish ") {
            admit(out, event);
            return Flow::Continue;
        }
        if text == b"stand still" {
            std::thread::sleep(STANDSTILL);
        }
        if text == b"close" {
            out.outbox().close_websocket(conn, WebSocketClose { code: 1000, reason: "asked" });
            return Flow::Continue;
        }
        let mut framed = Vec::new();
        if text == b"use what was kept" {
            let pushed = self.kept.take().map(|run| out.outbox().push_run(conn, run, Room::Whole, 0));
            encode_text(&mut framed, format!("{pushed:?}").as_bytes());
        } else {
            encode_text(&mut framed, text);
        }
        out.outbox().push_always(conn, &framed, 0);
        if text == b"keep" {
            self.kept = Some(out.outbox().write_run(Lane(3), &framed));
        }
        if text.starts_with(b"resume and park") {
            out.outbox().resume(conn);
            return Flow::Park;
        }
        if text.starts_with(b"park") {
            self.parked.push(conn);
            return Flow::Park;
        }
        Flow::Continue
    }

    fn on_drained(&mut self, _out: Out<'_>, _conn: ConnId) {}

    fn on_overflow(&mut self, out: Out<'_>, conn: ConnId) {
        self.overflow_at.get_or_insert(out.out().now());
        self.cut(out, conn);
    }

    fn on_alarm(&mut self, _out: Out<'_>, _conn: ConnId) {}

    fn takes_ingest(&self, group: Group) -> bool {
        group != Group(0) || !self.settings.takes_no_ingest.load(Ordering::Relaxed)
    }

    fn admits(&self, _group: Group) -> Admits {
        Admits::Everything
    }

    fn on_mail(&mut self, out: Out<'_>, from: CoreId, mail: Letter) {
        assert_eq!(from == CoreId::OUTSIDE, matches!(mail, Letter::Numbered(_)));
        match mail {
            Letter::Numbered(letter) => self.settings.numbered.lock().unwrap().push((out.out().core(), letter)),
            Letter::Admit(event) => {
                for core in (0..out.out().cores()).map(|core| CoreId(core as u16)) {
                    out.mail_fanout(core, Letter::Deliver(event.clone()));
                }
            }
            Letter::Deliver(event) => self.deliver(out, &event),
        }
    }

    fn on_turn(&mut self, out: Out<'_>) -> Work {
        if let Some(overflow_at) = self.overflow_at.take() {
            self.settings.turn_after_overflow.store(1 + out.out().now().0 - overflow_at.0, Ordering::Relaxed);
        }
        for conn in self.later.drain(..) {
            out.outbox().respond(conn, response(200, b"later".as_slice()));
        }
        for conn in self.parked.drain(..) {
            out.outbox().resume(conn);
        }
        let now = out.out().now();
        if let Some(due) = self.deadline.take_if(|deadline| deadline.is_due(now)) {
            self.settings.dues.lock().unwrap().push((due, now));
            self.deadline = self.settings.deadline_interval.map(|interval| now.after(interval));
        }
        Work::Idle
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    fn on_closing(&mut self, out: Out<'_>, conn: ConnId) {
        assert_eq!(out.outbox().push_always(conn, b"", 0), Pushed::Gone);
        self.tell(out, conn, End::Closing);
    }

    fn on_gone(&mut self, out: Out<'_>, conn: ConnId, _ending: Ending) {
        self.tell(out, conn, End::Gone);
        for list in [&mut self.chunked, &mut self.until_close, &mut self.websockets, &mut self.later, &mut self.parked]
        {
            list.retain(|&other| other != conn);
        }
    }

    fn on_drain(&mut self, _out: Out<'_>) {}

    fn is_quiescent(&self) -> bool {
        self.later.is_empty()
    }

    fn on_goodbye(&mut self, out: Out<'_>) -> Work {
        match self.late {
            Some(true) => admit(out, b"late"),
            Some(false) => out.mail_fanout(CoreId(0), Letter::Deliver(b"late".as_slice().into())),
            None => {}
        }
        for &conn in self.chunked.iter().chain(&self.until_close) {
            out.outbox().end_event_stream(conn, b": bye\n\n");
        }
        for &conn in &self.websockets {
            out.outbox().close_websocket(conn, WebSocketClose { code: 1001, reason: "bye" });
        }
        Work::Idle
    }
}
