//! The generator, from arguments to exit status.
//!
//! * [`arguments`]: what is asked for; [`target`]: how each kind of server wants to be spoken to.
//! * [`event`], [`check`]: the events of a run, and the account of what reached each consumer.
//! * [`decode`]: bytes of a stream → what they say; sans-IO.
//! * [`consumers`], [`publishers`]: the two sides of the load, non-blocking sockets in a few threads.
//! * [`process`]: CPU and memory of processes, the server's and our own.
//! * [`rig`]: both sides together, watched; [`scenario`]: what is done with them.
//! * [`report`]: figures as text, JSON and one HTML page.

mod arguments;
mod check;
mod consumers;
mod decode;
mod event;
mod failure;
mod process;
mod publishers;
mod report;
mod rig;
mod scenario;
mod shared;
mod target;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use arguments::Arguments;
use failure::Failure;

/// Status of a run in which something was lost, doubled, out of order or damaged.
const FAULTY: u8 = 1;
/// Status of a run that could not be made.
const NOT_MADE: u8 = 2;

/// Runs what the process was started for.
pub(crate) fn run() -> ExitCode {
    match load(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAULTY),
        Err(failure) => {
            // With a closed stderr there is nobody left to tell; the status says it.
            let _unread = writeln!(std::io::stderr(), "aep-load: {failure}");
            ExitCode::from(NOT_MADE)
        }
    }
}

/// `true` when every event arrived once, whole and in order.
fn load(arguments: &Arguments) -> Result<bool, Failure> {
    // As far as the hard limit allows; what is still missing shows as a clear error of the connection that failed.
    let descriptors = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(0);
    let report = scenario::run(&arguments.command, &arguments.common, descriptors)?;
    report.deliver(&arguments.common)?;
    Ok(report.sound)
}
