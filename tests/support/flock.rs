//! Thousands of consumers on one thread: event streams and WebSockets that are read as fast as they deliver.
//!
//! Framing is read as strictly as by `Sse` and `Ws`, but pieces are handed on as they lie in the buffer, so that the
//! flock is never what a test waits for.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::http::{query, request};
use super::relay::Relay;
use super::websocket::{frame_bytes, opcode, upgrade_request};

/// How long a flock may be without any progress before its test fails.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Bytes taken from one member before the next one has its turn.
const TURN_BYTES: usize = 1 << 20;

/// What a member has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// One HTTP chunk of an event stream: whole messages. The last chunk of the body is empty.
    Chunk(&'a [u8]),
    /// One WebSocket frame.
    Frame(u8, &'a [u8]),
    /// The connection has ended, behind whole chunks and frames.
    End,
}

impl<'a> Piece<'a> {
    /// The events in it, as they were received: the data of messages, the text of frames. Comments are skipped.
    pub fn events(self) -> impl Iterator<Item = &'a [u8]> {
        let (mut chunk, frame): (&[u8], _) = match self {
            Self::Chunk(chunk) => (chunk, None),
            Self::Frame(opcode::TEXT, text) => (b"", Some(text)),
            Self::Frame(..) | Self::End => (b"", None),
        };
        let messages = std::iter::from_fn(move || {
            let length = memchr::memmem::find(chunk, b"\n\n")?;
            let (message, rest) = chunk.split_at(length);
            chunk = &rest[2..];
            Some(message)
        });
        let data = messages.filter(|message| !message.starts_with(b": ")).map(|message| {
            let at = memchr::memmem::find(message, b"\ndata: ").expect("an event has data");
            &message[at + 7..]
        });
        data.chain(frame)
    }
}

/// Many consumers.
#[derive(Debug)]
pub struct Flock {
    poll: Poll,
    members: Vec<Member>,
    /// Members that were left with unread bytes.
    again: VecDeque<usize>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Member {
    stream: TcpStream,
    kind: Kind,
    in_head: bool,
    unread: Vec<u8>,
    ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    EventStream,
    WebSocket,
}

impl Flock {
    pub fn new() -> Self {
        Self {
            poll: Poll::new().expect("a poll"),
            members: Vec::new(),
            again: VecDeque::new(),
            scratch: vec![0; 256 << 10],
        }
    }

