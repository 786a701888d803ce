//! Server-sent events as a consumer reads them: a response whose body is messages of lines.
//!
//! A relay's stream is read to the letter: it has the fields of an event, each once, and the comments of the contract,
//! and anything else is a fault. Of other servers' streams unknown fields and comments are passed over, as the standard
//! wants.

use memchr::{memchr, memmem};

use super::http::{Body, Head, HeadReader};
use super::{Fault, Labels, MESSAGE_BYTES_MAX, Said, beginning};

/// The decoder of one event stream.
#[derive(Debug)]
pub(crate) struct EventStream {
    state: State,
    messages: Messages,
}

#[derive(Debug)]
enum State {
    Head(HeadReader),
    Body(Body),
    /// A refusal, and what its body has said so far.
    Refusal(u16, Body, Vec<u8>),
}

impl EventStream {
    /// A decoder of a relay's stream, or of another server's: that one is open with its head, a relay's with its
    /// comment `open`.
    pub(crate) fn new(is_relay: bool) -> Self {
        let messages = Messages { is_relay, pending: Vec::new(), joined: Vec::new() };
        Self { state: State::Head(HeadReader::default()), messages }
    }

    pub(super) fn is_within(&self) -> bool {
        match &self.state {
            State::Head(_) | State::Refusal(..) => true,
            State::Body(body) => body.is_within() || !self.messages.pending.is_empty(),
        }
    }

