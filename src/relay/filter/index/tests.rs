//! Tests of the index against a walk over all filters.

use proptest::prelude::*;

use super::*;
use crate::relay::event::testing::{parsed, with_event};
use crate::relay::filter::tests::{events, filters};

fn filter(text: &str) -> Filter {
    Filter::parse(text.as_bytes(), 100_000).unwrap()
}

fn found<T: Copy + Ord>(index: &Index<T>, members: &str) -> Vec<T> {
    let mut targets = Vec::new();
    with_event(members, |event| index.candidates(&event, &mut |target| targets.push(target)));
    targets.sort_unstable();
    targets
}

fn index_of(filters: &[&str]) -> Index<usize> {
    let mut index = Index::default();
    for (target, text) in filters.iter().enumerate() {
        index.insert(&filter(text), target);
    }
    index
}

const EVENT: &str = r#""type":"tool.a.b","session":"s","seq":1,"agent":"a","run":"r","step":"t","tenant":"x","n":5"#;

#[test]
fn the_most_selective_pin_decides() {
    // Each filter matches the event in its first pin and in nothing else, or the other way round.
    let index = index_of(&[
        r#"{"session":"s","agent":"no","type":"no.*"}"#,
        r#"{"session":"no","agent":"a","type":"tool.*"}"#,
        r#"{"agent":"a","tenant":"no","type":"no.a"}"#,
        r#"{"agent":"no","tenant":"x"}"#,
        r#"{"run":"r","agent":"no"}"#,
        r#"{"tenant":"x","type":"no.a"}"#,
        r#"{"tenant":"no","type":"tool.a.b"}"#,
        r#"{"type":"tool.a.b","severity":"error"}"#,
        r#"{"epoch":7}"#,
    ]);
    assert_eq!(found(&index, EVENT), [0, 2, 4, 5, 7, 8]);
}

#[test]
fn any_of_pins_are_entered_under_each_value_and_met_once() {
    let index = index_of(&[
        r#"{"session":["a","s","b"]}"#,
        r#"{"tenant":["y","x",1]}"#,
        r#"{"n":["5",5,true]}"#,
        r#"{"type":["tool.a.b","tool.*","tool.a.*","run.*"]}"#,
        r#"{"type":["run.a","tool.a.b"]}"#,
        r#"{"n":["5",true]}"#,
    ]);
    assert_eq!(found(&index, EVENT), [0, 1, 2, 3, 4]);
}

#[test]
fn all_prefixes_of_a_type_are_found_past_their_neighbours() {
    let index = index_of(&[
        r#"{"type":"tool.*"}"#,
        r#"{"type":"tool.a.*"}"#,
        r#"{"type":"tool.a.b.*"}"#,
        r#"{"type":"tool.a.a.*"}"#,
        r#"{"type":"tool.a-b.*"}"#,
        r#"{"type":"tool.0.*"}"#,
        r#"{"type":"too.*"}"#,
        r#"{"type":"tool-a.*"}"#,
        r#"{"type":"a.*"}"#,
        r#"{"type":"z.*"}"#,
    ]);
    assert_eq!(found(&index, EVENT), [0, 1]);
    assert_eq!(found(&index, r#""type":"tool.a.b.c","session":"s","seq":1"#), [0, 1, 2]);
    assert_eq!(found(&index, r#""type":"tool.b","session":"s","seq":1"#), [0]);
    assert_eq!(found(&index, r#""type":"agent.idle""#), [0; 0]);
}

#[test]
fn a_type_of_a_million_tokens_is_no_walk() {
    let mut index = index_of(&[r#"{"type":"tool.*"}"#, r#"{"type":"tool.a.a.a.*"}"#, r#"{"type":"tool.a.b.*"}"#]);
    index.insert(&filter(&format!(r#"{{"type":"tool.{}b.*"}}"#, "a.".repeat(100_000))), 9);
    let long = format!(r#""type":"tool{}","session":"s","seq":1"#, ".a".repeat(1_000_000));
    assert_eq!(found(&index, &long), [0, 1]);
}

#[test]
fn a_filter_that_matches_nothing_is_not_entered() {
    assert!(index_of(&[r#"{"session":5}"#, r#"{"severity":"fatal"}"#]).is_empty());
}

#[test]
fn insertions_are_counted() {
    let mut index = Index::default();
    let (tool, all) = (filter(r#"{"type":["tool.*","run.a"]}"#), filter("{}"));
    index.insert(&tool, 1);
    index.insert(&tool, 1);
    index.insert(&all, 1);
    assert_eq!(found(&index, EVENT), [1, 1], "once under its prefix, once among those that see everything");
    index.remove(&tool, 1);
    assert_eq!(found(&index, EVENT), [1, 1]);
    index.remove(&tool, 1);
    assert_eq!(found(&index, EVENT), [1]);
    index.remove(&tool, 1);
    index.remove(&all, 2);
    assert_eq!(found(&index, EVENT), [1], "taking back what is not there changes nothing");
    index.remove(&all, 1);
    assert!(index.is_empty());
}

#[test]
fn memory_returns_when_filters_leave() {
    let mut index = Index::default();
    let filters: Vec<Filter> = (0..10_000).map(|n| filter(&format!(r#"{{"session":"s{n}"}}"#))).collect();
    for (target, filter) in filters.iter().enumerate() {
        index.insert(filter, target);
        index.insert(&Filter::everything(), target);
    }
    for (target, filter) in filters.iter().enumerate() {
        index.remove(filter, target);
        index.remove(&Filter::everything(), target);
    }
    assert!(index.is_empty());
    assert_eq!(index.attributes[0].capacity(), 0);
    assert_eq!(index.everything.capacity(), 0);
}

proptest! {
    #[test]
    fn every_match_is_a_candidate_met_once(
        entered in prop::collection::vec(filters(), 0..12),
        gone in prop::collection::vec(any::<bool>(), 12),
        event in events(),
    ) {
        let filters: Vec<Filter> = entered.iter().map(|text| filter(&text.to_string())).collect();
        let mut index = Index::default();
        for (target, filter) in filters.iter().enumerate() {
            index.insert(filter, target);
        }
        for (target, filter) in filters.iter().enumerate().filter(|(target, _)| gone[*target]) {
            index.remove(filter, target);
        }
        parsed(event.to_string().as_bytes(), |event| {
            let mut targets = Vec::new();
            index.candidates(&event, &mut |target: usize| targets.push(target));
            targets.sort_unstable();
            prop_assert!(targets.is_sorted_by(|a, b| a < b), "{targets:?}");
            prop_assert!(targets.iter().all(|target| !gone[*target]));
            for (target, filter) in filters.iter().enumerate().filter(|(target, _)| !gone[*target]) {
                prop_assert!(!filter.matches(&event) || targets.contains(&target), "{target}");
            }
            Ok(())
        })?;
        for (target, filter) in filters.iter().enumerate().filter(|(target, _)| !gone[*target]) {
            index.remove(filter, target);
        }
        prop_assert!(index.is_empty());
    }
}
