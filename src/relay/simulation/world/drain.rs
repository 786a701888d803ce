//! The end of the process in the midst of commands and evictions.

use super::{World, forget_unread};
use crate::protocol::simulation::machine::drain::Stage;

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

    /// The process ends, which one core learns before another: what was taken in is answered and delivered, everybody
    /// is told.
    pub(in crate::relay::simulation) fn drain(&mut self) {
        let Self { machine, random, clients, sent, .. } = self;
        machine.drain(random, |machine, random, core| {
            if machine.cores[core].stage() == Stage::Serve && random.chance(1, 3) {
                for client in clients.iter().filter(|client| client.at.core == core) {
                    forget_unread(client, machine, sent);
                }
                machine.begin_drain(core);
            }
        });
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
