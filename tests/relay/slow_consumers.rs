//! Consumers that fall behind (contract §9): they delay nobody, hold a bounded memory, lose nothing but what they are
//! told, and resume exactly.

use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use crate::support::*;
use serde_json::{Value, json};

/// The smallest body limit that lets a batch of [`BATCH`] events through; write queues are this and 64 KiB.
const BODY: usize = 256 << 10;
const BATCH: u64 = 200;
const KIB: usize = 1 << 10;

/// An event of about a kilobyte.
fn sized(session: &str, seq: u64, severity: &str) -> String {
    event(session, seq).severity(severity).data(&format!(r#"{{"text":"{}"}}"#, "x".repeat(850))).build()
}

fn series(session: &str, seqs: std::ops::RangeInclusive<u64>, severity: &str) -> Vec<String> {
    seqs.map(|seq| sized(session, seq, severity)).collect()
}

/// Publishes in batches of [`BATCH`].
#[track_caller]
fn publish_all(relay: &Relay, events: &[String]) {
    for batch in events.chunks(BATCH as usize) {
        relay.publish(batch);
    }
}

fn seq_of(event: &str) -> u64 {
    serde_json::from_str::<Value>(event).unwrap()["seq"].as_u64().expect("an event with seq")
}

/// Reads what a stalled stream still holds: events in order from 1, and the clean end. Answers the last `seq`.
#[track_caller]
fn drain_stream(stream: &mut Sse, sent: &[String]) -> usize {
    let mut seen = 0;
    for message in stream.rest() {
        if let Message::Event { data, .. } = message {
            assert_eq!(data, sent[seen], "in order and whole");
            seen += 1;
        }
    }
    stream.expect_end();
    seen
}

/// Reads what a stalled socket still holds: events in order, dropped ones announced, then the closing frame with the
/// position of the last one, then code 1013. Answers how many of `sent` have passed, and the positions.
#[track_caller]
fn drain_socket(ws: &mut Ws, sent: &[String], session: &str) -> (usize, Value) {
    let mut passed = 0;
    let mut last = 0;
    let closing = loop {
        let message = ws.message();
        if sent.get(passed) == Some(&message) {
            passed += 1;
            last = passed;
            continue;
        }
        let frame: Value = serde_json::from_str(&message).unwrap();
        if frame["type"] != "dropped" {
            break frame;
        }
        passed += frame["count"].as_u64().expect("a count") as usize;
    };
    let delivered = json!([{"sub": "s", "session": session, "epoch": 0, "seq": last}]);
    assert_eq!(closing, json!({"type": "closing", "reason": "slow-consumer", "delivered": delivered}));
    ws.expect_close(1013);
    (last, delivered)
}

// ── isolation ──

#[test]
fn stalled_readers_are_cut_and_resume_and_nobody_else_notices() {
    const EVENTS: u64 = 10_000;
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", 1024 * KIB);
    });
    let mut flock = Flock::new();
    flock.add_streams(&relay, 20, &[]);
    flock.add_websockets(&relay, 20, "{}");
    let mut streams: Vec<Sse> = (0..3).map(|_| Sse::narrow(&relay, &[])).collect();
    let mut sockets: Vec<Ws> = (0..3)
        .map(|_| {
            let mut ws = Ws::narrow(&relay, "consumer", "watcher", "{}");
            ws.subscribe("s", "");
            ws
        })
        .collect();

    let sent = series("s", 1..=EVENTS, "notice");
    let mut positions: Vec<(usize, Option<Value>)> = Vec::new();
    thread::scope(|scope| {
        let publisher = scope.spawn(|| publish_all(&relay, &sent));
        let healthy = scope.spawn(|| {
            let mut next = vec![0; flock.len()];
            flock.drive(next.len() * sent.len(), |member, piece| {
                assert_ne!(piece, Piece::End, "consumer {member} was cut");
                for event in piece.events() {
                    assert!(event == sent[next[member]].as_bytes(), "consumer {member} at {}", next[member]);
                    next[member] += 1;
                }
                piece.events().count()
            });
        });
        // They begin to read when they are cut: there is a second for the goodbye.
        wait_until("a stalled reader is cut", || relay.metric("slow_consumers", "") > 0);
        let sent = &sent;
        let streams: Vec<_> =
            streams.iter_mut().map(|stream| scope.spawn(|| (drain_stream(stream, sent), None))).collect();
        let sockets: Vec<_> = sockets
            .iter_mut()
            .map(|ws| {
                scope.spawn(|| {
                    let (seen, delivered) = drain_socket(ws, sent, "s");
                    (seen, Some(delivered))
                })
            })
            .collect();
        positions.extend(streams.into_iter().chain(sockets).map(|reader| reader.join().unwrap()));
        publisher.join().unwrap();
        healthy.join().unwrap();
    });
    assert_eq!(relay.metric("slow_consumers", ""), 6);
    assert_eq!(relay.metric("dropped", ""), 0);

    for (seen, delivered) in positions {
        assert!(seen < sent.len(), "it was cut");
        let delivered = delivered.unwrap_or_else(|| json!([{"session": "s", "seq": seen}]));
        let replayed = Sse::replay(&relay, &[("from", &delivered.to_string())]);
        let replayed: Vec<&str> = replayed.iter().map(Message::data).collect();
        assert!(replayed == sent[seen..], "resumed exactly behind {seen}: {} events", replayed.len());
    }
}

