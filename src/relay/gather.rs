//! Answers that every core has a part of: the roster (§6.7) and `GET /connections` (§4). The asker's side; what a core tells
//! is `listing.rs`'s.
//!
//! The asker asks all cores twice: how much each connection has to tell, then for the entries, each connection's up to the
//! share that makes all fit into one answer (`share.rs`). So an answer is as large as it may be at most, whoever claims
//! what, and memory never holds more than an answer and its parts.
//!
//! Invariant: a core has one asking under way; the others wait, in order. What is queued is bounded between turns only, so
//! that many answers at once would be as much memory as they like, and a turn as long.

use std::collections::VecDeque;

use crate::engine::service::ConnId;
use crate::protocol::by_conn::ByConn;
use crate::wire::http1::answer::Fields;

use super::share::Sizes;

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Roster entries.
    Roster,
    /// Connection entries.
    Connections,
}

/// What is asked of every core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// How much each connection has to tell.
    Sizes(List),
    /// What they have to tell.
    Entries {
        /// In which list.
        list: List,
        /// Bytes of one connection at most.
        share: usize,
    },
}

/// One core's part.
#[derive(Debug)]
pub enum Part {
    /// The answer to [`Ask::Sizes`].
    Sizes(Box<Sizes>),
    /// The answer to [`Ask::Entries`].
    Entries {
        /// JSON objects with commas between them; empty if there are none.
        entries: Vec<u8>,
        /// Whether something was left out.
        truncated: bool,
    },
}

/// How a connection that asked is answered.
#[derive(Debug)]
pub enum Asker {
    /// By a `roster` frame with this id.
    Roster(Box<str>),
    /// By a response with these fields.
    Connections(Fields),
}

impl Asker {
    fn list(&self) -> List {
        match self {
            Self::Roster(_) => List::Roster,
            Self::Connections(_) => List::Connections,
        }
    }
}

/// The asking under way.
#[derive(Debug)]
struct Asking {
    conn: ConnId,
    asker: Asker,
    /// Cores that have not answered the last ask.
    missing: usize,
    sizes: Sizes,
    entries: Vec<u8>,
    truncated: bool,
}

/// Who is answered.
#[derive(Debug)]
pub struct Answered {
    /// The connection; it may be gone.
    pub conn: ConnId,
    /// How.
    pub asker: Asker,
    /// JSON objects with commas between them.
    pub entries: Vec<u8>,
    /// Whether something was left out.
    pub truncated: bool,
}

/// What follows from a part.
#[derive(Debug)]
pub enum Next {
    /// Every core is asked again.
    Ask(Ask),
    /// Everything has come.
    Answer(Answered),
}

/// Askings of one core. Each holds up its connection, so there are at most as many as connections.
#[derive(Debug, Default)]
pub struct Gatherings {
    open: Option<Asking>,
    waiting: ByConn<Asker>,
    /// The order of `waiting`; who is gone from there is passed over.
    order: VecDeque<ConnId>,
}

impl Gatherings {
    /// A connection asks.
    pub fn push(&mut self, conn: ConnId, asker: Asker) {
        self.waiting.insert(conn, asker);
        self.order.push_back(conn);
    }

    /// The connection is gone: if it waits, nothing need be gathered for it.
    pub fn forget(&mut self, conn: ConnId) {
        self.waiting.remove(conn);
    }

    /// Whether the next asking could begin.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.open.is_none() && !self.waiting.is_empty()
    }

    /// Begins the next asking, that every one of `cores` answers, unless one is under way.
    pub fn begin(&mut self, cores: usize) -> Option<Ask> {
        if self.open.is_some() {
            return None;
        }
        loop {
            let conn = self.order.pop_front()?;
            let Some(asker) = self.waiting.remove(conn) else { continue };
            let list = asker.list();
            let sizes = Sizes::default();
            self.open = Some(Asking { conn, asker, missing: cores, sizes, entries: Vec::new(), truncated: false });
            return Some(Ask::Sizes(list));
        }
    }

    /// Takes in a part of the asking that `cores` answer; with the last one tells how it goes on. The entries of an answer
    /// have `bytes_max` at most.
    pub fn take(&mut self, part: Part, cores: usize, bytes_max: usize) -> Option<Next> {
        let asking = self.open.as_mut()?;
        asking.missing -= 1;
        match part {
            Part::Sizes(sizes) => {
                asking.sizes.merge(&sizes);
                if asking.missing > 0 {
                    return None;
                }
                asking.missing = cores;
                let (list, share) = (asking.asker.list(), asking.sizes.share(bytes_max));
                return Some(Next::Ask(Ask::Entries { list, share }));
            }
            Part::Entries { entries, truncated } => asking.join(entries, truncated, bytes_max),
        }
        if asking.missing > 0 {
            return None;
        }
        let Asking { conn, asker, entries, truncated, .. } = self.open.take()?;
        Some(Next::Answer(Answered { conn, asker, entries, truncated }))
    }

    /// Whether nothing is being gathered, nor waits to be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty()
    }
}

