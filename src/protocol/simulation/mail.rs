//! Mail between cores: two lanes from each core to each, in order within one, in any order between them.

use std::hash::Hash;
use std::sync::atomic::Ordering;

use super::machine::{FANOUT, INGEST, Letter, Machine};
use super::outbox::Weighed;
use super::random::Random;
use crate::engine::service::{CoreId, Mail};
use crate::protocol::Protocol;

impl<P: Protocol> Machine<P> {
    /// Moves what a core has sent into the lanes.
    pub(super) fn dispatch(&mut self, from: usize) {
        while let Some((ingest, to, mail)) = self.cores[from].out.mail.pop_front() {
            let lane = if ingest { INGEST } else { FANOUT };
            self.cores[usize::from(to.0)].lanes[lane][from].push_back(Letter::Mail(mail));
        }
    }

    pub(super) fn take_mail(&mut self, core: usize, random: &mut Random) {
        let all = random.chance(1, 2);
        loop {
            let node = &mut self.cores[core];
            let lanes = if node.protocol.takes_ingest() { INGEST..=FANOUT } else { FANOUT..=FANOUT };
            let waiting: Vec<(usize, usize)> = lanes
                .flat_map(|lane| (0..node.lanes[lane].len()).map(move |from| (lane, from)))
                .filter(|(lane, from)| !node.lanes[*lane][*from].is_empty())
                .collect();
            if waiting.is_empty() || (!all && random.chance(1, 8)) {
                return;
            }
            let (lane, from) = waiting[random.index(waiting.len())];
            (core, lane, from).hash(&mut self.trace);
            match node.lanes[lane][from].pop_front() {
                Some(Letter::Mail(Weighed { mail, weight })) => {
                    assert_eq!(mail.group(), node.protocol.group(), "mail is paced with its protocol");
                    if lane == INGEST {
                        self.ingest_bytes[core].fetch_sub(weight, Ordering::Relaxed);
                    }
                    node.protocol.on_mail(&mut node.out, CoreId(u16::try_from(from).unwrap()), mail);
                }
                Some(Letter::End) => node.ends[lane] += 1,
                None => return,
            }
            self.dispatch(core);
        }
    }
}
