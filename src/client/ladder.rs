//! The ladder: what is asked of the server for a troubled entity, when, and how often (R19–R23).

use super::*;
use crate::zoo::{self, Bug};

impl<P> Client<P> {
    /// Looks at an entity whose held events don't fit: is something missing, and what happens next?
    pub(super) fn settle(&mut self, id: EntityId) {
        if !self.entities.contains(id) {
            return;
        }
        let model = self.model(id);
        if self.entities[id].recovery == 0 {
            let clear = self.is_clear(id, &model);
            self.entities[id].flags.set(Flags::CLEAR, clear);
            return self.refresh(id);
        }
        let is_final = self.entities[id].has(Flags::FINAL);
        let reopening = is_final
            && self.recovery(id).is_some_and(|recovery| !recovery.suspects.is_empty() || recovery.wants_snapshot);
        if is_final && !reopening
            || !self.is_followed(id) && self.recovery(id).is_none_or(|recovery| recovery.stage != Stage::Denied)
        {
            self.trim(id);
            return self.refresh(id);
        }
        let entity = &self.entities[id];
        if !entity.is_wanted() && !entity.has(Flags::SENT) {
            // It lingers, and nothing of it comes on this socket: nobody misses anything.
            return self.refresh(id);
        }
        let position = self.entities[id].position();
        let last = position.map_or(0, |position| position.seq);
        let live = self.connection.is_live();
        let unconfirmed =
            self.entities[id].wave != 0 || self.entities[id].has(Flags::QUEUED) || !self.connection.is_open();
        let hole = self.hole(id);
        let straddles = self.straddles(id, &model);
        let Some(recovery) = self.recovery_mut(id) else {
            return;
        };

        if recovery.faults > 0 && recovery.question == Question::None && position.is_some() && last >= recovery.fault_at
        {
            recovery.faults = 0;
        }
        if recovery.head.is_some_and(|head| head <= last) {
            recovery.head = None;
        }
        let judged = recovery.done;
        if judged {
            recovery.done = false;
            let ask = recovery.ask.take();
            if zoo::has(Bug::TrustDone) {
                recovery.held = Gap::default();
                recovery.head = None;
            } else if hole.is_some() && ask.is_some_and(|ask| ask.to.is_none_or(|to| last < to)) || position.is_none() {
                recovery.wants_snapshot = true;
            }
        } else if recovery.ask.is_some_and(|ask| ask.to.is_some_and(|to| last >= to)) {
            recovery.ask = None;
        }
        if recovery.ask.is_none()
            && matches!(recovery.stage, Stage::Replay(_) | Stage::Resume(_))
            && (judged || !matches!(recovery.stage, Stage::Replay(Step::Ready)))
        {
            self.set_stage(id, Stage::Rest);
        }
        if straddles {
            self.recover(id).wants_snapshot = true;
        }
        let is_held = self.recovery(id).is_some_and(|recovery| !recovery.held.is_empty());
        if !unconfirmed && is_held {
            self.report_gap(id, hole);
        }
        if unconfirmed || !live || self.recover(id).resubscribe {
            return self.refresh(id);
        }

        let recovery = self.recover(id);
        let asks_snapshot = recovery.wants_snapshot
            || recovery.question != Question::None
            || !recovery.suspects.is_empty()
            || position.is_none() && model.continuity != Continuity::None;
        let confirms = recovery.ask.is_some_and(|ask| ask.confirms);
        let stage = recovery.stage;
        if asks_snapshot {
            if matches!(stage, Stage::Rest | Stage::Grace(_) | Stage::Replay(_) | Stage::Resume(_)) {
                self.start_snapshot(id);
            }
        } else if hole.is_some() {
            if stage == Stage::Rest {
                let until = self.now + self.config.gap.grace;
                if self.config.gap.grace == 0 { self.next_rung(id) } else { self.set_stage(id, Stage::Grace(until)) }
            }
        } else if !confirms || stage == Stage::Rest {
            // R30: `confirms` without a stage can't be; a replay that still confirms keeps its deadline.
            self.set_stage(id, Stage::Rest);
            self.recover(id).rest();
            self.trim(id);
            let clear = self.is_clear(id, &model);
            self.entities[id].flags.set(Flags::CLEAR, clear);
        }
        self.refresh(id);
    }

