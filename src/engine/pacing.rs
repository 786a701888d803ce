//! Whether publishers have to wait: a core publishes that it is *in debt* while it is behind with consumers that do read
//! (contract §9: a consumer that reads is never cut because the relay itself is behind).
//!
//! Owns that judgement; who waits, and how, is the service's business ([`Outbox::congested`]). A core is in debt while
//!
//! - a consumer whose socket would take something has more than [`DEBT_BYTES`] queued: that is our own doing; or
//! - a consumer's socket is full, its queue is over a quarter of its bound, and the socket took something within [`GRACE`]: such a
//!   reader is given time to take a burst before its queue overflows. One that does not read holds publishers up once, and no
//!   longer than that; or
//! - more fan-out mail waits for the core than a few stages hold ([`Limits::stage_bytes`]).
//!
//! It costs one look per heavy connection and turn, and nothing while there is none.
//!
//! [`Outbox::congested`]: crate::engine::service::Outbox::congested

use std::time::Duration;

use crate::base::time::Now;
use crate::engine::connection::Connection;
use crate::engine::io::Io;
use crate::engine::service::Mail;
use crate::limits::Limits;

/// Queued toward a consumer that could be written to.
const DEBT_BYTES: usize = 1 << 20;
/// How long the last progress of a full socket counts as reading.
const GRACE: Duration = Duration::from_secs(1);
/// Fan-out mail that may wait for a core, in stages.
const INBOX_STAGES: usize = 4;

/// Bytes queued from which on a connection is looked at each turn.
pub(super) fn heavy_bytes(limits: &Limits) -> usize {
    DEBT_BYTES.min(limits.write_queue_bytes_max / 4)
}

impl<M: Mail> Io<M> {
    /// Judges and publishes; answers whether this core is in debt.
    pub(super) fn pace(&mut self) -> bool {
        let (now, limits) = (self.now, &self.process.limits);
        let connections = &mut self.connections;
        let mut in_debt = self.mailbox.fanout_bytes() > INBOX_STAGES * limits.stage_bytes();
        self.lists.heavy.retain(|id| {
            let Some(conn) = connections.get_mut(id.slot, id.generation) else { return false };
            conn.flags.in_heavy = conn.queue.bytes() > heavy_bytes(limits) && conn.takes_pushes();
            in_debt |= conn.flags.in_heavy && is_debt(conn, now, limits);
            conn.flags.in_heavy
        });
        self.process.set_debt(self.core, in_debt);
        if in_debt {
            self.metrics.congested_turns.increment();
        }
        in_debt
    }
}

fn is_debt(conn: &Connection, now: Now, limits: &Limits) -> bool {
    let queued = conn.queue.bytes();
    if conn.flags.writable {
        queued > DEBT_BYTES.min(limits.write_queue_bytes_max / 4)
    } else {
        queued > limits.write_queue_bytes_max / 4 && !conn.progress_at.after(GRACE).is_due(now)
    }
}
