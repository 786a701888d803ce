//! The values a core counts in: counters and gauges, single or one per member of a label, and histograms of times.
//!
//! One writer each, any number of readers: a change is a relaxed load and a relaxed store, without a locked
//! instruction. A second writer would lose changes, so a value belongs to its core's thread. Readers see each value
//! whole, though not all values of one instant.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::labels::Label;

/// A count that only rises; wraps at 2^64.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds 1.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.store(self.value().wrapping_add(n), Ordering::Relaxed);
    }

    /// The count.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A level that rises and falls, never below 0.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Raises the level by `n`.
    pub fn raise(&self, n: u64) {
        self.set(self.value().saturating_add(n));
    }

    /// Lowers the level by `n`, which had been raised before.
    pub fn lower(&self, n: u64) {
        debug_assert!(self.value() >= n, "a gauge is lowered by what it was raised by");
        self.set(self.value().saturating_sub(n));
    }

    /// Sets the level.
    pub fn set(&self, level: u64) {
        self.0.store(level, Ordering::Relaxed);
    }

    /// The level.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A [`Counter`] for each member of a label.
pub struct Counters<L>(PerMember<Counter, L>);

impl<L: Label> Counters<L> {
    /// Adds 1 to the member's count.
    pub fn increment(&self, member: L) {
        self.add(member, 1);
    }

    /// Adds `n` to the member's count.
    pub fn add(&self, member: L, n: u64) {
        self.0.of(member, |counter| counter.add(n));
    }

    /// The member's count.
    #[must_use]
    pub fn value(&self, member: L) -> u64 {
        self.0.of(member, Counter::value)
    }
}

/// A [`Gauge`] for each member of a label.
pub struct Gauges<L>(PerMember<Gauge, L>);

impl<L: Label> Gauges<L> {
    /// Raises the member's level by 1.
    pub fn raise(&self, member: L) {
        self.0.of(member, |gauge| gauge.raise(1));
    }

    /// Lowers the member's level by 1.
    pub fn lower(&self, member: L) {
        self.0.of(member, |gauge| gauge.lower(1));
    }

    /// The member's level.
    #[must_use]
    pub fn value(&self, member: L) -> u64 {
        self.0.of(member, Gauge::value)
    }
}

/// Upper ends of the buckets of a [`Histogram`], seconds; what is longer goes into one more.
pub(super) const BUCKETS: [f64; 12] = [0.0001, 0.0003, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];
/// The same in microseconds.
const BUCKETS_US: [u64; BUCKETS.len()] =
    [100, 300, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];

/// How many times took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One more than [`BUCKETS`].
    counts: [Counter; BUCKETS.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    /// Counts one time.
    pub fn observe(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_US.iter().position(|end| us <= *end).unwrap_or(BUCKETS_US.len());
        if let Some(count) = self.counts.get(bucket) {
            count.increment();
        }
        self.sum_us.add(us);
    }
}

/// One value per member of a label, in the order of [`Label::members`].
struct PerMember<V, L> {
    values: Box<[V]>,
    label: PhantomData<fn(L)>,
}

impl<V: Default, L: Label> PerMember<V, L> {
    fn new() -> Self {
        Self { values: L::members().map(|_| V::default()).collect(), label: PhantomData }
    }
}

impl<V, L: Label> PerMember<V, L> {
    /// `members()` and `index()` come from one declaration, so the value is there.
    fn of<T: Default>(&self, member: L, act: impl FnOnce(&V) -> T) -> T {
        let value = self.values.get(member.index());
        debug_assert!(value.is_some(), "a label's index lies within its members");
        value.map(act).unwrap_or_default()
    }
}

macro_rules! per_member_traits {
    ($($kind:ident),+) => {$(
        impl<L: Label> Default for $kind<L> {
            fn default() -> Self {
                Self(PerMember::new())
            }
        }

        impl<L: Label> fmt::Debug for $kind<L> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_list().entries(L::members().map(|member| self.value(member))).finish()
            }
        }
    )+};
}
per_member_traits!(Counters, Gauges);

