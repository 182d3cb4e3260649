//! The client: everything that comes in, everything that goes out, and the only place that decides.
//!
//! Call a `handle_*` for what happened, then [`Client::poll_output`] until it answers `None`, then arm one
//! timer for [`Client::poll_timeout`]. Inputs cannot fail: what is wrong becomes an [`Output::Fault`].

mod events;
mod ladder;
mod reading;
mod snapshots;
mod sockets;
mod subscriptions;

use std::collections::VecDeque;

use crate::config::{
    AGREEING_ANSWERS, CLOSE_BAD_FRAMES, CLOSE_NORMAL, CLOSE_REPLACED, Config, Continuity, DIVERGED_PACE,
    FAR_AHEAD_PACE, HELD_BYTES, Model, OnGap, RELEASED_FINALS, Reopen, SNAPSHOT_CAP, SNAPSHOT_TRIES, SUSPECT_EPOCHS,
    WAKE_AFTER,
};
use crate::connection::{Act, Connection};
pub use crate::connection::{Can, CloseClass, ConnectionState};
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
use crate::topic::Topics;
use crate::wave::{WaveId, WaveKind, Waves};
use crate::zoo::{self, Bug};

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
    /// The remembered end that was in force.
    floor: Option<Floor>,
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
    entities: Entities,
    recoveries: Vec<Option<Box<Recovery<P>>>>,
    now: Instant,
    waves: Waves,
    outputs: VecDeque<Output<P>>,
    /// Entities to look at: pull what fits, then see what is missing.
    draining: Vec<EntityId>,
    /// How many of them were looked at.
    drained: usize,
    /// Entities with a recovery request out (R20).
    out: usize,
    requests: Request,
    held_bytes: u64,
    stats: Stats,
    connection: Connection,
    config: Config,
    jitter: Jitter,
    models: Vec<Model>,
    free_recoveries: Vec<u32>,
    ids: Vec<Option<Ids>>,
    free_ids: Vec<u32>,
    topics: Topics,
    /// Not later than the first timer of an entity.
    timer: Option<Instant>,
    reported: (ConnectionState, Option<Instant>),
    /// The entity whose replay page is being read.
    page: Option<EntityId>,
    undo: Option<Undo>,
    to_subscribe: Vec<Asking>,
    to_unsubscribe: Vec<EntityId>,
    to_ask_heads: Vec<EntityId>,
    ready: Vec<EntityId>,
    /// Released finals, oldest first (R31).
    released: Vec<EntityId>,
    reconcile_at: Option<Instant>,
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
            timer: None,
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
            draining: Vec::new(),
            drained: 0,
            to_subscribe: Vec::new(),
            to_unsubscribe: Vec::new(),
            to_ask_heads: Vec::new(),
            ready: Vec::new(),
            released: Vec::new(),
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
            entity.flags.set(Flags::ENDED, true);
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
            self.emit(Output::Close { generation, code: CLOSE_NORMAL });
        }
        self.act(act);
        self.forget_questions();
        self.timer = None;
        self.draining.clear();
        self.drained = 0;
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
        let was_wanted = self.entities[id].is_wanted();
        self.entities[id].flags.set(Flags::SUBSCRIBED, true);
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.linger = None;
            if recovery.stage == Stage::Denied {
                recovery.rest();
                self.entities[id].flags.set(Flags::SENT, false);
            }
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
            self.entities[member].flags.set(Flags::BEHIND, true);
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
        self.emit(Output::Send(Command::Hello));
        let mut at = 0;
        while let Some(id) = self.entities.next(&mut at) {
            if self.entities[id].is_wanted() {
                self.cover(id);
                self.touch(id);
            }
        }
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
        let mut at = 0;
        while let Some(id) = self.entities.next(&mut at) {
            if self.entities[id].recovery != 0 {
                self.touch(id);
            }
        }
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
            seq: if zoo::has(Bug::WidenVacancies) { to + 1 } else { to },
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
            let kind = self.waves.get(self.entities[id].wave).map_or(WaveKind::Subscribe, |wave| wave.kind);
            if let Some(wave) = self.waves.join(kind, request, deadline) {
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
        if entity.has(Flags::FINAL) {
            if epoch == position.epoch {
                self.set_wave(id, 0);
            }
        } else if self.is_retired(id, epoch) {
            self.set_wave(id, 0);
            self.want_snapshot(id);
        } else if epoch == position.epoch && head > position.seq && !zoo::has(Bug::ConfirmAnyHead) {
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
            // A snapshot that is under way is not given up for it.
            if !matches!(self.recover(id).stage, Stage::Snapshot(_)) {
                self.set_stage(id, Stage::Resume(deadline));
            }
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
        if !self.is_followed(id) || self.entities[id].has(Flags::FINAL) || !self.asked_for(id, request) {
            self.stats.unwanted += 1;
            return self.discard(payload);
        }
        if self.entities[id].position().is_some_and(|position| position.epoch != epoch) {
            self.discard(payload);
            self.end_ask(id);
            return self.suspect_epoch(id, epoch);
        }
        let mut seq = self.entities[id].last;
        if let Some(floor) = self.recovery(id).and_then(|recovery| recovery.floor) {
            if floor.epoch != epoch || floor.status != status {
                self.discard(payload);
                return self.lock_on_floor(id, floor);
            }
            seq = floor.seq;
        }
        self.note_undo(id, seq);
        if let Some(recovery) = self.recovery_mut(id) {
            recovery.floor = None;
        }
        self.entities[id].move_to(epoch, seq);
        if status.is_some() {
            self.entities[id].status = status;
        }
        self.end_ask(id);
        self.emit(Output::Change(Change {
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
        let reopens = self.model(id).reopen == Reopen::Epoch && epoch != position.epoch;
        if entity.has(Flags::FINAL) && !reopens || self.model(id).continuity == Continuity::None {
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
        let mut at = 0;
        while let Some(id) = self.entities.next(&mut at) {
            let waits = self.waves.get(self.entities[id].wave);
            if waits.is_some_and(|wave| wave.kind == WaveKind::Heads && wave.request == request) {
                self.set_wave(id, 0);
                self.want_snapshot(id);
            }
        }
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
        let vouches = self.sync(topic) == Sync::Live;
        let vouches = vouches || zoo::has(Bug::TrustCursors);
        self.topics.note(topic).cursor = vouches;
        if !vouches {
            return;
        }
        for member in self.topics.members(topic).to_vec() {
            let entity = &self.entities[member];
            let covered = self.waves.get(entity.wave).is_some_and(|wave| wave.kind == WaveKind::Member);
            // Who was named in `behind` gets an answer of its own, which may come after the cursor.
            if covered && entity.position().is_some() && (!entity.has(Flags::BEHIND) || zoo::has(Bug::TrustCursors)) {
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
        let (mut at, asked) = (0, request.unwrap_or_default());
        match id {
            Some(id) if self.is_followed(id) && (request.is_none() || self.asked_for(id, asked)) => {
                self.refused(id, code, retry_after);
            }
            Some(_) => {}
            None if request.is_some() => {
                while let Some(id) = self.entities.next(&mut at) {
                    if self.asked_for(id, asked) {
                        self.refused(id, code, retry_after);
                    }
                }
            }
            None => {
                if let Some(wait) = retry_after {
                    self.connection.retry_after(self.now, wait);
                }
                self.fault(None, Fault::Server);
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
        self.void_token();
        self.connection.freeze();
        if let Some(generation) = socket {
            self.emit(Output::Close { generation, code: CLOSE_REPLACED });
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
        earliest(earliest(self.connection.poll_timeout(), waves), earliest(reconcile, self.timer))
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
        while let Some(wave) = self.waves.due(self.now) {
            self.wave_timed_out(wave);
        }
        if self.timer.is_some_and(|at| at <= self.now) {
            self.fire_all();
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
        let reopens = self.model(id).reopen == Reopen::Epoch;
        let entity = &mut self.entities[id];
        entity.flags.set(Flags::FINAL, !zoo::has(Bug::ForgetLock));
        entity.flags.set(Flags::CLEAR, false);
        if !reopens {
            entity.flags.set(Flags::QUEUED, false);
        }
        if !entity.has(Flags::ENDED) {
            entity.flags.set(Flags::ENDED, true);
            self.emit(Output::Final { entity: id });
        }
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
        let adopted = entity.epoch;
        let lost_epoch = undo.position.map(|position| position.epoch).filter(|&epoch| epoch != adopted);
        match undo.position {
            _ if zoo::has(Bug::RollBackNothing) => {}
            Some(position) => entity.move_to(position.epoch, position.seq),
            None => entity.flags.set(Flags::PLACED, false),
        }
        entity.status = undo.status;
        entity.flags.set(Flags::CLEAR, false);
        entity.flags.set(Flags::FINAL, undo.was_final);
        if undo.was_final {
            entity.flags.set(Flags::ENDED, true);
        }
        let now = self.now;
        let placed = undo.position.is_some();
        let recovery = self.recover(id);
        if let Some(epoch) = lost_epoch {
            recovery.retired.retain(|&retired| retired != epoch);
        }
        if undo.position.is_none_or(|position| position.epoch != adopted) && !recovery.held.is_empty() {
            // What was held of the epoch that was taken back is under suspicion again.
            let held = core::mem::take(&mut recovery.held);
            recovery.suspects.retain(|suspect| suspect.epoch != adopted);
            recovery.suspects.push(Suspect { epoch: adopted, held });
        }
        recovery.floor = undo.floor;
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
                self.bound(id);
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
            if let Some(&id) = self.draining.get(self.drained) {
                if let Some(change) = self.pull(id) {
                    return Some(change);
                }
                if self.outputs.is_empty() {
                    self.drained += 1;
                    if self.entities.contains(id) {
                        self.entities[id].flags.set(Flags::DRAINING, false);
                        self.settle(id);
                    }
                }
                continue;
            }
            self.draining.clear();
            self.drained = 0;
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
        let Some(entity) = self.entities.get_mut(id) else { return Verdict::Slow };
        if !entity.has(Flags::CLEAR) || entity.epoch != epoch || prev.wrapping_add(1) != seq {
            return Verdict::Slow;
        }
        if seq == entity.last + 1 {
            self.undo = Some(Undo {
                entity: id,
                position: entity.position(),
                status: entity.status,
                seq,
                was_final: false,
                floor: None,
            });
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

/// Small things.
impl<P> Client<P> {
    #[inline(never)]
    fn tick(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    #[inline(never)]
    fn model(&self, id: EntityId) -> Model {
        self.models.get(usize::from(self.entities[id].model.0)).copied().unwrap_or_default()
    }

    /// Whether frames of it count: wanted or lingering, and not refused by the server.
    #[inline(never)]
    fn is_followed(&self, id: EntityId) -> bool {
        !self.connection.is_closed()
            && self.is_wanted(id)
            && self.recovery(id).is_none_or(|recovery| recovery.stage != Stage::Denied)
    }

    /// Whether the position was confirmed on this socket (R30).
    #[inline(never)]
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

    #[inline(never)]
    fn refresh(&mut self, id: EntityId) {
        if !self.entities.contains(id) || self.entities[id].has(Flags::REMEMBERED) {
            return;
        }
        let sync = self.sync(id);
        let entity = &mut self.entities[id];
        if sync == Sync::Live {
            entity.flags.set(Flags::BEHIND, false);
        }
        if entity.sync != sync {
            entity.sync = sync;
            self.emit(Output::Sync { entity: id, sync });
        }
    }

    /// Has the entity looked at before the outputs run dry.
    #[inline(never)]
    fn touch(&mut self, id: EntityId) {
        let entity = &mut self.entities[id];
        if !entity.has(Flags::DRAINING) {
            entity.flags.set(Flags::DRAINING, true);
            entity.flags.set(Flags::CLEAR, false);
            self.draining.push(id);
        }
    }

    #[inline(never)]
    fn emit(&mut self, output: Output<P>) {
        self.outputs.push_back(output);
    }

    #[inline(never)]
    fn fault(&mut self, entity: Option<EntityId>, fault: Fault) {
        self.emit(Output::Fault { entity, fault });
    }

    fn ignore(&mut self, payload: Option<P>) {
        self.stats.unknown += 1;
        self.discard(payload);
    }

    #[inline(never)]
    fn discard(&mut self, payload: Option<P>) {
        if let Some(payload) = payload {
            self.emit(Output::Discard(payload));
        }
    }

    #[inline(never)]
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

    #[inline(never)]
    fn recovery(&self, id: EntityId) -> Option<&Recovery<P>> {
        recovery_of(&self.entities, &self.recoveries, id)
    }

    #[inline(never)]
    fn recovery_mut(&mut self, id: EntityId) -> Option<&mut Recovery<P>> {
        let at = (self.entities[id].recovery as usize).checked_sub(1)?;
        self.recoveries.get_mut(at)?.as_deref_mut()
    }

    /// The entity's recovery, made if there is none.
    #[inline(never)]
    fn recover(&mut self, id: EntityId) -> &mut Recovery<P> {
        if self.entities[id].recovery == 0 {
            let at = self.free_recoveries.pop().unwrap_or_else(|| {
                self.recoveries.push(None);
                self.recoveries.len() as u32 - 1
            });
            self.entities[id].recovery = at + 1;
        }
        let at = self.entities[id].recovery as usize - 1;
        let recovery = self.recoveries[at].get_or_insert_with(Box::default);
        recovery.entity = id;
        recovery
    }

    /// Frees a recovery that remembers nothing.
    #[inline(never)]
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
    #[inline(never)]
    fn note_bytes(&mut self, id: EntityId) {
        let Some(recovery) = self.recovery_mut(id) else {
            return;
        };
        let (before, bytes) = (recovery.counted, recovery.held_bytes());
        recovery.counted = bytes;
        self.held_bytes = self.held_bytes - before + bytes;
    }

    #[inline(never)]
    fn ids_of(&self, id: EntityId) -> Option<&Ids> {
        let at = (self.entities[id].ids as usize).checked_sub(1)?;
        self.ids.get(at)?.as_ref()
    }

    #[inline(never)]
    fn ids_mut(&mut self, id: EntityId) -> Option<&mut Ids> {
        let at = (self.entities[id].ids as usize).checked_sub(1)?;
        self.ids.get_mut(at)?.as_mut()
    }

    #[inline(never)]
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
