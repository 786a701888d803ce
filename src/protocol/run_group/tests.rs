//! Groups before an outbox that keeps what it is given, push by push.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use super::*;
use crate::base::time::{Deadline, Now};
use crate::engine::service::{Admits, CoreId, EventStreamOpen, Group, Lane, Response, Unsent, WebSocketClose};

/// What a queue takes beyond the reserve.
const UNRESERVED: usize = 8;
/// What it takes as a whole.
const WHOLE: usize = 12;

/// The queue of a connection that reads nothing.
#[derive(Debug, Default)]
struct Queue {
    queued: usize,
    /// What was taken, with its marks.
    pushes: Vec<(String, u64)>,
    /// What the next pushes are answered with instead of being taken.
    refusals: VecDeque<Pushed>,
}

/// Takes runs only: a group asks for nothing else.
#[derive(Debug, Default)]
struct Queues {
    lanes: BTreeMap<u8, String>,
    queues: BTreeMap<ConnId, Queue>,
}

impl Queues {
    /// A frame for a group, in that lane.
    fn write(&mut self, lane: u8, frame: &str) -> Run {
        self.write_run(Lane(lane), frame.as_bytes())
    }

    fn queue(&mut self, slot: u32) -> &mut Queue {
        self.queues.entry(conn(slot)).or_default()
    }

    /// What a connection was pushed since this was asked last, from its queue, which is empty now.
    fn take(&mut self, slot: u32) -> Vec<(String, u64)> {
        std::mem::take(self.queue(slot)).pushes
    }
}

impl Outbox for Queues {
    fn write_run(&mut self, lane: Lane, bytes: &[u8]) -> Run {
        let written = self.lanes.entry(lane.0).or_default();
        let start = u32::try_from(written.len()).unwrap();
        written.push_str(std::str::from_utf8(bytes).unwrap());
        Run { block: lane.0.into(), start, len: u32::try_from(bytes.len()).unwrap() }
    }

    fn push_run(&mut self, conn: ConnId, run: Run, room: Room, mark: u64) -> Pushed {
        let queue = self.queues.entry(conn).or_default();
        if let Some(refusal) = queue.refusals.pop_front() {
            return refusal;
        }
        let most = if room == Room::Unreserved { UNRESERVED } else { WHOLE };
        if queue.queued > 0 && queue.queued + run.len as usize > most {
            return Pushed::Full;
        }
        queue.queued += run.len as usize;
        let lane = &self.lanes[&u8::try_from(run.block).unwrap()];
        queue.pushes.push((lane[run.start as usize..][..run.len as usize].into(), mark));
        Pushed::Queued
    }

    fn now(&self) -> Now {
        unreachable!()
    }
    fn time_of_day(&self) -> SystemTime {
        unreachable!()
    }
    fn core(&self) -> CoreId {
        unreachable!()
    }
    fn cores(&self) -> usize {
        unreachable!()
    }
    fn respond(&mut self, _: ConnId, _: Response) {
        unreachable!()
    }
    fn open_event_stream(&mut self, _: ConnId, _: EventStreamOpen) {
        unreachable!()
    }
    fn set_heartbeat(&mut self, _: ConnId, _: Duration) {
        unreachable!()
    }
    fn end_event_stream(&mut self, _: ConnId, _: &[u8]) {
        unreachable!()
    }
    fn close_websocket(&mut self, _: ConnId, _: WebSocketClose<'_>) {
        unreachable!()
    }
    fn cut(&mut self, _: ConnId, _: &[u8], _: WebSocketClose<'_>) {
        unreachable!()
    }
    fn push(&mut self, _: ConnId, _: &[u8], _: u64) -> Pushed {
        unreachable!()
    }
    fn push_always(&mut self, _: ConnId, _: &[u8], _: u64) -> Pushed {
        unreachable!()
    }
    fn queued_bytes(&self, _: ConnId) -> usize {
        unreachable!()
    }
    fn unsent(&self, _: ConnId, _: &mut dyn FnMut(Unsent)) {
        unreachable!()
    }
    fn notify_drained(&mut self, _: ConnId) {
        unreachable!()
    }
    fn resume(&mut self, _: ConnId) {
        unreachable!()
    }
    fn arm(&mut self, _: ConnId, _: Deadline) {
        unreachable!()
    }
    fn disarm(&mut self, _: ConnId) {
        unreachable!()
    }
    fn admits(&self, _: Group) -> Admits {
        unreachable!()
    }
    fn admitted(&mut self, _: Group, _: usize) {
        unreachable!()
    }
}

