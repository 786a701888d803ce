//! Strings, numbers and white space of JSON text: the small operations everything else is made of.
//!
//! The `skip_*` and `*_end` functions take positions in checked text and stay inside it whatever they meet.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// Eight bytes of the same value.
const fn splat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

const HIGH_BITS: u64 = splat(0x80);

/// Marks the high bit of every byte that is zero; above the first one, marks may be false.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(splat(0x01)) & !word & HIGH_BITS
}

/// The first position from `at` on whose byte may not stand for itself in a string: a quote, a backslash or a control
/// character; the end of `bytes` if there is none.
#[inline]
pub(super) fn skip_plain(bytes: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        let control = word.wrapping_sub(splat(0x20)) & !word & HIGH_BITS;
        let special = zero_bytes(word ^ splat(b'"')) | zero_bytes(word ^ splat(b'\\')) | control;
        if special != 0 {
            return at + (special.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|&byte| !matches!(byte, b'"' | b'\\' | 0..0x20)) {
        at += 1;
    }
    at
}

/// The first position from `at` on that holds no white space.
#[inline]
#[must_use]
pub fn skip_white_space(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// Behind the closing quote of the string whose inside begins at `at`.
#[inline]
#[must_use]
pub fn string_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = skip_plain(bytes, at);
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The end of the value that begins at `at`.
pub(super) fn value_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut walk = ValueWalk::from(at);
    walk.go_on(bytes, usize::MAX).then_some(walk.at)
}

/// A walk over one value of checked text, in slices.
#[derive(Debug, Clone, Copy)]
pub struct ValueWalk {
    at: usize,
    depth: usize,
}

impl ValueWalk {
    /// Of the value that begins at `at`.
    #[must_use]
    pub const fn from(at: usize) -> Self {
        Self { at, depth: 0 }
    }

    /// How far it has come; in the end, where the value ends.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Walks on for some `bytes`, and to the end of a string that it comes to. Whether the value has ended; where there
    /// is none, it never does, and the text is at its end.
    pub fn go_on(&mut self, text: &[u8], bytes: usize) -> bool {
        let stop = self.at.saturating_add(bytes);
        while self.at < stop {
            let Some(byte) = text.get(self.at) else { return false };
            match byte {
                b'"' => self.at = string_end(text, self.at + 1).unwrap_or(text.len()),
                b'{' | b'[' => {
                    self.depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    let Some(depth) = self.depth.checked_sub(1) else {
                        self.at = text.len();
                        return false;
                    };
                    self.depth = depth;
                    self.at += 1;
                }
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                _ => self.at = scalar_end(text, self.at),
            }
            if self.depth == 0 {
                return true;
            }
        }
        false
    }
}

/// The end of the number or literal that `at` stands in.
fn scalar_end(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| {
        !matches!(byte, b',' | b':' | b'}' | b']' | b'"' | b'{' | b'[' | b' ' | b'\t' | b'\n' | b'\r')
    }) {
        at += 1;
    }
    at
}

/// Half of a surrogate pair stands alone in an escape: legal JSON, but no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoneSurrogate;

/// The text a string stands for, from its inside as written. Borrows unless there are escapes.
///
/// # Errors
/// [`LoneSurrogate`], which no Rust string can hold.
pub fn unescape(raw: &str) -> Result<Cow<'_, str>, LoneSurrogate> {
    if memchr(b'\\', raw.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(raw));
    }
    let mut text = String::with_capacity(raw.len());
    unescape_into(raw, &mut text)?;
    Ok(Cow::Owned(text))
}

/// Like [`unescape`], appending to `out`. On an error `out` may have grown by a part.
///
/// # Errors
/// As [`unescape`].
pub fn unescape_into(raw: &str, out: &mut String) -> Result<(), LoneSurrogate> {
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut characters = escape.chars();
        let character = match characters.next() {
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let (character, behind) = code_point(characters.as_str())?;
                out.push(character);
                rest = behind;
                continue;
            }
            // Quote, backslash and slash stand for themselves; checked text holds no other.
            Some(other) => other,
            None => break,
        };
        out.push(character);
        rest = characters.as_str();
    }
    out.push_str(rest);
    Ok(())
}

/// The character of a `\u` escape, from its first digit, with the second half of a pair; and what follows.
fn code_point(digits: &str) -> Result<(char, &str), LoneSurrogate> {
    let (first, rest) = code_unit(digits).ok_or(LoneSurrogate)?;
    if let Some(character) = char::from_u32(first) {
        return Ok((character, rest));
    }
    let (second, rest) = rest.strip_prefix("\\u").and_then(code_unit).ok_or(LoneSurrogate)?;
    if first >= 0xDC00 || !(0xDC00..0xE000).contains(&second) {
        return Err(LoneSurrogate);
    }
    let scalar = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    char::from_u32(scalar).map(|character| (character, rest)).ok_or(LoneSurrogate)
}

fn code_unit(digits: &str) -> Option<(u32, &str)> {
    let (unit, rest) = digits.split_at_checked(4)?;
    Some((u32::from_str_radix(unit, 16).ok()?, rest))
}

/// A number's exact value, if it is written without fraction and exponent and lies in −2^63 … 2^63−1. The text is that
/// of a checked number, which has no plus sign and no leading zero.
#[must_use]
pub fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Appends a string with its quotes, escaping what must be.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    out.push(b'"');
    loop {
        let (plain, special) = rest.split_at(skip_plain(rest, 0));
        out.extend_from_slice(plain);
        let Some((&byte, behind)) = special.split_first() else {
            break;
        };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 0xF)]);
            }
        }
        rest = behind;
    }
    out.push(b'"');
}

