//! The forms of envelope attributes (contract §2): event types and the scope they decide, dates, traceparents, names of
//! extension attributes. Pure functions over text; all of them ASCII forms, so they look at bytes.

use super::attribute::Scope;

/// The closed set of categories a type may begin with, vendor types (`x.`) apart.
const CATEGORIES: [&str; 13] = [
    "agent",
    "session",
    "run",
    "progress",
    "tool",
    "delegation",
    "attention",
    "resource",
    "error",
    "state",
    "assessment",
    "message",
    "control",
];

/// The scope of events of this type; nothing if it breaks the type grammar.
pub(super) fn scope_of(kind: &str) -> Option<Scope> {
    let (first, rest) = kind.split_once('.')?;
    if first == "x" {
        return vendor_scope_of(rest);
    }
    if !CATEGORIES.contains(&first) || !rest.split('.').all(is_token) {
        return None;
    }
    Some(match (first, rest) {
        ("agent", _) => Scope::Agent,
        ("control", "attention.respond" | "cancel" | "pause" | "resume") => Scope::Command,
        ("attention", "routed") => Scope::Routed,
        _ => Scope::Session,
    })
}

/// What stands behind `x.`: `{vendor}.{token}.{token}(.{token})*`; a command if the first token is `control`.
fn vendor_scope_of(rest: &str) -> Option<Scope> {
    let (vendor, tokens) = rest.split_once('.')?;
    let (category, name) = tokens.split_once('.')?;
    if !is_vendor(vendor) || !is_token(category) || !name.split('.').all(is_token) {
        return None;
    }
    Some(if category == "control" { Scope::Command } else { Scope::Session })
}

fn is_token(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

fn is_vendor(vendor: &str) -> bool {
    !vendor.is_empty() && vendor.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// `^[a-z0-9]{1,20}$`: a name an extension attribute may bear, unless it is one of the envelope's own.
#[must_use]
pub fn is_extension_name(name: &str) -> bool {
    matches!(name.len(), 1..=20) && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'))
}

/// `^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`
pub(super) fn is_traceparent(text: &str) -> bool {
    text.len() == 55
        && text.bytes().enumerate().all(|(at, byte)| match at {
            2 | 35 | 52 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

/// RFC 3339 `date-time`: real calendar days, a zone, `t` and `z` in either case, any second up to 60.
pub(super) fn is_date_time(text: &str) -> bool {
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
    fn types_and_their_scopes() {
        for (kind, scope) in [
            ("agent.presence", Some(Scope::Agent)),
            ("agent.x.y", Some(Scope::Agent)),
            ("tool.completed", Some(Scope::Session)),
            ("tool.never_heard_of.2", Some(Scope::Session)),
            ("session.started", Some(Scope::Session)),
            ("run.a", Some(Scope::Session)),
            ("progress.a", Some(Scope::Session)),
            ("delegation.a", Some(Scope::Session)),
            ("resource.a", Some(Scope::Session)),
            ("error.a", Some(Scope::Session)),
            ("state.a", Some(Scope::Session)),
            ("assessment.a", Some(Scope::Session)),
            ("message.a", Some(Scope::Session)),
            ("attention.requested", Some(Scope::Session)),
            ("attention.routed", Some(Scope::Routed)),
            ("attention.routed.a", Some(Scope::Session)),
            ("control.attention.respond", Some(Scope::Command)),
            ("control.cancel", Some(Scope::Command)),
            ("control.pause", Some(Scope::Command)),
            ("control.resume", Some(Scope::Command)),
            ("control.resume.a", Some(Scope::Session)),
            ("control.accepted", Some(Scope::Session)),
            ("control.rejected", Some(Scope::Session)),
            ("control.attention", Some(Scope::Session)),
            ("x.acme.tool.b", Some(Scope::Session)),
            ("x.ac-me_1.agent.b", Some(Scope::Session)),
            ("x.acme.control.b", Some(Scope::Command)),
            ("x.acme.control.b.c", Some(Scope::Command)),
            ("x.acme.controls.b", Some(Scope::Session)),
            ("x.control.a.b", Some(Scope::Session)),
            ("x.acme.control", None),
            ("x.acme.foo", None),
            ("x.acme.foo.", None),
            ("x..foo.a", None),
            ("x.Acme.foo.a", None),
            ("x.acme.f-o.a", None),
            ("x.acme.foo.a-b", None),
            ("x.acme", None),
            ("x.", None),
            ("tool", None),
            ("tool.", None),
            (".tool", None),
            ("tool..a", None),
            ("tool.a.", None),
            ("tool.Completed", None),
            ("tool.a-b", None),
            ("tool.é", None),
            ("tool.a b", None),
            ("banana.peeled", None),
            ("Tool.a", None),
            ("", None),
            (".", None),
        ] {
            assert_eq!(scope_of(kind), scope, "{kind}");
        }
    }

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

    #[test]
    fn traceparents() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(is_traceparent(good));
        for at in 0..good.len() {
            let mut bad = good.to_owned();
            bad.replace_range(at..=at, "G");
            assert!(!is_traceparent(&bad), "{bad}");
        }
        assert!(!is_traceparent(&good.to_uppercase()));
        assert!(!is_traceparent(&good[1..]));
        assert!(!is_traceparent(&format!("{good}0")));
    }

    #[test]
    fn extension_names() {
        for good in ["a", "0", "acmeregion", "abcdefghij0123456789"] {
            assert!(is_extension_name(good), "{good}");
        }
        for bad in ["", "abcdefghij0123456789x", "acme_ext", "Acme", "a.b", "é", "a b", "a\0"] {
            assert!(!is_extension_name(bad), "{bad}");
        }
    }
}
