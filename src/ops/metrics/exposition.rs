//! The table → OpenMetrics text, through `prometheus-client`'s encoder, which knows the format's escapes, suffixes and
//! order. The registry is made for one scrape: it holds nothing that could be kept.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::value::{BUCKETS, MetricKind};
use super::{CoreMetrics, MetricRow, ROWS, Sample};
use crate::ops::log;

/// Media type of the exposition.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The one metric that is told apart by core.
const BY_CORE: &str = "connections";

const LOG_LINES_DROPPED: (&str, &str) =
    ("log_lines_dropped", "Lines left out of the log because nobody read those before.");

pub(super) fn encode(sets: &Arc<[Arc<CoreMetrics>]>, cores: usize) -> String {
    let mut registry = Registry::with_prefix("aep_relay");
    registry.register_collector(Box::new(Table { sets: Arc::clone(sets), cores }));
    let mut exposition = String::new();
    // Writing to a string does not fail, and the table's names are fit for the format (tested beside it).
    let encoded = text::encode(&mut exposition, &registry);
    debug_assert!(encoded.is_ok());
    exposition
}

#[derive(Debug)]
struct Table {
    sets: Arc<[Arc<CoreMetrics>]>,
    /// So many of them are cores'.
    cores: usize,
}

impl Collector for Table {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        ROWS.iter().try_for_each(|row| encode_row(&mut encoder, row, &self.sets, self.cores))?;
        // The one count that is the process's: any thread may log.
        let (name, help) = LOG_LINES_DROPPED;
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, u64, u64>(&log::left_out(), None)
    }
}

fn encode_row(
    encoder: &mut DescriptorEncoder<'_>,
    row: &MetricRow,
    sets: &[Arc<CoreMetrics>],
    cores: usize,
) -> fmt::Result {
    let Some(first) = sets.first() else { return Ok(()) };
    let kind = (row.value)(first).kind();
    let metric_type = match kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
    };
    // A doc comment's text begins with a space.
    let mut metric = encoder.encode_descriptor(row.name, row.help.trim_start(), None, metric_type)?;
    if kind == MetricKind::Histogram {
        let mut values: Vec<u64> = sum(row, sets).iter().map(|sample| sample.value).collect();
        let seconds = values.pop().unwrap_or(0) as f64 / 1e6;
        let ends = BUCKETS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = ends.zip(values.iter().copied()).collect();
        return metric.encode_histogram::<NoLabelSet>(seconds, values.iter().sum(), &buckets, None);
    }
    let mut line = |labels: &[(&str, String)], value: u64| {
        let labels = labels.iter().map(|(name, member)| (*name, member.as_str())).collect::<Vec<_>>();
        let mut metric = metric.encode_family(&labels)?;
        match kind {
            MetricKind::Counter => metric.encode_counter::<NoLabelSet, u64, u64>(&value, None),
            MetricKind::Gauge | MetricKind::Histogram => metric.encode_gauge(&value),
        }
    };
    if row.name == BY_CORE {
        for (core, metrics) in sets.iter().take(cores).enumerate() {
            for sample in (row.value)(metrics).samples() {
                let mut labels = owned(&sample);
                labels.push(("core", core.to_string()));
                line(&labels, sample.value)?;
            }
        }
        return Ok(());
    }
    for sample in sum(row, sets) {
        line(&owned(&sample), sample.value)?;
    }
    Ok(())
}

/// The row's samples, each added up over all sets.
fn sum(row: &MetricRow, sets: &[Arc<CoreMetrics>]) -> Vec<Sample> {
    let mut sets = sets.iter().map(|set| (row.value)(set).samples());
    let mut total = sets.next().unwrap_or_default();
    for samples in sets {
        for (sum, sample) in total.iter_mut().zip(samples) {
            sum.value = sum.value.wrapping_add(sample.value);
        }
    }
    total
}

fn owned(sample: &Sample) -> Vec<(&'static str, String)> {
    sample.labels.iter().map(|(name, member)| (*name, (*member).to_owned())).collect()
}
