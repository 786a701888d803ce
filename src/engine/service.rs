//! The seam between the engine and the protocols: a [`Service`] hears what happens, an [`Outbox`] takes what shall
//! happen, a [`Post`] mail besides. No `mio` type appears here, no socket, no clock.
//!
//! One core runs one service. All calls of one core come from its one thread, so a service is plain
//! single-threaded data; what it shares with the services of other cores it sends as mail.
//!
//! What an author of a protocol must know, each rule with what guards it, is the head of `protocol/mod.rs`.

use std::time::{Duration, SystemTime};

use crate::base::time::{Deadline, Now};
use crate::limits::Room;
use crate::ops::metrics::Endpoint;
use crate::wire::http1::RequestHead;
use crate::wire::http1::answer::Fields;

pub use crate::wire::http1::answer::Response;

/// A connection of one core: a slot and its generation, so that a stale id misses instead of hitting a stranger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    /// Index into the core's connection slab.
    pub slot: u32,
    /// How often that slot had been used before.
    pub generation: u32,
}

/// A core of the process, `0 .. cores`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoreId(pub u16);

impl CoreId {
    /// No core: who mail is from that a thread sent which is none.
    pub const OUTSIDE: Self = Self(u16::MAX);
}

/// One protocol, or a set of them, on one core.
pub trait Service {
    /// What services of different cores send one another.
    type Mail: Mail;

    /// What holds for whatever answers this request, be it the engine's refusal. Asked once, before anything else is
    /// asked of the request; without a head if none can be read.
    fn terms(&self, head: Option<&RequestHead<'_>>) -> Terms;

    /// A whole request head has arrived.
    fn on_request(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId, head: &RequestHead<'_>) -> Verdict;

    /// Whether that request is answered even though the process has no room for its connection: for who watches whether
    /// and how it lives. The answer has to be given at once. Others are refused with [`HttpFault::Busy`].
    fn answers_guests(&self, head: &RequestHead<'_>) -> bool;

    /// The body asked for by [`Verdict::ReadBody`] is complete. Answered through [`Outbox::respond`], now or later.
    fn on_body(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId, tag: u32, body: Vec<u8>);

    /// A request cannot be served for a reason the engine found. The engine closes the connection after the answer
    /// where HTTP asks for it. `conn` is the connection if [`Service::on_request`] has heard of this request.
    fn refusal(&self, fault: HttpFault, conn: Option<ConnId>) -> Response;

    /// A WebSocket message has arrived, or one that is too large as a first one. Text may be overwritten.
    fn on_message(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId, message: Message<'_>) -> Flow;

    /// The queue of a connection that asked for it ([`Outbox::notify_drained`]) has run empty.
    fn on_drained(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId);

    /// All backlogs together are over their bound and this connection has the largest: it has to be cut
    /// ([`Outbox::cut`]), with whatever the service wants to say. If it is not, the engine cuts it without a word.
    fn on_overflow(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId);

    /// The service's own alarm of a connection ([`Outbox::arm`]) went off. One shot.
    fn on_alarm(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId);

    /// Whether more ingest mail of that group is taken. What is not taken waits, behind nobody and before nobody of
    /// another group, and counts in [`Post::ingest_room`], so that senders wait instead of filling the service's own
    /// queues.
    fn takes_ingest(&self, group: Group) -> bool;

    /// What may be published in that group, for all that waits in this service for its consumers.
    fn admits(&self, group: Group) -> Admits;

    /// Mail from a service of another core (or this one).
    fn on_mail(&mut self, out: &mut dyn Post<Self::Mail>, from: CoreId, mail: Self::Mail);

    /// At least once per turn (again where mail to its own core was taken in between), after input and mail and before
    /// the flush: budgeted work (admission in slices, fan-out, replay pages). Returns whether work is left, in which
    /// case the next poll does not sleep.
    fn on_turn(&mut self, out: &mut dyn Post<Self::Mail>) -> Work;

    /// When this service wants a turn for what is no connection; none: not before something happens. Asked before the
    /// core sleeps: it then wakes at that time, never early and at most a tick late, and `on_turn` finds what is due.
    /// One that is due and not moved on by then keeps the core awake.
    fn next_deadline(&self) -> Option<Deadline>;

    /// The end of the connection is decided: its peer has closed or is gone, it broke a rule, a body or message of it
    /// was refused, it was cut, the service itself ended it, or the process drains. Nothing more of it is handed over,
    /// and pushes to it are [`Pushed::Gone`]; what is queued may still leave, for seconds. Per connection, not per
    /// request: behind an answer that keeps the connection there is none.
    fn on_closing(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId);

    /// The connection is over, whoever ended it.
    fn on_gone(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId, ending: Ending);

    /// The process drains: no further request or message will be handed over, apart from bodies in flight.
    fn on_drain(&mut self, out: &mut dyn Post<Self::Mail>);

    /// Whether nothing that this core took in waits for an answer any more: the core may then end its ingest lane.
    fn is_quiescent(&self) -> bool;

    /// Every lane has ended: say goodbye to every stream and WebSocket, a turn's worth of them. Called again until
    /// nothing is left to do. What is queued is still flushed.
    fn on_goodbye(&mut self, out: &mut dyn Post<Self::Mail>) -> Work;
}

/// What travels between cores.
pub trait Mail: Send + 'static {
    /// Bytes it keeps alive, for the bound of the ingest lane. Asked once, when it is sent.
    fn weight(&self) -> usize;

    /// Whose it is.
    fn group(&self) -> Group;
}

/// A pace group: connections and publishers that wait for one another, and for nobody of another group. One per
/// protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group(pub u8);

/// How many pace groups there are.
pub const GROUPS: usize = 4;

impl Group {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).map(Self).take(GROUPS)
    }

    /// Its place among all.
    #[must_use]
    pub fn index(self) -> usize {
        debug_assert!(usize::from(self.0) < GROUPS, "a group that exists");
        usize::from(self.0) % GROUPS
    }
}

/// What holds for whatever answers a request.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Fields that stand in front of the answer's own, in whatever answers: cross-origin rules.
    pub fields: Fields,
    /// What the answer is counted under.
    pub endpoint: Endpoint,
}

