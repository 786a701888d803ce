//! A TCP connection with a read buffer and a deadline on every read.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

use super::wait::DEADLINE;

/// One connection to the relay.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, DEADLINE).expect("the relay accepts connections");
        Self::over(stream)
    }

    /// The same with the smallest receive buffer there is, so that little is on its way to a client that does not
    /// read.
    #[track_caller]
    pub fn connect_narrow(address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect_timeout(&address.into(), DEADLINE).expect("the relay accepts connections");
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// The socket itself, for options, shutdown or a reader of one's own.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the relay takes the bytes");
    }

    /// Sends what the relay may refuse to take: a peer that closed is no failure here.
    pub fn send_if_open(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends in two writes, cut at `at`.
    #[track_caller]
    pub fn send_cut(&mut self, bytes: &[u8], at: usize) {
        self.send(&bytes[..at]);
        self.send(&bytes[at..]);
    }

    /// Sends each byte with a write of its own.
    #[track_caller]
    pub fn send_bytewise(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.send([*byte]);
        }
    }

    /// Ends our side; the other stays open.
    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("our side can be ended");
    }

    /// Reads more bytes; false at the clean end.
    #[track_caller]
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 64 * 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("nothing came within {DEADLINE:?}; unread so far: {:?}", self.unread())
                }
                Err(error) => panic!("the connection broke ({error}); unread so far: {:?}", self.unread()),
            }
        }
    }

    /// What has arrived and was not asked for yet, for messages of failures.
    pub fn unread(&self) -> String {
        String::from_utf8_lossy(&self.buffer).into_owned()
    }

    #[track_caller]
    pub fn read_exact(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            assert!(self.fill(), "ended within a message of {count} bytes: {:?}", self.unread());
        }
        self.buffer.drain(..count).collect()
    }

    /// The next byte; nothing at the clean end.
    #[track_caller]
    pub fn read_byte(&mut self) -> Option<u8> {
        if self.buffer.is_empty() && !self.fill() {
            return None;
        }
        Some(self.buffer.remove(0))
    }

    /// Everything up to and including `end`; nothing at the clean end of the connection.
    #[track_caller]
    pub fn read_through(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let mut searched = 0;
        loop {
            let found = self.buffer[searched..].windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                return Some(self.buffer.drain(..searched + at + end.len()).collect());
            }
            searched = self.buffer.len().saturating_sub(end.len() - 1);
            if !self.fill() {
                assert!(self.buffer.is_empty(), "ended in the middle: {:?}", self.unread());
                return None;
            }
        }
    }

    /// Everything up to the clean end.
    #[track_caller]
    pub fn read_to_end(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.buffer)
    }

    /// The relay has ended the connection, cleanly and without a further byte.
    #[track_caller]
    pub fn expect_end(&mut self) {
        let rest = self.read_to_end();
        assert!(rest.is_empty(), "expected the end, got {:?}", String::from_utf8_lossy(&rest));
    }

    /// The relay has ended the connection, be it by a reset: for a peer that went on sending what nobody reads.
    pub fn expect_gone(&mut self) {
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return,
                Ok(count) => panic!("expected the end, got {:?}", String::from_utf8_lossy(&chunk[..count])),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the connection is still there after {DEADLINE:?}: {error}"),
            }
        }
    }
}