/// The smallest queue there may be holds three events of the largest size and a little more; bursts come one after
/// another. Whoever reads is not cut: publishers wait.
#[test]
fn readers_that_read_are_not_cut_at_the_smallest_queue() {
    for (body, batch) in [(BODY, 200), (64 * KIB, 50), (4 * KIB, 3)] {
        let relay = Relay::start(|options| {
            options.env("AEP_MAX_BODY", body);
        });
        let mut flock = Flock::new();
        flock.add_streams(&relay, 20, &[]);
        flock.add_websockets(&relay, 20, "{}");
        let sessions = ["a", "b", "c"];
        let sent: Vec<Vec<String>> = sessions.iter().map(|session| series(session, 1..=1500, "notice")).collect();
        thread::scope(|scope| {
            for events in &sent {
                scope.spawn(|| events.chunks(batch).for_each(|batch| relay.publish(batch)));
            }
            let mut next = vec![[0; 3]; flock.len()];
            flock.drive(flock.len() * 3 * 1500, |member, piece| {
                assert_ne!(piece, Piece::End, "consumer {member} was cut with bodies of {body}");
                for event in piece.events() {
                    let next = &mut next[member];
                    let which =
                        (0..3).find(|&which| sent[which].get(next[which]).is_some_and(|e| e.as_bytes() == event));
                    next[which
                        .unwrap_or_else(|| panic!("consumer {member} at {next:?} was cut with bodies of {body}"))] += 1;
                }
                piece.events().count()
            });
        });
        assert_eq!(relay.metric("slow_consumers", ""), 0);
    }
}

