//! A peer's connection as the simulated engine has it: what was pushed and has not left, what the peer has sent and was
//! not read, and how far its present request has come.

use std::collections::VecDeque;

use crate::base::time::Deadline;
use crate::engine::service::{Ending, Response, Run};
use crate::wire::http1::chunk::chunk_len;
use crate::wire::websocket::frame::frame_len;

/// A request: its head, and its body in the pieces in which it comes, the first of them with the head.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(super) head: String,
    pub(super) body: VecDeque<Vec<u8>>,
}

impl Ask {
    /// A request without body. The line is method and target; each field ends in CR LF.
    pub(crate) fn new(line: &str, fields: &str) -> Self {
        Self { head: format!("{line} HTTP/1.1\r\nHost: x\r\n{fields}\r\n"), body: VecDeque::new() }
    }

    /// For a WebSocket.
    pub(crate) fn upgrade(path: &str) -> Self {
        let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                      Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        Self::new(&format!("GET {path}"), fields)
    }

    pub(crate) fn with_body(line: &str, fields: &str, body: impl Into<VecDeque<Vec<u8>>>) -> Self {
        let body = body.into();
        let length: usize = body.iter().map(Vec::len).sum();
        Self { body, ..Self::new(line, &format!("{fields}Content-Length: {length}\r\n")) }
    }
}

/// What a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Requests, one after the other.
    Http,
    /// An event stream.
    Stream,
    /// A WebSocket.
    WebSocket,
}

/// How far the present request of a connection has come.
#[derive(Debug)]
pub(crate) enum Exchange {
    /// There is none.
    Idle,
    /// Its body is being read.
    Body { tag: u32, bytes_max: usize, bytes: Vec<u8>, to_come: VecDeque<Vec<u8>> },
    /// The protocol owes its answer.
    Answer,
}

#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    mark: u64,
    /// Block and offset behind it.
    end: (u64, u32),
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) kind: Kind,
    pub(crate) exchange: Exchange,
    pieces: VecDeque<Piece>,
    sent: usize,
    pub(crate) queued: usize,
    /// Why it ends, once that is decided: nothing more is pushed; it is over once the queue is empty.
    pub(crate) ending: Option<Ending>,
    /// Whether the protocol was told that it ends.
    pub(crate) told_closing: bool,
    pub(crate) alarm: Option<Deadline>,
    pub(crate) tell_drained: bool,
    pub(crate) parked: bool,
    /// No bound: the queue of a consumer that is never slow.
    pub(crate) unbounded: bool,
    /// Bytes that the peer takes.
    pub(crate) window: usize,
    /// Bytes that have reached the peer and were not looked at.
    pub(crate) received: Vec<u8>,
    /// Requests of the peer that were not read.
    pub(crate) requests: VecDeque<Ask>,
    /// Messages of the peer that were not read.
    pub(crate) inbox: VecDeque<Vec<u8>>,
    /// Answers that have reached the peer and were not looked at.
    pub(crate) answers: VecDeque<Response>,
}

impl Socket {
    pub(crate) fn new() -> Self {
        Self {
            kind: Kind::Http,
            exchange: Exchange::Idle,
            pieces: VecDeque::new(),
            sent: 0,
            queued: 0,
            ending: None,
            told_closing: false,
            alarm: None,
            tell_drained: false,
            parked: false,
            unbounded: false,
            window: usize::MAX,
            received: Vec::new(),
            requests: VecDeque::new(),
            inbox: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether a body of it is on its way.
    pub(crate) fn is_in_body(&self) -> bool {
        matches!(self.exchange, Exchange::Body { .. }) && !self.is_closing()
    }

    /// Whether something of the peer is to be handed over, if not now; of a process that drains, of bodies alone.
    pub(crate) fn has_unread(&self, draining: bool) -> bool {
        match (self.kind, &self.exchange) {
            (Kind::Http, Exchange::Body { .. }) => true,
            (Kind::Http, Exchange::Idle) => !draining && !self.requests.is_empty(),
            (Kind::Http, Exchange::Answer) | (Kind::Stream, _) => false,
            (Kind::WebSocket, _) => !draining && !self.inbox.is_empty(),
        }
    }

    /// Whether some of that can be handed over now.
    pub(crate) fn has_input(&self, draining: bool) -> bool {
        self.has_unread(draining) && !self.parked && !self.is_closing()
    }

    /// It is decided that it ends. What came first counts; an alarm is forgotten.
    pub(crate) fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
        self.alarm = None;
    }

    /// Writes what the window takes. Whether the queue is empty.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(front) = self.pieces.front() {
            let taken = (front.bytes.len() - self.sent).min(self.window);
            self.received.extend_from_slice(&front.bytes[self.sent..self.sent + taken]);
            self.sent += taken;
            self.queued -= taken;
            self.window = if self.window == usize::MAX { usize::MAX } else { self.window - taken };
            if self.sent < front.bytes.len() {
                break;
            }
            self.sent = 0;
            self.pieces.pop_front();
        }
        self.pieces.is_empty()
    }

    /// Pieces join as they do in the engine: neighbours in a block whose marks go on with their bytes.
    pub(crate) fn push(&mut self, bytes: &[u8], run: Run, mark: u64) {
        self.queued += bytes.len();
        let end = (run.block, run.start + run.len);
        if let Some(last) = self.pieces.back_mut()
            && last.end == (run.block, run.start)
            && (mark == last.mark || mark == last.mark.wrapping_add(u64::from(run.len)))
        {
            last.bytes.extend_from_slice(bytes);
            (last.mark, last.end) = (mark, end);
        } else {
            self.pieces.push_back(Piece { bytes: bytes.to_vec(), mark, end });
        }
    }

    pub(crate) fn push_own(&mut self, bytes: &[u8], mark: u64) {
        self.push(bytes, Run { block: u64::MAX, start: 0, len: u32::try_from(bytes.len()).unwrap() }, mark);
        self.pieces.back_mut().unwrap().end = (u64::MAX, u32::MAX);
    }

    /// Everything queued, first to last: marks, and bytes that are unsent.
    pub(crate) fn unsent(&self) -> impl Iterator<Item = (u64, usize)> {
        let mut sent = self.sent;
        self.pieces.iter().map(move |piece| (piece.mark, piece.bytes.len() - std::mem::take(&mut sent)))
    }

    /// Discards what is unsent, except a message begun.
    pub(crate) fn cut(&mut self) {
        let message_len: fn(&[u8]) -> Option<usize> = if self.kind == Kind::WebSocket { frame_len } else { chunk_len };
        self.pieces.truncate(1);
        if let Some(front) = self.pieces.front_mut() {
            let mut end = 0;
            while end < self.sent {
                end += message_len(&front.bytes[end..]).unwrap();
            }
            front.bytes.truncate(end);
        }
        self.queued = self.pieces.front().map_or(0, |front| front.bytes.len() - self.sent);
        if self.queued == 0 {
            self.pieces.clear();
            self.sent = 0;
        }
    }
}
