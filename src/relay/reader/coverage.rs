//! What other subscriptions of a connection have delivered of what a replay reads, or will deliver by themselves: the
//! replay skips it (contract §3, §6.3).
//!
//! A connection may have thousands of subscriptions and a page thousands of events, so the ones are not walked for each
//! of the others. A [`Coverage`] is made once per page. Subscriptions of one class are one group, whose filter is
//! matched once; of the group only the earliest arrival number counts, and the lowest of the positions asked for in the
//! present session, which is looked for once per session. Of many groups only those are looked at that the index of
//! classes finds for the event.
//!
//! Invariant: while a page is being delivered, no subscription of its connection begins, ends or goes live.

use std::collections::HashMap;
use std::sync::Arc;

use crate::engine::service::{ConnId, CoreId};

use crate::relay::event::{Event, Position};
use crate::relay::filter::Filter;
use crate::relay::mail::SubRef;
use crate::relay::reader::Reader;
use crate::relay::reader::class::ClassId;
use crate::relay::reader::subscription::{Covered, Past, Subscriptions};

/// Up to so many groups are walked rather than found; few in tests, so that the simulation meets both ways.
const GROUPS_WALKED: usize = if cfg!(test) { 1 } else { 8 };

/// Where an event stands in its owner's order and in its session's.
#[derive(Debug, Clone, Copy)]
pub struct StoredAt {
    /// When it arrived at the owner.
    pub arrival: u64,
    /// Its position, or the one it was placed right behind.
    pub placement: Option<Position>,
}

/// What the other subscriptions of a page's connection cover of what its owner holds.
#[derive(Debug)]
pub struct Coverage {
    groups: HashMap<ClassId, FilterGroup>,
    /// Counts the page's sessions.
    session: u64,
    candidates: Vec<ClassId>,
}

/// Subscriptions of one class.
#[derive(Debug)]
struct FilterGroup {
    filter: Arc<Filter>,
    /// Whatever arrived behind this is covered.
    since: u64,
    /// Whether what arrived before is covered, too.
    everything: bool,
    /// Those that replayed from positions.
    resumed: Vec<SubRef>,
    /// The lowest position that these asked for in the session of that number.
    lowest: (u64, Option<Position>),
}

impl Reader {
    /// What the connection's subscriptions other than `but` cover. One that still replays this owner's sessions comes
    /// later, and skips what is delivered now.
    pub(in crate::relay) fn coverage(&self, conn: ConnId, but: SubRef, owner: CoreId) -> Coverage {
        let mut groups: HashMap<ClassId, FilterGroup> = HashMap::new();
        let subs = self.peers.get(conn).map(|peer| peer.subs.as_slice()).unwrap_or_default();
        for &sub in subs.iter().filter(|sub| **sub != but) {
            let Some(subscription) = self.subscriptions.get(sub).filter(|other| other.is_live(owner)) else { continue };
            let Some(class) = self.classes.class(subscription.class) else { continue };
            let Some(covered) = &subscription.covered else { continue };
            let group = groups.entry(subscription.class).or_insert_with(|| FilterGroup::new(&class.key.filter));
            group.add(sub, covered, owner);
        }
        Coverage { groups, session: 0, candidates: Vec::new() }
    }

    /// Whether one of the others has delivered this event, or will.
    pub(in crate::relay) fn is_covered(&self, coverage: &mut Coverage, event: &Event<'_>, stored: StoredAt) -> bool {
        let Coverage { groups, session, candidates, .. } = coverage;
        let mut covers = |group: &mut FilterGroup| group.covers(&self.subscriptions, *session, event, stored);
        if groups.len() <= GROUPS_WALKED {
            return groups.values_mut().any(covers);
        }
        candidates.clear();
        self.classes.candidates(event, candidates);
        candidates.iter().any(|class| groups.get_mut(class).is_some_and(&mut covers))
    }
}

impl Coverage {
    /// The following events belong to another session.
    pub fn next_session(&mut self) {
        self.session += 1;
    }
}

impl FilterGroup {
    fn new(filter: &Arc<Filter>) -> Self {
        let filter = Arc::clone(filter);
        Self { filter, since: u64::MAX, everything: false, resumed: Vec::new(), lowest: (0, None) }
    }

    fn add(&mut self, sub: SubRef, covered: &Covered, owner: CoreId) {
        if let Some(since) = covered.since.get(usize::from(owner.0)) {
            self.since = self.since.min(*since);
        }
        match covered.past {
            Past::Nothing => {}
            Past::Everything => self.everything = true,
            Past::After(_) => self.resumed.push(sub),
        }
    }

    fn covers(&mut self, all: &Subscriptions, session: u64, event: &Event<'_>, stored: StoredAt) -> bool {
        let is_past = self.everything || stored.arrival > self.since || self.has_replayed(all, session, event, stored);
        is_past && self.filter.matches(event)
    }

    fn has_replayed(&mut self, all: &Subscriptions, session: u64, event: &Event<'_>, stored: StoredAt) -> bool {
        if self.resumed.is_empty() {
            return false;
        }
        if self.lowest.0 != session {
            let name = event.session().unwrap_or_default();
            let asked = self.resumed.iter().filter_map(|sub| all.get(*sub)?.covered.as_ref()?.past.asked(name));
            self.lowest = (session, asked.min());
        }
        match (self.lowest.1, event.position()) {
            (None, _) => false,
            (Some(asked), Some(own)) => own > asked,
            // One without a position is served if it was placed at the asked one or behind it.
            (asked, None) => stored.placement >= asked,
        }
    }
}
