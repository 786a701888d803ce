//! The composition root: builds the floors, starts the cores, and stops them in order.

use std::process::ExitCode;

use crate::ops::config::Config;

/// Serves until a signal ends it.
#[must_use]
pub fn run(config: Config) -> ExitCode {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    tracing::error!("this build has no server");
    ExitCode::FAILURE
}
