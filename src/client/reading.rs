//! What can be read of a client.

use super::*;

impl<P> Client<P> {
    /// How far the shown state can be trusted.
    #[must_use]
    pub fn sync(&self, id: EntityId) -> Sync {
        let entity = &self.entities[id];
        if entity.has(Flags::FINAL) {
            return Sync::Final;
        }
        let recovery = self.recovery(id);
        if recovery.is_some_and(|recovery| recovery.failed || recovery.stage == Stage::Denied) {
            return Sync::Failed;
        }
        let unnumbered = self.model(id).continuity == Continuity::None;
        if entity.position().is_none() && !(unnumbered && self.is_confirmed(id)) {
            return Sync::Joining;
        }
        if !self.connection.is_open() {
            return Sync::Stale;
        }
        // A request that waits for its pace is known to be needed, though it is not out yet.
        let troubled = |recovery: &Recovery<P>| {
            recovery.shown
                || recovery.question.blocks()
                || matches!(recovery.stage, Stage::Snapshot(Step::Wait(_)) | Stage::Error(_))
        };
        if !self.is_confirmed(id) || recovery.is_some_and(troubled) {
            return Sync::Recovering;
        }
        Sync::Live
    }

    /// Where the entity stands; `None` before its first snapshot.
    #[must_use]
    pub fn position(&self, id: EntityId) -> Option<Position> {
        self.entities[id].position()
    }

    /// The status that came last.
    #[must_use]
    pub fn status(&self, id: EntityId) -> Status {
        self.entities[id].status
    }

    /// How many events are held back for it, suspects included.
    #[must_use]
    pub fn held(&self, id: EntityId) -> usize {
        self.recovery(id).map_or(0, Recovery::held_events)
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
        self.entities.contains(id)
            && (self.entities[id].is_wanted() || self.recovery(id).is_some_and(|recovery| recovery.linger.is_some()))
    }

    #[must_use]
    pub fn connection(&self) -> ConnectionState {
        self.connection.state()
    }

    /// When the next dial is due, while offline.
    #[must_use]
    pub fn retry_at(&self) -> Option<Instant> {
        self.connection.retry_at()
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
        if !entity.is_wanted() || entity.has(Flags::FINAL) || self.connection.is_closed() {
            return true;
        }
        match self.connection.state() {
            ConnectionState::Stopped | ConnectionState::Idle | ConnectionState::Closed => {
                return true;
            }
            ConnectionState::Offline | ConnectionState::Connecting => return true,
            ConnectionState::Live => {}
        }
        if entity.wave != 0 || entity.has(Flags::QUEUED) {
            return true;
        }
        let Some(recovery) = self.recovery(id) else {
            return self.sync(id) == Sync::Live;
        };
        recovery.stage.timer().is_some()
            || recovery.stage.is_ready()
            || recovery.stage == Stage::Denied
            || self.sync(id) == Sync::Live
    }

    /// The epochs that are remembered, some of them more than once; others may be forgotten by the driver.
    #[must_use]
    pub fn epochs_in_use(&self) -> Vec<Epoch> {
        let (mut at, mut epochs) = (0, Vec::new());
        while let Some(id) = self.entities.next(&mut at) {
            epochs.push(self.entities[id].epoch);
            let Some(recovery) = self.recovery(id) else { continue };
            recovery.suspects.iter().for_each(|suspect| epochs.push(suspect.epoch));
            recovery.retired.iter().for_each(|&epoch| epochs.push(epoch));
            recovery.refuted.iter().for_each(|&(epoch, _)| epochs.push(epoch));
            epochs.push(recovery.flapping.map_or(Epoch(0), |(epoch, _)| epoch));
            epochs.push(recovery.floor.map_or(Epoch(0), |floor| floor.epoch));
        }
        epochs
    }
}
