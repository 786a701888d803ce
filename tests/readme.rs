//! The README's try-it lines: every `console` block is run against a fresh relay, in order, and must print what the
//! README shows. Needs a POSIX shell and `curl`; skipped without them, unless `AEP_INTEROP=require`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod support;

use std::process::Command;

use support::Relay;

const ADDRESS: &str = "http://127.0.0.1:8787";

/// Commands and what each prints.
fn console_lines(readme: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, _) => match (line.strip_prefix("$ "), found.last_mut()) {
                (Some(command), _) => found.push((command.to_owned(), String::new())),
                (None, Some((_, output))) => {
                    output.push_str(line);
                    output.push('\n');
                }
                (None, None) => panic!("output before any command: {line}"),
            },
            (false, _) => {}
        }
    }
    found
}

#[test]
fn the_readme_prints_what_it_says() {
    if Command::new("curl").arg("--version").output().is_err() {
        assert_ne!(std::env::var("AEP_INTEROP").as_deref(), Ok("require"), "curl is missing");
        println!("skipped: no curl");
        return;
    }
    let lines = console_lines(include_str!("../README.md"));
    assert!(lines.len() >= 6, "the README lost its console blocks");
    let relay = Relay::plain();
    for (command, expected) in lines {
        let command = command.replace(ADDRESS, &format!("http://{}", relay.address()));
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        // Answers end without a line end, which a terminal would not show.
        assert_eq!(printed.trim_end(), expected.trim_end(), "{command}");
    }
}
