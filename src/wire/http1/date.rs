//! The `Date` of a response (RFC 9110 §6.6.1), in the one form that is sent: IMF-fixdate (§5.6.7).
//!
//! Knows no clock: whoever has one hands its reading in, and keeps the result for as long as it is true.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of every IMF-fixdate.
const LEN: usize = 29;
/// The last second that the form has digits for: the end of the year 9999, in seconds since the epoch.
const LAST: u64 = 253_402_300_799;

/// A moment as `Date` tells it, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date([u8; LEN]);

impl Date {
    /// That moment; one before 1970 or after 9999, which only a clock set wrong shows, becomes the nearest that can be
    /// told.
    #[must_use]
    pub fn at(moment: SystemTime) -> Self {
        let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(LAST);
        let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        let mut bytes = [b' '; LEN];
        for (byte, of_text) in bytes.iter_mut().zip(text.bytes()) {
            *byte = of_text;
        }
        Self(bytes)
    }

    /// The value of the field.
    pub(super) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(seconds: u64) -> String {
        String::from_utf8(Date::at(UNIX_EPOCH + Duration::from_secs(seconds)).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_moment_is_told_as_imf_fixdate() {
        // RFC 9110 §5.6.7
        assert_eq!(told(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(told(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(told(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn a_clock_set_wrong_panics_nobody() {
        assert_eq!(told(LAST), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(told(LAST + 1), told(LAST));
        assert_eq!(Date::at(UNIX_EPOCH - Duration::from_secs(1)), Date::at(UNIX_EPOCH));
    }
}
