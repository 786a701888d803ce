//! The index of one session's events: entries with stable ids, and three ways to find them.
//!
//! By place (`order`: placement, then arrival), by arrival (`arrivals`: every arrival, and the last forwarding of a
//! duplicate), by fingerprint. All of them hold ids of 4 bytes; the entry itself stands still, so that records in
//! the log can name it.
//!
//! All tables are charged to the arena's budget by capacity, before they grow; growth is the only step that can
//! fail. They shrink only when the session runs empty: until then they are bounded by the events it may hold.
//!
//! Invariants:
//! - `order` lists exactly the live entries, ascending by [`Key`].
//! - `arrivals` is ascending. An item is *current* when its entry bears that number as arrival or as forwarding;
//!   other items are leftovers. Every number of a live entry has its item.
//! - The first item of `arrivals` is current.
//! - `order.len() ≤ capacity`, `arrivals.len() ≤ arrivals_capacity`.

use std::collections::VecDeque;

use super::entry::Entry;
use super::fingerprints::{BUCKET_BYTES, Fingerprints, buckets_for};
use super::marks::Key;
use crate::base::segment_pool::{NoRoom, SegmentPool};

/// Entries of the smallest table.
const CAPACITY_MIN: usize = 8;
/// An entry, its place in `order`, and a place among the ids in wait.
const ENTRY_BYTES: usize = size_of::<Entry>() + 2 * size_of::<u32>();
const ARRIVAL_BYTES: usize = size_of::<Arrival>();

/// One arrival or forwarding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// The owner's arrival number.
    pub(super) number: u64,
    id: u32,
}

/// The entries of one session.
#[derive(Debug, Default)]
pub(super) struct EntryTable {
    /// By id.
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    order: VecDeque<u32>,
    arrivals: VecDeque<Arrival>,
    fingerprints: Fingerprints,
    capacity: usize,
    arrivals_capacity: usize,
}

impl EntryTable {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Bytes charged for the tables.
    pub(super) fn charged_bytes(&self) -> usize {
        table_bytes(self.capacity) + self.arrivals_capacity * ARRIVAL_BYTES
    }

    /// The entry with this fingerprint.
    pub(super) fn find(&self, fingerprint: u128) -> Option<u32> {
        self.fingerprints.find(fingerprint, |id| self.entry(id).fingerprint == fingerprint)
    }

    /// The entry that stands first.
    pub(super) fn lowest(&self) -> Option<&Entry> {
        self.order.front().map(|&id| self.entry(id))
    }

    /// The entry that stands last.
    pub(super) fn highest(&self) -> Option<&Entry> {
        self.order.back().map(|&id| self.entry(id))
    }

    /// Ascending by key, from the first one on of which `is_before` is not true; it must be true of a first part only.
    pub(super) fn ascending(&self, is_before: impl Fn(Key) -> bool) -> impl Iterator<Item = &Entry> {
        let start = self.order.partition_point(|&id| is_before(self.entry(id).key()));
        self.order.range(start..).map(|&id| self.entry(id))
    }

    /// Arrivals and forwardings numbered above `after`, ascending, each with its entry.
    pub(super) fn arrived(&self, after: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let start = self.arrivals.partition_point(|arrival| arrival.number <= after);
        let since = self.arrivals.range(start..);
        since.filter(|&&arrival| is_current(&self.entries, arrival)).map(|a| (a.number, self.entry(a.id)))
    }

    /// Makes room for one more entry, of at most `entries_max`, and its arrival. Only charges and capacities change.
    pub(super) fn reserve(&mut self, pool: &mut SegmentPool, entries_max: usize) -> Result<(), NoRoom> {
        if self.order.len() == self.capacity {
            let capacity = (self.capacity * 2).max(CAPACITY_MIN).min(entries_max).max(self.capacity + 1);
            // Ids have 32 bits, of which the highest marks an empty bucket.
            if capacity >= u32::MAX as usize {
                return Err(NoRoom);
            }
            pool.charge(table_bytes(capacity) - table_bytes(self.capacity))?;
            let more = capacity - self.capacity;
            self.entries.reserve_exact(more);
            self.order.reserve_exact(capacity - self.order.len());
            self.vacant.reserve_exact(capacity - self.vacant.len());
            if buckets_for(capacity) != buckets_for(self.capacity) || self.capacity == 0 {
                self.fingerprints.rehash(buckets_for(capacity));
            }
            self.capacity = capacity;
        }
        self.reserve_arrival(pool)
    }

