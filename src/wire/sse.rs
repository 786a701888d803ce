//! Server-sent events: messages into bytes (contract §4; WHATWG HTML §9.2).
//!
//! Owns the line format: lines end in a lone LF, one space behind each colon, one `data` line, a blank line behind
//! every event and comment. Knows no protocol and no socket; the framing of the stream's body comes from
//! [`StreamFraming`], one chunk per message. Invariant: no text handed in can begin a line of its own, and an id that
//! is handed out can come back in a header field. An id whose text forbids either is left out; from other texts CR and
//! LF are.

use memchr::{memchr2, memchr2_iter};

use super::digits::{decimal_len, push_decimal};
use super::http1::StreamFraming;

/// What an id line says: a text, and behind it each number with a colon before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId<'a> {
    /// Any text.
    pub text: &'a str,
    /// None where the text is all.
    pub numbers: &'a [u64],
}

impl EventId<'_> {
    /// Whether what a client sends as `Last-Event-ID` is what the line told it. CR and LF would end the line, and a NUL
    /// makes clients ignore it; other control characters are refused in a field (RFC 9110 §5.5), which ends an
    /// `EventSource` for good; white space at the ends is lost on the way, and an empty id is none.
    fn can_come_back(&self) -> bool {
        let cannot_travel = |b: u8| (b < b' ' && b != b'\t') || b == 0x7f;
        // Without a short cut, so that it is done many bytes at a time.
        !self.text.bytes().fold(false, |found, b| found | cannot_travel(b))
            && !self.text.starts_with([' ', '\t'])
            && (!self.numbers.is_empty() || !(self.text.is_empty() || self.text.ends_with([' ', '\t'])))
    }

    /// Bytes of its line.
    fn line_len(&self) -> usize {
        let numbers = self.numbers.iter().map(|number| 1 + decimal_len(*number));
        "id: \n".len() + self.text.len() + numbers.sum::<usize>()
    }

    fn push_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(self.text.as_bytes());
        for number in self.numbers {
            out.push(b':');
            push_decimal(out, *number);
        }
        out.push(b'\n');
    }
}

