//! What does a hop from one core to another cost, when the receiver sleeps and when it does not?
//!
//! Two cores of the real engine play ball: a letter goes back as soon as its receiver's turn has taken it.
//!
//! - `asleep`: nobody has anything else to do, so each hop finds its receiver in the poll: a bag into the channel, the
//!   bell, the kernel waking the other thread, and a turn.
//! - `awake`: both cores have work left and never sleep: a bag into the channel, nobody is woken, and what the receiver's
//!   turn costs.
//! - `awake, 64 letters`: the same with 64 letters in a bag; `thrpt` says letters a second.
//! - `own`: a core's mail to itself, taken within the same turn: bag and channel alone, the floor beneath the others.
//!
//! Run with `cargo bench --bench mailbox`, on a machine with two idle processors: cores that are awake spin, and where they
//! have to share a processor `awake` shows the scheduler's time slice instead.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may stop at what cannot happen")]

use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use aep_relay::base::time::Deadline;
use aep_relay::engine::service::{
    Admits, ConnId, CoreId, Ending, Flow, HttpFault, Mail, Message, Post, Response, Service, Terms, Verdict, Work,
};
use aep_relay::engine::{Engine, EngineConfig};
use aep_relay::limits::Limits;
use aep_relay::ops::metrics::Endpoint;
use aep_relay::ops::metrics::Metrics;
use aep_relay::wire::http1::RequestHead;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const LETTERS_MANY: u64 = 64;

/// Against whom, and how the cores wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Asleep,
    Awake,
    Own,
}

enum Letter {
    /// A game begins: stay awake, or do not.
    Begin { awake: bool },
    /// To be returned with one hop less.
    Ball { hops: u64 },
}

impl Mail for Letter {
    fn weight(&self) -> usize {
        size_of::<Self>()
    }
}

/// One core's player.
#[derive(Default)]
struct Player {
    awake: bool,
    /// It plays against itself.
    own: bool,
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
        if self.own { out.out().core() } else { CoreId(1 - out.out().core().0) }
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
        self.awake = mode == Mode::Awake as u64;
        self.own = mode == Mode::Own as u64;
        self.running = Some((conn, Instant::now(), letters));
        // Who was awake stays so between games: the scheduler has had time to give each a processor.
        out.mail_fanout(CoreId(1 - out.out().core().0), Letter::Begin { awake: self.awake });
        let to = self.partner(out);
        for _ in 0..letters {
            out.mail_fanout(to, Letter::Ball { hops });
        }
        Verdict::Later
    }

    fn on_mail(&mut self, out: Out<'_>, _from: CoreId, mail: Letter) {
        match mail {
            Letter::Begin { awake } => self.awake = awake,
            Letter::Ball { hops: 1 } => {
                let Some((conn, began, letters)) = &mut self.running else { return };
                *letters -= 1;
                if *letters == 0 {
                    out.outbox().respond(*conn, text(200, format!("{:020}", began.elapsed().as_nanos())));
                }
            }
            Letter::Ball { hops } => {
                let to = self.partner(out);
                out.mail_fanout(to, Letter::Ball { hops: hops - 1 });
            }
        }
    }

    fn on_turn(&mut self, _out: Out<'_>) -> Work {
        if self.awake { Work::Left } else { Work::Idle }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        None
    }

    fn takes_ingest(&self) -> bool {
        true
    }

    fn admits(&self) -> Admits {
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

fn hop(criterion: &mut Criterion) {
    let metrics = Metrics::new(2);
    let config = EngineConfig { address: "127.0.0.1:0".parse().unwrap(), cores: 2, limits: Limits::default() };
    let engine = Engine::bind(config, &metrics).unwrap().start(|_| Player::default()).unwrap();
    let mut client = TcpStream::connect(engine.address()).unwrap();
    client.set_nodelay(true).unwrap();
    let mut group = criterion.benchmark_group("mailbox hop");
    for (name, letters, mode) in [
        ("asleep", 1, Mode::Asleep),
        ("awake", 1, Mode::Awake),
        ("awake, 64 letters", LETTERS_MANY, Mode::Awake),
        ("own", 1, Mode::Own),
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
    engine.stopper().stop();
    let _drained = engine.join();
}

criterion_group!(benches, hop);
criterion_main!(benches);
