//! Commands: who claims a session, where a command goes, and what its sender hears (contract §6 and §7).

use crate::support::*;
use serde_json::{Value, json};

/// What a coder declares: it takes cancels and answers, and emits two kinds of things.
const CAPABILITIES: &str = r#"{"control":{"accepts":["control.cancel","control.attention.respond","x.acme.control.stop"],"note":[1.50]},"emits":["tool.*",{"x":null}]}"#;

fn guarded() -> Relay {
    Relay::start(|options| {
        options.token("sesame");
    })
}

/// A connection that has claimed the session: its first event of it has been seen by a consumer.
#[track_caller]
fn claimant(relay: &Relay, role: &str, name: &str, session: &str) -> Ws {
    let mut socket = Ws::hello_with(relay, role, name, CAPABILITIES);
    claim(relay, &mut socket, session);
    socket
}

#[track_caller]
fn claim(relay: &Relay, socket: &mut Ws, session: &str) {
    send_seen(relay, socket, &event(session, 1).text("session", session).build());
}

/// Sends an event and waits until a consumer has it, so that what it does at its owner is done.
#[track_caller]
fn send_seen(relay: &Relay, socket: &mut Ws, text: &str) {
    let id = serde_json::from_str::<Value>(text).unwrap()["id"].clone();
    let mut witness = Sse::subscribe(relay, &[("filter", &json!({ "id": id }).to_string())]);
    socket.text(text);
    witness.expect(&[text]);
}

/// Sends the command and expects this refusal for it.
#[track_caller]
fn expect_refused(sender: &mut Ws, command: &EventBuilder, code: &str) {
    let text = command.build();
    sender.text(&text);
    let error = sender.expect_error(code);
    assert_eq!(error["cause"], serde_json::from_str::<Value>(&text).unwrap()["id"], "{error}");
    assert_eq!(error.as_object().unwrap().len(), 4, "type, cause, code and detail: {error}");
}

#[test]
fn without_a_token_control_is_refused() {
    let relay = Relay::plain();
    let mut target = claimant(&relay, "emitter", "coder", "s");
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    expect_refused(&mut sender, &command("control.cancel", "s"), "unauthorized");
    expect_refused(&mut sender, &command("control.cancel", "nobody"), "unauthorized");
    expect_refused(&mut target, &command("control.cancel", "s"), "unauthorized");
    sender.text(command("control.cancel", "s").field("seq", "1").build());
    sender.expect_error("invalid-event");
    target.sync();
    assert_eq!(Sse::replay(&relay, &[]).len(), 1, "nothing but the claimant's event is in the history");
}

