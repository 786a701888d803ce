//! The public conformance data of the protocol, if `AEP_TEST_DATA` names its directory.
//!
//! Golden events pass byte for byte over every binding; envelopes that break a rule are refused and payloads, which
//! the relay never interprets, are not; filters match as listed; lowered events come out as listed.

use crate::support::*;
use serde_json::{Value, json};

/// The text of one data file; nothing, with a note, when the directory is not named.
#[track_caller]
fn data(name: &str) -> Option<String> {
    let Some(directory) = data_directory() else {
        #[allow(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("skipped: AEP_TEST_DATA is not set, so there is no {name}");
        }
        return None;
    };
    let path = directory.join(name);
    Some(std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn cases(file: &Value, list: &str) -> Vec<Value> {
    file[list].as_array().expect("a list of cases").clone()
}

fn is_command(event: &str) -> bool {
    let event: Value = serde_json::from_str(event).unwrap();
    let kind = event["type"].as_str().unwrap();
    ["control.attention.respond", "control.cancel", "control.pause", "control.resume"].contains(&kind)
}

fn guarded() -> Relay {
    Relay::start(|options| {
        options.token("sesame");
    })
}

/// A connection that publishes and takes every command of the registry.
fn party(relay: &Relay) -> Ws {
    let accepts = r#"["control.attention.respond","control.cancel","control.pause","control.resume"]"#;
    Ws::hello_with(relay, "both", "conformance", &format!(r#"{{"control":{{"accepts":{accepts}}}}}"#))
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn golden_events_pass_byte_for_byte() {
    let Some(golden) = data("golden.jsonl") else { return };
    let lines: Vec<&str> = golden.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() > 50);
    for by_post in [true, false] {
        let relay = guarded();
        let mut stream = Sse::open(&relay, "/stream");
        let mut observer = Ws::consumer(&relay, "{}");
        let mut party = party(&relay);
        let sent: Vec<&str> = lines.iter().copied().filter(|line| !by_post || !is_command(line)).collect();
        for line in &sent {
            if by_post {
                relay.post(line).expect(202, r#"{"accepted":1}"#);
            } else {
                party.text(line);
            }
        }
        let owned = |lines: &[&str]| sorted(lines.iter().map(|line| (*line).to_owned()).collect());
        assert_eq!(sorted(sent.iter().map(|_| stream.event()).collect()), owned(&sent), "on a stream");
        assert_eq!(sorted(sent.iter().map(|_| observer.message()).collect()), owned(&sent), "on a WebSocket");
        let commands: Vec<&str> = sent.iter().copied().filter(|line| is_command(line)).collect();
        for command in commands {
            assert_eq!(party.message(), command, "the claimant gets the command");
        }
        party.sync();
        let kept: Vec<&str> = sent.iter().copied().filter(|line| !line.contains(r#""type":"agent."#)).collect();
        let replayed: Vec<String> = Sse::replay(&relay, &[]).iter().map(|message| message.data().to_owned()).collect();
        assert_eq!(sorted(replayed), owned(&kept), "in a replay");
    }
}

#[test]
fn golden_events_pass_as_one_batch() {
    let Some(golden) = data("golden.jsonl") else { return };
    let relay = Relay::plain();
    let lines: Vec<&str> = golden.lines().filter(|line| !line.is_empty() && !is_command(line)).collect();
    relay.publish(&lines);
    relay.post_lines(&golden).expect_refusal(403, "control-requires-duplex");
}

#[test]
fn envelopes_that_break_a_rule_are_refused_and_payloads_are_not_read() {
    let Some(text) = data("invalid.json") else { return };
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "both", "conformance");
    for case in cases(&serde_json::from_str(&text).unwrap(), "cases") {
        let (Some(rule), false) = (case["rule"].as_str(), case["event"].is_null()) else { continue };
        let event = case["event"].to_string();
        let of_the_envelope =
            ["AEP-0001", "AEP-0004 §2.2", "AEP-0002 §3"].iter().any(|prefix| rule.starts_with(prefix));
        let response = relay.post(&event);
        if of_the_envelope {
            assert_eq!(response.status, 400, "{}", case["name"]);
            response.expect_refusal(400, "invalid-event");
            // A `type` without a dot makes it a frame on a WebSocket, and an unknown frame is ignored.
            if case["event"]["type"].as_str().is_some_and(|kind| kind.contains('.')) {
                socket.text(&event);
                socket.expect_error("invalid-event");
            }
        } else {
            assert_eq!(response.status, 202, "{}: {response:?}", case["name"]);
        }
    }
}

/// The event with whatever an envelope needs beyond what the case says.
fn completed(event: &Value) -> String {
    let kind = event["type"].as_str().unwrap();
    let mut builder = agent_event(kind);
    if !kind.starts_with("agent.") {
        builder = builder.text("session", "s0").field("seq", "0");
    }
    for (name, value) in event.as_object().unwrap() {
        builder = builder.field(name, &value.to_string());
    }
    builder.build()
}

#[test]
fn filters_match_as_listed() {
    let Some(text) = data("attr-match.json") else { return };
    let file: Value = serde_json::from_str(&text).unwrap();
    for case in cases(&file, "match") {
        let relay = Relay::plain();
        let filter = case["filter"].to_string();
        let mut socket = Ws::hello(&relay, "consumer", "conformance");
        socket.subscribe("case", &format!(r#""filter":{filter}"#));
        socket.subscribe("marker", r#""filter":{"id":"marker"}"#);
        let event = completed(&case["event"]);
        let session: Value = serde_json::from_str(&event).unwrap();
        let session = session["session"].as_str().unwrap_or("elsewhere").to_owned();
        relay.publish(&[&event]);
        let marker = crate::support::event(&session, 9).id("marker").build();
        if case["match"] == true {
            assert_eq!(socket.message(), event, "{}", case["name"]);
        }
        relay.publish(&[&marker]);
        assert_eq!(socket.message(), marker, "{}", case["name"]);
    }
    let relay = Relay::plain();
    for case in cases(&file, "invalid") {
        let target = query("/stream", &[("filter", &case["filter"].to_string())]);
        relay.get(&target).expect_refusal(400, "invalid-filter");
    }
}

#[test]
fn events_are_lowered_as_listed() {
    let Some(text) = data("downlevel.json") else { return };
    for case in cases(&serde_json::from_str(&text).unwrap(), "cases") {
        let relay = guarded();
        let event = case["event"].to_string();
        let id = &case["event"]["id"];
        let ceiling = case["ceiling"].as_str().unwrap();
        let filter = json!({ "id": id }).to_string();
        let mut stream = Sse::subscribe(&relay, &[("filter", &filter), ("capture", ceiling)]);
        if is_command(&event) {
            let mut party = party(&relay);
            party.text(crate::support::event(case["event"]["session"].as_str().unwrap(), 0).build());
            party.text(&event);
            assert_eq!(party.message(), event);
        } else {
            relay.post(&event).expect(202, r#"{"accepted":1}"#);
        }
        let delivered: Value = serde_json::from_str(&stream.event()).unwrap();
        let mut expected = case["event"].clone();
        expected["capture"] = case["expect_capture"].clone();
        expected["data"] = case["expect_data"].clone();
        if expected["data"].is_null() {
            expected.as_object_mut().unwrap().remove("data");
        }
        assert_eq!(delivered, expected, "{}", case["name"]);
    }
}

/// `path` (`a.b`, `a[].b`) as nested data around `leaf`, with a sibling `kept` on every level.
fn nested(path: &str, leaf: Option<&str>) -> String {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match (first.strip_suffix("[]"), rest) {
        (Some(name), Some(rest)) => format!(r#"{{"kept":1,"{name}":[{},{0}]}}"#, nested(rest, leaf)),
        (None, Some(rest)) => format!(r#"{{"kept":1,"{first}":{}}}"#, nested(rest, leaf)),
        (_, None) => {
            leaf.map_or_else(|| r#"{"kept":1}"#.to_owned(), |leaf| format!(r#"{{"kept":1,"{first}":{leaf}}}"#))
        }
    }
}

#[test]
fn every_annotated_field_goes_under_a_metadata_ceiling() {
    let Some(text) = data("capture-levels.json") else { return };
    let file: Value = serde_json::from_str(&text).unwrap();
    let relay = guarded();
    let mut party = party(&relay);
    party.text(event("s", 1).build());
    let filter = r#"{"subject":"lowered"}"#;
    let mut stream = Sse::subscribe(&relay, &[("filter", filter), ("capture", "metadata")]);
    let mut checked = 0;
    for (kind, fields) in file["types"].as_object().unwrap() {
        for path in fields.as_object().unwrap().keys() {
            for leaf in ["\"secret\"", "{\"deep\":[\"secret\"]}", "0"] {
                let base = agent_event(kind).text("subject", "lowered");
                let base = match kind {
                    kind if kind.starts_with("agent.") => base,
                    kind if is_command(&base.build()) || kind == "attention.routed" => base.text("session", "s"),
                    _ => base.text("session", "s").field("seq", "2"),
                };
                let sent = base.clone().capture("redacted").data(&nested(path, Some(leaf))).build();
                party.text(&sent);
                if is_command(&sent) {
                    assert_eq!(party.message(), sent);
                }
                let expected = base.capture("metadata").data(&nested(path, None)).build();
                assert_eq!(stream.event(), expected, "{kind} {path}");
                checked += 1;
            }
        }
    }
    assert!(checked > 60, "{checked} fields");
}
