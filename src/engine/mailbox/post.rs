//! Mail from a thread that is no core: what it has done is told to the cores that wait for it.
//!
//! The lanes are those of the cores, and so are their rules: *ingest* asks for room first and holds its sender up where
//! there is none, *fan-out* never waits. Sending never blocks, and wakes a core that sleeps.
//!
//! Invariants: mail of one thread to one core keeps its order within a lane; there is none between lanes, nor between
//! threads, also where their posters are clones of one another. Lanes know no end of such a thread: during a drain it
//! is waited for only by a service that is not quiescent before its mail has come. What a core has not taken when it
//! ends, and what comes later, is dropped; who waits for its room is let go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::mailbox::{Bag, Depths, Inbox, Senders, Weighed};
use crate::engine::service::{Admits, CoreId, Group, Mail};

/// Sends mail to every core; [`CoreId::OUTSIDE`] is who it is from.
#[derive(Debug)]
pub struct Poster<M> {
    inboxes: Arc<[Inbox]>,
    ingest: Senders<M>,
    fanout: Senders<M>,
    /// Of the ingest lane of one core.
    bytes_max: usize,
}

impl<M> Clone for Poster<M> {
    fn clone(&self) -> Self {
        Self {
            inboxes: Arc::clone(&self.inboxes),
            ingest: Arc::clone(&self.ingest),
            fanout: Arc::clone(&self.fanout),
            bytes_max: self.bytes_max,
        }
    }
}

impl<M: Mail> Poster<M> {
    pub(in crate::engine) fn new(
        inboxes: Arc<[Inbox]>,
        ingest: Senders<M>,
        fanout: Senders<M>,
        bytes_max: usize,
    ) -> Self {
        Self { inboxes, ingest, fanout, bytes_max }
    }

    /// Sends into a core's ingest lane. Ask [`Poster::ingest_room`] first.
    pub fn send_ingest(&self, to: CoreId, mail: M) {
        self.send(&self.ingest, |inbox| &inbox.ingest_bytes, to, mail);
    }

    /// Sends into a core's fan-out lane.
    pub fn send_fanout(&self, to: CoreId, mail: M) {
        self.send(&self.fanout, |inbox| &inbox.fanout_bytes, to, mail);
    }

    fn send(&self, lane: &Senders<M>, depth: fn(&Inbox) -> &Depths, to: CoreId, mail: M) {
        let index = usize::from(to.0);
        let (Some(inbox), Some(channel)) = (self.inboxes.get(index), lane.get(index)) else { return };
        let (bytes, group) = (mail.weight(), mail.group().index());
        depth(inbox)[group].fetch_add(bytes, Ordering::Relaxed);
        let _gone = channel.send(Bag::Mail(CoreId::OUTSIDE, vec![Weighed { mail, bytes }]));
        inbox.wake();
    }

    /// What a core's ingest lane has room for, of that group. Of a core that has ended everything, for it is dropped.
    #[must_use]
    pub fn ingest_room(&self, to: CoreId, group: Group) -> Admits {
        match self.inboxes.get(usize::from(to.0)) {
            None => Admits::Nothing,
            Some(inbox) if inbox.has_ended() => Admits::Everything,
            Some(inbox) => Admits::of(inbox.ingest_bytes[group.index()].load(Ordering::Relaxed), self.bytes_max),
        }
    }
}
