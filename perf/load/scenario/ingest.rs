//! Publishers alone: what admission costs.

use super::{troubles, warm_up};
use crate::load::arguments::{Common, LoadArgs};
use crate::load::failure::Failure;
use crate::load::publishers::Pace;
use crate::load::report::Report;
use crate::load::rig::Rig;

pub(super) fn run(common: &Common, load: &LoadArgs) -> Result<Report, Failure> {
    let rig = Rig::new(common, load.sessions_for(None)?)?;
    let mut report = Report::new("ingest");
    let mut press = rig.press(load)?;
    let pace = Pace::new(load);
    warm_up(&rig, &mut press, pace, load.warmup)?;
    let span = rig.publish(&mut press, &pace, "publishing")?;
    rig.finish(&mut report);
    report.figure("published", span.sent as f64);
    report.figure("megabytes_per_s", press.bytes as f64 / 1e6 / span.seconds);
    if let Some(cpu) = span.server_cpu.filter(|cpu| !cpu.is_zero()) {
        report.figure("megabytes_per_server_cpu_s", press.bytes as f64 / 1e6 / cpu.as_secs_f64());
    }
    report.span(span);
    report.percentiles("answer", &press.answering);
    troubles(&mut report, &rig);
    Ok(report)
}
