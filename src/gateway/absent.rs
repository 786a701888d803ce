//! The place of a protocol that does not run: it has no path, so it hears of no connection, and it sends no mail.

use std::convert::Infallible;

use crate::engine::service::{ConnId, CoreId, Ending, Group, Mail, Post, Response, Verdict, Work};
use crate::protocol::routes::Path;
use crate::protocol::{Protocol, Refused, Request};
use crate::wire::http1::answer::json_response;
use crate::wire::json::ObjectWriter;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Absent;

/// Mail that cannot be.
#[derive(Debug)]
pub enum NoMail {}

impl Mail for NoMail {
    fn weight(&self) -> usize {
        match *self {}
    }

    fn group(&self) -> Group {
        match *self {}
    }
}

type Out<'a> = &'a mut dyn Post<NoMail>;

impl Protocol for Absent {
    type Mail = NoMail;
    type Endpoint = Infallible;

    fn paths(&self) -> &'static [Path<Infallible>] {
        &[]
    }

    fn on_request(&mut self, _: Out<'_>, _: ConnId, endpoint: Infallible, _: &Request<'_>) -> Verdict {
        match endpoint {}
    }

    fn refusal(&self, _: Refused) -> Response {
        debug_assert!(false, "without a path nothing is refused");
        json_response(503, Vec::new(), &b"{}"[..])
    }

    fn on_mail(&mut self, _: Out<'_>, _: CoreId, mail: NoMail) {
        match mail {}
    }

    fn group(&self) -> Group {
        Group(0)
    }

    fn on_turn(&mut self, _: Out<'_>) -> Work {
        Work::Idle
    }

    fn is_quiescent(&self) -> bool {
        true
    }

    fn on_goodbye(&mut self, _: Out<'_>) -> Work {
        Work::Idle
    }

    fn health(&self, _: &mut ObjectWriter) {}
    fn on_gone(&mut self, _: Out<'_>, _: ConnId, _: Ending) {}
}
