//! What the relay says of itself: one source for the discovery document (§4) and the answering hello (§6.1).

/// Name the relay gives itself in its hello.
const AGENT: &str = "aep-relay";

/// The `capabilities` member of both.
fn write_capabilities(out: &mut String, buffer_events_max: usize) {
    use std::fmt::Write as _;
    let _ = write!(
        out,
        "{{\"filters\":[\"attr-match\"],\"replay\":{{\"buffer\":{buffer_events_max},\"all\":true}},\
         \"capture\":[\"none\",\"metadata\",\"redacted\",\"full\"],\"control\":{{\"accepts\":[]}},\"roster\":{{}},\
         \"experimental\":{{}}}}"
    );
}

/// The discovery document.
#[must_use]
pub fn document(buffer_events_max: usize) -> String {
    let mut out = String::from(
        "{\"aep\":[\"0.1\"],\"role\":\"collector\",\
         \"endpoints\":{\"events\":\"/events\",\"stream\":\"/stream\",\"socket\":\"/socket\"},\"capabilities\":",
    );
    write_capabilities(&mut out, buffer_events_max);
    out.push('}');
    out
}

/// The hello that answers a peer's. `instance` needs no escaping: it is hexadecimal.
#[must_use]
pub fn hello(instance: &str, buffer_events_max: usize) -> String {
    let mut out = format!(
        "{{\"type\":\"hello\",\"versions\":[\"0.1\"],\"role\":\"both\",\
         \"identity\":{{\"agent\":\"{AGENT}\",\"instance\":\"{instance}\"}},\"capabilities\":"
    );
    write_capabilities(&mut out, buffer_events_max);
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::{document, hello};

    #[test]
    fn both_are_json_and_share_their_capabilities() {
        let document: serde_json::Value = serde_json::from_str(&document(7)).unwrap();
        let hello: serde_json::Value = serde_json::from_str(&hello("ab12", 7)).unwrap();
        assert_eq!(document["capabilities"], hello["capabilities"]);
        assert_eq!(document["capabilities"]["replay"]["buffer"], 7);
        assert_eq!(hello["identity"]["instance"], "ab12");
    }
}
