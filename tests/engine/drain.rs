//! The end of the process: who is told, who is waited for, and how it counts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use aep_relay::engine::Outcome;
use aep_relay::ops::metrics::ConnectionKind;

use crate::harness::{start, start_with, wait_until};

#[test]
fn an_idle_engine_drains_at_once_and_gives_the_port_back() {
    for cores in [1, 2, 4] {
        let mut server = start(cores);
        let address = server.address;
        server.stop();
        assert_eq!(server.join(), Outcome::Drained);
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn everybody_is_told() {
    for cores in [1, 2, 4] {
        let mut server = start(cores);
        let mut streams: Vec<_> = (0..20).map(|_| server.stream()).collect();
        let mut sockets: Vec<_> = (0..20).map(|_| server.websocket()).collect();
        let mut idle = server.client();
        idle.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(idle.answer().0, 200);
        for n in 0..50 {
            sockets[0].send_frame(0x81, format!("publish {n}").as_bytes());
        }
        assert_eq!(sockets[0].frame(), (0x81, b"0".to_vec()));
        server.stop();
        // What was taken in is delivered, then comes the goodbye.
        for (n, socket) in sockets.iter_mut().enumerate() {
            let mut next = usize::from(n == 0);
            let (code, _) = loop {
                let (first, payload) = socket.frame();
                if first == 0x88 {
                    break (u16::from_be_bytes([payload[0], payload[1]]), payload);
                }
                assert_eq!(payload, next.to_string().into_bytes());
                next += 1;
            };
            assert_eq!(code, 1001);
            socket.send_frame(0x88, b"\x03\xe9");
            assert!(socket.read_to_end().is_empty());
        }
        for stream in &mut streams {
            let mut last = None;
            while let Some(chunk) = stream.chunk() {
                last = Some(chunk);
            }
            assert_eq!(last.as_deref(), Some(": bye\n\n"));
            stream.end();
            assert!(stream.read_to_end().is_empty());
        }
        assert!(idle.read_to_end().is_empty());
        drop(idle);
        assert_eq!(server.join(), Outcome::Drained);
    }
}

#[test]
fn a_body_in_flight_comes_to_its_end_and_a_new_request_is_refused() {
    let mut server = start_with(2, |limits, _| limits.drain_time = Duration::from_secs(200));
    let mut upload = server.client();
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    upload.send(head);
    upload.read_through("\r\n\r\n");
    upload.send("he");
    let mut late = server.client();
    late.send("GET /now HT");
    server.wait_until("all are there", |core| core.connections.value(ConnectionKind::Http), |n| n == 2);
    server.wait_until("their bytes too", |core| core.bytes_in.value(), |n| n >= (head.len() + 2 + 11) as u64);
    server.stop();
    wait_until("nobody is let in any more", || TcpStream::connect(server.address).is_err());
    upload.send("llo");
    assert_eq!(upload.answer(), (200, b"hello".to_vec()));
    late.send("TP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(late.answer().0, 503);
    for client in [&mut upload, &mut late] {
        client.end();
        assert!(client.read_to_end().is_empty());
    }
    assert_eq!(server.join(), Outcome::Drained);
}

#[test]
fn a_body_that_stands_still_is_refused_long_before_half_time_and_holds_up_nobody() {
    let mut server = start_with(1, |limits, _| limits.drain_time = Duration::from_secs(100));
    let mut reader = server.stream();
    let mut upload = server.client();
    upload.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    upload.read_through("\r\n\r\n");
    upload.send("he");
    server.stop();
    // The clients' own patience is shorter than half of the drain time.
    assert_eq!(upload.answer().0, 503);
    drop(upload);
    assert_eq!(reader.chunk().as_deref(), Some(": bye\n\n"));
    drop(reader);
    assert_eq!(server.join(), Outcome::Drained);
}

#[test]
fn a_body_that_goes_on_is_waited_for_up_to_half_time() {
    let mut server = start_with(1, |limits, _| limits.drain_time = Duration::from_secs(10));
    let uploads = [1, 100_000].map(|seconds| {
        let mut upload = server.client();
        let length = seconds * 10;
        upload.send(format!(
            "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        ));
        upload.read_through("\r\n\r\n");
        (upload, length)
    });
    server.stop();
    // A byte in a tenth of a second; one that brings nothing for a fifth stands still.
    let statuses = uploads.map(|(mut upload, length)| {
        std::thread::spawn(move || {
            for _ in 0..length {
                if upload.stream.write_all(b"x").is_err() || upload.has_answer_within(Duration::from_millis(100)) {
                    break;
                }
            }
            upload.answer().0
        })
    });
    assert_eq!(statuses.map(|status| status.join().unwrap()), [200, 503]);
    assert_eq!(server.join(), Outcome::Drained);
}

#[test]
fn peers_that_do_not_answer_are_cut_and_the_drain_is_a_good_one() {
    let mut server = start(2);
    let _deaf_socket = server.websocket();
    let _deaf_stream = server.stream();
    let mut stalled = server.stream();
    let mut reader = server.stream();
    let mut publisher = server.client();
    let filler = "x".repeat(1 << 20);
    for _ in 0..12 {
        publisher.publish(&filler);
        assert!(reader.event().is_some());
    }
    assert!(stalled.chunk().is_some());
    server.stop();
    assert_eq!(server.join(), Outcome::Drained);
}

#[test]
fn the_second_to_answer_the_goodbye_is_on_top_of_the_drain_time() {
    let mut server = start_with(1, |limits, _| limits.drain_time = Duration::from_millis(100));
    let _deaf = server.websocket();
    let mut slow = server.websocket();
    server.stop();
    assert_eq!(slow.frame().0, 0x88);
    slow.send_frame(0x88, b"\x03\xe9");
    assert!(slow.read_to_end().is_empty());
    assert_eq!(server.join(), Outcome::Drained);
}

#[test]
fn a_reader_that_goes_on_reading_is_waited_for_up_to_the_drain_time() {
    let mut server = start_with(1, |limits, _| limits.drain_time = Duration::from_secs(2));
    let mut slow = server.stream();
    let mut reader = server.stream();
    let mut publisher = server.client();
    let filler = "x".repeat(1 << 20);
    for _ in 0..15 {
        publisher.publish(&filler);
        assert!(reader.event().is_some());
    }
    drop(reader);
    server.stop();
    let trickle = std::thread::spawn(move || {
        let mut bytes = [0; 64 << 10];
        while slow.stream.read(&mut bytes).is_ok_and(|count| count > 0) {
            std::thread::park_timeout(Duration::from_millis(40));
        }
    });
    assert_eq!(server.join(), Outcome::TimedOut);
    trickle.join().unwrap();
}
