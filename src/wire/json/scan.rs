//! The strict check of one whole JSON text, in one pass and without recursion; at once, or sliced ([`SlicedScan`]) where the
//! text is so large that a pass would hold up everybody else.
//!
//! Every byte that is published goes through here, so it is written for speed: UTF-8 is checked ahead by `simdutf8`,
//! strings are skipped eight bytes at a time, and the open containers are bits of one `u128`, which is why the depth
//! bound is 128 and cannot be exceeded by construction.
//!
//! Strict means RFC 8259 to the letter, and beyond it: no byte order mark, at most 128 levels. Lone surrogate *escapes*
//! are legal JSON and pass; whoever unescapes decides.

use std::fmt;
use std::ops::Range;

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

/// Like [`scan()`], telling of every member of the outermost object on the way. `on_member` may have been called before a
/// fault is found.
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
    let mut scanner = Scanner::<_, false> { bytes: text, place: Place::BEGINNING, on_member, slice: Slice::default() };
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
struct Place {
    /// Next byte to look at; at most the end of the text.
    at: usize,
    /// Open containers, at most [`JSON_DEPTH_MAX`].
    depth: usize,
    /// Bit 0: whether the innermost open container is an object; bit 1: the one around it; and so on.
    objects: u128,
    /// The member of the outermost object that is being read.
    member: MemberSpan,
}

impl Place {
    const BEGINNING: Self = Self { at: 0, depth: 0, objects: 0, member: NO_MEMBER };
}

/// One pass over a text. `SLICED` ones may pause, the others pay nothing for it.
struct Scanner<'a, F, const SLICED: bool> {
    bytes: &'a [u8],
    place: Place,
    on_member: F,
    slice: Slice,
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

    /// Pauses if the slice ended in a run of bytes that began at `start`. A long one is noted, so that it is not walked again
    /// when the scan goes on from the token boundary before it.
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
struct Slice {
    stop: usize,
    /// Where a run begins, up to where it is known, and whether it holds escapes. At most a handful: what may stand between
    /// two boundaries is white space, a name, a colon and a value.
    runs: Vec<(usize, usize, bool)>,
}

impl Slice {
    /// How far the run that begins at `start` was walked.
    fn come_to(&self, start: usize) -> Option<(usize, bool)> {
        self.runs.iter().find(|(begun, ..)| *begun == start).map(|(_, at, escaped)| (*at, *escaped))
    }

    fn note(&mut self, start: usize, at: usize, escaped: bool) {
        self.runs.retain(|(begun, ..)| *begun != start);
        self.runs.push((start, at, escaped));
    }
}

/// What comes next in a [`SlicedScan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Bytes that have not been found to be UTF-8, from here on.
    Utf8(usize),
    Beginning,
    Value,
    BehindValue,
    Separator,
    End,
    Nothing,
}

/// [`scan_members`] in slices: the same answer, whatever the budgets. The text is to be the same each time.
#[derive(Debug)]
pub struct SlicedScan {
    next: Next,
    place: Place,
    slice: Slice,
    /// Members of the outermost object so far.
    members: Vec<MemberSpan>,
    kind: Kind,
    start: usize,
    end: usize,
}

impl Default for SlicedScan {
    fn default() -> Self {
        Self {
            next: Next::Utf8(0),
            place: Place::BEGINNING,
            slice: Slice::default(),
            members: Vec::new(),
            kind: Kind::Null,
            start: 0,
            end: 0,
        }
    }
}

