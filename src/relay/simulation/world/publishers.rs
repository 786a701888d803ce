//! Who publishes: POSTs, emitting parties, senders of commands. Each session has one source, which publishes ascending.

use super::{AGENTS, Post, World};
use crate::relay::simulation::client::Sent;
use crate::relay::simulation::publish;

impl World {
    pub(super) fn compose(&mut self, session: Option<usize>, kind: &'static str, seq: bool) -> usize {
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
    pub(super) fn next_event(&mut self, session: usize, again: bool) -> usize {
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

    pub(super) fn post(&mut self) {
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
    pub(in crate::relay::simulation) fn post_one(&mut self, session: usize) {
        let event = self.compose(Some(session), "progress.step", true);
        self.sent[event].sends += 1;
        self.post_events(vec![event]);
    }

    pub(super) fn post_events(&mut self, events: Vec<usize>) {
        let mut body = Vec::new();
        for event in &events {
            body.extend_from_slice(self.sent[*event].raw.as_bytes());
            body.push(b'\n');
            if let Some(session) = self.sent[*event].session {
                self.sessions[session].busy = true;
            }
        }
        let core = self.random.index(self.machine.cores.len());
        let at = self.machine.connect(core, publish(body));
        self.posts.push(Post { at, events });
    }

    pub(super) fn parties(&self) -> Vec<usize> {
        (0..self.clients.len()).filter(|index| self.clients[*index].alive && self.clients[*index].socket).collect()
    }

    /// Any party, if the one drawn is not closing.
    fn any_open_party(&mut self) -> Option<usize> {
        let parties = self.parties();
        if parties.is_empty() {
            return None;
        }
        let party = self.random.pick(&parties);
        self.is_open(party).then_some(party)
    }

    pub(super) fn send(&mut self, party: usize, text: &str) {
        let at = self.clients[party].at;
        if let Some(socket) = self.machine.socket(at).filter(|socket| !socket.is_closing()) {
            socket.inbox.push_back(text.as_bytes().to_vec());
        }
    }

    pub(super) fn is_open(&mut self, party: usize) -> bool {
        let at = self.clients[party].at;
        self.machine.socket(at).is_some_and(|socket| !socket.is_closing())
    }

    /// A party publishes events of a session of its own.
    pub(super) fn emit(&mut self) {
        let Some(party) = self.any_open_party() else { return };
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

    pub(super) fn random_bool(&self) -> bool {
        self.step.is_multiple_of(2)
    }

    /// A command for a session, from any party.
    pub(super) fn command(&mut self) {
        let Some(party) = self.any_open_party() else { return };
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
}
