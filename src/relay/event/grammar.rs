//! The forms of envelope attributes (contract §2): event types and the scope they decide, traceparents, names of
//! extension attributes. Pure functions over text; all of them ASCII forms, so they look at bytes.

use super::attribute::Scope;

/// The closed set of categories a type may begin with, vendor types (`x.`) apart.
const CATEGORIES: [&str; 13] = [
    "agent",
    "session",
    "run",
    "progress",
    "tool",
    "delegation",
    "attention",
    "resource",
    "error",
    "state",
    "assessment",
    "message",
    "control",
];

/// The scope of events of this type; nothing if it breaks the type grammar.
pub(super) fn scope_of(kind: &str) -> Option<Scope> {
    let (first, rest) = kind.split_once('.')?;
    if first == "x" {
        return vendor_scope_of(rest);
    }
    if !CATEGORIES.contains(&first) || !rest.split('.').all(is_token) {
        return None;
    }
    Some(match (first, rest) {
        ("agent", _) => Scope::Agent,
        ("control", "attention.respond" | "cancel" | "pause" | "resume") => Scope::Command,
        ("attention", "routed") => Scope::Routed,
        _ => Scope::Session,
    })
}

/// What stands behind `x.`: `{vendor}.{token}.{token}(.{token})*`; a command if the first token is `control`.
fn vendor_scope_of(rest: &str) -> Option<Scope> {
    let (vendor, tokens) = rest.split_once('.')?;
    let (category, name) = tokens.split_once('.')?;
    if !is_vendor(vendor) || !is_token(category) || !name.split('.').all(is_token) {
        return None;
    }
    Some(if category == "control" { Scope::Command } else { Scope::Session })
}

fn is_token(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

fn is_vendor(vendor: &str) -> bool {
    !vendor.is_empty() && vendor.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// `^[a-z0-9]{1,20}$`: a name an extension attribute may bear, unless it is one of the envelope's own.
#[must_use]
pub fn is_extension_name(name: &str) -> bool {
    matches!(name.len(), 1..=20) && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'))
}

/// `^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`
pub(super) fn is_traceparent(text: &str) -> bool {
    text.len() == 55
        && text.bytes().enumerate().all(|(at, byte)| match at {
            2 | 35 | 52 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_their_scopes() {
        for (kind, scope) in [
            ("agent.presence", Some(Scope::Agent)),
            ("agent.x.y", Some(Scope::Agent)),
            ("tool.completed", Some(Scope::Session)),
            ("tool.never_heard_of.2", Some(Scope::Session)),
            ("session.started", Some(Scope::Session)),
            ("run.a", Some(Scope::Session)),
            ("progress.a", Some(Scope::Session)),
            ("delegation.a", Some(Scope::Session)),
            ("resource.a", Some(Scope::Session)),
            ("error.a", Some(Scope::Session)),
            ("state.a", Some(Scope::Session)),
            ("assessment.a", Some(Scope::Session)),
            ("message.a", Some(Scope::Session)),
            ("attention.requested", Some(Scope::Session)),
            ("attention.routed", Some(Scope::Routed)),
            ("attention.routed.a", Some(Scope::Session)),
            ("control.attention.respond", Some(Scope::Command)),
            ("control.cancel", Some(Scope::Command)),
            ("control.pause", Some(Scope::Command)),
            ("control.resume", Some(Scope::Command)),
            ("control.resume.a", Some(Scope::Session)),
            ("control.accepted", Some(Scope::Session)),
            ("control.rejected", Some(Scope::Session)),
            ("control.attention", Some(Scope::Session)),
            ("x.acme.tool.b", Some(Scope::Session)),
            ("x.ac-me_1.agent.b", Some(Scope::Session)),
            ("x.acme.control.b", Some(Scope::Command)),
            ("x.acme.control.b.c", Some(Scope::Command)),
            ("x.acme.controls.b", Some(Scope::Session)),
            ("x.control.a.b", Some(Scope::Session)),
            ("x.acme.control", None),
            ("x.acme.foo", None),
            ("x.acme.foo.", None),
            ("x..foo.a", None),
            ("x.Acme.foo.a", None),
            ("x.acme.f-o.a", None),
            ("x.acme.foo.a-b", None),
            ("x.acme", None),
            ("x.", None),
            ("tool", None),
            ("tool.", None),
            (".tool", None),
            ("tool..a", None),
            ("tool.a.", None),
            ("tool.Completed", None),
            ("tool.a-b", None),
            ("tool.é", None),
            ("tool.a b", None),
            ("banana.peeled", None),
            ("Tool.a", None),
            ("", None),
            (".", None),
        ] {
            assert_eq!(scope_of(kind), scope, "{kind}");
        }
    }

    #[test]
    fn traceparents() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(is_traceparent(good));
        for at in 0..good.len() {
            let mut bad = good.to_owned();
            bad.replace_range(at..=at, "G");
            assert!(!is_traceparent(&bad), "{bad}");
        }
        assert!(!is_traceparent(&good.to_uppercase()));
        assert!(!is_traceparent(&good[1..]));
        assert!(!is_traceparent(&format!("{good}0")));
    }

    #[test]
    fn extension_names() {
        for good in ["a", "0", "acmeregion", "abcdefghij0123456789"] {
            assert!(is_extension_name(good), "{good}");
        }
        for bad in ["", "abcdefghij0123456789x", "acme_ext", "Acme", "a.b", "é", "a b", "a\0"] {
            assert!(!is_extension_name(bad), "{bad}");
        }
    }
}
