//! Several protocols as one: which of them a connection belongs to, and what all of them together say.
//!
//! Invariants: a connection belongs to at most one protocol, the one its last request was for, and every call about it
//! goes there and nowhere else. What is kept for that is one byte and a generation per connection, however many
//! protocols there are.

use crate::base::time::Deadline;
use crate::engine::service::{
    Admits, ConnId, CoreId, Ending, Flow, Group, HttpFault, Mail, Message, Outbox, Post, Response, Verdict, Work,
};
use crate::ops::metrics;
use crate::protocol::by_conn::ByConn;
use crate::protocol::routes::{self, Match, Path};
use crate::protocol::{Protocol, Refused, Request};
use crate::wire::json::ObjectWriter;

/// One of three, each of its own kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneOf<A, B, C> {
    /// The first protocol's.
    First(A),
    /// The second one's.
    Second(B),
    /// The third one's.
    Third(C),
}

impl<A: Mail, B: Mail, C: Mail> Mail for OneOf<A, B, C> {
    fn weight(&self) -> usize {
        match self {
            Self::First(mail) => mail.weight(),
            Self::Second(mail) => mail.weight(),
            Self::Third(mail) => mail.weight(),
        }
    }

    fn group(&self) -> Group {
        match self {
            Self::First(mail) => mail.group(),
            Self::Second(mail) => mail.group(),
            Self::Third(mail) => mail.group(),
        }
    }
}

/// The mail of all.
type MailOf<A, B, C> = OneOf<<A as Protocol>::Mail, <B as Protocol>::Mail, <C as Protocol>::Mail>;
/// The endpoints of all.
pub(super) type EndpointOf<A, B, C> =
    OneOf<<A as Protocol>::Endpoint, <B as Protocol>::Endpoint, <C as Protocol>::Endpoint>;

/// Which protocol a connection belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    First,
    Second,
    Third,
}

/// The protocols of one core.
#[derive(Debug)]
pub struct Protocols<A, B, C> {
    first: A,
    second: B,
    third: C,
    belongs: ByConn<Which>,
}

/// The post of one protocol on that of all.
struct Wrapping<'a, M, W> {
    post: &'a mut dyn Post<W>,
    wrap: fn(M) -> W,
}

impl<M, W> Post<M> for Wrapping<'_, M, W> {
    fn outbox(&mut self) -> &mut dyn Outbox {
        self.post.outbox()
    }

    fn out(&self) -> &dyn Outbox {
        self.post.out()
    }

    fn mail_ingest(&mut self, to: CoreId, mail: M) {
        self.post.mail_ingest(to, (self.wrap)(mail));
    }

    fn mail_fanout(&mut self, to: CoreId, mail: M) {
        self.post.mail_fanout(to, (self.wrap)(mail));
    }

    fn mail_ingest_reserved(&mut self, to: CoreId, mail: M) {
        self.post.mail_ingest_reserved(to, (self.wrap)(mail));
    }

    fn mail_fanout_reserved(&mut self, to: CoreId, mail: M) {
        self.post.mail_fanout_reserved(to, (self.wrap)(mail));
    }

    fn ingest_room(&self, to: CoreId, group: Group) -> Admits {
        self.post.ingest_room(to, group)
    }
}

/// Calls one protocol, or each of them, with its own post.
macro_rules! call {
    ($self:ident.$protocol:ident.$method:ident($out:ident as $wrap:path $(, $argument:expr)*)) => {
        $self.$protocol.$method(&mut Wrapping { post: $out, wrap: $wrap } $(, $argument)*)
    };
    ($self:ident[$which:expr].$method:ident($out:ident $(, $argument:expr)*)) => {
        match $which {
            Which::First => call!($self.first.$method($out as OneOf::First $(, $argument)*)),
            Which::Second => call!($self.second.$method($out as OneOf::Second $(, $argument)*)),
            Which::Third => call!($self.third.$method($out as OneOf::Third $(, $argument)*)),
        }
    };
}

