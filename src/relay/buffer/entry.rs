//! What is known of one event of a session, and where its bytes lie. `entry_table.rs` finds entries, `record_log.rs`
//! keeps the bytes.

use crate::base::segment_pool::Segment;
use crate::relay::event::{Outline, Position};

use super::marks::Key;

/// What is known of one event.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its position, or that of the event it was placed behind; `None` stands ahead of all.
    pub(super) placement: Option<Position>,
    /// The owner's arrival number, from 1; 0 in a vacant entry.
    pub(super) arrival: u64,
    /// The arrival number of the last duplicate that was forwarded; 0 for none.
    pub(super) forwarded: u64,
    /// Stands for `(source, id)`.
    pub(super) fingerprint: u128,
    /// Where its bytes lie.
    pub(super) body: Body,
    /// How many.
    pub(super) len: u32,
    /// Whether it bears a position of its own.
    pub(super) sequenced: bool,
    /// See [`Outline`].
    pub(super) outline: Outline,
}

impl Entry {
    /// Not in use.
    pub(super) const VACANT: Self = Self {
        placement: None,
        arrival: 0,
        forwarded: 0,
        fingerprint: 0,
        body: Body::VACANT,
        len: 0,
        sequenced: false,
        outline: Outline::NONE,
    };

    pub(super) fn key(&self) -> Key {
        Key { placement: self.placement, arrival: self.arrival }
    }

    /// The position it bears.
    pub(super) fn position(&self) -> Option<Position> {
        self.placement.filter(|_| self.sequenced)
    }
}

/// Where one record lies.
#[derive(Debug)]
pub(super) enum Body {
    /// In one piece, among others.
    Whole(RecordPlace),
    /// Over segments of its own, in their order.
    Spread(Box<[Segment]>),
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordPlace {
    /// Index of its segment in the log.
    pub(super) segment: u32,
    /// Offset there, bytes.
    pub(super) at: u16,
}

impl Body {
    /// The body of no record: what an entry has that is not in use.
    pub(super) const VACANT: Self = Self::Whole(RecordPlace { segment: u32::MAX, at: 0 });
}
