//! Answers of which every core has a part: the asker's side. What is asked and how parts become one answer, joined or
//! merged by key, is the [`Gathering`]'s; it may ask more than once, for what it asks next may rest on what all cores
//! have told.
//!
//! Invariants: a core has one gathering under way; the others wait, in order. What is queued for a connection is
//! bounded between turns only, so that many answers at once would be as much memory as they like, and a turn as long.
//! Every core answers every ask once, in whatever order.

use std::collections::VecDeque;

use crate::engine::service::ConnId;

use super::by_conn::ByConn;

/// What is gathered for a connection.
pub trait Gathering {
    /// What every core is asked.
    type Ask;
    /// What a core answers.
    type Part;

    /// It is its turn: the first ask.
    fn begin(&mut self) -> Self::Ask;

    /// Takes in one core's part of what was asked last.
    fn take(&mut self, part: Self::Part);

    /// Every core has told its part. What they are asked next; nothing if the answer is complete.
    fn ask_again(&mut self) -> Option<Self::Ask>;
}

/// What follows from a part.
#[derive(Debug)]
pub enum NextAsk<G: Gathering> {
    /// Every core is asked again.
    Ask(G::Ask),
    /// This is the answer to the connection, which may be gone.
    Answer(ConnId, G),
}

/// The gathering under way.
#[derive(Debug)]
struct Open<G> {
    conn: ConnId,
    gathering: G,
    /// Cores that have not answered the last ask.
    missing: usize,
}

/// Gatherings of one core. Each holds up its connection, so there are at most as many as connections.
#[derive(Debug)]
pub struct Gatherings<G> {
    open: Option<Open<G>>,
    waiting: ByConn<G>,
    /// The order of `waiting`; who is gone from there is passed over.
    order: VecDeque<ConnId>,
}

impl<G> Default for Gatherings<G> {
    fn default() -> Self {
        Self { open: None, waiting: ByConn::default(), order: VecDeque::new() }
    }
}

impl<G: Gathering> Gatherings<G> {
    /// A connection asks, which has nothing gathered for it yet.
    pub fn push(&mut self, conn: ConnId, gathering: G) {
        self.waiting.insert(conn, gathering);
        self.order.push_back(conn);
    }

    /// The connection is gone: if it waits, nothing need be gathered for it.
    pub fn forget(&mut self, conn: ConnId) {
        self.waiting.remove(conn);
    }

    /// Whether the next gathering could begin.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.open.is_none() && !self.waiting.is_empty()
    }

    /// Begins the next gathering, unless one is under way: what every one of `cores` is to be asked.
    pub fn begin(&mut self, cores: usize) -> Option<G::Ask> {
        if self.open.is_some() {
            return None;
        }
        loop {
            let conn = self.order.pop_front()?;
            let Some(mut gathering) = self.waiting.remove(conn) else { continue };
            let ask = gathering.begin();
            self.open = Some(Open { conn, gathering, missing: cores });
            return Some(ask);
        }
    }

    /// Takes in a part of what `cores` were asked; with the last one tells how it goes on.
    pub fn take(&mut self, part: G::Part, cores: usize) -> Option<NextAsk<G>> {
        let open = self.open.as_mut()?;
        open.gathering.take(part);
        open.missing -= 1;
        if open.missing > 0 {
            return None;
        }
        if let Some(ask) = open.gathering.ask_again() {
            open.missing = cores;
            return Some(NextAsk::Ask(ask));
        }
        self.open.take().map(|open| NextAsk::Answer(open.conn, open.gathering))
    }

    /// Whether nothing is being gathered, nor waits to be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(slot: u32) -> ConnId {
        ConnId { slot, generation: 0 }
    }

    /// Asks for a number so many times over, and sums what it is told.
    #[derive(Debug)]
    struct Sum {
        rounds: usize,
        total: usize,
    }

    fn sum(rounds: usize) -> Sum {
        Sum { rounds, total: 0 }
    }

    impl Gathering for Sum {
        type Ask = usize;
        type Part = usize;

        fn begin(&mut self) -> usize {
            self.rounds
        }

        fn take(&mut self, part: usize) {
            self.total += part;
        }

        fn ask_again(&mut self) -> Option<usize> {
            self.rounds -= 1;
            (self.rounds > 0).then_some(self.rounds)
        }
    }

    #[test]
    fn every_core_is_asked_as_often_as_it_takes() {
        let mut gatherings = Gatherings::default();
        gatherings.push(conn(7), sum(2));
        assert_eq!(gatherings.begin(3), Some(2));
        assert!(gatherings.take(1, 3).is_none() && gatherings.take(2, 3).is_none(), "a core has not answered");
        assert!(matches!(gatherings.take(3, 3), Some(NextAsk::Ask(1))));
        assert!(gatherings.take(10, 3).is_none() && gatherings.take(20, 3).is_none());
        match gatherings.take(30, 3) {
            Some(NextAsk::Answer(to, Sum { total: 66, .. })) => assert_eq!(to, conn(7)),
            other => panic!("{other:?}"),
        }
        assert!(gatherings.is_empty());
    }

    #[test]
    fn one_gathering_is_under_way_and_who_is_gone_is_passed_over() {
        let mut gatherings = Gatherings::default();
        (1..=3).for_each(|slot| gatherings.push(conn(slot), sum(1)));
        let answered = |gatherings: &mut Gatherings<Sum>| {
            assert!(!gatherings.has_work() && gatherings.begin(1).is_none(), "one at a time");
            match gatherings.take(1, 1) {
                Some(NextAsk::Answer(conn, _)) => conn,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(gatherings.begin(1), Some(1));
        gatherings.forget(conn(2));
        assert_eq!(answered(&mut gatherings), conn(1), "who is gone while it is under way is answered all the same");
        assert!(gatherings.has_work() && !gatherings.is_empty());
        assert_eq!(gatherings.begin(1), Some(1));
        gatherings.forget(conn(3));
        assert_eq!(answered(&mut gatherings), conn(3));
        assert!(gatherings.is_empty() && gatherings.begin(1).is_none());
    }
}
