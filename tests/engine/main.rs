//! The engine over real sockets, with a small protocol of its own: what `engine::service` promises, on 1, 2 and 4
//! cores.

#![allow(
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test; a panic is its report"
)]

mod deadlines;
mod descriptors;
mod drain;
mod endings;
mod harness;
mod http;
mod pacing;
mod posts;
mod service;
mod streams;
mod three;
mod traps;
#[path = "../support/wait.rs"]
mod wait;
mod websocket;
