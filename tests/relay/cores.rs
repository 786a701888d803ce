//! The same promises with one core and with several: order, loss and repetition under load, eviction, commands and
//! balance across cores (contract §3, §7).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use crate::support::*;
use serde_json::{Value, json};

#[track_caller]
fn on_cores(cores: usize, configure: impl FnOnce(&mut Options)) -> Relay {
    Relay::start(|options| {
        options.env("AEP_CORES", cores);
        configure(options);
    })
}

/// A small generator (splitmix64): the same seed, the same run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

// ── resume and live under load ──

const SESSIONS: u64 = 12;
const EVENTS: u64 = 400;
const CONSUMERS: u64 = 50;

/// The sessions of the load; each has one publisher, so that their events arrive in the order of their numbers.
fn session(index: u64) -> String {
    format!("session:{index}")
}

/// What one consumer has been promised: per session, the number that comes next.
struct Promise {
    next: BTreeMap<String, u64>,
    /// Sessions whose gap was announced, with the number they go on from.
    announced: HashMap<String, u64>,
    gaps: u64,
    /// Several subscriptions ask for the same session: each tells of its own gaps, also where the other had none.
    shared: bool,
}

impl Promise {
    fn of(sessions: impl Iterator<Item = u64>) -> Self {
        Self {
            next: sessions.map(|index| (session(index), 1)).collect(),
            announced: HashMap::new(),
            gaps: 0,
            shared: false,
        }
    }

    /// Resume positions: the last ones seen.
    fn from(&self) -> String {
        let positions = self.next.iter().map(|(session, next)| json!({"session": session, "seq": next - 1}));
        Value::from_iter(positions).to_string()
    }

    /// For one session alone: the last id seen.
    fn last_event_id(&self) -> String {
        let (session, next) = self.next.iter().next().expect("a session");
        format!("{session}:0:{}", next - 1)
    }

    fn is_kept(&self) -> bool {
        self.next.values().all(|next| *next > EVENTS)
    }

    #[track_caller]
    fn event(&mut self, session: &str, seq: u64) {
        let next = self.next.get_mut(session).unwrap_or_else(|| panic!("{session} was not asked for"));
        let announced = self.announced.get(session).copied();
        let expected = announced.filter(|from| !self.shared || *from == seq).unwrap_or(*next);
        assert_eq!(seq, expected, "{session}: no hole, no repeat, no step back (announced: {announced:?})");
        if announced == Some(seq) {
            self.announced.remove(session);
        }
        *next = seq + 1;
    }

    #[track_caller]
    fn gap(&mut self, session: &str, earliest: u64) {
        let next = self.next[session];
        assert!(self.shared || earliest > next, "{session}: a gap up to {earliest} behind {}", next - 1);
        if earliest > next {
            self.announced.insert(session.to_owned(), earliest);
        }
        self.gaps += 1;
    }

    /// A message of a socket.
    #[track_caller]
    fn message(&mut self, text: &str) {
        let value: Value = serde_json::from_str(text).expect("JSON");
        match value["type"].as_str() {
            Some("replay-exhausted") => {
                let earliest = value["earliest"]["seq"].as_u64().expect("a position");
                self.gap(value["session"].as_str().expect("a session"), earliest);
            }
            Some("subscribed") => {}
            _ => {
                let seq = value["seq"].as_u64().unwrap_or_else(|| panic!("an event, not {text}"));
                self.event(value["session"].as_str().expect("a session"), seq);
            }
        }
    }

    /// A message of a stream. Its id says the same as its data.
    #[track_caller]
    fn streamed(&mut self, message: &Message) {
        match message {
            Message::Event { id, data, .. } => {
                let value: Value = serde_json::from_str(data).expect("JSON");
                let (session, seq) = (value["session"].as_str().unwrap(), value["seq"].as_u64().unwrap());
                assert_eq!(id.as_deref(), Some(format!("{session}:0:{seq}").as_str()));
                self.event(session, seq);
            }
            Message::Comment(text) if text == "ping" => {}
            Message::Comment(text) => {
                let rest = text.strip_prefix("replay-exhausted ").unwrap_or_else(|| panic!("{text:?}"));
                let (session, position) = rest.split_once(' ').expect("session and position");
                let earliest = position.strip_prefix("0:").expect("epoch 0").parse().expect("a number");
                self.gap(session, earliest);
            }
        }
    }
}

