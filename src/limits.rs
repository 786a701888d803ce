//! Every bound of the relay, by floor: unit, default, and what the peer sees when it is reached (contract §1).
//!
//! [`Limits`] is a plain value made once by `ops/config.rs` and handed down; nothing below reads a setting from
//! elsewhere. Bounds that no operator needs to turn are constants here. [`Limits::memory_budget`] adds up what they
//! allow.
//!
//! Invariants, kept by `ops/config.rs` for settings and by the assertions below for constants:
//! - `body_bytes_max ≤ MESSAGE_BYTES_MAX`, so that offsets into a batch or a block fit 32 bits;
//! - `body_bytes_max + FRAMING_BYTES ≤ write_queue_bytes_max ≤ backlog_bytes_max`, and the first of these fits
//!   `delivery_bytes_max`: one event of the largest accepted size can always be delivered (§9);
//! - `body_bytes_max ≤ receiving_bytes_max`: one body of the largest accepted size can always be received;
//! - `replay_bytes_min ≤ replay_bytes_max`: an admitted event always finds room once older ones have left.

use std::fmt;
use std::time::Duration;

/// Every settable bound. Counts and sizes are ≥ 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    // ── engine ──
    /// Open connections of the process; over it a new one gets 503 with `Retry-After`.
    pub connections_max: usize,
    /// Bytes queued toward one connection. An empty queue takes any one message. Beyond: slow consumer (§9).
    pub write_queue_bytes_max: usize,
    /// Bytes of all connections' own backlogs together; beyond it the largest is cut first (§9).
    pub backlog_bytes_max: usize,
    /// Bytes of one core's delivery blocks; beyond it the oldest block's readers copy their rest into their backlog.
    pub delivery_bytes_max: usize,
    /// Bytes of all requests and WebSocket messages being received. Beyond it one of them is read on, and the others
    /// wait for no longer than `body_time`: 503 with `Retry-After`, or close code 1013. The first
    /// [`RECEIVE_BYTES_FREE`] of each never wait.
    pub receiving_bytes_max: usize,
    /// Bytes that all connections' hellos, subscriptions with the positions they were handed, and claims take together.
    /// Beyond it subscriptions are refused and so are hellos larger than [`CONNECTION_BYTES`], and of who claims more
    /// only the newest claim stands.
    pub remembered_bytes_max: usize,
    /// Bytes of a request head; over it 431, a request line alone over it 414.
    pub head_bytes_max: usize,
    /// From a request's first byte to the end of its head; over it 408.
    pub head_time: Duration,
    /// From the end of the head to the end of the body, or from a WebSocket message's first byte to its last. Then it
    /// must go on bringing [`BODY_BYTES_PER_SECOND_MIN`], judged over the last [`BODY_RATE_TIME`]; under it 408, or
    /// close code 1008.
    pub body_time: Duration,
    /// A connection without a request, a fresh or a kept-alive one, is closed silently after this.
    pub keep_alive_time: Duration,
    /// Silence on an event stream after which a heartbeat comment goes out.
    pub heartbeat_interval: Duration,
    /// From the signal to exit 1 if the drain does not end before.
    pub drain_time: Duration,

    // ── activity relay ──
    /// Bytes in one POST body or one WebSocket message: 413, or close code 1009.
    pub body_bytes_max: usize,
    /// Events in one NDJSON batch: 413 `too-many-events`.
    pub batch_events_max: usize,
    /// Events kept per session; the lowest position leaves first.
    pub buffer_events_max: usize,
    /// Sessions kept; the least recently written one is evicted.
    pub sessions_max: usize,
    /// Bytes of all replay buffers together; the least recently written sessions are evicted.
    pub replay_bytes_max: usize,
    /// Resume positions in one subscription: 400 / error `limit-exceeded`.
    pub from_positions_max: usize,
    /// Subscriptions of one WebSocket connection: error `limit-exceeded`.
    pub subscriptions_per_connection_max: usize,
    /// Sessions one connection claims; over it the oldest claim lapses.
    pub claims_per_connection_max: usize,
    /// Scalars in one filter: `limit-exceeded`.
    pub filter_scalars_max: usize,
    /// From the upgrade to the hello: error `hello-required`, close 1008.
    pub hello_time: Duration,
    /// Bytes of a hello: error `invalid-hello`, close 1008, as soon as it is known to be over.
    pub hello_bytes_max: usize,
}

