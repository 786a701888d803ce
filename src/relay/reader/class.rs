//! Delivery classes: subscriptions that share filter, ceiling and binding are matched once per event, and their frames
//! of one turn form a run that every member takes with one push (design "Delivery classes", contract §8).
//!
//! A class has *members* ([`RunGroup`]), who take its runs blindly, and *others*: subscriptions that need a look of
//! their own at each event, because their connection has several subscriptions, replays, awaits a judgement or owes an
//! announcement.
//!
//! Invariants: a subscription is in at most one of the two lists of its class; membership changes only while the class
//! has no pending pieces (`fanout.rs` settles it first); a class without subscriptions does not exist; the index
//! holds exactly the filters of existing classes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::buckets::shrink;
use crate::base::footprint;
use crate::base::slab::Slab;
use crate::engine::service::CoreId;
use crate::protocol::binding::Binding;
use crate::protocol::run_group::RunGroup;

use crate::relay::event::{Capture, Event};
use crate::relay::filter::Filter;
use crate::relay::filter::index::Index;
use crate::relay::mail::SubRef;
use crate::relay::reader::position_log::PositionLog;

/// What makes a class.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClassKey {
    /// What its subscriptions want.
    pub filter: Arc<Filter>,
    /// The highest level they may see.
    pub ceiling: Capture,
    /// How they are framed.
    pub binding: Binding,
}

/// A class of this core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId {
    slot: u32,
    generation: u32,
}

/// One class.
#[derive(Debug)]
pub struct Class {
    /// What makes it.
    pub key: ClassKey,
    /// Who takes its runs, and this turn's frames; its stream of bytes is what `log` follows.
    pub group: RunGroup<SubRef>,
    /// Who is looked at singly.
    pub others: Vec<SubRef>,
    /// Positions along that stream, for the `closing` frame of WebSocket members.
    pub log: Option<Box<PositionLog<Arc<str>>>>,
    subscriptions: usize,
    /// What it is counted for.
    footprint: usize,
    /// What of that is for the log's contents.
    log_footprint: usize,
}

/// What the list of others takes with its first entry.
const FIRST_OTHERS: usize = 4;

/// All classes of a core.
#[derive(Debug, Default)]
pub struct Classes {
    slab: Slab<Class>,
    by_key: HashMap<ClassKey, ClassId>,
    index: Index<ClassId>,
    /// How many classes have each filter: what the owners know as this core's interest.
    interests: HashMap<Arc<Filter>, usize>,
    bytes: usize,
}

impl Classes {
    /// Bytes that a class with this filter keeps on all cores: itself, its way into the table and the indices, the
    /// filter, and what each owner knows of it.
    #[must_use]
    pub fn footprint(filter: &Filter, cores: usize) -> usize {
        const FIXED: usize = size_of::<Class>()
            + 2 * size_of::<usize>()
            + footprint::table_entry::<(ClassKey, ClassId)>()
            + footprint::table_entry::<(Arc<Filter>, usize)>()
            + RunGroup::<SubRef>::FOOTPRINT
            + footprint::allocation(FIRST_OTHERS * size_of::<SubRef>())
            + footprint::allocation(size_of::<PositionLog<Arc<str>>>());
        let owners = if cores > 1 { cores * Index::<CoreId>::footprint(filter) } else { 0 };
        FIXED + filter.footprint() + Index::<ClassId>::footprint(filter) + owners
    }

    /// Enters a subscription; answers its class, and the filter if no class had it before.
    pub fn join(&mut self, key: ClassKey, sessions_max: usize, cores: usize) -> (ClassId, Option<Arc<Filter>>) {
        if let Some(&id) = self.by_key.get(&key) {
            if let Some(class) = self.class_mut(id) {
                class.subscriptions += 1;
            }
            return (id, None);
        }
        let log = (key.binding == Binding::WebSocket).then(|| Box::new(PositionLog::new(sessions_max)));
        let footprint = Self::footprint(&key.filter, cores);
        self.bytes += footprint;
        let (slot, generation) = self.slab.insert(Class {
            key: key.clone(),
            group: RunGroup::default(),
            others: Vec::new(),
            log,
            subscriptions: 1,
            footprint,
            log_footprint: 0,
        });
        let id = ClassId { slot, generation };
        self.index.insert(&key.filter, id);
        let count = self.interests.entry(Arc::clone(&key.filter)).or_insert(0);
        *count += 1;
        let new = (*count == 1).then(|| Arc::clone(&key.filter));
        self.by_key.insert(key, id);
        (id, new)
    }