/// What the publishers have done so far.
struct Progress {
    published: AtomicU64,
    running: AtomicUsize,
}

impl Progress {
    /// Waits until that many more events are out, or no more will come.
    fn wait_for(&self, more: u64) {
        let goal = self.published.load(Ordering::SeqCst) + more;
        wait_until("events are published", || {
            self.published.load(Ordering::SeqCst) >= goal || self.running.load(Ordering::SeqCst) == 0
        });
    }
}

/// Publishes its sessions' events in order: as single posts, as batches over several sessions, or by WebSocket.
fn publisher(relay: &Relay, index: u64, of: u64, progress: &Progress) {
    let mut random = Random(1000 + index);
    let mut open: Vec<(u64, u64)> = (0..SESSIONS).filter(|session| session % of == index).map(|s| (s, 1)).collect();
    let mut ws = (index % 3 == 2).then(|| Ws::hello(relay, "emitter", "coder"));
    while !open.is_empty() {
        let mut batch = Vec::new();
        for _ in 0..=random.below(12) {
            if open.is_empty() {
                break;
            }
            let at = random.below(open.len() as u64) as usize;
            let (index, seq) = &mut open[at];
            batch.push(event(&session(*index), *seq).severity("notice").build());
            *seq += 1;
            if *seq > EVENTS {
                open.remove(at);
            }
        }
        match &mut ws {
            Some(ws) => {
                for event in &batch {
                    ws.text(event);
                }
                ws.sync();
            }
            None => relay.publish(&batch),
        }
        progress.published.fetch_add(batch.len() as u64, Ordering::SeqCst);
    }
    progress.running.fetch_sub(1, Ordering::SeqCst);
}

