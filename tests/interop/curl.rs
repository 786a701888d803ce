//! `curl`: its ways to upload, to follow a stream and to keep a connection. The README's lines are run by `readme.rs`.

use std::io::Write;
use std::process::Stdio;

use crate::support::*;
use crate::tool::{self, Program};

#[track_caller]
fn has_curl() -> bool {
    let found = tool::find(&["curl"]).is_some() && tool::find(&["sh"]).is_some();
    if !found {
        tool::skip("curl");
    }
    found
}

/// Runs a line of shell; answers what it printed.
#[track_caller]
fn shell(relay: &Relay, line: &str, input: &[u8]) -> String {
    let mut command = tool::command("sh", relay);
    // `curl` reads no configuration of the user's.
    command
        .env("CURL_HOME", "/nonexistent")
        .env("HOME", "/nonexistent")
        .env("R", format!("http://{}", relay.address()));
    command.args(["-c", line]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a shell starts");
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Whoever refuses an upload need not read it to the end.
            let _ = stdin.write_all(input);
        });
    });
    let output = child.wait_with_output().expect("the shell can be waited for");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_stream_can_be_followed() {
    if !has_curl() {
        return;
    }
    let relay = Relay::start(|options| {
        options.token("sesame");
    });
    let mut command = tool::command("curl", &relay);
    command.args(["-q", "-sNf", "-H", "Authorization: Bearer sesame", &format!("http://{}/stream", relay.address())]);
    let mut program = Program::start(&mut command);
    assert_eq!([program.line(), program.line()], [": open", ""]);
    let mut relay = relay;
    for seq in 1..=3 {
        let sent = event("s", seq).build();
        relay.publish(&[&sent]);
        let lines: Vec<String> = (0..4).map(|_| program.line()).collect();
        assert_eq!(
            lines,
            [format!("id: s:0:{seq}"), "event: run.started".to_owned(), format!("data: {sent}"), String::new()]
        );
    }
    assert_eq!(relay.term().code(), Some(0));
    // The end of the body is clean: `curl` succeeds.
    assert_eq!(program.rest(), [": shutting-down", ""]);
}

#[test]
fn uploads_of_all_kinds_are_answered() {
    if !has_curl() {
        return;
    }
    let relay = Relay::start(|options| {
        options.token("sesame").env("AEP_MAX_BODY", 2_000_000);
    });
    let post = r#"curl -q -s -w ' %{http_code}' -H "Authorization: Bearer $RELAY_TOKEN" $R/events --data-binary @-"#;
    let large: Vec<String> = (1..=10_000).map(|seq| event("s", seq).build()).collect();
    let large = &large.join("\n")[..];
    assert!(large.len() > 1_100_000 && large.len() < 2_000_000, "{}", large.len());
    let accepted = "{\"accepted\":10000} 202";
    // Above a mebibyte `curl` waits to be told to go on; it would wait for ten minutes.
    let ways = [
        "-H 'Content-Type: application/x-ndjson' --expect100-timeout 600",
        "-H 'Content-Type: application/x-ndjson' -H 'Expect: 100-continue' --expect100-timeout 600",
        "-H 'Content-Type: application/x-ndjson; charset=utf-8' -H 'Expect:'",
        "-H 'Content-Type: application/x-ndjson' -H 'Transfer-Encoding: chunked' -H 'Expect: 100-continue' --expect100-timeout 600",
        "-H 'Content-Type: application/x-ndjson' --http1.0",
        // Offers HTTP/2, which is not taken up.
        "-H 'Content-Type: application/x-ndjson' --http2",
    ];
    for way in ways {
        assert_eq!(shell(&relay, &format!("{post} {way}"), large.as_bytes()), accepted, "{way}");
    }
    let over = "x".repeat(30_000_000);
    for way in ["-H 'Expect:'", "-H 'Transfer-Encoding: chunked' -H 'Expect:'", "--expect100-timeout 600"] {
        let printed = shell(&relay, &format!("{post} -H 'Content-Type: application/json' {way}"), over.as_bytes());
        assert!(
            printed.starts_with(r#"{"error":"payload-too-large","#) && printed.ends_with(" 413"),
            "{way}: {printed}"
        );
    }
    let wrong = post.replace("$RELAY_TOKEN", "wrong");
    assert_eq!(shell(&relay, &wrong, b"{}"), r#"{"error":"unauthorized"} 401"#);
}

#[test]
fn one_connection_serves_many_requests() {
    if !has_curl() {
        return;
    }
    let relay = Relay::plain();
    let paths = ["events", "nowhere", "healthz", "events"].map(|path| format!("-o /dev/null $R/{path} ")).concat();
    let line = format!("curl -q -s -w '%{{http_code}} %{{num_connects}}\\n' {paths}");
    assert_eq!(shell(&relay, &line, b""), "200 1\n404 0\n200 0\n200 0\n");
}
