//! One thread of consumers: opens their connections at the pace asked for, reads them, keeps their accounts.
//!
//! One clock reading and one update of the shared counters per consumer and turn, so that a large burst costs little
//! more than its bytes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mio::{Events, Poll, Token};

use super::consumer::{Consumer, Turn};
use super::{Plan, Seen};
use crate::load::decode::Said;
use crate::load::event::{Reader, Received};
use crate::load::failure::Failure;
use crate::load::shared::Shared;
use crate::load::target::Target;

/// Connections of one thread under way at a time: below every server's accept backlog.
const OPENING_MAX: usize = 64;
/// Bytes read at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// How often a thread with nothing to read looks whether the run is over.
const IDLE_TURN: Duration = Duration::from_millis(50);
/// Looks for what comes after the end, [`IDLE_TURN`] long each, if something came at every one.
const LAST_LOOKS_MAX: u32 = 20;
/// Looks at stalled consumers that find nothing, [`IDLE_TURN`] apart, after which nothing more is expected.
const QUIET_LOOKS: u32 = 6;
/// Most that the stalled consumers of a thread read in the end.
const STALLED_BYTES_MAX: usize = 1 << 30;

#[derive(Debug)]
pub(crate) struct Crew {
    target: Arc<Target>,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    poll: Poll,
    consumers: Vec<Consumer>,
    /// Consumers without a connection that are to have one.
    waiting: VecDeque<usize>,
    /// Connections begun and not subscribed yet.
    opening: usize,
    /// Connections begun, for the ramp.
    begun: u64,
    /// Connections a second.
    ramp: Option<f64>,
    reader: Reader,
    seen: Seen,
}

/// What one turn of a consumer brought.
#[derive(Debug, Default)]
struct Heard {
    opened: bool,
    delivered: u64,
    events: u64,
    goodbye: Option<String>,
    refused: Option<(u16, String)>,
}

impl Crew {
    pub(crate) fn new(
        target: Arc<Target>,
        shared: Arc<Shared>,
        stop: Arc<AtomicBool>,
        plans: Vec<Plan>,
        ramp: Option<f64>,
    ) -> Result<Self, Failure> {
        let run = shared.run;
        Ok(Self {
            target,
            shared,
            stop,
            poll: Poll::new().map_err(|error| Failure::Local("a poll", error))?,
            waiting: (0..plans.len()).collect(),
            consumers: plans.into_iter().map(Consumer::new).collect(),
            opening: 0,
            begun: 0,
            ramp,
            reader: Reader::new(run),
            seen: Seen::new(),
        })
    }

