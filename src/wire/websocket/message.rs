//! The bytes of a client → messages and control frames, incrementally (RFC 6455 §5.4–§5.6, §8.1).
//!
//! A message that lies whole and unfragmented in the input is unmasked where it lies and lent out; only what is cut, by
//! fragments or by reads, is gathered. So a decoder whose peer is between messages holds no memory.
//!
//! It knows neither the connection's state nor what a message means. No protocol here takes binary messages, so the
//! first byte of one is a fault. The first message may have a bound of its own, lower than the others': over it comes
//! [`Incoming::TooLarge`] and not a fault, so that whoever set the bound can say so in his protocol's words.
//!
//! - Every byte given is taken, unless a whole [`Incoming`] comes back before it: no input needs to be kept for the
//!   decoder.
//! - The outcome does not depend on how the input is cut, and each fault is reported with the first byte that shows it.
//! - `partial` is some exactly while a head, a frame or a message is open; its bytes are bounded by `message_bytes_max`
//!   and one control frame.
//! - Once messages are read past, none is gathered and none comes any more, only control frames do.
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
    /// A ping, to be answered with a pong of the same payload.
    Ping(Payload<'a>),
    /// A pong.
    Pong,
    /// The first message is over its bound, as what came or is announced shows. It and all further ones are read past.
    TooLarge,
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
    /// Bytes of one message, and of the next one: less as long as that is the first.
    message_bytes_max: u32,
    next_bytes_max: u32,
    fragments_max: u32,
    reads_past: bool,
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
struct FoundFrame {
    kind: FrameKind,
    place: FramePlace,
}

enum FrameKind {
    Text,
    Ping,
    Pong,
    Close,
}

enum FramePlace {
    Input(Range<usize>),
    Own(Vec<u8>),
}

/// Why the bytes are not decoded on as they were.
enum DecodeStop {
    Fault(Fault),
    TooLarge,
}

impl From<Fault> for DecodeStop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// What the next frame may be.
#[derive(Debug, Clone, Copy)]
struct Rules {
    reads_past: bool,
    /// Bytes of the message that is open; none if none is.
    open_bytes: Option<usize>,
    message_bytes_max: u32,
    next_bytes_max: u32,
}

/// The unread rest of the input.
struct Input<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl MessageDecoder {
    /// A decoder for messages of at most so many bytes and frames; over either the fault is 1009. The first message of
    /// a connection has the bound `first_bytes_max`, if that is less: over it comes [`Incoming::TooLarge`].
    #[must_use]
    pub fn new(message_bytes_max: usize, first_bytes_max: usize, fragments_max: usize) -> Self {
        let bound = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        Self {
            message_bytes_max: bound(message_bytes_max),
            next_bytes_max: bound(first_bytes_max.min(message_bytes_max)),
            fragments_max: bound(fragments_max),
            reads_past: false,
            ended: false,
            partial: None,
        }
    }

    /// From now on the content of messages is thrown away, that of an open one included.
    pub fn read_past_messages(&mut self) {
        self.reads_past = true;
        if let Some(partial) = &mut self.partial {
            partial.message = None;
        }
        self.forget_empty();
    }

    /// Takes input up to the end of the next message or control frame, and answers how much it took. Without one, and
    /// after the end, that is all of it.
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
            Err(DecodeStop::TooLarge) => Some(Incoming::TooLarge),
            Err(DecodeStop::Fault(fault)) => Some(Incoming::Fault(fault)),
        };
        match &incoming {
            Some(Incoming::Text(_)) => self.next_bytes_max = self.message_bytes_max,
            // Its head may have been looked at without being taken: it is decoded again, and then read past.
            Some(Incoming::TooLarge) => self.read_past_messages(),
            Some(Incoming::Close(_) | Incoming::Fault(_)) => {
                self.ended = true;
                self.partial = None;
            }
            _ => {}
        }
        self.forget_empty();
        match incoming {
            Some(Incoming::Fault(_)) => (all, incoming),
            _ => (at, incoming),
        }
    }

    /// Whether a head, a frame or a message has begun and not ended.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.partial.is_some()
    }

    /// Bytes of the open message that have come; what frames and control frames around it cost is not among them.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        self.open_message().map_or(0, Assembly::len)
    }

    /// Bytes of memory that an open message or control frame holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.partial
            .as_ref()
            .map_or(0, |partial| partial.control.capacity() + partial.message.as_ref().map_or(0, Assembly::held_bytes))
    }

    fn open_message(&self) -> Option<&Assembly> {
        self.partial.as_ref().and_then(|partial| partial.message.as_ref())
    }

    fn forget_empty(&mut self) {
        if self.partial.as_ref().is_some_and(|partial| partial.is_empty()) {
            self.partial = None;
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            reads_past: self.reads_past,
            open_bytes: self.open_message().map(Assembly::len),
            message_bytes_max: self.message_bytes_max,
            next_bytes_max: self.next_bytes_max,
        }
    }

    fn next(&mut self, input: &mut Input<'_>) -> Result<Option<FoundFrame>, DecodeStop> {
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
    fn open_frame(&mut self, input: &mut Input<'_>) -> Result<Option<OpenFrame>, DecodeStop> {
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

    fn take_head(&mut self, input: &mut Input<'_>) -> Result<Option<FrameHead>, DecodeStop> {
        let rules = self.rules();
        let kept = self.partial.as_mut().map(|partial| &mut partial.head).filter(|head| head.len > 0);
        if let Some(kept) = kept {
            return kept.complete(input, rules);
        }
        match decode_head(input.rest(), |opcode, bytes| rules.admit(opcode, bytes)) {
            Decoded::Done { value, consumed } => {
                input.at += consumed;
                Ok(Some(value))
            }
            Decoded::Need if input.is_empty() => Ok(None),
            Decoded::Need => self.partial_mut().head.complete(input, rules),
            Decoded::Invalid(stop) => Err(stop),
        }
    }

    /// The frame of a head that was admitted.
    fn begin(&mut self, head: &FrameHead) -> Result<OpenFrame, DecodeStop> {
        let message = self.partial.as_mut().and_then(|partial| partial.message.as_mut());
        if let (Opcode::Continuation, Some(message)) = (head.opcode, message)
            && message.count_fragment() > self.fragments_max
        {
            return Err(Fault::too_big("message of too many fragments").into());
        }
        let left = usize::try_from(head.payload_bytes).unwrap_or(usize::MAX);
        Ok(OpenFrame { opcode: head.opcode, fin: head.fin, mask: head.mask, taken: 0, left })
    }

    fn take_control(&mut self, mut frame: OpenFrame, input: &mut Input<'_>) -> Option<FoundFrame> {
        let kind = match frame.opcode {
            Opcode::Ping => FrameKind::Ping,
            Opcode::Close => FrameKind::Close,
            _ => FrameKind::Pong,
        };
        let is_fresh = frame.taken == 0;
        let piece = frame.take(input);
        if is_fresh && frame.left == 0 {
            return Some(FoundFrame { kind, place: FramePlace::Input(piece) });
        }
        let partial = self.partial_mut();
        partial.control.extend_from_slice(input.piece(piece));
        if frame.left > 0 {
            partial.frame = Some(frame);
            return None;
        }
        Some(FoundFrame { kind, place: FramePlace::Own(std::mem::take(&mut partial.control)) })
    }

    fn take_data(&mut self, mut frame: OpenFrame, input: &mut Input<'_>) -> Result<Option<FoundFrame>, Fault> {
        let is_fresh = frame.taken == 0 && frame.opcode != Opcode::Continuation;
        let piece = frame.take(input);
        if self.reads_past {
            if frame.left > 0 {
                self.partial_mut().frame = Some(frame);
            }
            return Ok(None);
        }
        if is_fresh && frame.left == 0 && frame.fin {
            return whole_message(piece, input).map(Some);
        }
        let message_bytes_max = self.next_bytes_max as usize;
        let partial = self.partial_mut();
        let message = partial.message.get_or_insert_with(Assembly::new);
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
        Ok(Some(FoundFrame { kind: FrameKind::Text, place: FramePlace::Own(message.finish()?) }))
    }

    fn partial_mut(&mut self) -> &mut Partial {
        self.partial.get_or_insert_default()
    }
}

fn whole_message(piece: Range<usize>, input: &Input<'_>) -> Result<FoundFrame, Fault> {
    match simdutf8::basic::from_utf8(input.piece(piece.clone())) {
        Ok(_) => Ok(FoundFrame { kind: FrameKind::Text, place: FramePlace::Input(piece) }),
        Err(_) => Err(NOT_UTF8),
    }
}

fn deliver(found: FoundFrame, input: &mut [u8]) -> Incoming<'_> {
    let payload = match found.place {
        FramePlace::Input(piece) => Payload::Lent(input.get_mut(piece).unwrap_or_default()),
        FramePlace::Own(bytes) => Payload::Joined(bytes),
    };
    match found.kind {
        FrameKind::Text => Incoming::Text(payload),
        FrameKind::Ping => Incoming::Ping(payload),
        FrameKind::Pong => Incoming::Pong,
        FrameKind::Close => match decode_close(&payload) {
            Ok(code) => Incoming::Close(code),
            Err(fault) => Incoming::Fault(fault),
        },
    }
}

