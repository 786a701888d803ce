//! Slots in the order in which they were last written: a doubly linked list through a table, ordered by tick.
//!
//! Ticks are taken where a batch is received and may reach the owner slightly out of order, so a slot is filed from
//! the newest end: O(1) for the newest tick, else past the few that overtook it. Among equal ticks the later
//! filing is the newer one.
//!
//! Invariant: from `oldest` to `newest` ticks never fall, and both directions list the same slots.

/// The end of the list.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    tick: u64,
    older: u32,
    newer: u32,
}

/// Filed slots, oldest first.
#[derive(Debug)]
pub(super) struct Recency {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
}

impl Default for Recency {
    fn default() -> Self {
        Self { links: Vec::new(), oldest: NONE, newest: NONE }
    }
}

impl Recency {
    /// Files a slot that is not filed.
    pub(super) fn insert(&mut self, slot: u32, tick: u64) {
        let mut older = self.newest;
        while older != NONE && self.link(older).tick > tick {
            older = self.link(older).older;
        }
        let newer = if older == NONE { self.oldest } else { self.link(older).newer };
        let link = Link { tick, older, newer };
        let at = slot as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, Link { tick: 0, older: NONE, newer: NONE });
        }
        self.links[at] = link;
        self.join(older, slot);
        self.join(slot, newer);
    }

    /// Takes a filed slot out.
    pub(super) fn remove(&mut self, slot: u32) {
        let Link { older, newer, .. } = self.link(slot);
        if older == NONE {
            self.oldest = newer;
        } else {
            self.links[older as usize].newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            self.links[newer as usize].older = older;
        }
    }

    /// Files a filed slot anew, if the tick is not older than its own.
    pub(super) fn touch(&mut self, slot: u32, tick: u64) {
        if tick < self.link(slot).tick {
            return;
        }
        if self.newest == slot {
            self.links[slot as usize].tick = tick;
        } else {
            self.remove(slot);
            self.insert(slot, tick);
        }
    }

    /// Tick and slot, from the oldest on.
    pub(super) fn ascending(&self) -> impl Iterator<Item = (u64, u32)> {
        let follow = |slot: u32| Some(slot).filter(|&slot| slot != NONE);
        std::iter::successors(follow(self.oldest), move |&slot| follow(self.link(slot).newer))
            .map(|slot| (self.link(slot).tick, slot))
    }

    fn link(&self, slot: u32) -> Link {
        self.links[slot as usize]
    }

    fn join(&mut self, older: u32, newer: u32) {
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let forward: Vec<_> = self.ascending().collect();
        assert!(forward.is_sorted_by_key(|&(tick, _)| tick));
        let mut backward = Vec::new();
        let mut slot = self.newest;
        while slot != NONE {
            backward.push((self.link(slot).tick, slot));
            slot = self.link(slot).older;
        }
        backward.reverse();
        assert_eq!(forward, backward);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(steps in prop::collection::vec((0u32..8, 0u64..4, any::<bool>()), 1..200)) {
            let mut recency = Recency::default();
            let mut model: Vec<(u64, u32)> = Vec::new();
            let mut latest = 0;
            for (slot, lag, remove) in steps {
                latest += 1;
                let tick = 10 + latest - lag.min(latest);
                let filed = model.iter().position(|&(_, other)| other == slot);
                match filed {
                    Some(at) if remove => {
                        model.remove(at);
                        recency.remove(slot);
                    }
                    Some(at) => {
                        if model[at].0 <= tick {
                            model.remove(at);
                            let behind = model.partition_point(|&(other, _)| other <= tick);
                            model.insert(behind, (tick, slot));
                        }
                        recency.touch(slot, tick);
                    }
                    None => {
                        let behind = model.partition_point(|&(other, _)| other <= tick);
                        model.insert(behind, (tick, slot));
                        recency.insert(slot, tick);
                    }
                }
                recency.check_invariants();
                prop_assert!(recency.ascending().eq(model.iter().copied()));
            }
        }
    }
}
