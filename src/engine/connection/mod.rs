//! One TCP peer: its socket, what it speaks, what waits to be written and what was left over of what was read.
//!
//! Owns the state that every kind of connection has. What its bytes mean is its half's business (`http.rs`,
//! `websocket.rs`, `event_stream.rs`); who reads and writes it, the core's (`core/input.rs`, `io/flush.rs`).
//!
//! - `phase` only moves on: Open → Finishing (nothing is queued any more, the peer's input is thrown away) → Lingering
//!   (our side is shut; read until the peer's end, so that no reset overtakes our last words) → Over.
//! - `ending` is some from the moment the end is decided: the first reason is the one that counts.
//! - Readiness is remembered, since edges come once: `readable` and `writable` are true until a call said otherwise.

pub(super) mod event_stream;
pub(super) mod http;
pub(super) mod reception;
pub(super) mod websocket;

use std::time::Duration;

use crate::base::time::{Deadline, Now};
use crate::engine::connection::event_stream::EventStream;
use crate::engine::connection::http::Http;
use crate::engine::connection::reception::Reception;
use crate::engine::connection::websocket::WebSocket;
use crate::engine::service::{Ending, Group};
use crate::engine::socket::Socket;
use crate::engine::write_queue::WriteQueue;
use crate::limits::DISCARD_BYTES_MAX;
use crate::ops::metrics::ConnectionKind;
use crate::wire::websocket::frame::frame_len;

/// Bytes of answers that may wait for the socket before the next pipelined request is taken.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(in crate::engine) struct Connection {
    pub(in crate::engine) socket: Socket,
    pub(in crate::engine) half: Half,
    pub(in crate::engine) phase: Phase,
    pub(in crate::engine) ending: Option<Ending>,
    pub(in crate::engine) queue: WriteQueue,
    pub(in crate::engine) leftover: Option<Box<Leftover>>,
    pub(in crate::engine) timers: Timers,
    /// When the socket last took something, or something was queued for an idle one.
    pub(in crate::engine) progress_at: Now,
    /// When its queue was last empty.
    pub(in crate::engine) behind_since: Now,
    /// What it counts for in the process's receiving bytes.
    pub(in crate::engine) receiving_bytes: usize,
    pub(in crate::engine) flags: Flags,
}

/// What a connection speaks.
#[derive(Debug)]
pub(in crate::engine) enum Half {
    /// Boxed, as the one that no idle consumer has.
    Http(Box<Http>),
    WebSocket(WebSocket),
    EventStream(EventStream),
}

/// How far the end of a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Phase {
    /// In use.
    Open,
    /// What is queued is the last.
    Finishing(Linger),
    /// Everything was written and our side is shut.
    Lingering(Linger),
    /// Nothing more is read or written; the core is about to drop it.
    Over,
}

/// How long and for how much a peer is waited for at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Linger {
    /// How long, from the last progress of the socket; milliseconds.
    patience_ms: u32,
    /// The time runs from the beginning instead.
    strict: bool,
    /// Bytes of input that are still thrown away.
    discard_bytes: u32,
}

/// Input that could not be used yet.
#[derive(Debug)]
pub(in crate::engine) struct Leftover {
    pub(in crate::engine) bytes: Vec<u8>,
    /// Where it begins in `bytes`.
    pub(in crate::engine) start: usize,
    /// It has been decoded in vain and waits for more; otherwise it has not been looked at.
    pub(in crate::engine) partial: bool,
}

/// The deadlines of a connection. The wheel has an entry for it at `armed`, perhaps others that have become pointless.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Timers {
    /// The engine's own.
    pub(in crate::engine) deadline: Deadline,
    /// The service's.
    pub(in crate::engine) alarm: Deadline,
    pub(in crate::engine) armed: Deadline,
}

/// Never.
pub(in crate::engine) const NEVER: Deadline = Deadline(u64::MAX);

