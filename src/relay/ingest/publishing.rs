//! Which publishers go on and which wait (contract §9).
//!
//! Everything from a socket to a write queue has a bound, and of every bound the first half is anybody's and the second
//! is kept for those who publish little ([`Admits::of`], `allowance.rs`): what is before this core's owner and its
//! reader is judged here, the rest by the engine. A POST waits as a job, batch by batch; a WebSocket is not read on.
//!
//! Invariant: who waits is looked at again each turn, in another order each time, so that nobody is always the last.

use crate::engine::service::{Admits, Post};
use crate::protocol::shares::ACTIVITY;

use crate::relay::mail::OwnerInput;
use crate::relay::{Relay, RelayMail};

impl Relay {
    /// Whether the owner takes more from other cores.
    #[must_use]
    pub fn takes_ingest(&self) -> bool {
        self.owner.room(0) > Admits::Nothing
    }

    /// What may be published, for all that waits for this core's reader.
    #[must_use]
    pub fn admits(&self) -> Admits {
        self.inflow.admits(self.shared.limits.stage_bytes())
    }

    /// Hands over what bodies hold, as far as owners and consumers take it.
    pub(in crate::relay) fn hand_over(&mut self, out: &mut dyn Post<RelayMail>) {
        if !self.ingest.has_ready() {
            return;
        }
        let Self { core, ingest, allowances, owner, .. } = self;
        let now = out.out().now();
        ingest.hand_over(&mut |conn, to, batch| {
            let bytes = batch.batch.weight();
            let room = if to == *core { owner.room(0) } else { out.ingest_room(to, ACTIVITY.group) };
            if !allowances.passes(out.out().admits(ACTIVITY.group).min(room), conn, bytes, now) {
                return Some(batch);
            }
            out.outbox().admitted(ACTIVITY.group, bytes);
            let input = OwnerInput::Events(batch);
            if to == *core {
                owner.push(to, input);
            } else {
                out.mail_ingest(to, RelayMail::Owner(input));
            }
            None
        });
    }

    /// What WebSockets may send: every owner has room for it, and no consumer that reads is behind.
    pub(in crate::relay) fn room(&self, out: &dyn Post<RelayMail>) -> Admits {
        let here = self.owner.room(self.ingest.live_bytes());
        let others = self.shared.owners.every_core().filter(|core| *core != self.core);
        others
            .map(|core| out.ingest_room(core, ACTIVITY.group))
            .fold(out.out().admits(ACTIVITY.group).min(here), Admits::min)
    }

    /// Reads on from parked WebSockets as far as there is room.
    pub(in crate::relay) fn release(&mut self, out: &mut dyn Post<RelayMail>) {
        if self.parked.is_empty() {
            return;
        }
        let room = self.room(out);
        let (allowances, now) = (&mut self.allowances, out.out().now());
        // The first that is read on may take all the room there is: another one each time.
        self.parked.rotate_left(1);
        self.parked.retain(|conn| {
            let goes_on = allowances.may_publish(room, *conn, now);
            if goes_on {
                out.outbox().resume(*conn);
            }
            !goes_on
        });
    }
}
