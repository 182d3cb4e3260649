//! Subscriptions, topics, and the commands that are sent (R20, R30, R31, R39).

use super::*;
use crate::zoo::{self, Bug};

impl<P> Client<P> {
    /// Sees to it that a wanted entity's frames come: by its own subscription, or by its topic's.
    pub(super) fn cover(&mut self, id: EntityId) {
        let entity = &self.entities[id];
        let resumes =
            !entity.has(Flags::FINAL) || self.model(id).reopen == Reopen::Epoch || zoo::has(Bug::ResumeFinals);
        if !self.connection.is_open() || !entity.is_wanted() || !resumes || entity.has(Flags::SENT) {
            return;
        }
        if self.recovery(id).is_some_and(|recovery| recovery.stage == Stage::Denied) {
            return;
        }
        if entity.topics > 0 {
            let topic = self.topics.of(id).next();
            if let Some(topic) = topic {
                self.await_member(topic, id);
            }
        } else {
            self.queue_subscribe(id);
        }
    }

    #[inline(never)]
    pub(super) fn queue_subscribe(&mut self, id: EntityId) {
        if !self.entities[id].has(Flags::QUEUED) {
            self.set_wave(id, 0);
            self.end_error_wait(id);
            let entity = &mut self.entities[id];
            entity.flags.set(Flags::QUEUED, true);
            entity.flags.set(Flags::CLEAR, false);
            match self.to_subscribe.iter_mut().find(|asking| asking.request == 0) {
                Some(asking) => asking.entities.push(id),
                None => self.to_subscribe.push(Asking { request: 0, tries: 0, entities: vec![id] }),
            }
        }
        self.refresh(id);
    }

