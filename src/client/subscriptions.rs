//! Who is wanted, and how its frames come (R30, R31, R39).

use super::*;

impl<P> Client<P> {
    /// An entity is wanted, perhaps again. True if it was already.
    pub(super) fn want(&mut self, id: EntityId) -> bool {
        if self.recall(id) {
            // What is remembered of its end is the floor.
            let entity = &mut self.entities[id];
            entity.clear(Flags::FINAL.and(Flags::PLACED));
            entity.set(Flags::FLOORED);
            entity.sync = Sync::Joining;
        }
        let entity = &mut self.entities[id];
        if let Some(recovery) = &mut entity.recovery {
            recovery.linger = Instant::NEVER;
        }
        entity.is_wanted()
    }

    /// Ends the memory of a released final. False: there was none.
    #[inline(never)]
    pub(super) fn recall(&mut self, id: EntityId) -> bool {
        self.entities[id].clear(Flags::REMEMBERED);
        let at = self.released.iter().position(|&other| other == id);
        at.map(|at| self.released.remove(at)).is_some()
    }

    /// Sees to it that a wanted entity's frames come: by its own subscription, or by its topic's.
    #[inline(never)]
    pub(super) fn cover(&mut self, id: EntityId) {
        let entity = &self.entities[id];
        let resumes = !entity.has(Flags::FINAL) || self.reopens(id) || zoo::has(Bug::ResumeFinals);
        if !self.connection.is_open()
            || !entity.is_wanted()
            || !resumes
            || entity.has(Flags::SENT)
            || entity.stage() == Stage::Denied
        {
            return;
        }
        if entity.topics == 0 {
            self.queue_subscribe(id);
        } else if let Some(topic) = self.topics.of(id) {
            self.await_member(topic, id);
        }
    }

    #[inline(never)]
    pub(super) fn queue_subscribe(&mut self, id: EntityId) {
        if !self.entities[id].has(Flags::QUEUED) {
            self.set_wave(id, 0);
            self.end_error_wait(id);
            let entity = &mut self.entities[id];
            entity.set(Flags::QUEUED);
            entity.clear(Flags::CLEAR);
            match self.to_subscribe.last_mut() {
                Some(asking) if asking.request == 0 => asking.entities.push(id),
                _ => self.to_subscribe.push(Asking { request: 0, tries: 0, entities: vec![id] }),
            }
        }
        self.refresh(id);
    }

    /// A subscription goes out before the wait after an error is over.
    #[inline(never)]
    fn end_error_wait(&mut self, id: EntityId) {
        if let Some(recovery) = &mut self.entities[id].recovery {
            recovery.asked.resubscribe = false;
            if recovery.stage == Stage::Error {
                self.set_stage(id, Stage::Rest, Instant::NEVER);
            }
        }
    }

    /// A member waits for what its topic's subscription brings.
    #[inline(never)]
    pub(super) fn await_member(&mut self, topic: EntityId, member: EntityId) {
        let request = self.topics.note(topic).request;
        let entity = &mut self.entities[member];
        if !self.connection.is_open() || entity.has(Flags::FINAL) || entity.wave != 0 || entity.has(Flags::SENT) {
            return;
        }
        entity.clear(Flags::MOVED);
        self.end_error_wait(member);
        let deadline = self.now + self.config.timeout.subscribe;
        if !self.join_wave(member, Wave { kind: WaveKind::Member, tries: 0, request, deadline, waiting: 0 }) {
            self.want_snapshot(member);
        }
        self.refresh(member);
    }

    /// Nobody may want it any more: it lingers.
    #[inline(never)]
    pub(super) fn abandon(&mut self, id: EntityId) {
        let linger = if zoo::has(Bug::NoLinger) { 0 } else { self.config.linger };
        let entity = &mut self.entities[id];
        if !entity.is_wanted() {
            entity.recover().linger = self.now + linger;
            self.list(id);
        }
    }

    pub(super) fn leave_topic(&mut self, member: EntityId) {
        let entity = &mut self.entities[member];
        entity.topics = entity.topics.saturating_sub(1);
        if entity.topics > 0 {
            return;
        }
        if entity.has(Flags::SUBSCRIBED) {
            self.cover(member);
        } else {
            self.abandon(member);
        }
    }

    /// Nobody came back within the linger.
    pub(super) fn let_go(&mut self, id: EntityId) {
        let members = self.topics.take(id);
        self.set_wave(id, 0);
        self.set_stage(id, Stage::Rest, Instant::NEVER);
        self.drop_held(id, Which::All);
        let open = self.connection.is_open();
        let entity = &mut self.entities[id];
        entity.recovery = None;
        entity.ids = None;
        let subscribed = entity.has(Flags::SENT) && open;
        entity.clear(Flags::SENT.and(Flags::QUEUED).and(Flags::CLEAR).and(Flags::BEHIND));
        if entity.has(Flags::FLOORED) {
            entity.clear(Flags::FLOORED);
            entity.set(Flags::FINAL.and(Flags::PLACED));
        }
        let remembered = entity.has(Flags::FINAL);
        if remembered {
            entity.set(Flags::REMEMBERED);
            self.released.push(id);
        }
        if subscribed {
            self.to_unsubscribe.push(id);
        } else if !remembered {
            self.forget(id);
        }
        if self.released.len() > RELEASED_FINALS {
            let oldest = self.released.remove(0);
            self.forget(oldest);
        }
        for member in members {
            self.leave_topic(member);
        }
    }

    #[inline(never)]
    pub(super) fn forget(&mut self, id: EntityId) {
        self.entities.remove(id);
        self.emit(Kind::Forgotten, id.0, 0);
    }

    /// Has an entity wait for an answer, or for none.
    #[inline(never)]
    pub(super) fn set_wave(&mut self, id: EntityId, wave: WaveId) {
        let entity = &mut self.entities[id];
        self.waves.change(entity.wave, wave);
        entity.wave = wave;
        if wave != 0 {
            entity.clear(Flags::CLEAR);
        }
    }

    /// Has an entity wait with others. False: there is no room.
    #[inline(never)]
    pub(super) fn join_wave(&mut self, id: EntityId, wave: Wave) -> bool {
        match self.waves.open(Wave { waiting: 0, ..wave }) {
            Some(wave) => self.set_wave(id, wave),
            None => return false,
        }
        true
    }

    /// Whether the entity waits for an answer to this request, together with others.
    #[inline(never)]
    pub(super) fn wave_is(&self, id: EntityId, request: Request) -> bool {
        self.waves.get(self.entities[id].wave).is_some_and(|wave| wave.request == request)
    }

    #[inline(never)]
    pub(super) fn waits_for(&self, id: EntityId, kind: WaveKind) -> bool {
        self.waves.get(self.entities[id].wave).is_some_and(|wave| wave.kind == kind)
    }
}
