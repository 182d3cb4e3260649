//! Epochs and snapshots (R7, R14–R18, R31).

use super::*;

impl<P> Client<P> {
    /// A frame of an epoch that no snapshot has named: hold it, and ask.
    pub(super) fn suspect(&mut self, id: EntityId, event: Held<P>) {
        if self.is_retired(id, event.epoch) {
            self.stats.retired += 1;
            return self.spend(event);
        }
        self.stats.held += 1;
        if !self.entities[id].recover().suspect(event.epoch) {
            self.stats.overflowed += 1;
            return self.spend(event);
        }
        if self.model(id).reset_seq == Some(event.seq) && event.payload.is_some() {
            // It voids what came before it.
            self.drop_held(id, Which::Of(event.epoch));
        }
        self.hold(id, event);
        self.bound(id);
        self.hurry_member(id);
        self.entities[id].clear(Flags::CLEAR);
        self.touch(id);
    }

    /// A member's snapshot comes before its events, unless it was lost or overtaken: then it is asked for after the grace.
    fn hurry_member(&mut self, id: EntityId) {
        let until = self.now + self.config.gap.grace;
        let entity = &self.entities[id];
        if let Some(&wave) = self.waves.get(entity.wave)
            && wave.kind == WaveKind::Member
            && wave.deadline > until
            && !entity.has(Flags::PLACED)
        {
            self.join_wave(id, Wave { deadline: until, tries: 1, ..wave });
        }
    }

    /// An epoch was named without a frame that could be held.
    #[inline(never)]
    pub(super) fn suspect_epoch(&mut self, id: EntityId, epoch: Epoch) {
        if !self.is_retired(id, epoch) {
            self.entities[id].recover().suspect(epoch);
        }
        self.want_snapshot(id);
    }

    #[inline(never)]
    pub(super) fn is_retired(&self, id: EntityId, epoch: Epoch) -> bool {
        let recovery = &self.entities[id].recovery;
        !zoo::has(Bug::RetireNothing) && recovery.as_ref().is_some_and(|recovery| recovery.is_retired(epoch))
    }

    /// Whether the entity waits for a snapshot under this request (R18).
    #[inline(never)]
    pub(super) fn awaits_snapshot(&self, id: EntityId, request: Request) -> bool {
        let asked = self.entities[id].recovery.as_ref().is_some_and(|recovery| {
            recovery.asked.snapshot == request || recovery.stage == Stage::Resume && recovery.asked.replay == request
        });
        zoo::has(Bug::TakeEveryAnswer) || asked && request != 0 || self.wave_is(id, request)
    }

    /// Whether a snapshot is adopted, dropped, or a reason to ask again.
    pub(super) fn judge_snapshot(&mut self, id: EntityId, snapshot: Snapshot, payload: P) {
        let Snapshot { request, epoch, seq, status } = snapshot;
        let asked = request.is_some();
        let reopens = self.reopens(id);
        let model = self.model(id);
        let unnumbered = model.continuity == Continuity::None;
        let resets = model.reset_seq == Some(seq) && !asked;
        let entity = &mut self.entities[id];
        entity.set(Flags::HEARD);
        let (last, own) = (entity.last, epoch == entity.epoch);
        let is_final = entity.has(Flags::FINAL);
        let floored = entity.has(Flags::FLOORED);
        if floored && (own || !reopens) {
            return self.judge_on_floor(id, snapshot, payload);
        }
        if !is_final && (!entity.has(Flags::PLACED) || unnumbered) {
            return self.adopt(id, snapshot, payload, floored);
        }
        let question = entity.recovery.as_ref().map_or(Question::None, |recovery| recovery.question);
        if !own && (!is_final || reopens) {
            if self.is_retired(id, epoch) && question != Question::Anew {
                if !asked || !self.entities[id].recover().flaps(epoch) {
                    self.stats.retired += 1;
                    self.discard(payload);
                    if asked {
                        self.try_failed(id, request);
                    }
                    return;
                }
                self.fault(id, Fault::EpochFlapping);
            }
            return self.adopt(id, snapshot, payload, true);
        }
        let known = entity.status;
        if is_final {
            // Whatever it says, it raises the position at most (R8).
            self.discard(payload);
            if own {
                self.refute_suspects(id);
            }
            if !own || seq > last {
                self.after_final(id, epoch, seq);
            } else {
                self.stats.stale += u64::from(seq < last);
            }
            self.answered(id);
            return self.end_question(id, request);
        }
        if seq > last
            || resets
            || match question {
                Question::None => zoo::has(Bug::AcceptOlderSnapshot),
                Question::Fault => seq == last,
                Question::Lag | Question::Fork => asked,
                Question::Anew => true,
            }
        {
            return self.adopt(id, snapshot, payload, resets || seq < last && question != Question::None);
        }
        self.discard(payload);
        if seq < last {
            self.stats.stale += 1;
            if asked {
                let recovery = self.entities[id].recover();
                recovery.lag = recovery.lag.saturating_add(1);
                if recovery.lag >= AGREEING_ANSWERS {
                    recovery.question = match recovery.question {
                        Question::None => Question::Lag,
                        // It blocks, and takes what there is.
                        Question::Fault => Question::Fork,
                        other => other,
                    };
                }
                self.refute_suspects(id);
                self.try_failed(id, request);
            }
        } else if known.is_some() && status.is_some() && known != status {
            if asked {
                self.answered(id);
            }
            self.diverged(id);
        } else {
            self.refute_suspects(id);
            self.answered_by(id, request);
            self.end_question(id, request);
        }
    }

