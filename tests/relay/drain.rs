//! Shutdown, the end without one, and the start after it (contract §1; §6 for the closing frame).

use std::collections::HashSet;
use std::io::Read;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::*;
use serde_json::{Value, json};

fn notices(session: &str, seqs: std::ops::RangeInclusive<u64>) -> Vec<String> {
    seqs.map(|seq| event(session, seq).severity("notice").build()).collect()
}

/// Waits until the relay takes no new connection: it has heard the signal.
#[track_caller]
fn wait_until_it_listens_no_more(relay: &Relay) {
    let address = relay.address();
    wait_until("the relay stops listening", || TcpStream::connect(address).is_err());
}

/// A stream that is told of the shutdown and ends cleanly.
#[track_caller]
fn expect_stream_ends(stream: &mut Sse) {
    assert_eq!(stream.comment(), "shutting-down");
    assert_eq!(stream.next(), None, "a clean end of the body");
    stream.expect_end();
}

/// The closing frame of a shutdown with these positions, then code 1001.
#[track_caller]
fn expect_socket_ends(ws: &mut Ws, delivered: &Value) {
    let closing = ws.json();
    assert_eq!(closing, json!({"type": "closing", "reason": "shutting-down", "delivered": delivered}));
    ws.expect_close(1001);
}

/// A relay on the port that another had.
#[track_caller]
fn start_on(port: u16, configure: impl FnOnce(&mut Options)) -> Relay {
    Relay::start(|options| {
        options.env("AEP_PORT", port);
        configure(options);
    })
}

// ── goodbyes ──

