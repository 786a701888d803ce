//! A WebSocket connection as the activity relay knows it: its hello and its claims (contract §6.1, §6.2, §6.7).

use crate::base::footprint;
use crate::wire::json::{self, Value};

use crate::relay::error::Code;
use crate::relay::mail::claim::Control;
use crate::relay::mail::list::List;
use crate::relay::party::claimed::ClaimedSessions;

/// What a party may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends events and takes commands.
    Emitter,
    /// Subscribes.
    Consumer,
    /// Both.
    Both,
}

impl Role {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Emitter => "emitter",
            Self::Consumer => "consumer",
            Self::Both => "both",
        }
    }

    /// Whether it may subscribe and ask for the roster.
    #[must_use]
    pub fn consumes(self) -> bool {
        self != Self::Emitter
    }

    /// Whether its events claim their sessions.
    #[must_use]
    pub fn emits(self) -> bool {
        self != Self::Consumer
    }
}

/// What a connection said of itself. Declared members are kept as written, for the roster.
#[derive(Debug)]
pub struct Hello {
    /// Its role.
    pub role: Role,
    /// `identity.agent`
    agent: Option<Box<str>>,
    /// `identity.instance`
    instance: Option<Box<str>>,
    /// `capabilities.control`
    pub control: Control,
    /// `capabilities.emits`
    emits: Option<Box<str>>,
}

/// Why a first message is no hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelloFault {
    /// `hello-required`, `version-unsupported` or `invalid-hello`.
    pub code: Code,
    /// The rule.
    pub detail: &'static str,
}

const fn fault(code: Code, detail: &'static str) -> HelloFault {
    HelloFault { code, detail }
}

impl Hello {
    /// Reads a hello from the first message of a connection.
    ///
    /// # Errors
    /// In the order of §6.1: no hello, no common version, a role or an agent that breaks its rule.
    pub fn parse(message: &[u8]) -> Result<Self, HelloFault> {
        const REQUIRED: HelloFault = fault(Code::HelloRequired, "the first message must be a hello");
        let document = json::scan(message).map_err(|_| REQUIRED)?;
        let object = document.root;
        if object.member("type").and_then(Value::string).as_deref() != Some("hello") {
            return Err(REQUIRED);
        }
        let versions = object.member("versions").into_iter().flat_map(|versions| versions.elements());
        if !versions.into_iter().any(|version| version.string().as_deref() == Some("0.1")) {
            return Err(fault(Code::VersionUnsupported, "versions: an array that holds \"0.1\""));
        }
        let role = match object.member("role").and_then(Value::string).as_deref() {
            Some("emitter") => Role::Emitter,
            Some("consumer") => Role::Consumer,
            Some("both") => Role::Both,
            _ => return Err(fault(Code::InvalidHello, "role: emitter, consumer or both")),
        };
        let identity = object.present("identity");
        let agent = identity.and_then(|identity| identity.present("agent"));
        if role.emits() && agent.and_then(Value::string).is_none_or(|agent| agent.is_empty()) {
            return Err(fault(Code::InvalidHello, "identity.agent: required of emitters, a non-empty string"));
        }
        let capabilities = object.present("capabilities");
        let control = capabilities.and_then(|capabilities| capabilities.present("control"));
        let emits = capabilities.and_then(|capabilities| capabilities.present("emits"));
        let instance = identity.and_then(|identity| identity.present("instance"));
        let verbatim = |value: Option<Value<'_>>| value.map(|value| value.text.into());
        Ok(Self {
            role,
            agent: verbatim(agent),
            instance: verbatim(instance),
            control: Control::new(control.map(|control| control.text)),
            emits: verbatim(emits),
        })
    }
}

/// A WebSocket connection of the activity relay.
#[derive(Debug)]
pub struct Party {
    /// When it connected, RFC 3339.
    pub since: String,
    /// What it said of itself, once it has.
    pub hello: Option<Box<Hello>>,
    /// What it claims.
    pub claims: ClaimedSessions,
    /// Its next message waits for the answer to the last one.
    pub awaiting: bool,
    /// It has sent events since its last ping.
    pub published: bool,
}

/// What a connection has to tell, around the names of its claims.
#[derive(Debug)]
pub struct Portion {
    /// Before the first name; if there is one, the names are a list of its own.
    pub head: Vec<u8>,
    /// Before each name.
    pub item: &'static str,
    /// Behind each name.
    pub behind: Vec<u8>,
    /// Behind the last name.
    pub tail: Vec<u8>,
}

impl Portion {
    /// Bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.head.len() + self.behind.len() + self.tail.len()
    }
}

impl Party {
    /// What it has to tell: in the roster an entry for each claim, in `GET /connections` one that lists them. Nothing
    /// before its hello.
    pub fn portion(&self, list: List, subscriptions: impl FnOnce() -> usize) -> Option<Portion> {
        let hello = self.hello.as_ref()?;
        match list {
            List::Roster => {
                if self.claims.is_empty() {
                    return None;
                }
                let mut behind = Vec::new();
                hello.write_identity(&mut behind);
                write_member(&mut behind, "control", hello.control.as_str());
                write_member(&mut behind, "emits", hello.emits.as_deref());
                behind.push(b'}');
                Some(Portion { head: Vec::new(), item: "{\"session\":", behind, tail: Vec::new() })
            }
            List::Connections => {
                let mut head = format!("{{\"role\":\"{}\"", hello.role.as_str()).into_bytes();
                hello.write_identity(&mut head);
                head.extend_from_slice(b",\"sessions\":[");
                let tail = format!("],\"subscriptions\":{},\"since\":\"{}\"}}", subscriptions(), self.since);
                Some(Portion { head, item: "", behind: Vec::new(), tail: tail.into_bytes() })
            }
        }
    }
}

