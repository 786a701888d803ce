//! A slab whose keys name a slot *and* how often that slot had been used before, so that a stale key misses instead of
//! hitting the slot's next tenant.
//!
//! Owns its values and nothing else; what a key means (a connection, a session) is its user's business.
//!
//! - Entries live in chunks of [`CHUNK_ENTRIES`] and never move: growth costs one chunk and copies nothing, where one
//!   doubling vector would stop a core for the time of copying all its connections.
//! - Insertion, removal and look-up are O(1). The slot freed last is used first, so a quiet slab stays in cache.
//! - Memory is that of the peak, rounded up to a chunk; chunks are kept. Whoever inserts bounds the number.
//! - Slots handed out = live + on the free list + retired.

/// Entries that are allocated together.
pub const CHUNK_ENTRIES: usize = 1024;

/// The end of the free list; therefore no slot has this index.
const NO_SLOT: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Vec<Vec<SlabEntry<T>>>,
    /// Slots ever handed out; all below it exist.
    slots: u32,
    /// The slot freed last, head of the list through [`SlotState::Free`].
    free: u32,
    live: usize,
}

#[derive(Debug)]
struct SlabEntry<T> {
    generation: u32,
    state: SlotState<T>,
}

#[derive(Debug)]
enum SlotState<T> {
    Live(T),
    Free {
        next: u32,
    },
    /// All generations are used up; a further tenant could be hit by a stale key.
    Retired,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// An empty slab, which holds no memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), slots: 0, free: NO_SLOT, live: 0 }
    }

    /// Stores a value and answers its slot and generation.
    ///
    /// # Panics
    /// With 2^32 − 1 slots in use; the user's own bound lies far below.
    pub fn insert(&mut self, value: T) -> (u32, u32) {
        self.insert_with(|_, _| value)
    }

    /// Stores the value made from the slot and generation it is going to have, for values that know their own key.
    ///
    /// # Panics
    /// As [`Slab::insert`].
    pub fn insert_with(&mut self, make: impl FnOnce(u32, u32) -> T) -> (u32, u32) {
        let slot = self.free;
        if let Some(entry) = entry_mut(&mut self.chunks, slot)
            && let SlotState::Free { next } = entry.state
        {
            let generation = entry.generation;
            entry.state = SlotState::Live(make(slot, generation));
            self.free = next;
            self.live += 1;
            return (slot, generation);
        }
        let slot = self.slots;
        assert!(slot < NO_SLOT, "a slab has fewer than 2^32 - 1 slots");
        let value = make(slot, 0);
        self.append(SlabEntry { generation: 0, state: SlotState::Live(value) });
        self.live += 1;
        (slot, 0)
    }

    /// Takes a value out; its key misses from now on.
    pub fn remove(&mut self, slot: u32, generation: u32) -> Option<T> {
        let entry = entry_mut(&mut self.chunks, slot)?;
        if entry.generation != generation || !matches!(entry.state, SlotState::Live(_)) {
            return None;
        }
        let mut emptied = SlotState::Retired;
        if let Some(next_generation) = generation.checked_add(1) {
            entry.generation = next_generation;
            emptied = SlotState::Free { next: std::mem::replace(&mut self.free, slot) };
        }
        self.live -= 1;
        match std::mem::replace(&mut entry.state, emptied) {
            SlotState::Live(value) => Some(value),
            SlotState::Free { .. } | SlotState::Retired => None,
        }
    }

    /// The value of that key, if it is still there.
    #[must_use]
    pub fn get(&self, slot: u32, generation: u32) -> Option<&T> {
        let (chunk, index) = place(slot);
        match self.chunks.get(chunk)?.get(index)? {
            SlabEntry { generation: g, state: SlotState::Live(value) } if *g == generation => Some(value),
            _ => None,
        }
    }

    /// The value of that key, if it is still there.
    #[must_use]
    pub fn get_mut(&mut self, slot: u32, generation: u32) -> Option<&mut T> {
        match entry_mut(&mut self.chunks, slot)? {
            SlabEntry { generation: g, state: SlotState::Live(value) } if *g == generation => Some(value),
            _ => None,
        }
    }

    /// All live values with slot and generation, ascending by slot.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, &T)> {
        self.iter_from(0)
    }

    /// The live values from that slot on: an iteration in pages continues behind the last slot it saw, and misses
    /// nobody who was there all the time.
    pub fn iter_from(&self, slot: u32) -> impl Iterator<Item = (u32, u32, &T)> {
        let (first, skip) = place(slot);
        let chunks = self.chunks.iter().skip(first);
        let entries =
            chunks.enumerate().flat_map(move |(nth, chunk)| chunk.iter().skip(if nth == 0 { skip } else { 0 }));
        (slot..self.slots).zip(entries).filter_map(|(slot, entry)| match &entry.state {
            SlotState::Live(value) => Some((slot, entry.generation, value)),
            SlotState::Free { .. } | SlotState::Retired => None,
        })
    }

    /// Values held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.live
    }

    /// Whether no value is held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    fn append(&mut self, entry: SlabEntry<T>) {
        let (chunk, _) = place(self.slots);
        if chunk == self.chunks.len() {
            self.chunks.push(Vec::with_capacity(CHUNK_ENTRIES));
        }
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            debug_assert!(chunk.len() < CHUNK_ENTRIES, "a full chunk would have to move its entries");
            chunk.push(entry);
            self.slots += 1;
        }
    }
}

