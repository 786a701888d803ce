//! The servers that can be loaded, and how each wants to be spoken to.
//!
//! Owns requests and their framing: what a consumer opens with, what an emitter opens with, and how a batch of events
//! is put on the wire. Knows no socket but the one it asks, before any load, whether the right server is there.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use super::arguments::{Kind, Publishing};
use super::check::Follows;
use super::decode::Decoder;
use super::decode::event_stream::EventStream;
use super::decode::http::HeadReader;
use super::decode::nats::Nats;
use super::decode::websocket::{WebSocket, push_text};
use super::event::session_name;
use super::failure::Failure;

/// How long the server may take to answer before the load.
const PREFLIGHT_TIMEOUT: Duration = Duration::from_secs(5);
/// Any 16 bytes will do: the key only shows that the answer was made for the request.
const WEBSOCKET_KEY: &str = "YWVwLWxvYWQtd2Vic29jaw==";

/// A server to load.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    /// `host:port`, as written.
    authority: String,
    token: Option<String>,
}

/// A consumer, as far as the server is told.
#[derive(Debug)]
pub(crate) struct Subscription<'a> {
    pub(crate) websocket: bool,
    /// attr-match filters: one subscription each; an event stream takes the first.
    pub(crate) filters: &'a [String],
    pub(crate) follows: Follows,
    /// Positions to resume from, per session; the session's beginning is 0.
    pub(crate) from: Option<Vec<(u32, u64)>>,
    pub(crate) run: u32,
}

