//! Clients we did not write, against the running relay: the AEP Python SDK, `curl`, and a browser.
//!
//! Where a tool is missing, its tests say so on standard error and pass; with `AEP_INTEROP=require` they fail instead.
//! The SDK is found through the interpreter in `AEP_PYTHON` (default `python3`).

#![allow(unreachable_pub, reason = "the modules of a test crate have no other users")]

#[path = "../support/mod.rs"]
mod support;

mod browser;
mod curl;
mod python;
mod tool;
