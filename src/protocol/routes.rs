//! A protocol's table of paths: what a request is for, who may make it, what `Allow` says.
//!
//! Paths are matched byte for byte, methods are case-sensitive. A pattern may have one variable segment, written `{}`;
//! what stands there is handed over as it came, and is decoded by whoever knows what it means.
//!
//! Invariant: the first row that matches counts, so `/a/b` stands before `/a/{}`.

use crate::ops::metrics;

/// A known path, whose requests are for an `E` each.
#[derive(Debug)]
pub struct Path<E: 'static> {
    /// Its name, or its pattern with one `{}`.
    pub pattern: &'static str,
    /// What its answers are counted under.
    pub label: metrics::Endpoint,
    /// Every method that is served, `OPTIONS` apart.
    pub methods: &'static [(&'static str, Auth, E)],
}

/// Who may make a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// Everybody.
    Open,
    /// Whoever bears the token, if one is configured; else 401.
    Token,
    /// Whoever bears the token; 403 where none is configured.
    TokenOrForbidden,
    /// The protocol finds out itself.
    Own,
}

/// What a table makes of a path and a method.
#[derive(Debug, PartialEq, Eq)]
pub struct Match<'a, E> {
    /// What stands in place of the variable segment; never empty.
    pub segment: Option<&'a str>,
    /// Where the request goes.
    pub route: Route<E>,
}

/// What a path makes of a method.
#[derive(Debug, PartialEq, Eq)]
pub enum Route<E> {
    /// A request for this endpoint.
    To(Auth, E),
    /// `OPTIONS`; with what `Allow` says.
    Preflight(String),
    /// 405; with what `Allow` says.
    NotAllowed(String),
}

impl<E: Copy> Path<E> {
    /// Whether the path is meant, and what stands in its variable segment.
    fn segment<'a>(&self, path: &'a str) -> Option<Option<&'a str>> {
        // By one byte: looking for two costs more than all else that a request asks of a table.
        let Some((before, behind)) = self.pattern.split_once('{') else {
            return (self.pattern == path).then_some(None);
        };
        let behind = behind.strip_prefix('}')?;
        let segment = path.strip_prefix(before)?.strip_suffix(behind)?;
        (!segment.is_empty() && !segment.contains('/')).then_some(Some(segment))
    }

    fn route(&self, method: &str) -> Route<E> {
        if method == "OPTIONS" {
            return Route::Preflight(self.allow());
        }
        let found = self.methods.iter().find(|(name, ..)| *name == method);
        found.map_or_else(|| Route::NotAllowed(self.allow()), |&(_, auth, endpoint)| Route::To(auth, endpoint))
    }

    fn allow(&self) -> String {
        let served = self.methods.iter().map(|(name, ..)| *name);
        served.chain(std::iter::once("OPTIONS")).collect::<Vec<_>>().join(", ")
    }
}

/// What a table makes of a path and a method; none if it does not know the path.
#[must_use]
pub fn find<'a, E: Copy>(paths: &'static [Path<E>], path: &'a str, method: &str) -> Option<Match<'a, E>> {
    paths.iter().find_map(|known| Some(Match { segment: known.segment(path)?, route: known.route(method) }))
}

/// What answers to requests of that path are counted under; none if the table does not know it.
#[must_use]
pub fn label<E: Copy>(paths: &'static [Path<E>], path: &str) -> Option<metrics::Endpoint> {
    paths.iter().find(|known| known.segment(path).is_some()).map(|known| known.label)
}

impl<'a, E> Match<'a, E> {
    /// The same, of an endpoint among others.
    pub fn map<F>(self, among: impl FnOnce(E) -> F) -> Match<'a, F> {
        let route = match self.route {
            Route::To(auth, endpoint) => Route::To(auth, among(endpoint)),
            Route::Preflight(allow) => Route::Preflight(allow),
            Route::NotAllowed(allow) => Route::NotAllowed(allow),
        };
        Match { segment: self.segment, route }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: &[Path<u8>] = &[
        Path { pattern: "/a/b", label: metrics::Endpoint::Events, methods: &[("GET", Auth::Open, 1)] },
        Path {
            pattern: "/a/{}",
            label: metrics::Endpoint::Stream,
            methods: &[("GET", Auth::Token, 2), ("DELETE", Auth::TokenOrForbidden, 3)],
        },
        Path { pattern: "/a/{}/c", label: metrics::Endpoint::Socket, methods: &[("POST", Auth::Own, 4)] },
    ];

    fn to(path: &str, method: &str) -> Option<(Option<String>, Auth, u8)> {
        match find(PATHS, path, method)? {
            Match { segment, route: Route::To(auth, endpoint) } => Some((segment.map(str::to_owned), auth, endpoint)),
            _ => None,
        }
    }

    #[test]
    fn the_first_row_that_matches_counts() {
        assert_eq!(to("/a/b", "GET"), Some((None, Auth::Open, 1)));
        assert_eq!(to("/a/x", "GET"), Some((Some("x".to_owned()), Auth::Token, 2)));
        assert_eq!(to("/a/x", "DELETE"), Some((Some("x".to_owned()), Auth::TokenOrForbidden, 3)));
        assert_eq!(to("/a/b/c", "POST"), Some((Some("b".to_owned()), Auth::Own, 4)));
    }

    #[test]
    fn a_variable_segment_is_one_segment_as_it_came() {
        assert_eq!(to("/a/%2Fx%20", "GET"), Some((Some("%2Fx%20".to_owned()), Auth::Token, 2)));
        for path in ["/a/", "/a/x/", "/a/x/y", "/a//c", "/A/x", "/a", "", "/a/x/c/"] {
            assert_eq!(find(PATHS, path, "GET"), None, "{path}");
            assert_eq!(label(PATHS, path), None, "{path}");
        }
    }

    #[test]
    fn allow_names_exactly_the_methods_that_are_served() {
        let route = |path, method| find(PATHS, path, method).map(|found| found.route);
        assert_eq!(route("/a/x", "OPTIONS"), Some(Route::Preflight("GET, DELETE, OPTIONS".to_owned())));
        assert_eq!(route("/a/x", "get"), Some(Route::NotAllowed("GET, DELETE, OPTIONS".to_owned())));
        assert_eq!(route("/a/b", "POST"), Some(Route::NotAllowed("GET, OPTIONS".to_owned())));
    }

    #[test]
    fn each_path_is_counted_under_its_label() {
        assert_eq!(label(PATHS, "/a/b"), Some(metrics::Endpoint::Events));
        assert_eq!(label(PATHS, "/a/x/c"), Some(metrics::Endpoint::Socket));
    }

    #[test]
    fn a_match_among_others_keeps_what_it_found() {
        let found = find(PATHS, "/a/x", "GET").unwrap().map(|endpoint| u32::from(endpoint) + 100);
        assert_eq!(found, Match { segment: Some("x"), route: Route::To(Auth::Token, 102) });
    }
}
