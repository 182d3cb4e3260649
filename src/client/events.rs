//! Events: duplicates, order, forks, faults of user code (R1–R13, R36).

use super::*;
use crate::zoo::{self, Bug};

impl<P> Client<P> {
    /// An event that covers (prev, seq].
    pub(super) fn judge(&mut self, id: EntityId, epoch: Epoch, event: Held<P>) {
        let model = self.model(id);
        let entity = &mut self.entities[id];
        entity.flags.set(Flags::HEARD, true);
        if entity.has(Flags::FINAL) {
            if entity.epoch != epoch && model.reopen == Reopen::Epoch {
                return self.suspect(id, epoch, event);
            }
            self.discard(event.payload);
            return self.after_final(id, epoch, event.seq);
        }
        let Some(position) = entity.position() else {
            return self.suspect(id, epoch, event);
        };
        if epoch != position.epoch && !zoo::has(Bug::ForgetEpochCheck) {
            return self.suspect(id, epoch, event);
        }
        if model.reset_seq == Some(event.seq) && event.payload.is_some() {
            return self.restart(id, epoch, event);
        }
        let reach = entity.reach(&model, event.prev, event.seq, event.visible);
        if reach == Reach::Covered {
            let blocked = self.recovery(id).is_some_and(|recovery| recovery.question.blocks());
            let blocked = blocked || zoo::has(Bug::OverlookForks);
            if event.id.is_some() && !blocked && self.ids_of(id).is_some_and(|ids| ids.contradicts(event.seq, event.id))
            {
                self.discard(event.payload);
                return self.diverged(id);
            }
            self.stats.duplicates += 1;
            return self.discard(event.payload);
        }
        // A replay that is taken as a whole moves no position while its pages come.
        let whole = self.page == Some(id) && model.replay_whole;
        let measured = matches!(model.continuity, Continuity::PlusOne | Continuity::Range)
            && model.on_gap() != OnGap::Skip
            && !whole
            && !zoo::has(Bug::BelieveFarAhead);
        if measured && event.prev.saturating_sub(position.seq) > self.config.max_ahead {
            self.discard(event.payload);
            return self.far_ahead(id);
        }
        if reach != Reach::Next {
            self.stats.held += 1;
        }
        if zoo::has(Bug::CountHeldIds) && event.id.is_some() && reach != Reach::Next {
            self.note_id(id, event.seq, event.id);
        }
        let recovery = self.recover(id);
        let buffer = if whole { &mut recovery.whole } else { &mut recovery.held };
        if let Err(repeat) = buffer.insert(event) {
            self.stats.duplicates += 1;
            return self.discard(repeat.payload);
        }
        self.note_bytes(id);
        self.entities[id].flags.set(Flags::CLEAR, false);
        // What fits leaves the buffer at once, unless something keeps it from being applied.
        let stays = whole || self.recovery(id).is_some_and(|recovery| recovery.question.blocks());
        if reach != Reach::Next || stays {
            self.bound(id);
        }
        self.touch(id);
    }

    /// An event of `continuity: 'none'`: in order of arrival; only the lock guards.
    pub(super) fn arrive(&mut self, id: EntityId, event: Event, seq: Option<Seq>, payload: P) {
        self.entities[id].flags.set(Flags::HEARD, true);
        if self.entities[id].has(Flags::FINAL) {
            self.discard(Some(payload));
            self.stats.after_final += 1;
            return self.fault(Some(id), Fault::AfterFinal);
        }
        let prev = self.entities[id].last;
        let shown = seq.unwrap_or(prev);
        self.note_undo(id, shown);
        if let Some(seq) = seq {
            self.entities[id].move_to(event.epoch, seq);
        }
        self.commit(id, event.status);
        if event.has_data || event.status.is_some() {
            self.emit(Output::Change(Change {
                entity: id,
                kind: ChangeKind::Event,
                epoch: event.epoch,
                prev,
                seq: shown,
                status: event.status,
                id: event.id,
                reset: false,
                skipped: None,
                locks: false,
                bytes: event.bytes,
                payload: Some(payload),
            }));
        } else {
            self.stats.silent += 1;
            self.discard(Some(payload));
        }
        self.touch(id);
    }

