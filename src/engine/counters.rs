//! What a core counts, for the metrics: written by its core alone, read by anybody, never reset.
//!
//! Plain relaxed atomics: a reader may see one counter ahead of another, never a torn one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::service::Ending;

/// What a connection is at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionKind {
    /// It speaks HTTP.
    Http,
    /// It is an event stream.
    EventStream,
    /// It is a WebSocket.
    WebSocket,
}

/// One number.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The present value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Only its core writes, so that a load and a store are enough.
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.value().wrapping_add(more), Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, less: u64) {
        self.0.store(self.value().wrapping_sub(less), Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// The counters of one core.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections taken on.
    pub accepted: Counter,
    /// Connections answered 503 because of the connection limit or for want of descriptors.
    pub refused: Counter,
    /// Turns of the loop.
    pub turns: Counter,
    /// Calls of `write`.
    pub writes: Counter,
    /// Bytes read from sockets.
    pub bytes_in: Counter,
    /// Bytes that sockets took.
    pub bytes_out: Counter,
    /// Bytes of delivery blocks in use (a level).
    pub delivery_bytes: Counter,
    /// Bytes of backlogs (a level).
    pub backlog_bytes: Counter,
    connections: [Counter; 3],
    endings: [Counter; ENDINGS.len()],
}

/// Every ending, in the order of its index.
pub const ENDINGS: [Ending; 11] = [
    Ending::Peer,
    Ending::SocketError,
    Ending::Complete,
    Ending::Timeout,
    Ending::Idle,
    Ending::ProtocolError,
    Ending::Service,
    Ending::SlowConsumer,
    Ending::Silent,
    Ending::Refused,
    Ending::Drain,
];

impl Counters {
    /// Connections of that kind at present.
    #[must_use]
    pub const fn connections(&self, kind: ConnectionKind) -> &Counter {
        &self.connections[kind as usize]
    }

    /// Connections that ended that way.
    #[must_use]
    pub const fn endings(&self, ending: Ending) -> &Counter {
        &self.endings[ending as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_its_own_counter() {
        let counters = Counters::default();
        for ending in ENDINGS {
            assert_eq!(counters.endings(ending).value(), 0, "{ending:?}");
            counters.endings(ending).add(1);
        }
        assert_eq!(ENDINGS[Ending::Drain as usize], Ending::Drain);
    }
}
