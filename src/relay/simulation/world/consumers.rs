//! Who consumes: streams and parties that subscribe, become slow, go and resume; and the ends of a run.

use std::collections::HashSet;

use super::{AGENTS, WITNESS, World, part};
use crate::engine::service::Work;
use crate::protocol::simulation::machine::At;
use crate::protocol::simulation::socket::Ask;
use crate::protocol::simulation::socket::Kind;
use crate::relay::simulation::client::{Client, Item, Start, Sub, Want};
use crate::relay::simulation::query;

impl World {
    pub(super) fn want(&mut self) -> Want {
        match self.random.below(8) {
            0..=2 => Want::Everything,
            3 => Want::Agent(self.random.below(AGENTS)),
            4 | 5 => Want::Session(self.random.index(self.sessions.len())),
            6 => Want::Notices,
            _ => Want::Progress,
        }
    }

    pub(super) fn start(&mut self) -> Start {
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

    pub(super) fn core(&mut self) -> usize {
        self.random.index(self.machine.cores.len())
    }

    pub(super) fn connect_stream(&mut self) {
        if self.clients.iter().filter(|client| client.alive).count() > 12 {
            return;
        }
        let (core, want, start) = (self.core(), self.want(), self.start());
        let live = !self.random.chance(1, 4);
        self.open_stream(core, want, start, live);
    }

    pub(in crate::relay::simulation) fn open_stream(
        &mut self,
        core: usize,
        want: Want,
        start: Start,
        live: bool,
    ) -> usize {
        let from = match &start {
            Start::Now => String::new(),
            Start::All => "all".to_owned(),
            Start::Positions(asked) => query(&positions(asked)),
        };
        let (filter, live_is) = (query(&want.json()), u8::from(live));
        let line = format!("GET /stream?filter={filter}&from={from}&live={live_is}");
        let at = self.machine.connect(core, Ask::new(&line, ""));
        let mut client = Client::new(at, false);
        client.subs.push(Sub { id: String::new(), want, start, live, asked: self.step, answered: None, ended: false });
        self.clients.push(client);
        self.clients.len() - 1
    }

    pub(super) fn connect_party(&mut self) {
        if self.clients.iter().filter(|client| client.alive).count() > 12 {
            return;
        }
        let core = self.core();
        let at = self.machine.connect(core, Ask::upgrade("/socket"));
        self.clients.push(Client::new(at, true));
        let hello = r#"{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":"a"},"capabilities":{"control":{"accepts":["control.cancel"]}}}"#;
        self.send(self.clients.len() - 1, hello);
    }

    pub(super) fn subscribe(&mut self) {
        let parties = self.parties();
        if parties.is_empty() {
            return;
        }
        let (party, want, start) = (self.random.pick(&parties), self.want(), self.start());
        self.ask(party, want, start);
    }

    pub(super) fn ask(&mut self, party: usize, want: Want, start: Start) {
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
            Start::Positions(asked) => format!(r#","from":{}"#, positions(asked)),
        };
        let text = format!(r#"{{"type":"subscribe","id":"{id}","filter":{}{from}}}"#, want.json());
        client.subs.push(Sub { id, want, start, live: true, asked: step, answered: None, ended: false });
        self.send(party, &text);
    }

    pub(super) fn unsubscribe(&mut self) {
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

    pub(super) fn roster(&mut self) {
        let parties = self.parties();
        if !parties.is_empty() {
            let party = self.random.pick(&parties);
            let text = self.random.pick(&[r#"{"type":"roster","id":"r"}"#, r#"{"type":"ping","t":1}"#]);
            self.send(party, text);
        }
    }

    /// A client goes away.
    pub(super) fn cut(&mut self) {
        let alive: Vec<usize> = (1..self.clients.len()).filter(|index| self.clients[*index].alive).collect();
        if !alive.is_empty() {
            let index = self.random.pick(&alive);
            part(&mut self.clients[index], &mut self.machine, &mut self.sent);
        }
    }

    /// A client that has gone comes back with the positions it was told, or has seen.
    pub(super) fn resume(&mut self) {
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

    pub(super) fn move_window(&mut self) {
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
    pub(super) fn overflow(&mut self) {
        let core = self.core();
        let witness = self.clients[WITNESS].at;
        let node = &self.machine.cores[core];
        let queued = node.out.sockets.iter().filter(|(conn, socket)| {
            socket.queued > 0 && socket.kind != Kind::Http && At { core, conn: **conn } != witness
        });
        if let Some((&conn, _)) = queued.max_by_key(|(_, socket)| socket.queued)
            && self.random.chance(1, 3)
        {
            self.machine.overflow(At { core, conn });
        }
    }

    /// The process ends in the midst of everything.
    pub(in crate::relay::simulation) fn say_goodbye(&mut self) {
        for node in &mut self.machine.cores {
            while node.protocol.on_goodbye(&mut node.out) == Work::Left {}
        }
        self.rest();
        for (index, client) in self.clients.iter().enumerate() {
            self.check_closing(index, client);
        }
    }

    /// Everybody goes.
    pub(in crate::relay::simulation) fn part_from_all(&mut self) {
        for client in self.clients.iter_mut().filter(|client| client.alive) {
            part(client, &mut self.machine, &mut self.sent);
        }
        self.machine.rest(&mut self.random);
    }

    /// What the relays hold, by a stream of `live=0`.
    pub(in crate::relay::simulation) fn held(&mut self) -> HashSet<usize> {
        let core = self.core();
        let index = self.open_stream(core, Want::Everything, Start::Now, false);
        self.machine.socket(self.clients[index].at).unwrap().unbounded = true;
        self.rest();
        assert_eq!(self.clients[index].log.last(), Some(&Item::Complete), "live=0 comes to its end");
        self.clients[index].events().collect()
    }
}

/// Positions as JSON.
fn positions(asked: &[(usize, u64)]) -> String {
    let position = |(session, seq): &(usize, u64)| format!(r#"{{"session":"s{session}","seq":{seq}}}"#);
    format!("[{}]", asked.iter().map(position).collect::<Vec<_>>().join(","))
}
