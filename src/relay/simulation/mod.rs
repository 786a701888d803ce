//! The relays of several cores under one seed: random publishers, consumers, commands, slow sockets, and mail in every
//! order that FIFO lanes allow; a shadow model says what each consumer must have been told.
//!
//! A failing run names its seed, cores and step; `AEP_SIMULATION_SEED=17 cargo test simulation` runs that one alone.

mod check;
mod client;
mod replay;
mod slices;
mod world;

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use world::World;

use super::{Relay, Shared};
use crate::limits::Limits;
use crate::ops::metrics::Metrics;
use crate::protocol::owners::Owners;
use crate::protocol::simulation::machine::Machine;
use crate::protocol::simulation::random::Random;
use crate::protocol::simulation::socket::Ask;

/// Runs in continuous integration.
const SEEDS: u64 = 300;
const STEPS: usize = 400;

/// Relays that draw nothing but from the seed.
fn relays(cores: usize, limits: &Limits, random: &mut Random) -> Machine<Relay> {
    let mut shared = Shared::new(limits.clone(), cores, true);
    shared.owners = Owners::with_keys(cores, (random.next(), random.next()));
    shared.instance = "5eed".to_owned();
    let (shared, metrics) = (Arc::new(shared), Metrics::new(cores));
    Machine::new(cores, limits, Relay::check_invariants, |core| {
        Relay::new(core, Arc::clone(&shared), metrics.core(usize::from(core.0)))
    })
}

/// A text as a value of a query.
fn query(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        let _infallible = write!(encoded, "%{byte:02X}");
        encoded
    })
}

/// A batch of events.
fn publish(lines: Vec<u8>) -> Ask {
    Ask::with_body("POST /events", "Content-Type: application/x-ndjson\r\n", [lines])
}

/// Answers what the run's peers said and were told, in a number.
fn run(seed: u64) -> u64 {
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
        world.machine.cores.iter().for_each(|core| core.protocol.check_empty());
        let shared = world.shared();
        assert_eq!(shared.judgements.load(std::sync::atomic::Ordering::Relaxed), 0, "judgements left");
        assert_eq!(shared.subscribers.load(std::sync::atomic::Ordering::Relaxed), 0, "subscribers left");
        assert_eq!(shared.parties.load(std::sync::atomic::Ordering::Relaxed), 0, "parties left");
    }));
    if let Err(panic) = outcome {
        let step = world.step;
        eprintln!("simulation failed: AEP_SIMULATION_SEED={seed} ({cores} cores), step {step}, roomy {}", world.roomy);
        resume_unwind(panic);
    }
    world.machine.trace()
}

#[test]
fn consumers_are_told_what_the_contract_promises() {
    match std::env::var("AEP_SIMULATION_SEED") {
        Ok(seed) => _ = run(seed.parse().unwrap()),
        Err(_) => (0..SEEDS).for_each(|seed| _ = run(seed)),
    }
}

/// Else a seed that failed need not fail again.
#[test]
fn one_seed_is_one_run_byte_for_byte() {
    let differ: Vec<u64> = (0..SEEDS / 2).filter(|seed| run(*seed) != run(*seed)).collect();
    assert_eq!(differ, [0_u64; 0]);
}

/// Whatever was taken in before the process ends reaches consumers and gets its answer, commands and what waits for an
/// eviction on another core included.
#[test]
fn a_drain_in_the_midst_of_commands_and_evictions_loses_nothing() {
    // Short runs, of which few come to the point.
    for seed in 0..4 * SEEDS {
        let cores = [1, 2, 4][usize::try_from(seed % 3).unwrap()];
        let mut world = World::crowded(seed, cores);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            world.stir(120);
            if seed.is_multiple_of(2) {
                world.command_out_of_rest();
            }
            world.drain();
            world.check_witness();
        }));
        if let Err(panic) = outcome {
            eprintln!("drain failed: seed {seed} ({cores} cores)");
            resume_unwind(panic);
        }
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

/// What is told of when a connection began is the time of day of that turn, whatever became of the wall clock
/// meanwhile.
#[test]
fn a_connection_began_when_the_wall_clock_of_its_turn_says() {
    let mut machine = relays(1, &Limits::default(), &mut Random(0));
    for (seconds, since) in [(784_111_777, "1994-11-06T08:49:37Z"), (951_782_400, "2000-02-29T00:00:00Z")] {
        machine.cores[0].out.time_of_day = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let at = machine.connect(0, Ask::upgrade("/socket"));
        assert_eq!(machine.cores[0].protocol.parties.get(at.conn).unwrap().since, since);
    }
}

/// What the messages of one connection say of its claims holds, in whichever turn they are read.
#[test]
fn a_claim_that_lapses_and_is_made_again_in_one_turn_stands() {
    for seed in 0..20 {
        let cores = 1 + usize::try_from(seed % 2).unwrap();
        let mut random = Random(seed);
        let limits = Limits { claims_per_connection_max: 1, ..Limits::default() };
        let mut machine = relays(cores, &limits, &mut random);
        let [emitter, sender] = [0, cores - 1].map(|core| machine.connect(core, Ask::upgrade("/socket")));
        let hello = r#"{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":"a"},"capabilities":{"control":{"accepts":["control.cancel"]}}}"#;
        let event = |id: &str, kind: &str, session: &str, seq: &str| {
            format!(
                r#"{{"aep":"0.1","id":"{id}","type":"{kind}","time":"2026-01-01T00:00:00Z","source":"x","agent":"a","session":"{session}"{seq}}}"#
            )
        };
        let mut send = |machine: &mut Machine<Relay>, at, texts: &[String]| {
            let inbox = &mut machine.socket(at).unwrap().inbox;
            inbox.extend(texts.iter().map(|text| text.clone().into_bytes()));
            machine.rest(&mut random);
        };
        let claims = [("1", "s1"), ("2", "s2"), ("3", "s1")]
            .map(|(seq, session)| event(&format!("e{seq}"), "progress.step", session, &format!(r#","seq":{seq}"#)));
        send(&mut machine, emitter, &[hello.into()]);
        send(&mut machine, emitter, &claims);
        let commands = [event("c1", "control.cancel", "s1", ""), event("c2", "control.cancel", "s2", "")];
        send(&mut machine, sender, &[vec![hello.into()], commands.to_vec()].concat());
        let heard = |machine: &mut Machine<Relay>, at| {
            String::from_utf8_lossy(&machine.socket(at).unwrap().received).into_owned()
        };
        assert!(heard(&mut machine, emitter).contains(r#""id":"c1""#), "seed {seed}: s1 is claimed");
        let refused = heard(&mut machine, sender);
        assert!(
            refused.contains(r#""cause":"c2","code":"no-route""#) && !refused.contains(r#""c1""#),
            "seed {seed}: {refused}"
        );
    }
}
