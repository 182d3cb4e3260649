//! Events: duplicates, order, forks, faults of user code (R1–R13, R36).

use super::*;

impl<P> Client<P> {
    /// An event that covers (prev, seq].
    pub(super) fn judge(&mut self, id: EntityId, mut event: Held<P>) {
        let model = model_in(&self.models, self.entities[id].model);
        let entity = &mut self.entities[id];
        entity.set(Flags::HEARD);
        let own = event.epoch == entity.own() || zoo::has(Bug::ForgetEpochCheck) && entity.has(Flags::PLACED);
        if entity.has(Flags::FINAL) && (own || model.reopen == Reopen::Never) {
            self.after_final(id, event.epoch, event.seq);
            return self.spend(event);
        }
        if !own {
            return self.suspect(id, event);
        }
        event.epoch = entity.epoch;
        if model.reset_seq == Some(event.seq) && event.payload.is_some() && !entity.repeats(event.id) {
            return self.restart(id, event);
        }
        let reach = reach(entity.last, model, event.prev, event.seq, event.visible);
        let (blocks, withholds) = entity
            .recovery
            .as_ref()
            .map_or((false, false), |recovery| (recovery.question.blocks(), recovery.withholds()));
        if reach == Reach::Covered {
            let forked = event.id.is_some() && entity.contradicts(event.seq, event.id);
            if forked && !blocks && !zoo::has(Bug::OverlookForks) {
                self.spend(event);
                return self.diverged(id);
            }
            return self.repeated(event);
        }
        // A replay that is taken as a whole moves no position while its pages come.
        event.whole = self.page == id && model.replay_whole;
        if model.measures() && !event.whole && event.prev.saturating_sub(entity.last) > self.config.max_ahead {
            self.spend(event);
            return self.far_ahead(id);
        }
        if reach != Reach::Next {
            self.stats.held += 1;
            if zoo::has(Bug::CountHeldIds) {
                entity.note_id(model.ids, event.seq, event.id);
            }
        }
        // What fits leaves the buffer at once, unless something keeps it from being applied.
        let stays = reach != Reach::Next || event.whole || withholds;
        self.hold(id, event);
        if stays {
            self.bound(id);
        }
        self.entities[id].clear(Flags::CLEAR);
        self.touch(id);
    }

    /// An event of `continuity: 'none'`: in order of arrival; only the lock guards.
    pub(super) fn arrive(&mut self, id: EntityId, seq: Option<Seq>, mut event: Held<P>) {
        let entity = &mut self.entities[id];
        entity.set(Flags::HEARD);
        if entity.has(Flags::FINAL) || entity.has(Flags::FLOORED) {
            self.spend(event);
            return self.refuse(id);
        }
        event.seq = seq.unwrap_or(event.prev);
        self.note_undo(id, event.seq);
        if seq.is_some() {
            self.entities[id].move_to(event.epoch, event.seq);
        }
        self.commit(id, event, false, false);
        self.touch(id);
    }

    /// A keep-alive of a chain says where the owner stands.
    pub(super) fn stands_at(&mut self, id: EntityId, epoch: Epoch, seq: Seq) {
        let entity = &mut self.entities[id];
        entity.set(Flags::HEARD);
        if !entity.has(Flags::PLACED) || entity.has(Flags::FINAL) {
            return;
        }
        if epoch != entity.epoch {
            self.suspect_epoch(id, epoch);
        } else if seq > entity.last {
            self.note_head(id, seq);
        }
    }

    /// An event that declares everything before it void: a chain's restart, or the model's `resetSeq`.
    pub(super) fn restart(&mut self, id: EntityId, event: Held<P>) {
        let entity = &self.entities[id];
        if entity.has(Flags::FINAL) {
            self.after_final(id, event.epoch, event.seq);
            return self.spend(event);
        }
        if entity.own() != event.epoch {
            return self.suspect(id, event);
        }
        self.note_undo(id, event.seq);
        self.void_history(id);
        let entity = &mut self.entities[id];
        entity.move_to(event.epoch, event.seq);
        entity.status = Status::NONE;
        self.stats.resets += 1;
        self.commit(id, event, true, true);
        self.touch(id);
    }

