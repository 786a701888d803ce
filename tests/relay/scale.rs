//! Thousands of consumers at once: each gets every event, and a shutdown parts from all of them in order.

use std::collections::HashMap;

use crate::support::*;

const STREAMS: usize = 5_000;
const WEBSOCKETS: usize = 1_000;
const EVENTS: u64 = 5;

#[test]
fn six_thousand_consumers_get_every_event_and_an_orderly_end() {
    let descriptors = Flock::raise_descriptor_limit();
    assert!(
        descriptors > (STREAMS + WEBSOCKETS + 200) as u64,
        "this suite needs more file descriptors than the {descriptors} of `ulimit -Hn`"
    );
    let mut relay = Relay::start(|options| {
        // All goodbyes at once, on a machine that also runs the clients: the drain may take its time.
        options.env("AEP_DRAIN_TIME", 20);
    });
    let mut flock = Flock::new();
    flock.add_streams(&relay, STREAMS, &[("filter", r#"{"session":"s"}"#)]);
    flock.add_websockets(&relay, WEBSOCKETS, "{}");
    assert_eq!(relay.count("subscribers"), flock.len() as u64);
    assert_eq!(relay.metric("connections", "kind=\"sse\""), STREAMS as u64);
    assert_eq!(relay.metric("connections", "kind=\"websocket\""), WEBSOCKETS as u64);

    let sent: Vec<String> = (1..=EVENTS).map(|seq| event("s", seq).severity("notice").build()).collect();
    relay.publish(&sent);
    let mut next = vec![0; flock.len()];
    flock.drive(flock.len() * sent.len(), |member, piece| {
        for event in piece.events() {
            assert_eq!(String::from_utf8_lossy(event), sent[next[member]], "consumer {member}");
            next[member] += 1;
        }
        piece.events().count()
    });

    relay.signal("TERM");
    let closing =
        br#"{"type":"closing","reason":"shutting-down","delivered":[{"sub":"s","session":"s","epoch":0,"seq":5}]}"#;
    let mut goodbyes: HashMap<usize, usize> = HashMap::new();
    let mut answers = Vec::new();
    let mut ended = 0;
    while ended < flock.len() {
        flock.drive(1, |member, piece| {
            let said = goodbyes.entry(member).or_default();
            match (*said, piece) {
                (0, Piece::Chunk(b": shutting-down\n\n")) | (1, Piece::Chunk(b"")) => {}
                (0, Piece::Frame(opcode::TEXT, text)) => {
                    assert_eq!(String::from_utf8_lossy(text), String::from_utf8_lossy(closing));
                }
                (1, Piece::Frame(opcode::CLOSE, code)) => {
                    assert_eq!(code[..2], 1001_u16.to_be_bytes());
                    answers.push(member);
                }
                (2, Piece::End) => ended += 1,
                (said, piece) => panic!("consumer {member}, after {said} goodbyes: {piece:?}"),
            }
            *said += 1;
            1
        });
        for member in answers.drain(..) {
            flock.send_if_open(member, &frame_bytes(true, opcode::CLOSE, &1001_u16.to_be_bytes()));
        }
    }
    assert_eq!(relay.exit_status().code(), Some(0), "drained");
}
