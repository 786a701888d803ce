//! WebSockets: messages, the close handshake, peers that misbehave.

use aep_relay::ops::metrics::{ConnectionKind, Ending};

use crate::harness::{client_frame, start, start_with};
use crate::service::STANDSTILL;

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

#[test]
fn messages_come_back_in_order_however_they_are_cut() {
    let server = start(1);
    let mut client = server.websocket();
    let long = vec![b'y'; 200_000];
    let mut bytes = client_frame(TEXT, b"one");
    bytes.extend(client_frame(0x01, b"tw"));
    bytes.extend(client_frame(PING, b"?"));
    bytes.extend(client_frame(0x80, b"o"));
    bytes.extend(client_frame(TEXT, &long));
    for piece in bytes.chunks(7000) {
        client.send(piece);
    }
    assert_eq!(client.frame(), (TEXT, b"one".to_vec()));
    assert_eq!(client.frame(), (PONG, b"?".to_vec()));
    assert_eq!(client.frame(), (TEXT, b"two".to_vec()));
    assert_eq!(client.frame(), (TEXT, long));
}

#[test]
fn a_parked_connection_goes_on_where_it_stopped() {
    let server = start(2);
    let mut client = server.websocket();
    let messages: Vec<String> = (0..500).map(|n| format!("park {n}")).collect();
    let bytes: Vec<u8> = messages.iter().flat_map(|message| client_frame(TEXT, message.as_bytes())).collect();
    client.send(bytes);
    for message in messages {
        assert_eq!(client.frame(), (TEXT, message.into_bytes()));
    }
}

#[test]
fn events_reach_streams_and_websockets_in_one_order() {
    for cores in [1, 2, 4] {
        let server = start(cores);
        let mut sockets: Vec<_> = (0..10).map(|_| server.websocket()).collect();
        let mut streams: Vec<_> = (0..10).map(|_| server.stream()).collect();
        for n in 0..100 {
            sockets[0].send_frame(TEXT, format!("publish {n}").as_bytes());
        }
        for n in 0..100 {
            for socket in &mut sockets {
                assert_eq!(socket.frame(), (TEXT, n.to_string().into_bytes()));
            }
            for stream in &mut streams {
                assert_eq!(stream.event(), Some(n.to_string()));
            }
        }
    }
}

#[test]
fn the_peers_close_is_answered_with_its_code() {
    let server = start(1);
    for (sent, answer) in [(&b""[..], &b""[..]), (b"\x03\xe8bye", b"\x03\xe8"), (b"\x0f\xa0", b"\x0f\xa0")] {
        let mut client = server.websocket();
        client.send_frame(CLOSE, sent);
        assert_eq!(client.frame(), (CLOSE, answer.to_vec()));
        assert!(client.read_to_end().is_empty());
    }
}

#[test]
fn our_close_waits_for_the_peers() {
    let server = start(1);
    let mut client = server.websocket();
    client.send_frame(TEXT, b"close");
    let (first, payload) = client.frame();
    assert_eq!((first, payload.as_slice()), (CLOSE, b"\x03\xe8asked".as_slice()));
    client.send_frame(TEXT, b"nobody hears this");
    client.send_frame(CLOSE, b"\x03\xe8");
    assert!(client.read_to_end().is_empty());
    drop(client);
    server.wait_until("gone", |core| core.connections.value(ConnectionKind::WebSocket), |n| n == 0);
    assert_eq!(server.metrics.sum(|core| core.endings.value(Ending::Service)), 1);
}

#[test]
fn a_peer_that_never_closes_is_cut() {
    let server = start(1);
    let mut client = server.websocket();
    client.send_frame(TEXT, b"close");
    assert_eq!(client.frame().0, CLOSE);
    server.wait_until("cut", |core| core.connections.value(ConnectionKind::WebSocket), |n| n == 0);
}