impl Asking {
    fn join(&mut self, more: Vec<u8>, truncated: bool, bytes_max: usize) {
        self.truncated |= truncated;
        if self.entries.is_empty() {
            self.entries = more;
        } else if self.entries.len() + 1 + more.len() > bytes_max {
            // Only if much was claimed since it was measured.
            self.truncated = true;
        } else if !more.is_empty() {
            self.entries.push(b',');
            self.entries.extend_from_slice(&more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(slot: u32) -> ConnId {
        ConnId { slot, generation: 0 }
    }

    fn entries(entries: &str, truncated: bool) -> Part {
        Part::Entries { entries: entries.into(), truncated }
    }

    /// The answer to a connection that has asked alone, from cores that tell of so many bytes and then so much.
    fn gathered(sizes: &[&[usize]], share: usize, parts: &[&str], bytes_max: usize) -> (String, bool) {
        let mut gatherings = Gatherings::default();
        let cores = parts.len();
        gatherings.push(conn(0), Asker::Roster("r".into()));
        assert_eq!(gatherings.begin(cores), Some(Ask::Sizes(List::Roster)));
        let mut next = None;
        for of_core in sizes {
            assert!(next.is_none(), "the second ask before the last size");
            let mut sizes = Sizes::default();
            of_core.iter().for_each(|bytes| sizes.add(*bytes));
            next = gatherings.take(Part::Sizes(Box::new(sizes)), cores, bytes_max);
        }
        let Some(Next::Ask(ask)) = next.take() else { panic!("no second ask") };
        assert_eq!(ask, Ask::Entries { list: List::Roster, share });
        for part in parts {
            assert!(next.is_none(), "an answer before the last part");
            next = gatherings.take(entries(part, false), cores, bytes_max);
        }
        assert!(gatherings.is_empty());
        let Some(Next::Answer(answered)) = next else { panic!("no answer with the last part") };
        (String::from_utf8(answered.entries).unwrap(), answered.truncated)
    }

    #[test]
    fn the_parts_of_all_cores_are_one_list() {
        assert_eq!(gathered(&[&[], &[]], 100, &["", ""], 100), (String::new(), false));
        let parts = ["{1}", "", "{2},{3}"];
        assert_eq!(gathered(&[&[4], &[], &[4, 4]], 100, &parts, 100), ("{1},{2},{3}".into(), false));
    }

    #[test]
    fn all_connections_of_all_cores_have_the_same_share() {
        assert_eq!(gathered(&[&[10, 900], &[20]], 70, &["{1}", "{2}"], 100).0, "{1},{2}");
    }

    #[test]
    fn what_was_claimed_meanwhile_makes_no_answer_larger() {
        assert_eq!(gathered(&[&[3], &[3]], 7, &["{1}", "{2},{3}"], 7), ("{1}".into(), true));
    }

    #[test]
    fn one_asking_is_under_way_and_who_is_gone_is_passed_over() {
        let mut gatherings = Gatherings::default();
        gatherings.push(conn(1), Asker::Roster("r".into()));
        gatherings.push(conn(2), Asker::Connections(Vec::new()));
        gatherings.push(conn(3), Asker::Connections(Vec::new()));
        let answered = |gatherings: &mut Gatherings| {
            assert!(!gatherings.has_work() && gatherings.begin(1).is_none(), "one at a time");
            let sizes = Part::Sizes(Box::default());
            assert!(matches!(gatherings.take(sizes, 1, 100), Some(Next::Ask(Ask::Entries { .. }))));
            match gatherings.take(entries("", true), 1, 100) {
                Some(Next::Answer(Answered { conn, truncated: true, .. })) => conn,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(gatherings.begin(1), Some(Ask::Sizes(List::Roster)));
        gatherings.forget(conn(2));
        assert_eq!(answered(&mut gatherings), conn(1));

        assert!(gatherings.has_work() && !gatherings.is_empty());
        assert_eq!(gatherings.begin(1), Some(Ask::Sizes(List::Connections)));
        assert_eq!(answered(&mut gatherings), conn(3));
        assert!(gatherings.is_empty() && gatherings.begin(1).is_none());
    }
}
