//! The labels: closed sets of words, so that no client can add a line to the exposition.
//!
//! The words are those of the wire and of the log: a rejection by its contract code, an ending by its reason.

/// A closed set of label values.
pub trait Label: Copy {
    /// All members, in the order of their index.
    fn members() -> impl Iterator<Item = Self>;
    /// Position among the members.
    fn index(self) -> usize;
    /// Label names and values of this member.
    fn labels(self) -> Vec<(&'static str, &'static str)>;
}

/// Declares an enum whose members are the values of one label.
macro_rules! labels {
    ($(#[$meta:meta])* $name:ident as $key:literal { $($(#[$doc:meta])* $member:ident => $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $member,)+ }

        impl $name {
            const MEMBERS: &'static [Self] = &[$(Self::$member,)+];

            /// The word in the exposition.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$member => $word,)+ }
            }
        }

        impl Label for $name {
            fn members() -> impl Iterator<Item = Self> {
                Self::MEMBERS.iter().copied()
            }

            fn index(self) -> usize {
                self as usize
            }

            fn labels(self) -> Vec<(&'static str, &'static str)> {
                vec![($key, self.word())]
            }
        }
    };
}

labels! {
    /// What a connection speaks.
    ConnectionKind as "kind" {
        /// Requests and answers.
        Http => "http",
        /// An event stream.
        EventStream => "sse",
        /// A WebSocket.
        WebSocket => "websocket",
    }
}

labels! {
    /// Why a connection ended.
    Ending as "reason" {
        /// The peer ended it.
        Peer => "peer",
        /// A read or write failed.
        SocketError => "socket-error",
        /// The answer or stream came to its end.
        Complete => "complete",
        /// A deadline of HTTP passed.
        Timeout => "timeout",
        /// Kept alive without a request for too long.
        Idle => "idle",
        /// It broke HTTP or WebSocket.
        ProtocolError => "protocol-error",
        /// A protocol closed it.
        Service => "service",
        /// It was too slow for what it asked for.
        SlowConsumer => "slow-consumer",
        /// The peer was silent for too long.
        Silent => "silent",
        /// Over the connection limit.
        Refused => "refused",
        /// The process drains.
        Drain => "drain",
    }
}

labels! {
    /// What a request was for.
    Endpoint as "endpoint" {
        /// `POST /events`.
        Events => "events",
        /// `GET /stream`.
        Stream => "stream",
        /// `GET /socket`.
        Socket => "socket",
        /// `GET /connections`.
        Connections => "connections",
        /// `GET /events` and `/.well-known/aep`.
        Discovery => "discovery",
        /// `GET /healthz`.
        Health => "healthz",
        /// `GET /metrics`.
        Metrics => "metrics",
        /// Anything else, preflights and heads that could not be read included.
        Other => "other",
    }
}

labels! {
    /// How a request was answered.
    StatusClass as "status" {
        /// 101.
        Switched => "1xx",
        /// 200 to 299.
        Success => "2xx",
        /// 400 to 499.
        ClientError => "4xx",
        /// 500 to 599.
        ServerError => "5xx",
    }
}

impl StatusClass {
    /// The class of a status the relay sends.
    #[must_use]
    pub fn of(status: u16) -> Self {
        match status {
            0..200 => Self::Switched,
            200..400 => Self::Success,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }
}

/// An endpoint and the class of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestLabels {
    /// What it was for.
    pub endpoint: Endpoint,
    /// How it was answered.
    pub status: StatusClass,
}

impl Label for RequestLabels {
    fn members() -> impl Iterator<Item = Self> {
        Endpoint::members().flat_map(|endpoint| StatusClass::members().map(move |status| Self { endpoint, status }))
    }

    fn index(self) -> usize {
        self.endpoint.index() * StatusClass::MEMBERS.len() + self.status.index()
    }

    fn labels(self) -> Vec<(&'static str, &'static str)> {
        [self.endpoint.labels(), self.status.labels()].concat()
    }
}

labels! {
    /// Why an event or a batch was not taken.
    RejectionCode as "code" {
        /// No JSON.
        InvalidJson => "invalid-json",
        /// No event.
        InvalidEvent => "invalid-event",
        /// A command by POST.
        ControlRequiresDuplex => "control-requires-duplex",
        /// More bytes than a body may have.
        PayloadTooLarge => "payload-too-large",
        /// More events than a batch may have.
        TooManyEvents => "too-many-events",
    }
}

labels! {
    /// Which bound evicted a session.
    EvictionCause as "cause" {
        /// The number of sessions.
        Sessions => "sessions",
        /// The bytes of all replay buffers.
        Bytes => "bytes",
    }
}

labels! {
    /// What became of a control command.
    CommandOutcome as "outcome" {
        /// Handed to its target.
        Routed => "routed",
        /// No token is configured.
        Unauthorized => "unauthorized",
        /// Nobody claims the session, or its claimant could not take the command.
        NoRoute => "no-route",
        /// More than one connection claims the session.
        Ambiguous => "ambiguous",
        /// The claimant did not declare this type.
        Unsupported => "unsupported",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn check<L: Label>() {
        let mut seen = HashSet::new();
        for (index, member) in L::members().enumerate() {
            assert_eq!(member.index(), index);
            assert!(seen.insert(member.labels()), "{:?} twice", member.labels());
        }
    }

    #[test]
    fn the_members_of_a_label_are_distinct_and_in_the_order_of_their_index() {
        check::<ConnectionKind>();
        check::<Ending>();
        check::<Endpoint>();
        check::<StatusClass>();
        check::<RequestLabels>();
        check::<RejectionCode>();
        check::<EvictionCause>();
        check::<CommandOutcome>();
    }

    #[test]
    fn every_status_has_a_class() {
        for (status, class) in [(101, "1xx"), (202, "2xx"), (204, "2xx"), (400, "4xx"), (431, "4xx"), (503, "5xx")] {
            assert_eq!(StatusClass::of(status).word(), class);
        }
    }
}
