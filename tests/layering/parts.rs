//! Types and functions: a type has a name of its own, its methods stand with its fields and are few, and a function is
//! no longer than one reads at once.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{Source, report, sources};

/// Methods of one type, those that a trait asks for left out.
const METHODS_MAX: usize = 25;

/// Types that have more, and how many exactly: a part of one is to become an owner of its own, and its row shrinks.
const METHODS_YET: &[(&str, usize)] =
    &[("Core", 64), ("Directory", 26), ("Io", 42), ("Owner", 28), ("Reader", 75), ("Relay", 27)];

/// Lines of one function, without its signature and its comments.
const LINES_MAX: usize = 50;

/// Functions that have more, and how many exactly.
const LINES_YET: &[(&str, usize)] = &[("relay/reader/replay.rs::deliver_page", 70)];

/// Fields that others see of a type whose methods change it: none, or it could keep no invariant.
const OPEN_FIELDS_YET: &[(&str, usize)] = &[
    ("Connection", 11),
    ("Container", 2),
    ("EventStream", 1),
    ("FieldFacts", 2),
    ("Io", 17),
    ("Judge", 1),
    ("Leftover", 3),
    ("Listed", 3),
    ("OwnPositions", 5),
    ("Parser", 1),
    ("Reader", 12),
    ("SlicedScan", 1),
    ("Subscription", 12),
    ("WebSocket", 1),
];

#[test]
fn a_type_has_a_name_of_its_own() {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // What drives the tests may have a core, a socket or a page of its own.
    let production = sources().into_iter().filter(|source| !source.production().is_empty());
    for source in production {
        for name in defined_types(&source.production()) {
            defined.entry(name).or_default().push(source.path.clone());
        }
    }
    assert!(defined.len() > 200, "types are found");
    let doubled = defined.into_iter().filter(|(_, paths)| paths.len() > 1);
    report(doubled.map(|(name, paths)| format!("`{name}` is defined in {}", paths.join(" and "))));
}

/// The types that a file defines at its outer level.
fn defined_types(code: &str) -> Vec<String> {
    let outer = code.lines().filter(|line| !line.starts_with(' '));
    let defined = outer.filter_map(|line| {
        let mut words = line.split([' ', '(', ')']).skip_while(|word| {
            word.starts_with("pub") || word.starts_with("crate") || ["", "in", "super"].contains(word)
        });
        let kind = words.next()?;
        let name = words.next()?;
        ["struct", "enum", "trait", "type"]
            .contains(&kind)
            .then(|| name.split(['<', ':', ';', '{']).next().unwrap_or(name))
    });
    defined.map(str::to_owned).collect()
}

#[test]
fn a_definition_is_seen_however_public_it_is() {
    let code = "struct A;\npub(in crate::relay) enum B<T> {\n    type C = u8;\npub(super) struct D(u32);\npub trait E: F {\ntype G = u8;\nuse H;";
    assert_eq!(defined_types(code), ["A", "B", "D", "E", "G"]);
}

/// A type's `impl`, as its file has it.
#[derive(Debug, PartialEq, Eq)]
struct Impl {
    of: String,
    /// Whether a trait asks for what is in it.
    of_trait: bool,
    methods: usize,
    /// Whether a method of it takes `&mut self`.
    changes: bool,
}

#[test]
fn an_impl_stands_with_its_fields_or_in_a_child_of_theirs() {
    let production: Vec<(Source, String)> =
        sources().into_iter().map(|s| (s.production(), s)).map(|(c, s)| (s, c)).collect();
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (source, code) in &production {
        for name in defined_types(code) {
            homes.insert(name, source.module());
        }
    }
    let strays = production.iter().flat_map(|(source, code)| {
        let impls = impls(code).into_iter();
        let away = impls.filter(|i| homes.get(&i.of).is_some_and(|home| !source.module().starts_with(home)));
        away.map(|i| format!("{}: `{}` is defined in {}", source.path, i.of, homes[&i.of].join("::")))
            .collect::<Vec<_>>()
    });
    report(strays);
}

