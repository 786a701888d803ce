//! One setting: which of its two sources counts, how its text is read, and the line that refuses it.
//!
//! Knows no particular setting. Invariants: a value is read whole or refused (no sign, no blank, no rounding); a
//! refusal is one line of printable text, whatever the value held.

use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};

/// A setting that cannot be used. Displayed as one line: the setting as the operator wrote it, its value, and what
/// is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(String);

impl ConfigError {
    /// A command line that cannot be understood, in the words of the parser's first line.
    pub(super) fn usage(error: &clap::Error) -> Self {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        let line = line.strip_prefix("error: ").unwrap_or(line);
        match error.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(meant)) => Self(format!("{line}; is '{meant}' meant? (see --help)")),
            _ => Self(format!("{line} (see --help)")),
        }
    }

    fn value(setting: &Setting, accepted: &str) -> Self {
        Self(format!("{} is {:?}; accepted: {accepted}", setting.name, setting.value))
    }

    /// A refusal that says nothing of the value.
    pub(super) fn secret(name: &str, fault: &str, accepted: &str) -> Self {
        Self(format!("{name} {fault}; accepted: {accepted}"))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// A setting as the operator gave it.
pub(super) struct Setting {
    /// `--port`, or `AEP_PORT`.
    pub(super) name: String,
    /// As written. A variable that is not UTF-8 has its broken bytes replaced, so that no reading of it succeeds.
    pub(super) value: String,
}

/// Reads settings, given the command line and the environment.
pub(super) struct Settings<'a> {
    flag: &'a dyn Fn(&str) -> Option<String>,
    variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl<'a> Settings<'a> {
    pub(super) fn new(
        flag: &'a dyn Fn(&str) -> Option<String>,
        variable: &'a dyn Fn(&str) -> Option<OsString>,
    ) -> Self {
        Self { flag, variable }
    }

    /// The flag if given, else the variable unless empty.
    pub(super) fn given(&self, flag: &str) -> Option<Setting> {
        if let Some(value) = (self.flag)(flag) {
            return Some(Setting { name: format!("--{flag}"), value });
        }
        let name = variable_of(flag);
        let value = self.variable(&name)?.to_string_lossy().into_owned();
        Some(Setting { name, value })
    }

    /// A variable as it is, unless empty.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    /// Whatever `parse` makes of it.
    pub(super) fn parsed<T>(
        &self,
        flag: &str,
        accepted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(setting) = self.given(flag) else { return Ok(None) };
        parse(&setting.value).map(Some).ok_or_else(|| ConfigError::value(&setting, accepted))
    }

    pub(super) fn port(&self, flag: &str, default: u16) -> Result<u16, ConfigError> {
        // Kubernetes sets `{SERVICE}_PORT=tcp://…` in every container beside a service, and one may well be named
        // `aep`.
        let linked = |setting: Setting| setting.name == variable_of(flag) && setting.value.starts_with("tcp://");
        let accepted = if self.given(flag).is_some_and(linked) {
            "0 to 65535 (0 takes any free port); Kubernetes sets such a value for a service of that name: set it in the \
             container's env, or set enableServiceLinks: false, or rename the service"
        } else {
            "0 to 65535 (0 takes any free port)"
        };
        let port = self.parsed(flag, accepted, |text| u16::try_from(parse_integer(text)?).ok())?;
        Ok(port.unwrap_or(default))
    }

    pub(super) fn count(&self, flag: &str, default: usize, range: RangeInclusive<usize>) -> Result<usize, ConfigError> {
        let accepted = format!("a count from {} to {}", range.start(), range.end());
        let count = self.parsed(flag, &accepted, |text| parse_integer(text).filter(|n| range.contains(n)))?;
        Ok(count.unwrap_or(default))
    }

    /// `why` says what the lower bound is made of, where it is not a constant.
    pub(super) fn bytes(
        &self,
        flag: &str,
        default: usize,
        range: RangeInclusive<usize>,
        why: &str,
    ) -> Result<usize, ConfigError> {
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        let accepted = format!("bytes, from {}{why} to {}, plain or with KiB, MiB or GiB", range.start(), range.end());
        let bytes = self.parsed(flag, &accepted, |text| parse_bytes(text).filter(|n| range.contains(n)))?;
        Ok(bytes.unwrap_or(default))
    }

    pub(super) fn seconds(
        &self,
        flag: &str,
        default: Duration,
        [least, most]: [Duration; 2],
    ) -> Result<Duration, ConfigError> {
        let accepted = format!("seconds, from {} to {}, fractions allowed", least.as_secs_f64(), most.as_secs_f64());
        let time =
            self.parsed(flag, &accepted, |text| parse_seconds(text).filter(|time| (least..=most).contains(time)))?;
        Ok(time.unwrap_or(default))
    }
}

/// `max-body` → `AEP_MAX_BODY`.
pub(super) fn variable_of(flag: &str) -> String {
    format!("AEP_{}", flag.to_ascii_uppercase().replace('-', "_"))
}

/// Decimal digits and nothing else.
fn parse_integer(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// An integer, or one with a binary suffix.
fn parse_bytes(text: &str) -> Option<usize> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let suffixed = units.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)));
    let (number, unit) = suffixed.unwrap_or((text, 1));
    parse_integer(number)?.checked_mul(unit)
}

/// Seconds, whole or with a fraction of at most nine digits. Not a float: `1e3`, `inf` and rounding have no place in
/// a setting.
fn parse_seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.len() > 9 {
        return None;
    }
    let seconds = u64::try_from(parse_integer(whole)?).ok()?;
    let nanoseconds =
        u32::try_from(parse_integer(&format!("{fraction:0<9}")).filter(|_| !fraction.is_empty())?).ok()?;
    Some(Duration::new(seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_are_digits_only() {
        assert_eq!(parse_integer("0"), Some(0));
        assert_eq!(parse_integer("08787"), Some(8787));
        for text in ["", "+5", "-5", " 5", "5 ", "0x10", "1_000", "1.0", "1e3", "٣", "99999999999999999999999"] {
            assert_eq!(parse_integer(text), None, "{text}");
        }
    }

    #[test]
    fn bytes_take_binary_suffixes() {
        assert_eq!(parse_bytes("16777216"), Some(16 << 20));
        assert_eq!(parse_bytes("64KiB"), Some(64 << 10));
        assert_eq!(parse_bytes("16MiB"), Some(16 << 20));
        assert_eq!(parse_bytes("2GiB"), Some(2 << 30));
        for text in ["", "KiB", "1KB", "1K", "1 MiB", "1.5GiB", "1kib", "-1KiB", "99999999999999999GiB"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        assert_eq!(parse_seconds("15"), Some(Duration::from_secs(15)));
        assert_eq!(parse_seconds("0.25"), Some(Duration::from_millis(250)));
        assert_eq!(parse_seconds("1.000000001"), Some(Duration::new(1, 1)));
        for text in ["", ".", ".5", "5.", "1.-5", "-1", "1e3", "inf", "nan", "1,5", "1.0000000001", "1s"] {
            assert_eq!(parse_seconds(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_can_panic(text in any::<String>()) {
            let _ = (parse_bytes(&text), parse_seconds(&text));
        }

        #[test]
        fn a_refusal_is_one_printable_line(value in any::<String>()) {
            let given = |_: &str| Some(value.clone());
            let settings = Settings::new(&given, &|_| None);
            let refused = settings.parsed::<()>("x", "nothing", |_| None).unwrap_err();
            prop_assert!(refused.to_string().chars().all(|c| !c.is_control()));
        }
    }
}
