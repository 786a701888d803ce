//! What all cores share, and the messages they exchange.
//!
//! A session has one owner core ([`Owners`]): the single writer of its buffer and the one place that orders its events.
//! Agent-scoped events are ordered by the owner of their agent's name.
//!
//! Two directions, two lanes (`engine/mailbox.rs`):
//! - *core → owner* ([`OwnerInput`], ingest lane): events, commands, registrations, page requests, ends of claims. One
//!   connection's messages enter it in the order they were read, so the owner acts on them in that order.
//! - *owner → core* (the rest of [`RelayMail`], fan-out lane): events, pages, acknowledgements. It is FIFO, and the
//!   switch from replay to live rests on that: whatever an owner fanned out before it answered "caught up" was
//!   dropped at the reader and served by the page; whatever it fans out later comes behind that answer.
//!
//! What is shared is a handful of atomics: the recency tick, the number of sessions, and each owner's oldest tick, with
//! which the session cap is kept exactly without a lock or a scan (`ingest/session_cap.rs`).

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};

use tracing::warn;

use crate::base::segment_pool::PoolBudget;
use crate::base::seldom::Seldom;
use crate::base::time::Now;
use crate::engine::service::{ConnId, CoreId, Group, Mail};
use crate::limits::Limits;
use crate::ops::metrics::{CoreMetrics, EvictionCause};
use crate::protocol::owners::Owners;
use crate::protocol::shares::ACTIVITY;

use crate::relay::error::Code;
use crate::relay::event::{Batch, Fingerprinter, Position};
use crate::relay::filter::Filter;
use crate::relay::owner::claims::{ClaimNote, Control};
use crate::relay::owner::replay::{Page, PageRequest};
use crate::relay::party::roster::{Ask, Part};

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

    /// What some connection says of itself, subscribes to or claims takes `after` bytes instead of `before`, on the core whose
    /// metrics are given.
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

    /// Claims the eviction of one session if there are more than the cap allows. In the same step that session counts as
    /// gone, so that no other core claims it, too.
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

/// A subscription of one reader core: a slot of its slab and that slot's generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubRef {
    /// Slot.
    pub slot: u32,
    /// Generation.
    pub generation: u32,
}

/// What travels between the relays of different cores.
#[derive(Debug)]
pub enum RelayMail {
    /// Core → owner.
    Owner(OwnerInput),
    /// Owner → core: events in the order of their arrival.
    Fanout(Arc<Fanout>),
    /// Owner → core: a batch is admitted.
    Admitted {
        /// From [`OwnedBatch::acknowledge`].
        receipt: Receipt,
        /// Sessions it created over the cap: so many evictions are for the core that took it in.
        owed: usize,
    },
    /// Owner → core: the subscription is known; events that arrive after `arrival` come by fan-out.
    Registered {
        /// Which subscription.
        sub: SubRef,
        /// The owner's newest arrival number at that moment.
        arrival: u64,
    },
    /// Owner → core: a page of a replay.
    Page(Box<Page>),
    /// Owner → the target's core: hand this command to that connection, then answer [`OwnerInput::HandedOver`].
    Handover {
        /// Comes back in the answer.
        token: u64,
        /// The claimant's connection.
        target: ConnId,
        /// A batch of one: the command.
        command: Arc<Batch>,
    },
    /// Owner → the sender's core: what became of a command.
    CommandAnswer {
        /// The sender's connection.
        conn: ConnId,
        /// The command's id and why it was refused, if it was.
        refused: Option<(Box<str>, Code, &'static str)>,
        /// As in [`RelayMail::Admitted`]: its session had been evicted, and is back.
        owed: usize,
    },
    /// Core → owner: evict your oldest session if it still bears this tick.
    Evict {
        /// The tick.
        tick: u64,
        /// Which bound asks for it: bytes for an owner, sessions for a core that settles.
        cause: EvictionCause,
    },
    /// The answer to [`RelayMail::Evict`].
    EvictAnswered {
        /// Which bound asked.
        cause: EvictionCause,
        /// Whether it is evicted.
        done: bool,
    },
    /// Any core → any core: tell the asker what you hold.
    Gather(Ask),
    /// The answer to a gathering.
    Gathered(Part),
}

/// What an owner is told.
#[derive(Debug)]
pub enum OwnerInput {
    /// Events to be admitted and fanned out.
    Events(Box<OwnedBatch>),
    /// A command to be routed (§7).
    Command(Box<Command>),
    /// The target's queue took the command, or could not.
    HandedOver {
        /// From [`RelayMail::Handover`].
        token: u64,
        /// Whether it is queued.
        taken: bool,
    },
    /// A subscription begins; answered by [`RelayMail::Registered`].
    Register {
        /// Which one.
        sub: SubRef,
        /// The interest to be entered for the sender's core, unless it is already.
        interest: Option<Arc<Filter>>,
    },
    /// The core's last subscription with this filter ended.
    Withdraw {
        /// The filter.
        interest: Arc<Filter>,
    },
    /// A reader wants a page; answered by [`RelayMail::Page`].
    ReadPage(Box<PageRequest>),
    /// Claims of a connection end.
    Unclaim {
        /// The connection, on the sender's core.
        conn: ConnId,
        /// The sessions, all of this owner.
        sessions: Vec<Box<str>>,
    },
}

/// Events of one receiving core for one owner.
#[derive(Debug, Default)]
pub struct OwnedBatch {
    /// The events.
    pub batch: Batch,
    /// First tick of the whole batch they came in.
    pub first_tick: u64,
    /// Each event's place in that whole batch; empty if they are 0, 1, 2 …
    pub ordinals: Vec<u32>,
    /// Claims made or ended by events of this batch, ascending by event.
    pub claims: Vec<ClaimNote>,
    /// What the owner's acknowledgement shall bear. None for a routed command, whose answer is its acknowledgement.
    pub acknowledge: Option<Receipt>,
    /// Set if the batch is a routed command on its way into the history.
    pub routed: Option<Routed>,
}

/// Where a batch came from, for the core that took it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// A POST, by that core's own number.
    Post(u64),
    /// WebSockets.
    Live,
}

