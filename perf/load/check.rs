//! The account of one consumer: what it should have seen, and what it saw.
//!
//! Owns, per followed session, the next sequence number expected and the gaps left behind. Knows no socket and no
//! protocol. A number above the expected one opens a gap; one inside a gap arrived late (out of order, not lost); any
//! other below the expected one is a double. What is left of the gaps in the end, with what never came behind the last
//! number seen, is lost, unless the server announced having shed that many.
//! Invariant: gaps are ascending, disjoint, below `next`, and at most [`GAPS_MAX`]; what a further gap displaces is
//! counted as lost at once.

use std::ops::Range;

use super::event::Mark;

/// Gaps remembered per session and consumer; a server that leaves more is broken beyond doubt.
const GAPS_MAX: usize = 256;

/// The sessions a consumer follows: `count` in a row from `first`, around a circle of `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Follows {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) of: u32,
}

impl Follows {
    /// Every session there is.
    pub(crate) fn all(of: u32) -> Self {
        Self { first: 0, count: of, of }
    }

    /// No session.
    pub(crate) fn none() -> Self {
        Self { first: 0, count: 0, of: 1 }
    }

    fn index(self, session: u32) -> Option<usize> {
        let place = if session >= self.first { session - self.first } else { session + self.of - self.first };
        (session < self.of && place < self.count).then_some(place as usize)
    }

    /// The sessions' numbers.
    pub(crate) fn sessions(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |place| (self.first + place) % self.of)
    }
}

/// What a consumer saw, summed over its sessions.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Events seen for the first time.
    pub(crate) delivered: u64,
    /// Events seen again.
    pub(crate) duplicated: u64,
    /// Events seen behind a later one of their session.
    pub(crate) out_of_order: u64,
    /// Events whose length is not the one they were sent with, and those of sessions not asked for.
    pub(crate) damaged: u64,
    /// Events the server said it left out.
    pub(crate) shed: u64,
    /// Events that never came, [`shed`](Self::shed) not counted. Known at the end.
    pub(crate) lost: u64,
}

impl Tally {
    /// Adds another consumer's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
        self.damaged += other.damaged;
        self.shed += other.shed;
        self.lost += other.lost;
    }

    /// Whether the server kept its word.
    pub(crate) fn is_sound(&self) -> bool {
        self.lost + self.duplicated + self.out_of_order + self.damaged == 0
    }
}

/// One session as one consumer sees it.
#[derive(Debug)]
struct Sequence {
    /// Lowest number above all seen.
    next: u64,
    /// Numbers below `next` not seen.
    gaps: Vec<Range<u64>>,
}

/// The account of one consumer.
#[derive(Debug)]
pub(crate) struct Check {
    follows: Follows,
    sequences: Vec<Sequence>,
    tally: Tally,
}

impl Check {
    /// A consumer that has seen nothing yet.
    pub(crate) fn new(follows: Follows) -> Self {
        let sequences = (0..follows.count).map(|_| Sequence { next: 1, gaps: Vec::new() }).collect();
        Self { follows, sequences, tally: Tally::default() }
    }

    /// Notes an event of `bytes` bytes. True when it came for the first time.
    pub(crate) fn on_event(&mut self, mark: Mark, bytes: usize) -> bool {
        let sequence = self.follows.index(mark.session).and_then(|index| self.sequences.get_mut(index));
        let Some(sequence) = sequence.filter(|_| mark.bytes == bytes) else {
            self.tally.damaged += 1;
            return false;
        };
        let new = sequence.note(mark.seq, &mut self.tally);
        self.tally.delivered += u64::from(new);
        new
    }

    /// Notes that the server left out `count` events.
    pub(crate) fn on_shed(&mut self, count: u64) {
        self.tally.shed += count;
    }

    /// Per followed session, its number and the position to resume from: the last number seen, 0 for none.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (u32, u64)> {
        self.follows.sessions().zip(&self.sequences).map(|(session, sequence)| (session, sequence.next - 1))
    }

    /// Closes the account, given how many events each session had.
    pub(crate) fn close(&self, published: &[u64]) -> Tally {
        let missing: u64 = self
            .follows
            .sessions()
            .zip(&self.sequences)
            .map(|(session, sequence)| sequence.missing(published.get(session as usize).copied().unwrap_or(0)))
            .sum();
        let mut tally = self.tally;
        tally.lost = (tally.lost + missing).saturating_sub(tally.shed);
        tally
    }
}

