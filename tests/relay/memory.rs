//! What is counted is what it costs: each budget of the README filled, and the process's resident memory compared with
//! what the relay says it holds, and all of them filled at once within a small `AEP_MEMORY`.
//!
//! The figures are printed (`cargo test --test memory -- --nocapture`).

use std::io::{ErrorKind, Write};

use crate::support::*;

const MIB: usize = 1 << 20;
/// What is filled, where a test chooses.
const BUDGET: usize = 32 * MIB;
/// What no budget counts: read buffers, what is on its way, the program's own pages that are touched.
const BESIDE: usize = 8 * MIB;

/// A relay, and the memory it had before anything was asked of it.
struct Measured {
    relay: Relay,
    before: usize,
}

impl Measured {
    fn start(settings: &[(&str, usize)]) -> Self {
        Flock::raise_descriptor_limit();
        let relay = Relay::start(|options| {
            options.env("AEP_MAX_BODY", MIB);
            for (name, value) in settings {
                options.env(name, value);
            }
        });
        let before = relay.resident_kib() as usize * 1024;
        Self { relay, before }
    }

    fn grown(&self) -> usize {
        (self.relay.resident_kib() as usize * 1024).saturating_sub(self.before)
    }

    /// What is held costs no more than a quarter above what is counted, which is that metric.
    #[track_caller]
    fn expect_counted(&self, what: &str, metric: &str, least: usize, most: usize) {
        let counted = self.relay.metric(metric, "") as usize;
        self.expect_costs(what, counted);
        assert!((least..=most).contains(&counted), "{what}: {counted} counted, {least} to {most} expected");
    }

    #[track_caller]
    fn expect_costs(&self, what: &str, counted: usize) {
        let grown = self.grown();
        #[allow(clippy::print_stdout, reason = "the figures are what this suite is for")]
        {
            println!("{what}: {:.1} MiB counted, {:.1} MiB more resident", mib(counted), mib(grown));
        }
        assert!(grown <= counted / 4 * 5 + BESIDE, "{what}: {counted} bytes counted cost {grown}");
    }
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / MIB as f64
}

// ── what connections say of themselves, subscribe to and claim ──

/// Subscribes on as many WebSockets as it takes until all together may not, in messages of `request(number)`.
fn subscribe_until_full(relay: &Relay, request: impl Fn(usize) -> String) -> Vec<Ws> {
    const AT_ONCE: usize = 64;
    let mut all = Vec::new();
    let mut number = 0;
    loop {
        let mut ws = Ws::hello(relay, "consumer", "");
        let mut is_full = false;
        while !is_full {
            let mut requests = Vec::new();
            for _ in 0..AT_ONCE {
                requests.extend(frame_bytes(true, opcode::TEXT, request(number).as_bytes()));
                number += 1;
            }
            ws.send(requests);
            for _ in 0..AT_ONCE {
                let answer = ws.message();
                if answer.contains("AEP_SUBSCRIPTION_BYTES") {
                    all.push(ws);
                    return all;
                }
                // One connection has had its share.
                is_full |= answer.contains("limit-exceeded");
            }
        }
        all.push(ws);
    }
}

fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(",")
}

