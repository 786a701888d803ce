//! JSON → [`Filter`]: the grammar of §8 and its canonical form.
//!
//! Memory: what is kept is a part of the text, at most `scalars_max` strings of it; work stops at the first fault.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CAPTURES_ALL, Filter, FilterFault, Kinds, SEVERITIES_ALL, Scalars, Texts, ascending};
use crate::relay::event::{ATTRIBUTES, Attribute, Capture, Severity, is_extension_name};
use crate::wire::json::{self, Kind, Value};

/// Bytes of a peer's own text that a refusal repeats.
const QUOTE_BYTES_MAX: usize = 64;

/// Whatever begins as anything but an object.
pub(super) const NOT_AN_OBJECT: &str = "filter: must be a JSON object";

/// What may stand on the left of a rule.
enum FilterKey {
    Type,
    Text(Attribute),
    Epoch,
    Severity,
    Capture,
    Extension,
}

impl FilterKey {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "type" => Self::Type,
            "id" => Self::Text(Attribute::Id),
            "source" => Self::Text(Attribute::Source),
            "agent" => Self::Text(Attribute::Agent),
            "session" => Self::Text(Attribute::Session),
            "run" => Self::Text(Attribute::Run),
            "step" => Self::Text(Attribute::Step),
            "subject" => Self::Text(Attribute::Subject),
            "cause" => Self::Text(Attribute::Cause),
            "epoch" => Self::Epoch,
            "severity" => Self::Severity,
            "capture" => Self::Capture,
            "aep" | "time" | "seq" | "traceparent" | "data" => return None,
            other => return is_extension_name(other).then_some(Self::Extension),
        })
    }
}

/// A scalar of the filter that some attribute may have.
enum Literal<'a> {
    Text(Cow<'a, str>),
    Integer(i64),
    Boolean(bool),
}

impl Literal<'_> {
    fn text(self) -> Option<Arc<str>> {
        match self {
            Self::Text(text) => Some(text.into()),
            Self::Integer(_) | Self::Boolean(_) => None,
        }
    }
}

/// Counts down the scalars a filter may still hold.
struct ScalarBudget {
    left: usize,
    max: usize,
}

impl ScalarBudget {
    fn take(&mut self) -> Result<(), FilterFault> {
        self.left = self.left.checked_sub(1).ok_or(FilterFault::TooManyScalars { max: self.max })?;
        Ok(())
    }
}

/// The rules read so far; `None` where the key has not been met.
#[derive(Default)]
struct Draft {
    severities: Option<u8>,
    captures: Option<u8>,
    epochs: Option<Box<[u64]>>,
    kinds: Option<Kinds>,
    texts: [Option<(Attribute, Texts)>; ATTRIBUTES],
    extensions: BTreeMap<Arc<str>, Scalars>,
}

/// Reads a whole filter.
pub(super) fn filter(value: Value<'_>, scalars_max: usize) -> Result<Filter, FilterFault> {
    if value.kind != Kind::Object {
        return Err(FilterFault::Invalid(NOT_AN_OBJECT.into()));
    }
    let mut draft = Draft::default();
    let mut budget = ScalarBudget { left: scalars_max, max: scalars_max };
    for member in value.members() {
        let name = json::unescape(member.name)
            .map_err(|_| FilterFault::Invalid("filter: a key holds a lone surrogate".into()))?;
        draft.add(&name, member.value, &mut budget)?;
    }
    Ok(draft.finish())
}

