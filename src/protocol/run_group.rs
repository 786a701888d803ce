//! The frames of a turn that one set of connections gets: each is written once, and every member takes all of them with
//! one push, or with as few as they join into. Who has no room for all of them is told to whom the group belongs.
//!
//! A group has a stream of bytes: all that was ever added. A push bears as its mark where it ends there, so that
//! [`Outbox::unsent`] tells how far a member has got.
//!
//! Invariants: nobody joins or leaves while pieces are pending, so all of them are for all members; they are pushed in
//! the turn that wrote them; a member is given a turn's pieces in order, up to the first that it has no room for.

use std::ops::Range;

use crate::base::footprint;
use crate::engine::service::{ConnId, Outbox, Pushed, Run};
use crate::limits::Room;

/// Pieces that a group keeps room for between turns.
const PIECES_KEPT: usize = 4;
/// Members that a group has room for with its first one.
const FIRST_MEMBERS: usize = 4;

/// A connection that takes the group's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMember<K> {
    /// The connection.
    pub conn: ConnId,
    /// What its protocol knows it by.
    pub key: K,
}

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunPiece {
    /// Its bytes.
    pub run: Run,
    /// How much of a queue it may fill.
    pub room: Room,
    /// Where it ends in the group's stream.
    pub end: u64,
}

impl RunPiece {
    /// Where it begins in the group's stream.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.end - u64::from(self.run.len)
    }
}

/// A member that had no room for all pieces. It is a member still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind<K> {
    /// Who.
    pub member: GroupMember<K>,
    /// The first of the pieces that it was not given; nor was it given those behind.
    pub first: usize,
}

/// What became of a turn's pieces.
#[derive(Debug)]
pub struct Settled<K> {
    /// The pieces, good until the end of the turn. Their memory is given back with [`RunGroup::recycle`].
    pub pieces: Vec<RunPiece>,
    /// How many were queued, for all members together.
    pub queued: usize,
    /// Who had no room for all, in the order of the members.
    pub behind: Vec<Behind<K>>,
}

/// One set of connections, and their frames of this turn.
#[derive(Debug)]
pub struct RunGroup<K> {
    members: Vec<GroupMember<K>>,
    /// Added and not pushed yet.
    pieces: Vec<RunPiece>,
    /// Bytes ever added.
    bytes: u64,
}

impl<K> Default for RunGroup<K> {
    fn default() -> Self {
        Self { members: Vec::new(), pieces: Vec::new(), bytes: 0 }
    }
}

impl<K: Copy> RunGroup<K> {
    /// Bytes on the heap of a group with a first member.
    pub const FOOTPRINT: usize = footprint::allocation(FIRST_MEMBERS * size_of::<GroupMember<K>>())
        + footprint::allocation(PIECES_KEPT * size_of::<RunPiece>());

    /// Who takes the frames, by place.
    #[must_use]
    pub fn members(&self) -> &[GroupMember<K>] {
        &self.members
    }

    /// Where the stream ends, pending pieces included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where pending pieces begin in the stream; its end, if there are none.
    #[must_use]
    pub fn pushed(&self) -> u64 {
        self.pieces.first().map_or(self.bytes, RunPiece::start)
    }

    /// Whether nothing is pending.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Takes a connection in. Answers its place, which it has until [`RunGroup::leave`] gives it another.
    pub fn join(&mut self, conn: ConnId, key: K) -> u32 {
        debug_assert!(self.is_settled(), "who joins while pieces are pending gets what is not for it");
        self.members.push(GroupMember { conn, key });
        u32::try_from(self.members.len() - 1).unwrap_or(u32::MAX)
    }

    /// Takes out who has this place. Answers who has it now, if anybody.
    pub fn leave(&mut self, place: u32) -> Option<K> {
        debug_assert!(self.is_settled(), "who leaves while pieces are pending misses them");
        self.members.swap_remove(place as usize);
        self.members.get(place as usize).map(|member| member.key)
    }

    /// Adds a frame, written in this turn and pending until [`RunGroup::settle`]. Answers where it lies in the stream.
    pub fn add(&mut self, run: Run, room: Room) -> Range<u64> {
        let start = self.bytes;
        self.bytes += u64::from(run.len);
        self.pieces.push(RunPiece { run, room, end: self.bytes });
        start..self.bytes
    }

    /// Pushes what is pending to all members. It goes out joined and leaves the reserve of a queue alone; who has no
    /// room for it in that form is given it piece by piece, each with its own room.
    pub fn settle(&mut self, out: &mut dyn Outbox) -> Settled<K> {
        let pieces = std::mem::take(&mut self.pieces);
        let joined = joined(&pieces);
        // Counted are those that were not: for who was given everything there is nothing to do.
        let (mut missed, mut behind) = (0, Vec::new());
        for &member in &self.members {
            for &Joined { run, first, end } in &joined {
                match out.push_run(member.conn, run, Room::Unreserved, end) {
                    Pushed::Queued => {}
                    Pushed::Full => {
                        behind.push(Behind { member, first });
                        break;
                    }
                    Pushed::Gone | Pushed::NotOpen | Pushed::Stale => {
                        missed += pieces.len() - first;
                        break;
                    }
                }
            }
        }
        behind.retain_mut(|Behind { member, first }| {
            while let Some(piece) = pieces.get(*first) {
                match out.push_run(member.conn, piece.run, piece.room, piece.end) {
                    Pushed::Queued => *first += 1,
                    Pushed::Full => break,
                    Pushed::Gone | Pushed::NotOpen | Pushed::Stale => {
                        missed += pieces.len() - *first;
                        return false;
                    }
                }
            }
            missed += pieces.len() - *first;
            *first < pieces.len()
        });
        let queued = pieces.len() * self.members.len() - missed;
        Settled { pieces, queued, behind }
    }

    /// Takes the memory of settled pieces back, for the next turn.
    pub fn recycle(&mut self, mut pieces: Vec<RunPiece>) {
        debug_assert!(self.is_settled(), "the pieces of a turn are given back before the next come");
        pieces.clear();
        pieces.shrink_to(PIECES_KEPT);
        self.pieces = pieces;
    }
}

/// Pieces that lie one behind the other, as one run.
#[derive(Debug)]
struct Joined {
    run: Run,
    /// The first of its pieces.
    first: usize,
    /// Where they end in the group's stream.
    end: u64,
}

fn joined(pieces: &[RunPiece]) -> Vec<Joined> {
    let mut joined: Vec<Joined> = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        if let Some(last) = joined.last_mut()
            && let Some(longer) = last.run.join(piece.run)
        {
            *last = Joined { run: longer, first: last.first, end: piece.end };
        } else {
            joined.push(Joined { run: piece.run, first: index, end: piece.end });
        }
    }
    joined
}

#[cfg(test)]
mod tests;