#[test]
fn subscriptions_cost_what_is_counted() {
    type Request = fn(usize) -> String;
    let kinds: [(&str, Request); 7] = [
        ("an id", |n| format!(r#""filter":{{"id":"{n:x}"}}"#)),
        ("nothing but the same", |_| r#""filter":{}"#.to_owned()),
        ("types and prefixes", |n| format!(r#""filter":{{"type":["a.{n}","b.{n}","c.{n}.*","d.{n}.*"]}}"#)),
        ("a hundred agents", |n| format!(r#""filter":{{"agent":[{}]}}"#, list(100, |i| format!("\"{n}-{i}\"")))),
        ("an extension of integers", |n| {
            format!(r#""filter":{{"x{n}":[{}]}}"#, list(50, |i| (n * 50 + i).to_string()))
        }),
        ("long names", |n| format!(r#""filter":{{"session":"{}{n}"}}"#, "s".repeat(2000))),
        ("positions in sessions nobody knows", |n| {
            format!(r#""filter":{{}},"from":[{}]"#, list(200, |i| format!(r#"{{"session":"{n}-{i}","seq":1}}"#)))
        }),
    ];
    for (what, members) in kinds {
        let measured = Measured::start(&[("AEP_SUBSCRIPTION_BYTES", BUDGET)]);
        let request = |n| format!(r#"{{"type":"subscribe","id":"{n}",{}}}"#, members(n));
        let held = subscribe_until_full(&measured.relay, request);
        measured.expect_counted(what, "remembered_bytes", BUDGET - BUDGET / 16, BUDGET + MIB);
        drop(held);
        wait_until("nothing is counted any more", || measured.relay.metric("remembered_bytes", "") == 0);
    }
}

#[test]
fn streams_from_positions_cost_what_is_counted() {
    let measured = Measured::start(&[("AEP_SUBSCRIPTION_BYTES", BUDGET), ("AEP_HEAD_BYTES", MIB)]);
    let mut held = Vec::new();
    loop {
        let n = held.len();
        let positions = list(500, |i| format!(r#"{{"session":"{n}-{i}","seq":1}}"#));
        let target = query("/stream", &[("from", &format!("[{positions}]"))]);
        let mut http = Http::connect(&measured.relay);
        http.send(request("GET", &target, &[], b""));
        let head = http.response_head();
        if head.status == 503 {
            break;
        }
        assert_eq!(head.status, 200);
        assert_eq!(http.chunk().as_deref(), Some(&b": open\n\n"[..]));
        held.push(http);
    }
    measured.expect_counted("streams from positions", "remembered_bytes", BUDGET - BUDGET / 16, BUDGET + MIB);
}

#[test]
fn what_consumers_were_handed_is_counted_too() {
    const CONSUMERS: usize = 200;
    const SESSIONS: usize = 500;
    let measured = Measured::start(&[("AEP_BUFFER", 4)]);
    // Half of them have a class of their own, the others several subscriptions.
    let mut consumers: Vec<Ws> = (0..CONSUMERS)
        .map(|n| {
            let mut ws = Ws::consumer(&measured.relay, &format!(r#"{{"type":["run.started","x.{n}"]}}"#));
            if n % 2 == 0 {
                ws.subscribe("other", r#""filter":{"type":"y"}"#);
            }
            ws
        })
        .collect();
    for seq in 0..4 {
        let events: Vec<_> = (0..SESSIONS).map(|n| event(&format!("session-{n}"), seq).build()).collect();
        measured.relay.publish(&events);
        for ws in &mut consumers {
            for _ in 0..SESSIONS {
                ws.message();
            }
        }
    }
    let replay = measured.relay.metric("replay_bytes", "") as usize;
    let remembered = measured.relay.metric("remembered_bytes", "") as usize;
    assert!(remembered > CONSUMERS * SESSIONS * 40, "{remembered}");
    measured.expect_costs("positions handed over", replay + remembered);
    drop(consumers);
    wait_until("nothing is counted any more", || measured.relay.metric("remembered_bytes", "") == 0);
}

#[test]
fn claims_cost_what_is_counted() {
    const CLAIMS: usize = 10_000;
    for name in ["s", "a-session-with-a-name-of-some-length-as-most-of-them-have-"] {
        let settings = [("AEP_SUBSCRIPTION_BYTES", BUDGET), ("AEP_BUFFER", 1), ("AEP_MAX_SESSIONS", 10)];
        let measured = Measured::start(&settings);
        let held: Vec<Ws> = (0..6)
            .map(|n| {
                let mut ws = Ws::hello(&measured.relay, "emitter", "a");
                for first in (0..CLAIMS).step_by(500) {
                    let events = (first..first + 500).map(|i| event(&format!("{name}{n}-{i}"), 1).build());
                    ws.send(
                        events.flat_map(|event| frame_bytes(true, opcode::TEXT, event.as_bytes())).collect::<Vec<_>>(),
                    );
                    ws.sync();
                }
                ws
            })
            .collect();
        measured.expect_counted(name, "remembered_bytes", BUDGET / 3, BUDGET);
        drop(held);
        wait_until("nothing is counted any more", || measured.relay.metric("remembered_bytes", "") == 0);
    }
}

#[test]
fn hellos_cost_what_is_counted_and_large_ones_are_refused_at_the_bound() {
    let kinds = [
        ("control of 63 KB", format!(r#"{{"control":{{"x":"{}"}}}}"#, "y".repeat(63_000))),
        ("2500 accepts", format!(r#"{{"control":{{"accepts":[{}]}}}}"#, list(2500, |i| format!("\"control.x{i}\"")))),
        ("emits of 63 KB", format!(r#"{{"emits":["{}"]}}"#, "y".repeat(63_000))),
    ];
    for (what, capabilities) in kinds {
        let measured = Measured::start(&[("AEP_SUBSCRIPTION_BYTES", BUDGET)]);
        let hello = format!(
            r#"{{"type":"hello","versions":["0.1"],"role":"emitter","identity":{{"agent":"a"}},"capabilities":{capabilities}}}"#
        );
        let mut held = Vec::new();
        let mut refused = loop {
            let mut ws = Ws::connect(&measured.relay);
            ws.text(&hello);
            let answer = ws.message();
            if answer.contains("AEP_SUBSCRIPTION_BYTES") {
                assert!(answer.contains(r#""code":"limit-exceeded""#), "{answer}");
                break ws;
            }
            held.push(ws);
        };
        refused.expect_close(1008);
        measured.expect_counted(what, "remembered_bytes", BUDGET - BUDGET / 16, BUDGET);
        // Who says little of itself is still welcome.
        Ws::hello(&measured.relay, "emitter", "b").close();
        drop(held);
        wait_until("nothing is counted any more", || measured.relay.metric("remembered_bytes", "") == 0);
    }
}

// ── events ──

#[test]
fn replay_buffers_cost_what_is_counted() {
    for (what, sessions, text) in
        [("small events", 400, 0), ("events of 4 KiB", 50, 4096), ("events of 900 KB", 3, 900_000)]
    {
        let measured = Measured::start(&[("AEP_BUFFER_BYTES", BUDGET)]);
        let data = format!(r#"{{"text":"{}"}}"#, "a".repeat(text));
        let size = event("s", 1).data(&data).build().len();
        let batch = (500_000 / size).clamp(1, 1000);
        let mut seq = 0;
        while seq * size < 2 * BUDGET {
            let events: Vec<_> = (seq..seq + batch)
                .map(|n| event(&format!("session-{}", n % sessions), n as u64).data(&data).build())
                .collect();
            measured.relay.publish(&events);
            seq += batch;
        }
        // Just evicted is not counted any more, and the next event's room.
        measured.expect_costs(what, BUDGET);
        let counted = measured.relay.metric("replay_bytes", "") as usize;
        assert!((BUDGET / 2..=BUDGET).contains(&counted), "{what}: {counted}");
    }
}

#[test]
fn backlogs_and_delivery_blocks_cost_what_is_counted() {
    const CONSUMERS: usize = 6;
    const SENT: usize = 6 * MIB;
    for (what, text) in [("small events", 0), ("events of 4 KiB", 4096)] {
        let settings = [
            ("AEP_BUFFER_BYTES", 8 * MIB),
            ("AEP_BACKLOG_BYTES", BUDGET),
            ("AEP_DELIVERY_BYTES", 2 * MIB),
            ("AEP_QUEUE_BYTES", 8 * MIB),
        ];
        let measured = Measured::start(&settings);
        // Nobody reads, and nobody is cut.
        let held: Vec<Ws> = (0..CONSUMERS)
            .map(|_| {
                let mut ws = Ws::narrow(&measured.relay, "consumer", "", "{}");
                ws.subscribe("s", r#""filter":{}"#);
                ws
            })
            .collect();
        let data = format!(r#"{{"text":"{}"}}"#, "a".repeat(text));
        let size = event("s", 1).data(&data).build().len();
        let batch = 250_000 / size;
        for first in (0..SENT / size).step_by(batch) {
            let events = (first..first + batch).map(|n| event("s", n as u64).severity("error").data(&data).build());
            measured.relay.publish(&events.collect::<Vec<_>>());
        }
        let counted = |name| measured.relay.metric(name, "") as usize;
        let backlog = counted("backlog_bytes");
        assert!((CONSUMERS * SENT / 2..BUDGET + 6 * MIB).contains(&backlog), "{what}: {backlog}");
        let others = ["delivery_block_bytes", "replay_bytes", "remembered_bytes"].map(counted);
        measured.expect_costs(what, backlog + others.iter().sum::<usize>());
        drop(held);
    }
}

// ── requests and messages being received ──

#[test]
fn what_is_being_received_costs_what_is_counted() {
    let measured = Measured::start(&[("AEP_RECEIVE_BYTES", BUDGET)]);
    let head =
        format!("POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: {MIB}\r\n\r\n");
    let sent = measured.relay.metric("bytes_in", "");
    let held: Vec<Http> = (0..40)
        .map(|_| {
            let mut http = Http::connect(&measured.relay);
            http.send(&head);
            offer(&mut http, &vec![b' '; MIB - 1000]);
            http
        })
        .collect();
    wait_until("the room is used up", || measured.relay.metric("bytes_in", "") >= sent + (BUDGET - MIB) as u64);
    measured.expect_counted("bodies", "receiving_bytes", BUDGET - MIB, BUDGET + 3 * MIB);
    drop(held);
}

#[test]
fn heads_count_among_what_is_being_received() {
    const HEADS: usize = 1000;
    let measured = Measured::start(&[("AEP_RECEIVE_BYTES", MIB), ("AEP_HEAD_TIME", 60)]);
    let head = format!("GET /healthz HTTP/1.1\r\nHost: r\r\nX: {}", "y".repeat(60_000));
    let held: Vec<Http> = (0..HEADS)
        .map(|_| {
            let mut http = Http::connect(&measured.relay);
            offer(&mut http, head.as_bytes());
            http
        })
        .collect();
    // Every connection has the 16 KiB that never wait.
    wait_until("all heads have come as far as they may", || {
        measured.relay.metric("receiving_bytes", "") as usize >= HEADS * (16 << 10)
    });
    measured.expect_counted("heads", "receiving_bytes", HEADS * (16 << 10), HEADS * (20 << 10) + 3 * MIB);
    drop(held);
}

/// Sends what the relay takes at once.
fn offer(http: &mut Http, bytes: &[u8]) {
    http.stream().set_nonblocking(true).unwrap();
    let mut rest = bytes;
    while !rest.is_empty() {
        match http.stream().write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    http.stream().set_nonblocking(false).unwrap();
}

#[test]
fn idle_connections_cost_what_is_counted() {
    const CONNECTIONS: usize = 4000;
    /// `CONNECTION_BYTES`.
    const EACH: usize = 1 << 10;
    let measured = Measured::start(&[]);
    let sockets: Vec<Ws> = (0..CONNECTIONS).map(|_| Ws::consumer(&measured.relay, "{}")).collect();
    let counted = measured.relay.metric("remembered_bytes", "") as usize + CONNECTIONS * EACH;
    measured.expect_costs("WebSockets", counted);
    drop(sockets);

    let measured = Measured::start(&[]);
    let streams: Vec<Sse> = (0..CONNECTIONS).map(|_| Sse::open(&measured.relay, "/stream")).collect();
    let counted = measured.relay.metric("remembered_bytes", "") as usize + CONNECTIONS * EACH;
    measured.expect_costs("event streams", counted);
    drop(streams);
}

// ── all of it ──

/// Whether the relay has turned a connection away; asked on one that it has.
fn has_refused(http: &mut Http) -> bool {
    http.send(request("GET", "/metrics", &[], b""));
    !http.response().text().contains("aep_relay_refused_total 0\n")
}

#[test]
fn with_every_budget_full_a_relay_of_little_memory_lives_within_it() {
    const LIMIT: usize = 300 * MIB;
    Flock::raise_descriptor_limit();
    let mut relay = Relay::start(|options| {
        options.env("AEP_MEMORY", LIMIT / 4 * 3).env("AEP_HEAD_TIME", 600).env("AEP_IDLE_TIME", 600);
    });
    let mut publisher = Http::connect(&relay);
    publisher.expect_alive();

    // Who reads nothing.
    let slow: Vec<Ws> = (0..40)
        .map(|_| {
            let mut ws = Ws::narrow(&relay, "consumer", "", "{}");
            ws.subscribe("s", r#""filter":{}"#);
            ws
        })
        .collect();
    let remembering = subscribe_until_full(&relay, |n| {
        format!(r#"{{"type":"subscribe","id":"{n}","filter":{{"id":"{n:x}","agent":"{n}"}}}}"#)
    });
    let data = format!(r#"{{"text":"{}"}}"#, "a".repeat(8000));
    for first in (0..20_000).step_by(100) {
        let events: Vec<_> = (first..first + 100)
            .map(|n| event(&format!("session-{}", n % 100), n).severity("error").data(&data).build())
            .collect();
        publisher.send(request(
            "POST",
            "/events",
            &[("Content-Type", "application/x-ndjson")],
            events.join("\n").as_bytes(),
        ));
        assert_eq!(publisher.response().status, 202);
    }
    let uploads: Vec<Http> = (0..64)
        .map(|_| {
            let mut http = Http::connect(&relay);
            http.send(
                "POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n",
            );
            offer(&mut http, &vec![b' '; 3_900_000]);
            http
        })
        .collect();
    // Up to the last connection there may be, each with as much of a head as it may bring.
    let head = format!("GET /healthz HTTP/1.1\r\nHost: r\r\nX: {}", "y".repeat(60_000));
    let mut heads = Vec::new();
    while !has_refused(&mut publisher) {
        for _ in 0..50 {
            let mut http = Http::connect(&relay);
            offer(&mut http, head.as_bytes());
            heads.push(http);
        }
    }
    publisher.expect_alive();
    assert!(relay.is_running());
    let most = relay.resident_most_kib() as usize * 1024;
    #[allow(clippy::print_stdout, reason = "the figures are what this suite is for")]
    {
        println!("all of it: {:.1} MiB at most, {} connections", mib(most), heads.len() + uploads.len());
    }
    assert!(most < LIMIT, "{most} bytes of {LIMIT}");
    drop((slow, remembering, uploads, heads));
}
