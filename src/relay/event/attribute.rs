//! The values envelope attributes take (contract §2): levels, positions, scalars, and which strings are read.

use std::fmt;
use std::str::FromStr;

/// How loud an event is; ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Severity {
    /// `debug`
    Debug,
    /// `info`, the default
    #[default]
    Info,
    /// `notice`
    Notice,
    /// `warning`
    Warning,
    /// `error`
    Error,
    /// `critical`
    Critical,
}

impl Severity {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }
}

/// A word that is no level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownLevel;

impl FromStr for Severity {
    type Err = UnknownLevel;

    fn from_str(word: &str) -> Result<Self, UnknownLevel> {
        Ok(match word {
            "debug" => Self::Debug,
            "info" => Self::Info,
            "notice" => Self::Notice,
            "warning" => Self::Warning,
            "error" => Self::Error,
            "critical" => Self::Critical,
            _ => return Err(UnknownLevel),
        })
    }
}

/// How much of the payload an event carries (§2, §5); ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Capture {
    /// `none`
    None,
    /// `metadata`, the default
    #[default]
    Metadata,
    /// `redacted`
    Redacted,
    /// `full`
    Full,
}

impl Capture {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Metadata => "metadata",
            Self::Redacted => "redacted",
            Self::Full => "full",
        }
    }
}

impl FromStr for Capture {
    type Err = UnknownLevel;

    fn from_str(word: &str) -> Result<Self, UnknownLevel> {
        Ok(match word {
            "none" => Self::None,
            "metadata" => Self::Metadata,
            "redacted" => Self::Redacted,
            "full" => Self::Full,
            _ => return Err(UnknownLevel),
        })
    }
}

/// How an event is addressed; decided by its type alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// `agent.*`: no session, live only.
    Agent,
    /// A command: routed to its session's claimant (§7).
    Command,
    /// `attention.routed`: a session, no `seq`.
    Routed,
    /// Everything else: a session and a `seq`.
    Session,
}

/// A position inside one session; ordered lexicographically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Epoch, 0 … 2^63−1.
    pub epoch: u64,
    /// Sequence number, 0 … 2^63−1.
    pub seq: u64,
}

impl fmt::Display for Position {
    /// `{epoch}:{seq}`, as SSE ids and comments write it (§4).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.seq)
    }
}

impl Position {
    /// Whether nothing can lie between `before` and this one: same epoch, next `seq`.
    #[must_use]
    pub fn follows(self, before: Self) -> bool {
        self.epoch == before.epoch && before.seq.checked_add(1) == Some(self.seq)
    }
}

/// The string attributes that filters, routing or delivery read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Attribute {
    /// `id`
    Id,
    /// `type`
    Type,
    /// `source`
    Source,
    /// `agent`
    Agent,
    /// `session`
    Session,
    /// `run`
    Run,
    /// `step`
    Step,
    /// `subject`
    Subject,
    /// `cause`
    Cause,
}

/// How many [`Attribute`]s there are.
pub const ATTRIBUTES: usize = 9;

const _: () = assert!(Attribute::Cause as usize + 1 == ATTRIBUTES);

impl Attribute {
    /// Its member name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Type => "type",
            Self::Source => "source",
            Self::Agent => "agent",
            Self::Session => "session",
            Self::Run => "run",
            Self::Step => "step",
            Self::Subject => "subject",
            Self::Cause => "cause",
        }
    }
}

/// A scalar: an extension attribute's value, or what a filter compares with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// A string.
    Text(&'a str),
    /// An integer written without fraction or exponent.
    Integer(i64),
    /// A boolean.
    Boolean(bool),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_read_back() {
        use Severity::{Critical, Debug, Error, Info, Notice, Warning};
        let severities = [Debug, Info, Notice, Warning, Error, Critical];
        assert!(severities.is_sorted());
        for severity in severities {
            assert_eq!(severity.as_str().parse(), Ok(severity));
        }
        let captures = [Capture::None, Capture::Metadata, Capture::Redacted, Capture::Full];
        assert!(captures.is_sorted());
        for capture in captures {
            assert_eq!(capture.as_str().parse(), Ok(capture));
        }
        assert_eq!("Info".parse::<Severity>(), Err(UnknownLevel));
        assert_eq!("".parse::<Capture>(), Err(UnknownLevel));
    }

    #[test]
    fn positions_order_by_epoch_first() {
        let at = |epoch, seq| Position { epoch, seq };
        assert!(at(0, 9) < at(1, 0) && at(1, 0) < at(1, 1));
        assert_eq!(at(2, 7).to_string(), "2:7");
    }
}
