//! The owner of this core's sessions: the single writer of their buffers and the one place that orders their events
//! (contract §3, §7).
//!
//! Inputs wait in one FIFO, so what one connection sent is acted on in its order. An input either completes, or is
//! *held*: the byte budget needs the eviction of a session that lives on another core. While held nothing behind it is
//! acted on; evictions asked of this core are answered at once all the same, so two owners that wait for each other go
//! on. A session over the session cap holds nobody: it is counted, and told to the core that took the batch in
//! (`ingest/session_cap.rs`).
//!
//! Effects come out as mails in order ([`Owner::take_effect`]); `mod.rs` hands them to this core's own reader or sends
//! them. The owner knows no socket and no subscription, only cores and what they are interested in.
//!
//! Invariant: the published oldest tick is that of the directory's oldest session, and is published before the number
//! of sessions changes: who finds a session counted finds its tick.

pub mod claims;
pub mod directory;
pub mod replay;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::segment_pool::SegmentPool;
use crate::engine::service::{Admits, ConnId, CoreId};
use crate::ops::metrics::{CommandOutcome, CoreMetrics, EvictionCause};
use crate::protocol::owners::CoreMask;

use super::buffer::{Admission, NewEvent};
use super::error::Code;
use super::event::{Event, Parser};
use crate::relay::event::Batch;
use crate::relay::filter::Filter;
use crate::relay::filter::index::Index;
use crate::relay::mail::claim::ClaimNote;
use crate::relay::mail::claim::Claimant;
use crate::relay::mail::page::{PageItem, PageRequest, SessionNote};
use crate::relay::mail::{Command, Fanout, OwnedBatch, OwnerInput, RelayMail, Routed, SubRef};
use crate::relay::owner::claims::{Claimants, Claims};
use crate::relay::owner::directory::{Directory, SessionId};
use crate::relay::shared::Shared;

/// Events admitted in one go before the turn moves on to its flush; few in tests, so that the simulation meets its
/// edges.
const EVENTS_PER_TURN: usize = if cfg!(test) { 8 } else { 512 };
/// Page requests served in one go.
const PAGES_PER_TURN: usize = if cfg!(test) { 4 } else { 16 };
/// Bytes of events looked at in one go for all page requests together, whoever they are from; those that are left come
/// first next time.
const SCAN_BYTES_PER_TURN: usize = if cfg!(test) { replay::SCAN_BYTES } else { 8 * replay::SCAN_BYTES };

/// Where an effect goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// One core.
    Core(CoreId),
    /// All of these.
    Cores(CoreMask),
}

/// Whether an input came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerStep {
    Done,
    Held,
}

/// The owner has to wait for another core's answer to its [`RelayMail::Evict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held;

/// What one run has come to.
#[derive(Debug, Default)]
struct Spent {
    events: usize,
    bytes: usize,
    pages: usize,
    /// Bytes of events looked at for pages.
    scanned: usize,
    /// Bytes of the largest batch or page.
    largest: usize,
}

impl Spent {
    fn leaves_some(&self, bytes_max: usize) -> bool {
        self.events < EVENTS_PER_TURN
            && self.bytes < bytes_max
            && self.pages < PAGES_PER_TURN
            && self.scanned < SCAN_BYTES_PER_TURN
    }
}

/// A batch being admitted.
#[derive(Debug)]
struct Current {
    from: CoreId,
    batch: Box<OwnedBatch>,
    next: usize,
    /// Sessions it has created over the cap.
    owed: usize,
    notes: Vec<SessionNote>,
    interested: CoreMask,
}

/// A command whose target's core has been asked to take it.
#[derive(Debug)]
struct HandedOver {
    batch: Batch,
    tick: u64,
    routed: Routed,
}

