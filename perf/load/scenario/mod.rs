//! What can be done with a server: one file per scenario, each from arguments to report.

mod connect;
mod fanout;
mod idle_match;
mod ingest;
mod resume;
mod slow;

use super::arguments::{Command, Common};
use super::consumers::Seen;
use super::failure::Failure;
use super::publishers::{Pace, Press};
use super::report::Report;
use super::rig::Rig;

/// Descriptors a run needs beside its connections.
const SPARE_DESCRIPTORS: u64 = 32;

/// Runs a scenario, with that many `descriptors` to use.
pub(crate) fn run(command: &Command, common: &Common, descriptors: u64) -> Result<Report, Failure> {
    let needed = match command {
        Command::Fanout { consumers, load }
        | Command::Resume { consumers, load, .. }
        | Command::Slow { consumers, load, .. } => u64::from(consumers.consumers) + u64::from(load.publishers),
        Command::Ingest { load } => load.publishers.into(),
        Command::Connect { consumers, .. } => consumers.consumers.into(),
        Command::IdleMatch { load, subscriptions, per_connection, .. } => {
            u64::from(load.publishers) + u64::from(subscriptions.div_ceil(*per_connection))
        }
    };
    if needed + SPARE_DESCRIPTORS > descriptors {
        return Err(Failure::Usage(format!(
            "{needed} connections need more descriptors than the {descriptors} this process may have (ulimit -Hn)"
        )));
    }
    match command {
        Command::Fanout { consumers, load } => fanout::run(common, consumers, load),
        Command::Ingest { load } => ingest::run(common, load),
        Command::Connect { consumers, ramp, hold } => connect::run(common, consumers, *ramp, *hold),
        Command::Resume { consumers, load, preload, cut_every } => {
            resume::run(common, consumers, load, *preload, *cut_every)
        }
        Command::Slow { consumers, load, stalled } => slow::run(common, consumers, load, *stalled),
        Command::IdleMatch { load, subscriptions, per_connection, shape } => {
            idle_match::run(common, load, *subscriptions, *per_connection, *shape)
        }
    }
}

/// Publishes the warm-up, if there is one.
fn warm_up(rig: &Rig<'_>, press: &mut Press, pace: Pace, time: std::time::Duration) -> Result<(), Failure> {
    if !time.is_zero() {
        rig.prepare(press, &Pace { duration: time, events: u64::MAX, ..pace }, "warming up")?;
    }
    Ok(())
}

/// Notes what went wrong without ending the run.
fn troubles(report: &mut Report, rig: &Rig<'_>) {
    let ended = rig.shared.ended.load(std::sync::atomic::Ordering::SeqCst);
    if ended > 0 {
        report.figure("connections_ended_by_server", ended as f64);
    }
    report.notes.extend(rig.shared.troubles());
}

/// Deliveries that were due.
fn expected(rig: &Rig<'_>, seen: &Seen) -> u64 {
    rig.shared.due.load(std::sync::atomic::Ordering::SeqCst).max(seen.tally.delivered)
}
