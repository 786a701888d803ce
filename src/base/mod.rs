//! Containers and values: no I/O, no protocol, no clock.

pub mod buckets;
pub mod footprint;
pub mod segment_pool;
pub mod seldom;
pub mod slab;
pub mod time;
pub mod timer_wheel;
pub mod token_bucket;
