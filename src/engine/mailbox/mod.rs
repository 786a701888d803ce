//! Mail between cores: two lanes, one bag per destination and turn.
//!
//! Owns the channels, the bags being filled and the depth of every lane; it does not know what mail means. Ground
//! rules:
//!
//! - *Ingest* (core → owner) comes only from sockets: who sends it has asked for [`Mailbox::ingest_bytes`], and parks
//!   the socket when these are too many. *Fan-out* (owner → core) ends in write queues and never waits. So no two cores
//!   can wait for each other.
//! - Mail of one lane between two cores keeps its order: bags are filled in order and a channel is a queue. A core's
//!   mail to itself takes the same way.
//! - Depth in bytes counts from the moment mail is sent (also while its bag is being filled) to the moment it is taken
//!   out, with the weight it had when it was sent.
//! - Ingest mail of a group that the service does not take now is laid aside, so that it holds up no other group's; it
//!   still counts, so that its own senders wait. An end may overtake what is laid aside: a drain waits for that by
//!   itself.
//! - A lane ends once, with [`Mailbox::end_ingest`] or [`Mailbox::end_fanout`]. Behind that come only answers to cores
//!   that wait for them.
//! - Only a sleeping core is woken: the sleeper raises its flag, looks once more into its lanes and only then polls;
//!   the sender fills the lane first and looks at the flag then. With a fence on both sides one of them sees the other.

pub(super) mod post;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::vec;

use crossbeam_channel::{Receiver, Sender, unbounded};
use mio::Waker;

use crate::engine::mailbox::post::Poster;
use crate::engine::service::{CoreId, GROUPS, Group, Mail};

/// Bytes in a lane, by group.
pub(in crate::engine) type Depths = [AtomicUsize; GROUPS];

/// What every core can see of each other core's mail: how much there is, and whether that core sleeps.
#[derive(Debug)]
pub(in crate::engine) struct Inbox {
    waker: Waker,
    sleeping: AtomicBool,
    /// The core is no more.
    ended: AtomicBool,
    pub(in crate::engine) ingest_bytes: Depths,
    pub(in crate::engine) fanout_bytes: Depths,
}

impl Inbox {
    /// The inbox of the core whose poll has this waker.
    pub(in crate::engine) const fn new(waker: Waker) -> Self {
        Self {
            waker,
            sleeping: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            ingest_bytes: [const { AtomicUsize::new(0) }; GROUPS],
            fanout_bytes: [const { AtomicUsize::new(0) }; GROUPS],
        }
    }

    /// Wakes the core if it sleeps. What it shall see has been stored before.
    pub(in crate::engine) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel) {
            // The eventfd of a waker can only fail for a reason that ends the process anyway.
            let _cannot_fail = self.waker.wake();
        }
    }

    /// Whether the core is no more: nothing is taken out of its lanes.
    pub(in crate::engine) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The core is about to sleep; it must look once more for work after this.
    pub(in crate::engine) fn before_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The core is awake.
    pub(in crate::engine) fn after_sleep(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

/// One core's end of all lanes.
#[derive(Debug)]
pub(in crate::engine) struct Mailbox<M> {
    core: CoreId,
    inboxes: Arc<[Inbox]>,
    ingest: MailLane<M>,
    fanout: MailLane<M>,
    /// Ingest mail that was not taken when its turn came, by group.
    aside: [VecDeque<(CoreId, Weighed<M>)>; GROUPS],
}

/// What comes out of a lane.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::engine) enum Letter<M> {
    /// Mail from that core.
    Mail(CoreId, M),
    /// That core sends nothing more on this lane, apart from answers that somebody waits for.
    End,
}

/// The next out of a lane, not counted off yet.
#[derive(Debug)]
enum NextMail<M> {
    Mail(CoreId, Weighed<M>),
    End,
}

#[derive(Debug)]
struct MailLane<M> {
    outgoing: Vec<Outgoing<M>>,
    incoming: Receiver<Bag<M>>,
    /// This core's end has been sent.
    ended: bool,
    /// The bag that is being emptied.
    open: Option<(CoreId, vec::IntoIter<Weighed<M>>)>,
}

#[derive(Debug)]
struct Outgoing<M> {
    channel: Sender<Bag<M>>,
    filling: Vec<Weighed<M>>,
}

