//! One entity: its position, its lock, and the verdict on an event (R1–R13).
//!
//! Entities live in a dense table and are small: a page may track a hundred thousand. What only a
//! troubled entity needs (held events, requests, suspicions) stands in `recovery.rs`.

use crate::config::{Continuity, Model, OnGap};
use crate::gap::Held;
use crate::ids::{EventId, Ids};
use crate::recovery::{Recovery, Stage};
use crate::time::Instant;
use crate::zoo::{self, Bug};

/// The number that an entity's owner gave a change: 1, 2, 3 … without holes; 0 is "before the first".
pub type Seq = u64;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
    };
}

number! {
    /// An entity, as the driver knows it: an index that is reused after `Output::Forgotten`.
    EntityId(u32)
}
number! {
    /// A model, as numbered by `Client::add_model`.
    ModelId(u8)
}
number! {
    /// An interned epoch: the incarnation of an entity's numbering. Equal numbers mean equal epochs, nothing else.
    Epoch(u32)
}
number! {
    /// An interned status; [`Status::NONE`] where there is none.
    Status(u32)
}

/// Nobody, where an entity is asked for: no table is as large.
pub(crate) const NOBODY: EntityId = EntityId(u32::MAX);

impl Epoch {
    /// The epoch of what has no position. Drivers never intern it.
    pub(crate) const NONE: Epoch = Epoch(u32::MAX);
}

impl Status {
    pub const NONE: Status = Status(0);

    #[must_use]
    pub fn is_some(self) -> bool {
        self != Status::NONE
    }
}

/// Where an entity stands. Epoch and seq are one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    pub epoch: Epoch,
    pub seq: Seq,
}

/// How far the shown state can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Sync {
    /// No position yet.
    #[default]
    Joining = 0,
    /// Confirmed on this connection, nothing missing.
    Live = 1,
    /// Connected, something missing or unconfirmed.
    Recovering = 2,
    /// Disconnected.
    Stale = 3,
    /// Locked; outlives disconnects.
    Final = 4,
    /// Given up for now.
    Failed = 5,
}

impl Sync {
    /// All of them, by their numbers.
    pub(crate) const ALL: [Sync; 6] =
        [Sync::Joining, Sync::Live, Sync::Recovering, Sync::Stale, Sync::Final, Sync::Failed];
}

/// A set of facts about an entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Flags(u16);

impl Flags {
    pub(crate) const NONE: Flags = Flags(0);
    /// The index is in use.
    pub(crate) const USED: Flags = Flags(1);
    /// The application subscribes to it.
    pub(crate) const SUBSCRIBED: Flags = Flags(1 << 1);
    /// `subscribe` was sent for it on this socket.
    pub(crate) const SENT: Flags = Flags(1 << 2);
    /// It has a position.
    pub(crate) const PLACED: Flags = Flags(1 << 3);
    /// Locked (R8).
    pub(crate) const FINAL: Flags = Flags(1 << 4);
    /// Nothing stands in the way of the next event: `accept` may decide alone.
    pub(crate) const CLEAR: Flags = Flags(1 << 5);
    /// The position moved since the last question about it (R22).
    pub(crate) const MOVED: Flags = Flags(1 << 6);
    /// Something came for it since the last reconciliation (R21).
    pub(crate) const HEARD: Flags = Flags(1 << 7);
    /// It was not live when its topic's cursor came (R39).
    pub(crate) const BEHIND: Flags = Flags(1 << 8);
    /// Its held events are being pulled.
    pub(crate) const DRAINING: Flags = Flags(1 << 9);
    /// Released, but its position and lock are remembered (R31).
    pub(crate) const REMEMBERED: Flags = Flags(1 << 10);
    /// Its end was reported.
    pub(crate) const ENDED: Flags = Flags(1 << 12);
    /// It waits in the list of subscriptions to send.
    pub(crate) const QUEUED: Flags = Flags(1 << 11);
    /// It stands in the list of those whose recovery may have something to do.
    pub(crate) const LISTED: Flags = Flags(1 << 13);
    /// Joined again after its end: what is remembered is the floor (R31).
    pub(crate) const FLOORED: Flags = Flags(1 << 14);

