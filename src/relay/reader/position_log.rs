//! Which position of each session was last handed to a socket, without a map update per delivery (§6.6).
//!
//! A log follows one stream of bytes. Each event pushed is a record with the offsets in that stream at which its frame
//! begins and ends; a connection's share of the stream that has left is a number, so "what did it get" is a cut through
//! the log. A frame of which a part has left counts as handed over: whatever becomes of the connection, the rest of it
//! still goes out. Records whose bytes have certainly left everywhere are *settled*: folded into a map from key to
//! newest position.
//!
//! To find out what has left everywhere costs a look at every connection, so it is worth it only once the log has
//! doubled since ([`PositionLog::is_long`]).
//!
//! What is adopted from another log keeps the order that it had there: all of it stands at one offset of this stream,
//! and counts ascending behind that.
//!
//! Invariants: records ascend by `end`; a settled entry's `end` is below every record's; only what one frame tells
//! shares a [`When`], so which are the latest is never left to chance; the map holds at most twice `keys_max` keys, of
//! which the latest stay.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::ops::Range;

use crate::base::footprint;
use crate::relay::event::Position;

/// Records that are always worth keeping; few in tests, so that the simulation meets the edge.
const RECORDS_KEPT: usize = if cfg!(test) { 8 } else { 128 };

/// When a position was handed over: later is larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct When {
    /// Offset in the stream: where its frame ended, or where the stream stood when it was adopted.
    pub end: u64,
    /// Above 0 for what was adopted: the how-manieth of its log.
    adopted: u64,
}

/// One event of the stream.
#[derive(Debug, Clone)]
struct Record<K> {
    frame: Range<u64>,
    key: K,
    position: Position,
}

/// Positions along one stream of bytes.
#[derive(Debug)]
pub struct PositionLog<K> {
    records: VecDeque<Record<K>>,
    settled: HashMap<K, (When, Position)>,
    /// How many positions were adopted.
    adopted: u64,
    keys_max: usize,
    /// Records from which on it is long.
    long: usize,
}

