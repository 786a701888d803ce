//! Metrics: one table of name, kind and help, a set of counters per core, and their exposition as text.
//!
//! **How to add one**: add a row to the table in [`CoreMetrics`]'s definition below: its doc comment is the help text
//! of the exposition, its field name (after `aep_relay_`) the metric's name, its type the kind: [`Counter`], [`Gauge`],
//! [`Histogram`], or [`Counters`] and [`Gauges`] for one value per member of a label. A label is an enum made with
//! `labels!`. Then count: `core.metrics.events_in.add(n)`. Nothing else is to be registered.
//!
//! Each core has its own [`CoreMetrics`] and is the only one to write it, so counting is a plain load and store and no
//! core ever waits for another's cache line. So has each thread that is no core, by its name. A scrape adds them up;
//! only connections are also told apart by core, since balance over cores is what an operator looks for there.
//!
//! Invariants: labels are enums of ours and never a client's text, so the number of lines is fixed by the table and
//! the number of cores, whatever clients do; a gauge is what was raised less what was lowered, and never negative.

mod exposition;
mod labels;
mod value;

use std::sync::Arc;

pub use exposition::CONTENT_TYPE;
pub use labels::{
    CommandOutcome, ConnectionKind, Ending, Endpoint, EvictionCause, Label, RejectionCode, RequestLabels, StatusClass,
};
pub use value::{Counter, Counters, Gauge, Gauges, Histogram};

use value::{MetricValue, Sample};

