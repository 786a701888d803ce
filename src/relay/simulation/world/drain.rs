//! The end of the process in the midst of commands and evictions: stages as in `engine/drain.rs`, core by core, each as soon
//! as that core's turn finds it complete.

use super::{World, forget_unread};
use crate::engine::service::Work;
use crate::relay::simulation::machine::{FANOUT, INGEST, Letter, Machine};

/// How far a core's drain has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has not learnt of the drain.
    Serve,
    Answer,
    Own,
    Deliver,
    Leave,
}

impl World {
    /// Steps in which nobody goes or falls behind.
    pub(in crate::relay::simulation) fn stir(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step += 1;
            match self.random.below(12) {
                0 => self.post(),
                1..=3 => self.emit(),
                4 if self.parties().len() < 5 => self.connect_party(),
                5..=6 => self.command(),
                _ => {
                    let core = self.core();
                    self.machine.turn(core, &mut self.random);
                }
            }
            self.hear();
        }
    }

    /// Nothing is under way but commands that their senders' cores have not read yet.
    pub(in crate::relay::simulation) fn command_out_of_rest(&mut self) {
        self.rest();
        self.step += 1;
        for _ in 0..4 {
            self.command();
        }
    }

    /// The process ends, which one core learns before another: what was taken in is answered and delivered, everybody is
    /// told.
    pub(in crate::relay::simulation) fn drain(&mut self) {
        let mut stages = vec![Stage::Serve; self.machine.cores.len()];
        for _ in 0..5_000 {
            for (core, stage) in stages.iter_mut().enumerate() {
                self.machine.turn(core, &mut self.random);
                if *stage == Stage::Serve && self.random.chance(1, 3) {
                    for client in self.clients.iter().filter(|client| client.at.core == core) {
                        forget_unread(client, &mut self.machine, &mut self.sent);
                    }
                    *stage = Stage::Answer;
                }
                while let Some(next) = self.machine.next_stage(core, *stage) {
                    *stage = next;
                }
            }
            if stages.iter().all(|stage| *stage == Stage::Leave) {
                break;
            }
        }
        assert!(stages.iter().all(|stage| *stage == Stage::Leave), "the drain does not end: {stages:?}");
        for client in &mut self.clients {
            if let Some(socket) = self.machine.socket(client.at) {
                while !socket.flush() {}
                let bytes = std::mem::take(&mut socket.received);
                client.hear(&bytes, self.step, &self.sent);
            }
        }
        self.hear_answers();
        assert!(self.posts.is_empty(), "a POST was not answered");
    }
}

impl Machine {
    fn next_stage(&mut self, core: usize, stage: Stage) -> Option<Stage> {
        let cores = self.cores.len();
        let node = &mut self.cores[core];
        let is_at_rest = node.work == Work::Idle && node.lanes.iter().flatten().all(|lane| lane.is_empty());
        if !is_at_rest || stage == Stage::Leave {
            return None;
        }
        match stage {
            Stage::Answer if node.relay.is_quiescent() => {
                self.end_lane(core, INGEST);
                Some(Stage::Own)
            }
            Stage::Own if node.ends[INGEST] == cores && node.relay.is_quiescent() => {
                self.end_lane(core, FANOUT);
                Some(Stage::Deliver)
            }
            Stage::Deliver if node.ends[FANOUT] == cores => {
                (node.relay.on_goodbye(&mut node.out) == Work::Idle).then_some(Stage::Leave)
            }
            _ => None,
        }
    }

    fn end_lane(&mut self, from: usize, lane: usize) {
        self.cores[from].out.ended[lane] = true;
        for core in &mut self.cores {
            core.lanes[lane][from].push_back(Letter::End);
        }
    }
}