    pub(crate) const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    pub(crate) const fn intersection(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }

    pub(crate) fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One entity. 32 bytes in a browser, so that a million take 32 MB.
///
/// While it is `FLOORED` it has no position: epoch, last and status are those of its remembered end (R31).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entity<P> {
    pub last: Seq,
    pub epoch: Epoch,
    pub status: Status,
    /// What it needs while it is troubled.
    pub recovery: Option<Box<Recovery<P>>>,
    /// The ids that it applied lately.
    pub ids: Option<Box<Ids>>,
    /// Index + 1 of the wave of questions whose answer it awaits, 0 for none: 0 means confirmed.
    pub wave: u16,
    /// How many topics it is a member of.
    pub topics: u16,
    pub flags: Flags,
    pub model: ModelId,
    /// What was last reported.
    pub sync: Sync,
}

#[cfg(target_pointer_width = "32")]
const _: () = assert!(size_of::<Entity<u32>>() == 32);

impl<P> Default for Entity<P> {
    fn default() -> Self {
        Entity::UNUSED
    }
}

impl<P> Entity<P> {
    pub(crate) const UNUSED: Entity<P> = Entity {
        last: 0,
        epoch: Epoch(0),
        status: Status::NONE,
        recovery: None,
        ids: None,
        wave: 0,
        topics: 0,
        flags: Flags::NONE,
        model: ModelId(0),
        sync: Sync::Joining,
    };

    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.flags.has(flags)
    }

    pub(crate) fn set(&mut self, flags: Flags) {
        self.flags.0 |= flags.0;
    }

    pub(crate) fn clear(&mut self, flags: Flags) {
        self.flags.0 &= !flags.0;
    }

    pub(crate) fn position(&self) -> Option<Position> {
        self.has(Flags::PLACED).then_some(Position { epoch: self.epoch, seq: self.last })
    }

    /// The epoch of its position.
    pub(crate) fn own(&self) -> Epoch {
        if self.has(Flags::PLACED) { self.epoch } else { Epoch::NONE }
    }

    /// Whether anybody wants it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.has(Flags::SUBSCRIBED) || self.topics > 0
    }

    /// Whether it is wanted, or will be let go later.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_wanted() || self.recovery.as_ref().is_some_and(|recovery| recovery.linger != Instant::NEVER)
    }

    /// Whether an answer about it is awaited, or a question about to be asked.
    pub(crate) fn is_asked(&self) -> bool {
        self.wave != 0 || self.has(Flags::QUEUED)
    }

    pub(crate) fn stage(&self) -> Stage {
        self.recovery.as_ref().map_or(Stage::Rest, |recovery| recovery.stage)
    }

    /// Whether nothing is known to be missing, a gap in its grace included.
    pub(crate) fn lacks_nothing(&self) -> bool {
        self.recovery.as_ref().is_none_or(|recovery| recovery.held.len() == 0 && recovery.stage == Stage::Rest)
    }

    /// Its recovery, made if there is none.
    #[inline(never)]
    pub(crate) fn recover(&mut self) -> &mut Recovery<P> {
        self.recovery.get_or_insert_default()
    }

    #[inline(never)]
    pub(crate) fn move_to(&mut self, epoch: Epoch, seq: Seq) {
        self.epoch = epoch;
        self.last = seq;
        self.set(Flags::PLACED.and(Flags::MOVED).and(Flags::HEARD));
    }

    /// The earliest held event that could be applied.
    #[inline(never)]
    pub(crate) fn front(&self) -> Option<&Held<P>> {
        self.recovery.as_ref()?.held.front(self.own())
    }

    /// The last of the missing numbers, which begin behind the position; 0 if none is missing.
    #[inline(never)]
    pub(crate) fn hole(&self) -> Seq {
        let head = self.recovery.as_ref().map_or(0, |recovery| recovery.asked.head);
        let to = self.front().map_or(head, |front| front.prev);
        if self.has(Flags::PLACED) && to > self.last { to } else { 0 }
    }

    pub(crate) fn contradicts(&self, seq: Seq, id: EventId) -> bool {
        self.ids.as_ref().is_some_and(|ids| ids.contradicts(seq, id))
    }

    pub(crate) fn repeats(&self, id: EventId) -> bool {
        id.is_some() && self.ids.as_ref().is_some_and(|ids| ids.contains(id))
    }

    /// Notes an applied id, where the model remembers `capacity` of them.
    pub(crate) fn note_id(&mut self, capacity: u16, seq: Seq, id: EventId) {
        if capacity > 0 && id.is_some() {
            self.ids.get_or_insert_with(|| Box::new(Ids::new(capacity))).push(seq, id);
        }
    }
}

