//! HTTP/1.1 as bytes: where messages end, what is no message, and what comes too slowly (contract §4).
//!
//! A parser that forgives is how one request is smuggled inside another: everything doubtful is 400 and the end of
//! the connection, and nothing behind it is ever answered.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use crate::support::*;

const POST_HEAD: &str = "POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n";
const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: r\r\n\r\n";

/// Sends the bytes with a well-formed request behind them: only the refusal may come back.
#[track_caller]
fn expect_malformed(relay: &Relay, bytes: &str) {
    let mut http = Http::connect(relay);
    http.send(format!("{bytes}{HEALTH}"));
    let response = http.response();
    assert_eq!(response.status, 400, "400 expected for {bytes:?}: {response:?}");
    response.expect_refusal(400, "bad-request");
    http.expect_gone();
}

#[test]
fn every_line_of_a_head_ends_in_cr_lf() {
    let relay = Relay::plain();
    for bytes in [
        "GET /x\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "GET /healthz HTTP/1.1\nHost: a\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: a\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: a\nX-A: b\n\n",
        "GET /healthz HTTP/1.1\nHost: a\nX-A: b\n\n",
        "GET /healthz HTTP/1.1\r\nHost: a\r\n\n",
        "GET /healthz HTTP/1.1\rHost: a\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: a\rX-A: b\r\n\r\n",
    ] {
        expect_malformed(&relay, bytes);
    }
}

#[test]
fn no_field_is_born_from_a_lone_cr_or_a_fold() {
    let relay = Relay::plain();
    for bytes in [
        "POST /events HTTP/1.1\r\nHost: r\r\nX-Abc: \rxTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n",
        "POST /events HTTP/1.1\r\nHost: r\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        "POST /events HTTP/1.1\r\n Content-Length: 5\r\nHost: r\r\n\r\nhello",
        "GET /healthz HTTP/1.1\r\nHost: r\r\nX-A: b\r\n\tfolded\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: r\r\nX-A: b\0c\r\n\r\n",
    ] {
        expect_malformed(&relay, bytes);
    }
}

#[test]
fn malformed_lines_are_refused() {
    let relay = Relay::plain();
    for bytes in [
        "GET /healthz HTTP/1.1\r\nHost : r\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: r\r\nNo colon here\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: r\r\n: no name\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: r\r\nX(Y): z\r\n\r\n",
        "GET  /healthz HTTP/1.1\r\nHost: r\r\n\r\n",
        "GET /healthz  HTTP/1.1\r\nHost: r\r\n\r\n",
        "GET /healthz\r\nHost: r\r\n\r\n",
        "GET HTTP/1.1\r\nHost: r\r\n\r\n",
        "G@T /healthz HTTP/1.1\r\nHost: r\r\n\r\n",
        "GET /healthz http/1.1\r\nHost: r\r\n\r\n",
        "GET /healthz HTTP/1.1 \r\nHost: r\r\n\r\n",
        "GET /healthz HTTP/1.1\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: r\r\nHost: r\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: r\r\nhost: other\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}\r\n\r\n",
    ] {
        expect_malformed(&relay, bytes);
    }
}

