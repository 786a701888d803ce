//! Client bytes, in one piece and re-cut into chunks: the same messages come out, texts are UTF-8, memory follows what
//! came.
//!
//! The first byte chooses the sizes of the chunks; the rest is what the client sends.

#![no_main]

use aep_relay::wire::websocket::{Incoming, MessageDecoder};
use libfuzzer_sys::fuzz_target;

const MESSAGE_BYTES_MAX: usize = 4096;
const FIRST_BYTES_MAX: usize = 512;
const FRAGMENTS_MAX: usize = 8;
/// What the smallest allocation for a cut message, and a cut control frame, may hold beyond what came.
const HELD_BYTES_EXTRA: usize = 64 + 2 * 125;

#[derive(Debug, PartialEq)]
enum Heard {
    Text(String),
    TooLarge,
    Ping(Vec<u8>),
    Pong,
    Close(Option<u16>),
    Fault(u16),
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, sent)) = input.split_first() else { return };
    let whole = decode(std::iter::once(sent));
    assert_eq!(decode(sent.chunks(1)), whole);
    assert_eq!(decode(sent.chunks(usize::from(cut).max(1))), whole);
});

fn decode<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Heard> {
    let mut decoder = MessageDecoder::new(MESSAGE_BYTES_MAX, FIRST_BYTES_MAX, FRAGMENTS_MAX);
    let (mut all, mut came) = (Vec::new(), 0);
    for chunk in chunks {
        let mut chunk = chunk.to_vec();
        came += chunk.len();
        let mut at = 0;
        loop {
            let (consumed, incoming) = decoder.decode(&mut chunk[at..]);
            at += consumed;
            let Some(incoming) = incoming else { break };
            all.push(heard(incoming));
        }
        assert_eq!(at, chunk.len(), "without a message everything is taken");
        assert!(decoder.held_bytes() <= (2 * came).min(MESSAGE_BYTES_MAX) + HELD_BYTES_EXTRA);
    }
    all
}

fn heard(incoming: Incoming<'_>) -> Heard {
    match incoming {
        Incoming::Text(text) => Heard::Text(String::from_utf8(text.to_vec()).expect("texts are UTF-8")),
        Incoming::TooLarge => Heard::TooLarge,
        Incoming::Ping(payload) => {
            assert!(payload.len() <= 125);
            Heard::Ping(payload.to_vec())
        }
        Incoming::Pong => Heard::Pong,
        Incoming::Close(code) => Heard::Close(code.map(|code| code.value())),
        Incoming::Fault(fault) => Heard::Fault(fault.code.value()),
    }
}
