//! SIGINT and SIGTERM → a flag that whoever watches the run looks at.
//!
//! The first signal asks for what was measured so far; the second ends the process where it stands.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};

/// Lets signals set `interrupted`. A signal that finds it set ends the process with `status`.
pub(crate) fn on_signals(interrupted: &Arc<AtomicBool>, status: u8) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // Actions run in the order of registration: the look at the flag comes before its setting.
        register_conditional_shutdown(signal, status.into(), Arc::clone(interrupted))?;
        register(signal, Arc::clone(interrupted))?;
    }
    Ok(())
}