    /// Lets this process open as many connections as the machine allows; answers how many descriptors that are.
    pub fn raise_descriptor_limit() -> u64 {
        rlimit::increase_nofile_limit(u64::MAX).expect("the descriptor limit can be asked for")
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Adds event streams, each with these parameters.
    #[track_caller]
    pub fn add_streams(&mut self, relay: &Relay, count: usize, parameters: &[(&str, &str)]) {
        let authorization = relay.token().map(|token| format!("Bearer {token}"));
        let fields: Vec<(&str, &str)> = authorization.iter().map(|value| ("Authorization", value.as_str())).collect();
        let request = request("GET", &query("/stream", parameters), &fields, b"");
        for _ in 0..count {
            self.add(relay.address(), Kind::EventStream, &request);
        }
        let opened = Piece::Chunk(b": open\n\n");
        self.drive(count, |_, piece| {
            assert_eq!(piece, opened, "a stream opens");
            1
        });
    }

    /// Adds WebSocket consumers, each with one subscription `s` to this filter.
    #[track_caller]
    pub fn add_websockets(&mut self, relay: &Relay, count: usize, filter: &str) {
        let hello = br#"{"type":"hello","versions":["0.1"],"role":"consumer"}"#;
        let subscribe = format!(r#"{{"type":"subscribe","id":"s","filter":{filter}}}"#);
        let mut bytes = upgrade_request(relay, &[]);
        bytes.extend(frame_bytes(true, opcode::TEXT, hello));
        bytes.extend(frame_bytes(true, opcode::TEXT, subscribe.as_bytes()));
        for _ in 0..count {
            self.add(relay.address(), Kind::WebSocket, &bytes);
        }
        self.drive(count, |_, piece| match piece {
            Piece::Frame(opcode::TEXT, br#"{"type":"subscribed","id":"s"}"#) => 1,
            Piece::Frame(opcode::TEXT, text) if text.starts_with(br#"{"type":"hello""#) => 0,
            other => panic!("a subscription is answered, not {other:?}"),
        });
    }

    #[track_caller]
    fn add(&mut self, address: SocketAddr, kind: Kind, request: &[u8]) {
        let mut stream = std::net::TcpStream::connect(address).expect("the relay accepts connections");
        stream.write_all(request).expect("the relay takes the request");
        stream.set_nonblocking(true).unwrap();
        let mut stream = TcpStream::from_std(stream);
        let token = Token(self.members.len());
        self.poll.registry().register(&mut stream, token, Interest::READABLE).expect("registered");
        self.members.push(Member { stream, kind, in_head: true, unread: Vec::new(), ended: false });
    }

    /// Sends bytes that fit the socket's buffer, if the relay still takes any.
    pub fn send_if_open(&mut self, member: usize, bytes: &[u8]) -> bool {
        self.members[member].stream.write_all(bytes).is_ok()
    }

    /// Reads all members until what `on` has answered adds up to `goal`. `on` is told the member and what it read, and
    /// answers how much closer to the goal that is.
    #[track_caller]
    pub fn drive(&mut self, goal: usize, mut on: impl FnMut(usize, Piece) -> usize) {
        let mut events = Events::with_capacity(1024);
        let mut reached = 0;
        let mut quiet_since = Instant::now();
        while reached < goal {
            let timeout = if self.again.is_empty() { Duration::from_millis(200) } else { Duration::ZERO };
            self.poll.poll(&mut events, Some(timeout)).expect("a poll");
            self.again.extend(events.iter().map(|event| event.token().0));
            let ready = self.again.len();
            assert!(
                ready > 0 || quiet_since.elapsed() < SILENCE_MAX,
                "nothing came within {SILENCE_MAX:?}; reached {reached} of {goal}"
            );
            for _ in 0..ready {
                let index = self.again.pop_front().expect("a member is ready");
                let member = &mut self.members[index];
                if member.read(&mut self.scratch, |piece| reached += on(index, piece)) {
                    self.again.push_back(index);
                }
            }
            if ready > 0 {
                quiet_since = Instant::now();
            }
        }
    }
}

impl Member {
    /// Reads for one turn and hands on what is whole. Answers whether there may be more.
    #[track_caller]
    fn read(&mut self, scratch: &mut [u8], mut on: impl FnMut(Piece)) -> bool {
        let mut taken = 0;
        while taken < TURN_BYTES && !self.ended {
            match self.stream.read(scratch) {
                Ok(0) => {
                    assert!(self.unread.is_empty(), "ended within a message: {:?}", self.excerpt());
                    self.ended = true;
                    on(Piece::End);
                }
                Ok(count) => {
                    taken += count;
                    self.unread.extend_from_slice(&scratch[..count]);
                    self.hand_on(&mut on);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the connection broke ({error}) at {:?}", self.excerpt()),
            }
        }
        !self.ended
    }

    #[track_caller]
    fn hand_on(&mut self, on: &mut impl FnMut(Piece)) {
        let mut at = 0;
        if self.in_head {
            let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") else { return };
            let expected: &[u8] = if self.kind == Kind::EventStream { b"HTTP/1.1 200 " } else { b"HTTP/1.1 101 " };
            assert!(self.unread.starts_with(expected), "{:?}", self.excerpt());
            self.in_head = false;
            at = end + 4;
        }
        let split = if self.kind == Kind::EventStream { chunk } else { frame };
        while let Some((piece, length)) = split(&self.unread[at..]) {
            on(piece);
            at += length;
        }
        self.unread.drain(..at);
    }

    fn excerpt(&self) -> String {
        String::from_utf8_lossy(&self.unread[..self.unread.len().min(500)]).into_owned()
    }
}

/// The first chunk and its whole length.
#[track_caller]
fn chunk(bytes: &[u8]) -> Option<(Piece<'_>, usize)> {
    let line = bytes.iter().position(|byte| *byte == b'\n')?;
    let size = std::str::from_utf8(&bytes[..line]).ok().and_then(|size| size.strip_suffix('\r'));
    let size = size.and_then(|size| usize::from_str_radix(size, 16).ok()).expect("a chunk size");
    let end = line + 1 + size;
    let chunk = bytes.get(line + 1..end)?;
    let close = bytes.get(end..end + 2)?;
    assert_eq!(close, b"\r\n", "a chunk ends in CR LF");
    assert!(chunk.is_empty() || chunk.ends_with(b"\n\n"), "a chunk holds whole messages");
    Some((Piece::Chunk(chunk), end + 2))
}

/// The first frame and its whole length.
#[track_caller]
fn frame(bytes: &[u8]) -> Option<(Piece<'_>, usize)> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    assert!(first & 0xF0 == 0x80 && second & 0x80 == 0, "whole and unmasked: {first:x} {second:x}");
    let (head, length) = match second {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().unwrap()))),
        127 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().unwrap()) as usize),
        short => (2, usize::from(short)),
    };
    let payload = bytes.get(head..head + length)?;
    Some((Piece::Frame(first & 0x0F, payload), head + length))
}
