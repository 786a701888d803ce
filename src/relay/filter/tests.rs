//! Tests of filters: tables of §8, and properties of their canonical form.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use proptest::prelude::*;

use super::*;
use crate::relay::event::testing::{parsed, with_event};

fn parse(text: &str) -> Result<Filter, FilterFault> {
    Filter::parse(text.as_bytes(), 1024)
}

fn valid(text: &str) -> Filter {
    parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

/// The detail of an invalid filter.
fn refused(text: &str) -> String {
    match parse(text) {
        Err(FilterFault::Invalid(detail)) => detail,
        other => panic!("{text}: {other:?}"),
    }
}

fn matches(filter: &str, members: &str) -> bool {
    let filter = valid(filter);
    with_event(members, |event| filter.matches(&event))
}

#[test]
fn every_key_takes_equality_and_any_of() {
    let event = r#""id":"i","type":"tool.completed","source":"s","agent":"a","session":"n","run":"r","step":"t",
        "subject":"u","cause":"c","epoch":7,"severity":"error","capture":"full","seq":1,"region":"eu""#;
    for (key, value) in [
        ("id", "\"i\""),
        ("type", "\"tool.completed\""),
        ("source", "\"s\""),
        ("agent", "\"a\""),
        ("session", "\"n\""),
        ("run", "\"r\""),
        ("step", "\"t\""),
        ("subject", "\"u\""),
        ("cause", "\"c\""),
        ("epoch", "7"),
        ("severity", "\"error\""),
        ("capture", "\"full\""),
        ("region", "\"eu\""),
    ] {
        assert!(matches(&format!("{{\"{key}\":{value}}}"), event), "{key}");
        assert!(matches(&format!("{{\"{key}\":[\"no\",{value},3]}}"), event), "{key} any-of");
        assert!(!matches(&format!("{{\"{key}\":\"no\"}}"), event), "{key} other value");
        assert!(!matches(&format!("{{\"{key}\":[\"no\",true]}}"), event), "{key} any-of others");
    }
}

#[test]
fn all_members_must_match() {
    let event = r#""type":"tool.completed","agent":"a","session":"n","seq":1"#;
    assert!(matches("{}", event));
    assert!(matches(r#"{"agent":"a","session":"n"}"#, event));
    assert!(!matches(r#"{"agent":"a","session":"m"}"#, event));
    assert!(!matches(r#"{"agent":"b","session":"n"}"#, event));
}

#[test]
fn absent_attributes_match_nothing_but_defaults_apply() {
    let event = r#""type":"tool.completed","session":"n","seq":1"#;
    for filter in [r#"{"severity":"info"}"#, r#"{"capture":"metadata"}"#, r#"{"epoch":0}"#, r#"{"epoch":-0}"#] {
        assert!(matches(filter, event), "{filter}");
    }
    for filter in
        [r#"{"run":""}"#, r#"{"step":"t"}"#, r#"{"region":"eu"}"#, r#"{"region":[0,false,""]}"#, r#"{"epoch":1}"#]
    {
        assert!(!matches(filter, event), "{filter}");
    }
}

#[test]
fn scalars_compare_without_coercion() {
    let event = r#""type":"tool.completed","session":"1","seq":1,"n":1,"b":true,"t":"1","big":9007199254740993,
        "low":-9223372036854775808"#;
    for filter in [
        r#"{"n":1}"#,
        r#"{"b":true}"#,
        r#"{"t":"1"}"#,
        r#"{"n":["1",true,1]}"#,
        r#"{"big":9007199254740993}"#,
        r#"{"low":-9223372036854775808}"#,
        r#"{"t":"\u0031"}"#,
        r#"{"\u0074":"1"}"#,
    ] {
        assert!(matches(filter, event), "{filter}");
    }
    for filter in [
        r#"{"n":"1"}"#,
        r#"{"n":true}"#,
        r#"{"b":"true"}"#,
        r#"{"b":1}"#,
        r#"{"b":false}"#,
        r#"{"t":1}"#,
        r#"{"session":1}"#,
        r#"{"big":9007199254740992}"#,
        r#"{"big":18446744073709551616}"#,
        r#"{"epoch":"0"}"#,
        r#"{"epoch":false}"#,
        r#"{"epoch":-1}"#,
        r#"{"severity":"fatal"}"#,
        r#"{"severity":1}"#,
        r#"{"severity":"INFO"}"#,
        r#"{"capture":"all"}"#,
        r#"{"type":5}"#,
        r#"{"type":"tool"}"#,
        r#"{"agent":""}"#,
    ] {
        assert!(!matches(filter, event), "{filter}");
    }
}

#[test]
fn a_type_prefix_matches_strictly_below_it() {
    let tool = r#""type":"tool.completed","session":"n","seq":1"#;
    let vendor = r#""type":"x.acme-inc.foo.bar","session":"n","seq":1"#;
    for (filter, event) in [
        (r#"{"type":"tool.*"}"#, tool),
        (r#"{"type":["run.*","tool.*"]}"#, tool),
        (r#"{"type":["tool.failed","tool.completed"]}"#, tool),
        (r#"{"type":"x.*"}"#, vendor),
        (r#"{"type":"x.acme-inc.*"}"#, vendor),
        (r#"{"type":"x.acme-inc.foo.*"}"#, vendor),
    ] {
        assert!(matches(filter, event), "{filter}");
    }
    for (filter, event) in [
        (r#"{"type":"tool.completed.*"}"#, tool),
        (r#"{"type":"tool.complete.*"}"#, tool),
        (r#"{"type":"too.*"}"#, tool),
        (r#"{"type":"x.acme.*"}"#, vendor),
        (r#"{"type":"x.acme-inc.foo"}"#, vendor),
        (r#"{"type":"x.acme-inc.foo.bar.*"}"#, vendor),
        (r#"{"type":["a.*","x.acme-inc.f.*","y.*"]}"#, vendor),
    ] {
        assert!(!matches(filter, event), "{filter}");
    }
}

#[test]
fn severity_takes_bounds() {
    let levels = ["debug", "info", "notice", "warning", "error", "critical"];
    for (index, level) in levels.into_iter().enumerate() {
        let event = format!(r#""type":"run.started","session":"n","seq":1,"severity":"{level}""#);
        for (bound_index, bound) in levels.into_iter().enumerate() {
            let gte = format!(r#"{{"severity":{{"gte":"{bound}"}}}}"#);
            let lte = format!(r#"{{"severity":{{"lte":"{bound}"}}}}"#);
            assert_eq!(matches(&gte, &event), index >= bound_index, "{level} {gte}");
            assert_eq!(matches(&lte, &event), index <= bound_index, "{level} {lte}");
        }
        let band = r#"{"severity":{"gte":"notice","lte":"error"}}"#;
        assert_eq!(matches(band, &event), (2..=4).contains(&index), "{level}");
        assert!(!matches(r#"{"severity":{"lte":"info","gte":"notice"}}"#, &event), "an empty band is valid");
    }
}

#[test]
fn invalid_filters_name_their_key() {
    for (text, named) in [
        (r#"{"seq":5}"#, "seq"),
        (r#"{"data":{}}"#, "data"),
        (r#"{"time":"2026"}"#, "time"),
        (r#"{"aep":"0.1"}"#, "aep"),
        (r#"{"traceparent":"x"}"#, "traceparent"),
        (r#"{"NotAnAttr":"y"}"#, "NotAnAttr"),
        (r#"{"a_b":1}"#, "a_b"),
        (r#"{"":1}"#, "\"\""),
        (r#"{"abcdefghijklmnopqrstu":1}"#, "abcdefghijklmnopqrstu"),
        (r#"{"type":"*"}"#, "type"),
        (r#"{"type":".*"}"#, "type"),
        (r#"{"type":"tool*"}"#, "type"),
        (r#"{"type":"tool..*"}"#, "type"),
        (r#"{"type":"Tool.*"}"#, "type"),
        (r#"{"type":"*.completed"}"#, "type"),
        (r#"{"type":"tool.*.x"}"#, "type"),
        (r#"{"type":"tool.**"}"#, "type"),
        (r#"{"type":["tool.completed","*"]}"#, "type"),
        (r#"{"type":"tool\u002a"}"#, "type"),
        (r#"{"type":{"gte":"a"}}"#, "type"),
        (r#"{"agent":"claude*"}"#, "agent"),
        (r#"{"agent":["a","*"]}"#, "agent"),
        (r#"{"severity":"*"}"#, "severity"),
        (r#"{"region":"eu-*"}"#, "region"),
        (r#"{"region":"eu-\u002A"}"#, "region"),
        (r#"{"agent":[]}"#, "agent"),
        (r#"{"agent":[["a"]]}"#, "agent"),
        (r#"{"agent":[{}]}"#, "agent"),
        (r#"{"agent":{}}"#, "agent"),
        (r#"{"agent":null}"#, "agent"),
        (r#"{"agent":["a",null]}"#, "agent"),
        (r#"{"epoch":1.0}"#, "epoch"),
        (r#"{"epoch":1e3}"#, "epoch"),
        (r#"{"region":[1,2.5]}"#, "region"),
        (r#"{"epoch":{"gte":1}}"#, "epoch"),
        (r#"{"severity":{}}"#, "severity"),
        (r#"{"severity":{"gt":"info"}}"#, "severity"),
        (r#"{"severity":{"gte":"info","x":"info"}}"#, "severity"),
        (r#"{"severity":{"gte":"fatal"}}"#, "severity"),
        (r#"{"severity":{"gte":3}}"#, "severity"),
        (r#"{"severity":{"gte":["info"]}}"#, "severity"),
        (r#"{"severity":{"gte":null}}"#, "severity"),
        (r#"{"severity":{"gte":"info","gte":"info"}}"#, "severity"),
        (r#"{"severity":[{"gte":"info"}]}"#, "severity"),
        (r#"{"capture":{"gte":"none"}}"#, "capture"),
        (r#"{"agent":"a","agent":"a"}"#, "agent"),
        (r#"{"agent":"a","\u0061gent":"b"}"#, "agent"),
        (r#"{"type":"a.b","type":"a.b"}"#, "type"),
        (r#"{"epoch":0,"epoch":0}"#, "epoch"),
        (r#"{"severity":"info","severity":{"gte":"info"}}"#, "severity"),
        (r#"{"capture":"full","capture":"full"}"#, "capture"),
        (r#"{"region":1,"region":2}"#, "region"),
        (r#"{"agent":"\ud800"}"#, "agent"),
    ] {
        let detail = refused(text);
        assert!(detail.contains(named), "{text}: {detail}");
    }
}

#[test]
fn what_is_no_json_object_is_invalid() {
    for text in ["", " ", "[]", "null", "5", "\"type\"", "{", "{}{}", "{\"a\":1,}", "\u{feff}{}", "{\"\\ud800\":1}"] {
        assert!(refused(text).starts_with("filter: "), "{text}");
    }
    assert!(refused("\u{feff}{}").contains("byte order mark"));
    for text in ["session:s1", "*", "[", "\"type", "true,"] {
        assert_eq!(refused(text), "filter: must be a JSON object", "{text}");
    }
    assert!(Filter::parse(b"{\"agent\":\"\xff\"}", 9).unwrap_err().to_string().contains("UTF-8"));
    assert!(Filter::parse(b"{\"agent\":\0}", 9).unwrap_err().to_string().contains("NUL"));
    let deep = format!("{{\"x\":{}0{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(refused(&deep).contains("deeper than 128"));
    assert_eq!(valid(" { } "), Filter::everything());
}

#[test]
fn a_refusal_does_not_repeat_a_long_key() {
    let detail = refused(&format!("{{\"{}\":1}}", "é".repeat(100_000)));
    assert!(detail.len() < 200, "{}", detail.len());
}

#[test]
fn scalars_are_bounded() {
    let list = |count: usize| format!("{{\"agent\":[{}]}}", vec!["\"a\""; count].join(","));
    assert!(Filter::parse(list(4).as_bytes(), 4).is_ok());
    assert_eq!(Filter::parse(list(5).as_bytes(), 4), Err(FilterFault::TooManyScalars { max: 4 }));
    let spread = r#"{"agent":"a","id":["b",3],"severity":{"gte":"info"},"x":true}"#;
    assert!(Filter::parse(spread.as_bytes(), 5).is_ok());
    assert_eq!(Filter::parse(spread.as_bytes(), 4), Err(FilterFault::TooManyScalars { max: 4 }));
}

#[test]
fn filters_that_say_the_same_are_equal() {
    let hasher = RandomState::new();
    for (a, b) in [
        (r#"{"agent":"a","run":"b"}"#, r#"{"run":["b","b"], "agent":["a"]}"#),
        (r#"{"x":[1,"a",true,-5]}"#, r#"{"x":[-5,true,"a",1,true]}"#),
        (r#"{"a":1,"b":2}"#, r#"{"b":2,"\u0061":1}"#),
        (r#"{"type":["tool.*","tool.completed","tool.x.*"]}"#, r#"{"type":"tool.*"}"#),
        (r#"{"type":["x.a-b.c","x.a.c","x.a.*"]}"#, r#"{"type":["x.a.*","x.a-b.c"]}"#),
        (r#"{"severity":{"gte":"error"}}"#, r#"{"severity":["critical","error","fatal"]}"#),
        (r#"{"severity":{"gte":"debug"}}"#, "{}"),
        (r#"{"capture":["none","metadata","redacted","full"]}"#, "{}"),
        (r#"{"severity":"fatal"}"#, r#"{"epoch":"x","agent":"a"}"#),
        (r#"{"type":1}"#, r#"{"agent":true}"#),
        (r#"{"x":9223372036854775808}"#, r#"{"epoch":-1}"#),
    ] {
        let (a, b) = (valid(a), valid(b));
        assert_eq!(a, b);
        assert_eq!(hasher.hash_one(&a), hasher.hash_one(&b));
    }
    let distinct = [
        "{}",
        r#"{"agent":"a"}"#,
        r#"{"agent":["a","b"]}"#,
        r#"{"run":"a"}"#,
        r#"{"type":"tool.a"}"#,
        r#"{"type":"tool.*"}"#,
        r#"{"x":1}"#,
        r#"{"x":"1"}"#,
        r#"{"y":1}"#,
        r#"{"epoch":1}"#,
        r#"{"capture":"full"}"#,
        r#"{"severity":"info"}"#,
        r#"{"severity":"fatal"}"#,
    ];
    assert_eq!(distinct.into_iter().map(valid).collect::<HashSet<_>>().len(), distinct.len());
}

/// §8 once more, slowly, on parsed values.
fn model(filter: &serde_json::Value, event: &serde_json::Value) -> bool {
    filter.as_object().unwrap().iter().all(|(key, rule)| {
        let default = match key.as_str() {
            "severity" => Some("info".into()),
            "capture" => Some("metadata".into()),
            "epoch" => Some(0.into()),
            _ => None,
        };
        let Some(value) = event.get(key).cloned().or(default) else { return false };
        let any = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
        any.iter().any(|scalar| {
            let below = scalar.as_str().and_then(|text| text.strip_suffix('*'));
            match below {
                Some(prefix) => value.as_str().unwrap().starts_with(prefix),
                None => *scalar == value,
            }
        })
    })
}

/// A filter of a small vocabulary, so that matches are frequent.
pub(crate) fn filters() -> impl Strategy<Value = serde_json::Value> {
    let texts = || prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..3);
    let kinds = vec![
        "tool.a", "tool.a.b", "run.a", "tool.*", "tool.a.*", "tool.b.*", "run.*", "t.*", "x.v-1.*", "x.*", "x.v.*",
    ];
    let scalars = prop::collection::vec(
        prop_oneof![
            (0..3_i64).prop_map(serde_json::Value::from),
            any::<bool>().prop_map(Into::into),
            "[ab]".prop_map(Into::into)
        ],
        1..4,
    );
    (
        prop::option::weighted(0.3, texts()),
        prop::option::weighted(0.3, texts()),
        prop::option::weighted(0.2, texts()),
        prop::option::weighted(0.5, prop::collection::vec(prop::sample::select(kinds), 1..5)),
        prop::option::weighted(0.3, scalars),
        prop::option::weighted(0.2, prop::collection::vec(0..2_i64, 1..3)),
        prop::option::weighted(0.2, prop::sample::select(vec!["info", "error", "fatal"])),
    )
        .prop_map(|(session, agent, run, kind, extension, epoch, severity)| {
            let mut filter = serde_json::Map::new();
            let mut put = |key: &str, value: Option<serde_json::Value>| {
                filter.extend(value.map(|value| (key.to_owned(), value)));
            };
            put("session", session.map(Into::into));
            put("agent", agent.map(Into::into));
            put("run", run.map(Into::into));
            put("type", kind.map(Into::into));
            put("x", extension.map(Into::into));
            put("epoch", epoch.map(Into::into));
            put("severity", severity.map(Into::into));
            filter.into()
        })
}

/// An event of the same vocabulary.
pub(crate) fn events() -> impl Strategy<Value = serde_json::Value> {
    let text = || prop::sample::select(vec!["a", "b", "c"]);
    let kinds =
        vec!["tool.a", "tool.a.b", "tool.b", "tool.ab.c", "tool.a_c", "run.a", "x.v-1.a.b", "x.v.a.b", "x.v0.a.b"];
    let extension = prop_oneof![
        (0..3_i64).prop_map(serde_json::Value::from),
        any::<bool>().prop_map(Into::into),
        "[ab]".prop_map(Into::into)
    ];
    (
        (text(), text(), prop::sample::select(kinds)),
        prop::option::of(text()),
        prop::option::of(extension),
        prop::option::of(0..2_i64),
        prop::option::of(prop::sample::select(vec!["debug", "info", "error"])),
    )
        .prop_map(|((session, agent, kind), run, extension, epoch, severity)| {
            let mut event = serde_json::json!({
                "aep": "0.1", "id": "i", "type": kind, "time": "2026-01-01T00:00:00Z", "source": "s",
                "agent": agent, "session": session, "seq": 1,
            });
            let members = event.as_object_mut().unwrap();
            members.extend(run.map(|run| ("run".to_owned(), run.into())));
            members.extend(extension.map(|value| ("x".to_owned(), value)));
            members.extend(epoch.map(|epoch| ("epoch".to_owned(), epoch.into())));
            members.extend(severity.map(|level| ("severity".to_owned(), level.into())));
            event
        })
}

proptest! {
    #[test]
    fn agrees_with_a_slow_model(filter in filters(), event in events()) {
        let canonical = valid(&filter.to_string());
        let matched = parsed(event.to_string().as_bytes(), |event| canonical.matches(&event));
        prop_assert_eq!(matched, model(&filter, &event));
    }

    #[test]
    fn no_bytes_panic(text in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Filter::parse(&text, 4);
    }
}
