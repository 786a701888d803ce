//! What travels of lists of connections: what every core is asked, and its part of the answer.

use crate::relay::mail::share::Sizes;

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
