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
