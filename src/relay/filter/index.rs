//! From what filters pin down to the few that an event can match (contract §8).
//!
//! Every filter is entered under one key family: the most selective attribute it pins, in the order of `PINS`, then an
//! extension attribute, then `type`, else among those that see every event. A filter that lists several values is
//! entered under each; an event has one value per attribute, and a canonical [`Kinds`](super::Kinds) never
//! covers a type twice, so an entry is met at most once per event. The cost of an event is a lookup per family in use,
//! plus its candidates.
//!
//! Entries are counted: the same (filter, target) may be inserted several times and stays until removed as often, so
//! the index serves consumer cores (targets are classes) and owners (targets are cores, met once per matching *entry*:
//! a target that entered two filters under different keys may be met twice).
//!
//! It does not evaluate filters: a candidate may still not match.
//!
//! Invariant: no extension's table is empty; buckets (`base/buckets.rs`) keep the rest.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::buckets::{Bucket, Buckets, Change, PrefixBuckets, shrink};
use crate::base::footprint;

use crate::relay::event::{Attribute, Event, Scalar};
use crate::relay::filter::{Filter, Scalars};

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

/// Filters and their targets, found by event.
#[derive(Debug)]
pub struct Index<T> {
    /// By [`PINS`].
    attributes: [Buckets<Arc<str>, T>; PINS.len()],
    /// By name; no entry is empty.
    extensions: HashMap<Arc<str>, ExtensionTable<T>>,
    kinds: Buckets<Arc<str>, T>,
    /// Type prefixes with their trailing dot.
    prefixes: PrefixBuckets<T>,
    everything: Bucket<T>,
}

#[derive(Debug)]
struct ExtensionTable<T> {
    texts: Buckets<Arc<str>, T>,
    integers: Buckets<i64, T>,
    booleans: Buckets<bool, T>,
}

impl<T: Copy + Ord> Index<T> {
    /// Enters `target` under what `filter` pins, once more if it is already there.
    pub fn insert(&mut self, filter: &Filter, target: T) {
        self.change(filter, target, Change::Insert);
    }

    /// Bytes that a filter's entries take in an index, beside its texts, which it shares.
    #[must_use]
    pub fn footprint(filter: &Filter) -> usize {
        let entry = Buckets::<Arc<str>, T>::entry_footprint();
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
            self.prefixes.change(prefix, target, change);
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
        self.prefixes.each_prefix_of(event.kind(), found);
    }

    /// Whether nothing is entered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.everything.is_empty()
            && self.attributes.iter().all(Buckets::is_empty)
            && self.extensions.is_empty()
            && self.kinds.is_empty()
            && self.prefixes.is_empty()
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

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self {
            attributes: std::array::from_fn(|_| Buckets::default()),
            extensions: HashMap::new(),
            kinds: Buckets::default(),
            prefixes: PrefixBuckets::default(),
            everything: Bucket::default(),
        }
    }
}

impl<T> Default for ExtensionTable<T> {
    fn default() -> Self {
        Self { texts: Buckets::default(), integers: Buckets::default(), booleans: Buckets::default() }
    }
}

#[cfg(test)]
mod tests;