    /// A keep-alive of a chain says where the owner stands.
    pub(super) fn stands_at(&mut self, id: EntityId, epoch: Epoch, seq: Seq) {
        self.entities[id].flags.set(Flags::HEARD, true);
        let Some(position) = self.entities[id].position() else {
            return;
        };
        if self.entities[id].has(Flags::FINAL) {
            return;
        }
        if epoch != position.epoch {
            self.suspect_epoch(id, epoch);
        } else if seq > position.seq {
            self.note_head(id, seq);
        }
    }

    /// An event that declares everything before it void: a chain's restart, or the model's `resetSeq`.
    pub(super) fn restart(&mut self, id: EntityId, epoch: Epoch, event: Held<P>) {
        let entity = &self.entities[id];
        if entity.has(Flags::FINAL) {
            self.discard(event.payload);
            return self.after_final(id, epoch, event.seq);
        }
        if entity.position().is_none_or(|position| position.epoch != epoch) {
            return self.suspect(id, epoch, event);
        }
        self.note_undo(id, event.seq);
        self.drop_history(id);
        self.entities[id].move_to(epoch, event.seq);
        self.entities[id].status = Status::NONE;
        self.commit(id, event.status);
        if event.id.is_some() {
            self.note_id(id, event.seq, event.id);
        }
        self.stats.resets += 1;
        self.emit(Output::Change(Change {
            entity: id,
            kind: ChangeKind::Event,
            epoch,
            prev: event.prev,
            seq: event.seq,
            status: event.status,
            id: event.id,
            reset: true,
            skipped: None,
            locks: false,
            bytes: event.bytes,
            payload: event.payload,
        }));
        self.touch(id);
    }

    /// Takes the next held change, if it fits (R2, R4). One at a time: the driver may lock or roll back in between.
    pub(super) fn pull(&mut self, id: EntityId) -> Option<Output<P>> {
        loop {
            if !self.entities.contains(id) || self.entities[id].has(Flags::FINAL) {
                return None;
            }
            let model = self.model(id);
            let position = self.entities[id].position()?;
            let recovery = self.recovery_mut(id)?;
            if recovery.question.blocks()
                || recovery.stage == Stage::Denied
                || recovery.failed && recovery.faults >= AGREEING_ANSWERS
            {
                return None;
            }
            if zoo::has(Bug::ApplyTwice) {
                // Nothing is dropped on the way out.
            } else if let Some(covered) = recovery.held.pop_covered(position.seq) {
                self.note_bytes(id);
                self.stats.duplicates += 1;
                if let Some(payload) = covered.payload {
                    return Some(Output::Discard(payload));
                }
                continue;
            }
            let front = recovery.held.front()?;
            let (prev, seq, visible) = (front.prev, front.seq, front.visible);
            if self.entities[id].reach(&model, prev, seq, visible) != Reach::Next {
                return None;
            }
            let held = &mut self.recovery_mut(id)?.held;
            let event = if zoo::has(Bug::DrainFromBehind) { held.pop_back()? } else { held.pop_front()? };
            self.note_bytes(id);
            self.note_undo(id, event.seq);
            let repeated = event.id.is_some() && self.ids_of(id).is_some_and(|ids| ids.contains(event.id));
            self.entities[id].move_to(position.epoch, event.seq);
            if event.id.is_some() && !zoo::has(Bug::ForgetIds) {
                self.note_id(id, event.seq, event.id);
            }
            self.commit(id, if repeated { Status::NONE } else { event.status });
            if repeated || !event.visible {
                self.stats.silent += 1;
                match event.payload {
                    Some(payload) => return Some(Output::Discard(payload)),
                    None => continue,
                }
            }
            return Some(Output::Change(Change {
                entity: id,
                kind: ChangeKind::Event,
                epoch: position.epoch,
                prev: event.prev,
                seq: event.seq,
                status: event.status,
                id: event.id,
                reset: false,
                skipped: None,
                locks: false,
                bytes: event.bytes,
                payload: event.payload,
            }));
        }
    }

