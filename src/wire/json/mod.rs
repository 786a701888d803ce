//! JSON as bytes the relay hands on: a strict check of a whole text, and spans of what stands in it.
//!
//! Owns: the grammar of RFC 8259 with the contract's bounds (§2: no byte order mark, no NUL, valid UTF-8, nesting up to
//! [`JSON_DEPTH_MAX`](crate::limits::JSON_DEPTH_MAX), one value and white space around it), walking over checked text,
//! string escapes, the removal of white space between tokens, and objects written member by member.
//!
//! Does not know: what any member means. It builds no tree and reads no number: whoever asks gets the exact source
//! text, so digits can never change on the way.
//!
//! Invariants: a [`Value`] spans exactly the bytes of one JSON value of checked text; `start + text.len()` is its end
//! in the source; every offset fits `u32` ([`scan()`] refuses longer texts). Walking text that was not checked yields
//! nonsense or nothing, but never panics. Nothing here recurses.

mod object;
mod scan;
mod text;

use std::ops::Range;

pub use object::ObjectWriter;
pub use scan::{Document, JsonFault, JsonFaultKind, MemberSpan, SlicedScan, scan, scan_members};
pub use text::{
    LoneSurrogate, ValueWalk, compact, compact_some, has_line_break, integer, skip_white_space, string_end, unescape,
    unescape_into, write_string,
};

use text::value_end;

/// What a JSON value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number of any size and precision.
    Number,
    /// `true`
    True,
    /// `false`
    False,
    /// `null`
    Null,
}

impl Kind {
    /// The kind of the value that begins with this byte, if any does.
    #[must_use]
    pub fn of(first: u8) -> Option<Self> {
        Some(match first {
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::String,
            b'-' | b'0'..=b'9' => Self::Number,
            b't' => Self::True,
            b'f' => Self::False,
            b'n' => Self::Null,
            _ => return None,
        })
    }
}

/// One value in checked JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    /// What it is.
    pub kind: Kind,
    /// Exactly its source text, quotes and brackets included.
    pub text: &'a str,
    /// Where it begins in the source, bytes.
    pub start: usize,
}

/// The value that begins at `start` of checked text.
#[must_use]
pub fn value_at(text: &str, start: usize) -> Option<Value<'_>> {
    let kind = Kind::of(*text.as_bytes().get(start)?)?;
    let end = value_end(text.as_bytes(), start)?;
    Some(Value { kind, text: text.get(start..end)?, start })
}

impl<'a> Value<'a> {
    /// Where it stands in the source, bytes.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// The inside of a string, escapes untouched; nothing for any other kind.
    #[must_use]
    pub fn raw_string(&self) -> Option<&'a str> {
        match self.kind {
            Kind::String => self.text.get(1..self.text.len().checked_sub(1)?),
            _ => None,
        }
    }

    /// Members of an object in source order, repeated ones included; none for any other kind.
    #[must_use]
    pub fn members(&self) -> Members<'a> {
        Members { walk: Walk::inside(self, Kind::Object) }
    }

    /// Elements of an array in order; none for any other kind.
    #[must_use]
    pub fn elements(&self) -> Elements<'a> {
        Elements { walk: Walk::inside(self, Kind::Array) }
    }
}

/// A member of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its name as written, without quotes and with its escapes; compare after [`unescape`].
    pub name: &'a str,
    /// Where `name` begins in the source, behind the opening quote, bytes.
    pub name_start: usize,
    /// Its value.
    pub value: Value<'a>,
}

impl Member<'_> {
    /// From the opening quote of the name to the end of the value, in the source, bytes.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.name_start.saturating_sub(1)..self.value.range().end
    }
}

/// Iterator of [`Value::members`].
#[derive(Debug, Clone)]
pub struct Members<'a> {
    walk: Walk<'a>,
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        let walk = &mut self.walk;
        walk.separator()?;
        let name_start = walk.at + 1;
        let name_end = string_end(walk.text.as_bytes(), name_start)?;
        let name = walk.text.get(name_start..name_end - 1)?;
        walk.at = skip_white_space(walk.text.as_bytes(), name_end) + 1;
        let value = walk.value()?;
        Some(Member { name, name_start: walk.origin + name_start, value })
    }
}

/// Iterator of [`Value::elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    walk: Walk<'a>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.walk.separator()?;
        self.walk.value()
    }
}

