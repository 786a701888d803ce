//! Request content: from the byte behind a head to the end of its body (RFC 9112 §6, §7.1; contract §4).
//!
//! Owns how content is delimited, by length or in chunks, and every bound on what comes along with it. Knows no buffer
//! of its own: content goes to the caller's sink, so a decoder is a few words, however large the body.
//! Chunk extensions and trailers are read past, within bounds, and thrown away. As in the head, every line ends in
//! CR LF and nothing stands where the grammar has no place for it: what two hops could frame differently is a fault.
//!
//! Invariants: `received` counts content bytes and never exceeds `bytes_max` after a [`BodyDecoder::decode`] that
//! succeeded; a call that fails has consumed nothing and left the decoder as it was.

use super::framing::Framing;
use super::head::is_tchar;

/// Bytes of all chunk extensions of one body together; over it the body is malformed. Without the bound a client could
/// make the relay read without end and bring no content.
const EXTENSION_BYTES_MAX: u16 = 8 << 10;
/// Bytes of all trailer fields of one body; over it the body is malformed.
const TRAILER_BYTES_MAX: u16 = 8 << 10;
/// Digits of one chunk size, leading zeros included: what 64 bits hold, so that no size overflows.
const SIZE_DIGITS_MAX: u8 = 16;

/// Why bytes are no acceptable body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFault {
    /// The chunk framing is broken; the text names the rule. 400, and the connection cannot be read further.
    Malformed(&'static str),
    /// The content is, or will be, over the bound. 413; the rest may be [skipped](BodyDecoder::skip).
    TooLarge,
}

/// How far a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyProgress {
    /// Input bytes that belong to this body; all of them unless it is done.
    pub consumed: usize,
    /// The body is complete; what follows in the input is the next request.
    pub done: bool,
}

/// Decodes one body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyDecoder {
    state: BodyState,
    /// Content bytes so far.
    received: u64,
    /// Bytes of chunk extensions so far.
    extension_bytes: u16,
    /// Bytes of trailers so far.
    trailer_bytes: u16,
}

/// What is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyState {
    /// So many bytes of content delimited by length, at least 1.
    Length(u64),
    /// Digits of a chunk size, or what may follow them.
    Size { size: u64, digits: u8 },
    /// White space in front of an extension's semicolon.
    BeforeExtension { size: u64 },
    /// The rest of a chunk's extensions.
    Extension { size: u64 },
    /// The LF of a size line.
    SizeLf { size: u64 },
    /// So many bytes of chunk content, at least 1.
    Content(u64),
    /// The CR behind a chunk's content.
    ContentCr,
    /// Its LF.
    ContentLf,
    /// A trailer field, or the CR of the blank line.
    Trailer,
    /// The rest of a trailer's name, and its colon.
    TrailerName,
    /// A trailer's value.
    TrailerValue,
    /// The LF of a trailer.
    TrailerLf,
    /// The LF that ends the body.
    LastLf,
    /// Nothing.
    Done,
}

