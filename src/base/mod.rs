//! Containers and values: no I/O, no protocol, no clock.

pub mod slab;
pub mod time;
