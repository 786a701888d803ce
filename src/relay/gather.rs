//! Answers that every core has a part of: the roster (§6.7) and `GET /connections` (§4).
//!
//! The asker sends [`Gather`] to all cores and joins what comes back, each part a comma-separated list of JSON objects.
//!
//! Invariant: a core has one asking under way; the others wait, in order. An answer may be as large as a write queue, and
//! what is queued is bounded between turns only, so that many answers at once would be as much memory as they like, and
//! a turn as long.

use std::collections::VecDeque;

use crate::engine::service::ConnId;

use super::error::Fields;
use super::peer::ByConn;

/// What is asked of every core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gather {
    /// Roster entries.
    Roster,
    /// Connection entries.
    Connections,
}

/// One core's part.
#[derive(Debug)]
pub struct Gathered {
    /// JSON objects with commas between them; empty if there are none. `None`: more than an answer may hold.
    pub entries: Option<Vec<u8>>,
}

/// How a connection that asked is answered.
#[derive(Debug)]
pub enum Asker {
    /// By a `roster` frame with this id.
    Roster(Box<str>),
    /// By a response with these fields.
    Connections(Fields),
}

/// The asking under way.
#[derive(Debug)]
struct Asking {
    conn: ConnId,
    asker: Asker,
    missing: usize,
    /// What has come; `None` once it is too much.
    entries: Option<Vec<u8>>,
}

/// Who is answered.
#[derive(Debug)]
pub struct Answered {
    /// The connection; it may be gone.
    pub conn: ConnId,
    /// How.
    pub asker: Asker,
    /// The whole JSON array, or none if that is more than an answer may hold.
    pub entries: Option<Vec<u8>>,
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
    pub fn begin(&mut self, cores: usize) -> Option<Gather> {
        if self.open.is_some() {
            return None;
        }
        loop {
            let conn = self.order.pop_front()?;
            let Some(asker) = self.waiting.remove(conn) else { continue };
            let gather = match asker {
                Asker::Roster(_) => Gather::Roster,
                Asker::Connections(_) => Gather::Connections,
            };
            self.open = Some(Asking { conn, asker, missing: cores, entries: Some(b"[".to_vec()) });
            return Some(gather);
        }
    }

    /// Takes a part in; with the last one, who is answered, and with what, `bytes_max` at most.
    pub fn take(&mut self, part: &Gathered, bytes_max: usize) -> Option<Answered> {
        let asking = self.open.as_mut()?;
        asking.entries = match (asking.entries.take(), &part.entries) {
            (Some(entries), Some(more)) => joined(entries, more, bytes_max),
            _ => None,
        };
        asking.missing -= 1;
        if asking.missing > 0 {
            return None;
        }
        let Asking { conn, asker, entries, .. } = self.open.take()?;
        let entries = entries.map(|mut entries| {
            entries.push(b']');
            entries
        });
        Some(Answered { conn, asker, entries })
    }

    /// Whether nothing is being gathered, nor waits to be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty()
    }
}

/// A list with another's entries behind its own, unless that is over the bound.
fn joined(mut entries: Vec<u8>, more: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    if !more.is_empty() {
        if entries.len() > 1 {
            entries.push(b',');
        }
        entries.extend_from_slice(more);
    }
    (entries.len() <= bytes_max).then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(slot: u32) -> ConnId {
        ConnId { slot, generation: 0 }
    }

    fn gathered(parts: &[Option<&str>], bytes_max: usize) -> Option<String> {
        let mut gatherings = Gatherings::default();
        gatherings.push(conn(0), Asker::Roster("r".into()));
        assert_eq!(gatherings.begin(parts.len()), Some(Gather::Roster));
        let mut answer = None;
        for part in parts {
            assert!(answer.is_none(), "an answer before the last part");
            let entries = part.map(|part| part.as_bytes().to_vec());
            answer = gatherings.take(&Gathered { entries }, bytes_max);
        }
        assert!(gatherings.is_empty());
        let answer = answer.expect("an answer with the last part");
        answer.entries.map(|entries| String::from_utf8(entries).unwrap())
    }

    #[test]
    fn the_parts_of_all_cores_are_one_array() {
        assert_eq!(gathered(&[Some(""), Some("")], 100).as_deref(), Some("[]"));
        assert_eq!(gathered(&[Some("{1}"), Some(""), Some("{2},{3}")], 100).as_deref(), Some("[{1},{2},{3}]"));
    }

    #[test]
    fn more_than_an_answer_may_hold_is_no_answer() {
        assert_eq!(gathered(&[Some("{1}"), Some("{2}")], 7), None);
        assert_eq!(gathered(&[None, Some("{2}")], 100), None);
        assert_eq!(gathered(&[Some("{1}"), None, Some("")], 100), None);
    }

    #[test]
    fn one_asking_is_under_way_and_who_is_gone_is_passed_over() {
        let mut gatherings = Gatherings::default();
        gatherings.push(conn(1), Asker::Roster("r".into()));
        gatherings.push(conn(2), Asker::Connections(Vec::new()));
        gatherings.push(conn(3), Asker::Connections(Vec::new()));
        let part = Gathered { entries: Some(Vec::new()) };

        assert_eq!(gatherings.begin(2), Some(Gather::Roster));
        assert!(gatherings.take(&part, 100).is_none());
        assert!(!gatherings.has_work() && gatherings.begin(2).is_none(), "one at a time");
        gatherings.forget(conn(2));
        assert_eq!(gatherings.take(&part, 100).map(|answered| answered.conn), Some(conn(1)));

        assert!(gatherings.has_work() && !gatherings.is_empty());
        assert_eq!(gatherings.begin(1), Some(Gather::Connections));
        assert_eq!(gatherings.take(&part, 100).map(|answered| answered.conn), Some(conn(3)));
        assert!(gatherings.is_empty() && gatherings.begin(1).is_none());
    }
}
