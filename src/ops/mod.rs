//! What the operator turns and sees: configuration, authentication, metrics, log lines, signals. Plain values that
//! know nothing of the floors above; the engine and the protocols are handed them.

pub mod auth;
pub mod config;
pub mod hosts;
pub mod log;
pub mod machine;
pub mod metrics;
pub mod origins;
pub mod shutdown;
