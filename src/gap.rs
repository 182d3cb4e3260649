//! The bounded buffer of early events (R3, R4, R7, R19).
//!
//! ```text
//!            last        front.prev                       back
//! ────────────┤  missing    ├──────┤   ├────┤ ├─────────────┤      ┆ those of a suspected epoch ┆
//!  applied    └── the gap ──┘ held   gap held    held
//! ```
//!
//! One buffer has them all: early events of the entity's epoch, what a replay brought that counts only when it is
//! done (`whole`), and events of epochs that no snapshot has named. Which are which, the entity's epoch decides: when
//! a snapshot names another, suspects become early events where they lie.
//!
//! Invariants, asserted after every change: sorted by (epoch, whole, prev, seq), and distinct; `bytes` is the sum
//! over the entries.

use crate::entity::{Epoch, Seq, Status};
use crate::ids::EventId;

/// An event that came early. It covers (prev, seq].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held<P> {
    pub prev: Seq,
    pub seq: Seq,
    pub id: EventId,
    pub epoch: Epoch,
    pub status: Status,
    /// The event's share of its frame's text, in bytes.
    pub bytes: u32,
    /// `None`: a vacancy, numbers that will never exist.
    pub payload: Option<P>,
    /// Whether it has data or a status, so that applying it can change what is shown (R13).
    pub visible: bool,
    /// It counts only when its replay is done.
    pub whole: bool,
}

impl<P> Held<P> {
    /// Earlier events first; of two that begin alike, the shorter.
    fn key(&self) -> (Epoch, bool, Seq, Seq) {
        (self.epoch, self.whole, self.prev, self.seq)
    }
}

/// What is removed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    /// What belongs to an epoch.
    Of(Epoch),
    /// What belongs to all other epochs.
    NotOf(Epoch),
    /// What a replay brought that is not done.
    Whole,
    /// What belongs to an epoch and begins behind a number.
    Beyond(Epoch, Seq),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gap<P> {
    held: Vec<Held<P>>,
    bytes: u64,
}

impl<P> Default for Gap<P> {
    fn default() -> Self {
        Gap { held: Vec::new(), bytes: 0 }
    }
}

impl<P> Gap<P> {
    /// Holds an event; gives it back if the same numbers are held already: the first one stays.
    #[inline(never)]
    pub(crate) fn insert(&mut self, event: Held<P>) -> Result<(), Held<P>> {
        let key = event.key();
        // Events mostly come behind all others.
        let mut at = self.held.len();
        while at > 0 && self.held[at - 1].key() >= key {
            at -= 1;
            if self.held[at].key() == key {
                return Err(event);
            }
        }
        self.bytes += u64::from(event.bytes);
        self.held.insert(at, event);
        self.check();
        Ok(())
    }

    /// Where the first event of an epoch is that is `usable`, of those that begin up to `last`.
    pub(crate) fn first(&self, epoch: Epoch, last: Seq, usable: impl Fn(&Held<P>) -> bool) -> Option<usize> {
        for (at, held) in self.held.iter().enumerate() {
            if held.epoch == epoch && !held.whole {
                if held.prev > last {
                    break;
                }
                if usable(held) {
                    return Some(at);
                }
            }
        }
        None
    }

    /// The earliest held event of an epoch.
    pub(crate) fn front(&self, epoch: Epoch) -> Option<&Held<P>> {
        self.held.iter().find(|held| held.epoch == epoch && !held.whole)
    }

    #[inline(never)]
    pub(crate) fn remove(&mut self, at: usize) -> Held<P> {
        let event = self.held.remove(at);
        self.bytes -= u64::from(event.bytes);
        self.check();
        event
    }

    /// Removes the one that can best be spared: a suspect if there is any, else the farthest of the epoch, or the
    /// lowest.
    #[inline(never)]
    pub(crate) fn pop_spare(&mut self, epoch: Epoch, farthest: bool) -> Option<Held<P>> {
        let suspect = self.held.iter().position(|held| held.epoch != epoch);
        let own = if farthest { self.held.iter().rposition(|held| !held.whole) } else { None };
        let at = suspect.or(own).unwrap_or(0);
        (at < self.held.len()).then(|| self.remove(at))
    }

    /// Removes one of these; `None` when none is left.
    #[inline(never)]
    pub(crate) fn pop(&mut self, which: Which) -> Option<Held<P>> {
        let chosen = |held: &Held<P>| match which {
            Which::All => true,
            Which::Of(epoch) => held.epoch == epoch,
            Which::NotOf(epoch) => held.epoch != epoch,
            Which::Whole => held.whole,
            Which::Beyond(epoch, last) => held.epoch == epoch && held.prev > last,
        };
        self.held.iter().rposition(chosen).map(|at| self.remove(at))
    }