impl Draft {
    fn add(&mut self, name: &str, value: Value<'_>, budget: &mut ScalarBudget) -> Result<(), FilterFault> {
        let key = FilterKey::of(name).ok_or_else(|| invalid(name, "not an attribute that can be filtered on"))?;
        let repeated = match key {
            FilterKey::Type => self.kinds.replace(kinds(name, value, budget)?).is_some(),
            FilterKey::Text(attribute) => {
                let any = scalars(name, value, budget)?.into_iter().filter_map(Literal::text).collect();
                match self.texts.get_mut(attribute as usize) {
                    Some(slot) => slot.replace((attribute, ascending(any))).is_some(),
                    None => false,
                }
            }
            FilterKey::Epoch => self.epochs.replace(epochs(name, value, budget)?).is_some(),
            FilterKey::Severity if value.kind == Kind::Object => {
                self.severities.replace(severity_range(name, value, budget)?).is_some()
            }
            FilterKey::Severity => self.severities.replace(levels(name, value, budget, severity_bit)?).is_some(),
            FilterKey::Capture => self.captures.replace(levels(name, value, budget, capture_bit)?).is_some(),
            FilterKey::Extension => self.extensions.insert(name.into(), any_scalars(name, value, budget)?).is_some(),
        };
        if repeated { Err(invalid(name, "repeated key")) } else { Ok(()) }
    }

    fn finish(self) -> Filter {
        let texts: Box<[_]> = self.texts.into_iter().flatten().collect();
        let unsatisfiable = self.severities == Some(0)
            || self.captures == Some(0)
            || self.epochs.as_ref().is_some_and(|any| any.is_empty())
            || self.kinds.as_ref().is_some_and(Kinds::is_empty)
            || texts.iter().any(|(_, any)| any.is_empty())
            || self.extensions.values().any(Scalars::is_empty);
        if unsatisfiable {
            return Filter::nothing();
        }
        Filter {
            severities: self.severities.unwrap_or(SEVERITIES_ALL),
            captures: self.captures.unwrap_or(CAPTURES_ALL),
            epochs: self.epochs,
            kinds: self.kinds,
            texts,
            extensions: self.extensions.into_iter().collect(),
        }
    }
}

/// A scalar, or a non-empty array of scalars; those that no attribute can equal are left out.
fn scalars<'a>(name: &str, value: Value<'a>, budget: &mut ScalarBudget) -> Result<Vec<Literal<'a>>, FilterFault> {
    let mut any = Vec::new();
    if value.kind != Kind::Array {
        any.extend(scalar(name, value, budget)?);
        return Ok(any);
    }
    let mut empty = true;
    for element in value.elements() {
        empty = false;
        any.extend(scalar(name, element, budget)?);
    }
    if empty { Err(invalid(name, "an any-of list must not be empty")) } else { Ok(any) }
}

fn scalar<'a>(name: &str, value: Value<'a>, budget: &mut ScalarBudget) -> Result<Option<Literal<'a>>, FilterFault> {
    budget.take()?;
    Ok(match value.kind {
        Kind::String => {
            let text = string(name, value)?;
            if text.contains('*') && name != "type" {
                return Err(invalid(name, "only \"type\" takes a pattern with \"*\""));
            }
            Some(Literal::Text(text))
        }
        Kind::Number if value.text.contains(['.', 'e', 'E']) => {
            return Err(invalid(name, "a number must be an integer without fraction or exponent"));
        }
        Kind::Number => json::integer(value.text).map(Literal::Integer),
        Kind::True => Some(Literal::Boolean(true)),
        Kind::False => Some(Literal::Boolean(false)),
        Kind::Null => return Err(invalid(name, "null is never a legal value")),
        Kind::Array => return Err(invalid(name, "an any-of list must not hold another array")),
        Kind::Object => return Err(invalid(name, "must be a string, an integer, a boolean, or an array of them")),
    })
}

fn string<'a>(name: &str, value: Value<'a>) -> Result<Cow<'a, str>, FilterFault> {
    json::unescape(value.raw_string().unwrap_or_default()).map_err(|_| invalid(name, "a string holds a lone surrogate"))
}

fn kinds(name: &str, value: Value<'_>, budget: &mut ScalarBudget) -> Result<Kinds, FilterFault> {
    let (mut exact, mut prefixes) = (Vec::new(), Vec::new());
    for text in scalars(name, value, budget)?.into_iter().filter_map(Literal::text) {
        if !text.contains('*') {
            exact.push(text);
        } else if let Some(prefix) = text.strip_suffix('*').filter(|prefix| is_prefix(prefix)) {
            prefixes.push(prefix.into());
        } else {
            return Err(invalid(name, "a pattern is dotted tokens of [a-z0-9_-] followed by \".*\""));
        }
    }
    Ok(Kinds::new(exact, prefixes))
}

