//! From what filters pin down to the few that can match: targets by exact value, and by prefix of a dotted name.
//!
//! Entries are counted: a target may be inserted under a key several times and stays until removed as often. It
//! evaluates nothing: who is found is a candidate.
//!
//! Invariants: no bucket in a table is empty; buckets ascend by target; memory follows what is entered, downwards too.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use super::footprint;

/// Tables keep room for up to this many times their entries before they shrink.
const SLACK: usize = 4;

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Once more.
    Insert,
    /// Once less; nothing happens if there is none.
    Remove,
}

/// Targets, ascending, with the number of their insertions.
#[derive(Debug, Clone)]
pub struct Bucket<T>(Vec<(T, u32)>);

/// Buckets by exact value.
#[derive(Debug)]
pub struct Buckets<K, T>(HashMap<K, Bucket<T>>);

/// Buckets by prefix of a dotted name, each with its trailing dot. Ordered, because all stored prefixes of a name lie
/// on one descending walk whose length hostile names cannot stretch: each step lands on a stored prefix.
#[derive(Debug)]
pub struct PrefixBuckets<T>(BTreeMap<Arc<str>, Bucket<T>>);

impl<T> Default for Bucket<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K, T> Default for Buckets<K, T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Default for PrefixBuckets<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy + Ord> Bucket<T> {
    fn of(target: T) -> Self {
        Self(vec![(target, 1)])
    }

    /// Whether it has no target.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Targets that it has room for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Calls `found` with every target, ascending.
    pub fn each(&self, found: &mut impl FnMut(T)) {
        for (target, _) in &self.0 {
            found(*target);
        }
    }

    /// Changes a target's number of insertions.
    pub fn change(&mut self, target: T, change: Change) {
        let at = self.0.binary_search_by(|(entered, _)| entered.cmp(&target));
        match (at, change) {
            (Ok(at), Change::Insert) => self.0[at].1 += 1,
            (Ok(at), Change::Remove) => {
                self.0[at].1 -= 1;
                if self.0[at].1 == 0 {
                    self.0.remove(at);
                    if self.0.capacity() > SLACK * self.0.len() {
                        self.0.shrink_to(2 * self.0.len());
                    }
                }
            }
            (Err(at), Change::Insert) => self.0.insert(at, (target, 1)),
            (Err(_), Change::Remove) => {}
        }
    }
}

impl<K: Clone + Eq + Hash, T: Copy + Ord> Buckets<K, T> {
    /// Bytes that a key with one target takes, beside what the key refers to.
    #[must_use]
    pub const fn entry_footprint() -> usize {
        footprint::allocation(size_of::<(T, u32)>()) + footprint::table_entry::<(K, Bucket<T>)>()
    }

    /// Whether nothing is entered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keys that it has room for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Calls `found` with every target under that key.
    pub fn each<Q: Eq + Hash + ?Sized>(&self, key: &Q, found: &mut impl FnMut(T))
    where
        K: Borrow<Q>,
    {
        if !self.0.is_empty()
            && let Some(bucket) = self.0.get(key)
        {
            bucket.each(found);
        }
    }

    /// Changes a target's number of insertions under a key.
    pub fn change(&mut self, key: &K, target: T, change: Change) {
        match (self.0.get_mut(key), change) {
            (Some(bucket), _) => {
                bucket.change(target, change);
                if bucket.is_empty() {
                    self.0.remove(key);
                    shrink(&mut self.0);
                }
            }
            (None, Change::Insert) => {
                self.0.insert(key.clone(), Bucket::of(target));
            }
            (None, Change::Remove) => {}
        }
    }
}

impl<T: Copy + Ord> PrefixBuckets<T> {
    /// Whether nothing is entered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes a target's number of insertions under a prefix, which ends with a dot.
    pub fn change(&mut self, prefix: &Arc<str>, target: T, change: Change) {
        match (self.0.get_mut(prefix), change) {
            (Some(bucket), _) => {
                bucket.change(target, change);
                if bucket.is_empty() {
                    self.0.remove(prefix);
                }
            }
            (None, Change::Insert) => {
                self.0.insert(Arc::clone(prefix), Bucket::of(target));
            }
            (None, Change::Remove) => {}
        }
    }

