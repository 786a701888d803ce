//! The directory as its owner core uses it, and against naive models.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::base::segment_pool::{CHUNK_BYTES, PoolBudget};
use crate::relay::event::{Outline, Position};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const EVENTS_MAX: usize = 5;

fn directory(capacity: usize) -> Directory {
    Directory::new(SegmentPool::new(PoolBudget::new(capacity)), EVENTS_MAX, 1)
}

/// Events of one emitter: every call of `next` is another event of rising position.
#[derive(Default)]
struct Emitter {
    arrival: u64,
}

impl Emitter {
    fn next<'a>(&mut self, raw: &'a [u8]) -> NewEvent<'a> {
        self.arrival += 1;
        let position = Some(Position { epoch: 0, seq: self.arrival });
        let fingerprint = u128::from(self.arrival.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        NewEvent { raw, position, fingerprint, arrival: self.arrival, outline: Outline::NONE }
    }
}

fn id(written: Result<Written, NoRoom>) -> SessionId {
    written.unwrap().session.unwrap()
}

/// Writes as an owner does that knows all directories: evicts the least recently written session of any until there
/// is room, then trims the writer's, then lets the event go.
fn write_with_eviction(all: &mut [Directory], own: usize, name: &str, event: &NewEvent<'_>, tick: u64) -> Written {
    loop {
        if let Ok(written) = all[own].write(name, event, tick) {
            return written;
        }
        let writer = all[own].session(name);
        let oldest = (0..all.len()).filter_map(|at| {
            let oldest = match writer.filter(|_| at == own) {
                Some(writer) => all[at].oldest_except(writer),
                None => all[at].oldest(),
            };
            oldest.map(|(tick, id)| (tick, at, id))
        });
        if let Some((_, at, id)) = oldest.min() {
            all[at].evict(id).unwrap();
        } else if writer.is_none_or(|writer| all[own].trim_lowest(writer, event.raw.len()) == 0) {
            return all[own].write_unkept(name, event, tick);
        }
    }
}

#[test]
fn duplicates_and_late_ticks_do_not_refresh() {
    let (mut directory, mut emitter) = (directory(1 << 20), Emitter::default());
    let first = emitter.next(b"{}");
    let a = id(directory.write("a", &first, 10));
    let b = id(directory.write("b", &emitter.next(b"{}"), 20));
    let copy = NewEvent { arrival: emitter.next(b"{}").arrival, ..first };
    assert_eq!(directory.write("a", &copy, 30).unwrap().admission, Admission::Duplicate);
    assert_eq!(directory.oldest(), Some((10, a)));
    directory.write("a", &emitter.next(b"{}"), 15).unwrap();
    assert_eq!(directory.oldest(), Some((15, a)));
    assert_eq!(directory.evict_oldest_if(10), None);
    directory.write("a", &emitter.next(b"{}"), 20).unwrap();
    assert_eq!(directory.oldest(), Some((20, b)), "of one tick, the later write is the newer");
    assert_eq!(directory.oldest_except(b), Some((20, a)));
    assert!(directory.evict_oldest_if(20).is_some());
    assert_eq!(directory.session("b"), None);
    directory.check_invariants();
}

#[test]
fn a_session_comes_back_with_its_marks_and_under_another_id() {
    let (mut directory, mut emitter) = (directory(1 << 20), Emitter::default());
    let before = id(directory.write("a", &emitter.next(b"{}"), 1));
    assert_eq!(directory.evict(before).unwrap().events, 1);
    let from = Position { epoch: 0, seq: 0 };
    let next = Position { epoch: 0, seq: 2 };
    assert_eq!(directory.tombstone("a").and_then(|marks| marks.exhausted(from)), Some(next));
    let after = id(directory.write("a", &emitter.next(b"{}"), 2));
    assert_ne!(before, after);
    assert!(directory.buffer(before).is_none() && directory.evict(before).is_none());
    assert_eq!(directory.buffer(after).unwrap().exhausted(from), Some(next));
    assert_eq!(directory.tombstone("a"), None);
    directory.check_invariants();
}

#[test]
fn an_evicted_session_gives_everything_back() {
    let (mut directory, mut emitter) = (directory(8 << 20), Emitter::default());
    let raw = vec![b'x'; 100_000];
    for _ in 0..EVENTS_MAX {
        directory.write("a", &emitter.next(&raw), 1).unwrap();
        directory.write("a", &emitter.next(&raw[..2000]), 1).unwrap();
    }
    directory.evict(directory.session("a").unwrap()).unwrap();
    assert!(directory.held_bytes() <= 400, "a tombstone holds {} bytes", directory.held_bytes());
    directory.check_invariants();
}

#[test]
fn tombstones_are_bounded_by_count_and_by_bytes() {
    let (mut directory, mut emitter) = (directory(64 << 20), Emitter::default());
    for number in 0..TOMBSTONES_MAX + 10 {
        let id = id(directory.write(&format!("session-{number}"), &emitter.next(b"{}"), 1));
        directory.evict(id).unwrap();
    }
    assert!(directory.tombstone("session-9").is_none() && directory.tombstone("session-10").is_some());
    for number in 0..100 {
        let long = format!("{number}{}", "x".repeat(1 << 20));
        let id = id(directory.write(&long, &emitter.next(b"{}"), 1));
        directory.evict(id).unwrap();
        assert!(directory.held_bytes() <= (64 << 20) / TOMBSTONES_SHARE);
    }
    directory.check_invariants();
    let vast = "x".repeat(8 << 20);
    let id = id(directory.write(&vast, &emitter.next(b"{}"), 1));
    directory.evict(id).unwrap();
    assert!(directory.tombstone(&vast).is_none(), "a name over the whole share is not remembered");
}

