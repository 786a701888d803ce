//! The fixed arena of the replay buffers: segments of 1, 4, 16 and 64 KiB, lent and taken back.
//!
//! One [`PoolBudget`] holds the process to a capacity that is set once. Every core has a [`SegmentPool`] of its own,
//! plain single-threaded memory, which takes whole 64 KiB chunks against that budget and cuts them into segments of
//! any class side by side. A chunk goes back to the budget as soon as its last segment has come back, so
//! capacity strands neither in one size class nor on one core. Index memory that stands beside the segments is
//! charged to the same budget, which makes the capacity a bound of everything together.
//!
//! A [`Segment`] is a claim, not a pointer: it can be neither copied nor forged, and its bytes are read and written
//! through the pool that lent it.
//!
//! Does not know what the bytes mean, who borrows, or what to evict when there is [`NoRoom`].
//!
//! Invariants:
//! - `used ≤ capacity` at all times; `used` is the sum of all pools' `held_bytes`.
//! - `held_bytes = chunks in use × 64 KiB + charged`.
//! - A chunk is listed in `partial[c]` exactly when `c` is the largest class it could still lend; a chunk that
//!   could lend a whole 64 KiB is not in use at all.
//!
//! Beside the budget, each core keeps up to [`CHUNKS_CACHED_MAX`] returned chunks to spare the allocator. They count
//! as free, not as used: no core is refused because another one keeps them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that a pool takes from its budget at a time; also the largest segment.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Bytes for which one bit of a chunk's mask stands; also the smallest segment.
const UNIT_BYTES: usize = 1 << 10;
/// Free chunks that one core keeps at most: 1 MiB.
pub const CHUNKS_CACHED_MAX: usize = 16;

const _: () = assert!(CHUNK_BYTES / UNIT_BYTES == u64::BITS as usize);

/// The budget does not allow it. Nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room within the replay budget")
    }
}

impl std::error::Error for NoRoom {}

/// What all pools of the process may hold together.
#[derive(Debug)]
pub struct PoolBudget {
    capacity_bytes: usize,
    /// Only a count: it publishes no other memory, hence relaxed throughout.
    used_bytes: AtomicUsize,
}

impl PoolBudget {
    /// A budget of this many bytes, for ever.
    #[must_use]
    pub fn new(capacity_bytes: usize) -> Arc<Self> {
        Arc::new(Self { capacity_bytes, used_bytes: AtomicUsize::new(0) })
    }

    /// Bytes that may be held.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Bytes that are held, by all cores together.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that nobody holds.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.capacity_bytes.saturating_sub(self.used_bytes())
    }

    fn charge(&self, bytes: usize) -> Result<(), NoRoom> {
        let within = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.capacity_bytes);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).map(drop).map_err(|_| NoRoom)
    }

    fn release(&self, bytes: usize) {
        let before = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more released than charged");
    }
}

/// The sizes of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SegmentClass {
    /// 1 KiB
    Kib1,
    /// 4 KiB
    Kib4,
    /// 16 KiB
    Kib16,
    /// 64 KiB: a whole chunk
    Kib64,
}

impl SegmentClass {
    /// All classes, smallest first.
    pub const ALL: [Self; 4] = [Self::Kib1, Self::Kib4, Self::Kib16, Self::Kib64];

    /// Bytes of a segment of this class.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.units() as usize * UNIT_BYTES
    }

    /// The smallest class that holds this many bytes, if one segment can.
    #[must_use]
    pub fn smallest_for(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.bytes() >= bytes)
    }

    /// The next smaller class.
    #[must_use]
    pub const fn smaller(self) -> Option<Self> {
        match self {
            Self::Kib1 => None,
            Self::Kib4 => Some(Self::Kib1),
            Self::Kib16 => Some(Self::Kib4),
            Self::Kib64 => Some(Self::Kib16),
        }
    }

    const fn units(self) -> u32 {
        1 << (2 * self as u32)
    }

    /// The mask of a segment of this class at unit 0.
    const fn mask(self) -> u64 {
        u64::MAX >> (u64::BITS - self.units())
    }

    /// The first unit at which a chunk with these free units can lend a segment of this class, aligned to its size.
    fn fit(self, free: u64) -> Option<u8> {
        let starts = match self {
            Self::Kib1 => free,
            Self::Kib4 => starts_of_4(free),
            Self::Kib16 => starts_of_16(free),
            Self::Kib64 => u64::from(free == u64::MAX),
        };
        // Less than 64, so the cast keeps it.
        (starts != 0).then(|| starts.trailing_zeros() as u8)
    }

    /// The largest class that a chunk with these free units can lend.
    fn largest(free: u64) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|class| class.fit(free).is_some())
    }
}

