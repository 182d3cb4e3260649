//! The trace of a client: what came in, what came out, as lines of text. `docs/trace.md` describes the format.
//!
//! The client behind [`Traced`] is called like any other. While a trace is kept, every input, every answer and every
//! output becomes a line, so that another build of the core can be given the same inputs and must give the same lines.

use std::fmt::Write;
use std::ops::Deref;
use std::sync::Arc;

use inorder::client::{
    Can, Change, Client, Command, EntityId, Epoch, ErrorCode, Event, EventId, ModelId, Output, Position, Seq, Snapshot,
    Status, Verdict,
};
use inorder::config::{Config, Continuity, Model, OnGap, Reopen};
use inorder::stats::Stats;
use inorder::time::Instant;

use super::page::Payload;
use super::slips::{self, Slip};

/// A number of a line; nothing is written as `-`.
type Number = Option<u64>;

fn numbers<const N: usize>(list: [u64; N]) -> [Number; N] {
    list.map(Some)
}

/// A client whose calls may be written down.
#[derive(Clone)]
pub struct Traced {
    client: Client<Payload>,
    config: Arc<Config>,
    lines: Option<String>,
}

impl Deref for Traced {
    type Target = Client<Payload>;

    /// Reading leaves no line.
    fn deref(&self) -> &Client<Payload> {
        &self.client
    }
}

impl Traced {
    pub fn new(config: Config, seed: u64, traced: bool) -> Traced {
        let client = Client::new(config.clone(), seed);
        let mut traced = Traced { client, config: Arc::new(config), lines: traced.then(String::new) };
        traced.create(seed);
        traced
    }

    /// Another client takes its place, with the same options.
    pub fn start_over(&mut self, seed: u64) {
        self.client = Client::new((*self.config).clone(), seed);
        self.create(seed);
    }

    fn create(&mut self, seed: u64) {
        if self.lines.is_some() {
            let mut list = numbers([seed >> 32, seed & 0xffff_ffff]).to_vec();
            list.extend(options(&self.config));
            self.line(Instant(0), '>', "create", &list);
        }
    }

    /// What was written down, taken out.
    pub fn take_lines(&mut self) -> Option<String> {
        self.lines.take()
    }

    fn line(&mut self, now: Instant, sign: char, name: &str, numbers: &[Number]) {
        let Some(lines) = &mut self.lines else { return };
        // Writing to a string cannot fail.
        let _ = write!(lines, "{} {sign} {name}", now.0);
        for number in numbers {
            let _ = match number {
                Some(number) => write!(lines, " {number}"),
                None => write!(lines, " -"),
            };
        }
        lines.push('\n');
    }

    fn put<const N: usize>(&mut self, now: Instant, name: &str, list: [u64; N]) {
        if self.lines.is_some() {
            self.line(now, '>', name, &numbers(list));
        }
    }

    fn answer(&mut self, now: Instant, name: &str, answer: u64) {
        if self.lines.is_some() {
            self.line(now, '=', name, &[Some(answer)]);
        }
    }

    pub fn add_model(&mut self, model: Model) -> ModelId {
        let id = self.client.add_model(model);
        if self.lines.is_some() {
            self.line(Instant(0), '>', "model", &declared(&model));
            self.answer(Instant(0), "model", u64::from(id.0));
        }
        id
    }

    pub fn add_entity(&mut self, model: ModelId) -> EntityId {
        self.put(Instant(0), "entity", [u64::from(model.0)]);
        let id = self.client.add_entity(model);
        self.answer(Instant(0), "entity", u64::from(id.0));
        id
    }

    pub fn restore(&mut self, now: Instant, id: EntityId, position: Option<Position>, status: Status, is_final: bool) {
        if self.lines.is_some() {
            let (epoch, seq) = (position.map(|p| u64::from(p.epoch.0)), position.map(|p| p.seq));
            let [status, is_final] = numbers([u64::from(status.0), u64::from(is_final)]);
            self.line(now, '>', "restore", &[Some(u64::from(id.0)), epoch, seq, status, is_final]);
        }
        self.client.restore(now, id, position, status, is_final);
    }

