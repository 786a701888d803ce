//! attr-match from the wire: which events a filter lets through on every way to a consumer (contract §8).

use crate::support::*;
use serde_json::{Value, json};

/// Events of one session in ascending position, with ids `0`, `1`, ….
fn sample() -> Vec<String> {
    let builders = [
        event("s1", 1).kind("tool.completed"),
        event("s1", 2).kind("tool.failed").severity("warning").agent("codex").text("run", "r1").text("step", "t1"),
        event("s1", 3).kind("run.step").text("subject", "Bash").text("cause", "c1").source("urn:other"),
        event("s1", 4).kind("run.step.started").capture("none").severity("critical"),
        event("s1", 5).kind("x.acme.foo.bar").text("region", "eu-1").field("n", "5").field("flag", "true"),
        event("s1", 6)
            .kind("x.acme-2.foo.bar")
            .text("region", "5")
            .text("n", "5")
            .text("flag", "true")
            .severity("debug"),
        event("s1", 1).epoch(1).kind("attention.requested").severity("notice").capture("full").field("n", "-5"),
        unplaced("attention.routed", "s1").severity("error").capture("redacted").field("n", "9007199254740993"),
    ];
    builders.into_iter().enumerate().map(|(index, builder)| builder.id(&index.to_string()).build()).collect()
}

/// Filters and the samples they let through.
fn table() -> Vec<(Value, Vec<usize>)> {
    let all: Vec<usize> = (0..8).collect();
    vec![
        (json!({}), all.clone()),
        (json!({"type": "tool.completed"}), vec![0]),
        (json!({"type": ["tool.completed", "run.step"]}), vec![0, 2]),
        (json!({"type": "tool.*"}), vec![0, 1]),
        (json!({"type": ["tool.*", "attention.*"]}), vec![0, 1, 6, 7]),
        (json!({"type": ["tool.*", "tool.failed", "run.step.started"]}), vec![0, 1, 3]),
        (json!({"type": "run.step.*"}), vec![3]),
        (json!({"type": "run.*"}), vec![2, 3]),
        (json!({"type": "run.step"}), vec![2]),
        (json!({"type": "x.*"}), vec![4, 5]),
        (json!({"type": "x.acme.*"}), vec![4]),
        (json!({"type": "x.acme-2.*"}), vec![5]),
        (json!({"type": "x.acme.foo.*"}), vec![4]),
        (json!({"type": "x.acme.foo.bar.*"}), vec![]),
        (json!({"type": "to.*"}), vec![]),
        (json!({"type": "no.such.type"}), vec![]),
        (json!({"type": "Tool.completed"}), vec![]),
        (json!({"type": 5}), vec![]),
        (json!({"id": "3"}), vec![3]),
        (json!({"id": ["1", "7", "x"]}), vec![1, 7]),
        (json!({"id": 3}), vec![]),
        (json!({"agent": "codex"}), vec![1]),
        (json!({"agent": ["codex", "coder"]}), all.clone()),
        (json!({"agent": "Codex"}), vec![]),
        (json!({"agent": "code"}), vec![]),
        (json!({"session": "s1"}), all.clone()),
        (json!({"session": "s2"}), vec![]),
        (json!({"session": ["s2", "s1"]}), all.clone()),
        (json!({"source": "urn:other"}), vec![2]),
        (json!({"run": "r1"}), vec![1]),
        (json!({"step": "t1"}), vec![1]),
        (json!({"subject": "Bash"}), vec![2]),
        (json!({"cause": ["c1", "c2"]}), vec![2]),
        (json!({"run": ""}), vec![]),
        (json!({"epoch": 0}), vec![0, 1, 2, 3, 4, 5, 7]),
        (json!({"epoch": 1}), vec![6]),
        (json!({"epoch": [0, 1]}), all.clone()),
        (json!({"epoch": "0"}), vec![]),
        (json!({"severity": "info"}), vec![0, 2, 4]),
        (json!({"severity": ["debug", "error"]}), vec![5, 7]),
        (json!({"severity": "fatal"}), vec![]),
        (json!({"severity": {"gte": "notice"}}), vec![1, 3, 6, 7]),
        (json!({"severity": {"lte": "info"}}), vec![0, 2, 4, 5]),
        (json!({"severity": {"gte": "notice", "lte": "warning"}}), vec![1, 6]),
        (json!({"severity": {"gte": "error", "lte": "debug"}}), vec![]),
        (json!({"severity": {"gte": "debug"}}), all.clone()),
        (json!({"capture": "metadata"}), vec![0, 1, 2, 4, 5]),
        (json!({"capture": ["none", "full"]}), vec![3, 6]),
        (json!({"region": "eu-1"}), vec![4]),
        (json!({"region": "5"}), vec![5]),
        (json!({"region": 5}), vec![]),
        (json!({"n": 5}), vec![4]),
        (json!({"n": "5"}), vec![5]),
        (json!({"n": [5, "5", -5]}), vec![4, 5, 6]),
        (json!({"n": 9_007_199_254_740_992_i64}), vec![]),
        (json!({"n": 9_007_199_254_740_993_i64}), vec![7]),
        (json!({"flag": true}), vec![4]),
        (json!({"flag": "true"}), vec![5]),
        (json!({"flag": false}), vec![]),
        (json!({"flag": [true, "true"]}), vec![4, 5]),
        (json!({"absent": ["", 0, false]}), vec![]),
        (json!({"type": "tool.*", "severity": {"gte": "warning"}, "agent": "codex", "session": "s1"}), vec![1]),
        (json!({"type": "tool.*", "agent": "coder", "run": "r1"}), vec![]),
        (json!({"session": "s1", "type": "run.*", "id": ["2", "4"]}), vec![2]),
    ]
}

