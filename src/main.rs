//! Start-up: arguments and environment → [`Config`] → [`server::run`] → exit status.

use std::io::{self, Write as _};
use std::process::ExitCode;

use aep_relay::ops::config::Config;
use aep_relay::ops::log;
use aep_relay::server;

fn main() -> ExitCode {
    let config = match Config::from_process() {
        Ok(config) => config,
        Err(stop) => return stop.report(),
    };
    if let Err(error) = log::start(&config.log) {
        // There is no log to say it in.
        let _unread = writeln!(io::stderr(), "aep-relay: cannot start a thread: {error}");
        return ExitCode::FAILURE;
    }
    let status = server::run(config);
    log::flush();
    status
}
