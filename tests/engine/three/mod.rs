//! Three protocols in one process, composed as the gateway composes them: the activity relay and two small ones.

mod protocols;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aep_relay::engine::Outcome;
use aep_relay::engine::service::{ConnId, CoreId};
use aep_relay::gateway::{Gateway, GatewayConfig, Protocols};
use aep_relay::limits::Limits;
use aep_relay::ops::auth::{Access, Token};
use aep_relay::ops::metrics::{Endpoint, Metrics, RequestLabels, StatusClass};
use aep_relay::ops::origins::Origins;
use aep_relay::relay::{Relay, Shared};

use crate::harness::{Client, Server, serve, wait_until};
use protocols::{Chat, Notes, Record, Recorded};

const TOKEN: &str = "secret";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const TEXT: u8 = 0x81;

fn start(cores: usize, token: Option<&str>) -> (Server, Record) {
    let limits = Limits { body_time: Duration::from_millis(300), ..Limits::default() };
    let metrics = Metrics::new(cores);
    let shared = Arc::new(Shared::new(limits.clone(), cores, token.is_some()));
    let gateway = Arc::new(GatewayConfig {
        access: Access::new(token.map(|token| Token::parse(token.as_bytes()).unwrap())),
        origins: Origins::Listed(vec!["https://good.example".into()]),
        hosts: None,
        exposition: Some(metrics.clone()),
    });
    let record = Record::default();
    let server = serve(cores, limits, &metrics, |core: CoreId| {
        let relay = Relay::new(core, Arc::clone(&shared), metrics.core(usize::from(core.0)));
        let notes = Notes::new(1000);
        let record = |name| (name, Arc::clone(&record));
        let (first, second, third) = (record("relay"), record("notes"), record("chat"));
        let protocols = Protocols::new(
            Recorded { name: first.0, record: first.1, protocol: relay },
            Recorded { name: second.0, record: second.1, protocol: notes },
            Recorded { name: third.0, record: third.1, protocol: Chat::default() },
        );
        Gateway::new(Arc::clone(&gateway), protocols)
    });
    (server, record)
}

fn ask(client: &mut Client, request: &str, fields: &str, body: &str) {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    client.send(format!("{request} HTTP/1.1\r\nHost: x\r\n{fields}{length}\r\n{body}"));
}

/// The head of an answer, and its body by its length.
fn told(client: &mut Client) -> (String, String) {
    let head = client.read_through("\r\n\r\n");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let body = client.read_exactly(length.map_or(0, |length| length.parse().unwrap()));
    (head, String::from_utf8(body).unwrap())
}

fn status(head: &str) -> u16 {
    head["HTTP/1.1 ".len()..][..3].parse().unwrap()
}

fn opened(server: &Server, request: &str, fields: &str, wanted: u16) -> Client {
    let mut client = server.client();
    ask(&mut client, request, fields, "");
    let head = client.read_through("\r\n\r\n");
    assert_eq!(status(&head), wanted, "{request}: {head}");
    client
}

fn event(id: &str) -> String {
    format!(
        "{{\"aep\":\"0.1\",\"id\":\"{id}\",\"type\":\"run.started\",\"time\":\"2026-01-01T12:00:00Z\",\
         \"source\":\"aep://laptop/agent/coder\",\"agent\":\"coder\",\"session\":\"s1\",\"seq\":1}}"
    )
}

fn publish(client: &mut Client, id: &str) {
    ask(client, "POST /events", "Content-Type: application/json\r\n", &event(id));
    assert_eq!(told(client).1, "{\"accepted\":1}");
}

/// Every call about each connection, in order, by protocol.
fn by_connection(record: &Record) -> HashMap<(CoreId, ConnId), Vec<(&'static str, &'static str)>> {
    let mut calls: HashMap<_, Vec<_>> = HashMap::new();
    for &(protocol, core, conn, call) in record.lock().unwrap().iter() {
        calls.entry((core, conn)).or_default().push((protocol, call));
    }
    calls
}

