//! The engine over real sockets, with a small protocol of its own: what `engine::service` promises, on 1, 2 and 4 cores.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "in a test a panic is the report")]

mod drain;
mod harness;
mod http;
mod service;
mod streams;
mod websocket;
