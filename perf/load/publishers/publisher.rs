//! One publisher: a connection with at most one batch on its way, and the sessions only it writes.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream as BlockingStream;

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::load::arguments::Publishing;
use crate::load::decode::http::{Body, HeadReader};
use crate::load::decode::{Decoder, Fault, Said};
use crate::load::failure::Failure;
use crate::load::target::Target;

/// Bytes of answers read at a time.
const BUFFER_BYTES: usize = 16 << 10;

/// One publisher.
#[derive(Debug)]
pub(crate) struct Publisher {
    stream: TcpStream,
    answers: Answers,
    /// Bytes to send, and how many of them are gone.
    out: Vec<u8>,
    sent: usize,
    /// Sessions it writes, and whose turn is next.
    sessions: Vec<u32>,
    turn: usize,
    /// Answers still to come.
    awaited: usize,
    sent_at: u64,
    /// When the next batch is meant to go, in nanoseconds of the run, and the exact time it stands for.
    pub(crate) due: u64,
    due_exact: f64,
    /// Events it may still send in this stretch.
    pub(crate) share: u64,
    /// When the last answer came.
    pub(crate) ready_since: u64,
}

/// How answers are read.
#[derive(Debug)]
enum Answers {
    Http(HttpAnswers),
    Stream(Decoder),
}

/// Responses one behind another.
#[derive(Debug, Default)]
struct HttpAnswers {
    head: HeadReader,
    /// The response being read: status, body, and its beginning.
    response: Option<(u16, Body, Vec<u8>)>,
}

/// What came of reading answers.
#[derive(Debug)]
pub(crate) enum Turn {
    On,
    Refused(u16, String),
    Ended(String),
}

impl Publisher {
    pub(crate) fn connect(
        target: &Target,
        publishing: Publishing,
        sessions: Vec<u32>,
        registry: &Registry,
        token: Token,
        now: u64,
    ) -> Result<Self, Failure> {
        let (out, answers, awaited) = match target.emitter(publishing)? {
            None => (Vec::new(), Answers::Http(HttpAnswers::default()), 0),
            // The opening ends in a request for a sign that it was read.
            Some((opening, decoder)) => (opening, Answers::Stream(decoder), 1),
        };
        let stream = BlockingStream::connect(target.address).map_err(|error| Failure::Absent(target.address, error))?;
        let local = |error| Failure::Local("a publisher's connection", error);
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(local)?;
        let mut stream = TcpStream::from_std(stream);
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE).map_err(local)?;
        Ok(Self {
            stream,
            answers,
            out,
            sent: 0,
            sessions,
            turn: 0,
            awaited,
            sent_at: now,
            due: 0,
            due_exact: 0.0,
            share: 0,
            ready_since: now,
        })
    }

    /// Begins a stretch whose first batch is due then, and in which it sends `share` events at most.
    pub(crate) fn begin(&mut self, due: u64, share: u64) {
        self.due = due;
        self.due_exact = due as f64;
        self.share = share;
    }

    /// How many of `events` are for its sessions, if all `sessions` get as many, the first ones one more.
    pub(crate) fn share_of(&self, events: u64, sessions: u32) -> u64 {
        let sessions = u64::from(sessions);
        let more = self.sessions.iter().filter(|&&session| u64::from(session) < events % sessions).count();
        events / sessions * self.sessions.len() as u64 + more as u64
    }

    /// Whether the last batch was answered.
    pub(crate) fn is_ready(&self) -> bool {
        self.awaited == 0
    }

    /// The session of the next event.
    pub(crate) fn next_session(&mut self) -> u32 {
        self.turn = if self.turn + 1 < self.sessions.len() { self.turn + 1 } else { 0 };
        self.sessions.get(self.turn).copied().unwrap_or(0)
    }

    /// Where to put what is to be sent.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// A batch of so many events was put into [`out`](Self::out).
    pub(crate) fn on_sent(&mut self, now: u64, events: u64, answers: usize, interval: Option<f64>) {
        self.awaited += answers;
        self.share = self.share.saturating_sub(events);
        self.sent_at = now;
        self.due_exact += interval.unwrap_or(0.0);
        self.due = self.due_exact as u64;
    }

    /// Sends what the socket takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Sends what waits and reads the answers that are there, to the end if the server has `closed`.
    pub(crate) fn turn(&mut self, now: u64, closed: bool, answering: &mut Histogram<u64>) -> Turn {
        if let Err(error) = self.flush() {
            return Turn::Ended(error.to_string());
        }
        let mut buffer = [0; BUFFER_BYTES];
        loop {
            let count = match self.stream.read(&mut buffer) {
                Ok(0) => return Turn::Ended("end of stream".into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::On,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Turn::Ended(error.to_string()),
            };
            let input = buffer.get(..count).unwrap_or_default();
            let mut refused = None;
            let taken = match &mut self.answers {
                Answers::Http(answers) => answers.feed(input, &mut refused),
                Answers::Stream(decoder) => {
                    let mut taken = 0;
                    let fed = decoder.feed(input, &mut self.out, &mut |said| match said {
                        Said::Open => taken += 1,
                        Said::Refused(status, answer) => refused = Some((status, answer)),
                        _ => {}
                    });
                    fed.map(|()| taken)
                }
            };
            if let Some((status, answer)) = refused {
                return Turn::Refused(status, answer);
            }
            match taken {
                Err(fault) => return Turn::Ended(fault.0),
                Ok(0) => {}
                Ok(taken) => {
                    self.awaited = self.awaited.saturating_sub(taken);
                    if self.awaited == 0 {
                        self.ready_since = now;
                        // Grows by itself: nothing is out of range.
                        let recorded = answering.record(now.saturating_sub(self.sent_at));
                        debug_assert!(recorded.is_ok());
                    }
                }
            }
            if let Err(error) = self.flush() {
                return Turn::Ended(error.to_string());
            }
            if count < buffer.len() && !closed {
                return Turn::On;
            }
        }
    }
}

