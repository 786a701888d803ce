//! The rules of contract §2, each with what it takes and what it refuses, from bytes to [`Event`].

use super::*;
use crate::wire::json::JsonFaultKind;
use proptest::prelude::*;

fn parser() -> Parser {
    Parser::new(Fingerprinter::new())
}

fn batch_of(text: &str) -> Batch {
    let mut batch = Batch::default();
    let mut parser = parser();
    batch.push(parser.parse(text.as_bytes()).unwrap_or_else(|fault| panic!("{fault}: {text}")));
    batch
}

fn fault(text: &str) -> EventFault {
    match parser().parse(text.as_bytes()) {
        Ok(_) => panic!("accepted: {text}"),
        Err(fault) => fault,
    }
}

/// The attribute an invalid event is refused for.
fn attribute_at_fault(text: &str) -> String {
    match fault(text) {
        EventFault::Invalid { attribute, .. } => attribute.into_owned(),
        other => panic!("{other:?}: {text}"),
    }
}

/// A session event with one more, or one replaced, member.
fn event_with(name: &str, value: &str) -> String {
    let mut members = vec![
        ("aep", r#""0.1""#),
        ("id", r#""i1""#),
        ("type", r#""tool.completed""#),
        ("time", r#""2026-07-03T10:00:00Z""#),
        ("source", r#""aep://h/agent/a""#),
        ("agent", r#""a""#),
        ("session", r#""s1""#),
        ("seq", "7"),
    ];
    members.retain(|(present, _)| *present != name);
    if !value.is_empty() {
        members.push((name, value));
    }
    object(&members)
}

fn without(name: &str) -> String {
    event_with(name, "")
}

fn object(members: &[(&str, &str)]) -> String {
    let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

#[test]
fn every_attribute_is_read() {
    let text = r#"{"aep":"0.1","id":"i","type":"tool.completed","time":"2026-07-03T10:00:00Z","source":"so","agent":"ag","session":"se","run":"ru","step":"st","subject":"su","cause":"ca","seq":9223372036854775807,"epoch":3,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","severity":"warning","capture":"full","data":{"seq":1},"zone":"eu","cost":-9223372036854775808,"ok":true,"bad":false,"empty":""}"#;
    let batch = batch_of(text);
    let event = batch.event(0);
    assert_eq!(event.raw(), text.as_bytes());
    assert_eq!((event.id(), event.kind(), event.source(), event.agent()), ("i", "tool.completed", "so", "ag"));
    assert_eq!(event.session(), Some("se"));
    let rest = [Attribute::Run, Attribute::Step, Attribute::Subject, Attribute::Cause];
    assert_eq!(rest.map(|attribute| event.attribute(attribute)), [Some("ru"), Some("st"), Some("su"), Some("ca")]);
    assert_eq!(event.position(), Some(Position { epoch: 3, seq: i64::MAX as u64 }));
    assert_eq!((event.severity(), event.capture(), event.scope()), (Severity::Warning, Capture::Full, Scope::Session));
    let extensions: Vec<_> = event.extensions().collect();
    let expected = [
        ("bad", Scalar::Boolean(false)),
        ("cost", Scalar::Integer(i64::MIN)),
        ("empty", Scalar::Text("")),
        ("ok", Scalar::Boolean(true)),
        ("zone", Scalar::Text("eu")),
    ];
    assert_eq!(extensions, expected);
    for (name, value) in expected {
        assert_eq!(event.extension(name), Some(value));
    }
    assert_eq!(event.extension("data"), None);
}

#[test]
fn defaults() {
    let batch = batch_of(&event_with("seq", "0"));
    let event = batch.event(0);
    assert_eq!((event.epoch(), event.severity(), event.capture()), (0, Severity::Info, Capture::Metadata));
    assert_eq!(event.attribute(Attribute::Run), None);
    assert_eq!(event.extensions().len(), 0);
}

#[test]
fn each_rule_takes_the_right_and_names_the_attribute_of_the_wrong() {
    let traceparent = "\"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\"";
    for (name, right, wrong) in [
        ("aep", "\"0.1\"", &["\"0.2\"", "\"\"", "0.1", "null", "\"0.1 \""][..]),
        ("id", "\"\\u0000\"", &["\"\"", "1", "null", "[]", "\"\\ud800\""]),
        ("type", "\"x.v-1.a.b\"", &["\"x.v.a\"", "\"tool.A\"", "\"nope.a\"", "\"tool..a\"", "\"tool.\\udead\""]),
        ("time", "\"2026-07-03t10:00:60z\"", &["\"2026-02-30T10:00:00Z\"", "\"yesterday\"", "0", "null", "\"\""]),
        ("source", "\" \"", &["\"\"", "{}", "null"]),
        ("agent", "\"\\ud83d\\ude00\"", &["\"\"", "true", "null", "\"a\\udc00\""]),
        ("session", "\"a:b \\n\\u0000\"", &["\"\"", "1", "null", "\"\\ud83d\""]),
        ("run", "\"r\"", &["\"\"", "1", "null"]),
        ("step", "\"s\"", &["\"\"", "1", "null"]),
        ("subject", "\"s\"", &["\"\"", "1", "null"]),
        ("cause", "\"c\"", &["\"\"", "1", "null"]),
        ("seq", "9223372036854775807", &["9223372036854775808", "-1", "1.0", "1e0", "\"1\"", "null", "true"]),
        ("epoch", "0", &["-1", "18446744073709551616", "0.0", "\"0\"", "null"]),
        ("traceparent", traceparent, &["\"\"", "\"00-0\"", "null", "1"]),
        ("severity", "\"critical\"", &["\"fatal\"", "\"Info\"", "\"\"", "null", "1"]),
        ("capture", "\"none\"", &["\"all\"", "\"\"", "null", "0"]),
        ("data", "{}", &["[]", "\"\"", "1", "null", "true"]),
        ("zone", "-9223372036854775808", &["{}", "[]", "null", "1.5", "1e2", "9223372036854775808", "\"\\ud800\""]),
        ("abcdefghij0123456789", "\"\"", &["null"]),
    ] {
        batch_of(&event_with(name, right));
        for wrong in wrong {
            assert_eq!(attribute_at_fault(&event_with(name, wrong)), name, "{name}={wrong}");
        }
    }
    for name in ["", "Zone", "acme_ext", "a.b", "é", "abcdefghij0123456789x", "Seq", "a\\ud800"] {
        assert_eq!(attribute_at_fault(&event_with(name, "1")), name, "a name that is no extension's");
    }
}

#[test]
fn required_attributes_are_required() {
    for name in ["aep", "id", "time", "source", "agent", "session", "seq"] {
        assert_eq!(attribute_at_fault(&without(name)), name);
    }
    assert_eq!(fault(&without("type")), EventFault::Undotted);
}

#[test]
fn scopes_require_and_forbid() {
    let event = |kind: &str, more: &[(&str, &str)]| {
        let kind = format!("\"{kind}\"");
        let mut members = vec![
            ("aep", r#""0.1""#),
            ("id", r#""i1""#),
            ("type", kind.as_str()),
            ("time", r#""2026-07-03T10:00:00Z""#),
            ("source", r#""so""#),
            ("agent", r#""a""#),
        ];
        members.extend(more);
        object(&members)
    };
    let (session, seq) = (("session", r#""s""#), ("seq", "1"));
    for (kind, scope) in [
        ("control.attention.respond", Scope::Command),
        ("control.cancel", Scope::Command),
        ("control.pause", Scope::Command),
        ("control.resume", Scope::Command),
        ("x.acme.control.restart", Scope::Command),
        ("attention.routed", Scope::Routed),
    ] {
        assert_eq!(batch_of(&event(kind, &[session])).event(0).scope(), scope);
        assert_eq!(attribute_at_fault(&event(kind, &[])), "session");
        assert_eq!(attribute_at_fault(&event(kind, &[session, seq])), "seq");
    }
    for kind in ["control.accepted", "control.rejected", "attention.requested", "x.acme.tool.used", "run.started"] {
        assert_eq!(batch_of(&event(kind, &[session, seq])).event(0).scope(), Scope::Session);
        assert_eq!(attribute_at_fault(&event(kind, &[seq])), "session");
        assert_eq!(attribute_at_fault(&event(kind, &[session])), "seq");
    }
    let batch = batch_of(&event("agent.presence", &[("epoch", "1"), ("subject", r#""s""#)]));
    assert_eq!((batch.event(0).scope(), batch.event(0).session()), (Scope::Agent, None));
    for forbidden in [session, seq, ("run", r#""r""#), ("step", r#""s""#)] {
        assert_eq!(attribute_at_fault(&event("agent.presence", &[forbidden])), forbidden.0);
    }
}

#[test]
fn repeated_members_are_refused_after_unescaping() {
    for repeated in [r#","id":"i1""#, r#","\u0069d":"i2""#, r#","data":{},"data":{}"#, r#","zone":1,"zone":1"#] {
        let mut text = event_with("seq", "1");
        text.insert_str(text.len() - 1, repeated);
        assert!(matches!(fault(&text), EventFault::Invalid { rule: "must not be repeated", .. }), "{text}");
    }
    // Many extension attributes, the repeated one written in two ways, far apart.
    let mut text = event_with("seq", "1");
    let many: String = (0..1000).map(|number| format!(",\"z{number}\":{number}")).collect();
    text.insert_str(text.len() - 1, &many);
    assert_eq!(batch_of(&text).event(0).extension("z999"), Some(Scalar::Integer(999)));
    text.insert_str(text.len() - 1, r#","\u007a500":1"#);
    assert_eq!(attribute_at_fault(&text), "z500");
    // Inside data nobody looks.
    batch_of(&event_with("data", r#"{"a":1,"a":2,"\ud800":"\ud800"}"#));
}

#[test]
fn escaped_names_and_values_mean_what_they_stand_for() {
    let text = r#"{"\u0061ep":"\u0030.1","id":"\"q\"","t\u0079pe":"tool\u002ecompleted","time":"2026-07-03T10:00:00\u005a","source":"s","agent":"\u00e9","session":"a\nb","seq":1,"z\u006fne":"\t","severity":"\u0069nfo"}"#;
    let batch = batch_of(text);
    let event = batch.event(0);
    assert_eq!((event.id(), event.kind(), event.agent()), ("\"q\"", "tool.completed", "é"));
    assert_eq!(event.session(), Some("a\nb"));
    assert_eq!(event.extension("zone"), Some(Scalar::Text("\t")));
    assert_eq!(event.raw(), text.as_bytes());
}

#[test]
fn delivered_bytes_are_the_received_ones() {
    let text = event_with("data", "{ \"a\" : [ 1 , \"x y\" ] }");
    let around = format!(" \t{text}\r\n ");
    let mut parser = parser();
    assert_eq!(parser.parse(around.as_bytes()).unwrap().raw(), text.as_bytes(), "white space around is not part of it");
    // White space between tokens goes only if there are line breaks among it.
    for line_break in ["\n", "\r", "\r\n"] {
        let broken = text.replace("[ 1", &format!("[{line_break} 1"));
        let event = parser.parse(broken.as_bytes()).unwrap();
        let raw = std::str::from_utf8(event.raw()).unwrap();
        assert!(raw.ends_with(r#""data":{"a":[1,"x y"]}}"#), "{raw}");
        assert_eq!((event.session(), event.seq()), (Some("s1"), Some(7)), "spans follow the bytes");
    }
    // What only looks like a line break stays.
    let odd = event_with("data", "{\"a\":\"\u{2028}\u{85}data: x\\n\"}");
    assert_eq!(parser.parse(odd.as_bytes()).unwrap().raw(), odd.as_bytes());
}

#[test]
fn numbers_in_data_keep_their_digits() {
    let mut parser = parser();
    for number in [
        "9007199254740993",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "1e400",
        "-0",
        "1000000000000000000e0",
        "1234567890123456789012345678901234567890123456789012345678901234567890",
    ] {
        let text = event_with("data", &format!("{{\"n\":{number}}}"));
        assert_eq!(parser.parse(text.as_bytes()).unwrap().raw(), text.as_bytes());
    }
    for spaces in 0..128 {
        let pad = " ".repeat(spaces);
        let text = event_with("data", &format!("{{\"p\":\"{pad}\",\"v\":3077999.0000000000000000}}"));
        assert_eq!(parser.parse(text.as_bytes()).unwrap().raw(), text.as_bytes());
    }
    let text = event_with("zone", "9007199254740993");
    assert_eq!(batch_of(&text).event(0).extension("zone"), Some(Scalar::Integer(9_007_199_254_740_993)));
}

#[test]
fn byte_order_mark_nul_utf8_and_depth_are_named() {
    let text = event_with("data", "{\"a\":\"@\"}");
    for (bytes, kind, word) in [
        (format!("\u{feff}{text}").into_bytes(), JsonFaultKind::ByteOrderMark, "byte order mark"),
        (text.replace('@', "\0").into_bytes(), JsonFaultKind::Nul, "NUL"),
        (text.replace("\"@\"", "\0").into_bytes(), JsonFaultKind::Nul, "NUL"),
        (format!("{text}\0").into_bytes(), JsonFaultKind::Nul, "NUL"),
        (text.bytes().map(|b| if b == b'@' { 0xFF } else { b }).collect(), JsonFaultKind::InvalidUtf8, "UTF-8"),
        (format!("{text}{text}").into_bytes(), JsonFaultKind::Trailing, "behind"),
        (b" ".to_vec(), JsonFaultKind::Empty, "no JSON value"),
    ] {
        let mut parser = parser();
        let fault = parser.parse(&bytes).unwrap_err();
        assert!(matches!(&fault, EventFault::Json(json) if json.kind == kind), "{fault:?}");
        assert!(fault.to_string().contains(word), "{fault}");
    }
    batch_of(&text.replace('@', "\\u0000"));
    // The event itself is the first level.
    let deep = |levels: usize| event_with("data", &format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels)));
    batch_of(&deep(127));
    let fault = fault(&deep(128));
    assert!(fault.to_string().starts_with("nesting deeper than 128"), "{fault}");
}

#[test]
fn what_is_no_event_is_told_apart() {
    for text in ["[]", "[{}]", "1", "\"tool.completed\"", "true", "null"] {
        assert_eq!(fault(text), EventFault::NotAnObject, "{text}");
    }
    for text in [
        "{}",
        r#"{"type":"hello"}"#,
        r#"{"type":1}"#,
        r#"{"type":null}"#,
        r#"{"type":{"a.b":"a.b"}}"#,
        r#"{"data":{"type":"tool.a"}}"#,
        r#"{"type":"ping","type":"tool.a"}"#,
        r#"{"type":"ping","t":1.5,"T":null}"#,
    ] {
        assert_eq!(fault(text), EventFault::Undotted, "{text}");
    }
    assert!(fault(r#"{"type":"hello"}"#).to_string().starts_with("type: "));
    for text in [r#"{"type":"tool.a"}"#, r#"{"type":"."}"#, r#"{"type":"a\u002eb"}"#, r#"{"type":"tool.a\ud800"}"#] {
        assert!(matches!(fault(text), EventFault::Invalid { .. }), "{text}");
    }
}

#[test]
fn a_refused_event_keeps_its_id() {
    for (text, expected) in [
        (r#"{"type":"tool.a","id":"i1"}"#, Some("i1")),
        (r#"{"id":"\u0069","type":"nope.a"}"#, Some("i")),
        (r#"{"bad_name":1,"type":"tool.a","id":"i1"}"#, Some("i1")),
        (r#"{"type":"tool.a"}"#, None),
        (r#"{"type":"tool.a","id":""}"#, None),
        (r#"{"type":"tool.a","id":1}"#, None),
        (r#"{"type":"tool.a","id":"\ud800"}"#, None),
        (r#"{"type":"tool.a","id":"i1","id":"i2"}"#, None),
    ] {
        let EventFault::Invalid { id, .. } = fault(text) else { panic!("{text}") };
        assert_eq!(id.as_deref(), expected, "{text}");
    }
}

#[test]
fn a_long_name_is_not_repeated_whole() {
    let name = "é".repeat(100_000);
    let fault = fault(&event_with(&name, "1"));
    assert!(fault.to_string().len() < 400, "{}", fault.to_string().len());
}

#[test]
fn every_cut_of_an_event_is_refused_as_json() {
    let text = event_with("data", "{\"a\":[1,\"\\u00e9€\",null]}");
    let mut parser = parser();
    for end in 0..text.len() {
        assert!(matches!(parser.parse(&text.as_bytes()[..end]), Err(EventFault::Json(_))), "{end}");
    }
}

#[test]
fn a_batch_keeps_events_apart() {
    let texts = [
        event_with("session", r#""a\nb""#),
        event_with("zone", r#""eu""#),
        event_with("zone", r#""\u0075s""#),
        without("nothing"),
    ];
    let mut parser = parser();
    let mut batch = Batch::default();
    assert!(batch.is_empty());
    for text in &texts {
        batch.push(parser.parse(text.as_bytes()).unwrap());
    }
    let mut copy = Batch::default();
    batch.events().for_each(|event| copy.push(event));
    for batch in [&batch, &copy] {
        assert_eq!(batch.len(), 4);
        assert!(batch.events().zip(&texts).all(|(event, text)| event.raw() == text.as_bytes()));
        let sessions: Vec<_> = batch.events().filter_map(|event| event.session()).collect();
        assert_eq!(sessions, ["a\nb", "s1", "s1", "s1"]);
        let zones: Vec<_> = batch.events().map(|event| event.extension("zone")).collect();
        assert_eq!(zones, [None, Some(Scalar::Text("eu")), Some(Scalar::Text("us")), None]);
    }
    assert_eq!(batch.bytes_len(), texts.iter().map(String::len).sum::<usize>());
    assert!(batch.weight() >= batch.bytes_len());
    batch.clear();
    assert!(batch.is_empty() && batch.bytes_len() == 0);
}

#[test]
fn fingerprints_follow_source_and_id_alone() {
    let mut parser = parser();
    let mut print = |text: String| parser.parse(text.as_bytes()).unwrap().fingerprint();
    let one = print(event_with("seq", "1"));
    assert_eq!(print(event_with("seq", "2")), one);
    assert_eq!(print(event_with("id", r#""\u0069\u0031""#)), one, "the unescaped id counts");
    assert_ne!(print(event_with("id", r#""i2""#)), one);
    assert_ne!(print(event_with("source", r#""other""#)), one);
}

#[test]
fn buffers_of_a_huge_event_are_given_back() {
    let mut parser = parser();
    let many: String = (0..200_000).map(|number| format!("\"z{number}\":1,")).collect();
    let text = event_with("seq", "1").replacen('{', &format!("{{\n{many}"), 1);
    assert_eq!(parser.parse(text.as_bytes()).unwrap().extensions().len(), 200_000);
    let small = event_with("seq", "1");
    parser.parse(small.as_bytes()).unwrap();
    assert!(parser.kept_bytes() <= 4 << 20, "{}", parser.kept_bytes());
}

/// Events grown from a valid one by replacing members with noise that is often nearly right.
fn noisy_event() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "aep", "id", "type", "time", "source", "agent", "session", "run", "seq", "epoch", "severity", "capture",
        "data", "zone", "\\u0069d", "\\ud800", "Bad", "",
    ]);
    let values = prop::sample::select(vec![
        "\"0.1\"",
        "\"i\"",
        "\"tool.a\"",
        "\"agent.a\"",
        "\"control.cancel\"",
        "\"ping\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud800\"",
        "\"full\"",
        "\"error\"",
        "1",
        "0",
        "-1",
        "1.5",
        "1e400",
        "true",
        "null",
        "{}",
        "{ \"a\" :\n[1] }",
        "[]",
        "[1,]",
        "\"",
        "tru",
        "{\"a\":1e}",
        "\"\u{1}\"",
    ]);
    prop::collection::vec((names, values), 0..4).prop_map(|changes| {
        let mut changes = changes.into_iter();
        let Some((name, value)) = changes.next() else { return event_with("seq", "1") };
        let mut text = event_with(name, value);
        for (name, value) in changes {
            text.insert_str(text.len() - 1, &format!(",\"{name}\":{value}"));
        }
        text
    })
}

proptest! {
    #[test]
    fn accepted_means_accepted_by_other_parsers_and_stable(text in noisy_event()) {
        let mut first = parser();
        let mut again = parser();
        match first.parse(text.as_bytes()) {
            Ok(event) => {
                serde_json::from_slice::<serde::de::IgnoredAny>(text.as_bytes()).unwrap();
                prop_assert!(!event.raw().contains(&b'\n'));
                let copy = again.parse(event.raw()).unwrap();
                prop_assert_eq!(copy.raw(), event.raw());
                prop_assert_eq!(
                    (copy.id(), copy.kind(), copy.session(), copy.position(), copy.scope()),
                    (event.id(), event.kind(), event.session(), event.position(), event.scope())
                );
                prop_assert!(copy.extensions().eq(event.extensions()));
            }
            // The noise is UTF-8 and shallow: beyond these two `IgnoredAny` must agree with every refusal.
            Err(EventFault::Json(_)) => {
                prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(text.as_bytes()).is_err());
            }
            Err(_) => {
                prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(text.as_bytes()).is_ok());
            }
        }
    }

    /// Where `simd-json` takes a text, so do we: it may refuse more (wide numbers, lone surrogates), never less.
    #[test]
    fn what_simd_json_takes_is_json(text in noisy_event()) {
        let mut scratch = text.clone().into_bytes();
        if simd_json::to_tape(&mut scratch).is_ok() {
            prop_assert!(!matches!(parser().parse(text.as_bytes()), Err(EventFault::Json(_))), "{}", text);
        }
    }

    #[test]
    fn one_changed_byte_never_panics(at in 0_usize..200, byte in any::<u8>()) {
        let mut text = event_with("data", "{\"a\":[1,\"\\u00e9\"]}").into_bytes();
        let at = at % text.len();
        text[at] = byte;
        if let Ok(event) = parser().parse(&text) {
            prop_assert!(event.position().is_some() || event.scope() != Scope::Session);
        }
    }
}
