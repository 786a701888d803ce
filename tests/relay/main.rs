//! The relay as a black box: a process on a free port, literal bytes to it, and every byte of its answers read
//! strictly. One file per promise.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "a test: a panic is its report, what it skips it says, and nobody else uses its modules"
)]

#[path = "../support/mod.rs"]
mod support;

mod capture;
mod cli;
mod conformance;
mod conformance_rules;
mod control;
mod cores;
mod drain;
mod filters;
mod http;
mod http_framing;
mod ingest;
mod limits;
mod logging;
mod memory;
mod publishers;
mod readme;
mod receiving;
mod resume;
mod scale;
mod slow_consumers;
mod sse;
mod stopped;
mod turns;
mod websocket;
mod websocket_messages;