#[test]
fn faults_are_answered_with_the_code_of_the_rfc() {
    let server = start_with(1, |_, settings| settings.body_bytes_max = 1000);
    for (bytes, code) in [
        (b"\x81\x01x".to_vec(), 1002_u16),
        (client_frame(0xc1, b"x"), 1002),
        (client_frame(0x83, b"x"), 1002),
        (client_frame(CLOSE, b"\x03\xed"), 1002),
        (client_frame(CLOSE, b"x"), 1002),
        (client_frame(TEXT, b"\xed\xa0\x80"), 1007),
        (client_frame(TEXT, &[b'x'; 1001]), 1009),
        (client_frame(BINARY, b"x"), 1003),
    ] {
        let mut client = server.websocket();
        client.send(bytes);
        let (first, payload) = client.frame();
        assert_eq!((first, &payload[..2]), (CLOSE, code.to_be_bytes().as_slice()));
        client.send_frame(CLOSE, &payload[..2]);
        assert!(client.read_to_end().is_empty());
    }
}

#[test]
fn a_flood_of_pings_is_answered_and_bounded() {
    let server = start(1);
    let mut client = server.websocket();
    let ping = client_frame(PING, &[b'p'; 125]);
    let mut writer = client.stream.try_clone().unwrap();
    let count = 100_000;
    let thread = std::thread::spawn(move || {
        let many = ping.repeat(1000);
        for _ in 0..count / 1000 {
            std::io::Write::write_all(&mut writer, &many).unwrap();
        }
    });
    // 12 MB of pongs are far more than the kernel takes for a client that does not read.
    server.wait_until("the reading stops", |core| core.bytes_in.value(), |n| n > 100_000);
    for _ in 0..count {
        assert_eq!(client.frame().0, PONG);
    }
    thread.join().unwrap();
    client.send_frame(TEXT, b"still here");
    assert_eq!(client.frame(), (TEXT, b"still here".to_vec()));
}

#[test]
fn a_websocket_that_is_cut_ends_with_whole_frames() {
    let server = start_with(1, |limits, _| limits.write_queue_bytes_max = 1 << 20);
    let mut stalled = server.websocket();
    let mut reader = server.stream();
    let mut publisher = server.client();
    let filler = "x".repeat(60_000);
    let mut sent = 0;
    while server.cuts() == 0 {
        publisher.publish(&format!("{sent} {filler}"));
        assert_eq!(reader.event(), Some(format!("{sent} {filler}")));
        sent += 1;
    }
    let mut seen = 0;
    loop {
        match stalled.frame() {
            (TEXT, text) if text == b"too slow" => break,
            (TEXT, text) => {
                assert!(text.starts_with(format!("{seen} ").as_bytes()));
                seen += 1;
            }
            (first, _) => panic!("frame {first:#x}"),
        }
    }
    assert!(seen < sent);
    assert_eq!(stalled.frame(), (CLOSE, 1013_u16.to_be_bytes().to_vec()));
}

/// A core that did not run heard nobody: that silence is not the peers'. One that goes on is.
#[test]
fn silence_counts_anew_behind_a_standstill() {
    let server = start_with(1, |_, settings| {
        settings.ping_interval = STANDSTILL / 3;
        settings.silence_max = STANDSTILL - STANDSTILL / 6;
    });
    let mut quiet = server.websocket();
    let mut gone = server.websocket();
    let mut other = server.websocket();
    other.send_frame(TEXT, b"stand still");
    assert_eq!(other.frame(), (TEXT, b"stand still".to_vec()));
    assert_eq!(quiet.frame(), (PING, Vec::new()));
    quiet.send_frame(PONG, b"");
    quiet.send_frame(TEXT, b"here");
    loop {
        match quiet.frame() {
            (PING, _) => quiet.send_frame(PONG, b""),
            frame => break assert_eq!(frame, (TEXT, b"here".to_vec())),
        }
    }
    let pings = gone.read_to_end();
    assert!(!pings.is_empty() && pings.chunks(2).all(|ping| ping == [PING, 0]), "{pings:?}");
}
