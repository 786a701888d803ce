//! What a session remembers of events it no longer holds, and what follows for a resume (contract §3).
//!
//! [`Marks`] outlive the session in its tombstone and are taken up again when it comes back. They know no event, only
//! the ends of what was admitted and evicted.
//!
//! Invariants: `lowest_admitted ≤ highest_admitted`, both present or neither; an evicted sequenced position lies
//! between them.

use crate::relay::event::Position;

/// Place of an event in its session's order: its placement, then its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Its own position, or that of the event it was placed behind; `None` stands ahead of all.
    pub(super) placement: Option<Position>,
    /// The owner's arrival number.
    pub(super) arrival: u64,
}

/// The ends of what one session admitted and evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    lowest_admitted: Option<Position>,
    highest_admitted: Option<Position>,
    /// The highest evicted event that bears a position.
    evicted: Option<Key>,
    /// The highest evicted event without one.
    evicted_unsequenced: Option<Key>,
    /// The latest arrival among the evicted events; 0 for none.
    evicted_arrival: u64,
    /// How many events were evicted; grows only.
    evictions: u64,
}

impl Marks {
    pub(super) fn on_admitted(&mut self, position: Option<Position>) {
        let Some(position) = position else { return };
        self.lowest_admitted = Some(self.lowest_admitted.map_or(position, |lowest| lowest.min(position)));
        self.highest_admitted = self.highest_admitted.max(Some(position));
    }

    pub(super) fn on_evicted(&mut self, key: Key, sequenced: bool) {
        let highest = if sequenced { &mut self.evicted } else { &mut self.evicted_unsequenced };
        *highest = (*highest).max(Some(key));
        self.evicted_arrival = self.evicted_arrival.max(key.arrival);
        self.evictions += 1;
    }

    /// Whether something between `from` and the first event a resume could be given may be missing: an event above it
    /// was evicted, or it lies below all that was ever admitted and not right before it.
    #[must_use]
    pub fn is_exhausted(&self, from: Position) -> bool {
        let below_all = self.lowest_admitted.is_some_and(|lowest| from < lowest && !lowest.follows(from));
        below_all || self.evicted_after(from, None)
    }

    /// Whether an event that a reader of everything after `from`, who has been given everything up to `given`, has
    /// yet to get was ever evicted.
    pub(super) fn evicted_after(&self, from: Position, given: Option<Key>) -> bool {
        let ahead = |key: Key| given.is_none_or(|given| key > given);
        let sequenced = |key: Key| key.placement > Some(from) && ahead(key);
        let unsequenced = |key: Key| key.placement >= Some(from) && ahead(key);
        self.evicted.is_some_and(sequenced) || self.evicted_unsequenced.is_some_and(unsequenced)
    }

    /// The position to announce when no event with a position is held: the one right after the highest ever admitted.
    #[must_use]
    pub fn earliest_to_come(&self) -> Option<Position> {
        self.highest_admitted.map(successor)
    }

    /// What to announce to a resume from `from` when none of the session's events is held, if it is exhausted.
    #[must_use]
    pub fn exhausted(&self, from: Position) -> Option<Position> {
        if self.is_exhausted(from) { self.earliest_to_come() } else { None }
    }

    /// The lowest position ever admitted.
    #[must_use]
    pub fn lowest_admitted(&self) -> Option<Position> {
        self.lowest_admitted
    }

    /// The latest arrival number among the evicted events; 0 for none.
    #[must_use]
    pub fn evicted_arrival(&self) -> u64 {
        self.evicted_arrival
    }

    /// How many events were evicted so far: a reader sees from it whether any were since it last looked.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        assert_eq!(self.lowest_admitted.is_some(), self.highest_admitted.is_some());
        assert!(self.lowest_admitted <= self.highest_admitted);
        if let Some(evicted) = self.evicted {
            assert!(self.lowest_admitted <= evicted.placement && evicted.placement <= self.highest_admitted);
        }
    }
}

/// The lowest legal position above this one; the highest legal one stays.
fn successor(position: Position) -> Position {
    const SEQ_MAX: u64 = i64::MAX as u64;
    let Position { epoch, seq } = position;
    if seq < SEQ_MAX {
        Position { epoch, seq: seq + 1 }
    } else if epoch < SEQ_MAX {
        Position { epoch: epoch + 1, seq: 0 }
    } else {
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, seq: u64) -> Position {
        Position { epoch, seq }
    }

    fn key(placement: Position, arrival: u64) -> Key {
        Key { placement: Some(placement), arrival }
    }

    #[test]
    fn nothing_admitted_exhausts_nothing() {
        assert_eq!(Marks::default().exhausted(at(0, 0)), None);
    }

    #[test]
    fn below_all_is_exhausted_unless_adjacent() {
        let mut marks = Marks::default();
        marks.on_admitted(Some(at(1, 5)));
        marks.on_admitted(Some(at(1, 9)));
        assert_eq!(marks.exhausted(at(1, 3)), Some(at(1, 10)));
        assert_eq!(marks.exhausted(at(1, 4)), None);
        assert_eq!(marks.exhausted(at(1, 5)), None);
        assert_eq!(marks.exhausted(at(0, 4)), Some(at(1, 10)));
        assert_eq!(marks.exhausted(at(1, 7)), None, "a gap nobody ever filled is no loss of ours");
    }

    #[test]
    fn evicted_above_is_exhausted_and_at_is_not() {
        let mut marks = Marks::default();
        (1..=3).for_each(|seq| marks.on_admitted(Some(at(0, seq))));
        marks.on_evicted(key(at(0, 2), 1), true);
        assert!(marks.is_exhausted(at(0, 1)));
        assert!(!marks.is_exhausted(at(0, 2)));
        // One without a position, placed behind 2: a resume from 2 would have been given it.
        marks.on_evicted(key(at(0, 2), 4), false);
        assert!(marks.is_exhausted(at(0, 2)));
        assert!(!marks.is_exhausted(at(0, 3)));
        // One placed ahead of all is owed to no resume.
        let mut marks = Marks::default();
        marks.on_evicted(Key { placement: None, arrival: 1 }, false);
        assert!(!marks.is_exhausted(at(0, 0)));
    }

    #[test]
    fn the_position_after_the_highest_is_a_legal_one() {
        let max = i64::MAX as u64;
        assert_eq!(successor(at(0, 7)), at(0, 8));
        assert_eq!(successor(at(0, max)), at(1, 0));
        assert_eq!(successor(at(max, max)), at(max, max));
    }
}
