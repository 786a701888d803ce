//! A session buffer against a naive model of contract §3: a sorted `Vec`, and readers that remember everything.

use proptest::prelude::*;

use super::*;
use crate::base::segment_pool::{CHUNK_BYTES, PoolBudget};

const EVENTS_MAX: usize = 12;
const FINGERPRINTS: u8 = 40;

#[derive(Debug, Clone)]
enum Step {
    /// Position if sequenced, fingerprint, bytes.
    Admit(Option<(u64, u64)>, u8, usize),
    Unkept(Option<(u64, u64)>, u8),
    Trim(usize),
    CloseAndComeBack,
    /// A new reader: from where, or of everything.
    Read(Option<(u64, u64)>),
    /// One page of this many bytes.
    Page(usize),
}

#[derive(Debug, Clone, PartialEq)]
struct Event {
    placement: Option<Position>,
    arrival: u64,
    forwarded: u64,
    sequenced: bool,
    fingerprint: u128,
    raw: Vec<u8>,
}

impl Event {
    fn key(&self) -> (Option<Position>, u64) {
        (self.placement, self.arrival)
    }

    fn position(&self) -> Option<Position> {
        self.placement.filter(|_| self.sequenced)
    }

    /// Whether a resume from here is owed it.
    fn is_after(&self, from: Option<Position>) -> bool {
        from.is_none() || if self.sequenced { self.placement > from } else { self.placement >= from }
    }
}

/// One subscription, through replay and catching up.
#[derive(Debug)]
struct Reader {
    from: Option<Position>,
    arrived_until: u64,
    replay: Option<ReplayCursor>,
    catch_up: CatchUpCursor,
    /// Arrival numbers owed by the replay, in order, and given.
    owed: Vec<u64>,
    given: Vec<u64>,
    caught_up: Vec<u64>,
    told: bool,
}

struct Shadow {
    pool: SegmentPool,
    buffer: SessionBuffer,
    held: Vec<Event>,
    /// Everything ever admitted, and what was evicted of it.
    admitted: Vec<Event>,
    evicted: Vec<Event>,
    arrival: u64,
    reader: Option<Reader>,
}

fn at((epoch, seq): (u64, u64)) -> Position {
    Position { epoch, seq }
}

impl Shadow {
    fn new(capacity: usize) -> Self {
        Self {
            pool: SegmentPool::new(PoolBudget::new(capacity)),
            buffer: SessionBuffer::default(),
            held: Vec::new(),
            admitted: Vec::new(),
            evicted: Vec::new(),
            arrival: 0,
            reader: None,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Admit(position, fingerprint, bytes) => self.admit(position.map(at), fingerprint, bytes),
            Step::Unkept(position, fingerprint) => {
                self.arrival += 1;
                let event = self.event(position.map(at), fingerprint, 3);
                let admission = self.buffer.admit_unkept(&new_event(&event, position.map(at)));
                if self.held.iter().any(|held| held.fingerprint == event.fingerprint) {
                    assert_eq!(admission, Admission::Duplicate);
                } else {
                    assert_eq!(admission, Admission::Placed { placement: event.placement, kept: false, evicted: 1 });
                    self.admitted.push(event.clone());
                    self.evicted.push(event);
                }
            }
            Step::Trim(bytes) => {
                let before = self.buffer.held_bytes();
                let evicted = self.buffer.trim_lowest(&mut self.pool, bytes);
                assert!(before - self.buffer.held_bytes() >= bytes || self.buffer.is_empty());
                self.evicted.extend(self.held.drain(..evicted));
            }
            Step::CloseAndComeBack => {
                let marks = std::mem::take(&mut self.buffer).close(&mut self.pool);
                assert_eq!(self.pool.held_bytes(), 0);
                self.buffer = SessionBuffer::new(marks);
                self.evicted.append(&mut self.held);
            }
            Step::Read(from) => self.subscribe(from.map(at)),
            Step::Page(bytes_max) => self.page(bytes_max),
        }
        self.check();
    }

    fn event(&self, position: Option<Position>, fingerprint: u8, bytes: usize) -> Event {
        Event {
            placement: position.or_else(|| self.held.last().and_then(|last| last.placement)),
            arrival: self.arrival,
            forwarded: 0,
            sequenced: position.is_some(),
            fingerprint: u128::from(fingerprint % 5) | u128::from(fingerprint) << 64,
            raw: (0..bytes).map(|at| (at as u64 * 31 + self.arrival) as u8).collect(),
        }
    }

