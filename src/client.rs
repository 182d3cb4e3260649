//! The client: everything that comes in, everything that goes out, and the only place that decides.
//!
//! Call a `handle_*` for what happened, then [`Client::poll_output`] until it answers `None`, then arm one
//! timer for [`Client::poll_timeout`]. Inputs cannot fail: what is wrong becomes an [`Output::Fault`].

use std::collections::VecDeque;

use crate::config::{
    AGREEING_ANSWERS, CLOSE_BAD_FRAMES, CLOSE_NORMAL, CLOSE_REPLACED, Config, Continuity, DIVERGED_PACE,
    FAR_AHEAD_PACE, HELD_BYTES, Model, OnGap, RELEASED_FINALS, Reopen, SNAPSHOT_CAP, SNAPSHOT_TRIES, SUSPECT_EPOCHS,
    WAKE_AFTER,
};
use crate::connection::{Act, CloseClass, Connection};
pub use crate::connection::{Can, ConnectionState};
use crate::entity::{Entities, Entity, Flags, Numbers, Reach};
pub use crate::entity::{EntityId, Epoch, ModelId, Position, Seq, Status, Sync};
use crate::gap::{Gap, Held};
pub use crate::ids::EventId;
use crate::ids::Ids;
use crate::jitter::Jitter;
pub use crate::recovery::Request;
use crate::recovery::{Ask, Floor, Question, Recovery, Stage, Step, Suspect, snapshot_wait};
use crate::stats::Stats;
use crate::time::{Instant, Millis, earliest};
use crate::timers::Timers;
use crate::topic::Topics;
use crate::wave::{WaveId, WaveKind, Waves};

/// An event as the wire gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    pub epoch: Epoch,
    /// What the wire gave as `prev`, or as `first` minus one.
    pub prev: Option<Seq>,
    /// `None` if it carries no number, which only `continuity: 'none'` allows.
    pub seq: Option<Seq>,
    pub id: EventId,
    pub status: Status,
    pub has_data: bool,
    /// Its share of the frame's text (R19).
    pub bytes: u32,
}

/// A whole snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The request it answers; pushed if there is none.
    pub request: Option<Request>,
    pub epoch: Epoch,
    pub seq: Seq,
    pub status: Status,
}

/// What kind of change is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChangeKind {
    Event = 0,
    Snapshot = 1,
}

/// A change whose position is committed: reduce it and show it.
///
/// Then, before the next [`Client::poll_output`]: [`Client::lock`] if it is terminal or `locks` is set,
/// [`Client::rollback`] if it could not be reduced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change<P> {
    pub entity: EntityId,
    pub kind: ChangeKind,
    pub epoch: Epoch,
    /// An event covers (prev, seq].
    pub prev: Seq,
    pub seq: Seq,
    pub status: Status,
    pub id: EventId,
    /// The position went back or changed its epoch: what was shown before is void.
    pub reset: bool,
    /// Numbers that were passed over, first and last (R16).
    pub skipped: Option<(Seq, Seq)>,
    /// Final whatever its status says.
    pub locks: bool,
    /// The event's share of its frame's text, for a rollback.
    pub bytes: u32,
    pub payload: Option<P>,
}

/// Something that was wrong, for the application to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fault {
    /// A frame could not be read or carries no usable number (R11).
    BadFrame = 0,
    /// A number lies absurdly far ahead (R12).
    FarAhead = 1,
    /// A change came for a final entity and was refused (R8).
    AfterFinal = 2,
    /// Two events share a number: the history forked (R5).
    Diverged = 3,
    /// The server went back to an epoch that was over (R7).
    EpochFlapping = 4,
    /// The token was refused twice (R27).
    AuthFailed = 5,
    /// `getToken` failed or took too long (R29).
    TokenFailed = 6,
    /// The server refuses this entity.
    Forbidden = 7,
    /// The server does not know this entity.
    NotFound = 8,
    /// The server answered with another error.
    Server = 9,
    /// Five snapshots were asked in vain; tried again every 30 s.
    GaveUp = 10,
    /// The server told the client to stop (R27).
    Stopped = 11,
}

/// The classes of `error` frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    Forbidden,
    NotFound,
    TokenExpiring,
    Other,
}

/// Where to resume an entity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resume {
    pub entity: EntityId,
    /// `None`: from a snapshot.
    pub position: Option<Position>,
    /// For a topic: members that were not live at its cursor, with their positions.
    pub behind: Vec<(EntityId, Option<Position>)>,
    /// For a topic: whether the driver should add the cursor.
    pub cursor: bool,
}

/// Missing numbers to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    pub entity: EntityId,
    pub epoch: Epoch,
    pub from: Seq,
    /// `None`: up to the head.
    pub to: Option<Seq>,
}

/// What the client says to the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    Hello,
    Auth,
    Subscribe { request: Request, entities: Vec<Resume> },
    Unsubscribe { entities: Vec<EntityId> },
    Replay { request: Request, ranges: Vec<Range> },
    Snapshot { request: Request, entities: Vec<EntityId> },
    Heads { request: Request, entities: Vec<EntityId> },
    Ping { id: u32 },
}

/// What the driver has to do. One queue, one total order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output<P> {
    Change(Change<P>),
    /// A payload that will never be shown.
    Discard(P),
    Sync {
        entity: EntityId,
        sync: Sync,
    },
    /// Numbers are missing, first and last.
    Gap {
        entity: EntityId,
        from: Seq,
        to: Seq,
    },
    Final {
        entity: EntityId,
    },
    Fault {
        entity: Option<EntityId>,
        fault: Fault,
    },
    /// The entity's name may be dropped; its id will be used for another.
    Forgotten {
        entity: EntityId,
    },
    /// The state of the connection, or the time of the next dial, changed.
    Connection(ConnectionState),
    /// Open a socket; what it does is reported with this generation.
    Dial {
        generation: u32,
    },
    /// Detach the handlers of this generation's socket, then close it.
    Close {
        generation: u32,
        code: u16,
    },
    /// Call `getToken` and report with this id.
    GetToken {
        id: u32,
        attempt: u32,
    },
    /// Abort that call; its result is void.
    CancelToken {
        id: u32,
    },
    Send(Command),
}

/// The verdict on an event that needs nothing but numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[must_use]
pub enum Verdict {
    /// Nothing was decided: hand it to [`Client::handle_event`].
    Slow = 0,
    /// Committed: reduce it and show it.
    Apply = 1,
    /// Committed; there is nothing to show.
    Advance = 2,
    /// A duplicate or straggler, counted.
    Drop = 3,
}

/// What the last commit changed, for a rollback (R36).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Undo {
    entity: EntityId,
    position: Option<Position>,
    status: Status,
    seq: Seq,
    was_final: bool,
}

/// A `subscribe` to be repeated under its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reask {
    request: Request,
    tries: u8,
    entities: Vec<EntityId>,
}

/// Consistent state from an inconsistent WebSocket, without the WebSocket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client<P> {
    config: Config,
    models: Vec<Model>,
    entities: Entities,
    recoveries: Vec<Option<Box<Recovery<P>>>>,
    free_recoveries: Vec<u32>,
    ids: Vec<Option<Ids>>,
    free_ids: Vec<u32>,
    topics: Topics,
    waves: Waves,
    timers: Timers,
    connection: Connection,
    reported: (ConnectionState, Option<Instant>),
    jitter: Jitter,
    now: Instant,
    requests: Request,
    /// Entities with a recovery request out (R20).
    out: usize,
    held_bytes: u64,
    /// The entity whose replay page is being read.
    page: Option<EntityId>,
    undo: Option<Undo>,
    outputs: VecDeque<Output<P>>,
    /// Entities to look at: pull what fits, then see what is missing.
    draining: VecDeque<EntityId>,
    to_subscribe: Vec<EntityId>,
    to_reask: Vec<Reask>,
    to_unsubscribe: Vec<EntityId>,
    to_ask_heads: Vec<EntityId>,
    ready: Vec<EntityId>,
    /// Released finals, oldest first (R31).
    released: VecDeque<EntityId>,
    reconcile_at: Option<Instant>,
    stats: Stats,
}

