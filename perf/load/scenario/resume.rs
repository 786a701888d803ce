//! Consumers that begin with a long replay, or cut their connection again and again and resume where they were.

use std::time::Duration;

use super::{expected, troubles, warm_up};
use crate::load::arguments::{Common, ConsumerArgs, Kind, LoadArgs};
use crate::load::consumers::plans;
use crate::load::failure::Failure;
use crate::load::publishers::Pace;
use crate::load::report::Report;
use crate::load::rig::Rig;
use crate::load::span::Span;

/// Events of one batch of the preload.
const PRELOAD_BATCH: u32 = 500;

pub(super) fn run(
    common: &Common,
    consumers: &ConsumerArgs,
    load: &LoadArgs,
    preload: u64,
    cut_every: u64,
) -> Result<Report, Failure> {
    let usage = |what: String| Err(Failure::Usage(what));
    if preload == 0 && cut_every == 0 {
        return usage("--cut-every 0 without --preload: there is nothing to do".into());
    }
    let rig = Rig::new(common, load.sessions_for(Some(consumers))?)?;
    let replays = rig.target.kind == Kind::Bare && cut_every == 0;
    if !rig.target.is_relay() && !replays {
        return usage("resume: only a relay resumes; the bare loop replays (--cut-every 0)".into());
    }
    let kept = rig.target.replay_events_max()?.unwrap_or(u64::MAX);
    if preload.div_ceil(rig.sessions.into()) > kept {
        let most = kept.saturating_mul(rig.sessions.into());
        return usage(format!(
            "--preload: at most {most} events, as the server keeps {kept} of a session (sessions here: {})",
            rig.sessions
        ));
    }
    let mut report = Report::new("resume");
    let mut press = rig.press(load)?;
    let pace = Pace::new(load);
    if preload > 0 {
        let all = Pace {
            batch: PRELOAD_BATCH,
            rate: None,
            window: None,
            duration: Duration::MAX,
            events: preload,
            evenly: true,
        };
        rig.prepare(&mut press, &all, "preloading")?;
    }
    let mut plans = plans(consumers, rig.shared.run, rig.sessions);
    for plan in &mut plans {
        plan.from_beginning = preload > 0;
        plan.cut_every = (cut_every > 0).then_some(cut_every);
    }
    let (fleet, replay) =
        if preload > 0 { rig.measured_opening(plans, None, true)? } else { (rig.open(plans)?, Span::default()) };
    if preload > 0 {
        report.figure("replayed", replay.delivered as f64);
        report.figure("replayed_per_s", replay.delivered as f64 / replay.seconds);
        if let Some(cpu) = replay.server_cpu {
            report.figure("server_cpu_us_per_replayed", cpu.as_secs_f64() * 1e6 / replay.delivered as f64);
        }
    }
    let live = cut_every > 0 && !rig.is_cut_short();
    let mut span = replay;
    if live {
        warm_up(&rig, &mut press, pace, load.warmup)?;
        span = rig.publish(&mut press, &pace, "publishing")?;
    }
    let seen = fleet.finish();
    rig.finish(&mut report);
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
