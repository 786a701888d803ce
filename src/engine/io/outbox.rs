//! What a service may ask of its core: the [`Outbox`] and the [`Post`], on a core's [`Io`].
//!
//! Owns the rules of pushing and of ending streams and WebSockets; the means are `io/`'s. Every call first finds its
//! connection and does nothing if it is gone, over, or not of the kind that the call is for.

use std::time::{Duration, SystemTime};

use tracing::info;

use crate::base::time::{Deadline, Now};
use crate::engine::connection::event_stream::EventStream;
use crate::engine::connection::{Connection, Half, Linger, NEVER, Phase};
use crate::engine::io::pacing::{fanout_bytes_max, heavy_bytes, overdraft_bytes};
use crate::engine::io::{Io, arm, count_backlog};
use crate::engine::service::{
    Admits, ConnId, CoreId, Ending, EventStreamOpen, Group, Lane, Mail, Outbox, Post, Pushed, Response, Run, Unsent,
    WebSocketClose,
};
use crate::limits::{CLOSE_TIME, Limits, Room};
use crate::wire::http1::StreamFraming;
use crate::wire::http1::response::encode_event_stream_head;
use crate::wire::websocket::CloseCode;
use crate::wire::websocket::frame::encode_close;

impl<M: Mail> Outbox for Io<M> {
    fn now(&self) -> Now {
        self.now
    }

    fn time_of_day(&self) -> SystemTime {
        self.time_of_day
    }

    fn core(&self) -> CoreId {
        self.core
    }

    fn cores(&self) -> usize {
        self.process.cores()
    }

    fn respond(&mut self, conn: ConnId, response: Response) {
        self.answer(conn, &response, Ending::Complete);
    }

    fn open_event_stream(&mut self, id: ConnId, open: EventStreamOpen) {
        let (now, date) = (self.now, self.date);
        let Some(conn) = self.connection(id) else { return };
        let Half::Http(half) = &mut conn.half else { return };
        // The stream is the last answer of its connection: what came behind its request is read past.
        let Some((to, terms)) = half.answer(true) else {
            debug_assert!(false, "a request is answered once");
            return;
        };
        let fields = [self.answered(terms.as_ref(), 200), &open.fields];
        let framing = StreamFraming::of(to.version);
        self.queue_head(id, |out| {
            encode_event_stream_head(out, to, date, fields);
            framing.encode(out, open.first);
        });
        let half = EventStream::new(&open, framing, now, id.slot);
        let deadline = half.deadline();
        self.become_half(id, Half::EventStream(half));
        self.set_deadline(id, deadline);
        self.schedule_input(id);
    }

    fn set_heartbeat(&mut self, id: ConnId, interval: Duration) {
        let Some(conn) = self.connection(id).filter(|conn| conn.takes_pushes()) else { return };
        if let Half::EventStream(half) = &mut conn.half {
            half.set_interval(interval);
            let deadline = half.deadline();
            self.set_deadline(id, deadline);
        }
    }

    fn end_event_stream(&mut self, id: ConnId, last: &[u8]) {
        let Some(conn) = self.connection(id).filter(|conn| conn.takes_pushes()) else { return };
        let Half::EventStream(half) = &conn.half else { return };
        let framing = half.framing();
        self.queue(id, |out| {
            framing.encode(out, last);
            out.extend_from_slice(framing.last());
        });
        self.finish(id, Ending::Complete);
    }

    fn close_websocket(&mut self, id: ConnId, close: WebSocketClose<'_>) {
        let Some(conn) = self.connection(id).filter(|conn| conn.takes_pushes()) else { return };
        if matches!(conn.half, Half::WebSocket(_)) {
            self.close_open_websocket(id, close, Ending::Service);
        }
    }

