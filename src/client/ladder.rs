//! The ladder: what is asked of the server for a troubled entity, when, and how often (R19–R23).

use super::*;

impl<P> Client<P> {
    /// Looks at an entity whose held events don't fit: is something missing, and what happens next?
    pub(super) fn settle(&mut self, id: EntityId) {
        let entity = &self.entities[id];
        if let Some(recovery) = &entity.recovery {
            let is_final = entity.has(Flags::FINAL) && !recovery.suspects() && !recovery.wants_snapshot;
            if is_final || !self.is_followed(id) {
                self.trim(id);
            } else if entity.is_wanted() || entity.has(Flags::SENT) {
                self.climb(id);
            }
            // Else it lingers, and nothing of it comes on this socket: nobody misses anything.
        } else {
            self.mark_clear(id);
        }
        self.refresh(id);
    }

    fn climb(&mut self, id: EntityId) {
        let model = self.model(id);
        let (unnumbered, whole) = (model.continuity == Continuity::None, model.replay_whole);
        let entity = &self.entities[id];
        let straddles = entity.front().is_some_and(|front| {
            reach(entity.last, self.model(id), front.prev, front.seq, front.visible) == Reach::Straddles
        });
        let entity = &mut self.entities[id];
        let (placed, last, hole) = (entity.has(Flags::PLACED), entity.last, entity.hole());
        let asks_nothing = entity.is_asked() || !self.connection.is_open();
        let is_held = entity.front().is_some();
        let recovery = entity.recover();
        if recovery.question == Question::None && placed && last >= recovery.fault.seq {
            recovery.faults = 0;
        }
        let asked = &mut recovery.asked;
        if placed && asked.head <= last {
            asked.head = 0;
        }
        let judged = core::mem::take(&mut asked.done);
        if judged {
            if zoo::has(Bug::TrustDone) {
                asked.head = 0;
            } else if !placed || hole != 0 && asked.replay != 0 && last < asked.to {
                recovery.wants_snapshot = true;
            }
            asked.end_replay();
        } else if last >= asked.to {
            asked.end_replay();
        }
        recovery.wants_snapshot |= straddles;
        let resubscribe = asked.resubscribe;
        let stage = recovery.stage;
        let no_replay = asked.replay == 0;
        if no_replay && (stage == Stage::Resume || stage.is_replay() && (judged || stage != Stage::ReplayReady)) {
            self.set_stage(id, Stage::Rest, Instant::NEVER);
        }
        if whole && no_replay && self.page != id {
            // What a replay brought that was given up will not be completed.
            self.drop_held(id, Which::Whole);
        }
        if judged && zoo::has(Bug::TrustDone) {
            self.drop_held(id, Which::All);
        }
        if !asks_nothing && is_held {
            self.report_gap(id);
        }
        if asks_nothing || resubscribe || !self.connection.is_live() {
            return;
        }
        let recovery = self.entities[id].recover();
        let stage = recovery.stage;
        if recovery.wants_snapshot
            || recovery.question != Question::None
            || recovery.suspects()
            || !placed && !unnumbered
        {
            if stage.is_replay() || matches!(stage, Stage::Rest | Stage::Grace | Stage::Resume) {
                self.start_snapshot(id);
            }
        } else if hole != 0 {
            if stage == Stage::Rest {
                if self.config.gap.grace == 0 {
                    self.next_rung(id);
                } else {
                    self.set_stage(id, Stage::Grace, self.now + self.config.gap.grace);
                }
            }
        } else if recovery.is_stuck() {
            if stage == Stage::Rest {
                self.give_up(id);
            }
        } else if !recovery.asked.confirms || stage == Stage::Rest {
            // A replay that still confirms keeps its deadline (R30).
            self.rest(id);
            self.trim(id);
            self.mark_clear(id);
        }
    }

    /// Nothing is missing.
    #[inline(never)]
    pub(super) fn rest(&mut self, id: EntityId) {
        self.set_stage(id, Stage::Rest, Instant::NEVER);
        if let Some(recovery) = &mut self.entities[id].recovery {
            recovery.rest();
        }
    }