    pub fn connect(&mut self, now: Instant) {
        self.put(now, "connect", []);
        self.client.connect(now);
    }

    pub fn close(&mut self, now: Instant) {
        self.put(now, "close", []);
        self.client.close(now);
    }

    pub fn subscribe(&mut self, now: Instant, id: EntityId) {
        self.put(now, "subscribe", [u64::from(id.0)]);
        self.client.subscribe(now, id);
    }

    pub fn unsubscribe(&mut self, now: Instant, id: EntityId) {
        self.put(now, "unsubscribe", [u64::from(id.0)]);
        self.client.unsubscribe(now, id);
    }

    pub fn release(&mut self, now: Instant, id: EntityId) {
        self.put(now, "release", [u64::from(id.0)]);
        self.client.release(now, id);
    }

    pub fn add_member(&mut self, now: Instant, topic: EntityId, member: EntityId) {
        self.put(now, "add_member", [u64::from(topic.0), u64::from(member.0)]);
        self.client.add_member(now, topic, member);
    }

    pub fn remove_member(&mut self, now: Instant, topic: EntityId, member: EntityId) {
        self.put(now, "remove_member", [u64::from(topic.0), u64::from(member.0)]);
        self.client.remove_member(now, topic, member);
    }

    pub fn handle_opened(&mut self, now: Instant, generation: u32) {
        self.put(now, "opened", [u64::from(generation)]);
        self.client.handle_opened(now, generation);
    }

    pub fn handle_closed(&mut self, now: Instant, generation: u32, code: u16) {
        let codes = &self.config.codes;
        let class = match code {
            _ if codes.resume.contains(&code) => 0,
            _ if codes.stop.contains(&code) => 3,
            _ if codes.anew.contains(&code) => 1,
            _ if codes.auth.contains(&code) => 2,
            1000 => 4,
            _ => 0,
        };
        self.put(now, "ended", [u64::from(generation), class]);
        self.client.handle_closed(now, generation, code);
    }

    pub fn handle_heard(&mut self, now: Instant) {
        self.put(now, "heard", []);
        self.client.handle_heard(now);
    }

    pub fn handle_welcome(&mut self, now: Instant, heartbeat: Option<u64>, can: Can) {
        if self.lines.is_some() {
            let [replay, snapshot, heads] = numbers([can.replay, can.snapshot, can.heads].map(u64::from));
            self.line(now, '>', "welcome", &[heartbeat, replay, snapshot, heads]);
        }
        self.client.handle_welcome(now, heartbeat, can);
    }

    /// The short way of a clean event.
    pub fn accept(&mut self, now: Instant, id: EntityId, event: &Event) -> Verdict {
        let seq = event.seq.unwrap_or(0);
        let prev = event.prev.unwrap_or(seq.wrapping_sub(1));
        let visible = event.has_data || event.status.is_some();
        let (high, low) = halves(event.id);
        if self.lines.is_some() {
            let list = [u64::from(id.0), prev, seq, u64::from(event.epoch.0), u64::from(event.status.0)];
            let mut list = numbers(list).to_vec();
            list.extend(numbers([u64::from(visible), high, low]));
            self.line(now, '>', "accept", &list);
        }
        let verdict = if event.id.is_some() {
            self.client.accept_with_id(id, prev, seq, event.epoch, event.status, visible, event.id)
        } else {
            self.client.accept(id, prev, seq, event.epoch, event.status, visible)
        };
        self.answer(now, "accept", verdict as u64);
        verdict
    }

    pub fn handle_event(&mut self, now: Instant, id: EntityId, event: Event, payload: Payload) {
        if self.lines.is_some() {
            let list = event_numbers(id, &event, payload);
            self.line(now, '>', "event", &list);
        }
        self.client.handle_event(now, id, event, payload);
    }

