//! The machine that the relays run on: cores, FIFO lanes between them delivered in random interleavings, turns.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash};
use std::sync::Arc;

use super::outbox::{Kind, SimOutbox, Socket};
use super::random::Random;
use crate::base::time::Now;
use crate::engine::service::{Admits, ConnId, CoreId, Ending, Flow, Message, Work};
use crate::limits::Limits;
use crate::ops::metrics::{CoreMetrics, Metrics};
use crate::protocol::owners::Owners;
use crate::relay::{Relay, RelayMail, Shared};

/// A connection of the machine: its core, and its name there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) core: usize,
    pub(super) conn: ConnId,
}

/// What comes out of a lane.
#[derive(Debug)]
pub(super) enum Letter {
    Mail(RelayMail),
    /// That core has ended this lane.
    End,
}

/// Mail that waits at one core, by lane and sender.
type Lanes = [Vec<VecDeque<Letter>>; 2];

pub(super) const INGEST: usize = 0;
pub(super) const FANOUT: usize = 1;

pub(super) struct Core {
    pub(super) relay: Relay,
    pub(super) metrics: Arc<CoreMetrics>,
    pub(super) out: SimOutbox,
    pub(super) lanes: Lanes,
    /// Ends that have come out of each lane.
    pub(super) ends: [usize; 2],
    free: Vec<u32>,
    generations: Vec<u32>,
    pub(super) work: Work,
}

pub(super) struct Machine {
    pub(super) cores: Vec<Core>,
    pub(super) shared: Arc<Shared>,
    /// Of all that was read of the peers, that has reached them, and of the mail's order.
    pub(super) trace: DefaultHasher,
}

impl Machine {
    pub(super) fn new(cores: usize, limits: Limits, random: &mut Random) -> Self {
        let queues = limits.clone();
        let mut shared = Shared::new(limits, cores, true);
        shared.owners = Owners::with_keys(cores, (random.next(), random.next()));
        shared.instance = "5eed".to_owned();
        let shared = Arc::new(shared);
        let metrics = Metrics::new(cores);
        let core = |index: usize| {
            let id = CoreId(u16::try_from(index).unwrap());
            let lane = || (0..cores).map(|_| VecDeque::new()).collect::<Vec<_>>();
            Core {
                relay: Relay::new(id, Arc::clone(&shared), metrics.core(index)),
                metrics: metrics.core(index),
                out: SimOutbox::new(id, cores, queues.clone()),
                lanes: [lane(), lane()],
                ends: [0, 0],
                free: Vec::new(),
                generations: Vec::new(),
                work: Work::Idle,
            }
        };
        Self { cores: (0..cores).map(core).collect(), shared, trace: DefaultHasher::new() }
    }

    /// A new connection on that core.
    pub(super) fn connect(&mut self, core: usize, kind: Kind) -> At {
        let node = &mut self.cores[core];
        let slot = node.free.pop().unwrap_or_else(|| {
            node.generations.push(0);
            u32::try_from(node.generations.len() - 1).unwrap()
        });
        let conn = ConnId { slot, generation: node.generations[slot as usize] };
        node.out.sockets.insert(conn, Socket::new(kind));
        if kind == Kind::WebSocket {
            node.relay.on_socket(&mut node.out, conn);
        }
        At { core, conn }
    }

    pub(super) fn socket(&mut self, at: At) -> Option<&mut Socket> {
        self.cores[at.core].out.sockets.get_mut(&at.conn)
    }

    /// The connection is over. Answers what had reached the peer.
    pub(super) fn disconnect(&mut self, at: At) -> Vec<u8> {
        let node = &mut self.cores[at.core];
        let Some(socket) = node.out.sockets.remove(&at.conn) else { return Vec::new() };
        node.relay.on_gone(&mut node.out, at.conn, Ending::Peer);
        node.generations[at.conn.slot as usize] += 1;
        node.free.push(at.conn.slot);
        node.work = Work::Left;
        self.dispatch(at.core);
        socket.received
    }

    /// Moves what a core has sent into the lanes.
    fn dispatch(&mut self, from: usize) {
        while let Some((ingest, to, mail)) = self.cores[from].out.mail.pop_front() {
            let lane = if ingest { INGEST } else { FANOUT };
            self.cores[usize::from(to.0)].lanes[lane][from].push_back(Letter::Mail(mail));
        }
    }

