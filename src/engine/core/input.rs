//! Reading connections, and handing what they bring to the service.
//!
//! Owns the order of things on the way in: the room for what comes (`io/receiving.rs`), the read, the half that
//! decodes, the call of the service, the deadline that follows. Decoding itself is the halves' business.
//!
//! - The read buffer belongs to the core; what a connection cannot use is copied into a [`Leftover`] of its own: the
//!   part of a head that has come, or what lies behind a message after which the service parked the connection.
//! - Input is used in order: an unread leftover comes before the next read, and a connection that may not be read
//!   ([`Connection::takes_input`]) is left alone; its readiness is remembered.
//! - A connection gets [`CONNECTION_BYTES_MAX`] of a turn, all together [`TURN_BYTES_MAX`]; the rest stays on the list.
//!
//! [`Connection::takes_input`]: crate::engine::connection::Connection::takes_input

use tracing::debug;

use crate::engine::connection::http;
use crate::engine::connection::reception::CONNECTION_BYTES_MAX;
use crate::engine::connection::websocket;
use crate::engine::connection::{Half, Leftover, NEVER, Phase};
use crate::engine::core::Core;
use crate::engine::service::{ConnId, Ending, Flow, HttpFault, Message, Outbox, Service, Verdict};
use crate::engine::socket::Received;
use crate::wire::http1::RequestHead;

/// What all connections may bring in one turn.
const TURN_BYTES_MAX: usize = 4 << 20;

/// What became of input.
struct Fed {
    /// Bytes used up.
    used: usize,
    /// The rest waits for more bytes (otherwise it waits to be looked at).
    partial: bool,
}

impl<S: Service> Core<S> {
    /// Serves connections that have input, within the budget of a turn.
    pub(in crate::engine) fn read(&mut self) {
        self.io.wake_waiting();
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut left = TURN_BYTES_MAX;
        for _ in 0..self.io.lists.input.len() {
            if left == 0 {
                break;
            }
            let Some(id) = self.io.lists.input.pop_front() else { break };
            left = left.saturating_sub(self.serve(id, &mut buffer));
        }
        self.buffer = buffer;
    }

    /// Serves that one connection now.
    pub(in crate::engine) fn read_one(&mut self, id: ConnId) {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.serve(id, &mut buffer);
        self.buffer = buffer;
    }

    /// Uses a connection's input up, within its budget. Returns the bytes read.
    fn serve(&mut self, id: ConnId, buffer: &mut [u8]) -> usize {
        let Some(conn) = self.io.connection(id) else { return 0 };
        conn.flags.in_input = false;
        conn.flags.unread = false;
        let mut read = 0;
        loop {
            let room = self.io.room_for(id);
            let Some(conn) = self.io.connections.get_mut(id.slot, id.generation) else { return read };
            if !conn.has_input() || !conn.takes_input() {
                break;
            }
            if read >= CONNECTION_BYTES_MAX {
                self.io.schedule_input(id);
                break;
            }
            if room == 0 {
                self.io.wait_for_room(id);
                break;
            }
            let unread = conn.leftover.take_if(|leftover| !leftover.partial);
            if let Some(leftover) = unread {
                self.use_leftover(id, leftover);
                self.io.note_received(id, 0);
                continue;
            }
            match self.read_once(id, buffer.get_mut(..room).unwrap_or_default()) {
                Some(bytes) => read += bytes,
                None => break,
            }
        }
        self.io.metrics.bytes_in.add(read as u64);
        self.io.count_receiving(id);
        self.io.watch_reception(id);
        read
    }

    /// Reads, and uses up what was read. Returns how many bytes; `None` when no more will come.
    fn read_once(&mut self, id: ConnId, buffer: &mut [u8]) -> Option<usize> {
        let conn = self.io.connections.get_mut(id.slot, id.generation)?;
        match conn.socket.read(buffer) {
            Ok(Received::Bytes(bytes)) => {
                // A short read has emptied the socket, unless the peer's end is still to be read; then no edge comes.
                conn.flags.readable = bytes == buffer.len() || conn.flags.peer_ended;
                self.on_bytes(id, buffer.get_mut(..bytes).unwrap_or_default());
                self.io.note_received(id, bytes);
                Some(bytes)
            }
            Ok(Received::WouldBlock) => {
                conn.flags.readable = false;
                Some(0)
            }
            Ok(Received::End) => {
                conn.flags.readable = false;
                conn.flags.peer_ended = true;
                self.on_end(id);
                None
            }
            Err(error) => {
                debug!(slot = id.slot, %error, "read failed");
                self.io.end(id, Ending::SocketError);
                None
            }
        }
    }

    fn on_bytes(&mut self, id: ConnId, input: &mut [u8]) {
        let now = self.io.now;
        let Some(conn) = self.io.connection(id) else { return };
        if let Half::WebSocket(half) = &mut conn.half {
            half.on_heard(now);
        }
        if let Some(mut leftover) = conn.leftover.take() {
            leftover.bytes.extend_from_slice(input);
            self.use_leftover(id, leftover);
            return;
        }
        let fed = self.feed(id, input);
        let rest = input.get(fed.used..).unwrap_or_default();
        if !rest.is_empty()
            && let Some(conn) = self.io.connection(id)
        {
            conn.leftover = Some(Box::new(Leftover { bytes: rest.to_vec(), start: 0, partial: fed.partial }));
        }
    }

