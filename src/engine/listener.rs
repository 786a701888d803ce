//! Listening and accepting: the port is taken once, then shared by the listeners of all cores.
//!
//! Owns the listener of one core and the descriptors held in reserve. It does not know what becomes of a connection.
//!
//! - Who holds the port is found out by a bind *without* `SO_REUSEPORT`: with it a second process would silently get
//!   half of the clients. This first socket never listens and stays bound until all listeners do, so the port (a free
//!   one, for port 0) cannot be lost in between.
//! - Readiness is edge-triggered: [`Acceptor::accept`] is called until it has nothing, or again in the next turn.
//! - Out of descriptors, no edge comes when one is free again: accepting is tried again by time. Meanwhile a client is
//!   not left hanging: a descriptor of the reserve is given up, and the client accepted on it as a guest
//!   (`core/accept.rs`). What is given up the other cores may take for connections that stay; so the last one is lent
//!   for a moment only, and nobody waits for another's end.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry};
use socket2::{Domain, Protocol, Socket, Type};
use tracing::debug;

use crate::base::time::{Deadline, Now};
use crate::engine::token;
#[cfg(target_os = "linux")]
use crate::limits::PEER_SILENCE_MAX;

/// Connections that wait to be accepted, per listener; the kernel may allow fewer.
const BACKLOG: i32 = 4096;
/// Descriptors kept for guests when there are no others.
const RESERVE: usize = 8;
/// How soon accepting is tried again without a free descriptor.
const RETRY: Duration = Duration::from_millis(100);

/// One listener per core on the same port, and the address they have.
pub(super) fn bind(address: SocketAddr, cores: usize) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let probe = bound(address, false)?;
    let local = probe.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let listeners = (0..cores).map(|_| {
        let socket = bound(local, true)?;
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from_std(socket.into()))
    });
    let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
    drop(probe);
    Ok((local, listeners))
}

