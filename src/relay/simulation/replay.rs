//! A replay before a socket that takes nothing.

use super::{publish, relays};
use crate::limits::Limits;
use crate::protocol::simulation::machine::{At, Machine};
use crate::protocol::simulation::random::Random;
use crate::protocol::simulation::socket::Ask;
use crate::relay::Relay;

/// Several pages of them.
const EVENTS: usize = 200;

fn send(machine: &mut Machine<Relay>, at: At, text: &str) {
    machine.socket(at).unwrap().inbox.push_back(text.into());
}

fn publish_events(machine: &mut Machine<Relay>, core: usize) {
    let event = |seq| {
        format!(
            r#"{{"aep":"0.1","id":"e{seq}","type":"progress.step","time":"2026-01-01T00:00:00Z","source":"x","agent":"a","session":"s","seq":{seq}}}"#
        )
    };
    machine.connect(core, publish((0..EVENTS).map(event).collect::<Vec<_>>().join("\n").into_bytes()));
}

#[test]
fn a_replay_waits_for_its_socket_whatever_else_its_client_asks() {
    for (seed, cores) in (0..30).zip([1, 2, 4].into_iter().cycle()) {
        let mut random = Random(seed);
        let mut machine = relays(cores, &Limits::default(), &mut random);
        publish_events(&mut machine, cores - 1);
        let at = machine.connect(0, Ask::upgrade("/socket"));
        send(&mut machine, at, r#"{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":"b"}}"#);
        machine.rest(&mut random);

        machine.socket(at).unwrap().window = 0;
        send(&mut machine, at, r#"{"type":"subscribe","id":"first","from":"all"}"#);
        let mut turns = |machine: &mut Machine<Relay>| {
            for core in (0..cores).cycle().take(20 * cores) {
                machine.turn(core, &mut random);
            }
            machine.socket(at).unwrap().queued
        };
        let page = turns(&mut machine);
        let rounds = 10;
        for _ in 0..rounds {
            send(&mut machine, at, r#"{"type":"subscribe","id":"other","filter":{"session":"none"}}"#);
            send(&mut machine, at, r#"{"type":"unsubscribe","id":"other"}"#);
            turns(&mut machine);
        }
        let answers = r#"{"type":"subscribed","id":"other"}{"type":"unsubscribed","id":"other"}"#.len() + 2 * 2;
        assert_eq!(turns(&mut machine), page + rounds * answers, "seed {seed}, {cores} cores");

        machine.rest(&mut random);
        let received = String::from_utf8_lossy(&machine.socket(at).unwrap().received).into_owned();
        let ids = received.split(r#""id":"e"#).skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap());
        assert_eq!(ids.collect::<Vec<usize>>(), (0..EVENTS).collect::<Vec<_>>(), "seed {seed}, {cores} cores");
    }
}
