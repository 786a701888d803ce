//! The event stream from the wire: head, framing, ids, comments, parameters (contract §4).

use std::time::Duration;

use crate::support::*;

#[test]
fn the_stream_opens_at_once_with_its_head_and_a_comment() {
    let relay = Relay::plain();
    let mut http = Http::connect(&relay);
    http.send(request("GET", "/stream", &[("Accept", "text/html")], b""));
    let head = http.response_head();
    assert_eq!(head.status, 200);
    for (name, value) in [
        ("content-type", Some("text/event-stream")),
        ("cache-control", Some("no-cache, no-transform")),
        ("x-accel-buffering", Some("no")),
        ("transfer-encoding", Some("chunked")),
        ("access-control-allow-origin", Some("*")),
        ("content-length", None),
        ("content-encoding", None),
    ] {
        assert_eq!(head.field(name), value, "{name}");
    }
    assert_eq!(http.chunk().as_deref(), Some(&b": open\n\n"[..]));
}

#[test]
fn an_event_is_an_id_a_type_and_the_bytes_received() {
    let relay = Relay::plain();
    let mut http = Http::connect(&relay);
    http.send(request("GET", "/stream", &[], b""));
    http.response_head();
    assert_eq!(http.chunk().as_deref(), Some(&b": open\n\n"[..]));
    let sent = event("a:b", 7).epoch(3).kind("tool.completed").build();
    relay.publish(&[&sent]);
    let expected = format!("id: a:b:3:7\nevent: tool.completed\ndata: {sent}\n\n");
    assert_eq!(String::from_utf8(http.chunk().unwrap()).unwrap(), expected);
}

#[test]
fn an_http_1_0_client_reads_until_the_close() {
    let relay = Relay::plain();
    relay.publish(&[event("s", 1).build(), event("s", 2).build()]);
    let (mut stream, head) = Sse::send(&relay, b"GET /stream?from=all&live=0 HTTP/1.0\r\n\r\n");
    assert_eq!((head.field("transfer-encoding"), head.field("content-length")), (None, None));
    let rest = stream.rest();
    assert_eq!(rest.len(), 3, "{rest:?}");
    assert_eq!(rest[2], Message::Comment("replay-complete".to_owned()));

    let (mut live, _) = Sse::send(&relay, b"GET /stream HTTP/1.0\r\n\r\n");
    let sent = event("s", 3).build();
    relay.publish(&[&sent]);
    live.expect(&[&sent]);
}

/// The id line with which an event of this session arrives.
fn id_of(relay: &Relay, stream: &mut Sse, session: &str) -> Option<String> {
    let sent = event(session, 5).epoch(1).build();
    relay.publish(&[&sent]);
    match stream.message() {
        Message::Event { id, data, .. } => {
            assert_eq!(data, sent);
            id
        }
        comment @ Message::Comment(_) => panic!("{comment:?}"),
    }
}

#[test]
fn a_session_name_cannot_inject_a_line() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    for session in [
        "s",
        "a:b:c",
        ":",
        "with space",
        "quo\"te\\",
        "größe-日本-😀",
        "\u{2028}\u{85}\u{feff}",
        "tab\there",
        "trailing \t",
        "data: x",
    ] {
        assert_eq!(id_of(&relay, &mut stream, session), Some(format!("{session}:1:5")), "{session:?}");
    }
    for session in ["a\nb", "a\rb", "a\r\ndata: x\r\n\r\n", "\n", "\0", "a\0b"] {
        assert_eq!(id_of(&relay, &mut stream, session), None, "{session:?}");
    }
}

/// A cursor of such a session would be refused as a field's value, or lose its beginning and mean another session.
#[test]
fn a_session_name_that_cannot_come_back_gets_no_id() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let controls = ('\u{1}'..='\u{1f}').filter(|control| *control != '\t').chain(['\u{7f}']);
    for session in controls.map(|control| format!("a{control}b")).chain([" a", "\ta", " ", "\t"].map(str::to_owned)) {
        assert_eq!(id_of(&relay, &mut stream, &session), None, "{session:?}");
    }
}

