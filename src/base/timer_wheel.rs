//! A hierarchical timer wheel: keys come back when their deadline has passed.
//!
//! Owns the keys and their deadlines; it does not know what they stand for, and is told the time. Its owner sets the
//! tick. Ground rules:
//!
//! - A deadline is rounded up to a tick: a key never comes early and, if the owner asks in time, less than one tick
//!   late.
//! - **Entries cannot be cancelled.** Most deadlines of a thing are only ever moved further away, so the owner keeps
//!   the true deadline, re-checks it when the key comes back and inserts again if it has moved: a stale expiry is a
//!   no-op. With generational keys the same holds for things that are gone. The owner inserts one entry per thing and
//!   purpose, so the wheel stays as large as the things are many.
//! - Insertion is O(1). An entry is touched at most once per level on its way down; an empty slot costs nothing, so a
//!   jump of the time by hours costs as much as its entries.
//!
//! Arithmetic: level `l` has 64 slots, each `64^l` ticks wide. An entry lies on the level of the highest digit (base
//! 64) in which its tick differs from the present one, in the slot which that digit names. Hence, with `digit(t, l)`
//! the digit:
//! - all entries of a level lie in slots behind `digit(present, l)`, so the lowest occupied slot is the next one;
//! - every entry of a lower level comes before every entry of a higher one.

use crate::base::time::{Deadline, Now};

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 7;
/// The last tick that the wheel tells apart, 139 years after the start with ticks of a millisecond; later deadlines
/// count as this one.
const TICK_LAST: u64 = (1 << (DIGIT_BITS * LEVELS as u32)) - 1;
/// A drained slot keeps room for this many entries; more would let every slot hold on to the memory of its peak.
const SLOT_ENTRIES_KEPT: usize = 64;

/// See the module. `K` is the owner's name for a timer; `TICK_MS` the resolution in milliseconds, part of the type so
/// that no deadline costs a division.
#[derive(Debug)]
pub struct TimerWheel<K, const TICK_MS: u64> {
    levels: Vec<WheelLevel<K>>,
    /// The last tick that has been expired: every entry in a slot is later.
    present: u64,
    /// Keys that were already due when they came.
    due: Vec<K>,
    len: usize,
}

#[derive(Debug)]
struct WheelLevel<K> {
    slots: Vec<Vec<TimerEntry<K>>>,
    /// Bit `s` is set exactly when slot `s` has entries.
    occupied: u64,
}

#[derive(Debug, Clone, Copy)]
struct TimerEntry<K> {
    tick: u64,
    key: K,
}

/// A slot and the tick at which it begins.
struct NextSlot {
    level: usize,
    slot: usize,
    begins: u64,
}

impl<K: Copy, const TICK_MS: u64> Default for TimerWheel<K, TICK_MS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy, const TICK_MS: u64> TimerWheel<K, TICK_MS> {
    /// An empty wheel at time 0.
    #[must_use]
    pub fn new() -> Self {
        const { assert!(TICK_MS > 0, "time goes on from tick to tick") };
        let level = || WheelLevel { slots: (0..SLOTS).map(|_| Vec::new()).collect(), occupied: 0 };
        Self { levels: (0..LEVELS).map(|_| level()).collect(), present: 0, due: Vec::new(), len: 0 }
    }

    /// Asks for `key` once `deadline` has passed. A deadline already past comes back with the next [`Self::advance`].
    pub fn insert(&mut self, deadline: Deadline, key: K) {
        self.len += 1;
        self.place(TimerEntry { tick: deadline.0.div_ceil(TICK_MS).min(TICK_LAST), key });
    }

    /// Moves the time on and appends all keys that are due to `due`, ordered by tick. Time that goes backwards stands
    /// still.
    pub fn advance(&mut self, now: Now, due: &mut Vec<K>) {
        let first = due.len();
        due.append(&mut self.due);
        let now = (now.0 / TICK_MS).min(TICK_LAST);
        while let Some(next) = self.next_slot().filter(|next| next.begins <= now) {
            self.present = next.begins;
            self.expire(&next);
            due.append(&mut self.due);
        }
        self.present = self.present.max(now);
        self.len -= due.len() - first;
    }

