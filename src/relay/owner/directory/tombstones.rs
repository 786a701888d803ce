//! The memory of sessions evicted whole: their [`Marks`], so that a resume from one is told of the gap (contract §3).
//!
//! First in, first out, bounded by count and by bytes, names included; the bytes are charged to the arena's budget.
//! A session that finds no room here is forgotten, which the contract allows: it is then judged when its first
//! event reaches the consumer.
//!
//! Invariants: `by_name` and `by_age` list the same tombstones; `bytes ≤ bytes_max`, and just as much is charged.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::base::segment_pool::SegmentPool;
use crate::relay::buffer::Marks;

/// A tombstone beside its name: both map entries and the name's counters, with the slack of the maps.
const TOMBSTONE_BYTES: usize = 2 * size_of::<(Arc<str>, Tombstone)>() + 64;

#[derive(Debug)]
struct Tombstone {
    marks: Marks,
    age: u64,
}

/// Tombstones of one core.
#[derive(Debug)]
pub(super) struct Tombstones {
    by_name: BTreeMap<Arc<str>, Tombstone>,
    /// The lowest was laid first.
    by_age: BTreeMap<u64, Arc<str>>,
    laid: u64,
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
}

impl Tombstones {
    pub(super) fn new(count_max: usize, bytes_max: usize) -> Self {
        Self { by_name: BTreeMap::new(), by_age: BTreeMap::new(), laid: 0, bytes: 0, count_max, bytes_max }
    }

    /// All in the order of names, from one on.
    pub(super) fn from(&self, name: Bound<&str>) -> impl Iterator<Item = (&Arc<str>, &Marks)> {
        self.by_name.range::<str, _>((name, Bound::Unbounded)).map(|(name, tombstone)| (name, &tombstone.marks))
    }

    pub(super) fn find(&self, name: &str) -> Option<&Marks> {
        self.by_name.get(name).map(|tombstone| &tombstone.marks)
    }

    /// Remembers an evicted session; forgets the oldest ones for it.
    pub(super) fn lay(&mut self, pool: &mut SegmentPool, name: Arc<str>, marks: Marks) {
        self.lift(pool, &name);
        let bytes = bytes_of(&name);
        if bytes > self.bytes_max || self.count_max == 0 {
            return;
        }
        while self.by_age.len() >= self.count_max || self.bytes + bytes > self.bytes_max {
            self.lift_oldest(pool);
        }
        while pool.charge(bytes).is_err() {
            if !self.lift_oldest(pool) {
                return;
            }
        }
        self.bytes += bytes;
        self.laid += 1;
        self.by_age.insert(self.laid, name.clone());
        self.by_name.insert(name, Tombstone { marks, age: self.laid });
    }

    /// Forgets a session: it has come back and took its marks.
    pub(super) fn lift(&mut self, pool: &mut SegmentPool, name: &str) {
        if let Some(tombstone) = self.by_name.remove(name) {
            self.by_age.remove(&tombstone.age);
            self.give_back(pool, name);
        }
    }

    fn lift_oldest(&mut self, pool: &mut SegmentPool) -> bool {
        let Some((_, name)) = self.by_age.pop_first() else {
            return false;
        };
        self.by_name.remove(&name);
        self.give_back(pool, &name);
        true
    }

    fn give_back(&mut self, pool: &mut SegmentPool, name: &str) {
        self.bytes -= bytes_of(name);
        pool.release(bytes_of(name));
    }

    /// Bytes charged.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        assert!(self.bytes <= self.bytes_max && self.by_name.len() <= self.count_max);
        assert_eq!(self.by_name.len(), self.by_age.len());
        assert_eq!(self.bytes, self.by_name.keys().map(|name| bytes_of(name)).sum::<usize>());
        assert!(self.by_age.iter().all(|(age, name)| self.by_name[name].age == *age));
    }
}

fn bytes_of(name: &str) -> usize {
    TOMBSTONE_BYTES + name.len()
}