    pub(crate) fn feed(&mut self, input: &[u8], on: &mut dyn FnMut(Said<'_>)) -> Result<(), Fault> {
        let mut rest = input;
        if let State::Head(reader) = &mut self.state {
            let Some((head, behind)) = reader.feed(input)? else { return Ok(()) };
            rest = behind;
            self.state = self.on_head(&head, on)?;
        }
        match &mut self.state {
            State::Head(_) => {}
            State::Body(body) => {
                while !rest.is_empty() && !body.is_done() {
                    let piece = body.next(&mut rest)?;
                    self.messages.feed(piece, on)?;
                }
            }
            State::Refusal(status, body, text) => {
                while !rest.is_empty() && !body.is_done() {
                    let piece = body.next(&mut rest)?;
                    if text.len() < 1024 {
                        text.extend_from_slice(piece);
                    }
                }
                if body.is_done() {
                    on(Said::Refused(*status, beginning(text)));
                }
            }
        }
        Ok(())
    }

    fn on_head(&self, head: &Head, on: &mut dyn FnMut(Said<'_>)) -> Result<State, Fault> {
        let body = head.body()?;
        if head.status != 200 {
            if body.is_done() {
                on(Said::Refused(head.status, String::new()));
            }
            return Ok(State::Refusal(head.status, body, Vec::new()));
        }
        if !head.field("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Err(Fault::new("an answer that is no event stream"));
        }
        if !self.messages.is_relay {
            on(Said::Open);
        }
        Ok(State::Body(body))
    }
}

/// The fields of a message, as far as an event has them.
#[derive(Debug, Default)]
struct Fields<'a> {
    data: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
}

/// Messages out of a body's pieces.
#[derive(Debug)]
struct Messages {
    /// They are read to the letter.
    is_relay: bool,
    /// A message begun and not ended.
    pending: Vec<u8>,
    /// Data of several lines, joined.
    joined: Vec<u8>,
}

impl Messages {
    fn feed(&mut self, piece: &[u8], on: &mut dyn FnMut(Said<'_>)) -> Result<(), Fault> {
        let mut rest = piece;
        if !self.pending.is_empty() {
            // The end may lie across the seam, but not before it.
            let seam = self.pending.len() - 1;
            self.pending.extend_from_slice(piece);
            let Some(end) = self.pending.get(seam..).and_then(|tail| memmem::find(tail, b"\n\n")) else {
                return self.bounded();
            };
            let message_bytes = seam + end + 2;
            let mut pending = std::mem::take(&mut self.pending);
            self.on_message(pending.get(..message_bytes).unwrap_or_default(), on)?;
            let behind = piece.len() - (pending.len() - message_bytes);
            rest = piece.get(behind..).unwrap_or_default();
            pending.clear();
            self.pending = pending;
        }
        while let Some(end) = memmem::find(rest, b"\n\n") {
            let (message, behind) = rest.split_at(end + 2);
            self.on_message(message, on)?;
            rest = behind;
        }
        self.pending.extend_from_slice(rest);
        self.bounded()
    }

    fn bounded(&self) -> Result<(), Fault> {
        if self.pending.len() > MESSAGE_BYTES_MAX {
            return Err(Fault::new("a message without end"));
        }
        Ok(())
    }

    /// Handles one message, its blank line included.
    fn on_message(&mut self, message: &[u8], on: &mut dyn FnMut(Said<'_>)) -> Result<(), Fault> {
        let strange = || Fault::new(format!("no message of a relay's event stream: {}", beginning(message)));
        let mut fields = Fields::default();
        let mut is_comment = false;
        self.joined.clear();
        let mut rest = message.get(..message.len() - 1).unwrap_or_default();
        while let Some(end) = memchr(b'\n', rest) {
            let (line, behind) = rest.split_at(end);
            rest = behind.get(1..).unwrap_or_default();
            let (field, value) = line.split_at(memchr(b':', line).map_or(line.len(), |colon| colon + 1));
            let value = match value.strip_prefix(b" ") {
                Some(value) => value,
                None if self.is_relay => return Err(strange()),
                None => value,
            };
            let first = match field {
                b"data:" => fields.data.replace(value),
                b"id:" => fields.id.replace(value),
                b"event:" => fields.name.replace(value),
                b":" => {
                    is_comment = true;
                    let is_known = on_comment(value, on);
                    if self.is_relay && !is_known {
                        return Err(strange());
                    }
                    None
                }
                _ if self.is_relay => return Err(strange()),
                _ => None,
            };
            if let Some(first) = first {
                if self.is_relay {
                    return Err(strange());
                }
                if field == b"data:" {
                    if self.joined.is_empty() {
                        self.joined.extend_from_slice(first);
                    }
                    self.joined.push(b'\n');
                    self.joined.extend_from_slice(value);
                }
            }
        }
        if !self.is_relay {
            match fields.data {
                Some(line) if self.joined.is_empty() => on(Said::Event(line, None)),
                Some(_) => on(Said::Event(&self.joined, None)),
                None => {}
            }
            return Ok(());
        }
        match (fields.data, fields.id, fields.name) {
            (Some(data), Some(id), Some(name)) if !is_comment => on(Said::Event(data, Some(Labels { id, name }))),
            (None, None, None) if is_comment => {}
            _ => return Err(strange()),
        }
        Ok(())
    }
}

/// Whether the contract has such a comment.
fn on_comment(comment: &[u8], on: &mut dyn FnMut(Said<'_>)) -> bool {
    let comment = std::str::from_utf8(comment).unwrap_or_default();
    match comment.split_once(' ').unwrap_or((comment, "")) {
        ("open", "") => on(Said::Open),
        ("dropped", count) if count.bytes().all(|byte| byte.is_ascii_digit()) => match count.parse() {
            Ok(count) => on(Said::Shed(count)),
            Err(_) => return false,
        },
        ("replay-exhausted", _) => on(Said::Exhausted),
        ("shutting-down", "") => on(Said::Goodbye("shutting-down")),
        ("ping" | "replay-complete", "") => {}
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::super::testing::{assert_said, said};
    use super::*;

    fn stream() -> Decoder {
        Decoder::EventStream(EventStream::new(true))
    }

    fn other() -> Decoder {
        Decoder::EventStream(EventStream::new(false))
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// A response with each text in a chunk of its own.
    fn chunks(texts: &[&str]) -> Vec<u8> {
        let body: String = texts.iter().map(|text| format!("{:x}\r\n{text}\r\n", text.len())).collect();
        format!("{HEAD}{body}").into_bytes()
    }

    #[test]
    fn events_and_comments_come_out_of_any_cut() {
        let input = chunks(&[
            ": open\n\n",
            "id: s:0:1\nevent: tool.output\ndata: {\"a\":1}\n\n",
            ": ping\n\n: dropped 12\n\nid: s:0:2\nevent: a.b\ndata: {}\n\n",
            ": replay-exhausted s 0:3\n\n: replay-complete\n\n",
            ": shutting-down\n\n",
        ]);
        let expected = [
            "open",
            "event {\"a\":1} of s:0:1 tool.output",
            "shed 12",
            "event {} of s:0:2 a.b",
            "exhausted",
            "goodbye shutting-down",
        ];
        assert_said(stream, &input, &expected);
    }

    #[test]
    fn what_is_not_to_the_letter_is_a_fault_of_a_relay() {
        for message in [
            "\n\n",
            "x\n\n",
            "data: {}\n\n",
            "id: s:0:1\ndata: {}\n\n",
            "id: s:0:1\nevent: a.b\n\n",
            "id: s:0:1\nevenu: a.b\ndata: {}\n\n",
            "id: s:0:1\nevent:a.b\ndata: {}\n\n",
            "id: s:0:1\nevent: a.b\ndata: {}\ndata: {}\n\n",
            "id: s:0:1\nevent: a.b\n: ping\ndata: {}\n\n",
            ": pinh\n\n",
            ":ping\n\n",
            ": dropped\n\n",
            ": dropped +1\n\n",
            ": open 1\n\n",
        ] {
            let (all, _, result) = said(stream(), &chunks(&[message]), 1000);
            assert!(result.is_err(), "{message:?}: {all:?}");
        }
    }

    #[test]
    fn messages_across_chunks_and_data_of_several_lines_are_joined() {
        let input = chunks(&["id: 7\ndata: on", "e\ndata: two\n", "\ndata:three\n\nda", "ta: four\n", "\n: hi\n\n"]);
        assert_said(other, &input, &["open", "event one\ntwo", "event three", "event four"]);
    }

    #[test]
    fn what_is_begun_is_known() {
        let input = chunks(&[": open\n\n", ": ping\n\n"]);
        let mut decoder = stream();
        let mut within = Vec::new();
        for byte in &input {
            decoder.feed(&[*byte], &mut Vec::new(), &mut |_| {}).unwrap();
            within.push(decoder.is_within());
        }
        let ends = within.iter().filter(|within| !**within).count();
        assert_eq!((ends, within.last()), (3, Some(&false)), "behind the head and behind each chunk");
    }

    #[test]
    fn a_refusal_says_its_status_and_words() {
        let input = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 24\r\n\r\n{\"error\":\"unauthorized\"}";
        assert_said(stream, input, &["refused 401 {\"error\":\"unauthorized\"}"]);
    }

    #[test]
    fn another_content_type_is_a_fault() {
        let (_, _, result) = said(stream(), b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", 1000);
        assert!(result.is_err());
    }
}
