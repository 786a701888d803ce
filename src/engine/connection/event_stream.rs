//! The event-stream half of a connection: heartbeats, and how its body is delimited (contract §4). Sans-IO.
//!
//! Owns the framing and when something was last sent. What a client sends on an event stream is read past; this half
//! only counts it, so that nobody can keep a core busy for ever that way.
//!
//! A client that has ended its side may read on, or be gone altogether: the same packet says both. What is written next
//! tells, for whoever is gone answers it with a reset; so a silent stream is sent a heartbeat at once.
//!
//! A delivery stores its time and no more: the deadline of the heartbeat is looked at when it comes, and moved on then.

use std::time::Duration;

use crate::base::time::{Deadline, Now};
use crate::engine::service::{EventStreamOpen, Group};
use crate::limits::DISCARD_BYTES_MAX;
use crate::wire::http1::StreamFraming;
use crate::wire::http1::chunk::chunk_len;

/// See the module.
#[derive(Debug)]
pub(in crate::engine) struct EventStream {
    pub(in crate::engine) group: Group,
    framing: StreamFraming,
    heartbeat: &'static [u8],
    heartbeat_interval: Duration,
    sent_at: Now,
    discarded_bytes: usize,
    /// The client has ended its side, and that it reads on has been put to the test.
    probed: bool,
}

impl EventStream {
    /// A stream that opens now. Its first heartbeat comes up to half an interval early, as `seed` has it, so that the
    /// heartbeats of streams that opened together do not stay together.
    pub(in crate::engine) fn new(open: &EventStreamOpen, framing: StreamFraming, now: Now, seed: u32) -> Self {
        let interval_ms = u64::try_from(open.heartbeat_interval.as_millis()).unwrap_or(u64::MAX);
        // Fibonacci hashing: neighbouring seeds land far apart.
        let share = u64::from(seed.wrapping_mul(2_654_435_769) >> 16);
        let early_ms = ((interval_ms / 2).min(1 << 40) * share) >> 16;
        Self {
            group: open.group,
            framing,
            heartbeat: open.heartbeat,
            heartbeat_interval: open.heartbeat_interval,
            sent_at: Now(now.0.saturating_sub(early_ms)),
            discarded_bytes: 0,
            probed: false,
        }
    }

    /// How messages are framed, and what ends the body.
    pub(in crate::engine) const fn framing(&self) -> StreamFraming {
        self.framing
    }

    /// Something was queued.
    pub(in crate::engine) const fn on_pushed(&mut self, now: Now) {
        self.sent_at = now;
    }

    /// A heartbeat comes after that much silence from now on.
    pub(in crate::engine) const fn set_interval(&mut self, interval: Duration) {
        self.heartbeat_interval = interval;
    }

    /// When to look whether a heartbeat is due.
    pub(in crate::engine) fn deadline(&self) -> Deadline {
        self.sent_at.after(self.heartbeat_interval)
    }

    /// That time has come: appends a heartbeat to `out` if it is due. With bytes still queued (`idle` false) the stream
    /// is not silent, its client is slow: nothing is added, and the silence begins now at the earliest.
    pub(in crate::engine) fn on_deadline(&mut self, now: Now, idle: bool, out: &mut Vec<u8>) {
        if self.deadline().is_due(now) {
            if idle {
                self.framing.encode(out, self.heartbeat);
            }
            self.sent_at = now;
        }
    }

    /// The client has ended its side: appends a heartbeat to `out`, once, unless bytes are on their way anyway (`idle`
    /// false).
    pub(in crate::engine) fn on_client_end(&mut self, now: Now, idle: bool, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.probed, true) && idle {
            self.framing.encode(out, self.heartbeat);
            self.sent_at = now;
        }
    }

    /// The client sent bytes, which nobody wants. Whether it may go on.
    pub(in crate::engine) const fn discard(&mut self, bytes: usize) -> bool {
        self.discarded_bytes = self.discarded_bytes.saturating_add(bytes);
        self.discarded_bytes <= DISCARD_BYTES_MAX
    }
}

