//! What happens in a run: publishers, consumers, commands, cuts, all drawn from the seed.

mod consumers;
mod drain;
mod publishers;

use super::client::{Client, Sent, Start, Want};
use super::relays;
use crate::engine::service::Admits;
use crate::limits::Limits;
use crate::protocol::simulation::machine::{At, Machine};
use crate::protocol::simulation::random::Random;
use crate::relay::{Relay, Shared};

pub(super) const AGENTS: u64 = 3;

/// A session of the simulation: `s0`, `s1`, …, each published by one source, ascending.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) first_seq: u64,
    pub(super) next_seq: u64,
    /// A POST with its events is under way.
    busy: bool,
    /// The party that emits it; others are posted.
    pub(super) emitter: Option<usize>,
    events: Vec<usize>,
}

struct Post {
    at: At,
    events: Vec<usize>,
}

/// One run.
pub(super) struct World {
    pub(super) machine: Machine<Relay>,
    pub(super) random: Random,
    pub(super) step: usize,
    pub(super) sent: Vec<Sent>,
    pub(super) sessions: Vec<Session>,
    pub(super) clients: Vec<Client>,
    posts: Vec<Post>,
    /// Whether nothing is ever evicted in this run.
    pub(super) roomy: bool,
    /// Whether the byte budget evicts, too.
    pub(super) cramped: bool,
}

/// The client that is never slow and sees everything: its order is the order of arrival.
pub(super) const WITNESS: usize = 0;

impl World {
    pub(super) fn new(seed: u64, cores: usize) -> Self {
        let mut random = Random(seed);
        let roomy = random.chance(1, 2);
        let cramped = !roomy && random.chance(1, 3);
        let limits = Limits {
            write_queue_bytes_max: 700 + usize::try_from(random.below(6000)).unwrap(),
            buffer_events_max: if roomy { 10_000 } else { 2 + random.index(30) },
            sessions_max: if roomy { 100 } else { 2 + random.index(8) },
            from_positions_max: 100,
            replay_bytes_max: if cramped { (12 + random.index(40)) << 10 } else { 1 << 30 },
            ..Limits::default()
        };
        Self::with(random, cores, limits, roomy, cramped)
    }

    /// Nothing but the session cap evicts.
    pub(super) fn capped(seed: u64, cores: usize, sessions_max: usize) -> Self {
        let limits = Limits { sessions_max, ..Limits::default() };
        Self::with(Random(seed), cores, limits, false, false)
    }

    /// The byte budget holds a few sessions only: nearly every event waits for an eviction, often on another core.
    pub(super) fn crowded(seed: u64, cores: usize) -> Self {
        let limits = Limits { replay_bytes_max: 12 << 10, ..Limits::default() };
        Self::with(Random(seed), cores, limits, false, true)
    }

    fn with(mut random: Random, cores: usize, limits: Limits, roomy: bool, cramped: bool) -> Self {
        let machine = relays(cores, &limits, &mut random);
        let sessions = (0..10).map(|index| {
            let first_seq = if index % 2 == 0 { 1 } else { 11 };
            Session { first_seq, next_seq: first_seq, busy: false, emitter: None, events: Vec::new() }
        });
        let sessions = sessions.collect();
        let mut world = Self {
            machine,
            random,
            step: 0,
            sent: Vec::new(),
            sessions,
            clients: Vec::new(),
            posts: Vec::new(),
            roomy,
            cramped,
        };
        let witness = world.open_stream(0, Want::Everything, Start::Now, true);
        assert_eq!(witness, WITNESS);
        world.machine.socket(world.clients[WITNESS].at).unwrap().unbounded = true;
        world.rest();
        world
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.machine.cores[0].protocol.shared
    }

    // ── steps ──

    pub(super) fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step += 1;
            match self.random.below(40) {
                0..=4 => self.post(),
                5..=9 => self.emit(),
                10 => self.connect_stream(),
                11 => self.connect_party(),
                12..=14 => self.subscribe(),
                15 => self.unsubscribe(),
                16 => self.cut(),
                17 | 18 => self.resume(),
                19 => self.command(),
                20..=22 => self.move_window(),
                23 => self.roster(),
                24 => self.overflow(),
                _ => {
                    let core = self.random.index(self.machine.cores.len());
                    let (admits, room) = (self.admits(), self.admits());
                    let out = &mut self.machine.cores[core].out;
                    (out.admits, out.ingest_room) = (admits, room);
                    self.machine.turn(core, &mut self.random);
                    self.machine.check_invariants();
                }
            }
            self.hear();
        }
    }

    /// What publishers may bring: mostly everything.
    fn admits(&mut self) -> Admits {
        match self.random.below(10) {
            0 => Admits::Nothing,
            1 => Admits::Little,
            _ => Admits::Everything,
        }
    }

    /// Lets everything come to its end.
    pub(super) fn rest(&mut self) {
        for _ in 0..4 {
            self.machine.rest(&mut self.random);
            self.hear();
        }
    }

    /// Takes in what has reached the clients, and parts from connections that are over.
    fn hear(&mut self) {
        for client in self.clients.iter_mut().filter(|client| client.alive) {
            let Some(socket) = self.machine.socket(client.at) else { continue };
            let bytes = std::mem::take(&mut socket.received);
            let over = socket.is_closing() && socket.queued == 0;
            client.hear(&bytes, self.step, &self.sent);
            if over {
                part(client, &mut self.machine, &mut self.sent);
            }
        }
        self.hear_answers();
    }

    /// Takes in the answers to POSTs.
    fn hear_answers(&mut self) {
        let step = self.step;
        let (machine, sent, sessions) = (&mut self.machine, &mut self.sent, &mut self.sessions);
        self.posts.retain(|post| {
            let Some(response) = machine.socket(post.at).and_then(|socket| socket.answers.pop_front()) else {
                return true;
            };
            assert_eq!(response.status, 202, "{response:?}");
            let accepted = format!("{{\"accepted\":{}}}", post.events.len());
            assert_eq!(response.body.as_ref(), accepted.as_bytes());
            for event in &post.events {
                sent[*event].accepted.get_or_insert(step);
                if let Some(session) = sent[*event].session {
                    sessions[session].busy = false;
                }
            }
            machine.disconnect(post.at);
            false
        });
    }
}

/// Parts from a connection: what the relay has not read of it was never published.
fn part(client: &mut Client, machine: &mut Machine<Relay>, sent: &mut [Sent]) {
    client.alive = false;
    forget_unread(client, machine, sent);
    let _unseen = machine.disconnect(client.at);
}

/// The relay reads nothing more of a connection: what waits there was never published.
fn forget_unread(client: &Client, machine: &mut Machine<Relay>, sent: &mut [Sent]) {
    let Some(socket) = machine.socket(client.at) else { return };
    let unread: Vec<Vec<u8>> = socket.inbox.drain(..).collect();
    for text in unread {
        let text = String::from_utf8(text).unwrap();
        if let Some(event) = sent.iter_mut().find(|event| event.raw == text) {
            event.sends -= 1;
            event.resent = true;
        }
    }
}
