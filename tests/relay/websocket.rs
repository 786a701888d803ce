//! The WebSocket binding from the wire: upgrade, RFC 6455 framing, and its endings (contract §6).

use std::io::Write;

use crate::support::*;
use serde_json::json;

const HELLO: &str = r#"{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":"coder"}}"#;

/// The head of an upgrade with these lines instead of the usual ones.
fn upgrade(lines: &[&str]) -> String {
    format!("GET /socket HTTP/1.1\r\nHost: r\r\n{}\r\n\r\n", lines.join("\r\n"))
}

// ── the upgrade ──

#[test]
fn what_the_client_offers_is_ignored_not_refused() {
    let relay = Relay::plain();
    let offers = [
        ("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits"),
        ("Sec-WebSocket-Protocol", "aep, chat"),
        ("Origin", "https://any.example"),
        ("Cookie", "a=b"),
    ];
    let mut socket = Ws::connect_with(&relay, &offers);
    socket.text(HELLO);
    assert_eq!(socket.json()["type"], "hello");
    socket.close();
}

#[test]
fn upgrade_fields_count_in_any_case_and_list() {
    let relay = Relay::plain();
    let key = format!("sec-websocket-key: {KEY}");
    for (connection, upgrade_field) in
        [("Connection: upgrade", "Upgrade: WebSocket"), ("connection: keep-alive, Upgrade", "upgrade: websocket")]
    {
        let mut http = Http::connect(&relay);
        http.send(upgrade(&[connection, upgrade_field, "Sec-WebSocket-Version: 13", &key]));
        Ws::accept(http).close();
    }
}

#[test]
fn what_is_no_upgrade_is_told_what_is_missing() {
    let relay = Relay::plain();
    let key = format!("Sec-WebSocket-Key: {KEY}");
    let version = "Sec-WebSocket-Version: 13";
    for lines in [
        &["Upgrade: websocket", version, &key][..],
        &["Connection: Upgrade", version, &key],
        &["Connection: Upgrade", "Upgrade: h2c", version, &key],
        &["Connection: close", "Upgrade: websocket", version, &key],
    ] {
        let response = Ws::refused(&relay, upgrade(lines));
        response.expect_refusal(426, "upgrade-required");
        assert_eq!(response.field("upgrade").map(str::to_ascii_lowercase).as_deref(), Some("websocket"));
    }
    for version in ["8", "12", "14", "0", "013", "x"] {
        let version = format!("Sec-WebSocket-Version: {version}");
        let response = Ws::refused(&relay, upgrade(&["Connection: Upgrade", "Upgrade: websocket", &version, &key]));
        response.expect_refusal(426, "upgrade-required");
        assert_eq!(response.field("sec-websocket-version"), Some("13"));
    }
    for key in [
        "X-Other: no key at all",
        "Sec-WebSocket-Key: ",
        "Sec-WebSocket-Key: short",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAA",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAAA=",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZ!==",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ] {
        let response = Ws::refused(&relay, upgrade(&["Connection: Upgrade", "Upgrade: websocket", version, key]));
        assert_eq!(response.status, 400, "{key}");
        response.expect_refusal(400, "bad-request");
    }
    relay.request("POST", "/socket", &[], b"").expect_refusal(405, "method-not-allowed");
}

#[test]
fn a_foreign_page_cannot_open_the_socket() {
    let relay = Relay::start(|options| {
        options.env("AEP_ORIGINS", "https://good.example");
    });
    for origin in [
        "https://evil.test",
        "https://good.example.evil.test",
        "https://evilgood.example",
        "http://good.example",
        "https://good.example:8443",
        "https://good.example/",
        "HTTPS://good.example",
        "null",
        "",
        "https://good.example\r\nOrigin: https://evil.test",
        "https://good.example\r\nOrigin: https://good.example",
        "https://good.example, https://evil.test",
    ] {
        let response = Ws::refused(&relay, upgrade_request(&relay, &[("Origin", origin)]));
        assert_eq!(response.status, 403, "{origin}: {response:?}");
        assert_eq!(response.json()["error"], "forbidden-origin");
        assert!(response.json()["detail"].is_string());
    }
    Ws::connect_with(&relay, &[("Origin", "https://good.example")]).close();
    Ws::connect(&relay).close();
}

