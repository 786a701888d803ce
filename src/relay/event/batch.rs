//! Events on their way, their bytes one behind the other.

use std::ops::Range;

use super::{Event, EventMeta, Extension};

/// Events of one sender for one owner core, in the order they were sent.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    raw: String,
    text: String,
    extensions: Vec<Extension>,
    events: Vec<BatchEvent>,
}

/// Where an event of a batch lies in the batch's stores. Spans inside `meta` count from the starts here.
#[derive(Debug, Clone)]
struct BatchEvent {
    raw: Range<usize>,
    text: Range<usize>,
    extensions: Range<usize>,
    meta: EventMeta,
}

impl Batch {
    /// A copy of the event, behind those already here.
    pub fn push(&mut self, event: Event<'_>) {
        let (raw, text, extensions) = (self.raw.len(), self.text.len(), self.extensions.len());
        self.raw.push_str(event.raw);
        self.text.push_str(event.text);
        self.extensions.extend_from_slice(event.extensions);
        self.events.push(BatchEvent {
            raw: raw..self.raw.len(),
            text: text..self.text.len(),
            extensions: extensions..self.extensions.len(),
            meta: *event.meta,
        });
    }

    /// How many events there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The event at `index`, in order of pushing.
    ///
    /// # Panics
    /// If `index` is not below [`Batch::len`].
    #[must_use]
    pub fn event(&self, index: usize) -> Event<'_> {
        let event = &self.events[index];
        Event {
            raw: &self.raw[event.raw.clone()],
            text: &self.text[event.text.clone()],
            meta: &event.meta,
            extensions: &self.extensions[event.extensions.clone()],
        }
    }

    /// All events, in order of pushing.
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event<'_>> {
        (0..self.len()).map(|index| self.event(index))
    }

    /// Forgets the events and keeps the memory.
    pub fn clear(&mut self) {
        self.raw.clear();
        self.text.clear();
        self.extensions.clear();
        self.events.clear();
    }

    /// Bytes of all events as they are delivered.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        self.raw.len()
    }

    /// Bytes of memory it keeps.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + self.raw.capacity()
            + self.text.capacity()
            + self.extensions.capacity() * size_of::<Extension>()
            + self.events.capacity() * size_of::<BatchEvent>()
    }
}
