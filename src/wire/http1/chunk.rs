//! Chunks of a response (RFC 9112 §7.1), and how an event stream is delimited for the client's version.
//!
//! A chunk holds whole messages, so that cutting a stream between chunks never cuts a message (contract §4).
//! Invariant: an empty message is written as nothing, for an empty chunk would end the body.

use crate::wire::digits::{hex_len, push_hex};
use crate::wire::http1::fault::Version;

/// The chunk that ends a body, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// What follows the content of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// How the body of an event stream is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamFraming {
    /// Chunked, one chunk per push (HTTP/1.1).
    Chunked,
    /// Until the connection closes (HTTP/1.0).
    UntilClose,
}

impl StreamFraming {
    /// The framing that a client of this version understands.
    #[must_use]
    pub fn of(version: Version) -> Self {
        match version {
            Version::Http10 => Self::UntilClose,
            Version::Http11 => Self::Chunked,
        }
    }

    /// Appends `content` (whole messages) framed for the stream.
    pub fn encode(self, out: &mut Vec<u8>, content: &[u8]) {
        self.begin(out, content.len());
        out.extend_from_slice(content);
        self.finish(out, content.len());
    }

    /// What ends the body.
    #[must_use]
    pub fn last(self) -> &'static [u8] {
        match self {
            Self::Chunked => LAST_CHUNK,
            Self::UntilClose => b"",
        }
    }

    /// What goes before `content_bytes` bytes of content.
    pub(in crate::wire) fn begin(self, out: &mut Vec<u8>, content_bytes: usize) {
        if self == Self::Chunked && content_bytes > 0 {
            out.reserve(chunk_overhead(content_bytes) + content_bytes);
            encode_chunk_head(out, content_bytes);
        }
    }

    /// What goes behind `content_bytes` bytes of content.
    pub(in crate::wire) fn finish(self, out: &mut Vec<u8>, content_bytes: usize) {
        if self == Self::Chunked && content_bytes > 0 {
            out.extend_from_slice(CHUNK_END);
        }
    }
}

/// Appends the size line of a chunk; the content and [`CHUNK_END`] must follow. `content_bytes` is not 0.
pub fn encode_chunk_head(out: &mut Vec<u8>, content_bytes: usize) {
    debug_assert!(content_bytes > 0, "an empty chunk ends the body");
    push_hex(out, content_bytes as u64);
    out.extend_from_slice(b"\r\n");
}

/// Bytes that a chunk of `content_bytes` bytes adds to its content.
#[must_use]
pub fn chunk_overhead(content_bytes: usize) -> usize {
    hex_len(content_bytes as u64) + 2 + CHUNK_END.len()
}

/// The length, framing included, of the chunk that starts at `bytes[0]`, written by this module. `None` if `bytes` do
/// not hold its size line.
#[must_use]
pub fn chunk_len(bytes: &[u8]) -> Option<usize> {
    // A size has at most 16 digits; the line of a chunk of ours holds nothing else.
    let digits = bytes.iter().take(17).position(|&b| b == b'\r')?;
    if digits == 0 || bytes.get(digits + 1) != Some(&b'\n') {
        return None;
    }
    let mut size = 0_usize;
    for &b in bytes.get(..digits)? {
        let digit = char::from(b).to_digit(16)?;
        size = size.checked_mul(16)?.checked_add(digit as usize)?;
    }
    size.checked_add(digits + 2 + CHUNK_END.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chunk_is_size_line_content_line_end() {
        let mut out = Vec::new();
        StreamFraming::Chunked.encode(&mut out, b": open\n\n");
        StreamFraming::Chunked.encode(&mut out, &[b'x'; 26]);
        out.extend_from_slice(StreamFraming::Chunked.last());
        assert_eq!(out, b"8\r\n: open\n\n\r\n1a\r\nxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n0\r\n\r\n");
    }

    #[test]
    fn a_stream_until_close_is_its_messages_alone() {
        let mut out = Vec::new();
        StreamFraming::UntilClose.encode(&mut out, b": open\n\n");
        out.extend_from_slice(StreamFraming::UntilClose.last());
        assert_eq!(out, b": open\n\n");
    }

    #[test]
    fn an_empty_message_does_not_end_the_body() {
        let mut out = Vec::new();
        StreamFraming::Chunked.encode(&mut out, b"");
        assert_eq!(out, b"");
    }

    #[test]
    fn the_length_of_a_chunk_is_read_from_its_size_line() {
        assert_eq!(chunk_len(LAST_CHUNK), Some(5));
        assert_eq!(chunk_len(b"1a\r\nxx"), Some(26 + 6));
        assert_eq!(chunk_len(b"ffffffffffffffff\r\n"), None, "overflows");
        for not_whole in [&b""[..], b"1", b"1a", b"1a\r", b"\r\n", b"1a\rx", b"xy\r\n", b"11111111111111111\r\n"] {
            assert_eq!(chunk_len(not_whole), None, "{not_whole:?}");
        }
    }

    proptest! {
        #[test]
        fn length_and_overhead_agree_with_the_encoding(content in proptest::collection::vec(any::<u8>(), 1..5000)) {
            let mut out = Vec::new();
            StreamFraming::Chunked.encode(&mut out, &content);
            prop_assert_eq!(out.len(), content.len() + chunk_overhead(content.len()));
            let whole = out.len();
            out.extend_from_slice(LAST_CHUNK);
            prop_assert_eq!(chunk_len(&out), Some(whole));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let whole = chunk_len(&bytes);
            prop_assert!(whole.is_none_or(|len| len >= LAST_CHUNK.len()));
        }
    }
}