    pub(crate) fn run(mut self) -> Seen {
        let mut events = Events::with_capacity(1024);
        let mut buffer = vec![0; BUFFER_BYTES];
        let start = self.shared.now();
        while !self.stop.load(Ordering::Relaxed) && !self.shared.is_stopped() {
            let timeout = self.open_more(start);
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    self.shared.fail(Failure::Local("polling", error));
                }
                _ => {}
            }
            for event in &events {
                self.turn(event.token().0, event.is_read_closed(), &mut buffer);
            }
        }
        self.read_on(&mut events, &mut buffer);
        self.close(&mut buffer)
    }

    /// Reads on until nothing more comes: what is too much comes when everything owed is there.
    fn read_on(&mut self, events: &mut Events, buffer: &mut [u8]) {
        for _ in 0..LAST_LOOKS_MAX {
            if self.poll.poll(events, Some(IDLE_TURN)).is_err() || events.is_empty() {
                return;
            }
            for event in &*events {
                self.turn(event.token().0, event.is_read_closed(), buffer);
            }
        }
    }

    /// Begins connections as far as pace and backlog allow; returns how long the next poll may sleep.
    fn open_more(&mut self, start: u64) -> Duration {
        while self.opening < OPENING_MAX && !self.waiting.is_empty() {
            let now = self.shared.now();
            let allowed = self.ramp.map_or(u64::MAX, |ramp| ((now - start) as f64 / 1e9 * ramp) as u64);
            if self.begun > allowed {
                return Duration::from_millis(1);
            }
            let Some(index) = self.waiting.pop_front() else { break };
            let Some(consumer) = self.consumers.get_mut(index) else { continue };
            self.begun += 1;
            self.opening += 1;
            if consumer.was_open {
                self.shared.on_undelivered(consumer.check.on_resume());
            }
            let turn = consumer.connect(&self.target, self.shared.run, now, self.poll.registry(), Token(index));
            self.after(index, turn);
        }
        IDLE_TURN
    }

    fn turn(&mut self, index: usize, closed: bool, buffer: &mut [u8]) {
        let Self { consumers, shared, reader, seen, target, .. } = self;
        let Some(consumer) = consumers.get_mut(index) else { return };
        let (now, measured_from) = (shared.now(), shared.measured_from.load(Ordering::Relaxed));
        let mut heard = Heard::default();
        let turn = consumer.turn(target.address, closed, buffer, &mut |check, said| match said {
            Said::Event(event, labels) => {
                let received = reader.read(event, labels.as_ref());
                heard.events += u64::from(received != Received::Foreign);
                match check.on_event(received) {
                    Ok(Some(mark)) => {
                        heard.delivered += 1;
                        if mark.at >= measured_from {
                            // Grows by itself: nothing is out of range.
                            let recorded = seen.latency.record(now.saturating_sub(mark.at));
                            debug_assert!(recorded.is_ok());
                        }
                    }
                    Ok(None) => {}
                    Err(why) => shared.trouble(format!("an event came damaged: {why}")),
                }
            }
            Said::Open => heard.opened = true,
            Said::Shed(count) => {
                check.on_shed(count);
                heard.delivered += count;
            }
            Said::Exhausted => seen.exhausted += 1,
            Said::Goodbye(reason) => heard.goodbye = Some(reason.to_owned()),
            Said::Refused(status, answer) => heard.refused = Some((status, answer)),
        });
        if heard.opened && !consumer.is_open() {
            self.on_open(index, now);
        }
        if let Some((status, answer)) = heard.refused {
            self.shared.fail(self.target.refused("a subscription", status, answer));
            return;
        }
        if heard.delivered > 0 {
            self.shared.on_delivered(heard.delivered);
        }
        let turn = match (turn, heard.goodbye) {
            (Turn::Ended(_), Some(reason)) => Turn::Ended(reason),
            (turn, _) => turn,
        };
        self.after(index, turn);
        self.cut_if_due(index, heard.events);
    }

    fn on_open(&mut self, index: usize, now: u64) {
        let Some(consumer) = self.consumers.get_mut(index) else { return };
        let first = !consumer.was_open;
        consumer.mark_open();
        self.opening = self.opening.saturating_sub(1);
        // Grows by itself: nothing is out of range.
        let recorded = self.seen.opening.record(now.saturating_sub(consumer.began));
        debug_assert!(recorded.is_ok());
        if !first {
            return;
        }
        if !consumer.plan.stalls {
            for session in consumer.plan.follows.sessions() {
                self.shared.on_follower(session, consumer.plan.from_beginning);
            }
        }
        self.shared.open.fetch_add(1, Ordering::SeqCst);
    }

    fn after(&mut self, index: usize, turn: Turn) {
        let Some(consumer) = self.consumers.get_mut(index) else { return };
        if matches!(turn, Turn::Broken(_)) {
            consumer.check.on_damage();
        }
        match turn {
            Turn::On => {}
            Turn::Failed(failure) => self.shared.fail(failure),
            Turn::Ended(why) | Turn::Broken(why) => {
                let (is_open, was_open) = (consumer.is_open(), consumer.was_open);
                consumer.cut();
                if !is_open {
                    self.shared.fail(if was_open {
                        Failure::Stuck(format!("a consumer could not resume: {why}"))
                    } else {
                        Failure::Stranger(format!("a subscription ended before it stood ({why})"))
                    });
                    return;
                }
                if !consumer.plan.stalls {
                    self.shared.ended.fetch_add(1, Ordering::SeqCst);
                    self.shared.trouble(format!("the server ended a consumer's connection: {why}"));
                }
                if consumer.plan.cut_every.is_some() {
                    self.waiting.push_back(index);
                }
            }
        }
    }

    fn cut_if_due(&mut self, index: usize, events: u64) {
        let Some(consumer) = self.consumers.get_mut(index) else { return };
        let Some(every) = consumer.plan.cut_every else { return };
        consumer.until_cut = consumer.until_cut.saturating_sub(events);
        if consumer.until_cut == 0 && consumer.is_open() {
            consumer.until_cut = every;
            consumer.cut();
            self.seen.cuts += 1;
            self.waiting.push_back(index);
        }
    }

    /// Closes every account.
    fn close(mut self, buffer: &mut [u8]) -> Seen {
        self.read_what_stalled(buffer);
        let published = self.shared.published();
        for consumer in &mut self.consumers {
            if consumer.plan.stalls {
                self.seen.stalled_cut += u64::from(consumer.was_open && !consumer.is_open());
            } else if consumer.was_open {
                self.seen.tally.add(&consumer.check.close(&published, consumer.is_within()));
            }
        }
        self.seen
    }

    /// Lets stalled consumers read on until nothing more comes, so that the server tells what it did to them.
    fn read_what_stalled(&mut self, buffer: &mut [u8]) {
        let mut stalled: Vec<&mut Consumer> = self.consumers.iter_mut().filter(|one| one.plan.stalls).collect();
        let mut quiet = 0;
        let mut left = STALLED_BYTES_MAX;
        while !stalled.is_empty() && quiet < QUIET_LOOKS && left > 0 {
            let before = left;
            for consumer in &mut stalled {
                self.seen.stalled_shed += consumer.catch_up(buffer, &mut left);
            }
            quiet = if left == before { quiet + 1 } else { 0 };
            if quiet > 0 {
                std::thread::sleep(IDLE_TURN);
            }
        }
    }
}
