//! One event as the bytes that leave: framed for a binding, lowered to a ceiling, each form made at most once per event
//! and core (contract §5), whatever the number of consumers.

use crate::engine::service::{Lane, Outbox, Run};
use crate::wire::http1::chunk::StreamFraming;
use crate::wire::{sse, websocket};

use super::capture::{self, Lowered};
use super::event::{Capture, Event, Position};
use super::ownership::RelayMail;

/// How bytes reach a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// An event stream in HTTP chunks.
    Chunked,
    /// An event stream until the connection closes (HTTP/1.0).
    UntilClose,
    /// A WebSocket.
    WebSocket,
}

impl Binding {
    /// How an event stream's bytes are delimited; `None` for a WebSocket.
    #[must_use]
    pub fn stream_framing(self) -> Option<StreamFraming> {
        match self {
            Self::Chunked => Some(StreamFraming::Chunked),
            Self::UntilClose => Some(StreamFraming::UntilClose),
            Self::WebSocket => None,
        }
    }
}

const BINDINGS: usize = 3;
const CEILINGS: usize = 4;
/// Class runs of one (binding, ceiling) follow each other in one lane, so that a turn's events join.
const _: () = assert!(BINDINGS * CEILINGS <= crate::engine::service::LANES);

/// A lowered form of the present event.
#[derive(Debug, Default)]
struct Form {
    made: bool,
    /// Whether it differs from the event as received.
    rewritten: bool,
    bytes: Vec<u8>,
}

/// Makes frames; buffers are reused from event to event.
#[derive(Debug, Default)]
pub struct Frames {
    to_none: Form,
    to_metadata: Form,
    frame: Vec<u8>,
    runs: [[Option<Run>; CEILINGS]; BINDINGS],
}

impl Frames {
    /// A new event is to be framed: forget the last one.
    pub fn next_event(&mut self) {
        self.to_none.made = false;
        self.to_metadata.made = false;
        self.runs = [[None; CEILINGS]; BINDINGS];
    }

    /// The event in the core's lane of that binding and ceiling.
    pub fn run(
        &mut self,
        out: &mut dyn Outbox<RelayMail>,
        event: &Event<'_>,
        binding: Binding,
        ceiling: Capture,
    ) -> Run {
        let (row, column) = (binding as usize, ceiling as usize);
        if let Some(run) = self.runs[row][column] {
            return run;
        }
        let lane = Lane(u8::try_from(row * CEILINGS + column).unwrap_or(0));
        let run = out.write_run(lane, self.encode(event, binding, ceiling));
        self.runs[row][column] = Some(run);
        run
    }

    /// The event's frame, valid until the next call.
    fn encode(&mut self, event: &Event<'_>, binding: Binding, ceiling: Capture) -> &[u8] {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        self.append(&mut frame, event, binding, ceiling);
        self.frame = frame;
        &self.frame
    }

    /// Appends the event's frame to `out`.
    pub fn append(&mut self, out: &mut Vec<u8>, event: &Event<'_>, binding: Binding, ceiling: Capture) {
        let form = match ceiling {
            _ if event.capture() <= ceiling => None,
            Capture::None => Some((&mut self.to_none, Capture::None)),
            // A hop never mints the claim that text was redacted: full under redacted goes to metadata (§5).
            _ => Some((&mut self.to_metadata, Capture::Metadata)),
        };
        let data = match form {
            None => event.raw(),
            Some((form, target)) => {
                if !form.made {
                    form.bytes.clear();
                    form.rewritten = capture::lower(event, target, &mut form.bytes) != Lowered::Unchanged;
                    form.made = true;
                }
                if form.rewritten { &form.bytes } else { event.raw() }
            }
        };
        append_frame(out, binding, event.session().zip(event.position()), event.kind(), data);
    }
}

/// Appends the frame of an event's bytes to `out`. The id needs session and position.
pub fn append_frame(out: &mut Vec<u8>, binding: Binding, at: Option<(&str, Position)>, kind: &str, data: &[u8]) {
    match binding.stream_framing() {
        None => websocket::frame::encode_text(out, data),
        Some(framing) => {
            let id = at.map(|(session, Position { epoch, seq })| sse::EventId { session, epoch, seq });
            sse::encode_event(out, framing, id, kind, data);
        }
    }
}
