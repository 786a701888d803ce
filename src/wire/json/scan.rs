//! The strict check of one whole JSON text, in one pass and without recursion; at once, or sliced ([`SlicedScan`])
//! where the text is so large that a pass would hold up everybody else.
//!
//! Every byte that is published goes through here, so it is written for speed: UTF-8 is checked ahead by `simdutf8`,
//! strings are skipped eight bytes at a time, and the open containers are bits of one `u128`, which is why the depth
//! bound is 128 and cannot be exceeded by construction.
//!
//! Strict means RFC 8259 to the letter, and beyond it: no byte order mark, at most 128 levels. Lone surrogate *escapes*
//! are legal JSON and pass; whoever unescapes decides.

mod sliced;

use std::fmt;

pub use sliced::SlicedScan;

use super::text::{skip_plain, skip_white_space};
use super::{Kind, Value};
use crate::limits::JSON_DEPTH_MAX;

const _: () = assert!(JSON_DEPTH_MAX == u128::BITS as usize, "the open containers are bits of a u128");

/// A text that is one JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a> {
    /// Its value; white space around it is not part of it.
    pub root: Value<'a>,
}

/// Why a text is not the JSON the relay takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonFault {
    /// The rule that is broken.
    pub kind: JsonFaultKind,
    /// Where, in bytes from the start of the text.
    pub at: usize,
}

/// The rules of [`JsonFault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonFaultKind {
    /// Nothing but white space.
    Empty,
    /// U+FEFF in front of a value.
    ByteOrderMark,
    /// A raw NUL byte.
    Nul,
    /// Not UTF-8.
    InvalidUtf8,
    /// More than [`JSON_DEPTH_MAX`] levels.
    TooDeep,
    /// The grammar; the text says what was expected or what may not stand here.
    Syntax(&'static str),
    /// Something other than white space behind the value.
    Trailing,
    /// Longer than offsets of 32 bits reach.
    TooLong,
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.kind {
            JsonFaultKind::Empty => f.write_str("no JSON value"),
            JsonFaultKind::ByteOrderMark => write!(f, "byte order mark at byte {at}"),
            JsonFaultKind::Nul => write!(f, "NUL byte at byte {at}"),
            JsonFaultKind::InvalidUtf8 => write!(f, "invalid UTF-8 at byte {at}"),
            JsonFaultKind::TooDeep => {
                write!(f, "nesting deeper than {JSON_DEPTH_MAX} at byte {at}")
            }
            JsonFaultKind::Syntax(rule) => write!(f, "{rule} at byte {at}"),
            JsonFaultKind::Trailing => write!(f, "something behind the JSON value at byte {at}"),
            JsonFaultKind::TooLong => write!(f, "text longer than {} bytes", u32::MAX),
        }
    }
}

impl std::error::Error for JsonFault {}

/// Where one member of the outermost object stands in the source: what a single pass can tell for free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberSpan {
    /// First byte of the name, behind its quote.
    pub name_start: u32,
    /// End of the name, at its closing quote.
    pub name_end: u32,
    /// First byte of the value.
    pub value_start: u32,
    /// End of the value.
    pub value_end: u32,
    /// What the value is.
    pub kind: Kind,
    /// Whether the name holds escapes.
    pub name_escaped: bool,
    /// Whether the value is a string that holds escapes.
    pub value_escaped: bool,
}

/// Checks one whole text.
///
/// # Errors
/// The first fault found; bytes that are no UTF-8 are found before any other.
pub fn scan(text: &[u8]) -> Result<Document<'_>, JsonFault> {
    scan_members(text, |_| {})
}

