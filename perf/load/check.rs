//! The account of one consumer: what it should have seen, and what it saw.
//!
//! Owns, per followed session, the next sequence number expected and the gaps left behind. Knows no socket and no
//! protocol. A number above the expected one opens a gap; one inside a gap arrived late (out of order, not lost); any
//! other below the expected one is a double. What is left of the gaps in the end, with what never came behind the last
//! number seen, is lost, unless the server announced having shed that many: what was seen and what was announced make
//! up what was published, exactly, and an announcement of more is as false as a loss without one. Invariant: gaps are
//! ascending, disjoint, below `next`, and at most [`GAPS_MAX`]; what a further gap displaces is counted as lost at
//! once.

use std::ops::Range;

use super::event::{Mark, Received};

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
    /// Events that are not to the last bit what was sent, streams that broke their protocol or ended within a message,
    /// and events of sessions not asked for.
    pub(crate) damaged: u64,
    /// Events the server said it left out.
    pub(crate) shed: u64,
    /// Events that never came, [`shed`](Self::shed) not counted. Known at the end.
    pub(crate) lost: u64,
    /// Events the server said it left out although they came, or never were. Known at the end.
    pub(crate) misannounced: u64,
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
        self.misannounced += other.misannounced;
    }

    /// Whether the server kept its word.
    pub(crate) fn is_sound(&self) -> bool {
        self.faults().iter().all(|(_, count)| *count == 0)
    }

    /// What a server that keeps its word has none of.
    pub(crate) fn faults(&self) -> [(&'static str, u64); 5] {
        [
            ("lost", self.lost),
            ("duplicated", self.duplicated),
            ("out of order", self.out_of_order),
            ("damaged", self.damaged),
            ("announced as left out and were not", self.misannounced),
        ]
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

    /// Notes an event that came: its mark, when it is the run's and came for the first time, or what is wrong with it.
    pub(crate) fn on_event(&mut self, received: Received) -> Result<Option<Mark>, &'static str> {
        let mark = match received {
            Received::Whole(mark) => mark,
            Received::Foreign => return Ok(None),
            Received::Damaged(why) => {
                self.on_damage();
                return Err(why);
            }
        };
        let sequence = self.follows.index(mark.session).and_then(|index| self.sequences.get_mut(index));
        let Some(sequence) = sequence else {
            self.on_damage();
            return Err("nobody asked for its session");
        };
        let new = sequence.note(mark.seq, &mut self.tally);
        self.tally.delivered += u64::from(new);
        Ok(new.then_some(mark))
    }

    /// Notes something that came and is not what was sent.
    pub(crate) fn on_damage(&mut self) {
        self.tally.damaged += 1;
    }

    /// Notes that the server left out `count` events.
    pub(crate) fn on_shed(&mut self, count: u64) {
        self.tally.shed += count;
    }

    /// Forgets announcements behind the positions that are resumed from: what they speak of comes again. Returns of how
    /// many events.
    pub(crate) fn on_resume(&mut self) -> u64 {
        let behind: u64 = self.sequences.iter().map(Sequence::within).sum();
        let forgotten = self.tally.shed.saturating_sub(self.tally.lost + behind);
        self.tally.shed -= forgotten;
        forgotten
    }

    /// Per followed session, its number and the position to resume from: the last number seen, 0 for none.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (u32, u64)> {
        self.follows.sessions().zip(&self.sequences).map(|(session, sequence)| (session, sequence.next - 1))
    }

    /// Closes the account, given how many events each session had, and whether the stream ends within something begun.
    pub(crate) fn close(&self, published: &[u64], is_torn: bool) -> Tally {
        let missing: u64 = self
            .follows
            .sessions()
            .zip(&self.sequences)
            .map(|(session, sequence)| sequence.missing(published.get(session as usize).copied().unwrap_or(0)))
            .sum();
        let mut tally = self.tally;
        let missing = tally.lost + missing;
        tally.lost = missing.saturating_sub(tally.shed);
        tally.misannounced = tally.shed.saturating_sub(missing);
        // What is begun may be one of those that are missing; when none is, nothing should be under way.
        tally.damaged += u64::from(is_torn && tally.lost == 0);
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

    /// Numbers not seen below the highest seen.
    fn within(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.end - gap.start).sum()
    }

    fn missing(&self, published: u64) -> u64 {
        self.within() + (published + 1).saturating_sub(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see(check: &mut Check, session: u32, seqs: &[u64]) {
        for &seq in seqs {
            let _noted = check.on_event(Received::Whole(Mark { run: 0, session, seq, at: 0 }));
        }
    }

    #[test]
    fn all_in_order_is_sound() {
        let mut check = Check::new(Follows::all(2));
        see(&mut check, 0, &[1, 2, 3]);
        see(&mut check, 1, &[1]);
        let tally = check.close(&[3, 1], false);
        assert_eq!(tally, Tally { delivered: 4, ..Tally::default() });
        assert!(tally.is_sound());
    }

    #[test]
    fn gaps_and_a_missing_end_are_lost() {
        let mut check = Check::new(Follows::all(1));
        see(&mut check, 0, &[1, 4, 5]);
        assert_eq!(check.close(&[7], false).lost, 2 + 2);
    }

    #[test]
    fn a_late_event_is_out_of_order_once_and_neither_lost_nor_double() {
        let mut check = Check::new(Follows::all(1));
        see(&mut check, 0, &[1, 5, 3]);
        let tally = check.close(&[5], false);
        assert_eq!((tally.out_of_order, tally.duplicated, tally.lost), (1, 0, 2));
        see(&mut check, 0, &[3, 2, 4]);
        let tally = check.close(&[5], false);
        assert_eq!((tally.out_of_order, tally.duplicated, tally.lost), (3, 1, 0));
    }

    #[test]
    fn an_event_seen_again_is_a_double() {
        let mut check = Check::new(Follows::all(1));
        see(&mut check, 0, &[1, 2, 2, 1]);
        let tally = check.close(&[2], false);
        assert_eq!((tally.delivered, tally.duplicated, tally.lost), (2, 2, 0));
        assert!(!tally.is_sound());
    }

    #[test]
    fn what_the_server_announced_is_not_lost() {
        let mut check = Check::new(Follows::all(1));
        see(&mut check, 0, &[1, 4]);
        check.on_shed(2);
        assert!(check.close(&[4], false).is_sound());
        assert_eq!(check.close(&[5], false).lost, 1);
    }

    #[test]
    fn what_was_announced_is_missing_or_the_announcement_is_false() {
        let mut check = Check::new(Follows::all(1));
        see(&mut check, 0, &[1, 2, 4]);
        check.on_shed(3);
        let tally = check.close(&[4], false);
        assert_eq!((tally.lost, tally.misannounced), (0, 2));
        assert!(!tally.is_sound());
    }

    #[test]
    fn what_was_announced_behind_the_position_resumed_from_comes_again() {
        let mut check = Check::new(Follows::all(1));
        see(&mut check, 0, &[1, 4]);
        check.on_shed(2 + 3);
        assert_eq!(check.on_resume(), 3);
        see(&mut check, 0, &[5, 6, 7]);
        assert!(check.close(&[7], false).is_sound());
    }

    #[test]
    fn a_stream_that_ends_within_something_is_torn_unless_something_is_missing() {
        let mut check = Check::new(Follows::all(1));
        see(&mut check, 0, &[1, 2]);
        assert_eq!(check.close(&[2], true).damaged, 1);
        assert_eq!(check.close(&[3], true), Tally { delivered: 2, lost: 1, ..Tally::default() });
    }

    #[test]
    fn sessions_not_asked_for_and_torn_events_are_damage() {
        let mut check = Check::new(Follows { first: 3, count: 2, of: 4 });
        assert_eq!(check.follows.sessions().collect::<Vec<_>>(), [3, 0]);
        see(&mut check, 3, &[1]);
        see(&mut check, 0, &[1]);
        see(&mut check, 1, &[1]);
        assert_eq!(check.on_event(Received::Damaged("why")), Err("why"));
        assert_eq!(check.on_event(Received::Foreign), Ok(None));
        let tally = check.close(&[2, 1, 0, 1], false);
        assert_eq!((tally.delivered, tally.damaged, tally.lost), (2, 2, 1));
    }

    #[test]
    fn gaps_are_bounded_and_the_displaced_stay_lost() {
        let mut check = Check::new(Follows::all(1));
        let odd: Vec<u64> = (0..2000).map(|n| 2 * n + 2).collect();
        see(&mut check, 0, &odd);
        assert_eq!(check.sequences[0].gaps.len(), GAPS_MAX);
        assert_eq!(check.close(&[4000], false).lost, 2000);
    }

    #[test]
    fn a_consumer_resumes_behind_the_last_number_it_saw() {
        let mut check = Check::new(Follows::all(2));
        see(&mut check, 1, &[1, 2]);
        assert_eq!(check.positions().collect::<Vec<_>>(), [(0, 0), (1, 2)]);
    }
}