    /// When [`Self::advance`] has something to do next. Early where the next entry is far away (its slot has to be
    /// spread over the lower levels first), never late.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        if !self.due.is_empty() {
            return Some(Deadline(self.present * TICK_MS));
        }
        self.next_slot().map(|next| Deadline(next.begins * TICK_MS))
    }

    /// Keys that have not come back yet.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no key is waiting.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn place(&mut self, entry: TimerEntry<K>) {
        if entry.tick <= self.present {
            self.due.push(entry.key);
            return;
        }
        let highest_differing_bit = (entry.tick ^ self.present).ilog2();
        let level = (highest_differing_bit / DIGIT_BITS) as usize;
        let slot = digit(entry.tick, level);
        if let Some(level) = self.levels.get_mut(level)
            && let Some(entries) = level.slots.get_mut(slot)
        {
            entries.push(entry);
            level.occupied |= 1 << slot;
        }
    }

    fn next_slot(&self) -> Option<NextSlot> {
        let (level, lowest) = self.levels.iter().enumerate().find(|(_, level)| level.occupied != 0)?;
        let slot = lowest.occupied.trailing_zeros() as usize;
        let shift = DIGIT_BITS * level as u32;
        let block = self.present >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS);
        let begins = block | (slot as u64) << shift;
        debug_assert!(begins > self.present, "an occupied slot lies behind the present one");
        Some(NextSlot { level, slot, begins })
    }

    /// Empties the slot that begins at the present tick: what is due goes to `due`, the rest down the levels.
    fn expire(&mut self, next: &NextSlot) {
        let Some(level) = self.levels.get_mut(next.level) else { return };
        level.occupied &= !(1 << next.slot);
        let mut entries = level.slots.get_mut(next.slot).map(std::mem::take).unwrap_or_default();
        for entry in entries.drain(..) {
            self.place(entry);
        }
        entries.shrink_to(SLOT_ENTRIES_KEPT);
        if let Some(slot) = self.levels.get_mut(next.level).and_then(|level| level.slots.get_mut(next.slot)) {
            debug_assert!(slot.is_empty(), "entries of a slot go to lower levels only");
            *slot = entries;
        }
    }
}

