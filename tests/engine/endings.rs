//! What a service hears of the end of its connections, and when.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aep_relay::engine::Outcome;
use aep_relay::limits::{CLOSE_TIME, Limits};

use crate::harness::{Server, start_with, wait_until};
use crate::service::{End, Settings, Told};

type Log = Arc<Mutex<Vec<Told>>>;

fn start_logged(cores: usize, change: impl FnOnce(&mut Limits, &mut Settings)) -> (Server, Log) {
    let mut log = Log::default();
    let server = start_with(cores, |limits, settings| {
        change(limits, settings);
        log = Arc::clone(&settings.told);
    });
    (server, log)
}

fn ends(log: &Log) -> Vec<End> {
    log.lock().unwrap().iter().map(|told| told.end).collect()
}

#[test]
fn a_close_frame_is_told_in_its_turn_though_the_socket_takes_nothing() {
    let (server, log) = start_logged(1, |limits, _| {
        limits.write_queue_bytes_max = 1 << 30;
        limits.backlog_bytes_max = 1 << 30;
        limits.delivery_bytes_max = 256 << 10;
    });
    let mut stalled = server.websocket();
    let mut publisher = server.client();
    let filler = "x".repeat(100_000);
    while server.metrics.sum(|core| core.backlog_bytes.value()) < 1 << 20 {
        publisher.publish(&filler);
    }
    assert_eq!(ends(&log), []);
    stalled.send_frame(0x88, b"\x03\xe8");
    wait_until("the peer is given up", || log.lock().unwrap().len() == 2);
    let log = log.lock().unwrap().clone();
    let [closing, gone] = log.as_slice() else { panic!("{log:?}") };
    assert_eq!((closing.end, gone.end), (End::Closing, End::Gone));
    // Its time began in the turn that read its frame.
    assert!(closing.at.after(CLOSE_TIME).is_due(gone.at), "{log:?}");
}

#[test]
fn a_body_that_is_refused_is_told_before_its_answer_leaves() {
    let (server, log) = start_logged(1, |limits, settings| {
        settings.body_bytes_max = 1000;
        limits.body_time = Duration::from_millis(200);
    });
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, status) in [(format!("7d0\r\n{}", "x".repeat(1001)), 413), ("5\r\nhe".to_owned(), 408)] {
        let mut client = server.client();
        client.send(head);
        client.send(body);
        assert_eq!(client.answer().0, status);
        assert_eq!(ends(&log).first(), Some(&End::Closing), "{status}");
        drop(client);
        wait_until("the connection is over", || ends(&log).len() == 2);
        assert_eq!(ends(&log), [End::Closing, End::Gone], "{status}");
        log.lock().unwrap().clear();
    }
}

#[test]
fn every_connection_that_asked_is_told_of_twice_and_no_request_for_itself() {
    for cores in [1, 2, 4] {
        let (mut server, log) = start_logged(cores, |_, settings| settings.body_bytes_max = 1000);
        let mut kept = server.client();
        for _ in 0..3 {
            kept.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(kept.answer().0, 200);
        }
        assert_eq!(ends(&log), [], "a connection that is kept has no end");
        let silent = server.client();
        let mut once = server.client();
        once.send("GET /now HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert_eq!(once.answer().0, 200);
        let mut faulty = server.websocket();
        faulty.send_frame(0x83, b"x");
        assert_eq!(faulty.frame().0, 0x88);
        let mut asking = server.websocket();
        asking.send_frame(0x81, b"close");
        assert_eq!(asking.frame().0, 0x88);
        let leaving = [server.stream(), server.websocket()];
        drop(leaving);
        let mut staying = [server.stream(), server.websocket()];
        server.stop();
        for client in &mut staying {
            assert!(!client.read_to_end().is_empty(), "said goodbye to");
        }
        drop((kept, silent, once, faulty, asking, staying));
        assert_eq!(server.join(), Outcome::Drained);
        let mut by_connection: HashMap<_, Vec<End>> = HashMap::new();
        for told in log.lock().unwrap().iter() {
            by_connection.entry((told.core, told.conn)).or_default().push(told.end);
        }
        assert_eq!(by_connection.len(), 8, "{cores} cores");
        assert!(by_connection.values().all(|ends| *ends == [End::Closing, End::Gone]), "{by_connection:?}");
    }
}
