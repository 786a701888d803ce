//! The activity relay of one core: a state machine over parsed input.

pub mod buffer;
pub mod event;
