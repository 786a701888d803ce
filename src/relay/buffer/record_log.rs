//! Where a session's event bytes lie: records appended to segments of the arena.
//!
//! A record that fits a quarter of the largest segment lies in one piece, behind a header that names its entry;
//! reading it copies nothing. A larger one gets segments to itself (*spread*). Segments grow with the log,
//! 1 → 64 KiB, so that a session of three events holds one KiB.
//!
//! Records die in any order. A segment without live records goes back at once, wherever it stands. Dead bytes that live
//! ones pin are won back by *tidying*: the live records of the sparsest closed segment are poured into the tail, or,
//! where they do not fit, slid together so that this segment becomes the tail. Neither needs a new segment: tidying
//! cannot fail for want of room, and one step copies less than half a segment.
//!
//! Does not know positions or order. Entries are told where their bytes moved to.
//!
//! Invariants, after each public call:
//! - `live ≤ used ≤ size` for each segment; only the tail may have `live = 0`, and then `used = 0`.
//! - `held ≤ 2 × live + 128 KiB` over the segments of records in one piece, the tail and one more counted apart. So a
//!   lone survivor pins no more than its own segment.
//! - A spread record of n bytes holds less than 4/3 n + 1 KiB.
//!
//! The descriptors (at most 24 bytes per segment) are not charged to the arena's budget.

use super::entry::{Body, Entry, RecordPlace};
use crate::base::segment_pool::{CHUNK_BYTES, NoRoom, Segment, SegmentClass, SegmentPool};

/// Entry id and length, little-endian.
const HEADER_BYTES: usize = 8;
/// Longer records are spread; four of this length fill a segment, so the tail end lost in each is under a quarter.
const WHOLE_BYTES_MAX: usize = CHUNK_BYTES / 4 - HEADER_BYTES;
/// Room that is not worth tidying: the tail may be as empty as it likes.
const SLACK_BYTES: usize = CHUNK_BYTES;

/// The records of one session.
#[derive(Debug, Default)]
pub(super) struct RecordLog {
    segments: Vec<Option<LogSegment>>,
    /// Indices into `segments` that are `None`.
    vacant: Vec<u32>,
    /// The segment that is appended to.
    tail: Option<u32>,
    /// Bytes of all `segments`.
    held: usize,
    /// Bytes of the live records in them, headers included.
    live: usize,
    /// Bytes of the segments of spread records.
    spread: usize,
}

#[derive(Debug)]
struct LogSegment {
    segment: Segment,
    used: u32,
    live: u32,
}

impl LogSegment {
    fn room(&self) -> usize {
        self.segment.bytes() - self.used as usize
    }

    fn dead(&self) -> usize {
        self.segment.bytes() - self.live as usize
    }
}

