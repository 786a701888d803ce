//! The reader of this core: its consuming connections, their subscriptions, and the classes these form.
//!
//! What it does with them has a room each: `fanout.rs` delivers live events, `replay.rs` pages, `slow_consumer.rs`
//! decides what becomes of a full queue. This file opens and ends subscriptions and keeps each one in its place.
//!
//! The reader asks owners for things by [`Reader::take_request`], in order; `relay/mod.rs` carries them.

pub mod class;
pub mod coverage;
pub mod fanout;
pub mod peer;
pub mod position_log;
pub mod replay;
pub mod slow_consumer;
pub mod subscription;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::service::{ConnId, CoreId, Outbox, Unsent, WebSocketClose, Work};
use crate::ops::metrics::CoreMetrics;
use crate::protocol::binding::Binding;
use crate::protocol::by_conn::ByConn;
use crate::protocol::owners::CoreMask;
use crate::protocol::paging::Paging;
use crate::wire::websocket::close::CloseCode;

use super::event::Capture;
use super::filter::Filter;
use super::frames::Frames;
use crate::relay::mail::page::{Cursor, PageMemory, ReplayPhase};
use crate::relay::mail::{OwnerInput, SubRef};
use crate::relay::reader::class::{ClassId, ClassKey, Classes};
use crate::relay::reader::peer::{OWN_MARK, OwnPositions, Peer};
use crate::relay::reader::slow_consumer::REASON_SHUTDOWN;
use crate::relay::reader::subscription::{Covered, From, Replay, Seat, Subscription, Subscriptions};
use crate::relay::shared::Shared;

/// What a subscription asks for.
#[derive(Debug)]
pub struct Wanted {
    /// Which events.
    pub filter: Filter,
    /// The highest level.
    pub ceiling: Capture,
    /// From where.
    pub from: From,
    /// Whether it goes on live after the replay.
    pub live: bool,
    /// The client's name for it, on a WebSocket.
    pub id: Option<Arc<str>>,
}

impl Wanted {
    /// Bytes that it makes a relay of that many cores keep, if nobody else has the like.
    #[must_use]
    pub fn footprint(&self, cores: usize) -> usize {
        self.own_footprint(cores) + Classes::footprint(&self.filter, cores)
    }

    fn own_footprint(&self, cores: usize) -> usize {
        subscription::own_footprint(self.id.as_deref(), &self.from, self.live, cores)
    }
}

/// The reader role of one core.
#[derive(Debug)]
pub struct Reader {
    pub(in crate::relay) core: CoreId,
    pub(in crate::relay) shared: Arc<Shared>,
    pub(in crate::relay) peers: ByConn<Peer>,
    pub(in crate::relay) subscriptions: Subscriptions,
    pub(in crate::relay) classes: Classes,
    /// Classes with pieces to be pushed.
    pub(in crate::relay) unsettled: Vec<ClassId>,
    pub(in crate::relay) frames: Frames,
    /// Frames of the page being delivered, reused from page to page.
    pub(in crate::relay) page_frames: Vec<u8>,
    /// What finished pages were written into, for the next requests.
    pub(in crate::relay) page_memory: Vec<PageMemory>,
    pub(in crate::relay) names: HashSet<Arc<str>>,
    /// Over how many names those that nobody uses any more are swept out.
    names_kept: usize,
    /// By owner, its newest arrival number among what has come from it.
    arrived: Vec<u64>,
    pub(in crate::relay) metrics: Arc<CoreMetrics>,
    requests: VecDeque<(CoreId, OwnerInput)>,
    /// Subscriptions just registered everywhere, to be answered.
    registered: VecDeque<SubRef>,
    /// Peers just cut.
    pub(in crate::relay) cut: Vec<ConnId>,
}

impl Reader {
    /// The reader role of `core`.
    #[must_use]
    pub fn new(core: CoreId, shared: Arc<Shared>, metrics: Arc<CoreMetrics>) -> Self {
        let arrived = vec![0; shared.owners.cores()];
        Self {
            core,
            shared,
            peers: ByConn::default(),
            subscriptions: Subscriptions::default(),
            classes: Classes::default(),
            unsettled: Vec::new(),
            frames: Frames::default(),
            page_frames: Vec::new(),
            page_memory: Vec::new(),
            names: HashSet::new(),
            names_kept: 0,
            arrived,
            metrics,
            requests: VecDeque::new(),
            registered: VecDeque::new(),
            cut: Vec::new(),
        }
    }

