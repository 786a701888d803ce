//! The HTTP half of a connection: bytes in, requests and bodies out. Sans-IO.
//!
//! Owns where a connection stands between two requests and how the present request is to be answered. It knows no
//! socket, no service and no clock; its driver (`core/input.rs`) calls the service, sends what is due and keeps the
//! deadlines.
//!
//! ```text
//! Head ──request──▶ Answer ──read_body──▶ Body ──complete──▶ Answer ──answer──▶ Head
//!                     └──────answer, content unread──────▶ Discard ──complete──┘
//! ```
//! - One request at a time: in `Answer` nothing is read, so answers leave in order and pipelined input is bounded by
//!   what one read brings.
//! - `answer` succeeds exactly once per request: in `Answer` only.
//! - Content is discarded only if it ends within [`DISCARD_BYTES_MAX`]; otherwise the connection closes behind the
//!   answer.

use std::time::Duration;

use crate::base::time::Now;
use crate::engine::connection::reception::Reception;
use crate::engine::service::{HttpFault, Terms};
use crate::limits::{DISCARD_BYTES_MAX, Limits, RECEIVE_BYTES_FREE};
use crate::wire::Decoded;
use crate::wire::http1::body::{BodyDecoder, BodyFault};
use crate::wire::http1::fault::HeadFault;
use crate::wire::http1::head::{HeadLimits, HeadSearch};
use crate::wire::http1::response::ReplyTo;
use crate::wire::http1::{Framing, RequestHead, Version};

/// Room made for a body at its beginning; more comes with the bytes, for a declared length costs a client nothing.
const BODY_BYTES_FIRST: usize = RECEIVE_BYTES_FREE;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::engine) struct Http {
    state: HttpState,
    search: HeadSearch,
}

#[derive(Debug, Default)]
enum HttpState {
    #[default]
    Head,
    Answer(Exchange),
    Body(IncomingBody),
    Discard {
        decoder: BodyDecoder,
        bytes: usize,
    },
}

/// The request that is being answered.
#[derive(Debug)]
struct Exchange {
    to: ReplyTo,
    /// Its content, as far as nobody has asked for it.
    unread: Framing,
    expect_continue: bool,
    /// None as long as nobody has stated them.
    terms: Option<Terms>,
    /// The service has heard of it.
    heard: bool,
}

#[derive(Debug)]
struct IncomingBody {
    exchange: Exchange,
    decoder: BodyDecoder,
    bytes: Vec<u8>,
    bytes_max: usize,
    tag: u32,
    reception: Reception,
}

/// What the bytes tell.
#[derive(Debug)]
pub(in crate::engine) enum HttpStep<'a> {
    /// Nothing more before there are more bytes.
    Need,
    /// A request; its answer is awaited.
    Request(RequestHead<'a>),
    /// The body that was asked for; its answer is awaited.
    Body {
        /// As given to [`Http::read_body`].
        tag: u32,
        /// The content.
        body: Vec<u8>,
    },
    /// The request cannot be served; its answer is awaited, and is the last.
    Fault(HttpFault),
    /// Content that nobody wanted is at its end; what follows is the next request.
    Discarded,
    /// Content that nobody wants does not end in time, or ends in nonsense: nothing further can be read.
    Abandon,
}

/// Where the connection stands, for deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum WaitingFor {
    /// No byte of a request has come.
    Request,
    /// The head has begun.
    Head,
    /// The answer of the service.
    Answer,
    /// More of the body.
    Body,
    /// The end of content that nobody wants.
    Discard,
}

impl Http {
    /// Decodes on, up to the next thing to do. Answers how many bytes were used up; the rest is to come again, with
    /// more.
    pub(in crate::engine) fn next<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (usize, HttpStep<'a>) {
        match &mut self.state {
            HttpState::Head => self.next_head(input, limits),
            HttpState::Answer(_) => (0, HttpStep::Need),
            HttpState::Body(_) => self.next_body(input),
            HttpState::Discard { .. } => self.next_discarded(input),
        }
    }

    /// Whether input can be made use of now.
    pub(in crate::engine) const fn takes_input(&self) -> bool {
        !matches!(self.state, HttpState::Answer(_))
    }

    /// Whether the head of a request has come in part.
    pub(in crate::engine) const fn has_partial_head(&self) -> bool {
        matches!(self.state, HttpState::Head) && self.search.is_begun()
    }

    /// What is awaited.
    pub(in crate::engine) const fn waiting(&self) -> WaitingFor {
        match &self.state {
            HttpState::Head if self.search.is_begun() => WaitingFor::Head,
            HttpState::Head => WaitingFor::Request,
            HttpState::Answer(_) => WaitingFor::Answer,
            HttpState::Body(_) => WaitingFor::Body,
            HttpState::Discard { .. } => WaitingFor::Discard,
        }
    }