/// What the application and the driver call.
impl<P> Client<P> {
    /// A client that has not dialed yet. `seed` spreads its waits; give every client another.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Client {
            config,
            models: Vec::new(),
            entities: Entities::default(),
            recoveries: Vec::new(),
            free_recoveries: Vec::new(),
            ids: Vec::new(),
            free_ids: Vec::new(),
            topics: Topics::default(),
            waves: Waves::default(),
            timers: Timers::default(),
            connection: Connection::default(),
            reported: (ConnectionState::Idle, None),
            jitter: Jitter::new(seed),
            now: Instant::default(),
            requests: 0,
            out: 0,
            held_bytes: 0,
            page: None,
            undo: None,
            outputs: VecDeque::new(),
            draining: VecDeque::new(),
            to_subscribe: Vec::new(),
            to_reask: Vec::new(),
            to_unsubscribe: Vec::new(),
            to_ask_heads: Vec::new(),
            ready: Vec::new(),
            released: VecDeque::new(),
            reconcile_at: None,
            stats: Stats::default(),
        }
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
        let mut entity = Entity { model, ..Entity::default() };
        entity.flags.set(Flags::USED, true);
        self.entities.add(entity)
    }

    /// Gives a new entity the position that was committed before a trap (R38). Call it right after `add_entity`.
    pub fn restore(&mut self, now: Instant, id: EntityId, position: Option<Position>, status: Status, is_final: bool) {
        self.tick(now);
        if !self.entities.contains(id) {
            return;
        }
        let entity = &mut self.entities[id];
        if let Some(position) = position {
            entity.move_to(position.epoch, position.seq);
            entity.sync = Sync::Stale;
        }
        entity.status = status;
        if is_final {
            entity.flags.set(Flags::FINAL, true);
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
        let socket = self.connection.has_socket().then(|| self.connection.generation());
        let act = self.connection.close();
        if let Some(generation) = socket {
            self.outputs.push_back(Output::Close { generation, code: CLOSE_NORMAL });
        }
        self.act(act);
        self.forget_questions();
        self.timers.clear();
        self.draining.clear();
        self.reconcile_at = None;
    }

    /// Somebody wants this entity. Call it when the first subscriber comes.
    pub fn subscribe(&mut self, now: Instant, id: EntityId) {
        self.tick(now);
        if self.connection.is_closed() || !self.entities.contains(id) || self.entities[id].has(Flags::SUBSCRIBED) {
            return;
        }
        if self.entities[id].has(Flags::REMEMBERED) {
            self.rejoin(id);
        }
        self.entities[id].flags.set(Flags::SUBSCRIBED, true);
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.linger = None;
            if recovery.stage == Stage::Denied {
                recovery.rest();
                self.entities[id].flags.set(Flags::SENT, false);
            }
        }
        self.cover(id);
        self.touch(id);
        let act = self.connection.want(self.now, &self.config);
        self.act(act);
    }

    /// Nobody wants this entity any more. Call it when the last subscriber left.
    pub fn unsubscribe(&mut self, now: Instant, id: EntityId) {
        self.tick(now);
        if self.connection.is_closed() || !self.entities.contains(id) || !self.entities[id].has(Flags::SUBSCRIBED) {
            return;
        }
        self.entities[id].flags.set(Flags::SUBSCRIBED, false);
        self.abandon(id);
    }

    /// Lets an entity go at once that nobody wants, without its linger and without a memory of its end.
    pub fn release(&mut self, now: Instant, id: EntityId) {
        self.tick(now);
        if !self.entities.contains(id) || self.entities[id].is_wanted() {
            return;
        }
        if !self.entities[id].has(Flags::REMEMBERED) {
            self.let_go(id);
        }
        if self.entities.contains(id) && self.entities[id].has(Flags::REMEMBERED) {
            self.released.retain(|&other| other != id);
            self.entities[id].flags.set(Flags::REMEMBERED, false);
            if !self.to_unsubscribe.contains(&id) {
                self.forget(id);
            }
        }
    }

    /// A topic's state says that `member` is in it.
    pub fn add_member(&mut self, now: Instant, topic: EntityId, member: EntityId) {
        self.tick(now);
        if self.connection.is_closed()
            || !self.entities.contains(topic)
            || !self.entities.contains(member)
            || !self.topics.add(topic, member)
        {
            return;
        }
        if self.entities[member].has(Flags::REMEMBERED) {
            self.rejoin(member);
        }
        let was_wanted = self.entities[member].is_wanted();
        self.entities[member].topics = self.entities[member].topics.saturating_add(1);
        if let Some(recovery) = self.recovery_mut(member) {
            recovery.linger = None;
        }
        if !was_wanted || self.entities[member].position().is_none() {
            self.await_member(topic, member);
        }
        self.touch(member);
    }

    /// A topic's state says that `member` is no longer in it.
    pub fn remove_member(&mut self, now: Instant, topic: EntityId, member: EntityId) {
        self.tick(now);
        if self.connection.is_closed() || !self.topics.remove(topic, member) {
            return;
        }
        self.leave_topic(member);
    }

    fn leave_topic(&mut self, member: EntityId) {
        let entity = &mut self.entities[member];
        entity.topics = entity.topics.saturating_sub(1);
        if entity.topics > 0 {
            return;
        }
        if entity.has(Flags::SUBSCRIBED) {
            self.cover(member);
        } else {
            self.abandon(member);
        }
    }

    /// The generation of the socket that counts; the driver ignores all others (R25).
    #[must_use]
    pub fn current(&self) -> u32 {
        self.connection.generation()
    }

    /// The socket of this generation opened.
    pub fn handle_opened(&mut self, now: Instant, generation: u32) {
        self.tick(now);
        if !self.connection.is_current(generation) || self.connection.is_open() {
            return;
        }
        self.connection.opened(self.now);
        self.outputs.push_back(Output::Send(Command::Hello));
        let wanted: Vec<EntityId> = self.entities.ids().filter(|&id| self.entities[id].is_wanted()).collect();
        for id in wanted {
            self.cover(id);
            self.touch(id);
        }
    }

    /// The socket of this generation ended, or could not be opened (code 1006).
    pub fn handle_closed(&mut self, now: Instant, generation: u32, code: u16) {
        self.tick(now);
        if !self.connection.is_current(generation) {
            return;
        }
        match Connection::classify(&self.config, code) {
            CloseClass::Normal if !self.is_unfinished() => self.connection.idle(),
            CloseClass::Resume | CloseClass::Normal => self.connection.lost(self.now, &self.config, &mut self.jitter),
            CloseClass::Anew => {
                self.connection.lost(self.now, &self.config, &mut self.jitter);
                self.forget_positions();
            }
            CloseClass::Auth => {
                let (act, failed) = self.connection.refused(self.now, &self.config, &mut self.jitter);
                if failed {
                    self.fault(None, Fault::AuthFailed);
                }
                self.act(act);
            }
            CloseClass::Stop => {
                self.connection.stop();
                self.fault(None, Fault::Stopped);
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
        self.reconcile_at = (!can.heads && can.snapshot).then(|| self.now + self.config.reconcile);
        let troubled: Vec<EntityId> = self.entities.ids().filter(|&id| self.entities[id].recovery != 0).collect();
        troubled.into_iter().for_each(|id| self.touch(id));
    }

    /// An event, live or of a replay's page.
    pub fn handle_event(&mut self, now: Instant, id: EntityId, event: Event, payload: P) {
        self.tick(now);
        if !self.is_followed(id) {
            return self.ignore(Some(payload));
        }
        let model = self.model(id);
        let last = self.entities[id].position().map(|position| position.seq);
        let held = |prev, seq| Held {
            prev,
            seq,
            id: event.id,
            status: event.status,
            bytes: event.bytes,
            visible: event.has_data || event.status.is_some(),
            payload: None,
        };
        match Numbers::read(&model, event.prev, event.seq, last) {
            Numbers::Unusable => {
                self.bad_frame(Some(id));
                self.discard(Some(payload));
            }
            Numbers::BeforeFirst => {
                self.stats.duplicates += 1;
                self.discard(Some(payload));
            }
            Numbers::Arrives(seq) => self.arrive(id, event, seq, payload),
            Numbers::StandsAt(seq) => {
                self.discard(Some(payload));
                self.stands_at(id, event.epoch, seq);
            }
            Numbers::Restarts(seq) => {
                self.restart(id, event.epoch, Held { payload: Some(payload), ..held(seq.saturating_sub(1), seq) })
            }
            Numbers::Covers { prev, seq } => {
                self.judge(id, event.epoch, Held { payload: Some(payload), ..held(prev, seq) })
            }
        }
    }

    /// Numbers that will never exist: `vacant`, or one range of a replay's.
    pub fn handle_vacant(&mut self, now: Instant, id: EntityId, epoch: Epoch, from: Seq, to: Seq) {
        self.tick(now);
        if !self.is_followed(id) {
            return self.ignore(None);
        }
        if from == 0 || from > to || to > crate::config::MAX_SEQ {
            return self.bad_frame(Some(id));
        }
        if self.model(id).continuity == Continuity::None {
            return;
        }
        let vacancy = Held {
            prev: from - 1,
            seq: to,
            id: EventId::NONE,
            status: Status::NONE,
            bytes: 0,
            payload: None,
            visible: false,
        };
        self.judge(id, epoch, vacancy);
    }

    /// A whole snapshot; the codec joins parts (R17).
    pub fn handle_snapshot(&mut self, now: Instant, id: EntityId, snapshot: Snapshot, payload: P) {
        self.tick(now);
        if !self.is_followed(id) {
            return self.ignore(Some(payload));
        }
        if snapshot.seq > crate::config::MAX_SEQ {
            self.bad_frame(Some(id));
            return self.discard(Some(payload));
        }
        if snapshot.request.is_some_and(|request| !self.awaits_snapshot(id, request)) {
            self.stats.unwanted += 1;
            return self.discard(Some(payload));
        }
        self.entities[id].flags.set(Flags::HEARD, true);
        if self.entities[id].has(Flags::FINAL) {
            self.snapshot_after_final(id, snapshot, payload);
        } else if let Some(floor) = self.recovery(id).and_then(|recovery| recovery.floor) {
            self.snapshot_on_floor(id, floor, snapshot, payload);
        } else {
            self.judge_snapshot(id, snapshot, payload);
        }
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
        if let Some(Stage::Snapshot(Step::Out(_))) = self.recovery(id).map(|recovery| recovery.stage) {
            self.set_stage(id, Stage::Snapshot(Step::Out(self.now + self.config.timeout.snapshot)));
        } else if self.entities[id].wave != 0 {
            // A wave of its own, so that one large snapshot does not keep the others waiting.
            let deadline = self.now + self.config.timeout.subscribe;
            if let Some(wave) = self.waves.join(WaveKind::Subscribe, request, deadline) {
                self.set_wave(id, wave);
            }
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
        if head > crate::config::MAX_SEQ {
            return self.bad_frame(Some(id));
        }
        let entity = &self.entities[id];
        let Some(position) = entity.position() else {
            if self.model(id).continuity == Continuity::None {
                self.set_wave(id, 0);
                self.touch(id);
            }
            return; // the snapshot follows
        };
        if self.is_retired(id, epoch) {
            self.set_wave(id, 0);
            self.want_snapshot(id);
        } else if epoch == position.epoch && head > position.seq {
            self.note_head(id, head); // its pages follow
        } else if epoch == position.epoch {
            let lags = head < position.seq && !entity.has(Flags::MOVED);
            self.set_wave(id, 0);
            if lags { self.lags(id) } else { self.confirm(id) }
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
        let deadline = self.now + self.config.timeout.replay;
        if self.entities[id].wave != 0 && self.wave_is(id, request) {
            let from = self.entities[id].position().map_or(1, |position| position.seq + 1);
            self.set_wave(id, 0);
            self.recover(id).ask = Some(Ask { request, from, to: None, tries: 0, paged: true, confirms: true });
            self.set_stage(id, Stage::Resume(deadline));
        } else if let Some(stage) = self
            .recovery(id)
            .filter(|recovery| recovery.ask.is_some_and(|ask| ask.request == request))
            .map(|recovery| recovery.stage)
        {
            if let Some(ask) = &mut self.recover(id).ask {
                ask.paged = true;
            }
            match stage {
                Stage::Resume(_) => self.set_stage(id, Stage::Resume(deadline)),
                Stage::Replay(Step::Out(_)) => self.set_stage(id, Stage::Replay(Step::Out(deadline))),
                _ => {}
            }
        } else {
            self.stats.unwanted += 1;
            return false;
        }
        self.page = Some(id);
        self.touch(id);
        true
    }

    /// Ends a replay's page. `done`: it was the last.
    pub fn end_replay(&mut self, now: Instant, id: EntityId, request: Request, done: bool) {
        self.tick(now);
        self.page = None;
        if !done || !self.is_followed(id) {
            return;
        }
        let Some(recovery) = self.recovery_mut(id) else {
            return;
        };
        if recovery.ask.is_none_or(|ask| ask.request != request) {
            return;
        }
        recovery.done = true;
        let whole = core::mem::take(&mut recovery.whole);
        self.hold_again(id, whole);
        self.touch(id);
    }

    /// `gone`: what follows the position was trimmed.
    pub fn handle_gone(&mut self, now: Instant, id: EntityId, request: Request) {
        self.tick(now);
        if !self.answers_replay(id, request) {
            return;
        }
        self.end_ask(id);
        self.recover(id).no_after = true;
        self.want_snapshot(id);
    }

    /// `ahead`: the position is above the server's head.
    pub fn handle_ahead(&mut self, now: Instant, id: EntityId, request: Request, epoch: Epoch, head: Seq) {
        self.tick(now);
        if !self.answers_replay(id, request) {
            return;
        }
        self.end_ask(id);
        match self.entities[id].position() {
            Some(position) if position.epoch != epoch => self.suspect_epoch(id, epoch),
            Some(position) if head < position.seq && !self.entities[id].has(Flags::MOVED) => self.lags(id),
            _ => self.want_snapshot(id),
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
        if !self.is_followed(id)
            || self.entities[id].has(Flags::FINAL)
            || !(self.answers_replay(id, request) || self.awaits_snapshot(id, request))
        {
            self.stats.unwanted += 1;
            return self.discard(payload);
        }
        if self.entities[id].position().is_some_and(|position| position.epoch != epoch) {
            self.discard(payload);
            self.end_ask(id);
            return self.suspect_epoch(id, epoch);
        }
        if let Some(floor) = self.recovery(id).and_then(|recovery| recovery.floor) {
            let seq = floor.seq;
            if floor.epoch != epoch || floor.status != status {
                self.discard(payload);
                return self.lock_on_floor(id, floor);
            }
            self.recover(id).floor = None;
            self.entities[id].move_to(epoch, seq);
        }
        self.note_undo(id, self.entities[id].last);
        let seq = self.entities[id].last;
        self.entities[id].move_to(epoch, seq);
        if status.is_some() {
            self.entities[id].status = status;
        }
        self.end_ask(id);
        self.outputs.push_back(Output::Change(Change {
            entity: id,
            kind: ChangeKind::Snapshot,
            epoch,
            prev: seq,
            seq,
            status,
            id: EventId::NONE,
            reset: false,
            skipped: None,
            locks: true,
            bytes: 0,
            payload,
        }));
    }

    /// The head of one entity: of a heartbeat, or of the answer to `heads`.
    pub fn handle_head(&mut self, now: Instant, id: EntityId, epoch: Epoch, head: Seq, request: Option<Request>) {
        self.tick(now);
        if !self.is_followed(id) {
            return;
        }
        if head > crate::config::MAX_SEQ {
            return self.bad_frame(Some(id));
        }
        let answered = match request {
            Some(request) if self.entities[id].wave != 0 && self.wave_is(id, request) => true,
            Some(_) => {
                self.stats.unwanted += 1;
                return;
            }
            None => false,
        };
        if answered {
            self.set_wave(id, 0);
            self.touch(id);
        }
        let entity = &self.entities[id];
        let Some(position) = entity.position() else {
            return;
        };
        if entity.has(Flags::FINAL) || self.model(id).continuity == Continuity::None {
            return;
        }
        if epoch != position.epoch {
            self.suspect_epoch(id, epoch);
        } else if head > position.seq {
            self.note_head(id, head);
        } else if answered && head < position.seq && !entity.has(Flags::MOVED) {
            self.lags(id);
        } else if answered {
            self.confirm(id);
        }
    }

    /// The answer to `heads` is complete: who was not named is asked for by a snapshot.
    pub fn end_heads(&mut self, now: Instant, request: Request) {
        self.tick(now);
        for id in self.waiting_for(request, WaveKind::Heads) {
            self.set_wave(id, 0);
            self.want_snapshot(id);
        }
    }

    /// A cursor for the topic came: all that it covers was sent before it on this socket.
    pub fn handle_cursor(&mut self, now: Instant, topic: EntityId) {
        self.tick(now);
        if !self.is_followed(topic) {
            return;
        }
        self.topics.note(topic).cursor = true;
        let members = self.topics.members(topic).to_vec();
        for member in members {
            let entity = &self.entities[member];
            let covered = self.waves.get(entity.wave).is_some_and(|wave| wave.kind == WaveKind::Member);
            if covered && entity.position().is_some() {
                self.set_wave(member, 0);
                self.confirm(member);
                self.settle(member);
            }
            let entity = &mut self.entities[member];
            let behind = !matches!(entity.sync, Sync::Live | Sync::Final);
            entity.flags.set(Flags::BEHIND, behind);
        }
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
        let asked: Vec<EntityId> = match (id, request) {
            (Some(id), Some(request))
                if self.is_followed(id) && (self.answers_replay(id, request) || self.awaits_snapshot(id, request)) =>
            {
                vec![id]
            }
            (Some(id), None) if self.is_followed(id) => vec![id],
            (None, Some(request)) => self
                .entities
                .ids()
                .filter(|&id| self.answers_replay(id, request) || self.awaits_snapshot(id, request))
                .collect(),
            _ => Vec::new(),
        };
        if id.is_none() && request.is_none() {
            if let Some(wait) = retry_after {
                self.connection.retry_after(self.now, wait);
            }
            return self.fault(None, Fault::Server);
        }
        for id in asked {
            match code {
                ErrorCode::Forbidden => self.deny(id, Fault::Forbidden),
                ErrorCode::NotFound => self.deny(id, Fault::NotFound),
                ErrorCode::TokenExpiring | ErrorCode::Other => self.postpone(id, retry_after),
            }
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
        self.bad_frame(None);
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
            self.fault(None, Fault::TokenFailed);
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
        self.tick(now);
        self.wake();
        let act = self.connection.shorten(self.now, &self.config);
        self.act(act);
    }

    /// The browser believes to be online: a hint.
    pub fn handle_online(&mut self, now: Instant) {
        self.tick(now);
        self.connection.probe(self.now);
        let act = self.connection.shorten(self.now, &self.config);
        self.act(act);
    }

    /// The browser believes to be offline: a hint.
    pub fn handle_offline(&mut self, now: Instant) {
        self.tick(now);
        self.connection.probe(self.now);
    }

    /// The page is put into the back/forward cache, which an open socket would prevent.
    pub fn handle_pagehide(&mut self, now: Instant) {
        self.tick(now);
        let socket = self.connection.has_socket().then(|| self.connection.generation());
        self.connection.freeze();
        if let Some(generation) = socket {
            self.outputs.push_back(Output::Close { generation, code: CLOSE_REPLACED });
            self.disconnect();
        }
    }

    /// The page is shown, perhaps out of the back/forward cache.
    pub fn handle_pageshow(&mut self, now: Instant) {
        self.tick(now);
        self.wake();
        let act = self.connection.shorten(self.now, &self.config);
        self.act(act);
    }

    /// When [`Client::handle_timeout`] wants to be called; to be read again after every drain of the outputs.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.connection.is_closed() {
            return None;
        }
        let waves = if self.connection.is_open() { self.waves.next_deadline() } else { None };
        let reconcile = if self.connection.is_live() { self.reconcile_at } else { None };
        earliest(earliest(self.connection.poll_timeout(), waves), earliest(reconcile, self.timers.next()))
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
        for wave in self.waves.due(self.now) {
            self.wave_timed_out(wave);
        }
        while let Some(id) = self.timers.pop(self.now) {
            self.fire(id);
        }
        if self.connection.is_live() && self.reconcile_at.is_some_and(|at| at <= self.now) {
            self.reconcile_at = Some(self.now + self.config.reconcile);
            self.reconcile();
        }
    }

    /// The change that was just handed over is terminal: the entity is final (R8).
    pub fn lock(&mut self, now: Instant, id: EntityId) {
        self.tick(now);
        if !self.entities.contains(id) || self.entities[id].has(Flags::FINAL) {
            return;
        }
        self.set_wave(id, 0);
        self.set_stage(id, Stage::Rest);
        if let Some(recovery) = self.recovery_mut(id) {
            let held = core::mem::take(&mut recovery.held);
            let whole = core::mem::take(&mut recovery.whole);
            let suspects = core::mem::take(&mut recovery.suspects);
            recovery.rest();
            recovery.wants_snapshot = false;
            recovery.question = Question::None;
            recovery.faults = 0;
            self.discard_all(held);
            self.discard_all(whole);
            suspects.into_iter().for_each(|suspect| self.discard_all(suspect.held));
        }
        self.note_bytes(id);
        self.trim(id);
        let entity = &mut self.entities[id];
        entity.flags.set(Flags::FINAL, true);
        entity.flags.set(Flags::CLEAR, false);
        self.outputs.push_back(Output::Final { entity: id });
        self.refresh(id);
    }

    /// The change that was just handed over could not be reduced: its position is taken back (R36).
    ///
    /// `event` gives an event back, to be held; `None` for a snapshot.
    pub fn rollback(&mut self, now: Instant, id: EntityId, event: Option<(Event, P)>) {
        self.tick(now);
        let Some(undo) = self.undo.take().filter(|undo| undo.entity == id) else {
            return self.discard(event.map(|(_, payload)| payload));
        };
        if let Some(ids) = self.ids_mut(id) {
            ids.take_back(undo.seq);
        }
        let entity = &mut self.entities[id];
        let lost_epoch = undo.position.map(|position| position.epoch).filter(|&epoch| epoch != entity.epoch);
        match undo.position {
            Some(position) => entity.move_to(position.epoch, position.seq),
            None => entity.flags.set(Flags::PLACED, false),
        }
        entity.status = undo.status;
        entity.flags.set(Flags::CLEAR, false);
        entity.flags.set(Flags::FINAL, undo.was_final);
        let now = self.now;
        let placed = undo.position.is_some();
        let recovery = self.recover(id);
        if let Some(epoch) = lost_epoch {
            recovery.retired.retain(|&retired| retired != epoch);
        }
        recovery.faults = recovery.faults.saturating_add(1);
        recovery.fault_at = undo.seq;
        recovery.question = if placed { Question::Fault } else { Question::None };
        recovery.wants_snapshot = true;
        let given_up = recovery.faults >= AGREEING_ANSWERS;
        match event {
            Some((event, payload)) => {
                self.stats.applied = self.stats.applied.saturating_sub(1);
                let prev = event.prev.or_else(|| undo.position.map(|position| position.seq)).unwrap_or(0);
                let again = Held {
                    prev,
                    seq: undo.seq,
                    id: event.id,
                    status: event.status,
                    bytes: event.bytes,
                    payload: Some(payload),
                    visible: true,
                };
                if let Err(repeat) = self.recover(id).held.insert(again) {
                    self.discard(repeat.payload);
                }
                self.note_bytes(id);
            }
            None => self.stats.adopted = self.stats.adopted.saturating_sub(1),
        }
        if given_up {
            self.give_up(id, now + SNAPSHOT_CAP);
        }
        self.touch(id);
    }

    /// The next thing to do. Call it until it answers `None` after every other call.
    #[must_use]
    pub fn poll_output(&mut self, now: Instant) -> Option<Output<P>> {
        self.tick(now);
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            if let Some(&id) = self.draining.front() {
                if let Some(change) = self.pull(id) {
                    return Some(change);
                }
                if self.outputs.is_empty() {
                    self.draining.pop_front();
                    self.entities[id].flags.set(Flags::DRAINING, false);
                    self.settle(id);
                }
                continue;
            }
            let reported = (self.connection.state(), self.connection.retry_at());
            if reported != self.reported {
                self.reported = reported;
                return Some(Output::Connection(reported.0));
            }
            if !self.flush() {
                return None;
            }
        }
    }

    /// Judges a clean event by numbers alone, without a queue: the way of almost all events in a browser.
    ///
    /// `prev` is seq−1 unless the wire gave it. `visible`: it has data or a status.
    #[inline]
    pub fn accept(
        &mut self,
        id: EntityId,
        prev: Seq,
        seq: Seq,
        epoch: Epoch,
        status: Status,
        visible: bool,
    ) -> Verdict {
        if !self.entities.contains(id) {
            return Verdict::Slow;
        }
        let entity = &mut self.entities[id];
        if !entity.has(Flags::CLEAR) || entity.epoch != epoch || prev.wrapping_add(1) != seq {
            return Verdict::Slow;
        }
        if seq == entity.last + 1 {
            self.undo =
                Some(Undo { entity: id, position: entity.position(), status: entity.status, seq, was_final: false });
            entity.last = seq;
            entity.flags.set(Flags::MOVED, true);
            entity.flags.set(Flags::HEARD, true);
            if status.is_some() {
                entity.status = status;
            }
            self.stats.applied += 1;
            if visible {
                return Verdict::Apply;
            }
            self.stats.silent += 1;
            return Verdict::Advance;
        }
        if seq <= entity.last && entity.ids == 0 {
            self.stats.duplicates += 1;
            return Verdict::Drop;
        }
        Verdict::Slow
    }

    /// The same for an event that carries an id (R5, R6).
    #[inline]
    #[allow(clippy::too_many_arguments)] // numbers only, for the boundary to JavaScript
    pub fn accept_with_id(
        &mut self,
        id: EntityId,
        prev: Seq,
        seq: Seq,
        epoch: Epoch,
        status: Status,
        visible: bool,
        event: EventId,
    ) -> Verdict {
        if !self.entities.contains(id) {
            return Verdict::Slow;
        }
        let entity = &self.entities[id];
        if seq != entity.last + 1 {
            if entity.has(Flags::CLEAR) && entity.epoch == epoch && prev.wrapping_add(1) == seq && seq <= entity.last {
                if self.ids_of(id).is_some_and(|ids| ids.contradicts(seq, event)) {
                    return Verdict::Slow;
                }
                self.stats.duplicates += 1;
                return Verdict::Drop;
            }
            return Verdict::Slow;
        }
        if self.ids_of(id).is_some_and(|ids| ids.contains(event)) {
            return Verdict::Slow;
        }
        let verdict = self.accept(id, prev, seq, epoch, status, visible);
        if matches!(verdict, Verdict::Apply | Verdict::Advance) {
            self.note_id(id, seq, event);
        }
        verdict
    }
}

/// What can be read.
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
        if !self.is_confirmed(id) || recovery.is_some_and(|recovery| recovery.shown || recovery.question.blocks()) {
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

    /// The epochs that are remembered; others may be forgotten by the driver.
    #[must_use]
    pub fn epochs_in_use(&self) -> Vec<Epoch> {
        let mut epochs: Vec<Epoch> = self.entities.ids().map(|id| self.entities[id].epoch).collect();
        for recovery in self.recoveries.iter().flatten() {
            epochs.extend(recovery.suspects.iter().map(|suspect| suspect.epoch));
            epochs.extend(&recovery.retired);
            epochs.extend(recovery.refuted.iter().map(|&(epoch, _)| epoch));
            epochs.extend(recovery.flapping.map(|(epoch, _)| epoch));
            epochs.extend(recovery.floor.map(|floor| floor.epoch));
        }
        epochs.sort_unstable();
        epochs.dedup();
        epochs
    }
}

/// Events (R1–R13, R36).
impl<P> Client<P> {
    /// An event that covers (prev, seq].
    fn judge(&mut self, id: EntityId, epoch: Epoch, event: Held<P>) {
        let model = self.model(id);
        let entity = &mut self.entities[id];
        entity.flags.set(Flags::HEARD, true);
        if entity.has(Flags::FINAL) {
            if entity.epoch != epoch && model.reopen == Reopen::Epoch {
                return self.suspect(id, epoch, event);
            }
            self.discard(event.payload);
            return self.after_final(id, epoch, event.seq);
        }
        let Some(position) = entity.position() else {
            return self.suspect(id, epoch, event);
        };
        if epoch != position.epoch {
            return self.suspect(id, epoch, event);
        }
        if model.reset_seq == Some(event.seq) && event.payload.is_some() {
            return self.restart(id, epoch, event);
        }
        let reach = entity.reach(&model, event.prev, event.seq, event.visible);
        if reach == Reach::Covered {
            let blocked = self.recovery(id).is_some_and(|recovery| recovery.question.blocks());
            if event.id.is_some() && !blocked && self.ids_of(id).is_some_and(|ids| ids.contradicts(event.seq, event.id))
            {
                self.discard(event.payload);
                return self.diverged(id);
            }
            self.stats.duplicates += 1;
            return self.discard(event.payload);
        }
        let measured =
            matches!(model.continuity, Continuity::PlusOne | Continuity::Range) && model.on_gap() != OnGap::Skip;
        if measured && event.prev.saturating_sub(position.seq) > self.config.max_ahead {
            self.discard(event.payload);
            return self.far_ahead(id);
        }
        if reach != Reach::Next {
            self.stats.held += 1;
        }
        let whole = self.page == Some(id) && model.replay_whole;
        let recovery = self.recover(id);
        let buffer = if whole { &mut recovery.whole } else { &mut recovery.held };
        if let Err(repeat) = buffer.insert(event) {
            self.stats.duplicates += 1;
            return self.discard(repeat.payload);
        }
        self.note_bytes(id);
        self.entities[id].flags.set(Flags::CLEAR, false);
        if reach != Reach::Next {
            self.bound(id);
        }
        self.touch(id);
    }

    /// An event of `continuity: 'none'`: in order of arrival; only the lock guards.
    fn arrive(&mut self, id: EntityId, event: Event, seq: Option<Seq>, payload: P) {
        self.entities[id].flags.set(Flags::HEARD, true);
        if self.entities[id].has(Flags::FINAL) {
            self.discard(Some(payload));
            self.stats.after_final += 1;
            return self.fault(Some(id), Fault::AfterFinal);
        }
        let prev = self.entities[id].last;
        let shown = seq.unwrap_or(prev);
        self.note_undo(id, shown);
        if let Some(seq) = seq {
            self.entities[id].move_to(event.epoch, seq);
        }
        self.commit(id, event.status);
        if event.has_data || event.status.is_some() {
            self.outputs.push_back(Output::Change(Change {
                entity: id,
                kind: ChangeKind::Event,
                epoch: event.epoch,
                prev,
                seq: shown,
                status: event.status,
                id: event.id,
                reset: false,
                skipped: None,
                locks: false,
                bytes: event.bytes,
                payload: Some(payload),
            }));
        } else {
            self.stats.silent += 1;
            self.discard(Some(payload));
        }
        self.touch(id);
    }

    /// A keep-alive of a chain says where the owner stands.
    fn stands_at(&mut self, id: EntityId, epoch: Epoch, seq: Seq) {
        self.entities[id].flags.set(Flags::HEARD, true);
        let Some(position) = self.entities[id].position() else {
            return;
        };
        if self.entities[id].has(Flags::FINAL) {
            return;
        }
        if epoch != position.epoch {
            self.suspect_epoch(id, epoch);
        } else if seq > position.seq {
            self.note_head(id, seq);
        }
    }

    /// An event that declares everything before it void: a chain's restart, or the model's `resetSeq`.
    fn restart(&mut self, id: EntityId, epoch: Epoch, event: Held<P>) {
        let entity = &self.entities[id];
        if entity.has(Flags::FINAL) {
            self.discard(event.payload);
            return self.after_final(id, epoch, event.seq);
        }
        if entity.position().is_none_or(|position| position.epoch != epoch) {
            return self.suspect(id, epoch, event);
        }
        self.note_undo(id, event.seq);
        self.drop_history(id);
        self.entities[id].move_to(epoch, event.seq);
        self.entities[id].status = Status::NONE;
        self.commit(id, event.status);
        if event.id.is_some() {
            self.note_id(id, event.seq, event.id);
        }
        self.stats.resets += 1;
        self.outputs.push_back(Output::Change(Change {
            entity: id,
            kind: ChangeKind::Event,
            epoch,
            prev: event.prev,
            seq: event.seq,
            status: event.status,
            id: event.id,
            reset: true,
            skipped: None,
            locks: false,
            bytes: event.bytes,
            payload: event.payload,
        }));
        self.touch(id);
    }

    /// Takes the next held change, if it fits (R2, R4). One at a time: the driver may lock or roll back in between.
    fn pull(&mut self, id: EntityId) -> Option<Output<P>> {
        loop {
            if !self.entities.contains(id) || self.entities[id].has(Flags::FINAL) {
                return None;
            }
            let model = self.model(id);
            let position = self.entities[id].position()?;
            let recovery = self.recovery_mut(id)?;
            if recovery.question.blocks()
                || recovery.stage == Stage::Denied
                || recovery.failed && recovery.faults >= AGREEING_ANSWERS
            {
                return None;
            }
            if let Some(covered) = recovery.held.pop_covered(position.seq) {
                self.note_bytes(id);
                self.stats.duplicates += 1;
                if let Some(payload) = covered.payload {
                    return Some(Output::Discard(payload));
                }
                continue;
            }
            let front = recovery.held.front()?;
            let (prev, seq, visible) = (front.prev, front.seq, front.visible);
            if self.entities[id].reach(&model, prev, seq, visible) != Reach::Next {
                return None;
            }
            let event = self.recovery_mut(id)?.held.pop_front()?;
            self.note_bytes(id);
            self.note_undo(id, event.seq);
            let repeated = event.id.is_some() && self.ids_of(id).is_some_and(|ids| ids.contains(event.id));
            self.entities[id].move_to(position.epoch, event.seq);
            if event.id.is_some() {
                self.note_id(id, event.seq, event.id);
            }
            self.commit(id, if repeated { Status::NONE } else { event.status });
            if repeated || !event.visible {
                self.stats.silent += 1;
                match event.payload {
                    Some(payload) => return Some(Output::Discard(payload)),
                    None => continue,
                }
            }
            return Some(Output::Change(Change {
                entity: id,
                kind: ChangeKind::Event,
                epoch: position.epoch,
                prev: event.prev,
                seq: event.seq,
                status: event.status,
                id: event.id,
                reset: false,
                skipped: None,
                locks: false,
                bytes: event.bytes,
                payload: event.payload,
            }));
        }
    }

    fn commit(&mut self, id: EntityId, status: Status) {
        if status.is_some() {
            self.entities[id].status = status;
        }
        self.stats.applied += 1;
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.lag = 0;
        }
    }

    fn note_undo(&mut self, id: EntityId, seq: Seq) {
        let entity = &self.entities[id];
        self.undo = Some(Undo {
            entity: id,
            position: entity.position(),
            status: entity.status,
            seq,
            was_final: entity.has(Flags::FINAL),
        });
    }

    /// R8: what comes for a final entity raises the position at most.
    fn after_final(&mut self, id: EntityId, epoch: Epoch, seq: Seq) {
        let entity = &mut self.entities[id];
        if entity.epoch == epoch && seq <= entity.last {
            self.stats.duplicates += 1;
            return;
        }
        if entity.epoch == epoch {
            entity.last = seq;
        }
        self.stats.after_final += 1;
        self.fault(Some(id), Fault::AfterFinal);
    }

    /// R5: the history forked.
    fn diverged(&mut self, id: EntityId) {
        self.stats.diverged += 1;
        self.fault(Some(id), Fault::Diverged);
        let now = self.now;
        let recovery = self.recover(id);
        let held = core::mem::take(&mut recovery.held);
        let asks = recovery.diverged.is_none_or(|at| now.since(at) >= DIVERGED_PACE);
        if asks {
            recovery.diverged = Some(now);
            recovery.question = Question::Fork;
            recovery.wants_snapshot = true;
            recovery.ask = None;
        }
        self.discard_all(held);
        self.note_bytes(id);
        self.free_ids_of(id);
        self.touch(id);
    }

    /// R12: a number that nobody can believe asks for one snapshot in a while.
    fn far_ahead(&mut self, id: EntityId) {
        self.stats.bad_frames += 1;
        self.fault(Some(id), Fault::FarAhead);
        let now = self.now;
        let recovery = self.recover(id);
        if recovery.far_asked.is_none_or(|at| now.since(at) >= FAR_AHEAD_PACE) {
            recovery.far_asked = Some(now);
            self.want_snapshot(id);
        }
    }

    /// The server has at least this number (R21).
    fn note_head(&mut self, id: EntityId, head: Seq) {
        let last = self.entities[id].last;
        if head.saturating_sub(last) > self.config.max_ahead && self.model(id).continuity != Continuity::Prev {
            return self.far_ahead(id);
        }
        let recovery = self.recover(id);
        recovery.head = recovery.head.max(Some(head));
        recovery.lag = 0;
        self.entities[id].flags.set(Flags::CLEAR, false);
        self.touch(id);
    }

    /// R22: an answer says that the server's head is below the position it was asked about.
    fn lags(&mut self, id: EntityId) {
        let recovery = self.recover(id);
        recovery.lag = recovery.lag.saturating_add(1);
        if recovery.lag >= AGREEING_ANSWERS {
            recovery.question = Question::Lag;
        }
        self.want_snapshot(id);
    }

    /// An answer agrees with the position.
    fn confirm(&mut self, id: EntityId) {
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.lag = 0;
        }
        self.touch(id);
    }

    fn want_snapshot(&mut self, id: EntityId) {
        self.entities[id].flags.set(Flags::CLEAR, false);
        self.recover(id).wants_snapshot = true;
        self.touch(id);
    }
}

