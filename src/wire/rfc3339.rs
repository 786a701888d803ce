//! Times of day as text (RFC 3339): whether a text is a `date-time`. A pure function over ASCII bytes; it reads no
//! value, and no clock.

/// RFC 3339 `date-time`: real calendar days, a zone, `t` and `z` in either case, any second up to 60.
#[must_use]
pub fn is_date_time(text: &str) -> bool {
    date_time(text.as_bytes()).is_some()
}

fn date_time(text: &[u8]) -> Option<()> {
    let (head, rest) = text.split_first_chunk::<19>()?;
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T' | b't', h1, h2, b':', n1, n2, b':', s1, s2] = *head else {
        return None;
    };
    let year = two_digits(y1, y2)? * 100 + two_digits(y3, y4)?;
    let (month, day) = (two_digits(m1, m2)?, two_digits(d1, d2)?);
    let clock = two_digits(h1, h2)? <= 23 && two_digits(n1, n2)? <= 59 && two_digits(s1, s2)? <= 60;
    if !clock || day == 0 || day > days_in(year, month)? {
        return None;
    }
    match fraction(rest)? {
        b"Z" | b"z" => Some(()),
        &[b'+' | b'-', h1, h2, b':', m1, m2] => (two_digits(h1, h2)? <= 23 && two_digits(m1, m2)? <= 59).then_some(()),
        _ => None,
    }
}

/// Steps over `"." 1*DIGIT`, if it is there.
fn fraction(rest: &[u8]) -> Option<&[u8]> {
    let Some(behind) = rest.strip_prefix(b".") else {
        return Some(rest);
    };
    let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 { None } else { behind.get(digits..) }
}

fn two_digits(tens: u8, ones: u8) -> Option<u32> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
}

/// Days of a month of the Gregorian calendar; nothing for a month that is none.
fn days_in(year: u32, month: u32) -> Option<u32> {
    Some(match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_times() {
        for good in [
            "2026-07-03T10:00:00Z",
            "2026-07-03t10:00:00z",
            "2026-07-03T10:15:05.400Z",
            "2026-07-03T10:15:05.1234567890123+05:30",
            "2016-12-31T23:59:60Z",
            "2026-07-03T10:59:60+00:00",
            "2024-02-29T00:00:00-00:00",
            "2000-02-29T00:00:00Z",
            "0000-02-29T00:00:00Z",
            "9999-12-31T23:59:59+23:59",
        ] {
            assert!(is_date_time(good), "{good}");
        }
        for bad in [
            "",
            "2026-07-03",
            "2026-07-03T10:00:00",
            "2026-07-03 10:00:00Z",
            "2026-07-03T10:00Z",
            "2026-07-03T10:00:00.Z",
            "2026-07-03T10:00:00,5Z",
            "2026-07-03T10:00:00ZZ",
            "2026-07-03T10:00:00Z ",
            " 2026-07-03T10:00:00Z",
            "2026-07-03T24:00:00Z",
            "2026-07-03T10:60:00Z",
            "2026-07-03T10:00:61Z",
            "2026-00-03T10:00:00Z",
            "2026-13-03T10:00:00Z",
            "2026-07-00T10:00:00Z",
            "2026-07-32T10:00:00Z",
            "2026-04-31T10:00:00Z",
            "2023-02-29T10:00:00Z",
            "1900-02-29T10:00:00Z",
            "2026-07-03T10:00:00+24:00",
            "2026-07-03T10:00:00+05:60",
            "2026-07-03T10:00:00+0530",
            "2026-07-03T10:00:00+05",
            "2026-7-3T10:00:00Z",
            "20260703T100000Z",
            "２026-07-03T10:00:00Z",
            "-026-07-03T10:00:00Z",
        ] {
            assert!(!is_date_time(bad), "{bad}");
        }
    }
}