    fn use_leftover(&mut self, id: ConnId, mut leftover: Box<Leftover>) {
        let fed = self.feed(id, leftover.rest());
        leftover.start += fed.used;
        leftover.partial = fed.partial;
        if leftover.rest().is_empty() {
            return;
        }
        if leftover.partial {
            leftover.bytes.drain(..std::mem::take(&mut leftover.start));
        }
        if let Some(conn) = self.io.connection(id) {
            conn.leftover = Some(leftover);
        }
    }

    /// Uses input up as far as it goes.
    fn feed(&mut self, id: ConnId, input: &mut [u8]) -> Fed {
        let mut used = 0;
        loop {
            let rest = input.get_mut(used..).unwrap_or_default();
            let Some(conn) = self.io.connection(id) else { return Fed { used: input.len(), partial: false } };
            match &mut conn.phase {
                Phase::Open => {}
                Phase::Finishing(linger) | Phase::Lingering(linger) => {
                    if !linger.discard(rest.len()) {
                        self.io.end(id, Ending::Complete);
                    }
                    return Fed { used: input.len(), partial: false };
                }
                Phase::Over => return Fed { used: input.len(), partial: false },
            }
            if !conn.takes_input() {
                return Fed { used, partial: false };
            }
            let (bytes, needs_more) = match &conn.half {
                Half::Http(_) => self.feed_http(id, rest),
                Half::WebSocket(_) => self.feed_websocket(id, rest),
                Half::EventStream(_) => self.feed_event_stream(id, rest),
            };
            used += bytes;
            if needs_more {
                return Fed { used, partial: true };
            }
        }
    }

    /// One step of the HTTP half: bytes used, and whether it needs more.
    fn feed_http(&mut self, id: ConnId, input: &[u8]) -> (usize, bool) {
        let Some(conn) = self.io.connections.get_mut(id.slot, id.generation) else { return (input.len(), false) };
        let Half::Http(half) = &mut conn.half else { return (0, false) };
        let had_begun = half.has_partial_head();
        let (used, step) = half.next(input, &self.io.process.limits);
        match step {
            http::HttpStep::Need => {
                // A head has its time from its first byte on; a guest's whole time runs from the accept.
                if !had_begun && half.has_partial_head() && conn.flags.counted {
                    self.io.set_deadline(id, self.io.now.after(self.io.process.limits.head_time));
                }
                return (used, true);
            }
            http::HttpStep::Discarded => self.io.await_request(id),
            http::HttpStep::Request(head) => self.on_request(id, &head, used < input.len()),
            http::HttpStep::Body { tag, body } => {
                self.io.set_deadline(id, NEVER);
                self.service.on_body(&mut self.io, id, tag, body);
            }
            http::HttpStep::Fault(fault) => self.refuse(id, fault),
            http::HttpStep::Abandon => self.io.finish(id, Ending::ProtocolError),
        }
        (used, false)
    }

    fn on_request(&mut self, id: ConnId, head: &RequestHead<'_>, content_has_come: bool) {
        let terms = self.service.terms(Some(head));
        let Some(conn) = self.io.connection(id) else { return };
        let is_guest = !conn.flags.counted;
        if let Half::Http(half) = &mut conn.half {
            half.set_terms(terms);
        }
        if head.expect_other {
            self.refuse(id, HttpFault::Expectation);
            return;
        }
        if self.io.draining {
            self.refuse(id, HttpFault::Draining);
            return;
        }
        if is_guest && !self.service.answers_guests(head) {
            self.turn_away(id);
            return;
        }
        if let Some(conn) = self.io.connection(id) {
            conn.flags.known = true;
            if let Half::Http(half) = &mut conn.half {
                half.note_heard();
            }
        }
        self.io.set_deadline(id, NEVER);
        match self.service.on_request(&mut self.io, id, head) {
            Verdict::Respond(response) => self.io.respond(id, response),
            Verdict::ReadBody { tag, bytes_max } => self.read_body(id, tag, bytes_max, content_has_come),
            Verdict::Later => {}
            Verdict::Upgrade(upgrade) => {
                let has_content = self.io.connection(id).is_some_and(|conn| match &conn.half {
                    Half::Http(half) => half.has_unread_content(),
                    Half::WebSocket(_) | Half::EventStream(_) => false,
                });
                if has_content {
                    self.refuse(id, HttpFault::Malformed("an upgrade with content"));
                } else {
                    self.io.upgrade(id, &upgrade);
                }
            }
        }
    }

