//! Any bytes as one event: no panic; what is taken is JSON for `serde_json` too, and its delivered bytes are one line
//! that reads as the same event.

#![no_main]

use aep_relay::relay::event::{Attribute, Batch, Event, Fingerprinter, Parser};
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;

/// The string attributes, so that a new one is not forgotten here silently.
const ATTRIBUTES: [Attribute; aep_relay::relay::event::ATTRIBUTES] = [
    Attribute::Id,
    Attribute::Type,
    Attribute::Source,
    Attribute::Agent,
    Attribute::Session,
    Attribute::Run,
    Attribute::Step,
    Attribute::Subject,
    Attribute::Cause,
];

fn assert_same(one: &Event<'_>, other: &Event<'_>) {
    assert_eq!(one.raw(), other.raw());
    for attribute in ATTRIBUTES {
        assert_eq!(one.attribute(attribute), other.attribute(attribute));
    }
    assert_eq!(one.position(), other.position());
    assert_eq!((one.epoch(), one.severity(), one.capture()), (other.epoch(), other.severity(), other.capture()));
    assert_eq!((one.scope(), one.fingerprint()), (other.scope(), other.fingerprint()));
    assert!(one.extensions().eq(other.extensions()));
}

fuzz_target!(|bytes: &[u8]| {
    let fingerprinter = Fingerprinter::new();
    let mut parser = Parser::new(fingerprinter.clone());
    let Ok(event) = parser.parse(bytes) else { return };
    assert!(serde_json::from_slice::<IgnoredAny>(bytes).is_ok());
    assert!(!event.raw().iter().any(|byte| matches!(byte, b'\r' | b'\n')));

    let mut again = Parser::new(fingerprinter);
    assert_same(&again.parse(event.raw()).expect("delivered bytes are an event"), &event);

    let mut batch = Batch::default();
    batch.push(event);
    batch.push(event);
    assert_same(&batch.event(1), &event);
});
