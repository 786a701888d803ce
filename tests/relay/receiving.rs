//! Bodies and messages on their way in: how slowly they may come, and that those which do not come hold nobody else up
//! (contract §1, §4, §6).

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use crate::support::*;

const MIB: usize = 1 << 20;
/// What a holder sends of its MiB.
const HELD: usize = 1_000_000;
/// What never waits for memory.
const FREE: usize = 16 << 10;

/// Room for one body of a MiB.
fn narrow_relay(body_time: u32) -> Relay {
    Relay::start(|options| {
        options.env("AEP_MAX_BODY", MIB).env("AEP_RECEIVE_BYTES", MIB).env("AEP_BODY_TIME", body_time);
    })
}

/// An event of exactly so many bytes.
fn event_of(bytes: usize, session: &str) -> String {
    let event = event(session, 1);
    let padded = |padding: usize| event.clone().data(&format!(r#"{{"text":"{}"}}"#, "a".repeat(padding))).build();
    padded(bytes - padded(0).len())
}

/// The head of a POST that announces so many bytes.
fn post_head(bytes: usize) -> String {
    format!("POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: {bytes}\r\n\r\n")
}

/// Uploads that use the room for a MiB up with what never waits, and stand still.
fn crowd(relay: &Relay) -> Vec<Http> {
    const EACH: usize = 16_000;
    let before = relay.metric("bytes_in", "");
    let crowd: Vec<Http> = (0..80)
        .map(|_| {
            let mut http = Http::connect(relay);
            http.send(post_head(MIB));
            http.send([b' '; EACH]);
            http
        })
        .collect();
    wait_for_bytes(relay, before, crowd.len() * EACH);
    crowd
}

/// The relay has read at least so many bytes since it had read `before`.
fn wait_for_bytes(relay: &Relay, before: u64, bytes: usize) {
    wait_until("the relay has read that", || relay.metric("bytes_in", "") >= before + bytes as u64);
}

/// A POST that announces a MiB and has brought so much of it.
fn post_holder(relay: &Relay, body: &str, bytes: usize) -> Http {
    let before = relay.metric("bytes_in", "");
    let mut http = Http::connect(relay);
    http.send(post_head(body.len()));
    http.send(&body.as_bytes()[..bytes]);
    wait_for_bytes(relay, before, bytes);
    http
}

/// The same as a message on a WebSocket.
fn message_holder(relay: &Relay, message: &str, bytes: usize) -> Ws {
    let mut ws = Ws::hello(relay, "both", "holder");
    let before = relay.metric("bytes_in", "");
    let frame = frame_bytes(true, opcode::TEXT, message.as_bytes());
    ws.send(&frame[..frame.len() - (message.len() - bytes)]);
    wait_for_bytes(relay, before, bytes);
    ws
}

// ── what stands still ──

/// Harm prevented: one upload that stands still stops every WebSocket and every batch.
#[test]
fn small_requests_and_messages_never_wait_for_what_others_hold() {
    for websocket in [false, true] {
        let relay = narrow_relay(1);
        let mut stream = Sse::open(&relay, "/stream");
        let mut early = Ws::consumer(&relay, "{}");
        let blanks = " ".repeat(MIB);
        let (mut post, mut message) = (None, None);
        if websocket {
            message = Some(message_holder(&relay, &blanks, HELD));
        } else {
            post = Some(post_holder(&relay, &blanks, HELD));
        }
        // The rest of the room.
        let other = post_holder(&relay, &blanks, HELD);
        early.sync();
        let mut late = Ws::consumer(&relay, "{}");
        for index in 0..20 {
            let name = format!("s{index}");
            let sent = [event_of(300, &name), event_of(FREE / 2, &format!("{name}x"))];
            relay.publish(&sent[..1]);
            early.text(&sent[1]);
            for ws in [&mut early, &mut late] {
                ws.expect(&sent);
                ws.sync();
            }
            stream.expect(&sent);
        }
        // Who stands still is told in time, whatever it had brought before.
        if let Some(http) = &mut post {
            let answer = http.response();
            answer.expect_refusal(408, "timeout");
            assert!(answer.closes());
        }
        if let Some(ws) = &mut message {
            ws.expect_close(1008);
        }
        drop(other);
        relay.post(event_of(MIB, "s")).expect(202, r#"{"accepted":1}"#);
    }
}

#[test]
fn a_message_begun_has_the_time_of_a_body() {
    let relay = Relay::start(|options| {
        options.env("AEP_BODY_TIME", 1);
    });
    let frame = frame_bytes(false, opcode::TEXT, &[b' '; 100]);
    let begun: [&[u8]; 5] = [b"\x81", b"\x81\xFE\x01", &frame[..50], &frame, b"\x89\x85\0\0\0\0p"];
    let mut late: Vec<Ws> = begun
        .iter()
        .map(|bytes| {
            let mut ws = Ws::hello(&relay, "both", "late");
            ws.send(bytes);
            ws
        })
        .collect();
    let mut idle = Ws::hello(&relay, "both", "idle");
    // Pings inside a message are answered, and are no progress of it.
    let mut pinging = Ws::hello(&relay, "both", "pinging");
    pinging.send(&frame);
    let end = Instant::now() + DEADLINE;
    loop {
        assert!(Instant::now() < end, "a message that does not come is ended");
        if !pinging.send_if_open(frame_bytes(true, opcode::PING, b"p")) {
            break;
        }
        let answer = pinging.recv();
        if answer.opcode == opcode::CLOSE {
            assert_eq!(answer.payload[..2], 1008_u16.to_be_bytes());
            break;
        }
        assert_eq!(answer.opcode, opcode::PONG);
        std::thread::park_timeout(Duration::from_millis(20));
    }
    for ws in &mut late {
        ws.expect_close(1008);
    }
    idle.sync();
}

/// Many times the least rate, few pieces, and longer than the body's time and the rate's window.
#[test]
fn what_comes_slowly_but_steadily_passes() {
    const PIECES: usize = 65;
    let relay = Relay::start(|options| {
        options.env("AEP_BODY_TIME", 1).env("AEP_MAX_BODY", MIB);
    });
    let body = event_of(PIECES * 2048, "s");
    let message = event_of(PIECES * 2048, "t");
    let mut watcher = Ws::consumer(&relay, "{}");
    let mut http = Http::connect(&relay);
    http.send(post_head(body.len()));
    let mut ws = Ws::hello(&relay, "both", "slow");
    for (index, piece) in body.as_bytes().chunks(2048).enumerate() {
        std::thread::park_timeout(Duration::from_millis(200));
        http.send(piece);
        let at = index * 2048;
        let code = if index == 0 { opcode::TEXT } else { opcode::CONTINUATION };
        ws.frame(index + 1 == PIECES, code, &message.as_bytes()[at..at + 2048]);
    }
    http.response().expect(202, r#"{"accepted":1}"#);
    let came = std::collections::HashSet::from([watcher.message(), watcher.message()]);
    assert_eq!(came, std::collections::HashSet::from([body, message]));
    ws.sync();
}

// ── who waits ──

/// Harm prevented: who waits for memory that others hold hears nothing.
#[test]
fn who_waits_for_memory_in_vain_is_told_in_its_own_time() {
    const EACH: usize = 10;
    let relay = narrow_relay(1);
    let large = event_of(MIB, "s");
    let holders = crowd(&relay);
    // One after the other is read on for a second, and stands still; the others have waited for theirs by then.
    let mut posts = Vec::new();
    let mut messages = Vec::new();
    for _ in 0..EACH {
        let mut http = Http::connect(&relay);
        http.send(post_head(large.len()));
        http.send(&large.as_bytes()[..FREE * 4]);
        posts.push(http);
        let mut ws = Ws::hello(&relay, "both", "waiting");
        ws.send(&frame_bytes(true, opcode::TEXT, large.as_bytes())[..FREE * 4]);
        messages.push(ws);
    }
    let mut refused = 0;
    for http in &mut posts {
        let answer = http.response();
        if answer.status == 503 {
            answer.expect_refusal(503, "busy");
            assert!(answer.field("retry-after").is_some() && answer.closes(), "{answer:?}");
            refused += 1;
        } else {
            answer.expect_refusal(408, "timeout");
        }
    }
    assert!(refused >= EACH / 2, "{refused} of {EACH} have waited in vain");
    wait_until("the log says so", || relay.stderr().contains("AEP_RECEIVE_BYTES is reached"));
    let mut refused = 0;
    for ws in &mut messages {
        let frame = ws.recv();
        assert_eq!(frame.opcode, opcode::CLOSE, "{frame:?}");
        let code = u16::from_be_bytes([frame.payload[0], frame.payload[1]]);
        assert!(matches!(code, 1008 | 1013), "{code}");
        refused += usize::from(code == 1013);
    }
    assert!(refused >= EACH / 2, "{refused} of {EACH} have waited in vain");
    // Nobody is left, and there is room again.
    drop((posts, messages, holders));
    relay.post(&large).expect(202, r#"{"accepted":1}"#);
}

#[test]
fn who_is_read_on_beyond_the_bound_and_stands_still_makes_way() {
    for websocket in [false, true] {
        let relay = narrow_relay(60);
        let mut watcher = Ws::consumer(&relay, "{}");
        let large: Vec<String> = (0..6).map(|index| event_of(MIB, &format!("s{index}"))).collect();
        let _held = crowd(&relay);
        let half = |index: usize| post_holder(&relay, &large[index], HELD / 2);
        let finish = |mut http: Http, index: usize| {
            http.send(&large[index].as_bytes()[HELD / 2..]);
            http.response().expect(202, r#"{"accepted":1}"#);
        };
        let mut came = |index: usize| assert!(watcher.message() == large[index], "{index} is not next");
        // Read on, it goes on whenever it likes, for nobody waits.
        finish(half(0), 0);
        came(0);
        // It stands still while another waits, which is served; and it goes on behind that.
        let first = half(1);
        if websocket {
            let mut ws = message_holder(&relay, &large[2], HELD);
            let frame = frame_bytes(true, opcode::TEXT, large[2].as_bytes());
            ws.send(&frame[frame.len() - (MIB - HELD)..]);
            ws.sync();
        } else {
            relay.post(&large[2]).expect(202, r#"{"accepted":1}"#);
        }
        came(2);
        finish(first, 1);
        came(1);
        // With two of them standing still a third one is served, and one of the two has to go.
        let mut stalled = [half(3), half(4)];
        relay.post(&large[5]).expect(202, r#"{"accepted":1}"#);
        came(5);
        for http in &stalled {
            http.stream().set_nonblocking(true).unwrap();
        }
        let told = stalled.iter_mut().filter(|http| match http.stream().read(&mut [0; 12]) {
            Ok(count) => count > 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        });
        assert_eq!(told.count(), 1, "of two that have borrowed");
    }
}

/// A body of the largest size can always be received, alone or one after the other.
#[test]
fn largest_bodies_pass_one_after_the_other_where_there_is_room_for_one() {
    for cores in [1, 2, 4] {
        let relay = Relay::start(|options| {
            options.env("AEP_MAX_BODY", MIB).env("AEP_RECEIVE_BYTES", MIB).env("AEP_CORES", cores);
        });
        std::thread::scope(|scope| {
            for index in 0..8 {
                let relay = &relay;
                scope.spawn(move || {
                    for round in 0..4 {
                        let body = event_of(MIB, &format!("s{index}.{round}"));
                        relay.post(body).expect(202, r#"{"accepted":1}"#);
                    }
                    let mut ws = Ws::hello(relay, "emitter", "large");
                    for round in 0..4 {
                        ws.text(event_of(MIB, &format!("t{index}.{round}")));
                    }
                    ws.sync();
                });
            }
        });
        assert_eq!(relay.count("sessions"), 64);
    }
}

// ── what is refused before it comes ──

/// Harm prevented: connections that have not said who they are hold as much as a message may have.
#[test]
fn a_hello_is_refused_when_it_is_over_its_bound() {
    let relay = Relay::plain();
    let before = relay.resident_kib();
    let piece = vec![b' '; 32 << 10];
    let mut large: Vec<Ws> = (0..10).map(|_| Ws::connect(&relay)).collect();
    for ws in &mut large {
        ws.frame(false, opcode::TEXT, b"{");
        for _ in 0..3 {
            ws.frame(false, opcode::CONTINUATION, &piece);
        }
        let error = ws.expect_error("invalid-hello");
        assert!(error["detail"].as_str().unwrap().contains("AEP_HELLO_BYTES"), "{error}");
        let close = ws.recv();
        assert_eq!((close.opcode, &close.payload[..2]), (opcode::CLOSE, &1008_u16.to_be_bytes()[..]));
        // What still comes is read past.
        for _ in 0..100 {
            ws.send_if_open(frame_bytes(false, opcode::CONTINUATION, &piece));
        }
    }
    let grown = relay.resident_kib().saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB");
    drop(large);
    // Announced is enough.
    let mut ws = Ws::connect(&relay);
    ws.send(b"\x81\xFF\0\0\0\0\0\x01\0\x01");
    ws.expect_error("invalid-hello");
    ws.expect_close(1008);
}

#[test]
fn what_cannot_be_taken_is_refused_by_the_first_bytes_that_show_it() {
    let relay = Relay::plain();
    for (bytes, code) in [
        (&b"\x82"[..], 1003),
        (b"\x02", 1003),
        (b"\x81\xFF\0\0\0\0\x01\0\0\x01", 1009),
        (b"\x01\xFF\0\0\0\x01\0\0\0\0", 1009),
    ] {
        let mut ws = Ws::hello(&relay, "both", "coder");
        ws.send(bytes);
        ws.expect_close(code);
    }
    let mut ws = Ws::connect(&relay);
    ws.send(b"\x82");
    ws.expect_close(1003);
}
