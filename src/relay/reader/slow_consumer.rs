//! Slow consumers (contract §9): `debug` and `info` are shed, counted and announced; everything else is delivered, or
//! the consumer is cut so that it resumes exactly.
//!
//! Who has begun to miss events goes on missing them until its queue is empty, or something comes that it must get.
//! Otherwise each small piece of room in a nearly full queue would take an announcement, and no event behind it.
//!
//! What may be shed leaves the end of the queue ([`Room::Unreserved`]) to what may not: shedding comes first, the cut
//! last.

use std::collections::HashMap;

use crate::engine::service::{ConnId, Outbox, Pushed, Run, WebSocketClose};
use crate::limits::Room;
use crate::protocol::binding::Binding;
use crate::wire::websocket;
use crate::wire::websocket::close::CloseCode;

use crate::relay::event::{Event, Position, Severity};
use crate::relay::frames::message;
use crate::relay::mail::SubRef;
use crate::relay::reader::peer::{OWN_MARK, PositionKey};
use crate::relay::reader::position_log::When;
use crate::relay::reader::subscription::Seat;
use crate::relay::reader::{HandedTo, Reader, handed};

/// How the end of a slow consumer is named on the wire.
pub const REASON_SLOW: &str = "slow-consumer";
/// How the end of the process is named on the wire.
pub const REASON_SHUTDOWN: &str = "shutting-down";

/// The part of a queue that an event may fill: `debug` and `info`, which a slow consumer may miss, leave the reserve.
pub(in crate::relay) fn room_for(event: &Event<'_>) -> Room {
    if event.severity() <= Severity::Info { Room::Unreserved } else { Room::Whole }
}

/// Whether a slow consumer may miss what has this room.
fn is_droppable(room: Room) -> bool {
    room == Room::Unreserved
}

impl Reader {
    /// Pushes one event to a peer that is looked at singly. Answers whether it is queued.
    pub(in crate::relay) fn push_event(&mut self, out: &mut dyn Outbox, conn: ConnId, run: Run, room: Room) -> bool {
        let Some(peer) = self.peers.get_mut(conn) else { return false };
        if peer.ended {
            return false;
        }
        if peer.dropped > 0 && (is_droppable(room) || !self.announce_dropped(out, conn)) {
            return self.shed(out, conn, room);
        }
        let mark = self.own_mark(conn, run.len);
        match out.push_run(conn, run, room, mark) {
            Pushed::Queued => true,
            Pushed::Full => {
                self.unmark(conn, run.len);
                self.shed(out, conn, room)
            }
            Pushed::Gone | Pushed::NotOpen | Pushed::Stale => false,
        }
    }

    /// An event has no room: drop it, or cut the peer. Never queued.
    fn shed(&mut self, out: &mut dyn Outbox, conn: ConnId, room: Room) -> bool {
        if !is_droppable(room) {
            self.cut(out, conn);
            return false;
        }
        self.metrics.dropped.increment();
        if let Some(peer) = self.peers.get_mut(conn) {
            if peer.dropped == 0 {
                out.notify_drained(conn);
            }
            peer.dropped += 1;
        }
        false
    }

    /// Tells a peer how much it missed, ahead of whatever it gets next. Whether that is queued.
    pub(in crate::relay) fn announce_dropped(&mut self, out: &mut dyn Outbox, conn: ConnId) -> bool {
        self.announce_dropped_by(conn, |announcement, mark| out.push(conn, announcement, mark))
    }

    /// The same ahead of a page, which goes out whatever is queued.
    pub(in crate::relay) fn announce_dropped_always(&mut self, out: &mut dyn Outbox, conn: ConnId) {
        self.announce_dropped_by(conn, |announcement, mark| out.push_always(conn, announcement, mark));
    }

    fn announce_dropped_by(&mut self, conn: ConnId, push: impl FnOnce(&[u8], u64) -> Pushed) -> bool {
        let Some(peer) = self.peers.get(conn) else { return false };
        let announcement = message::dropped(peer.binding, peer.dropped);
        let mark = self.own_mark(conn, message::length(&announcement));
        match push(&announcement, mark) {
            Pushed::Queued => {
                if let Some(peer) = self.peers.get_mut(conn) {
                    peer.dropped = 0;
                }
                true
            }
            Pushed::Full | Pushed::Gone | Pushed::NotOpen | Pushed::Stale => {
                self.unmark(conn, message::length(&announcement));
                false
            }
        }
    }

    /// Pushes something that is never dropped: a frame, a comment, a command. Cuts a peer that has no room for it.
    pub(in crate::relay) fn push_frame(&mut self, out: &mut dyn Outbox, conn: ConnId, bytes: &[u8]) -> bool {
        let mark = self.own_mark(conn, message::length(bytes));
        match out.push(conn, bytes, mark) {
            Pushed::Queued => true,
            Pushed::Gone | Pushed::NotOpen | Pushed::Stale => false,
            Pushed::Full => {
                self.unmark(conn, message::length(bytes));
                self.cut(out, conn);
                false
            }
        }
    }

