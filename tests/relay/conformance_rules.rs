//! The public conformance data on filters and capture ceilings, against the rules themselves (contract §5, §8).
//!
//! `AEP_TEST_DATA` names a directory holding `capture-levels.json`, `downlevel.json` and `attr-match.json`. Without it
//! the tests say so and pass: the data is public but not ours to copy.

use std::path::PathBuf;

use aep_relay::relay::capture::{Below, Lowered, fields, lower, registered_types};
use aep_relay::relay::event::{Capture, Event, Fingerprinter, Parser};
use aep_relay::relay::filter::{Filter, FilterFault};
use serde_json::{Map, Value, json};

/// A file of the data, if the data is there.
fn data(name: &str) -> Option<Value> {
    let Some(directory) = std::env::var_os("AEP_TEST_DATA") else {
        println!("skipped: AEP_TEST_DATA does not name the conformance data");
        return None;
    };
    let path = PathBuf::from(directory).join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
    Some(serde_json::from_str(&text).unwrap())
}

fn with_event<R>(event: &Value, look: impl FnOnce(Event<'_>) -> R) -> R {
    let text = event.to_string();
    let mut parser = Parser::new(Fingerprinter::new());
    match parser.parse(text.as_bytes()) {
        Ok(event) => look(event),
        Err(fault) => panic!("{text}: {fault}"),
    }
}

/// The cases describe events by the attributes that matter; the others are added, as the type's scope asks.
fn completed(event: &Value) -> Value {
    let mut members = event.as_object().unwrap().clone();
    let agent_scoped = members["type"].as_str().unwrap().starts_with("agent.");
    let mut defaults = json!({
        "aep": "0.1", "id": "e1", "time": "2026-01-01T00:00:00Z", "source": "src", "agent": "other",
    });
    if agent_scoped {
        members.remove("session");
    } else {
        defaults["session"] = json!("other");
        defaults["seq"] = json!(0);
    }
    for (name, value) in defaults.as_object().unwrap() {
        members.entry(name.clone()).or_insert_with(|| value.clone());
    }
    members.into()
}

#[test]
fn the_table_of_annotations_is_the_public_one() {
    let Some(file) = data("capture-levels.json") else { return };
    let public = file["types"].as_object().unwrap();
    assert!(public.len() >= 44, "{} types", public.len());
    let ours: Map<String, Value> = registered_types()
        .map(|kind| {
            let removed = fields(kind).unwrap().iter().filter(|field| field.below == Below::Removed);
            let levels: Map<String, Value> =
                removed.map(|field| (field.path.to_owned(), field.minimum.as_str().into())).collect();
            (kind.to_owned(), levels.into())
        })
        .collect();
    assert_eq!(&ours, public);
}

#[test]
fn down_levelling_follows_the_public_cases() {
    let Some(file) = data("downlevel.json") else { return };
    let cases = file["cases"].as_array().unwrap();
    assert!(cases.len() >= 18, "{} cases", cases.len());
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let ceiling: Capture = case["ceiling"].as_str().unwrap().parse().unwrap();
        let mut out = Vec::new();
        let delivered: Value = with_event(&case["event"], |event| match lower(&event, ceiling, &mut out) {
            Lowered::Unchanged => serde_json::from_slice(event.raw()).unwrap(),
            Lowered::Rewritten(_) => serde_json::from_slice(&out).unwrap(),
        });
        let mut expected = case["event"].clone();
        expected["capture"] = case["expect_capture"].clone();
        expected["data"] = case["expect_data"].clone();
        if expected["data"].is_null() {
            expected.as_object_mut().unwrap().remove("data");
        }
        assert_eq!(delivered, expected, "{name}");
        assert_eq!(with_event(&delivered, |event| event.capture().as_str()), case["expect_capture"], "{name}");
    }
}

#[test]
fn matching_follows_the_public_cases() {
    let Some(file) = data("attr-match.json") else { return };
    let cases = file["match"].as_array().unwrap();
    assert!(cases.len() >= 14, "{} cases", cases.len());
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let filter = Filter::parse(case["filter"].to_string().as_bytes(), 1024).unwrap();
        let matched = with_event(&completed(&case["event"]), |event| filter.matches(&event));
        assert_eq!(matched, case["match"], "{name}");
    }
}

#[test]
fn invalid_filters_of_the_public_cases_are_refused() {
    let Some(file) = data("attr-match.json") else { return };
    let cases = file["invalid"].as_array().unwrap();
    assert!(cases.len() >= 10, "{} cases", cases.len());
    for case in cases {
        let refused = Filter::parse(case["filter"].to_string().as_bytes(), 1024);
        assert!(matches!(refused, Err(FilterFault::Invalid(_))), "{}: {refused:?}", case["name"]);
    }
}
