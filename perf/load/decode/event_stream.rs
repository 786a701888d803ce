//! Server-sent events as a consumer reads them: a response whose body is messages of lines.
//!
//! Knows the fields an event has and the comments the relay sends; other fields are passed over, as the standard wants.

use memchr::{memchr, memmem};

use super::http::{Body, Head, HeadReader};
use super::{Fault, MESSAGE_BYTES_MAX, Said, beginning};

/// The decoder of one event stream.
#[derive(Debug)]
pub(crate) struct EventStream {
    /// Whether the head alone means subscribed; otherwise the comment `open` does.
    opens_with_head: bool,
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
    /// A decoder; `opens_with_head` for servers that do not say when the subscription stands.
    pub(crate) fn new(opens_with_head: bool) -> Self {
        let messages = Messages { pending: Vec::new(), joined: Vec::new() };
        Self { opens_with_head, state: State::Head(HeadReader::default()), messages }
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
        if self.opens_with_head {
            on(Said::Open);
        }
        Ok(State::Body(body))
    }
}

/// Messages out of a body's pieces.
#[derive(Debug)]
struct Messages {
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
            self.on_message(pending.get(..message_bytes).unwrap_or_default(), on);
            let behind = piece.len() - (pending.len() - message_bytes);
            rest = piece.get(behind..).unwrap_or_default();
            pending.clear();
            self.pending = pending;
        }
        while let Some(end) = memmem::find(rest, b"\n\n") {
            let (message, behind) = rest.split_at(end + 2);
            self.on_message(message, on);
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
    fn on_message(&mut self, mut message: &[u8], on: &mut dyn FnMut(Said<'_>)) {
        let mut data: Option<&[u8]> = None;
        self.joined.clear();
        while let Some(end) = memchr(b'\n', message) {
            let (line, behind) = message.split_at(end);
            message = behind.get(1..).unwrap_or_default();
            if let Some(value) = line.strip_prefix(b"data:") {
                let value = value.strip_prefix(b" ").unwrap_or(value);
                if let Some(first) = data.replace(value) {
                    if self.joined.is_empty() {
                        self.joined.extend_from_slice(first);
                    }
                    self.joined.push(b'\n');
                    self.joined.extend_from_slice(value);
                }
            } else if let Some(comment) = line.strip_prefix(b":") {
                on_comment(comment.trim_ascii(), on);
            }
        }
        match data {
            Some(line) if self.joined.is_empty() => on(Said::Event(line)),
            Some(_) => on(Said::Event(&self.joined)),
            None => {}
        }
    }
}

fn on_comment(comment: &[u8], on: &mut dyn FnMut(Said<'_>)) {
    let comment = std::str::from_utf8(comment).unwrap_or_default();
    match comment.split_once(' ').unwrap_or((comment, "")) {
        ("open", _) => on(Said::Open),
        ("dropped", count) => on(Said::Shed(count.parse().unwrap_or(0))),
        ("replay-exhausted", _) => on(Said::Exhausted),
        ("shutting-down", _) => on(Said::Goodbye("shutting-down")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::super::testing::{assert_said, said};
    use super::*;

    fn stream() -> Decoder {
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
            ": ping\n\n: dropped 12\n\ndata:{}\n\n",
            ": replay-exhausted s 0:3\n\n",
            ": shutting-down\n\n",
        ]);
        let expected = ["open", "event {\"a\":1}", "shed 12", "event {}", "exhausted", "goodbye shutting-down"];
        assert_said(stream, &input, &expected);
    }

    #[test]
    fn messages_across_chunks_and_data_of_several_lines_are_joined() {
        let input = chunks(&["data: on", "e\ndata: two\n", "\ndata: three\n\nda", "ta: four\n", "\n"]);
        assert_said(stream, &input, &["event one\ntwo", "event three", "event four"]);
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
