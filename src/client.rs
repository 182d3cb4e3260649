//! The client: everything that comes in, everything that goes out, and the only place that decides.
//!
//! Call a `handle_*` for what happened, then [`Client::poll_output`] until it answers `None`, then arm one
//! timer for [`Client::poll_timeout`]. Inputs cannot fail: what is wrong becomes an [`Output::Fault`].

/// Runs a block for every entity in use. It may change the table.
macro_rules! each {
    ($client:ident, $id:ident, $block:block) => {
        let mut next = 0;
        loop {
            let $id = $client.entities.next(next);
            if $id == NOBODY {
                break;
            }
            next = $id.0 + 1;
            $block
        }
    };
}

/// Runs a block for every member of a topic. It may not change who they are.
macro_rules! members {
    ($client:ident, $topic:ident, $member:ident, $block:block) => {
        let mut next = 0;
        while let Some(&$member) = $client.topics.members($topic).get(next) {
            next += 1;
            $block
        }
    };
}

mod accept;
mod commands;
mod events;
mod ladder;
mod reading;
mod snapshots;
mod sockets;
mod subscriptions;

use crate::config::{
    AGREEING_ANSWERS, CLOSE_BAD_FRAMES, CLOSE_NORMAL, CLOSE_REPLACED, Config, Continuity, DIVERGED_PACE,
    FAR_AHEAD_PACE, HELD_BYTES, MAX_SEQ, Model, OnGap, RELEASED_FINALS, RETRY_AFTER_CAP, Reopen, SNAPSHOT_CAP,
    SNAPSHOT_TRIES, WAKE_AFTER,
};
use crate::connection::{Act, Connection};
pub use crate::connection::{Can, CloseClass, ConnectionState};
use crate::entity::{Entities, Flags, NOBODY, Numbers, Reach, reach};
pub use crate::entity::{EntityId, Epoch, ModelId, Position, Seq, Status, Sync};
use crate::gap::{Held, Which};
pub use crate::ids::EventId;
use crate::ids::Ids;
pub use crate::input::{ErrorCode, Event, Snapshot};
use crate::jitter::Jitter;
pub use crate::output::{Change, ChangeKind, Command, Fault, Output, Range, Resume, Verdict};
use crate::output::{Kind, NOTHING, Out, Sent};
pub use crate::recovery::Request;
use crate::recovery::{Question, Stage, snapshot_wait};
use crate::stats::Stats;
use crate::time::{Instant, Millis};
use crate::topic::Topics;
use crate::wave::{Wave, WaveId, WaveKind, Waves};
use crate::zoo::{self, Bug};

/// Where an entity stood before the last commit, for a rollback (R36).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Undo {
    entity: EntityId,
    epoch: Epoch,
    last: Seq,
    status: Status,
    flags: Flags,
    /// The number that was committed.
    seq: Seq,
    /// The commit declared a history void, whose ids are kept aside.
    voids: bool,
}

/// A `subscribe` to be sent, or repeated under its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asking {
    /// 0: it was not sent before.
    request: Request,
    tries: u8,
    entities: Vec<EntityId>,
}

/// Consistent state from an inconsistent WebSocket, without the WebSocket.
///
/// The fields stand in the order in which they are needed: nearby ones cost a byte less at each of a thousand places.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Client<P> {
    entities: Entities<P>,
    now: Instant,
    waves: Waves,
    outputs: Vec<Out<P>>,
    /// How many of them were handed over.
    polled: usize,
    /// Entities to look at: pull what fits, then see what is missing.
    draining: Vec<EntityId>,
    /// How many of them were looked at.
    drained: usize,
    /// Not later than the first timer of an entity.
    timer: Instant,
    /// Entities with a recovery request out (R20).
    out: usize,
    requests: Request,
    held_bytes: u64,
    stats: Stats,
    connection: Connection,
    config: Config,
    jitter: Jitter,
    models: Vec<Model>,
    /// Entities whose recovery may have a timer, wait for a slot, or hold events.
    listed: Vec<EntityId>,
    topics: Topics,
    reported: (ConnectionState, Instant),
    /// The entity whose replay page is being read.
    page: EntityId,
    undo: Undo,
    /// The ids of the history that the last commit declared void.
    void_ids: Option<Box<Ids>>,
    to_subscribe: Vec<Asking>,
    to_unsubscribe: Vec<EntityId>,
    to_ask_heads: Vec<EntityId>,
    /// Released finals, oldest first (R31).
    released: Vec<EntityId>,
    reconcile_at: Instant,
}

