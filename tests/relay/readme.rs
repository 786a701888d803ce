//! The pages tell the truth: what the README's `console` blocks show is what a fresh relay prints, what pages link to
//! and name exists, every section that the sources cite is in the contract, and the tables of settings are those of
//! `--help`.
//!
//! Running the README needs a POSIX shell and `curl`; it is skipped without them, unless `AEP_INTEROP=require`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Relay;

const ADDRESS: &str = "http://127.0.0.1:8787";

const PAGES: &[&str] =
    &["README.md", "src/README.md", "src/ops/README.md", "src/relay/PROTOCOL.md", "tests/README.md", "perf/README.md"];

/// Words of the README: it is a door, and what is behind it has pages of its own.
const README_WORDS_MAX: usize = 1800;

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
    let lines = console_lines(include_str!("../../README.md"));
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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_readme_is_a_door() {
    let words = page("README.md").split_whitespace().count();
    assert!(words <= README_WORDS_MAX, "{words} words");
}

#[test]
fn what_pages_link_to_and_name_exists() {
    let mut missing = Vec::new();
    for path in PAGES {
        let text = page(path);
        let folder = Path::new(path).parent().unwrap();
        let links = links(&text).into_iter().filter(|link| !root().join(folder).join(link).exists());
        missing.extend(links.map(|link| format!("{path} links to {link}")));
        let homes = [Path::new(""), Path::new("src"), folder];
        let named = named_files(&text).into_iter();
        let named = named.filter(|name| !homes.iter().any(|home| root().join(home).join(name).exists()));
        missing.extend(named.map(|name| format!("{path} names {name}")));
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// Targets of links within the repository, without their anchors.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    local.map(|target| target.split('#').next().unwrap().to_owned()).collect()
}

/// Sources and folders that stand in backticks, such as `engine/mod.rs` or `tests/fuzz/`.
fn named_files(text: &str) -> Vec<String> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let plain = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || "_/.-".contains(c));
    let files = quoted.filter(plain).filter(|name| name.ends_with(".rs") || (name.len() > 1 && name.ends_with('/')));
    files.map(str::to_owned).collect()
}

#[test]
fn a_link_or_name_is_seen() {
    let text = "See [a](b/c.md#d), [e](https://f) and [g](#h); `i/j.rs` and `k/`, not `l` nor `/`.";
    assert_eq!(links(text), ["b/c.md"]);
    assert_eq!(named_files(text), ["i/j.rs", "k/"]);
}

#[test]
fn every_section_that_the_sources_cite_is_in_the_contract() {
    let contract = page("src/relay/PROTOCOL.md");
    let sections: Vec<&str> = contract.lines().filter_map(section).collect();
    assert!(sections.contains(&"6.7"), "{sections:?}");
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let mut missing = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let of_codecs = file.strip_prefix(root().join("src")).unwrap().starts_with("wire");
        let cited = cited_sections(&text, of_codecs).into_iter().filter(|cited| !sections.contains(&cited.as_str()));
        missing.extend(cited.map(|cited| format!("{}: §{cited}", file.display())));
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// The number of a heading: `## 4. HTTP` → `4`, `### 6.1 Hello` → `6.1`.
fn section(line: &str) -> Option<&str> {
    let number = line.strip_prefix('#')?.trim_start_matches('#').trim_start().split(' ').next()?.trim_end_matches('.');
    number.starts_with(|c: char| c.is_ascii_digit()).then_some(number)
}

/// Sections of the contract that a source cites. Those behind the name of another document are of that one; and of a
/// codec, whose documents are RFCs, only those that are said to be the contract's count.
fn cited_sections(text: &str, of_codecs: bool) -> Vec<String> {
    let text = text.lines().map(|line| line.trim_start().trim_start_matches(['/', '!'])).collect::<Vec<_>>().join(" ");
    let mut cited = Vec::new();
    for (at, sign) in text.match_indices('§') {
        // As far as the sentence or bracket goes.
        let before = &text[..at];
        let begins =
            [before.rfind('(').map(|at| at + 1), before.rfind(". ").map(|at| at + 2)].into_iter().flatten().max();
        let before = &before[begins.unwrap_or(0)..];
        let last = |word: &str| before.rfind(word);
        let foreign = last("RFC ").max(last("WHATWG"));
        let ours = last("contract");
        if foreign > ours || (of_codecs && ours.is_none()) {
            continue;
        }
        let number: String = text[at + sign.len()..].chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        cited.push(number.trim_end_matches('.').to_owned());
    }
    cited
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn a_cited_section_is_seen() {
    let text = "//! Frames (contract §6.1, §7; RFC 6455 §5.5).\n/// As §4 says.\n// RFC 9112 §2.2, contract §3.";
    assert_eq!(cited_sections(text, false), ["6.1", "7", "4", "3"]);
    assert_eq!(cited_sections(text, true), ["6.1", "7", "3"]);
    assert_eq!(["## 4. HTTP", "### 6.1 Hello", "## Choices", "4."].map(section), [Some("4"), Some("6.1"), None, None]);
}

#[test]
fn the_tables_of_settings_are_those_of_the_help() {
    let help = Command::new(env!("CARGO_BIN_EXE_aep-relay")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let all = settings(&page("src/ops/README.md"));
    assert!(all.len() > 25, "the table of settings is found");
    for (variable, [flag, _]) in &all {
        assert!(help.contains(variable.as_str()), "{variable} is not in --help");
        assert!(flag == "(none)" || help.contains(flag.as_str()), "{flag} is not in --help");
    }
    let flags = help
        .split_whitespace()
        .filter(|word| word.starts_with("--"))
        .map(|word| word.trim_end_matches([',', '.', ']']));
    for flag in flags.filter(|flag| !["--help", "--version"].contains(flag)) {
        assert!(all.values().any(|[of, _]| of == flag), "{flag} is not in the table");
    }
    let ten = settings(&page("README.md"));
    assert_eq!(ten.len(), 10);
    for (variable, row) in &ten {
        assert_eq!(all.get(variable), Some(row), "{variable}");
    }
}

/// Variable → flag and default, of a table of settings.
fn settings(text: &str) -> BTreeMap<String, [String; 2]> {
    let cells = text.lines().filter(|line| line.starts_with("| `AEP_")).map(|line| line.split('|').map(str::trim));
    let bare = |cell: &str| cell.trim_matches('`').to_owned();
    cells
        .map(|mut cells| {
            let variable = bare(cells.nth(1).unwrap());
            (variable, [bare(cells.next().unwrap()), bare(cells.next().unwrap())])
        })
        .collect()
}
