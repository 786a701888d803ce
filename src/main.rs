//! Start-up: arguments and environment → [`Config`] → [`server::run`] → exit status.

use std::process::ExitCode;

use aep_relay::ops::config::Config;
use aep_relay::ops::log;
use aep_relay::server;

fn main() -> ExitCode {
    let config = match Config::from_process() {
        Ok(config) => config,
        Err(stop) => return stop.report(),
    };
    log::start(&config.log);
    server::run(config)
}