    /// States the terms of the request whose answer is awaited.
    pub(in crate::engine) fn set_terms(&mut self, terms: Terms) {
        if let HttpState::Answer(exchange) = &mut self.state {
            exchange.terms = Some(terms);
        }
    }

    /// Whether the request whose answer is awaited has its terms.
    pub(in crate::engine) const fn has_terms(&self) -> bool {
        matches!(&self.state, HttpState::Answer(Exchange { terms: Some(_), .. }))
    }

    /// The service is about to hear of the request whose answer is awaited.
    pub(in crate::engine) fn note_heard(&mut self) {
        if let HttpState::Answer(exchange) = &mut self.state {
            exchange.heard = true;
        }
    }

    /// Whether the service has heard of the request whose answer is awaited.
    pub(in crate::engine) const fn is_heard(&self) -> bool {
        matches!(&self.state, HttpState::Answer(Exchange { heard: true, .. }))
    }

    /// The content of the present request is wanted, and has that much time. Answers whether the client waits to be
    /// asked for it.
    ///
    /// # Errors
    /// It is over `bytes_max`, as its length tells.
    pub(in crate::engine) fn read_body(
        &mut self,
        tag: u32,
        bytes_max: usize,
        now: Now,
        time: Duration,
    ) -> Result<bool, HttpFault> {
        let HttpState::Answer(exchange) = &mut self.state else { return Ok(false) };
        let unread = exchange.unread;
        if let Framing::Length(length) = unread
            && usize::try_from(length).map_or(true, |length| length > bytes_max)
        {
            return Err(HttpFault::BodyTooLarge(bytes_max));
        }
        let HttpState::Answer(mut exchange) = std::mem::take(&mut self.state) else { return Ok(false) };
        exchange.unread = Framing::None;
        let ask = exchange.expect_continue && unread != Framing::None;
        self.state = HttpState::Body(IncomingBody {
            exchange,
            decoder: BodyDecoder::new(unread),
            bytes: Vec::with_capacity(room_for(unread).min(bytes_max)),
            bytes_max,
            tag,
            reception: Reception::new(now, time),
        });
        Ok(ask)
    }

    /// The request cannot be served for a reason found outside: its answer, the last, is awaited. Not while content is
    /// discarded, for that request has its answer.
    pub(in crate::engine) fn fail(&mut self) {
        self.await_answer();
        if let HttpState::Answer(exchange) = &mut self.state {
            exchange.to.keep_alive = false;
        }
    }

    /// The answer is going out now: how it is to be written, `keep_alive` telling whether the connection stays, and
    /// under which terms. None if no request awaits one.
    pub(in crate::engine) fn answer(&mut self, close: bool) -> Option<(ReplyTo, Option<Terms>)> {
        if !matches!(self.state, HttpState::Answer(_)) {
            return None;
        }
        let HttpState::Answer(exchange) = std::mem::take(&mut self.state) else { return None };
        // Whoever awaits `100 Continue` may or may not send the content after a final answer (RFC 9110 §10.1.1): where
        // the next request begins cannot be known.
        let readable = match exchange.unread {
            Framing::None => true,
            Framing::Length(length) => !exchange.expect_continue && length <= DISCARD_BYTES_MAX as u64,
            Framing::Chunked => !exchange.expect_continue,
        };
        let to = ReplyTo { keep_alive: exchange.to.keep_alive && readable && !close, ..exchange.to };
        if to.keep_alive && exchange.unread != Framing::None {
            self.state = HttpState::Discard { decoder: BodyDecoder::new(exchange.unread), bytes: 0 };
        }
        Some((to, exchange.terms))
    }

    /// Whether the present request came with content that nobody has asked for.
    pub(in crate::engine) fn has_unread_content(&self) -> bool {
        matches!(&self.state, HttpState::Answer(exchange) if exchange.unread != Framing::None)
    }

    /// Memory that a body holds, bytes.
    pub(in crate::engine) fn held_bytes(&self) -> usize {
        match &self.state {
            HttpState::Body(body) => body.bytes.capacity(),
            _ => 0,
        }
    }

    /// Bytes of the body being received that have come.
    pub(in crate::engine) fn body_bytes(&self) -> usize {
        match &self.state {
            HttpState::Body(body) => body.bytes.len(),
            _ => 0,
        }
    }

    /// What has come so far has come by now.
    pub(in crate::engine) fn note_received(&mut self, now: Now) {
        if let HttpState::Body(body) = &mut self.state {
            body.reception.on_bytes(body.bytes.len(), now);
        }
    }

    /// The body being received.
    pub(in crate::engine) const fn reception_mut(&mut self) -> Option<&mut Reception> {
        match &mut self.state {
            HttpState::Body(body) => Some(&mut body.reception),
            _ => None,
        }
    }

