//! Answers to what the gateway refuses and what the engine finds, in the codes of the relay's table (contract §4). What
//! is refused before its path is known has this form, too.

use std::borrow::Cow;

use crate::engine::service::{HttpFault, Response};
use crate::limits::HEADER_FIELDS_MAX;
use crate::protocol::Refused;
use crate::wire::http1::answer::{Fields, json_response};

use super::error::{Code, Refusal};

/// Seconds after which a refused client may come back.
const RETRY_AFTER: &str = "1";

/// The answer to a request that cannot be served.
#[must_use]
pub fn response(fault: HttpFault) -> Response {
    let refusal = match fault {
        HttpFault::Malformed(rule) => Refusal::new(Code::BadRequest, rule),
        HttpFault::Version => Refusal::new(Code::VersionNotSupported, "HTTP/1.1 and HTTP/1.0 only"),
        HttpFault::UriTooLong => Refusal::new(Code::UriTooLong, "AEP_HEAD_BYTES: the request line is too long"),
        HttpFault::HeadTooLarge => Refusal::new(Code::HeadTooLarge, "AEP_HEAD_BYTES: the request head is too large"),
        HttpFault::TooManyFields => {
            Refusal::new(Code::HeadTooLarge, format!("more than {HEADER_FIELDS_MAX} header fields"))
        }
        HttpFault::Expectation => Refusal::new(Code::ExpectationFailed, "expect: only 100-continue"),
        HttpFault::BodyTooLarge(max) => {
            Refusal::new(Code::PayloadTooLarge, format!("AEP_MAX_BODY: more than {max} bytes in one body"))
        }
        HttpFault::Timeout => Refusal::new(Code::Timeout, "the request came in too slowly"),
        HttpFault::Busy => Refusal::new(Code::Busy, "AEP_MAX_CONNECTIONS: too many connections"),
        HttpFault::NoRoom => {
            Refusal::new(Code::Busy, "AEP_RECEIVE_BYTES: no memory for this body beside others being received")
        }
        HttpFault::Draining => Refusal::new(Code::Draining, "the relay is shutting down"),
    };
    let later = matches!(fault, HttpFault::Busy | HttpFault::NoRoom | HttpFault::Draining);
    refusal.response(if later { come_back_later() } else { Vec::new() })
}

/// The answer to a request of a known path that is not served.
#[must_use]
pub fn refusal(refused: Refused) -> Response {
    match refused {
        Refused::Method => Refusal::new(Code::MethodNotAllowed, "see Allow").response(Vec::new()),
        Refused::Unauthorized => json_response(401, Vec::new(), &b"{\"error\":\"unauthorized\"}"[..]),
        Refused::Forbidden => json_response(403, Vec::new(), &b"{\"error\":\"unauthorized\"}"[..]),
        Refused::Fault(fault) => response(fault),
    }
}

/// When a client may come back that is refused for want of room.
#[must_use]
pub fn come_back_later() -> Fields {
    vec![("retry-after", Cow::Borrowed(RETRY_AFTER))]
}