/// A position inside a container's text.
#[derive(Debug, Clone)]
struct Walk<'a> {
    /// The container, or nothing for a value that is none.
    text: &'a str,
    /// Where the container begins in the source.
    origin: usize,
    /// Next byte to look at; `at ≤ text.len() + 1`.
    at: usize,
}

impl<'a> Walk<'a> {
    fn inside(value: &Value<'a>, kind: Kind) -> Self {
        let text = if value.kind == kind { value.text } else { "" };
        Self { text, origin: value.start, at: 0 }
    }

    /// Steps over the opening bracket or a comma, to the first byte of what follows; nothing at the closing bracket.
    fn separator(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        self.at = skip_white_space(bytes, self.at);
        if !matches!(bytes.get(self.at)?, b'{' | b'[' | b',') {
            return None;
        }
        self.at = skip_white_space(bytes, self.at + 1);
        (!matches!(bytes.get(self.at)?, b'}' | b']')).then_some(())
    }

    /// The value at `at`, white space before it skipped; moves behind it.
    fn value(&mut self) -> Option<Value<'a>> {
        let bytes = self.text.as_bytes();
        let start = skip_white_space(bytes, self.at);
        let kind = Kind::of(*bytes.get(start)?)?;
        let end = value_end(bytes, start)?;
        self.at = end;
        Some(Value { kind, text: self.text.get(start..end)?, start: self.origin + start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(&str, &str)> {
        let document = scan(text.as_bytes()).unwrap();
        document.root.members().map(|m| (m.name, m.value.text)).collect()
    }

    #[test]
    fn members_come_in_order_with_their_exact_text() {
        assert_eq!(
            names(" { \"a\" : [1, {\"]\":2}] ,\"b\\u0041\":\"x\\\"}\", \"a\":-1.5e+3 , \"\":{} } "),
            [("a", "[1, {\"]\":2}]"), ("b\\u0041", "\"x\\\"}\""), ("a", "-1.5e+3"), ("", "{}")]
        );
        assert_eq!(names("{}"), []);
        assert_eq!(names("{ }"), []);
        assert_eq!(names("[1]"), [], "an array has no members");
    }

    #[test]
    fn elements_come_in_order_with_their_kinds() {
        let document = scan(b"[ {} , [],\"s\",1,true,false,null ]").unwrap();
        let kinds: Vec<Kind> = document.root.elements().map(|value| value.kind).collect();
        let expected = [Kind::Object, Kind::Array, Kind::String, Kind::Number, Kind::True, Kind::False, Kind::Null];
        assert_eq!(kinds, expected);
        assert_eq!(scan(b"[\t]").unwrap().root.elements().count(), 0);
        assert_eq!(scan(b"{\"a\":1}").unwrap().root.elements().count(), 0, "an object has no elements");
    }

    #[test]
    fn ranges_point_into_the_source_at_any_nesting() {
        let source = "  {\"a\":{\"b\":[ 10, \"ü\" , {\"c\":null}]}}\n";
        let document = scan(source.as_bytes()).unwrap();
        let mut values = vec![document.root];
        let mut seen = 0;
        while let Some(value) = values.pop() {
            seen += 1;
            assert_eq!(&source[value.range()], value.text);
            for member in value.members() {
                assert_eq!(&source[member.name_start..][..member.name.len()], member.name);
                assert!(source[member.range()].starts_with('"'));
                assert!(source[member.range()].ends_with(member.value.text));
                values.push(member.value);
            }
            values.extend(value.elements());
        }
        assert_eq!(seen, 7);
    }

    #[test]
    fn walking_unchecked_text_ends_without_panic() {
        let text = "{\"a\":[1,{\"b\":\"\\u00fc\"}],\"c\":tru";
        for end in 0..=text.len() {
            for kind in [Kind::Object, Kind::Array] {
                let value = Value { kind, text: &text[..end], start: 0 };
                assert!(value.members().count() <= 2);
                assert!(value.elements().count() <= 2);
            }
        }
    }

    #[test]
    fn a_string_gives_its_inside() {
        assert_eq!(scan(b"\"a\\n\"").unwrap().root.raw_string(), Some("a\\n"));
        assert_eq!(scan(b"\"\"").unwrap().root.raw_string(), Some(""));
        assert_eq!(scan(b"1").unwrap().root.raw_string(), None);
    }
}
