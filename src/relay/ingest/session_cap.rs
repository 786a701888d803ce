//! The session cap, kept by the core that took the events in (contract §3).
//!
//! A batch's events reach several owners, and one owner may create a session before another has refreshed the session
//! that was the least recently written one when the batch began. So owners evict nothing for the cap: they count what
//! they create ([`Shared::session_created`]) and tell the receiving core how many of it were over the cap. That core
//! settles when *every* owner has admitted its part: only then does the order of the batch stand in the recency of all
//! sessions, and only then is the batch answered. Until then sessions may be more than the cap by what batches under
//! way have created. Those kept in the end are the same as if each had been evicted at once, except that a session
//! written again in the same batch keeps its history.
//!
//! An eviction is first claimed ([`Shared::claim_eviction`]), which counts the session as gone; two cores that settle
//! at once cannot both evict for the same excess. The victim is the session with the lowest of the published oldest
//! ticks, and its owner evicts it only if it still bears that tick; otherwise the claim is given back and all begins
//! anew, as the excess may have gone with what changed.
//!
//! Knows no owner and no connection: it says what to do next ([`SessionCap::step`]) and hears what became of it.
//!
//! Invariants: at most one eviction of a core is claimed at a time, and only while it is being asked for; the evictions
//! owed by all cores are never fewer than the sessions over the cap, so with nothing owed the cap is kept; answers
//! leave in the order of their settlements.

use std::collections::VecDeque;

use crate::engine::service::{ConnId, CoreId, Response};

use crate::relay::shared::Shared;

/// What a client gets once the cap is kept again.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The answer to a POST.
    Published(ConnId, Response),
    /// A frame for a WebSocket that waits for it.
    Frame(ConnId, Vec<u8>),
}

/// What admitted events leave to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// Sessions created over the cap.
    pub owed: usize,
    /// Who waits for their evictions.
    pub answer: Option<Answer>,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub enum CapStep {
    /// Have this core evict its oldest session if it bears this tick; then tell [`SessionCap::evicted`].
    Evict(CoreId, u64),
    /// Answer.
    Answer(Answer),
}

/// The settlements of one core.
#[derive(Debug, Default)]
pub struct SessionCap {
    /// Settled one after the other.
    due: VecDeque<Settlement>,
    /// An eviction is claimed for the first of them and has been asked for.
    claimed: bool,
}

impl SessionCap {
    /// Takes a settlement in.
    pub fn push(&mut self, settlement: Settlement) {
        self.due.push_back(settlement);
    }

