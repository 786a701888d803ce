//! Server-sent events: messages into bytes (contract §4; WHATWG HTML §9.2).
//!
//! Owns the line format: lines end in a lone LF, one space behind each colon, one `data` line, a blank line behind every
//! event and comment. Knows no session, no position beyond its numbers, and no socket; the framing of the stream's body
//! comes from [`StreamFraming`], one chunk per message.
//! Invariant: no text handed in can begin a line of its own, and an id that is handed out can come back in a header field. A
//! session that forbids either makes the event go without id; from other texts CR and LF are left out.

use memchr::{memchr2, memchr2_iter};

use super::digits::{decimal_len, push_decimal};
use super::http1::StreamFraming;

/// The position an event's id names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId<'a> {
    /// Session, as the event bears it.
    pub session: &'a str,
    /// Epoch.
    pub epoch: u64,
    /// Sequence number.
    pub seq: u64,
}

impl EventId<'_> {
    fn len(&self) -> usize {
        self.session.len() + 1 + decimal_len(self.epoch) + 1 + decimal_len(self.seq)
    }
}

/// Whether a session may stand in an id line, so that what a client sends as `Last-Event-ID` is what the line told it. CR and LF
/// would end the line, and a NUL makes clients ignore it; other control characters are refused in a field (RFC 9110 §5.5),
/// which ends an `EventSource` for good; white space in front is lost on the way, and what is left may be another session.
fn may_be_id(session: &str) -> bool {
    let cannot_travel = |b: u8| (b < b' ' && b != b'\t') || b == 0x7f;
    // Without a short cut, so that it is done many bytes at a time.
    !session.bytes().fold(false, |found, b| found | cannot_travel(b)) && !session.starts_with([' ', '\t'])
}

/// Appends one event. `id` is left out if it could not come back as it is: if its session holds a
/// control character but a tab, or begins with white space.
pub fn encode_event(out: &mut Vec<u8>, framing: StreamFraming, id: Option<EventId<'_>>, kind: &str, data: &[u8]) {
    let id = id.filter(|id| may_be_id(id.session));
    let id_bytes = id.map_or(0, |id| "id: \n".len() + id.len());
    let content_bytes = id_bytes + "event: \ndata: \n\n".len() + text_len(kind.as_bytes()) + text_len(data);
    framing.begin(out, content_bytes);
    let start = out.len();
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.session.as_bytes());
        out.push(b':');
        push_decimal(out, id.epoch);
        out.push(b':');
        push_decimal(out, id.seq);
        out.push(b'\n');
    }
    out.extend_from_slice(b"event: ");
    push_text(out, kind.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    push_text(out, data);
    out.extend_from_slice(b"\n\n");
    debug_assert_eq!(out.len() - start, content_bytes);
    framing.finish(out, content_bytes);
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

    const AT: EventId<'static> = EventId { session: "a:b c", epoch: 0, seq: 9_223_372_036_854_775_807 };

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
    fn a_session_that_could_not_come_back_takes_the_id_away() {
        for session in ["a\rb", "a\nevent: x", "a\0", "\n", "a\u{1}b", "\u{1f}", "\u{7f}", "a\u{b}", " a", "\ta", " "] {
            assert!(!may_be_id(session), "{session:?}");
            let id = Some(EventId { session, epoch: 1, seq: 2 });
            assert_eq!(event(StreamFraming::Chunked, id, "x.y", "{}"), "15\r\nevent: x.y\ndata: {}\n\n\r\n");
        }
        for session in ["a:b\t\u{85}\u{2028}", "a b", "a ", "a\t", "~", "\u{a0}a"] {
            assert!(may_be_id(session), "{session:?}");
        }
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
            let id = Some(EventId { session: &session, epoch, seq });
            encode_event(&mut out, StreamFraming::Chunked, id, &kind, data.as_bytes());
            prop_assert_eq!(super::super::http1::chunk::chunk_len(&out), Some(out.len()));
            let mut plain = Vec::new();
            encode_event(&mut plain, StreamFraming::UntilClose, id, &kind, data.as_bytes());
            prop_assert_eq!(plain.windows(2).position(|w| w == b"\n\n"), Some(plain.len() - 2));
            prop_assert_eq!(plain.iter().filter(|b| **b == b'\n').count(), if may_be_id(&session) { 4 } else { 3 });
            prop_assert!(!plain.contains(&b'\r'));
        }
    }
}
