//! Mail between cores, and from threads that are none: two lanes from each to each core, in order within one, in any
//! order between them.

use std::hash::Hash;
use std::sync::atomic::Ordering;

use crate::engine::service::{Admits, CoreId, Mail};
use crate::protocol::Protocol;
use crate::protocol::simulation::machine::drain::Stage;
use crate::protocol::simulation::machine::{Letter, Machine};
use crate::protocol::simulation::outbox::Weighed;
use crate::protocol::simulation::outbox::{FANOUT, INGEST};
use crate::protocol::simulation::random::Random;

impl<P: Protocol> Machine<P> {
    /// Moves what a core has sent into the lanes.
    pub(in crate::protocol::simulation) fn dispatch(&mut self, from: usize) {
        while let Some((ingest, to, mail)) = self.cores[from].out.mail.pop_front() {
            let lane = if ingest { INGEST } else { FANOUT };
            self.cores[usize::from(to.0)].lanes[lane][from].push_back(Letter::Mail(mail));
        }
    }

    /// What a thread that is no core sends. It is lost where a core has ended.
    pub(crate) fn post(&mut self, to: usize, lane: usize, mail: P::Mail) {
        let outside = self.cores.len();
        let mail = Weighed::new(mail);
        let core = &mut self.cores[to];
        if core.stage() != Stage::Leave {
            if lane == INGEST {
                self.ingest_bytes[to].fetch_add(mail.weight, Ordering::Relaxed);
            }
            core.lanes[lane][outside].push_back(Letter::Mail(mail));
        }
    }

    /// What such a thread may send into an ingest lane.
    pub(crate) fn room(&self, to: usize) -> Admits {
        Admits::of(self.ingest_bytes[to].load(Ordering::Relaxed), self.ingest_bytes_max)
    }

    pub(in crate::protocol::simulation) fn take_mail(&mut self, core: usize, random: &mut Random) {
        let all = random.chance(1, 2);
        let outside = self.cores.len();
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
            (lane, from).hash(&mut node.out.trace);
            match node.lanes[lane][from].pop_front() {
                Some(Letter::Mail(Weighed { mail, weight })) => {
                    assert_eq!(mail.group(), node.protocol.group(), "mail is paced with its protocol");
                    if lane == INGEST {
                        self.ingest_bytes[core].fetch_sub(weight, Ordering::Relaxed);
                    }
                    let from = if from == outside { CoreId::OUTSIDE } else { CoreId(u16::try_from(from).unwrap()) };
                    node.protocol.on_mail(&mut node.out, from, mail);
                }
                Some(Letter::End) => node.ends[lane] += 1,
                None => return,
            }
            self.dispatch(core);
        }
    }
}