/// Epochs and snapshots (R7, R14–R18).
impl<P> Client<P> {
    /// A frame of an epoch that no snapshot has named: hold it, and ask.
    fn suspect(&mut self, id: EntityId, epoch: Epoch, event: Held<P>) {
        if self.is_retired(id, epoch) {
            self.stats.retired += 1;
            return self.discard(event.payload);
        }
        self.stats.held += 1;
        let recovery = self.recover(id);
        let at = match recovery.suspects.iter().position(|suspect| suspect.epoch == epoch) {
            Some(at) => at,
            None if recovery.suspects.len() == SUSPECT_EPOCHS => {
                self.stats.overflowed += 1;
                return self.discard(event.payload);
            }
            None => {
                recovery.suspects.push(Suspect { epoch, held: Gap::default() });
                recovery.suspects.len() - 1
            }
        };
        if let Err(repeat) = recovery.suspects[at].held.insert(event) {
            self.stats.duplicates += 1;
            self.discard(repeat.payload);
        }
        self.note_bytes(id);
        self.entities[id].flags.set(Flags::CLEAR, false);
        self.bound(id);
        self.touch(id);
    }

    /// An epoch was named without a frame that could be held.
    fn suspect_epoch(&mut self, id: EntityId, epoch: Epoch) {
        if !self.is_retired(id, epoch) {
            let recovery = self.recover(id);
            if recovery.suspects.len() < SUSPECT_EPOCHS
                && recovery.suspects.iter().all(|suspect| suspect.epoch != epoch)
            {
                recovery.suspects.push(Suspect { epoch, held: Gap::default() });
            }
        }
        self.want_snapshot(id);
    }