/// What the application and the driver call.
impl<P> Client<P> {
    /// A client that has not dialed yet. `seed` spreads its waits; give every client another.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Client::with(config, seed)
    }

    /// The same, as a constant.
    pub(crate) const fn with(config: Config, seed: u64) -> Self {
        Client {
            entities: Entities::NONE,
            now: Instant(0),
            waves: Waves::NONE,
            outputs: Vec::new(),
            polled: 0,
            draining: Vec::new(),
            drained: 0,
            timer: Instant::NEVER,
            out: 0,
            requests: 0,
            held_bytes: 0,
            stats: Stats::ZERO,
            connection: Connection::IDLE,
            config,
            jitter: Jitter::new(seed),
            models: Vec::new(),
            listed: Vec::new(),
            topics: Topics::NONE,
            reported: (ConnectionState::Idle, Instant::NEVER),
            page: NOBODY,
            undo: Undo {
                entity: NOBODY,
                epoch: Epoch(0),
                last: 0,
                status: Status::NONE,
                flags: Flags::NONE,
                seq: 0,
                voids: false,
            },
            void_ids: None,
            to_subscribe: Vec::new(),
            to_unsubscribe: Vec::new(),
            to_ask_heads: Vec::new(),
            released: Vec::new(),
            reconcile_at: Instant::NEVER,
        }
    }

    /// The options of a new client, to be filled.
    #[cfg(target_arch = "wasm32")]
    pub(crate) fn configure(&mut self, seed: u64) -> &mut Config {
        self.jitter = Jitter::new(seed);
        &mut self.config
    }

    /// Declares a model. At most 256 fit; further ones share the last number.
    pub fn add_model(&mut self, model: Model) -> ModelId {
        if self.models.len() < usize::from(u8::MAX) + 1 {
            self.models.push(model);
        }
        ModelId((self.models.len() - 1) as u8)
    }

    /// Makes an entity known, without wanting it yet. The driver keeps its name until [`Output::Forgotten`].
    pub fn add_entity(&mut self, model: ModelId) -> EntityId {
        self.entities.add(model)
    }

    /// Gives a new entity the position that was committed before a trap (R38). Call it right after `add_entity`.
    pub fn restore(&mut self, now: Instant, id: EntityId, position: Option<Position>, status: Status, is_final: bool) {
        self.tick(now);
        let entity = &mut self.entities[id];
        if !entity.has(Flags::USED) {
            return;
        }
        if let Some(position) = position {
            entity.move_to(position.epoch, position.seq);
            entity.sync = Sync::Stale;
        }
        entity.status = status;
        if is_final {
            entity.set(Flags::FINAL.and(Flags::ENDED));
            entity.sync = Sync::Final;
        }
    }

    /// Dials, if nothing is under way: also after a close code that said stop, and without waiting for the next try.
    pub fn connect(&mut self, now: Instant) {
        self.tick(now);
        let act = self.connection.connect(self.now, &self.config);
        self.act(act);
    }

    /// Closes for good. What is queued is void; later calls and inputs do nothing.
    pub fn close(&mut self, now: Instant) {
        self.tick(now);
        if self.connection.is_closed() {
            return;
        }
        self.outputs.clear();
        self.polled = 0;
        self.close_socket(CLOSE_NORMAL);
        self.connection.close();
        self.forget_questions();
        self.timer = Instant::NEVER;
        self.draining.clear();
        self.drained = 0;
    }

    /// Somebody wants this entity. Call it when the first subscriber comes.
    pub fn subscribe(&mut self, now: Instant, id: EntityId) {
        self.tick(now);
        let entity = &self.entities[id];
        if self.connection.is_closed() || !entity.has(Flags::USED) || entity.has(Flags::SUBSCRIBED) {
            return;
        }
        let was_wanted = self.want(id);
        let entity = &mut self.entities[id];
        entity.set(Flags::SUBSCRIBED);
        if entity.stage() == Stage::Denied {
            entity.clear(Flags::SENT);
            self.rest(id);
        }
        if !was_wanted {
            self.cover(id);
        }
        self.touch(id);
        let act = self.connection.want(self.now, &self.config);
        self.act(act);
    }

    /// Nobody wants this entity any more. Call it when the last subscriber left.
    pub fn unsubscribe(&mut self, now: Instant, id: EntityId) {
        self.tick(now);
        let entity = &mut self.entities[id];
        if !self.connection.is_closed() && entity.has(Flags::SUBSCRIBED) {
            entity.clear(Flags::SUBSCRIBED);
            self.abandon(id);
        }
    }

    /// Lets an entity go at once that nobody wants, without its linger and without a memory of its end.
    pub fn release(&mut self, now: Instant, id: EntityId) {
        self.tick(now);
        let entity = &self.entities[id];
        if !entity.has(Flags::USED) || entity.is_wanted() {
            return;
        }
        if !entity.has(Flags::REMEMBERED) {
            self.let_go(id);
        }
        if self.entities[id].has(Flags::REMEMBERED) {
            self.recall(id);
            if !self.to_unsubscribe.contains(&id) {
                self.forget(id);
            }
        }
    }

    /// A topic's state says that `member` is in it.
    pub fn add_member(&mut self, now: Instant, topic: EntityId, member: EntityId) {
        self.tick(now);
        if self.connection.is_closed()
            || !self.entities[topic].has(Flags::USED)
            || !self.entities[member].has(Flags::USED)
            || !self.topics.change(topic, member, true)
        {
            return;
        }
        let was_wanted = self.want(member);
        let entity = &mut self.entities[member];
        entity.topics = entity.topics.saturating_add(1);
        if !was_wanted || !entity.has(Flags::PLACED) {
            entity.set(Flags::BEHIND);
            self.await_member(topic, member);
        }
        self.touch(member);
    }

    /// A topic's state says that `member` is no longer in it.
    pub fn remove_member(&mut self, now: Instant, topic: EntityId, member: EntityId) {
        self.tick(now);
        if !self.connection.is_closed() && self.topics.change(topic, member, false) {
            self.leave_topic(member);
        }
    }

    /// The generation of the socket that counts; the driver ignores all others (R25).
    #[must_use]
    pub fn current(&self) -> u32 {
        self.connection.generation
    }

    /// The socket of this generation opened.
    pub fn handle_opened(&mut self, now: Instant, generation: u32) {
        self.tick(now);
        if !self.connection.is_current(generation) || self.connection.is_open() {
            return;
        }
        self.connection.opened(self.now);
        self.send(Sent::Hello, 0, NOBODY);
        each!(self, id, {
            if self.entities[id].is_wanted() {
                self.cover(id);
                self.touch(id);
            }
        });
    }

    /// The socket of this generation ended, or could not be opened (code 1006).
    pub fn handle_closed(&mut self, now: Instant, generation: u32, code: u16) {
        let class = self.config.codes.classify(code);
        self.handle_ended(now, generation, class);
    }

    /// The same, by the class of the code: for drivers that keep the lists of codes themselves.
    pub fn handle_ended(&mut self, now: Instant, generation: u32, class: CloseClass) {
        self.tick(now);
        if !self.connection.is_current(generation) {
            return;
        }
        self.void_token();
        match class {
            CloseClass::Normal if !self.is_unfinished() => self.connection.idle(),
            CloseClass::Auth => {
                let act = self.connection.refused(self.now, &self.config, &mut self.jitter);
                if act == Act::Nothing {
                    self.fault(NOBODY, Fault::AuthFailed);
                }
                self.act(act);
            }
            CloseClass::Stop => {
                self.connection.stop();
                self.fault(NOBODY, Fault::Stopped);
            }
            CloseClass::Resume | CloseClass::Normal | CloseClass::Anew => {
                self.connection.lost(self.now, &self.config, &mut self.jitter);
                if class == CloseClass::Anew {
                    self.forget_positions();
                }
            }
        }
        self.disconnect();
    }

    /// A message came on the current socket. Call it before its frames.
    pub fn handle_heard(&mut self, now: Instant) {
        self.tick(now);
        self.connection.heard(self.now);
    }

    /// `welcome`: how often the server promises a heartbeat, and what it can do.
    pub fn handle_welcome(&mut self, now: Instant, heartbeat: Option<Millis>, can: Can) {
        self.tick(now);
        if !self.connection.welcomed(self.now, &self.config, heartbeat, can) {
            return;
        }
        self.reconcile_at = if !can.heads && can.snapshot { self.now + self.config.reconcile } else { Instant::NEVER };
        each!(self, id, {
            if self.entities[id].recovery.is_some() {
                self.touch(id);
            }
        });
    }

    /// An event, live or of a replay's page.
    pub fn handle_event(&mut self, now: Instant, id: EntityId, event: Event, payload: P) {
        self.tick(now);
        if !self.is_followed(id) {
            self.stats.unknown += 1;
            return self.discard(payload);
        }
        let entity = &self.entities[id];
        let numbers = Numbers::read(self.model(id), event.prev, event.seq, entity.position().map(|at| at.seq));
        let mut held = Held {
            prev: entity.last,
            seq: entity.last,
            id: event.id,
            epoch: event.epoch,
            status: event.status,
            bytes: event.bytes,
            visible: event.has_data || event.status.is_some(),
            whole: false,
            payload: Some(payload),
        };
        match numbers {
            Numbers::Covers { prev, seq } => {
                held.prev = prev;
                held.seq = seq;
                self.judge(id, held);
            }
            Numbers::Restarts(seq) => {
                held.prev = seq.saturating_sub(1);
                held.seq = seq;
                self.restart(id, held);
            }
            Numbers::Arrives(seq) => self.arrive(id, seq, held),
            Numbers::StandsAt(seq) => {
                self.spend(held);
                self.stands_at(id, event.epoch, seq);
            }
            Numbers::BeforeFirst => self.repeated(held),
            Numbers::Unusable => {
                self.spend(held);
                self.bad_frame(id);
            }
        }
    }

    /// Numbers that will never exist: `vacant`, or one range of a replay's.
    pub fn handle_vacant(&mut self, now: Instant, id: EntityId, epoch: Epoch, from: Seq, to: Seq) {
        self.tick(now);
        if !self.is_followed(id) {
            self.stats.unknown += 1;
            return;
        }
        if from == 0 || from > to || to > MAX_SEQ {
            return self.bad_frame(id);
        }
        let model = self.model(id);
        if model.measures() && to - from >= self.config.max_ahead {
            // It begins near the position and would end far ahead (R12).
            return self.far_ahead(id);
        }
        if model.continuity != Continuity::None {
            self.judge(
                id,
                Held {
                    prev: from - 1,
                    seq: if zoo::has(Bug::WidenVacancies) { to + 1 } else { to },
                    id: EventId::NONE,
                    epoch,
                    status: Status::NONE,
                    bytes: 0,
                    payload: None,
                    visible: false,
                    whole: false,
                },
            );
        }
    }

    /// A whole snapshot; the codec joins parts (R17).
    pub fn handle_snapshot(&mut self, now: Instant, id: EntityId, snapshot: Snapshot, payload: P) {
        self.tick(now);
        let followed = self.is_followed(id);
        if !followed {
            self.stats.unknown += 1;
        } else if snapshot.seq > MAX_SEQ {
            self.bad_frame(id);
        } else if snapshot.request.is_some_and(|request| !self.awaits_snapshot(id, request)) {
            self.stats.unwanted += 1;
        } else {
            return self.judge_snapshot(id, snapshot, payload);
        }
        self.discard(payload);
    }

    /// A part of a snapshot came: its deadline starts again. False: nobody waits for it, drop it (R18).
    pub fn handle_part(&mut self, now: Instant, id: EntityId, request: Option<Request>) -> bool {
        self.tick(now);
        if !self.is_followed(id) {
            return false;
        }
        let Some(request) = request else { return true };
        if !self.awaits_snapshot(id, request) {
            return false;
        }
        if self.entities[id].stage() == Stage::SnapshotOut {
            self.await_snapshot(id);
        } else if let Some(&wave) = self.waves.get(self.entities[id].wave) {
            // A wave of its own, so that one large snapshot does not keep the others waiting.
            self.join_wave(id, Wave { deadline: self.now + self.config.timeout.subscribe, tries: 0, ..wave });
        }
        true
    }

    /// `subscribed`: the head of an entity that was subscribed.
    pub fn handle_subscribed(&mut self, now: Instant, id: EntityId, request: Request, epoch: Epoch, head: Seq) {
        self.tick(now);
        if !self.is_followed(id) || !self.wave_is(id, request) {
            self.stats.unwanted += 1;
            return;
        }
        if head > MAX_SEQ {
            return self.bad_frame(id);
        }
        let entity = &self.entities[id];
        if !entity.has(Flags::PLACED) {
            if self.model(id).continuity == Continuity::None {
                self.set_wave(id, 0);
                self.touch(id);
            }
            return; // the snapshot follows
        }
        let own = epoch == entity.epoch;
        if entity.has(Flags::FINAL) {
            if own {
                self.set_wave(id, 0);
            }
        } else if self.is_retired(id, epoch) {
            self.set_wave(id, 0);
            self.want_snapshot(id);
        } else if own && head > entity.last && !zoo::has(Bug::ConfirmAnyHead) {
            self.note_head(id, head); // its pages follow
        } else if own {
            self.set_wave(id, 0);
            self.stands(id, head);
        }
    }

    /// Begins a replay's page. False: nobody waits for it, and its events must be ignored (R18).
    ///
    /// Then `handle_vacant` and `handle_event` for what it holds, then [`Client::end_replay`].
    #[must_use]
    pub fn begin_replay(&mut self, now: Instant, id: EntityId, request: Request) -> bool {
        self.tick(now);
        if !self.is_followed(id) {
            self.stats.unknown += 1;
            return false;
        }
        let resumed = self.wave_is(id, request);
        if resumed {
            self.set_wave(id, 0);
        }
        let recovery = self.entities[id].recover();
        if !resumed && (recovery.asked.replay != request || request == 0) {
            self.stats.unwanted += 1;
            self.trim(id);
            return false;
        }
        recovery.asked.paged = true;
        let mut stage = recovery.stage;
        if resumed {
            recovery.asked.replay = request;
            recovery.asked.to = Seq::MAX;
            recovery.asked.tries = 0;
            recovery.asked.confirms = true;
            // A snapshot that is under way is not given up for it.
            if !stage.is_snapshot() {
                stage = Stage::Resume;
            }
        }
        if matches!(stage, Stage::Resume | Stage::ReplayOut) {
            self.set_stage(id, stage, self.now + self.config.timeout.replay);
        }
        self.page = id;
        self.touch(id);
        true
    }

    /// Ends a replay's page. `done`: it was the last.
    pub fn end_replay(&mut self, now: Instant, id: EntityId, request: Request, done: bool) {
        self.tick(now);
        self.page = NOBODY;
        if !self.is_followed(id) {
            return;
        }
        let Some(recovery) = &mut self.entities[id].recovery else { return };
        if recovery.asked.replay != request || request == 0 {
            // It was given up in the middle of the page.
            return self.touch(id);
        }
        if !done {
            return;
        }
        recovery.asked.done = true;
        // What a whole replay brought counts from now on.
        while let Some(held) = self.unhold(id, Which::Whole) {
            self.hold(id, Held { whole: false, ..held });
        }
        self.touch(id);
    }

    /// `gone`: what follows the position was trimmed.
    pub fn handle_gone(&mut self, now: Instant, id: EntityId, request: Request) {
        self.tick(now);
        if self.answers_replay(id, request) {
            self.end_ask(id);
            self.entities[id].recover().no_after = true;
            self.want_snapshot(id);
        }
    }

    /// `ahead`: the position is above the server's head.
    pub fn handle_ahead(&mut self, now: Instant, id: EntityId, request: Request, epoch: Epoch, head: Seq) {
        self.tick(now);
        if !self.answers_replay(id, request) {
            return;
        }
        self.end_ask(id);
        let entity = &self.entities[id];
        if entity.has(Flags::PLACED) && entity.epoch != epoch {
            self.suspect_epoch(id, epoch);
        } else if self.is_lagging(id, head) {
            self.lags(id);
        } else {
            self.want_snapshot(id);
        }
    }

    /// `final`: nothing follows; the entity locks where it stands.
    pub fn handle_final(
        &mut self,
        now: Instant,
        id: EntityId,
        request: Request,
        epoch: Epoch,
        status: Status,
        payload: Option<P>,
    ) {
        self.tick(now);
        let entity = &self.entities[id];
        let (other, floored) = (entity.epoch != epoch, entity.has(Flags::FLOORED));
        if !self.is_followed(id) || entity.has(Flags::FINAL) || !self.asked_for(id, request) {
            self.stats.unwanted += 1;
        } else if entity.has(Flags::PLACED) && other {
            self.end_ask(id);
            self.suspect_epoch(id, epoch);
        } else if floored && (other || entity.status != status) {
            self.lock_on_floor(id);
        } else {
            let last = entity.last;
            self.note_undo(id, last);
            let entity = &mut self.entities[id];
            entity.clear(Flags::FLOORED);
            entity.move_to(epoch, last);
            if status.is_some() {
                entity.status = status;
            }
            self.end_ask(id);
            self.show(id, ChangeKind::Snapshot, epoch, last, status, payload).locks = true;
            return;
        }
        self.discard_maybe(payload);
    }

    /// The head of one entity: of a heartbeat, or of the answer to `heads`.
    pub fn handle_head(&mut self, now: Instant, id: EntityId, epoch: Epoch, head: Seq, request: Option<Request>) {
        self.tick(now);
        if !self.is_followed(id) {
            return;
        }
        if head > MAX_SEQ {
            return self.bad_frame(id);
        }
        if let Some(request) = request {
            if !self.wave_is(id, request) {
                self.stats.unwanted += 1;
                return;
            }
            self.set_wave(id, 0);
            self.touch(id);
        }
        let entity = &self.entities[id];
        let (own, last) = (entity.epoch == epoch, entity.last);
        if !entity.has(Flags::PLACED)
            || entity.has(Flags::FINAL) && (own || !self.reopens(id))
            || self.model(id).continuity == Continuity::None
        {
            return;
        }
        if !own {
            self.suspect_epoch(id, epoch);
        } else if head > last {
            self.note_head(id, head);
        } else if request.is_some() {
            self.stands(id, head);
        }
    }

    /// The answer to `heads` is complete: who was not named is asked for by a snapshot.
    pub fn end_heads(&mut self, now: Instant, request: Request) {
        self.tick(now);
        each!(self, id, {
            if self.wave_is(id, request) && self.waits_for(id, WaveKind::Heads) {
                self.set_wave(id, 0);
                self.want_snapshot(id);
            }
        });
    }

    /// A cursor for the topic came: all that it covers was sent before it on this socket.
    ///
    /// That of a `subscribed` frame is handed over before [`Client::handle_subscribed`]: what follows it is still
    /// to come, and confirms no member.
    pub fn handle_cursor(&mut self, now: Instant, topic: EntityId) {
        self.tick(now);
        if !self.is_followed(topic) {
            return;
        }
        // While the topic itself is in doubt, so is who its members are: the cursor covers more than we know.
        let vouches = self.sync(topic) == Sync::Live || zoo::has(Bug::TrustCursors);
        self.topics.note(topic).cursor = vouches;
        if !vouches {
            return;
        }
        members!(self, topic, member, {
            let entity = &self.entities[member];
            // Who was named in `behind` gets an answer of its own, which may come after the cursor.
            if entity.has(Flags::PLACED)
                && (!entity.has(Flags::BEHIND) || zoo::has(Bug::TrustCursors))
                && self.waits_for(member, WaveKind::Member)
            {
                self.set_wave(member, 0);
                self.confirm(member);
                self.settle(member);
            }
            let entity = &mut self.entities[member];
            entity.clear(Flags::BEHIND);
            // What is missing is shown after its grace, but the cursor covers it already.
            if !matches!(entity.sync, Sync::Live | Sync::Final) || !entity.lacks_nothing() {
                entity.set(Flags::BEHIND);
            }
        });
    }

    /// Continuity was lost, for one entity or for all: ask where things stand (R21).
    pub fn handle_discontinuity(&mut self, now: Instant, id: Option<EntityId>) {
        self.tick(now);
        match id {
            Some(id) => self.doubt(id),
            None => self.doubt_all(),
        }
    }

    /// An `error` frame.
    pub fn handle_error(
        &mut self,
        now: Instant,
        code: ErrorCode,
        request: Option<Request>,
        id: Option<EntityId>,
        retry_after: Option<Millis>,
    ) {
        self.tick(now);
        if code == ErrorCode::TokenExpiring {
            let act = self.connection.refresh(self.now, &self.config);
            return self.act(act);
        }
        let asked = request.unwrap_or_default();
        if let Some(id) = id {
            if self.is_followed(id) && (request.is_none() || self.asked_for(id, asked)) {
                self.refused(id, code, retry_after);
            }
        } else if request.is_some() {
            each!(self, id, {
                if self.asked_for(id, asked) {
                    self.refused(id, code, retry_after);
                }
            });
        } else {
            self.handle_goodbye(now, retry_after);
            self.fault(NOBODY, Fault::Server);
        }
    }

    /// `goodbye`: the server will close; it may ask for a wait before the next dial.
    pub fn handle_goodbye(&mut self, now: Instant, retry_after: Option<Millis>) {
        self.tick(now);
        if let Some(wait) = retry_after {
            self.connection.retry_after(self.now, wait);
        }
    }

    /// `pong`.
    pub fn handle_pong(&mut self, now: Instant, id: u32) {
        self.tick(now);
        self.connection.pong(id);
    }

    /// The field `n` of any frame: +1 per socket (R21).
    pub fn handle_count(&mut self, now: Instant, n: u64) {
        self.tick(now);
        if self.connection.counted(n) {
            self.doubt_all();
        }
    }

    /// A frame could not be read. Too many on one socket close it (R11).
    pub fn handle_bad_frame(&mut self, now: Instant) {
        self.tick(now);
        self.bad_frame(NOBODY);
    }

    /// A frame of a name that nobody wants (R39).
    pub fn handle_unknown(&mut self) {
        self.stats.unknown += 1;
    }

    /// `getToken` answered, or failed. A late answer is void (R29).
    pub fn handle_token(&mut self, now: Instant, id: u32, ok: bool) {
        self.tick(now);
        let (act, failed) = self.connection.token_came(self.now, &self.config, &mut self.jitter, id, ok);
        if failed {
            self.fault(NOBODY, Fault::TokenFailed);
        }
        self.act(act);
    }

    /// The page may have slept: the browser said `resume`, or wall and monotonic clock parted.
    pub fn handle_wake(&mut self, now: Instant) {
        self.tick(now);
        self.wake();
    }

    /// The page became visible.
    pub fn handle_visible(&mut self, now: Instant) {
        self.handle_wake(now);
        self.shorten();
    }

    /// The browser believes to be online: a hint.
    pub fn handle_online(&mut self, now: Instant) {
        self.handle_offline(now);
        self.shorten();
    }

    /// The browser believes to be offline: a hint.
    pub fn handle_offline(&mut self, now: Instant) {
        self.tick(now);
        self.connection.probe(self.now);
    }

    /// The page is put into the back/forward cache, which an open socket would prevent.
    pub fn handle_pagehide(&mut self, now: Instant) {
        self.tick(now);
        let had_socket = self.close_socket(CLOSE_REPLACED);
        self.connection.freeze();
        if had_socket {
            self.disconnect();
        }
    }

    /// The page is shown, perhaps out of the back/forward cache.
    pub fn handle_pageshow(&mut self, now: Instant) {
        self.handle_visible(now);
    }

    /// When [`Client::handle_timeout`] wants to be called; to be read again after every drain of the outputs.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.connection.is_closed() {
            return None;
        }
        let mut at = self.connection.poll_timeout().min(self.timer);
        if self.connection.is_live() {
            at = at.min(self.reconcile_at);
        }
        if self.connection.is_open() {
            at = self.waves.first().map_or(at, |(due, _)| at.min(due));
        }
        at.armed()
    }

    /// Time passed. Spurious calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.tick(now);
        if self.connection.is_closed() {
            return;
        }
        if self.poll_timeout().is_some_and(|due| self.now.since(due) > WAKE_AFTER) {
            self.wake();
        }
        loop {
            match self.connection.handle_timeout(self.now, &self.config, &mut self.jitter) {
                Act::Nothing => break,
                act => self.act(act),
            }
        }
        while let Some((due, wave)) = self.waves.first()
            && due <= self.now
        {
            self.wave_timed_out(wave);
        }
        if self.timer <= self.now {
            self.fire_all();
        }
        if self.connection.is_live() && self.reconcile_at <= self.now {
            self.reconcile_at = self.now + self.config.reconcile;
            self.reconcile();
        }
    }

    /// The change that was just handed over is terminal: the entity is final (R8).
    pub fn lock(&mut self, now: Instant, id: EntityId) {
        self.tick(now);
        let entity = &self.entities[id];
        if !entity.has(Flags::USED) || entity.has(Flags::FINAL) {
            return;
        }
        self.set_wave(id, 0);
        self.rest(id);
        self.drop_held(id, Which::All);
        self.drop_suspicions(id);
        if let Some(recovery) = &mut self.entities[id].recovery {
            recovery.wants_snapshot = false;
            recovery.question = Question::None;
            recovery.faults = 0;
        }
        self.trim(id);
        let reopens = self.reopens(id);
        let entity = &mut self.entities[id];
        if !zoo::has(Bug::ForgetLock) {
            entity.set(Flags::FINAL);
        }
        entity.clear(Flags::CLEAR);
        if !reopens {
            entity.clear(Flags::QUEUED);
        }
        if !entity.has(Flags::ENDED) {
            entity.set(Flags::ENDED);
            self.emit(Kind::Final, id.0, 0);
        }
        self.refresh(id);
    }

    /// The change that was just handed over could not be reduced: its position is taken back (R36).
    ///
    /// `event` gives an event back, to be held; `None` for a snapshot.
    pub fn rollback(&mut self, now: Instant, id: EntityId, event: Option<(Event, P)>) {
        self.tick(now);
        let undo = self.undo;
        self.undo.entity = NOBODY;
        if undo.entity != id {
            return self.discard_maybe(event.map(|(_, payload)| payload));
        }
        const KEPT: Flags = Flags::PLACED.and(Flags::FINAL).and(Flags::FLOORED).and(Flags::ENDED);
        let entity = &mut self.entities[id];
        if undo.voids {
            entity.ids = self.void_ids.take();
        } else if event.is_some()
            && let Some(ids) = &mut entity.ids
        {
            ids.take_back(undo.seq);
        }
        let adopted = entity.epoch;
        let unnumbered = model_in(&self.models, entity.model).continuity == Continuity::None;
        if !zoo::has(Bug::RollBackNothing) {
            entity.epoch = undo.epoch;
            entity.last = undo.last;
        }
        entity.status = undo.status;
        entity.clear(Flags::CLEAR.and(KEPT));
        entity.set(undo.flags.intersection(KEPT));
        let own = entity.own();
        let recovery = entity.recover();
        recovery.forget(own);
        if adopted != own && recovery.held.has(adopted) {
            // What was held of the epoch that was taken back is under suspicion again.
            recovery.forget(adopted);
            recovery.suspect(adopted);
        }
        recovery.faults = recovery.faults.saturating_add(1);
        // Where numbers mean nothing, none has to be passed.
        recovery.fault = Position { epoch: adopted, seq: if unnumbered { 0 } else { undo.seq } };
        recovery.question = if own == Epoch::NONE { Question::None } else { Question::Fault };
        recovery.wants_snapshot = true;
        if event.is_none() && adopted == own {
            // Its number exists.
            recovery.asked.head = recovery.asked.head.max(undo.seq);
        }
        let given_up = recovery.faults >= AGREEING_ANSWERS;
        if let Some((event, payload)) = event {
            self.stats.applied = self.stats.applied.saturating_sub(1);
            let again = Held {
                prev: event.prev.unwrap_or(undo.last),
                seq: undo.seq,
                id: event.id,
                epoch: own,
                status: event.status,
                bytes: event.bytes,
                payload: Some(payload),
                visible: true,
                whole: false,
            };
            if unnumbered {
                // Its numbers mean nothing; the snapshot has what it would have changed.
                self.spend(again);
            } else {
                self.hold(id, again);
                self.bound(id);
            }
        } else {
            self.stats.adopted = self.stats.adopted.saturating_sub(1);
        }
        if given_up {
            self.give_up(id);
        }
        self.touch(id);
    }

    /// The next thing to do. Call it until it answers `None` after every other call.
    #[must_use]
    pub fn poll_output(&mut self, now: Instant) -> Option<Output<P>> {
        let out = self.poll(now)?;
        if out.kind == Kind::Send {
            out.command(&mut self.outputs, self.polled).map(Output::Send)
        } else {
            out.output()
        }
    }

    /// The same, as the numbers that it is made of.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Out<P>> {
        self.tick(now);
        loop {
            if let Some(out) = self.outputs.get_mut(self.polled) {
                self.polled += 1;
                return Some(core::mem::take(out));
            }
            self.outputs.clear();
            self.polled = 0;
            if let Some(&id) = self.draining.get(self.drained) {
                self.pull(id);
                if self.outputs.is_empty() {
                    self.drained += 1;
                    self.entities[id].clear(Flags::DRAINING);
                    self.settle(id);
                }
                continue;
            }
            self.draining.clear();
            self.drained = 0;
            let (state, retry_at) = (self.connection.state(), self.connection.retry_at());
            if (state, retry_at) != self.reported {
                self.reported = (state, retry_at);
                self.emit(Kind::Connection, 0, state as u32).from = retry_at.0;
                continue;
            }
            self.flush();
            if self.outputs.is_empty() && self.draining.is_empty() {
                return None;
            }
        }
    }
}

