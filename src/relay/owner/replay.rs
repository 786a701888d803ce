//! The owner's side of a replay: pages read from its sessions by cursor (contract §3, design "Replay is a cursor").
//!
//! An owner keeps no state of a replay. The reader sends its [`Cursor`] with every request and gets it back moved on;
//! one page of a subscription is outstanding at a time. Phases of a cursor at one owner:
//!
//! - [`ReplayPhase::Positions`] / [`ReplayPhase::Everything`]: events that had arrived when the subscription was
//!   registered (`snapshot`), session by session, ascending by position.
//! - [`ReplayPhase::CatchingUp`]: events that arrived since, in rounds. A round serves what arrived in `(after,
//!   until]`, each session's in the order of arrival. The replay ends with a round behind which nothing has arrived:
//!   that page is answered through the same FIFO lane as live events, so what comes behind it is live and nothing falls
//!   between.
//!
//! Work of one page is bounded by what is looked at, not by what matches ([`SCAN_BYTES`]); all pages of a core's turn
//! together are, too ([`crate::relay::owner`]), so that fifty replays that match nothing cost a turn no more than one.
//! Sessions that the filter rules out by name are passed over: nothing of them is read, and none of their gaps is told.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use crate::relay::buffer::{CatchUpCursor, Marks, ReplayCursor, Stored};
use crate::relay::event::{Parser, Position};
use crate::relay::filter::Filter;
use crate::relay::mail::page::{
    Asked, Cursor, Page, PageItem, PageMemory, PageRequest, ReplayPhase, SessionNote, SessionWalk,
};
use crate::relay::owner::directory::{Directory, Kept};

/// Bytes of events looked at for one page, matching or not; few in tests, so that the simulation meets its edges.
pub(in crate::relay) const SCAN_BYTES: usize = if cfg!(test) { 4 << 10 } else { 64 << 10 };
/// What an event or a session that is passed over costs, in bytes of that.
const PASS_COST: usize = 16;

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
        phase = match reading.read_on(phase) {
            ReadOn::Ahead(phase) => phase,
            ReadOn::Through(behind) if live && behind < arrival => {
                ReplayPhase::CatchingUp { after: behind, until: arrival, walk: SessionWalk::BEGINNING }
            }
            ReadOn::Through(_) => break None,
        };
    };
    let Writer { items, bytes, scanned, .. } = reading.writer;
    let next = next.map(|phase| Cursor { snapshot, announce, live, phase });
    Page { sub, next, arrival, scanned, items, bytes }
}

/// What is ahead of a walk: each session with how far it was read, if it was begun.
fn ahead<'a, C: Copy>(
    walk: &'a SessionWalk<C>,
    directory: &'a Directory,
) -> impl Iterator<Item = (&'a Arc<str>, Kept<'a>, Option<C>)> {
    let from = match (&walk.name, walk.at) {
        (None, _) => Bound::Unbounded,
        (Some(done), None) => Bound::Excluded(&**done),
        (Some(begun), Some(_)) => Bound::Included(&**begun),
    };
    let at = |name| walk.at.filter(|_| walk.name.as_ref() == Some(name));
    directory.kept(from).map(move |(name, kept)| (name, kept, at(name)))
}

/// How far a phase or a round has come.
enum ReadOn {
    /// There is more of it.
    Ahead(ReplayPhase),
    /// It is over; everything that had arrived up to that number is read.
    Through(u64),
}

/// One page being read.
struct Reading<'a> {
    directory: &'a mut Directory,
    writer: Writer<'a>,
    snapshot: u64,
    announce: bool,
}

impl Reading<'_> {
    /// Reads on in one session.
    fn read_on(&mut self, phase: ReplayPhase) -> ReadOn {
        let (ahead, behind) = match phase {
            ReplayPhase::Positions { asked, at } => {
                let ahead = self.positions(asked, at).map(|(asked, at)| ReplayPhase::Positions { asked, at });
                (ahead, self.snapshot)
            }
            ReplayPhase::Everything(walk) => (self.everything(&walk).map(ReplayPhase::Everything), self.snapshot),
            ReplayPhase::CatchingUp { after, until, walk } => {
                let walk = self.catch_up(after, until, &walk);
                (walk.map(|walk| ReplayPhase::CatchingUp { after, until, walk }), until)
            }
        };
        ahead.map_or(ReadOn::Through(behind), ReadOn::Ahead)
    }

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
        let start = at.unwrap_or_else(|| ReplayCursor::after(buffer.marks(), position));
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
            (Some(marks), Some(at)) if at.is_overtaken(marks) => marks.earliest_to_come(),
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
    fn everything(&mut self, walk: &SessionWalk<ReplayCursor>) -> Option<SessionWalk<ReplayCursor>> {
        let (name, session, at) = ahead(walk, self.directory).find_map(|(name, kept, at)| match kept {
            Kept::Held(session, _) => Some((Arc::clone(name), session, at)),
            Kept::Gone(_) => None,
        })?;
        if !self.writer.filter.admits_session(&name) {
            self.writer.pass(0);
            return Some(SessionWalk::behind(name));
        }
        let buffer = self.directory.buffer(session)?;
        let start = at.unwrap_or_else(|| ReplayCursor::everything(buffer.marks()));
        let note = SessionNote { lowest: buffer.marks().lowest_admitted(), earliest: buffer.earliest() };
        self.writer.session(&name, note);
        let writer = &mut self.writer;
        let end =
            self.directory.page(session, start, self.snapshot, writer.room(), &mut |stored| writer.event(&stored));
        self.writer.pass(end.map_or(0, |end| end.passed));
        Some(SessionWalk::behind_page(name, &end?))
    }

    /// Reads on in a round of catching up; `None` at its end.
    fn catch_up(
        &mut self,
        after: u64,
        until: u64,
        walk: &SessionWalk<CatchUpCursor>,
    ) -> Option<SessionWalk<CatchUpCursor>> {
        let filter = self.writer.filter;
        let ahead = ahead(walk, self.directory).filter(|(name, ..)| filter.admits_session(name));
        let (name, at, session, note, earliest) = ahead
            .map(|(name, kept, at)| (name, kept, at.unwrap_or_else(|| CatchUpCursor::after(after))))
            .find_map(|(name, kept, at)| match kept {
                Kept::Held(_, buffer) if buffer.last_arrival() <= at.arrival() => None,
                Kept::Held(session, buffer) => {
                    let note = SessionNote { lowest: buffer.marks().lowest_admitted(), earliest: buffer.earliest() };
                    Some((Arc::clone(name), at, Some(session), note, buffer.catch_up_overtaken(&at)))
                }
                Kept::Gone(marks) => {
                    let earliest = at.overtaken(marks)?;
                    Some((Arc::clone(name), at, None, SessionNote::default(), Some(earliest)))
                }
            })?;
        self.writer.session(&name, note);
        self.exhausted(earliest);
        let Some(session) = session else { return Some(SessionWalk::behind(name)) };
        let writer = &mut self.writer;
        let end =
            self.directory.page_by_arrival(session, at, until, writer.room(), &mut |stored| writer.event(&stored));
        Some(SessionWalk::behind_page(name, &end?))
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
