//! Replay and resume: positions, exhaustion, eviction, and the seam between replay and live (contract §3).

use std::collections::VecDeque;
use std::thread;

use crate::support::*;

/// A resume position as JSON.
fn position(session: &str, epoch: u64, seq: u64) -> String {
    serde_json::json!({"session": session, "epoch": epoch, "seq": seq}).to_string()
}

/// `from` with one position.
fn from(session: &str, epoch: u64, seq: u64) -> String {
    format!("[{}]", position(session, epoch, seq))
}

/// One word per message: an event's SSE id, or its type if it has none; a comment behind a `#`.
fn outline(messages: &[Message]) -> Vec<String> {
    let word = |message: &Message| match message {
        Message::Event { id: Some(id), .. } => id.clone(),
        Message::Event { kind, .. } => kind.clone(),
        Message::Comment(text) => format!("#{text}"),
    };
    messages.iter().map(word).collect()
}

/// The outline of what a resume from there replays.
#[track_caller]
fn resumed(relay: &Relay, session: &str, epoch: u64, seq: u64) -> Vec<String> {
    outline(&Sse::replay(relay, &[("from", &from(session, epoch, seq))]))
}

fn publish_range(relay: &Relay, session: &str, range: std::ops::RangeInclusive<u64>) {
    let events: Vec<String> = range.map(|seq| event(session, seq).build()).collect();
    relay.publish(&events);
}

/// Starts a relay that keeps this many events per session and this many sessions.
fn bounded(events: usize, sessions: usize) -> Relay {
    Relay::start(|options| {
        options.env("AEP_BUFFER", events).env("AEP_MAX_SESSIONS", sessions);
    })
}

// ── positions ──

#[test]
fn a_resume_delivers_what_lies_strictly_after_it() {
    let relay = Relay::plain();
    publish_range(&relay, "s", 1..=4);
    publish_range(&relay, "other", 1..=4);
    assert_eq!(resumed(&relay, "s", 0, 2), ["s:0:3", "s:0:4"]);
    assert_eq!(resumed(&relay, "s", 0, 4), [""; 0]);
    assert_eq!(resumed(&relay, "s", 0, 9), [""; 0], "a position ahead of everything");
    assert_eq!(resumed(&relay, "s", 7, 0), [""; 0]);
}

#[test]
fn positions_order_by_epoch_first() {
    let relay = Relay::plain();
    for (epoch, seq) in [(1, 0), (0, 5), (2, 3), (0, 1), (1, 9), (0, 6)] {
        relay.publish(&[event("s", seq).epoch(epoch).build()]);
    }
    assert_eq!(
        outline(&Sse::replay(&relay, &[("from", "all")])),
        ["s:0:1", "s:0:5", "s:0:6", "s:1:0", "s:1:9", "s:2:3"]
    );
    assert_eq!(resumed(&relay, "s", 0, 5), ["s:0:6", "s:1:0", "s:1:9", "s:2:3"]);
    assert_eq!(resumed(&relay, "s", 0, 100), ["s:1:0", "s:1:9", "s:2:3"]);
    assert_eq!(resumed(&relay, "s", 1, 9), ["s:2:3"]);
}

#[test]
fn live_comes_in_order_of_arrival_and_replay_by_position() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    let sent: Vec<String> = [5, 1, 9, 3].map(|seq| event("s", seq).build()).to_vec();
    relay.publish(&sent);
    stream.expect(&sent);
    assert_eq!(outline(&Sse::replay(&relay, &[])), ["s:0:1", "s:0:3", "s:0:5", "s:0:9"]);
}

#[test]
fn equal_positions_stay_in_order_of_arrival() {
    let relay = Relay::plain();
    let sent: Vec<String> = [2, 1, 2, 1, 2].map(|seq| event("s", seq).build()).to_vec();
    relay.publish(&sent);
    let replayed: Vec<String> = Sse::replay(&relay, &[]).iter().map(|m| m.data().to_owned()).collect();
    assert_eq!(replayed, [1, 3, 0, 2, 4].map(|index: usize| sent[index].clone()));
}

