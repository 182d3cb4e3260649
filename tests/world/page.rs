//! The page of a world: the real core with a driver of numbers only, and what must be true after every step.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use inorder::client::{
    Can, Change, ChangeKind, Client, Command, ConnectionState, EntityId, Epoch, ErrorCode, Event, EventId, Fault,
    Output, Seq, Snapshot, Status, Sync,
};
use inorder::config::{Config, Model, OnGap, Reopen};
use inorder::time::Instant;

use super::gateway::{Ask, ENTITIES, Entry, Frame, Gateway, Item, RUNNING};

/// Outputs of one call; more is a loop.
const ENDLESS: u32 = 100_000;

/// What the core carries for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Payload {
    pub epoch: u32,
    pub seq: Seq,
    /// A state of a snapshot, or the value of an event.
    pub value: Option<u64>,
    pub repeated: bool,
}

/// Situations that a campaign must have seen, or it proves less than it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    StaleSnapshot,
    DuplicateDropped,
    Overflowed,
    ReplayCut,
    EpochAdopted,
    EpochInReplay,
    TerminalHeld,
    SuspicionHeld,
    SuspicionRefuted,
    Reopened,
    AfterFinal,
    Gone,
    Lagged,
    WentBack,
    FaultRolledBack,
    GaveUp,
    Replaced,
    TokenFailed,
    Vacancy,
    RepeatedId,
    BadFrames,
    Flapped,
    Released,
    Rejoined,
    MemberJoined,
    MemberLeft,
    CursorResumed,
    HeadFoundTail,
    Woken,
    ErrorAnswered,
    FinalAnswered,
    Anew,
    Calm,
}

pub const MARKS: [Mark; 33] = [
    Mark::StaleSnapshot,
    Mark::DuplicateDropped,
    Mark::Overflowed,
    Mark::ReplayCut,
    Mark::EpochAdopted,
    Mark::EpochInReplay,
    Mark::TerminalHeld,
    Mark::SuspicionHeld,
    Mark::SuspicionRefuted,
    Mark::Reopened,
    Mark::AfterFinal,
    Mark::Gone,
    Mark::Lagged,
    Mark::WentBack,
    Mark::FaultRolledBack,
    Mark::GaveUp,
    Mark::Replaced,
    Mark::TokenFailed,
    Mark::Vacancy,
    Mark::RepeatedId,
    Mark::BadFrames,
    Mark::Flapped,
    Mark::Released,
    Mark::Rejoined,
    Mark::MemberJoined,
    Mark::MemberLeft,
    Mark::CursorResumed,
    Mark::HeadFoundTail,
    Mark::Woken,
    Mark::ErrorAnswered,
    Mark::FinalAnswered,
    Mark::Anew,
    Mark::Calm,
];

/// What the page shows of one entity, and what it must not forget.
#[derive(Clone, Debug, Default, Hash)]
pub struct View {
    pub id: Option<EntityId>,
    pub wanted: bool,
    /// The last position that the core had, shown or passed silently.
    pub stands: Option<(u32, Seq)>,
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
    pub client: Client<Payload>,
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
    /// Snapshots and replays asked, for clean runs.
    pub asked: (u32, u32),
    pub trace: u64,
    pub cursor: Option<u32>,
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
    pub fn new(config: Config, model: Model, entities: usize, topic: bool, seed: u64) -> Page {
        Page {
            client: Client::new(config.clone(), seed),
            config: Arc::new(config),
            model,
            topic_model: Model { topic: true, reopen: Reopen::Never, ..model },
            views: vec![View::default(); entities],
            topic,
            acts: Vec::new(),
            marks: 0,
            faulty: false,
            closed: false,
            asked: (0, 0),
            trace: 0,
            cursor: None,
            in_socket: false,
            models: None,
            calls_in_callback: None,
        }
    }

    /// What tells two pages of one world apart.
    pub fn identify(&self, hasher: &mut impl Hasher) {
        (&self.client, &self.views, self.in_socket).hash(hasher);
    }