    fn is_retired(&self, id: EntityId, epoch: Epoch) -> bool {
        self.recovery(id).is_some_and(|recovery| recovery.is_retired(epoch))
    }

    /// Whether the entity waits for a snapshot under this request (R18).
    fn awaits_snapshot(&self, id: EntityId, request: Request) -> bool {
        let asked = self.recovery(id).is_some_and(|recovery| recovery.snapshot == request && request != 0);
        let resumed = self.recovery(id).is_some_and(|recovery| {
            matches!(recovery.stage, Stage::Resume(_)) && recovery.ask.is_some_and(|ask| ask.request == request)
        });
        asked || resumed || (self.entities[id].wave != 0 && self.wave_is(id, request))
    }

    fn judge_snapshot(&mut self, id: EntityId, snapshot: Snapshot, payload: P) {
        let model = self.model(id);
        let asked = snapshot.request.is_some();
        let Some(position) = self.entities[id].position() else {
            return self.adopt(id, snapshot, payload, false);
        };
        if model.continuity == Continuity::None {
            return self.adopt(id, snapshot, payload, false);
        }
        if model.reset_seq == Some(snapshot.seq) && !asked && snapshot.epoch == position.epoch {
            return self.adopt(id, snapshot, payload, true);
        }
        let question = self.recovery(id).map_or(Question::None, |recovery| recovery.question);
        if snapshot.epoch != position.epoch {
            if self.is_retired(id, snapshot.epoch) && question != Question::Anew {
                if !asked || !self.recover(id).flaps(snapshot.epoch) {
                    self.stats.retired += 1;
                    self.discard(Some(payload));
                    if asked {
                        self.try_failed(id);
                    }
                    return;
                }
                self.fault(Some(id), Fault::EpochFlapping);
            }
            return self.adopt(id, snapshot, payload, true);
        }
        if snapshot.seq > position.seq {
            return self.adopt(id, snapshot, payload, false);
        }
        let whatever = match question {
            Question::None => false,
            Question::Fault => snapshot.seq == position.seq,
            Question::Lag | Question::Fork | Question::Anew => asked || question == Question::Anew,
        };
        if whatever {
            return self.adopt(id, snapshot, payload, snapshot.seq < position.seq);
        }
        if snapshot.seq < position.seq {
            self.stats.stale += 1;
            self.discard(Some(payload));
            if asked {
                let recovery = self.recover(id);
                recovery.lag = recovery.lag.saturating_add(1);
                if recovery.lag >= AGREEING_ANSWERS && recovery.question == Question::None {
                    recovery.question = Question::Lag;
                }
                self.refute_suspects(id);
                self.try_failed(id);
            }
            return;
        }
        let status = self.entities[id].status;
        if status.is_some() && snapshot.status.is_some() && status != snapshot.status {
            self.discard(Some(payload));
            if asked {
                self.answered(id);
            }
            return self.diverged(id);
        }
        self.discard(Some(payload));
        self.refute_suspects(id);
        self.answered(id);
        let recovery = self.recover(id);
        recovery.wants_snapshot = false;
        recovery.no_after = false;
        recovery.lag = 0;
        self.touch(id);
    }

