//! Threads on whose work the process depends: whoever panics on one takes the process with it.
//!
//! A core that went on without another would leave that one's clients and names to nobody; and whoever waits for an
//! answer of a thread that is no more waits for ever.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts such a thread.
///
/// # Errors
/// There is no thread to be had: too little memory, or a limit of processes.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(move || {
        let guard = AbortOnPanic;
        let outcome = work();
        std::mem::forget(guard);
        outcome
    })
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}
