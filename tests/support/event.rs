//! Events as text: members in a fixed order, ids unique in the process.

use std::sync::atomic::{AtomicU64, Ordering};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The JSON text of one event in the making. `field` adds or replaces any member with JSON text as it stands.
#[derive(Debug, Clone)]
pub struct EventBuilder {
    members: Vec<(String, String)>,
}

/// An ordinary session event with a position.
pub fn event(session: &str, seq: u64) -> EventBuilder {
    unplaced("run.started", session).field("seq", &seq.to_string())
}

/// A session event or command without `seq`: `attention.routed`, `control.cancel`, ….
pub fn unplaced(kind: &str, session: &str) -> EventBuilder {
    agent_event(kind).field("session", &quote(session))
}

/// A command to a session.
pub fn command(kind: &str, session: &str) -> EventBuilder {
    unplaced(kind, session).source("urn:test:controller")
}

/// An event without a session: `agent.presence`, `agent.heartbeat`, ….
pub fn agent_event(kind: &str) -> EventBuilder {
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let members = [
        ("aep", quote("0.1")),
        ("id", quote(&format!("e-{id}"))),
        ("type", quote(kind)),
        ("time", quote("2026-03-01T12:00:00Z")),
        ("source", quote("urn:test:emitter")),
        ("agent", quote("coder")),
    ];
    EventBuilder { members: members.map(|(name, value)| (name.to_owned(), value)).to_vec() }
}

impl EventBuilder {
    pub fn kind(self, kind: &str) -> Self {
        self.text("type", kind)
    }

    pub fn id(self, id: &str) -> Self {
        self.text("id", id)
    }

    pub fn source(self, source: &str) -> Self {
        self.text("source", source)
    }

    pub fn agent(self, agent: &str) -> Self {
        self.text("agent", agent)
    }

    pub fn severity(self, severity: &str) -> Self {
        self.text("severity", severity)
    }

    pub fn capture(self, capture: &str) -> Self {
        self.text("capture", capture)
    }

    pub fn epoch(self, epoch: u64) -> Self {
        self.field("epoch", &epoch.to_string())
    }

    /// `data` as JSON text.
    pub fn data(self, json: &str) -> Self {
        self.field("data", json)
    }

    /// A member with a string value.
    pub fn text(self, name: &str, value: &str) -> Self {
        self.field(name, &quote(value))
    }

    /// A member with JSON text as its value.
    pub fn field(mut self, name: &str, json: &str) -> Self {
        match self.members.iter_mut().find(|(other, _)| other == name) {
            Some((_, value)) => *value = json.to_owned(),
            None => self.members.push((name.to_owned(), json.to_owned())),
        }
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.members.retain(|(other, _)| other != name);
        self
    }

    /// The event in one line.
    pub fn build(&self) -> String {
        self.join(":", ",")
    }

    /// The event with the given text around its colons and commas.
    pub fn join(&self, colon: &str, comma: &str) -> String {
        let members: Vec<String> =
            self.members.iter().map(|(name, value)| format!("{}{colon}{value}", quote(name))).collect();
        format!("{{{}}}", members.join(comma))
    }
}

/// A JSON string.
fn quote(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}
