//! Gaps that catching up tells, as sessions go and come between its pages.

use super::*;
use crate::base::segment_pool::{PoolBudget, SegmentPool};
use crate::relay::buffer::NewEvent;
use crate::relay::event::Fingerprinter;
use crate::relay::event::Outline;
use crate::relay::mail::SubRef;

/// An owner and a reader that catches up with it, an event a page.
struct CatchingUp {
    directory: Directory,
    arrival: u64,
    cursor: Option<Cursor>,
}

impl CatchingUp {
    fn with(writes: &[&str]) -> Self {
        let directory = Directory::new(SegmentPool::new(PoolBudget::new(8 << 20)), 100, 1);
        let phase = ReplayPhase::Positions { asked: VecDeque::new(), at: None };
        let cursor = Some(Cursor { snapshot: 0, announce: true, live: true, phase });
        let mut catching_up = Self { directory, arrival: 0, cursor };
        writes.iter().for_each(|name| catching_up.write(name));
        catching_up
    }

    fn write(&mut self, name: &str) {
        self.arrival += 1;
        let position = Some(Position { epoch: 0, seq: self.arrival });
        let (fingerprint, arrival) = (u128::from(self.arrival), self.arrival);
        let event = NewEvent { raw: b"{}", position, fingerprint, arrival, outline: Outline::NONE };
        self.directory.write(name, &event, arrival).unwrap();
    }

    fn evict(&mut self, name: &str) {
        let session = self.directory.session(name).unwrap();
        self.directory.evict(session).unwrap();
    }

    /// What the next page tells: `a3` for the event of `a` that came third, `a!` for a gap in `a`.
    fn page(&mut self) -> String {
        let sub = SubRef { slot: 0, generation: 0 };
        let filter = Arc::new(Filter::everything());
        let cursor = self.cursor.take().unwrap();
        let request = PageRequest { sub, filter, cursor, memory: PageMemory::default() };
        let mut parser = Parser::new(Fingerprinter::new());
        let mut page = read(&mut self.directory, &mut parser, self.arrival, 2, request);
        self.cursor = page.next.take();
        let mut name = "";
        let mut told = Vec::new();
        for item in &page.items {
            match item {
                PageItem::Session { name: span, .. } => name = std::str::from_utf8(page.slice(*span)).unwrap(),
                PageItem::Event { arrival, .. } => told.push(format!("{name}{arrival}")),
                PageItem::Exhausted { .. } => told.push(format!("{name}!")),
                PageItem::Unknown { .. } => panic!("nothing was asked for"),
            }
        }
        told.join(" ")
    }

    /// What the pages tell from here to the end.
    fn rest(&mut self) -> String {
        let mut told = Vec::new();
        while self.cursor.is_some() {
            told.push(self.page());
        }
        told.retain(|page| !page.is_empty());
        told.join(" ")
    }
}

#[test]
fn a_session_that_goes_once_it_was_served_leaves_no_gap() {
    let mut catching_up = CatchingUp::with(&["a", "b", "c"]);
    assert_eq!(catching_up.page(), "a1");
    catching_up.evict("a");
    assert_eq!(catching_up.page(), "b2");
    catching_up.evict("b");
    catching_up.write("b");
    assert_eq!(catching_up.rest(), "c3 b4");
}

#[test]
fn a_session_that_goes_before_it_was_served_leaves_one() {
    let mut catching_up = CatchingUp::with(&["a", "b", "c", "d"]);
    assert_eq!(catching_up.page(), "a1");
    catching_up.evict("b");
    catching_up.evict("c");
    catching_up.write("c");
    assert_eq!(catching_up.rest(), "b! c! d4 c5");
}

#[test]
fn a_session_that_goes_when_half_of_it_was_served_leaves_one() {
    for comes_back in [false, true] {
        let mut catching_up = CatchingUp::with(&["b", "b", "c"]);
        assert_eq!(catching_up.page(), "b1");
        catching_up.evict("b");
        if comes_back {
            catching_up.write("b");
        }
        let rest = catching_up.rest();
        assert_eq!(rest, if comes_back { "b! c3 b4" } else { "b! c3" });
    }
}

#[test]
fn what_came_behind_a_round_and_went_before_the_next_is_a_gap_of_that_one() {
    let mut catching_up = CatchingUp::with(&["a", "b"]);
    assert_eq!(catching_up.page(), "a1");
    catching_up.write("a");
    catching_up.evict("a");
    assert_eq!(catching_up.rest(), "b2 a!");
}