/// The owner role of one core.
#[derive(Debug)]
pub struct Owner {
    core: CoreId,
    shared: Arc<Shared>,
    directory: Directory,
    claims: Claims,
    interest: Index<CoreId>,
    inputs: VecDeque<(CoreId, OwnerInput)>,
    waiting_bytes: usize,
    current: Option<Current>,
    held: bool,
    arrival: u64,
    handed_over: HashMap<u64, HandedOver>,
    next_token: u64,
    effects: VecDeque<(Destination, RelayMail)>,
    metrics: Arc<CoreMetrics>,
}

impl Owner {
    /// The owner role of `core`.
    #[must_use]
    pub fn new(core: CoreId, shared: Arc<Shared>, metrics: Arc<CoreMetrics>) -> Self {
        Self {
            core,
            directory: Directory::new(
                SegmentPool::new(Arc::clone(&shared.replay_budget)),
                shared.limits.buffer_events_max,
                shared.owners.cores(),
            ),
            shared,
            claims: Claims::default(),
            interest: Index::default(),
            inputs: VecDeque::new(),
            waiting_bytes: 0,
            current: None,
            held: false,
            arrival: 0,
            handed_over: HashMap::new(),
            next_token: 0,
            effects: VecDeque::new(),
            metrics,
        }
    }

    /// Takes an input; it is acted on by [`Owner::run`].
    pub fn push(&mut self, from: CoreId, input: OwnerInput) {
        self.waiting_bytes += input.weight();
        self.inputs.push_back((from, input));
    }

    /// What there is room for beside inputs not begun yet and so many bytes more: a stage in all.
    #[must_use]
    pub fn room(&self, more: usize) -> Admits {
        Admits::of(self.waiting_bytes + more, self.shared.limits.stage_bytes())
    }

    /// The next effect, in order.
    pub fn take_effect(&mut self) -> Option<(Destination, RelayMail)> {
        self.effects.pop_front()
    }

