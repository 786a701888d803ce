//! The load generator against servers that keep their word, that do not, and that are not there: figures, exit status
//! and the words of its errors. Built with the generator: `cargo test --features load --test aep_load`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

use serde_json::Value;

use support::*;

fn aep_load(arguments: &[&str], address: SocketAddr, kind: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aep-load"));
    command.args(arguments).args(["--target", &format!("http://{address}"), kind, "--json"]);
    if !arguments.contains(&"--patience") {
        // A busy machine is no fault of the server.
        command.args(["--patience", "20s"]);
    }
    command.env_remove("AEP_TOKEN");
    command
}

/// Runs it; its status, figures and stderr.
fn run(command: &mut Command) -> (Option<i32>, Value, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let report: Value = serde_json::from_slice(&stdout).unwrap_or_default();
    (status.code(), report, String::from_utf8(stderr).unwrap())
}

fn sound(arguments: &[&str], relay: &Relay) -> Value {
    let (status, report, stderr) = run(&mut aep_load(arguments, relay.address(), "aep"));
    assert_eq!(status, Some(0), "{arguments:?}: {stderr}{report:#}");
    assert_eq!(report["sound"], true);
    report["figures"].clone()
}

#[test]
fn every_scenario_finds_the_relay_sound() {
    let relay = Relay::plain();
    let pid = relay.pid().to_string();
    let fanout =
        ["fanout", "--consumers", "10", "--binding", "mix", "--publishers", "3", "--events", "300", "--batch", "7"];
    let figures = sound(&[&fanout[..], &["--pid", &pid]].concat(), &relay);
    assert_eq!(
        (&figures["published"], &figures["delivered"], &figures["lost"]),
        (&300.into(), &3000.into(), &0.into())
    );
    assert!(figures["server_cpu_us_per_delivery"].as_f64().unwrap() > 0.0, "{figures:#}");
    assert!(figures["latency_p99_us"].as_f64().unwrap() > 0.0, "{figures:#}");

    let figures = sound(&["fanout", "--consumers", "6", "--filter", "2", "--events", "60", "--window", "1"], &relay);
    assert_eq!((&figures["published"], &figures["delivered"]), (&60.into(), &60.into()));

    let figures = sound(&["fanout", "--consumers", "2", "--publish", "ws", "--events", "50", "--rate", "2000"], &relay);
    assert_eq!(figures["delivered"], 100);

    let figures = sound(&["ingest", "--events", "500", "--batch", "100"], &relay);
    assert_eq!(figures["published"], 500);

    let figures = sound(&["connect", "--consumers", "20", "--binding", "mix", "--hold", "1ms"], &relay);
    assert_eq!(figures["opened"], 20);

    let cutting = ["resume", "--consumers", "4", "--binding", "mix", "--preload", "50", "--cut-every", "20"];
    let figures = sound(&[&cutting[..], &["--events", "200", "--window", "20"]].concat(), &relay);
    assert_eq!((&figures["replayed"], &figures["delivered"]), (&200.into(), &1000.into()));
    assert!(figures["cuts_and_resumes"].as_u64().unwrap() >= 4 * 5, "{figures:#}");

    let figures = sound(&["slow", "--consumers", "10", "--stalled", "0.2", "--events", "100"], &relay);
    assert_eq!((&figures["stalled"], &figures["delivered"]), (&2.into(), &800.into()));

    let figures = sound(&["idle-match", "--subscriptions", "50", "--per-connection", "20", "--events", "100"], &relay);
    assert_eq!((&figures["delivered"], &figures["damaged"]), (&0.into(), &0.into()));
}

#[test]
fn the_report_is_one_page() {
    let relay = Relay::plain();
    let path = std::env::temp_dir().join(format!("aep-load-{}.html", std::process::id()));
    sound(&["fanout", "--consumers", "2", "--events", "20", "--report", path.to_str().unwrap()], &relay);
    let page = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(page.contains("<svg") && page.contains("sound: nothing lost"), "{page}");
}

#[test]
fn a_server_that_is_absent_or_refuses_is_said_so() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (status, _, stderr) = run(&mut aep_load(&["fanout"], gone, "aep"));
    assert_eq!(status, Some(2));
    assert!(stderr.contains("nothing listens on"), "{stderr}");

    let relay = Relay::start(|options| {
        options.token("secret").env("AEP_MAX_CONNECTIONS", 5);
    });
    let (status, _, stderr) = run(&mut aep_load(&["fanout"], relay.address(), "aep"));
    assert_eq!(status, Some(2));
    assert!(stderr.contains("401") && stderr.contains("AEP_TOKEN"), "{stderr}");

    let too_many = ["fanout", "--consumers", "30", "--events", "1"];
    let (status, _, stderr) = run(aep_load(&too_many, relay.address(), "aep").env("AEP_TOKEN", "secret"));
    assert_eq!(status, Some(2));
    assert!(stderr.contains("503"), "{stderr}");
}

#[test]
fn a_server_that_loses_events_is_faulty() {
    let server = forgetful_server();
    let arguments = ["fanout", "--consumers", "2", "--events", "5", "--patience", "100ms"];
    let (status, report, stderr) = run(&mut aep_load(&arguments, server, "bare"));
    assert_eq!(status, Some(1), "{stderr}{report:#}");
    assert_eq!((&report["sound"], &report["figures"]["lost"]), (&false.into(), &10.into()));
}

/// Accepts every event and delivers none.
fn forgetful_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || forget(stream.unwrap()));
        }
    });
    address
}

fn forget(mut stream: TcpStream) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            lines.push(line);
        }
        let length = lines.iter().find_map(|line| line.strip_prefix("Content-Length: ")?.trim().parse().ok());
        input.read_exact(&mut vec![0; length.unwrap_or(0)]).unwrap();
        let answer = if lines[0].starts_with("GET /stream") {
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: open\n\n"
        } else {
            "HTTP/1.1 202 Accepted\r\nContent-Length: 11\r\n\r\n{\"ok\":true}"
        };
        let answer = if lines[0].starts_with("GET /healthz") { answer.replace("202", "200") } else { answer.into() };
        stream.write_all(answer.as_bytes()).unwrap();
        if lines[0].starts_with("GET /healthz") {
            return;
        }
    }
}