/// The length of the message at the start of the bytes, for a stream of that framing.
pub(in crate::engine) const fn message_len(framing: StreamFraming) -> fn(&[u8]) -> Option<usize> {
    match framing {
        StreamFraming::Chunked => chunk_len,
        StreamFraming::UntilClose => block_len,
    }
}

/// Up to the blank line that ends an event or comment.
fn block_len(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\n\n").map(|end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(framing: StreamFraming, seed: u32) -> EventStream {
        let open = EventStreamOpen {
            group: Group(0),
            fields: Vec::new(),
            first: b": open\n\n",
            heartbeat: b": ping\n\n",
            heartbeat_interval: Duration::from_secs(10),
        };
        EventStream::new(&open, framing, Now(100_000), seed)
    }

    #[test]
    fn first_heartbeats_are_spread_over_half_an_interval() {
        let firsts: Vec<u64> = (0..100).map(|seed| stream(StreamFraming::Chunked, seed).deadline().0).collect();
        assert!(firsts.iter().all(|at| (105_000..=110_000).contains(at)));
        let early = firsts.iter().filter(|at| **at < 107_500).count();
        assert!((30..70).contains(&early), "{early} of 100 in the first half");
    }

    #[test]
    fn silence_brings_a_heartbeat_and_a_delivery_puts_it_off() {
        let (mut half, mut out) = (stream(StreamFraming::Chunked, 0), Vec::new());
        half.on_pushed(Now(104_000));
        half.on_deadline(Now(110_000), true, &mut out);
        assert!(out.is_empty());
        assert_eq!(half.deadline(), Deadline(114_000));
        half.on_deadline(Now(114_000), true, &mut out);
        assert_eq!(out, b"8\r\n: ping\n\n\r\n");
        assert_eq!(half.deadline(), Deadline(124_000));
    }

    #[test]
    fn another_interval_counts_from_the_last_message() {
        let (mut half, mut out) = (stream(StreamFraming::UntilClose, 0), Vec::new());
        half.on_pushed(Now(104_000));
        half.set_interval(Duration::from_secs(2));
        assert_eq!(half.deadline(), Deadline(106_000));
        half.set_interval(Duration::from_secs(60));
        half.on_deadline(Now(106_000), true, &mut out);
        assert!(out.is_empty());
        assert_eq!(half.deadline(), Deadline(164_000));
    }

    #[test]
    fn a_slow_client_gets_no_heartbeat_on_top() {
        let (mut half, mut out) = (stream(StreamFraming::UntilClose, 0), Vec::new());
        half.on_deadline(Now(120_000), false, &mut out);
        assert!(out.is_empty());
        assert_eq!(half.deadline(), Deadline(130_000));
    }

    #[test]
    fn a_client_that_has_ended_its_side_is_probed_once() {
        let (mut half, mut out) = (stream(StreamFraming::UntilClose, 0), Vec::new());
        half.on_client_end(Now(101_000), true, &mut out);
        assert_eq!(out, b": ping\n\n");
        assert_eq!(half.deadline(), Deadline(111_000));
        half.on_client_end(Now(102_000), true, &mut out);
        assert_eq!(out, b": ping\n\n");
        let (mut half, mut out) = (stream(StreamFraming::UntilClose, 0), Vec::new());
        half.on_client_end(Now(101_000), false, &mut out);
        assert!(out.is_empty(), "what is queued does the same");
    }

    #[test]
    fn the_end_of_a_message_is_found_in_either_framing() {
        assert_eq!(message_len(StreamFraming::UntilClose)(b"data: 1\n\ndata: 2\n\n"), Some(9));
        assert_eq!(message_len(StreamFraming::UntilClose)(b"data: 1\n"), None);
        assert_eq!(message_len(StreamFraming::Chunked)(b"3\r\nabc\r\n3\r\n"), Some(8));
    }
}