    fn cut(&mut self, id: ConnId, last: &[u8], close: WebSocketClose<'_>) {
        let Some(conn) = self.connections.get_mut(id.slot, id.generation).filter(|conn| conn.takes_pushes()) else {
            return;
        };
        let backlog = conn.queue.backlog_bytes();
        info!(
            slot = id.slot,
            queued_bytes = conn.queue.bytes(),
            socket_full = !conn.flags.writable,
            quiet_ms = self.now.0.saturating_sub(conn.progress_at.0),
            "slow consumer cut"
        );
        let message_len = conn.message_len();
        conn.queue.cut(&mut self.blocks, message_len);
        count_backlog(&self.process, &self.metrics, conn, backlog);
        match &conn.half {
            Half::WebSocket(_) => {
                self.queue(id, |out| out.extend_from_slice(last));
                self.close_open_websocket(id, close, Ending::SlowConsumer);
                if let Some(conn) = self.connection(id) {
                    conn.flags.strict = true;
                }
            }
            Half::EventStream(half) => {
                let framing = half.framing();
                self.queue(id, |out| out.extend_from_slice(framing.last()));
                self.finish_within(id, Ending::SlowConsumer, Linger::strict(CLOSE_TIME));
            }
            Half::Http(_) => {}
        }
    }

    fn write_run(&mut self, lane: Lane, bytes: &[u8]) -> Run {
        self.blocks.write(lane, bytes)
    }

    fn push_run(&mut self, conn: ConnId, run: Run, room: Room, mark: u64) -> Pushed {
        self.enqueue(conn, run, Some(room), mark)
    }

    fn push(&mut self, conn: ConnId, bytes: &[u8], mark: u64) -> Pushed {
        match self.admit(conn, bytes.len(), Some(Room::Whole)) {
            Pushed::Queued => {
                let run = self.blocks.write_own(bytes);
                self.enqueue(conn, run, None, mark)
            }
            refused => refused,
        }
    }

    fn push_always(&mut self, conn: ConnId, bytes: &[u8], mark: u64) -> Pushed {
        match self.admit(conn, bytes.len(), None) {
            Pushed::Queued => {
                let run = self.blocks.write_own(bytes);
                self.enqueue(conn, run, None, mark)
            }
            refused => refused,
        }
    }

    fn queued_bytes(&self, conn: ConnId) -> usize {
        self.connections.get(conn.slot, conn.generation).map_or(0, |conn| conn.queue.bytes())
    }

    fn unsent(&self, conn: ConnId, visit: &mut dyn FnMut(Unsent)) {
        if let Some(conn) = self.connections.get(conn.slot, conn.generation) {
            conn.queue.unsent(visit);
        }
    }

    fn notify_drained(&mut self, id: ConnId) {
        let Some(conn) = self.connection(id).filter(|conn| conn.takes_pushes()) else { return };
        conn.flags.tell_drained = true;
        // An empty queue drains in the coming flush, which therefore has to see it.
        self.schedule_flush(id);
    }

    fn resume(&mut self, id: ConnId) {
        self.heard.take_if(|heard| *heard == id);
        if let Some(conn) = self.connection(id) {
            conn.flags.parked = false;
            self.schedule_input(id);
        }
    }

    fn arm(&mut self, id: ConnId, at: Deadline) {
        if let Some(conn) = self.connections.get_mut(id.slot, id.generation)
            && conn.ending.is_none()
        {
            conn.timers.alarm = at;
            arm(&mut self.wheel, conn, id);
        }
    }

    fn disarm(&mut self, id: ConnId) {
        if let Some(conn) = self.connection(id) {
            conn.timers.alarm = NEVER;
        }
    }

    fn admitted(&mut self, group: Group, bytes: usize) {
        self.process.pace(group).count_admitted(bytes);
    }

    fn admits(&self, group: Group) -> Admits {
        let limits = &self.process.limits;
        let mail = Admits::of(self.mailbox.most_fanout_bytes(group), fanout_bytes_max(limits));
        self.process.pace(group).admits(overdraft_bytes(limits)).min(mail)
    }
}

impl<M: Mail> Post<M> for Io<M> {
    fn outbox(&mut self) -> &mut dyn Outbox {
        self
    }

    fn out(&self) -> &dyn Outbox {
        self
    }

    fn mail_ingest(&mut self, to: CoreId, mail: M) {
        let asked = self.asked.get()[mail.group().index()] & bit(to) != 0;
        debug_assert!(asked, "mail that sockets cause asks for room first");
        debug_assert!(!self.mailbox.has_ended_ingest(), "a lane ends behind all mail that is no answer");
        self.mailbox.send_ingest(to, mail);
    }