#[test]
fn two_batches_of_sixteen_mebibytes_cut_no_reader_that_reads() {
    const READERS: usize = 100;
    let relay = Relay::plain();
    let mut flock = Flock::new();
    flock.add_streams(&relay, READERS / 2, &[]);
    flock.add_websockets(&relay, READERS / 2, "{}");
    let filler = "x".repeat(4000);
    let batches = ["a", "b"].map(|session| {
        let build = |seq| event(session, seq).severity("notice").data(&format!(r#"{{"text":"{filler}"}}"#)).build();
        let mut bytes = 0;
        let fits = |event: &String| {
            bytes += event.len() + 1;
            bytes <= 16 << 20
        };
        (1..).map(build).take_while(fits).collect::<Vec<String>>()
    });
    let total = batches.iter().map(Vec::len).sum::<usize>() * READERS;
    thread::scope(|scope| {
        for batch in &batches {
            scope.spawn(|| relay.publish(batch));
        }
        let mut next = vec![[0; 2]; READERS];
        flock.drive(total, |member, piece| {
            assert_ne!(piece, Piece::End, "consumer {member} was cut");
            for event in piece.events() {
                let next = &mut next[member];
                let which =
                    (0..2).find(|&which| batches[which].get(next[which]).is_some_and(|e| e.as_bytes() == event));
                next[which.unwrap_or_else(|| panic!("consumer {member} out of order at {next:?}"))] += 1;
            }
            piece.events().count()
        });
    });
    assert_eq!(relay.metric("slow_consumers", ""), 0);
    assert_eq!(relay.metric("dropped", ""), 0);
}

// ── accounting ──

/// A reader of either binding that takes a little at a time, and what it has been told.
struct Account {
    next: u64,
    seen: u64,
    announced: u64,
    pending: u64,
}

impl Account {
    fn new() -> Self {
        Self { next: 1, seen: 0, announced: 0, pending: 0 }
    }

    /// Every number is either seen or was announced as missing right before.
    #[track_caller]
    fn event(&mut self, data: &str) {
        let seq = seq_of(data);
        assert_eq!(seq, self.next + self.pending, "the announcement is exact");
        self.next = seq + 1;
        self.seen += 1;
        self.pending = 0;
    }

    #[track_caller]
    fn dropped(&mut self, count: u64) {
        assert!(count > 0);
        assert_eq!(self.pending, 0, "one announcement tells of all that is missing between two events");
        self.pending += count;
        self.announced += count;
    }
}

/// One message of a stream into its account.
#[track_caller]
fn account_stream(stream: &mut Sse, account: &mut Account) {
    match stream.message() {
        Message::Event { data, .. } => account.event(&data),
        Message::Comment(text) => {
            let count = text.strip_prefix("dropped ").unwrap_or_else(|| panic!("{text:?}"));
            account.dropped(count.parse().expect("a count"));
        }
    }
}

/// One message of a socket into its account.
#[track_caller]
fn account_socket(ws: &mut Ws, account: &mut Account) {
    let message = ws.message();
    let value: Value = serde_json::from_str(&message).unwrap();
    if value["type"] == "dropped" {
        assert_eq!(value.as_object().unwrap().len(), 2, "type and count: {message}");
        account.dropped(value["count"].as_u64().expect("a count"));
    } else {
        account.event(&message);
    }
}

/// Field report: publish succeeded a hundred thousand times, and most of it was lost without a word.
#[test]
fn what_is_dropped_is_announced_to_the_event() {
    const EVENTS: u64 = 20_000;
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", BODY);
    });
    let mut stream = Sse::narrow(&relay, &[]);
    let mut ws = Ws::narrow(&relay, "consumer", "watcher", "{}");
    ws.subscribe("s", "");
    let (mut by_stream, mut by_socket) = (Account::new(), Account::new());
    // Ten events are read for every two hundred published.
    let mut seq = 0;
    while seq < EVENTS {
        let batch: Vec<String> =
            (1..=BATCH).map(|n| sized("s", seq + n, if n % 2 == 0 { "info" } else { "debug" })).collect();
        relay.publish(&batch);
        seq += BATCH;
        for _ in 0..10 {
            account_stream(&mut stream, &mut by_stream);
            account_socket(&mut ws, &mut by_socket);
        }
    }
    // Both read all there is, until what is missing is exactly what the relay has counted as dropped.
    while 2 * EVENTS - by_stream.seen - by_socket.seen > relay.metric("dropped", "") {
        while by_stream.seen < EVENTS && has_more(&mut stream) {
            account_stream(&mut stream, &mut by_stream);
        }
        while by_socket.seen < EVENTS && has_more(&mut ws) {
            account_socket(&mut ws, &mut by_socket);
        }
    }
    let dropped = relay.metric("dropped", "");
    assert!(dropped > 0, "the readers fell behind");
    // A last event tells of what was dropped behind the last one seen.
    relay.publish(&[sized("s", EVENTS + 1, "notice")]);
    while by_stream.next <= EVENTS {
        account_stream(&mut stream, &mut by_stream);
    }
    while by_socket.next <= EVENTS {
        account_socket(&mut ws, &mut by_socket);
    }
    for account in [&by_stream, &by_socket] {
        assert_eq!(account.seen + account.announced, EVENTS + 1, "seen + announced = published");
    }
    assert_eq!(by_stream.announced + by_socket.announced, dropped, "the metric agrees");
    assert_eq!(relay.metric("slow_consumers", ""), 0, "nobody is cut for events that may be dropped");
}

/// Whether a message can be read now or soon.
fn has_more(http: &mut Http) -> bool {
    if !http.unread().is_empty() {
        return true;
    }
    let stream = http.stream();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let more = match stream.peek(&mut [0]) {
        Ok(count) => count > 0,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
        Err(error) => panic!("the connection broke: {error}"),
    };
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    more
}

