//! A subscription, and how far each owner core has taken it (contract §3, §6.3).
//!
//! Life: *registering* (`waiting` has the owners that have not answered) → answered to its client → replaying,
//! owner by owner (`replay` is some) → live everywhere (`live` has every owner's bit). A subscription without positions
//! is live as soon as it is registered. Events of an owner whose bit is missing are not delivered: the cursor of the
//! replay will find them.
//!
//! Invariants: `waiting & live` may overlap only before the answer; `replay` is none once `live` is full;
//! `place` is `Member` only for a subscription that is alone on its connection, live everywhere, judged and without an
//! announcement owed.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::footprint;
use crate::base::slab::Slab;
use crate::engine::service::{ConnId, CoreId};
use crate::protocol::owners::CoreMask;
use crate::protocol::paging::Paging;
use crate::protocol::run_group::GroupMember;

use crate::relay::event::Position;
use crate::relay::mail::SubRef;
use crate::relay::mail::page::{Asked, Cursor};
use crate::relay::reader::class::ClassId;

/// Where a subscription stands in its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// In neither list: not registered yet.
    Nowhere,
    /// In `members`, at this index.
    Member(u32),
    /// In `others`, at this index.
    Other(u32),
}

/// Where a subscription begins (`from`, §4, §6.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// Live only.
    Now,
    /// Every held session from its earliest event.
    All,
    /// These positions, one per session.
    Positions(Vec<Asked>),
}

/// A replay on its way through the owners.
#[derive(Debug)]
pub struct Replay {
    /// How far it has come; an owner's cursor gets its snapshot once that has registered the subscription.
    pub paging: Paging<Cursor>,
    /// Whether it ends in live delivery.
    pub live: bool,
    /// What was announced last in each session: the same again would tell of no further loss.
    pub announced: HashMap<Box<str>, Position>,
}

/// What a subscription has delivered or will deliver by itself, so that others of its connection do not repeat it.
#[derive(Debug)]
pub struct Covered {
    /// For each owner the arrival number behind which everything that matches is delivered: by catching up, or live.
    /// Holds for owners it is live with.
    pub since: Box<[u64]>,
    /// What its replay has read of what had arrived before.
    pub past: Past,
}

/// What the replay of a subscription reads of what had arrived when it was registered.
#[derive(Debug)]
pub enum Past {
    /// It has no replay.
    Nothing,
    /// Everything held.
    Everything,
    /// What stands behind these positions, ascending by session, each of which is named once.
    After(Box<[Asked]>),
}

impl Past {
    /// The session's name, if a position in it was asked for.
    #[must_use]
    pub fn name(&self, session: &str) -> Option<&Arc<str>> {
        match self {
            Self::Nothing | Self::Everything => None,
            Self::After(asked) => find(asked, session).map(|asked| &asked.session),
        }
    }

    /// The position asked for in that session.
    #[must_use]
    pub fn asked(&self, session: &str) -> Option<Position> {
        match self {
            Self::Nothing | Self::Everything => None,
            Self::After(asked) => find(asked, session).map(|asked| asked.position),
        }
    }
}

impl std::convert::From<From> for Past {
    fn from(from: From) -> Self {
        match from {
            From::Now => Self::Nothing,
            From::All => Self::Everything,
            From::Positions(mut asked) => {
                asked.sort_unstable_by(|one, other| one.session.cmp(&other.session));
                Self::After(asked.into())
            }
        }
    }
}

fn find<'a>(asked: &'a [Asked], session: &str) -> Option<&'a Asked> {
    asked.binary_search_by(|asked| (*asked.session).cmp(session)).ok().and_then(|at| asked.get(at))
}

