//! The floors of the house, read from the sources: imports point down only and make no circle, a folder has few
//! members, and clock, sockets, files, threads and the environment each have their homes.
//!
//! A path counts wherever it is written, in a `use` or in the middle of an expression. Unit tests keep to the arrows
//! like everyone else, but may open sockets and files.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod parts;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use sources::{Source, collect, report, sources};

/// What each room of `src/` may see of the others, by path prefix. A room may always see itself; a room without a row
/// fails the test.
const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("limits", &[]),
    ("wire", &["base", "limits"]),
    ("ops", &["base", "limits"]),
    ("engine", &["wire", "base", "limits", "ops::metrics"]),
    ("protocol", &["engine::service", "wire", "base", "limits", "ops::metrics"]),
    ("gateway", &["relay", "protocol", "engine::service", "wire", "base", "limits", "ops"]),
    ("server", &["gateway", "relay", "protocol", "engine", "ops", "wire", "base", "limits"]),
    ("main", &["server", "ops"]),
    ("lib", &[]),
];

/// The protocols, those to come included. None of them sees another.
const PROTOCOLS: &[&str] = &["relay", "sessions", "devices"];

/// What each protocol may see.
const PROTOCOL_SEES: &[&str] = &["protocol", "engine::service", "wire", "base", "limits", "ops::auth", "ops::metrics"];

/// What has a home: the words that betray it, and where they may stand outside of unit tests.
const HOMES: &[(&[&str], &[&str])] = &[
    (&["mio::", "socket2::"], &["engine/"]),
    (&["Instant::now", ".elapsed()"], &["engine/core/", "ops/log/"]),
    (&["SystemTime::now"], &["engine/core/", "ops/"]),
    (&["std::fs", "File::open"], &["engine/listener.rs", "ops/config/", "ops/machine.rs", "ops/shutdown.rs"]),
    (
        &["std::net", "TcpListener", "TcpStream"],
        &["engine/", "ops/config.rs", "ops/hosts.rs", "ops/origins.rs", "server.rs"],
    ),
    (&["std::env"], &["ops/config.rs"]),
    (&["std::thread", "thread::"], &["engine/", "ops/log", "ops/shutdown.rs", "ops/machine.rs", "server.rs"]),
    (&["thread::sleep"], &["ops/log/"]),
    (&["std::process"], &["main.rs", "server.rs", "ops/config.rs", "ops/shutdown.rs", "engine/"]),
];

/// Modules of one folder.
const SIBLINGS_MAX: usize = 16;

/// What rustfmt keeps code to; comments it leaves alone. Rows of a table cannot be broken.
const COLUMNS: usize = 120;

/// Rooms that stand on `std` alone.
const STD_ONLY: &[&str] = &["base", "limits"];

#[test]
fn imports_point_down_only() {
    report(sources().iter().flat_map(crossed_arrows));
}

#[test]
fn clock_sockets_files_and_threads_have_one_home() {
    report(sources().iter().flat_map(strays));
}

#[test]
fn the_foundation_stands_on_std_alone() {
    report(sources().iter().flat_map(foreign_crates));
}

#[test]
fn every_file_says_what_it_owns() {
    report(sources().into_iter().filter(|s| !s.text.starts_with("//! ")).map(|s| format!("{}: no `//!`", s.path)));
}

#[test]
fn no_file_imports_another_that_imports_it() {
    report(circles(&sources()).into_iter());
}

