//! One consumer: its connection, if it has one, and its account, which outlives connections.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::Plan;
use crate::load::check::Check;
use crate::load::decode::{Decoder, Said};
use crate::load::failure::Failure;
use crate::load::target::{Subscription, Target};

/// Receive buffer of a consumer that stops reading: small, so that the server feels it soon.
const STALLED_RECEIVE_BYTES: usize = 4096;

/// One consumer.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) plan: Plan,
    pub(crate) check: Check,
    link: Option<Link>,
    /// It was subscribed before: a new connection resumes.
    pub(crate) was_open: bool,
    /// Events until the next cut.
    pub(crate) until_cut: u64,
    /// When the current connection was begun, in nanoseconds of the run.
    pub(crate) began: u64,
}

/// A connection.
#[derive(Debug)]
struct Link {
    stream: TcpStream,
    decoder: Decoder,
    /// Bytes to send, and how many of them are gone.
    out: Vec<u8>,
    sent: usize,
    open: bool,
}

/// What a turn of a connection came to.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It goes on.
    On,
    /// The server ended it: why.
    Ended(String),
    /// What came is not the protocol: how so.
    Broken(String),
    /// The run cannot be made.
    Failed(Failure),
}

impl Consumer {
    pub(crate) fn new(plan: Plan) -> Self {
        let check = Check::new(plan.follows);
        let until_cut = plan.cut_every.unwrap_or(u64::MAX);
        Self { plan, check, link: None, was_open: false, until_cut, began: 0 }
    }

    /// Begins a connection.
    pub(crate) fn connect(&mut self, target: &Target, run: u32, now: u64, registry: &Registry, token: Token) -> Turn {
        let from = (self.was_open || self.plan.from_beginning).then(|| self.check.positions().collect());
        let (out, decoder) = target.consumer(&Subscription {
            websocket: self.plan.websocket,
            filters: &self.plan.filters,
            follows: self.plan.follows,
            from,
            run,
        });
        let stream = connect(target.address, self.plan.stalls).and_then(|mut stream| {
            registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
            Ok(stream)
        });
        self.began = now;
        match stream {
            Ok(stream) => {
                self.link = Some(Link { stream, decoder, out, sent: 0, open: false });
                Turn::On
            }
            Err(error) => Turn::Failed(absent(target.address, error)),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.open)
    }

    /// Whether its connection is within something that has not ended.
    pub(crate) fn is_within(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.decoder.is_within())
    }

    pub(crate) fn mark_open(&mut self) {
        self.was_open = true;
        if let Some(link) = &mut self.link {
            link.open = true;
            acknowledge_alike(&link.stream);
        }
    }

    /// Drops the connection as it is.
    pub(crate) fn cut(&mut self) {
        self.link = None;
    }

    /// Sends what waits, reads what is there, to the end if the server has `closed`, and hands what was said to `on`.
    pub(crate) fn turn(
        &mut self,
        address: SocketAddr,
        closed: bool,
        buffer: &mut [u8],
        on: &mut dyn FnMut(&mut Check, Said<'_>),
    ) -> Turn {
        let Self { link: Some(link), check, plan, was_open, .. } = self else { return Turn::On };
        let lost = |error: io::Error| {
            if *was_open { Turn::Ended(error.to_string()) } else { Turn::Failed(absent(address, error)) }
        };
        if let Err(error) = link.flush() {
            return lost(error);
        }
        if plan.stalls && link.open {
            return Turn::On;
        }
        loop {
            match link.stream.read(buffer) {
                Ok(0) => return Turn::Ended("end of stream".into()),
                Ok(count) => {
                    let input = buffer.get(..count).unwrap_or_default();
                    if let Err(fault) = link.decoder.feed(input, &mut link.out, &mut |said| on(check, said)) {
                        return Turn::Broken(fault.0);
                    }
                    if let Err(error) = link.flush() {
                        return lost(error);
                    }
                    // A short read left nothing behind but an end that came with it; what comes later brings a new
                    // edge.
                    if count < buffer.len() && !closed {
                        return Turn::On;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::On,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return lost(error),
            }
        }
    }

    /// Reads what is there for a consumer that stalled; `left` shrinks by as much. Ends the connection if the server
    /// has. Returns how many events the server says it left out.
    pub(crate) fn catch_up(&mut self, buffer: &mut [u8], left: &mut usize) -> u64 {
        let mut shed = 0;
        while let Some(link) = &mut self.link
            && *left > 0
        {
            let goes_on = match link.stream.read(buffer) {
                Ok(count @ 1..) => {
                    *left = left.saturating_sub(count);
                    let input = buffer.get(..count).unwrap_or_default();
                    let fed = link.decoder.feed(input, &mut link.out, &mut |said| {
                        if let Said::Shed(count) = said {
                            shed += count;
                        }
                    });
                    fed.is_ok() && link.flush().is_ok()
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => error.kind() == io::ErrorKind::Interrupted,
                Ok(_) => false,
            };
            if !goes_on {
                self.link = None;
            }
        }
        shed
    }
}

impl Link {
    fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(count) => self.sent += count,
                // Not connected yet, or full: the socket says when.
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) => {
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }
}

fn connect(address: SocketAddr, stalls: bool) -> io::Result<TcpStream> {
    if !stalls {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        return Ok(stream);
    }
    // The window is offered with the first packet, so the buffer has to be small before.
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM.nonblocking(), None)?;
    socket.set_recv_buffer_size(STALLED_RECEIVE_BYTES)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}

/// Puts a connection that has just been opened into the state in which it would be after a short silence anyway: what
/// is read is acknowledged at once. A client that has just answered something (a greeting, in the WebSocket protocols
/// that have one) counts as interactive to the kernel and holds its acknowledgements back, for as long as events keep
/// coming; servers would be compared by how they begin.
fn acknowledge_alike(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    let _as_it_is = socket2::SockRef::from(stream).set_tcp_quickack(true);
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

/// Linux's number for a connection that is under way.
const EINPROGRESS: i32 = 115;

fn absent(address: SocketAddr, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::TimedOut => {
            Failure::Absent(address, error)
        }
        _ => Failure::Local("a consumer's connection", error),
    }
}
