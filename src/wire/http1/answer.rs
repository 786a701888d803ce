//! An answer as a value: status, fields and body, before anything is encoded (`response.rs`).
//!
//! Knows no connection: what frames a message, and whether it is the last one, is added by who sends it.

use std::borrow::Cow;

use super::response::Field;

/// Response fields, in order.
pub type Fields = Vec<Field>;

/// An HTTP answer. Whoever sends it adds `Content-Length`, `Date`, and `Connection` where needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Fields, without `Content-Length`, `Date` and `Connection`.
    pub fields: Fields,
    /// The body; not sent in answer to HEAD, though its length is.
    pub body: Cow<'static, [u8]>,
    /// Close the connection once this is written.
    pub close: bool,
}

/// A JSON answer under `fields`.
#[must_use]
pub fn json_response(status: u16, mut fields: Fields, body: impl Into<Cow<'static, [u8]>>) -> Response {
    fields.push(("content-type", Cow::Borrowed("application/json")));
    Response { status, fields, body: body.into(), close: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_answer_keeps_the_fields_it_is_given_and_says_what_it_is() {
        let answer = json_response(200, vec![("vary", "origin".into())], &b"{}"[..]);
        assert_eq!(answer.fields, [("vary", "origin".into()), ("content-type", "application/json".into())]);
        assert_eq!((answer.status, &*answer.body, answer.close), (200, &b"{}"[..], false));
    }
}
