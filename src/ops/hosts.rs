//! Which hosts a request may be for (contract §4), against DNS rebinding.
//!
//! A page of `evil.test` whose name is made to resolve to the relay's address is, to its browser, of the relay's own
//! origin: it may send and read whatever it likes. What it cannot do is have the browser leave its name out of `Host`.
//! Names are compared whole and without regard to case, addresses as addresses; a port does not count, for proxies and
//! mappings change it.

use std::net::IpAddr;

/// The hosts that requests may be for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(Vec<AllowedHost>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum AllowedHost {
    Address(IpAddr),
    /// In lower case.
    Name(String),
}

impl Hosts {
    /// What [`Hosts::parse`] takes, for the line that refuses anything else.
    pub const ACCEPTED: &'static str = "names or addresses separated by commas, without scheme or port";

    /// Parses a list separated by commas with optional spaces; `None` if any member is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.split(',').map(|host| AllowedHost::parse(host.trim())).collect::<Option<Vec<_>>>().map(Self)
    }

    /// The same and one more: the address that is bound, or its name.
    #[must_use]
    pub fn and(mut self, bound: &str) -> Self {
        self.0.extend(AllowedHost::parse(bound));
        self
    }

    /// Whether a request with this `Host` is for one of them.
    #[must_use]
    pub fn include(&self, field: &[u8]) -> bool {
        let host = std::str::from_utf8(field).ok().and_then(|text| AllowedHost::parse(without_port(text)));
        host.is_some_and(|host| self.0.contains(&host))
    }
}

impl AllowedHost {
    fn parse(text: &str) -> Option<Self> {
        let address = match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(v6) => return v6.parse().ok().map(|v6| Self::Address(IpAddr::V6(v6).to_canonical())),
            None => text.parse::<IpAddr>(),
        };
        if let Ok(address) = address {
            return Some(Self::Address(address.to_canonical()));
        }
        let is_name = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        is_name.then(|| Self::Name(text.to_ascii_lowercase()))
    }
}

/// `host:port` → `host`. An IPv6 address in brackets keeps them.
fn without_port(field: &str) -> &str {
    match field.rsplit_once(':') {
        // Other colons without brackets are those of an address, the last one too.
        Some((host, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (host.ends_with(']') || !host.contains(':')) =>
        {
            host
        }
        _ => field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_of_the_list_or_the_address_bound() {
        let hosts = Hosts::parse("relay.example, localhost,::1").unwrap().and("127.0.0.1");
        for own in [
            "relay.example",
            "relay.example:8787",
            "RELAY.Example",
            "localhost:1",
            "localhost:",
            "[::1]",
            "[0:0:0:0:0:0:0:1]:8787",
            "127.0.0.1:8787",
        ] {
            assert!(hosts.include(own.as_bytes()), "{own}");
        }
        for foreign in [
            "",
            "evil.test",
            "evil.test:8787",
            "relay.example.evil.test",
            "evilrelay.example",
            "sub.relay.example",
            "relay.example.",
            "relay.example:x",
            "user@relay.example",
            "relay.example, evil.test",
            "127.0.0.2",
            "[::2]",
            "[localhost]",
            "::1:1",
        ] {
            assert!(!hosts.include(foreign.as_bytes()), "{foreign}");
        }
        assert!(!hosts.include(b"relay.example\xff"));
    }

    #[test]
    fn hosts_that_no_request_can_name_are_refused() {
        for text in ["", ",", "a,", "http://a", "a:80", "[::1", "[a]", "*", "*.example", "a b", "a/b", "[::1]:80"] {
            assert_eq!(Hosts::parse(text), None, "{text}");
        }
    }
}
