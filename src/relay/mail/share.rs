//! How much of an answer that cannot hold everything each connection gets (contract §4, §6.7).
//!
//! The rule is the fair one: all connections may have the same number of bytes, as many as fit. Who asks for less has
//! it all, so what is left out is of those who have most, and nobody can crowd out the others.
//!
//! Sizes are counted by powers of two, so that a core's part is of one size however many connections it has. What a
//! share costs is therefore known from above: too little may be given, never too much.

/// Sizes of what connections have to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// By the number of bits of a size: how many of these there are, and their sum in bytes.
    buckets: [(u64, u64); 65],
}

impl Default for Sizes {
    fn default() -> Self {
        Self { buckets: [(0, 0); 65] }
    }
}

impl Sizes {
    /// Counts what one connection has to tell, in bytes.
    pub fn add(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        if let Some((count, sum)) = self.buckets.get_mut((u64::BITS - bytes.leading_zeros()) as usize) {
            *count += 1;
            *sum = sum.saturating_add(bytes);
        }
    }

    /// Counts another core's, too.
    pub fn merge(&mut self, other: &Self) {
        for ((count, sum), (more, bytes)) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
            *sum = sum.saturating_add(*bytes);
        }
    }

    /// The most bytes that every connection may have so that all together stay within `bytes_max`. At least `bytes_max`
    /// if nothing need be left out.
    #[must_use]
    pub fn share(&self, bytes_max: usize) -> usize {
        let bytes_max = bytes_max as u64;
        let (mut fits, mut over) = (0, bytes_max + 1);
        while over - fits > 1 {
            let middle = fits + (over - fits) / 2;
            *(if self.cost(middle) <= bytes_max { &mut fits } else { &mut over }) = middle;
        }
        usize::try_from(fits).unwrap_or(usize::MAX)
    }

    /// What that share for everybody costs at most.
    fn cost(&self, share: u64) -> u64 {
        let costs = self.buckets.iter().map(|(count, sum)| (*sum).min(count.saturating_mul(share)));
        costs.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(all: &[usize]) -> Sizes {
        let mut sizes = Sizes::default();
        all.iter().for_each(|bytes| sizes.add(*bytes));
        sizes
    }

    #[test]
    fn who_has_most_gives_way_and_nobody_else() {
        assert_eq!(sizes(&[]).share(100), 100);
        assert_eq!(sizes(&[40, 60]).share(100), 100, "all fits");
        assert_eq!(sizes(&[10, 10, 1000]).share(100), 80);
        assert_eq!(sizes(&[10, 500, 1000]).share(100), 45);
        assert_eq!(sizes(&[1000; 7]).share(100), 14);
        assert_eq!(sizes(&[1000; 200]).share(100), 0);
    }

    proptest! {
        #[test]
        fn shares_fit_and_are_all_there_is_if_that_fits(
            all in prop::collection::vec(0usize..5000, 0..40),
            others in prop::collection::vec(0usize..5000, 0..40),
            bytes_max in 0usize..50_000,
        ) {
            let mut both = sizes(&all);
            both.merge(&sizes(&others));
            let share = both.share(bytes_max);
            let total: usize = all.iter().chain(&others).map(|bytes| *bytes.min(&share)).sum();
            prop_assert!(total <= bytes_max);
            if all.iter().chain(&others).sum::<usize>() <= bytes_max {
                prop_assert_eq!(share, bytes_max);
            }
        }
    }
}