#[test]
fn a_command_reaches_its_claimant_the_observers_and_the_history() {
    let relay = guarded();
    let mut stream = Sse::subscribe(&relay, &[("filter", r#"{"session":"s"}"#)]);
    let mut observer = Ws::consumer(&relay, r#"{"type":"control.*"}"#);
    let mut target = claimant(&relay, "both", "coder", "s");
    stream.event();
    target.subscribe("one", r#""filter":{"type":"control.*"},"capture":"none""#);
    target.subscribe("two", "");
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    sender.subscribe("mine", r#""filter":{"session":"s"}"#);
    for sent in [
        command("control.cancel", "s").capture("full").data(r#"{"reason":"because","scope":"run"}"#),
        command("control.attention.respond", "s").data(r#"{"answer":{"text":"é","n":1e400}}"#),
        command("x.acme.control.stop", "s"),
    ] {
        // Spaces are part of what the target gets.
        let text = sent.join(": ", ", ");
        sender.text(&text);
        assert_eq!(target.message(), text, "one copy, at full level");
        assert_eq!(sender.message(), text);
        assert_eq!(stream.event(), text);
        if !text.contains("x.acme") {
            assert_eq!(observer.message(), text);
        }
    }
    target.sync();
    let replayed = Sse::replay(&relay, &[("from", r#"[{"session":"s","seq":1}]"#)]);
    let kinds: Vec<&str> = replayed
        .iter()
        .map(|message| match message {
            Message::Event { id: None, kind, .. } => kind.as_str(),
            other => panic!("a command has no position: {other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["control.cancel", "control.attention.respond", "x.acme.control.stop"]);
}

#[test]
fn the_sender_may_be_the_claimant() {
    let relay = guarded();
    let mut both = claimant(&relay, "both", "coder", "s");
    both.subscribe("all", "");
    let text = command("control.cancel", "s").build();
    both.text(&text);
    assert_eq!(both.message(), text);
    both.sync();
}

#[test]
fn every_role_may_send_commands() {
    let relay = guarded();
    let mut target = claimant(&relay, "emitter", "coder", "s");
    for role in ["consumer", "both", "emitter"] {
        let mut sender = Ws::hello(&relay, role, "controller");
        let text = command("control.cancel", "s").build();
        sender.text(&text);
        assert_eq!(target.message(), text, "{role}");
        sender.sync();
    }
}

#[test]
fn a_session_without_a_live_claimant_has_no_route() {
    let relay = guarded();
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    let cancel = || command("control.cancel", "s");
    expect_refused(&mut sender, &cancel(), "no-route");

    relay.publish(&[event("s", 1).build()]);
    expect_refused(&mut sender, &cancel(), "no-route"); // POST claims nothing
    let mut consumer = Ws::hello(&relay, "consumer", "watcher");
    send_seen(&relay, &mut consumer, &event("s", 2).build());
    expect_refused(&mut sender, &cancel(), "no-route"); // a consumer claims nothing
    let mut emitter = Ws::hello_with(&relay, "emitter", "coder", CAPABILITIES);
    send_seen(&relay, &mut emitter, &unplaced("attention.routed", "s").build());
    send_seen(&relay, &mut emitter, &agent_event("agent.presence").build());
    send_seen(&relay, &mut emitter, &event("s", 3).kind("session.ended").build());
    send_seen(&relay, &mut emitter, &event("other", 3).build());
    emitter.text(event("s", 3).field("data", "null").build());
    emitter.expect_error("invalid-event");
    expect_refused(&mut sender, &cancel(), "no-route"); // nor does any of these
    send_seen(&relay, &mut emitter, &event("s", 4).build());
    let text = cancel().build();
    sender.text(&text);
    emitter.expect(&[&text]);
    let history = Sse::replay(&relay, &[("filter", r#"{"type":"control.*"}"#)]);
    assert_eq!(history.len(), 1, "what had no route is in no history");
}

#[test]
fn a_duplicate_claims_too() {
    let relay = guarded();
    let text = event("s", 1).build();
    relay.publish(&[&text]);
    let mut emitter = Ws::hello_with(&relay, "emitter", "coder", CAPABILITIES);
    send_seen(&relay, &mut emitter, &text);
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    let cancel = command("control.cancel", "s").build();
    sender.text(&cancel);
    emitter.expect(&[&cancel]);
}

#[test]
fn a_claim_ends_with_its_session_or_its_connection() {
    let relay = guarded();
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    let mut target = claimant(&relay, "emitter", "coder", "s");
    relay.publish(&[event("s", 7).kind("session.ended").build()]);
    let cancel = command("control.cancel", "s").build();
    sender.text(&cancel);
    target.expect(&[&cancel]); // POST ends no claim
    let mut other = Ws::hello_with(&relay, "emitter", "other", CAPABILITIES);
    send_seen(&relay, &mut other, &event("s", 8).kind("session.ended").build());
    sender.text(&cancel);
    target.expect(&[&cancel]); // nor does another connection
    send_seen(&relay, &mut target, &event("s", 9).kind("session.ended").build());
    expect_refused(&mut sender, &command("control.cancel", "s"), "no-route");
    claim(&relay, &mut target, "s");
    sender.text(&cancel);
    target.expect(&[&cancel]); // a new event claims it anew
    target.close();
    wait_until("the claim ends with its connection", || {
        sender.text(command("control.cancel", "s").build());
        sender.json()["code"] == "no-route"
    });
}

#[test]
fn two_claimants_are_ambiguous_until_one_goes() {
    let relay = guarded();
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    let mut first = claimant(&relay, "emitter", "coder", "s");
    let mut second = claimant(&relay, "emitter", "coder", "s"); // the same identity makes them no one
    expect_refused(&mut sender, &command("control.cancel", "s"), "ambiguous");
    expect_refused(&mut sender, &command("control.pause", "s"), "ambiguous"); // before unsupported
    for socket in [&mut first, &mut second] {
        socket.sync();
    }
    send_seen(&relay, &mut second, &event("s", 2).kind("session.ended").build());
    let cancel = command("control.cancel", "s").build();
    sender.text(&cancel);
    first.expect(&[&cancel]);
    second.sync();
    first.close();
    claim(&relay, &mut second, "s");
    let mut answered = Vec::new();
    wait_until("the first claim ends with its connection", || {
        let cancel = command("control.cancel", "s");
        sender.text(cancel.build());
        // Refused toward the sender while both hold it; the pong tells when there was no refusal.
        sender.text(r#"{"type":"ping","t":1}"#);
        let answer = sender.json();
        if answer["code"] == "ambiguous" {
            sender.json();
            return false;
        }
        assert_eq!(answer["type"], "pong", "{answer}");
        answered.push(cancel.build());
        true
    });
    second.expect(&answered);
}

#[test]
fn a_command_the_claimant_does_not_take_is_unsupported() {
    let relay = guarded();
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    let mut target = claimant(&relay, "emitter", "coder", "s");
    for kind in ["control.pause", "control.resume", "x.acme.control.start", "x.acme.control.stop.now"] {
        expect_refused(&mut sender, &command(kind, "s"), "unsupported");
    }
    target.sync();
    for (name, capabilities) in [
        ("none", "{}"),
        ("null", r#"{"control":null}"#),
        ("text", r#"{"control":{"accepts":"control.cancel"}}"#),
        ("mixed", r#"{"control":{"accepts":["control.cancel",5]}}"#),
        ("object", r#"{"control":{"accepts":{"control.cancel":true}}}"#),
        ("glob", r#"{"control":{"accepts":["control.*"]}}"#),
    ] {
        let mut target = Ws::hello_with(&relay, "emitter", "coder", capabilities);
        claim(&relay, &mut target, name);
        expect_refused(&mut sender, &command("control.cancel", name), "unsupported");
        target.sync();
    }
    assert!(Sse::replay(&relay, &[("filter", r#"{"type":["control.*","x.*"]}"#)]).is_empty());
}

#[test]
fn an_invalid_command_is_an_invalid_event() {
    let relay = guarded();
    let mut target = claimant(&relay, "emitter", "coder", "s");
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    for invalid in [
        command("control.cancel", "s").field("seq", "1"),
        command("control.cancel", "s").without("session"),
        command("control.cancel", "s").without("agent"),
        command("control.cancel", "s")
            .field("data", &format!("{{\"a\":{}1{}}}", "[1,".repeat(3), "]".repeat(3)))
            .text("time", "now"),
    ] {
        expect_refused(&mut sender, &invalid, "invalid-event");
    }
    let deep = format!(r#"{{"args":{}0{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    sender.text(command("control.cancel", "s").data(&deep).build());
    sender.expect_error("invalid-json");
    target.sync();
}

#[test]
fn a_retry_is_forwarded_again_and_kept_once() {
    let relay = guarded();
    let mut stream = Sse::subscribe(&relay, &[("filter", r#"{"type":"control.*"}"#)]);
    let mut target = claimant(&relay, "emitter", "coder", "s");
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    let cancel = command("control.cancel", "s").build();
    for _ in 0..3 {
        sender.text(&cancel);
        target.expect(&[&cancel]);
        stream.expect(&[&cancel]);
    }
    assert_eq!(Sse::replay(&relay, &[("filter", r#"{"type":"control.*"}"#)]).len(), 1);
}

#[test]
fn nobody_sees_the_answer_before_the_command() {
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_CORES", 4);
    });
    let mut observers: Vec<Ws> =
        (0..6).map(|_| Ws::consumer(&relay, r#"{"type":["control.cancel","control.accepted"]}"#)).collect();
    let mut streams: Vec<Sse> =
        (0..6).map(|_| Sse::subscribe(&relay, &[("filter", r#"{"type":"control.*"}"#)])).collect();
    let mut senders: Vec<Ws> = (0..4).map(|_| Ws::hello(&relay, "consumer", "controller")).collect();
    for round in 0..40 {
        let session = format!("s{round}");
        let mut target = claimant(&relay, "both", "coder", &session);
        let cancel = command("control.cancel", &session).build();
        senders[round % 4].text(&cancel);
        assert_eq!(target.message(), cancel);
        let accepted = event(&session, 2).kind("control.accepted").build();
        target.text(&accepted);
        for observer in &mut observers {
            observer.expect(&[&cancel, &accepted]);
        }
        for stream in &mut streams {
            stream.expect(&[&cancel, &accepted]);
        }
        let history = Sse::replay(&relay, &[("from", &json!([{"session": session, "seq": 1}]).to_string())]);
        assert_eq!(history.iter().map(Message::data).collect::<Vec<_>>(), [cancel, accepted]);
    }
}

#[test]
fn late_double_and_foreign_answers_are_events_like_others() {
    let relay = guarded();
    let mut target = claimant(&relay, "both", "coder", "s");
    target.subscribe("s", "");
    for (index, kind) in ["control.accepted", "control.rejected", "control.accepted"].into_iter().enumerate() {
        let answer = event("s", 10 + index as u64).kind(kind).text("cause", "never asked").build();
        target.text(&answer);
        target.text(&answer);
        target.expect(&[&answer, &answer]);
    }
    target.sync();
}

#[test]
fn over_the_claim_limit_the_oldest_lapses() {
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_MAX_CLAIMS", 2);
    });
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    let mut target = claimant(&relay, "emitter", "coder", "a");
    claim(&relay, &mut target, "b");
    claim(&relay, &mut target, "c");
    wait_until("the oldest claim lapses", || {
        let cancel = command("control.cancel", "a").build();
        sender.text(&cancel);
        sender.text(r#"{"type":"ping","t":1}"#);
        let answer = sender.json();
        if answer["type"] == "pong" {
            target.expect(&[&cancel]);
            return false;
        }
        sender.json();
        answer["code"] == "no-route"
    });
    for session in ["b", "c"] {
        let cancel = command("control.cancel", session).build();
        sender.text(&cancel);
        target.expect(&[&cancel]);
    }
}

#[test]
fn eviction_ends_no_claim() {
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_MAX_SESSIONS", 1);
    });
    let mut target = claimant(&relay, "emitter", "coder", "s");
    relay.publish(&[event("other", 1).build()]);
    assert_eq!(relay.count("sessions"), 1);
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    let cancel = command("control.cancel", "s").build();
    sender.text(&cancel);
    target.expect(&[&cancel]);
}

// ── the roster and the connections ──

/// The entries of a roster, sorted by their text.
#[track_caller]
fn roster(socket: &mut Ws) -> Vec<Value> {
    socket.text(r#"{"type":"roster","id":"r 1"}"#);
    let answer = socket.json();
    assert_eq!((&answer["type"], &answer["id"]), (&json!("roster"), &json!("r 1")), "{answer}");
    let mut entries = answer["entries"].as_array().expect("entries").clone();
    entries.sort_by_key(Value::to_string);
    entries
}

#[test]
fn the_roster_lists_every_claim_as_its_connection_declared_itself() {
    let relay = guarded();
    let mut asker = Ws::hello(&relay, "consumer", "watcher");
    assert_eq!(roster(&mut asker), [] as [Value; 0]);
    let mut coder = claimant(&relay, "emitter", "coder", "b");
    claim(&relay, &mut coder, "a");
    let mut bare = Ws::connect(&relay);
    bare.text(r#"{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":"bare"}}"#);
    bare.json();
    claim(&relay, &mut bare, "a");
    let control =
        json!({"accepts": ["control.cancel", "control.attention.respond", "x.acme.control.stop"], "note": [1.50]});
    let entry = |session| json!({"session": session, "agent": "coder", "instance": "coder-1", "control": control, "emits": ["tool.*", {"x": null}]});
    let mut expected = vec![entry("a"), entry("b"), json!({"session": "a", "agent": "bare"})];
    expected.sort_by_key(Value::to_string);
    assert_eq!(roster(&mut asker), expected);
    assert_eq!(roster(&mut bare), expected, "a connection of both roles may ask");
    asker.text(r#"{"type":"roster","id":"verbatim"}"#);
    let text = asker.message();
    assert!(text.contains(r#""note":[1.50]"#) && text.contains(r#"["tool.*",{"x":null}]"#), "{text}");

    coder.text(r#"{"type":"roster","id":"mine"}"#);
    assert_eq!(coder.expect_error("unauthorized")["id"], "mine");
    for request in [r#"{"type":"roster"}"#, r#"{"type":"roster","id":5}"#, r#"{"type":"roster","id":null}"#] {
        asker.text(request);
        asker.expect_error("invalid-frame");
    }
    coder.close();
    wait_until("the claims end with their connection", || roster(&mut asker).len() == 1);
}

#[test]
fn connections_lists_the_live_parties() {
    let relay = guarded();
    assert_eq!(relay.get("/connections").json(), json!({"connections": []}));
    let _stream = Sse::open(&relay, "/stream");
    let mut coder = claimant(&relay, "emitter", "coder", "b");
    claim(&relay, &mut coder, "a");
    let mut watcher = Ws::connect(&relay);
    watcher.text(r#"{"type":"hello","versions":["0.1"],"role":"consumer"}"#);
    watcher.json();
    watcher.subscribe("one", "");
    watcher.subscribe("two", "");
    let mut listed = relay.get("/connections").json()["connections"].as_array().unwrap().clone();
    listed.sort_by_key(|party| party["role"].to_string());
    let [second, first] = &mut listed[..] else { panic!("two parties: {listed:?}") };
    for party in [&mut *first, &mut *second] {
        let since = party.as_object_mut().unwrap().remove("since").expect("since");
        let since = since.as_str().unwrap();
        assert!(since.starts_with("20") && since.contains('T') && since.ends_with('Z'), "RFC 3339: {since}");
        if let Some(sessions) = party["sessions"].as_array_mut() {
            sessions.sort_by_key(Value::to_string);
        }
    }
    assert_eq!(
        *first,
        json!({"role": "emitter", "agent": "coder", "instance": "coder-1", "sessions": ["a", "b"], "subscriptions": 0})
    );
    assert_eq!(*second, json!({"role": "consumer", "sessions": [], "subscriptions": 2}));
    coder.close();
    watcher.close();
    wait_until("both are gone", || relay.get("/connections").json() == json!({"connections": []}));
}