    /// What was asked of a snapshot is settled.
    fn end_question(&mut self, id: EntityId, request: Option<Request>) {
        self.disbelieve(id, request);
        if let Some(recovery) = &mut self.entities[id].recovery {
            recovery.wants_snapshot &= recovery.stage.is_unanswered();
            recovery.no_after = false;
            recovery.lag = 0;
        }
        self.touch(id);
    }

    /// A snapshot answered for an entity that was given up: numbers that so many did not reach are forgotten, for
    /// whoever named them may have lied. One that is pushed may only be old.
    fn disbelieve(&mut self, id: EntityId, request: Option<Request>) {
        let entity = &mut self.entities[id];
        let own = entity.own();
        if let Some(recovery) = &mut entity.recovery
            && recovery.failed
            && recovery.faults < AGREEING_ANSWERS
            && request.is_some()
        {
            recovery.asked.head = 0;
            self.drop_held(id, Which::Of(own));
        }
    }

    /// A snapshot came: what was asked is over, except a subscription that it does not answer, for what that
    /// brings may be newer.
    fn answered_by(&mut self, id: EntityId, request: Option<Request>) {
        let entity = &self.entities[id];
        let wave = entity.wave;
        // What is pushed answers nothing: the server answers all the same, and perhaps with more.
        let other = request.is_none_or(|request| !self.wave_is(id, request));
        let kept = other && self.waits_for(id, WaveKind::Subscribe);
        let asks = entity.recovery.as_ref().is_some_and(|recovery| {
            recovery.asked.resubscribe || recovery.asked.confirms || recovery.stage.is_unanswered()
        });
        if request.is_none() && asks {
            return;
        }
        if kept {
            self.entities[id].wave = 0;
        }
        self.answered(id);
        if kept {
            self.entities[id].wave = wave;
        }
    }

    /// The snapshot that was asked came: its request and deadline are over.
    #[inline(never)]
    pub(super) fn answered(&mut self, id: EntityId) {
        // A large topic takes its time.
        self.waves.extend(self.entities[id].wave, self.now + self.config.timeout.subscribe);
        self.set_wave(id, 0);
        if let Some(recovery) = &mut self.entities[id].recovery {
            recovery.asked.snapshot = 0;
            recovery.asked.resubscribe = false;
            recovery.asked.confirms = false;
            let stage = recovery.stage;
            if stage.is_snapshot() || matches!(stage, Stage::Resume | Stage::Error | Stage::Failed) {
                self.set_stage(id, Stage::Rest, Instant::NEVER);
            }
        }
    }

    /// An answer that did not help: the next one is paced (ladder, rung 4).
    pub(super) fn try_failed(&mut self, id: EntityId, request: Option<Request>) {
        let awaited = self.entities[id].recover().asked.snapshot;
        if awaited != 0 && Some(awaited) != request {
            // It answered a resume; the snapshot that was asked since is still to come.
            self.set_wave(id, 0);
            return self.touch(id);
        }
        self.answered(id);
        self.want_snapshot(id);
    }

    /// A snapshot of the entity's epoch speaks against all others.
    #[inline(never)]
    pub(super) fn refute_suspects(&mut self, id: EntityId) {
        let own = self.entities[id].own();
        if let Some(recovery) = &mut self.entities[id].recovery {
            recovery.refute();
        }
        self.drop_held(id, Which::NotOf(own));
    }

    /// Suspicions are void, whatever they were.
    #[inline(never)]
    pub(super) fn drop_suspicions(&mut self, id: EntityId) {
        let own = self.entities[id].own();
        if let Some(recovery) = &mut self.entities[id].recovery {
            recovery.acquit();
        }
        self.drop_held(id, Which::NotOf(own));
    }

