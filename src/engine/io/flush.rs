//! Writing queues to sockets: answers first, then consumers in turn, under a budget.
//!
//! Owns how bytes get from blocks to a socket in as few calls and copies as possible. It does not know what they are.
//!
//! - A queue that lies in one part is written with a single `write`. Several parts go out through one gathering call,
//!   where parts under [`COPY_BYTES_MAX`] are copied together first: at that size an iovec costs more than the copy.
//! - A consumer whose turn it is takes everything that is ready for it, so a busy core coalesces by itself.
//! - The budget counts calls and bytes instead of time: the clock is read once per turn. When it is used up the rest
//!   stays on its list, in order, and the next turn begins without sleeping.
//! - A socket that did not take everything is full; nothing more is tried before its next edge.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use tracing::debug;

use crate::engine::blocks::Blocks;
use crate::engine::connection::{Connection, Half, Phase};
use crate::engine::io::{Io, count_backlog};
use crate::engine::service::{ConnId, Ending, Mail};
use crate::engine::socket::Socket;
use crate::engine::write_queue::WriteQueue;

/// Parts handed over with one call.
const PARTS_MAX: usize = 64;
/// Parts under this size are copied together.
const COPY_BYTES_MAX: usize = 1 << 10;
/// Bytes gathered for one call: beyond that no socket buffer takes more.
const GATHER_BYTES_MAX: usize = 4 << 20;
/// Write calls of one flush: about a millisecond.
const CALLS_MAX: usize = 256;
/// Bytes of one flush: about a millisecond.
const BYTES_MAX: usize = 8 << 20;
/// Bytes of one connection in one flush; what is left waits for its next turn.
const CONNECTION_BYTES_MAX: usize = 1 << 20;

/// What may still be written in this flush.
#[derive(Debug)]
struct FlushBudget {
    calls: usize,
    bytes: usize,
}

impl FlushBudget {
    const fn is_left(&self) -> bool {
        self.calls > 0 && self.bytes > 0
    }
}

impl<M: Mail> Io<M> {
    /// Writes what is ready. What stays on the lists is written in the next turn.
    pub(in crate::engine) fn flush(&mut self) {
        let mut budget = FlushBudget { calls: CALLS_MAX, bytes: BYTES_MAX };
        // Those that come back to the end of a list wait for the next flush.
        for _ in 0..self.lists.answers.len() {
            let Some(id) = next(&mut self.lists.answers, &budget) else { return };
            self.flush_connection(id, &mut budget);
        }
        for _ in 0..self.lists.consumers.len() {
            let Some(id) = next(&mut self.lists.consumers, &budget) else { return };
            self.flush_connection(id, &mut budget);
        }
    }

    /// Writes what is ready for that one, as far as it is taken.
    pub(in crate::engine) fn flush_one(&mut self, id: ConnId) {
        self.flush_connection(id, &mut FlushBudget { calls: 1, bytes: CONNECTION_BYTES_MAX });
    }

