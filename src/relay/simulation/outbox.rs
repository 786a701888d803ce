//! The engine's side of a simulated core: a recording [`Outbox`] whose sockets take bytes as the simulation lets them.
//!
//! It keeps the promises of `engine/service.rs` that relays rest on (order, whole messages, marks, one `drained` per
//! asking) and checks the duties of a service: a run is used in the turn that wrote it, a request is answered once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

use super::machine::{FANOUT, INGEST};
use crate::base::time::{Deadline, Now};
use crate::engine::service::{
    Admits, ConnId, CoreId, EventStreamOpen, Group, LANES, Lane, Outbox, Post, Pushed, Response, Run, Unsent,
    WebSocketClose,
};
use crate::limits::{Limits, Room};
use crate::relay::RelayMail;
use crate::wire::http1::chunk::{StreamFraming, chunk_len};
use crate::wire::websocket::frame::frame_len;

/// What a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request that awaits its answer.
    Request,
    /// An event stream.
    Stream,
    /// A WebSocket.
    WebSocket,
}

#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    mark: u64,
    /// Block and offset behind it.
    end: (u64, u32),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) kind: Kind,
    pieces: VecDeque<Piece>,
    sent: usize,
    pub(super) queued: usize,
    /// Nothing more is pushed; it is over once the queue is empty.
    pub(super) closing: bool,
    pub(super) tell_drained: bool,
    pub(super) parked: bool,
    /// No bound: the queue of a consumer that is never slow.
    pub(super) unbounded: bool,
    /// Bytes that the peer takes.
    pub(super) window: usize,
    /// Bytes that have reached the peer and were not looked at.
    pub(super) received: Vec<u8>,
    /// Messages of the peer that the relay has not read.
    pub(super) inbox: VecDeque<Vec<u8>>,
    pub(super) response: Option<Response>,
}

impl Socket {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            pieces: VecDeque::new(),
            sent: 0,
            queued: 0,
            closing: false,
            tell_drained: false,
            parked: false,
            unbounded: false,
            window: usize::MAX,
            received: Vec::new(),
            inbox: VecDeque::new(),
            response: None,
        }
    }

    /// Writes what the window takes. Whether the queue is empty.
    pub(super) fn flush(&mut self) -> bool {
        while let Some(front) = self.pieces.front() {
            let taken = (front.bytes.len() - self.sent).min(self.window);
            self.received.extend_from_slice(&front.bytes[self.sent..self.sent + taken]);
            self.sent += taken;
            self.queued -= taken;
            self.window = if self.window == usize::MAX { usize::MAX } else { self.window - taken };
            if self.sent < front.bytes.len() {
                break;
            }
            self.sent = 0;
            self.pieces.pop_front();
        }
        self.pieces.is_empty()
    }

    /// Pieces join as they do in the engine: neighbours in a block whose marks go on with their bytes.
    fn push(&mut self, bytes: &[u8], run: Run, mark: u64) {
        self.queued += bytes.len();
        let end = (run.block, run.start + run.len);
        if let Some(last) = self.pieces.back_mut()
            && last.end == (run.block, run.start)
            && (mark == last.mark || mark == last.mark.wrapping_add(u64::from(run.len)))
        {
            last.bytes.extend_from_slice(bytes);
            (last.mark, last.end) = (mark, end);
        } else {
            self.pieces.push_back(Piece { bytes: bytes.to_vec(), mark, end });
        }
    }

    fn push_own(&mut self, bytes: &[u8], mark: u64) {
        self.push(bytes, Run { block: u64::MAX, start: 0, len: u32::try_from(bytes.len()).unwrap() }, mark);
        self.pieces.back_mut().unwrap().end = (u64::MAX, u32::MAX);
    }

    /// Discards what is unsent, except a message begun.
    fn cut(&mut self) {
        let message_len: fn(&[u8]) -> Option<usize> = if self.kind == Kind::WebSocket { frame_len } else { chunk_len };
        self.pieces.truncate(1);
        if let Some(front) = self.pieces.front_mut() {
            let mut end = 0;
            while end < self.sent {
                end += message_len(&front.bytes[end..]).unwrap();
            }
            front.bytes.truncate(end);
        }
        self.queued = self.pieces.front().map_or(0, |front| front.bytes.len() - self.sent);
        if self.queued == 0 {
            self.pieces.clear();
            self.sent = 0;
        }
    }
}

