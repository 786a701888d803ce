//! Tests of the scanner, in one go and in slices.

use super::*;
use proptest::prelude::*;

fn kind(text: &[u8]) -> JsonFaultKind {
    scan(text).unwrap_err().kind
}

#[test]
fn takes_what_the_grammar_allows() {
    for text in [
        "{}",
        "[]",
        "\"\"",
        "0",
        "-0",
        "-0.0e-0",
        "1E+9",
        "1e400",
        "18446744073709551616",
        "1000000000000000000e0",
        "1234567890123456789012345678901234567890123456789012345678901234567890",
        "true",
        "false",
        "null",
        " \t\r\n[ 1 , { \"a\" : [ ] } ]\r\n",
        r#""\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00""#,
        r#""\ud800""#,
        r#"{"a":1,"a":2}"#,
        "\"\u{7f}\u{85}\u{2028}\u{feff}é€😀\"",
    ] {
        let document = scan(text.as_bytes()).unwrap();
        assert_eq!(document.root.text, text.trim_matches([' ', '\t', '\r', '\n']));
    }
}

#[test]
fn names_the_rule_and_the_place() {
    for (text, message) in [
        (&b""[..], "no JSON value"),
        (b" \r\n", "no JSON value"),
        (b"\xEF\xBB\xBF{}", "byte order mark at byte 0"),
        (b" \xEF\xBB\xBF{}", "byte order mark at byte 1"),
        (b"[\xEF\xBB\xBF1]", "byte order mark at byte 1"),
        (b"{\"a\":\x001}", "NUL byte at byte 5"),
        (b"\"a\x00b\"", "NUL byte at byte 2"),
        (b"{}\x00", "NUL byte at byte 2"),
        (b"\"ab\xC3\"", "invalid UTF-8 at byte 3"),
        (b"\"\xED\xA0\x80\"", "invalid UTF-8 at byte 1"),
        (b"{}{}", "something behind the JSON value at byte 2"),
        (b"1 2", "something behind the JSON value at byte 2"),
        (b"{\"a\"", "unexpected end of text at byte 4"),
        (b"\"abcdefghijk", "unexpected end of text at byte 12"),
        (b"\"a\nb\"", "a control character must be escaped in a string at byte 2"),
        (b"{\"a\" 1}", "expected `:` at byte 5"),
        (b"{\"a\":1 \"b\"}", "expected `,` or `}` at byte 7"),
        (b"[1 2]", "expected `,` or `]` at byte 3"),
        (b"{a:1}", "expected a member name or `}` at byte 1"),
        (b"01", "a number may not begin with 0 at byte 1"),
    ] {
        assert_eq!(scan(text).unwrap_err().to_string(), message, "{}", text.escape_ascii());
    }
}

