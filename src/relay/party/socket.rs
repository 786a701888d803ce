//! `/socket`: what a WebSocket message means (contract §6). Hello first, then events and frames, acted on in order.
//!
//! A message whose answer needs other cores (`subscribe`, `roster`, a command, a `ping` behind events) parks its
//! connection until the answer is out, so that answers keep the order of the messages. So does a large message, which
//! is read over several turns; it is acted on even if its connection has gone meanwhile.

use std::sync::atomic::Ordering;

use crate::base::time::Now;
use crate::engine::service::{ConnId, Flow, Message, Outbox, Post, WebSocketClose};
use crate::limits::CONNECTION_BYTES;
use crate::ops::metrics::CommandOutcome;
use crate::protocol::binding::Binding;
use crate::wire::json::{self, Kind, Value};
use crate::wire::websocket::close::CloseCode;

use crate::relay::error::{Code, Refusal};
use crate::relay::event::Batch;
use crate::relay::event::{Capture, Event, EventFault, Scope, SlicedParse};
use crate::relay::filter::Filter;
use crate::relay::frames::discovery;
use crate::relay::frames::message::{self, ClientFrame};
use crate::relay::ingest::PARSE_BYTES_PER_TURN;
use crate::relay::mail::claim::ClaimNote;
use crate::relay::mail::{Command, RelayMail};
use crate::relay::party::claimed::ClaimedSessions;
use crate::relay::party::hello::{Hello, HelloFault, Party};
use crate::relay::party::roster::Asker;
use crate::relay::reader::Wanted;
use crate::relay::reader::subscription::From;
use crate::relay::shared::REMEMBERS_TOO_MUCH;
use crate::relay::stream;
use crate::relay::{LARGE_BYTES, Relay};

/// A message that takes several turns to be read.
#[derive(Debug)]
pub(in crate::relay) struct LargeMessage {
    conn: ConnId,
    text: Vec<u8>,
    parse: SlicedParse,
}

impl Relay {
    /// A WebSocket has been opened.
    pub fn on_socket(&mut self, out: &mut dyn Outbox, conn: ConnId) {
        let since = humantime::format_rfc3339_seconds(out.time_of_day()).to_string();
        let party = Party { since, hello: None, claims: ClaimedSessions::default(), awaiting: false, published: false };
        self.parties.insert(conn, party);
        out.arm(conn, out.now().after(self.shared.limits.hello_time));
    }

    /// The hello time is over.
    pub fn on_alarm(&mut self, out: &mut dyn Outbox, conn: ConnId) {
        if self.parties.get(conn).is_some_and(|party| party.hello.is_none()) {
            let fault = HelloFault { code: Code::HelloRequired, detail: "no hello within the hello time" };
            refuse_hello(out, conn, fault);
        }
    }

    /// A message.
    pub fn on_message(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, message: Message<'_>) -> Flow {
        let Message::Text(text) = message else {
            refuse_hello(
                out.outbox(),
                conn,
                HelloFault { code: Code::InvalidHello, detail: "AEP_HELLO_BYTES: the hello is too large" },
            );
            return Flow::Continue;
        };
        let text: &[u8] = text;
        let Some(party) = self.parties.get(conn) else { return Flow::Continue };
        if party.hello.is_none() {
            self.on_hello(out.outbox(), conn, text);
            return Flow::Continue;
        }
        if text.len() >= LARGE_BYTES {
            self.messages.push_back(LargeMessage { conn, text: text.to_vec(), parse: SlicedParse::default() });
            self.await_answer(conn);
            return Flow::Park;
        }
        self.on_text(out, conn, text, None)
    }

    /// Reads on in large messages, and acts on the first that is read.
    pub(in crate::relay) fn read_messages(&mut self, out: &mut dyn Post<RelayMail>) {
        let mut budget = PARSE_BYTES_PER_TURN;
        let Some(message) = self.messages.front_mut() else { return };
        // Who has sent something that is no event is told below.
        if message.parse.walk(&message.text, &mut budget) == Ok(false) {
            return;
        }
        let Some(LargeMessage { conn, text, parse }) = self.messages.pop_front() else { return };
        if let Some(party) = self.parties.get_mut(conn) {
            party.awaiting = false;
        }
        self.inflow.deal(text.len());
        if self.on_text(out, conn, &text, Some(parse)) == Flow::Continue {
            out.outbox().resume(conn);
        }
    }

