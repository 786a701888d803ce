//! WebSocket as a consumer or an emitter reads it: the upgrade's answer, then frames whose headers `tungstenite`
//! parses.
//!
//! With a relay, the frames of its contract are understood: the answer to `subscribe` opens the consumer, `dropped` and
//! `closing` are told. With servers that know no `hello`, the upgrade alone opens it and every text is an event.

use std::io::Cursor;

use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::http::HeadReader;
use super::{Fault, MESSAGE_BYTES_MAX, Pending, Said, beginning};

/// What our frames are masked with. A fixed key is fine where no proxy stands between us and a server under test.
const MASK: [u8; 4] = [0x5a, 0xc3, 0x17, 0x9e];

/// Longest payload of a control frame (RFC 6455 §5.5).
const CONTROL_BYTES_MAX: usize = 125;

/// The decoder of one connection.
#[derive(Debug)]
pub(crate) struct WebSocket {
    /// `Sec-WebSocket-Accept` as it has to be; cleared once it was seen.
    accept: Option<String>,
    head: HeadReader,
    /// Texts to send once upgraded.
    greeting: Vec<String>,
    /// Answers to wait for until open: one per subscription.
    awaited: usize,
    /// A frame begun and not ended.
    pending: Pending,
}

impl WebSocket {
    /// A decoder for the answer to a request with this `key`. After the upgrade the texts of `greeting` are sent; the
    /// consumer is open once `awaited` of them were answered with `subscribed` (an emitter's: with `hello`).
    pub(crate) fn new(key: &str, greeting: Vec<String>, awaited: usize) -> Self {
        let accept = Some(derive_accept_key(key.as_bytes()));
        Self { accept, head: HeadReader::default(), greeting, awaited, pending: Pending::default() }
    }

