//! Signals → the drain, or the end (contract §1, Shutdown).
//!
//! Owns the signal handlers and one thread that waits for them. The first SIGTERM, SIGINT or SIGHUP begins the drain
//! through the closure handed in; whoever sends a second one does not want to wait for it. How the drain goes on from
//! there, and its deadline, are the engine's ([`crate::limits::Limits::drain_time`]).
//!
//! A SIGHUP that was ignored before the start, as under `nohup`, stays ignored: it was meant to.

use std::fs;
use std::io;
use std::process;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::ops::log;

/// Takes over SIGTERM, SIGINT and SIGHUP for the rest of the process. `drain` is called once, from a thread of its own.
///
/// Call it before the boot line is printed: whoever waits for that line may signal right after.
///
/// # Errors
/// The handlers or the thread could not be set up.
pub fn on_signals(drain: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    if !fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores(&status, SIGHUP)) {
        signals.add_signal(SIGHUP)?;
    }
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut drain = Some(drain);
        for _ in signals.forever() {
            if let Some(drain) = drain.take() {
                tracing::info!(phase = %"Draining", "signal received");
                drain();
            } else {
                tracing::info!(phase = %"Abandoned", "signal received");
                log::flush();
                process::exit(1);
            }
        }
    })?;
    Ok(())
}

/// Whether a process of that `/proc/PID/status` ignores the signal.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_their_mask() {
        let status = "Name:\taep-relay\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert!(ignores(status, SIGHUP) && !ignores(status, SIGINT) && !ignores("", SIGHUP));
    }
}
