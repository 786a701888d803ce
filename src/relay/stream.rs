//! `GET /stream`: parameters in, a subscription out (contract §4).
//!
//! The query has been split and form-decoded by `wire/url.rs`; this file knows what the parameters mean. Resume
//! positions share their grammar with `subscribe` frames ([`positions`]).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::wire::json::{self, Kind, Value};
use crate::wire::url::Target;

use super::error::{Code, Refusal};
use super::event::{Capture, Position};
use super::filter::{Filter, FilterFault};
use super::reader::Wanted;
use crate::relay::mail::page::Asked;
use crate::relay::reader::subscription::From;

/// The bounds that apply to what a subscription asks for.
#[derive(Debug, Clone, Copy)]
pub struct AskBounds {
    /// Scalars in a filter.
    pub filter_scalars_max: usize,
    /// Resume positions.
    pub from_positions_max: usize,
}

/// What the query and the `Last-Event-ID` field ask for.
///
/// # Errors
/// The first parameter at fault, in the order filter, capture, from.
pub fn wanted(target: Target<'_>, last_event_id: Option<&[u8]>, bounds: AskBounds) -> Result<Wanted, Refusal> {
    let filter = match parameter(target, "filter", Code::InvalidFilter)? {
        Some(text) => filter(text.as_bytes(), bounds)?,
        None => Filter::everything(),
    };
    let ceiling = match parameter(target, "capture", Code::InvalidCapture)? {
        Some(level) => capture(&level)?,
        None => Capture::Full,
    };
    let from = match parameter(target, "from", Code::InvalidFrom)? {
        Some(text) => from(&text, bounds)?,
        None => last_event_id.and_then(position_of).map_or(From::Now, |asked| From::Positions(vec![asked])),
    };
    // Any other value, and a broken one, is live.
    let live = parameter(target, "live", Code::BadRequest).ok().flatten().is_none_or(|live| live != "0");
    Ok(Wanted { filter, ceiling, from, live, id: None })
}

/// The first value of a parameter; an empty one counts as absent.
fn parameter<'a>(target: Target<'a>, name: &str, code: Code) -> Result<Option<Cow<'a, str>>, Refusal> {
    match target.first(name) {
        None => Ok(None),
        Some(Ok(value)) if value.is_empty() => Ok(None),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) => Err(Refusal::new(code, format!("{name}: broken percent-encoding or invalid UTF-8"))),
    }
}

/// A filter, or why it is none.
///
/// # Errors
/// `invalid-filter`, or `limit-exceeded` naming the limit.
pub fn filter(text: &[u8], bounds: AskBounds) -> Result<Filter, Refusal> {
    Filter::parse(text, bounds.filter_scalars_max).map_err(|fault| match fault {
        FilterFault::Invalid(detail) => Refusal::new(Code::InvalidFilter, detail),
        FilterFault::TooManyScalars { max } => {
            Refusal::new(Code::LimitExceeded, format!("AEP_MAX_SCALARS: more than {max} scalars in one filter"))
        }
    })
}

/// A capture level.
///
/// # Errors
/// `invalid-capture`.
pub fn capture(level: &str) -> Result<Capture, Refusal> {
    level.parse().map_err(|_| Refusal::new(Code::InvalidCapture, "capture: none, metadata, redacted or full"))
}

/// The `from` parameter: the word `all`, or positions.
fn from(text: &str, bounds: AskBounds) -> Result<From, Refusal> {
    if text == "all" {
        return Ok(From::All);
    }
    let document = json::scan(text.as_bytes()).map_err(|fault| {
        let detail: Cow<'static, str> = match text.trim_ascii_start().bytes().next() {
            Some(b'[' | b'{') | None => format!("from: {fault}").into(),
            // Something else altogether, such as the form of `Last-Event-ID`; where its JSON breaks off helps nobody.
            Some(_) => FROM_RULE.into(),
        };
        Refusal::new(Code::InvalidFrom, detail)
    })?;
    positions(document.root, bounds)
}

/// Resume positions: an array of `{session, epoch, seq}`. A session named twice means its lower position.
///
/// # Errors
/// `invalid-from` naming the rule, or `limit-exceeded` naming `AEP_MAX_FROM`.
pub fn positions(value: Value<'_>, bounds: AskBounds) -> Result<From, Refusal> {
    let invalid = |rule: &'static str| Refusal::new(Code::InvalidFrom, rule);
    if value.kind != Kind::Array {
        return Err(invalid(FROM_RULE));
    }
    if value.elements().take(bounds.from_positions_max + 1).count() > bounds.from_positions_max {
        let max = bounds.from_positions_max;
        return Err(Refusal::new(Code::LimitExceeded, format!("AEP_MAX_FROM: more than {max} positions")));
    }
    let mut asked: Vec<Asked> = Vec::new();
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    for element in value.elements() {
        if element.kind != Kind::Object {
            return Err(invalid("from: each position is an object"));
        }
        let session = element
            .member("session")
            .and_then(Value::string)
            .filter(|session| !session.is_empty())
            .ok_or_else(|| invalid("from: session is a non-empty string"))?;
        let seq = element.member("seq").and_then(ordinal).ok_or_else(|| invalid(SEQ_RULE))?;
        let epoch = match element.member("epoch") {
            Some(epoch) => ordinal(epoch).ok_or_else(|| invalid(EPOCH_RULE))?,
            None => 0,
        };
        let position = Position { epoch, seq };
        match places.get(&*session).and_then(|at| asked.get_mut(*at)) {
            Some(earlier) => earlier.position = earlier.position.min(position),
            None => {
                let session: Arc<str> = session.into();
                places.insert(Arc::clone(&session), asked.len());
                asked.push(Asked { session, position });
            }
        }
    }
    Ok(From::Positions(asked))
}

