//! Slow consumers (contract §9): `debug` and `info` are shed, counted and announced; everything else is delivered, or the
//! consumer is cut so that it resumes exactly.

use std::collections::HashMap;

use crate::engine::service::{ConnId, Outbox, Pushed, Run, Unsent, WebSocketClose};
use crate::wire::websocket::close::CloseCode;

use super::event::Position;
use super::frame;
use super::frames::Binding;
use super::ownership::{RelayMail, SubRef};
use super::peer::{OWN_MARK, PositionKey};
use super::reader::Reader;
use super::subscription::Place;

/// How the end of a slow consumer is named on the wire.
pub const REASON_SLOW: &str = "slow-consumer";
/// How the end of the process is named on the wire.
pub const REASON_SHUTDOWN: &str = "shutting-down";

impl Reader {
    /// Pushes one event to a peer that is looked at singly. Answers whether it is queued.
    pub(super) fn push_event(
        &mut self,
        out: &mut dyn Outbox<RelayMail>,
        conn: ConnId,
        run: Run,
        droppable: bool,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(conn) else { return false };
        if peer.ended {
            return false;
        }
        if peer.dropped > 0 && !self.announce_dropped(out, conn) {
            return self.shed(out, conn, droppable);
        }
        let mark = self.own_mark(conn, run.len);
        match out.push_run(conn, run, mark) {
            Pushed::Queued => true,
            Pushed::Full => {
                self.unmark(conn, run.len);
                self.shed(out, conn, droppable)
            }
            Pushed::Gone => false,
        }
    }

    /// An event has no room: drop it, or cut the peer. Never queued.
    fn shed(&mut self, out: &mut dyn Outbox<RelayMail>, conn: ConnId, droppable: bool) -> bool {
        if !droppable {
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
    pub(super) fn announce_dropped(&mut self, out: &mut dyn Outbox<RelayMail>, conn: ConnId) -> bool {
        let Some(peer) = self.peers.get_mut(conn) else { return false };
        let announcement = frame::dropped(peer.binding, peer.dropped);
        let mark = self.own_mark(conn, frame::length(&announcement));
        match out.push(conn, &announcement, mark) {
            Pushed::Queued => {
                if let Some(peer) = self.peers.get_mut(conn) {
                    peer.dropped = 0;
                }
                true
            }
            Pushed::Full | Pushed::Gone => {
                self.unmark(conn, frame::length(&announcement));
                false
            }
        }
    }

    /// Pushes something that is never dropped: a frame, a comment, a command. Cuts a peer that has no room for it.
    pub(super) fn push_frame(&mut self, out: &mut dyn Outbox<RelayMail>, conn: ConnId, bytes: &[u8]) -> bool {
        let mark = self.own_mark(conn, frame::length(bytes));
        match out.push(conn, bytes, mark) {
            Pushed::Queued => true,
            Pushed::Gone => false,
            Pushed::Full => {
                self.unmark(conn, frame::length(bytes));
                self.cut(out, conn);
                false
            }
        }
    }

    /// The mark of the next `len` bytes pushed to a peer by itself.
    pub(super) fn own_mark(&mut self, conn: ConnId, len: u32) -> u64 {
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
    pub(super) fn cut(&mut self, out: &mut dyn Outbox<RelayMail>, conn: ConnId) {
        let Some(peer) = self.peers.get_mut(conn) else { return };
        if std::mem::replace(&mut peer.ended, true) {
            return;
        }
        self.metrics.slow_consumers.increment();
        let binding = peer.binding;
        let last = match binding {
            Binding::WebSocket => self.closing(REASON_SLOW, &self.handed_positions(out, conn, true)),
            Binding::Chunked | Binding::UntilClose => Vec::new(),
        };
        out.cut(conn, &last, WebSocketClose { code: CloseCode::TRY_AGAIN_LATER.value(), reason: REASON_SLOW });
    }

    /// Which position of each session a WebSocket peer was last handed, per subscription. With `unsent_out`, what is
    /// queued and unsent does not count: it will be discarded.
    pub(super) fn handed_positions(
        &self,
        out: &dyn Outbox<RelayMail>,
        conn: ConnId,
        unsent_out: bool,
    ) -> HashMap<PositionKey, Handed> {
        let Some(peer) = self.peers.get(conn) else { return HashMap::new() };
        let (mut class_handed, mut own_handed) = (u64::MAX, u64::MAX);
        if unsent_out {
            out.unsent(conn, &mut |Unsent { mark, bytes }| {
                // The engine's own pings and pongs bear no mark.
                if mark != 0 {
                    let handed = (mark & !OWN_MARK).saturating_sub(bytes as u64);
                    let first = if mark & OWN_MARK == 0 { &mut class_handed } else { &mut own_handed };
                    *first = (*first).min(handed);
                }
            });
        }
        let mut newest: HashMap<PositionKey, Handed> = HashMap::new();
        if let Some(own) = &peer.positions {
            newest.extend(own.carried.handed(0, class_handed).into_iter().map(|(key, at)| (key, Handed::new(0, at))));
            newest.extend(own.log.handed(0, own_handed).into_iter().map(|(key, at)| (key, Handed::new(1, at))));
        }
        for &sub in &peer.subs {
            let Some(subscription) = self.subscriptions.get(sub) else { continue };
            let Some(class) = self.classes.class(subscription.class) else { continue };
            if let (Place::Member(_), Some(log)) = (subscription.place, &class.log) {
                let handed = log.handed(subscription.joined, class_handed);
                newest.extend(handed.into_iter().map(|(session, at)| ((sub, session), Handed::new(2, at))));
            }
        }
        newest
    }

    /// The `closing` frame of a peer: its positions under the client's names, the latest of each subscription.
    pub(super) fn closing(&self, reason: &str, delivered: &HashMap<PositionKey, Handed>) -> Vec<u8> {
        let mut latest: Vec<(&PositionKey, &Handed)> = delivered.iter().collect();
        latest.sort_unstable_by_key(|(_, handed)| std::cmp::Reverse(handed.order));
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
        frame::closing(reason, &named)
    }
}

/// A position handed to a socket.
#[derive(Debug, Clone, Copy)]
pub struct Handed {
    /// Which log it stands in (an older one first) and where: later is larger.
    order: (u8, u64),
    position: Position,
}

impl Handed {
    fn new(log: u8, (end, position): (u64, Position)) -> Self {
        Self { order: (log, end), position }
    }
}
