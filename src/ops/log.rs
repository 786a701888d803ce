//! Log lines: one a line on standard error, with time, level and module.
//!
//! Standard output carries the boot line alone, so that a supervisor can wait for it. Callers keep tokens, payloads,
//! queries and header fields out of what they log; the filter (`AEP_LOG`) only chooses how much is shown.

use std::io;

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

/// Starts logging through that filter for the rest of the process; a second call changes nothing.
pub fn start(filter: &str) {
    let Ok(filter) = EnvFilter::try_new(filter) else { return };
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // A failed write would be reported on the stream that just failed, and panic there.
        .log_internal_errors(false)
        .try_init();
    // Someone else in this process logs already (a test): theirs stays.
    drop(started);
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