#[derive(Debug, Default)]
struct Block {
    number: u64,
    bytes: Vec<u8>,
    /// What this turn wrote begins here.
    turn: usize,
}

/// One core's connections and what its relay did in the present call.
#[derive(Debug)]
pub(super) struct SimOutbox {
    core: CoreId,
    cores: usize,
    pub(super) now: Now,
    pub(super) time_of_day: SystemTime,
    pub(super) sockets: BTreeMap<ConnId, Socket>,
    blocks: Vec<Block>,
    next_block: u64,
    limits: Limits,
    /// Mail in order: whether it takes the ingest lane, where to, what.
    pub(super) mail: VecDeque<(bool, CoreId, RelayMail)>,
    /// What the engine and the other cores let publishers bring.
    pub(super) admits: Admits,
    pub(super) ingest_room: Admits,
    /// Whom the service has asked about in this turn.
    asked: RefCell<BTreeSet<CoreId>>,
    /// This core has ended that lane.
    pub(super) ended: [bool; 2],
}

impl SimOutbox {
    pub(super) fn new(core: CoreId, cores: usize, limits: Limits) -> Self {
        Self {
            core,
            cores,
            now: Now(0),
            time_of_day: SystemTime::UNIX_EPOCH,
            sockets: BTreeMap::new(),
            blocks: (0..LANES).map(|_| Block::default()).collect(),
            next_block: 1,
            limits,
            mail: VecDeque::new(),
            admits: Admits::Everything,
            ingest_room: Admits::Everything,
            asked: RefCell::default(),
            ended: [false; 2],
        }
    }

    /// The turn is over: its runs are no more. A block either goes on in the next turn or is sealed.
    pub(super) fn end_turn(&mut self, seal: bool) {
        self.asked.get_mut().clear();
        for block in &mut self.blocks {
            if seal || block.bytes.is_empty() {
                *block = Block { number: self.next_block, ..Block::default() };
                self.next_block += 1;
            }
            block.turn = block.bytes.len();
        }
    }

    fn open(&mut self, conn: ConnId) -> Option<&mut Socket> {
        self.sockets.get_mut(&conn).filter(|socket| !socket.closing && socket.kind != Kind::Request)
    }

    fn admit(&mut self, conn: ConnId, bytes: usize, room: Option<Room>) -> Result<&mut Socket, Pushed> {
        let max = room.map_or(usize::MAX, |room| self.limits.queue_bytes_max(room));
        let is_request = self.sockets.get(&conn).is_some_and(|socket| socket.kind == Kind::Request);
        assert!(!is_request, "nothing is pushed before its stream or WebSocket is open");
        let Some(socket) = self.open(conn) else { return Err(Pushed::Gone) };
        if !socket.unbounded && socket.queued > 0 && socket.queued.saturating_add(bytes) > max {
            return Err(Pushed::Full);
        }
        Ok(socket)
    }

    fn queue_own(&mut self, conn: ConnId, bytes: &[u8], mark: u64, room: Option<Room>) -> Pushed {
        match self.admit(conn, bytes.len(), room) {
            Ok(socket) => {
                socket.push_own(bytes, mark);
                Pushed::Queued
            }
            Err(refused) => refused,
        }
    }
}

impl Outbox for SimOutbox {
    fn now(&self) -> Now {
        self.now
    }

    fn time_of_day(&self) -> SystemTime {
        self.time_of_day
    }

    fn core(&self) -> CoreId {
        self.core
    }

    fn cores(&self) -> usize {
        self.cores
    }

    fn respond(&mut self, conn: ConnId, response: Response) {
        if let Some(socket) = self.sockets.get_mut(&conn) {
            assert!(socket.kind == Kind::Request && socket.response.is_none(), "a request is answered once");
            socket.response = Some(response);
        }
    }

    fn open_event_stream(&mut self, conn: ConnId, open: EventStreamOpen) {
        if let Some(socket) = self.sockets.get_mut(&conn) {
            assert!(socket.kind == Kind::Request, "a request is answered once");
            socket.kind = Kind::Stream;
            let mut first = Vec::new();
            StreamFraming::Chunked.encode(&mut first, open.first);
            socket.push_own(&first, 0);
        }
    }

    fn set_heartbeat(&mut self, _conn: ConnId, _interval: Duration) {}

