//! The owner's side of a replay: pages read from its sessions by cursor (contract §3, design "Replay is a cursor").
//!
//! An owner keeps no state of a replay. The reader sends its [`Cursor`] with every request and gets it back moved on;
//! one page of a subscription is outstanding at a time. Phases of a cursor at one owner:
//!
//! - [`Phase::Positions`] / [`Phase::Everything`]: events that had arrived when the subscription was registered
//!   (`snapshot`), session by session, ascending by position.
//! - [`Phase::CatchingUp`]: events that arrived since, in rounds. A round serves what arrived in `(after, until]`, each
//!   session's in the order of arrival. The replay ends with a round behind which nothing has arrived: that page is
//!   answered through the same FIFO lane as live events, so what comes behind it is live and nothing falls between.
//!
//! Work of one page is bounded by what is looked at, not by what matches ([`SCAN_BYTES`]); all pages of a core's turn together
//! are, too ([`crate::relay::owner`]), so that fifty replays that match nothing cost a turn no more than one. Sessions that the filter rules out by name are
//! passed over: nothing of them is read, and none of their gaps is told.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use crate::relay::buffer::{CatchUpCursor, Marks, PageEnd, ReplayCursor, Stored};
use crate::relay::event::{Outline, Parser, Position};
use crate::relay::filter::Filter;
use crate::relay::mail::{SessionNote, SubRef};
use crate::relay::owner::directory::{Directory, Kept};

/// Bytes of events looked at for one page, matching or not; few in tests, so that the simulation meets its edges.
pub(in crate::relay) const SCAN_BYTES: usize = if cfg!(test) { 4 << 10 } else { 64 << 10 };
/// What an event or a session that is passed over costs, in bytes of that.
const PASS_COST: usize = 16;

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
    pub phase: Phase,
}

/// What a cursor reads at present.
#[derive(Debug)]
pub enum Phase {
    /// Sessions asked for by name.
    Positions {
        /// Those still to be read; the first is being read.
        asked: VecDeque<Asked>,
        /// Where in the first; `None`: not begun.
        at: Option<ReplayCursor>,
    },
    /// Every session held.
    Everything(Walk<ReplayCursor>),
    /// What arrived in `(after, until]`, a round.
    CatchingUp {
        /// Everything up to this arrival has been served.
        after: u64,
        /// End of this round.
        until: u64,
        /// Where in it.
        walk: Walk<CatchUpCursor>,
    },
}

/// A walk over the sessions of an owner, in the order of their names: what is behind it was served, and what is ahead was not,
/// whatever was evicted and came back meanwhile.
#[derive(Debug)]
pub struct Walk<C> {
    /// The last session met.
    name: Option<Arc<str>>,
    /// How far in it; `None`: to its end.
    at: Option<C>,
}

impl<C: Copy> Walk<C> {
    const BEGINNING: Self = Self { name: None, at: None };

    /// What is ahead, and how far it was read if it was begun.
    fn ahead<'a>(&'a self, directory: &'a Directory) -> impl Iterator<Item = (&'a Arc<str>, Kept<'a>, Option<C>)> {
        let from = match (&self.name, self.at) {
            (None, _) => Bound::Unbounded,
            (Some(done), None) => Bound::Excluded(&**done),
            (Some(begun), Some(_)) => Bound::Included(&**begun),
        };
        let at = |name| self.at.filter(|_| self.name.as_ref() == Some(name));
        directory.kept(from).map(move |(name, kept)| (name, kept, at(name)))
    }

    /// Behind all of a session.
    fn behind(name: Arc<str>) -> Self {
        Self { name: Some(name), at: None }
    }

    /// Behind a page of a session.
    fn behind_page(name: Arc<str>, end: &PageEnd<C>) -> Self {
        Self { name: Some(name), at: (!end.finished).then_some(end.next) }
    }
}

