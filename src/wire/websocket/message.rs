//! The bytes of a client → messages and control frames, incrementally (RFC 6455 §5.4–§5.6, §8.1).
//!
//! A message that lies whole and unfragmented in the input is unmasked where it lies and lent out; only what is cut, by
//! fragments or by reads, is gathered. So a decoder whose peer is between messages holds no memory.
//!
//! It knows neither the connection's state nor what a message means: binary messages are handed over like text, and
//! who has sent a close is asked for further messages by nobody.
//!
//! - Every byte given is taken, unless a whole [`Incoming`] comes back before it: no input needs to be kept for the decoder.
//! - The outcome does not depend on how the input is cut, and each fault is reported with the first byte that shows it.
//! - `partial` is some exactly while a head, a frame or a message is open; its bytes are bounded by `message_bytes_max` and
//!   one control frame.
//! - Nothing is decoded behind a [`Incoming::Fault`] (the framing is lost) or a [`Incoming::Close`] (§5.5.1).

use std::ops::{Deref, DerefMut, Range};

use super::assembly::{Assembly, NOT_UTF8};
use super::close::{CloseCode, Fault, decode_close};
use super::frame::{FrameHead, HEAD_BYTES_MAX, Opcode, decode_head};
use super::mask::unmask;
use crate::wire::Decoded;

/// What a client sent.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// A text message, valid UTF-8.
    Text(Payload<'a>),
    /// A binary message.
    Binary(Payload<'a>),
    /// A ping, to be answered with a pong of the same payload.
    Ping(Payload<'a>),
    /// A pong.
    Pong,
    /// The peer closes, with the code to echo. Its last word.
    Close(Option<CloseCode>),
    /// The peer broke the RFC. Nothing that follows can be understood.
    Fault(Fault),
}

/// The bytes of a message: lent from the input, or joined from pieces. Either may be overwritten.
#[derive(Debug)]
pub enum Payload<'a> {
    /// Lies in the input.
    Lent(&'a mut [u8]),
    /// Was gathered.
    Joined(Vec<u8>),
}

impl Deref for Payload<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }
}

impl DerefMut for Payload<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct MessageDecoder {
    message_bytes_max: usize,
    fragments_max: u32,
    ended: bool,
    /// Boxed, because most connections have nothing open most of the time.
    partial: Option<Box<Partial>>,
}

/// What is open between two inputs.
#[derive(Debug, Default)]
struct Partial {
    head: PartialHead,
    frame: Option<OpenFrame>,
    /// The message whose end has not come: fragmented, or unfragmented in a frame that is cut.
    message: Option<Assembly>,
    /// Unmasked payload of a control frame that is cut.
    control: Vec<u8>,
}

/// The first bytes of a head that is cut.
#[derive(Debug, Default)]
struct PartialHead {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

/// A frame whose head was decoded.
#[derive(Debug, Clone, Copy)]
struct OpenFrame {
    opcode: Opcode,
    fin: bool,
    mask: [u8; 4],
    /// Bytes of payload that were taken, and that are missing.
    taken: usize,
    left: usize,
}

/// A whole message or control frame.
struct Found {
    kind: Kind,
    place: Place,
}

enum Kind {
    Text,
    Binary,
    Ping,
    Pong,
    Close,
}

enum Place {
    Input(Range<usize>),
    Own(Vec<u8>),
}

/// The unread rest of the input.
struct Input<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl MessageDecoder {
    /// A decoder for messages of at most so many bytes and frames; over either the fault is 1009.
    #[must_use]
    pub fn new(message_bytes_max: usize, fragments_max: usize) -> Self {
        let fragments_max = u32::try_from(fragments_max).unwrap_or(u32::MAX);
        Self { message_bytes_max, fragments_max, ended: false, partial: None }
    }