/// What the service wants done with a request after its head.
#[derive(Debug)]
pub enum Verdict {
    /// This is the answer. Body bytes that come are read and thrown away within bounds.
    Respond(Response),
    /// Read the whole body (sending `100 Continue` if that is awaited), at most `bytes_max` (else
    /// [`HttpFault::BodyTooLarge`]), then call `on_body` with `tag`.
    ReadBody {
        /// Comes back in `on_body`.
        tag: u32,
        /// Bound of the decoded body in bytes.
        bytes_max: usize,
    },
    /// The answer comes later, through `respond` or `open_event_stream`. The request's body, if any, is discarded.
    Later,
    /// Answer 101 and speak WebSocket from now on; bytes that came behind the head are its first input.
    Upgrade(WebSocketUpgrade),
}

/// What an upgraded connection is bound to.
#[derive(Debug, Clone)]
pub struct WebSocketUpgrade {
    /// Whose publishers wait for it.
    pub group: Group,
    /// `Sec-WebSocket-Accept`.
    pub accept: [u8; 28],
    /// Bytes of one message; over it close code 1009.
    pub message_bytes_max: usize,
    /// Bytes of the first message, if that is less; over it the service hears [`Message::TooLarge`].
    pub first_message_bytes_max: usize,
    /// Silence after which a ping goes out.
    pub ping_interval: Duration,
    /// Silence after which the peer is dropped.
    pub silence_max: Duration,
}

/// How an event stream opens.
#[derive(Debug, Clone)]
pub struct EventStreamOpen {
    /// Whose publishers wait for it.
    pub group: Group,
    /// Fields beyond status line and framing (`Content-Type` among them).
    pub fields: Fields,
    /// First message (for example `: open\n\n`), sent with the head; the engine frames it.
    pub first: &'static [u8],
    /// What goes out after `heartbeat_interval` of silence; the engine frames it.
    pub heartbeat: &'static [u8],
    /// See `heartbeat`.
    pub heartbeat_interval: Duration,
}

/// A WebSocket message.
#[derive(Debug)]
pub enum Message<'a> {
    /// A text message, valid UTF-8. Binary ones are refused with 1003.
    Text(&'a mut [u8]),
    /// The connection's first message is over the bound it has, as its length or what has come of it shows. Neither it
    /// nor a later one is handed over: say so and close.
    TooLarge,
}

/// Whether a connection is read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on with the next message.
    Continue,
    /// Hand over nothing more of this connection until [`Outbox::resume`].
    Park,
}

/// Whether a service has work left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Nothing to do before the next input.
    Idle,
    /// More work waits; do not sleep.
    Left,
    /// Work waits until more may be published ([`Outbox::admits`], [`Post::ingest_room`]), which no event tells; look
    /// again within a millisecond or so.
    Held,
}

impl Work {
    /// What is left where both are to be done.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Left, _) | (_, Self::Left) => Self::Left,
            (Self::Held, _) | (_, Self::Held) => Self::Held,
            (Self::Idle, Self::Idle) => Self::Idle,
        }
    }
}