    /// Takes the next held change, if it fits (R2, R4). One at a time: the driver may lock or roll back in between.
    pub(super) fn pull(&mut self, id: EntityId) {
        while self.outputs.is_empty() {
            let entity = &mut self.entities[id];
            let (own, last) = (entity.own(), entity.last);
            if own == Epoch::NONE || entity.has(Flags::FINAL) {
                return;
            }
            let Some(recovery) = &mut entity.recovery else { return };
            if recovery.withholds() || recovery.stage == Stage::Denied {
                return;
            }
            let model = model_in(&self.models, entity.model);
            let until = if model.on_gap == Some(OnGap::Skip) {
                Seq::MAX
            } else {
                last + u64::from(zoo::has(Bug::OffByOneAtPrev))
            };
            let usable = |held: &Held<P>| reach(last, model, held.prev, held.seq, held.visible) < Reach::Straddles;
            let Some(mut at) = recovery.held.first(own, until, usable) else { return };
            if zoo::has(Bug::DrainFromBehind) {
                at = recovery.held.len() - 1;
            }
            let event = recovery.held.remove(at);
            self.held_bytes -= u64::from(event.bytes);
            if reach(last, model, event.prev, event.seq, event.visible) == Reach::Covered {
                self.repeated(event);
                continue;
            }
            self.note_undo(id, event.seq);
            self.entities[id].move_to(own, event.seq);
            self.commit(id, event, true, false);
        }
    }

    /// The position has moved to an event: what it says counts, unless its id, where `ids` count, was applied before
    /// (R6).
    fn commit(&mut self, id: EntityId, event: Held<P>, ids: bool, reset: bool) {
        let entity = &mut self.entities[id];
        let repeated = ids && entity.repeats(event.id);
        if let Some(recovery) = &mut entity.recovery {
            recovery.lag = 0;
        }
        if event.status.is_some() && !repeated {
            entity.status = event.status;
        }
        self.stats.applied += 1;
        if ids && !zoo::has(Bug::ForgetIds) {
            self.note_id(id, event.seq, event.id);
        }
        if repeated || !event.visible && !reset {
            self.stats.silent += 1;
            self.spend(event);
        } else {
            let Held { prev, seq, id: event_id, epoch, status, bytes, payload, .. } = event;
            let change = self.show(id, ChangeKind::Event, epoch, seq, status, payload);
            change.prev = prev;
            change.id = event_id;
            change.bytes = bytes;
            change.reset = reset;
        }
    }

    #[inline(never)]
    pub(super) fn note_id(&mut self, id: EntityId, seq: Seq, event: EventId) {
        let capacity = self.model(id).ids;
        self.entities[id].note_id(capacity, seq, event);
    }

    /// Hands a change over.
    #[inline(never)]
    pub(super) fn show(
        &mut self,
        id: EntityId,
        kind: ChangeKind,
        epoch: Epoch,
        seq: Seq,
        status: Status,
        payload: Option<P>,
    ) -> &mut Out<P> {
        let change = self.emit(Kind::Change, id.0, kind as u32);
        change.epoch = epoch;
        change.prev = seq;
        change.seq = seq;
        change.status = status;
        change.payload = payload;
        change
    }

    #[inline(never)]
    pub(super) fn note_undo(&mut self, id: EntityId, seq: Seq) {
        let entity = &self.entities[id];
        let (epoch, last, status, flags) = (entity.epoch, entity.last, entity.status, entity.flags);
        self.undo = Undo { entity: id, epoch, last, status, flags, seq, voids: false };
    }

