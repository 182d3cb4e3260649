//! What a socket's life does to the entities (R25–R30).

use super::*;

impl<P> Client<P> {
    pub(super) fn act(&mut self, act: Act) {
        match act {
            Act::Nothing => {}
            Act::GetToken { id, attempt } => self.outputs.push_back(Output::GetToken { id, attempt }),
            Act::CancelToken { id } => {
                self.outputs.push_back(Output::CancelToken { id });
                if !self.connection.is_closed() {
                    self.fault(None, Fault::TokenFailed);
                }
            }
            Act::Dial { generation } => {
                self.stats.dials += 1;
                self.outputs.push_back(Output::Dial { generation });
            }
            Act::Auth => self.outputs.push_back(Output::Send(Command::Auth)),
            Act::Ping { id } => self.outputs.push_back(Output::Send(Command::Ping { id })),
            Act::Replace => self.replace(),
        }
    }

    /// A refresh that was under way belongs to the socket that ends; the next dial asks anew (R29).
    pub(super) fn void_token(&mut self) {
        if let Some(id) = self.connection.take_token() {
            self.outputs.push_back(Output::CancelToken { id });
        }
    }

    /// The socket is silent or too slow: another one takes its place.
    pub(super) fn replace(&mut self) {
        self.stats.replaced += 1;
        self.void_token();
        self.outputs.push_back(Output::Close { generation: self.connection.generation(), code: CLOSE_REPLACED });
        let act = self.connection.replaced(self.now, &self.config, &mut self.jitter);
        self.disconnect();
        self.act(act);
    }

    pub(super) fn bad_frame(&mut self, id: Option<EntityId>) {
        self.stats.bad_frames += 1;
        self.fault(id, Fault::BadFrame);
        if self.connection.bad_frame(&self.config) {
            self.void_token();
            self.outputs.push_back(Output::Close { generation: self.connection.generation(), code: CLOSE_BAD_FRAMES });
            self.connection.lost(self.now, &self.config, &mut self.jitter);
            self.disconnect();
        }
    }

    /// The page slept: deadlines that passed prove nothing. Find out whether the socket is alive.
    pub(super) fn wake(&mut self) {
        self.connection.rearm(self.now, &self.config);
        self.waves.rearm(self.now, self.now + self.config.timeout.subscribe);
        let out: Vec<EntityId> = self
            .entities
            .ids()
            .filter(|&id| {
                let stage = self.recovery(id).map(|recovery| recovery.stage);
                let deadline = matches!(
                    stage,
                    Some(Stage::Resume(_) | Stage::Replay(Step::Out(_)) | Stage::Snapshot(Step::Out(_)))
                );
                deadline && stage.and_then(Stage::timer).is_some_and(|at| at <= self.now)
            })
            .collect();
        for id in out {
            let stage = match self.recover(id).stage {
                Stage::Resume(_) => Stage::Resume(self.now + self.config.timeout.replay),
                Stage::Replay(_) => Stage::Replay(Step::Out(self.now + self.config.timeout.replay)),
                _ => Stage::Snapshot(Step::Out(self.now + self.config.timeout.snapshot)),
            };
            self.set_stage(id, stage);
        }
        self.connection.probe(self.now);
    }

    /// The socket is gone, and every question with it (R30).
    pub(super) fn disconnect(&mut self) {
        self.forget_questions();
        let ids: Vec<EntityId> = self.entities.ids().collect();
        for id in ids {
            let entity = &mut self.entities[id];
            entity.wave = 0;
            for flag in [Flags::SENT, Flags::QUEUED, Flags::CLEAR, Flags::MOVED] {
                entity.flags.set(flag, false);
            }
            if let Some(recovery) = self.recovery_mut(id) {
                let whole = core::mem::take(&mut recovery.whole);
                recovery.disconnect();
                self.discard_all(whole);
                self.note_bytes(id);
                self.trim(id);
            }
            self.refresh(id);
        }
    }

    pub(super) fn forget_questions(&mut self) {
        self.waves.clear();
        self.topics.disconnect();
        self.to_subscribe.clear();
        self.to_reask.clear();
        self.to_ask_heads.clear();
        self.ready.clear();
        self.out = 0;
        self.page = None;
    }

    /// R27, `anew`: positions, buffers and ids are forgotten; what is shown, locks and the token stay.
    pub(super) fn forget_positions(&mut self) {
        self.topics.forget_cursors();
        let ids: Vec<EntityId> = self
            .entities
            .ids()
            .filter(|&id| self.entities[id].is_wanted() && !self.entities[id].has(Flags::FINAL))
            .collect();
        for id in ids {
            self.drop_history(id);
            let placed = self.entities[id].position().is_some();
            let recovery = self.recover(id);
            let suspects = core::mem::take(&mut recovery.suspects);
            recovery.retired.clear();
            recovery.refuted.clear();
            if placed {
                recovery.question = Question::Anew;
                recovery.wants_snapshot = true;
            }
            suspects.into_iter().for_each(|suspect| self.discard_all(suspect.held));
            self.note_bytes(id);
        }
    }

    /// Whether anything wanted may still change.
    pub(super) fn is_unfinished(&self) -> bool {
        self.entities.ids().any(|id| self.entities[id].is_wanted() && !self.entities[id].has(Flags::FINAL))
    }
}