    /// The snapshot that was asked came: its request and deadline are over.
    fn answered(&mut self, id: EntityId) {
        self.set_wave(id, 0);
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.snapshot = 0;
            recovery.resubscribe = false;
            if let Some(ask) = &mut recovery.ask {
                ask.confirms = false;
            }
            if matches!(recovery.stage, Stage::Snapshot(_) | Stage::Resume(_)) {
                self.set_stage(id, Stage::Rest);
            }
        }
    }

    /// An answer that did not help: the next one is paced (ladder, rung 4).
    fn try_failed(&mut self, id: EntityId) {
        self.answered(id);
        self.recover(id).wants_snapshot = true;
        self.touch(id);
    }

    fn refute_suspects(&mut self, id: EntityId) {
        let Some(recovery) = self.recovery_mut(id) else {
            return;
        };
        let suspects = core::mem::take(&mut recovery.suspects);
        for suspect in suspects {
            self.recover(id).refute(suspect.epoch);
            self.discard_all(suspect.held);
        }
        self.note_bytes(id);
    }

    /// Takes a snapshot as the truth.
    fn adopt(&mut self, id: EntityId, snapshot: Snapshot, payload: P, reset: bool) {
        self.note_undo(id, snapshot.seq);
        let position = self.entities[id].position();
        let same_epoch = position.is_some_and(|position| position.epoch == snapshot.epoch);
        self.answered(id);
        if same_epoch {
            self.refute_suspects(id);
        }
        if reset || (position.is_some() && !same_epoch) {
            self.drop_history(id);
        }
        let recovery = self.recover(id);
        if !same_epoch {
            if let Some(position) = position {
                recovery.retire(position.epoch);
            }
            recovery.retired.retain(|&epoch| epoch != snapshot.epoch);
            recovery.refuted.retain(|&(epoch, _)| epoch != snapshot.epoch);
            if let Some(at) = recovery.suspects.iter().position(|suspect| suspect.epoch == snapshot.epoch) {
                recovery.held = recovery.suspects.remove(at).held;
            }
            recovery.head = None;
        }
        recovery.question = Question::None;
        recovery.wants_snapshot = false;
        recovery.no_after = false;
        recovery.floor = None;
        recovery.lag = 0;
        recovery.flapping = None;
        recovery.errors = 0;
        if recovery.fault_at <= snapshot.seq {
            recovery.faults = 0;
        }
        if recovery.gap.is_some_and(|to| to <= snapshot.seq) {
            recovery.gap = None;
        }
        if recovery.faults < AGREEING_ANSWERS {
            recovery.failed = false;
        }
        let skipped = position
            .filter(|position| same_epoch && !reset && snapshot.seq > position.seq)
            .map(|position| (position.seq + 1, snapshot.seq));
        let entity = &mut self.entities[id];
        entity.move_to(snapshot.epoch, snapshot.seq);
        entity.status = snapshot.status;
        entity.flags.set(Flags::FINAL, false);
        entity.flags.set(Flags::CLEAR, false);
        self.stats.adopted += 1;
        self.stats.resets += u64::from(reset);
        self.note_bytes(id);
        self.outputs.push_back(Output::Change(Change {
            entity: id,
            kind: ChangeKind::Snapshot,
            epoch: snapshot.epoch,
            prev: snapshot.seq,
            seq: snapshot.seq,
            status: snapshot.status,
            id: EventId::NONE,
            reset,
            skipped,
            locks: false,
            bytes: 0,
            payload: Some(payload),
        }));
        self.touch(id);
    }

    /// Held events, ids and requests belong to a history that is void.
    fn drop_history(&mut self, id: EntityId) {
        self.free_ids_of(id);
        let Some(recovery) = self.recovery_mut(id) else {
            return;
        };
        let held = core::mem::take(&mut recovery.held);
        let whole = core::mem::take(&mut recovery.whole);
        recovery.ask = None;
        recovery.done = false;
        recovery.head = None;
        recovery.gap = None;
        recovery.faults = 0;
        if matches!(recovery.stage, Stage::Grace(_) | Stage::Replay(_) | Stage::Resume(_)) {
            self.set_stage(id, Stage::Rest);
        }
        self.discard_all(held);
        self.discard_all(whole);
        self.note_bytes(id);
    }

    fn snapshot_after_final(&mut self, id: EntityId, snapshot: Snapshot, payload: P) {
        let reopens = self.model(id).reopen == Reopen::Epoch;
        let asked = snapshot.request.is_some();
        let same_epoch = snapshot.epoch == self.entities[id].epoch;
        if !same_epoch && reopens {
            if self.is_retired(id, snapshot.epoch) && !(asked && self.recover(id).flaps(snapshot.epoch)) {
                self.stats.retired += 1;
                self.discard(Some(payload));
                if asked {
                    self.answered(id);
                    self.touch(id);
                }
                return;
            }
            return self.adopt(id, snapshot, payload, true);
        }
        self.discard(Some(payload));
        if same_epoch {
            self.refute_suspects(id);
            if snapshot.seq <= self.entities[id].last {
                self.stats.stale += u64::from(snapshot.seq < self.entities[id].last);
            } else {
                self.after_final(id, snapshot.epoch, snapshot.seq);
            }
        } else {
            self.after_final(id, snapshot.epoch, snapshot.seq);
        }
        self.answered(id);
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.wants_snapshot = false;
        }
        self.touch(id);
    }

    /// R31: a final entity was released and joined again; its number is the floor, its status the lock.
    fn snapshot_on_floor(&mut self, id: EntityId, floor: Floor, snapshot: Snapshot, payload: P) {
        let same_epoch = floor.epoch == snapshot.epoch;
        if !same_epoch && self.model(id).reopen == Reopen::Epoch {
            return self.adopt(id, snapshot, payload, true);
        }
        if same_epoch && snapshot.seq < floor.seq && snapshot.status != floor.status {
            let recovery = self.recover(id);
            recovery.lag = recovery.lag.saturating_add(1);
            let persistent = recovery.lag >= AGREEING_ANSWERS;
            self.stats.stale += 1;
            self.discard(Some(payload));
            return if persistent { self.lock_on_floor(id, floor) } else { self.try_failed(id) };
        }
        if same_epoch && snapshot.status == floor.status {
            let seq = snapshot.seq.max(floor.seq);
            return self.adopt(id, Snapshot { seq, ..snapshot }, payload, false);
        }
        self.discard(Some(payload));
        self.stats.after_final += 1;
        self.fault(Some(id), Fault::AfterFinal);
        self.lock_on_floor(id, floor);
    }

    /// The remembered end stands, whatever the answer says.
    fn lock_on_floor(&mut self, id: EntityId, floor: Floor) {
        self.answered(id);
        self.recover(id).floor = None;
        let entity = &mut self.entities[id];
        entity.move_to(floor.epoch, floor.seq);
        entity.status = floor.status;
        self.outputs.push_back(Output::Change(Change {
            entity: id,
            kind: ChangeKind::Snapshot,
            epoch: floor.epoch,
            prev: floor.seq,
            seq: floor.seq,
            status: floor.status,
            id: EventId::NONE,
            reset: false,
            skipped: None,
            locks: true,
            bytes: 0,
            payload: None,
        }));
        self.touch(id);
    }
}

