//! Who may read on while the bodies and messages under way are more than memory is set aside for, who waits, and for
//! how long.
//!
//! Counted is what connections hold of heads, bodies and messages that are not complete, over all cores (`process.rs`).
//! While that is below its bound, everybody is read. At the bound
//!
//! - the first [`RECEIVE_BYTES_FREE`] of a head, body or message are read all the same, a few at a time. So requests,
//!   WebSockets between messages, and small bodies and messages never wait for what others receive;
//! - one connection of the process, the *favoured* one, is read on: without it all could wait for each other. What it
//!   brings is borrowed. It has the favour until it is complete or brings less than [`FAVOUR_BYTES_PER_SECOND_MIN`]
//!   while others wait: then one of these takes it over. [`BORROWERS_MAX`] may hold what they have borrowed; if the
//!   favoured one needs more, one who has lost the favour is refused;
//! - the others wait, in turn: read again as soon as there is room, refused when they have waited for a body's time.
//!
//! Nobody waits for ever: what is held stands still for no longer than a body's time and the rate's window
//! (`connection/reception.rs`); then its connection ends, and what it held is free. Who waits meanwhile hears so in its
//! own time. The favour goes round: it is nobody's who brings too little, and a core leaves it to the others first. And
//! a body that is alone is favoured, whatever the bound: any body that may be sent can be received.
//!
//! Held are at most the bound, what one read of each core adds to it, [`BORROWERS_MAX`] bodies, and what is always
//! read.
//!
//! [`BORROWERS_MAX`]: crate::limits::BORROWERS_MAX
//! [`RECEIVE_BYTES_FREE`]: crate::limits::RECEIVE_BYTES_FREE
//! [`FAVOUR_BYTES_PER_SECOND_MIN`]: crate::limits::FAVOUR_BYTES_PER_SECOND_MIN

use crate::engine::connection::Half;
use crate::engine::connection::reception::CONNECTION_BYTES_MAX;
use crate::engine::io::Io;
use crate::engine::process::Grant;
use crate::engine::service::{ConnId, Mail};

/// Connections that are looked at again in one turn: many may wait, and most of them in vain.
const WOKEN_MAX: usize = 64;

impl<M: Mail> Io<M> {
    /// How many bytes the connection may bring now; none: it has to wait.
    pub(in crate::engine) fn room_for(&mut self, id: ConnId) -> usize {
        let (favour, now) = (self.favour(id), self.now);
        let Some(conn) = self.connections.get_mut(id.slot, id.generation) else { return 0 };
        let Some(received) = conn.received_bytes() else { return CONNECTION_BYTES_MAX };
        let borrows = conn.flags.borrows;
        match self.process.may_receive(received, borrows, favour, now) {
            Grant::All => CONNECTION_BYTES_MAX,
            Grant::Few(bytes) => bytes,
            Grant::Lent => {
                if let Some(reception) = conn.reception_mut() {
                    reception.on_borrowing(now);
                }
                CONNECTION_BYTES_MAX
            }
            Grant::Nothing => 0,
        }
    }

    /// Its input waits until others hold less, or for long enough.
    pub(in crate::engine) fn wait_for_room(&mut self, id: ConnId) {
        let now = self.now;
        let Some(conn) = self.connections.get_mut(id.slot, id.generation) else { return };
        conn.flags.starved = true;
        if let Some(reception) = conn.reception_mut() {
            reception.on_waiting(now, self.process.limits.body_time);
        }
        self.lists.starved.push_back(id);
    }

    /// Has the connections that have waited longest looked at again.
    pub(in crate::engine) fn wake_waiting(&mut self) {
        for _ in 0..self.lists.starved.len().min(WOKEN_MAX) {
            let Some(id) = self.lists.starved.pop_front() else { break };
            if let Some(conn) = self.connection(id)
                && std::mem::take(&mut conn.flags.starved)
            {
                self.schedule_input(id);
            }
        }
    }

    /// The connection's half has made use of input, of which so many bytes were read just now.
    pub(in crate::engine) fn note_received(&mut self, id: ConnId, read: usize) {
        let (favour, now) = (self.favour(id), self.now);
        let Some(conn) = self.connections.get_mut(id.slot, id.generation) else { return };
        match &mut conn.half {
            Half::Http(half) => half.note_received(now),
            Half::WebSocket(half) => half.note_received(now, self.process.limits.body_time),
            Half::EventStream(_) => {}
        }
        if conn.is_borrowing() {
            self.process.extend_favour(favour, read, now);
        }
    }

    /// A body or message is looked at in time.
    pub(in crate::engine) fn watch_reception(&mut self, id: ConnId) {
        let Some(conn) = self.connection(id) else { return };
        if let Some(deadline) = conn.reception_deadline()
            && deadline < conn.timers.deadline
        {
            self.set_deadline(id, deadline);
        }
    }
}
