//! Responses: status line, fields and content into bytes (RFC 9112 §4, §6; contract §4).
//!
//! Owns the fields that frame a message (`Content-Length`, `Transfer-Encoding`, `Connection`) and the place of `Date`,
//! which every response has but the interim one; everything else is the caller's. Knows no route, no clock and no
//! socket. The version in the status line is always 1.1, as RFC 9110 §2.5 asks; what an HTTP/1.0 client may not be sent
//! is left out by [`ReplyTo::version`]. Invariant: a field value holds no CR, LF or NUL, whatever it was made from.

use std::borrow::Cow;

use memchr::memchr3;

use super::date::Date;
use super::status;
use crate::wire::digits::push_decimal;
use crate::wire::http1::fault::Version;

/// What of the request and its connection shapes the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTo {
    /// The request's version.
    pub version: Version,
    /// The connection stays open behind this response.
    pub keep_alive: bool,
    /// The request's method was HEAD: the content's length is told, the content is not sent.
    pub head: bool,
}

/// Response fields as the seam carries them.
pub type Field = (&'static str, Cow<'static, str>);

/// Appends a whole response; its fields are in two parts, one behind the other.
pub fn encode_response(out: &mut Vec<u8>, to: ReplyTo, date: Date, status: u16, fields: [&[Field]; 2], content: &[u8]) {
    let has_content = !status::is_without_content(status);
    out.reserve(256 + content.len());
    encode_status_line(out, status);
    encode_date(out, date);
    encode_fields(out, fields);
    if has_content {
        out.extend_from_slice(b"Content-Length: ");
        push_decimal(out, content.len() as u64);
        out.extend_from_slice(b"\r\n");
    }
    // RFC 9110 §7.8: whoever sends `Upgrade` names it in `Connection`.
    let upgrade = fields.into_iter().flatten().any(|(name, _)| name.eq_ignore_ascii_case("upgrade"));
    encode_connection(out, to, upgrade);
    out.extend_from_slice(b"\r\n");
    if has_content && !to.head {
        out.extend_from_slice(content);
    }
}

