//! Delivery blocks: the one copy of what goes out to many connections of a core.
//!
//! Owns the bytes of every run written on this core until the last write queue has handed them to its socket. Each
//! [`Lane`] appends to an open block of its own, so that the runs of one lane are contiguous; what only one connection
//! gets goes through one more lane. It does not know connections: write queues hold [`BlockSlice`]s and give each one
//! back.
//!
//! Invariants:
//! - `slices` of a block = the slices of it that write queues hold; its bytes are not touched before that is 0.
//! - A block changes hands (is cleared or recycled) only in [`Blocks::end_turn`]: a [`Run`] is valid within its turn
//!   even if nobody queues it. A cleared block gets a new age, so that an old run misses.
//! - `bytes` = capacities of all blocks in use. It is bounded from outside: when it exceeds the bound, the queues that
//!   still refer to the oldest blocks copy their rest and give the slices back (`WriteQueue::detach`).

use crate::engine::service::{LANES, Lane, Run};

/// Size of a block. A whole turn's runs of a busy lane fit; one stalled reader pins no more than this per slice.
pub(super) const BLOCK_BYTES: usize = 128 << 10;
/// Memory of this many recycled blocks is kept for the next.
const POOL_BLOCKS_MAX: usize = 8;
/// The lane of bytes that only one connection gets.
const OWN_LANE: usize = LANES;
/// Bits of [`Run::block`] that hold the index; the rest is the age.
const INDEX_BITS: u32 = 24;

/// A piece of one block that a write queue refers to. Counted: see [`Blocks::hold`] and [`Blocks::release`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BlockSlice {
    /// Index of the block.
    pub(super) block: u32,
    /// Offset in the block, bytes.
    pub(super) start: u32,
    /// Length in bytes.
    pub(super) len: u32,
    /// The mark of the last push in it.
    pub(super) mark: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// Indices without memory.
    vacant: Vec<u32>,
    pool: Vec<Vec<u8>>,
    open: [Option<u32>; LANES + 1],
    /// Blocks written in this turn, or whose last slice came back: looked at when the turn ends.
    touched: Vec<u32>,
    /// Blocks ever begun; the next one's age.
    begun: u64,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    age: u64,
    slices: u32,
    open: bool,
    touched: bool,
}

impl Blocks {
    /// Appends bytes to the lane's open block. At most 4 GiB, which every bound of a message keeps.
    pub(super) fn write(&mut self, lane: Lane, bytes: &[u8]) -> Run {
        debug_assert!(usize::from(lane.0) < LANES, "a core has {LANES} lanes");
        self.append(usize::from(lane.0) % LANES, bytes)
    }

    /// Stores bytes that only one connection gets.
    pub(super) fn write_own(&mut self, bytes: &[u8]) -> Run {
        self.append(OWN_LANE, bytes)
    }

    /// A slice of the run, counted; none if the run is from an earlier turn.
    pub(super) fn hold(&mut self, run: Run, mark: u64) -> Option<BlockSlice> {
        let index = u32::try_from(run.block & ((1 << INDEX_BITS) - 1)).ok()?;
        let block = self.blocks.get_mut(index as usize)?;
        let valid = block.age == run.block >> INDEX_BITS && run.start as usize + run.len as usize <= block.bytes.len();
        valid.then(|| {
            block.slices += 1;
            BlockSlice { block: index, start: run.start, len: run.len, mark }
        })
    }

    /// Gives a slice back.
    pub(super) fn release(&mut self, slice: BlockSlice) {
        if let Some(block) = self.blocks.get_mut(slice.block as usize) {
            debug_assert!(block.slices > 0, "each slice is released once");
            block.slices = block.slices.saturating_sub(1);
            if block.slices == 0 {
                self.touch(slice.block);
            }
        }
    }

    /// The bytes of a held slice.
    pub(super) fn bytes(&self, slice: &BlockSlice) -> &[u8] {
        let range = slice.start as usize..slice.start as usize + slice.len as usize;
        let bytes = self.blocks.get(slice.block as usize).and_then(|block| block.bytes.get(range));
        debug_assert!(bytes.is_some(), "a held slice lies in its block");
        bytes.unwrap_or_default()
    }

