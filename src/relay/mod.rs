//! The activity relay of one core: a state machine over parsed input (contract §2–§9).
//!
//! Three roles live on every core and talk only by messages, so that one core is the case of many with short ways:
//! [`ingest`] takes events in, the [`owner`] orders those of its sessions, the [`reader`] delivers to its consumers.
//! [`Relay`] hears the gateway, carries what the roles have for one another, and keeps the WebSocket parties.
//!
//! Knows the seam, not the engine: no socket, no clock, no file. Routes, authentication and CORS are the gateway's.
//!
//! The order inside [`Relay::on_turn`] is the life of an event: parse → hand over → admit → fan out → push runs →
//! settle the session cap → 202.

pub mod buffer;
pub mod capture;
pub mod endpoints;
pub mod error;
pub mod event;
pub mod fault;
pub mod filter;
pub mod frames;
pub mod ingest;
pub mod mail;
pub mod owner;
pub mod party;
pub mod reader;
pub mod shared;
#[cfg(test)]
mod simulation;
pub mod stream;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::time::Now;
use crate::engine::service::{
    Admits, ConnId, CoreId, Ending, EventStreamOpen, Mail, Outbox, Post, WebSocketClose, Work,
};
use crate::ops::metrics::{CoreMetrics, EvictionCause, RejectionCode};
use crate::protocol::binding::Binding;
use crate::protocol::by_conn::ByConn;
use crate::protocol::gather::{Gatherings, NextAsk};
use crate::protocol::inflow::{Inflow, Pace};
use crate::protocol::shares::ACTIVITY;
use crate::wire::http1::answer::json_response;
use crate::wire::http1::chunk::StreamFraming;
use crate::wire::websocket::close::CloseCode;

use crate::relay::frames::message;
use crate::relay::ingest::allowance::Allowances;
use crate::relay::ingest::session_cap::{Answer, CapStep, SessionCap, Settlement};
pub use crate::relay::mail::RelayMail;
use crate::relay::mail::list::Ask;
use crate::relay::mail::{Command, OwnerInput};
use crate::relay::party::claimed::ClaimedSessions;
use crate::relay::party::hello::Party;
use crate::relay::party::listing::Listings;
use crate::relay::party::roster::{Asker, Listed};
use crate::relay::party::socket::LargeMessage;
use crate::relay::reader::fanout::Delivery;
use crate::relay::reader::slow_consumer::REASON_SHUTDOWN;
pub use crate::relay::shared::Shared;
use error::Code;
use event::Parser;
use ingest::{BodyKind, Ingest, Parsed};
use owner::{Destination, Owner};
use reader::{Reader, Wanted};
use stream::AskBounds;

/// Looks at subscriptions served singly that one turn has for events; few in tests, so that the simulation meets its
/// edges.
const LOOKS_PER_TURN: usize = if cfg!(test) { 24 } else { 32 << 10 };

/// Events from this size on have a turn of their own at each station.
const LARGE_BYTES: usize = if cfg!(test) { 2 << 10 } else { 1 << 20 };

/// Settlements gone on with in one go before the turn moves on to its flush.
const SETTLEMENTS_PER_TURN: usize = 512;

/// Claims of connections that are over ended in one go; few in tests, so that the simulation meets its edges.
const CLAIMS_ENDED_PER_TURN: usize = if cfg!(test) { 2 } else { 4096 };

/// The activity relay of one core.
#[derive(Debug)]
pub struct Relay {
    core: CoreId,
    shared: Arc<Shared>,
    parser: Parser,
    ingest: Ingest,
    allowances: Allowances,
    session_cap: SessionCap,
    owner: Owner,
    inflow: Inflow<RelayMail>,
    reader: Reader,
    parties: ByConn<Party>,
    gatherings: Gatherings<Listed>,
    listings: Listings,
    metrics: Arc<CoreMetrics>,
    /// Large messages of WebSockets, first to last.
    messages: VecDeque<LargeMessage>,
    /// WebSockets not read on until there is room for events again.
    parked: Vec<ConnId>,
    /// Connections that are over or cut, with claims that are still to be ended.
    over: VecDeque<(ConnId, ClaimedSessions)>,
    /// Claims that lapsed in this turn, to be ended behind the events that displaced them.
    lapsed: Vec<(ConnId, Arc<str>)>,
    /// Commands of this turn, to be sent behind the mail that had come before they were read: what their senders have
    /// seen of other connections, claims above all, is then with the owners.
    commands: Vec<(CoreId, Command)>,
}

