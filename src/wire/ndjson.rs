//! Newline-delimited JSON: the lines of a body, counted before any is parsed, so that too many are refused ahead of the
//! first invalid one. Blank lines are none.
//!
//! A body of the largest size may be nothing but line ends, so the walk is sliced: it spends of a budget and goes on
//! where it stopped. It knows no JSON.
//!
//! Invariants: the count does not depend on where the walk was cut; one call looks at no more than its budget pays for.

use memchr::memchr;

/// What a line costs, whatever its length, in bytes of a budget.
pub const LINE_COST: usize = 8;
/// Bytes looked for a line end at the price of one that is parsed.
const BYTES_PER_COST: usize = 8;

/// How far a count of lines with text has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineCount {
    at: usize,
    lines: usize,
    /// Whether the present line has shown text.
    has_text: bool,
}

impl LineCount {
    /// Counts on while the budget lasts. The lines that are not blank, at most `enough`, once that is known.
    pub fn walk(&mut self, body: &[u8], enough: usize, budget: &mut usize) -> Option<usize> {
        while self.lines < enough && self.at < body.len() {
            if *budget == 0 {
                return None;
            }
            let end = self.at.saturating_add(budget.saturating_mul(BYTES_PER_COST)).min(body.len());
            let rest = body.get(self.at..end).unwrap_or_default();
            let line_end = memchr(b'\n', rest);
            let line = rest.get(..line_end.unwrap_or(rest.len())).unwrap_or_default();
            if !self.has_text && !is_blank(line) {
                self.has_text = true;
                self.lines += 1;
            }
            let taken = match line_end {
                Some(end) => {
                    self.has_text = false;
                    end + 1
                }
                None => rest.len(),
            };
            self.at += taken;
            *budget = budget.saturating_sub(LINE_COST + taken / BYTES_PER_COST);
        }
        Some(self.lines)
    }
}

/// Whether there is nothing but white space.
#[must_use]
pub fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The count, and the number of slices it took.
    fn count(body: &[u8], enough: usize, budget: usize) -> (usize, usize) {
        let mut count = LineCount::default();
        for slices in 1.. {
            let (before, mut left) = (count.at, budget);
            let counted = count.walk(body, enough, &mut left);
            assert!(count.at - before <= budget * BYTES_PER_COST, "a slice looks at what it may");
            if let Some(lines) = counted {
                return (lines, slices);
            }
        }
        unreachable!("every slice goes on")
    }

    #[test]
    fn blank_lines_are_none_wherever_the_walk_is_cut() {
        for (body, lines) in [
            (&b""[..], 0),
            (b" \t\r", 0),
            (b"\n\n \r\n\n", 0),
            (b"x", 1),
            (b"x\n", 1),
            (b"\n  x  x\n\r\n", 1),
            (b"a\nb\nc", 3),
            (b"a\r\n\r\n                                 b                               \n\nc\n", 3),
        ] {
            for budget in 1..40 {
                assert_eq!(count(body, 10, budget).0, lines, "{} by {budget}", body.escape_ascii());
            }
        }
        assert_eq!(count(b"a\nb\nc\nd", 2, 1000).0, 2, "enough is enough");
    }

    #[test]
    fn a_flood_of_blank_lines_takes_many_slices() {
        let budget = 256 << 10;
        let mut body = vec![b'\n'; 16 << 20];
        *body.last_mut().unwrap() = b'x';
        let (lines, slices) = count(&body, 10_001, budget);
        assert_eq!(lines, 1);
        assert!(slices > 500, "{slices} slices of at most {} lines", budget / LINE_COST);
        let (lines, slices) = count(&vec![b' '; 16 << 20], 10_001, budget);
        assert_eq!((lines, slices), (0, 8));
    }
}
