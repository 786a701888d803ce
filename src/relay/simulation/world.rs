//! What happens in a run: publishers, consumers, commands, cuts, all drawn from the seed.

use std::collections::HashSet;

use super::client::{Client, Item, Sent, Start, Sub, Want};
use super::machine::{At, Machine};
use super::outbox::Kind;
use super::random::Random;
use crate::limits::Limits;
use crate::relay::event::{Capture, Position};
use crate::relay::filter::Filter;
use crate::relay::ingest::BodyKind;
use crate::relay::pages::Asked;
use crate::relay::reader::Wanted;
use crate::relay::subscription::From;
use crate::wire::http1::chunk::StreamFraming;

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
    pub(super) machine: Machine,
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

    fn with(mut random: Random, cores: usize, limits: Limits, roomy: bool, cramped: bool) -> Self {
        let machine = Machine::new(cores, limits, &mut random);
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
                    let (congested, room) = (self.random.chance(1, 10), !self.random.chance(1, 10));
                    let out = &mut self.machine.cores[core].out;
                    (out.congested, out.ingest_room) = (congested, room);
                    self.machine.turn(core, &mut self.random);
                    self.machine.check_invariants();
                }
            }
            self.hear();
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
            let over = socket.closing && socket.queued == 0;
            client.hear(&bytes, self.step, &self.sent);
            if over {
                part(client, &mut self.machine, &mut self.sent);
            }
        }
        let step = self.step;
        let (machine, sent, sessions) = (&mut self.machine, &mut self.sent, &mut self.sessions);
        self.posts.retain(|post| {
            let Some(response) = machine.socket(post.at).and_then(|socket| socket.response.take()) else { return true };
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

    // ── publishing ──

    fn compose(&mut self, session: Option<usize>, kind: &'static str, seq: bool) -> usize {
        let event = self.sent.len();
        let agent = self.random.below(AGENTS);
        let severity = self.random.pick(&["debug", "info", "info", "notice", "error"]);
        let pad = "x".repeat(self.random.index(200));
        let mut raw = format!(
            r#"{{"aep":"0.1","id":"e{event}","type":"{kind}","time":"2026-01-01T00:00:00Z","source":"sim","agent":"a{agent}","severity":"{severity}","data":{{"p":"{pad}"}}"#
        );
        let mut position = None;
        if let Some(session) = session {
            raw.push_str(&format!(r#","session":"s{session}""#));
            let of = &mut self.sessions[session];
            if seq {
                raw.push_str(&format!(r#","seq":{}"#, of.next_seq));
                position = Some(of.next_seq);
                of.next_seq += 1;
            }
            of.events.push(event);
        }
        raw.push('}');
        let droppable = matches!(severity, "debug" | "info");
        let command = kind.starts_with("control.");
        self.sent.push(Sent {
            raw,
            kind,
            agent,
            session,
            seq: position,
            droppable,
            command,
            sends: 0,
            step: self.step,
            accepted: None,
            resent: false,
        });
        event
    }

    /// A new event of a session, or one that was sent before.
    fn next_event(&mut self, session: usize, again: bool) -> usize {
        let events = &self.sessions[session].events;
        if again && !events.is_empty() && self.random.chance(1, 8) {
            let event = events[self.random.index(events.len())];
            if !self.sent[event].command {
                self.sent[event].resent = true;
                return event;
            }
        }
        match self.random.below(8) {
            0 => self.compose(Some(session), "attention.routed", false),
            1 | 2 => self.compose(Some(session), "tool.call", true),
            3 if !again => self.compose(Some(session), "session.ended", true),
            _ => self.compose(Some(session), "progress.step", true),
        }
    }

    fn post(&mut self) {
        let free: Vec<usize> = (0..self.sessions.len())
            .filter(|session| !self.sessions[*session].busy && self.sessions[*session].emitter.is_none())
            .collect();
        let mut events = Vec::new();
        for _ in 0..=self.random.index(20) {
            let event = if free.is_empty() || self.random.chance(1, 10) {
                self.compose(None, "agent.online", false)
            } else {
                let session = self.random.pick(&free);
                self.next_event(session, true)
            };
            self.sent[event].sends += 1;
            events.push(event);
        }
        self.post_events(events);
    }

    /// One POST with one event.
    pub(super) fn post_one(&mut self, session: usize) {
        let event = self.compose(Some(session), "progress.step", true);
        self.sent[event].sends += 1;
        self.post_events(vec![event]);
    }

    fn post_events(&mut self, events: Vec<usize>) {
        let mut body = Vec::new();
        for event in &events {
            body.extend_from_slice(self.sent[*event].raw.as_bytes());
            body.push(b'\n');
            if let Some(session) = self.sent[*event].session {
                self.sessions[session].busy = true;
            }
        }
        let core = self.random.index(self.machine.cores.len());
        let at = self.machine.connect(core, Kind::Request);
        let node = &mut self.machine.cores[core];
        node.relay.on_events(&mut node.out, at.conn, BodyKind::Lines, body, Vec::new());
        self.posts.push(Post { at, events });
    }

    fn parties(&self) -> Vec<usize> {
        (0..self.clients.len()).filter(|index| self.clients[*index].alive && self.clients[*index].socket).collect()
    }

    fn send(&mut self, party: usize, text: &str) {
        let at = self.clients[party].at;
        if let Some(socket) = self.machine.socket(at).filter(|socket| !socket.closing) {
            socket.inbox.push_back(text.as_bytes().to_vec());
        }
    }

    fn is_open(&mut self, party: usize) -> bool {
        let at = self.clients[party].at;
        self.machine.socket(at).is_some_and(|socket| !socket.closing)
    }

    /// A party publishes events of a session of its own.
    fn emit(&mut self) {
        let parties = self.parties();
        if parties.is_empty() {
            return;
        }
        let party = self.random.pick(&parties);
        if !self.is_open(party) {
            return;
        }
        let owned = self.sessions.iter().position(|session| session.emitter == Some(party));
        // A session that has not been published yet, so that nobody else is on its way with it.
        let fresh = self.sessions.iter().rposition(|session| session.emitter.is_none() && session.events.is_empty());
        let Some(session) = owned.or(fresh) else { return };
        self.sessions[session].emitter = Some(party);
        for _ in 0..=self.random.index(4) {
            let event = self.next_event(session, self.random_bool());
            self.sent[event].sends += 1;
            let raw = self.sent[event].raw.clone();
            self.send(party, &raw);
        }
    }

    fn random_bool(&self) -> bool {
        self.step.is_multiple_of(2)
    }

    /// A command for a session, from any party.
    fn command(&mut self) {
        let parties = self.parties();
        if parties.is_empty() {
            return;
        }
        let party = self.random.pick(&parties);
        if !self.is_open(party) {
            return;
        }
        let session = self.random.index(self.sessions.len());
        let kind = self.random.pick(&["control.cancel", "control.cancel", "control.pause"]);
        let event = self.compose(Some(session), kind, false);
        let copies = if self.random.chance(1, 4) { 2 } else { 1 };
        self.sent[event].resent = copies > 1;
        for _ in 0..copies {
            self.sent[event].sends += 1;
            let raw = self.sent[event].raw.clone();
            self.send(party, &raw);
        }
    }

    // ── consuming ──

    fn want(&mut self) -> Want {
        match self.random.below(8) {
            0..=2 => Want::Everything,
            3 => Want::Agent(self.random.below(AGENTS)),
            4 | 5 => Want::Session(self.random.index(self.sessions.len())),
            6 => Want::Notices,
            _ => Want::Progress,
        }
    }

    fn start(&mut self) -> Start {
        match self.random.below(4) {
            0 | 1 => Start::Now,
            2 => Start::All,
            _ => {
                let mut asked = Vec::new();
                for session in 0..self.sessions.len() {
                    if self.random.chance(1, 3) {
                        let of = &self.sessions[session];
                        let (first, next) = (of.first_seq, of.next_seq);
                        // Far below all, right below all, or something that was sent.
                        asked.push((session, self.random.pick(&[0, 3, first - 1, first, (first + next) / 2])));
                    }
                }
                Start::Positions(asked)
            }
        }
    }

    fn core(&mut self) -> usize {
        self.random.index(self.machine.cores.len())
    }

    fn connect_stream(&mut self) {
        if self.clients.iter().filter(|client| client.alive).count() > 12 {
            return;
        }
        let (core, want, start) = (self.core(), self.want(), self.start());
        let live = !self.random.chance(1, 4);
        self.open_stream(core, want, start, live);
    }

    pub(super) fn open_stream(&mut self, core: usize, want: Want, start: Start, live: bool) -> usize {
        let at = self.machine.connect(core, Kind::Request);
        let from = match &start {
            Start::Now => From::Now,
            Start::All => From::All,
            Start::Positions(asked) => From::Positions(
                asked
                    .iter()
                    .map(|(session, seq)| Asked {
                        session: format!("s{session}").into(),
                        position: Position { epoch: 0, seq: *seq },
                    })
                    .collect(),
            ),
        };
        let filter = Filter::parse(want.json().as_bytes(), 100).unwrap();
        let wanted = Wanted { filter, ceiling: Capture::Full, from, live, id: None, weight: 0 };
        let mut client = Client::new(at, false);
        client.subs.push(Sub { id: String::new(), want, start, live, asked: self.step, answered: None, ended: false });
        let node = &mut self.machine.cores[core];
        node.relay.on_stream(&mut node.out, at.conn, StreamFraming::Chunked, wanted, Vec::new());
        self.clients.push(client);
        self.clients.len() - 1
    }

    fn connect_party(&mut self) {
        if self.clients.iter().filter(|client| client.alive).count() > 12 {
            return;
        }
        let core = self.core();
        let at = self.machine.connect(core, Kind::WebSocket);
        self.clients.push(Client::new(at, true));
        let hello = r#"{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":"a"},"capabilities":{"control":{"accepts":["control.cancel"]}}}"#;
        self.send(self.clients.len() - 1, hello);
    }

    fn subscribe(&mut self) {
        let parties = self.parties();
        if parties.is_empty() {
            return;
        }
        let (party, want, start) = (self.random.pick(&parties), self.want(), self.start());
        self.ask(party, want, start);
    }

    fn ask(&mut self, party: usize, want: Want, start: Start) {
        if !self.is_open(party) || self.clients[party].subs.len() > 4 {
            return;
        }
        let step = self.step;
        let client = &mut self.clients[party];
        let id = format!("sub{}", client.next_sub);
        client.next_sub += 1;
        let from = match &start {
            Start::Now => String::new(),
            Start::All => r#","from":"all""#.into(),
            Start::Positions(asked) => {
                let positions: Vec<String> =
                    asked.iter().map(|(session, seq)| format!(r#"{{"session":"s{session}","seq":{seq}}}"#)).collect();
                format!(r#","from":[{}]"#, positions.join(","))
            }
        };
        let text = format!(r#"{{"type":"subscribe","id":"{id}","filter":{}{from}}}"#, want.json());
        client.subs.push(Sub { id, want, start, live: true, asked: step, answered: None, ended: false });
        self.send(party, &text);
    }

    fn unsubscribe(&mut self) {
        let parties = self.parties();
        if parties.is_empty() {
            return;
        }
        let party = self.random.pick(&parties);
        let open = self.is_open(party);
        let client = &mut self.clients[party];
        let Some(sub) = client.subs.iter_mut().find(|sub| !sub.ended && sub.answered.is_some()).filter(|_| open) else {
            return;
        };
        sub.ended = true;
        let text = format!(r#"{{"type":"unsubscribe","id":"{}"}}"#, sub.id);
        self.send(party, &text);
    }

    fn roster(&mut self) {
        let parties = self.parties();
        if !parties.is_empty() {
            let party = self.random.pick(&parties);
            let text = self.random.pick(&[r#"{"type":"roster","id":"r"}"#, r#"{"type":"ping","t":1}"#]);
            self.send(party, text);
        }
    }

    /// A client goes away.
    fn cut(&mut self) {
        let alive: Vec<usize> = (1..self.clients.len()).filter(|index| self.clients[*index].alive).collect();
        if !alive.is_empty() {
            let index = self.random.pick(&alive);
            part(&mut self.clients[index], &mut self.machine, &mut self.sent);
        }
    }

    /// A client that has gone comes back with the positions it was told, or has seen.
    fn resume(&mut self) {
        let gone: Vec<usize> = (1..self.clients.len())
            .filter(|index| {
                let client = &self.clients[*index];
                !client.alive && client.subs.len() == 1 && client.subs[0].live
            })
            .collect();
        if gone.is_empty() || self.clients.iter().filter(|client| client.alive).count() > 12 {
            return;
        }
        let index = self.random.pick(&gone);
        let mut seen: Vec<(usize, u64)> = Vec::new();
        let closing = self.clients[index].log.iter().find_map(|item| match item {
            Item::Closing(delivered) => Some(delivered.iter().map(|(_, session, seq)| (*session, *seq)).collect()),
            _ => None,
        });
        match closing {
            Some(delivered) => seen = delivered,
            None => {
                for event in self.clients[index].events() {
                    if let (Some(session), Some(seq)) = (self.sent[event].session, self.sent[event].seq) {
                        seen.retain(|(other, _)| *other != session);
                        seen.push((session, seq));
                    }
                }
            }
        }
        let (core, want) = (self.core(), self.clients[index].subs[0].want);
        if self.random.chance(1, 2) {
            self.open_stream(core, want, Start::Positions(seen), true);
        } else {
            self.connect_party();
            let party = self.clients.len() - 1;
            self.ask(party, want, Start::Positions(seen));
        }
    }

    fn move_window(&mut self) {
        let alive: Vec<usize> = (1..self.clients.len()).filter(|index| self.clients[*index].alive).collect();
        if alive.is_empty() {
            return;
        }
        let at = self.clients[self.random.pick(&alive)].at;
        let window = match self.random.below(4) {
            0 => 0,
            1 => usize::MAX,
            _ => self.random.index(3000),
        };
        if let Some(socket) = self.machine.socket(at) {
            socket.window = window;
        }
    }

    /// The queues of all connections together are over their budget, and that one's is the largest.
    fn overflow(&mut self) {
        let core = self.core();
        let witness = self.clients[WITNESS].at;
        let node = &mut self.machine.cores[core];
        let queued = node.out.sockets.iter().filter(|(conn, socket)| {
            socket.queued > 0 && socket.kind != Kind::Request && At { core, conn: **conn } != witness
        });
        if let Some((&conn, _)) = queued.max_by_key(|(_, socket)| socket.queued)
            && self.random.chance(1, 3)
        {
            node.relay.on_overflow(&mut node.out, conn);
        }
    }

    /// The process ends in the midst of everything.
    pub(super) fn say_goodbye(&mut self) {
        for node in &mut self.machine.cores {
            node.relay.on_goodbye(&mut node.out);
        }
        self.rest();
        for (index, client) in self.clients.iter().enumerate() {
            self.check_closing(index, client);
        }
    }

    /// Everybody goes.
    pub(super) fn part_from_all(&mut self) {
        for client in self.clients.iter_mut().filter(|client| client.alive) {
            part(client, &mut self.machine, &mut self.sent);
        }
        self.machine.rest(&mut self.random);
    }

    /// What the relays hold, by a stream of `live=0`.
    pub(super) fn held(&mut self) -> HashSet<usize> {
        let core = self.core();
        let index = self.open_stream(core, Want::Everything, Start::Now, false);
        self.machine.socket(self.clients[index].at).unwrap().unbounded = true;
        self.rest();
        assert_eq!(self.clients[index].log.last(), Some(&Item::Complete), "live=0 comes to its end");
        self.clients[index].events().collect()
    }
}

/// Parts from a connection: what the relay has not read of it was never published.
fn part(client: &mut Client, machine: &mut Machine, sent: &mut [Sent]) {
    client.alive = false;
    let Some(socket) = machine.socket(client.at) else { return };
    let unread: Vec<Vec<u8>> = socket.inbox.drain(..).collect();
    for text in unread {
        let text = String::from_utf8(text).unwrap();
        if let Some(event) = sent.iter_mut().find(|event| event.raw == text) {
            event.sends -= 1;
            event.resent = true;
        }
    }
    let _unseen = machine.disconnect(client.at);
}