#[test]
fn no_publish_fails_whatever_the_budget() {
    for capacity in [0, 300, CHUNK_BYTES, 2 * CHUNK_BYTES, 5 * CHUNK_BYTES + 17_000] {
        let budget = PoolBudget::new(capacity);
        let mut all: Vec<_> = (0..2).map(|_| Directory::new(SegmentPool::new(budget.clone()), 50, 2)).collect();
        let mut emitter = Emitter::default();
        for number in 0..600 {
            let raw = vec![b'x'; [300, 3, 40_000, 900, 17_000][number % 5]];
            let event = emitter.next(&raw);
            let own = number * 7 % 2;
            let written = write_with_eviction(&mut all, own, NAMES[number * 5 % 6], &event, number as u64);
            assert!(matches!(written.admission, Admission::Placed { .. }));
            assert!(budget.used_bytes() <= capacity);
            assert_eq!(budget.used_bytes(), all.iter().map(Directory::held_bytes).sum::<usize>());
            all.iter().for_each(Directory::check_invariants);
        }
    }
}

#[test]
fn a_walk_meets_every_name_once_held_or_gone() {
    let (mut directory, mut emitter) = (directory(8 << 20), Emitter::default());
    let names: Vec<String> = (0..40).map(|number| format!("session-{number}")).collect();
    for name in &names {
        directory.write(name, &emitter.next(b"{}"), 1).unwrap();
    }
    let (mut held, mut gone, mut at) = (Vec::new(), Vec::new(), None::<Arc<str>>);
    loop {
        let from = at.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut ahead = directory.kept(from).map(|(name, kept)| match kept {
            Kept::Held(id, _) => (name.clone(), Some(id)),
            Kept::Gone(_) => (name.clone(), None),
        });
        let Some((name, session)) = ahead.next() else { break };
        let next = ahead.find_map(|(_, id)| id);
        drop(ahead);
        match session {
            Some(id) => {
                // The one met goes, and every other time comes back; every third time one ahead goes as well. New ones
                // come.
                directory.evict(id).unwrap();
                if held.len() % 2 == 0 {
                    directory.write(&name, &emitter.next(b"{}"), 2).unwrap();
                }
                if held.len() % 3 == 0 {
                    next.map(|id| directory.evict(id).unwrap());
                }
                if held.len() <= 10 {
                    directory.write(&format!("{name}-new"), &emitter.next(b"{}"), 2).unwrap();
                    directory.write(&format!("behind-{name}"), &emitter.next(b"{}"), 2).unwrap();
                }
                held.push(name.to_string());
            }
            None => gone.push(name.to_string()),
        }
        at = Some(name);
    }
    let met: Vec<&String> = held.iter().chain(&gone).collect();
    assert_eq!(met.iter().collect::<HashSet<_>>().len(), met.len());
    assert!(names.iter().all(|name| met.contains(&name)) && !gone.is_empty());
    directory.check_invariants();
}

proptest! {
    /// Recency, names and tombstones against a list of `(tick, write, name)`.
    #[test]
    fn behaves_like_the_model(steps in prop::collection::vec((0usize..6, 0u64..3, 0u8..8), 1..120)) {
        let (mut directory, mut emitter) = (directory(3 * CHUNK_BYTES), Emitter::default());
        let mut model: HashMap<&str, (u64, usize, usize)> = HashMap::new();
        let mut evicted: HashSet<&str> = HashSet::new();
        let raw = vec![b'x'; 20_000];
        for (step, (name, lag, what)) in steps.into_iter().enumerate() {
            let name = NAMES[name];
            match what {
                0 => {
                    let gone = directory.session(name).and_then(|id| directory.evict(id));
                    prop_assert_eq!(gone.is_some(), model.remove(name).is_some());
                    if gone.is_some() {
                        evicted.insert(name);
                    }
                }
                1 => if let Some(id) = directory.session(name) {
                    let entry = model.get_mut(name).unwrap();
                    entry.2 -= directory.trim_lowest(id, 1);
                },
                _ => {
                    let (before, tick) = (directory.session(name), 5 + step as u64 - lag.min(step as u64));
                    match directory.write(name, &emitter.next(&raw), tick) {
                        Ok(written) => {
                            prop_assert_eq!(written.created, !model.contains_key(name));
                            let entry = model.entry(name).or_insert((tick, step, 0));
                            if tick >= entry.0 {
                                (entry.0, entry.1) = (tick, step);
                            }
                            entry.2 = (entry.2 + 1).min(EVENTS_MAX);
                            evicted.remove(name);
                        }
                        Err(NoRoom) => prop_assert_eq!(directory.session(name), before),
                    }
                }
            }
            directory.check_invariants();
            let oldest = model.iter().min_by_key(|(_, entry)| (entry.0, entry.1)).map(|(name, entry)| (entry.0, *name));
            let found = directory.oldest().map(|(tick, id)| (tick, directory.name(id).unwrap().to_string()));
            prop_assert_eq!(found, oldest.map(|(tick, name)| (tick, name.to_string())));
            for name in NAMES {
                let events = directory.session(name).map(|id| directory.buffer(id).unwrap().len());
                prop_assert_eq!(events, model.get(name).map(|entry| entry.2));
                prop_assert_eq!(directory.tombstone(name).is_some(), evicted.contains(name));
            }
        }
    }
}
