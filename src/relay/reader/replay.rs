//! The reader's side of a replay: one page at a time, asked for when the socket has drained, owner by owner
//! (contract §3, §9; the owner's side is `owner/replay.rs`).
//!
//! Replays of one connection run one after the other. An event that another subscription of the connection has
//! delivered, or will deliver by itself, is skipped (`coverage.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::service::{ConnId, CoreId, Outbox};
use crate::protocol::binding::Binding;
use crate::protocol::paging::PageStep;

use crate::relay::event::{Event, Parser, Position, Scope};
use crate::relay::frames::append_frame;
use crate::relay::frames::message;
use crate::relay::mail::page::SessionNote;
use crate::relay::mail::page::{Cursor, Page, PageItem, PageRequest};
use crate::relay::mail::{OwnerInput, SubRef};
use crate::relay::reader::Reader;
use crate::relay::reader::coverage::StoredAt;

/// A page's frames are queued in runs of about this size, which share delivery blocks; a longer run would need one of
/// its own.
const RUN_BYTES: usize = 32 << 10;
/// Memories of pages kept for the next requests.
const PAGE_MEMORY_KEPT: usize = 4;

impl Reader {
    /// Goes on with a subscription's replay, if it is its turn: asks for the next page, or ends it.
    pub(in crate::relay) fn read_on(&mut self, out: &mut dyn Outbox, sub: SubRef) {
        let Some(subscription) = self.subscriptions.get(sub) else { return };
        if !subscription.is_answered() || !self.is_its_turn(subscription.conn, sub) {
            return;
        }
        let (conn, class) = (subscription.conn, subscription.class);
        let Some(filter) = self.classes.class(class).map(|class| class.key.filter.clone()) else { return };
        let Some(subscription) = self.subscriptions.get_mut(sub) else { return };
        let Some(replay) = &mut subscription.replay else { return };
        match replay.paging.go_on() {
            PageStep::Ask(owner, cursor) => {
                let memory = self.page_memory.pop().unwrap_or_default();
                self.request(owner, OwnerInput::ReadPage(Box::new(PageRequest { sub, filter, cursor, memory })));
            }
            PageStep::Wait => {}
            PageStep::Over => self.end_replay(out, conn, sub),
        }
    }

    /// Whether no subscription made earlier on this connection is still replaying.
    fn is_its_turn(&self, conn: ConnId, sub: SubRef) -> bool {
        self.peers.get(conn).is_some_and(|peer| {
            peer.subs
                .iter()
                .take_while(|earlier| **earlier != sub)
                .all(|earlier| self.subscriptions.get(*earlier).is_none_or(|earlier| earlier.replay.is_none()))
        })
    }

    /// Lets the connection's next waiting replay begin.
    pub(in crate::relay) fn next_replay(&mut self, out: &mut dyn Outbox, conn: ConnId) {
        let next = self.peers.get(conn).and_then(|peer| {
            peer.subs.iter().copied().find(|sub| self.subscriptions.get(*sub).is_some_and(|s| s.replay.is_some()))
        });
        match next {
            Some(sub) => self.read_on(out, sub),
            None => {
                if let Some(peer) = self.peers.get_mut(conn) {
                    peer.commands = None;
                }
            }
        }
    }

    fn end_replay(&mut self, out: &mut dyn Outbox, conn: ConnId, sub: SubRef) {
        let Some(subscription) = self.subscriptions.get_mut(sub) else { return };
        let Some(replay) = subscription.replay.take() else { return };
        if !replay.live {
            if let Some(peer) = self.peers.get_mut(conn) {
                peer.ended = true;
            }
            out.end_event_stream(conn, b": replay-complete\n\n");
            return;
        }
        self.place(out, sub);
        self.next_replay(out, conn);
    }

    /// A page has come: frame it for its subscription and go on when the socket has taken it.
    pub fn on_page(&mut self, out: &mut dyn Outbox, parser: &mut Parser, owner: CoreId, mut page: Page) {
        let next = page.next.take();
        self.take_page(out, parser, owner, &page, next);
        if self.page_memory.len() < PAGE_MEMORY_KEPT {
            self.page_memory.push(page.into_memory(self.shared.limits.page_bytes()));
        }
    }

    fn take_page(
        &mut self,
        out: &mut dyn Outbox,
        parser: &mut Parser,
        owner: CoreId,
        page: &Page,
        next: Option<Cursor>,
    ) {
        self.note_arrival(owner, page.arrival);
        self.remember_unknown(page);
        let sub = page.sub;
        let Some(conn) = self.subscriptions.get(sub).map(|subscription| subscription.conn) else { return };
        self.deliver_page(out, parser, owner, conn, page);
        let Some(subscription) = self.subscriptions.get_mut(sub) else { return };
        let Some(replay) = &mut subscription.replay else { return };
        if replay.paging.on_page(next) {
            out.notify_drained(conn);
            return;
        }
        if replay.live {
            subscription.go_live(owner);
        }
        self.read_on(out, sub);
    }

    /// Keeps what is to be judged later. The owner has counted it already; what nobody will judge is taken back, so
    /// that the count comes down to 0 whatever becomes of the page.
    fn remember_unknown(&mut self, page: &Page) {
        let mut session: &str = "";
        let mut forgotten = 0;
        for item in &page.items {
            match *item {
                PageItem::Session { name, .. } => session = text(page, name),
                PageItem::Unknown { asked } => {
                    let is_new = self.subscriptions.get_mut(page.sub).is_some_and(|sub| {
                        let shared = sub.covered.as_ref().and_then(|covered| covered.past.name(session));
                        let name = shared.map_or_else(|| Arc::from(session), Arc::clone);
                        sub.judged.get_or_insert_default().insert(name, asked).is_none()
                    });
                    forgotten += usize::from(!is_new);
                }
                PageItem::Exhausted { .. } | PageItem::Event { .. } => {}
            }
        }
        self.shared.judgements.fetch_sub(forgotten, Ordering::Relaxed);
    }

