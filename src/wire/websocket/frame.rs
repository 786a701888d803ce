//! Frames (RFC 6455 §5): heads of client frames in, whole server frames out.
//!
//! The relay sends every message as one unmasked, unfragmented frame, so a frame is also the unit at which a queue may
//! be cut: [`frame_len`] finds its end. What a decoded head means inside a message is `message.rs`'s business.

use super::close::{CloseCode, Fault};
use crate::wire::Decoded;

/// The longest head: two bytes, a 64-bit length, a mask.
pub const HEAD_BYTES_MAX: usize = 14;
/// The longest payload of a control frame (§5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
/// Lengths in the second byte that announce two or eight further bytes.
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// A further piece of a fragmented message.
    Continuation = 0x0,
    /// The first or only piece of a text message.
    Text = 0x1,
    /// The first or only piece of a binary message.
    Binary = 0x2,
    /// Control: the peer closes.
    Close = 0x8,
    /// Control: the peer wants a pong.
    Ping = 0x9,
    /// Control: the answer to a ping, or unasked.
    Pong = 0xa,
}

impl Opcode {
    const fn from_wire(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }

    /// Control frames may come between the fragments of a message.
    #[must_use]
    pub const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The head of a client frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// Whether the frame ends its message.
    pub fin: bool,
    /// What it is.
    pub opcode: Opcode,
    /// Its mask.
    pub mask: [u8; 4],
    /// Bytes of payload that follow, below 2^63; at most [`CONTROL_BYTES_MAX`] in a control frame.
    pub payload_bytes: u64,
}

/// Decodes the head of a client frame. `admit` says whether a frame of that opcode may come now and announce so many
/// bytes: it is asked about the opcode alone as soon as that is known (with 0 bytes), and again with the length, so
/// that every fault, its own or one for close code 1002, is found with the first byte that shows it and none waits for
/// the mask.
#[must_use]
pub fn decode_head<E: From<Fault>>(
    bytes: &[u8],
    admit: impl Fn(Opcode, u64) -> Result<(), E>,
) -> Decoded<FrameHead, E> {
    let broken = |rule| Decoded::Invalid(Fault::protocol(rule).into());
    let Some((&first, rest)) = bytes.split_first() else { return Decoded::Need };
    if first & RESERVED != 0 {
        return broken("reserved bit set");
    }
    let Some(opcode) = Opcode::from_wire(first & OPCODE) else { return broken("unknown opcode") };
    let fin = first & FIN != 0;
    if opcode.is_control() && !fin {
        return broken("fragmented control frame");
    }
    if let Err(refused) = admit(opcode, 0) {
        return Decoded::Invalid(refused);
    }
    let Some((&second, rest)) = rest.split_first() else { return Decoded::Need };
    if second & MASKED == 0 {
        return broken("client frame without mask");
    }
    if opcode.is_control() && usize::from(second & LENGTH) > CONTROL_BYTES_MAX {
        return broken("control frame over 125 bytes");
    }
    let (payload_bytes, length_bytes) = match decode_length(second & LENGTH, rest) {
        Decoded::Done { value, consumed } => (value, consumed),
        Decoded::Need => return Decoded::Need,
        Decoded::Invalid(rule) => return broken(rule),
    };
    if let Err(refused) = admit(opcode, payload_bytes) {
        return Decoded::Invalid(refused);
    }
    match rest.get(length_bytes..).and_then(|rest| rest.first_chunk()) {
        Some(&mask) => {
            let consumed = 2 + length_bytes + mask.len();
            Decoded::Done { value: FrameHead { fin, opcode, mask, payload_bytes }, consumed }
        }
        None => Decoded::Need,
    }
}

/// The whole length, head included, of the server frame that begins at `bytes[0]`; `None` while its head is not all
/// there. Only for bytes that this module encoded.
#[must_use]
pub fn frame_len(bytes: &[u8]) -> Option<usize> {
    let (&second, rest) = bytes.get(1..)?.split_first()?;
    debug_assert!(second & MASKED == 0, "the relay masks nothing");
    match decode_length(second & LENGTH, rest) {
        Decoded::Done { value, consumed } => usize::try_from(value).ok()?.checked_add(2 + consumed),
        Decoded::Need | Decoded::Invalid(_) => None,
    }
}

/// Appends a text frame.
pub fn encode_text(out: &mut Vec<u8>, text: &[u8]) {
    encode_text_head(out, text.len());
    out.extend_from_slice(text);
}

/// Appends the head of a text frame whose `payload_bytes` follow.
pub fn encode_text_head(out: &mut Vec<u8>, payload_bytes: usize) {
    encode_head(out, Opcode::Text, payload_bytes);
}