impl Target {
    /// From `--target` and `--kind`; the token comes from `AEP_TOKEN`.
    pub(crate) fn new(url: &str, kind: Kind) -> Result<Self, Failure> {
        let usage = |what: String| Failure::Usage(format!("--target: {what}"));
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("nats://")).unwrap_or(url);
        let authority = rest.trim_end_matches('/').to_owned();
        if authority.contains('/') {
            return Err(usage(format!("{url} is not http://HOST:PORT")));
        }
        let address = authority
            .to_socket_addrs()
            .map_err(|error| usage(format!("{url} is not http://HOST:PORT of a known host: {error}")))?
            .next()
            .ok_or_else(|| usage(format!("{url} has no address")))?;
        let token = std::env::var("AEP_TOKEN").ok().filter(|token| !token.is_empty());
        Ok(Self { kind, address, authority, token })
    }

    /// Whether it speaks the relay's contract: hello, subscribe, filters, resume.
    pub(crate) fn is_relay(&self) -> bool {
        matches!(self.kind, Kind::Aep | Kind::Node)
    }

    /// Asks the server whether it is there, lets us in, and is what we take it for.
    pub(crate) fn preflight(&self) -> Result<(), Failure> {
        match self.kind {
            Kind::Nchan | Kind::Nats => {
                TcpStream::connect_timeout(&self.address, PREFLIGHT_TIMEOUT)
                    .map_err(|error| Failure::Absent(self.address, error))?;
            }
            Kind::Bare => {
                self.ask("GET /healthz", "/healthz", "\"ok\":true")?;
            }
            Kind::Aep | Kind::Node => {
                self.ask("GET /healthz", "/healthz", "\"ok\":true")?;
                self.discovery()?;
            }
        }
        Ok(())
    }

    /// Events the server says it keeps of a session, if it says so.
    pub(crate) fn replay_events_max(&self) -> Result<Option<u64>, Failure> {
        if !self.is_relay() {
            return Ok(None);
        }
        let document: serde_json::Value = serde_json::from_str(&self.discovery()?).unwrap_or_default();
        Ok(document["capabilities"]["replay"]["buffer"].as_u64())
    }

    fn discovery(&self) -> Result<String, Failure> {
        self.ask("GET /.well-known/aep", "/.well-known/aep", "\"aep\":")
    }

    /// What was asked was refused.
    pub(crate) fn refused(&self, request: &'static str, status: u16, answer: String) -> Failure {
        match status {
            401 => Failure::Unauthorized { request, with_token: self.token.is_some() },
            _ => Failure::Refused { request, status, answer },
        }
    }

    /// The answer's body, in which something is `expected`.
    fn ask(&self, request: &'static str, path: &str, expected: &str) -> Result<String, Failure> {
        let absent = |error| Failure::Absent(self.address, error);
        let mut stream = TcpStream::connect_timeout(&self.address, PREFLIGHT_TIMEOUT).map_err(absent)?;
        stream.set_read_timeout(Some(PREFLIGHT_TIMEOUT)).map_err(absent)?;
        stream.write_all(&self.request("GET", path, "Connection: close\r\n")).map_err(absent)?;
        let mut answer = Vec::new();
        stream.take(1 << 20).read_to_end(&mut answer).map_err(absent)?;
        let stranger = || Failure::Stranger(format!("{} does not answer {request} as a relay does", self.authority));
        let (head, body) = HeadReader::default().feed(&answer).ok().flatten().ok_or_else(stranger)?;
        let body = String::from_utf8_lossy(body);
        match head.status {
            200 if body.contains(expected) => Ok(body.into_owned()),
            200 | 404 => Err(stranger()),
            status => Err(self.refused(request, status, body.trim().to_owned())),
        }
    }

    fn request(&self, method: &str, path: &str, fields: &str) -> Vec<u8> {
        let token = self.token.as_ref().map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
        format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n{token}{fields}\r\n", self.authority).into_bytes()
    }

    /// What a consumer sends first, and the decoder of what comes back.
    pub(crate) fn consumer(&self, subscription: &Subscription<'_>) -> (Vec<u8>, Decoder) {
        if self.kind == Kind::Nats {
            return (self.nats_consumer(subscription), Decoder::Nats(Nats::default()));
        }
        if subscription.websocket {
            let (greeting, awaited) = if self.is_relay() { subscription.greeting() } else { (Vec::new(), 0) };
            let path = if self.kind == Kind::Nchan { "/sub/load" } else { "/socket" };
            return (self.upgrade(path), Decoder::WebSocket(WebSocket::new(WEBSOCKET_KEY, greeting, awaited)));
        }
        let path = match self.kind {
            Kind::Nchan => "/sub/load".to_owned(),
            Kind::Bare => format!("/stream{}", if subscription.from.is_some() { "?from=all" } else { "" }),
            _ => subscription.path(),
        };
        let request = self.request("GET", &path, "Accept: text/event-stream\r\n");
        (request, Decoder::EventStream(EventStream::new(self.kind != Kind::Nchan)))
    }

    /// What an emitter sends first, and the decoder of what comes back; nothing over HTTP.
    pub(crate) fn emitter(&self, publishing: Publishing) -> Result<Option<(Vec<u8>, Decoder)>, Failure> {
        match (self.kind, publishing) {
            (Kind::Nats, _) => Ok(Some((self.nats_opening("PING\r\n"), Decoder::Nats(Nats::default())))),
            (_, Publishing::Http) => Ok(None),
            (Kind::Aep | Kind::Node, Publishing::Ws) => {
                let greeting = vec![hello("emitter"), PING.to_owned()];
                let decoder = Decoder::WebSocket(WebSocket::new(WEBSOCKET_KEY, greeting, 1));
                Ok(Some((self.upgrade("/socket"), decoder)))
            }
            _ => Err(Failure::Usage("--publish ws: only a relay takes events over WebSocket".into())),
        }
    }

    /// Appends a batch of events, ready to be sent; returns how many answers will come.
    pub(crate) fn push_batch(&self, out: &mut Vec<u8>, publishing: Publishing, run: u32, events: &[Written]) -> usize {
        match (self.kind, publishing) {
            (Kind::Nats, _) => {
                for event in events {
                    let name = session_name(run, event.session);
                    out.extend_from_slice(format!("PUB load.{name} {}\r\n", event.text.len()).as_bytes());
                    out.extend_from_slice(&event.text);
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"PING\r\n");
                1
            }
            (Kind::Nchan, _) => {
                // No batches there: as many requests, sent at once.
                for event in events {
                    self.push_post(out, "/pub/load", "application/json", event.text.len());
                    out.extend_from_slice(&event.text);
                }
                events.len()
            }
            (_, Publishing::Ws) => {
                for event in events {
                    push_text(out, &event.text);
                }
                push_text(out, PING.as_bytes());
                1
            }
            (_, Publishing::Http) => {
                let kind = if events.len() == 1 { "application/json" } else { "application/x-ndjson" };
                let bytes: usize = events.iter().map(|event| event.text.len() + 1).sum();
                self.push_post(out, "/events", kind, bytes - 1);
                for (index, event) in events.iter().enumerate() {
                    if index > 0 {
                        out.push(b'\n');
                    }
                    out.extend_from_slice(&event.text);
                }
                1
            }
        }
    }

    fn push_post(&self, out: &mut Vec<u8>, path: &str, kind: &str, bytes: usize) {
        let fields = format!("Content-Type: {kind}\r\nContent-Length: {bytes}\r\n");
        out.extend_from_slice(&self.request("POST", path, &fields));
    }

    fn upgrade(&self, path: &str) -> Vec<u8> {
        let fields = format!(
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: {WEBSOCKET_KEY}\r\n"
        );
        self.request("GET", path, &fields)
    }

    fn nats_opening(&self, then: &str) -> Vec<u8> {
        let token = self.token.as_ref().map_or(String::new(), |token| format!(",\"auth_token\":\"{token}\""));
        format!("CONNECT {{\"verbose\":false,\"pedantic\":false{token}}}\r\n{then}").into_bytes()
    }

    fn nats_consumer(&self, subscription: &Subscription<'_>) -> Vec<u8> {
        let follows = subscription.follows;
        let mut then = String::new();
        if follows.count == follows.of {
            then.push_str("SUB load.> 1\r\n");
        } else {
            for (index, session) in follows.sessions().enumerate() {
                then.push_str(&format!("SUB load.{} {index}\r\n", session_name(subscription.run, session)));
            }
        }
        then.push_str("PING\r\n");
        self.nats_opening(&then)
    }
}

