//! The sources as text: which paths a file names, and which of its code is outside of tests. Nothing is parsed but by
//! the layout that rustfmt gives it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Fails with a line for each offender.
pub(crate) fn report(offenders: impl Iterator<Item = String>) {
    let offenders: BTreeSet<String> = offenders.collect();
    assert!(offenders.is_empty(), "\n{}", offenders.into_iter().collect::<Vec<_>>().join("\n"));
}

/// A file of `src/`.
pub(crate) struct Source {
    /// Relative to `src/`, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

pub(crate) fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(files.len() > 10, "the sources are where they are looked for");
    let source = |file: PathBuf| Source {
        path: file.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/"),
        text: fs::read_to_string(&file).unwrap(),
    };
    files.into_iter().map(source).collect()
}

pub(crate) fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

impl Source {
    /// `relay/filter.rs` → `relay`; `limits.rs` → `limits`.
    pub(crate) fn room(&self) -> &str {
        let first = self.path.split('/').next().unwrap();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// `relay/filter.rs` → `["relay", "filter"]`.
    pub(crate) fn module(&self) -> Vec<String> {
        let parts = self.path.trim_end_matches(".rs").split('/').map(str::to_owned);
        parts.filter(|part| part != "mod" && part != "lib" && part != "main").collect()
    }

    /// Every path into this crate that the file names, from the crate's root, groups taken apart.
    pub(crate) fn crate_paths(&self) -> Vec<String> {
        self.paths_in(&without_comments(&self.text))
    }

    /// The same of some of its code.
    fn paths_in(&self, code: &str) -> Vec<String> {
        let mut paths = Vec::new();
        // Only the binary names the library from outside; elsewhere the name is a log target.
        let outside = if self.room() == "main" { "aep_relay::" } else { "crate::" };
        for (root, base) in [(outside, Vec::new()), ("super::", self.module())] {
            let mut rest = code;
            while let Some(at) = rest.find(root) {
                let preceded =
                    rest[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':');
                rest = &rest[at..];
                let tail = rest.trim_start_matches("super::");
                let ups = (rest.len() - tail.len()) / "super::".len();
                let tail = if ups == 0 { &rest[root.len()..] } else { tail };
                let mut base = base.clone();
                base.truncate(base.len().saturating_sub(ups));
                if !preceded {
                    expand(tail, &base.join("::"), &mut paths);
                }
                rest = tail;
            }
        }
        paths
    }

    /// Every path into this crate that the file names outside of the tests in it, those into its child modules
    /// included.
    pub(crate) fn imports(&self) -> Vec<String> {
        let code = without_comments(&self.text);
        let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let mut paths = self.paths_in(code);
        let declared =
            code.lines().filter_map(|line| line.trim().strip_suffix(';')?.rsplit_once("mod ").map(|(_, name)| name));
        for child in declared {
            let base = [self.module(), vec![child.to_owned()]].concat().join("::");
            let root = format!("{child}::");
            for (at, _) in code.match_indices(&root) {
                let before = code[..at].chars().next_back();
                if !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                    expand(&code[at + root.len()..], &base, &mut paths);
                }
            }
        }
        paths
    }

    /// The code outside of unit tests and comments.
    pub(crate) fn production(&self) -> String {
        let of_tests = ["/tests/", "/simulation/"].iter().any(|room| self.path.contains(room));
        if self.path.ends_with("tests.rs") || of_tests {
            return String::new();
        }
        let code = without_comments(&self.text);
        match code.find("#[cfg(test)]\nmod ") {
            Some(at) => code[..at].to_owned(),
            None => code,
        }
    }
}

/// `a::{b, c::{d, e}}` under the prefix `p` → `p::a::b`, `p::a::c::d`, `p::a::c::e`. Stops where the path does.
fn expand(text: &str, prefix: &str, paths: &mut Vec<String>) -> usize {
    let join = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}::{name}") };
    let trimmed = text.trim_start();
    let skipped = text.len() - trimmed.len();
    if let Some(group) = trimmed.strip_prefix('{') {
        let mut at = 0;
        while let Some(rest) = group.get(at..).filter(|rest| !rest.trim_start().starts_with('}')) {
            at += expand(rest, prefix, paths);
            match group[at..].find([',', '}']) {
                Some(end) if group[at + end..].starts_with(',') => at += end + 1,
                _ => break,
            }
        }
        return skipped + 1 + at + group[at..].find('}').map_or(0, |end| end + 1);
    }
    let name_len = trimmed.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(trimmed.len());
    let (name, rest) = trimmed.split_at(name_len);
    match rest.strip_prefix("::") {
        Some(deeper) if !name.is_empty() => skipped + name_len + 2 + expand(deeper, &join(name), paths),
        _ => {
            paths.push(if name.is_empty() || name == "self" { prefix.to_owned() } else { join(name) });
            skipped + name_len
        }
    }
}

/// The text without `//` comments; a `//` inside a string hides at most the rest of its line.
fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}
