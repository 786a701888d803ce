//! All replays of a core share what one turn may look at.

use super::*;
use crate::limits::Limits;
use crate::relay::event::Fingerprinter;
use crate::relay::event::testing::parsed;
use crate::relay::filter::Filter;
use crate::relay::mail::SubRef;
use crate::relay::mail::page::{Cursor, Page, PageMemory, PageRequest, ReplayPhase};
use crate::relay::owner::replay::SCAN_BYTES;

const HERE: CoreId = CoreId(0);
const EVENTS: usize = 400;
const REPLAYS: u32 = 20;

fn owner_with_events() -> (Owner, Parser) {
    let shared = Arc::new(Shared::new(Limits::default(), 1, false));
    let mut owner = Owner::new(HERE, shared, Arc::default());
    for seq in 0..EVENTS {
        let text = format!(
            r#"{{"aep":"0.1","id":"e{seq}","type":"run.started","time":"2026-01-01T00:00:00Z","source":"s","agent":"a","session":"s{}","seq":{seq}}}"#,
            seq % 7
        );
        let mut batch = OwnedBatch::default();
        parsed(text.as_bytes(), |event| batch.batch.push(event));
        owner.push(HERE, OwnerInput::Events(Box::new(batch)));
    }
    let mut parser = Parser::new(Fingerprinter::new());
    while owner.has_work() {
        owner.run(&mut parser);
    }
    while owner.take_effect().is_some() {}
    (owner, parser)
}

fn ask(owner: &mut Owner, filter: &Arc<Filter>, sub: SubRef, cursor: Cursor) {
    let request = PageRequest { sub, filter: Arc::clone(filter), cursor, memory: PageMemory::default() };
    owner.push(HERE, OwnerInput::ReadPage(Box::new(request)));
}

fn pages(owner: &mut Owner) -> Vec<Page> {
    let effects = std::iter::from_fn(|| owner.take_effect());
    effects.filter_map(|(_, mail)| if let RelayMail::Page(page) = mail { Some(*page) } else { None }).collect()
}

#[test]
fn replays_that_match_nothing_share_what_a_turn_may_look_at() {
    let (mut owner, mut parser) = owner_with_events();
    let filter = Arc::new(Filter::parse(br#"{"run":"nothing"}"#, 10).unwrap());
    for slot in 0..REPLAYS {
        let cursor = Cursor { snapshot: owner.arrival, announce: false, live: false, phase: ReplayPhase::everything() };
        ask(&mut owner, &filter, SubRef { slot, generation: 0 }, cursor);
    }
    let mut served = vec![0_usize; REPLAYS as usize];
    let mut open = REPLAYS;
    while owner.has_work() {
        owner.run(&mut parser);
        let pages = pages(&mut owner);
        let scanned: usize = pages.iter().map(|page| page.scanned).sum();
        // The last page begun may take what one may, and one event more.
        assert!(scanned < SCAN_BYTES_PER_TURN + SCAN_BYTES + 500, "{scanned} bytes in one go");
        for page in pages {
            assert!(page.items.iter().all(|item| matches!(item, PageItem::Session { .. })));
            served[page.sub.slot as usize] += page.scanned;
            match page.next {
                Some(cursor) => ask(&mut owner, &filter, page.sub, cursor),
                None => open -= 1,
            }
        }
        let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
        assert!(most - least <= 2 * SCAN_BYTES, "each in turn: {served:?}");
    }
    assert_eq!(open, 0);
    assert!(served.iter().all(|bytes| *bytes > EVENTS * 100), "{served:?}");
}
