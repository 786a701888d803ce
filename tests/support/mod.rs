//! A relay as a child process, and blocking clients that write literal bytes and read strictly.
//!
//! The clients share no code with the relay: what it sends is checked here byte by byte, so that its encoders and
//! decoders cannot err together. Every read has a deadline; a missing answer fails its test instead of hanging it.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each suite uses its own part of the support")]

mod event;
mod flock;
mod http;
mod relay;
mod sse;
mod wait;
mod websocket;
mod wire;

pub use event::{EventBuilder, agent_event, command, event, unplaced};
pub use flock::{Flock, Piece};
pub use http::{Http, Response, encode, query, request};
pub use relay::{Options, Relay, data_directory};
pub use sse::{Message, Sse};
pub use wait::{DEADLINE, wait_until};
pub use websocket::{ACCEPT, Frame, KEY, Ws, frame_bytes, opcode, tungstenite_client, upgrade_request};
pub use wire::Wire;
