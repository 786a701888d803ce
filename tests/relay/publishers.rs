//! Publishers beside one another (contract §9): who publishes little does not wait for who publishes much.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::*;

/// Readers that take so little that the relay waits for them, for a while.
const TRICKLING: usize = 6;
/// Publishers of [`FLOOD_BYTES`] each: together more than the relay lets through in many seconds while it waits.
const FLOODS: usize = 4;
const FLOOD_BYTES: usize = 15 << 20;
/// Events of the small publisher over each binding.
const SMALL: u64 = 50;

/// How the flood comes.
#[derive(Clone, Copy)]
enum By {
    Post,
    WebSocket,
}

/// Events of four kilobytes that may be left out for who is slow, [`FLOOD_BYTES`] of them.
fn flood(session: &str) -> Vec<String> {
    let data = format!(r#"{{"text":"{}"}}"#, "x".repeat(4000));
    let mut bytes = 0;
    let events = (1..).map(|seq| event(session, seq).severity("info").data(&data).build());
    events
        .take_while(|event| {
            bytes += event.len() + 1;
            bytes <= FLOOD_BYTES
        })
        .collect()
}

/// The whole flood of one publisher; the answer to it is the first that it gets.
fn flood_bytes(by: By, events: &[String]) -> Vec<u8> {
    match by {
        By::Post => {
            request("POST", "/events", &[("Content-Type", "application/x-ndjson")], events.join("\n").as_bytes())
        }
        By::WebSocket => {
            let ping = r#"{"type":"ping"}"#.to_owned();
            events.iter().chain([&ping]).flat_map(|text| frame_bytes(true, opcode::TEXT, text.as_bytes())).collect()
        }
    }
}

fn small_beside_a_flood(by: By, cores: usize) {
    let mut relay = Relay::start(|options| {
        options.env("AEP_CORES", cores);
    });
    let mut small = Sse::subscribe(&relay, &[("filter", r#"{"session":"small"}"#)]);
    let mut emitter = Ws::hello(&relay, "emitter", "little");
    let mut trickling: Vec<Sse> = (0..TRICKLING).map(|_| Sse::narrow(&relay, &[])).collect();
    let floods = (0..FLOODS).map(|index| flood_bytes(by, &flood(&format!("flood-{index}"))));
    let floods: Vec<(Http, Vec<u8>)> = floods
        .map(|bytes| match by {
            By::Post => (Http::connect(&relay), bytes),
            By::WebSocket => (Ws::hello(&relay, "emitter", "much").into_http(), bytes),
        })
        .collect();
    let (answered, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for (mut http, bytes) in floods {
            let answered = &answered;
            scope.spawn(move || {
                // The relay is killed before the flood has come to its end.
                if http.send_if_open(bytes) && http.stream().read(&mut [0]).is_ok_and(|count| count > 0) {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for stream in &mut trickling {
                    let _closed = stream.stream().read(&mut [0; 4 << 10]);
                }
                thread::park_timeout(Duration::from_millis(20));
            }
        });
        wait_until("publishers wait for those that trickle", || relay.metric("congested_turns", "") > 200);
        let seen = (1..=SMALL).all(|index| {
            let posted = event("small", 2 * index - 1).build();
            relay.publish(&[&posted]);
            let sent = event("small", 2 * index).build();
            emitter.text(&sent);
            emitter.sync();
            small.expect(&[posted, sent]);
            answered.load(Ordering::Relaxed) == 0
        });
        let held = answered.load(Ordering::Relaxed);
        over.store(true, Ordering::Relaxed);
        relay.kill();
        assert!(seen, "{held} floods were over before the small publisher was through");
    });
}

#[test]
fn who_publishes_little_does_not_wait_for_a_flood_of_batches() {
    for cores in [1, 2, 4] {
        small_beside_a_flood(By::Post, cores);
    }
}

#[test]
fn who_publishes_little_does_not_wait_for_a_flood_over_websockets() {
    for cores in [1, 2, 4] {
        small_beside_a_flood(By::WebSocket, cores);
    }
}