/// Small things.
impl<P> Client<P> {
    /// Notes the time. In a browser the driver does it, once for each entry.
    #[inline]
    fn tick(&mut self, now: Instant) {
        if cfg!(not(target_arch = "wasm32")) {
            self.set_now(now);
        }
    }

    /// The time now. It never goes back.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    #[inline(never)]
    fn model(&self, id: EntityId) -> &Model {
        model_in(&self.models, self.entities[id].model)
    }

    fn reopens(&self, id: EntityId) -> bool {
        self.model(id).reopen == Reopen::Epoch
    }

    /// Whether frames of it count: wanted or lingering, and not refused by the server.
    #[inline(never)]
    fn is_followed(&self, id: EntityId) -> bool {
        let entity = &self.entities[id];
        !self.connection.is_closed() && entity.is_kept() && entity.stage() != Stage::Denied
    }

    /// Whether the position was confirmed on this socket (R30).
    #[inline(never)]
    fn is_confirmed(&self, id: EntityId) -> bool {
        let entity = &self.entities[id];
        self.connection.is_open()
            && !entity.is_asked()
            && (entity.has(Flags::SENT) || entity.topics > 0)
            && entity.recovery.as_ref().is_none_or(|recovery| !recovery.asked.resubscribe && !recovery.asked.confirms)
    }