/// What is true of a connection, apart from its phase.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state machine")]
pub(in crate::engine) struct Flags {
    /// Something may be there to read.
    pub(in crate::engine) readable: bool,
    /// The socket may take something.
    pub(in crate::engine) writable: bool,
    /// A deadline of it has come, and it has not been read since.
    pub(in crate::engine) unread: bool,
    /// The peer's end has been announced, or read.
    pub(in crate::engine) peer_ended: bool,
    /// The service asked that nothing more be handed over.
    pub(in crate::engine) parked: bool,
    /// A body's or message's input waits until the process holds less.
    pub(in crate::engine) starved: bool,
    /// It counts as one who holds what was lent to it.
    pub(in crate::engine) borrows: bool,
    /// The service has seen it and will hear of its end.
    pub(in crate::engine) known: bool,
    /// The time for the peer's close is not extended by progress.
    pub(in crate::engine) strict: bool,
    /// It has a place and counts toward the connection limit; otherwise it is a guest (`core/accept.rs`).
    pub(in crate::engine) counted: bool,
    /// The service waits for its queue to run empty.
    pub(in crate::engine) tell_drained: bool,
    /// It is on the list of that name.
    pub(in crate::engine) in_input: bool,
    /// It is on one of the two flush lists.
    pub(in crate::engine) in_flush: bool,
    /// It is on the list of that name.
    pub(in crate::engine) in_lagging: bool,
    /// It is on the list of that name.
    pub(in crate::engine) in_heavy: bool,
}

impl Linger {
    /// Patience from the last progress on, and input up to [`DISCARD_BYTES_MAX`].
    pub(in crate::engine) fn new(patience: Duration) -> Self {
        let patience_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        Self { patience_ms, strict: false, discard_bytes: DISCARD_BYTES_MAX as u32 }
    }

    /// The same, but the time is not extended by progress.
    pub(in crate::engine) fn strict(patience: Duration) -> Self {
        Self { strict: true, ..Self::new(patience) }
    }

    /// Shortens the patience.
    pub(in crate::engine) fn shorten(&mut self, patience: Duration) {
        let patience_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        self.patience_ms = self.patience_ms.min(patience_ms);
    }

    /// When the patience ends, if the socket made its last progress then.
    pub(in crate::engine) fn deadline(self, progress_at: Now) -> Deadline {
        progress_at.after(Duration::from_millis(u64::from(self.patience_ms)))
    }

    /// Whether progress extends the patience.
    pub(in crate::engine) const fn is_extensible(self) -> bool {
        !self.strict
    }

    /// Input was thrown away. Whether more may be.
    pub(in crate::engine) fn discard(&mut self, bytes: usize) -> bool {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.discard_bytes.checked_sub(bytes));
        self.discard_bytes = left.unwrap_or(0);
        left.is_some()
    }
}

impl Leftover {
    /// What could not be used.
    pub(in crate::engine) fn rest(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..).unwrap_or_default()
    }
}

impl Timers {
    /// The earlier of both.
    pub(in crate::engine) fn next(&self) -> Deadline {
        self.deadline.min(self.alarm)
    }
}

impl Connection {
    /// A fresh connection, which speaks HTTP.
    pub(in crate::engine) fn new(socket: Socket, now: Now) -> Self {
        Self {
            socket,
            half: Half::Http(Box::default()),
            phase: Phase::Open,
            ending: None,
            queue: WriteQueue::default(),
            leftover: None,
            timers: Timers { deadline: NEVER, alarm: NEVER, armed: NEVER },
            progress_at: now,
            behind_since: now,
            receiving_bytes: 0,
            flags: Flags { writable: true, ..Flags::default() },
        }
    }

    pub(in crate::engine) const fn kind(&self) -> ConnectionKind {
        match self.half {
            Half::Http(_) => ConnectionKind::Http,
            Half::WebSocket(_) => ConnectionKind::WebSocket,
            Half::EventStream(_) => ConnectionKind::EventStream,
        }
    }

    /// What group it has named; none before it has a stream or WebSocket.
    pub(in crate::engine) const fn group(&self) -> Option<Group> {
        match &self.half {
            Half::Http(_) => None,
            Half::WebSocket(half) => Some(half.group),
            Half::EventStream(half) => Some(half.group),
        }
    }

    /// Whether frames and messages may be queued.
    pub(in crate::engine) fn takes_pushes(&self) -> bool {
        self.phase == Phase::Open
            && self.ending.is_none()
            && match &self.half {
                Half::Http(_) => false,
                Half::WebSocket(half) => half.is_open(),
                Half::EventStream(_) => true,
            }
    }