impl Relay {
    /// The relay of `core`.
    #[must_use]
    pub fn new(core: CoreId, shared: Arc<Shared>, metrics: Arc<CoreMetrics>) -> Self {
        Self {
            core,
            parser: Parser::new(shared.fingerprinter.clone()),
            ingest: Ingest::new(shared.owners.cores()),
            allowances: Allowances::new(shared.limits.allowance_bytes()),
            session_cap: SessionCap::default(),
            owner: Owner::new(core, Arc::clone(&shared), Arc::clone(&metrics)),
            inflow: Inflow::new(Pace { looks_per_turn: LOOKS_PER_TURN, large_bytes: LARGE_BYTES }),
            reader: Reader::new(core, Arc::clone(&shared), Arc::clone(&metrics)),
            parties: ByConn::default(),
            gatherings: Gatherings::default(),
            listings: Listings::default(),
            metrics,
            messages: VecDeque::new(),
            parked: Vec::new(),
            over: VecDeque::new(),
            lapsed: Vec::new(),
            commands: Vec::new(),
            shared,
        }
    }

    /// What this relay shares with those of other cores.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether a subscription is refused because it would make all connections together keep too much.
    #[must_use]
    pub fn refuses_to_remember(&self, wanted: &Wanted, now: Now) -> bool {
        self.shared.refuses_to_remember(wanted.footprint(self.shared.owners.cores()), now)
    }

    /// The bounds of what a subscription may ask for.
    #[must_use]
    pub fn ask_bounds(&self) -> AskBounds {
        AskBounds {
            filter_scalars_max: self.shared.limits.filter_scalars_max,
            from_positions_max: self.shared.limits.from_positions_max,
        }
    }

    // ── what the gateway asks ──

    /// `POST /events` with a whole body: answered later.
    pub fn on_events(&mut self, conn: ConnId, kind: BodyKind, body: Vec<u8>) {
        self.ingest.begin(&self.shared, conn, kind, body);
    }

    /// `GET /stream`: answered once every owner knows the subscription.
    pub fn on_stream(&mut self, out: &mut dyn Outbox, conn: ConnId, framing: StreamFraming, wanted: Wanted) {
        self.reader.add_peer(conn, Binding::Stream(framing));
        self.reader.subscribe(out, conn, wanted);
    }

    /// `GET /connections`: answered once every core has told its part.
    pub fn on_connections(&mut self, conn: ConnId) {
        self.list_for(conn, Asker::Connections);
    }

    // ── what the engine tells ──

    /// A queue has run empty.
    pub fn on_drained(&mut self, out: &mut dyn Outbox, conn: ConnId) {
        self.reader.on_drained(out, conn);
    }

    /// A connection is over.
    pub fn on_gone(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, _ending: Ending) {
        self.gatherings.forget(conn);
        self.reader.remove_peer(out.outbox(), conn);
        if let Some(party) = self.parties.remove(conn) {
            if let Some(hello) = &party.hello {
                self.shared.parties.fetch_sub(1, Ordering::Relaxed);
                self.shared.remember(&self.metrics, hello.footprint(), 0);
            }
            if !party.claims.is_empty() {
                self.over.push_back((conn, party.claims));
            }
            self.flush_live(out);
        }
    }

