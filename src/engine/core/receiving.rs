//! What becomes of a connection whose body or message is not received on. Who may be received on is
//! `io/receiving.rs`'s.

use tracing::debug;

use crate::engine::connection::Half;
use crate::engine::connection::reception::Standing;
use crate::engine::core::Core;
use crate::engine::reached::Limit;
use crate::engine::service::{ConnId, Ending, HttpFault, Service, WebSocketClose};

impl<S: Service> Core<S> {
    /// Looks at the body or message that a connection is sending. Answers whether it was ended.
    pub(in crate::engine) fn judge_reception(&mut self, id: ConnId) -> bool {
        let (now, favour) = (self.io.now, self.io.favour(id));
        let process = &self.io.process;
        let Some(conn) = self.io.connections.get_mut(id.slot, id.generation) else { return false };
        let Some(reception) = conn.reception_mut() else { return false };
        let takes_back = reception.is_borrowing() && process.takes_back(favour);
        let standing = reception.judge(now, process.has_room(), takes_back);
        if standing == Standing::Good {
            self.io.count_receiving(id);
            return false;
        }
        let is_http = matches!(conn.half, Half::Http(_));
        debug!(slot = id.slot, ?standing, "a body or message is not received on");
        if standing == Standing::NoRoom {
            process.reached.note(Limit::Receiving, now);
        }
        match (standing, is_http) {
            (Standing::Good, _) => {}
            (Standing::TooSlow, true) => self.refuse(id, HttpFault::Timeout),
            (Standing::NoRoom, true) => self.refuse(id, HttpFault::NoRoom),
            (Standing::TooSlow, false) => {
                let close = WebSocketClose { code: 1008, reason: "AEP_BODY_TIME: the message came in too slowly" };
                self.io.close_open_websocket(id, close, Ending::Timeout);
            }
            (Standing::NoRoom, false) => {
                let close = WebSocketClose { code: 1013, reason: "AEP_RECEIVE_BYTES: no memory for the message" };
                self.io.close_open_websocket(id, close, Ending::Refused);
            }
        }
        true
    }
}
