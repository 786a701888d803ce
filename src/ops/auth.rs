//! The bearer token: what a valid one looks like, and whether a request presents it (contract §4).
//!
//! Works on plain values: the `Authorization` field and the query's `access_token` as the gateway found them. Knows
//! no request, no endpoint and no answer.
//!
//! Invariants: a token is 1 to [`TOKEN_BYTES_MAX`] visible ASCII characters; neither `Debug` nor any error shows it;
//! a comparison takes the same steps whatever was presented, so that its time tells neither how much of a guess was
//! right nor how long the token is.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::limits::TOKEN_BYTES_MAX;

const WORDS: usize = TOKEN_BYTES_MAX / size_of::<u64>();

/// The configured token. Neither displayed nor compared with `==`.
#[derive(Clone)]
pub struct Token(Padded);

impl Token {
    /// What [`Token::parse`] takes, for the line that refuses anything else.
    pub const ACCEPTED: &'static str = "1 to 1024 visible ASCII characters, no spaces";

    /// A token, if the bytes can be one: anything else could not be sent in a header field or would be cut there.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        bytes.iter().all(u8::is_ascii_graphic).then(|| Padded::new(bytes))?.map(Self)
    }

    fn matches(&self, presented: &[u8]) -> bool {
        // What is too long or empty is compared with a value that no token has.
        let (presented, possible) = Padded::new(presented).map_or((Padded::EMPTY, 0), |padded| (padded, 1));
        let equal = self.0.words.ct_eq(&presented.words) & self.0.len.ct_eq(&presented.len);
        (equal & subtle::Choice::from(possible)).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Bytes at the one fixed size at which tokens are compared.
#[derive(Clone)]
struct Padded {
    words: [u64; WORDS],
    len: u64,
}

impl Padded {
    const EMPTY: Self = Self { words: [0; WORDS], len: 0 };

    /// `None` for none at all, or more than a token can have.
    fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let mut padded = Self { len: bytes.len() as u64, ..Self::EMPTY };
        for (word, chunk) in padded.words.iter_mut().zip(bytes.chunks(size_of::<u64>())) {
            *word = chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        Some(padded)
    }
}

/// Who may do what: everybody, or who presents the token.
#[derive(Debug, Clone)]
pub struct Access {
    token: Option<Token>,
}

impl Access {
    /// Access by that token; without one, observation and ingest are open to all and control is refused.
    #[must_use]
    pub fn new(token: Option<Token>) -> Self {
        Self { token }
    }

    /// Whether control commands are routed at all: only where a token is configured, this machine's own users
    /// included (§7).
    #[must_use]
    pub fn control_enabled(&self) -> bool {
        self.token.is_some()
    }

    /// Whether a request may proceed, given its `Authorization` field and, where the endpoint takes one, the decoded
    /// `access_token` of its query. A `Bearer` field, once sent, decides alone: a wrong one is not rescued by a right
    /// query. Another scheme carries no token: a proxy puts its own credentials there.
    #[must_use]
    pub fn permits(&self, authorization: Option<&[u8]>, access_token: Option<&str>) -> bool {
        let Some(token) = &self.token else { return true };
        let presented = authorization.and_then(bearer).or(access_token.map(str::as_bytes));
        presented.is_some_and(|presented| token.matches(presented))
    }
}

const SCHEME: &[u8] = b"bearer";

/// The credentials of an `Authorization` field, if its scheme is `Bearer` (in any case). One space or more stand
/// between the two (RFC 9110 §11.4); where there is something else, or nothing, the credentials are none that a token
/// can equal.
fn bearer(field: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = field.split_at_checked(SCHEME.len())?;
    let ends = rest.first().is_none_or(|byte| !byte.is_ascii_graphic());
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    (ends && scheme.eq_ignore_ascii_case(SCHEME)).then(|| rest.get(spaces..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn access(token: &str) -> Access {
        Access::new(Some(Token::parse(token.as_bytes()).unwrap()))
    }

    #[test]
    fn without_a_token_everybody_may_read_and_nobody_may_control() {
        let open = Access::new(None);
        assert!(open.permits(None, None));
        assert!(open.permits(Some(b"Bearer whatever"), None));
        assert!(!open.control_enabled());
        assert!(access("t").control_enabled());
    }

    #[test]
    fn the_scheme_counts_in_any_case_with_one_space_or_more() {
        let access = access("s3cret");
        for field in ["Bearer s3cret", "bearer s3cret", "BEARER   s3cret"] {
            assert!(access.permits(Some(field.as_bytes()), None), "{field}");
        }
        for field in
            ["", "s3cret", "Bearer", "Bearer ", "Bearers3cret", "Basic s3cret", "Bearer\ts3cret", "Token s3cret"]
        {
            assert!(!access.permits(Some(field.as_bytes()), None), "{field}");
        }
    }

    #[test]
    fn a_wrong_header_is_not_rescued_by_a_right_query() {
        let access = access("s3cret");
        assert!(access.permits(None, Some("s3cret")));
        assert!(!access.permits(None, Some("other")));
        assert!(!access.permits(None, Some("")));
        assert!(!access.permits(None, None));
        assert!(!access.permits(Some(b"Bearer other"), Some("s3cret")));
        for field in ["Bearer", "bearer ", "Bearer\ts3cret", "BEARER \ts3cret"] {
            assert!(!access.permits(Some(field.as_bytes()), Some("s3cret")), "{field}");
        }
        assert!(access.permits(Some(b"Bearer s3cret"), Some("other")));
    }

    #[test]
    fn another_scheme_carries_no_token() {
        let access = access("s3cret");
        for field in ["Basic dTpw", "Basic s3cret", "Bearers3cret", "Bearer-x s3cret", "s3cret", "Negotiate", ""] {
            assert!(access.permits(Some(field.as_bytes()), Some("s3cret")), "{field}");
            assert!(!access.permits(Some(field.as_bytes()), Some("other")), "{field}");
            assert!(!access.permits(Some(field.as_bytes()), None), "{field}");
        }
    }

    #[test]
    fn near_misses_are_misses() {
        let access = access("abcdefgh1");
        for presented in ["abcdefgh", "abcdefgh1\0", "\0abcdefgh1", "abcdefgh2", "Abcdefgh1", "abcdefgh1abcdefgh1"] {
            assert!(!access.permits(None, Some(presented)), "{presented:?}");
        }
        assert!(!access.permits(None, Some(&"a".repeat(TOKEN_BYTES_MAX + 1))));
    }

    #[test]
    fn only_visible_ascii_of_a_bounded_length_is_a_token() {
        assert!(Token::parse("a".repeat(TOKEN_BYTES_MAX).as_bytes()).is_some());
        assert!(Token::parse("a".repeat(TOKEN_BYTES_MAX + 1).as_bytes()).is_none());
        for bytes in [&b""[..], b"a b", b" a", b"a\n", b"a\0", "ä".as_bytes(), b"\x7f", b"\xff"] {
            assert!(Token::parse(bytes).is_none(), "{bytes:?}");
        }
        assert!(Token::ACCEPTED.contains(&TOKEN_BYTES_MAX.to_string()));
    }

    #[test]
    fn a_token_is_never_shown() {
        let shown = format!("{:?}", access("hunter2"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    proptest! {
        #[test]
        fn exactly_the_configured_token_is_taken(configured in "[!-~]{1,40}", presented in "[!-~]{1,40}") {
            let access = access(&configured);
            prop_assert!(access.permits(None, Some(&configured)));
            prop_assert_eq!(access.permits(None, Some(&presented)), configured == presented);
        }

        #[test]
        fn no_header_can_panic(field in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = access("t").permits(Some(&field), None);
        }
    }
}
