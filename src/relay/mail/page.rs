//! What travels of a replay: how far it has come at an owner, what is asked of it next, and the page that comes back.
//! What a cursor's phases mean, and how they follow each other, stands in `owner/replay.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::relay::buffer::{CatchUpCursor, PageEnd, ReplayCursor};
use crate::relay::event::{Outline, Position};
use crate::relay::filter::Filter;
use crate::relay::mail::SubRef;

/// Where a subscription asked to resume in one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The session; its name is shared by everything that keeps the position.
    pub session: Arc<str>,
    /// Everything strictly after this is wanted.
    pub position: Position,
}

/// How far a replay has come at one owner.
#[derive(Debug)]
pub struct Cursor {
    /// Arrival number up to which the first phase reads.
    pub snapshot: u64,
    /// Whether gaps are announced (§3: not for `from=all`, nor for `live=0` without positions).
    pub announce: bool,
    /// Whether the replay goes on into live delivery.
    pub live: bool,
    /// What is being read.
    pub phase: ReplayPhase,
}

/// What a cursor reads at present.
#[derive(Debug)]
pub enum ReplayPhase {
    /// Sessions asked for by name.
    Positions {
        /// Those still to be read; the first is being read.
        asked: VecDeque<Asked>,
        /// Where in the first; `None`: not begun.
        at: Option<ReplayCursor>,
    },
    /// Every session held.
    Everything(SessionWalk<ReplayCursor>),
    /// What arrived in `(after, until]`, a round.
    CatchingUp {
        /// Everything up to this arrival has been served.
        after: u64,
        /// End of this round.
        until: u64,
        /// Where in it.
        walk: SessionWalk<CatchUpCursor>,
    },
}

/// A walk over the sessions of an owner, in the order of their names: what is behind it was served, and what is ahead
/// was not, whatever was evicted and came back meanwhile.
#[derive(Debug)]
pub struct SessionWalk<C> {
    /// The last session met.
    pub name: Option<Arc<str>>,
    /// How far in it; `None`: to its end.
    pub at: Option<C>,
}

impl<C: Copy> SessionWalk<C> {
    /// Before the first session.
    pub const BEGINNING: Self = Self { name: None, at: None };

    /// Behind all of a session.
    #[must_use]
    pub fn behind(name: Arc<str>) -> Self {
        Self { name: Some(name), at: None }
    }

    /// Behind a page of a session.
    #[must_use]
    pub fn behind_page(name: Arc<str>, end: &PageEnd<C>) -> Self {
        Self { name: Some(name), at: (!end.finished).then_some(end.next) }
    }
}

impl ReplayPhase {
    /// Every session, from the beginning.
    #[must_use]
    pub fn everything() -> Self {
        Self::Everything(SessionWalk::BEGINNING)
    }
}

/// A request for the next page.
#[derive(Debug)]
pub struct PageRequest {
    /// For whom.
    pub sub: SubRef,
    /// What it wants to see.
    pub filter: Arc<Filter>,
    /// From where.
    pub cursor: Cursor,
    /// What the page is written into.
    pub memory: PageMemory,
}

/// The memory of a page. It travels with the request and comes back with the page, so that a replay allocates for its
/// first page only: pages are large enough for the allocator to hand every one's memory back to the system and fetch it
/// again.
#[derive(Debug, Default)]
pub struct PageMemory {
    /// Where items go.
    pub items: Vec<PageItem>,
    /// Where their bytes go.
    pub bytes: Vec<u8>,
}

/// One item of a page.
#[derive(Debug, Clone, Copy)]
pub enum PageItem {
    /// The following items belong to this session.
    Session {
        /// Its name in the page's bytes.
        name: (u32, u32),
        /// What positions in it are judged by.
        note: SessionNote,
    },
    /// Something between the cursor and what follows is gone; `earliest` is where it goes on.
    Exhausted {
        /// The position to announce.
        earliest: Position,
    },
    /// The session asked for is neither held nor remembered, or has never had a position: to be judged when its first
    /// event with one comes.
    Unknown {
        /// The asked position.
        asked: Position,
    },
    /// An event.
    Event {
        /// Its bytes in the page.
        raw: (u32, u32),
        /// When it arrived at the owner (or was forwarded again).
        arrival: u64,
        /// Its position.
        position: Option<Position>,
        /// Its position, or the one it was placed right behind.
        placement: Option<Position>,
        /// How to frame it without reading it.
        outline: Outline,
    },
}

/// A page on its way to the reader.
#[derive(Debug)]
pub struct Page {
    /// For whom.
    pub sub: SubRef,
    /// From where the next page is to be read; `None` if nothing is left at this owner: a live replay is live there
    /// from now on.
    pub next: Option<Cursor>,
    /// The owner's newest arrival number when the page was read.
    pub arrival: u64,
    /// Bytes that were looked at for it.
    pub scanned: usize,
    /// What it holds, in order.
    pub items: Vec<PageItem>,
    /// The bytes that items refer to.
    pub bytes: Vec<u8>,
}

impl Page {
    /// The bytes of an item.
    #[must_use]
    pub fn slice(&self, (start, len): (u32, u32)) -> &[u8] {
        self.bytes.get(start as usize..start as usize + len as usize).unwrap_or_default()
    }

    /// What the page was written into, for the next one; what one huge event made of it is given back.
    #[must_use]
    pub fn into_memory(self, bytes_max: usize) -> PageMemory {
        let Self { mut items, mut bytes, .. } = self;
        items.clear();
        bytes.clear();
        bytes.shrink_to(2 * bytes_max);
        PageMemory { items, bytes }
    }

    /// Bytes the page keeps alive.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.items.len() * size_of::<PageItem>()
    }
}

/// What a consumer's asked position is judged by (§3).
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionNote {
    /// Lowest position ever admitted.
    pub lowest: Option<Position>,
    /// What an announcement would name.
    pub earliest: Option<Position>,
}
