//! The strict check of one JSON text in slices: what [`scan_members`](super::scan_members) does in one go, for a text
//! so large that this would hold up everybody else.
//!
//! It goes on from the last token boundary; a long run of white space, digits or a string's inside that was cut is
//! noted ([`ScanSlice`]), so that no byte is walked twice but a few.
//!
//! Invariants: the outcome does not depend on the slices; a walk looks at no more bytes than its budget, but for the
//! token at its end and bytes checked to be UTF-8, of which [`UTF8_BYTES_PER_COST`] count as one.

use std::ops::Range;

use super::{Document, Halt, JsonFault, JsonFaultKind, MemberSpan, ScanPlace, ScanSlice, Scanner, invalid_utf8};
use crate::wire::json::{Kind, Value};

/// What comes next in a [`SlicedScan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextPart {
    /// Bytes that have not been found to be UTF-8, from here on.
    Utf8(usize),
    Beginning,
    Value,
    BehindValue,
    Separator,
    End,
    Nothing,
}

/// [`scan_members`](super::scan_members) in slices: the same answer, whatever the budgets. The text is to be the same
/// each time.
#[derive(Debug)]
pub struct SlicedScan {
    next: NextPart,
    place: ScanPlace,
    pub(super) slice: ScanSlice,
    /// Members of the outermost object so far.
    members: Vec<MemberSpan>,
    kind: Kind,
    start: usize,
    end: usize,
}

impl Default for SlicedScan {
    fn default() -> Self {
        Self {
            next: NextPart::Utf8(0),
            place: ScanPlace::BEGINNING,
            slice: ScanSlice::default(),
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
    /// As [`scan()`](super::scan()).
    pub fn walk(&mut self, text: &[u8], budget: &mut usize) -> Result<bool, JsonFault> {
        if u32::try_from(text.len()).is_err() {
            return Err(JsonFault { kind: JsonFaultKind::TooLong, at: u32::MAX as usize });
        }
        while let NextPart::Utf8(from) = self.next {
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
            if self.next == NextPart::Nothing {
                break Ok(true);
            }
            if scanner.place.at >= scanner.slice.stop && scanner.place.at < text.len() {
                break Ok(false);
            }
            let step = match self.next {
                NextPart::Utf8(_) | NextPart::Beginning => scanner.begin().map(|(kind, start)| {
                    (self.kind, self.start) = (kind, start);
                    NextPart::Value
                }),
                NextPart::Value => {
                    scanner.value().map(|more| if more { NextPart::Value } else { NextPart::BehindValue })
                }
                NextPart::BehindValue if scanner.place.depth == 0 => {
                    self.end = scanner.place.at;
                    Ok(NextPart::End)
                }
                NextPart::BehindValue => {
                    scanner.tell();
                    Ok(NextPart::Separator)
                }
                NextPart::Separator => {
                    scanner.separator().map(|more| if more { NextPart::Value } else { NextPart::BehindValue })
                }
                NextPart::End | NextPart::Nothing => scanner.end().map(|()| NextPart::Nothing),
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
fn check_utf8(text: &[u8], from: usize, budget: &mut usize) -> Result<NextPart, JsonFault> {
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
    Ok(if end == text.len() { NextPart::Beginning } else { NextPart::Utf8(end) })
}

/// Bytes checked to be UTF-8 at the price of one that is scanned.
const UTF8_BYTES_PER_COST: usize = 8;
