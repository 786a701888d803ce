//! What a consumer's connection says: bytes as they come → [`Said`], in any cut. Sans-IO.
//!
//! One decoder per binding: [`event_stream`] (SSE over [`http`]), [`websocket`] (frames by `tungstenite`), [`nats`].
//! Events are handed out as slices of the bytes read wherever they lie whole in them, so that reading costs little
//! beside receiving. A decoder never holds more than one unfinished message, and no message above
//! [`MESSAGE_BYTES_MAX`].

pub(crate) mod event_stream;
pub(crate) mod http;
pub(crate) mod nats;
pub(crate) mod websocket;

/// Largest message taken from a server.
pub(crate) const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// What a server said to a consumer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    /// The server has read all that was sent to it: a consumer is subscribed, an emitter's batch was taken.
    Open,
    /// An event, as delivered, with its labels where the binding has any.
    Event(&'a [u8], Option<Labels<'a>>),
    /// That many events were left out.
    Shed(u64),
    /// Not everything behind the position asked for is there any more.
    Exhausted,
    /// The server says why it will close.
    Goodbye(&'a str),
    /// The server will not have this consumer: status, or 0 if the protocol has none, and the answer's beginning.
    Refused(u16, String),
}

/// What an event stream of a relay says of an event beside its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Labels<'a> {
    /// The field `id`.
    pub(crate) id: &'a [u8],
    /// The field `event`.
    pub(crate) name: &'a [u8],
}

/// A stream that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) String);

impl Fault {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// The decoder of one connection.
#[derive(Debug)]
pub(crate) enum Decoder {
    EventStream(event_stream::EventStream),
    WebSocket(websocket::WebSocket),
    Nats(nats::Nats),
}

impl Decoder {
    /// Takes what was read; appends to `reply` what has to be answered.
    pub(crate) fn feed(
        &mut self,
        input: &[u8],
        reply: &mut Vec<u8>,
        on: &mut dyn FnMut(Said<'_>),
    ) -> Result<(), Fault> {
        match self {
            Self::EventStream(stream) => stream.feed(input, on),
            Self::WebSocket(socket) => socket.feed(input, reply, on),
            Self::Nats(nats) => nats.feed(input, reply, on),
        }
    }

    /// Whether something was begun and has not ended.
    pub(crate) fn is_within(&self) -> bool {
        match self {
            Self::EventStream(stream) => stream.is_within(),
            Self::WebSocket(socket) => socket.is_within(),
            Self::Nats(nats) => nats.is_within(),
        }
    }
}

/// The beginning of something whose end has not been read yet.
#[derive(Debug, Default)]
struct Pending(Vec<u8>);

impl Pending {
    /// Hands what was pending, together with `input`, to `whole`, which answers how many bytes of it were whole; the
    /// rest is pending then. Nothing is copied of an input that ends where something ends.
    fn feed(&mut self, input: &[u8], whole: impl FnOnce(&[u8]) -> Result<usize, Fault>) -> Result<(), Fault> {
        if self.0.is_empty() {
            let used = whole(input)?;
            self.0.extend_from_slice(input.get(used..).unwrap_or_default());
        } else {
            self.0.extend_from_slice(input);
            let used = whole(&self.0)?;
            self.0.drain(..used);
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Beginning of an answer, fit for one line of an error.
fn beginning(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text.get(..200).unwrap_or(text));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub(crate) mod testing {
    //! Feeds a decoder every cut of its input.

    use super::{Decoder, Fault, Labels, Said};

    /// What was said, in words, for input cut into pieces of `piece` bytes.
    pub(crate) fn said(mut decoder: Decoder, input: &[u8], piece: usize) -> (Vec<String>, Vec<u8>, Result<(), Fault>) {
        let (mut all, mut reply) = (Vec::new(), Vec::new());
        let result = input.chunks(piece).try_for_each(|cut| {
            decoder.feed(cut, &mut reply, &mut |said| {
                all.push(match said {
                    Said::Open => "open".to_owned(),
                    Said::Event(event, None) => format!("event {}", String::from_utf8_lossy(event)),
                    Said::Event(event, Some(Labels { id, name })) => {
                        let [event, id, name] = [event, id, name].map(String::from_utf8_lossy);
                        format!("event {event} of {id} {name}")
                    }
                    Said::Shed(count) => format!("shed {count}"),
                    Said::Exhausted => "exhausted".to_owned(),
                    Said::Goodbye(reason) => format!("goodbye {reason}"),
                    Said::Refused(status, answer) => format!("refused {status} {answer}"),
                });
            })
        });
        (all, reply, result)
    }

    /// Asserts the same words for every cut.
    pub(crate) fn assert_said(decoder: impl Fn() -> Decoder, input: &[u8], expected: &[&str]) {
        for piece in 1..=input.len() {
            let (all, _, result) = said(decoder(), input, piece);
            assert_eq!(result, Ok(()), "pieces of {piece}");
            assert_eq!(all, expected, "pieces of {piece}");
        }
    }
}