    /// Lets `accept` decide alone from now on, if nothing stands in its way.
    #[inline(never)]
    fn mark_clear(&mut self, id: EntityId) {
        let model = self.model(id);
        let plain =
            model.continuity == Continuity::PlusOne && model.on_gap != Some(OnGap::Skip) && model.reset_seq.is_none();
        let confirmed = self.is_confirmed(id);
        let entity = &mut self.entities[id];
        if plain
            && confirmed
            && entity.has(Flags::PLACED)
            && !entity.has(Flags::FINAL)
            && !entity.has(Flags::DRAINING)
            && entity.is_wanted()
            && entity.lacks_nothing()
        {
            entity.set(Flags::CLEAR);
        }
    }

    #[inline(never)]
    fn refresh(&mut self, id: EntityId) {
        let entity = &self.entities[id];
        if !entity.has(Flags::USED) || entity.has(Flags::REMEMBERED) {
            return;
        }
        let sync = self.sync(id);
        let entity = &mut self.entities[id];
        if sync == Sync::Live && entity.lacks_nothing() {
            entity.clear(Flags::BEHIND);
        }
        if entity.sync != sync {
            entity.sync = sync;
            self.emit(Kind::Sync, id.0, sync as u32);
        }
    }

    /// Has the entity looked at before the outputs run dry.
    #[inline(never)]
    fn touch(&mut self, id: EntityId) {
        let entity = &mut self.entities[id];
        if !entity.has(Flags::DRAINING) {
            entity.set(Flags::DRAINING);
            entity.clear(Flags::CLEAR);
            self.draining.push(id);
        }
    }