impl<A: Protocol, B: Protocol, C: Protocol> Protocols<A, B, C> {
    /// These three, no connection yet.
    #[must_use]
    pub fn new(first: A, second: B, third: C) -> Self {
        Self { first, second, third, belongs: ByConn::default() }
    }

    /// What their tables make of a path and a method.
    pub(super) fn find<'a>(&self, path: &'a str, method: &str) -> Option<Match<'a, EndpointOf<A, B, C>>> {
        let first = routes::find(self.first.paths(), path, method).map(|found| found.map(OneOf::First));
        first
            .or_else(|| routes::find(self.second.paths(), path, method).map(|found| found.map(OneOf::Second)))
            .or_else(|| routes::find(self.third.paths(), path, method).map(|found| found.map(OneOf::Third)))
    }

    /// What answers to requests of that path are counted under.
    pub(super) fn label(&self, path: &str) -> Option<metrics::Endpoint> {
        let first = routes::label(self.first.paths(), path);
        first.or_else(|| routes::label(self.second.paths(), path)).or_else(|| routes::label(self.third.paths(), path))
    }

    /// The protocol that knows the path refuses the request.
    pub(super) fn refuse(&self, path: &str, refused: Refused) -> Option<Response> {
        fn knows<E: Copy>(paths: &'static [Path<E>], path: &str) -> bool {
            routes::label(paths, path).is_some()
        }
        if knows(self.first.paths(), path) {
            Some(self.first.refusal(refused))
        } else if knows(self.second.paths(), path) {
            Some(self.second.refusal(refused))
        } else {
            knows(self.third.paths(), path).then(|| self.third.refusal(refused))
        }
    }

    /// The protocol that the connection belongs to refuses its request.
    pub(super) fn refuse_of(&self, conn: ConnId, fault: HttpFault) -> Option<Response> {
        self.belongs.get(conn).map(|which| match which {
            Which::First => self.first.refusal(Refused::Fault(fault)),
            Which::Second => self.second.refusal(Refused::Fault(fault)),
            Which::Third => self.third.refusal(Refused::Fault(fault)),
        })
    }

    pub(super) fn health(&self, members: &mut ObjectWriter) {
        self.first.health(members);
        self.second.health(members);
        self.third.health(members);
    }

    // ── one connection's ──

    /// The connection belongs to none of them while its present request is answered.
    pub(super) fn release(&mut self, conn: ConnId) {
        self.belongs.remove(conn);
    }

    /// The connection belongs to the protocol of this endpoint from now on.
    pub(super) fn on_request(
        &mut self,
        out: &mut dyn Post<MailOf<A, B, C>>,
        conn: ConnId,
        endpoint: EndpointOf<A, B, C>,
        request: &Request<'_>,
    ) -> Verdict {
        match endpoint {
            OneOf::First(endpoint) => {
                self.belongs.insert(conn, Which::First);
                call!(self.first.on_request(out as OneOf::First, conn, endpoint, request))
            }
            OneOf::Second(endpoint) => {
                self.belongs.insert(conn, Which::Second);
                call!(self.second.on_request(out as OneOf::Second, conn, endpoint, request))
            }
            OneOf::Third(endpoint) => {
                self.belongs.insert(conn, Which::Third);
                call!(self.third.on_request(out as OneOf::Third, conn, endpoint, request))
            }
        }
    }

    pub(super) fn on_body(&mut self, out: &mut dyn Post<MailOf<A, B, C>>, conn: ConnId, tag: u32, body: Vec<u8>) {
        if let Some(&which) = self.belongs.get(conn) {
            call!(self[which].on_body(out, conn, tag, body));
        }
    }

    pub(super) fn on_message(
        &mut self,
        out: &mut dyn Post<MailOf<A, B, C>>,
        conn: ConnId,
        message: Message<'_>,
    ) -> Flow {
        let Some(&which) = self.belongs.get(conn) else { return Flow::Continue };
        call!(self[which].on_message(out, conn, message))
    }

    pub(super) fn on_drained(&mut self, out: &mut dyn Post<MailOf<A, B, C>>, conn: ConnId) {
        if let Some(&which) = self.belongs.get(conn) {
            call!(self[which].on_drained(out, conn));
        }
    }

    pub(super) fn on_overflow(&mut self, out: &mut dyn Post<MailOf<A, B, C>>, conn: ConnId) {
        if let Some(&which) = self.belongs.get(conn) {
            call!(self[which].on_overflow(out, conn));
        }
    }

    pub(super) fn on_alarm(&mut self, out: &mut dyn Post<MailOf<A, B, C>>, conn: ConnId) {
        if let Some(&which) = self.belongs.get(conn) {
            call!(self[which].on_alarm(out, conn));
        }
    }

    pub(super) fn on_closing(&mut self, out: &mut dyn Post<MailOf<A, B, C>>, conn: ConnId) {
        if let Some(&which) = self.belongs.get(conn) {
            call!(self[which].on_closing(out, conn));
        }
    }

    pub(super) fn on_gone(&mut self, out: &mut dyn Post<MailOf<A, B, C>>, conn: ConnId, ending: Ending) {
        if let Some(which) = self.belongs.remove(conn) {
            call!(self[which].on_gone(out, conn, ending));
        }
    }

    pub(super) fn on_mail(&mut self, out: &mut dyn Post<MailOf<A, B, C>>, from: CoreId, mail: MailOf<A, B, C>) {
        match mail {
            OneOf::First(mail) => call!(self.first.on_mail(out as OneOf::First, from, mail)),
            OneOf::Second(mail) => call!(self.second.on_mail(out as OneOf::Second, from, mail)),
            OneOf::Third(mail) => call!(self.third.on_mail(out as OneOf::Third, from, mail)),
        }
    }

    // ── each group's ──

    pub(super) fn takes_ingest(&self, group: Group) -> bool {
        let Self { first, second, third, .. } = self;
        (first.group() != group || first.takes_ingest())
            && (second.group() != group || second.takes_ingest())
            && (third.group() != group || third.takes_ingest())
    }

    pub(super) fn admits(&self, group: Group) -> Admits {
        fn of<P: Protocol>(protocol: &P, group: Group) -> Admits {
            if protocol.group() == group { protocol.admits() } else { Admits::Everything }
        }
        of(&self.first, group).min(of(&self.second, group)).min(of(&self.third, group))
    }

    // ── all together ──

    pub(super) fn on_turn(&mut self, out: &mut dyn Post<MailOf<A, B, C>>) -> Work {
        let first = call!(self.first.on_turn(out as OneOf::First));
        let second = call!(self.second.on_turn(out as OneOf::Second));
        let third = call!(self.third.on_turn(out as OneOf::Third));
        first.and(second).and(third)
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let all = [self.first.next_deadline(), self.second.next_deadline(), self.third.next_deadline()];
        all.into_iter().flatten().min()
    }

    pub(super) fn on_drain(&mut self, out: &mut dyn Post<MailOf<A, B, C>>) {
        call!(self.first.on_drain(out as OneOf::First));
        call!(self.second.on_drain(out as OneOf::Second));
        call!(self.third.on_drain(out as OneOf::Third));
    }

    pub(super) fn is_quiescent(&self) -> bool {
        self.first.is_quiescent() && self.second.is_quiescent() && self.third.is_quiescent()
    }

    pub(super) fn on_goodbye(&mut self, out: &mut dyn Post<MailOf<A, B, C>>) -> Work {
        let first = call!(self.first.on_goodbye(out as OneOf::First));
        let second = call!(self.second.on_goodbye(out as OneOf::Second));
        let third = call!(self.third.on_goodbye(out as OneOf::Third));
        first.and(second).and(third)
    }
}