    /// Reports a gap once; a later one that starts behind it is another.
    #[inline(never)]
    fn report_gap(&mut self, id: EntityId) {
        let entity = &mut self.entities[id];
        let (from, to) = (entity.last + 1, entity.hole());
        let asked = &mut entity.recover().asked;
        if to != 0 && from > asked.gap {
            asked.gap = to;
            self.stats.gaps += 1;
            let gap = self.emit(Kind::Gap, id.0, 0);
            gap.from = from;
            gap.to = to;
        }
    }

    /// The grace is over, or a wait after an error: ask.
    fn next_rung(&mut self, id: EntityId) {
        self.report_gap(id);
        let replays = self.model(id).on_gap() == OnGap::Replay && self.connection.can.replay;
        let recovery = self.entities[id].recover();
        if replays && !recovery.wants_snapshot {
            self.set_stage(id, Stage::ReplayReady, Instant::NEVER);
        } else {
            self.start_snapshot(id);
        }
    }

    #[inline(never)]
    fn start_snapshot(&mut self, id: EntityId) {
        let recovery = self.entities[id].recover();
        recovery.wants_snapshot = true;
        let asked = recovery.snapshots;
        if asked >= SNAPSHOT_TRIES {
            return self.give_up(id);
        }
        let wait = if zoo::has(Bug::Unpaced) { 0 } else { snapshot_wait(asked, &mut self.jitter) };
        if wait == 0 {
            self.set_stage(id, Stage::SnapshotReady, Instant::NEVER);
        } else {
            self.set_stage(id, Stage::SnapshotWait, self.now + wait);
        }
    }

    /// Tried again after a long wait, and shown as failed until it helps.
    #[inline(never)]
    pub(super) fn give_up(&mut self, id: EntityId) {
        let recovery = self.entities[id].recover();
        recovery.asked.end_replay();
        if !core::mem::replace(&mut recovery.failed, true) {
            self.fault(id, Fault::GaveUp);
        }
        self.set_stage(id, Stage::Failed, self.now + SNAPSHOT_CAP);
        self.refresh(id);
    }

    /// Puts an entity on a place of the ladder, until `due`.
    #[inline(never)]
    pub(super) fn set_stage(&mut self, id: EntityId, stage: Stage, due: Instant) {
        let entity = &mut self.entities[id];
        if entity.recovery.is_none() && stage == Stage::Rest {
            return;
        }
        let recovery = entity.recover();
        self.out += usize::from(stage.is_out());
        self.out -= usize::from(recovery.stage.is_out() && !zoo::has(Bug::LeakSlots));
        recovery.stage = stage;
        recovery.due = due;
        if stage != Stage::Rest {
            self.list(id);
        }
    }

    /// Looks at every entity whose timer is due, and finds the next one.
    pub(super) fn fire_all(&mut self) {
        self.timer = Instant::NEVER;
        let listed = core::mem::take(&mut self.listed);
        for &id in &listed {
            self.entities[id].clear(Flags::LISTED);
        }
        for id in listed {
            if self.entities[id].recovery.as_ref().is_some_and(|recovery| recovery.timer() <= self.now) {
                self.fire(id);
            }
            if self.entities[id].recovery.is_some() {
                self.list(id);
            }
        }
    }

    /// An entity's timer: its linger, or its stage.
    fn fire(&mut self, id: EntityId) {
        let now = self.now;
        let Some(recovery) = &mut self.entities[id].recovery else { return };
        if recovery.linger <= now {
            return self.let_go(id);
        }
        let stage = recovery.stage;
        match stage {
            Stage::Resume | Stage::ReplayOut => self.replay_timed_out(id),
            Stage::SnapshotWait => self.set_stage(id, Stage::SnapshotReady, Instant::NEVER),
            Stage::SnapshotOut => {
                self.connection.probe(now);
                self.start_snapshot(id);
            }
            Stage::Error | Stage::Failed if core::mem::take(&mut recovery.asked.resubscribe) => {
                self.set_stage(id, Stage::Rest, Instant::NEVER);
                self.queue_subscribe(id);
            }
            Stage::Error if recovery.asked.replay != 0 => self.set_stage(id, Stage::ReplayReady, Instant::NEVER),
            Stage::Failed => {
                recovery.wants_snapshot = true;
                self.set_stage(id, Stage::SnapshotReady, Instant::NEVER);
            }
            _ => {
                self.set_stage(id, Stage::Rest, Instant::NEVER);
                if stage == Stage::Grace && self.entities[id].hole() != 0 {
                    self.next_rung(id);
                } else {
                    self.touch(id);
                }
            }
        }
        self.refresh(id);
    }

