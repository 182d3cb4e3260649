//! When which entity wants to be looked at: a heap whose outdated entries are skipped.

use core::cmp::Reverse;
use core::hash::{Hash, Hasher};
use std::collections::BinaryHeap;

use crate::entity::EntityId;
use crate::time::Instant;

/// Entries may be outdated; whoever pops one checks it against the entity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, EntityId)>>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, id: EntityId) {
        self.heap.push(Reverse((at, id)));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// The entry that comes first, if it is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<EntityId> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, id))| id)
    }

    /// Drops entries from the front while `outdated` says so.
    pub(crate) fn skip(&mut self, outdated: impl Fn(Instant, EntityId) -> bool) {
        while let Some(&Reverse((at, id))) = self.heap.peek() {
            if !outdated(at, id) {
                return;
            }
            self.heap.pop();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(Instant, EntityId) -> bool) {
        self.heap.retain(|&Reverse((at, id))| keep(at, id));
    }

    pub(crate) fn clear(&mut self) {
        self.heap.clear();
    }

    fn sorted(&self) -> Vec<Reverse<(Instant, EntityId)>> {
        self.heap.clone().into_sorted_vec()
    }
}

// Two heaps are equal if their entries are, in whatever order they were pushed.
impl PartialEq for Timers {
    fn eq(&self, other: &Self) -> bool {
        self.sorted() == other.sorted()
    }
}

impl Eq for Timers {}

impl Hash for Timers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.sorted().hash(state);
    }
}
