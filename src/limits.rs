//! Every bound of the relay, by floor: unit, default, and what the peer sees when it is reached.
//!
//! [`Limits`] is a plain value made once by `ops/config.rs` and handed down; nothing below reads a setting from
//! elsewhere. Bounds that no operator needs to turn are constants here.

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
    /// Bytes of all request bodies and WebSocket messages being received; beyond it readers wait.
    pub receiving_bytes_max: usize,
    /// Bytes of a request head; over it 431, a request line alone over it 414.
    pub head_bytes_max: usize,
    /// From a request's first byte to the end of its head; over it 408.
    pub head_time: Duration,
    /// From the end of the head to the end of the body, for the first `body_time × BODY_RATE` bytes; a longer body must
    /// keep at least [`BODY_BYTES_PER_SECOND_MIN`] on average; under it 408.
    pub body_time: Duration,
    /// A kept-alive connection without a request is closed silently after this.
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
    /// Bytes of a hello: error `invalid-hello`, close 1008.
    pub hello_bytes_max: usize,
}

/// Bytes a body must bring per second once `body_time` is over; under it 408.
pub const BODY_BYTES_PER_SECOND_MIN: usize = 1024;
/// Header fields of one request; over it 431.
pub const HEADER_FIELDS_MAX: usize = 100;
/// Fragments of one WebSocket message; over it close code 1009.
pub const FRAGMENTS_MAX: usize = 65_536;
/// Silence after which a protocol ping goes to a WebSocket peer.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Silence after which a WebSocket peer is dropped.
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
/// Cores of one process: positions of cores fit one mask.
pub const CORES_MAX: usize = 64;
/// Bytes that extra framing may add to one message in a write queue.
pub const FRAMING_BYTES: usize = 64 << 10;

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