/// Mail with the weight it was counted with: whatever it weighs when it is taken out, that much is counted off.
#[derive(Debug)]
pub(in crate::engine) struct Weighed<M> {
    pub(in crate::engine) mail: M,
    pub(in crate::engine) bytes: usize,
}

/// What a channel carries.
#[derive(Debug)]
pub(in crate::engine) enum Bag<M> {
    /// Mail, from that core.
    Mail(CoreId, Vec<Weighed<M>>),
    /// Nothing more from one core.
    End,
}

/// Into one lane of each core.
pub(in crate::engine) type Senders<M> = Arc<[Sender<Bag<M>>]>;

/// A mailbox for each inbox's core, all connected with each other; and a poster for threads that are no cores, which
/// have room for so many bytes in each ingest lane.
pub(in crate::engine) fn mailboxes<M: Mail>(
    inboxes: &Arc<[Inbox]>,
    ingest_bytes_max: usize,
) -> (Vec<Mailbox<M>>, Poster<M>) {
    let (to_ingest, ingest) = lanes(inboxes.len());
    let (to_fanout, fanout) = lanes(inboxes.len());
    let cores = (0..).map(CoreId);
    let both = ingest.into_iter().zip(fanout);
    let mailboxes = cores.zip(both).map(|(core, (ingest, fanout))| {
        let aside = std::array::from_fn(|_| VecDeque::new());
        Mailbox { core, inboxes: inboxes.clone(), ingest, fanout, aside }
    });
    (mailboxes.collect(), Poster::new(inboxes.clone(), to_ingest, to_fanout, ingest_bytes_max))
}

/// The senders into each core's lane, and the ends of each core.
fn lanes<M>(cores: usize) -> (Senders<M>, Vec<MailLane<M>>) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..cores).map(|_| unbounded()).unzip();
    let outgoing =
        || senders.iter().map(|channel| Outgoing { channel: channel.clone(), filling: Vec::new() }).collect();
    let lanes = receivers
        .into_iter()
        .map(|incoming| MailLane { outgoing: outgoing(), incoming, ended: false, open: None })
        .collect();
    (senders.into(), lanes)
}

impl<M: Mail> Mailbox<M> {
    /// This core's own inbox.
    pub(in crate::engine) fn inbox(&self) -> &Inbox {
        &self.inboxes[usize::from(self.core.0)]
    }

    /// Puts mail into the ingest bag for that core.
    pub(in crate::engine) fn send_ingest(&mut self, to: CoreId, mail: M) {
        if let Some(inbox) = self.inboxes.get(usize::from(to.0)) {
            let bytes = mail.weight();
            inbox.ingest_bytes[mail.group().index()].fetch_add(bytes, Ordering::Relaxed);
            self.ingest.fill(to, Weighed { mail, bytes });
        }
    }

    /// Puts mail into the fan-out bag for that core.
    pub(in crate::engine) fn send_fanout(&mut self, to: CoreId, mail: M) {
        if let Some(inbox) = self.inboxes.get(usize::from(to.0)) {
            let bytes = mail.weight();
            inbox.fanout_bytes[mail.group().index()].fetch_add(bytes, Ordering::Relaxed);
            self.fanout.fill(to, Weighed { mail, bytes });
        }
    }

    /// Bytes of fan-out mail of that group before the core that has most of it. Senders ask themselves: a core in the
    /// middle of a long turn cannot tell.
    pub(in crate::engine) fn most_fanout_bytes(&self, group: Group) -> usize {
        let bytes = |inbox: &Inbox| inbox.fanout_bytes[group.index()].load(Ordering::Relaxed);
        self.inboxes.iter().map(bytes).max().unwrap_or(0)
    }

    /// Bytes of that group in that core's ingest lane, laid aside or not.
    pub(in crate::engine) fn ingest_bytes(&self, to: CoreId, group: Group) -> usize {
        let inbox = self.inboxes.get(usize::from(to.0));
        inbox.map_or(0, |inbox| inbox.ingest_bytes[group.index()].load(Ordering::Relaxed))
    }