impl Rules {
    /// Whether a frame may follow here (§5.4) and be as large as that.
    fn admit(self, opcode: Opcode, payload_bytes: u64) -> Result<(), DecodeStop> {
        if opcode.is_control() || self.reads_past {
            return Ok(());
        }
        let before = match (opcode, self.open_bytes) {
            (Opcode::Continuation, Some(bytes)) => bytes as u64,
            (Opcode::Continuation, None) => return Err(Fault::protocol("continuation of no message").into()),
            (_, Some(_)) => return Err(Fault::protocol("new message inside a fragmented one").into()),
            (Opcode::Binary, None) => return Err(Fault::not_text().into()),
            (_, None) => 0,
        };
        // Both are below 2^63.
        let bytes = before + payload_bytes;
        if bytes > self.message_bytes_max.into() {
            return Err(Fault::too_big("message too big").into());
        }
        if bytes > self.next_bytes_max.into() { Err(DecodeStop::TooLarge) } else { Ok(()) }
    }
}

impl Partial {
    fn is_empty(&self) -> bool {
        self.head.len == 0 && self.frame.is_none() && self.message.is_none() && self.control.is_empty()
    }
}

impl PartialHead {
    /// Adds input byte by byte until the head is whole, or wrong: at most [`HEAD_BYTES_MAX`] steps.
    fn complete(&mut self, input: &mut Input<'_>, rules: Rules) -> Result<Option<FrameHead>, DecodeStop> {
        while let Some(&byte) = input.rest().first() {
            let Some(free) = self.bytes.get_mut(self.len) else { break };
            *free = byte;
            self.len += 1;
            input.at += 1;
            let bytes = self.bytes.get(..self.len).unwrap_or_default();
            match decode_head(bytes, |opcode, bytes| rules.admit(opcode, bytes)) {
                Decoded::Done { value, .. } => {
                    self.len = 0;
                    return Ok(Some(value));
                }
                Decoded::Need => {}
                Decoded::Invalid(stop) => return Err(stop),
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
