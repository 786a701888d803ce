//! Lists of connections: the roster (§6.7) and `GET /connections` (§4), as the core that is asked for one has them
//! gathered. What a core tells is `listing.rs`'s.
//!
//! All cores are asked twice: how much each connection has to tell, then for the entries, each connection's up to the
//! share that makes all fit into one answer (`share.rs`). So an answer is as large as it may be at most, whoever claims
//! what, and memory never holds more than an answer and its parts.

use crate::protocol::gather::Gathering;

use crate::relay::mail::list::{Ask, List, Part};
use crate::relay::mail::share::Sizes;

/// How a connection that asked is answered.
#[derive(Debug)]
pub enum Asker {
    /// By a `roster` frame with this id.
    Roster(Box<str>),
    /// By a response.
    Connections,
}

impl Asker {
    fn list(&self) -> List {
        match self {
            Self::Roster(_) => List::Roster,
            Self::Connections => List::Connections,
        }
    }
}

/// A list being gathered; in the end, the answer.
#[derive(Debug)]
pub struct Listed {
    /// How it is answered.
    pub asker: Asker,
    /// JSON objects with commas between them.
    pub entries: Vec<u8>,
    /// Whether something was left out.
    pub truncated: bool,
    bytes_max: usize,
    /// While these are asked for.
    sizes: Option<Box<Sizes>>,
}

impl Listed {
    /// A list whose entries have `bytes_max` at most.
    #[must_use]
    pub fn new(asker: Asker, bytes_max: usize) -> Self {
        Self { asker, entries: Vec::new(), truncated: false, bytes_max, sizes: None }
    }

    fn join(&mut self, more: Vec<u8>, truncated: bool) {
        self.truncated |= truncated;
        if self.entries.is_empty() {
            self.entries = more;
        } else if self.entries.len() + 1 + more.len() > self.bytes_max {
            // Only if much was claimed since it was measured.
            self.truncated = true;
        } else if !more.is_empty() {
            self.entries.push(b',');
            self.entries.extend_from_slice(&more);
        }
    }
}

impl Gathering for Listed {
    type Ask = Ask;
    type Part = Part;

    fn begin(&mut self) -> Ask {
        self.sizes = Some(Box::default());
        Ask::Sizes(self.asker.list())
    }

    fn take(&mut self, part: Part) {
        match part {
            Part::Sizes(more) => {
                if let Some(sizes) = &mut self.sizes {
                    sizes.merge(&more);
                }
            }
            Part::Entries { entries, truncated } => self.join(entries, truncated),
        }
    }

    fn ask_again(&mut self) -> Option<Ask> {
        let share = self.sizes.take()?.share(self.bytes_max);
        Some(Ask::Entries { list: self.asker.list(), share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer from cores that tell of so many bytes and then so much.
    fn gathered(sizes: &[&[usize]], share: usize, parts: &[&str], bytes_max: usize) -> (String, bool) {
        let mut list = Listed::new(Asker::Roster("r".into()), bytes_max);
        assert_eq!(list.begin(), Ask::Sizes(List::Roster));
        for of_core in sizes {
            let mut sizes = Sizes::default();
            of_core.iter().for_each(|bytes| sizes.add(*bytes));
            list.take(Part::Sizes(Box::new(sizes)));
        }
        assert_eq!(list.ask_again(), Some(Ask::Entries { list: List::Roster, share }));
        for part in parts {
            list.take(Part::Entries { entries: (*part).into(), truncated: false });
        }
        assert_eq!(list.ask_again(), None, "this is all");
        (String::from_utf8(list.entries).unwrap(), list.truncated)
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
    fn what_a_core_has_left_out_is_left_out_of_the_answer() {
        let mut list = Listed::new(Asker::Connections, 100);
        assert_eq!(list.begin(), Ask::Sizes(List::Connections));
        assert!(list.ask_again().is_some());
        list.take(Part::Entries { entries: b"{1}".to_vec(), truncated: true });
        list.take(Part::Entries { entries: b"{2}".to_vec(), truncated: false });
        assert!(list.truncated);
    }
}
