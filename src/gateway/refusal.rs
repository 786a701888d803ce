//! Refusals of what the engine found, in the wire codes of the activity relay's table (contract §4).

use std::borrow::Cow;

use crate::engine::service::{HttpFault, Response};
use crate::limits::HEADER_FIELDS_MAX;
use crate::relay::error::{Code, Refusal};
use crate::wire::http1::answer::Fields;

/// Seconds after which a refused client may come back.
const RETRY_AFTER: &str = "1";

/// The answer to a request that cannot be served.
pub(super) fn of_fault(fault: HttpFault) -> Response {
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

/// When a client may come back that is refused for want of room.
pub(super) fn come_back_later() -> Fields {
    vec![("retry-after", Cow::Borrowed(RETRY_AFTER))]
}
