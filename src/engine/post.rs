//! Mail from a thread that is no core: what it has done is told to the cores that wait for it.
//!
//! The lanes are those of the cores, and so are their rules: *ingest* asks for room first and holds its sender up where there
//! is none, *fan-out* never waits. Sending never blocks, and wakes a core that sleeps.
//!
//! Invariants: mail of one thread to one core keeps its order within a lane; there is none between lanes, nor between threads,
//! also where their posters are clones of one another. Mail to a core that has ended is dropped. Lanes know no end of such a
//! thread: during a drain it is waited for only by a service that is not quiescent before its mail has come.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::mailbox::{Bag, Bell, Senders, Weighed};
use crate::engine::service::{Admits, CoreId, Mail};

/// Sends mail to every core; [`CoreId::OUTSIDE`] is who it is from.
#[derive(Debug)]
pub struct Poster<M> {
    bells: Arc<[Bell]>,
    ingest: Senders<M>,
    fanout: Senders<M>,
    /// Of the ingest lane of one core.
    bytes_max: usize,
}

impl<M> Clone for Poster<M> {
    fn clone(&self) -> Self {
        Self {
            bells: Arc::clone(&self.bells),
            ingest: Arc::clone(&self.ingest),
            fanout: Arc::clone(&self.fanout),
            bytes_max: self.bytes_max,
        }
    }
}

impl<M: Mail> Poster<M> {
    pub(super) fn new(bells: Arc<[Bell]>, ingest: Senders<M>, fanout: Senders<M>, bytes_max: usize) -> Self {
        Self { bells, ingest, fanout, bytes_max }
    }

    /// Sends into a core's ingest lane. Ask [`Poster::ingest_room`] first.
    pub fn send_ingest(&self, to: CoreId, mail: M) {
        let index = usize::from(to.0);
        let (Some(bell), Some(channel)) = (self.bells.get(index), self.ingest.get(index)) else { return };
        let bytes = mail.weight();
        bell.ingest_bytes.fetch_add(bytes, Ordering::Relaxed);
        if channel.send(bag(mail, bytes)).is_err() {
            bell.ingest_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        bell.ring();
    }

    /// Sends into a core's fan-out lane.
    pub fn send_fanout(&self, to: CoreId, mail: M) {
        let index = usize::from(to.0);
        let (Some(bell), Some(channel)) = (self.bells.get(index), self.fanout.get(index)) else { return };
        let bytes = mail.weight();
        bell.fanout_bytes.fetch_add(bytes, Ordering::Relaxed);
        if channel.send(bag(mail, bytes)).is_err() {
            bell.fanout_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        bell.ring();
    }

    /// What a core's ingest lane has room for.
    #[must_use]
    pub fn ingest_room(&self, to: CoreId) -> Admits {
        let bell = self.bells.get(usize::from(to.0));
        bell.map_or(Admits::Nothing, |bell| Admits::of(bell.ingest_bytes.load(Ordering::Relaxed), self.bytes_max))
    }
}

fn bag<M>(mail: M, bytes: usize) -> Bag<M> {
    Bag::Mail(CoreId::OUTSIDE, vec![Weighed { mail, bytes }])
}
