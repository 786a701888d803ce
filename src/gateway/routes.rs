//! The table of paths and methods (contract §4). Paths are matched byte for byte.

use crate::ops::metrics;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// `GET /healthz`, the one endpoint that needs no token.
    Health,
    /// `GET /events`, `GET /.well-known/aep`
    Discovery,
    /// `POST /events`
    Publish,
    /// `GET /stream`
    Stream,
    /// `GET /socket`
    Socket,
    /// `GET /connections`
    Connections,
    /// `GET /metrics`
    Metrics,
}

/// A known path.
#[derive(Debug)]
pub(super) struct Path {
    name: &'static str,
    /// What `Allow` says.
    pub(super) allow: &'static str,
    methods: &'static [(&'static str, Endpoint)],
    label: metrics::Endpoint,
}

/// What a path makes of a method.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// A request for this endpoint.
    To(Endpoint),
    /// `OPTIONS`.
    Preflight,
    /// 405.
    NotAllowed,
}

const PATHS: &[Path] = &[
    Path {
        label: metrics::Endpoint::Health,
        name: "/healthz",
        allow: "GET, HEAD, OPTIONS",
        methods: &[("GET", Endpoint::Health), ("HEAD", Endpoint::Health)],
    },
    Path {
        label: metrics::Endpoint::Events,
        name: "/events",
        allow: "GET, HEAD, POST, OPTIONS",
        methods: &[("GET", Endpoint::Discovery), ("HEAD", Endpoint::Discovery), ("POST", Endpoint::Publish)],
    },
    Path {
        label: metrics::Endpoint::Discovery,
        name: "/.well-known/aep",
        allow: "GET, HEAD, OPTIONS",
        methods: &[("GET", Endpoint::Discovery), ("HEAD", Endpoint::Discovery)],
    },
    Path {
        label: metrics::Endpoint::Stream,
        name: "/stream",
        allow: "GET, OPTIONS",
        methods: &[("GET", Endpoint::Stream)],
    },
    Path {
        label: metrics::Endpoint::Socket,
        name: "/socket",
        allow: "GET, OPTIONS",
        methods: &[("GET", Endpoint::Socket)],
    },
    Path {
        label: metrics::Endpoint::Connections,
        name: "/connections",
        allow: "GET, OPTIONS",
        methods: &[("GET", Endpoint::Connections)],
    },
    Path {
        label: metrics::Endpoint::Metrics,
        name: "/metrics",
        allow: "GET, OPTIONS",
        methods: &[("GET", Endpoint::Metrics)],
    },
];

/// The known path of that name. `/metrics` is known only where metrics are served.
pub(super) fn path(name: &str, metrics: bool) -> Option<&'static Path> {
    PATHS.iter().find(|path| path.name == name && (metrics || path.name != "/metrics"))
}

impl Path {
    /// How metrics name it.
    pub(super) fn label(&self) -> metrics::Endpoint {
        self.label
    }

    /// Whether it tells how the relay is, which it does also when there is no room for another connection.
    pub(super) const fn is_for_watchers(&self) -> bool {
        matches!(self.label, metrics::Endpoint::Health | metrics::Endpoint::Metrics)
    }

    /// Where a request with this method goes. Methods are case-sensitive.
    pub(super) fn route(&self, method: &str) -> Route {
        if method == "OPTIONS" {
            return Route::Preflight;
        }
        let found = self.methods.iter().find(|(name, _)| *name == method);
        found.map_or(Route::NotAllowed, |(_, endpoint)| Route::To(*endpoint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_names_exactly_the_methods_that_are_served() {
        for path in PATHS {
            let mut served: Vec<&str> = path.methods.iter().map(|(name, _)| *name).collect();
            served.push("OPTIONS");
            assert_eq!(path.allow, served.join(", "), "{}", path.name);
        }
    }

    #[test]
    fn paths_and_methods_are_matched_byte_for_byte() {
        assert!(path("/Events", true).is_none());
        assert!(path("/events/", true).is_none());
        assert!(path("/metrics", false).is_none());
        assert_eq!(path("/events", false).map(|path| path.route("get")), Some(Route::NotAllowed));
    }
}