impl<K: Hash + Ord + Clone> PositionLog<K> {
    /// An empty log that reports at most `keys_max` keys.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        Self { records: VecDeque::new(), settled: HashMap::new(), adopted: 0, keys_max, long: RECORDS_KEPT }
    }

    /// Notes where in the stream the frame of an event at `position` lies.
    pub fn push(&mut self, frame: Range<u64>, key: K, position: Position) {
        debug_assert!(self.records.back().is_none_or(|last| last.frame.start <= frame.start));
        self.records.push_back(Record { frame, key, position });
    }

    /// Whether it is time to find out what can be settled.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.records.len() >= self.long
    }

    /// Bytes that it takes, beside the keys' own.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.records.capacity() * size_of::<Record<K>>()
            + footprint::table::<(K, (When, Position))>(self.settled.capacity())
    }

    /// Everything up to `offset` has left for good.
    pub fn settle(&mut self, offset: u64) {
        while self.records.front().is_some_and(|record| record.frame.end <= offset) {
            let Some(Record { frame, key, position }) = self.records.pop_front() else { break };
            self.settle_one(When { end: frame.end, adopted: 0 }, key, position);
        }
        self.records.shrink_to(RECORDS_KEPT.max(4 * self.records.len()));
        self.long = RECORDS_KEPT.max(2 * self.records.len());
    }

    fn settle_one(&mut self, when: When, key: K, position: Position) {
        self.settled.insert(key, (when, position));
        if self.settled.len() > 2 * self.keys_max {
            let mut all: Vec<When> = self.settled.values().map(|(when, _)| *when).collect();
            let oldest_kept = all.len() - self.keys_max;
            let (_, limit, _) = all.select_nth_unstable(oldest_kept);
            let limit = *limit;
            self.settled.retain(|_, (when, _)| *when >= limit);
        }
    }

    /// Takes over what another log tells was handed over, when this stream stood at `offset`.
    pub fn adopt(&mut self, offset: u64, handed: impl IntoIterator<Item = (K, (When, Position))>) {
        let mut handed: Vec<_> = handed.into_iter().collect();
        handed.sort_unstable_by(|(key, (when, _)), (other, (then, _))| when.cmp(then).then_with(|| key.cmp(other)));
        for (key, (_, position)) in handed {
            if self.settled.get(&key).is_none_or(|(when, _)| when.end <= offset) {
                self.adopted += 1;
                self.settle_one(When { end: offset, adopted: self.adopted }, key, position);
            }
        }
    }

    /// The newest position of each key among the frames that end behind `since` and have begun before `handed`.
    #[must_use]
    pub fn handed(&self, since: u64, handed: u64) -> HashMap<K, (When, Position)> {
        let mut newest: HashMap<K, (When, Position)> = self
            .settled
            .iter()
            .filter(|(_, (when, _))| when.end > since && when.end <= handed)
            .map(|(key, at)| (key.clone(), *at))
            .collect();
        let begun = self.records.iter().take_while(|record| record.frame.start < handed);
        for record in begun.filter(|record| record.frame.end > since) {
            newest.insert(record.key.clone(), (When { end: record.frame.end, adopted: 0 }, record.position));
        }
        newest
    }

    /// Records of frames that begin at `handed` or behind it.
    pub fn beyond(&self, handed: u64) -> impl Iterator<Item = (Range<u64>, &K, Position)> {
        let first = self.records.partition_point(|record| record.frame.start < handed);
        self.records.iter().skip(first).map(|record| (record.frame.clone(), &record.key, record.position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seq: u64) -> Position {
        Position { epoch: 0, seq }
    }

    fn pushed(end: u64, seq: u64) -> (When, Position) {
        (When { end, adopted: 0 }, at(seq))
    }

    #[test]
    fn a_cut_through_the_log_gives_what_was_handed_over() {
        let mut log = PositionLog::new(10);
        log.push(0..100, "a", at(1));
        log.push(100..200, "b", at(7));
        // What bears no position lies in between.
        log.push(250..300, "a", at(2));
        assert_eq!(log.handed(0, 250), HashMap::from([("a", pushed(100, 1)), ("b", pushed(200, 7))]));
        log.settle(200);
        assert_eq!(log.records.len(), 1);
        assert_eq!(log.handed(0, 250), HashMap::from([("a", pushed(100, 1)), ("b", pushed(200, 7))]));
        let begun = log.handed(0, 251);
        assert_eq!(begun, HashMap::from([("a", pushed(300, 2)), ("b", pushed(200, 7))]), "a frame begun is completed");
        assert_eq!(log.handed(0, 300), HashMap::from([("a", pushed(300, 2)), ("b", pushed(200, 7))]));
        assert_eq!(log.handed(150, 250), HashMap::from([("b", pushed(200, 7))]), "only what came after one joined");
        assert_eq!(log.beyond(200).map(|(frame, ..)| frame).collect::<Vec<_>>(), vec![250..300; 1]);
        assert_eq!(log.beyond(251).count(), 0, "a frame begun is not beyond");
    }

    #[test]
    fn what_cannot_be_settled_makes_it_long_later() {
        let mut log = PositionLog::new(4);
        let mut looks = Vec::new();
        for end in 1..=1000 {
            log.push(end - 1..end, "a", at(end));
            if log.is_long() {
                looks.push(end);
                log.settle(0);
            }
        }
        assert_eq!(looks, [8, 16, 32, 64, 128, 256, 512]);
        log.settle(u64::MAX);
        assert_eq!((log.records.len(), log.is_long()), (0, false));
        assert_eq!(log.handed(0, u64::MAX), HashMap::from([("a", pushed(1000, 1000))]));
    }

    #[test]
    fn the_latest_keys_are_kept() {
        let mut log = PositionLog::new(4);
        for key in 0..100u64 {
            log.push(key..key + 1, key, at(key));
        }
        log.settle(u64::MAX);
        let handed = log.handed(0, u64::MAX);
        assert!(handed.len() <= 8);
        assert!((96..100).all(|key| handed.contains_key(&key)));
    }

    #[test]
    fn the_latest_of_those_adopted_at_once_are_kept() {
        let mut class = PositionLog::new(100);
        for key in 0..100u64 {
            // Not in the order of the keys.
            class.push(key..key + 1, key * 37 % 100, at(key));
        }
        let mut own = PositionLog::new(4);
        own.adopt(7, class.handed(0, u64::MAX));
        let mut handed: Vec<(When, Position)> = own.handed(0, u64::MAX).into_values().collect();
        handed.sort_unstable();
        assert!((4..=8).contains(&handed.len()));
        let newest: Vec<Position> = handed.iter().rev().take(4).map(|(_, position)| *position).collect();
        assert_eq!(newest, [at(99), at(98), at(97), at(96)]);
    }
}
