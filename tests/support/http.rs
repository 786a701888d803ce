//! An HTTP client that sends what it is given and reads answers strictly.

use std::ops::{Deref, DerefMut};

use serde_json::Value;

use super::relay::Relay;
use super::wire::Wire;

/// A connection that speaks HTTP/1.1.
#[derive(Debug)]
pub struct Http {
    wire: Wire,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    /// Without `Date`, which every final answer has.
    pub fields: Vec<(String, String)>,
    /// `Date`; empty in the interim answer.
    pub date: String,
    pub body: Vec<u8>,
}

impl Http {
    #[track_caller]
    pub fn connect(relay: &Relay) -> Self {
        Self { wire: Wire::connect(relay.address()) }
    }

    /// A connection with a small receive buffer; see [`Wire::connect_narrow`].
    #[track_caller]
    pub fn connect_narrow(relay: &Relay) -> Self {
        Self { wire: Wire::connect_narrow(relay.address()) }
    }

    /// Sends these bytes on a connection of their own and reads the answer.
    #[track_caller]
    pub fn exchange(relay: &Relay, bytes: impl AsRef<[u8]>) -> (Self, Response) {
        let mut http = Self::connect(relay);
        http.send(bytes);
        let response = http.response();
        (http, response)
    }

    /// An answer with its body.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        let mut response = self.response_head();
        if response.status >= 200 && response.status != 204 && response.status != 304 {
            response.body = self.body(&response);
        }
        response
    }

    /// An answer to HEAD: no body follows, whatever its length field says.
    #[track_caller]
    pub fn response_to_head(&mut self) -> Response {
        self.response_head()
    }

    /// Status line and fields; the body, if any, is left unread.
    #[track_caller]
    pub fn response_head(&mut self) -> Response {
        let head = self.wire.read_through(b"\r\n\r\n").expect("an answer before the end of the connection");
        let head = String::from_utf8(head).expect("an answer's head is text");
        let mut lines = head.strip_suffix("\r\n\r\n").unwrap().split("\r\n");
        let status_line = lines.next().unwrap();
        let (version, rest) = status_line.split_once(' ').expect("a status line");
        let (status, reason) = rest.split_once(' ').expect("a status line with a reason, possibly empty");
        assert!(version == "HTTP/1.1" && status.len() == 3 && !reason.contains(['\r', '\n']), "{status_line:?}");
        let fields = lines.map(|line| {
            assert!(!line.contains(['\r', '\n']), "a bare line break in {line:?}");
            let (name, value) = line.split_once(':').expect("a field line");
            assert!(!name.is_empty() && !name.contains([' ', '\t']), "{line:?}");
            (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())
        });
        let (dates, fields): (Vec<_>, Vec<_>) = fields.partition(|(name, _)| name.eq_ignore_ascii_case("date"));
        let date = dates.first().map(|(_, value)| value.clone()).unwrap_or_default();
        assert_eq!(
            dates.len(),
            usize::from(status != "100"),
            "every answer but the interim one has one date: {head:?}"
        );
        assert!(dates.is_empty() || is_imf_fixdate(&date), "{date:?}");
        Response { status: status.parse().expect("a status code"), fields, date, body: Vec::new() }
    }

    #[track_caller]
    fn body(&mut self, response: &Response) -> Vec<u8> {
        if let Some(length) = response.field("content-length") {
            assert!(response.field("transfer-encoding").is_none(), "two framings in one answer");
            return self.wire.read_exact(length.parse().expect("a length"));
        }
        if response.field("transfer-encoding").is_some() {
            let mut body = Vec::new();
            while let Some(chunk) = self.chunk() {
                body.extend(chunk);
            }
            return body;
        }
        self.wire.read_to_end()
    }

    /// One chunk of a chunked body; nothing at its end.
    #[track_caller]
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.wire.read_through(b"\r\n").expect("a chunk, not the end of the connection");
        let size = std::str::from_utf8(&line[..line.len() - 2]).expect("a chunk size");
        let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("a chunk size, not {size:?}"));
        let mut chunk = self.wire.read_exact(size + 2);
        assert!(chunk.ends_with(b"\r\n"), "a chunk ends in CR LF");
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    /// The connection still serves requests.
    #[track_caller]
    pub fn expect_alive(&mut self) {
        self.send("GET /healthz HTTP/1.1\r\nHost: r\r\n\r\n");
        let response = self.response();
        assert_eq!(response.status, 200, "the connection still serves: {response:?}");
    }
}

impl Deref for Http {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl DerefMut for Http {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }
}

impl Response {
    /// The field of this name in any case; two of them fail the test.
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let first = found.next();
        assert!(found.next().is_none(), "{name} comes twice: {self:?}");
        first.map(|(_, value)| value.as_str())
    }

    /// The members of a list field, lower-case.
    #[track_caller]
    pub fn list(&self, name: &str) -> Vec<String> {
        let value = self.field(name).unwrap_or_else(|| panic!("{name} is missing: {self:?}"));
        value.split(',').map(|item| item.trim().to_ascii_lowercase()).collect()
    }

    #[track_caller]
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("a text body")
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.field("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("a JSON body: {self:?}"))
    }

    /// It is the refusal `{"error": code, "detail": text}` with this status; answers its JSON.
    #[track_caller]
    pub fn expect_refusal(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{code} expected: {self:?} {}", String::from_utf8_lossy(&self.body));
        let body = self.json();
        assert_eq!(body["error"], code, "{body}");
        assert!(body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "a detail in {body}");
        assert_eq!(self.field("access-control-allow-origin"), Some("*"), "refusals are readable by browsers");
        body
    }

    /// It is exactly this status and body.
    #[track_caller]
    pub fn expect(&self, status: u16, body: &str) {
        assert_eq!((self.status, self.text().as_str()), (status, body), "{self:?}");
    }

    pub fn closes(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7), by its form.
fn is_imf_fixdate(date: &str) -> bool {
    const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let form: String = date.chars().skip(3).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let month = form.get(5..8).unwrap_or_default();
    DAYS.contains(&date.get(..3).unwrap_or_default())
        && month.bytes().all(|b| b.is_ascii_alphabetic())
        && form.replacen(month, "Nov", 1) == ", 00 Nov 0000 00:00:00 GMT"
}

/// A well-formed request with `Host` and, with a body or for POST, `Content-Length`.
pub fn request(method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: relay.test\r\n").into_bytes();
    for (name, value) in fields {
        bytes.extend(format!("{name}: {value}\r\n").bytes());
    }
    if method == "POST" || !body.is_empty() {
        bytes.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body);
    bytes
}

/// Percent-encodes everything but unreserved characters.
pub fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// `path?name=value&…` with the values encoded.
pub fn query(path: &str, parameters: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    format!("{path}?{}", pairs.join("&"))
}