#[test]
fn everybody_is_told_and_the_exit_is_clean() {
    for signal in ["TERM", "INT", "HUP"] {
        let mut relay = Relay::plain();
        let mut stream = Sse::open(&relay, "/stream");
        let (mut old_stream, _) = Sse::send(&relay, b"GET /stream HTTP/1.0\r\n\r\n");
        let mut ws = Ws::consumer(&relay, "{}");
        ws.subscribe("quiet", r#""filter":{"agent":"nobody"}"#);
        let mut emitter = Ws::hello(&relay, "emitter", "coder");
        let mut idle = Http::connect(&relay);
        idle.expect_alive();
        let mut mute = Http::connect(&relay);
        let mut greeted_not = Ws::connect(&relay);
        let sent = notices("s", 1..=3);
        relay.publish(&sent);
        stream.expect(&sent);

        relay.signal(signal);
        expect_stream_ends(&mut stream);
        old_stream.expect(&sent);
        expect_stream_ends(&mut old_stream);
        ws.expect(&sent);
        expect_socket_ends(&mut ws, &json!([{"sub": "s", "session": "s", "epoch": 0, "seq": 3}]));
        expect_socket_ends(&mut emitter, &json!([]));
        // No closing frame before hello; the code alone.
        greeted_not.expect_close(1001);
        idle.expect_end();
        mute.expect_end();
        assert_eq!(relay.exit_status().code(), Some(0), "after SIG{signal}: {}", relay.stderr());
        assert_eq!(relay.stdout(), "", "the boot line is all that goes to standard output");
    }
}

/// A client that is just sending its next request on a kept connection shall read why it is not served.
#[test]
fn a_request_on_its_way_to_an_idle_connection_is_refused_and_not_cut_off() {
    let mut relay = Relay::start(|options| {
        options.env("AEP_DRAIN_TIME", 100);
    });
    let mut kept = Http::connect(&relay);
    kept.expect_alive();
    let mut idle = Http::connect(&relay);
    idle.expect_alive();
    relay.signal("TERM");
    wait_until("nobody is let in any more", || std::net::TcpStream::connect(relay.address()).is_err());
    let event = event("s", 1).build();
    kept.send(request("POST", "/events", &[("Content-Type", "application/json")], event.as_bytes()));
    let refused = kept.response();
    refused.expect_refusal(503, "draining");
    assert!(refused.closes(), "{refused:?}");
    kept.expect_end();
    idle.expect_end();
    assert_eq!(relay.exit_status().code(), Some(0));
}

/// Field report: upgraded sockets were not part of the drain.
#[test]
fn what_is_queued_for_a_socket_goes_out_before_the_goodbye() {
    let mut relay = Relay::start(|options| {
        options.token("sesame");
    });
    let accepts = r#"{"control":{"accepts":["control.cancel"]}}"#;
    let mut sockets: Vec<Ws> = (0..20)
        .map(|index| {
            let mut ws = Ws::hello_with(&relay, "both", &format!("worker-{index}"), accepts);
            ws.subscribe("s", r#""filter":{"session":"shared"}"#);
            ws
        })
        .collect();
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    // The command is with its target and has no answer yet.
    sockets[0].text(event("own", 1).build());
    sockets[0].sync();
    let command = command("control.cancel", "own").build();
    sender.text(&command);
    sender.sync();
    let sent = notices("shared", 1..=100);
    relay.publish(&sent);

    relay.signal("TERM");
    sockets[0].expect(&[&command]);
    for ws in &mut sockets {
        ws.expect(&sent);
        expect_socket_ends(ws, &json!([{"sub": "s", "session": "shared", "epoch": 0, "seq": 100}]));
    }
    expect_socket_ends(&mut sender, &json!([]));
    assert_eq!(relay.exit_status().code(), Some(0));
}

#[test]
fn a_reader_in_the_middle_of_a_replay_is_told_too() {
    let mut relay = Relay::plain();
    let filler = "x".repeat(4000);
    let sent: Vec<String> =
        (1..=5000).map(|seq| event("s", seq).data(&format!(r#"{{"t":"{filler}"}}"#)).build()).collect();
    sent.chunks(1000).for_each(|batch| relay.publish(batch));
    let mut stream = Sse::narrow(&relay, &[("from", "all")]);
    let mut ws = Ws::narrow(&relay, "consumer", "watcher", "{}");
    ws.subscribe("r", r#""from":"all""#);
    stream.expect(&sent[..10]);
    ws.expect(&sent[..10]);

    relay.signal("TERM");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 10;
            for message in stream.rest() {
                match message {
                    Message::Event { data, .. } => {
                        assert_eq!(data, sent[seen]);
                        seen += 1;
                    }
                    Message::Comment(text) => assert!(text == "shutting-down" || text == "ping", "{text}"),
                }
            }
            stream.expect_end();
        });
        let mut seen = 10;
        let closing = loop {
            let message = ws.message();
            if sent.get(seen) != Some(&message) {
                break serde_json::from_str::<Value>(&message).unwrap();
            }
            seen += 1;
        };
        let delivered = json!([{"sub": "r", "session": "s", "epoch": 0, "seq": seen}]);
        assert_eq!(closing, json!({"type": "closing", "reason": "shutting-down", "delivered": delivered}));
        ws.expect_close(1001);
    });
    assert_eq!(relay.exit_status().code(), Some(0));
}

#[test]
fn peers_that_do_not_listen_do_not_hold_up_the_drain() {
    let mut relay = Relay::plain();
    // None of these reads; the socket buffers of the first two are full and there is more for them.
    let stalled_stream = Sse::narrow(&relay, &[]);
    let mut stalled_socket = Ws::narrow(&relay, "consumer", "watcher", "{}");
    stalled_socket.subscribe("s", "");
    let silent = Ws::consumer(&relay, r#"{"agent":"nobody"}"#);
    let half_upload = {
        let mut http = Http::connect(&relay);
        http.send("POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{");
        http
    };
    let half_head = {
        let mut http = Http::connect(&relay);
        http.send("GET /healthz HTT");
        http
    };
    let filler = "x".repeat(100_000);
    let event = |seq| event("s", seq).severity("notice").data(&format!(r#"{{"t":"{filler}"}}"#)).build();
    let batch: Vec<String> = (1..=100).map(event).collect();
    relay.publish(&batch);
    assert_eq!(relay.term().code(), Some(0), "{}", relay.stderr());
    drop((stalled_stream, stalled_socket, silent, half_upload, half_head));
}

// ── requests in flight ──

#[test]
fn a_request_in_flight_is_answered() {
    let mut relay = Relay::start(|options| {
        options.env("AEP_DRAIN_TIME", 500);
    });
    let mut stream = Sse::open(&relay, "/stream");
    let sent = notices("s", 1..=1);
    let body = sent[0].as_bytes();
    let bytes = request("POST", "/events", &[("Content-Type", "application/json")], body);
    let mut http = Http::connect(&relay);
    let at = bytes.len() - body.len() / 2;
    http.send(&bytes[..at]);
    // The relay is reading the body: it has asked nobody to wait.
    relay.publish(&notices("s", 0..=0));
    assert_eq!(stream.message().json()["seq"], 0);

    relay.signal("TERM");
    wait_until_it_listens_no_more(&relay);
    http.send(&bytes[at..]);
    let answer = http.response();
    answer.expect(202, r#"{"accepted":1}"#);
    http.expect_end();
    // Its event reaches who is subscribed, before the goodbye.
    stream.expect(&sent);
    expect_stream_ends(&mut stream);
    assert_eq!(relay.exit_status().code(), Some(0));
}

#[test]
fn what_was_accepted_is_delivered_before_the_end() {
    let mut relay = Relay::start(|options| {
        options.env("AEP_CORES", 4);
    });
    let mut streams: Vec<Sse> = (0..8).map(|_| Sse::open(&relay, "/stream")).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let publishers: Vec<_> = (0..4)
            .map(|publisher| {
                let mut http = Http::connect(&relay);
                let over = &over;
                scope.spawn(move || {
                    let mut accepted = Vec::new();
                    for seq in 1.. {
                        let id = format!("p{publisher}-{seq}");
                        let event = event(&format!("s{publisher}-{}", seq % 5), seq).id(&id).severity("notice").build();
                        let bytes =
                            request("POST", "/events", &[("Content-Type", "application/json")], event.as_bytes());
                        if over.load(Ordering::Relaxed) || !http.send_if_open(bytes) || !readable(&http) {
                            return accepted;
                        }
                        match http.response().status {
                            202 => accepted.push(id),
                            503 => return accepted,
                            status => panic!("status {status}"),
                        }
                    }
                    accepted
                })
            })
            .collect();
        // Shut down in the middle of it.
        for _ in 0..200 {
            streams[0].event();
        }
        relay.signal("TERM");
        wait_until_it_listens_no_more(&relay);
        over.store(true, Ordering::Relaxed);
        let accepted: HashSet<String> = publishers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert!(accepted.len() >= 200);
        for (index, stream) in streams.iter_mut().enumerate().skip(1) {
            let messages = stream.rest();
            assert_eq!(messages.last(), Some(&Message::Comment("shutting-down".to_owned())));
            let seen: HashSet<String> = messages
                .iter()
                .filter(|message| matches!(message, Message::Event { .. }))
                .map(|message| message.json()["id"].as_str().unwrap().to_owned())
                .collect();
            let missed: Vec<&String> = accepted.difference(&seen).collect();
            assert!(missed.is_empty(), "stream {index} missed {missed:?}");
        }
    });
    assert_eq!(relay.exit_status().code(), Some(0));
}

/// Whether there is an answer to read, or the end.
fn readable(http: &Http) -> bool {
    http.stream().peek(&mut [0]).is_ok_and(|count| count > 0)
}

// ── drains that do not end well ──

#[test]
fn a_drain_that_takes_too_long_exits_1() {
    let mut relay = Relay::start(|options| {
        options.env("AEP_DRAIN_TIME", 2);
    });
    let stream = Sse::open(&relay, "/stream");
    socket2::SockRef::from(stream.stream()).set_recv_buffer_size(64 << 10).unwrap();
    let filler = "x".repeat(100_000);
    let event = |seq| event("s", seq).severity("notice").data(&format!(r#"{{"t":"{filler}"}}"#)).build();
    relay.publish(&(1..=150).map(event).collect::<Vec<String>>());
    relay.signal("TERM");
    // It goes on reading, and does not come to the end.
    let reader = thread::spawn(move || {
        let mut bytes = [0; 32 << 10];
        while stream.stream().read(&mut bytes).is_ok_and(|count| count > 0) {
            thread::park_timeout(Duration::from_millis(40));
        }
        drop(stream);
    });
    assert_eq!(relay.exit_status().code(), Some(1));
    reader.join().unwrap();
}

/// A peer that does not answer the close is cut a second later, be the drain time shorter than that: a finished close.
#[test]
fn a_short_drain_time_does_not_count_the_peers_second() {
    for time in [1.0, 0.2] {
        let mut relay = Relay::start(|options| {
            options.env("AEP_DRAIN_TIME", time);
        });
        let silent = Ws::consumer(&relay, "{}");
        assert_eq!(relay.term().code(), Some(0), "{time}: {}", relay.stderr());
        drop(silent);
    }
}

/// A request that stands still is refused at once; nobody waits for it.
#[test]
fn a_half_sent_request_holds_up_nobodys_goodbye() {
    let mut relay = Relay::start(|options| {
        // The clients' own patience is shorter than half of it.
        options.env("AEP_DRAIN_TIME", 100);
    });
    let mut ws = Ws::consumer(&relay, "{}");
    let mut half = Http::connect(&relay);
    half.send("POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{");
    let sent = notices("s", 1..=1);
    relay.publish(&sent);
    ws.expect(&sent);
    relay.signal("TERM");
    half.response().expect_refusal(503, "draining");
    drop(half);
    expect_socket_ends(&mut ws, &json!([{"sub": "s", "session": "s", "epoch": 0, "seq": 1}]));
    assert_eq!(relay.exit_status().code(), Some(0));
}

#[test]
fn a_second_signal_ends_the_drain_at_once() {
    let mut relay = Relay::start(|options| {
        options.env("AEP_DRAIN_TIME", 600).env("AEP_BODY_TIME", 600);
    });
    let mut http = Http::connect(&relay);
    http.send("POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{");
    relay.publish(&notices("s", 1..=1));
    relay.signal("TERM");
    wait_until_it_listens_no_more(&relay);
    assert!(relay.is_running(), "the upload is waited for");
    relay.signal("TERM");
    assert_eq!(relay.exit_status().code(), Some(1));
}

#[test]
fn a_hangup_that_was_ignored_before_the_start_stays_ignored() {
    let mut relay = Relay::start(|options| {
        options.nohup();
    });
    relay.signal("HUP");
    relay.publish(&notices("s", 1..=1));
    assert_eq!(relay.term().code(), Some(0), "the first signal that counts: {}", relay.stderr());
}

// ── the start after it ──

#[test]
fn a_reader_resumes_from_its_goodbye_at_the_next_run() {
    let mut relay = Relay::plain();
    let port = relay.address().port();
    let mut ws = Ws::consumer(&relay, "{}");
    relay.publish(&notices("on", 1..=5));
    relay.publish(&notices("gone", 1..=5));
    for _ in 0..10 {
        ws.message();
    }
    relay.signal("TERM");
    let closing = ws.json();
    ws.expect_close(1001);
    assert_eq!(relay.exit_status().code(), Some(0));
    let mut from: Vec<Value> = closing["delivered"].as_array().expect("positions").clone();
    from.sort_by_key(|position| position["session"].to_string());
    let position = |session: &str| json!({"sub": "s", "session": session, "epoch": 0, "seq": 5});
    assert_eq!(from, [position("gone"), position("on")]);

    // The same port is free at once. Nothing is remembered; each session is judged by its first event: the one that
    // goes on where it was, and the one whose emitter went on while there was no relay.
    let relay = start_on(port, |_| {});
    let mut stream = Sse::subscribe(&relay, &[("from", &Value::from(from).to_string())]);
    let sent = [notices("on", 6..=6), notices("gone", 9..=9)].concat();
    relay.publish(&sent[..1]);
    relay.publish(&sent[1..]);
    let mut messages = [stream.message(), stream.message(), stream.message()];
    let announced = Message::Comment("replay-exhausted gone 0:9".to_owned());
    let at = messages.iter().position(|message| *message == announced).expect("the gap is announced");
    // The other session's event may stand between them.
    let is_next = |message: &Message| matches!(message, Message::Event { id: Some(id), .. } if id == "gone:0:9");
    let next = messages.iter().position(is_next).expect("what is behind the gap");
    assert!(at < next, "{messages:?}");
    messages.sort_by_key(|message| matches!(message, Message::Comment(_)));
    let mut data: Vec<&str> = messages[..2].iter().map(Message::data).collect();
    data.sort_unstable();
    let mut expected: Vec<&str> = sent.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(data, expected);
}

#[test]
fn a_killed_relay_can_be_started_again() {
    let mut relay = Relay::plain();
    let port = relay.address().port();
    let streams: Vec<Sse> = (0..20).map(|_| Sse::open(&relay, "/stream")).collect();
    relay.publish(&notices("s", 1..=3));
    relay.kill();
    for stream in streams {
        let mut rest = Vec::new();
        // With or without a reset: no clean end of the body.
        let _ = stream.stream().read_to_end(&mut rest);
        assert!(!rest.ends_with(b"0\r\n\r\n"));
    }
    let relay = start_on(port, |_| {});
    assert_eq!(relay.count("sessions"), 0);
    let mut stream = Sse::subscribe(&relay, &[("from", r#"[{"session":"s","seq":3}]"#)]);
    let sent = notices("s", 4..=4);
    relay.publish(&sent);
    stream.expect(&sent);
}

/// Harm prevented: a second relay on the port silently takes half of the clients.
#[test]
fn a_port_in_use_stops_the_start() {
    for cores in [1, 4] {
        let mut relay = Relay::start(|options| {
            options.env("AEP_CORES", cores);
        });
        let mut options = Options::default();
        options.env("AEP_PORT", relay.address().port()).env("AEP_CORES", cores);
        let output = options.command().output().expect("the relay's binary starts");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "no boot line");
        let line = String::from_utf8_lossy(&output.stderr);
        assert!(line.contains(&relay.address().to_string()), "the line names the address: {line:?}");
        for _ in 0..10 {
            Http::connect(&relay).expect_alive();
        }
        assert!(relay.is_running());
    }
}