/// Bytes that a publisher (one connection) may publish per second, and at once, while others who publish more have to
/// wait (`relay/ingest/allowance.rs`); a stage, if that is less.
pub const ALLOWANCE_BYTES: usize = 32 << 10;
/// Bytes a body or message must bring per second once `body_time` is over; under it 408, or close code 1008.
pub const BODY_BYTES_PER_SECOND_MIN: usize = 1024;
/// The time over which that is judged: what came before it earns no standing still.
pub const BODY_RATE_TIME: Duration = Duration::from_secs(10);
/// Bytes of a head, body or message that are received even when others have used `receiving_bytes_max` up: every
/// connection may hold that much beyond it.
pub const RECEIVE_BYTES_FREE: usize = 16 << 10;
/// What the one body or message that is read on beyond `receiving_bytes_max` must bring per second while others wait;
/// under it another one is read on instead.
pub const FAVOUR_BYTES_PER_SECOND_MIN: usize = 64 << 10;
/// How long it may bring less than that.
pub const FAVOUR_TIME: Duration = Duration::from_secs(1);
/// Bodies and messages at a time that hold more than `receiving_bytes_max` has room for: the one that is read on, and
/// one that was before it. For another one that loses its connection: 503 with `Retry-After`, or close code 1013.
pub const BORROWERS_MAX: usize = 2;
/// Header fields of one request; over it 431, naming this number.
pub const HEADER_FIELDS_MAX: usize = 100;
/// Fragments of one WebSocket message; over it close code 1009.
pub const FRAGMENTS_MAX: usize = 65_536;
/// Silence after which a protocol ping goes to a WebSocket peer.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);
/// A core that did not run for so long, beyond what it meant to sleep, stood still: the silence of WebSocket peers
/// counts anew.
pub const STANDSTILL_MIN: Duration = Duration::from_secs(2);
/// How late a timer of a connection may come, milliseconds. Heartbeats and time limits are hundreds of times longer,
/// and a core that has timers pending wakes at most 125 times a second for them.
pub const TIMER_TICK_MS: u64 = 8;
/// Silence after which a WebSocket peer is dropped; and so is any connection whose peer has acknowledged nothing, or
/// taken nothing of what waits for it, for so long (`TCP_USER_TIMEOUT`).
pub const PEER_SILENCE_MAX: Duration = Duration::from_secs(90);
/// How long a peer may take to answer our close before the socket is cut.
pub const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Bytes of a refused upload that are read and thrown away so that the client can read the refusal.
pub const DISCARD_BYTES_MAX: usize = 64 << 20;
/// How long a refused upload is read and thrown away.
pub const DISCARD_TIME: Duration = Duration::from_secs(5);
/// Nesting of arrays and objects in any JSON the relay reads.
pub const JSON_DEPTH_MAX: usize = 128;
/// Evicted sessions remembered, so that a resume from one is told of the gap.
pub const TOMBSTONES_MAX: usize = 4096;
/// They take at most one part in this many of `replay_bytes_max`, names included; beyond it the oldest are forgotten.
pub const TOMBSTONES_SHARE: usize = 16;
/// Memory that one connection may take by subscribing, and as much again by claiming, unless a single message may be
/// larger. Over it `limit-exceeded`; the oldest claim lapses.
pub const REMEMBERED_BYTES_MAX: usize = 16 << 20;
/// A session with a longer name is not among the positions of a `closing` frame: these are kept for every consumer, and
/// their names shall not outweigh what is delivered.
pub const CLOSING_NAME_BYTES_MAX: usize = 4 << 10;
/// Bytes of log lines that wait for whoever reads standard error; further lines are left out and counted, and the log
/// says so. As much again is being written.
pub const LOG_BYTES_MAX: usize = 256 << 10;
/// How long a process that ends waits for its last log lines to be taken, unless nothing has been taken for as long
/// already.
pub const LOG_EXIT_TIME: Duration = Duration::from_millis(500);
/// Cores of one process: positions of cores fit one mask.
pub const CORES_MAX: usize = 64;
/// Bytes of a roster or of an answer to `GET /connections`, or half a write queue if that is less: such an answer fits
/// beside what else is queued, and is copied within a turn. Beyond it entries of who has most are left out.
pub const LISTING_BYTES_MAX: usize = 8 << 20;
/// A session with a longer name is in no roster and in no answer to `GET /connections`, which say that they are
/// truncated.
pub const LISTED_NAME_BYTES_MAX: usize = 64 << 10;
/// Bytes of a write queue, or half of it if that is less, that `debug` and `info` leave to what may not be dropped
/// (§9).
pub const QUEUE_RESERVE_BYTES: usize = 64 << 10;
/// Bytes that extra framing may add to one message in a write queue.
pub const FRAMING_BYTES: usize = 64 << 10;
/// Largest settable `body_bytes_max`. Spans and runs are 32-bit; a quarter of their range leaves room for framing
/// and for the messages that share a block.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// Events of the largest accepted size that the replay memory must hold per core: one that is being admitted, and as
/// much again for what stands beside it while segments are compacted and returned.
pub const REPLAY_EVENTS_PER_CORE_MIN: usize = 4;
/// Bytes of a bearer token; a longer one is refused at start. Presented tokens are compared at this fixed size.
pub const TOKEN_BYTES_MAX: usize = 1024;
/// Stages between publishers and write queues, see [`Limits::stage_bytes`]: before an owner, and before a reader. Each
/// takes one batch of the largest size whatever it holds.
pub const STAGES: usize = 2;
/// Largest settable number of connections.
pub const CONNECTIONS_MAX: usize = 1_000_000;
/// What is counted for one connection's own state (slab entry, subscription, class membership) in the budget.
pub const CONNECTION_BYTES: usize = 1 << 10;
/// What is counted for the process whatever it serves: program, log, what the allocator keeps for itself.
pub const PROCESS_BYTES: usize = 8 << 20;
/// The same for each core: stack, read buffer, mailboxes.
pub const CORE_BYTES: usize = 1 << 20;

