//! The WebSocket half of a connection: bytes in, messages out, and the frames that the protocol itself asks for (RFC
//! 6455 §5.5, §7; contract §6). Sans-IO.
//!
//! Owns the state of the close handshake, what has been heard of the peer, and the bound on pongs. It knows no socket
//! and no service; its driver sends what is put into `out`.
//!
//! - OPEN → CLOSING when our close frame is queued first; → CLOSED when the peer's close came, or it broke the RFC.
//! - Messages are handed over in OPEN only; else they are read past, and nothing of them is kept.
//! - A message has a reception from its first byte in a read that does not end it, be that of a head; so has a control
//!   frame, which brings nothing by it. Other control frames inside a message are no progress of it, though the peer is
//!   heard.
//! - Pongs that the socket has not taken are at most [`PONG_BYTES_MAX`] and one frame: beyond that no input is taken,
//!   so a flood of pings fills the kernel's buffers and not ours.

use std::time::Duration;

use crate::base::time::{Deadline, Now};
use crate::engine::connection::reception::Reception;
use crate::engine::service::{Ending, Group, WebSocketUpgrade};
use crate::limits::FRAGMENTS_MAX;
use crate::wire::websocket::frame::{encode_close, encode_ping, encode_pong};
use crate::wire::websocket::{Incoming, MessageDecoder, Payload};

/// Bytes of pongs that may wait for the socket.
const PONG_BYTES_MAX: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(in crate::engine) struct WebSocket {
    pub(in crate::engine) group: Group,
    decoder: MessageDecoder,
    /// Of the message under way.
    reception: Option<Box<Reception>>,
    state: WebSocketState,
    /// When something was last heard of the peer.
    heard_at: Now,
    pinged_at: Now,
    ping_interval_ms: u32,
    silence_max_ms: u32,
    /// Bytes of pongs queued since none was.
    pong_bytes: usize,
    /// Bytes that must leave the queue until the last of them has.
    pongs_end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WebSocketState {
    Open,
    Closing,
    Closed,
}

/// What the bytes tell.
#[derive(Debug)]
pub(in crate::engine) enum WebSocketStep<'a> {
    /// Nothing more before there are more bytes.
    Need,
    /// A message for the service.
    Text(Payload<'a>),
    /// The first message is over its bound, which the service has to know. Nothing of it or of what follows is kept.
    TooLarge,
    /// A frame that is done with; it may have been answered.
    Done,
    /// Both sides have closed, or the peer cannot be understood: what is queued is the last.
    Closed(Ending),
}

/// What the silence of the peer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Silence {
    /// Ask again then.
    Until(Deadline),
    /// A ping was put into `out`; ask again then.
    Ping(Deadline),
    /// It has lasted too long.
    TooLong,
}

impl WebSocket {
    pub(in crate::engine) fn new(upgrade: &WebSocketUpgrade, now: Now) -> Self {
        Self {
            group: upgrade.group,
            decoder: MessageDecoder::new(upgrade.message_bytes_max, upgrade.first_message_bytes_max, FRAGMENTS_MAX),
            reception: None,
            state: WebSocketState::Open,
            heard_at: now,
            pinged_at: now,
            ping_interval_ms: milliseconds(upgrade.ping_interval),
            silence_max_ms: milliseconds(upgrade.silence_max),
            pong_bytes: 0,
            pongs_end: 0,
        }
    }

