//! A wall clock that is set while the relay runs (field report F27): nothing ends early, nothing lives on, nothing
//! freezes.
//!
//! The real binary runs under `libfaketime`, which fakes the wall clock and leaves the monotonic one alone, as an
//! administrator or a time daemon would. The relay's log lines carry the wall clock, so every step waits until a line
//! shows it: a preload that did not reach the process fails its test. One core serves everything here, so whoever has
//! an answer from behind a step knows that every deadline which the step might have ended has been looked at.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};
use std::{fs, thread};

use serde_json::{Value, json};

use crate::support::*;
use crate::tool;

/// The steps, as distances from the real time in seconds: an hour forward, then two back.
const STEPS: [i64; 2] = [3600, -3600];
/// Half of the smallest step: the faked time is nearer to what was set than to anything else.
const TOLERANCE: Duration = Duration::from_secs(1800);

/// The wall clock of one relay.
struct Clock {
    library: PathBuf,
    directory: PathBuf,
}

impl Clock {
    /// A clock that is right, if the machine has the library.
    #[track_caller]
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(library) = library() else {
            tool::skip("libfaketime");
            return None;
        };
        let name = format!("clock-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let clock = Self { library, directory: Path::new(env!("CARGO_TARGET_TMPDIR")).join(name) };
        fs::create_dir_all(&clock.directory).expect("a directory for the clock");
        clock.set(0);
        Some(clock)
    }

    fn file(&self) -> PathBuf {
        self.directory.join("offset")
    }

    /// The file is replaced, not written to: the relay reads it at any moment.
    fn set(&self, offset: i64) {
        let next = self.directory.join("next");
        fs::write(&next, format!("{offset:+}\n")).expect("the clock can be written");
        fs::rename(&next, self.file()).expect("the clock can be set");
    }

    /// A relay on one core that runs by this clock.
    #[track_caller]
    fn start(&self, configure: impl FnOnce(&mut Options)) -> Relay {
        let relay = Relay::start(|options| {
            options
                .env("LD_PRELOAD", self.library.display())
                .env("FAKETIME_TIMESTAMP_FILE", self.file().display())
                .env("FAKETIME_NO_CACHE", 1)
                .env("FAKETIME_DISABLE_SHM", 1)
                // The name of the setting, and what older versions call it.
                .env("FAKETIME_DONT_FAKE_MONOTONIC", 1)
                .env("DONT_FAKE_MONOTONIC", 1)
                .env("AEP_CORES", 1)
                .env("AEP_LOG", "aep_relay::engine=debug");
            configure(options);
        });
        await_time(&relay, 0);
        relay
    }

    /// Sets the clock, and waits until the relay has seen it.
    #[track_caller]
    fn step(&self, relay: &Relay, offset: i64) {
        self.set(offset);
        await_time(relay, offset);
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _left_behind = fs::remove_dir_all(&self.directory);
    }
}

/// The library in the place where Debian's `faketime` has it; the one for programs with threads.
fn library() -> Option<PathBuf> {
    let directories = fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
    directories.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1")).find(|file| file.is_file())
}

/// Requests until the line that the end of a connection is logged with shows this distance from the real time.
#[track_caller]
fn await_time(relay: &Relay, offset: i64) {
    wait_until("the log shows the time that was set", || {
        assert_eq!(relay.get("/healthz").status, 200);
        let log = relay.stderr();
        let stamp = log.lines().rev().find(|line| line.contains("connection over"));
        stamp.and_then(|line| line.split(' ').next()).is_some_and(|stamp| is_now(stamp, offset))
    });
}

/// Whether an RFC 3339 time is the present with this distance.
fn is_now(stamp: &str, offset: i64) -> bool {
    let Ok(shown) = humantime::parse_rfc3339(stamp) else { return false };
    let distance = Duration::from_secs(offset.unsigned_abs());
    let real = SystemTime::now();
    let expected = if offset < 0 { real - distance } else { real + distance };
    let error = shown.duration_since(expected).unwrap_or_else(|earlier| earlier.duration());
    error < TOLERANCE
}

/// A request that asks whether to send its body, and has been told to.
#[track_caller]
fn upload(relay: &Relay, length: usize) -> Http {
    let mut http = Http::connect(relay);
    http.send(format!(
        "POST /events HTTP/1.1\r\nHost: r\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n",
        relay.token().unwrap()
    ));
    assert_eq!(http.response_head().status, 100);
    http
}