/// What the samples of a value mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// It only rises.
    Counter,
    /// It rises and falls.
    Gauge,
    /// A count for each of [`BUCKETS`] and for what is longer, then the sum of all times in microseconds.
    Histogram,
}

/// One line's worth of a value.
pub(super) struct Sample {
    /// Label names and members, none for a single value.
    pub(super) labels: Vec<(&'static str, &'static str)>,
    pub(super) value: u64,
}

/// What the exposition asks of every value: always the same samples in the same order.
pub(super) trait MetricValue {
    fn kind(&self) -> MetricKind;
    fn samples(&self) -> Vec<Sample>;
}

impl MetricValue for Counter {
    fn kind(&self) -> MetricKind {
        MetricKind::Counter
    }

    fn samples(&self) -> Vec<Sample> {
        vec![Sample { labels: Vec::new(), value: self.value() }]
    }
}

impl MetricValue for Gauge {
    fn kind(&self) -> MetricKind {
        MetricKind::Gauge
    }

    fn samples(&self) -> Vec<Sample> {
        vec![Sample { labels: Vec::new(), value: self.value() }]
    }
}

impl MetricValue for Histogram {
    fn kind(&self) -> MetricKind {
        MetricKind::Histogram
    }

    fn samples(&self) -> Vec<Sample> {
        let values = self.counts.iter().chain([&self.sum_us]).map(Counter::value);
        values.map(|value| Sample { labels: Vec::new(), value }).collect()
    }
}

impl<L: Label> MetricValue for Counters<L> {
    fn kind(&self) -> MetricKind {
        MetricKind::Counter
    }

    fn samples(&self) -> Vec<Sample> {
        L::members().map(|member| Sample { labels: member.labels(), value: self.value(member) }).collect()
    }
}

impl<L: Label> MetricValue for Gauges<L> {
    fn kind(&self) -> MetricKind {
        MetricKind::Gauge
    }

    fn samples(&self) -> Vec<Sample> {
        L::members().map(|member| Sample { labels: member.labels(), value: self.value(member) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::labels::ConnectionKind;
    use super::*;

    #[test]
    fn a_gauge_comes_back_to_zero() {
        let gauge = Gauge::default();
        gauge.raise(7);
        gauge.lower(3);
        gauge.lower(4);
        assert_eq!(gauge.value(), 0);
        let gauges = Gauges::<ConnectionKind>::default();
        gauges.raise(ConnectionKind::WebSocket);
        assert_eq!(gauges.value(ConnectionKind::WebSocket), 1);
        assert_eq!(gauges.value(ConnectionKind::Http), 0);
        gauges.lower(ConnectionKind::WebSocket);
        assert_eq!(gauges.value(ConnectionKind::WebSocket), 0);
    }

    #[test]
    fn a_time_falls_into_the_first_bucket_that_takes_it() {
        for (seconds, us) in BUCKETS.into_iter().zip(BUCKETS_US) {
            assert_eq!(Duration::from_secs_f64(seconds), Duration::from_micros(us));
        }
        let histogram = Histogram::default();
        for us in [0, 100, 101, 10_000, 1_000_001] {
            histogram.observe(Duration::from_micros(us));
        }
        let values: Vec<u64> = histogram.samples().iter().map(|sample| sample.value).collect();
        assert_eq!(values, [2, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1_010_202]);
    }

    #[test]
    fn each_member_has_its_own_value() {
        let counters = Counters::<ConnectionKind>::default();
        for (times, member) in ConnectionKind::members().enumerate() {
            counters.add(member, times as u64 + 1);
        }
        let values: Vec<u64> = counters.samples().iter().map(|sample| sample.value).collect();
        assert_eq!(values, [1, 2, 3]);
    }
}
