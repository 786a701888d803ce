//! A WebSocket client of the activity relay: what it may do, what it claims, and what it says (contract §6).

pub mod claimed;
pub mod hello;
pub mod listing;
pub mod roster;
pub mod socket;
