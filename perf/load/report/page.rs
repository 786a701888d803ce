//! The report as one self-contained HTML page: verdict, two pictures (SVG), every figure; readable on a phone.

use std::fs::{self, OpenOptions};
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::figure::{label, shown, unit};
use super::{Report, VERSION};
use crate::load::failure::Failure;

/// Small, so that its text keeps its size on a phone.
const SIZE: (u32, u32) = (480, 300);
const LABEL: (&str, u32) = ("sans-serif", 14);
/// How far out the percentile curve goes: "nines" of the percentile, 5 for 99.999 %.
const NINES_MAX: f64 = 5.0;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:1rem auto;padding:0 1rem;color:#222;\
                     background:#fff}svg{width:100%;height:auto}table{border-collapse:collapse;width:100%}\
                     td{padding:.2rem .4rem;border-bottom:1px solid #ddd}td:nth-child(2){text-align:right;\
                     font-variant-numeric:tabular-nums}code{overflow-wrap:anywhere}.bad{color:#b00}\
                     @media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td{border-color:#444}\
                     .bad{color:#f77}svg{filter:invert(.87) hue-rotate(180deg)}}";

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Where the page goes.
#[derive(Debug)]
pub(crate) struct Page<'a>(&'a Path);

impl<'a> Page<'a> {
    /// A file that can be written, as is found out before the run. What was there, or nothing, stays until there is a
    /// report.
    pub(crate) fn open(path: &'a Path) -> Result<Self, Failure> {
        let is_new = !path.exists();
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let tried = opened.and_then(|_| if is_new { fs::remove_file(path) } else { Ok(()) });
        tried.map(|()| Self(path)).map_err(|error| Failure::Page(path.into(), error))
    }

    /// Writes the report's page.
    pub(crate) fn write(&self, report: &Report) -> Result<(), Failure> {
        fs::write(self.0, report.page()).map_err(|error| Failure::Page(self.0.into(), error))
    }
}

impl Report {
    /// The page.
    pub(crate) fn page(&self) -> String {
        let pictures = [("Latency by percentile", self.curve()), ("Throughput over time", self.throughput())];
        let pictures: String = pictures
            .into_iter()
            .filter_map(|(title, svg)| svg.map(|svg| format!("<h2>{title}</h2>\n{svg}\n")))
            .collect();
        let rows: String = self
            .figures
            .iter()
            .map(|(name, value)| {
                let (label, value, unit) = (escaped(&label(name)), shown(*value), unit(name));
                format!("<tr><td>{label}</td><td>{value}</td><td>{unit}</td></tr>\n")
            })
            .collect();
        let notes: String = self.notes.iter().map(|note| format!("<p>Note: {}</p>\n", escaped(note))).collect();
        let class = if self.sound && self.incomplete.is_none() { "" } else { " class=\"bad\"" };
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>aep-load {scenario}</title><style>{STYLE}</style></head><body>\n\
             <h1>aep-load {scenario}</h1>\n<p><code>aep-load {arguments}</code></p>\n\
             <p>{date} (UTC), aep-load {VERSION}, {machine}</p>\n\
             <p{class}><strong>{verdict}</strong></p>\n{notes}{pictures}\
             <h2>Figures</h2>\n<table>\n{rows}</table>\n</body></html>\n",
            scenario = escaped(self.scenario),
            arguments = escaped(&self.parameters.join(" ")),
            date = escaped(&self.date),
            machine = escaped(&self.machine),
            verdict = escaped(&self.verdict_text()),
        )
    }

    /// Latency over percentiles, the tail stretched out.
    fn curve(&self) -> Option<String> {
        let latency = self.latency.as_ref()?;
        let points: Vec<(f64, f64)> = (0..=100)
            .map(|step| NINES_MAX * f64::from(step) / 100.0)
            .map(|nines| (nines, latency.value_at_quantile(1.0 - 10_f64.powf(-nines)) as f64 / 1e3))
            .collect();
        let high = points.iter().fold(1.0, |high: f64, point| high.max(point.1)) * 1.5;
        let low = points.first().map_or(1.0, |point| point.1.max(0.1)) / 1.5;
        draw(|area| {
            let mut chart = ChartBuilder::on(&area)
                .margin(10)
                .margin_right(28)
                .x_label_area_size(40)
                .y_label_area_size(62)
                .build_cartesian_2d(0.0..NINES_MAX, (low..high).log_scale())?;
            chart
                .configure_mesh()
                .x_desc("percentile")
                .y_desc("µs")
                .x_labels(6)
                .x_label_formatter(&|nines| percentile_label(*nines))
                .y_label_formatter(&|micros| shown(micros.round()))
                .light_line_style(TRANSPARENT)
                .label_style(LABEL)
                .draw()?;
            chart.draw_series(LineSeries::new(points.iter().copied(), BLUE.stroke_width(2)))?;
            Ok(())
        })
    }

    fn throughput(&self) -> Option<String> {
        let last = self.timeline.last()?;
        let deliveries = self.timeline.iter().any(|sample| sample.deliveries_per_s > 0.0);
        let rate = |sample: &super::Sample| if deliveries { sample.deliveries_per_s } else { sample.events_per_s };
        let high = self.timeline.iter().map(rate).fold(1.0, f64::max) * 1.1;
        draw(|area| {
            let mut chart = ChartBuilder::on(&area)
                .margin(10)
                .margin_right(28)
                .x_label_area_size(40)
                .y_label_area_size(80)
                .build_cartesian_2d(0.0..last.at, 0.0..high)?;
            chart
                .configure_mesh()
                .x_desc("seconds")
                .y_desc(if deliveries { "deliveries/s" } else { "events/s" })
                .y_label_formatter(&|rate| shown(rate.round()))
                .light_line_style(TRANSPARENT)
                .label_style(LABEL)
                .draw()?;
            let points = self.timeline.iter().map(|sample| (sample.at, rate(sample)));
            chart.draw_series(LineSeries::new(points, BLUE.stroke_width(2)))?;
            Ok(())
        })
    }
}

/// "0", "90", "99", "99.9" … for 0, 1, 2, 3 nines.
fn percentile_label(nines: f64) -> String {
    match nines.round() as usize {
        0 => "0".into(),
        1 => "90".into(),
        2 => "99".into(),
        more => format!("99.{}", "9".repeat(more - 2)),
    }
}

/// An SVG picture, or nothing if it cannot be drawn: the figures say the same.
fn draw(picture: impl FnOnce(DrawingArea<SVGBackend<'_>, Shift>) -> Drawn) -> Option<String> {
    let mut svg = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        picture(area.clone()).and_then(|()| area.present())
    };
    drawn.ok().map(|()| svg)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