    /// Whether a body is being received.
    pub(in crate::engine) const fn is_receiving(&self) -> bool {
        matches!(self.state, HttpState::Body(_))
    }

    /// Whether content that nobody wants is being read past.
    pub(in crate::engine) const fn is_discarding(&self) -> bool {
        matches!(self.state, HttpState::Discard { .. })
    }

    fn await_answer(&mut self) {
        self.state = HttpState::Answer(match std::mem::take(&mut self.state) {
            HttpState::Answer(exchange) => exchange,
            HttpState::Body(body) => body.exchange,
            HttpState::Head | HttpState::Discard { .. } => Exchange::unreadable(),
        });
    }

    fn next_head<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (usize, HttpStep<'a>) {
        if input.is_empty() {
            return (0, HttpStep::Need);
        }
        match self.search.decode(input, &HeadLimits::from(limits)) {
            Decoded::Need => (0, HttpStep::Need),
            Decoded::Done { value, consumed } => {
                self.state = HttpState::Answer(Exchange::of(&value));
                (consumed, HttpStep::Request(value))
            }
            Decoded::Invalid(fault) => {
                self.state = HttpState::Answer(Exchange::unreadable());
                (0, HttpStep::Fault(head_fault(fault)))
            }
        }
    }

    fn next_body<'a>(&mut self, input: &'a [u8]) -> (usize, HttpStep<'a>) {
        let HttpState::Body(body) = &mut self.state else { return (0, HttpStep::Need) };
        match body.decoder.decode(input, body.bytes_max, &mut body.bytes) {
            Ok(progress) if !progress.done => (progress.consumed, HttpStep::Need),
            Ok(progress) => {
                let (tag, content) = (body.tag, std::mem::take(&mut body.bytes));
                self.await_answer();
                (progress.consumed, HttpStep::Body { tag, body: content })
            }
            Err(fault) => {
                let fault = match fault {
                    BodyFault::Malformed(rule) => HttpFault::Malformed(rule),
                    BodyFault::TooLarge => HttpFault::BodyTooLarge(body.bytes_max),
                };
                self.fail();
                (0, HttpStep::Fault(fault))
            }
        }
    }

    fn next_discarded<'a>(&mut self, input: &'a [u8]) -> (usize, HttpStep<'a>) {
        let HttpState::Discard { decoder, bytes } = &mut self.state else { return (0, HttpStep::Need) };
        match decoder.skip(input) {
            Ok(progress) if progress.done => {
                self.state = HttpState::Head;
                (progress.consumed, HttpStep::Discarded)
            }
            Ok(progress) => {
                *bytes += progress.consumed;
                let step = if *bytes > DISCARD_BYTES_MAX { HttpStep::Abandon } else { HttpStep::Need };
                (progress.consumed, step)
            }
            Err(_) => (0, HttpStep::Abandon),
        }
    }
}

impl Exchange {
    fn of(head: &RequestHead<'_>) -> Self {
        Self {
            to: ReplyTo { version: head.version, keep_alive: head.keep_alive, head: head.method == "HEAD" },
            unread: head.framing,
            expect_continue: head.expect_continue,
            terms: None,
            heard: false,
        }
    }

    /// For a request of which nothing is known: its connection cannot be read further.
    const fn unreadable() -> Self {
        Self {
            to: ReplyTo { version: Version::Http11, keep_alive: false, head: false },
            unread: Framing::None,
            expect_continue: false,
            terms: None,
            heard: false,
        }
    }
}

const fn room_for(content: Framing) -> usize {
    match content {
        Framing::None => 0,
        Framing::Length(length) if length < BODY_BYTES_FIRST as u64 => length as usize,
        Framing::Length(_) | Framing::Chunked => BODY_BYTES_FIRST,
    }
}

