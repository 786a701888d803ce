//! The end of a process, by markers and not by time (contract §1, Shutdown).
//!
//! Owns the stages of one core; each is entered when the one before is complete, and none is skipped:
//!
//! 1. *Sweep*: the accept queue is emptied, the listener closed; what has already come in is read once more. Requests
//!    that are not served yet are refused, also those that come from now on. Connections without one are kept a moment
//!    longer, whatever the stage: a request may be on its way, and closing would answer it with a reset.
//! 2. *Answer*: bodies in flight may come to their end for half of the drain time, as long as they bring something; one
//!    that stands still is refused at once, for everybody else's goodbye waits for it. Everything taken in is answered.
//!    Then this core ends its ingest lane.
//! 3. *Own*: mail of other cores is still admitted, until every core has ended its ingest lane, no work is left and
//!    none waits for another core's answer, which comes all the same. Then this core ends its fan-out lane.
//! 4. *Deliver*: until every core has ended its fan-out lane and no work is left. Then the service says goodbye, to
//!    some in each turn, so that everyone's time to leave begins when it is told.
//! 5. *Leave*: queues are written, peers have their time to close, be it beyond the drain time. The core is done when
//!    its last connection is over. A drain has failed that has not come here within the drain time, or where somebody
//!    goes on reading for longer than that.
//!
//! A service's part is in [`Service`]: no request and no message is handed over after the beginning, bodies apart.

use std::time::Duration;

use tracing::{debug, info, warn};

use crate::base::time::{Deadline, Now};
use crate::engine::connection::http::{Http, WaitingFor};
use crate::engine::connection::{Half, Phase};
use crate::engine::core::Core;
use crate::engine::service::{ConnId, Ending, HttpFault, Outbox, Service, WebSocketClose, Work};
use crate::limits::CLOSE_TIME;

/// How often a draining core looks at what it waits for, where no event would tell it.
pub(in crate::engine) const LOOK: Duration = Duration::from_millis(5);

/// The part of the drain time for which connections without a request are kept, so that one on its way is refused and
/// not cut off; and in which a request that has begun has to bring something.
const IDLE_SHARE: u32 = 50;
/// How long peers have from the goodbye on at the least: to be told, to answer, and for this core to see that they do
/// not.
const LEAVE_TIME: Duration = CLOSE_TIME.saturating_add(Duration::from_millis(500));

/// How a core, or all of them, came to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everybody was told, and gone.
    Drained,
    /// The drain time was over before.
    TimedOut,
}

/// How far the drain of a core has come.
#[derive(Debug)]
pub(in crate::engine) struct Drain {
    stage: DrainStage,
    sweep_until: Deadline,
    /// When connections without a request are closed; none once they are.
    idle_until: Option<Deadline>,
    bodies_until: Deadline,
    /// Requests that have not come in whole, and how much had come of them when they were last looked at; ascending.
    unfinished: Vec<(ConnId, usize)>,
    /// How often they are looked at, and when next.
    look_interval: Duration,
    look_at: Deadline,
    until: Deadline,
}

/// Cores that have ended their lanes. Another core may have done so before this one knows that the process drains.
#[derive(Debug, Default)]
pub(in crate::engine) struct Ends {
    pub(in crate::engine) ingest: usize,
    pub(in crate::engine) fanout: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainStage {
    Sweep,
    Answer,
    Own,
    Deliver,
    Leave,
}

/// What a look at the present stage tells.
enum DrainStep {
    /// It is complete.
    To(DrainStage),
    /// It is not.
    Wait,
    /// It was the last.
    Done(Outcome),
}

/// What is done to the connections of a core at some point of the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// Those without a request go.
    CloseIdle,
    /// Those with a request that has not come in whole are refused.
    RefuseUnfinished,
    /// Everyone goes.
    CloseAll,
}

