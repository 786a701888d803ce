//! A message being received in pieces: fragments, or one frame that spans reads. Joined bytes, not a list of pieces, so
//! that tiny fragments cost what their payload costs.
//!
//! - `checked ≤ bytes.len()`: the text up to `checked` is whole, valid characters; behind it lie at most three bytes
//!   that can still become one. A byte that can not is a fault at once.
//! - Memory is at most twice what the peer really sent (plus [`GROWTH_MIN`]) and never over the message limit, whatever
//!   lengths it announces.

use super::close::Fault;

/// The smallest allocation for a message in pieces.
const GROWTH_MIN: usize = 64;

pub(super) const NOT_UTF8: Fault = Fault::utf8("text is not UTF-8");

#[derive(Debug)]
pub(super) struct Assembly {
    bytes: Vec<u8>,
    checked: usize,
    /// Frames of the message begun so far.
    fragments: u32,
}

impl Assembly {
    pub(super) const fn new() -> Self {
        Self { bytes: Vec::new(), checked: 0, fragments: 1 }
    }

    /// Bytes received.
    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of memory held.
    pub(super) const fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Counts a further frame and answers how many there are.
    pub(super) const fn count_fragment(&mut self) -> u32 {
        self.fragments = self.fragments.saturating_add(1);
        self.fragments
    }

    /// Appends an unmasked piece. `bytes_max` is the most the message can still come to.
    pub(super) fn push(&mut self, piece: &[u8], bytes_max: usize) -> Result<(), Fault> {
        let needed = self.bytes.len() + piece.len();
        if needed > self.bytes.capacity() {
            let roomy = self.bytes.capacity().saturating_mul(2).max(GROWTH_MIN).min(bytes_max);
            self.bytes.reserve_exact(roomy.max(needed) - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        self.check_text()
    }

    /// The whole message.
    pub(super) fn finish(self) -> Result<Vec<u8>, Fault> {
        if self.checked < self.bytes.len() {
            return Err(NOT_UTF8);
        }
        Ok(self.bytes)
    }

    fn check_text(&mut self) -> Result<(), Fault> {
        let unchecked = self.bytes.get(self.checked..).unwrap_or_default();
        match simdutf8::compat::from_utf8(unchecked) {
            Ok(text) => self.checked += text.len(),
            // A length of the error means that no further byte can mend it.
            Err(error) if error.error_len().is_some() => return Err(NOT_UTF8),
            Err(error) => self.checked += error.valid_up_to(),
        }
        debug_assert!(self.bytes.len() - self.checked <= 3, "only the beginning of one character may be open");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_what_came_not_what_was_announced() {
        let mut assembly = Assembly::new();
        assembly.push(b"a", 16 << 20).unwrap();
        assert_eq!(assembly.held_bytes(), GROWTH_MIN);
        for _ in 0..10_000 {
            assembly.push(b"a", 16 << 20).unwrap();
            assert!(assembly.held_bytes() <= (2 * assembly.len()).max(GROWTH_MIN));
        }
    }

    #[test]
    fn memory_ends_at_the_limit() {
        let mut assembly = Assembly::new();
        for _ in 0..1_000 {
            assembly.push(b"a", 1_000).unwrap();
        }
        assert_eq!((assembly.len(), assembly.held_bytes()), (1_000, 1_000));
    }

    #[test]
    fn text_fails_with_the_byte_that_cannot_be_mended() {
        let cases: [(&[u8], usize); 8] = [
            (b"\xed\xa0\x80", 2),
            (b"\xf4\x90\x80\x80", 2),
            (b"\xc0\xaf", 1),
            (b"\xf5", 1),
            (b"\xe2\x82A", 3),
            (b"\x80", 1),
            (b"ab\xf0\x80", 4),
            (b"\xe0\x9f", 2),
        ];
        for (text, fails_at) in cases {
            let mut assembly = Assembly::new();
            let failed = text.iter().position(|byte| assembly.push(&[*byte], 100).is_err());
            assert_eq!(failed, Some(fails_at - 1), "{text:02x?}");
        }
    }

    #[test]
    fn a_text_cut_inside_a_character_is_not_whole() {
        let mut assembly = Assembly::new();
        assembly.push(b"\xe2\x82", 100).unwrap();
        assert_eq!(assembly.finish().unwrap_err(), NOT_UTF8);
    }
}
