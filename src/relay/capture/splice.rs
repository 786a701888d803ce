//! Writing a JSON container again without some of its parts, every other byte as it was.
//!
//! A [`Segment`] is what stands between two separators of a container: a member or an element with the white space
//! around it. A container is its segments joined by commas, so leaving some out needs no care for theirs.

use std::ops::Range;

use crate::wire::json::{Kind, Member, Value};

/// One part of a container, as written.
#[derive(Debug, Clone)]
pub(super) struct Segment<'a> {
    text: &'a str,
    /// Where its value stands in `text`.
    value: Range<usize>,
}

impl Segment<'_> {
    /// Copies it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text.as_bytes());
    }

    /// Copies all of it but its value, which `value` writes.
    pub(super) fn write_around(&self, out: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
        out.extend_from_slice(self.text.get(..self.value.start).unwrap_or_default().as_bytes());
        value(out);
        out.extend_from_slice(self.text.get(self.value.end..).unwrap_or_default().as_bytes());
    }
}

/// The members of an object, each with its segment.
pub(super) fn members<'a>(object: Value<'a>) -> impl Iterator<Item = (Member<'a>, Segment<'a>)> {
    let mut behind = 1;
    object.members().map(move |member| (member, segment(object, &mut behind, member.value)))
}

/// The elements of an array, each with its segment.
pub(super) fn elements<'a>(array: Value<'a>) -> impl Iterator<Item = (Value<'a>, Segment<'a>)> {
    let mut behind = 1;
    array.elements().map(move |element| (element, segment(array, &mut behind, element)))
}

/// The segment around `value` that begins at `behind`, just behind a separator; moves `behind` the next one.
fn segment<'a>(container: Value<'a>, behind: &mut usize, value: Value<'a>) -> Segment<'a> {
    let range = value.range();
    let (start, end) = (range.start - container.start, range.end - container.start);
    let rest = container.text.get(end..).unwrap_or_default();
    let separator = end + (rest.len() - rest.trim_start().len());
    let from = std::mem::replace(behind, separator + 1);
    Segment { text: container.text.get(from..separator).unwrap_or_default(), value: start - from..end - from }
}

/// A container being written.
#[derive(Debug)]
pub(super) struct Container<'a, 'o> {
    source: Value<'a>,
    out: &'o mut Vec<u8>,
    empty: bool,
}

impl<'a, 'o> Container<'a, 'o> {
    /// Begins writing `source` again.
    pub(super) fn open(source: Value<'a>, out: &'o mut Vec<u8>) -> Self {
        out.push(if source.kind == Kind::Array { b'[' } else { b'{' });
        Self { source, out, empty: true }
    }

    /// The place for one more part.
    pub(super) fn part(&mut self) -> &mut Vec<u8> {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        self.out
    }

    /// Ends it. One that was empty before keeps its white space.
    pub(super) fn close(self) {
        let inside = self.source.text.get(1..self.source.text.len().saturating_sub(1)).unwrap_or_default();
        if self.empty && inside.trim_start().is_empty() {
            self.out.extend_from_slice(inside.as_bytes());
        }
        self.out.push(if self.source.kind == Kind::Array { b']' } else { b'}' });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json;

    /// Writes an object without the members named `x`, or an array without its strings.
    fn without(text: &str) -> String {
        let source = json::scan(text.as_bytes()).unwrap().root;
        let mut out = Vec::new();
        let mut container = Container::open(source, &mut out);
        for (member, segment) in members(source) {
            if member.name != "x" {
                segment.write(container.part());
            }
        }
        for (element, segment) in elements(source) {
            if element.kind != Kind::String {
                segment.write(container.part());
            }
        }
        container.close();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn leaves_parts_out_with_their_comma() {
        for (text, left) in [
            ("{}", "{}"),
            ("{ \t }", "{ \t }"),
            ("{\"x\":1}", "{}"),
            ("{ \"x\" : 1 }", "{}"),
            ("{\"x\":1,\"x\":2,\"x\":3}", "{}"),
            ("{\"x\":1,\"b\":2}", "{\"b\":2}"),
            ("{\"a\":1,\"x\":2}", "{\"a\":1}"),
            ("{ \"a\" : 1 , \"x\" : 2 , \"b\" : [ 3 ,4] }", "{ \"a\" : 1 , \"b\" : [ 3 ,4] }"),
            ("[]", "[]"),
            ("[ ]", "[ ]"),
            ("[\"s\"]", "[]"),
            ("[1, \"s\" ,{\"x\":\",\"} ]", "[1,{\"x\":\",\"} ]"),
        ] {
            assert_eq!(without(text), left, "{text}");
        }
    }

    #[test]
    fn keeps_every_byte_around_a_replaced_value() {
        let source = json::scan(b" { \"a\" : 1 ,\t\"b\": {\"c\" :2} } ").unwrap().root;
        let mut out = Vec::new();
        let mut container = Container::open(source, &mut out);
        for (_, segment) in members(source) {
            segment.write_around(container.part(), |out| out.push(b'0'));
        }
        container.close();
        assert_eq!(out, b"{ \"a\" : 0 ,\t\"b\": 0 }");
    }
}
