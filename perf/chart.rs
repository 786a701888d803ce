//! `aep-chart`: draws `results/compare.json` as one picture, server CPU per delivery of every server at the same work.
//!
//! A bar per server and scenario over a logarithmic axis, since the servers lie a hundredfold apart; its end is the
//! median, the thin line the span from the least to the greatest round. Scenarios that were not measured are left out.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "in a test a panic is the report"))]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::Value;

/// Draws what `perf/compare` has measured.
#[derive(Debug, Parser)]
#[command(name = "aep-chart")]
struct Arguments {
    /// What `perf/compare` wrote
    #[arg(default_value = "perf/results/compare.json")]
    from: PathBuf,
    /// The picture, SVG
    #[arg(default_value = "perf/results/compare.svg")]
    to: PathBuf,
}

const FIGURE: &str = "server_cpu_us_per_delivery";
/// What is drawn, top to bottom.
const SCENARIOS: [(&str, &str); 4] = [
    ("single-sse-1000", "SSE, 1000 consumers, one event at a time"),
    ("batch-sse-1000", "SSE, 1000 consumers, batches of 50"),
    ("single-ws-1000", "WebSocket, 1000 consumers, one event at a time"),
    ("batch-ws-1000", "WebSocket, 1000 consumers, batches of 50"),
];
/// Servers in the order of their bars.
const SERVERS: [(&str, &str); 6] = [
    ("bare", "bare loop"),
    ("relay", "aep-relay"),
    ("nats", "nats-server"),
    ("nchan", "nginx + nchan"),
    ("node-shared", "Node, shared text"),
    ("node", "Node relay"),
];
const OURS: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);
const OTHERS: RGBColor = RGBColor(0xb0, 0xb8, 0xc0);
const TEXT: RGBColor = RGBColor(0x33, 0x33, 0x33);

const WIDTH: u32 = 640;
const ROW: i32 = 20;
const HEADING: i32 = 34;
/// Where the axis begins and ends.
const LEFT: i32 = 140;
const RIGHT: i32 = 560;
/// What the axis spans, microseconds.
const LOW: f64 = 0.05;
const HIGH: f64 = 50.0;

/// One bar.
#[derive(Debug)]
struct Bar {
    server: &'static str,
    ours: bool,
    median: f64,
    least: f64,
    greatest: f64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match draw(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _unread = writeln!(std::io::stderr(), "aep-chart: {why}");
            ExitCode::FAILURE
        }
    }
}

fn draw(arguments: &Arguments) -> Result<(), String> {
    let text = std::fs::read_to_string(&arguments.from).map_err(|e| format!("{}: {e}", arguments.from.display()))?;
    let document: Value = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", arguments.from.display()))?;
    let groups = groups(&document);
    if groups.is_empty() {
        return Err(format!("{}: none of the scenarios drawn here", arguments.from.display()));
    }
    let svg = picture(&groups).map_err(|e| e.to_string())?;
    std::fs::write(&arguments.to, svg).map_err(|e| format!("{}: {e}", arguments.to.display()))
}

/// Titles and bars of what was measured.
fn groups(document: &Value) -> Vec<(&'static str, Vec<Bar>)> {
    let bars = |scenario: &str| {
        let measured = |(name, server): &(&str, &'static str)| {
            let found = document.get("summary")?.get(scenario)?.get(name)?.get(FIGURE)?;
            let figure = |name: &str| found.get(name).and_then(Value::as_f64);
            let (median, least, greatest) = (figure("median")?, figure("least")?, figure("greatest")?);
            Some(Bar { server, ours: *name == "relay", median, least, greatest })
        };
        SERVERS.iter().filter_map(measured).collect::<Vec<Bar>>()
    };
    SCENARIOS.iter().map(|(name, title)| (*title, bars(name))).filter(|(_, bars)| !bars.is_empty()).collect()
}