/// What `from` may be.
pub const FROM_RULE: &str = "from: an array of positions, or the word all";
const SEQ_RULE: &str = "from: seq is an integer from 0 to 9223372036854775807";
const EPOCH_RULE: &str = "from: epoch is an integer from 0 to 9223372036854775807";

fn ordinal(value: Value<'_>) -> Option<u64> {
    (value.kind == Kind::Number).then_some(())?;
    u64::try_from(json::integer(value.text)?).ok()
}

/// `Last-Event-ID`: `{session}:{epoch}:{seq}`, split from the right; a malformed one is nothing.
fn position_of(field: &[u8]) -> Option<Asked> {
    let text = std::str::from_utf8(field).ok()?;
    let mut parts = text.rsplitn(3, ':');
    let (seq, epoch, session) = (parts.next()?, parts.next()?, parts.next()?);
    let ordinal = |digits: &str| {
        digits.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
        digits.parse::<i64>().ok().and_then(|number| u64::try_from(number).ok())
    };
    let position = Position { epoch: ordinal(epoch)?, seq: ordinal(seq)? };
    (!session.is_empty()).then(|| Asked { session: session.into(), position })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: AskBounds = AskBounds { filter_scalars_max: 4, from_positions_max: 2 };

    fn ask(query: &str, last_event_id: Option<&[u8]>) -> Result<Wanted, Refusal> {
        wanted(Target { path: "/stream", query }, last_event_id, BOUNDS)
    }

    fn asked(session: &str, epoch: u64, seq: u64) -> Asked {
        Asked { session: session.into(), position: Position { epoch, seq } }
    }

    #[test]
    fn last_event_id_is_split_from_the_right() {
        for (field, expected) in [
            (&b"s:0:5"[..], Some(asked("s", 0, 5))),
            ("a:b:é:1:2".as_bytes(), Some(asked("a:b:é", 1, 2))),
            (b"::1:2", Some(asked(":", 1, 2))),
            (b":1:2", None),
            (b"s:1", None),
            (b"s:x:1", None),
            (b"s:+1:1", None),
            (b"s:1:", None),
            (b"s:1:9223372036854775808", None),
            (b"s\xff:1:1", None),
        ] {
            assert_eq!(position_of(field), expected, "{field:?}");
        }
    }

    #[test]
    fn from_wins_over_last_event_id_and_the_first_of_a_repeated_parameter_counts() {
        let wanted = ask("from=&live=1", Some(b"s:0:5")).unwrap();
        assert_eq!(wanted.from, From::Positions(vec![asked("s", 0, 5)]));
        assert!(wanted.live);
        let wanted = ask("from=all&from=x&live=0&nobody=%zz", Some(b"s:0:5")).unwrap();
        assert_eq!(wanted.from, From::All);
        assert!(!wanted.live);
    }

    #[test]
    fn a_session_named_twice_means_its_lower_position() {
        let query = r#"from=[{"session":"s","seq":7,"x":[]},{"session":"s","epoch":0,"seq":3}]"#;
        assert_eq!(ask(query, None).unwrap().from, From::Positions(vec![asked("s", 0, 3)]));
    }

    #[test]
    fn a_fault_of_from_says_what_is_expected() {
        for (query, detail) in [
            ("from=s1:0:1", FROM_RULE),
            ("from=everything", FROM_RULE),
            ("from={}", FROM_RULE),
            ("from=7", FROM_RULE),
            (r#"from=[{"session":"s","seq":1}"#, "from: unexpected end of text at byte 24"),
            (r#"from=[{"session":"s"}]"#, SEQ_RULE),
        ] {
            assert_eq!(ask(query, None).unwrap_err().detail, detail, "{query}");
        }
    }

    #[test]
    fn every_fault_has_its_code() {
        for (query, code) in [
            ("filter=%7", Code::InvalidFilter),
            ("filter=[]", Code::InvalidFilter),
            (r#"filter={"agent":["1","2","3","4","5"]}"#, Code::LimitExceeded),
            ("capture=none%ff", Code::InvalidCapture),
            ("capture=Full", Code::InvalidCapture),
            ("from=%", Code::InvalidFrom),
            ("from=ALL", Code::InvalidFrom),
            ("from={}", Code::InvalidFrom),
            (r#"from=[{"session":"","seq":1}]"#, Code::InvalidFrom),
            (r#"from=[{"session":"s"}]"#, Code::InvalidFrom),
            (r#"from=[{"session":"s","seq":1.0}]"#, Code::InvalidFrom),
            (r#"from=[{"session":"s","seq":"1"}]"#, Code::InvalidFrom),
            (r#"from=[{"session":"s","seq":1,"epoch":-1}]"#, Code::InvalidFrom),
            (r#"from=[{"session":"s","seq":1,"epoch":null}]"#, Code::InvalidFrom),
            ("from=[1,2,3]", Code::LimitExceeded),
        ] {
            assert_eq!(ask(query, None).map(|_| ()).map_err(|refusal| refusal.code), Err(code), "{query}");
        }
    }
}