fn head_fault(fault: HeadFault) -> HttpFault {
    match fault {
        HeadFault::Malformed(rule) => HttpFault::Malformed(rule),
        HeadFault::Version => HttpFault::Version,
        HeadFault::UriTooLong => HttpFault::UriTooLong,
        HeadFault::HeadTooLarge => HttpFault::HeadTooLarge,
        HeadFault::TooManyFields => HttpFault::TooManyFields,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::metrics::Endpoint;

    const LIMIT: usize = 20;
    const TIME: Duration = Duration::from_secs(30);

    /// Drives the half as the engine does: asks for every body, answers everything; `cut` is where the input is cut.
    fn drive(input: &[u8], cut: usize) -> Vec<String> {
        let (mut http, limits) = (Http::default(), Limits::default());
        let mut log = Vec::new();
        let mut kept: Vec<u8> = Vec::new();
        for piece in [&input[..cut], &input[cut..]] {
            kept.extend_from_slice(piece);
            loop {
                let bytes = std::mem::take(&mut kept);
                let (used, step) = http.next(&bytes, &limits);
                let mut answer = |http: &mut Http, what: String| {
                    let (to, _) = http.answer(false).expect("a request awaits its answer");
                    let keep_alive = to.keep_alive;
                    log.push(format!("{what} {keep_alive}"));
                    keep_alive
                };
                let goes_on = match step {
                    HttpStep::Need => {
                        kept = bytes[used..].to_vec();
                        break;
                    }
                    HttpStep::Request(head) if head.method == "POST" => {
                        let method = head.method.to_owned();
                        match http.read_body(7, LIMIT, Now(0), TIME) {
                            Ok(_) => true,
                            Err(fault) => {
                                http.fail();
                                answer(&mut http, format!("{method} {fault:?}"))
                            }
                        }
                    }
                    HttpStep::Request(head) => {
                        let what = format!("{} {}", head.method, head.target);
                        answer(&mut http, what)
                    }
                    HttpStep::Body { tag, body } => {
                        answer(&mut http, format!("{tag} {}", String::from_utf8_lossy(&body)))
                    }
                    HttpStep::Fault(fault) => answer(&mut http, format!("{fault:?}")),
                    HttpStep::Discarded => true,
                    HttpStep::Abandon => {
                        log.push("abandon".to_owned());
                        false
                    }
                };
                if !goes_on {
                    return log;
                }
                kept = bytes[used..].to_vec();
            }
        }
        log
    }

    #[track_caller]
    fn check(input: &str, expected: &[&str]) {
        for cut in 0..=input.len() {
            assert_eq!(drive(input.as_bytes(), cut), expected, "cut at {cut}");
        }
    }

    #[test]
    fn pipelined_requests_come_one_by_one() {
        check(
            "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello\
             POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n\
             GET /d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            &["GET /a true", "7 hello true", "7 hello true", "GET /d false"],
        );
    }

    #[test]
    fn a_body_over_the_bound_is_the_last() {
        check(
            "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 21\r\n\r\n012345678901234567890",
            &["POST BodyTooLarge(20) false"],
        );
        check(
            "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n01234567890123456789\r\n1\r\n0",
            &["BodyTooLarge(20) false"],
        );
    }

    #[test]
    fn faults_are_the_last() {
        check("GET / HTTP/2.0\r\n\r\n", &["Version false"]);
    }

    #[test]
    fn content_that_nobody_wants_is_read_past() {
        check(
            "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
            &["GET /a true", "GET /b true"],
        );
        check(
            "GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
            &["GET /a true", "abandon"],
        );
        let endless = format!("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", DISCARD_BYTES_MAX + 1);
        check(&endless, &["GET /a false"]);
    }

    #[test]
    fn an_answer_before_the_awaited_continue_closes() {
        check("GET /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", &["GET /a false"]);
    }

    #[test]
    fn each_request_is_answered_once() {
        let (mut http, limits) = (Http::default(), Limits::default());
        assert!(http.answer(false).is_none());
        http.next(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &limits);
        assert!(!http.takes_input());
        assert!(http.answer(false).is_some_and(|(to, _)| to.keep_alive && to.version == Version::Http10));
        assert!(http.answer(false).is_none());
    }

    #[test]
    fn a_body_is_timed_by_its_content() {
        let (mut http, limits) = (Http::default(), Limits::default());
        http.next(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", &limits);
        assert!(http.reception_mut().is_none());
        http.read_body(0, 90_000, Now(500), TIME).unwrap();
        let mut deadline = |input: &[u8], now| {
            http.next(input, &limits);
            http.note_received(Now(now));
            http.reception_mut().unwrap().deadline().0
        };
        assert_eq!(deadline(b"4e20\r\n", 20_000), 30_500);
        assert_eq!(deadline(&[b'x'; 20_000], 25_000), 36_000);
        // Framing brings nothing.
        assert_eq!(deadline(b"\r\n0\r\n", 35_000), 36_000);
    }

    #[test]
    fn the_terms_are_kept_until_the_answer() {
        let (mut http, limits) = (Http::default(), Limits::default());
        http.next(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", &limits);
        assert!(!http.has_terms() && !http.is_heard());
        http.set_terms(Terms { fields: vec![("vary", "origin".into())], endpoint: Endpoint::Events });
        http.note_heard();
        http.read_body(0, 9, Now(0), TIME).unwrap();
        http.fail();
        assert!(http.has_terms() && http.is_heard());
        let (to, terms) = http.answer(false).unwrap();
        assert!(!to.keep_alive && terms.is_some_and(|terms| terms.fields == [("vary", "origin".into())]));
        assert!(!http.has_terms());
    }
}