/// Appends a ping.
pub fn encode_ping(out: &mut Vec<u8>, payload: &[u8]) {
    encode_control(out, Opcode::Ping, payload);
}

/// Appends a pong; `payload` is that of the ping it answers.
pub fn encode_pong(out: &mut Vec<u8>, payload: &[u8]) {
    encode_control(out, Opcode::Pong, payload);
}

/// Appends a close frame. Without a code its body is empty, which is also how an empty one is answered (§5.5.1). A
/// reason that is too long is cut at a character.
pub fn encode_close(out: &mut Vec<u8>, code: Option<CloseCode>, reason: &str) {
    let Some(code) = code else { return encode_control(out, Opcode::Close, &[]) };
    let code = code.value().to_be_bytes();
    let reason = &reason[..reason.floor_char_boundary(CONTROL_BYTES_MAX - code.len())];
    encode_head(out, Opcode::Close, code.len() + reason.len());
    out.extend_from_slice(&code);
    out.extend_from_slice(reason.as_bytes());
}

fn encode_control(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    debug_assert!(payload.len() <= CONTROL_BYTES_MAX, "control payloads come from control frames or from us");
    let payload = payload.get(..CONTROL_BYTES_MAX).unwrap_or(payload);
    encode_head(out, opcode, payload.len());
    out.extend_from_slice(payload);
}

fn encode_head(out: &mut Vec<u8>, opcode: Opcode, payload_bytes: usize) {
    let first = FIN | opcode as u8;
    if payload_bytes < usize::from(LENGTH_16) {
        out.extend_from_slice(&[first, payload_bytes as u8]);
    } else if let Ok(length) = u16::try_from(payload_bytes) {
        let [a, b] = length.to_be_bytes();
        out.extend_from_slice(&[first, LENGTH_16, a, b]);
    } else {
        out.extend_from_slice(&[first, LENGTH_64]);
        out.extend_from_slice(&(payload_bytes as u64).to_be_bytes());
    }
}

