//! `aep-load`: a load generator for activity relays, to size a deployment and to compare servers.
//!
//! Reads as a table of contents: arguments → descriptors → one scenario → one report → exit status. It shares no code
//! with the relay it measures: it reads event streams with a parser of its own and WebSocket with `tungstenite`.
//!
//! Exit status: 0 when every event arrived once and in order, 1 when not, 2 when the run could not be made or ended
//! early.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "in a test a panic is the report"))]

mod load;

use std::process::ExitCode;

fn main() -> ExitCode {
    load::run()
}
