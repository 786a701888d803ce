//! Live delivery: events of one owner, in the order of their arrival, to every class and subscription that matches
//! (contract §3, §6.3, §9).
//!
//! An event costs its candidates. A matching class gets one frame, made once per core; its members take all frames
//! of the turn in [`Reader::settle`] with one push each. Subscriptions in `others` are served at once, per connection:
//! an event that matches several of them is delivered once, at the highest of their ceilings.

use std::sync::Arc;

use crate::engine::service::{ConnId, CoreId, Outbox};
use crate::limits::CLOSING_NAME_BYTES_MAX;
use crate::protocol::binding::Binding;
use crate::protocol::inflow::TurnBudget;
use crate::protocol::run_group::{Behind, RunPiece};

use crate::relay::event::{Capture, Event, Position};
use crate::relay::frames::message;
use crate::relay::mail::page::SessionNote;
use crate::relay::mail::{Fanout, SubRef};
use crate::relay::reader::Reader;
use crate::relay::reader::class::{ClassId, ClassKey};
use crate::relay::reader::slow_consumer::room_for;

/// Bytes of a large event that are lowered in one turn; few in tests, so that they meet the edges.
const LOWERED_BYTES_PER_TURN: usize = if cfg!(test) { 256 } else { 256 << 10 };

/// A subscription that an event is for, looked at singly.
#[derive(Debug, Clone, Copy)]
struct Hit {
    conn: ConnId,
    sub: SubRef,
    ceiling: Capture,
    /// Whether a position it asked for may have to be judged by this event.
    judged: bool,
}

/// What became of a fan-out in this turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// All of its events are delivered.
    Whole,
    /// The turn may not go on; the slice knows where.
    Begun,
}

impl Reader {
    /// Delivers what an owner fanned out, on from where the slice stands and as far as it goes.
    pub fn fan_out(&mut self, out: &mut dyn Outbox, fanout: &Fanout, slice: &mut TurnBudget) -> Delivery {
        self.note_arrival(fanout.owner, fanout.arrival);
        let except = fanout.except.and_then(|(core, conn)| (core == self.core).then_some(conn));
        let (mut candidates, mut hits) = (Vec::new(), Vec::new());
        let events = fanout.batch.len();
        while let Some(index) = slice.next_item(events) {
            let event = fanout.batch.event(index);
            candidates.clear();
            self.classes.candidates(&event, &mut candidates);
            slice.spend(1 + candidates.len());
            if candidates.is_empty() {
                continue;
            }
            self.frames.next_event(Some((fanout.owner, fanout.arrival)));
            hits.clear();
            for &id in &candidates {
                slice.spend(self.match_class(out, id, &event, fanout.owner, except, &mut hits));
            }
            if !hits.is_empty() {
                let note = fanout.notes.get(index).copied().unwrap_or_default();
                self.deliver_hits(out, &event, note, &mut hits);
            }
        }
        if slice.is_through(events) { Delivery::Whole } else { Delivery::Begun }
    }

    /// Goes on with the lowered forms that a large event is to be delivered in. Answers whether all are made.
    pub fn prepare(&mut self, fanout: &Fanout) -> bool {
        if fanout.batch.len() != 1 {
            return true;
        }
        let event = fanout.batch.event(0);
        let arrived = (fanout.owner, fanout.arrival);
        let mut budget = LOWERED_BYTES_PER_TURN;
        let mut candidates = Vec::new();
        self.classes.candidates(&event, &mut candidates);
        candidates.into_iter().all(|id| {
            self.classes.class(id).is_none_or(|class| {
                let ClassKey { filter, ceiling, .. } = &class.key;
                event.capture() <= *ceiling
                    || !filter.matches(&event)
                    || self.frames.prepare(arrived, &event, *ceiling, &mut budget)
            })
        })
    }