    pub fn mark(&mut self, mark: Mark) {
        self.marks |= 1 << mark as u32;
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
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
        self.client.close(Instant(now));
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
        self.client.handle_opened(Instant(now), generation);
    }

    pub fn ended(&mut self, now: u64, generation: u32, code: u16) {
        self.in_socket = false;
        self.client.handle_closed(Instant(now), generation, code);
    }

    fn wanted(&mut self, entity: usize) -> Option<EntityId> {
        let id = self.views[entity].id.filter(|&id| self.client.is_wanted(id));
        if id.is_none() {
            self.client.handle_unknown();
        }
        id
    }

    /// A frame of the current socket.
    #[allow(clippy::too_many_lines)]
    pub fn frame(&mut self, now: u64, frame: &Frame, can: Can, heartbeat: Option<u64>, gateway: &Gateway) -> Checked {
        let at = Instant(now);
        self.client.handle_heard(at);
        match frame {
            Frame::Welcome => self.client.handle_welcome(at, heartbeat, can),
            Frame::Event { entity, epoch, entry } => {
                let Some(id) = self.wanted(*entity) else { return self.drain(now, gateway) };
                let (event, payload) = self.event(*entity, *epoch, entry);
                self.client.handle_event(at, id, event, payload);
                if entry.status > RUNNING && self.client.held(id) > 0 {
                    self.mark(Mark::TerminalHeld);
                }
            }
            Frame::Snapshot { entity, epoch, seq, state, status, request } => {
                let Some(id) = self.wanted(*entity) else { return self.drain(now, gateway) };
                let payload = Payload { epoch: *epoch, seq: *seq, value: Some(*state), repeated: false };
                let snapshot =
                    Snapshot { request: *request, epoch: Epoch(*epoch), seq: *seq, status: Status(u32::from(*status)) };
                // Whatever it says, the ladder begins anew with it.
                (self.views[*entity].replay, self.views[*entity].snapshot) = (None, None);
                self.client.handle_snapshot(at, id, snapshot, payload);
            }
            Frame::Subscribed { entity, epoch, head, request } => {
                let Some(id) = self.wanted(*entity) else { return self.drain(now, gateway) };
                self.client.handle_subscribed(at, id, *request, Epoch(*epoch), *head);
            }
            Frame::Replay { entity, epoch, request, entries, done } => {
                let Some(id) = self.wanted(*entity) else { return self.drain(now, gateway) };
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
                    self.client.handle_event(at, id, event, payload);
                    self.drain(now, gateway)?;
                }
                if self.closed || self.views[*entity].id != Some(id) {
                    return Ok(());
                }
                self.client.end_replay(at, id, *request, *done);
            }
            Frame::Gone { entity, request } => {
                let Some(id) = self.wanted(*entity) else { return self.drain(now, gateway) };
                self.views[*entity].replay = None;
                self.mark(Mark::Gone);
                self.client.handle_gone(at, id, *request);
            }
            Frame::Ahead { entity, epoch, head, request } => {
                let Some(id) = self.wanted(*entity) else { return self.drain(now, gateway) };
                self.views[*entity].replay = None;
                self.mark(Mark::Lagged);
                self.client.handle_ahead(at, id, *request, Epoch(*epoch), *head);
            }
            Frame::Vacant { entity, epoch, from, to } => {
                let Some(id) = self.wanted(*entity) else { return self.drain(now, gateway) };
                self.mark(Mark::Vacancy);
                self.client.handle_vacant(at, id, Epoch(*epoch), *from, *to);
            }
            Frame::Final { entity, epoch, status, request } => {
                let Some(id) = self.wanted(*entity) else { return self.drain(now, gateway) };
                self.mark(Mark::FinalAnswered);
                self.client.handle_final(at, id, *request, Epoch(*epoch), Status(u32::from(*status)), None);
            }
            Frame::Discontinuity { entity } => match entity {
                Some(entity) => {
                    if let Some(id) = self.wanted(*entity) {
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
            Frame::Pong { id } => self.client.handle_pong(at, *id),
            Frame::Error { entity, request, code, retry_after } => {
                let Some(id) = self.wanted(*entity) else { return self.drain(now, gateway) };
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

    fn event(&self, entity: usize, epoch: u32, entry: &Entry) -> (Event, Payload) {
        let named = self.model_of(entity).continuity != inorder::config::Continuity::PlusOne;
        let event = Event {
            epoch: Epoch(epoch),
            prev: named.then_some(entry.prev),
            seq: Some(entry.seq),
            id: EventId(entry.id),
            status: Status(u32::from(entry.status)),
            has_data: entry.value.is_some(),
            bytes: 100,
        };
        (event, Payload { epoch, seq: entry.seq, value: entry.value, repeated: entry.repeated })
    }

    /// Takes the core's outputs, and checks each.
    pub fn drain(&mut self, now: u64, gateway: &Gateway) -> Checked {
        let mut taken = 0;
        while let Some(output) = self.client.poll_output(Instant(now)) {
            taken += 1;
            if taken > ENDLESS {
                return Err("outputs come without end".to_owned());
            }
            match output {
                Output::Change(change) => self.change(now, change, gateway)?,
                Output::Discard(_) => {}
                Output::Sync { entity, sync } => self.note(u64::from(entity.0) << 8 | sync as u64),
                Output::Gap { entity, from, to } => {
                    if from > to {
                        return Err(format!("gap {from}..{to} of {entity:?}"));
                    }
                }
                Output::Final { entity } => {
                    let Some(entity) = self.entity(entity) else { return Err("final of nobody".to_owned()) };
                    if std::mem::replace(&mut self.views[entity].ended, true) {
                        return Err(format!("entity {entity} became final twice"));
                    }
                }
                Output::Fault { fault, .. } => self.fault(fault),
                Output::Forgotten { entity } => {
                    self.mark(Mark::Released);
                    if let Some(entity) = self.entity(entity) {
                        if self.views[entity].wanted {
                            return Err(format!("entity {entity} was forgotten while it was wanted"));
                        }
                        self.views[entity] = View::default();
                    }
                }
                Output::Connection(state) => self.note(0x1000 | state as u64),
                Output::Dial { generation } => {
                    if std::mem::replace(&mut self.in_socket, true) {
                        return Err("R25: a dial while there is a socket".to_owned());
                    }
                    if self.closed {
                        return Err("R34: a dial after close".to_owned());
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

    fn fault(&mut self, fault: Fault) {
        self.note(0x3000 | fault as u64);
        match fault {
            Fault::AfterFinal => self.mark(Mark::AfterFinal),
            Fault::EpochFlapping => self.mark(Mark::Flapped),
            Fault::GaveUp => self.mark(Mark::GaveUp),
            Fault::TokenFailed => self.mark(Mark::TokenFailed),
            _ => {}
        }
    }

    fn change(&mut self, now: u64, change: Change<Payload>, gateway: &Gateway) -> Checked {
        let Some(entity) = self.entity(change.entity) else { return Err("a change of nobody".to_owned()) };
        if self.closed {
            return Err("R34: a change after close".to_owned());
        }
        let (epoch, seq) = (change.epoch.0, change.seq);
        self.note(seq << 20 | u64::from(epoch) << 8 | change.kind as u64);
        let history = gateway.history_of(entity, epoch).ok_or(format!("epoch {epoch} never was"))?;
        let reopens = self.model_of(entity).reopen == Reopen::Epoch;
        let skips = self.model_of(entity).on_gap() == OnGap::Skip;
        let view = &self.views[entity].clone();
        if view.locked && !(reopens && change.reset && view.stands.is_some_and(|(stands, _)| stands != epoch)) {
            return Err(format!("R8: entity {entity} changed after its end: {change:?}"));
        }
        let held = change.payload.is_none_or(|payload| payload.epoch == epoch && payload.seq == seq);
        if !held {
            return Err(format!("a payload of another change: {change:?}"));
        }
        let mut next = (view.state, view.status);
        match change.kind {
            ChangeKind::Event => {
                let Some((stands, last)) = view.stands else {
                    return Err(format!("an event was applied before the first snapshot: {change:?}"));
                };
                if stands != epoch || seq <= last {
                    return Err(format!("R1, R7: applied at ({stands}, {last}): {change:?}"));
                }
                if !skips {
                    self.silent(history, last, change.prev).map_err(|said| format!("{said}: {change:?}"))?;
                }
                let window = usize::from(self.model_of(entity).ids);
                let recent = view.applied.iter().rev().take(window);
                if change.id.0 != 0 && recent.clone().any(|&(_, id)| id == change.id.0) {
                    return Err(format!("R6: the same event twice: {change:?}"));
                }
                let payload = change.payload.ok_or("an event without its payload")?;
                if let Some(value) = payload.value.filter(|_| !payload.repeated || skips) {
                    next.0 = gateway.folds[entity].apply(next.0, value);
                }
                if change.status.0 != 0 {
                    next.1 = change.status.0 as u8;
                }
            }
            ChangeKind::Snapshot => {
                if let Some(payload) = change.payload {
                    next.0 = payload.value.unwrap_or(0);
                }
                next.1 = change.status.0 as u8;
                if let Some((stands, last)) = view.stands {
                    if stands != epoch && !change.reset {
                        return Err(format!("R7: another epoch without reset: {change:?}"));
                    }
                    if stands == epoch && seq < last && !change.reset {
                        return Err(format!("R14: back from {last} without reset: {change:?}"));
                    }
                    let passed = (stands == epoch && seq > last && !change.reset).then_some((last + 1, seq));
                    if passed != change.skipped {
                        return Err(format!("R16: passed over {passed:?}: {change:?}"));
                    }
                } else if change.skipped.is_some() {
                    return Err(format!("R16: nothing was passed over: {change:?}"));
                }
            }
        }
        if std::mem::take(&mut self.faulty) {
            self.mark(Mark::FaultRolledBack);
            let event = change.payload.filter(|_| change.kind == ChangeKind::Event).map(|payload| {
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
        let view = &mut self.views[entity];
        let went_back = view.stands.is_some_and(|(stands, last)| stands == epoch && seq < last);
        let new_epoch = view.stands.is_some_and(|(stands, _)| stands != epoch);
        let reopened = std::mem::take(&mut view.locked);
        view.ended &= !reopened && !change.reset;
        if change.reset || view.stands.is_none() {
            view.applied.clear();
        }
        view.stands = Some((epoch, seq));
        let before = std::mem::replace(&mut view.state, next.0);
        view.status = next.1;
        if change.kind == ChangeKind::Event {
            view.applied.push((seq, change.id.0));
        }
        // The oracle: what the log makes of everything up to here.
        let Some(expected) = history.at(seq) else {
            return Err(format!("no change ends at {seq} in epoch {epoch} of {entity}: {change:?}"));
        };
        if expected != next && !(change.locks && change.payload.is_none()) {
            return Err(format!("entity {entity} shows {next:?} at ({epoch}, {seq}), the log makes {expected:?}"));
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
                // What was passed silently on the way stays passed.
                self.silent(gateway.history_of(entity, epoch).ok_or("an epoch that never was")?, last, seq)
            }
            (before, now) if before == now => Ok(()),
            (before, now) => Err(format!("R36: rolled back to {now:?} instead of {before:?}")),
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
    fn silent(&self, history: &super::gateway::History, from: Seq, to: Seq) -> Checked {
        let mut at = from;
        while at < to {
            let Some(entry) = history.entries.get(history.behind(at)) else {
                return Err(format!("R3: {at}..{to} was skipped, which never was"));
            };
            let silent = entry.vacant || entry.repeated || entry.value.is_none() && entry.status == 0;
            if !silent {
                return Err(format!("R3: {} was skipped", entry.seq));
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
            let stands = self.client.position(id).map(|p| (p.epoch.0, p.seq));
            let skips = self.model_of(entity).on_gap() == OnGap::Skip;
            if self.client.is_wanted(id) && self.client.is_final(id) && !self.views[entity].locked {
                let view = &mut self.views[entity];
                if view.stands.is_some() {
                    return Err(format!("entity {entity} is final, and nothing said so"));
                }
                // A remembered end: its number and status come back without a change.
                (view.locked, view.stands) = (true, stands);
            }
            let view = &self.views[entity];
            if let (Some((epoch, last)), Some((named, seq))) = (view.stands, stands) {
                if epoch != named || seq < last {
                    return Err(format!("the position of {entity} went from ({epoch}, {last}) to ({named}, {seq})"));
                }
                if seq > last && !view.locked && !skips {
                    let history = gateway.history_of(entity, epoch).ok_or("an epoch that never was")?;
                    self.silent(history, last, seq)?;
                }
                self.views[entity].stands = stands;
            } else if view.stands.is_none() && stands.is_some() && !self.client.is_final(id) {
                return Err(format!("entity {entity} stands at {stands:?}, and nothing was shown"));
            }
            let held = self.client.held(id);
            let most = self.config.gap.max_events;
            if held > most {
                return Err(format!("R19: {held} held for {entity}, {most} allowed"));
            }
            let sync = self.client.sync(id);
            if self.views[entity].locked && sync != Sync::Final {
                return Err(format!("R8: final {entity} is {sync:?}"));
            }
            if sync == Sync::Live {
                // Whatever was asked is settled.
                self.views[entity].replay = None;
                self.views[entity].snapshot = None;
            }
            if sync == Sync::Live && self.client.connection() != ConnectionState::Live {
                return Err(format!("entity {entity} is live without a connection"));
            }
            let unsatisfied = matches!(sync, Sync::Joining | Sync::Recovering | Sync::Failed);
            let connected = self.client.connection() == ConnectionState::Live;
            let idle = self.client.poll_timeout().is_none();
            let denied = self.views[entity].denied;
            let abandoned = idle || !self.client.is_cared_for(id);
            if unsatisfied && connected && self.client.is_wanted(id) && !denied && abandoned {
                return Err(format!("R23: nothing is under way for {entity}, which is {sync:?}"));
            }
        }
        if self.client.requests_out() > self.config.max_requests {
            return Err(format!("R20: {} requests are out", self.client.requests_out()));
        }
        let offline = self.client.connection() == ConnectionState::Offline;
        if offline && self.client.poll_timeout().is_none() {
            return Err("R23: offline, and no dial is armed".to_owned());
        }
        Ok(())
    }

    fn send(&mut self, now: u64, command: Command) -> Checked {
        if self.closed {
            return Err(format!("R34: sent after close: {command:?}"));
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
                        return Err(format!("R30: {entity} resumes at {after:?}, it stands at {stands:?}"));
                    }
                    if self.views[entity].locked && self.model_of(entity).reopen == Reopen::Never {
                        return Err(format!("R8: final {entity} is resumed"));
                    }
                    let mut behind = Vec::new();
                    for (member, position) in resume.behind {
                        behind.push((name(self, member)?, position.map(|p| (p.epoch.0, p.seq))));
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
                        return Err(format!("replay {range:?} from {stands:?}"));
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
                        return Err(format!("two snapshots asked for {entity} at a time"));
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
                return Err(format!("replay {request} of {entity} while {out} is out"));
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
        }
    }

    /// Entities that the page wants, by itself or by its topic.
    pub fn wants(&self, entity: usize) -> bool {
        self.views[entity].wanted
            || self.topic && entity > 0 && self.views[0].wanted && self.views[0].state >> entity & 1 == 1
    }
}

const _: () = assert!(ENTITIES <= 16 && MARKS.len() <= 64);
