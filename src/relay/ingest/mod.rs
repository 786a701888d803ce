//! Events in: whole POST bodies, all or nothing, and single events of WebSockets, grouped by the core that owns their
//! session (contract §3, §4).
//!
//! A POST is a [`Job`]: first its lines are counted (`wire/ndjson.rs`), then every line is parsed, slice by slice and
//! each job in its turn, so that a large body stalls nobody; only then is it [`Ready`] and handed over, batch by batch
//! and again each in its turn, as fast as owners and consumers take it from its publisher. The 202 follows the
//! acknowledgement of every batch, and the evictions that these owe (`session_cap.rs`). A WebSocket's events are
//! collected during a turn and handed over at its end, or before the next message of any connection that must not
//! overtake them.
//!
//! Invariants: a job hands over nothing before its last line is valid; a POST once begun is admitted and settled to its
//! end, whether or not its connection is still there.

pub mod allowance;
mod batches;
pub mod publishing;
pub mod session_cap;

use std::collections::{HashMap, VecDeque};

use memchr::memchr;

use crate::engine::service::{ConnId, CoreId, Response};
use crate::protocol::barrier::Barrier;
use crate::wire::http1::answer::json_response;
use crate::wire::json::{JsonFault, JsonFaultKind};
use crate::wire::ndjson::{LINE_COST, LineCount, is_blank};

use super::LARGE_BYTES;
use super::error::{Code, Refusal};
use super::event::{Event, EventFault, Parser, Scope, SlicedParse};
use crate::relay::ingest::batches::Batches;
use crate::relay::ingest::session_cap::{Answer, Settlement};
use crate::relay::mail::claim::ClaimNote;
use crate::relay::mail::{OwnedBatch, OwnerInput, Receipt};
use crate::relay::shared::Shared;

/// Bytes of bodies parsed per turn; counting them and passing over blank lines has its share of that.
pub(in crate::relay) const PARSE_BYTES_PER_TURN: usize = 256 << 10;
/// Bytes of a body parsed before it is another one's turn.
const PARSE_BYTES_PER_JOB: usize = 32 << 10;
/// Jobs offered to their owners per turn, one batch for each owner at a time.
const OFFERS_PER_TURN: usize = 1024;

/// How a body holds its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// One JSON object.
    Single,
    /// One per line.
    Lines,
}

impl BodyKind {
    /// Bytes of the first line, without and with its end.
    fn first_line(self, body: &[u8]) -> (usize, usize) {
        let end = if self == Self::Lines { memchr(b'\n', body) } else { None };
        end.map_or((body.len(), body.len()), |end| (end, end + 1))
    }
}

/// Takes a publisher's batch for an owner, or gives it back.
pub type Offer<'a> = dyn FnMut(ConnId, CoreId, Box<OwnedBatch>) -> Option<Box<OwnedBatch>> + 'a;

/// A POST being parsed.
#[derive(Debug)]
struct Job {
    number: u64,
    conn: ConnId,
    body: Vec<u8>,
    kind: BodyKind,
    /// The first look at the body, until it is through.
    count: Option<LineCount>,
    /// Bytes of the body parsed.
    at: usize,
    /// Lines parsed.
    line: u64,
    /// The line being parsed, if that is a large one.
    large: Option<LargeLine>,
    batches: Batches,
}

/// A POST on its way to the owners.
#[derive(Debug)]
struct Ready {
    conn: ConnId,
    batches: Batches,
}

/// A line that takes several turns.
#[derive(Debug)]
struct LargeLine {
    bytes: usize,
    /// With its end.
    taken: usize,
    parse: SlicedParse,
}

/// A POST whose batches are not all acknowledged.
#[derive(Debug)]
struct WaitingPost {
    conn: ConnId,
    missing: usize,
    accepted: u32,
    owed: usize,
}

/// What a turn of parsing came to.
#[derive(Debug)]
pub struct Parsed {
    /// Answers to what is refused.
    pub refused: Vec<(ConnId, Code, Response)>,
    /// Bytes of the largest line.
    pub largest: usize,
}

/// The ingest of one core.
#[derive(Debug)]
pub struct Ingest {
    jobs: VecDeque<Job>,
    ready: VecDeque<Ready>,
    next_job: u64,
    /// By the number of the job.
    waiting: HashMap<u64, WaitingPost>,
    /// This turn's events of WebSockets.
    live: Batches,
    /// The events of WebSockets handed over before.
    barrier: Barrier<Settlement>,
}

