//! A fan-out that costs more than a turn may look at is delivered slice by slice.

use super::{publish, relays};
use crate::limits::Limits;
use crate::protocol::simulation::machine::{At, Machine};
use crate::protocol::simulation::random::Random;
use crate::protocol::simulation::socket::Ask;
use crate::relay::{LOOKS_PER_TURN, Relay};

const EVENTS: usize = 40;
/// So many that one event is more than a turn's worth.
const SUBSCRIPTIONS: usize = 2 * LOOKS_PER_TURN;

const HELLO: &str = r#"{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":"a"}}"#;

fn event(number: usize) -> String {
    let (session, seq) = (number % 3, number / 3);
    format!(
        r#"{{"aep":"0.1","id":"e{number}","type":"progress.step","time":"2026-01-01T00:00:00Z","source":"x","agent":"a","session":"s{session}","seq":{seq}}}"#
    )
}

fn send(machine: &mut Machine<Relay>, at: At, texts: impl IntoIterator<Item = String>) {
    machine.socket(at).unwrap().inbox.extend(texts.into_iter().map(String::into_bytes));
}

/// What has come since it was last asked.
fn heard(machine: &mut Machine<Relay>, at: At) -> String {
    String::from_utf8_lossy(&std::mem::take(&mut machine.socket(at).unwrap().received)).into_owned()
}

/// Numbers of the events in it, in order.
fn events(text: &str) -> Vec<usize> {
    let ids = text.split(r#""id":"e"#).skip(1);
    ids.map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
}

/// Each session's in order; all of them once.
fn assert_all_in_order(received: &[usize]) {
    let mut sorted = received.to_vec();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..EVENTS).collect::<Vec<_>>());
    for session in 0..3 {
        assert!(received.iter().filter(|number| *number % 3 == session).is_sorted(), "{received:?}");
    }
}

#[test]
fn one_connection_with_many_subscriptions_leaves_turns_to_the_others() {
    for (seed, cores) in (0..30).zip([1, 2, 4].into_iter().cycle()) {
        let mut random = Random(seed);
        let mut machine = relays(cores, &Limits::default(), &mut random);
        let [many, one, bystander] = [(); 3].map(|()| machine.connect(0, Ask::upgrade("/socket")));
        for at in [many, one, bystander] {
            send(&mut machine, at, [HELLO.into()]);
        }
        // The same filter over and over, and as many that differ but match everything, too.
        let same = (0..SUBSCRIPTIONS).map(|n| format!(r#"{{"type":"subscribe","id":"{n}","filter":{{}}}}"#));
        let other = (0..SUBSCRIPTIONS)
            .map(|n| format!(r#"{{"type":"subscribe","id":"o{n}","filter":{{"epoch":[0,{}]}}}}"#, n + 1));
        send(&mut machine, many, same.chain(other));
        send(&mut machine, one, [r#"{"type":"subscribe","id":"a"}"#.into()]);
        machine.rest(&mut random);
        let _hellos = (heard(&mut machine, many), heard(&mut machine, one), heard(&mut machine, bystander));

        let body = (0..EVENTS).map(event).collect::<Vec<_>>().join("\n").into_bytes();
        let publisher = machine.connect(cores - 1, publish(body));

        let (mut to_many, mut to_one) = (Vec::new(), Vec::new());
        while to_one.len() < EVENTS {
            send(&mut machine, bystander, [r#"{"type":"ping","t":1}"#.into()]);
            for core in 0..cores {
                machine.turn(core, &mut random);
            }
            let new = events(&heard(&mut machine, one));
            // With the mail, and in each of at most two goes of the turn.
            assert!(new.len() <= 3, "seed {seed}, {cores} cores: {} events in one turn", new.len());
            to_one.extend(new);
            to_many.extend(events(&heard(&mut machine, many)));
        }
        machine.rest(&mut random);
        to_many.extend(events(&heard(&mut machine, many)));
        assert_all_in_order(&to_one);
        assert_all_in_order(&to_many);
        assert!(machine.socket(publisher).unwrap().answers.front().is_some_and(|response| response.status == 202));
        assert!(heard(&mut machine, bystander).contains("pong"));
        machine.cores.iter().for_each(|core| assert!(core.protocol.is_quiescent()));
    }
}