/// Where an event lies relative to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// R1: nothing of it is new.
    Covered,
    /// R2: it may be applied.
    Next,
    /// R2: its range begins before the position, and the model does not allow that.
    Straddles,
    /// R3: something before it is missing.
    Ahead,
}

/// Where (prev, seq] lies relative to the position `last`.
#[inline(never)]
pub(crate) fn reach(last: Seq, model: &Model, prev: Seq, seq: Seq, visible: bool) -> Reach {
    let skips = model.on_gap == Some(OnGap::Skip);
    if zoo::has(Bug::ApplyTwice) && seq == last && prev < seq && visible {
        Reach::Next
    } else if seq <= last || skips && !visible && prev > last {
        // Where the newest wins, numbers without data are no news: what lies before them may be on its way.
        Reach::Covered
    } else if prev == last || skips || zoo::has(Bug::OffByOneAtPrev) && prev == last + 1 {
        Reach::Next
    } else if prev > last {
        Reach::Ahead
    } else if model.overlap_absolute || !visible {
        Reach::Next
    } else {
        Reach::Straddles
    }
}

/// The numbers of an event as its model reads them (R11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// It covers (prev, seq].
    Covers {
        prev: Seq,
        seq: Seq,
    },
    /// A keep-alive of a chain: the owner stands at this number.
    StandsAt(Seq),
    /// The owner restarted at this number.
    Restarts(Seq),
    /// In order of arrival; the number is only kept for resuming.
    Arrives(Option<Seq>),
    /// 0, "before the first".
    BeforeFirst,
    Unusable,
}

impl Numbers {
    /// Reads what the wire gave. `last` is the position, if there is one.
    pub(crate) fn read(model: &Model, prev: Option<Seq>, seq: Option<Seq>, last: Option<Seq>) -> Numbers {
        let usable = |seq: Seq| seq <= crate::config::MAX_SEQ;
        if !prev.is_none_or(usable) || !seq.is_none_or(usable) {
            return Numbers::Unusable;
        }
        let Some(seq) = seq else {
            return if model.continuity == Continuity::None { Numbers::Arrives(None) } else { Numbers::Unusable };
        };
        match model.continuity {
            Continuity::None => Numbers::Arrives(Some(seq)),
            Continuity::Prev => match prev {
                None => Numbers::Unusable,
                Some(prev) if prev == seq => Numbers::StandsAt(seq),
                Some(prev) if prev < seq => Numbers::Covers { prev, seq },
                Some(prev) if Some(prev) == last => Numbers::Restarts(seq),
                Some(prev) if last.is_some_and(|last| prev <= last) => Numbers::BeforeFirst,
                Some(_) => Numbers::Unusable,
            },
            _ if model.on_gap == Some(OnGap::Skip) => match seq {
                0 => Numbers::BeforeFirst,
                _ => Numbers::Covers { prev: seq - 1, seq },
            },
            Continuity::PlusOne => match (prev, seq) {
                (_, 0) => Numbers::BeforeFirst,
                (Some(prev), _) if prev != seq - 1 => Numbers::Unusable,
                _ => Numbers::Covers { prev: seq - 1, seq },
            },
            Continuity::Range => match (prev, seq) {
                (_, 0) => Numbers::BeforeFirst,
                (Some(prev), _) if prev >= seq => Numbers::Unusable,
                (prev, _) => Numbers::Covers { prev: prev.unwrap_or(seq - 1), seq },
            },
        }
    }
}

