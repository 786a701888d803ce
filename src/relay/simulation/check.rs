//! The shadow model: what every consumer must have been told, given what was published (contract §3, §6, §7, §9).

use std::collections::{HashMap, HashSet};

use super::client::{Client, Item, Start, Sub};
use super::world::{WITNESS, World};

/// Events in their order of arrival: what the witness saw.
pub(super) struct Arrivals {
    /// How often each event came.
    counts: HashMap<usize, usize>,
    /// Where each event came first.
    places: HashMap<usize, usize>,
}

impl World {
    /// The sends of an event that were taken in: commands that were refused were not.
    fn taken_in(&self, event: usize) -> usize {
        let sent = &self.sent[event];
        let refused = self.clients.iter().flat_map(|client| &client.log).filter(|item| **item == Item::Refused(event));
        sent.sends - if sent.command { refused.count() } else { 0 }
    }

    /// The world is at rest and everybody has read everything.
    pub(super) fn check(&mut self) {
        let held = self.held();
        let arrivals = self.check_witness();
        for index in 1..self.clients.len() {
            let client = &self.clients[index];
            self.check_copies(index, client, &arrivals);
            self.check_order(index, client, &arrivals);
            self.check_wants(index, client);
            self.check_closing(index, client);
            self.check_completeness(index, client, &arrivals, &held);
            self.check_announcements(index, client, &arrivals);
        }
        let sessions: u64 = self.machine.cores.iter().map(|core| core.protocol.metrics.sessions.value()).sum();
        assert_eq!(sessions, self.shared().sessions() as u64, "sessions counted are sessions held");
        let written: HashSet<usize> = arrivals.counts.keys().filter_map(|event| self.sent[*event].session).collect();
        let max = self.shared().limits.sessions_max;
        let allowed = written.len().min(max) as u64;
        assert!(sessions == allowed || self.cramped && sessions < allowed, "{sessions} sessions of {allowed}");
    }

    /// Every event that was taken in reached the witness as often as it was sent, each session's in order.
    pub(super) fn check_witness(&self) -> Arrivals {
        let mut arrivals = Arrivals { counts: HashMap::new(), places: HashMap::new() };
        let mut last: HashMap<usize, (u64, usize)> = HashMap::new();
        for (place, event) in self.clients[WITNESS].events().enumerate() {
            *arrivals.counts.entry(event).or_default() += 1;
            arrivals.places.entry(event).or_insert(place);
            let sent = &self.sent[event];
            if let (Some(session), Some(seq), false) = (sent.session, sent.seq, sent.resent) {
                let before = last.insert(session, (seq, event));
                assert!(before.is_none_or(|(before, _)| before < seq), "the witness saw s{session} out of order");
            }
        }
        for event in 0..self.sent.len() {
            let came = arrivals.counts.get(&event).copied().unwrap_or(0);
            let sender_knows =
                !self.sent[event].command || self.clients.iter().all(|client| client.alive || !client.socket);
            if sender_knows {
                assert_eq!(came, self.taken_in(event), "e{event} reached the witness: {}", self.sent[event].raw);
            }
        }
        arrivals
    }

    /// Nothing is doubled by the relay; a command's target has exactly one copy per sending.
    fn check_copies(&self, index: usize, client: &Client, arrivals: &Arrivals) {
        let mut copies: HashMap<usize, usize> = HashMap::new();
        client.events().for_each(|event| *copies.entry(event).or_default() += 1);
        for (event, count) in &copies {
            let sends = arrivals.counts.get(event).copied().unwrap_or(0);
            let sent = &self.sent[*event];
            // A replay asked for once the copy had come serves the history to a command's target too.
            let first = client.log.iter().position(|item| *item == Item::Event(*event)).unwrap_or(0);
            let later = |sub: &&Sub| sub.start != Start::Now && sub.answered.is_some_and(|(_, place)| place > first);
            let history = if sent.command { client.subs.iter().filter(later).count() } else { 0 };
            // What a subscription that has ended delivered is not known any more.
            let ended = client.subs.iter().filter(|sub| sub.ended).count();
            let most = sends * (1 + ended) + history;
            assert!(*count <= most, "client {index} got e{event} {count} times, sent {sends}: {}", sent.raw);
        }
        if client.alive {
            for (event, sends) in arrivals.counts.iter().filter(|(event, _)| self.sent[**event].command) {
                let session = self.sent[*event].session.unwrap();
                if self.sessions[session].emitter == Some(index) {
                    assert!(copies.get(event).copied().unwrap_or(0) >= *sends, "the target {index} misses e{event}");
                }
            }
        }
    }