    fn deliver_page(&mut self, out: &mut dyn Outbox, parser: &mut Parser, owner: CoreId, conn: ConnId, page: &Page) {
        let Some((binding, alone)) = self.peers.get(conn).map(|peer| (peer.binding, peer.subs.len() == 1)) else {
            return;
        };
        let Some(ceiling) = self
            .subscriptions
            .get(page.sub)
            .and_then(|subscription| self.classes.class(subscription.class))
            .map(|class| class.key.ceiling)
        else {
            return;
        };
        if self.peers.get(conn).is_some_and(|peer| peer.dropped > 0) {
            // Live events of others were shed since the page was asked for.
            self.announce_dropped_always(out, conn);
        }
        let mut frames = std::mem::take(&mut self.page_frames);
        let mut coverage = (!alone).then(|| self.coverage(conn, page.sub, owner));
        // No event needs a look at what this connection has had already.
        let plain = alone && self.peers.get(conn).is_none_or(|peer| peer.commands.is_none());
        let mut session: &str = "";
        // Its shared name, where a book is kept.
        let mut booked = None;
        let mut noted = SessionNote::default();
        for item in &page.items {
            if !matches!(item, PageItem::Event { .. }) {
                // What is announced next stands behind the events before it.
                self.push_page(out, conn, &mut frames);
            }
            match *item {
                PageItem::Session { name, note } => {
                    session = text(page, name);
                    noted = note;
                    booked = if binding == Binding::WebSocket { self.booked_name(session) } else { None };
                    if let Some(others) = &mut coverage {
                        others.next_session();
                    }
                }
                PageItem::Exhausted { earliest } => self.announce_once(out, page.sub, session, earliest),
                PageItem::Unknown { .. } => {}
                PageItem::Event { raw, arrival, position, placement, outline } => {
                    let raw = page.slice(raw);
                    if self.subscriptions.get(page.sub).is_some_and(|sub| sub.judged.is_some()) {
                        self.push_page(out, conn, &mut frames);
                        self.judge(out, page.sub, Some(session), position, noted);
                    }
                    let begun = frames.len();
                    match outline.kind(raw).filter(|_| plain && outline.capture <= ceiling) {
                        Some(kind) => append_frame(&mut frames, binding, position.map(|at| (session, at)), kind, raw),
                        None => {
                            let Ok(event) = parser.parse(raw) else { continue };
                            let at = StoredAt { arrival, placement };
                            if coverage.as_mut().is_some_and(|others| self.is_covered(others, &event, at))
                                || self.was_handed(conn, page.sub, owner, &event, arrival)
                            {
                                continue;
                            }
                            self.frames.next_event(None);
                            self.frames.append(&mut frames, &event, binding, ceiling);
                        }
                    }
                    let len = message::length(frames.get(begun..).unwrap_or_default());
                    self.own_mark(conn, len);
                    if let (Some(name), Some(position)) = (&booked, position) {
                        self.note_positions(conn, std::iter::once(page.sub), len, name, position);
                    }
                    self.metrics.deliveries.increment();
                    if frames.len() >= RUN_BYTES {
                        self.push_page(out, conn, &mut frames);
                    }
                }
            }
        }
        self.push_page(out, conn, &mut frames);
        self.page_frames = frames;
    }

    /// Pushes a page's frames so far; their positions and their mark have been noted.
    fn push_page(&mut self, out: &mut dyn Outbox, conn: ConnId, frames: &mut Vec<u8>) {
        if !frames.is_empty() && self.peers.get(conn).is_some_and(|peer| !peer.ended) {
            let mark = self.own_mark(conn, 0);
            // One page fits whatever else is queued: it was asked for when nothing was.
            out.push_always(conn, frames, mark);
            self.settle_positions(out, conn);
        }
        frames.clear();
        // One huge event must not pin memory for ever.
        frames.shrink_to(2 * RUN_BYTES);
    }

    /// Announces a gap, unless the same was announced already. `earliest` only rises, and with every further loss.
    fn announce_once(&mut self, out: &mut dyn Outbox, sub: SubRef, session: &str, earliest: Position) {
        let replay = self.subscriptions.get_mut(sub).and_then(|subscription| subscription.replay.as_mut());
        let known = replay.and_then(|replay| replay.announced.insert(session.into(), earliest));
        if known != Some(earliest) {
            self.announce_exhausted(out, sub, session, earliest);
        }
    }

    /// Whether a command that arrived since the subscription was made was handed to this very connection (§7).
    fn was_handed(&self, conn: ConnId, sub: SubRef, owner: CoreId, event: &Event<'_>, arrival: u64) -> bool {
        let commands = self.peers.get(conn).and_then(|peer| peer.commands.as_ref());
        let covered = self.subscriptions.get(sub).and_then(|subscription| subscription.covered.as_ref());
        event.scope() == Scope::Command
            && commands.is_some_and(|commands| commands.contains(&event.fingerprint()))
            && covered.and_then(|covered| covered.since.get(usize::from(owner.0))).is_some_and(|since| arrival > *since)
    }
}

/// A session's name in a page.
fn text(page: &Page, name: (u32, u32)) -> &str {
    std::str::from_utf8(page.slice(name)).unwrap_or_default()
}
