//! The settings: one table from which flag, variable, help, default, range and place in [`Limits`] follow.
//!
//! The name of a variable follows from its flag (`--max-body`, `AEP_MAX_BODY`). Chapters and rows stand in the order of
//! the help. Values are taken as text: what they may be is told in the same words for a flag and for a variable. Every
//! flag takes exactly one value, and the last of a repeated one counts.
//!
//! Invariant: a row of [`SettingKind::Memory`] stands behind those its least value is made of, or these are no such
//! rows.

use std::collections::HashMap;
use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, Command};

use super::setting::{ConfigError, Settings, variable_of};
use crate::limits::{self, FRAMING_BYTES, Limits};

/// Bound of every count that has no narrower one.
const COUNT_MAX: usize = u32::MAX as usize;
/// Bound of every size that has no narrower one: 1 TiB.
pub(super) const BYTES_MAX: usize = 1 << 40;
/// Bounds of a request head and a hello; both are held in whole.
const HEAD_BYTES_MAX: usize = 16 << 20;
/// Bounds of every time: 1 ms, a day.
const TIMES: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(86_400)];
/// Bounds of the heartbeat interval: balancers cut what is silent for half a minute.
const HEARTBEATS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(25)];
/// What has to hold one event of the largest accepted size.
const LARGEST: fn(&Limits, usize) -> usize = |limits, _| limits.body_bytes_max + FRAMING_BYTES;
const LARGEST_WHY: &str = "AEP_MAX_BODY and 65536 of framing";

/// A setting.
pub(super) struct SettingRow {
    /// Without its dashes.
    pub(super) flag: &'static str,
    /// The chapter of the help.
    chapter: &'static str,
    /// What it is, with its unit and what a peer sees at it.
    help: &'static str,
    /// The default in words; none where it is that of [`Limits`].
    default: Option<&'static str>,
    kind: SettingKind,
}

/// A bound's place.
type LimitField<T> = fn(&mut Limits) -> &mut T;

