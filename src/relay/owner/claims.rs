//! Claimants (§6.2): which connections emit for a session.
//!
//! A claim is kept in two places, each of which owns one question. The connection's core keeps what the connection
//! claims (`party/claimed.rs`: roster, `/connections`, the claim limit). The session's owner keeps the [`Claims`]
//! table: who claims it, for routing. Changes ride with the events that cause them, through the FIFO lane to the owner,
//! so a claim stands before its event reaches any consumer.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::buckets::shrink;
use crate::engine::service::{ConnId, CoreId};

use crate::relay::mail::claim::Claimant;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::service::ConnId;
    use crate::relay::mail::claim::Control;

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
}
