//! What does a hop from one core to another cost, when the receiver sleeps and when it does not?
//!
//! Two cores of the real engine play ball: a letter goes back as soon as its receiver's turn has taken it.
//!
//! - `asleep`: nobody has anything else to do, so each hop finds its receiver in the poll: a bag into the channel, the
//!   bell, the kernel waking the other thread, and a turn.
//! - `awake`: both cores have work left and never sleep: a bag into the channel, nobody is woken, and what the
//!   receiver's turn costs.
//! - `awake, 64 letters`: the same with 64 letters in a bag; `thrpt` says letters a second.
//! - `own`: a core's mail to itself, taken within the same turn: bag and channel alone, the floor beneath the others.
//! - `ingest`: as `asleep`, through the other lane.
//! - `ingest, another group's held`: the same while each core has [`HELD`] letters of another pace group that its
//!   service does not take. What a core does then is look again every millisecond.
//!
//! The last two are told once more as percentiles of single games of two hops, over [`HELD_TIME`] each in turns; and
//! how many turns both cores take in a second in which nobody plays, which is how far they are asleep.
//!
//! Run with `cargo bench --bench mailbox`, on a machine with two idle processors: cores that are awake spin, and where
//! they have to share a processor `awake` shows the scheduler's time slice instead.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench tells, and may stop at what cannot be"
)]

use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use aep_relay::base::time::Deadline;
use aep_relay::engine::service::{
    Admits, ConnId, CoreId, Ending, Flow, Group, HttpFault, Mail, Message, Post, Response, Service, Terms, Verdict,
    Work,
};
use aep_relay::engine::{Engine, EngineConfig};
use aep_relay::limits::Limits;
use aep_relay::ops::metrics::Endpoint;
use aep_relay::ops::metrics::Metrics;
use aep_relay::wire::http1::RequestHead;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const LETTERS_MANY: u64 = 64;
/// Letters for a group that takes none.
const HELD: usize = 100;
/// How long the percentiles are taken.
const HELD_TIME: Duration = Duration::from_secs(2);
/// The group of what is never taken while the mode is [`Mode::Held`].
const OTHER: Group = Group(1);

const MODES: [Mode; 5] = [Mode::Asleep, Mode::Awake, Mode::Own, Mode::Ingest, Mode::Held];

/// Against whom, in which lane, and how the cores wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Asleep,
    Awake,
    Own,
    Ingest,
    Held,
}

enum Letter {
    /// A game begins.
    Begin(Mode),
    /// To be returned with one hop less.
    Ball { hops: u64 },
    /// For the group that may not be taken.
    Other,
}

impl Mail for Letter {
    fn weight(&self) -> usize {
        size_of::<Self>()
    }

    fn group(&self) -> Group {
        if matches!(self, Self::Other) { OTHER } else { Group(0) }
    }
}

/// One core's player.
struct Player {
    mode: Mode,
    /// Letters for the other group are under way.
    has_sent_other: bool,
    /// On the core that was asked for the game: who asked, when it began, and how many letters are still in play.
    running: Option<(ConnId, Instant, u64)>,
}

type Out<'a> = &'a mut dyn Post<Letter>;

fn text(status: u16, body: String) -> Response {
    Response { status, fields: Vec::new(), body: Cow::Owned(body.into_bytes()), close: false }
}

impl Player {
    /// Where letters go.
    fn partner(&self, out: &dyn Post<Letter>) -> CoreId {
        if self.mode == Mode::Own { out.out().core() } else { CoreId(1 - out.out().core().0) }
    }

    fn send(&self, out: Out<'_>, hops: u64) {
        let (to, ball) = (self.partner(out), Letter::Ball { hops });
        if matches!(self.mode, Mode::Ingest | Mode::Held) {
            out.mail_ingest_reserved(to, ball);
        } else {
            out.mail_fanout(to, ball);
        }
    }

    fn begin(&mut self, out: Out<'_>, mode: Mode) {
        self.mode = mode;
        if !self.takes_ingest(OTHER) && !std::mem::replace(&mut self.has_sent_other, true) {
            (0..HELD).for_each(|_| out.mail_ingest_reserved(self.partner(out), Letter::Other));
        }
    }
}

impl Service for Player {
    type Mail = Letter;

    fn terms(&self, _head: Option<&RequestHead<'_>>) -> Terms {
        Terms { fields: Vec::new(), endpoint: Endpoint::Other }
    }

    /// `GET /HOPS/LETTERS/MODE` plays a game, and answers how many nanoseconds it took.
    fn on_request(&mut self, out: Out<'_>, conn: ConnId, head: &RequestHead<'_>) -> Verdict {
        let numbers: Vec<u64> = head.target.split('/').skip(1).map(|number| number.parse().unwrap()).collect();
        let &[hops, letters, mode] = numbers.as_slice() else { return Verdict::Respond(text(404, String::new())) };
        let mode = MODES[mode as usize];
        if mode != self.mode {
            // Who was awake stays so between games: the scheduler has had time to give each a processor.
            self.begin(out, mode);
            out.mail_fanout(CoreId(1 - out.out().core().0), Letter::Begin(mode));
        }
        self.running = Some((conn, Instant::now(), letters));
        (0..letters).for_each(|_| self.send(out, hops));
        Verdict::Later
    }

