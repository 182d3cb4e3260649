//! The page of a world: the real core with a driver of numbers only, and what must be true after every step.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use inorder::client::{
    Can, Change, ChangeKind, Command, ConnectionState, EntityId, Epoch, ErrorCode, Event, EventId, Fault, Output, Seq,
    Snapshot, Status, Sync, Verdict,
};
use inorder::config::{Config, Continuity, Model, OnGap, Reopen};
use inorder::time::Instant;

use super::gateway::{Ask, ENTITIES, Entry, Frame, Gateway, History, Item, RUNNING, Whole};
use super::slips::{self, Slip};
use super::trace::Traced;

/// A fork is followed by a snapshot once in so long (R5).
const DIVERGED_PACE: u64 = 60_000;

/// Outputs of one call; more is a loop.
const ENDLESS: u32 = 100_000;

/// What the core carries for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Payload {
    pub epoch: u32,
    /// Which of the entity's histories it is of.
    pub book: u32,
    pub seq: Seq,
    /// A state of a snapshot, or the value of an event.
    pub value: Option<u64>,
    pub repeated: bool,
}

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Situations that a campaign must have seen, or it proves less than it says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mark {
            $($(#[$doc])* $name,)*
        }

        pub const MARKS: &[Mark] = &[$(Mark::$name),*];
    };
}

marks! {
    StaleSnapshot
    DuplicateDropped
    Overflowed
    ReplayCut
    EpochAdopted
    EpochInReplay
    TerminalHeld
    SuspicionHeld
    SuspicionRefuted
    Reopened
    AfterFinal
    Gone
    Lagged
    WentBack
    FaultRolledBack
    GaveUp
    Replaced
    TokenFailed
    Vacancy
    RepeatedId
    BadFrames
    Flapped
    Released
    Rejoined
    MemberJoined
    MemberLeft
    CursorResumed
    HeadFoundTail
    Woken
    ErrorAnswered
    FinalAnswered
    Anew
    Calm
    FastApplied
    FastDropped
    Arrived
    Forked
    Diverged
    Mixed
    StartedOver
    Straddled
    StraddleHeld
    PartMissing
    PartsJoined
    Pushed
    CountedHole
    Trapped
    Ghost
    Poisoned
    BytesOverflowed
    TakenWhole
    GapSkipped
    BehindNamed
    Stopped
    AuthFailed
    Hidden
    Clean
}

/// What the page shows of one entity, and what it must not forget.
#[derive(Clone, Debug, Default, Hash)]
pub struct View {
    pub id: Option<EntityId>,
    pub wanted: bool,
    /// The last position that the core had, shown or passed silently.
    pub stands: Option<(u32, Seq)>,
    /// Which of the entity's histories that is in.
    book: u32,
    /// The history forked behind its back, or began anew unheard: what it shows need not be in the log.
    pub mixed: bool,
    /// A fork was noticed: nothing but a snapshot may be shown.
    in_doubt: bool,
    /// When a fork was last noticed in time for a snapshot (R5).
    diverged: Option<u64>,
    /// What must be shown at once, where only the order of arrival counts.
    arrival: Option<Payload>,
    /// Parts that came of a snapshot.
    parts: Option<(Whole, u8)>,
    pub state: u64,
    pub status: u8,
    pub locked: bool,
    /// Its end was told.
    pub ended: bool,
    pub denied: bool,
    /// (seq, id) of the events that were applied since the last reset, newest last.
    applied: Vec<(Seq, u64)>,
    /// A replay that is out: its request, its last number, its deadline.
    replay: Option<(u32, Option<Seq>, u64)>,
    /// The snapshot request that is out, and its deadline.
    snapshot: Option<(u32, u64)>,
}

/// What the core wants from the network.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Act {
    Dial { generation: u32 },
    Close { code: u16 },
    Send(Ask),
    Token { id: u32 },
}

#[derive(Clone)]
pub struct Page {
    pub client: Traced,
    pub config: Arc<Config>,
    pub model: Model,
    pub topic_model: Model,
    pub views: Vec<View>,
    pub topic: bool,
    pub acts: Vec<Act>,
    pub marks: u64,
    /// The next change can't be reduced (R36).
    pub faulty: bool,
    pub closed: bool,
    /// Nobody looks at it: its socket is closed until somebody does.
    pub hidden: bool,
    /// Snapshots and replays asked, for clean runs.
    pub asked: (u32, u32),
    pub trace: u64,
    pub cursor: Option<u32>,
    /// Events take the short way where the core allows it, as in a browser.
    pub fast: bool,
    /// What the world may do to histories (R5).
    pub forks: bool,
    /// A change could not be reduced, once.
    pub has_rolled_back: bool,
    /// Forks that the core reported since the last look.
    noticed: u8,
    /// The count of the last frame.
    counted: u64,
    in_socket: bool,
    models: Option<(inorder::client::ModelId, inorder::client::ModelId)>,
    calls_in_callback: Option<Call>,
}

/// A call of the application from inside a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Leave(usize),
    Join(usize),
    Close,
}

type Checked = Result<(), String>;

impl Page {
    pub fn new(config: Config, model: Model, entities: usize, topic: bool, seed: u64, traced: bool) -> Page {
        Page {
            client: Traced::new(config.clone(), seed, traced),
            config: Arc::new(config),
            model,
            topic_model: Model { topic: true, reopen: Reopen::Never, ..model },
            views: vec![View::default(); entities],
            topic,
            acts: Vec::new(),
            marks: 0,
            faulty: false,
            closed: false,
            hidden: false,
            asked: (0, 0),
            trace: 0,
            cursor: None,
            fast: true,
            forks: false,
            has_rolled_back: false,
            noticed: 0,
            counted: 0,
            in_socket: false,
            models: None,
            calls_in_callback: None,
        }
    }

