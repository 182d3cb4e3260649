//! The commands that are sent (R20, R30, R31, R39).

use super::*;

impl<P> Client<P> {
    /// Builds the commands that wait.
    pub(super) fn flush(&mut self) {
        self.flush_unsubscribes();
        if self.connection.is_open() {
            for asking in core::mem::take(&mut self.to_subscribe) {
                self.subscribe_all(asking);
            }
        }
        if self.connection.is_live() {
            self.flush_heads();
            self.flush_requests();
        }
    }

    fn flush_unsubscribes(&mut self) {
        let mut leaving = core::mem::take(&mut self.to_unsubscribe);
        leaving.retain(|&id| self.entities[id].has(Flags::USED));
        if leaving.is_empty() {
            return;
        }
        if self.connection.is_open() {
            self.emit(Output::Send(Command::Unsubscribe { entities: leaving.clone() }));
        }
        for id in leaving {
            let entity = &self.entities[id];
            if !entity.is_kept() && !entity.has(Flags::REMEMBERED) {
                self.forget(id);
            }
        }
    }

    fn subscribe_all(&mut self, asking: Asking) {
        let Asking { mut request, tries, entities: mut wanted } = asking;
        wanted.retain(|&id| {
            let entity = &mut self.entities[id];
            if !entity.is_kept() {
                entity.clear(Flags::QUEUED);
            }
            entity.has(Flags::QUEUED)
        });
        if wanted.is_empty() {
            return;
        }
        if request == 0 {
            request = self.next_request();
        }
        let deadline = self.now + self.config.timeout.subscribe;
        let wave = Wave { kind: WaveKind::Subscribe, tries, request, deadline, waiting: 0 };
        let Some(wave) = self.waves.open(wave) else {
            // All waves are out; each has a deadline, and a wave that ends makes room.
            self.to_subscribe.push(Asking { request, tries, entities: wanted });
            return;
        };
        let mut entities = Vec::new();
        for id in wanted {
            let entity = &mut self.entities[id];
            entity.clear(Flags::QUEUED.and(Flags::MOVED));
            entity.set(Flags::SENT);
            self.set_wave(id, wave);
            let position = self.resume_position(id);
            let (mut behind, mut cursor) = (Vec::new(), false);
            if self.model(id).topic {
                let topic = self.topics.note(id);
                topic.request = request;
                cursor = topic.cursor && position.is_some();
                for member in topic.members.clone() {
                    let reopens = self.reopens(member);
                    let entity = &self.entities[member];
                    if entity.has(Flags::FINAL) && !reopens {
                        continue;
                    }
                    if !cursor || entity.has(Flags::BEHIND) {
                        behind.push((member, self.resume_position(member)));
                    }
                    // One that subscribed by itself awaits its own answer.
                    if !entity.has(Flags::SENT) {
                        self.set_wave(member, 0);
                        self.await_member(id, member);
                    }
                }
            }
            entities.push(Resume { entity: id, position, behind, cursor });
            self.refresh(id);
        }
        self.emit(Output::Send(Command::Subscribe { request, entities }));
    }

    #[inline(never)]
    fn resume_position(&self, id: EntityId) -> Option<Position> {
        let entity = &self.entities[id];
        let forgotten = entity
            .recovery
            .as_ref()
            .is_some_and(|recovery| recovery.no_after || recovery.question == Question::Anew);
        let late = u64::from(zoo::has(Bug::ResumeTooLate));
        let position = Position { epoch: entity.epoch, seq: entity.last + late };
        (entity.has(Flags::PLACED) && !forgotten).then_some(position)
    }

    fn flush_heads(&mut self) {
        let doubted = core::mem::take(&mut self.to_ask_heads);
        if doubted.is_empty() {
            return;
        }
        let request = self.next_request();
        let deadline = self.now + self.config.timeout.snapshot;
        let mut entities = Vec::new();
        for id in doubted {
            let entity = &mut self.entities[id];
            if entity.has(Flags::FINAL) || entity.is_asked() {
                continue;
            }
            entity.clear(Flags::MOVED);
            if !self.is_followed(id) {
                continue;
            }
            if self.join_wave(id, Wave { kind: WaveKind::Heads, tries: 0, request, deadline, waiting: 0 }) {
                entities.push(id);
                self.refresh(id);
            } else {
                self.want_snapshot(id);
            }
        }
        if !entities.is_empty() {
            self.emit(Output::Send(Command::Heads { request, entities }));
        }
    }

