//! Request heads: from the first byte of a request to the blank line behind its fields (contract §4; RFC 9112 §2–§6).
//!
//! Owns the rules that decide whether a head is well formed, how its content is delimited and whether the connection
//! persists. Knows no route, no policy and no field beyond those that frame a message. `httparse` reads the request
//! line and the fields; the rules around it are stricter than it and than most servers, because every leniency in a
//! head is a way to make two hops see two different requests:
//!
//! - every line ends in CR LF; a bare CR or LF anywhere, folding and white space before a colon are faults;
//! - one empty line may precede the request line (RFC 9112 §2.2), a second one is a fault;
//! - one `Content-Length` of digits, or one `Transfer-Encoding: chunked` in HTTP/1.1, never both, never two;
//! - one `Host`, which only HTTP/1.0 may leave out; its value is not examined;
//! - the target is in origin-form or absolute-form, or `*` with OPTIONS.
//!
//! A head may arrive in any number of pieces: [`HeadSearch`] remembers what it has seen, so that a head costs time
//! linear in its length however it is cut, and what is decided does not depend on the cuts. Faults of the lines are
//! found as soon as the line is complete. Invariant: `start ≤ checked ≤ line_start ≤ scanned ≤ input length`.

use std::mem::MaybeUninit;

use memchr::memchr2;

use super::fault::{HeadFault, Version};
use super::framing::{FieldFacts, Framing};
use crate::limits::{HEADER_FIELDS_MAX, Limits};
use crate::wire::Decoded;

/// Bounds of one head. The number of fields is bounded by [`HEADER_FIELDS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes from the first to the end of the blank line, an empty line in front included.
    pub head_bytes_max: usize,
}

impl From<&Limits> for HeadLimits {
    fn from(limits: &Limits) -> Self {
        Self { head_bytes_max: limits.head_bytes_max }
    }
}

/// A request head, borrowed from the bytes it came in.
#[derive(Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// Method, case-sensitive.
    pub method: &'a str,
    /// Request target as sent; [`crate::wire::url`] takes it apart.
    pub target: &'a str,
    /// Version.
    pub version: Version,
    /// How its content is delimited.
    pub framing: Framing,
    /// Whether the connection may be kept after the answer.
    pub keep_alive: bool,
    /// `Expect: 100-continue` was sent, by an HTTP/1.1 client.
    pub expect_continue: bool,
    /// An expectation other than `100-continue` was sent, by an HTTP/1.1 client. 417.
    pub expect_other: bool,
    fields: Vec<(&'a str, &'a [u8])>,
}

impl<'a> RequestHead<'a> {
    /// The head that `bytes` begin with, if they hold a whole and well-formed one within the default limits.
    #[must_use]
    pub fn decode_whole(bytes: &'a [u8]) -> Option<Self> {
        match decode_head(bytes, &HeadLimits::from(&Limits::default())) {
            Decoded::Done { value, .. } => Some(value),
            Decoded::Need | Decoded::Invalid(_) => None,
        }
    }

    /// The first field of that name (any case), without surrounding white space.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields_named(name).next()
    }

    /// All fields of that name (any case), in order.
    pub fn fields_named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'a [u8]> + 's {
        self.fields.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| *v)
    }

    /// A head whose lines are whole and end in CR LF, the blank one last.
    fn from_lines(lines: &'a [u8]) -> Result<Self, HeadFault> {
        let mut headers = [const { MaybeUninit::uninit() }; HEADER_FIELDS_MAX];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(lines, &mut headers) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Err(HeadFault::Malformed("incomplete head")),
            Err(error) => return Err(syntax_fault(error, lines)),
        }
        let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
            return Err(HeadFault::Malformed("incomplete request line"));
        };
        if !is_target(method, target) {
            return Err(HeadFault::Malformed("request target is not in origin-form or absolute-form"));
        }
        let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
        let mut facts = FieldFacts::default();
        let mut fields = Vec::with_capacity(request.headers.len());
        for header in request.headers.iter() {
            let value = header.value.trim_ascii();
            facts.note(header.name, value)?;
            fields.push((header.name, value));
        }
        facts.require_host(version)?;
        // RFC 9110 §10.1.1: an expectation of an HTTP/1.0 client is ignored.
        let http11 = version == Version::Http11;
        Ok(Self {
            method,
            target,
            version,
            framing: facts.framing(version)?,
            keep_alive: facts.persists(version),
            expect_continue: http11 && facts.expect_continue,
            expect_other: http11 && facts.expect_other,
            fields,
        })
    }
}

