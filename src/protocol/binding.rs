//! How a stream's messages are framed for a connection: what carries them, and the bytes of one message there.
//!
//! Invariant: a message is appended whole, in a chunk or frame of its own where there are such, so that a queue can be
//! cut behind it.

use crate::wire::http1::chunk::StreamFraming;
use crate::wire::sse::EventId;
use crate::wire::{sse, websocket};

/// What carries messages to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// An event stream, delimited as its request's version has it.
    Stream(StreamFraming),
    /// A WebSocket.
    WebSocket,
}

/// How many there are.
pub const BINDINGS: usize = 3;

impl Binding {
    /// Its place among all, `0 .. BINDINGS`.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Stream(StreamFraming::Chunked) => 0,
            Self::Stream(StreamFraming::UntilClose) => 1,
            Self::WebSocket => 2,
        }
    }

    /// Appends one message to `out`: an event of that kind under that id, or a text frame, which has neither.
    pub fn append(self, out: &mut Vec<u8>, id: Option<EventId<'_>>, kind: &str, data: &[u8]) {
        match self {
            Self::Stream(framing) => sse::encode_event(out, framing, id, kind, data),
            Self::WebSocket => websocket::frame::encode_text(out, data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_in_every_binding_and_bears_id_and_kind_on_event_streams_alone() {
        let id = EventId { text: "a", numbers: &[1, 2] };
        for (binding, expected) in [
            (Binding::Stream(StreamFraming::Chunked), &b"1d\r\nid: a:1:2\nevent: k\ndata: {}\n\n\r\n"[..]),
            (Binding::Stream(StreamFraming::UntilClose), b"id: a:1:2\nevent: k\ndata: {}\n\n"),
            (Binding::WebSocket, b"\x81\x02{}"),
        ] {
            let mut out = b"before".to_vec();
            binding.append(&mut out, Some(id), "k", b"{}");
            assert_eq!(out.strip_prefix(b"before").unwrap(), expected, "{binding:?}");
            assert!(binding.index() < BINDINGS);
        }
    }
}
