//! A machine for any protocol: several cores without sockets, threads or clock, under one seed.
//!
//! It keeps what `protocol/mod.rs` promises, in the worst order that this allows: how much of its input, mail and time
//! a turn meets, when bytes leave and what peers do is drawn from the seed, and one seed is one run, byte for byte. A
//! world, which is its protocol's own, says who asks for what, and holds what comes back against a model. Two small
//! protocols beside the machine hold the machine itself against what is promised.
//!
//! A failing run names its seed; `AEP_SIMULATION_SEED=17 cargo test simulation` runs that one alone.

mod chat;
pub(crate) mod machine;
mod notes;
pub(crate) mod outbox;
pub(crate) mod random;
mod rules;
pub(crate) mod socket;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs every seed twice: what the peers said and were told, in a number, is the same.
fn run_seeds(seeds: u64, run: fn(u64) -> u64) {
    let one = std::env::var("AEP_SIMULATION_SEED").ok().map(|seed| seed.parse().unwrap());
    for seed in one.map_or(0..seeds, |seed: u64| seed..seed + 1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| assert_eq!(run(seed), run(seed), "one seed is one run"))) {
            eprintln!("simulation failed: AEP_SIMULATION_SEED={seed}");
            resume_unwind(panic);
        }
    }
}