    fn read_body(&mut self, id: ConnId, tag: u32, bytes_max: usize, content_has_come: bool) {
        let now = self.io.now;
        let body_time = self.io.process.limits.body_time;
        let Some(conn) = self.io.connection(id) else { return };
        let Half::Http(half) = &mut conn.half else { return };
        match half.read_body(tag, bytes_max, now, body_time) {
            Ok(client_waits) => {
                self.io.set_deadline(id, now.after(body_time));
                if client_waits && !content_has_come {
                    self.io.ask_for_content(id);
                }
            }
            Err(fault) => self.refuse(id, fault),
        }
    }

    /// Answers a request that cannot be served, for the last time on its connection.
    pub(in crate::engine) fn refuse(&mut self, id: ConnId, fault: HttpFault) {
        let Some(conn) = self.io.connection(id) else { return };
        let Half::Http(half) = &mut conn.half else { return };
        half.fail();
        if !half.has_terms() {
            half.set_terms(self.service.terms(None));
        }
        let response = self.service.refusal(fault, half.is_heard().then_some(id));
        self.io.answer(id, &response, ending_of(fault));
    }

    /// One step of the WebSocket half.
    fn feed_websocket(&mut self, id: ConnId, input: &mut [u8]) -> (usize, bool) {
        let draining = self.io.draining;
        let Some(conn) = self.io.connection(id) else { return (input.len(), false) };
        let Half::WebSocket(half) = &mut conn.half else { return (0, false) };
        let mut replies = std::mem::take(&mut self.replies);
        let (used, step) = half.next(input, &mut replies);
        if !replies.is_empty() {
            self.io.queue(id, |out| out.extend_from_slice(&replies));
            self.io.after_replies(id);
            replies.clear();
        }
        self.replies = replies;
        self.io.heard = Some(id);
        let flow = match step {
            websocket::WebSocketStep::Need => return (used, true),
            websocket::WebSocketStep::Text(mut text) if !draining => {
                self.service.on_message(&mut self.io, id, Message::Text(&mut text))
            }
            websocket::WebSocketStep::TooLarge if !draining => {
                self.service.on_message(&mut self.io, id, Message::TooLarge)
            }
            websocket::WebSocketStep::Text(_) | websocket::WebSocketStep::TooLarge | websocket::WebSocketStep::Done => {
                Flow::Continue
            }
            websocket::WebSocketStep::Closed(ending) => {
                self.io.finish(id, ending);
                Flow::Continue
            }
        };
        if flow == Flow::Park
            && self.io.heard == Some(id)
            && let Some(conn) = self.io.connection(id).filter(|conn| conn.takes_pushes())
        {
            conn.flags.parked = true;
        }
        (used, false)
    }

    fn feed_event_stream(&mut self, id: ConnId, input: &[u8]) -> (usize, bool) {
        let Some(conn) = self.io.connection(id) else { return (input.len(), false) };
        let Half::EventStream(half) = &mut conn.half else { return (0, false) };
        if !half.discard(input.len()) {
            self.io.end(id, Ending::ProtocolError);
        }
        (input.len(), true)
    }

    /// The peer sends nothing more.
    fn on_end(&mut self, id: ConnId) {
        let Some(conn) = self.io.connections.get_mut(id.slot, id.generation) else { return };
        match (&conn.half, conn.phase) {
            (_, Phase::Lingering(_)) => self.io.end(id, Ending::Complete),
            (_, Phase::Finishing(_) | Phase::Over) => {}
            // A body cut off brings nothing; a client that still reads answers to what it sent before gets them.
            (Half::Http(_), Phase::Open) if conn.queue.is_empty() => self.io.end(id, Ending::Peer),
            (Half::Http(_), Phase::Open) => self.io.finish(id, Ending::Peer),
            (Half::EventStream(_), Phase::Open) => self.on_event_stream_client_end(id),
            // A WebSocket without a close frame is broken.
            (Half::WebSocket(_), Phase::Open) => self.io.end(id, Ending::Peer),
        }
    }

    /// A stream's client that has ended its side is served on until a write meets a reset, or nobody: either comes back
    /// here as another end.
    fn on_event_stream_client_end(&mut self, id: ConnId) {
        let now = self.io.now;
        let mut probe = std::mem::take(&mut self.replies);
        let Some(conn) = self.io.connection(id) else { return };
        let idle = conn.queue.is_empty();
        if conn.socket.has_failed() {
            self.io.end(id, Ending::Peer);
        } else if let Half::EventStream(half) = &mut conn.half {
            half.on_client_end(now, idle, &mut probe);
            self.io.queue(id, |out| out.extend_from_slice(&probe));
        }
        probe.clear();
        self.replies = probe;
    }
}

const fn ending_of(fault: HttpFault) -> Ending {
    match fault {
        HttpFault::Timeout => Ending::Timeout,
        HttpFault::Busy | HttpFault::NoRoom => Ending::Refused,
        HttpFault::Draining => Ending::Drain,
        HttpFault::BodyTooLarge(_) | HttpFault::Expectation => Ending::Complete,
        HttpFault::Malformed(_)
        | HttpFault::Version
        | HttpFault::UriTooLong
        | HttpFault::HeadTooLarge
        | HttpFault::TooManyFields => Ending::ProtocolError,
    }
}
