//! Which publishers have to wait: a core publishes that it is *in debt* while it is behind with consumers that do read
//! (contract §9: a consumer that reads is never cut because the relay itself is behind).
//!
//! All of this is per pace group: no consumer of one makes a publisher of another wait. Owns that judgement, for those
//! who publish much and for those who publish little; who is which, and how they wait, is the service's business
//! ([`Outbox::admits`]). Of every measure those who publish much may use one part, and the rest is kept for those who
//! publish little: so they find room however much the others bring.
//!
//! | measure | who publishes much waits | everybody waits |
//! |---|---|---|
//! | queued toward a consumer whose socket would take something, which is our own doing | from [`heavy_bytes`] on | from a quarter of its bound on |
//! | all backlogs of the group together, while a consumer that has one reads | over half of their bound | over three quarters |
//! | admitted while a consumer *needs time* | more than the [`throttle`] lets through | as much as [`overdraft_bytes`] beyond that |
//! | fan-out mail of the group before some core | half of [`fanout_bytes_max`] | all of it |
//! | what the core's service holds back | as it says ([`Service::admits`]) | as it says |
//!
//! A consumer needs time while its socket is full, its queue is over a quarter of its bound, and the socket took
//! something within [`GRACE`], and it was caught up within [`PATIENCE`]: what may be admitted in that time is less than
//! what is left of the queue. So a burst waits for a reader that reads, while one that does not read costs a steady
//! flow nothing.
//!
//! Who sends looks at the fan-out mail for himself, because a core in the middle of a long turn cannot tell. The rest
//! costs one look per heavy connection and turn, and nothing while there is none.
//!
//! [`Outbox::admits`]: crate::engine::service::Outbox::admits
//! [`Service::admits`]: crate::engine::service::Service::admits

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::time::Now;
use crate::base::token_bucket::TokenBucket;
use crate::engine::connection::Connection;
use crate::engine::io::Io;
use crate::engine::pace::Debt;
use crate::engine::service::{Admits, ConnId, GROUPS, Group, Mail};
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
pub(in crate::engine) fn heavy_bytes(limits: &Limits) -> usize {
    DEBT_BYTES.min(limits.write_queue_bytes_max / 8)
}

/// What may be admitted while the publishers of one group are slowed down: half a queue in [`GRACE`], a stage at once.
pub(in crate::engine) fn throttle(limits: &Limits) -> TokenBucket {
    TokenBucket::new((limits.write_queue_bytes_max / 2) as u64 / GRACE.as_secs(), limits.stage_bytes())
}

/// What those who publish little may admit beyond that, before they wait, too. It is paid back out of the same.
pub(in crate::engine) fn overdraft_bytes(limits: &Limits) -> usize {
    limits.write_queue_bytes_max / 8
}

/// Fan-out mail that may wait for a core.
pub(in crate::engine) fn fanout_bytes_max(limits: &Limits) -> usize {
    INBOX_STAGES * limits.stage_bytes()
}

impl<M: Mail> Io<M> {
    /// Judges each group and publishes it, with what the service admits; answers whether this core is in debt to any.
    pub(in crate::engine) fn pace(&mut self, service_admits: impl Fn(Group) -> Admits) -> bool {
        let (now, limits) = (self.now, &self.process.limits);
        let mut debts = [Debt { admits: Admits::Everything, slow: false }; GROUPS];
        let connections = &mut self.connections;
        self.lists.heavy.retain(|id| {
            let Some(conn) = connections.get_mut(id.slot, id.generation) else { return false };
            conn.flags.in_heavy = conn.queue.bytes() > heavy_bytes(limits) && conn.takes_pushes();
            if conn.flags.in_heavy
                && let Some(group) = conn.group()
            {
                owe(&mut debts[group.index()], conn, now, limits);
            }
            conn.flags.in_heavy
        });
        let mut in_debt = false;
        for (group, mut debt) in Group::all().zip(debts) {
            debt.admits = debt.admits.min(service_admits(group));
            let pace = self.process.pace(group);
            let crowded = match pace.backlog().load(Ordering::Relaxed) {
                bytes if bytes > limits.backlog_bytes_max / 4 * 3 => Admits::Nothing,
                bytes if bytes > limits.backlog_bytes_max / 2 => Admits::Little,
                _ => Admits::Everything,
            };
            if crowded < debt.admits && self.has_reader_behind(group) {
                debt.admits = crowded;
            }
            pace.set_debt(self.core, debt);
            pace.refill(now);
            in_debt |= debt.slow || debt.admits != Admits::Everything;
        }
        if in_debt {
            self.metrics.congested_turns.increment();
        }
        in_debt
    }

    /// Whether a connection of the group that has a backlog reads.
    fn has_reader_behind(&self, group: Group) -> bool {
        let reads = |id: &ConnId| {
            let conn = self.connections.get(id.slot, id.generation).filter(|conn| conn.group() == Some(group));
            conn.is_some_and(|conn| conn.queue.backlog_bytes() > 0 && conn.takes_pushes() && is_reading(conn, self.now))
        };
        self.lists.lagging.iter().chain(&self.lists.consumers).any(reads)
    }
}

/// Adds what one heavy connection adds.
fn owe(debt: &mut Debt, conn: &Connection, now: Now, limits: &Limits) {
    let is_quarter_full = conn.queue.bytes() > limits.write_queue_bytes_max / 4;
    if conn.flags.writable {
        debt.admits = debt.admits.min(if is_quarter_full { Admits::Nothing } else { Admits::Little });
    } else {
        debt.slow |= is_quarter_full && is_reading(conn, now);
    }
}

/// Whether its socket would take something, or has not long ago, and it has not been behind for ever.
fn is_reading(conn: &Connection, now: Now) -> bool {
    let takes = conn.flags.writable || !conn.progress_at.after(GRACE).is_due(now);
    takes && !conn.behind_since.after(PATIENCE).is_due(now)
}