impl SlicedScan {
    /// Scans on, `budget` bytes at most, of which what was looked at is taken. Answers whether the text is through.
    ///
    /// # Errors
    /// As [`scan()`].
    pub fn walk(&mut self, text: &[u8], budget: &mut usize) -> Result<bool, JsonFault> {
        if u32::try_from(text.len()).is_err() {
            return Err(JsonFault { kind: JsonFaultKind::TooLong, at: u32::MAX as usize });
        }
        while let Next::Utf8(from) = self.next {
            if *budget == 0 {
                return Ok(false);
            }
            self.next = check_utf8(text, from, budget)?;
        }
        if *budget == 0 {
            return Ok(false);
        }
        let before = self.slice.stop;
        self.slice.stop = before.saturating_add(*budget).min(text.len());
        let through = self.walk_grammar(text)?;
        let come = if through { text.len() } else { self.slice.stop };
        *budget = budget.saturating_sub(come.saturating_sub(before));
        Ok(through)
    }

    fn walk_grammar(&mut self, text: &[u8]) -> Result<bool, JsonFault> {
        let members = &mut self.members;
        let slice = std::mem::take(&mut self.slice);
        let mut scanner =
            Scanner::<_, true> { bytes: text, place: self.place, on_member: |member| members.push(member), slice };
        let result = loop {
            self.place = scanner.place;
            if self.next == Next::Nothing {
                break Ok(true);
            }
            if scanner.place.at >= scanner.slice.stop && scanner.place.at < text.len() {
                break Ok(false);
            }
            let step = match self.next {
                Next::Utf8(_) | Next::Beginning => scanner.begin().map(|(kind, start)| {
                    (self.kind, self.start) = (kind, start);
                    Next::Value
                }),
                Next::Value => scanner.value().map(|more| if more { Next::Value } else { Next::BehindValue }),
                Next::BehindValue if scanner.place.depth == 0 => {
                    self.end = scanner.place.at;
                    Ok(Next::End)
                }
                Next::BehindValue => {
                    scanner.tell();
                    Ok(Next::Separator)
                }
                Next::Separator => scanner.separator().map(|more| if more { Next::Value } else { Next::BehindValue }),
                Next::End | Next::Nothing => scanner.end().map(|()| Next::Nothing),
            };
            match step {
                Ok(next) => {
                    self.next = next;
                    scanner.slice.runs.clear();
                }
                Err(Halt::Pause) => break Ok(false),
                Err(Halt::Fault(fault)) => break Err(fault),
            }
        };
        self.slice = scanner.slice;
        result
    }

    /// What the value of a text that is through is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where the value of a text that is through stands.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// What a text was found to be that is through, and its outermost members.
    ///
    /// # Errors
    /// The text is another: it is no UTF-8.
    pub fn finish<'a>(&self, text: &'a [u8]) -> Result<(Document<'a>, &[MemberSpan]), JsonFault> {
        let value = text.get(self.start..self.end).unwrap_or_default();
        let Ok(text) = simdutf8::basic::from_utf8(value) else { return Err(invalid_utf8(text)) };
        Ok((Document { root: Value { kind: self.kind, text, start: self.start } }, &self.members))
    }
}

/// Checks a piece from `from` on, which ends with a character.
fn check_utf8(text: &[u8], from: usize, budget: &mut usize) -> Result<Next, JsonFault> {
    let mut end = from.saturating_add(budget.saturating_mul(UTF8_BYTES_PER_COST)).min(text.len());
    // Not inside a character, which has at most three bytes behind its first.
    for _ in 0..3 {
        if text.get(end).is_some_and(|byte| byte & 0xC0 == 0x80) && end > from + 1 {
            end -= 1;
        }
    }
    let piece = text.get(from..end).unwrap_or_default();
    if simdutf8::basic::from_utf8(piece).is_err() {
        return Err(invalid_utf8(text));
    }
    *budget = budget.saturating_sub(1 + piece.len() / UTF8_BYTES_PER_COST);
    Ok(if end == text.len() { Next::Beginning } else { Next::Utf8(end) })
}

