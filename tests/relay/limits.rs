//! Every bound a peer can reach, under, at and over it: what it sees there, and that the others see nothing of it
//! (contract §1, §4, §6). Bounds of body, batch, head and their times have their tests in `http` and `http_framing`.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::*;
use serde_json::{Value, json};

/// A request that needs a place of its connection.
const DISCOVERY: &str = "GET /events HTTP/1.1\r\nHost: r\r\n\r\n";
const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: r\r\n\r\n";

/// A fresh connection is served.
fn is_served(relay: &Relay) -> bool {
    let mut http = Http::connect(relay);
    // The relay may have refused and ended the connection before our request was written.
    http.send_if_open(DISCOVERY);
    http.response().status == 200
}

/// That it has reached a limit is in its log, once, however often it has.
fn expect_said_once(relay: &Relay, said: &str) {
    wait_until(said, || relay.stderr().contains(said));
    assert_eq!(relay.stderr().matches(said).count(), 1, "{}", relay.stderr());
}

/// A filter on one attribute with that many values, all of them different.
fn values(prefix: &str, count: usize) -> String {
    let values: Vec<String> = (0..count).map(|index| format!("\"{prefix}{index}\"")).collect();
    format!(r#"{{"agent":[{}]}}"#, values.join(","))
}

// ── connections ──

#[test]
fn one_connection_too_many_is_told_to_come_back() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_CONNECTIONS", 4);
    });
    // All three kinds count.
    let mut stream = Sse::open(&relay, "/stream");
    let mut ws = Ws::consumer(&relay, "{}");
    let mut kept: Vec<Http> = (0..2).map(|_| Http::connect(&relay)).collect();
    for http in &mut kept {
        http.expect_alive();
    }
    for _ in 0..10 {
        let mut refused = Http::connect(&relay);
        refused.send_if_open(DISCOVERY);
        let answer = refused.response();
        answer.expect_refusal(503, "busy");
        let seconds = answer.field("retry-after").expect("when to come back");
        assert!(seconds.parse::<u32>().is_ok_and(|seconds| seconds > 0), "{seconds:?}");
        assert!(answer.closes(), "{answer:?}");
        refused.expect_gone();
    }
    // Those who were first are untouched.
    let sent = [event("s", 1).build()];
    kept[0].send(request("POST", "/events", &[("Content-Type", "application/json")], sent[0].as_bytes()));
    kept[0].response().expect(202, r#"{"accepted":1}"#);
    stream.expect(&sent);
    ws.expect(&sent);
    // One leaves, another is served.
    drop(kept.pop());
    wait_until("a place is free", || is_served(&relay));
}

/// Every refusal answers, however many come at once, and is not taken away again by a reset.
#[test]
fn hundreds_too_many_at_once_are_all_told_to_come_back() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_CONNECTIONS", 4).env("AEP_CORES", 1);
    });
    let mut kept: Vec<Http> = (0..4).map(|_| Http::connect(&relay)).collect();
    for http in &mut kept {
        http.expect_alive();
    }
    let post = request("POST", "/events", &[("Content-Type", "application/json")], &[b' '; 4000]);
    let mut crowd: Vec<Http> = (0..600)
        .map(|index| {
            let mut http = Http::connect(&relay);
            // Refused before the request was written, some clients cannot write it: their answer is there all the same.
            let _ = if index % 2 == 0 { http.send_if_open(DISCOVERY) } else { http.send_if_open(&post) };
            http
        })
        .collect();
    for http in &mut crowd {
        let answer = http.response();
        answer.expect_refusal(503, "busy");
        assert!(answer.closes(), "{answer:?}");
        http.expect_end();
        let error = http.stream().take_error().unwrap();
        assert!(error.is_none(), "a reset behind the answer: {error:?}");
    }
    for http in &mut kept {
        http.expect_alive();
    }
}

