//! What waits to be written to one connection: references into the core's delivery blocks and, for a reader that fell
//! far behind, a backlog of its own.
//!
//! Owns the order and the amount; it knows neither the socket (`io/flush.rs` writes) nor what the bytes mean, except
//! that each push consists of whole messages (WebSocket frames, HTTP chunks), so that every *piece* begins with a
//! message.
//!
//! Invariants:
//! - The pieces are those of the backlog, then `first`, then `more`; `more` is empty while `first` is.
//! - `sent` < length of the front piece, or 0 without one; only the front piece is partly sent.
//! - `bytes` = lengths of all pieces − `sent`.
//! - While bytes of an HTTP head are unsent (`head_left`), nothing joins a piece: a piece is a head or messages.
//!
//! An idle queue holds no heap memory beyond a small spill-over.

use std::collections::VecDeque;

use crate::engine::blocks::{BlockSlice, Blocks};
use crate::engine::service::{Run, Unsent};

/// An emptied queue keeps room for this many slices beyond the first: consumers of a few lanes then never allocate.
const SLICES_KEPT: usize = 8;
/// A backlog gives back the memory in front of it in steps of at least this many bytes.
const BACKLOG_STEP_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    bytes: usize,
    backlog: Option<Box<Backlog>>,
    /// The first slice, inline because most consumers never have two; none if its length is 0.
    first: BlockSlice,
    more: VecDeque<BlockSlice>,
    sent: u32,
    head_left: u32,
}

#[derive(Debug, Default)]
struct Backlog {
    bytes: Vec<u8>,
    /// Where the first piece begins in `bytes`.
    start: usize,
    pieces: VecDeque<QueuedPiece>,
}

#[derive(Debug, Clone, Copy)]
struct QueuedPiece {
    len: u32,
    mark: u64,
}

impl WriteQueue {
    /// Bytes that the socket has not taken.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether everything has been handed to the socket.
    pub(super) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes copied into this queue's own memory.
    pub(super) fn backlog_bytes(&self) -> usize {
        self.backlog.as_ref().map_or(0, |backlog| backlog.bytes.len() - backlog.start)
    }

    /// Queues a run of this turn. Answers false for one of an earlier turn, of which nothing is queued.
    #[must_use]
    pub(super) fn push(&mut self, blocks: &mut Blocks, run: Run, mark: u64) -> bool {
        let Some(slice) = blocks.hold(run, mark) else { return false };
        if slice.len == 0 {
            blocks.release(slice);
            return true;
        }
        self.bytes += slice.len as usize;
        if self.first.len == 0 {
            self.first = slice;
            return true;
        }
        let last = self.more.back_mut().unwrap_or(&mut self.first);
        let adjacent = last.block == slice.block && last.start + last.len == slice.start;
        // Marks that are offsets of one stream grow by what is pushed. Bytes of two streams must stay apart, or what is
        // unsent of either could not be told any more.
        let one_stream = slice.mark == last.mark || slice.mark == last.mark.wrapping_add(u64::from(slice.len));
        if adjacent && one_stream && self.head_left == 0 {
            last.len += slice.len;
            last.mark = slice.mark;
            blocks.release(slice);
        } else {
            self.more.push_back(slice);
        }
        true
    }

    /// Queues an HTTP head (with whatever message comes with it). The queue was empty before: a head follows nothing.
    pub(super) fn push_head(&mut self, blocks: &mut Blocks, run: Run) {
        let queued = self.push(blocks, run, 0);
        debug_assert!(queued, "a head is written in the turn that queues it");
        self.head_left = u32::try_from(self.bytes).unwrap_or(u32::MAX);
    }

    /// Everything unsent, first to last.
    pub(super) fn unsent(&self, visit: &mut dyn FnMut(Unsent)) {
        let mut sent = self.sent;
        let backlog = self.backlog.iter().flat_map(|backlog| &backlog.pieces).copied();
        let slices = self.slices().map(|slice| QueuedPiece { len: slice.len, mark: slice.mark });
        for piece in backlog.chain(slices) {
            visit(Unsent { mark: piece.mark, bytes: (piece.len - std::mem::take(&mut sent)) as usize });
        }
    }

