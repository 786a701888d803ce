//! Request targets: path and query, and the form-encoded pairs of a query (RFC 9112 §3.2; WHATWG URL §5.1; contract
//! §4).
//!
//! Owns splitting and decoding. Knows no route and no parameter: a broken escape is a fault of the one name or value
//! that holds it, so that the caller can answer with that parameter's code and pass over parameters it does not know.
//! Paths are not decoded: every path of the relay is plain ASCII and matched byte for byte, so that `/%65vents` is
//! another path, and no two spellings of one route can get past a proxy's rules.

use std::borrow::Cow;

use memchr::memchr2;

/// A request target, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// Path as sent, beginning with `/`; `*` for the server as a whole.
    pub path: &'a str,
    /// What follows the first `?`.
    pub query: &'a str,
}

impl<'a> Target<'a> {
    /// Takes a target apart. Of absolute-form only path and query count: the relay serves one authority.
    #[must_use]
    pub fn parse(target: &'a str) -> Self {
        let local = local_part(target);
        let (path, query) = local.split_once('?').unwrap_or((local, ""));
        Self { path: if path.is_empty() { "/" } else { path }, query }
    }

    /// The pairs of the query, in order; empty pieces between `&` are left out.
    pub fn pairs(&self) -> impl Iterator<Item = Pair<'a>> + use<'a> {
        self.query.split('&').filter(|piece| !piece.is_empty()).map(|piece| {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            Pair { name: form_decode(name), value: form_decode(value) }
        })
    }

    /// The value of the first pair of that name; nothing if there is none.
    #[must_use]
    pub fn first(&self, name: &str) -> Option<Result<Cow<'a, str>, QueryFault>> {
        self.pairs().find(|pair| pair.name.as_deref() == Ok(name)).map(|pair| pair.value)
    }
}

/// One pair of a query. A name that does not decode is the name of no parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair<'a> {
    /// Name.
    pub name: Result<Cow<'a, str>, QueryFault>,
    /// Value; empty if there is none.
    pub value: Result<Cow<'a, str>, QueryFault>,
}

/// Why a name or a value of a query does not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryFault {
    /// A `%` without two hexadecimal digits behind it.
    Escape,
    /// The decoded bytes are no UTF-8.
    Utf8,
}

/// Decodes `+` to a space and `%XX` to a byte.
///
/// # Errors
/// A broken escape, or bytes that are no UTF-8.
pub fn form_decode(text: &str) -> Result<Cow<'_, str>, QueryFault> {
    let Some(first) = memchr2(b'+', b'%', text.as_bytes()) else {
        return Ok(Cow::Borrowed(text));
    };
    let (plain, mut rest) = text.as_bytes().split_at(first);
    let mut decoded = Vec::with_capacity(text.len());
    decoded.extend_from_slice(plain);
    while let Some((&b, behind)) = rest.split_first() {
        rest = behind;
        match b {
            b'+' => decoded.push(b' '),
            b'%' => {
                let (high, low) = (hex_digit(rest.first()), hex_digit(rest.get(1)));
                let (Some(high), Some(low)) = (high, low) else {
                    return Err(QueryFault::Escape);
                };
                decoded.push(high << 4 | low);
                rest = rest.get(2..).unwrap_or_default();
            }
            _ => decoded.push(b),
        }
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| QueryFault::Utf8)
}

