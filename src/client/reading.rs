//! What can be read of a client.

use super::*;

impl<P> Client<P> {
    /// How far the shown state can be trusted.
    #[must_use]
    #[inline(never)]
    pub fn sync(&self, id: EntityId) -> Sync {
        let entity = &self.entities[id];
        let (mut failed, mut troubled) = (false, false);
        if let Some(recovery) = &entity.recovery {
            let stage = recovery.stage;
            failed = recovery.failed || stage == Stage::Denied;
            // A request that waits for its pace is known to be needed, though it is not out yet.
            troubled = recovery.asked.shown
                || recovery.question.blocks()
                || matches!(stage, Stage::SnapshotWait | Stage::Error);
        }
        let confirmed = self.is_confirmed(id);
        if entity.has(Flags::FINAL) {
            Sync::Final
        } else if failed {
            Sync::Failed
        } else if !(entity.has(Flags::PLACED) || confirmed && self.model(id).continuity == Continuity::None) {
            Sync::Joining
        } else if !self.connection.is_open() {
            Sync::Stale
        } else if !confirmed || troubled {
            Sync::Recovering
        } else {
            Sync::Live
        }
    }

    /// Where the entity stands; `None` before its first snapshot.
    #[must_use]
    pub fn position(&self, id: EntityId) -> Option<Position> {
        self.entities[id].position()
    }

    /// The status that came last.
    #[must_use]
    pub fn status(&self, id: EntityId) -> Status {
        let entity = &self.entities[id];
        if entity.has(Flags::FLOORED) { Status::NONE } else { entity.status }
    }

    /// How many events are held back for it, suspects included.
    #[must_use]
    pub fn held(&self, id: EntityId) -> usize {
        self.entities[id].recovery.as_ref().map_or(0, |recovery| recovery.held.len())
    }

    /// Bytes of frame text held back over all entities.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    #[must_use]
    pub fn is_final(&self, id: EntityId) -> bool {
        self.entities[id].has(Flags::FINAL)
    }

    /// Whether frames of it are for somebody: subscribed, a member of a topic, or lingering.
    #[must_use]
    pub fn is_wanted(&self, id: EntityId) -> bool {
        self.entities[id].is_kept()
    }

    #[must_use]
    pub fn connection(&self) -> ConnectionState {
        self.connection.state()
    }

    /// When the next dial is due, while offline.
    #[must_use]
    pub fn retry_at(&self) -> Option<Instant> {
        self.connection.retry_at().armed()
    }

    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Entities with a recovery request out (R20).
    #[must_use]
    pub fn requests_out(&self) -> usize {
        self.out
    }

    /// Whether it is satisfied, at rest for good, or something will happen to it by itself (R23).
    ///
    /// Holds for every entity whenever [`Client::poll_output`] has answered `None`.
    #[must_use]
    pub fn is_cared_for(&self, id: EntityId) -> bool {
        let entity = &self.entities[id];
        let stage = entity.stage();
        let timed = entity.recovery.as_ref().is_some_and(|recovery| recovery.timer() != Instant::NEVER);
        !entity.is_wanted()
            || entity.has(Flags::FINAL)
            || self.connection.state() != ConnectionState::Live
            || entity.is_asked()
            || timed
            || stage.is_ready()
            || stage == Stage::Denied
            || self.sync(id) == Sync::Live
    }

    /// The epochs that are remembered, some of them more than once; others may be forgotten by the driver.
    #[must_use]
    pub fn epochs_in_use(&self) -> Vec<Epoch> {
        let mut epochs = Vec::new();
        each!(self, id, {
            let entity = &self.entities[id];
            epochs.push(entity.epoch);
            if let Some(recovery) = &entity.recovery {
                epochs.push(recovery.flapping);
                epochs.push(recovery.fault.epoch);
                for other in &recovery.others {
                    epochs.push(other.epoch);
                }
            }
        });
        epochs
    }
}