    /// The missing numbers, first and last.
    #[inline(never)]
    pub(super) fn hole(&self, id: EntityId) -> Option<(Seq, Seq)> {
        let last = self.entities[id].position()?.seq;
        let recovery = self.recovery(id)?;
        match recovery.held.front() {
            Some(front) if front.prev > last => Some((last + 1, front.prev)),
            Some(_) => None,
            None => recovery.head.filter(|&head| head > last).map(|head| (last + 1, head)),
        }
    }

    pub(super) fn straddles(&self, id: EntityId, model: &Model) -> bool {
        let entity = &self.entities[id];
        entity.position().is_some()
            && self
                .recovery(id)
                .and_then(|recovery| recovery.held.front())
                .is_some_and(|front| entity.reach(model, front.prev, front.seq, front.visible) == Reach::Straddles)
    }

    /// Reports a gap once; a later one that starts behind it is another.
    pub(super) fn report_gap(&mut self, id: EntityId, hole: Option<(Seq, Seq)>) {
        let Some((from, to)) = hole else { return };
        let recovery = self.recover(id);
        if recovery.gap.is_some_and(|reported| from <= reported) {
            return;
        }
        recovery.gap = Some(to);
        self.stats.gaps += 1;
        self.emit(Output::Gap { entity: id, from, to });
    }

    /// The grace is over, or a wait after an error: ask.
    pub(super) fn next_rung(&mut self, id: EntityId) {
        self.report_gap(id, self.hole(id));
        let replays = self.model(id).on_gap() == OnGap::Replay && self.connection.can.replay;
        if replays && !self.recover(id).wants_snapshot {
            self.set_stage(id, Stage::Replay(Step::Ready));
        } else {
            self.recover(id).wants_snapshot = true;
            self.start_snapshot(id);
        }
    }

    pub(super) fn start_snapshot(&mut self, id: EntityId) {
        let asked = self.recovery(id).map_or(0, |recovery| recovery.snapshots);
        if asked >= SNAPSHOT_TRIES {
            return self.give_up(id, self.now + SNAPSHOT_CAP);
        }
        let wait = if zoo::has(Bug::Unpaced) { 0 } else { snapshot_wait(asked, &mut self.jitter) };
        let step = if wait == 0 { Step::Ready } else { Step::Wait(self.now + wait) };
        self.set_stage(id, Stage::Snapshot(step));
    }

    #[inline(never)]
    pub(super) fn give_up(&mut self, id: EntityId, until: Instant) {
        let recovery = self.recover(id);
        let reported = core::mem::replace(&mut recovery.failed, true);
        recovery.ask = None;
        self.set_stage(id, Stage::Failed(until));
        if !reported {
            self.fault(Some(id), Fault::GaveUp);
        }
        self.refresh(id);
    }

    #[inline(never)]
    pub(super) fn set_stage(&mut self, id: EntityId, stage: Stage) {
        let before = match self.recovery(id) {
            Some(recovery) => recovery.stage,
            None if stage == Stage::Rest => return,
            None => Stage::Rest,
        };
        self.out += usize::from(stage.is_out());
        self.out -= usize::from(before.is_out() && !zoo::has(Bug::LeakSlots));
        self.recover(id).stage = stage;
        if let Some(at) = stage.timer() {
            self.arm(at);
        }
        if stage.is_ready() {
            self.ready.push(id);
        }
    }

    pub(super) fn arm(&mut self, at: Instant) {
        self.timer = earliest(self.timer, Some(at));
    }

