//! The activity relay of one core: a state machine over parsed input (contract §2–§9).
//!
//! Three roles live on every core and talk only by messages, so that one core is the case of many with short ways:
//! [`ingest`] takes events in, the [`owner`] orders those of its sessions, the [`reader`] delivers to its consumers.
//! [`Relay`] hears the gateway, carries what the roles have for one another, and keeps the WebSocket parties.
//!
//! Knows the seam, not the engine: no socket, no clock, no file. Routes, authentication and CORS are the gateway's;
//! what it answers over HTTP goes out under the response fields the gateway hands in.
//!
//! The order inside [`Relay::on_turn`] is the life of an event: parse → hand over → admit → fan out → push runs → settle the
//! session cap → 202.

pub mod allowance;
pub mod barrier;
pub mod buffer;
pub mod capture;
pub mod claims;
pub mod class;
pub mod coverage;
pub mod directory;
pub mod discovery;
pub mod error;
pub mod event;
pub mod fanout;
pub mod filter;
pub mod frame;
pub mod frames;
pub mod gather;
pub mod index;
pub mod inflow;
pub mod ingest;
mod lines;
pub mod owner;
pub mod ownership;
pub mod pages;
pub mod party;
pub mod peer;
pub mod position_log;
pub mod publishing;
pub mod reader;
pub mod replay;
pub mod session_cap;
#[cfg(test)]
mod simulation;
pub mod slow_consumer;
pub mod socket;
pub mod stream;
pub mod subscription;
#[cfg(test)]
mod testing;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use crate::base::time::Now;
use crate::engine::service::{
    Admits, ConnId, CoreId, Ending, EventStreamOpen, Mail, Outbox, Response, WebSocketClose, Work,
};
use crate::ops::metrics::{CoreMetrics, Endpoint, EvictionCause, RejectionCode, Request, StatusClass};
use crate::wire::http1::chunk::StreamFraming;
use crate::wire::websocket::close::CloseCode;

use allowance::Allowances;
use claims::ClaimedSessions;
use error::{Code, Fields, Refusal, json_response};
use event::Parser;
use fanout::Delivery;
use frames::Binding;
use gather::{Answered, Asker, Gather, Gathered, Gatherings};
use inflow::{Inflow, LARGE_BYTES};
use ingest::{BodyKind, Ingest, Parsed};
use owner::{Destination, Owner};
use ownership::{Command, OwnerInput};
pub use ownership::{RelayMail, Shared};
use party::Party;
use peer::ByConn;
use reader::{Reader, Wanted};
use session_cap::{Answer, SessionCap, Settlement, Step};
use slow_consumer::REASON_SHUTDOWN;
use socket::LargeMessage;
use stream::AskBounds;

/// Settlements gone on with in one go before the turn moves on to its flush.
const SETTLEMENTS_PER_TURN: usize = 512;

/// The activity relay of one core.
#[derive(Debug)]
pub struct Relay {
    core: CoreId,
    shared: Arc<Shared>,
    started: SystemTime,
    parser: Parser,
    ingest: Ingest,
    allowances: Allowances,
    session_cap: SessionCap,
    owner: Owner,
    inflow: Inflow,
    reader: Reader,
    parties: ByConn<Party>,
    /// Response fields of event streams that are being registered.
    opening: ByConn<Fields>,
    gatherings: Gatherings,
    metrics: Arc<CoreMetrics>,
    /// Large messages of WebSockets, first to last.
    messages: VecDeque<LargeMessage>,
    /// WebSockets not read on until there is room for events again.
    parked: Vec<ConnId>,
    /// Claims that lapsed in this turn, to be ended behind the events that displaced them.
    lapsed: Vec<(ConnId, Arc<str>)>,
    /// Commands of this turn, to be sent behind the mail that had come before they were read: what their senders have
    /// seen of other connections, claims above all, is then with the owners.
    commands: Vec<(CoreId, Command)>,
}