    fn end_event_stream(&mut self, conn: ConnId, last: &[u8]) {
        if let Some(socket) = self.open(conn) {
            let mut bytes = Vec::new();
            StreamFraming::Chunked.encode(&mut bytes, last);
            socket.push_own(&bytes, 0);
            socket.closing = true;
        }
    }

    fn close_websocket(&mut self, conn: ConnId, _close: WebSocketClose<'_>) {
        if let Some(socket) = self.open(conn) {
            socket.closing = true;
        }
    }

    fn cut(&mut self, conn: ConnId, last: &[u8], _close: WebSocketClose<'_>) {
        if let Some(socket) = self.open(conn) {
            socket.cut();
            if !last.is_empty() {
                socket.push_own(last, 0);
            }
            socket.closing = true;
        }
    }

    fn write_run(&mut self, lane: Lane, bytes: &[u8]) -> Run {
        let block = &mut self.blocks[usize::from(lane.0)];
        let start = u32::try_from(block.bytes.len()).unwrap();
        block.bytes.extend_from_slice(bytes);
        Run { block: (block.number << 8) | u64::from(lane.0), start, len: u32::try_from(bytes.len()).unwrap() }
    }

    fn push_run(&mut self, conn: ConnId, run: Run, room: Room, mark: u64) -> Pushed {
        let block = &self.blocks[usize::try_from(run.block & 0xff).unwrap()];
        let start = run.start as usize;
        assert!(block.number == run.block >> 8 && start >= block.turn, "a run is used in the turn that wrote it");
        let bytes = block.bytes[start..start + run.len as usize].to_vec();
        match self.admit(conn, bytes.len(), Some(room)) {
            Ok(socket) => {
                socket.push(&bytes, run, mark);
                Pushed::Queued
            }
            Err(refused) => refused,
        }
    }

    fn push(&mut self, conn: ConnId, bytes: &[u8], mark: u64) -> Pushed {
        self.queue_own(conn, bytes, mark, Some(Room::Whole))
    }

    fn push_always(&mut self, conn: ConnId, bytes: &[u8], mark: u64) -> Pushed {
        self.queue_own(conn, bytes, mark, None)
    }

    fn queued_bytes(&self, conn: ConnId) -> usize {
        self.sockets.get(&conn).map_or(0, |socket| socket.queued)
    }

    fn unsent(&self, conn: ConnId, visit: &mut dyn FnMut(Unsent)) {
        let Some(socket) = self.sockets.get(&conn) else { return };
        let mut sent = socket.sent;
        for piece in &socket.pieces {
            visit(Unsent { mark: piece.mark, bytes: piece.bytes.len() - std::mem::take(&mut sent) });
        }
    }

    fn notify_drained(&mut self, conn: ConnId) {
        if let Some(socket) = self.open(conn) {
            socket.tell_drained = true;
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(socket) = self.sockets.get_mut(&conn) {
            socket.parked = false;
        }
    }

    fn arm(&mut self, _conn: ConnId, _at: Deadline) {}

    fn disarm(&mut self, _conn: ConnId) {}

    fn admitted(&mut self, _group: Group, _bytes: usize) {}

    fn admits(&self, _group: Group) -> Admits {
        self.admits
    }
}

impl Post<RelayMail> for SimOutbox {
    fn outbox(&mut self) -> &mut dyn Outbox {
        self
    }

    fn out(&self) -> &dyn Outbox {
        self
    }

    fn mail_ingest(&mut self, to: CoreId, mail: RelayMail) {
        assert!(self.asked.borrow().contains(&to), "mail that sockets cause asks for room first");
        assert!(!self.ended[INGEST], "a lane ends behind all mail that is no answer");
        self.mail_ingest_reserved(to, mail);
    }

    fn mail_fanout(&mut self, to: CoreId, mail: RelayMail) {
        assert!(!self.ended[FANOUT], "a lane ends behind all mail that is no answer");
        self.mail_fanout_reserved(to, mail);
    }

    fn mail_ingest_reserved(&mut self, to: CoreId, mail: RelayMail) {
        self.mail.push_back((true, to, mail));
    }

    fn mail_fanout_reserved(&mut self, to: CoreId, mail: RelayMail) {
        self.mail.push_back((false, to, mail));
    }

    fn ingest_room(&self, to: CoreId, _group: Group) -> Admits {
        self.asked.borrow_mut().insert(to);
        self.ingest_room
    }
}
