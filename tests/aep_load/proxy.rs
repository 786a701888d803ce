//! A proxy between the generator and a relay that does one thing wrong to each consumer's stream.
//!
//! It takes the stream apart into messages, each framed by itself, and puts it together again, so that a fault can be
//! exactly one bit of one message, or one message. All else passes as it is.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// The event that suffers, counted from 1; there are events before and behind it.
const VICTIM: usize = 3;

/// What is done to the stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    None,
    /// A bit of the byte so far behind this text, in the message.
    Bit(&'static str, usize),
    /// A bit of the byte so far before the end of the message.
    LastBit(usize),
    /// A bit of this byte of the framed message.
    FramingBit(usize),
    /// A bit of the byte so far before the end of the framed message.
    LastFramingBit(usize),
    Doubled,
    /// It comes behind the one after it.
    Late,
    /// So many are lost from it on, and so many are said to be left out in their place.
    LeftOut {
        lost: usize,
        said: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binding {
    EventStream,
    WebSocket,
}

/// Starts a proxy for that relay; ends with the process.
pub(crate) fn start(relay: SocketAddr, fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            // Whoever leaves ends its own connection.
            thread::spawn(move || pass(client?, relay, fault));
        }
    });
    address
}

fn pass(mut client: TcpStream, relay: SocketAddr, fault: Fault) -> std::io::Result<()> {
    let mut server = TcpStream::connect(relay)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let mut requests = BufReader::new(client.try_clone()?);
    let request = head(&mut requests)?;
    server.write_all(&request)?;
    let binding = match request {
        _ if request.starts_with(b"GET /stream") => Some(Binding::EventStream),
        _ if request.starts_with(b"GET /socket") => Some(Binding::WebSocket),
        _ => None,
    };
    let mut to_server = server.try_clone()?;
    thread::spawn(move || {
        let copied = std::io::copy(&mut requests, &mut to_server);
        let _ended = to_server.shutdown(Shutdown::Write);
        copied
    });
    let mut answers = BufReader::new(server);
    let Some(binding) = binding else {
        std::io::copy(&mut answers, &mut client)?;
        return client.shutdown(Shutdown::Write);
    };
    client.write_all(&head(&mut answers)?)?;
    let mut events: Vec<Vec<u8>> = Vec::new();
    loop {
        for message in binding.read(&mut answers)? {
            if !contains(&message, b"\"aep\":") || !contains(&message, b"\"mark\":") {
                client.write_all(&binding.framed(&message))?;
                continue;
            }
            events.push(message);
            for bytes in fault.applied(&events, binding) {
                client.write_all(&bytes)?;
            }
        }
    }
}

fn head(from: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if from.read_until(b'\n', &mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

impl Binding {
    /// What comes next: the messages of one chunk, or that of one frame.
    fn read(self, from: &mut impl BufRead) -> std::io::Result<Vec<Vec<u8>>> {
        match self {
            Self::EventStream => {
                let mut line = String::new();
                from.read_line(&mut line)?;
                let size = usize::from_str_radix(line.trim_end(), 16).map_err(std::io::Error::other)?;
                let chunk = bytes(from, size + 2)?;
                let chunk = String::from_utf8(chunk[..size].to_vec()).unwrap();
                Ok(chunk.split_inclusive("\n\n").map(|message| message.as_bytes().to_vec()).collect())
            }
            Self::WebSocket => {
                let header = bytes(from, 2)?;
                assert_eq!(header[0], 0x81, "whole texts");
                let size = match header[1] {
                    126 => usize::from(u16::from_be_bytes(bytes(from, 2)?.try_into().unwrap())),
                    short => usize::from(short),
                };
                Ok(vec![bytes(from, size)?])
            }
        }
    }

    fn framed(self, message: &[u8]) -> Vec<u8> {
        let size = message.len();
        match self {
            Self::EventStream => [format!("{size:x}\r\n").as_bytes(), message, b"\r\n"].concat(),
            Self::WebSocket if size < 126 => [&[0x81, size as u8], message].concat(),
            Self::WebSocket => [&[0x81, 126], (size as u16).to_be_bytes().as_slice(), message].concat(),
        }
    }

    fn dropped(self, count: u64) -> Vec<u8> {
        match self {
            Self::EventStream => format!(": dropped {count}\n\n").into_bytes(),
            Self::WebSocket => format!("{{\"type\":\"dropped\",\"count\":{count}}}").into_bytes(),
        }
    }
}

impl Fault {
    /// What is sent, framed, for the last of the events so far.
    fn applied(self, events: &[Vec<u8>], binding: Binding) -> Vec<Vec<u8>> {
        let mut message = events.last().unwrap().clone();
        let mut framed = binding.framed(&message);
        let number = events.len();
        match self {
            Self::LeftOut { lost, said } if (VICTIM..VICTIM + lost.max(1)).contains(&number) => {
                let announced = (number == VICTIM && said > 0).then(|| binding.framed(&binding.dropped(said)));
                return announced.into_iter().chain((lost == 0).then_some(framed)).collect();
            }
            Self::Late if number == VICTIM => return Vec::new(),
            Self::Late if number == VICTIM + 1 => return vec![framed, binding.framed(&events[VICTIM - 1])],
            _ if number != VICTIM => {}
            Self::Bit(behind, offset) => {
                let at = memchr::memmem::find(&message, behind.as_bytes()).unwrap() + behind.len() + offset;
                message[at] ^= 1;
                framed = binding.framed(&message);
            }
            Self::LastBit(offset) => {
                let at = message.len() - 1 - offset;
                message[at] ^= 1;
                framed = binding.framed(&message);
            }
            Self::FramingBit(at) => framed[at] ^= 1,
            Self::LastFramingBit(offset) => {
                let at = framed.len() - 1 - offset;
                framed[at] ^= 1;
            }
            Self::Doubled => return vec![framed.clone(), framed],
            Self::None | Self::Late | Self::LeftOut { .. } => {}
        }
        vec![framed]
    }
}

fn bytes(from: &mut impl Read, count: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    memchr::memmem::find(text, what).is_some()
}