impl Relay {
    /// The relay of `core`. `started` is the wall clock at the start of the process, when [`Now`] was 0.
    #[must_use]
    pub fn new(core: CoreId, shared: Arc<Shared>, metrics: Arc<CoreMetrics>, started: SystemTime) -> Self {
        Self {
            core,
            parser: Parser::new(shared.fingerprinter.clone()),
            ingest: Ingest::new(shared.cores()),
            allowances: Allowances::new(shared.limits.allowance_bytes()),
            session_cap: SessionCap::default(),
            owner: Owner::new(core, Arc::clone(&shared), Arc::clone(&metrics)),
            inflow: Inflow::default(),
            reader: Reader::new(core, Arc::clone(&shared), Arc::clone(&metrics)),
            parties: ByConn::default(),
            opening: ByConn::default(),
            gatherings: Gatherings::default(),
            metrics,
            messages: VecDeque::new(),
            parked: Vec::new(),
            lapsed: Vec::new(),
            commands: Vec::new(),
            started,
            shared,
        }
    }

    /// What this relay shares with those of other cores.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether a subscription would make all connections together keep too much.
    #[must_use]
    pub fn remembers_too_much(&self, wanted: &Wanted) -> bool {
        self.shared.remembers_too_much(wanted.footprint(self.shared.cores()))
    }

    /// The bounds of what a subscription may ask for.
    #[must_use]
    pub fn ask_bounds(&self) -> AskBounds {
        AskBounds {
            filter_scalars_max: self.shared.limits.filter_scalars_max,
            from_positions_max: self.shared.limits.from_positions_max,
        }
    }

    /// The wall clock, RFC 3339 in whole seconds.
    fn wall_clock(&self, now: Now) -> String {
        humantime::format_rfc3339_seconds(self.started + Duration::from_millis(now.0)).to_string()
    }

    // ── what the gateway asks ──

    /// `POST /events` with a whole body: answered later.
    pub fn on_events(&mut self, conn: ConnId, kind: BodyKind, body: Vec<u8>, fields: Fields) {
        self.ingest.begin(&self.shared, conn, kind, body, fields);
    }

    /// `GET /stream`: answered once every owner knows the subscription.
    pub fn on_stream(
        &mut self,
        out: &mut dyn Outbox<RelayMail>,
        conn: ConnId,
        framing: StreamFraming,
        wanted: Wanted,
        fields: Fields,
    ) {
        let binding = match framing {
            StreamFraming::Chunked => Binding::Chunked,
            StreamFraming::UntilClose => Binding::UntilClose,
        };
        self.opening.insert(conn, fields);
        self.reader.add_peer(conn, binding);
        self.reader.subscribe(out, conn, wanted);
    }

    /// `GET /connections`: answered once every core has told its part.
    pub fn on_connections(&mut self, conn: ConnId, fields: Fields) {
        self.gatherings.push(conn, Asker::Connections(fields));
    }

    // ── what the engine tells ──

    /// A queue has run empty.
    pub fn on_drained(&mut self, out: &mut dyn Outbox<RelayMail>, conn: ConnId) {
        self.reader.on_drained(out, conn);
    }

    /// A connection is over.
    pub fn on_gone(&mut self, out: &mut dyn Outbox<RelayMail>, conn: ConnId, _ending: Ending) {
        self.opening.remove(conn);
        self.gatherings.forget(conn);
        self.reader.remove_peer(out, conn);
        if let Some(party) = self.parties.remove(conn) {
            if let Some(hello) = &party.hello {
                self.shared.parties.fetch_sub(1, Ordering::Relaxed);
                self.shared.remember(&self.metrics, hello.footprint(), 0);
            }
            self.end_claims(conn, &party.claims);
            self.flush_live(out);
        }
    }

    /// A connection's claims end all at once.
    fn end_claims(&mut self, conn: ConnId, claims: &ClaimedSessions) {
        self.shared.remember(&self.metrics, claims.bytes(), 0);
        self.lapsed.extend(claims.iter().map(|session| (conn, Arc::from(session))));
    }

    /// A consumer that was cut takes no command any more: its claims end with the cut, not with its socket.
    fn end_claims_of_cut(&mut self, out: &mut dyn Outbox<RelayMail>) {
        while let Some(conn) = self.reader.take_cut() {
            if let Some(party) = self.parties.get_mut(conn) {
                let claims = std::mem::take(&mut party.claims);
                self.end_claims(conn, &claims);
            }
        }
        self.flush_live(out);
    }

