//! What does one lowered form cost? It is made at most once per event and core, so compare it with parsing the event
//! (`admission`), not with delivering it.
//!
//! Run with `cargo bench --bench capture`.

use aep_relay::relay::capture::{Lowered, lower};
use aep_relay::relay::event::{Capture, Fingerprinter, Parser};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

fn event(kind: &str, data: &str) -> String {
    format!(
        r#"{{"aep":"0.1","id":"01JX9YB2Z1QK","type":"{kind}","time":"2026-07-03T10:15:03.000Z","source":"aep://host-a/agent/worker","agent":"worker","session":"s_8f2c","seq":2,"capture":"full","data":{data}}}"#
    )
}

fn captures(bencher: &mut Criterion) {
    let text = "some text that somebody wrote. ".repeat(60);
    let document =
        format!(r#"{{"id":"doc","score":0.91,"content":"{}","content_redacted":"[REDACTED]"}}"#, &text[..400]);
    let documents = format!(r#"{{"documents":[{}],"count":40}}"#, vec![document; 40].join(","));
    let choice = r#"{"id":"1","label":"PostgreSQL"},{"id":"2","label":"SQLite"}"#;
    let form = format!(
        r#"{{"kind":"form","prompt":"Which?","fields":[{{"id":"1","label":"Database","choices":[{choice}]}}]}}"#
    );
    let mut group = bencher.benchmark_group("lower to metadata");
    for (name, text) in [
        ("result of 2 KiB", event("tool.completed", &format!(r#"{{"status":"success","result":"{text}"}}"#))),
        ("40 documents of 16 KiB", event("resource.retrieval.returned", &documents)),
        ("form", event("attention.requested", &form)),
    ] {
        let mut parser = Parser::new(Fingerprinter::new());
        let event = parser.parse(text.as_bytes()).expect("a valid event");
        let mut out = Vec::new();
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear();
                let lowered = lower(black_box(&event), Capture::Metadata, &mut out);
                assert_eq!(lowered, Lowered::Rewritten(Capture::Metadata));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, captures);
criterion_main!(benches);
