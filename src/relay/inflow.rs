//! Mail of owners for this core's reader that has not been acted on yet.
//!
//! Mostly nothing waits here. But an event costs a look at every subscription that is served singly, one connection may
//! have thousands of these, and one batch has hundreds of events. So a turn has a budget of looks; what is behind it waits
//! for the next turn, and between the two this core reads and writes for everybody else. While much waits, publishers
//! wait, too ([`Inflow::admits`]), so what waits is bounded.
//!
//! What a turn may do here begins with its mail and ends with the end of [`super::Relay::on_turn`]. An event of
//! [`LARGE_BYTES`] or more costs milliseconds at each station: read, admitted, delivered. So it is the last that its turn
//! does for events, at whichever of them, and is delivered at the beginning of one.
//!
//! Invariants: mail leaves in the order in which it came, so what follows events (a page, a registration, an
//! acknowledgement, a command for its target) is never acted on before them; an event once begun is delivered to everybody
//! in the same turn.

use std::collections::VecDeque;

use crate::engine::service::{Admits, CoreId, Mail};

use super::ownership::RelayMail;

/// Looks of one turn; few in tests, so that the simulation meets its edges.
pub(super) const LOOKS_PER_TURN: usize = if cfg!(test) { 24 } else { 32 << 10 };

/// Events from this size on have a turn of their own at each station.
pub(super) const LARGE_BYTES: usize = if cfg!(test) { 2 << 10 } else { 1 << 20 };

/// How far the work of a turn may go, and how far it has come.
#[derive(Debug)]
pub struct Slice {
    /// Looks left in this turn.
    looks: usize,
    /// The first event not delivered yet of the fan-out that comes first.
    event: usize,
}

impl Slice {
    /// The next of so many events, if there is one and the turn may go on.
    pub fn next_event(&mut self, events: usize) -> Option<usize> {
        if self.looks == 0 || self.event >= events {
            return None;
        }
        self.event += 1;
        Some(self.event - 1)
    }

    /// Whether all of so many events are delivered.
    #[must_use]
    pub fn is_through(&self, events: usize) -> bool {
        self.event >= events
    }

    /// Counts what was looked at.
    pub fn spend(&mut self, looks: usize) {
        self.looks = self.looks.saturating_sub(looks);
    }
}

/// What waits for this core's reader, first to last.
#[derive(Debug)]
pub struct Inflow {
    waiting: VecDeque<(CoreId, RelayMail)>,
    bytes: usize,
    slice: Slice,
    /// Whether this turn has had its large event.
    had_large: bool,
}

impl Default for Inflow {
    fn default() -> Self {
        let slice = Slice { looks: LOOKS_PER_TURN, event: 0 };
        Self { waiting: VecDeque::new(), bytes: 0, slice, had_large: false }
    }
}

impl Inflow {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes mail in.
    pub fn push(&mut self, from: CoreId, mail: RelayMail) {
        self.bytes += mail.weight();
        self.waiting.push_back((from, mail));
    }

    /// The mail that comes next, if this turn may go on, with the slice that it may take.
    pub fn take(&mut self) -> Option<(CoreId, RelayMail, &mut Slice)> {
        if self.slice.looks == 0 {
            return None;
        }
        let is_large = self.waiting.front().is_some_and(|(_, mail)| mail.weight() >= LARGE_BYTES);
        if is_large && self.slice.looks < LOOKS_PER_TURN {
            return None;
        }
        let (from, mail) = self.waiting.pop_front()?;
        self.bytes -= mail.weight();
        Some((from, mail, &mut self.slice))
    }

    /// A fan-out was delivered as far as the slice went: the rest of it comes first again.
    pub fn put_back(&mut self, from: CoreId, mail: RelayMail) {
        self.bytes += mail.weight();
        self.waiting.push_front((from, mail));
    }

    /// A fan-out is not ready to be delivered: it comes first in the next turn.
    pub fn pause(&mut self, from: CoreId, mail: RelayMail) {
        self.put_back(from, mail);
        self.slice.looks = 0;
    }

    /// A fan-out was delivered whole.
    pub fn finish(&mut self) {
        self.slice.event = 0;
    }

    /// So many bytes of one event, or one page, have been dealt with at some station.
    pub fn deal(&mut self, bytes: usize) {
        if bytes >= LARGE_BYTES {
            self.slice.looks = 0;
            self.had_large = true;
        }
    }

    /// Whether this turn has had its large event.
    #[must_use]
    pub fn had_large(&self) -> bool {
        self.had_large
    }

    /// A new turn may look as much again.
    pub fn begin_turn(&mut self) {
        self.slice.looks = LOOKS_PER_TURN;
        self.had_large = false;
    }

    /// What may be published for all that waits here: a stage of it at most.
    #[must_use]
    pub fn admits(&self, stage_bytes: usize) -> Admits {
        Admits::of(self.bytes, stage_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::ownership::SubRef;
    use crate::relay::pages::Page;

    #[test]
    fn publishers_wait_while_more_than_a_stage_waits() {
        const STAGE: usize = 4 << 10;
        let mut inflow = Inflow::default();
        let mut admitted = vec![inflow.admits(STAGE)];
        inflow.slice.spend(usize::MAX);
        while inflow.bytes < STAGE {
            let mail = RelayMail::Registered { sub: SubRef { slot: 0, generation: 0 }, arrival: 0 };
            inflow.push(CoreId(1), mail);
            admitted.push(inflow.admits(STAGE));
        }
        admitted.dedup();
        assert_eq!(admitted, [Admits::Everything, Admits::Little, Admits::Nothing]);
        assert!(inflow.take().is_none(), "this turn has looked at enough");
        inflow.begin_turn();
        while inflow.take().is_some() {}
        assert!(inflow.is_empty() && inflow.bytes == 0 && inflow.admits(STAGE) == Admits::Everything);
    }

    #[test]
    fn a_large_event_begins_a_turn_and_ends_it() {
        let mail = |bytes: usize| {
            let page = Page::of_bytes(SubRef { slot: 0, generation: 0 }, vec![b'x'; bytes]);
            RelayMail::Page(Box::new(page))
        };
        let mut inflow = Inflow::default();
        for bytes in [1, LARGE_BYTES, 1] {
            inflow.push(CoreId(0), mail(bytes));
        }
        let taken = |inflow: &mut Inflow| {
            let (_, mail, slice) = inflow.take()?;
            slice.spend(1);
            inflow.deal(mail.weight());
            Some(mail.weight() >= LARGE_BYTES)
        };
        assert_eq!((taken(&mut inflow), taken(&mut inflow)), (Some(false), None), "it is not the second of a turn");
        inflow.begin_turn();
        assert_eq!((taken(&mut inflow), taken(&mut inflow)), (Some(true), None), "nothing comes behind it");
        assert!(inflow.had_large());
        inflow.begin_turn();
        assert_eq!((taken(&mut inflow), inflow.had_large()), (Some(false), false));
    }

    #[test]
    fn what_was_begun_goes_on_where_it_stopped() {
        let mut inflow = Inflow::default();
        let slice = &mut inflow.slice;
        assert_eq!(slice.next_event(3), Some(0));
        slice.spend(LOOKS_PER_TURN);
        assert_eq!((slice.next_event(3), slice.is_through(3)), (None, false));
        inflow.begin_turn();
        let slice = &mut inflow.slice;
        assert_eq!((slice.next_event(3), slice.next_event(3), slice.next_event(3)), (Some(1), Some(2), None));
        assert!(slice.is_through(3));
    }
}
