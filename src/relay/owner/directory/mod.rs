//! The sessions that one core owns: names, recency, eviction, memory of the evicted (contract §3).
//!
//! Plain data of the owner core; the arena's handle lives here too. The directory offers the steps of eviction and
//! decides none of them: the session cap and the byte budget span all cores, so the owner's messages do. What it
//! promises:
//!
//! - [`Directory::write`] either admits or, with [`NoRoom`], leaves everything as it was. The caller then evicts the
//!   least recently written session of the process ([`Directory::evict_oldest_if`]) and tries again; with only the
//!   writer's left, its lowest events ([`Directory::trim_lowest`]); with none of these left,
//!   [`Directory::write_unkept`], which cannot fail. Each step gives something back, so this ends.
//! - Recency is that of the last *admitted* event: a duplicate refreshes nothing.
//! - A [`SessionId`] is never given twice: after eviction it misses, also when the name comes back.
//!
//! Invariants: both maps of names, occupied slots and the recency list hold the same sessions, none of which has a
//! tombstone. The pool's held bytes are the buffers' chunks and tables, the sessions' own bytes and the tombstones'.

mod recency;
mod tombstones;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crate::base::segment_pool::{NoRoom, SegmentPool};
use crate::limits::{TOMBSTONES_MAX, TOMBSTONES_SHARE};
use crate::relay::buffer::{Admission, CatchUpCursor, Marks, NewEvent, PageEnd, ReplayCursor, SessionBuffer, Stored};
use crate::relay::owner::directory::recency::Recency;
use crate::relay::owner::directory::tombstones::Tombstones;

/// A session beside its name and its buffer: its slot, its link, its map entries and the name's counters, with the
/// slack that growing tables have.
const SESSION_BYTES: usize = 2 * (size_of::<Option<Session>>() + 2 * size_of::<(Arc<str>, SessionId)>() + 24) + 16;
/// Scratch that is kept between pages; a larger event's is freed behind its page.
const SCRATCH_KEPT_BYTES: usize = 256 << 10;

/// A session of this core: a slot and the number of its birth, so that a stale id misses instead of hitting a stranger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId {
    slot: u32,
    born: u64,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The session; `None` if it could not even be created ([`Directory::write_unkept`]).
    pub session: Option<SessionId>,
    /// Whether this write created it.
    pub created: bool,
    /// What became of the event.
    pub admission: Admission,
}

/// What there is of a session.
#[derive(Debug)]
pub enum Kept<'a> {
    /// It is held.
    Held(SessionId, &'a SessionBuffer),
    /// It was evicted whole; this is remembered of it.
    Gone(&'a Marks),
}

/// What an eviction gave back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted {
    /// Events that were held.
    pub events: usize,
    /// Bytes of the session's segments and tables.
    pub bytes: usize,
}

#[derive(Debug)]
struct Session {
    born: u64,
    name: Arc<str>,
    buffer: SessionBuffer,
}

/// The sessions of one owner core.
#[derive(Debug)]
pub struct Directory {
    pool: SegmentPool,
    events_max: usize,
    names: HashMap<Arc<str>, SessionId>,
    slots: Vec<Option<Session>>,
    vacant: Vec<u32>,
    /// The same in order, which walks need and writes do not.
    by_name: BTreeMap<Arc<str>, SessionId>,
    born: u64,
    recency: Recency,
    tombstones: Tombstones,
    scratch: Vec<u8>,
}

impl Directory {
    /// A directory of no sessions, one of `cores` alike: each remembers its share of the evicted. A session keeps at
    /// most `events_max` ≥ 1 events.
    #[must_use]
    pub fn new(pool: SegmentPool, events_max: usize, cores: usize) -> Self {
        let cores = cores.max(1);
        let tombstone_bytes_max = pool.budget().capacity_bytes() / TOMBSTONES_SHARE / cores;
        Self {
            pool,
            events_max,
            names: HashMap::new(),
            slots: Vec::new(),
            vacant: Vec::new(),
            by_name: BTreeMap::new(),
            born: 0,
            recency: Recency::default(),
            tombstones: Tombstones::new(TOMBSTONES_MAX.div_ceil(cores), tombstone_bytes_max),
            scratch: Vec::new(),
        }
    }

    // ── writing ──

    /// Hands an event to its session, which is created if need be. An admitted event makes it the most recently written
    /// one of its tick.
    pub fn write(&mut self, name: &str, event: &NewEvent<'_>, tick: u64) -> Result<Written, NoRoom> {
        let (id, created) = match self.session(name) {
            Some(id) => (id, false),
            None => (self.create(name, tick)?, true),
        };
        let Some(session) = occupied(&mut self.slots, id) else {
            return Err(NoRoom);
        };
        match session.buffer.admit(&mut self.pool, event, self.events_max) {
            Ok(admission) => {
                self.on_written(id, name, created, admission, tick);
                Ok(Written { session: Some(id), created, admission })
            }
            Err(no_room) => {
                if created && let Some(session) = self.take(id) {
                    // Its tables may have grown; what it would remember still stands in its tombstone.
                    let _ = session.buffer.close(&mut self.pool);
                }
                Err(no_room)
            }
        }
    }

