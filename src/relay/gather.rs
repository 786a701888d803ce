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
    /// JSON objects with commas between them; empty if there are none.
    pub entries: Vec<u8>,
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
    entries: Vec<u8>,
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
        self.open.insert(token, Asking { asker, missing: cores, entries: b"[".to_vec() });
        Gather { token, what }
    }

    /// Takes a part in; with the last one, who asked and the whole JSON array.
    pub fn take(&mut self, part: &Gathered) -> Option<(Asker, Vec<u8>)> {
        let asking = self.open.get_mut(&part.token)?;
        if !part.entries.is_empty() {
            if asking.entries.len() > 1 {
                asking.entries.push(b',');
            }
            asking.entries.extend_from_slice(&part.entries);
        }
        asking.missing -= 1;
        if asking.missing > 0 {
            return None;
        }
        let Asking { asker, mut entries, .. } = self.open.remove(&part.token)?;
        entries.push(b']');
        Some((asker, entries))
    }

    /// Whether nothing is being gathered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}
