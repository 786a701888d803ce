//! Codecs: bytes ⇄ values. They know no socket, no protocol above them and no policy.

mod digits;
pub mod http1;
pub mod json;
pub mod ndjson;
pub mod rfc3339;
pub mod sse;
pub mod url;
pub mod websocket;

/// What every decoder answers: a value and how many input bytes it took, a request for more bytes, or a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<T, E> {
    /// A whole value; `consumed` bytes of the input belong to it.
    Done {
        /// The value.
        value: T,
        /// Input bytes it took.
        consumed: usize,
    },
    /// Not enough bytes yet; nothing was consumed.
    Need,
    /// The input can never become a value.
    Invalid(E),
}