    /// Like [`Directory::write`], for an event that found no room after all: it is evicted on arrival, so that resumes
    /// are told of it.
    pub fn write_unkept(&mut self, name: &str, event: &NewEvent<'_>, tick: u64) -> Written {
        let (id, created) = match self.session(name) {
            Some(id) => (Some(id), false),
            None => (self.create(name, tick).ok(), true),
        };
        if let Some((id, session)) = id.and_then(|id| Some((id, occupied(&mut self.slots, id)?))) {
            let admission = session.buffer.admit_unkept(event);
            self.on_written(id, name, created, admission, tick);
            return Written { session: Some(id), created, admission };
        }
        // Not even the session finds room: it comes and goes with this event.
        let mut buffer = SessionBuffer::new(self.tombstone(name).copied().unwrap_or_default());
        let admission = buffer.admit_unkept(event);
        let marks = buffer.close(&mut self.pool);
        self.tombstones.lay(&mut self.pool, name.into(), marks);
        Written { session: None, created: false, admission }
    }

    // ── eviction ──

    /// The least recently written session and the tick of its last admitted event.
    #[must_use]
    pub fn oldest(&self) -> Option<(u64, SessionId)> {
        self.recency.ascending().next().map(|(tick, slot)| (tick, self.id(slot)))
    }

    /// The least recently written session other than this one.
    #[must_use]
    pub fn oldest_except(&self, writer: SessionId) -> Option<(u64, SessionId)> {
        let mut ids = self.recency.ascending().map(|(tick, slot)| (tick, self.id(slot)));
        ids.find(|&(_, id)| id != writer)
    }

    /// Evicts a session whole, remembering its marks.
    pub fn evict(&mut self, id: SessionId) -> Option<Evicted> {
        let session = self.take(id)?;
        let evicted = Evicted { events: session.buffer.len(), bytes: session.buffer.held_bytes() };
        let marks = session.buffer.close(&mut self.pool);
        self.tombstones.lay(&mut self.pool, session.name, marks);
        Some(evicted)
    }

    /// Evicts the least recently written session if it still bears this tick.
    pub fn evict_oldest_if(&mut self, tick: u64) -> Option<Evicted> {
        let (oldest, id) = self.oldest()?;
        if oldest == tick { self.evict(id) } else { None }
    }

    /// Evicts a session's lowest events until `bytes` bytes of its segments and tables have come back, or all. Answers
    /// how many events that took.
    pub fn trim_lowest(&mut self, id: SessionId, bytes: usize) -> usize {
        occupied(&mut self.slots, id).map_or(0, |session| session.buffer.trim_lowest(&mut self.pool, bytes))
    }

    // ── looking ──

    /// The session of this name.
    #[must_use]
    pub fn session(&self, name: &str) -> Option<SessionId> {
        self.names.get(name).copied()
    }

    /// A session's name.
    #[must_use]
    pub fn name(&self, id: SessionId) -> Option<&Arc<str>> {
        self.find(id).map(|session| &session.name)
    }

    /// A session's buffer.
    #[must_use]
    pub fn buffer(&self, id: SessionId) -> Option<&SessionBuffer> {
        self.find(id).map(|session| &session.buffer)
    }

    /// What is remembered of a session that was evicted whole.
    #[must_use]
    pub fn tombstone(&self, name: &str) -> Option<&Marks> {
        self.tombstones.find(name)
    }

    /// What is held or remembered, in the order of names, from one on. A walk that goes on behind the last name it met
    /// meets every session that is there from its beginning to its end exactly once, whatever comes and goes meanwhile,
    /// and one that goes ahead of it as what is remembered of it.
    pub fn kept(&self, from: Bound<&str>) -> impl Iterator<Item = (&Arc<str>, Kept<'_>)> {
        let mut gone = self.tombstones.from(from).peekable();
        let mut held = self.by_name.range::<str, _>((from, Bound::Unbounded)).peekable();
        std::iter::from_fn(move || {
            if let Some((name, _)) = held.peek()
                && gone.peek().is_none_or(|(other, _)| name < other)
            {
                let (name, id) = held.next()?;
                return Some((name, Kept::Held(*id, self.buffer(*id)?)));
            }
            gone.next().map(|(name, marks)| (name, Kept::Gone(marks)))
        })
    }

