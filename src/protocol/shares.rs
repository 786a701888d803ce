//! Which protocol writes into which lanes of a core, and paces in which group: one table, so that no two meet.
//!
//! Invariant: no lane and no group is in two rows (checked when this is compiled).

use crate::engine::service::{GROUPS, Group, LANES, Lane};

/// A protocol's part of what all share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its pace group.
    pub group: Group,
    first_lane: u8,
    lanes: u8,
}

/// The activity relay's.
pub const ACTIVITY: Share = Share { group: Group(0), first_lane: 0, lanes: 12 };

/// Every protocol of the process.
const TABLE: &[Share] = &[ACTIVITY];

const _: () = {
    let mut next_lane = 0;
    let mut row = 0;
    while row < TABLE.len() {
        assert!(TABLE[row].group.0 as usize == row && row < GROUPS, "a group for each");
        assert!(TABLE[row].first_lane as usize == next_lane, "lanes follow each other");
        next_lane += TABLE[row].lanes as usize;
        assert!(next_lane <= LANES, "there are lanes for all");
        row += 1;
    }
};

impl Share {
    /// How many lanes it has.
    #[must_use]
    pub const fn lanes(self) -> usize {
        self.lanes as usize
    }

    /// Its lane of that number, `0 .. lanes`.
    #[must_use]
    pub fn lane(self, number: usize) -> Lane {
        debug_assert!(number < self.lanes(), "a lane of its own");
        Lane(self.first_lane + u8::try_from(number).unwrap_or(0).min(self.lanes - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_its_lanes_and_no_other() {
        let share = Share { group: Group(1), first_lane: 12, lanes: 2 };
        assert_eq!((share.lane(0), share.lane(1)), (Lane(12), Lane(13)));
    }

    #[test]
    #[should_panic(expected = "a lane of its own")]
    fn a_lane_of_another_is_refused() {
        let _ = Share { group: Group(1), first_lane: 12, lanes: 2 }.lane(2);
    }
}