/// Appends the interim response that asks for the body; it is dated by the final one (RFC 9110 §6.6.1).
pub fn encode_interim_continue(out: &mut Vec<u8>) {
    encode_status_line(out, 100);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of an event stream: chunked for HTTP/1.1, until close for HTTP/1.0; see
/// [`super::chunk::StreamFraming`].
pub fn encode_event_stream_head(out: &mut Vec<u8>, to: ReplyTo, date: Date, fields: [&[Field]; 2]) {
    encode_status_line(out, 200);
    encode_date(out, date);
    encode_fields(out, fields);
    match to.version {
        Version::Http11 => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Version::Http10 => {}
    }
    encode_connection(out, ReplyTo { keep_alive: to.keep_alive && to.version == Version::Http11, ..to }, false);
    out.extend_from_slice(b"\r\n");
}

/// Appends the answer to a WebSocket handshake (RFC 6455 §4.2.2).
pub fn encode_switch_to_websocket(out: &mut Vec<u8>, accept: &[u8; 28], date: Date, fields: &[Field]) {
    encode_status_line(out, 101);
    encode_date(out, date);
    out.extend_from_slice(b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ");
    push_value(out, accept);
    out.extend_from_slice(b"\r\n");
    encode_fields(out, [fields, &[]]);
    out.extend_from_slice(b"\r\n");
}

fn encode_status_line(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    push_decimal(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(status::reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn encode_date(out: &mut Vec<u8>, date: Date) {
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(date.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn encode_fields(out: &mut Vec<u8>, fields: [&[Field]; 2]) {
    for (name, value) in fields.into_iter().flatten() {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        push_value(out, value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

fn encode_connection(out: &mut Vec<u8>, to: ReplyTo, upgrade: bool) {
    out.extend_from_slice(match (to.keep_alive, to.version, upgrade) {
        (true, Version::Http11, false) => b"".as_slice(),
        (true, Version::Http11, true) => b"Connection: Upgrade\r\n",
        (true, Version::Http10, _) => b"Connection: keep-alive\r\n",
        (false, _, false) => b"Connection: close\r\n",
        (false, _, true) => b"Connection: Upgrade, close\r\n",
    });
}

/// Appends a field value; what would end its line becomes a space, so that no value brings fields of its own.
fn push_value(out: &mut Vec<u8>, value: &[u8]) {
    let start = out.len();
    out.extend_from_slice(value);
    if memchr3(b'\r', b'\n', 0, value).is_some() {
        for b in out.iter_mut().skip(start).filter(|b| matches!(b, b'\r' | b'\n' | 0)) {
            *b = b' ';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: ReplyTo = ReplyTo { version: Version::Http11, keep_alive: true, head: false };
    const JSON: Field = ("Content-Type", Cow::Borrowed("application/json"));

    /// Every head begins with it; what the tests show is told without.
    const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

    fn date() -> Date {
        Date::at(std::time::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777))
    }

    /// What was written, less the date, which stands right behind the status line.
    fn dated(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let text = written(write);
        let (status_line, rest) = text.split_once("\r\n").unwrap();
        format!("{status_line}\r\n{}", rest.strip_prefix(DATE).unwrap())
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn response(to: ReplyTo, status: u16, fields: &[Field], content: &[u8]) -> String {
        dated(|out| encode_response(out, to, date(), status, [&[], fields], content))
    }

    #[test]
    fn a_response_tells_its_length() {
        assert_eq!(
            response(KEPT, 202, &[JSON], br#"{"accepted":1}"#),
            "HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"accepted\":1}"
        );
        assert_eq!(response(KEPT, 404, &[], b""), "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    }

    #[test]
    fn a_response_to_head_keeps_its_content_back() {
        // RFC 9110 §9.3.2
        assert_eq!(
            response(ReplyTo { head: true, ..KEPT }, 200, &[], b"0123456789"),
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
        );
    }

    #[test]
    fn a_response_without_content_has_no_length() {
        // RFC 9110 §8.6
        assert_eq!(response(KEPT, 204, &[], b"not sent"), "HTTP/1.1 204 No Content\r\n\r\n");
    }

    #[test]
    fn connection_tells_what_the_version_does_not() {
        // RFC 9112 §9.3, RFC 9110 §7.8
        let upgrade: Field = ("Upgrade", "websocket".into());
        for (version, keep_alive, fields, expected) in [
            (Version::Http11, true, &[][..], ""),
            (Version::Http11, false, &[], "Connection: close\r\n"),
            (Version::Http10, true, &[], "Connection: keep-alive\r\n"),
            (Version::Http10, false, &[], "Connection: close\r\n"),
            (Version::Http11, true, std::slice::from_ref(&upgrade), "Connection: Upgrade\r\n"),
            (Version::Http11, false, std::slice::from_ref(&upgrade), "Connection: Upgrade, close\r\n"),
        ] {
            let text = response(ReplyTo { version, keep_alive, head: false }, 426, fields, b"");
            let connection: String = text.split_inclusive('\n').filter(|line| line.starts_with("Connection")).collect();
            assert_eq!(connection, expected, "{version:?} {keep_alive} {fields:?}");
        }
    }

    #[test]
    fn no_value_brings_fields_of_its_own() {
        let hostile: Field = ("Allow", "GET\r\nX-Injected: 1\0\n\r\n".into());
        assert_eq!(
            response(KEPT, 405, &[hostile], b""),
            "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET  X-Injected: 1    \r\nContent-Length: 0\r\n\r\n"
        );
    }

    #[test]
    fn interim_response_and_switch_end_with_their_fields() {
        assert_eq!(written(encode_interim_continue), "HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(
            dated(|out| encode_switch_to_websocket(out, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", date(), &[("X", "y".into())])),
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nX: y\r\n\r\n"
        );
    }

    #[test]
    fn an_event_stream_is_chunked_or_lasts_until_close() {
        let head = |version, keep_alive| {
            dated(|out| {
                encode_event_stream_head(out, ReplyTo { version, keep_alive, head: false }, date(), [&[], &[JSON]])
            })
        };
        const START: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        assert_eq!(head(Version::Http11, true), format!("{START}Transfer-Encoding: chunked\r\n\r\n"));
        assert_eq!(
            head(Version::Http11, false),
            format!("{START}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        );
        assert_eq!(head(Version::Http10, true), format!("{START}Connection: close\r\n\r\n"));
    }

    #[test]
    fn every_status_the_relay_sends_has_a_reason() {
        for code in [100, 101, 200, 202, 204, 400, 401, 403, 404, 405, 408, 413, 414, 415, 417, 421, 426, 431, 503, 505]
        {
            assert!(!status::reason(code).is_empty(), "{code}");
        }
        assert_eq!(response(KEPT, 299, &[], b""), "HTTP/1.1 299 \r\nContent-Length: 0\r\n\r\n", "RFC 9112 §4");
    }
}