/// How a setting is read.
enum SettingKind {
    /// By `config.rs`; what stands for its value in the help.
    Own(&'static str),
    /// 1 to `most`.
    Count { bound: LimitField<usize>, most: usize },
    /// A count that is like another one unless it is set.
    CountLike { bound: LimitField<usize>, other: fn(&Limits) -> usize },
    /// 1 to `most` bytes.
    Bytes { bound: LimitField<usize>, most: usize },
    /// Bytes that count toward the memory, at least what other bounds and the number of cores ask for. By default such
    /// a share of its default as fits the memory.
    Memory { bound: LimitField<usize>, least: fn(&Limits, usize) -> usize, why: &'static str },
    /// Seconds within that range.
    Seconds { bound: LimitField<Duration>, range: [Duration; 2] },
}

/// Every setting but `AEP_TOKEN`, which has no flag.
pub(super) const TABLE: &[SettingRow] = &[
    SettingRow {
        flag: "host",
        chapter: "Listening",
        help: "Address to bind: IPv4, IPv6 or localhost",
        default: Some("default 127.0.0.1"),
        kind: SettingKind::Own("ADDRESS"),
    },
    SettingRow {
        flag: "port",
        chapter: "Listening",
        help: "Port to bind, 0 for any free one",
        default: Some("default 8787"),
        kind: SettingKind::Own("PORT"),
    },
    SettingRow {
        flag: "cores",
        chapter: "Listening",
        help: "Event loops, one thread each, 1 to 64",
        default: Some("default: the machine's processors"),
        kind: SettingKind::Own("COUNT"),
    },
    SettingRow {
        flag: "max-connections",
        chapter: "Listening",
        help: "Connections at once; one more is answered 503",
        default: Some(
            "default: 100000, or what the limit of open files leaves beside 64 for the process and 16 for each core",
        ),
        kind: SettingKind::Count { bound: |limits| &mut limits.connections_max, most: limits::CONNECTIONS_MAX },
    },
    SettingRow {
        flag: "token-file",
        chapter: "Access",
        help: "File holding the bearer token, which may end in one line end",
        default: Some("default: AEP_TOKEN; without either, everybody may publish and read, and control is refused"),
        kind: SettingKind::Own("PATH"),
    },
    SettingRow {
        flag: "origins",
        chapter: "Access",
        help: "Browser origins that may use the relay: *, or a list separated by commas, each scheme://host or scheme://host:port",
        default: Some("default *"),
        kind: SettingKind::Own("ORIGINS"),
    },
    SettingRow {
        flag: "hosts",
        chapter: "Access",
        help: "Hosts that requests may be for, against DNS rebinding: names or addresses without port, separated by commas; the address bound is one of them anyway, any other Host is answered 421",
        default: Some("default: no check"),
        kind: SettingKind::Own("HOSTS"),
    },
    SettingRow {
        flag: "buffer",
        chapter: "Replay",
        help: "Events kept per session; the lowest position leaves first",
        default: None,
        kind: SettingKind::Count { bound: |limits| &mut limits.buffer_events_max, most: COUNT_MAX },
    },
    SettingRow {
        flag: "max-sessions",
        chapter: "Replay",
        help: "Sessions kept; the least recently written is evicted",
        default: None,
        kind: SettingKind::Count { bound: |limits| &mut limits.sessions_max, most: COUNT_MAX },
    },
    SettingRow {
        flag: "buffer-bytes",
        chapter: "Replay",
        help: "Memory of all replay buffers together; at least four times --max-body for each core, to which the default grows",
        default: None,
        kind: SettingKind::Memory {
            bound: |limits| &mut limits.replay_bytes_max,
            least: |limits, cores| Limits::replay_bytes_min(cores, limits.body_bytes_max),
            why: "four times AEP_MAX_BODY for each core",
        },
    },
    SettingRow {
        flag: "max-from",
        chapter: "Replay",
        help: "Resume positions in one subscription",
        default: Some("default: --max-sessions"),
        kind: SettingKind::CountLike {
            bound: |limits| &mut limits.from_positions_max,
            other: |limits| limits.sessions_max,
        },
    },
    SettingRow {
        flag: "max-body",
        chapter: "Requests",
        help: "One POST body or one WebSocket message, at most 1 GiB",
        default: None,
        kind: SettingKind::Bytes { bound: |limits| &mut limits.body_bytes_max, most: limits::MESSAGE_BYTES_MAX },
    },
    SettingRow {
        flag: "max-batch",
        chapter: "Requests",
        help: "Events in one NDJSON batch",
        default: None,
        kind: SettingKind::Count { bound: |limits| &mut limits.batch_events_max, most: COUNT_MAX },
    },
    SettingRow {
        flag: "head-bytes",
        chapter: "Requests",
        help: "A request's head; over it 431 or 414",
        default: None,
        kind: SettingKind::Bytes { bound: |limits| &mut limits.head_bytes_max, most: HEAD_BYTES_MAX },
    },
    SettingRow {
        flag: "head-time",
        chapter: "Requests",
        help: "From a request's first byte to the end of its head; over it 408",
        default: None,
        kind: SettingKind::Seconds { bound: |limits| &mut limits.head_time, range: TIMES },
    },
    SettingRow {
        flag: "body-time",
        chapter: "Requests",
        help: "For a body or WebSocket message, which then must keep 1 KiB/s over ten seconds; else 408 or 1008",
        default: None,
        kind: SettingKind::Seconds { bound: |limits| &mut limits.body_time, range: TIMES },
    },
    SettingRow {
        flag: "idle-time",
        chapter: "Requests",
        help: "A kept-alive connection without a request is closed after this",
        default: None,
        kind: SettingKind::Seconds { bound: |limits| &mut limits.keep_alive_time, range: TIMES },
    },
    SettingRow {
        flag: "heartbeat",
        chapter: "Streams and WebSockets",
        help: "Silence on an event stream after which a comment goes out, 1 to 25",
        default: None,
        kind: SettingKind::Seconds { bound: |limits| &mut limits.heartbeat_interval, range: HEARTBEATS },
    },
    SettingRow {
        flag: "hello-time",
        chapter: "Streams and WebSockets",
        help: "From a WebSocket's upgrade to its hello",
        default: None,
        kind: SettingKind::Seconds { bound: |limits| &mut limits.hello_time, range: TIMES },
    },
    SettingRow {
        flag: "hello-bytes",
        chapter: "Streams and WebSockets",
        help: "A hello",
        default: None,
        kind: SettingKind::Bytes { bound: |limits| &mut limits.hello_bytes_max, most: HEAD_BYTES_MAX },
    },
    SettingRow {
        flag: "max-subscriptions",
        chapter: "Streams and WebSockets",
        help: "Subscriptions of one WebSocket",
        default: None,
        kind: SettingKind::Count { bound: |limits| &mut limits.subscriptions_per_connection_max, most: COUNT_MAX },
    },
    SettingRow {
        flag: "max-claims",
        chapter: "Streams and WebSockets",
        help: "Sessions one WebSocket claims; over it the oldest claim lapses",
        default: None,
        kind: SettingKind::Count { bound: |limits| &mut limits.claims_per_connection_max, most: COUNT_MAX },
    },
    SettingRow {
        flag: "max-scalars",
        chapter: "Streams and WebSockets",
        help: "Scalars in one filter",
        default: None,
        kind: SettingKind::Count { bound: |limits| &mut limits.filter_scalars_max, most: COUNT_MAX },
    },
    SettingRow {
        flag: "memory",
        chapter: "Memory",
        help: "All of the following together: those that are not set, --buffer-bytes, --max-body and --max-connections are made smaller until the sum fits",
        default: Some("default: three quarters of what control group, ulimit -v and machine allow"),
        kind: SettingKind::Own("BYTES"),
    },
    SettingRow {
        flag: "queue-bytes",
        chapter: "Memory",
        help: "What may wait for one connection, at least --max-body and 64 KiB of framing; beyond it the connection is a slow consumer",
        default: Some("default: that least"),
        kind: SettingKind::Memory {
            bound: |limits| &mut limits.write_queue_bytes_max,
            least: LARGEST,
            why: LARGEST_WHY,
        },
    },
    SettingRow {
        flag: "backlog-bytes",
        chapter: "Memory",
        help: "What waits for slow consumers, all together; beyond it the largest backlog is cut first",
        default: None,
        kind: SettingKind::Memory {
            bound: |limits| &mut limits.backlog_bytes_max,
            least: |limits, _| limits.write_queue_bytes_max,
            why: "AEP_QUEUE_BYTES",
        },
    },
    SettingRow {
        flag: "delivery-bytes",
        chapter: "Memory",
        help: "Events being delivered, for each core",
        default: None,
        kind: SettingKind::Memory { bound: |limits| &mut limits.delivery_bytes_max, least: LARGEST, why: LARGEST_WHY },
    },
    SettingRow {
        flag: "receive-bytes",
        chapter: "Memory",
        help: "Requests and messages being received, all together; beyond it senders wait, then 503 or 1013",
        default: None,
        kind: SettingKind::Memory {
            bound: |limits| &mut limits.receiving_bytes_max,
            least: |limits, _| limits.body_bytes_max,
            why: "AEP_MAX_BODY",
        },
    },
    SettingRow {
        flag: "subscription-bytes",
        chapter: "Memory",
        help: "What all connections say of themselves, subscribe to and claim, as it lies in memory; beyond it large hellos and subscriptions are refused and claims lapse",
        default: None,
        kind: SettingKind::Memory {
            bound: |limits| &mut limits.remembered_bytes_max,
            least: |limits, _| limits.body_bytes_max,
            why: "AEP_MAX_BODY",
        },
    },
    SettingRow {
        flag: "drain-time",
        chapter: "Operation",
        help: "How long a drain may take before the process exits 1",
        default: None,
        kind: SettingKind::Seconds { bound: |limits| &mut limits.drain_time, range: TIMES },
    },
    SettingRow {
        flag: "metrics",
        chapter: "Operation",
        help: "Whether GET /metrics is served, on or off",
        default: Some("default on"),
        kind: SettingKind::Own("ON|OFF"),
    },
    SettingRow {
        flag: "log",
        chapter: "Operation",
        help: "What is logged: a level, or filter directives",
        default: Some("default info"),
        kind: SettingKind::Own("FILTER"),
    },
];

impl SettingRow {
    /// Its environment variable.
    pub(super) fn variable(&self) -> String {
        variable_of(self.flag)
    }

    /// What stands for its value in the help.
    fn placeholder(&self) -> &'static str {
        match self.kind {
            SettingKind::Own(placeholder) => placeholder,
            SettingKind::Count { .. } | SettingKind::CountLike { .. } => "COUNT",
            SettingKind::Bytes { .. } | SettingKind::Memory { .. } => "BYTES",
            SettingKind::Seconds { .. } => "SECONDS",
        }
    }

    /// The default as the help tells it.
    fn default_text(&self) -> String {
        let mut limits = Limits::default();
        let value = match self.kind {
            _ if self.default.is_some() => return self.default.unwrap_or_default().to_owned(),
            SettingKind::Own(_) => String::new(),
            SettingKind::Count { bound, .. } | SettingKind::CountLike { bound, .. } => bound(&mut limits).to_string(),
            SettingKind::Bytes { bound, .. } | SettingKind::Memory { bound, .. } => in_units(*bound(&mut limits)),
            SettingKind::Seconds { bound, .. } => bound(&mut limits).as_secs_f64().to_string(),
        };
        format!("default {value}")
    }

    fn argument(&self) -> Arg {
        let takes_numbers = matches!(self.placeholder(), "COUNT" | "BYTES" | "SECONDS" | "PORT");
        Arg::new(self.flag)
            .long(self.flag)
            .value_name(self.placeholder())
            .help(format!("{} [{}, {}]", self.help, self.variable(), self.default_text()))
            .help_heading(self.chapter)
            // A negative number is refused as a value, in the same words as from a variable.
            .allow_negative_numbers(takes_numbers)
            .allow_hyphen_values(self.placeholder() == "ADDRESS")
    }
}

/// A size with the largest unit that divides it.
fn in_units(bytes: usize) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = units.iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    whole.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// The command line.
pub(super) fn command() -> Command {
    Command::new("aep-relay")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A relay for agent activity events: HTTP and WebSocket in, SSE and WebSocket out.")
        .args_override_self(true)
        .max_term_width(100)
        .after_help(AFTER_HELP)
        .args(TABLE.iter().map(SettingRow::argument))
}

const AFTER_HELP: &str = "Every setting can be given as a flag or as the environment variable in brackets; the flag wins, and \
                  an empty variable is unset. Sizes are bytes, plain or with KiB, MiB or GiB; times are seconds, \
                  fractions allowed. A wrong value ends the start with one line and exit status 2.\n\n\
                  The token itself has no flag, because every user can read a process's arguments: set AEP_TOKEN, or \
                  name a file. SIGTERM, SIGINT or SIGHUP drains and exits 0; a drain that takes too long, or a second signal, \
                  exits 1.";

/// The command line as written; nothing here is checked yet.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    flags: HashMap<&'static str, String>,
}

