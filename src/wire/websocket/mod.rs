//! WebSocket of the server's side (RFC 6455): the upgrade request checked, messages in, frames out. Sans-IO (§6).
//!
//! Reading order: [`handshake`] (one request head → accept or refusal), [`frame`] (heads of frames, and everything the
//! relay sends), [`message`] (frames joined to messages). [`close`] is the one table of close codes and the shape of a
//! fault. No extension is ever agreed on, so a reserved bit is always a fault; what to do about a fault, and when a
//! peer is silent for too long, is the engine's business.

pub mod close;
pub mod frame;
pub mod handshake;
pub mod mask;
pub mod message;

mod assembly;

pub use close::{CloseCode, Fault};
pub use handshake::Handshake;
pub use message::{Incoming, MessageDecoder, Payload};