impl BodyDecoder {
    /// A decoder at the first byte of a body.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => BodyState::Done,
            Framing::Length(length) => BodyState::Length(length),
            Framing::Chunked => BodyState::Size { size: 0, digits: 0 },
        };
        Self { state, received: 0, extension_bytes: 0, trailer_bytes: 0 }
    }

    /// Whether the body is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == BodyState::Done
    }

    /// Appends the content in `input` to `sink`. A declared length over `bytes_max` is found at once, even with an
    /// empty `input`: before a client that awaits `100 Continue` is asked for its body.
    ///
    /// # Errors
    /// Broken framing, or content over `bytes_max` as soon as a length or a chunk's size tells. Nothing is consumed
    /// then; what `sink` got in this call is of no use.
    pub fn decode(&mut self, input: &[u8], bytes_max: usize, sink: &mut Vec<u8>) -> Result<BodyProgress, BodyFault> {
        self.run(input, u64::try_from(bytes_max).unwrap_or(u64::MAX), |content| sink.extend_from_slice(content))
    }

    /// Reads on and throws the content away, however much it is: for uploads that were refused.
    ///
    /// # Errors
    /// Broken framing; [`BodyFault::TooLarge`] never comes.
    pub fn skip(&mut self, input: &[u8]) -> Result<BodyProgress, BodyFault> {
        self.run(input, u64::MAX, |_| {})
    }

    fn run(&mut self, input: &[u8], bytes_max: u64, mut sink: impl FnMut(&[u8])) -> Result<BodyProgress, BodyFault> {
        // Works on a copy: a failed call must leave the decoder where it was.
        let mut next = *self;
        let mut rest = input;
        next.admit_length(bytes_max)?;
        loop {
            if let BodyState::Length(left) | BodyState::Content(left) = next.state {
                let (content, behind) = rest.split_at(usize::try_from(left).unwrap_or(usize::MAX).min(rest.len()));
                sink(content);
                next.take_content(content.len() as u64);
                rest = behind;
            }
            if next.is_done() {
                break;
            }
            let Some((&b, behind)) = rest.split_first() else { break };
            next.state = next.step(b, bytes_max)?;
            rest = behind;
        }
        *self = next;
        Ok(BodyProgress { consumed: input.len() - rest.len(), done: self.is_done() })
    }

    /// Refuses a declared length over the bound.
    fn admit_length(&self, bytes_max: u64) -> Result<(), BodyFault> {
        match self.state {
            BodyState::Length(left) if self.received.saturating_add(left) > bytes_max => Err(BodyFault::TooLarge),
            _ => Ok(()),
        }
    }

    fn take_content(&mut self, bytes: u64) {
        self.received = self.received.saturating_add(bytes);
        self.state = match self.state {
            BodyState::Length(left) if left > bytes => BodyState::Length(left - bytes),
            BodyState::Content(left) if left > bytes => BodyState::Content(left - bytes),
            BodyState::Content(_) => BodyState::ContentCr,
            _ => BodyState::Done,
        };
    }

    /// Takes one byte of framing.
    fn step(&mut self, b: u8, bytes_max: u64) -> Result<BodyState, BodyFault> {
        let malformed = |rule| Err(BodyFault::Malformed(rule));
        Ok(match (self.state, b) {
            (BodyState::Size { size, digits }, b) if b.is_ascii_hexdigit() => {
                if digits == SIZE_DIGITS_MAX {
                    return malformed("a chunk size of too many digits");
                }
                let digit = char::from(b).to_digit(16).unwrap_or_default();
                BodyState::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (BodyState::Size { digits: 0, .. }, _) => return malformed("a chunk does not begin with its size"),
            (BodyState::Size { size, .. } | BodyState::Extension { size }, b'\r') => BodyState::SizeLf { size },
            (BodyState::Size { size, .. } | BodyState::BeforeExtension { size }, b';') => self.extension_byte(size)?,
            (BodyState::Size { size, .. } | BodyState::BeforeExtension { size }, b' ' | b'\t') => {
                self.extension_byte(size)?;
                BodyState::BeforeExtension { size }
            }
            (BodyState::Extension { size }, b) if is_text(b) => self.extension_byte(size)?,
            (BodyState::Size { .. } | BodyState::BeforeExtension { .. } | BodyState::Extension { .. }, _) => {
                return malformed("a chunk size is followed by neither an extension nor CR LF");
            }
            (BodyState::SizeLf { size: 0 }, b'\n') => BodyState::Trailer,
            (BodyState::SizeLf { size }, b'\n') => {
                if self.received.saturating_add(size) > bytes_max {
                    return Err(BodyFault::TooLarge);
                }
                BodyState::Content(size)
            }
            (BodyState::ContentCr, b'\r') => BodyState::ContentLf,
            (BodyState::ContentLf, b'\n') => BodyState::Size { size: 0, digits: 0 },
            (BodyState::ContentCr | BodyState::ContentLf, _) => return malformed("a chunk is longer than its size"),
            (BodyState::Trailer, b'\r') => BodyState::LastLf,
            (BodyState::Trailer | BodyState::TrailerName, b) if is_tchar(b) => {
                self.trailer_byte(BodyState::TrailerName)?
            }
            (BodyState::TrailerName, b':') => self.trailer_byte(BodyState::TrailerValue)?,
            (BodyState::TrailerValue, b'\r') => BodyState::TrailerLf,
            (BodyState::TrailerValue, b) if is_text(b) => self.trailer_byte(BodyState::TrailerValue)?,
            (BodyState::Trailer | BodyState::TrailerName | BodyState::TrailerValue, _) => {
                return malformed("a trailer is not a field line");
            }
            (BodyState::TrailerLf, b'\n') => self.trailer_byte(BodyState::Trailer)?,
            (BodyState::LastLf, b'\n') => BodyState::Done,
            (BodyState::SizeLf { .. } | BodyState::TrailerLf | BodyState::LastLf, _) => {
                return malformed("a bare CR in the chunk framing");
            }
            // Content is taken whole before framing, and nothing is read once the body is done.
            (BodyState::Length(_) | BodyState::Content(_) | BodyState::Done, _) => self.state,
        })
    }

    fn extension_byte(&mut self, size: u64) -> Result<BodyState, BodyFault> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX {
            return Err(BodyFault::Malformed("too many bytes of chunk extensions"));
        }
        Ok(BodyState::Extension { size })
    }

    fn trailer_byte(&mut self, next: BodyState) -> Result<BodyState, BodyFault> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(BodyFault::Malformed("too many bytes of trailers"));
        }
        Ok(next)
    }
}