#[test]
fn each_protocol_hears_its_own_connections_only() {
    for cores in [1, 2, 4] {
        let (mut server, record) = start(cores, None);
        let mut relay: Vec<Client> = (0..5).map(|_| opened(&server, "GET /stream", "", 200)).collect();
        let mut notes: Vec<Client> = (0..5).map(|_| opened(&server, "GET /notes", "", 200)).collect();
        let mut chat: Vec<Client> = (0..5).map(|_| opened(&server, "GET /chat", UPGRADE, 101)).collect();
        for client in &mut relay {
            assert_eq!(client.chunk().as_deref(), Some(": open\n\n"));
        }
        for client in &mut notes {
            assert_eq!(client.chunk().as_deref(), Some(": notes\n\n"));
        }
        let mut publisher = server.client();
        publish(&mut publisher, "e1");
        let mut writer = server.client();
        ask(&mut writer, "POST /notes", "", "a note");
        assert_eq!(status(&told(&mut writer).0), 202);
        chat[0].send_frame(TEXT, b"hello");
        for client in &mut relay {
            let event = client.chunk().unwrap();
            assert!(event.contains("\"id\":\"e1\""), "{event}");
        }
        for client in &mut notes {
            assert_eq!(client.chunk().as_deref(), Some("data: a note\n\n"));
        }
        for client in &mut chat {
            assert_eq!(client.frame(), (TEXT, b"hello".to_vec()));
        }
        drop((relay, notes, chat, publisher, writer));
        wait_until("all are gone", || record.lock().unwrap().iter().filter(|(.., call)| *call == "gone").count() == 17);
        server.stop();
        assert_eq!(server.join(), Outcome::Drained);
        let calls = by_connection(&record);
        assert_eq!(calls.len(), 17);
        let mut connections: HashMap<&str, usize> = HashMap::new();
        for (conn, calls) in &calls {
            let (protocol, first) = calls[0];
            *connections.entry(protocol).or_default() += 1;
            assert!(calls.iter().all(|(other, _)| *other == protocol), "{conn:?}: {calls:?}");
            assert_eq!(first, "request");
            let ends: Vec<&str> = calls.iter().rev().take(2).map(|(_, call)| *call).collect();
            assert_eq!(ends, ["gone", "closing"], "{conn:?}: {calls:?}");
        }
        assert_eq!(connections, HashMap::from([("relay", 6), ("notes", 6), ("chat", 5)]), "{cores} cores");
    }
}

#[test]
fn a_kept_connection_belongs_to_the_protocol_it_asked_last() {
    let (server, record) = start(1, None);
    let mut client = server.client();
    for (request, body) in [
        ("GET /notes/one", "one"),
        (
            "GET /healthz",
            "{\"ok\":true,\"sessions\":0,\"subscribers\":0,\"connections\":0,\"notes\":0,\"chat\":0,\"uptime_s\":0}",
        ),
        ("GET /notes/later", "later"),
        ("GET /connections", "{\"connections\":[]}"),
        ("GET /notes/two", "two"),
        ("GET /nowhere", "{\"error\":\"not-found\",\"detail\":\"no such path\"}"),
        ("GET /connections", "{\"connections\":[]}"),
    ] {
        ask(&mut client, request, "", "");
        assert_eq!(told(&mut client).1, body, "{request}");
    }
    drop(client);
    let gone = |record: &Record| record.lock().unwrap().iter().any(|(.., call)| *call == "gone");
    wait_until("it is gone", || gone(&record));
    let calls: Vec<_> = record.lock().unwrap().iter().map(|(protocol, _, _, call)| (*protocol, *call)).collect();
    let expected = [
        ("notes", "request"),
        ("notes", "request"),
        ("relay", "request"),
        ("notes", "request"),
        ("relay", "request"),
        ("relay", "closing"),
        ("relay", "gone"),
    ];
    assert_eq!(calls, expected);
    // Who asked the gateway last belongs to nobody.
    record.lock().unwrap().clear();
    let mut client = server.client();
    for request in ["GET /notes/one", "GET /healthz"] {
        ask(&mut client, request, "", "");
        assert_eq!(status(&told(&mut client).0), 200);
    }
    drop(client);
    server.wait_until(
        "it is gone",
        |core| core.connections.value(aep_relay::ops::metrics::ConnectionKind::Http),
        |now| now == 0,
    );
    let calls: Vec<_> = record.lock().unwrap().iter().map(|(protocol, _, _, call)| (*protocol, *call)).collect();
    assert_eq!(calls, [("notes", "request")]);
}

#[test]
fn a_drain_ends_all_three() {
    for cores in [1, 2, 4] {
        let (mut server, _) = start(cores, None);
        let mut relay = opened(&server, "GET /stream", "", 200);
        let mut notes = opened(&server, "GET /notes", "", 200);
        let mut chat = opened(&server, "GET /chat", UPGRADE, 101);
        server.stop();
        assert!(relay.read_to_end().ends_with(b"0\r\n\r\n"));
        let text = String::from_utf8(notes.read_to_end()).unwrap();
        assert!(text.contains(": no more notes\n\n"), "{text}");
        let (first, payload) = chat.frame();
        assert_eq!((first, payload), (0x88, [&4000_u16.to_be_bytes(), b"no more chat".as_slice()].concat()));
        drop((relay, notes, chat));
        assert_eq!(server.join(), Outcome::Drained, "{cores} cores");
    }
}

