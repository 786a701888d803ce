//! What a service may easily get wrong: each of these either works, or says what is the matter.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::harness::{client_frame, dies_of, start, start_with, wait_until};
use crate::service::Settings;

const TEXT: u8 = 0x81;

#[test]
fn a_resume_before_the_park_cancels_it() {
    let server = start(1);
    let mut client = server.websocket();
    let messages = ["resume and park", "next", "resume and park, again", "park", "last"];
    client.send(messages.map(|message| client_frame(TEXT, message.as_bytes())).concat());
    for message in messages {
        assert_eq!(client.frame(), (TEXT, message.as_bytes().to_vec()));
    }
}

#[test]
fn a_run_kept_past_its_turn_is_not_queued() {
    let server = start(1);
    let mut client = server.websocket();
    client.send_frame(TEXT, b"keep");
    assert_eq!(client.frame(), (TEXT, b"keep".to_vec()));
    client.send_frame(TEXT, b"use what was kept");
    assert_eq!(client.frame(), (TEXT, b"Some(Stale)".to_vec()));
}

#[test]
fn a_push_before_there_is_a_stream_says_so() {
    let server = start(1);
    let mut client = server.client();
    client.send("GET /early HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.answer(), (200, b"NotOpen".to_vec()));
}

#[test]
fn a_core_whose_service_takes_no_ingest_looks_again_and_does_not_spin() {
    const TURNS: u64 = 300;
    let mut settings = Settings::default();
    let server = start_with(1, |_, changed| settings = changed.clone());
    let mut reader = server.stream();
    settings.takes_no_ingest.store(true, Ordering::Relaxed);
    server.publish("it waits");
    let (began, before) = (Instant::now(), server.turns());
    server.wait_until("it looks again", |core| core.turns.value(), |now| now >= before + TURNS);
    let elapsed = began.elapsed();
    // Turns that are a millisecond apart, as far as the kernel's timer is exact.
    assert!(elapsed >= Duration::from_millis(TURNS / 2), "{TURNS} turns in {elapsed:?}");
    settings.takes_no_ingest.store(false, Ordering::Relaxed);
    assert_eq!(reader.event().as_deref(), Some("it waits"));
}

#[test]
fn an_overflow_is_followed_by_a_turn_without_sleeping() {
    let mut settings = Settings::default();
    let server = start_with(1, |limits, changed| {
        limits.delivery_bytes_max = 256 << 10;
        limits.backlog_bytes_max = 4 << 20;
        limits.write_queue_bytes_max = 1 << 30;
        settings = changed.clone();
    });
    // One alone: without it nothing is left to be behind with, for which the core would look again by itself.
    let _stalled = server.stream();
    let mut publisher = server.client();
    let filler = "x".repeat(100_000);
    // Each is published to a core that sleeps, so that nothing but the overflow keeps it awake behind the last.
    let sleeps = || server.metrics.exposition().contains(&format!("turn_seconds_count {}\n", server.turns()));
    while server.cuts() == 0 {
        publisher.publish(&filler);
        wait_until("the core sleeps", sleeps);
    }
    let turn = || settings.turn_after_overflow.load(Ordering::Relaxed);
    wait_until("a turn", || turn() > 0);
    // The next thing that would wake the core is half a second away.
    assert!(turn() < 250, "{} ms", turn());
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "an assertion of debug builds")]
fn an_answer_that_never_comes_is_found_when_the_service_is_quiescent() {
    dies_of("traps::a_request_is_forgotten", "a quiescent service has answered every request");
}

#[test]
#[ignore = "ends its process; another test starts it"]
fn a_request_is_forgotten() {
    let mut server = start_with(2, |limits, _| limits.drain_time = Duration::from_secs(2));
    let request = "GET /forgotten HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut client = server.client();
    client.send(request);
    server.wait_until("it is asked", |core| core.bytes_in.value(), |bytes| bytes == request.len() as u64);
    server.stop();
    server.join();
}