impl RecordLog {
    /// Bytes of the segments it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.held + self.spread
    }

    /// Appends a record that belongs to entry `id`. `entries` are told of records that had to move for it.
    pub(super) fn append(
        &mut self,
        pool: &mut SegmentPool,
        entries: &mut [Entry],
        id: u32,
        raw: &[u8],
    ) -> Result<Body, NoRoom> {
        if raw.len() > WHOLE_BYTES_MAX {
            return self.append_spread(pool, raw).map(Body::Spread);
        }
        let need = HEADER_BYTES + raw.len();
        let index = match self.tail {
            Some(tail) if self.tail_room() >= need => tail,
            _ => self.open_tail(pool, entries, need)?,
        };
        let Some(tail) = self.segments[index as usize].as_mut() else {
            return Err(NoRoom);
        };
        let at = tail.used as usize;
        let record = &mut pool.bytes_mut(&tail.segment)[at..at + need];
        record[..4].copy_from_slice(&id.to_le_bytes());
        // At most WHOLE_BYTES_MAX, like all lengths and offsets cast below at most CHUNK_BYTES.
        record[4..HEADER_BYTES].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        record[HEADER_BYTES..].copy_from_slice(raw);
        tail.used += need as u32;
        tail.live += need as u32;
        self.live += need;
        Ok(Body::Whole(RecordPlace { segment: index, at: at as u16 }))
    }

    /// Lets a record of `len` bytes go. Its entry must not be live any more: see [`Entry::VACANT`].
    pub(super) fn remove(&mut self, pool: &mut SegmentPool, entries: &mut [Entry], body: Body, len: usize) {
        match body {
            Body::Spread(segments) => self.put_spread(pool, segments.into_vec()),
            Body::Whole(place) => {
                let need = HEADER_BYTES + len;
                self.live -= need;
                if let Some(Some(segment)) = self.segments.get_mut(place.segment as usize) {
                    segment.live -= need as u32;
                    if segment.live == 0 {
                        segment.used = 0;
                        if self.tail != Some(place.segment) {
                            self.put_segment(pool, place.segment);
                        }
                    }
                }
                while self.held > 2 * self.live + SLACK_BYTES && self.tidy(pool, entries) {}
            }
        }
    }

    /// The bytes of a record, copied together in `scratch` where they are spread.
    pub(super) fn read<'a>(
        &self,
        pool: &'a SegmentPool,
        body: &Body,
        len: usize,
        scratch: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        match body {
            Body::Whole(place) => match &self.segments[place.segment as usize] {
                Some(segment) => {
                    let start = usize::from(place.at) + HEADER_BYTES;
                    &pool.bytes(&segment.segment)[start..start + len]
                }
                None => &[],
            },
            Body::Spread(segments) => {
                scratch.clear();
                scratch.reserve_exact(len);
                for segment in segments {
                    let bytes = pool.bytes(segment);
                    scratch.extend_from_slice(&bytes[..bytes.len().min(len - scratch.len())]);
                }
                scratch
            }
        }
    }

    /// Lets one of all records go, before [`RecordLog::clear`].
    pub(super) fn forget(&mut self, pool: &mut SegmentPool, body: Body) {
        if let Body::Spread(segments) = body {
            self.put_spread(pool, segments.into_vec());
        }
    }

    /// Gives back the segment that an empty log keeps to append to.
    pub(super) fn put_tail(&mut self, pool: &mut SegmentPool) {
        debug_assert_eq!(self.live, 0, "only an empty log may let go of its tail");
        if let Some(tail) = self.tail.take() {
            self.put_segment(pool, tail);
        }
    }

    /// Gives back everything at once. Spread records were forgotten one by one.
    pub(super) fn clear(&mut self, pool: &mut SegmentPool) {
        debug_assert_eq!(self.spread, 0, "a spread record was not forgotten");
        self.segments.drain(..).flatten().for_each(|segment| pool.put(segment.segment));
        *self = Self::default();
    }

    fn tail_room(&self) -> usize {
        self.tail.and_then(|tail| self.segments[tail as usize].as_ref()).map_or(0, LogSegment::room)
    }

    /// Finds a tail with room for `need` bytes: a new segment, or one whose dead bytes are worth a slide.
    fn open_tail(&mut self, pool: &mut SegmentPool, entries: &mut [Entry], need: usize) -> Result<u32, NoRoom> {
        let least = SegmentClass::smallest_for(need).ok_or(NoRoom)?;
        let mut class = Some(least.max(self.growth_class()));
        // Under pressure a smaller segment may still be lent where a whole chunk is not.
        while let Some(wanted) = class.filter(|&class| class >= least) {
            if let Ok(segment) = pool.take(wanted) {
                let tail = self.insert(segment);
                self.set_tail(pool, tail);
                return Ok(tail);
            }
            class = wanted.smaller();
        }
        let victim = self.closed().max_by_key(|(_, segment)| segment.dead());
        // A quarter at least: sliding a whole segment for every few records would cost more than it wins.
        let worth = |segment: &LogSegment| segment.dead() >= need.max(CHUNK_BYTES / 4);
        let Some((victim, _)) = victim.filter(|(_, segment)| worth(segment)) else {
            return Err(NoRoom);
        };
        self.slide(pool, entries, victim);
        self.set_tail(pool, victim);
        Ok(victim)
    }

    /// New segments are of the order of a quarter of what is held already.
    fn growth_class(&self) -> SegmentClass {
        let fits = |class: &SegmentClass| self.held < 4 * class.bytes();
        SegmentClass::ALL.into_iter().find(fits).unwrap_or(SegmentClass::Kib64)
    }

    fn insert(&mut self, segment: Segment) -> u32 {
        self.held += segment.bytes();
        let segment = Some(LogSegment { segment, used: 0, live: 0 });
        if let Some(index) = self.vacant.pop() {
            self.segments[index as usize] = segment;
            return index;
        }
        self.segments.push(segment);
        // A session holds far fewer than 2³² segments: that many would be 4 TiB.
        (self.segments.len() - 1) as u32
    }

    /// Appends to another segment from now on; the former tail goes if it holds nothing.
    fn set_tail(&mut self, pool: &mut SegmentPool, tail: u32) {
        let Some(former) = self.tail.replace(tail) else {
            return;
        };
        if former != tail && self.segments[former as usize].as_ref().is_some_and(|segment| segment.live == 0) {
            self.put_segment(pool, former);
        }
    }

    fn put_segment(&mut self, pool: &mut SegmentPool, index: u32) {
        if let Some(segment) = self.segments[index as usize].take() {
            self.held -= segment.segment.bytes();
            pool.put(segment.segment);
            self.vacant.push(index);
        }
    }

    /// Wins back dead bytes of the sparsest closed segment. Answers false if there is nothing worth it.
    ///
    /// While more than half of what is held is dead, the tail aside, the sparsest is at most half live. Slid together
    /// it makes a tail that takes any such segment of its own class or a smaller one, so at most four steps in a row
    /// pass without a segment coming back.
    fn tidy(&mut self, pool: &mut SegmentPool, entries: &mut [Entry]) -> bool {
        let Some(victim) = self.sparsest() else {
            return false;
        };
        let Some(segment) = self.segments[victim as usize].as_ref() else {
            return false;
        };
        let live = segment.live as usize;
        if live * 2 > segment.segment.bytes() {
            return false;
        }
        match self.tail {
            Some(tail) if self.tail_room() >= live => self.pour(pool, entries, victim, tail),
            _ => {
                self.slide(pool, entries, victim);
                self.set_tail(pool, victim);
            }
        }
        true
    }

    /// The closed segment with the smallest share of live bytes.
    fn sparsest(&self) -> Option<u32> {
        let share = |segment: &LogSegment| segment.live as usize * (CHUNK_BYTES / segment.segment.bytes());
        self.closed().min_by_key(|(_, segment)| share(segment)).map(|(index, _)| index)
    }

    /// All segments but the tail.
    fn closed(&self) -> impl Iterator<Item = (u32, &LogSegment)> {
        let closed = (0u32..).zip(&self.segments).filter(|&(index, _)| self.tail != Some(index));
        closed.filter_map(|(index, segment)| Some((index, segment.as_ref()?)))
    }

    /// Moves all live records of one segment behind those of the tail, and gives it back.
    fn pour(&mut self, pool: &mut SegmentPool, entries: &mut [Entry], from: u32, tail: u32) {
        let Some(source) = self.segments[from as usize].take() else {
            return;
        };
        if let Some(to) = self.segments[tail as usize].as_mut() {
            for (at, need) in live_records(pool, &source, entries, from) {
                pool.copy(&source.segment, at, &to.segment, to.used as usize, need);
                relocate(pool, &to.segment, to.used, entries, tail);
                to.used += need as u32;
                to.live += need as u32;
            }
        }
        self.segments[from as usize] = Some(source);
        self.put_segment(pool, from);
    }

    /// Moves all live records of a segment to its start.
    fn slide(&mut self, pool: &mut SegmentPool, entries: &mut [Entry], index: u32) {
        let Some(segment) = self.segments[index as usize].as_mut() else {
            return;
        };
        let mut used = 0;
        for (at, need) in live_records(pool, segment, entries, index) {
            pool.copy(&segment.segment, at, &segment.segment, used as usize, need);
            relocate(pool, &segment.segment, used, entries, index);
            used += need as u32;
        }
        debug_assert_eq!(used, segment.live, "the records of a segment and its count of live bytes differ");
        segment.used = used;
    }

    fn append_spread(&mut self, pool: &mut SegmentPool, raw: &[u8]) -> Result<Box<[Segment]>, NoRoom> {
        let mut segments = Vec::with_capacity(raw.len() / CHUNK_BYTES + 9);
        let mut rest = raw;
        while !rest.is_empty() {
            let Ok(segment) = pool.take(piece_class(rest.len())) else {
                segments.into_iter().for_each(|segment| pool.put(segment));
                return Err(NoRoom);
            };
            let (piece, behind) = rest.split_at(rest.len().min(segment.bytes()));
            pool.bytes_mut(&segment)[..piece.len()].copy_from_slice(piece);
            segments.push(segment);
            rest = behind;
        }
        self.spread += segments.iter().map(Segment::bytes).sum::<usize>();
        Ok(segments.into_boxed_slice())
    }

    fn put_spread(&mut self, pool: &mut SegmentPool, segments: Vec<Segment>) {
        for segment in segments {
            self.spread -= segment.bytes();
            pool.put(segment);
        }
    }

    #[cfg(test)]
    pub(super) fn check_invariants<'a>(&self, bodies: impl Iterator<Item = (&'a Body, usize)>) {
        let (mut live, mut spread) = (0, 0);
        for (body, len) in bodies {
            match body {
                Body::Whole(_) => live += HEADER_BYTES + len,
                Body::Spread(segments) => {
                    let held = segments.iter().map(Segment::bytes).sum::<usize>();
                    assert!(held >= len && held < len * 4 / 3 + 1024, "{len} bytes spread over {held}");
                    spread += held;
                }
            }
        }
        assert_eq!((live, spread), (self.live, self.spread));
        let segments = || self.segments.iter().flatten();
        assert_eq!(segments().map(|segment| segment.live as usize).sum::<usize>(), self.live);
        assert_eq!(segments().map(|segment| segment.segment.bytes()).sum::<usize>(), self.held);
        for (index, segment) in self.segments.iter().enumerate() {
            let Some(segment) = segment else { continue };
            assert!(segment.live <= segment.used && segment.used as usize <= segment.segment.bytes());
            assert!(segment.live > 0 || (segment.used == 0 && self.tail == Some(index as u32)));
        }
    }

    #[cfg(test)]
    pub(super) fn is_tidy(&self) -> bool {
        self.held <= 2 * self.live + 2 * SLACK_BYTES
    }
}

