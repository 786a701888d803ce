//! What a readiness event is about: a connection, the listener or the waker, as one `mio::Token`.
//!
//! A connection's token carries slot and generation, so that an event that was already collected when its connection
//! ended misses the slot's next tenant.

use mio::Token;

use crate::engine::service::ConnId;

/// The core's listener. No slab has a slot `u32::MAX`, so no connection has this token.
pub(super) const LISTENER: Token = Token(usize::MAX);
/// The core's waker.
pub(super) const WAKER: Token = Token(usize::MAX - 1);

const _: () = assert!(usize::BITS == 64, "a token holds slot and generation");

/// The token of a connection.
pub(super) fn of(conn: ConnId) -> Token {
    Token(((conn.slot as usize) << 32) | conn.generation as usize)
}

/// The connection of a token that is neither [`LISTENER`] nor [`WAKER`].
pub(super) fn connection(token: Token) -> ConnId {
    ConnId { slot: (token.0 >> 32) as u32, generation: token.0 as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_and_generation_come_back() {
        for (slot, generation) in [(0, 0), (1, u32::MAX), (u32::MAX - 1, 7), (u32::MAX - 1, u32::MAX)] {
            let conn = ConnId { slot, generation };
            assert_eq!(connection(of(conn)), conn);
            assert!(of(conn) != LISTENER && of(conn) != WAKER);
        }
    }
}
