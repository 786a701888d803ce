//! Which core owns a name: the single writer of what bears it, and the one place that orders what concerns it. This
//! file is the only one that knows.
//!
//! Invariants: all cores of a process agree, for as long as it lives; nobody outside can choose names of one owner, as
//! the keys of the hash are random.

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip::SipHasher13;

use crate::engine::service::CoreId;
use crate::limits::CORES_MAX;

/// See the module: one value, shared by the cores of a process or copied to each.
#[derive(Debug, Clone, Copy)]
pub struct Owners {
    cores: usize,
    keys: (u64, u64),
}

impl Owners {
    /// Owners among so many cores, at least one and at most [`CORES_MAX`], by keys nobody else has.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        let random = || RandomState::new().hash_one(cores);
        Self::with_keys(cores, (random(), random()))
    }

    /// Owners by these keys.
    #[must_use]
    pub fn with_keys(cores: usize, keys: (u64, u64)) -> Self {
        debug_assert!((1..=CORES_MAX).contains(&cores), "a process has 1 to {CORES_MAX} cores");
        Self { cores, keys }
    }

    /// How many cores there are.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// Every core, ascending.
    pub fn every_core(&self) -> impl Iterator<Item = CoreId> + use<> {
        (0u16..).map(CoreId).take(self.cores)
    }

    /// The owner of a name.
    #[must_use]
    pub fn owner_of(&self, name: &str) -> CoreId {
        if self.cores == 1 {
            return CoreId(0);
        }
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        hasher.write(name.as_bytes());
        // The remainder is below CORES_MAX, so it fits.
        CoreId(u16::try_from(hasher.finish() % self.cores as u64).unwrap_or(0))
    }
}

/// A set of cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreMask(u64);

/// A bit for each core.
const _: () = assert!(CORES_MAX <= u64::BITS as usize);

impl CoreMask {
    /// No core.
    pub const NONE: Self = Self(0);

    /// Every one of so many cores, at least one.
    #[must_use]
    pub fn all(cores: usize) -> Self {
        Self(u64::MAX >> (64 - cores.clamp(1, 64)))
    }

    /// That core alone.
    #[must_use]
    pub const fn of(core: CoreId) -> Self {
        Self(1 << core.0)
    }

    /// Adds a core.
    pub fn insert(&mut self, core: CoreId) {
        self.0 |= 1 << core.0;
    }

    /// Takes a core out.
    pub fn remove(&mut self, core: CoreId) {
        self.0 &= !(1 << core.0);
    }

    /// Whether the core is in it.
    #[must_use]
    pub const fn contains(self, core: CoreId) -> bool {
        self.0 & (1 << core.0) != 0
    }

    /// Whether no core is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its cores, ascending.
    pub fn iter(self) -> impl Iterator<Item = CoreId> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lowest = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(CoreId(lowest as u16))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_has_its_share_and_all_agree_on_it() {
        for cores in [1, 2, 3, 7, CORES_MAX] {
            let owners = Owners::new(cores);
            let same = owners;
            let mut owned = vec![0; cores];
            for name in (0..cores * 200).map(|number| format!("name-{number}")) {
                let owner = owners.owner_of(&name);
                assert_eq!(owner, same.owner_of(&name));
                owned[usize::from(owner.0)] += 1;
            }
            assert_eq!(
                owners.every_core().map(|core| usize::from(core.0)).collect::<Vec<_>>(),
                Vec::from_iter(0..cores)
            );
            assert!(owned.iter().all(|names| (80..400).contains(names)) || cores == 1, "{owned:?}");
        }
    }

    #[test]
    fn the_keys_decide() {
        let names: Vec<String> = (0..100).map(|number| format!("name-{number}")).collect();
        let owned = |keys| -> Vec<CoreId> {
            let owners = Owners::with_keys(64, keys);
            names.iter().map(|name| owners.owner_of(name)).collect()
        };
        assert_eq!(owned((1, 2)), owned((1, 2)));
        assert_ne!(owned((1, 2)), owned((1, 3)));
    }

    #[test]
    fn a_mask_is_a_set_of_cores() {
        let mut mask = CoreMask::of(CoreId(63));
        mask.insert(CoreId(0));
        mask.insert(CoreId(5));
        mask.insert(CoreId(5));
        assert_eq!(mask.iter().collect::<Vec<_>>(), [CoreId(0), CoreId(5), CoreId(63)]);
        mask.remove(CoreId(0));
        mask.remove(CoreId(1));
        assert!(mask.contains(CoreId(5)) && !mask.contains(CoreId(0)) && !mask.is_empty());
        for cores in [1, 2, 63, 64] {
            let all = CoreMask::all(cores);
            assert!(all.iter().eq((0..cores).map(|core| CoreId(core as u16))));
        }
        assert!(CoreMask::NONE.is_empty() && CoreMask::NONE.iter().next().is_none());
    }
}
