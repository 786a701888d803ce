//! Connections that are opened and held: how fast they open, and what an idle one costs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::troubles;
use crate::load::arguments::{Common, ConsumerArgs};
use crate::load::consumers::plans;
use crate::load::failure::Failure;
use crate::load::report::Report;
use crate::load::rig::Rig;

pub(super) fn run(
    common: &Common,
    consumers: &ConsumerArgs,
    ramp: Option<u32>,
    hold: Duration,
) -> Result<Report, Failure> {
    let rig = Rig::new(common, consumers.consumers)?;
    let mut report = Report::new("connect");
    let memory = rig.server_memory();
    let mut plans = plans(consumers, rig.shared.run, rig.sessions);
    for plan in &mut plans {
        // Nothing is published, so nobody's account needs room for sessions.
        plan.follows = crate::load::check::Follows::none();
    }
    let (fleet, opening) = rig.measured_opening(plans, ramp.map(f64::from), false)?;
    let connections = rig.shared.open.load(Ordering::SeqCst);
    report.figure("opened", connections as f64);
    report.figure("opened_per_s", connections as f64 / opening.seconds);
    if let Some(cpu) = opening.server_cpu {
        report.figure("server_cpu_us_per_opening", cpu.as_secs_f64() * 1e6 / connections as f64);
    }
    let held = if rig.is_cut_short() { None } else { Some(rig.hold(hold)?) };
    report.memory(memory, rig.server_memory(), connections);
    if let Some((cpu, seconds)) = held.and_then(|held| Some((held.server_cpu?, held.seconds))) {
        report.figure("server_cpu_share_held", cpu.as_secs_f64() / seconds);
    }
    let seen = fleet.finish();
    rig.finish(&mut report);
    report.percentiles("opening", &seen.opening);
    // A server that ended them all has ended itself: that is an incomplete run, and no fault.
    let ended = rig.shared.ended.load(Ordering::SeqCst);
    report.sound = ended == 0 || ended == connections;
    troubles(&mut report, &rig);
    Ok(report)
}