fn conn(slot: u32) -> ConnId {
    ConnId { slot, generation: 0 }
}

/// A group whose members have these slots, and as their keys the letters from `a` on.
fn group(slots: &[u32]) -> RunGroup<char> {
    let mut group = RunGroup::default();
    for (place, (slot, key)) in (0..).zip(slots.iter().zip('a'..)) {
        assert_eq!(group.join(conn(*slot), key), place);
    }
    group
}

fn pushes<const N: usize>(pushes: [(&str, u64); N]) -> Vec<(String, u64)> {
    pushes.map(|(text, mark)| (text.into(), mark)).into()
}

#[test]
fn every_member_takes_the_frames_of_a_turn_with_one_push() {
    let (mut out, mut group) = (Queues::default(), group(&[7, 8, 9]));
    for (turn, mark) in [["one", "2", "iii"], ["4", "five", "vi"]].into_iter().zip([7, 14]) {
        for frame in turn {
            let run = out.write(0, frame);
            group.add(run, Room::Unreserved);
        }
        assert!(!group.is_settled());
        let settled = group.settle(&mut out);
        assert_eq!((settled.queued, settled.behind), (9, vec![]));
        for slot in [7, 8, 9] {
            assert_eq!(out.take(slot), pushes([(&turn.concat(), mark)]), "{slot}");
        }
        group.recycle(settled.pieces);
        assert!(group.is_settled(), "what was pushed is not pushed again");
    }
}

#[test]
fn frames_that_do_not_lie_together_are_pushed_in_the_order_they_were_added() {
    let (mut out, mut group) = (Queues::default(), group(&[7]));
    for (lane, frame) in [(0, "a"), (1, "b"), (0, "c"), (0, "d"), (1, "e")] {
        let run = out.write(lane, frame);
        group.add(run, Room::Unreserved);
    }
    assert_eq!(group.settle(&mut out).queued, 5);
    assert_eq!(out.take(7), pushes([("a", 1), ("b", 2), ("cd", 4), ("e", 5)]));
}

#[test]
fn the_stream_is_what_was_added() {
    let (mut out, mut group) = (Queues::default(), group(&[7]));
    let run = out.write(0, "one");
    assert_eq!((group.add(run, Room::Whole), group.pushed(), group.bytes()), (0..3, 0, 3));
    let run = out.write(1, "four");
    assert_eq!((group.add(run, Room::Whole), group.pushed(), group.bytes()), (3..7, 0, 7));
    let settled = group.settle(&mut out);
    assert_eq!(settled.pieces.iter().map(|piece| piece.start()..piece.end).collect::<Vec<_>>(), [0..3, 3..7]);
    assert_eq!((group.pushed(), group.bytes()), (7, 7));
    let run = out.write(0, "x");
    assert_eq!((group.add(run, Room::Whole), group.pushed(), group.bytes()), (7..8, 7, 8));
}

#[test]
fn who_has_no_room_is_told_and_the_others_take_everything() {
    let (mut out, mut group) = (Queues::default(), group(&[6, 7, 8, 9]));
    out.queue(7).queued = UNRESERVED - 4;
    out.queue(9).queued = UNRESERVED;
    for frame in ["aaa", "bbb", "c"] {
        let run = out.write(0, frame);
        group.add(run, Room::Unreserved);
    }
    let settled = group.settle(&mut out);
    let behind = [(7, 'b', 1), (9, 'd', 0)];
    assert_eq!(
        settled.behind,
        behind.map(|(slot, key, first)| Behind { member: GroupMember { conn: conn(slot), key }, first })
    );
    assert_eq!(settled.queued, 7);
    assert_eq!(out.take(7), pushes([("aaa", 3)]), "nothing behind what has no room, though it had");
    assert_eq!(out.take(9), pushes([]));
    for slot in [6, 8] {
        assert_eq!(out.take(slot), pushes([("aaabbbc", 7)]), "{slot}");
    }
    assert_eq!(group.members().iter().map(|member| member.key).collect::<String>(), "abcd", "they are members still");
}

