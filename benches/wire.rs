//! What do the codecs cost, beside the least that could be done?
//!
//! - `sse`, `websocket`: one event framed, as fan-out does it once per class; `copy` (the bytes alone) is the
//!   yardstick.
//! - `unmask`: what every WebSocket message from a client pays; `byte by byte` is the definition, kept from becoming
//!   vectors.
//! - `head`: a request head with every rule of `wire/http1`; bare `httparse` on the same bytes is the yardstick.
//!
//! Run with `cargo bench --bench wire`; compare figures of one group with each other, never with another run.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may stop at what cannot happen")]

use std::hint::black_box;

use aep_relay::limits::Limits;
use aep_relay::wire::Decoded;
use aep_relay::wire::http1::StreamFraming;
use aep_relay::wire::http1::head::{HeadLimits, decode_head};
use aep_relay::wire::sse::{self, EventId};
use aep_relay::wire::websocket::{frame, mask};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const SIZES: [usize; 3] = [64, 300, 16 << 10];

fn framing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("framing");
    let id = Some(EventId { text: "s_8f2c", numbers: &[0, 123_456] });
    for bytes in SIZES {
        let data = vec![b'x'; bytes];
        let mut out = Vec::with_capacity(bytes + 128);
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("copy", bytes), |b| {
            b.iter(|| {
                out.clear();
                out.extend_from_slice(black_box(&data));
                black_box(out.last());
            });
        });
        group.bench_function(BenchmarkId::new("sse", bytes), |b| {
            b.iter(|| {
                out.clear();
                sse::encode_event(&mut out, StreamFraming::Chunked, black_box(id), "tool.completed", black_box(&data));
                black_box(out.last());
            });
        });
        group.bench_function(BenchmarkId::new("websocket", bytes), |b| {
            b.iter(|| {
                out.clear();
                frame::encode_text(&mut out, black_box(&data));
                black_box(out.last());
            });
        });
    }
    group.finish();
}

fn unmasking(criterion: &mut Criterion) {
    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    let mut group = criterion.benchmark_group("unmask");
    for bytes in SIZES {
        let mut payload = vec![b'x'; bytes];
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("relay", bytes), |b| {
            b.iter(|| mask::unmask(black_box(&mut payload), black_box(MASK), 0));
        });
        group.bench_function(BenchmarkId::new("byte by byte", bytes), |b| {
            b.iter(|| {
                for (at, byte) in black_box(&mut payload).iter_mut().enumerate() {
                    *byte ^= MASK[black_box(at) % 4];
                }
            });
        });
    }
    group.finish();
}

/// What a browser sends to open an event stream.
const BROWSER: &[u8] = b"GET /stream?from=all&filter=%7B%22session%22%3A%22s_8f2c%22%7D HTTP/1.1\r\n\
    Host: 127.0.0.1:8787\r\nConnection: keep-alive\r\nsec-ch-ua-platform: \"Linux\"\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36\r\n\
    Accept: text/event-stream\r\nsec-ch-ua: \"Chromium\";v=\"138\", \"Not)A;Brand\";v=\"8\"\r\nsec-ch-ua-mobile: ?0\r\n\
    Origin: http://localhost:3000\r\nSec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\n\
    Referer: http://localhost:3000/\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.9\r\n\r\n";

/// What an agent's HTTP client sends to publish.
const PUBLISHER: &[u8] = b"POST /events HTTP/1.1\r\nHost: 127.0.0.1:8787\r\nContent-Type: application/json\r\n\
    Authorization: Bearer 0123456789abcdef0123456789abcdef\r\nContent-Length: 300\r\n\r\n";

fn heads(criterion: &mut Criterion) {
    let limits = HeadLimits::from(&Limits::default());
    let mut group = criterion.benchmark_group("head");
    for (name, bytes) in [("publisher", PUBLISHER), ("browser", BROWSER)] {
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("relay", name), |b| {
            b.iter(|| {
                let decoded = decode_head(black_box(bytes), &limits);
                assert!(matches!(decoded, Decoded::Done { consumed, .. } if consumed == bytes.len()));
            });
        });
        group.bench_function(BenchmarkId::new("httparse", name), |b| {
            b.iter(|| {
                let mut headers = [httparse::EMPTY_HEADER; 32];
                let status = httparse::Request::new(&mut headers).parse(black_box(bytes)).unwrap();
                assert_eq!(status, httparse::Status::Complete(bytes.len()));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, framing, unmasking, heads);
criterion_main!(benches);