/// A subscription of this core.
#[derive(Debug)]
pub struct Subscription {
    /// Its connection.
    pub conn: ConnId,
    /// Its class.
    pub class: ClassId,
    /// Where it stands in its class.
    pub place: Seat,
    /// Owners that have not registered it yet.
    pub waiting: CoreMask,
    /// Owners whose events it gets live.
    pub live: CoreMask,
    /// Offset in the class's stream at which it became a member.
    pub joined: u64,
    /// The client's name for it, on a WebSocket.
    pub id: Option<Arc<str>>,
    /// Bytes that it makes the relay keep, its class included.
    pub weight: usize,
    /// Those of them that are its own.
    pub own_weight: usize,
    /// Its replay, until that ends.
    pub replay: Option<Box<Replay>>,
    /// Asked positions of sessions nobody knew; each is judged when its session's first event comes (§3).
    pub judged: Option<Box<HashMap<Arc<str>, Position>>>,
    /// Kept on WebSockets, where a connection may have several subscriptions.
    pub covered: Option<Box<Covered>>,
}

impl Subscription {
    /// Whether the client has had its answer.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether that owner's events are delivered live.
    #[must_use]
    pub fn is_live(&self, owner: CoreId) -> bool {
        self.is_answered() && self.live.contains(owner)
    }

    /// Live delivery of that owner's events begins.
    pub fn go_live(&mut self, owner: CoreId) {
        self.live.insert(owner);
    }

    /// Everything of that owner that arrives behind `arrival` is this subscription's to deliver.
    pub fn covers_since(&mut self, owner: CoreId, arrival: u64) {
        if let Some(since) = self.covered.as_mut().and_then(|covered| covered.since.get_mut(usize::from(owner.0))) {
            *since = arrival;
        }
    }
}

/// Bytes that a subscription keeps, beside those of its class: itself, its places in the lists of its peer and its
/// class, its name, what it covers, its replay, and each position in the cursor, among those covered and among those to
/// be judged.
#[must_use]
pub fn own_footprint(id: Option<&str>, from: &From, live: bool, cores: usize) -> usize {
    const FIXED: usize = size_of::<Subscription>()
        + 2 * size_of::<usize>()
        + footprint::item::<SubRef>()
        + footprint::item::<GroupMember<SubRef>>();
    const POSITION: usize =
        footprint::item::<Asked>() + size_of::<Asked>() + footprint::table_entry::<(Arc<str>, Position)>();
    let named = id.map_or(0, |id| {
        let covered = footprint::allocation(size_of::<Covered>()) + footprint::allocation(cores * size_of::<u64>());
        footprint::text(id.len()) + footprint::table_entry::<(Arc<str>, SubRef)>() + covered
    });
    let positions = match from {
        // Where nothing is covered, the name to be judged is a copy of the one in the cursor.
        From::Positions(asked) => {
            let copies = if id.is_some() { 1 } else { 2 };
            asked.iter().map(|asked| POSITION + copies * footprint::text(asked.session.len())).sum()
        }
        From::Now | From::All => 0,
    };
    let replay = match from {
        From::Now if live => 0,
        _ => footprint::allocation(size_of::<Replay>()) + Paging::<Cursor>::footprint(cores),
    };
    FIXED + named + positions + replay
}

/// All subscriptions of a core.
#[derive(Debug, Default)]
pub struct Subscriptions {
    slab: Slab<Subscription>,
}

impl Subscriptions {
    /// Takes a subscription in.
    pub fn insert(&mut self, subscription: Subscription) -> SubRef {
        let (slot, generation) = self.slab.insert(subscription);
        SubRef { slot, generation }
    }

    /// A subscription.
    #[must_use]
    pub fn get(&self, sub: SubRef) -> Option<&Subscription> {
        self.slab.get(sub.slot, sub.generation)
    }

    /// A subscription, to be changed.
    pub fn get_mut(&mut self, sub: SubRef) -> Option<&mut Subscription> {
        self.slab.get_mut(sub.slot, sub.generation)
    }

    /// Takes a subscription out.
    pub fn remove(&mut self, sub: SubRef) -> Option<Subscription> {
        self.slab.remove(sub.slot, sub.generation)
    }

    /// All of them.
    #[cfg(test)]
    pub(in crate::relay) fn iter(&self) -> impl Iterator<Item = (SubRef, &Subscription)> {
        self.slab.iter().map(|(slot, generation, subscription)| (SubRef { slot, generation }, subscription))
    }
}