/// Whatever id is told, a client that sends it back gets what lies behind it.
#[test]
fn every_id_comes_back_as_it_was_told() {
    let relay = Relay::plain();
    for session in ["s", " s", "\ts", "s ", "s\t", "a\tb", "a\u{1}b", "a\u{7f}", "\u{85}", "\u{a0}s", "größe"] {
        relay.publish(&[1, 2].map(|seq| event(session, seq).build()));
    }
    let mut came_back = 0;
    for message in Sse::replay(&relay, &[("from", "all")]) {
        let Message::Event { id: Some(id), data, .. } = message else { continue };
        if data.contains("\"seq\":2") {
            continue;
        }
        let (mut stream, _) = Sse::send(
            &relay,
            format!("GET /stream?live=0 HTTP/1.1\r\nHost: r\r\nLast-Event-ID: {id}\r\n\r\n").as_bytes(),
        );
        let next = id.strip_suffix('1').map(|start| format!("{start}2"));
        let rest = stream.rest();
        assert!(matches!(&rest[0], Message::Event { id, .. } if *id == next), "{id:?}: {rest:?}");
        assert_eq!(rest.len(), 2, "{id:?}: {rest:?}");
        came_back += 1;
    }
    assert_eq!(came_back, 7, "those that can");
}

#[test]
fn only_events_with_a_position_have_an_id() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    for sent in [unplaced("attention.routed", "s"), agent_event("agent.heartbeat")] {
        relay.publish(&[sent.build()]);
        let message = stream.message();
        assert!(matches!(&message, Message::Event { id: None, data, .. } if *data == sent.build()), "{message:?}");
    }
}

