//! One core's part of the roster (§6.7) and of `GET /connections` (§4), written some at a time.
//!
//! A part is asked for twice: first what each connection has to tell is measured ([`Sizes`]), then it is written, each
//! connection's up to the same share. Of who has more the oldest claims are told. Both are one walk over connections
//! and their claims that stops when a turn has looked at enough, and goes on where it stopped, by slot and by number of
//! claim.
//!
//! Invariants: what a connection says is written whole or taken back (it may be gone when its turn comes again); a
//! part never exceeds its bound, whatever was claimed since it was measured.

use std::collections::VecDeque;

use crate::engine::service::{ConnId, CoreId};
use crate::limits::LISTED_NAME_BYTES_MAX;
use crate::protocol::by_conn::ByConn;
use crate::wire::json;

use crate::relay::mail::list::{Ask, List, Part};
use crate::relay::mail::share::Sizes;
use crate::relay::party::hello::{Party, Portion};

/// Looks of one turn: one for each connection and claim, and one for every [`BYTES_PER_LOOK`] bytes. Few in tests, so
/// that the simulation meets its edges.
const LOOKS_PER_TURN: usize = if cfg!(test) { 8 } else { 8 << 10 };
const BYTES_PER_LOOK: usize = 64;

/// Parts to be told, first to last.
#[derive(Debug, Default)]
pub struct Listings {
    asked: VecDeque<Listing>,
}

impl Listings {
    /// A core asks for a part of at most `bytes_max` bytes.
    pub fn push(&mut self, from: CoreId, ask: Ask, bytes_max: usize) {
        self.asked.push_back(Listing::new(from, ask, bytes_max));
    }

    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Goes on for a turn's worth. A part that is complete, and for whom.
    pub fn step(&mut self, parties: &ByConn<Party>, subscriptions: &dyn Fn(ConnId) -> usize) -> Option<(CoreId, Part)> {
        let mut looks = Looks(LOOKS_PER_TURN);
        let listing = self.asked.front_mut()?;
        if !listing.step(parties, subscriptions, &mut looks) {
            return None;
        }
        self.asked.pop_front().map(Listing::into_part)
    }
}

/// What is left of a turn.
#[derive(Debug)]
struct Looks(usize);

impl Looks {
    fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(1 + bytes / BYTES_PER_LOOK);
    }
}

/// A connection being told.
#[derive(Debug)]
struct Telling {
    conn: ConnId,
    portion: Portion,
    /// Number of the claim that comes next.
    next_claim: u64,
    /// Where in the part its own begins.
    start: usize,
    /// Bytes of what it has told, and of its portion's end.
    bytes: usize,
    is_first: bool,
}

/// A part being made.
#[derive(Debug)]
struct Listing {
    from: CoreId,
    list: List,
    /// Bytes that a connection may have.
    share: usize,
    bytes_max: usize,
    /// Measured; `None` while writing.
    sizes: Option<Box<Sizes>>,
    written: Vec<u8>,
    truncated: bool,
    /// The slot to look at next.
    slot: u32,
    telling: Option<Telling>,
    scratch: Vec<u8>,
}

impl Listing {
    fn new(from: CoreId, ask: Ask, bytes_max: usize) -> Self {
        let (list, share, sizes) = match ask {
            // More than all together may have need not be told apart.
            Ask::Sizes(list) => (list, bytes_max, Some(Box::default())),
            Ask::Entries { list, share } => (list, share, None),
        };
        let (written, scratch) = (Vec::new(), Vec::new());
        Self { from, list, share, bytes_max, sizes, written, truncated: false, slot: 0, telling: None, scratch }
    }

    fn into_part(self) -> (CoreId, Part) {
        let Self { from, sizes, written, truncated, .. } = self;
        let part = match sizes {
            Some(sizes) => Part::Sizes(sizes),
            None => Part::Entries { entries: written, truncated },
        };
        (from, part)
    }

    /// Goes on as far as the looks go. Whether nothing is left to be told.
    fn step(&mut self, parties: &ByConn<Party>, subscriptions: &dyn Fn(ConnId) -> usize, looks: &mut Looks) -> bool {
        while looks.0 > 0 {
            if let Some(telling) = self.telling.take() {
                self.telling = self.go_on(parties, telling, looks);
                continue;
            }
            if self.slot >= parties.slots() {
                return true;
            }
            looks.spend(0);
            let found = parties.in_slot(self.slot);
            self.slot += 1;
            let Some((conn, party)) = found else { continue };
            let Some(portion) = party.portion(self.list, || subscriptions(conn)) else { continue };
            looks.spend(portion.bytes());
            self.telling = self.begin(conn, portion);
        }
        false
    }

