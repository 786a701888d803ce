//! Consumers that begin with a long replay, or cut their connection again and again and resume where they were.

use std::time::Duration;

use super::{expected, troubles, warm_up};
use crate::load::arguments::{Common, ConsumerArgs, LoadArgs};
use crate::load::consumers::plans;
use crate::load::failure::Failure;
use crate::load::publishers::Pace;
use crate::load::report::Report;
use crate::load::rig::Rig;
use crate::load::target::Kind;

/// Events of one batch of the preload.
const PRELOAD_BATCH: u32 = 500;

pub(super) fn run(
    common: &Common,
    consumers: &ConsumerArgs,
    load: &LoadArgs,
    preload: u64,
    cut_every: u64,
) -> Result<Report, Failure> {
    let rig = Rig::new(common, load.sessions_for(Some(consumers))?)?;
    let replays = rig.target.kind == Kind::Bare && cut_every == 0;
    if !rig.target.is_relay() && !replays {
        return Err(Failure::Usage("resume: only a relay resumes; the bare loop replays (--cut-every 0)".into()));
    }
    let mut report = Report::new("resume");
    let mut press = rig.press(load)?;
    let pace = Pace::new(load);
    if preload > 0 {
        let all = Pace { batch: PRELOAD_BATCH, rate: None, window: None, duration: Duration::MAX, events: preload };
        rig.publish(&mut press, &all, "preloading")?;
    }
    let mut plans = plans(consumers, rig.shared.run, rig.sessions);
    for plan in &mut plans {
        plan.from_beginning = preload > 0;
        plan.cut_every = (cut_every > 0).then_some(cut_every);
    }
    let (fleet, replay) = rig.measured_opening(plans, None, true)?;
    if preload > 0 {
        report.figure("replayed", replay.delivered as f64);
        report.figure("replayed_per_s", replay.delivered as f64 / replay.seconds);
        if let Some(cpu) = replay.server_cpu {
            report.figure("server_cpu_us_per_replayed", cpu.as_secs_f64() * 1e6 / replay.delivered as f64);
        }
    }
    let live = cut_every > 0;
    let mut span = replay;
    if live {
        warm_up(&rig, &mut press, pace, load.warmup)?;
        span = rig.publish(&mut press, &pace, "publishing")?;
    }
    let seen = fleet.finish()?;
    rig.finish();
    report.figure("published", rig.shared.published().iter().sum::<u64>() as f64);
    report.seen(&seen, expected(&rig, &seen));
    report.span(span);
    report.percentiles("opening", &seen.opening);
    if live {
        // After a cut an event's latency includes the time its consumer was away.
        report.latency(seen.latency, &press.own_lag);
    }
    troubles(&mut report, &rig);
    Ok(report)
}
