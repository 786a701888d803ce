//! The cost of publishing without and with many subscriptions that do not match.

use std::sync::Arc;

use super::{troubles, warm_up};
use crate::load::arguments::{Common, LoadArgs, Shape};
use crate::load::check::Follows;
use crate::load::consumers::Plan;
use crate::load::failure::Failure;
use crate::load::publishers::Pace;
use crate::load::report::Report;
use crate::load::rig::Rig;
use crate::load::span::Span;

pub(super) fn run(
    common: &Common,
    load: &LoadArgs,
    subscriptions: u32,
    per_connection: u32,
    shape: Shape,
) -> Result<Report, Failure> {
    let rig = Rig::new(common, load.sessions_for(None)?)?;
    if !rig.target.is_relay() {
        return Err(Failure::Usage("idle-match: only a relay has filters".into()));
    }
    let mut report = Report::new("idle-match");
    let mut press = rig.press(load)?;
    let pace = Pace::new(load);
    warm_up(&rig, &mut press, pace, load.warmup)?;
    let without = rig.publish(&mut press, &pace, "without subscriptions")?;
    if rig.is_cut_short() {
        rig.finish(&mut report);
        report.figure("events_per_s_without", without.sent as f64 / without.seconds);
        return Ok(report);
    }
    let memory = rig.server_memory();
    let fleet = rig.open(plans(subscriptions, per_connection, shape))?;
    if let (Some(before), Some(after)) = (memory, rig.server_memory()) {
        let bytes = after.saturating_sub(before) as f64;
        report.figure("memory_per_subscription_bytes", bytes / f64::from(subscriptions));
    }
    let with = rig.publish(&mut press, &pace, "with subscriptions")?;
    let seen = fleet.finish();
    rig.finish(&mut report);
    report.seen(&seen, 0);
    let cpu = |span: &Span| span.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / span.sent.max(1) as f64);
    if let (Some(without), Some(with)) = (cpu(&without), cpu(&with)) {
        report.figure("server_cpu_us_per_event_without", without);
        report.figure("cpu_with_to_without", with / without.max(f64::MIN_POSITIVE));
    }
    report.figure("events_per_s_without", without.sent as f64 / without.seconds);
    report.span(with);
    report.percentiles("answer", &press.answering);
    troubles(&mut report, &rig);
    Ok(report)
}

fn plans(subscriptions: u32, per_connection: u32, shape: Shape) -> Vec<Plan> {
    let filter = |number: u32| format!("{{\"{}\":\"tool.nobody.n{number}\"}}", shape.attribute());
    let plan = |first: u32| Plan {
        websocket: true,
        follows: Follows::none(),
        filters: (first..subscriptions.min(first + per_connection)).map(filter).collect::<Arc<[String]>>(),
        stalls: false,
        from_beginning: false,
        cut_every: None,
    };
    (0..subscriptions).step_by(per_connection as usize).map(plan).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_are_spread_over_connections() {
        let plans = plans(25, 10, Shape::Agent);
        let counts: Vec<usize> = plans.iter().map(|plan| plan.filters.len()).collect();
        assert_eq!(counts, [10, 10, 5]);
        assert_eq!(plans[2].filters[4], r#"{"agent":"tool.nobody.n24"}"#);
    }
}
