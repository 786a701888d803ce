//! One stretch of load that was measured, and how its rates went over time.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::shared::Shared;

/// How often the rates are noted.
const SAMPLE: Duration = Duration::from_millis(250);

/// Rates at one time of a span.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Seconds since the span began.
    pub(crate) at: f64,
    pub(crate) events_per_s: f64,
    pub(crate) deliveries_per_s: f64,
}

/// A measured stretch of load.
#[derive(Debug, Default)]
pub(crate) struct Span {
    pub(crate) seconds: f64,
    /// Events sent.
    pub(crate) sent: u64,
    /// Deliveries made.
    pub(crate) delivered: u64,
    /// CPU of the server, if it was named.
    pub(crate) server_cpu: Option<Duration>,
    /// CPU of our busiest thread as a share of one processor.
    pub(crate) busiest_thread: f64,
    /// CPU of all our threads as a share of the processors we may use.
    pub(crate) generator: f64,
    pub(crate) timeline: Vec<Sample>,
}

/// Rates over time.
#[derive(Debug)]
pub(crate) struct Timeline {
    start: Instant,
    last: (Instant, u64, u64),
    pub(crate) samples: Vec<Sample>,
}

impl Timeline {
    /// From then on, with so many events sent and delivered so far.
    pub(crate) fn new(start: Instant, sent: u64, delivered: u64) -> Self {
        Self { start, last: (start, sent, delivered), samples: Vec::new() }
    }

    /// A sample, when it is time for one.
    pub(crate) fn look(&mut self, shared: &Shared) -> Option<Sample> {
        let (then, sent, delivered) = self.last;
        let passed = then.elapsed();
        if passed < SAMPLE {
            return None;
        }
        let now = (Instant::now(), shared.sent.load(Ordering::Relaxed), shared.delivered.load(Ordering::Relaxed));
        let sample = Sample {
            at: self.start.elapsed().as_secs_f64(),
            events_per_s: (now.1 - sent) as f64 / passed.as_secs_f64(),
            deliveries_per_s: (now.2 - delivered) as f64 / passed.as_secs_f64(),
        };
        self.last = now;
        self.samples.push(sample);
        Some(sample)
    }
}
