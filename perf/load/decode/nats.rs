//! The client side of the NATS core protocol: as much as a consumer needs.

use memchr::memchr;

use super::{Fault, MESSAGE_BYTES_MAX, Pending, Said, beginning};

/// The decoder of one connection.
#[derive(Debug, Default)]
pub(crate) struct Nats {
    /// An operation begun and not ended.
    pending: Pending,
}

impl Nats {
    pub(crate) fn feed(
        &mut self,
        input: &[u8],
        reply: &mut Vec<u8>,
        on: &mut dyn FnMut(Said<'_>),
    ) -> Result<(), Fault> {
        self.pending.feed(input, |bytes| operations(bytes, reply, on))
    }

    pub(super) fn is_within(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Handles the whole operations at the front of `input`; returns how many bytes they are.
fn operations(input: &[u8], reply: &mut Vec<u8>, on: &mut dyn FnMut(Said<'_>)) -> Result<usize, Fault> {
    let mut used = 0;
    loop {
        let rest = input.get(used..).unwrap_or_default();
        let Some(end) = memchr(b'\n', rest) else { return Ok(used) };
        let line = rest.get(..end).unwrap_or_default().trim_ascii_end();
        let behind = end + 1;
        if let Some(arguments) = line.strip_prefix(b"MSG ") {
            let bytes = arguments
                .rsplit(|&byte| byte == b' ')
                .next()
                .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok())
                .filter(|&bytes| bytes <= MESSAGE_BYTES_MAX)
                .ok_or_else(|| Fault::new("a MSG without a length"))?;
            // Payload and its CRLF.
            let Some(payload) = rest.get(behind..behind + bytes) else { return Ok(used) };
            let Some(end) = rest.get(behind + bytes..behind + bytes + 2) else { return Ok(used) };
            if end != b"\r\n" {
                return Err(Fault::new("a MSG that is not as long as it says"));
            }
            on(Said::Event(payload, None));
            used += behind + bytes + 2;
            continue;
        }
        match line {
            b"PING" => reply.extend_from_slice(b"PONG\r\n"),
            // The opening ends in a PING: its answer says that the subscriptions before it stand.
            b"PONG" => on(Said::Open),
            _ if line.starts_with(b"INFO ") || line == b"+OK" => {}
            _ if line.starts_with(b"-ERR") => on(Said::Refused(0, beginning(line))),
            _ => return Err(Fault::new(format!("not the NATS protocol: {}", beginning(line)))),
        }
        used += behind;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::super::testing::{assert_said, said};
    use super::*;

    fn nats() -> Decoder {
        Decoder::Nats(Nats::default())
    }

    #[test]
    fn messages_come_out_of_any_cut() {
        let input = b"INFO {\"a\":1}\r\nPONG\r\nMSG load.1 1 5\r\nhe\nlo\r\nPING\r\nMSG load.1 1 0\r\n\r\n";
        assert_said(nats, input, &["open", "event he\nlo", "event "]);
        assert_eq!(said(nats(), input, 3).1, b"PONG\r\n");
    }

    #[test]
    fn errors_refuse_and_strangers_are_faults() {
        assert_said(nats, b"-ERR 'Authorization Violation'\r\n", &["refused 0 -ERR 'Authorization Violation'"]);
        assert!(said(nats(), b"HTTP/1.1 400 Bad Request\r\n", 100).2.is_err());
        assert!(said(nats(), b"MSG a 1 x\r\n", 100).2.is_err());
        assert!(said(nats(), b"MSG a 1 1\r\nxyz\r\n", 100).2.is_err());
    }
}