/// Bytes checked to be UTF-8 at the price of one that is scanned.
const UTF8_BYTES_PER_COST: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind(text: &[u8]) -> JsonFaultKind {
        scan(text).unwrap_err().kind
    }

    #[test]
    fn takes_what_the_grammar_allows() {
        for text in [
            "{}",
            "[]",
            "\"\"",
            "0",
            "-0",
            "-0.0e-0",
            "1E+9",
            "1e400",
            "18446744073709551616",
            "1000000000000000000e0",
            "1234567890123456789012345678901234567890123456789012345678901234567890",
            "true",
            "false",
            "null",
            " \t\r\n[ 1 , { \"a\" : [ ] } ]\r\n",
            r#""\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00""#,
            r#""\ud800""#,
            r#"{"a":1,"a":2}"#,
            "\"\u{7f}\u{85}\u{2028}\u{feff}é€😀\"",
        ] {
            let document = scan(text.as_bytes()).unwrap();
            assert_eq!(document.root.text, text.trim_matches([' ', '\t', '\r', '\n']));
        }
    }

    #[test]
    fn names_the_rule_and_the_place() {
        for (text, message) in [
            (&b""[..], "no JSON value"),
            (b" \r\n", "no JSON value"),
            (b"\xEF\xBB\xBF{}", "byte order mark at byte 0"),
            (b" \xEF\xBB\xBF{}", "byte order mark at byte 1"),
            (b"[\xEF\xBB\xBF1]", "byte order mark at byte 1"),
            (b"{\"a\":\x001}", "NUL byte at byte 5"),
            (b"\"a\x00b\"", "NUL byte at byte 2"),
            (b"{}\x00", "NUL byte at byte 2"),
            (b"\"ab\xC3\"", "invalid UTF-8 at byte 3"),
            (b"\"\xED\xA0\x80\"", "invalid UTF-8 at byte 1"),
            (b"{}{}", "something behind the JSON value at byte 2"),
            (b"1 2", "something behind the JSON value at byte 2"),
            (b"{\"a\"", "unexpected end of text at byte 4"),
            (b"\"abcdefghijk", "unexpected end of text at byte 12"),
            (b"\"a\nb\"", "a control character must be escaped in a string at byte 2"),
            (b"{\"a\" 1}", "expected `:` at byte 5"),
            (b"{\"a\":1 \"b\"}", "expected `,` or `}` at byte 7"),
            (b"[1 2]", "expected `,` or `]` at byte 3"),
            (b"{a:1}", "expected a member name or `}` at byte 1"),
            (b"01", "a number may not begin with 0 at byte 1"),
        ] {
            assert_eq!(scan(text).unwrap_err().to_string(), message, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn refuses_what_lenient_parsers_take() {
        for text in [
            "{\"a\":1,}",
            "[1,]",
            "[,1]",
            "{,}",
            "[1}",
            "{\"a\":1]",
            "'a'",
            "{'a':1}",
            "+1",
            "1.",
            ".5",
            "-",
            "1e",
            "1e+",
            "0x10",
            "-01",
            "NaN",
            "Infinity",
            "-Infinity",
            "True",
            "nul",
            "tru",
            "truee",
            "\\u0041",
            "\"\\x41\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\\U0041\"",
            "\"\\",
            "[1]]",
            "}",
            "]",
            ":",
            ",",
            "/**/1",
            "1 // a",
            "\u{a0}1",
            "\u{2028}1",
            "{\"a\":}",
            "{\"a\"}",
            "{1:2}",
            "\"\t\"",
            "\u{c}1",
        ] {
            assert!(scan(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded_at_128_for_arrays_and_objects() {
        let arrays = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let objects = |depth: usize| format!("{}0{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        assert!(scan(arrays(128).as_bytes()).is_ok());
        assert_eq!(kind(arrays(129).as_bytes()), JsonFaultKind::TooDeep);
        assert!(scan(objects(128).as_bytes()).is_ok());
        assert_eq!(kind(objects(129).as_bytes()), JsonFaultKind::TooDeep);
        assert!(scan(format!("[{}]", ["[]"; 500].join(",")).as_bytes()).is_ok(), "breadth is no depth");
        let fault = scan(format!("{}0", "[".repeat(100_000)).as_bytes()).unwrap_err();
        assert_eq!(fault.to_string(), "nesting deeper than 128 at byte 128");
    }

    #[test]
    fn closing_brackets_match_their_own_at_every_depth() {
        // The stack of open containers is a shifted bit set: alternate kinds up to the bound.
        let open: String = (0..64).map(|_| "[{\"a\":").collect();
        let close: String = (0..64).map(|_| "}]").collect();
        assert!(scan(format!("{open}1{close}").as_bytes()).is_ok());
        let wrong = close.replacen("}]", "]}", 1);
        assert!(scan(format!("{open}1{wrong}").as_bytes()).is_err());
    }

    #[test]
    fn tells_of_outermost_members_only() {
        let text = br#" { "a\n" : {"x":1} , "b":"\t", "b":"c","d":[{"e":2}] } "#;
        let mut told = Vec::new();
        let document = scan_members(text, |member| told.push(member)).unwrap();
        let walked: Vec<_> = document.root.members().collect();
        assert_eq!(told.len(), walked.len());
        for (told, walked) in told.iter().zip(&walked) {
            assert_eq!(told.name_start as usize, walked.name_start);
            assert_eq!((told.name_end - told.name_start) as usize, walked.name.len());
            assert_eq!(told.value_start as usize..told.value_end as usize, walked.value.range());
            assert_eq!(told.kind, walked.value.kind);
            assert_eq!(told.name_escaped, walked.name.contains('\\'));
            let string = walked.value.raw_string();
            assert_eq!(told.value_escaped, string.is_some_and(|raw| raw.contains('\\')));
        }
        scan_members(b"[{\"a\":1}]", |_| panic!("an array has no members")).unwrap();
    }

    #[test]
    fn every_cut_of_a_document_is_refused() {
        let text = "{\"a\":[1,-2.5e3,\"x\\u00e9\\n€\",{\"b\":null}],\"c\":true}".as_bytes();
        assert!(scan(text).is_ok());
        for end in 0..text.len() {
            assert!(scan(&text[..end]).is_err(), "{end}");
        }
    }

    /// JSON-like noise: random bytes rarely get past the first token.
    fn noise() -> impl Strategy<Value = Vec<u8>> {
        let token = prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"a\":", "\\", "\\u", "\\ud83d", "\\u0041", "0", "1", "-",
            ".", "e", "+", "true", "null", " ", "      ", "\n", "\t", "\u{1}", "é", "😀", "12345678", "abcdefgh",
        ]);
        prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat().into_bytes())
    }

    proptest! {
        /// `IgnoredAny` checks the grammar without reading numbers or bounding depth. On purpose we refuse more: deeper
        /// nesting, which this noise cannot reach, and invalid UTF-8 in skipped strings, which it does not hold. Byte
        /// order marks and raw NUL are no JSON for it either.
        #[test]
        fn agrees_with_serde_json(text in noise()) {
            let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(&text).is_ok();
            prop_assert_eq!(scan(&text).is_ok(), theirs, "{}", text.escape_ascii());
        }

        #[test]
        fn slices_come_to_the_same(text in noise(), budget in 1_usize..9) {
            let mut members = Vec::new();
            let whole = scan_members(&text, |member| members.push(member));
            let mut scan = SlicedScan::default();
            let sliced = loop {
                let before = scan.slice.stop;
                let mut left = budget;
                match scan.walk(&text, &mut left) {
                    Ok(false) => prop_assert!(scan.slice.stop - before <= budget),
                    Ok(true) => break scan.finish(&text).map(|(document, members)| (document, members.to_vec())),
                    Err(fault) => break Err(fault),
                }
            };
            prop_assert_eq!(sliced, whole.map(|document| (document, members)), "{}", text.escape_ascii());
        }

        #[test]
        fn no_bytes_panic(text in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(document) = scan(&text) {
                prop_assert!(std::str::from_utf8(&text).is_ok());
                prop_assert!(document.root.range().end <= text.len());
            }
        }
    }
}