    /// First copies of one session keep the order of arrival, where one subscription alone decides it.
    fn check_order(&self, index: usize, client: &Client, arrivals: &Arrivals) {
        if client.subs.len() > 1 && client.subs.iter().any(|sub| sub.start != Start::Now) {
            return;
        }
        let mut last: HashMap<usize, (usize, usize)> = HashMap::new();
        let mut met = HashSet::new();
        for event in client.events() {
            let sent = &self.sent[event];
            if let (Some(session), false) = (sent.session, sent.resent)
                && !sent.command
                && met.insert(event)
            {
                let place = arrivals.places[&event];
                if let Some((before, other)) = last.insert(session, (place, event)) {
                    assert!(before < place, "client {index} got e{event} of s{session} behind e{other}");
                }
            }
        }
    }

    fn check_wants(&self, index: usize, client: &Client) {
        for (place, item) in client.log.iter().enumerate() {
            let Item::Event(event) = item else { continue };
            let sent = &self.sent[*event];
            let wanted = client
                .subs
                .iter()
                .any(|sub| sub.answered.is_some_and(|(_, answered)| answered < place) && sub.want.matches(sent));
            assert!(wanted || sent.command, "client {index} got e{event} without asking: {}", sent.raw);
        }
    }

    /// The positions of a `closing` are those last handed to the socket.
    pub(super) fn check_closing(&self, index: usize, client: &Client) {
        let Some((place, delivered)) = client.log.iter().enumerate().find_map(|(place, item)| match item {
            Item::Closing(delivered) => Some((place, delivered)),
            _ => None,
        }) else {
            return;
        };
        let mut last: HashMap<usize, u64> = HashMap::new();
        for item in &client.log[..place] {
            if let Item::Event(event) = item
                && let (Some(session), Some(seq)) = (self.sent[*event].session, self.sent[*event].seq)
            {
                last.insert(session, seq);
                for (sub, _, at) in delivered.iter().filter(|(_, named, _)| *named == session) {
                    // Whatever is named has been handed over.
                    let known = client.log[..place].iter().any(|item| {
                        matches!(item, Item::Event(other) if self.sent[*other].session == Some(session)
                            && self.sent[*other].seq == Some(*at))
                    });
                    assert!(known, "client {index}: closing of {sub} names s{session}:{at}, which did not come");
                }
            }
        }
        for (sub, session, at) in delivered {
            assert!(last.contains_key(session), "client {index}: closing of {sub} names s{session}:{at}; nothing came");
        }
        let never_ended = client.subs.iter().all(|sub| !sub.ended);
        if never_ended && last.len() <= self.shared().limits.sessions_max {
            for (session, seq) in last {
                let named = delivered.iter().any(|(_, named, at)| *named == session && *at == seq);
                assert!(
                    named,
                    "client {index}: closing does not name s{session}:{seq}, the last that came: {delivered:?}"
                );
            }
        }
    }

    /// No loss outside what was announced: drops by number, gaps by session.
    fn check_completeness(&self, index: usize, client: &Client, arrivals: &Arrivals, held: &HashSet<usize>) {
        let got: HashSet<usize> = client.events().collect();
        let announced = client.announced();
        let complete = client.alive || client.log.last() == Some(&Item::Complete);
        let mut missing = HashSet::new();
        for sub in client.subs.iter().filter(|sub| complete && !sub.ended) {
            let Some((answered, _)) = sub.answered else {
                assert!(!client.alive, "client {index}: {} was never answered", sub.id);
                continue;
            };
            for event in (0..self.sent.len()).filter(|event| arrivals.counts.contains_key(event)) {
                let sent = &self.sent[event];
                let promised = sub.want.matches(sent) && self.is_promised(sub, client, answered, event, held);
                if promised && !got.contains(&event) {
                    let shed = sent.droppable && sub.live;
                    assert!(shed, "client {index} misses e{event} of {sub:?}: {}", sent.raw);
                    missing.insert(event);
                }
            }
        }
        assert!(missing.len() <= announced, "client {index} misses {missing:?}, announced {announced}");
        // A replay serves again what a subscription that has ended delivered.
        if complete && announced > 0 && client.subs.iter().all(|sub| !sub.ended) {
            let wanted = |event: &usize| client.subs.iter().any(|sub| sub.want.matches(&self.sent[*event]));
            let sends: usize = arrivals.counts.iter().filter(|(event, _)| wanted(event)).map(|(_, sends)| sends).sum();
            assert!(client.events().count() + announced <= sends, "client {index}: {announced} dropped of {sends}");
        }
    }

