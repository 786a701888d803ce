//! What every protocol is made of: the floor between the engine and the protocols.
//!
//! It sees [`engine::service`](crate::engine::service), `wire`, `base`, `limits` and `ops::metrics`: no protocol,
//! nothing else of the engine. Each file is a mechanism that judges nothing: what a value means, who may wait for what,
//! and what is said to whom is its protocol's, which hands in its own types. What only one protocol needs stays in that
//! protocol.
//!
//! What follows is for who writes a protocol: a [`Protocol`], which the gateway composes with others into the engine's
//! [`Service`]. Behind each rule stands what guards it: a test (`file::name`), or an assertion of debug builds in its
//! own words.
//!
//! | file | is for |
//! |---|---|
//! | [`routes`] | the paths of a protocol: patterns, methods, who may ask |
//! | [`shares`] | which lanes of runs and which pace group each protocol has |
//! | [`binding`] | the bytes of one message on an event stream or a WebSocket |
//! | [`run_group`] | connections that get the same runs, one push per member and turn |
//! | [`paging`] | one page outstanding, the next when the socket has drained, then live |
//! | [`by_conn`] | a value per connection |
//! | [`owners`] | name → core that owns it, sets of cores |
//! | [`barrier`] | who waits until all that was handed over is acknowledged |
//! | [`gather`] | an answer of which every core has a part |
//! | [`inflow`] | mail that waits for its turn |
//!
//! A new protocol is a [`Protocol`], a row of [`shares`], and in `server.rs` a value in place of an `Absent`
//! (`Protocols::new`); what its answers are counted under are rows of `ops/metrics/labels.rs`. Examples:
//! `simulation/notes` (streams and bodies), `simulation/chat` (WebSockets), and `tests/engine/three/protocols.rs`,
//! where two run beside each other.
//!
//! # Input and answers
//!
//! - A connection's input arrives in order. After [`Verdict::Later`], or [`Flow::Park`], nothing more of that
//!   connection is handed over until it was answered, or resumed; what it sent meanwhile waits in the kernel and in a
//!   bounded buffer. `engine/http::pipelined_requests_are_answered_in_order_on_one_connection`,
//!   `engine/websocket::a_parked_connection_goes_on_where_it_stopped`.
//! - [`Outbox::resume`] before the call that returns [`Flow::Park`] is over cancels that park.
//!   `engine/traps::a_resume_before_the_park_cancels_it`.
//! - Each request has exactly one answer: the verdict, or one of [`Outbox::respond`] and [`Outbox::open_event_stream`].
//!   "a request is answered once". One that is never answered keeps its connection until the drain finds it: "a
//!   quiescent service has answered every request";
//!   `engine/traps::an_answer_that_never_comes_is_found_when_the_service_is_quiescent`.
//! - What holds for whatever answers a request ([`Service::terms`]) is stated once, with its head: the fields of
//!   cross-origin rules, and what the answer is counted under. Nobody repeats it, and no answer is counted elsewhere.
//!   `engine/http::the_terms_of_a_request_hold_for_whatever_answers_it`.
//! - What the engine refuses is asked of the service ([`Service::refusal`]), with the connection if the service has
//!   heard of the request. `engine/http::a_refusal_names_the_connection_whose_request_the_service_has_heard`.
//! - An answer has the fields that the protocol gives it, and those of the framing: nobody adds a `Content-Type`.
//! - [`Outbox::respond`] to a connection that is closing is a no-op: its answer has become needless, or the engine has
//!   refused the request. A peer that has ended its own side is served to the end of its answer, and of its stream.
//!   `sse::a_client_that_ended_its_side_and_then_left_is_forgotten`.
//! - [`Outbox::open_event_stream`] may be called at once, within [`Service::on_request`], which then returns
//!   [`Verdict::Later`]. When it returns the stream is open and takes pushes. `first`, `heartbeat` and the `last` of
//!   [`Outbox::end_event_stream`] are plain messages, which the engine frames.
//! - Only WebSockets are parked ([`Flow::Park`]): a request waits for its answer anyway.
//!
//! # Pushes
//!
//! - How a message of a stream is framed depends on the version of its request: `StreamFraming::of(head.version)`, kept
//!   as a [`binding::Binding`]. Consumers of the same messages that differ in this get different runs, on different
//!   lanes. `binding::a_message_is_whole_in_every_binding_and_bears_id_and_kind_on_event_streams_alone`.
//! - Every push, and every run, consists of whole WebSocket frames, or of whole messages framed for the stream, so that
//!   a queue can be cut between two of them. They leave in the order of the pushes, each whole or not at all.
//!   `write_queue::a_cut_leaves_whole_messages_only`,
//!   `engine/websocket::a_websocket_that_is_cut_ends_with_whole_frames`.
//! - A run is pushed in the turn that wrote it, otherwise it is [`Pushed::Stale`]; to how many connections is the
//!   service's affair. `engine/traps::a_run_kept_past_its_turn_is_not_queued`.
//! - A [`Lane`] is where runs are written one behind the other. In a queue, runs that lie side by side become one
//!   piece, so what different sets of connections get needs different lanes, or they would never lie side by side. A
//!   *mark* tells later how far a queue has got: pushes whose marks advance by their length, or stay, may come back
//!   joined. `write_queue::adjacent_runs_of_two_streams_stay_apart`.
//! - [`Pushed::Full`] queues nothing, and nothing happens by itself: the protocol waits ([`Outbox::notify_drained`]),
//!   drops what is to be dropped and says so later, or cuts ([`Outbox::cut`]). [`Service::on_overflow`] is another
//!   thing: all queues of the process together are over their bound, and this connection's is the largest. Who does not
//!   cut it then has it cut without a word.
//! - A push to a connection that has no stream or WebSocket yet is [`Pushed::NotOpen`]. A WebSocket opens when the call
//!   that returns [`Verdict::Upgrade`] is over, so within that call, too.
//!   `engine/traps::a_push_before_there_is_a_stream_says_so`.
//! - [`Outbox::push_always`] has no bound: who uses it bounds what it sends, or counts it elsewhere.
//!   [`Outbox::queued_bytes`] counts everything unsent: also heads, pongs and heartbeats, which no push of the service
//!   has brought, so it is never a measure of one's own pushes; [`Outbox::unsent`] tells them apart, for their mark is
//!   0.
//!
//! # Whose connection it is
//!
//! - A protocol brings its paths ([`Protocol::paths`]), each method with who may ask ([`routes::Auth`]); what it hears
//!   of is known and permitted. What stands in a variable segment comes as it was sent, still encoded.
//!   `engine/three::a_path_says_who_may_ask`.
//! - A connection belongs to one protocol from its request on, and every call about it goes there and nowhere else. The
//!   next request of a kept connection may be for another: keep nothing of an HTTP connection beyond its answer. Its
//!   end is told to the protocol it asked last, to none if it asked the gateway.
//!   `engine/three::each_protocol_hears_its_own_connections_only`,
//!   `engine/three::a_kept_connection_belongs_to_the_protocol_it_asked_last`.
//! - What is refused once the path is known has the protocol's own form ([`Protocol::refusal`]), also where the engine
//!   finds it in a body; what is refused before that has the gateway's.
//!   `engine/three::what_the_engine_refuses_has_the_form_of_its_protocol_and_the_fields_of_its_request`.
//! - Turns are shared: a protocol that never rests keeps the core from sleeping, and one that is never quiescent makes
//!   the drain of all fail. `engine/three::a_drain_ends_all_three`.
//! - Lanes, pace and ingest mail are not. Each protocol has a row of [`shares`]: the lanes of runs that are its own,
//!   and the group its connections ([`EventStreamOpen`], [`WebSocketUpgrade`]), its publishers ([`Outbox::admits`],
//!   [`Outbox::admitted`]) and its mail ([`Mail::group`]) are in. A connection that needs time slows down its own
//!   group, and ingest mail that is not taken holds up no other's. `shares::a_lane_of_another_is_refused`,
//!   `engine/pacing::a_slow_reader_of_one_group_changes_nothing_for_publishers_of_another`,
//!   `engine/pacing::mail_that_is_not_taken_holds_up_no_other_groups_and_no_core_spins`.
//!
//! # A turn
//!
//! In this order: due alarms; requests, bodies and messages; ends of connections; mail, fan-out before ingest;
//! [`Service::on_turn`]; the flush. Mail and `on_turn` come again where the service sent its own core mail and has no
//! work left. *Behind the flush* come alarms of connections that had something to read or write first, then
//! [`Service::on_drained`], [`Service::on_overflow`] and further ends.
//!
//! - `on_turn` follows every other call, in the same turn or in the next one, which then comes without sleeping. What
//!   is kept for `on_turn` by a call behind the flush is done in another turn: a run written there must be pushed
//!   there. `engine/traps::an_overflow_is_followed_by_a_turn_without_sleeping`. [`Service::on_goodbye`] alone is
//!   followed only by itself.
//! - Never block, and bound the work of one call: what is left is [`Work::Left`]. `turn_seconds` of the metrics tells.
//! - Who waits for room ([`Outbox::admits`], [`Post::ingest_room`]) returns [`Work::Held`], also for a socket it has
//!   parked, and asks again itself in the next `on_turn`: room comes on other cores, and nobody is woken. With
//!   [`Work::Idle`] the core sleeps until something happens to it, if need be for ever. Nothing can assert this: only
//!   the service knows for what it waits.
//! - While [`Service::takes_ingest`] says no and mail of that group waits, the core looks again after a millisecond,
//!   whatever `on_turn` returned. `engine/traps::a_core_whose_service_takes_no_ingest_looks_again_and_does_not_spin`.
//! - What is due and is no connection's: [`Service::next_deadline`] is asked before the core sleeps, and `on_turn`
//!   follows when it has come, never early and at most a tick late.
//!   `engine/deadlines::a_deadline_without_a_connection_wakes_an_idle_core_for_itself_alone`.
//!
//! # Mail
//!
//! - *Ingest* (core to owner) is what sockets cause. Who sends asks [`Post::ingest_room`] first, in the same turn, and
//!   without room parks the socket: "mail that sockets cause asks for room first". *Fan-out* (owner to core) ends in
//!   write queues and never waits. So no two cores wait for each other.
//! - What an owner fans out is bounded at its source: an event is taken in only if the group [`Outbox::admits`] it
//!   *and* the owner's lane has [`Post::ingest_room`]; the lesser of both counts. `admits` tells of consumers that need
//!   time, and of fan-out mail that some core has not taken. [`Admits::Everything`] is needed by who publishes much,
//!   [`Admits::Little`] is enough for who has published little of late; with [`Admits::Nothing`] all wait. Who took
//!   events in says so once ([`Outbox::admitted`]), when it hands them to their owner, with their bytes: while
//!   consumers need time, this is what the group's pace is measured by.
//!   `pace::who_publishes_little_may_go_on_for_longer`.
//! - *Reserved* is the room of mail that answers mail, and of what a connection has at most one of under way. It asks
//!   nobody: [`Post::mail_ingest_reserved`], [`Post::mail_fanout_reserved`]. An answer takes the other lane than its
//!   question: what an owner answers is fan-out, what a core answers an owner is ingest. Mail that weighs nothing is
//!   never held back for its weight. `engine/pacing::mail_that_breaks_the_rules_of_its_lane_is_found`.
//! - Of fan-out mail a turn takes all that is there when it looks, of ingest mail some hundred letters; what comes
//!   meanwhile waits. `mailbox::no_more_is_taken_than_was_there`.
//! - Mail of one lane from one core to another arrives in the order it was sent, to the own core as well. There is no
//!   order between the lanes, nor between mail to the own core and a call that does the same at once: who shortens that
//!   way takes it for all mail that has to stay in order. `mailbox::mail_keeps_its_order_and_its_end`.
//! - A thread that is no core sends with a [`Poster`], which the composition root hands out before the cores start;
//!   such mail is from [`CoreId::OUTSIDE`], and what comes before the start waits for it, as clients do. It asks for
//!   room as everybody does. Its order is the thread's, within a lane. The root starts it with [`spawn`]: a panic on it
//!   ends the process. No lane's end waits for it: who needs its answer is not quiescent before that has come, and what
//!   a core has not taken when it ends is lost.
//!   `engine/posts::letters_of_another_thread_arrive_in_order_and_wait_where_there_is_no_room`,
//!   `engine/posts::who_waits_for_room_of_a_core_waits_no_longer_than_it_lives`.
//! - It is counted with the weight it had when it was sent; [`Mail::weight`] is asked once.
//!   `mailbox::mail_leaves_with_the_weight_it_came_with`.
//!
//! # The end of a connection
//!
//! - *Open* until the service, the peer or a fault ends it. Then *finishing*: what is queued is the last, and is still
//!   written; a push is [`Pushed::Gone`], input is thrown away. Then *lingering*: everything is written, the peer's end
//!   is awaited. Both last seconds at most, unless the peer goes on reading. A WebSocket that closes is as good as
//!   finishing from its close frame on. `engine/websocket::our_close_waits_for_the_peers`.
//! - [`Service::on_closing`] comes exactly once, within a turn of when nothing more is taken from or for the
//!   connection: a close frame read, a cut, a fault, a body refused with 413 or 408, a drain; at the latest right
//!   before `on_gone`. It never comes within the call that ends the connection ([`Outbox::end_event_stream`],
//!   [`Outbox::cut`]), but later in the turn.
//!   `engine/endings::every_connection_that_asked_is_told_of_twice_and_no_request_for_itself`.
//! - [`Service::on_gone`] comes when all that is over, exactly once for each connection seen through
//!   [`Service::on_request`]: once per connection, not per request. From then on its [`ConnId`] is dead and every call
//!   with it a no-op. `engine/http::a_client_that_vanishes_leaves_nothing_behind`.
//! - A connection has one alarm. It ends with Open: one that is set is forgotten, and [`Outbox::arm`] does nothing.
//!   What must be done about a connection at some time is done in `on_gone` at the latest.
//! - An alarm never comes early, and up to a tick of the timer wheel late, or later where the connection has something
//!   to read or write first. `timer_wheel::never_early_and_less_than_a_tick_late`. To move it further away costs
//!   nothing, since its entry in the wheel is looked at when it comes and goes back in. [`Outbox::disarm`] leaves that
//!   entry until its time, too: so keep one alarm that is moved, not one for each thing that may be settled earlier.
//! - Of a body that was asked for and refused with 413 or 408 nothing comes to [`Service::on_body`]. What was kept for
//!   it is let go in [`Service::on_closing`], which follows.
//!
//! # A drain
//!
//! - [`Service::on_drain`] comes first. Then no request and no message is handed over, whereas everything else goes on:
//!   bodies in flight, mail, alarms, drained queues, overflows, ends, `on_turn`.
//!   `engine/drain::a_body_in_flight_comes_to_its_end_and_a_new_request_is_refused`.
//! - A body under way is counted by the engine until [`Service::on_body`]; from then on the protocol counts it, and is
//!   not quiescent ([`Service::is_quiescent`]) before it is answered. A drain closes no connection that awaits its
//!   answer.
//! - A core that has no work left and whose service is quiescent ends its ingest lane: it sends nothing more into it
//!   but answers. Once all have done so, each core ends its fan-out lane in the same way as soon as it rests. Each
//!   happens once. Behind an end come only answers to cores that wait for them, sent as reserved mail: "a lane ends
//!   behind all mail that is no answer". Who needs such an answer is not quiescent before it has come; an answer that
//!   nobody waits for may be lost.
//! - When all lanes have ended, [`Service::on_goodbye`] comes, again and again until it returns [`Work::Idle`]; what it
//!   does not close the engine closes then. `engine/drain::everybody_is_told`.
//! - A service that is never quiescent, or never idle, makes the drain fail at its time. What is then queued is lost,
//!   and `on_gone` does not come.
//!
//! # Under one seed
//!
//! `simulation/` drives any protocol without sockets, on several cores, in the worst order that all this allows. A
//! protocol brings a world: who asks for what, and what must come back. `simulation::notes` and `simulation::chat` are
//! small ones.
//!
//! [`CoreId::OUTSIDE`]: crate::engine::service::CoreId::OUTSIDE
//! [`Poster`]: crate::engine::Poster
//! [`spawn`]: crate::engine::spawn
//! [`ConnId`]: crate::engine::service::ConnId
//! [`Admits::Everything`]: crate::engine::service::Admits::Everything
//! [`Admits::Little`]: crate::engine::service::Admits::Little
//! [`Admits::Nothing`]: crate::engine::service::Admits::Nothing
//! [`Outbox::cut`]: crate::engine::service::Outbox::cut
//! [`Outbox::end_event_stream`]: crate::engine::service::Outbox::end_event_stream
//! [`Outbox::notify_drained`]: crate::engine::service::Outbox::notify_drained
//! [`Pushed::Full`]: crate::engine::service::Pushed::Full
//! [`Flow::Park`]: crate::engine::service::Flow::Park
//! [`EventStreamOpen`]: crate::engine::service::EventStreamOpen
//! [`Lane`]: crate::engine::service::Lane
//! [`Mail::group`]: crate::engine::service::Mail::group
//! [`Mail::weight`]: crate::engine::service::Mail::weight
//! [`Outbox::admits`]: crate::engine::service::Outbox::admits
//! [`Outbox::arm`]: crate::engine::service::Outbox::arm
//! [`Outbox::disarm`]: crate::engine::service::Outbox::disarm
//! [`Outbox::admitted`]: crate::engine::service::Outbox::admitted
//! [`Post::ingest_room`]: crate::engine::service::Post::ingest_room
//! [`Post::mail_fanout_reserved`]: crate::engine::service::Post::mail_fanout_reserved
//! [`Post::mail_ingest_reserved`]: crate::engine::service::Post::mail_ingest_reserved
//! [`WebSocketUpgrade`]: crate::engine::service::WebSocketUpgrade
//! [`Outbox::open_event_stream`]: crate::engine::service::Outbox::open_event_stream
//! [`Outbox::push_always`]: crate::engine::service::Outbox::push_always
//! [`Outbox::queued_bytes`]: crate::engine::service::Outbox::queued_bytes
//! [`Outbox::respond`]: crate::engine::service::Outbox::respond
//! [`Outbox::resume`]: crate::engine::service::Outbox::resume
//! [`Outbox::unsent`]: crate::engine::service::Outbox::unsent
//! [`Pushed::Gone`]: crate::engine::service::Pushed::Gone
//! [`Pushed::NotOpen`]: crate::engine::service::Pushed::NotOpen
//! [`Pushed::Stale`]: crate::engine::service::Pushed::Stale
//! [`Service`]: crate::engine::service::Service
//! [`Service::is_quiescent`]: crate::engine::service::Service::is_quiescent
//! [`Service::next_deadline`]: crate::engine::service::Service::next_deadline
//! [`Service::on_closing`]: crate::engine::service::Service::on_closing
//! [`Service::admits`]: crate::engine::service::Service::admits
//! [`Service::on_alarm`]: crate::engine::service::Service::on_alarm
//! [`Service::on_body`]: crate::engine::service::Service::on_body
//! [`Service::on_mail`]: crate::engine::service::Service::on_mail
//! [`Service::on_message`]: crate::engine::service::Service::on_message
//! [`Service::on_drain`]: crate::engine::service::Service::on_drain
//! [`Service::on_drained`]: crate::engine::service::Service::on_drained
//! [`Service::on_gone`]: crate::engine::service::Service::on_gone
//! [`Service::on_goodbye`]: crate::engine::service::Service::on_goodbye
//! [`Service::on_overflow`]: crate::engine::service::Service::on_overflow
//! [`Service::on_request`]: crate::engine::service::Service::on_request
//! [`Service::on_turn`]: crate::engine::service::Service::on_turn
//! [`Service::refusal`]: crate::engine::service::Service::refusal
//! [`Service::takes_ingest`]: crate::engine::service::Service::takes_ingest
//! [`Service::terms`]: crate::engine::service::Service::terms
//! [`Verdict::Later`]: crate::engine::service::Verdict::Later
//! [`Verdict::Upgrade`]: crate::engine::service::Verdict::Upgrade
//! [`Work::Held`]: crate::engine::service::Work::Held
//! [`Work::Idle`]: crate::engine::service::Work::Idle
//! [`Work::Left`]: crate::engine::service::Work::Left

