//! The AEP Python SDK: emitter, consumers, resume after a kill on either side, replay of everything, control.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::*;
use crate::tool::{self, Program};

/// The interpreter that has the SDK.
#[track_caller]
fn interpreter() -> Option<PathBuf> {
    let named = std::env::var_os("AEP_PYTHON").filter(|value| !value.is_empty()).map(PathBuf::from);
    let interpreter = named.or_else(|| tool::find(&["python3"]));
    let has_sdk = |interpreter: &PathBuf| {
        let mut check = Command::new(interpreter);
        check.args(["-c", "import aep_sdk"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success())
    };
    let found = interpreter.filter(has_sdk);
    if found.is_none() {
        tool::skip("Python with agenteventprotocol-sdk (AEP_PYTHON)");
    }
    found
}

/// One of the scripts beside this file.
fn script(interpreter: &PathBuf, relay: &Relay, name: &str) -> Command {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/interop").join(name);
    let mut command = tool::command(interpreter, relay);
    command.arg("-B").arg(file);
    command
}

/// A consumer of this flavour that ends after so many events.
fn consumer(interpreter: &PathBuf, relay: &Relay, flavour: &str, events: usize, from: Option<&Value>) -> Command {
    let mut command = script(interpreter, relay, "consume.py");
    command.env("FLAVOUR", flavour).env("EVENTS", events.to_string());
    if let Some(from) = from {
        command.env("FROM", from.to_string());
    }
    command
}

#[track_caller]
fn next(program: &mut Program) -> Value {
    let line = program.line();
    serde_json::from_str(&line).unwrap_or_else(|_| panic!("a line of JSON: {line:?}"))
}

/// The `seq` of the next line, which must be an event.
#[track_caller]
fn next_seq(program: &mut Program) -> u64 {
    let line = next(program);
    line["event"]["seq"].as_u64().unwrap_or_else(|| panic!("an event: {line}"))
}

#[track_caller]
fn publish(relay: &Relay, session: &str, seqs: std::ops::RangeInclusive<u64>) {
    let events: Vec<String> = seqs.map(|seq| event(session, seq).build()).collect();
    relay.publish(&events);
}

#[track_caller]
fn wait_for_subscribers(relay: &Relay, count: u64) {
    wait_until("the consumer is subscribed", || relay.count("subscribers") == count);
}

#[test]
fn the_emitter_publishes_what_it_built() {
    let Some(python) = interpreter() else { return };
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    let mut live = Sse::open(&relay, "/stream");
    let emitted = Program::start(&mut script(&python, &relay, "emit.py")).rest();
    assert_eq!(emitted.len(), 5);
    live.expect(&emitted);
    live.expect(&emitted[4..]);
    let held: Vec<String> = Sse::replay(&relay, &[]).iter().map(|message| message.data().to_owned()).collect();
    assert_eq!(held, emitted[1..], "the session's events, each once");
}

#[test]
fn both_consumers_receive_what_matches_and_drop_what_comes_twice() {
    let Some(python) = interpreter() else { return };
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    for flavour in ["blocking", "asyncio"] {
        let mut command = consumer(&python, &relay, flavour, 3, None);
        command.env("FILTER", r#"{"session":"mine","severity":{"gte":"notice"}}"#).env("CAPTURE", "none");
        let mut program = Program::start(&mut command);
        wait_for_subscribers(&relay, 1);
        let wanted = |seq| event("mine", seq).severity("warning").capture("full").data(r#"{"secret":true}"#).build();
        let batch = [wanted(1), event("other", 1).severity("error").build(), event("mine", 2).build(), wanted(3)];
        relay.publish(&batch);
        relay.publish(&batch);
        relay.publish(&[wanted(4)]);
        let mut positions = Value::Null;
        for seq in [1, 3, 4] {
            let line = next(&mut program);
            assert_eq!(line["event"]["seq"], seq, "{flavour}: {line}");
            assert_eq!(line["event"].get("data"), None, "{flavour}: under the ceiling: {line}");
            positions = line["positions"].clone();
        }
        assert_eq!(positions, json!([{"session": "mine", "epoch": 0, "seq": 4}]));
        assert_eq!(program.rest(), [""; 0]);
        wait_for_subscribers(&relay, 0);
    }
}

#[test]
fn a_consumer_that_was_killed_resumes_from_its_positions() {
    let Some(python) = interpreter() else { return };
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_BUFFER", 10);
    });
    for (flavour, session) in [("blocking", "s:1"), ("asyncio", "s:2")] {
        let mut first = Program::start(
            consumer(&python, &relay, flavour, 1000, None).env("FILTER", json!({"session": session}).to_string()),
        );
        wait_for_subscribers(&relay, 1);
        publish(&relay, session, 1..=5);
        let mut positions = Value::Null;
        for seq in 1..=5 {
            let line = next(&mut first);
            assert_eq!(line["event"]["seq"], seq);
            positions = line["positions"].clone();
        }
        first.kill();
        wait_for_subscribers(&relay, 0);
        publish(&relay, session, 6..=9);
        let filter = json!({"session": session}).to_string();
        let mut second = Program::start(consumer(&python, &relay, flavour, 6, Some(&positions)).env("FILTER", &filter));
        for seq in 6..=9 {
            assert_eq!(next_seq(&mut second), seq, "{flavour}: what it missed");
        }
        publish(&relay, session, 10..=11);
        for seq in 10..=11 {
            assert_eq!(next_seq(&mut second), seq, "{flavour}: and then live");
        }
        second.rest();
        wait_for_subscribers(&relay, 0);
        // Away for longer than the buffer reaches back.
        publish(&relay, session, 12..=40);
        let mut third = Program::start(consumer(&python, &relay, flavour, 10, Some(&positions)).env("FILTER", &filter));
        assert_eq!(next(&mut third), json!({"comment": format!("replay-exhausted {session} 0:31")}));
        for seq in 31..=40 {
            assert_eq!(next_seq(&mut third), seq);
        }
        third.rest();
        wait_for_subscribers(&relay, 0);
    }
}

#[test]
fn a_consumer_outlives_the_relay() {
    let Some(python) = interpreter() else { return };
    for flavour in ["blocking", "asyncio"] {
        let mut relay = Relay::plain();
        let port = relay.address().port();
        let mut program = Program::start(&mut consumer(&python, &relay, flavour, 6, None));
        wait_for_subscribers(&relay, 1);
        publish(&relay, "s", 1..=3);
        for seq in 1..=3 {
            assert_eq!(next_seq(&mut program), seq);
        }
        assert_eq!(relay.term().code(), Some(0));
        let relay = Relay::start(|options| {
            options.env("AEP_PORT", port);
        });
        publish(&relay, "s", 4..=6);
        let mut lines: Vec<Value> = (0..4).map(|_| next(&mut program)).collect();
        assert_eq!(lines.remove(0), json!({"comment": "shutting-down"}), "{flavour}");
        let seqs: Vec<&Value> = lines.iter().map(|line| &line["event"]["seq"]).collect();
        assert_eq!(seqs, [4, 5, 6], "{flavour}: it came back by itself and missed nothing");
        program.rest();
    }
}

#[test]
fn everything_held_can_be_asked_for_without_naming_it() {
    let Some(python) = interpreter() else { return };
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    for session in ["a", "b", "c"] {
        publish(&relay, session, 1..=5);
    }
    for flavour in ["blocking", "asyncio", "asyncio-replay"] {
        let live = flavour != "asyncio-replay";
        let mut program =
            Program::start(&mut consumer(&python, &relay, flavour, if live { 16 } else { 15 }, Some(&json!("all"))));
        let mut seen: Vec<(String, u64)> = Vec::new();
        let mut comments = Vec::new();
        while seen.len() < 15 {
            let line = next(&mut program);
            let event = &line["event"];
            match event["session"].as_str() {
                Some(session) => seen.push((session.to_owned(), event["seq"].as_u64().expect("a number"))),
                // Told at once, while events wait to be asked for.
                None => comments.push(line["comment"].clone()),
            }
        }
        for session in ["a", "b", "c"] {
            let seqs: Vec<u64> = seen.iter().filter(|(other, _)| other == session).map(|(_, seq)| *seq).collect();
            assert_eq!(seqs, [1, 2, 3, 4, 5], "{flavour}");
        }
        if live {
            wait_for_subscribers(&relay, 1);
            relay.publish(&[agent_event("agent.presence").build()]);
            assert_eq!(next(&mut program)["event"]["type"], "agent.presence");
            assert_eq!((program.rest(), comments), (vec![], vec![]));
        } else {
            comments.extend(
                program.rest().iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["comment"].clone()),
            );
            assert_eq!(comments, ["replay-complete"]);
        }
        wait_for_subscribers(&relay, 0);
    }
}

#[test]
fn control_clients_and_targets_find_each_other() {
    let Some(python) = interpreter() else { return };
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_CORES", 4);
    });
    let mut observer = Sse::subscribe(&relay, &[("filter", r#"{"type":["control.cancel","control.accepted"]}"#)]);
    assert_eq!(Program::start(&mut script(&python, &relay, "control.py")).rest(), ["controlled"]);
    // Observers see the first command and its answer in that order.
    let command: Value = serde_json::from_str(&observer.event()).unwrap();
    let ack: Value = serde_json::from_str(&observer.event()).unwrap();
    assert_eq!((&command["type"], &ack["cause"]), (&json!("control.cancel"), &command["id"]));

    let watch_only = Relay::plain();
    assert_eq!(Program::start(&mut script(&python, &watch_only, "control.py")).rest(), ["watch-only"]);
}
