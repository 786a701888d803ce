//! The load generator against servers that keep their word, that do not, and that are not there: figures, exit status
//! and the words of its errors. Built with the generator: `cargo test --features load --test aep_load`.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "aep_load/proxy.rs"]
mod proxy;
#[allow(dead_code, unreachable_pub, unused_imports, reason = "this suite uses a part of it")]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use serde_json::Value;

use proxy::Fault;
use support::*;

fn aep_load(arguments: &[&str], address: SocketAddr, kind: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aep-load"));
    command.args(arguments).args(["--target", &format!("http://{address}"), "--kind", kind, "--json"]);
    if !arguments.contains(&"--patience") {
        // A busy machine is no fault of the server.
        command.args(["--patience", "20s"]);
    }
    command.env_remove("AEP_TOKEN");
    command
}

/// Runs it; its status, figures and stderr.
fn run(command: &mut Command) -> (Option<i32>, Value, String) {
    outcome(command.output().unwrap())
}

fn outcome(output: Output) -> (Option<i32>, Value, String) {
    let Output { status, stdout, stderr } = output;
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
    assert_eq!(figures["latencies"], 4 * 200, "those of the replay are none");
    assert!(figures["cuts_and_resumes"].as_u64().unwrap() >= 4 * 5, "{figures:#}");

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
fn a_page_that_cannot_be_written_is_found_out_before_the_run() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (status, _, stderr) = run(&mut aep_load(&["fanout", "--report", "/nonexist/x.html"], gone, "aep"));
    assert_eq!(status, Some(2));
    assert!(stderr.contains("/nonexist/x.html"), "{stderr}");

    let path = std::env::temp_dir().join(format!("aep-load-none-{}.html", std::process::id()));
    let (status, ..) = run(&mut aep_load(&["fanout", "--report", path.to_str().unwrap()], gone, "aep"));
    assert_eq!((status, path.exists()), (Some(2), false), "no page of a run that was not made");
}

#[test]
fn figures_are_printed_though_their_page_cannot_be_written() {
    let relay = Relay::plain();
    // It can be opened, and written never.
    let arguments = ["fanout", "--consumers", "2", "--events", "20", "--report", "/dev/full"];
    let (status, report, stderr) = run(&mut aep_load(&arguments, relay.address(), "aep"));
    assert_eq!((status, &report["figures"]["delivered"]), (Some(2), &40.into()), "{stderr}");
    assert!(stderr.contains("/dev/full"), "{stderr}");
}

/// A run that would take long, of which something was measured already.
fn under_way(arguments: &[&str], relay: &Relay) -> Child {
    let mut command = aep_load(arguments, relay.address(), "aep");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("events were published", || relay.metric("events_in", "") >= 20);
    child
}

/// With the window, all but the last event published were delivered.
const LONG: [&str; 9] = ["fanout", "--consumers", "2", "--rate", "200", "--window", "1", "--duration", "10m"];

fn assert_incomplete(child: Child, why: &str) {
    let (status, report, stderr) = outcome(child.wait_with_output().unwrap());
    assert_eq!(status, Some(2), "{stderr}{report:#}");
    assert!(stderr.contains("incomplete"), "{stderr}");
    let said = report["incomplete"].as_str().unwrap();
    assert!(said.contains(why), "{said}");
    let figures = &report["figures"];
    assert!(figures["delivered"].as_u64().unwrap() > 0 && figures["latency_p99_us"].is_number(), "{figures:#}");
    assert!(report["sound"].is_null() && figures["lost"].is_null(), "{report:#}");
}

#[test]
fn an_interrupted_run_tells_what_was_measured() {
    for signal in ["INT", "TERM"] {
        let relay = Relay::plain();
        let child = under_way(&LONG, &relay);
        let sent = Command::new("sh").arg("-c").arg(format!("kill -{signal} {}", child.id())).status().unwrap();
        assert!(sent.success());
        assert_incomplete(child, "interrupted");
    }
}

