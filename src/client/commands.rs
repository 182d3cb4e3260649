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
        let leaving = core::mem::take(&mut self.to_unsubscribe);
        let mut numbers = Vec::new();
        for &id in &leaving {
            if self.entities[id].has(Flags::USED) {
                numbers.push(u64::from(id.0));
            }
        }
        if self.connection.is_open() && !numbers.is_empty() {
            self.send(Sent::Unsubscribe, 0, numbers);
        }
        for id in leaving {
            let entity = &self.entities[id];
            if entity.has(Flags::USED) && !entity.is_kept() && !entity.has(Flags::REMEMBERED) {
                self.forget(id);
            }
        }
    }

    fn subscribe_all(&mut self, asking: Asking) {
        let Asking { mut request, tries, entities } = asking;
        let deadline = self.now + self.config.timeout.subscribe;
        let (mut wave, mut later) = (0, Vec::new());
        let mut numbers = Vec::new();
        for id in entities {
            let entity = &mut self.entities[id];
            let queued = entity.has(Flags::QUEUED);
            if !entity.is_kept() {
                entity.clear(Flags::QUEUED);
            }
            if !queued || !entity.is_kept() {
                continue;
            }
            if request == 0 {
                request = self.next_request();
            }
            if wave == 0 {
                let kind = WaveKind::Subscribe;
                wave = self.waves.open(Wave { kind, tries, request, deadline, waiting: 0 }).unwrap_or_default();
            }
            if wave == 0 {
                // All waves are out; each has a deadline, and a wave that ends makes room.
                later.push(id);
                continue;
            }
            let entity = &mut self.entities[id];
            entity.clear(Flags::QUEUED.and(Flags::MOVED));
            entity.set(Flags::SENT);
            self.set_wave(id, wave);
            let placed = self.write_position(id, &mut numbers);
            let (mut cursor, mut behind) = (false, 0);
            let at = numbers.len();
            numbers.push(0);
            numbers.push(0);
            if self.model(id).topic {
                let topic = self.topics.note(id);
                topic.request = request;
                cursor = topic.cursor && placed;
                for member in topic.members.clone() {
                    let reopens = self.reopens(member);
                    let entity = &self.entities[member];
                    if entity.has(Flags::FINAL) && !reopens {
                        continue;
                    }
                    if !cursor || entity.has(Flags::BEHIND) {
                        behind += 1;
                        self.write_position(member, &mut numbers);
                    }
                    // One that subscribed by itself awaits its own answer.
                    if !self.entities[member].has(Flags::SENT) {
                        self.set_wave(member, 0);
                        self.await_member(id, member);
                    }
                }
            }
            numbers[at] = u64::from(cursor);
            numbers[at + 1] = behind;
            self.refresh(id);
        }
        if !numbers.is_empty() {
            self.send(Sent::Subscribe, request, numbers);
        }
        if !later.is_empty() {
            self.to_subscribe.push(Asking { request, tries, entities: later });
        }
    }

    /// Writes an entity with the position that it resumes from; false if it has none.
    #[inline(never)]
    fn write_position(&self, id: EntityId, numbers: &mut Vec<u64>) -> bool {
        let entity = &self.entities[id];
        let forgotten = entity
            .recovery
            .as_ref()
            .is_some_and(|recovery| recovery.no_after || recovery.question == Question::Anew);
        let resumes = entity.has(Flags::PLACED) && !forgotten;
        let late = u64::from(zoo::has(Bug::ResumeTooLate));
        numbers.push(u64::from(id.0));
        numbers.push(if resumes { u64::from(entity.epoch.0) } else { NOTHING });
        numbers.push(entity.last + late);
        resumes
    }

    fn flush_heads(&mut self) {
        let (mut request, mut numbers) = (0, Vec::new());
        let deadline = self.now + self.config.timeout.snapshot;
        for id in core::mem::take(&mut self.to_ask_heads) {
            let entity = &mut self.entities[id];
            if entity.has(Flags::FINAL) || entity.is_asked() || !self.is_followed(id) {
                continue;
            }
            self.entities[id].clear(Flags::MOVED);
            if request == 0 {
                request = self.next_request();
            }
            if self.join_wave(id, Wave { kind: WaveKind::Heads, tries: 0, request, deadline, waiting: 0 }) {
                numbers.push(u64::from(id.0));
                self.refresh(id);
            } else {
                self.want_snapshot(id);
            }
        }
        if !numbers.is_empty() {
            self.send(Sent::Heads, request, numbers);
        }
    }

    /// R20: recovery requests, fewest tries first, while slots are free. New ones share a frame; one that is sent
    /// again keeps its id, so that a late answer serves.
    fn flush_requests(&mut self) {
        let mut shared = [(Sent::Replay, 0, Vec::new()), (Sent::Snapshot, 0, Vec::new())];
        while self.out < self.config.max_requests
            && let Some(id) = self.next_ready()
        {
            // A reconciliation's first question is routine; nothing is known to be missing.
            let routine = self.is_routine(id);
            let can = self.connection.can.snapshot;
            let entity = &mut self.entities[id];
            let (from, placed, epoch) = (entity.last + 1, entity.has(Flags::PLACED), entity.epoch);
            let before = entity.front().map_or(Seq::MAX, |front| front.prev);
            let recovery = entity.recover();
            let asked = &mut recovery.asked;
            let replays = recovery.stage == Stage::ReplayReady;
            let again = if replays { asked.replay } else { asked.snapshot };
            let to = if again == 0 { before } else { asked.to };
            if replays && (!placed || from > to) {
                self.set_stage(id, Stage::Rest, Instant::NEVER);
                self.touch(id);
                continue;
            }
            asked.shown |= replays || !routine;
            if !replays {
                recovery.snapshots = recovery.snapshots.saturating_add(1);
                if !can {
                    // Without `snapshot`, a subscription from nothing brings one.
                    recovery.no_after = true;
                    self.set_stage(id, Stage::Rest, Instant::NEVER);
                    self.queue_subscribe(id);
                    continue;
                }
            }
            let mut own = (if replays { Sent::Replay } else { Sent::Snapshot }, again, Vec::new());
            if zoo::has(Bug::RenameRetries) && replays && again != 0 {
                own.1 = self.next_request();
            }
            let sent = if again != 0 { &mut own } else { &mut shared[usize::from(!replays)] };
            if sent.1 == 0 {
                self.requests = self.requests.wrapping_add(1).max(1);
                sent.1 = self.requests;
            }
            sent.2.push(u64::from(id.0));
            let asked = &mut self.entities[id].recover().asked;
            if replays {
                asked.replay = sent.1;
                asked.to = to;
                asked.tries = if again == 0 { 1 } else { asked.tries.saturating_add(1) };
                asked.paged = false;
                for number in [u64::from(epoch.0), from, to] {
                    sent.2.push(number);
                }
                self.stats.replays += 1;
                self.set_stage(id, Stage::ReplayOut, self.now + self.config.timeout.replay);
            } else {
                asked.snapshot = sent.1;
                self.stats.snapshots += 1;
                self.await_snapshot(id);
            }
            if again != 0 {
                self.send(own.0, own.1, own.2);
            }
            self.refresh(id);
        }
        for (kind, request, numbers) in shared {
            if request != 0 {
                self.send(kind, request, numbers);
            }
        }
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
