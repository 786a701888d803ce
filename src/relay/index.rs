//! From what filters pin down to the few that an event can match (contract §8).
//!
//! Every filter is entered under one key family: the most selective attribute it pins, in the order of `PINS`, then an
//! extension attribute, then `type`, else among those that see every event. A filter that lists several values is
//! entered under each; an event has one value per attribute, and a canonical [`Kinds`](super::filter::Kinds) never
//! covers a type twice, so an entry is met at most once per event. The cost of an event is a lookup per family in use,
//! plus its candidates.
//!
//! Entries are counted: the same (filter, target) may be inserted several times and stays until removed as often, so the
//! index serves consumer cores (targets are classes) and owners (targets are cores, met once per matching *entry*:
//! a target that entered two filters under different keys may be met twice).
//!
//! It does not evaluate filters: a candidate may still not match.
//!
//! Invariants: no bucket in a table is empty; buckets ascend by target; memory follows what is entered, downwards too.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use memchr::memrchr;

use crate::base::footprint;

use super::event::{Attribute, Event, Scalar};
use super::filter::{Filter, Scalars};

/// String attributes by how few events share a value of theirs, most selective first.
const PINS: [Attribute; 8] = [
    Attribute::Session,
    Attribute::Id,
    Attribute::Cause,
    Attribute::Run,
    Attribute::Source,
    Attribute::Agent,
    Attribute::Step,
    Attribute::Subject,
];

/// Tables keep room for up to this many times their entries before they shrink.
const SLACK: usize = 4;

/// Filters and their targets, found by event.
#[derive(Debug)]
pub struct Index<T> {
    /// By [`PINS`].
    attributes: [Table<Arc<str>, T>; PINS.len()],
    /// By name; no entry is empty.
    extensions: HashMap<Arc<str>, ExtensionTable<T>>,
    kinds: Table<Arc<str>, T>,
    /// Type prefixes with their trailing dot. Ordered, because all stored prefixes of a type lie on one descending walk
    /// whose length hostile types cannot stretch: each step lands on a stored prefix.
    prefixes: BTreeMap<Arc<str>, Bucket<T>>,
    everything: Bucket<T>,
}

#[derive(Debug)]
struct Table<K, T>(HashMap<K, Bucket<T>>);

#[derive(Debug)]
struct ExtensionTable<T> {
    texts: Table<Arc<str>, T>,
    integers: Table<i64, T>,
    booleans: Table<bool, T>,
}

/// Targets, ascending, with the number of their insertions.
#[derive(Debug, Clone)]
struct Bucket<T>(Vec<(T, u32)>);

#[derive(Debug, Clone, Copy)]
enum Change {
    Insert,
    Remove,
}

impl<T: Copy + Ord> Index<T> {
    /// Enters `target` under what `filter` pins, once more if it is already there.
    pub fn insert(&mut self, filter: &Filter, target: T) {
        self.change(filter, target, Change::Insert);
    }

    /// Bytes that a filter's entries take in an index, beside its texts, which it shares.
    #[must_use]
    pub fn footprint(filter: &Filter) -> usize {
        let bucket = footprint::allocation(size_of::<(T, u32)>());
        let entry = bucket + footprint::table_entry::<(Arc<str>, Bucket<T>)>();
        if filter.is_unsatisfiable() {
            return 0;
        }
        if let Some(any) = PINS.into_iter().find_map(|attribute| filter.texts(attribute)) {
            return any.len() * entry;
        }
        if let Some((_, any)) = filter.extensions().next() {
            let values = any.texts().len() + any.integers().len() + any.booleans().len();
            return footprint::table_entry::<(Arc<str>, ExtensionTable<T>)>() + values * entry;
        }
        match filter.kinds() {
            Some(kinds) => (kinds.exact().len() + kinds.prefixes().len()) * entry,
            None => footprint::item::<(T, u32)>(),
        }
    }

    /// Takes one insertion of the same filter and target back; nothing happens if there is none.
    pub fn remove(&mut self, filter: &Filter, target: T) {
        self.change(filter, target, Change::Remove);
    }

    fn change(&mut self, filter: &Filter, target: T, change: Change) {
        if filter.is_unsatisfiable() {
            return;
        }
        for (attribute, table) in PINS.into_iter().zip(&mut self.attributes) {
            if let Some(any) = filter.texts(attribute) {
                for value in any {
                    table.change(value, target, change);
                }
                return;
            }
        }
        if let Some((name, any)) = filter.extensions().next() {
            return self.change_extension(name, any, target, change);
        }
        let Some(kinds) = filter.kinds() else {
            return self.everything.change(target, change);
        };
        for kind in kinds.exact() {
            self.kinds.change(kind, target, change);
        }
        for prefix in kinds.prefixes() {
            self.change_prefix(prefix, target, change);
        }
    }