impl Ingest {
    /// The ingest of a core among `cores`.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self {
            jobs: VecDeque::new(),
            ready: VecDeque::new(),
            next_job: 0,
            waiting: HashMap::new(),
            live: Batches::new(cores),
            barrier: Barrier::new(cores),
        }
    }

    /// Whether everything taken in is admitted.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
            && self.ready.is_empty()
            && self.waiting.is_empty()
            && self.live.is_empty()
            && self.barrier.is_idle()
    }

    /// Whether there is something to parse.
    #[must_use]
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether there is something to hand over, were there room.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Bytes of this turn's events of WebSockets.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.live.bytes()
    }

    /// Takes a body in.
    pub fn begin(&mut self, shared: &Shared, conn: ConnId, kind: BodyKind, body: Vec<u8>) {
        let number = self.next_job;
        self.next_job += 1;
        self.jobs.push_back(Job {
            number,
            conn,
            body,
            kind,
            count: Some(LineCount::default()),
            at: 0,
            line: 0,
            large: None,
            batches: Batches::new(shared.owners.cores()),
        });
    }

    /// Parses a turn's worth of bodies.
    pub fn parse(&mut self, shared: &Shared, parser: &mut Parser) -> Parsed {
        let mut budget = PARSE_BYTES_PER_TURN;
        let (mut refused, mut largest) = (Vec::new(), 0);
        while budget > 0
            && let Some(mut job) = self.jobs.pop_front()
        {
            let given = budget.min(PARSE_BYTES_PER_JOB);
            let (mut left, begun) = (given, job.at);
            let parsed = job.parse(shared, parser, &mut left, &mut largest);
            // The last line may be longer than what was left.
            budget = budget.saturating_sub((given - left).max(job.at - begun));
            match parsed {
                Ok(Some(waiting)) => {
                    // Before anything is handed over: the first owner may acknowledge before the last one is reached.
                    self.waiting.insert(job.number, waiting);
                    self.ready.push_back(Ready { conn: job.conn, batches: job.batches });
                }
                Ok(None) => self.jobs.push_back(job),
                Err(refusal) => refused.push((job.conn, refusal.code, refusal.response(Vec::new()))),
            }
        }
        Parsed { refused, largest }
    }

    /// Offers batches to their owners, round after round, until none is taken in a whole one. `offer` is handed the
    /// publisher, the owner and the batch; what it gives back keeps its place.
    pub fn hand_over(&mut self, offer: &mut Offer<'_>) {
        let mut refused = 0;
        for _ in 0..OFFERS_PER_TURN {
            if refused >= self.ready.len() {
                return;
            }
            let Some(mut job) = self.ready.pop_front() else { return };
            let taken = job.batches.offer_each(|owner, batch| offer(job.conn, owner, batch));
            refused = if taken { 0 } else { refused + 1 };
            if !job.batches.is_empty() {
                self.ready.push_back(job);
            }
        }
    }

    /// An owner has admitted a batch, and created so many sessions over the cap. With the last batch of a POST, what it
    /// leaves to do.
    pub fn admitted(&mut self, owner: CoreId, receipt: Receipt, owed: usize) -> Option<Settlement> {
        let Receipt::Post(job) = receipt else {
            self.barrier.acknowledged(usize::from(owner.0));
            self.owe(owed);
            return None;
        };
        let waiting = self.waiting.get_mut(&job)?;
        waiting.owed += owed;
        waiting.missing -= 1;
        if waiting.missing > 0 {
            return None;
        }
        let WaitingPost { conn, accepted, owed, .. } = self.waiting.remove(&job)?;
        let response = json_response(202, Vec::new(), format!("{{\"accepted\":{accepted}}}").into_bytes());
        Some(Settlement { owed, answer: Some(Answer::Published(conn, response)) })
    }

    /// Evictions are owed, to be made when everything handed over so far is admitted. Beside one waiting connection
    /// each there are at most two more that wait for evictions alone.
    fn owe(&mut self, owed: usize) {
        if owed == 0 {
            return;
        }
        let joined = self.barrier.join_last(|last| {
            if last.answer.is_some() {
                return false;
            }
            last.owed += owed;
            true
        });
        if !joined {
            self.barrier.wait(Settlement { owed, answer: None });
        }
    }

    /// A command has created so many sessions over the cap.
    pub fn command_admitted(&mut self, owed: usize) {
        self.owe(owed);
    }

    /// A WebSocket gets this frame when all that was handed over before is admitted and settled.
    pub fn answer_behind_live(&mut self, conn: ConnId, frame: Vec<u8>) {
        self.barrier.wait(Settlement { owed: 0, answer: Some(Answer::Frame(conn, frame)) });
    }

    /// What admitted events of WebSockets leave to do.
    pub fn take_live_settlement(&mut self) -> Option<Settlement> {
        self.barrier.take()
    }

    /// Takes one event of a WebSocket; `claim` comes with its index filled in.
    pub fn push_live(&mut self, shared: &Shared, event: Event<'_>, claim: Option<ClaimNote>) {
        self.live.push(shared, event, claim);
    }

    /// Hands over what WebSockets have sent this turn.
    pub fn flush_live(&mut self, shared: &Shared, take: &mut dyn FnMut(CoreId, OwnerInput)) {
        if self.live.is_empty() {
            return;
        }
        self.live.seal(shared, Receipt::Live);
        for (owner, batch) in self.live.drain() {
            self.barrier.hand_over(usize::from(owner.0));
            take(owner, OwnerInput::Events(batch));
        }
    }
}

