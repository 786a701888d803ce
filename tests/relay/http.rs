//! HTTP endpoints from the wire: answers, refusals and their order, the token, browser access (contract §4).

use crate::support::*;
use serde_json::json;

const JSON: (&str, &str) = ("Content-Type", "application/json");
const NDJSON: (&str, &str) = ("Content-Type", "application/x-ndjson");
const DISCOVERY: &str = concat!(
    r#"{"aep":["0.1"],"role":"collector","#,
    r#""endpoints":{"events":"/events","stream":"/stream","socket":"/socket"},"#,
    r#""capabilities":{"filters":["attr-match"],"replay":{"buffer":10000,"all":true},"#,
    r#""capture":["none","metadata","redacted","full"],"control":{"accepts":[]},"roster":{},"experimental":{}}}"#
);

#[test]
fn the_boot_line_tells_address_cores_and_posture() {
    let open = Relay::start(|options| {
        options.env("AEP_CORES", 1);
    });
    let port = open.address().port();
    assert_eq!(
        open.boot_line(),
        format!("aep-relay on http://127.0.0.1:{port} (1 core, watch-only: set AEP_TOKEN to enable control)\n")
    );
    let guarded = Relay::start(|options| {
        options.token("sesame").env("AEP_CORES", 2);
    });
    let port = guarded.address().port();
    assert_eq!(guarded.boot_line(), format!("aep-relay on http://127.0.0.1:{port} (2 cores, control enabled)\n"));
    guarded.health();
    assert_eq!(guarded.stdout(), "", "one line and no more");
}

#[test]
fn the_loopback_of_ipv6_can_be_bound() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return; // a machine without IPv6
    }
    let relay = Relay::start(|options| {
        options.env("AEP_HOST", "::1");
    });
    assert!(relay.boot_line().starts_with("aep-relay on http://[::1]:"), "{}", relay.boot_line());
    assert_eq!(relay.health()["ok"], true);
}

/// It is another way to write the loopback: nobody has to be warned of it.
#[test]
fn the_mapped_loopback_is_the_loopback() {
    let relay = Relay::start(|options| {
        options.env("AEP_HOST", "::ffff:127.0.0.1");
    });
    assert_eq!(relay.health()["ok"], true);
    assert!(!relay.stderr().contains("WARN"), "{}", relay.stderr());
}

/// The boot line comes behind what is said at start, on another pipe.
#[test]
fn an_open_relay_says_whom_it_is_open_to() {
    let open = Relay::plain();
    wait_until("the line", || open.stderr().contains("every page in a browser"));
    let mut guarded = Relay::start(|options| {
        options.token("sesame");
    });
    assert!(guarded.term().success());
    assert!(!guarded.stderr().contains("may publish and read"), "{}", guarded.stderr());
}

/// RFC 9110 §6.6.1. That every answer of every suite has one is checked where answers are read.
#[test]
fn answers_tell_the_time_of_day() {
    let relay = Relay::plain();
    let told = |response: &Response| httpdate::parse_http_date(&response.date).unwrap();
    let near = |response: Response| {
        let now = std::time::SystemTime::now();
        let distance = now.duration_since(told(&response)).unwrap_or_else(|ahead| ahead.duration());
        assert!(distance < std::time::Duration::from_secs(60), "{} at {now:?}", response.date);
    };
    near(relay.get("/healthz"));
    near(relay.get("/nowhere"));
    near(relay.request("HEAD", "/events", &[], b""));
    near(relay.post(event("s", 1).build()));
    near(Http::exchange(&relay, "nonsense\r\n\r\n").1);
    near(Sse::send(&relay, &request("GET", "/stream", &[], b"")).1);
    let mut upgrade = Http::connect(&relay);
    upgrade.send(upgrade_request(&relay, &[]));
    near(upgrade.response_head());

    let first = told(&relay.get("/healthz"));
    wait_until("the time goes on", || told(&relay.get("/healthz")) > first);

    let full = Relay::start(|options| {
        options.env("AEP_MAX_CONNECTIONS", 1);
    });
    let mut only = Http::connect(&full);
    only.expect_alive();
    let refused = Http::connect(&full).response();
    assert_eq!(refused.status, 503);
    near(refused);
}

