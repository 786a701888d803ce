//! Who speaks and listens: members that are slow, go, or are parked until the archive, a thread that is no core, has
//! filed what they said; and what each must have heard.

use std::collections::BTreeMap;

use super::{Chat, ChatMail, Word};
use crate::engine::service::{Admits, ConnId, CoreId};
use crate::limits::Limits;
use crate::protocol::simulation::machine::drain::Stage;
use crate::protocol::simulation::machine::{At, Machine};
use crate::protocol::simulation::outbox::{FANOUT, INGEST};
use crate::protocol::simulation::random::Random;
use crate::protocol::simulation::rules::Order;
use crate::protocol::simulation::run_seeds;
use crate::protocol::simulation::socket::Ask;
use crate::wire::websocket::frame::frame_len;

const SEEDS: u64 = 300;
const STEPS: usize = 250;
/// Of what the archive answers: more of them find room in a small lane than a turn takes, but not many.
const FILED_BYTES: usize = 900;

struct Peer {
    at: At,
    name: usize,
    sent: u64,
    /// Bytes that are no whole frame yet.
    rest: Vec<u8>,
    /// The last word of each speaker.
    last: BTreeMap<usize, u64>,
    heard: u64,
}

/// A thread that is no core: it answers one thing after the other, in whatever order.
#[derive(Default)]
struct Archive {
    order: Order,
    to_file: Vec<(usize, ConnId, Word)>,
}

struct World {
    machine: Machine<Chat>,
    random: Random,
    archive: Archive,
    peers: Vec<Peer>,
    names: usize,
}

/// The member that is never slow.
const WITNESS: usize = 0;

impl World {
    fn new(seed: u64) -> Self {
        let limits = Limits { write_queue_bytes_max: 150, ..Limits::default() };
        let cores = [1, 2, 4][usize::try_from(seed % 3).unwrap()];
        let machine = Machine::new(cores, &limits, |_| {}, |_| Chat::default());
        let mut world =
            Self { machine, random: Random(seed), archive: Archive::default(), peers: Vec::new(), names: 0 };
        world.connect(0);
        world.machine.socket(world.peers[WITNESS].at).unwrap().unbounded = true;
        world
    }

    fn connect(&mut self, core: usize) {
        let at = self.machine.connect(core, Ask::upgrade("/chat"));
        self.peers.push(Peer { at, name: self.names, sent: 0, rest: Vec::new(), last: BTreeMap::new(), heard: 0 });
        self.names += 1;
    }

    fn step(&mut self) {
        let core = self.random.index(self.machine.cores.len());
        let peer = self.random.index(self.peers.len());
        let other = Some(self.peers[peer].at).filter(|_| peer != WITNESS);
        match (self.random.below(20), other) {
            (0 | 1, _) if self.peers.len() < 10 => self.connect(core),
            (2..=6, _) => self.speak(peer),
            (7, Some(at)) => {
                let _unseen = self.machine.disconnect(at);
                self.peers.swap_remove(peer);
            }
            (8, Some(at)) => self.machine.hang_up(at),
            (9, Some(at)) => self.machine.overflow(at),
            (10, Some(at)) => {
                self.machine.socket(at).unwrap().window = self.random.pick(&[0, 3, 20, usize::MAX]);
            }
            (11..=13, _) => self.archive.work(&mut self.machine, &mut self.random),
            (14, _) => self.machine.sleep(core, &mut self.random),
            _ => self.machine.turn(core, &mut self.random),
        }
        self.hear();
    }

    fn speak(&mut self, peer: usize) {
        let peer = &mut self.peers[peer];
        let Some(socket) = self.machine.socket(peer.at).filter(|socket| !socket.is_closing()) else { return };
        for _ in 0..=self.random.below(3) {
            let how = self.random.pick(&["say", "say", "blink", "file"]);
            socket.inbox.push_back(format!("{} {} {how}", peer.name, peer.sent).into_bytes());
            peer.sent += 1;
        }
    }