    /// The age of the block that a held slice refers to; older blocks have smaller ages.
    pub(super) fn age(&self, slice: &BlockSlice) -> u64 {
        self.blocks.get(slice.block as usize).map_or(0, |block| block.age)
    }

    /// Capacity of all blocks in use.
    pub(super) const fn bytes_in_use(&self) -> usize {
        self.bytes
    }

    /// Frees what nobody refers to. Runs of this turn are invalid from now on.
    pub(super) fn end_turn(&mut self) {
        while let Some(index) = self.touched.pop() {
            let Some(block) = self.blocks.get_mut(index as usize) else { continue };
            block.touched = false;
            if block.slices > 0 {
                continue;
            }
            if block.open {
                block.bytes.clear();
                block.age = self.begun;
                self.begun += 1;
                continue;
            }
            let mut memory = std::mem::take(&mut block.bytes);
            self.bytes -= memory.capacity();
            self.vacant.push(index);
            if memory.capacity() == BLOCK_BYTES && self.pool.len() < POOL_BLOCKS_MAX {
                memory.clear();
                self.pool.push(memory);
            }
        }
    }

    /// The age below which every block must be freed so that at most `bytes_max` stay in use: the oldest go first.
    /// Blocks still open are sealed if they are among them.
    pub(super) fn age_to_free(&mut self, bytes_max: usize) -> u64 {
        let mut used: Vec<(u64, usize, u32)> = (0..)
            .zip(&self.blocks)
            .filter(|(_, block)| block.slices > 0)
            .map(|(index, block)| (block.age, block.bytes.capacity(), index))
            .collect();
        used.sort_unstable();
        let mut bytes = self.bytes;
        let mut age = 0;
        for (block_age, capacity, index) in used {
            if bytes <= bytes_max {
                break;
            }
            self.seal(index);
            bytes -= capacity;
            age = block_age + 1;
        }
        age
    }

    fn append(&mut self, lane: usize, bytes: &[u8]) -> Run {
        let index = self.block_with_room(lane, bytes.len());
        self.touch(index);
        let mut run = Run { block: u64::from(index), start: 0, len: 0 };
        if let Some(block) = self.blocks.get_mut(index as usize) {
            run.block |= block.age << INDEX_BITS;
            let start = u32::try_from(block.bytes.len());
            let len = u32::try_from(bytes.len());
            debug_assert!(start.is_ok() && len.is_ok(), "a run has less than 4 GiB");
            if let (Ok(start), Ok(len)) = (start, len) {
                block.bytes.extend_from_slice(bytes);
                run = Run { start, len, ..run };
            }
        }
        run
    }

