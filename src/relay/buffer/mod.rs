//! The events of one session by position: admission, trimming, resume (contract §3).
//!
//! A [`SessionBuffer`] is plain data of the session's owner core. Its bytes lie in segments of the core's
//! [`SegmentPool`], which is passed in; its tables are charged there too. A buffer that is no longer wanted is closed
//! ([`SessionBuffer::close`]), which returns everything at once and leaves its [`Marks`].
//!
//! - `record_log` keeps the bytes, `entry_table` the index, `fingerprints` finds duplicates, `marks` remembers what is
//!   gone, `paging` serves readers.
//! - Does not know names, recency, other sessions, subscriptions, or JSON. Arrival numbers and fingerprints are given
//!   to it: the numbers rise from call to call and start at 1; the fingerprint is a keyed hash of `(source, id)`.
//!
//! Invariants:
//! - At most `events_max` events are held after each call; over it the lowest leaves first.
//! - Every held event is found by its fingerprint, and no two share one.
//! - [`NoRoom`] leaves the session as it was.
//! - What an event costs is O(1) when it goes last, as events nearly always do.

mod entry;
mod entry_table;
mod fingerprints;
mod marks;
mod paging;
mod record_log;
#[cfg(test)]
mod shadow_tests;

pub use marks::Marks;
pub use paging::{CatchUpCursor, PageEnd, ReplayCursor, Stored};

use crate::base::segment_pool::{NoRoom, SegmentPool};
use crate::relay::buffer::entry::Entry;
use crate::relay::event::{Outline, Position};
use entry_table::EntryTable;
use marks::Key;
use record_log::RecordLog;

/// An event that asks for admission.
#[derive(Debug, Clone, Copy)]
pub struct NewEvent<'a> {
    /// The event as it was received.
    pub raw: &'a [u8],
    /// Its position; `None` if it has no `seq`.
    pub position: Option<Position>,
    /// A keyed hash of `(source, id)`.
    pub fingerprint: u128,
    /// Its number among the owner's arrivals, duplicates counted; from 1, rising.
    pub arrival: u64,
    /// How to frame it without reading it.
    pub outline: Outline,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Admitted.
    Placed {
        /// Its own position, or the one it was placed right behind; `None` stands ahead of all.
        placement: Option<Position>,
        /// False if it was itself the lowest of a full buffer, or found no room: evicted on arrival.
        kept: bool,
        /// How many events left for it, itself included.
        evicted: usize,
    },
    /// The buffer holds it already; its forwarding was noted.
    Duplicate,
}

/// The replay buffer of one session.
#[derive(Debug, Default)]
pub struct SessionBuffer {
    table: EntryTable,
    log: RecordLog,
    marks: Marks,
    last_arrival: u64,
}

impl SessionBuffer {
    /// An empty buffer of a session that had left these marks (none: the default).
    #[must_use]
    pub fn new(marks: Marks) -> Self {
        Self { marks, ..Self::default() }
    }