/// The ladder (R19–R23, R30).
impl<P> Client<P> {
    /// Looks at an entity whose held events don't fit: is something missing, and what happens next?
    fn settle(&mut self, id: EntityId) {
        if !self.entities.contains(id) {
            return;
        }
        let model = self.model(id);
        if self.entities[id].recovery == 0 {
            let clear = self.is_clear(id, &model);
            self.entities[id].flags.set(Flags::CLEAR, clear);
            return self.refresh(id);
        }
        let is_final = self.entities[id].has(Flags::FINAL);
        let reopening = is_final
            && self.recovery(id).is_some_and(|recovery| !recovery.suspects.is_empty() || recovery.wants_snapshot);
        if is_final && !reopening
            || !self.is_followed(id) && self.recovery(id).is_none_or(|recovery| recovery.stage != Stage::Denied)
        {
            self.trim(id);
            return self.refresh(id);
        }
        let position = self.entities[id].position();
        let last = position.map_or(0, |position| position.seq);
        let live = self.connection.is_live();
        let unconfirmed =
            self.entities[id].wave != 0 || self.entities[id].has(Flags::QUEUED) || !self.connection.is_open();
        let hole = self.hole(id);
        let straddles = self.straddles(id, &model);
        let Some(recovery) = self.recovery_mut(id) else {
            return;
        };

        if recovery.faults > 0 && recovery.question == Question::None && position.is_some() && last >= recovery.fault_at
        {
            recovery.faults = 0;
        }
        if recovery.head.is_some_and(|head| head <= last) {
            recovery.head = None;
        }
        let judged = recovery.done;
        if judged {
            recovery.done = false;
            let ask = recovery.ask.take();
            if hole.is_some() && ask.is_some_and(|ask| ask.to.is_none_or(|to| last < to)) || position.is_none() {
                recovery.wants_snapshot = true;
            }
        } else if recovery.ask.is_some_and(|ask| ask.to.is_some_and(|to| last >= to)) {
            recovery.ask = None;
        }
        if recovery.ask.is_none()
            && matches!(recovery.stage, Stage::Replay(_) | Stage::Resume(_))
            && (judged || !matches!(recovery.stage, Stage::Replay(Step::Ready)))
        {
            self.set_stage(id, Stage::Rest);
        }
        if straddles {
            self.recover(id).wants_snapshot = true;
        }
        if !unconfirmed && hole.is_some() {
            self.report_gap(id, hole);
        }
        if unconfirmed || !live || self.recover(id).resubscribe {
            return self.refresh(id);
        }

        let recovery = self.recover(id);
        let asks_snapshot = recovery.wants_snapshot
            || recovery.question != Question::None
            || !recovery.suspects.is_empty()
            || position.is_none() && model.continuity != Continuity::None;
        let confirms = recovery.ask.is_some_and(|ask| ask.confirms);
        let stage = recovery.stage;
        if asks_snapshot {
            if matches!(stage, Stage::Rest | Stage::Grace(_) | Stage::Replay(_) | Stage::Resume(_)) {
                self.start_snapshot(id);
            }
        } else if hole.is_some() {
            if stage == Stage::Rest {
                let until = self.now + self.config.gap.grace;
                if self.config.gap.grace == 0 { self.next_rung(id) } else { self.set_stage(id, Stage::Grace(until)) }
            }
        } else if !confirms || stage == Stage::Rest {
            // R30: `confirms` without a stage can't be; a replay that still confirms keeps its deadline.
            self.set_stage(id, Stage::Rest);
            self.recover(id).rest();
            self.entities[id].flags.set(Flags::BEHIND, false);
            self.trim(id);
            let clear = self.is_clear(id, &model);
            self.entities[id].flags.set(Flags::CLEAR, clear);
        }
        self.refresh(id);
    }

    /// The missing numbers, first and last.
    fn hole(&self, id: EntityId) -> Option<(Seq, Seq)> {
        let last = self.entities[id].position()?.seq;
        let recovery = self.recovery(id)?;
        match recovery.held.front() {
            Some(front) if front.prev > last => Some((last + 1, front.prev)),
            Some(_) => None,
            None => recovery.head.filter(|&head| head > last).map(|head| (last + 1, head)),
        }
    }

    fn straddles(&self, id: EntityId, model: &Model) -> bool {
        let entity = &self.entities[id];
        entity.position().is_some()
            && self
                .recovery(id)
                .and_then(|recovery| recovery.held.front())
                .is_some_and(|front| entity.reach(model, front.prev, front.seq, front.visible) == Reach::Straddles)
    }

    /// Reports a gap once; a later one that starts behind it is another.
    fn report_gap(&mut self, id: EntityId, hole: Option<(Seq, Seq)>) {
        let Some((from, to)) = hole else { return };
        let recovery = self.recover(id);
        if recovery.gap.is_some_and(|reported| from <= reported) {
            return;
        }
        recovery.gap = Some(to);
        self.stats.gaps += 1;
        self.outputs.push_back(Output::Gap { entity: id, from, to });
    }

    /// The grace is over, or a wait after an error: ask.
    fn next_rung(&mut self, id: EntityId) {
        let replays = self.model(id).on_gap() == OnGap::Replay && self.connection.can.replay;
        if replays && !self.recover(id).wants_snapshot {
            self.set_stage(id, Stage::Replay(Step::Ready));
        } else {
            self.recover(id).wants_snapshot = true;
            self.start_snapshot(id);
        }
    }

    fn start_snapshot(&mut self, id: EntityId) {
        let asked = self.recovery(id).map_or(0, |recovery| recovery.snapshots);
        if asked >= SNAPSHOT_TRIES {
            return self.give_up(id, self.now + SNAPSHOT_CAP);
        }
        let wait = snapshot_wait(asked, &mut self.jitter);
        let step = if wait == 0 { Step::Ready } else { Step::Wait(self.now + wait) };
        self.set_stage(id, Stage::Snapshot(step));
    }

    fn give_up(&mut self, id: EntityId, until: Instant) {
        let recovery = self.recover(id);
        let reported = core::mem::replace(&mut recovery.failed, true);
        recovery.ask = None;
        self.set_stage(id, Stage::Failed(until));
        if !reported {
            self.fault(Some(id), Fault::GaveUp);
        }
        self.refresh(id);
    }

    fn set_stage(&mut self, id: EntityId, stage: Stage) {
        let before = match self.recovery(id) {
            Some(recovery) => recovery.stage,
            None if stage == Stage::Rest => return,
            None => Stage::Rest,
        };
        self.out += usize::from(stage.is_out());
        self.out -= usize::from(before.is_out());
        self.recover(id).stage = stage;
        if let Some(at) = stage.timer() {
            self.arm(at, id);
        }
        if stage.is_ready() {
            self.ready.push(id);
        }
    }

    fn arm(&mut self, at: Instant, id: EntityId) {
        self.timers.set(at, id);
        let troubled = self.recoveries.len() - self.free_recoveries.len();
        if self.timers.len() > 64 + 4 * troubled {
            let (entities, recoveries) = (&self.entities, &self.recoveries);
            self.timers.retain(|at, id| is_armed(entities, recoveries, at, id));
        }
    }

    /// An entity's timer: its linger, or its stage.
    fn fire(&mut self, id: EntityId) {
        let now = self.now;
        let Some(recovery) = self.recovery(id) else {
            return;
        };
        if recovery.linger.is_some_and(|at| at <= now) {
            return self.let_go(id);
        }
        let stage = recovery.stage;
        if stage.timer().is_none_or(|at| at > now) {
            return;
        }
        match stage {
            Stage::Grace(_) => {
                self.set_stage(id, Stage::Rest);
                if self.hole(id).is_some() {
                    self.next_rung(id);
                } else {
                    self.touch(id);
                }
            }
            Stage::Resume(_) | Stage::Replay(Step::Out(_)) => self.replay_timed_out(id),
            Stage::Replay(Step::Wait(_)) => self.set_stage(id, Stage::Replay(Step::Ready)),
            Stage::Snapshot(Step::Wait(_)) => self.set_stage(id, Stage::Snapshot(Step::Ready)),
            Stage::Snapshot(Step::Out(_)) => {
                self.connection.probe(now);
                self.set_stage(id, Stage::Rest);
                self.start_snapshot(id);
            }
            Stage::Error(_) => {
                self.set_stage(id, Stage::Rest);
                if core::mem::take(&mut self.recover(id).resubscribe) {
                    self.queue_subscribe(id);
                } else if self.recover(id).ask.is_some() {
                    self.set_stage(id, Stage::Replay(Step::Ready));
                } else {
                    self.touch(id);
                }
            }
            Stage::Failed(_) => {
                if core::mem::take(&mut self.recover(id).resubscribe) {
                    self.set_stage(id, Stage::Rest);
                    self.queue_subscribe(id);
                } else {
                    self.recover(id).wants_snapshot = true;
                    self.set_stage(id, Stage::Snapshot(Step::Ready));
                }
            }
            Stage::Rest | Stage::Denied | Stage::Replay(Step::Ready) | Stage::Snapshot(Step::Ready) => {}
        }
        self.refresh(id);
    }

    fn replay_timed_out(&mut self, id: EntityId) {
        self.connection.probe(self.now);
        let tries = self.config.replay_tries;
        let recovery = self.recover(id);
        // What an abandoned page brought was never seen; the next try starts anew.
        let whole = core::mem::take(&mut recovery.whole);
        let again = match &mut recovery.ask {
            Some(ask) => {
                ask.paged = false;
                ask.tries < tries
            }
            None => false,
        };
        self.discard_all(whole);
        self.note_bytes(id);
        if again && self.connection.can.replay {
            self.set_stage(id, Stage::Replay(Step::Ready));
        } else {
            self.set_stage(id, Stage::Rest);
            self.recover(id).wants_snapshot = true;
            self.start_snapshot(id);
        }
    }

    fn wave_timed_out(&mut self, wave: WaveId) {
        let Some(timed_out) = self.waves.get(wave).cloned() else {
            return;
        };
        self.connection.probe(self.now);
        let waiting: Vec<EntityId> = self.entities.ids().filter(|&id| self.entities[id].wave == wave).collect();
        let mut again = Vec::new();
        for id in waiting {
            self.set_wave(id, 0);
            match timed_out.kind {
                WaveKind::Subscribe if timed_out.tries + 1 < SNAPSHOT_TRIES => {
                    self.entities[id].flags.set(Flags::QUEUED, true);
                    again.push(id);
                }
                WaveKind::Subscribe => {
                    self.recover(id).resubscribe = true;
                    self.give_up(id, self.now + SNAPSHOT_CAP);
                }
                WaveKind::Member if self.entities[id].position().is_some() => self.doubt(id),
                WaveKind::Member | WaveKind::Heads => self.want_snapshot(id),
            }
        }
        if !again.is_empty() {
            self.to_reask.push(Reask { request: timed_out.request, tries: timed_out.tries + 1, entities: again });
        }
    }

    /// Something may have been missed: ask for the head, or a snapshot where the server can't tell heads.
    fn doubt(&mut self, id: EntityId) {
        if !self.connection.is_live() || !self.is_followed(id) || self.entities[id].has(Flags::FINAL) {
            return;
        }
        let entity = &self.entities[id];
        if entity.wave != 0 || entity.has(Flags::QUEUED) {
            return; // its confirmation is awaited anyway
        }
        if self.connection.can.heads && entity.position().is_some() && self.model(id).continuity != Continuity::None {
            if self.recovery(id).is_none_or(|recovery| recovery.stage == Stage::Rest) {
                self.to_ask_heads.push(id);
            }
        } else {
            self.want_snapshot(id);
        }
    }

    fn doubt_all(&mut self) {
        let wanted: Vec<EntityId> = self.entities.ids().filter(|&id| self.entities[id].is_wanted()).collect();
        wanted.into_iter().for_each(|id| self.doubt(id));
    }

    /// R21: quiet, unfinished entities of a server that can't send heads.
    fn reconcile(&mut self) {
        let wanted: Vec<EntityId> = self.entities.ids().filter(|&id| self.entities[id].is_wanted()).collect();
        for id in wanted {
            let entity = &mut self.entities[id];
            let quiet = !entity.has(Flags::HEARD);
            entity.flags.set(Flags::HEARD, false);
            if quiet && !entity.has(Flags::FINAL) && entity.wave == 0 && self.sync(id) == Sync::Live {
                self.set_stage(id, Stage::Snapshot(Step::Ready));
                self.recover(id).wants_snapshot = true;
                self.entities[id].flags.set(Flags::CLEAR, false);
            }
        }
    }

