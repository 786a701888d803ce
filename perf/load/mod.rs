//! The generator, from arguments to exit status.
//!
//! * [`arguments`]: what is asked for; [`target`]: how each kind of server wants to be spoken to.
//! * [`event`], [`check`]: the events of a run, and the account of what reached each consumer.
//! * [`decode`]: bytes of a stream → what they say; sans-IO.
//! * [`consumers`], [`publishers`]: the two sides of the load, non-blocking sockets in a few threads.
//! * [`interrupt`]: signals; [`process`]: CPU and memory of processes, the server's and our own.
//! * [`rig`]: both sides together, watched, a [`span`] at a time; [`scenario`]: what is done with them.
//! * [`report`]: figures as text, JSON and one HTML page.

mod arguments;
mod check;
mod consumers;
mod decode;
mod event;
mod failure;
mod interrupt;
mod process;
mod publishers;
mod report;
mod rig;
mod scenario;
mod shared;
mod span;
mod target;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use arguments::Arguments;
use failure::Failure;
use report::{Page, Verdict};

/// Status of a run in which something was lost, doubled, out of order or damaged.
const FAULTY: u8 = 1;
/// Status of a run that could not be made, or not to its end.
const NOT_MADE: u8 = 2;

/// Runs what the process was started for.
pub(crate) fn run() -> ExitCode {
    match load(&Arguments::parse()) {
        Ok(Verdict::Sound) => ExitCode::SUCCESS,
        Ok(Verdict::Faulty) => ExitCode::from(FAULTY),
        Ok(Verdict::Incomplete(why)) => {
            tell(&format!("incomplete: {why}"));
            ExitCode::from(NOT_MADE)
        }
        Err(Failure::Interrupted) => {
            tell("interrupted before anything was measured");
            ExitCode::from(NOT_MADE)
        }
        Err(failure) => {
            tell(&failure.to_string());
            ExitCode::from(NOT_MADE)
        }
    }
}

fn tell(what: &str) {
    // With a closed stderr there is nobody left to tell; the status says it.
    let _unread = writeln!(std::io::stderr(), "aep-load: {what}");
}

/// Runs the scenario and delivers its report.
fn load(arguments: &Arguments) -> Result<Verdict, Failure> {
    let common = &arguments.common;
    interrupt::on_signals(&common.interrupted, NOT_MADE).map_err(|error| Failure::Local("signal handlers", error))?;
    let page = common.report.as_deref().map(Page::open).transpose()?;
    // As far as the hard limit allows; what is still missing shows as a clear error of the connection that failed.
    let descriptors = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(0);
    let report = scenario::run(&arguments.command, common, descriptors)?;
    report.print(common.json)?;
    page.map_or(Ok(()), |page| page.write(&report))?;
    Ok(report.verdict())
}
