//! Tests of the capture ceiling: tables of §5, and properties of what is left.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::relay::event::testing::parsed;

/// An event's text with `members` behind the required ones.
fn event(kind: &str, members: &str) -> String {
    format!(
        r#"{{"aep":"0.1","id":"e","type":"{kind}","time":"2026-01-01T00:00:00Z","source":"s","agent":"worker","session":"n","seq":1,{members}}}"#
    )
}

fn lower_text(text: &str, ceiling: Capture) -> (Lowered, String) {
    let mut out = Vec::new();
    let lowered = parsed(text.as_bytes(), |event| lower(&event, ceiling, &mut out));
    (lowered, String::from_utf8(out).unwrap())
}

/// What becomes of a full event's `data` at `metadata`; checks that nothing else but `capture` changes.
fn data(kind: &str, data: &str) -> String {
    let members = |data: &str, level: &str| format!("\"subject\":\"sub\",\"data\":{data},\"capture\":\"{level}\"");
    let (lowered, text) = lower_text(&event(kind, &members(data, "full")), Capture::Metadata);
    assert_eq!(lowered, Lowered::Rewritten(Capture::Metadata));
    let before = event(kind, &members("\0", "metadata"));
    let (head, tail) = before.split_once('\0').unwrap();
    let data = text.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail));
    data.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn a_ceiling_at_or_above_the_level_changes_nothing() {
    let levels = [Capture::None, Capture::Metadata, Capture::Redacted, Capture::Full];
    for level in levels {
        for ceiling in levels.into_iter().filter(|ceiling| *ceiling >= level) {
            let text =
                event("tool.completed", &format!("\"capture\":\"{}\",\"data\":{{\"result\":1}}", level.as_str()));
            assert_eq!(lower_text(&text, ceiling), (Lowered::Unchanged, String::new()));
        }
    }
}

#[test]
fn a_hop_never_claims_that_text_was_redacted() {
    use Capture::{Full, Metadata, None, Redacted};
    for (capture, ceiling, reached) in [
        (Full, Redacted, Metadata),
        (Full, Metadata, Metadata),
        (Full, None, None),
        (Redacted, Redacted, Redacted),
        (Redacted, Metadata, Metadata),
        (Redacted, None, None),
        (Metadata, None, None),
        (None, None, None),
    ] {
        assert_eq!(delivered_level(capture, ceiling), reached, "{capture:?} under {ceiling:?}");
    }
}