#[test]
fn line_breaks_between_tokens_do_not_split_an_event() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    for (seq, (colon, comma)) in
        [("\r:", ","), (":\n", ",\n"), (":", ",\r\n\r\n\t "), (" :\r ", " ,")].into_iter().enumerate()
    {
        let tricky = r#"{"text":"a\n\r\ndata: x\n\nid: 9","raw":"  : , "}"#;
        let sent = event("s", seq as u64).data(tricky);
        relay.post(sent.join(colon, comma)).expect(202, r#"{"accepted":1}"#);
        let message = stream.message();
        assert_eq!(message.data(), sent.build(), "only white space outside strings goes, and all of it");
    }
    let spaced = event("s", 10).data(r#"{ "a" : [ 1 , 2 ] }"#).join(" : ", " , ");
    relay.post(format!(" \t{spaced}  ")).expect(202, r#"{"accepted":1}"#);
    stream.expect(&[&spaced]);
}

#[test]
fn separators_of_other_alphabets_arrive_as_they_were_sent() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let sent = [
        event("s", 1).data("{\"t\":\"\u{2028}\u{2029}\u{85}\u{feff}data: x\"}").build(),
        event("s", 2).data(r#"{"t":"\u2028\u0085\u000b\u000c\n\r"}"#).build(),
        event("s", 3).data(r#"{"t":"data: x","u":"id: 1","v":"retry: 5"}"#).build(),
    ];
    relay.publish(&sent);
    stream.expect(&sent);
}

#[test]
fn silence_is_filled_with_pings() {
    let relay = Relay::start(|options| {
        options.env("AEP_HEARTBEAT", 1).env("AEP_IDLE_TIME", 1).env("AEP_HEAD_TIME", 1).env("AEP_BODY_TIME", 1);
    });
    let mut idle = Sse::open(&relay, "/stream");
    let mut elsewhere = Sse::subscribe(&relay, &[("filter", r#"{"session":"other"}"#)]);
    for _ in 0..3 {
        assert_eq!(idle.next(), Some(Message::Comment("ping".to_owned())));
        // Events that do not match fill no silence.
        relay.publish(&[event("s", 1).build()]);
        assert_eq!(elsewhere.next(), Some(Message::Comment("ping".to_owned())));
        assert!(matches!(idle.next(), Some(Message::Event { .. })));
    }
    // The request timers ended neither.
    let sent = event("other", 1).build();
    relay.publish(&[&sent]);
    elsewhere.expect(&[&sent]);
    idle.expect(&[&sent]);
}

#[test]
fn live_0_ends_the_stream_and_anything_else_does_not() {
    let relay = Relay::plain();
    let sent = event("s", 1).build();
    relay.publish(&[&sent]);
    for target in ["/stream?live=0", "/stream?live=%30&x=y", "/stream?live=0&live=1"] {
        let rest = Sse::open(&relay, target).rest();
        assert_eq!(rest.len(), 2, "{target}: {rest:?}");
        assert_eq!(rest[0].data(), sent);
        assert_eq!(rest[1], Message::Comment("replay-complete".to_owned()));
    }
    for target in ["/stream?live=1", "/stream?live=", "/stream?live=false", "/stream?live=00", "/stream?live=1&live=0"]
    {
        let mut stream = Sse::open(&relay, target);
        let later = event("s", 2).build();
        relay.publish(&[&later]);
        stream.expect(&[&later]);
    }
}

#[test]
fn a_stream_that_ends_leaves_the_connection_in_order() {
    let relay = Relay::plain();
    let mut http = Http::connect(&relay);
    http.send(request("GET", "/stream?live=0", &[], b""));
    let head = http.response();
    assert_eq!(String::from_utf8(head.body.clone()).unwrap(), ": open\n\n: replay-complete\n\n");
    // It may close after the stream if it said so; else it serves on.
    if head.closes() {
        http.expect_end();
    } else {
        http.expect_alive();
    }
}

#[test]
fn parameters_are_form_encoded() {
    let relay = Relay::plain();
    let sent = event("a b+c", 1).text("subject", "ü").build();
    relay.publish(&[&sent]);
    for target in [
        "/stream?live=0&filter=%7B%22session%22:%22a+b%2Bc%22%7D",
        "/stream?live=0&filter={%22session%22:%22a%20b%2bc%22,%22subject%22:%22%C3%BC%22}",
        "/stream?live=0&filter=&from=&capture=",
        "/stream?live=0&from=all&capture=full&unknown=%ZZ&%ZZ=1&&=&broken=%FF",
        "/stream?live=0&filter={}&filter=broken&capture=full&capture=broken",
        "/stream?live=0&fi%6Cter={}",
    ] {
        let rest = Sse::open(&relay, target).rest();
        assert_eq!(rest.first().map(Message::data), Some(sent.as_str()), "{target}");
    }
}

#[test]
fn malformed_parameters_are_refused_before_the_stream_opens() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_FROM", 2);
    });
    let mut http = Http::connect(&relay);
    let mut refuse = |target: &str, code: &str| {
        http.send(request("GET", target, &[], b""));
        http.response().expect_refusal(400, code)["detail"].as_str().unwrap().to_owned()
    };
    for target in [
        "filter=x",
        "filter=[]",
        "filter=%7B%22seq%22%3A1%7D",
        "filter=%",
        "filter=%7",
        "filter=%GG",
        "filter=%FF",
        "filter=%C3",
        "filter=%7B%7D%7B%7D",
        "filter=null",
    ] {
        refuse(&format!("/stream?{target}"), "invalid-filter");
        refuse(&format!("/stream?live=0&{target}"), "invalid-filter");
    }
    for target in ["capture=x", "capture=FULL", "capture=%22full%22", "capture=full%20", "capture=%E9", "capture=%"] {
        refuse(&format!("/stream?{target}"), "invalid-capture");
    }
    for from in [
        "x",
        "ALL",
        "\"all\"",
        "{}",
        "null",
        "1",
        "[1]",
        "[null]",
        "[[]]",
        "[",
        "[{}]",
        r#"[{"session":"s"}]"#,
        r#"[{"seq":1}]"#,
        r#"[{"session":"","seq":1}]"#,
        r#"[{"session":1,"seq":1}]"#,
        r#"[{"session":"s","seq":-1}]"#,
        r#"[{"session":"s","seq":1.0}]"#,
        r#"[{"session":"s","seq":1e0}]"#,
        r#"[{"session":"s","seq":"1"}]"#,
        r#"[{"session":"s","seq":null}]"#,
        r#"[{"session":"s","seq":9223372036854775808}]"#,
        r#"[{"session":"s","epoch":-1,"seq":1}]"#,
        r#"[{"session":"s","epoch":"0","seq":1}]"#,
        r#"[{"session":"s","epoch":9223372036854775808,"seq":1}]"#,
        r#"[{"session":"s","seq":1},{"session":"t"}]"#,
        r#"[{"session":"s","seq":1}]x"#,
    ] {
        refuse(&query("/stream", &[("from", from)]), "invalid-from");
    }
    refuse("/stream?from=%FF", "invalid-from");
    refuse("/stream?from=%5", "invalid-from");
    let three = r#"[{"session":"a","seq":1},{"session":"b","seq":1},{"session":"c","seq":1}]"#;
    let detail = refuse(&query("/stream", &[("from", three)]), "limit-exceeded");
    assert!(detail.contains("AEP_MAX_FROM"), "{detail}");
    http.expect_alive();
    assert_eq!(relay.count("subscribers"), 0);
}

#[test]
fn what_a_client_sends_on_its_stream_is_ignored() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    stream.send("GET /healthz HTTP/1.1\r\nHost: r\r\n\r\nand anything else");
    let sent = event("s", 1).build();
    relay.publish(&[&sent]);
    stream.expect(&[&sent]);
}

#[test]
fn a_client_that_leaves_is_forgotten() {
    let relay = Relay::plain();
    let streams: Vec<Sse> = (0..20).map(|_| Sse::open(&relay, "/stream")).collect();
    assert_eq!(relay.count("subscribers"), 20);
    drop(streams);
    wait_until("no subscriber is left", || relay.count("subscribers") == 0);
    relay.publish(&[event("s", 1).build()]);
}

/// What `nc -N` and its like do.
#[test]
fn a_client_that_ends_its_side_gets_the_whole_history() {
    let relay = Relay::plain();
    // More than sockets hold.
    let data = format!(r#"{{"p":"{}"}}"#, "x".repeat(64 << 10));
    let sent: Vec<String> = (0..200).map(|seq| event("s", seq).data(&data).build()).collect();
    relay.publish(&sent);
    let target = "/stream?live=0";
    for (at, version) in [(0, "1.1"), (20, "1.1"), (0, "1.0")] {
        let bytes = format!("GET {target} HTTP/{version}\r\nHost: r\r\n\r\n");
        let mut http = Http::connect(&relay);
        http.send_cut(bytes.as_bytes(), at);
        http.finish();
        let (mut stream, _) = Sse::accept(http);
        stream.expect(&sent);
        assert_eq!(stream.comment(), "replay-complete");
        assert_eq!(stream.next(), None);
        stream.expect_end();
    }
}

#[test]
fn a_live_stream_whose_client_ends_its_side_goes_on_and_costs_nothing() {
    let mut relay = Relay::start(|options| {
        options.env("AEP_HEARTBEAT", 1);
    });
    let mut stream = Sse::open(&relay, "/stream");
    stream.finish();
    let ping = Message::Comment("ping".to_owned());
    assert_eq!(stream.next().as_ref(), Some(&ping), "asked whether it still reads");
    let sent = [event("s", 1).build(), event("s", 2).build()];
    relay.publish(&sent);
    stream.expect(&sent);
    // A socket that is for ever at its end must not keep a core awake: two seconds of that are a hundred thousand
    // turns.
    let turns = relay.metric("turns", "");
    for _ in 0..2 {
        assert_eq!(stream.next().as_ref(), Some(&ping));
    }
    let turns = relay.metric("turns", "") - turns;
    assert!(turns < 1000, "{turns} turns in two heartbeats");
    relay.signal("TERM");
    assert_eq!(stream.comment(), "shutting-down");
    assert_eq!(stream.next(), None);
    stream.expect_end();
    assert_eq!(relay.exit_status().code(), Some(0));
}

#[test]
fn a_client_that_ended_its_side_and_then_left_is_forgotten() {
    let relay = Relay::start(|options| {
        // Longer than anything is waited for here: no heartbeat helps.
        options.env("AEP_HEARTBEAT", 25);
    });
    let half_closed = || {
        let mut stream = Sse::open(&relay, "/stream");
        stream.finish();
        assert_eq!(stream.next(), Some(Message::Comment("ping".to_owned())));
        stream
    };
    // By a reset.
    let stream = half_closed();
    socket2::SockRef::from(stream.stream()).set_linger(Some(Duration::ZERO)).unwrap();
    assert_eq!(relay.count("subscribers"), 1);
    drop(stream);
    wait_until("the reset is seen", || relay.count("subscribers") == 0);
    // Without a word: what is sent next meets nobody.
    drop(half_closed());
    relay.publish(&[event("s", 1).build()]);
    wait_until("the silence is seen", || relay.count("subscribers") == 0);
}

#[test]
fn a_batch_arrives_in_order_and_whole_at_every_stream() {
    let relay = Relay::plain();
    let mut streams: Vec<Sse> = (0..10).map(|_| Sse::open(&relay, "/stream")).collect();
    let sent: Vec<String> = (0..500).map(|seq| event("s", seq).build()).collect();
    relay.publish(&sent);
    for stream in &mut streams {
        stream.expect(&sent);
    }
}

#[test]
fn an_event_of_many_megabytes_arrives_whole() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let sent = event("s", 1).data(&format!(r#"{{"p":"{}"}}"#, "x".repeat(12 << 20))).build();
    relay.publish(&[&sent]);
    assert!(stream.event() == sent, "twelve megabytes come back unchanged");
    assert_eq!(Sse::replay(&relay, &[])[0].data().len(), sent.len());
}
