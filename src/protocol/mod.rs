//! What every protocol is made of: the floor between the engine and the protocols.
//!
//! It sees [`engine::service`](crate::engine::service), `wire`, `base`, `limits` and `ops::metrics`: no protocol, nothing else
//! of the engine. Each file is a mechanism that judges nothing: what a value means, who may wait for what, and what is said to
//! whom is its protocol's, which hands in its own types. What only one protocol needs stays in that protocol.

pub mod barrier;
pub mod by_conn;
pub mod gather;
pub mod inflow;
pub mod owners;
