//! The rules that `protocol/mod.rs` promises a protocol, held against every call that one gets: the life of a
//! connection, and the order of mail.

use std::collections::BTreeMap;

use crate::engine::service::{ConnId, CoreId, Group, Mail};

/// What the small protocols are paced in.
pub(super) const GROUP: Group = Group(1);

/// How far a connection's life has come, as its protocol was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Its last request was answered.
    Kept,
    /// An answer is owed.
    Asked,
    /// Its body was asked for.
    Body,
    /// A stream or WebSocket.
    Open,
    /// Its end was told.
    Closing,
    Gone,
}

/// The lives of one core's connections.
#[derive(Debug, Default)]
pub(super) struct Lives(BTreeMap<ConnId, Life>);

impl Lives {
    fn go(&mut self, conn: ConnId, from: &[Life], to: Life) {
        let life = self.0.entry(conn).or_insert(Life::Kept);
        assert!(from.contains(life), "{conn:?} was {life:?} and is to be {to:?}");
        *life = to;
    }

    /// The next request comes behind the answer to the last one.
    pub(super) fn request(&mut self, conn: ConnId) {
        self.go(conn, &[Life::Kept], Life::Asked);
    }

    pub(super) fn ask_body(&mut self, conn: ConnId) {
        self.go(conn, &[Life::Asked], Life::Body);
    }

    /// A body comes once, to who asked for it.
    pub(super) fn body(&mut self, conn: ConnId) {
        self.go(conn, &[Life::Body], Life::Asked);
    }

    pub(super) fn answer(&mut self, conn: ConnId) {
        self.go(conn, &[Life::Asked], Life::Kept);
    }

    pub(super) fn open(&mut self, conn: ConnId) {
        self.go(conn, &[Life::Asked], Life::Open);
    }

    /// A message or an alarm comes between the opening and the end.
    pub(super) fn input(&mut self, conn: ConnId) {
        self.go(conn, &[Life::Open], Life::Open);
    }

    /// The end is told once, and first.
    pub(super) fn closing(&mut self, conn: ConnId) {
        self.go(conn, &[Life::Kept, Life::Asked, Life::Body, Life::Open], Life::Closing);
    }

    /// Nothing comes behind it: no call permits it.
    pub(super) fn gone(&mut self, conn: ConnId) {
        self.go(conn, &[Life::Closing], Life::Gone);
    }

    /// Everybody was told of twice.
    pub(super) fn check_all_gone(&self) {
        assert!(self.0.values().all(|life| *life == Life::Gone), "{self:?}");
    }
}

/// Mail with its number among that of its lane, sender and receiver.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    lane: usize,
    number: u64,
    weight: usize,
    what: T,
}

impl<T: Send + 'static> Mail for Numbered<T> {
    fn weight(&self) -> usize {
        self.weight
    }

    fn group(&self) -> Group {
        GROUP
    }
}

impl<T> Numbered<T> {
    pub(super) fn lane(&self) -> usize {
        self.lane
    }
}

/// What was sent to others and has come from them, by lane.
#[derive(Debug, Default)]
pub(super) struct Order {
    sent: BTreeMap<(usize, CoreId), u64>,
    came: BTreeMap<(usize, CoreId), u64>,
}

impl Order {
    pub(super) fn number<T>(&mut self, lane: usize, to: CoreId, weight: usize, what: T) -> Numbered<T> {
        let sent = self.sent.entry((lane, to)).or_default();
        *sent += 1;
        Numbered { lane, number: *sent, weight, what }
    }

    /// All mail of a lane comes, in the order in which it was sent.
    pub(super) fn take<T>(&mut self, from: CoreId, mail: Numbered<T>) -> T {
        let came = self.came.entry((mail.lane, from)).or_default();
        *came += 1;
        assert_eq!(mail.number, *came, "mail of lane {} from {from:?}", mail.lane);
        mail.what
    }
}