    fn change_extension(&mut self, name: &Arc<str>, any: &Scalars, target: T, change: Change) {
        let table = match change {
            Change::Insert => self.extensions.entry(Arc::clone(name)).or_default(),
            Change::Remove => match self.extensions.get_mut(name) {
                Some(table) => table,
                None => return,
            },
        };
        table.change(any, target, change);
        if table.is_empty() {
            self.extensions.remove(name);
            shrink(&mut self.extensions);
        }
    }

    fn change_prefix(&mut self, prefix: &Arc<str>, target: T, change: Change) {
        match (self.prefixes.get_mut(prefix), change) {
            (Some(bucket), _) => {
                bucket.change(target, change);
                if bucket.is_empty() {
                    self.prefixes.remove(prefix);
                }
            }
            (None, Change::Insert) => {
                self.prefixes.insert(Arc::clone(prefix), Bucket::of(target));
            }
            (None, Change::Remove) => {}
        }
    }

    /// Calls `found` with the target of every entry whose pinned attribute has the event's value.
    pub fn candidates(&self, event: &Event<'_>, found: &mut impl FnMut(T)) {
        self.everything.each(found);
        for (attribute, table) in PINS.into_iter().zip(&self.attributes) {
            if !table.is_empty()
                && let Some(value) = event.attribute(attribute)
            {
                table.each(value, found);
            }
        }
        if !self.extensions.is_empty() {
            for (name, value) in event.extensions() {
                if let Some(table) = self.extensions.get(name) {
                    table.each(value, found);
                }
            }
        }
        self.kinds.each(event.kind(), found);
        self.each_prefix_of(event.kind(), found);
    }

    /// Walks down the stored prefixes of `kind`, longest first.
    fn each_prefix_of(&self, kind: &str, found: &mut impl FnMut(T)) {
        // No stored prefix of `kind` is greater than `rest`.
        let mut rest = kind;
        while let Some((prefix, bucket)) = self.prefixes.range::<str, _>((Unbounded, Included(rest))).next_back() {
            let mut shared = prefix.bytes().zip(rest.bytes()).take_while(|(a, b)| a == b).count();
            if shared == prefix.len() {
                bucket.each(found);
                // Step over its dot, so that the next one is shorter.
                shared -= 1;
            }
            // What lies between a stored prefix of `kind` and `rest` begins with it, `prefix` too: so every one still to
            // be found is a part of what `prefix` and `rest` share.
            let Some(dot) = memrchr(b'.', &rest.as_bytes()[..shared]) else { return };
            rest = rest.get(..=dot).unwrap_or_default();
        }
    }

    /// Whether nothing is entered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.everything.is_empty()
            && self.attributes.iter().all(Table::is_empty)
            && self.extensions.is_empty()
            && self.kinds.is_empty()
            && self.prefixes.is_empty()
    }
}

impl<K: Clone + Eq + Hash, T: Copy + Ord> Table<K, T> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn each<Q: Eq + Hash + ?Sized>(&self, key: &Q, found: &mut impl FnMut(T))
    where
        K: Borrow<Q>,
    {
        if !self.0.is_empty()
            && let Some(bucket) = self.0.get(key)
        {
            bucket.each(found);
        }
    }

    fn change(&mut self, key: &K, target: T, change: Change) {
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

impl<T: Copy + Ord> ExtensionTable<T> {
    fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.integers.is_empty() && self.booleans.is_empty()
    }

    fn each(&self, value: Scalar<'_>, found: &mut impl FnMut(T)) {
        match value {
            Scalar::Text(text) => self.texts.each(text, found),
            Scalar::Integer(integer) => self.integers.each(&integer, found),
            Scalar::Boolean(boolean) => self.booleans.each(&boolean, found),
        }
    }

    fn change(&mut self, any: &Scalars, target: T, change: Change) {
        for text in any.texts() {
            self.texts.change(text, target, change);
        }
        for integer in any.integers() {
            self.integers.change(integer, target, change);
        }
        for boolean in any.booleans() {
            self.booleans.change(boolean, target, change);
        }
    }
}

impl<T: Copy + Ord> Bucket<T> {
    fn of(target: T) -> Self {
        Self(vec![(target, 1)])
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn each(&self, found: &mut impl FnMut(T)) {
        for (target, _) in &self.0 {
            found(*target);
        }
    }

    fn change(&mut self, target: T, change: Change) {
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

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self {
            attributes: std::array::from_fn(|_| Table::default()),
            extensions: HashMap::new(),
            kinds: Table::default(),
            prefixes: BTreeMap::new(),
            everything: Bucket::default(),
        }
    }
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Default for ExtensionTable<T> {
    fn default() -> Self {
        Self { texts: Table::default(), integers: Table::default(), booleans: Table::default() }
    }
}

impl<T> Default for Bucket<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Gives memory back once a table is mostly room.
pub(super) fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > SLACK * map.len() {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
mod tests;