/// Every fourth bit: set where four free units begin.
fn starts_of_4(free: u64) -> u64 {
    free & free >> 1 & free >> 2 & free >> 3 & 0x1111_1111_1111_1111
}

/// Every sixteenth bit: set where sixteen free units begin.
fn starts_of_16(free: u64) -> u64 {
    let fours = starts_of_4(free);
    fours & fours >> 4 & fours >> 8 & fours >> 12 & 0x0001_0001_0001_0001
}

/// A piece of the arena on loan. Give it back with [`SegmentPool::put`]: dropped, it stays lent.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped segment stays lent"]
pub struct Segment {
    chunk: u32,
    unit: u8,
    class: SegmentClass,
}

impl Segment {
    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.class.bytes()
    }

    fn mask(&self) -> u64 {
        self.class.mask() << self.unit
    }

    fn start(&self) -> usize {
        usize::from(self.unit) * UNIT_BYTES
    }
}

/// One core's handle on the arena.
#[derive(Debug)]
pub struct SegmentPool {
    budget: Arc<PoolBudget>,
    chunks: Vec<Chunk>,
    /// Indices into `chunks` whose memory went back.
    vacant: Vec<u32>,
    cached: Vec<Box<[u8]>>,
    /// Chunks that can lend something, by the largest class they can lend; the lowest index is used first, so that
    /// the others run empty.
    partial: [BTreeSet<u32>; 3],
    held_bytes: usize,
}

#[derive(Debug)]
struct Chunk {
    /// Empty exactly while the index is vacant.
    bytes: Box<[u8]>,
    /// One bit per unit, set while it is free.
    free: u64,
}

impl SegmentPool {
    /// A pool that holds nothing yet.
    #[must_use]
    pub fn new(budget: Arc<PoolBudget>) -> Self {
        Self {
            budget,
            chunks: Vec::new(),
            vacant: Vec::new(),
            cached: Vec::new(),
            partial: Default::default(),
            held_bytes: 0,
        }
    }

    /// The budget it draws from.
    #[must_use]
    pub fn budget(&self) -> &Arc<PoolBudget> {
        &self.budget
    }

    /// Bytes this pool holds of its budget: chunks in use and what was charged.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Lends a segment. Its content is whatever was there before.
    pub fn take(&mut self, class: SegmentClass) -> Result<Segment, NoRoom> {
        // The tightest chunk first: larger runs of free units stay whole for larger segments.
        let tightest = self.partial.iter().skip(class as usize).find_map(|chunks| chunks.first().copied());
        let chunk = match tightest {
            Some(chunk) => chunk,
            None => self.open_chunk()?,
        };
        let unit = class.fit(self.free(chunk)).ok_or(NoRoom)?;
        let segment = Segment { chunk, unit, class };
        self.mark(chunk, self.free(chunk) & !segment.mask());
        Ok(segment)
    }

    /// Takes a segment back.
    pub fn put(&mut self, segment: Segment) {
        let free = self.free(segment.chunk);
        debug_assert_eq!(free & segment.mask(), 0, "a segment came back twice");
        self.mark(segment.chunk, free | segment.mask());
    }

    /// Charges memory that stands beside the segments.
    pub fn charge(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.budget.charge(bytes)?;
        self.held_bytes += bytes;
        Ok(())
    }

    /// Gives back what was charged.
    pub fn release(&mut self, bytes: usize) {
        debug_assert!(self.held_bytes >= bytes, "more released than charged");
        self.held_bytes -= bytes;
        self.budget.release(bytes);
    }

    /// The bytes of a segment this pool lent.
    #[must_use]
    pub fn bytes(&self, segment: &Segment) -> &[u8] {
        let start = segment.start();
        &self.chunks[segment.chunk as usize].bytes[start..start + segment.bytes()]
    }

