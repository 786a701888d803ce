//! A connection that consumes, as the reader sees it: its subscriptions and what it is owed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::protocol::binding::Binding;

use crate::relay::mail::SubRef;
use crate::relay::reader::position_log::PositionLog;

/// Marks of pushes that a peer's own log counts, beside those of its class's stream.
pub const OWN_MARK: u64 = 1 << 63;

/// A session of a subscription, as `closing` names it.
pub type PositionKey = (SubRef, Arc<str>);

/// Positions of a WebSocket peer that its class's log does not tell (§6.6).
#[derive(Debug)]
pub struct OwnPositions {
    /// One more than the bytes ever pushed to this peer by itself; the offset of `log`, marked with [`OWN_MARK`]. One
    /// more, because what is adopted before the first of them lies at this offset, and offsets count from above 0.
    pub pushed: u64,
    /// What was pushed to it by itself.
    pub log: PositionLog<PositionKey>,
    /// Class runs still queued when it left its class; offsets of that class's stream.
    pub carried: PositionLog<PositionKey>,
    /// Where `pushed` stood then: what `log` has up to here is older than what was carried.
    pub carried_at: u64,
    /// Bytes that it was last counted for.
    pub counted: usize,
    sessions_max: usize,
}

impl OwnPositions {
    /// An empty book of at most `sessions_max` sessions per subscription.
    #[must_use]
    pub fn new(sessions_max: usize) -> Self {
        let (log, carried) = (PositionLog::new(sessions_max), PositionLog::new(sessions_max));
        Self { pushed: 1, log, carried, carried_at: 0, counted: 0, sessions_max }
    }

    /// Bytes that it takes, beside the names of sessions.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.log.footprint() + self.carried.footprint()
    }

    /// Everything that was carried and everything pushed up to now has left for good: one book again.
    pub fn fold_carried(&mut self) {
        self.log.settle(u64::MAX);
        let carried = std::mem::replace(&mut self.carried, PositionLog::new(self.sessions_max));
        self.log.adopt(self.carried_at, carried.handed(0, u64::MAX));
    }
}

/// A consuming connection.
#[derive(Debug)]
pub struct Peer {
    /// How bytes reach it.
    pub binding: Binding,
    /// Its subscriptions, in the order they were made.
    pub subs: Vec<SubRef>,
    /// Bytes that they make the relay keep.
    pub weight: usize,
    /// Events dropped toward it and not announced yet (§9).
    pub dropped: u64,
    /// Cut, or ending: nothing more is delivered.
    pub ended: bool,
    /// Kept once a WebSocket peer was looked at singly.
    pub positions: Option<Box<OwnPositions>>,
    /// Fingerprints of commands handed to it while it replays: catching up must not bring them again. Forgotten with
    /// the end of its last replay.
    pub commands: Option<Box<HashSet<u128>>>,
    /// Subscriptions by the client's name, once there are too many to search.
    pub by_id: Option<Box<HashMap<Arc<str>, SubRef>>>,
}