    /// Takes in what has reached the peers, and parts from connections that are over.
    fn hear(&mut self) {
        let machine = &mut self.machine;
        self.peers.retain_mut(|peer| {
            let socket = machine.socket(peer.at).unwrap();
            let received = std::mem::take(&mut socket.received);
            let is_over = socket.is_closing() && socket.queued == 0;
            peer.hear(&received);
            if is_over {
                let _unseen = machine.disconnect(peer.at);
            }
            !is_over
        });
    }

    /// Every message is read, filed and heard.
    fn settle(&mut self) {
        for _ in 0..500 {
            for core in 0..self.machine.cores.len() {
                self.archive.work(&mut self.machine, &mut self.random);
                self.machine.turn(core, &mut self.random);
            }
            self.hear();
        }
        self.machine.rest(&mut self.random);
        self.hear();
    }

    fn check(&self) {
        let taken: u64 = self.machine.cores.iter().map(|core| core.protocol.taken).sum();
        let witness = &self.peers[WITNESS];
        assert_eq!(witness.heard, taken, "what was taken in is heard");
        for peer in &self.peers {
            let last = witness.last.get(&peer.name).map_or(0, |last| last + 1);
            assert_eq!(last, peer.sent, "all that {} said is heard", peer.name);
            assert!(peer.last.iter().all(|(speaker, last)| witness.last[speaker] == *last), "up to the last word");
        }
    }

    fn drain(&mut self) {
        let archive = &mut self.archive;
        self.machine.drain(&mut self.random, |machine, random, core| {
            archive.work(machine, random);
            if machine.cores[core].stage() == Stage::Serve && random.chance(1, 3) {
                machine.begin_drain(core);
            }
        });
        let witness = &mut self.peers[WITNESS];
        let socket = self.machine.socket(witness.at).unwrap();
        socket.flush();
        witness.hear(&std::mem::take(&mut socket.received));
        let taken: u64 = self.machine.cores.iter().map(|core| core.protocol.taken).sum();
        assert_eq!(witness.heard, taken, "what was taken in is heard before the goodbye");
    }

    fn part_from_all(&mut self) {
        for peer in self.peers.drain(..) {
            let _unseen = self.machine.disconnect(peer.at);
        }
        self.machine.cores.iter().for_each(|core| core.protocol.lives.check_all_gone());
    }
}

impl Archive {
    /// Takes away what is to be filed, and files some of it.
    fn work(&mut self, machine: &mut Machine<Chat>, random: &mut Random) {
        for (index, core) in machine.cores.iter_mut().enumerate() {
            self.to_file.extend(core.protocol.to_file.drain(..).map(|(conn, word)| (index, conn, word)));
        }
        for _ in 0..random.below(4) {
            if self.to_file.is_empty() {
                return;
            }
            let at = random.index(self.to_file.len());
            let (core, conn, word) = self.to_file[at];
            let lane = random.pick(&[INGEST, FANOUT]);
            if lane == INGEST && machine.room(core) < Admits::Everything {
                continue;
            }
            self.to_file.swap_remove(at);
            let to = CoreId(u16::try_from(core).unwrap());
            machine.post(core, lane, self.order.number(lane, to, FILED_BYTES, ChatMail::Filed(conn, word)));
        }
    }
}

impl Peer {
    fn hear(&mut self, received: &[u8]) {
        self.rest.extend_from_slice(received);
        while let Some(len) = frame_len(&self.rest).filter(|len| *len <= self.rest.len()) {
            let frame: Vec<u8> = self.rest.drain(..len).collect();
            let text = String::from_utf8(frame[2..].to_vec()).unwrap();
            let (speaker, number) = text.split_once(' ').unwrap();
            let number: u64 = number.parse().unwrap();
            let before = self.last.insert(speaker.parse().unwrap(), number);
            assert!(before.is_none_or(|before| before + 1 == number), "{before:?} is followed by {number}");
            self.heard += 1;
        }
    }
}

#[test]
fn sockets_and_mail_from_outside_keep_the_rules_of_the_floor() {
    run_seeds(SEEDS, |seed| {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
        if seed.is_multiple_of(2) {
            world.settle();
            world.check();
        } else {
            world.drain();
        }
        world.part_from_all();
        world.machine.trace()
    });
}
