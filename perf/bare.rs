//! `aep-bare`: the bare loop, the least a server can do for this work. It is the limit every figure is divided by.
//!
//! One thread and one `Poll`. What is posted to `/events` is framed once, as the relay would, and written to every
//! consumer of `/stream` (SSE) and `/socket` (WebSocket): one `send` of one slice per consumer, for each event alone,
//! or with `--coalesce` for everything one turn of the loop brought. Nothing is parsed beyond what framing needs,
//! nothing is checked, filtered, kept apart or timed. With `--keep` the frames of all events stay, and
//! `/stream?from=all` begins with them: the least a replay can cost.
//!
//! A consumer that reads too slowly has its remainder copied, without bound: load it with a window.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;

use base64::Engine as _;
use clap::Parser;
use memchr::memmem;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use sha1::{Digest as _, Sha1};

/// The bare loop: what a relay's speed is measured against.
#[derive(Debug, Parser)]
#[command(name = "aep-bare")]
struct Arguments {
    /// Port on 127.0.0.1; 0: any
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Write all events of a turn at once, not each alone
    #[arg(long)]
    coalesce: bool,
    /// Keep the frames of all events for `/stream?from=all`
    #[arg(long)]
    keep: bool,
}

const LISTENER: Token = Token(usize::MAX);
const READ_BYTES: usize = 1 << 20;
/// Longest request taken, head and body.
const REQUEST_BYTES_MAX: usize = 64 << 20;
const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
                             Transfer-Encoding: chunked\r\n\r\n8\r\n: open\n\n\r\n";

/// What a connection turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Http,
    EventStream,
    WebSocket,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    role: Role,
    /// Bytes of an unfinished request.
    input: Vec<u8>,
    /// Bytes the socket did not take yet.
    backlog: Vec<u8>,
    /// How much of what is kept it has been given, until it has all.
    replayed: Option<usize>,
}

/// Frames for both bindings, ready to be written.
#[derive(Debug, Default)]
struct Frames {
    event_stream: Vec<u8>,
    websocket: Vec<u8>,
}

#[derive(Debug)]
struct Bare {
    arguments: Arguments,
    poll: Poll,
    connections: Vec<Option<Connection>>,
    /// Consumers by binding: indices of connections.
    consumers: Vec<usize>,
    /// Events of this turn, with `--coalesce`.
    turn: Frames,
    /// With `--keep`: all events framed for streams.
    kept: Vec<u8>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    match serve(arguments) {
        Ok(never) => match never {},
        Err(error) => {
            let _ = writeln!(io::stderr(), "aep-bare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: Arguments) -> io::Result<std::convert::Infallible> {
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], arguments.port)))?;
    let poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut stdout = io::stdout();
    writeln!(stdout, "aep-bare on http://{}", listener.local_addr()?)?;
    stdout.flush()?;
    let mut bare = Bare {
        arguments,
        poll,
        connections: Vec::new(),
        consumers: Vec::new(),
        turn: Frames::default(),
        kept: Vec::new(),
    };
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match bare.poll.poll(&mut events, None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            if event.token() == LISTENER {
                bare.accept(&listener)?;
            } else {
                bare.on_ready(event.token().0, event.is_readable(), &mut buffer);
            }
        }
        if !bare.turn.event_stream.is_empty() {
            let mut turn = std::mem::take(&mut bare.turn);
            bare.write_to_all(&turn);
            turn.clear();
            bare.turn = turn;
        }
    }
}