    fn on_mail(&mut self, out: Out<'_>, _from: CoreId, mail: Letter) {
        match mail {
            Letter::Begin(mode) => self.begin(out, mode),
            Letter::Other => self.has_sent_other = false,
            Letter::Ball { hops: 1 } => {
                let Some((conn, began, letters)) = &mut self.running else { return };
                *letters -= 1;
                if *letters == 0 {
                    out.outbox().respond(*conn, text(200, format!("{:020}", began.elapsed().as_nanos())));
                }
            }
            Letter::Ball { hops } => self.send(out, hops - 1),
        }
    }

    fn on_turn(&mut self, _out: Out<'_>) -> Work {
        if self.mode == Mode::Awake { Work::Left } else { Work::Idle }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        None
    }

    fn takes_ingest(&self, group: Group) -> bool {
        group != OTHER || self.mode != Mode::Held
    }

    fn admits(&self, _group: Group) -> Admits {
        Admits::Everything
    }

    fn is_quiescent(&self) -> bool {
        true
    }

    fn refusal(&self, _fault: HttpFault, _conn: Option<ConnId>) -> Response {
        text(400, String::new())
    }

    fn on_message(&mut self, _out: Out<'_>, _conn: ConnId, _message: Message<'_>) -> Flow {
        Flow::Continue
    }

    fn answers_guests(&self, _head: &RequestHead<'_>) -> bool {
        false
    }

    fn on_body(&mut self, _out: Out<'_>, _conn: ConnId, _tag: u32, _body: Vec<u8>) {}
    fn on_drained(&mut self, _out: Out<'_>, _conn: ConnId) {}
    fn on_overflow(&mut self, _out: Out<'_>, _conn: ConnId) {}
    fn on_alarm(&mut self, _out: Out<'_>, _conn: ConnId) {}
    fn on_closing(&mut self, _out: Out<'_>, _conn: ConnId) {}
    fn on_gone(&mut self, _out: Out<'_>, _conn: ConnId, _ending: Ending) {}
    fn on_drain(&mut self, _out: Out<'_>) {}
    fn on_goodbye(&mut self, _out: Out<'_>) -> Work {
        Work::Idle
    }
}

/// How long the game took, by the clock of the core that began it.
fn play(client: &mut TcpStream, hops: u64, letters: u64, mode: Mode) -> Duration {
    write!(client, "GET /{hops}/{letters}/{} HTTP/1.1\r\nHost: bench\r\n\r\n", mode as u64).unwrap();
    let mut answer = Vec::new();
    let mut bytes = [0; 1024];
    loop {
        let count = client.read(&mut bytes).unwrap();
        assert!(count > 0, "the engine closed the connection");
        answer.extend_from_slice(&bytes[..count]);
        let text = str::from_utf8(&answer).unwrap();
        if let Some((_, nanos)) = text.split_once("\r\n\r\n")
            && nanos.len() == 20
        {
            return Duration::from_nanos(nanos.parse().unwrap());
        }
    }
}

fn percentiles(client: &mut TcpStream, round: usize, name: &str, mode: Mode) {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while began.elapsed() < HELD_TIME {
        let asked = Instant::now();
        inside.push(play(client, 2, 1, mode));
        outside.push(asked.elapsed());
    }
    let told = [("between the cores", inside), ("for the client", outside)].map(|(whom, mut times)| {
        times.sort_unstable();
        let [half, most] = [50, 99].map(|percent| times[times.len() * percent / 100].as_micros());
        format!("{whom} p50 {half} µs, p99 {most} µs")
    });
    println!("round {round}, {name}: {}", told.join("; "));
}

fn hop(criterion: &mut Criterion) {
    let metrics = Metrics::new(2);
    let config = EngineConfig { address: "127.0.0.1:0".parse().unwrap(), cores: 2, limits: Limits::default() };
    let engine = Engine::bind(config, &metrics)
        .unwrap()
        .start(|_| Player { mode: Mode::Asleep, has_sent_other: false, running: None })
        .unwrap();
    let mut client = TcpStream::connect(engine.address()).unwrap();
    client.set_nodelay(true).unwrap();
    let mut group = criterion.benchmark_group("mailbox hop");
    for (name, letters, mode) in [
        ("asleep", 1, Mode::Asleep),
        ("awake", 1, Mode::Awake),
        ("awake, 64 letters", LETTERS_MANY, Mode::Awake),
        ("own", 1, Mode::Own),
        ("ingest", 1, Mode::Ingest),
        ("ingest, another group's held", 1, Mode::Held),
    ] {
        group.throughput(Throughput::Elements(letters));
        group.bench_function(name, |b| {
            b.iter_custom(|iterations| {
                // An even number: the game ends where it began.
                let hops = iterations.next_multiple_of(2);
                let took = play(&mut client, hops, letters, mode);
                took.mul_f64(iterations as f64 / hops as f64)
            });
        });
    }
    group.finish();
    for round in 1..=5 {
        for (name, mode) in [("ingest", Mode::Ingest), ("ingest, another group's held", Mode::Held)] {
            percentiles(&mut client, round, name, mode);
        }
    }
    let turns = || metrics.sum(|core| core.turns.value());
    let before = turns();
    thread::sleep(Duration::from_secs(1));
    println!("nobody plays, another group's held: {} turns a second of two cores", turns() - before);
    engine.stopper().stop();
    let _drained = engine.join();
}

criterion_group!(benches, hop);
criterion_main!(benches);