    /// Hands a command to its target (§7), behind whatever came for it before. Whether it is queued.
    pub(in crate::relay) fn push_command(&mut self, out: &mut dyn Outbox, conn: ConnId, command: &Event<'_>) -> bool {
        let first = self.peers.get(conn).and_then(|peer| peer.subs.first().copied());
        if let Some(class) = first.and_then(|sub| self.subscriptions.get(sub)).map(|subscription| subscription.class) {
            self.settle(out, class);
        }
        let mut bytes = Vec::new();
        websocket::frame::encode_text(&mut bytes, command.raw());
        let taken = self.push_frame(out, conn, &bytes);
        if taken
            && let Some(peer) = self.peers.get_mut(conn)
            && peer.subs.iter().any(|sub| self.subscriptions.get(*sub).is_some_and(|sub| sub.replay.is_some()))
        {
            peer.commands.get_or_insert_default().insert(command.fingerprint());
        }
        taken
    }

    /// The mark of the next `len` bytes pushed to a peer by itself.
    pub(in crate::relay) fn own_mark(&mut self, conn: ConnId, len: u32) -> u64 {
        match self.peers.get_mut(conn).and_then(|peer| peer.positions.as_mut()) {
            Some(positions) => {
                positions.pushed += u64::from(len);
                OWN_MARK | positions.pushed
            }
            None => OWN_MARK,
        }
    }

    /// A push that was marked did not happen.
    fn unmark(&mut self, conn: ConnId, len: u32) {
        if let Some(positions) = self.peers.get_mut(conn).and_then(|peer| peer.positions.as_mut()) {
            positions.pushed -= u64::from(len);
        }
    }

    /// Cuts a slow consumer: WebSockets are told which positions they were handed.
    pub(in crate::relay) fn cut(&mut self, out: &mut dyn Outbox, conn: ConnId) {
        let Some(peer) = self.peers.get_mut(conn) else { return };
        if std::mem::replace(&mut peer.ended, true) {
            return;
        }
        self.metrics.slow_consumers.increment();
        let binding = peer.binding;
        self.cut.push(conn);
        let last = match binding {
            Binding::WebSocket => self.closing(REASON_SLOW, &self.handed_positions(out, conn, true)),
            Binding::Stream(_) => Vec::new(),
        };
        out.cut(conn, &last, WebSocketClose { code: CloseCode::TRY_AGAIN_LATER.value(), reason: REASON_SLOW });
    }

    /// Which position of each session a WebSocket peer was last handed, per subscription. With `unsent_out`, what is
    /// queued and unsent does not count: it will be discarded.
    pub(in crate::relay) fn handed_positions(
        &self,
        out: &dyn Outbox,
        conn: ConnId,
        unsent_out: bool,
    ) -> HashMap<PositionKey, Handed> {
        let Some(peer) = self.peers.get(conn) else { return HashMap::new() };
        let everything = HandedTo { class: u64::MAX, own: u64::MAX };
        let handed_to = if unsent_out { handed(out, conn) } else { everything };
        let mut newest: HashMap<PositionKey, Handed> = HashMap::new();
        if let Some(own) = &peer.positions {
            newest.extend(own.log.handed(0, handed_to.own).into_iter().map(|(key, at)| {
                let rank = if at.0.end <= own.carried_at { Rank::Before } else { Rank::Own };
                (key, Handed::new(rank, at))
            }));
            for (key, at) in own.carried.handed(0, handed_to.class) {
                let carried = Handed::new(Rank::Carried, at);
                newest.entry(key).and_modify(|known| *known = (*known).max(carried)).or_insert(carried);
            }
        }
        for &sub in &peer.subs {
            let Some(subscription) = self.subscriptions.get(sub) else { continue };
            let Some(class) = self.classes.class(subscription.class) else { continue };
            if let (Seat::Member(_), Some(log)) = (subscription.place, &class.log) {
                // What is still to be pushed to the members was handed to nobody.
                let handed = log.handed(subscription.joined, handed_to.class.min(class.group.pushed()));
                newest.extend(handed.into_iter().map(|(session, at)| ((sub, session), Handed::new(Rank::Class, at))));
            }
        }
        newest
    }

    /// The `closing` frame of a peer: its positions under the client's names, the latest of each subscription.
    pub(in crate::relay) fn closing(&self, reason: &str, delivered: &HashMap<PositionKey, Handed>) -> Vec<u8> {
        let mut latest: Vec<(&PositionKey, &Handed)> = delivered.iter().collect();
        // One event may have been handed over for several subscriptions: these follow each other in one order always.
        latest.sort_unstable_by(|(key, handed), (other, then)| {
            then.order.cmp(&handed.order).then_with(|| key.cmp(other))
        });
        let mut counts: HashMap<SubRef, usize> = HashMap::new();
        let mut named = Vec::new();
        for ((sub, session), handed) in latest {
            let Some(id) = self.subscriptions.get(*sub).and_then(|subscription| subscription.id.as_deref()) else {
                continue;
            };
            let count = counts.entry(*sub).or_insert(0);
            *count += 1;
            if *count <= self.shared.limits.sessions_max {
                named.push((id, &**session, handed.position));
            }
        }
        message::closing(reason, &named)
    }
}

/// Which log a position stands in; what a later one tells was handed over later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The peer's own, before it last left its class.
    Before,
    /// What was queued when it left its class.
    Carried,
    /// The peer's own, since then.
    Own,
    /// The class's that it is a member of.
    Class,
}

/// A position handed to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handed {
    /// Which log it stands in and where: later is larger.
    order: (Rank, When),
    position: Position,
}

impl Handed {
    fn new(rank: Rank, (when, position): (When, Position)) -> Self {
        Self { order: (rank, when), position }
    }
}