    /// The bytes of a segment this pool lent, for writing.
    pub fn bytes_mut(&mut self, segment: &Segment) -> &mut [u8] {
        let start = segment.start();
        &mut self.chunks[segment.chunk as usize].bytes[start..start + segment.bytes()]
    }

    /// Copies `len` bytes at `from_at` of one segment to `to_at` of another.
    pub fn copy(&mut self, from: &Segment, from_at: usize, to: &Segment, to_at: usize, len: usize) {
        let (from_start, to_start) = (from.start() + from_at, to.start() + to_at);
        let source = from_start..from_start + len;
        if from.chunk == to.chunk {
            self.chunks[from.chunk as usize].bytes.copy_within(source, to_start);
        } else if let Ok([from, to]) = self.chunks.get_disjoint_mut([from.chunk as usize, to.chunk as usize]) {
            to.bytes[to_start..to_start + len].copy_from_slice(&from.bytes[source]);
        } else {
            debug_assert!(false, "a segment of another pool");
        }
    }

    fn free(&self, chunk: u32) -> u64 {
        self.chunks[chunk as usize].free
    }

    /// Sets the free units of a chunk in use, and lists it by them or closes it.
    fn mark(&mut self, chunk: u32, free: u64) {
        let before = SegmentClass::largest(std::mem::replace(&mut self.chunks[chunk as usize].free, free));
        let after = SegmentClass::largest(free);
        if before != after {
            // A whole chunk (`Kib64`) is in no list: it is either just opened or about to be closed.
            if let Some(chunks) = before.and_then(|class| self.partial.get_mut(class as usize)) {
                chunks.remove(&chunk);
            }
            match after.map(|class| self.partial.get_mut(class as usize)) {
                Some(Some(chunks)) => drop(chunks.insert(chunk)),
                Some(None) => self.close_chunk(chunk),
                None => {}
            }
        }
    }

    fn open_chunk(&mut self) -> Result<u32, NoRoom> {
        let fresh = u32::try_from(self.chunks.len()).map_err(|_| NoRoom)?;
        self.charge(CHUNK_BYTES)?;
        let bytes = self.cached.pop().unwrap_or_else(|| vec![0; CHUNK_BYTES].into_boxed_slice());
        let chunk = Chunk { bytes, free: u64::MAX };
        if let Some(index) = self.vacant.pop() {
            self.chunks[index as usize] = chunk;
            return Ok(index);
        }
        self.chunks.push(chunk);
        Ok(fresh)
    }

    fn close_chunk(&mut self, chunk: u32) {
        let bytes = std::mem::take(&mut self.chunks[chunk as usize].bytes);
        if self.cached.len() < CHUNKS_CACHED_MAX {
            self.cached.push(bytes);
        }
        self.vacant.push(chunk);
        self.release(CHUNK_BYTES);
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        assert!(self.budget.used_bytes() <= self.budget.capacity_bytes());
        assert!(self.held_bytes <= self.budget.used_bytes());
        assert!(self.cached.len() <= CHUNKS_CACHED_MAX);
        let in_use = self.chunks.iter().filter(|chunk| !chunk.bytes.is_empty()).count();
        assert_eq!(in_use + self.vacant.len(), self.chunks.len());
        assert!(in_use * CHUNK_BYTES <= self.held_bytes);
        for (index, chunk) in self.chunks.iter().enumerate() {
            assert_eq!(chunk.bytes.is_empty(), self.vacant.contains(&(index as u32)));
            assert_eq!(chunk.bytes.is_empty(), chunk.free == u64::MAX);
            for (class, listed) in SegmentClass::ALL.into_iter().zip(&self.partial) {
                let largest = SegmentClass::largest(chunk.free) == Some(class);
                assert_eq!(largest, listed.contains(&(index as u32)));
            }
        }
    }
}

