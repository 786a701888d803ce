//! The machine that protocols run on: cores, FIFO lanes between them delivered in random interleavings, turns.
//!
//! A turn has the order of `engine/core/`: alarms, input, ends, mail, [`Protocol::on_turn`], the flush and what comes
//! behind it. Cores turn when the world says so, each with a clock of its own that only goes forward.

pub(crate) mod drain;
mod input;
mod mail;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicUsize;

use super::outbox::{IngestBytes, SimOutbox, Weighed};
use super::random::Random;
use super::socket::{Exchange, Socket};
use crate::base::time::Now;
use crate::engine::service::{Admits, ConnId, CoreId, Ending, Work};
use crate::limits::Limits;
use crate::protocol::Protocol;
use crate::protocol::simulation::machine::drain::Stage;
use crate::protocol::simulation::socket::Ask;

/// A connection of the machine: its core, and its name there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) core: usize,
    pub(crate) conn: ConnId,
}

/// What comes out of a lane.
#[derive(Debug)]
pub(in crate::protocol::simulation) enum Letter<M> {
    Mail(Weighed<M>),
    /// That core has ended this lane.
    End,
}

pub(crate) struct Core<P: Protocol> {
    pub(crate) protocol: P,
    pub(crate) out: SimOutbox<P::Mail>,
    /// Mail that waits here, by lane and sender; the last of these is no core.
    pub(in crate::protocol::simulation) lanes: [Vec<VecDeque<Letter<P::Mail>>>; 2],
    /// Ends that have come out of each lane.
    pub(in crate::protocol::simulation) ends: [usize; 2],
    pub(in crate::protocol::simulation) stage: Stage,
    free: Vec<u32>,
    generations: Vec<u32>,
    pub(crate) work: Work,
}

impl<P: Protocol> Core<P> {
    /// How far the present request of a connection that is open has come.
    pub(in crate::protocol::simulation) fn exchange_of(&mut self, conn: ConnId) -> &mut Exchange {
        &mut self.out.sockets.get_mut(&conn).expect("it is open").exchange
    }

    /// Whether it would sleep: nothing is left to do but what peers do not take, or what is due later.
    fn is_idle(&self) -> bool {
        let draining = self.is_draining();
        self.work == Work::Idle
            && !self.protocol.next_deadline().is_some_and(|deadline| deadline.is_due(self.out.now))
            && self.lanes.iter().flatten().all(VecDeque::is_empty)
            && !self.out.sockets.values().any(|socket| socket.has_input(draining))
    }

    /// Whether nothing is left to do at this time, whatever peers take.
    fn is_at_rest(&self) -> bool {
        let draining = self.is_draining();
        let is_unread = |socket: &Socket| socket.has_unread(draining) && !socket.is_closing();
        let mut sockets = self.out.sockets.values();
        self.is_idle() && sockets.all(|socket| socket.queued == 0 && !socket.tell_drained && !is_unread(socket))
    }
}

pub(crate) struct Machine<P: Protocol> {
    pub(crate) cores: Vec<Core<P>>,
    pub(in crate::protocol::simulation) ingest_bytes: IngestBytes,
    pub(in crate::protocol::simulation) ingest_bytes_max: usize,
    /// What holds of a protocol between two calls.
    invariants: fn(&P),
}

impl<P: Protocol> Machine<P> {
    pub(crate) fn new(cores: usize, limits: &Limits, invariants: fn(&P), protocol: impl Fn(CoreId) -> P) -> Self {
        let ingest_bytes: IngestBytes = (0..cores).map(|_| AtomicUsize::new(0)).collect();
        let core = |index: usize| {
            let id = CoreId(u16::try_from(index).unwrap());
            let lane = || (0..=cores).map(|_| VecDeque::new()).collect::<Vec<_>>();
            Core {
                protocol: protocol(id),
                out: SimOutbox::new(id, limits.clone(), IngestBytes::clone(&ingest_bytes)),
                lanes: [lane(), lane()],
                ends: [0, 0],
                stage: Stage::Serve,
                free: Vec::new(),
                generations: Vec::new(),
                work: Work::Idle,
            }
        };
        let cores = (0..cores).map(core).collect();
        Self { cores, ingest_bytes, ingest_bytes_max: limits.stage_bytes(), invariants }
    }