    /// R19: a buffer that grew too large is cut.
    fn bound(&mut self, id: EntityId) {
        let limits = &self.config.gap;
        let (max_events, max_bytes) = (limits.max_events, limits.max_bytes);
        while self
            .recovery(id)
            .is_some_and(|recovery| recovery.held_events() > max_events || recovery.held_bytes() > max_bytes)
        {
            if !self.cut(id) {
                break;
            }
        }
        while self.held_bytes > HELD_BYTES {
            let largest = (0..self.recoveries.len())
                .max_by_key(|&at| self.recoveries[at].as_ref().map_or(0, |recovery| recovery.counted));
            let owner =
                largest.and_then(|at| self.entities.ids().find(|&id| self.entities[id].recovery as usize == at + 1));
            if !owner.is_some_and(|id| self.cut(id)) {
                break;
            }
        }
    }

    /// Drops one held event: the farthest while a replay delivers what comes before it, else the lowest, which the snapshot will cover.
    fn cut(&mut self, id: EntityId) -> bool {
        let unconfirmed =
            self.entities[id].wave != 0 || self.entities[id].has(Flags::QUEUED) || !self.connection.is_open();
        let placed = self.entities[id].position().is_some();
        let Some(recovery) = self.recovery_mut(id) else {
            return false;
        };
        let delivering = matches!(recovery.stage, Stage::Resume(_) | Stage::Replay(Step::Out(_)))
            && recovery.ask.is_some_and(|ask| ask.paged);
        let farthest = delivering || placed && unconfirmed;
        let dropped = if let Some(suspect) = recovery
            .suspects
            .iter_mut()
            .max_by_key(|suspect| suspect.held.len())
            .filter(|suspect| !suspect.held.is_empty())
        {
            suspect.held.pop_front()
        } else if farthest {
            recovery.held.pop_back().or_else(|| recovery.whole.pop_back())
        } else {
            recovery.held.pop_front().or_else(|| recovery.whole.pop_front())
        };
        if placed && !farthest {
            recovery.wants_snapshot = true;
        }
        let Some(dropped) = dropped else { return false };
        self.stats.overflowed += 1;
        self.discard(dropped.payload);
        self.note_bytes(id);
        true
    }

    /// `error` with `forbidden` or `not_found`: failed for good.
    fn deny(&mut self, id: EntityId, fault: Fault) {
        if self.entities[id].has(Flags::FINAL) {
            return;
        }
        self.set_wave(id, 0);
        self.entities[id].flags.set(Flags::QUEUED, false);
        self.drop_history(id);
        let recovery = self.recover(id);
        let suspects = core::mem::take(&mut recovery.suspects);
        recovery.rest();
        recovery.wants_snapshot = false;
        recovery.question = Question::None;
        suspects.into_iter().for_each(|suspect| self.discard_all(suspect.held));
        self.note_bytes(id);
        self.set_stage(id, Stage::Denied);
        self.entities[id].flags.set(Flags::CLEAR, false);
        self.fault(Some(id), fault);
        self.refresh(id);
    }

    /// Another `error`: asked again after a wait, on the same socket.
    fn postpone(&mut self, id: EntityId, retry_after: Option<Millis>) {
        let joining = self.entities[id].wave != 0;
        self.set_wave(id, 0);
        self.fault(Some(id), Fault::Server);
        let now = self.now;
        let recovery = self.recover(id);
        recovery.errors = recovery.errors.saturating_add(1);
        recovery.resubscribe |= joining;
        recovery.snapshot = 0;
        let wait = recovery.error_wait().max(retry_after.unwrap_or(0).min(crate::config::RETRY_AFTER_CAP));
        self.set_stage(id, Stage::Error(now + wait));
        self.entities[id].flags.set(Flags::CLEAR, false);
        self.refresh(id);
    }

    /// Whether the entity waits for a replay, or a resume, under this request.
    fn answers_replay(&self, id: EntityId, request: Request) -> bool {
        self.is_followed(id)
            && (self.entities[id].wave != 0 && self.wave_is(id, request)
                || self.recovery(id).is_some_and(|recovery| recovery.ask.is_some_and(|ask| ask.request == request)))
    }

    /// The replay or resume was answered otherwise.
    fn end_ask(&mut self, id: EntityId) {
        self.set_wave(id, 0);
        let Some(recovery) = self.recovery_mut(id) else {
            return;
        };
        recovery.ask = None;
        let whole = core::mem::take(&mut recovery.whole);
        if matches!(recovery.stage, Stage::Replay(_) | Stage::Resume(_)) {
            self.set_stage(id, Stage::Rest);
        }
        self.discard_all(whole);
        self.note_bytes(id);
        self.touch(id);
    }
}

/// Subscriptions, topics, and what is sent (R20, R30, R31, R39).
impl<P> Client<P> {
    /// Sees to it that a wanted entity's frames come: by its own subscription, or by its topic's.
    fn cover(&mut self, id: EntityId) {
        let entity = &self.entities[id];
        let resumes = !entity.has(Flags::FINAL) || self.model(id).reopen == Reopen::Epoch;
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

    fn queue_subscribe(&mut self, id: EntityId) {
        if !self.entities[id].has(Flags::QUEUED) {
            self.set_wave(id, 0);
            let entity = &mut self.entities[id];
            entity.flags.set(Flags::QUEUED, true);
            entity.flags.set(Flags::CLEAR, false);
            self.to_subscribe.push(id);
        }
        self.refresh(id);
    }

    /// A member waits for what its topic's subscription brings.
    fn await_member(&mut self, topic: EntityId, member: EntityId) {
        let request = self.topics.note(topic).request;
        if !self.connection.is_open()
            || self.entities[member].has(Flags::FINAL)
            || self.entities[member].wave != 0
            || self.entities[member].has(Flags::SENT)
        {
            return;
        }
        let deadline = self.now + self.config.timeout.subscribe;
        match self.waves.join(WaveKind::Member, request, deadline) {
            Some(wave) => self.set_wave(member, wave),
            None => self.want_snapshot(member),
        }
        self.entities[member].flags.set(Flags::MOVED, false);
        self.refresh(member);
    }

    /// The last subscriber left.
    fn abandon(&mut self, id: EntityId) {
        if self.entities[id].is_wanted() {
            return;
        }
        let at = self.now + self.config.linger;
        self.recover(id).linger = Some(at);
        self.arm(at, id);
    }

    /// Nobody came back within the linger.
    fn let_go(&mut self, id: EntityId) {
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
            self.released.push_back(id);
        }
        if subscribed {
            self.to_unsubscribe.push(id);
        } else if !self.entities[id].has(Flags::REMEMBERED) {
            self.forget(id);
        }
        if self.released.len() > RELEASED_FINALS
            && let Some(oldest) = self.released.pop_front()
        {
            self.entities[oldest].flags.set(Flags::REMEMBERED, false);
            self.forget(oldest);
        }
        for member in members {
            self.leave_topic(member);
        }
    }

    fn forget(&mut self, id: EntityId) {
        self.to_unsubscribe.retain(|&other| other != id);
        self.to_subscribe.retain(|&other| other != id);
        self.draining.retain(|&other| other != id);
        self.entities.remove(id);
        self.outputs.push_back(Output::Forgotten { entity: id });
    }