#[test]
fn a_piece_fills_as_much_of_a_queue_as_it_may() {
    let (mut out, mut group) = (Queues::default(), group(&[7, 8]));
    out.queue(7).queued = UNRESERVED - 3;
    out.queue(8).queued = UNRESERVED - 2;
    for (frame, room) in [("aaa", Room::Unreserved), ("bbb", Room::Whole)] {
        let run = out.write(0, frame);
        group.add(run, room);
    }
    let settled = group.settle(&mut out);
    assert_eq!(out.take(7), pushes([("aaa", 3), ("bbb", 6)]), "the second goes into the reserve");
    assert_eq!(out.take(8), pushes([]), "the first does not");
    assert_eq!(settled.behind, [Behind { member: GroupMember { conn: conn(8), key: 'b' }, first: 0 }]);
    assert_eq!(settled.queued, 2);
}

#[test]
fn who_has_no_room_is_told_with_what_it_took_of_runs_that_do_not_join() {
    let (mut out, mut group) = (Queues::default(), group(&[7]));
    for (lane, frame) in [(0, "aa"), (0, "aa"), (1, "bb"), (1, "bb"), (1, "bb")] {
        let run = out.write(lane, frame);
        group.add(run, Room::Unreserved);
    }
    let settled = group.settle(&mut out);
    assert_eq!((settled.behind[0].first, settled.queued), (4, 4));
    assert_eq!(out.take(7), pushes([("aaaa", 4), ("bb", 6), ("bb", 8)]), "none twice");
}

#[test]
fn who_is_gone_is_pushed_nothing_more_and_not_told() {
    let (mut out, mut group) = (Queues::default(), group(&[7, 8, 9]));
    out.queue(7).refusals = [Pushed::Gone].into();
    out.queue(8).refusals = [Pushed::Full, Pushed::Gone].into();
    for lane in [0, 1] {
        let run = out.write(lane, "x");
        group.add(run, Room::Unreserved);
    }
    let settled = group.settle(&mut out);
    assert_eq!((settled.queued, settled.behind), (2, vec![]));
    assert_eq!((out.take(7), out.take(8)), (vec![], vec![]));
    assert_eq!(out.take(9), pushes([("x", 1), ("x", 2)]));
}

#[test]
fn who_joins_in_the_middle_of_a_turn_takes_what_comes_behind_and_who_leaves_what_came_before() {
    let (mut out, mut group) = (Queues::default(), group(&[6, 7, 8]));
    let run = out.write(0, "one");
    group.add(run, Room::Unreserved);
    group.settle(&mut out);
    assert_eq!(group.leave(0), Some('c'), "who was last has its place");
    assert_eq!(group.join(conn(9), 'd'), 2);
    let run = out.write(0, "two");
    group.add(run, Room::Unreserved);
    assert_eq!(group.settle(&mut out).queued, 3);
    assert_eq!(out.take(6), pushes([("one", 3)]));
    assert_eq!(out.take(7), pushes([("one", 3), ("two", 6)]));
    assert_eq!(out.take(8), pushes([("one", 3), ("two", 6)]));
    assert_eq!(out.take(9), pushes([("two", 6)]));
    assert_eq!(group.leave(2), None, "nobody was behind it");
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "an assertion of debug builds")]
#[should_panic(expected = "who joins while pieces are pending")]
fn nobody_joins_while_pieces_are_pending() {
    let (mut out, mut group) = (Queues::default(), group(&[7]));
    let run = out.write(0, "x");
    group.add(run, Room::Unreserved);
    group.join(conn(8), 'b');
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "an assertion of debug builds")]
#[should_panic(expected = "who leaves while pieces are pending")]
fn nobody_leaves_while_pieces_are_pending() {
    let (mut out, mut group) = (Queues::default(), group(&[7]));
    let run = out.write(0, "x");
    group.add(run, Room::Unreserved);
    group.leave(0);
}

#[test]
fn a_group_without_members_or_without_frames_pushes_nothing() {
    let (mut out, mut group) = (Queues::default(), group(&[]));
    let run = out.write(0, "x");
    group.add(run, Room::Unreserved);
    let settled = group.settle(&mut out);
    assert_eq!((settled.queued, settled.behind, group.bytes()), (0, vec![], 1));
    group.join(conn(7), 'a');
    let settled = group.settle(&mut out);
    assert_eq!((settled.queued, settled.pieces, out.take(7)), (0, vec![], vec![]));
}
