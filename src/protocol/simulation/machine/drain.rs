//! The end of the process: stages as in `engine/core/drain.rs`, core by core, each as soon as that core's turn finds it
//! complete.

use crate::engine::service::Work;
use crate::protocol::Protocol;
use crate::protocol::simulation::machine::{Core, Letter, Machine};
use crate::protocol::simulation::outbox::{FANOUT, INGEST};
use crate::protocol::simulation::random::Random;
use crate::protocol::simulation::socket::{Exchange, Kind};

/// How far a core's drain has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has not learnt of the drain.
    Serve,
    /// What was taken in is answered.
    Answer,
    /// Its ingest lane has ended.
    Own,
    /// Its fan-out lane has ended.
    Deliver,
    /// Everybody was told.
    Leave,
}

impl<P: Protocol> Core<P> {
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether it takes nothing in any more but bodies on their way.
    pub(in crate::protocol::simulation) fn is_draining(&self) -> bool {
        self.stage != Stage::Serve
    }

    fn owes_answers(&self) -> bool {
        let owes = |kind, exchange: &Exchange| kind == Kind::Http && matches!(exchange, Exchange::Answer);
        self.out.sockets.values().any(|socket| !socket.is_closing() && owes(socket.kind, &socket.exchange))
    }
}

impl<P: Protocol> Machine<P> {
    /// A core learns that the process ends.
    pub(crate) fn begin_drain(&mut self, core: usize) {
        let node = &mut self.cores[core];
        node.stage = Stage::Answer;
        node.protocol.on_drain(&mut node.out);
        node.work = Work::Left;
        self.dispatch(core);
    }

    /// Turns every core until everybody was told. Behind each turn comes what goes on outside; it begins the drain of
    /// that core, too.
    pub(crate) fn drain(&mut self, random: &mut Random, mut outside: impl FnMut(&mut Self, &mut Random, usize)) {
        for _ in 0..5_000 {
            for core in 0..self.cores.len() {
                self.turn(core, random);
                outside(self, random, core);
                self.advance(core);
            }
            if self.cores.iter().all(|core| core.stage == Stage::Leave) {
                return;
            }
        }
        panic!("the drain does not end: {:?}", self.cores.iter().map(Core::stage).collect::<Vec<_>>());
    }

    /// Goes on to whatever stage a core has reached by its last turn.
    fn advance(&mut self, core: usize) {
        while let Some(next) = self.next_stage(core) {
            self.cores[core].stage = next;
        }
    }

    fn next_stage(&mut self, core: usize) -> Option<Stage> {
        let cores = self.cores.len();
        let node = &mut self.cores[core];
        let is_at_rest = node.work == Work::Idle && node.lanes.iter().flatten().all(|lane| lane.is_empty());
        let in_body = node.out.sockets.values().any(|socket| socket.is_in_body());
        if !is_at_rest || in_body {
            return None;
        }
        match node.stage {
            Stage::Answer if node.protocol.is_quiescent() => {
                assert!(!node.owes_answers(), "a quiescent service has answered every request");
                self.end_lane(core, INGEST);
                Some(Stage::Own)
            }
            Stage::Own if node.ends[INGEST] == cores && node.protocol.is_quiescent() => {
                self.end_lane(core, FANOUT);
                Some(Stage::Deliver)
            }
            Stage::Deliver if node.ends[FANOUT] == cores => {
                (node.protocol.on_goodbye(&mut node.out) == Work::Idle).then_some(Stage::Leave)
            }
            Stage::Serve | Stage::Answer | Stage::Own | Stage::Deliver | Stage::Leave => None,
        }
    }

    fn end_lane(&mut self, from: usize, lane: usize) {
        self.cores[from].out.ended[lane] = true;
        for core in &mut self.cores {
            core.lanes[lane][from].push_back(Letter::End);
        }
    }
}