/// The imports that make circles of files. What a file has of the module that it is a part of is no import.
fn circles(sources: &[Source]) -> Vec<String> {
    let modules: BTreeMap<String, &str> =
        sources.iter().map(|source| (source.module().join("::"), source.path.as_str())).collect();
    let of = |source: &Source| {
        let own = source.module().join("::");
        let module_of = |path: String| {
            let ends = path.match_indices("::").map(|(at, _)| at).chain([path.len()]);
            ends.filter_map(|end| modules.get_key_value(&path[..end])).last().map(|(module, _)| module.clone())
        };
        let within = |module: &String| own == *module || own.starts_with(&format!("{module}::")) || module.is_empty();
        let imported = source.imports().into_iter().filter_map(module_of).filter(|module| !within(module)).collect();
        (own, imported)
    };
    let mut imports: BTreeMap<String, BTreeSet<String>> = sources.iter().map(of).collect();
    // Who imports nobody, or is imported by nobody, is in no circle; nor is, without them, who is left so.
    loop {
        let imported: BTreeSet<String> = imports.values().flatten().cloned().collect();
        let left: BTreeSet<String> = imports
            .iter()
            .filter(|(of, to)| !to.is_empty() && imported.contains(*of))
            .map(|(of, _)| of.clone())
            .collect();
        let before = imports.values().map(BTreeSet::len).sum::<usize>();
        imports.retain(|of, _| left.contains(of));
        imports.values_mut().for_each(|to| to.retain(|to| left.contains(to)));
        if imports.values().map(BTreeSet::len).sum::<usize>() == before {
            break;
        }
    }
    imports.iter().flat_map(|(of, to)| to.iter().map(move |to| format!("{of} → {to} is in a circle"))).collect()
}

#[test]
fn a_circle_is_seen_through_any_number_of_files() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let leads_in = source("relay/mod.rs", "mod a;\nmod b;\nmod c;\nuse a::A;");
    let leaf = source("relay/c.rs", "use super::Relay;");
    let straight = [source("relay/a.rs", "use crate::relay::b::B;"), source("relay/b.rs", "use super::c::C;")];
    let [a, b] = straight;
    assert_eq!(circles(&[leads_in, leaf, a, b]), Vec::<String>::new(), "a part may name its whole");
    let a = source("relay/a.rs", "use crate::relay::b::{B, D};");
    let b = source("relay/b.rs", "mod inner;\nfn f() { inner::g() }");
    let inner = source("relay/b/inner.rs", "use super::super::a::A;\n#[cfg(test)]\nmod tests { use crate::relay::c; }");
    assert_eq!(
        circles(&[a, b, inner]),
        ["relay::a → relay::b", "relay::b → relay::b::inner", "relay::b::inner → relay::a"]
            .map(|import| format!("{import} is in a circle"))
    );
}

#[test]
fn a_folder_has_no_more_siblings_than_one_holds_in_mind() {
    let mut siblings: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources() {
        let mut module = source.module();
        while let Some(name) = module.pop() {
            siblings.entry(module.join("/")).or_default().insert(name);
        }
    }
    let many = siblings.iter().filter(|(_, of)| of.len() > SIBLINGS_MAX);
    report(many.map(|(folder, of)| format!("{folder}: {} siblings, at most {SIBLINGS_MAX}", of.len())));
}

#[test]
fn comments_keep_to_the_width_of_the_code() {
    let wide = |source: Source| {
        let lines = source.text.lines().enumerate();
        let comments = lines.filter(|(_, line)| {
            line.trim_start().starts_with("//") && !line.starts_with("//! |") && line.chars().count() > COLUMNS
        });
        let found: Vec<_> =
            comments.map(|(at, _)| format!("{}:{}: wider than {COLUMNS}", source.path, at + 1)).collect();
        found
    };
    report(sources().into_iter().flat_map(wide));
}

#[test]
fn every_guard_on_the_authors_page_exists() {
    let page = sources().into_iter().find(|source| source.path == "protocol/mod.rs").unwrap().text;
    let guards = guards(&page);
    assert!(guards.len() > 30, "the page names its guards");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(&root.join("src"), &mut files);
    collect(&root.join("tests"), &mut files);
    let exists = |(file, test): &(String, String)| {
        let ends = [format!("/{file}.rs"), format!("/{file}/mod.rs"), format!("/{file}/tests.rs")];
        let of_file = files.iter().filter(|path| ends.iter().any(|end| path.to_str().unwrap().ends_with(end)));
        of_file.into_iter().any(|path| fs::read_to_string(path).unwrap().contains(&format!("fn {test}()")))
    };
    report(guards.into_iter().filter(|guard| !exists(guard)).map(|(file, test)| format!("no test {file}::{test}")));
}

