//! What must not overtake: who waits here until all that was handed over before is acknowledged (admitted by its
//! owners, committed by a store).
//!
//! Each taker acknowledges in the order in which things are handed to it, so two counters per taker tell all: things
//! handed over, and things acknowledged. Who waits notes the former, and goes on when the latter have come that far.
//!
//! Invariants: nobody acknowledges more than was handed over; those that wait go on in their order.

use std::collections::VecDeque;

/// What was handed over to a fixed number of takers, and what waits for it: `W`.
#[derive(Debug)]
pub struct Barrier<W> {
    handed_over: Vec<u64>,
    acknowledged: Vec<u64>,
    waiting: VecDeque<Wait<W>>,
}

#[derive(Debug)]
struct Wait<W> {
    /// By taker, what must be acknowledged.
    until: Vec<u64>,
    waiter: W,
}

impl<W> Barrier<W> {
    /// A barrier before so many takers, numbered from 0: cores, for example.
    #[must_use]
    pub fn new(takers: usize) -> Self {
        Self { handed_over: vec![0; takers], acknowledged: vec![0; takers], waiting: VecDeque::new() }
    }

    /// Something goes to a taker.
    pub fn hand_over(&mut self, taker: usize) {
        if let Some(count) = self.handed_over.get_mut(taker) {
            *count += 1;
        }
    }

    /// A taker has acknowledged the next thing it was handed.
    pub fn acknowledged(&mut self, taker: usize) {
        if let Some(count) = self.acknowledged.get_mut(taker) {
            *count += 1;
            debug_assert!(self.handed_over.get(taker).is_some_and(|handed| *count <= *handed), "handed over before");
        }
    }

    /// This goes on when everything handed over so far is acknowledged.
    pub fn wait(&mut self, waiter: W) {
        self.waiting.push_back(Wait { until: self.handed_over.clone(), waiter });
    }

    /// Asks the last that waits to take something in: if it does, it waits for everything handed over so far. So a
    /// stream of small things need not pile up. The first is not asked: its mark never moves on, or such a stream would
    /// put it off for ever. Whether it was taken in.
    pub fn join_last(&mut self, takes_in: impl FnOnce(&mut W) -> bool) -> bool {
        let is_first = self.waiting.len() == 1;
        let Some(last) = self.waiting.back_mut().filter(|_| !is_first) else { return false };
        let taken_in = takes_in(&mut last.waiter);
        if taken_in {
            last.until.clone_from(&self.handed_over);
        }
        taken_in
    }

    /// Takes the first that need not wait any longer.
    pub fn take(&mut self) -> Option<W> {
        let mut counts = self.waiting.front()?.until.iter().zip(&self.acknowledged);
        let reached = counts.all(|(until, acknowledged)| acknowledged >= until);
        if reached { self.waiting.pop_front().map(|wait| wait.waiter) } else { None }
    }

    /// Whether everything is acknowledged, and nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.handed_over == self.acknowledged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_goes_on_when_all_have_acknowledged_what_came_before_it() {
        let mut barrier = Barrier::new(2);
        barrier.hand_over(0);
        barrier.hand_over(1);
        barrier.acknowledged(1);
        barrier.wait('a');
        barrier.wait('b');
        barrier.hand_over(1);
        barrier.wait('c');
        assert_eq!(barrier.take(), None, "the first taker has acknowledged nothing");
        barrier.acknowledged(0);
        assert_eq!((barrier.take(), barrier.take(), barrier.take()), (Some('a'), Some('b'), None));
        assert!(!barrier.is_idle(), "something is under way");
        barrier.acknowledged(1);
        assert!(!barrier.is_idle(), "somebody waits, though not for long");
        assert_eq!(barrier.take(), Some('c'));
        assert!(barrier.is_idle());
    }

    #[test]
    fn who_waits_for_nothing_goes_on_at_once() {
        let mut barrier = Barrier::new(1);
        barrier.wait('a');
        assert_eq!(barrier.take(), Some('a'));
    }

    #[test]
    fn a_stream_of_small_things_neither_piles_up_nor_puts_off_the_first() {
        let mut barrier = Barrier::new(2);
        barrier.hand_over(0);
        for more in 1..=100 {
            barrier.hand_over(1);
            barrier.acknowledged(1);
            let joined = barrier.join_last(|sum| {
                *sum += more;
                true
            });
            if !joined {
                barrier.wait(more);
            }
        }
        assert!(!barrier.join_last(|_| false), "who takes nothing in does not wait any longer");
        assert_eq!(barrier.waiting.len(), 2);
        barrier.hand_over(1);
        barrier.acknowledged(0);
        assert_eq!((barrier.take(), barrier.take(), barrier.take()), (Some(1), Some(5049), None));
    }
}
