//! What makes two copies the same event: `source` and `id` (contract §3), as 128 bits of keyed SipHash-1-3.
//!
//! The key is drawn once per process and never leaves it, so that nobody can craft two events that collide and have one
//! of them dropped as a duplicate. At 128 bits, chance collisions are out of reach for any number of buffered events.

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};

/// The process's key. One value is made at start and copied to every core: all of them must agree.
#[derive(Clone)]
pub struct Fingerprinter {
    keys: (u64, u64),
}

impl Fingerprinter {
    /// Draws a fresh key from the entropy the standard library seeds its hash maps with.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "two defaults would not agree")]
    pub fn new() -> Self {
        let random = RandomState::new();
        Self { keys: (random.hash_one(0_u8), random.hash_one(1_u8)) }
    }

    /// The fingerprint of the event with this `source` and `id`. The length in front keeps the two apart.
    #[must_use]
    pub fn fingerprint(&self, source: &str, id: &str) -> u128 {
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        hasher.write_u64(source.len() as u64);
        hasher.write(source.as_bytes());
        hasher.write(id.as_bytes());
        hasher.finish128().as_u128()
    }
}

impl std::fmt::Debug for Fingerprinter {
    /// The key stays out of every log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fingerprinter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_agree_and_neighbours_differ() {
        let one = Fingerprinter::new();
        let print = one.fingerprint("source", "id");
        assert_eq!(one.clone().fingerprint("source", "id"), print);
        assert_ne!(one.fingerprint("sourcei", "d"), print, "the border between source and id counts");
        assert_ne!(one.fingerprint("source", "ie"), print);
        assert_ne!(Fingerprinter::new().fingerprint("source", "id"), print, "another process, another key");
    }
}