const _: () = assert!(MESSAGE_BYTES_MAX + FRAMING_BYTES < u32::MAX as usize / 2);
const _: () = assert!(CORES_MAX <= u64::BITS as usize);
const _: () = assert!(TOKEN_BYTES_MAX.is_multiple_of(size_of::<u64>()));
const _: () = assert!(PING_INTERVAL.as_secs() * 2 < PEER_SILENCE_MAX.as_secs());
const _: () = assert!(REPLAY_EVENTS_PER_CORE_MIN >= 2);

/// How much of a connection's write queue a push may fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// All but [`QUEUE_RESERVE_BYTES`]: for what may be dropped.
    Unreserved,
    /// All of it.
    Whole,
}

impl Default for Limits {
    fn default() -> Self {
        let body_bytes_max = 16 << 20;
        let sessions_max = 500;
        Self {
            connections_max: 100_000,
            write_queue_bytes_max: body_bytes_max + FRAMING_BYTES,
            backlog_bytes_max: 512 << 20,
            delivery_bytes_max: 64 << 20,
            receiving_bytes_max: 512 << 20,
            remembered_bytes_max: 512 << 20,
            head_bytes_max: 64 << 10,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            keep_alive_time: Duration::from_secs(75),
            heartbeat_interval: Duration::from_secs(15),
            drain_time: Duration::from_secs(5),
            body_bytes_max,
            batch_events_max: 10_000,
            buffer_events_max: 10_000,
            sessions_max,
            replay_bytes_max: 1 << 30,
            from_positions_max: sessions_max,
            subscriptions_per_connection_max: 4096,
            claims_per_connection_max: 10_000,
            filter_scalars_max: 1024,
            hello_time: Duration::from_secs(10),
            hello_bytes_max: 64 << 10,
        }
    }
}