/// What may be published while consumers have more or less before them; the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Admits {
    /// Nothing.
    Nothing,
    /// What comes from those who publish little.
    Little,
    /// Everything.
    Everything,
}

impl Admits {
    /// For a place that holds so many bytes and shall hold `bytes_max`: everything up to half of that, little up to the
    /// whole. So there is always room for those who publish little, however much others bring.
    #[must_use]
    pub const fn of(bytes: usize, bytes_max: usize) -> Self {
        if bytes < bytes_max / 2 {
            Self::Everything
        } else if bytes < bytes_max {
            Self::Little
        } else {
            Self::Nothing
        }
    }
}

/// Requests the engine cannot serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpFault {
    /// Head or body framing breaks HTTP/1.1; the text names the rule. 400.
    Malformed(&'static str),
    /// Another HTTP version. 505.
    Version,
    /// The request line alone is over the head limit. 414.
    UriTooLong,
    /// The head is over its limit of bytes. 431.
    HeadTooLarge,
    /// The head has more than [`crate::limits::HEADER_FIELDS_MAX`] fields. 431.
    TooManyFields,
    /// An `Expect` other than `100-continue`. 417.
    Expectation,
    /// The body is over this many bytes. 413.
    BodyTooLarge(usize),
    /// Head or body came in too slowly. 408.
    Timeout,
    /// Over the connection limit. 503 with `Retry-After`.
    Busy,
    /// The body has waited in vain for memory that other bodies and messages hold. 503 with `Retry-After`.
    NoRoom,
    /// The process is draining. 503.
    Draining,
}

/// Where pre-serialized bytes are collected: runs of one lane that follow each other are contiguous and join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane(pub u8);

/// How many lanes a core has.
pub const LANES: usize = 16;

/// Pre-serialized bytes in one of the core's delivery blocks. Valid until the end of the turn that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The block, counted from the core's start.
    pub block: u64,
    /// Offset in the block, bytes.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Run {
    /// Both runs as one, if `next` begins where `self` ends.
    #[must_use]
    pub fn join(self, next: Self) -> Option<Self> {
        let adjacent = self.block == next.block && self.start + self.len == next.start;
        adjacent.then(|| Self { len: self.len + next.len, ..self })
    }
}

/// What became of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// In the queue; it leaves in order.
    Queued,
    /// The queue has no room for it; nothing was queued, and nothing follows by itself. An empty queue is never full.
    Full,
    /// The connection is over or closing; nothing was queued.
    Gone,
    /// The connection has neither stream nor WebSocket yet: one opens with [`Outbox::open_event_stream`], the other
    /// when the call that returns [`Verdict::Upgrade`] is over. Nothing was queued, and the fault is the service's.
    NotOpen,
    /// The run is of an earlier turn and its bytes are no more. Nothing was queued, and the fault is the service's.
    Stale,
}

/// A piece of a write queue: bytes of one or several pushes with the mark of the last of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsent {
    /// The mark given with the push. Pushes join only where the later mark is the earlier one, or exceeds it by the
    /// bytes of the later push: then the last one tells of all.
    pub mark: u64,
    /// Bytes of the piece that have not been handed to the socket.
    pub bytes: usize,
}

/// How a WebSocket is closed from our side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebSocketClose<'a> {
    /// Close code.
    pub code: u16,
    /// Reason, at most 123 bytes.
    pub reason: &'a str,
}

/// Why a connection ended; the same words in log and metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The peer ended it.
    Peer,
    /// A read or write failed.
    SocketError,
    /// Complete: the answer or the stream came to its end.
    Complete,
    /// A deadline of HTTP, or of a WebSocket message, passed.
    Timeout,
    /// Kept alive without a request for too long.
    Idle,
    /// It broke HTTP or WebSocket.
    ProtocolError,
    /// The service closed it.
    Service,
    /// It was too slow for what it asked for.
    SlowConsumer,
    /// The peer was silent for too long.
    Silent,
    /// Over the connection limit, or no memory for what it was sending.
    Refused,
    /// The process drains.
    Drain,
}

/// What a service may ask of the engine for its connections. Calls with a dead [`ConnId`] do nothing. Who sends no mail
/// is given this much, so that it can serve any protocol.
pub trait Outbox {
    /// The time of this turn.
    fn now(&self) -> Now;
    /// The time of day of this turn, as the wall clock had it: for what people are told. It may jump; what is waited
    /// for is measured by [`Outbox::now`].
    fn time_of_day(&self) -> SystemTime;
    /// The core this is.
    fn core(&self) -> CoreId;
    /// How many cores there are.
    fn cores(&self) -> usize;

