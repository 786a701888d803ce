//! What the fields of a head say about the message and its connection (RFC 9112 §6, §9.3; RFC 9110 §10.1.1).
//!
//! Owns the rules that keep two hops from framing one request differently (request smuggling): each is the strict
//! choice where the RFC leaves one. Knows the five fields it reads and no others.

use crate::wire::http1::fault::{HeadFault, Version};

/// How the request's content is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No content.
    None,
    /// `Content-Length`, more than 0 bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// What the fields that frame a message say; each field line is noted once.
#[derive(Debug, Default)]
pub(super) struct FieldFacts {
    host: bool,
    content_length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    /// `100-continue` is expected.
    pub(super) expect_continue: bool,
    /// Something else is expected.
    pub(super) expect_other: bool,
}

impl FieldFacts {
    /// Takes in one field.
    pub(super) fn note(&mut self, name: &str, value: &[u8]) -> Result<(), HeadFault> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("host") {
            if std::mem::replace(&mut self.host, true) {
                return Err(HeadFault::Malformed("repeated Host"));
            }
        } else if is("content-length") {
            // RFC 9112 §6.3 would allow equal repetitions; nobody honest sends them.
            if self.content_length.is_some() {
                return Err(HeadFault::Malformed("repeated Content-Length"));
            }
            let length = parse_length(value).ok_or(HeadFault::Malformed("Content-Length is not a length"))?;
            self.content_length = Some(length);
        } else if is("transfer-encoding") {
            if std::mem::replace(&mut self.chunked, true) || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadFault::Malformed("Transfer-Encoding is not a single chunked"));
            }
        } else if is("connection") {
            for option in list(value) {
                self.close |= option.eq_ignore_ascii_case(b"close");
                self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        } else if is("expect") {
            for expectation in list(value) {
                let is_continue = expectation.eq_ignore_ascii_case(b"100-continue");
                self.expect_continue |= is_continue;
                self.expect_other |= !is_continue;
            }
        }
        Ok(())
    }

    /// Only HTTP/1.0 may leave `Host` out (RFC 9112 §3.2).
    pub(super) fn require_host(&self, version: Version) -> Result<(), HeadFault> {
        if self.host || version == Version::Http10 { Ok(()) } else { Err(HeadFault::Malformed("missing Host")) }
    }

    /// Whether the connection persists (RFC 9112 §9.3); `close` wins over `keep-alive`.
    pub(super) fn persists(&self, version: Version) -> bool {
        !self.close && (self.keep_alive || version == Version::Http11)
    }

    /// How the content is delimited.
    pub(super) fn framing(&self, version: Version) -> Result<Framing, HeadFault> {
        match (self.chunked, self.content_length) {
            (true, Some(_)) => Err(HeadFault::Malformed("Content-Length with Transfer-Encoding")),
            // RFC 9112 §6.1: its framing is to be treated as faulty, as a hop may have passed it on unread.
            (true, None) if version == Version::Http10 => Err(HeadFault::Malformed("Transfer-Encoding in HTTP/1.0")),
            (true, None) => Ok(Framing::Chunked),
            (false, None | Some(0)) => Ok(Framing::None),
            (false, Some(length)) => Ok(Framing::Length(length)),
        }
    }
}

