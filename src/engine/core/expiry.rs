//! Deadlines that have come: what each means depends on what its connection waits for.
//!
//! Owns the table from state to consequence. A connection has one deadline of the engine's and one alarm of the
//! service's; the wheel brings it back for the earlier, and an entry that has become pointless is told by `armed`.
//!
//! - A connection whose deadline has come is read and written before it is judged: while the process was stopped, or
//!   busy, what it was waited for may have arrived, or room in its socket. It is judged behind its next turn, however
//!   many others come before it; and if that leaves more to be read or written, behind a further one, up to
//!   [`TURNS_MAX`], so that nobody puts its deadline off by going on. With whom nothing can be done it is judged at
//!   once.
//! - The peer of a WebSocket is not blamed for the time in which the core itself stood still (`Io::awake_since`).

use crate::engine::connection::http::WaitingFor;
use crate::engine::connection::websocket::Silence;
use crate::engine::connection::{Half, NEVER, Phase};
use crate::engine::core::Core;
use crate::engine::service::{ConnId, Ending, HttpFault, Service, Work};
use crate::limits::CLOSE_TIME;

/// Turns of a connection before it is judged, if it has that much to read or write: 16 MiB of input, which is more than
/// the kernel holds for it, and than any head or first message may have.
const TURNS_MAX: usize = 64;

/// A connection whose deadline has come.
#[derive(Debug)]
pub(in crate::engine) struct Late {
    id: ConnId,
    /// Turns that it has before it is judged.
    turns: usize,
}

impl<S: Service> Core<S> {
    /// Finds every deadline that has come. Whoever may have something to be read is put on the input list.
    pub(in crate::engine) fn expire(&mut self) {
        let mut due = std::mem::take(&mut self.due);
        self.io.wheel.advance(self.io.now, &mut due);
        for id in due.drain(..) {
            let now = self.io.now;
            let Some(conn) = self.io.connection(id).filter(|conn| conn.timers.armed.is_due(now)) else { continue };
            conn.timers.armed = NEVER;
            if self.has_a_turn_first(id) {
                self.late.push(Late { id, turns: TURNS_MAX });
            } else {
                self.judge(id);
            }
        }
        self.due = due;
    }

    /// Acts on the deadlines of those who have had their turn meanwhile.
    pub(in crate::engine) fn judge_late(&mut self) {
        let mut late = std::mem::take(&mut self.late);
        late.retain_mut(|late| {
            let waits = self.awaits_its_turn(late);
            if !waits {
                self.judge(late.id);
            }
            waits
        });
        self.late = late;
    }

    fn has_a_turn_first(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.io.connection(id) else { return false };
        // Nothing that the client of an event stream sends counts for it.
        if matches!((conn.phase, &conn.half), (Phase::Open, Half::EventStream(_))) {
            return false;
        }
        // Its edges may be behind others that have not been noted yet. Who sent nothing is not served: that would count
        // as waiting for memory.
        conn.flags.readable = conn.flags.readable || conn.socket.has_input();
        conn.flags.unread = true;
        self.io.schedule_input(id);
        self.io.connection(id).is_some_and(|conn| conn.flags.in_input || conn.flags.in_flush)
    }

    fn awaits_its_turn(&mut self, late: &mut Late) -> bool {
        let Some(conn) = self.io.connection(late.id) else { return false };
        let was_read = !std::mem::replace(&mut conn.flags.unread, true);
        if conn.flags.in_input && !was_read {
            return true;
        }
        // On a list again: more is left than a turn takes.
        late.turns -= 1;
        late.turns > 0 && (conn.flags.in_input || conn.flags.in_flush)
    }

    fn judge(&mut self, id: ConnId) {
        let now = self.io.now;
        let Some(conn) = self.io.connection(id) else { return };
        let alarm = conn.timers.alarm.is_due(now);
        if alarm {
            conn.timers.alarm = NEVER;
        }
        let deadline = conn.timers.deadline.is_due(now);
        if deadline {
            conn.timers.deadline = NEVER;
        }
        if alarm {
            self.service.on_alarm(&mut self.io, id);
            self.work = Work::Left;
        }
        if deadline {
            self.on_deadline(id);
        }
        self.io.rearm(id);
    }