/// Decodes the head that `bytes` begin with. For heads that may arrive in pieces see [`HeadSearch`].
#[must_use]
pub fn decode_head<'a>(bytes: &'a [u8], limits: &HeadLimits) -> Decoded<RequestHead<'a>, HeadFault> {
    HeadSearch::default().decode(bytes, limits)
}

/// What is known of a head that has not wholly arrived. One per connection; ready for the next head after each `Done`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeadSearch {
    /// Start of the request line: 2 behind an empty line, else 0.
    start: usize,
    /// Lines before this have been read by `httparse`.
    checked: usize,
    /// Start of the line that is not complete yet; once the blank line was found, the end of the head.
    line_start: usize,
    /// No unseen CR or LF lies before this.
    scanned: usize,
    /// Complete lines: the request line and fields.
    lines: usize,
}

/// What the lines of a head tell.
enum HeadLines {
    /// The blank line has come.
    Complete,
    /// It has not.
    Incomplete,
    /// The line at `line_start` is at fault.
    Fault(HeadFault),
}

impl HeadSearch {
    /// Decodes the head that `bytes` begin with: between two calls bytes are only added at the end. After `Invalid` the
    /// connection cannot be read further.
    pub fn decode<'a>(&mut self, bytes: &'a [u8], limits: &HeadLimits) -> Decoded<RequestHead<'a>, HeadFault> {
        // Another protocol (TLS, mostly) is refused at its first byte instead of being waited for.
        if bytes.first().is_some_and(|&b| !is_tchar(b) && b != b'\r' && b != b'\n') {
            return Decoded::Invalid(HeadFault::Malformed("method is not a token"));
        }
        let window = bytes.get(..limits.head_bytes_max).unwrap_or(bytes);
        let fault = match self.search(window) {
            HeadLines::Complete => {
                let consumed = self.line_start;
                let lines = window.get(self.start..consumed).unwrap_or_default();
                *self = Self::default();
                return match RequestHead::from_lines(lines) {
                    Ok(value) => Decoded::Done { value, consumed },
                    Err(fault) => Decoded::Invalid(fault),
                };
            }
            HeadLines::Fault(fault) => Some(fault),
            HeadLines::Incomplete if window.len() < limits.head_bytes_max => None,
            HeadLines::Incomplete if self.lines == 0 => Some(HeadFault::UriTooLong),
            HeadLines::Incomplete => Some(HeadFault::HeadTooLarge),
        };
        // The first fault in the order of the bytes is the one that counts, whichever of the two finds it.
        match self.check(window).err().or(fault) {
            Some(fault) => Decoded::Invalid(fault),
            None => Decoded::Need,
        }
    }

    /// Whether a request has begun: an empty line alone is none, for it may be the stray end of the request before it
    /// (RFC 9112 §2.2).
    #[must_use]
    pub const fn is_begun(&self) -> bool {
        self.scanned > self.start
    }

    /// Goes on from line to line until the blank one, the end of the window or a fault.
    fn search(&mut self, window: &[u8]) -> HeadLines {
        while let Some(found) = window.get(self.scanned..).and_then(|rest| memchr2(b'\r', b'\n', rest)) {
            self.scanned += found;
            if window.get(self.scanned) == Some(&b'\n') {
                return HeadLines::Fault(HeadFault::Malformed("a line of the head ends in a bare LF"));
            }
            match window.get(self.scanned + 1) {
                None => return HeadLines::Incomplete,
                Some(b'\n') => {}
                Some(_) => return HeadLines::Fault(HeadFault::Malformed("a bare CR in the head")),
            }
            let next_line = self.scanned + 2;
            if self.line_start < self.scanned {
                let first = window.get(self.line_start);
                if self.lines > 0 && matches!(first, Some(b' ' | b'\t')) {
                    return HeadLines::Fault(HeadFault::Malformed("a field line begins with white space"));
                }
                if self.lines > HEADER_FIELDS_MAX {
                    return HeadLines::Fault(HeadFault::TooManyFields);
                }
                self.lines += 1;
            } else if self.lines > 0 {
                self.line_start = next_line;
                return HeadLines::Complete;
            } else if self.start > 0 {
                return HeadLines::Fault(HeadFault::Malformed("more than one empty line before the request line"));
            } else {
                self.start = next_line;
                self.checked = next_line;
            }
            self.line_start = next_line;
            self.scanned = next_line;
        }
        self.scanned = window.len();
        HeadLines::Incomplete
    }

    /// Reads the lines completed since the last call, each once, so that a broken line is refused before the head ends.
    fn check(&mut self, window: &[u8]) -> Result<(), HeadFault> {
        debug_assert!(self.start <= self.checked && self.checked <= self.line_start && self.line_start <= self.scanned);
        let lines = window.get(self.checked..self.line_start).unwrap_or_default();
        if lines.is_empty() {
            return Ok(());
        }
        let result = if self.checked == self.start {
            let mut headers = [const { MaybeUninit::uninit() }; HEADER_FIELDS_MAX];
            httparse::Request::new(&mut []).parse_with_uninit_headers(lines, &mut headers).map(drop)
        } else {
            httparse::parse_headers(lines, &mut [httparse::EMPTY_HEADER; HEADER_FIELDS_MAX]).map(drop)
        };
        self.checked = self.line_start;
        result.map_err(|error| syntax_fault(error, lines))
    }
}