/// Bytes that the kernel takes for a socket beyond what it has sent.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// A bound socket. `SO_REUSEADDR` lets a restart take the port although old connections of it are still in TIME_WAIT;
/// it does not share the port with a listener.
fn bound(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    // Accepted sockets inherit both.
    #[cfg(target_os = "linux")]
    {
        // A full socket reports room in small steps, so that a reader that reads is seen to, and a slow one keeps its
        // backlog here, where it is counted, and not in megabytes of kernel memory.
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        // Who vanishes without a word fails its connection. The kernel's own patience is a quarter of an hour.
        socket.set_tcp_user_timeout(Some(PEER_SILENCE_MAX))?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The accepting end of one core.
#[derive(Debug)]
pub(super) struct Acceptor {
    listener: Option<TcpListener>,
    /// An edge has come and not been used up.
    ready: bool,
    reserve: Vec<File>,
    short_of_descriptors: bool,
    retry_at: Option<Deadline>,
}

/// What accepting brought.
#[derive(Debug)]
pub(super) enum Accepted {
    /// A connection.
    Connection(TcpStream),
    /// A connection on a descriptor of the reserve, which it has to give back soon.
    WithoutDescriptor(TcpStream),
    /// A connection on the last one: it, or another that has one of the reserve, is closed now, then
    /// [`Acceptor::refill`].
    OnLastDescriptor(TcpStream),
    /// None for now.
    Nothing,
}

impl Acceptor {
    pub(super) fn new(mut listener: TcpListener, registry: &Registry) -> io::Result<Self> {
        registry.register(&mut listener, token::LISTENER, Interest::READABLE)?;
        let mut acceptor = Self {
            listener: Some(listener),
            ready: false,
            reserve: Vec::with_capacity(RESERVE),
            short_of_descriptors: false,
            retry_at: None,
        };
        acceptor.refill();
        Ok(acceptor)
    }

    /// An edge has come.
    pub(super) fn on_ready(&mut self) {
        self.ready = true;
    }

    /// Whether connections may be waiting that need no further edge.
    pub(super) const fn is_ready(&self) -> bool {
        self.ready && self.retry_at.is_none() && self.listener.is_some()
    }

    /// When accepting is to be tried again.
    pub(super) const fn retry_at(&self) -> Option<Deadline> {
        self.retry_at
    }

    /// The next connection.
    pub(super) fn accept(&mut self, now: Now) -> Accepted {
        if self.retry_at.is_some_and(|at| at.is_due(now)) {
            self.retry_at = None;
        }
        if !self.is_ready() {
            return Accepted::Nothing;
        }
        if self.short_of_descriptors && self.refill() {
            self.short_of_descriptors = false;
        }
        if self.short_of_descriptors {
            return self.accept_on_reserve(now);
        }
        match self.try_accept() {
            Err(error) if is_out_of_descriptors(&error) => {
                debug!(%error, "no descriptor for a connection");
                self.short_of_descriptors = true;
                self.accept_on_reserve(now)
            }
            Err(error) => self.nothing(now, &error),
            Ok(stream) => Accepted::Connection(stream),
        }
    }

    /// Stops listening. Whoever has not been accepted is reset by the kernel.
    pub(super) fn close(&mut self, registry: &Registry) {
        if let Some(mut listener) = self.listener.take() {
            let _closing_ends_it_too = registry.deregister(&mut listener);
        }
        self.reserve.clear();
        self.retry_at = None;
    }

    fn accept_on_reserve(&mut self, now: Now) -> Accepted {
        if self.reserve.pop().is_none() {
            self.retry_at = Some(now.after(RETRY));
            return Accepted::Nothing;
        }
        match self.try_accept() {
            Ok(stream) if self.reserve.is_empty() => Accepted::OnLastDescriptor(stream),
            Ok(stream) => Accepted::WithoutDescriptor(stream),
            Err(error) => {
                // Taken back at once, before somebody else has it.
                self.refill();
                self.nothing(now, &error)
            }
        }
    }

    fn nothing(&mut self, now: Now, error: &io::Error) -> Accepted {
        if error.kind() == io::ErrorKind::WouldBlock {
            self.ready = false;
        } else {
            // Another core took the descriptor, or the kernel lacks memory: not a reason to spin.
            self.retry_at = Some(now.after(RETRY));
        }
        Accepted::Nothing
    }

    fn try_accept(&mut self) -> io::Result<TcpStream> {
        let Some(listener) = &self.listener else { return Err(io::ErrorKind::WouldBlock.into()) };
        loop {
            match listener.accept() {
                Ok((stream, _peer)) => return Ok(stream),
                // The client has gone again, or a signal came: the next in the queue.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether something is left of the reserve.
    pub(super) const fn has_reserve(&self) -> bool {
        !self.reserve.is_empty()
    }

    /// Takes free descriptors into the reserve. Whether it is full.
    pub(super) fn refill(&mut self) -> bool {
        while self.reserve.len() < RESERVE {
            match File::open("/dev/null") {
                Ok(file) => self.reserve.push(file),
                Err(_) => return false,
            }
        }
        true
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// EMFILE (of the process) and ENFILE (of the machine); `io::ErrorKind` has no name for them.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_refused_although_it_could_be_shared() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (local, listeners) = bind(any, 3).unwrap();
        assert_eq!(listeners.len(), 3);
        assert!(listeners.iter().all(|listener| listener.local_addr().unwrap() == local));
        assert_ne!(local.port(), 0);
        assert_eq!(bind(local, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listeners);
        bind(local, 2).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_accepted_connection_fails_when_its_peer_is_silent_for_too_long() {
        let (local, mut listeners) = bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let _client = std::net::TcpStream::connect(local).unwrap();
        let (accepted, _) = listeners.remove(0).accept().unwrap();
        assert_eq!(socket2::SockRef::from(&accepted).tcp_user_timeout().unwrap(), Some(PEER_SILENCE_MAX));
    }

    #[test]
    fn a_port_that_a_plain_listener_has_is_refused() {
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(bind(other.local_addr().unwrap(), 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
