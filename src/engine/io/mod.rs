//! A core's connections, and the means to act on them.
//!
//! Owns everything of a core but its service and its poll, so that the service can be called with it. Nothing here
//! calls the service back: what it has to hear of (drained queues, connections that are over) is put on a list, and
//! `core/` tells it between calls.
//!
//! - Lists hold [`ConnId`]s and may name connections that are gone; a flag in the connection keeps it on a list once.
//! - Every connection with bytes queued is on a flush list, or its socket is full and it is on `lagging`.
//! - A connection that has ended (on `ended`) takes nothing more.

mod flush;
mod outbox;
pub(super) mod pacing;
pub(super) mod receiving;

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use crate::base::slab::Slab;
use crate::base::time::{Deadline, Now};
use crate::base::timer_wheel::TimerWheel;
use crate::engine::blocks::Blocks;
use crate::engine::connection::websocket::WebSocket;
use crate::engine::connection::{Connection, Half, Linger, NEVER, Phase};
use crate::engine::mailbox::Mailbox;
use crate::engine::process::{Favour, Process};
use crate::engine::service::{ConnId, CoreId, Ending, GROUPS, Mail, Response, Terms, WebSocketUpgrade};
use crate::engine::socket::Socket;
use crate::limits::{CLOSE_TIME, DISCARD_TIME, RECEIVE_BYTES_FREE, TIMER_TICK_MS};
use crate::ops::metrics::{CoreMetrics, Endpoint, RequestLabels, StatusClass};
use crate::wire::http1::response::{
    Field, ReplyTo, encode_interim_continue, encode_response, encode_switch_to_websocket,
};
use crate::wire::http1::{Date, Version};

/// The buffer for what is about to be queued keeps no more room than this.
const SCRATCH_BYTES_KEPT: usize = 64 << 10;

/// The timers of one core's connections.
pub(in crate::engine) type Wheel = TimerWheel<ConnId, TIMER_TICK_MS>;

/// See the module.
#[derive(Debug)]
pub(in crate::engine) struct Io<M> {
    pub(in crate::engine) now: Now,
    /// When the core last began to run again after it had stood still.
    pub(in crate::engine) awake_since: Now,
    /// When this turn began, by the wall clock.
    pub(in crate::engine) time_of_day: SystemTime,
    /// The same to the second, for responses.
    pub(in crate::engine) date: Date,
    pub(in crate::engine) core: CoreId,
    pub(in crate::engine) process: Arc<Process>,
    pub(in crate::engine) metrics: Arc<CoreMetrics>,
    pub(in crate::engine) connections: Slab<Connection>,
    pub(in crate::engine) blocks: Blocks,
    pub(in crate::engine) wheel: Wheel,
    pub(in crate::engine) mailbox: Mailbox<M>,
    pub(in crate::engine) lists: Lists,
    /// The process drains: every answer is the last of its connection.
    pub(in crate::engine) draining: bool,
    /// The cores whose ingest lane the service has asked about in this turn, a bit each, by group.
    pub(in crate::engine) asked: Cell<[u64; GROUPS]>,
    /// Whose message the service is hearing, unless it has resumed that connection in the same call.
    pub(in crate::engine) heard: Option<ConnId>,
    /// Connections without a place that are not over yet (`core/accept.rs`), the eldest first.
    pub(in crate::engine) guests: VecDeque<ConnId>,
    /// Where `flush.rs` copies small parts together.
    pub(in crate::engine) gathered: Vec<u8>,
    scratch: Vec<u8>,
}

/// Connections with something to do.
#[derive(Debug, Default)]
pub(in crate::engine) struct Lists {
    /// Input may be there and can be used.
    pub(in crate::engine) input: VecDeque<ConnId>,
    /// Input is there; the process receives too much already. Who has waited longest comes first.
    pub(in crate::engine) starved: VecDeque<ConnId>,
    /// Answers are queued: these go first.
    pub(in crate::engine) answers: VecDeque<ConnId>,
    /// Messages are queued.
    pub(in crate::engine) consumers: VecDeque<ConnId>,
    /// Bytes are queued and the socket is full.
    pub(in crate::engine) lagging: Vec<ConnId>,
    /// More bytes are queued than a consumer that keeps up ever has.
    pub(in crate::engine) heavy: Vec<ConnId>,
    /// The queue has run empty, which the service wants to know.
    pub(in crate::engine) drained: Vec<ConnId>,
    /// Its end is decided, which the service does not know yet.
    pub(in crate::engine) closing: Vec<ConnId>,
    /// It is over.
    pub(in crate::engine) ended: Vec<ConnId>,
}