    /// A released final entity is wanted again: what is remembered is the floor.
    fn rejoin(&mut self, id: EntityId) {
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
    fn flush(&mut self) -> bool {
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
        !self.outputs.is_empty() || !self.draining.is_empty()
    }

    fn flush_unsubscribes(&mut self) {
        let leaving: Vec<EntityId> =
            core::mem::take(&mut self.to_unsubscribe).into_iter().filter(|&id| self.entities.contains(id)).collect();
        if leaving.is_empty() {
            return;
        }
        self.outputs.push_back(Output::Send(Command::Unsubscribe { entities: leaving.clone() }));
        for id in leaving {
            if !self.is_wanted(id) && !self.entities[id].has(Flags::REMEMBERED) {
                self.forget(id);
            }
        }
    }

    fn flush_subscribes(&mut self) {
        for reask in core::mem::take(&mut self.to_reask) {
            self.subscribe_all(reask.request, reask.tries, reask.entities);
        }
        let fresh = core::mem::take(&mut self.to_subscribe);
        if !fresh.is_empty() {
            let request = self.next_request();
            self.subscribe_all(request, 0, fresh);
        }
    }

    fn subscribe_all(&mut self, request: Request, tries: u8, wanted: Vec<EntityId>) {
        let wanted: Vec<EntityId> = wanted
            .into_iter()
            .filter(|&id| self.entities.contains(id) && self.entities[id].has(Flags::QUEUED))
            .collect();
        let (wanted, dropped): (Vec<EntityId>, Vec<EntityId>) = wanted.into_iter().partition(|&id| self.is_wanted(id));
        dropped.into_iter().for_each(|id| self.entities[id].flags.set(Flags::QUEUED, false));
        if wanted.is_empty() {
            return;
        }
        let deadline = self.now + self.config.timeout.subscribe;
        let Some(wave) = self.waves.open(WaveKind::Subscribe, request, deadline, tries) else {
            // All waves are out; each has a deadline, and a wave that ends makes room.
            self.to_reask.push(Reask { request, tries, entities: wanted });
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
            let (mut behind, mut cursor) = (Vec::new(), false);
            if topic {
                let noted = self.topics.note(id);
                noted.request = request;
                cursor = noted.cursor;
                for member in self.topics.members(id).to_vec() {
                    if self.entities[member].has(Flags::FINAL) && self.model(member).reopen == Reopen::Never {
                        continue;
                    }
                    if !cursor || self.entities[member].has(Flags::BEHIND) {
                        behind.push((member, self.resume_position(member)));
                    }
                    self.set_wave(member, 0);
                    self.await_member(id, member);
                }
            }
            resumes.push(Resume { entity: id, position: self.resume_position(id), behind, cursor });
            self.refresh(id);
        }
        self.outputs.push_back(Output::Send(Command::Subscribe { request, entities: resumes }));
    }

    fn resume_position(&self, id: EntityId) -> Option<Position> {
        let forgotten =
            self.recovery(id).is_some_and(|recovery| recovery.no_after || recovery.question == Question::Anew);
        self.entities[id].position().filter(|_| !forgotten)
    }

    fn flush_heads(&mut self) {
        let mut asked = core::mem::take(&mut self.to_ask_heads);
        asked.sort_unstable();
        asked.dedup();
        asked.retain(|&id| {
            self.is_followed(id)
                && !self.entities[id].has(Flags::FINAL)
                && self.entities[id].wave == 0
                && !self.entities[id].has(Flags::QUEUED)
        });
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
        self.outputs.push_back(Output::Send(Command::Heads { request, entities: asked }));
    }

    /// R20: recovery requests, fewest tries first, while slots are free.
    fn flush_requests(&mut self) {
        let mut ready = core::mem::take(&mut self.ready);
        ready.retain(|&id| {
            self.entities.contains(id) && self.recovery(id).is_some_and(|recovery| recovery.stage.is_ready())
        });
        ready.sort_unstable();
        ready.dedup();
        let tries = |id: &EntityId| {
            self.recovery(*id).map_or(0, |recovery| match recovery.stage {
                Stage::Replay(_) => recovery.ask.map_or(0, |ask| ask.tries),
                _ => recovery.snapshots.saturating_add(self.config.replay_tries),
            })
        };
        ready.sort_by_key(tries);
        let slots = self.config.max_requests.saturating_sub(self.out);
        self.ready = ready.split_off(slots.min(ready.len()));
        if ready.is_empty() {
            return;
        }
        let mut replays: Vec<(Request, Vec<Range>)> = Vec::new();
        let mut snapshots: Vec<(Request, Vec<EntityId>)> = Vec::new();
        let (mut new_replay, mut new_snapshot) = (0, 0);
        for id in ready {
            let is_replay = matches!(self.recovery(id).map(|recovery| recovery.stage), Some(Stage::Replay(_)));
            if is_replay {
                let Some(range) = self.missing(id) else {
                    self.set_stage(id, Stage::Rest);
                    self.touch(id);
                    continue;
                };
                let asked = self.recover(id).ask;
                let request = match asked {
                    Some(ask) => ask.request,
                    None => {
                        if new_replay == 0 {
                            new_replay = self.next_request();
                        }
                        new_replay
                    }
                };
                let again = asked.unwrap_or(Ask {
                    request,
                    from: range.from,
                    to: range.to,
                    tries: 0,
                    paged: false,
                    confirms: false,
                });
                let deadline = self.now + self.config.timeout.replay;
                self.set_stage(id, Stage::Replay(Step::Out(deadline)));
                let recovery = self.recover(id);
                recovery.ask = Some(Ask { tries: again.tries.saturating_add(1), paged: false, ..again });
                recovery.shown = true;
                self.stats.replays += 1;
                group(&mut replays, request, range);
            } else if self.connection.can.snapshot {
                let asked = self.recover(id).snapshot;
                let request = match asked {
                    0 => {
                        if new_snapshot == 0 {
                            new_snapshot = self.next_request();
                        }
                        new_snapshot
                    }
                    again => again,
                };
                let deadline = self.now + self.config.timeout.snapshot;
                self.set_stage(id, Stage::Snapshot(Step::Out(deadline)));
                // A reconciliation's first question is routine; nothing is known to be missing.
                let routine = self.entities[id].sync == Sync::Live && self.is_routine(id);
                let recovery = self.recover(id);
                recovery.snapshot = request;
                recovery.snapshots = recovery.snapshots.saturating_add(1);
                recovery.shown |= !routine;
                self.stats.snapshots += 1;
                group(&mut snapshots, request, id);
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
        for (request, ranges) in replays {
            self.outputs.push_back(Output::Send(Command::Replay { request, ranges }));
        }
        for (request, entities) in snapshots {
            self.outputs.push_back(Output::Send(Command::Snapshot { request, entities }));
        }
    }

    /// What a replay should bring: from the first missing number to before the earliest held event.
    fn missing(&self, id: EntityId) -> Option<Range> {
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
    fn is_routine(&self, id: EntityId) -> bool {
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

    fn next_request(&mut self) -> Request {
        self.requests = self.requests.wrapping_add(1).max(1);
        self.requests
    }

    fn set_wave(&mut self, id: EntityId, wave: WaveId) {
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

    fn wave_is(&self, id: EntityId, request: Request) -> bool {
        self.waves.get(self.entities[id].wave).is_some_and(|wave| wave.request == request)
    }

    fn waiting_for(&self, request: Request, kind: WaveKind) -> Vec<EntityId> {
        let waves = self.waves.of_request(request);
        self.entities
            .ids()
            .filter(|&id| {
                let wave = self.entities[id].wave;
                waves.contains(&wave) && self.waves.get(wave).is_some_and(|wave| wave.kind == kind)
            })
            .collect()
    }
}

/// The connection's consequences (R25–R30).
impl<P> Client<P> {
    fn act(&mut self, act: Act) {
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

    /// The socket is silent or too slow: another one takes its place.
    fn replace(&mut self) {
        self.stats.replaced += 1;
        self.outputs.push_back(Output::Close { generation: self.connection.generation(), code: CLOSE_REPLACED });
        let act = self.connection.replaced(self.now, &self.config, &mut self.jitter);
        self.disconnect();
        self.act(act);
    }

    fn bad_frame(&mut self, id: Option<EntityId>) {
        self.stats.bad_frames += 1;
        self.fault(id, Fault::BadFrame);
        if self.connection.bad_frame(&self.config) {
            self.outputs.push_back(Output::Close { generation: self.connection.generation(), code: CLOSE_BAD_FRAMES });
            self.connection.lost(self.now, &self.config, &mut self.jitter);
            self.disconnect();
        }
    }

    /// The page slept: deadlines that passed prove nothing. Find out whether the socket is alive.
    fn wake(&mut self) {
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
    fn disconnect(&mut self) {
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

    fn forget_questions(&mut self) {
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
    fn forget_positions(&mut self) {
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
    fn is_unfinished(&self) -> bool {
        self.entities.ids().any(|id| self.entities[id].is_wanted() && !self.entities[id].has(Flags::FINAL))
    }
}

/// Small things.
impl<P> Client<P> {
    fn tick(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let (entities, recoveries) = (&self.entities, &self.recoveries);
        self.timers.skip(|at, id| !is_armed(entities, recoveries, at, id));
    }

    fn model(&self, id: EntityId) -> Model {
        self.models.get(usize::from(self.entities[id].model.0)).copied().unwrap_or_default()
    }

    /// Whether frames of it count: wanted or lingering, and not refused by the server.
    fn is_followed(&self, id: EntityId) -> bool {
        !self.connection.is_closed()
            && self.is_wanted(id)
            && self.recovery(id).is_none_or(|recovery| recovery.stage != Stage::Denied)
    }

    /// Whether the position was confirmed on this socket (R30).
    fn is_confirmed(&self, id: EntityId) -> bool {
        let entity = &self.entities[id];
        self.connection.is_open()
            && entity.wave == 0
            && !entity.has(Flags::QUEUED)
            && (entity.has(Flags::SENT) || entity.topics > 0)
            && self
                .recovery(id)
                .is_none_or(|recovery| !recovery.resubscribe && recovery.ask.is_none_or(|ask| !ask.confirms))
    }

    fn is_clear(&self, id: EntityId, model: &Model) -> bool {
        let entity = &self.entities[id];
        model.continuity == Continuity::PlusOne
            && model.on_gap() != OnGap::Skip
            && model.reset_seq.is_none()
            && entity.has(Flags::PLACED)
            && !entity.has(Flags::FINAL)
            && !entity.has(Flags::DRAINING)
            && entity.is_wanted()
            && self.is_confirmed(id)
            && self.recovery(id).is_none_or(|recovery| recovery.held_events() == 0 && recovery.stage == Stage::Rest)
    }

    fn refresh(&mut self, id: EntityId) {
        if !self.entities.contains(id) || self.entities[id].has(Flags::REMEMBERED) {
            return;
        }
        let sync = self.sync(id);
        let entity = &mut self.entities[id];
        if entity.sync != sync {
            entity.sync = sync;
            self.outputs.push_back(Output::Sync { entity: id, sync });
        }
    }

    /// Has the entity looked at before the outputs run dry.
    fn touch(&mut self, id: EntityId) {
        let entity = &mut self.entities[id];
        if !entity.has(Flags::DRAINING) {
            entity.flags.set(Flags::DRAINING, true);
            entity.flags.set(Flags::CLEAR, false);
            self.draining.push_back(id);
        }
    }

    fn fault(&mut self, entity: Option<EntityId>, fault: Fault) {
        self.outputs.push_back(Output::Fault { entity, fault });
    }

    fn ignore(&mut self, payload: Option<P>) {
        self.stats.unknown += 1;
        self.discard(payload);
    }

    fn discard(&mut self, payload: Option<P>) {
        if let Some(payload) = payload {
            self.outputs.push_back(Output::Discard(payload));
        }
    }

    fn discard_all(&mut self, mut held: Gap<P>) {
        while let Some(event) = held.pop_front() {
            self.discard(event.payload);
        }
    }

    /// What a whole replay brought counts from now on.
    fn hold_again(&mut self, id: EntityId, mut whole: Gap<P>) {
        while let Some(event) = whole.pop_front() {
            if let Err(repeat) = self.recover(id).held.insert(event) {
                self.discard(repeat.payload);
            }
        }
        self.note_bytes(id);
    }

    fn recovery(&self, id: EntityId) -> Option<&Recovery<P>> {
        recovery_of(&self.entities, &self.recoveries, id)
    }

    fn recovery_mut(&mut self, id: EntityId) -> Option<&mut Recovery<P>> {
        let at = (self.entities[id].recovery as usize).checked_sub(1)?;
        self.recoveries.get_mut(at)?.as_deref_mut()
    }

    /// The entity's recovery, made if there is none.
    fn recover(&mut self, id: EntityId) -> &mut Recovery<P> {
        if self.entities[id].recovery == 0 {
            let at = self.free_recoveries.pop().unwrap_or_else(|| {
                self.recoveries.push(None);
                self.recoveries.len() as u32 - 1
            });
            self.entities[id].recovery = at + 1;
        }
        let at = self.entities[id].recovery as usize - 1;
        self.recoveries[at].get_or_insert_with(Box::default)
    }

    /// Frees a recovery that remembers nothing.
    fn trim(&mut self, id: EntityId) {
        let now = self.now;
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.far_asked = recovery.far_asked.filter(|&at| now.since(at) < FAR_AHEAD_PACE);
            recovery.diverged = recovery.diverged.filter(|&at| now.since(at) < DIVERGED_PACE);
            if recovery.is_idle() {
                self.drop_recovery(id);
            }
        }
    }

    fn drop_recovery(&mut self, id: EntityId) {
        let at = self.entities[id].recovery;
        if at == 0 {
            return;
        }
        self.entities[id].recovery = 0;
        self.free_recoveries.push(at - 1);
        if let Some(mut recovery) = self.recoveries[at as usize - 1].take() {
            self.held_bytes -= recovery.counted;
            self.out -= usize::from(recovery.stage.is_out());
            self.discard_all(core::mem::take(&mut recovery.held));
            self.discard_all(core::mem::take(&mut recovery.whole));
            recovery.suspects.into_iter().for_each(|suspect| self.discard_all(suspect.held));
        }
    }

    /// Keeps the count of held bytes (R19).
    fn note_bytes(&mut self, id: EntityId) {
        let Some(recovery) = self.recovery_mut(id) else {
            return;
        };
        let (before, bytes) = (recovery.counted, recovery.held_bytes());
        recovery.counted = bytes;
        self.held_bytes = self.held_bytes - before + bytes;
    }

    fn ids_of(&self, id: EntityId) -> Option<&Ids> {
        let at = (self.entities[id].ids as usize).checked_sub(1)?;
        self.ids.get(at)?.as_ref()
    }

    fn ids_mut(&mut self, id: EntityId) -> Option<&mut Ids> {
        let at = (self.entities[id].ids as usize).checked_sub(1)?;
        self.ids.get_mut(at)?.as_mut()
    }

    fn note_id(&mut self, id: EntityId, seq: Seq, event: EventId) {
        let capacity = self.model(id).ids;
        if capacity == 0 {
            return;
        }
        if self.entities[id].ids == 0 {
            let at = self.free_ids.pop().unwrap_or_else(|| {
                self.ids.push(None);
                self.ids.len() as u32 - 1
            });
            self.ids[at as usize] = Some(Ids::new(capacity));
            self.entities[id].ids = at + 1;
        }
        if let Some(ids) = self.ids_mut(id) {
            ids.push(seq, event);
        }
    }

    fn free_ids_of(&mut self, id: EntityId) {
        let at = core::mem::take(&mut self.entities[id].ids);
        if at != 0 {
            self.ids[at as usize - 1] = None;
            self.free_ids.push(at - 1);
        }
    }
}

fn recovery_of<'a, P>(
    entities: &Entities,
    recoveries: &'a [Option<Box<Recovery<P>>>],
    id: EntityId,
) -> Option<&'a Recovery<P>> {
    if !entities.contains(id) {
        return None;
    }
    let at = (entities[id].recovery as usize).checked_sub(1)?;
    recoveries.get(at)?.as_deref()
}

/// Whether an entry of the timers still means something.
fn is_armed<P>(entities: &Entities, recoveries: &[Option<Box<Recovery<P>>>], at: Instant, id: EntityId) -> bool {
    recovery_of(entities, recoveries, id)
        .is_some_and(|recovery| recovery.linger == Some(at) || recovery.stage.timer() == Some(at))
}

/// Puts `item` with the others of its request.
fn group<T>(groups: &mut Vec<(Request, Vec<T>)>, request: Request, item: T) {
    match groups.iter_mut().find(|(other, _)| *other == request) {
        Some((_, items)) => items.push(item),
        None => groups.push((request, vec![item])),
    }
}
