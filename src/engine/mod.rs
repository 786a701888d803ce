//! The event loop: the only code that knows `mio`.

pub mod service;
pub mod timer_wheel;
