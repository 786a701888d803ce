//! Publishers, and consumers that each receive what they follow.

use super::{expected, troubles, warm_up};
use crate::load::arguments::{Common, ConsumerArgs, LoadArgs};
use crate::load::consumers::plans;
use crate::load::failure::Failure;
use crate::load::publishers::Pace;
use crate::load::report::Report;
use crate::load::rig::Rig;

pub(super) fn run(common: &Common, consumers: &ConsumerArgs, load: &LoadArgs) -> Result<Report, Failure> {
    let rig = Rig::new(common, load.sessions_for(Some(consumers))?)?;
    let mut report = Report::new("fanout");
    let memory = rig.server_memory();
    let fleet = rig.open(plans(consumers, rig.shared.run, rig.sessions))?;
    report.memory(memory, rig.server_memory(), consumers.consumers.into());
    let mut press = rig.press(load)?;
    let pace = Pace::new(load);
    warm_up(&rig, &mut press, pace, load.warmup)?;
    let span = rig.publish(&mut press, &pace, "publishing")?;
    let seen = fleet.finish();
    rig.finish(&mut report);
    report.figure("published", rig.shared.published().iter().sum::<u64>() as f64);
    report.seen(&seen, expected(&rig, &seen));
    report.span(span);
    report.latency(seen.latency, &press.own_lag);
    troubles(&mut report, &rig);
    Ok(report)
}