    /// Events held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no event is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of its segments and tables.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.log.held_bytes() + self.table.charged_bytes()
    }

    /// The last arrival number it was given: a reader beyond it has nothing to catch up with here.
    #[must_use]
    pub fn last_arrival(&self) -> u64 {
        self.last_arrival
    }

    /// What it remembers of events it no longer holds.
    #[must_use]
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Admits an event, or notes the forwarding of one that is held. Keeps at most `events_max` ≥ 1.
    pub fn admit(
        &mut self,
        pool: &mut SegmentPool,
        event: &NewEvent<'_>,
        events_max: usize,
    ) -> Result<Admission, NoRoom> {
        if let Some(id) = self.table.find(event.fingerprint) {
            self.table.reserve_arrival(pool)?;
            self.table.forward(id, event.arrival);
            self.last_arrival = event.arrival;
            return Ok(Admission::Duplicate);
        }
        let len = u32::try_from(event.raw.len()).map_err(|_| NoRoom)?;
        let placement = self.placement(event);
        let below_all = self.table.lowest().is_some_and(|lowest| placement < lowest.placement);
        if below_all && self.table.len() >= events_max {
            return Ok(self.pass_by(event));
        }
        self.table.reserve(pool, events_max.saturating_add(1))?;
        let id = self.table.next_id();
        let body = self.log.append(pool, self.table.entries_mut(), id, event.raw)?;
        self.table.insert(Entry {
            placement,
            arrival: event.arrival,
            forwarded: 0,
            fingerprint: event.fingerprint,
            body,
            len,
            sequenced: event.position.is_some(),
            outline: event.outline,
        });
        self.marks.on_admitted(event.position);
        self.last_arrival = event.arrival;
        let mut evicted = 0;
        while self.table.len() > events_max && self.evict_lowest(pool) {
            evicted += 1;
        }
        Ok(Admission::Placed { placement, kept: true, evicted })
    }

    /// Admits an event for which there is no room anywhere: it is evicted on arrival, and resumes are told. A duplicate
    /// stays a duplicate, though its forwarding cannot be noted.
    pub fn admit_unkept(&mut self, event: &NewEvent<'_>) -> Admission {
        if self.table.find(event.fingerprint).is_some() { Admission::Duplicate } else { self.pass_by(event) }
    }

    /// Evicts the lowest events until `bytes` bytes have come back, or all. Answers how many events that took.
    pub fn trim_lowest(&mut self, pool: &mut SegmentPool, bytes: usize) -> usize {
        let held = self.held_bytes();
        let mut evicted = 0;
        while held.saturating_sub(self.held_bytes()) < bytes && self.evict_lowest(pool) {
            evicted += 1;
        }
        evicted
    }

    /// Gives everything back. All events count as evicted.
    #[must_use = "the marks are what remains of the session"]
    pub fn close(mut self, pool: &mut SegmentPool) -> Marks {
        for entry in self.table.take_all(pool) {
            self.marks.on_evicted(entry.key(), entry.sequenced);
            self.log.forget(pool, entry.body);
        }
        self.log.clear(pool);
        self.marks
    }

    /// The earliest position to announce to a resume from `from`, if that is exhausted.
    #[must_use]
    pub fn exhausted(&self, from: Position) -> Option<Position> {
        if self.marks.is_exhausted(from) { self.earliest() } else { None }
    }

    /// The lowest position held; with none held, the one right after the highest ever admitted.
    #[must_use]
    pub fn earliest(&self) -> Option<Position> {
        self.table.ascending(|_| false).find_map(Entry::position).or_else(|| self.marks.earliest_to_come())
    }

    /// An event without `seq` goes right behind the highest position held.
    fn placement(&self, event: &NewEvent<'_>) -> Option<Position> {
        event.position.or_else(|| self.table.highest()?.placement)
    }

    /// Admitted and evicted in one.
    fn pass_by(&mut self, event: &NewEvent<'_>) -> Admission {
        let placement = self.placement(event);
        self.marks.on_admitted(event.position);
        self.marks.on_evicted(Key { placement, arrival: event.arrival }, event.position.is_some());
        self.last_arrival = event.arrival;
        Admission::Placed { placement, kept: false, evicted: 1 }
    }

    fn evict_lowest(&mut self, pool: &mut SegmentPool) -> bool {
        let Some(entry) = self.table.remove_lowest() else {
            return false;
        };
        self.marks.on_evicted(entry.key(), entry.sequenced);
        self.log.remove(pool, self.table.entries_mut(), entry.body, entry.len as usize);
        if self.table.len() == 0 {
            self.log.put_tail(pool);
            drop(self.table.take_all(pool));
        }
        true
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        self.table.check_invariants();
        self.marks.check_invariants();
        self.log.check_invariants(self.table.ascending(|_| false).map(|entry| (&entry.body, entry.len as usize)));
        assert!(self.log.is_tidy());
        assert!(!self.is_empty() || self.held_bytes() == 0 || self.table.charged_bytes() > 0);
    }
}
