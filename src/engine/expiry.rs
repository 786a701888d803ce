//! Deadlines that have come: what each means depends on what its connection waits for.
//!
//! Owns the table from state to consequence. A connection has one deadline of the engine's and one alarm of the service's;
//! the wheel brings it back for the earlier, and an entry that has become pointless is told by `armed`.

use crate::engine::connection::{Connection, Half, NEVER, Phase};
use crate::engine::core::Core;
use crate::engine::http::Waiting;
use crate::engine::service::{ConnId, Ending, HttpFault, Service};
use crate::engine::websocket::Silence;
use crate::limits::CLOSE_TIME;

/// Whom a deadline asks.
enum Asked {
    Http,
    WebSocket,
    EventStream,
    Farewell,
    Nobody,
}

impl Asked {
    fn of(conn: &Connection) -> Self {
        match (conn.phase, &conn.half) {
            (Phase::Open, Half::Http(_)) => Self::Http,
            (Phase::Open, Half::WebSocket(_)) => Self::WebSocket,
            (Phase::Open, Half::EventStream(_)) => Self::EventStream,
            (Phase::Finishing(_) | Phase::Lingering(_), _) => Self::Farewell,
            (Phase::Over, _) => Self::Nobody,
        }
    }
}

impl<S: Service> Core<S> {
    /// Acts on every deadline that has come.
    pub(super) fn expire(&mut self) {
        let mut due = std::mem::take(&mut self.due);
        self.io.wheel.advance(self.io.now, &mut due);
        for id in due.drain(..) {
            let now = self.io.now;
            let Some(conn) = self.io.connection(id).filter(|conn| conn.timers.armed.is_due(now)) else { continue };
            conn.timers.armed = NEVER;
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
            }
            if deadline {
                self.on_deadline(id);
            }
            self.io.rearm(id);
        }
        self.due = due;
    }

    fn on_deadline(&mut self, id: ConnId) {
        let Some(conn) = self.io.connection(id) else { return };
        match Asked::of(conn) {
            Asked::Http => self.on_http_deadline(id),
            Asked::WebSocket => self.on_websocket_deadline(id),
            Asked::EventStream => self.on_event_stream_deadline(id),
            Asked::Farewell => self.on_farewell_deadline(id),
            Asked::Nobody => {}
        }
    }

    fn on_http_deadline(&mut self, id: ConnId) {
        let now = self.io.now;
        let Some(conn) = self.io.connections.get_mut(id.slot, id.generation) else { return };
        let Half::Http(half) = &conn.half else { return };
        let read_until = conn.progress_at.after(self.io.process.limits.keep_alive_time);
        match half.waiting() {
            Waiting::Answer => {}
            Waiting::Head => self.refuse(id, HttpFault::Timeout),
            Waiting::Body => {
                if !self.judge_reception(id) {
                    self.io.watch_reception(id);
                }
            }
            // It is reading a long answer, slowly.
            Waiting::Request { .. } if !conn.queue.is_empty() && !read_until.is_due(now) => {
                self.io.set_deadline(id, read_until);
            }
            // It does not read the answer it got, or never sent a request.
            Waiting::Request { served } if !served || !conn.queue.is_empty() => self.io.doom(id, Ending::Timeout),
            Waiting::Request { .. } => self.io.doom(id, Ending::Idle),
            Waiting::Discard => self.io.doom(id, Ending::Timeout),
        }
    }

    fn on_websocket_deadline(&mut self, id: ConnId) {
        if self.judge_reception(id) {
            return;
        }
        let now = self.io.now;
        let mut replies = std::mem::take(&mut self.replies);
        let Some(conn) = self.io.connection(id) else { return };
        let is_read = conn.takes_input() && !conn.flags.starved;
        let (progress_at, strict) = (conn.progress_at, conn.flags.strict);
        let Half::WebSocket(half) = &mut conn.half else { return };
        if half.is_open() {
            match half.on_deadline(now, is_read, &mut replies) {
                Silence::TooLong => self.io.doom(id, Ending::Silent),
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
                self.io.doom(id, Ending::Service);
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

    fn on_farewell_deadline(&mut self, id: ConnId) {
        let now = self.io.now;
        let Some(conn) = self.io.connection(id) else { return };
        let (Phase::Finishing(farewell) | Phase::Lingering(farewell)) = conn.phase else { return };
        let until = farewell.deadline(conn.progress_at);
        if farewell.is_extensible() && !until.is_due(now) {
            self.io.set_deadline(id, until);
        } else {
            self.io.doom(id, Ending::Complete);
        }
    }
}
