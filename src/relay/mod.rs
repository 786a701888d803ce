//! The activity relay of one core: a state machine over parsed input (contract §2–§9).
//!
//! Three roles live on every core and talk only by messages, so that one core is the case of many with short ways:
//! [`ingest`] takes events in, the [`owner`] orders those of its sessions, the [`reader`] delivers to its consumers.
//! [`Relay`] hears the gateway, carries what the roles have for one another, and keeps the WebSocket parties.
//!
//! Knows the seam, not the engine: no socket, no clock, no file. Routes, authentication and CORS are the gateway's;
//! what it answers over HTTP goes out under the response fields the gateway hands in.
//!
//! The order inside [`Relay::on_turn`] is the life of an event: parse → hand over → admit → fan out → push runs → 202.

pub mod buffer;
pub mod event;
pub mod filter;
pub mod index;

#[cfg(test)]
mod testing;