    /// Ends claims of connections that are over, behind the events that made them.
    fn end_claims(&mut self, out: &mut dyn Post<RelayMail>) {
        let mut left = CLAIMS_ENDED_PER_TURN;
        while left > 0
            && let Some((conn, claims)) = self.over.front_mut()
        {
            let conn = *conn;
            let before = claims.bytes();
            let mut by_owner: Vec<Vec<Box<str>>> = vec![Vec::new(); self.shared.owners.cores()];
            while left > 0
                && let Some(session) = claims.pop_oldest()
            {
                left -= 1;
                let owner = self.shared.owners.owner_of(&session);
                if let Some(sessions) = by_owner.get_mut(usize::from(owner.0)) {
                    sessions.push(Box::from(&*session));
                }
            }
            self.shared.remember(&self.metrics, before, claims.bytes());
            if claims.is_empty() {
                self.over.pop_front();
            }
            for (owner, sessions) in (0..).map(CoreId).zip(by_owner).filter(|(_, sessions)| !sessions.is_empty()) {
                self.send_to_owner(out, owner, OwnerInput::Unclaim { conn, sessions });
            }
        }
    }

    /// A consumer that was cut takes no command any more: its claims end with the cut, not with its socket.
    fn end_claims_of_cut(&mut self, out: &mut dyn Post<RelayMail>) {
        while let Some(conn) = self.reader.take_cut() {
            if let Some(party) = self.parties.get_mut(conn) {
                let claims = std::mem::take(&mut party.claims);
                self.over.push_back((conn, claims));
            }
        }
        self.flush_live(out);
        self.end_claims(out);
    }

    /// The queues of all connections together are over their budget, and this one's is the largest.
    pub fn on_overflow(&mut self, out: &mut dyn Outbox, conn: ConnId) {
        self.reader.cut(out, conn);
    }