/// Reads until its promise is kept, cutting its connection again and again. Answers how many gaps it was told of.
fn consumer(relay: &Relay, index: u64, progress: &Progress) -> u64 {
    let mut random = Random(index);
    // One in five follows a single session and resumes by its last event id, as a browser does.
    let single = index.is_multiple_of(5);
    let mut promise = if single {
        Promise::of(std::iter::once(index % SESSIONS))
    } else {
        Promise::of((0..SESSIONS).filter(|session| index.is_multiple_of(2) || !(session + index).is_multiple_of(3)))
    };
    let sessions: Vec<&String> = promise.next.keys().collect();
    let filter = json!({"session": sessions}).to_string();
    let halves = sessions.split_at(sessions.len() / 2);
    let halves = [json!({"session": halves.0}).to_string(), json!({"session": halves.1}).to_string()];
    while !promise.is_kept() {
        let budget = 1 + random.below(if single { 60 } else { 500 });
        let from = promise.from();
        if single {
            let id = promise.last_event_id();
            let target = query("/stream", &[("filter", &filter)]);
            let mut stream = Sse::open_with(relay, &target, &[("Last-Event-ID", &id)]);
            read(&mut promise, budget, |promise| promise.streamed(&stream.message()));
        } else if random.below(2) == 0 {
            let mut stream = Sse::subscribe(relay, &[("filter", &filter), ("from", &from)]);
            read(&mut promise, budget, |promise| promise.streamed(&stream.message()));
        } else {
            let mut ws = Ws::hello(relay, "consumer", "watcher");
            // One subscription, two that share the sessions, or two that both ask for some of them.
            let kind = random.below(3);
            let filters: &[&String] = match kind {
                0 => &[&filter],
                1 => &[&halves[0], &halves[1]],
                _ => &[&halves[0], &filter],
            };
            promise.shared = kind == 2;
            for (id, filter) in filters.iter().enumerate() {
                let positions = positions_within(&from, filter);
                ws.text(format!(r#"{{"type":"subscribe","id":"{id}","filter":{filter},"from":{positions}}}"#));
            }
            read(&mut promise, budget, |promise| promise.message(&ws.message()));
            if random.below(4) == 0 {
                drop(ws);
            } else {
                ws.send_if_open(frame_bytes(true, opcode::CLOSE, &1000_u16.to_be_bytes()));
            }
        }
        // Announced gaps that were not seen to be followed are asked for again.
        promise.announced.clear();
        promise.shared = false;
        if random.below(3) == 0 {
            progress.wait_for(random.below(200));
        }
    }
    promise.gaps
}

fn read(promise: &mut Promise, budget: u64, mut one: impl FnMut(&mut Promise)) {
    for _ in 0..budget {
        if promise.is_kept() {
            return;
        }
        one(promise);
    }
}

/// The positions of those sessions that the filter names.
fn positions_within(from: &str, filter: &str) -> String {
    let (from, filter): (Vec<Value>, Value) =
        (serde_json::from_str(from).unwrap(), serde_json::from_str(filter).unwrap());
    let named = filter["session"].as_array().unwrap();
    Value::from_iter(from.into_iter().filter(|position| named.contains(&position["session"]))).to_string()
}

/// Runs the load with that many events kept per session. Answers how many gaps were announced.
fn under_load(cores: usize, buffer: u64) -> u64 {
    const PUBLISHERS: u64 = 6;
    let relay = on_cores(cores, |options| {
        options.env("AEP_BUFFER", buffer);
    });
    let progress = Progress { published: AtomicU64::new(0), running: AtomicUsize::new(PUBLISHERS as usize) };
    let gaps = thread::scope(|scope| {
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|index| {
                let (relay, progress) = (&relay, &progress);
                scope.spawn(move || consumer(relay, index, progress))
            })
            .collect();
        for index in 0..PUBLISHERS {
            let (relay, progress) = (&relay, &progress);
            scope.spawn(move || publisher(relay, index, PUBLISHERS, progress));
        }
        consumers.into_iter().map(|consumer| consumer.join().expect("a consumer's promise is kept")).sum()
    });
    assert_eq!(relay.metric("slow_consumers", ""), 0);
    assert_eq!(relay.metric("dropped", ""), 0);
    gaps
}

#[test]
fn one_core_keeps_its_promise_under_load() {
    assert_eq!(under_load(1, EVENTS), 0, "nothing was evicted, so there is no gap to announce");
    under_load(1, 20);
}

#[test]
fn two_cores_keep_their_promise_under_load() {
    assert_eq!(under_load(2, EVENTS), 0, "nothing was evicted, so there is no gap to announce");
    under_load(2, 20);
}

#[test]
fn four_cores_keep_their_promise_under_load() {
    assert_eq!(under_load(4, EVENTS), 0, "nothing was evicted, so there is no gap to announce");
    under_load(4, 20);
}

/// Harm prevented: two cores that wait for room in each other's mailboxes.
#[test]
fn publishers_wait_when_consumers_are_behind_and_nothing_deadlocks() {
    const PUBLISHERS: u64 = 8;
    const BATCHES: u64 = 6;
    let relay = on_cores(4, |options| {
        options.env("AEP_BUFFER", 10);
    });
    let mut flock = Flock::new();
    flock.add_streams(&relay, 10, &[]);
    flock.add_websockets(&relay, 10, "{}");
    let filler = "x".repeat(20_000);
    let batches: Vec<Vec<Vec<String>>> = (0..PUBLISHERS)
        .map(|publisher| {
            let build = |seq| {
                event(&format!("p{publisher}-{}", seq % 7), seq)
                    .severity("notice")
                    .agent(&format!("p{publisher}"))
                    .data(&format!(r#"{{"t":"{filler}"}}"#))
                    .build()
            };
            (0..BATCHES).map(|batch| (batch * 40..batch * 40 + 40).map(build).collect()).collect()
        })
        .collect();
    thread::scope(|scope| {
        for batches in &batches {
            let relay = &relay;
            scope.spawn(move || batches.iter().for_each(|batch| relay.publish(batch)));
        }
        let mut next: Vec<HashMap<String, u64>> = vec![HashMap::new(); flock.len()];
        flock.drive(flock.len() * (PUBLISHERS * BATCHES * 40) as usize, |member, piece| {
            assert_ne!(piece, Piece::End, "consumer {member} was cut");
            for event in piece.events() {
                let (session, seq) = place(event);
                let last = next[member].insert(session.clone(), seq);
                assert!(last.is_none_or(|last| last + 7 == seq), "{session}: {seq} behind {last:?}");
            }
            piece.events().count()
        });
    });
    assert_eq!(relay.metric("slow_consumers", ""), 0);
}

/// Session and number of an event, without a look at its data.
fn place(event: &[u8]) -> (String, u64) {
    let value: Value = serde_json::from_slice(event).expect("an event is JSON");
    (value["session"].as_str().unwrap().to_owned(), value["seq"].as_u64().unwrap())
}

// ── reads after writes ──

#[test]
fn what_was_accepted_is_seen_from_every_core() {
    for cores in [1, 4] {
        let relay = on_cores(cores, |_| {});
        let mut emitter = Ws::hello(&relay, "emitter", "coder");
        for round in 1..=20 {
            // One batch over sessions of all owners; and the last events by WebSocket, whose pong comes behind them.
            let batch: Vec<String> = (0..32).map(|index| event(&format!("s{index}"), round).build()).collect();
            relay.publish(&batch[..24]);
            for event in &batch[24..] {
                emitter.text(event);
            }
            // A read on each core: connections are spread over them.
            let expected: HashSet<String> = batch[..24].iter().cloned().collect();
            for _ in 0..cores {
                let seen = Sse::replay(&relay, &[]);
                let seen: HashSet<String> = seen.iter().map(|message| message.data().to_owned()).collect();
                assert!(expected.is_subset(&seen), "{cores} cores, round {round}");
            }
        }
    }
}

// ── the session cap ──

/// The sessions held, by a replay of everything.
#[track_caller]
fn held(relay: &Relay) -> HashSet<String> {
    let session = |message: &Message| message.json()["session"].as_str().unwrap().to_owned();
    Sse::replay(relay, &[]).iter().map(session).collect()
}

#[test]
fn the_least_recently_written_session_goes_whichever_core_it_lives_on() {
    const CAP: usize = 16;
    for cores in [1, 4] {
        let relay = on_cores(cores, |options| {
            options.env("AEP_MAX_SESSIONS", CAP);
        });
        let mut random = Random(7);
        // The model: sessions by their last write, the oldest first.
        let mut model: Vec<String> = Vec::new();
        let mut posts: Vec<Http> = (0..8).map(|_| Http::connect(&relay)).collect();
        let mut emitters: Vec<Ws> = (0..4).map(|_| Ws::hello(&relay, "emitter", "coder")).collect();
        for step in 1..=400 {
            let session = format!("s{}", random.below(40));
            let text = event(&session, step).build();
            if random.below(4) == 0 {
                let ws = &mut emitters[random.below(4) as usize];
                ws.text(&text);
                ws.sync();
            } else {
                let http = &mut posts[random.below(8) as usize];
                http.send(request("POST", "/events", &[("Content-Type", "application/json")], text.as_bytes()));
                http.response().expect(202, r#"{"accepted":1}"#);
            }
            model.retain(|other| *other != session);
            model.push(session);
            if model.len() > CAP {
                model.remove(0);
            }
            if step % 10 == 0 {
                assert_eq!(held(&relay), model.iter().cloned().collect(), "{cores} cores, step {step}");
            }
        }
        assert_eq!(relay.count("sessions"), CAP as u64);
        assert_eq!(relay.metric("sessions", ""), CAP as u64);
    }
}

#[test]
fn concurrent_publishers_leave_a_set_of_sessions_that_some_order_of_their_writes_explains() {
    const CAP: usize = 20;
    for cores in [1, 4] {
        let relay = on_cores(cores, |options| {
            options.env("AEP_MAX_SESSIONS", CAP);
        });
        // Each session is written once, between two readings of this clock.
        let clock = AtomicU64::new(0);
        let tick = || clock.fetch_add(1, Ordering::SeqCst);
        let writes: Vec<(String, u64, u64)> = thread::scope(|scope| {
            let writers: Vec<_> = (0..8)
                .map(|writer| {
                    let (relay, tick) = (&relay, &tick);
                    scope.spawn(move || {
                        let mut http = Http::connect(relay);
                        let write = |seq: u64| {
                            let session = format!("w{writer}-{seq}");
                            let event = event(&session, seq).build();
                            let begun = tick();
                            let fields = [("Content-Type", "application/json")];
                            http.send(request("POST", "/events", &fields, event.as_bytes()));
                            http.response().expect(202, r#"{"accepted":1}"#);
                            (session, begun, tick())
                        };
                        (0..60).map(write).collect::<Vec<_>>()
                    })
                })
                .collect();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        let held = held(&relay);
        assert_eq!(held.len(), CAP, "exactly the cap");
        assert_eq!(relay.count("sessions"), CAP as u64);
        let (kept, evicted): (Vec<_>, Vec<_>) = writes.iter().partition(|(session, ..)| held.contains(session));
        for (session, _, kept_end) in &kept {
            for (other, evicted_begin, _) in &evicted {
                assert!(evicted_begin < kept_end, "{session} was written before {other}, which went instead");
            }
        }
    }
}

// ── the arena ──

#[test]
fn the_byte_budget_evicts_and_never_refuses_a_publish() {
    const BODY: usize = 64 << 10;
    for cores in [1, 4] {
        let budget = 16 * BODY * 2;
        let relay = on_cores(cores, |options| {
            options.env("AEP_MAX_BODY", BODY).env("AEP_BUFFER_BYTES", budget).env("AEP_DELIVERY_BYTES", 1 << 20);
        });
        // Readers in the middle of a replay that do not read on pin nothing.
        let first: Vec<String> = (1..=50).map(|seq| sized("first", seq, 8 << 10)).collect();
        relay.publish(&first[..7]);
        let stalled: Vec<Sse> = (0..10).map(|_| Sse::narrow(&relay, &[("from", "all")])).collect();
        let before = relay.resident_kib();
        let mut newest = String::new();
        for round in 0..400_u64 {
            // 40 MiB in all, in sessions of one to four events of different sizes; `relay.publish` expects each 202.
            newest = format!("s{round}");
            let batch: Vec<String> =
                (1..=1 + round % 4).map(|seq| sized(&newest, seq, 1000 + (round as usize * 977) % 14_000)).collect();
            relay.publish(&batch);
            let used = relay.metric("replay_bytes", "");
            assert!(used <= budget as u64, "{used} bytes of {budget}");
        }
        assert!(relay.metric("sessions_evicted", "bytes") > 0);
        let held_now = held(&relay);
        assert!(held_now.contains(&newest), "what was written last is there");
        assert!(!held_now.contains("first"), "what was written least recently is not");
        // Sessions leave whole, the oldest first: those held are the newest ones.
        let oldest =
            held_now.iter().filter_map(|session| session.strip_prefix('s')?.parse::<u64>().ok()).min().unwrap();
        for round in oldest + 1..400 {
            assert!(held_now.contains(&format!("s{round}")), "{round} is newer than {oldest}");
        }
        // An event of the largest size finds room, too; and one session alone gives up its lowest positions.
        for seq in 1..=40 {
            let event = sized("alone", seq, BODY - 500);
            relay.post(event).expect(202, r#"{"accepted":1}"#);
        }
        let replay = Sse::replay(&relay, &[("filter", r#"{"session":"alone"}"#)]);
        let seqs: Vec<u64> = replay.iter().map(|message| message.json()["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs.last(), Some(&40));
        assert!(seqs.len() > 1 && seqs.len() < 40, "{} events of {BODY} bytes in {budget}", seqs.len());
        assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
        let resumed = Sse::replay(&relay, &[("from", r#"[{"session":"alone","seq":1}]"#)]);
        assert_eq!(resumed[0], Message::Comment(format!("replay-exhausted alone 0:{}", seqs[0])));
        let grown = relay.resident_kib().saturating_sub(before);
        assert!(grown < 24 << 10, "{grown} KiB, with a budget of {} KiB", budget >> 10);
        drop(stalled);
    }
}

fn sized(session: &str, seq: u64, bytes: usize) -> String {
    event(session, seq).data(&format!(r#"{{"t":"{}"}}"#, "x".repeat(bytes))).build()
}

// ── control ──

#[test]
fn a_command_finds_its_target_on_any_core() {
    const TARGETS: usize = 12;
    let relay = on_cores(4, |options| {
        options.token("sesame");
    });
    let mut targets: Vec<Ws> = (0..TARGETS)
        .map(|index| {
            let accepts = r#"{"control":{"accepts":["control.cancel"]}}"#;
            let mut ws = Ws::hello_with(&relay, "emitter", &format!("worker-{index}"), accepts);
            ws.text(event(&format!("s{index}"), 1).build());
            ws.sync();
            ws
        })
        .collect();
    let filter = r#"{"type":["control.*"]}"#;
    let mut observers: Vec<Sse> = (0..8).map(|_| Sse::subscribe(&relay, &[("filter", filter)])).collect();
    let mut senders: Vec<Ws> = (0..6).map(|_| Ws::consumer(&relay, filter)).collect();
    let mut everything = Vec::new();
    for (number, sender) in (10..).zip(&mut senders) {
        for (index, target) in targets.iter_mut().enumerate() {
            let session = format!("s{index}");
            let command = command("control.cancel", &session).build();
            sender.text(&command);
            target.expect(&[&command]);
            // The answer goes on by another way as soon as the target has the command: nobody sees it first.
            let id = serde_json::from_str::<Value>(&command).unwrap()["id"].as_str().unwrap().to_owned();
            let ack = event(&session, number).kind("control.accepted").text("cause", &id).build();
            if index % 2 == 0 {
                target.text(&ack)
            } else {
                relay.publish(&[&ack])
            }
            everything.extend([command, ack]);
        }
    }
    // Per session everybody sees command, ack, command, ack, ….
    let per_session = |seen: Vec<String>| {
        let mut sessions: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for text in seen {
            let value: Value = serde_json::from_str(&text).unwrap();
            sessions.entry(value["session"].as_str().unwrap().to_owned()).or_default().push(text);
        }
        sessions
    };
    let count = everything.len();
    let expected = per_session(everything);
    for stream in &mut observers {
        assert_eq!(per_session((0..count).map(|_| stream.event()).collect()), expected);
    }
    for ws in &mut senders {
        assert_eq!(per_session((0..count).map(|_| ws.message()).collect()), expected);
    }
    // Roster and connections gather what lives on all cores.
    senders[0].text(r#"{"type":"roster","id":"r"}"#);
    let roster = senders[0].json();
    let claimed: HashSet<&str> =
        roster["entries"].as_array().unwrap().iter().map(|entry| entry["session"].as_str().unwrap()).collect();
    assert_eq!(
        claimed,
        (0..TARGETS).map(|index| format!("s{index}")).collect::<Vec<_>>().iter().map(String::as_str).collect()
    );
    let connections = relay.get("/connections").json();
    assert_eq!(connections["connections"].as_array().unwrap().len(), TARGETS + senders.len());
    // Who leaves is gone everywhere.
    targets.truncate(1);
    let mut sender = Ws::hello(&relay, "consumer", "controller");
    wait_until("the claims have ended", || {
        sender.text(r#"{"type":"roster","id":"r"}"#);
        sender.json()["entries"].as_array().unwrap().len() == 1
    });
    sender.text(command("control.cancel", "s5").build());
    sender.expect_error("no-route");
}

// ── balance ──

/// Field report: one worker held all the long-lived connections.
#[test]
fn connections_are_spread_over_the_cores() {
    const STREAMS: usize = 400;
    let relay = on_cores(4, |_| {});
    let per_core = || -> Vec<u64> {
        (0..4).map(|core| metric_of(&relay.metrics(), &["kind=\"sse\"", &format!("core=\"{core}\"")])).collect()
    };
    let mut streams: Vec<Sse> = (0..STREAMS).map(|_| Sse::open(&relay, "/stream")).collect();
    let mut random = Random(3);
    for round in 0..5 {
        let spread = per_core();
        assert_eq!(spread.iter().sum::<u64>(), STREAMS as u64);
        let most = spread.iter().max().unwrap();
        assert!(2 * 4 * most <= 3 * STREAMS as u64, "round {round}: at most 1.5 times the mean, not {spread:?}");
        // Half of them, chosen by chance, leave and come again.
        for _ in 0..STREAMS / 2 {
            streams.swap_remove(random.below(streams.len() as u64) as usize);
        }
        let left = streams.len() as u64;
        wait_until("half of them are gone", || per_core().iter().sum::<u64>() == left);
        streams.extend((streams.len()..STREAMS).map(|_| Sse::open(&relay, "/stream")));
    }
}

/// The sum of the samples of `aep_relay_connections` that have all these labels.
fn metric_of(metrics: &str, labels: &[&str]) -> u64 {
    metrics
        .lines()
        .filter(|line| line.starts_with("aep_relay_connections{") && labels.iter().all(|label| line.contains(label)))
        .map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok()).expect("a number"))
        .sum()
}