    /// What tells two pages of one world apart.
    pub fn identify(&self, hasher: &mut impl Hasher) {
        (&*self.client, &self.views, self.in_socket).hash(hasher);
    }

    pub fn mark(&mut self, mark: Mark) {
        self.marks |= 1 << mark as u64;
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what ^ slips::remembered()).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
    }

    /// The id of an entity, made known if it is new.
    pub fn id(&mut self, entity: usize) -> EntityId {
        if let Some(id) = self.views[entity].id {
            return id;
        }
        let (plain, topics) = *self
            .models
            .get_or_insert_with(|| (self.client.add_model(self.model), self.client.add_model(self.topic_model)));
        let id = self.client.add_entity(if self.topic && entity == 0 { topics } else { plain });
        self.views[entity].id = Some(id);
        id
    }

    fn entity(&self, id: EntityId) -> Option<usize> {
        self.views.iter().position(|view| view.id == Some(id))
    }

    pub fn model_of(&self, entity: usize) -> &Model {
        if self.topic && entity == 0 { &self.topic_model } else { &self.model }
    }

    pub fn join(&mut self, now: u64, entity: usize) {
        if self.views[entity].wanted || self.closed {
            return;
        }
        let id = self.id(entity);
        if !self.client.is_wanted(id) && self.views[entity].locked {
            // Released and remembered: nothing is shown of it until it is answered.
            let locked = self.views[entity].status;
            self.views[entity] = View { id: Some(id), status: locked, ended: true, ..View::default() };
            self.mark(Mark::Rejoined);
        }
        self.views[entity].wanted = true;
        self.client.subscribe(Instant(now), id);
    }

    pub fn leave(&mut self, now: u64, entity: usize) {
        if !self.views[entity].wanted || self.closed {
            return;
        }
        self.views[entity].wanted = false;
        if let Some(id) = self.views[entity].id {
            self.client.unsubscribe(Instant(now), id);
        }
    }

    pub fn close(&mut self, now: u64) {
        if !slips::has(Slip::CloseNobody) {
            self.client.close(Instant(now));
        }
        self.closed = true;
    }

    /// What the next callback will call.
    pub fn call_back(&mut self, call: Call) {
        self.calls_in_callback = Some(call);
    }

    /// The application behaves from now on.
    pub fn spare(&mut self) {
        self.faulty = false;
        self.calls_in_callback = None;
    }

    /// The socket opened, or ended.
    pub fn opened(&mut self, now: u64, generation: u32) {
        self.in_socket = true;
        self.counted = 0;
        self.client.handle_opened(Instant(now), generation);
    }

    pub fn ended(&mut self, now: u64, generation: u32, code: u16) {
        self.in_socket = false;
        self.client.handle_closed(Instant(now), generation, code);
    }

    /// The wasm trapped: a new client takes over at the positions that were committed (R38).
    pub fn trap(&mut self, now: u64, seed: u64) {
        self.mark(Mark::Trapped);
        let at = Instant(now);
        let old = self.client.clone();
        self.client.start_over(seed);
        self.models = None;
        self.in_socket = false;
        self.acts.clear();
        self.socket_ended();
        let known: Vec<(usize, EntityId)> =
            (0..self.views.len()).filter_map(|entity| Some((entity, self.views[entity].id?))).collect();
        for &(entity, id) in &known {
            self.views[entity].id = None;
            let again = self.id(entity);
            self.client.restore(at, again, old.position(id), old.status(id), old.is_final(id));
            let view = &mut self.views[entity];
            view.applied.clear();
            // A remembered end is remembered by the client that is gone.
            (view.in_doubt, view.denied, view.ended, view.diverged) = (false, false, view.locked, None);
        }
        let members = if self.topic && self.views[0].id.is_some() { self.views[0].state } else { 0 };
        for &(entity, id) in &known {
            let Some(again) = self.views[entity].id else { continue };
            let is_member = self.topic && entity > 0 && members >> entity & 1 == 1 && old.is_wanted(id);
            if let Some(topic) = self.views[0].id.filter(|_| is_member) {
                self.client.add_member(at, topic, again);
            }
            if self.views[entity].wanted {
                self.client.subscribe(at, again);
            } else if !is_member {
                self.client.release(at, again);
            }
        }
        self.client.connect(at);
    }

    /// Events of a socket that is over, or of none.
    pub fn ghost(&mut self, now: u64, opens: bool) {
        self.mark(Mark::Ghost);
        let stale = self.client.current().wrapping_sub(1);
        if opens {
            self.client.handle_opened(Instant(now), stale);
        } else {
            self.client.handle_closed(Instant(now), stale, 1006);
        }
    }

    fn wanted(&mut self, now: u64, entity: usize) -> Option<EntityId> {
        let id = self.views[entity].id.filter(|&id| self.client.is_wanted(id));
        if id.is_none() {
            self.client.handle_unknown(Instant(now));
        }
        id
    }

    /// The count that a frame carries; the core acts when the frame was read.
    pub fn count(&mut self, now: u64, n: u64) {
        if n > self.counted + 1 {
            self.mark(Mark::CountedHole);
        }
        self.counted = n;
        self.client.handle_count(Instant(now), n);
    }

    /// A frame of the current socket.
    #[allow(clippy::too_many_lines)]
    pub fn frame(&mut self, now: u64, frame: &Frame, can: Can, heartbeat: Option<u64>, gateway: &Gateway) -> Checked {
        let at = Instant(now);
        self.client.handle_heard(at);
        match frame {
            Frame::Welcome => self.client.handle_welcome(at, heartbeat, can),
            Frame::Event { entity, epoch, entry } => {
                let Some(id) = self.wanted(now, *entity) else { return self.drain(now, gateway) };
                let (event, payload) = self.event(*entity, *epoch, entry);
                self.take(now, *entity, id, event, payload, gateway)?;
                if entry.status > RUNNING && self.client.held(id) > 0 {
                    self.mark(Mark::TerminalHeld);
                }
            }
            Frame::Snapshot(whole) => {
                let Whole { entity, epoch, book, seq, state, status, request, .. } = *whole;
                let Some(id) = self.wanted(now, entity) else { return self.drain(now, gateway) };
                if whole.of > 1 && !self.join_part(now, id, whole) {
                    return self.drain(now, gateway);
                }
                let payload = Payload { epoch, book, seq, value: Some(state), repeated: false };
                let snapshot = Snapshot { request, epoch: Epoch(epoch), seq, status: Status(u32::from(status)) };
                // Whatever it says, the ladder begins anew with it.
                (self.views[entity].replay, self.views[entity].snapshot) = (None, None);
                if request.is_none() {
                    self.mark(Mark::Pushed);
                }
                self.client.handle_snapshot(at, id, snapshot, payload);
            }
            Frame::Subscribed { entity, epoch, head, request } => {
                let Some(id) = self.wanted(now, *entity) else { return self.drain(now, gateway) };
                self.client.handle_subscribed(at, id, *request, Epoch(*epoch), *head);
            }
            Frame::Replay { entity, epoch, request, entries, done } => {
                let Some(id) = self.wanted(now, *entity) else { return self.drain(now, gateway) };
                if self.views[*entity].stands.is_some_and(|(stands, _)| stands != *epoch) {
                    self.mark(Mark::EpochInReplay);
                }
                if !self.client.begin_replay(at, id, *request) {
                    return self.drain(now, gateway);
                }
                if let Some((asked, to, deadline)) = self.views[*entity].replay {
                    let again = if now < deadline { now + self.config.timeout.replay } else { deadline };
                    self.views[*entity].replay = (asked != *request || !*done).then_some((asked, to, again));
                }
                self.drain(now, gateway)?;
                for entry in entries.iter().filter(|entry| entry.vacant) {
                    self.client.handle_vacant(at, id, Epoch(*epoch), entry.prev + 1, entry.seq);
                    self.drain(now, gateway)?;
                }
                for entry in entries.iter().filter(|entry| !entry.vacant) {
                    if self.closed || self.views[*entity].id != Some(id) {
                        return Ok(());
                    }
                    let (event, payload) = self.event(*entity, *epoch, entry);
                    self.give(now, *entity, id, event, payload, gateway)?;
                }
                if self.closed || self.views[*entity].id != Some(id) {
                    return Ok(());
                }
                if self.model_of(*entity).replay_whole && *done && !entries.is_empty() {
                    self.mark(Mark::TakenWhole);
                }
                self.client.end_replay(at, id, *request, *done);
            }
            Frame::Gone { entity, request } => {
                let Some(id) = self.wanted(now, *entity) else { return self.drain(now, gateway) };
                self.views[*entity].replay = None;
                self.mark(Mark::Gone);
                self.client.handle_gone(at, id, *request);
            }
            Frame::Ahead { entity, epoch, head, request } => {
                let Some(id) = self.wanted(now, *entity) else { return self.drain(now, gateway) };
                self.views[*entity].replay = None;
                self.mark(Mark::Lagged);
                self.client.handle_ahead(at, id, *request, Epoch(*epoch), *head);
            }
            Frame::Vacant { entity, epoch, from, to } => {
                let Some(id) = self.wanted(now, *entity) else { return self.drain(now, gateway) };
                self.mark(Mark::Vacancy);
                self.client.handle_vacant(at, id, Epoch(*epoch), *from, *to);
            }
            Frame::Final { entity, epoch, status, request } => {
                let Some(id) = self.wanted(now, *entity) else { return self.drain(now, gateway) };
                self.mark(Mark::FinalAnswered);
                let seq = self.client.position(id).map_or(0, |position| position.seq);
                let book = self.views[*entity].book;
                let payload = Payload { epoch: *epoch, book, seq, value: None, repeated: false };
                self.client.handle_final(at, id, *request, Epoch(*epoch), Status(u32::from(*status)), payload);
            }
            Frame::Discontinuity { entity } => match entity {
                Some(entity) => {
                    if let Some(id) = self.wanted(now, *entity) {
                        self.client.handle_discontinuity(at, Some(id));
                    }
                }
                None => self.client.handle_discontinuity(at, None),
            },
            Frame::Heartbeat { heads, cursor } => {
                for &(entity, epoch, head) in heads {
                    let Some(id) = self.views[entity].id.filter(|&id| self.client.is_wanted(id)) else { continue };
                    if self.views[entity].stands.is_some_and(|(e, s)| e == epoch && s < head) {
                        self.mark(Mark::HeadFoundTail);
                    }
                    let head = head + u64::from(slips::has(Slip::RaiseHeads));
                    self.client.handle_head(at, id, Epoch(epoch), head, None);
                    self.drain(now, gateway)?;
                }
                let topic = self.views[0].id.filter(|&id| self.topic && self.client.is_wanted(id));
                if let (Some(cursor), Some(id)) = (cursor, topic) {
                    self.cursor = Some(*cursor);
                    self.client.handle_cursor(at, id);
                }
            }
            Frame::Heads { heads, request } => {
                for &(entity, epoch, head) in heads {
                    let Some(id) = self.views[entity].id.filter(|&id| self.client.is_wanted(id)) else { continue };
                    self.client.handle_head(at, id, Epoch(epoch), head, Some(*request));
                    self.drain(now, gateway)?;
                }
                self.client.end_heads(at, *request);
            }
            Frame::Pong { id } => {
                assert!(!slips::has(Slip::PanicAtPong), "a planted slip");
                self.client.handle_pong(at, *id);
            }
            Frame::Error { entity, request, code, retry_after } => {
                let Some(id) = self.wanted(now, *entity) else { return self.drain(now, gateway) };
                let code = match code {
                    0 => ErrorCode::Forbidden,
                    1 => ErrorCode::NotFound,
                    _ => ErrorCode::Other,
                };
                self.mark(Mark::ErrorAnswered);
                self.views[*entity].replay = None;
                self.views[*entity].snapshot = None;
                self.client.handle_error(at, code, Some(*request), Some(id), *retry_after);
            }
            Frame::Goodbye { retry_after } => self.client.handle_goodbye(at, *retry_after),
            Frame::Bad => {
                self.mark(Mark::BadFrames);
                self.client.handle_bad_frame(at);
            }
        }
        self.drain(now, gateway)
    }

    /// An event of its own frame: the core judges it by numbers alone, if it can.
    fn take(
        &mut self,
        now: u64,
        entity: usize,
        id: EntityId,
        event: Event,
        payload: Payload,
        gateway: &Gateway,
    ) -> Checked {
        if self.fast && event.seq.is_some() {
            match self.client.accept(Instant(now), id, &event) {
                Verdict::Slow => {}
                Verdict::Apply => {
                    self.mark(Mark::FastApplied);
                    let seq = payload.seq;
                    let change = Change {
                        entity: id,
                        kind: ChangeKind::Event,
                        epoch: event.epoch,
                        prev: event.prev.unwrap_or(seq - 1),
                        seq,
                        status: event.status,
                        id: event.id,
                        reset: false,
                        skipped: None,
                        locks: false,
                        bytes: event.bytes,
                        payload: Some(payload),
                    };
                    self.change(now, change, gateway)?;
                    return self.drain(now, gateway);
                }
                Verdict::Advance => return self.drain(now, gateway),
                Verdict::Drop => {
                    self.mark(Mark::FastDropped);
                    if self.shows_a_fork(entity, &event) {
                        return Err(format!("fork: a fork was taken for a duplicate: {event:?}"));
                    }
                    return self.drain(now, gateway);
                }
            }
        }
        self.give(now, entity, id, event, payload, gateway)
    }

    /// An event on the long way.
    fn give(
        &mut self,
        now: u64,
        entity: usize,
        id: EntityId,
        event: Event,
        payload: Payload,
        gateway: &Gateway,
    ) -> Checked {
        let visible = event.has_data || event.status.is_some();
        let arrives = self.model_of(entity).continuity == Continuity::None && visible;
        let view = &self.views[entity];
        let stands = view.stands;
        let remembered = view.ended && view.stands.is_none();
        if arrives && !view.locked && !view.denied && !remembered {
            self.views[entity].arrival = Some(payload);
        }
        if let (Some((_, last)), Some(prev), Some(seq)) = (stands, event.prev, event.seq)
            && prev < last
            && last < seq
            && !self.model_of(entity).overlap_absolute
        {
            self.mark(Mark::StraddleHeld);
        }
        let forks = self.shows_a_fork(entity, &event);
        self.noticed = 0;
        self.client.handle_event(Instant(now), id, event, payload);
        self.drain(now, gateway)?;
        if forks && self.noticed == 0 && !self.closed {
            return Err(format!("fork: a fork was taken for a duplicate: {event:?}"));
        }
        if self.views[entity].arrival.take().is_some() && !self.closed && self.views[entity].id == Some(id) {
            return Err(format!("state: an arrival was not shown: {event:?}"));
        }
        Ok(())
    }

    /// Whether an event has the number of one that was shown, and another id, within what must be remembered.
    fn shows_a_fork(&self, entity: usize, event: &Event) -> bool {
        let view = &self.views[entity];
        let window = u64::from(self.model_of(entity).ids);
        let ((Some((epoch, last)), Some(seq)), false) = ((view.stands, event.seq), view.locked) else { return false };
        let model = self.model_of(entity);
        let counted = model.continuity == Continuity::PlusOne && model.reset_seq != Some(seq);
        let remembered = seq <= last && seq + window > last && event.epoch.0 == epoch && counted;
        let shown = view.applied.iter().rev().find(|(number, _)| *number == seq);
        remembered
            && event.id.is_some()
            && !view.in_doubt
            && !view.denied
            && !self.has_rolled_back
            && shown.is_some_and(|(_, id)| *id != 0 && *id != event.id.0)
    }

    /// Takes a part; true when the snapshot is whole (R17).
    fn join_part(&mut self, now: u64, id: EntityId, whole: &Whole) -> bool {
        let wanted = self.client.handle_part(Instant(now), id, whole.request);
        let timeout = self.config.timeout.snapshot;
        let view = &mut self.views[whole.entity];
        if !wanted {
            view.parts = None;
            return false;
        }
        if let Some((request, deadline)) = &mut view.snapshot
            && Some(*request) == whole.request
            && now < *deadline
        {
            *deadline = now + timeout;
        }
        let key = Whole { part: 0, ..*whole };
        let (of, came) = view.parts.take().unwrap_or((key, 0));
        let came = if of == key { came } else { 0 } | 1 << whole.part;
        if came.count_ones() == u32::from(whole.of) {
            self.mark(Mark::PartsJoined);
            return true;
        }
        view.parts = Some((key, came));
        false
    }

    fn event(&self, entity: usize, epoch: u32, entry: &Entry) -> (Event, Payload) {
        let named = !matches!(self.model_of(entity).continuity, Continuity::PlusOne | Continuity::None);
        let event = Event {
            epoch: Epoch(epoch),
            prev: named.then_some(entry.prev),
            seq: Some(entry.seq),
            id: EventId(entry.id),
            status: Status(u32::from(entry.status)),
            has_data: entry.value.is_some(),
            bytes: 100,
        };
        let Entry { book, seq, value, repeated, .. } = *entry;
        (event, Payload { epoch, book, seq, value, repeated })
    }

    /// Takes the core's outputs, and checks each.
    pub fn drain(&mut self, now: u64, gateway: &Gateway) -> Checked {
        let mut taken = 0;
        while let Some(output) = self.client.poll_output(Instant(now)) {
            taken += 1;
            if taken > ENDLESS {
                return Err("endless: outputs come without end".to_owned());
            }
            match output {
                Output::Change(change) => self.change(now, change, gateway)?,
                Output::Discard(_) => {}
                Output::Sync { entity, sync } => self.note(u64::from(entity.0) << 8 | sync as u64),
                Output::Gap { entity, from, to } => {
                    let (from, to) = if slips::has(Slip::TurnGaps) { (to, from) } else { (from, to) };
                    if from > to {
                        return Err(format!("told: gap {from}..{to} of {entity:?}"));
                    }
                }
                Output::Final { entity } => {
                    let Some(entity) = self.entity(entity) else { return Err("told: final of nobody".to_owned()) };
                    if std::mem::replace(&mut self.views[entity].ended, true) {
                        return Err(format!("final: entity {entity} became final twice"));
                    }
                }
                Output::Fault { entity, fault } => self.fault(now, entity, fault)?,
                Output::Forgotten { entity } => {
                    self.mark(Mark::Released);
                    if let Some(entity) = self.entity(entity) {
                        if self.views[entity].wanted {
                            return Err(format!("told: entity {entity} was forgotten while it was wanted"));
                        }
                        self.views[entity] = View::default();
                    }
                }
                Output::Connection(state) => self.note(0x1000 | state as u64),
                Output::Dial { generation } => {
                    if std::mem::replace(&mut self.in_socket, true) {
                        return Err("socket: a dial while there is a socket".to_owned());
                    }
                    if self.closed {
                        return Err("close: a dial after close".to_owned());
                    }
                    self.acts.push(Act::Dial { generation });
                }
                Output::Close { code, .. } => {
                    self.in_socket = false;
                    self.note(0x2000 | u64::from(code));
                    self.acts.push(Act::Close { code });
                }
                Output::GetToken { id, .. } => self.acts.push(Act::Token { id }),
                Output::CancelToken { .. } => {}
                Output::Send(command) => self.send(now, command)?,
            }
        }
        self.check(gateway)
    }

    fn fault(&mut self, now: u64, entity: Option<EntityId>, fault: Fault) -> Checked {
        self.note(0x3000 | fault as u64);
        match fault {
            Fault::Diverged => {
                self.mark(Mark::Diverged);
                self.noticed += 1;
                let Some(entity) = entity.and_then(|id| self.entity(id)).filter(|_| self.forks) else {
                    return Err("fork: a fork was reported, and nothing forked".to_owned());
                };
                let view = &mut self.views[entity];
                // One in a minute is followed by a snapshot; the ids are void either way.
                if view.diverged.is_none_or(|at| now >= at + DIVERGED_PACE) {
                    (view.diverged, view.in_doubt) = (Some(now), true);
                    view.replay = None;
                }
                view.applied.clear();
            }
            Fault::Stopped => self.mark(Mark::Stopped),
            Fault::AuthFailed => self.mark(Mark::AuthFailed),
            Fault::AfterFinal => self.mark(Mark::AfterFinal),
            Fault::EpochFlapping => self.mark(Mark::Flapped),
            Fault::GaveUp => self.mark(Mark::GaveUp),
            Fault::TokenFailed => self.mark(Mark::TokenFailed),
            _ => {}
        }
        Ok(())
    }

    fn change(&mut self, now: u64, change: Change<Payload>, gateway: &Gateway) -> Checked {
        let Some(entity) = self.entity(change.entity) else { return Err("told: a change of nobody".to_owned()) };
        if self.closed {
            return Err("close: a change after close".to_owned());
        }
        let (epoch, seq) = (change.epoch.0, change.seq);
        self.note(seq << 20 | u64::from(epoch) << 8 | change.kind as u64);
        let payload = change.payload.ok_or("told: a change without its payload")?;
        let history = gateway.history_of(entity, payload.book)?;
        let reopens = self.model_of(entity).reopen == Reopen::Epoch;
        let skips = self.model_of(entity).on_gap() == OnGap::Skip;
        let view = &self.views[entity].clone();
        if view.locked && !(reopens && change.reset && view.stands.is_some_and(|(stands, _)| stands != epoch)) {
            return Err(format!("final: entity {entity} changed after its end: {change:?}"));
        }
        let held = payload.epoch == epoch && payload.seq == seq;
        // An end that was raised by what came after it keeps its number, whatever the server forgot since.
        let is_remembered = view.stands.is_none() && view.ended && payload.seq < seq && self.forks;
        if !held && !change.locks && !is_remembered {
            return Err(format!("state: a payload of another change: {change:?}"));
        }
        let arrives = self.model_of(entity).continuity == Continuity::None;
        let overlaps = self.model_of(entity).overlap_absolute;
        let mut next = (view.state, view.status);
        match change.kind {
            ChangeKind::Event if arrives => {
                if self.views[entity].arrival.take() != Some(payload) {
                    return Err(format!("state: shown, but did not just arrive: {change:?}"));
                }
                self.mark(Mark::Arrived);
                if let Some(value) = payload.value {
                    next.0 = gateway.folds[entity].apply(next.0, value);
                }
                if change.status.0 != 0 {
                    next.1 = change.status.0 as u8;
                }
            }
            ChangeKind::Event if change.reset => {
                // Everything before is void.
                if self.model_of(entity).reset_seq != Some(seq) {
                    return Err(format!("back: an event that voids nothing does: {change:?}"));
                }
                self.mark(Mark::StartedOver);
                next.0 = payload.value.map_or(0, |value| gateway.folds[entity].apply(0, value));
                next.1 = change.status.0 as u8;
            }
            ChangeKind::Event => {
                let Some((stands, last)) = view.stands else {
                    return Err(format!("told: an event was applied before the first snapshot: {change:?}"));
                };
                if stands != epoch {
                    return Err(format!("epoch: applied at ({stands}, {last}): {change:?}"));
                }
                if seq <= last {
                    return Err(format!("once: applied at ({stands}, {last}): {change:?}"));
                }
                if view.in_doubt {
                    return Err(format!("fork: applied while the history is in doubt: {change:?}"));
                }
                if self.model_of(entity).reset_seq == Some(seq) {
                    return Err(format!("back: what came before is not void: {change:?}"));
                }
                if view.book != payload.book && !view.mixed {
                    return Err(format!("state: an event of another history: {change:?}"));
                }
                if change.prev < last && !skips {
                    if !overlaps {
                        return Err(format!("skipped: a range that straddles {last}: {change:?}"));
                    }
                    self.mark(Mark::Straddled);
                }
                if change.prev > last && skips {
                    self.mark(Mark::GapSkipped);
                }
                if !skips && !view.mixed {
                    self.silent(history, last, change.prev).map_err(|said| format!("{said}: {change:?}"))?;
                }
                let window = usize::from(self.model_of(entity).ids);
                let recent = view.applied.iter().rev().take(window);
                if change.id.0 != 0 && recent.clone().any(|&(_, id)| id == change.id.0) {
                    return Err(format!("once: the same event twice: {change:?}"));
                }
                if let Some(value) = payload.value.filter(|_| !payload.repeated || skips) {
                    next.0 = gateway.folds[entity].apply(next.0, value);
                }
                if change.status.0 != 0 {
                    next.1 = change.status.0 as u8;
                }
            }
            ChangeKind::Snapshot => {
                // An answer that says that nothing follows has no state.
                next.0 = payload.value.unwrap_or(next.0);
                next.1 = change.status.0 as u8;
                if let Some((stands, last)) = view.stands.filter(|_| !arrives) {
                    if stands != epoch && !change.reset {
                        return Err(format!("epoch: another epoch without reset: {change:?}"));
                    }
                    if stands == epoch && seq < last && !change.reset {
                        return Err(format!("back: back from {last} without reset: {change:?}"));
                    }
                    let passed = (stands == epoch && seq > last && !change.reset).then_some((last + 1, seq));
                    if passed != change.skipped {
                        return Err(format!("skipped: passed over {passed:?}: {change:?}"));
                    }
                } else if change.skipped.is_some() && !arrives {
                    return Err(format!("skipped: nothing was passed over: {change:?}"));
                }
            }
        }
        if std::mem::take(&mut self.faulty) {
            self.mark(Mark::FaultRolledBack);
            self.has_rolled_back = true;
            // Whoever starts over may not be heard a second time.
            self.views[entity].mixed |= change.reset && change.kind == ChangeKind::Event;
            let event = Some(payload).filter(|_| change.kind == ChangeKind::Event).map(|payload| {
                let event = Event {
                    epoch: change.epoch,
                    prev: Some(change.prev),
                    seq: Some(seq),
                    id: change.id,
                    status: change.status,
                    has_data: payload.value.is_some(),
                    bytes: change.bytes,
                };
                (event, payload)
            });
            self.client.rollback(Instant(now), change.entity, event);
            return self.stands_where_it_stood(entity, seq, gateway);
        }
        if change.kind == ChangeKind::Event && !history.was.is_empty() {
            // It may have passed silent numbers of a history that was lost since.
            let before = history.at(change.prev);
            self.views[entity].mixed |= before.is_some() && before != Some((view.state, view.status));
        }
        let view = &mut self.views[entity];
        let went_back = view.stands.is_some_and(|(stands, last)| stands == epoch && seq < last);
        let new_epoch = view.stands.is_some_and(|(stands, _)| stands != epoch);
        let reopened = std::mem::take(&mut view.locked);
        view.ended &= !reopened && !change.reset;
        if change.reset || view.stands.is_none() {
            view.applied.clear();
        }
        view.stands = Some((epoch, seq));
        view.book = payload.book;
        view.in_doubt &= change.kind == ChangeKind::Event && !change.reset;
        let before = std::mem::replace(&mut view.state, next.0);
        view.status = next.1;
        if change.kind == ChangeKind::Event {
            view.applied.push((seq, change.id.0));
        }
        // The oracle: what the log makes of everything up to here.
        let number = if is_remembered { payload.seq } else { seq };
        let expected = history.at(number);
        if expected == Some(next) {
            view.mixed &= payload.book != gateway.book(entity) || self.client.held(change.entity) > 0;
        } else if history.was_at(number, next.0, next.1) || change.kind == ChangeKind::Event && history.lost(seq) {
            view.mixed = true;
        } else if arrives || change.locks && payload.value.is_none() {
            // Arrivals make what they make; and a last word without a state leaves the one that was.
        } else if view.mixed && change.kind == ChangeKind::Event {
            self.mark(Mark::Mixed);
        } else {
            let Some(expected) = expected else {
                return Err(format!("state: no change ends at {seq} in epoch {epoch} of {entity}: {change:?}"));
            };
            return Err(format!(
                "state: entity {entity} shows {next:?} at ({epoch}, {seq}), the log makes {expected:?}"
            ));
        }
        for (seen, mark) in [(went_back, Mark::WentBack), (new_epoch, Mark::EpochAdopted), (reopened, Mark::Reopened)] {
            if seen {
                self.mark(mark);
            }
        }
        if next.1 > RUNNING || change.locks {
            let view = &mut self.views[entity];
            (view.locked, view.replay, view.snapshot) = (true, None, None);
            self.client.lock(Instant(now), change.entity);
        }
        if self.topic && entity == 0 {
            self.members(now, before, next.0);
        }
        match self.calls_in_callback.take() {
            Some(Call::Leave(other)) => self.leave(now, other),
            Some(Call::Join(other)) => self.join(now, other),
            Some(Call::Close) => self.close(now),
            None => {}
        }
        Ok(())
    }

    /// R36: after a rollback the position is where it was.
    fn stands_where_it_stood(&self, entity: usize, taken_back: Seq, gateway: &Gateway) -> Checked {
        let view = &self.views[entity];
        let stands = view.id.and_then(|id| self.client.position(id)).map(|p| (p.epoch.0, p.seq));
        match (view.stands, stands) {
            (Some((epoch, last)), Some((named, seq))) if epoch == named && seq >= last && seq < taken_back => {
                if view.mixed {
                    return Ok(());
                }
                // What was passed silently on the way stays passed.
                self.silent(gateway.history_of(entity, view.book)?, last, seq)
            }
            (before, now) if before == now => Ok(()),
            (before, now) => Err(format!("rollback: rolled back to {now:?} instead of {before:?}")),
        }
    }

    fn members(&mut self, now: u64, before: u64, after: u64) {
        let topic = self.id(0);
        for member in 1..self.views.len() {
            let bit = 1u64 << member;
            if after & !before & bit != 0 {
                let id = self.id(member);
                if !self.client.is_wanted(id) && self.views[member].locked {
                    self.views[member] = View { id: Some(id), ended: true, ..View::default() };
                }
                self.mark(Mark::MemberJoined);
                self.client.add_member(Instant(now), topic, id);
            }
        }
        for member in 1..self.views.len() {
            let bit = 1u64 << member;
            if before & !after & bit != 0
                && let Some(id) = self.views[member].id
            {
                self.mark(Mark::MemberLeft);
                self.client.remove_member(Instant(now), topic, id);
            }
        }
    }

    /// Nothing to show lies in (from, to]: vacancies, repeated ids, events with neither data nor status.
    fn silent(&self, history: &History, from: Seq, to: Seq) -> Checked {
        if !history.was.is_empty() {
            // It may have been silent before the fork.
            return Ok(());
        }
        let mut at = from;
        while at < to {
            let Some(entry) = history.entries.get(history.behind(at)) else {
                return Err(format!("skipped: {at}..{to} was skipped, which never was"));
            };
            let silent = entry.vacant || entry.repeated || entry.value.is_none() && entry.status == 0;
            if !silent {
                return Err(format!("skipped: {} was skipped", entry.seq));
            }
            at = entry.seq;
        }
        Ok(())
    }

    /// What must be true whenever the core has nothing more to say.
    fn check(&mut self, gateway: &Gateway) -> Checked {
        if self.closed {
            return Ok(());
        }
        for entity in 0..self.views.len() {
            let Some(id) = self.views[entity].id else { continue };
            if !self.client.is_wanted(id) {
                // Released: what was asked about it is nobody's question any more.
                self.views[entity].replay = None;
                self.views[entity].snapshot = None;
            }
            let stands = self.client.position(id).map(|p| (p.epoch.0, p.seq));
            let skips = self.model_of(entity).on_gap() == OnGap::Skip;
            if self.client.is_wanted(id) && self.client.is_final(id) && !self.views[entity].locked {
                let view = &mut self.views[entity];
                if view.stands.is_some() {
                    return Err(format!("told: entity {entity} is final, and nothing said so"));
                }
                // A remembered end: its number and status come back without a change.
                (view.locked, view.stands) = (true, stands);
            }
            let view = &self.views[entity];
            if self.model_of(entity).continuity == Continuity::None {
                self.views[entity].stands = stands;
            } else if let (Some((epoch, last)), Some((named, seq))) = (view.stands, stands) {
                if epoch != named || seq < last {
                    return Err(format!(
                        "back: the position of {entity} went from ({epoch}, {last}) to ({named}, {seq})"
                    ));
                }
                if seq > last && !view.locked && !view.mixed {
                    let history = gateway.history_of(entity, view.book)?;
                    if !skips {
                        self.silent(history, last, seq)?;
                    } else if history.at(seq).is_some_and(|expected| expected != (view.state, view.status)) {
                        return Err(format!("skipped: {entity} passed {last}..{seq} silently, which was not silent"));
                    }
                }
                let view = &mut self.views[entity];
                if stands != view.stands && !view.locked {
                    // What was passed silently may be of a history that was lost since.
                    let history = gateway.history_of(entity, view.book)?;
                    view.mixed |= !history.was.is_empty() && history.at(seq) != Some((view.state, view.status));
                }
                view.stands = stands;
            } else if view.stands.is_none() && stands.is_some() && !self.client.is_final(id) {
                return Err(format!("told: entity {entity} stands at {stands:?}, and nothing was shown"));
            }
            let held = self.client.held(id);
            let most = self.config.gap.max_events;
            if held > most {
                return Err(format!("bounds: {held} held for {entity}, {most} allowed"));
            }
            let sync = self.client.sync(id);
            if self.views[entity].in_doubt && sync == Sync::Live {
                return Err(format!("fork: {entity} is live, and its history is in doubt"));
            }
            if self.views[entity].locked && sync != Sync::Final {
                return Err(format!("final: final {entity} is {sync:?}"));
            }
            if sync == Sync::Live {
                // Whatever was asked is settled.
                self.views[entity].replay = None;
                self.views[entity].snapshot = None;
            }
            if sync == Sync::Live && self.client.connection() != ConnectionState::Live {
                return Err(format!("live: entity {entity} is live without a connection"));
            }
            let unsatisfied = matches!(sync, Sync::Joining | Sync::Recovering | Sync::Failed);
            let connected = self.client.connection() == ConnectionState::Live;
            let idle = self.client.poll_timeout().is_none();
            let denied = self.views[entity].denied;
            let abandoned = idle || !self.client.is_cared_for(id);
            if unsatisfied && connected && self.client.is_wanted(id) && !denied && abandoned {
                return Err(format!("under way: nothing is under way for {entity}, which is {sync:?}"));
            }
        }
        let most = self.config.gap.max_bytes * self.views.len() as u64;
        if self.client.held_bytes() > most {
            return Err(format!("bounds: {} bytes held, {most} allowed", self.client.held_bytes()));
        }
        if self.client.requests_out() > self.config.max_requests {
            return Err(format!("questions: {} requests are out", self.client.requests_out()));
        }
        let offline = self.client.connection() == ConnectionState::Offline;
        if offline && !self.hidden && self.client.poll_timeout().is_none() {
            return Err("under way: offline, and no dial is armed".to_owned());
        }
        Ok(())
    }

    fn send(&mut self, now: u64, command: Command) -> Checked {
        if self.closed {
            return Err(format!("close: sent after close: {command:?}"));
        }
        let name = |page: &Page, id: EntityId| page.entity(id).ok_or(format!("a command names {id:?}"));
        let ask = match command {
            Command::Hello => Ask::Hello,
            Command::Auth => Ask::Auth,
            Command::Ping { id } => Ask::Ping { id },
            Command::Unsubscribe { entities } => {
                let entities: Result<Vec<usize>, String> = entities.iter().map(|&id| name(self, id)).collect();
                Ask::Unsubscribe { entities: entities? }
            }
            Command::Subscribe { request, entities } => {
                let mut items = Vec::new();
                for resume in entities {
                    let entity = name(self, resume.entity)?;
                    let after = resume.position.map(|p| (p.epoch.0, p.seq));
                    let stands = self.client.position(resume.entity).map(|p| (p.epoch.0, p.seq));
                    if after.is_some() && after != stands {
                        return Err(format!("resume: {entity} resumes at {after:?}, it stands at {stands:?}"));
                    }
                    if self.views[entity].locked && self.model_of(entity).reopen == Reopen::Never {
                        return Err(format!("final: final {entity} is resumed"));
                    }
                    let mut behind = Vec::new();
                    for (member, position) in resume.behind {
                        behind.push((name(self, member)?, position.map(|p| (p.epoch.0, p.seq))));
                    }
                    if !behind.is_empty() {
                        self.mark(Mark::BehindNamed);
                    }
                    let cursor = self.cursor.filter(|_| resume.cursor);
                    if cursor.is_some() {
                        self.mark(Mark::CursorResumed);
                    }
                    self.views[entity].replay = None;
                    self.views[entity].snapshot = None;
                    items.push(Item { entity, after, cursor, behind });
                }
                Ask::Subscribe { request, items }
            }
            Command::Replay { request, ranges } => {
                let mut asked = Vec::new();
                for range in ranges {
                    let entity = name(self, range.entity)?;
                    self.one_replay(now, entity, request, range.to)?;
                    let stands = self.client.position(range.entity).map(|p| (p.epoch.0, p.seq));
                    if stands != Some((range.epoch.0, range.from - 1)) {
                        return Err(format!("questions: replay {range:?} from {stands:?}"));
                    }
                    asked.push((entity, range.epoch.0, range.from, range.to));
                }
                self.asked.1 += 1;
                Ask::Replay { request, ranges: asked }
            }
            Command::Snapshot { request, entities } => {
                let mut asked = Vec::new();
                for id in entities {
                    let entity = name(self, id)?;
                    let view = &mut self.views[entity];
                    if view.snapshot.is_some_and(|(_, deadline)| now < deadline) {
                        return Err(format!("questions: two snapshots asked for {entity} at a time"));
                    }
                    view.snapshot = Some((request, now + self.config.timeout.snapshot));
                    view.replay = None;
                    asked.push(entity);
                }
                self.asked.0 += 1;
                Ask::Snapshot { request, entities: asked }
            }
            Command::Heads { request, entities } => {
                let entities: Result<Vec<usize>, String> = entities.iter().map(|&id| name(self, id)).collect();
                Ask::Heads { request, entities: entities? }
            }
        };
        self.acts.push(Act::Send(ask));
        Ok(())
    }

    /// None is sent while one is out and any of its numbers is missing.
    fn one_replay(&mut self, now: u64, entity: usize, request: u32, to: Option<Seq>) -> Checked {
        let position = self.views[entity].id.and_then(|id| self.client.position(id));
        let last = position.map_or(0, |position| position.seq);
        if let Some((out, until, deadline)) = self.views[entity].replay {
            let missing = until.is_none_or(|until| last < until);
            if missing && now < deadline {
                return Err(format!("questions: replay {request} of {entity} while {out} is out"));
            }
        }
        self.views[entity].replay = Some((request, to, now + self.config.timeout.replay));
        Ok(())
    }

    /// The server wants to begin anew: what was remembered of ids is void.
    pub fn begin_anew(&mut self) {
        for view in &mut self.views {
            view.applied.clear();
        }
    }

    /// Another socket: requests end with the old one.
    pub fn socket_ended(&mut self) {
        for view in &mut self.views {
            view.replay = None;
            view.snapshot = None;
            if view.parts.take().is_some() {
                self.marks |= 1 << Mark::PartMissing as u64;
            }
        }
    }

    /// Entities that the page wants, by itself or by its topic.
    pub fn wants(&self, entity: usize) -> bool {
        self.views[entity].wanted
            || self.topic && entity > 0 && self.views[0].wanted && self.views[0].state >> entity & 1 == 1
    }
}

const _: () = assert!(ENTITIES <= 16 && MARKS.len() <= 64);