fn hex_digit(b: Option<&u8>) -> Option<u8> {
    char::from(*b?).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Path and query of absolute-form; any other target as it is.
fn local_part(target: &str) -> &str {
    absolute(target).map_or(target, |(_, local)| if local.is_empty() { "/" } else { local })
}

/// Host and port of absolute-form; nothing of any other target.
#[must_use]
pub fn authority(target: &str) -> Option<&str> {
    absolute(target).map(|(authority, _)| authority)
}

/// Authority and local part of absolute-form.
fn absolute(target: &str) -> Option<(&str, &str)> {
    if target.starts_with(['/', '*']) {
        return None;
    }
    let (_, rest) = target.split_once("://")?;
    Some(rest.split_at(memchr2(b'/', b'?', rest.as_bytes()).unwrap_or(rest.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn targets_split_into_path_and_query() {
        for (target, path, query) in [
            ("/", "/", ""),
            ("/events", "/events", ""),
            ("/stream?", "/stream", ""),
            ("/stream?a=b?c", "/stream", "a=b?c"),
            ("/%65vents", "/%65vents", ""),
            ("//host/x?y", "//host/x", "y"),
            ("*", "*", ""),
            // RFC 9112 §3.2.2
            ("http://relay:8787/stream?live=0", "/stream", "live=0"),
            ("HTTPS://relay", "/", ""),
            ("http://relay?live=0", "/", "live=0"),
            ("http://relay?u=/x", "/", "u=/x"),
            ("http://relay/x://y", "/x://y", ""),
        ] {
            assert_eq!(Target::parse(target), Target { path, query }, "{target}");
        }
        for (target, host) in [
            ("/http://a/", None),
            ("*", None),
            ("http://a:1/x", Some("a:1")),
            ("HTTPS://a?x/", Some("a")),
            ("http://a", Some("a")),
        ] {
            assert_eq!(authority(target), host, "{target}");
        }
    }

    fn pairs(query: &str) -> Vec<Pair<'_>> {
        Target { path: "/", query }.pairs().collect()
    }

    fn ok<'a>(name: &'a str, value: &'a str) -> Pair<'a> {
        Pair { name: Ok(name.into()), value: Ok(value.into()) }
    }

    #[test]
    fn pairs_are_form_decoded() {
        assert_eq!(
            pairs("filter=%7B%22a+b%22%3A1%7d&&live=0&from&=x&q=a=b%26c&k%65y=%C3%a9&raw=é{\"x\":1}"),
            [
                ok("filter", r#"{"a b":1}"#),
                ok("live", "0"),
                ok("from", ""),
                ok("", "x"),
                ok("q", "a=b&c"),
                ok("key", "é"),
                ok("raw", r#"é{"x":1}"#),
            ]
        );
        assert_eq!(pairs(""), []);
    }

    #[test]
    fn a_fault_stays_with_its_parameter() {
        let faulty = |fault| Pair { name: Ok("a".into()), value: Err(fault) };
        for (query, fault) in [
            ("a=%", QueryFault::Escape),
            ("a=%4", QueryFault::Escape),
            ("a=%4g", QueryFault::Escape),
            ("a=%+1", QueryFault::Escape),
            ("a=%é", QueryFault::Escape),
            ("a=x%FF", QueryFault::Utf8),
            ("a=%C3", QueryFault::Utf8),
            ("a=%ED%A0%80", QueryFault::Utf8),
        ] {
            assert_eq!(pairs(&format!("b=1&{query}&c=2")), [ok("b", "1"), faulty(fault), ok("c", "2")], "{query}");
        }
        assert_eq!(pairs("%zz=1"), [Pair { name: Err(QueryFault::Escape), value: Ok("1".into()) }]);
    }

    #[test]
    fn of_a_repeated_name_the_first_pair_counts() {
        let target = Target { path: "/", query: "%zz=0&b=&%61=1+2&a=3&c=%" };
        assert_eq!(target.first("a"), Some(Ok("1 2".into())));
        assert_eq!(target.first("b"), Some(Ok("".into())));
        assert_eq!(target.first("c"), Some(Err(QueryFault::Escape)));
        assert_eq!(target.first("d"), None);
    }

    #[test]
    fn plain_text_is_not_copied() {
        assert!(matches!(form_decode("abc"), Ok(Cow::Borrowed("abc"))));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(text in ".{0,40}") {
            let encoded: String = text.bytes().map(|b| if b == b' ' { "+".into() } else { format!("%{b:02X}") }).collect();
            prop_assert_eq!(form_decode(&encoded), Ok(Cow::Owned::<str>(text)));
        }

        #[test]
        fn no_target_panics(target in "(https?:)?[/?*%+&=:0-9a-fé]{0,30}") {
            let target = Target::parse(&target);
            prop_assert!(!target.path.is_empty());
            for pair in target.pairs() {
                prop_assert!(pair.name.is_ok() || target.query.contains('%'));
            }
        }
    }
}
