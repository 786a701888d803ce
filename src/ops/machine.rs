//! What the machine offers the process: processors, and file descriptors.
//!
//! The soft descriptor limit is often a small default that only old programs need (1024); a server wants what the
//! hard limit allows, so [`Machine::probe`] raises it, once, at start.

use std::num::NonZero;
use std::thread;

use crate::limits::CORES_MAX;

/// Descriptors that are never a client's: standard streams, the store of configuration files at start, log, and what
/// a library opens for a moment.
const DESCRIPTORS_PROCESS: u64 = 64;
/// Descriptors of one core beside its connections: poll, waker, listener, the reserve for answering when descriptors
/// run out, and guests (`engine/accept.rs`).
const DESCRIPTORS_PER_CORE: u64 = 16;

/// What the defaults of the configuration depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Processors this process may use, 1 to [`CORES_MAX`].
    pub cores: usize,
    /// Open descriptors this process may have.
    pub descriptors: u64,
}

impl Machine {
    /// Asks the system, raising the soft descriptor limit to the hard one. Where it refuses to answer: one core, and
    /// the smallest descriptor limit in use.
    #[must_use]
    pub fn probe() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get).min(CORES_MAX);
        let descriptors = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(1024);
        Self { cores, descriptors }
    }

    /// How many connections the descriptors allow with that many cores: what is left beside the process's own, and at
    /// least 1.
    #[must_use]
    pub fn connections(&self, cores: usize) -> usize {
        let cores = u64::try_from(cores).unwrap_or(u64::MAX);
        let own = cores.saturating_mul(DESCRIPTORS_PER_CORE).saturating_add(DESCRIPTORS_PROCESS);
        usize::try_from(self.descriptors.saturating_sub(own)).unwrap_or(usize::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_the_process_and_its_cores() {
        let machine = Machine { cores: 2, descriptors: 20_000 };
        assert_eq!(machine.connections(2), 20_000 - 64 - 32);
        assert_eq!(machine.connections(64), 20_000 - 64 - 1024);
        assert_eq!(Machine { cores: 1, descriptors: 10 }.connections(1), 1);
        assert!(Machine { cores: 1, descriptors: u64::MAX }.connections(1) > 1_000_000);
    }

    #[test]
    fn a_probe_answers_within_the_bounds() {
        let machine = Machine::probe();
        assert!((1..=CORES_MAX).contains(&machine.cores));
        assert!(machine.descriptors > 0);
    }
}