    /// Takes a snapshot as the truth.
    pub(super) fn adopt(&mut self, id: EntityId, snapshot: Snapshot, payload: P, reset: bool) {
        let Snapshot { request, epoch, seq, status } = snapshot;
        self.note_undo(id, seq);
        let (before, last) = (self.entities[id].own(), self.entities[id].last);
        let same = before == epoch;
        self.answered_by(id, request);
        if same {
            self.refute_suspects(id);
            self.disbelieve(id, request);
        }
        if (reset || before != Epoch::NONE && !same) && !zoo::has(Bug::KeepHeldAcrossEpochs) {
            self.void_history(id);
        }
        let entity = &mut self.entities[id];
        let recovery = entity.recover();
        if zoo::has(Bug::KeepHeldAcrossEpochs) {
            recovery.held.rename(before, epoch);
        }
        if !same {
            if before != Epoch::NONE {
                recovery.retire(before);
            }
            recovery.forget(epoch);
            recovery.asked.head = 0;
            if recovery.fault.epoch != epoch {
                recovery.faults = 0;
            }
        }
        recovery.question = Question::None;
        recovery.wants_snapshot &= recovery.stage.is_unanswered();
        recovery.no_after = false;
        recovery.lag = 0;
        recovery.flaps = 0;
        recovery.errors = 0;
        if recovery.asked.gap <= seq {
            recovery.asked.gap = 0;
        }
        if recovery.stage != Stage::Failed && (recovery.faults < AGREEING_ANSWERS || recovery.fault.seq <= seq) {
            recovery.failed = false;
        }
        entity.move_to(epoch, seq);
        entity.status = status;
        // Reopened: its next end is another.
        if entity.has(Flags::FINAL) {
            entity.clear(Flags::FINAL.and(Flags::ENDED));
        }
        entity.clear(Flags::CLEAR.and(Flags::FLOORED));
        members!(self, id, member, {
            // Its answer to a resume is owed to each member too; a cursor alone does not show that it came.
            self.entities[member].set(Flags::BEHIND);
        });
        if self.model(id).measures() {
            // What was held without a position may lie absurdly far ahead of it (R12).
            while let Some(far) = self.unhold(id, Which::Beyond(epoch, seq + self.config.max_ahead)) {
                self.spend(far);
                self.stats.bad_frames += 1;
                self.fault(id, Fault::FarAhead);
            }
        }
        self.stats.adopted += 1;
        self.stats.resets += u64::from(reset);
        let skips = same && !reset && seq > last && !zoo::has(Bug::HideSkipped);
        let change = self.show(id, ChangeKind::Snapshot, epoch, seq, status, Some(payload));
        change.reset = reset && !zoo::has(Bug::HideReset);
        if skips {
            change.from = last + 1;
            change.to = seq;
        }
        self.touch(id);
    }

    /// The change that is being committed declares what was before it void. Its ids are kept aside for a rollback.
    #[inline(never)]
    pub(super) fn void_history(&mut self, id: EntityId) {
        self.void_ids = self.entities[id].ids.take();
        self.undo.voids = true;
        self.drop_history(id);
    }

    /// Held events, ids and requests belong to a history that is void.
    #[inline(never)]
    pub(super) fn drop_history(&mut self, id: EntityId) {
        let entity = &mut self.entities[id];
        let own = entity.own();
        entity.ids = None;
        let Some(recovery) = &mut entity.recovery else { return };
        recovery.asked.gap = 0;
        recovery.faults = 0;
        // The rest of a page that is being read, and the pages behind it, are of what begins here.
        if self.page != id {
            recovery.asked.end_replay();
            recovery.asked.done = false;
            recovery.asked.head = 0;
            let stage = recovery.stage;
            // A subscription that nobody answered is asked for again in its time.
            let given_up = stage == Stage::Failed && !recovery.asked.resubscribe;
            if stage.is_replay() || given_up || matches!(stage, Stage::Grace | Stage::Resume) {
                self.set_stage(id, Stage::Rest, Instant::NEVER);
            }
        }
        self.drop_held(id, Which::Of(own));
    }

    /// R31: a final entity was released and joined again; its number is the floor, its status the lock.
    fn judge_on_floor(&mut self, id: EntityId, snapshot: Snapshot, payload: P) {
        let entity = &mut self.entities[id];
        let own = entity.epoch == snapshot.epoch;
        if own && entity.status == snapshot.status {
            let seq = snapshot.seq.max(entity.last);
            return self.adopt(id, Snapshot { seq, ..snapshot }, payload, false);
        }
        self.discard(payload);
        let entity = &mut self.entities[id];
        if own && snapshot.seq < entity.last {
            self.stats.stale += 1;
            let recovery = entity.recover();
            recovery.lag = recovery.lag.saturating_add(1);
            if recovery.lag < AGREEING_ANSWERS {
                return self.try_failed(id, snapshot.request);
            }
        } else {
            self.refuse(id);
        }
        self.lock_on_floor(id);
    }

    /// The remembered end stands, whatever the answer says. Nothing of the answer is shown.
    pub(super) fn lock_on_floor(&mut self, id: EntityId) {
        self.answered(id);
        let entity = &mut self.entities[id];
        entity.clear(Flags::FLOORED);
        entity.move_to(entity.epoch, entity.last);
        self.lock(self.now, id);
    }
}