    /// Remembers that the entity's recovery may have something to do by itself.
    #[inline(never)]
    fn list(&mut self, id: EntityId) {
        let entity = &mut self.entities[id];
        if let Some(recovery) = &entity.recovery {
            self.timer = self.timer.min(recovery.timer());
        }
        if !entity.has(Flags::LISTED) {
            entity.set(Flags::LISTED);
            self.listed.push(id);
        }
    }

    #[inline(never)]
    fn emit(&mut self, kind: Kind, subject: u32, code: u32) -> &mut Out<P> {
        let at = self.outputs.len();
        self.outputs.push(Out { kind, subject, code, ..Out::default() });
        &mut self.outputs[at]
    }

    /// Adds an entity to a command.
    #[inline(never)]
    fn send(&mut self, kind: Sent, request: Request, entity: EntityId) -> &mut Out<P> {
        let out = self.emit(Kind::Send, entity.0, kind as u32);
        out.request = request;
        out
    }

    #[inline(never)]
    fn fault(&mut self, entity: EntityId, fault: Fault) {
        self.emit(Kind::Fault, entity.0, fault as u32);
    }

    #[inline(never)]
    fn discard(&mut self, payload: P) {
        self.emit(Kind::Discard, 0, 0).payload = Some(payload);
    }

    fn discard_maybe(&mut self, payload: Option<P>) {
        if let Some(payload) = payload {
            self.discard(payload);
        }
    }