impl<M: Mail> Io<M> {
    pub(in crate::engine) fn new(
        core: CoreId,
        process: Arc<Process>,
        metrics: Arc<CoreMetrics>,
        mailbox: Mailbox<M>,
        time_of_day: SystemTime,
    ) -> Self {
        Self {
            now: Now(0),
            awake_since: Now(0),
            time_of_day,
            date: Date::at(time_of_day),
            core,
            process,
            metrics,
            connections: Slab::new(),
            blocks: Blocks::default(),
            wheel: Wheel::new(),
            mailbox,
            lists: Lists::default(),
            draining: false,
            asked: Cell::default(),
            heard: None,
            guests: VecDeque::new(),
            gathered: Vec::new(),
            scratch: Vec::new(),
        }
    }

    pub(in crate::engine) fn connection(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.connections.get_mut(id.slot, id.generation)
    }

    /// The name of the connection among all cores.
    pub(in crate::engine) const fn favour(&self, id: ConnId) -> Favour {
        Favour::of(self.core, id)
    }

    // ── time ──

    /// Sets the engine's deadline of a connection.
    pub(in crate::engine) fn set_deadline(&mut self, id: ConnId, deadline: Deadline) {
        if let Some(conn) = self.connections.get_mut(id.slot, id.generation) {
            conn.timers.deadline = deadline;
            arm(&mut self.wheel, conn, id);
        }
    }

    /// The entry of the wheel has come back: another one, if a deadline is left.
    pub(in crate::engine) fn rearm(&mut self, id: ConnId) {
        if let Some(conn) = self.connections.get_mut(id.slot, id.generation) {
            arm(&mut self.wheel, conn, id);
        }
    }

    // ── input ──

    /// Puts a connection on the input list if it has input that can be used.
    pub(in crate::engine) fn schedule_input(&mut self, id: ConnId) {
        if let Some(conn) = self.connections.get_mut(id.slot, id.generation)
            && !conn.flags.in_input
            && !conn.flags.starved
            && conn.has_input()
            && conn.takes_input()
        {
            conn.flags.in_input = true;
            self.lists.input.push_back(id);
        }
    }

    /// Brings what the connection counts for in the process up to date.
    pub(in crate::engine) fn count_receiving(&mut self, id: ConnId) {
        if let Some(conn) = self.connections.get_mut(id.slot, id.generation) {
            let now = conn.held_bytes();
            if now != conn.receiving_bytes {
                count_receiving(&self.process, &self.metrics, conn.receiving_bytes, now);
                conn.receiving_bytes = now;
            }
            let borrows = conn.is_borrowing();
            let borrowed = std::mem::replace(&mut conn.flags.borrows, borrows);
            self.process.count_borrower(borrowed, borrows);
            if conn.received_bytes().is_none_or(|received| received < RECEIVE_BYTES_FREE) {
                self.process.unfavour(Favour::of(self.core, id), self.now);
            }
        }
    }

    // ── output ──

    /// Queues bytes of the engine's own, whatever the connection's phase.
    pub(in crate::engine) fn queue(&mut self, id: ConnId, encode: impl FnOnce(&mut Vec<u8>)) {
        self.scratch.clear();
        encode(&mut self.scratch);
        self.queue_scratch(id, false);
    }

    /// Frames that the WebSocket half asked for were queued.
    pub(in crate::engine) fn after_replies(&mut self, id: ConnId) {
        if let Some(conn) = self.connection(id)
            && let Half::WebSocket(half) = &mut conn.half
        {
            half.on_replies_queued(conn.queue.bytes());
        }
    }

    /// Queues an HTTP head and what comes with it.
    pub(in crate::engine) fn queue_head(&mut self, id: ConnId, encode: impl FnOnce(&mut Vec<u8>)) {
        self.scratch.clear();
        encode(&mut self.scratch);
        self.queue_scratch(id, true);
    }

    fn queue_scratch(&mut self, id: ConnId, is_head: bool) {
        if !self.scratch.is_empty()
            && let Some(conn) = self.connections.get_mut(id.slot, id.generation)
        {
            let run = self.blocks.write_own(&self.scratch);
            if conn.queue.is_empty() {
                conn.progress_at = self.now;
            }
            if is_head {
                conn.queue.push_head(&mut self.blocks, run);
            } else {
                let queued = conn.queue.push(&mut self.blocks, run, 0);
                debug_assert!(queued, "bytes are written in the turn that queues them");
            }
            self.schedule_flush(id);
        }
        self.scratch.clear();
        self.scratch.shrink_to(SCRATCH_BYTES_KEPT);
    }

