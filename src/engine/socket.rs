//! The one home of calls on a connection's socket: read, write, shut down, close. Never blocks.
//!
//! Interest is registered once, for both directions and edge-triggered, and never changed: who stops reading just does
//! not read and remembers that it could.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// A connection's socket.
#[derive(Debug)]
pub(super) struct Socket(TcpStream);

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// That many bytes, at least one.
    Bytes(usize),
    /// Nothing before the next readable edge.
    WouldBlock,
    /// The peer has sent its last byte.
    End,
}

impl Socket {
    /// Takes over an accepted stream. Small messages are not held back (`TCP_NODELAY`); a socket that cannot have this
    /// is broken, which its first use will tell.
    pub(super) fn new(stream: TcpStream) -> Self {
        let _broken = stream.set_nodelay(true);
        Self(stream)
    }

    /// Registers both directions.
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.0, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Ends the registration; closing the socket ends it too.
    pub(super) fn deregister(&mut self, registry: &Registry) {
        let _already_closed = registry.deregister(&mut self.0);
    }

    /// Reads what is there, at most as much as fits.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Received> {
        match retry(|| self.0.read(into)) {
            Ok(0) => Ok(Received::End),
            Ok(bytes) => Ok(Received::Bytes(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::WouldBlock),
            Err(error) => Err(error),
        }
    }

    /// Writes one slice; answers how much of it was taken, 0 if the socket is full.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        full_is_zero(retry(|| self.0.write(bytes)))
    }

    /// Writes several slices with one call; answers how much was taken, 0 if the socket is full.
    pub(super) fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        full_is_zero(retry(|| self.0.write_vectored(slices)))
    }

    /// Whether a read would find something, be it the end or a failure.
    pub(super) fn has_input(&self) -> bool {
        !matches!(retry(|| self.0.peek(&mut [0])), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Whether the connection has failed: by a reset, or by its peer's silence. After the peer's end no read tells it
    /// any more.
    pub(super) fn has_failed(&self) -> bool {
        !matches!(self.0.take_error(), Ok(None))
    }

    /// Tells the peer that nothing more comes, behind everything written.
    pub(super) fn shut_write(&mut self) {
        let _already_closed = self.0.shutdown(Shutdown::Write);
    }
}

fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn full_is_zero(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}
