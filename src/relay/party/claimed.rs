//! The sessions that one connection claims (§6.2): for the roster, `/connections`, and the limit of claims. Who claims
//! a session, as its owner knows it, is `owner/claims.rs`'s.
//!
//! Invariant: both tables of a connection hold the same claims, and `bytes` is what they take.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::base::buckets::shrink;
use crate::base::footprint;

use crate::relay::mail::claim::Claimant;

/// Bytes that a claim takes: at its connection by age and by name, at the owner the session's claimants, and the name.
fn footprint_of(session: &str) -> usize {
    const FIXED: usize = footprint::item::<(u64, Arc<str>)>()
        + footprint::table_entry::<(Arc<str>, u64)>()
        + footprint::table_entry::<(Arc<str>, Vec<Claimant>)>()
        + footprint::allocation(size_of::<Claimant>());
    FIXED + footprint::text(session.len())
}

/// The sessions one connection claims, oldest first; bounded in number and in the bytes of their names, the oldest
/// lapses.
#[derive(Debug, Default)]
pub struct ClaimedSessions {
    /// Boxed, and none without a claim: most connections only watch.
    claimed: Option<Box<Claimed>>,
}

#[derive(Debug, Default)]
struct Claimed {
    by_age: BTreeMap<u64, Arc<str>>,
    since: HashMap<Arc<str>, u64>,
    next: u64,
    /// That all claims take.
    bytes: usize,
}

impl ClaimedSessions {
    /// Claims `session`; its name, if that is new.
    pub fn begin(&mut self, session: &str) -> Option<Arc<str>> {
        let Claimed { by_age, since, next, bytes } = &mut **self.claimed.get_or_insert_default();
        if since.contains_key(session) {
            return None;
        }
        let name: Arc<str> = session.into();
        *bytes += footprint_of(session);
        by_age.insert(*next, Arc::clone(&name));
        since.insert(Arc::clone(&name), *next);
        *next += 1;
        Some(name)
    }

    /// The oldest claim, taken out, if there are more than `max`, or more than one that take more than `bytes_max`
    /// bytes.
    pub fn lapse(&mut self, max: usize, bytes_max: usize) -> Option<Arc<str>> {
        let Claimed { since, bytes, .. } = &**self.claimed.as_ref()?;
        if since.len() <= max && (*bytes <= bytes_max || since.len() <= 1) { None } else { self.pop_oldest() }
    }

    /// The oldest claim, taken out.
    pub fn pop_oldest(&mut self) -> Option<Arc<str>> {
        let Claimed { by_age, since, bytes, .. } = &mut **self.claimed.as_mut()?;
        let (_, oldest) = by_age.pop_first()?;
        since.remove(&oldest);
        *bytes -= footprint_of(&oldest);
        if since.is_empty() {
            self.claimed = None;
        }
        Some(oldest)
    }

    /// Ends the claim on `session`; whether it stood.
    pub fn end(&mut self, session: &str) -> bool {
        let Some(claimed) = &mut self.claimed else { return false };
        let Some(number) = claimed.since.remove(session) else { return false };
        claimed.by_age.remove(&number);
        claimed.bytes -= footprint_of(session);
        shrink(&mut claimed.since);
        if claimed.since.is_empty() {
            self.claimed = None;
        }
        true
    }

    /// Whether nothing is claimed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claimed.is_none()
    }

    /// Bytes that the claims take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.claimed.as_ref().map_or(0, |claimed| claimed.bytes)
    }

    /// The claimed sessions from a number on, each with its own, oldest first. A claim keeps its number.
    pub fn iter_from(&self, number: u64) -> impl Iterator<Item = (u64, &str)> {
        let claimed = self.claimed.iter().flat_map(move |claimed| claimed.by_age.range(number..));
        claimed.map(|(number, name)| (*number, &**name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(claimed: &ClaimedSessions) -> Vec<&str> {
        claimed.iter_from(0).map(|(_, name)| name).collect()
    }

    #[test]
    fn over_the_limit_the_oldest_claim_lapses() {
        let mut claimed = ClaimedSessions::default();
        for name in ["a", "b", "c"] {
            assert!(claimed.begin(name).is_some());
        }
        assert!(claimed.begin("a").is_none(), "a standing claim is not renewed");
        assert_eq!(claimed.lapse(2, usize::MAX).as_deref(), Some("a"));
        assert_eq!(claimed.lapse(2, usize::MAX), None);
        assert!(claimed.end("b"));
        assert!(claimed.begin("b").is_some());
        assert_eq!(names(&claimed), ["c", "b"]);
    }

    #[test]
    fn names_over_their_bytes_make_the_oldest_claims_lapse() {
        let mut claimed = ClaimedSessions::default();
        for name in ["oldest", "a", "b"] {
            claimed.begin(name);
        }
        let bytes_max = claimed.bytes();
        assert_eq!(claimed.lapse(100, bytes_max), None);
        claimed.begin("c");
        assert_eq!(claimed.lapse(100, bytes_max).as_deref(), Some("oldest"));
        assert_eq!(claimed.lapse(100, bytes_max), None);
        assert_eq!(names(&claimed), ["a", "b", "c"]);
        for _ in 0..2 {
            claimed.lapse(100, 0);
        }
        assert_eq!((claimed.lapse(100, 0), names(&claimed)), (None, vec!["c"]), "the newest stands");
    }

    #[test]
    fn ended_claims_leave_no_memory() {
        let mut claimed = ClaimedSessions::default();
        for round in 0..1000 {
            claimed.begin(&format!("s{round}"));
            claimed.end(&format!("s{round}"));
        }
        assert!(claimed.claimed.is_none());
        claimed.begin("one");
        claimed.begin("two");
        claimed.end("one");
        assert_eq!(
            claimed.claimed.map(|claimed| (claimed.by_age.len(), claimed.bytes)),
            Some((1, footprint_of("two")))
        );
    }
}