    /// Acts on a text; a large one has been read already.
    fn on_text(
        &mut self,
        out: &mut dyn Post<RelayMail>,
        conn: ConnId,
        text: &[u8],
        sliced: Option<SlicedParse>,
    ) -> Flow {
        let parsed = match &sliced {
            Some(sliced) => self.parser.finish(text, sliced),
            None => self.parser.parse(text),
        };
        match parsed {
            Ok(event) if event.scope() == Scope::Command => {
                let mut batch = Batch::default();
                batch.push(event);
                self.on_command(out.outbox(), conn, batch);
            }
            Ok(event) => {
                let claim = match self.parties.get_mut(conn) {
                    Some(party) => {
                        party.published = true;
                        let before = party.claims.bytes();
                        let claim = claim(party, &event, conn);
                        self.shared.remember(&self.metrics, before, party.claims.bytes());
                        claim
                    }
                    None => None,
                };
                let bytes = event.raw().len();
                self.ingest.push_live(&self.shared, event, claim);
                // Asked before any of it is sent.
                let room = self.room(out);
                self.lapse_claims(out, conn);
                if !self.allowances.goes_on(room, conn, bytes, out.out().now()) {
                    self.parked.push(conn);
                    return Flow::Park;
                }
            }
            Err(EventFault::Undotted) => self.on_frame(out, conn, text),
            Err(fault) => self.on_invalid(out.outbox(), conn, &fault),
        }
        match self.parties.get(conn) {
            Some(party) if party.awaiting => Flow::Park,
            _ => Flow::Continue,
        }
    }

    fn on_invalid(&mut self, out: &mut dyn Outbox, conn: ConnId, fault: &EventFault) {
        let (id, code) = match fault {
            EventFault::Json(_) | EventFault::NotAnObject => (None, Code::InvalidJson),
            EventFault::Undotted => (None, Code::InvalidEvent),
            EventFault::Invalid { id, .. } => (id.as_deref(), Code::InvalidEvent),
        };
        self.rejected(code);
        self.reader.push_frame(out, conn, &message::event_error(id, code, &fault.to_string()));
    }

    /// The answer to a parked message is out: go on with the connection's next one.
    pub(in crate::relay) fn answered(&mut self, out: &mut dyn Outbox, conn: ConnId) {
        if let Some(party) = self.parties.get_mut(conn)
            && std::mem::replace(&mut party.awaiting, false)
        {
            out.resume(conn);
        }
    }

    /// Comes before the asking: on one core the answer may be there before the asking returns.
    fn await_answer(&mut self, conn: ConnId) {
        if let Some(party) = self.parties.get_mut(conn) {
            party.awaiting = true;
        }
    }

    fn on_hello(&mut self, out: &mut dyn Outbox, conn: ConnId, text: &[u8]) {
        match Hello::parse(text) {
            Err(fault) => refuse_hello(out, conn, fault),
            Ok(hello)
                if hello.footprint() > CONNECTION_BYTES
                    && self.shared.refuses_to_remember(hello.footprint(), out.now()) =>
            {
                refuse_hello(out, conn, HelloFault { code: Code::LimitExceeded, detail: REMEMBERS_TOO_MUCH });
            }
            Ok(hello) => {
                out.disarm(conn);
                self.shared.remember(&self.metrics, 0, hello.footprint());
                if let Some(party) = self.parties.get_mut(conn) {
                    party.hello = Some(Box::new(hello));
                }
                self.shared.parties.fetch_add(1, Ordering::Relaxed);
                self.reader.add_peer(conn, Binding::WebSocket);
                let hello = discovery::hello(&self.shared.instance, self.shared.limits.buffer_events_max);
                self.reader.push_frame(out, conn, &message::hello(&hello));
            }
        }
    }

    fn on_command(&mut self, out: &mut dyn Outbox, conn: ConnId, batch: Batch) {
        let event = batch.event(0);
        if !self.shared.control {
            self.metrics.commands.increment(CommandOutcome::Unauthorized);
            let detail = "control needs a token: this relay is watch-only";
            let error = message::event_error(Some(event.id()), Code::Unauthorized, detail);
            self.reader.push_frame(out, conn, &error);
            return;
        }
        let owner = self.shared.owners.owner_of(event.session().unwrap_or_default());
        let tick = self.shared.take_ticks(1);
        self.await_answer(conn);
        self.commands.push((owner, Command { batch, tick, sender: conn }));
    }