impl Drop for SegmentPool {
    /// A pool that goes takes its chunks along and frees its part of the budget.
    fn drop(&mut self) {
        self.budget.release(self.held_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_cover_what_fits_one_segment() {
        assert_eq!(SegmentClass::smallest_for(0), Some(SegmentClass::Kib1));
        assert_eq!(SegmentClass::smallest_for(1024), Some(SegmentClass::Kib1));
        assert_eq!(SegmentClass::smallest_for(1025), Some(SegmentClass::Kib4));
        assert_eq!(SegmentClass::smallest_for(65_536), Some(SegmentClass::Kib64));
        assert_eq!(SegmentClass::smallest_for(65_537), None);
    }

    #[test]
    fn a_chunk_is_cut_for_all_classes_and_comes_back_whole() {
        let budget = PoolBudget::new(CHUNK_BYTES);
        let mut pool = SegmentPool::new(budget.clone());
        let mut lent: Vec<_> = [SegmentClass::Kib1, SegmentClass::Kib16, SegmentClass::Kib4, SegmentClass::Kib16]
            .map(|class| pool.take(class).unwrap())
            .into();
        assert_eq!(budget.used_bytes(), CHUNK_BYTES);
        assert_eq!(pool.take(SegmentClass::Kib64), Err(NoRoom));
        // What the small ones left of their sixteenths can still be lent.
        lent.push(pool.take(SegmentClass::Kib4).unwrap());
        pool.check_invariants();
        lent.into_iter().for_each(|segment| pool.put(segment));
        pool.check_invariants();
        assert_eq!(budget.used_bytes(), 0);
        let whole = pool.take(SegmentClass::Kib64).unwrap();
        pool.put(whole);
    }

    #[test]
    fn a_core_is_never_refused_for_what_another_one_keeps() {
        let budget = PoolBudget::new(CHUNKS_CACHED_MAX * CHUNK_BYTES);
        let mut first = SegmentPool::new(budget.clone());
        let mut second = SegmentPool::new(budget.clone());
        let lent: Vec<_> = (0..CHUNKS_CACHED_MAX).map(|_| first.take(SegmentClass::Kib64).unwrap()).collect();
        assert_eq!(second.take(SegmentClass::Kib1), Err(NoRoom));
        lent.into_iter().for_each(|segment| first.put(segment));
        for _ in 0..CHUNKS_CACHED_MAX {
            drop(second.take(SegmentClass::Kib64).unwrap());
        }
        assert_eq!(first.charge(1), Err(NoRoom));
        drop(second);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn bytes_are_copied_within_and_between_chunks() {
        let mut pool = SegmentPool::new(PoolBudget::new(4 * CHUNK_BYTES));
        let near = pool.take(SegmentClass::Kib1).unwrap();
        let far = pool.take(SegmentClass::Kib64).unwrap();
        let beside = pool.take(SegmentClass::Kib4).unwrap();
        pool.bytes_mut(&near)[10..15].copy_from_slice(b"event");
        pool.copy(&near, 10, &far, 65_531, 5);
        pool.copy(&far, 65_531, &beside, 0, 5);
        pool.copy(&beside, 0, &near, 1019, 5);
        assert_eq!(&pool.bytes(&near)[1019..], b"event");
    }

    proptest! {
        /// Segments never overlap, the budget is never passed, and everything comes back.
        #[test]
        fn lending_is_exclusive_and_bounded(steps in prop::collection::vec((0usize..6, any::<prop::sample::Index>()), 1..300)) {
            let budget = PoolBudget::new(3 * CHUNK_BYTES + 5000);
            let mut pool = SegmentPool::new(budget.clone());
            let mut lent: Vec<(Segment, u8)> = Vec::new();
            let mut charged = 0;
            for (number, (step, pick)) in steps.into_iter().enumerate() {
                match SegmentClass::ALL.get(step) {
                    Some(&class) => if let Ok(segment) = pool.take(class) {
                        let fill = number as u8;
                        pool.bytes_mut(&segment).fill(fill);
                        lent.push((segment, fill));
                    },
                    None if step == 4 && !lent.is_empty() => {
                        let (segment, fill) = lent.swap_remove(pick.index(lent.len()));
                        prop_assert!(pool.bytes(&segment).iter().all(|&byte| byte == fill));
                        pool.put(segment);
                    }
                    None => if pool.charge(1000).is_ok() { charged += 1000; },
                }
                pool.check_invariants();
                let sum: usize = lent.iter().map(|(segment, _)| segment.bytes()).sum();
                prop_assert!(sum + charged <= pool.held_bytes());
            }
            for (segment, fill) in lent.drain(..) {
                prop_assert!(pool.bytes(&segment).iter().all(|&byte| byte == fill));
                pool.put(segment);
            }
            prop_assert_eq!(pool.held_bytes(), charged);
            pool.release(charged);
            prop_assert_eq!(budget.used_bytes(), 0);
        }
    }
}
