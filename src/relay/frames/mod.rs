//! One event as the bytes that leave: framed for a binding, lowered to a ceiling, each form made at most once per event
//! and core (contract §5), whatever the number of consumers. The lowered forms of a large event are prepared some at a
//! time, before it is delivered.

pub mod discovery;
pub mod message;

use crate::engine::service::{CoreId, Outbox, Run};
use crate::protocol::binding::{BINDINGS, Binding};
use crate::protocol::shares::ACTIVITY;
use crate::wire::sse::EventId;

use super::capture::{self, Lowered, Lowering};
use super::event::{Capture, Event, Position};

const CEILINGS: usize = 4;
/// Class runs of one (binding, ceiling) follow each other in one lane, so that a turn's events join.
const _: () = assert!(BINDINGS * CEILINGS == ACTIVITY.lanes());

/// A lowered form of the present event.
#[derive(Debug, Default)]
struct Form {
    made: bool,
    /// Whether it differs from the event as received.
    rewritten: bool,
    bytes: Vec<u8>,
    /// While it is being prepared.
    under_way: Option<Box<Lowering>>,
}

impl Form {
    fn forget(&mut self) {
        self.made = false;
        self.under_way = None;
    }
}

/// An event, by its owner and its arrival there.
pub type Arrived = (CoreId, u64);

/// Makes frames; buffers are reused from event to event.
#[derive(Debug, Default)]
pub struct Frames {
    to_none: Form,
    to_metadata: Form,
    frame: Vec<u8>,
    /// Whose forms are being prepared.
    prepared: Option<Arrived>,
    runs: [[Option<Run>; CEILINGS]; BINDINGS],
}

impl Frames {
    /// A new event is to be framed: forget the last one, unless this is the one that was prepared.
    pub fn next_event(&mut self, arrived: Option<Arrived>) {
        if self.prepared.take().is_none_or(|prepared| Some(prepared) != arrived) {
            self.to_none.forget();
            self.to_metadata.forget();
        }
        self.runs = [[None; CEILINGS]; BINDINGS];
    }

    /// Goes on with the form of an event that a ceiling allows. Answers whether there is nothing left to be done for
    /// it; the event is to be framed next.
    pub fn prepare(&mut self, arrived: Arrived, event: &Event<'_>, ceiling: Capture, budget: &mut usize) -> bool {
        if self.prepared != Some(arrived) {
            self.next_event(None);
            self.prepared = Some(arrived);
        }
        let Some((form, target)) = self.form(event, ceiling) else { return true };
        if !form.made {
            let mut lowering = form.under_way.take().unwrap_or_else(|| {
                form.bytes.clear();
                Box::new(Lowering::begin(event, target, &mut form.bytes))
            });
            form.made = lowering.walk(event, budget, &mut form.bytes);
            form.rewritten = true;
            form.under_way = (!form.made).then_some(lowering);
        }
        form.made
    }

    /// The form of an event that a ceiling allows, and its level, if that is not the event as received.
    fn form(&mut self, event: &Event<'_>, ceiling: Capture) -> Option<(&mut Form, Capture)> {
        match ceiling {
            _ if event.capture() <= ceiling => None,
            Capture::None => Some((&mut self.to_none, Capture::None)),
            // A hop never mints the claim that text was redacted: full under redacted goes to metadata (§5).
            _ => Some((&mut self.to_metadata, Capture::Metadata)),
        }
    }

    /// The event in the core's lane of that binding and ceiling.
    pub fn run(&mut self, out: &mut dyn Outbox, event: &Event<'_>, binding: Binding, ceiling: Capture) -> Run {
        let (row, column) = (binding.index(), ceiling as usize);
        if let Some(run) = self.runs[row][column] {
            return run;
        }
        let lane = ACTIVITY.lane(row * CEILINGS + column);
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
        let data = match self.form(event, ceiling) {
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
    let at = at.map(|(session, Position { epoch, seq })| (session, [epoch, seq]));
    let id = at.as_ref().map(|(text, numbers)| EventId { text, numbers });
    binding.append(out, id, kind, data);
}
