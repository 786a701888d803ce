//! The messages that the relays of all cores exchange.
//!
//! A session has one owner core (`protocol/owners.rs`): the single writer of its buffer and the one place that orders
//! its events. Agent-scoped events are ordered by the owner of their agent's name.
//!
//! Two directions, two lanes (`engine/mailbox/`):
//! - *core → owner* ([`OwnerInput`], ingest lane): events, commands, registrations, page requests, ends of claims. One
//!   connection's messages enter it in the order they were read, so the owner acts on them in that order.
//! - *owner → core* (the rest of [`RelayMail`], fan-out lane): events, pages, acknowledgements. It is FIFO, and the
//!   switch from replay to live rests on that: whatever an owner fanned out before it answered "caught up" was
//!   dropped at the reader and served by the page; whatever it fans out later comes behind that answer.

pub mod claim;
pub mod list;
pub mod page;
pub mod share;

use std::sync::Arc;

use crate::engine::service::{ConnId, CoreId, Group, Mail};
use crate::ops::metrics::EvictionCause;
use crate::protocol::shares::ACTIVITY;

use crate::relay::error::Code;
use crate::relay::event::Batch;
use crate::relay::filter::Filter;

use claim::ClaimNote;
use list::{Ask, Part};
use page::{Page, PageRequest, SessionNote};

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