    /// A subscription, already in neither list, leaves; answers the filter if no class has it any more.
    pub fn leave(&mut self, id: ClassId) -> Option<Arc<Filter>> {
        let class = self.class_mut(id)?;
        class.subscriptions -= 1;
        if class.subscriptions > 0 {
            return None;
        }
        let class = self.slab.remove(id.slot, id.generation)?;
        debug_assert!(class.group.members().is_empty() && class.others.is_empty());
        self.bytes -= class.footprint;
        self.by_key.remove(&class.key);
        shrink(&mut self.by_key);
        self.index.remove(&class.key.filter, id);
        let count = self.interests.get_mut(&class.key.filter)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.interests.remove(&class.key.filter);
        shrink(&mut self.interests);
        Some(class.key.filter)
    }

    /// Counts what a class's log takes now. Answers that, and what was counted for it before.
    pub fn recount_log(&mut self, id: ClassId) -> (usize, usize) {
        let Some(class) = self.class_mut(id) else { return (0, 0) };
        let now = class.log.as_ref().map_or(0, |log| log.footprint());
        let before = std::mem::replace(&mut class.log_footprint, now);
        class.footprint = class.footprint - before + now;
        self.bytes = self.bytes - before + now;
        (now, before)
    }

    /// Bytes that all classes keep, see [`Classes::footprint`], and their logs.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A class.
    #[must_use]
    pub fn class(&self, id: ClassId) -> Option<&Class> {
        self.slab.get(id.slot, id.generation)
    }

    /// A class, to be changed.
    pub fn class_mut(&mut self, id: ClassId) -> Option<&mut Class> {
        self.slab.get_mut(id.slot, id.generation)
    }

    /// The classes whose filter may match, each once.
    pub fn candidates(&self, event: &Event<'_>, into: &mut Vec<ClassId>) {
        self.index.candidates(event, &mut |id| into.push(id));
    }

    #[cfg(test)]
    pub(in crate::relay) fn check_empty(&self) {
        assert_eq!((self.slab.iter().count(), self.by_key.len(), self.interests.len()), (0, 0, 0), "classes left");
        assert!(self.index.is_empty(), "filters left");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(filter: &str) -> ClassKey {
        let filter = Arc::new(Filter::parse(filter.as_bytes(), 100).unwrap());
        ClassKey { filter, ceiling: Capture::Full, binding: Binding::WebSocket }
    }

    #[test]
    fn a_class_is_counted_once_and_until_its_last_subscription_leaves() {
        let mut classes = Classes::default();
        let (first, _) = classes.join(key(r#"{"agent":"a"}"#), 10, 2);
        let one = classes.bytes();
        assert_eq!(classes.join(key(r#"{"agent":"a"}"#), 10, 2).0, first);
        assert_eq!(classes.bytes(), one);
        let (other, _) = classes.join(key(r#"{"agent":["b","c","d"]}"#), 10, 2);
        assert!(classes.bytes() > 2 * one);
        classes.leave(first);
        classes.leave(other);
        assert_eq!(classes.bytes(), one);
        classes.leave(first);
        assert_eq!(classes.bytes(), 0);
    }

    #[test]
    fn what_a_class_is_counted_for_grows_with_its_filter_and_the_cores_that_know_it() {
        let footprint = |filter: &str, cores| Classes::footprint(&key(filter).filter, cores);
        let lists = [r#"{}"#, r#"{"type":"a.b"}"#, r#"{"type":["a.b","c.*"]}"#];
        assert!(lists.map(|filter| footprint(filter, 1)).is_sorted());
        let long = format!(r#"{{"agent":"{}"}}"#, "x".repeat(10_000));
        // The text is there once, however many refer to it.
        assert!((10_000..12_000).contains(&footprint(&long, 1)), "{}", footprint(&long, 1));
        assert!((10_000..20_000).contains(&footprint(&long, 64)), "{}", footprint(&long, 64));
    }
}