/// The tests that a page names as `` `file::a_sentence_of_words` ``.
fn guards(page: &str) -> Vec<(String, String)> {
    let comments = page.lines().filter_map(|line| line.strip_prefix("//! ")).collect::<Vec<_>>().join(" ");
    let quoted = comments.split('`').skip(1).step_by(2);
    let named = quoted.filter_map(|text| text.rsplit_once("::"));
    let sentences = named.filter(|(_, test)| test.matches('_').count() >= 3);
    sentences.map(|(file, test)| (file.to_owned(), test.to_owned())).collect()
}

#[test]
fn a_guard_is_a_sentence_in_a_file() {
    let page =
        "//! Rule ([`Service::on_body`]). `engine/http::a_rule_that_is_kept`,\n//! `next::to_it_on_one_line`. `a::b`";
    let guard = |file: &str, test: &str| (file.to_owned(), test.to_owned());
    assert_eq!(guards(page), [guard("engine/http", "a_rule_that_is_kept"), guard("next", "to_it_on_one_line")]);
}

/// What a room may see of the others; nothing if it is no room.
fn sees(room: &str) -> Option<&'static [&'static str]> {
    if PROTOCOLS.contains(&room) {
        return Some(PROTOCOL_SEES);
    }
    ARROWS.iter().find(|(of, _)| *of == room).map(|(_, allowed)| *allowed)
}

fn crossed_arrows(source: &Source) -> Vec<String> {
    let Some(allowed) = sees(source.room()) else {
        return vec![format!("{}: room `{}` has no row among the arrows", source.path, source.room())];
    };
    let foreign = |path: &&String| {
        let room = path.split("::").next().unwrap();
        let permitted = |prefix: &&str| *path == prefix || path.starts_with(&format!("{prefix}::"));
        sees(room).is_some() && room != source.room() && !allowed.iter().any(permitted)
    };
    let paths = source.crate_paths();
    paths.iter().filter(foreign).map(|path| format!("{}: may not see `{path}`", source.path)).collect()
}

fn strays(source: &Source) -> Vec<String> {
    let code = source.production();
    let away = HOMES.iter().filter(|(_, homes)| !homes.iter().any(|home| source.path.starts_with(home)));
    let words = away.flat_map(|(words, _)| words.iter()).filter(|word| names(&code, word));
    words.map(|word| format!("{}: `{word}` is not at home here", source.path)).collect()
}

fn foreign_crates(source: &Source) -> Vec<String> {
    if !STD_ONLY.contains(&source.room()) {
        return Vec::new();
    }
    let code = source.production();
    let used = code.lines().filter_map(|line| {
        let line = line.trim_start().trim_start_matches("pub ");
        line.strip_prefix("use ")?.split([':', ';', ' ']).next()
    });
    let foreign = used.filter(|root| !["std", "core", "alloc", "crate", "super", "source"].contains(root));
    foreign.map(|root| format!("{}: uses `{root}`", source.path)).collect()
}