    /// Calls `found` with every target under a prefix of `name`: walks down the stored ones, longest first.
    pub fn each_prefix_of(&self, name: &str, found: &mut impl FnMut(T)) {
        if self.0.is_empty() {
            return;
        }
        // No stored prefix of `name` is greater than `rest`.
        let mut rest = name;
        while let Some((prefix, bucket)) = self.0.range::<str, _>((Unbounded, Included(rest))).next_back() {
            let mut shared = prefix.bytes().zip(rest.bytes()).take_while(|(a, b)| a == b).count();
            if shared == prefix.len() {
                bucket.each(found);
                // Step over its dot, so that the next one is shorter.
                shared -= 1;
            }
            // What lies between a stored prefix of `name` and `rest` begins with it, `prefix` too: so every one still
            // to be found is a part of what `prefix` and `rest` share.
            let Some(dot) = rest.as_bytes()[..shared].iter().rposition(|byte| *byte == b'.') else { return };
            rest = rest.get(..=dot).unwrap_or_default();
        }
    }
}

/// Gives memory back once a table is mostly room.
pub fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > SLACK * map.len() {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn each(walk: impl FnOnce(&mut dyn FnMut(u32))) -> Vec<u32> {
        let mut targets = Vec::new();
        walk(&mut |target| targets.push(target));
        targets
    }

    #[test]
    fn a_target_stays_until_it_was_removed_as_often_as_inserted() {
        let mut buckets = Buckets::<Arc<str>, u32>::default();
        let key: Arc<str> = "a".into();
        for target in [2, 1, 2] {
            buckets.change(&key, target, Change::Insert);
        }
        buckets.change(&key, 3, Change::Remove);
        buckets.change(&"b".into(), 1, Change::Remove);
        assert_eq!(each(|mut found| buckets.each("a", &mut found)), [1, 2]);
        buckets.change(&key, 2, Change::Remove);
        assert_eq!(each(|mut found| buckets.each("a", &mut found)), [1, 2]);
        buckets.change(&key, 2, Change::Remove);
        buckets.change(&key, 1, Change::Remove);
        assert_eq!(each(|mut found| buckets.each("a", &mut found)), [0; 0]);
        assert!(buckets.is_empty());
    }

    #[test]
    fn memory_follows_what_is_entered() {
        let mut buckets = Buckets::<u32, u32>::default();
        let mut bucket = Bucket::default();
        for change in [Change::Insert, Change::Remove] {
            for number in 0..1000 {
                buckets.change(&number, 0, change);
                bucket.change(number, change);
            }
        }
        assert!(buckets.is_empty() && bucket.is_empty());
        assert_eq!((buckets.capacity(), bucket.capacity()), (0, 0));
    }

    proptest! {
        #[test]
        fn every_stored_prefix_of_a_name_is_found_once(
            prefixes in prop::collection::vec("([ab-]{0,2}\\.){1,4}", 0..20),
            names in prop::collection::vec("[ab.-]{0,8}", 1..20),
        ) {
            let mut stored = PrefixBuckets::default();
            for (target, prefix) in (0..).zip(&prefixes) {
                stored.change(&prefix.as_str().into(), target, Change::Insert);
            }
            for name in &names {
                let mut targets = each(|mut found| stored.each_prefix_of(name, &mut found));
                targets.sort_unstable();
                let expected: Vec<u32> = (0..).zip(&prefixes).filter(|(_, prefix)| name.starts_with(prefix.as_str())).map(|(target, _)| target).collect();
                prop_assert_eq!(targets, expected, "{}", name);
            }
            for (target, prefix) in (0..).zip(&prefixes) {
                stored.change(&prefix.as_str().into(), target, Change::Remove);
            }
            prop_assert!(stored.is_empty());
        }
    }
}