    /// Over a limit of claims, its own or that of all connections together, the party's oldest claims lapse: behind the
    /// events that displaced them, and ahead of one that claims the same session again.
    fn lapse_claims(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId) {
        let limits = &self.shared.limits;
        let bytes_max = limits.connection_remembered_bytes_max();
        loop {
            let max = if self.shared.remembers_too_much(0) { 1 } else { limits.claims_per_connection_max };
            let Some(party) = self.parties.get_mut(conn) else { break };
            let before = party.claims.bytes();
            let Some(session) = party.claims.lapse(max, bytes_max) else { break };
            self.shared.remember(&self.metrics, before, party.claims.bytes());
            self.lapsed.push((conn, session));
        }
        if !self.lapsed.is_empty() {
            self.flush_live(out);
        }
    }

    fn on_frame(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, text: &[u8]) {
        // The event parser has read the same text, so this cannot fail.
        let Ok(document) = json::scan(text) else { return };
        match ClientFrame::of(document.root) {
            ClientFrame::Ping(t) => self.on_ping(out, conn, message::pong(t)),
            ClientFrame::Subscribe(object) => self.on_subscribe(out, conn, object),
            ClientFrame::Unsubscribe(object) => self.on_unsubscribe(out.outbox(), conn, object),
            ClientFrame::Roster(object) => self.on_roster(out.outbox(), conn, object),
            ClientFrame::Other => {}
        }
    }

    /// Behind events the pong says that they are acted on: admitted, and evicted for.
    fn on_ping(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, pong: Vec<u8>) {
        let Some(party) = self.parties.get_mut(conn) else { return };
        if std::mem::replace(&mut party.published, false) {
            self.flush_live(out);
            self.await_answer(conn);
            self.ingest.answer_behind_live(conn, pong);
        } else {
            self.reader.push_frame(out.outbox(), conn, &pong);
        }
    }

    fn consumes(&self, conn: ConnId) -> bool {
        self.parties.get(conn).and_then(|party| party.hello.as_ref()).is_some_and(|hello| hello.role.consumes())
    }

    fn on_subscribe(&mut self, out: &mut dyn Post<RelayMail>, conn: ConnId, object: Value<'_>) {
        let id = object.member("id").and_then(Value::string);
        match self.subscription_asked(out.out().now(), conn, object, id.as_deref()) {
            Ok(wanted) => {
                self.flush_live(out);
                self.await_answer(conn);
                self.reader.subscribe(out.outbox(), conn, wanted);
            }
            Err(refusal) => {
                let error = message::error(id.as_deref(), refusal.code, &refusal.detail);
                self.reader.push_frame(out.outbox(), conn, &error);
            }
        }
    }

    fn subscription_asked(
        &self,
        now: Now,
        conn: ConnId,
        object: Value<'_>,
        id: Option<&str>,
    ) -> Result<Wanted, Refusal> {
        if !self.consumes(conn) {
            return Err(Refusal::new(Code::Unauthorized, "an emitter may not subscribe"));
        }
        let invalid = |detail: &'static str| Refusal::new(Code::InvalidFilter, detail);
        let id = id.filter(|id| !id.is_empty()).ok_or_else(|| invalid("id: required, a non-empty string"))?;
        if self.reader.by_id(conn, id).is_some() {
            return Err(invalid("id: already used by a subscription of this connection"));
        }
        let max = self.shared.limits.subscriptions_per_connection_max;
        if self.reader.peer(conn).is_some_and(|peer| peer.subs.len() >= max) {
            let detail = format!("AEP_MAX_SUBSCRIPTIONS: more than {max} subscriptions on one connection");
            return Err(Refusal::new(Code::LimitExceeded, detail));
        }
        let bounds = self.ask_bounds();
        let filter = match object.member("filter") {
            Some(filter) => stream::filter(filter.text.as_bytes(), bounds)?,
            None => Filter::everything(),
        };
        let from = match object.member("from") {
            None => From::Now,
            Some(word) if word.kind == Kind::String => match word.string().as_deref() {
                Some("all") => From::All,
                _ => return Err(invalid(stream::FROM_RULE)),
            },
            // On a WebSocket every fault of a subscribe but an exceeded limit is `invalid-filter` (§6.3).
            Some(positions) => stream::positions(positions, bounds).map_err(as_invalid_filter)?,
        };
        let ceiling = match object.member("capture") {
            None => Capture::Full,
            Some(level) => {
                let level = level.string().ok_or_else(|| invalid("capture: a string"))?;
                stream::capture(&level).map_err(as_invalid_filter)?
            }
        };
        let wanted = Wanted { filter, ceiling, from, live: true, id: Some(id.into()) };
        self.check_weight(now, conn, &wanted)?;
        Ok(wanted)
    }

