//! The end of the process: who is told, who is waited for, and how it counts.

use std::net::TcpStream;
use std::time::Duration;

use aep_relay::engine::Outcome;
use aep_relay::ops::metrics::ConnectionKind;

use crate::harness::{start, start_with};

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
    let mut server = start(2);
    let mut upload = server.client();
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    upload.send(head);
    upload.read_through("\r\n\r\n");
    upload.send("he");
    let mut late = server.client();
    late.send("GET /now HT");
    let mut witness = server.client();
    server.wait_until("all are there", |core| core.connections.value(ConnectionKind::Http), |n| n == 3);
    server.wait_until("their bytes too", |core| core.bytes_in.value(), |n| n >= (head.len() + 2 + 11) as u64);
    server.stop();
    assert!(witness.read_to_end().is_empty());
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
fn a_body_that_does_not_end_is_refused_at_half_time() {
    let mut server = start_with(1, |limits, _| limits.drain_time = Duration::from_secs(4));
    let mut upload = server.client();
    upload.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    upload.read_through("\r\n\r\n");
    server.stop();
    assert_eq!(upload.answer().0, 503);
    drop(upload);
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
fn the_drain_time_is_the_last_word() {
    let mut server = start_with(1, |limits, _| limits.drain_time = Duration::from_millis(100));
    // It would be given a second to answer the close.
    let _deaf = server.websocket();
    server.stop();
    assert_eq!(server.join(), Outcome::TimedOut);
}
