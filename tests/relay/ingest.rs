//! What is an event and what is not, over POST: byte identity, all or nothing, the first fault (contract §2 and §3).

use crate::support::*;

/// Posts it alone and expects it at a consumer as `delivered`.
#[track_caller]
fn expect_delivered_as(relay: &Relay, stream: &mut Sse, sent: &str, delivered: &str) {
    let response = relay.post(sent);
    assert_eq!((response.status, response.text().as_str()), (202, r#"{"accepted":1}"#), "{sent}");
    assert_eq!(stream.event(), delivered);
}

#[track_caller]
fn expect_delivered(relay: &Relay, stream: &mut Sse, sent: &str) {
    expect_delivered_as(relay, stream, sent, sent);
}

/// Posts it alone: refused with this code; answers the detail.
#[track_caller]
fn refused(relay: &Relay, body: impl AsRef<[u8]>, code: &str) -> String {
    let response = relay.post(body.as_ref());
    assert_eq!(response.status, 400, "{code} expected for {:?}: {response:?}", String::from_utf8_lossy(body.as_ref()));
    response.expect_refusal(400, code)["detail"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_delivered_is_what_was_received() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let data = [
        r#"{}"#,
        r#"{"n":[9007199254740993,9223372036854775808,18446744073709551615,18446744073709551616,-0,-0.0]}"#,
        r#"{"n":[1e400,-1E-400,1000000000000000000e0,0.1000,3077999.0000000000000000,1E+2]}"#,
        r#"{"escapes":"\u0041\/\b\f\n\r\t\"\\ \uD83D\uDE00 \u0000"}"#,
        r#"{"lone":"\ud800 and \uDFFF, \udc00\ud800"}"#,
        r#"{"\ud800":1}"#,
        r#"{"twice":1,"twice":2,"nested":{"a":1,"a":2}}"#,
        r#"{"":{"":[[],{},[{}],null,true,false]}}"#,
        "{\"raw\":\"\u{7f}\u{80}\u{2028}\u{feff}\u{ffff}\u{10ffff}é日😀\"}",
        "{ \"spaced\" : [ 1 ,\t2 ] }",
    ];
    for (seq, data) in data.into_iter().enumerate() {
        expect_delivered(&relay, &mut stream, &event("s", seq as u64).data(data).build());
    }
    for sent in [
        event("s", 100).epoch(9_223_372_036_854_775_807).build(),
        event("s", 9_223_372_036_854_775_807).build(),
        event("s", 0).field("epoch", "0").build(),
        event("s", 101).field("big", "9223372036854775807").field("small", "-9223372036854775808").build(),
        event("s", 102).field("flag", "false").text("text", "").build(),
        event("s", 103).text("abcdefghijklmnopqrst", "twenty characters").text("0", "a digit").build(),
        event("\u{0}\u{1f}\u{7f}😀", 104).build(),
        event("s", 105).join(" : ", "  ,\t"),
        event("s", 106).text("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").build(),
        event("s", 107).text("run", "r").text("step", "t").text("subject", "u").text("cause", "c").build(),
        event("s", 108).source("no uri at all \n").build(),
    ] {
        expect_delivered(&relay, &mut stream, &sent);
    }
    let escaped = event("s", 109).build().replace("\"seq\"", r#""\u0073eq""#).replace("urn:", r"\u0075rn:");
    expect_delivered(&relay, &mut stream, &escaped);
}

#[test]
fn a_long_number_survives_at_any_offset() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let sent: Vec<String> = (0..128)
        .map(|n| {
            event("s", n).data(&format!(r#"{{"p":"{}","v":3077999.0000000000000000}}"#, " ".repeat(n as usize))).build()
        })
        .collect();
    relay.publish(&sent);
    stream.expect(&sent);
}

#[test]
fn an_integer_attribute_is_compared_exactly() {
    let relay = Relay::plain();
    let mut stream = Sse::subscribe(&relay, &[("filter", r#"{"n":9007199254740992}"#)]);
    let sent: Vec<String> = ["9007199254740993", "9007199254740991", "9007199254740992"]
        .iter()
        .zip(0..)
        .map(|(n, seq)| event("s", seq).field("n", n).build())
        .collect();
    relay.publish(&sent);
    stream.expect(&sent[2..]);
}

#[test]
fn white_space_around_the_object_is_not_part_of_it() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let sent = event("s", 1).build();
    for body in [format!(" \t{sent}"), format!("{sent} \t"), format!("\n{sent}\n"), format!("\r\n  {sent}\r\n")] {
        expect_delivered_as(&relay, &mut stream, &body, &sent);
    }
    let spaced = event("s", 2).join(": ", ", ");
    relay.post_lines(format!("  {spaced}\t\r\n \t{spaced}")).expect(202, r#"{"accepted":2}"#);
    stream.expect(&[&spaced, &spaced]);
}

#[test]
fn times_are_rfc_3339_with_a_zone() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    for time in [
        "2026-03-01T12:00:00Z",
        "2026-03-01t12:00:00z",
        "2026-03-01T12:00:00.123456789012Z",
        "2026-03-01T23:59:60Z",
        "2026-03-01T12:00:00+05:30",
        "2026-03-01T12:00:00-23:59",
        "2024-02-29T00:00:00Z",
        "2000-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59.9+00:00",
    ] {
        expect_delivered(&relay, &mut stream, &event("s", 1).text("time", time).build());
    }
    for time in [
        "",
        "2026-03-01T12:00:00",
        "2026-03-01",
        "12:00:00Z",
        "2026-13-01T12:00:00Z",
        "2026-00-01T12:00:00Z",
        "2026-02-30T12:00:00Z",
        "2026-02-29T12:00:00Z",
        "1900-02-29T12:00:00Z",
        "2026-04-31T12:00:00Z",
        "2026-03-00T12:00:00Z",
        "2026-03-01T24:00:00Z",
        "2026-03-01T12:60:00Z",
        "2026-03-01T12:00:61Z",
        "2026-03-01T12:00Z",
        "2026-03-01T12:00:00.Z",
        "2026-03-01T12:00:00,5Z",
        "2026-03-01T12:00:00+0530",
        "2026-03-01T12:00:00+24:00",
        "2026-03-01T12:00:00+05:60",
        "2026-03-01T12:00:00+5:30",
        "2026-03-01T12:00:00ZZ",
        "2026-3-1T12:00:00Z",
        "02026-03-01T12:00:00Z",
        "+2026-03-01T12:00:00Z",
        "2026-03-01T12:00:00 Z",
        " 2026-03-01T12:00:00Z",
        "1772366400",
    ] {
        let detail = refused(&relay, event("s", 1).text("time", time).build(), "invalid-event");
        assert!(detail.contains("time"), "{detail}");
    }
}

#[test]
fn types_follow_the_grammar() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    for kind in [
        "session.started",
        "run.step.started",
        "progress.x",
        "tool.x_1",
        "delegation.a.b.c.d.e",
        "attention.requested",
        "resource.r",
        "error.0",
        "assessment._",
        "state.s",
        "message.m",
        "control.accepted",
        "control.rejected",
        "control.custom",
        "control.cancel.again",
        "x.acme.foo.bar",
        "x.my-vendor_1.a.b.c",
        "x.-.a.b",
        "x.acme.controls.b",
        "x.acme.foo.control.bar",
        "x.tool.agent.x",
    ] {
        expect_delivered(&relay, &mut stream, &event("s", 1).kind(kind).build());
    }
    for kind in [
        "",
        "tool",
        "tool.",
        ".tool",
        "tool..x",
        "Tool.x",
        "tool.X",
        "tool.a-b",
        "tool.a b",
        "tool.ü",
        "tool.x.",
        "banana.peeled",
        "x.acme",
        "x.acme.foo",
        "x.acme.control",
        "x..a.b",
        "x.Acme.a.b",
        "x.a c.m.e",
        "x.acme.a-b.c",
        "x.acme.a.",
        "x",
        "tools.x",
        "tool.*",
        "tool.x\n",
        " tool.x",
    ] {
        let detail = refused(&relay, event("s", 1).kind(kind).build(), "invalid-event");
        assert!(detail.contains("type"), "{kind:?}: {detail}");
    }
}

#[test]
fn the_scope_decides_on_session_and_seq() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    for sent in [
        agent_event("agent.heartbeat"),
        agent_event("agent.anything.at_all").field("epoch", "4"),
        unplaced("attention.routed", "s").text("run", "r").text("step", "t"),
        event("s", 1).kind("control.accepted"),
        event("s", 1).kind("attention.routed.more"),
    ] {
        expect_delivered(&relay, &mut stream, &sent.build());
    }
    for (attribute, sent) in [
        ("session", event("s", 1).without("session")),
        ("seq", event("s", 1).without("seq")),
        ("session", agent_event("agent.presence").text("session", "s")),
        ("seq", agent_event("agent.presence").field("seq", "1")),
        ("run", agent_event("agent.presence").text("run", "r")),
        ("step", agent_event("agent.presence").text("step", "t")),
        ("seq", event("s", 1).kind("attention.routed")),
        ("session", agent_event("attention.routed")),
        ("seq", event("s", 1).kind("control.cancel")),
        ("session", agent_event("control.pause")),
        ("seq", event("s", 1).kind("x.acme.control.stop")),
        ("session", agent_event("x.acme.control.stop")),
        ("seq", unplaced("control.accepted", "s")),
        ("seq", unplaced("control.custom", "s")),
        ("seq", unplaced("x.acme.foo.bar", "s")),
    ] {
        let detail = refused(&relay, sent.build(), "invalid-event");
        assert!(detail.contains(attribute), "{attribute}: {detail}");
    }
}

#[test]
fn required_attributes_are_required() {
    let relay = Relay::plain();
    for attribute in ["aep", "id", "type", "time", "source", "agent", "session", "seq"] {
        let detail = refused(&relay, event("s", 1).without(attribute).build(), "invalid-event");
        assert!(detail.contains(attribute), "{attribute}: {detail}");
    }
}

#[test]
fn attributes_of_the_wrong_kind_are_refused_by_name() {
    let relay = Relay::plain();
    let mut cases = vec![
        ("aep", "\"0.2\""),
        ("aep", "\"\""),
        ("aep", "0.1"),
        ("aep", "\"0.10\""),
        ("severity", "\"fatal\""),
        ("severity", "\"Info\""),
        ("severity", "\"\""),
        ("severity", "3"),
        ("capture", "\"all\""),
        ("capture", "\"FULL\""),
        ("capture", "true"),
        ("data", "[]"),
        ("data", "\"x\""),
        ("data", "1"),
        ("data", "true"),
        ("traceparent", "\"not-a-traceparent\""),
        ("traceparent", "\"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01\""),
        ("traceparent", "\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x\""),
        ("traceparent", "\"00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01\""),
        ("extension", "1.5"),
        ("extension", "1e3"),
        ("extension", "1.0"),
        ("extension", "{}"),
        ("extension", "[]"),
        ("extension", "9223372036854775808"),
        ("extension", "-9223372036854775809"),
        ("extension", r#""\ud800""#),
        ("abcdefghijklmnopqrstu", "1"),
        ("Upper", "1"),
        ("under_score", "1"),
        ("da-sh", "1"),
        ("dot.ted", "1"),
        ("ü", "1"),
    ];
    for attribute in ["seq", "epoch"] {
        let values = [
            "-1",
            "1.0",
            "1e3",
            "0.5",
            "\"1\"",
            "true",
            "[]",
            "{}",
            "9223372036854775808",
            "18446744073709551616",
            "1e400",
        ];
        cases.extend(values.map(|value| (attribute, value)));
    }
    for attribute in ["id", "source", "agent", "session", "run", "step", "subject", "cause"] {
        cases.extend(
            ["\"\"", "1", "true", "{}", "[\"x\"]", r#""\ud800""#, r#""a\udc00b""#].map(|value| (attribute, value)),
        );
    }
    for attribute in [
        "aep",
        "id",
        "type",
        "time",
        "source",
        "agent",
        "session",
        "run",
        "step",
        "subject",
        "cause",
        "seq",
        "epoch",
        "traceparent",
        "severity",
        "capture",
        "data",
        "extension",
    ] {
        cases.push((attribute, "null"));
    }
    for (attribute, value) in cases {
        let detail = refused(&relay, event("s", 1).field(attribute, value).build(), "invalid-event");
        assert!(detail.contains(attribute), "{attribute} = {value}: {detail}");
    }
    refused(&relay, event("s", 1).build().replacen('{', r#"{"":1,"#, 1), "invalid-event");
    refused(&relay, event("s", 1).build().replacen('{', r#"{"\ud800":1,"#, 1), "invalid-event");
    assert_eq!(relay.count("sessions"), 0);
}

#[test]
fn a_repeated_member_makes_the_event_invalid() {
    let relay = Relay::plain();
    let sent = event("s", 1).text("extension", "x").data("{}").build();
    for member in [
        r#""id":"other""#,
        r#""id":"e""#,
        r#""\u0069d":"other""#,
        r#""session":"t""#,
        r#""s\u0065q":2"#,
        r#""seq":1"#,
        r#""data":{}"#,
        r#""extension":"x""#,
        r#""\u0065xtension":"y""#,
        r#""type":"run.started""#,
    ] {
        refused(&relay, sent.replacen('{', &format!("{{{member},"), 1), "invalid-event");
        refused(&relay, format!("{},{member}}}", &sent[..sent.len() - 1]), "invalid-event");
    }
}

#[test]
fn what_is_no_object_is_no_event() {
    let relay = Relay::plain();
    for body in ["[]", "1", "-0.5e3", "\"text\"", "null", "true", "[{}]", " [ ] "] {
        refused(&relay, body, "invalid-event");
    }
    refused(&relay, "{}", "invalid-event");
}

#[test]
fn what_is_no_json_is_refused_as_such() {
    let relay = Relay::plain();
    let sent = event("s", 1).build();
    let with_data = |data: &str| event("s", 1).data(data).build();
    let mut bodies = vec![
        String::new(),
        "\n\r\n \n".to_owned(),
        "{".to_owned(),
        "}".to_owned(),
        "tru".to_owned(),
        "{\"a\"}".to_owned(),
        sent[..sent.len() - 1].to_owned(),
        format!("{sent}{sent}"),
        format!("{sent}\n{sent}"),
        format!("{sent} x"),
        format!("{sent},"),
        format!("{sent}}}"),
        format!("\u{c}{sent}"),
        format!("\u{a0}{sent}"),
        format!("{sent}\u{2028}"),
        sent.replacen('{', "{,", 1),
        sent.replacen(',', ",,", 1),
        sent.replacen(':', "::", 1),
        sent.replacen('"', "'", 2),
        format!("{},}}", &sent[..sent.len() - 1]),
        format!("/* comment */{sent}"),
        format!("{sent} // comment"),
    ];
    for data in [
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":1.}",
        "{\"a\":1e}",
        "{\"a\":-}",
        "{\"a\":- 1}",
        "{\"a\":0x1}",
        "{\"a\":NaN}",
        "{\"a\":Infinity}",
        "{\"a\":1_0}",
        "{\"a\":1e+}",
        "{\"a\":TRUE}",
        "{\"a\":nul}",
        "{\"a\":[1,]}",
        "{\"a\":[,1]}",
        "{\"a\":[1 2]}",
        "{\"a\":{}",
        "{\"a\":]}",
        "{a:1}",
        "{1:1}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\U0041\"}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\u{1}\"}",
        "{\"a\" 1}",
        "{\"a\":\"\\\"}",
    ] {
        bodies.push(with_data(data));
    }
    for body in bodies {
        refused(&relay, body, "invalid-json");
    }
}

#[test]
fn edge_bytes_are_refused_by_name() {
    let relay = Relay::plain();
    let sent = event("s", 1).build();
    let bom = format!("\u{feff}{sent}");
    assert!(refused(&relay, &bom, "invalid-json").to_lowercase().contains("byte order mark"));
    for (bytes, line) in
        [(format!("{bom}\n{sent}"), 1), (format!("{sent}\n{sent}\n{bom}"), 3), (format!("{sent}\n\n{sent}\u{feff}"), 3)]
    {
        assert_eq!(relay.post_lines(bytes).expect_refusal(400, "invalid-json")["line"], line);
    }
    for body in [
        format!("\0{sent}"),
        format!("{sent}\0"),
        event("s", 1).data("{\"a\":\"\0\"}").build(),
        event("s", 1).data("{\"a\":\0}").build(),
    ] {
        assert!(refused(&relay, body, "invalid-json").contains("NUL"));
    }
    let (before, after) = (br#"{"a":""#, br#""}"#);
    for bytes in [
        &b"\xff"[..],
        b"\xfe",
        b"\x80",
        b"\xc0\xaf",
        b"\xc1\xbf",
        b"\xe0\x80\xaf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\xc3",
    ] {
        let marked = event("s", 1).data(r#"{"a":"@"}"#).build();
        let (head, tail) = marked.split_once('@').unwrap();
        let body = [head.as_bytes(), bytes, tail.as_bytes()].concat();
        assert!(refused(&relay, &body, "invalid-json").contains("UTF-8"));
        refused(&relay, [&before[..], bytes, after].concat(), "invalid-json");
    }
    // A NUL as an escape is text like any other.
    let mut stream = Sse::open(&relay, "/stream");
    expect_delivered(&relay, &mut stream, &event("a\0b", 1).data(r#"{"a":"\u0000"}"#).build());
}

#[test]
fn nesting_has_a_bound_and_no_stack_to_overflow() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let arrays =
        |depth: usize| event("s", 1).data(&format!(r#"{{"x":{}0{}}}"#, "[".repeat(depth), "]".repeat(depth))).build();
    let objects =
        |depth: usize| event("s", 1).data(&format!("{}0{}", r#"{"x":"#.repeat(depth), "}".repeat(depth))).build();
    // The event itself and `data` are two levels.
    expect_delivered(&relay, &mut stream, &arrays(126));
    expect_delivered(&relay, &mut stream, &objects(127));
    for body in
        [arrays(127), objects(128), arrays(100_000), objects(100_000), "[".repeat(100_000), "{\"x\":".repeat(100_000)]
    {
        let detail = refused(&relay, &body, "invalid-json");
        assert!(detail.contains("128"), "{detail}");
        assert_eq!(relay.post_lines(&body).expect_refusal(400, "invalid-json")["line"], 1);
    }
}

#[test]
fn a_batch_is_all_or_nothing() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let events: Vec<String> = (0..300).map(|seq| event(&format!("s{}", seq % 7), seq).build()).collect();
    for fault in ["{", "{}", &command("control.pause", "s1").build()] {
        for at in [0, 150, 300] {
            let mut lines = events.clone();
            lines.insert(at, fault.to_owned());
            let response = relay.post_lines(lines.join("\n"));
            assert_eq!(response.json()["line"], at + 1, "{response:?}");
            assert!(matches!(response.status, 400 | 403));
        }
    }
    assert_eq!(relay.count("sessions"), 0, "nothing was ingested");
    relay.publish(&events);
    // And nothing was fanned out: the first thing the stream sees is the accepted batch.
    for _ in &events {
        assert!(events.contains(&stream.event()));
    }
    assert_eq!(Sse::replay(&relay, &[]).len(), events.len());
}

#[test]
fn lines_are_counted_from_one_with_the_blank_ones() {
    let relay = Relay::plain();
    let good = event("s", 1).build();
    for (body, line) in [
        ("{".to_owned(), 1),
        (format!("\n\n{{\n{good}"), 3),
        (format!("{good}\r\n\r\n{{\r\n"), 3),
        (format!("{good}\n{good}{good}"), 2),
        (format!("{good}\n[]"), 2),
        (format!("\r\n{good}\n\n\n{{}}\n{{"), 5),
    ] {
        let response = relay.post_lines(&body);
        assert_eq!((response.status, &response.json()["line"]), (400, &line.into()), "{body:?}");
    }
    for body in ["", "\n", "\r\n\r\n", "\n\n\n"] {
        relay.post_lines(body).expect_refusal(400, "invalid-json");
    }
}

#[test]
fn lines_end_in_lf_or_cr_lf_and_the_last_need_not() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let events: Vec<String> = (0..4).map(|seq| event("s", seq).build()).collect();
    let [a, b, c, d] = &events[..] else { unreachable!() };
    relay.post_lines(format!("{a}\n{b}\r\n\r\n\n{c}\r\n{d}")).expect(202, r#"{"accepted":4}"#);
    stream.expect(&events);
    relay.post_lines(format!("{a}\r\n")).expect(202, r#"{"accepted":1}"#);
    relay.post_lines(a).expect(202, r#"{"accepted":1}"#);
    stream.expect(&[a, a]);
    // A lone CR between tokens is white space of the event, not the end of a line.
    relay.post_lines(a.replacen(':', ":\r", 1)).expect(202, r#"{"accepted":1}"#);
    stream.expect(&[a]);
}

#[test]
fn commands_do_not_come_by_post() {
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    let mut stream = Sse::open(&relay, "/stream");
    let good = event("s", 1).build();
    for kind in [
        "control.attention.respond",
        "control.cancel",
        "control.pause",
        "control.resume",
        "x.acme.control.stop",
        "x.a.control.b.c",
    ] {
        let sent = command(kind, "s").build();
        assert_eq!(
            relay.post_lines(format!("{good}\n\n{sent}")).expect_refusal(403, "control-requires-duplex")["line"],
            3
        );
        relay.post(&sent).expect_refusal(403, "control-requires-duplex");
    }
    assert_eq!(relay.count("sessions"), 0);
    relay.publish(&[&good]);
    stream.expect(&[&good]);
}

#[test]
fn agent_events_are_live_only() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let sent = agent_event("agent.presence").build();
    relay.publish(&[&sent]);
    relay.publish(&[&sent]);
    stream.expect(&[&sent, &sent]);
    assert_eq!(relay.count("sessions"), 0);
    assert_eq!(Sse::replay(&relay, &[]), []);
}

#[test]
fn duplicates_count_and_are_forwarded_and_kept_once() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let first = event("s", 1).id("x").build();
    let other_source = event("s", 1).id("x").source("urn:test:other").build();
    let other_session = event("t", 1).id("x").build();
    let changed = event("s", 9).id("x").build();
    relay.publish(&[&first, &first, &other_source, &changed]);
    stream.expect(&[&first, &first, &other_source, &changed]);
    relay.publish(&[&first]);
    stream.expect(&[&first]);
    relay.publish(&[&other_session]);
    stream.expect(&[&other_session]);
    let from = r#"[{"session":"s","seq":0},{"session":"t","seq":0}]"#;
    let mut kept: Vec<String> = Sse::replay(&relay, &[("from", from)]).iter().map(|m| m.data().to_owned()).collect();
    kept.sort();
    let mut expected = [first, other_source, other_session];
    expected.sort();
    assert_eq!(kept, expected);
}

#[test]
fn a_request_after_a_202_sees_its_events() {
    let relay = Relay::start(|options| {
        options.env("AEP_CORES", 4);
    });
    for round in 0..60 {
        let sessions: Vec<String> = (0..5).map(|s| format!("r{round}-{s}")).collect();
        let events: Vec<String> = sessions.iter().map(|session| event(session, 1).build()).collect();
        relay.publish(&events);
        let filter = serde_json::json!({ "session": sessions }).to_string();
        let seen = Sse::replay(&relay, &[("filter", &filter)]);
        assert_eq!(seen.len(), events.len(), "round {round}: {seen:?}");
        assert_eq!(relay.count("sessions"), 5 * (round + 1));
    }
}

#[test]
fn a_stream_that_is_open_sees_every_event_accepted_after() {
    let relay = Relay::start(|options| {
        options.env("AEP_CORES", 4);
    });
    for round in 0..60 {
        let mut stream = Sse::open(&relay, "/stream");
        let sent = event(&format!("s{round}"), round).build();
        relay.publish(&[&sent]);
        stream.expect(&[&sent]);
    }
}
