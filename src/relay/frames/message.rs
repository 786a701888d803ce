//! Frames: the undotted messages of a WebSocket, and the notices that an event stream carries as comments
//! (contract §4, §6, §9). Parses a client's, encodes the relay's.
//!
//! Every encoder answers the bytes that leave, framed for the binding. Knows no connection and no state.

use std::fmt::Write as _;

use crate::protocol::binding::Binding;
use crate::wire::http1::chunk::StreamFraming;
use crate::wire::json::{self, ObjectWriter, Value};
use crate::wire::{sse, websocket};

use crate::relay::error::Code;
use crate::relay::event::Position;

/// A frame of a client. Values borrow the message.
#[derive(Debug)]
pub enum ClientFrame<'a> {
    /// `subscribe`
    Subscribe(Value<'a>),
    /// `unsubscribe`
    Unsubscribe(Value<'a>),
    /// `ping`, with its `t` as written
    Ping(Option<&'a str>),
    /// `roster`
    Roster(Value<'a>),
    /// Anything that is passed over (§6.5).
    Other,
}

impl<'a> ClientFrame<'a> {
    /// What frame this object is, by its `type`; of repeated members the first counts.
    #[must_use]
    pub fn of(object: Value<'a>) -> Self {
        let Some(kind) = object.member("type").and_then(Value::string) else { return Self::Other };
        match &*kind {
            "subscribe" => Self::Subscribe(object),
            "unsubscribe" => Self::Unsubscribe(object),
            "ping" => Self::Ping(object.member("t").map(|value| value.text)),
            "roster" => Self::Roster(object),
            _ => Self::Other,
        }
    }
}

/// The length of bytes that go into a queue, whose bound is far below 4 GiB.
#[must_use]
pub fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn message(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() + 10);
    websocket::frame::encode_text(&mut out, json);
    out
}

fn comment(framing: StreamFraming, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 16);
    sse::encode_comment(&mut out, framing, text);
    out
}

/// A frame of this type being written.
fn of_type(kind: &str) -> ObjectWriter {
    let mut frame = ObjectWriter::default();
    frame.string("type", kind);
    frame
}

/// An answering `hello`, made by `discovery.rs`.
#[must_use]
pub fn hello(json: &str) -> Vec<u8> {
    message(json.as_bytes())
}

/// `subscribed`
#[must_use]
pub fn subscribed(id: &str) -> Vec<u8> {
    let mut frame = of_type("subscribed");
    frame.string("id", id);
    message(&frame.finish())
}

/// `unsubscribed`
#[must_use]
pub fn unsubscribed(id: &str) -> Vec<u8> {
    let mut frame = of_type("unsubscribed");
    frame.string("id", id);
    message(&frame.finish())
}

/// `pong`, with `t` as it came.
#[must_use]
pub fn pong(t: Option<&str>) -> Vec<u8> {
    let mut frame = of_type("pong");
    if let Some(t) = t {
        frame.raw("t", t.as_bytes());
    }
    message(&frame.finish())
}

/// `roster`, with entries already written: with commas between them, and whether some were left out.
#[must_use]
pub fn roster(id: &str, entries: &[u8], truncated: bool) -> Vec<u8> {
    let mut frame = of_type("roster");
    frame.string("id", id);
    frame.raw("entries", b"[");
    let (head, tail) = (frame.unfinished(), list_end(truncated));
    let payload_bytes = head.len() + entries.len() + tail.len();
    // Entries are many bytes: copied once.
    let mut out = Vec::with_capacity(payload_bytes + 10);
    websocket::frame::encode_text_head(&mut out, payload_bytes);
    for piece in [&head, entries, tail] {
        out.extend_from_slice(piece);
    }
    out
}

/// The end of a list that is an object's last member but for what says that entries were left out, and of the object.
#[must_use]
pub fn list_end(truncated: bool) -> &'static [u8] {
    if truncated { b"],\"truncated\":true}" } else { b"]}" }
}

/// An `error` that answers a frame: `id` names the request (§6).
#[must_use]
pub fn error(id: Option<&str>, code: Code, detail: &str) -> Vec<u8> {
    error_about("id", id, code, detail)
}

/// An `error` about a message that is no event (§6.2), or about a command that was not routed (§7): `cause` is its id,
/// if it had one.
#[must_use]
pub fn event_error(cause: Option<&str>, code: Code, detail: &str) -> Vec<u8> {
    error_about("cause", cause, code, detail)
}

fn error_about(member: &str, id: Option<&str>, code: Code, detail: &str) -> Vec<u8> {
    let mut frame = of_type("error");
    frame.optional(member, id);
    frame.string("code", code.as_str());
    frame.string("detail", detail);
    message(&frame.finish())
}

/// The `error` that refuses a hello without a common version.
#[must_use]
pub fn version_unsupported(detail: &str) -> Vec<u8> {
    let mut frame = of_type("error");
    frame.string("code", Code::VersionUnsupported.as_str());
    frame.raw("versions", br#"["0.1"]"#);
    frame.string("detail", detail);
    message(&frame.finish())
}

/// `closing`, with (subscription, session, position last handed over).
#[must_use]
pub fn closing(reason: &str, delivered: &[(&str, &str, Position)]) -> Vec<u8> {
    let mut list = b"[".to_vec();
    for (sub, session, position) in delivered {
        if list.len() > 1 {
            list.push(b',');
        }
        list.extend_from_slice(b"{\"sub\":");
        json::write_string(&mut list, sub);
        list.extend_from_slice(b",\"session\":");
        json::write_string(&mut list, session);
        list.extend_from_slice(format!(",\"epoch\":{},\"seq\":{}}}", position.epoch, position.seq).as_bytes());
    }
    list.push(b']');
    let mut frame = of_type("closing");
    frame.string("reason", reason);
    frame.raw("delivered", &list);
    message(&frame.finish())
}

/// What slow consumers are told: how many events they missed.
#[must_use]
pub fn dropped(binding: Binding, count: u64) -> Vec<u8> {
    match binding {
        Binding::Stream(framing) => comment(framing, format!("dropped {count}").as_bytes()),
        Binding::WebSocket => message(format!("{{\"type\":\"dropped\",\"count\":{count}}}").as_bytes()),
    }
}

/// `replay-exhausted`: comment or frame. A session that holds a control character stands escaped in the comment.
#[must_use]
pub fn replay_exhausted(binding: Binding, sub: Option<&str>, session: &str, earliest: Position) -> Vec<u8> {
    let Binding::Stream(framing) = binding else {
        let mut frame = of_type("replay-exhausted");
        frame.optional("sub", sub);
        frame.string("session", session);
        frame.raw("earliest", format!("{{\"epoch\":{},\"seq\":{}}}", earliest.epoch, earliest.seq).as_bytes());
        return message(&frame.finish());
    };
    let mut line = b"replay-exhausted ".to_vec();
    if session.chars().any(char::is_control) {
        write_escaped(&mut line, session);
    } else {
        line.extend_from_slice(session.as_bytes());
    }
    let mut at = String::new();
    let _ = write!(at, " {earliest}");
    line.extend_from_slice(at.as_bytes());
    comment(framing, &line)
}

/// A JSON string without any control character, those that JSON lets stand (DEL, C1) included.
fn write_escaped(out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    json::write_string(out, text);
    let escaped = String::from_utf8_lossy(&out.split_off(start)).into_owned();
    for c in escaped.chars() {
        if c.is_control() {
            out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
        } else {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}