    fn replay_timed_out(&mut self, id: EntityId) {
        self.connection.probe(self.now);
        let again = self.connection.can.replay;
        let tries = self.config.replay_tries;
        let asked = &mut self.entities[id].recover().asked;
        asked.paged = false;
        let again = again && asked.replay != 0 && asked.tries < tries;
        // What an abandoned page brought was never seen; the next try starts anew.
        self.drop_held(id, Which::Whole);
        if again {
            self.set_stage(id, Stage::ReplayReady, Instant::NEVER);
        } else {
            self.start_snapshot(id);
        }
    }

    pub(super) fn wave_timed_out(&mut self, wave: WaveId) {
        let Some(&timed_out) = self.waves.get(wave) else { return };
        if timed_out.kind != WaveKind::Member {
            self.connection.probe(self.now);
        }
        let tries = timed_out.tries + 1;
        let mut again = Vec::new();
        each!(self, id, {
            if self.entities[id].wave != wave {
                continue;
            }
            self.set_wave(id, 0);
            let entity = &mut self.entities[id];
            if timed_out.kind == WaveKind::Subscribe {
                if tries < SNAPSHOT_TRIES {
                    entity.set(Flags::QUEUED);
                    again.push(id);
                } else {
                    entity.recover().asked.resubscribe = true;
                    self.give_up(id);
                }
            } else if timed_out.kind == WaveKind::Member && entity.has(Flags::PLACED) {
                self.doubt(id);
            } else {
                self.want_snapshot(id);
            }
        });
        self.waves.end(wave);
        if !again.is_empty() {
            self.to_subscribe.push(Asking { request: timed_out.request, tries, entities: again });
        }
    }

    /// Something may have been missed: ask for the head, or a snapshot where the server can't tell heads.
    pub(super) fn doubt(&mut self, id: EntityId) {
        let entity = &self.entities[id];
        if !self.connection.is_live() || entity.has(Flags::FINAL) || entity.is_asked() || !self.is_followed(id) {
            return; // or its confirmation is awaited anyway
        }
        if !self.connection.can.heads || !entity.has(Flags::PLACED) || self.model(id).continuity == Continuity::None {
            self.want_snapshot(id);
        } else if entity.stage() == Stage::Rest {
            self.to_ask_heads.push(id);
        }
    }

    pub(super) fn doubt_all(&mut self) {
        each!(self, id, {
            self.doubt(id);
        });
    }

    /// R21: quiet, unfinished entities of a server that can't send heads.
    pub(super) fn reconcile(&mut self) {
        each!(self, id, {
            if !self.is_followed(id) {
                continue;
            }
            let entity = &mut self.entities[id];
            let heard = entity.has(Flags::HEARD);
            entity.clear(Flags::HEARD);
            if !heard && entity.wave == 0 && self.sync(id) == Sync::Live {
                self.want_snapshot(id);
                self.set_stage(id, Stage::SnapshotReady, Instant::NEVER);
            }
        });
    }

    /// R19: a buffer that grew too large is cut.
    #[inline(never)]
    pub(super) fn bound(&mut self, id: EntityId) {
        if zoo::has(Bug::Unbounded) {
            return;
        }
        let limits = &self.config.gap;
        let (max_events, max_bytes) = (limits.max_events, limits.max_bytes);
        while self.entities[id]
            .recovery
            .as_ref()
            .is_some_and(|recovery| recovery.held.len() > max_events || recovery.held.bytes() > max_bytes)
            && self.cut(id)
        {}
        while self.held_bytes > HELD_BYTES {
            let (mut largest, mut most) = (NOBODY, 0);
            for &id in &self.listed {
                let bytes = self.entities[id].recovery.as_ref().map_or(0, |recovery| recovery.held.bytes());
                if bytes > most {
                    (largest, most) = (id, bytes);
                }
            }
            if !self.cut(largest) {
                break;
            }
        }
    }