    /// Enters the event into the turn of a class that it matches, and those to be looked at singly into `hits`. Answers
    /// how many it has looked at.
    fn match_class(
        &mut self,
        out: &mut dyn Outbox,
        id: ClassId,
        event: &Event<'_>,
        owner: CoreId,
        except: Option<ConnId>,
        hits: &mut Vec<Hit>,
    ) -> usize {
        let Some(class) = self.classes.class(id) else { return 0 };
        if !class.key.filter.matches(event) {
            return 0;
        }
        let ceiling = class.key.ceiling;
        let others = class.others.len();
        for &sub in &class.others {
            let Some(subscription) = self.subscriptions.get(sub) else { continue };
            // Live-only events have no place in a replay, so they need not wait for its end.
            let due = match event.session() {
                Some(_) => subscription.live.contains(owner),
                None => subscription.replay.as_ref().is_none_or(|replay| replay.live),
            };
            if due && Some(subscription.conn) != except {
                let judged = subscription.judged.is_some();
                hits.push(Hit { conn: subscription.conn, sub, ceiling, judged });
            }
        }
        let members = class.group.members();
        if members.is_empty() {
            return others;
        }
        if let Some(except) = except {
            let looked_at = others + members.len();
            if members.iter().any(|member| member.conn == except) {
                self.deliver_around(out, id, event, except);
                return looked_at;
            }
        }
        let run = self.frames.run(out, event, class.key.binding, ceiling);
        let at = if class.log.is_some() { self.booked(event) } else { None };
        let Some(class) = self.classes.class_mut(id) else { return others };
        if class.group.is_settled() {
            self.unsettled.push(id);
        }
        let frame = class.group.add(run, room_for(event));
        if let (Some(log), Some((name, position))) = (&mut class.log, at) {
            log.push(frame, name, position);
        }
        others
    }

    /// What books of positions say of an event: its session's shared name, and where it stands. None if they say
    /// nothing.
    fn booked(&mut self, event: &Event<'_>) -> Option<(Arc<str>, Position)> {
        let (session, position) = (event.session()?, event.position()?);
        Some((self.booked_name(session)?, position))
    }

    /// The shared name of a session, if a `closing` frame names positions of it.
    pub(in crate::relay) fn booked_name(&mut self, session: &str) -> Option<Arc<str>> {
        (session.len() <= CLOSING_NAME_BYTES_MAX).then(|| self.name(session))
    }

    /// A class's event that one of its members must not get (the target of the command has its copy).
    fn deliver_around(&mut self, out: &mut dyn Outbox, id: ClassId, event: &Event<'_>, except: ConnId) {
        self.settle(out, id);
        let Some(class) = self.classes.class(id) else { return };
        let (binding, ceiling) = (class.key.binding, class.key.ceiling);
        let members: Vec<ConnId> =
            class.group.members().iter().map(|member| member.conn).filter(|at| *at != except).collect();
        let run = self.frames.run(out, event, binding, ceiling);
        let room = room_for(event);
        for conn in members {
            // Commands bear no position, so neither log nor offset of the class is touched.
            if self.push_event(out, conn, run, room) {
                self.metrics.deliveries.increment();
            } else {
                // It owes an announcement now, so it cannot stay a member.
                self.replace_first(out, conn);
            }
        }
    }

    /// Delivers an event to the connections of `hits`, each once.
    fn deliver_hits(&mut self, out: &mut dyn Outbox, event: &Event<'_>, note: SessionNote, hits: &mut [Hit]) {
        // Highest ceiling first within a connection; a stable order between them.
        hits.sort_unstable_by_key(|hit| (hit.conn, std::cmp::Reverse(hit.ceiling)));
        // Found once, and only if somebody keeps a book.
        let mut booked = None;
        let mut rest: &[Hit] = hits;
        while let Some(first) = rest.first().copied() {
            let same = rest.iter().take_while(|hit| hit.conn == first.conn).count();
            let (mine, others) = rest.split_at(same);
            rest = others;
            let Some(binding) = self.peers.get(first.conn).map(|peer| peer.binding) else { continue };
            for hit in mine.iter().filter(|hit| hit.judged) {
                self.judge(out, hit.sub, event.session(), event.position(), note);
            }
            let run = self.frames.run(out, event, binding, first.ceiling);
            if self.push_event(out, first.conn, run, room_for(event)) {
                self.metrics.deliveries.increment();
                if binding == Binding::WebSocket
                    && let Some((name, position)) = booked.get_or_insert_with(|| self.booked(event))
                {
                    self.note_positions(first.conn, mine.iter().map(|hit| hit.sub), run.len, name, *position);
                    self.settle_positions(out, first.conn);
                }
            }
        }
    }

    /// Notes an event of a peer that is looked at singly, for each of `subs`: the last `len` bytes counted for it are
    /// its frame.
    pub(in crate::relay) fn note_positions(
        &mut self,
        conn: ConnId,
        subs: impl Iterator<Item = SubRef>,
        len: u32,
        name: &Arc<str>,
        position: Position,
    ) {
        let Some(own) = self.peers.get_mut(conn).and_then(|peer| peer.positions.as_mut()) else { return };
        for sub in subs {
            own.log.push(own.pushed - u64::from(len)..own.pushed, (sub, Arc::clone(name)), position);
        }
    }