    /// Decodes on, up to the next thing to do. Answers how many bytes were used up: all, unless there is something to
    /// do.
    pub(in crate::engine) fn next<'a>(&mut self, input: &'a mut [u8], out: &mut Vec<u8>) -> (usize, WebSocketStep<'a>) {
        let (used, incoming) = self.decoder.decode(input);
        let open = self.state == WebSocketState::Open;
        let step = match incoming {
            None => WebSocketStep::Need,
            Some(Incoming::Text(payload)) if open => {
                self.reception = None;
                WebSocketStep::Text(payload)
            }
            Some(Incoming::TooLarge) if open => WebSocketStep::TooLarge,
            Some(Incoming::Ping(payload)) if open => {
                let before = out.len();
                encode_pong(out, &payload);
                self.pong_bytes += out.len() - before;
                WebSocketStep::Done
            }
            Some(Incoming::Text(_) | Incoming::TooLarge | Incoming::Ping(_) | Incoming::Pong) => WebSocketStep::Done,
            Some(Incoming::Close(code)) => {
                if open {
                    encode_close(out, code, "");
                }
                self.state = WebSocketState::Closed;
                WebSocketStep::Closed(Ending::Peer)
            }
            Some(Incoming::Fault(fault)) => {
                if open {
                    encode_close(out, Some(fault.code), fault.reason);
                }
                self.state = WebSocketState::Closed;
                WebSocketStep::Closed(Ending::ProtocolError)
            }
        };
        (used, step)
    }

    /// Our close frame is queued.
    pub(in crate::engine) fn on_close_queued(&mut self) {
        if self.state == WebSocketState::Open {
            self.state = WebSocketState::Closing;
            self.decoder.read_past_messages();
            self.reception = None;
        }
    }

    /// Whether frames of a protocol may be queued.
    pub(in crate::engine) fn is_open(&self) -> bool {
        self.state == WebSocketState::Open
    }

    /// Whether input can be made use of now.
    pub(in crate::engine) const fn takes_input(&self) -> bool {
        self.pong_bytes <= PONG_BYTES_MAX
    }

    /// Memory that a message cut by frames or reads holds, bytes.
    pub(in crate::engine) fn held_bytes(&self) -> usize {
        self.decoder.held_bytes()
    }

    /// Bytes of the message under way that have come.
    pub(in crate::engine) fn message_bytes(&self) -> usize {
        self.decoder.message_bytes()
    }

    /// What has come so far of a message has come by now; one that has begun has that much time.
    pub(in crate::engine) fn note_received(&mut self, now: Now, time: Duration) {
        if self.state == WebSocketState::Open && self.decoder.is_open() {
            let reception = self.reception.get_or_insert_with(|| Box::new(Reception::new(now, time)));
            reception.on_bytes(self.decoder.message_bytes(), now);
        } else {
            self.reception = None;
        }
    }

    /// The message under way.
    pub(in crate::engine) fn reception_mut(&mut self) -> Option<&mut Reception> {
        self.reception.as_deref_mut()
    }

    /// Bytes came from the peer, or it took some that it had not taken before.
    pub(in crate::engine) const fn on_heard(&mut self, now: Now) {
        self.heard_at = now;
    }

    /// Frames of [`Self::next`] were queued; the queue now has that many bytes.
    pub(in crate::engine) const fn on_replies_queued(&mut self, queue_bytes: usize) {
        if self.pong_bytes > 0 {
            self.pongs_end = queue_bytes;
        }
    }

    /// The socket took that many bytes.
    pub(in crate::engine) const fn on_sent(&mut self, bytes: usize) {
        self.pongs_end = self.pongs_end.saturating_sub(bytes);
        if self.pongs_end == 0 {
            self.pong_bytes = 0;
        }
    }

    /// Looks at how long the peer has been silent. `read`: whether it is being read, for a peer that is not cannot be
    /// heard; nor was any before `awake_since`. What was silent before is asked at once and has its whole time to
    /// answer.
    pub(in crate::engine) fn on_deadline(
        &mut self,
        now: Now,
        awake_since: Now,
        read: bool,
        out: &mut Vec<u8>,
    ) -> Silence {
        if !read {
            self.heard_at = now;
        }
        let dropped_at = self.heard_at.max(awake_since).after(Duration::from_millis(self.silence_max_ms.into()));
        if dropped_at.is_due(now) {
            return Silence::TooLong;
        }
        let ping_at = self.ping_at();
        if ping_at.is_due(now) {
            encode_ping(out, b"");
            self.pinged_at = now;
            return Silence::Ping(self.ping_at().min(dropped_at));
        }
        Silence::Until(ping_at.min(dropped_at))
    }

    fn ping_at(&self) -> Deadline {
        self.heard_at.max(self.pinged_at).after(Duration::from_millis(self.ping_interval_ms.into()))
    }
}

