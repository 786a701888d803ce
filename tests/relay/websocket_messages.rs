//! Messages on a WebSocket: hello, events, subscriptions, pings, and what is ignored (contract §6).

use crate::support::*;
use serde_json::{Value, json};

fn hello(members: &str) -> String {
    format!(r#"{{"type":"hello",{members}}}"#)
}

/// Sends this first message: answered by an error with this code and close 1008.
#[track_caller]
fn expect_refused(relay: &Relay, first: &str, code: &str) -> Value {
    let mut socket = Ws::connect(relay);
    socket.text(first);
    let error = socket.json();
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!(code)), "{first}: {error}");
    assert!(error["detail"].is_string(), "{error}");
    socket.expect_close(1008);
    error
}

// ── hello ──

#[test]
fn the_hello_is_answered_with_what_discovery_says() {
    let relay = Relay::plain();
    let discovery = relay.get("/events").json();
    let mut instances = Vec::new();
    for first in [
        hello(
            r#""versions":["0.1"],"role":"emitter","identity":{"agent":"coder","instance":"i","card":"c"},"capabilities":{}"#,
        ),
        hello(r#""versions":["9.9","0.1"],"role":"both","identity":{"agent":"coder"}"#),
        hello(r#""versions":["0.1"],"role":"consumer""#),
        hello(r#""versions":["0.1"],"role":"consumer","identity":null,"capabilities":null"#),
        hello(r#""versions":["0.1"],"role":"consumer","identity":{"agent":null,"instance":null,"card":null}"#),
        hello(
            r#""versions":["0.1"],"role":"consumer","identity":{},"capabilities":{"control":{"accepts":7},"x":[[[]]]}"#,
        ),
        hello(r#""versions":["0.1"],"role":"consumer","capabilities":"none","unknown":1e400"#),
        format!(" {} ", hello("\n\"versions\" : [ \"0.1\" ] , \"role\" : \"consumer\"")),
    ] {
        let mut socket = Ws::connect(&relay);
        socket.text(&first);
        let answer = socket.json();
        let instance = answer["identity"]["instance"].as_str().expect("an instance").to_owned();
        assert_eq!(
            answer,
            json!({
                "type": "hello", "versions": ["0.1"], "role": "both",
                "identity": {"agent": "aep-relay", "instance": instance},
                "capabilities": discovery["capabilities"],
            }),
            "{first}"
        );
        instances.push(instance);
        socket.sync();
    }
    assert!(instances.iter().all(|instance| *instance == instances[0] && !instance.is_empty()), "{instances:?}");
}

#[test]
fn another_first_message_is_refused() {
    let relay = Relay::plain();
    for first in [
        event("s", 1).build().as_str(),
        r#"{"type":"subscribe","id":"s"}"#,
        r#"{"type":"ping","t":1}"#,
        r#"{"type":"Hello","versions":["0.1"],"role":"consumer"}"#,
        r#"{"type":5}"#,
        "{}",
        "[]",
        "5",
        "{",
        "",
        "no json",
    ] {
        expect_refused(&relay, first, "hello-required");
    }
    assert_eq!(relay.count("sessions"), 0);
}

#[test]
fn a_hello_needs_a_common_version_first() {
    let relay = Relay::plain();
    for versions in [r#"["0.2"]"#, "[]", r#"["1.0","0.10",""]"#, r#"["0.1 "]"#] {
        let error =
            expect_refused(&relay, &hello(&format!(r#""versions":{versions},"role":"nobody""#)), "version-unsupported");
        assert_eq!(error["versions"], json!(["0.1"]));
    }
    for missing in [
        r#""role":"consumer""#,
        r#""versions":null,"role":"consumer""#,
        r#""versions":"0.1","role":"consumer""#,
        r#""versions":[0.1],"role":"consumer""#,
    ] {
        expect_refused(&relay, &hello(missing), "version-unsupported");
    }
}

#[test]
fn a_hello_needs_a_role_and_an_agent_to_go_with_it() {
    let relay = Relay::plain();
    for members in [
        r#""role":"observer""#,
        r#""role":"Consumer""#,
        r#""role":null"#,
        r#""role":["consumer"]"#,
        r#""identity":{"agent":"coder"}"#,
        r#""role":"emitter""#,
        r#""role":"both","identity":null"#,
        r#""role":"both","identity":{}"#,
        r#""role":"emitter","identity":{"agent":null}"#,
        r#""role":"emitter","identity":{"agent":5}"#,
        r#""role":"emitter","identity":"coder""#,
    ] {
        expect_refused(&relay, &hello(&format!(r#""versions":["0.1"],{members}"#)), "invalid-hello");
    }
}

#[test]
fn an_oversize_hello_is_refused() {
    let relay = Relay::plain();
    let padded = |length: usize| {
        let bare = hello(r#""versions":["0.1"],"role":"consumer","capabilities":"""#);
        bare.replace(r#""""#, &format!(r#""{}""#, "x".repeat(length - bare.len())))
    };
    let mut socket = Ws::connect(&relay);
    socket.text(padded(64 * 1024));
    assert_eq!(socket.json()["type"], "hello");
    expect_refused(&relay, &padded(64 * 1024 + 1), "invalid-hello");
}

#[test]
fn no_hello_in_time_is_refused() {
    let relay = Relay::start(|options| {
        options.env("AEP_HELLO_TIME", 1);
    });
    let mut silent = Ws::connect(&relay);
    let mut slow = Ws::connect(&relay);
    slow.frame(false, opcode::TEXT, b"{");
    slow.frame(true, opcode::PING, b"");
    assert_eq!(slow.recv().opcode, opcode::PONG, "a ping is answered, and buys no time");
    for socket in [&mut silent, &mut slow] {
        socket.expect_error("hello-required");
        socket.expect_close(1008);
    }
    let mut in_time = Ws::hello(&relay, "consumer", "watcher");
    in_time.subscribe("s", "");
    let mut later = Sse::open(&relay, "/stream");
    silent = Ws::connect(&relay);
    silent.expect_error("hello-required");
    let sent = event("s", 1).build();
    relay.publish(&[&sent]);
    in_time.expect(&[&sent]);
    later.expect(&[&sent]);
}

#[test]
fn a_client_need_not_wait_for_any_answer() {
    // On one core an answer may be there before its question has been put; on several it travels.
    for cores in [1, 2, 4] {
        let relay = Relay::start(|options| {
            options.env("AEP_CORES", cores);
        });
        pipeline(&relay);
    }
}

#[track_caller]
fn pipeline(relay: &Relay) {
    let sent = event("s", 1).build();
    let mut bytes = upgrade_request(relay, &[]);
    for text in [
        &hello(r#""versions":["0.1"],"role":"both","identity":{"agent":"coder"}"#),
        r#"{"type":"subscribe","id":"a"}"#,
        r#"{"type":"subscribe","id":"a"}"#,
        "oops",
        r#"{"type":"ping","t":[1]}"#,
        r#"{"type":"unsubscribe","id":"a"}"#,
        &sent,
        r#"{"type":"roster","id":"r"}"#,
        r#"{"type":"ping","t":2}"#,
    ] {
        bytes.extend(frame_bytes(true, opcode::TEXT, text.as_bytes()));
    }
    let mut http = Http::connect(relay);
    http.send(bytes);
    let mut socket = Ws::accept(http);
    let types: Vec<String> = (0..8).map(|_| socket.json()["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(types, ["hello", "subscribed", "error", "error", "pong", "unsubscribed", "roster", "pong"]);
}

// ── events ──

#[test]
fn events_travel_byte_for_byte_between_the_bindings() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let mut socket = Ws::hello(&relay, "both", "coder");
    socket.subscribe("s", "");
    for sent in [
        event("s", 1).data(r#"{"n":[1e400,-0,9223372036854775808],"t":"\ud800\u0000\/"}"#).build(),
        event("a\nb", 2).join(" : ", " , "),
        agent_event("agent.idle").build(),
        unplaced("attention.routed", "s").build(),
        event("s", 3).data(&format!(r#"{{"p":"{}"}}"#, "é".repeat(40_000))).build(),
    ] {
        socket.text(&sent);
        assert_eq!(socket.message(), sent, "a connection's own events come back to it");
        assert_eq!(stream.event(), sent);
        relay.publish(&[&sent]);
        assert_eq!(socket.message(), sent);
        assert_eq!(stream.event(), sent);
    }
    let broken = event("s", 9);
    socket.text(format!("\n {}\r\n", broken.join(":\n", "\r\n,\t")));
    assert_eq!(socket.message(), broken.build());
    assert_eq!(stream.event(), broken.build());
    let padded = event("s", 10).join(": ", ", ");
    socket.text(format!("  {padded}\t"));
    assert_eq!(socket.message(), padded);
}

#[test]
fn every_role_may_publish() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    for (role, seq) in [("consumer", 1), ("emitter", 2), ("both", 3)] {
        let sent = event("s", seq).build();
        Ws::hello(&relay, role, "coder").text(&sent);
        stream.expect(&[&sent]);
    }
}

#[test]
fn an_invalid_event_is_answered_and_the_connection_survives() {
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "both", "coder");
    socket.subscribe("s", "");
    for invalid in [
        event("s", 1).id("x1").field("seq", "-1"),
        event("s", 1).id("x1").without("agent"),
        event("s", 1).id("x1").kind("banana.peeled"),
        event("s", 1).id("x1").kind(".").without("session"),
        event("s", 1).id("x1").kind("tool.Completed"),
        event("s", 1).id("x1").field("data", "null"),
        command("control.cancel", "s").id("x1").field("seq", "1"),
    ] {
        socket.text(invalid.build());
        let error = socket.expect_error("invalid-event");
        assert_eq!(error["cause"], "x1", "{error}");
    }
    for invalid in [event("s", 1).without("id"), event("s", 1).field("id", "7"), event("s", 1).field("id", "\"\"")] {
        socket.text(invalid.build());
        let error = socket.expect_error("invalid-event");
        assert!(!error["cause"].is_number() && error["cause"] != json!({}), "{error}");
    }
    let repeated = event("s", 1).id("x1").build().replacen('{', r#"{"seq":2,"#, 1);
    socket.text(repeated);
    assert_eq!(socket.expect_error("invalid-event")["cause"], "x1");
    for text in [
        "",
        "{",
        "[]",
        "5",
        "null",
        "\"text\"",
        "{} {}",
        "\u{feff}{}",
        "{\"type\":\"tool.x\"",
        "{\"a\":\"\u{1}\"}",
        "{'a':1}",
        "\0",
    ] {
        socket.text(text);
        socket.expect_error("invalid-json");
    }
    for deep in ["[".repeat(100_000), format!("{{\"type\":\"tool.x\",\"data\":{}", "{\"x\":".repeat(100_000))] {
        socket.text(deep);
        socket.expect_error("invalid-json");
    }
    socket.sync();
    assert_eq!(relay.count("sessions"), 0);
}

#[test]
fn unknown_frames_are_ignored() {
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "both", "coder");
    for ignored in [
        r#"{"type":"unknown"}"#,
        r#"{"type":"unknown-too","id":"x"}"#,
        r#"{"type":""}"#,
        r#"{"type":5}"#,
        r#"{"type":null}"#,
        r#"{"type":["ping"]}"#,
        r#"{"id":"x"}"#,
        "{}",
        r#"{"type":"hello","versions":["7"],"role":"nobody"}"#,
        r#"{"type":"pong","t":1}"#,
        r#"{"type":"closing","reason":"x"}"#,
        r#"{"type":"error","code":"x"}"#,
        r#"{"type":"subscribed","id":"x"}"#,
        r#"{"type":"unsubscribed","id":"x"}"#,
        r#"{"type":"replay-exhausted","sub":"x"}"#,
        r#"{"type":"dropped","count":1}"#,
        r#"{"type":"PING","t":1}"#,
    ] {
        socket.text(ignored);
        socket.sync();
    }
}

#[test]
fn a_ping_brings_back_whatever_it_carried() {
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    for t in
        ["1", "\"text \\u00e9\"", "null", "{\"a\":[1,2,{}]}", "12345678901234567890", "1.50", "true", "\"\\ud800\""]
    {
        socket.text(format!(r#"{{"type":"ping","t":{t}}}"#));
        assert_eq!(socket.message(), format!(r#"{{"type":"pong","t":{t}}}"#));
    }
}

// ── subscriptions ──

#[test]
fn every_subscribe_gets_exactly_one_answer() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_SUBSCRIPTIONS", 3).env("AEP_MAX_FROM", 2);
    });
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    socket.subscribe("a", r#""filter":{"session":"a"},"from":"all","capture":"full","unknown":[1]"#);
    socket.subscribe("b ü \\\"", r#""filter":{"session":"b"},"from":[]"#);
    let three = r#"[{"session":"a","seq":1},{"session":"b","seq":1},{"session":"c","seq":1}]"#;
    for (members, id, code) in [
        (r#""id":"a""#, Some("a"), "invalid-filter"),
        (r#""id":"c","filter":[]"#, Some("c"), "invalid-filter"),
        (r#""id":"c","filter":{"seq":1}"#, Some("c"), "invalid-filter"),
        (r#""id":"c","from":"x""#, Some("c"), "invalid-filter"),
        (r#""id":"c","from":{}"#, Some("c"), "invalid-filter"),
        (r#""id":"c","from":5"#, Some("c"), "invalid-filter"),
        (r#""id":"c","from":[{"session":"s"}]"#, Some("c"), "invalid-filter"),
        (r#""id":"c","from":[{"session":"s","seq":-1}]"#, Some("c"), "invalid-filter"),
        (r#""id":"c","from":[null]"#, Some("c"), "invalid-filter"),
        (r#""id":"c","capture":"all""#, Some("c"), "invalid-filter"),
        (r#""id":"c","capture":5"#, Some("c"), "invalid-filter"),
        (&format!(r#""id":"c","from":{three}"#), Some("c"), "limit-exceeded"),
        (r#""id":"""#, None, "invalid-filter"),
        (r#""id":7"#, None, "invalid-filter"),
        (r#""id":null"#, None, "invalid-filter"),
        (r#""filter":{}"#, None, "invalid-filter"),
    ] {
        socket.text(format!(r#"{{"type":"subscribe",{members}}}"#));
        let error = socket.expect_error(code);
        if let Some(id) = id {
            assert_eq!(error["id"], id, "{members}");
        }
        if code == "limit-exceeded" {
            assert!(error["detail"].as_str().unwrap().contains("AEP_MAX_FROM"), "{error}");
        }
    }
    socket.subscribe("c", "");
    socket.text(r#"{"type":"subscribe","id":"d"}"#);
    let error = socket.expect_error("limit-exceeded");
    assert_eq!(error["id"], "d");
    assert!(error["detail"].as_str().unwrap().contains("AEP_MAX_SUBSCRIPTIONS"), "{error}");
    assert_eq!(relay.count("subscribers"), 3);
    for id in ["c", "c", "never"] {
        socket.text(json!({"type": "unsubscribe", "id": id}).to_string());
        assert_eq!(socket.json(), json!({"type": "unsubscribed", "id": id}));
    }
    socket.subscribe("c", r#""filter":{"session":"c"}"#);
    let sent = ["a", "b", "c"].map(|session| event(session, 1).build());
    for line in &sent {
        relay.publish(&[line]);
        socket.expect(&[line]);
    }
}

#[test]
fn an_emitter_does_not_subscribe() {
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "emitter", "coder");
    socket.text(r#"{"type":"subscribe","id":"s"}"#);
    assert_eq!(socket.expect_error("unauthorized")["id"], "s");
    socket.text(event("s", 1).build());
    socket.sync();
    assert_eq!(relay.count("subscribers"), 0);
}

#[test]
fn replay_comes_behind_subscribed_and_before_live() {
    let relay = Relay::start(|options| {
        options.env("AEP_BUFFER", 3);
    });
    let mut events: Vec<String> = (1..=5).map(|seq| event("s", seq).build()).collect();
    relay.publish(&events);
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    socket.subscribe("gap", r#""from":[{"session":"s","epoch":0,"seq":1}]"#);
    assert_eq!(
        socket.json(),
        json!({"type": "replay-exhausted", "sub": "gap", "session": "s", "earliest": {"epoch": 0, "seq": 3}})
    );
    socket.expect(&events[2..]);
    socket.sync();

    let mut other = Ws::hello(&relay, "consumer", "watcher");
    other.subscribe("no-gap", r#""from":[{"session":"s","seq":2}]"#);
    other.expect(&events[2..]);
    let mut all = Ws::hello(&relay, "consumer", "watcher");
    all.subscribe("all", r#""from":"all""#);
    all.expect(&events[2..]);
    let mut none = Ws::hello(&relay, "consumer", "watcher");
    none.subscribe("live", r#""from":[]"#);
    none.sync();

    events.push(event("s", 6).build());
    relay.publish(&events[5..]);
    for socket in [&mut socket, &mut other, &mut all, &mut none] {
        socket.expect(&events[5..]);
    }
}

#[test]
fn an_unsubscribed_filter_is_silent() {
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    socket.subscribe("a", r#""filter":{"agent":"one"}"#);
    socket.subscribe("b", r#""filter":{"agent":"two"}"#);
    socket.text(r#"{"type":"unsubscribe","id":"a"}"#);
    assert_eq!(socket.json(), json!({"type": "unsubscribed", "id": "a"}));
    let sent = [event("s", 1).agent("one").build(), event("s", 2).agent("two").build()];
    relay.publish(&sent);
    socket.expect(&sent[1..]);
    socket.sync();
}

#[test]
fn an_event_for_several_subscriptions_comes_once_at_the_highest_ceiling() {
    let relay = Relay::plain();
    let full = event("s", 1).kind("run.started").capture("full").data(r#"{"prompt":"x","k":1}"#);
    let metadata = full.clone().capture("metadata").data(r#"{"k":1}"#).build();
    let none = full.clone().capture("none").without("data").build();
    for (ceilings, expected) in [
        (&["none"][..], &none),
        (&["none", "metadata"], &metadata),
        (&["metadata", "none"], &metadata),
        (&["none", "redacted", "metadata"], &metadata),
        (&["metadata", "full", "none"], &full.build()),
    ] {
        let mut socket = Ws::hello(&relay, "consumer", "watcher");
        for (index, ceiling) in ceilings.iter().enumerate() {
            socket.subscribe(&index.to_string(), &format!(r#""filter":{{"session":"s"}},"capture":"{ceiling}""#));
        }
        socket.subscribe("other", r#""filter":{"session":"t"}"#);
        let marker = event("s", 2).build();
        let lowest_marker =
            if ceilings == ["none"] { marker.replace('}', r#","capture":"none"}"#) } else { marker.clone() };
        relay.publish(&[&full.build(), &marker]);
        socket.expect(&[expected, &lowest_marker]);
        socket.sync();
    }
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    socket.subscribe("low", r#""capture":"none""#);
    socket.subscribe("open", r#""filter":{"agent":"coder"}"#);
    relay.publish(&[full.build()]);
    socket.expect(&[full.build()]);
    socket.sync();
}

#[test]
fn what_another_subscription_delivered_is_not_replayed_again() {
    let relay = Relay::plain();
    let events: Vec<String> =
        (1..=6).map(|seq| event("s", seq).agent(if seq % 2 == 0 { "even" } else { "odd" }).build()).collect();
    relay.publish(&events[..4]);
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    socket.subscribe("even", r#""filter":{"agent":"even"},"from":"all""#);
    socket.expect(&[&events[1], &events[3]]);
    socket.subscribe("all", r#""from":"all""#);
    socket.expect(&[&events[0], &events[2]]);
    socket.subscribe("again", r#""from":[{"session":"s","seq":0}]"#);
    relay.publish(&events[4..]);
    socket.expect(&events[4..]);
    socket.sync();
}

#[test]
fn subscriptions_asked_for_at_once_share_one_replay() {
    let relay = Relay::plain();
    let events: Vec<String> = (1..=300).map(|seq| event("s", seq).build()).collect();
    relay.publish(&events);
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    let asked: Vec<u8> = (0..20)
        .flat_map(|n| {
            let text = format!(r#"{{"type":"subscribe","id":"{n}","from":"all"}}"#);
            frame_bytes(true, opcode::TEXT, text.as_bytes())
        })
        .collect();
    socket.send(asked);
    let (mut answers, mut delivered) = (Vec::new(), Vec::new());
    while answers.len() < 20 || delivered.len() < events.len() {
        let text = socket.message();
        if text.starts_with(r#"{"type":"subscribed""#) { answers.push(text) } else { delivered.push(text) }
    }
    let expected: Vec<String> = (0..20).map(|n| format!(r#"{{"type":"subscribed","id":"{n}"}}"#)).collect();
    assert_eq!(answers, expected, "answered in order");
    assert_eq!(delivered, events, "each event once, in order");
    socket.sync();
}

#[test]
fn an_unsubscribe_ends_a_replay_under_way() {
    let relay = Relay::plain();
    let padding = format!(r#"{{"p":"{}"}}"#, "x".repeat(10_000));
    let events: Vec<String> = (1..=1500).map(|seq| event("s", seq).data(&padding).build()).collect();
    relay.publish(&events);
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    socket.subscribe("s", r#""from":"all""#);
    socket.expect(&events[..1]);
    socket.text(r#"{"type":"unsubscribe","id":"s"}"#);
    let mut delivered = 1;
    loop {
        let text = socket.message();
        if text == r#"{"type":"unsubscribed","id":"s"}"# {
            break;
        }
        assert!(text == events[delivered], "event {delivered}");
        delivered += 1;
    }
    let later = event("s", 9999).build();
    relay.publish(&[&later]);
    socket.sync();
    socket.subscribe("s", r#""filter":{"id":"none"},"from":"all""#);
    socket.sync();
}

#[test]
fn a_close_behind_a_subscription_is_answered() {
    let relay = Relay::plain();
    relay.publish(&(1..=500).map(|seq| event("s", seq).build()).collect::<Vec<_>>());
    for from in ["[]", "\"all\""] {
        let mut socket = Ws::hello(&relay, "consumer", "watcher");
        let subscribe = format!(r#"{{"type":"subscribe","id":"s","from":{from}}}"#);
        let close = frame_bytes(true, opcode::CLOSE, &1000_u16.to_be_bytes());
        socket.send([frame_bytes(true, opcode::TEXT, subscribe.as_bytes()), close].concat());
        while socket.recv().opcode != opcode::CLOSE {}
        socket.expect_end();
    }
    wait_until("the subscriptions are forgotten", || relay.count("subscribers") == 0);
}

#[test]
fn many_subscriptions_of_one_connection_are_allowed_up_to_the_limit() {
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    for first in (0..4096).step_by(256) {
        for n in first..first + 256 {
            socket.text(format!(r#"{{"type":"subscribe","id":"{n}","filter":{{"session":"s{n}"}}}}"#));
        }
        for n in first..first + 256 {
            assert_eq!(socket.json()["id"], n.to_string());
        }
    }
    socket.text(r#"{"type":"subscribe","id":"more"}"#);
    assert_eq!(socket.expect_error("limit-exceeded")["id"], "more");
    let sent = event("s4095", 1).build();
    relay.publish(&[&sent]);
    socket.expect(&[&sent]);
    drop(socket);
    wait_until("all of them are forgotten", || relay.count("subscribers") == 0);
}

#[test]
fn a_subscription_is_known_by_its_name_among_few_and_among_many() {
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    let subscribe = |n: usize| format!(r#"{{"type":"subscribe","id":"{n}","filter":{{"session":"s{n}"}}}}"#);
    let unsubscribe = |n: usize| format!(r#"{{"type":"unsubscribe","id":"{n}"}}"#);
    for _round in 0..2 {
        for n in 0..20 {
            socket.text(subscribe(n));
            assert_eq!(socket.json()["type"], "subscribed");
            for known in [0, n / 2, n] {
                socket.text(subscribe(known));
                assert_eq!(socket.expect_error("invalid-filter")["id"], known.to_string());
            }
        }
        for n in (0..20).rev() {
            socket.text(unsubscribe(n));
            let answer = socket.json();
            assert_eq!((&answer["type"], &answer["id"]), (&"unsubscribed".into(), &n.to_string().into()));
        }
    }
    relay.publish(&[&event("s3", 1).build()]);
    socket.text(r#"{"type":"ping","t":1}"#);
    assert_eq!(socket.json()["type"], "pong", "nothing is delivered to a name that was given up");
}