#[test]
fn healthz_counts_what_lives() {
    let relay = Relay::plain();
    let health = relay.health();
    assert_eq!(health["ok"], true);
    assert_eq!((&health["sessions"], &health["subscribers"]), (&json!(0), &json!(0)));
    assert!(health["uptime_s"].is_number(), "{health}");
    let connections = relay.count("connections");

    relay.publish(&[event("a", 1).build(), event("b", 1).build(), event("a", 2).build()]);
    relay.publish(&[agent_event("agent.presence").build()]);
    assert_eq!(relay.count("sessions"), 2);

    let stream = Sse::open(&relay, "/stream");
    let mut socket = Ws::consumer(&relay, "{}");
    socket.subscribe("second", r#""filter":{"agent":"x"}"#);
    assert_eq!(relay.count("subscribers"), 3, "one stream and two subscriptions of one connection");
    wait_until("the WebSocket is counted", || relay.count("connections") > connections);
    socket.text(r#"{"type":"unsubscribe","id":"second"}"#);
    assert_eq!(socket.json(), json!({"type": "unsubscribed", "id": "second"}));
    assert_eq!(relay.count("subscribers"), 2);
    drop(stream);
    socket.close();
    wait_until("both consumers are forgotten", || relay.count("subscribers") == 0);
    wait_until("the connections are forgotten", || relay.count("connections") <= connections);
}

#[test]
fn discovery_is_the_documented_object_on_both_paths() {
    let relay = Relay::plain();
    for target in ["/events", "/.well-known/aep", "/events?unknown=1"] {
        let response = relay.get(target);
        response.json();
        response.expect(200, DISCOVERY);
    }
    let relay = Relay::start(|options| {
        options.env("AEP_BUFFER", 7);
    });
    relay.get("/events").expect(200, &DISCOVERY.replace("10000", "7"));
}

#[test]
fn head_answers_as_get_without_the_body() {
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    let mut http = Http::connect(&relay);
    let authorized = [("Authorization", "Bearer sesame")];
    for (target, fields, length) in [
        ("/healthz", &[][..], r#"{"ok":true}"#.len()),
        ("/events", &authorized, DISCOVERY.len()),
        ("/.well-known/aep", &authorized, DISCOVERY.len()),
    ] {
        http.send(request("HEAD", target, fields, b""));
        let response = http.response_to_head();
        assert_eq!(response.status, 200, "{target}");
        assert_eq!(response.field("content-type"), Some("application/json"));
        assert_eq!(response.field("content-length"), Some(length.to_string().as_str()), "{target}");
    }
    http.expect_alive();
    for target in ["/stream", "/socket", "/connections"] {
        http.send(request("HEAD", target, &authorized, b""));
        let response = http.response_to_head();
        assert_eq!(response.status, 405, "{target}");
        assert!(response.list("allow").contains(&"get".to_owned()));
    }
    http.expect_alive();
}

#[test]
fn unknown_paths_and_methods_are_told_apart() {
    let relay = Relay::plain();
    for target in ["/", "/event", "/events/", "/Events", "/healthz/x", "/stream2", "/.well-known", "//events"] {
        relay.get(target).expect_refusal(404, "not-found");
        relay.request("OPTIONS", target, &[], b"").expect_refusal(404, "not-found");
    }
    for (method, target, allowed) in [
        ("DELETE", "/events", &["get", "post", "head"][..]),
        ("PUT", "/events", &["get", "post"]),
        ("POST", "/stream", &["get"]),
        ("POST", "/healthz", &["get", "head"]),
        ("POST", "/.well-known/aep", &["get", "head"]),
        ("POST", "/socket", &["get"]),
        ("PATCH", "/connections", &["get"]),
        ("BREW", "/events", &["get", "post"]),
        ("get", "/events", &["get", "post"]),
    ] {
        let response = relay.request(method, target, &[], b"");
        response.expect_refusal(405, "method-not-allowed");
        let allow = response.list("allow");
        assert!(allowed.iter().all(|method| allow.contains(&(*method).to_owned())), "{method} {target}: {allow:?}");
        assert!(!allow.contains(&method.to_ascii_lowercase()) || method == "get", "{method} {target}: {allow:?}");
    }
}

#[test]
fn an_absolute_target_is_the_same_resource() {
    let relay = Relay::plain();
    assert_eq!(relay.get("http://relay.test/healthz?x=1").json()["ok"], true);
    relay.get("http://relay.test/nowhere").expect_refusal(404, "not-found");
}

#[test]
fn socket_without_an_upgrade_says_what_it_wants() {
    let relay = Relay::plain();
    let response = relay.get("/socket");
    response.expect_refusal(426, "upgrade-required");
    assert_eq!(response.field("upgrade").map(str::to_ascii_lowercase).as_deref(), Some("websocket"));
}

// ── the token ──

#[test]
fn the_token_is_asked_for_everywhere_but_on_healthz_and_preflights() {
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    let mut http = Http::connect(&relay);
    for (method, target) in [
        ("GET", "/events"),
        ("GET", "/.well-known/aep"),
        ("POST", "/events"),
        ("GET", "/stream"),
        ("GET", "/socket"),
        ("GET", "/connections"),
    ] {
        for fields in [
            &[][..],
            &[("Authorization", "Bearer wrong")],
            &[("Authorization", "Bearer sesam")],
            &[("Authorization", "Bearer sesamee")],
            &[("Authorization", "Bearer Sesame")],
            &[("Authorization", "Bearer")],
            &[("Authorization", "Basic sesame")],
            &[("Authorization", "sesame")],
        ] {
            http.send(request(method, target, fields, b""));
            let response = http.response();
            response.expect(401, r#"{"error":"unauthorized"}"#);
            response.json();
            assert_eq!(response.field("www-authenticate"), Some("Bearer"), "{method} {target}");
            assert_eq!(response.field("access-control-allow-origin"), Some("*"));
        }
    }
    for fields in [&[][..], &[("Authorization", "Bearer wrong")]] {
        http.send(request("GET", "/healthz", fields, b""));
        http.response().expect(200, r#"{"ok":true}"#);
    }
    http.send(request("OPTIONS", "/events", &[], b""));
    assert_eq!(http.response().status, 204);
    assert_eq!(relay.health()["sessions"], 0, "the authorized answer has the counts");
}

#[test]
fn the_scheme_counts_in_any_case() {
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    for value in ["Bearer sesame", "bearer sesame", "BEARER sesame"] {
        let (_, response) = Http::exchange(&relay, request("GET", "/events", &[("authorization", value)], b""));
        response.expect(200, DISCOVERY);
    }
}

#[test]
fn the_query_carries_the_token_on_get_only() {
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    let get = |target: &str, fields: &[(&str, &str)]| Http::exchange(&relay, request("GET", target, fields, b"")).1;
    get("/events?access_token=sesame", &[]).expect(200, DISCOVERY);
    get("/events?x=1&access_token=%73esame", &[]).expect(200, DISCOVERY);
    assert_eq!(get("/healthz?access_token=sesame", &[]).json()["sessions"], 0);
    get("/healthz?access_token=wrong", &[]).expect(200, r#"{"ok":true}"#);
    for target in [
        "/events?access_token=wrong",
        "/events?access_token=",
        "/events?access_token",
        "/events?access_token=sesam%6",
        "/events?access_token=%FF",
        "/events?access_token=wrong&access_token=sesame",
        "/events?Access_Token=sesame",
    ] {
        get(target, &[]).expect(401, r#"{"error":"unauthorized"}"#);
    }
    let wrong = [("Authorization", "Bearer wrong")];
    let right = [("Authorization", "Bearer sesame")];
    get("/events?access_token=sesame", &wrong).expect(401, r#"{"error":"unauthorized"}"#);
    get("/events?access_token=wrong", &right).expect(200, DISCOVERY);
    // What a proxy asks for is its own affair.
    let proxy = [("Authorization", "Basic c2VzYW1lOndyb25n")];
    get("/events?access_token=sesame", &proxy).expect(200, DISCOVERY);
    get("/events?access_token=wrong", &proxy).expect(401, r#"{"error":"unauthorized"}"#);

    let body = event("s", 1).build();
    let post = request("POST", "/events?access_token=sesame", &[JSON], body.as_bytes());
    Http::exchange(&relay, post).1.expect(401, r#"{"error":"unauthorized"}"#);
    assert_eq!(relay.count("sessions"), 0);

    Sse::send(&relay, &request("GET", "/stream?access_token=sesame", &[], b""));
    let mut http = Http::connect(&relay);
    http.send(
        format!("GET /socket?access_token=sesame HTTP/1.1\r\nHost: r\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"),
    );
    Ws::accept(http).close();
}

#[test]
fn the_token_appears_nowhere() {
    let mut relay = Relay::start(|options| {
        options.token("marker-6d1f").env("AEP_LOG", "trace");
    });
    let mut answers = Vec::new();
    for bytes in [
        request("GET", "/events?access_token=marker-6d1f", &[], b""),
        request("GET", "/nowhere?access_token=marker-6d1f", &[("Authorization", "Bearer marker-6d1f")], b""),
        request("GET", "/events", &[("Authorization", "Bearer marker-6d1f-wrong")], b""),
        request("GET", "/connections", &[("Authorization", "Bearer marker-6d1f")], b""),
        request("GET", "/healthz", &[("Authorization", "Bearer marker-6d1f")], b""),
        request("GET", "/metrics", &[("Authorization", "Bearer marker-6d1f")], b""),
        b"GET /events?access_token=marker-6d1f HTTP/1.1\r\nbad line marker-6d1f\r\n\r\n".to_vec(),
    ] {
        answers.extend(Http::exchange(&relay, bytes).1.body);
    }
    let mut socket = Ws::connect(&relay);
    socket.text(r#"{"type":"hello","role":"no such","versions":["0.1"]}"#);
    answers.extend(socket.message().into_bytes());
    relay.term();
    for (place, text) in
        [("an answer", String::from_utf8(answers).unwrap()), ("stdout", relay.stdout()), ("stderr", relay.stderr())]
    {
        assert!(!text.contains("marker-6d1f"), "the token is in {place}: {text}");
    }
}

// ── browsers ──

#[test]
fn every_answer_is_open_to_browsers_by_default() {
    let relay = Relay::plain();
    let body = event("s", 1).build();
    let responses = [
        relay.get("/healthz"),
        relay.get("/events"),
        relay.get("/connections"),
        relay.post(&body),
        relay.post("{"),
        relay.get("/nowhere"),
        relay.get("/socket"),
        relay.get("/stream?filter=x"),
        relay.request("POST", "/events", &[JSON, ("AEP-Version", "9")], body.as_bytes()),
        relay.request("OPTIONS", "/events", &[("Origin", "https://any.example")], b""),
        Http::exchange(&relay, "GET /healthz HTTP/1.1\r\n\r\n").1,
        Http::exchange(&relay, "GET /healthz HTTP/2.0\r\n\r\n").1,
    ];
    for response in responses {
        assert_eq!(response.field("access-control-allow-origin"), Some("*"), "{response:?}");
    }
    let (_, head) = Sse::send(&relay, &request("GET", "/stream", &[("Origin", "https://any.example")], b""));
    assert_eq!(head.field("access-control-allow-origin"), Some("*"));
}

#[test]
fn a_preflight_allows_what_the_clients_of_the_relay_send() {
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    for target in ["/events", "/stream", "/socket", "/healthz", "/connections", "/.well-known/aep"] {
        let fields = [
            ("Origin", "https://app.example"),
            ("Access-Control-Request-Method", "GET"),
            ("Access-Control-Request-Headers", "authorization,cache-control,last-event-id"),
        ];
        let (mut http, response) = Http::exchange(&relay, request("OPTIONS", target, &fields, b""));
        assert_eq!((response.status, response.body.as_slice()), (204, &b""[..]), "{target}");
        assert_eq!(response.field("content-length").unwrap_or("0"), "0");
        assert_eq!(response.field("access-control-allow-origin"), Some("*"));
        assert_eq!(response.field("access-control-allow-credentials"), None);
        let methods = response.list("access-control-allow-methods");
        assert!(methods.contains(&"get".to_owned()), "{methods:?}");
        assert!(target != "/events" || methods.contains(&"post".to_owned()), "{methods:?}");
        let mut headers = response.list("access-control-allow-headers");
        headers.sort();
        assert_eq!(headers, ["aep-version", "authorization", "cache-control", "content-type", "last-event-id"]);
        let age: u64 = response.field("access-control-max-age").expect("a max-age").parse().unwrap();
        assert!(age > 0);
        http.expect_alive();
    }
}

#[test]
fn configured_origins_are_echoed_and_others_are_not() {
    let relay = Relay::start(|options| {
        options.env("AEP_ORIGINS", "https://good.example,http://localhost:3000");
    });
    let ask = |method: &str, target: &str, origin: Option<&str>| {
        let fields: Vec<(&str, &str)> = origin.map(|origin| ("Origin", origin)).into_iter().collect();
        Http::exchange(&relay, request(method, target, &fields, b"")).1
    };
    for (method, target) in [("GET", "/events"), ("GET", "/nowhere"), ("OPTIONS", "/stream"), ("POST", "/events")] {
        for origin in ["https://good.example", "http://localhost:3000"] {
            let response = ask(method, target, Some(origin));
            assert_eq!(response.field("access-control-allow-origin"), Some(origin), "{method} {target}");
            assert!(response.list("vary").contains(&"origin".to_owned()), "{response:?}");
        }
        for origin in [
            None,
            Some("https://evil.test"),
            Some("https://good.example.evil.test"),
            Some("https://evilgood.example"),
            Some("http://good.example"),
            Some("https://good.example:443"),
            Some("HTTPS://GOOD.EXAMPLE"),
            Some("http://localhost"),
            Some("null"),
        ] {
            let response = ask(method, target, origin);
            assert_eq!(response.field("access-control-allow-origin"), None, "{method} {target} {origin:?}");
        }
    }
    let good = [("Origin", "https://good.example")];
    let (_, head) = Sse::send(&relay, &request("GET", "/stream", &good, b""));
    assert_eq!(head.field("access-control-allow-origin"), Some("https://good.example"));
    assert!(head.list("vary").contains(&"origin".to_owned()));
}

/// A page's request is sent before its browser asks whether it may read the answer: what it would change has to be
/// refused.
#[test]
fn a_foreign_page_cannot_change_anything() {
    let relay = Relay::start(|options| {
        options.env("AEP_ORIGINS", "https://good.example").token("sesame");
    });
    let sent = event("s", 1).build();
    let from = |method: &str, target: &str, origins: &[&str]| {
        let mut fields = vec![("Authorization", "Bearer sesame"), JSON];
        fields.extend(origins.iter().map(|origin| ("Origin", *origin)));
        Http::exchange(&relay, request(method, target, &fields, sent.as_bytes())).1
    };
    for origins in [
        &["https://evil.test"][..],
        &["https://good.example.evil.test"],
        &["http://good.example"],
        &["null"],
        &[""],
        &["https://good.example", "https://evil.test"],
        &["https://good.example", "https://good.example"],
    ] {
        for (method, target) in [("POST", "/events"), ("PUT", "/events"), ("DELETE", "/nowhere")] {
            let response = from(method, target, origins);
            assert_eq!(response.status, 403, "{method} {target} {origins:?}: {response:?}");
            assert_eq!(response.json()["error"], "forbidden-origin");
            assert_eq!(response.field("access-control-allow-origin"), None);
        }
        for method in ["GET", "HEAD"] {
            let mut http = Http::connect(&relay);
            let fields: Vec<_> = origins.iter().map(|origin| ("Origin", *origin)).collect();
            http.send(request(method, "/healthz", &fields, b""));
            assert_eq!(http.response_head().status, 200, "{origins:?} may ask, and not read");
        }
    }
    // Before the token: who may not ask at all learns nothing of tokens.
    let evil = [JSON, ("Origin", "https://evil.test")];
    assert_eq!(Http::exchange(&relay, request("POST", "/events", &evil, b"{}")).1.status, 403);
    assert_eq!(relay.count("sessions"), 0, "nothing was ingested");
    from("POST", "/events", &["https://good.example"]).expect(202, r#"{"accepted":1}"#);
    from("POST", "/events", &[]).expect(202, r#"{"accepted":1}"#);

    let open = Relay::plain();
    let any = [JSON, ("Origin", "https://any.example")];
    open.request("POST", "/events", &any, sent.as_bytes()).expect(202, r#"{"accepted":1}"#);
}

/// DNS rebinding: the page's own name resolves to the relay, which is then of the page's origin.
#[test]
fn with_hosts_named_a_request_for_another_host_is_misdirected() {
    let relay = Relay::start(|options| {
        options.env("AEP_HOSTS", "relay.example, localhost").token("sesame");
    });
    let ask = |method: &str, target: &str, host: &str| {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        Http::exchange(&relay, head).1
    };
    for (method, target) in [
        ("GET", "/healthz"),
        ("GET", "/events"),
        ("POST", "/events"),
        ("GET", "/stream"),
        ("OPTIONS", "/stream"),
        ("DELETE", "/nowhere"),
        ("GET", "http://evil.test/healthz"),
    ] {
        let host = if target.starts_with("http") { "localhost" } else { "evil.test:8787" };
        ask(method, target, host).expect_refusal(421, "misdirected");
    }
    let upgrade = String::from_utf8(upgrade_request(&relay, &[])).unwrap();
    assert!(upgrade.contains("Host: relay.test\r\n"));
    Ws::refused(&relay, &upgrade).expect_refusal(421, "misdirected");
    let own = upgrade.replace("Host: relay.test", "Host: localhost:8787");
    let mut http = Http::connect(&relay);
    http.send(own);
    Ws::accept(http).close();

    let bound = relay.address().to_string();
    for host in ["relay.example", "RELAY.example:443", "localhost:1", bound.as_str()] {
        ask("GET", "/healthz", host).expect(200, r#"{"ok":true}"#);
    }
    ask("GET", "http://relay.example/healthz", "evil.test").expect(200, r#"{"ok":true}"#);
    for host in ["", "127.0.0.2", "[::1]", "relay.example.evil.test", "relay.example."] {
        ask("GET", "/healthz", host).expect_refusal(421, "misdirected");
    }
    let (_, without) = Http::exchange(&relay, "GET /healthz HTTP/1.0\r\n\r\n");
    without.expect(200, r#"{"ok":true}"#);
}

// ── POST /events: what is refused before the lines are read ──

#[test]
fn the_protocol_version_is_negotiated_by_header() {
    let relay = Relay::plain();
    for version in ["0.1", "0.2", "0.99"] {
        let body = event("s", 1).build();
        let response = relay.request("POST", "/events", &[JSON, ("AEP-Version", version)], body.as_bytes());
        response.expect(202, r#"{"accepted":1}"#);
    }
    let mut http = Http::connect(&relay);
    for version in ["1.0", "0", "0.", ".1", "0.x", "0.1.0", "00.1", "0.1 beta", "-0.1", "v0.1"] {
        let body = event("never", 1).build();
        http.send(request("POST", "/events", &[JSON, ("aep-version", version)], body.as_bytes()));
        let response = http.response();
        response.expect(426, r#"{"versions":["0.1"]}"#);
        response.json();
    }
    http.expect_alive();
    assert_eq!(relay.count("sessions"), 1);
}

#[test]
fn only_the_two_content_types_pass() {
    let relay = Relay::plain();
    for kind in [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=utf-8",
        "Application/JSON",
        "application/x-ndjson",
        "application/x-ndjson ; a=b",
    ] {
        let body = event("s", 1).build();
        let response = relay.request("POST", "/events", &[("Content-Type", kind)], body.as_bytes());
        assert_eq!(response.status, 202, "{kind}: {response:?}");
    }
    let mut http = Http::connect(&relay);
    let body = event("never", 1).build();
    for fields in [
        &[][..],
        &[("Content-Type", "text/plain")],
        &[("Content-Type", "application/jsonx")],
        &[("Content-Type", "application/json2; application/json")],
        &[("Content-Type", "application/ndjson")],
        &[("Content-Type", "")],
        &[JSON, ("Content-Encoding", "gzip")],
        &[JSON, ("Content-Encoding", "br")],
        &[NDJSON, ("Content-Encoding", "identity, gzip")],
    ] {
        http.send(request("POST", "/events", fields, body.as_bytes()));
        http.response().expect_refusal(415, "unsupported-media-type");
    }
    http.expect_alive();
    assert_eq!(relay.count("sessions"), 1);
    let fields = [JSON, ("Content-Encoding", "identity")];
    assert_eq!(relay.request("POST", "/events", &fields, body.as_bytes()).status, 202);
}

#[test]
fn a_body_may_be_as_large_as_the_limit_and_no_larger() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BODY", 1000);
    });
    let padded = |length: usize| {
        let bare = event("s", 1).data(r#"{"p":""}"#).build().len();
        let body = event("s", 1).data(&format!(r#"{{"p":"{}"}}"#, "x".repeat(length - bare - 8))).build();
        format!("{body}{}", " ".repeat(length - body.len()))
    };
    let chunked = |body: &str| {
        let (first, second) = body.split_at(400);
        format!(
            "POST /events HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{first}\r\n{:X}\r\n{second}\r\n0\r\n\r\n",
            first.len(),
            second.len()
        )
    };
    relay.post(padded(1000)).expect(202, r#"{"accepted":1}"#);
    Http::exchange(&relay, chunked(&padded(1000))).1.expect(202, r#"{"accepted":1}"#);
    let detail = relay.post(padded(1001)).expect_refusal(413, "payload-too-large");
    assert!(detail["detail"].as_str().unwrap().contains("AEP_MAX_BODY"), "the detail names the limit: {detail}");
    Http::exchange(&relay, chunked(&padded(1001))).1.expect_refusal(413, "payload-too-large");
}

#[test]
fn a_batch_may_be_as_long_as_the_limit_and_no_longer() {
    let relay = Relay::start(|options| {
        options.env("AEP_MAX_BATCH", 3);
    });
    let lines: Vec<String> = (0..4).map(|seq| event("s", seq).build()).collect();
    relay.post_lines(format!("\n{}\n\r\n{}\n\n{}\n\n", lines[0], lines[1], lines[2])).expect(202, r#"{"accepted":3}"#);
    let mut http = Http::connect(&relay);
    let refusal = |http: &mut Http, body: &str| {
        http.send(request("POST", "/events", &[NDJSON], body.as_bytes()));
        http.response().expect_refusal(413, "too-many-events")
    };
    let detail = refusal(&mut http, &lines.join("\n"));
    assert!(detail["detail"].as_str().unwrap().contains("AEP_MAX_BATCH"), "{detail}");
    refusal(&mut http, "{}\n{}\n{}\n{}");
    http.expect_alive();
    assert_eq!(Sse::replay(&relay, &[]).len(), 3, "nothing of the refused batches");
}

#[test]
fn faults_answer_in_the_documented_order() {
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_MAX_BODY", 2000).env("AEP_MAX_BATCH", 4);
    });
    let authorized = ("Authorization", "Bearer sesame");
    let bad_version = ("AEP-Version", "7");
    let large = "x".repeat(2001);
    let command = command("control.cancel", "s").build();
    let good = event("s", 1).build();
    let ask = |method: &str, target: &str, fields: &[(&str, &str)], body: &str| {
        Http::exchange(&relay, request(method, target, fields, body.as_bytes())).1
    };

    let text = ("Content-Type", "text/plain");
    let (_, syntax) = Http::exchange(&relay, "DELETE /nowhere HTTP/1.1\r\n\r\n");
    syntax.expect_refusal(400, "bad-request");
    ask("DELETE", "/nowhere", &[bad_version], &large).expect_refusal(404, "not-found");
    ask("DELETE", "/events", &[bad_version, text], "").expect_refusal(405, "method-not-allowed");
    ask("POST", "/events", &[bad_version, text], &large).expect(401, r#"{"error":"unauthorized"}"#);
    ask("POST", "/events", &[authorized, bad_version, text], &large).expect(426, r#"{"versions":["0.1"]}"#);
    ask("POST", "/events", &[authorized, text], &large).expect_refusal(415, "unsupported-media-type");
    ask("POST", "/events", &[authorized, NDJSON], &"\n1".repeat(1001)).expect_refusal(413, "payload-too-large");
    ask("POST", "/events", &[authorized, NDJSON], "1\n2\n3\n4\n5").expect_refusal(413, "too-many-events");

    let lines = |lines: &[&str]| ask("POST", "/events", &[authorized, NDJSON], &lines.join("\n"));
    assert_eq!(lines(&[&good, &command, "{"]).expect_refusal(403, "control-requires-duplex")["line"], 2);
    assert_eq!(lines(&[&good, "{", &command]).expect_refusal(400, "invalid-json")["line"], 2);
    assert_eq!(lines(&[&good, "{}", "{"]).expect_refusal(400, "invalid-event")["line"], 2);
    let invalid_command = crate::support::command("control.cancel", "s").field("seq", "1").build();
    assert_eq!(lines(&[&invalid_command]).expect_refusal(400, "invalid-event")["line"], 1);
    assert_eq!(relay.count("sessions"), 0);

    for target in ["/stream?filter=x&from=x&capture=x", "/stream?from=x", "/stream?capture=x"] {
        ask("GET", target, &[], "").expect(401, r#"{"error":"unauthorized"}"#);
    }
}