    /// The lane's open block, or a new one; a run longer than a block gets one of its own, which stays closed.
    fn block_with_room(&mut self, lane: usize, len: usize) -> u32 {
        if len > BLOCK_BYTES {
            return self.begin(Vec::with_capacity(len), false);
        }
        let open = self.open.get(lane).copied().flatten();
        if let Some(index) = open {
            if self.blocks.get(index as usize).is_some_and(|block| block.bytes.len() + len <= BLOCK_BYTES) {
                return index;
            }
            self.seal(index);
        }
        let memory = self.pool.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK_BYTES));
        let index = self.begin(memory, true);
        if let Some(open) = self.open.get_mut(lane) {
            *open = Some(index);
        }
        index
    }

    fn begin(&mut self, memory: Vec<u8>, open: bool) -> u32 {
        self.bytes += memory.capacity();
        let block = Block { bytes: memory, age: self.begun, slices: 0, open, touched: false };
        self.begun += 1;
        if let Some(index) = self.vacant.pop()
            && let Some(place) = self.blocks.get_mut(index as usize)
        {
            *place = block;
            return index;
        }
        let index = self.blocks.len();
        assert!(index < 1 << INDEX_BITS, "the bound of delivery memory keeps blocks far below 2^{INDEX_BITS}");
        self.blocks.push(block);
        index as u32
    }

    fn seal(&mut self, index: u32) {
        if let Some(block) = self.blocks.get_mut(index as usize)
            && block.open
        {
            block.open = false;
            for open in &mut self.open {
                if *open == Some(index) {
                    *open = None;
                }
            }
            self.touch(index);
        }
    }

    fn touch(&mut self, index: u32) {
        if let Some(block) = self.blocks.get_mut(index as usize)
            && !block.touched
        {
            block.touched = true;
            self.touched.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_lane_join_and_those_of_two_do_not() {
        let mut blocks = Blocks::default();
        let first = blocks.write(Lane(0), b"one");
        let other = blocks.write(Lane(1), b"xxx");
        let second = blocks.write(Lane(0), b"two");
        let joined = first.join(second).unwrap();
        assert_eq!(first.join(other), None);
        let slice = blocks.hold(joined, 7).unwrap();
        assert_eq!(blocks.bytes(&slice), b"onetwo");
        assert_eq!(slice.mark, 7);
    }

    #[test]
    fn an_unused_open_block_starts_again_each_turn() {
        let mut blocks = Blocks::default();
        let run = blocks.write(Lane(0), b"one");
        let slice = blocks.hold(run, 0).unwrap();
        blocks.end_turn();
        assert_eq!(blocks.write(Lane(0), b"two").start, 3, "a held slice keeps the block");
        blocks.release(slice);
        blocks.end_turn();
        let again = blocks.write(Lane(0), b"three");
        assert_eq!(again.start, 0);
        assert_ne!(again.block, run.block, "a run of an earlier turn misses");
        assert_eq!(blocks.bytes_in_use(), BLOCK_BYTES);
    }

    #[test]
    fn a_block_freed_in_mid_turn_keeps_its_bytes_to_the_end_of_the_turn() {
        let mut blocks = Blocks::default();
        let run = blocks.write(Lane(0), &[1; BLOCK_BYTES]);
        let slice = blocks.hold(run, 0).unwrap();
        blocks.release(slice);
        let _seals_the_first = blocks.write(Lane(0), &[2; BLOCK_BYTES]);
        let slice = blocks.hold(run, 0).unwrap();
        assert_eq!(blocks.bytes(&slice), &[1; BLOCK_BYTES]);
        blocks.release(slice);
        blocks.end_turn();
        assert_eq!(blocks.bytes_in_use(), BLOCK_BYTES, "the sealed block went, the open one stays");
    }

    #[test]
    fn a_long_run_has_a_block_of_its_own() {
        let mut blocks = Blocks::default();
        let small = blocks.write(Lane(0), b"a");
        let long = blocks.write(Lane(0), &vec![3; 2 * BLOCK_BYTES]);
        let small_again = blocks.write(Lane(0), b"b");
        assert_ne!(long.block, small.block);
        assert!(small.join(small_again).is_some());
        let slice = blocks.hold(long, 0).unwrap();
        blocks.end_turn();
        assert!(blocks.bytes_in_use() >= 3 * BLOCK_BYTES);
        blocks.release(slice);
        blocks.end_turn();
        assert_eq!(blocks.bytes_in_use(), BLOCK_BYTES);
    }

    #[test]
    fn the_oldest_blocks_are_named_first() {
        let mut blocks = Blocks::default();
        let mut slices = Vec::new();
        for _ in 0..4 {
            let run = blocks.write(Lane(0), &[0; BLOCK_BYTES]);
            slices.push(blocks.hold(run, 0).unwrap());
        }
        blocks.end_turn();
        let age = blocks.age_to_free(2 * BLOCK_BYTES);
        let old = slices.iter().filter(|slice| blocks.age(slice) < age).count();
        assert_eq!(old, 2);
        for slice in slices {
            blocks.release(slice);
        }
        blocks.end_turn();
        assert_eq!(blocks.bytes_in_use(), BLOCK_BYTES);
    }
}