#[test]
fn a_type_has_no_more_methods_than_one_holds_in_mind() {
    let mut methods: BTreeMap<String, usize> = BTreeMap::new();
    for i in sources().iter().flat_map(|source| impls(&source.production())).filter(|i| !i.of_trait) {
        *methods.entry(i.of).or_default() += i.methods;
    }
    assert!(methods.len() > 150, "methods are found");
    report(larger(methods, METHODS_MAX, METHODS_YET, "methods"));
}

#[test]
fn a_function_is_no_longer_than_one_reads_at_once() {
    let functions: Vec<(String, usize)> =
        sources().iter().flat_map(|source| functions(&source.production(), &source.path)).collect();
    assert!(functions.len() > 1000, "functions are found");
    report(larger(functions, LINES_MAX, LINES_YET, "lines"));
}

#[test]
fn what_its_own_methods_change_nobody_else_does() {
    let production: Vec<String> = sources().iter().map(Source::production).collect();
    let changing = production.iter().flat_map(|code| impls(code)).filter(|i| i.changes && !i.of_trait);
    let changed: BTreeSet<String> = changing.map(|i| i.of).collect();
    let open = production.iter().flat_map(|code| open_fields(code)).filter(|(name, _)| changed.contains(name));
    report(larger(open, 0, OPEN_FIELDS_YET, "fields that others see"));
}

/// Which of these are larger than they may be, and which rows of those known to be are no longer true.
fn larger(
    all: impl IntoIterator<Item = (String, usize)>,
    most: usize,
    known: &[(&str, usize)],
    unit: &str,
) -> impl Iterator<Item = String> {
    let mut known: BTreeMap<&str, usize> = known.iter().copied().collect();
    let mut found = Vec::new();
    for (name, count) in all {
        match known.remove(name.as_str()) {
            Some(row) if row == count => {}
            Some(row) => found.push(format!("{name}: {count} {unit}; its row says {row}")),
            None if count > most => found.push(format!("{name}: {count} {unit}, at most {most}")),
            None => {}
        }
    }
    found.extend(known.into_keys().map(|name| format!("{name}: has a row, and is nowhere")));
    found.into_iter()
}

/// The `impl` blocks at the outer level of a file.
fn impls(code: &str) -> Vec<Impl> {
    let mut impls: Vec<Impl> = Vec::new();
    let mut inside = false;
    for (at, line) in code.lines().enumerate() {
        if line.starts_with("impl ") || line.starts_with("impl<") || line.starts_with("unsafe impl") {
            let header = code.lines().skip(at).collect::<Vec<_>>().join(" ");
            let (of, of_trait) = implemented(header.split('{').next().unwrap_or_default());
            impls.push(Impl { of, of_trait, methods: 0, changes: false });
            inside = !line.ends_with('}');
        } else if line == "}" {
            inside = false;
        }
        if !inside {
            continue;
        }
        impls.last_mut().unwrap().changes |= line.contains("&mut self");
        if line.starts_with("    ") && !line[4..].starts_with(' ') && is_function(line) {
            impls.last_mut().unwrap().methods += 1;
        }
    }
    impls
}

/// `unsafe impl<T: Into<U>> a::Trait<T> for &mut b::Type<T> where …` → `Type`, and that a trait asks for it.
fn implemented(header: &str) -> (String, bool) {
    let mut rest = header.trim_start_matches("unsafe ").trim_start_matches("impl").trim_start();
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.char_indices().position(|(at, c)| {
            depth += match c {
                '<' => 1,
                '>' if !rest[..at].ends_with('-') => -1,
                _ => 0,
            };
            depth == 0
        });
        rest = &rest[end.map_or(0, |end| end + 1)..];
    }
    let rest = rest.split(" where ").next().unwrap_or_default();
    let (of_trait, of) = rest.split_once(" for ").map_or((false, rest), |(_, of)| (true, of));
    let path = of.trim().trim_start_matches('&').trim_start_matches("mut ").trim_start_matches("dyn ");
    let path = path.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').next().unwrap_or_default();
    (path.rsplit("::").next().unwrap_or(path).to_owned(), of_trait)
}