    /// R8: what comes for a final entity raises the position at most.
    #[inline(never)]
    pub(super) fn after_final(&mut self, id: EntityId, epoch: Epoch, seq: Seq) {
        let entity = &mut self.entities[id];
        if entity.epoch == epoch {
            if seq <= entity.last {
                self.stats.duplicates += 1;
                return;
            }
            if seq - entity.last <= self.config.max_ahead {
                entity.last = seq;
            }
        }
        self.refuse(id);
    }

    #[inline(never)]
    pub(super) fn refuse(&mut self, id: EntityId) {
        self.stats.after_final += 1;
        self.fault(id, Fault::AfterFinal);
    }

    /// R5: the history forked.
    #[inline(never)]
    pub(super) fn diverged(&mut self, id: EntityId) {
        self.stats.diverged += 1;
        self.fault(id, Fault::Diverged);
        let now = self.now;
        let entity = &mut self.entities[id];
        entity.ids = None;
        let own = entity.own();
        let recovery = entity.recover();
        if recovery.fork_pause <= now {
            recovery.fork_pause = now + DIVERGED_PACE;
            recovery.question = Question::Fork;
            recovery.wants_snapshot = true;
            recovery.asked.end_replay();
        }
        self.drop_held(id, Which::Of(own));
        self.touch(id);
    }

    /// R12: a number that nobody can believe asks for one snapshot in a while.
    #[inline(never)]
    pub(super) fn far_ahead(&mut self, id: EntityId) {
        self.stats.bad_frames += 1;
        self.fault(id, Fault::FarAhead);
        let now = self.now;
        let recovery = self.entities[id].recover();
        if recovery.far_pause <= now {
            recovery.far_pause = now + FAR_AHEAD_PACE;
            self.want_snapshot(id);
        }
    }

    /// The server has at least this number (R21).
    #[inline(never)]
    pub(super) fn note_head(&mut self, id: EntityId, head: Seq) {
        if zoo::has(Bug::IgnoreHeads) {
            return;
        }
        let entity = &self.entities[id];
        if head.saturating_sub(entity.last) > self.config.max_ahead && self.model(id).continuity != Continuity::Prev {
            return self.far_ahead(id);
        }
        let recovery = self.entities[id].recover();
        recovery.asked.head = recovery.asked.head.max(head);
        self.confirm(id);
    }

    /// Whether the server's head is below the position that we had when asking (R22).
    pub(super) fn is_lagging(&self, id: EntityId, head: Seq) -> bool {
        let entity = &self.entities[id];
        entity.has(Flags::PLACED) && head < entity.last && !entity.has(Flags::MOVED)
    }

    /// An answer says where the server stands, not above the position.
    #[inline(never)]
    pub(super) fn stands(&mut self, id: EntityId, head: Seq) {
        if self.is_lagging(id, head) {
            self.lags(id);
        } else {
            self.confirm(id);
        }
    }

    /// R22: an answer says that the server's head is below the position it was asked about.
    #[inline(never)]
    pub(super) fn lags(&mut self, id: EntityId) {
        let recovery = self.entities[id].recover();
        recovery.lag = recovery.lag.saturating_add(1);
        if (recovery.lag >= AGREEING_ANSWERS || zoo::has(Bug::BelieveLag)) && !recovery.question.blocks() {
            recovery.question = Question::Lag;
        }
        self.want_snapshot(id);
    }

    /// An answer does not contradict the position.
    #[inline(never)]
    pub(super) fn confirm(&mut self, id: EntityId) {
        if let Some(recovery) = &mut self.entities[id].recovery {
            recovery.lag = 0;
        }
        self.touch(id);
    }

    #[inline(never)]
    pub(super) fn want_snapshot(&mut self, id: EntityId) {
        let entity = &mut self.entities[id];
        entity.recover().wants_snapshot = true;
        entity.clear(Flags::CLEAR);
        self.touch(id);
    }
}