/// Entities in segments: a table that grows without copying, and without holding twice its size while it does.
///
/// An index that was never given out reads as an entity that nobody uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entities<P> {
    segments: Vec<Vec<Entity<P>>>,
    free: Vec<EntityId>,
    nobody: Entity<P>,
}

/// Entities per segment: 32 KiB each in a browser. Native clients are many and small, and worlds copy and compare them.
const SEGMENT: usize = if cfg!(target_arch = "wasm32") { 1_024 } else { 16 };

impl<P> Entities<P> {
    pub(crate) const NONE: Entities<P> = Entities { segments: Vec::new(), free: Vec::new(), nobody: Entity::UNUSED };

    pub(crate) fn add(&mut self, model: ModelId) -> EntityId {
        if self.free.is_empty() {
            let first = self.segments.len() * SEGMENT;
            let mut segment = Vec::new();
            segment.resize_with(SEGMENT, Entity::default);
            self.segments.push(segment);
            for at in (0..SEGMENT).rev() {
                self.free.push(EntityId((first + at) as u32));
            }
        }
        let id = self.free.pop().unwrap_or_default();
        let entity = &mut self[id];
        entity.model = model;
        entity.set(Flags::USED);
        id
    }

    pub(crate) fn remove(&mut self, id: EntityId) {
        self[id] = Entity::default();
        self.free.push(id);
    }

    /// The first in use from an index on, [`NOBODY`] if there is none. A loop over it may change the table.
    #[inline(never)]
    pub(crate) fn next(&self, mut from: u32) -> EntityId {
        while (from as usize) < self.segments.len() * SEGMENT {
            if self[EntityId(from)].has(Flags::USED) {
                return EntityId(from);
            }
            from += 1;
        }
        NOBODY
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: EntityId) -> Option<&mut Entity<P>> {
        let index = id.0 as usize;
        self.segments.get_mut(index / SEGMENT)?.get_mut(index % SEGMENT)
    }
}

// Not inlined: they stand in a few hundred places, and `accept`, which is fast, uses `get_mut`.
impl<P> core::ops::Index<EntityId> for Entities<P> {
    type Output = Entity<P>;
    #[inline(never)]
    fn index(&self, id: EntityId) -> &Entity<P> {
        let index = id.0 as usize;
        match self.segments.get(index / SEGMENT).and_then(|segment| segment.get(index % SEGMENT)) {
            Some(entity) => entity,
            None => &self.nobody,
        }
    }
}