    /// Begins with a connection, if there is room for what it says of itself.
    fn begin(&mut self, conn: ConnId, portion: Portion) -> Option<Telling> {
        let start = self.written.len();
        // The comma before it.
        let bytes = portion.head.len() + portion.tail.len() + usize::from(!portion.head.is_empty());
        if self.sizes.is_none() {
            if !self.takes(start, bytes) {
                self.truncated = true;
                return None;
            }
            if !portion.head.is_empty() {
                separate(&mut self.written);
                self.written.extend_from_slice(&portion.head);
            }
        }
        Some(Telling { conn, portion, next_claim: 0, start, bytes, is_first: true })
    }

    /// Whether a connection whose own begins at `start` may have so many bytes.
    fn takes(&self, start: usize, bytes: usize) -> bool {
        bytes <= self.share && start + bytes <= self.bytes_max
    }

    /// Goes on with a connection's claims; `None` once it has told what it may.
    fn go_on(&mut self, parties: &ByConn<Party>, mut telling: Telling, looks: &mut Looks) -> Option<Telling> {
        let Some(party) = parties.get(telling.conn) else {
            self.written.truncate(telling.start);
            return None;
        };
        for (number, session) in party.claims.iter_from(telling.next_claim) {
            if looks.0 == 0 {
                return Some(telling);
            }
            telling.next_claim = number + 1;
            let is_listed = session.len() <= LISTED_NAME_BYTES_MAX;
            self.scratch.clear();
            if is_listed {
                json::write_string(&mut self.scratch, session);
            }
            looks.spend(self.scratch.len());
            let Portion { item, behind, .. } = &telling.portion;
            let more = if is_listed { 1 + item.len() + self.scratch.len() + behind.len() } else { 0 };
            let fits = self.takes(telling.start, telling.bytes + more);
            if self.sizes.is_some() {
                telling.bytes += more;
                if !fits {
                    break;
                }
                continue;
            }
            self.truncated |= !fits || !is_listed;
            if !fits {
                break;
            }
            if is_listed {
                looks.spend(behind.len());
                let begins_list = telling.is_first && !telling.portion.head.is_empty();
                if !begins_list {
                    separate(&mut self.written);
                }
                for piece in [item.as_bytes(), &self.scratch, behind] {
                    self.written.extend_from_slice(piece);
                }
                telling.bytes += more;
                telling.is_first = false;
            }
        }
        match &mut self.sizes {
            Some(sizes) => sizes.add(telling.bytes),
            None => self.written.extend_from_slice(&telling.portion.tail),
        }
        None
    }
}