/// As each connection keeps it.
fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn websocket() -> WebSocket {
        websocket_for(100)
    }

    fn websocket_for(message_bytes_max: usize) -> WebSocket {
        let upgrade = WebSocketUpgrade {
            group: Group(0),
            accept: [b'x'; 28],
            message_bytes_max,
            first_message_bytes_max: message_bytes_max / 2,
            ping_interval: Duration::from_secs(30),
            silence_max: Duration::from_secs(90),
        };
        WebSocket::new(&upgrade, Now(0))
    }

    /// A client frame with the mask 0.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![first, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        frame
    }

    /// What the half says to the input cut in two, and what it sends.
    fn drive(half: &mut WebSocket, input: &[u8], cut: usize) -> (Vec<String>, Vec<u8>) {
        let (mut log, mut out) = (Vec::new(), Vec::new());
        for piece in [&input[..cut], &input[cut..]] {
            let (mut piece, mut at) = (piece.to_vec(), 0);
            loop {
                let (used, step) = half.next(&mut piece[at..], &mut out);
                at += used;
                match step {
                    WebSocketStep::Need => break,
                    WebSocketStep::Text(payload) => log.push(format!("text {}", String::from_utf8_lossy(&payload))),
                    WebSocketStep::TooLarge => log.push("too large".to_owned()),
                    WebSocketStep::Done => {}
                    WebSocketStep::Closed(ending) => {
                        log.push(format!("{ending:?}"));
                        return (log, out);
                    }
                }
            }
        }
        (log, out)
    }

    #[track_caller]
    fn check(input: &[u8], log: &[&str], out: &[u8]) {
        for cut in 0..=input.len() {
            let (was, sent) = drive(&mut websocket(), input, cut);
            assert_eq!(was, log, "cut at {cut}");
            assert_eq!(sent, out, "cut at {cut}");
        }
    }

    #[test]
    fn messages_pass_and_pings_are_answered_between_them() {
        let input = [frame(0x81, b"one"), frame(0x89, b"p"), frame(0x8a, b""), frame(0x81, b"two")];
        check(&input.concat(), &["text one", "text two"], b"\x8a\x01p");
    }

    #[test]
    fn a_first_message_over_its_bound_is_told_once_and_pings_are_answered_on() {
        let input = [frame(0x01, &[b'x'; 51]), frame(0x89, b"p"), frame(0x80, b"x"), frame(0x88, b"")];
        check(&input.concat(), &["too large", "Peer"], b"\x8a\x01p\x88\x00");
        let input = [frame(0x81, &[b'x'; 50]), frame(0x81, &[b'x'; 100]), frame(0x88, b"")];
        let (log, _) = drive(&mut websocket(), &input.concat(), 7);
        assert_eq!(log.len(), 3, "the second one has the bound of all: {log:?}");
    }

    #[test]
    fn a_message_has_its_time_from_its_first_byte_and_earns_more_by_content() {
        let mut half = websocket_for(1 << 20);
        let mut at = |bytes: &[u8], second: u64| {
            let (mut bytes, mut used, mut out) = (bytes.to_vec(), 0, Vec::new());
            while used < bytes.len() {
                used += half.next(&mut bytes[used..], &mut out).0;
            }
            half.note_received(Now(second * 1000), Duration::from_secs(30));
            half.reception_mut().map(|reception| reception.deadline().0 / 1000)
        };
        let large = |first: u8| [&[first, 0xfe, 0x30, 0, 0, 0, 0, 0][..], &[b'x'; 0x3000]].concat();
        assert_eq!(at(&frame(0x81, b"whole"), 5), None);
        assert_eq!(at(b"\x01", 10), Some(40), "a head begun");
        assert_eq!(at(&large(0x01)[1..], 35), Some(46));
        assert_eq!(at(&frame(0x89, &[b'p'; 125]).repeat(200), 40), Some(46), "pings");
        assert_eq!(at(&large(0x00), 44), Some(55));
        // The next message has its own time.
        assert_eq!(at(&[frame(0x80, b""), vec![0x81]].concat(), 50), Some(80));
        half.on_close_queued();
        assert!(half.reception_mut().is_none());
    }

    #[test]
    fn a_close_is_echoed_with_its_code_or_empty() {
        check(&frame(0x88, b""), &["Peer"], b"\x88\x00");
        check(&frame(0x88, b"\x03\xe8bye"), &["Peer"], b"\x88\x02\x03\xe8");
        check(&[frame(0x88, b""), frame(0x81, b"late")].concat(), &["Peer"], b"\x88\x00");
    }

    #[test]
    fn a_fault_closes_with_the_code_of_the_rfc() {
        let (log, out) = drive(&mut websocket(), &frame(0x88, b"\x03\xed"), 0);
        assert_eq!(log, ["ProtocolError"]);
        assert_eq!(&out[2..4], 1002_u16.to_be_bytes());
        let (_, out) = drive(&mut websocket(), &frame(0x81, b"\xff"), 0);
        assert_eq!(&out[2..4], 1007_u16.to_be_bytes());
    }

    #[test]
    fn behind_our_close_only_the_peers_close_counts() {
        let mut half = websocket();
        half.on_close_queued();
        let input = [frame(0x81, b"one"), frame(0x89, b""), frame(0x88, b"\x03\xe9")].concat();
        assert_eq!(drive(&mut half, &input, 3), (vec!["Peer".to_owned()], Vec::new()));
    }

    #[test]
    fn a_flood_of_pings_stops_the_input_until_the_pongs_have_left() {
        let mut half = websocket();
        let mut out = Vec::new();
        let ping = frame(0x89, &[0; 100]);
        while half.takes_input() {
            half.next(&mut ping.clone(), &mut out);
            half.on_replies_queued(out.len() + 500);
        }
        assert!(out.len() <= PONG_BYTES_MAX + 102);
        half.on_sent(out.len());
        assert!(!half.takes_input(), "500 bytes were queued in front of them");
        half.on_sent(500);
        assert!(half.takes_input());
    }

    #[test]
    fn a_silent_peer_is_pinged_and_then_given_up() {
        let (mut half, mut out) = (websocket(), Vec::new());
        let mut at = |half: &mut WebSocket, second: u64| half.on_deadline(Now(second * 1000), Now(0), true, &mut out);
        assert_eq!(at(&mut half, 10), Silence::Until(Deadline(30_000)));
        assert_eq!(at(&mut half, 30), Silence::Ping(Deadline(60_000)));
        assert_eq!(at(&mut half, 60), Silence::Ping(Deadline(90_000)));
        assert_eq!(at(&mut half, 90), Silence::TooLong);
        half.on_heard(Now(61_000));
        assert_eq!(at(&mut half, 90), Silence::Until(Deadline(91_000)));
        assert_eq!(out, b"\x89\x00\x89\x00");
    }

    #[test]
    fn silence_counts_anew_once_the_core_runs_again() {
        let (mut half, mut out) = (websocket(), Vec::new());
        let awake_since = Now(200_000);
        let mut at = |second: u64| half.on_deadline(Now(second * 1000), awake_since, true, &mut out);
        assert_eq!(at(200), Silence::Ping(Deadline(230_000)));
        assert_eq!(at(230), Silence::Ping(Deadline(260_000)));
        assert_eq!(at(260), Silence::Ping(Deadline(290_000)));
        assert_eq!(at(290), Silence::TooLong);
    }

    #[test]
    fn a_peer_that_is_not_read_is_not_silent() {
        let (mut half, mut out) = (websocket(), Vec::new());
        assert_eq!(half.on_deadline(Now(95_000), Now(0), false, &mut out), Silence::Until(Deadline(125_000)));
    }
}
