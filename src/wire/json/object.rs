//! Members of JSON objects, read by name and written one after the other.
//!
//! Invariants: of repeated members the first counts; what is written is one object, provided that raw values are JSON.

use std::borrow::Cow;

use crate::wire::digits::push_decimal;

use super::{Kind, Value, unescape, write_string};

impl<'a> Value<'a> {
    /// The first member of that name; nothing of any other kind.
    #[must_use]
    pub fn member(self, name: &str) -> Option<Self> {
        self.members().find(|member| unescape(member.name).is_ok_and(|found| found == name)).map(|m| m.value)
    }

    /// The first member of that name, unless it is null.
    #[must_use]
    pub fn present(self, name: &str) -> Option<Self> {
        self.member(name).filter(|value| value.kind != Kind::Null)
    }

    /// A string's characters; nothing for any other kind, or a lone surrogate.
    #[must_use]
    pub fn string(self) -> Option<Cow<'a, str>> {
        unescape(self.raw_string()?).ok()
    }
}

/// An object being written, member by member.
#[derive(Debug)]
pub struct ObjectWriter(Vec<u8>);

impl Default for ObjectWriter {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl ObjectWriter {
    /// An object without members, in a buffer with room for so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        let mut out = Vec::with_capacity(bytes);
        out.push(b'{');
        Self(out)
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        write_string(&mut self.0, name);
        self.0.push(b':');
    }

    /// A string.
    pub fn string(&mut self, name: &str, value: &str) {
        self.name(name);
        write_string(&mut self.0, value);
    }

    /// A string, if there is one.
    pub fn optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.string(name, value);
        }
    }

    /// A number.
    pub fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        push_decimal(&mut self.0, value);
    }

    /// A value that is JSON already, or its beginning (see [`ObjectWriter::unfinished`]).
    pub fn raw(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        self.0.extend_from_slice(value);
    }

    /// The whole object.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }

    /// What is written so far: for a last member too large to be copied once more, whose end closes the object.
    #[must_use]
    pub fn unfinished(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::json::scan;

    use super::*;

    #[test]
    fn members_are_found_by_their_unescaped_name_the_first_counts() {
        let document = scan(br#"{"a":1,"\u0061":2,"n":null,"n":3,"s":"x\ny","\ud800":4,"l":"\ud800"}"#).unwrap();
        let text = |value: Option<Value<'_>>| value.map(|value| value.text.to_owned());
        assert_eq!(text(document.root.member("a")).as_deref(), Some("1"));
        assert_eq!(text(document.root.member("n")).as_deref(), Some("null"));
        assert_eq!(text(document.root.present("n")), None, "the first is null");
        assert_eq!(text(document.root.present("a")).as_deref(), Some("1"));
        assert_eq!(text(document.root.member("b")), None);
        assert_eq!(document.root.member("s").and_then(Value::string).as_deref(), Some("x\ny"));
        assert_eq!(document.root.member("l").and_then(Value::string), None, "a lone surrogate");
        assert_eq!(document.root.member("a").and_then(Value::string), None, "a number");
        assert_eq!(scan(b"[1]").unwrap().root.member("a"), None);
    }

    #[test]
    fn what_is_written_is_one_object() {
        assert_eq!(ObjectWriter::default().finish(), b"{}");
        let mut object = ObjectWriter::with_capacity(8);
        object.string("s", "a\"\n");
        object.optional("none", None);
        object.optional("some", Some(""));
        object.number("n", u64::MAX);
        object.raw("r", b"[1,");
        let (head, tail) = (object.unfinished(), &b"2]}"[..]);
        let expected = r#"{"s":"a\"\n","some":"","n":18446744073709551615,"r":[1,2]}"#;
        assert_eq!(String::from_utf8([&head, tail].concat()).unwrap(), expected);
    }
}