impl Phase {
    /// Every session, from the beginning.
    #[must_use]
    pub fn everything() -> Self {
        Self::Everything(Walk::BEGINNING)
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

/// The memory of a page. It travels with the request and comes back with the page, so that a replay allocates for its first
/// page only: pages are large enough for the allocator to hand every one's memory back to the system and fetch it again.
#[derive(Debug, Default)]
pub struct PageMemory {
    items: Vec<PageItem>,
    bytes: Vec<u8>,
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
    /// From where the next page is to be read; `None` if nothing is left at this owner: a live replay is live there from
    /// now on.
    pub next: Option<Cursor>,
    /// The owner's newest arrival number when the page was read.
    pub arrival: u64,
    /// Bytes that were looked at for it.
    pub scanned: usize,
    /// What it holds, in order.
    pub items: Vec<PageItem>,
    bytes: Vec<u8>,
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

/// Reads the next page for `request`. `arrival` is the owner's newest arrival number.
pub fn read(
    directory: &mut Directory,
    parser: &mut Parser,
    arrival: u64,
    bytes_max: usize,
    request: PageRequest,
) -> Page {
    let PageRequest { sub, filter, cursor, memory: PageMemory { items, bytes } } = request;
    let Cursor { snapshot, announce, live, mut phase } = cursor;
    let writer = Writer {
        parser,
        filter: &filter,
        takes_everything: filter.is_everything(),
        items,
        bytes,
        bytes_max,
        scanned: 0,
        named: None,
    };
    let mut reading = Reading { directory, writer, snapshot, announce };
    let next = loop {
        if reading.writer.is_full() {
            break Some(phase);
        }
        let behind = match phase {
            Phase::Positions { asked, at } => match reading.positions(asked, at) {
                Some((asked, at)) => {
                    phase = Phase::Positions { asked, at };
                    continue;
                }
                None => snapshot,
            },
            Phase::Everything(walk) => match reading.everything(&walk) {
                Some(walk) => {
                    phase = Phase::Everything(walk);
                    continue;
                }
                None => snapshot,
            },
            Phase::CatchingUp { after, until, walk } => match reading.catch_up(after, until, &walk) {
                Some(walk) => {
                    phase = Phase::CatchingUp { after, until, walk };
                    continue;
                }
                None => until,
            },
        };
        // A phase or a round is over.
        if !live || behind == arrival {
            break None;
        }
        phase = Phase::CatchingUp { after: behind, until: arrival, walk: Walk::BEGINNING };
    };
    let Writer { items, bytes, scanned, .. } = reading.writer;
    let next = next.map(|phase| Cursor { snapshot, announce, live, phase });
    Page { sub, next, arrival, scanned, items, bytes }
}

/// One page being read.
struct Reading<'a> {
    directory: &'a mut Directory,
    writer: Writer<'a>,
    snapshot: u64,
    announce: bool,
}

impl Reading<'_> {
    /// Reads on in the first session asked for; `None` if none is left.
    fn positions(
        &mut self,
        mut asked: VecDeque<Asked>,
        at: Option<ReplayCursor>,
    ) -> Option<(VecDeque<Asked>, Option<ReplayCursor>)> {
        let Asked { session: name, position } = asked.front()?;
        let position = *position;
        let Some(session) = self.directory.session(name) else {
            self.absent(name, position, at);
            asked.pop_front();
            return Some((asked, None));
        };
        let buffer = self.directory.buffer(session)?;
        let earliest = match &at {
            None => buffer.exhausted(position),
            Some(at) => buffer.overtaken(at),
        };
        let start = at.unwrap_or_else(|| buffer.marks().replay_after(position));
        let note = SessionNote { lowest: buffer.marks().lowest_admitted(), earliest: buffer.earliest() };
        self.writer.session(name, note);
        self.exhausted(earliest);
        if at.is_none() && note.lowest.is_none() {
            self.writer.items.push(PageItem::Unknown { asked: position });
        }
        let writer = &mut self.writer;
        let end =
            self.directory.page(session, start, self.snapshot, writer.room(), &mut |stored| writer.event(&stored));
        self.writer.pass(end.map_or(0, |end| end.passed));
        match end {
            Some(end) if !end.finished => Some((asked, Some(end.next))),
            _ => {
                asked.pop_front();
                Some((asked, None))
            }
        }
    }

    /// A session asked for is not held: it may be remembered, or nobody knows it.
    fn absent(&mut self, name: &str, position: Position, at: Option<ReplayCursor>) {
        let marks = self.directory.tombstone(name);
        let earliest = match (marks, &at) {
            (Some(marks), None) => marks.exhausted(position),
            (Some(marks), Some(at)) if marks.is_overtaken(at) => marks.earliest_to_come(),
            _ => None,
        };
        let unknown = marks.and_then(Marks::lowest_admitted).is_none() && at.is_none();
        if unknown || earliest.is_some() {
            self.writer.session(name, SessionNote::default());
        }
        self.exhausted(earliest);
        if unknown {
            self.writer.items.push(PageItem::Unknown { asked: position });
        }
    }

    fn exhausted(&mut self, earliest: Option<Position>) {
        if let (true, Some(earliest)) = (self.announce, earliest) {
            self.writer.items.push(PageItem::Exhausted { earliest });
        }
    }

    /// Reads on in the walk over all sessions; `None` if none is left.
    fn everything(&mut self, walk: &Walk<ReplayCursor>) -> Option<Walk<ReplayCursor>> {
        let (name, session, at) = walk.ahead(self.directory).find_map(|(name, kept, at)| match kept {
            Kept::Held(session, _) => Some((Arc::clone(name), session, at)),
            Kept::Gone(_) => None,
        })?;
        if !self.writer.filter.admits_session(&name) {
            self.writer.pass(0);
            return Some(Walk::behind(name));
        }
        let buffer = self.directory.buffer(session)?;
        let start = at.unwrap_or_else(|| buffer.marks().replay_all());
        let note = SessionNote { lowest: buffer.marks().lowest_admitted(), earliest: buffer.earliest() };
        self.writer.session(&name, note);
        let writer = &mut self.writer;
        let end =
            self.directory.page(session, start, self.snapshot, writer.room(), &mut |stored| writer.event(&stored));
        self.writer.pass(end.map_or(0, |end| end.passed));
        Some(Walk::behind_page(name, &end?))
    }

    /// Reads on in a round of catching up; `None` at its end.
    fn catch_up(&mut self, after: u64, until: u64, walk: &Walk<CatchUpCursor>) -> Option<Walk<CatchUpCursor>> {
        let filter = self.writer.filter;
        let ahead = walk.ahead(self.directory).filter(|(name, ..)| filter.admits_session(name));
        let (name, at, session, note, earliest) = ahead
            .map(|(name, kept, at)| (name, kept, at.unwrap_or_else(|| CatchUpCursor::after(after))))
            .find_map(|(name, kept, at)| match kept {
                Kept::Held(_, buffer) if buffer.last_arrival() <= at.arrival() => None,
                Kept::Held(session, buffer) => {
                    let note = SessionNote { lowest: buffer.marks().lowest_admitted(), earliest: buffer.earliest() };
                    Some((Arc::clone(name), at, Some(session), note, buffer.catch_up_overtaken(&at)))
                }
                Kept::Gone(marks) => {
                    let earliest = marks.catch_up_overtaken(&at)?;
                    Some((Arc::clone(name), at, None, SessionNote::default(), Some(earliest)))
                }
            })?;
        self.writer.session(&name, note);
        self.exhausted(earliest);
        let Some(session) = session else { return Some(Walk::behind(name)) };
        let writer = &mut self.writer;
        let end =
            self.directory.page_by_arrival(session, at, until, writer.room(), &mut |stored| writer.event(&stored));
        Some(Walk::behind_page(name, &end?))
    }
}

/// Fills a page.
struct Writer<'a> {
    parser: &'a mut Parser,
    filter: &'a Filter,
    /// Whether no event need be parsed to know that the filter takes it.
    takes_everything: bool,
    items: Vec<PageItem>,
    bytes: Vec<u8>,
    bytes_max: usize,
    scanned: usize,
    /// Name of the session the last item belongs to.
    named: Option<(u32, u32)>,
}