#[test]
fn none_removes_data_and_writes_the_level_where_it_stood() {
    for (members, left) in [
        (r#""data":{"a":1},"capture":"full","x":1"#, r#""capture":"none","x":1"#),
        (r#""capture":"full","data":{}"#, r#""capture":"none""#),
        (r#" "capture" : "full" , "x": 1 "#, r#" "capture" : "none" , "x": 1 "#),
        (r#""c\u0061pture":"full","d\u0061ta":{"a":1}"#, r#""c\u0061pture":"none""#),
        (r#""data":{"a":1}"#, r#""capture":"none""#),
        (r#""x":1 "#, r#""x":1 ,"capture":"none""#),
    ] {
        let (lowered, text) = lower_text(&event("tool.completed", members), Capture::None);
        assert_eq!(lowered, Lowered::Rewritten(Capture::None));
        assert_eq!(text, event("tool.completed", left));
    }
}

#[test]
fn output_is_appended() {
    let mut out = b"before".to_vec();
    let text = event("run.started", "\"capture\":\"full\"");
    parsed(text.as_bytes(), |event| lower(&event, Capture::Metadata, &mut out));
    assert_eq!(out, format!("before{}", event("run.started", "\"capture\":\"metadata\"")).as_bytes());
}

#[test]
fn a_type_without_annotations_loses_its_data_and_one_with_none_keeps_it() {
    let members = r#""data":{"a":"free text"},"capture":"full""#;
    for kind in ["x.acme.session.blob", "tool.unheard", "message.user.submitted"] {
        let (_, text) = lower_text(&event(kind, members), Capture::Redacted);
        assert_eq!(text, event(kind, "\"capture\":\"metadata\""));
    }
    assert_eq!(
        data("tool.denied", r#"{ "a" : "b" , "n":1e400, "s":"\ud800" }"#),
        r#"{ "a" : "b" , "n":1e400, "s":"\ud800" }"#
    );
    assert_eq!(data("run.started", "{ }"), "{ }");
}

#[test]
fn annotated_fields_go_and_other_bytes_stay() {
    for (kind, before, after) in [
        ("tool.completed", r#"{"result":{"a":[1]},"status": "ok" }"#, r#"{"status": "ok" }"#),
        ("tool.completed", r#"{"status":"ok","result_redacted":"r","result":1}"#, r#"{"status":"ok"}"#),
        ("tool.completed", r#"{"result":1,"k":1,"res\u0075lt":2,"result":3}"#, r#"{"k":1}"#),
        (
            "tool.completed",
            r#"{"result_digest":"d","resul":1,"Result":2}"#,
            r#"{"result_digest":"d","resul":1,"Result":2}"#,
        ),
        ("tool.completed", r#"{"result.text":"s","result[0]":"s","results":1}"#, r#"{"results":1}"#),
        ("tool.completed", r#"{"nested":{"result":1}}"#, r#"{"nested":{"result":1}}"#),
        ("tool.completed", r#"{"result\ud800":1,"\ud800":2}"#, r#"{"result\ud800":1,"\ud800":2}"#),
        ("tool.completed", r#"{"result.\ud800":1}"#, r#"{}"#),
        ("tool.failed", r#"{"error":{"message":"m","type":"T","message":"n"}}"#, r#"{"error":{"type":"T"}}"#),
        ("tool.failed", r#"{"error.message":"m","error.type":"T"}"#, r#"{"error.type":"T"}"#),
        (
            "tool.failed",
            r#"{"error":{"message":"m"},"error":{"message":"n","a":1}}"#,
            r#"{"error":{},"error":{"a":1}}"#,
        ),
        ("tool.failed", r#"{"error":"m","tool":1}"#, r#"{"tool":1}"#),
        ("tool.failed", r#"{"error":[{"message":"m"}],"error":null,"error":5}"#, "{}"),
        (
            "assessment.evaluation.recorded",
            r#"{"gen_ai":{"evaluation.explanation":"m","evaluation":{"explanation":"m","name":"n"}},"gen_ai.evaluation":{"explanation":"m","x":1}}"#,
            r#"{"gen_ai":{"evaluation":{"name":"n"}},"gen_ai.evaluation":{"x":1}}"#,
        ),
        ("assessment.evaluation.recorded", r#"{"gen_ai.evaluation":"m","gen_ai":"m","gen":"n"}"#, r#"{"gen":"n"}"#),
        (
            "resource.retrieval.returned",
            r#"{"documents":[ {"content":"m","id":1} ,"m",[{"content":"m"}],null,{"id":2,"content_redacted":"m"}],"count":2}"#,
            r#"{"documents":[ {"id":1} ,{"id":2}],"count":2}"#,
        ),
        ("resource.retrieval.returned", r#"{"documents":{"content":"m"}}"#, "{}"),
        (
            "resource.retrieval.returned",
            r#"{"documents[].content":"m","documents[]":{"content":"m","id":1}}"#,
            r#"{"documents[]":{"id":1}}"#,
        ),
        (
            "resource.citation.recorded",
            r#"{"citations":[{"source.uri":"m","source":{"title":"m","id":1},"cited_text":"m"},{"source":"m","offset":1}]}"#,
            r#"{"citations":[{"source":{"id":1}},{"offset":1}]}"#,
        ),
        ("attention.requested", r#"{"context":{"a":1},"context.a":2,"kind":"k"}"#, r#"{"kind":"k"}"#),
    ] {
        assert_eq!(data(kind, before), after, "{kind} {before}");
    }
}

#[test]
fn a_prompt_becomes_a_sentence_of_attributes() {
    for (before, after) in [
        (r#"{"prompt":"m","kind":"form"}"#, r#"{"prompt":"worker requests form: sub","kind":"form"}"#),
        (r#"{"prompt" : "m" }"#, r#"{"prompt" : "worker requests attention: sub" }"#),
        (r#"{"kind":7,"prompt":"m"}"#, r#"{"kind":7,"prompt":"worker requests attention: sub"}"#),
        (r#"{"kind":"\ud800","prompt":"m"}"#, r#"{"kind":"\ud800","prompt":"worker requests attention: sub"}"#),
        (
            r#"{"kind":"a\u0022\u0001","prompt":"m"}"#,
            r#"{"kind":"a\u0022\u0001","prompt":"worker requests a\"\u0001: sub"}"#,
        ),
        (r#"{"prompt":5,"prompt":{"a":"m"},"prompt":null,"prompt":["m"]}"#, "{}"),
        (r#"{"prompt":"m","prompt":"n","prompt.text":"m"}"#, r#"{"prompt":"worker requests attention: sub"}"#),
        (r#"{"options":[{"prompt":"p"}]}"#, r#"{"options":[{"prompt":"p"}]}"#),
    ] {
        assert_eq!(data("attention.requested", before), after, "{before}");
    }
    let text = r#"{"aep":"0.1","id":"e","type":"attention.requested","time":"2026-01-01T00:00:00Z","source":"s","agent":"a\"\u00e9","session":"n","seq":1,"capture":"full","data":{"prompt":"m"}}"#;
    let (_, lowered) = lower_text(text, Capture::Redacted);
    assert!(lowered.ends_with(r#""capture":"metadata","data":{"prompt":"a\"é requests attention"}}"#), "{lowered}");
}

#[test]
fn a_label_becomes_its_id() {
    for (before, after) in [
        (r#"[{"id":"a","label":"m"},{"label":"m","id":"b"}]"#, r#"[{"id":"a","label":"a"},{"label":"b","id":"b"}]"#),
        (r#"[{"label":"m"},{"x":1}]"#, r#"[{},{"x":1}]"#),
        (
            r#"[{"id":7,"label":"m"},{"id":true,"label":{"m":1}}]"#,
            r#"[{"id":7,"label":"7"},{"id":true,"label":"true"}]"#,
        ),
        (r#"[{"id":null,"label":"m"},{"id":["m"],"label":"m"}]"#, r#"[{"id":null},{"id":["m"]}]"#),
        (r#"[{"id":"\ud800\"","label":"m"}]"#, r#"[{"id":"\ud800\"","label":"\ud800\""}]"#),
        (r#"[{"label":"m","id":"a","label":"n","id":"b"}]"#, r#"[{"label":"b","id":"a","id":"b"}]"#),
        (r#"["m",5,null,["m"]]"#, "[]"),
        (r#"[{"label.short":"m","l\u0061bel":"m","id":1}]"#, r#"[{"l\u0061bel":"1","id":1}]"#),
    ] {
        for name in ["options", "fields"] {
            let list = |items: &str| format!("{{\"{name}\":{items}}}");
            assert_eq!(data("attention.requested", &list(before)), list(after), "{before}");
        }
        let list = |items: &str| format!("{{\"fields\":[{{\"choices\":{items},\"id\":\"f\"}}]}}");
        assert_eq!(data("attention.requested", &list(before)), list(after), "{before}");
    }
    for (before, after) in [
        (r#"{"options":"m","fields":{"label":"m"}}"#, "{}"),
        (r#"{"fields":[{"id":"f","choices":"m"}]}"#, r#"{"fields":[{"id":"f"}]}"#),
        (r#"{"id":"x","options[].label":"m","label":"n"}"#, r#"{"id":"x","label":"n"}"#),
        (r#"{"fields":[{"id":"f","choices[].label":"m"}]}"#, r#"{"fields":[{"id":"f"}]}"#),
    ] {
        assert_eq!(data("attention.requested", before), after, "{before}");
    }
}

#[test]
fn answer_values_keep_numbers_and_booleans() {
    for (before, after) in [
        (
            r#"{"answer":{"values":{"a":"m","b":true,"c":1e400,"d":["m"],"e":{"f":1},"g":null,"h":false,"b":"m"},"text":"m","option":"1"}}"#,
            r#"{"answer":{"values":{"b":true,"c":1e400,"h":false},"option":"1"}}"#,
        ),
        (r#"{"answer":{"values":[1,"m"]}}"#, r#"{"answer":{}}"#),
        (r#"{"answer":{"values":"m"}}"#, r#"{"answer":{}}"#),
        (r#"{"answer":{"values.a":"m","values.b":2,"valuesc":"n"}}"#, r#"{"answer":{"values.b":2,"valuesc":"n"}}"#),
        (
            r#"{"answer.values":{"a":"m","b":2},"answer.values.c":"m","answer.values.d":3}"#,
            r#"{"answer.values":{"b":2},"answer.values.d":3}"#,
        ),
        (r#"{"answer":"m","via":"control"}"#, r#"{"via":"control"}"#),
        (r#"{"answer":{"values":{ }}}"#, r#"{"answer":{"values":{ }}}"#),
    ] {
        assert_eq!(data("attention.answered", before), after, "{before}");
    }
    assert_eq!(fields("control.attention.respond"), fields("attention.answered"), "a command keeps as little");
}

#[test]
fn repetition_cannot_multiply_an_id() {
    let id = "i".repeat(100_000);
    let labels = r#""label":1,"#.repeat(10_000);
    let before = format!(r#"{{"options":[{{{labels}"id":"{id}"}}]}}"#);
    let prompts = r#""prompt":"","#.repeat(10_000);
    let kinds = format!(r#"{{{prompts}"kind":"{id}"}}"#);
    for before in [before, kinds] {
        assert!(data("attention.requested", &before).len() < 2 * before.len());
    }
}

/// A payload of names that matter, gated strings marked.
fn payloads(depth: u32) -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!("SECRET")),
        Just(json!(null)),
        any::<bool>().prop_map(|boolean| json!(boolean)),
        (0..9).prop_map(|number| json!(number)),
    ];
    let names = || {
        prop::sample::select(vec![
            "answer",
            "values",
            "text",
            "answer.values",
            "answer.text",
            "values.a",
            "options",
            "fields",
            "choices",
            "label",
            "prompt",
            "context",
            "error",
            "message",
            "error.message",
            "documents",
            "content",
            "documents[].content",
            "citations",
            "source",
            "uri",
            "source.uri",
            "result",
            "result.a",
            "kind",
        ])
    };
    leaf.prop_recursive(depth, 40, 5, move |inner| {
        prop_oneof![
            2 => prop::collection::btree_map(names(), inner.clone(), 0..5)
                .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
            1 => prop::collection::vec(inner, 0..4).prop_map(serde_json::Value::from),
        ]
    })
}

/// Whether a string stands where a gated path of the type leads, arrays seen through.
fn leaks(kind: &str, value: &serde_json::Value, path: &str) -> bool {
    match value {
        serde_json::Value::String(text) => {
            text == "SECRET"
                && fields(kind).unwrap().iter().any(|field| {
                    let plain = field.path.replace("[]", "");
                    path == plain || path.strip_prefix(&plain).is_some_and(|beneath| beneath.starts_with('.'))
                })
        }
        serde_json::Value::Array(items) => items.iter().any(|item| leaks(kind, item, path)),
        serde_json::Value::Object(members) => members.iter().any(|(name, value)| {
            let name = name.replace("[]", "");
            leaks(kind, value, &if path.is_empty() { name } else { format!("{path}.{name}") })
        }),
        _ => false,
    }
}

proptest! {
    #[test]
    fn lowered_events_are_valid_stable_and_leak_nothing(
        payload in payloads(5).prop_filter("data is an object", serde_json::Value::is_object),
        kind in prop::sample::select(vec![
            "attention.requested", "attention.answered", "tool.failed", "tool.completed", "resource.retrieval.returned",
            "resource.citation.recorded", "run.step.finished",
        ]),
    ) {
        let text = event(kind, &format!("\"capture\":\"full\",\"data\":{payload}"));
        let (lowered, once) = lower_text(&text, Capture::Redacted);
        prop_assert_eq!(lowered, Lowered::Rewritten(Capture::Metadata));
        let level = parsed(once.as_bytes(), |event| event.capture());
        prop_assert_eq!(level, Capture::Metadata);
        let value: serde_json::Value = serde_json::from_str(&once).unwrap();
        prop_assert!(!leaks(kind, &value["data"], ""), "{}", once);
        prop_assert_eq!(&lower_text(&once, Capture::Metadata).0, &Lowered::Unchanged);
        // Claimed full again, it has nothing left to lose.
        let again = once.replacen("\"capture\":\"metadata\"", "\"capture\":\"full\"", 1);
        prop_assert_eq!(lower_text(&again, Capture::Metadata).1, once);
    }
}

#[test]
fn a_walk_in_slices_writes_the_same() {
    let texts = [
        event(
            "tool.completed",
            r#""capture" : "full" ,"data":{ "a" : [ 1, {"b":[]} ] , "result" : {"x":"y"}, "z":{} } "#,
        ),
        event(
            "attention.requested",
            r#""subject":"s","capture":"full","data":{"prompt":"p","kind":"q\n","prompt":"r", "x":[1]}"#,
        ),
        event(
            "resource.retrieval.returned",
            r#""capture":"full","data":{"documents":[ {"id":1,"content":"x" , "content_redacted":"y"} , 7,{ },{"id":"b"}],"n":{ }}"#,
        ),
        event("x.acme.a.b", r#""capture":"full","data":{"a":1},"zz":"last""#),
    ];
    for text in &texts {
        for ceiling in [Capture::None, Capture::Metadata] {
            let (_, whole) = lower_text(text, ceiling);
            for slice in 1..60 {
                let mut out = Vec::new();
                let slices = parsed(text.as_bytes(), |event| {
                    let mut lowering = Lowering::begin(&event, ceiling, &mut out);
                    (1..).find(|_| lowering.walk(&event, &mut slice.clone(), &mut out)).unwrap()
                });
                assert_eq!(String::from_utf8(out).unwrap(), whole, "in slices of {slice}");
                assert!(slice > 10 || slices > 8, "{slices} slices of {slice}");
            }
        }
    }
}

#[test]
fn what_goes_takes_its_comma_along_and_nothing_else() {
    for (before, after) in [
        (r#"{"result":1}"#, "{}"),
        (r#"{ "result" : 1 }"#, "{}"),
        (r#"{"result":1,"result":2,"result":3}"#, "{}"),
        (r#"{"result":1,"b":2}"#, r#"{"b":2}"#),
        (r#"{"a":1,"result":2}"#, r#"{"a":1}"#),
        (r#"{ "a" : 1 , "result" : 2 , "b" : [ 3 ,4] }"#, r#"{ "a" : 1 , "b" : [ 3 ,4] }"#),
        ("{ \t }", "{ \t }"),
    ] {
        assert_eq!(data("tool.completed", before), after, "{before}");
    }
}