impl Drain {
    fn new(now: Now, drain_time: Duration) -> Self {
        Self {
            stage: DrainStage::Sweep,
            // Who goes on sending without a pause does not hold up the others.
            sweep_until: now.after(drain_time / 10),
            // A request may be on its way to a connection that looks idle: closing it would answer with a reset.
            idle_until: Some(now.after(drain_time / IDLE_SHARE)),
            bodies_until: now.after(drain_time / 2),
            unfinished: Vec::new(),
            look_interval: drain_time / IDLE_SHARE,
            look_at: Deadline(now.0),
            until: now.after(drain_time),
        }
    }
}

impl<S: Service> Core<S> {
    /// Begins the drain, if it was asked for.
    pub(in crate::engine) fn begin_drain(&mut self) {
        if self.drain.is_some() || !self.io.process.is_draining() {
            return;
        }
        info!(core = self.io.core.0, connections = self.io.connections.len(), "draining");
        self.drain = Some(Drain::new(self.io.now, self.io.process.limits.drain_time));
        self.accept_all();
        self.io.draining = true;
        for id in self.ids() {
            let now = self.io.now;
            let Some(conn) = self.io.connection(id) else { continue };
            match (&mut conn.phase, &conn.half) {
                // Its edge may not have been seen yet: what it has sent before now is to be answered.
                (Phase::Open, Half::Http(_)) => conn.flags.readable = true,
                (Phase::Open | Phase::Over, _) => {}
                (Phase::Finishing(linger) | Phase::Lingering(linger), _) => {
                    linger.shorten(CLOSE_TIME);
                    let until = linger.deadline(now);
                    self.io.set_deadline(id, until);
                }
            }
            self.io.schedule_input(id);
        }
        self.service.on_drain(&mut self.io);
    }

    /// Goes on through the stages, as far as each is complete. Some once the core is done.
    pub(in crate::engine) fn drain(&mut self) -> Option<Outcome> {
        loop {
            self.remove_ended();
            match self.next_stage() {
                DrainStep::To(stage) => {
                    debug!(core = self.io.core.0, ?stage, "drain goes on");
                    let leave_until = self.io.now.after(LEAVE_TIME);
                    if let Some(drain) = &mut self.drain {
                        drain.stage = stage;
                        if stage == DrainStage::Leave {
                            drain.until = drain.until.max(leave_until);
                        }
                    }
                }
                DrainStep::Wait => return None,
                DrainStep::Done(outcome) => return Some(outcome),
            }
        }
    }

    fn next_stage(&mut self) -> DrainStep {
        let now = self.io.now;
        if let Some(drain) = &mut self.drain
            && drain.idle_until.take_if(|until| until.is_due(now)).is_some()
        {
            self.measure(Measure::CloseIdle);
        }
        self.refuse_standing();
        let cores = self.io.process.cores();
        let work_left = self.work != Work::Idle || self.io.mailbox.has_mail();
        let Some(drain) = &self.drain else { return DrainStep::Wait };
        if drain.stage == DrainStage::Leave && self.io.connections.is_empty() && !self.is_given_connections() {
            return DrainStep::Done(Outcome::Drained);
        }
        if drain.until.is_due(now) {
            warn!(core = self.io.core.0, connections = self.io.connections.len(), "drain time over");
            return DrainStep::Done(Outcome::TimedOut);
        }
        match drain.stage {
            DrainStage::Sweep if self.io.lists.input.is_empty() || drain.sweep_until.is_due(now) => {
                DrainStep::To(DrainStage::Answer)
            }
            DrainStage::Answer => {
                if drain.bodies_until.is_due(now) {
                    self.measure(Measure::RefuseUnfinished);
                }
                if work_left || !self.service.is_quiescent() || self.is_receiving_bodies() {
                    return DrainStep::Wait;
                }
                self.io.mailbox.end_ingest();
                DrainStep::To(DrainStage::Own)
            }
            DrainStage::Own if self.ends.ingest == cores && !work_left && self.service.is_quiescent() => {
                self.io.mailbox.end_fanout();
                DrainStep::To(DrainStage::Deliver)
            }
            DrainStage::Deliver
                if self.ends.fanout == cores
                    && !work_left
                    && (drain.idle_until.is_none() || !self.has_idle_connections()) =>
            {
                if self.service.on_goodbye(&mut self.io) != Work::Idle {
                    return DrainStep::Wait;
                }
                self.measure(Measure::CloseAll);
                DrainStep::To(DrainStage::Leave)
            }
            DrainStage::Sweep | DrainStage::Own | DrainStage::Deliver | DrainStage::Leave => DrainStep::Wait,
        }
    }