    fn mail_fanout(&mut self, to: CoreId, mail: M) {
        debug_assert!(!self.mailbox.has_ended_fanout(), "a lane ends behind all mail that is no answer");
        self.mailbox.send_fanout(to, mail);
    }

    fn mail_ingest_reserved(&mut self, to: CoreId, mail: M) {
        self.mailbox.send_ingest(to, mail);
    }

    fn mail_fanout_reserved(&mut self, to: CoreId, mail: M) {
        self.mailbox.send_fanout(to, mail);
    }

    fn ingest_room(&self, to: CoreId, group: Group) -> Admits {
        let mut asked = self.asked.get();
        asked[group.index()] |= bit(to);
        self.asked.set(asked);
        Admits::of(self.mailbox.ingest_bytes(to, group), self.process.limits.stage_bytes())
    }
}

impl<M: Mail> Io<M> {
    /// Whether a push of that many bytes may be queued; without `room` whatever is queued.
    fn admit(&self, id: ConnId, bytes: usize, room: Option<Room>) -> Pushed {
        match self.connections.get(id.slot, id.generation).filter(|conn| conn.takes_pushes()) {
            None => self.why_not(id),
            Some(conn) if is_full(conn, bytes, room, &self.process.limits) => Pushed::Full,
            Some(_) => Pushed::Queued,
        }
    }

    /// Why nothing may be pushed to that connection.
    #[cold]
    fn why_not(&self, id: ConnId) -> Pushed {
        match self.connections.get(id.slot, id.generation) {
            Some(conn) if conn.phase == Phase::Open && matches!(conn.half, Half::Http(_)) => Pushed::NotOpen,
            _ => Pushed::Gone,
        }
    }

    /// Queues a run, if it may be; without `room` whatever is queued.
    fn enqueue(&mut self, id: ConnId, run: Run, room: Option<Room>, mark: u64) -> Pushed {
        let Some(conn) = self.connections.get_mut(id.slot, id.generation).filter(|conn| conn.takes_pushes()) else {
            return self.why_not(id);
        };
        if is_full(conn, run.len as usize, room, &self.process.limits) {
            return Pushed::Full;
        }
        if conn.queue.is_empty() {
            conn.progress_at = self.now;
            conn.behind_since = self.now;
        }
        if !conn.queue.push(&mut self.blocks, run, mark) {
            return Pushed::Stale;
        }
        if let Half::EventStream(half) = &mut conn.half {
            half.on_pushed(self.now);
        }
        if !conn.flags.in_heavy && conn.queue.bytes() > heavy_bytes(&self.process.limits) {
            conn.flags.in_heavy = true;
            self.lists.heavy.push(id);
        }
        if conn.flags.writable && !conn.flags.in_flush {
            conn.flags.in_flush = true;
            self.lists.consumers.push_back(id);
        }
        Pushed::Queued
    }

    /// Queues our close frame and waits for the peer's.
    pub(in crate::engine) fn close_open_websocket(&mut self, id: ConnId, close: WebSocketClose<'_>, ending: Ending) {
        let code = CloseCode::from_wire(close.code);
        debug_assert!(code.is_some(), "a close code that may travel");
        self.queue(id, |out| encode_close(out, code, close.reason));
        let now = self.now;
        let Some(conn) = self.connection(id) else { return };
        conn.flags.parked = false;
        conn.flags.starved = false;
        if let Half::WebSocket(half) = &mut conn.half {
            half.on_close_queued();
        }
        self.decide_end(id, ending);
        self.count_receiving(id);
        self.set_deadline(id, now.after(CLOSE_TIME));
        self.schedule_input(id);
    }
}

const fn bit(core: CoreId) -> u64 {
    1 << (core.0 % 64)
}

/// Whether so many bytes more are too many for its queue. The bound is looked up only for who has something queued.
fn is_full(conn: &Connection, bytes: usize, room: Option<Room>, limits: &Limits) -> bool {
    let queued = conn.queue.bytes();
    queued > 0 && room.is_some_and(|room| queued + bytes > limits.queue_bytes_max(room))
}