    fn on_deadline(&mut self, id: ConnId) {
        let Some(conn) = self.io.connection(id) else { return };
        match (conn.phase, &conn.half) {
            (Phase::Open, Half::Http(_)) => self.on_http_deadline(id),
            (Phase::Open, Half::WebSocket(_)) => self.on_websocket_deadline(id),
            (Phase::Open, Half::EventStream(_)) => self.on_event_stream_deadline(id),
            (Phase::Finishing(_) | Phase::Lingering(_), _) => self.on_linger_deadline(id),
            (Phase::Over, _) => {}
        }
    }

    fn on_http_deadline(&mut self, id: ConnId) {
        let now = self.io.now;
        let Some(conn) = self.io.connections.get_mut(id.slot, id.generation) else { return };
        let Half::Http(half) = &conn.half else { return };
        let read_until = conn.progress_at.after(self.io.process.limits.keep_alive_time);
        match half.waiting() {
            WaitingFor::Answer => {}
            WaitingFor::Request | WaitingFor::Head if !conn.flags.counted => self.turn_away(id),
            WaitingFor::Head => self.refuse(id, HttpFault::Timeout),
            WaitingFor::Body => {
                if !self.judge_reception(id) {
                    self.io.watch_reception(id);
                }
            }
            // It is reading a long answer, slowly.
            WaitingFor::Request if !conn.queue.is_empty() && !read_until.is_due(now) => {
                self.io.set_deadline(id, read_until);
            }
            // It does not read the answer it got.
            WaitingFor::Request if !conn.queue.is_empty() => self.io.end(id, Ending::Timeout),
            WaitingFor::Request => self.io.end(id, Ending::Idle),
            WaitingFor::Discard => self.io.end(id, Ending::Timeout),
        }
    }

    fn on_websocket_deadline(&mut self, id: ConnId) {
        if self.judge_reception(id) {
            return;
        }
        let now = self.io.now;
        let awake_since = self.io.awake_since;
        let mut replies = std::mem::take(&mut self.replies);
        let Some(conn) = self.io.connection(id) else { return };
        let is_read = conn.takes_input() && !conn.flags.starved;
        let (progress_at, strict) = (conn.progress_at, conn.flags.strict);
        let Half::WebSocket(half) = &mut conn.half else { return };
        if half.is_open() {
            match half.on_deadline(now, awake_since, is_read, &mut replies) {
                Silence::TooLong => self.io.end(id, Ending::Silent),
                Silence::Ping(next) | Silence::Until(next) => {
                    self.io.queue(id, |out| out.extend_from_slice(&replies));
                    self.io.set_deadline(id, next);
                    self.io.watch_reception(id);
                }
            }
        } else {
            // CLOSING: the peer has its time from the moment the socket took our close frame.
            let until = progress_at.after(CLOSE_TIME);
            if strict || until.is_due(now) {
                self.io.end(id, Ending::Service);
            } else {
                self.io.set_deadline(id, until);
            }
        }
        replies.clear();
        self.replies = replies;
    }

    fn on_event_stream_deadline(&mut self, id: ConnId) {
        let now = self.io.now;
        let mut heartbeat = std::mem::take(&mut self.replies);
        let Some(conn) = self.io.connection(id) else { return };
        let idle = conn.queue.is_empty();
        if let Half::EventStream(half) = &mut conn.half {
            half.on_deadline(now, idle, &mut heartbeat);
            let next = half.deadline();
            self.io.queue(id, |out| out.extend_from_slice(&heartbeat));
            self.io.set_deadline(id, next);
        }
        heartbeat.clear();
        self.replies = heartbeat;
    }

    fn on_linger_deadline(&mut self, id: ConnId) {
        let now = self.io.now;
        let Some(conn) = self.io.connection(id) else { return };
        let (Phase::Finishing(linger) | Phase::Lingering(linger)) = conn.phase else { return };
        let until = linger.deadline(conn.progress_at);
        if linger.is_extensible() && !until.is_due(now) {
            self.io.set_deadline(id, until);
        } else {
            self.io.end(id, Ending::Complete);
        }
    }
}
