//! What values cost on the heap: budgets count bytes as the allocator and growing containers take them, not as a peer
//! sent them.
//!
//! Every figure errs upwards: a table counts as if it had just grown, so that what is counted holds whatever the
//! moment.

/// The allocator's own word beside each allocation.
const HEADER_BYTES: usize = size_of::<usize>();
/// Allocations begin at multiples of this; none is smaller than two of them.
const ALIGNMENT_BYTES: usize = 16;

/// An allocation of that many bytes; nothing for none.
#[must_use]
pub const fn allocation(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let taken = bytes.saturating_add(HEADER_BYTES).div_ceil(ALIGNMENT_BYTES).saturating_mul(ALIGNMENT_BYTES);
    if taken < 2 * ALIGNMENT_BYTES { 2 * ALIGNMENT_BYTES } else { taken }
}

/// A string that is shared by reference count, of that many bytes; however many refer to it.
#[must_use]
pub const fn text(len: usize) -> usize {
    allocation(2 * size_of::<usize>() + len)
}

/// An entry of a hash table: with its control byte, in a table of which 7 of 16 places are taken, as after its growth.
#[must_use]
pub const fn table_entry<T>() -> usize {
    (size_of::<T>() + 1) * 16 / 7 + 1
}

/// A hash table that has room for so many entries: 7 of 8 places may be taken.
#[must_use]
pub const fn table<T>(capacity: usize) -> usize {
    capacity.div_ceil(7) * 8 * (size_of::<T>() + 1)
}

/// An item of a vector that grows by doubling, or of an ordered tree, whose nodes may be half full.
#[must_use]
pub const fn item<T>() -> usize {
    2 * size_of::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_have_a_least_size_and_a_header() {
        for (bytes, taken) in [(0, 0), (1, 32), (24, 32), (25, 48), (40, 48), (41, 64), (1 << 20, (1 << 20) + 16)] {
            assert_eq!(allocation(bytes), taken, "{bytes}");
        }
    }

    #[test]
    fn a_table_counts_as_just_grown() {
        assert!(table_entry::<[u8; 15]>() * 7 >= 16 * 16);
        assert_eq!(text(8), 32);
        assert_eq!(item::<u64>(), 16);
    }
}