    /// Drops one held event: the farthest while a replay delivers what comes before it, else the lowest, which the snapshot will cover.
    fn cut(&mut self, id: EntityId) -> bool {
        let open = self.connection.is_open();
        let entity = &mut self.entities[id];
        let (own, unconfirmed) = (entity.own(), entity.is_asked() || !open);
        let Some(recovery) = &mut entity.recovery else { return false };
        let delivering = recovery.asked.paged
            && recovery.asked.replay != 0
            && matches!(recovery.stage, Stage::Resume | Stage::ReplayOut);
        let farthest = delivering || own != Epoch::NONE && unconfirmed;
        let Some(dropped) = recovery.held.pop_spare(own, farthest) else { return false };
        if own != Epoch::NONE {
            if !farthest {
                recovery.wants_snapshot = true;
            } else if dropped.epoch == own && !zoo::has(Bug::ForgetDropped) {
                // That number exists in this epoch: what comes before it is not all.
                recovery.asked.head = recovery.asked.head.max(dropped.seq);
            }
        }
        self.held_bytes -= u64::from(dropped.bytes);
        self.stats.overflowed += 1;
        self.spend(dropped);
        true
    }

    /// Whether the entity waits for an answer to this request.
    #[inline(never)]
    pub(super) fn asked_for(&self, id: EntityId, request: Request) -> bool {
        self.answers_replay(id, request) || self.is_followed(id) && self.awaits_snapshot(id, request)
    }

    /// An `error` concerns this entity: failed for good, or asked again after a wait, on the same socket.
    #[inline(never)]
    pub(super) fn refused(&mut self, id: EntityId, code: ErrorCode, retry_after: Option<Millis>) {
        let fault = match code {
            ErrorCode::Forbidden => Fault::Forbidden,
            ErrorCode::NotFound => Fault::NotFound,
            ErrorCode::TokenExpiring | ErrorCode::Other => Fault::Server,
        };
        let joining = self.entities[id].wave != 0;
        if fault != Fault::Server {
            if self.entities[id].has(Flags::FINAL) {
                return;
            }
            self.drop_history(id);
            self.rest(id);
            self.drop_suspicions(id);
        }
        self.set_wave(id, 0);
        self.fault(id, fault);
        let entity = &mut self.entities[id];
        entity.clear(Flags::CLEAR);
        let recovery = entity.recover();
        if fault == Fault::Server {
            recovery.errors = recovery.errors.saturating_add(1);
            recovery.asked.resubscribe |= joining;
            recovery.asked.snapshot = 0;
            let wait = recovery.error_wait().max(retry_after.unwrap_or(0).min(RETRY_AFTER_CAP));
            self.set_stage(id, Stage::Error, self.now + wait);
        } else {
            recovery.wants_snapshot = false;
            recovery.question = Question::None;
            entity.clear(Flags::QUEUED);
            self.set_stage(id, Stage::Denied, Instant::NEVER);
        }
        self.refresh(id);
    }

    /// Whether the entity waits for a replay, or a resume, under this request.
    #[inline(never)]
    pub(super) fn answers_replay(&self, id: EntityId, request: Request) -> bool {
        let recovery = &self.entities[id].recovery;
        let asked = recovery.as_ref().is_some_and(|recovery| recovery.asked.replay == request);
        self.is_followed(id) && (asked && request != 0 || self.wave_is(id, request))
    }

    /// The replay or resume was answered otherwise.
    #[inline(never)]
    pub(super) fn end_ask(&mut self, id: EntityId) {
        self.set_wave(id, 0);
        let Some(recovery) = &mut self.entities[id].recovery else { return };
        recovery.asked.end_replay();
        let stage = recovery.stage;
        if stage.is_replay() || stage == Stage::Resume {
            self.set_stage(id, Stage::Rest, Instant::NEVER);
        }
        self.drop_held(id, Which::Whole);
        self.touch(id);
    }
}