#[test]
fn input_may_be_cut_anywhere_the_upgrade_included() {
    let relay = Relay::plain();
    let mut bytes = upgrade_request(&relay, &[]);
    bytes.extend(frame_bytes(true, opcode::TEXT, HELLO.as_bytes()));
    bytes.extend(frame_bytes(true, opcode::TEXT, br#"{"type":"subscribe","id":"s"}"#));
    let sent = event("s", 1).text("subject", "€😀").build();
    let (first, second) = sent.as_bytes().split_at(sent.find('€').unwrap() + 1);
    bytes.extend(frame_bytes(false, opcode::TEXT, first));
    bytes.extend(frame_bytes(true, opcode::PING, b"p"));
    bytes.extend(frame_bytes(true, opcode::CONTINUATION, second));
    bytes.extend(frame_bytes(true, opcode::TEXT, br#"{"type":"ping","t":1}"#));
    let check = |http: Http| {
        let mut socket = Ws::accept(http);
        assert_eq!(socket.json()["type"], "hello");
        assert_eq!(socket.json(), json!({"type": "subscribed", "id": "s"}));
        let (mut pongs, mut texts) = (Vec::new(), Vec::new());
        while pongs.is_empty() || texts.len() < 2 {
            let frame = socket.recv();
            let list = if frame.opcode == opcode::PONG { &mut pongs } else { &mut texts };
            list.push(String::from_utf8(frame.payload).unwrap());
        }
        texts.sort();
        assert_eq!(pongs, ["p"]);
        assert_eq!(texts, [sent.as_str(), r#"{"type":"pong","t":1}"#]);
    };
    for at in 0..=bytes.len() {
        let mut http = Http::connect(&relay);
        http.send_cut(&bytes, at);
        check(http);
    }
    let mut http = Http::connect(&relay);
    http.send_bytewise(&bytes);
    check(http);
}

// ── frames ──

/// Sends raw bytes on an open connection and expects the close code, and nothing before it.
#[track_caller]
fn expect_fault(relay: &Relay, bytes: &[u8], code: u16) {
    for said_hello in [true, false] {
        let mut socket = if said_hello { Ws::hello(relay, "both", "coder") } else { Ws::connect(relay) };
        socket.send(bytes);
        socket.expect_close(code);
    }
}

#[test]
fn frames_that_break_the_protocol_close_with_1002() {
    let relay = Relay::plain();
    let with_first = |first: u8| {
        let mut bytes = frame_bytes(true, opcode::TEXT, b"{}");
        bytes[0] = first;
        bytes
    };
    for reserved in [0xC1, 0xA1, 0x91, 0xF1, 0xC9, 0x98] {
        expect_fault(&relay, &with_first(reserved), 1002);
    }
    for unknown in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        expect_fault(&relay, &with_first(0x80 | unknown), 1002);
    }
    expect_fault(&relay, b"\x81\x02{}", 1002); // unmasked
    expect_fault(&relay, b"\x89\x00", 1002); // an unmasked ping
    expect_fault(&relay, &frame_bytes(true, opcode::CONTINUATION, b"{}"), 1002); // nothing to continue
    expect_fault(&relay, &frame_bytes(false, opcode::CONTINUATION, b"{}"), 1002);
    let inside = [frame_bytes(false, opcode::TEXT, b"{"), frame_bytes(true, opcode::TEXT, b"}")].concat();
    expect_fault(&relay, &inside, 1002); // a new message inside another
    for control in [opcode::PING, opcode::PONG, opcode::CLOSE] {
        expect_fault(&relay, &frame_bytes(false, control, b""), 1002); // in fragments
        expect_fault(&relay, &frame_bytes(true, control, &[b'a'; 126]), 1002); // too long
    }
    expect_fault(&relay, b"\x81\xFE\x00\x02\0\0\0\0{}", 1002); // lengths not in their shortest form
    expect_fault(&relay, b"\x81\xFF\x00\x00\x00\x00\x00\x00\x00\x02\0\0\0\0{}", 1002);
}

#[test]
fn a_length_of_64_bits_is_no_promise_of_memory() {
    let relay = Relay::plain();
    let before = relay.resident_kib();
    let sockets: Vec<Ws> = (0..10)
        .map(|_| {
            let mut socket = Ws::hello(&relay, "both", "coder");
            socket.send(b"\x81\xFF\x00\x00\x00\x00\x00\xF0\x00\x00\x01\x02\x03\x04{"); // just under the limit
            socket
        })
        .collect();
    assert_eq!(relay.health()["ok"], true);
    let grown = relay.resident_kib().saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB for ten announced messages");
    drop(sockets);
    expect_fault(&relay, b"\x81\xFF\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0", 1009);
}

#[test]
fn a_message_over_the_limit_closes_with_1009() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", 1000);
    });
    let padded = |length: usize| format!("{{{}}}", " ".repeat(length - 2));
    let mut socket = Ws::hello(&relay, "both", "coder");
    socket.text(padded(1000));
    socket.sync();
    let whole = padded(1000).into_bytes();
    let (first, second) = whole.split_at(500);
    socket.frame(false, opcode::TEXT, first);
    socket.frame(true, opcode::CONTINUATION, second);
    socket.sync();
    socket.text(padded(1001));
    socket.expect_close(1009);

    let mut socket = Ws::hello(&relay, "both", "coder");
    socket.frame(false, opcode::TEXT, first);
    socket.frame(false, opcode::CONTINUATION, second);
    socket.frame(true, opcode::CONTINUATION, b" ");
    socket.expect_close(1009);
}

#[test]
fn a_binary_message_closes_with_1003() {
    let relay = Relay::plain();
    expect_fault(&relay, &frame_bytes(true, opcode::BINARY, b"{}"), 1003);
    expect_fault(&relay, &frame_bytes(true, opcode::BINARY, b""), 1003);
    // In fragments at the first or, at the latest, when it is whole.
    let pieces = [frame_bytes(false, opcode::BINARY, b"{"), frame_bytes(true, opcode::CONTINUATION, b"}")].concat();
    expect_fault(&relay, &pieces, 1003);
}

#[test]
fn invalid_utf_8_closes_with_1007() {
    let relay = Relay::plain();
    let mut watcher = Ws::consumer(&relay, "{}");
    for payload in [
        &b"\xED\xA0\x80"[..],
        b"\xF4\x90\x80\x80",
        b"\xC0\xAF",
        b"\xE2\x82",
        b"{\"a\":\"\xFF\"}",
        b"\x80",
        b"\xF0\x9F\x98",
    ] {
        expect_fault(&relay, &frame_bytes(true, opcode::TEXT, payload), 1007);
        for at in 1..payload.len() {
            let pieces = [
                frame_bytes(false, opcode::TEXT, &payload[..at]),
                frame_bytes(true, opcode::PING, b""),
                frame_bytes(true, opcode::CONTINUATION, &payload[at..]),
            ]
            .concat();
            let mut socket = Ws::hello(&relay, "both", "coder");
            socket.send(pieces);
            // The ping may have been answered before the fault was there to be seen.
            let mut frame = socket.recv();
            if frame.opcode == opcode::PONG {
                frame = socket.recv();
            }
            assert_eq!(
                (frame.opcode, &frame.payload[..2]),
                (opcode::CLOSE, &1007_u16.to_be_bytes()[..]),
                "{payload:?} cut at {at}"
            );
        }
    }
    let broken = event("s", 1).text("subject", "@").build();
    let (head, tail) = broken.split_once('@').unwrap();
    expect_fault(
        &relay,
        &frame_bytes(true, opcode::TEXT, &[head.as_bytes(), b"\xED\xA0\x80", tail.as_bytes()].concat()),
        1007,
    );
    expect_fault(&relay, &frame_bytes(true, opcode::CLOSE, b"\x03\xE8\xFF\xFE"), 1007);
    expect_fault(&relay, &frame_bytes(true, opcode::CLOSE, b"\x03\xE8\xED\xA0\x80"), 1007);
    watcher.sync(); // nothing was published
    assert_eq!(relay.count("sessions"), 0);
}

#[test]
fn a_character_may_be_split_across_fragments() {
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "both", "coder");
    socket.subscribe("s", "");
    let sent = event("s", 1).text("subject", "€ and 😀").data(r#"{"t":"€😀"}"#).build();
    for (index, byte) in sent.bytes().enumerate() {
        let code = if index == 0 { opcode::TEXT } else { opcode::CONTINUATION };
        socket.frame(index + 1 == sent.len(), code, &[byte]);
        socket.frame(true, opcode::PING, &[byte, b'?']);
    }
    let (mut pongs, mut text) = (Vec::new(), None);
    while text.is_none() || pongs.len() < sent.len() {
        let frame = socket.recv();
        match frame.opcode {
            opcode::PONG => pongs.push(frame.payload),
            _ => text = Some(frame.payload),
        }
    }
    let expected: Vec<Vec<u8>> = sent.bytes().map(|byte| vec![byte, b'?']).collect();
    assert_eq!(pongs, expected, "every ping is answered, in order");
    assert_eq!(text.unwrap(), sent.as_bytes());
}

#[test]
fn fragments_may_be_empty() {
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "both", "coder");
    socket.frame(false, opcode::TEXT, b"");
    socket.frame(false, opcode::CONTINUATION, b"");
    socket.frame(false, opcode::CONTINUATION, br#"{"type":"ping","t":"sync"}"#);
    socket.frame(true, opcode::CONTINUATION, b"");
    assert_eq!(socket.json(), json!({"type": "pong", "t": "sync"}));
}

#[test]
fn thousands_of_tiny_fragments_pin_no_memory() {
    let relay = Relay::plain();
    let mut witness = Ws::hello(&relay, "both", "coder");
    let before = relay.resident_kib();
    let fragment = frame_bytes(false, opcode::CONTINUATION, b" ").repeat(1000);
    let sockets: Vec<Ws> = (0..10)
        .map(|_| {
            let mut socket = Ws::hello(&relay, "both", "coder");
            socket.frame(false, opcode::TEXT, b"{");
            // Either it is told 1008 or 1009 at a limit, or the bytes are kept as bytes.
            let _ = (0..100).all(|_| socket.send_if_open(&fragment));
            socket
        })
        .collect();
    witness.sync();
    let grown = relay.resident_kib().saturating_sub(before);
    assert!(grown < 24 * 1024, "{grown} KiB for one million bytes in fragments");
    drop(sockets);
}

#[test]
fn pings_are_answered_with_their_payload() {
    let relay = Relay::plain();
    let mut socket = Ws::connect(&relay);
    for payload in [&b""[..], b"a", &[0xFF; 125]] {
        socket.frame(true, opcode::PING, payload);
        let frame = socket.recv();
        assert_eq!((frame.opcode, frame.payload.as_slice()), (opcode::PONG, payload));
    }
    socket.frame(true, opcode::PONG, b"unasked");
    socket.text(HELLO);
    assert_eq!(socket.json()["type"], "hello");
}

#[test]
fn a_flood_of_pings_by_a_peer_that_does_not_read_pins_no_memory() {
    let relay = Relay::plain();
    let mut witness = Ws::hello(&relay, "both", "coder");
    let before = relay.resident_kib();
    let socket = Ws::hello(&relay, "both", "flooder");
    socket.stream().set_write_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
    let pings = frame_bytes(true, opcode::PING, &[b'p'; 125]).repeat(1000);
    // Until the relay stops reading, or 64 MB were taken.
    let _ = (0..500).all(|_| socket.stream().write_all(&pings).is_ok());
    witness.sync();
    let grown = relay.resident_kib().saturating_sub(before);
    assert!(grown < 40 * 1024, "{grown} KiB of pongs nobody reads");
}

// ── the close handshake ──

#[test]
fn a_close_is_answered_with_its_own_code() {
    let relay = Relay::plain();
    for said_hello in [true, false] {
        for code in [1000_u16, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 4000, 4999] {
            let mut socket = if said_hello { Ws::hello(&relay, "both", "coder") } else { Ws::connect(&relay) };
            socket.frame(true, opcode::CLOSE, &[&code.to_be_bytes()[..], b"bye \xE2\x82\xAC"].concat());
            let frame = socket.recv();
            assert_eq!(frame.opcode, opcode::CLOSE);
            assert_eq!(frame.payload[..2], code.to_be_bytes(), "{code}");
            socket.expect_end();
        }
    }
}

#[test]
fn an_empty_close_is_answered_empty() {
    let relay = Relay::plain();
    let mut socket = Ws::hello(&relay, "both", "coder");
    socket.send(b"\x88\x80\0\0\0\0");
    assert_eq!(socket.read_exact(2), b"\x88\x00");
    socket.expect_end();
}

#[test]
fn close_codes_that_must_not_be_sent_are_a_fault() {
    let relay = Relay::plain();
    for code in [0_u16, 1, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535] {
        expect_fault(&relay, &frame_bytes(true, opcode::CLOSE, &code.to_be_bytes()), 1002);
    }
    expect_fault(&relay, &frame_bytes(true, opcode::CLOSE, b"\x03"), 1002);
}

#[test]
fn what_comes_behind_a_close_is_not_acted_on() {
    let relay = Relay::plain();
    let mut watcher = Ws::consumer(&relay, "{}");
    let mut socket = Ws::hello(&relay, "both", "coder");
    let close = frame_bytes(true, opcode::CLOSE, &1000_u16.to_be_bytes());
    let late = frame_bytes(true, opcode::TEXT, event("late", 1).build().as_bytes());
    socket.send([close, late].concat());
    assert_eq!(socket.recv().opcode, opcode::CLOSE);
    socket.expect_gone();
    watcher.sync();
    assert_eq!(relay.count("sessions"), 0);
}

#[test]
fn events_sent_before_a_close_are_ingested() {
    let relay = Relay::plain();
    let mut watcher = Ws::consumer(&relay, "{}");
    let mut socket = Ws::hello(&relay, "emitter", "coder");
    let sent: Vec<String> = (0..50).map(|seq| event("s", seq).build()).collect();
    let mut bytes: Vec<u8> = sent.iter().flat_map(|text| frame_bytes(true, opcode::TEXT, text.as_bytes())).collect();
    bytes.extend(frame_bytes(true, opcode::CLOSE, &1000_u16.to_be_bytes()));
    socket.send(bytes);
    assert_eq!(socket.recv().opcode, opcode::CLOSE);
    socket.expect_end();
    watcher.expect(&sent);
}

#[test]
fn a_connection_that_just_goes_is_forgotten() {
    let relay = Relay::plain();
    let mut sockets: Vec<Ws> = (0..10).map(|_| Ws::consumer(&relay, "{}")).collect();
    sockets[0].send(b"\x81\xFE\x10"); // within a frame head
    sockets[1].frame(false, opcode::TEXT, b"{"); // within a message
    assert_eq!(relay.count("subscribers"), 10);
    drop(sockets);
    wait_until("no subscriber is left", || relay.count("subscribers") == 0);
}

// ── a client we did not write ──

#[test]
fn tungstenite_holds_a_conversation() {
    use tungstenite::Message;
    let relay = Relay::plain();
    let mut socket = tungstenite_client(&relay);
    let text = |message: Message| message.into_text().unwrap().to_string();
    socket.send(Message::text(HELLO)).unwrap();
    assert!(text(socket.read().unwrap()).contains(r#""type":"hello""#));
    socket.send(Message::text(r#"{"type":"subscribe","id":"s"}"#)).unwrap();
    assert_eq!(text(socket.read().unwrap()), r#"{"type":"subscribed","id":"s"}"#);
    for seq in 0..20 {
        let sent = event("s", seq).data(&format!(r#"{{"p":"{}"}}"#, "é".repeat(seq as usize * 4000))).build();
        socket.send(Message::text(sent.clone())).unwrap();
        assert_eq!(text(socket.read().unwrap()), sent);
    }
    socket.close(None).unwrap();
    loop {
        match socket.read() {
            Ok(_) => {}
            Err(tungstenite::Error::ConnectionClosed) => break,
            Err(error) => panic!("the close handshake: {error}"),
        }
    }
}
