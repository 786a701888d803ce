//! The owner's side of a replay: pages read from its sessions by cursor (contract §3, design "Replay is a cursor").
//!
//! An owner keeps no state of a replay. The reader sends its [`Cursor`] with every request and gets it back moved on;
//! one page of a subscription is outstanding at a time. Phases of a cursor at one owner:
//!
//! - [`Phase::Positions`] / [`Phase::Everything`]: events that had arrived when the subscription was registered
//!   (`snapshot`), session by session, ascending by position.
//! - [`Phase::CatchingUp`]: events that arrived since, in rounds. A round serves what arrived in `(after, until]`, each
//!   session's in the order of arrival. A round that finds nothing new ends the replay: [`PageEnd::CaughtUp`] is
//!   answered through the same FIFO lane as live events, so what comes behind it is live and nothing falls between.
//!
//! Work of one page is bounded by what is scanned, not by what matches.

use std::collections::VecDeque;
use std::sync::Arc;

use super::buffer::{Marks, ReplayCursor, Stored};
use super::directory::{Directory, SessionCursor};
use super::event::{Parser, Position};
use super::filter::Filter;
use super::ownership::{SessionNote, SubRef};

/// Bytes of events after which a page is full.
const PAGE_BYTES: usize = 256 << 10;
/// Bytes of events looked at for one page, matching or not.
const SCAN_BYTES: usize = 1 << 20;

/// Where a subscription asked to resume in one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The session.
    pub session: Box<str>,
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
    Everything {
        /// The session being read.
        session: SessionCursor,
        /// Where in it.
        at: ReplayCursor,
    },
    /// What arrived since.
    CatchingUp {
        /// Everything up to this arrival has been served.
        after: u64,
        /// End of this round.
        until: u64,
        /// The session being read.
        session: SessionCursor,
        /// How far in it.
        within: u64,
    },
}

impl Phase {
    /// Every session, from the beginning.
    #[must_use]
    pub fn everything() -> Self {
        Self::Everything { session: SessionCursor::default(), at: ReplayCursor::Beginning }
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
}

/// Where a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageEnd {
    /// There is more; ask again when the socket has drained.
    More,
    /// Nothing is left at this owner. A live replay is live there from now on.
    CaughtUp,
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
    /// The session asked for is neither held nor remembered: to be judged when its first event comes.
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
    },
}

/// A page on its way to the reader.
#[derive(Debug)]
pub struct Page {
    /// For whom.
    pub sub: SubRef,
    /// Moved on.
    pub cursor: Cursor,
    /// Where it ended.
    pub end: PageEnd,
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

    /// Bytes the page keeps alive.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.items.len() * size_of::<PageItem>()
    }
}

/// Reads the next page for `request`. `arrival` is the owner's newest arrival number.
pub fn read(directory: &mut Directory, parser: &mut Parser, arrival: u64, request: PageRequest) -> Page {
    let PageRequest { sub, filter, cursor } = request;
    let Cursor { snapshot, announce, live, phase } = cursor;
    let mut writer = Writer { parser, filter: &filter, items: Vec::new(), bytes: Vec::new(), scanned: 0, named: None };
    let mut phase = Some(phase);
    let mut end = PageEnd::More;
    while let Some(at) = phase.take() {
        let next = match at {
            Phase::Positions { asked, at } => positions(directory, &mut writer, snapshot, announce, asked, at),
            Phase::Everything { session, at } => everything(directory, &mut writer, snapshot, session, at),
            Phase::CatchingUp { after, until, session, within } => {
                catch_up(directory, &mut writer, announce, arrival, (after, until), session, within)
            }
        };
        match next {
            Step::Full(at) => {
                phase = Some(at);
                break;
            }
            Step::Next(at) => phase = Some(at),
            Step::ReplayEnded if live => {
                phase = Some(Phase::CatchingUp {
                    after: snapshot,
                    until: arrival,
                    session: SessionCursor::default(),
                    within: snapshot,
                });
            }
            Step::ReplayEnded | Step::CaughtUp => end = PageEnd::CaughtUp,
        }
    }
    let Writer { items, bytes, .. } = writer;
    let phase = phase.unwrap_or(Phase::Positions { asked: VecDeque::new(), at: None });
    Page { sub, cursor: Cursor { snapshot, announce, live, phase }, end, items, bytes }
}

/// What reading a part of a phase came to.
enum Step {
    /// The page is full; go on here.
    Full(Phase),
    /// Go on here at once.
    Next(Phase),
    /// The first phase is done.
    ReplayEnded,
    /// Nothing new arrived.
    CaughtUp,
}

