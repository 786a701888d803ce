//! Replay is a cursor: pages by position, then by arrival (contract §3, "Between replay and live none is lost").
//!
//! A reader first pages by position through what had arrived when it subscribed ([`ReplayCursor`]), then by arrival
//! through what came meanwhile ([`CatchUpCursor`]); no copy of the session is made for it. Cursors name keys and
//! arrival numbers, not entries, so they stay good whatever is admitted or evicted between two pages, and even when the
//! session is evicted and comes back.
//!
//! A cursor also remembers how many evictions it has seen. Ask [`SessionBuffer::overtaken`] before each page: it
//! answers from evictions that happened since the last one and reached events ahead of the cursor. It never misses such
//! an eviction; it may count one that the reader was told of already, when positions below long evicted ones were
//! admitted again.

use super::SessionBuffer;
use super::marks::{Key, Marks};
use super::record_log::RecordLog;
use crate::base::segment_pool::SegmentPool;
use crate::relay::buffer::entry::Entry;
use crate::relay::event::{Outline, Position};

/// Announced where something is gone of a session that never saw a position.
const LOWEST: Position = Position { epoch: 0, seq: 0 };

/// How far a replay by position has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayCursor {
    /// The asked position: events that bear it or a lower one are not served. `None` asks for everything.
    from: Option<Position>,
    /// The last entry served.
    given: Option<Key>,
    /// The session's count of evictions when the last page was served.
    evictions: u64,
}

/// How far catching up by arrival has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatchUpCursor {
    /// The last arrival number served.
    after: u64,
    /// See [`ReplayCursor`]; `None` before the first page, when any eviction of what arrived since counts.
    evictions: Option<u64>,
}

/// Where a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageEnd<C> {
    /// For the next page.
    pub next: C,
    /// Whether nothing is left to serve.
    pub finished: bool,
    /// Events passed over on the way.
    pub passed: usize,
}

/// An event out of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored<'a> {
    /// Its position, if it bears one.
    pub position: Option<Position>,
    /// Its own position, or the one it was placed right behind; `None` stands ahead of all.
    pub placement: Option<Position>,
    /// The arrival number it is served for: its own, or when catching up that of a forwarded duplicate.
    pub arrival: u64,
    /// How to frame it without reading it.
    pub outline: Outline,
    /// The event as it was received.
    pub raw: &'a [u8],
}

impl<'a> Stored<'a> {
    /// The event of an entry, served for that arrival number.
    fn new(entry: &Entry, arrival: u64, raw: &'a [u8]) -> Self {
        let Entry { placement, outline, .. } = *entry;
        Self { position: entry.position(), placement, arrival, outline, raw }
    }
}

impl ReplayCursor {
    /// On everything held.
    #[must_use]
    pub fn everything(marks: &Marks) -> Self {
        Self { from: None, given: None, evictions: marks.evictions() }
    }

    /// On what stands strictly after `from`, and what bears no position and was placed at it. What is missing already
    /// is told by [`SessionBuffer::exhausted`].
    #[must_use]
    pub fn after(marks: &Marks, from: Position) -> Self {
        Self { from: Some(from), ..Self::everything(marks) }
    }

    /// Whether eviction took something ahead of the cursor since its last page. A replay of everything is never told.
    #[must_use]
    pub fn is_overtaken(&self, marks: &Marks) -> bool {
        self.from.is_some_and(|from| marks.evictions() != self.evictions && marks.evicted_after(from, self.given))
    }
}

impl CatchUpCursor {
    /// Serves what arrived after `after`: the number up to which the replay went.
    #[must_use]
    pub fn after(after: u64) -> Self {
        Self { after, evictions: None }
    }

    /// The last arrival number that needs no page any more.
    #[must_use]
    pub fn arrival(&self) -> u64 {
        self.after
    }

    /// Whether eviction took something that the cursor has yet to serve.
    fn is_overtaken(&self, marks: &Marks) -> bool {
        self.evictions != Some(marks.evictions()) && marks.evicted_arrival() > self.after
    }

    /// See [`SessionBuffer::catch_up_overtaken`], for a session that was evicted whole.
    #[must_use]
    pub fn overtaken(&self, marks: &Marks) -> Option<Position> {
        self.is_overtaken(marks).then(|| marks.earliest_to_come().unwrap_or(LOWEST))
    }
}