    /// How many sessions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Bytes this core holds of the replay budget.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.pool.held_bytes()
    }

    /// The pool, whose budget tells how full the whole process is.
    #[must_use]
    pub fn pool(&self) -> &SegmentPool {
        &self.pool
    }

    // ── replay ──

    /// [`SessionBuffer::page`] of a session; `None` if it is gone.
    pub fn page(
        &mut self,
        id: SessionId,
        cursor: ReplayCursor,
        arrived_until: u64,
        bytes_max: usize,
        visit: &mut dyn FnMut(Stored<'_>),
    ) -> Option<PageEnd<ReplayCursor>> {
        let session = occupied(&mut self.slots, id)?;
        let scratch = &mut self.scratch;
        let end = session.buffer.page(&self.pool, cursor, arrived_until, bytes_max, scratch, visit);
        self.trim_scratch();
        Some(end)
    }

    /// [`SessionBuffer::page_by_arrival`] of a session; `None` if it is gone.
    pub fn page_by_arrival(
        &mut self,
        id: SessionId,
        cursor: CatchUpCursor,
        arrived_until: u64,
        bytes_max: usize,
        visit: &mut dyn FnMut(Stored<'_>),
    ) -> Option<PageEnd<CatchUpCursor>> {
        let session = occupied(&mut self.slots, id)?;
        let scratch = &mut self.scratch;
        let end = session.buffer.page_by_arrival(&self.pool, cursor, arrived_until, bytes_max, scratch, visit);
        self.trim_scratch();
        Some(end)
    }

    fn trim_scratch(&mut self) {
        self.scratch.clear();
        self.scratch.shrink_to(SCRATCH_KEPT_BYTES);
    }

    // ── slots ──

    /// The session of a slot in use.
    fn id(&self, slot: u32) -> SessionId {
        SessionId { slot, born: self.slots[slot as usize].as_ref().map_or(0, |session| session.born) }
    }

    fn find(&self, id: SessionId) -> Option<&Session> {
        self.slots.get(id.slot as usize)?.as_ref().filter(|session| session.born == id.born)
    }

    /// An empty session with the marks of its former self, whose tombstone stays until the write has succeeded.
    fn create(&mut self, name: &str, tick: u64) -> Result<SessionId, NoRoom> {
        self.pool.charge(bytes_of(name))?;
        let name: Arc<str> = name.into();
        let buffer = SessionBuffer::new(self.tombstone(&name).copied().unwrap_or_default());
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // Every session is charged more than a byte: 2³² of them find no room.
            (self.slots.len() - 1) as u32
        });
        self.born += 1;
        let id = SessionId { slot, born: self.born };
        self.slots[slot as usize] = Some(Session { born: id.born, name: name.clone(), buffer });
        self.by_name.insert(name.clone(), id);
        self.names.insert(name, id);
        self.recency.insert(slot, tick);
        Ok(id)
    }

    fn on_written(&mut self, id: SessionId, name: &str, created: bool, admission: Admission, tick: u64) {
        if created {
            self.tombstones.lift(&mut self.pool, name);
        }
        if matches!(admission, Admission::Placed { .. }) {
            self.recency.touch(id.slot, tick);
        }
    }

    /// Takes a session out of its slot; its buffer still holds what it held.
    fn take(&mut self, id: SessionId) -> Option<Session> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        let session = slot.take_if(|session| session.born == id.born)?;
        self.vacant.push(id.slot);
        self.by_name.remove(&session.name);
        self.recency.remove(id.slot);
        self.names.remove(&session.name);
        self.pool.release(bytes_of(&session.name));
        Some(session)
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        self.pool.check_invariants();
        self.recency.check_invariants();
        self.tombstones.check_invariants();
        let occupied = || self.slots.iter().flatten();
        assert_eq!(occupied().count() + self.vacant.len(), self.slots.len());
        assert_eq!(occupied().count(), self.names.len());
        assert_eq!(self.recency.ascending().count(), self.names.len());
        assert_eq!(self.by_name.len(), self.names.len());
        assert!(self.by_name.iter().all(|(name, id)| self.names.get(name) == Some(id)));
        let mut bytes = self.tombstones.bytes();
        for session in occupied() {
            session.buffer.check_invariants();
            assert_eq!(self.name(self.names[&session.name]), Some(&session.name));
            assert!(self.tombstone(&session.name).is_none());
            bytes += session.buffer.held_bytes() + bytes_of(&session.name);
        }
        assert!(bytes <= self.held_bytes());
    }
}

/// Beside `Directory::find`: borrows the slots alone, so that the pool stays free.
fn occupied(slots: &mut [Option<Session>], id: SessionId) -> Option<&mut Session> {
    slots.get_mut(id.slot as usize)?.as_mut().filter(|session| session.born == id.born)
}

fn bytes_of(name: &str) -> usize {
    SESSION_BYTES + name.len()
}

#[cfg(test)]
mod tests;
