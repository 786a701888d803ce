//! One core: a thread, its poll, its connections, its service; and the turn that it does over and over.
//!
//! Owns the order of a turn (see the parent module) and the clock: it is read at both ends of a turn, here and nowhere
//! else; everybody else is handed [`Now`]. The time of day is read where a turn begins; it is told to people, and no
//! deadline depends on it.
//!
//! Invariant: the core does not sleep while anything waits that no event will announce: input or output left over from
//! a budget, mail, a service with work left. Before it sleeps it raises its flag and looks once more, so that nobody
//! has to wake a core that is awake.

pub(super) mod accept;
pub(super) mod drain;
mod expiry;
mod input;
mod receiving;

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use mio::net::TcpListener;
use mio::{Events, Poll};
use tracing::{debug, info};

use crate::base::time::{Deadline, Now};
use crate::engine::connection::reception::CONNECTION_BYTES_MAX;
use crate::engine::core::accept::Migration;
use crate::engine::core::drain::{Drain, Ends, Outcome};
use crate::engine::core::expiry::Late;
use crate::engine::io::{Io, count_backlog, count_receiving};
use crate::engine::listener::Acceptor;
use crate::engine::mailbox::{Letter, Mailbox};
use crate::engine::process::Process;
use crate::engine::reached::Limit;
use crate::engine::service::{ConnId, CoreId, Ending, Outbox, Service, WebSocketClose, Work};
use crate::engine::token;
use crate::limits::STANDSTILL_MIN;
use crate::ops::metrics::{self, CoreMetrics};
use crate::wire::http1::Date;

/// Events taken from one poll; more come with the next.
const EVENTS_MAX: usize = 1024;
/// Letters taken from the ingest lane in one turn. Of fan-out all that is there is taken: it is what makes room.
const INGEST_LETTERS_MAX: usize = 512;
/// How often mail that a core sends itself is delivered within one turn.
const SELF_MAIL_ROUNDS: usize = 4;
/// How long a core sleeps at most while something may change elsewhere without an event.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The clock of the process: all cores count from the same moment.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Clock(Instant);

impl Clock {
    /// Time begins.
    pub(in crate::engine) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time, and exactly.
    fn read(self) -> (Now, Duration) {
        let since = self.0.elapsed();
        (Now(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)), since)
    }

    /// The time of day.
    fn time_of_day() -> SystemTime {
        SystemTime::now()
    }
}

/// What a core is made of.
#[derive(Debug)]
pub(in crate::engine) struct Parts<M> {
    pub(in crate::engine) core: CoreId,
    pub(in crate::engine) poll: Poll,
    pub(in crate::engine) listener: TcpListener,
    pub(in crate::engine) process: Arc<Process>,
    pub(in crate::engine) mailbox: Mailbox<M>,
    pub(in crate::engine) migration: Migration,
    pub(in crate::engine) metrics: Arc<CoreMetrics>,
    pub(in crate::engine) clock: Clock,
}

/// See the module.
#[derive(Debug)]
pub(in crate::engine) struct Core<S: Service> {
    service: S,
    io: Io<S::Mail>,
    drain: Option<Drain>,
    ends: Ends,
    /// What the service said when it was last asked.
    work: Work,
    /// The read buffer.
    buffer: Vec<u8>,
    /// Frames on their way from a half into a queue.
    replies: Vec<u8>,
    /// Connections that the wheel has brought back.
    due: Vec<ConnId>,
    /// Connections whose deadline has come, and that have their turn before they are judged.
    late: Vec<Late>,
    poll: Poll,
    acceptor: Acceptor,
    migration: Migration,
    clock: Clock,
    /// When the last poll ended; none before the first.
    turn_began: Option<Duration>,
    in_debt: bool,
}

impl<S: Service> Core<S> {
    pub(in crate::engine) fn new(parts: Parts<S::Mail>, service: S) -> io::Result<Self> {
        let time_of_day = Clock::time_of_day();
        let acceptor = Acceptor::new(parts.listener, parts.poll.registry())?;
        Ok(Self {
            service,
            io: Io::new(parts.core, parts.process, parts.metrics, parts.mailbox, time_of_day),
            drain: None,
            ends: Ends::default(),
            work: Work::Idle,
            buffer: vec![0; CONNECTION_BYTES_MAX],
            replies: Vec::new(),
            due: Vec::new(),
            late: Vec::new(),
            poll: parts.poll,
            acceptor,
            migration: parts.migration,
            clock: parts.clock,
            turn_began: None,
            in_debt: false,
        })
    }

