//! Event streams: fan-out over cores, heartbeats, readers that stop reading.

use std::time::Duration;

use aep_relay::ops::metrics::{ConnectionKind, Ending};

use crate::harness::{Client, start, start_with};

#[test]
fn every_reader_gets_every_event_in_order() {
    for cores in [1, 2, 4] {
        let server = start(cores);
        let mut readers: Vec<Client> = (0..100).map(|_| server.stream()).collect();
        let mut publisher = server.client();
        for n in 0..200 {
            publisher.publish(&format!("event {n}"));
        }
        for reader in &mut readers {
            for n in 0..200 {
                assert_eq!(reader.event(), Some(format!("event {n}")), "{cores} cores");
            }
        }
    }
}

#[test]
fn a_stream_for_old_clients_ends_with_the_connection() {
    let mut server = start(1);
    let mut client = server.client();
    client.send("GET /stream HTTP/1.0\r\n\r\n");
    let head = client.read_through(": open\n\n");
    assert!(!head.contains("Transfer-Encoding"), "{head}");
    server.publish("one");
    assert_eq!(client.read_through("\n\n"), "data: one\n\n");
    server.stop();
    assert_eq!(client.read_to_end(), b": bye\n\n");
    drop(client);
    server.join();
}

#[test]
fn silence_brings_heartbeats() {
    let server = start_with(1, |limits, settings| {
        settings.heartbeat_interval = Duration::from_millis(100);
        // Limits of requests are none of a stream's.
        limits.head_time = Duration::from_millis(150);
        limits.keep_alive_time = Duration::from_millis(150);
        limits.body_time = Duration::from_millis(150);
    });
    let mut reader = server.stream();
    for _ in 0..6 {
        assert_eq!(reader.chunk().as_deref(), Some(": ping\n\n"));
    }
    server.publish("still there");
    assert_eq!(reader.event().as_deref(), Some("still there"));
}

#[test]
fn an_open_stream_gets_another_heartbeat() {
    let server = start_with(1, |_, settings| settings.heartbeat_interval = Duration::from_secs(3600));
    let mut reader = server.stream();
    let mut client = server.client();
    client.send("GET /heartbeat HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.answer().0, 200);
    for _ in 0..4 {
        assert_eq!(reader.chunk().as_deref(), Some(": ping\n\n"));
    }
}

#[test]
fn a_reader_that_shuts_its_side_is_served_on_and_one_that_leaves_is_gone() {
    let server = start(2);
    let mut one = server.stream();
    let two = server.stream();
    let streams = |n: u64| {
        server.wait_until("streams", |core| core.connections.value(ConnectionKind::EventStream), move |v| v == n);
    };
    streams(2);
    drop(two);
    streams(1);
    one.end();
    assert_eq!(one.chunk().as_deref(), Some(": ping\n\n"), "asked whether it still reads");
    server.publish("it does");
    assert_eq!(one.event().as_deref(), Some("it does"));
    drop(one);
    // Its leaving has nothing left to say; the next delivery finds out.
    server.publish("it did");
    streams(0);
}

/// The content of whole chunks; panics if there is a broken one, or no last.
fn chunks(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    loop {
        let line = memchr::memmem::find(bytes, b"\r\n").expect("a size line");
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).unwrap(), 16).unwrap();
        let content = &bytes[line + 2..line + 2 + size];
        assert_eq!(&bytes[line + 2 + size..line + 4 + size], b"\r\n");
        bytes = &bytes[line + 4 + size..];
        if size == 0 {
            assert!(bytes.is_empty(), "nothing comes behind the last chunk");
            return chunks;
        }
        chunks.push(content);
    }
}

#[test]
fn a_reader_that_stops_is_cut_between_messages_and_delays_nobody() {
    let server = start_with(2, |limits, _| {
        limits.write_queue_bytes_max = 2 << 20;
        limits.delivery_bytes_max = 1 << 20;
    });
    let mut stalled = server.stream();
    let mut reader = server.stream();
    let mut publisher = server.client();
    let filler = "x".repeat(50_000);
    let mut sent = 0;
    while server.cuts() == 0 {
        publisher.publish(&format!("{sent} {filler}"));
        assert_eq!(reader.event(), Some(format!("{sent} {filler}")));
        sent += 1;
    }
    server.wait_until("it is given up", |core| core.endings.value(Ending::SlowConsumer), |n| n == 1);
    server.wait_until("blocks are free again", |core| core.delivery_block_bytes.value(), |n| n <= 1 << 20);
    // It wakes up: what had left before the cut is whole.
    let mut bytes = Vec::new();
    let _reset_or_end = std::io::Read::read_to_end(&mut stalled.stream, &mut bytes);
    let whole = bytes.len();
    assert!(whole > 0);
    let mut seen = 0;
    let mut rest = bytes.as_slice();
    while let Some(line) = memchr::memmem::find(rest, b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        let Some(chunk) = rest.get(line + 2..line + 2 + size) else { break };
        assert!(chunk.starts_with(format!("data: {seen} ").as_bytes()));
        seen += 1;
        rest = &rest[line + 4 + size..];
    }
    assert!(seen > 0 && seen < sent);
}

#[test]
fn a_slow_reader_that_comes_back_in_time_gets_a_whole_end() {
    const EVENTS: usize = 18;
    let server = start_with(1, |limits, _| {
        limits.write_queue_bytes_max = 1 << 20;
        limits.delivery_bytes_max = 512 << 10;
    });
    let mut slow = server.stream();
    let mut publisher = server.client();
    let filler = "x".repeat(50_000);
    let mut other = server.stream();
    // More than the delivery blocks hold, less than the queue: nothing of it depends on how fast anybody reads.
    for n in 0..EVENTS {
        publisher.publish(&format!("{n} {filler}"));
        assert_eq!(other.event(), Some(format!("{n} {filler}")));
    }
    let reader = std::thread::spawn(move || slow.read_to_end());
    drop(server);
    let bytes = reader.join().unwrap();
    let chunks = chunks(&bytes);
    assert_eq!(chunks.len(), EVENTS + 1);
    for (n, chunk) in chunks.iter().take(EVENTS).enumerate() {
        assert!(chunk.starts_with(format!("data: {n} ").as_bytes()));
    }
    assert_eq!(chunks.last(), Some(&b": bye\n\n".as_slice()));
}

#[test]
fn backlogs_over_their_budget_lose_the_largest() {
    let server = start_with(2, |limits, _| {
        limits.delivery_bytes_max = 256 << 10;
        limits.backlog_bytes_max = 4 << 20;
        limits.write_queue_bytes_max = 1 << 30;
    });
    let _stalled: Vec<Client> = (0..4).map(|_| server.stream()).collect();
    let mut reader = server.stream();
    let mut publisher = server.client();
    let filler = "x".repeat(100_000);
    let mut sent = 0;
    while server.cuts() == 0 {
        publisher.publish(&format!("{sent} {filler}"));
        assert_eq!(reader.event(), Some(format!("{sent} {filler}")));
        sent += 1;
    }
    publisher.publish("last");
    assert_eq!(reader.event().as_deref(), Some("last"));
}