impl Limits {
    /// Bytes of events that each stage between publishers and write queues may hold: what has been handed to an owner,
    /// what an owner admits in one turn, what waits for a core. Small beside a queue, so that publishers who are told
    /// to wait have not already sent what overflows it.
    #[must_use]
    pub fn stage_bytes(&self) -> usize {
        (self.write_queue_bytes_max / 16).clamp(4 << 10, 512 << 10)
    }

    /// What a publisher may publish in a second while others have to wait, see [`ALLOWANCE_BYTES`].
    #[must_use]
    pub fn allowance_bytes(&self) -> usize {
        ALLOWANCE_BYTES.min(self.stage_bytes())
    }

    /// Bytes that may be queued toward one connection by a push that may fill so much of it.
    #[must_use]
    pub fn queue_bytes_max(&self, room: Room) -> usize {
        let whole = self.write_queue_bytes_max;
        match room {
            Room::Unreserved => whole - QUEUE_RESERVE_BYTES.min(whole / 2),
            Room::Whole => whole,
        }
    }

    /// Bytes of the entries in one roster or one answer to `GET /connections`, see [`LISTING_BYTES_MAX`].
    #[must_use]
    pub fn listing_bytes_max(&self) -> usize {
        (self.write_queue_bytes_max / 2).min(LISTING_BYTES_MAX)
    }

    /// Bytes of one page of a replay: a queue takes it whole, and it stays in the core's cache from the buffer to the
    /// socket.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        (self.write_queue_bytes_max / 2).min(64 << 10)
    }

    /// The least `replay_bytes_max` for that many cores: below it, a core could be unable to admit an event of the
    /// largest accepted size even with every other session evicted.
    #[must_use]
    pub fn replay_bytes_min(cores: usize, body_bytes_max: usize) -> usize {
        cores.saturating_mul(REPLAY_EVENTS_PER_CORE_MIN).saturating_mul(body_bytes_max)
    }

    /// What one connection may make the relay remember, see [`REMEMBERED_BYTES_MAX`]. Never below one message, so that
    /// any accepted one can be a subscription.
    #[must_use]
    pub fn connection_remembered_bytes_max(&self) -> usize {
        self.body_bytes_max.max(REMEMBERED_BYTES_MAX)
    }

    /// How many bodies of the largest size the least bounds of that many cores hold together, see
    /// [`Limits::memory_budget`].
    #[must_use]
    pub const fn bodies_min(cores: usize) -> usize {
        const ONCE: usize = 1 + 1 + 1 + BORROWERS_MAX;
        cores * (REPLAY_EVENTS_PER_CORE_MIN + 1 + STAGES) + ONCE
    }

    /// What all bounds together allow a process of that many cores to hold, item by item.
    ///
    /// A write queue has no item of its own: what it holds are slices of delivery blocks, and what is copied out of
    /// them counts as backlog. Nor has the memory of evicted sessions, which is charged to the replay buffers. What is
    /// being received is more than its bound by what is lent beyond it, and by what every connection may bring at any
    /// time.
    #[must_use]
    pub fn memory_budget(&self, cores: usize) -> MemoryBudget {
        let lent = self.body_bytes_max.saturating_mul(BORROWERS_MAX);
        let on_their_way = self.stage_bytes().max(self.body_bytes_max).saturating_mul(STAGES);
        MemoryBudget {
            items: [
                ("replay buffers", self.replay_bytes_max),
                ("delivery blocks", self.delivery_bytes_max.saturating_mul(cores)),
                ("backlogs of slow consumers", self.backlog_bytes_max),
                ("requests and messages being received", self.receiving_bytes_max.saturating_add(lent)),
                ("events on their way between cores", on_their_way.saturating_mul(cores)),
                ("connections", (CONNECTION_BYTES + RECEIVE_BYTES_FREE).saturating_mul(self.connections_max)),
                ("what connections say of themselves, subscribe to and claim", self.remembered_bytes_max),
                ("the process itself", CORE_BYTES.saturating_mul(cores).saturating_add(PROCESS_BYTES)),
            ],
        }
    }
}