    pub(crate) fn feed(
        &mut self,
        input: &[u8],
        reply: &mut Vec<u8>,
        on: &mut dyn FnMut(Said<'_>),
    ) -> Result<(), Fault> {
        let mut rest = input;
        if let Some(accept) = &self.accept {
            let Some((head, behind)) = self.head.feed(input)? else { return Ok(()) };
            if head.status != 101 {
                on(Said::Refused(head.status, beginning(behind)));
                return Ok(());
            }
            if head.field("sec-websocket-accept") != Some(accept) {
                return Err(Fault::new("a wrong Sec-WebSocket-Accept"));
            }
            self.accept = None;
            rest = behind;
            for text in self.greeting.drain(..) {
                push_text(reply, text.as_bytes());
            }
            if self.awaited == 0 {
                on(Said::Open);
            }
        }
        let awaited = &mut self.awaited;
        self.pending.feed(rest, |bytes| frames(bytes, awaited, reply, on))
    }

    pub(super) fn is_within(&self) -> bool {
        self.accept.is_some() || !self.pending.is_empty()
    }
}

/// Handles the whole frames at the front of `input`; returns how many bytes they are.
fn frames(
    input: &[u8],
    awaited: &mut usize,
    reply: &mut Vec<u8>,
    on: &mut dyn FnMut(Said<'_>),
) -> Result<usize, Fault> {
    let mut used = 0;
    loop {
        let rest = input.get(used..).unwrap_or_default();
        let mut cursor = Cursor::new(rest);
        let parsed = FrameHeader::parse(&mut cursor).map_err(|error| Fault::new(error.to_string()))?;
        let Some((header, bytes)) = parsed else { return Ok(used) };
        let bytes = usize::try_from(bytes)
            .ok()
            .filter(|&bytes| bytes <= MESSAGE_BYTES_MAX)
            .ok_or_else(|| Fault::new("a frame above all bounds"))?;
        let start = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
        let Some(payload) = rest.get(start..start.saturating_add(bytes)) else { return Ok(used) };
        if header.mask.is_some() || !header.is_final {
            return Err(Fault::new("a masked or fragmented frame"));
        }
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(Fault::new("a frame with reserved bits"));
        }
        if matches!(header.opcode, OpCode::Control(_)) && bytes > CONTROL_BYTES_MAX {
            return Err(Fault::new("a control frame above its bound"));
        }
        match header.opcode {
            OpCode::Data(Data::Text) => on_text(payload, awaited, on)?,
            OpCode::Control(Control::Ping) => push_frame(reply, OpCode::Control(Control::Pong), payload),
            OpCode::Control(Control::Pong) => {}
            OpCode::Control(Control::Close) => {
                on(Said::Goodbye(&beginning(payload.get(2..).unwrap_or_default())));
                push_frame(reply, OpCode::Control(Control::Close), payload.get(..2).unwrap_or_default());
            }
            other => return Err(Fault::new(format!("an unexpected {other} frame"))),
        }
        used += start + bytes;
    }
}

/// Events begin with the protocol's version; everything else is a frame of the contract.
fn on_text(text: &[u8], awaited: &mut usize, on: &mut dyn FnMut(Said<'_>)) -> Result<(), Fault> {
    if text.starts_with(b"{\"aep\":") {
        on(Said::Event(text, None));
        return Ok(());
    }
    let strange = || Fault::new(format!("neither an event nor a frame of a relay: {}", beginning(text)));
    let frame: serde_json::Value = serde_json::from_slice(text).map_err(|_| strange())?;
    match frame["type"].as_str().unwrap_or_default() {
        "hello" => {}
        "subscribed" if *awaited > 0 => {
            *awaited -= 1;
            if *awaited == 0 {
                on(Said::Open);
            }
        }
        // An emitter asks for a pong behind every batch, the first behind its hello: each says "read up to here".
        "pong" => on(Said::Open),
        "dropped" => on(Said::Shed(frame["count"].as_u64().ok_or_else(strange)?)),
        "replay-exhausted" => on(Said::Exhausted),
        "closing" => on(Said::Goodbye(frame["reason"].as_str().unwrap_or("closing"))),
        "error" => on(Said::Refused(0, beginning(text))),
        _ => return Err(strange()),
    }
    Ok(())
}

/// Appends a text message of ours.
pub(crate) fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    push_frame(out, OpCode::Data(Data::Text), text);
}

fn push_frame(out: &mut Vec<u8>, opcode: OpCode, payload: &[u8]) {
    let header = FrameHeader { opcode, mask: Some(MASK), ..FrameHeader::default() };
    // Writing into a vector does not fail.
    let written = header.format(payload.len() as u64, out);
    debug_assert!(written.is_ok());
    out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::super::testing::{assert_said, said};
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const UPGRADE: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                           Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

    fn socket() -> Decoder {
        Decoder::WebSocket(WebSocket::new(KEY, vec!["hi".into()], 1))
    }

    fn answer(texts: &[&str]) -> Vec<u8> {
        let mut input = UPGRADE.as_bytes().to_vec();
        for text in texts {
            input.extend_from_slice(&[0x81, u8::try_from(text.len()).unwrap()]);
            input.extend_from_slice(text.as_bytes());
        }
        input
    }

    #[test]
    fn events_and_frames_come_out_of_any_cut() {
        let input = answer(&[
            r#"{"type":"hello"}"#,
            r#"{"type":"subscribed","id":"0"}"#,
            r#"{"aep":"0.1","n":1}"#,
            r#"{"type":"dropped","count":3}"#,
            r#"{"type":"closing","reason":"slow-consumer"}"#,
        ]);
        assert_said(socket, &input, &["open", r#"event {"aep":"0.1","n":1}"#, "shed 3", "goodbye slow-consumer"]);
    }

    #[test]
    fn the_greeting_and_pongs_are_sent_masked() {
        let mut input = answer(&[]);
        input.extend_from_slice(&[0x89, 1, b'x']);
        let reply = said(socket(), &input, 1000).1;
        let mut expected = vec![0x81, 0x82];
        expected.extend_from_slice(&MASK);
        expected.extend_from_slice(&[b'h' ^ MASK[0], b'i' ^ MASK[1]]);
        expected.extend_from_slice(&[0x8a, 0x81]);
        expected.extend_from_slice(&MASK);
        expected.push(b'x' ^ MASK[0]);
        assert_eq!(reply, expected);
    }

    #[test]
    fn refusals_and_wrong_answers_are_told() {
        assert_eq!(said(socket(), b"HTTP/1.1 503 Busy\r\n\r\n", 100).0, ["refused 503 "]);
        let wrong = UPGRADE.replace("s3pP", "xxxx");
        assert!(said(socket(), wrong.as_bytes(), 1000).2.is_err());
        let mut fragmented = answer(&[]);
        fragmented.extend_from_slice(&[0x01, 1, b'x']);
        assert!(said(socket(), &fragmented, 1000).2.is_err());
        for text in ["", "x", r#"{"type":"droppee","count":1}"#, r#"{"type":"dropped","cnt":1}"#, r#"{"bep":"0.1"}"#] {
            assert!(said(socket(), &answer(&[text]), 1000).2.is_err(), "{text}");
        }
    }
}
