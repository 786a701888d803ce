//! Tests of the message decoder: illegal frames by RFC section, cuts at every byte, clients we did not write.

use std::io::{self, Read, Write};

use proptest::prelude::*;
use tungstenite::protocol::{CloseFrame, Role, WebSocket};
use tungstenite::{Message, Utf8Bytes};

use super::*;
use crate::wire::websocket::frame;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const LIMIT: usize = 1 << 20;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CONTINUATION: u8 = 0x0;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
const FIN: u8 = 0x80;

/// A client frame, written without the code under test.
fn client_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        0..=125 => frame.push(0x80 | payload.len() as u8),
        126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend((payload.len() as u16).to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend(MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// What came out, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Heard {
    Text(Vec<u8>),
    TooLarge,
    Ping(Vec<u8>),
    Pong,
    Close(Option<u16>),
    Fault(u16),
}

fn heard(incoming: &Incoming<'_>) -> Heard {
    match incoming {
        Incoming::Text(text) => Heard::Text(text.to_vec()),
        Incoming::TooLarge => Heard::TooLarge,
        Incoming::Ping(payload) => Heard::Ping(payload.to_vec()),
        Incoming::Pong => Heard::Pong,
        Incoming::Close(code) => Heard::Close(code.map(CloseCode::value)),
        Incoming::Fault(fault) => Heard::Fault(fault.code.value()),
    }
}

fn feed(decoder: &mut MessageDecoder, bytes: &[u8], into: &mut Vec<Heard>) {
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    loop {
        let (consumed, incoming) = decoder.decode(&mut bytes[at..]);
        at += consumed;
        let Some(incoming) = incoming else { break };
        into.push(heard(&incoming));
    }
    assert_eq!(at, bytes.len(), "without a message everything is taken");
}

fn decoded_in<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Heard> {
    let mut decoder = MessageDecoder::new(LIMIT, LIMIT, 1_000);
    let mut all = Vec::new();
    for piece in pieces {
        feed(&mut decoder, piece, &mut all);
    }
    all
}

fn decoded(bytes: &[u8]) -> Vec<Heard> {
    decoded_in([bytes])
}

fn text(text: &str) -> Heard {
    Heard::Text(text.into())
}

/// Every kind of frame and length form, fragments, control frames between them, and a close.
fn mixed_stream() -> (Vec<u8>, Vec<Heard>) {
    let long = "€".repeat(60);
    let frames = [
        client_frame(FIN | TEXT, b"one"),
        client_frame(FIN | TEXT, b""),
        client_frame(TEXT, b"fr\xe2"),
        client_frame(PING, b"between"),
        client_frame(CONTINUATION, b""),
        client_frame(PONG, b""),
        client_frame(FIN | CONTINUATION, b"\x82\xac."),
        client_frame(FIN | TEXT, long.as_bytes()),
        client_frame(TEXT, b"two"),
        client_frame(FIN | CONTINUATION, b""),
        client_frame(PING, &[b'p'; 125]),
        client_frame(CLOSE, b"\x03\xe8done"),
        client_frame(FIN | TEXT, b"behind the close"),
    ];
    let expected = vec![
        text("one"),
        text(""),
        Heard::Ping(b"between".into()),
        Heard::Pong,
        text("fr€."),
        text(&long),
        text("two"),
        Heard::Ping(vec![b'p'; 125]),
        Heard::Close(Some(1000)),
    ];
    (frames.concat(), expected)
}

#[test]
fn a_mixed_stream_cut_at_every_byte() {
    let (stream, expected) = mixed_stream();
    assert_eq!(decoded(&stream), expected);
    for cut in 0..stream.len() {
        let (head, tail) = stream.split_at(cut);
        assert_eq!(decoded_in([head, tail]), expected, "cut at {cut}");
    }
    for size in [1, 2, 3, 7, 64] {
        assert_eq!(decoded_in(stream.chunks(size)), expected, "pieces of {size}");
    }
}

#[test]
fn frames_of_every_length_form_cut_anywhere_in_their_head() {
    for len in [0, 1, 125, 126, 65_535, 65_536, 200_000] {
        let message = "a".repeat(len);
        let stream = client_frame(FIN | TEXT, message.as_bytes());
        for cut in (0..16.min(stream.len())).chain([stream.len() - 1]) {
            let (head, tail) = stream.split_at(cut);
            assert_eq!(decoded_in([head, tail]), [text(&message)], "{len} bytes cut at {cut}");
        }
    }
}

#[test]
fn illegal_frames_and_the_code_the_rfc_gives() {
    let start = client_frame(TEXT, b"a");
    let cases: [(&str, Vec<Vec<u8>>, u16); 24] = [
        ("5.2 RSV1", vec![client_frame(FIN | 0x40 | TEXT, b"a")], 1002),
        ("5.2 RSV2", vec![client_frame(FIN | 0x20 | TEXT, b"a")], 1002),
        ("5.2 RSV3", vec![client_frame(FIN | 0x10 | TEXT, b"a")], 1002),
        ("5.2 RSV1 on a continuation", vec![start.clone(), client_frame(FIN | 0x40, b"a")], 1002),
        ("5.2 data opcode 3", vec![client_frame(FIN | 0x3, b"a")], 1002),
        ("5.2 control opcode b", vec![client_frame(FIN | 0xb, b"a")], 1002),
        ("5.1 no mask", vec![b"\x81\x01a".to_vec()], 1002),
        ("5.2 length not minimal", vec![b"\x81\xfe\x00\x01".to_vec()], 1002),
        ("5.2 length of 64 bits", vec![b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()], 1002),
        ("5.4 continuation of nothing", vec![client_frame(FIN | CONTINUATION, b"a")], 1002),
        ("5.4 continuation after the end", vec![client_frame(FIN | TEXT, b""), client_frame(CONTINUATION, b"")], 1002),
        ("5.4 text inside a text", vec![start.clone(), client_frame(FIN | TEXT, b"a")], 1002),
        ("5.4 binary inside a text", vec![start.clone(), client_frame(BINARY, b"a")], 1002),
        ("5.4 text after an empty fragment", vec![client_frame(TEXT, b""), client_frame(FIN | TEXT, b"a")], 1002),
        ("5.5 fragmented ping", vec![client_frame(0x09, b"a")], 1002),
        ("5.5 ping over 125 bytes", vec![client_frame(PING, &[0; 126])], 1002),
        ("5.5.1 close of one byte", vec![client_frame(CLOSE, b"\x03")], 1002),
        ("7.4 close 999", vec![client_frame(CLOSE, &999_u16.to_be_bytes())], 1002),
        ("5.5.1 close reason", vec![client_frame(CLOSE, b"\x03\xe8\xff\xfe")], 1007),
        ("8.1 text", vec![client_frame(FIN | TEXT, b"\xff")], 1007),
        ("8.1 text in fragments", vec![start.clone(), client_frame(CONTINUATION, b"\xff")], 1007),
        ("7.4.1 binary", vec![client_frame(FIN | BINARY, b"")], 1003),
        ("7.4.1 binary in fragments", vec![client_frame(BINARY, b"a")], 1003),
        ("10.4 too big", vec![client_frame(FIN | TEXT, &vec![b'a'; LIMIT + 1])], 1009),
    ];
    for (section, frames, code) in cases {
        // Whatever comes behind a fault is thrown away, and nothing of the message is delivered.
        let stream = [frames.concat(), client_frame(FIN | TEXT, b"behind")].concat();
        let came: Vec<_> = decoded(&stream).into_iter().filter(|heard| *heard != text("")).collect();
        assert_eq!(came, [Heard::Fault(code)], "{section}");
        let came: Vec<_> = decoded_in(stream.chunks(3)).into_iter().filter(|heard| *heard != text("")).collect();
        assert_eq!(came, [Heard::Fault(code)], "{section} in pieces");
    }
}

#[test]
fn reserved_close_codes_are_answered_as_protocol_errors() {
    assert_eq!(decoded(b"\x88\x80\0\0\0\0"), [Heard::Close(None)]);
    for code in [1005_u16, 1006, 1015, 999, 5000] {
        assert_eq!(decoded(&client_frame(CLOSE, &code.to_be_bytes())), [Heard::Fault(1002)], "{code}");
    }
    assert_eq!(decoded(&client_frame(CLOSE, b"\x03")), [Heard::Fault(1002)]);
}

#[test]
fn an_empty_close_is_answered_with_an_empty_one() {
    let mut answer = Vec::new();
    let mut bytes = *b"\x88\x80\0\0\0\0";
    let mut decoder = MessageDecoder::new(LIMIT, LIMIT, 10);
    let (_, Some(Incoming::Close(code))) = decoder.decode(&mut bytes) else { panic!("no close") };
    frame::encode_close(&mut answer, code, "");
    assert_eq!(answer, b"\x88\x00");
}

#[test]
fn thousands_of_one_byte_fragments_are_stored_as_joined_bytes() {
    let mut decoder = MessageDecoder::new(LIMIT, LIMIT, 200_000);
    let mut all = Vec::new();
    feed(&mut decoder, &client_frame(TEXT, b"a"), &mut all);
    let one = client_frame(CONTINUATION, b"a");
    for fragment in 0..100_000_usize {
        feed(&mut decoder, &one, &mut all);
        assert!(decoder.held_bytes() <= (2 * (fragment + 2)).max(64));
    }
    assert_eq!(all, []);
    feed(&mut decoder, &client_frame(FIN | CONTINUATION, b"z"), &mut all);
    assert_eq!(all, [text(&format!("{}z", "a".repeat(100_001)))]);
    assert_eq!(decoder.held_bytes(), 0);
}

#[test]
fn fragments_under_at_and_over_their_limit() {
    for (fragments, fits) in [(9, true), (10, true), (11, false)] {
        for payload in [&b""[..], b"a"] {
            let mut stream = client_frame(TEXT, payload);
            for _ in 2..fragments {
                stream.extend(client_frame(CONTINUATION, payload));
            }
            stream.extend(client_frame(FIN | CONTINUATION, payload));
            let (mut decoder, mut all) = (MessageDecoder::new(LIMIT, LIMIT, 10), Vec::new());
            feed(&mut decoder, &stream, &mut all);
            let expected = if fits { Heard::Text(payload.repeat(fragments)) } else { Heard::Fault(1009) };
            assert_eq!(all, [expected], "{fragments} fragments");
        }
    }
}

#[test]
fn a_character_split_across_fragments_with_pings_between() {
    let message = "€😀";
    let bytes: Vec<u8> = message.bytes().collect();
    let mut stream = client_frame(TEXT, &[]);
    let mut expected = Vec::new();
    for (nth, byte) in bytes.iter().enumerate() {
        stream.extend(client_frame(PING, &[nth as u8]));
        expected.push(Heard::Ping(vec![nth as u8]));
        stream.extend(client_frame(if nth + 1 == bytes.len() { FIN } else { CONTINUATION }, &[*byte]));
    }
    expected.push(text(message));
    assert_eq!(decoded(&stream), expected);
    for size in 1..9 {
        assert_eq!(decoded_in(stream.chunks(size)), expected, "pieces of {size}");
    }
}

#[test]
fn invalid_utf8_is_never_delivered() {
    for bad in [&b"\xed\xa0\x80"[..], b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xe2\x82"] {
        assert_eq!(decoded(&client_frame(FIN | TEXT, bad)), [Heard::Fault(1007)], "{bad:02x?}");
        for cut in 0..=bad.len() {
            let (one, two) = bad.split_at(cut);
            let stream = [client_frame(TEXT, one), client_frame(FIN | CONTINUATION, two)].concat();
            assert_eq!(decoded(&stream), [Heard::Fault(1007)], "{bad:02x?} in fragments cut at {cut}");
        }
    }
}

#[test]
fn a_bad_byte_is_reported_before_its_frame_or_message_ends() {
    let mut frame = client_frame(FIN | TEXT, &[b"good \xed\xa0".as_slice(), &[b'a'; 100]].concat());
    frame.truncate(6 + 7);
    assert_eq!(decoded_in([&frame[..12], &frame[12..]]), [Heard::Fault(1007)]);
    assert_eq!(decoded(&frame), [Heard::Fault(1007)]);
    assert_eq!(decoded(&frame[..12]), [], "ed can still become a character");
}

#[test]
fn a_message_over_the_limit_is_refused_by_its_head() {
    let mut decoder = MessageDecoder::new(1_000, 1_000, 10);
    let mut all = Vec::new();
    feed(&mut decoder, &client_frame(FIN | TEXT, &[b'a'; 1_000]), &mut all);
    feed(&mut decoder, &client_frame(TEXT, &[b'a'; 600]), &mut all);
    feed(&mut decoder, &client_frame(PING, &[b'a'; 125]), &mut all);
    feed(&mut decoder, &client_frame(CONTINUATION, &[b'a'; 400]), &mut all);
    feed(&mut decoder, &client_frame(CONTINUATION, &[]), &mut all);
    assert_eq!(all.len(), 2);
    assert_eq!(decoder.held_bytes(), 1_000);
    feed(&mut decoder, &client_frame(FIN | CONTINUATION, b"a")[..2], &mut all);
    assert_eq!(all[2..], [Heard::Fault(1009)]);
    assert_eq!(decoder.held_bytes(), 0);

    let mut huge = b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff".to_vec();
    huge.extend(MASK);
    assert_eq!(decoded(&huge), [Heard::Fault(1009)]);
}

#[test]
fn what_cannot_be_taken_is_refused_before_its_mask_has_come() {
    for (bytes, code) in [
        (&b"\x02"[..], 1003),
        (b"\x82", 1003),
        (b"\x80", 1002),
        (b"\x81\xff\0\0\0\0\0\x10\0\x01", 1009),
        (b"\x01\xff\x7f\xff\xff\xff\xff\xff\xff\xff", 1009),
    ] {
        assert_eq!(decoded(bytes), [Heard::Fault(code)], "{bytes:02x?}");
        assert_eq!(decoded_in(bytes.chunks(1)), [Heard::Fault(code)], "{bytes:02x?}");
        assert_eq!(decoded(&bytes[..bytes.len() - 1]), [], "{bytes:02x?}");
    }
}

#[test]
fn a_first_message_over_its_own_bound_is_told_at_once_and_read_past() {
    let first = |frames: &[Vec<u8>], size: usize, held_max: usize| {
        let (mut decoder, mut all) = (MessageDecoder::new(1_000, 300, 10), Vec::new());
        for piece in frames.concat().chunks(size) {
            feed(&mut decoder, piece, &mut all);
            assert!(decoder.held_bytes() <= held_max);
        }
        all
    };
    let long = |len| "a".repeat(len);
    for size in [1, 7, 5_000] {
        // At the bound it passes, and the next one has the other bound.
        let fits = [client_frame(FIN | TEXT, long(300).as_bytes()), client_frame(FIN | TEXT, long(1_000).as_bytes())];
        assert_eq!(first(&fits, size, 1_000), [text(&long(300)), text(&long(1_000))]);
        let too_large = [
            client_frame(TEXT, long(200).as_bytes()),
            client_frame(PING, b""),
            client_frame(CONTINUATION, long(101).as_bytes()),
            client_frame(PING, b"still there"),
            client_frame(FIN | CONTINUATION, b"end"),
            client_frame(FIN | TEXT, b"another"),
            client_frame(CLOSE, b"\x03\xf0"),
        ];
        let expected =
            [Heard::Ping(Vec::new()), Heard::TooLarge, Heard::Ping(b"still there".into()), Heard::Close(Some(1008))];
        assert_eq!(first(&too_large, size, 300), expected, "pieces of {size}");
        let expected = [Heard::TooLarge, Heard::Close(None)];
        let announced = [client_frame(FIN | TEXT, long(301).as_bytes()), client_frame(CLOSE, b"")];
        assert_eq!(first(&announced, size, 0), expected, "pieces of {size}");
        // Over the bound of all messages the RFC has the word.
        assert_eq!(first(&[client_frame(FIN | TEXT, long(1_001).as_bytes())], size, 0), [Heard::Fault(1009)]);
    }
    // Its head shows it, before the mask.
    assert_eq!(first(&[b"\x81\xfe\x01\x2d".to_vec()], 4, 0), [Heard::TooLarge]);
}

#[test]
fn announced_bytes_are_not_memory() {
    let mut decoder = MessageDecoder::new(16 << 20, 16 << 20, 10);
    let mut all = Vec::new();
    let mut head = b"\x81\xff\0\0\0\0\x01\0\0\0".to_vec();
    head.extend(MASK);
    feed(&mut decoder, &head, &mut all);
    assert_eq!(decoder.held_bytes(), 0);
    feed(&mut decoder, &[MASK[0] ^ b'a'], &mut all);
    assert!(decoder.held_bytes() <= 64);
    assert_eq!(all, []);
}

#[test]
fn a_whole_message_is_lent_from_the_input() {
    let mut bytes = client_frame(FIN | TEXT, b"lent");
    bytes.extend(client_frame(FIN | TEXT, b"next"));
    let place = bytes.as_ptr_range();
    let mut decoder = MessageDecoder::new(LIMIT, LIMIT, 10);
    let (consumed, incoming) = decoder.decode(&mut bytes);
    let Some(Incoming::Text(Payload::Lent(text))) = incoming else { panic!("not lent") };
    assert_eq!(text, b"lent");
    assert!(place.contains(&text.as_ptr()));
    assert_eq!(consumed, 10);
    assert!(decoder.partial.is_none());
}

#[test]
fn a_decoder_between_messages_holds_nothing() {
    let (stream, _) = mixed_stream();
    let mut decoder = MessageDecoder::new(LIMIT, LIMIT, 10);
    let mut all = Vec::new();
    let mut between = 0;
    for byte in stream.chunks(1) {
        let before = all.len();
        feed(&mut decoder, byte, &mut all);
        if all.len() > before && !matches!(all.last(), Some(Heard::Ping(_) | Heard::Pong)) {
            assert!(decoder.partial.is_none());
            between += 1;
        }
    }
    assert_eq!(between, 6);
    assert!(size_of::<MessageDecoder>() <= 32, "every connection carries one");
}

#[test]
fn a_client_we_did_not_write_is_understood() {
    let mut client = WebSocket::from_raw_socket(Wire::default(), Role::Client, None);
    let long = "ä".repeat(70_000);
    client.send(Message::text("hello")).unwrap();
    client.send(Message::text(long.as_str())).unwrap();
    client.send(Message::Ping("are you there".into())).unwrap();
    client.send(Message::Pong("unasked".into())).unwrap();
    client.close(Some(CloseFrame { code: 4001.into(), reason: Utf8Bytes::from_static("bye") })).unwrap();
    let expected =
        [text("hello"), text(&long), Heard::Ping(b"are you there".into()), Heard::Pong, Heard::Close(Some(4001))];
    let sent = client.get_ref().sent.clone();
    assert_eq!(decoded(&sent), expected);
    assert_eq!(decoded_in(sent.chunks(1_009)), expected);
}

#[test]
fn our_frames_are_understood_by_a_client_we_did_not_write() {
    let long = "ä".repeat(70_000);
    let mut received = Vec::new();
    frame::encode_text(&mut received, b"hello");
    frame::encode_text(&mut received, &[b'a'; 300]);
    frame::encode_text(&mut received, long.as_bytes());
    frame::encode_ping(&mut received, b"1");
    frame::encode_pong(&mut received, b"2");
    frame::encode_close(&mut received, Some(CloseCode::GOING_AWAY), "shutting down");
    let mut client = WebSocket::from_raw_socket(Wire { received, ..Wire::default() }, Role::Client, None);
    assert_eq!(client.read().unwrap(), Message::text("hello"));
    assert_eq!(client.read().unwrap(), Message::text("a".repeat(300)));
    assert_eq!(client.read().unwrap(), Message::text(long));
    assert_eq!(client.read().unwrap(), Message::Ping("1".into()));
    assert_eq!(client.read().unwrap(), Message::Pong("2".into()));
    let Message::Close(Some(close)) = client.read().unwrap() else { panic!("no close") };
    assert_eq!((u16::from(close.code), close.reason.as_str()), (1001, "shutting down"));
}

/// A socket in memory.
#[derive(Debug, Default)]
struct Wire {
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(self.received.len());
        into[..len].copy_from_slice(&self.received[..len]);
        self.received.drain(..len);
        Ok(len)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Frames that are mostly legal, in an order that often is.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        6 => Just(FIN | TEXT),
        3 => Just(TEXT),
        3 => Just(BINARY),
        6 => Just(CONTINUATION),
        6 => Just(FIN | CONTINUATION),
        3 => Just(PING),
        2 => Just(PONG),
        1 => Just(CLOSE),
        1 => any::<u8>(),
    ];
    let payload = prop_oneof![
        4 => "[a€😀]{0,30}".prop_map(String::into_bytes),
        2 => Just("€".as_bytes()[..2].to_vec()),
        2 => Just("€".as_bytes()[2..].to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..10),
        1 => prop::collection::vec(Just(b'x'), 120..300),
    ];
    prop::collection::vec((first, payload).prop_map(|(first, payload)| client_frame(first, &payload)), 0..12)
        .prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn outcomes_do_not_depend_on_cuts(stream in frames(), sizes in prop::collection::vec(1_usize..40, 1..20)) {
        let whole = decoded(&stream);
        let mut pieces = Vec::new();
        let mut rest = stream.as_slice();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, behind) = rest.split_at((*size).min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        // A fault inside a cut message may be found before the end of its frame, never anything else.
        prop_assert_eq!(decoded_in(pieces), whole);
    }

    #[test]
    fn any_bytes_are_taken_without_panic_and_texts_are_utf8(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for heard in decoded(&bytes) {
            if let Heard::Text(text) = heard {
                prop_assert!(String::from_utf8(text).is_ok());
            }
        }
    }
}
