//! Bytes as a filter: nothing panics, what is accepted keeps its canonical form whatever white space stands
//! around it, and the index finds what matches, once.
#![no_main]

use aep_relay::relay::event::{Fingerprinter, Parser};
use aep_relay::relay::filter::Filter;
use aep_relay::relay::filter::index::Index;
use libfuzzer_sys::fuzz_target;

const EVENT: &[u8] =
    br#"{"aep":"0.1","id":"i","type":"tool.a.b","time":"2026-01-01T00:00:00Z","source":"s","agent":"a",
"session":"n","seq":1,"run":"r","x":1,"y":true,"z":"t"}"#;

fuzz_target!(|text: &[u8]| {
    let Ok(filter) = Filter::parse(text, 64) else { return };
    let padded = [b" \t", text, b"\r\n"].concat();
    assert_eq!(Filter::parse(&padded, 64).as_ref(), Ok(&filter));

    let mut parser = Parser::new(Fingerprinter::new());
    let event = parser.parse(EVENT).unwrap();
    let mut index = Index::default();
    index.insert(&filter, 1);
    let mut met = 0;
    index.candidates(&event, &mut |_| met += 1);
    assert!(met <= 1);
    assert!(!filter.matches(&event) || met == 1);
    index.remove(&filter, 1);
    assert!(index.is_empty());
});