    /// Answers a request ([`Verdict::Later`], or a body).
    fn respond(&mut self, conn: ConnId, response: Response);
    /// Answers a request with an event stream: head and first message leave at once.
    fn open_event_stream(&mut self, conn: ConnId, open: EventStreamOpen);
    /// Changes after how much silence an open event stream gets its heartbeat; at once, if it has been silent for so
    /// long.
    fn set_heartbeat(&mut self, conn: ConnId, interval: Duration);
    /// Ends an event stream behind everything queued; `last`, which may be empty and which the
    /// engine frames, is its last message. [`Service::on_closing`] follows later in the turn, not within this call.
    fn end_event_stream(&mut self, conn: ConnId, last: &[u8]);
    /// Sends a close frame behind everything queued and completes the close handshake.
    fn close_websocket(&mut self, conn: ConnId, close: WebSocketClose<'_>);
    /// Cuts a slow consumer: what is queued and unsent goes, except a frame or chunk begun; then a WebSocket gets
    /// `last` (framed bytes) and the close, an event stream the end of its body; then the socket has
    /// [`crate::limits::CLOSE_TIME`] to take that.
    fn cut(&mut self, conn: ConnId, last: &[u8], close: WebSocketClose<'_>);

    /// Stores framed bytes once for this core; see [`Run`].
    fn write_run(&mut self, lane: Lane, bytes: &[u8]) -> Run;
    /// Queues a run, without copying. `mark` is the service's own and comes back in [`Outbox::unsent`]; pushes whose
    /// marks advance by their length (offsets of one stream) or stay the same may come back joined. Beyond what `room`
    /// gives it is [`Pushed::Full`], unless nothing is queued: an empty queue takes any one message.
    fn push_run(&mut self, conn: ConnId, run: Run, room: Room, mark: u64) -> Pushed;
    /// Queues framed bytes that only this connection gets.
    fn push(&mut self, conn: ConnId, bytes: &[u8], mark: u64) -> Pushed;
    /// Queues framed bytes whatever the queue's bound: answers, commands, announcements: small, or counted elsewhere.
    fn push_always(&mut self, conn: ConnId, bytes: &[u8], mark: u64) -> Pushed;
    /// Bytes queued and not handed to the socket, those of heads, pongs and heartbeats included.
    fn queued_bytes(&self, conn: ConnId) -> usize;
    /// Everything queued and not handed to the socket, first to last.
    fn unsent(&self, conn: ConnId, visit: &mut dyn FnMut(Unsent));
    /// Asks for one [`Service::on_drained`] when the connection's queue is empty (in this turn's flush at the soonest).
    fn notify_drained(&mut self, conn: ConnId);

    /// Hands over input of a parked connection again. Of one that is about to be parked, too: within
    /// [`Service::on_message`] it cancels the [`Flow::Park`] which that call returns.
    fn resume(&mut self, conn: ConnId);
    /// Sets the connection's one alarm, replacing the former. Nothing for a connection that is ending.
    fn arm(&mut self, conn: ConnId, at: Deadline);
    /// Forgets the connection's alarm; its entry in the timer wheel stays until its time.
    fn disarm(&mut self, conn: ConnId);

    /// What may be published in that group, as far as all cores are behind with consumers of it that do read: who may
    /// not must wait.
    fn admits(&self, group: Group) -> Admits;
    /// Tells that so many bytes of events were taken in for that group: once, by who hands them to their owner. It
    /// counts while its publishers are slowed down.
    fn admitted(&mut self, group: Group, bytes: usize);
}

/// An [`Outbox`], and mail of one kind. The two are apart so that who wraps one protocol's mail into that of all of
/// them has no part in pushes.
pub trait Post<M> {
    /// The outbox.
    fn outbox(&mut self) -> &mut dyn Outbox;
    /// The outbox, to be asked.
    fn out(&self) -> &dyn Outbox;
    /// Sends mail that only sockets cause: ask [`Post::ingest_room`] in the same turn and park the socket when it does
    /// not admit it. Not behind the end of the lane.
    fn mail_ingest(&mut self, to: CoreId, mail: M);
    /// Sends mail that ends in write queues; never waits. Not behind the end of the lane.
    fn mail_fanout(&mut self, to: CoreId, mail: M);
    /// Sends into the ingest lane what has room reserved: it answers mail, or a connection has at most one of it under
    /// way. Also behind the end of the lane.
    fn mail_ingest_reserved(&mut self, to: CoreId, mail: M);
    /// Sends into the fan-out lane what answers mail, also behind the end of the lane.
    fn mail_fanout_reserved(&mut self, to: CoreId, mail: M);
    /// What that core's ingest lane has room for, of that group.
    fn ingest_room(&self, to: CoreId, group: Group) -> Admits;
}