impl HttpAnswers {
    /// Counts complete answers that say yes; the first other one is `refused`.
    fn feed(&mut self, input: &[u8], refused: &mut Option<(u16, String)>) -> Result<usize, Fault> {
        let mut rest = input;
        let mut taken = 0;
        while !rest.is_empty() {
            if self.response.is_none() {
                let Some((head, behind)) = self.head.feed(rest)? else { break };
                rest = behind;
                self.response = Some((head.status, head.body()?, Vec::new()));
            }
            let Some((status, body, text)) = &mut self.response else { break };
            while !rest.is_empty() && !body.is_done() {
                let piece = body.next(&mut rest)?;
                if text.len() < 1024 {
                    text.extend_from_slice(piece);
                }
            }
            if body.is_done() {
                if (200..300).contains(status) {
                    taken += 1;
                } else if refused.is_none() {
                    *refused = Some((*status, String::from_utf8_lossy(text).trim().to_owned()));
                }
                self.response = None;
            }
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_in_any_cut_and_the_first_refusal_is_told() {
        let ok = "HTTP/1.1 202 Accepted\r\nContent-Length: 14\r\n\r\n{\"accepted\":1}";
        let no = "HTTP/1.1 400 Bad Request\r\nContent-Length: 5\r\n\r\nwrong";
        let empty = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n";
        let input = [ok, empty, no, ok].concat().into_bytes();
        for piece in 1..=input.len() {
            let (mut answers, mut refused, mut taken) = (HttpAnswers::default(), None, 0);
            for cut in input.chunks(piece) {
                taken += answers.feed(cut, &mut refused).unwrap();
            }
            assert_eq!((taken, refused), (3, Some((400, "wrong".to_owned()))), "pieces of {piece}");
        }
    }
}
