//! The event ids an entity has applied lately (R5, R6). The number is the authority, the id a help.

use crate::entity::Seq;

/// A fingerprint of an event's id; [`EventId::NONE`] where the event carries none.
///
/// Drivers hash ids with a seed of their own, so that a server can't aim for a collision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u64);

impl EventId {
    pub const NONE: EventId = EventId(0);

    #[must_use]
    pub fn is_some(self) -> bool {
        self != EventId::NONE
    }
}

/// The last few (seq, id) of applied events, a ring. Its length never passes `capacity`, which is not 0.
///
/// Ids and numbers stand apart, since each event looks through all ids and almost none through the numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ids {
    capacity: u16,
    /// Where the next one goes once the ring is full.
    next: u16,
    ids: Vec<EventId>,
    seqs: Vec<Seq>,
}

impl Ids {
    pub(crate) fn new(capacity: u16) -> Self {
        Ids { capacity, next: 0, ids: Vec::new(), seqs: Vec::new() }
    }

    /// Notes an applied event. An id counts from here on, not while it is held.
    pub(crate) fn push(&mut self, seq: Seq, id: EventId) {
        let at = usize::from(self.next);
        if at == self.ids.len() {
            self.ids.push(id);
            self.seqs.push(seq);
        }
        self.ids[at] = id;
        self.seqs[at] = seq;
        self.next = (self.next + 1) % self.capacity;
    }

    /// Takes back the note for `seq`: its event could not be applied after all (R36).
    pub(crate) fn take_back(&mut self, seq: Seq) {
        if let Some(at) = self.seqs.iter().position(|&noted| noted == seq) {
            self.ids[at] = EventId::NONE;
            self.seqs[at] = Seq::MAX;
        }
    }

    /// Whether `seq` was applied under another id: the history forked (R5).
    #[inline(never)]
    pub(crate) fn contradicts(&self, seq: Seq, id: EventId) -> bool {
        let at = self.seqs.iter().position(|&noted| noted == seq);
        at.is_some_and(|at| self.ids[at] != id)
    }

    /// Whether this id was applied already (R6).
    #[inline(never)]
    pub(crate) fn contains(&self, id: EventId) -> bool {
        self.ids.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::{EventId, Ids};

    #[test]
    fn forgets_the_oldest_and_never_grows_past_its_capacity() {
        let mut ids = Ids::new(2);
        for seq in 1..=3 {
            ids.push(seq, EventId(seq + 100));
        }
        assert!(!ids.contains(EventId(101)));
        assert!(ids.contains(EventId(102)) && ids.contains(EventId(103)));
        assert!(ids.contradicts(3, EventId(9)));
        assert!(!ids.contradicts(3, EventId(103)));
        assert!(!ids.contradicts(1, EventId(9)), "evicted: nothing is known");
        ids.take_back(3);
        assert!(!ids.contains(EventId(103)));
    }
}