    /// R20: recovery requests, fewest tries first, while slots are free.
    fn flush_requests(&mut self) {
        let (mut ranges, mut entities) = (Vec::new(), Vec::new());
        let (mut replay, mut snapshot) = (0, 0);
        while self.out < self.config.max_requests
            && let Some(id) = self.next_ready()
        {
            let can = self.connection.can.snapshot;
            let again = self.ask_of(id);
            let replays = self.entities[id].stage() == Stage::ReplayReady;
            if replays {
                let entity = &mut self.entities[id];
                let from = entity.last + 1;
                let to = match entity.front() {
                    _ if again != 0 => entity.recover().asked.to,
                    Some(front) => front.prev,
                    None => Seq::MAX,
                };
                if !entity.has(Flags::PLACED) || from > to {
                    self.set_stage(id, Stage::Rest, Instant::NEVER);
                    self.touch(id);
                    continue;
                }
                let epoch = entity.epoch;
                let range = Range { entity: id, epoch, from, to: (to != Seq::MAX).then_some(to) };
                let fresh = again == 0 || zoo::has(Bug::RenameRetries);
                if fresh && (replay == 0 || again != 0) {
                    replay = self.next_request();
                }
                let request = if fresh { replay } else { again };
                let asked = &mut self.entities[id].recover().asked;
                asked.replay = request;
                asked.to = to;
                asked.tries = if again == 0 { 1 } else { asked.tries.saturating_add(1) };
                asked.paged = false;
                asked.shown = true;
                self.stats.replays += 1;
                self.set_stage(id, Stage::ReplayOut, self.now + self.config.timeout.replay);
                if again == 0 {
                    ranges.push(range);
                } else {
                    // A retry keeps its request id, so that a late answer serves.
                    self.emit(Output::Send(Command::Replay { request, ranges: vec![range] }));
                }
            } else {
                // A reconciliation's first question is routine; nothing is known to be missing.
                let routine = self.is_routine(id);
                let recovery = self.entities[id].recover();
                recovery.asked.shown |= !routine;
                recovery.snapshots = recovery.snapshots.saturating_add(1);
                if !can {
                    // Without `snapshot`, a subscription from nothing brings one.
                    recovery.no_after = true;
                    self.set_stage(id, Stage::Rest, Instant::NEVER);
                    self.queue_subscribe(id);
                    continue;
                }
                if again != 0 {
                    self.emit(Output::Send(Command::Snapshot { request: again, entities: vec![id] }));
                } else {
                    if snapshot == 0 {
                        snapshot = self.next_request();
                    }
                    entities.push(id);
                    self.entities[id].recover().asked.snapshot = snapshot;
                }
                self.stats.snapshots += 1;
                self.await_snapshot(id);
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

    /// The request that is sent again for an entity that waits for a slot, 0 if there is none.
    fn ask_of(&mut self, id: EntityId) -> Request {
        let recovery = self.entities[id].recover();
        if recovery.stage == Stage::ReplayReady { recovery.asked.replay } else { recovery.asked.snapshot }
    }

    #[inline(never)]
    pub(super) fn await_snapshot(&mut self, id: EntityId) {
        self.set_stage(id, Stage::SnapshotOut, self.now + self.config.timeout.snapshot);
    }

    /// Of those that wait for a slot, the one with the fewest tries.
    fn next_ready(&mut self) -> Option<EntityId> {
        let (mut best, mut fewest) = (None, u16::MAX);
        for &id in &self.listed {
            let Some(recovery) = &self.entities[id].recovery else { continue };
            let tries = match recovery.stage {
                Stage::ReplayReady if recovery.asked.replay == 0 => 0,
                Stage::ReplayReady => u16::from(recovery.asked.tries),
                Stage::SnapshotReady => u16::from(recovery.snapshots) + u16::from(self.config.replay_tries),
                _ => continue,
            };
            if tries < fewest {
                (best, fewest) = (Some(id), tries);
            }
        }
        best
    }

    /// A snapshot asked although nothing is known to be missing (R21).
    fn is_routine(&self, id: EntityId) -> bool {
        let entity = &self.entities[id];
        entity.sync == Sync::Live
            && !entity.has(Flags::HEARD)
            && !self.connection.can.heads
            && entity.recovery.as_ref().is_some_and(|recovery| {
                recovery.snapshots == 0
                    && recovery.question == Question::None
                    && !recovery.suspects()
                    && recovery.held.len() == 0
                    && recovery.asked.head == 0
            })
    }

    fn next_request(&mut self) -> Request {
        self.requests = self.requests.wrapping_add(1).max(1);
        self.requests
    }
}