    /// Looks at every entity whose timer is due, and finds the next one.
    pub(super) fn fire_all(&mut self) {
        self.timer = None;
        for at in 0..self.recoveries.len() {
            if let Some(recovery) = &self.recoveries[at]
                && recovery.timer().is_some_and(|due| due <= self.now)
            {
                self.fire(recovery.entity);
            }
            if let Some(recovery) = &self.recoveries[at] {
                self.timer = earliest(self.timer, recovery.timer());
            }
        }
    }

    /// An entity's timer: its linger, or its stage.
    pub(super) fn fire(&mut self, id: EntityId) {
        let now = self.now;
        let Some(recovery) = self.recovery(id) else {
            return;
        };
        if recovery.linger.is_some_and(|at| at <= now) {
            return self.let_go(id);
        }
        let stage = recovery.stage;
        if stage.timer().is_none_or(|at| at > now) {
            return;
        }
        match stage {
            Stage::Grace(_) => {
                self.set_stage(id, Stage::Rest);
                if self.hole(id).is_some() {
                    self.next_rung(id);
                } else {
                    self.touch(id);
                }
            }
            Stage::Resume(_) | Stage::Replay(Step::Out(_)) => self.replay_timed_out(id),
            Stage::Replay(Step::Wait(_)) => self.set_stage(id, Stage::Replay(Step::Ready)),
            Stage::Snapshot(Step::Wait(_)) => self.set_stage(id, Stage::Snapshot(Step::Ready)),
            Stage::Snapshot(Step::Out(_)) => {
                self.connection.probe(now);
                self.set_stage(id, Stage::Rest);
                self.start_snapshot(id);
            }
            Stage::Error(_) => {
                self.set_stage(id, Stage::Rest);
                if core::mem::take(&mut self.recover(id).resubscribe) {
                    self.queue_subscribe(id);
                } else if self.recover(id).ask.is_some() {
                    self.set_stage(id, Stage::Replay(Step::Ready));
                } else {
                    self.touch(id);
                }
            }
            Stage::Failed(_) => {
                if core::mem::take(&mut self.recover(id).resubscribe) {
                    self.set_stage(id, Stage::Rest);
                    self.queue_subscribe(id);
                } else {
                    self.recover(id).wants_snapshot = true;
                    self.set_stage(id, Stage::Snapshot(Step::Ready));
                }
            }
            Stage::Rest | Stage::Denied | Stage::Replay(Step::Ready) | Stage::Snapshot(Step::Ready) => {}
        }
        self.refresh(id);
    }

    pub(super) fn replay_timed_out(&mut self, id: EntityId) {
        self.connection.probe(self.now);
        let tries = self.config.replay_tries;
        let recovery = self.recover(id);
        // What an abandoned page brought was never seen; the next try starts anew.
        let whole = core::mem::take(&mut recovery.whole);
        let again = match &mut recovery.ask {
            Some(ask) => {
                ask.paged = false;
                ask.tries < tries
            }
            None => false,
        };
        self.discard_all(whole);
        self.note_bytes(id);
        if again && self.connection.can.replay {
            self.set_stage(id, Stage::Replay(Step::Ready));
        } else {
            self.set_stage(id, Stage::Rest);
            self.recover(id).wants_snapshot = true;
            self.start_snapshot(id);
        }
    }

    pub(super) fn wave_timed_out(&mut self, wave: WaveId) {
        let Some(timed_out) = self.waves.get(wave).cloned() else {
            return;
        };
        if timed_out.kind != WaveKind::Member {
            self.connection.probe(self.now);
        }
        let (mut at, mut again) = (0, Vec::new());
        while let Some(id) = self.entities.next(&mut at) {
            if self.entities[id].wave != wave {
                continue;
            }
            self.set_wave(id, 0);
            match timed_out.kind {
                WaveKind::Subscribe if timed_out.tries + 1 < SNAPSHOT_TRIES => {
                    self.entities[id].flags.set(Flags::QUEUED, true);
                    again.push(id);
                }
                WaveKind::Subscribe => {
                    self.recover(id).resubscribe = true;
                    self.give_up(id, self.now + SNAPSHOT_CAP);
                }
                WaveKind::Member if self.entities[id].position().is_some() => self.doubt(id),
                WaveKind::Member | WaveKind::Heads => self.want_snapshot(id),
            }
        }
        self.waves.end(wave);
        if !again.is_empty() {
            let (request, tries) = (timed_out.request, timed_out.tries + 1);
            self.to_subscribe.push(Asking { request, tries, entities: again });
        }
    }

