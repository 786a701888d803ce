//! Log lines: one a line on standard error, with time, level and module.
//!
//! Standard output carries the boot line alone, so that a supervisor can wait for it. Callers keep tokens, payloads,
//! queries and header fields out of what they log; the filter (`AEP_LOG`) only chooses how much is shown.
//!
//! Invariant: who logs never waits for who reads ([`Lines`]). What ends the process calls [`flush`] first, so that its
//! last lines come out wherever somebody does read.

mod lines;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::io;
use std::panic;
use std::sync::OnceLock;

pub use lines::Lines;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What a filter may be, for the line that refuses anything else.
pub const FILTER_ACCEPTED: &str =
    "error, warn, info, debug, trace, off, or filter directives such as info,aep_relay::engine=debug";

/// Whether a filter can be understood.
#[must_use]
pub fn is_filter(text: &str) -> bool {
    EnvFilter::try_new(text).is_ok() && text.split(',').all(is_level_or_directive)
}

/// A bare word that is no level would be taken as a module's name, and so silence all others.
fn is_level_or_directive(part: &str) -> bool {
    let part = part.trim();
    part.contains(['=', '[']) || part.starts_with("aep_relay") || part.parse::<LevelFilter>().is_ok()
}

/// The lines of standard error, from [`start`] on.
static LINES: OnceLock<Lines> = OnceLock::new();

/// Starts logging through that filter for the rest of the process; a second call changes nothing. Panics are logged
/// too, whatever the filter: the default would wait for a full pipe, and with it whoever waits for the thread that
/// panicked.
///
/// # Errors
/// The process may have no further thread.
pub fn start(filter: &str) -> io::Result<()> {
    let Ok(filter) = EnvFilter::try_new(filter) else { return Ok(()) };
    let lines = Lines::to(io::stderr(), "log")?;
    if LINES.set(lines).is_err() {
        return Ok(());
    }
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Line)
        // A failed write would be reported on the stream that just failed, and panic there.
        .log_internal_errors(false)
        .try_init();
    // Someone else in this process logs already (a test): theirs stays.
    drop(started);
    panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        let thread = std::thread::current();
        say(format_args!("thread '{}' {panic}", thread.name().unwrap_or("without a name")));
        if backtrace.status() == BacktraceStatus::Captured {
            say(backtrace);
        }
        flush();
    }));
    Ok(())
}

/// A line for whoever has to see it whatever the filter; before [`start`] nobody does.
pub fn say(what: impl Display) {
    if let Some(lines) = LINES.get() {
        lines.push(format!("{what}\n").as_bytes());
    }
}

/// Waits, not for long, until everything logged so far is written: see [`Lines::flush`].
pub fn flush() {
    if let Some(lines) = LINES.get() {
        lines.flush();
    }
}

/// How many lines were left out so far because nobody read those before.
#[must_use]
pub fn left_out() -> u64 {
    LINES.get().map_or(0, Lines::left_out)
}

/// Takes the lines that `tracing` formats, each whole in one call.
struct Line;

impl io::Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(lines) = LINES.get() {
            lines.push(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives_are_filters_and_nonsense_is_not() {
        for text in ["info", "off", "warn,aep_relay::engine=debug", "aep_relay=trace"] {
            assert!(is_filter(text), "{text}");
        }
        for text in ["aep_relay=loud", "=", "a=b=c", "info,[x", "inof", "verbose", "info,verbose"] {
            assert!(!is_filter(text), "{text}");
        }
    }
}