    fn admit(&mut self, position: Option<Position>, fingerprint: u8, bytes: usize) {
        self.arrival += 1;
        let event = self.event(position, fingerprint, bytes);
        let before = (*self.buffer.marks(), self.buffer.last_arrival());
        let admission = self.buffer.admit(&mut self.pool, &new_event(&event, position), EVENTS_MAX);
        let Ok(admission) = admission else {
            // Nothing changed; what is held is compared by `check`.
            assert_eq!(before, (*self.buffer.marks(), self.buffer.last_arrival()));
            return;
        };
        if let Some(held) = self.held.iter_mut().find(|held| held.fingerprint == event.fingerprint) {
            assert_eq!(admission, Admission::Duplicate);
            held.forwarded = self.arrival;
            return;
        }
        let (placement, arrival) = event.key();
        self.admitted.push(event.clone());
        self.held.push(event);
        self.held.sort_by_key(Event::key);
        let evicted: Vec<Event> = self.held.drain(..self.held.len().saturating_sub(EVENTS_MAX)).collect();
        let kept = evicted.iter().all(|gone| gone.arrival != arrival);
        assert_eq!(admission, Admission::Placed { placement, kept, evicted: evicted.len() });
        self.evicted.extend(evicted);
    }

    fn subscribe(&mut self, from: Option<Position>) {
        let marks = self.buffer.marks();
        let owed = self.held.iter().filter(|event| event.is_after(from)).map(|event| event.arrival).collect();
        self.reader = Some(Reader {
            from,
            arrived_until: self.arrival,
            replay: Some(from.map_or_else(|| ReplayCursor::everything(marks), |from| ReplayCursor::after(marks, from))),
            catch_up: CatchUpCursor::after(self.arrival),
            owed,
            given: Vec::new(),
            caught_up: Vec::new(),
            told: false,
        });
    }

    fn page(&mut self, bytes_max: usize) {
        let Some(mut reader) = self.reader.take() else {
            return;
        };
        let (mut served, mut scratch) = (Vec::new(), Vec::new());
        let by_arrival = self.replay_done(&reader);
        let mut visit = |stored: Stored<'_>| served.push((stored.arrival, stored.position, stored.raw.to_vec()));
        let finished = if let Some(cursor) = reader.replay {
            reader.told |= self.buffer.overtaken(&cursor).is_some();
            let until = reader.arrived_until;
            let end = self.buffer.page(&self.pool, cursor, until, bytes_max, &mut scratch, &mut visit);
            reader.replay = Some(end.next).filter(|_| !end.finished);
            end.finished
        } else {
            reader.told |= self.buffer.catch_up_overtaken(&reader.catch_up).is_some();
            let cursor = reader.catch_up;
            let end =
                self.buffer.page_by_arrival(&self.pool, cursor, self.arrival, bytes_max, &mut scratch, &mut visit);
            reader.catch_up = end.next;
            assert!(!end.finished || end.next.arrival() == self.arrival);
            end.finished
        };
        assert!(finished || !served.is_empty(), "a page that serves nothing must be the last");
        let bytes: usize = served.iter().map(|(_, _, raw)| raw.len()).sum();
        assert!(bytes <= bytes_max || served.len() == 1);
        for (number, position, raw) in served {
            let bears = |event: &&Event| event.arrival == number || (by_arrival && event.forwarded == number);
            let event = self.held.iter().find(bears).expect("only held events are served");
            assert_eq!((event.position(), &event.raw), (position, &raw));
            if by_arrival { &mut reader.caught_up } else { &mut reader.given }.push(number);
        }
        if finished {
            self.check_reader(&reader, by_arrival);
        }
        self.reader = Some(reader);
    }

    fn replay_done(&self, reader: &Reader) -> bool {
        reader.replay.is_none()
    }