pub mod barrier;
pub mod binding;
pub mod by_conn;
pub mod gather;
pub mod inflow;
pub mod owners;
pub mod paging;
pub mod routes;
pub mod run_group;
pub mod shares;
#[cfg(test)]
pub(crate) mod simulation;

#[cfg(doc)]
use crate::engine::service::Service;

use crate::base::time::Deadline;
use crate::engine::service::{
    Admits, ConnId, CoreId, Ending, Flow, Group, HttpFault, Mail, Message, Post, Response, Verdict, Work,
};
use crate::wire::http1::RequestHead;
use crate::wire::json::ObjectWriter;
use crate::wire::url::Target;

use routes::Path;

/// One protocol on one core. The gateway composes several of them into one [`Service`], finds a request's path in their
/// tables and checks who may make it; from then on the connection belongs to that protocol, until its next request or
/// its end. What is not told here is told of the service's call of that name. What comes only to who asked for it, and
/// what only some have to say, need not be written.
pub trait Protocol {
    /// What the cores' parts of it send one another.
    type Mail: Mail;
    /// What requests may be for.
    type Endpoint: Copy + 'static;

    /// Its paths. No two protocols have the same.
    fn paths(&self) -> &'static [Path<Self::Endpoint>];

    /// A request for one of its endpoints, whose maker may make it.
    fn on_request(
        &mut self,
        out: &mut dyn Post<Self::Mail>,
        conn: ConnId,
        endpoint: Self::Endpoint,
        request: &Request<'_>,
    ) -> Verdict;

