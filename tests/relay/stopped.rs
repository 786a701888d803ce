//! A process that was stopped for longer than its limits (SIGSTOP, a paused container, a swap storm): what came
//! meanwhile lies in the kernel and is read before anybody is judged late (contract §1); who sent nothing is late all
//! the same.

use std::thread;
use std::time::Duration;

use crate::support::*;

/// Longer than every limit that is set here.
const STOP: Duration = Duration::from_millis(1600);

/// A relay all of whose times are a second.
fn relay() -> Relay {
    Relay::start(|options| {
        for name in ["AEP_HEAD_TIME", "AEP_BODY_TIME", "AEP_IDLE_TIME", "AEP_HELLO_TIME"] {
            options.env(name, 1);
        }
    })
}

/// Stops the relay, acts, and lets it go on once every limit is over. What `act` has sent over the loopback is with the
/// kernel when the write returns.
fn while_stopped(relay: &Relay, act: impl FnOnce()) {
    relay.signal("STOP");
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", relay.pid())).unwrap();
    wait_until("the relay is stopped", || state().rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')));
    act();
    thread::sleep(STOP);
    relay.signal("CONT");
}

#[test]
fn what_came_while_it_was_stopped_is_read_before_anybody_is_late() {
    let relay = relay();
    let body = event("s", 1).build();
    let post = request("POST", "/events", &[("Content-Type", "application/json")], body.as_bytes());
    let head_len = post.len() - body.len();

    let mut unready = Ws::connect(&relay);
    let mut kept = Http::connect(&relay);
    kept.expect_alive();
    let mut fresh = Http::connect(&relay);
    let mut half_head = Http::connect(&relay);
    half_head.send(&post[..head_len - 10]);
    let mut half_body = Http::connect(&relay);
    half_body.send(&post[..head_len + 10]);
    // Everything so far is read: the relay has answered who came last.
    Http::connect(&relay).expect_alive();

    while_stopped(&relay, || {
        unready.text(r#"{"type":"hello","versions":["0.1"],"role":"consumer"}"#);
        for http in [&mut kept, &mut fresh] {
            http.send("GET /healthz HTTP/1.1\r\nHost: r\r\n\r\n");
        }
        half_head.send(&post[head_len - 10..]);
        half_body.send(&post[head_len + 10..]);
    });
    assert_eq!(unready.json()["type"], "hello");
    for http in [&mut kept, &mut fresh] {
        assert_eq!(http.response().status, 200);
    }
    for http in [&mut half_head, &mut half_body] {
        http.response().expect(202, r#"{"accepted":1}"#);
    }
}

#[test]
fn who_sent_nothing_is_late_when_it_goes_on() {
    let relay = relay();
    let mut unready = Ws::connect(&relay);
    let mut kept = Http::connect(&relay);
    kept.expect_alive();
    let mut half_head = Http::connect(&relay);
    half_head.send("GET /healthz HT");
    let mut half_body = Http::connect(&relay);
    half_body.send("POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{");
    while_stopped(&relay, || {
        // Not what is waited for, and not enough of it.
        unready.frame(true, opcode::PING, b"?");
        half_head.send("TP");
        half_body.send(" ");
    });
    assert_eq!(unready.recv(), Frame { opcode: opcode::PONG, payload: b"?".to_vec() });
    unready.expect_error("hello-required");
    unready.expect_close(1008);
    kept.expect_end();
    for http in [&mut half_head, &mut half_body] {
        http.response().expect_refusal(408, "timeout");
    }
}

/// More lies there than the relay reads in one turn.
#[test]
fn those_whose_turn_to_be_read_comes_late_are_not_late() {
    const CLIENTS: usize = 120;
    let relay = Relay::start(|options| {
        options.env("AEP_CORES", 1).env("AEP_HEAD_TIME", 1);
    });
    let begin = "GET /healthz HTTP/1.1\r\nHost: r\r\nX: ";
    let rest = format!("{}\r\n\r\n", "x".repeat(60_000));
    let mut clients: Vec<Http> = (0..CLIENTS).map(|_| Http::connect(&relay)).collect();
    for http in &mut clients {
        http.send(begin);
    }
    Http::connect(&relay).expect_alive();
    while_stopped(&relay, || clients.iter_mut().for_each(|http| http.send(&rest)));
    for http in &mut clients {
        assert_eq!(http.response().status, 200);
    }
}
