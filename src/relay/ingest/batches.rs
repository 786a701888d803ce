//! Events on their way to the owners of their sessions (contract §3): in batches by owner, first to last.
//!
//! Invariants: batches of one owner stay in the order of their events; a batch holds at most [`BATCH_EVENTS`] events,
//! and more than [`BATCH_BYTES`] (or a stage, if that is less) only if it holds one; what is handed over is sealed.

use std::collections::VecDeque;

use crate::engine::service::CoreId;
use crate::relay::event::Event;
use crate::relay::mail::claim::ClaimNote;
use crate::relay::mail::{OwnedBatch, Receipt};
use crate::relay::shared::Shared;

/// Events of one batch; few in tests, so that the simulation meets its edges.
const BATCH_EVENTS: usize = if cfg!(test) { 4 } else { 256 };
/// Bytes after which a batch is closed.
const BATCH_BYTES: usize = 256 << 10;

/// Events of one publication, or of one turn, by owner.
#[derive(Debug)]
pub(super) struct Batches {
    by_owner: Vec<VecDeque<Box<OwnedBatch>>>,
    events: u32,
    bytes: usize,
}

impl Batches {
    /// None yet, for that many owners.
    #[must_use]
    pub(super) fn new(cores: usize) -> Self {
        Self { by_owner: (0..cores).map(|_| VecDeque::new()).collect(), events: 0, bytes: 0 }
    }

    /// How many events were taken.
    #[must_use]
    pub(super) fn events(&self) -> u32 {
        self.events
    }

    /// Their bytes.
    #[must_use]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether every batch is handed over.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.by_owner.iter().all(VecDeque::is_empty)
    }

    /// Takes an event; `claim` comes with its index filled in.
    pub(super) fn push(&mut self, shared: &Shared, event: Event<'_>, claim: Option<ClaimNote>) {
        let owner = shared.owners.owner_of(event.session().unwrap_or_else(|| event.agent()));
        let Some(batches) = self.by_owner.get_mut(usize::from(owner.0)) else { return };
        let bytes = event.raw().len();
        let batch = open_batch(shared, batches, bytes);
        if let Some(claim) = claim {
            batch.claims.push(ClaimNote { event: u32::try_from(batch.batch.len()).unwrap_or(u32::MAX), ..claim });
        }
        batch.batch.push(event);
        batch.ordinals.push(self.events);
        self.events += 1;
        self.bytes += bytes;
    }

    /// Gives every event its tick, and every batch whom to tell that it is admitted. Returns how many batches there
    /// are.
    pub(super) fn seal(&mut self, shared: &Shared, receipt: Receipt) -> usize {
        let first_tick = shared.take_ticks(self.events as usize);
        let mut sealed = 0;
        for batch in self.by_owner.iter_mut().flatten() {
            batch.first_tick = first_tick;
            batch.acknowledge = Some(receipt);
            sealed += 1;
        }
        sealed
    }

    /// Offers the next batch of each owner; what is given back keeps its place. Whether any was taken.
    pub(super) fn offer_each(
        &mut self,
        mut offer: impl FnMut(CoreId, Box<OwnedBatch>) -> Option<Box<OwnedBatch>>,
    ) -> bool {
        let mut taken = false;
        for (owner, batches) in (0u16..).map(CoreId).zip(&mut self.by_owner) {
            if let Some(batch) = batches.pop_front() {
                match offer(owner, batch) {
                    None => taken = true,
                    Some(batch) => batches.push_front(batch),
                }
            }
        }
        taken
    }

    /// Takes every batch out, owner by owner, and begins anew.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (CoreId, Box<OwnedBatch>)> {
        (self.events, self.bytes) = (0, 0);
        let owners = (0u16..).map(CoreId).zip(&mut self.by_owner);
        owners.flat_map(|(owner, batches)| batches.drain(..).map(move |batch| (owner, batch)))
    }
}

/// The last batch, or a new one if that is full.
fn open_batch<'a>(
    shared: &Shared,
    batches: &'a mut VecDeque<Box<OwnedBatch>>,
    event_bytes: usize,
) -> &'a mut OwnedBatch {
    let bytes_max = BATCH_BYTES.min(shared.limits.stage_bytes());
    let full = batches.back().is_none_or(|last| {
        last.batch.len() >= BATCH_EVENTS || (!last.batch.is_empty() && last.batch.bytes_len() + event_bytes > bytes_max)
    });
    if full {
        batches.push_back(Box::default());
    }
    let last = batches.len() - 1;
    &mut batches[last]
}