    pub fn handle_vacant(&mut self, now: Instant, id: EntityId, epoch: Epoch, from: Seq, to: Seq) {
        self.put(now, "vacant", [u64::from(id.0), u64::from(epoch.0), from, to]);
        self.client.handle_vacant(now, id, epoch, from, to);
    }

    pub fn handle_snapshot(&mut self, now: Instant, id: EntityId, snapshot: Snapshot, payload: Payload) {
        if self.lines.is_some() {
            let [id, epoch, seq] = numbers([u64::from(id.0), u64::from(snapshot.epoch.0), snapshot.seq]);
            let [status, slot] = numbers([u64::from(snapshot.status.0), slot(&payload)]);
            self.line(now, '>', "snapshot", &[id, snapshot.request.map(u64::from), epoch, seq, status, slot]);
        }
        self.client.handle_snapshot(now, id, snapshot, payload);
    }

    pub fn handle_part(&mut self, now: Instant, id: EntityId, request: Option<u32>) -> bool {
        self.line(now, '>', "part", &[Some(u64::from(id.0)), request.map(u64::from)]);
        let wanted = self.client.handle_part(now, id, request);
        self.answer(now, "part", u64::from(wanted));
        wanted
    }

    pub fn handle_subscribed(&mut self, now: Instant, id: EntityId, request: u32, epoch: Epoch, head: Seq) {
        self.put(now, "subscribed", [u64::from(id.0), u64::from(request), u64::from(epoch.0), head]);
        self.client.handle_subscribed(now, id, request, epoch, head);
    }

    pub fn begin_replay(&mut self, now: Instant, id: EntityId, request: u32) -> bool {
        self.put(now, "begin_replay", [u64::from(id.0), u64::from(request)]);
        let wanted = self.client.begin_replay(now, id, request);
        self.answer(now, "begin_replay", u64::from(wanted));
        wanted
    }

    pub fn end_replay(&mut self, now: Instant, id: EntityId, request: u32, done: bool) {
        self.put(now, "end_replay", [u64::from(id.0), u64::from(request), u64::from(done)]);
        self.client.end_replay(now, id, request, done);
    }

    pub fn handle_gone(&mut self, now: Instant, id: EntityId, request: u32) {
        self.put(now, "gone", [u64::from(id.0), u64::from(request)]);
        self.client.handle_gone(now, id, request);
    }

    pub fn handle_ahead(&mut self, now: Instant, id: EntityId, request: u32, epoch: Epoch, head: Seq) {
        self.put(now, "ahead", [u64::from(id.0), u64::from(request), u64::from(epoch.0), head]);
        self.client.handle_ahead(now, id, request, epoch, head);
    }

    pub fn handle_final(
        &mut self,
        now: Instant,
        id: EntityId,
        request: u32,
        epoch: Epoch,
        status: Status,
        payload: Payload,
    ) {
        let list = [id.0, request, epoch.0, status.0].map(u64::from);
        if self.lines.is_some() {
            let mut list = numbers(list).to_vec();
            list.push(Some(slot(&payload)));
            self.line(now, '>', "final", &list);
        }
        self.client.handle_final(now, id, request, epoch, status, Some(payload));
    }

    pub fn handle_head(&mut self, now: Instant, id: EntityId, epoch: Epoch, head: Seq, request: Option<u32>) {
        if self.lines.is_some() {
            let [id, epoch, head] = numbers([u64::from(id.0), u64::from(epoch.0), head]);
            self.line(now, '>', "head", &[id, epoch, head, request.map(u64::from)]);
        }
        self.client.handle_head(now, id, epoch, head, request);
    }

    pub fn end_heads(&mut self, now: Instant, request: u32) {
        self.put(now, "end_heads", [u64::from(request)]);
        self.client.end_heads(now, request);
    }

    pub fn handle_cursor(&mut self, now: Instant, topic: EntityId) {
        self.put(now, "cursor", [u64::from(topic.0)]);
        self.client.handle_cursor(now, topic);
    }