    /// Puts a connection on its flush list, if its socket may take something.
    pub(in crate::engine) fn schedule_flush(&mut self, id: ConnId) {
        let Some(conn) = self.connections.get_mut(id.slot, id.generation) else { return };
        if !conn.flags.writable || conn.flags.in_flush || conn.phase == Phase::Over {
            return;
        }
        conn.flags.in_flush = true;
        match conn.half {
            Half::Http(_) => self.lists.answers.push_back(id),
            Half::WebSocket(_) | Half::EventStream(_) => self.lists.consumers.push_back(id),
        }
    }

    /// The socket takes bytes again.
    pub(in crate::engine) fn on_writable(&mut self, id: ConnId, now: Now) {
        let Some(conn) = self.connections.get_mut(id.slot, id.generation) else { return };
        let was_full = !std::mem::replace(&mut conn.flags.writable, true);
        if was_full && let Half::WebSocket(half) = &mut conn.half {
            // Room in a full socket is a sign of life: the peer has acknowledged something.
            half.on_heard(now);
        }
        if !conn.queue.is_empty() {
            self.schedule_flush(id);
        }
    }

    /// The connection with the largest backlog, and its size.
    pub(in crate::engine) fn largest_backlog(&self) -> Option<(ConnId, usize)> {
        let of =
            |id: &ConnId| self.connections.get(id.slot, id.generation).map_or(0, |conn| conn.queue.backlog_bytes());
        let lists = self.lists.lagging.iter().chain(&self.lists.consumers);
        lists.map(|id| (*id, of(id))).max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > 0)
    }

    // ── answers ──

    /// Answers the request that awaits it; nothing if none does.
    pub(in crate::engine) fn answer(&mut self, id: ConnId, response: &Response, ending: Ending) {
        let (draining, date) = (self.draining, self.date);
        let Some(conn) = self.connection(id) else { return };
        let is_guest = !conn.flags.counted;
        let Half::Http(half) = &mut conn.half else { return };
        let Some((to, terms)) = half.answer(response.close || draining || is_guest) else {
            debug_assert!(false, "a request is answered once");
            return;
        };
        let fields = self.answered(terms.as_ref(), response.status);
        let fields = [fields, &response.fields];
        self.queue(id, |out| encode_response(out, to, date, response.status, fields, &response.body));
        if to.keep_alive {
            self.await_request(id);
        } else {
            self.finish(id, if draining { Ending::Drain } else { ending });
        }
    }

    /// Writes the one answer to a fresh connection that cannot be heard, here and now. Whether it was taken: a socket
    /// that has taken nothing yet takes it whole, unless it is broken.
    pub(in crate::engine) fn write_refusal(&mut self, socket: &mut Socket, terms: &Terms, response: &Response) -> bool {
        self.scratch.clear();
        let fields = [self.answered(Some(terms), response.status), &response.fields];
        // Nothing is known of its client.
        let to = ReplyTo { version: Version::Http11, keep_alive: false, head: false };
        encode_response(&mut self.scratch, to, self.date, response.status, fields, &response.body);
        let written = socket.write(&self.scratch).unwrap_or(0);
        self.metrics.writes.increment();
        self.metrics.bytes_out.add(written as u64);
        socket.shut_write();
        written == self.scratch.len()
    }

    /// Counts an answer under its terms. Returns the fields that it bears by them.
    pub(in crate::engine) fn answered<'a>(&self, terms: Option<&'a Terms>, status: u16) -> &'a [Field] {
        let endpoint = terms.map_or(Endpoint::Other, |terms| terms.endpoint);
        self.metrics.requests.increment(RequestLabels { endpoint, status: StatusClass::of(status) });
        terms.map_or(&[], |terms| &terms.fields)
    }

    /// Asks for the content that the client holds back.
    pub(in crate::engine) fn ask_for_content(&mut self, id: ConnId) {
        self.queue(id, encode_interim_continue);
    }

    /// An answer was given; the next request has its time.
    pub(in crate::engine) fn await_request(&mut self, id: ConnId) {
        let now = self.now;
        let keep_alive_time = self.process.limits.keep_alive_time;
        let Some(conn) = self.connection(id) else { return };
        let discarding = matches!(&conn.half, Half::Http(half) if half.is_discarding());
        self.set_deadline(id, now.after(if discarding { DISCARD_TIME } else { keep_alive_time }));
        self.schedule_input(id);
    }

    /// Speaks WebSocket from now on. The request awaits its answer.
    pub(in crate::engine) fn upgrade(&mut self, id: ConnId, upgrade: &WebSocketUpgrade) {
        let (now, date) = (self.now, self.date);
        let Some(conn) = self.connection(id) else { return };
        let Half::Http(half) = &mut conn.half else { return };
        let Some((_, terms)) = half.answer(true) else {
            debug_assert!(false, "a request is answered once");
            return;
        };
        let fields = self.answered(terms.as_ref(), 101);
        self.queue_head(id, |out| encode_switch_to_websocket(out, &upgrade.accept, date, fields));
        self.become_half(id, Half::WebSocket(WebSocket::new(upgrade, now)));
        self.set_deadline(id, now.after(upgrade.ping_interval.min(upgrade.silence_max)));
    }

    pub(in crate::engine) fn become_half(&mut self, id: ConnId, half: Half) {
        if let Some(conn) = self.connections.get_mut(id.slot, id.generation) {
            self.metrics.connections.lower(conn.kind());
            let backlog = conn.queue.backlog_bytes();
            self.process.count_backlog(conn.group(), backlog, 0);
            conn.half = half;
            self.process.count_backlog(conn.group(), 0, backlog);
            self.metrics.connections.raise(conn.kind());
        }
    }

    // ── ends ──

    /// What is queued is the last: it is written, then the peer has its time to read it and to end.
    pub(in crate::engine) fn finish(&mut self, id: ConnId, ending: Ending) {
        let Some(conn) = self.connections.get(id.slot, id.generation) else { return };
        let linger = match conn.half {
            _ if !conn.flags.counted => Linger::strict(CLOSE_TIME),
            // A client that is still sending a request which was refused gets longer: it may read our answer only
            // afterwards.
            Half::Http(_) if !self.draining => Linger::new(DISCARD_TIME),
            _ => Linger::new(CLOSE_TIME),
        };
        self.finish_within(id, ending, linger);
    }

    /// The same with a patience of its own.
    pub(in crate::engine) fn finish_within(&mut self, id: ConnId, ending: Ending, linger: Linger) {
        let now = self.now;
        let Some(conn) = self.connection(id) else { return };
        if conn.phase == Phase::Open {
            conn.phase = Phase::Finishing(linger);
            conn.leftover = None;
            conn.flags.starved = false;
            self.decide_end(id, ending);
            self.set_deadline(id, linger.deadline(now));
            self.count_receiving(id);
            self.schedule_flush(id);
            self.schedule_input(id);
        }
    }

    /// The connection is over at once.
    pub(in crate::engine) fn end(&mut self, id: ConnId, ending: Ending) {
        if let Some(conn) = self.connections.get_mut(id.slot, id.generation)
            && conn.phase != Phase::Over
        {
            conn.phase = Phase::Over;
            self.decide_end(id, ending);
            self.lists.ended.push(id);
        }
    }

    /// The connection is to end, for that reason unless there was another. The service is told once, by the core.
    pub(in crate::engine) fn decide_end(&mut self, id: ConnId, ending: Ending) {
        if let Some(conn) = self.connections.get_mut(id.slot, id.generation)
            && conn.ending.is_none()
        {
            conn.ending = Some(ending);
            conn.timers.alarm = NEVER;
            if conn.flags.known {
                self.lists.closing.push(id);
            }
        }
    }
}

/// What a connection holds of requests and messages that are not complete has changed: the process's count and the
/// core's metric follow.
pub(in crate::engine) fn count_receiving(process: &Process, metrics: &CoreMetrics, before: usize, now: usize) {
    process.count_receiving(before, now);
    metrics.receiving_bytes.raise(now.saturating_sub(before) as u64);
    metrics.receiving_bytes.lower(before.saturating_sub(now) as u64);
}

/// A connection's backlog has changed: the process's count and the core's metric follow.
#[inline]
pub(in crate::engine) fn count_backlog(process: &Process, metrics: &CoreMetrics, conn: &Connection, before: usize) {
    let now = conn.queue.backlog_bytes();
    if before != now {
        process.count_backlog(conn.group(), before, now);
        metrics.backlog_bytes.raise(now.saturating_sub(before) as u64);
        metrics.backlog_bytes.lower(before.saturating_sub(now) as u64);
    }
}

pub(in crate::engine) fn arm(wheel: &mut Wheel, conn: &mut Connection, id: ConnId) {
    let next = conn.timers.next();
    if next < conn.timers.armed {
        conn.timers.armed = next;
        wheel.insert(next, id);
    }
}
