//! An event stream, read strictly: every chunk whole messages, every message in the one form of contract §4.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use serde_json::Value;

use super::http::{Http, Response, query, request};
use super::relay::Relay;

/// One message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    Event { id: Option<String>, kind: String, data: String },
    Comment(String),
}

/// An open event stream; its `: open` is already read.
#[derive(Debug)]
pub struct Sse {
    http: Http,
    chunked: bool,
    pending: VecDeque<Message>,
}

impl Sse {
    /// Opens a stream whose target is given whole, with the relay's token.
    #[track_caller]
    pub fn open(relay: &Relay, target: &str) -> Self {
        Self::open_with(relay, target, &[])
    }

    /// Opens a stream with parameters, which are encoded.
    #[track_caller]
    pub fn subscribe(relay: &Relay, parameters: &[(&str, &str)]) -> Self {
        Self::open(relay, &query("/stream", parameters))
    }

    /// Opens a stream with further request fields.
    #[track_caller]
    pub fn open_with(relay: &Relay, target: &str, fields: &[(&str, &str)]) -> Self {
        let authorization = relay.authorization();
        let mut all = fields.to_vec();
        all.extend(authorization.as_ref().map(|(name, value)| (*name, value.as_str())));
        let (stream, _) = Self::send(relay, &request("GET", target, &all, b""));
        stream
    }

    /// Sends this request, which must open a stream; answers its head too.
    #[track_caller]
    pub fn send(relay: &Relay, request: &[u8]) -> (Self, Response) {
        let mut http = Http::connect(relay);
        http.send(request);
        Self::accept(http)
    }

    /// Opens a stream on a connection with a small receive buffer.
    #[track_caller]
    pub fn narrow(relay: &Relay, parameters: &[(&str, &str)]) -> Self {
        let authorization = relay.authorization();
        let fields: Vec<(&str, &str)> = authorization.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut http = Http::connect_narrow(relay);
        http.send(request("GET", &query("/stream", parameters), &fields, b""));
        Self::accept(http).0
    }

    /// Reads the answer to a request that was sent and must open a stream.
    #[track_caller]
    pub fn accept(mut http: Http) -> (Self, Response) {
        let head = http.response_head();
        assert_eq!(head.status, 200, "a stream opens: {head:?} {}", http.unread());
        let chunked = head.field("transfer-encoding") == Some("chunked");
        let mut stream = Self { http, chunked, pending: VecDeque::new() };
        assert_eq!(stream.next(), Some(Message::Comment("open".to_owned())), "the first message");
        (stream, head)
    }

    /// Everything a subscription without a live part delivers, `: replay-complete` included.
    #[track_caller]
    pub fn replay(relay: &Relay, parameters: &[(&str, &str)]) -> Vec<Message> {
        let mut all = parameters.to_vec();
        all.push(("live", "0"));
        let mut messages = Self::subscribe(relay, &all).rest();
        let last = messages.pop();
        assert_eq!(last, Some(Message::Comment("replay-complete".to_owned())), "after {messages:?}");
        messages
    }

    /// The next message; nothing at the clean end of the body.
    #[track_caller]
    #[allow(clippy::should_implement_trait, reason = "an iterator would hide the place of the failing call")]
    pub fn next(&mut self) -> Option<Message> {
        while self.pending.is_empty() {
            let block = if self.chunked { self.http.chunk() } else { self.http.read_through(b"\n\n") }?;
            self.pending.extend(parse(&block));
        }
        self.pending.pop_front()
    }

    /// The next message that is no `: ping`.
    #[track_caller]
    pub fn message(&mut self) -> Message {
        loop {
            match self.next().expect("a message before the end of the stream") {
                Message::Comment(text) if text == "ping" => {}
                message => return message,
            }
        }
    }

    /// The data of the next message, which must be an event.
    #[track_caller]
    pub fn event(&mut self) -> String {
        match self.message() {
            Message::Event { data, .. } => data,
            Message::Comment(text) => panic!("expected an event, got the comment {text:?}"),
        }
    }

    /// The text of the next message, which must be a comment.
    #[track_caller]
    pub fn comment(&mut self) -> String {
        match self.message() {
            Message::Comment(text) => text,
            event => panic!("expected a comment, got {event:?}"),
        }
    }

    /// The next events are exactly these, byte for byte.
    #[track_caller]
    pub fn expect(&mut self, events: &[impl AsRef<str>]) {
        for event in events {
            assert_eq!(self.event(), event.as_ref());
        }
    }

    /// Everything up to the clean end of the body.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(message) = self.next() {
            messages.push(message);
        }
        messages
    }
}

impl Deref for Sse {
    type Target = Http;

    fn deref(&self) -> &Http {
        &self.http
    }
}

impl DerefMut for Sse {
    fn deref_mut(&mut self) -> &mut Http {
        &mut self.http
    }
}

impl Message {
    /// The data of an event.
    #[track_caller]
    pub fn data(&self) -> &str {
        match self {
            Self::Event { data, .. } => data,
            Self::Comment(text) => panic!("expected an event, got the comment {text:?}"),
        }
    }

    /// The data of an event as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.data()).expect("an event is JSON")
    }
}

/// Splits a block into messages; whatever is not exactly in the contract's form fails.
#[track_caller]
fn parse(block: &[u8]) -> Vec<Message> {
    let text = std::str::from_utf8(block).expect("a stream is UTF-8");
    assert!(!text.contains('\r'), "lines end in a lone LF: {text:?}");
    let body = text.strip_suffix("\n\n").unwrap_or_else(|| panic!("not a whole number of messages: {text:?}"));
    body.split("\n\n").map(message).collect()
}

#[track_caller]
fn message(text: &str) -> Message {
    let lines: Vec<&str> = text.split('\n').collect();
    if let [line] = lines[..]
        && let Some(comment) = line.strip_prefix(": ")
    {
        return Message::Comment(comment.to_owned());
    }
    let (id, rest) = match lines[..] {
        [first, ref rest @ ..] if first.starts_with("id: ") => (Some(first["id: ".len()..].to_owned()), rest),
        ref rest => (None, rest),
    };
    let [kind, data] = rest else { panic!("not a message of the contract: {text:?}") };
    let field = |line: &str, name: &str| {
        line.strip_prefix(name).unwrap_or_else(|| panic!("{name:?} expected in {text:?}")).to_owned()
    };
    Message::Event { id, kind: field(kind, "event: "), data: field(data, "data: ") }
}
