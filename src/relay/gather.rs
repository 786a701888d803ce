//! Answers that every core has a part of: the roster (§6.7) and `GET /connections` (§4).
//!
//! The asker sends [`Gather`] to all cores and joins what comes back, each part a comma-separated list of JSON
//! objects. Whoever asked may be gone by then; the parts are dropped with it.

use std::collections::HashMap;

use crate::engine::service::ConnId;

use super::error::Fields;

/// What is asked of every core.
#[derive(Debug, Clone, Copy)]
pub struct Gather {
    /// Names the asking at its core.
    pub token: u64,
    /// What is wanted.
    pub what: What,
}

/// What is gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Roster entries.
    Roster,
    /// Connection entries.
    Connections,
}

/// One core's part.
#[derive(Debug)]
pub struct Gathered {
    /// From the [`Gather`].
    pub token: u64,
    /// JSON objects with commas between them; empty if there are none. `None`: more than an answer may hold.
    pub entries: Option<Vec<u8>>,
}

/// Who asked, and how the answer is written.
#[derive(Debug)]
pub enum Asker {
    /// A `roster` frame with this id.
    Roster {
        /// The connection.
        conn: ConnId,
        /// The frame's id.
        id: Box<str>,
    },
    /// A request.
    Connections {
        /// The connection.
        conn: ConnId,
        /// Response fields.
        fields: Fields,
    },
}

/// An asking under way.
#[derive(Debug)]
struct Asking {
    asker: Asker,
    missing: usize,
    /// What has come; `None` once it is too much.
    entries: Option<Vec<u8>>,
}

/// Askings of one core. Each holds up its connection, so there are at most as many as connections.
#[derive(Debug, Default)]
pub struct Gatherings {
    open: HashMap<u64, Asking>,
    next: u64,
}

impl Gatherings {
    /// Begins an asking that every one of `cores` answers.
    pub fn begin(&mut self, asker: Asker, cores: usize) -> Gather {
        let what = match asker {
            Asker::Roster { .. } => What::Roster,
            Asker::Connections { .. } => What::Connections,
        };
        let token = self.next;
        self.next += 1;
        self.open.insert(token, Asking { asker, missing: cores, entries: Some(b"[".to_vec()) });
        Gather { token, what }
    }

    /// Takes a part in; with the last one, who asked and the whole JSON array, or none if that is over `bytes_max`.
    pub fn take(&mut self, part: &Gathered, bytes_max: usize) -> Option<(Asker, Option<Vec<u8>>)> {
        let asking = self.open.get_mut(&part.token)?;
        asking.entries = match (asking.entries.take(), &part.entries) {
            (Some(entries), Some(more)) => joined(entries, more, bytes_max),
            _ => None,
        };
        asking.missing -= 1;
        if asking.missing > 0 {
            return None;
        }
        let Asking { asker, entries, .. } = self.open.remove(&part.token)?;
        let whole = entries.map(|mut entries| {
            entries.push(b']');
            entries
        });
        Some((asker, whole))
    }

    /// Whether nothing is being gathered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
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

    fn asker() -> Asker {
        Asker::Roster { conn: ConnId { slot: 0, generation: 0 }, id: "r".into() }
    }

    fn gathered(parts: &[Option<&str>], bytes_max: usize) -> Option<String> {
        let mut gatherings = Gatherings::default();
        let token = gatherings.begin(asker(), parts.len()).token;
        let mut answer = None;
        for part in parts {
            assert!(answer.is_none(), "an answer before the last part");
            let entries = part.map(|part| part.as_bytes().to_vec());
            answer = gatherings.take(&Gathered { token, entries }, bytes_max);
        }
        assert!(gatherings.is_empty());
        let (_, entries) = answer.expect("an answer with the last part");
        entries.map(|entries| String::from_utf8(entries).unwrap())
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
}