/// `([a-z0-9_-]+\.)+`
fn is_prefix(text: &str) -> bool {
    let is_token = |token: &str| {
        !token.is_empty() && token.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
    };
    text.strip_suffix('.').is_some_and(|tokens| tokens.split('.').all(is_token))
}

fn epochs(name: &str, value: Value<'_>, budget: &mut ScalarBudget) -> Result<Box<[u64]>, FilterFault> {
    let values = scalars(name, value, budget)?.into_iter().filter_map(|literal| match literal {
        Literal::Integer(integer) => u64::try_from(integer).ok(),
        Literal::Text(_) | Literal::Boolean(_) => None,
    });
    Ok(ascending(values.collect()))
}

fn any_scalars(name: &str, value: Value<'_>, budget: &mut ScalarBudget) -> Result<Scalars, FilterFault> {
    let (mut texts, mut integers, mut booleans) = (Vec::new(), Vec::new(), Vec::new());
    for literal in scalars(name, value, budget)? {
        match literal {
            Literal::Text(text) => texts.push(text.into()),
            Literal::Integer(integer) => integers.push(integer),
            Literal::Boolean(boolean) => booleans.push(boolean),
        }
    }
    Ok(Scalars { texts: ascending(texts), integers: ascending(integers), booleans: ascending(booleans) })
}

/// The set of levels named by a scalar or a list; names of no level add nothing.
fn levels(name: &str, value: Value<'_>, budget: &mut ScalarBudget, bit: fn(&str) -> u8) -> Result<u8, FilterFault> {
    let texts = scalars(name, value, budget)?.into_iter().filter_map(Literal::text);
    Ok(texts.fold(0, |set, text| set | bit(&text)))
}

fn severity_bit(text: &str) -> u8 {
    text.parse::<Severity>().map_or(0, |level| 1 << level as u8)
}

fn capture_bit(text: &str) -> u8 {
    text.parse::<Capture>().map_or(0, |level| 1 << level as u8)
}

/// `{"gte": level}`, `{"lte": level}` or both.
fn severity_range(name: &str, value: Value<'_>, budget: &mut ScalarBudget) -> Result<u8, FilterFault> {
    let (mut gte, mut lte) = (None, None);
    for member in value.members() {
        budget.take()?;
        let operator = json::unescape(member.name).map_err(|_| invalid(name, "an operator holds a lone surrogate"))?;
        let bound = match operator.as_ref() {
            "gte" => &mut gte,
            "lte" => &mut lte,
            _ => return Err(invalid(name, "the operators are \"gte\" and \"lte\"")),
        };
        if member.value.kind != Kind::String {
            return Err(invalid(name, "an operator takes the name of a severity"));
        }
        let bit = severity_bit(&string(name, member.value)?);
        if bit == 0 {
            return Err(invalid(name, "an operator takes debug, info, notice, warning, error or critical"));
        }
        if bound.replace(bit).is_some() {
            return Err(invalid(name, "repeated operator"));
        }
    }
    if gte.is_none() && lte.is_none() {
        return Err(invalid(name, "needs \"gte\" or \"lte\""));
    }
    // Levels at or above a bit: the bit and all higher ones; at or below it: the bit and all lower ones.
    let at_least = gte.map_or(SEVERITIES_ALL, |bit: u8| SEVERITIES_ALL & !(bit - 1));
    let at_most = lte.map_or(SEVERITIES_ALL, |bit: u8| (bit - 1) | bit);
    Ok(at_least & at_most)
}

/// A fault that names its key; a long key is cut, for a refusal is no echo.
fn invalid(name: &str, rule: &str) -> FilterFault {
    let shown = name.floor_char_boundary(QUOTE_BYTES_MAX);
    let (name, more) = name.split_at(shown);
    FilterFault::Invalid(format!("filter key {name:?}{}: {rule}", if more.is_empty() { "" } else { "…" }))
}
