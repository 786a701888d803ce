//! The limits of the process by which clients are turned away or cut: that one is reached is logged, once a minute
//! each.

use tracing::warn;

use crate::base::seldom::Seldom;
use crate::base::time::Now;

/// A limit of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// A connection was accepted that there is no place for.
    Connections,
    /// A connection was accepted on a descriptor of the reserve.
    Descriptors,
    /// A body or message has waited in vain for memory.
    Receiving,
    /// The largest backlog was cut.
    Backlog,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reached([Seldom; 4]);

impl Reached {
    /// It was, by one more.
    pub(super) fn note(&self, limit: Limit, now: Now) {
        let Some(times) = self.0.get(limit as usize).and_then(|seldom| seldom.happened(now)) else { return };
        match limit {
            Limit::Connections => warn!(times, "AEP_MAX_CONNECTIONS is reached: new connections are turned away"),
            Limit::Descriptors => warn!(times, "out of file descriptors: new connections are turned away"),
            Limit::Receiving => warn!(times, "AEP_RECEIVE_BYTES is reached: bodies and messages are refused"),
            Limit::Backlog => warn!(times, "AEP_BACKLOG_BYTES is reached: the slowest consumers are cut"),
        }
    }
}