    /// Whether input can be made use of now, be it only by throwing it away.
    pub(in crate::engine) fn takes_input(&self) -> bool {
        match (self.phase, &self.half) {
            (Phase::Over, _) => false,
            (Phase::Finishing(_) | Phase::Lingering(_), _) => true,
            (Phase::Open, _) if self.flags.parked => false,
            (Phase::Open, Half::Http(half)) => half.takes_input() && self.queue.bytes() <= ANSWER_BYTES_MAX,
            (Phase::Open, Half::WebSocket(half)) => half.takes_input(),
            (Phase::Open, Half::EventStream(_)) => true,
        }
    }

    /// Whether there is input to be looked at.
    pub(in crate::engine) fn has_input(&self) -> bool {
        self.flags.readable || self.leftover.as_ref().is_some_and(|leftover| !leftover.partial)
    }

    /// Bytes it has received of the head, body or message under way; none if nothing is kept of what it sends.
    pub(in crate::engine) fn received_bytes(&self) -> Option<usize> {
        match (self.phase, &self.half) {
            (Phase::Open, Half::Http(half)) if half.has_partial_head() => {
                Some(self.leftover.as_ref().map_or(0, |leftover| leftover.bytes.len()))
            }
            (Phase::Open, Half::Http(half)) => Some(half.body_bytes()),
            (Phase::Open, Half::WebSocket(half)) => Some(half.message_bytes()),
            (Phase::Open, Half::EventStream(_)) | (Phase::Finishing(_) | Phase::Lingering(_) | Phase::Over, _) => None,
        }
    }

    /// What has come of a request that has not come in whole, bytes; none if there is no such request.
    pub(in crate::engine) fn unfinished_bytes(&self) -> Option<usize> {
        let Half::Http(half) = &self.half else { return None };
        let leftover = self.leftover.as_ref().map_or(0, |leftover| leftover.bytes.len());
        let unfinished = self.phase == Phase::Open && (half.is_receiving() || half.has_partial_head());
        unfinished.then(|| leftover + half.body_bytes())
    }

    /// Memory held by what has come in and is not complete, bytes.
    pub(in crate::engine) fn held_bytes(&self) -> usize {
        let leftover = self.leftover.as_ref().map_or(0, |leftover| leftover.bytes.capacity());
        let half = match &self.half {
            Half::Http(half) => half.held_bytes(),
            Half::WebSocket(half) => half.held_bytes(),
            Half::EventStream(_) => 0,
        };
        leftover + half
    }

    /// How to tell the length of a message in its queue.
    pub(in crate::engine) const fn message_len(&self) -> fn(&[u8]) -> Option<usize> {
        match &self.half {
            Half::WebSocket(_) => frame_len,
            Half::EventStream(half) => event_stream::message_len(half.framing()),
            Half::Http(_) => |_| None,
        }
    }

    /// The body or message that is being received.
    pub(in crate::engine) fn reception_mut(&mut self) -> Option<&mut Reception> {
        match &mut self.half {
            Half::Http(half) => half.reception_mut(),
            Half::WebSocket(half) => half.reception_mut(),
            Half::EventStream(_) => None,
        }
    }

    /// Whether it holds what was lent to it.
    pub(in crate::engine) fn is_borrowing(&mut self) -> bool {
        self.reception_mut().is_some_and(|reception| reception.is_borrowing())
    }

    /// When that has to be looked at; none if none is being received.
    pub(in crate::engine) fn reception_deadline(&mut self) -> Option<Deadline> {
        self.reception_mut().map(|reception| reception.deadline())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten thousand idle consumers are the ordinary case: see what a field costs before adding it.
    #[test]
    fn an_idle_consumer_is_small() {
        assert!(size_of::<Connection>() <= 352, "{} bytes", size_of::<Connection>());
    }

    #[test]
    fn a_lingering_close_ends_by_bytes_and_by_time() {
        let mut linger = Linger::new(Duration::from_secs(5));
        assert_eq!(linger.deadline(Now(1000)), Deadline(6000));
        linger.shorten(Duration::from_secs(1));
        assert_eq!(linger.deadline(Now(1000)), Deadline(2000));
        linger.shorten(Duration::from_secs(3));
        assert_eq!(linger.deadline(Now(1000)), Deadline(2000));
        assert!(linger.discard(DISCARD_BYTES_MAX));
        assert!(!linger.discard(1));
    }
}