impl SessionBuffer {
    /// The position to announce, if eviction has overtaken the cursor since its last page.
    #[must_use]
    pub fn overtaken(&self, cursor: &ReplayCursor) -> Option<Position> {
        if cursor.is_overtaken(&self.marks) { self.earliest() } else { None }
    }

    /// Like [`SessionBuffer::overtaken`], when catching up. What was evicted may then be all without positions; in a
    /// session that never saw one, the lowest there can be is announced.
    #[must_use]
    pub fn catch_up_overtaken(&self, cursor: &CatchUpCursor) -> Option<Position> {
        cursor.is_overtaken(&self.marks).then(|| self.earliest().unwrap_or(LOWEST))
    }

    /// Serves the next events ascending by position that arrived no later than `arrived_until`: as many as stay within
    /// `bytes_max`, and at least one if there is one. Spread records are copied together in `scratch`.
    pub fn page(
        &self,
        pool: &SegmentPool,
        cursor: ReplayCursor,
        arrived_until: u64,
        bytes_max: usize,
        scratch: &mut Vec<u8>,
        visit: &mut dyn FnMut(Stored<'_>),
    ) -> PageEnd<ReplayCursor> {
        let mut next = ReplayCursor { evictions: self.marks.evictions(), ..cursor };
        let mut serving = self.serving(pool, bytes_max, scratch, visit);
        let is_before = |key: Key| match cursor.given {
            Some(given) => key <= given,
            None => cursor.from.is_some_and(|from| key.placement < Some(from)),
        };
        let mut passed = 0;
        for entry in self.table.ascending(is_before) {
            let at_or_below = cursor.from.is_some() && entry.position().is_some_and(|own| Some(own) <= cursor.from);
            if entry.arrival > arrived_until || at_or_below {
                passed += 1;
                continue;
            }
            if !serving.serve(entry, entry.arrival) {
                return PageEnd { next, finished: false, passed };
            }
            next.given = Some(entry.key());
        }
        PageEnd { next, finished: true, passed }
    }

    /// Serves the next events in the order in which they arrived, forwarded duplicates at their own turn again, no
    /// later than `arrived_until`; bounds as in [`SessionBuffer::page`]. When finished, the cursor stands at
    /// `arrived_until`.
    pub fn page_by_arrival(
        &self,
        pool: &SegmentPool,
        cursor: CatchUpCursor,
        arrived_until: u64,
        bytes_max: usize,
        scratch: &mut Vec<u8>,
        visit: &mut dyn FnMut(Stored<'_>),
    ) -> PageEnd<CatchUpCursor> {
        let mut next = CatchUpCursor { evictions: Some(self.marks.evictions()), ..cursor };
        let mut serving = self.serving(pool, bytes_max, scratch, visit);
        for (number, entry) in self.table.arrived(cursor.after).take_while(|&(number, _)| number <= arrived_until) {
            if !serving.serve(entry, number) {
                return PageEnd { next, finished: false, passed: 0 };
            }
            next.after = number;
        }
        next.after = next.after.max(arrived_until);
        PageEnd { next, finished: true, passed: 0 }
    }

    fn serving<'a>(
        &'a self,
        pool: &'a SegmentPool,
        bytes_max: usize,
        scratch: &'a mut Vec<u8>,
        visit: &'a mut dyn FnMut(Stored<'_>),
    ) -> Serving<'a> {
        Serving { log: &self.log, pool, scratch, visit, left: bytes_max, is_empty: true }
    }
}

/// A page being served: what it may still take, and who takes it.
struct Serving<'a> {
    log: &'a RecordLog,
    pool: &'a SegmentPool,
    scratch: &'a mut Vec<u8>,
    visit: &'a mut dyn FnMut(Stored<'_>),
    left: usize,
    is_empty: bool,
}

impl Serving<'_> {
    /// Serves an entry for that arrival number, if the page still takes it. The first one always fits: a page that
    /// served nothing would never end.
    fn serve(&mut self, entry: &Entry, arrival: u64) -> bool {
        let len = entry.len as usize;
        if len > self.left && !self.is_empty {
            return false;
        }
        self.left = self.left.saturating_sub(len);
        self.is_empty = false;
        let raw = self.log.read(self.pool, &entry.body, len, self.scratch);
        (self.visit)(Stored::new(entry, arrival, raw));
        true
    }
}