fn picture(groups: &[(&str, Vec<Bar>)]) -> Result<String, DrawingAreaErrorKind<std::io::Error>> {
    let rows: usize = groups.iter().map(|(_, bars)| bars.len()).sum();
    let bottom = groups.len() as i32 * HEADING + rows as i32 * ROW;
    let height = u32::try_from(bottom + 44).unwrap_or(u32::MAX);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        axis(&area, bottom)?;
        let mut y = 0;
        for (title, bars) in groups {
            area.draw(&Text::new(
                *title,
                (10, y + 12),
                ("sans-serif", 14).into_font().style(FontStyle::Bold).color(&TEXT),
            ))?;
            y += HEADING;
            for bar in bars {
                draw_bar(&area, bar, y)?;
                y += ROW;
            }
        }
        area.present()?;
    }
    Ok(svg)
}

fn draw_bar(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    bar: &Bar,
    y: i32,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let label = ("sans-serif", 13).into_font().color(&TEXT);
    let middle = y + ROW / 2;
    let fill = if bar.ours { OURS } else { OTHERS };
    area.draw(&Text::new(bar.server, (LEFT - 8, middle), label.pos(Pos::new(HPos::Right, VPos::Center))))?;
    area.draw(&Rectangle::new([(LEFT, y + 3), (place(bar.median), y + ROW - 3)], fill.filled()))?;
    area.draw(&PathElement::new([(place(bar.least), middle), (place(bar.greatest), middle)], TEXT.stroke_width(1)))?;
    let at = place(bar.greatest.max(bar.median)) + 6;
    let value = format!("{} µs", shown(bar.median));
    area.draw(&Text::new(value, (at, middle), label.pos(Pos::new(HPos::Left, VPos::Center))))
}

fn axis(area: &DrawingArea<SVGBackend<'_>, Shift>, bottom: i32) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let label = ("sans-serif", 12).into_font().color(&TEXT).pos(Pos::new(HPos::Center, VPos::Top));
    for tick in [0.1, 1.0, 10.0] {
        let x = place(tick);
        area.draw(&PathElement::new([(x, 0), (x, bottom)], RGBColor(0xdd, 0xdd, 0xdd).stroke_width(1)))?;
        area.draw(&Text::new(shown(tick), (x, bottom + 6), label.clone()))?;
    }
    let title = "server CPU per delivery, µs (logarithmic; shorter is better)";
    area.draw(&Text::new(title, (i32::midpoint(LEFT, RIGHT), bottom + 24), label))
}

/// Where a value lies on the axis, pixels.
fn place(micros: f64) -> i32 {
    let share = (micros.clamp(LOW, HIGH) / LOW).ln() / (HIGH / LOW).ln();
    LEFT + (share * f64::from(RIGHT - LEFT)).round() as i32
}

fn shown(micros: f64) -> String {
    if micros >= 1.0 { format!("{micros:.1}") } else { format!("{micros:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_drawn_and_nothing_else() {
        let document = serde_json::json!({"summary": {
            "single-sse-1000": {
                "relay": {"server_cpu_us_per_delivery": {"median": 5.8, "least": 5.5, "greatest": 6.0}},
                "bare": {"server_cpu_us_per_delivery": {"median": 5.5, "least": 5.4, "greatest": 5.9}},
                "nchan": {"server_cpu_us_per_delivery": null},
            },
            "ingest": {"relay": {}},
        }});
        let groups = groups(&document);
        let servers: Vec<&str> = groups.iter().flat_map(|(_, bars)| bars).map(|bar| bar.server).collect();
        assert_eq!((groups.len(), servers.as_slice()), (1, ["bare loop", "aep-relay"].as_slice()));
        let svg = picture(&groups).unwrap();
        assert!(svg.contains("5.8 µs") && svg.contains("one event at a time") && !svg.contains("batches"));
    }

    #[test]
    fn the_axis_is_logarithmic_and_holds_what_is_beyond_it() {
        assert_eq!((place(0.0), place(LOW), place(HIGH), place(1e9)), (LEFT, LEFT, RIGHT, RIGHT));
        assert_eq!(place(1.0) - place(0.1), place(10.0) - place(1.0));
    }
}
