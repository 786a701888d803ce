//! The activity relay of one core: a state machine over parsed input.

pub mod buffer;
pub mod directory;
pub mod event;