    pub fn handle_discontinuity(&mut self, now: Instant, id: Option<EntityId>) {
        self.line(now, '>', "discontinuity", &[id.map(|id| u64::from(id.0))]);
        self.client.handle_discontinuity(now, id);
    }

    pub fn handle_error(
        &mut self,
        now: Instant,
        code: ErrorCode,
        request: Option<u32>,
        id: Option<EntityId>,
        retry_after: Option<u64>,
    ) {
        let number = match code {
            ErrorCode::Forbidden => 0,
            ErrorCode::NotFound => 1,
            ErrorCode::TokenExpiring => 2,
            ErrorCode::Other => 3,
        };
        let id_number = id.map(|id| u64::from(id.0));
        self.line(now, '>', "error", &[Some(number), request.map(u64::from), id_number, retry_after]);
        self.client.handle_error(now, code, request, id, retry_after);
    }

    pub fn handle_goodbye(&mut self, now: Instant, retry_after: Option<u64>) {
        self.line(now, '>', "goodbye", &[retry_after]);
        self.client.handle_goodbye(now, retry_after);
    }

    pub fn handle_pong(&mut self, now: Instant, id: u32) {
        self.put(now, "pong", [u64::from(id)]);
        self.client.handle_pong(now, id);
    }

    pub fn handle_count(&mut self, now: Instant, n: u64) {
        self.put(now, "count", [n]);
        self.client.handle_count(now, n);
    }

    pub fn handle_bad_frame(&mut self, now: Instant) {
        self.put(now, "bad_frame", []);
        self.client.handle_bad_frame(now);
    }

    pub fn handle_unknown(&mut self, now: Instant) {
        self.put(now, "unknown", []);
        self.client.handle_unknown();
    }

    pub fn handle_token(&mut self, now: Instant, id: u32, ok: bool) {
        self.put(now, "token", [u64::from(id), u64::from(ok)]);
        self.client.handle_token(now, id, ok);
    }

    pub fn handle_wake(&mut self, now: Instant) {
        self.put(now, "wake", []);
        self.client.handle_wake(now);
    }

    pub fn handle_visible(&mut self, now: Instant) {
        self.put(now, "visible", []);
        self.client.handle_visible(now);
    }

    pub fn handle_online(&mut self, now: Instant) {
        self.put(now, "online", []);
        self.client.handle_online(now);
    }

    pub fn handle_offline(&mut self, now: Instant) {
        self.put(now, "offline", []);
        self.client.handle_offline(now);
    }

    pub fn handle_pagehide(&mut self, now: Instant) {
        self.put(now, "pagehide", []);
        self.client.handle_pagehide(now);
    }

    pub fn handle_pageshow(&mut self, now: Instant) {
        self.put(now, "pageshow", []);
        self.client.handle_pageshow(now);
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.put(now, "timeout", []);
        self.client.handle_timeout(now);
    }

    pub fn lock(&mut self, now: Instant, id: EntityId) {
        self.put(now, "lock", [u64::from(id.0)]);
        self.client.lock(now, id);
    }

    pub fn rollback(&mut self, now: Instant, id: EntityId, event: Option<(Event, Payload)>) {
        if self.lines.is_some() {
            let list = match &event {
                Some((event, payload)) => event_numbers(id, event, *payload),
                None => [Some(u64::from(id.0)), None, None, None, None, None, None, None, None, None],
            };
            self.line(now, '>', "rollback", &list);
        }
        self.client.rollback(now, id, event);
    }

    /// The next output; at the rest, when there is none, the next timeout is written down.
    pub fn poll_output(&mut self, now: Instant) -> Option<Output<Payload>> {
        let output = self.client.poll_output(now);
        if self.lines.is_some() {
            match &output {
                Some(output) => self.output(now, output),
                None => {
                    let due = self.client.poll_timeout().map(|due| due.0);
                    self.line(now, '<', "rest", &[due]);
                }
            }
        }
        output
    }