    fn flush_connection(&mut self, id: ConnId, budget: &mut FlushBudget) {
        let Some(conn) = self.connections.get_mut(id.slot, id.generation) else { return };
        conn.flags.in_flush = false;
        if conn.phase == Phase::Over {
            return;
        }
        let (bytes_before, backlog_before) = (conn.queue.bytes(), conn.queue.backlog_bytes());
        let calls_before = budget.calls;
        let mut left = CONNECTION_BYTES_MAX;
        let mut result = Ok(());
        while !conn.queue.is_empty() && conn.flags.writable && left > 0 && budget.is_left() {
            match write_once(&mut conn.socket, &conn.queue, &self.blocks, &mut self.gathered) {
                Ok((taken, offered)) => {
                    conn.flags.writable = taken == offered;
                    conn.queue.advance(&mut self.blocks, taken);
                    left = left.saturating_sub(taken);
                    budget.bytes = budget.bytes.saturating_sub(taken);
                    budget.calls -= 1;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let sent = bytes_before - conn.queue.bytes();
        count_backlog(&self.process, &self.metrics, conn, backlog_before);
        self.metrics.writes.add((calls_before - budget.calls) as u64);
        self.metrics.bytes_out.add(sent as u64);
        match result {
            Ok(()) => self.after_flush(id, sent),
            Err(error) => {
                debug!(slot = id.slot, %error, "write failed");
                let has_left = self.connection(id).is_some_and(|conn| conn.flags.peer_ended);
                self.end(id, if has_left { Ending::Peer } else { Ending::SocketError });
            }
        }
    }

    fn after_flush(&mut self, id: ConnId, sent: usize) {
        let now = self.now;
        let Some(conn) = self.connections.get_mut(id.slot, id.generation) else { return };
        if sent > 0 {
            conn.progress_at = now;
            if let Half::WebSocket(half) = &mut conn.half {
                half.on_sent(sent);
            }
        }
        if conn.queue.is_empty() {
            if std::mem::take(&mut conn.flags.tell_drained) {
                self.lists.drained.push(id);
            }
            if let Phase::Finishing(linger) = conn.phase {
                let ended = conn.flags.peer_ended && !conn.flags.readable;
                conn.socket.shut_write();
                conn.phase = Phase::Lingering(linger);
                if ended {
                    self.end(id, Ending::Complete);
                    return;
                }
            }
        } else if conn.flags.writable {
            self.schedule_flush(id);
        } else if !conn.flags.in_lagging {
            conn.flags.in_lagging = true;
            self.lists.lagging.push(id);
        }
        // Input that had to wait for the queue to shrink.
        self.schedule_input(id);
    }

    /// Drops those from the list of laggards that are gone or have caught up.
    pub(in crate::engine) fn tidy_lagging(&mut self) {
        if self.lists.lagging.len() > 2 * self.connections.len() + 64 {
            let connections = &mut self.connections;
            self.lists.lagging.retain(|id| {
                connections.get_mut(id.slot, id.generation).is_some_and(|conn| {
                    conn.flags.in_lagging = lags(conn);
                    conn.flags.in_lagging
                })
            });
        }
    }

    /// Frees the oldest delivery blocks while they are over their bound: whoever still refers to them copies its rest.
    pub(in crate::engine) fn reclaim_blocks(&mut self) {
        let bytes_max = self.process.limits.delivery_bytes_max;
        if self.blocks.bytes_in_use() <= bytes_max {
            return;
        }
        // A quarter at once, so that the walk over the laggards is paid once per many blocks.
        let age = self.blocks.age_to_free(bytes_max - bytes_max / 4);
        let count = |conn: &Connection, before| count_backlog(&self.process, &self.metrics, conn, before);
        let mut lagging = std::mem::take(&mut self.lists.lagging);
        lagging.retain(|id| {
            let Some(conn) = self.connections.get_mut(id.slot, id.generation) else { return false };
            detach(conn, &mut self.blocks, age, count);
            conn.flags.in_lagging = lags(conn);
            conn.flags.in_lagging
        });
        self.lists.lagging = lagging;
        for id in self.lists.answers.iter().chain(&self.lists.consumers) {
            if let Some(conn) = self.connections.get_mut(id.slot, id.generation) {
                detach(conn, &mut self.blocks, age, count);
            }
        }
    }
}

fn next(list: &mut VecDeque<ConnId>, budget: &FlushBudget) -> Option<ConnId> {
    if budget.is_left() { list.pop_front() } else { None }
}

fn lags(conn: &Connection) -> bool {
    !conn.queue.is_empty() && !conn.flags.writable
}

fn detach(conn: &mut Connection, blocks: &mut Blocks, age: u64, count: impl FnOnce(&Connection, usize)) {
    let before = conn.queue.backlog_bytes();
    if conn.queue.detach(blocks, age) > 0 {
        count(conn, before);
    }
}

/// One call. Answers how many bytes were taken, and how many offered.
fn write_once(
    socket: &mut Socket,
    queue: &WriteQueue,
    blocks: &Blocks,
    gathered: &mut Vec<u8>,
) -> io::Result<(usize, usize)> {
    let mut parts = queue.parts(blocks);
    let Some(first) = parts.next() else { return Ok((0, 0)) };
    let Some(second) = parts.next() else { return Ok((socket.write(first)?, first.len())) };
    gather([first, second].into_iter().chain(parts), gathered, |slices, offered| {
        let taken = match slices {
            [only] => socket.write(only)?,
            several => socket.write_vectored(several)?,
        };
        Ok((taken, offered))
    })
}

/// Where a piece of a gathering call lies.
#[derive(Clone, Copy)]
enum IoPart<'a> {
    Part(&'a [u8]),
    /// In the gathering buffer.
    Copied {
        start: usize,
        end: usize,
    },
}

/// Arranges parts for one call: small neighbours copied together, large ones as they lie.
fn gather<'a, R>(
    parts: impl Iterator<Item = &'a [u8]>,
    gathered: &mut Vec<u8>,
    write: impl FnOnce(&[IoSlice<'_>], usize) -> R,
) -> R {
    gathered.clear();
    let mut pieces = [IoPart::Copied { start: 0, end: 0 }; PARTS_MAX];
    let mut count = 0;
    let mut offered = 0;
    for part in parts {
        if offered >= GATHER_BYTES_MAX {
            break;
        }
        if part.len() >= COPY_BYTES_MAX {
            let Some(free) = pieces.get_mut(count) else { break };
            *free = IoPart::Part(part);
            count += 1;
        } else {
            let start = gathered.len();
            let end = start + part.len();
            match count.checked_sub(1).and_then(|last| pieces.get_mut(last)) {
                Some(IoPart::Copied { end: last_end, .. }) => *last_end = end,
                _ => {
                    let Some(free) = pieces.get_mut(count) else { break };
                    *free = IoPart::Copied { start, end };
                    count += 1;
                }
            }
            gathered.extend_from_slice(part);
        }
        offered += part.len();
    }
    let mut slices = [IoSlice::new(&[]); PARTS_MAX];
    for (slice, piece) in slices.iter_mut().zip(pieces).take(count) {
        *slice = IoSlice::new(match piece {
            IoPart::Part(part) => part,
            IoPart::Copied { start, end } => gathered.get(start..end).unwrap_or_default(),
        });
    }
    write(slices.get(..count).unwrap_or_default(), offered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arranged(parts: &[&[u8]]) -> (Vec<usize>, Vec<u8>, usize) {
        let mut gathered = Vec::new();
        gather(parts.iter().copied(), &mut gathered, |slices, offered| {
            (
                slices.iter().map(|slice| slice.len()).collect(),
                slices.iter().flat_map(|s| s.to_vec()).collect(),
                offered,
            )
        })
    }

    #[test]
    fn small_neighbours_are_copied_together() {
        let large = vec![b'L'; COPY_BYTES_MAX];
        let (lens, bytes, offered) = arranged(&[b"a", b"bc", &large, b"d", b"e", &large, &large]);
        assert_eq!(lens, [3, COPY_BYTES_MAX, 2, COPY_BYTES_MAX, COPY_BYTES_MAX]);
        assert_eq!(bytes, [b"abc".as_slice(), &large, b"de", &large, &large].concat());
        assert_eq!(offered, bytes.len());
    }

    #[test]
    fn one_call_takes_a_bounded_number_of_parts() {
        let large = vec![b'L'; COPY_BYTES_MAX];
        let (lens, bytes, offered) = arranged(&vec![large.as_slice(); PARTS_MAX + 1]);
        assert_eq!(lens.len(), PARTS_MAX);
        assert_eq!((bytes.len(), offered), (PARTS_MAX * COPY_BYTES_MAX, PARTS_MAX * COPY_BYTES_MAX));
        let (lens, _, offered) = arranged(&vec![b"small".as_slice(); 1000]);
        assert_eq!((lens.as_slice(), offered), ([5000].as_slice(), 5000));
    }
}