/// Appends one event. `id` is left out if it could not come back as it is: if its text holds a control character but a
/// tab, begins with white space, or is all there is of it and ends with white space.
pub fn encode_event(out: &mut Vec<u8>, framing: StreamFraming, id: Option<EventId<'_>>, kind: &str, data: &[u8]) {
    let id = id.filter(EventId::can_come_back);
    let id_bytes = id.map_or(0, |id| id.line_len());
    let content_bytes = id_bytes + "event: \ndata: \n\n".len() + text_len(kind.as_bytes()) + text_len(data);
    framing.begin(out, content_bytes);
    let start = out.len();
    if let Some(id) = id {
        id.push_line(out);
    }
    out.extend_from_slice(b"event: ");
    push_text(out, kind.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    push_text(out, data);
    out.extend_from_slice(b"\n\n");
    debug_assert_eq!(out.len() - start, content_bytes);
    framing.finish(out, content_bytes);
}

/// Appends an id alone: a client shows nothing, and takes it for the last one (WHATWG HTML §9.2.6). Answers whether it
/// was appended, which it is not if it could not come back.
pub fn encode_id(out: &mut Vec<u8>, framing: StreamFraming, id: EventId<'_>) -> bool {
    if !id.can_come_back() {
        return false;
    }
    let content_bytes = id.line_len() + 1;
    framing.begin(out, content_bytes);
    id.push_line(out);
    out.push(b'\n');
    framing.finish(out, content_bytes);
    true
}

/// Appends one comment.
pub fn encode_comment(out: &mut Vec<u8>, framing: StreamFraming, text: &[u8]) {
    let content_bytes = ": \n\n".len() + text_len(text);
    framing.begin(out, content_bytes);
    out.extend_from_slice(b": ");
    push_text(out, text);
    out.extend_from_slice(b"\n\n");
    framing.finish(out, content_bytes);
}

/// Bytes that [`push_text`] writes.
fn text_len(text: &[u8]) -> usize {
    text.len() - memchr2_iter(b'\r', b'\n', text).count()
}

/// Appends text without its line breaks.
fn push_text(out: &mut Vec<u8>, mut text: &[u8]) {
    while let Some(at) = memchr2(b'\r', b'\n', text) {
        let (line, rest) = text.split_at(at);
        out.extend_from_slice(line);
        text = rest.get(1..).unwrap_or_default();
    }
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(framing: StreamFraming, id: Option<EventId<'_>>, kind: &str, data: &str) -> String {
        let mut out = Vec::new();
        encode_event(&mut out, framing, id, kind, data.as_bytes());
        String::from_utf8(out).unwrap()
    }

    const AT: EventId<'static> = EventId { text: "a:b c", numbers: &[0, 9_223_372_036_854_775_807] };

    #[test]
    fn an_event_has_id_type_data_and_a_blank_line() {
        assert_eq!(
            event(StreamFraming::UntilClose, Some(AT), "run.started", r#"{"x":1}"#),
            "id: a:b c:0:9223372036854775807\nevent: run.started\ndata: {\"x\":1}\n\n"
        );
        assert_eq!(event(StreamFraming::UntilClose, None, "agent.online", "{}"), "event: agent.online\ndata: {}\n\n");
    }

    #[test]
    fn one_chunk_holds_exactly_one_message() {
        assert_eq!(
            event(StreamFraming::Chunked, None, "agent.online", "{}"),
            "1e\r\nevent: agent.online\ndata: {}\n\n\r\n"
        );
        let mut out = Vec::new();
        encode_comment(&mut out, StreamFraming::Chunked, b"ping");
        encode_comment(&mut out, StreamFraming::UntilClose, b"replay-complete");
        assert_eq!(out, b"8\r\n: ping\n\n\r\n: replay-complete\n\n");
    }

    #[test]
    fn an_id_that_could_not_come_back_is_left_out() {
        for session in ["a\rb", "a\nevent: x", "a\0", "\n", "a\u{1}b", "\u{1f}", "\u{7f}", "a\u{b}", " a", "\ta", " "] {
            for numbers in [&[][..], &[1, 2]] {
                let id = EventId { text: session, numbers };
                assert!(!id.can_come_back(), "{id:?}");
                assert_eq!(event(StreamFraming::Chunked, Some(id), "x.y", "{}"), "15\r\nevent: x.y\ndata: {}\n\n\r\n");
                assert!(!encode_id(&mut Vec::new(), StreamFraming::Chunked, id));
            }
        }
        for session in ["a:b\t\u{85}\u{2028}", "a b", "a ", "a\t", "~", "\u{a0}a"] {
            assert!(EventId { text: session, numbers: &[0, 1] }.can_come_back(), "{session:?}");
            let is_trimmed = session.ends_with([' ', '\t']);
            assert_eq!(EventId { text: session, numbers: &[] }.can_come_back(), !is_trimmed, "{session:?}");
        }
    }

    #[test]
    fn an_id_may_be_any_text_and_stand_alone() {
        assert!(!EventId { text: "", numbers: &[] }.can_come_back());
        let id = EventId { text: "evt_01:x", numbers: &[] };
        assert_eq!(event(StreamFraming::UntilClose, Some(id), "a.b", "1"), "id: evt_01:x\nevent: a.b\ndata: 1\n\n");
        let mut out = Vec::new();
        assert!(encode_id(&mut out, StreamFraming::UntilClose, id));
        assert!(encode_id(&mut out, StreamFraming::Chunked, EventId { text: "s", numbers: &[0, 12] }));
        assert_eq!(out, b"id: evt_01:x\n\nc\r\nid: s:0:12\n\n\r\n");
    }

    #[test]
    fn line_breaks_in_texts_are_left_out() {
        assert_eq!(event(StreamFraming::Chunked, None, "x\ny", "{\r\n}\n"), "14\r\nevent: xy\ndata: {}\n\n\r\n");
        let mut out = Vec::new();
        encode_comment(&mut out, StreamFraming::Chunked, b"a\n\rb\n");
        assert_eq!(out, b"6\r\n: ab\n\n\r\n");
    }

    proptest! {
        #[test]
        fn any_message_is_one_whole_chunk_of_one_message(
            session in "[a-c\r\n\0\t \x1b\x7f:]{0,6}", epoch: u64, seq: u64, kind in ".{0,8}", data in "[a{}\r\n]{0,40}",
        ) {
            let mut out = Vec::new();
            let id = EventId { text: &session, numbers: &[epoch, seq] };
            encode_event(&mut out, StreamFraming::Chunked, Some(id), &kind, data.as_bytes());
            prop_assert_eq!(super::super::http1::chunk::chunk_len(&out), Some(out.len()));
            let mut plain = Vec::new();
            encode_event(&mut plain, StreamFraming::UntilClose, Some(id), &kind, data.as_bytes());
            prop_assert_eq!(plain.windows(2).position(|w| w == b"\n\n"), Some(plain.len() - 2));
            prop_assert_eq!(plain.iter().filter(|b| **b == b'\n').count(), if id.can_come_back() { 4 } else { 3 });
            prop_assert!(!plain.contains(&b'\r'));
        }
    }
}