    /// Takes input up to the end of the next message or control frame, and answers how much it took. Without one, and after
    /// the end, that is all of it.
    pub fn decode<'a>(&mut self, input: &'a mut [u8]) -> (usize, Option<Incoming<'a>>) {
        if self.ended {
            return (input.len(), None);
        }
        let all = input.len();
        let mut cursor = Input { bytes: input, at: 0 };
        let found = self.next(&mut cursor);
        let at = cursor.at;
        let incoming = match found {
            Ok(found) => found.map(|found| deliver(found, cursor.bytes)),
            Err(fault) => Some(Incoming::Fault(fault)),
        };
        self.ended = matches!(incoming, Some(Incoming::Close(_) | Incoming::Fault(_)));
        if self.ended || self.partial.as_ref().is_some_and(|partial| partial.is_empty()) {
            self.partial = None;
        }
        match incoming {
            Some(Incoming::Fault(_)) => (all, incoming),
            _ => (at, incoming),
        }
    }

    /// Bytes of memory that an open message or control frame holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.partial
            .as_ref()
            .map_or(0, |partial| partial.control.capacity() + partial.message.as_ref().map_or(0, Assembly::held_bytes))
    }

    fn next(&mut self, input: &mut Input<'_>) -> Result<Option<Found>, Fault> {
        while let Some(frame) = self.open_frame(input)? {
            let found =
                if frame.opcode.is_control() { self.take_control(frame, input) } else { self.take_data(frame, input)? };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The frame that is open, or the one that begins here; `None` when the input has nothing of its payload.
    fn open_frame(&mut self, input: &mut Input<'_>) -> Result<Option<OpenFrame>, Fault> {
        let open = self.partial.as_mut().and_then(|partial| partial.frame.take());
        let frame = match open {
            Some(frame) => frame,
            None => match self.take_head(input)? {
                Some(head) => self.begin(&head)?,
                None => return Ok(None),
            },
        };
        if frame.left > 0 && input.is_empty() {
            self.partial_mut().frame = Some(frame);
            return Ok(None);
        }
        Ok(Some(frame))
    }

    fn take_head(&mut self, input: &mut Input<'_>) -> Result<Option<FrameHead>, Fault> {
        let kept = self.partial.as_mut().map(|partial| &mut partial.head).filter(|head| head.len > 0);
        if let Some(kept) = kept {
            return kept.complete(input);
        }
        match decode_head(input.rest()) {
            Decoded::Done { value, consumed } => {
                input.at += consumed;
                Ok(Some(value))
            }
            Decoded::Need if input.is_empty() => Ok(None),
            Decoded::Need => self.partial_mut().head.complete(input),
            Decoded::Invalid(reason) => Err(Fault::protocol(reason)),
        }
    }

    /// Checks a head against the message it belongs to (§5.4).
    fn begin(&mut self, head: &FrameHead) -> Result<OpenFrame, Fault> {
        let message = self.partial.as_mut().and_then(|partial| partial.message.as_mut());
        let before = match (head.opcode, message) {
            (Opcode::Continuation, Some(message)) => {
                if message.count_fragment() > self.fragments_max {
                    return Err(Fault::too_big("message of too many fragments"));
                }
                message.len()
            }
            (Opcode::Continuation, None) => return Err(Fault::protocol("continuation of no message")),
            (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(Fault::protocol("new message inside a fragmented one"));
            }
            _ => 0,
        };
        let room = self.message_bytes_max.saturating_sub(before);
        let left = match usize::try_from(head.payload_bytes) {
            Ok(bytes) if head.opcode.is_control() || bytes <= room => bytes,
            _ => return Err(Fault::too_big("message too big")),
        };
        Ok(OpenFrame { opcode: head.opcode, fin: head.fin, mask: head.mask, taken: 0, left })
    }

    fn take_control(&mut self, mut frame: OpenFrame, input: &mut Input<'_>) -> Option<Found> {
        let kind = match frame.opcode {
            Opcode::Ping => Kind::Ping,
            Opcode::Close => Kind::Close,
            _ => Kind::Pong,
        };
        let is_fresh = frame.taken == 0;
        let piece = frame.take(input);
        if is_fresh && frame.left == 0 {
            return Some(Found { kind, place: Place::Input(piece) });
        }
        let partial = self.partial_mut();
        partial.control.extend_from_slice(input.piece(piece));
        if frame.left > 0 {
            partial.frame = Some(frame);
            return None;
        }
        Some(Found { kind, place: Place::Own(std::mem::take(&mut partial.control)) })
    }

    fn take_data(&mut self, mut frame: OpenFrame, input: &mut Input<'_>) -> Result<Option<Found>, Fault> {
        let is_fresh = frame.taken == 0 && frame.opcode != Opcode::Continuation;
        let piece = frame.take(input);
        if is_fresh && frame.left == 0 && frame.fin {
            return whole_message(frame.opcode == Opcode::Text, piece, input).map(Some);
        }
        let message_bytes_max = self.message_bytes_max;
        let partial = self.partial_mut();
        let message = partial.message.get_or_insert_with(|| Assembly::new(frame.opcode == Opcode::Text));
        let still = if frame.fin { piece.len() + frame.left + message.len() } else { message_bytes_max };
        message.push(input.piece(piece), still)?;
        if frame.left > 0 {
            partial.frame = Some(frame);
            return Ok(None);
        }
        if !frame.fin {
            return Ok(None);
        }
        let Some(message) = partial.message.take() else { return Ok(None) };
        let kind = if message.is_text() { Kind::Text } else { Kind::Binary };
        Ok(Some(Found { kind, place: Place::Own(message.finish()?) }))
    }

    fn partial_mut(&mut self) -> &mut Partial {
        self.partial.get_or_insert_default()
    }
}

fn whole_message(is_text: bool, piece: Range<usize>, input: &Input<'_>) -> Result<Found, Fault> {
    if !is_text {
        return Ok(Found { kind: Kind::Binary, place: Place::Input(piece) });
    }
    match simdutf8::basic::from_utf8(input.piece(piece.clone())) {
        Ok(_) => Ok(Found { kind: Kind::Text, place: Place::Input(piece) }),
        Err(_) => Err(NOT_UTF8),
    }
}

fn deliver(found: Found, input: &mut [u8]) -> Incoming<'_> {
    let payload = match found.place {
        Place::Input(piece) => Payload::Lent(input.get_mut(piece).unwrap_or_default()),
        Place::Own(bytes) => Payload::Joined(bytes),
    };
    match found.kind {
        Kind::Text => Incoming::Text(payload),
        Kind::Binary => Incoming::Binary(payload),
        Kind::Ping => Incoming::Ping(payload),
        Kind::Pong => Incoming::Pong,
        Kind::Close => match decode_close(&payload) {
            Ok(code) => Incoming::Close(code),
            Err(fault) => Incoming::Fault(fault),
        },
    }
}

