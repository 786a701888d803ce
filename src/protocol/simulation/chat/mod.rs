//! A small protocol of WebSockets, to be driven by the machine: what one says all hear. Some of it is filed first, by
//! an archive that is a thread and no core: its answer is mail from outside, and who waits for it is parked.
//!
//! Invariants: a parked member is read no further; what was taken in is heard, also if its speaker is gone before it
//! was filed.

mod world;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::rules::{GROUP, Lives, Numbered, Order};
use crate::engine::service::{
    ConnId, CoreId, Ending, Flow, Group, Lane, Message, Post, Pushed, Response, Verdict, WebSocketClose,
    WebSocketUpgrade, Work,
};
use crate::limits::Room;
use crate::ops::metrics;
use crate::protocol::routes::{Auth, Path};
use crate::protocol::simulation::outbox::FANOUT;
use crate::protocol::{Protocol, Refused, Request};
use crate::wire::json::ObjectWriter;
use crate::wire::websocket::frame::encode_text;
use crate::wire::websocket::handshake::Handshake;

const PATHS: &[Path<()>] =
    &[Path { pattern: "/chat", label: metrics::Endpoint::Other, methods: &[("GET", Auth::Open, ())] }];

/// Mail of the ingest lane that one turn takes.
const INGEST_PER_TURN: usize = 1;

/// Something that a member has said: its name, and which of its messages that is.
#[derive(Debug, Clone, Copy)]
struct Word {
    speaker: usize,
    number: u64,
}

#[derive(Debug)]
enum ChatMail {
    /// To all cores.
    Said(Word),
    /// From the archive: that member's word is filed.
    Filed(ConnId, Word),
}

type Out<'a> = &'a mut dyn Post<Numbered<ChatMail>>;

/// What a core knows of a connection.
#[derive(Debug, Default)]
struct Member {
    /// Messages taken in.
    came: u64,
    parked: bool,
    awaits_drained: bool,
}

#[derive(Debug, Default)]
struct Chat {
    lives: Lives,
    order: Order,
    members: BTreeMap<ConnId, Member>,
    /// What the archive is to take away.
    to_file: VecDeque<(ConnId, Word)>,
    /// How many the archive has not answered.
    unfiled: usize,
    /// Messages taken in.
    taken: u64,
    /// Ingest mail taken in this turn.
    ingested: usize,
}

impl Chat {
    fn tell_all(&mut self, out: Out<'_>, word: Word) {
        for to in (0..out.out().cores()).map(|core| CoreId(u16::try_from(core).unwrap())) {
            out.mail_fanout(to, self.order.number(FANOUT, to, 0, ChatMail::Said(word)));
        }
    }

    fn deliver(&self, out: Out<'_>, word: Word) {
        let mut frame = Vec::new();
        encode_text(&mut frame, format!("{} {}", word.speaker, word.number).as_bytes());
        let run = out.outbox().write_run(Lane(5), &frame);
        for &conn in self.members.keys() {
            if out.outbox().push_run(conn, run, Room::Whole, 0) == Pushed::Full {
                out.outbox().cut(conn, b"", WebSocketClose { code: 1013, reason: "" });
            }
        }
    }
}

impl Protocol for Chat {
    type Mail = Numbered<ChatMail>;
    type Endpoint = ();

    fn paths(&self) -> &'static [Path<()>] {
        PATHS
    }

    fn on_request(&mut self, _: Out<'_>, conn: ConnId, (): (), request: &Request<'_>) -> Verdict {
        self.lives.request(conn);
        self.lives.open(conn);
        self.members.insert(conn, Member::default());
        let Handshake::Accept(accept) = Handshake::of(request.head) else { panic!("it is an upgrade") };
        Verdict::Upgrade(WebSocketUpgrade {
            group: GROUP,
            accept,
            message_bytes_max: 1000,
            first_message_bytes_max: 1000,
            ping_interval: Duration::MAX,
            silence_max: Duration::MAX,
        })
    }

    fn refusal(&self, _: Refused) -> Response {
        panic!("nothing of it is refused")
    }

    fn health(&self, _: &mut ObjectWriter) {}

    fn on_message(&mut self, out: Out<'_>, conn: ConnId, message: Message<'_>) -> Flow {
        self.lives.input(conn);
        let Message::Text(text) = message else { panic!("no message is too large") };
        let words: Vec<&str> = std::str::from_utf8(text).unwrap().split(' ').collect();
        let word = Word { speaker: words[0].parse().unwrap(), number: words[1].parse().unwrap() };
        let member = self.members.get_mut(&conn).unwrap();
        assert!(!member.parked, "who is parked is read no further");
        assert_eq!(member.came, word.number, "messages come in order, each once");
        member.came += 1;
        self.taken += 1;
        match words[2] {
            "file" => {
                member.parked = true;
                self.to_file.push_back((conn, word));
                self.unfiled += 1;
                return Flow::Park;
            }
            "blink" => {
                if !std::mem::replace(&mut member.awaits_drained, true) {
                    out.outbox().notify_drained(conn);
                }
                self.tell_all(out, word);
                out.outbox().resume(conn);
                return Flow::Park;
            }
            _ => self.tell_all(out, word),
        }
        Flow::Continue
    }

    fn on_drained(&mut self, out: Out<'_>, conn: ConnId) {
        assert_eq!(out.out().queued_bytes(conn), 0);
        if let Some(member) = self.members.get_mut(&conn) {
            assert!(std::mem::take(&mut member.awaits_drained), "once per asking");
        }
    }

    fn group(&self) -> Group {
        GROUP
    }

    fn takes_ingest(&self) -> bool {
        self.ingested < INGEST_PER_TURN
    }

    fn on_mail(&mut self, out: Out<'_>, from: CoreId, mail: Numbered<ChatMail>) {
        if mail.lane() != FANOUT {
            assert!(self.takes_ingest(), "what is not taken waits");
            self.ingested += 1;
        }
        match self.order.take(from, mail) {
            ChatMail::Said(word) => {
                assert!(usize::from(from.0) < out.out().cores());
                self.deliver(out, word);
            }
            ChatMail::Filed(conn, word) => {
                assert_eq!(from, CoreId::OUTSIDE);
                self.unfiled -= 1;
                if let Some(member) = self.members.get_mut(&conn) {
                    member.parked = false;
                    out.outbox().resume(conn);
                }
                self.tell_all(out, word);
            }
        }
    }

    fn on_turn(&mut self, _: Out<'_>) -> Work {
        self.ingested = 0;
        Work::Idle
    }

    fn on_closing(&mut self, out: Out<'_>, conn: ConnId) {
        self.lives.closing(conn);
        self.members.remove(&conn);
        assert_eq!(out.outbox().push(conn, b"", 0), Pushed::Gone, "nothing more is for it");
    }

    fn on_gone(&mut self, _: Out<'_>, conn: ConnId, _: Ending) {
        self.lives.gone(conn);
    }

    fn is_quiescent(&self) -> bool {
        self.unfiled == 0
    }

    fn on_goodbye(&mut self, out: Out<'_>) -> Work {
        let close = WebSocketClose { code: 1001, reason: "" };
        self.members.keys().for_each(|conn| out.outbox().close_websocket(*conn, close));
        Work::Idle
    }
}