/// A command that its target has taken.
#[derive(Debug, Clone, Copy)]
pub struct Routed {
    /// Who sent it.
    pub sender: (CoreId, ConnId),
    /// Who got it, and gets no observer's copy.
    pub target: (CoreId, ConnId),
}

/// A command on its way to its session's owner.
#[derive(Debug)]
pub struct Command {
    /// A batch of one.
    pub batch: Batch,
    /// Its recency tick.
    pub tick: u64,
    /// Who sent it, on the core it comes from.
    pub sender: ConnId,
}

/// Who claims a session, as its owner knows it.
#[derive(Debug, Clone)]
pub struct Claimant {
    /// Core and connection.
    pub at: (CoreId, ConnId),
    /// What it declared of control.
    pub control: Control,
}

/// Events on their way to consumers, in the order of their arrival at one owner.
#[derive(Debug)]
pub struct Fanout {
    /// Their owner.
    pub owner: CoreId,
    /// The events.
    pub batch: Batch,
    /// The owner's newest arrival number behind them.
    pub arrival: u64,
    /// For each event what its session looked like when it was admitted; empty while nobody judges positions.
    pub notes: Vec<SessionNote>,
    /// A connection that already has these events (the target of a command).
    pub except: Option<(CoreId, ConnId)>,
}

/// What a consumer's asked position is judged by (§3).
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionNote {
    /// Lowest position ever admitted.
    pub lowest: Option<Position>,
    /// What an announcement would name.
    pub earliest: Option<Position>,
}

impl OwnerInput {
    /// Bytes it keeps alive.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Events(events) => events.batch.weight(),
            Self::Command(command) => command.batch.weight(),
            _ => 0,
        }
    }
}

impl RelayMail {
    /// Whether it is for the reader of its core, and keeps its place among what is. The rest is acted on at once: it is
    /// for the owner, for who settles or gathers, and no event's delivery depends on its place.
    #[must_use]
    pub fn is_for_reader(&self) -> bool {
        match self {
            Self::Fanout(_)
            | Self::Admitted { .. }
            | Self::Registered { .. }
            | Self::Page(_)
            | Self::Handover { .. }
            | Self::CommandAnswer { .. } => true,
            Self::Owner(_) | Self::Evict { .. } | Self::EvictAnswered { .. } | Self::Gather(_) | Self::Gathered(_) => {
                false
            }
        }
    }
}

impl Mail for RelayMail {
    fn weight(&self) -> usize {
        /// Stands for the fixed part of any message.
        const FIXED: usize = 128;
        FIXED
            + match self {
                Self::Owner(input) => input.weight(),
                Self::Fanout(fanout) => fanout.batch.weight(),
                Self::Page(page) => page.weight(),
                Self::Gathered(Part::Entries { entries, .. }) => entries.len(),
                _ => 0,
            }
    }

    fn group(&self) -> Group {
        ACTIVITY.group
    }
}

impl RelayMail {
    /// Whether another core waits for it, which may be behind the end of the lane.
    #[must_use]
    pub const fn is_answer(&self) -> bool {
        match self {
            Self::Admitted { .. }
            | Self::Registered { .. }
            | Self::Page(_)
            | Self::CommandAnswer { .. }
            | Self::EvictAnswered { .. }
            | Self::Gathered(_) => true,
            Self::Owner(_) | Self::Fanout(_) | Self::Handover { .. } | Self::Evict { .. } | Self::Gather(_) => false,
        }
    }
}