impl Partial {
    fn is_empty(&self) -> bool {
        self.head.len == 0 && self.frame.is_none() && self.message.is_none() && self.control.is_empty()
    }
}

impl PartialHead {
    /// Adds input byte by byte until the head is whole, or wrong: at most [`HEAD_BYTES_MAX`] steps.
    fn complete(&mut self, input: &mut Input<'_>) -> Result<Option<FrameHead>, Fault> {
        while let Some(&byte) = input.rest().first() {
            let Some(free) = self.bytes.get_mut(self.len) else { break };
            *free = byte;
            self.len += 1;
            input.at += 1;
            match decode_head(self.bytes.get(..self.len).unwrap_or_default()) {
                Decoded::Done { value, .. } => {
                    self.len = 0;
                    return Ok(Some(value));
                }
                Decoded::Need => {}
                Decoded::Invalid(reason) => return Err(Fault::protocol(reason)),
            }
        }
        debug_assert!(self.len < HEAD_BYTES_MAX, "a head of full length is whole");
        Ok(None)
    }
}

impl OpenFrame {
    /// Takes what the input has of the payload, unmasks it there and answers where it lies.
    fn take(&mut self, input: &mut Input<'_>) -> Range<usize> {
        let piece = input.at..input.at + self.left.min(input.rest().len());
        if let Some(bytes) = input.bytes.get_mut(piece.clone()) {
            unmask(bytes, self.mask, self.taken);
        }
        self.taken += piece.len();
        self.left -= piece.len();
        input.at = piece.end;
        piece
    }
}

impl Input<'_> {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    fn piece(&self, piece: Range<usize>) -> &[u8] {
        self.bytes.get(piece).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