#[test]
fn refuses_what_lenient_parsers_take() {
    for text in [
        "{\"a\":1,}",
        "[1,]",
        "[,1]",
        "{,}",
        "[1}",
        "{\"a\":1]",
        "'a'",
        "{'a':1}",
        "+1",
        "1.",
        ".5",
        "-",
        "1e",
        "1e+",
        "0x10",
        "-01",
        "NaN",
        "Infinity",
        "-Infinity",
        "True",
        "nul",
        "tru",
        "truee",
        "\\u0041",
        "\"\\x41\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\U0041\"",
        "\"\\",
        "[1]]",
        "}",
        "]",
        ":",
        ",",
        "/**/1",
        "1 // a",
        "\u{a0}1",
        "\u{2028}1",
        "{\"a\":}",
        "{\"a\"}",
        "{1:2}",
        "\"\t\"",
        "\u{c}1",
    ] {
        assert!(scan(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn depth_is_bounded_at_128_for_arrays_and_objects() {
    let arrays = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize| format!("{}0{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    assert!(scan(arrays(128).as_bytes()).is_ok());
    assert_eq!(kind(arrays(129).as_bytes()), JsonFaultKind::TooDeep);
    assert!(scan(objects(128).as_bytes()).is_ok());
    assert_eq!(kind(objects(129).as_bytes()), JsonFaultKind::TooDeep);
    assert!(scan(format!("[{}]", ["[]"; 500].join(",")).as_bytes()).is_ok(), "breadth is no depth");
    let fault = scan(format!("{}0", "[".repeat(100_000)).as_bytes()).unwrap_err();
    assert_eq!(fault.to_string(), "nesting deeper than 128 at byte 128");
}

#[test]
fn closing_brackets_match_their_own_at_every_depth() {
    // The stack of open containers is a shifted bit set: alternate kinds up to the bound.
    let open: String = (0..64).map(|_| "[{\"a\":").collect();
    let close: String = (0..64).map(|_| "}]").collect();
    assert!(scan(format!("{open}1{close}").as_bytes()).is_ok());
    let wrong = close.replacen("}]", "]}", 1);
    assert!(scan(format!("{open}1{wrong}").as_bytes()).is_err());
}

#[test]
fn tells_of_outermost_members_only() {
    let text = br#" { "a\n" : {"x":1} , "b":"\t", "b":"c","d":[{"e":2}] } "#;
    let mut told = Vec::new();
    let document = scan_members(text, |member| told.push(member)).unwrap();
    let walked: Vec<_> = document.root.members().collect();
    assert_eq!(told.len(), walked.len());
    for (told, walked) in told.iter().zip(&walked) {
        assert_eq!(told.name_start as usize, walked.name_start);
        assert_eq!((told.name_end - told.name_start) as usize, walked.name.len());
        assert_eq!(told.value_start as usize..told.value_end as usize, walked.value.range());
        assert_eq!(told.kind, walked.value.kind);
        assert_eq!(told.name_escaped, walked.name.contains('\\'));
        let string = walked.value.raw_string();
        assert_eq!(told.value_escaped, string.is_some_and(|raw| raw.contains('\\')));
    }
    scan_members(b"[{\"a\":1}]", |_| panic!("an array has no members")).unwrap();
}

#[test]
fn every_cut_of_a_document_is_refused() {
    let text = "{\"a\":[1,-2.5e3,\"x\\u00e9\\n€\",{\"b\":null}],\"c\":true}".as_bytes();
    assert!(scan(text).is_ok());
    for end in 0..text.len() {
        assert!(scan(&text[..end]).is_err(), "{end}");
    }
}

/// JSON-like noise: random bytes rarely get past the first token.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"a\":", "\\", "\\u", "\\ud83d", "\\u0041", "0", "1", "-", ".",
        "e", "+", "true", "null", " ", "      ", "\n", "\t", "\u{1}", "é", "😀", "12345678", "abcdefgh",
    ]);
    prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat().into_bytes())
}

proptest! {
    /// `IgnoredAny` checks the grammar without reading numbers or bounding depth. On purpose we refuse more: deeper
    /// nesting, which this noise cannot reach, and invalid UTF-8 in skipped strings, which it does not hold. Byte
    /// order marks and raw NUL are no JSON for it either.
    #[test]
    fn agrees_with_serde_json(text in noise()) {
        let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assert_eq!(scan(&text).is_ok(), theirs, "{}", text.escape_ascii());
    }

    #[test]
    fn slices_come_to_the_same(text in noise(), budget in 1_usize..9) {
        let mut members = Vec::new();
        let whole = scan_members(&text, |member| members.push(member));
        let mut scan = SlicedScan::default();
        let sliced = loop {
            let before = scan.slice.stop;
            let mut left = budget;
            match scan.walk(&text, &mut left) {
                Ok(false) => prop_assert!(scan.slice.stop - before <= budget),
                Ok(true) => break scan.finish(&text).map(|(document, members)| (document, members.to_vec())),
                Err(fault) => break Err(fault),
            }
        };
        prop_assert_eq!(sliced, whole.map(|document| (document, members)), "{}", text.escape_ascii());
    }

    #[test]
    fn no_bytes_panic(text in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(document) = scan(&text) {
            prop_assert!(std::str::from_utf8(&text).is_ok());
            prop_assert!(document.root.range().end <= text.len());
        }
    }
}
