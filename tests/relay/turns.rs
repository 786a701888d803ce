//! No peer holds a core: what is large is dealt with some at a time, and `turn_seconds` of `/metrics` tells (contract
//! §1).
//!
//! How long a turn takes depends on the machine and on what else it does, so times are bounded widely here: a core that
//! walked all at once stays over these bounds even alone on a fast machine. Where many turns are the point, they are
//! counted. That each slice is as small as it is to be is asserted in the unit tests of `relay::lines`,
//! `wire::json::scan`, `relay::event::sliced`, `relay::capture`, `relay::inflow` and `relay::owner`.

use std::sync::{Mutex, MutexGuard};
use std::thread;

use crate::support::*;

/// One after the other: each looks at times.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn one_core() -> Relay {
    Relay::start(|options| {
        options.env("AEP_CORES", 1);
    })
}

/// Turns of a relay.
#[derive(Debug)]
struct Turns {
    count: u64,
    /// Those that took more than half a second.
    long: u64,
}

/// The value of a sample, whose name may have labels.
fn value(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("aep_relay_{name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in\n{metrics}"))
}

fn turns_so_far(relay: &Relay) -> Turns {
    let metrics = relay.metrics();
    let count = value(&metrics, "turn_seconds_count");
    Turns { count, long: count - value(&metrics, "turn_seconds_bucket{le=\"0.5\"}") }
}

/// What the turns are like while something happens.
fn turns(relay: &Relay, act: impl FnOnce()) -> Turns {
    let before = turns_so_far(relay);
    act();
    let after = turns_so_far(relay);
    Turns { count: after.count - before.count, long: after.long - before.long }
}

#[test]
fn the_length_of_turns_is_told() {
    let relay = one_core();
    let before = turns_so_far(&relay);
    relay.publish(&[event("s", 1).build()]);
    let metrics = relay.metrics();
    assert!(metrics.contains("# TYPE aep_relay_turn_seconds histogram\n"), "{metrics}");
    let told = value(&metrics, "turn_seconds_count");
    assert!(told > before.count);
    assert_eq!(told, value(&metrics, "turn_seconds_bucket{le=\"+Inf\"}"));
    assert_eq!(told + 1, value(&metrics, "turns_total"), "all but the turn that tells");
}

#[test]
fn blank_lines_hold_no_core() {
    let _alone = alone();
    let relay = one_core();
    let mut body = vec![b'\n'; (16 << 20) - 1];
    body.push(b'x');
    let turns = turns(&relay, || {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let refused = relay.post_lines(&body);
                    refused.expect_refusal(400, "invalid-json");
                    assert_eq!(refused.json()["line"], 16 << 20, "every line is counted");
                });
            }
        });
    });
    // Each line is looked at twice, of a turn's budget of 256 KiB it costs 8 bytes.
    assert!(turns.count > 2 * 64 * 8, "{turns:?}");
    assert_eq!(turns.long, 0, "{turns:?}");
}

#[test]
fn too_many_events_come_before_an_invalid_one_wherever_they_stand() {
    let relay = one_core();
    let mut body = b"not json\n".to_vec();
    body.resize(8 << 20, b'\n');
    body.extend_from_slice("{}\n".repeat(10_000).as_bytes());
    relay.post_lines(&body).expect_refusal(413, "too-many-events");
    body.truncate(body.len() - 3);
    relay.post_lines(&body).expect_refusal(400, "invalid-json");
    relay.post_lines(vec![b'\n'; 8 << 20]).expect_refusal(400, "invalid-json");
    relay.post(vec![b' '; 8 << 20]).expect_refusal(400, "invalid-json");
}

/// An event of some 15 MiB, with what is left of it at `metadata`.
fn large(seq: u64, data: &str, left: &str) -> (String, String) {
    let event = event("s", seq).kind("tool.completed");
    (event.clone().capture("full").data(data).build(), event.capture("metadata").data(left).build())
}

