//! The same load without and with consumers that stop reading: what the others notice of them.

use super::{expected, troubles, warm_up};
use crate::load::arguments::{Common, ConsumerArgs, LoadArgs};
use crate::load::consumers::{Seen, plans};
use crate::load::failure::Failure;
use crate::load::publishers::Pace;
use crate::load::report::Report;
use crate::load::rig::Rig;

pub(super) fn run(common: &Common, consumers: &ConsumerArgs, load: &LoadArgs, share: f64) -> Result<Report, Failure> {
    let stalled = (f64::from(consumers.consumers) * share).round();
    if !(stalled >= 1.0 && stalled < f64::from(consumers.consumers)) {
        return Err(Failure::Usage("--stalled: a share of the consumers between none and all of them".into()));
    }
    let stalled = stalled as u32;
    let mut report = Report::new("slow");
    let without = load_once(common, consumers, load, 0, &mut report)?;
    report.percentiles("latency_without_stalled", &without.latency);
    if report.incomplete.is_some() {
        return Ok(report);
    }
    let with = load_once(common, consumers, load, stalled, &mut report)?;
    report.figure("stalled", f64::from(stalled));
    report.figure("stalled_cut_by_server", with.stalled_cut as f64);
    report.figure("stalled_shed_announced", with.stalled_shed as f64);
    if with.stalled_cut + with.stalled_shed == 0 {
        report.notes.push(
            "no stalled consumer's queue was ever full: none was cut, and nothing was left out for them; to get there, \
             send each more than the server and the sockets hold for it (--duration, --rate, --size), or let a relay \
             hold less (AEP_QUEUE_BYTES, and AEP_MAX_BODY below it)"
                .into(),
        );
    }
    let p99 = |seen: &Seen| seen.latency.value_at_percentile(99.0).max(1) as f64;
    report.figure("p99_with_to_without", p99(&with) / p99(&without));
    Ok(report)
}

/// One run, whose figures are the report's if some consumers are stalled. The others are as many in both runs.
fn load_once(
    common: &Common,
    consumers: &ConsumerArgs,
    load: &LoadArgs,
    stalled: u32,
    report: &mut Report,
) -> Result<Seen, Failure> {
    let rig = Rig::new(common, load.sessions_for(Some(consumers))?)?;
    let mut plans = plans(consumers, rig.shared.run, rig.sessions);
    if let Some(slow) = plans.get_mut(..stalled as usize) {
        slow.iter_mut().for_each(|plan| plan.stalls = true);
    }
    let fleet = rig.open(plans)?;
    let mut press = rig.press(load)?;
    let pace = Pace::new(load);
    warm_up(&rig, &mut press, pace, load.warmup)?;
    let span = rig.publish(&mut press, &pace, if stalled > 0 { "some stalled" } else { "none stalled" })?;
    let seen = fleet.finish();
    rig.finish(report);
    if stalled == 0 {
        report.judge(&seen.tally);
    } else {
        report.seen(&seen, expected(&rig, &seen));
        report.span(span);
        report.latency(seen.latency.clone(), &press.own_lag);
    }
    troubles(report, &rig);
    Ok(seen)
}
