//! A machine for any protocol: several cores without sockets, threads or clock, under one seed.
//!
//! It keeps what `protocol/mod.rs` promises, in the worst order that this allows: how much of its input, mail and time a
//! turn meets, when bytes leave and what peers do is drawn from the seed, and one seed is one run, byte for byte. A world, which
//! is its protocol's own, says who asks for what, and holds what comes back against a model.

pub(crate) mod drain;
pub(crate) mod input;
pub(crate) mod machine;
mod mail;
pub(crate) mod outbox;
pub(crate) mod random;
pub(crate) mod socket;
