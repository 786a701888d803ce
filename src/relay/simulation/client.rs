//! The peer's side: what was asked for, and what came back, decoded.

use crate::protocol::simulation::machine::At;
use crate::wire::websocket::frame::frame_len;

/// What a filter of the simulation pins; the model's own idea of attr-match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Everything,
    Agent(u64),
    Session(usize),
    Notices,
    Progress,
}

impl Want {
    pub(super) fn json(self) -> String {
        match self {
            Self::Everything => "{}".into(),
            Self::Agent(agent) => format!(r#"{{"agent":"a{agent}"}}"#),
            Self::Session(session) => format!(r#"{{"session":["s{session}"]}}"#),
            Self::Notices => r#"{"severity":{"gte":"notice"}}"#.into(),
            Self::Progress => r#"{"type":["progress.*"]}"#.into(),
        }
    }

    pub(super) fn matches(self, sent: &Sent) -> bool {
        match self {
            Self::Everything => true,
            Self::Agent(agent) => sent.agent == agent,
            Self::Session(session) => sent.session == Some(session),
            Self::Notices => !sent.droppable,
            Self::Progress => sent.kind.starts_with("progress."),
        }
    }
}

/// An event that somebody published.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) raw: String,
    pub(super) kind: &'static str,
    pub(super) agent: u64,
    pub(super) session: Option<usize>,
    pub(super) seq: Option<u64>,
    pub(super) droppable: bool,
    pub(super) command: bool,
    /// How often it was taken in.
    pub(super) sends: usize,
    /// When it was first sent.
    pub(super) step: usize,
    /// When its first 202 came.
    pub(super) accepted: Option<usize>,
    /// Whether it was sent more than once.
    pub(super) resent: bool,
}

/// Where a subscription begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    Now,
    All,
    /// Sessions and positions.
    Positions(Vec<(usize, u64)>),
}

/// A subscription.
#[derive(Debug, Clone)]
pub(super) struct Sub {
    pub(super) id: String,
    pub(super) want: Want,
    pub(super) start: Start,
    pub(super) live: bool,
    pub(super) asked: usize,
    /// Step, and place in the log.
    pub(super) answered: Option<(usize, usize)>,
    pub(super) ended: bool,
}

/// What a peer has been told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    Event(usize),
    Subscribed(String),
    Exhausted { sub: String, session: usize },
    Dropped(usize),
    Closing(Vec<(String, usize, u64)>),
    Refused(usize),
    Complete,
    Other,
}

/// A consumer.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) at: At,
    pub(super) socket: bool,
    pub(super) alive: bool,
    pub(super) subs: Vec<Sub>,
    pub(super) log: Vec<Item>,
    pub(super) rest: Vec<u8>,
    pub(super) next_sub: usize,
}

impl Client {
    pub(super) fn new(at: At, socket: bool) -> Self {
        Self { at, socket, alive: true, subs: Vec::new(), log: Vec::new(), rest: Vec::new(), next_sub: 0 }
    }

    /// Takes in bytes that have arrived.
    pub(super) fn hear(&mut self, bytes: &[u8], step: usize, sent: &[Sent]) {
        self.rest.extend_from_slice(bytes);
        let rest = std::mem::take(&mut self.rest);
        let mut at = 0;
        while let Some(len) = if self.socket { frame_len(&rest[at..]) } else { chunk(&rest[at..]) }
            && at + len <= rest.len()
        {
            let message = &rest[at..at + len];
            at += len;
            let item = if self.socket { frame_item(message, sent) } else { comment_item(message, sent) };
            let place = self.log.len();
            let answered = match &item {
                Item::Subscribed(id) => self.subs.iter_mut().find(|sub| sub.id == *id && !sub.ended),
                _ => None,
            };
            if let Some(sub) = answered {
                assert!(sub.answered.is_none(), "a subscribe is answered once");
                sub.answered = Some((step, place));
            }
            self.log.push(item);
        }
        self.rest = rest[at..].to_vec();
    }

    /// Events in the order in which they came.
    pub(super) fn events(&self) -> impl Iterator<Item = usize> {
        self.log.iter().filter_map(|item| if let Item::Event(event) = item { Some(*event) } else { None })
    }

    pub(super) fn announced(&self) -> usize {
        self.log.iter().map(|item| if let Item::Dropped(count) = item { *count } else { 0 }).sum()
    }
}

/// A chunk's length, but not that of the last one.
fn chunk(bytes: &[u8]) -> Option<usize> {
    crate::wire::http1::chunk::chunk_len(bytes)
}

fn event_item(data: &str, sent: &[Sent]) -> Item {
    let id = data.split(r#""id":"e"#).nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let event: usize = id.parse().unwrap();
    assert_eq!(data, sent[event].raw, "byte for byte");
    Item::Event(event)
}

fn session_of(name: &str) -> usize {
    name.trim_start_matches('s').parse().unwrap()
}

fn comment_item(chunk: &[u8], sent: &[Sent]) -> Item {
    let text = std::str::from_utf8(chunk).unwrap();
    let content = text.split_once("\r\n").unwrap().1.strip_suffix("\r\n").unwrap();
    if let Some((_, data)) = content.split_once("data: ") {
        return event_item(data.strip_suffix("\n\n").unwrap(), sent);
    }
    let comment = content.strip_prefix(": ").and_then(|rest| rest.strip_suffix("\n\n")).unwrap();
    let words: Vec<&str> = comment.split(' ').collect();
    match words.as_slice() {
        ["open"] => Item::Subscribed(String::new()),
        ["replay-exhausted", session, _] => Item::Exhausted { sub: String::new(), session: session_of(session) },
        ["dropped", count] => Item::Dropped(count.parse().unwrap()),
        ["replay-complete"] => Item::Complete,
        _ => Item::Other,
    }
}

fn frame_item(frame: &[u8], sent: &[Sent]) -> Item {
    let head = match frame[1] {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    let text = std::str::from_utf8(&frame[head..]).unwrap();
    if text.starts_with(r#"{"aep""#) {
        return event_item(text, sent);
    }
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    let string = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    match string("type").as_str() {
        "subscribed" => Item::Subscribed(string("id")),
        "replay-exhausted" => Item::Exhausted { sub: string("sub"), session: session_of(&string("session")) },
        "dropped" => Item::Dropped(usize::try_from(value["count"].as_u64().unwrap()).unwrap()),
        "error" => match string("cause").strip_prefix('e') {
            Some(cause) => Item::Refused(cause.parse().unwrap()),
            None => panic!("unexpected {text}"),
        },
        "closing" => {
            let delivered = value["delivered"].as_array().unwrap().iter();
            let entry = |at: &serde_json::Value| {
                let session = session_of(at["session"].as_str().unwrap());
                (at["sub"].as_str().unwrap().to_owned(), session, at["seq"].as_u64().unwrap())
            };
            Item::Closing(delivered.map(entry).collect())
        }
        _ => Item::Other,
    }
}
