//! A WebSocket client that writes frames by hand and reads them strictly, and one we did not write.

use std::net::TcpStream;
use std::ops::{Deref, DerefMut};

use serde_json::Value;

use super::http::{Http, Response, request};
use super::relay::Relay;

/// A client key, and what RFC 6455 §1.3 says a server answers to it.
pub const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// See [`KEY`].
pub const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Opcodes of RFC 6455 §5.2.
pub mod opcode {
    pub const CONTINUATION: u8 = 0x0;
    pub const TEXT: u8 = 0x1;
    pub const BINARY: u8 = 0x2;
    pub const CLOSE: u8 = 0x8;
    pub const PING: u8 = 0x9;
    pub const PONG: u8 = 0xA;
}

/// A frame from the relay. It was unmasked, whole, without reserved bits and of minimal length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub opcode: u8,
    pub payload: Vec<u8>,
}

/// An open WebSocket.
#[derive(Debug)]
pub struct Ws {
    http: Http,
}

impl Ws {
    /// Upgrades, with the relay's token.
    #[track_caller]
    pub fn connect(relay: &Relay) -> Self {
        Self::connect_with(relay, &[])
    }

    /// Upgrades with further request fields.
    #[track_caller]
    pub fn connect_with(relay: &Relay, fields: &[(&str, &str)]) -> Self {
        let mut http = Http::connect(relay);
        http.send(upgrade_request(relay, fields));
        Self::accept(http)
    }