impl Bare {
    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let (mut stream, _) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let index = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
            if index == self.connections.len() {
                self.connections.push(None);
            }
            self.poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
            let (input, backlog) = (Vec::new(), Vec::new());
            self.connections[index] = Some(Connection { stream, role: Role::Http, input, backlog, replayed: None });
        }
    }

    fn on_ready(&mut self, index: usize, readable: bool, buffer: &mut [u8]) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return };
        let mut alive = connection.flush(&self.kept).is_ok();
        while alive && readable {
            let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return };
            match connection.stream.read(buffer) {
                Ok(count @ 1..) if connection.role == Role::Http => {
                    connection.input.extend_from_slice(&buffer[..count]);
                    alive = self.requests(index);
                }
                // What consumers say is not for us.
                Ok(1..) => {}
                Ok(0) => alive = false,
                Err(error) => {
                    alive = error.kind() == io::ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        if !alive {
            self.connections[index] = None;
            self.consumers.retain(|&consumer| consumer != index);
        }
    }

    /// Answers the whole requests of a connection. False when it is to be closed.
    fn requests(&mut self, index: usize) -> bool {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return false };
        let input = std::mem::take(&mut connection.input);
        let mut rest = &input[..];
        while let Some(end) = memmem::find(rest, b"\r\n\r\n") {
            let (head, behind) = rest.split_at(end + 4);
            let length = field(head, b"content-length: ").and_then(|digits| digits.parse().ok()).unwrap_or(0);
            if behind.len() < length {
                break;
            }
            let (body, next) = behind.split_at(length);
            self.answer(index, head, body);
            rest = next;
        }
        let rest = rest.to_vec();
        let fits = rest.len() <= REQUEST_BYTES_MAX;
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) {
            connection.input = rest;
        }
        fits
    }

    fn answer(&mut self, index: usize, head: &[u8], body: &[u8]) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return };
        let answer = if head.starts_with(b"POST /events") {
            let accepted = self.publish(body);
            let accepted = format!("{{\"accepted\":{accepted}}}");
            format!("HTTP/1.1 202 Accepted\r\nContent-Length: {}\r\n\r\n{accepted}", accepted.len()).into_bytes()
        } else if head.starts_with(b"GET /stream") {
            connection.role = Role::EventStream;
            connection.replayed = head.starts_with(b"GET /stream?from").then_some(0);
            self.consumers.push(index);
            STREAM_HEAD.to_vec()
        } else if head.starts_with(b"GET /socket") {
            connection.role = Role::WebSocket;
            self.consumers.push(index);
            let key = field(head, b"sec-websocket-key: ").unwrap_or_default();
            let accept = Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
            let accept = base64::engine::general_purpose::STANDARD.encode(accept);
            format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {accept}\r\n\r\n"
            )
            .into_bytes()
        } else {
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 11\r\n\r\n{\"ok\":true}"
                .to_vec()
        };
        let close = memmem::find(head, b"Connection: close").is_some();
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return };
        connection.write(&answer);
        if connection.replayed.is_some() {
            // An error comes again with the next event of the socket.
            let _ = connection.flush(&self.kept);
        }
        if close {
            let _ = connection.stream.shutdown(std::net::Shutdown::Write);
        }
    }

    /// Frames the events of a body, and writes each to everyone, or leaves all for the end of the turn.
    fn publish(&mut self, body: &[u8]) -> usize {
        let mut accepted = 0;
        let mut alone = Frames::default();
        for line in body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            accepted += 1;
            if self.arguments.coalesce {
                self.turn.push(line);
                continue;
            }
            alone.clear();
            alone.push(line);
            self.write_to_all(&alone);
        }
        accepted
    }

    fn write_to_all(&mut self, frames: &Frames) {
        if self.arguments.keep {
            self.kept.extend_from_slice(&frames.event_stream);
        }
        for &index in &self.consumers {
            let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { continue };
            match connection.role {
                // It finds the event among what is kept.
                Role::EventStream if connection.replayed.is_some() => {
                    let _ = connection.flush(&self.kept);
                }
                Role::EventStream => connection.write(&frames.event_stream),
                Role::WebSocket => connection.write(&frames.websocket),
                Role::Http => {}
            }
        }
    }
}

impl Connection {
    fn write(&mut self, bytes: &[u8]) {
        if !self.backlog.is_empty() {
            self.backlog.extend_from_slice(bytes);
            return;
        }
        // A broken connection is noticed when it is read.
        let taken = self.stream.write(bytes).unwrap_or(0);
        if taken < bytes.len() {
            self.backlog.extend_from_slice(&bytes[taken..]);
        }
    }

    /// Writes what was left over, then what is kept.
    fn flush(&mut self, kept: &[u8]) -> io::Result<()> {
        while !self.backlog.is_empty() {
            match self.stream.write(&self.backlog) {
                Ok(taken) => drop(self.backlog.drain(..taken)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        while let Some(from) = self.replayed.filter(|&from| from < kept.len()) {
            match self.stream.write(&kept[from..]) {
                Ok(taken) => self.replayed = Some(from + taken),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Frames {
    fn clear(&mut self) {
        self.event_stream.clear();
        self.websocket.clear();
    }

    fn push(&mut self, event: &[u8]) {
        let text = |name: &[u8]| between(event, name, b"\"").unwrap_or_default();
        let (session, kind) = (text(b"\"session\":\""), text(b"\"type\":\""));
        let seq = between(event, b"\"seq\":", b",").unwrap_or_default();
        let pieces: [&[u8]; 9] = [b"id: ", session, b":0:", seq, b"\nevent: ", kind, b"\ndata: ", event, b"\n\n"];
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let out = &mut self.event_stream;
        out.extend_from_slice(format!("{bytes:x}\r\n").as_bytes());
        pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        out.extend_from_slice(b"\r\n");
        let out = &mut self.websocket;
        out.push(0x81);
        match event.len() {
            length @ ..126 => out.push(length as u8),
            length @ 126..0x1_0000 => {
                out.push(126);
                out.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                out.push(127);
                out.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        out.extend_from_slice(event);
    }
}

/// What lies between two texts.
fn between<'a>(text: &'a [u8], before: &[u8], behind: &[u8]) -> Option<&'a [u8]> {
    let rest = text.get(memmem::find(text, before)? + before.len()..)?;
    rest.get(..memmem::find(rest, behind)?)
}

/// Value of a field of a head, whatever the case of its name.
fn field<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let line = head
        .split(|&byte| byte == b'\n')
        .find(|line| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)))?;
    std::str::from_utf8(line.get(name.len()..)?).ok().map(str::trim)
}