const fn place(slot: u32) -> (usize, usize) {
    (slot as usize / CHUNK_ENTRIES, slot as usize % CHUNK_ENTRIES)
}

fn entry_mut<T>(chunks: &mut [Vec<SlabEntry<T>>], slot: u32) -> Option<&mut SlabEntry<T>> {
    let (chunk, index) = place(slot);
    chunks.get_mut(chunk)?.get_mut(index)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stale_key_misses_the_next_tenant() {
        let mut slab = Slab::new();
        let (slot, generation) = slab.insert("first");
        assert_eq!((slot, generation), (0, 0));
        assert_eq!(slab.remove(slot, generation), Some("first"));
        assert_eq!(slab.remove(slot, generation), None);
        let (again, next) = slab.insert("second");
        assert_eq!((again, next), (slot, 1));
        assert_eq!(slab.get(slot, 0), None);
        assert_eq!(slab.get_mut(slot, 0), None);
        assert_eq!(slab.remove(slot, 0), None);
        assert_eq!(slab.get(slot, 1), Some(&"second"));
    }

    #[test]
    fn keys_out_of_range_miss() {
        let mut slab = Slab::new();
        assert_eq!(slab.get(0, 0), None);
        slab.insert(7);
        for slot in [1, 1023, 1024, u32::MAX - 1, u32::MAX] {
            assert_eq!(slab.get(slot, 0), None, "slot {slot}");
            assert_eq!(slab.remove(slot, 0), None, "slot {slot}");
        }
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_never_lent_again() {
        let mut slab = Slab::new();
        slab.insert(());
        slab.chunks[0][0].generation = u32::MAX;
        assert_eq!(slab.remove(0, u32::MAX), Some(()));
        assert_eq!(slab.insert(()), (1, 0));
        assert_eq!(slab.get(0, u32::MAX), None);
        assert_eq!(slab.iter().count(), 1);
    }

    #[test]
    fn entries_stay_where_they_are_while_the_slab_grows() {
        let mut slab = Slab::new();
        let first = slab.insert(0_u64);
        let address = std::ptr::from_ref(slab.get(first.0, first.1).unwrap());
        let keys: Vec<_> = (1..5_000).map(|n| slab.insert(n)).collect();
        assert_eq!(std::ptr::from_ref(slab.get(first.0, first.1).unwrap()), address);
        assert_eq!(slab.chunks.len(), 5);
        for (n, (slot, generation)) in (1..).zip(keys) {
            assert_eq!(slab.get(slot, generation), Some(&n));
        }
    }

    #[test]
    fn a_value_can_know_its_own_key() {
        let mut slab = Slab::new();
        let (slot, generation) = slab.insert(None);
        slab.remove(slot, generation);
        let key = slab.insert_with(|slot, generation| Some((slot, generation)));
        assert_eq!(slab.get(key.0, key.1), Some(&Some(key)));
    }

    #[test]
    fn pages_continue_behind_the_last_slot_across_chunks() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..3_000).map(|n| slab.insert(n)).collect();
        for (slot, generation) in keys.iter().filter(|(slot, _)| slot % 3 != 0) {
            slab.remove(*slot, *generation);
        }
        let (mut seen, mut from) = (Vec::new(), 0);
        loop {
            let page: Vec<_> = slab.iter_from(from).take(7).map(|(slot, _, value)| (slot, *value)).collect();
            let Some((last, _)) = page.last() else { break };
            from = last + 1;
            seen.extend(page.iter().map(|(_, value)| *value));
        }
        assert_eq!(seen, (0..3_000).step_by(3).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn behaves_like_a_map_of_keys_that_never_repeat(steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..400)) {
            let (mut slab, mut model, mut past) = (Slab::new(), BTreeMap::new(), Vec::new());
            for (n, (insert, pick)) in steps.into_iter().enumerate() {
                if insert || past.is_empty() {
                    let key = slab.insert(n);
                    prop_assert!(model.insert(key, n).is_none());
                    past.push(key);
                } else {
                    let key = *pick.get(&past);
                    prop_assert_eq!(slab.remove(key.0, key.1), model.remove(&key));
                }
                prop_assert_eq!(slab.len(), model.len());
            }
            for key in past {
                prop_assert_eq!(slab.get(key.0, key.1), model.get(&key));
            }
            let held: BTreeMap<_, _> = slab.iter().map(|(slot, generation, n)| ((slot, generation), *n)).collect();
            prop_assert_eq!(held, model);
        }
    }
}