    fn is_promised(&self, sub: &Sub, client: &Client, answered: usize, event: usize, held: &HashSet<usize>) -> bool {
        let sent = &self.sent[event];
        let after = sub.live && sent.step > answered;
        let before = sent.session.is_some() && (sub.live || sent.accepted.is_some_and(|step| step < sub.asked));
        // Cramped, the memory of the evicted is a few sessions: what it forgets cannot be announced.
        let gap = self.cramped || client
            .log
            .iter()
            .any(|item| matches!(item, Item::Exhausted { sub: of, session } if *of == sub.id && sent.session == Some(*session)));
        match &sub.start {
            Start::Now if sub.live => after,
            // What left the buffer meanwhile is not announced to those who asked for all.
            Start::Now | Start::All => {
                before && (self.roomy || held.contains(&event) && !sent.resent) || after && sent.session.is_none()
            }
            Start::Positions(asked) => {
                let above = |(session, seq): &(usize, u64)| {
                    sent.session == Some(*session) && sent.seq.is_some_and(|own| own > *seq)
                };
                (after || before && asked.iter().any(above)) && (self.roomy || !gap)
            }
        }
    }

    /// Whether something of a session is missing behind what had come of it when a gap was announced, at that place of
    /// the log: an event that never came, or a copy of one; or a position below all that was ever sent.
    fn is_gap(&self, client: &Client, arrivals: &Arrivals, session: usize, asked: Option<u64>, place: usize) -> bool {
        if asked.is_some_and(|seq| seq + 1 < self.sessions[session].first_seq) {
            return true;
        }
        let came = |items: &[Item], event| items.iter().filter(|item| **item == Item::Event(event)).count();
        let of_session = || arrivals.places.iter().filter(|(event, _)| self.sent[**event].session == Some(session));
        let (before, behind) = client.log.split_at(place);
        // What has no position comes as it arrives, whatever is missing before it.
        let stands = |event: usize| self.sent[event].seq.is_some() && came(before, event) > 0;
        let last = of_session().filter(|(event, _)| stands(**event)).map(|(_, arrived)| arrived).max();
        of_session().any(|(event, arrived)| {
            let (sent, copies) = (&self.sent[*event], came(&client.log, *event));
            // Of what was sent again, the copy that the gap stands for may be any.
            let again = sent.resent && (copies < arrivals.counts[event] || came(behind, *event) > 0);
            copies == 0 && Some(arrived) > last || again
        })
    }

    /// Gaps are announced where there are some, ahead of what follows, and nowhere else.
    fn check_announcements(&self, index: usize, client: &Client, arrivals: &Arrivals) {
        let [sub] = client.subs.as_slice() else { return };
        let Start::Positions(asked) = &sub.start else {
            let told = client.log.iter().any(|item| matches!(item, Item::Exhausted { .. }));
            assert!(!told, "client {index} was told of a gap without having asked for a position");
            return;
        };
        for (place, item) in client.log.iter().enumerate() {
            if let Item::Exhausted { session, .. } = item {
                let asked = asked.iter().filter(|(named, _)| named == session).map(|(_, seq)| *seq).min();
                assert!(
                    self.is_gap(client, arrivals, *session, asked, place),
                    "client {index} was told of a gap in s{session}, and misses nothing: {sub:?}"
                );
            }
        }
        if !self.roomy {
            return;
        }
        for session in 0..self.sessions.len() {
            let first = self.sessions[session].first_seq;
            let gap = asked.iter().any(|(named, seq)| *named == session && seq + 1 < first);
            let told: Vec<usize> = (0..client.log.len())
                .filter(|place| matches!(&client.log[*place], Item::Exhausted { session: of, .. } if *of == session))
                .collect();
            let begun = client.log.iter().position(|item| {
                matches!(item, Item::Event(event) if self.sent[*event].session == Some(session) && self.sent[*event].seq.is_some())
            });
            assert!(told.len() <= usize::from(gap), "client {index} was told of a gap in s{session}: {told:?} {sub:?}");
            if let (Some(begun), true) = (begun, gap) {
                assert!(told.first().is_some_and(|told| *told < begun), "client {index} was not told of s{session}");
            }
        }
    }
}
