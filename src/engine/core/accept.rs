//! New connections: who of the cores takes them on, and who is turned away.
//!
//! Owns the way from the accept queue to a registered [`Connection`]. A place is counted before the core is chosen, so
//! the limit is exact and two cores do not both see the same gap.
//!
//! A connection that there is no place or descriptor for is a *guest*: it is heard for one request and a moment. What
//! the service answers even then ([`Service::answers_guests`]) is answered, so that a relay that is full can be
//! watched; anything else, and who asks for nothing, is turned away. Guests are bounded too: under a rush the eldest
//! goes, never its answer.

use crossbeam_channel::{Receiver, Sender};
use mio::net::TcpStream;
use tracing::debug;

use crate::engine::connection::{Connection, Phase};
use crate::engine::core::Core;
use crate::engine::listener::Accepted;
use crate::engine::reached::Limit;
use crate::engine::service::{ConnId, CoreId, Ending, HttpFault, Service};
use crate::engine::socket::Socket;
use crate::engine::token;
use crate::limits::CLOSE_TIME;
use crate::ops::metrics::ConnectionKind;

/// Connections accepted in one turn.
const ACCEPTS_MAX: usize = 64;
/// Guests that are heard, or waited for so that they can read their answer; beyond it the eldest goes. They are more
/// than one turn accepts.
const GUESTS_MAX: usize = 256;

/// The way of accepted sockets to cores with fewer of them. Their places are already counted.
#[derive(Debug)]
pub(in crate::engine) struct Migration {
    pub(in crate::engine) to: Vec<Sender<TcpStream>>,
    pub(in crate::engine) incoming: Receiver<TcpStream>,
}

impl<S: Service> Core<S> {
    /// Accepts within the budget of a turn, and takes on what other cores handed over.
    pub(in crate::engine) fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            if !self.accept_next() {
                break;
            }
        }
        while let Ok(stream) = self.migration.incoming.try_recv() {
            self.take_on(stream);
        }
    }

    /// Takes everyone who waits to be accepted, and stops listening.
    pub(in crate::engine) fn accept_all(&mut self) {
        self.acceptor.on_ready();
        while self.accept_next() {}
        self.acceptor.close(self.poll.registry());
    }

    /// Whether there may be a next one.
    fn accept_next(&mut self) -> bool {
        match self.acceptor.accept(self.io.now) {
            Accepted::Nothing => false,
            Accepted::WithoutDescriptor(stream) => {
                self.io.process.reached.note(Limit::Descriptors, self.io.now);
                self.hear(stream);
                true
            }
            Accepted::OnLastDescriptor(stream) => {
                self.io.process.reached.note(Limit::Descriptors, self.io.now);
                self.let_go_of_eldest();
                self.remove_ended();
                self.acceptor.refill();
                if self.acceptor.has_reserve() {
                    self.hear(stream);
                } else {
                    self.turn_away_at_once(stream);
                    self.acceptor.refill();
                }
                true
            }
            Accepted::Connection(stream) => {
                match self.io.process.place(self.io.core) {
                    None => {
                        self.io.process.reached.note(Limit::Connections, self.io.now);
                        self.hear(stream);
                    }
                    Some(core) if core == self.io.core => self.take_on(stream),
                    Some(core) => self.hand_over(core, stream),
                }
                true
            }
        }
    }

    /// Whether another core has handed over connections that were not taken on yet.
    pub(in crate::engine) fn is_given_connections(&self) -> bool {
        !self.migration.incoming.is_empty()
    }

    fn hand_over(&mut self, core: CoreId, stream: TcpStream) {
        let sent = self.migration.to.get(usize::from(core.0)).is_some_and(|to| to.send(stream).is_ok());
        if !sent {
            self.io.process.unplace(core);
            return;
        }
        self.io.metrics.handed_over.increment();
        if let Some(inbox) = self.io.process.inboxes.get(usize::from(core.0)) {
            inbox.wake();
        }
    }

    /// A connection whose place is counted.
    fn take_on(&mut self, stream: TcpStream) {
        let Some(id) = self.insert(Socket::new(stream)) else {
            self.io.process.unplace(self.io.core);
            return;
        };
        if let Some(conn) = self.io.connection(id) {
            conn.flags.counted = true;
        }
        self.io.metrics.accepted.increment();
        self.io.metrics.connections.raise(ConnectionKind::Http);
        // One that was handed over late, into a drain, has missed the closing of idle connections.
        let time = if self.io.draining { CLOSE_TIME } else { self.io.process.limits.keep_alive_time };
        self.io.set_deadline(id, self.io.now.after(time));
    }

    /// A guest.
    fn hear(&mut self, stream: TcpStream) {
        if self.io.guests.len() >= GUESTS_MAX {
            self.let_go_of_eldest();
        }
        if let Some(id) = self.insert(Socket::new(stream)) {
            self.io.guests.push_back(id);
            self.io.set_deadline(id, self.io.now.after(CLOSE_TIME));
        }
    }

    /// There is no room for it: it is told to come back.
    pub(in crate::engine) fn turn_away(&mut self, id: ConnId) {
        self.io.metrics.refused.increment();
        self.refuse(id, HttpFault::Busy);
    }

    /// The same for one that cannot be heard.
    fn turn_away_at_once(&mut self, stream: TcpStream) {
        self.io.metrics.refused.increment();
        let (terms, response) = (self.service.terms(None), self.service.refusal(HttpFault::Busy, None));
        let mut socket = Socket::new(stream);
        if self.io.write_refusal(&mut socket, &terms, &response) {
            let _thrown_away = socket.read(&mut self.buffer);
        }
    }

    /// Closes the connection of the first guest. It is read once more, for its request may have come; besides, closing
    /// over unread input would send a reset, which takes the answer away from some clients.
    fn let_go_of_eldest(&mut self) {
        let Some(id) = self.io.guests.pop_front() else { return };
        if let Some(conn) = self.io.connection(id) {
            conn.flags.readable = true;
        }
        self.read_one(id);
        if self.io.connection(id).is_some_and(|conn| conn.phase == Phase::Open) {
            self.turn_away(id);
        }
        self.io.flush_one(id);
        self.io.end(id, Ending::Refused);
    }

    fn insert(&mut self, socket: Socket) -> Option<ConnId> {
        let now = self.io.now;
        let (slot, generation) = self.io.connections.insert(Connection::new(socket, now));
        let id = ConnId { slot, generation };
        let conn = self.io.connection(id)?;
        if let Err(error) = conn.socket.register(self.poll.registry(), token::of(id)) {
            debug!(%error, "connection not registered");
            self.io.connections.remove(slot, generation);
            return None;
        }
        Some(id)
    }
}