    /// A subscription goes out before the wait after an error is over.
    fn end_error_wait(&mut self, id: EntityId) {
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.resubscribe = false;
            if matches!(recovery.stage, Stage::Error(_)) {
                self.set_stage(id, Stage::Rest);
            }
        }
    }

    /// A member waits for what its topic's subscription brings.
    pub(super) fn await_member(&mut self, topic: EntityId, member: EntityId) {
        let request = self.topics.note(topic).request;
        if !self.connection.is_open()
            || self.entities[member].has(Flags::FINAL)
            || self.entities[member].wave != 0
            || self.entities[member].has(Flags::SENT)
        {
            return;
        }
        self.end_error_wait(member);
        let deadline = self.now + self.config.timeout.subscribe;
        match self.waves.join(WaveKind::Member, request, deadline) {
            Some(wave) => self.set_wave(member, wave),
            None => self.want_snapshot(member),
        }
        self.entities[member].flags.set(Flags::MOVED, false);
        self.refresh(member);
    }

    /// The last subscriber left.
    pub(super) fn abandon(&mut self, id: EntityId) {
        if self.entities[id].is_wanted() {
            return;
        }
        let at = if zoo::has(Bug::NoLinger) { self.now } else { self.now + self.config.linger };
        self.recover(id).linger = Some(at);
        self.arm(at);
    }

    /// Nobody came back within the linger.
    pub(super) fn let_go(&mut self, id: EntityId) {
        let members = self.topics.take(id);
        self.set_wave(id, 0);
        self.set_stage(id, Stage::Rest);
        let floor = self.recovery(id).and_then(|recovery| recovery.floor);
        self.drop_recovery(id);
        self.free_ids_of(id);
        let subscribed = self.entities[id].has(Flags::SENT) && self.connection.is_open();
        let entity = &mut self.entities[id];
        for flag in [Flags::SENT, Flags::QUEUED, Flags::CLEAR, Flags::BEHIND] {
            entity.flags.set(flag, false);
        }
        if let Some(floor) = floor {
            entity.move_to(floor.epoch, floor.seq);
            entity.status = floor.status;
            entity.flags.set(Flags::FINAL, true);
        }
        if entity.has(Flags::FINAL) {
            entity.flags.set(Flags::REMEMBERED, true);
            self.released.push(id);
        }
        if subscribed {
            self.to_unsubscribe.push(id);
        } else if !self.entities[id].has(Flags::REMEMBERED) {
            self.forget(id);
        }
        if self.released.len() > RELEASED_FINALS {
            let oldest = self.released.remove(0);
            self.entities[oldest].flags.set(Flags::REMEMBERED, false);
            self.forget(oldest);
        }
        for member in members {
            self.leave_topic(member);
        }
    }

    pub(super) fn forget(&mut self, id: EntityId) {
        self.entities.remove(id);
        self.emit(Output::Forgotten { entity: id });
    }

    /// A released final entity is wanted again: what is remembered is the floor.
    pub(super) fn rejoin(&mut self, id: EntityId) {
        self.released.retain(|&other| other != id);
        let entity = &mut self.entities[id];
        let floor = Floor { epoch: entity.epoch, seq: entity.last, status: entity.status };
        for flag in [Flags::REMEMBERED, Flags::FINAL, Flags::PLACED] {
            entity.flags.set(flag, false);
        }
        entity.status = Status::NONE;
        entity.sync = Sync::Joining;
        self.recover(id).floor = Some(floor);
    }

    /// Builds the commands that wait. False: there was nothing to send.
    pub(super) fn flush(&mut self) -> bool {
        if !self.connection.is_open() {
            let leaving = core::mem::take(&mut self.to_unsubscribe);
            for id in leaving {
                if self.entities.contains(id) && !self.is_wanted(id) && !self.entities[id].has(Flags::REMEMBERED) {
                    self.forget(id);
                }
            }
            return !self.outputs.is_empty();
        }
        self.flush_unsubscribes();
        self.flush_subscribes();
        if self.connection.is_live() {
            self.flush_heads();
            self.flush_requests();
        }
        !self.outputs.is_empty() || self.drained < self.draining.len()
    }

    pub(super) fn flush_unsubscribes(&mut self) {
        let mut leaving = core::mem::take(&mut self.to_unsubscribe);
        leaving.retain(|&id| self.entities.contains(id));
        if leaving.is_empty() {
            return;
        }
        self.emit(Output::Send(Command::Unsubscribe { entities: leaving.clone() }));
        for id in leaving {
            if !self.is_wanted(id) && !self.entities[id].has(Flags::REMEMBERED) {
                self.forget(id);
            }
        }
    }

    pub(super) fn flush_subscribes(&mut self) {
        for asking in core::mem::take(&mut self.to_subscribe) {
            self.subscribe_all(asking);
        }
    }

    pub(super) fn subscribe_all(&mut self, asking: Asking) {
        let Asking { mut request, tries, entities: mut wanted } = asking;
        wanted.retain(|&id| {
            let queued = self.entities.contains(id) && self.entities[id].has(Flags::QUEUED);
            if queued && !self.is_wanted(id) {
                self.entities[id].flags.set(Flags::QUEUED, false);
            }
            queued && self.is_wanted(id)
        });
        if wanted.is_empty() {
            return;
        }
        if request == 0 {
            request = self.next_request();
        }
        let deadline = self.now + self.config.timeout.subscribe;
        let Some(wave) = self.waves.open(WaveKind::Subscribe, request, deadline, tries) else {
            // All waves are out; each has a deadline, and a wave that ends makes room.
            self.to_subscribe.push(Asking { request, tries, entities: wanted });
            return;
        };
        let mut resumes = Vec::with_capacity(wanted.len());
        for id in wanted {
            let entity = &mut self.entities[id];
            entity.flags.set(Flags::QUEUED, false);
            entity.flags.set(Flags::SENT, true);
            entity.flags.set(Flags::MOVED, false);
            self.set_wave(id, wave);
            let topic = self.model(id).topic;
            let position = self.resume_position(id);
            let (mut behind, mut cursor) = (Vec::new(), false);
            if topic {
                let noted = self.topics.note(id);
                noted.request = request;
                cursor = noted.cursor && position.is_some();
                for member in self.topics.members(id).to_vec() {
                    if self.entities[member].has(Flags::FINAL) && self.model(member).reopen == Reopen::Never {
                        continue;
                    }
                    if !cursor || self.entities[member].has(Flags::BEHIND) {
                        behind.push((member, self.resume_position(member)));
                    }
                    // One that subscribed by itself awaits its own answer.
                    if !self.entities[member].has(Flags::SENT) {
                        self.set_wave(member, 0);
                        self.await_member(id, member);
                    }
                }
            }
            resumes.push(Resume { entity: id, position, behind, cursor });
            self.refresh(id);
        }
        self.emit(Output::Send(Command::Subscribe { request, entities: resumes }));
    }

    pub(super) fn resume_position(&self, id: EntityId) -> Option<Position> {
        let forgotten =
            self.recovery(id).is_some_and(|recovery| recovery.no_after || recovery.question == Question::Anew);
        let position = self.entities[id].position().filter(|_| !forgotten);
        if zoo::has(Bug::ResumeTooLate) {
            return position.map(|position| Position { seq: position.seq + 1, ..position });
        }
        position
    }

    pub(super) fn flush_heads(&mut self) {
        let mut asked = Vec::new();
        for id in core::mem::take(&mut self.to_ask_heads) {
            let entity = &self.entities[id];
            let asks = !entity.has(Flags::FINAL) && entity.wave == 0 && !entity.has(Flags::QUEUED);
            if self.is_followed(id) && asks && !asked.contains(&id) {
                asked.push(id);
            }
        }
        if asked.is_empty() {
            return;
        }
        let request = self.next_request();
        let Some(wave) = self.waves.open(WaveKind::Heads, request, self.now + self.config.timeout.snapshot, 0) else {
            asked.into_iter().for_each(|id| self.want_snapshot(id));
            return;
        };
        for &id in &asked {
            self.set_wave(id, wave);
            self.entities[id].flags.set(Flags::MOVED, false);
            self.refresh(id);
        }
        self.emit(Output::Send(Command::Heads { request, entities: asked }));
    }

    /// R20: recovery requests, fewest tries first, while slots are free.
    pub(super) fn flush_requests(&mut self) {
        let (mut replay, mut ranges) = (0, Vec::new());
        let (mut snapshot, mut entities) = (0, Vec::new());
        while self.out < self.config.max_requests {
            let Some(id) = self.next_ready() else { break };
            let stage = self.recover(id).stage;
            if !stage.is_ready() {
                continue;
            }
            if matches!(stage, Stage::Replay(_)) {
                let Some(range) = self.missing(id) else {
                    self.set_stage(id, Stage::Rest);
                    self.touch(id);
                    continue;
                };
                let again = self.recover(id).ask;
                if replay == 0 && again.is_none() {
                    replay = self.next_request();
                }
                let fresh =
                    Ask { request: replay, from: range.from, to: range.to, tries: 0, paged: false, confirms: false };
                let mut ask = again.unwrap_or(fresh);
                if zoo::has(Bug::RenameRetries) && again.is_some() {
                    ask.request = self.next_request();
                }
                self.set_stage(id, Stage::Replay(Step::Out(self.now + self.config.timeout.replay)));
                let recovery = self.recover(id);
                recovery.ask = Some(Ask { tries: ask.tries.saturating_add(1), paged: false, ..ask });
                recovery.shown = true;
                self.stats.replays += 1;
                if again.is_some() {
                    // A retry keeps its request id, so that a late answer serves.
                    self.emit(Output::Send(Command::Replay { request: ask.request, ranges: vec![range] }));
                } else {
                    ranges.push(range);
                }
            } else if self.connection.can.snapshot {
                let again = self.recover(id).snapshot;
                if snapshot == 0 && again == 0 {
                    snapshot = self.next_request();
                }
                self.set_stage(id, Stage::Snapshot(Step::Out(self.now + self.config.timeout.snapshot)));
                // A reconciliation's first question is routine; nothing is known to be missing.
                let routine = self.entities[id].sync == Sync::Live && self.is_routine(id);
                let recovery = self.recover(id);
                recovery.snapshot = if again == 0 { snapshot } else { again };
                recovery.snapshots = recovery.snapshots.saturating_add(1);
                recovery.shown |= !routine;
                self.stats.snapshots += 1;
                if again == 0 {
                    entities.push(id);
                } else {
                    self.emit(Output::Send(Command::Snapshot { request: again, entities: vec![id] }));
                }
            } else {
                // Without `snapshot`, a subscription from nothing brings one.
                self.set_stage(id, Stage::Rest);
                let recovery = self.recover(id);
                recovery.no_after = true;
                recovery.snapshots = recovery.snapshots.saturating_add(1);
                recovery.shown = true;
                self.queue_subscribe(id);
            }
            self.refresh(id);
        }
        if !ranges.is_empty() {
            self.emit(Output::Send(Command::Replay { request: replay, ranges }));
        }
        if !entities.is_empty() {
            self.emit(Output::Send(Command::Snapshot { request: snapshot, entities }));
        }
    }

    /// Of those that wait for a slot, the one with the fewest tries.
    fn next_ready(&mut self) -> Option<EntityId> {
        let (mut best, mut fewest) = (None, u8::MAX);
        for (at, &id) in self.ready.iter().enumerate() {
            let tries = match self.recovery(id) {
                Some(recovery) if matches!(recovery.stage, Stage::Replay(_)) => recovery.ask.map_or(0, |ask| ask.tries),
                Some(recovery) => recovery.snapshots.saturating_add(self.config.replay_tries),
                None => continue,
            };
            if best.is_none() || tries < fewest {
                (best, fewest) = (Some(at), tries);
            }
        }
        match best {
            Some(at) => Some(self.ready.remove(at)),
            None => {
                self.ready.clear();
                None
            }
        }
    }

    /// What a replay should bring: from the first missing number to before the earliest held event.
    pub(super) fn missing(&self, id: EntityId) -> Option<Range> {
        let position = self.entities[id].position()?;
        let recovery = self.recovery(id)?;
        let to = match recovery.ask {
            Some(ask) => ask.to,
            None => recovery.held.front().map(|front| front.prev),
        };
        let from = position.seq + 1;
        (to.is_none_or(|to| from <= to)).then_some(Range { entity: id, epoch: position.epoch, from, to })
    }

    /// A snapshot asked although nothing is known to be missing (R21).
    pub(super) fn is_routine(&self, id: EntityId) -> bool {
        self.recovery(id).is_some_and(|recovery| {
            recovery.snapshots == 0
                && recovery.question == Question::None
                && recovery.suspects.is_empty()
                && recovery.held.is_empty()
                && recovery.head.is_none()
                && !self.connection.can.heads
                && !self.entities[id].has(Flags::HEARD)
        })
    }

    pub(super) fn next_request(&mut self) -> Request {
        self.requests = self.requests.wrapping_add(1).max(1);
        self.requests
    }

    #[inline(never)]
    pub(super) fn set_wave(&mut self, id: EntityId, wave: WaveId) {
        let before = self.entities[id].wave;
        if before == wave {
            return;
        }
        self.entities[id].wave = wave;
        if wave != 0 {
            self.waves.enter(wave);
            self.entities[id].flags.set(Flags::CLEAR, false);
        }
        if before != 0 {
            self.waves.leave(before);
        }
    }

    #[inline(never)]
    pub(super) fn wave_is(&self, id: EntityId, request: Request) -> bool {
        self.waves.get(self.entities[id].wave).is_some_and(|wave| wave.request == request)
    }
}