#[test]
fn an_event_without_seq_goes_behind_the_highest_held() {
    let relay = Relay::plain();
    let routed = |n: u32| unplaced("attention.routed", "s").id(&format!("r{n}")).build();
    relay.publish(&[routed(0)]);
    relay.publish(&[event("s", 1).build(), event("s", 5).build(), routed(1), routed(2)]);
    relay.publish(&[event("s", 3).build(), event("s", 5).build(), event("s", 9).build(), routed(3)]);
    let ids = |parameters: &[(&str, &str)]| -> Vec<String> {
        let seqs = |m: &Message| match &m.json()["seq"] {
            serde_json::Value::Null => m.json()["id"].as_str().unwrap().to_owned(),
            seq => seq.to_string(),
        };
        Sse::replay(&relay, parameters).iter().map(seqs).collect()
    };
    assert_eq!(ids(&[("from", "all")]), ["r0", "1", "3", "5", "r1", "r2", "5", "9", "r3"]);
    assert_eq!(ids(&[("from", &from("s", 0, 9))]), ["r3"], "placed at the asked position");
    assert_eq!(ids(&[("from", &from("s", 0, 5))]), ["r1", "r2", "9", "r3"]);
    assert_eq!(ids(&[("from", &from("s", 0, 4))]), ["5", "r1", "r2", "5", "9", "r3"]);
    assert_eq!(ids(&[("from", &from("s", 0, 1))]), ["3", "5", "r1", "r2", "5", "9", "r3"]);
}

#[test]
fn an_event_without_seq_makes_a_session_and_counts() {
    let relay = bounded(3, 10);
    relay.publish(&[unplaced("attention.routed", "s").build()]);
    assert_eq!(relay.count("sessions"), 1);
    relay.publish(&[event("s", 1).build(), unplaced("attention.routed", "s").build(), event("s", 2).build()]);
    assert_eq!(outline(&Sse::replay(&relay, &[])), ["s:0:1", "attention.routed", "s:0:2"]);
}

// ── exhaustion ──

#[test]
fn a_resume_into_what_was_evicted_is_told_the_earliest_position() {
    let relay = bounded(3, 10);
    publish_range(&relay, "s", 1..=5);
    let rest = ["s:0:3", "s:0:4", "s:0:5"];
    let announced = ["#replay-exhausted s 0:3", "s:0:3", "s:0:4", "s:0:5"];
    assert_eq!(resumed(&relay, "s", 0, 0), announced);
    assert_eq!(resumed(&relay, "s", 0, 1), announced);
    assert_eq!(resumed(&relay, "s", 0, 2), rest, "nothing above this position is gone");
    assert_eq!(resumed(&relay, "s", 0, 3), rest[1..]);
    assert_eq!(outline(&Sse::replay(&relay, &[("from", "all")])), rest, "all never announces");
    assert_eq!(outline(&Sse::replay(&relay, &[])), rest, "nor does a replay without a position");
}

#[test]
fn one_notice_names_the_gap_of_a_long_absence() {
    let relay = bounded(100, 10);
    publish_range(&relay, "s", 1..=10);
    publish_range(&relay, "s", 11..=510);
    let messages = resumed(&relay, "s", 0, 10);
    assert_eq!((messages.len(), messages[0].as_str()), (101, "#replay-exhausted s 0:411"));
    assert_eq!((messages[1].as_str(), messages[100].as_str()), ("s:0:411", "s:0:510"));
}

#[test]
fn a_position_below_the_first_ever_admitted_is_exhausted_unless_adjacent() {
    let relay = Relay::plain();
    publish_range(&relay, "s", 5..=6);
    assert_eq!(resumed(&relay, "s", 0, 3), ["#replay-exhausted s 0:5", "s:0:5", "s:0:6"]);
    assert_eq!(resumed(&relay, "s", 0, 4), ["s:0:5", "s:0:6"]);
    relay.publish(&[event("e", 0).epoch(1).build()]);
    assert_eq!(resumed(&relay, "e", 0, 9), ["#replay-exhausted e 1:0", "e:1:0"], "another epoch is never adjacent");
    relay.publish(&[event("z", 0).build()]);
    assert_eq!(resumed(&relay, "z", 0, 0), [""; 0]);
}

#[test]
fn a_gap_in_the_numbers_is_no_gap_in_the_history() {
    let relay = Relay::plain();
    relay.publish(&[event("s", 1).build(), event("s", 7).build(), event("s", 0).epoch(3).build()]);
    assert_eq!(resumed(&relay, "s", 0, 1), ["s:0:7", "s:3:0"]);
    assert_eq!(resumed(&relay, "s", 0, 4), ["s:0:7", "s:3:0"]);
    assert_eq!(resumed(&relay, "s", 0, 7), ["s:3:0"]);
    assert_eq!(resumed(&relay, "s", 2, 0), ["s:3:0"]);
}

