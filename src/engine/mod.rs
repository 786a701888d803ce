//! The event loop: the only code that knows `mio`.

pub mod service;
