//! Log lines that are not read: who logs never waits for who reads (contract §1, Shutdown).

use std::io::{PipeReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use crate::support::*;

/// A full pipe, full for as long as its other end is there and not read.
fn full_pipe() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let stdio = Stdio::from(writer.try_clone().unwrap());
    thread::spawn(move || while writer.write_all(&[b'x'; 4096]).is_ok() {});
    (reader, stdio)
}

const SIGTERM: u32 = 15;

/// Whether the process has a handler for the signal.
fn handles(pid: u32, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

/// Waits for the end of a process that no pipe may hold up.
#[track_caller]
fn exit_status(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the process exits", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

fn chatty(options: &mut Options) {
    options.env("AEP_LOG", "debug").unread();
}

/// Makes the relay log until a pipe that nobody reads is full, and the relay's own buffer too.
#[track_caller]
fn log_more_than_fits(relay: &Relay) {
    wait_until("lines are left out", || {
        for _ in 0..100 {
            relay.health();
        }
        relay.metric("log_lines_dropped", "") > 0
    });
}

#[test]
fn a_log_that_nobody_reads_stops_neither_the_cores_nor_the_drain() {
    let mut relay = Relay::start(chatty);
    let mut stream = Sse::open(&relay, "/stream");
    log_more_than_fits(&relay);
    let sent = [event("s", 1).build()];
    relay.publish(&sent);
    stream.expect(&sent);
    relay.signal("TERM");
    assert_eq!(stream.comment(), "shutting-down");
    assert_eq!(stream.next(), None, "a clean end of the body");
    assert_eq!(relay.exit_status().code(), Some(0));
}

#[test]
fn a_second_signal_ends_a_process_whose_log_nobody_reads() {
    let mut relay = Relay::start(|options| {
        chatty(options);
        options.env("AEP_DRAIN_TIME", 600).env("AEP_BODY_TIME", 600);
    });
    let mut upload = Http::connect(&relay);
    upload.send("POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{");
    log_more_than_fits(&relay);
    relay.signal("TERM");
    wait_until("the relay stops listening", || TcpStream::connect(relay.address()).is_err());
    assert!(relay.is_running(), "the upload is waited for");
    relay.signal("TERM");
    assert_eq!(relay.exit_status().code(), Some(1));
}

#[test]
fn what_was_left_out_is_told_once_somebody_reads_and_the_last_lines_come_out() {
    let mut relay = Relay::start(chatty);
    log_more_than_fits(&relay);
    relay.read_stderr();
    wait_until("the gap is told", || relay.stderr().contains(" left out of the log: it was not read fast enough\n"));
    assert_eq!(relay.term().code(), Some(0));
    wait_until("the last line comes", || relay.stderr().ends_with(" INFO aep_relay::server: drained\n"));
}

#[test]
fn a_process_whose_outputs_are_full_pipes_from_the_start_serves_and_ends_as_any_other() {
    let (_stdout, stdout) = full_pipe();
    let (_stderr, stderr) = full_pipe();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Options::default().env("AEP_LOG", "debug").env("AEP_PORT", free.port()).command();
    let mut child = command.stdout(stdout).stderr(stderr).spawn().unwrap();
    wait_until("it listens", || TcpStream::connect(free).is_ok());
    wait_until("it hears signals", || handles(child.id(), SIGTERM));
    let signalled = Command::new("sh").arg("-c").arg(format!("kill -TERM {}", child.id())).status().unwrap();
    assert!(signalled.success());
    assert_eq!(exit_status(&mut child).code(), Some(0));
}

/// Part of the next test: a process of its own, since its stderr is to be a full pipe.
#[test]
#[ignore = "started by the test below it"]
fn panics_with_a_log() {
    aep_relay::ops::log::start("off").unwrap();
    panic!("on purpose");
}

#[test]
fn a_panic_does_not_wait_for_a_pipe_and_is_told_whatever_the_level() {
    let panics = |stderr: Stdio| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "logging::panics_with_a_log", "--ignored", "--test-threads", "1"]);
        command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap()
    };
    let (_stderr, stderr) = full_pipe();
    assert_eq!(exit_status(&mut panics(stderr)).code(), Some(101));
    let output = panics(Stdio::piped()).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("panicked at") && said.contains("on purpose"), "{said}");
}
