//! What does it cost to keep an event? A session at its capacity (every admission evicts), admissions in and out of
//! order, a replay page, and the arena's churn beneath.

use std::hint::black_box;

use aep_relay::base::segment_pool::{PoolBudget, SegmentClass, SegmentPool};
use aep_relay::relay::buffer::{NewEvent, ReplayCursor, SessionBuffer};
use aep_relay::relay::event::{Outline, Position};
use aep_relay::relay::owner::directory::Directory;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const EVENTS_MAX: usize = 10_000;
const RAW: [u8; 300] = [b'x'; 300];

fn pool() -> SegmentPool {
    SegmentPool::new(PoolBudget::new(1 << 30))
}

/// The `number`th event; out of order if `scatter` asks for it.
fn event(number: u64, scatter: u64) -> NewEvent<'static> {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let seq = number + if scatter == 0 { 0 } else { mixed % scatter };
    let fingerprint = u128::from(mixed) << 64 | u128::from(mixed.swap_bytes());
    NewEvent {
        raw: &RAW,
        position: Some(Position { epoch: 0, seq }),
        fingerprint,
        arrival: number,
        outline: Outline::NONE,
    }
}

fn admit(c: &mut Criterion) {
    let mut group = c.benchmark_group("admit");
    group.throughput(Throughput::Elements(1));
    for (name, scatter) in [("in_order", 0), ("out_of_order", 5000)] {
        group.bench_function(name, |b| {
            let (mut pool, mut buffer, mut number) = (pool(), SessionBuffer::default(), 0);
            b.iter(|| {
                number += 1;
                black_box(buffer.admit(&mut pool, &event(number, scatter), EVENTS_MAX))
            });
        });
    }
    group.bench_function("duplicate", |b| {
        let (mut pool, mut buffer, mut arrival) = (pool(), SessionBuffer::default(), 0);
        b.iter(|| {
            arrival += 1;
            let copy = NewEvent { arrival, ..event(arrival % 1000, 0) };
            black_box(buffer.admit(&mut pool, &copy, EVENTS_MAX))
        });
    });
    group.bench_function("directory_500_sessions", |b| {
        let names: Vec<String> = (0..500).map(|number| format!("session-{number}")).collect();
        let (mut directory, mut number) = (Directory::new(pool(), 1000, 1), 0);
        b.iter(|| {
            number += 1;
            let name = &names[number as usize * 7 % names.len()];
            black_box(directory.write(name, &event(number, 0), number))
        });
    });
    group.finish();
}

fn replay(c: &mut Criterion) {
    let (mut pool, mut buffer) = (pool(), SessionBuffer::default());
    for number in 1..=EVENTS_MAX as u64 {
        buffer.admit(&mut pool, &event(number, 5000), EVENTS_MAX).expect("room for the bench");
    }
    let mut group = c.benchmark_group("replay");
    group.throughput(Throughput::Elements(EVENTS_MAX as u64));
    group.bench_function("pages_of_64_kib", |b| {
        let mut scratch = Vec::new();
        b.iter(|| {
            let (mut cursor, mut bytes) = (ReplayCursor::everything(buffer.marks()), 0);
            loop {
                let end = buffer.page(&pool, cursor, u64::MAX, 64 << 10, &mut scratch, &mut |stored| {
                    bytes += stored.raw.len();
                });
                if end.finished {
                    return black_box(bytes);
                }
                cursor = end.next;
            }
        });
    });
    group.finish();
}

fn churn(c: &mut Criterion) {
    let mut group = c.benchmark_group("pool");
    for class in SegmentClass::ALL {
        group.bench_function(format!("churn_{}_kib", class.bytes() >> 10), |b| {
            let mut pool = pool();
            let mut lent: Vec<_> = (0..100).map(|_| pool.take(class).ok()).collect();
            let mut at = 0;
            b.iter(|| {
                at = (at + 37) % lent.len();
                if let Some(segment) = lent[at].take() {
                    pool.put(segment);
                }
                lent[at] = pool.take(class).ok();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, admit, replay, churn);
criterion_main!(benches);