    /// Whether everything is settled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    /// Whether [`SessionCap::step`] could go on.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.due.is_empty() && !self.claimed
    }

    /// The next step. None: nothing is due, an eviction has been asked for, or another core is between an eviction and
    /// its count, which the next turn will find done.
    pub fn step(&mut self, shared: &Shared) -> Option<CapStep> {
        while !self.claimed {
            let first = self.due.front_mut()?;
            if first.owed > 0 && shared.claim_eviction() {
                let Some((core, tick)) = shared.oldest() else {
                    shared.release_eviction();
                    return None;
                };
                self.claimed = true;
                return Some(CapStep::Evict(core, tick));
            }
            // Nothing is owed any more, or the cap is kept already: sessions went for their bytes, or other cores have
            // evicted for these.
            if let Some(answer) = self.due.pop_front().and_then(|settlement| settlement.answer) {
                return Some(CapStep::Answer(answer));
            }
        }
        None
    }

    /// What became of the eviction asked for last.
    pub fn evicted(&mut self, shared: &Shared, done: bool) {
        debug_assert!(self.claimed, "only what was asked for is answered");
        self.claimed = false;
        if !done {
            shared.release_eviction();
        } else if let Some(first) = self.due.front_mut() {
            first.owed -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::thread;

    use crate::limits::Limits;

    use super::*;

    fn shared(sessions_max: usize, cores: usize) -> Shared {
        Shared::new(Limits { sessions_max, ..Limits::default() }, cores, false)
    }

    fn frame(n: u32) -> Answer {
        Answer::Frame(ConnId { slot: n, generation: 0 }, Vec::new())
    }

    fn owing(owed: usize, n: u32) -> Settlement {
        Settlement { owed, answer: Some(frame(n)) }
    }

    #[test]
    fn an_answer_waits_for_its_evictions_and_for_those_before_it() {
        let shared = shared(2, 2);
        let over: Vec<bool> = (0..5).map(|_| shared.session_created()).collect();
        assert_eq!(over, [false, false, true, true, true]);
        shared.publish_oldest(CoreId(0), Some(7));
        shared.publish_oldest(CoreId(1), Some(5));
        let mut cap = SessionCap::default();
        cap.push(owing(2, 1));
        cap.push(owing(1, 2));
        cap.push(owing(0, 3));
        assert_eq!(cap.step(&shared), Some(CapStep::Evict(CoreId(1), 5)));
        assert_eq!(cap.step(&shared), None, "one at a time");
        assert!(!cap.has_work());
        shared.publish_oldest(CoreId(1), Some(9));
        cap.evicted(&shared, true);
        assert_eq!(cap.step(&shared), Some(CapStep::Evict(CoreId(0), 7)));
        shared.publish_oldest(CoreId(0), None);
        cap.evicted(&shared, true);
        assert_eq!(cap.step(&shared), Some(CapStep::Answer(frame(1))));
        assert_eq!(cap.step(&shared), Some(CapStep::Evict(CoreId(1), 9)));
        cap.evicted(&shared, true);
        assert_eq!(cap.step(&shared), Some(CapStep::Answer(frame(2))));
        assert_eq!(cap.step(&shared), Some(CapStep::Answer(frame(3))));
        assert_eq!(cap.step(&shared), None);
        assert!(cap.is_idle());
        assert_eq!(shared.sessions(), 2);
    }

    /// One core holds two sessions where one may be, and has been asked to evict the older.
    fn asked_to_evict() -> (Shared, SessionCap) {
        let shared = shared(1, 1);
        assert_eq!((shared.session_created(), shared.session_created()), (false, true));
        shared.publish_oldest(CoreId(0), Some(1));
        let mut cap = SessionCap::default();
        cap.push(owing(1, 1));
        assert_eq!(cap.step(&shared), Some(CapStep::Evict(CoreId(0), 1)));
        (shared, cap)
    }

    #[test]
    fn a_victim_written_meanwhile_stays_and_another_is_chosen() {
        let (shared, mut cap) = asked_to_evict();
        assert_eq!(shared.sessions(), 1, "what is claimed counts as gone");
        shared.publish_oldest(CoreId(0), Some(2));
        cap.evicted(&shared, false);
        assert_eq!(shared.sessions(), 2);
        assert_eq!(cap.step(&shared), Some(CapStep::Evict(CoreId(0), 2)));
    }

    #[test]
    fn what_went_for_its_bytes_is_not_evicted_for_again() {
        let (shared, mut cap) = asked_to_evict();
        // Both go before the eviction is asked for; the count is below zero for that moment.
        shared.session_evicted();
        shared.session_evicted();
        assert!(!shared.claim_eviction());
        cap.evicted(&shared, false);
        assert_eq!(cap.step(&shared), Some(CapStep::Answer(frame(1))));
        assert_eq!(shared.sessions(), 0);
    }

    /// Cores that create and settle at once, each its own sessions; the byte budget takes some in between.
    #[test]
    fn cores_that_settle_at_once_leave_exactly_the_cap() {
        const CORES: u16 = 4;
        const MAX: usize = 16;
        const ROUNDS: u64 = 2000;
        let shared = shared(MAX, usize::from(CORES));
        let held: Vec<Mutex<BTreeSet<u64>>> = (0..CORES).map(|_| Mutex::default()).collect();
        // As an owner does it: change, publish, count.
        let evict = |core: CoreId, tick: u64| {
            let mut held = held[usize::from(core.0)].lock().unwrap();
            let done = held.first() == Some(&tick) && held.remove(&tick);
            shared.publish_oldest(core, held.first().copied());
            done
        };
        let run = |core: CoreId| {
            let mut cap = SessionCap::default();
            for round in 0..ROUNDS {
                let mut owed = 0;
                for _ in 0..=round % 3 {
                    let tick = shared.take_ticks(1);
                    let mut held = held[usize::from(core.0)].lock().unwrap();
                    held.insert(tick);
                    shared.publish_oldest(core, held.first().copied());
                    owed += usize::from(shared.session_created());
                }
                cap.push(Settlement { owed, answer: None });
                if round % 50 == 0
                    && let Some((core, tick)) = shared.oldest()
                    && evict(core, tick)
                {
                    shared.session_evicted();
                }
                while !cap.is_idle() {
                    if let Some(CapStep::Evict(core, tick)) = cap.step(&shared) {
                        let done = evict(core, tick);
                        cap.evicted(&shared, done);
                    }
                }
            }
        };
        thread::scope(|scope| {
            for core in (0..CORES).map(CoreId) {
                scope.spawn(move || run(core));
            }
        });
        let left: usize = held.iter().map(|held| held.lock().unwrap().len()).sum();
        assert_eq!(left, shared.sessions());
        // Who took the last bytes has created more than enough behind it.
        assert_eq!(left, MAX);
    }
}