    /// Turns until the process has drained.
    ///
    /// # Errors
    /// The poll failed: this core can do nothing any more.
    pub(in crate::engine) fn run(mut self) -> io::Result<Outcome> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        self.io.now = self.clock.read().0;
        loop {
            self.poll(&mut events)?;
            if let Some(outcome) = self.turn(&events) {
                return Ok(outcome);
            }
        }
    }

    /// Reads the clock, before and after every sleep, which was to be no longer than `asleep`. Where far more time has
    /// gone by, the core stood still: its process was stopped, or waited for memory to come back from disk. Answers the
    /// time exactly.
    fn read_clock(&mut self, asleep: Option<Duration>) -> Duration {
        let before = self.io.now;
        let (now, exactly) = self.clock.read();
        self.io.now = now;
        if asleep.is_some_and(|asleep| before.after(asleep.saturating_add(STANDSTILL_MIN)).is_due(self.io.now)) {
            info!(core = self.io.core.0, "this core has not run for {} ms", self.io.now.0 - before.0);
            self.io.awake_since = self.io.now;
        }
        exactly
    }

    fn read_time_of_day(&mut self) {
        let time = Clock::time_of_day();
        if second(self.io.time_of_day) != second(time) {
            self.io.date = Date::at(time);
        }
        self.io.time_of_day = time;
    }

    fn poll(&mut self, events: &mut Events) -> io::Result<()> {
        let turn_ended = self.read_clock(Some(Duration::ZERO));
        if let Some(began) = self.turn_began {
            self.io.metrics.turn_seconds.observe(turn_ended.saturating_sub(began));
        }
        let mut timeout = self.timeout();
        let sleeps = timeout != Some(Duration::ZERO);
        if sleeps {
            self.io.mailbox.inbox().before_sleep();
            if self.has_outside_work() {
                timeout = Some(Duration::ZERO);
            }
        }
        let result = self.poll.poll(events, timeout);
        if sleeps {
            self.io.mailbox.inbox().after_sleep();
        }
        // Who sleeps until something happens has no deadline before it.
        self.turn_began = Some(self.read_clock(timeout));
        self.read_time_of_day();
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }

    /// One turn, in the order that the parent module promises.
    fn turn(&mut self, events: &Events) -> Option<Outcome> {
        self.io.metrics.turns.increment();
        self.note(events);
        self.accept();
        self.begin_drain();
        self.expire();
        self.read();
        self.remove_ended();
        self.exchange_mail();
        self.remove_ended();
        self.io.flush();
        self.judge_late();
        self.tell_drained();
        self.cut_backlogs();
        self.io.reclaim_blocks();
        self.io.tidy_lagging();
        let service = &self.service;
        self.in_debt = self.io.pace(|group| service.admits(group));
        self.remove_ended();
        let outcome = self.drain();
        self.io.mailbox.dispatch();
        self.io.asked = Cell::default();
        self.io.blocks.end_turn();
        self.io.metrics.delivery_block_bytes.set(self.io.blocks.bytes_in_use() as u64);
        self.io.metrics.mailbox_bytes.set(self.io.mailbox.bytes() as u64);
        outcome
    }

    // ── sleeping ──

    /// How long to sleep; none: until an event.
    fn timeout(&self) -> Option<Duration> {
        let lists = &self.io.lists;
        let busy = !lists.input.is_empty()
            || !lists.answers.is_empty()
            || !lists.consumers.is_empty()
            || !lists.closing.is_empty()
            || self.acceptor.is_ready()
            || self.work == Work::Left
            || self.takes_mail();
        if busy {
            return Some(Duration::ZERO);
        }
        // Mail that is laid aside may be taken any moment: only the service knows when.
        let looks_again =
            self.work == Work::Held || self.in_debt || !lists.starved.is_empty() || self.io.mailbox.has_laid_aside();
        let timers = [self.io.wheel.next_deadline(), self.service.next_deadline()];
        let deadline = [self.acceptor.retry_at(), self.drain_deadline()].into_iter().chain(timers);
        let sleep = |deadline: Deadline| Duration::from_millis(deadline.0.saturating_sub(self.io.now.0));
        let timer = deadline.flatten().min().map(sleep);
        if looks_again { Some(timer.map_or(LOOK_AGAIN, |timer| timer.min(LOOK_AGAIN))) } else { timer }
    }

    /// What other threads may have brought since the last look.
    fn has_outside_work(&self) -> bool {
        self.takes_mail() || self.is_given_connections() || (self.drain.is_none() && self.io.process.is_draining())
    }

    /// Whether there is mail that the service takes now, or that is to be laid aside.
    fn takes_mail(&self) -> bool {
        self.io.mailbox.has_fanout() || self.io.mailbox.has_ingest(|group| self.service.takes_ingest(group))
    }

    // ── connections ──

    fn note(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                token::WAKER => {}
                token::LISTENER => self.acceptor.on_ready(),
                connection => {
                    let id = token::connection(connection);
                    let now = self.io.now;
                    let Some(conn) = self.io.connection(id) else { continue };
                    if event.is_readable() || event.is_read_closed() || event.is_error() {
                        conn.flags.readable = true;
                        conn.flags.peer_ended |= event.is_read_closed();
                        self.io.schedule_input(id);
                    }
                    if event.is_writable() || event.is_error() {
                        self.io.on_writable(id, now);
                    }
                }
            }
        }
    }

    /// Tells the service of ends that were decided, drops the connections that are over and tells of those too.
    pub(in crate::engine) fn remove_ended(&mut self) {
        // Telling of one end may bring about another.
        loop {
            self.tell_closing();
            let Some(id) = self.io.lists.ended.pop() else { break };
            let Some(mut conn) = self.io.connections.remove(id.slot, id.generation) else { continue };
            let ending = conn.ending.unwrap_or(Ending::Peer);
            conn.socket.deregister(self.poll.registry());
            let backlog = conn.queue.backlog_bytes();
            conn.queue.clear(&mut self.io.blocks);
            count_backlog(&self.io.process, &self.io.metrics, &conn, backlog);
            count_receiving(&self.io.process, &self.io.metrics, conn.receiving_bytes, 0);
            self.io.process.count_borrower(conn.flags.borrows, false);
            self.io.process.unfavour(self.io.favour(id), self.io.now);
            if conn.flags.counted {
                self.io.process.unplace(self.io.core);
                self.io.metrics.connections.lower(conn.kind());
            } else {
                self.io.guests.retain(|guest| *guest != id);
            }
            self.io.metrics.endings.increment(label(ending));
            debug!(slot = id.slot, generation = id.generation, ?ending, "connection over");
            let known = conn.flags.known;
            drop(conn);
            if known {
                self.service.on_gone(&mut self.io, id, ending);
                self.work = Work::Left;
            }
        }
    }

    fn tell_closing(&mut self) {
        while let Some(id) = self.io.lists.closing.pop() {
            self.service.on_closing(&mut self.io, id);
            self.work = Work::Left;
        }
    }

    // ── mail and work ──

    /// Mail out, mail in, and the service's own work; again where it sent itself mail.
    fn exchange_mail(&mut self) {
        self.io.mailbox.dispatch();
        let mut letters = INGEST_LETTERS_MAX;
        for _ in 0..SELF_MAIL_ROUNDS {
            self.take_mail(&mut letters);
            self.work = self.service.on_turn(&mut self.io);
            self.io.mailbox.dispatch();
            // A service with work left has done a turn's worth of it.
            if self.work == Work::Left || !self.takes_mail() || letters == 0 {
                break;
            }
        }
    }

    fn take_mail(&mut self, letters: &mut usize) {
        // What comes meanwhile waits for the next turn: who sends as fast as this core takes would keep it from all
        // else.
        let mut bags = self.io.mailbox.fanout_bags();
        while let Some(letter) = self.io.mailbox.next_fanout(&mut bags) {
            match letter {
                Letter::Mail(from, mail) => self.service.on_mail(&mut self.io, from, mail),
                Letter::End => self.ends.fanout += 1,
            }
        }
        while *letters > 0
            && let Some(letter) = self.io.mailbox.next_ingest(|group| self.service.takes_ingest(group))
        {
            *letters -= 1;
            match letter {
                Letter::Mail(from, mail) => self.service.on_mail(&mut self.io, from, mail),
                Letter::End => self.ends.ingest += 1,
            }
        }
    }

    fn tell_drained(&mut self) {
        for id in std::mem::take(&mut self.io.lists.drained) {
            if self.io.connection(id).is_some_and(|conn| conn.takes_pushes()) {
                self.service.on_drained(&mut self.io, id);
                self.work = Work::Left;
            }
        }
    }

    /// While all backlogs together are over their bound: cuts the largest of this core, if none elsewhere is larger.
    fn cut_backlogs(&mut self) {
        while self.io.process.is_backlog_over() {
            let largest = self.io.largest_backlog();
            let bytes = largest.map_or(0, |(_, bytes)| bytes);
            let Some((id, _)) = largest.filter(|_| self.io.process.has_largest_backlog(self.io.core, bytes)) else {
                return;
            };
            self.io.process.reached.note(Limit::Backlog, self.io.now);
            self.service.on_overflow(&mut self.io, id);
            self.work = Work::Left;
            // A service that does not cut it has it cut without a word.
            self.io.cut(id, b"", WebSocketClose { code: 1013, reason: "" });
            if self.io.connections.get(id.slot, id.generation).is_some_and(|conn| conn.queue.backlog_bytes() == bytes) {
                // What is left is one message begun; it goes with its connection.
                self.io.end(id, Ending::SlowConsumer);
                self.remove_ended();
            }
        }
    }
}

/// The second of the Unix epoch; 0 before it, which only a clock set wrong shows.
fn second(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The metric's word for an ending.
const fn label(ending: Ending) -> metrics::Ending {
    match ending {
        Ending::Peer => metrics::Ending::Peer,
        Ending::SocketError => metrics::Ending::SocketError,
        Ending::Complete => metrics::Ending::Complete,
        Ending::Timeout => metrics::Ending::Timeout,
        Ending::Idle => metrics::Ending::Idle,
        Ending::ProtocolError => metrics::Ending::ProtocolError,
        Ending::Service => metrics::Ending::Service,
        Ending::SlowConsumer => metrics::Ending::SlowConsumer,
        Ending::Silent => metrics::Ending::Silent,
        Ending::Refused => metrics::Ending::Refused,
        Ending::Drain => metrics::Ending::Drain,
    }
}
