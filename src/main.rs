//! Start-up of the relay.
fn main() {}