#[test]
fn what_the_engine_refuses_has_the_form_of_its_protocol_and_the_fields_of_its_request() {
    let (server, _) = start(1, None);
    for (origin, allowed) in [("https://good.example", true), ("", false)] {
        for (path, form, rest, wanted) in [
            ("/notes", "notes: ", "Transfer-Encoding: chunked\r\n\r\n7d0\r\n".to_owned() + &"x".repeat(1001), 413),
            ("/notes", "notes: ", "Content-Length: 5\r\n\r\nhe".to_owned(), 408),
            ("/notes", "notes: ", "Transfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(), 400),
            ("/events", "{\"error\":\"timeout\"", "Content-Length: 5\r\n\r\nhe".to_owned(), 408),
            ("/notes", "{\"error\":\"expectation-failed\"", "Expect: tea\r\n\r\n".to_owned(), 417),
        ] {
            let mut client = server.client();
            let origin = if origin.is_empty() { String::new() } else { format!("Origin: {origin}\r\n") };
            let json = "Content-Type: application/json\r\n";
            client.send(format!("POST {path} HTTP/1.1\r\nHost: x\r\n{json}{origin}{rest}"));
            let (head, body) = told(&mut client);
            assert_eq!(status(&head), wanted, "{path}: {head}");
            assert!(body.starts_with(form), "{path} {wanted}: {body}");
            assert_eq!(head.contains("access-control-allow-origin: https://good.example\r\n"), allowed, "{head}");
            assert!(head.contains("vary: Origin\r\n"), "{head}");
        }
    }
    // Its path is not known.
    let mut client = server.client();
    client.send("POST /notes HTTP/1.1\nHost: x\r\n\r\n");
    assert!(told(&mut client).1.starts_with("{\"error\":\"bad-request\""));
}

#[test]
fn a_path_says_who_may_ask() {
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    for (token, request, fields, wanted) in [
        (None, "GET /notes/a%20b", String::new(), 200),
        (None, "DELETE /notes/a", String::new(), 403),
        (None, "DELETE /notes/a", bearer(TOKEN), 403),
        (None, "PUT /notes/a", String::new(), 405),
        (None, "GET /notes/a/b", String::new(), 404),
        (Some(TOKEN), "GET /notes/a", String::new(), 200),
        (Some(TOKEN), "DELETE /notes/a", String::new(), 401),
        (Some(TOKEN), "DELETE /notes/a", bearer("other"), 401),
        (Some(TOKEN), "DELETE /notes/a", bearer(TOKEN), 204),
        (Some(TOKEN), "GET /notes", String::new(), 401),
        (Some(TOKEN), "GET /notes", bearer(TOKEN), 200),
        (Some(TOKEN), "GET /notes?access_token=secret", String::new(), 200),
        (Some(TOKEN), "DELETE /notes/a?access_token=secret", String::new(), 401),
        (Some(TOKEN), "GET /chat", bearer(TOKEN) + UPGRADE, 401),
        (Some(TOKEN), "GET /chat", bearer("mine") + UPGRADE, 101),
        (Some(TOKEN), "GET /chat", UPGRADE.to_owned(), 101),
    ] {
        let (server, _) = start(1, token);
        let mut client = server.client();
        ask(&mut client, request, &fields, "");
        let (head, body) = told(&mut client);
        assert_eq!(status(&head), wanted, "{token:?} {request} {fields}: {head}");
        match wanted {
            200 if request == "GET /notes/a%20b" => assert_eq!(body, "a%20b", "as it came"),
            401 if request.contains("/notes") => {
                assert_eq!(body, "notes: Unauthorized");
                assert!(head.contains("www-authenticate: Bearer\r\n"), "{head}");
            }
            401 => assert_eq!(body, "chat: not mine"),
            403 => assert_eq!(body, "notes: Forbidden"),
            405 => {
                assert_eq!(body, "notes: Method");
                assert!(head.contains("allow: GET, DELETE, OPTIONS\r\n"), "{head}");
            }
            _ => {}
        }
    }
}

#[test]
fn an_answer_that_comes_later_is_counted_as_one_at_once() {
    let (server, _) = start(1, None);
    let count = |endpoint, status| {
        server.metrics.sum(|core| core.requests.value(RequestLabels { endpoint, status: StatusClass::of(status) }))
    };
    let mut client = server.client();
    ask(&mut client, "GET /notes/one", "", "");
    told(&mut client);
    ask(&mut client, "GET /notes/later", "", "");
    told(&mut client);
    assert_eq!(count(Endpoint::Other, 200), 2);
    publish(&mut client, "e1");
    assert_eq!(count(Endpoint::Events, 202), 1);
    ask(&mut client, "GET /connections", "", "");
    told(&mut client);
    assert_eq!(count(Endpoint::Connections, 200), 1);
    let _stream = opened(&server, "GET /stream", "", 200);
    assert_eq!(count(Endpoint::Stream, 200), 1);
    ask(&mut client, "POST /events", "Content-Type: text/plain\r\n", "x");
    told(&mut client);
    assert_eq!(count(Endpoint::Events, 415), 1);
}