fn positions(
    directory: &mut Directory,
    writer: &mut Writer<'_>,
    snapshot: u64,
    announce: bool,
    mut asked: VecDeque<Asked>,
    at: Option<ReplayCursor>,
) -> Step {
    let Some(current) = asked.front() else { return Step::ReplayEnded };
    if writer.is_full() {
        return Step::Full(Phase::Positions { asked, at });
    }
    let Some(buffer) = directory.session(&current.session) else {
        let marks = directory.tombstone(&current.session);
        let earliest = marks.and_then(|marks| match at {
            None => marks.exhausted(current.position),
            Some(at) => marks.overtaken(at),
        });
        if announce && let Some(earliest) = earliest {
            writer.session(&current.session, SessionNote::default());
            writer.items.push(PageItem::Exhausted { earliest });
        }
        if marks.is_none() && at.is_none() {
            writer.session(&current.session, SessionNote::default());
            writer.items.push(PageItem::Unknown { asked: current.position });
        }
        asked.pop_front();
        return Step::Next(Phase::Positions { asked, at: None });
    };
    let earliest = match at {
        None => buffer.exhausted(current.position),
        Some(at) => buffer.overtaken(at),
    };
    writer.session(&current.session, note(buffer.marks(), buffer.earliest()));
    if announce && let Some(earliest) = earliest {
        writer.items.push(PageItem::Exhausted { earliest });
    }
    let start = at.unwrap_or(ReplayCursor::AfterPosition(current.position));
    let end = buffer.page(start, snapshot, PAGE_BYTES, &mut |stored| writer.event(&stored));
    if end.finished {
        asked.pop_front();
        Step::Next(Phase::Positions { asked, at: None })
    } else {
        Step::Next(Phase::Positions { asked, at: Some(end.next) })
    }
}

fn everything(
    directory: &mut Directory,
    writer: &mut Writer<'_>,
    snapshot: u64,
    session: SessionCursor,
    at: ReplayCursor,
) -> Step {
    if writer.is_full() {
        return Step::Full(Phase::Everything { session, at });
    }
    let Some((here, name, buffer)) = directory.session_from(session) else { return Step::ReplayEnded };
    // The session read last may have been evicted: then this is another one, read from its beginning.
    let at = if here == session { at } else { ReplayCursor::Beginning };
    writer.session(name, note(buffer.marks(), buffer.earliest()));
    let end = buffer.page(at, snapshot, PAGE_BYTES, &mut |stored| writer.event(&stored));
    if end.finished {
        Step::Next(Phase::Everything { session: here.next(), at: ReplayCursor::Beginning })
    } else {
        Step::Next(Phase::Everything { session: here, at: end.next })
    }
}

fn catch_up(
    directory: &mut Directory,
    writer: &mut Writer<'_>,
    announce: bool,
    arrival: u64,
    (after, until): (u64, u64),
    session: SessionCursor,
    within: u64,
) -> Step {
    let mut session = session;
    let mut within = within;
    while let Some((here, name, buffer)) = directory.session_from(session) {
        if writer.is_full() {
            return Step::Full(Phase::CatchingUp { after, until, session: here, within });
        }
        let from = if here == session { within.max(after) } else { after };
        (session, within) = (here.next(), after);
        if buffer.last_arrival() <= from {
            continue;
        }
        writer.session(name, note(buffer.marks(), buffer.earliest()));
        if announce
            && buffer.marks().evicted_arrival > from
            && let Some(earliest) = buffer.earliest()
        {
            writer.items.push(PageItem::Exhausted { earliest });
        }
        let mut served = from;
        let end = buffer.page_by_arrival(from, until, PAGE_BYTES, &mut |stored| {
            served = stored.arrival;
            writer.event(&stored);
        });
        if !end.finished {
            (session, within) = (here, served);
        }
    }
    if announce {
        for (name, marks) in directory.tombstones_since(after) {
            if let Some(earliest) = marks.after_all() {
                writer.session(name, SessionNote::default());
                writer.items.push(PageItem::Exhausted { earliest });
            }
        }
    }
    if arrival == until {
        return Step::CaughtUp;
    }
    Step::Next(Phase::CatchingUp { after: until, until: arrival, session: SessionCursor::default(), within: until })
}

fn note(marks: &Marks, earliest: Option<Position>) -> SessionNote {
    SessionNote { lowest: marks.lowest_admitted, earliest }
}

/// Fills a page.
struct Writer<'a> {
    parser: &'a mut Parser,
    filter: &'a Filter,
    items: Vec<PageItem>,
    bytes: Vec<u8>,
    scanned: usize,
    /// Name of the session the last item belongs to.
    named: Option<(u32, u32)>,
}

impl Writer<'_> {
    fn is_full(&self) -> bool {
        self.bytes.len() >= PAGE_BYTES || self.scanned >= SCAN_BYTES
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
            self.filter.is_everything() || self.parser.parse(stored.raw).is_ok_and(|event| self.filter.matches(&event));
        if wanted {
            let raw = self.append(stored.raw);
            self.items.push(PageItem::Event { raw, arrival: stored.arrival, position: stored.position });
        }
    }
}

/// A page holds at most a few pages' worth of bytes and one event of the largest size, far below 4 GiB.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
