//! Mail that waits for its turn: what has come and has not been acted on yet.
//!
//! Mostly nothing waits here. But one piece of mail may hold hundreds of items, and an item may have to be looked at
//! for thousands of consumers. So a turn has a budget of looks; what is behind it waits for the next turn, and between
//! the two the core reads and writes for everybody else. While much waits, publishers wait, too ([`Inflow::admits`]),
//! so what waits is bounded.
//!
//! What a turn may do begins with its mail and ends with [`Inflow::begin_turn`], at the end of
//! [`Service::on_turn`](crate::engine::service::Service::on_turn). What is as large as [`Pace::large_bytes`] costs
//! milliseconds at each station: read, admitted, delivered. So it is the last that its turn does of that kind, at
//! whichever of them ([`Inflow::deal`]), and mail of that size is acted on at the beginning of a turn.
//!
//! Invariants: mail leaves in the order in which it came, so what follows something is never acted on before it; an
//! item once begun is done with in the same turn.

use std::collections::VecDeque;

use crate::engine::service::{Admits, CoreId, Mail};

/// How much a turn may do.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Looks of one turn.
    pub looks_per_turn: usize,
    /// What has so many bytes or more has a turn of its own at each station.
    pub large_bytes: usize,
}

/// How far the work of a turn may go, and how far it has come.
#[derive(Debug)]
pub struct TurnBudget {
    /// Looks left in this turn.
    looks: usize,
    /// The first item not done yet of the mail that comes first.
    item: usize,
}

impl TurnBudget {
    /// The next of so many items, if there is one and the turn may go on.
    pub fn next_item(&mut self, items: usize) -> Option<usize> {
        if self.looks == 0 || self.item >= items {
            return None;
        }
        self.item += 1;
        Some(self.item - 1)
    }

    /// Whether all of so many items are done.
    #[must_use]
    pub fn is_through(&self, items: usize) -> bool {
        self.item >= items
    }

    /// Counts what was looked at.
    pub fn spend(&mut self, looks: usize) {
        self.looks = self.looks.saturating_sub(looks);
    }
}

/// Mail that waits, with the weight it is counted with.
#[derive(Debug)]
struct WaitingMail<M> {
    from: CoreId,
    mail: M,
    weight: usize,
}

/// What waits, first to last, each with the core it came from.
#[derive(Debug)]
pub struct Inflow<M> {
    waiting: VecDeque<WaitingMail<M>>,
    bytes: usize,
    pace: Pace,
    slice: TurnBudget,
    /// Whether this turn has had what is large.
    had_large: bool,
}

impl<M: Mail> Inflow<M> {
    /// Nothing waits, and a turn begins.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        let slice = TurnBudget { looks: pace.looks_per_turn, item: 0 };
        Self { waiting: VecDeque::new(), bytes: 0, pace, slice, had_large: false }
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes mail in.
    pub fn push(&mut self, from: CoreId, mail: M) {
        let waiting = self.weigh(from, mail);
        self.waiting.push_back(waiting);
    }

    /// The mail that comes next, if this turn may go on, with the slice that it may take.
    pub fn take(&mut self) -> Option<(CoreId, M, &mut TurnBudget)> {
        if self.slice.looks == 0 {
            return None;
        }
        let is_large = self.waiting.front().is_some_and(|waiting| waiting.weight >= self.pace.large_bytes);
        if is_large && self.slice.looks < self.pace.looks_per_turn {
            return None;
        }
        let WaitingMail { from, mail, weight } = self.waiting.pop_front()?;
        self.bytes -= weight;
        Some((from, mail, &mut self.slice))
    }

    /// Counts mail in.
    fn weigh(&mut self, from: CoreId, mail: M) -> WaitingMail<M> {
        let weight = mail.weight();
        self.bytes += weight;
        WaitingMail { from, mail, weight }
    }

    /// Mail was acted on as far as the slice went: the rest of it comes first again.
    pub fn put_back(&mut self, from: CoreId, mail: M) {
        let waiting = self.weigh(from, mail);
        self.waiting.push_front(waiting);
    }

    /// Mail is not ready to be acted on: it comes first in the next turn.
    pub fn pause(&mut self, from: CoreId, mail: M) {
        self.put_back(from, mail);
        self.slice.looks = 0;
    }