    /// Takes events of one epoch for those of another: a planted fault and nothing else.
    pub(crate) fn rename(&mut self, from: Epoch, to: Epoch) {
        self.held.iter_mut().filter(|held| held.epoch == from).for_each(|held| held.epoch = to);
        self.held.sort_by_key(Held::key);
        self.held.dedup_by_key(|held| held.key());
        self.bytes = self.held.iter().map(|held| u64::from(held.bytes)).sum();
    }

    /// Whether an event of this epoch is held.
    pub(crate) fn has(&self, epoch: Epoch) -> bool {
        self.held.iter().any(|held| held.epoch == epoch)
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
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
    use super::{Gap, Held, Which};
    use crate::entity::{Epoch, Status};
    use crate::ids::EventId;
    use crate::jitter::Jitter;

    const EPOCH: Epoch = Epoch(7);

    fn event(epoch: Epoch, prev: u64, seq: u64) -> Held<u64> {
        Held {
            prev,
            seq,
            id: EventId::NONE,
            epoch,
            status: Status::NONE,
            bytes: seq as u32,
            payload: Some(seq),
            visible: true,
            whole: false,
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
                        assert_eq!(gap.insert(event(EPOCH, prev, seq)).is_ok(), fresh, "seed {seed}");
                        if fresh {
                            model.push((prev, seq));
                            model.sort_unstable();
                        }
                    }
                    3 => {
                        let popped = gap
                            .first(EPOCH, u64::MAX, |_| true)
                            .map(|at| gap.remove(at))
                            .map(|held| (held.prev, held.seq));
                        let expected = if model.is_empty() { None } else { Some(model.remove(0)) };
                        assert_eq!(popped, expected, "seed {seed}");
                    }
                    4 => assert_eq!(
                        gap.pop_spare(EPOCH, true).map(|held| (held.prev, held.seq)),
                        model.pop(),
                        "seed {seed}"
                    ),
                    _ => {
                        let last = jitter.between(0, 24);
                        while let Some(at) = gap.first(EPOCH, last, |held| held.seq <= last) {
                            assert!(gap.remove(at).seq <= last, "seed {seed}");
                        }
                        model.retain(|&(_, seq)| seq > last);
                    }
                }
                assert_eq!(gap.len(), model.len(), "seed {seed}");
                assert_eq!(gap.bytes(), model.iter().map(|&(_, seq)| seq).sum::<u64>(), "seed {seed}");
            }
        }
    }

    /// Suspects lie beside the events of the epoch, and are spared last.
    #[test]
    fn epochs_do_not_mix() {
        let mut gap = Gap::default();
        for (epoch, seq) in [(EPOCH, 5), (Epoch(3), 2), (EPOCH, 4), (Epoch(9), 1), (Epoch(3), 2)] {
            let _ = gap.insert(event(epoch, seq - 1, seq));
        }
        assert_eq!(gap.len(), 4);
        assert_eq!(gap.front(EPOCH).map(|held| held.seq), Some(4));
        assert_eq!(gap.front(Epoch(3)).map(|held| held.seq), Some(2));
        assert_eq!(gap.pop_spare(EPOCH, true).map(|held| held.epoch), Some(Epoch(3)));
        assert_eq!(gap.pop(Which::NotOf(EPOCH)).map(|held| held.epoch), Some(Epoch(9)));
        assert!(gap.pop(Which::NotOf(EPOCH)).is_none());
        assert_eq!(gap.pop(Which::Of(EPOCH)).map(|held| held.seq), Some(5));
        assert_eq!(gap.bytes(), 4);
        assert!(gap.has(EPOCH) && !gap.has(Epoch(3)));
    }

    /// What a position does not reach, of its epoch and no other.
    #[test]
    fn beyond_a_number_is_what_begins_behind_it() {
        let mut gap = Gap::default();
        for (epoch, seq) in [(EPOCH, 6), (EPOCH, 7), (Epoch(3), 9), (EPOCH, 8)] {
            assert!(gap.insert(event(epoch, seq - 1, seq)).is_ok());
        }
        let beyond: Vec<u64> = std::iter::from_fn(|| gap.pop(Which::Beyond(EPOCH, 6))).map(|held| held.seq).collect();
        assert_eq!(beyond, [8]);
        assert_eq!(gap.len(), 3);
    }

    #[test]
    #[should_panic(expected = "sorted and distinct")]
    fn disorder_is_noticed() {
        Gap { held: vec![event(EPOCH, 7, 8), event(EPOCH, 5, 6)], bytes: 14 }.check();
    }
}