#[test]
fn one_large_event_under_a_ceiling_holds_no_core() {
    let _alone = alone();
    let relay = one_core();
    let mut full = Sse::subscribe(&relay, &[]);
    let mut lowered = Sse::subscribe(&relay, &[("capture", "metadata")]);
    let members: String = (0..820_000).map(|n| format!(",\"k{n}\":{n}")).collect();
    let brackets = "[],".repeat(5 << 20);
    let shapes = [
        (format!("{{\"result\":\"{}\"}}", "x".repeat(15 << 20)), "{}".to_owned()),
        (format!("{{\"result\":1{members}}}"), format!("{{{}}}", &members[1..])),
        (format!("{{\"result\":[{brackets}1],\"other\":1}}"), "{\"other\":1}".to_owned()),
    ];
    let turns = turns(&relay, || {
        for (seq, (data, left)) in (1..).zip(&shapes) {
            let (event, expected) = large(seq, data, left);
            relay.post(&event).expect(202, r#"{"accepted":1}"#);
            lowered.expect(&[expected]);
            full.expect(&[event]);
        }
    });
    assert_eq!(turns.long, 0, "{turns:?}");
}

#[test]
fn a_large_event_among_others_keeps_its_place() {
    let relay = Relay::plain();
    let mut full = Sse::subscribe(&relay, &[]);
    let mut lowered = Ws::consumer(&relay, r#"{"session":"s"},"capture":"metadata""#);
    let (second, second_lowered) =
        large(2, &format!("{{\"a\":1,\n\"result\":\"{}\"}}", "x".repeat(3 << 20)), "{\"a\":1}");
    let second = second.replace('\n', " ");
    let (first, third) = (event("s", 1).build(), event("s", 3).build());
    let sent = [first.clone(), second, third.clone()];
    relay.publish(&sent);
    full.expect(&sent);
    lowered.expect(&[first, second_lowered, third]);
    // With line breaks it is one event all the same, of which only white space goes.
    let (fourth, _) = large(4, &format!("{{\"result\":[{}1]}}", "1,".repeat(1 << 20)), "");
    relay
        .post(fourth.replace(",\"data\"", ",\r\n  \"data\"").replace("[1,", "[ 1 ,\n"))
        .expect(202, r#"{"accepted":1}"#);
    full.expect(&[fourth]);
    relay
        .post(event("s", 5).data(&format!("{{\"a\":[{}}}", "1,".repeat(2 << 20))).build())
        .expect_refusal(400, "invalid-json");
}

#[test]
fn large_messages_of_a_websocket_keep_the_order_of_its_messages() {
    let relay = Relay::plain();
    let mut full = Sse::subscribe(&relay, &[]);
    let mut ws = Ws::hello(&relay, "emitter", "coder");
    let padding = |byte: &str| format!("{{\"x\":\"{}\"}}", byte.repeat(2 << 20));
    let sent = [
        event("s", 1).build(),
        event("s", 2).data(&padding("a")).build(),
        event("s", 3).build(),
        event("s", 4).data(&padding("b")).build(),
    ];
    for (index, event) in sent.iter().enumerate() {
        ws.text(event);
        // No event at all, a large one that breaks a rule, and a frame that is passed over.
        if index == 1 {
            ws.text(format!("{{\"aep\":{}", padding("c")));
            ws.text(event.replace("\"run.started\"", "\"run\"").replace("\"seq\":2", "\"seq\":-2"));
            ws.text(event.replace("\"seq\":2", "\"seq\":-2"));
        }
    }
    ws.text(r#"{"type":"ping","t":7}"#);
    assert_eq!(ws.json()["code"], "invalid-json");
    assert_eq!(ws.json()["code"], "invalid-event");
    assert_eq!(ws.json(), serde_json::json!({"type": "pong", "t": 7}));
    full.expect(&sent);
}

#[test]
fn replays_that_match_nothing_hold_no_core() {
    let _alone = alone();
    let relay = one_core();
    let padding = format!("{{\"x\":\"{}\"}}", "y".repeat(150));
    for session in 0..12 {
        let events: Vec<String> =
            (0..10_000).map(|seq| event(&format!("s{session}"), seq).data(&padding).build()).collect();
        relay.publish(&events);
    }
    let turns = turns(&relay, || {
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let parameters = [("from", "all"), ("live", "0"), ("filter", r#"{"run":"nothing"}"#)];
                    assert_eq!(Sse::replay(&relay, &parameters), []);
                });
            }
        });
    });
    // Ten times some 40 MB, of which a turn looks at half a MiB.
    assert!(turns.count > 600, "{turns:?}");
    assert_eq!(turns.long, 0, "{turns:?}");
}