impl Hello {
    /// Bytes that it takes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let verbatim = [&self.agent, &self.instance, &self.emits];
        footprint::allocation(size_of::<Self>())
            + verbatim.into_iter().flatten().map(|text| footprint::allocation(text.len())).sum::<usize>()
            + self.control.as_str().map_or(0, |text| footprint::text(text.len()))
    }

    fn write_identity(&self, out: &mut Vec<u8>) {
        write_member(out, "agent", self.agent.as_deref());
        write_member(out, "instance", self.instance.as_deref());
    }
}

/// A declared member, behind others of its object; absent if it was not declared.
fn write_member(out: &mut Vec<u8>, name: &str, verbatim: Option<&str>) {
    if let Some(value) = verbatim {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        out.extend_from_slice(value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(message: &str) -> Option<Code> {
        Hello::parse(message.as_bytes()).err().map(|fault| fault.code)
    }

    #[test]
    fn a_hello_is_checked_in_order() {
        for (message, code) in [
            ("", Some(Code::HelloRequired)),
            ("[]", Some(Code::HelloRequired)),
            (r#"{"type":"subscribe"}"#, Some(Code::HelloRequired)),
            (r#"{"type":"hello"}"#, Some(Code::VersionUnsupported)),
            (r#"{"type":"hello","versions":"0.1","role":"x"}"#, Some(Code::VersionUnsupported)),
            (r#"{"type":"hello","versions":["0.2"],"role":"consumer"}"#, Some(Code::VersionUnsupported)),
            (r#"{"type":"hello","versions":["0.2","0.1"],"role":"x"}"#, Some(Code::InvalidHello)),
            (r#"{"type":"hello","versions":["0.1"],"role":"emitter"}"#, Some(Code::InvalidHello)),
            (r#"{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":""}}"#, Some(Code::InvalidHello)),
            (r#"{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":"a"}}"#, None),
            (r#"{"type":"hello","versions":["0.1"],"role":"consumer","identity":null,"capabilities":null}"#, None),
            (r#"{"type":"hello","versions":["0.1"],"role":"consumer","capabilities":[{"control":7}]}"#, None),
        ] {
            assert_eq!(code_of(message), code, "{message}");
        }
    }

    #[test]
    fn a_hello_is_counted_for_what_is_kept_of_it() {
        let footprint = |capabilities: &str| {
            let message =
                format!(r#"{{"type":"hello","versions":["0.1"],"role":"consumer","capabilities":{{{capabilities}}}}}"#);
            Hello::parse(message.as_bytes()).unwrap().footprint()
        };
        let text = "x".repeat(10_000);
        let bare = footprint("");
        assert_eq!(footprint(&format!(r#""other":"{text}""#)), bare);
        for kept in [r#""control":{"note":"#, r#""emits":{"note":"#] {
            let bytes = footprint(&format!(r#"{kept}"{text}"}}"#));
            assert!((10_000..10_100).contains(&(bytes - bare)), "{bytes}");
        }
    }

    #[test]
    fn accepts_that_is_no_array_of_strings_counts_as_empty() {
        for (accepts, expected) in [
            (r#"["control.cancel","x.a.control.b"]"#, true),
            (r#"["x.a.control.b","control.\u0063ancel"]"#, true),
            (r#"["control.cancel",7]"#, false),
            (r#"["control.cance"]"#, false),
            (r#""control.cancel""#, false),
            (r#"{"0":"control.cancel"}"#, false),
        ] {
            let message = format!(
                r#"{{"type":"hello","versions":["0.1"],"role":"consumer","capabilities":{{"control":{{"accepts":{accepts}}}}}}}"#
            );
            let hello = Hello::parse(message.as_bytes()).unwrap();
            assert_eq!(hello.control.accepts("control.cancel"), expected, "{accepts}");
        }
    }

    #[test]
    fn what_was_declared_is_told_verbatim_and_nothing_else() {
        let hello = r#"{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":"\u0061","card":{}},"capabilities":{"control":{"accepts":[ "x" ]}}}"#;
        let mut party = Party {
            since: "2026-01-01T00:00:00Z".into(),
            hello: Some(Box::new(Hello::parse(hello.as_bytes()).unwrap())),
            claims: ClaimedSessions::default(),
            awaiting: false,
            published: false,
        };
        party.claims.begin("s\"1");
        let told = |list| {
            let Portion { head, item, behind, tail } = party.portion(list, || 3).unwrap();
            let mut told = [&head, item.as_bytes()].concat();
            json::write_string(&mut told, "s\"1");
            told.extend([behind, tail].concat());
            String::from_utf8(told).unwrap()
        };
        assert_eq!(told(List::Roster), r#"{"session":"s\"1","agent":"\u0061","control":{"accepts":[ "x" ]}}"#);
        assert_eq!(
            told(List::Connections),
            r#"{"role":"both","agent":"\u0061","sessions":["s\"1"],"subscriptions":3,"since":"2026-01-01T00:00:00Z"}"#
        );
    }
}
