//! A value per connection. Connections are dense small slots, so a vector serves.
//!
//! Invariant: a stale generation misses, so no value is ever found by a connection that it was not entered for.

use crate::engine::service::ConnId;

/// See the module.
#[derive(Debug)]
pub struct ByConn<T> {
    slots: Vec<Option<(u32, T)>>,
    len: usize,
}

impl<T> Default for ByConn<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }
}

impl<T> ByConn<T> {
    /// Enters a value, replacing any that the slot had.
    pub fn insert(&mut self, conn: ConnId, value: T) {
        let slot = conn.slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        if self.slots[slot].replace((conn.generation, value)).is_none() {
            self.len += 1;
        }
    }

    /// The connection's value.
    #[must_use]
    pub fn get(&self, conn: ConnId) -> Option<&T> {
        match self.slots.get(conn.slot as usize) {
            Some(Some((generation, value))) if *generation == conn.generation => Some(value),
            _ => None,
        }
    }

    /// The connection's value, to be changed.
    pub fn get_mut(&mut self, conn: ConnId) -> Option<&mut T> {
        match self.slots.get_mut(conn.slot as usize) {
            Some(Some((generation, value))) if *generation == conn.generation => Some(value),
            _ => None,
        }
    }

    /// Takes the connection's value out.
    pub fn remove(&mut self, conn: ConnId) -> Option<T> {
        self.get(conn)?;
        self.len -= 1;
        self.slots.get_mut(conn.slot as usize)?.take().map(|(_, value)| value)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many slots there are, in use or not.
    #[must_use]
    pub fn slots(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// The connection in a slot, if it has a value.
    #[must_use]
    pub fn in_slot(&self, slot: u32) -> Option<(ConnId, &T)> {
        let (generation, value) = self.slots.get(slot as usize)?.as_ref()?;
        Some((ConnId { slot, generation: *generation }, value))
    }

    /// All connections that have a value.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, &T)> {
        (0u32..).zip(&self.slots).filter_map(|(slot, entry)| {
            entry.as_ref().map(|(generation, value)| (ConnId { slot, generation: *generation }, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(slot: u32, generation: u32) -> ConnId {
        ConnId { slot, generation }
    }

    #[test]
    fn a_value_is_found_by_its_connection_and_no_other() {
        let mut values = ByConn::default();
        values.insert(conn(2, 1), 'a');
        values.insert(conn(0, 0), 'b');
        assert_eq!((values.get(conn(2, 1)), values.get(conn(2, 0)), values.get(conn(1, 1))), (Some(&'a'), None, None));
        assert_eq!((values.get(conn(9, 1)), values.in_slot(9), values.slots()), (None, None, 3));
        assert_eq!(values.iter().collect::<Vec<_>>(), [(conn(0, 0), &'b'), (conn(2, 1), &'a')]);
        assert_eq!(values.in_slot(2), Some((conn(2, 1), &'a')));

        values.insert(conn(2, 2), 'c');
        assert_eq!((values.remove(conn(2, 1)), values.len()), (None, 2), "the slot is another's now");
        *values.get_mut(conn(2, 2)).unwrap() = 'd';
        assert_eq!((values.remove(conn(2, 2)), values.remove(conn(2, 2))), (Some('d'), None));
        assert_eq!((values.remove(conn(0, 0)), values.is_empty()), (Some('b'), true));
    }
}
