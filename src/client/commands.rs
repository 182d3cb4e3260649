//! The commands that are sent (R20, R30, R31, R39).

use super::*;

impl<P> Client<P> {
    /// Sends what waits, as far as the connection allows.
    pub(super) fn flush(&mut self) {
        let open = self.connection.is_open();
        let leaving = core::mem::take(&mut self.to_unsubscribe);
        for &id in &leaving {
            if open && self.entities[id].has(Flags::USED) {
                self.send(Sent::Unsubscribe, 0, id);
            }
        }
        for id in leaving {
            let entity = &self.entities[id];
            if entity.has(Flags::USED) && !entity.is_kept() && !entity.has(Flags::REMEMBERED) {
                self.forget(id);
            }
        }
        if open {
            for _ in 0..self.to_subscribe.len() {
                let asking = self.to_subscribe.swap_remove(0);
                self.flush_subscribes(asking);
            }
        }
        if self.connection.is_live() {
            self.flush_heads();
            self.flush_requests();
        }
    }

    fn flush_subscribes(&mut self, mut asking: Asking) {
        let deadline = self.now + self.config.timeout.subscribe;
        for id in core::mem::take(&mut asking.entities) {
            let entity = &mut self.entities[id];
            let queued = entity.has(Flags::QUEUED) && entity.is_kept();
            entity.clear(Flags::QUEUED);
            if !queued {
                continue;
            }
            self.name(&mut asking.request);
            let (tries, request) = (asking.tries, asking.request);
            if !self.join_wave(id, Wave { kind: WaveKind::Subscribe, tries, request, deadline, waiting: 0 }) {
                // All waves are out; each has a deadline, and a wave that ends makes room.
                self.entities[id].set(Flags::QUEUED);
                asking.entities.push(id);
                continue;
            }
            let entity = &mut self.entities[id];
            entity.clear(Flags::MOVED);
            entity.set(Flags::SENT);
            let topic = self.model(id).topic;
            let cursor = topic && self.topics.note(id).cursor;
            let resume = self.send_position(Sent::Subscribe, request, id);
            resume.reset = cursor && resume.epoch != Epoch::NONE;
            let cursor = resume.reset;
            if topic {
                self.topics.note(id).request = request;
                members!(self, id, member, {
                    let reopens = self.reopens(member);
                    let entity = &self.entities[member];
                    if entity.has(Flags::FINAL) && !reopens {
                        continue;
                    }
                    let sent = entity.has(Flags::SENT);
                    if !cursor || entity.has(Flags::BEHIND) {
                        self.send_position(Sent::Behind, request, member);
                    }
                    // One that subscribed by itself awaits its own answer.
                    if !sent {
                        self.set_wave(member, 0);
                        self.await_member(id, member);
                    }
                });
            }
            self.refresh(id);
        }
        if !asking.entities.is_empty() {
            self.to_subscribe.push(asking);
        }
    }

    /// Adds an entity to a command, with the position that it resumes from.
    #[inline(never)]
    fn send_position(&mut self, kind: Sent, request: Request, id: EntityId) -> &mut Out<P> {
        let entity = &self.entities[id];
        let forgotten =
            entity.recovery.as_ref().is_some_and(|recovery| recovery.no_after || recovery.question == Question::Anew);
        let epoch = if forgotten { Epoch::NONE } else { entity.own() };
        let seq = entity.last + u64::from(zoo::has(Bug::ResumeTooLate));
        let out = self.send(kind, request, id);
        out.epoch = epoch;
        out.seq = seq;
        out
    }

    /// Gives a request an id, if it has none.
    #[inline(never)]
    fn name(&mut self, request: &mut Request) {
        if *request == 0 {
            self.requests = self.requests.wrapping_add(1).max(1);
            *request = self.requests;
        }
    }

    fn flush_heads(&mut self) {
        let mut request = 0;
        let deadline = self.now + self.config.timeout.snapshot;
        for id in core::mem::take(&mut self.to_ask_heads) {
            let entity = &mut self.entities[id];
            if entity.has(Flags::FINAL) || entity.is_asked() || !self.is_followed(id) {
                continue;
            }
            self.entities[id].clear(Flags::MOVED);
            self.name(&mut request);
            if self.join_wave(id, Wave { kind: WaveKind::Heads, tries: 0, request, deadline, waiting: 0 }) {
                self.send(Sent::Heads, request, id);
                self.refresh(id);
            } else {
                self.want_snapshot(id);
            }
        }
    }

    /// R20: recovery requests, fewest tries first, while slots are free. New ones share a frame; one that is sent
    /// again keeps its id, so that a late answer serves.
    fn flush_requests(&mut self) {
        let (mut replay, mut snapshot) = (0, 0);
        while self.out < self.config.max_requests
            && let Some(id) = self.next_ready()
        {
            // A reconciliation's first question is routine; nothing is known to be missing.
            let routine = self.is_routine(id);
            let entity = &mut self.entities[id];
            let (from, own) = (entity.last + 1, entity.own());
            let before = entity.front().map_or(NOTHING, |front| front.prev);
            let recovery = entity.recover();
            let asked = &mut recovery.asked;
            if recovery.stage == Stage::ReplayReady {
                let mut request = asked.replay;
                if request == 0 {
                    asked.tries = 0;
                    asked.to = before;
                }
                let to = asked.to;
                if own == Epoch::NONE || from > to {
                    self.set_stage(id, Stage::Rest, Instant::NEVER);
                    self.touch(id);
                    continue;
                }
                asked.tries = asked.tries.saturating_add(1);
                asked.paged = false;
                asked.shown = true;
                if request == 0 {
                    self.name(&mut replay);
                    request = replay;
                } else if zoo::has(Bug::RenameRetries) {
                    request = 0;
                    self.name(&mut request);
                }
                self.entities[id].recover().asked.replay = request;
                self.stats.replays += 1;
                self.set_stage(id, Stage::ReplayOut, self.now + self.config.timeout.replay);
                let range = self.send(Sent::Replay, request, id);
                range.epoch = own;
                range.from = from;
                range.to = to;
            } else {
                asked.shown |= !routine;
                recovery.snapshots = recovery.snapshots.saturating_add(1);
                if self.connection.can.snapshot {
                    let mut request = asked.snapshot;
                    if request == 0 {
                        self.name(&mut snapshot);
                        request = snapshot;
                        self.entities[id].recover().asked.snapshot = request;
                    }
                    self.stats.snapshots += 1;
                    self.await_snapshot(id);
                    self.send(Sent::Snapshot, request, id);
                } else {
                    // Without `snapshot`, a subscription from nothing brings one.
                    recovery.no_after = true;
                    self.set_stage(id, Stage::Rest, Instant::NEVER);
                    self.queue_subscribe(id);
                }
            }
            self.refresh(id);
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
}