impl Job {
    /// Counts on; whether the body holds as many events as it may.
    fn count(&mut self, events_max: usize, budget: &mut usize) -> Result<bool, Refusal> {
        let Some(count) = &mut self.count else { return Ok(true) };
        let enough = match self.kind {
            BodyKind::Single => 1,
            BodyKind::Lines => events_max.saturating_add(1),
        };
        match count.walk(&self.body, enough, budget) {
            None => return Ok(false),
            Some(0) => {
                let empty = Refusal::new(Code::InvalidJson, "the body holds no event");
                return Err(Refusal { line: Some(1), ..empty });
            }
            Some(lines) if lines > events_max => {
                let detail = format!("AEP_MAX_BATCH: more than {events_max} events in one batch");
                return Err(Refusal::new(Code::TooManyEvents, detail));
            }
            Some(_) => {}
        }
        self.count = None;
        Ok(true)
    }

    /// Parses on; with the last line, returns what the answer waits for.
    fn parse(
        &mut self,
        shared: &Shared,
        parser: &mut Parser,
        budget: &mut usize,
        largest: &mut usize,
    ) -> Result<Option<WaitingPost>, Refusal> {
        if !self.count(shared.limits.batch_events_max, budget)? {
            return Ok(None);
        }
        while self.at < self.body.len() && *budget > 0 {
            let rest = self.body.get(self.at..).unwrap_or_default();
            let mut large = self.large.take();
            let (bytes, taken) = match &large {
                Some(line) => (line.bytes, line.taken),
                None => self.kind.first_line(rest),
            };
            let line = rest.get(..bytes).unwrap_or_default();
            let number = self.line + 1;
            let parsed = if bytes < LARGE_BYTES {
                *budget = budget.saturating_sub(taken + LINE_COST);
                if is_blank(line) { Err(BLANK) } else { parser.parse(line) }
            } else {
                let LargeLine { parse, .. } =
                    large.get_or_insert_with(|| LargeLine { bytes, taken, parse: SlicedParse::default() });
                match parse.walk(line, budget) {
                    Ok(false) => {
                        self.large = large;
                        break;
                    }
                    Ok(true) => parser.finish(line, parse),
                    Err(fault) => Err(fault),
                }
            };
            self.at += taken;
            self.line = number;
            *largest = taken.max(*largest);
            match parsed {
                Ok(event) if event.scope() == Scope::Command => {
                    let detail = "commands need a duplex binding: send them over /socket";
                    let refusal = Refusal::new(Code::ControlRequiresDuplex, detail);
                    return Err(Refusal { line: Some(self.line), ..refusal });
                }
                Ok(event) => self.batches.push(shared, event, None),
                Err(EventFault::Json(JsonFault { kind: JsonFaultKind::Empty, .. })) => {}
                Err(fault) => return Err(refusal_of(&fault, self.line)),
            }
        }
        Ok((self.at == self.body.len()).then(|| self.seal(shared)))
    }

    /// Every line is valid: what the answer waits for.
    fn seal(&mut self, shared: &Shared) -> WaitingPost {
        self.body = Vec::new();
        let missing = self.batches.seal(shared, Receipt::Post(self.number));
        WaitingPost { conn: self.conn, missing, accepted: self.batches.events(), owed: 0 }
    }
}

/// What parsing a line of white space comes to.
const BLANK: EventFault = EventFault::Json(JsonFault { kind: JsonFaultKind::Empty, at: 0 });

fn refusal_of(fault: &EventFault, line: u64) -> Refusal {
    let code = match fault {
        EventFault::Json(_) => Code::InvalidJson,
        EventFault::NotAnObject | EventFault::Undotted | EventFault::Invalid { .. } => Code::InvalidEvent,
    };
    Refusal { line: Some(line), ..Refusal::new(code, fault.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debts_join_those_before_them_and_no_answer() {
        let mut ingest = Ingest::new(1);
        ingest.barrier.hand_over(0);
        let conn = ConnId { slot: 1, generation: 0 };
        ingest.owe(1);
        ingest.owe(2);
        ingest.owe(3);
        ingest.answer_behind_live(conn, Vec::new());
        ingest.owe(0);
        ingest.owe(4);
        assert_eq!(ingest.take_live_settlement(), None, "nothing is admitted");
        ingest.barrier.acknowledged(0);
        let answer = Some(Answer::Frame(conn, Vec::new()));
        for (owed, answer) in [(1, None), (5, None), (0, answer), (4, None)] {
            assert_eq!(ingest.take_live_settlement(), Some(Settlement { owed, answer }));
        }
        assert!(ingest.is_idle());
    }
}