    /// Bytes in both of this core's lanes.
    pub(in crate::engine) fn bytes(&self) -> usize {
        let inbox = self.inbox();
        inbox.fanout_bytes.iter().chain(&inbox.ingest_bytes).map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Hands all filled bags over.
    pub(in crate::engine) fn dispatch(&mut self) {
        for (to, inbox) in self.inboxes.iter().enumerate() {
            let ingest = self.ingest.dispatch(self.core, to);
            let fanout = self.fanout.dispatch(self.core, to);
            if (ingest || fanout) && to != usize::from(self.core.0) {
                inbox.wake();
            }
        }
    }

    /// The next of the ingest lane that is of a group which is taken. What comes before it is laid aside.
    pub(in crate::engine) fn next_ingest(&mut self, takes: impl Fn(Group) -> bool) -> Option<Letter<M>> {
        if self.has_laid_aside()
            && let Some(aside) = Group::all()
                .zip(&mut self.aside)
                .find_map(|(group, aside)| if takes(group) { aside.pop_front() } else { None })
        {
            return Some(self.out_of_ingest(aside));
        }
        // Who asks counts letters, not bags.
        let mut bags = usize::MAX;
        loop {
            let (from, weighed) = match self.ingest.next(&mut bags)? {
                NextMail::Mail(from, weighed) => (from, weighed),
                NextMail::End => return Some(Letter::End),
            };
            let group = weighed.mail.group();
            let aside = &mut self.aside[group.index()];
            let is_taken = takes(group);
            // The answer may be another than a moment ago: what has been laid aside still comes first.
            if is_taken && aside.is_empty() {
                return Some(self.out_of_ingest((from, weighed)));
            }
            aside.push_back((from, weighed));
            if is_taken && let Some(first) = aside.pop_front() {
                return Some(self.out_of_ingest(first));
            }
        }
    }

    fn out_of_ingest(&self, (from, Weighed { mail, bytes }): (CoreId, Weighed<M>)) -> Letter<M> {
        self.inbox().ingest_bytes[mail.group().index()].fetch_sub(bytes, Ordering::Relaxed);
        Letter::Mail(from, mail)
    }

    /// How many bags are in the fan-out lane now, apart from the one that is being emptied.
    pub(in crate::engine) fn fanout_bags(&self) -> usize {
        self.fanout.incoming.len()
    }

    /// The next of the fan-out lane, out of at most so many more bags.
    pub(in crate::engine) fn next_fanout(&mut self, bags: &mut usize) -> Option<Letter<M>> {
        match self.fanout.next(bags)? {
            NextMail::End => Some(Letter::End),
            NextMail::Mail(from, Weighed { mail, bytes }) => {
                self.inbox().fanout_bytes[mail.group().index()].fetch_sub(bytes, Ordering::Relaxed);
                Some(Letter::Mail(from, mail))
            }
        }
    }

    /// Whether there is mail, laid aside or in a lane.
    pub(in crate::engine) fn has_mail(&self) -> bool {
        self.ingest.has_mail() || self.has_fanout() || self.has_laid_aside()
    }

    /// Whether the ingest lane has something to take out, or to lay aside.
    pub(in crate::engine) fn has_ingest(&self, takes: impl Fn(Group) -> bool) -> bool {
        let takes_aside = || Group::all().zip(&self.aside).any(|(group, aside)| !aside.is_empty() && takes(group));
        self.ingest.has_mail() || takes_aside()
    }

    /// Whether mail waits for its group to be taken.
    pub(in crate::engine) fn has_laid_aside(&self) -> bool {
        self.aside.iter().any(|aside| !aside.is_empty())
    }

    /// Whether the fan-out lane has something to take out.
    pub(in crate::engine) fn has_fanout(&self) -> bool {
        self.fanout.has_mail()
    }

    /// Whether this core has ended its ingest lane.
    pub(in crate::engine) const fn has_ended_ingest(&self) -> bool {
        self.ingest.ended
    }

    /// Whether this core has ended its fan-out lane.
    pub(in crate::engine) const fn has_ended_fanout(&self) -> bool {
        self.fanout.ended
    }

    /// Ends the ingest lane toward every core, behind everything sent.
    pub(in crate::engine) fn end_ingest(&mut self) {
        self.dispatch();
        self.ingest.end();
        self.inboxes.iter().for_each(Inbox::wake);
    }

    /// Ends the fan-out lane toward every core, behind everything sent.
    pub(in crate::engine) fn end_fanout(&mut self) {
        self.dispatch();
        self.fanout.end();
        self.inboxes.iter().for_each(Inbox::wake);
    }
}

impl<M> Drop for Mailbox<M> {
    fn drop(&mut self) {
        self.inboxes[usize::from(self.core.0)].ended.store(true, Ordering::Relaxed);
    }
}

impl<M> MailLane<M> {
    fn fill(&mut self, to: CoreId, mail: Weighed<M>) {
        if let Some(outgoing) = self.outgoing.get_mut(usize::from(to.0)) {
            outgoing.filling.push(mail);
        }
    }