    /// Reads the answer to an upgrade that was sent, and checks it.
    #[track_caller]
    pub fn accept(mut http: Http) -> Self {
        let head = http.response_head();
        assert_eq!(head.status, 101, "the upgrade is accepted: {head:?} {}", http.unread());
        assert!(head.field("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket")), "{head:?}");
        assert_eq!(head.list("connection"), ["upgrade"]);
        assert_eq!(head.field("sec-websocket-accept"), Some(ACCEPT));
        assert_eq!(head.field("sec-websocket-extensions"), None, "no extension is agreed");
        assert_eq!(head.field("sec-websocket-protocol"), None, "no subprotocol is agreed");
        Self { http }
    }

    /// Sends this upgrade, which must be refused, and answers the refusal.
    #[track_caller]
    pub fn refused(relay: &Relay, request: impl AsRef<[u8]>) -> Response {
        Http::exchange(relay, request).1
    }

    /// Upgrades and says hello with this role, as the agent `name` where the role wants one.
    #[track_caller]
    pub fn hello(relay: &Relay, role: &str, name: &str) -> Self {
        Self::hello_with(relay, role, name, "{}")
    }

    /// The same with these capabilities, as JSON text.
    #[track_caller]
    pub fn hello_with(relay: &Relay, role: &str, name: &str, capabilities: &str) -> Self {
        let mut ws = Self::connect(relay);
        ws.say_hello(role, name, capabilities);
        ws
    }

    /// Upgrades and says hello on a connection with a small receive buffer.
    #[track_caller]
    pub fn narrow(relay: &Relay, role: &str, name: &str, capabilities: &str) -> Self {
        let mut http = Http::connect_narrow(relay);
        http.send(upgrade_request(relay, &[]));
        let mut ws = Self::accept(http);
        ws.say_hello(role, name, capabilities);
        ws
    }

    #[track_caller]
    fn say_hello(&mut self, role: &str, name: &str, capabilities: &str) {
        self.text(format!(
            r#"{{"type":"hello","versions":["0.1"],"role":"{role}","identity":{{"agent":"{name}","instance":"{name}-1"}},"capabilities":{capabilities}}}"#
        ));
        let answer = self.json();
        assert_eq!(answer["type"], "hello", "{answer}");
    }

    /// A consumer with one subscription `s` to this filter.
    #[track_caller]
    pub fn consumer(relay: &Relay, filter: &str) -> Self {
        let mut ws = Self::hello(relay, "consumer", "watcher");
        ws.subscribe("s", &format!(r#""filter":{filter}"#));
        ws
    }

    /// Subscribes with these members (JSON text behind the id) and reads `subscribed`.
    #[track_caller]
    pub fn subscribe(&mut self, id: &str, members: &str) {
        let comma = if members.is_empty() { "" } else { "," };
        let quoted = serde_json::to_string(id).expect("a JSON string");
        self.text(format!(r#"{{"type":"subscribe","id":{quoted}{comma}{members}}}"#));
        assert_eq!(self.json(), serde_json::json!({"type": "subscribed", "id": id}));
    }

    /// Sends one text message in one frame.
    #[track_caller]
    pub fn text(&mut self, text: impl AsRef<[u8]>) {
        self.frame(true, opcode::TEXT, text.as_ref());
    }

    /// Sends one masked frame.
    #[track_caller]
    pub fn frame(&mut self, fin: bool, opcode: u8, payload: &[u8]) {
        let bytes = frame_bytes(fin, opcode, payload);
        self.send(bytes);
    }

    /// The next frame; nothing at the clean end of the connection.
    #[track_caller]
    pub fn next_frame(&mut self) -> Option<Frame> {
        let first = self.http.read_byte()?;
        let second = self.http.read_exact(1)[0];
        assert_eq!(first & 0x80, 0x80, "the relay never fragments");
        assert_eq!(first & 0x70, 0, "no reserved bits");
        assert_eq!(second & 0x80, 0, "a server never masks");
        let length = match second {
            126 => {
                let length = self.http.read_exact(2);
                let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                assert!(length > 125, "a length in its shortest form");
                length
            }
            127 => {
                let length = self.http.read_exact(8);
                let length = u64::from_be_bytes(length.try_into().unwrap());
                assert!(length > 65_535, "a length in its shortest form");
                usize::try_from(length).unwrap()
            }
            short => usize::from(short),
        };
        let opcode = first & 0x0F;
        assert!(matches!(opcode, 1 | 8 | 9 | 10), "the relay sends text and control frames only, not {opcode}");
        assert!(opcode < 8 || length <= 125, "a control frame is short");
        Some(Frame { opcode, payload: self.http.read_exact(length) })
    }

    #[track_caller]
    pub fn recv(&mut self) -> Frame {
        self.next_frame().expect("a frame before the end of the connection")
    }

    /// The next text message. Pings of the relay are answered on the way.
    #[track_caller]
    pub fn message(&mut self) -> String {
        loop {
            let frame = self.recv();
            match frame.opcode {
                opcode::TEXT => {
                    return String::from_utf8(frame.payload).expect("a text message is UTF-8");
                }
                opcode::PING => self.frame(true, opcode::PONG, &frame.payload),
                opcode::CLOSE => panic!("closed instead of a message: {:?}", close_of(&frame)),
                _ => {}
            }
        }
    }

    /// The next text message as JSON.
    #[track_caller]
    pub fn json(&mut self) -> Value {
        let text = self.message();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("a message is JSON: {text:?}"))
    }

    /// The next messages are exactly these, byte for byte.
    #[track_caller]
    pub fn expect(&mut self, messages: &[impl AsRef<str>]) {
        for message in messages {
            assert_eq!(self.message(), message.as_ref());
        }
    }

    /// The next message is an `error` frame with this code; answers it.
    #[track_caller]
    pub fn expect_error(&mut self, code: &str) -> Value {
        let error = self.json();
        assert_eq!((&error["type"], &error["code"]), (&Value::from("error"), &Value::from(code)), "{error}");
        assert!(error["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "a detail in {error}");
        error
    }

    /// The next frame is a close with this code. It is answered, and the relay ends the connection.
    #[track_caller]
    pub fn expect_close(&mut self, code: u16) {
        let frame = self.recv();
        assert_eq!(frame.opcode, opcode::CLOSE, "close {code} expected: {frame:?}");
        assert_eq!(close_of(&frame).map(|(code, _)| code), Some(code), "{frame:?}");
        self.send_if_open(frame_bytes(true, opcode::CLOSE, &code.to_be_bytes()));
        self.http.expect_gone();
    }

    /// Closes from our side: the relay answers with the same code and ends the connection.
    #[track_caller]
    pub fn close(mut self) {
        self.frame(true, opcode::CLOSE, &1000_u16.to_be_bytes());
        loop {
            let frame = self.recv();
            if frame.opcode == opcode::CLOSE {
                assert_eq!(frame.payload, 1000_u16.to_be_bytes(), "the code comes back");
                break;
            }
        }
        self.http.expect_end();
    }

    /// The connection alone, for bytes as they are.
    pub fn into_http(self) -> Http {
        self.http
    }

    /// Everything sent so far has been acted on: messages are answered in order, so the pong comes behind it.
    /// Whatever else arrives before it fails.
    #[track_caller]
    pub fn sync(&mut self) {
        self.text(r#"{"type":"ping","t":"sync"}"#);
        assert_eq!(self.json(), serde_json::json!({"type": "pong", "t": "sync"}));
    }
}

impl Deref for Ws {
    type Target = Http;

    fn deref(&self) -> &Http {
        &self.http
    }
}

impl DerefMut for Ws {
    fn deref_mut(&mut self) -> &mut Http {
        &mut self.http
    }
}

/// Code and reason of a close frame; nothing if it is empty.
#[track_caller]
fn close_of(frame: &Frame) -> Option<(u16, String)> {
    match frame.payload[..] {
        [] => None,
        [high, low, ref reason @ ..] => {
            let reason = String::from_utf8(reason.to_vec()).expect("a close reason is UTF-8");
            Some((u16::from_be_bytes([high, low]), reason))
        }
        [_] => panic!("a close frame of one byte"),
    }
}

/// The upgrade request with the relay's token and further fields.
pub fn upgrade_request(relay: &Relay, fields: &[(&str, &str)]) -> Vec<u8> {
    let authorization = relay.authorization();
    let mut all = vec![
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", KEY),
    ];
    all.extend_from_slice(fields);
    all.extend(authorization.as_ref().map(|(name, value)| (*name, value.as_str())));
    request("GET", "/socket", &all, b"")
}

/// The bytes of one masked frame with the shortest form of its length. The mask is fixed and has no zero byte.
pub fn frame_bytes(fin: bool, opcode: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];
    let mut bytes = vec![if fin { 0x80 } else { 0 } | opcode];
    match payload.len() {
        length @ 0..=125 => bytes.push(0x80 | length as u8),
        length @ 126..=0xFFFF => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().enumerate().map(|(index, byte)| byte ^ MASK[index % 4]));
    bytes
}

/// A connection by `tungstenite`, a client we did not write. Only without a token.
#[track_caller]
pub fn tungstenite_client(relay: &Relay) -> tungstenite::WebSocket<TcpStream> {
    let stream = TcpStream::connect(relay.address()).expect("the relay accepts connections");
    stream.set_read_timeout(Some(super::wait::DEADLINE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let url = format!("ws://{}/socket", relay.address());
    tungstenite::client(url, stream).expect("the upgrade is accepted").0
}