#[test]
fn a_filter_lets_through_what_matches_on_every_way() {
    let relay = Relay::plain();
    let sample = sample();
    let mut consumers: Vec<_> = table()
        .into_iter()
        .map(|(filter, matching)| {
            let text = filter.to_string();
            let stream = Sse::subscribe(&relay, &[("filter", &text)]);
            let socket = Ws::consumer(&relay, &text);
            (text, matching, stream, socket)
        })
        .collect();
    // Twice, so that whatever comes too much in the first round is in the way of the second.
    relay.publish(&sample);
    for line in &sample {
        relay.post(line).expect(202, r#"{"accepted":1}"#);
    }
    for (filter, matching, stream, socket) in &mut consumers {
        for index in matching.iter().chain(matching.iter()) {
            assert_eq!(stream.event(), sample[*index], "{filter} on a stream");
            assert_eq!(socket.message(), sample[*index], "{filter} on a WebSocket");
        }
    }
    for (filter, matching, ..) in &consumers {
        for from in ["all", r#"[{"session":"s1","seq":0}]"#] {
            let mut replayed: Vec<String> = Sse::replay(&relay, &[("filter", filter), ("from", from)])
                .iter()
                .map(|message| message.data().to_owned())
                .collect();
            replayed.sort();
            let mut expected: Vec<String> = matching.iter().map(|index| sample[*index].clone()).collect();
            expected.sort();
            assert_eq!(replayed, expected, "{filter} from {from}");
        }
    }
}

#[test]
fn events_without_a_session_match_like_others() {
    let relay = Relay::plain();
    let sent = agent_event("agent.heartbeat").agent("codex").build();
    let filters =
        ["{}", r#"{"type":"agent.*"}"#, r#"{"agent":"codex"}"#, r#"{"epoch":0}"#, r#"{"severity":{"lte":"info"}}"#];
    let mut streams = filters.map(|filter| Sse::subscribe(&relay, &[("filter", filter)]));
    let mut never = Sse::subscribe(&relay, &[("filter", r#"{"session":["s1","codex"]}"#)]);
    relay.publish(&[&sent]);
    for stream in &mut streams {
        stream.expect(&[&sent]);
    }
    let marker = event("s1", 1).build();
    relay.publish(&[&marker]);
    never.expect(&[&marker]);
}

#[test]
fn names_are_compared_after_unescaping_on_both_sides() {
    let relay = Relay::plain();
    let mut stream = Sse::subscribe(&relay, &[("filter", r#"{"s\u0065ssion":"caf\u00e9 \ud83d\ude00","ext":"a\/b"}"#)]);
    let wanted = event("café 😀", 1).field("ext", r#""a\u002fb""#).build();
    let escaped = event("x", 2)
        .field("ext", r#""a/b""#)
        .build()
        .replace(r#""session":"x""#, r#""s\u0065ssion":"caf\u00E9 \uD83D\uDE00""#);
    relay.publish(&[event("cafe 😀", 1).text("ext", "a/b").build(), wanted.clone(), escaped.clone()]);
    stream.expect(&[&wanted, &escaped]);
}

#[test]
fn invalid_filters_are_refused_on_both_bindings() {
    let relay = Relay::plain();
    let mut http = Http::connect(&relay);
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    let long_name = format!(r#"{{"{}":1}}"#, "a".repeat(21));
    for filter in [
        r#"{"aep":"0.1"}"#,
        r#"{"time":"2026"}"#,
        r#"{"seq":5}"#,
        r#"{"traceparent":"x"}"#,
        r#"{"data":{}}"#,
        r#"{"NotAnAttr":"y"}"#,
        r#"{"under_score":1}"#,
        r#"{"da-sh":1}"#,
        r#"{"":1}"#,
        r#"{"ü":1}"#,
        &long_name,
        "[]",
        "1",
        "\"x\"",
        "true",
        r#"{"type":"*"}"#,
        r#"{"type":"tool*"}"#,
        r#"{"type":"*.x"}"#,
        r#"{"type":"tool.*.x"}"#,
        r#"{"type":"tool.**"}"#,
        r#"{"type":".*"}"#,
        r#"{"type":"tool..*"}"#,
        r#"{"type":"Tool.*"}"#,
        r#"{"type":"to ol.*"}"#,
        r#"{"type":["tool.x","*"]}"#,
        r#"{"type":"t*ol.x"}"#,
        r#"{"agent":"claude*"}"#,
        r#"{"agent":"claude.*"}"#,
        r#"{"agent":["a","*"]}"#,
        r#"{"ext":"*"}"#,
        r#"{"session":"*"}"#,
        r#"{"severity":"*"}"#,
        r#"{"id":"\u002a"}"#,
        r#"{"agent":[]}"#,
        r#"{"agent":null}"#,
        r#"{"agent":[null]}"#,
        r#"{"agent":{}}"#,
        r#"{"agent":{"gte":"a"}}"#,
        r#"{"agent":[["a"]]}"#,
        r#"{"agent":[{}]}"#,
        r#"{"n":1.5}"#,
        r#"{"n":1.0}"#,
        r#"{"n":1e3}"#,
        r#"{"n":[1,2.5]}"#,
        r#"{"epoch":0.0}"#,
        r#"{"epoch":{"gte":1}}"#,
        r#"{"severity":{}}"#,
        r#"{"severity":{"gt":"info"}}"#,
        r#"{"severity":{"gte":"fatal"}}"#,
        r#"{"severity":{"gte":"info","eq":"info"}}"#,
        r#"{"severity":{"gte":1}}"#,
        r#"{"severity":{"gte":["info"]}}"#,
        r#"{"severity":{"gte":null}}"#,
        r#"{"severity":{"gte":"info","gte":"error"}}"#,
        r#"{"capture":{"gte":"none"}}"#,
        r#"{"agent":"a","agent":"b"}"#,
        r#"{"agent":"a","agent":"a"}"#,
        r#"{"agent":"a","\u0061gent":"b"}"#,
        r#"{"type":{"gte":"a"}}"#,
    ] {
        http.send(request("GET", &query("/stream", &[("filter", filter)]), &[], b""));
        let response = http.response();
        assert_eq!(response.status, 400, "{filter}: {response:?}");
        response.expect_refusal(400, "invalid-filter");
        socket.text(format!(r#"{{"type":"subscribe","id":"f","filter":{filter}}}"#));
        let error = socket.expect_error("invalid-filter");
        assert_eq!(error["id"], "f", "{filter}");
    }
    assert_eq!(relay.count("subscribers"), 0);
    socket.subscribe("f", r#""filter":{}"#);
}

#[test]
fn the_number_of_scalars_is_bounded() {
    let relay = Relay::plain();
    let filter = |count: usize| {
        let (agents, numbers) = (0..count).partition::<Vec<usize>, _>(|n| n % 2 == 0);
        let agents: Vec<String> = agents.iter().map(|n| format!("a{n}")).collect();
        match numbers[..] {
            [] => json!({ "agent": agents }),
            _ => json!({ "agent": agents, "n": numbers }),
        }
    };
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    for count in [1, 255, 256, 1023, 1024] {
        socket.subscribe(&format!("s{count}"), &format!(r#""filter":{}"#, filter(count)));
    }
    for count in [1025, 10_000] {
        socket.text(json!({"type": "subscribe", "id": "more", "filter": filter(count)}).to_string());
        let error = socket.expect_error("limit-exceeded");
        assert_eq!(error["id"], "more");
    }
    let over = query("/stream", &[("filter", &filter(1025).to_string())]);
    relay.get(&over).expect_refusal(400, "limit-exceeded");
    let sent = event("s", 1).agent("a1022").field("n", "1").build();
    relay.publish(&[&sent]);
    socket.expect(&[&sent]);

    let relay = Relay::start(|options| {
        options.env("AEP_MAX_SCALARS", 2);
    });
    let ask = |filter: &str| relay.get(&query("/stream", &[("filter", filter), ("live", "0")]));
    assert_eq!(ask(r#"{"agent":["a","b"]}"#).status, 200);
    assert_eq!(ask(r#"{"severity":{"gte":"info"},"agent":"a"}"#).status, 200);
    ask(r#"{"agent":["a","b"],"id":"c"}"#).expect_refusal(400, "limit-exceeded");
}

#[test]
fn a_filter_of_endless_nesting_is_refused() {
    let relay = Relay::plain();
    for deep in ["[".repeat(20_000), format!(r#"{{"agent":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000))] {
        let target = format!("/stream?filter={}", deep.replace('[', "%5B").replace(']', "%5D").replace('"', "%22"));
        relay.get(&target).expect_refusal(400, "invalid-filter");
    }
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    socket.text(format!(r#"{{"type":"subscribe","id":"f","filter":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000)));
    assert_eq!(socket.json()["type"], "error");
    socket.subscribe("f", "");
}

#[test]
fn only_the_tenant_asked_for_arrives_in_every_combination() {
    let relay = Relay::plain();
    let of = |tenant: &str, seq: u64| event("s", seq).text("tenant", tenant).build();
    let filter = r#"{"tenant":"a"}"#;
    let mut stream = Sse::subscribe(&relay, &[("filter", filter)]);
    let mut lowered = Sse::subscribe(&relay, &[("filter", filter), ("capture", "none")]);
    let mut socket = Ws::consumer(&relay, filter);
    let mut two = Ws::consumer(&relay, filter);
    two.subscribe("again", r#""filter":{"tenant":"a","severity":{"gte":"info"}},"capture":"metadata""#);
    let all: Vec<String> = (1..=40).map(|seq| of(if seq % 2 == 0 { "b" } else { "a" }, seq)).collect();
    relay.publish(&all[..20]);
    for line in &all[20..] {
        relay.post(line);
    }
    let wanted: Vec<&String> = all.iter().step_by(2).collect();
    stream.expect(&wanted);
    socket.expect(&wanted);
    two.expect(&wanted);
    for line in &wanted {
        assert_eq!(lowered.event(), format!(r#"{},"capture":"none"}}"#, &line[..line.len() - 1]));
    }
    let mut resumed = Vec::new();
    for (from, skipped) in [("\"all\"", 0), (r#"[{"session":"s","seq":0}]"#, 0), (r#"[{"session":"s","seq":1}]"#, 1)] {
        let mut stream = Sse::subscribe(&relay, &[("filter", filter), ("from", from.trim_matches('"'))]);
        stream.expect(&wanted[skipped..]);
        let mut socket = Ws::hello(&relay, "consumer", "resumer");
        socket.subscribe("r", &format!(r#""filter":{filter},"from":{from}"#));
        socket.expect(&wanted[skipped..]);
        resumed.push((stream, socket));
    }
    let live = [of("b", 41), of("a", 42)];
    relay.publish(&live);
    for (stream, socket) in &mut resumed {
        stream.expect(&live[1..]);
        socket.expect(&live[1..]);
    }
}

#[test]
fn of_many_subscriptions_only_the_matching_ones_hear() {
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "consumer", "watcher");
    for n in 0..1500 {
        let member = match n % 5 {
            0 => format!(r#"{{"session":"s{n}"}}"#),
            1 => format!(r#"{{"agent":"s{n}"}}"#),
            2 => format!(r#"{{"type":"tool.s{n}"}}"#),
            3 => format!(r#"{{"type":"tool.s{n}.*"}}"#),
            _ => format!(r#"{{"region":"s{n}"}}"#),
        };
        socket.text(format!(r#"{{"type":"subscribe","id":"{n}","filter":{member}}}"#));
    }
    for n in 0..1500 {
        assert_eq!(socket.json(), json!({"type": "subscribed", "id": n.to_string()}));
    }
    assert_eq!(relay.count("subscribers"), 1500);
    let sent = [
        event("s1000", 1).build(),
        event("s1001", 1).build(), // an agent's number, not a session's
        event("x", 1).agent("s1001").build(),
        event("x", 2).kind("tool.s1002").build(),
        event("x", 3).kind("tool.s1003").build(), // not strictly below the prefix
        event("x", 4).kind("tool.s1003.deep.er").build(),
        event("x", 5).text("region", "s1004").build(),
    ];
    for line in &sent {
        relay.publish(&[line]);
    }
    let mut seen: Vec<String> = (0..5).map(|_| socket.message()).collect();
    seen.sort();
    let mut expected: Vec<String> = [0, 2, 3, 5, 6].map(|index: usize| sent[index].clone()).to_vec();
    expected.sort();
    assert_eq!(seen, expected);
    socket.sync();
}
