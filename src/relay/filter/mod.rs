//! attr-match: what a subscription asks for, parsed once and matched without allocating (contract §8).
//!
//! A [`Filter`] is kept in a canonical form: any-of lists are sorted and free of repetitions, a type that one of the
//! list's prefixes already covers is gone, a level rule is the set of levels it allows, and every filter that can
//! match nothing is the same value. So `==` and `Hash` see through spelling, and equal filters can be interned.
//!
//! Decisions the contract leaves open:
//! - An integer beyond 64 bits is a scalar that matches nothing; a fraction or an exponent makes the filter invalid.
//! - Level operators count as scalars toward the limit, and so do repetitions: the bound is on what was sent.
//! - An any-of list may mix scalar kinds; those the attribute can never have match nothing.
//!
//! It does not know who subscribed, nor how candidates are found (`index.rs`).
//!
//! Invariants: any-of lists ascend strictly; no prefix of [`Kinds`] covers another or an exact type of the list.

pub mod index;

mod parse;

use std::sync::Arc;

use super::event::{Attribute, Event, Scalar};
use crate::base::footprint;
use crate::wire::json::{self, Value};

/// Every severity allowed: one bit each.
const SEVERITIES_ALL: u8 = 0b11_1111;
/// Every capture level allowed: one bit each.
const CAPTURES_ALL: u8 = 0b1111;

/// Why a filter was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterFault {
    /// `invalid-filter`: names the key and the rule it breaks.
    Invalid(String),
    /// `limit-exceeded`: more scalars than `max`.
    TooManyScalars {
        /// The limit in force, scalars.
        max: usize,
    },
}

impl std::fmt::Display for FilterFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invalid(detail) => f.write_str(detail),
            Self::TooManyScalars { max } => write!(f, "more than {max} scalars in one filter"),
        }
    }
}

/// An any-of list of strings, which the indices that find the filter share.
type Texts = Box<[Arc<str>]>;

/// A conjunction of rules on envelope attributes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Filter {
    /// Bit `Severity as u8` set: allowed.
    severities: u8,
    /// Bit `Capture as u8` set: allowed.
    captures: u8,
    epochs: Option<Box<[u64]>>,
    kinds: Option<Kinds>,
    /// At most one entry per attribute, in their declared order; `type` is in `kinds` instead.
    texts: Box<[(Attribute, Texts)]>,
    /// Ascending by name.
    extensions: Box<[(Arc<str>, Scalars)]>,
}

/// What a filter asks of `type`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Kinds {
    exact: Texts,
    /// With their trailing dot.
    prefixes: Texts,
}

/// An any-of list on an extension attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Scalars {
    texts: Texts,
    integers: Box<[i64]>,
    booleans: Box<[bool]>,
}

impl Filter {
    /// `{}`: matches every event.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            severities: SEVERITIES_ALL,
            captures: CAPTURES_ALL,
            epochs: None,
            kinds: None,
            texts: Box::default(),
            extensions: Box::default(),
        }
    }

    /// Whether it is `{}`, or says no more.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Self::everything()
    }

    /// The one value of all filters that no event can match.
    fn nothing() -> Self {
        Self { severities: 0, ..Self::everything() }
    }

    /// Parses a whole JSON text.
    ///
    /// # Errors
    /// [`FilterFault::Invalid`] if it is no JSON or breaks a rule of §8, [`FilterFault::TooManyScalars`] over the
    /// limit; the first fault in the text answers.
    pub fn parse(text: &[u8], scalars_max: usize) -> Result<Self, FilterFault> {
        let document = json::scan(text).map_err(|fault| match text.trim_ascii_start().first() {
            // Something else altogether; where its JSON breaks off helps nobody.
            Some(b'!'..=b'z') => FilterFault::Invalid(parse::NOT_AN_OBJECT.into()),
            _ => FilterFault::Invalid(format!("filter: {fault}")),
        })?;
        Self::from_value(document.root, scalars_max)
    }

    /// Reads a filter that is part of an already scanned JSON text.
    ///
    /// # Errors
    /// As [`Filter::parse`].
    pub fn from_value(value: Value<'_>, scalars_max: usize) -> Result<Self, FilterFault> {
        parse::filter(value, scalars_max)
    }

    /// Whether every rule holds for `event`.
    #[must_use]
    pub fn matches(&self, event: &Event<'_>) -> bool {
        self.severities & 1 << event.severity() as u8 != 0
            && self.captures & 1 << event.capture() as u8 != 0
            && self.epochs.as_ref().is_none_or(|any| any.binary_search(&event.epoch()).is_ok())
            && self.kinds.as_ref().is_none_or(|any| any.contains(event.kind()))
            && self
                .texts
                .iter()
                .all(|(attribute, any)| event.attribute(*attribute).is_some_and(|value| contains_text(any, value)))
            && self.extensions.iter().all(|(name, any)| event.extension(name).is_some_and(|value| any.contains(value)))
    }

    /// Whether no event can match.
    #[must_use]
    pub fn is_unsatisfiable(&self) -> bool {
        self.severities == 0
    }

    /// Whether an event of this session could match.
    #[must_use]
    pub fn admits_session(&self, session: &str) -> bool {
        self.texts(Attribute::Session).is_none_or(|any| contains_text(any, session))
    }

    /// The values asked of a string attribute other than `type`, if any are.
    #[must_use]
    pub fn texts(&self, attribute: Attribute) -> Option<&[Arc<str>]> {
        self.texts.iter().find(|(key, _)| *key == attribute).map(|(_, any)| any.as_ref())
    }

    /// What is asked of `type`, if anything is.
    #[must_use]
    pub fn kinds(&self) -> Option<&Kinds> {
        self.kinds.as_ref()
    }

    /// What is asked of extension attributes, ascending by name.
    pub fn extensions(&self) -> impl Iterator<Item = (&Arc<str>, &Scalars)> {
        self.extensions.iter().map(|(name, any)| (name, any))
    }

    /// Bytes that it takes, shared by reference count.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let kinds =
            self.kinds.as_ref().map_or(0, |kinds| texts_footprint(&kinds.exact) + texts_footprint(&kinds.prefixes));
        let texts: usize = self.texts.iter().map(|(_, any)| texts_footprint(any)).sum();
        let extensions: usize =
            self.extensions.iter().map(|(name, any)| footprint::text(name.len()) + any.footprint()).sum();
        footprint::allocation(2 * size_of::<usize>() + size_of::<Self>())
            + self.epochs.as_ref().map_or(0, |epochs| footprint::allocation(size_of_val(&**epochs)))
            + footprint::allocation(size_of_val(&*self.texts))
            + footprint::allocation(size_of_val(&*self.extensions))
            + kinds
            + texts
            + extensions
    }
}

