//! What a service may easily get wrong: each of these either works, or says what is the matter.

use crate::harness::{client_frame, start};

const TEXT: u8 = 0x81;

#[test]
fn a_resume_before_the_park_cancels_it() {
    let server = start(1);
    let mut client = server.websocket();
    let messages = ["resume and park", "next", "resume and park, again", "park", "last"];
    client.send(messages.map(|message| client_frame(TEXT, message.as_bytes())).concat());
    for message in messages {
        assert_eq!(client.frame(), (TEXT, message.as_bytes().to_vec()));
    }
}

#[test]
fn a_run_kept_past_its_turn_is_not_queued() {
    let server = start(1);
    let mut client = server.websocket();
    client.send_frame(TEXT, b"keep");
    assert_eq!(client.frame(), (TEXT, b"keep".to_vec()));
    client.send_frame(TEXT, b"use what was kept");
    assert_eq!(client.frame(), (TEXT, b"Some(Stale)".to_vec()));
}

#[test]
fn a_push_before_there_is_a_stream_says_so() {
    let server = start(1);
    let mut client = server.client();
    client.send("GET /early HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.answer(), (200, b"NotOpen".to_vec()));
}
