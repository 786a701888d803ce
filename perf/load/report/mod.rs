//! A run's figures: one list, told as text, as JSON, and as an HTML page ([`page`]).

mod page;

use std::fs;
use std::io::Write as _;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::arguments::Common;
use super::check::Tally;
use super::consumers::Seen;
use super::failure::Failure;
use super::rig::{Sample, Span};

/// CPU of a thread, as a share of a processor, from which the generator may have been the bottleneck.
const BUSY: f64 = 0.9;
/// Own lag, in nanoseconds at the 99th percentile, from which it may have been.
const LAG_NS: u64 = 1_000_000;
/// Percentiles told.
const PERCENTILES: [(&str, f64); 5] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99_9", 99.9), ("p99_99", 99.99)];

/// What a run found out.
#[derive(Debug)]
pub(crate) struct Report {
    /// Name of the scenario.
    pub(crate) scenario: &'static str,
    /// Arguments, as given to the process.
    pub(crate) parameters: Vec<String>,
    /// Name and value, in the order they are told; the name ends in its unit.
    pub(crate) figures: Vec<(String, f64)>,
    /// What to know when reading the figures.
    pub(crate) notes: Vec<String>,
    /// Whether everything arrived once, whole and in order.
    pub(crate) sound: bool,
    latency: Option<Histogram<u64>>,
    timeline: Vec<Sample>,
}

impl Report {
    pub(crate) fn new(scenario: &'static str) -> Self {
        Self {
            scenario,
            parameters: std::env::args().skip(1).collect(),
            figures: Vec::new(),
            notes: Vec::new(),
            sound: true,
            latency: None,
            timeline: Vec::new(),
        }
    }

    /// Adds a figure.
    pub(crate) fn figure(&mut self, name: impl Into<String>, value: f64) {
        self.figures.push((name.into(), value));
    }

    /// Adds the account of what arrived, and whether it is sound.
    pub(crate) fn tally(&mut self, tally: &Tally, expected: u64) {
        for (name, count) in [
            ("expected", expected),
            ("delivered", tally.delivered),
            ("lost", tally.lost),
            ("duplicated", tally.duplicated),
            ("out_of_order", tally.out_of_order),
            ("damaged", tally.damaged),
            ("shed_announced", tally.shed),
        ] {
            self.figure(name, count as f64);
        }
        self.sound &= tally.is_sound();
    }

    /// Adds a span's rates, CPU and timeline.
    pub(crate) fn span(&mut self, span: Span) {
        self.figure("measured_s", span.seconds);
        self.figure("events_per_s", span.sent as f64 / span.seconds);
        if span.delivered > 0 {
            self.figure("deliveries_per_s", span.delivered as f64 / span.seconds);
        }
        if let Some(cpu) = span.server_cpu {
            let micros = cpu.as_secs_f64() * 1e6;
            self.figure("server_cpu_share", cpu.as_secs_f64() / span.seconds);
            if span.sent > 0 {
                self.figure("server_cpu_us_per_event", micros / span.sent as f64);
            }
            if span.delivered > 0 {
                self.figure("server_cpu_us_per_delivery", micros / span.delivered as f64);
            }
        }
        self.figure("generator_busiest_thread_share", span.busiest_thread);
        self.figure("generator_share", span.generator);
        if span.busiest_thread >= BUSY || span.generator >= BUSY {
            self.notes.push(
                "the generator was busy nearly all the time: it may have been the bottleneck; CPU per delivery \
                 still tells about the server, rates and latencies may tell about the generator"
                    .into(),
            );
        }
        self.timeline = span.timeline;
    }

    /// Adds latencies, and how late the generator itself was.
    pub(crate) fn latency(&mut self, latency: Histogram<u64>, own_lag: &Histogram<u64>) {
        if !latency.is_empty() {
            self.percentiles("latency", &latency);
            self.latency = Some(latency);
        }
        if !own_lag.is_empty() {
            let lag = own_lag.value_at_percentile(99.0);
            self.figure("generator_lag_p99_us", lag as f64 / 1e3);
            if lag >= LAG_NS {
                self.notes
                    .push("the generator was late itself: latencies tell more about it than about the server".into());
            }
        }
    }