    /// The queues of all connections together are over their budget, and this one's is the largest.
    pub fn on_overflow(&mut self, out: &mut dyn Outbox<RelayMail>, conn: ConnId) {
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
            && self.lapsed.is_empty()
            && self.commands.is_empty()
    }

    /// The process ends: say goodbye to every stream and WebSocket, some at a time.
    pub fn on_goodbye(&mut self, out: &mut dyn Outbox<RelayMail>) -> Work {
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
    pub fn on_turn(&mut self, out: &mut dyn Outbox<RelayMail>) -> Work {
        self.take_in(out);
        if !self.inflow.had_large() {
            self.read_messages(out);
        }
        if !self.inflow.had_large() {
            self.parse(out);
        }
        self.hand_over(out);
        self.flush_live(out);
        for (owner, command) in std::mem::take(&mut self.commands) {
            self.send_to_owner(out, owner, OwnerInput::Command(Box::new(command)));
        }
        self.gather(out);
        self.carry(out);
        if !self.inflow.had_large() {
            let largest = self.owner.run(&mut self.parser);
            self.inflow.deal(largest);
        }
        self.carry(out);
        self.reader.settle_all(out);
        self.end_claims_of_cut(out);
        self.settle_sessions(out);
        self.inflow.begin_turn();
        self.release(out);
        let reads_on = self.reader.has_requests() || !self.inflow.is_empty() || !self.messages.is_empty();
        let roles_go_on = self.owner.has_work() || self.session_cap.has_work() || self.gatherings.has_work();
        if roles_go_on || reads_on || self.ingest.has_jobs() {
            Work::Left
        } else if self.ingest.has_ready() || !self.parked.is_empty() {
            if self.room(out) == Admits::Everything { Work::Left } else { Work::Held }
        } else {
            Work::Idle
        }
    }

    /// Parses what has been posted.
    fn parse(&mut self, out: &mut dyn Outbox<RelayMail>) {
        let Parsed { refused, largest } = self.ingest.parse(&self.shared, &mut self.parser);
        self.inflow.deal(largest);
        for (conn, code, response) in refused {
            self.rejected(code);
            self.answer_publish(out, conn, response);
        }
    }

    /// Mail from the relay of another core, or of this one.
    pub fn on_mail(&mut self, out: &mut dyn Outbox<RelayMail>, from: CoreId, mail: RelayMail) {
        if mail.is_for_reader() {
            self.inflow.push(from, mail);
            self.take_in(out);
        } else {
            self.act_on(out, from, mail);
        }
    }

    /// Acts on what waits for the reader, as far as this turn may go.
    fn take_in(&mut self, out: &mut dyn Outbox<RelayMail>) {
        while let Some((from, mail, slice)) = self.inflow.take() {
            let bytes = mail.weight();
            match mail {
                RelayMail::Fanout(fanout) if bytes >= LARGE_BYTES && !self.reader.prepare(&fanout) => {
                    self.inflow.pause(from, RelayMail::Fanout(fanout));
                    return;
                }
                RelayMail::Fanout(fanout) => {
                    if self.reader.fan_out(out, &fanout, slice) == Delivery::Begun {
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

    fn act_on(&mut self, out: &mut dyn Outbox<RelayMail>, from: CoreId, mail: RelayMail) {
        match mail {
            RelayMail::Owner(input) => self.owner.push(from, input),
            RelayMail::Fanout(_) => debug_assert!(false, "taken in slice by slice"),
            RelayMail::Admitted { receipt, owed } => match self.ingest.admitted(from, receipt, owed) {
                // Who created nothing over the cap waits for nobody else's evictions.
                Some(Settlement { owed: 0, answer: Some(answer) }) => self.answer_settled(out, answer),
                Some(settlement) => self.session_cap.push(settlement),
                None => {}
            },
            RelayMail::Registered { sub, arrival } => {
                self.reader.on_registered(from, sub, arrival);
                self.answer_registered(out);
            }
            RelayMail::Page(page) => self.reader.on_page(out, &mut self.parser, from, *page),
            RelayMail::Handover { token, target, command } => {
                let taken = !command.is_empty() && self.reader.push_command(out, target, &command.event(0));
                self.send_to_owner(out, from, OwnerInput::HandedOver { token, taken });
            }
            RelayMail::CommandAnswer { conn, refused, owed } => {
                self.ingest.command_admitted(owed);
                if let Some((id, code, detail)) = refused {
                    self.reader.push_frame(out, conn, &frame::command_error(&id, code, detail));
                }
                self.answered(out, conn);
            }
            RelayMail::Evict { tick, cause } => self.owner.on_evict(from, tick, cause),
            RelayMail::EvictAnswered { cause: EvictionCause::Bytes, .. } => self.owner.on_evict_answered(),
            RelayMail::EvictAnswered { cause: EvictionCause::Sessions, done } => {
                self.session_cap.evicted(&self.shared, done);
            }
            RelayMail::Gather(gather) => {
                let entries = self.entries(gather);
                self.send_to_core(out, from, RelayMail::Gathered(Gathered { entries }));
            }
            RelayMail::Gathered(part) => {
                if let Some(answered) = self.gatherings.take(&part, self.answer_bytes_max()) {
                    self.answer_gathered(out, answered);
                }
            }
        }
    }

    // ── carrying messages ──

    /// Carries what the roles of this core have for others, and for one another, in order.
    fn carry(&mut self, out: &mut dyn Outbox<RelayMail>) {
        loop {
            while let Some((owner, input)) = self.reader.take_request() {
                self.send_to_owner(out, owner, input);
            }
            let Some((destination, mail)) = self.owner.take_effect() else { return };
            match (destination, mail) {
                (Destination::Core(core), mail) => self.send_to_core(out, core, mail),
                (Destination::Cores(cores), RelayMail::Fanout(fanout)) => {
                    for core in self.shared.every_core().filter(|core| cores & (1 << core.0) != 0) {
                        self.send_to_core(out, core, RelayMail::Fanout(Arc::clone(&fanout)));
                    }
                }
                (Destination::Cores(_), _) => debug_assert!(false, "only events go to several cores"),
            }
        }
    }

    /// Sends to the reader of a core; to this one's at once.
    fn send_to_core(&mut self, out: &mut dyn Outbox<RelayMail>, core: CoreId, mail: RelayMail) {
        if core == self.core {
            self.on_mail(out, core, mail);
        } else {
            out.mail_fanout(core, mail);
        }
    }

    /// Sends to an owner; to this core's at once.
    fn send_to_owner(&mut self, out: &mut dyn Outbox<RelayMail>, owner: CoreId, input: OwnerInput) {
        if owner == self.core {
            self.owner.push(owner, input);
        } else {
            out.mail_ingest(owner, RelayMail::Owner(input));
        }
    }

    /// Hands over what WebSockets sent, and ends claims that lapsed meanwhile.
    fn flush_live(&mut self, out: &mut dyn Outbox<RelayMail>) {
        let mut handed = Vec::new();
        self.ingest.flush_live(&self.shared, &mut |to, input| handed.push((to, input)));
        out.admitted(handed.iter().map(|(_, input)| input.weight()).sum());
        for (to, input) in handed {
            self.send_to_owner(out, to, input);
        }
        for (conn, session) in std::mem::take(&mut self.lapsed) {
            let owner = self.shared.owner_of(&session);
            let sessions = vec![Box::from(&*session)];
            self.send_to_owner(out, owner, OwnerInput::Unclaim { conn, sessions });
        }
    }

    /// Evicts what this core's admitted events owe, and answers who waited for that.
    fn settle_sessions(&mut self, out: &mut dyn Outbox<RelayMail>) {
        while let Some(settlement) = self.ingest.take_live_settlement() {
            self.session_cap.push(settlement);
        }
        for _ in 0..SETTLEMENTS_PER_TURN {
            match self.session_cap.step(&self.shared) {
                Some(Step::Evict(core, tick)) if core == self.core => {
                    let done = self.owner.evict_oldest_if(tick, EvictionCause::Sessions);
                    self.session_cap.evicted(&self.shared, done);
                }
                Some(Step::Evict(core, tick)) => {
                    out.mail_fanout(core, RelayMail::Evict { tick, cause: EvictionCause::Sessions });
                }
                Some(Step::Answer(answer)) => self.answer_settled(out, answer),
                None => return,
            }
        }
    }

    // ── answers ──

    fn answer_settled(&mut self, out: &mut dyn Outbox<RelayMail>, answer: Answer) {
        match answer {
            Answer::Published(conn, response) => self.answer_publish(out, conn, response),
            Answer::Frame(conn, frame) => {
                self.reader.push_frame(out, conn, &frame);
                self.answered(out, conn);
            }
        }
    }

    fn answer_publish(&mut self, out: &mut dyn Outbox<RelayMail>, conn: ConnId, response: Response) {
        self.answered_with(Endpoint::Events, response.status);
        out.respond(conn, response);
    }

    fn answered_with(&self, endpoint: Endpoint, status: u16) {
        self.metrics.requests.increment(Request { endpoint, status: StatusClass::of(status) });
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
    fn answer_registered(&mut self, out: &mut dyn Outbox<RelayMail>) {
        while let Some(sub) = self.reader.take_registered() {
            let Some(subscription) = self.reader.subscription(sub) else { continue };
            let conn = subscription.conn;
            match subscription.id.clone() {
                Some(id) => {
                    self.reader.push_frame(out, conn, &frame::subscribed(&id));
                    self.answered(out, conn);
                }
                None => {
                    let mut fields = self.opening.remove(conn).unwrap_or_default();
                    fields.push(("content-type", Cow::Borrowed("text/event-stream")));
                    fields.push(("cache-control", Cow::Borrowed("no-cache, no-transform")));
                    fields.push(("x-accel-buffering", Cow::Borrowed("no")));
                    let open = EventStreamOpen {
                        fields,
                        first: b": open\n\n",
                        heartbeat: b": ping\n\n",
                        heartbeat_interval: self.shared.limits.heartbeat_interval,
                    };
                    out.open_event_stream(conn, open);
                    self.answered_with(Endpoint::Stream, 200);
                }
            }
            self.reader.begin(out, sub);
        }
    }

    /// Asks every core for its part of the next answer.
    fn gather(&mut self, out: &mut dyn Outbox<RelayMail>) {
        let Some(gather) = self.gatherings.begin(self.shared.cores()) else { return };
        for core in self.shared.every_core() {
            self.send_to_core(out, core, RelayMail::Gather(gather));
        }
    }

    /// An answer may hold what a write queue holds. Entries repeat what a client declared, once for each session it
    /// claims, so a single connection could make the answers of all others as large as it likes.
    fn answer_bytes_max(&self) -> usize {
        self.shared.limits.write_queue_bytes_max
    }

    /// This core's part; `None` if it is more than an answer may hold.
    fn entries(&self, gather: Gather) -> Option<Vec<u8>> {
        let bytes_max = self.answer_bytes_max();
        let mut entries = Vec::new();
        for (conn, party) in self.parties.iter() {
            match gather {
                Gather::Roster => party.write_roster(&mut entries, bytes_max),
                Gather::Connections => {
                    let subscriptions = self.reader.peer(conn).map_or(0, |peer| peer.subs.len());
                    party.write_connection(&mut entries, subscriptions);
                }
            }
            if entries.len() > bytes_max {
                return None;
            }
        }
        Some(entries)
    }

    fn answer_gathered(&mut self, out: &mut dyn Outbox<RelayMail>, answered: Answered) {
        let Answered { conn, asker, entries } = answered;
        let bytes_max = self.answer_bytes_max();
        let too_large = || format!("AEP_QUEUE_BYTES: the answer is over {bytes_max} bytes");
        match asker {
            Asker::Roster(id) => {
                let answer = match entries {
                    Some(entries) => frame::roster(&id, &entries),
                    None => frame::error(Some(&id), Code::LimitExceeded, &too_large()),
                };
                self.reader.push_frame(out, conn, &answer);
                self.answered(out, conn);
            }
            Asker::Connections(fields) => {
                let response = match entries {
                    Some(entries) => {
                        let mut body = b"{\"connections\":".to_vec();
                        body.extend_from_slice(&entries);
                        body.push(b'}');
                        json_response(200, fields, body)
                    }
                    None => Refusal::new(Code::LimitExceeded, too_large()).response(fields),
                };
                let status = response.status;
                out.respond(conn, response);
                self.answered_with(Endpoint::Connections, status);
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
        assert_eq!((self.parties.len(), self.opening.len(), self.parked.len()), (0, 0, 0), "connections left");
        self.owner.check_empty();
        self.reader.check_empty();
    }
}
