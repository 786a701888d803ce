//! Whether publishers have to wait: a core publishes that it is *in debt* while it is behind with consumers that do read
//! (contract §9: a consumer that reads is never cut because the relay itself is behind).
//!
//! Owns that judgement; who waits, and how, is the service's business ([`Outbox::congested`]). Publishers
//!
//! - *stop* while a consumer whose socket would take something has more than [`DEBT_BYTES`] queued, which is our own doing; and
//!   while all backlogs together are over half of their bound and some consumer that has one reads;
//! - *slow down* while a consumer's socket is full, its queue is over a quarter of its bound, and the socket took something
//!   within [`GRACE`], and it was caught up within [`PATIENCE`]: what may be admitted in that time is less than what is left of the queue ([`throttle`]). So a burst
//!   waits for a reader that reads, while one that does not read costs a steady flow nothing.
//!
//! Besides, publishers wait while more fan-out mail is before some core than a few stages hold ([`fanout_bytes_max`]); who sends
//! looks for himself, because a core in the middle of a long turn cannot tell.
//!
//! It costs one look per heavy connection and turn, and nothing while there is none.
//!
//! [`Outbox::congested`]: crate::engine::service::Outbox::congested

use std::time::Duration;

use crate::base::time::Now;
use crate::base::token_bucket::TokenBucket;
use crate::engine::connection::Connection;
use crate::engine::io::Io;
use crate::engine::process::Debt;
use crate::engine::service::{ConnId, Mail};
use crate::limits::Limits;

/// Queued toward a consumer that could be written to.
const DEBT_BYTES: usize = 1 << 20;
/// How long a consumer that does not catch up is waited for: one that trickles must not slow publishers down for ever.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the last progress of a full socket counts as reading.
const GRACE: Duration = Duration::from_secs(2);
/// Fan-out mail that may wait for a core, in stages.
const INBOX_STAGES: usize = 4;

/// Bytes queued from which on a connection is looked at each turn.
pub(super) fn heavy_bytes(limits: &Limits) -> usize {
    DEBT_BYTES.min(limits.write_queue_bytes_max / 4)
}

/// What may be admitted while publishers are slowed down: half a queue in [`GRACE`], a stage at once. One for the process.
pub(super) fn throttle(limits: &Limits) -> TokenBucket {
    TokenBucket::new((limits.write_queue_bytes_max / 2) as u64 / GRACE.as_secs(), limits.stage_bytes())
}

/// Fan-out mail that may wait for a core.
pub(super) fn fanout_bytes_max(limits: &Limits) -> usize {
    INBOX_STAGES * limits.stage_bytes()
}

impl<M: Mail> Io<M> {
    /// Judges and publishes; answers whether this core is in debt.
    pub(super) fn pace(&mut self) -> bool {
        let (now, limits) = (self.now, &self.process.limits);
        let connections = &mut self.connections;
        let mut debt = Debt::None;
        self.lists.heavy.retain(|id| {
            let Some(conn) = connections.get_mut(id.slot, id.generation) else { return false };
            conn.flags.in_heavy = conn.queue.bytes() > heavy_bytes(limits) && conn.takes_pushes();
            if conn.flags.in_heavy {
                debt = debt.max(debt_of(conn, now, limits));
            }
            conn.flags.in_heavy
        });
        if debt != Debt::Stop && self.process.is_backlog_crowded() {
            let reads = |id: &ConnId| {
                let conn = connections.get(id.slot, id.generation);
                conn.is_some_and(|conn| conn.queue.backlog_bytes() > 0 && conn.takes_pushes() && is_reading(conn, now))
            };
            if self.lists.lagging.iter().chain(&self.lists.consumers).any(reads) {
                debt = Debt::Stop;
            }
        }
        self.process.set_debt(self.core, debt);
        self.process.refill(now);
        if debt != Debt::None {
            self.metrics.congested_turns.increment();
        }
        debt != Debt::None
    }
}

fn debt_of(conn: &Connection, now: Now, limits: &Limits) -> Debt {
    let queued = conn.queue.bytes();
    if conn.flags.writable && queued > DEBT_BYTES.min(limits.write_queue_bytes_max / 4) {
        Debt::Stop
    } else if !conn.flags.writable && queued > limits.write_queue_bytes_max / 4 && is_reading(conn, now) {
        Debt::Slow
    } else {
        Debt::None
    }
}

/// Whether its socket would take something, or has not long ago, and it has not been behind for ever.
fn is_reading(conn: &Connection, now: Now) -> bool {
    let takes = conn.flags.writable || !conn.progress_at.after(GRACE).is_due(now);
    takes && !conn.behind_since.after(PATIENCE).is_due(now)
}
