//! Epochs and snapshots (R7, R14–R18, R31).

use super::*;
use crate::zoo::{self, Bug};

impl<P> Client<P> {
    /// A frame of an epoch that no snapshot has named: hold it, and ask.
    pub(super) fn suspect(&mut self, id: EntityId, epoch: Epoch, event: Held<P>) {
        if self.is_retired(id, epoch) {
            self.stats.retired += 1;
            return self.discard(event.payload);
        }
        self.stats.held += 1;
        let recovery = self.recover(id);
        let at = match recovery.suspects.iter().position(|suspect| suspect.epoch == epoch) {
            Some(at) => at,
            None if recovery.suspects.len() == SUSPECT_EPOCHS => {
                self.stats.overflowed += 1;
                return self.discard(event.payload);
            }
            None => {
                recovery.suspects.push(Suspect { epoch, held: Gap::default() });
                recovery.suspects.len() - 1
            }
        };
        if let Err(repeat) = recovery.suspects[at].held.insert(event) {
            self.stats.duplicates += 1;
            self.discard(repeat.payload);
        }
        self.note_bytes(id);
        self.entities[id].flags.set(Flags::CLEAR, false);
        self.bound(id);
        self.hurry_member(id);
        self.touch(id);
    }

    /// A member's snapshot comes before its events, unless it was lost or overtaken: then it is asked for after the grace.
    fn hurry_member(&mut self, id: EntityId) {
        let until = self.now + self.config.gap.grace;
        let Some(wave) = self.waves.get(self.entities[id].wave) else { return };
        if wave.kind == WaveKind::Member && wave.deadline > until && self.entities[id].position().is_none() {
            let request = wave.request;
            if let Some(wave) = self.waves.join(WaveKind::Member, request, until) {
                self.set_wave(id, wave);
            }
        }
    }

    /// An epoch was named without a frame that could be held.
    #[inline(never)]
    pub(super) fn suspect_epoch(&mut self, id: EntityId, epoch: Epoch) {
        if !self.is_retired(id, epoch) {
            let recovery = self.recover(id);
            if recovery.suspects.len() < SUSPECT_EPOCHS
                && recovery.suspects.iter().all(|suspect| suspect.epoch != epoch)
            {
                recovery.suspects.push(Suspect { epoch, held: Gap::default() });
            }
        }
        self.want_snapshot(id);
    }

    pub(super) fn is_retired(&self, id: EntityId, epoch: Epoch) -> bool {
        !zoo::has(Bug::RetireNothing) && self.recovery(id).is_some_and(|recovery| recovery.is_retired(epoch))
    }

    /// Whether the entity waits for a snapshot under this request (R18).
    #[inline(never)]
    pub(super) fn awaits_snapshot(&self, id: EntityId, request: Request) -> bool {
        let asked = self.recovery(id).is_some_and(|recovery| recovery.snapshot == request && request != 0);
        let resumed = self.recovery(id).is_some_and(|recovery| {
            matches!(recovery.stage, Stage::Resume(_)) && recovery.ask.is_some_and(|ask| ask.request == request)
        });
        zoo::has(Bug::TakeEveryAnswer) || asked || resumed || (self.entities[id].wave != 0 && self.wave_is(id, request))
    }

    pub(super) fn judge_snapshot(&mut self, id: EntityId, snapshot: Snapshot, payload: P) {
        let model = self.model(id);
        let asked = snapshot.request.is_some();
        let Some(position) = self.entities[id].position() else {
            return self.adopt(id, snapshot, payload, false);
        };
        if model.continuity == Continuity::None {
            return self.adopt(id, snapshot, payload, false);
        }
        if model.reset_seq == Some(snapshot.seq) && !asked && snapshot.epoch == position.epoch {
            return self.adopt(id, snapshot, payload, true);
        }
        let question = self.recovery(id).map_or(Question::None, |recovery| recovery.question);
        if snapshot.epoch != position.epoch {
            if self.is_retired(id, snapshot.epoch) && question != Question::Anew {
                if !asked || !self.recover(id).flaps(snapshot.epoch) {
                    self.stats.retired += 1;
                    self.discard(Some(payload));
                    if asked {
                        self.try_failed(id, snapshot.request);
                    }
                    return;
                }
                self.fault(Some(id), Fault::EpochFlapping);
            }
            return self.adopt(id, snapshot, payload, true);
        }
        if snapshot.seq > position.seq || zoo::has(Bug::AcceptOlderSnapshot) {
            return self.adopt(id, snapshot, payload, false);
        }
        let whatever = match question {
            Question::None => false,
            Question::Fault => snapshot.seq == position.seq,
            Question::Lag | Question::Fork | Question::Anew => asked || question == Question::Anew,
        };
        if whatever {
            return self.adopt(id, snapshot, payload, snapshot.seq < position.seq);
        }
        if snapshot.seq < position.seq {
            self.stats.stale += 1;
            self.discard(Some(payload));
            if asked {
                let recovery = self.recover(id);
                recovery.lag = recovery.lag.saturating_add(1);
                if recovery.lag >= AGREEING_ANSWERS && recovery.question == Question::None {
                    recovery.question = Question::Lag;
                }
                self.refute_suspects(id);
                self.try_failed(id, snapshot.request);
            }
            return;
        }
        let status = self.entities[id].status;
        if status.is_some() && snapshot.status.is_some() && status != snapshot.status {
            self.discard(Some(payload));
            if asked {
                self.answered(id);
            }
            return self.diverged(id);
        }
        self.discard(Some(payload));
        self.refute_suspects(id);
        self.answered_by(id, snapshot.request);
        let recovery = self.recover(id);
        recovery.wants_snapshot = false;
        recovery.no_after = false;
        recovery.lag = 0;
        self.touch(id);
    }

