//! aep-relay: a relay for agent activity events, built for high fan-out.
//!
//! The floors, bottom to top; imports point down only (`tests/layering` reads them):
//!
//! 1. [`limits`] and [`base`]: every bound that can be set, and containers without I/O, protocol or clock.
//! 2. [`wire`]: codecs, bytes ⇄ values, sans-IO.
//! 3. [`ops`]: configuration, authentication, metrics, logging: values for the operator.
//! 4. [`engine`]: the only code that knows `mio`; [`engine::service`] is the seam to what stands above.
//! 5. [`protocol`]: what every protocol is made of; sees only the seam.
//! 6. [`relay`]: the activity relay, a state machine per core that sees the seam and what protocols are made of.
//! 7. [`gateway`]: routes, CORS and refusals; hands a connection to its protocol.
//! 8. [`server`]: the composition root, which alone knows everybody.
//!
//! # Where to begin
//!
//! `src/README.md` has the life of an event, three sequences and the lexicon. Then read the heads of [`engine`] (a
//! turn), [`engine::service`] (the seam), [`protocol`] (what holds on it), [`relay::mail`] (what cores tell each other,
//! and why its order makes resuming exact), [`relay`] (the roles), and of them `owner` and `reader`. The leaves,
//! [`wire`], [`base`], `relay/buffer`, `relay/filter`, stand by themselves and can be read in any order.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr))]

pub mod base;
pub mod engine;
pub mod gateway;
pub mod limits;
pub mod ops;
pub mod protocol;
pub mod relay;
pub mod server;
pub mod wire;