/// Declares the metrics of a core: the struct, and the list of its rows that the exposition walks.
macro_rules! table {
    ($(#[doc = $help:literal] $field:ident: $kind:ty,)+) => {
        /// The metrics of one core, written by that core alone.
        #[derive(Debug, Default)]
        // Two cores' counters never share a cache line, nor the pair of lines that is prefetched together.
        #[repr(align(128))]
        pub struct CoreMetrics {
            $(#[doc = $help] pub $field: $kind,)+
        }

        /// Name, help and value of every metric.
        const ROWS: &[MetricRow] = &[$(MetricRow {
            name: stringify!($field),
            help: $help,
            value: |core| &core.$field,
        },)+];
    };
}

table! {
    /// Open connections.
    connections: Gauges<ConnectionKind>,
    /// Connections taken from the listeners.
    accepted: Counter,
    /// Connections answered 503 for the connection limit or for want of file descriptors.
    refused: Counter,
    /// Connections handed over to a core with fewer of them.
    handed_over: Counter,
    /// Connections that ended, by reason.
    endings: Counters<Ending>,
    /// Requests answered, by endpoint and status class.
    requests: Counters<RequestLabels>,
    /// Bytes read from sockets.
    bytes_in: Counter,
    /// Bytes written to sockets.
    bytes_out: Counter,
    /// Write calls that took bytes.
    writes: Counter,
    /// Turns of the event loop.
    turns: Counter,
    /// How long turns took, from the end of one poll to the beginning of the next.
    turn_seconds: Histogram,
    /// Turns at whose end publishers had to wait for consumers.
    congested_turns: Counter,
    /// Bytes of mail from other cores that waits to be read.
    mailbox_bytes: Gauge,
    /// Bytes of delivery blocks in use.
    delivery_block_bytes: Gauge,
    /// Bytes copied out of delivery blocks for connections that lag.
    backlog_bytes: Gauge,
    /// Bytes of requests, bodies and messages being received.
    receiving_bytes: Gauge,
    /// Bytes of what connections say of themselves, subscribe to and claim.
    remembered_bytes: Gauge,
    /// Events accepted, duplicates included.
    events_in: Counter,
    /// Events and batches rejected, by code.
    rejected: Counters<RejectionCode>,
    /// Events whose source and id the session's buffer already held.
    duplicates: Counter,
    /// Events handed to consumers, once for each.
    deliveries: Counter,
    /// Events not handed to a consumer that fell behind, once for each.
    dropped: Counter,
    /// Consumers cut for being too slow.
    slow_consumers: Counter,
    /// Event streams and WebSocket subscriptions.
    subscriptions: Gauge,
    /// Replays begun.
    replays: Counter,
    /// Gaps announced to consumers.
    replay_exhausted: Counter,
    /// Sessions held.
    sessions: Gauge,
    /// Sessions evicted whole, by the bound that asked for it.
    sessions_evicted: Counters<EvictionCause>,
    /// Bytes of replay buffers.
    replay_bytes: Gauge,
    /// Control commands, by outcome.
    commands: Counters<CommandOutcome>,
}

/// One metric of the table.
struct MetricRow {
    name: &'static str,
    help: &'static str,
    value: fn(&CoreMetrics) -> &dyn MetricValue,
}

/// The metrics of the process: those of each core, and of each thread that is none.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Of the cores, then of the threads.
    sets: Arc<[Arc<CoreMetrics>]>,
    cores: usize,
    threads: Arc<[&'static str]>,
}

impl Metrics {
    /// Metrics for that many cores, all at 0.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self::with_threads(cores, &[])
    }

    /// The same, and a set for each of these threads, by its name.
    #[must_use]
    pub fn with_threads(cores: usize, threads: &[&'static str]) -> Self {
        let sets = (0..cores + threads.len()).map(|_| Arc::default()).collect();
        Self { sets, cores, threads: threads.into() }
    }

    /// The set that the thread of that name counts in; one that does not exist counts where nobody looks.
    #[must_use]
    pub fn thread(&self, name: &str) -> Arc<CoreMetrics> {
        let place = self.threads.iter().position(|thread| *thread == name);
        place.and_then(|place| self.sets.get(self.cores + place)).cloned().unwrap_or_default()
    }

    /// The set that the core counts in; a core that does not exist counts where nobody looks.
    #[must_use]
    pub fn core(&self, index: usize) -> Arc<CoreMetrics> {
        self.sets.get(..self.cores).and_then(|cores| cores.get(index)).cloned().unwrap_or_default()
    }

    /// Everything as text of [`CONTENT_TYPE`].
    #[must_use]
    pub fn exposition(&self) -> String {
        exposition::encode(&self.sets, self.cores)
    }

    /// The sum of one value over all sets: `metrics.sum(|core| core.sessions.value())`.
    #[must_use]
    pub fn sum(&self, value: impl Fn(&CoreMetrics) -> u64) -> u64 {
        self.sets.iter().map(|set| value(set)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::time::Duration;

    #[test]
    fn counts_of_all_cores_are_added_up_and_connections_told_apart() {
        let metrics = Metrics::new(2);
        let (first, second) = (metrics.core(0), metrics.core(1));
        first.events_in.add(3);
        second.events_in.add(4);
        second.connections.raise(ConnectionKind::EventStream);
        second.endings.increment(Ending::SlowConsumer);
        first.requests.increment(RequestLabels { endpoint: Endpoint::Events, status: StatusClass::of(202) });
        first.turn_seconds.observe(Duration::from_millis(7));
        second.turn_seconds.observe(Duration::from_millis(1500));
        first.sessions.set(5);
        second.sessions.set(6);

        let text = metrics.exposition();
        for line in [
            "# HELP aep_relay_events_in Events accepted, duplicates included.",
            "# TYPE aep_relay_events_in counter",
            "aep_relay_events_in_total 7",
            "aep_relay_connections{kind=\"sse\",core=\"1\"} 1",
            "aep_relay_connections{kind=\"sse\",core=\"0\"} 0",
            "aep_relay_endings_total{reason=\"slow-consumer\"} 1",
            "aep_relay_requests_total{endpoint=\"events\",status=\"2xx\"} 1",
            "aep_relay_sessions 11",
            "aep_relay_turn_seconds_bucket{le=\"0.005\"} 0",
            "aep_relay_turn_seconds_bucket{le=\"0.01\"} 1",
            "aep_relay_turn_seconds_bucket{le=\"1.0\"} 1",
            "aep_relay_turn_seconds_bucket{le=\"+Inf\"} 2",
            "aep_relay_turn_seconds_count 2",
            "aep_relay_turn_seconds_sum 1.507",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert_eq!(metrics.sum(|core| core.sessions.value()), 11);
    }

    #[test]
    fn the_number_of_lines_does_not_depend_on_what_was_counted() {
        let metrics = Metrics::new(3);
        let before = metrics.exposition().lines().count();
        let core = metrics.core(1);
        core.requests.increment(RequestLabels { endpoint: Endpoint::Other, status: StatusClass::of(777) });
        core.rejected.increment(RejectionCode::InvalidEvent);
        core.bytes_out.add(u64::MAX);
        core.bytes_out.add(u64::MAX);
        assert_eq!(metrics.exposition().lines().count(), before);
    }

    #[test]
    fn every_name_and_help_is_fit_for_the_exposition() {
        let mut names = HashSet::new();
        for row in ROWS {
            assert!(names.insert(row.name), "{} twice", row.name);
            assert!(row.help.starts_with(' ') && row.help.ends_with('.'), "{}: {:?}", row.name, row.help);
            assert!(!row.name.ends_with("_total"), "{}: counters get their suffix by themselves", row.name);
        }
    }

    #[test]
    fn a_core_that_does_not_exist_counts_where_nobody_looks() {
        let metrics = Metrics::new(1);
        let before = metrics.exposition();
        metrics.core(1).turns.increment();
        assert_eq!(metrics.exposition(), before);
    }

    #[test]
    fn a_thread_has_a_set_of_its_own_which_is_added_up_and_no_core() {
        let metrics = Metrics::with_threads(1, &["first", "second"]);
        let lines = Metrics::new(1).exposition();
        assert_eq!(metrics.exposition(), lines);
        metrics.core(0).events_in.add(1);
        metrics.thread("first").events_in.add(2);
        metrics.thread("second").events_in.add(4);
        metrics.thread("third").events_in.add(8);
        metrics.core(1).events_in.add(16);
        assert_eq!(metrics.sum(|set| set.events_in.value()), 7);
        assert_eq!(metrics.thread("second").events_in.value(), 4);
        assert!(metrics.exposition().contains("aep_relay_events_in_total 7\n"));
        assert_eq!(metrics.exposition().lines().count(), lines.lines().count());
    }
}
