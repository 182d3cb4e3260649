//! The way of almost all events in a browser: numbers alone decide, and nothing is queued (R1, R2, R5, R6).

use super::*;

impl<P> Client<P> {
    /// Judges a clean event by numbers alone.
    ///
    /// `prev` is seq−1 unless the wire gave it. `visible`: it has data or a status.
    #[inline]
    pub fn accept(
        &mut self,
        id: EntityId,
        prev: Seq,
        seq: Seq,
        epoch: Epoch,
        status: Status,
        visible: bool,
    ) -> Verdict {
        let Some(entity) = self.entities.get_mut(id) else { return Verdict::Slow };
        if !entity.has(Flags::CLEAR) || entity.epoch != epoch || prev.wrapping_add(1) != seq {
            return Verdict::Slow;
        }
        if seq == entity.last + 1 {
            let (last, flags) = (entity.last, entity.flags);
            self.undo = Undo { entity: id, epoch, last, status: entity.status, flags, seq, voids: false };
            entity.last = seq;
            entity.set(Flags::MOVED.and(Flags::HEARD));
            if status.is_some() {
                entity.status = status;
            }
            self.stats.applied += 1;
            if visible {
                return Verdict::Apply;
            }
            self.stats.silent += 1;
            return Verdict::Advance;
        }
        if seq <= entity.last && entity.ids.is_none() {
            self.stats.duplicates += 1;
            return Verdict::Drop;
        }
        Verdict::Slow
    }

    /// The same for an event that carries an id (R5, R6).
    #[inline]
    #[allow(clippy::too_many_arguments)] // numbers only, for the boundary to JavaScript
    pub fn accept_with_id(
        &mut self,
        id: EntityId,
        prev: Seq,
        seq: Seq,
        epoch: Epoch,
        status: Status,
        visible: bool,
        event: EventId,
    ) -> Verdict {
        let entity = &self.entities[id];
        let new = seq == entity.last + 1;
        if new && entity.repeats(event) {
            return Verdict::Slow;
        }
        if !new
            && entity.has(Flags::CLEAR)
            && entity.epoch == epoch
            && prev.wrapping_add(1) == seq
            && seq <= entity.last
            && !entity.contradicts(seq, event)
        {
            self.stats.duplicates += 1;
            return Verdict::Drop;
        }
        let verdict = self.accept(id, prev, seq, epoch, status, visible);
        if matches!(verdict, Verdict::Apply | Verdict::Advance) {
            self.note_id(id, seq, event);
        }
        verdict
    }
}
