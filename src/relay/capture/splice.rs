//! Writing a JSON container again without some of its parts, every other byte as it was.
//!
//! A [`Part`] is what stands between two separators of a container: a member or an element with the white space around it.
//! A container is its parts joined by commas, so leaving some out needs no care for theirs.
//!
//! Whoever writes says what becomes of a part before its value is walked, and a container inside it is written on the same
//! walk. So each byte is looked at once, however deep the parts lie that go: an event may be one of the largest size.

use crate::wire::json::{self, Kind};

/// One part of a container.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    /// A member's name as written; empty for an element.
    pub(super) name: &'a str,
    /// What its value is.
    pub(super) kind: Kind,
    /// Where it begins, behind a separator.
    from: usize,
    /// Where its value begins.
    value: usize,
}

/// A container being written.
#[derive(Debug)]
pub(super) struct Container<'a, 'o> {
    text: &'a str,
    /// Where it begins in the text.
    start: usize,
    /// Where its next part begins; in the end its closing bracket.
    at: usize,
    out: &'o mut Vec<u8>,
    empty: bool,
}

impl<'a, 'o> Container<'a, 'o> {
    /// Begins to write the container that begins at `start` of checked text again.
    pub(super) fn open(text: &'a str, start: usize, out: &'o mut Vec<u8>) -> Self {
        let container = Self { text, start, at: start + 1, out, empty: true };
        container.out.push(if container.is_object() { b'{' } else { b'[' });
        container
    }

    /// The next part; one of [`Self::keep`], [`Self::leave_out`], [`Self::write_instead`] and [`Self::write_inside`] is to
    /// follow.
    pub(super) fn next_part(&mut self) -> Option<Part<'a>> {
        let bytes = self.text.as_bytes();
        let from = self.at;
        let mut at = json::skip_white_space(bytes, from);
        if matches!(bytes.get(at)?, b'}' | b']') {
            self.at = at;
            return None;
        }
        let mut name = "";
        if self.is_object() {
            let name_end = json::string_end(bytes, at + 1)?;
            name = self.text.get(at + 1..name_end - 1)?;
            let colon = json::skip_white_space(bytes, name_end);
            at = json::skip_white_space(bytes, colon + 1);
        }
        Some(Part { name, kind: Kind::of(*bytes.get(at)?)?, from, value: at })
    }

    /// Copies a part.
    pub(super) fn keep(&mut self, part: Part<'a>) {
        let end = self.end_of(part);
        let separator = self.step_behind(end);
        self.begin_part();
        self.copy(part.from, separator);
    }

    /// Leaves a part out.
    pub(super) fn leave_out(&mut self, part: Part<'a>) {
        let end = self.end_of(part);
        self.step_behind(end);
    }

    /// Copies all of a part but its value, in whose place `write` puts another.
    pub(super) fn write_instead(&mut self, part: Part<'a>, write: impl FnOnce(&mut Vec<u8>)) {
        let end = self.end_of(part);
        self.write_inside(part, |_, out| {
            write(out);
            end
        });
    }

    /// Copies all of a part but its value, which `write` gets by its start; it writes another and answers where the value ends.
    pub(super) fn write_inside(&mut self, part: Part<'a>, write: impl FnOnce(usize, &mut Vec<u8>) -> usize) {
        self.begin_part();
        self.copy(part.from, part.value);
        let end = write(part.value, self.out);
        let separator = self.step_behind(end);
        self.copy(end, separator);
    }

    /// Ends it; answers where it ends in the text. One that was empty before keeps its white space.
    pub(super) fn close(mut self) -> usize {
        let inside = self.text.get(self.start + 1..self.at).unwrap_or_default();
        if self.empty && inside.trim_start().is_empty() {
            self.copy(self.start + 1, self.at);
        }
        self.out.push(if self.is_object() { b'}' } else { b']' });
        self.at + 1
    }

    /// Adds a member that the source does not have.
    pub(super) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.begin_part();
        write(self.out);
    }

    fn is_object(&self) -> bool {
        self.text.as_bytes().get(self.start) == Some(&b'{')
    }

    fn end_of(&self, part: Part<'a>) -> usize {
        json::value_end(self.text.as_bytes(), part.value).unwrap_or(self.text.len())
    }

    /// Goes on behind a value; answers where the separator stands that follows it.
    fn step_behind(&mut self, end: usize) -> usize {
        let bytes = self.text.as_bytes();
        let separator = json::skip_white_space(bytes, end);
        self.at = separator + usize::from(bytes.get(separator) == Some(&b','));
        separator
    }

    fn begin_part(&mut self) {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
    }

    fn copy(&mut self, from: usize, to: usize) {
        self.out.extend_from_slice(self.text.get(from..to).unwrap_or_default().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes an object without the members named `x`, or an array without its strings.
    fn without(text: &str) -> String {
        assert!(json::scan(text.as_bytes()).is_ok());
        let mut out = Vec::new();
        let mut container = Container::open(text, 0, &mut out);
        while let Some(part) = container.next_part() {
            if part.name == "x" || (text.starts_with('[') && part.kind == Kind::String) {
                container.leave_out(part);
            } else {
                container.keep(part);
            }
        }
        assert_eq!(container.close(), text.len());
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
        let text = "{ \"a\" : 1 ,\t\"b\": {\"c\" :2} }";
        let mut out = Vec::new();
        let mut container = Container::open(text, 0, &mut out);
        while let Some(part) = container.next_part() {
            container.write_instead(part, |out| out.push(b'0'));
        }
        container.close();
        assert_eq!(out, b"{ \"a\" : 0 ,\t\"b\": 0 }");
    }

    #[test]
    fn walking_unchecked_text_ends_without_panic() {
        let text = "{\"a\":[1,{\"b\":\"\\u00fc\"}],\"c\":tru";
        for end in 0..=text.len() {
            let mut out = Vec::new();
            let mut container = Container::open(&text[..end], 0, &mut out);
            let mut parts = 0;
            while let Some(part) = container.next_part() {
                container.keep(part);
                parts += 1;
                assert!(parts <= 2);
            }
            container.close();
        }
    }
}