    /// Whether nothing taken in waits for an answer.
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        self.ingest.is_idle()
            && self.session_cap.is_idle()
            && self.owner.is_idle()
            && self.inflow.is_empty()
            && self.gatherings.is_empty()
            && self.messages.is_empty()
            && self.listings.is_empty()
            && self.lapsed.is_empty()
            && self.over.is_empty()
            && self.commands.is_empty()
    }

    /// The process ends: say goodbye to every stream and WebSocket, some at a time.
    pub fn on_goodbye(&mut self, out: &mut dyn Outbox) -> Work {
        if self.reader.say_goodbye(out) == Work::Left {
            return Work::Left;
        }
        for (conn, party) in self.parties.iter() {
            if party.hello.is_none() {
                let close = WebSocketClose { code: CloseCode::GOING_AWAY.value(), reason: REASON_SHUTDOWN };
                out.close_websocket(conn, close);
            }
        }
        Work::Idle
    }

    /// A turn's worth of work.
    pub fn on_turn(&mut self, out: &mut dyn Post<RelayMail>) -> Work {
        self.take_in(out);
        if !self.inflow.had_large() {
            self.read_messages(out);
        }
        if !self.inflow.had_large() {
            self.parse(out.outbox());
        }
        self.hand_over(out);
        self.flush_live(out);
        for (owner, command) in std::mem::take(&mut self.commands) {
            self.send_to_owner(out, owner, OwnerInput::Command(Box::new(command)));
        }
        self.gather(out);
        self.list(out);
        self.carry(out);
        if !self.inflow.had_large() {
            let largest = self.owner.run(&mut self.parser);
            self.inflow.deal(largest);
        }
        self.carry(out);
        self.reader.settle_all(out.outbox());
        self.end_claims_of_cut(out);
        self.settle_sessions(out);
        self.inflow.begin_turn();
        self.release(out);
        let reads_on = self.reader.has_requests() || !self.inflow.is_empty() || !self.messages.is_empty();
        let roles_go_on = self.owner.has_work() || self.session_cap.has_work() || self.gatherings.has_work();
        let lists_on = !self.listings.is_empty() || !self.over.is_empty();
        if roles_go_on || reads_on || lists_on || self.ingest.has_jobs() {
            Work::Left
        } else if self.ingest.has_ready() || !self.parked.is_empty() {
            if self.room(out) == Admits::Everything { Work::Left } else { Work::Held }
        } else {
            Work::Idle
        }
    }

    /// Parses what has been posted.
    fn parse(&mut self, out: &mut dyn Outbox) {
        let Parsed { refused, largest } = self.ingest.parse(&self.shared, &mut self.parser);
        self.inflow.deal(largest);
        for (conn, code, response) in refused {
            self.rejected(code);
            out.respond(conn, response);
        }
    }

    /// Mail from the relay of another core, or of this one.
    pub fn on_mail(&mut self, out: &mut dyn Post<RelayMail>, from: CoreId, mail: RelayMail) {
        if mail.is_for_reader() {
            self.inflow.push(from, mail);
            self.take_in(out);
        } else {
            self.act_on(out, from, mail);
        }
    }

    /// Acts on what waits for the reader, as far as this turn may go.
    fn take_in(&mut self, out: &mut dyn Post<RelayMail>) {
        while let Some((from, mail, slice)) = self.inflow.take() {
            let bytes = mail.weight();
            match mail {
                RelayMail::Fanout(fanout) if bytes >= LARGE_BYTES && !self.reader.prepare(&fanout) => {
                    self.inflow.pause(from, RelayMail::Fanout(fanout));
                    return;
                }
                RelayMail::Fanout(fanout) => {
                    if self.reader.fan_out(out.outbox(), &fanout, slice) == Delivery::Begun {
                        self.inflow.put_back(from, RelayMail::Fanout(fanout));
                        return;
                    }
                    self.inflow.finish();
                }
                mail => {
                    if let RelayMail::Page(page) = &mail {
                        slice.spend(page.items.len());
                    }
                    self.act_on(out, from, mail);
                }
            }
            self.inflow.deal(bytes);
        }
    }

    fn act_on(&mut self, out: &mut dyn Post<RelayMail>, from: CoreId, mail: RelayMail) {
        match mail {
            RelayMail::Owner(input) => self.owner.push(from, input),
            RelayMail::Fanout(_) => debug_assert!(false, "taken in slice by slice"),
            RelayMail::Admitted { receipt, owed } => match self.ingest.admitted(from, receipt, owed) {
                // Who created nothing over the cap waits for nobody else's evictions.
                Some(Settlement { owed: 0, answer: Some(answer) }) => self.answer_settled(out.outbox(), answer),
                Some(settlement) => self.session_cap.push(settlement),
                None => {}
            },
            RelayMail::Registered { sub, arrival } => {
                self.reader.on_registered(from, sub, arrival);
                self.answer_registered(out.outbox());
            }
            RelayMail::Page(page) => self.reader.on_page(out.outbox(), &mut self.parser, from, *page),
            RelayMail::Handover { token, target, command } => {
                let taken = !command.is_empty() && self.reader.push_command(out.outbox(), target, &command.event(0));
                self.send_to_owner(out, from, OwnerInput::HandedOver { token, taken });
            }
            RelayMail::CommandAnswer { conn, refused, owed } => {
                self.ingest.command_admitted(owed);
                if let Some((id, code, detail)) = refused {
                    self.reader.push_frame(out.outbox(), conn, &message::event_error(Some(&id), code, detail));
                }
                self.answered(out.outbox(), conn);
            }
            RelayMail::Evict { tick, cause } => self.owner.on_evict(from, tick, cause),
            RelayMail::EvictAnswered { cause: EvictionCause::Bytes, .. } => self.owner.on_evict_answered(),
            RelayMail::EvictAnswered { cause: EvictionCause::Sessions, done } => {
                self.session_cap.evicted(&self.shared, done);
            }
            RelayMail::Gather(ask) => self.listings.push(from, ask, self.shared.limits.listing_bytes_max()),
            RelayMail::Gathered(part) => match self.gatherings.take(part, self.shared.owners.cores()) {
                Some(NextAsk::Ask(ask)) => self.ask_all(out, ask),
                Some(NextAsk::Answer(conn, listed)) => self.answer_gathered(out.outbox(), conn, listed),
                None => {}
            },
        }
    }

    // ── carrying messages ──

    /// Carries what the roles of this core have for others, and for one another, in order.
    fn carry(&mut self, out: &mut dyn Post<RelayMail>) {
        loop {
            while let Some((owner, input)) = self.reader.take_request() {
                self.send_to_owner(out, owner, input);
            }
            let Some((destination, mail)) = self.owner.take_effect() else { return };
            match (destination, mail) {
                (Destination::Core(core), mail) => self.send_to_core(out, core, mail),
                (Destination::Cores(cores), RelayMail::Fanout(fanout)) => {
                    for core in cores.iter() {
                        self.send_to_core(out, core, RelayMail::Fanout(Arc::clone(&fanout)));
                    }
                }
                (Destination::Cores(_), _) => debug_assert!(false, "only events go to several cores"),
            }
        }
    }

    /// Sends to the reader of a core; to this one's at once.
    fn send_to_core(&mut self, out: &mut dyn Post<RelayMail>, core: CoreId, mail: RelayMail) {
        if core == self.core {
            self.on_mail(out, core, mail);
        } else if mail.is_answer() {
            out.mail_fanout_reserved(core, mail);
        } else {
            out.mail_fanout(core, mail);
        }
    }

    /// Sends to an owner; to this core's at once.
    fn send_to_owner(&mut self, out: &mut dyn Post<RelayMail>, owner: CoreId, input: OwnerInput) {
        if owner == self.core {
            self.owner.push(owner, input);
        } else if matches!(input, OwnerInput::Events(_)) {
            out.mail_ingest(owner, RelayMail::Owner(input));
        } else {
            // An answer, or what a connection has at most one of under way.
            out.mail_ingest_reserved(owner, RelayMail::Owner(input));
        }
    }

    /// Hands over what WebSockets sent, and ends claims that lapsed meanwhile.
    fn flush_live(&mut self, out: &mut dyn Post<RelayMail>) {
        let mut handed = Vec::new();
        self.ingest.flush_live(&self.shared, &mut |to, input| handed.push((to, input)));
        out.outbox().admitted(ACTIVITY.group, handed.iter().map(|(_, input)| input.weight()).sum());
        for (to, input) in handed {
            self.send_to_owner(out, to, input);
        }
        for (conn, session) in std::mem::take(&mut self.lapsed) {
            let owner = self.shared.owners.owner_of(&session);
            let sessions = vec![Box::from(&*session)];
            self.send_to_owner(out, owner, OwnerInput::Unclaim { conn, sessions });
        }
    }

    /// Evicts what this core's admitted events owe, and answers who waited for that.
    fn settle_sessions(&mut self, out: &mut dyn Post<RelayMail>) {
        while let Some(settlement) = self.ingest.take_live_settlement() {
            self.session_cap.push(settlement);
        }
        for _ in 0..SETTLEMENTS_PER_TURN {
            match self.session_cap.step(&self.shared) {
                Some(CapStep::Evict(core, tick)) if core == self.core => {
                    let done = self.owner.evict_oldest_if(tick, EvictionCause::Sessions);
                    self.session_cap.evicted(&self.shared, done);
                }
                Some(CapStep::Evict(core, tick)) => {
                    out.mail_fanout(core, RelayMail::Evict { tick, cause: EvictionCause::Sessions });
                }
                Some(CapStep::Answer(answer)) => self.answer_settled(out.outbox(), answer),
                None => return,
            }
        }
    }

    // ── answers ──

    fn answer_settled(&mut self, out: &mut dyn Outbox, answer: Answer) {
        match answer {
            Answer::Published(conn, response) => out.respond(conn, response),
            Answer::Frame(conn, frame) => {
                self.reader.push_frame(out, conn, &frame);
                self.answered(out, conn);
            }
        }
    }

    /// Counts an event, or a batch, that was not taken.
    fn rejected(&self, code: Code) {
        let code = match code {
            Code::InvalidJson => RejectionCode::InvalidJson,
            Code::ControlRequiresDuplex => RejectionCode::ControlRequiresDuplex,
            Code::TooManyEvents => RejectionCode::TooManyEvents,
            Code::PayloadTooLarge => RejectionCode::PayloadTooLarge,
            _ => RejectionCode::InvalidEvent,
        };
        self.metrics.rejected.increment(code);
    }

    /// Answers the clients of subscriptions that every owner knows now, and lets them begin.
    fn answer_registered(&mut self, out: &mut dyn Outbox) {
        while let Some(sub) = self.reader.take_registered() {
            let Some(subscription) = self.reader.subscription(sub) else { continue };
            let conn = subscription.conn;
            match subscription.id.clone() {
                Some(id) => {
                    self.reader.push_frame(out, conn, &message::subscribed(&id));
                    self.answered(out, conn);
                }
                None => {
                    let open = EventStreamOpen {
                        group: ACTIVITY.group,
                        fields: vec![
                            ("content-type", Cow::Borrowed("text/event-stream")),
                            ("cache-control", Cow::Borrowed("no-cache, no-transform")),
                            ("x-accel-buffering", Cow::Borrowed("no")),
                        ],
                        first: b": open\n\n",
                        heartbeat: b": ping\n\n",
                        heartbeat_interval: self.shared.limits.heartbeat_interval,
                    };
                    out.open_event_stream(conn, open);
                }
            }
            self.reader.begin(out, sub);
        }
    }

    /// A connection asks for a list.
    fn list_for(&mut self, conn: ConnId, asker: Asker) {
        self.gatherings.push(conn, Listed::new(asker, self.shared.limits.listing_bytes_max()));
    }

    /// Begins the next answer that every core has a part of.
    fn gather(&mut self, out: &mut dyn Post<RelayMail>) {
        if let Some(ask) = self.gatherings.begin(self.shared.owners.cores()) {
            self.ask_all(out, ask);
        }
    }

    fn ask_all(&mut self, out: &mut dyn Post<RelayMail>, ask: Ask) {
        for core in self.shared.owners.every_core() {
            self.send_to_core(out, core, RelayMail::Gather(ask));
        }
    }

    /// Goes on with what this core has to tell of its connections.
    fn list(&mut self, out: &mut dyn Post<RelayMail>) {
        let Self { listings, parties, reader, .. } = self;
        let subscriptions = |conn| reader.peer(conn).map_or(0, |peer| peer.subs.len());
        if let Some((core, part)) = listings.step(parties, &subscriptions) {
            self.send_to_core(out, core, RelayMail::Gathered(part));
        }
    }

    fn answer_gathered(&mut self, out: &mut dyn Outbox, conn: ConnId, listed: Listed) {
        let Listed { asker, entries, truncated, .. } = listed;
        match asker {
            Asker::Roster(id) => {
                self.reader.push_frame(out, conn, &message::roster(&id, &entries, truncated));
                self.answered(out, conn);
            }
            Asker::Connections => {
                let (head, tail) = (&b"{\"connections\":["[..], message::list_end(truncated));
                let response = json_response(200, Vec::new(), [head, &entries, tail].concat());
                out.respond(conn, response);
            }
        }
    }

    #[cfg(test)]
    fn check_invariants(&self) {
        self.owner.check_invariants();
        self.reader.check_invariants();
    }

    /// Everybody has gone: nothing of them may be left.
    #[cfg(test)]
    fn check_empty(&self) {
        assert!(self.is_quiescent(), "something waits for an answer");
        assert!(self.shared.remembers_nothing(), "subscriptions or claims are counted that nobody has");
        assert_eq!((self.parties.len(), self.parked.len()), (0, 0), "connections left");
        self.owner.check_empty();
        self.reader.check_empty();
    }
}