    /// The answer to a request of one of its paths that is not served, in its own form.
    fn refusal(&self, refused: Refused) -> Response;

    /// Writes what `/healthz` tells of it to who may know.
    fn health(&self, members: &mut ObjectWriter);

    /// See [`Service::on_body`]. To be written by who returns [`Verdict::ReadBody`].
    fn on_body(&mut self, _out: &mut dyn Post<Self::Mail>, _conn: ConnId, _tag: u32, _body: Vec<u8>) {
        debug_assert!(false, "who asks for a body takes it");
    }
    /// See [`Service::on_message`]. To be written by who returns [`Verdict::Upgrade`].
    fn on_message(&mut self, _out: &mut dyn Post<Self::Mail>, _conn: ConnId, _message: Message<'_>) -> Flow {
        debug_assert!(false, "who upgrades to a WebSocket takes its messages");
        Flow::Continue
    }
    /// See [`Service::on_drained`].
    fn on_drained(&mut self, _out: &mut dyn Post<Self::Mail>, _conn: ConnId) {}
    /// See [`Service::on_overflow`].
    fn on_overflow(&mut self, _out: &mut dyn Post<Self::Mail>, _conn: ConnId) {}
    /// See [`Service::on_alarm`].
    fn on_alarm(&mut self, _out: &mut dyn Post<Self::Mail>, _conn: ConnId) {}
    /// In which group its connections and publishers are paced: that of its row in [`shares`].
    fn group(&self) -> Group;
    /// See [`Service::takes_ingest`].
    fn takes_ingest(&self) -> bool {
        true
    }
    /// See [`Service::admits`].
    fn admits(&self) -> Admits {
        Admits::Everything
    }
    /// See [`Service::on_mail`].
    fn on_mail(&mut self, out: &mut dyn Post<Self::Mail>, from: CoreId, mail: Self::Mail);
    /// See [`Service::on_turn`].
    fn on_turn(&mut self, out: &mut dyn Post<Self::Mail>) -> Work;
    /// See [`Service::next_deadline`].
    fn next_deadline(&self) -> Option<Deadline> {
        None
    }
    /// See [`Service::on_closing`]: of a connection that belongs to it.
    fn on_closing(&mut self, _out: &mut dyn Post<Self::Mail>, _conn: ConnId) {}
    /// See [`Service::on_gone`]: of a connection that belongs to it.
    fn on_gone(&mut self, out: &mut dyn Post<Self::Mail>, conn: ConnId, ending: Ending);
    /// See [`Service::on_drain`].
    fn on_drain(&mut self, _out: &mut dyn Post<Self::Mail>) {}
    /// See [`Service::is_quiescent`].
    fn is_quiescent(&self) -> bool;
    /// See [`Service::on_goodbye`].
    fn on_goodbye(&mut self, out: &mut dyn Post<Self::Mail>) -> Work;
}

/// A request as a protocol hears of it.
#[derive(Debug)]
pub struct Request<'a> {
    /// Its head.
    pub head: &'a RequestHead<'a>,
    /// Its target, taken apart.
    pub target: Target<'a>,
    /// What stands in the path's variable segment, as it came.
    pub segment: Option<&'a str>,
    /// It comes from a page that may not open a WebSocket here.
    pub is_foreign: bool,
}

/// Why a request of a known path is not served, before its protocol has heard of it or because of what the engine
/// found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// 405. The gateway adds `Allow`.
    Method,
    /// 401. The gateway adds `WWW-Authenticate`.
    Unauthorized,
    /// 403: it needs a token, and none is configured.
    Forbidden,
    /// What the engine found while it read the body, or waited for it.
    Fault(HttpFault),
}