    /// The unsent bytes in order, in as many parts as they lie in.
    pub(super) fn parts<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = &'a [u8]> {
        let mut sent = self.sent as usize;
        let backlog = self.backlog.as_ref().map(|backlog| backlog.bytes.get(backlog.start..).unwrap_or_default());
        let slices = self.slices().map(|slice| blocks.bytes(slice));
        backlog.into_iter().chain(slices).map(move |part| part.get(std::mem::take(&mut sent)..).unwrap_or_default())
    }

    /// The socket took that many bytes.
    pub(super) fn advance(&mut self, blocks: &mut Blocks, taken: usize) {
        debug_assert!(taken <= self.bytes, "a socket takes no more than it was given");
        self.bytes = self.bytes.saturating_sub(taken);
        let had_head = self.head_left > 0;
        self.head_left = self.head_left.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
        let mut left = self.sent as usize + taken;
        self.sent = 0;
        while let Some(len) = self.front_len() {
            if left < len as usize {
                self.sent = left as u32;
                return;
            }
            left -= len as usize;
            self.pop_front(blocks);
        }
        self.shrink(if had_head { 0 } else { SLICES_KEPT });
    }

    /// Drops what is unsent, except the rest of a message begun (or of an HTTP head). `message_len` tells the length of
    /// the message at the start of the bytes; where it cannot, the whole piece stays.
    pub(super) fn cut(&mut self, blocks: &mut Blocks, message_len: fn(&[u8]) -> Option<usize>) {
        let keep = if self.head_left > 0 {
            self.head_left as usize
        } else {
            end_of_begun(self.front(blocks), self.sent as usize, message_len) - self.sent as usize
        };
        self.truncate(blocks, keep);
    }

    /// Drops everything.
    pub(super) fn clear(&mut self, blocks: &mut Blocks) {
        for slice in self.slices() {
            blocks.release(*slice);
        }
        *self = Self::default();
    }

    /// Copies what lies in blocks below that age into the backlog, together with what comes before it, and gives the
    /// slices back. Answers the bytes copied.
    pub(super) fn detach(&mut self, blocks: &mut Blocks, age: u64) -> usize {
        let old = self.slices().enumerate().filter(|(_, slice)| blocks.age(slice) < age);
        let Some((last, _)) = old.last() else { return 0 };
        let backlog = self.backlog.get_or_insert_default();
        let before = backlog.bytes.len();
        for _ in 0..=last {
            let slice = std::mem::replace(&mut self.first, self.more.pop_front().unwrap_or_default());
            backlog.bytes.extend_from_slice(blocks.bytes(&slice));
            backlog.pieces.push_back(QueuedPiece { len: slice.len, mark: slice.mark });
            blocks.release(slice);
        }
        backlog.bytes.len() - before
    }

    fn slices(&self) -> impl Iterator<Item = &BlockSlice> {
        (self.first.len > 0).then_some(&self.first).into_iter().chain(&self.more)
    }

    fn front_len(&self) -> Option<u32> {
        match &self.backlog {
            Some(backlog) => backlog.pieces.front().map(|piece| piece.len),
            None => (self.first.len > 0).then_some(self.first.len),
        }
    }

    fn front<'a>(&'a self, blocks: &'a Blocks) -> &'a [u8] {
        match &self.backlog {
            Some(backlog) => {
                let len = backlog.pieces.front().map_or(0, |piece| piece.len as usize);
                backlog.bytes.get(backlog.start..backlog.start + len).unwrap_or_default()
            }
            None if self.first.len > 0 => blocks.bytes(&self.first),
            None => &[],
        }
    }

    fn pop_front(&mut self, blocks: &mut Blocks) {
        let Some(backlog) = &mut self.backlog else {
            blocks.release(std::mem::replace(&mut self.first, self.more.pop_front().unwrap_or_default()));
            return;
        };
        if let Some(piece) = backlog.pieces.pop_front() {
            backlog.start += piece.len as usize;
        }
        if backlog.pieces.is_empty() {
            self.backlog = None;
        } else if backlog.start >= BACKLOG_STEP_BYTES && backlog.start * 2 >= backlog.bytes.len() {
            backlog.bytes.drain(..std::mem::take(&mut backlog.start));
            backlog.bytes.shrink_to_fit();
        }
    }

    /// Keeps that many unsent bytes and drops the rest.
    fn truncate(&mut self, blocks: &mut Blocks, keep: usize) {
        let mut left = self.sent as usize + keep;
        let mut shorten = |len: &mut u32| {
            *len = (*len).min(u32::try_from(left).unwrap_or(u32::MAX));
            left -= *len as usize;
            *len > 0
        };
        if let Some(backlog) = &mut self.backlog {
            backlog.pieces.retain_mut(|piece| shorten(&mut piece.len));
            let kept: usize = backlog.pieces.iter().map(|piece| piece.len as usize).sum();
            backlog.bytes.truncate(backlog.start + kept);
            if kept == 0 {
                self.backlog = None;
            }
        }
        if self.first.len > 0 && !shorten(&mut self.first.len) {
            blocks.release(std::mem::take(&mut self.first));
        }
        self.more.retain_mut(|slice| {
            let kept = shorten(&mut slice.len);
            if !kept {
                blocks.release(*slice);
            }
            kept
        });
        self.bytes = keep;
        // The front piece may end exactly where the socket stopped.
        self.advance(blocks, 0);
    }

    /// Gives back an emptied queue's room beyond that many slices. Behind a head all of it: what had to stay apart from
    /// the head says nothing of what will be queued from now on, and an idle consumer should hold no memory for it.
    fn shrink(&mut self, kept: usize) {
        if self.more.capacity() > kept {
            self.more = VecDeque::new();
        }
    }
}