/// The payload length that `short` and the bytes behind it tell, and how many of those it took (§5.2).
fn decode_length(short: u8, rest: &[u8]) -> Decoded<u64, &'static str> {
    let (length, consumed, least) = match short {
        LENGTH_16 => match rest.first_chunk() {
            Some(bytes) => (u64::from(u16::from_be_bytes(*bytes)), 2, u64::from(LENGTH_16)),
            None => return Decoded::Need,
        },
        LENGTH_64 => match rest.first_chunk() {
            Some(bytes) => (u64::from_be_bytes(*bytes), 8, 1 << 16),
            None => return Decoded::Need,
        },
        length => (u64::from(length), 0, 0),
    };
    if length < least {
        return Decoded::Invalid("length not in its shortest form");
    }
    if length > i64::MAX as u64 {
        return Decoded::Invalid("length over 63 bits");
    }
    Decoded::Done { value: length, consumed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: &[u8]) -> Decoded<FrameHead, Fault> {
        decode_head(bytes, |_, _| Ok(()))
    }

    #[test]
    fn every_illegal_head_with_its_rule_and_the_byte_that_shows_it() {
        let cases: [(&str, &[u8], &str); 17] = [
            ("5.2 RSV1", b"\xc1", "reserved bit set"),
            ("5.2 RSV2", b"\xa1", "reserved bit set"),
            ("5.2 RSV3", b"\x91", "reserved bit set"),
            ("5.2 RSV1 on control", b"\xc9", "reserved bit set"),
            ("5.2 opcode 3", b"\x83", "unknown opcode"),
            ("5.2 opcode 7", b"\x07", "unknown opcode"),
            ("5.2 opcode b", b"\x8b", "unknown opcode"),
            ("5.2 opcode f", b"\x8f", "unknown opcode"),
            ("5.4 fragmented close", b"\x08", "fragmented control frame"),
            ("5.4 fragmented ping", b"\x09", "fragmented control frame"),
            ("5.4 fragmented pong", b"\x0a", "fragmented control frame"),
            ("5.1 unmasked", b"\x81\x05", "client frame without mask"),
            ("5.1 unmasked empty", b"\x81\x00", "client frame without mask"),
            ("5.5 ping of 126", b"\x89\xfe", "control frame over 125 bytes"),
            ("5.2 126 for 125", b"\x81\xfe\x00\x7d", "length not in its shortest form"),
            ("5.2 127 for 65535", b"\x81\xff\0\0\0\0\0\0\xff\xff", "length not in its shortest form"),
            ("5.2 most significant bit", b"\x81\xff\x80\0\0\0\0\0\0\0", "length over 63 bits"),
        ];
        for (section, bytes, reason) in cases {
            assert_eq!(head(bytes), Decoded::Invalid(Fault::protocol(reason)), "{section}");
            assert_eq!(head(&bytes[..bytes.len() - 1]), Decoded::Need, "{section}: shown by its last byte only");
        }
    }

    #[test]
    fn what_is_not_admitted_is_found_by_its_opcode_or_its_length_and_not_by_its_mask() {
        let few = |opcode, bytes| {
            let refused = opcode == Opcode::Binary || bytes > 300;
            if refused { Err(Fault::too_big("refused")) } else { Ok(()) }
        };
        for bytes in [&b"\x82"[..], b"\x81\xfe\x01\x2d", b"\x81\xff\0\0\0\0\0\x01\0\0"] {
            assert!(matches!(decode_head(bytes, few), Decoded::Invalid(_)), "{bytes:02x?}");
            assert_eq!(decode_head(&bytes[..bytes.len() - 1], few), Decoded::Need, "{bytes:02x?}");
        }
        assert!(matches!(decode_head(b"\x81\xfe\x01\x2cmask", few), Decoded::Done { .. }));
    }

    #[test]
    fn heads_of_every_length_form() {
        let cases: [(&[u8], u64); 7] = [
            (b"\x81\x80", 0),
            (b"\x81\xfd", 125),
            (b"\x81\xfe\x00\x7e", 126),
            (b"\x81\xfe\xff\xff", 65_535),
            (b"\x81\xff\0\0\0\0\0\x01\0\0", 65_536),
            (b"\x81\xff\0\0\0\x01\0\0\0\0", 1 << 32),
            (b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff", i64::MAX as u64),
        ];
        for (bytes, payload_bytes) in cases {
            let mut bytes = bytes.to_vec();
            bytes.extend_from_slice(b"mask");
            let value = FrameHead { fin: true, opcode: Opcode::Text, mask: *b"mask", payload_bytes };
            for cut in 0..bytes.len() {
                assert_eq!(head(&bytes[..cut]), Decoded::Need);
            }
            let consumed = bytes.len();
            assert_eq!(head(&bytes), Decoded::Done { value, consumed });
            bytes.push(b'x');
            assert_eq!(head(&bytes), Decoded::Done { value, consumed });
            assert!(consumed <= HEAD_BYTES_MAX);
        }
    }

    #[test]
    fn text_frames_at_the_edges_of_the_length_forms() {
        let cases: [(usize, &[u8]); 6] = [
            (0, b"\x81\x00"),
            (125, b"\x81\x7d"),
            (126, b"\x81\x7e\x00\x7e"),
            (65_535, b"\x81\x7e\xff\xff"),
            (65_536, b"\x81\x7f\0\0\0\0\0\x01\0\0"),
            (70_000, b"\x81\x7f\0\0\0\0\0\x01\x11\x70"),
        ];
        for (len, head) in cases {
            let (mut frame, text) = (Vec::new(), vec![b'a'; len]);
            encode_text(&mut frame, &text);
            assert_eq!(frame, [head, &text].concat());
            for cut in 0..head.len() {
                assert_eq!(frame_len(&frame[..cut]), None);
            }
            assert_eq!(frame_len(head), Some(frame.len()));
            frame.extend_from_slice(b"\x81\x01a");
            assert_eq!(frame_len(&frame), Some(frame.len() - 3));
        }
    }

    #[test]
    fn control_frames_as_bytes() {
        let encoded = |encode: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            encode(&mut out);
            out
        };
        assert_eq!(encoded(&|out| encode_ping(out, b"")), b"\x89\x00");
        assert_eq!(encoded(&|out| encode_pong(out, b"abc")), b"\x8a\x03abc");
        assert_eq!(encoded(&|out| encode_close(out, None, "unused")), b"\x88\x00");
        assert_eq!(encoded(&|out| encode_close(out, Some(CloseCode::GOING_AWAY), "")), b"\x88\x02\x03\xe9");
        assert_eq!(
            encoded(&|out| encode_close(out, Some(CloseCode::TRY_AGAIN_LATER), "slow")),
            b"\x88\x06\x03\xf5slow"
        );
    }

    #[test]
    fn a_long_close_reason_is_cut_at_a_character() {
        let mut out = Vec::new();
        encode_close(&mut out, Some(CloseCode::NORMAL), &format!("{}€", "a".repeat(121)));
        assert_eq!(out.len(), 2 + 2 + 121);
        assert_eq!(out[1], 123);
        assert!(str::from_utf8(&out[4..]).is_ok());
    }
}