    /// Refuses requests that have not come in whole and have brought nothing since the last look, if that is due. What
    /// has arrived and was not read yet counts as brought.
    fn refuse_standing(&mut self) {
        let now = self.io.now;
        let Some(drain) = self.drain.as_mut().filter(|drain| drain.look_at.is_due(now)) else { return };
        drain.look_at = now.after(drain.look_interval);
        let before = std::mem::take(&mut drain.unfinished);
        let (mut standing, mut moving) = (Vec::new(), Vec::new());
        for (slot, generation, conn) in self.io.connections.iter() {
            let Some(bytes) = conn.unfinished_bytes() else { continue };
            let id = ConnId { slot, generation };
            let has_unread = conn.flags.in_input || conn.flags.starved;
            if !has_unread && before.binary_search(&(id, bytes)).is_ok() {
                standing.push(id);
            } else {
                moving.push((id, bytes));
            }
        }
        if let Some(drain) = &mut self.drain {
            drain.unfinished = moving;
        }
        for id in standing {
            self.refuse(id, HttpFault::Draining);
        }
    }

    /// When the drain has to be looked at next, apart from events.
    pub(in crate::engine) fn drain_deadline(&self) -> Option<Deadline> {
        self.drain.as_ref().map(|drain| match drain.stage {
            DrainStage::Leave => drain.until,
            DrainStage::Sweep | DrainStage::Answer | DrainStage::Own | DrainStage::Deliver => {
                self.io.now.after(LOOK).min(drain.until)
            }
        })
    }

    fn has_idle_connections(&self) -> bool {
        self.is_any_http(|half| half.waiting() == WaitingFor::Request)
    }

    fn is_receiving_bodies(&self) -> bool {
        self.is_any_http(Http::is_receiving)
    }

    fn is_any_http(&self, is: impl Fn(&Http) -> bool) -> bool {
        self.io
            .connections
            .iter()
            .any(|(_, _, conn)| conn.phase == Phase::Open && matches!(&conn.half, Half::Http(half) if is(half)))
    }

    fn measure(&mut self, measure: Measure) {
        for id in self.ids() {
            self.apply(measure, id);
        }
    }

    fn apply(&mut self, measure: Measure, id: ConnId) {
        let Some(conn) = self.io.connections.get_mut(id.slot, id.generation).filter(|conn| conn.phase == Phase::Open)
        else {
            return;
        };
        let waiting = match &conn.half {
            Half::Http(half) => half.waiting(),
            Half::EventStream(_) if measure == Measure::CloseAll => {
                self.io.end_event_stream(id, b"");
                return;
            }
            Half::WebSocket(_) if measure == Measure::CloseAll => {
                self.io.close_websocket(id, WebSocketClose { code: 1001, reason: "" });
                return;
            }
            Half::EventStream(_) | Half::WebSocket(_) => return,
        };
        match (measure, waiting) {
            (_, WaitingFor::Request) if conn.queue.is_empty() => self.io.end(id, Ending::Drain),
            (_, WaitingFor::Request | WaitingFor::Discard) => self.io.finish(id, Ending::Drain),
            (Measure::CloseIdle, _) | (Measure::RefuseUnfinished, WaitingFor::Answer) => {}
            (Measure::CloseAll, WaitingFor::Answer) => {
                // It would keep its connection, and the drain, for nobody can send an answer any more.
                debug_assert!(false, "a quiescent service has answered every request");
                self.refuse(id, HttpFault::Draining);
            }
            (_, WaitingFor::Head | WaitingFor::Body) => self.refuse(id, HttpFault::Draining),
        }
    }

    fn ids(&self) -> Vec<ConnId> {
        self.io.connections.iter().map(|(slot, generation, _)| ConnId { slot, generation }).collect()
    }
}
