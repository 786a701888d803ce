//! What a run is asked to do: subcommands, flags, and what they must satisfy to be run at all.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::event::{EVENT_BYTES_MAX, event_bytes_min};
use super::failure::Failure;

/// Most places in all consumers' accounts together (consumers × followed sessions), some hundred bytes each.
const ACCOUNTS_MAX: u64 = 20_000_000;

const STATUS: &str = "\
TIME is written like 500ms, 2s or 1m30s. A token for the server is taken from AEP_TOKEN.

Status:
  0  every event arrived once, whole and in order
  1  some did not
  2  the run could not be made, or ended early: interrupted by SIGINT or SIGTERM, or by the server.
     The part measured until then is told, marked as incomplete; a second signal ends at once";

/// Loads an activity relay and checks what it delivers: nothing lost, nothing twice, everything in order.
#[derive(Debug, Parser)]
#[command(name = "aep-load", version, subcommand_required = true, arg_required_else_help = true, after_help = STATUS)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What every scenario takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every scenario")]
pub(crate) struct Common {
    /// Server to load
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:8787")]
    pub(crate) target: String,
    /// What the server is
    #[arg(long, global = true, value_enum, default_value_t = Kind::Aep)]
    pub(crate) kind: Kind,
    /// Process of the server, for its CPU and memory; may be repeated
    #[arg(long, global = true)]
    pub(crate) pid: Vec<u32>,
    /// Print the figures as one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Write a self-contained HTML page
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Consumer threads; default: one less than the processors, at least one
    #[arg(long, global = true, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,
    /// Give up after this long without any progress, such as 500ms or 2s
    #[arg(long, global = true, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) patience: Duration,
    /// The run is to end now, with what was measured so far: set by a signal.
    #[arg(skip)]
    pub(crate) interrupted: Arc<AtomicBool>,
}

/// What kind of server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// An AEP relay
    Aep,
    /// The Node relay of `perf/peers`, which speaks the same
    Node,
    /// The bare loop: a relay's paths, no filters, no hello
    Bare,
    /// nginx with nchan: one channel, `/pub/load` and `/sub/load`
    Nchan,
    /// nats-server: core protocol, subject `load.SESSION`
    Nats,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Publishers, and consumers that each receive what they follow
    Fanout {
        #[command(flatten)]
        consumers: ConsumerArgs,
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Publishers alone
    Ingest {
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Connections that are opened and held
    Connect {
        #[command(flatten)]
        consumers: ConsumerArgs,
        /// New connections a second; default: as fast as they open
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        ramp: Option<u32>,
        /// How long to hold them, such as 500ms or 2s
        #[arg(long, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
        hold: Duration,
    },
    /// Consumers that cut their connection and resume where they were
    Resume {
        #[command(flatten)]
        consumers: ConsumerArgs,
        #[command(flatten)]
        load: LoadArgs,
        /// Events published before the consumers come, which ask for all of them; no more to a session than the server
        /// keeps for it (its `buffer`, AEP_BUFFER)
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=10_000_000))]
        preload: u64,
        /// Each consumer cuts after this many events; 0: never, and nothing is published after the --preload
        #[arg(long, default_value_t = 500)]
        cut_every: u64,
    },
    /// The same load without and with consumers that stop reading
    Slow {
        #[command(flatten)]
        consumers: ConsumerArgs,
        #[command(flatten)]
        load: LoadArgs,
        /// Share of the consumers that stop reading
        #[arg(long, default_value_t = 0.1)]
        stalled: f64,
    },
    /// The cost of publishing without and with subscriptions that do not match
    IdleMatch {
        #[command(flatten)]
        load: LoadArgs,
        /// Subscriptions
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        subscriptions: u32,
        /// Subscriptions of one WebSocket connection
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
        per_connection: u32,
        /// What their filters pin down
        #[arg(long, value_enum, default_value_t = Shape::Session)]
        shape: Shape,
    },
}

/// Attribute a filter pins down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// A session of its own each
    Session,
    /// An agent of its own each
    Agent,
    /// A type of its own each
    Type,
    /// A subject of its own each
    Subject,
}

impl Shape {
    /// The attribute's name.
    pub(crate) fn attribute(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Agent => "agent",
            Self::Type => "type",
            Self::Subject => "subject",
        }
    }
}

/// How a consumer is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Binding {
    Sse,
    Ws,
    /// One half each
    Mix,
}

/// How a publisher is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Publishing {
    Http,
    Ws,
}

/// What each consumer follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    All,
    Sessions(u32),
}

fn parse_filter(text: &str) -> Result<Filter, String> {
    match text {
        "all" => Ok(Filter::All),
        "one" => Ok(Filter::Sessions(1)),
        count => match count.parse() {
            Ok(count @ 1..) => Ok(Filter::Sessions(count)),
            _ => Err("all, one, or a number of sessions".into()),
        },
    }
}

/// The receiving side.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConsumerArgs {
    /// Consumers
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) consumers: u32,
    /// How they are connected
    #[arg(long, value_enum, default_value_t = Binding::Sse)]
    pub(crate) binding: Binding,
    /// What each follows: all, one (a session each), or a number of sessions
    #[arg(long, default_value = "all", value_parser = parse_filter)]
    pub(crate) filter: Filter,
}