/// Bytes of extensions and field values: anything but controls, tab excepted.
fn is_text(b: u8) -> bool {
    b == b'\t' || (b >= b' ' && b != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http1::chunk::{LAST_CHUNK, StreamFraming};
    use proptest::prelude::*;

    const BYTES_MAX: usize = 64;

    /// Content and how many bytes were consumed; `None` if more is awaited.
    type Outcome = Result<Option<(Vec<u8>, usize)>, BodyFault>;

    fn in_pieces(framing: Framing, bytes: &[u8], cuts: impl IntoIterator<Item = usize>, bytes_max: usize) -> Outcome {
        let mut decoder = BodyDecoder::new(framing);
        let (mut content, mut start) = (Vec::new(), 0);
        for end in cuts.into_iter().chain([bytes.len()]) {
            let progress = decoder.decode(&bytes[start..end.max(start)], bytes_max, &mut content)?;
            start += progress.consumed;
            assert_eq!(progress.done, decoder.is_done());
            if progress.done {
                return Ok(Some((content, start)));
            }
            assert_eq!(start, end.max(start), "all of the input belongs to a body that is not done");
        }
        Ok(None)
    }

    /// The outcome, after checking that no cutting changes it, and that skipping frames alike.
    fn decode(framing: Framing, bytes: impl AsRef<[u8]>) -> Outcome {
        let bytes = bytes.as_ref();
        let whole = in_pieces(framing, bytes, [], BYTES_MAX);
        for cut in 0..bytes.len() {
            assert_eq!(in_pieces(framing, bytes, [cut], BYTES_MAX), whole, "cut at {cut}: {bytes:?}");
        }
        assert_eq!(in_pieces(framing, bytes, 0..bytes.len(), BYTES_MAX), whole, "dribbled: {bytes:?}");
        if whole != Err(BodyFault::TooLarge) {
            let skipped = BodyDecoder::new(framing).skip(bytes);
            assert_eq!(skipped.map(|progress| progress.done), whole.clone().map(|w| w.is_some()), "skipped: {bytes:?}");
        }
        whole
    }

    fn chunked(bytes: impl AsRef<[u8]>) -> Outcome {
        decode(Framing::Chunked, bytes)
    }

    fn done(content: &str, consumed: usize) -> Outcome {
        Ok(Some((content.into(), consumed)))
    }

    #[test]
    fn a_body_of_a_length_ends_there() {
        assert_eq!(decode(Framing::Length(5), "helloPOST"), done("hello", 5));
        assert_eq!(decode(Framing::Length(5), "hell"), Ok(None));
        assert_eq!(decode(Framing::None, "GET"), done("", 0));
        assert_eq!(decode(Framing::Length(0), "GET"), done("", 0));
    }

    #[test]
    fn a_chunked_body_ends_behind_its_trailers() {
        // RFC 9112 §7.1
        for (bytes, content) in [
            ("0\r\n\r\n", ""),
            ("5\r\nhello\r\n0\r\n\r\n", "hello"),
            ("005\r\nhello\r\n000\r\n\r\n", "hello"),
            ("2\r\n\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n", "\r\n0123456789"),
            ("a;x=y;z=\"q r\";\r\n0123456789\r\n0;last\r\n\r\n", "0123456789"),
            ("5 \t;x\r\nhello\r\n0\r\n\r\n", "hello"),
            ("5\r\nhello\r\n0\r\nContent-Length: 7\r\nX:\r\nY: \t\u{e9}\r\n\r\n", "hello"),
        ] {
            assert_eq!(chunked(format!("{bytes}GET")), done(content, bytes.len()), "{bytes:?}");
            assert_eq!(chunked(&bytes[..bytes.len() - 1]), Ok(None), "{bytes:?}");
        }
    }

    #[test]
    fn chunk_framing_is_strict() {
        for (rfc9112, bytes) in [
            ("7.1", "\r\n"),
            ("7.1", "5\nhello\r\n0\r\n\r\n"),
            ("7.1", "5\rhello"),
            ("7.1", "5\r\nhello\n0\r\n\r\n"),
            ("7.1", "5\r\nhello\r0\r\n\r\n"),
            ("7.1", "5\r\nhello!\r\n"),
            ("7.1", "5\r\nhell\r\n0\r\n\r\n"),
            ("7.1", "5\r\nhello0\r\n\r\n"),
            ("7.1", "0\r\n\n"),
            ("7.1", "0\r\n\rX"),
            ("7.1", "0\n\n"),
            ("7.1", " 5\r\nhello"),
            ("7.1", "+5\r\nhello"),
            ("7.1", "-5\r\nhello"),
            ("7.1", "0x5\r\nhello"),
            ("7.1", "5g\r\nhello"),
            ("7.1", "5,5\r\nhello"),
            ("7.1", "g\r\n"),
            ("7.1", "10000000000000000\r\n"),
            ("7.1", "00000000000000005\r\nhello\r\n0\r\n\r\n"),
            ("7.1.1", "5 \r\nhello"),
            ("7.1.1", "5 x\r\nhello"),
            ("7.1.1", "5;x\nhello"),
            ("7.1.1", "5;x\rhello"),
            ("7.1.1", "5;\0\r\nhello"),
            ("7.1.2", "0\r\nX: y\n\r\n"),
            ("7.1.2", "0\r\nX: y\r\r\n"),
            ("7.1.2", "0\r\nX : y\r\n\r\n"),
            ("7.1.2", "0\r\nX: y\r\n z\r\n\r\n"),
            ("7.1.2", "0\r\n: y\r\n\r\n"),
            ("7.1.2", "0\r\nX\r\n\r\n"),
            ("7.1.2", "0\r\nX: \0\r\n\r\n"),
        ] {
            let outcome = chunked(bytes);
            assert!(matches!(outcome, Err(BodyFault::Malformed(_))), "RFC 9112 §{rfc9112}: {bytes:?}: {outcome:?}");
        }
    }

    #[test]
    fn content_is_bounded_as_soon_as_its_size_is_known() {
        assert!(matches!(decode(Framing::Length(64), [b'x'; 64]), Ok(Some(_))), "at the bound");
        assert_eq!(decode(Framing::Length(65), ""), Err(BodyFault::TooLarge), "over it, before any byte");
        assert_eq!(decode(Framing::Length(u64::MAX), ""), Err(BodyFault::TooLarge));

        let half = format!("20\r\n{}\r\n", "x".repeat(32));
        assert!(matches!(chunked(format!("{half}{half}0\r\n\r\n")), Ok(Some(_))), "at the bound");
        assert_eq!(chunked(format!("{half}{half}1\r\n")), Err(BodyFault::TooLarge), "over it, by the size line");
        assert_eq!(chunked(format!("{half}{half}1\r")), Ok(None));
        assert_eq!(chunked("ffffffffffffffff\r\n"), Err(BodyFault::TooLarge));
        assert_eq!(chunked(format!("{half}ffffffffffffffff\r\n")), Err(BodyFault::TooLarge));
    }

    #[test]
    fn a_refused_body_can_be_skipped_from_where_it_was_refused() {
        let refused = format!("41\r\n{}\r\n0\r\n\r\n", "x".repeat(65));
        for (framing, bytes) in [(Framing::Chunked, refused.as_bytes()), (Framing::Length(65), &[b'x'; 65][..])] {
            let mut decoder = BodyDecoder::new(framing);
            let input = [bytes, b"GET"].concat();
            assert_eq!(decoder.decode(&input, BYTES_MAX, &mut Vec::new()), Err(BodyFault::TooLarge));
            assert_eq!(decoder.skip(&input), Ok(BodyProgress { consumed: bytes.len(), done: true }));
        }
    }

    #[test]
    fn what_comes_along_with_content_is_bounded() {
        let extended = |bytes: usize| format!("1;{}\r\nx\r\n", "e".repeat(bytes - 1));
        let (half, max) = (usize::from(EXTENSION_BYTES_MAX) / 2, usize::from(TRAILER_BYTES_MAX));
        let whole = |bytes: &str| in_pieces(Framing::Chunked, bytes.as_bytes(), [], BYTES_MAX);
        let at = format!("{}{}0\r\n\r\n", extended(half), extended(half));
        assert!(matches!(whole(&at), Ok(Some(_))), "extensions at the bound, over two chunks");
        let over = format!("{}{}", extended(half), extended(half + 1));
        assert!(matches!(whole(&over), Err(BodyFault::Malformed(_))), "over it");

        // A trailer of name, colon, value and LF.
        let trailer = |bytes: usize| format!("0\r\nX:{}\r\n", "t".repeat(bytes - 3));
        assert!(matches!(whole(&format!("{}\r\n", trailer(max))), Ok(Some(_))), "trailers at the bound");
        assert!(matches!(whole(&trailer(max + 1)), Err(BodyFault::Malformed(_))), "over it");
    }

    proptest! {
        #[test]
        fn encoded_chunks_decode_to_their_content_at_any_cuts(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..8),
            mut cuts in proptest::collection::vec(0_usize..400, 0..8),
        ) {
            let mut bytes = Vec::new();
            for chunk in &chunks {
                StreamFraming::Chunked.encode(&mut bytes, chunk);
            }
            bytes.extend_from_slice(LAST_CHUNK);
            let end = bytes.len();
            bytes.extend_from_slice(b"GET / HTTP/1.1\r\n");
            cuts.iter_mut().for_each(|cut| *cut %= bytes.len());
            cuts.sort_unstable();
            prop_assert_eq!(in_pieces(Framing::Chunked, &bytes, cuts, usize::MAX), Ok(Some((chunks.concat(), end))));
        }

        #[test]
        fn no_bytes_panic_and_no_cutting_matters(bytes in "(0|1|5|[0-9a-f]{1,3}|\r\n|\r\n|\r\n|\n|;|X: y|[ -~]{0,5}|\\PC){0,12}") {
            let _ = chunked(bytes);
        }
    }
}
