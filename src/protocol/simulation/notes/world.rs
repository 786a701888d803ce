//! Who posts notes and reads them: kept connections that ask one thing after the other, streams that are slow, bodies
//! that are too long or cut off; and what each must have been told.

use std::collections::{BTreeMap, VecDeque};

use super::{BODY_BYTES_MAX, Notes};
use crate::limits::Limits;
use crate::protocol::simulation::machine::drain::Stage;
use crate::protocol::simulation::machine::{At, Machine};
use crate::protocol::simulation::random::Random;
use crate::protocol::simulation::run_seeds;
use crate::protocol::simulation::socket::Ask;
use crate::wire::http1::chunk::chunk_len;

const SEEDS: u64 = 300;
const STEPS: usize = 250;

/// A peer's connection.
struct Peer {
    at: At,
    is_stream: bool,
    /// Answers that are to come, in order: status, and the body where it is known.
    expected: VecDeque<(u16, Option<&'static str>)>,
    /// Bytes of a stream that are no whole chunk yet.
    rest: Vec<u8>,
    /// The last note of each owner.
    last: BTreeMap<usize, u64>,
    /// Notes and beats heard.
    notes: u64,
    beats: u64,
}

struct World {
    machine: Machine<Notes>,
    random: Random,
    peers: Vec<Peer>,
}

/// The stream that is never slow.
const WITNESS: usize = 0;

impl World {
    fn new(seed: u64) -> Self {
        let limits = Limits { write_queue_bytes_max: 600, ..Limits::default() };
        let cores = [1, 2, 4][usize::try_from(seed % 3).unwrap()];
        let machine = Machine::new(cores, &limits, |_| {}, |_| Notes::default());
        let mut world = Self { machine, random: Random(seed), peers: Vec::new() };
        world.connect(0, Ask::new("GET /notes", ""), true);
        world.machine.socket(world.peers[WITNESS].at).unwrap().unbounded = true;
        world
    }

    fn connect(&mut self, core: usize, ask: Ask, is_stream: bool) {
        let at = self.machine.connect(core, ask);
        let (expected, last) = (VecDeque::new(), BTreeMap::new());
        self.peers.push(Peer { at, is_stream, expected, rest: Vec::new(), last, notes: 0, beats: 0 });
    }

