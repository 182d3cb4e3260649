//! What a socket's life does to the entities (R25–R30).

use super::*;

impl<P> Client<P> {
    #[inline(never)]
    pub(super) fn act(&mut self, act: Act) {
        let Connection { generation, token, ping, attempts, .. } = self.connection;
        match act {
            Act::Nothing => {}
            Act::GetToken => {
                self.emit(Kind::GetToken, token, attempts);
            }
            Act::CancelToken => {
                self.emit(Kind::CancelToken, token, 0);
                self.fault(NOBODY, Fault::TokenFailed);
            }
            Act::Dial => {
                self.stats.dials += 1;
                self.emit(Kind::Dial, generation, 0);
            }
            Act::Auth => {
                self.send(Sent::Auth, 0, NOBODY);
            }
            Act::Ping => {
                self.send(Sent::Ping, ping, NOBODY);
            }
            Act::Replace => {
                // The socket is silent or too slow: another one takes its place.
                self.stats.replaced += 1;
                if !zoo::has(Bug::KeepSocket) {
                    self.close_socket(CLOSE_REPLACED);
                }
                let act = self.connection.replaced(self.now, &self.config, &mut self.jitter);
                self.disconnect();
                self.act(act);
            }
        }
    }

    /// A refresh that was under way belongs to the socket that ends; the next dial asks anew (R29).
    #[inline(never)]
    pub(super) fn void_token(&mut self) {
        if self.connection.void_token() {
            self.emit(Kind::CancelToken, self.connection.token, 0);
        }
    }

    /// Has the socket closed, if there is one.
    #[inline(never)]
    pub(super) fn close_socket(&mut self, code: u16) -> bool {
        self.void_token();
        let has_socket = self.connection.has_socket();
        if has_socket {
            self.emit(Kind::Close, self.connection.generation, u32::from(code));
        }
        has_socket
    }

    #[inline(never)]
    pub(super) fn bad_frame(&mut self, id: EntityId) {
        self.stats.bad_frames += 1;
        self.fault(id, Fault::BadFrame);
        if self.connection.bad_frame(&self.config) {
            self.close_socket(CLOSE_BAD_FRAMES);
            self.connection.lost(self.now, &self.config, &mut self.jitter);
            self.disconnect();
        }
    }

    #[inline(never)]
    pub(super) fn shorten(&mut self) {
        let act = self.connection.shorten(self.now, &self.config);
        self.act(act);
    }

    /// The page slept: deadlines that passed prove nothing. Find out whether the socket is alive.
    #[inline(never)]
    pub(super) fn wake(&mut self) {
        self.connection.rearm(self.now, &self.config);
        self.waves.rearm(self.now, self.now + self.config.timeout.subscribe);
        for &id in &self.listed {
            if let Some(recovery) = &mut self.entities[id].recovery
                && recovery.stage.is_awaited()
                && recovery.due <= self.now
            {
                let timeout = &self.config.timeout;
                let wait = if recovery.stage == Stage::SnapshotOut { timeout.snapshot } else { timeout.replay };
                recovery.due = self.now + wait;
            }
        }
        self.connection.probe(self.now);
    }

    /// The socket is gone, and every question with it (R30).
    #[inline(never)]
    pub(super) fn disconnect(&mut self) {
        self.forget_questions();
        each!(self, id, {
            let entity = &mut self.entities[id];
            entity.wave = 0;
            entity.clear(Flags::SENT.and(Flags::QUEUED).and(Flags::CLEAR).and(Flags::MOVED));
            if let Some(recovery) = &mut entity.recovery {
                recovery.disconnect();
                self.drop_held(id, Which::Whole);
                self.trim(id);
            }
            self.refresh(id);
        });
    }

    #[inline(never)]
    pub(super) fn forget_questions(&mut self) {
        self.waves.clear();
        self.to_subscribe.clear();
        self.to_ask_heads.clear();
        self.out = 0;
        self.page = NOBODY;
        for topic in &mut self.topics.topics {
            topic.request = 0;
        }
    }

    /// R27, `anew`: positions, buffers and ids are forgotten; what is shown, locks and the token stay.
    pub(super) fn forget_positions(&mut self) {
        if zoo::has(Bug::KeepPositionsAnew) {
            return;
        }
        for topic in &mut self.topics.topics {
            topic.cursor = false;
        }
        each!(self, id, {
            let entity = &self.entities[id];
            if !entity.is_wanted() || entity.has(Flags::FINAL) {
                continue;
            }
            self.drop_history(id);
            self.drop_held(id, Which::All);
            let entity = &mut self.entities[id];
            let placed = entity.has(Flags::PLACED);
            if let Some(recovery) = &mut entity.recovery {
                recovery.others.clear();
            }
            if placed {
                entity.recover().question = Question::Anew;
                self.want_snapshot(id);
            }
        });
    }

    /// Whether anything wanted may still change.
    pub(super) fn is_unfinished(&self) -> bool {
        each!(self, id, {
            if self.entities[id].is_wanted() && !self.entities[id].has(Flags::FINAL) {
                return true;
            }
        });
        false
    }
}