#[test]
fn nothing_ends_early_and_everything_goes_on_in_order() {
    let Some(clock) = Clock::new() else { return };
    let mut relay = clock.start(|options| {
        options.token("sesame").env("AEP_HEARTBEAT", 1);
        for name in ["AEP_HEAD_TIME", "AEP_BODY_TIME", "AEP_IDLE_TIME", "AEP_HELLO_TIME"] {
            options.env(name, 600);
        }
    });

    // Claims the session, which its own subscription tells.
    let capabilities = r#"{"control":{"accepts":["control.cancel"]}}"#;
    let mut agent = Ws::hello_with(&relay, "both", "coder", capabilities);
    agent.subscribe("own", r#""filter":{"type":"run.started"}"#);
    let first = event("s", 1).build();
    agent.text(&first);
    agent.expect(&[&first]);

    let mut stream = Sse::subscribe(&relay, &[("filter", r#"{"type":"run.started"}"#)]);
    let mut watcher = Ws::hello(&relay, "consumer", "watcher");
    watcher.subscribe("all", "");
    let mut idle = Http::connect(&relay);
    idle.expect_alive();
    let mut head = Http::connect(&relay);
    head.send("GET /healthz HTTP/1.1\r\n");
    let last = event("s", 100).build();
    let mut body = upload(&relay, last.len());
    body.send(&last[..10]);
    let mut unready = Ws::connect(&relay);

    let mut missed = Vec::new();
    let mut seq = 1;
    for offset in STEPS {
        clock.step(&relay, offset);
        for _ in 0..3 {
            seq += 1;
            let sent = event("s", seq).build();
            relay.publish(&[&sent]);
            stream.expect(&[&sent]);
            watcher.expect(&[&sent]);
            agent.expect(&[&sent]);
            missed.push(sent);
        }
        for _ in 0..2 {
            assert_eq!(stream.next(), Some(Message::Comment("ping".to_owned())), "a heartbeat in silence");
        }
        // There and back: the command, and what the agent says to it.
        let command = command("control.cancel", "s").build();
        watcher.text(&command);
        agent.expect(&[&command]);
        watcher.expect(&[&command]);
        let cause: Value = serde_json::from_str::<Value>(&command).unwrap()["id"].clone();
        let reply = unplaced("attention.routed", "s").field("cause", &cause.to_string()).build();
        agent.text(&reply);
        watcher.expect(&[&reply]);
        for ws in [&mut agent, &mut watcher] {
            ws.sync();
        }
        head.send(format!("X-Step: {offset}\r\n"));
    }

    // What has been waiting all the time is taken up.
    idle.expect_alive();
    head.send("Host: r\r\n\r\n");
    assert_eq!(head.response().status, 200);
    body.send(&last[10..]);
    body.response().expect(202, r#"{"accepted":1}"#);
    stream.expect(&[&last]);
    watcher.expect(&[&last]);
    agent.expect(&[&last]);
    unready.text(r#"{"type":"hello","versions":["0.1"],"role":"consumer"}"#);
    assert_eq!(unready.json()["type"], "hello");

    // A resume from before the steps misses nothing and repeats nothing.
    missed.push(last);
    let from = json!([{"session": "s", "epoch": 0, "seq": 1}]).to_string();
    let filter = r#"{"type":"run.started"}"#;
    let resumed = Sse::replay(&relay, &[("from", &from), ("filter", filter)]);
    assert_eq!(resumed.iter().map(Message::data).collect::<Vec<_>>(), missed);

    // The clock stands an hour behind: the drain does not wait for it.
    relay.signal("TERM");
    assert_eq!(stream.comment(), "shutting-down");
    stream.rest();
    assert_eq!(watcher.json()["type"], "closing");
    watcher.expect_close(1001);
    drop((agent, unready));
    assert_eq!(relay.exit_status().code(), Some(0));
}

#[test]
fn nothing_outlives_its_deadline() {
    let Some(clock) = Clock::new() else { return };
    let relay = clock.start(|options| {
        options.token("sesame");
        for name in ["AEP_HEAD_TIME", "AEP_BODY_TIME", "AEP_IDLE_TIME", "AEP_HELLO_TIME"] {
            options.env(name, 2);
        }
    });
    for offset in STEPS {
        let mut idle = Http::connect(&relay);
        idle.expect_alive();
        let mut body = upload(&relay, 100);
        let mut unready = Ws::connect(&relay);
        let mut head = Http::connect(&relay);
        head.send("GET /healthz HTTP/1.1\r\n");
        clock.step(&relay, offset);
        head.response().expect_refusal(408, "timeout");
        body.response().expect_refusal(408, "timeout");
        idle.expect_end();
        unready.expect_error("hello-required");
        unready.expect_close(1008);
    }
}

/// The smallest queue there is, and bursts far over it: publishers wait, in real time, for readers that read.
#[test]
fn pacing_neither_freezes_nor_lets_a_burst_through() {
    const EVENTS: u64 = 1500;
    let Some(clock) = Clock::new() else { return };
    let relay = clock.start(|options| {
        options.env("AEP_MAX_BODY", 4 << 10);
    });
    let mut flock = Flock::new();
    flock.add_streams(&relay, 10, &[]);
    flock.add_websockets(&relay, 10, "{}");
    let text = "x".repeat(850);
    let sent: Vec<String> =
        (1..=EVENTS).map(|seq| event("s", seq).data(&json!({ "text": text }).to_string()).build()).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for (part, offset) in sent.chunks(sent.len() / 3).zip([0].into_iter().chain(STEPS)) {
                clock.step(&relay, offset);
                part.chunks(3).for_each(|batch| relay.publish(batch));
            }
        });
        let mut next = vec![0; flock.len()];
        flock.drive(flock.len() * sent.len(), |member, piece| {
            assert_ne!(piece, Piece::End, "consumer {member} was cut");
            for event in piece.events() {
                assert_eq!(Some(event), sent.get(next[member]).map(String::as_bytes), "consumer {member}, in order");
                next[member] += 1;
            }
            piece.events().count()
        });
    });
    assert_eq!(relay.metric("slow_consumers", ""), 0);
}