    /// A request, and its answer.
    fn draw_ask(&mut self) -> (Ask, (u16, Option<&'static str>)) {
        let bytes = match self.random.below(8) {
            0 => return (Ask::new("GET /notes/later", ""), (200, Some("later"))),
            1 => return (Ask::new("GET /notes/one%20two", ""), (200, Some("one%20two"))),
            2 => BODY_BYTES_MAX + self.random.index(50),
            _ => 1 + self.random.index(BODY_BYTES_MAX),
        };
        let first = b'a' + u8::try_from(self.random.below(8)).unwrap();
        let mut body: VecDeque<Vec<u8>> = VecDeque::new();
        for _ in 0..bytes {
            if body.is_empty() || self.random.chance(1, 40) {
                body.push_back(Vec::new());
            }
            body.back_mut().unwrap().push(first);
        }
        let status = if bytes > BODY_BYTES_MAX { 413 } else { 202 };
        (Ask::with_body("POST /notes", "", body), (status, None))
    }

    fn step(&mut self) {
        let core = self.random.index(self.machine.cores.len());
        match self.random.below(20) {
            0 if self.peers.len() < 12 => self.connect(core, Ask::new("GET /notes", ""), true),
            1..=3 if self.peers.len() < 12 => {
                let (ask, answer) = self.draw_ask();
                self.connect(core, ask, false);
                self.peers.last_mut().unwrap().expected.push_back(answer);
            }
            4..=7 => {
                let (ask, answer) = self.draw_ask();
                if let Some(index) = self.any(false) {
                    let at = self.peers[index].at;
                    self.machine.socket(at).unwrap().requests.push_back(ask);
                    self.peers[index].expected.push_back(answer);
                }
            }
            8 => {
                let is_stream = self.random.chance(1, 2);
                if let Some(index) = self.any(is_stream) {
                    let peer = self.peers.swap_remove(index);
                    let _unseen = self.machine.disconnect(peer.at);
                }
            }
            9 => {
                let is_stream = self.random.chance(1, 2);
                if let Some(index) = self.any(is_stream) {
                    self.machine.hang_up(self.peers[index].at);
                }
            }
            10 | 11 => {
                if let Some(index) = self.any(true) {
                    let window = self.random.pick(&[0, 50, 300, usize::MAX]);
                    self.machine.socket(self.peers[index].at).unwrap().window = window;
                }
            }
            12 => {
                if let Some(index) = self.any(true) {
                    self.machine.overflow(self.peers[index].at);
                }
            }
            13 => self.machine.sleep(core, &mut self.random),
            _ => self.machine.turn(core, &mut self.random),
        }
        self.hear();
    }

    /// Any stream, or any other connection; never the witness.
    fn any(&mut self, is_stream: bool) -> Option<usize> {
        let some: Vec<usize> =
            (WITNESS + 1..self.peers.len()).filter(|index| self.peers[*index].is_stream == is_stream).collect();
        (!some.is_empty()).then(|| self.random.pick(&some))
    }

    /// Takes in what has reached the peers, and parts from connections that are over.
    fn hear(&mut self) {
        let machine = &mut self.machine;
        self.peers.retain_mut(|peer| {
            let socket = machine.socket(peer.at).unwrap();
            let received = std::mem::take(&mut socket.received);
            let answers = std::mem::take(&mut socket.answers);
            let is_over = socket.is_closing() && socket.queued == 0;
            peer.hear(&received);
            for answer in answers {
                let (status, body) = peer.expected.pop_front().expect("one answer per request");
                assert_eq!(answer.status, status);
                assert!(body.is_none_or(|body| answer.body == body.as_bytes()), "answers come in order");
            }
            if is_over {
                let _unseen = machine.disconnect(peer.at);
            }
            !is_over
        });
    }

    /// Everything asked for is answered, everything taken is told to whoever is still there.
    fn settle(&mut self) {
        for _ in 0..50 {
            self.machine.rest(&mut self.random);
            self.hear();
            if self.peers.iter().all(|peer| peer.expected.is_empty()) {
                return;
            }
            for core in 0..self.machine.cores.len() {
                self.machine.sleep(core, &mut self.random);
            }
        }
        panic!("requests were never answered");
    }

    fn check(&mut self) {
        let taken: Vec<u64> = self.machine.cores.iter().map(|core| core.protocol.taken).collect();
        assert_eq!(self.peers[WITNESS].notes, taken.iter().sum::<u64>());
        for peer in self.peers.iter().filter(|peer| peer.is_stream) {
            assert!(peer.last.iter().all(|(owner, last)| last + 1 == taken[*owner]), "{:?} of {taken:?}", peer.last);
        }
        let beats = self.peers[WITNESS].beats;
        (0..20).for_each(|_| self.machine.sleep(0, &mut self.random));
        self.hear();
        assert!(self.peers[WITNESS].beats > beats, "an alarm wakes a core that sleeps");
    }

    fn drain(&mut self) {
        self.machine.drain(&mut self.random, |machine, random, core| {
            if machine.cores[core].stage() == Stage::Serve && random.chance(1, 3) {
                machine.begin_drain(core);
            }
        });
        for peer in &mut self.peers {
            let socket = self.machine.socket(peer.at).unwrap();
            socket.window = usize::MAX;
            socket.flush();
            peer.hear(&std::mem::take(&mut socket.received));
        }
        let taken: u64 = self.machine.cores.iter().map(|core| core.protocol.taken).sum();
        assert_eq!(self.peers[WITNESS].notes, taken, "what was taken is told before the goodbye");
    }

    fn part_from_all(&mut self) {
        for peer in self.peers.drain(..) {
            let _unseen = self.machine.disconnect(peer.at);
        }
        self.machine.cores.iter().for_each(|core| core.protocol.lives.check_all_gone());
    }
}

impl Peer {
    fn hear(&mut self, received: &[u8]) {
        self.rest.extend_from_slice(received);
        while let Some(len) = chunk_len(&self.rest).filter(|len| *len <= self.rest.len()) {
            let chunk: Vec<u8> = self.rest.drain(..len).collect();
            let text = String::from_utf8(chunk).unwrap();
            let message = text.split_once("\r\n").unwrap().1;
            self.beats += u64::from(message.starts_with(": beat"));
            if let Some(note) = message.strip_prefix("data: ") {
                let mut words = note.split(' ').map(|word| word.parse::<u64>());
                let (owner, number) = (words.next().unwrap().unwrap(), words.next().unwrap().unwrap());
                let before = self.last.insert(usize::try_from(owner).unwrap(), number);
                assert!(before.is_none_or(|before| before + 1 == number), "{before:?} is followed by {number}");
                self.notes += 1;
            }
        }
    }
}

#[test]
fn streams_bodies_alarms_and_deadlines_keep_the_rules_of_the_floor() {
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
