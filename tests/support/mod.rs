//! A relay as a child process, and blocking clients that write literal bytes and read strictly.
//!
//! The clients share no code with the relay: what it sends is checked here byte by byte, so that its encoders and
//! decoders cannot err together. Every read has a deadline; a missing answer fails its test instead of hanging it.

mod event;
mod flock;
pub mod http;
mod relay;
mod sse;
mod wait;
mod websocket;
mod wire;

pub use event::{EventBuilder, agent_event, command, event, unplaced};
pub use flock::{Flock, Piece};
pub use http::{Http, Response, query, request};
pub use relay::{Options, Relay, data_directory};
pub use sse::{Message, Sse};
pub use wait::{DEADLINE, wait_until};
pub use websocket::{Frame, KEY, Ws, frame_bytes, opcode, tungstenite_client, upgrade_request};