    /// Makes room for one more arrival. Leftovers go first; if that wins less than a quarter, the table doubles, so
    /// that going through it stays cheap for each arrival.
    pub(super) fn reserve_arrival(&mut self, pool: &mut SegmentPool) -> Result<(), NoRoom> {
        if self.arrivals.len() < self.arrivals_capacity {
            return Ok(());
        }
        let entries = &self.entries;
        self.arrivals.retain(|&arrival| is_current(entries, arrival));
        if self.arrivals.len() * 4 > self.arrivals_capacity * 3 || self.arrivals_capacity == 0 {
            let capacity = (self.arrivals_capacity * 2).max(CAPACITY_MIN);
            pool.charge((capacity - self.arrivals_capacity) * ARRIVAL_BYTES)?;
            self.arrivals.reserve_exact(capacity - self.arrivals.len());
            self.arrivals_capacity = capacity;
        }
        Ok(())
    }

    /// The id that the next inserted entry gets.
    pub(super) fn next_id(&self) -> u32 {
        // `reserve` keeps ids below u32::MAX.
        self.vacant.last().copied().unwrap_or(self.entries.len() as u32)
    }

    /// The entries by id, for the log.
    pub(super) fn entries_mut(&mut self) -> &mut [Entry] {
        &mut self.entries
    }

    /// Adds the latest arrival. Room was reserved.
    pub(super) fn insert(&mut self, entry: Entry) {
        let (id, key) = (self.next_id(), entry.key());
        debug_assert!(self.arrivals.back().is_none_or(|last| last.number < entry.arrival), "arrivals out of order");
        self.fingerprints.insert(entry.fingerprint, id);
        self.arrivals.push_back(Arrival { number: entry.arrival, id });
        match self.vacant.pop() {
            Some(id) => self.entries[id as usize] = entry,
            None => self.entries.push(entry),
        }
        if self.highest().is_none_or(|highest| highest.key() < key) {
            self.order.push_back(id);
        } else {
            let at = self.order.partition_point(|&other| self.entry(other).key() < key);
            self.order.insert(at, id);
        }
    }

    /// Notes that a duplicate of an entry was forwarded. Room was reserved.
    pub(super) fn forward(&mut self, id: u32, arrival: u64) {
        debug_assert!(self.arrivals.back().is_none_or(|last| last.number < arrival), "arrivals out of order");
        self.entries[id as usize].forwarded = arrival;
        self.arrivals.push_back(Arrival { number: arrival, id });
        self.drop_leading_leftovers();
    }

    /// Takes out the entry that stands first.
    pub(super) fn remove_lowest(&mut self) -> Option<Entry> {
        let id = self.order.pop_front()?;
        let entry = std::mem::replace(&mut self.entries[id as usize], Entry::VACANT);
        self.vacant.push(id);
        self.fingerprints.remove(entry.fingerprint, id);
        self.drop_leading_leftovers();
        Some(entry)
    }

    /// Takes out all entries, in no order, and gives the tables back.
    pub(super) fn take_all(&mut self, pool: &mut SegmentPool) -> impl Iterator<Item = Entry> + use<> {
        pool.release(self.charged_bytes());
        std::mem::take(self).entries.into_iter().filter(|entry| entry.arrival > 0)
    }

    fn entry(&self, id: u32) -> &Entry {
        &self.entries[id as usize]
    }

    fn drop_leading_leftovers(&mut self) {
        while self.arrivals.front().is_some_and(|&arrival| !is_current(&self.entries, arrival)) {
            self.arrivals.pop_front();
        }
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        assert!(self.order.len() <= self.capacity && self.entries.len() <= self.capacity);
        assert!(self.arrivals.len() <= self.arrivals_capacity);
        assert_eq!(self.order.len() + self.vacant.len(), self.entries.len());
        assert_eq!(self.fingerprints.len(), self.order.len());
        assert!(self.order.iter().is_sorted_by(|&&a, &&b| self.entry(a).key() < self.entry(b).key()));
        assert!(self.arrivals.iter().is_sorted_by(|a, b| a.number < b.number));
        assert!(self.arrivals.front().is_none_or(|&first| is_current(&self.entries, first)));
        for &id in &self.order {
            let entry = self.entry(id);
            assert!(entry.arrival > 0 && (entry.placement.is_some() || !entry.sequenced));
            assert_eq!(self.find(entry.fingerprint), Some(id));
            let numbers = [entry.arrival, entry.forwarded];
            let items = self.arrivals.iter().filter(|a| a.id == id && numbers.contains(&a.number)).count();
            assert_eq!(items, 1 + usize::from(entry.forwarded > 0));
        }
    }
}

/// Arrival numbers are given once, so an id that was used again cannot be mistaken.
fn is_current(entries: &[Entry], arrival: Arrival) -> bool {
    let entry = &entries[arrival.id as usize];
    entry.arrival == arrival.number || entry.forwarded == arrival.number
}

fn table_bytes(capacity: usize) -> usize {
    let buckets = if capacity == 0 { 0 } else { buckets_for(capacity) };
    capacity * ENTRY_BYTES + buckets * BUCKET_BYTES
}

const _: () = assert!(size_of::<Entry>() <= 96);
