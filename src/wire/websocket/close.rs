//! Close codes (RFC 6455 §7.4 and the IANA registry): which exist, which may travel, and the body of a close frame.
//!
//! A [`CloseCode`] can only be made from a number that may appear on the wire. So 1005, 1006 and 1015, which stand for
//! "none was sent", "the connection broke" and "TLS failed" inside programs, can never leave the relay.

/// A close code that may travel in a close frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose has been fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server goes down, or the page was left.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke the framing rules.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// A kind of data that is not taken here: binary messages.
    pub const UNSUPPORTED_DATA: Self = Self(1003);
    /// Data that contradicts its kind: text that is not UTF-8.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// The peer broke a rule that has no code of its own.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// A message over the limit.
    pub const MESSAGE_TOO_BIG: Self = Self(1009);
    /// The server met a condition that keeps it from going on.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The peer may come back in a while.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// The code of that number, if it may travel: registered ones but for the three that never do, and the ranges for
    /// libraries (3000–3999) and private use (4000–4999).
    #[must_use]
    pub const fn from_wire(code: u16) -> Option<Self> {
        match code {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(code)),
            _ => None,
        }
    }

    /// The number on the wire.
    #[must_use]
    pub const fn value(self) -> u16 {
        self.0
    }
}

/// How a peer broke RFC 6455, with the code the connection is closed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The close code the RFC gives it.
    pub code: CloseCode,
    /// The rule at fault, fit for a close reason.
    pub reason: &'static str,
}

impl Fault {
    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self { code: CloseCode::PROTOCOL_ERROR, reason }
    }

    pub(super) const fn utf8(reason: &'static str) -> Self {
        Self { code: CloseCode::INVALID_PAYLOAD, reason }
    }

    pub(super) const fn not_text() -> Self {
        Self { code: CloseCode::UNSUPPORTED_DATA, reason: "text messages only" }
    }

    pub(super) const fn too_big(reason: &'static str) -> Self {
        Self { code: CloseCode::MESSAGE_TOO_BIG, reason }
    }
}

/// The code in the unmasked body of a close frame; `None` for an empty body (§5.5.1). Its reason is checked and
/// dropped: it is for people, and a peer's text does not belong in our log.
pub(super) fn decode_close(body: &[u8]) -> Result<Option<CloseCode>, Fault> {
    let Some((code, reason)) = body.split_first_chunk::<2>() else {
        return if body.is_empty() { Ok(None) } else { Err(Fault::protocol("close body of one byte")) };
    };
    let code = CloseCode::from_wire(u16::from_be_bytes(*code)).ok_or(Fault::protocol("close code not allowed"))?;
    match simdutf8::basic::from_utf8(reason) {
        Ok(_) => Ok(Some(code)),
        Err(_) => Err(Fault::utf8("close reason is not UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_codes_that_may_travel() {
        let allowed = |code: u16| matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
        for code in 0..=u16::MAX {
            assert_eq!(CloseCode::from_wire(code).map(CloseCode::value), allowed(code).then_some(code));
        }
        for never in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000] {
            assert_eq!(CloseCode::from_wire(never), None, "{never}");
        }
    }

    #[test]
    fn bodies_of_close_frames() {
        let code = |number| Ok(CloseCode::from_wire(number));
        let fault = |number| Err(CloseCode::from_wire(number));
        for (body, expected) in [
            (&b""[..], Ok(None)),
            (b"\x03", fault(1002)),
            (b"\x03\xe8", code(1000)),
            (b"\x03\xe8bye", code(1000)),
            (b"\x0f\xa0\xe2\x82\xac", code(4000)),
            (b"\x03\xed", fault(1002)),
            (b"\x03\xe8\xff\xfe", fault(1007)),
            (b"\x03\xe8\xe2\x82", fault(1007)),
        ] {
            assert_eq!(decode_close(body).map_err(|fault| Some(fault.code)), expected, "{body:02x?}");
        }
    }
}