impl CommandLine {
    /// What the arguments say, the first of which is the program's name.
    ///
    /// # Errors
    /// They cannot be understood, or help or the version was asked for.
    pub fn parse(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let mut matches = command().try_get_matches_from(arguments)?;
        let flags = TABLE.iter().filter_map(|row| Some((row.flag, matches.remove_one(row.flag)?)));
        Ok(Self { flags: flags.collect() })
    }

    /// The value of a flag, if it was given.
    pub(super) fn flag(&self, flag: &str) -> Option<&str> {
        self.flags.get(flag).map(String::as_str)
    }
}

/// Resolves every bound of the table. `limits` has the defaults; those of [`SettingKind::Memory`] are scaled by
/// `scaled`. Where one depends on others, its default follows them, and a value that breaks the relation is refused
/// with the reason.
pub(super) fn resolve_bounds(
    settings: &Settings<'_>,
    mut limits: Limits,
    cores: usize,
    scaled: impl Fn(usize) -> usize,
) -> Result<Limits, ConfigError> {
    for row in TABLE {
        match row.kind {
            SettingKind::Own(_) | SettingKind::CountLike { .. } | SettingKind::Memory { .. } => {}
            SettingKind::Count { bound, most } => {
                let bound = bound(&mut limits);
                *bound = settings.count(row.flag, *bound, 1..=most)?;
            }
            SettingKind::Bytes { bound, most } => {
                let bound = bound(&mut limits);
                *bound = settings.bytes(row.flag, *bound, 1..=most, "")?;
            }
            SettingKind::Seconds { bound, range } => {
                let bound = bound(&mut limits);
                *bound = settings.seconds(row.flag, *bound, range)?;
            }
        }
    }
    for row in TABLE {
        match row.kind {
            SettingKind::Own(_)
            | SettingKind::Count { .. }
            | SettingKind::Bytes { .. }
            | SettingKind::Seconds { .. } => {}
            SettingKind::CountLike { bound, other } => {
                let default = other(&limits);
                *bound(&mut limits) = settings.count(row.flag, default, 1..=COUNT_MAX)?;
            }
            SettingKind::Memory { bound, least, why } => {
                let least = least(&limits, cores);
                let bound = bound(&mut limits);
                *bound = settings.bytes(row.flag, scaled(*bound).max(least), least..=BYTES_MAX, why)?;
            }
        }
    }
    Ok(limits)
}
