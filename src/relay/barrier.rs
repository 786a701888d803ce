//! Which events of WebSockets their owners have admitted: what must not overtake them waits here (contract §3, §6).
//!
//! Owners admit one core's batches in the order in which it hands them over, so two counters per owner tell all: batches
//! handed over, and batches admitted. Who waits notes the former, and goes on when the latter have come that far.
//!
//! Invariants: no owner has admitted more than was handed over; those that wait go on in their order; beside one waiting
//! connection each there are at most two more that wait for evictions alone.

use std::collections::VecDeque;

use crate::engine::service::CoreId;

use super::session_cap::{Answer, Settlement};

/// The batches of WebSocket events that one core has handed over.
#[derive(Debug)]
pub struct Barrier {
    handed_over: Vec<u64>,
    admitted: Vec<u64>,
    waiting: VecDeque<Wait>,
}

#[derive(Debug)]
struct Wait {
    /// By owner, what must be admitted.
    until: Vec<u64>,
    settlement: Settlement,
}

impl Barrier {
    /// The barrier of a core among `cores`.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self { handed_over: vec![0; cores], admitted: vec![0; cores], waiting: VecDeque::new() }
    }

    /// A batch goes to its owner.
    pub fn hand_over(&mut self, owner: CoreId) {
        if let Some(count) = self.handed_over.get_mut(usize::from(owner.0)) {
            *count += 1;
        }
    }

    /// An owner has admitted its next batch.
    pub fn admitted(&mut self, owner: CoreId) {
        if let Some(count) = self.admitted.get_mut(usize::from(owner.0)) {
            *count += 1;
        }
    }

    /// Evictions are owed, to be made when everything handed over so far is admitted.
    pub fn owe(&mut self, owed: usize) {
        if owed == 0 {
            return;
        }
        // The first one's mark is never moved on, or a stream of new sessions would put it off for ever.
        let begun = self.waiting.len() > 1;
        match self.waiting.back_mut() {
            Some(last) if begun && last.settlement.answer.is_none() => {
                last.settlement.owed += owed;
                last.until.clone_from(&self.handed_over);
            }
            _ => self.wait(Settlement { owed, answer: None }),
        }
    }

    /// This is answered when everything handed over so far is admitted, and what it owes is settled.
    pub fn answer(&mut self, answer: Answer) {
        self.wait(Settlement { owed: 0, answer: Some(answer) });
    }

    fn wait(&mut self, settlement: Settlement) {
        self.waiting.push_back(Wait { until: self.handed_over.clone(), settlement });
    }

    /// Takes the first that need not wait any longer.
    pub fn take(&mut self) -> Option<Settlement> {
        let reached = self.waiting.front()?.until.iter().zip(&self.admitted).all(|(until, admitted)| admitted >= until);
        if reached { self.waiting.pop_front().map(|wait| wait.settlement) } else { None }
    }

    /// Whether everything is admitted, and nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.handed_over == self.admitted
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::service::ConnId;

    use super::*;

    const ZERO: CoreId = CoreId(0);
    const ONE: CoreId = CoreId(1);

    fn frame() -> Answer {
        Answer::Frame(ConnId { slot: 1, generation: 0 }, Vec::new())
    }

    #[test]
    fn what_waits_goes_on_when_all_owners_have_admitted_what_came_before_it() {
        let mut barrier = Barrier::new(2);
        barrier.hand_over(ZERO);
        barrier.hand_over(ONE);
        barrier.admitted(ONE);
        barrier.owe(3);
        barrier.answer(frame());
        barrier.hand_over(ONE);
        assert_eq!(barrier.take(), None, "the first owner has admitted nothing");
        barrier.admitted(ZERO);
        assert_eq!(barrier.take(), Some(Settlement { owed: 3, answer: None }));
        assert_eq!(barrier.take(), Some(Settlement { owed: 0, answer: Some(frame()) }));
        assert!(!barrier.is_idle(), "a batch is under way, though nobody waits for it");
        barrier.admitted(ONE);
        assert!(barrier.is_idle());
    }

    #[test]
    fn a_stream_of_debts_neither_piles_up_nor_puts_off_the_first() {
        let mut barrier = Barrier::new(2);
        barrier.hand_over(ZERO);
        for owed in 1..=100 {
            barrier.hand_over(ONE);
            barrier.admitted(ONE);
            barrier.owe(owed);
        }
        assert_eq!(barrier.waiting.len(), 2);
        barrier.hand_over(ONE);
        barrier.admitted(ZERO);
        assert_eq!(barrier.take(), Some(Settlement { owed: 1, answer: None }));
        assert_eq!(barrier.take(), Some(Settlement { owed: 5049, answer: None }));
    }
}
