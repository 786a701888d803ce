//! Writing a JSON container again without some of its parts, every other byte as it was.
//!
//! A [`SplicePart`] is what stands between two separators of a container: a member or an element with the white space
//! around it. A container is its parts joined by commas, so leaving some out needs no care for theirs.
//!
//! Whoever writes says what becomes of a part before its value is walked, and a container inside it is written on the
//! same walk. So each byte is looked at once, however deep the parts lie that go: an event may be one of the largest
//! size. A container is kept as positions in the text, so that a walk can stop anywhere and go on later.

use crate::wire::json::{self, Kind};

/// One part of a container.
#[derive(Debug, Clone, Copy)]
pub(super) struct SplicePart<'a> {
    /// A member's name as written; empty for an element.
    pub(super) name: &'a str,
    /// What its value is.
    pub(super) kind: Kind,
    /// Where it stands.
    pub(super) span: PartSpan,
}

/// Where a part begins, behind a separator, and its value.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartSpan {
    pub(super) from: usize,
    pub(super) value: usize,
}

/// A container being walked, and perhaps written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Container {
    /// Where it begins in the text.
    pub(super) start: usize,
    /// Where its next part begins; in the end its closing bracket.
    pub(super) at: usize,
    is_object: bool,
    empty: bool,
}

impl Container {
    /// The container that begins at `start` of checked text.
    pub(super) fn at(text: &str, start: usize) -> Self {
        let is_object = text.as_bytes().get(start) == Some(&b'{');
        Self { start, at: start + 1, is_object, empty: true }
    }

    /// Begins to write it again.
    pub(super) fn open(text: &str, start: usize, out: &mut Vec<u8>) -> Self {
        let container = Self::at(text, start);
        out.push(if container.is_object { b'{' } else { b'[' });
        container
    }

    /// The next part; when its value has been walked, [`Self::step_behind`] is to follow.
    pub(super) fn next_part<'a>(&mut self, text: &'a str) -> Option<SplicePart<'a>> {
        let bytes = text.as_bytes();
        let from = self.at;
        let mut at = json::skip_white_space(bytes, from);
        if matches!(bytes.get(at)?, b'}' | b']') {
            self.at = at;
            return None;
        }
        let mut name = "";
        if self.is_object {
            let name_end = json::string_end(bytes, at + 1)?;
            name = text.get(at + 1..name_end - 1)?;
            let colon = json::skip_white_space(bytes, name_end);
            at = json::skip_white_space(bytes, colon + 1);
        }
        Some(SplicePart { name, kind: Kind::of(*bytes.get(at)?)?, span: PartSpan { from, value: at } })
    }

    /// Goes on behind a value that ends at `end`; answers where the separator stands that follows it.
    pub(super) fn step_behind(&mut self, text: &str, end: usize) -> usize {
        let bytes = text.as_bytes();
        let separator = json::skip_white_space(bytes, end);
        self.at = separator + usize::from(bytes.get(separator) == Some(&b','));
        separator
    }

    /// The place for one more part.
    pub(super) fn part<'o>(&mut self, out: &'o mut Vec<u8>) -> &'o mut Vec<u8> {
        if !self.empty {
            out.push(b',');
        }
        self.empty = false;
        out
    }

    /// Ends it; answers where it ends in the text. One that was empty before keeps its white space.
    pub(super) fn close(self, text: &str, out: &mut Vec<u8>) -> usize {
        let inside = text.get(self.start + 1..self.at).unwrap_or_default();
        if self.empty && inside.trim_start().is_empty() {
            out.extend_from_slice(inside.as_bytes());
        }
        out.push(if self.is_object { b'}' } else { b']' });
        self.at + 1
    }
}

/// Copies a piece of the text.
pub(super) fn copy(text: &str, from: usize, to: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes().get(from..to).unwrap_or_default());
}