/// Like [`scan()`], telling of every member of the outermost object on the way. `on_member` may have been called before
/// a fault is found.
///
/// # Errors
/// As [`scan()`].
pub fn scan_members(text: &[u8], on_member: impl FnMut(MemberSpan)) -> Result<Document<'_>, JsonFault> {
    if u32::try_from(text.len()).is_err() {
        return Err(JsonFault { kind: JsonFaultKind::TooLong, at: u32::MAX as usize });
    }
    let utf8 = match simdutf8::basic::from_utf8(text) {
        Ok(utf8) => utf8,
        Err(_) => return Err(invalid_utf8(text)),
    };
    let mut scanner =
        Scanner::<_, false> { bytes: text, place: ScanPlace::BEGINNING, on_member, slice: ScanSlice::default() };
    let (kind, start, end) = match scanner.document() {
        Ok(document) => document,
        Err(Halt::Fault(fault)) => return Err(fault),
        // Only a slice has an end.
        Err(Halt::Pause) => return Err(scanner.fault_at(JsonFaultKind::Empty)),
    };
    // Both ends lie beside ASCII bytes, so the slice exists.
    let text = utf8.get(start..end).unwrap_or_default();
    Ok(Document { root: Value { kind, text, start } })
}

/// The slow second look that finds the place.
#[cold]
fn invalid_utf8(text: &[u8]) -> JsonFault {
    let at = std::str::from_utf8(text).err().map_or(0, |fault| fault.valid_up_to());
    JsonFault { kind: JsonFaultKind::InvalidUtf8, at }
}

const NO_MEMBER: MemberSpan = MemberSpan {
    name_start: 0,
    name_end: 0,
    value_start: 0,
    value_end: 0,
    kind: Kind::Null,
    name_escaped: false,
    value_escaped: false,
};

/// Why a scanner stops.
enum Halt {
    Fault(JsonFault),
    /// The slice is used up; the scan is to go on from the last token boundary.
    Pause,
}

/// How far a scan has come.
#[derive(Debug, Clone, Copy)]
struct ScanPlace {
    /// Next byte to look at; at most the end of the text.
    at: usize,
    /// Open containers, at most [`JSON_DEPTH_MAX`].
    depth: usize,
    /// Bit 0: whether the innermost open container is an object; bit 1: the one around it; and so on.
    objects: u128,
    /// The member of the outermost object that is being read.
    member: MemberSpan,
}

impl ScanPlace {
    const BEGINNING: Self = Self { at: 0, depth: 0, objects: 0, member: NO_MEMBER };
}

/// One pass over a text. `SLICED` ones may pause, the others pay nothing for it.
struct Scanner<'a, F, const SLICED: bool> {
    bytes: &'a [u8],
    place: ScanPlace,
    on_member: F,
    slice: ScanSlice,
}