    /// The next request to an owner, in order.
    pub fn take_request(&mut self) -> Option<(CoreId, OwnerInput)> {
        self.requests.pop_front()
    }

    /// Whether an owner is still to be asked something.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    pub(in crate::relay) fn request(&mut self, owner: CoreId, input: OwnerInput) {
        self.requests.push_back((owner, input));
    }

    /// The next subscription that every owner knows now; its client is to be answered, then [`Reader::begin`] called.
    pub fn take_registered(&mut self) -> Option<SubRef> {
        self.registered.pop_front()
    }

    /// The next peer that was cut.
    pub fn take_cut(&mut self) -> Option<ConnId> {
        self.cut.pop()
    }

    /// Enters a consuming connection.
    pub fn add_peer(&mut self, conn: ConnId, binding: Binding) {
        self.peers.insert(
            conn,
            Peer {
                binding,
                subs: Vec::new(),
                weight: 0,
                dropped: 0,
                ended: false,
                positions: None,
                commands: None,
                by_id: None,
            },
        );
    }

    /// The peer of a connection, if it consumes.
    #[must_use]
    pub fn peer(&self, conn: ConnId) -> Option<&Peer> {
        self.peers.get(conn)
    }

    /// A subscription.
    #[must_use]
    pub fn subscription(&self, sub: SubRef) -> Option<&Subscription> {
        self.subscriptions.get(sub)
    }

    /// The peer's subscription of that name.
    #[must_use]
    pub fn by_id(&self, conn: ConnId, id: &str) -> Option<SubRef> {
        let peer = self.peers.get(conn)?;
        if let Some(by_id) = &peer.by_id {
            return by_id.get(id).copied();
        }
        let is_named = |sub: &SubRef| self.subscriptions.get(*sub).is_some_and(|known| known.id.as_deref() == Some(id));
        peer.subs.iter().copied().find(is_named)
    }

    /// Enters a subscription just taken in into its peer.
    fn enter(&mut self, conn: ConnId, sub: SubRef, weight: usize, own_weight: usize) {
        let Some(peer) = self.peers.get_mut(conn) else { return };
        if peer.subs.is_empty() {
            // Most never make a second one.
            peer.subs.reserve_exact(1);
        }
        peer.subs.push(sub);
        peer.weight += weight;
        self.shared.remember(&self.metrics, 0, own_weight);
        if peer.by_id.is_none() && peer.subs.len() <= SUBSCRIPTIONS_SEARCHED {
            return;
        }
        let unnamed = if peer.by_id.is_some() { std::slice::from_ref(&sub) } else { peer.subs.as_slice() };
        let id_of = |sub: &SubRef| Some((self.subscriptions.get(*sub)?.id.clone()?, *sub));
        peer.by_id.get_or_insert_default().extend(unnamed.iter().filter_map(id_of));
    }

    /// Begins a subscription of a peer: every owner is told; when all have answered it comes out of
    /// [`Reader::take_registered`].
    pub fn subscribe(&mut self, out: &mut dyn Outbox, conn: ConnId, wanted: Wanted) {
        let Some(peer) = self.peers.get(conn) else { return };
        let binding = peer.binding;
        let cores = self.shared.owners.cores();
        let (weight, own_weight) = (wanted.footprint(cores), wanted.own_footprint(cores));
        let Wanted { filter, ceiling, from, live, id } = wanted;
        let key = ClassKey { filter: Arc::new(filter), ceiling, binding };
        let before = self.classes.bytes();
        let (class, interest) = self.classes.join(key, self.shared.limits.sessions_max, cores);
        self.shared.remember(&self.metrics, before, self.classes.bytes());
        let replay = self.replay(&from, live);
        let covered = (binding == Binding::WebSocket)
            .then(|| Box::new(Covered { since: vec![0; self.shared.owners.cores()].into(), past: from.into() }));
        let sub = self.subscriptions.insert(Subscription {
            conn,
            class,
            place: Seat::Nowhere,
            waiting: CoreMask::all(cores),
            live: CoreMask::NONE,
            joined: 0,
            id,
            weight,
            own_weight,
            replay,
            judged: None,
            covered,
        });
        self.enter(conn, sub, weight, own_weight);
        self.replace_first(out, conn);
        for owner in self.shared.owners.every_core() {
            self.request(owner, OwnerInput::Register { sub, interest: interest.clone() });
        }
    }

    /// The replay that `from` asks for: per owner, what it is asked first.
    fn replay(&mut self, from: &From, live: bool) -> Option<Box<Replay>> {
        let owners = &self.shared.owners;
        let cursor = |announce, phase| Cursor { snapshot: 0, announce, live, phase };
        let paging = match from {
            From::Now if live => return None,
            From::Now | From::All => {
                Paging::new(owners.every_core().map(|owner| (owner, cursor(false, ReplayPhase::everything()))))
            }
            From::Positions(asked) => {
                let mut by_owner = vec![VecDeque::new(); owners.cores()];
                for asked in asked {
                    by_owner[usize::from(owners.owner_of(&asked.session).0)].push_back(asked.clone());
                }
                let cursors =
                    by_owner.into_iter().map(|asked| cursor(true, ReplayPhase::Positions { asked, at: None }));
                Paging::new(owners.every_core().zip(cursors))
            }
        };
        self.metrics.replays.increment();
        Some(Box::new(Replay { paging, live, announced: HashMap::new() }))
    }

    /// Everything that an owner fanned out up to `arrival` has come.
    pub(in crate::relay) fn note_arrival(&mut self, owner: CoreId, arrival: u64) {
        if let Some(newest) = self.arrived.get_mut(usize::from(owner.0)) {
            *newest = (*newest).max(arrival);
        }
    }

    /// An owner has registered a subscription.
    pub fn on_registered(&mut self, owner: CoreId, sub: SubRef, arrival: u64) {
        self.note_arrival(owner, arrival);
        let Some(subscription) = self.subscriptions.get_mut(sub) else { return };
        subscription.waiting.remove(owner);
        match &mut subscription.replay {
            Some(replay) => {
                if let Some(cursor) = replay.paging.cursor_mut(owner) {
                    cursor.snapshot = arrival;
                }
                subscription.covers_since(owner, arrival);
            }
            None => subscription.go_live(owner),
        }
        if subscription.waiting.is_empty() {
            // Counted from here on: whoever sees it in the count may rely on it to get what is published next.
            self.shared.subscribers.fetch_add(1, Ordering::Relaxed);
            self.metrics.subscriptions.raise(1);
            self.registered.push_back(sub);
        }
    }

    /// The client of a registered subscription has had its answer: deliver.
    pub fn begin(&mut self, out: &mut dyn Outbox, sub: SubRef) {
        if let Some(subscription) = self.subscriptions.get_mut(sub)
            && subscription.replay.is_none()
        {
            // What has come up to now came too early for it.
            for (owner, arrival) in (0u16..).map(CoreId).zip(&self.arrived) {
                subscription.covers_since(owner, *arrival);
            }
        }
        self.place(out, sub);
        self.read_on(out, sub);
    }

    /// Ends a subscription. Nothing of it is delivered any more.
    pub fn unsubscribe(&mut self, out: &mut dyn Outbox, sub: SubRef) {
        let Some(subscription) = self.take_subscription(out, sub) else { return };
        let conn = subscription.conn;
        if let Some(peer) = self.peers.get_mut(conn) {
            peer.subs.retain(|other| *other != sub);
            peer.weight -= subscription.weight;
            if let (Some(by_id), Some(id)) = (&mut peer.by_id, &subscription.id) {
                by_id.remove(id);
            }
        }
        self.replace_first(out, conn);
        self.next_replay(out, conn);
    }

    /// Takes a subscription out of everything but its peer.
    fn take_subscription(&mut self, out: &mut dyn Outbox, sub: SubRef) -> Option<Subscription> {
        self.displace(out, sub);
        let subscription = self.subscriptions.remove(sub)?;
        self.shared.remember(&self.metrics, subscription.own_weight, 0);
        if subscription.is_answered() {
            self.shared.subscribers.fetch_sub(1, Ordering::Relaxed);
            self.metrics.subscriptions.lower(1);
        }
        if let Some(judged) = &subscription.judged {
            self.shared.judgements.fetch_sub(judged.len(), Ordering::Relaxed);
        }
        let before = self.classes.bytes();
        if let Some(interest) = self.classes.leave(subscription.class) {
            self.withdraw(&interest);
        }
        self.shared.remember(&self.metrics, before, self.classes.bytes());
        Some(subscription)
    }

    fn withdraw(&mut self, interest: &Arc<Filter>) {
        for owner in self.shared.owners.every_core() {
            self.request(owner, OwnerInput::Withdraw { interest: Arc::clone(interest) });
        }
    }

    /// The connection is over.
    pub fn remove_peer(&mut self, out: &mut dyn Outbox, conn: ConnId) {
        // The peer first: nothing is delivered any more, so neither need what is left be put in place after each
        // subscription, nor positions be carried over for somebody who cannot be told of them.
        let Some(peer) = self.peers.remove(conn) else { return };
        for sub in peer.subs {
            self.take_subscription(out, sub);
        }
        if let Some(own) = peer.positions {
            self.shared.remember(&self.metrics, own.counted, 0);
        }
    }

    /// The queue of a peer has run empty: go on with its replay, announce what it missed, put it back in its class.
    pub fn on_drained(&mut self, out: &mut dyn Outbox, conn: ConnId) {
        let Some(peer) = self.peers.get(conn) else { return };
        if peer.ended {
            return;
        }
        if peer.dropped > 0 {
            self.announce_dropped(out, conn);
        }
        self.replace_first(out, conn);
        let waiting = self.peers.get(conn).and_then(|peer| {
            peer.subs.iter().copied().find(|sub| {
                let replay = self.subscriptions.get_mut(*sub).and_then(|subscription| subscription.replay.as_mut());
                replay.is_some_and(|replay| replay.paging.drained())
            })
        });
        if let Some(sub) = waiting {
            self.read_on(out, sub);
        }
    }

    /// Puts a peer's subscription where it belongs now. Of several none can be a member but the first, left over from
    /// when it was the only one.
    pub(in crate::relay) fn replace_first(&mut self, out: &mut dyn Outbox, conn: ConnId) {
        if let Some(sub) = self.peers.get(conn).and_then(|peer| peer.subs.first().copied()) {
            self.place(out, sub);
        }
    }

    /// Whether a subscription can take its class's runs blindly.
    fn can_be_member(&self, subscription: &Subscription) -> bool {
        subscription.live == CoreMask::all(self.shared.owners.cores())
            && subscription.replay.is_none()
            && subscription.judged.is_none()
            && self.peers.get(subscription.conn).is_some_and(|peer| peer.subs.len() == 1 && peer.dropped == 0)
    }

    /// Puts a subscription into the list of its class where it belongs.
    pub(in crate::relay) fn place(&mut self, out: &mut dyn Outbox, sub: SubRef) {
        let Some(subscription) = self.subscriptions.get(sub) else { return };
        if !subscription.is_answered() {
            return;
        }
        let member = self.can_be_member(subscription);
        let (conn, class_id) = (subscription.conn, subscription.class);
        match (subscription.place, member) {
            (Seat::Member(_), true) | (Seat::Other(_), false) => return,
            // What it got by itself and has not left yet must not mix with the class's stream in its log.
            (Seat::Other(_), true) if out.queued_bytes(conn) > 0 && self.has_positions(conn) => {
                out.notify_drained(conn);
                return;
            }
            _ => self.displace(out, sub),
        }
        self.settle(out, class_id);
        let Some(class) = self.classes.class_mut(class_id) else { return };
        if member {
            let Some(subscription) = self.subscriptions.get_mut(sub) else { return };
            subscription.joined = class.group.bytes();
            subscription.place = Seat::Member(class.group.join(conn, sub));
        } else {
            self.enter_others(sub);
        }
    }

    fn enter_others(&mut self, sub: SubRef) {
        let Some(subscription) = self.subscriptions.get_mut(sub) else { return };
        let Some(class) = self.classes.class_mut(subscription.class) else { return };
        subscription.place = Seat::Other(u32::try_from(class.others.len()).unwrap_or(u32::MAX));
        class.others.push(sub);
        let conn = subscription.conn;
        self.open_positions(conn);
    }

    fn has_positions(&self, conn: ConnId) -> bool {
        self.peers.get(conn).is_some_and(|peer| peer.positions.is_some())
    }

    /// A WebSocket peer is looked at singly from now on: keep a book of its own.
    fn open_positions(&mut self, conn: ConnId) {
        let sessions_max = self.shared.limits.sessions_max;
        if let Some(peer) = self.peers.get_mut(conn)
            && peer.binding == Binding::WebSocket
            && peer.positions.is_none()
        {
            peer.positions = Some(Box::new(OwnPositions::new(sessions_max.saturating_mul(SUBSCRIPTIONS_BOOKED))));
        }
    }

    /// A member had no room for its class's runs from offset `before` on: it is looked at singly from now on.
    pub(in crate::relay) fn leave_members(&mut self, out: &mut dyn Outbox, sub: SubRef, before: u64) {
        self.take_out(out, sub, before);
        self.enter_others(sub);
    }

    /// Takes a subscription out of the lists of its class, after what is pending there has been pushed.
    fn displace(&mut self, out: &mut dyn Outbox, sub: SubRef) {
        let Some(subscription) = self.subscriptions.get(sub) else { return };
        let class_id = subscription.class;
        if subscription.place != Seat::Nowhere {
            self.settle(out, class_id);
        }
        // Settling may have moved this very subscription.
        self.take_out(out, sub, u64::MAX);
    }

    /// Takes a subscription out of the lists of its class, of whose stream it was pushed what ends before `before`.
    fn take_out(&mut self, out: &mut dyn Outbox, sub: SubRef, before: u64) {
        let Some(subscription) = self.subscriptions.get(sub) else { return };
        let class_id = subscription.class;
        if let Seat::Member(_) = subscription.place {
            self.carry_positions(out, sub, before);
        }
        let Some(subscription) = self.subscriptions.get_mut(sub) else { return };
        let place = std::mem::replace(&mut subscription.place, Seat::Nowhere);
        let Some(class) = self.classes.class_mut(class_id) else { return };
        let moved = match place {
            Seat::Nowhere => None,
            Seat::Member(at) => class.group.leave(at).map(|sub| (sub, place)),
            Seat::Other(at) => {
                class.others.swap_remove(at as usize);
                class.others.get(at as usize).map(|sub| (*sub, place))
            }
        };
        if let Some((moved, place)) = moved
            && let Some(subscription) = self.subscriptions.get_mut(moved)
        {
            subscription.place = place;
        }
    }

    /// A WebSocket member leaves its class: its positions go into its own book, those of queued runs with their offset.
    fn carry_positions(&mut self, out: &mut dyn Outbox, sub: SubRef, before: u64) {
        let Some(subscription) = self.subscriptions.get(sub) else { return };
        let (conn, class, joined) = (subscription.conn, subscription.class, subscription.joined);
        if self.peers.get(conn).is_none_or(|peer| peer.binding != Binding::WebSocket) {
            return;
        }
        self.open_positions(conn);
        let Some(class) = self.classes.class(class) else { return };
        let Some(log) = &class.log else { return };
        let unsent = handed(out, conn);
        let handed = before.min(unsent.class);
        let Some(own) = self.peers.get_mut(conn).and_then(|peer| peer.positions.as_mut()) else { return };
        // Frames of its own that are still queued must not hide what has left.
        let adopted_at = own.pushed.min(unsent.own);
        // It was a member: events that it was pushed by itself before have left, and are older than what follows.
        own.fold_carried();
        let of_class = log.handed(joined, handed).into_iter();
        own.log.adopt(adopted_at, of_class.map(|(session, at)| ((sub, session), at)));
        own.carried_at = own.pushed;
        // Before its joining nothing was for it: queued runs of a class it was in before may hold an offset below that.
        for (frame, session, position) in log.beyond(handed.max(joined)).take_while(|(frame, ..)| frame.end <= before) {
            own.carried.push(frame, (sub, Arc::clone(session)), position);
        }
    }

    /// A session's name, shared by everything that remembers positions in it.
    pub(in crate::relay) fn name(&mut self, session: &str) -> Arc<str> {
        if let Some(name) = self.names.get(session) {
            return Arc::clone(name);
        }
        if self.names.len() > self.names_kept {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            // Each sweep is paid for by as many new names as it leaves.
            self.names_kept = (2 * self.names.len()).max(2 * self.shared.limits.sessions_max);
        }
        let name: Arc<str> = session.into();
        self.names.insert(Arc::clone(&name));
        name
    }

    /// The streams and WebSockets that have not been told yet, a turn's worth of them, are told that the process ends,
    /// behind everything queued.
    pub fn say_goodbye(&mut self, out: &mut dyn Outbox) -> Work {
        self.settle_all(out);
        let untold = self.peers.iter().filter(|(_, peer)| !peer.ended).map(|(conn, peer)| (conn, peer.binding));
        let mut some: Vec<(ConnId, Binding)> = untold.take(GOODBYES_PER_TURN + 1).collect();
        let work = if some.len() > GOODBYES_PER_TURN { Work::Left } else { Work::Idle };
        some.truncate(GOODBYES_PER_TURN);
        for (conn, binding) in some {
            if let Some(peer) = self.peers.get_mut(conn) {
                peer.ended = true;
            }
            match binding {
                Binding::Stream(_) => out.end_event_stream(conn, b": shutting-down\n\n"),
                Binding::WebSocket => {
                    let closing = self.closing(REASON_SHUTDOWN, &self.handed_positions(out, conn, false));
                    out.push_always(conn, &closing, 0);
                    let close = WebSocketClose { code: CloseCode::GOING_AWAY.value(), reason: REASON_SHUTDOWN };
                    out.close_websocket(conn, close);
                }
            }
        }
        work
    }

    #[cfg(test)]
    pub(in crate::relay) fn check_invariants(&self) {
        for (sub, subscription) in self.subscriptions.iter() {
            let peer = self.peers.get(subscription.conn).unwrap();
            assert!(peer.subs.contains(&sub));
            let class = self.classes.class(subscription.class).unwrap();
            match subscription.place {
                Seat::Nowhere => assert!(!subscription.is_answered()),
                Seat::Other(at) => assert_eq!(class.others[at as usize], sub),
                Seat::Member(at) => {
                    assert_eq!(class.group.members()[at as usize].key, sub);
                    assert!(peer.ended || self.can_be_member(subscription), "a member that is to be looked at singly");
                }
            }
        }
        assert!(self.unsettled.is_empty(), "pieces left behind a turn");
    }

    #[cfg(test)]
    pub(in crate::relay) fn check_empty(&self) {
        assert_eq!((self.peers.len(), self.subscriptions.iter().count()), (0, 0));
        assert!(self.requests.is_empty() && self.registered.is_empty());
        self.classes.check_empty();
    }
}