const fn digit(tick: u64, level: usize) -> usize {
    (tick >> (DIGIT_BITS * level as u32)) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: u64 = 3_600_000;
    const TICK_MS: u64 = 8;

    type Wheel = TimerWheel<u64, TICK_MS>;

    fn advance<const TICK_MS: u64>(wheel: &mut TimerWheel<u64, TICK_MS>, now: u64) -> Vec<u64> {
        let mut due = Vec::new();
        wheel.advance(Now(now), &mut due);
        due
    }

    #[test]
    fn never_early_and_less_than_a_tick_late() {
        for deadline in [1, 7, 8, 9, 511, 512, 513, 4_096, 32_768, 90_000, HOUR, 25 * HOUR, 400 * 24 * HOUR] {
            let mut wheel = Wheel::new();
            wheel.insert(Deadline(deadline), deadline);
            assert_eq!(advance(&mut wheel, deadline - 1), [0u64; 0], "{deadline}");
            assert_eq!(wheel.len(), 1);
            assert_eq!(advance(&mut wheel, deadline + TICK_MS - 1), [deadline]);
            assert!(wheel.is_empty());
            assert_eq!(wheel.next_deadline(), None);
        }
    }

    #[test]
    fn the_tick_is_the_owners() {
        fn shows_itself<const TICK_MS: u64>() {
            for deadline in [1_000, 1_001, 2_000, 90_001] {
                let mut wheel = TimerWheel::<u64, TICK_MS>::new();
                wheel.insert(Deadline(deadline), deadline);
                assert_eq!(advance(&mut wheel, deadline - 1), [0u64; 0], "{deadline} with a tick of {TICK_MS}");
                assert!(wheel.next_deadline().is_some_and(|next| next.0 < deadline + TICK_MS));
                let tick = deadline.next_multiple_of(TICK_MS);
                assert_eq!((advance(&mut wheel, tick - 1), advance(&mut wheel, tick)), (vec![], vec![deadline]));
            }
        }
        shows_itself::<1>();
        shows_itself::<50>();
        shows_itself::<1_000>();
    }

    #[test]
    fn a_deadline_already_past_comes_back_at_once() {
        let mut wheel = Wheel::new();
        assert_eq!(advance(&mut wheel, 1_000), [0u64; 0]);
        wheel.insert(Deadline(1_000), 1);
        wheel.insert(Deadline(3), 2);
        assert_eq!(wheel.next_deadline(), Some(Deadline(1_000)));
        assert_eq!(advance(&mut wheel, 1_000), [1, 2]);
        assert_eq!(advance(&mut wheel, 1_000), [0u64; 0]);
    }

    #[test]
    fn a_jump_over_hours_brings_everything_in_order_of_deadline() {
        let mut wheel = Wheel::new();
        let deadlines: Vec<u64> = (0..5_000_u64).map(|n| (n * 7_919) % (6 * HOUR)).collect();
        for deadline in &deadlines {
            wheel.insert(Deadline(*deadline), *deadline);
        }
        let due = advance(&mut wheel, 7 * HOUR);
        assert_eq!(due.len(), deadlines.len());
        assert!(due.is_sorted_by_key(|deadline| deadline.div_ceil(TICK_MS)));
        wheel.insert(Deadline(7 * HOUR + 100), 1);
        assert_eq!(advance(&mut wheel, 7 * HOUR + 104), [1]);
    }

    #[test]
    fn following_the_next_deadline_visits_every_timer_in_few_steps() {
        let mut wheel = Wheel::new();
        wheel.insert(Deadline(30 * 24 * HOUR), 1);
        wheel.insert(Deadline(15_000), 2);
        let (mut seen, mut steps) = (Vec::new(), 0);
        while let Some(next) = wheel.next_deadline() {
            seen.extend(advance(&mut wheel, next.0).into_iter().map(|key| (key, next.0)));
            steps += 1;
        }
        assert_eq!(seen, [(2, 15_000), (1, 30 * 24 * HOUR)]);
        assert!(steps <= 2 * LEVELS, "{steps} steps");
    }

    #[test]
    fn a_deadline_at_the_end_of_time_neither_comes_nor_fails() {
        let mut wheel = Wheel::new();
        wheel.insert(Deadline(u64::MAX), 1);
        assert_eq!(advance(&mut wheel, 1_000 * 365 * 24 * HOUR), [0u64; 0]);
        assert!(wheel.next_deadline().is_some());
        assert_eq!(advance(&mut wheel, u64::MAX), [1]);
        wheel.insert(Deadline(u64::MAX), 2);
        assert_eq!(advance(&mut wheel, u64::MAX), [2]);
    }

    #[test]
    fn time_that_goes_backwards_stands_still() {
        let mut wheel = Wheel::new();
        advance(&mut wheel, 10_000);
        wheel.insert(Deadline(20_000), 1);
        assert_eq!(advance(&mut wheel, 5_000), [0u64; 0]);
        assert_eq!(advance(&mut wheel, 19_999), [0u64; 0]);
        assert_eq!(advance(&mut wheel, 20_000), [1]);
    }

    #[test]
    fn a_drained_slot_gives_its_memory_back() {
        let mut wheel = Wheel::new();
        for key in 0..100_000 {
            wheel.insert(Deadline(15_000), key);
        }
        assert_eq!(advance(&mut wheel, 15_000).len(), 100_000);
        let kept: usize = wheel.levels.iter().flat_map(|level| &level.slots).map(Vec::capacity).sum();
        assert!(kept <= LEVELS * SLOTS * SLOT_ENTRIES_KEPT, "{kept} entries");
    }

    proptest! {
        #[test]
        fn agrees_with_a_list_of_deadlines(steps in prop::collection::vec((0_u32..40, any::<u64>(), 0_u32..36, any::<u64>()), 1..200)) {
            let (mut wheel, mut model, mut now, mut key) = (Wheel::new(), Vec::<(u64, u64)>::new(), 0_u64, 0_u64);
            for (ahead_bits, ahead, step_bits, step) in steps {
                let deadline = now.saturating_sub(20) + ahead % (1 << ahead_bits);
                wheel.insert(Deadline(deadline), key);
                model.push((deadline, key));
                key += 1;

                let next = now + step % (1 << step_bits);
                let earliest = model.iter().map(|(deadline, _)| *deadline).min().unwrap();
                prop_assert!(wheel.next_deadline().unwrap().0 < earliest.max(now) + TICK_MS, "never late");
                now = next;
                let mut due = advance(&mut wheel, now);
                due.sort_unstable();
                let tick = now / TICK_MS;
                let expected: Vec<u64> = model.iter().filter(|(deadline, _)| deadline.div_ceil(TICK_MS) <= tick).map(|(_, key)| *key).collect();
                model.retain(|(deadline, _)| deadline.div_ceil(TICK_MS) > tick);
                prop_assert_eq!(due, expected);
                prop_assert_eq!(wheel.len(), model.len());
            }
        }
    }
}
