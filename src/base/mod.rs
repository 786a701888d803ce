//! Containers and values: no I/O, no protocol, no clock.

pub mod time;