impl<F: FnMut(MemberSpan), const SLICED: bool> Scanner<'_, F, SLICED> {
    /// One value with white space around it; answers its kind, start and end.
    fn document(&mut self) -> Result<(Kind, usize, usize), Halt> {
        let (kind, start) = self.begin()?;
        while self.value()? || self.after_value()? {}
        let end = self.place.at;
        self.end()?;
        Ok((kind, start, end))
    }

    /// Up to the first byte of the value.
    fn begin(&mut self) -> Result<(Kind, usize), Halt> {
        self.skip_white_space()?;
        if self.place.at == self.bytes.len() {
            return Err(self.fault(JsonFaultKind::Empty));
        }
        Ok((Kind::of(self.peek()).unwrap_or(Kind::Null), self.place.at))
    }

    /// Nothing but white space follows the value.
    fn end(&mut self) -> Result<(), Halt> {
        self.skip_white_space()?;
        match self.bytes.get(self.place.at) {
            None => Ok(()),
            Some(0) => Err(self.fault(JsonFaultKind::Nul)),
            Some(_) => Err(self.fault(JsonFaultKind::Trailing)),
        }
    }

    /// Reads a scalar or an empty container whole, or steps into a container. Answers whether a value comes next.
    #[inline]
    fn value(&mut self) -> Result<bool, Halt> {
        let first = self.peek();
        if self.place.depth == 1 {
            self.place.member.value_start = self.place.at as u32;
            self.place.member.kind = Kind::of(first).unwrap_or(Kind::Null);
            self.place.member.value_escaped = false;
        }
        match first {
            b'"' => {
                let escaped = self.string()?;
                if self.place.depth == 1 {
                    self.place.member.value_escaped = escaped;
                }
            }
            b'-' | b'0'..=b'9' => self.number()?,
            b'{' => return self.open(b'}'),
            b'[' => return self.open(b']'),
            b't' => self.literal(b"true")?,
            b'f' => self.literal(b"false")?,
            b'n' => self.literal(b"null")?,
            _ => return Err(self.unexpected("expected a value")),
        }
        Ok(false)
    }

    /// Steps into a container, or over it if it is empty.
    #[inline]
    fn open(&mut self, close: u8) -> Result<bool, Halt> {
        if self.place.depth == JSON_DEPTH_MAX {
            return Err(self.fault(JsonFaultKind::TooDeep));
        }
        self.place.at += 1;
        self.skip_white_space()?;
        if self.peek() == close {
            self.place.at += 1;
            return Ok(false);
        }
        self.place.depth += 1;
        let object = close == b'}';
        self.place.objects = self.place.objects << 1 | u128::from(object);
        if object {
            self.name("expected a member name or `}`")?;
        }
        Ok(true)
    }

    /// Behind a value: closes every container that ends here. Answers whether a value comes next.
    #[inline]
    fn after_value(&mut self) -> Result<bool, Halt> {
        while self.place.depth > 0 {
            self.tell();
            if self.separator()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Behind a value: if it is that of an outermost member, that member is read.
    #[inline]
    fn tell(&mut self) {
        if self.place.depth == 1 && self.place.objects & 1 == 1 {
            self.place.member.value_end = self.place.at as u32;
            (self.on_member)(self.place.member);
        }
    }

    /// A comma with what belongs to it, or the end of the innermost container. Answers whether a value comes next.
    #[inline]
    fn separator(&mut self) -> Result<bool, Halt> {
        let object = self.place.objects & 1 == 1;
        self.skip_white_space()?;
        match (self.peek(), object) {
            (b',', _) => {
                self.place.at += 1;
                self.skip_white_space()?;
                if object {
                    self.name("expected a member name")?;
                }
                Ok(true)
            }
            (b'}', true) | (b']', false) => {
                self.place.at += 1;
                self.place.depth -= 1;
                self.place.objects >>= 1;
                Ok(false)
            }
            (_, true) => Err(self.unexpected("expected `,` or `}`")),
            (_, false) => Err(self.unexpected("expected `,` or `]`")),
        }
    }

    /// A member's name and colon, up to the first byte of its value.
    #[inline]
    fn name(&mut self, expected: &'static str) -> Result<(), Halt> {
        if self.peek() != b'"' {
            return Err(self.unexpected(expected));
        }
        let start = self.place.at + 1;
        let escaped = self.string()?;
        if self.place.depth == 1 {
            self.place.member.name_start = start as u32;
            self.place.member.name_end = (self.place.at - 1) as u32;
            self.place.member.name_escaped = escaped;
        }
        self.skip_white_space()?;
        if self.peek() != b':' {
            return Err(self.unexpected("expected `:`"));
        }
        self.place.at += 1;
        self.skip_white_space()?;
        Ok(())
    }

    /// A string from its opening quote to behind its closing one. Answers whether it holds escapes.
    #[inline]
    fn string(&mut self) -> Result<bool, Halt> {
        let start = self.place.at;
        let mut escaped = false;
        self.place.at += 1;
        if SLICED {
            (self.place.at, escaped) = self.slice.come_to(start).unwrap_or((start + 1, false));
        }
        loop {
            self.place.at = skip_plain(self.within_slice(), self.place.at);
            self.pause_in(start, escaped)?;
            match self.peek() {
                b'"' => {
                    self.place.at += 1;
                    return Ok(escaped);
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(self.unexpected("a control character must be escaped in a string")),
            }
        }
    }

    /// An escape sequence, from its backslash.
    fn escape(&mut self) -> Result<(), Halt> {
        self.place.at += 1;
        match self.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.place.at += 1,
            b'u' => {
                self.place.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_ascii_hexdigit() {
                        return Err(self.unexpected("expected four hexadecimal digits"));
                    }
                    self.place.at += 1;
                }
            }
            _ => return Err(self.unexpected("no such escape")),
        }
        Ok(())
    }

    /// A number of any length; its value is never computed.
    #[inline]
    fn number(&mut self) -> Result<(), Halt> {
        if self.peek() == b'-' {
            self.place.at += 1;
        }
        if self.peek() == b'0' {
            self.place.at += 1;
            if self.peek().is_ascii_digit() {
                return Err(self.unexpected("a number may not begin with 0"));
            }
        } else {
            self.digits()?;
        }
        if self.peek() == b'.' {
            self.place.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.place.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.place.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    #[inline]
    fn digits(&mut self) -> Result<(), Halt> {
        if !self.peek().is_ascii_digit() {
            return Err(self.unexpected("expected a digit"));
        }
        let start = self.place.at;
        if SLICED {
            (self.place.at, _) = self.slice.come_to(start).unwrap_or((start, false));
        }
        while self.peek().is_ascii_digit() && !(SLICED && self.place.at >= self.slice.stop) {
            self.place.at += 1;
        }
        self.pause_in(start, false)
    }

    #[inline]
    fn literal(&mut self, word: &'static [u8]) -> Result<(), Halt> {
        if !self.bytes.get(self.place.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.unexpected("expected a value"));
        }
        self.place.at += word.len();
        Ok(())
    }

    /// The next byte; 0, which no rule expects, at the end. [`Scanner::unexpected`] tells the two apart.
    #[inline]
    fn peek(&self) -> u8 {
        self.bytes.get(self.place.at).copied().unwrap_or(0)
    }

    #[inline]
    fn skip_white_space(&mut self) -> Result<(), Halt> {
        let start = self.place.at;
        // The run that begins with this byte: a string or a number has one of its own.
        if SLICED && matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            (self.place.at, _) = self.slice.come_to(start).unwrap_or((start, false));
        }
        self.place.at = skip_white_space(self.within_slice(), self.place.at);
        self.pause_in(start, false)
    }

    /// The text, up to where this slice goes.
    #[inline]
    fn within_slice(&self) -> &[u8] {
        if SLICED { self.bytes.get(..self.slice.stop).unwrap_or(self.bytes) } else { self.bytes }
    }

    /// Pauses if the slice ended in a run of bytes that began at `start`. A long one is noted, so that it is not walked
    /// again when the scan goes on from the token boundary before it.
    #[inline]
    fn pause_in(&mut self, start: usize, escaped: bool) -> Result<(), Halt> {
        if SLICED {
            let at = self.place.at;
            if at - start >= NOTED_BYTES_MIN {
                self.slice.note(start, at, escaped);
            }
            if at >= self.slice.stop && at < self.bytes.len() {
                return Err(Halt::Pause);
            }
        }
        Ok(())
    }

    #[cold]
    fn fault(&self, kind: JsonFaultKind) -> Halt {
        Halt::Fault(self.fault_at(kind))
    }

    #[cold]
    fn fault_at(&self, kind: JsonFaultKind) -> JsonFault {
        JsonFault { kind, at: self.place.at }
    }

    /// The fault that the next byte is, where `rule` names what it breaks unless the byte itself says more.
    #[cold]
    fn unexpected(&self, rule: &'static str) -> Halt {
        let rest = self.bytes.get(self.place.at..).unwrap_or_default();
        self.fault(match rest {
            [] => JsonFaultKind::Syntax("unexpected end of text"),
            [0, ..] => JsonFaultKind::Nul,
            [0xEF, 0xBB, 0xBF, ..] => JsonFaultKind::ByteOrderMark,
            _ => JsonFaultKind::Syntax(rule),
        })
    }
}

/// Runs shorter than this are walked again after a pause rather than noted.
const NOTED_BYTES_MIN: usize = if cfg!(test) { 3 } else { 256 };

/// Up to where a scan may go now, and the long runs it has walked since the last token boundary.
#[derive(Debug, Default)]
struct ScanSlice {
    stop: usize,
    /// Where a run begins, up to where it is known, and whether it holds escapes. At most a handful: what may stand
    /// between two boundaries is white space, a name, a colon and a value.
    runs: Vec<(usize, usize, bool)>,
}

impl ScanSlice {
    /// How far the run that begins at `start` was walked.
    fn come_to(&self, start: usize) -> Option<(usize, bool)> {
        self.runs.iter().find(|(begun, ..)| *begun == start).map(|(_, at, escaped)| (*at, *escaped))
    }

    fn note(&mut self, start: usize, at: usize, escaped: bool) {
        self.runs.retain(|(begun, ..)| *begun != start);
        self.runs.push((start, at, escaped));
    }
}

#[cfg(test)]
mod tests;