/// The class of the next piece of a record of which this much is left: the one that holds it all if that wastes less
/// than a quarter of it, or else the next smaller one.
fn piece_class(left: usize) -> SegmentClass {
    match SegmentClass::smallest_for(left) {
        None => SegmentClass::Kib64,
        Some(class) if left * 4 > class.bytes() * 3 => class,
        Some(class) => class.smaller().unwrap_or(SegmentClass::Kib1),
    }
}

/// Where the live records of a segment begin and how long they are, headers included. Reads ahead, so that the
/// records may be moved meanwhile.
fn live_records(pool: &SegmentPool, segment: &LogSegment, entries: &[Entry], index: u32) -> Vec<(usize, usize)> {
    let bytes = pool.bytes(&segment.segment);
    let mut records = Vec::new();
    let mut at = 0;
    while at < segment.used as usize {
        let (id, len) = header(bytes, at);
        let place = RecordPlace { segment: index, at: at as u16 };
        if entries.get(id as usize).is_some_and(|entry| matches!(entry.body, Body::Whole(own) if own == place)) {
            records.push((at, HEADER_BYTES + len));
        }
        at += HEADER_BYTES + len;
    }
    records
}

/// Tells the entry of the record at `at` that its bytes lie there now.
fn relocate(pool: &SegmentPool, segment: &Segment, at: u32, entries: &mut [Entry], index: u32) {
    let (id, _) = header(pool.bytes(segment), at as usize);
    if let Some(entry) = entries.get_mut(id as usize) {
        entry.body = Body::Whole(RecordPlace { segment: index, at: at as u16 });
    }
}

fn header(bytes: &[u8], at: usize) -> (u32, usize) {
    let number = |at: usize| bytes[at..].first_chunk().map_or(0, |number| u32::from_le_bytes(*number));
    (number(at), number(at + 4) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_spread_record_waste_little() {
        for len in (WHOLE_BYTES_MAX..200_000).step_by(97) {
            let (mut left, mut held) = (len, 0);
            while left > 0 {
                let class = piece_class(left);
                held += class.bytes();
                left = left.saturating_sub(class.bytes());
            }
            assert!(held < len * 4 / 3 + 1024, "{len} bytes hold {held}");
        }
    }
}
