//! What the relays of all cores share: bounds, keys, and a handful of atomics.
//!
//! Among these are the recency tick, the number of sessions, and each owner's oldest tick, with which the session cap
//! is kept exactly without a lock or a scan (`ingest/session_cap.rs`).

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};

use tracing::warn;

use crate::base::segment_pool::PoolBudget;
use crate::base::seldom::Seldom;
use crate::base::time::Now;
use crate::engine::service::CoreId;
use crate::limits::Limits;
use crate::ops::metrics::CoreMetrics;
use crate::protocol::owners::Owners;

use crate::relay::event::Fingerprinter;

/// A published oldest tick that stands for "no session here".
const NO_SESSION: u64 = u64::MAX;

/// What the relays of all cores share.
#[derive(Debug)]
pub struct Shared {
    /// Every bound.
    pub limits: Limits,
    /// Whether a token is configured, without which control is refused (§7).
    pub control: bool,
    /// Names this process in its hello, hexadecimal.
    pub instance: String,
    /// The keys of all fingerprints.
    pub fingerprinter: Fingerprinter,
    /// The bytes of all replay buffers together.
    pub replay_budget: Arc<PoolBudget>,
    /// SSE streams and WebSocket subscriptions, all cores.
    pub subscribers: AtomicUsize,
    /// WebSocket parties that have said hello, all cores.
    pub parties: AtomicUsize,
    /// Positions waiting to be judged against the first event of their session (`reader/replay.rs`).
    pub judgements: AtomicUsize,
    /// Bytes of what connections say of themselves, subscribe to and claim, all cores.
    remembered_bytes: AtomicUsize,
    /// Subscriptions refused for these.
    refusals: Seldom,
    tick: AtomicU64,
    /// Sessions held, less the evictions claimed and not made yet. Below 0 for a moment if the byte budget takes what
    /// was claimed.
    sessions: AtomicIsize,
    oldest: Vec<AtomicU64>,
    /// Who owns a session, or an agent's live events.
    pub owners: Owners,
}

/// What a subscription is told that [`Shared::refuses_to_remember`] for.
pub const REMEMBERS_TOO_MUCH: &str =
    "AEP_SUBSCRIPTION_BYTES: all connections together make the relay remember too much";

impl Shared {
    /// What `cores` relays share under `limits`.
    #[must_use]
    pub fn new(limits: Limits, cores: usize, control: bool) -> Self {
        Self {
            replay_budget: PoolBudget::new(limits.replay_bytes_max),
            control,
            instance: format!("{:016x}", RandomState::new().hash_one(cores)),
            fingerprinter: Fingerprinter::new(),
            subscribers: AtomicUsize::new(0),
            parties: AtomicUsize::new(0),
            judgements: AtomicUsize::new(0),
            remembered_bytes: AtomicUsize::new(0),
            refusals: Seldom::default(),
            tick: AtomicU64::new(1),
            sessions: AtomicIsize::new(0),
            oldest: (0..cores).map(|_| AtomicU64::new(NO_SESSION)).collect(),
            owners: Owners::new(cores),
            limits,
        }
    }

    /// What some connection says of itself, subscribes to or claims takes `after` bytes instead of `before`, on the
    /// core whose metrics are given.
    pub fn remember(&self, metrics: &CoreMetrics, before: usize, after: usize) {
        metrics.remembered_bytes.raise(after.saturating_sub(before) as u64);
        metrics.remembered_bytes.lower(before.saturating_sub(after) as u64);
        if after >= before {
            self.remembered_bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.remembered_bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Whether so many bytes more would be too much for all connections together.
    #[must_use]
    pub fn remembers_too_much(&self, more: usize) -> bool {
        self.remembered_bytes.load(Ordering::Relaxed).saturating_add(more) > self.limits.remembered_bytes_max
    }

    /// Whether a subscription or hello of so many bytes is refused for that; the log tells once a minute.
    #[must_use]
    pub fn refuses_to_remember(&self, more: usize, now: Now) -> bool {
        let refuses = self.remembers_too_much(more);
        if refuses && let Some(times) = self.refusals.happened(now) {
            warn!(times, "AEP_SUBSCRIPTION_BYTES is reached: subscriptions and large hellos are refused");
        }
        refuses
    }

    /// Whether nothing is remembered for anybody.
    #[cfg(test)]
    pub(in crate::relay) fn remembers_nothing(&self) -> bool {
        self.remembered_bytes.load(Ordering::Relaxed) == 0
    }

    /// Takes `events` consecutive recency ticks; answers the first.
    pub fn take_ticks(&self, events: usize) -> u64 {
        self.tick.fetch_add(events as u64, Ordering::Relaxed)
    }

    /// Sessions held by all cores, without those whose eviction is claimed.
    #[must_use]
    pub fn sessions(&self) -> usize {
        usize::try_from(self.sessions.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Counts a session that was created; whether it is over the cap, so that an eviction is owed for it.
    #[must_use]
    pub fn session_created(&self) -> bool {
        let before = self.sessions.fetch_add(1, Ordering::AcqRel);
        usize::try_from(before).is_ok_and(|before| before >= self.limits.sessions_max)
    }

    /// Counts a session that went for its bytes.
    pub fn session_evicted(&self) {
        self.sessions.fetch_sub(1, Ordering::AcqRel);
    }

    /// Claims the eviction of one session if there are more than the cap allows. In the same step that session counts
    /// as gone, so that no other core claims it, too.
    #[must_use]
    pub fn claim_eviction(&self) -> bool {
        let one_less = |sessions: isize| {
            let over = usize::try_from(sessions).is_ok_and(|sessions| sessions > self.limits.sessions_max);
            over.then(|| sessions - 1)
        };
        self.sessions.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok()
    }

    /// Gives a claimed eviction back: it was not made.
    pub fn release_eviction(&self) {
        self.sessions.fetch_add(1, Ordering::AcqRel);
    }

    /// Tells the other cores the tick of this core's least recently written session.
    pub fn publish_oldest(&self, core: CoreId, tick: Option<u64>) {
        if let Some(slot) = self.oldest.get(usize::from(core.0)) {
            slot.store(tick.unwrap_or(NO_SESSION), Ordering::Release);
        }
    }

    /// The core whose oldest session is the least recently written, and its tick.
    #[must_use]
    pub fn oldest(&self) -> Option<(CoreId, u64)> {
        self.oldest_of(|_| true)
    }

    /// Like [`Shared::oldest`], of the cores other than `except`.
    #[must_use]
    pub fn oldest_elsewhere(&self, except: CoreId) -> Option<(CoreId, u64)> {
        self.oldest_of(|core| core != except)
    }

    fn oldest_of(&self, eligible: impl Fn(CoreId) -> bool) -> Option<(CoreId, u64)> {
        (0u16..)
            .map(CoreId)
            .zip(&self.oldest)
            .filter(|(core, _)| eligible(*core))
            .map(|(core, tick)| (core, tick.load(Ordering::Acquire)))
            .filter(|(_, tick)| *tick != NO_SESSION)
            .min_by_key(|(_, tick)| *tick)
    }
}
