//! What is read for a connection in pages, from one core after the other: one page is outstanding, and the next is
//! asked for when the socket has drained. A core that has been read to the end is live from then on.
//!
//! A core keeps nothing of who reads it. The *cursor* (`C`) says how far it has been read: it goes along with each
//! request, and comes back moved on with the page; with the last page comes none. What a page holds, and what it means
//! to be live, is the protocol's.
//!
//! Invariants: a page is asked for only while none is outstanding, and behind a page only once the socket has drained;
//! cores are read in their order, each to its end.

use std::collections::VecDeque;

use crate::base::footprint;
use crate::engine::service::CoreId;

/// What is to be done for a reading.
#[derive(Debug, PartialEq, Eq)]
pub enum PageStep<C> {
    /// Ask that core for a page from there on.
    Ask(CoreId, C),
    /// Nothing yet: a page is outstanding, or the socket has not drained.
    Wait,
    /// Nothing any more: every core has been read to the end.
    Over,
}

/// A reading, and how far it has come.
#[derive(Debug)]
pub struct Paging<C> {
    /// The cores that have not been read to the end; the first is being read. Its cursor is away while a page is
    /// outstanding.
    cores: VecDeque<(CoreId, Option<C>)>,
    /// Whether the socket has a page that it has not taken.
    undrained: bool,
}

impl<C> Paging<C> {
    /// A reading of these cores, each from there on.
    pub fn new(cores: impl IntoIterator<Item = (CoreId, C)>) -> Self {
        Self { cores: cores.into_iter().map(|(core, cursor)| (core, Some(cursor))).collect(), undrained: false }
    }

    /// Bytes on the heap of one that reads so many cores.
    #[must_use]
    pub const fn footprint(cores: usize) -> usize {
        footprint::allocation(cores * size_of::<(CoreId, Option<C>)>())
    }

    /// From where a core will be read on.
    pub fn cursor_mut(&mut self, core: CoreId) -> Option<&mut C> {
        self.cores.iter_mut().find(|(other, _)| *other == core)?.1.as_mut()
    }

    /// Goes on, if it is time.
    pub fn go_on(&mut self) -> PageStep<C> {
        if self.undrained {
            return PageStep::Wait;
        }
        match self.cores.front_mut() {
            Some((core, cursor)) => cursor.take().map_or(PageStep::Wait, |cursor| PageStep::Ask(*core, cursor)),
            None => PageStep::Over,
        }
    }

    /// The outstanding page has come, and the socket has been given what it holds. Answers whether there is more of
    /// that core, for which the socket has to drain first ([`Paging::drained`]). Else the core is live, and it is the
    /// turn of the next.
    pub fn on_page(&mut self, next: Option<C>) -> bool {
        let Some((_, cursor)) = self.cores.front_mut() else { return false };
        debug_assert!(cursor.is_none(), "a page was asked for");
        self.undrained = next.is_some();
        *cursor = next;
        if !self.undrained {
            self.cores.pop_front();
        }
        self.undrained
    }

    /// The socket has drained. Answers whether that was waited for.
    pub fn drained(&mut self) -> bool {
        std::mem::take(&mut self.undrained)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: CoreId = CoreId(1);
    const TWO: CoreId = CoreId(2);

    #[test]
    fn cores_are_read_one_after_the_other_each_to_its_end() {
        let mut paging = Paging::new([(ONE, 'a'), (TWO, 'x')]);
        assert_eq!(paging.go_on(), PageStep::Ask(ONE, 'a'));
        assert!(paging.on_page(Some('b')) && paging.drained());
        assert_eq!(paging.go_on(), PageStep::Ask(ONE, 'b'));
        assert!(!paging.on_page(None), "it is live");
        assert_eq!(paging.go_on(), PageStep::Ask(TWO, 'x'), "there was nothing to wait for");
        assert!(!paging.on_page(None));
        assert_eq!((paging.go_on(), paging.go_on()), (PageStep::Over, PageStep::Over));
    }

    #[test]
    fn one_page_is_outstanding_and_the_next_waits_for_the_socket() {
        let mut paging = Paging::new([(ONE, 'a')]);
        assert!(!paging.drained(), "nothing was waited for");
        assert_eq!(paging.go_on(), PageStep::Ask(ONE, 'a'));
        assert_eq!(paging.go_on(), PageStep::Wait, "it is outstanding");
        assert!(!paging.drained(), "the socket had nothing of it yet");
        assert!(paging.on_page(Some('b')));
        assert_eq!((paging.go_on(), paging.go_on()), (PageStep::Wait, PageStep::Wait), "the socket has it");
        assert!(paging.drained() && !paging.drained());
        assert_eq!(paging.go_on(), PageStep::Ask(ONE, 'b'));
    }

    #[test]
    fn a_cursor_is_at_hand_while_it_is_not_away() {
        let mut paging = Paging::new([(ONE, 'a'), (TWO, 'x')]);
        *paging.cursor_mut(TWO).unwrap() = 'y';
        *paging.cursor_mut(ONE).unwrap() = 'b';
        assert_eq!(paging.go_on(), PageStep::Ask(ONE, 'b'));
        assert_eq!(paging.cursor_mut(ONE), None);
        paging.on_page(Some('c'));
        assert_eq!(paging.cursor_mut(ONE), Some(&mut 'c'));
        paging.drained();
        assert_eq!(paging.go_on(), PageStep::Ask(ONE, 'c'));
        paging.on_page(None);
        assert_eq!(paging.cursor_mut(ONE), None);
        assert_eq!(paging.go_on(), PageStep::Ask(TWO, 'y'));
    }

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "an assertion of debug builds")]
    #[should_panic(expected = "a page was asked for")]
    fn no_page_comes_that_was_not_asked_for() {
        Paging::new([(ONE, 'a')]).on_page(None);
    }
}
