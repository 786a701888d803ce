//! A run's figures: one list, told as text, as JSON, and as an HTML page ([`page`]).
//!
//! A figure's name ends in its unit or, where it is a quotient, has it before `per` ([`figure`]). The report of an
//! incomplete run tells how many events were undelivered instead of lost: what was on its way cannot be told from it.

mod figure;
mod page;

use std::io::Write as _;
use std::time::SystemTime;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::check::Tally;
use super::consumers::Seen;
use super::failure::Failure;
use super::process;
use super::span::{Sample, Span};

use figure::{label, number, shown, unit};
pub(crate) use page::Page;

/// CPU of a thread, as a share of a processor, from which the generator may have been the bottleneck.
const BUSY: f64 = 0.9;
/// From this part of the latency measured on, the generator's own lag is no longer beside the point; both at the 99th
/// percentile.
const LAG_PART: f64 = 0.2;
/// The generator's own.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Percentiles told.
const PERCENTILES: [(&str, f64); 5] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99_9", 99.9), ("p99_99", 99.99)];

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything arrived once, whole and in order.
    Sound,
    /// It did not.
    Faulty,
    /// The run ended early: why.
    Incomplete(String),
}

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
    /// Whether everything arrived once, whole and in order; of an incomplete run, what arrived.
    pub(crate) sound: bool,
    /// What was wrong with what arrived, and how often.
    faults: Vec<String>,
    /// Why the run ended early, if it did. Told before the account of what arrived.
    pub(crate) incomplete: Option<String>,
    /// When the run began, UTC.
    date: String,
    /// Where the generator ran.
    machine: String,
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
            faults: Vec::new(),
            incomplete: None,
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            machine: process::machine(),
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
            (if self.incomplete.is_some() { "undelivered" } else { "lost" }, tally.lost),
            ("duplicated", tally.duplicated),
            ("out_of_order", tally.out_of_order),
            ("damaged", tally.damaged),
            ("shed_announced", tally.shed),
            ("misannounced", tally.misannounced),
        ] {
            self.figure(name, count as f64);
        }
        self.judge(tally);
    }

    /// Adds whether what arrived is sound.
    pub(crate) fn judge(&mut self, tally: &Tally) {
        let lost = if self.incomplete.is_some() { 0 } else { tally.lost };
        let tally = Tally { lost, ..*tally };
        self.sound &= tally.is_sound();
        let found = tally.faults().into_iter().filter(|(_, count)| *count > 0);
        self.faults.extend(found.map(|(what, count)| format!("{count} {what}")));
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
        if !own_lag.is_empty() {
            let lag = p99_us(own_lag);
            self.figure("generator_lag_p99_us", lag);
            if !latency.is_empty() && lag > LAG_PART * p99_us(&latency) {
                self.notes.push(format!(
                    "the generator was late itself, {} of the {} µs at the 99th percentile: latencies tell much about it",
                    shown(lag),
                    shown(p99_us(&latency))
                ));
            }
        }
        if !latency.is_empty() {
            self.figure("latencies", latency.len() as f64);
            self.percentiles("latency", &latency);
            self.latency = Some(latency);
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

    /// Prints the report, as text or JSON.
    pub(crate) fn print(&self, as_json: bool) -> Result<(), Failure> {
        let text = if as_json { format!("{:#}\n", self.json()) } else { self.text() };
        match std::io::stdout().write_all(text.as_bytes()) {
            // A reader that has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| Failure::Local("standard output", error)),
        }
    }

    fn text(&self) -> String {
        let width = self.figures.iter().map(|(name, _)| label(name).len()).max().unwrap_or(0);
        let mut text = format!("aep-load {}\n", self.parameters.join(" "));
        for (name, value) in &self.figures {
            let line = format!("  {:width$}  {:>14} {}", label(name), shown(*value), unit(name));
            text.push_str(line.trim_end());
            text.push('\n');
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text.push_str(&self.verdict_text());
        text.push('\n');
        text
    }

    /// What the run came to.
    pub(crate) fn verdict(&self) -> Verdict {
        match &self.incomplete {
            Some(why) => Verdict::Incomplete(why.clone()),
            None if self.sound => Verdict::Sound,
            None => Verdict::Faulty,
        }
    }

    fn verdict_text(&self) -> String {
        match self.verdict() {
            Verdict::Sound => "sound: nothing lost, doubled, out of order or damaged".into(),
            Verdict::Faulty => self.faulty_text(),
            Verdict::Incomplete(why) => {
                let also = if self.sound { String::new() } else { format!(", and {}", self.faulty_text()) };
                format!("INCOMPLETE{also}: {why}; the figures are those of the part until then")
            }
        }
    }

    fn faulty_text(&self) -> String {
        if self.faults.is_empty() { "FAULTY".into() } else { format!("FAULTY: {}", self.faults.join(", ")) }
    }

    fn json(&self) -> Value {
        let figures: Map<String, Value> =
            self.figures.iter().map(|(name, value)| (name.clone(), number(*value))).collect();
        json!({
            "scenario": self.scenario,
            "arguments": self.parameters,
            "date": self.date,
            "version": VERSION,
            "machine": self.machine,
            "sound": if self.incomplete.is_some() && self.sound { Value::Null } else { json!(self.sound) },
            "faults": self.faults,
            "incomplete": self.incomplete,
            "figures": figures,
            "notes": self.notes,
        })
    }
}

/// The 99th percentile in microseconds.
fn p99_us(nanoseconds: &Histogram<u64>) -> f64 {
    nanoseconds.value_at_percentile(99.0) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(report.text().ends_with("FAULTY: 1 lost\n"));
        let json = report.json();
        assert_eq!((&json["sound"], &json["figures"]["lost"]), (&json!(false), &json!(1)));
        let page = report.page();
        assert!(page.starts_with("<!doctype html>"));
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("<td>lost</td><td>1</td><td></td>"), "{page}");
        assert!(page.contains("<td>latency p99</td><td>50.02</td><td>µs</td>"), "{page}");
        for about in [VERSION, report.date.as_str(), report.machine.as_str()] {
            assert!(!about.is_empty() && page.contains(about) && json.to_string().contains(about), "{about}");
        }
        assert!(!page.contains("src=") && !page.contains("href="), "self-contained");
    }

    #[test]
    fn an_incomplete_report_says_so_everywhere_and_calls_nothing_lost() {
        let mut report = Report::new("fanout");
        report.incomplete = Some("interrupted".into());
        report.tally(&Tally { delivered: 9, lost: 1, ..Tally::default() }, 10);
        assert_eq!(report.verdict(), Verdict::Incomplete("interrupted".into()));
        assert!(report.text().contains("INCOMPLETE: interrupted"), "{}", report.text());
        assert!(report.page().contains("INCOMPLETE: interrupted"));
        let json = report.json();
        assert_eq!((&json["sound"], &json["incomplete"]), (&Value::Null, &json!("interrupted")));
        assert_eq!((&json["figures"]["undelivered"], &json["figures"]["lost"]), (&json!(1), &Value::Null));
        report.tally(&Tally { duplicated: 1, ..Tally::default() }, 10);
        assert_eq!(report.json()["sound"], false);
    }

    #[test]
    fn only_a_lag_that_matters_is_noted() {
        let histogram = |nanoseconds| {
            let mut histogram = crate::load::consumers::nanoseconds();
            histogram.record(nanoseconds).unwrap();
            histogram
        };
        for (latency, lag, notes) in [(10_000_000, 1_300_000, 0), (10_000_000, 2_500_000, 1), (100_000, 50_000, 1)] {
            let mut report = Report::new("fanout");
            report.latency(histogram(latency), &histogram(lag));
            assert_eq!(report.notes.len(), notes, "{lag} of {latency}");
        }
    }
}
