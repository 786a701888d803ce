//! The gateway's own paths (contract §4): they tell how the process is, also where there is no room for another
//! connection.

use crate::ops::metrics;
use crate::protocol::routes::{self, Auth, Match, Path};

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnEndpoint {
    /// `GET /healthz`, which tells more to who bears the token.
    Health,
    /// `GET /metrics`
    Metrics,
}

const HEALTH: Path<OwnEndpoint> = Path {
    pattern: "/healthz",
    label: metrics::Endpoint::Health,
    methods: &[("GET", Auth::Open, OwnEndpoint::Health), ("HEAD", Auth::Open, OwnEndpoint::Health)],
};

const METRICS: Path<OwnEndpoint> = Path {
    pattern: "/metrics",
    label: metrics::Endpoint::Metrics,
    methods: &[("GET", Auth::Token, OwnEndpoint::Metrics)],
};

/// `/metrics` is known only where metrics are served.
const fn paths(metrics: bool) -> &'static [Path<OwnEndpoint>] {
    if metrics { &[HEALTH, METRICS] } else { &[HEALTH] }
}

/// See [`routes::find`].
pub(super) fn find<'a>(path: &'a str, method: &str, metrics: bool) -> Option<Match<'a, OwnEndpoint>> {
    routes::find(paths(metrics), path, method)
}

/// See [`routes::label`].
pub(super) fn label(path: &str, metrics: bool) -> Option<metrics::Endpoint> {
    routes::label(paths(metrics), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_known_only_where_they_are_served() {
        assert!(find("/metrics", "GET", false).is_none() && label("/metrics", false).is_none());
        assert!(find("/metrics", "GET", true).is_some() && label("/metrics", true).is_some());
        assert!(find("/healthz", "GET", false).is_some());
    }
}
