//! The capture ceiling: what a lowered event keeps, byte for byte (contract §5).

use crate::support::*;

/// One event and what arrives under a ceiling. `data` empty: the member is absent.
struct Case {
    kind: &'static str,
    capture: &'static str,
    ceiling: &'static str,
    data: &'static str,
    reached: &'static str,
    lowered: &'static str,
}

fn session_event(kind: &str, seq: u64) -> EventBuilder {
    event("s", seq).kind(kind)
}

/// Sends the cases and reads each at a stream and a WebSocket with the ceiling, live and replayed.
#[track_caller]
fn check(cases: &[Case]) {
    let relay = Relay::plain();
    for (seq, case) in cases.iter().enumerate() {
        let seq = seq as u64 + 1;
        let mut stream = Sse::subscribe(&relay, &[("capture", case.ceiling)]);
        let mut socket = Ws::hello(&relay, "consumer", "watcher");
        socket.subscribe("s", &format!(r#""capture":"{}""#, case.ceiling));
        let with_data = |event: EventBuilder, data: &str| if data.is_empty() { event } else { event.data(data) };
        let sent = with_data(
            session_event(case.kind, seq).id("i").source(&format!("urn:{seq}")).capture(case.capture),
            case.data,
        );
        let expected = sent.clone().capture(case.reached).without("data");
        let expected = with_data(expected, case.lowered).build();
        relay.publish(&[sent.build()]);
        assert_eq!(stream.event(), expected, "{} {} under {}", case.kind, case.capture, case.ceiling);
        assert_eq!(socket.message(), expected, "the same on a WebSocket");
        let from = format!(r#"[{{"session":"s","seq":{}}}]"#, seq - 1);
        let replayed = Sse::replay(&relay, &[("capture", case.ceiling), ("from", &from)]);
        assert_eq!(replayed.last().map(Message::data), Some(expected.as_str()), "the same in a replay");
        let mut full = Sse::replay(&relay, &[("from", &from)]);
        assert_eq!(full.pop().map(|m| m.data().to_owned()), Some(sent.build()), "without a ceiling it is untouched");
    }
}

#[test]
fn the_target_is_the_ceiling_except_that_redaction_is_never_claimed() {
    const RESULT: &str = r#"{"tool":{"name":"Bash"},"result":"all","result_redacted":"some","status":"ok"}"#;
    const METADATA: &str = r#"{"tool":{"name":"Bash"},"status":"ok"}"#;
    let mut cases = Vec::new();
    for (capture, ceiling, reached, lowered) in [
        ("full", "full", "full", RESULT),
        ("full", "redacted", "metadata", METADATA),
        ("full", "metadata", "metadata", METADATA),
        ("full", "none", "none", ""),
        ("redacted", "full", "redacted", RESULT),
        ("redacted", "redacted", "redacted", RESULT),
        ("redacted", "metadata", "metadata", METADATA),
        ("redacted", "none", "none", ""),
        ("metadata", "full", "metadata", RESULT),
        ("metadata", "redacted", "metadata", RESULT),
        ("metadata", "metadata", "metadata", RESULT),
        ("metadata", "none", "none", ""),
        ("none", "full", "none", RESULT),
        ("none", "none", "none", RESULT),
    ] {
        cases.push(Case { kind: "tool.completed", capture, ceiling, data: RESULT, reached, lowered });
    }
    check(&cases);
}

#[test]
fn fields_above_the_target_go_wherever_they_are() {
    let case =
        |kind, data, lowered| Case { kind, capture: "full", ceiling: "metadata", data, reached: "metadata", lowered };
    check(&[
        case("tool.failed", r#"{"error":{"type":"E","message":"secret"}}"#, r#"{"error":{"type":"E"}}"#),
        case("tool.failed", r#"{"error":{"message":"secret"}}"#, r#"{"error":{}}"#),
        case("tool.failed", r#"{"error.message":"secret","kept":1}"#, r#"{"kept":1}"#),
        case("run.started", r#"{"prompt":"secret"}"#, "{}"),
        case("run.started", r#"{"prompt":{"deep":[1]},"a":[],"prompt":2,"b":{}}"#, r#"{"a":[],"b":{}}"#),
        case("run.started", r#"{"pr\u006fmpt":"secret","Prompt":1}"#, r#"{"Prompt":1}"#),
        case("run.started", r#"{"nested":{"prompt":"no such path"}}"#, r#"{"nested":{"prompt":"no such path"}}"#),
        case("session.started", r#"{"label":"x","client":{"cwd":"kept"},"cwd":"/x"}"#, r#"{"client":{"cwd":"kept"}}"#),
        case(
            "assessment.evaluation.recorded",
            r#"{"gen_ai.evaluation.explanation":"x","gen_ai.evaluation.name":"n"}"#,
            r#"{"gen_ai.evaluation.name":"n"}"#,
        ),
        case(
            "assessment.evaluation.recorded",
            r#"{"gen_ai":{"evaluation":{"explanation":"x","name":"n"}}}"#,
            r#"{"gen_ai":{"evaluation":{"name":"n"}}}"#,
        ),
        case(
            "assessment.evaluation.recorded",
            r#"{"gen_ai":{"evaluation.explanation":"x"},"gen_ai.evaluation":{"explanation":1,"k":2}}"#,
            r#"{"gen_ai":{},"gen_ai.evaluation":{"k":2}}"#,
        ),
        case(
            "resource.retrieval.returned",
            r#"{"documents":[{"id":"1","content":"x","content_redacted":"y","score":0.910},{"id":"2"},{"content":1}],"count":3}"#,
            r#"{"documents":[{"id":"1","score":0.910},{"id":"2"},{}],"count":3}"#,
        ),
        case(
            "resource.citation.recorded",
            r#"{"citations":[{"source":{"id":"1","uri":"u","title":"t"},"cited_text":"x"}]}"#,
            r#"{"citations":[{"source":{"id":"1"}}]}"#,
        ),
        case("tool.denied", r#"{"anything":"has no annotation"}"#, r#"{"anything":"has no annotation"}"#),
        case("tool.unregistered", r#"{"anything":"unknown"}"#, ""),
        case("x.acme.session.blob", r#"{"anything":"unknown"}"#, ""),
        case("tool.completed", "", ""),
    ]);
}

#[test]
fn a_value_of_another_kind_than_the_path_needs_goes() {
    let case = |kind, data, lowered| Case {
        kind,
        capture: "redacted",
        ceiling: "metadata",
        data,
        reached: "metadata",
        lowered,
    };
    check(&[
        case("tool.failed", r#"{"error":"secret text","k":1}"#, r#"{"k":1}"#),
        case("tool.failed", r#"{"error":["secret"],"k":1}"#, r#"{"k":1}"#),
        case("resource.retrieval.returned", r#"{"documents":"secret","k":1}"#, r#"{"k":1}"#),
        case("resource.retrieval.returned", r#"{"documents":{"content":"secret"},"k":1}"#, r#"{"k":1}"#),
        case(
            "resource.retrieval.returned",
            r#"{"documents":["secret",{"id":1}],"k":1}"#,
            r#"{"documents":[{"id":1}],"k":1}"#,
        ),
        case(
            "resource.citation.recorded",
            r#"{"citations":[{"source":"secret","index":0}]}"#,
            r#"{"citations":[{"index":0}]}"#,
        ),
    ]);
}

#[test]
fn texts_of_attention_degrade_to_structure() {
    let case = |kind, data, lowered| Case {
        kind,
        capture: "redacted",
        ceiling: "metadata",
        data,
        reached: "metadata",
        lowered,
    };
    check(&[
        case(
            "attention.requested",
            r#"{"kind":"permission","prompt":"rm -rf"}"#,
            r#"{"kind":"permission","prompt":"coder requests permission"}"#,
        ),
        case("attention.requested", r#"{"prompt":"secret","k":1}"#, r#"{"prompt":"coder requests attention","k":1}"#),
        case("attention.requested", r#"{"prompt":["secret"],"kind":"form"}"#, r#"{"kind":"form"}"#),
        case("attention.requested", r#"{"kind":"form"}"#, r#"{"kind":"form"}"#),
        case(
            "attention.requested",
            r#"{"options":[{"id":"allow","label":"Allow it"},{"label":"no id","x":1},"text",{"id":"deny"}],"context":"secret"}"#,
            r#"{"options":[{"id":"allow","label":"allow"},{"x":1},{"id":"deny"}]}"#,
        ),
        case(
            "attention.requested",
            r#"{"fields":[{"id":"1","label":"Database?","choices":[{"id":"a","label":"A"},1,{"label":"B"}]},null]}"#,
            r#"{"fields":[{"id":"1","label":"1","choices":[{"id":"a","label":"a"},{}]}]}"#,
        ),
        case(
            "attention.answered",
            r#"{"answer":{"option":"2","text":"secret","values":{"name":"x","staged":true,"n":-3.50,"l":["1"],"o":{},"z":null,"f":false}}}"#,
            r#"{"answer":{"option":"2","values":{"staged":true,"n":-3.50,"f":false}}}"#,
        ),
    ]);
    let relay = Relay::plain();
    let mut stream = Sse::subscribe(&relay, &[("capture", "metadata")]);
    let base = session_event("attention.requested", 1).capture("redacted").data(r#"{"kind":"form","prompt":"x"}"#);
    let sent = base.clone().text("subject", "a \"quoted\" \\ name\n").agent("agént");
    relay.publish(&[sent.build()]);
    let prompt = "agént requests form: a \"quoted\" \\ name\n";
    let lowered: serde_json::Value = serde_json::from_str(&stream.event()).unwrap();
    assert_eq!(lowered["data"]["prompt"], prompt);
}

#[test]
fn the_level_reached_is_written_in_place_or_appended() {
    let relay = Relay::plain();
    let mut metadata = Sse::subscribe(&relay, &[("capture", "metadata")]);
    let mut none = Sse::subscribe(&relay, &[("capture", "none")]);
    let plain = event("s", 1).data(r#"{"a":1}"#).field("ext", "2");
    relay.publish(&[plain.build()]);
    metadata.expect(&[plain.build()]);
    none.expect(&[plain.clone().without("data").capture("none").build()]);

    let first = event("s", 2).capture("full").data(r#"{"prompt":"x","a":1.0e5}"#).field("ext", "\"e\\u0041\"");
    relay.publish(&[first.build()]);
    metadata.expect(&[first.clone().capture("metadata").data(r#"{"a":1.0e5}"#).build()]);
    none.expect(&[first.clone().without("data").capture("none").build()]);

    let data_only_member_last = event("s", 3).data(r#"{"prompt":"x"}"#);
    relay.publish(&[data_only_member_last.build()]);
    metadata.expect(&[data_only_member_last.build()]);
    none.expect(&[data_only_member_last.clone().without("data").capture("none").build()]);

    let escaped = event("s", 4).capture("full").data("{}").build().replace("\"capture\"", r#""c\u0061pture""#);
    relay.publish(&[&escaped]);
    let lowered: serde_json::Value = serde_json::from_str(&none.event()).unwrap();
    assert_eq!((&lowered["capture"], &lowered["data"]), (&"none".into(), &serde_json::Value::Null));
}

#[test]
fn filters_see_the_event_as_it_was_received() {
    let relay = Relay::plain();
    let mut stream = Sse::subscribe(&relay, &[("capture", "none"), ("filter", r#"{"capture":"full"}"#)]);
    let sent = event("s", 1).capture("full").data("{}");
    relay.publish(&[event("s", 0).capture("none").build(), sent.build()]);
    stream.expect(&[sent.without("data").capture("none").build()]);
}

#[test]
fn agent_events_are_lowered_too() {
    let relay = Relay::plain();
    let mut stream = Sse::subscribe(&relay, &[("capture", "metadata")]);
    let sent = agent_event("agent.health").capture("redacted").data(r#"{"status":"ok","detail":"secret"}"#);
    relay.publish(&[sent.build()]);
    stream.expect(&[sent.capture("metadata").data(r#"{"status":"ok"}"#).build()]);
}