    fn output(&mut self, now: Instant, output: &Output<Payload>) {
        let whom = |entity: &EntityId| Some(u64::from(entity.0));
        let (name, list) = match output {
            Output::Change(change) => ("change", change_numbers(change)),
            Output::Discard(payload) => ("discard", vec![Some(slot(payload))]),
            Output::Sync { entity, sync } => ("sync", vec![whom(entity), Some(*sync as u64)]),
            Output::Gap { entity, from, to } => ("gap", vec![whom(entity), Some(*from), Some(*to)]),
            Output::Final { entity } => ("final", vec![whom(entity)]),
            Output::Fault { entity, fault } => ("fault", vec![entity.as_ref().and_then(whom), Some(*fault as u64)]),
            Output::Forgotten { entity } => ("forgotten", vec![whom(entity)]),
            Output::Connection(state) => {
                let wait = self.client.retry_at().map(|at| at.0.saturating_sub(now.0));
                ("connection", vec![Some(*state as u64), wait])
            }
            Output::Dial { generation } => ("dial", vec![Some(u64::from(*generation))]),
            Output::Close { generation, code } => {
                ("close", numbers([u64::from(*generation), u64::from(*code)]).to_vec())
            }
            Output::GetToken { id, attempt } => ("get_token", numbers([u64::from(*id), u64::from(*attempt)]).to_vec()),
            Output::CancelToken { id } => ("cancel_token", vec![Some(u64::from(*id))]),
            Output::Send(command) => command_numbers(command),
        };
        self.line(now, '<', name, &list);
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        if slips::has(Slip::WakeWithoutEnd) { Some(Instant(0)) } else { self.client.poll_timeout() }
    }

    /// What can be read of a client, at the end of a trace.
    pub fn finish(&mut self, now: Instant, entities: &[EntityId]) {
        if self.lines.is_none() {
            return;
        }
        for &id in entities {
            self.put(now, "read", [u64::from(id.0)]);
            let position = self.client.position(id);
            let list = [
                Some(self.client.sync(id) as u64),
                Some(self.client.held(id) as u64),
                Some(u64::from(position.is_some())),
                position.map(|p| u64::from(p.epoch.0)),
                position.map(|p| p.seq),
                Some(u64::from(self.client.status(id).0)),
            ];
            self.line(now, '=', "read", &list);
        }
        self.put(now, "stats", []);
        let counters = counters(self.client.stats()).map(Some);
        self.line(now, '=', "stats", &counters);
    }
}

fn halves(id: EventId) -> (u64, u64) {
    (id.0 >> 32, id.0 & 0xffff_ffff)
}

/// A number for a payload, as a slot is: equal payloads have equal ones.
fn slot(payload: &Payload) -> u64 {
    let mut slot = payload.seq ^ u64::from(payload.epoch) << 40 ^ u64::from(payload.repeated) << 60;
    slot ^= payload.value.map_or(1, |value| value.rotate_left(7)) ^ u64::from(payload.book) << 30;
    slot.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33
}

fn event_numbers(id: EntityId, event: &Event, payload: Payload) -> [Number; 10] {
    let (high, low) = halves(event.id);
    [
        Some(u64::from(id.0)),
        Some(u64::from(event.epoch.0)),
        event.prev,
        event.seq,
        Some(high),
        Some(low),
        Some(u64::from(event.status.0)),
        Some(u64::from(event.has_data)),
        Some(u64::from(event.bytes)),
        Some(slot(&payload)),
    ]
}

fn change_numbers(change: &Change<Payload>) -> Vec<Number> {
    let (high, low) = halves(change.id);
    vec![
        Some(u64::from(change.entity.0)),
        Some(change.kind as u64),
        Some(u64::from(change.epoch.0)),
        Some(change.prev),
        Some(change.seq),
        Some(u64::from(change.status.0)),
        Some(u64::from(change.reset)),
        change.skipped.map(|(from, _)| from),
        change.skipped.map(|(_, to)| to),
        Some(u64::from(change.locks)),
        change.payload.as_ref().map(slot),
        Some(high),
        Some(low),
        Some(u64::from(change.bytes)),
    ]
}

