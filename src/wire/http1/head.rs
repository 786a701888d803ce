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
//! A head may arrive in any number of pieces: [`HeadSearch`] remembers what it has seen, so that a head costs time linear
//! in its length however it is cut, and what is decided does not depend on the cuts. Faults of the lines are found as soon
//! as the line is complete.
//! Invariant: `start ≤ checked ≤ line_start ≤ scanned ≤ input length`.

use std::mem::MaybeUninit;

use memchr::memchr2;

use crate::limits::{HEADER_FIELDS_MAX, Limits};
use crate::wire::Decoded;

/// HTTP versions the relay speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: no chunked responses, closed after the answer unless kept alive by request.
    Http10,
    /// HTTP/1.1.
    Http11,
}

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

/// Why bytes are no request head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadFault {
    /// A rule of HTTP/1.1 is broken; the text names it. 400.
    Malformed(&'static str),
    /// A well-formed request line of another HTTP version. 505.
    Version,
    /// The request line alone is over the limit. 414.
    UriTooLong,
    /// The head is over the limit, in bytes or in fields. 431.
    HeadTooLarge,
}

/// Bounds of one head. The number of fields is bounded by [`HEADER_FIELDS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes from the first to the end of the blank line, an empty line in front included.
    pub head_bytes_max: usize,
}

impl From<&Limits> for HeadLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            head_bytes_max: limits.head_bytes_max,
        }
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
        self.fields
            .iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| *v)
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
        let (Some(method), Some(target), Some(minor)) =
            (request.method, request.path, request.version)
        else {
            return Err(HeadFault::Malformed("incomplete request line"));
        };
        if !is_target(method, target) {
            return Err(HeadFault::Malformed(
                "request target is not in origin-form or absolute-form",
            ));
        }
        let version = if minor == 0 {
            Version::Http10
        } else {
            Version::Http11
        };
        let mut facts = FieldFacts::default();
        let mut fields = Vec::with_capacity(request.headers.len());
        for header in request.headers.iter() {
            let value = header.value.trim_ascii();
            facts.note(header.name, value)?;
            fields.push((header.name, value));
        }
        let http11 = version == Version::Http11;
        if http11 && !facts.host {
            return Err(HeadFault::Malformed("missing Host"));
        }
        Ok(Self {
            method,
            target,
            version,
            framing: facts.framing(version)?,
            keep_alive: !facts.close && (http11 || facts.keep_alive),
            // RFC 9110 §10.1.1: an expectation of an HTTP/1.0 client is ignored.
            expect_continue: http11 && facts.expect_continue,
            expect_other: http11 && facts.expect_other,
            fields,
        })
    }
}

/// Decodes the head that `bytes` begin with. For heads that may arrive in pieces see [`HeadSearch`].
#[must_use]
pub fn decode_head<'a>(
    bytes: &'a [u8],
    limits: &HeadLimits,
) -> Decoded<RequestHead<'a>, HeadFault> {
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
enum Lines {
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
    pub fn decode<'a>(
        &mut self,
        bytes: &'a [u8],
        limits: &HeadLimits,
    ) -> Decoded<RequestHead<'a>, HeadFault> {
        // Another protocol (TLS, mostly) is refused at its first byte instead of being waited for.
        if bytes
            .first()
            .is_some_and(|&b| !is_tchar(b) && b != b'\r' && b != b'\n')
        {
            return Decoded::Invalid(HeadFault::Malformed("method is not a token"));
        }
        let window = bytes.get(..limits.head_bytes_max).unwrap_or(bytes);
        let fault = match self.search(window) {
            Lines::Complete => {
                let consumed = self.line_start;
                let lines = window.get(self.start..consumed).unwrap_or_default();
                *self = Self::default();
                return match RequestHead::from_lines(lines) {
                    Ok(value) => Decoded::Done { value, consumed },
                    Err(fault) => Decoded::Invalid(fault),
                };
            }
            Lines::Fault(fault) => Some(fault),
            Lines::Incomplete if window.len() < limits.head_bytes_max => None,
            Lines::Incomplete if self.lines == 0 => Some(HeadFault::UriTooLong),
            Lines::Incomplete => Some(HeadFault::HeadTooLarge),
        };
        // The first fault in the order of the bytes is the one that counts, whichever of the two finds it.
        match self.check(window).err().or(fault) {
            Some(fault) => Decoded::Invalid(fault),
            None => Decoded::Need,
        }
    }

    /// Goes on from line to line until the blank one, the end of the window or a fault.
    fn search(&mut self, window: &[u8]) -> Lines {
        while let Some(found) = window
            .get(self.scanned..)
            .and_then(|rest| memchr2(b'\r', b'\n', rest))
        {
            self.scanned += found;
            if window.get(self.scanned) == Some(&b'\n') {
                return Lines::Fault(HeadFault::Malformed("a line of the head ends in a bare LF"));
            }
            match window.get(self.scanned + 1) {
                None => return Lines::Incomplete,
                Some(b'\n') => {}
                Some(_) => return Lines::Fault(HeadFault::Malformed("a bare CR in the head")),
            }
            let next_line = self.scanned + 2;
            if self.line_start < self.scanned {
                let first = window.get(self.line_start);
                if self.lines > 0 && matches!(first, Some(b' ' | b'\t')) {
                    return Lines::Fault(HeadFault::Malformed(
                        "a field line begins with white space",
                    ));
                }
                if self.lines > HEADER_FIELDS_MAX {
                    return Lines::Fault(HeadFault::HeadTooLarge);
                }
                self.lines += 1;
            } else if self.lines > 0 {
                self.line_start = next_line;
                return Lines::Complete;
            } else if self.start > 0 {
                return Lines::Fault(HeadFault::Malformed(
                    "more than one empty line before the request line",
                ));
            } else {
                self.start = next_line;
                self.checked = next_line;
            }
            self.line_start = next_line;
            self.scanned = next_line;
        }
        self.scanned = window.len();
        Lines::Incomplete
    }

    /// Reads the lines completed since the last call, each once, so that a broken line is refused before the head ends.
    fn check(&mut self, window: &[u8]) -> Result<(), HeadFault> {
        debug_assert!(
            self.start <= self.checked
                && self.checked <= self.line_start
                && self.line_start <= self.scanned
        );
        let lines = window
            .get(self.checked..self.line_start)
            .unwrap_or_default();
        if lines.is_empty() {
            return Ok(());
        }
        let result = if self.checked == self.start {
            let mut headers = [const { MaybeUninit::uninit() }; HEADER_FIELDS_MAX];
            httparse::Request::new(&mut [])
                .parse_with_uninit_headers(lines, &mut headers)
                .map(drop)
        } else {
            httparse::parse_headers(lines, &mut [httparse::EMPTY_HEADER; HEADER_FIELDS_MAX])
                .map(drop)
        };
        self.checked = self.line_start;
        result.map_err(|error| syntax_fault(error, lines))
    }
}

