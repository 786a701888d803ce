//! What does one event cost in filters: to match one, and to find its candidates among few and many subscriptions?
//!
//! The promise behind it: publishing with 10 000 subscriptions that do not match costs hardly more than with none. Read
//! the "others" lines against each other, not against a clock: the ratio of 10 000 to 10 is the answer.
//!
//! Run with `cargo bench --bench filter`.

use aep_relay::relay::event::{Event, Fingerprinter, Parser};
use aep_relay::relay::filter::Filter;
use aep_relay::relay::filter::index::Index;
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

const EVENT: &[u8] = br#"{"aep":"0.1","id":"01JX9YB2Z1QK","type":"tool.completed","subject":"Bash","time":"2026-07-03T10:15:03.000Z","source":"aep://host-a/agent/worker/session/s_8f2c","agent":"worker","session":"s_8f2c","run":"r_0042","step":"turn-3","seq":2,"severity":"info","region":"eu-1","data":{"status":"success","duration_ms":120}}"#;

fn filter(text: &str) -> Filter {
    Filter::parse(text.as_bytes(), 2048).expect("a valid filter")
}

fn matching(bencher: &mut Criterion, event: &Event<'_>) {
    let agents: Vec<String> = (0..1000).map(|n| format!("\"agent-{n}\"")).collect();
    let many = format!(r#"{{"agent":[{},"worker"]}}"#, agents.join(","));
    for (name, text) in [
        ("everything", "{}"),
        ("session", r#"{"session":"s_8f2c"}"#),
        ("conjunction", r#"{"type":["tool.*","run.*"],"severity":{"gte":"info"},"agent":"worker","region":"eu-1"}"#),
        ("any of 1001", &many),
    ] {
        let filter = filter(text);
        assert!(filter.matches(event));
        bencher.bench_function(&format!("match/{name}"), |b| b.iter(|| filter.matches(black_box(event))));
    }
}

fn candidates(bencher: &mut Criterion, event: &Event<'_>) {
    type Shape = (&'static str, fn(usize) -> String);
    let shapes: [Shape; 5] = [
        ("other sessions", |n| format!(r#"{{"session":"s_{n}"}}"#)),
        ("other agents", |n| format!(r#"{{"agent":"agent-{n}"}}"#)),
        ("other types", |n| format!(r#"{{"type":"tool.kind_{n}"}}"#)),
        ("other prefixes", |n| format!(r#"{{"type":"tool.kind_{n}.*"}}"#)),
        ("others of every kind", |n| match n % 5 {
            0 => format!(r#"{{"session":"s_{n}"}}"#),
            1 => format!(r#"{{"agent":"agent-{n}"}}"#),
            2 => format!(r#"{{"type":"tool.kind_{n}"}}"#),
            3 => format!(r#"{{"type":"x.vendor_{n}.*"}}"#),
            _ => format!(r#"{{"region":"region-{n}"}}"#),
        }),
    ];
    for (name, shape) in shapes {
        for count in [10, 10_000] {
            let mut index = Index::default();
            for target in 0..count {
                index.insert(&filter(&shape(target)), target);
            }
            bencher.bench_function(&format!("candidates/{name}/{count}"), |b| {
                b.iter(|| {
                    let mut met = 0;
                    index.candidates(black_box(event), &mut |_| met += 1);
                    assert_eq!(met, 0);
                });
            });
        }
    }
}

fn filters(bencher: &mut Criterion) {
    let mut parser = Parser::new(Fingerprinter::new());
    let event = parser.parse(EVENT).expect("a valid event");
    matching(bencher, &event);
    candidates(bencher, &event);
}

criterion_group!(benches, filters);
criterion_main!(benches);
