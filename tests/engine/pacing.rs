//! Pace groups: nobody waits for a connection, or for mail, of another group. And when mail may be sent.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use aep_relay::engine::Outcome;

use crate::harness::{Server, dies_of, start, start_with, wait_until};
use crate::service::Settings;

/// A server, and the settings that its services look at.
fn start_set(cores: usize) -> (Server, Settings) {
    let mut settings = Settings::default();
    let server = start_with(cores, |_, changed| settings = changed.clone());
    (server, settings)
}

fn admits(server: &Server) -> String {
    let mut client = server.client();
    client.send("GET /admits HTTP/1.1\r\nHost: x\r\n\r\n");
    String::from_utf8(client.answer().1).unwrap()
}

#[test]
fn a_slow_reader_of_one_group_changes_nothing_for_publishers_of_another() {
    for cores in [1, 2] {
        let server = start_with(cores, |limits, _| {
            limits.write_queue_bytes_max = 1 << 30;
            limits.backlog_bytes_max = 32 << 20;
            limits.delivery_bytes_max = 256 << 10;
        });
        let mut reader = server.client();
        reader.send("GET /stream?1 HTTP/1.1\r\nHost: x\r\n\r\n");
        reader.read_through(": open\n\n\r\n");
        let filler = "1".repeat(100_000);
        let mut publisher = server.client();
        let mut published = 0;
        wait_until("its own publishers wait", || {
            let seen = admits(&server);
            assert!(seen.starts_with("[Everything, "), "{cores} cores: {seen}");
            let waits = seen.ends_with(", Nothing]");
            if !waits {
                publisher.publish(&filler);
                published += 1;
            }
            waits && server.metrics.sum(|core| core.backlog_bytes.value()) > 24 << 20
        });
        assert_eq!(server.cuts(), 0);
        // It reads on, and all is as before.
        for _ in 0..published {
            assert_eq!(reader.event().map(|event| event.len()), Some(100_000));
        }
        wait_until("nobody waits any more", || admits(&server) == "[Everything, Everything]");
    }
}

#[test]
fn mail_that_is_not_taken_holds_up_no_other_groups_and_no_core_spins() {
    const TURNS: u64 = 300;
    for cores in [1, 2, 4] {
        let (server, settings) = start_set(cores);
        let mut reader = server.stream();
        settings.takes_no_ingest.store(true, Ordering::Relaxed);
        for n in 0..10 {
            server.publish(&format!("0 {n}"));
            server.publish(&format!("1 {n}"));
            assert_eq!(reader.event(), Some(format!("1 {n}")), "{cores} cores");
        }
        let (began, before) = (Instant::now(), server.turns());
        server.wait_until("it looks again", |core| core.turns.value(), |now| now >= before + TURNS);
        // Turns that are a millisecond apart, as far as the kernel's timer is exact.
        assert!(began.elapsed() >= Duration::from_millis(TURNS / 2), "{TURNS} turns in {:?}", began.elapsed());
        settings.takes_no_ingest.store(false, Ordering::Relaxed);
        for n in 0..10 {
            assert_eq!(reader.event(), Some(format!("0 {n}")), "{cores} cores");
        }
    }
}

#[test]
fn a_drain_waits_for_mail_that_was_not_taken() {
    for cores in [1, 2, 4] {
        let (mut server, settings) = start_set(cores);
        let mut reader = server.stream();
        let mut idle = server.client();
        settings.takes_no_ingest.store(true, Ordering::Relaxed);
        server.publish("0 waits");
        server.stop();
        // It is closed early in a drain.
        assert!(idle.read_to_end().is_empty());
        settings.takes_no_ingest.store(false, Ordering::Relaxed);
        assert_eq!(reader.event().as_deref(), Some("0 waits"));
        assert_eq!(reader.chunk().as_deref(), Some(": bye\n\n"));
        drop(reader);
        assert_eq!(server.join(), Outcome::Drained, "{cores} cores");
    }
}

#[test]
fn mail_that_breaks_the_rules_of_its_lane_is_found() {
    dies_of("pacing::mail_without_asking", "mail that sockets cause asks for room first");
    dies_of("pacing::ingest_mail_behind_its_end", "a lane ends behind all mail that is no answer");
    dies_of("pacing::fanout_mail_behind_its_end", "a lane ends behind all mail that is no answer");
}

#[test]
#[ignore = "ends the process; run by the test above"]
fn mail_without_asking() {
    ask("/unasked", false);
}

#[test]
#[ignore = "ends the process; run by the test above"]
fn ingest_mail_behind_its_end() {
    ask("/late/ingest", true);
}

#[test]
#[ignore = "ends the process; run by the test above"]
fn fanout_mail_behind_its_end() {
    ask("/late/fanout", true);
}

fn ask(path: &str, then_stop: bool) {
    let mut server = start(1);
    let mut client = server.client();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_eq!(client.answer().0, 200);
    if then_stop {
        server.stop();
        let _outcome = server.join();
    }
}
