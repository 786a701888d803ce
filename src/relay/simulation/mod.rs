//! The relays of several cores under one seed: random publishers, consumers, commands, slow sockets, and mail in every
//! order that FIFO lanes allow; a shadow model says what each consumer must have been told.
//!
//! A failing run names its seed, cores and step; `AEP_SIMULATION_SEED=17 cargo test simulation` runs that one alone.

mod check;
mod client;
mod machine;
mod outbox;
mod random;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use random::Random;
use world::World;

/// Runs in continuous integration.
const SEEDS: u64 = 300;
const STEPS: usize = 400;

fn run(seed: u64) {
    let cores = [1, 2, 4][usize::try_from(seed % 3).unwrap()];
    let mut world = World::new(seed, cores);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        world.run(STEPS);
        if seed.is_multiple_of(7) {
            return world.say_goodbye();
        }
        world.rest();
        world.check();
        world.part_from_all();
        world.machine.cores.iter().for_each(|core| core.relay.check_empty());
        let shared = &world.machine.shared;
        assert_eq!(shared.judgements.load(std::sync::atomic::Ordering::Relaxed), 0, "judgements left");
        assert_eq!(shared.subscribers.load(std::sync::atomic::Ordering::Relaxed), 0, "subscribers left");
        assert_eq!(shared.parties.load(std::sync::atomic::Ordering::Relaxed), 0, "parties left");
    }));
    if let Err(panic) = outcome {
        let step = world.step;
        eprintln!("simulation failed: AEP_SIMULATION_SEED={seed} ({cores} cores), step {step}, roomy {}", world.roomy);
        resume_unwind(panic);
    }
}

#[test]
fn consumers_are_told_what_the_contract_promises() {
    match std::env::var("AEP_SIMULATION_SEED") {
        Ok(seed) => run(seed.parse().unwrap()),
        Err(_) => (0..SEEDS).for_each(run),
    }
}

/// Publishing one event after the other, the sessions held are those written last, whichever core they live on.
#[test]
fn the_session_cap_evicts_exactly_the_least_recently_written() {
    for (seed, cores) in (0..40).zip([1, 2, 4, 4].into_iter().cycle()) {
        let max = 4;
        let mut world = World::capped(seed, cores, max);
        let mut written: Vec<usize> = Vec::new();
        let mut random = Random(seed);
        for _ in 0..60 {
            let session = random.index(world.sessions.len());
            world.post_one(session);
            world.rest();
            written.retain(|other| *other != session);
            written.push(session);
            let expected = written.len().saturating_sub(max);
            let mut held: Vec<usize> = world.held().iter().filter_map(|event| world.sent[*event].session).collect();
            held.sort_unstable();
            held.dedup();
            let mut newest = written[expected..].to_vec();
            newest.sort_unstable();
            assert_eq!(held, newest, "seed {seed}, {cores} cores");
        }
    }
}