    /// A new connection on that core, whose first request is read at once.
    pub(crate) fn connect(&mut self, core: usize, ask: Ask) -> At {
        let node = &mut self.cores[core];
        let slot = node.free.pop().unwrap_or_else(|| {
            node.generations.push(0);
            u32::try_from(node.generations.len() - 1).unwrap()
        });
        let conn = ConnId { slot, generation: node.generations[slot as usize] };
        let mut socket = Socket::new();
        socket.requests.push_back(ask);
        node.out.sockets.insert(conn, socket);
        node.work = Work::Left;
        let at = At { core, conn };
        self.take_input(at);
        at
    }

    pub(crate) fn socket(&mut self, at: At) -> Option<&mut Socket> {
        self.cores[at.core].out.sockets.get_mut(&at.conn)
    }

    /// The connection is over; of its peer's making, if it was not ending. Answers what had reached the peer.
    pub(crate) fn disconnect(&mut self, at: At) -> Vec<u8> {
        let node = &mut self.cores[at.core];
        let Some(socket) = node.out.sockets.get_mut(&at.conn) else { return Vec::new() };
        socket.end(Ending::Peer);
        self.tell_endings(at.core);
        let node = &mut self.cores[at.core];
        let Some(socket) = node.out.sockets.remove(&at.conn) else { return Vec::new() };
        node.protocol.on_gone(&mut node.out, at.conn, socket.ending.unwrap_or(Ending::Peer));
        node.generations[at.conn.slot as usize] += 1;
        node.free.push(at.conn.slot);
        node.work = Work::Left;
        self.dispatch(at.core);
        socket.received
    }

    /// The peer sends nothing more.
    pub(crate) fn hang_up(&mut self, at: At) {
        if let Some(socket) = self.socket(at) {
            socket.end(Ending::Peer);
            self.cores[at.core].work = Work::Left;
        }
    }

    /// All backlogs together are over their bound, and that connection's is the largest.
    pub(crate) fn overflow(&mut self, at: At) {
        let node = &mut self.cores[at.core];
        node.protocol.on_overflow(&mut node.out, at.conn);
        node.work = Work::Left;
        if let Some(socket) = node.out.sockets.get_mut(&at.conn).filter(|socket| !socket.is_closing()) {
            socket.cut();
            socket.end(Ending::SlowConsumer);
        }
    }

    /// One turn of a core, of which the random source decides how much mail and input it meets.
    pub(crate) fn turn(&mut self, core: usize, random: &mut Random) {
        let admits = self.cores.iter().map(|core| core.protocol.admits()).min();
        let node = &mut self.cores[core];
        node.out.admits = node.out.admits.min(admits.unwrap_or(Admits::Everything));
        node.out.now = Now(node.out.now.0 + random.below(20));
        self.ring_alarms(core, random);
        for conn in self.conns(core) {
            for _ in 0..random.below(6) {
                if !self.take_input(At { core, conn }) {
                    break;
                }
            }
        }
        self.tell_endings(core);
        self.dispatch(core);
        self.take_mail(core, random);
        for _ in 0..=random.below(2) {
            let node = &mut self.cores[core];
            node.work = node.protocol.on_turn(&mut node.out);
            self.dispatch(core);
        }
        self.flush(core, random);
        self.tell_endings(core);
        self.dispatch(core);
        self.cores[core].out.end_turn(random.chance(1, 3));
    }

