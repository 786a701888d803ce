//! The engine's side of a simulated core: a recording [`Outbox`] whose sockets take bytes as the simulation lets them.
//!
//! It keeps the promises of `engine/service.rs` that protocols rest on (order, whole messages, marks, one `drained` per
//! asking) and checks their duties: a run is used in the turn that wrote it, a request is answered once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use super::socket::{Exchange, Kind, Socket};
use crate::base::time::{Deadline, Now};
use crate::engine::service::{
    Admits, ConnId, CoreId, Ending, EventStreamOpen, Group, LANES, Lane, Mail, Outbox, Post, Pushed, Response, Run,
    Unsent, WebSocketClose,
};
use crate::limits::{Limits, Room};
use crate::wire::http1::chunk::StreamFraming;

/// The lanes.
pub(crate) const INGEST: usize = 0;
pub(crate) const FANOUT: usize = 1;

#[derive(Debug, Default)]
struct Block {
    number: u64,
    bytes: Vec<u8>,
    /// What this turn wrote begins here.
    turn: usize,
}

/// Mail with the weight that it had when it was sent.
#[derive(Debug)]
pub(crate) struct Weighed<M> {
    pub(crate) mail: M,
    pub(crate) weight: usize,
}

impl<M: Mail> Weighed<M> {
    pub(crate) fn new(mail: M) -> Self {
        Self { weight: mail.weight(), mail }
    }
}

/// Bytes that wait in the ingest lanes of each core.
pub(crate) type IngestBytes = Arc<[AtomicUsize]>;

/// One core's connections, and what its protocol did in the present call.
#[derive(Debug)]
pub(crate) struct SimOutbox<M> {
    core: CoreId,
    cores: usize,
    pub(crate) now: Now,
    pub(crate) time_of_day: SystemTime,
    pub(crate) sockets: BTreeMap<ConnId, Socket>,
    blocks: Vec<Block>,
    next_block: u64,
    limits: Limits,
    /// Mail in order: whether it takes the ingest lane, where to, what.
    pub(crate) mail: VecDeque<(bool, CoreId, Weighed<M>)>,
    ingest_bytes: IngestBytes,
    /// Of all that was read of the peers and has reached them, and of the order of mail.
    pub(crate) trace: DefaultHasher,
    /// What the engine and the other cores let publishers bring; of room in lanes, at most.
    pub(crate) admits: Admits,
    pub(crate) ingest_room: Admits,
    /// Whom the protocol has asked about in this turn.
    asked: RefCell<BTreeSet<CoreId>>,
    /// This core has ended that lane.
    pub(crate) ended: [bool; 2],
}

impl<M> SimOutbox<M> {
    pub(crate) fn new(core: CoreId, limits: Limits, ingest_bytes: IngestBytes) -> Self {
        Self {
            core,
            cores: ingest_bytes.len(),
            now: Now(0),
            time_of_day: SystemTime::UNIX_EPOCH,
            sockets: BTreeMap::new(),
            blocks: (0..LANES).map(|_| Block::default()).collect(),
            next_block: 1,
            limits,
            mail: VecDeque::new(),
            ingest_bytes,
            trace: DefaultHasher::new(),
            admits: Admits::Everything,
            ingest_room: Admits::Everything,
            asked: RefCell::default(),
            ended: [false; 2],
        }
    }

    /// The turn is over: its runs are no more. A block either goes on in the next turn or is sealed.
    pub(crate) fn end_turn(&mut self, seal: bool) {
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
        self.sockets.get_mut(&conn).filter(|socket| !socket.is_closing() && socket.kind != Kind::Http)
    }

    /// The connection whose request is answered now, if it still waits for that.
    fn answered(&mut self, conn: ConnId) -> Option<&mut Socket> {
        let socket = self.sockets.get_mut(&conn).filter(|socket| !socket.is_closing())?;
        let owed = socket.kind == Kind::Http && matches!(socket.exchange, Exchange::Answer);
        assert!(owed, "a request is answered once");
        socket.exchange = Exchange::Idle;
        Some(socket)
    }

    fn admit(&mut self, conn: ConnId, bytes: usize, room: Option<Room>) -> Result<&mut Socket, Pushed> {
        let max = room.map_or(usize::MAX, |room| self.limits.queue_bytes_max(room));
        let is_request = self.sockets.get(&conn).is_some_and(|socket| socket.kind == Kind::Http);
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

impl<M> Outbox for SimOutbox<M> {
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
        (conn, response.status, &response.body).hash(&mut self.trace);
        if let Some(socket) = self.answered(conn) {
            if response.close {
                socket.end(Ending::Complete);
            }
            socket.answers.push_back(response);
        }
    }

    fn open_event_stream(&mut self, conn: ConnId, open: EventStreamOpen) {
        if let Some(socket) = self.answered(conn) {
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
            socket.end(Ending::Complete);
        }
    }

    fn close_websocket(&mut self, conn: ConnId, _close: WebSocketClose<'_>) {
        if let Some(socket) = self.open(conn) {
            socket.end(Ending::Service);
        }
    }

    fn cut(&mut self, conn: ConnId, last: &[u8], _close: WebSocketClose<'_>) {
        if let Some(socket) = self.open(conn) {
            socket.cut();
            if !last.is_empty() {
                socket.push_own(last, 0);
            }
            socket.end(Ending::SlowConsumer);
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
        socket.unsent().for_each(|(mark, bytes)| visit(Unsent { mark, bytes }));
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

    fn arm(&mut self, conn: ConnId, at: Deadline) {
        if let Some(socket) = self.sockets.get_mut(&conn).filter(|socket| !socket.is_closing()) {
            socket.alarm = Some(at);
        }
    }

    fn disarm(&mut self, conn: ConnId) {
        if let Some(socket) = self.sockets.get_mut(&conn) {
            socket.alarm = None;
        }
    }

    fn admitted(&mut self, _group: Group, _bytes: usize) {}

    fn admits(&self, _group: Group) -> Admits {
        self.admits
    }
}

impl<M: Mail> Post<M> for SimOutbox<M> {
    fn outbox(&mut self) -> &mut dyn Outbox {
        self
    }

    fn out(&self) -> &dyn Outbox {
        self
    }

    fn mail_ingest(&mut self, to: CoreId, mail: M) {
        assert!(self.asked.borrow().contains(&to), "mail that sockets cause asks for room first");
        assert!(!self.ended[INGEST], "a lane ends behind all mail that is no answer");
        self.mail_ingest_reserved(to, mail);
    }

    fn mail_fanout(&mut self, to: CoreId, mail: M) {
        assert!(!self.ended[FANOUT], "a lane ends behind all mail that is no answer");
        self.mail_fanout_reserved(to, mail);
    }

    fn mail_ingest_reserved(&mut self, to: CoreId, mail: M) {
        let mail = Weighed::new(mail);
        self.ingest_bytes[usize::from(to.0)].fetch_add(mail.weight, Ordering::Relaxed);
        self.mail.push_back((true, to, mail));
    }

    fn mail_fanout_reserved(&mut self, to: CoreId, mail: M) {
        self.mail.push_back((false, to, Weighed::new(mail)));
    }

    fn ingest_room(&self, to: CoreId, _group: Group) -> Admits {
        self.asked.borrow_mut().insert(to);
        let bytes = self.ingest_bytes[usize::from(to.0)].load(Ordering::Relaxed);
        self.ingest_room.min(Admits::of(bytes, self.limits.stage_bytes()))
    }
}