    /// Whether nothing waits here: no input, no hold, no command under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.inputs.is_empty() && self.current.is_none() && self.handed_over.is_empty()
    }

    /// Whether there is something that [`Owner::run`] could go on with.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.held && (self.current.is_some() || !self.inputs.is_empty())
    }

    /// Acts on inputs until none is left, the budget of a turn is spent, or one is held. Returns the bytes of the
    /// largest batch or page.
    pub fn run(&mut self, parser: &mut Parser) -> usize {
        let mut spent = Spent::default();
        let bytes_max = self.shared.limits.stage_bytes();
        while !self.held && spent.leaves_some(bytes_max) {
            if let Some(current) = self.current.take() {
                self.admit_on(current, &mut spent);
                continue;
            }
            let Some((from, input)) = self.inputs.pop_front() else { break };
            self.waiting_bytes -= input.weight();
            match input {
                OwnerInput::Events(batch) => self.begin(from, batch),
                OwnerInput::Command(command) => self.route(from, *command),
                OwnerInput::HandedOver { token, taken } => self.handed_over(token, taken),
                OwnerInput::Register { sub, interest } => self.register(from, sub, interest.as_deref()),
                OwnerInput::Withdraw { interest } => self.withdraw(from, &interest),
                OwnerInput::ReadPage(request) => self.read_page(parser, from, *request, &mut spent),
                OwnerInput::Unclaim { conn, sessions } => {
                    spent.events += sessions.len();
                    for session in sessions {
                        self.claims.end(&session, (from, conn));
                    }
                }
            }
        }
        spent.largest
    }

    /// Goes on with a batch; it is finished, or kept until it is held no more.
    fn admit_on(&mut self, mut current: Current, spent: &mut Spent) {
        let begun = current.next;
        let step = self.admit(&mut current);
        spent.events += current.next - begun;
        match step {
            OwnerStep::Held => self.current = Some(current),
            OwnerStep::Done => {
                let weight = current.batch.batch.weight();
                spent.bytes += weight;
                spent.largest = weight.max(spent.largest);
                self.finish(current);
            }
        }
    }

    /// Registers a subscription of that core, and what the core is interested in from now on.
    fn register(&mut self, from: CoreId, sub: SubRef, interest: Option<&Filter>) {
        if let Some(filter) = interest
            && self.shared.owners.cores() > 1
        {
            self.interest.insert(filter, from);
        }
        let arrival = self.arrival;
        self.effects.push_back((Destination::Core(from), RelayMail::Registered { sub, arrival }));
    }

    fn withdraw(&mut self, from: CoreId, interest: &Filter) {
        if self.shared.owners.cores() > 1 {
            self.interest.remove(interest, from);
        }
    }

    fn read_page(&mut self, parser: &mut Parser, from: CoreId, request: PageRequest, spent: &mut Spent) {
        let page = replay::read(&mut self.directory, parser, self.arrival, self.shared.limits.page_bytes(), request);
        spent.pages += 1;
        spent.scanned += page.scanned;
        spent.largest = page.scanned.max(spent.largest);
        let unknown = page.items.iter().filter(|item| matches!(item, PageItem::Unknown { .. })).count();
        if unknown > 0 {
            self.shared.judgements.fetch_add(unknown, Ordering::Relaxed);
        }
        self.effects.push_back((Destination::Core(from), RelayMail::Page(Box::new(page))));
    }

    fn begin(&mut self, from: CoreId, batch: Box<OwnedBatch>) {
        self.current =
            Some(Current { from, batch, next: 0, owed: 0, notes: Vec::new(), interested: CoreMask::of(self.core) });
    }

    /// Admits the rest of a batch, in order.
    fn admit(&mut self, current: &mut Current) -> OwnerStep {
        let judged = self.shared.judgements.load(Ordering::Relaxed) > 0;
        let many = self.shared.owners.cores() > 1;
        let Current { from, batch: owned, next, owed, notes, interested } = current;
        while *next < owned.batch.len() {
            let index = *next;
            let event = owned.batch.event(index);
            if many {
                self.interest.candidates(&event, &mut |core: CoreId| interested.insert(core));
            }
            let ordinal = owned.ordinals.get(index).map_or(index as u64, |ordinal| u64::from(*ordinal));
            let mut note = SessionNote::default();
            match event.session() {
                Some(session) => match self.write(session, &event, owned.first_tick + ordinal, owed) {
                    Ok(written) => note = written,
                    Err(Held) => {
                        self.held = true;
                        return OwnerStep::Held;
                    }
                },
                None => self.arrival += 1,
            }
            self.metrics.events_in.increment();
            if judged {
                // Judging may have begun after this batch did.
                notes.resize(index, SessionNote::default());
                notes.push(note);
            }
            self.claim(*from, &owned.claims, index, &event);
            *next += 1;
        }
        OwnerStep::Done
    }

    /// Makes or ends the claims that come with the event at `index`.
    fn claim(&mut self, from: CoreId, notes: &[ClaimNote], index: usize, event: &Event<'_>) {
        let Some(session) = event.session() else { return };
        let first = notes.partition_point(|note| (note.event as usize) < index);
        for note in notes.iter().skip(first).take_while(|note| note.event as usize == index) {
            let at = (from, note.conn);
            match &note.begins {
                Some((name, control)) => self.claims.begin(name, Claimant { at, control: control.clone() }),
                None => self.claims.end(session, at),
            }
        }
    }

    /// Writes one event into its session's buffer, evicting what must go for its bytes.
    fn write(&mut self, session: &str, event: &Event<'_>, tick: u64, owed: &mut usize) -> Result<SessionNote, Held> {
        let new = NewEvent {
            raw: event.raw(),
            position: event.position(),
            fingerprint: event.fingerprint(),
            arrival: self.arrival + 1,
            outline: event.outline(),
        };
        let written = loop {
            match self.directory.write(session, &new, tick) {
                Ok(written) => break written,
                Err(_) if self.make_room(session, event.raw().len())? => {}
                // Nothing is left to evict: the event is larger than all there is. It is fanned out all the same.
                Err(_) => break self.directory.write_unkept(session, &new, tick),
            }
        };
        self.arrival += 1;
        if written.admission == Admission::Duplicate {
            self.metrics.duplicates.increment();
        }
        self.publish();
        if written.created && self.shared.session_created() {
            *owed += 1;
        }
        let buffer = written.session.and_then(|session| self.directory.buffer(session));
        Ok(buffer.map_or_else(SessionNote::default, |buffer| SessionNote {
            lowest: buffer.marks().lowest_admitted(),
            earliest: buffer.earliest(),
        }))
    }

    /// Tells the other cores and the metrics what is held now.
    fn publish(&self) {
        self.metrics.sessions.set(self.directory.len() as u64);
        self.metrics.replay_bytes.set(self.directory.held_bytes() as u64);
        self.shared.publish_oldest(self.core, self.directory.oldest().map(|(tick, _)| tick));
    }

    /// Makes room in the byte budget: the least recently written sessions go whole; if only the writer's is left, its
    /// lowest positions. Whether anything went.
    fn make_room(&mut self, writer: &str, needed: usize) -> Result<bool, Held> {
        let writer = self.directory.session(writer);
        let here = match writer {
            Some(writer) => self.directory.oldest_except(writer),
            None => self.directory.oldest(),
        };
        if let Some(session) = self.least_recent(here)? {
            self.evict(session, EvictionCause::Bytes);
            return Ok(true);
        }
        Ok(writer.is_some_and(|writer| self.directory.trim_lowest(writer, needed) > 0))
    }

    /// Of `here` and the other cores' oldest: `here` if it is the least recently written; otherwise its core is asked
    /// to evict it.
    fn least_recent(&mut self, here: Option<(u64, SessionId)>) -> Result<Option<SessionId>, Held> {
        let elsewhere = self.shared.oldest_elsewhere(self.core);
        match (here, elsewhere) {
            (Some((tick, session)), Some((_, other))) if tick < other => Ok(Some(session)),
            (Some((_, session)), None) => Ok(Some(session)),
            (_, Some((core, tick))) => {
                let mail = RelayMail::Evict { tick, cause: EvictionCause::Bytes };
                self.effects.push_back((Destination::Core(core), mail));
                Err(Held)
            }
            (None, None) => Ok(None),
        }
    }

    fn evict(&mut self, session: SessionId, cause: EvictionCause) {
        self.metrics.sessions_evicted.increment(cause);
        self.directory.evict(session);
        self.publish();
        match cause {
            EvictionCause::Bytes => self.shared.session_evicted(),
            // Who claimed the eviction has counted the session as gone already.
            EvictionCause::Sessions => {}
        }
    }

    /// Evicts the oldest session if it still bears `tick`; whether it did.
    pub fn evict_oldest_if(&mut self, tick: u64, cause: EvictionCause) -> bool {
        match self.directory.oldest() {
            Some((oldest, session)) if oldest == tick => {
                self.evict(session, cause);
                true
            }
            _ => false,
        }
    }

    /// Another core needs our oldest session gone, if it still bears `tick`.
    pub fn on_evict(&mut self, from: CoreId, tick: u64, cause: EvictionCause) {
        let done = self.evict_oldest_if(tick, cause);
        self.effects.push_back((Destination::Core(from), RelayMail::EvictAnswered { cause, done }));
    }

    /// The core we asked to evict for our bytes has answered; whichever way it went, we look again.
    pub fn on_evict_answered(&mut self) {
        self.held = false;
    }

    /// A batch is admitted: fan it out, then acknowledge it.
    fn finish(&mut self, current: Current) {
        let Current { from, batch, owed, notes, interested, .. } = current;
        let OwnedBatch { batch, acknowledge, routed, .. } = *batch;
        let except = routed.map(|routed| routed.target);
        let fanout = Fanout { owner: self.core, batch, arrival: self.arrival, notes, except };
        self.effects.push_back((Destination::Cores(interested), RelayMail::Fanout(Arc::new(fanout))));
        if let Some(Routed { sender: (core, conn), .. }) = routed {
            let mail = RelayMail::CommandAnswer { conn, refused: None, owed };
            self.effects.push_back((Destination::Core(core), mail));
        }
        if let Some(receipt) = acknowledge {
            self.effects.push_back((Destination::Core(from), RelayMail::Admitted { receipt, owed }));
        }
    }

    /// Finds a command's only claimant and asks its core to take it (§7).
    fn route(&mut self, from: CoreId, command: Command) {
        let Command { batch, tick, sender } = command;
        if batch.is_empty() {
            return;
        }
        let event = batch.event(0);
        let refused = match self.claims.of(event.session().unwrap_or_default()) {
            Claimants::None => Err((Code::NoRoute, NO_CLAIMANT)),
            Claimants::Several => Err((Code::Ambiguous, SEVERAL_CLAIMANTS)),
            Claimants::Only(claimant) if claimant.control.accepts(event.kind()) => Ok(claimant.at),
            Claimants::Only(_) => Err((Code::Unsupported, NOT_ACCEPTED)),
        };
        match refused {
            Ok(target) => {
                let token = self.next_token;
                self.next_token += 1;
                let copy = Arc::new(batch.clone());
                let routed = Routed { sender: (from, sender), target };
                self.handed_over.insert(token, HandedOver { batch, tick, routed });
                let mail = RelayMail::Handover { token, target: target.1, command: copy };
                self.effects.push_back((Destination::Core(target.0), mail));
            }
            Err((code, detail)) => self.refuse(&batch, (from, sender), code, detail),
        }
    }

    fn refuse(&mut self, batch: &Batch, sender: (CoreId, ConnId), code: Code, detail: &'static str) {
        self.metrics.commands.increment(match code {
            Code::Ambiguous => CommandOutcome::Ambiguous,
            Code::Unsupported => CommandOutcome::Unsupported,
            _ => CommandOutcome::NoRoute,
        });
        let id = batch.event(0).id().into();
        let mail = RelayMail::CommandAnswer { conn: sender.1, refused: Some((id, code, detail)), owed: 0 };
        self.effects.push_back((Destination::Core(sender.0), mail));
    }

    /// The target's queue has the command, or could not take it. Only now does it enter the history, ahead of
    /// anything the target answers: that comes behind this message, from the same core.
    fn handed_over(&mut self, token: u64, taken: bool) {
        let Some(HandedOver { batch, tick, routed }) = self.handed_over.remove(&token) else { return };
        if !taken {
            self.refuse(&batch, routed.sender, Code::NoRoute, TARGET_GONE);
            return;
        }
        self.metrics.commands.increment(CommandOutcome::Routed);
        let owned = OwnedBatch { batch, first_tick: tick, routed: Some(routed), ..OwnedBatch::default() };
        self.begin(routed.target.0, Box::new(owned));
    }

    #[cfg(test)]
    pub(in crate::relay) fn check_invariants(&self) {
        let waiting: usize = self.inputs.iter().map(|(_, input)| input.weight()).sum();
        assert_eq!(self.waiting_bytes, waiting);
        assert!(!self.held || self.current.is_some(), "only a batch is held");
    }

    #[cfg(test)]
    pub(in crate::relay) fn check_empty(&self) {
        assert!(self.is_idle() && !self.held && self.effects.is_empty());
        assert!(self.claims.is_empty(), "claims left");
        assert!(self.interest.is_empty(), "interests left");
    }
}

const NO_CLAIMANT: &str = "no live connection claims this session";
const SEVERAL_CLAIMANTS: &str = "several live connections claim this session";
const NOT_ACCEPTED: &str = "the claimant does not declare this command in control.accepts";
const TARGET_GONE: &str = "the claimant's connection could not take the command";

#[cfg(test)]
mod tests;