#[test]
fn the_value_of_host_is_not_examined() {
    let relay = Relay::plain();
    for host in ["", "relay.test:99999", "a b", "[::1", "*"] {
        let (mut http, response) = Http::exchange(&relay, format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(response.status, 200, "{host:?}");
        http.expect_alive();
    }
}

#[test]
fn a_body_of_doubtful_length_is_refused() {
    let relay = Relay::plain();
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: five\r\n",
        "Content-Length: 5.0\r\n",
        "Content-Length: \r\n",
        "Content-Length: 99999999999999999999999999\r\n",
        "Content-Length: 18446744073709551621\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunkedx\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: \u{b}chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: \r\n",
    ] {
        expect_malformed(&relay, &format!("{POST_HEAD}{fields}\r\n0\r\n\r\n"));
    }
    expect_malformed(&relay, "POST /events HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
}

#[test]
fn broken_chunks_are_refused() {
    let relay = Relay::plain();
    for body in [
        "g\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloo\r\n0\r\n\r\n",
        "4\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5;a=\nb\r\nhello\r\n0\r\n\r\n",
        "0\r\n\n",
        "0\n\n",
    ] {
        expect_malformed(&relay, &format!("{POST_HEAD}Transfer-Encoding: chunked\r\n\r\n{body}"));
    }
}

#[test]
fn well_formed_chunks_make_one_body() {
    let relay = Relay::plain();
    let body = event("s", 1).build();
    let (first, second) = body.split_at(1);
    let length = second.len();
    for bytes in [
        format!("1\r\n{first}\r\n{length:x}\r\n{second}\r\n0\r\n\r\n"),
        format!("0001\r\n{first}\r\n{length:X}\r\n{second}\r\n000\r\n\r\n"),
        format!("1;name=value\r\n{first}\r\n{length:x};q=\"a b\"\r\n{second}\r\n0;last\r\n\r\n"),
        format!("1\r\n{first}\r\n{length:x}\r\n{second}\r\n0\r\nX-Trailer: dropped\r\nContent-Length: 5\r\n\r\n"),
    ] {
        for coding in ["chunked", "Chunked", "  chunked  "] {
            let head = format!("{POST_HEAD}Transfer-Encoding: {coding}\r\n\r\n");
            let (mut http, response) = Http::exchange(&relay, format!("{head}{bytes}"));
            response.expect(202, r#"{"accepted":1}"#);
            http.expect_alive();
        }
    }
}

#[test]
fn what_surrounds_the_chunks_is_bounded() {
    let relay = Relay::plain();
    let before = relay.resident_kib();
    let head = format!("{POST_HEAD}Transfer-Encoding: chunked\r\n\r\n");
    for endless in [
        format!("1;{}", "a".repeat(8 << 20)),
        "0".repeat(8 << 20),
        format!("0\r\n{}", "X-Trailer: a\r\n".repeat(600_000)),
        format!("0\r\nX-Trailer: {}", "a".repeat(8 << 20)),
    ] {
        let mut http = Http::connect(&relay);
        http.send_if_open(format!("{head}{endless}"));
        http.response().expect_refusal(400, "bad-request");
    }
    let mut http = Http::connect(&relay);
    http.send_if_open("\r\n".repeat(100_000));
    http.response().expect_refusal(400, "bad-request");
    let grown = relay.resident_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB kept of 32 MiB of framing");
}

#[test]
fn a_body_nobody_asked_for_does_not_shift_what_follows() {
    let relay = Relay::plain();
    let chunked = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for body in ["Content-Length: 5\r\n\r\nhello", chunked] {
        for line in ["GET /healthz", "GET /events", "OPTIONS /events", "POST /nowhere", "GET /socket", "DELETE /events"]
        {
            let mut http = Http::connect(&relay);
            http.send(format!("{line} HTTP/1.1\r\nHost: r\r\n{body}"));
            http.response();
            http.expect_alive();
        }
    }
}

#[test]
fn other_versions_of_http_are_refused() {
    let relay = Relay::plain();
    for version in ["HTTP/2.0", "HTTP/3.0", "HTTP/0.9"] {
        let mut http = Http::connect(&relay);
        http.send(format!("GET /healthz {version}\r\nHost: r\r\n\r\n{HEALTH}"));
        let response = http.response();
        assert_eq!(response.status, 505, "{version}: {response:?}");
        assert!(response.json()["error"].is_string());
        http.expect_gone();
    }
}

#[test]
fn http_1_0_is_answered_and_closed() {
    let relay = Relay::plain();
    let (mut http, response) = Http::exchange(&relay, "GET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!(response.status, 200);
    assert!(response.field("content-length").is_some());
    http.expect_end();
    let body = event("s", 1).build();
    let head =
        format!("POST /events HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    let (mut http, response) = Http::exchange(&relay, format!("{head}{body}"));
    response.expect(202, r#"{"accepted":1}"#);
    http.expect_end();
}

#[test]
fn connection_close_is_obeyed() {
    let relay = Relay::plain();
    for value in ["close", "Close", "keep-alive, close"] {
        let mut http = Http::connect(&relay);
        http.send(format!("GET /healthz HTTP/1.1\r\nHost: r\r\nConnection: {value}\r\n\r\n"));
        let response = http.response();
        assert!(response.status == 200 && response.closes(), "{response:?}");
        http.expect_end();
    }
}

#[test]
fn refusals_of_whole_requests_leave_the_connection_open() {
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_MAX_BATCH", 1);
    });
    let token = ("Authorization", "Bearer sesame");
    let json = ("Content-Type", "application/json");
    let ndjson = ("Content-Type", "application/x-ndjson");
    let command = command("control.cancel", "s").build();
    let mut http = Http::connect(&relay);
    for (status, bytes) in [
        (404, request("POST", "/nowhere", &[token, json], b"{}")),
        (405, request("PUT", "/events", &[token, json], b"{}")),
        (401, request("POST", "/events", &[json], b"{}")),
        (426, request("POST", "/events", &[token, json, ("AEP-Version", "2.0")], b"{}")),
        (415, request("POST", "/events", &[token], b"{}")),
        (413, request("POST", "/events", &[token, ndjson], b"{}\n{}")),
        (400, request("POST", "/events", &[token, json], b"")),
        (400, request("POST", "/events", &[token, json], b"{")),
        (400, request("POST", "/events", &[token, json], b"{}")),
        (403, request("POST", "/events", &[token, json], command.as_bytes())),
        (400, request("GET", "/stream?filter=%5B", &[token], b"")),
        (426, request("GET", "/socket", &[token], b"")),
        (200, request("GET", "/events", &[token], b"")),
        (200, request("GET", "/events", &[token], b"a body nobody asked for")),
    ] {
        http.send(&bytes);
        let response = http.response();
        assert_eq!(response.status, status, "{}: {response:?}", String::from_utf8_lossy(&bytes));
        assert!(!response.closes(), "{status} closes: {}", String::from_utf8_lossy(&bytes));
        http.expect_alive();
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_however_they_are_cut() {
    let relay = Relay::plain();
    let body = event("s", 1).build();
    let post = request("POST", "/events", &[("Content-Type", "application/json")], body.as_bytes());
    let chunked = format!("{POST_HEAD}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let mut bytes = Vec::new();
    bytes.extend(&post);
    bytes.extend(request("GET", "/nowhere", &[], b""));
    bytes.extend(request("POST", "/events", &[("Content-Type", "application/json")], b"{"));
    bytes.extend(chunked.as_bytes());
    bytes.extend(request("HEAD", "/events", &[], b""));
    bytes.extend(request("OPTIONS", "/events", &[], b""));
    bytes.extend(&post);
    let check = |http: &mut Http| {
        for status in [202, 404, 400, 202] {
            assert_eq!(http.response().status, status);
        }
        assert_eq!(http.response_to_head().status, 200);
        assert_eq!(http.response().status, 204);
        assert_eq!(http.response().status, 202);
    };
    let mut http = Http::connect(&relay);
    for at in 0..bytes.len() {
        http.send_cut(&bytes, at);
        check(&mut http);
    }
    http.send_bytewise(&bytes);
    check(&mut http);
    http.expect_alive();
}

/// RFC 9112 §2.2: old clients end a body with a line break that belongs to nothing.
#[test]
fn one_empty_line_before_a_request_is_passed_over() {
    let relay = Relay::plain();
    let body = event("s", 1).build();
    let post = request("POST", "/events", &[("Content-Type", "application/json")], body.as_bytes());
    let bytes = [b"\r\n", &post[..], b"\r\n", HEALTH.as_bytes(), b"\r\n", HEALTH.as_bytes()].concat();
    let check = |http: &mut Http| {
        for status in [202, 200, 200] {
            assert_eq!(http.response().status, status);
        }
    };
    // In front of the first request of a connection, between pipelined ones, and at the beginning of a later one.
    for at in 0..bytes.len() {
        let mut http = Http::connect(&relay);
        http.send_cut(&bytes, at);
        check(&mut http);
        http.send(&bytes);
        check(&mut http);
    }
    let mut http = Http::connect(&relay);
    http.send_bytewise(&bytes);
    check(&mut http);
    for more in ["\r\n\r\n", "\n", "\r\r\n", "\r\n\n"] {
        expect_malformed(&relay, &format!("{more}{HEALTH}"));
    }
}

#[test]
fn a_long_pipeline_is_answered_to_the_end() {
    let relay = Relay::plain();
    let mut http = Http::connect(&relay);
    let writer = http.stream().try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        let batch = HEALTH.repeat(100);
        (0..50).for_each(|_| (&writer).write_all(batch.as_bytes()).unwrap());
    });
    for _ in 0..5000 {
        assert_eq!(http.response().status, 200);
    }
    sender.join().unwrap();
    http.expect_alive();
}

#[test]
fn an_answer_still_comes_when_the_client_has_ended_its_side() {
    let relay = Relay::plain();
    let body = event("s", 1).build();
    let mut http = Http::connect(&relay);
    http.send(request("POST", "/events", &[("Content-Type", "application/json")], body.as_bytes()));
    http.finish();
    http.response().expect(202, r#"{"accepted":1}"#);
    http.expect_end();

    let mut http = Http::connect(&relay);
    for _ in 0..20 {
        http.send(request("POST", "/events", &[("Content-Type", "application/json")], body.as_bytes()));
        http.send(HEALTH);
    }
    http.finish();
    for _ in 0..20 {
        http.response().expect(202, r#"{"accepted":1}"#);
        assert_eq!(http.response().status, 200);
    }
    http.expect_end();
}

#[test]
fn a_body_cut_off_ingests_nothing() {
    let relay = Relay::plain();
    let ndjson = "POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/x-ndjson\r\n";
    let first = event("cut", 1).build();
    for (head, body) in [
        (format!("{ndjson}Content-Length: 5000\r\n\r\n"), format!("{first}\n")),
        (format!("{ndjson}Transfer-Encoding: chunked\r\n\r\n"), format!("{:x}\r\n{first}\n\r\n", first.len() + 1)),
        (format!("{ndjson}Transfer-Encoding: chunked\r\n\r\n"), format!("{:x}\r\n{first}\n\r\n0\r\n", first.len() + 1)),
    ] {
        let mut http = Http::connect(&relay);
        http.send(format!("{head}{body}"));
        http.finish();
        // Whether the relay still says 400 or just goes is its own choice; it never says 202.
        assert!(!String::from_utf8_lossy(&http.read_to_end()).contains(" 202 "));
    }
    assert_eq!(relay.count("sessions"), 0);
}

// ── Expect ──

#[test]
fn a_client_that_waits_for_continue_gets_it() {
    let relay = Relay::plain();
    let body = event("s", 1).build();
    for expect in ["100-continue", "100-Continue"] {
        let mut http = Http::connect(&relay);
        http.send(format!("{POST_HEAD}Expect: {expect}\r\nContent-Length: {}\r\n\r\n", body.len()));
        let interim = http.response();
        assert_eq!((interim.status, interim.fields.len()), (100, 0), "{interim:?}");
        http.send(&body);
        http.response().expect(202, r#"{"accepted":1}"#);
        http.expect_alive();
    }
    let mut http = Http::connect(&relay);
    http.send(format!("{POST_HEAD}Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"));
    assert_eq!(http.response().status, 100);
    http.send(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
    http.response().expect(202, r#"{"accepted":1}"#);
    http.expect_alive();
}

#[test]
fn a_body_that_comes_unasked_works_once() {
    let relay = Relay::plain();
    let body = event("s", 1).build();
    let mut http = Http::connect(&relay);
    http.send(format!("{POST_HEAD}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    let mut response = http.response();
    if response.status == 100 {
        response = http.response();
    }
    response.expect(202, r#"{"accepted":1}"#);
    http.expect_alive();
    assert_eq!(Sse::replay(&relay, &[]).len(), 1);
}

#[test]
fn a_client_that_waits_for_continue_gets_a_refusal_at_once() {
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_MAX_BODY", 1000);
    });
    let token = "Authorization: Bearer sesame\r\n";
    for (status, head) in [
        (413, format!("{POST_HEAD}{token}Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n")),
        (401, format!("{POST_HEAD}Expect: 100-continue\r\nContent-Length: 20\r\n\r\n")),
        (426, format!("{POST_HEAD}{token}AEP-Version: 3\r\nExpect: 100-continue\r\nContent-Length: 20\r\n\r\n")),
        (415, format!("POST /events HTTP/1.1\r\nHost: r\r\n{token}Expect: 100-continue\r\nContent-Length: 20\r\n\r\n")),
        (404, format!("POST /x HTTP/1.1\r\nHost: r\r\n{token}Expect: 100-continue\r\nContent-Length: 20\r\n\r\n")),
        (417, format!("{POST_HEAD}{token}Expect: tea\r\nContent-Length: 20\r\n\r\n")),
        (417, format!("{POST_HEAD}{token}Expect: 100-continue, tea\r\nContent-Length: 20\r\n\r\n")),
    ] {
        let (_, response) = Http::exchange(&relay, &head);
        assert_eq!(response.status, status, "{head}");
        assert!(response.json()["error"].is_string() || status == 426);
        if status == 417 {
            response.expect_refusal(417, "expectation-failed");
        }
    }
}

// ── bounds ──

#[test]
fn an_oversize_upload_can_read_its_refusal() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", 1000);
    });
    let upload = vec![b'x'; 8 << 20];
    let mut chunked = format!("{POST_HEAD}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", upload.len()).into_bytes();
    chunked.extend(&upload);
    chunked.extend(b"\r\n0\r\n\r\n");
    let mut sized = format!("{POST_HEAD}Content-Length: {}\r\n\r\n", upload.len()).into_bytes();
    sized.extend(&upload);
    for bytes in [sized, chunked] {
        // The whole upload is written before anything is read: a reset under it would fail the write or the read.
        let mut http = Http::connect(&relay);
        http.send(bytes);
        http.response().expect_refusal(413, "payload-too-large");
    }
    // And the refusal does not wait for the upload.
    let mut http = Http::connect(&relay);
    http.send(format!("{POST_HEAD}Content-Length: 100000000000\r\n\r\nx"));
    http.response().expect_refusal(413, "payload-too-large");
}

#[test]
fn heads_are_bounded() {
    let relay = Relay::plain();
    let limit = 64 * 1024;
    let fixed = "GET /healthz HTTP/1.1\r\nHost: r\r\nX-Pad: \r\n\r\n".len();
    let padded =
        |length: usize| format!("GET /healthz HTTP/1.1\r\nHost: r\r\nX-Pad: {}\r\n\r\n", "x".repeat(length - fixed));
    let (mut http, response) = Http::exchange(&relay, padded(limit));
    assert_eq!(response.status, 200, "a head at the limit");
    http.expect_alive();
    Http::exchange(&relay, padded(limit + 1)).1.expect_refusal(431, "head-too-large");
    Http::exchange(&relay, padded(4 * limit)).1.expect_refusal(431, "head-too-large");
    let lines = "GET /healthz HTTP/1.1\r\nHost: r\r\n".to_owned() + &"X-A: b\r\n".repeat(20_000);
    Http::exchange(&relay, lines).1.expect_refusal(431, "head-too-large");
    let fields = |count: usize| format!("GET /healthz HTTP/1.1\r\nHost: r\r\n{}\r\n", "X-A: b\r\n".repeat(count - 1));
    assert_eq!(Http::exchange(&relay, fields(100)).1.status, 200);
    let refused = Http::exchange(&relay, fields(101)).1.expect_refusal(431, "head-too-large");
    assert_eq!(refused["detail"], "more than 100 header fields", "not the bytes are at fault");
    let target = "x".repeat(2 * limit);
    Http::exchange(&relay, format!("GET /{target}")).1.expect_refusal(414, "uri-too-long");
    let (mut http, response) = Http::exchange(&relay, format!("GET /{target} HTTP/1.1\r\nHost: r\r\n\r\n"));
    response.expect_refusal(414, "uri-too-long");
    assert!(response.closes());
    http.expect_gone();
}

#[test]
fn a_megabyte_of_target_is_refused_without_being_kept() {
    let relay = Relay::plain();
    let before = relay.resident_kib();
    for _ in 0..8 {
        let mut http = Http::connect(&relay);
        http.send_if_open(format!("GET /stream?filter={} HTTP/1.1\r\nHost: r\r\n\r\n", "x".repeat(1 << 20)));
        http.response().expect_refusal(414, "uri-too-long");
    }
    let grown = relay.resident_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB more after 8 MiB of refused targets");
}

/// Sends one byte of `bytes` (over and over) about every 20 ms until an answer begins, then reads it.
#[track_caller]
fn dribble(relay: &Relay, start: &str, bytes: &str) -> Response {
    let mut http = Http::connect(relay);
    http.send(start);
    let mut socket = http.stream().try_clone().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let end = Instant::now() + DEADLINE;
    for byte in bytes.bytes().cycle() {
        assert!(Instant::now() < end, "a request that dribbles in is never refused: {start:?}");
        if socket.write_all(&[byte]).is_err() {
            break;
        }
        // `peek` leaves the answer for the client.
        match socket.peek(&mut [0]) {
            Ok(_) => break,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("the connection broke: {error}"),
        }
    }
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let response = http.response();
    http.expect_gone();
    response
}

#[test]
fn a_head_that_dribbles_in_times_out() {
    let relay = Relay::start(|options| {
        options.env("AEP_HEAD_TIME", 1);
    });
    dribble(&relay, "GET /healthz HTTP/1.1\r\nHost: r\r\nX-A: ", "x").expect_refusal(408, "timeout");
    dribble(&relay, "G", "E").expect_refusal(408, "timeout");
    dribble(&relay, &format!("GET /socket HTTP/1.1\r\nHost: r\r\nSec-WebSocket-Key: {KEY}"), "=")
        .expect_refusal(408, "timeout");
    // A second request on the same connection has the same time, from its own first byte.
    let (mut http, _) = Http::exchange(&relay, HEALTH);
    http.send("GET /healthz HT");
    http.response().expect_refusal(408, "timeout");
    http.expect_end();
}

/// It is idle, and the time of its head begins when that does.
#[test]
fn a_connection_that_has_sent_nothing_is_not_late_with_a_head() {
    let relay = Relay::start(|options| {
        options.env("AEP_HEAD_TIME", 1);
    });
    let mut fresh = Http::connect(&relay);
    // Twice the time of a head goes by.
    for _ in 0..2 {
        Http::exchange(&relay, "G").1.expect_refusal(408, "timeout");
    }
    fresh.send("GET /healthz HT");
    Http::connect(&relay).expect_alive();
    fresh.send("TP/1.1\r\nHost: r\r\n\r\n");
    assert_eq!(fresh.response().status, 200);
}

#[test]
fn a_body_that_dribbles_in_times_out() {
    let relay = Relay::start(|options| {
        options.env("AEP_BODY_TIME", 1);
    });
    dribble(&relay, &format!("{POST_HEAD}Content-Length: 100000\r\n\r\n"), " ").expect_refusal(408, "timeout");
    dribble(&relay, &format!("{POST_HEAD}Transfer-Encoding: chunked\r\n\r\n"), "1\r\n \r\n")
        .expect_refusal(408, "timeout");
    let (_, response) = Http::exchange(&relay, format!("{POST_HEAD}Content-Length: 10\r\n\r\n"));
    response.expect_refusal(408, "timeout");
}

#[test]
fn an_idle_connection_is_closed_silently() {
    let relay = Relay::start(|options| {
        options.env("AEP_IDLE_TIME", 1).env("AEP_HEAD_TIME", 1);
    });
    let (mut http, response) = Http::exchange(&relay, HEALTH);
    assert_eq!(response.status, 200);
    http.expect_end();
    // An empty line is no request that could be late.
    let (mut http, response) = Http::exchange(&relay, format!("{HEALTH}\r\n"));
    assert_eq!(response.status, 200);
    http.expect_end();
    let mut silent = Http::connect(&relay);
    let mut answer = Vec::new();
    silent.stream().read_to_end(&mut answer).expect("a clean end");
    assert_eq!(answer, b"", "nothing was asked, nothing is said");
    silent.expect_end();
}
