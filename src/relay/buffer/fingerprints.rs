//! Which of a session's entries bears a fingerprint: an open-addressing table of entry ids.
//!
//! A bucket holds 32 bits of the fingerprint and an id, 8 bytes; the whole fingerprint stands in the entry, which the
//! caller compares. The fingerprint is taken to be the output of a keyed hash, so that no peer can aim at a
//! bucket. Linear probing; a removal shifts back what stood behind it, so there are no tombstones to sweep.
//!
//! Invariants: the number of buckets is 0 or a power of two and exceeds the entries; no empty bucket lies between an
//! entry's home and its bucket.

/// Marks an empty bucket; never an entry's id, for ids stay below the capacity of a table that needs this many.
const EMPTY: u32 = u32::MAX;

/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = size_of::<FingerprintBucket>();

#[derive(Debug, Clone, Copy)]
struct FingerprintBucket {
    tag: u32,
    id: u32,
}

/// Fingerprint → entry id.
#[derive(Debug, Default)]
pub(super) struct Fingerprints {
    buckets: Box<[FingerprintBucket]>,
}

/// Buckets for this many entries: at most three of four are taken.
pub(super) fn buckets_for(entries: usize) -> usize {
    (entries + entries.div_ceil(3)).next_power_of_two()
}

impl Fingerprints {
    /// Makes a table of `buckets` buckets, which is a power of two, out of this one.
    pub(super) fn rehash(&mut self, buckets: usize) {
        debug_assert!(buckets.is_power_of_two());
        let empty = vec![FingerprintBucket { tag: 0, id: EMPTY }; buckets].into_boxed_slice();
        for bucket in std::mem::replace(&mut self.buckets, empty) {
            if bucket.id != EMPTY {
                self.place(bucket);
            }
        }
    }

    /// The id with this fingerprint that `is_it` agrees to.
    pub(super) fn find(&self, fingerprint: u128, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = tag(fingerprint);
        self.probe(tag)
            .find(|&at| self.buckets[at].tag == tag && is_it(self.buckets[at].id))
            .map(|at| self.buckets[at].id)
    }

    /// Adds an entry that is not in it. A bucket must be left.
    pub(super) fn insert(&mut self, fingerprint: u128, id: u32) {
        self.place(FingerprintBucket { tag: tag(fingerprint), id });
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, fingerprint: u128, id: u32) {
        let Some(mut hole) = self.probe(tag(fingerprint)).find(|&at| self.buckets[at].id == id) else {
            debug_assert!(false, "an entry without fingerprint");
            return;
        };
        let mut next = self.step(hole);
        while self.buckets[next].id != EMPTY {
            // It may move up into the hole unless its home lies behind the hole.
            let from_home = next.wrapping_sub(self.home(self.buckets[next].tag)) & self.mask();
            let from_hole = next.wrapping_sub(hole) & self.mask();
            if from_home >= from_hole {
                self.buckets[hole] = self.buckets[next];
                hole = next;
            }
            next = self.step(next);
        }
        self.buckets[hole].id = EMPTY;
    }

    /// The taken buckets from the tag's home on, up to the first empty one.
    fn probe(&self, tag: u32) -> impl Iterator<Item = usize> {
        let home = self.home(tag);
        let all = (0..self.buckets.len()).map(move |distance| home.wrapping_add(distance) & self.mask());
        all.take_while(|&at| self.buckets[at].id != EMPTY)
    }

    fn place(&mut self, bucket: FingerprintBucket) {
        let mut at = self.home(bucket.tag);
        while self.buckets[at].id != EMPTY {
            at = self.step(at);
        }
        self.buckets[at] = bucket;
    }

    fn home(&self, tag: u32) -> usize {
        tag as usize & self.mask()
    }

    fn step(&self, at: usize) -> usize {
        (at + 1) & self.mask()
    }

    fn mask(&self) -> usize {
        self.buckets.len().wrapping_sub(1)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.buckets.iter().filter(|bucket| bucket.id != EMPTY).count()
    }
}

/// The low bits serve as the home, the others tell most strangers apart without a look at their entries.
fn tag(fingerprint: u128) -> u32 {
    fingerprint as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn an_empty_table_finds_nothing() {
        assert_eq!(Fingerprints::default().find(7, |_| true), None);
    }

    proptest! {
        /// Few distinct tags, so that runs collide, wrap around and are cut in the middle.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0u128..24, 0u128..2), 1..200)) {
            let mut table = Fingerprints::default();
            table.rehash(64);
            let mut model: HashMap<u128, u32> = HashMap::new();
            let mut fingerprints = Vec::new();
            for (low, high) in steps {
                let fingerprint = (high << 64) | (low.wrapping_mul(7) & 63);
                let found = table.find(fingerprint, |id| fingerprints[id as usize] == fingerprint);
                prop_assert_eq!(found, model.get(&fingerprint).copied());
                if let Some(id) = found {
                    table.remove(fingerprint, id);
                    model.remove(&fingerprint);
                } else {
                    let id = fingerprints.len() as u32;
                    fingerprints.push(fingerprint);
                    table.insert(fingerprint, id);
                    model.insert(fingerprint, id);
                }
                prop_assert_eq!(table.len(), model.len());
                if model.len() == 40 {
                    table.rehash(128);
                }
            }
            for (fingerprint, id) in model {
                prop_assert_eq!(table.find(fingerprint, |id| fingerprints[id as usize] == fingerprint), Some(id));
            }
        }
    }
}
