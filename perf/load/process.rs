//! CPU and memory of processes, and what machine this is, read from `/proc`.
//!
//! CPU comes from the scheduler's own account of each thread (`schedstat`, nanoseconds) where the kernel keeps one,
//! otherwise from `stat` (ticks of 10 ms). A thread that ends takes its account along; servers under test keep theirs.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Length of a tick in `stat`; Linux shows 100 a second everywhere.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of all threads of these processes together.
pub(crate) fn cpu(pids: &[u32]) -> Duration {
    pids.iter().map(|&pid| threads_cpu(pid).map_or_else(|| stat_cpu(pid), |threads| threads.values().sum())).sum()
}

/// CPU time of each of our own threads, by its number.
pub(crate) fn own_threads_cpu() -> HashMap<u32, Duration> {
    threads_cpu(std::process::id()).unwrap_or_default()
}

/// CPU time of the calling thread.
pub(crate) fn this_thread_cpu() -> Duration {
    thread_cpu(Path::new("/proc/thread-self")).unwrap_or_default()
}

/// Memory these processes hold: proportional share where the kernel tells it, resident otherwise. Bytes.
pub(crate) fn memory(pids: &[u32]) -> u64 {
    pids.iter()
        .map(|pid| {
            let kibibytes = field(Path::new(&format!("/proc/{pid}/smaps_rollup")), "Pss:")
                .or_else(|| field(Path::new(&format!("/proc/{pid}/status")), "VmRSS:"));
            kibibytes.unwrap_or(0) * 1024
        })
        .sum()
}

/// This machine in a few words: processor, processors we may use, kernel.
pub(crate) fn machine() -> String {
    let model = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = format!("{} processors", std::thread::available_parallelism().map_or(1, usize::from));
    let kernel = format!("{} {}", std::env::consts::OS, kernel.trim());
    model.map(|(_, model)| model.to_owned()).into_iter().chain([processors, kernel]).collect::<Vec<_>>().join(", ")
}

/// Whether all of them can be looked at.
pub(crate) fn first_absent(pids: &[u32]) -> Option<u32> {
    pids.iter().copied().find(|pid| !Path::new(&format!("/proc/{pid}/stat")).exists())
}

fn threads_cpu(pid: u32) -> Option<HashMap<u32, Duration>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let cpu: HashMap<u32, Duration> = threads
        .flatten()
        .filter_map(|thread| Some((thread.file_name().to_str()?.parse().ok()?, thread_cpu(&thread.path())?)))
        .collect();
    (!cpu.is_empty()).then_some(cpu)
}

fn thread_cpu(thread: &Path) -> Option<Duration> {
    let account = fs::read_to_string(thread.join("schedstat")).ok()?;
    account.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

fn stat_cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command's name may hold anything, so fields count from its closing parenthesis: state is the first.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u32 = behind.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
    TICK * ticks
}

fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_has_cpu_and_memory() {
        let own = [std::process::id()];
        let mut sum = 0_u64;
        while cpu(&own).is_zero() {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(memory(&own) > 1 << 16);
        assert_eq!(first_absent(&own), None);
        assert_eq!(first_absent(&[u32::MAX]), Some(u32::MAX));
        assert_eq!(cpu(&[u32::MAX]), Duration::ZERO);
    }
}
