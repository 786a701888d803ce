//! What does admission cost beside the fastest JSON parser there is?
//!
//! For events of about 300 bytes, 2 KiB and 16 KiB, each time over the same lines with all buffers reused:
//! - `tape`: bare `simd-json` tape, strings unescaped in a scratch copy, nothing looked at (the yardstick);
//! - `tape_spans`: the same tape as a fast path would use it: members of the envelope found and checked for repetition,
//!   their spans recovered, nesting bounded;
//! - `scan`: our strict scanner alone, with the outermost members' spans;
//! - `parse`: the whole admission path, every rule and the fingerprint included;
//! - `admit`: that, and the copy into a batch.
//!
//! `cargo bench --bench admission`. Each line's `thrpt` says events a second first, then bytes a second; a time is for
//! 256 events. Compare figures of one size with each other, never with another run.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may stop at what cannot happen")]

use std::hint::black_box;

use aep_relay::relay::event::Batch;
use aep_relay::relay::event::{Fingerprinter, Parser};
use aep_relay::wire::json;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use simd_json::{Buffers, INPUT_PADDING, Node, Tape};

const LINES: u64 = 256;

/// Tool events with a payload grown to about `bytes`: prose, code with escapes, paths, numbers, nested objects.
fn lines(bytes: usize) -> Vec<Vec<u8>> {
    (0..LINES)
        .map(|seq| {
            let mut line = format!(
                "{{\"aep\":\"0.1\",\"id\":\"01JX9YB4RQ{seq:016}\",\"type\":\"tool.completed\",\
                 \"time\":\"2026-07-03T10:15:{:02}.{:03}Z\",\
                 \"source\":\"aep://host-a/agent/coder/session/s_8f2c\",\"agent\":\"coder\",\"session\":\"s_8f2c\",\
                 \"run\":\"r_0042\",\"seq\":{seq},\"severity\":\"info\",\"capture\":\"full\",\
                 \"data\":{{\"tool\":{{\"name\":\"Bash\"}},\"duration_ms\":{}",
                seq % 60,
                seq % 1000,
                seq * 37,
            );
            for item in 0.. {
                if line.len() + 2 >= bytes {
                    break;
                }
                line += &format!(
                    ",\"part{item}\":{{\"path\":\"src/relay/module_{item}.rs\",\"line\":{},\"ratio\":0.{item}1,\"ok\":true,\
                     \"text\":\"fn part_{item}() -> Result<(), Error> {{\\n    call(\\\"x\\\")?;\\n}}\",\
                     \"note\":\"The part was read, changed in one place and written back without further findings.\"}}",
                    item * 13,
                );
            }
            line += "}}";
            line.into_bytes()
        })
        .collect()
}

/// The line in `scratch`, with the padding the tape wants behind it.
fn pad(line: &[u8], scratch: &mut Vec<u8>) {
    scratch.clear();
    scratch.extend_from_slice(line);
    scratch.resize(line.len() + INPUT_PADDING, 0);
}

/// What a tape-based admission would have to find out before any rule: members once each, spans, depth.
fn spans(tape: &[Node<'_>], base: usize, found: &mut Vec<(usize, usize)>) -> Option<usize> {
    let Some(Node::Object { len, .. }) = tape.first() else { return None };
    let mut at = 1;
    for _ in 0..*len {
        let Node::String(name) = tape.get(at)? else { return None };
        let (count, span) = match tape.get(at + 1)? {
            Node::String(text) => (1, (text.as_ptr() as usize - base, text.len())),
            Node::Object { count, .. } | Node::Array { count, .. } => (count + 1, (0, 0)),
            Node::Static(_) => (1, (0, 0)),
        };
        let name = (name.as_ptr() as usize - base, name.len());
        if found.iter().step_by(2).any(|seen| *seen == name) {
            return None;
        }
        found.push(name);
        found.push(span);
        at += 1 + count;
    }
    let mut ends = [0_usize; 128];
    let mut depth = 0;
    let mut deepest = 0;
    for (at, node) in tape.iter().enumerate() {
        while depth > 0 && ends[depth - 1] <= at {
            depth -= 1;
        }
        if let Node::Object { count, .. } | Node::Array { count, .. } = node {
            *ends.get_mut(depth)? = at + count + 1;
            depth += 1;
            deepest = deepest.max(depth);
        }
    }
    Some(deepest)
}

fn admission(criterion: &mut Criterion) {
    for bytes in [300, 2 << 10, 16 << 10] {
        let lines = lines(bytes);
        let total: usize = lines.iter().map(Vec::len).sum();
        let label = total / lines.len();
        let mut group = criterion.benchmark_group("admission");
        group.throughput(Throughput::ElementsAndBytes { elements: LINES, bytes: total as u64 });

        let mut buffers = Buffers::new(bytes);
        let mut scratch = Vec::new();
        let mut tape = Tape::null();
        group.bench_function(BenchmarkId::new("tape", label), |bencher| {
            bencher.iter(|| {
                for line in &lines {
                    pad(line, &mut scratch);
                    let mut filled = std::mem::replace(&mut tape, Tape::null()).reset();
                    simd_json::fill_tape_padded(&mut scratch, line.len(), &mut buffers, &mut filled).unwrap();
                    black_box(&filled);
                    tape = filled.reset();
                }
            });
        });

        let mut found = Vec::new();
        group.bench_function(BenchmarkId::new("tape_spans", label), |bencher| {
            bencher.iter(|| {
                for line in &lines {
                    pad(line, &mut scratch);
                    let base = scratch.as_ptr() as usize;
                    let mut filled = std::mem::replace(&mut tape, Tape::null()).reset();
                    simd_json::fill_tape_padded(&mut scratch, line.len(), &mut buffers, &mut filled).unwrap();
                    found.clear();
                    black_box(spans(&filled.0, base, &mut found).unwrap());
                    black_box(&found);
                    tape = filled.reset();
                }
            });
        });

        let mut members = Vec::new();
        group.bench_function(BenchmarkId::new("scan", label), |bencher| {
            bencher.iter(|| {
                for line in &lines {
                    members.clear();
                    black_box(json::scan_members(line, |member| members.push(member)).unwrap());
                    black_box(&members);
                }
            });
        });

        let mut parser = Parser::new(Fingerprinter::new());
        group.bench_function(BenchmarkId::new("parse", label), |bencher| {
            bencher.iter(|| {
                for line in &lines {
                    black_box(parser.parse(line).unwrap());
                }
            });
        });

        let mut batch = Batch::default();
        group.bench_function(BenchmarkId::new("admit", label), |bencher| {
            bencher.iter(|| {
                batch.clear();
                for line in &lines {
                    batch.push(parser.parse(line).unwrap());
                }
                black_box(&batch);
            });
        });
        group.finish();
    }
}

criterion_group!(benches, admission);
criterion_main!(benches);