    #[inline(never)]
    pub(super) fn commit(&mut self, id: EntityId, status: Status) {
        if status.is_some() {
            self.entities[id].status = status;
        }
        self.stats.applied += 1;
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.lag = 0;
        }
    }

    #[inline(never)]
    pub(super) fn note_undo(&mut self, id: EntityId, seq: Seq) {
        let entity = &self.entities[id];
        self.undo = Some(Undo {
            entity: id,
            position: entity.position(),
            status: entity.status,
            seq,
            was_final: entity.has(Flags::FINAL),
            floor: self.recovery(id).and_then(|recovery| recovery.floor),
        });
    }

    /// R8: what comes for a final entity raises the position at most.
    pub(super) fn after_final(&mut self, id: EntityId, epoch: Epoch, seq: Seq) {
        let entity = &mut self.entities[id];
        if entity.epoch == epoch && seq <= entity.last {
            self.stats.duplicates += 1;
            return;
        }
        if entity.epoch == epoch {
            entity.last = seq;
        }
        self.stats.after_final += 1;
        self.fault(Some(id), Fault::AfterFinal);
    }

    /// R5: the history forked.
    pub(super) fn diverged(&mut self, id: EntityId) {
        self.stats.diverged += 1;
        self.fault(Some(id), Fault::Diverged);
        let now = self.now;
        let recovery = self.recover(id);
        let held = core::mem::take(&mut recovery.held);
        let asks = recovery.diverged.is_none_or(|at| now.since(at) >= DIVERGED_PACE);
        if asks {
            recovery.diverged = Some(now);
            recovery.question = Question::Fork;
            recovery.wants_snapshot = true;
            recovery.ask = None;
        }
        self.discard_all(held);
        self.note_bytes(id);
        self.free_ids_of(id);
        self.touch(id);
    }

    /// R12: a number that nobody can believe asks for one snapshot in a while.
    pub(super) fn far_ahead(&mut self, id: EntityId) {
        self.stats.bad_frames += 1;
        self.fault(Some(id), Fault::FarAhead);
        let now = self.now;
        let recovery = self.recover(id);
        if recovery.far_asked.is_none_or(|at| now.since(at) >= FAR_AHEAD_PACE) {
            recovery.far_asked = Some(now);
            self.want_snapshot(id);
        }
    }

    /// The server has at least this number (R21).
    pub(super) fn note_head(&mut self, id: EntityId, head: Seq) {
        if zoo::has(Bug::IgnoreHeads) {
            return;
        }
        let last = self.entities[id].last;
        if head.saturating_sub(last) > self.config.max_ahead && self.model(id).continuity != Continuity::Prev {
            return self.far_ahead(id);
        }
        let recovery = self.recover(id);
        recovery.head = recovery.head.max(Some(head));
        recovery.lag = 0;
        self.entities[id].flags.set(Flags::CLEAR, false);
        self.touch(id);
    }

    /// R22: an answer says that the server's head is below the position it was asked about.
    pub(super) fn lags(&mut self, id: EntityId) {
        let recovery = self.recover(id);
        recovery.lag = recovery.lag.saturating_add(1);
        if recovery.lag >= AGREEING_ANSWERS || zoo::has(Bug::BelieveLag) {
            recovery.question = Question::Lag;
        }
        self.want_snapshot(id);
    }

    /// An answer agrees with the position.
    #[inline(never)]
    pub(super) fn confirm(&mut self, id: EntityId) {
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.lag = 0;
        }
        self.touch(id);
    }

    #[inline(never)]
    pub(super) fn want_snapshot(&mut self, id: EntityId) {
        self.entities[id].flags.set(Flags::CLEAR, false);
        self.recover(id).wants_snapshot = true;
        self.touch(id);
    }
}