    /// Adds the percentiles of a histogram of nanoseconds.
    pub(crate) fn percentiles(&mut self, what: &str, histogram: &Histogram<u64>) {
        for (name, percentile) in PERCENTILES {
            self.figure(format!("{what}_{name}_us"), histogram.value_at_percentile(percentile) as f64 / 1e3);
        }
        self.figure(format!("{what}_max_us"), histogram.max() as f64 / 1e3);
    }

    /// Adds what consumers saw beside events.
    pub(crate) fn seen(&mut self, seen: &Seen, expected: u64) {
        self.tally(&seen.tally, expected);
        for (name, count) in [("cuts_and_resumes", seen.cuts), ("replay_exhausted", seen.exhausted)] {
            if count > 0 {
                self.figure(name, count as f64);
            }
        }
    }

    /// Adds memory per connection, from what the server held before and after them.
    pub(crate) fn memory(&mut self, before: Option<u64>, after: Option<u64>, connections: u64) {
        if let (Some(before), Some(after)) = (before, after) {
            self.figure("server_memory_bytes", after as f64);
            self.figure("memory_per_connection_bytes", after.saturating_sub(before) as f64 / connections as f64);
        }
    }

    /// Prints the report and writes the page, as asked for.
    pub(crate) fn deliver(&self, common: &Common) -> Result<(), Failure> {
        if let Some(path) = &common.report {
            fs::write(path, self.page()).map_err(|error| Failure::Local("the report", error))?;
        }
        let text = if common.json { format!("{:#}\n", self.json()) } else { self.text() };
        match std::io::stdout().write_all(text.as_bytes()) {
            // A reader that has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| Failure::Local("standard output", error)),
        }
    }

    fn text(&self) -> String {
        let width = self.figures.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = format!("aep-load {}\n", self.parameters.join(" "));
        for (name, value) in &self.figures {
            text.push_str(&format!("  {:width$}  {:>14}\n", label(name), shown(*value)));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text.push_str(self.verdict());
        text.push('\n');
        text
    }

    fn verdict(&self) -> &'static str {
        if self.sound { "sound: nothing lost, doubled, out of order or damaged" } else { "FAULTY" }
    }

    fn json(&self) -> Value {
        let figures: Map<String, Value> =
            self.figures.iter().map(|(name, value)| (name.clone(), number(*value))).collect();
        json!({
            "scenario": self.scenario,
            "arguments": self.parameters,
            "sound": self.sound,
            "figures": figures,
            "notes": self.notes,
        })
    }
}

/// A figure's name to be read.
fn label(name: &str) -> String {
    name.replace("p99_9", "p99.9").replace('_', " ")
}

/// A whole number as such.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!(value) }
}

/// A number to be read: counts in groups of three, the others with three or four significant digits.
fn shown(value: f64) -> String {
    if value.fract() != 0.0 && value.abs() < 1000.0 {
        let places = if value.abs() < 1.0 {
            4
        } else if value.abs() < 100.0 {
            2
        } else {
            1
        };
        return format!("{value:.places$}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_to_be_read() {
        for (value, expected) in [
            (0.0, "0"),
            (1_234_567.0, "1 234 567"),
            (999.0, "999"),
            (0.25, "0.2500"),
            (12.345, "12.35"),
            (123.45, "123.5"),
            (1234.5, "1 234"),
        ] {
            assert_eq!(shown(value), expected);
        }
    }

    #[test]
    fn a_report_tells_the_same_in_text_json_and_html() {
        let mut report = Report::new("fanout");
        report.tally(&Tally { delivered: 9, lost: 1, ..Tally::default() }, 10);
        let mut latency = crate::load::consumers::nanoseconds();
        latency.record_n(50_000, 9).unwrap();
        let own_lag = crate::load::consumers::nanoseconds();
        report.latency(latency, &own_lag);
        let sample = |at| Sample { at, events_per_s: 10.0, deliveries_per_s: 90.0 };
        report.span(Span {
            seconds: 1.0,
            sent: 10,
            delivered: 9,
            timeline: vec![sample(0.5), sample(1.0)],
            ..Span::default()
        });
        assert!(!report.sound);
        assert!(report.text().ends_with("FAULTY\n"));
        let json = report.json();
        assert_eq!((&json["sound"], &json["figures"]["lost"]), (&json!(false), &json!(1)));
        let page = report.page();
        assert!(page.starts_with("<!doctype html>"));
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("<td>lost</td><td>1</td>"), "{page}");
        assert!(!page.contains("src=") && !page.contains("href="), "self-contained");
    }
}