    /// Nothing doubled, nothing out of order, and nothing lost without a word.
    fn check_reader(&self, reader: &Reader, by_arrival: bool) {
        let lost = |number: &u64| self.evicted.iter().any(|event| event.arrival == *number);
        if !by_arrival {
            let mut owed = reader.owed.clone();
            owed.retain(|number| reader.given.contains(number) || !lost(number));
            assert_eq!(owed, reader.given);
            assert!(owed.len() == reader.owed.len() || reader.told || reader.from.is_none());
        } else {
            assert!(reader.caught_up.is_sorted_by(|a, b| a < b));
            for event in self.admitted.iter().filter(|event| event.arrival > reader.arrived_until) {
                let number = event.arrival;
                assert!(reader.caught_up.contains(&number) || (lost(&number) && reader.told));
            }
            for event in self.held.iter().filter(|event| event.forwarded > reader.arrived_until) {
                assert!(reader.caught_up.contains(&event.forwarded));
            }
        }
    }

    fn check(&mut self) {
        self.pool.check_invariants();
        self.buffer.check_invariants();
        assert!(self.pool.held_bytes() >= self.buffer.held_bytes());
        let (mut served, mut scratch) = (Vec::new(), Vec::new());
        let all = ReplayCursor::everything(self.buffer.marks());
        let end = self.buffer.page(&self.pool, all, u64::MAX, usize::MAX, &mut scratch, &mut |stored| {
            served.push((stored.position, stored.arrival, stored.raw.to_vec()));
        });
        assert!(end.finished);
        let held = self.held.iter().map(|event| (event.position(), event.arrival, event.raw.clone()));
        assert!(held.eq(served), "held and served differ");
        for epoch in 0..3 {
            for seq in 0..12 {
                let from = Position { epoch, seq };
                assert_eq!(self.buffer.exhausted(from), self.exhausted(from), "from {from}");
            }
        }
    }

    fn exhausted(&self, from: Position) -> Option<Position> {
        let positions = || self.admitted.iter().filter_map(Event::position);
        let lowest = positions().min();
        let adjacent = |lowest: Position| lowest.epoch == from.epoch && lowest.seq == from.seq + 1;
        let below = lowest.is_some_and(|lowest| from < lowest && !adjacent(lowest));
        let evicted = self.evicted.iter().any(|event| event.is_after(Some(from)));
        let next = |highest: Position| Position { seq: highest.seq + 1, ..highest };
        let earliest = self.held.iter().find_map(Event::position).or_else(|| positions().max().map(next));
        if below || evicted { earliest } else { None }
    }
}

