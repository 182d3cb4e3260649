//! What a socket's life does to the entities (R25–R30).

use super::*;
use crate::zoo::{self, Bug};

impl<P> Client<P> {
    pub(super) fn act(&mut self, act: Act) {
        match act {
            Act::Nothing => {}
            Act::GetToken { id, attempt } => self.emit(Output::GetToken { id, attempt }),
            Act::CancelToken { id } => {
                self.emit(Output::CancelToken { id });
                if !self.connection.is_closed() {
                    self.fault(None, Fault::TokenFailed);
                }
            }
            Act::Dial { generation } => {
                self.stats.dials += 1;
                self.emit(Output::Dial { generation });
            }
            Act::Auth => self.emit(Output::Send(Command::Auth)),
            Act::Ping { id } => self.emit(Output::Send(Command::Ping { id })),
            Act::Replace => self.replace(),
        }
    }

    /// A refresh that was under way belongs to the socket that ends; the next dial asks anew (R29).
    pub(super) fn void_token(&mut self) {
        if let Some(id) = self.connection.take_token() {
            self.emit(Output::CancelToken { id });
        }
    }

    /// The socket is silent or too slow: another one takes its place.
    pub(super) fn replace(&mut self) {
        self.stats.replaced += 1;
        self.void_token();
        if !zoo::has(Bug::KeepSocket) {
            self.emit(Output::Close { generation: self.connection.generation(), code: CLOSE_REPLACED });
        }
        let act = self.connection.replaced(self.now, &self.config, &mut self.jitter);
        self.disconnect();
        self.act(act);
    }

    pub(super) fn bad_frame(&mut self, id: Option<EntityId>) {
        self.stats.bad_frames += 1;
        self.fault(id, Fault::BadFrame);
        if self.connection.bad_frame(&self.config) {
            self.void_token();
            self.emit(Output::Close { generation: self.connection.generation(), code: CLOSE_BAD_FRAMES });
            self.connection.lost(self.now, &self.config, &mut self.jitter);
            self.disconnect();
        }
    }

    /// The page slept: deadlines that passed prove nothing. Find out whether the socket is alive.
    pub(super) fn wake(&mut self) {
        self.connection.rearm(self.now, &self.config);
        self.waves.rearm(self.now, self.now + self.config.timeout.subscribe);
        for at in 0..self.recoveries.len() {
            let Some(recovery) = &self.recoveries[at] else { continue };
            let (id, stage) = (recovery.entity, recovery.stage);
            if stage.timer().is_none_or(|due| due > self.now) {
                continue;
            }
            let replay = self.now + self.config.timeout.replay;
            match stage {
                Stage::Resume(_) => self.set_stage(id, Stage::Resume(replay)),
                Stage::Replay(Step::Out(_)) => self.set_stage(id, Stage::Replay(Step::Out(replay))),
                Stage::Snapshot(Step::Out(_)) => {
                    self.set_stage(id, Stage::Snapshot(Step::Out(self.now + self.config.timeout.snapshot)));
                }
                _ => {}
            }
        }
        self.connection.probe(self.now);
    }

    /// The socket is gone, and every question with it (R30).
    pub(super) fn disconnect(&mut self) {
        self.forget_questions();
        let mut at = 0;
        while let Some(id) = self.entities.next(&mut at) {
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
        self.to_ask_heads.clear();
        self.ready.clear();
        self.out = 0;
        self.page = None;
    }

    /// R27, `anew`: positions, buffers and ids are forgotten; what is shown, locks and the token stay.
    pub(super) fn forget_positions(&mut self) {
        if zoo::has(Bug::KeepPositionsAnew) {
            return;
        }
        self.topics.forget_cursors();
        let mut at = 0;
        while let Some(id) = self.entities.next(&mut at) {
            if !self.entities[id].is_wanted() || self.entities[id].has(Flags::FINAL) {
                continue;
            }
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
        let mut at = 0;
        while let Some(id) = self.entities.next(&mut at) {
            if self.entities[id].is_wanted() && !self.entities[id].has(Flags::FINAL) {
                return true;
            }
        }
        false
    }
}
