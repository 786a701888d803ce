//! The upgrade request (RFC 6455 §4.2.1): accepted, or refused with the reason that the answer needs.
//!
//! `Origin` is the gateway's to check, for it knows the allowed ones; offered extensions and subprotocols are ignored
//! (§6).

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use sha1::{Digest as _, Sha1};

use crate::wire::http1::RequestHead;
use crate::wire::http1::{Framing, Version};

/// What the server appends to the key before it is hashed (§1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Some clients draw 24 characters instead of 16 bytes, which leaves bits over behind the last byte; nothing depends on
/// them.
const KEY: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// What a request for a WebSocket comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// The value of `Sec-WebSocket-Accept`.
    Accept([u8; 28]),
    /// No request to upgrade to WebSocket: 426 with `Upgrade: websocket`.
    NotAnUpgrade,
    /// Another version than 13, or none: 426 with `Sec-WebSocket-Version: 13`.
    BadVersion,
    /// 400; what is wrong with `Sec-WebSocket-Key`.
    BadKey(&'static str),
}

impl Handshake {
    /// Judges a request head. A request with content is no upgrade: its content would be read as frames.
    #[must_use]
    pub fn of(head: &RequestHead<'_>) -> Self {
        let asks = head.method == "GET"
            && head.version == Version::Http11
            && head.framing == Framing::None
            && lists(head, "upgrade", b"websocket")
            && lists(head, "connection", b"upgrade");
        if !asks {
            return Self::NotAnUpgrade;
        }
        if only(head, "sec-websocket-version") != Some(b"13") {
            return Self::BadVersion;
        }
        if head.field("sec-websocket-key").is_none() {
            return Self::BadKey("no Sec-WebSocket-Key");
        }
        match only(head, "sec-websocket-key") {
            None => Self::BadKey("more than one Sec-WebSocket-Key"),
            Some(key) if !is_key(key) => Self::BadKey("Sec-WebSocket-Key is not 16 bytes in base64"),
            Some(key) => accept(key).map_or(Self::BadKey("Sec-WebSocket-Key cannot be hashed"), Self::Accept),
        }
    }
}

/// Whether a field, which may come several times, lists that token in any case.
fn lists(head: &RequestHead<'_>, name: &str, token: &[u8]) -> bool {
    head.fields_named(name)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|listed| listed.trim_ascii().eq_ignore_ascii_case(token))
}

/// The value of a field that comes exactly once.
fn only<'a>(head: &RequestHead<'a>, name: &str) -> Option<&'a [u8]> {
    let mut values = head.fields_named(name);
    values.next().filter(|_| values.next().is_none())
}

fn is_key(key: &[u8]) -> bool {
    // One byte of room more than a key decodes to, because the decoder may want it for the padding it estimates.
    let mut nonce = [0; 18];
    key.len() == 24 && KEY.decode_slice(key, &mut nonce) == Ok(16)
}

fn accept(key: &[u8]) -> Option<[u8; 28]> {
    let digest = Sha1::new().chain_update(key).chain_update(KEY_SUFFIX).finalize();
    let mut accept = [0; 28];
    let written = STANDARD.encode_slice(digest, &mut accept).ok()?;
    (written == accept.len()).then_some(accept)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "GET /socket HTTP/1.1\r\nHost: r\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

    fn judged(request: &str) -> Handshake {
        Handshake::of(&RequestHead::decode_whole(request.as_bytes()).expect(request))
    }

    fn with(from: &str, to: &str) -> Handshake {
        assert!(GOOD.contains(from), "{from}");
        judged(&GOOD.replace(from, to))
    }

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(judged(GOOD), Handshake::Accept(*b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    }

    #[test]
    fn names_and_tokens_come_in_any_case_and_in_lists() {
        let accepted = judged(GOOD);
        for (from, to) in [
            ("Upgrade: websocket", "UPGRADE: WebSocket"),
            ("Upgrade: websocket", "Upgrade: h2c , websocket"),
            ("Upgrade: websocket", "Upgrade: h2c\r\nUpgrade: websocket"),
            ("Connection: Upgrade", "connection: keep-alive, UPGRADE"),
            ("Connection: Upgrade", "Connection: keep-alive\r\nConnection: upgrade"),
            ("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: chat\r\n\r\n"),
        ] {
            assert_eq!(with(from, to), accepted, "{to}");
        }
    }

    #[test]
    fn what_does_not_ask_for_a_websocket() {
        for (from, to) in [
            ("GET", "POST"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("Upgrade: websocket\r\n", ""),
            ("Upgrade: websocket", "Upgrade: websockets"),
            ("Upgrade: websocket", "Upgrade: h2c"),
            ("Connection: Upgrade\r\n", ""),
            ("Connection: Upgrade", "Connection: keep-alive"),
            ("Host: r", "Host: r\r\nContent-Length: 5"),
            ("Host: r", "Host: r\r\nTransfer-Encoding: chunked"),
        ] {
            assert_eq!(with(from, to), Handshake::NotAnUpgrade, "{to}");
        }
    }

    #[test]
    fn another_version_than_13() {
        for to in ["Sec-WebSocket-Version: 8", "Sec-WebSocket-Version: 013", "Sec-WebSocket-Version: 13, 8", "X: y"] {
            assert_eq!(with("Sec-WebSocket-Version: 13", to), Handshake::BadVersion, "{to}");
        }
        let twice = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Version: 13";
        assert_eq!(with("Sec-WebSocket-Version: 13", twice), Handshake::BadVersion);
    }

    #[test]
    fn keys_that_are_none() {
        for key in [
            "",
            "dGhlIHNhbXBsZSBub25jZQ",
            "dGhlIHNhbXBsZSBub25jZQ=",
            "dGhlIHNhbXBsZSBub25jZTE=",
            "dGhlIHNhbXBsZSBub25j",
            "dGhlIHNhbXBsZSBub25jZTEy",
            "dGhlIHNhbXBsZSBub25j!Q==",
            "dGhlIHNhbXBsZSBub25jZQ==, dGhlIHNhbXBsZSBub25jZQ==",
        ] {
            assert!(matches!(with("dGhlIHNhbXBsZSBub25jZQ==", key), Handshake::BadKey(_)), "{key}");
        }
        let line = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        assert_eq!(with(line, ""), Handshake::BadKey("no Sec-WebSocket-Key"));
        assert_eq!(with(line, &line.repeat(2)), Handshake::BadKey("more than one Sec-WebSocket-Key"));
    }

    #[test]
    fn bits_left_over_behind_the_sixteenth_byte_are_forgiven() {
        let key = "dGhlIHNhbXBsZSBub25jZZ==";
        let expected = tungstenite::handshake::derive_accept_key(key.as_bytes());
        let Handshake::Accept(accept) = with("dGhlIHNhbXBsZSBub25jZQ==", key) else { panic!("refused") };
        assert_eq!(accept, *expected.as_bytes());
    }
}