    /// Whether there was something to hand over. A core that has gone needs no mail.
    fn dispatch(&mut self, from: CoreId, to: usize) -> bool {
        let Some(outgoing) = self.outgoing.get_mut(to).filter(|outgoing| !outgoing.filling.is_empty()) else {
            return false;
        };
        outgoing.channel.send(Bag::Mail(from, std::mem::take(&mut outgoing.filling))).is_ok()
    }

    /// The next, out of at most so many more bags.
    fn next(&mut self, bags: &mut usize) -> Option<NextMail<M>> {
        loop {
            if let Some((from, bag)) = &mut self.open {
                if let Some(weighed) = bag.next() {
                    return Some(NextMail::Mail(*from, weighed));
                }
                self.open = None;
            }
            *bags = bags.checked_sub(1)?;
            match self.incoming.try_recv().ok()? {
                Bag::Mail(from, bag) => self.open = Some((from, bag.into_iter())),
                Bag::End => return Some(NextMail::End),
            }
        }
    }

    fn has_mail(&self) -> bool {
        self.open.as_ref().is_some_and(|(_, bag)| bag.len() > 0) || !self.incoming.is_empty()
    }

    fn end(&mut self) {
        self.ended = true;
        for outgoing in &self.outgoing {
            let _gone = outgoing.channel.send(Bag::End);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use mio::{Events, Poll, Token};

    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Note(usize);

    impl Mail for Note {
        fn weight(&self) -> usize {
            self.0
        }

        fn group(&self) -> Group {
            Group((self.0 % 2) as u8)
        }
    }

    /// Mail that weighs more whenever it is asked.
    #[derive(Debug)]
    struct Growing(Cell<usize>);

    impl Mail for Growing {
        fn weight(&self) -> usize {
            self.0.replace(self.0.get() * 2)
        }

        fn group(&self) -> Group {
            Group(0)
        }
    }

    fn pair<M: Mail>() -> (Vec<Poll>, Vec<Mailbox<M>>) {
        let polls: Vec<Poll> = (0..2).map(|_| Poll::new().unwrap()).collect();
        let inboxes: Arc<[Inbox]> =
            polls.iter().map(|poll| Inbox::new(Waker::new(poll.registry(), Token(0)).unwrap())).collect();
        (polls, mailboxes(&inboxes, 1000).0)
    }

    const ONE: CoreId = CoreId(1);

    #[test]
    fn mail_keeps_its_order_and_its_end() {
        let (_polls, mut cores) = pair::<Note>();
        cores[0].send_ingest(ONE, Note(1));
        cores[0].send_ingest(ONE, Note(2));
        assert_eq!(cores[1].next_ingest(|_| true), None, "a bag leaves with the turn");
        cores[0].dispatch();
        cores[0].send_ingest(ONE, Note(3));
        cores[0].end_ingest();
        for weight in 1..=3 {
            assert_eq!(cores[1].next_ingest(|_| true), Some(Letter::Mail(CoreId(0), Note(weight))));
        }
        assert_eq!(cores[1].next_ingest(|_| true), Some(Letter::End));
        assert_eq!(cores[0].next_ingest(|_| true), Some(Letter::End), "the end goes to every core");
    }

    #[test]
    fn the_depth_counts_what_has_not_been_taken_out() {
        let (_polls, mut cores) = pair();
        cores[0].send_ingest(ONE, Note(100));
        assert_eq!((cores[0].ingest_bytes(CoreId(0), Group(0)), cores[0].ingest_bytes(ONE, Group(0))), (0, 100));
        cores[0].dispatch();
        assert_eq!(cores[0].ingest_bytes(ONE, Group(0)), 100);
        cores[1].next_ingest(|_| true);
        assert_eq!(cores[0].ingest_bytes(ONE, Group(0)), 0);
    }

    #[test]
    fn mail_that_is_not_taken_holds_up_no_other_groups() {
        let (_polls, mut cores) = pair();
        for weight in [1, 3, 2, 5, 4] {
            cores[0].send_ingest(ONE, Note(weight));
        }
        cores[0].end_ingest();
        let mail = |weight| Some(Letter::Mail(CoreId(0), Note(weight)));
        let even = |group| group == Group(0);
        assert!(cores[1].has_ingest(even) && !cores[1].has_laid_aside());
        for expected in [mail(2), mail(4), Some(Letter::End), None] {
            assert_eq!(cores[1].next_ingest(even), expected);
        }
        assert!(!cores[1].has_ingest(even), "what is laid aside wakes nobody");
        assert!(cores[1].has_laid_aside() && cores[1].has_mail() && cores[1].has_ingest(|_| true));
        assert_eq!((cores[0].ingest_bytes(ONE, Group(0)), cores[0].ingest_bytes(ONE, Group(1))), (0, 9));
        cores[0].send_ingest(ONE, Note(7));
        cores[0].dispatch();
        for expected in [mail(1), mail(3), mail(5), mail(7), None] {
            assert_eq!(cores[1].next_ingest(|_| true), expected, "in order, with what came behind it");
        }
        assert!(!cores[1].has_mail() && cores[1].bytes() == 0);
    }

    #[test]
    fn mail_keeps_its_order_when_its_group_is_taken_again_at_any_moment() {
        for refusals in 0usize..6 {
            let (_polls, mut cores) = pair();
            for weight in [2, 4, 6, 8] {
                cores[0].send_ingest(ONE, Note(weight));
                cores[0].dispatch();
            }
            // Another thread gives the word, between any two questions.
            let left = Cell::new(refusals);
            let takes = |_| left.replace(left.get().saturating_sub(1)) == 0;
            let mut taken = Vec::new();
            while taken.len() < 4 {
                let Some(Letter::Mail(_, Note(weight))) = cores[1].next_ingest(takes) else { continue };
                taken.push(weight);
            }
            assert_eq!(taken, [2, 4, 6, 8], "after {refusals} refusals");
        }
    }

    #[test]
    fn no_more_is_taken_than_was_there() {
        let (_polls, mut cores) = pair();
        for bag in [[1, 2], [3, 4]] {
            bag.into_iter().for_each(|weight| cores[0].send_fanout(ONE, Note(weight)));
            cores[0].dispatch();
        }
        let mut bags = cores[1].fanout_bags();
        for weight in 1..=4 {
            assert_eq!(cores[1].next_fanout(&mut bags), Some(Letter::Mail(CoreId(0), Note(weight))));
            // More comes as fast as it is taken.
            cores[0].send_fanout(ONE, Note(5));
            cores[0].dispatch();
        }
        assert_eq!(cores[1].next_fanout(&mut bags), None, "which is for the next turn");
        assert!(cores[1].has_fanout() && cores[1].fanout_bags() == 4);
    }

    #[test]
    fn mail_leaves_with_the_weight_it_came_with() {
        let (_polls, mut cores) = pair();
        cores[0].send_ingest(ONE, Growing(Cell::new(100)));
        cores[0].send_fanout(ONE, Growing(Cell::new(100)));
        cores[0].dispatch();
        assert_eq!(cores[1].bytes(), 200);
        assert!(cores[1].next_ingest(|_| true).is_some() && cores[1].next_fanout(&mut 1).is_some());
        assert_eq!(cores[1].bytes(), 0);
    }

    #[test]
    fn only_a_sleeper_is_woken() {
        let (mut polls, mut cores) = pair();
        let mut events = Events::with_capacity(4);
        let zero = Some(std::time::Duration::ZERO);
        cores[0].send_fanout(ONE, Note(1));
        cores[0].dispatch();
        polls[1].poll(&mut events, zero).unwrap();
        assert!(events.is_empty(), "core 1 is awake");
        cores[1].inbox().before_sleep();
        assert!(cores[1].has_mail(), "which is why a core looks again before it sleeps");
        cores[0].send_fanout(ONE, Note(1));
        cores[0].dispatch();
        polls[1].poll(&mut events, zero).unwrap();
        assert!(!events.is_empty());
    }
}