    /// An event is not needed.
    #[inline(never)]
    fn spend(&mut self, held: Held<P>) {
        self.discard_maybe(held.payload);
    }

    /// A duplicate or straggler (R1).
    #[inline(never)]
    fn repeated(&mut self, held: Held<P>) {
        self.stats.duplicates += 1;
        self.spend(held);
    }

    /// Holds an event, unless the same numbers are held already.
    #[inline(never)]
    fn hold(&mut self, id: EntityId, held: Held<P>) {
        let bytes = u64::from(held.bytes);
        match self.entities[id].recover().held.insert(held) {
            Ok(()) => {
                self.held_bytes += bytes;
                self.list(id);
            }
            Err(repeat) => self.repeated(repeat),
        }
    }

    #[inline(never)]
    fn unhold(&mut self, id: EntityId, which: Which) -> Option<Held<P>> {
        let held = self.entities[id].recovery.as_mut()?.held.pop(which)?;
        self.held_bytes -= u64::from(held.bytes);
        Some(held)
    }

    /// Drops what is held.
    #[inline(never)]
    fn drop_held(&mut self, id: EntityId, which: Which) {
        while let Some(held) = self.unhold(id, which) {
            self.spend(held);
        }
    }

    /// Frees a recovery that remembers nothing.
    #[inline(never)]
    fn trim(&mut self, id: EntityId) {
        let entity = &mut self.entities[id];
        if entity.recovery.as_ref().is_some_and(|recovery| recovery.is_idle(self.now)) {
            entity.recovery = None;
        }
    }
}

/// A model by its number: where the entities are borrowed too, `Client::model` can't be called.
fn model_in(models: &[Model], model: ModelId) -> &Model {
    models.get(usize::from(model.0)).unwrap_or(const { &Model::DEFAULT })
}