/// What the fields that frame a message say; each field is noted once.
#[derive(Debug, Default)]
struct FieldFacts {
    host: bool,
    content_length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expect_continue: bool,
    expect_other: bool,
}

impl FieldFacts {
    fn note(&mut self, name: &str, value: &[u8]) -> Result<(), HeadFault> {
        // The length alone tells most fields apart.
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                if std::mem::replace(&mut self.host, true) {
                    return Err(HeadFault::Malformed("repeated Host"));
                }
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                // RFC 9112 §6.3 would allow equal repetitions; nobody honest sends them.
                if self.content_length.is_some() {
                    return Err(HeadFault::Malformed("repeated Content-Length"));
                }
                let length = parse_length(value)
                    .ok_or(HeadFault::Malformed("Content-Length is not a length"))?;
                self.content_length = Some(length);
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                if std::mem::replace(&mut self.chunked, true)
                    || !value.eq_ignore_ascii_case(b"chunked")
                {
                    return Err(HeadFault::Malformed(
                        "Transfer-Encoding is not a single chunked",
                    ));
                }
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                for option in list(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            6 if name.eq_ignore_ascii_case("expect") => {
                for expectation in list(value) {
                    let is_continue = expectation.eq_ignore_ascii_case(b"100-continue");
                    self.expect_continue |= is_continue;
                    self.expect_other |= !is_continue;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn framing(&self, version: Version) -> Result<Framing, HeadFault> {
        match (self.chunked, self.content_length) {
            (true, Some(_)) => Err(HeadFault::Malformed(
                "Content-Length with Transfer-Encoding",
            )),
            // RFC 9112 §6.1: its framing is to be treated as faulty, as a hop may have passed it on unread.
            (true, None) if version == Version::Http10 => {
                Err(HeadFault::Malformed("Transfer-Encoding in HTTP/1.0"))
            }
            (true, None) => Ok(Framing::Chunked),
            (false, None | Some(0)) => Ok(Framing::None),
            (false, Some(length)) => Ok(Framing::Length(length)),
        }
    }
}

/// The elements of a comma-separated list (RFC 9110 §5.6.1), empty ones left out.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&b| b == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
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

/// Whether the target has a form of RFC 9112 §3.2 that a server without proxying takes.
fn is_target(method: &str, target: &str) -> bool {
    let absolute = |scheme: &str| {
        target
            .get(..scheme.len())
            .is_some_and(|s| s.eq_ignore_ascii_case(scheme))
            && target
                .get(scheme.len()..)
                .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#']))
    };
    target.starts_with('/')
        || (target == "*" && method == "OPTIONS")
        || absolute("http://")
        || absolute("https://")
}

fn is_tchar(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

fn syntax_fault(error: httparse::Error, lines: &[u8]) -> HeadFault {
    HeadFault::Malformed(match error {
        httparse::Error::TooManyHeaders => return HeadFault::HeadTooLarge,
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
    let (Some(_), Some(_), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let mut numbers = version
        .strip_prefix(b"HTTP/")
        .unwrap_or_default()
        .split(|&b| b == b'.');
    let is_number = |n: &[u8]| !n.is_empty() && n.iter().all(u8::is_ascii_digit);
    numbers.next().is_some_and(is_number)
        && numbers.next().is_none_or(is_number)
        && numbers.next().is_none()
}
