//! Cross-origin rules: the fields that every answer carries, refusals too, preflights, and who may change something or
//! open a WebSocket (contract §4, §6).

use std::borrow::Cow;

use crate::engine::service::Response;
use crate::ops::origins::Origins;
use crate::wire::http1::RequestHead;
use crate::wire::http1::answer::Fields;

const ALLOW_HEADERS: &str = "authorization, content-type, aep-version, last-event-id, cache-control";
/// Seconds a browser may remember a preflight.
const MAX_AGE: &str = "86400";

/// The cross-origin rules of a process.
#[derive(Debug)]
pub(super) struct Cors {
    origins: Origins,
}

impl Cors {
    pub(super) fn new(origins: Origins) -> Self {
        Self { origins }
    }

    /// Whether answers differ by origin.
    fn depends_on_origin(&self) -> bool {
        self.origins != Origins::Any
    }

    /// The fields of whatever answers this request; without a head if none can be read.
    pub(super) fn fields(&self, head: Option<&RequestHead<'_>>) -> Fields {
        if !self.depends_on_origin() {
            return vec![("access-control-allow-origin", Cow::Borrowed("*"))];
        }
        let mut fields = vec![("vary", Cow::Borrowed("Origin"))];
        let origin = head.and_then(only_origin);
        let allowed = origin.filter(|origin| self.origins.allows(origin));
        if let Some(origin) = allowed.and_then(|origin| std::str::from_utf8(origin).ok()) {
            fields.push(("access-control-allow-origin", Cow::Owned(origin.to_owned())));
        }
        fields
    }

    /// The answer to `OPTIONS`. A foreign origin is told no method and no header.
    pub(super) fn preflight(&self, allow: String, head: &RequestHead<'_>) -> Response {
        let mut fields = Vec::new();
        if self.allows(head) {
            fields.push(("access-control-allow-methods", Cow::Owned(allow.clone())));
            fields.push(("access-control-allow-headers", Cow::Borrowed(ALLOW_HEADERS)));
            fields.push(("access-control-max-age", Cow::Borrowed(MAX_AGE)));
        }
        fields.push(("allow", Cow::Owned(allow)));
        Response { status: 204, fields, body: Cow::Borrowed(b""), close: false }
    }

    /// Whether a request may be made that CORS does not hold back: one that changes something, which a browser sends
    /// and only hides the answer of, or an upgrade. No `Origin` is no browser; otherwise exactly one, and allowed.
    pub(super) fn admits(&self, head: &RequestHead<'_>) -> bool {
        head.field("origin").is_none() || self.allows(head)
    }

    /// Whether a page may read the answer to its request.
    fn allows(&self, head: &RequestHead<'_>) -> bool {
        !self.depends_on_origin() || only_origin(head).is_some_and(|origin| self.origins.allows(origin))
    }
}

/// The request's `Origin`, if it has exactly one.
fn only_origin<'a>(head: &RequestHead<'a>) -> Option<&'a [u8]> {
    let mut origins = head.fields_named("origin");
    origins.next().filter(|_| origins.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &str) -> String {
        format!("GET /socket HTTP/1.1\r\nHost: r\r\n{fields}\r\n")
    }

    #[test]
    fn only_the_exact_origin_is_admitted() {
        let cors = Cors::new(Origins::Listed(vec!["https://good.example".into()]));
        for (fields, may) in [
            ("", true),
            ("Origin: https://good.example\r\n", true),
            ("Origin: https://evil.test\r\n", false),
            ("Origin: https://good.example.evil.test\r\n", false),
            ("Origin: https://evilgood.example\r\n", false),
            ("Origin: http://good.example\r\n", false),
            ("Origin: null\r\n", false),
            ("Origin: https://good.example\r\nOrigin: https://good.example\r\n", false),
        ] {
            let text = head(fields);
            let head = RequestHead::decode_whole(text.as_bytes()).unwrap();
            assert_eq!(cors.admits(&head), may, "{fields}");
            let told = cors.fields(Some(&head)).iter().any(|(name, _)| *name == "access-control-allow-origin");
            assert_eq!(told, may && !fields.is_empty(), "{fields}");
        }
    }
}
