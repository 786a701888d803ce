//! Claimants (§6.2): which connections emit for a session.
//!
//! A claim is kept in two places, each of which owns one question. The connection's core keeps the
//! [`ClaimedSessions`] of the connection (what it claims: roster, `/connections`, the claim limit). The session's owner
//! keeps the [`Claims`] table (who claims it: routing). Changes ride with the events that cause them, through the
//! FIFO lane to the owner, so a claim stands before its event reaches any consumer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::base::buckets::shrink;
use crate::base::footprint;
use crate::engine::service::{ConnId, CoreId};
use crate::wire::json::{self, Kind};

use crate::relay::mail::Claimant;

/// `capabilities.control` of a hello as written; one text, however many claims refer to it. Read when a command comes, which
/// is seldom.
#[derive(Debug, Clone, Default)]
pub struct Control(Option<Arc<str>>);

impl Control {
    /// What a connection declared, as written; `None`: nothing.
    #[must_use]
    pub fn new(declared: Option<&str>) -> Self {
        Self(declared.map(Arc::from))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Whether commands of this type are declared in `accepts`. Nothing is, if that is no array of strings.
    #[must_use]
    pub fn accepts(&self, kind: &str) -> bool {
        let Some(document) = self.as_str().and_then(|text| json::scan(text.as_bytes()).ok()) else { return false };
        let declared = document.root.member("accepts").filter(|accepts| accepts.kind == Kind::Array);
        let kinds: Option<Vec<_>> = declared.and_then(|accepts| accepts.elements().map(|kind| kind.string()).collect());
        kinds.is_some_and(|kinds| kinds.iter().any(|declared| **declared == *kind))
    }
}

/// Bytes that a claim takes: at its connection by age and by name, at the owner the session's claimants, and the name.
fn footprint_of(session: &str) -> usize {
    const FIXED: usize = footprint::item::<(u64, Arc<str>)>()
        + footprint::table_entry::<(Arc<str>, u64)>()
        + footprint::table_entry::<(Arc<str>, Vec<Claimant>)>()
        + footprint::allocation(size_of::<Claimant>());
    FIXED + footprint::text(session.len())
}

/// A claim that an event of a batch makes or ends.
#[derive(Debug, Clone)]
pub struct ClaimNote {
    /// Index of the event in its batch.
    pub event: u32,
    /// The claiming connection, on the core the batch comes from.
    pub conn: ConnId,
    /// The claim on the session of this name begins, of a connection that declared this; `None`: it ends.
    pub begins: Option<(Arc<str>, Control)>,
}

/// The claims on the sessions of one owner.
#[derive(Debug, Default)]
pub struct Claims {
    by_session: HashMap<Arc<str>, Vec<Claimant>>,
}

/// How many claimants a session has.
#[derive(Debug, PartialEq, Eq)]
pub enum Claimants<'a> {
    /// Nobody.
    None,
    /// One.
    Only(&'a Claimant),
    /// Several.
    Several,
}

impl PartialEq for Claimant {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Claimant {}

impl Claims {
    /// Enters a claim; a second one of the same connection changes nothing.
    pub fn begin(&mut self, session: &Arc<str>, claimant: Claimant) {
        if let Some(claimants) = self.by_session.get_mut(session) {
            if !claimants.contains(&claimant) {
                claimants.push(claimant);
            }
        } else {
            self.by_session.insert(Arc::clone(session), vec![claimant]);
        }
    }

    /// Ends a claim, if it stands.
    pub fn end(&mut self, session: &str, at: (CoreId, ConnId)) {
        if let Some(claimants) = self.by_session.get_mut(session) {
            claimants.retain(|claimant| claimant.at != at);
            if claimants.is_empty() {
                self.by_session.remove(session);
                shrink(&mut self.by_session);
            }
        }
    }

    /// Who claims `session`.
    #[must_use]
    pub fn of(&self, session: &str) -> Claimants<'_> {
        match self.by_session.get(session).map(Vec::as_slice) {
            None | Some([]) => Claimants::None,
            Some([only]) => Claimants::Only(only),
            Some(_) => Claimants::Several,
        }
    }

    /// Whether nobody claims anything.
    #[cfg(test)]
    pub(in crate::relay) fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }
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

    /// The oldest claim, taken out, if there are more than `max`, or more than one that take more than `bytes_max` bytes.
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

    fn claimant(slot: u32) -> Claimant {
        Claimant { at: (CoreId(0), ConnId { slot, generation: 0 }), control: Control::default() }
    }

    #[test]
    fn equal_identity_is_no_identity_two_connections_are_several() {
        let mut claims = Claims::default();
        claims.begin(&"s".into(), claimant(1));
        claims.begin(&"s".into(), claimant(1));
        assert!(matches!(claims.of("s"), Claimants::Only(_)));
        claims.begin(&"s".into(), claimant(2));
        assert_eq!(claims.of("s"), Claimants::Several);
        claims.end("s", claimant(1).at);
        assert_eq!(claims.of("s"), Claimants::Only(&claimant(2)));
        claims.end("s", claimant(2).at);
        assert_eq!(claims.of("s"), Claimants::None);
        assert!(claims.by_session.is_empty());
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