    /// A snapshot came: what was asked is over, except a subscription that it does not answer, for what that
    /// brings may be newer.
    fn answered_by(&mut self, id: EntityId, request: Option<Request>) {
        let entity = &self.entities[id];
        let (wave, member) = (entity.wave, entity.topics > 0);
        let subscribes = self.waves.get(wave).is_some_and(|wave| wave.kind == WaveKind::Subscribe);
        let other = match request {
            Some(request) => !self.wave_is(id, request),
            // What is pushed may be the topic's doing.
            None => member,
        };
        if subscribes && other {
            self.entities[id].wave = 0;
            self.answered(id);
            self.entities[id].wave = wave;
        } else {
            self.answered(id);
        }
    }

    /// The snapshot that was asked came: its request and deadline are over.
    #[inline(never)]
    pub(super) fn answered(&mut self, id: EntityId) {
        self.set_wave(id, 0);
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.snapshot = 0;
            recovery.resubscribe = false;
            if let Some(ask) = &mut recovery.ask {
                ask.confirms = false;
            }
            if matches!(recovery.stage, Stage::Snapshot(_) | Stage::Resume(_) | Stage::Error(_) | Stage::Failed(_)) {
                self.set_stage(id, Stage::Rest);
            }
        }
    }

    /// An answer that did not help: the next one is paced (ladder, rung 4).
    pub(super) fn try_failed(&mut self, id: EntityId, request: Option<Request>) {
        let awaited = self.recover(id).snapshot;
        if awaited != 0 && Some(awaited) != request {
            // It answered a resume; the snapshot that was asked since is still to come.
            self.set_wave(id, 0);
            return self.touch(id);
        }
        self.answered(id);
        self.recover(id).wants_snapshot = true;
        self.touch(id);
    }

    #[inline(never)]
    pub(super) fn refute_suspects(&mut self, id: EntityId) {
        let Some(recovery) = self.recovery_mut(id) else {
            return;
        };
        let suspects = core::mem::take(&mut recovery.suspects);
        for suspect in suspects {
            self.recover(id).refute(suspect.epoch);
            self.discard_all(suspect.held);
        }
        self.note_bytes(id);
    }

    /// Takes a snapshot as the truth.
    pub(super) fn adopt(&mut self, id: EntityId, snapshot: Snapshot, payload: P, reset: bool) {
        self.note_undo(id, snapshot.seq);
        let position = self.entities[id].position();
        let same_epoch = position.is_some_and(|position| position.epoch == snapshot.epoch);
        self.answered_by(id, snapshot.request);
        if same_epoch {
            self.refute_suspects(id);
        }
        if (reset || (position.is_some() && !same_epoch)) && !zoo::has(Bug::KeepHeldAcrossEpochs) {
            self.drop_history(id);
        }
        let recovery = self.recover(id);
        if !same_epoch {
            if let Some(position) = position {
                recovery.retire(position.epoch);
            }
            recovery.retired.retain(|&epoch| epoch != snapshot.epoch);
            recovery.refuted.retain(|&(epoch, _)| epoch != snapshot.epoch);
            if let Some(at) = recovery.suspects.iter().position(|suspect| suspect.epoch == snapshot.epoch) {
                recovery.held = recovery.suspects.remove(at).held;
            }
            recovery.head = None;
        }
        recovery.question = Question::None;
        recovery.wants_snapshot = false;
        recovery.no_after = false;
        recovery.floor = None;
        recovery.lag = 0;
        recovery.flapping = None;
        recovery.errors = 0;
        if recovery.fault_at <= snapshot.seq {
            recovery.faults = 0;
        }
        if recovery.gap.is_some_and(|to| to <= snapshot.seq) {
            recovery.gap = None;
        }
        if recovery.faults < AGREEING_ANSWERS {
            recovery.failed = false;
        }
        let skipped = position
            .filter(|position| same_epoch && !reset && snapshot.seq > position.seq && !zoo::has(Bug::HideSkipped))
            .map(|position| (position.seq + 1, snapshot.seq));
        for member in self.topics.members(id).to_vec() {
            // Its answer to a resume is owed to each member too; a cursor alone does not show that it came.
            self.entities[member].flags.set(Flags::BEHIND, true);
        }
        let entity = &mut self.entities[id];
        entity.move_to(snapshot.epoch, snapshot.seq);
        entity.status = snapshot.status;
        if entity.has(Flags::FINAL) {
            // Reopened: its next end is another.
            entity.flags.set(Flags::FINAL, false);
            entity.flags.set(Flags::ENDED, false);
        }
        entity.flags.set(Flags::CLEAR, false);
        self.stats.adopted += 1;
        self.stats.resets += u64::from(reset);
        self.note_bytes(id);
        self.emit(Output::Change(Change {
            entity: id,
            kind: ChangeKind::Snapshot,
            epoch: snapshot.epoch,
            prev: snapshot.seq,
            seq: snapshot.seq,
            status: snapshot.status,
            id: EventId::NONE,
            reset: reset && !zoo::has(Bug::HideReset),
            skipped,
            locks: false,
            bytes: 0,
            payload: Some(payload),
        }));
        self.touch(id);
    }

    /// Held events, ids and requests belong to a history that is void.
    #[inline(never)]
    pub(super) fn drop_history(&mut self, id: EntityId) {
        self.free_ids_of(id);
        let Some(recovery) = self.recovery_mut(id) else {
            return;
        };
        let held = core::mem::take(&mut recovery.held);
        let whole = core::mem::take(&mut recovery.whole);
        recovery.ask = None;
        recovery.done = false;
        recovery.head = None;
        recovery.gap = None;
        recovery.faults = 0;
        if matches!(recovery.stage, Stage::Grace(_) | Stage::Replay(_) | Stage::Resume(_)) {
            self.set_stage(id, Stage::Rest);
        }
        self.discard_all(held);
        self.discard_all(whole);
        self.note_bytes(id);
    }

    pub(super) fn snapshot_after_final(&mut self, id: EntityId, snapshot: Snapshot, payload: P) {
        let reopens = self.model(id).reopen == Reopen::Epoch;
        let asked = snapshot.request.is_some();
        let same_epoch = snapshot.epoch == self.entities[id].epoch;
        if !same_epoch && reopens {
            if self.is_retired(id, snapshot.epoch) && !(asked && self.recover(id).flaps(snapshot.epoch)) {
                self.stats.retired += 1;
                self.discard(Some(payload));
                if asked {
                    self.answered(id);
                    self.touch(id);
                }
                return;
            }
            return self.adopt(id, snapshot, payload, true);
        }
        self.discard(Some(payload));
        if same_epoch {
            self.refute_suspects(id);
            if snapshot.seq <= self.entities[id].last {
                self.stats.stale += u64::from(snapshot.seq < self.entities[id].last);
            } else {
                self.after_final(id, snapshot.epoch, snapshot.seq);
            }
        } else {
            self.after_final(id, snapshot.epoch, snapshot.seq);
        }
        self.answered(id);
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.wants_snapshot = false;
        }
        self.touch(id);
    }

    /// R31: a final entity was released and joined again; its number is the floor, its status the lock.
    pub(super) fn snapshot_on_floor(&mut self, id: EntityId, floor: Floor, snapshot: Snapshot, payload: P) {
        let same_epoch = floor.epoch == snapshot.epoch;
        if !same_epoch && self.model(id).reopen == Reopen::Epoch {
            return self.adopt(id, snapshot, payload, true);
        }
        if same_epoch && snapshot.seq < floor.seq && snapshot.status != floor.status {
            let recovery = self.recover(id);
            recovery.lag = recovery.lag.saturating_add(1);
            let persistent = recovery.lag >= AGREEING_ANSWERS;
            self.stats.stale += 1;
            self.discard(Some(payload));
            return if persistent { self.lock_on_floor(id, floor) } else { self.try_failed(id, snapshot.request) };
        }
        if same_epoch && snapshot.status == floor.status {
            let seq = snapshot.seq.max(floor.seq);
            return self.adopt(id, Snapshot { seq, ..snapshot }, payload, false);
        }
        self.discard(Some(payload));
        self.stats.after_final += 1;
        self.fault(Some(id), Fault::AfterFinal);
        self.lock_on_floor(id, floor);
    }

    /// The remembered end stands, whatever the answer says. Nothing of the answer is shown.
    pub(super) fn lock_on_floor(&mut self, id: EntityId, floor: Floor) {
        self.answered(id);
        self.recover(id).floor = None;
        let entity = &mut self.entities[id];
        entity.move_to(floor.epoch, floor.seq);
        entity.status = floor.status;
        self.lock(self.now, id);
    }
}