#[test]
fn running_out_of_descriptors_stops_nobody_for_good() {
    let relay = Relay::start(|options| {
        options.descriptors(64).env("AEP_MAX_CONNECTIONS", 10_000);
    });
    let mut stream = Sse::open(&relay, "/stream");
    let mut publisher = Http::connect(&relay);
    publisher.expect_alive();

    for round in 1..=3 {
        let mut crowd: Vec<Http> = (0..120).map(|_| Http::connect(&relay)).collect();
        for http in &mut crowd {
            http.send_if_open(DISCOVERY);
        }
        // Who is connected goes on as if nothing were.
        let sent = [event("s", round).build()];
        publisher.send(request("POST", "/events", &[("Content-Type", "application/json")], sent[0].as_bytes()));
        publisher.response().expect(202, r#"{"accepted":1}"#);
        stream.expect(&sent);
        // The first of the crowd are served, the others refused: each gets its answer, although nobody leaves.
        let mut served = 0;
        for http in &mut crowd {
            let answer = http.response();
            assert!(matches!(answer.status, 200 | 503), "{answer:?}");
            served += usize::from(answer.status == 200);
        }
        assert!(served > 0, "nobody of the crowd was served");
        drop(crowd);
        wait_until("everybody is served again", || is_served(&relay));
    }
    for _ in 0..20 {
        assert!(is_served(&relay));
    }
}

/// It is asked how it is when it is full, by whom it knows nothing of before: there are places and descriptors for
/// that.
#[test]
fn a_full_relay_can_be_watched() {
    for descriptors in [false, true] {
        let relay = Relay::start(|options| {
            options.env("AEP_CORES", 1).token("secret");
            if descriptors {
                options.descriptors(40).env("AEP_MAX_CONNECTIONS", 10_000);
            } else {
                options.env("AEP_MAX_CONNECTIONS", 4);
            }
        });
        // More than there are guests at a time; none of them leaves, or asks for anything.
        let crowd: Vec<Http> = (0..400).map(|_| Http::connect(&relay)).collect();
        for _ in 0..20 {
            let (mut http, health) = Http::exchange(&relay, HEALTH);
            health.expect(200, r#"{"ok":true}"#);
            assert!(health.closes(), "{health:?}");
            http.expect_end();
            let metrics = relay.get("/metrics");
            assert_eq!(metrics.status, 200);
            assert!(metrics.text().contains("aep_relay_connections"));
            assert_eq!(relay.request("HEAD", "/healthz", &[], b"").status, 200);
            let (_, unauthorized) = Http::exchange(&relay, "GET /metrics HTTP/1.1\r\nHost: r\r\n\r\n");
            unauthorized.expect(401, r#"{"error":"unauthorized"}"#);
        }
        // Whatever else is asked for, and whoever asks for nothing, is told to come back.
        Http::exchange(&relay, DISCOVERY).1.expect_refusal(503, "busy");
        Http::connect(&relay).response().expect_refusal(503, "busy");
        drop(crowd);
        let said = if descriptors { "out of file descriptors" } else { "AEP_MAX_CONNECTIONS is reached" };
        expect_said_once(&relay, said);
    }
}

// ── subscriptions ──

#[test]
fn resume_positions_are_bounded_by_the_number_of_sessions() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_SESSIONS", 3);
    });
    let positions = |count: usize| {
        let positions: Vec<Value> = (0..count).map(|n| json!({"session": format!("s{n}"), "seq": 1})).collect();
        Value::from(positions).to_string()
    };
    let mut ws = Ws::hello(&relay, "consumer", "watcher");
    for count in [2, 3] {
        Sse::subscribe(&relay, &[("from", &positions(count))]);
        ws.subscribe(&format!("at-{count}"), &format!(r#""from":{}"#, positions(count)));
    }
    let refusal = relay.get(&query("/stream", &[("from", &positions(4))])).expect_refusal(400, "limit-exceeded");
    assert!(refusal["detail"].as_str().unwrap().contains("AEP_MAX_FROM"), "{refusal}");
    ws.text(format!(r#"{{"type":"subscribe","id":"over","from":{}}}"#, positions(4)));
    let refusal = ws.expect_error("limit-exceeded");
    assert_eq!(refusal["id"], "over");
    assert!(refusal["detail"].as_str().unwrap().contains("AEP_MAX_FROM"), "{refusal}");
    // The connection and its other subscriptions go on.
    let sent = [event("s0", 2).build()];
    relay.publish(&sent);
    ws.expect(&sent);
}

#[test]
fn subscriptions_of_one_connection_are_bounded() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_SUBSCRIPTIONS", 3);
    });
    let mut ws = Ws::hello(&relay, "consumer", "watcher");
    for id in ["a", "b", "c"] {
        ws.subscribe(id, &format!(r#""filter":{{"agent":"{id}"}}"#));
    }
    for _ in 0..3 {
        ws.text(r#"{"type":"subscribe","id":"d"}"#);
        let refusal = ws.expect_error("limit-exceeded");
        assert_eq!(refusal["id"], "d");
        assert!(refusal["detail"].as_str().unwrap().contains("AEP_MAX_SUBSCRIPTIONS"), "{refusal}");
    }
    ws.text(r#"{"type":"unsubscribe","id":"b"}"#);
    assert_eq!(ws.json(), json!({"type": "unsubscribed", "id": "b"}));
    ws.subscribe("d", r#""filter":{"agent":"d"}"#);
    // Another connection has its own count.
    Ws::consumer(&relay, "{}");
    let sent = ["a", "b", "c", "d"].map(|agent| event("s", 1).agent(agent).build());
    relay.publish(&sent);
    ws.expect(&[&sent[0], &sent[2], &sent[3]]);
}

#[test]
fn scalars_of_one_filter_are_bounded() {
    let relay = Relay::plain();
    let over = |detail: &Value| detail["detail"].as_str().is_some_and(|text| text.contains("AEP_MAX_SCALARS"));
    let mut ws = Ws::hello(&relay, "consumer", "watcher");
    for count in [1, 255, 256, 1024] {
        let filter = values("a", count);
        let mut stream = Sse::subscribe(&relay, &[("filter", &filter)]);
        ws.subscribe(&format!("s{count}"), &format!(r#""filter":{filter}"#));
        let (last, foreign) = (format!("a{}", count - 1), format!("a{count}"));
        let sent = [event("s", 1).agent(&last).build()];
        relay.publish(&[&event("s", 1).agent(&foreign).build(), &sent[0]]);
        stream.expect(&sent);
        // The filter of 256 lets the foreign agent of 255 pass, and so on: one connection with many subscriptions.
        while ws.message() != sent[0] {}
    }
    for count in [1025, 3000] {
        let filter = values("a", count);
        let refusal = relay.get(&query("/stream", &[("filter", &filter)])).expect_refusal(400, "limit-exceeded");
        assert!(over(&refusal), "{refusal}");
        ws.text(format!(r#"{{"type":"subscribe","id":"over","filter":{filter}}}"#));
        let refusal = ws.expect_error("limit-exceeded");
        assert!(over(&refusal), "{refusal}");
    }
    // Scalars of all members count together, whatever they are.
    let mixed = r#"{"agent":["a","b"],"severity":{"gte":"info","lte":"error"},"step":["x","y"],"attempt":[1,true]}"#;
    let tight = Relay::start(|options| {
        options.env("AEP_MAX_SCALARS", 8);
    });
    Sse::subscribe(&tight, &[("filter", mixed)]);
    let tighter = Relay::start(|options| {
        options.env("AEP_MAX_SCALARS", 7);
    });
    tighter.get(&query("/stream", &[("filter", mixed)])).expect_refusal(400, "limit-exceeded");
}

/// Harm prevented: visitors that name endless things to watch fill the memory and slow every publisher.
#[test]
fn a_hundred_thousand_watched_values_cost_their_room_and_give_it_back() {
    const CONNECTIONS: usize = 100;
    // What the relay gives back is measured, not what the allocator keeps of it for later.
    let relay = Relay::start(|options| {
        options.env("MALLOC_ARENA_MAX", 1).env("MALLOC_TRIM_THRESHOLD_", 1 << 17);
    });
    let mut sizes = Vec::new();
    for _ in 0..8 {
        let mut watchers: Vec<Ws> =
            (0..CONNECTIONS).map(|index| Ws::consumer(&relay, &values(&format!("c{index}v"), 1000))).collect();
        let sent: Vec<String> =
            (0..CONNECTIONS).map(|index| event("s", 1).agent(&format!("c{index}v{}", index * 7)).build()).collect();
        relay.publish(&sent);
        for (ws, event) in watchers.iter_mut().zip(&sent) {
            ws.expect(&[event]);
            ws.sync();
        }
        drop(watchers);
        wait_until("the watchers are forgotten", || relay.count("subscribers") == 0);
        sizes.push(relay.resident_kib());
    }
    // What is not given back adds up over the rounds, ten MiB each; what the allocator happens to keep comes and goes.
    let (early, late) = sizes.split_at(4);
    let growth = late.iter().min().unwrap().saturating_sub(*early.iter().max().unwrap());
    assert!(growth < 4 << 10, "resident memory after each round, in KiB: {sizes:?}");
}

// ── claims ──

#[test]
fn over_the_claim_limit_the_oldest_claim_lapses() {
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_MAX_CLAIMS", 3);
    });
    let mut target = Ws::hello_with(&relay, "emitter", "worker", r#"{"control":{"accepts":["control.cancel"]}}"#);
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    for session in ["s1", "s2", "s3", "s4"] {
        target.text(event(session, 1).build());
    }
    target.sync();
    for (session, routed) in [("s1", false), ("s2", true), ("s3", true), ("s4", true)] {
        let command = command("control.cancel", session).build();
        sender.text(&command);
        if routed {
            target.expect(&[&command]);
        } else {
            sender.expect_error("no-route");
        }
    }
    sender.text(r#"{"type":"roster","id":"r"}"#);
    let roster = sender.json();
    let sessions: HashSet<&str> =
        roster["entries"].as_array().unwrap().iter().map(|entry| entry["session"].as_str().unwrap()).collect();
    assert_eq!(sessions, HashSet::from(["s2", "s3", "s4"]));
}

#[test]
fn the_names_of_claimed_sessions_are_bounded_in_bytes() {
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    let mut target = Ws::hello_with(&relay, "emitter", "worker", r#"{"control":{"accepts":["control.cancel"]}}"#);
    let name = |index: u64| format!("{index}{}", "x".repeat(1 << 20));
    for index in 0..20 {
        target.text(event(&name(index), 1).build());
    }
    target.sync();
    let mut sender = Ws::hello(&relay, "consumer", "sender");
    for index in 0..20 {
        let command = command("control.cancel", &name(index)).build();
        sender.text(&command);
        // Of 16 MiB the latest stand.
        if index < 5 {
            sender.expect_error("no-route");
        } else {
            target.expect(&[&command]);
        }
    }
    // Names that long are in no roster, which says so.
    sender.text(r#"{"type":"roster","id":"r"}"#);
    let roster = sender.json();
    assert_eq!((&roster["entries"], &roster["truncated"]), (&json!([]), &json!(true)));
}

// ── what a connection makes the relay remember, and tell ──

#[test]
fn the_subscriptions_of_one_connection_are_bounded_in_bytes() {
    let relay = Relay::plain();
    let mut ws = Ws::hello(&relay, "consumer", "watcher");
    let long = "x".repeat(1 << 20);
    for members in [
        format!(r#""filter":{{"agent":"{long}"}}"#),
        format!(r#""filter":{{"agent":"a"}},"from":[{{"session":"{long}","seq":1}}]"#),
    ] {
        for index in 0..15 {
            ws.subscribe(&format!("s{index}"), &members);
        }
        ws.text(format!(r#"{{"type":"subscribe","id":"over",{members}}}"#));
        let error = ws.expect_error("limit-exceeded");
        assert!(error["detail"].as_str().unwrap().contains("16777216 bytes"), "{error}");
        // What an ended one held is free again.
        ws.text(r#"{"type":"unsubscribe","id":"s3"}"#);
        ws.json();
        ws.subscribe("over", &members);
        for id in (0..15).filter(|index| *index != 3).map(|index| format!("s{index}")).chain(["over".to_owned()]) {
            ws.text(format!(r#"{{"type":"unsubscribe","id":"{id}"}}"#));
            ws.json();
        }
    }
}

#[test]
fn what_all_connections_subscribe_to_and_claim_is_bounded_in_bytes() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", 65_536).env("AEP_SUBSCRIPTION_BYTES", 131_072);
    });
    let filter = |agent: &str| format!(r#""filter":{{"agent":"{}"}}"#, agent.repeat(60_000));
    let mut first = Ws::hello(&relay, "consumer", "first");
    let mut second = Ws::hello(&relay, "both", "second");
    first.subscribe("one", &filter("x"));
    second.subscribe("two", &filter("y"));
    // Nobody's third fits, while a small one does.
    for ws in [&mut first, &mut second] {
        ws.text(format!(r#"{{"type":"subscribe","id":"over",{}}}"#, filter("z")));
        let error = ws.expect_error("limit-exceeded");
        assert!(error["detail"].as_str().unwrap().contains("AEP_SUBSCRIPTION_BYTES"), "{error}");
    }
    let refused = relay.get(&query("/stream", &[("filter", &format!(r#"{{"agent":"{}"}}"#, "z".repeat(60_000)))]));
    refused.expect_refusal(503, "busy");
    assert!(refused.field("retry-after").is_some() && !refused.closes(), "{refused:?}");
    expect_said_once(&relay, "AEP_SUBSCRIPTION_BYTES is reached");
    // Claims count too: over the bound only the newest stands.
    for name in ["s1", "s2", &"n".repeat(20_000), "s3"] {
        second.text(event(name, 1).build());
    }
    second.sync();
    first.text(r#"{"type":"roster","id":"r"}"#);
    let roster = first.json();
    let claimed = roster["entries"].as_array().unwrap().iter().map(|entry| entry["session"].as_str().unwrap());
    assert_eq!(claimed.collect::<Vec<_>>(), ["s3"]);
    // What is given up makes room.
    first.text(r#"{"type":"unsubscribe","id":"one"}"#);
    first.json();
    first.subscribe("again", &filter("z"));
}

#[test]
fn of_a_roster_too_large_to_be_told_who_has_most_loses_entries_and_nobody_else() {
    const CLAIMS: u64 = 300;
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", 65_536);
    });
    let mut small = Ws::hello(&relay, "both", "small");
    small.text(event("the only one", 1).build());
    small.sync();
    let mut large = Ws::hello(&relay, "both", "large");
    let long = |claim: u64| format!("{claim}-{}", "x".repeat(1000));
    for claim in 0..CLAIMS {
        large.text(event(&long(claim), 1).build());
    }
    large.sync();

    for asker in [&mut small, &mut large] {
        asker.text(r#"{"type":"roster","id":"r"}"#);
        let roster = asker.json();
        assert_eq!((&roster["type"], &roster["truncated"]), (&json!("roster"), &json!(true)));
        let entries = roster["entries"].as_array().unwrap();
        assert!(entries.iter().any(|entry| entry["session"] == "the only one"));
        let told: Vec<&str> = entries
            .iter()
            .filter(|entry| entry["agent"] == "large")
            .map(|entry| entry["session"].as_str().unwrap())
            .collect();
        // Half a queue of 128 KiB.
        assert!(told.len() > 50 && told.len() < 64, "{} entries", told.len());
        assert!((0..).zip(&told).all(|(claim, session)| *session == long(claim)), "the oldest are told");
    }
    let listed = relay.get("/connections").json();
    assert_eq!(listed["truncated"], json!(true));
    let sessions = |agent: &str| {
        let parties = listed["connections"].as_array().unwrap();
        parties.iter().find(|party| party["agent"] == agent).map(|party| party["sessions"].as_array().unwrap().len())
    };
    assert_eq!(sessions("small"), Some(1));
    assert!(sessions("large").is_some_and(|told| told > 50 && told < CLAIMS as usize));

    // What all fits is told whole, and says nothing.
    large.close();
    wait_until("the large one has gone", || relay.get("/connections").json().get("truncated").is_none());
    small.text(r#"{"type":"roster","id":"r"}"#);
    let roster = small.json();
    assert_eq!((roster["entries"].as_array().unwrap().len(), roster.get("truncated")), (1, None));
}

#[test]
fn large_answers_asked_for_in_one_go_come_whole_and_in_order() {
    let relay = Relay::plain();
    let mut emitter = Ws::hello(&relay, "both", "worker");
    for claim in 0..10_000 {
        emitter.text(event(&format!("{claim}-{}", "x".repeat(100)), 1).build());
    }
    emitter.sync();
    let mut http = Http::connect(&relay);
    http.send(b"GET /connections HTTP/1.1\r\nHost: relay\r\n\r\n".repeat(5));
    for _ in 0..5 {
        let listed = http.response().json();
        assert_eq!(listed["connections"][0]["sessions"].as_array().unwrap().len(), 10_000);
        assert!(listed.get("truncated").is_none());
    }
}

#[test]
fn sessions_with_very_long_names_are_not_kept_for_the_closing_frame() {
    let mut relay = Relay::plain();
    let mut alone = Ws::consumer(&relay, "{}");
    let mut several = Ws::consumer(&relay, "{}");
    several.subscribe("other", r#""filter":{"agent":"nobody"}"#);
    let events = [event(&"x".repeat(4097), 7).build(), event(&"y".repeat(4096), 8).build()];
    relay.publish(&events);
    for ws in [&mut alone, &mut several] {
        assert_eq!(HashSet::from([ws.message(), ws.message()]), HashSet::from_iter(events.clone()));
    }
    assert!(relay.term().success());
    for ws in [&mut alone, &mut several] {
        let closing = ws.json();
        let sequences: Vec<u64> =
            closing["delivered"].as_array().unwrap().iter().map(|at| at["seq"].as_u64().unwrap()).collect();
        assert_eq!(sequences, [8]);
    }
}

// ── hello ──

/// A hello of exactly so many bytes.
fn hello_of(bytes: usize) -> String {
    let hello = |padding: usize| {
        format!(
            r#"{{"type":"hello","versions":["0.1"],"role":"consumer","capabilities":{{"x":"{}"}}}}"#,
            "a".repeat(padding)
        )
    };
    hello(bytes - hello(0).len())
}

#[test]
fn a_hello_is_bounded_in_size() {
    for limit in [300, 64 << 10] {
        let relay = Relay::start(|options| {
            options.env("AEP_HELLO_BYTES", limit);
        });
        for size in [limit - 1, limit] {
            let mut ws = Ws::connect(&relay);
            ws.text(hello_of(size));
            assert_eq!(ws.json()["type"], "hello", "{size} bytes");
        }
        for size in [limit + 1, 2 * limit] {
            let mut ws = Ws::connect(&relay);
            ws.text(hello_of(size));
            ws.expect_error("invalid-hello");
            ws.expect_close(1008);
        }
        // Later messages have another bound.
        let mut ws = Ws::hello(&relay, "emitter", "coder");
        ws.text(event("s", 1).data(&format!(r#"{{"text":"{}"}}"#, "a".repeat(2 * limit))).build());
        ws.sync();
    }
}

#[test]
fn a_hello_is_bounded_in_time() {
    let relay = Relay::start(|options| {
        options.env("AEP_HELLO_TIME", 1);
    });
    let mut in_time = Ws::hello(&relay, "consumer", "watcher");
    // Neither pings nor a hello that begins and does not end put the end off.
    let mut silent = Ws::connect(&relay);
    let mut half = Ws::connect(&relay);
    let hello = hello_of(200);
    half.frame(false, opcode::TEXT, &hello.as_bytes()[..100]);
    let mut pinging = Ws::connect(&relay);
    pinging.stream().set_nonblocking(true).unwrap();
    wait_until("the relay has spoken", || {
        pinging.send_if_open(frame_bytes(true, opcode::PING, b""));
        let mut seen = [0; 512];
        match pinging.stream().peek(&mut seen) {
            // Pongs are two bytes each; the error is a text frame.
            Ok(count) => count == 0 || seen[..count].contains(&0x81),
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    });
    for ws in [&mut silent, &mut half] {
        ws.expect_error("hello-required");
        ws.expect_close(1008);
    }
    in_time.sync();
}

// ── messages ──

#[test]
fn a_message_may_be_as_large_as_the_limit_and_no_larger() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", 1000);
    });
    let of_size = |bytes: usize| {
        let event = event("s", 1);
        let padded = |padding: usize| event.clone().data(&format!(r#"{{"text":"{}"}}"#, "a".repeat(padding))).build();
        padded(bytes - padded(0).len())
    };
    let mut watcher = Ws::consumer(&relay, "{}");
    let mut emitter = Ws::hello(&relay, "emitter", "coder");
    for size in [999, 1000] {
        let sent = of_size(size);
        emitter.text(&sent);
        watcher.expect(&[&sent]);
        // The same in fragments.
        let sent = of_size(size);
        emitter.frame(false, opcode::TEXT, &sent.as_bytes()[..500]);
        emitter.frame(true, opcode::CONTINUATION, &sent.as_bytes()[500..]);
        watcher.expect(&[&sent]);
    }
    emitter.text(of_size(1001));
    emitter.expect_close(1009);
    let mut emitter = Ws::hello(&relay, "emitter", "coder");
    emitter.frame(false, opcode::TEXT, &of_size(1001).as_bytes()[..600]);
    emitter.frame(false, opcode::CONTINUATION, &[b'a'; 401]);
    emitter.expect_close(1009);
    watcher.sync();
}

/// Harm prevented: many uploads at once hold more memory than the machine has.
#[test]
fn uploads_wait_for_each_other_when_their_memory_is_used_up() {
    const MIB: usize = 1 << 20;
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", MIB).env("AEP_RECEIVE_BYTES", 2 * MIB).env("AEP_BUFFER", 5);
    });
    let body = |seq: u64| event("s", seq).data(&format!(r#"{{"text":"{}"}}"#, "a".repeat(MIB - 1000))).build();
    relay.post(body(0)).expect(202, r#"{"accepted":1}"#);
    let before = relay.resident_kib();
    // Bodies of a megabyte, of each a quarter at first.
    let bodies: Vec<String> = (1..=64).map(body).collect();
    let mut uploads: Vec<(Http, String)> = Vec::new();
    std::thread::scope(|scope| {
        let started: Vec<_> = bodies
            .iter()
            .map(|body| {
                let relay = &relay;
                scope.spawn(move || {
                    let mut http = Http::connect(relay);
                    let request = request("POST", "/events", &[("Content-Type", "application/json")], body.as_bytes());
                    let (head, _) = request.split_at(request.len() - body.len());
                    http.send(head);
                    http.send(&body.as_bytes()[..MIB / 4]);
                    http
                })
            })
            .collect();
        for (thread, body) in started.into_iter().zip(&bodies) {
            uploads.push((thread.join().expect("the relay takes the beginning"), body.clone()));
        }
        // The quarters alone are 16 MiB. Whoever goes on is served to the end.
        for (http, body) in uploads {
            scope.spawn(move || {
                let mut http = http;
                http.send(&body.as_bytes()[MIB / 4..]);
                http.response().expect(202, r#"{"accepted":1}"#);
            });
        }
    });
    let grown = relay.resident_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB for five events kept and uploads of 2 MiB at a time");
}

// ── slow peers ──

/// Something a slow peer does: what it sends first, what it dribbles, and how it is told.
struct Slow {
    start: String,
    dribble: u8,
    told: bool,
}

/// Harm prevented: a few machines hold all places with requests that never end.
#[test]
fn slow_peers_lose_their_places_while_others_are_served() {
    const EACH: usize = 60;
    let relay = Relay::start(|options| {
        let times = ["AEP_HEAD_TIME", "AEP_BODY_TIME", "AEP_IDLE_TIME", "AEP_HELLO_TIME"];
        for time in times {
            options.env(time, 1);
        }
    });
    let post = "POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n";
    let half_upgrade = upgrade_request(&relay, &[]);
    let half_upgrade = String::from_utf8(half_upgrade[..half_upgrade.len() / 2].to_vec()).unwrap();
    let slow = |start: &str, dribble, told| Slow { start: start.to_owned(), dribble, told };
    let kinds = [
        slow("GET /healthz HTTP/1.1\r\nX-Slow: ", b'a', true),
        slow(&format!("{post}Content-Length: 100000\r\n\r\n{{"), b' ', true),
        slow(&format!("{post}Transfer-Encoding: chunked\r\n\r\n100000\r\n{{"), b' ', true),
        slow(&half_upgrade, 0, true),
        slow("", 0, false),
    ];
    let mut crowd: Vec<(&Slow, TcpStream)> = Vec::new();
    for kind in &kinds {
        for _ in 0..EACH {
            let mut stream = TcpStream::connect(relay.address()).unwrap();
            stream.write_all(kind.start.as_bytes()).unwrap();
            stream.set_nonblocking(true).unwrap();
            crowd.push((kind, stream));
        }
    }
    let end = Instant::now() + DEADLINE;
    let mut healthy = Sse::open(&relay, "/stream");
    let mut seq = 0;
    while !crowd.is_empty() {
        assert!(Instant::now() < end, "{} slow peers are still there", crowd.len());
        seq += 1;
        let sent = [event("s", seq).build()];
        relay.publish(&sent);
        healthy.expect(&sent);
        crowd.retain_mut(|(kind, stream)| {
            if kind.dribble != 0 {
                let _ = stream.write(&[kind.dribble]);
            }
            match answer_of(stream) {
                None => true,
                Some(text) if kind.told => {
                    assert!(text.starts_with("HTTP/1.1 408 "), "{:?} is told: {text:?}", kind.start);
                    assert!(text.contains(r#""error":"timeout""#), "{text:?}");
                    false
                }
                Some(text) => {
                    assert_eq!(text, "", "who sent nothing is closed silently");
                    false
                }
            }
        });
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert!(is_served(&relay));
    // What is left: the healthy stream, and the one that asks.
    wait_until("their places are free", || relay.metric("connections", "") == 2);
}

/// What a connection was told, once it was told something or has ended.
fn answer_of(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes) {
        Ok(count) => Some(String::from_utf8_lossy(&bytes[..count]).into_owned()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("a slow peer reads its answer: {error}"),
    }
}

// ── metrics ──

#[test]
fn metrics_are_served_to_who_has_the_token() {
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    let metrics = relay.get("/metrics");
    assert_eq!(metrics.status, 200);
    let kind = metrics.field("content-type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text") && kind.contains("version=1.0.0"), "{kind}");
    assert!(metrics.text().ends_with("# EOF\n"));
    let (_, refused) = Http::exchange(&relay, "GET /metrics HTTP/1.1\r\nHost: r\r\n\r\n");
    refused.expect(401, r#"{"error":"unauthorized"}"#);
    let off = Relay::start(|options| {
        options.env("AEP_METRICS", "off");
    });
    off.get("/metrics").expect_refusal(404, "not-found");
}

/// Harm prevented: whoever may send requests fills the monitoring with names of their own.
#[test]
fn no_client_can_add_a_line_to_the_metrics() {
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    let lines = |metrics: &str| metrics.lines().count();
    let before = lines(&relay.metrics());
    let mut http = Http::connect(&relay);
    for round in 0..20 {
        let name = |index: usize| format!("marker{}", round * 100 + index);
        let batch: Vec<String> = (0..100)
            .map(|index| {
                let name = name(index);
                event(&name, 1).kind(&format!("run.{name}")).agent(&name).source(&name).text(&name, &name).build()
            })
            .collect();
        relay.publish(&batch);
        let mut watchers = Vec::new();
        for index in 0..10 {
            let name = name(index);
            watchers.push(Sse::subscribe(&relay, &[("filter", &format!(r#"{{"{name}":"{name}"}}"#))]));
            for request in [
                format!("GET /{name} HTTP/1.1\r\nHost: r\r\nAuthorization: Bearer sesame\r\n\r\n"),
                format!("{} /events HTTP/1.1\r\nHost: r\r\nAuthorization: Bearer sesame\r\n\r\n", name.to_uppercase()),
                format!("GET /events?access_token={name} HTTP/1.1\r\nHost: {name}\r\n\r\n"),
            ] {
                http.send(request);
                let status = http.response().status;
                assert!(matches!(status, 401 | 404 | 405), "{status}");
            }
        }
        let mut ws = Ws::hello(&relay, "both", &name(0));
        ws.text(format!(r#"{{"type":"{}"}}"#, name(1)));
        ws.text(unplaced("control.cancel", &name(2)).build());
        ws.expect_error("no-route");
        let during = relay.metrics();
        assert_eq!(lines(&during), before, "round {round}");
        assert!(!during.to_lowercase().contains("marker"), "{during}");
    }
    drop(http);
    // The gauges come back to where they were: the only one left is the one that asks.
    wait_until("all have left", || relay.metric("subscriptions", "") == 0 && relay.metric("connections", "") == 1);
    assert_eq!(lines(&relay.metrics()), before);
}