impl Kinds {
    /// Puts the lists into canonical form.
    fn new(exact: Vec<Arc<str>>, prefixes: Vec<Arc<str>>) -> Self {
        let mut prefixes = prefixes;
        prefixes.sort_unstable();
        // Sorted, whatever a prefix covers follows it directly.
        prefixes.dedup_by(|longer, shorter| longer.starts_with(shorter.as_ref()));
        let mut kinds = Self { exact: Box::default(), prefixes: prefixes.into() };
        kinds.exact = ascending(exact.into_iter().filter(|kind| !kinds.has_prefix_of(kind)).collect());
        kinds
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.is_empty()
    }

    /// Types asked for by name, ascending.
    #[must_use]
    pub fn exact(&self) -> &[Arc<str>] {
        &self.exact
    }

    /// Prefixes asked for, with their trailing dot, ascending; none covers another.
    #[must_use]
    pub fn prefixes(&self) -> &[Arc<str>] {
        &self.prefixes
    }

    fn contains(&self, kind: &str) -> bool {
        contains_text(&self.exact, kind) || self.has_prefix_of(kind)
    }

    /// Of ascending prefixes that do not cover each other, only the last one not above `kind` can cover it: all strings
    /// between a prefix and a string it covers begin with that prefix.
    fn has_prefix_of(&self, kind: &str) -> bool {
        let above = self.prefixes.partition_point(|prefix| prefix.as_ref() <= kind);
        above
            .checked_sub(1)
            .and_then(|last| self.prefixes.get(last))
            .is_some_and(|prefix| kind.starts_with(prefix.as_ref()))
    }
}

impl Scalars {
    fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.integers.is_empty() && self.booleans.is_empty()
    }

    fn contains(&self, value: Scalar<'_>) -> bool {
        match value {
            Scalar::Text(text) => contains_text(&self.texts, text),
            Scalar::Integer(integer) => self.integers.binary_search(&integer).is_ok(),
            Scalar::Boolean(boolean) => self.booleans.contains(&boolean),
        }
    }

    fn footprint(&self) -> usize {
        texts_footprint(&self.texts)
            + footprint::allocation(size_of_val(&*self.integers))
            + footprint::allocation(size_of_val(&*self.booleans))
    }

    /// The strings, which may be shared.
    #[must_use]
    pub fn texts(&self) -> &[Arc<str>] {
        &self.texts
    }

    /// The integers.
    #[must_use]
    pub fn integers(&self) -> &[i64] {
        &self.integers
    }

    /// The booleans.
    #[must_use]
    pub fn booleans(&self) -> &[bool] {
        &self.booleans
    }
}

/// An any-of list in canonical form.
fn ascending<V: Ord>(mut values: Vec<V>) -> Box<[V]> {
    values.sort_unstable();
    values.dedup();
    values.into()
}

fn texts_footprint(any: &[Arc<str>]) -> usize {
    footprint::allocation(size_of_val(any)) + any.iter().map(|text| footprint::text(text.len())).sum::<usize>()
}

fn contains_text(any: &[Arc<str>], value: &str) -> bool {
    any.binary_search_by(|text| text.as_ref().cmp(value)).is_ok()
}

#[cfg(test)]
pub(in crate::relay) mod tests;