    /// Whether there is memory for one more subscription, of the connection's share and of all together.
    fn check_weight(&self, now: Now, conn: ConnId, wanted: &Wanted) -> Result<(), Refusal> {
        let weight = wanted.footprint(self.shared.owners.cores());
        let bytes_max = self.shared.limits.connection_remembered_bytes_max();
        if self.reader.peer(conn).is_some_and(|peer| peer.weight + weight > bytes_max) {
            let detail = format!("{bytes_max} bytes: what the subscriptions of one connection may hold together");
            return Err(Refusal::new(Code::LimitExceeded, detail));
        }
        if self.shared.refuses_to_remember(weight, now) {
            return Err(Refusal::new(Code::LimitExceeded, REMEMBERS_TOO_MUCH));
        }
        Ok(())
    }

    fn on_unsubscribe(&mut self, out: &mut dyn Outbox, conn: ConnId, object: Value<'_>) {
        let Some(id) = object.member("id").and_then(Value::string) else {
            let error = message::error(None, Code::InvalidFrame, "id: required, a string");
            self.reader.push_frame(out, conn, &error);
            return;
        };
        if let Some(sub) = self.reader.by_id(conn, &id) {
            self.reader.unsubscribe(out, sub);
        }
        self.reader.push_frame(out, conn, &message::unsubscribed(&id));
    }

    fn on_roster(&mut self, out: &mut dyn Outbox, conn: ConnId, object: Value<'_>) {
        let id = object.member("id").and_then(Value::string);
        let refused = match &id {
            None => Some((Code::InvalidFrame, "id: required, a string")),
            Some(_) if !self.consumes(conn) => Some((Code::Unauthorized, "an emitter may not ask for the roster")),
            Some(_) => None,
        };
        if let Some((code, detail)) = refused {
            self.reader.push_frame(out, conn, &message::error(id.as_deref(), code, detail));
            return;
        }
        let id = id.unwrap_or_default().into();
        self.await_answer(conn);
        self.list_for(conn, Asker::Roster(id));
    }
}

fn as_invalid_filter(refusal: Refusal) -> Refusal {
    match refusal.code {
        Code::LimitExceeded => refusal,
        _ => Refusal { code: Code::InvalidFilter, ..refusal },
    }
}

/// Answers a message that is no proper hello, and closes (§6.1).
fn refuse_hello(out: &mut dyn Outbox, conn: ConnId, fault: HelloFault) {
    let HelloFault { code, detail } = fault;
    let error = match code {
        Code::VersionUnsupported => message::version_unsupported(detail),
        _ => message::error(None, code, detail),
    };
    out.push_always(conn, &error, 0);
    out.close_websocket(conn, WebSocketClose { code: CloseCode::POLICY_VIOLATION.value(), reason: code.as_str() });
}

/// The claim that an event of this party makes or ends (§6.2).
fn claim(party: &mut Party, event: &Event<'_>, conn: ConnId) -> Option<ClaimNote> {
    let hello = party.hello.as_ref()?;
    let session = event.session()?;
    if event.kind() == "session.ended" {
        return party.claims.end(session).then_some(ClaimNote { event: 0, conn, begins: None });
    }
    let claims = hello.role.emits() && event.scope() == Scope::Session;
    let name = claims.then(|| party.claims.begin(session)).flatten()?;
    Some(ClaimNote { event: 0, conn, begins: Some((name, hello.control.clone())) })
}