    /// Something may have been missed: ask for the head, or a snapshot where the server can't tell heads.
    pub(super) fn doubt(&mut self, id: EntityId) {
        if !self.connection.is_live() || !self.is_followed(id) || self.entities[id].has(Flags::FINAL) {
            return;
        }
        let entity = &self.entities[id];
        if entity.wave != 0 || entity.has(Flags::QUEUED) {
            return; // its confirmation is awaited anyway
        }
        if self.connection.can.heads && entity.position().is_some() && self.model(id).continuity != Continuity::None {
            if self.recovery(id).is_none_or(|recovery| recovery.stage == Stage::Rest) {
                self.to_ask_heads.push(id);
            }
        } else {
            self.want_snapshot(id);
        }
    }

    pub(super) fn doubt_all(&mut self) {
        let mut at = 0;
        while let Some(id) = self.entities.next(&mut at) {
            self.doubt(id);
        }
    }

    /// R21: quiet, unfinished entities of a server that can't send heads.
    pub(super) fn reconcile(&mut self) {
        let mut at = 0;
        while let Some(id) = self.entities.next(&mut at) {
            if !self.is_followed(id) {
                continue;
            }
            let entity = &mut self.entities[id];
            let quiet = !entity.has(Flags::HEARD);
            entity.flags.set(Flags::HEARD, false);
            if quiet && !entity.has(Flags::FINAL) && entity.wave == 0 && self.sync(id) == Sync::Live {
                self.set_stage(id, Stage::Snapshot(Step::Ready));
                self.recover(id).wants_snapshot = true;
                self.entities[id].flags.set(Flags::CLEAR, false);
            }
        }
    }

    /// R19: a buffer that grew too large is cut.
    pub(super) fn bound(&mut self, id: EntityId) {
        if zoo::has(Bug::Unbounded) {
            return;
        }
        let limits = &self.config.gap;
        let (max_events, max_bytes) = (limits.max_events, limits.max_bytes);
        while self
            .recovery(id)
            .is_some_and(|recovery| recovery.held_events() > max_events || recovery.held_bytes() > max_bytes)
        {
            if !self.cut(id) {
                break;
            }
        }
        while self.held_bytes > HELD_BYTES {
            let mut largest: Option<&Recovery<P>> = None;
            for recovery in self.recoveries.iter().flatten() {
                if largest.is_none_or(|other| other.counted < recovery.counted) {
                    largest = Some(recovery);
                }
            }
            let owner = largest.map(|recovery| recovery.entity);
            if !owner.is_some_and(|id| self.cut(id)) {
                break;
            }
        }
    }

    /// Drops one held event: the farthest while a replay delivers what comes before it, else the lowest, which the snapshot will cover.
    pub(super) fn cut(&mut self, id: EntityId) -> bool {
        let unconfirmed =
            self.entities[id].wave != 0 || self.entities[id].has(Flags::QUEUED) || !self.connection.is_open();
        let placed = self.entities[id].position().is_some();
        let Some(recovery) = self.recovery_mut(id) else {
            return false;
        };
        let delivering = matches!(recovery.stage, Stage::Resume(_) | Stage::Replay(Step::Out(_)))
            && recovery.ask.is_some_and(|ask| ask.paged);
        let farthest = delivering || placed && unconfirmed;
        let mut suspected = false;
        let dropped = if let Some(suspect) = recovery
            .suspects
            .iter_mut()
            .max_by_key(|suspect| suspect.held.len())
            .filter(|suspect| !suspect.held.is_empty())
        {
            suspected = true;
            suspect.held.pop_front()
        } else if farthest {
            recovery.held.pop_back().or_else(|| recovery.whole.pop_back())
        } else {
            recovery.held.pop_front().or_else(|| recovery.whole.pop_front())
        };
        if placed && !farthest {
            recovery.wants_snapshot = true;
        }
        let Some(dropped) = dropped else { return false };
        if placed && farthest && !suspected && !zoo::has(Bug::ForgetDropped) {
            // That number exists in this epoch: what comes before it is not all.
            recovery.head = recovery.head.max(Some(dropped.seq));
        }
        self.stats.overflowed += 1;
        self.discard(dropped.payload);
        self.note_bytes(id);
        true
    }