/// Up to where a peer's bytes have been handed to its socket; `u64::MAX` where none are queued.
#[derive(Debug, Clone, Copy)]
pub(in crate::relay) struct HandedTo {
    /// In its class's stream.
    pub class: u64,
    /// In what it was pushed by itself.
    pub own: u64,
}

/// See [`HandedTo`].
pub(in crate::relay) fn handed(out: &dyn Outbox, conn: ConnId) -> HandedTo {
    let mut handed = HandedTo { class: u64::MAX, own: u64::MAX };
    out.unsent(conn, &mut |Unsent { mark, bytes }| {
        // The engine's own pings and pongs bear no mark, and what was pushed before there was a book no count.
        if mark & !OWN_MARK != 0 {
            let at = (mark & !OWN_MARK).saturating_sub(bytes as u64);
            let first = if mark & OWN_MARK == 0 { &mut handed.class } else { &mut handed.own };
            *first = (*first).min(at);
        }
    });
    handed
}

/// Connections told of the end in one turn: a WebSocket's positions may be many. Few in tests, so that there are
/// several turns.
const GOODBYES_PER_TURN: usize = if cfg!(test) { 2 } else { 256 };
/// Subscriptions of one connection that are searched for a name; more of them are kept by name.
const SUBSCRIPTIONS_SEARCHED: usize = 8;
/// For how many subscriptions of one connection a full set of positions is kept.
const SUBSCRIPTIONS_BOOKED: usize = 16;