fn place(list: &mut Vec<Number>, entity: EntityId, position: Option<Position>) {
    list.extend([Some(u64::from(entity.0)), position.map(|p| u64::from(p.epoch.0)), position.map(|p| p.seq)]);
}

fn command_numbers(command: &Command) -> (&'static str, Vec<Number>) {
    let names = |request: Option<u32>, entities: &[EntityId]| {
        let mut list: Vec<Number> = vec![request.map(u64::from)];
        list.extend(entities.iter().map(|entity| Some(u64::from(entity.0))));
        list
    };
    match command {
        Command::Hello => ("send_hello", vec![]),
        Command::Auth => ("send_auth", vec![]),
        Command::Subscribe { request, entities } => {
            let mut list = vec![Some(u64::from(*request))];
            for resume in entities {
                place(&mut list, resume.entity, resume.position);
                list.extend(numbers([u64::from(resume.cursor), resume.behind.len() as u64]));
                for &(member, position) in &resume.behind {
                    place(&mut list, member, position);
                }
            }
            ("send_subscribe", list)
        }
        Command::Unsubscribe { entities } => ("send_unsubscribe", names(None, entities)),
        Command::Replay { request, ranges } => {
            let mut list = vec![Some(u64::from(*request))];
            for range in ranges {
                list.extend(numbers([u64::from(range.entity.0), u64::from(range.epoch.0), range.from]));
                list.push(range.to);
            }
            ("send_replay", list)
        }
        Command::Snapshot { request, entities } => ("send_snapshot", names(Some(*request), entities)),
        Command::Heads { request, entities } => ("send_heads", names(Some(*request), entities)),
        Command::Ping { id } => ("send_ping", vec![Some(u64::from(*id))]),
    }
}

fn options(config: &Config) -> Vec<Number> {
    let Config { timeout, backoff, gap, .. } = config;
    vec![
        Some(timeout.connect),
        Some(timeout.subscribe),
        Some(timeout.replay),
        Some(timeout.snapshot),
        Some(timeout.probe),
        Some(timeout.user),
        Some(backoff.min),
        Some(backoff.base),
        Some(u64::from(backoff.factor)),
        Some(backoff.cap),
        Some(backoff.stable),
        Some(gap.grace),
        Some(gap.max_events as u64),
        Some(gap.max_bytes),
        Some(u64::from(config.replay_tries)),
        Some(config.max_requests as u64),
        Some(u64::from(config.max_bad_frames)),
        Some(config.max_ahead),
        Some(config.linger),
        config.ping,
        Some(config.reconcile),
        Some(u64::from(config.get_token)),
    ]
}

fn declared(model: &Model) -> Vec<Number> {
    let continuity = match model.continuity {
        Continuity::PlusOne => 0,
        Continuity::Range => 1,
        Continuity::Prev => 2,
        Continuity::None => 3,
    };
    let on_gap = match model.on_gap() {
        OnGap::Replay => 0,
        OnGap::Snapshot => 1,
        OnGap::Skip => 2,
    };
    vec![
        Some(continuity),
        Some(on_gap),
        Some(u64::from(model.overlap_absolute)),
        Some(u64::from(model.reopen == Reopen::Epoch)),
        model.reset_seq,
        Some(u64::from(model.ids)),
        Some(u64::from(model.replay_whole)),
        Some(u64::from(model.topic)),
    ]
}

/// The counters, in the order of their struct.
fn counters(stats: &Stats) -> [u64; 19] {
    [
        stats.applied,
        stats.adopted,
        stats.duplicates,
        stats.silent,
        stats.held,
        stats.overflowed,
        stats.gaps,
        stats.replays,
        stats.snapshots,
        stats.stale,
        stats.after_final,
        stats.retired,
        stats.diverged,
        stats.resets,
        stats.bad_frames,
        stats.unknown,
        stats.unwanted,
        stats.dials,
        stats.replaced,
    ]
}