/// Whether the target has a form of RFC 9112 §3.2 that a server without proxying takes.
fn is_target(method: &str, target: &str) -> bool {
    let absolute = |scheme: &str| {
        target.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme))
            && target.get(scheme.len()..).is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#']))
    };
    target.starts_with('/') || (target == "*" && method == "OPTIONS") || absolute("http://") || absolute("https://")
}

/// Whether a byte may stand in a token (RFC 9110 §5.6.2).
pub(super) fn is_tchar(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

fn syntax_fault(error: httparse::Error, lines: &[u8]) -> HeadFault {
    HeadFault::Malformed(match error {
        httparse::Error::TooManyHeaders => return HeadFault::TooManyFields,
        httparse::Error::Version if names_version(lines) => return HeadFault::Version,
        httparse::Error::HeaderName => "a field line without a well-formed name and colon",
        httparse::Error::HeaderValue => "a control character in a field value",
        httparse::Error::NewLine => "a line of the head does not end in CR LF",
        httparse::Error::Version | httparse::Error::Token | httparse::Error::Status => {
            "the request line is not method, target and version"
        }
    })
}

/// Whether the first line has three parts, the last of which names some version of HTTP: `HTTP/2` does as well as
/// `HTTP/2.0`, for whoever sends it wants to know that it is the version.
fn names_version(lines: &[u8]) -> bool {
    let line = lines.split(|&b| b == b'\r').next().unwrap_or_default();
    let mut parts = line.split(|&b| b == b' ');
    let (Some(_), Some(_), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let mut numbers = version.strip_prefix(b"HTTP/").unwrap_or_default().split(|&b| b == b'.');
    let is_number = |n: &[u8]| !n.is_empty() && n.iter().all(u8::is_ascii_digit);
    numbers.next().is_some_and(is_number) && numbers.next().is_none_or(is_number) && numbers.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 400 };

    /// A decoded head by value, so that outcomes of different buffers compare.
    #[derive(Debug, PartialEq)]
    enum Outcome {
        Head { line: String, framing: Framing, keep_alive: bool, expect: (bool, bool), fields: String, consumed: usize },
        Need,
        Fault(HeadFault),
    }

    fn outcome(decoded: Decoded<RequestHead<'_>, HeadFault>) -> Outcome {
        match decoded {
            Decoded::Done { value, consumed } => Outcome::Head {
                line: format!("{} {} {:?}", value.method, value.target, value.version),
                framing: value.framing,
                keep_alive: value.keep_alive,
                expect: (value.expect_continue, value.expect_other),
                fields: value
                    .fields
                    .iter()
                    .map(|(name, value)| format!("{name}={};", String::from_utf8_lossy(value)))
                    .collect(),
                consumed,
            },
            Decoded::Need => Outcome::Need,
            Decoded::Invalid(fault) => Outcome::Fault(fault),
        }
    }

    fn in_one_piece(bytes: &[u8], limits: &HeadLimits) -> Outcome {
        outcome(decode_head(bytes, limits))
    }

    /// As if the bytes had come in pieces that end at `cuts`; whatever is decided before the last piece stands.
    fn in_pieces(bytes: &[u8], cuts: impl IntoIterator<Item = usize>, limits: &HeadLimits) -> Outcome {
        let mut search = HeadSearch::default();
        for cut in cuts {
            match outcome(search.decode(&bytes[..cut], limits)) {
                Outcome::Need => {}
                decided => return decided,
            }
        }
        outcome(search.decode(bytes, limits))
    }

    /// The outcome, after checking that no cutting changes it.
    fn decode(bytes: impl AsRef<[u8]>) -> Outcome {
        let bytes = bytes.as_ref();
        let whole = in_one_piece(bytes, &LIMITS);
        for cut in 0..bytes.len() {
            assert_eq!(in_pieces(bytes, [cut], &LIMITS), whole, "cut at {cut}: {:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(in_pieces(bytes, 0..bytes.len(), &LIMITS), whole, "dribbled: {:?}", String::from_utf8_lossy(bytes));
        whole
    }

    fn is_malformed(bytes: impl AsRef<[u8]>) -> bool {
        matches!(decode(bytes), Outcome::Fault(HeadFault::Malformed(_)))
    }

    #[test]
    fn a_head_yields_its_parts_and_leaves_what_follows() {
        let bytes =
            b"POST /events?x=%20 HTTP/1.1\r\nHost: a\r\nContent-Length:  5 \t\r\nX-Empty:\r\nx-b: \xe9\r\n\r\nhello";
        let Decoded::Done { value: head, consumed } = decode_head(bytes, &LIMITS) else { panic!("no head") };
        assert_eq!((head.method, head.target, head.version), ("POST", "/events?x=%20", Version::Http11));
        assert_eq!((head.framing, head.keep_alive), (Framing::Length(5), true));
        assert_eq!(&bytes[consumed..], b"hello");
        assert_eq!(head.field("HOST"), Some(&b"a"[..]));
        assert_eq!(head.field("x-empty"), Some(&b""[..]));
        assert_eq!(head.field("X-B"), Some(&b"\xe9"[..]));
        assert_eq!(head.field("absent"), None);
        assert!(matches!(decode(bytes), Outcome::Head { .. }));
    }

    #[test]
    fn repeated_fields_keep_their_order() {
        let head = RequestHead::decode_whole(b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\nx: 2\r\n\r\n").unwrap();
        assert_eq!(head.fields_named("X").collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(head.field("x"), Some(&b"1"[..]));
    }

    #[test]
    fn one_search_reads_head_after_head() {
        let mut search = HeadSearch::default();
        let bytes = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
        let Decoded::Done { value, consumed } = search.decode(bytes, &LIMITS) else { panic!("no head") };
        assert_eq!(value.target, "/1");
        let Decoded::Done { value, .. } = search.decode(&bytes[consumed..], &LIMITS) else { panic!("no second head") };
        assert_eq!(value.target, "/2");
    }

    #[test]
    fn every_line_ends_in_cr_lf() {
        // RFC 9112 §2.2 lets a recipient take a bare LF; then two hops may see two requests.
        for bytes in [
            "GET /x\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/2.0\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
            "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\rHost: a\r\r",
            "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: r\r\nX-Abc: \rxTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\rX",
        ] {
            assert!(is_malformed(bytes), "{bytes:?}");
        }
    }

    #[test]
    fn one_empty_line_may_precede_the_request() {
        // RFC 9112 §2.2
        let Outcome::Head { consumed, .. } = decode("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n") else { panic!("no head") };
        assert_eq!(consumed, 29);
        assert!(is_malformed("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    }

    #[test]
    fn request_lines_have_exactly_three_parts() {
        // RFC 9112 §3
        for line in [
            "GET /",
            "GET  / HTTP/1.1",
            "GET /  HTTP/1.1",
            "GET / HTTP/1.1 ",
            " GET / HTTP/1.1",
            "GET\t/ HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET /a b HTTP/2.0",
            "GET / http/1.1",
            "GET / HTTP/1.1x",
            "GET / HTTP/x.1",
            "GET / HTTP/",
            "GET / HTTPS/1.1",
            "GET / HTTP/1.1.1",
            "GET HTTP/1.1",
            "/ HTTP/1.1",
            "G@T / HTTP/1.1",
            "GET /\0 HTTP/1.1",
            "GET /\x7f HTTP/1.1",
            "GET",
            "\x16\x03\x01",
        ] {
            assert!(is_malformed(format!("{line}\r\nHost: a\r\n\r\n")), "{line:?}");
        }
        assert!(is_malformed(b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n"), "a target that is no UTF-8");
    }

    #[test]
    fn other_versions_are_told_apart_from_nonsense() {
        for version in ["HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "HTTP/2", "HTTP/3", "HTTP/11.1"] {
            assert_eq!(
                decode(format!("GET / {version}\r\nHost: a\r\n\r\n")),
                Outcome::Fault(HeadFault::Version),
                "{version}"
            );
        }
        assert_eq!(decode("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Outcome::Fault(HeadFault::Version));
    }

    #[test]
    fn targets_are_of_origin_form_or_absolute_form() {
        // RFC 9112 §3.2
        for (method, target, good) in [
            ("GET", "/", true),
            ("GET", "/stream?filter={\"x\":\"é\"}", true),
            ("GET", "http://relay:8787/stream?live=0", true),
            ("GET", "HTTPS://relay", true),
            ("OPTIONS", "*", true),
            ("GET", "*", false),
            ("OPTIONS", "**", false),
            ("GET", "events", false),
            ("GET", "http://", false),
            ("GET", "http:///events", false),
            ("GET", "ftp://relay/", false),
            ("CONNECT", "relay:80", false),
        ] {
            let outcome = decode(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(matches!(outcome, Outcome::Head { .. }), good, "{method} {target}: {outcome:?}");
        }
    }

    #[test]
    fn field_lines_are_well_formed() {
        // RFC 9112 §5.1 (white space before the colon), §5.2 (folding), RFC 9110 §5.5 (values), §5.6.2 (names)
        for line in [
            "Transfer-Encoding : chunked",
            "X\t: a",
            "X: a\r\n b",
            "Transfer-Encoding:\r\n chunked",
            "Transfer-Encoding:\r\n\tchunked",
            " X: a",
            "\tX: a",
            "X",
            ": a",
            "X\0: a",
            "X(y): a",
            "X y: a",
            "é: a",
            "X: a\0b",
            "X: a\x0bb",
            "X: a\x1b[0m",
            "X: \x7f",
        ] {
            assert!(is_malformed(format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n")), "{line:?}");
        }
        assert!(is_malformed("GET / HTTP/1.1\r\n Content-Length: 5\r\nHost: a\r\n\r\n"), "white space first");
    }

    #[test]
    fn a_broken_line_is_refused_before_the_head_ends() {
        for bytes in [
            "GET / HTTP/1.1\r\nHost : a\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n",
            "GET /\r\n",
            "GET / HTTP/1.1\n",
            "GET / HTTP/1.1\r\nHost: a\r\n X: b\r\n",
            "\x16",
        ] {
            assert!(is_malformed(bytes), "{bytes:?}");
        }
        assert_eq!(decode("GET / HTTP/2.0\r\n"), Outcome::Fault(HeadFault::Version));
        assert_eq!(decode("GET / HTTP/1.1\r\nHost: a\r\n"), Outcome::Need);
    }

    #[test]
    fn the_size_of_a_head_is_bounded() {
        let head = |padding: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(padding));
        let padding = LIMITS.head_bytes_max - head(0).len();
        assert!(matches!(decode(head(padding)), Outcome::Head { .. }), "at the limit");
        assert_eq!(decode(head(padding + 1)), Outcome::Fault(HeadFault::HeadTooLarge), "over it");
        assert_eq!(decode(&head(padding + 1)[..LIMITS.head_bytes_max]), Outcome::Fault(HeadFault::HeadTooLarge));
        assert_eq!(decode(&head(padding + 1)[..LIMITS.head_bytes_max - 1]), Outcome::Need);

        let line = |padding: usize| format!("GET /{} HTTP/1.1\r\n", "x".repeat(padding));
        let padding = LIMITS.head_bytes_max - line(0).len();
        assert_eq!(decode(line(padding)), Outcome::Fault(HeadFault::HeadTooLarge), "a line that fills the head");
        assert_eq!(decode(line(padding + 1)), Outcome::Fault(HeadFault::UriTooLong));
        assert_eq!(decode("x".repeat(LIMITS.head_bytes_max)), Outcome::Fault(HeadFault::UriTooLong));
    }

    #[test]
    fn the_number_of_fields_is_bounded() {
        let limits = HeadLimits { head_bytes_max: 4096 };
        let head = |fields: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "X: a\r\n".repeat(fields));
        assert!(matches!(in_one_piece(head(HEADER_FIELDS_MAX).as_bytes(), &limits), Outcome::Head { .. }));
        let over = head(HEADER_FIELDS_MAX + 1);
        assert_eq!(in_one_piece(over.as_bytes(), &limits), Outcome::Fault(HeadFault::TooManyFields));
        assert_eq!(in_pieces(over.as_bytes(), 0..over.len(), &limits), Outcome::Fault(HeadFault::TooManyFields));
    }

    /// What heads, good and bad, are made of.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        const WORDS: [&[u8]; 12] = [
            b"GET / HTTP/1.1\r\nHost: a\r\n",
            b"POST /x HTTP/1.0\r\n",
            b"\r\n",
            b"\r\n\r\n",
            b"\n",
            b"\r",
            b" ",
            b"Host: a\r\n",
            b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close, x\r\n",
            b"Expect: 100-continue\r\n",
        ];
        prop_oneof![
            6 => proptest::sample::select(&WORDS[..]).prop_map(<[u8]>::to_vec),
            1 => "[ -~]{0,150}".prop_map(String::into_bytes),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ]
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_no_cutting_matters(pieces in proptest::collection::vec(piece(), 0..10)) {
            decode(pieces.concat());
        }
    }
}
