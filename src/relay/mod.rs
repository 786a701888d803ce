//! The activity relay of one core: a state machine over parsed input.

pub mod capture;
pub mod event;
pub mod filter;
pub mod index;

#[cfg(test)]
mod testing;