/// An event ready to be sent.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) session: u32,
    pub(crate) text: Vec<u8>,
}

/// Asks the relay to say that it has read everything before.
const PING: &str = r#"{"type":"ping","t":0}"#;

fn hello(role: &str) -> String {
    format!(
        r#"{{"type":"hello","versions":["0.1"],"role":"{role}","identity":{{"agent":"aep-load"}},"capabilities":{{}}}}"#
    )
}

impl Subscription<'_> {
    /// Target of the request for an event stream.
    fn path(&self) -> String {
        let filter = self.filters.first().filter(|filter| *filter != "{}");
        let parameters = [("filter", filter.cloned()), ("from", self.positions_json())];
        let query: Vec<String> = parameters
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| format!("{name}={}", percent_encoded(&value))))
            .collect();
        if query.is_empty() { "/stream".into() } else { format!("/stream?{}", query.join("&")) }
    }

    /// hello and one subscribe per filter, and how many of them are answered with `subscribed`.
    fn greeting(&self) -> (Vec<String>, usize) {
        let from = self.positions_json().map_or(String::new(), |from| format!(",\"from\":{from}"));
        let subscribe = |(index, filter): (usize, &String)| {
            format!(r#"{{"type":"subscribe","id":"{index}","filter":{filter}{from}}}"#)
        };
        let greeting = std::iter::once(hello("consumer")).chain(self.filters.iter().enumerate().map(subscribe));
        (greeting.collect(), self.filters.len())
    }

    fn positions_json(&self) -> Option<String> {
        let position = |&(session, seq)| format!(r#"{{"session":"{}","seq":{seq}}}"#, session_name(self.run, session));
        let positions: Vec<String> = self.from.as_ref()?.iter().map(position).collect();
        Some(format!("[{}]", positions.join(",")))
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(byte)),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: Kind) -> Target {
        let mut target = Target::new("http://127.0.0.1:1", kind).unwrap();
        target.token = None;
        target
    }

    fn subscription(filters: &[String]) -> Subscription<'_> {
        Subscription { websocket: false, filters, follows: Follows::all(1), from: None, run: 1 }
    }

    #[test]
    fn a_stream_is_asked_for_with_filter_and_positions() {
        let everything = ["{}".to_owned()];
        assert_eq!(subscription(&everything).path(), "/stream");
        let filters = [r#"{"session":"a b"}"#.to_owned()];
        let subscription = Subscription { from: Some(vec![(2, 7)]), ..subscription(&filters) };
        assert_eq!(
            subscription.path(),
            "/stream?filter=%7B%22session%22%3A%22a%20b%22%7D\
             &from=%5B%7B%22session%22%3A%22load-00000001-2%22%2C%22seq%22%3A7%7D%5D"
        );
        let (greeting, awaited) = subscription.greeting();
        assert_eq!(awaited, 1);
        for text in greeting {
            serde_json::from_str::<serde_json::Value>(&text).unwrap();
        }
    }

    #[test]
    fn a_batch_is_one_request_or_as_many_as_the_server_needs() {
        let events: Vec<Written> = (0..2).map(|session| Written { session, text: b"{}".to_vec() }).collect();
        let mut out = Vec::new();
        assert_eq!(target(Kind::Aep).push_batch(&mut out, Publishing::Http, 1, &events), 1);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("POST /events HTTP/1.1\r\nHost: 127.0.0.1:1\r\n"), "{text}");
        assert!(text.ends_with("Content-Type: application/x-ndjson\r\nContent-Length: 5\r\n\r\n{}\n{}"), "{text}");
        let mut out = Vec::new();
        assert_eq!(target(Kind::Nchan).push_batch(&mut out, Publishing::Http, 1, &events), 2);
        let mut out = Vec::new();
        assert_eq!(target(Kind::Nats).push_batch(&mut out, Publishing::Http, 1, &events), 1);
        let first = "PUB load.load-00000001-0 2\r\n{}\r\n";
        assert!(String::from_utf8(out).unwrap().starts_with(first));
    }

    #[test]
    fn targets_that_make_no_sense_are_refused() {
        for bad in ["http://127.0.0.1:1/path", "ftp:", ""] {
            assert!(Target::new(bad, Kind::Aep).is_err(), "{bad:?}");
        }
    }
}