impl Sequence {
    /// True when the number is new.
    fn note(&mut self, seq: u64, tally: &mut Tally) -> bool {
        if seq >= self.next {
            if seq > self.next {
                if self.gaps.len() == GAPS_MAX {
                    let displaced = self.gaps.remove(0);
                    tally.lost += displaced.end - displaced.start;
                }
                self.gaps.push(self.next..seq);
            }
            self.next = seq + 1;
            return true;
        }
        let Some(place) = self.gaps.iter().position(|gap| gap.contains(&seq)) else {
            tally.duplicated += 1;
            return false;
        };
        let gap = self.gaps.remove(place);
        let parts = [gap.start..seq, seq + 1..gap.end].into_iter().filter(|part| !part.is_empty());
        self.gaps.splice(place..place, parts);
        tally.out_of_order += 1;
        true
    }

    fn missing(&self, published: u64) -> u64 {
        let within: u64 = self.gaps.iter().map(|gap| gap.end - gap.start).sum();
        within + (published + 1).saturating_sub(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 300;

    fn mark(session: u32, seq: u64) -> Mark {
        Mark { run: 0, session, seq, at: 0, bytes: BYTES }
    }

    fn see(check: &mut Check, session: u32, seqs: &[u64]) {
        for &seq in seqs {
            check.on_event(mark(session, seq), BYTES);
        }
    }

    #[test]
    fn all_in_order_is_sound() {
        let mut check = Check::new(Follows::all(2));
        see(&mut check, 0, &[1, 2, 3]);
        see(&mut check, 1, &[1]);
        let tally = check.close(&[3, 1]);
        assert_eq!(tally, Tally { delivered: 4, ..Tally::default() });
        assert!(tally.is_sound());
    }

    #[test]
    fn gaps_and_a_missing_end_are_lost() {
        let mut check = Check::new(Follows::all(1));
        see(&mut check, 0, &[1, 4, 5]);
        assert_eq!(check.close(&[7]).lost, 2 + 2);
    }

    #[test]
    fn a_late_event_is_out_of_order_once_and_neither_lost_nor_double() {
        let mut check = Check::new(Follows::all(1));
        see(&mut check, 0, &[1, 5, 3]);
        let tally = check.close(&[5]);
        assert_eq!((tally.out_of_order, tally.duplicated, tally.lost), (1, 0, 2));
        see(&mut check, 0, &[3, 2, 4]);
        let tally = check.close(&[5]);
        assert_eq!((tally.out_of_order, tally.duplicated, tally.lost), (3, 1, 0));
    }

    #[test]
    fn an_event_seen_again_is_a_double() {
        let mut check = Check::new(Follows::all(1));
        see(&mut check, 0, &[1, 2, 2, 1]);
        let tally = check.close(&[2]);
        assert_eq!((tally.delivered, tally.duplicated, tally.lost), (2, 2, 0));
        assert!(!tally.is_sound());
    }

    #[test]
    fn what_the_server_announced_is_not_lost() {
        let mut check = Check::new(Follows::all(1));
        see(&mut check, 0, &[1, 4]);
        check.on_shed(2);
        assert!(check.close(&[4]).is_sound());
        assert_eq!(check.close(&[5]).lost, 1);
    }

    #[test]
    fn sessions_not_asked_for_and_torn_events_are_damage() {
        let mut check = Check::new(Follows { first: 3, count: 2, of: 4 });
        assert_eq!(check.follows.sessions().collect::<Vec<_>>(), [3, 0]);
        see(&mut check, 3, &[1]);
        see(&mut check, 0, &[1]);
        see(&mut check, 1, &[1]);
        check.on_event(mark(0, 2), BYTES - 1);
        let tally = check.close(&[2, 1, 0, 1]);
        assert_eq!((tally.delivered, tally.damaged, tally.lost), (2, 2, 1));
    }

    #[test]
    fn gaps_are_bounded_and_the_displaced_stay_lost() {
        let mut check = Check::new(Follows::all(1));
        let odd: Vec<u64> = (0..2000).map(|n| 2 * n + 2).collect();
        see(&mut check, 0, &odd);
        assert_eq!(check.sequences[0].gaps.len(), GAPS_MAX);
        assert_eq!(check.close(&[4000]).lost, 2000);
    }

    #[test]
    fn a_consumer_resumes_behind_the_last_number_it_saw() {
        let mut check = Check::new(Follows::all(2));
        see(&mut check, 1, &[1, 2]);
        assert_eq!(check.positions().collect::<Vec<_>>(), [(0, 0), (1, 2)]);
    }
}