/// The bytes a process may hold by its bounds: an itemised sum, for the operator. Displayed on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryBudget {
    items: [(&'static str, usize); 8],
}

impl MemoryBudget {
    /// What is bounded, and its bound in bytes.
    #[must_use]
    pub fn items(&self) -> &[(&'static str, usize)] {
        &self.items
    }

    /// The sum in bytes; saturates.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.items.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        write!(f, "at most {} MiB:", mib(self.total_bytes()))?;
        for (index, (what, bytes)) in self.items.iter().enumerate() {
            let separator = if index == 0 { " " } else { ", " };
            write!(f, "{separator}{what} {} MiB", mib(*bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_keep_the_relations_between_bounds() {
        let limits = Limits::default();
        let largest = limits.body_bytes_max + FRAMING_BYTES;
        assert!(largest <= limits.write_queue_bytes_max);
        assert!(limits.write_queue_bytes_max <= limits.backlog_bytes_max);
        assert!(largest <= limits.delivery_bytes_max);
        assert!(limits.body_bytes_max <= limits.receiving_bytes_max);
        assert!(limits.body_bytes_max <= MESSAGE_BYTES_MAX);
        assert!(Limits::replay_bytes_min(16, limits.body_bytes_max) <= limits.replay_bytes_max);
        assert_eq!(limits.from_positions_max, limits.sessions_max);
    }

    #[test]
    fn the_memory_budget_is_the_sum_of_its_items() {
        let limits = Limits {
            replay_bytes_max: 4 << 20,
            delivery_bytes_max: 3 << 20,
            backlog_bytes_max: 2 << 20,
            receiving_bytes_max: 1 << 20,
            remembered_bytes_max: 5 << 20,
            body_bytes_max: 1 << 20,
            connections_max: 1024,
            ..Limits::default()
        };
        let budget = limits.memory_budget(2);
        assert_eq!(budget.total_bytes(), (4 + 2 * 3 + 2 + (1 + 2) + 2 * 2 + 17 + 5 + (8 + 2)) << 20);
        assert_eq!(
            budget.to_string(),
            "at most 51 MiB: replay buffers 4 MiB, delivery blocks 6 MiB, backlogs of slow consumers 2 MiB, \
             requests and messages being received 3 MiB, events on their way between cores 4 MiB, connections 17 MiB, \
             what connections say of themselves, subscribe to and claim 5 MiB, the process itself 10 MiB"
        );
    }

    #[test]
    fn the_bodies_that_the_least_bounds_hold_are_all_that_depends_on_their_size() {
        let least = |body_bytes_max: usize, cores| {
            let limits = Limits {
                body_bytes_max,
                write_queue_bytes_max: body_bytes_max,
                backlog_bytes_max: body_bytes_max,
                delivery_bytes_max: body_bytes_max,
                receiving_bytes_max: body_bytes_max,
                remembered_bytes_max: body_bytes_max,
                replay_bytes_max: Limits::replay_bytes_min(cores, body_bytes_max),
                ..Limits::default()
            };
            limits.memory_budget(cores).total_bytes()
        };
        for cores in [1, 2, 64] {
            assert_eq!(least(3 << 20, cores) - least(2 << 20, cores), Limits::bodies_min(cores) << 20);
        }
    }

    #[test]
    fn the_memory_budget_saturates_instead_of_wrapping() {
        let limits = Limits { delivery_bytes_max: usize::MAX, ..Limits::default() };
        assert_eq!(limits.memory_budget(64).total_bytes(), usize::MAX);
    }
}
