//! Mail from threads that are no cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use aep_relay::engine::service::{Admits, CoreId, Group};
use aep_relay::engine::{Outcome, Poster, spawn};
use aep_relay::limits::Limits;
use aep_relay::ops::metrics::Metrics;

use crate::harness::{Client, Server, bind, dies_of, run, wait_until};
use crate::service::{Demo, Letter, NUMBERED_BYTES, Numbered, Settings};

const LETTERS: usize = 100_000;

fn start(cores: usize, limits: Limits) -> (Server, Settings, Poster<Letter>) {
    let (settings, metrics) = (Settings::default(), Metrics::new(cores));
    let bound = bind(cores, limits, &metrics);
    let poster = bound.poster();
    (run(bound, &metrics, |_| Demo::new(settings.clone())), settings, poster)
}

fn letter(ingest: bool, number: usize) -> Letter {
    Letter::Numbered(Numbered { ingest, number })
}

#[test]
fn letters_of_another_thread_arrive_in_order_and_wait_where_there_is_no_room() {
    for cores in [1, 2, 4] {
        let (_server, settings, poster) = start(cores, Limits::default());
        let room = Limits::default().stage_bytes();
        settings.takes_no_ingest.store(true, Ordering::Relaxed);
        let (waits, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let sender = {
            let (waits, sent) = (Arc::clone(&waits), Arc::clone(&sent));
            spawn("sender", move || {
                // Half of them by a clone: the order is the thread's.
                let posters = [poster.clone(), poster];
                for number in 0..LETTERS {
                    let poster = &posters[number % 2];
                    let to = CoreId((number % cores) as u16);
                    poster.send_fanout(to, letter(false, number));
                    while poster.ingest_room(to, Group(0)) == Admits::Nothing {
                        waits.store(true, Ordering::Relaxed);
                        thread::yield_now();
                    }
                    poster.send_ingest(to, letter(true, number));
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            })
            .unwrap()
        };
        wait_until("there is no room", || waits.load(Ordering::Relaxed));
        let held = sent.load(Ordering::Relaxed);
        assert!(
            held < LETTERS && held * NUMBERED_BYTES <= cores * (room + NUMBERED_BYTES),
            "{held} letters, {room} bytes"
        );
        let count = || settings.numbered.lock().unwrap().len();
        wait_until("the fan-out has come, whatever waits in the other lane", || count() >= held);
        assert!(settings.numbered.lock().unwrap().iter().all(|(_, letter)| !letter.ingest));
        settings.takes_no_ingest.store(false, Ordering::Relaxed);
        sender.join().unwrap();
        wait_until("all have come", || count() == 2 * LETTERS);
        let arrived = settings.numbered.lock().unwrap();
        for core in 0..cores {
            for ingest in [false, true] {
                let of_lane =
                    arrived.iter().filter(|(at, letter)| usize::from(at.0) == core && letter.ingest == ingest);
                let numbers: Vec<usize> = of_lane.map(|(_, letter)| letter.number).collect();
                assert!(numbers.into_iter().eq((core..LETTERS).step_by(cores)), "core {core} of {cores}, {ingest}");
            }
        }
    }
}

#[test]
fn a_letter_wakes_an_idle_core() {
    let (server, settings, poster) = start(2, Limits::default());
    let before = server.turns();
    for number in 0..200 {
        let (ingest, to) = (number % 2 == 0, CoreId((number / 2 % 2) as u16));
        if ingest {
            poster.send_ingest(to, letter(ingest, number));
        } else {
            poster.send_fanout(to, letter(ingest, number));
        }
        // Nothing else would wake it: there is no connection, and no deadline.
        wait_until("the letter has come", || settings.numbered.lock().unwrap().len() == number + 1);
    }
    // One for what woke it, and perhaps one before it sleeps.
    assert!(server.turns() - before <= 2 * 200 + 4, "{} turns", server.turns() - before);
}

#[test]
fn what_is_sent_before_the_start_waits_for_it_and_so_do_clients() {
    let (settings, metrics) = (Settings::default(), Metrics::new(2));
    let bound = bind(2, Limits::default(), &metrics);
    let poster = bound.poster();
    let mut client = Client::to(bound.address());
    client.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    spawn("sender", move || {
        for number in 0..10 {
            poster.send_ingest(CoreId(1), letter(true, number));
        }
    })
    .unwrap()
    .join()
    .unwrap();
    assert!(!client.has_answer_within(Duration::from_millis(50)), "nobody serves it yet");
    let _server = run(bound, &metrics, |_| {
        assert_eq!(metrics.sum(|core| core.accepted.value()), 0);
        Demo::new(settings.clone())
    });
    assert_eq!(client.answer(), (200, b"now".to_vec()));
    wait_until("the letters have come", || settings.numbered.lock().unwrap().len() == 10);
}

#[test]
fn to_a_core_that_has_ended_nothing_is_sent() {
    let (mut server, _, poster) = start(1, Limits::default());
    server.stop();
    assert_eq!(server.join(), Outcome::Drained);
    for number in 0..LETTERS {
        poster.send_ingest(CoreId(0), letter(true, number));
        poster.send_fanout(CoreId(0), letter(false, number));
        poster.send_ingest(CoreId(7), letter(true, number));
    }
    assert_eq!(poster.ingest_room(CoreId(0), Group(0)), Admits::Everything, "what was dropped takes no room");
    assert_eq!(poster.ingest_room(CoreId(7), Group(0)), Admits::Nothing, "there is no such core");
}

#[test]
fn who_waits_for_room_of_a_core_waits_no_longer_than_it_lives() {
    let (mut server, settings, poster) =
        start(1, Limits { drain_time: Duration::from_millis(100), ..Limits::default() });
    settings.takes_no_ingest.store(true, Ordering::Relaxed);
    let mut number = 0;
    while poster.ingest_room(CoreId(0), Group(0)) != Admits::Nothing {
        poster.send_ingest(CoreId(0), letter(true, number));
        number += 1;
    }
    server.stop();
    assert_eq!(server.join(), Outcome::TimedOut, "what is not taken is never done with");
    assert_ne!(poster.ingest_room(CoreId(0), Group(0)), Admits::Nothing);
}

#[test]
fn who_panics_on_such_a_thread_takes_the_process_with_it() {
    dies_of("posts::a_thread_that_panics", "it is over");
}

#[test]
#[ignore = "ends the process; run by the test above"]
fn a_thread_that_panics() {
    let thread = spawn("panics", || panic!("it is over")).unwrap();
    let _joined = thread.join();
}