fn new_event(event: &Event, position: Option<Position>) -> NewEvent<'_> {
    NewEvent {
        raw: &event.raw,
        position,
        fingerprint: event.fingerprint,
        arrival: event.arrival,
        outline: Outline::NONE,
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let position = || prop::option::weighted(0.8, (0u64..3, 0u64..12));
    let bytes = prop_oneof![6 => 1usize..600, 3 => 2000usize..20_000, 1 => 30_000usize..150_000];
    let step = prop_oneof![
        12 => (position(), 0..FINGERPRINTS, bytes).prop_map(|(position, id, bytes)| Step::Admit(position, id, bytes)),
        1 => (position(), 0..FINGERPRINTS).prop_map(|(position, id)| Step::Unkept(position, id)),
        1 => (0usize..100_000).prop_map(Step::Trim),
        1 => Just(Step::CloseAndComeBack),
        3 => position().prop_map(Step::Read),
        6 => (0usize..30_000).prop_map(Step::Page),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_the_model(chunks in 1usize..12, steps in steps()) {
        let mut shadow = Shadow::new(chunks * CHUNK_BYTES + 3000);
        steps.into_iter().for_each(|step| shadow.take(step));
    }
}

/// One session of many small events, each of which bears its arrival number all through.
struct Session {
    pool: SegmentPool,
    buffer: SessionBuffer,
    arrival: u64,
}

impl Session {
    fn new(capacity: usize) -> Self {
        let pool = SegmentPool::new(PoolBudget::new(capacity));
        Self { pool, buffer: SessionBuffer::default(), arrival: 0 }
    }

    fn admit(&mut self, position: (u64, u64), bytes: usize, events_max: usize) -> Result<Admission, NoRoom> {
        self.arrival += 1;
        let raw: Vec<u8> = self.arrival.to_le_bytes().into_iter().cycle().take(bytes).collect();
        let fingerprint = u128::from(self.arrival.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let event = NewEvent {
            raw: &raw,
            position: Some(at(position)),
            fingerprint,
            arrival: self.arrival,
            outline: Outline::NONE,
        };
        self.buffer.admit(&mut self.pool, &event, events_max)
    }

    fn check(&self) {
        self.buffer.check_invariants();
        let (all, mut scratch) = (ReplayCursor::everything(self.buffer.marks()), Vec::new());
        self.buffer.page(&self.pool, all, u64::MAX, usize::MAX, &mut scratch, &mut |stored| {
            assert!(stored.raw.iter().eq(stored.arrival.to_le_bytes().iter().cycle().take(stored.raw.len())));
        });
    }
}

#[test]
fn a_survivor_does_not_pin_what_came_after_it() {
    let mut session = Session::new(64 << 20);
    session.admit((9, 0), 300, 1000).unwrap();
    for seq in 0..100_000 {
        session.admit((0, seq), 300, 1000).unwrap();
    }
    assert_eq!(session.buffer.len(), 1000);
    assert!(session.buffer.log.held_bytes() <= 1000 * 308 + 3 * CHUNK_BYTES);
    session.check();
}

#[test]
fn scattered_survivors_are_poured_together() {
    let mut session = Session::new(64 << 20);
    // One in fifty stays; the others are pushed out from below.
    for number in 0..100_000 {
        session.admit((u64::from(number % 50 == 0), number), 300, 2000).unwrap();
        assert!(session.buffer.log.is_tidy());
    }
    assert!(session.buffer.log.held_bytes() <= 2 * 2000 * 308 + 2 * CHUNK_BYTES);
    session.check();
}

#[test]
fn dead_bytes_make_room_when_the_arena_has_none() {
    let mut session = Session::new(4 * CHUNK_BYTES);
    let mut seq = 0;
    while session.admit((seq % 3, seq), 2000, 1000).is_ok() {
        seq += 1;
    }
    // A third of every segment dies, which is too little to be tidied, and no segment comes back.
    let held = session.buffer.held_bytes();
    for _ in 0..seq / 3 {
        session.buffer.evict_lowest(&mut session.pool);
    }
    assert_eq!(session.buffer.held_bytes(), held);
    session.admit((3, 0), 2000, 1000).unwrap();
    assert_eq!(session.buffer.held_bytes(), held);
    session.check();
}

#[test]
fn the_largest_event_goes_in_and_out_whole() {
    let mut session = Session::new(20 << 20);
    session.admit((0, 1), 16 << 20, 10).unwrap();
    let held = session.pool.held_bytes();
    assert_eq!(session.admit((0, 2), 16 << 20, 10), Err(NoRoom));
    assert_eq!(session.pool.held_bytes(), held);
    session.check();
    assert_eq!(session.buffer.trim_lowest(&mut session.pool, 1), 1);
    assert_eq!(session.pool.held_bytes(), 0);
}

#[test]
fn the_same_event_is_admitted_again_once_it_was_evicted() {
    let mut session = Session::new(1 << 20);
    let event = NewEvent { raw: b"{}", position: Some(at((0, 1))), fingerprint: 7, arrival: 1, outline: Outline::NONE };
    assert!(matches!(session.buffer.admit(&mut session.pool, &event, 1), Ok(Admission::Placed { kept: true, .. })));
    let copy = NewEvent { arrival: 2, ..event };
    assert_eq!(session.buffer.admit(&mut session.pool, &copy, 1), Ok(Admission::Duplicate));
    let next = NewEvent { position: Some(at((0, 2))), fingerprint: 8, arrival: 3, ..event };
    session.buffer.admit(&mut session.pool, &next, 1).unwrap();
    let late = NewEvent { arrival: 4, ..event };
    let admission = session.buffer.admit(&mut session.pool, &late, 1).unwrap();
    assert_eq!(admission, Admission::Placed { placement: Some(at((0, 1))), kept: false, evicted: 1 });
    assert_eq!(session.buffer.exhausted(at((0, 0))), Some(at((0, 2))));
}

#[test]
fn a_duplicate_forwarded_without_end_takes_no_memory() {
    let mut session = Session::new(1 << 20);
    for arrival in 1..100_000 {
        let event = NewEvent {
            raw: b"{}",
            position: Some(at((0, arrival % 2))),
            fingerprint: (arrival % 2).into(),
            arrival,
            outline: Outline::NONE,
        };
        session.buffer.admit(&mut session.pool, &event, 10).unwrap();
    }
    assert!(session.buffer.held_bytes() < 4096);
    session.buffer.check_invariants();
}