    /// Mail of several items was acted on to its end.
    pub fn finish(&mut self) {
        self.slice.item = 0;
    }

    /// Something of so many bytes has been dealt with at some station.
    pub fn deal(&mut self, bytes: usize) {
        if bytes >= self.pace.large_bytes {
            self.slice.looks = 0;
            self.had_large = true;
        }
    }

    /// Whether this turn has had what is large.
    #[must_use]
    pub fn had_large(&self) -> bool {
        self.had_large
    }

    /// A new turn may look as much again.
    pub fn begin_turn(&mut self) {
        self.slice.looks = self.pace.looks_per_turn;
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::engine::service::Group;

    const PACE: Pace = Pace { looks_per_turn: 24, large_bytes: 2 << 10 };

    /// Mail of so many bytes.
    struct Letter(usize);

    impl Mail for Letter {
        fn weight(&self) -> usize {
            self.0
        }

        fn group(&self) -> Group {
            Group(0)
        }
    }

    #[test]
    fn publishers_wait_while_more_than_a_stage_waits() {
        const STAGE: usize = 4 << 10;
        let mut inflow = Inflow::new(PACE);
        let mut admitted = vec![inflow.admits(STAGE)];
        inflow.slice.spend(usize::MAX);
        while inflow.bytes < STAGE {
            inflow.push(CoreId(1), Letter(128));
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
    fn what_is_large_begins_a_turn_and_ends_it() {
        let mut inflow = Inflow::new(PACE);
        for bytes in [1, PACE.large_bytes, 1] {
            inflow.push(CoreId(0), Letter(bytes));
        }
        let taken = |inflow: &mut Inflow<Letter>| {
            let (_, mail, slice) = inflow.take()?;
            slice.spend(1);
            inflow.deal(mail.weight());
            Some(mail.weight() >= PACE.large_bytes)
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
        let mut inflow = Inflow::<Letter>::new(PACE);
        let slice = &mut inflow.slice;
        assert_eq!(slice.next_item(3), Some(0));
        slice.spend(PACE.looks_per_turn);
        assert_eq!((slice.next_item(3), slice.is_through(3)), (None, false));
        inflow.begin_turn();
        let slice = &mut inflow.slice;
        assert_eq!((slice.next_item(3), slice.next_item(3), slice.next_item(3)), (Some(1), Some(2), None));
        assert!(slice.is_through(3));
    }

    #[test]
    fn what_is_put_back_or_paused_comes_first_again() {
        let mut inflow = Inflow::new(PACE);
        (1..=2).for_each(|bytes| inflow.push(CoreId(0), Letter(bytes)));
        let taken = |inflow: &mut Inflow<Letter>| inflow.take().map(|(from, mail, _)| (from, mail));
        let (from, mail) = taken(&mut inflow).unwrap();
        inflow.put_back(from, mail);
        let (from, mail) = taken(&mut inflow).unwrap();
        assert_eq!((mail.0, inflow.bytes), (1, 2));
        inflow.pause(from, mail);
        assert!(taken(&mut inflow).is_none(), "the turn is over");
        inflow.begin_turn();
        assert_eq!(taken(&mut inflow).map(|(_, mail)| mail.0), Some(1));
        assert_eq!(taken(&mut inflow).map(|(_, mail)| mail.0), Some(2));
    }
    #[test]
    fn mail_is_counted_off_with_the_weight_it_was_counted_with() {
        /// Heavier each time it is asked.
        #[derive(Debug, Default)]
        struct Growing(AtomicUsize);
        impl Mail for Growing {
            fn weight(&self) -> usize {
                self.0.fetch_add(1, Ordering::Relaxed) + 1
            }

            fn group(&self) -> Group {
                Group(0)
            }
        }
        let mut inflow = Inflow::new(PACE);
        inflow.push(CoreId(0), Growing::default());
        let (from, mail, _) = inflow.take().unwrap();
        assert_eq!(inflow.bytes, 0);
        inflow.put_back(from, mail);
        inflow.take().unwrap();
        assert_eq!(inflow.bytes, 0);
    }
}
