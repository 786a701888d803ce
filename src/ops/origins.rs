//! Which browser origins may read answers (CORS) and open a WebSocket (contract §4, §6).
//!
//! An `Origin` is allowed only if it is, byte for byte, one of the configured ones. Comparing suffixes or hosts alone
//! is how `https://good.example.evil.test` gets in. So that an exact comparison can succeed at all, a configured
//! origin must be written the way a browser writes it: lower case, no path, no port that is the scheme's default.

/// The configured origins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    /// `*`: every origin, and clients are told so.
    Any,
    /// Only these, each in the form a browser sends; never empty.
    Listed(Vec<String>),
}

impl Origins {
    /// What [`Origins::parse`] takes, for the line that refuses anything else.
    pub const ACCEPTED: &'static str = "* or origins separated by commas, each as a browser sends it: \
                                        scheme://host or scheme://host:port, lower case, without path or default port";

    /// Parses `*`, or a list separated by commas with optional spaces; `None` if any member is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.trim() == "*" {
            return Some(Self::Any);
        }
        let origins = text.split(',').map(str::trim).map(|origin| is_origin(origin).then(|| origin.to_owned()));
        Some(Self::Listed(origins.collect::<Option<Vec<_>>>()?))
    }

    /// Whether a request with this `Origin` is allowed.
    #[must_use]
    pub fn allows(&self, origin: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(origins) => origins.iter().any(|allowed| allowed.as_bytes() == origin),
        }
    }
}

/// Whether the text is the serialisation of a tuple origin (RFC 6454 §6.2).
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let scheme_ok = scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b));
    let (host, port) = match authority.rsplit_once(':') {
        // The last colon of a bare IPv6 literal belongs to the host.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    scheme_ok && is_host(host) && port.is_none_or(|port| is_port(scheme, port))
}

fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok() && address == address.to_ascii_lowercase(),
        None => {
            !host.is_empty()
                && host.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b))
        }
    }
}

fn is_port(scheme: &str, port: &str) -> bool {
    let canonical = port.parse::<u16>().is_ok_and(|number| number > 0 && number.to_string() == port);
    let default = matches!((scheme, port), ("http" | "ws", "80") | ("https" | "wss", "443"));
    canonical && !default
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_origin_is_allowed() {
        let origins = Origins::parse("https://good.example, http://localhost:3000").unwrap();
        assert!(origins.allows(b"https://good.example"));
        assert!(origins.allows(b"http://localhost:3000"));
        for foreign in [
            "https://evil.test",
            "https://good.example.evil.test",
            "https://evilgood.example",
            "http://good.example",
            "https://good.example:443",
            "https://good.example/",
            "https://Good.example",
            "http://localhost",
            "null",
            "",
            "*",
        ] {
            assert!(!origins.allows(foreign.as_bytes()), "{foreign}");
        }
    }

    #[test]
    fn a_star_allows_every_origin() {
        let origins = Origins::parse(" * ").unwrap();
        assert_eq!(origins, Origins::Any);
        assert!(origins.allows(b"null"));
    }

    #[test]
    fn origins_that_no_browser_sends_are_refused() {
        for text in [
            "",
            ",",
            "https://a.example,",
            "null",
            "*, https://a.example",
            "a.example",
            "https://",
            "://a",
            "https://a.example/",
            "https://a.example/path",
            "https://a.example:",
            "https://a.example:0",
            "https://a.example:080",
            "https://a.example:443",
            "http://a.example:80",
            "https://a.example:65536",
            "HTTPS://a.example",
            "https://A.example",
            "https://user@a.example",
            "https://*.example",
            "https://[::1",
            "https://::1",
            "https://[zz]",
            "https://a b",
        ] {
            assert_eq!(Origins::parse(text), None, "{text}");
        }
    }

    #[test]
    fn ports_and_addresses_are_origins_too() {
        for text in ["http://[::1]", "http://[::1]:8080", "https://a.example:8443", "http://127.0.0.1:1", "app://x"] {
            assert_eq!(Origins::parse(text), Some(Origins::Listed(vec![text.to_owned()])), "{text}");
        }
    }
}