fn separate(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::party::claimed::ClaimedSessions;
    use crate::relay::party::hello::Hello;

    const FIRST: CoreId = CoreId(0);

    fn conn(slot: u32) -> ConnId {
        ConnId { slot, generation: 0 }
    }

    /// A connection of that agent with so many claims `s0`, `s1`, …
    fn party(agent: &str, claims: usize) -> Party {
        let hello = format!(r#"{{"type":"hello","versions":["0.1"],"role":"both","identity":{{"agent":"{agent}"}}}}"#);
        let mut party = Party {
            since: "T".into(),
            hello: Some(Box::new(Hello::parse(hello.as_bytes()).unwrap())),
            claims: ClaimedSessions::default(),
            awaiting: false,
            published: false,
        };
        for claim in 0..claims {
            party.claims.begin(&format!("s{claim}"));
        }
        party
    }

    fn parties(claims: &[usize]) -> ByConn<Party> {
        let mut parties = ByConn::default();
        for (slot, claims) in (0..).zip(claims) {
            parties.insert(conn(slot), party(&format!("a{slot}"), *claims));
        }
        parties
    }

    /// The part that is asked for, and in how many steps it was made.
    fn part(parties: &ByConn<Party>, ask: Ask, bytes_max: usize) -> (Part, usize) {
        let mut listings = Listings::default();
        listings.push(FIRST, ask, bytes_max);
        for steps in 1.. {
            assert!(!listings.is_empty());
            if let Some((to, part)) = listings.step(parties, &|_| 2) {
                assert_eq!(to, FIRST);
                assert!(listings.is_empty());
                return (part, steps);
            }
        }
        unreachable!()
    }

    /// What is written of a list, and whether something was left out.
    fn entries(parties: &ByConn<Party>, list: List, share: usize, bytes_max: usize) -> (String, bool) {
        match part(parties, Ask::Entries { list, share }, bytes_max).0 {
            Part::Entries { entries, truncated } => (String::from_utf8(entries).unwrap(), truncated),
            Part::Sizes(_) => panic!("sizes were not asked for"),
        }
    }

    fn sizes(parties: &ByConn<Party>, list: List, bytes_max: usize) -> Sizes {
        match part(parties, Ask::Sizes(list), bytes_max).0 {
            Part::Sizes(sizes) => *sizes,
            Part::Entries { .. } => panic!("entries were not asked for"),
        }
    }

    #[test]
    fn a_step_looks_at_a_turns_worth_however_much_there_is() {
        for list in [List::Roster, List::Connections] {
            for ask in [Ask::Sizes(list), Ask::Entries { list, share: usize::MAX }] {
                let (_, steps) = part(&parties(&[1000]), ask, usize::MAX);
                assert!(steps >= 1000 / LOOKS_PER_TURN, "{ask:?}: {steps} steps");
                let (_, steps) = part(&parties(&[0; 1000]), ask, usize::MAX);
                assert!(steps >= 1000 / LOOKS_PER_TURN, "{ask:?}: {steps} steps");
            }
        }
        let mut one = ByConn::default();
        one.insert(conn(999), party("late", 1));
        let (_, steps) = part(&one, Ask::Sizes(List::Roster), usize::MAX);
        assert!(steps >= 1000 / LOOKS_PER_TURN, "slots that nobody is in cost a look, too");
    }

    #[test]
    fn all_is_told_if_it_fits_and_what_was_measured_is_what_it_takes() {
        let all = parties(&[2, 0, 1]);
        let (roster, truncated) = entries(&all, List::Roster, usize::MAX / 2, usize::MAX / 2);
        let expected =
            [("s0", "a0"), ("s1", "a0"), ("s0", "a2")].map(|(s, a)| format!(r#"{{"session":"{s}","agent":"{a}"}}"#));
        assert_eq!((roster.as_str(), truncated), (expected.join(",").as_str(), false));
        let (connections, truncated) = entries(&all, List::Connections, usize::MAX / 2, usize::MAX / 2);
        let expected = [("a0", r#""s0","s1""#), ("a1", ""), ("a2", r#""s0""#)].map(|(agent, sessions)| {
            format!(r#"{{"role":"both","agent":"{agent}","sessions":[{sessions}],"subscriptions":2,"since":"T"}}"#)
        });
        assert_eq!((connections.as_str(), truncated), (expected.join(",").as_str(), false));

        for (list, written) in [(List::Roster, roster), (List::Connections, connections)] {
            // Every entry is counted with a comma.
            let enough = written.len() + 8;
            let share = sizes(&all, list, enough).share(enough);
            assert_eq!(entries(&all, list, share, enough), (written, false));
        }
    }

    #[test]
    fn of_who_has_most_the_newest_claims_are_left_out_and_nobody_else_loses_any() {
        let all = parties(&[1, 500, 2]);
        for list in [List::Roster, List::Connections] {
            for bytes_max in [400, 1000, 2000] {
                let share = sizes(&all, list, bytes_max).share(bytes_max);
                let (told, truncated) = entries(&all, list, share, bytes_max);
                assert!(truncated && told.len() <= bytes_max && told.len() > bytes_max / 2, "{told}");
                let told: serde_json::Value = serde_json::from_str(&format!("[{told}]")).unwrap();
                let mut claims = [0; 3];
                for entry in told.as_array().unwrap() {
                    let slot: usize = entry["agent"].as_str().unwrap()[1..].parse().unwrap();
                    match list {
                        List::Roster => {
                            assert_eq!(entry["session"], format!("s{}", claims[slot]), "the oldest come first");
                            claims[slot] += 1;
                        }
                        List::Connections => claims[slot] = entry["sessions"].as_array().unwrap().len(),
                    }
                }
                assert_eq!((claims[0], claims[2]), (1, 2));
                assert!(claims[1] > 2 && claims[1] < 500, "{claims:?}");
            }
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_left_out_alone() {
        let mut all = parties(&[1]);
        let party = all.get_mut(conn(0)).unwrap();
        party.claims.begin(&"x".repeat(LISTED_NAME_BYTES_MAX + 1));
        party.claims.begin("behind");
        for list in [List::Roster, List::Connections] {
            let (told, truncated) = entries(&all, list, usize::MAX / 2, usize::MAX / 2);
            assert!(truncated && told.contains("s0") && told.contains("behind") && !told.contains("xx"), "{told}");
        }
    }

    #[test]
    fn who_goes_while_it_is_told_of_is_taken_back() {
        for list in [List::Roster, List::Connections] {
            let mut all = parties(&[1, 100, 1]);
            let mut listings = Listings::default();
            listings.push(FIRST, Ask::Entries { list, share: 100_000 }, 100_000);
            for _ in 0..4 {
                assert!(listings.step(&all, &|_| 0).is_none());
            }
            all.remove(conn(1));
            all.insert(ConnId { slot: 1, generation: 1 }, party("stranger", 1));
            let part = std::iter::repeat_with(|| listings.step(&all, &|_| 0)).flatten().next();
            let Some((_, Part::Entries { entries, truncated: false })) = part else { panic!("{part:?}") };
            let told: serde_json::Value = serde_json::from_slice(&[b"[", &entries[..], b"]"].concat()).unwrap();
            let agents: Vec<&str> =
                told.as_array().unwrap().iter().map(|entry| entry["agent"].as_str().unwrap()).collect();
            assert_eq!(agents, ["a0", "a2"]);
        }
    }
}
