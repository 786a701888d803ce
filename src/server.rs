//! The composition root: builds the floors, starts the cores, and stops them in order. It alone knows everybody.
//!
//! Start: configuration → what all cores share → the port → cores, each with a gateway in front of a relay → signals →
//! the boot line. Stop: a signal → the engine drains (`engine/core/drain.rs` holds the order) → exit status.

use std::process::ExitCode;
use std::sync::Arc;

use crate::engine::service::CoreId;
use crate::engine::{Engine, EngineConfig, Outcome, StartError};
use crate::gateway::{Absent, Gateway, GatewayConfig, Protocols};
use crate::ops::auth::Access;
use crate::ops::config::Config;
use crate::ops::log::{self, Lines};
use crate::ops::metrics::Metrics;
use crate::ops::shutdown;
use crate::relay::{Relay, Shared};

/// Serves until a signal ends it. Exit status 0: drained; 1: not drained in time, or not started.
#[must_use]
pub fn run(config: Config) -> ExitCode {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    for notice in config.notices() {
        tracing::info!("{notice}");
    }
    tracing::debug!("{}", config.budget());
    match start(config) {
        Ok(running) => running.serve(),
        Err(error) => {
            // Said whatever the log level: whoever starts a process that does not come up has to learn why.
            log::say(format_args!("aep-relay: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// A process that listens.
struct Running {
    engine: Engine,
    boot_line: String,
}

fn start(config: Config) -> Result<Running, StartError> {
    let address = config.address();
    let Config { host, token, cores, origins, hosts, metrics: serves_metrics, limits, .. } = config;
    let access = Access::new(token);
    let control = access.control_enabled();
    let metrics = Metrics::new(cores);
    let shared = Arc::new(Shared::new(limits.clone(), cores, control));
    let exposition = serves_metrics.then(|| metrics.clone());
    let gateway = Arc::new(GatewayConfig { access, origins, hosts, exposition });
    let bound = Engine::bind(EngineConfig { address, cores, limits }, &metrics)?;
    let engine = bound.start(|core: CoreId| {
        let metrics = metrics.core(usize::from(core.0));
        let relay = Relay::new(core, Arc::clone(&shared), metrics);
        Gateway::new(Arc::clone(&gateway), Protocols::new(relay, Absent, Absent))
    })?;
    let control = if control { "control enabled" } else { "watch-only: set AEP_TOKEN to enable control" };
    let port = engine.address().port();
    let cores = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
    let boot_line = format!("aep-relay on http://{host}:{port} ({cores}, {control})");
    Ok(Running { engine, boot_line })
}

impl Running {
    fn serve(self) -> ExitCode {
        let Self { engine, boot_line } = self;
        let stopper = engine.stopper();
        if let Err(error) = shutdown::on_signals(move || stopper.stop()) {
            tracing::error!("cannot listen for signals: {error}");
            return ExitCode::FAILURE;
        }
        // Whoever started the process may have closed its end, or read it never; the relay serves all the same.
        let stdout = match Lines::to(std::io::stdout(), "boot-line") {
            Ok(stdout) => stdout,
            Err(error) => {
                log::say(format_args!("aep-relay: cannot start a thread: {error}"));
                return ExitCode::FAILURE;
            }
        };
        stdout.push(format!("{boot_line}\n").as_bytes());
        let outcome = engine.join();
        stdout.flush();
        match outcome {
            Outcome::Drained => {
                tracing::info!("drained");
                ExitCode::SUCCESS
            }
            Outcome::TimedOut => {
                tracing::warn!("not drained within the drain time");
                ExitCode::FAILURE
            }
        }
    }
}