/// The functions that have a body, with its lines; `path::name` of each.
fn functions(code: &str, path: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_function(line)) {
        let indent = line.len() - line.trim_start().len();
        let closes = |line: &&&str| line.len() == indent + 1 && line.ends_with('}');
        let Some(opens) = lines[at..].iter().position(|line| line.ends_with(['{', ';', '}'])) else { continue };
        if lines[at + opens].ends_with('{') {
            let body = lines[at + opens + 1..].iter().take_while(|line| !closes(line));
            let name = line.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next()).unwrap_or_default();
            functions.push((format!("{path}::{name}"), body.filter(|line| !line.trim().is_empty()).count()));
        }
    }
    functions
}

/// The structs of a file, and how many of their fields can be named from outside.
fn open_fields(code: &str) -> Vec<(String, usize)> {
    let mut structs: Vec<(String, usize)> = Vec::new();
    let mut inside = false;
    for line in code.lines() {
        if line.contains("struct ") && line.ends_with('{') {
            structs.extend(defined_types(line).into_iter().map(|name| (name, 0)));
            inside = true;
        } else if line == "}" {
            inside = false;
        } else if inside && line.starts_with("    pub") && line.contains(':') {
            structs.last_mut().unwrap().1 += 1;
        }
    }
    structs
}

/// Whether a function begins on the line.
fn is_function(line: &str) -> bool {
    let before = line.split("fn ").next().unwrap_or_default();
    before.len() < line.len()
        && before.split([' ', '(', ')']).all(|word| {
            word.starts_with("pub")
                || word.starts_with("crate")
                || ["", "const", "unsafe", "async", "super", "in"].contains(&word)
        })
}

#[test]
fn a_method_is_seen_in_whatever_impl_it_stands() {
    let code = "impl A {\n    pub(in crate::x) const fn f() {}\n    fn g(&self) {\n        fn inner() {}\n    }\n}\n\
                impl<T: Fn() -> U> Drop\n    for crate::b::B<T>\nwhere\n    T: C,\n{\n    fn drop(&mut self) {}\n}\n\
                impl D for &mut E {}\nfn free() {}\nunsafe impl Send for F {}\n";
    let seen = |of: &str, of_trait, methods| Impl { of: of.to_owned(), of_trait, methods, changes: of == "B" };
    assert_eq!(impls(code), [seen("A", false, 2), seen("B", true, 1), seen("E", true, 0), seen("F", true, 0)]);
}

#[test]
fn a_field_in_the_open_is_seen() {
    let code = "pub struct A<T> {\n    a: T,\n    pub(super) b: u8,\n    pub c: u8,\n}\nstruct B {\n    a: u8,\n}\nstruct C(pub u8);\n";
    assert_eq!(open_fields(code), [("A".to_owned(), 2), ("B".to_owned(), 0)]);
}

#[test]
fn the_lines_of_a_body_are_counted() {
    let code = "pub fn f(\n    a: u8,\n) -> u8 {\n    if a {\n    }\n\n    b\n}\nimpl A {\n    fn g();\n    fn h() {\n        c\n    }\n    fn i() {}\n}";
    assert_eq!(functions(code, "p"), [("p::f".to_owned(), 3), ("p::h".to_owned(), 1)]);
}

#[test]
fn a_row_of_the_known_holds_only_while_it_is_exact() {
    let all = || [("a".to_owned(), 9), ("b".to_owned(), 8), ("c".to_owned(), 3)];
    let larger = |known| larger(all(), 5, known, "x").collect::<Vec<_>>();
    assert_eq!(larger(&[("a", 9), ("b", 8)]), Vec::<String>::new());
    assert_eq!(larger(&[("a", 10), ("b", 8)]), ["a: 9 x; its row says 10"]);
    assert_eq!(larger(&[("a", 9)]), ["b: 8 x, at most 5"]);
    assert_eq!(larger(&[("a", 9), ("b", 8), ("d", 7)]), ["d: has a row, and is nowhere"]);
}
