//! Programs we did not write, against the running relay: the AEP Python SDK, `curl`, a browser, and a clock that is set
//! while it runs.
//!
//! Where a tool is missing, its tests say so on standard error and pass; with `AEP_INTEROP=require` they fail instead.
//! The SDK is found through the interpreter in `AEP_PYTHON` (default `python3`).

#![allow(clippy::unwrap_used, reason = "a broken expectation is how a test fails")]
#![allow(unreachable_pub, reason = "the modules of a test crate have no other users")]

#[allow(dead_code, unused_imports, reason = "these suites use a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod browser;
mod clock;
mod curl;
mod python;
mod tool;