/// Whether the code names the path, as a whole word at its beginning.
fn names(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        word.starts_with('.') || !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[test]
fn an_arrow_that_points_up_is_seen_however_it_is_written() {
    for (path, line) in [
        ("relay/filter.rs", "use crate::gateway::routes;"),
        ("relay/filter.rs", "use crate::engine::core::Core;"),
        ("relay/filter.rs", "use crate::{base::ring, gateway};"),
        ("relay/filter.rs", "use crate::ops::{auth::Access, config::Config};"),
        ("relay/filter.rs", "fn f() { crate::server::run() }"),
        ("relay/filter.rs", "use super::super::gateway::routes;"),
        ("wire/json.rs", "use crate::relay::event::Event;"),
        ("engine/connection/http.rs", "use crate::{\n    limits::{self, Limits},\n    ops::{metrics, auth},\n};"),
        ("limits.rs", "use crate::base::time::Now;"),
        ("attic/junk.rs", ""),
        // From the protocols' floor up, and into the rest of the engine.
        ("protocol/owners.rs", "use crate::relay::Shared;"),
        ("protocol/owners.rs", "use crate::sessions::error;"),
        ("protocol/owners.rs", "use crate::gateway::Gateway;"),
        ("protocol/owners.rs", "fn f() { crate::server::run() }"),
        ("protocol/inflow.rs", "use crate::engine::mailbox::Mailbox;"),
        ("protocol/inflow.rs", "use crate::engine::{service::Mail, core};"),
        ("protocol/mod.rs", "use super::engine::core::Core;"),
        ("protocol/by_conn.rs", "use crate::ops::{auth::Access, metrics::CoreMetrics};"),
        // Into it from below.
        ("engine/core/", "use crate::protocol::by_conn::ByConn;"),
        ("wire/url.rs", "use crate::protocol::owners;"),
        // From one protocol to another.
        ("relay/mod.rs", "use crate::sessions::envelope;"),
        ("relay/filter/parse.rs", "use super::super::super::devices::lease;"),
        ("sessions/log.rs", "use crate::relay::buffer::Buffer;"),
        ("devices/rpc.rs", "use crate::{protocol::by_conn::ByConn, sessions::lifecycle};"),
    ] {
        let source = Source { path: path.to_owned(), text: line.to_owned() };
        assert_eq!(crossed_arrows(&source).len(), 1, "{path}: {line}");
    }
}

#[test]
fn an_arrow_that_points_down_is_let_pass() {
    for (path, line) in [
        ("relay/filter.rs", "use crate::engine::service::{ConnId, Outbox};"),
        ("relay/filter.rs", "use crate::ops::{auth, metrics::{Counter, Gauge}};\nuse super::event::Event;"),
        ("relay/filter.rs", "// once lived in crate::gateway"),
        ("relay/reader.rs", "use crate::protocol::by_conn::ByConn;"),
        ("sessions/mod.rs", "use crate::{engine::service::Outbox, protocol::barrier, ops::metrics::CoreMetrics};"),
        ("protocol/owners.rs", "use crate::{engine::service::{ConnId, Mail}, base, limits, ops::metrics, wire::json};"),
        ("gateway/mod.rs", "use crate::{protocol, relay::Relay};"),
        ("engine/core/", "use super::service::Service; use crate::wire::http1::{self, RequestHead};"),
        ("main.rs", "use aep_relay::{ops::config::Config, server};"),
    ] {
        let source = Source { path: path.to_owned(), text: line.to_owned() };
        assert_eq!(crossed_arrows(&source), Vec::<String>::new(), "{path}: {line}");
    }
}

#[test]
fn a_stray_clock_socket_or_thread_is_seen() {
    for (path, text) in [
        ("relay/replay.rs", "let now = std::time::Instant::now();"),
        ("engine/connection/http.rs", "let now = Instant::now();"),
        ("gateway/mod.rs", "use mio::Poll;"),
        ("wire/json.rs", "use std::fs::File;"),
        ("engine/core/mod.rs", "std::thread::sleep(time);"),
    ] {
        let source = Source { path: path.to_owned(), text: text.to_owned() };
        assert!(!strays(&source).is_empty(), "{path}: {text}");
        let tested = Source { path: path.to_owned(), text: format!("#[cfg(test)]\nmod tests {{ {text} }}") };
        assert!(strays(&tested).is_empty(), "{path}: {text}");
    }
    let foreign = Source { path: "base/ring.rs".to_owned(), text: "use memchr::memchr;".to_owned() };
    assert_eq!(foreign_crates(&foreign), ["base/ring.rs: uses `memchr`"]);
}
