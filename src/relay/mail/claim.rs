//! What travels of claims (§6.2): a claim that begins or ends with an event, and who claims.

use std::sync::Arc;

use crate::engine::service::{ConnId, CoreId};
use crate::wire::json::{self, Kind};

/// `capabilities.control` of a hello as written; one text, however many claims refer to it. Read when a command comes,
/// which is seldom.
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

/// Who claims a session, as its owner knows it.
#[derive(Debug, Clone)]
pub struct Claimant {
    /// Core and connection.
    pub at: (CoreId, ConnId),
    /// What it declared of control.
    pub control: Control,
}

impl PartialEq for Claimant {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Claimant {}