    /// A core that has nothing to do sleeps until something is due, if anything will be. A turn follows, as behind
    /// every poll.
    pub(crate) fn sleep(&mut self, core: usize, random: &mut Random) {
        let node = &mut self.cores[core];
        let alarms = node.out.sockets.values().filter_map(|socket| socket.alarm);
        let due = alarms.chain(node.protocol.next_deadline()).min();
        if let (Some(due), true) = (due, node.is_idle()) {
            node.out.now = node.out.now.max(Now(due.0));
        }
        self.turn(core, random);
    }

    fn conns(&self, core: usize) -> Vec<ConnId> {
        self.cores[core].out.sockets.keys().copied().collect()
    }

    /// Alarms that are due go off now or later, never before.
    fn ring_alarms(&mut self, core: usize, random: &mut Random) {
        let node = &mut self.cores[core];
        let now = node.out.now;
        let due = |socket: &Socket| socket.alarm.is_some_and(|alarm| alarm.is_due(now));
        let sockets = node.out.sockets.iter();
        let due: Vec<ConnId> = sockets.filter(|(_, socket)| due(socket)).map(|(conn, _)| *conn).collect();
        for conn in due {
            // What another has done in its call may have moved this one.
            let socket = node.out.sockets.get_mut(&conn);
            let Some(socket) = socket.filter(|socket| socket.alarm.is_some_and(|alarm| alarm.is_due(now))) else {
                continue;
            };
            if random.chance(3, 4) {
                socket.alarm = None;
                node.protocol.on_alarm(&mut node.out, conn);
            }
        }
    }

    /// Ends that have been decided are told, each once.
    fn tell_endings(&mut self, core: usize) {
        let node = &mut self.cores[core];
        let sockets = node.out.sockets.iter_mut();
        let mut told = Vec::new();
        for (conn, socket) in sockets.filter(|(_, socket)| socket.is_closing()) {
            if !std::mem::replace(&mut socket.told_closing, true) {
                told.push(*conn);
            }
        }
        for conn in told {
            node.protocol.on_closing(&mut node.out, conn);
            node.work = Work::Left;
        }
    }

    fn flush(&mut self, core: usize, random: &mut Random) {
        let conns = self.conns(core);
        let node = &mut self.cores[core];
        let mut drained = Vec::new();
        for conn in conns {
            let Some(socket) = node.out.sockets.get_mut(&conn) else { continue };
            let unseen = socket.received.len();
            if socket.flush() && std::mem::take(&mut socket.tell_drained) {
                drained.push(conn);
            }
            if socket.received.len() > unseen {
                (conn, &socket.received[unseen..]).hash(&mut node.out.trace);
            }
        }
        for conn in drained {
            node.protocol.on_drained(&mut node.out, conn);
            node.work = Work::Left;
            // The engine tells of it behind the flush, and the service's turn follows at once or later.
            if random.chance(1, 2) {
                node.work = node.protocol.on_turn(&mut node.out);
            }
        }
    }

    /// Opens every window and turns until nothing is left to do.
    pub(crate) fn rest(&mut self, random: &mut Random) {
        for _ in 0..5_000 {
            for core in 0..self.cores.len() {
                let out = &mut self.cores[core].out;
                (out.admits, out.ingest_room) = (Admits::Everything, Admits::Everything);
                out.sockets.values_mut().for_each(|socket| socket.window = usize::MAX);
                self.turn(core, random);
            }
            self.check_invariants();
            if self.cores.iter().all(Core::is_at_rest) {
                return;
            }
        }
        let stuck: Vec<_> = self.cores.iter().map(|core| (core.work, core.protocol.is_quiescent())).collect();
        panic!("the machine does not come to rest: {stuck:?}");
    }

    /// What the peers of all cores said and were told up to now, and in which order mail came, in a number.
    pub(crate) fn trace(&self) -> u64 {
        let mut trace = DefaultHasher::new();
        self.cores.iter().for_each(|core| core.out.trace.finish().hash(&mut trace));
        trace.finish()
    }

    pub(crate) fn check_invariants(&self) {
        self.cores.iter().for_each(|core| (self.invariants)(&core.protocol));
    }
}