/// The elements of a comma-separated list (RFC 9110 §5.6.1), empty ones left out.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Digits only (no sign, no list), and within 64 bits.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |length, &b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        length.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http1::RequestHead;

    /// The head of a request with these field lines, `Host` not added.
    fn head(version: &str, lines: &str) -> Option<(Framing, bool, bool, bool)> {
        let bytes = format!("POST /events HTTP/{version}\r\n{lines}\r\n");
        RequestHead::decode_whole(bytes.as_bytes())
            .map(|head| (head.framing, head.keep_alive, head.expect_continue, head.expect_other))
    }

    fn framing(lines: &str) -> Option<Framing> {
        head("1.1", &format!("Host: a\r\n{lines}")).map(|(framing, ..)| framing)
    }

    #[test]
    fn content_is_delimited_by_one_length_or_by_chunks() {
        // RFC 9112 §6.2, §6.3
        for (lines, expected) in [
            ("", Framing::None),
            ("Content-Length: 0\r\n", Framing::None),
            ("content-length:5\r\n", Framing::Length(5)),
            ("Content-Length: 007\r\n", Framing::Length(7)),
            ("Content-Length: 18446744073709551615\r\n", Framing::Length(u64::MAX)),
            ("Transfer-Encoding: chunked\r\n", Framing::Chunked),
            ("transfer-encoding: CHUNKED \r\n", Framing::Chunked),
        ] {
            assert_eq!(framing(lines), Some(expected), "{lines:?}");
        }
    }

    #[test]
    fn what_two_hops_could_frame_differently_is_malformed() {
        for (rfc9112, lines) in [
            ("6.1", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
            ("6.1", "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"),
            ("6.1", "Transfer-Encoding: gzip, chunked\r\n"),
            ("6.1", "Transfer-Encoding: chunked, chunked\r\n"),
            ("6.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
            ("6.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
            ("6.1", "Transfer-Encoding: identity\r\n"),
            ("6.1", "Transfer-Encoding: xchunked\r\n"),
            ("6.1", "Transfer-Encoding: \"chunked\"\r\n"),
            ("6.1", "Transfer-Encoding: chunked;q=1\r\n"),
            ("6.1", "Transfer-Encoding: chunked,\r\n"),
            ("6.1", "Transfer-Encoding: \u{b}chunked\r\n"),
            ("6.1", "Transfer-Encoding:\r\n"),
            ("6.3", "Content-Length: 5\r\nContent-Length: 6\r\n"),
            ("6.3", "Content-Length: 5\r\nContent-Length: 5\r\n"),
            ("6.3", "Content-Length: 5, 6\r\n"),
            ("6.3", "Content-Length: 5, 5\r\n"),
            ("6.3", "Content-Length: 5,\r\n"),
            ("6.3", "Content-Length: +5\r\n"),
            ("6.3", "Content-Length: -5\r\n"),
            ("6.3", "Content-Length: 0x5\r\n"),
            ("6.3", "Content-Length: 5 5\r\n"),
            ("6.3", "Content-Length: 5.0\r\n"),
            ("6.3", "Content-Length: \u{665}\r\n"),
            ("6.3", "Content-Length: 18446744073709551616\r\n"),
            ("6.3", "Content-Length:\r\n"),
        ] {
            assert_eq!(framing(lines), None, "RFC 9112 §{rfc9112}: {lines:?}");
        }
    }

    #[test]
    fn http_1_0_has_no_transfer_codings() {
        // RFC 9112 §6.1
        assert_eq!(head("1.0", "Transfer-Encoding: chunked\r\n"), None);
        assert_eq!(head("1.0", "Content-Length: 5\r\n"), Some((Framing::Length(5), false, false, false)));
    }

    #[test]
    fn http_1_1_has_exactly_one_host() {
        // RFC 9112 §3.2
        for (version, lines, good) in [
            ("1.1", "Host: a\r\n", true),
            ("1.1", "Host:\r\n", true),
            ("1.1", "hOST: a b ?\r\n", true),
            ("1.1", "", false),
            ("1.1", "Host: a\r\nhost: a\r\n", false),
            ("1.0", "", true),
            ("1.0", "Host: a\r\nHost: b\r\n", false),
        ] {
            assert_eq!(head(version, lines).is_some(), good, "{version} {lines:?}");
        }
    }

    #[test]
    fn persistence_follows_version_and_connection_options() {
        // RFC 9112 §9.3
        for (version, lines, persists) in [
            ("1.1", "", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: Upgrade , CLOSE\r\n", false),
            ("1.1", "Connection: upgrade\r\nConnection: close\r\n", false),
            ("1.1", "Connection: closed\r\n", true),
            ("1.1", "Connection: keep-alive, close\r\n", false),
            ("1.0", "", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
            ("1.0", "Connection: keep-alive, close\r\n", false),
        ] {
            let head = head(version, &format!("Host: a\r\n{lines}"));
            assert_eq!(head.map(|(_, keep_alive, ..)| keep_alive), Some(persists), "{version} {lines:?}");
        }
    }

    #[test]
    fn expectations_are_told_apart_and_ignored_in_http_1_0() {
        // RFC 9110 §10.1.1
        for (version, lines, expected) in [
            ("1.1", "", (false, false)),
            ("1.1", "Expect: 100-continue\r\n", (true, false)),
            ("1.1", "Expect: 100-Continue\r\n", (true, false)),
            ("1.1", "Expect: 200-ok\r\n", (false, true)),
            ("1.1", "Expect: 100-continue, x\r\n", (true, true)),
            ("1.1", "Expect: 100-continue\r\nExpect: y=z\r\n", (true, true)),
            ("1.1", "Expect: 100-continue;q=1\r\n", (false, true)),
            ("1.0", "Expect: 100-continue\r\n", (false, false)),
            ("1.0", "Expect: x\r\n", (false, false)),
        ] {
            let head = head(version, &format!("Host: a\r\n{lines}"));
            assert_eq!(head.map(|(_, _, go_on, other)| (go_on, other)), Some(expected), "{version} {lines:?}");
        }
    }
}