/// Where the message ends that had been begun when `sent` bytes of a piece were sent; `sent` itself if none had.
fn end_of_begun(piece: &[u8], sent: usize, message_len: fn(&[u8]) -> Option<usize>) -> usize {
    let mut end = 0;
    while end < sent {
        let rest = piece.get(end..).unwrap_or_default();
        end += message_len(rest).filter(|len| (1..=rest.len()).contains(len)).unwrap_or(rest.len().max(1));
    }
    end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::blocks::BLOCK_BYTES;
    use crate::engine::service::Lane;

    /// Test messages: a length byte, then as many bytes.
    fn message_len(bytes: &[u8]) -> Option<usize> {
        bytes.first().map(|len| 1 + usize::from(*len))
    }

    fn message(len: u8, filler: u8) -> Vec<u8> {
        let mut message = vec![filler; usize::from(len) + 1];
        message[0] = len;
        message
    }

    fn unsent(queue: &WriteQueue) -> Vec<(u64, usize)> {
        let mut pieces = Vec::new();
        queue.unsent(&mut |piece| pieces.push((piece.mark, piece.bytes)));
        pieces
    }

    fn content(queue: &WriteQueue, blocks: &Blocks) -> Vec<u8> {
        queue.parts(blocks).flatten().copied().collect()
    }

    fn push(queue: &mut WriteQueue, blocks: &mut Blocks, lane: u8, bytes: &[u8], mark: u64) {
        let run = blocks.write(Lane(lane), bytes);
        assert!(queue.push(blocks, run, mark));
    }

    #[test]
    fn adjacent_runs_of_two_streams_stay_apart() {
        let (mut queue, mut blocks) = (WriteQueue::default(), Blocks::default());
        push(&mut queue, &mut blocks, 0, b"one", 103);
        push(&mut queue, &mut blocks, 0, b"two", 7);
        assert_eq!(unsent(&queue), [(103, 3), (7, 3)]);
    }

    #[test]
    fn adjacent_runs_of_one_stream_join_under_the_newest_mark() {
        let (mut queue, mut blocks) = (WriteQueue::default(), Blocks::default());
        push(&mut queue, &mut blocks, 0, b"one", 103);
        push(&mut queue, &mut blocks, 0, b"two", 106);
        push(&mut queue, &mut blocks, 1, b"three", 3);
        assert_eq!(unsent(&queue), [(106, 6), (3, 5)]);
        queue.advance(&mut blocks, 4);
        assert_eq!(unsent(&queue), [(106, 2), (3, 5)]);
        assert_eq!(content(&queue, &blocks), b"wothree");
        queue.advance(&mut blocks, 7);
        assert!(queue.is_empty());
        assert_eq!(unsent(&queue), []);
    }

    #[test]
    fn a_cut_leaves_whole_messages_only() {
        for sent in 0..=9 {
            let (mut queue, mut blocks) = (WriteQueue::default(), Blocks::default());
            for (lane, mark) in [(0, 1), (0, 2), (1, 3)] {
                push(&mut queue, &mut blocks, lane, &message(2, b'x'), mark);
            }
            queue.advance(&mut blocks, sent);
            queue.cut(&mut blocks, message_len);
            assert_eq!(queue.bytes(), (3 - sent % 3) % 3, "sent {sent}");
            assert_eq!(content(&queue, &blocks).len(), queue.bytes());
            queue.clear(&mut blocks);
            blocks.end_turn();
        }
    }

    #[test]
    fn a_cut_keeps_a_head_begun_and_nothing_behind_it() {
        let (mut queue, mut blocks) = (WriteQueue::default(), Blocks::default());
        let head = blocks.write_own(
            b"HTTP/1.1 101

",
        );
        queue.push_head(&mut blocks, head);
        let run = blocks.write_own(&message(5, b'x'));
        assert!(queue.push(&mut blocks, run, 1));
        queue.advance(&mut blocks, 4);
        queue.cut(&mut blocks, message_len);
        assert_eq!(
            content(&queue, &blocks),
            b"/1.1 101

"
        );
    }

    #[test]
    fn a_message_whose_length_is_unknown_stays_whole() {
        let (mut queue, mut blocks) = (WriteQueue::default(), Blocks::default());
        push(&mut queue, &mut blocks, 0, b"abcdef", 1);
        queue.advance(&mut blocks, 2);
        queue.cut(&mut blocks, |_| None);
        assert_eq!(content(&queue, &blocks), b"cdef");
    }

    #[test]
    fn detaching_frees_the_blocks_and_keeps_marks() {
        let (mut queue, mut blocks) = (WriteQueue::default(), Blocks::default());
        for mark in 1..=3 {
            push(&mut queue, &mut blocks, 0, &[mark as u8; BLOCK_BYTES], mark);
        }
        queue.advance(&mut blocks, 10);
        let before = content(&queue, &blocks);
        let age = blocks.age_to_free(BLOCK_BYTES);
        assert_eq!(queue.detach(&mut blocks, age), 2 * BLOCK_BYTES);
        blocks.end_turn();
        assert_eq!(blocks.bytes_in_use(), BLOCK_BYTES);
        assert_eq!(unsent(&queue), [(1, BLOCK_BYTES - 10), (2, BLOCK_BYTES), (3, BLOCK_BYTES)]);
        assert_eq!(content(&queue, &blocks), before);
        queue.advance(&mut blocks, BLOCK_BYTES);
        assert_eq!(content(&queue, &blocks), before[BLOCK_BYTES..]);
        assert!(queue.backlog_bytes() <= 2 * BLOCK_BYTES);
        queue.advance(&mut blocks, 2 * BLOCK_BYTES - 10);
        assert_eq!((queue.bytes(), queue.backlog_bytes()), (0, 0));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push { lane: u8, len: u8 },
        Advance(usize),
        Detach(usize),
        Cut,
        EndTurn,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..3_u8, any::<u8>()).prop_map(|(lane, len)| Step::Push { lane, len }),
            3 => (0..600_usize).prop_map(Step::Advance),
            1 => (0..3_usize).prop_map(Step::Detach),
            1 => Just(Step::Cut),
            1 => Just(Step::EndTurn),
        ]
    }

    proptest! {
        /// Whatever happens, what is unsent equals a plain vector treated the same way.
        #[test]
        fn agrees_with_a_plain_vector(steps in proptest::collection::vec(step(), 1..80)) {
            let (mut queue, mut blocks) = (WriteQueue::default(), Blocks::default());
            let mut model: Vec<u8> = Vec::new();
            // Bytes at the front of the model that are the rest of a message begun.
            let mut begun = 0;
            let mut mark = 0;
            for step in steps {
                match step {
                    Step::Push { lane, len } => {
                        mark += 1;
                        push(&mut queue, &mut blocks, lane, &message(len, mark as u8), mark);
                        model.extend(message(len, mark as u8));
                    }
                    Step::Advance(taken) => {
                        let taken = taken.min(model.len());
                        queue.advance(&mut blocks, taken);
                        let mut boundary = begun;
                        while boundary < taken {
                            boundary += 1 + usize::from(model[boundary]);
                        }
                        begun = boundary - taken;
                        model.drain(..taken);
                    }
                    Step::Detach(keep) => {
                        let age = blocks.age_to_free(keep * BLOCK_BYTES);
                        queue.detach(&mut blocks, age);
                    }
                    Step::Cut => {
                        queue.cut(&mut blocks, message_len);
                        model.truncate(begun);
                    }
                    Step::EndTurn => blocks.end_turn(),
                }
                prop_assert_eq!(queue.bytes(), model.len());
                prop_assert_eq!(&content(&queue, &blocks), &model);
                let mut sum = 0;
                queue.unsent(&mut |piece| sum += piece.bytes);
                prop_assert_eq!(sum, model.len());
            }
            queue.clear(&mut blocks);
            blocks.end_turn();
            prop_assert!(blocks.bytes_in_use() <= 3 * BLOCK_BYTES);
        }
    }
}
