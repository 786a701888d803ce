//! What the machine offers the process: processors, file descriptors, memory.
//!
//! The soft descriptor limit is often a small default that only old programs need (1024); a server wants what the
//! hard limit allows, so [`Machine::probe`] raises it, once, at start.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::thread;

use crate::limits::CORES_MAX;

/// Descriptors that are never a client's: standard streams, signals, and what a library opens for a moment.
const DESCRIPTORS_PROCESS: u64 = 64;
/// Descriptors of one core beside its connections: poll, waker, listener, the reserve for answering when descriptors
/// run out, and guests (`engine/core/accept.rs`).
const DESCRIPTORS_PER_CORE: u64 = 16;

/// Where control groups are mounted.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// What the defaults of the configuration depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Processors this process may use, 1 to [`CORES_MAX`].
    pub cores: usize,
    /// Open descriptors this process may have.
    pub descriptors: u64,
    /// Bytes of memory it may have: the least of what its control groups, its limit of address space and the machine's
    /// memory allow.
    pub memory: u64,
}

impl Machine {
    /// Asks the system, raising the soft descriptor limit to the hard one. Where it refuses to answer: one core, and
    /// the smallest descriptor limit in use.
    #[must_use]
    pub fn probe() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get).min(CORES_MAX);
        let descriptors = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(1024);
        Self { cores, descriptors, memory: memory() }
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

/// What cannot be read limits nothing.
fn memory() -> u64 {
    let space = rlimit::Resource::AS.get_soft().unwrap_or(u64::MAX);
    let installed = fs::read_to_string("/proc/meminfo").ok().and_then(|text| installed(&text)).unwrap_or(u64::MAX);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    space.min(installed).min(group_limit(&groups, |file| fs::read_to_string(Path::new(CONTROL_GROUPS).join(file)).ok()))
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn installed(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok().map(|kib: u64| kib.saturating_mul(1024))
}

/// The least limit of the process's control groups and all above them, of either version, given `/proc/self/cgroup`. In
/// a container that file may tell of groups that are not to be seen from within; the uppermost that is to be seen is
/// then its own.
fn group_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> u64 {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, Path::new(parts.next()?.trim_start_matches('/')));
        let (mount, file) = match controllers {
            "" => ("", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => ("memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        // Without a limit the file says `max`, or a number that no machine reaches.
        let limits =
            path.ancestors().filter_map(|group| read(&Path::new(mount).join(group).join(file))?.trim().parse().ok());
        limits.min()
    });
    limits.min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_the_process_and_its_cores() {
        let machine = Machine { cores: 2, descriptors: 20_000, memory: 0 };
        assert_eq!(machine.connections(2), 20_000 - 64 - 32);
        assert_eq!(machine.connections(64), 20_000 - 64 - 1024);
        assert_eq!(Machine { cores: 1, descriptors: 10, memory: 0 }.connections(1), 1);
        assert!(Machine { cores: 1, descriptors: u64::MAX, memory: 0 }.connections(1) > 1_000_000);
    }

    #[test]
    fn a_probe_answers_within_the_bounds() {
        let machine = Machine::probe();
        assert!((1..=CORES_MAX).contains(&machine.cores));
        assert!(machine.descriptors > 0);
        assert!((1 << 20..u64::MAX).contains(&machine.memory), "{}", machine.memory);
    }

    #[test]
    fn the_installed_memory_is_read_in_kib() {
        assert_eq!(installed("MemFree: 1 kB\nMemTotal:       24683404 kB\n"), Some(24_683_404 << 10));
        assert_eq!(installed("MemTotal: much"), None);
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_counts() {
        let limit = |groups: &str, files: &[(&str, &str)]| {
            group_limit(groups, |file| {
                let (_, text) = files.iter().find(|(path, _)| Path::new(path) == file)?;
                Some(format!("{text}\n"))
            })
        };
        let unified = [("memory.max", "max"), ("a/memory.max", "300"), ("a/b/memory.max", "400")];
        assert_eq!(limit("0::/a/b\n", &unified), 300);
        assert_eq!(limit("0::/\n", &unified), u64::MAX);
        let first =
            [("memory/memory.limit_in_bytes", "9223372036854771712"), ("memory/x/memory.limit_in_bytes", "500")];
        assert_eq!(limit("5:devices:/y\n4:cpu,memory:/x\n0::/\n", &first), 500);
        // A container of the first version that sees its own group as the uppermost one.
        assert_eq!(limit("4:memory:/docker/0123\n", &[("memory/memory.limit_in_bytes", "700")]), 700);
        assert_eq!(limit("", &[]), u64::MAX);
    }
}