    /// Settles positions that have certainly left; everything noted has been pushed.
    pub(in crate::relay) fn settle_positions(&mut self, out: &dyn Outbox, conn: ConnId) {
        let Some(own) = self.peers.get_mut(conn).and_then(|peer| peer.positions.as_mut()) else { return };
        if own.log.is_long() {
            // Queued bytes that are not its own only make this keep more than it must.
            own.log.settle(own.pushed.saturating_sub(out.queued_bytes(conn) as u64));
        }
        let now = own.footprint();
        let before = std::mem::replace(&mut own.counted, now);
        if now != before {
            self.shared.remember(&self.metrics, before, now);
        }
    }

    /// A position asked for in a session that nobody knew is judged by the session's first event (§3).
    pub(in crate::relay) fn judge(
        &mut self,
        out: &mut dyn Outbox,
        sub: SubRef,
        session: Option<&str>,
        position: Option<Position>,
        note: SessionNote,
    ) {
        let (Some(session), Some(position)) = (session, position) else { return };
        let Some(subscription) = self.subscriptions.get_mut(sub) else { return };
        let Some(judged) = &mut subscription.judged else { return };
        let Some(asked) = judged.remove(session) else { return };
        if judged.is_empty() {
            subscription.judged = None;
            // Back to its class with the next drain.
            out.notify_drained(subscription.conn);
        }
        self.shared.judgements.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        let first = note.lowest.unwrap_or(position);
        if first > asked && !first.follows(asked) {
            self.announce_exhausted(out, sub, session, note.earliest.unwrap_or(position));
        }
    }

    /// Tells a subscription that something before what it gets next is gone.
    pub(in crate::relay) fn announce_exhausted(
        &mut self,
        out: &mut dyn Outbox,
        sub: SubRef,
        session: &str,
        earliest: Position,
    ) {
        let Some(subscription) = self.subscriptions.get(sub) else { return };
        let Some(peer) = self.peers.get(subscription.conn) else { return };
        let conn = subscription.conn;
        let frame = message::replay_exhausted(peer.binding, subscription.id.as_deref(), session, earliest);
        self.metrics.replay_exhausted.increment();
        self.push_frame(out, conn, &frame);
    }

    /// Pushes every class's pieces of this turn.
    pub fn settle_all(&mut self, out: &mut dyn Outbox) {
        while let Some(id) = self.unsettled.pop() {
            self.settle(out, id);
        }
    }

    /// Pushes a class's pieces to its members. Who has no room for all of them is looked at singly from now on.
    pub(in crate::relay) fn settle(&mut self, out: &mut dyn Outbox, id: ClassId) {
        let Some(class) = self.classes.class_mut(id) else { return };
        if class.group.is_settled() {
            return;
        }
        let settled = class.group.settle(out);
        self.metrics.deliveries.add(settled.queued as u64);
        for behind in &settled.behind {
            self.fall_behind(out, id, behind, &settled.pieces);
        }
        if let Some(class) = self.classes.class_mut(id) {
            class.group.recycle(settled.pieces);
        }
        self.settle_log(out, id);
    }

    /// From the first piece that had no room on, the member's events are its own affair.
    fn fall_behind(&mut self, out: &mut dyn Outbox, id: ClassId, behind: &Behind<SubRef>, pieces: &[RunPiece]) {
        let (member, pieces) = (behind.member, pieces.get(behind.first..).unwrap_or_default());
        // Those pieces are not in its queue: its share of the class's stream ends before them.
        let before = pieces.first().map_or(0, RunPiece::start);
        let positions: Vec<(u64, Arc<str>, Position)> = self
            .classes
            .class(id)
            .and_then(|class| class.log.as_ref())
            .map(|log| log.beyond(before).map(|(frame, name, at)| (frame.end, Arc::clone(name), at)).collect())
            .unwrap_or_default();
        self.leave_members(out, member.key, before);
        for piece in pieces {
            if self.push_event(out, member.conn, piece.run, piece.room) {
                self.metrics.deliveries.increment();
                // Both ascend.
                let first = positions.partition_point(|(end, ..)| *end < piece.end);
                if let Some((_, name, at)) = positions.get(first).filter(|(end, ..)| *end == piece.end) {
                    self.note_positions(member.conn, std::iter::once(member.key), piece.run.len, name, *at);
                }
            }
        }
    }

    /// Settles what no member of a class can still have queued.
    fn settle_log(&mut self, out: &dyn Outbox, id: ClassId) {
        let Some(class) = self.classes.class_mut(id) else { return };
        let Some(log) = &mut class.log else { return };
        if log.is_long() {
            let most = class.group.members().iter().map(|member| out.queued_bytes(member.conn)).max().unwrap_or(0);
            // Queued bytes that are not the class's only make this keep more than it must.
            log.settle(class.group.bytes().saturating_sub(most as u64));
        }
        let (now, before) = self.classes.recount_log(id);
        if now != before {
            self.shared.remember(&self.metrics, before, now);
        }
    }
}