#[test]
fn a_run_whose_server_ends_tells_what_was_measured() {
    let mut relay = Relay::plain();
    let child = under_way(&LONG, &relay);
    relay.kill();
    assert_incomplete(child, "publisher's connection");
}

#[test]
fn a_server_that_ends_while_connections_are_held_is_no_faulty_one() {
    let mut relay = Relay::plain();
    let mut command = aep_load(&["connect", "--consumers", "5", "--hold", "10m"], relay.address(), "aep");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("all are subscribed", || relay.count("subscribers") == 5);
    relay.kill();
    let (status, report, stderr) = outcome(child.wait_with_output().unwrap());
    assert_eq!((status, &report["sound"]), (Some(2), &Value::Null), "{stderr}{report:#}");
    assert!(report["incomplete"].as_str().unwrap().contains("ended every connection"), "{report:#}");
}

#[test]
fn a_preload_is_what_the_server_keeps_at_most() {
    let relay = Relay::start(|options| {
        options.env("AEP_BUFFER", 10);
    });
    let resume = ["resume", "--consumers", "3", "--cut-every", "0", "--publishers", "2", "--sessions", "3"];
    let figures = sound(&[&resume[..], &["--preload", "30"]].concat(), &relay);
    assert_eq!(figures["replayed"], 90);
    let (status, _, stderr) = run(&mut aep_load(&[&resume[..], &["--preload", "31"]].concat(), relay.address(), "aep"));
    assert_eq!(status, Some(2));
    assert!(stderr.contains("at most 30 events"), "{stderr}");
}

#[test]
fn a_run_that_would_measure_nothing_is_refused() {
    let relay = Relay::plain();
    for (arguments, why) in
        [(&["resume", "--cut-every", "0"][..], "--preload"), (&["ingest", "--size", "20"][..], "an event has at least")]
    {
        let (status, _, stderr) = run(&mut aep_load(arguments, relay.address(), "aep"));
        assert_eq!(status, Some(2), "{arguments:?}");
        assert!(stderr.contains(why), "{stderr}");
    }
}

#[test]
fn slow_says_whether_anybody_was_too_slow() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", 65536);
    });
    let arguments = ["slow", "--consumers", "10", "--stalled", "0.2", "--events"];
    let noted = |more: &[&str]| {
        let (status, report, stderr) = run(&mut aep_load(&[&arguments[..], more].concat(), relay.address(), "aep"));
        assert_eq!(status, Some(0), "{stderr}{report:#}");
        assert_eq!(report["figures"]["stalled"], 2);
        assert_eq!(report["figures"]["delivered"], report["figures"]["expected"]);
        report["notes"].to_string().contains("no stalled consumer's queue")
    };
    assert!(noted(&["100"]));
    assert!(!noted(&["400", "--size", "60000", "--window", "1"]));
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
    assert!(stderr.contains("401") && stderr.contains("set AEP_TOKEN"), "{stderr}");

    let (status, _, stderr) = run(aep_load(&["fanout"], relay.address(), "aep").env("AEP_TOKEN", "wrong"));
    assert_eq!(status, Some(2));
    assert!(stderr.contains("the token was refused"), "{stderr}");

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

/// What the generator says of one consumer's ten events that came through a proxy with this fault.
fn through(fault: Fault, binding: &str, relay: &Relay) -> (Option<i32>, Value, String) {
    let arguments = ["fanout", "--consumers", "1", "--binding", binding, "--events", "10", "--batch", "10"];
    // What is lost is waited for as long as this.
    let patience = if is_honest(fault) { "20s" } else { "1s" };
    let arguments = [&arguments[..], &["--patience", patience]].concat();
    run(&mut aep_load(&arguments, proxy::start(relay.address(), fault), "aep"))
}

fn is_honest(fault: Fault) -> bool {
    match fault {
        Fault::None => true,
        Fault::LeftOut { lost, said } => lost as u64 == said,
        _ => false,
    }
}