#[test]
fn a_notice_that_finds_no_room_cuts_and_the_resume_brings_what_was_dropped_too() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", BODY);
        // On one core an event has been delivered once its publisher is answered.
        options.env("AEP_CORES", 1);
    });
    let mut ws = Ws::narrow(&relay, "consumer", "watcher", "{}");
    ws.subscribe("s", "");
    let mut sent = Vec::new();
    while relay.metric("dropped", "") == 0 {
        let from = sent.len() as u64 + 1;
        let batch = series("s", from..=from + BATCH - 1, "info");
        relay.publish(&batch);
        sent.extend(batch);
    }
    // Room was kept for what may not be dropped: some of it fits, and only beyond that comes the cut.
    let notices = |sent: &[String], count: u64| {
        let from = sent.len() as u64 + 1;
        series("s", from..=from + count - 1, "notice")
    };
    let first = notices(&sent, 40);
    relay.publish(&first);
    sent.extend(first);
    assert_eq!(relay.metric("slow_consumers", ""), 0, "room is kept for notices");
    let beyond = notices(&sent, 60);
    relay.publish(&beyond);
    sent.extend(beyond);
    wait_until("the cut comes last", || relay.metric("slow_consumers", "") == 1);
    let (seen, delivered) = drain_socket(&mut ws, &sent, "s");
    assert!(seen < sent.len() - 1);
    let mut resumed = Ws::hello(&relay, "consumer", "watcher");
    resumed.subscribe("s", &format!(r#""from":{delivered}"#));
    resumed.expect(&sent[seen..]);
}

// ── commands ──

#[test]
fn a_command_that_its_target_cannot_take_is_refused() {
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_MAX_BODY", BODY);
    });
    let mut target = Ws::narrow(&relay, "both", "worker", r#"{"control":{"accepts":["control.cancel"]}}"#);
    target.text(event("own", 1).build());
    target.subscribe("s", r#""filter":{"session":"noise"}"#);
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    // Events that may be dropped fill its queue to the brim and do not cut it. The system's own buffers grow a little
    // at first.
    let (mut seq, mut full) = (0, 0);
    while full < 5 {
        let dropped = relay.metric("dropped", "");
        relay.publish(&series("noise", seq + 1..=seq + BATCH, "info"));
        seq += BATCH;
        full = if relay.metric("dropped", "") > dropped { full + 1 } else { 0 };
    }
    assert_eq!(relay.metric("slow_consumers", ""), 0);
    let large = format!(r#"{{"reason":"{}"}}"#, "x".repeat(BODY - 1000));
    let command = command("control.cancel", "own").data(&large).build();
    sender.text(&command);
    let refusal = sender.expect_error("no-route");
    let id = serde_json::from_str::<Value>(&command).unwrap()["id"].clone();
    assert_eq!(refusal["cause"], id);
    assert_eq!(relay.metric("slow_consumers", ""), 1, "the target was cut");
    // Nothing of it is in the session's history, and the claim is gone.
    let history = Sse::replay(&relay, &[("filter", r#"{"session":"own"}"#)]);
    assert_eq!(history.len(), 1, "{history:?}");
    sender.text(&command);
    sender.expect_error("no-route");
    // A target that reads gets it.
    let mut target = Ws::hello_with(&relay, "both", "worker", r#"{"control":{"accepts":["control.cancel"]}}"#);
    target.text(event("own", 2).build());
    target.sync();
    sender.text(&command);
    sender.sync();
    target.expect(&[&command]);
}

// ── memory ──

/// What readers that do not read may cost: their queues, and nothing more.
#[test]
fn stalled_readers_hold_no_more_than_their_queues() {
    const READERS: usize = 100;
    const QUEUE: usize = (64 + 64) * KIB;
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", 64 * KIB).env("AEP_DELIVERY_BYTES", 1024 * KIB).env("AEP_BUFFER", 100);
    });
    let stalled: Vec<Sse> = (0..READERS).map(|_| Sse::narrow(&relay, &[])).collect();
    let before = relay.resident_kib();
    let mut healthy = Sse::open(&relay, "/stream");
    for batch in 0..1000 {
        let events = series("s", batch * 50 + 1..=batch * 50 + 50, "info");
        relay.publish(&events);
        healthy.expect(&events);
    }
    let grown = relay.resident_kib().saturating_sub(before) as usize * KIB;
    let bound = READERS * QUEUE + (16 << 20);
    assert!(grown < bound, "{} KiB for 50 MB of events and {READERS} stalled readers", grown / KIB);
    assert!(relay.metric("dropped", "") > 0);
    assert_eq!(relay.metric("slow_consumers", ""), 0);
    drop(stalled);
    wait_until("their backlog is given back", || relay.metric("backlog_bytes", "") == 0);
}

#[test]
fn all_backlogs_together_have_a_budget() {
    const BUDGET: usize = 1024 * KIB;
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", 64 * KIB).env("AEP_DELIVERY_BYTES", 256 * KIB).env("AEP_BACKLOG_BYTES", BUDGET);
    });
    let stalled: Vec<Sse> = (0..40).map(|_| Sse::narrow(&relay, &[])).collect();
    let mut healthy = Sse::open(&relay, "/stream");
    let mut seq = 0;
    // Forty full queues would be five times the budget.
    while relay.metric("slow_consumers", "") == 0 {
        assert!(seq < 100_000, "nobody was cut; backlog {}", relay.metric("backlog_bytes", ""));
        let events = series("s", seq + 1..=seq + 50, "info");
        relay.publish(&events);
        healthy.expect(&events);
        seq += 50;
    }
    for _ in 0..100 {
        let events = series("s", seq + 1..=seq + 50, "info");
        relay.publish(&events);
        healthy.expect(&events);
        seq += 50;
        let backlog = relay.metric("backlog_bytes", "") as usize;
        // One queue may be on its way over it before the largest is cut.
        assert!(backlog <= BUDGET + 128 * KIB, "{backlog} bytes");
    }
    assert!((relay.metric("slow_consumers", "") as usize) < stalled.len(), "the largest go first, not all");
    wait_until("the log says so", || relay.stderr().contains("AEP_BACKLOG_BYTES is reached"));
}

#[test]
fn a_replay_is_paced_by_the_socket() {
    const READERS: usize = 20;
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", 64 * KIB).env("AEP_DELIVERY_BYTES", 1024 * KIB);
    });
    let mut sent = Vec::new();
    for session in ["a", "b"] {
        let events = series(session, 1..=8000, "notice");
        for batch in events.chunks(50) {
            relay.publish(batch);
        }
        sent.push(events);
    }
    let before = relay.resident_kib();
    let mut streams: Vec<Sse> = (0..READERS / 2).map(|_| Sse::narrow(&relay, &[("from", "all")])).collect();
    let mut sockets: Vec<Ws> = (0..READERS / 2)
        .map(|_| {
            let mut ws = Ws::narrow(&relay, "consumer", "watcher", "{}");
            ws.subscribe("s", r#""from":"all""#);
            ws
        })
        .collect();
    // Sixteen megabytes wait for each of them; all have begun, and stand at a full socket.
    let stream_firsts: Vec<String> = streams.iter_mut().map(Sse::event).collect();
    let socket_firsts: Vec<String> = sockets.iter_mut().map(Ws::message).collect();
    let last = sized("a", 8001, "notice");
    relay.publish(&[&last]);
    sent[0].push(last);
    let grown = relay.resident_kib().saturating_sub(before) as usize * KIB;
    assert!(grown < READERS * 128 * KIB + (8 << 20), "{} KiB for {READERS} stalled replays", grown / KIB);
    assert_eq!(relay.metric("slow_consumers", ""), 0, "a replay waits for its reader");

    // Everything comes when it is read, each session in order, the live event last of its own.
    let sent = &sent;
    let check = |first: String, mut read: Box<dyn FnMut() -> String + '_>| {
        let mut next = [0, 0];
        let mut data = first;
        loop {
            let which = (0..2).find(|&which| sent[which].get(next[which]) == Some(&data));
            next[which.unwrap_or_else(|| panic!("out of order at {next:?}: {}", &data[..100]))] += 1;
            if next == [8001, 8000] {
                return;
            }
            data = read();
        }
    };
    thread::scope(|scope| {
        for (stream, first) in streams.iter_mut().zip(stream_firsts) {
            scope.spawn(move || check(first, Box::new(|| stream.event())));
        }
        for (ws, first) in sockets.iter_mut().zip(socket_firsts) {
            scope.spawn(move || check(first, Box::new(|| ws.message())));
        }
    });
}

/// Field report: each small publish added megabytes for thousands of readers.
#[test]
fn memory_is_flat_once_the_replay_buffer_is_full() {
    const READERS: usize = 500;
    const HALF: u64 = 400;
    let relay = Relay::start(|options| {
        options.env("AEP_BUFFER", 100);
    });
    let mut flock = Flock::new();
    flock.add_streams(&relay, READERS, &[]);
    let mut resident = Vec::new();
    for half in 0..3 {
        let sent = series("s", half * HALF + 1..=(half + 1) * HALF, "info");
        thread::scope(|scope| {
            scope.spawn(|| {
                for event in sent.chunks(20) {
                    relay.publish(event);
                }
            });
            flock.drive(READERS * sent.len(), |_, piece| piece.events().count());
        });
        resident.push(relay.resident_kib());
    }
    // The first round filled buffer and queues; from there on nothing grows with what is published.
    let slack = resident[0] / 10 + 2048;
    assert!(resident[2] < resident[1] + slack && resident[1] < resident[0] + slack, "KiB: {resident:?}");
    assert_eq!(relay.metric("dropped", ""), 0);
}