    /// One turn of a core, of which the random source decides how much mail and input it meets.
    pub(super) fn turn(&mut self, core: usize, random: &mut Random) {
        let admits = self.cores.iter().map(|core| core.relay.admits()).min();
        let node = &mut self.cores[core];
        node.out.admits = node.out.admits.min(admits.unwrap_or(Admits::Everything));
        node.out.now = Now(node.out.now.0 + random.below(20));
        // Input of parties that are read.
        let conns: Vec<ConnId> = node.out.sockets.keys().copied().collect();
        for conn in conns {
            for _ in 0..random.below(6) {
                let Some(socket) = node.out.sockets.get_mut(&conn).filter(|socket| !socket.parked && !socket.closing)
                else {
                    break;
                };
                let Some(mut text) = socket.inbox.pop_front() else { break };
                (At { core, conn }, &text).hash(&mut self.trace);
                // A resume in the same call cancels the park.
                socket.parked = true;
                let flow = node.relay.on_message(&mut node.out, conn, Message::Text(&mut text));
                if let (Flow::Continue, Some(socket)) = (flow, node.out.sockets.get_mut(&conn)) {
                    socket.parked = false;
                }
            }
        }
        self.dispatch(core);
        self.take_mail(core, random);
        for _ in 0..=random.below(2) {
            let node = &mut self.cores[core];
            node.work = node.relay.on_turn(&mut node.out);
            self.dispatch(core);
        }
        self.flush(core, random);
        let node = &mut self.cores[core];
        node.out.end_turn(random.chance(1, 3));
    }

    fn take_mail(&mut self, core: usize, random: &mut Random) {
        let all = random.chance(1, 2);
        loop {
            let node = &mut self.cores[core];
            let waiting: Vec<(usize, usize)> = (0..2)
                .flat_map(|lane| (0..node.lanes[lane].len()).map(move |from| (lane, from)))
                .filter(|(lane, from)| !node.lanes[*lane][*from].is_empty())
                .collect();
            if waiting.is_empty() || (!all && random.chance(1, 8)) {
                return;
            }
            let (lane, from) = waiting[random.index(waiting.len())];
            (core, lane, from).hash(&mut self.trace);
            match node.lanes[lane][from].pop_front() {
                Some(Letter::Mail(mail)) => {
                    node.relay.on_mail(&mut node.out, CoreId(u16::try_from(from).unwrap()), mail);
                }
                Some(Letter::End) => node.ends[lane] += 1,
                None => return,
            }
            self.dispatch(core);
        }
    }

    fn flush(&mut self, core: usize, random: &mut Random) {
        let node = &mut self.cores[core];
        let conns: Vec<ConnId> = node.out.sockets.keys().copied().collect();
        let mut drained = Vec::new();
        for conn in conns {
            let Some(socket) = node.out.sockets.get_mut(&conn) else { continue };
            let unseen = socket.received.len();
            if socket.flush() && std::mem::take(&mut socket.tell_drained) {
                drained.push(conn);
            }
            if socket.received.len() > unseen {
                (At { core, conn }, &socket.received[unseen..]).hash(&mut self.trace);
            }
        }
        for conn in drained {
            node.relay.on_drained(&mut node.out, conn);
            node.work = Work::Left;
            // The engine tells of it behind the flush, and the service's turn follows at once or later.
            if random.chance(1, 2) {
                node.work = node.relay.on_turn(&mut node.out);
            }
        }
        self.dispatch(core);
    }

    /// Whether nothing would happen any more, were every core to turn.
    fn is_at_rest(&self) -> bool {
        self.cores.iter().all(|core| {
            core.work == Work::Idle
                && core.lanes.iter().flatten().all(VecDeque::is_empty)
                && core.out.sockets.values().all(|socket| {
                    socket.queued == 0 && !socket.tell_drained && (socket.closing || socket.inbox.is_empty())
                })
        })
    }

    /// Opens every window and turns until nothing is left to do.
    pub(super) fn rest(&mut self, random: &mut Random) {
        for _ in 0..5_000 {
            for core in 0..self.cores.len() {
                let out = &mut self.cores[core].out;
                (out.admits, out.ingest_room) = (Admits::Everything, Admits::Everything);
                out.sockets.values_mut().for_each(|socket| socket.window = usize::MAX);
                self.turn(core, random);
            }
            self.check_invariants();
            if self.is_at_rest() {
                return;
            }
        }
        let stuck: Vec<_> = self.cores.iter().map(|core| (core.work, core.relay.is_quiescent())).collect();
        panic!("the machine does not come to rest: {stuck:?}");
    }

    pub(super) fn check_invariants(&self) {
        for core in &self.cores {
            core.relay.check_invariants();
        }
    }
}
