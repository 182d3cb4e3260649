//! The bounded buffer of early events (R3, R4, R19).
//!
//! ```text
//!            last        front.prev                       back
//! ────────────┤  missing    ├──────┤   ├────┤ ├─────────────┤
//!  applied    └── the gap ──┘ held   gap held    held
//! ```
//!
//! Invariants, asserted after every change: sorted by (prev, seq); no two entries cover the same
//! (prev, seq]; `bytes` is the sum over the entries.

use std::collections::VecDeque;

use crate::entity::{Seq, Status};
use crate::ids::EventId;

/// An event that came early. It covers (prev, seq].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held<P> {
    pub prev: Seq,
    pub seq: Seq,
    pub id: EventId,
    pub status: Status,
    /// The event's share of its frame's text, in bytes.
    pub bytes: u32,
    /// `None`: a vacancy, numbers that will never exist.
    pub payload: Option<P>,
    /// Whether it has data or a status, so that applying it can change what is shown (R13).
    pub visible: bool,
}

impl<P> Held<P> {
    /// Earlier events first; of two that begin alike, the shorter.
    fn key(&self) -> (Seq, Seq) {
        (self.prev, self.seq)
    }
}

/// Early events of one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gap<P> {
    held: VecDeque<Held<P>>,
    bytes: u64,
}

impl<P> Default for Gap<P> {
    fn default() -> Self {
        Gap { held: VecDeque::new(), bytes: 0 }
    }
}

impl<P> Gap<P> {
    /// Holds an event; gives it back if the same numbers are held already: the first one stays.
    ///
    /// Events mostly come behind all others, or, in a replay, before them; neither moves any.
    #[inline(never)]
    pub(crate) fn insert(&mut self, event: Held<P>) -> Result<(), Held<P>> {
        let key = event.key();
        let bytes = u64::from(event.bytes);
        if self.held.front().is_some_and(|front| key < front.key()) {
            self.held.push_front(event);
        } else {
            let mut at = self.held.len();
            while at > 0 && self.held[at - 1].key() >= key {
                at -= 1;
                if self.held[at].key() == key {
                    return Err(event);
                }
            }
            self.held.push_back(event);
            for place in (at + 1..self.held.len()).rev() {
                self.held.swap(place, place - 1);
            }
        }
        self.bytes += bytes;
        self.check();
        Ok(())
    }

    /// The earliest held event.
    pub(crate) fn front(&self) -> Option<&Held<P>> {
        self.held.front()
    }

    #[inline(never)]
    pub(crate) fn pop_front(&mut self) -> Option<Held<P>> {
        let event = self.held.pop_front()?;
        self.bytes -= u64::from(event.bytes);
        Some(event)
    }

    /// Removes the event that is farthest ahead.
    #[inline(never)]
    pub(crate) fn pop_back(&mut self) -> Option<Held<P>> {
        let event = self.held.pop_back()?;
        self.bytes -= u64::from(event.bytes);
        Some(event)
    }

    /// Removes an event that (.., last] covers; `None` when no such event is left.
    #[inline(never)]
    pub(crate) fn pop_covered(&mut self, last: Seq) -> Option<Held<P>> {
        let mut at = self.held.iter().take_while(|held| held.prev < last).position(|held| held.seq <= last)?;
        while at > 0 {
            self.held.swap(at, at - 1);
            at -= 1;
        }
        self.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sorting and distinctness of the neighbours of a change imply those of the whole; the whole is checked in debug builds.
    fn check(&self) {
        debug_assert!(
            self.held.iter().zip(self.held.iter().skip(1)).all(|(a, b)| a.key() < b.key()),
            "held events are sorted and distinct"
        );
        debug_assert_eq!(self.bytes, self.held.iter().map(|held| u64::from(held.bytes)).sum::<u64>());
    }
}

#[cfg(test)]
mod tests {
    use super::{Gap, Held};
    use crate::entity::Status;
    use crate::ids::EventId;
    use crate::jitter::Jitter;

    fn event(prev: u64, seq: u64) -> Held<u64> {
        Held {
            prev,
            seq,
            id: EventId::NONE,
            status: Status::NONE,
            bytes: seq as u32,
            payload: Some(seq),
            visible: true,
        }
    }

    /// Against a naive model: a plain list that is sorted when asked.
    #[test]
    fn behaves_like_a_sorted_list() {
        for seed in 0..200 {
            let mut jitter = Jitter::new(seed);
            let mut gap = Gap::default();
            let mut model: Vec<(u64, u64)> = Vec::new();
            for _ in 0..60 {
                match jitter.between(0, 5) {
                    0..=2 => {
                        let prev = jitter.between(0, 20);
                        let seq = prev + jitter.between(1, 4);
                        let fresh = !model.contains(&(prev, seq));
                        assert_eq!(gap.insert(event(prev, seq)).is_ok(), fresh, "seed {seed}");
                        if fresh {
                            model.push((prev, seq));
                            model.sort_unstable();
                        }
                    }
                    3 => {
                        let popped = gap.pop_front().map(|held| (held.prev, held.seq));
                        let expected = if model.is_empty() { None } else { Some(model.remove(0)) };
                        assert_eq!(popped, expected, "seed {seed}");
                    }
                    4 => assert_eq!(gap.pop_back().map(|held| (held.prev, held.seq)), model.pop(), "seed {seed}"),
                    _ => {
                        let last = jitter.between(0, 24);
                        while let Some(held) = gap.pop_covered(last) {
                            assert!(held.seq <= last, "seed {seed}");
                        }
                        model.retain(|&(_, seq)| seq > last);
                    }
                }
                assert_eq!(gap.len(), model.len(), "seed {seed}");
                assert_eq!(gap.bytes(), model.iter().map(|&(_, seq)| seq).sum::<u64>(), "seed {seed}");
            }
        }
    }
}
