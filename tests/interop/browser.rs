//! A real browser: `EventSource`, `WebSocket` and `fetch` of a page against the relay. The page is served, and its
//! reports are taken, by a small server of the test.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::http::encode;
use crate::support::*;
use crate::tool;

/// A browser takes its time to start, and seconds to reconnect.
const REPORT_DEADLINE: Duration = Duration::from_secs(90);

/// Serves the page and hands on what it reports.
struct Desk {
    address: SocketAddr,
    reports: Receiver<Value>,
    /// Reports that were not asked for yet.
    pending: VecDeque<Value>,
}

impl Desk {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().unwrap();
        let (sender, reports) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let sender = sender.clone();
                thread::spawn(move || serve(stream, &sender));
            }
        });
        Self { address, reports, pending: VecDeque::new() }
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next report from this part of the page.
    #[track_caller]
    fn next(&mut self, from: &str) -> Value {
        loop {
            if let Some(at) = self.pending.iter().position(|report| report["from"] == from) {
                let mut report = self.pending.remove(at).unwrap();
                report.as_object_mut().unwrap().remove("from");
                return report;
            }
            match self.reports.recv_timeout(REPORT_DEADLINE) {
                Ok(report) => self.pending.push_back(report),
                Err(_) => panic!("the page reported nothing more from its {from}; else: {:?}", self.pending),
            }
        }
    }

    #[track_caller]
    fn expect_events(&mut self, session: &str, events: &[String], first: u64) {
        for (seq, event) in (first..).zip(events) {
            let id = format!("{session}:0:{seq}");
            assert_eq!(self.next("stream"), json!({"type": "run.started", "id": id, "data": event}));
        }
    }
}

/// Answers one request of the page.
fn serve(stream: TcpStream, reports: &Sender<Value>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut length = 0;
    let _ = reader.read_line(&mut line);
    loop {
        let mut field = String::new();
        if reader.read_line(&mut field).unwrap_or(0) == 0 || field == "\r\n" {
            break;
        }
        if let Some(value) = field.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let page = if line.starts_with("GET /page") { include_str!("page.html") } else { "" };
    if line.starts_with("POST /report")
        && let Ok(report) = serde_json::from_slice(&body)
    {
        let _ = reports.send(report);
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.len()
    );
    let _ = reader.into_inner().write_all(format!("{head}{page}").as_bytes());
}

/// A headless browser with a profile of its own; it ends when dropped.
struct Browser {
    child: Child,
    profile: PathBuf,
}

impl Browser {
    /// Opens the page with the relay and its token.
    #[track_caller]
    fn open(program: PathBuf, desk: &Desk, relay: &Relay) -> Self {
        let profile = std::env::temp_dir().join(format!("aep-relay-browser-{}-{}", std::process::id(), relay.pid()));
        fs::create_dir_all(&profile).expect("a directory for the profile");
        let relay_url = encode(&format!("http://{}", relay.address()));
        let page = format!("{}/page?relay={relay_url}&token={}", desk.origin(), relay.token().unwrap_or_default());
        let mut command = tool::command(program, relay);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--disable-dev-shm-usage", "--no-proxy-server", "--remote-debugging-port=0"]);
        command.arg(format!("--user-data-dir={}", profile.display())).arg(page);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the browser starts");
        Self { child, profile }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its helpers end with it, and may still write for a moment.
        wait_until("the profile is removed", || fs::remove_dir_all(&self.profile).is_ok() || !self.profile.exists());
    }
}

#[track_caller]
fn browser() -> Option<PathBuf> {
    let found = tool::find(&["chromium", "chromium-browser", "google-chrome"]);
    if found.is_none() {
        tool::skip("chromium");
    }
    found
}

fn runs(session: &str, seqs: std::ops::RangeInclusive<u64>) -> Vec<String> {
    seqs.map(|seq| event(session, seq).build()).collect()
}

#[test]
fn a_page_follows_publishes_and_comes_back() {
    let Some(program) = browser() else { return };
    let mut desk = Desk::open();
    let origin = desk.origin();
    let configure = |options: &mut Options| {
        options.token("sesame").env("AEP_ORIGINS", &origin);
    };
    let mut relay = Relay::start(configure);
    let port = relay.address().port();
    let _browser = Browser::open(program, &desk, &relay);

    // What preflights allow: a POST with token and version, and a resume by header.
    assert_eq!(desk.next("fetch"), json!({"status": 202, "body": r#"{"accepted":1}"#}));
    let replay = desk.next("fetch");
    let body = replay["body"].as_str().expect("a body");
    assert_eq!(replay["status"], 200);
    assert!(body.starts_with(": open\n\nid: page:0:1\nevent: run.started\ndata: {"), "{body}");
    assert!(body.ends_with("\n\n: replay-complete\n\n"), "{body}");
    assert_eq!(desk.next("fetch"), json!({"status": 200, "body": r#"{"ok":true}"#}));
    let refusal = desk.next("fetch");
    let text = refusal["body"].as_str().unwrap_or_default();
    assert!(refusal["status"] == 400 && text.contains("invalid-filter"), "a refusal is readable: {refusal}");

    // Both subscribe with the token in the query.
    assert_eq!(desk.next("stream"), json!({"open": true}));
    let hello: Value = serde_json::from_str(desk.next("socket")["data"].as_str().expect("a message")).unwrap();
    assert_eq!(hello["type"], "hello");
    assert_eq!(desk.next("socket"), json!({"data": r#"{"type":"subscribed","id":"page"}"#}));
    let sent = runs("s:1", 1..=3);
    relay.publish(&sent);
    desk.expect_events("s:1", &sent, 1);
    for event in &sent {
        assert_eq!(desk.next("socket"), json!({"data": event}));
    }

    // The relay goes: the socket is closed with a code, the stream ends and is asked for again.
    assert_eq!(relay.term().code(), Some(0));
    let closing: Value = serde_json::from_str(desk.next("socket")["data"].as_str().expect("a message")).unwrap();
    assert_eq!((&closing["type"], &closing["reason"]), (&json!("closing"), &json!("shutting-down")));
    assert_eq!(desk.next("socket"), json!({"code": 1001, "clean": true}));
    let relay = Relay::start(|options| {
        configure(options);
        options.env("AEP_PORT", port);
    });
    let missed = runs("s:1", 4..=5);
    relay.publish(&missed);
    loop {
        let report = desk.next("stream");
        if report == json!({"open": true}) {
            break;
        }
        assert_eq!(report, json!({"state": 0}), "it tries again by itself");
    }
    desk.expect_events("s:1", &missed, 4);
    let live = runs("s:1", 6..=6);
    relay.publish(&live);
    desk.expect_events("s:1", &live, 6);
}

#[test]
fn a_page_of_another_origin_gets_nothing() {
    let Some(program) = browser() else { return };
    let mut desk = Desk::open();
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_ORIGINS", "https://good.example");
    });
    let _browser = Browser::open(program, &desk, &relay);
    for _ in 0..4 {
        assert_eq!(desk.next("fetch"), json!({"blocked": "TypeError"}));
    }
    let stream = desk.next("stream");
    assert!(stream.get("state").is_some(), "refused: {stream}");
    assert_eq!(desk.next("socket"), json!({"code": 1006, "clean": false}));
    assert_eq!(relay.count("sessions"), 0, "the preflight kept the event from being sent");
    assert_eq!(relay.health()["connections"], Relay::plain().health()["connections"], "no WebSocket was opened");
}