    /// Whether the entity waits for an answer to this request.
    #[inline(never)]
    pub(super) fn asked_for(&self, id: EntityId, request: Request) -> bool {
        self.answers_replay(id, request) || self.is_followed(id) && self.awaits_snapshot(id, request)
    }

    /// An `error` concerns this entity.
    pub(super) fn refused(&mut self, id: EntityId, code: ErrorCode, retry_after: Option<Millis>) {
        match code {
            ErrorCode::Forbidden => self.deny(id, Fault::Forbidden),
            ErrorCode::NotFound => self.deny(id, Fault::NotFound),
            ErrorCode::TokenExpiring | ErrorCode::Other => self.postpone(id, retry_after),
        }
    }

    /// `error` with `forbidden` or `not_found`: failed for good.
    pub(super) fn deny(&mut self, id: EntityId, fault: Fault) {
        if self.entities[id].has(Flags::FINAL) {
            return;
        }
        self.set_wave(id, 0);
        self.entities[id].flags.set(Flags::QUEUED, false);
        self.drop_history(id);
        let recovery = self.recover(id);
        let suspects = core::mem::take(&mut recovery.suspects);
        recovery.rest();
        recovery.wants_snapshot = false;
        recovery.question = Question::None;
        suspects.into_iter().for_each(|suspect| self.discard_all(suspect.held));
        self.note_bytes(id);
        self.set_stage(id, Stage::Denied);
        self.entities[id].flags.set(Flags::CLEAR, false);
        self.fault(Some(id), fault);
        self.refresh(id);
    }

    /// Another `error`: asked again after a wait, on the same socket.
    pub(super) fn postpone(&mut self, id: EntityId, retry_after: Option<Millis>) {
        let joining = self.entities[id].wave != 0;
        self.set_wave(id, 0);
        self.fault(Some(id), Fault::Server);
        let now = self.now;
        let recovery = self.recover(id);
        recovery.errors = recovery.errors.saturating_add(1);
        recovery.resubscribe |= joining;
        recovery.snapshot = 0;
        let wait = recovery.error_wait().max(retry_after.unwrap_or(0).min(crate::config::RETRY_AFTER_CAP));
        self.set_stage(id, Stage::Error(now + wait));
        self.entities[id].flags.set(Flags::CLEAR, false);
        self.refresh(id);
    }

    /// Whether the entity waits for a replay, or a resume, under this request.
    #[inline(never)]
    pub(super) fn answers_replay(&self, id: EntityId, request: Request) -> bool {
        self.is_followed(id)
            && (self.entities[id].wave != 0 && self.wave_is(id, request)
                || self.recovery(id).is_some_and(|recovery| recovery.ask.is_some_and(|ask| ask.request == request)))
    }

    /// The replay or resume was answered otherwise.
    #[inline(never)]
    pub(super) fn end_ask(&mut self, id: EntityId) {
        self.set_wave(id, 0);
        let Some(recovery) = self.recovery_mut(id) else {
            return;
        };
        recovery.ask = None;
        let whole = core::mem::take(&mut recovery.whole);
        if matches!(recovery.stage, Stage::Replay(_) | Stage::Resume(_)) {
            self.set_stage(id, Stage::Rest);
        }
        self.discard_all(whole);
        self.note_bytes(id);
        self.touch(id);
    }
}