#[test]
fn a_proxy_that_changes_nothing_or_announces_what_it_leaves_out_is_sound() {
    let relay = Relay::plain();
    for binding in ["sse", "ws"] {
        for (fault, delivered) in
            [(Fault::None, 10), (Fault::LeftOut { lost: 1, said: 1 }, 9), (Fault::LeftOut { lost: 4, said: 4 }, 6)]
        {
            let (status, report, stderr) = through(fault, binding, &relay);
            assert_eq!((status, &report["sound"]), (Some(0), &true.into()), "{fault:?}, {binding}: {stderr}{report:#}");
            assert_eq!(report["figures"]["delivered"], delivered, "{fault:?}, {binding}");
        }
    }
}

#[test]
fn every_fault_of_a_proxy_is_found_and_named() {
    let both = [
        (Fault::Bit("\"id\":\"", 0), "damaged"),
        (Fault::Bit("\"id\":\"", 11), "damaged"),
        (Fault::Bit("{\"", 0), "damaged"),
        (Fault::Bit("\"time\":\"", 20), "damaged"),
        (Fault::Bit("\"session\":\"", 5), "damaged"),
        (Fault::Bit("\"seq", 2), "damaged"),
        (Fault::Bit("\"mark", 0), "damaged"),
        (Fault::Bit("\"mark\":\"", 0), "damaged"),
        (Fault::Bit("\"mark\":\"", 8), "damaged"),
        (Fault::Bit("\"mark\":\"", 40), "damaged"),
        (Fault::Bit("\"pad\":\"", 7), "damaged"),
        (Fault::Bit("\"sum\":\"", 3), "damaged"),
        (Fault::LastBit(0), "damaged"),
        (Fault::LastBit(1), "damaged"),
        (Fault::LastBit(2), "damaged"),
        (Fault::LastBit(3), "damaged"),
        (Fault::LastBit(4), "damaged"),
        (Fault::FramingBit(0), "damaged"),
        (Fault::FramingBit(1), "damaged"),
        (Fault::FramingBit(2), "damaged"),
        (Fault::Doubled, "duplicated"),
        (Fault::Late, "out of order"),
        (Fault::LeftOut { lost: 1, said: 0 }, "lost"),
        (Fault::LeftOut { lost: 3, said: 2 }, "lost"),
        (Fault::LeftOut { lost: 0, said: 1 }, "announced"),
        (Fault::LeftOut { lost: 1, said: 5 }, "announced"),
        (Fault::LeftOut { lost: 3, said: 4 }, "announced"),
    ];
    let event_stream = [
        (Fault::Bit("id: ", 0), "damaged"),
        (Fault::Bit("id: ", 16), "damaged"),
        (Fault::Bit("i", 0), "damaged"),
        (Fault::Bit("id:", 0), "damaged"),
        (Fault::Bit("\nevent", 0), "damaged"),
        (Fault::Bit("\neven", 0), "damaged"),
        (Fault::Bit("\nevent: ", 3), "damaged"),
        (Fault::Bit("\nda", 0), "damaged"),
        (Fault::Bit("\ndata:", 0), "damaged"),
        (Fault::LastFramingBit(0), "damaged"),
        (Fault::LastFramingBit(1), "damaged"),
        (Fault::FramingBit(3), "damaged"),
        (Fault::FramingBit(4), "damaged"),
    ];
    let websocket = [(Fault::FramingBit(3), "damaged"), (Fault::Bit("{", 0), "damaged")];
    let cases: Vec<_> = (both.iter().chain(&event_stream).map(|case| ("sse", case)))
        .chain(both.iter().chain(&websocket).map(|case| ("ws", case)))
        .collect();
    thread::scope(|scope| {
        for cases in cases.chunks(cases.len().div_ceil(10)) {
            scope.spawn(move || {
                // Its own, so that it carries no other run's events.
                let relay = Relay::plain();
                for &(binding, &(fault, what)) in cases {
                    let (status, report, stderr) = through(fault, binding, &relay);
                    assert_eq!(status, Some(1), "{fault:?}, {binding}: {stderr}{report:#}");
                    let faults = report["faults"].to_string();
                    assert!(faults.contains(what), "{fault:?}, {binding}: {faults}");
                }
            });
        }
    });
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
