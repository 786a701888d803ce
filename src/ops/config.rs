//! Settings: as written on the command line and in the environment → [`Config`], resolved and bounded (contract §1).
//!
//! `table.rs` says which settings there are, and all that is to be known of each; `setting.rs` reads one setting's
//! value; `unknown.rs` finds variables that are named like settings and are none; here they become the configuration,
//! made to fit the memory. A flag wins over a variable, and an empty variable is unset.
//!
//! Invariants: a [`Config`] keeps every relation that `limits.rs` states; a value that breaks one is refused with one
//! line and exit status 2, never bent into shape. The token is never part of an error.

mod setting;
mod table;
mod token;
mod unknown;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

pub use setting::ConfigError;
pub use table::CommandLine;

use crate::limits::{self, Limits, MemoryBudget};
use crate::ops::auth::Token;
use crate::ops::hosts::Hosts;
use crate::ops::log;
use crate::ops::machine::Machine;
use crate::ops::origins::Origins;
use setting::Settings;
use table::{BYTES_MAX, resolve_bounds};
use unknown::Unknown;

/// Parts into which defaults are divided to make them fit the memory.
const SHARES: usize = 1 << 10;
/// Fewer connections than this are worth a warning.
const FEW_CONNECTIONS: usize = 1000;
/// Connections by default, where the descriptors allow that many.
const CONNECTIONS_DEFAULT: usize = 100_000;

/// Everything the process was told, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen.
    pub host: Host,
    /// Port to listen on; 0 for any free one.
    pub port: u16,
    /// The token that guards everything but `/healthz`; without one, control is refused.
    pub token: Option<Token>,
    /// Event loops, one thread each.
    pub cores: usize,
    /// Origins that browsers may use the relay from.
    pub origins: Origins,
    /// Hosts that requests may be for, the one bound among them; all, if none is named.
    pub hosts: Option<Hosts>,
    /// Whether `GET /metrics` is served.
    pub metrics: bool,
    /// Filter of the log lines.
    pub log: String,
    /// Every bound.
    pub limits: Limits,
    /// Bytes that the bounds should not exceed together.
    memory: usize,
    /// Whether some are smaller than by default for that.
    is_scaled: bool,
    machine: Machine,
    unknown: Unknown,
}

/// A bind address: an IP address, or `localhost`, which is displayed as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// `localhost`: 127.0.0.1.
    Localhost,
}

impl Host {
    const ACCEPTED: &'static str = "an IPv4 or IPv6 address, or localhost";

    fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("localhost") {
            return Some(Self::Localhost);
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address = match bare {
            Some(bare) => bare.parse().ok().map(IpAddr::V6),
            None => text.parse().ok(),
        };
        // `::ffff:127.0.0.1` is another way to write 127.0.0.1, and no other address.
        address.map(|address| Self::Address(address.to_canonical()))
    }

    /// The address to bind.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        match self {
            Self::Address(ip) => ip,
            Self::Localhost => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

/// As in a URL: an IPv6 address in brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(v6)) => write!(f, "[{v6}]"),
            Self::Address(IpAddr::V4(v4)) => v4.fmt(f),
            Self::Localhost => f.write_str("localhost"),
        }
    }
}

/// Why the process ends before it has begun.
#[derive(Debug)]
pub enum Stop {
    /// `--help` or `--version`: text for standard output, exit status 0.
    Answer(String),
    /// A setting is wrong: one line for standard error, exit status 2.
    Refusal(ConfigError),
}

impl Stop {
    /// Writes what there is to say and returns the exit status.
    pub fn report(self) -> ExitCode {
        // Nobody may be there to read it; the status says it all the same.
        match self {
            Self::Answer(text) => {
                let _ = io::stdout().write_all(text.as_bytes());
                ExitCode::SUCCESS
            }
            Self::Refusal(error) => {
                let _ = writeln!(io::stderr(), "aep-relay: {error}");
                ExitCode::from(2)
            }
        }
    }
}

impl Config {
    /// Reads the process's own arguments and environment.
    ///
    /// # Errors
    /// Help or the version was asked for, or a setting is wrong.
    pub fn from_process() -> Result<Self, Stop> {
        let written = CommandLine::parse(std::env::args_os()).map_err(|error| {
            if error.use_stderr() { Stop::Refusal(ConfigError::usage(&error)) } else { Stop::Answer(error.to_string()) }
        })?;
        let config =
            Self::resolve(&written, &|name| std::env::var_os(name), Machine::probe()).map_err(Stop::Refusal)?;
        let given = std::env::vars_os().filter(|(_, value)| !value.is_empty());
        let unknown = Unknown::among(given.map(|(name, _)| name.to_string_lossy().into_owned()));
        Ok(Self { unknown, ..config })
    }