impl<P> core::ops::IndexMut<EntityId> for Entities<P> {
    #[inline(never)]
    fn index_mut(&mut self, id: EntityId) -> &mut Entity<P> {
        let index = id.0 as usize;
        match self.segments.get_mut(index / SEGMENT).and_then(|segment| segment.get_mut(index % SEGMENT)) {
            Some(entity) => entity,
            None => &mut self.nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Entities, EntityId, Flags, ModelId, NOBODY, Numbers, Reach, reach};
    use crate::config::{Continuity, Model, OnGap};

    #[test]
    fn numbers_are_read_as_the_model_declares() {
        use Numbers::*;
        let too_large = crate::config::MAX_SEQ + 1;
        let table = [
            (Continuity::PlusOne, None, Some(6), Covers { prev: 5, seq: 6 }),
            (Continuity::PlusOne, Some(5), Some(6), Covers { prev: 5, seq: 6 }),
            (Continuity::PlusOne, Some(4), Some(6), Unusable),
            (Continuity::PlusOne, None, None, Unusable),
            (Continuity::PlusOne, None, Some(0), BeforeFirst),
            (Continuity::PlusOne, None, Some(too_large), Unusable),
            (Continuity::Range, Some(4), Some(6), Covers { prev: 4, seq: 6 }),
            (Continuity::Range, Some(6), Some(6), Unusable),
            (Continuity::Range, None, Some(6), Covers { prev: 5, seq: 6 }),
            (Continuity::Prev, None, Some(6), Unusable),
            (Continuity::Prev, Some(2), Some(9), Covers { prev: 2, seq: 9 }),
            (Continuity::Prev, Some(5), Some(5), StandsAt(5)),
            (Continuity::Prev, Some(5), Some(3), Restarts(3)),
            (Continuity::Prev, Some(8), Some(3), Unusable),
            (Continuity::Prev, Some(4), Some(3), BeforeFirst),
            (Continuity::None, None, None, Arrives(None)),
            (Continuity::None, Some(9), Some(3), Arrives(Some(3))),
        ];
        for (continuity, prev, seq, expected) in table {
            let model = Model { continuity, ..Model::default() };
            assert_eq!(Numbers::read(&model, prev, seq, Some(5)), expected, "{continuity:?} {prev:?} {seq:?}");
        }
        // Where the newest wins, what an event says of its predecessor is ignored.
        let skip = Model { on_gap: Some(OnGap::Skip), ..Model::default() };
        assert_eq!(Numbers::read(&skip, Some(3), Some(9), Some(5)), Covers { prev: 8, seq: 9 });
        assert_eq!(Numbers::read(&skip, Some(3), Some(0), Some(5)), BeforeFirst);
    }

    #[test]
    fn flags_are_sets() {
        let both = Flags::USED.and(Flags::FINAL);
        assert!(both.has(Flags::USED) && both.has(Flags::FINAL) && !both.has(Flags::SENT));
        assert_eq!((both.and(Flags::FINAL), both.intersection(Flags::FINAL)), (both, Flags::FINAL));
    }

    #[test]
    fn reach_is_relative_to_the_position() {
        let strict = Model::default();
        let absolute = Model { overlap_absolute: true, ..Model::default() };
        let skip = Model { on_gap: Some(OnGap::Skip), ..Model::default() };
        let table = [
            (&strict, 4, 5, true, Reach::Covered),
            (&strict, 5, 6, true, Reach::Next),
            (&strict, 5, 9, true, Reach::Next),
            (&strict, 6, 7, true, Reach::Ahead),
            (&strict, 3, 7, true, Reach::Straddles),
            (&strict, 3, 7, false, Reach::Next),
            (&absolute, 3, 7, true, Reach::Next),
            (&skip, 8, 9, true, Reach::Next),
            (&skip, 3, 4, true, Reach::Covered),
            (&skip, 8, 9, false, Reach::Covered),
            (&skip, 5, 6, false, Reach::Next),
        ];
        for (model, prev, seq, visible, expected) in table {
            assert_eq!(reach(5, model, prev, seq, visible), expected, "({prev}, {seq}] {visible}");
        }
    }

    #[test]
    fn freed_indexes_are_used_again() {
        let mut entities = Entities::<()>::NONE;
        let ids: Vec<EntityId> = (0..1_500).map(|_| entities.add(ModelId(0))).collect();
        let (mut seen, mut id) = (Vec::new(), entities.next(0));
        while id != NOBODY {
            seen.push(id);
            id = entities.next(id.0 + 1);
        }
        assert_eq!(seen, ids);
        entities.remove(ids[700]);
        assert!(!entities[ids[700]].has(Flags::USED));
        assert_eq!(entities.add(ModelId(0)), ids[700]);
        assert!(!entities[EntityId(9_999_999)].has(Flags::USED));
        // Both ways lead to the same entity.
        for &id in &ids {
            entities[id].last = u64::from(id.0);
            assert_eq!(entities.get_mut(id).map(|entity| entity.last), Some(u64::from(id.0)));
        }
        assert!(entities.get_mut(EntityId(9_999_999)).is_none());
    }
}