impl Writer<'_> {
    fn is_full(&self) -> bool {
        self.bytes.len() >= self.bytes_max || self.scanned >= SCAN_BYTES
    }

    /// Bytes it still takes: of what matches and of what is looked at.
    fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes.len()).min(SCAN_BYTES.saturating_sub(self.scanned))
    }

    /// Counts a session, and events of it that were passed over.
    fn pass(&mut self, events: usize) {
        self.scanned += PASS_COST * (1 + events);
    }

    fn append(&mut self, bytes: &[u8]) -> (u32, u32) {
        let span = (offset(self.bytes.len()), offset(bytes.len()));
        self.bytes.extend_from_slice(bytes);
        span
    }

    /// Begins a session's items. A session that already stands is not named again.
    fn session(&mut self, name: &str, note: SessionNote) {
        if let Some((start, len)) = self.named
            && self.bytes.get(start as usize..(start + len) as usize) == Some(name.as_bytes())
        {
            return;
        }
        let span = self.append(name.as_bytes());
        self.named = Some(span);
        self.items.push(PageItem::Session { name: span, note });
    }

    fn event(&mut self, stored: &Stored<'_>) {
        self.scanned += stored.raw.len();
        let wanted =
            self.takes_everything || self.parser.parse(stored.raw).is_ok_and(|event| self.filter.matches(&event));
        if wanted {
            let raw = self.append(stored.raw);
            let Stored { position, placement, arrival, outline, .. } = *stored;
            self.items.push(PageItem::Event { raw, arrival, position, placement, outline });
        }
    }
}

/// A page holds at most a few pages' worth of bytes and one event of the largest size, far below 4 GiB.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
