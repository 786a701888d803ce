//! Requests and answers: order, refusals, time limits, bodies.

use std::io::{Read, Write};
use std::time::{Duration, SystemTime};

use aep_relay::ops::metrics::{Endpoint, RequestLabels, StatusClass};

use crate::harness::{start, start_with};

#[test]
fn pipelined_requests_are_answered_in_order_on_one_connection() {
    let server = start(1);
    let mut client = server.client();
    let mut requests = Vec::new();
    for n in 0..200 {
        let body = n.to_string().repeat(n);
        write!(requests, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        requests.extend(b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    client.send(requests);
    for n in 0..200 {
        assert_eq!(client.answer(), (200, n.to_string().repeat(n).into_bytes()));
        assert_eq!(client.answer(), (200, b"later".to_vec()));
    }
    server.wait_until("one connection", |core| core.accepted.value(), |n| n == 1);
}

#[test]
fn answers_that_nobody_reads_stop_the_reading() {
    let server = start(1);
    let mut client = server.client();
    let body = vec![b'x'; 1 << 20];
    let mut writer = client.stream.try_clone().unwrap();
    let thread = std::thread::spawn(move || {
        for _ in 0..64 {
            write!(writer, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 1 << 20).unwrap();
            writer.write_all(&body).unwrap();
        }
    });
    for _ in 0..64 {
        assert_eq!(client.answer().1.len(), 1 << 20);
    }
    thread.join().unwrap();
}

#[test]
fn head_has_a_length_and_no_body() {
    let server = start(1);
    let mut client = server.client();
    client.send("HEAD /now HTTP/1.1\r\nHost: x\r\n\r\nGET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(client.read_through("\r\n\r\n").contains("Content-Length: 3\r\n"));
    assert_eq!(client.answer(), (200, b"now".to_vec()));
}

#[test]
fn old_clients_are_closed_unless_they_ask() {
    let server = start(1);
    let mut client = server.client();
    client.send("GET /now HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(client.read_through("now").contains("Connection: keep-alive\r\n"));
    client.send("GET /now HTTP/1.0\r\n\r\n");
    assert!(client.read_through("now").contains("Connection: close\r\n"));
    assert!(client.read_to_end().is_empty());
}

#[test]
fn requests_that_cannot_be_served_are_refused_readably_and_closed() {
    let server = start_with(1, |limits, _| limits.head_bytes_max = 1000);
    let long = "x".repeat(2000);
    for (request, status) in [
        ("GET /now HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET /now HTTP/1.1\nHost: x\r\n\r\n".to_owned(), 400),
        ("GET /now HTTP/2.0\r\nHost: x\r\n\r\n".to_owned(), 505),
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), 414),
        (format!("GET /now HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n"), 431),
        ("GET /now HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n".to_owned(), 417),
        ("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(), 400),
    ] {
        let mut client = server.client();
        client.send(request + &"and more that is never looked at".repeat(1000));
        assert_eq!(client.answer().0, status);
        assert!(client.read_to_end().is_empty());
    }
}

#[test]
fn a_refused_upload_can_be_read_while_it_goes_on() {
    let server = start_with(1, |_, settings| settings.body_bytes_max = 1000);
    let body = vec![b'x'; 24 << 20];
    for head in ["Content-Length: 25165824\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n1800000\r\n"] {
        let mut client = server.client();
        client.send(format!("POST /echo HTTP/1.1\r\nHost: x\r\n{head}"));
        // A client that reads only when it has sent everything.
        client.send(&body);
        let (status, text) = client.answer();
        assert_eq!(status, 413);
        assert_eq!(text, b"BodyTooLarge(1000) true");
        client.end();
        assert!(client.read_to_end().is_empty());
    }
}

#[test]
fn content_that_was_not_asked_for_is_read_past() {
    let server = start(1);
    let mut client = server.client();
    client.send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n");
    client.send(vec![b'x'; 300_000]);
    client.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.answer().0, 403);
    assert_eq!(client.answer(), (200, b"now".to_vec()));
}

#[test]
fn continue_is_sent_when_the_body_is_wanted_and_awaited() {
    let server = start_with(1, |_, settings| settings.body_bytes_max = 1000);
    let expecting = |length: usize| {
        format!("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n")
    };
    let mut client = server.client();
    client.send(expecting(5));
    assert_eq!(client.read_through("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    assert_eq!(client.answer(), (200, b"hello".to_vec()));

    let mut client = server.client();
    client.send(expecting(1001));
    assert_eq!(client.answer().0, 413);

    // The body came with the head: nobody waits.
    let mut client = server.client();
    client.send(expecting(5) + "hello");
    assert_eq!(client.answer(), (200, b"hello".to_vec()));
}

#[test]
fn a_body_cut_off_brings_nothing() {
    let server = start(1);
    let mut consumer = server.stream();
    let mut client = server.client();
    client.send("POST /publish HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf");
    client.end();
    assert!(client.read_to_end().is_empty());
    server.publish("whole");
    assert_eq!(consumer.event().as_deref(), Some("whole"));
}

#[test]
fn a_client_that_has_sent_all_it_wants_gets_its_answer() {
    let server = start(1);
    let mut client = server.client();
    client.send("GET /later HTTP/1.1\r\nHost: x\r\n\r\nPOST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
    client.end();
    assert_eq!(client.answer(), (200, b"later".to_vec()));
    assert_eq!(client.answer(), (200, b"hi".to_vec()));
    assert!(client.read_to_end().is_empty());
}

#[test]
fn whoever_is_too_slow_is_closed_by_the_limit_from_the_start() {
    let server = start_with(1, |limits, _| {
        limits.head_time = Duration::from_millis(300);
        limits.body_time = Duration::from_millis(300);
        limits.keep_alive_time = Duration::from_millis(300);
    });
    let mut silent = server.client();
    let mut half_head = server.client();
    half_head.send("GET /now HT");
    let mut half_body = server.client();
    half_body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
    let mut endless = server.client();
    endless.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n");
    let mut second_head = server.client();
    second_head.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\nGET /no");
    let mut idle = server.client();
    idle.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");

    assert!(silent.read_to_end().is_empty());
    for late in [&mut half_head, &mut half_body, &mut endless] {
        assert_eq!(late.answer().0, 408);
        assert!(late.read_to_end().is_empty());
    }
    assert_eq!(second_head.answer().0, 200);
    assert_eq!(second_head.answer().0, 408);
    assert_eq!(idle.answer().0, 200);
    assert!(idle.read_to_end().is_empty());
}

#[test]
fn over_the_connection_limit_a_client_is_told_and_the_place_comes_free() {
    let server = start_with(2, |limits, _| limits.connections_max = 3);
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.answer().0, 200);
    }
    let mut refused = server.client();
    refused.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(refused.answer().0, 503);
    refused.end();
    assert!(refused.read_to_end().is_empty());
    drop(clients.pop());
    server.wait_until("one place free", |core| core.connections.value(http()), |n| n == 2);
    let mut client = server.client();
    client.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.answer().0, 200);
}

#[test]
fn uploads_over_the_receiving_budget_wait_for_each_other() {
    let server = start_with(2, |limits, _| limits.receiving_bytes_max = 100 << 10);
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let mut client = server.client();
            std::thread::spawn(move || {
                let body = vec![b'0' + n; 3 << 20];
                client.send(format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len()));
                client.send(&body);
                assert_eq!(client.answer(), (200, body));
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn connections_spread_over_the_cores() {
    let server = start(4);
    let clients: Vec<_> = (0..120)
        .map(|_| {
            let mut client = server.client();
            client.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(client.answer().0, 200);
            client
        })
        .collect();
    let counts: Vec<u64> = (0..4).map(|core| server.metrics.core(core).connections.value(http())).collect();
    assert_eq!(counts.iter().sum::<u64>(), clients.len() as u64);
    assert!(counts.iter().all(|&count| count <= 45), "{counts:?}");
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind() {
    let server = start(2);
    for _ in 0..50 {
        let mut client = server.client();
        client.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\nGET /no");
        client.stream.read_exact(&mut [0]).unwrap();
    }
    server.wait_until("all gone", |core| core.connections.value(http()), |n| n == 0);
}

fn http() -> aep_relay::ops::metrics::ConnectionKind {
    aep_relay::ops::metrics::ConnectionKind::Http
}

#[test]
fn an_answer_names_its_status() {
    let server = start(1);
    let mut client = server.client();
    for (path, line) in [("/created", "201 Created"), ("/conflict", "409 Conflict"), ("/gone", "410 Gone")] {
        client.send(format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"));
        let head = client.read_through("\r\n\r\n");
        assert!(head.starts_with(&format!("HTTP/1.1 {line}\r\n")), "{head}");
    }
}

#[test]
fn a_service_is_given_the_time_of_day_of_its_turn() {
    let server = start(1);
    let mut client = server.client();
    let nanos = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let mut last = 0;
    for _ in 0..20 {
        client.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.answer().0, 200);
        // Asked for later than whatever turn is under way began.
        let before = nanos();
        client.send("GET /time HTTP/1.1\r\nHost: x\r\n\r\n");
        let told: u128 = String::from_utf8(client.answer().1).unwrap().parse().unwrap();
        assert!((before..=nanos()).contains(&told) && told > last, "{told} asked for at {before}");
        last = told;
    }
}

#[test]
fn the_terms_of_a_request_hold_for_whatever_answers_it() {
    let server = start_with(1, |limits, settings| {
        settings.body_bytes_max = 1000;
        limits.body_time = Duration::from_millis(200);
    });
    let count = |status: u16| {
        let request = RequestLabels { endpoint: Endpoint::Stream, status: StatusClass::of(status) };
        server.metrics.sum(|core| core.requests.value(request))
    };
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    // Who answers: the service at once, later, behind a body, with a stream, with an upgrade; the engine.
    for (request, rest, status) in [
        ("GET /now", "\r\n", 200),
        ("GET /later", "\r\n", 200),
        ("POST /echo", "Content-Length: 2\r\n\r\nhi", 200),
        ("GET /stream", "\r\n", 200),
        ("GET /socket", upgrade, 101),
        ("POST /echo", "Content-Length: 1001\r\n\r\n", 413),
        ("POST /echo", "Content-Length: 2\r\n\r\nh", 408),
        ("POST /echo", "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        ("GET /now", "Expect: tea\r\n\r\n", 417),
    ] {
        let before = count(status);
        let mut client = server.client();
        client.send(format!("{request} HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\n{rest}"));
        let head = client.read_through("\r\n\r\n");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {head}");
        assert_eq!(head.matches("For: https://a.example\r\n").count(), 1, "{request}: {head}");
        let own = head.find("Content-Type").unwrap_or(head.len());
        assert!(head.find("For: ").is_some_and(|at| at < own), "{request}: {head}");
        assert_eq!(count(status), before + 1, "{request} {status}");
    }
    let mut client = server.client();
    client.send("GET /now HTTP/1.1\nHost: x\r\nOrigin: https://a.example\r\n\r\n");
    let head = client.read_through("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 400 ") && head.contains("\r\nFor: \r\n"), "no head, no origin: {head}");
}

#[test]
fn a_refusal_names_the_connection_whose_request_the_service_has_heard() {
    let server = start_with(1, |_, settings| settings.body_bytes_max = 1000);
    for (request, heard) in [
        ("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", true),
        ("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", true),
        ("GET /now HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", false),
        ("GET /now HTTP/1.1\r\n\r\n", false),
        ("GET /now HTTP/2.0\r\nHost: x\r\n\r\n", false),
    ] {
        let mut client = server.client();
        // One before it on the same connection does not count.
        client.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.answer().0, 200);
        client.send(request);
        let (_, text) = client.answer();
        let text = String::from_utf8(text).unwrap();
        assert!(text.ends_with(&heard.to_string()), "{request}: {text}");
    }
}

#[test]
fn a_body_cut_off_takes_no_answer_away_that_came_before_it() {
    let server = start(1);
    for _ in 0..100 {
        let mut client = server.client();
        client
            .send("GET /now HTTP/1.1\r\nHost: x\r\n\r\nPOST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe");
        client.end();
        assert_eq!(client.answer(), (200, b"now".to_vec()));
        assert!(client.read_to_end().is_empty());
    }
}