/// The sending side.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// Publishers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) publishers: u32,
    /// How they are connected
    #[arg(long, value_enum, default_value_t = Publishing::Http)]
    pub(crate) publish: Publishing,
    /// Events of one batch
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) batch: u32,
    /// Bytes of one event
    #[arg(long, default_value_t = 300)]
    pub(crate) size: usize,
    /// Events a second, all publishers together; default: as fast as the server takes them
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Events that may be on their way to consumers at a time; default: no bound
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) window: Option<u64>,
    /// How long to publish, such as 500ms or 2s
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) duration: Duration,
    /// End after this many events, even if the duration is not over
    #[arg(long)]
    pub(crate) events: Option<u64>,
    /// How long to publish before anything is measured, such as 500ms or 2s
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) warmup: Duration,
    /// Sessions; default: one per publisher, or what the consumers' filters need
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) sessions: Option<u32>,
    /// Type of the events
    #[arg(long = "type", default_value = "tool.output", value_name = "TYPE")]
    pub(crate) event_type: String,
    /// Severity of the events; default: not written
    #[arg(long)]
    pub(crate) severity: Option<String>,
}

impl LoadArgs {
    /// Sessions of the run, given who consumes; or why it cannot be run.
    pub(crate) fn sessions_for(&self, consumers: Option<&ConsumerArgs>) -> Result<u32, Failure> {
        let usage = |what: &str| Err(Failure::Usage(what.into()));
        let needed = match consumers.map(|consumers| (consumers.filter, consumers.consumers)) {
            Some((Filter::Sessions(count), consumers)) => count.saturating_mul(consumers).min(1_000_000),
            _ => 1,
        };
        let sessions = self.sessions.unwrap_or(self.publishers.max(needed));
        if sessions < self.publishers {
            return usage("--sessions: at least one per publisher, so that each session has one writer");
        }
        if let Some(ConsumerArgs { filter, consumers, .. }) = consumers {
            let followed = match *filter {
                Filter::All => sessions,
                Filter::Sessions(count) if count > sessions => return usage("--filter: more sessions than there are"),
                Filter::Sessions(count) => count,
            };
            if u64::from(*consumers) * u64::from(followed) > ACCOUNTS_MAX {
                return usage("too many consumers times sessions to keep account of: fewer --consumers or --sessions");
            }
        }
        if self.size > EVENT_BYTES_MAX {
            return usage("--size: an event of at most 16 MiB");
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return usage("--rate: events a second, above 0");
        }
        let least = event_bytes_min(sessions, &self.event_type, self.severity.as_deref());
        if self.size < least {
            return usage(&format!("--size: such an event has at least {least} bytes"));
        }
        if !self.event_type.contains('.') {
            return usage("--type: a type has a dot; over WebSocket anything else would not even be an event");
        }
        if self.window.is_some_and(|window| window < u64::from(self.batch)) {
            return usage("--window: at least one batch");
        }
        Ok(sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fanout(arguments: &[&str]) -> Result<u32, Failure> {
        let arguments = Arguments::parse_from([&["aep-load", "fanout"], arguments].concat());
        let Command::Fanout { consumers, load } = arguments.command else { unreachable!() };
        load.sessions_for(Some(&consumers))
    }

    #[test]
    fn sessions_follow_from_publishers_and_filters() {
        assert_eq!(fanout(&["--publishers", "3"]).unwrap(), 3);
        assert_eq!(fanout(&["--filter", "one", "--consumers", "40"]).unwrap(), 40);
        assert_eq!(fanout(&["--filter", "3", "--consumers", "40"]).unwrap(), 120);
        assert_eq!(fanout(&["--filter", "3", "--sessions", "10"]).unwrap(), 10);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for bad in [
            &["--publishers", "3", "--sessions", "2"],
            &["--filter", "3", "--sessions", "2"],
            &["--rate", "0", "--batch", "1"],
            &["--window", "4", "--batch", "5"],
            &["--type", "wrong", "--batch", "1"],
            &["--size", "50", "--batch", "1"],
            &["--consumers", "100000", "--sessions", "1000"],
        ] {
            assert!(fanout(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn target_and_kind_may_stand_before_and_behind_the_scenario() {
        let parse = |arguments: &[&str]| {
            let common = Arguments::parse_from(arguments).common;
            (common.target, common.kind)
        };
        assert_eq!(parse(&["aep-load", "ingest"]), ("http://127.0.0.1:8787".into(), Kind::Aep));
        assert_eq!(parse(&["aep-load", "--target", "http://h:1", "ingest"]), ("http://h:1".into(), Kind::Aep));
        let behind = ["aep-load", "ingest", "--target", "http://h:1", "--kind", "nchan"];
        assert_eq!(parse(&behind), ("http://h:1".into(), Kind::Nchan));
    }

    #[test]
    fn the_least_size_is_named_and_taken() {
        let Err(Failure::Usage(what)) = fanout(&["--size", "1"]) else { unreachable!() };
        let least = what.split(' ').find(|word| word.parse::<usize>().is_ok()).unwrap();
        assert!(fanout(&["--size", least]).is_ok(), "{what}");
        assert!(fanout(&["--size", least, "--type", "tool.output.long"]).is_err());
    }
}