    /// Resolves what was written, with `variable` as the environment.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn resolve(
        written: &CommandLine,
        variable: &dyn Fn(&str) -> Option<OsString>,
        machine: Machine,
    ) -> Result<Self, ConfigError> {
        let flag = |flag: &str| written.flag(flag).map(str::to_owned);
        let settings = Settings::new(&flag, variable);
        let cores = settings.count("cores", machine.cores, 1..=limits::CORES_MAX)?;
        let host = settings.parsed("host", Host::ACCEPTED, Host::parse)?;
        let origins = settings.parsed("origins", Origins::ACCEPTED, Origins::parse)?;
        let hosts = settings.parsed("hosts", Hosts::ACCEPTED, Hosts::parse)?;
        let metrics = settings.parsed("metrics", "on or off", on_off)?;
        let log = settings.parsed("log", log::FILTER_ACCEPTED, |text| log::is_filter(text).then(|| text.to_owned()))?;
        let host = host.unwrap_or(Host::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let available = usize::try_from(machine.memory / 4 * 3).unwrap_or(usize::MAX).clamp(1, BYTES_MAX);
        let memory = settings.bytes("memory", available, 1..=BYTES_MAX, "")?;
        let (limits, is_scaled) = fitting(memory, cores, |share| bounds(&settings, cores, machine, memory, share))?;
        Ok(Self {
            host,
            port: settings.port("port", 8787)?,
            token: token::resolve(&settings)?,
            cores,
            origins: origins.unwrap_or(Origins::Any),
            hosts: hosts.map(|hosts| hosts.and(&host.to_string()).and(&host.ip().to_string())),
            metrics: metrics.unwrap_or(true),
            log: log.unwrap_or_else(|| "info".to_owned()),
            limits,
            memory,
            is_scaled,
            machine,
            unknown: Unknown::default(),
        })
    }

    /// The address to bind.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host.ip(), self.port)
    }

    /// What the operator should hear at start, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.unknown.warnings().collect();
        if !self.host.ip().is_loopback() && self.token.is_none() {
            warnings.push(format!(
                "listening on {} without AEP_TOKEN: whoever reaches this port may publish and read everything{}",
                self.host,
                self.open_to_pages()
            ));
        }
        let connections = self.machine.connections(self.cores);
        if self.limits.connections_max > connections {
            warnings.push(format!(
                "AEP_MAX_CONNECTIONS is {}, but {} file descriptors leave room for {connections} connections",
                self.limits.connections_max, self.machine.descriptors
            ));
        }
        if connections < FEW_CONNECTIONS {
            warnings.push(format!(
                "{} file descriptors leave room for {} only (ulimit -n)",
                self.machine.descriptors,
                if connections == 1 { "1 connection".to_owned() } else { format!("{connections} connections") }
            ));
        }
        let budget = self.budget();
        if budget.total_bytes() > self.memory {
            warnings.push(format!("AEP_MEMORY is {} MiB, but the other bounds allow {budget}", self.memory >> 20));
        }
        warnings
    }

    /// What the bounds allow the process to hold.
    #[must_use]
    pub fn budget(&self) -> MemoryBudget {
        self.limits.memory_budget(self.cores)
    }

    /// What the operator may want to know at start, and need not worry about.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let open = (self.host.ip().is_loopback() && self.token.is_none()).then(|| {
            format!(
                "without AEP_TOKEN every program on this machine may publish and read everything{}",
                self.open_to_pages()
            )
        });
        let memory = (self.is_scaled && self.budget().total_bytes() <= self.memory).then(|| {
            format!(
                "bounds that are not set are smaller than by default, to fit AEP_MEMORY ({} MiB): {}",
                self.memory >> 20,
                self.budget()
            )
        });
        open.into_iter().chain(memory).chain(self.unknown.notice()).collect()
    }

    /// How far whoever may publish and read may do so through pages that their browser shows, as the end of a sentence.
    fn open_to_pages(&self) -> &'static str {
        match (&self.origins, &self.hosts) {
            (Origins::Any, _) => {
                ", and so may every page in a browser there; AEP_ORIGINS and AEP_HOSTS keep foreign pages out"
            }
            (Origins::Listed(_), None) => {
                "; a page in a browser there may still read by DNS rebinding: AEP_HOSTS keeps it out"
            }
            (Origins::Listed(_), Some(_)) => "",
        }
    }
}

fn on_off(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// The bounds by the largest share of their defaults with which they fit that memory, or by none of them; and whether
/// that is not all of them.
fn fitting(
    memory: usize,
    cores: usize,
    bounds: impl Fn(usize) -> Result<Limits, ConfigError>,
) -> Result<(Limits, bool), ConfigError> {
    let (mut fits, mut too_much) = (0, SHARES + 1);
    while too_much - fits > 1 {
        let share = usize::midpoint(fits, too_much);
        if bounds(share)?.memory_budget(cores).total_bytes() <= memory { fits = share } else { too_much = share }
    }
    Ok((bounds(fits)?, fits < SHARES))
}

/// Resolves every bound, with that share of the defaults of what takes memory.
fn bounds(
    settings: &Settings<'_>,
    cores: usize,
    machine: Machine,
    memory: usize,
    share: usize,
) -> Result<Limits, ConfigError> {
    let scaled = |default: usize| default * share / SHARES;
    let defaults = Limits::default();
    // Half of the memory is for what has to hold whole bodies.
    let body_bytes_max = defaults.body_bytes_max.min(memory / 2 / Limits::bodies_min(cores)).max(1);
    let connections_max = scaled(machine.connections(cores).min(CONNECTIONS_DEFAULT)).max(1);
    // A queue is as large as it has to be, whatever the share.
    let defaults = Limits { body_bytes_max, connections_max, write_queue_bytes_max: 0, ..defaults };
    resolve_bounds(settings, defaults, cores, scaled)
}

#[cfg(test)]
mod tests;
