//! Delivery classes: subscriptions that share filter, ceiling and binding are matched once per event, and their frames
//! of one turn form a run that every member takes with one push (design "Delivery classes", contract §8).
//!
//! A class has *members*, who take its runs blindly, and *others*: subscriptions that need a look of their own at each
//! event, because their connection has several subscriptions, replays, awaits a judgement or owes an announcement.
//!
//! Invariants: a subscription is in at most one of the two lists of its class; membership changes only while the class
//! has no pending pieces (`fanout.rs` settles it first); a class without subscriptions does not exist; the index
//! holds exactly the filters of existing classes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::slab::Slab;
use crate::engine::service::{ConnId, Run};

use super::event::{Capture, Event};
use super::filter::Filter;
use super::frames::Binding;
use super::index::Index;
use super::ownership::SubRef;
use super::position_log::PositionLog;

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

/// A subscription that takes the class's runs.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// Its connection.
    pub conn: ConnId,
    /// Which subscription.
    pub sub: SubRef,
}

/// One event's frame, not pushed to the members yet.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// Its bytes.
    pub run: Run,
    /// Whether a slow consumer may miss it: `debug` and `info` (§9).
    pub droppable: bool,
    /// Where it ends in the class's stream of bytes.
    pub end: u64,
}

impl Piece {
    /// Where it begins in the class's stream of bytes.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.end - u64::from(self.run.len)
    }
}

/// One class.
#[derive(Debug)]
pub struct Class {
    /// What makes it.
    pub key: ClassKey,
    /// Who takes its runs.
    pub members: Vec<Member>,
    /// Who is looked at singly.
    pub others: Vec<SubRef>,
    /// This turn's frames.
    pub pieces: Vec<Piece>,
    /// Bytes ever framed for the members; the offset of `log`.
    pub bytes: u64,
    /// Positions along that stream, for the `closing` frame of WebSocket members.
    pub log: Option<Box<PositionLog<Arc<str>>>>,
    subscriptions: usize,
}

/// All classes of a core.
#[derive(Debug, Default)]
pub struct Classes {
    slab: Slab<Class>,
    by_key: HashMap<ClassKey, ClassId>,
    index: Index<ClassId>,
    /// How many classes have each filter: what the owners know as this core's interest.
    interests: HashMap<Arc<Filter>, usize>,
}

impl Classes {
    /// Enters a subscription; answers its class, and the filter if no class had it before.
    pub fn join(&mut self, key: ClassKey, sessions_max: usize) -> (ClassId, Option<Arc<Filter>>) {
        if let Some(&id) = self.by_key.get(&key) {
            if let Some(class) = self.class_mut(id) {
                class.subscriptions += 1;
            }
            return (id, None);
        }
        let log = (key.binding == Binding::WebSocket).then(|| Box::new(PositionLog::new(sessions_max)));
        let (slot, generation) = self.slab.insert(Class {
            key: key.clone(),
            members: Vec::new(),
            others: Vec::new(),
            pieces: Vec::new(),
            bytes: 0,
            log,
            subscriptions: 1,
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
        debug_assert!(class.members.is_empty() && class.others.is_empty());
        self.by_key.remove(&class.key);
        self.index.remove(&class.key.filter, id);
        let count = self.interests.get_mut(&class.key.filter)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.interests.remove(&class.key.filter);
        Some(class.key.filter)
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
    pub(super) fn check_empty(&self) {
        assert_eq!((self.slab.iter().count(), self.by_key.len(), self.interests.len()), (0, 0, 0), "classes left");
        assert!(self.index.is_empty(), "filters left");
    }
}