#[test]
fn a_late_event_below_the_evicted_ones_leaves_first() {
    let relay = bounded(2, 10);
    publish_range(&relay, "s", 3..=4);
    relay.publish(&[event("s", 1).build()]);
    assert_eq!(resumed(&relay, "s", 0, 2), ["s:0:3", "s:0:4"]);
    assert_eq!(resumed(&relay, "s", 0, 0), ["#replay-exhausted s 0:3", "s:0:3", "s:0:4"]);
    relay.publish(&[event("s", 1).build()]);
    assert_eq!(outline(&Sse::replay(&relay, &[])), ["s:0:3", "s:0:4"]);
}

#[test]
fn the_announcement_does_not_depend_on_the_filter() {
    let relay = bounded(3, 10);
    publish_range(&relay, "s", 1..=4);
    relay.publish(&[event("s", 5).kind("tool.failed").build()]);
    let replayed = Sse::replay(&relay, &[("from", &from("s", 0, 1)), ("filter", r#"{"type":"tool.failed"}"#)]);
    assert_eq!(outline(&replayed), ["#replay-exhausted s 0:3", "s:0:5"]);
    let replayed = Sse::replay(&relay, &[("from", &from("s", 0, 1)), ("filter", r#"{"type":"never.seen"}"#)]);
    assert!(outline(&replayed).len() <= 1, "{replayed:?}");
}

#[test]
fn the_earliest_position_is_that_of_an_event_with_seq() {
    let relay = bounded(2, 10);
    publish_range(&relay, "s", 1..=3);
    relay.publish(&[unplaced("attention.routed", "s").build()]);
    assert_eq!(resumed(&relay, "s", 0, 1), ["#replay-exhausted s 0:3", "s:0:3", "attention.routed"]);
    relay.publish(&[unplaced("attention.routed", "s").build()]);
    assert_eq!(
        resumed(&relay, "s", 0, 1),
        ["#replay-exhausted s 0:4", "attention.routed", "attention.routed"],
        "with none held it is the one right after the highest ever admitted"
    );
}

#[test]
fn a_quiet_session_is_not_exhausted() {
    let relay = Relay::plain();
    publish_range(&relay, "s", 1..=1);
    publish_range(&relay, "other", 1..=500);
    assert_eq!(resumed(&relay, "s", 0, 1), [""; 0]);
    publish_range(&relay, "s", 2..=2);
    assert_eq!(resumed(&relay, "s", 0, 1), ["s:0:2"]);
}

#[test]
fn an_announcement_names_any_session_without_breaking_the_stream() {
    let relay = bounded(1, 50);
    for session in ["with space", "größe 日本 😀", "a:b", "quo\"te", "\u{2028}"] {
        publish_range(&relay, session, 1..=3);
        assert_eq!(resumed(&relay, session, 0, 1)[0], format!("#replay-exhausted {session} 0:3"), "{session:?}");
    }
    for session in ["a\nb", "a\r\n\r\ndata: x", "\0", "tab\t", "\u{7f}", "\u{1b}[0m\"\\"] {
        publish_range(&relay, session, 1..=3);
        let announced = &resumed(&relay, session, 0, 1)[0];
        let name = announced.strip_prefix("#replay-exhausted ").and_then(|rest| rest.strip_suffix(" 0:3"));
        let name = name.unwrap_or_else(|| panic!("{announced}"));
        assert!(!name.contains(char::is_control), "{name:?}");
        assert_eq!(serde_json::from_str::<String>(name).expect("a JSON string"), session);
    }
}

#[test]
fn the_last_position_there_is_has_nothing_behind_it() {
    const LAST: u64 = 9_223_372_036_854_775_807;
    let relay = bounded(1, 1);
    for seq in [LAST - 1, LAST] {
        relay.publish(&[event("s", seq).epoch(LAST).build()]);
    }
    let last = format!("s:{LAST}:{LAST}");
    assert_eq!(resumed(&relay, "s", LAST, LAST - 1), std::slice::from_ref(&last));
    assert_eq!(resumed(&relay, "s", LAST, LAST), [""; 0]);
    assert_eq!(resumed(&relay, "s", 0, 0), [format!("#replay-exhausted s {LAST}:{LAST}"), last]);
    publish_range(&relay, "other", 1..=1);
    assert_eq!(resumed(&relay, "s", LAST, LAST), [""; 0]);
    let announced = resumed(&relay, "s", LAST, LAST - 1);
    assert!(announced.len() == 1 && announced[0].starts_with("#replay-exhausted s "), "{announced:?}");
}

// ── whole sessions ──

#[test]
fn the_least_recently_written_session_goes() {
    let relay = bounded(10, 3);
    for session in ["a", "b", "c"] {
        publish_range(&relay, session, 1..=2);
    }
    publish_range(&relay, "a", 3..=3);
    assert_eq!(relay.count("sessions"), 3);
    publish_range(&relay, "d", 1..=1);
    assert_eq!(relay.count("sessions"), 3);
    assert_eq!(resumed(&relay, "b", 0, 0), ["#replay-exhausted b 0:3"], "the one right after the highest");
    assert_eq!(resumed(&relay, "b", 0, 1), ["#replay-exhausted b 0:3"]);
    assert_eq!(resumed(&relay, "b", 0, 2), [""; 0], "nothing above this was evicted");
    assert_eq!(resumed(&relay, "a", 0, 0), ["a:0:1", "a:0:2", "a:0:3"]);
    assert_eq!(resumed(&relay, "c", 0, 1), ["c:0:2"]);
}

#[test]
fn reading_does_not_refresh_a_session_and_a_duplicate_does_not_either() {
    let relay = bounded(10, 2);
    let first = event("a", 1).build();
    relay.publish(&[&first]);
    publish_range(&relay, "b", 1..=1);
    relay.publish(&[&first]);
    assert_eq!(resumed(&relay, "a", 0, 0), ["a:0:1"]);
    relay.publish(&[agent_event("agent.presence").build()]);
    publish_range(&relay, "c", 1..=1);
    assert_eq!(resumed(&relay, "a", 0, 0), ["#replay-exhausted a 0:2"]);
    assert_eq!(resumed(&relay, "b", 0, 0), ["b:0:1"]);
}

#[test]
fn the_session_cap_is_exact_across_cores() {
    let relay = Relay::start(|options| {
        options.env("AEP_CORES", 4).env("AEP_MAX_SESSIONS", 20);
    });
    for n in 0..100 {
        publish_range(&relay, &format!("s{n}"), 1..=1);
        assert_eq!(relay.count("sessions"), 20.min(n + 1));
    }
    // One batch over the cap: the earlier lines leave for the later ones.
    let batch: Vec<String> = (0..60).map(|n| event(&format!("t{n}"), 1).build()).collect();
    relay.publish(&batch);
    assert_eq!(relay.count("sessions"), 20);
    let mut kept: Vec<String> = outline(&Sse::replay(&relay, &[]));
    kept.sort();
    let mut expected: Vec<String> = (40..60).map(|n| format!("t{n}:0:1")).collect();
    expected.sort();
    assert_eq!(kept, expected);
}

/// Sends each pair of events in order: to the least recently written session, and to a new one over the cap. The former
/// keeps its history, the next one goes, on any number of cores.
fn refreshed_before_created(cores: usize, mut send: impl FnMut(&Relay, [String; 2])) {
    let relay = Relay::start(|options| {
        options.env("AEP_CORES", cores).env("AEP_MAX_SESSIONS", 8);
    });
    // Sessions from the least to the most recently written, with the highest `seq` each has.
    let mut sessions: VecDeque<(String, u64)> = (0..8).map(|n| (format!("s{n}"), 1)).collect();
    for (session, _) in &sessions {
        publish_range(&relay, session, 1..=1);
    }
    for round in 8..80 {
        let (oldest, highest) = sessions.pop_front().unwrap();
        let (next, next_highest) = sessions.pop_front().unwrap();
        let new = format!("s{round}");
        send(&relay, [event(&oldest, highest + 1).build(), event(&new, 1).build()]);
        let kept: Vec<String> = (1..=highest + 1).map(|seq| format!("{oldest}:0:{seq}")).collect();
        assert_eq!(resumed(&relay, &oldest, 0, 0), kept, "{cores} cores, round {round}: written before {new} came");
        let evicted = format!("#replay-exhausted {next} 0:{}", next_highest + 1);
        assert_eq!(resumed(&relay, &next, 0, 0), [evicted], "{cores} cores, round {round}: the least recently written");
        sessions.extend([(oldest, highest + 1), (new, 1)]);
    }
}

#[test]
fn what_a_batch_writes_first_is_refreshed_before_what_it_creates_next() {
    for cores in [1, 2, 4] {
        refreshed_before_created(cores, |relay, events| relay.publish(&events));
    }
}

#[test]
fn what_a_websocket_writes_first_is_refreshed_before_what_it_creates_next() {
    for cores in [1, 2, 4] {
        let mut socket = None;
        refreshed_before_created(cores, |relay, events| {
            let socket = socket.get_or_insert_with(|| Ws::hello(relay, "emitter", "coder"));
            events.iter().for_each(|event| socket.text(event));
            socket.sync();
        });
    }
}

#[test]
fn a_batch_whose_client_has_gone_is_settled_all_the_same() {
    for cores in [1, 4] {
        let relay = Relay::start(|options| {
            options.env("AEP_CORES", cores).env("AEP_MAX_SESSIONS", 4);
        });
        for round in 0..10 {
            let batch: Vec<String> = (0..300).map(|n| event(&format!("s{round}-{n}"), 1).build()).collect();
            let mut http = Http::connect(&relay);
            let fields = [("Content-Type", "application/x-ndjson")];
            http.send(request("POST", "/events", &fields, batch.join("\n").as_bytes()));
            drop(http);
        }
        // Whether a batch came in whole before its client was gone or not, nothing of it stays over the cap.
        relay.publish(&(0..5).map(|n| event(&format!("last{n}"), 1).build()).collect::<Vec<_>>());
        wait_until("the cap is kept", || relay.count("sessions") == 4 && relay.metric("sessions", "") == 4);
    }
}

#[test]
fn an_evicted_session_that_comes_back_remembers_its_gap() {
    let relay = bounded(10, 1);
    publish_range(&relay, "a", 1..=4);
    publish_range(&relay, "b", 1..=1);
    publish_range(&relay, "a", 5..=6);
    assert_eq!(resumed(&relay, "a", 0, 4), ["a:0:5", "a:0:6"]);
    assert_eq!(resumed(&relay, "a", 0, 3), ["#replay-exhausted a 0:5", "a:0:5", "a:0:6"]);
}

#[test]
fn an_unknown_session_is_judged_by_its_first_event() {
    let relay = Relay::plain();
    let positions = format!(
        "[{},{},{},{}]",
        position("adjacent", 0, 5),
        position("gap", 0, 5),
        position("epoch", 0, 5),
        position("below", 0, 5)
    );
    let mut stream = Sse::subscribe(&relay, &[("from", &positions)]);
    for (session, epoch, seq, announced) in [
        ("adjacent", 0, 6, false),
        ("gap", 0, 9, true),
        ("epoch", 1, 6, true),
        ("gap", 0, 20, false),
        ("adjacent", 0, 30, false),
    ] {
        let sent = event(session, seq).epoch(epoch).build();
        relay.publish(&[&sent]);
        if announced {
            assert_eq!(stream.comment(), format!("replay-exhausted {session} {epoch}:{seq}"));
        }
        stream.expect(&[&sent]);
    }
    assert_eq!(resumed(&relay, "never heard of", 0, 5), [""; 0]);
}

// ── how a position is given ──

#[test]
fn from_takes_positions_in_every_documented_form() {
    let relay = Relay::plain();
    for session in ["a", "b"] {
        publish_range(&relay, session, 1..=3);
        relay.publish(&[event(session, 1).epoch(1).build()]);
    }
    for (from, expected) in [
        (r#"[{"session":"a","seq":2}]"#, &["a:0:3", "a:1:1"][..]),
        (r#"[{"session":"a","epoch":1,"seq":0}]"#, &["a:1:1"]),
        (r#"[{"seq":2,"note":null,"session":"a","epoch":0,"time":[1.5]}]"#, &["a:0:3", "a:1:1"]),
        (r#"[{"session":"a","seq":3},{"session":"a","seq":2}]"#, &["a:0:3", "a:1:1"]),
        (r#"[{"session":"a","seq":2},{"session":"a","epoch":1,"seq":1}]"#, &["a:0:3", "a:1:1"]),
        (r#" [ {"session" : "\u0061" , "seq" : 2} ] "#, &["a:0:3", "a:1:1"]),
        (r#"[{"session":"a","epoch":9223372036854775807,"seq":9223372036854775807}]"#, &[]),
    ] {
        assert_eq!(outline(&Sse::replay(&relay, &[("from", from)])), expected, "{from}");
    }
    let both = format!("[{},{}]", position("a", 0, 3), position("b", 1, 0));
    let mut outlines = outline(&Sse::replay(&relay, &[("from", &both)]));
    outlines.sort();
    assert_eq!(outlines, ["a:1:1", "b:1:1"]);
}

#[test]
fn an_empty_list_of_positions_replays_nothing() {
    let relay = Relay::plain();
    publish_range(&relay, "s", 1..=3);
    let mut stream = Sse::subscribe(&relay, &[("from", "[]")]);
    let mut plain = Sse::open(&relay, "/stream");
    let sent = event("s", 4).build();
    relay.publish(&[&sent]);
    stream.expect(&[&sent]);
    plain.expect(&[&sent]);
}

#[test]
fn from_all_replays_every_session_and_then_goes_live() {
    let relay = bounded(50, 100);
    for n in 0..40 {
        publish_range(&relay, &format!("s{n}"), 1..=60);
    }
    let mut stream = Sse::subscribe(&relay, &[("from", "all")]);
    let mut next = [11; 40];
    for _ in 0..40 * 50 {
        let event = stream.message().json();
        let session: usize = event["session"].as_str().unwrap()[1..].parse().unwrap();
        assert_eq!(event["seq"], next[session], "each session ascends");
        next[session] += 1;
    }
    assert_eq!(next, [61; 40]);
    let sent = event("s0", 61).build();
    relay.publish(&[&sent]);
    stream.expect(&[&sent]);
}

/// The outline of a replay asked for by `Last-Event-ID`.
fn by_last_event_id(relay: &Relay, target: &str, id: &[u8]) -> Vec<String> {
    let head = format!("GET {target} HTTP/1.1\r\nHost: r\r\nLast-Event-ID: ");
    let (mut stream, _) = Sse::send(relay, &[head.as_bytes(), id, b"\r\n\r\n"].concat());
    outline(&stream.rest())
}

#[test]
fn last_event_id_is_a_position_split_from_the_right() {
    let relay = bounded(3, 50);
    for session in ["s", "a:b:c", "größe 日本", ":", "x:0:1"] {
        publish_range(&relay, session, 1..=3);
        let id = format!("{session}:0:2");
        let expected = [format!("{session}:0:3"), "#replay-complete".to_owned()];
        assert_eq!(by_last_event_id(&relay, "/stream?live=0", id.as_bytes()), expected, "{session:?}");
    }
    publish_range(&relay, "s", 4..=5);
    assert_eq!(
        by_last_event_id(&relay, "/stream?live=0", b"s:0:1"),
        ["#replay-exhausted s 0:3", "s:0:3", "s:0:4", "s:0:5", "#replay-complete"]
    );
    assert_eq!(by_last_event_id(&relay, "/stream?live=0&from=", b"s:0:4"), ["s:0:5", "#replay-complete"]);
    let target = query("/stream", &[("live", "0"), ("from", &from("s", 0, 3))]);
    assert_eq!(
        by_last_event_id(&relay, &target, b"s:0:4"),
        ["s:0:4", "s:0:5", "#replay-complete"],
        "`from` counts first"
    );
}

#[test]
fn a_malformed_last_event_id_is_ignored() {
    let relay = Relay::plain();
    publish_range(&relay, "s", 1..=2);
    for id in [
        &b""[..],
        b"s",
        b"s:1",
        b"s:0:",
        b"s::1",
        b":0:1",
        b"s:0:x",
        b"s:-1:1",
        b"s:0:-1",
        b"s:0:1.0",
        b"s:0:9223372036854775808",
        b"s:0:+1",
        b"s:0: 1",
        b"\xff:0:1",
        b"s\xc3:0:1",
        b"s:0:0x1",
        "s:0:1".repeat(8000).replace(':', ".").as_bytes(),
        format!("s:0:{}", "1".repeat(40_000)).as_bytes(),
    ] {
        // Without any position `live=0` replays everything.
        let seen = by_last_event_id(&relay, "/stream?live=0", id);
        assert_eq!(seen, ["s:0:1", "s:0:2", "#replay-complete"], "{:?}", String::from_utf8_lossy(id));
    }
    // A control character makes the head itself malformed, or the id is ignored; never a crash or a cut id.
    for id in [&b"s\x01:0:1"[..], b"s\x7f:0:1"] {
        let head = b"GET /stream?live=0 HTTP/1.1\r\nHost: r\r\nLast-Event-ID: ";
        let (_, response) = Http::exchange(&relay, [head, id, b"\r\n\r\n"].concat());
        assert!(response.status == 400 || response.text().contains("id: s:0:1\n"), "{response:?}");
    }
}

#[test]
fn a_reconnect_by_last_event_id_goes_on_live() {
    let relay = Relay::plain();
    let mut stream = Sse::open(&relay, "/stream");
    publish_range(&relay, "s", 1..=2);
    let mut last = String::new();
    for _ in 0..2 {
        match stream.message() {
            Message::Event { id: Some(id), .. } => last = id,
            other => panic!("{other:?}"),
        }
    }
    drop(stream);
    let missed: Vec<String> = (3..=5).map(|seq| event("s", seq).build()).collect();
    relay.publish(&missed);
    let mut stream = Sse::open_with(&relay, "/stream", &[("Last-Event-ID", &last)]);
    stream.expect(&missed);
    let sent = event("s", 6).build();
    relay.publish(&[&sent]);
    stream.expect(&[&sent]);
}

// ── from replay to live ──

#[test]
fn nothing_is_lost_or_doubled_between_replay_and_live() {
    const EVENTS: u64 = 4000;
    let relay = Relay::plain();
    publish_range(&relay, "s", 1..=1000);
    thread::scope(|scope| {
        scope.spawn(|| {
            for first in (1001..=EVENTS).step_by(20) {
                publish_range(&relay, "s", first..=first + 19);
            }
        });
        for reader in 0..12 {
            let relay = &relay;
            scope.spawn(move || {
                let mut ws = None;
                let mut sse = None;
                if reader % 2 == 0 {
                    sse = Some(Sse::subscribe(relay, &[("from", &from("s", 0, 0))]));
                } else {
                    let mut socket = Ws::hello(relay, "consumer", "reader");
                    socket.subscribe("a", &format!(r#""from":{}"#, from("s", 0, 0)));
                    ws = Some(socket);
                }
                for seq in 1..=EVENTS {
                    let text = match (&mut sse, &mut ws) {
                        (Some(stream), _) => stream.event(),
                        (_, Some(socket)) => socket.message(),
                        _ => unreachable!(),
                    };
                    let event: serde_json::Value = serde_json::from_str(&text).unwrap();
                    assert_eq!(event["seq"], seq, "reader {reader}");
                }
            });
        }
    });
}

#[test]
fn a_replay_larger_than_the_sockets_buffers_arrives_whole() {
    let relay = Relay::plain();
    let padding = format!(r#"{{"p":"{}"}}"#, "x".repeat(10_000));
    let sent: Vec<String> = (1..=2000).map(|seq| event("s", seq).data(&padding).build()).collect();
    for batch in sent.chunks(500) {
        relay.publish(batch);
    }
    let mut stream = Sse::subscribe(&relay, &[("from", "all")]);
    let live = event("s", 2001).build();
    relay.publish(&[&live]);
    for (index, text) in sent.iter().enumerate() {
        assert!(stream.event() == *text, "event {index}");
    }
    stream.expect(&[&live]);
}

#[test]
fn a_replay_overtaken_by_eviction_announces_again() {
    let relay = bounded(400, 10);
    let padding = format!(r#"{{"p":"{}"}}"#, "x".repeat(100_000));
    let placed = |seq| event("s", seq).data(&padding).build();
    let publish = |range: std::ops::Range<u64>| range.for_each(|seq| relay.publish(&[placed(seq)]));
    publish(1..401);
    // 40 MB wait for a reader that does not read; meanwhile most of them are evicted.
    let mut stream = Sse::subscribe(&relay, &[("from", &from("s", 0, 0))]);
    publish(401..1201);
    let mut expected = 1;
    let mut announcements = 0;
    while expected <= 1200 {
        match stream.message() {
            Message::Event { id, .. } => {
                assert_eq!(id, Some(format!("s:0:{expected}")));
                expected += 1;
            }
            Message::Comment(text) => {
                let earliest =
                    text.strip_prefix("replay-exhausted s 0:").expect("an announcement").parse::<u64>().unwrap();
                assert!(earliest > expected, "{text} while {expected} was due");
                expected = earliest;
                announcements += 1;
            }
        }
    }
    assert!(announcements >= 1, "the sockets cannot have held forty megabytes");
}