/// Whether checked text holds a CR or LF. Strings cannot hold a raw one, so it stands between tokens.
#[must_use]
pub fn has_line_break(text: &[u8]) -> bool {
    memchr2(b'\r', b'\n', text).is_some()
}

/// Appends checked text without the white space between its tokens.
pub fn compact(text: &[u8], out: &mut Vec<u8>) {
    compact_some(text, 0, usize::MAX, out);
}

/// Like [`compact`], from `at` on, which is 0 or an earlier answer, for some `bytes`, and to the end of a string that
/// it comes to. Answers up to where.
pub fn compact_some(text: &[u8], at: usize, bytes: usize, out: &mut Vec<u8>) -> usize {
    let some = text.get(..at.saturating_add(bytes)).unwrap_or(text);
    let mut kept = skip_white_space(some, at);
    let mut at = kept;
    while let Some(byte) = some.get(at) {
        match byte {
            b'"' => at = string_end(text, at + 1).unwrap_or(text.len()),
            b' ' | b'\t' | b'\n' | b'\r' => {
                out.extend_from_slice(some.get(kept..at).unwrap_or_default());
                kept = skip_white_space(some, at);
                at = kept;
            }
            _ => at += 1,
        }
    }
    out.extend_from_slice(text.get(kept..at).unwrap_or_default());
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn special_bytes_are_found_at_every_alignment() {
        for special in (0..0x20).chain([b'"', b'\\']) {
            for length in 0..40 {
                for place in 0..length {
                    let mut bytes = vec![b'a'; length];
                    bytes[place] = special;
                    assert_eq!(skip_plain(&bytes, 0), place);
                    assert_eq!(skip_plain(&bytes, place), place);
                    assert_eq!(skip_plain(&bytes, place + 1), length);
                }
            }
        }
        // What surrounds a special byte in value must not be taken for one.
        let plain: Vec<u8> = (0x20..=0xFF).filter(|byte| !matches!(byte, b'"' | b'\\')).collect();
        assert_eq!(skip_plain(&plain, 0), plain.len());
    }

    #[test]
    fn unescapes_every_escape() {
        assert!(matches!(unescape("plain é"), Ok(Cow::Borrowed("plain é"))));
        assert_eq!(unescape(r#"\"\\\/\b\f\n\r\t"#).unwrap(), "\"\\/\u{8}\u{c}\n\r\t");
        assert_eq!(unescape(r"a\u00e9\u20AC\ud83d\ude00z\u0000").unwrap(), "aé€😀z\0");
        assert_eq!(unescape(r"\udbff\udfff").unwrap(), "\u{10FFFF}");
    }

    #[test]
    fn lone_surrogates_are_no_text() {
        for raw in [r"\ud800", r"\udc00", r"\ud800\ud800", r"\ud800x", r"\ud800\n", r"\udc00\ud800", r"\ud800\u0041"] {
            assert_eq!(unescape(raw), Err(LoneSurrogate), "{raw}");
        }
    }

    #[test]
    fn unescaping_unchecked_text_does_not_panic() {
        for raw in ["\\", "\\u", "\\u12", "\\u12é", "\\q", "\\ud800\\", "\\ud800\\u", "\\ué000"] {
            let _ = unescape(raw);
        }
    }

    #[test]
    fn integers_are_exact_or_nothing() {
        assert_eq!(integer("9007199254740993"), Some(9_007_199_254_740_993));
        assert_eq!(integer("9223372036854775807"), Some(i64::MAX));
        assert_eq!(integer("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer("-0"), Some(0));
        for text in ["9223372036854775808", "-9223372036854775809", "1.0", "1e2", "1E2", "0.5"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn only_white_space_between_tokens_goes() {
        let mut out = Vec::new();
        compact(b" {\r\n \"a b\" :\t[ 1 , \" \\\" \" ] ,\r\"c\": { } }\n", &mut out);
        assert_eq!(out, b"{\"a b\":[1,\" \\\" \"],\"c\":{}}");
    }

    #[test]
    fn line_breaks_are_seen() {
        assert!(has_line_break(b"{\n}"));
        assert!(has_line_break(b"{\r}"));
        assert!(!has_line_break("{\"a\":\"\\n\u{2028}\u{85}\"}".as_bytes()));
    }

    proptest! {
        #[test]
        fn written_strings_read_back(text in any::<String>()) {
            let mut out = Vec::new();
            write_string(&mut out, &text);
            let theirs: String = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(&theirs, &text);
            let raw = std::str::from_utf8(&out[1..out.len() - 1]).unwrap();
            prop_assert_eq!(unescape(raw).unwrap(), text);
        }

        #[test]
        fn compacting_keeps_the_value(spaces in prop::collection::vec("[ \t\r\n]{0,3}", 12), text in any::<String>()) {
            let string = serde_json::to_string(&text).unwrap();
            let tokens = ["{", "\"a \\n\"", ":", "[", "1", ",", string.as_str(), ",", "null", "]", "}"];
            let source: String =
                spaces.iter().zip(tokens.iter().chain([&""])).flat_map(|(s, t)| [s.as_str(), t]).collect();
            let mut out = Vec::new();
            compact(source.as_bytes(), &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), tokens.concat());
            let (mut out, mut at) = (Vec::new(), 0);
            while at < source.len() {
                at = compact_some(source.as_bytes(), at, 3, &mut out);
            }
            prop_assert_eq!(String::from_utf8(out).unwrap(), tokens.concat());
        }
    }
}
