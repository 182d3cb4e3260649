//! The answers to what a socket asks: subscribing, replays, snapshots, heads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use inorder::wire::{
    self, Ahead, Behind, EntitiesRequest, Gone, Head, Heads, Id, Replay, ReplayRequest, ServerFrame, Subscribe,
    Subscribed, Subscription,
};

use crate::fault::older;
use crate::follow::Effect;
use crate::limits::{ANSWERS_IN_A_ROW, MAX_FOLLOWED, MAX_REPLAY_BYTES, MAX_SUBSCRIPTIONS, PAGE_EVENTS};
use crate::log::{EntityHead, Page, State, Stored, TopicRead, Unavailable};
use crate::name;
use crate::outbox;
use crate::parts::snapshots;
use crate::rows::{Cursor, Rows};
use crate::socket::{End, Socket, chunks};
use crate::topic::Change;

/// By how many numbers a state that is pushed too late on purpose is older.
const STALE_BY: u64 = 2;

/// Something that was asked and waits for its answer.
#[derive(Debug)]
pub enum Pending {
    /// Begin to follow an entity.
    Subscribe {
        /// Echoed.
        request: Id,
        /// What was asked.
        entry: Subscription,
    },
    /// Bring members of a topic up to date from these positions.
    Behind {
        /// Echoed.
        request: Id,
        /// The topic.
        topic: Arc<str>,
        /// The positions.
        members: Vec<Behind>,
    },
    /// Send a page of events.
    Page(PageWanted),
    /// Push the states of new members of a topic.
    Join(Vec<Arc<str>>),
    /// Answer with the states of entities.
    Snapshots {
        /// Echoed.
        request: Id,
        /// Which.
        entities: Vec<Arc<str>>,
    },
    /// Push an older state of an entity, on purpose.
    Stale(Arc<str>),
    /// Answer with the heads of entities.
    Heads {
        /// Echoed.
        request: Id,
        /// Which.
        entities: Vec<Arc<str>>,
    },
}

/// A page of events that is wanted.
#[derive(Clone, Debug)]
pub struct PageWanted {
    /// Echoed.
    request: Id,
    /// The entity.
    entity: Arc<str>,
    /// The epoch of the numbers.
    epoch: Arc<str>,
    /// The first number.
    from: u64,
    /// The last number; `None` for the head.
    to: Option<u64>,
    /// The entity's events are forwarded from the end of this on.
    follow: bool,
}

impl Pending {
    /// Whether this is part of following an entity.
    pub fn is_subscription_to(&self, entity: &str) -> bool {
        match self {
            Pending::Subscribe { entry, .. } => entry.entity == entity,
            Pending::Behind { topic, .. } => &**topic == entity,
            Pending::Page(page) => page.follow && &*page.entity == entity,
            _ => false,
        }
    }
}

impl Socket {
    /// Takes a `subscribe`.
    pub fn ask_to_subscribe(&mut self, subscribe: Subscribe) {
        let Subscribe { request, entities } = subscribe;
        for entry in entities {
            if !self.may_ask(&request, &entry.entity) {
                continue;
            }
            let again = |pending: &&mut Pending| matches!(pending, Pending::Subscribe { request: r, entry: e } if *r == request && e.entity == entry.entity);
            if let Some(Pending::Subscribe { entry: first, .. }) = self.pending.iter_mut().find(again) {
                first.behind.extend(entry.behind);
            } else if self.following.goes_on(&entry.entity, &request) {
                let topic = entry.entity.into();
                self.pending.push_back(Pending::Behind { request: request.clone(), topic, members: entry.behind });
            } else {
                self.pending.push_back(Pending::Subscribe { request: request.clone(), entry });
            }
        }
    }

    /// Takes a `replay`.
    pub fn ask_to_replay(&mut self, asked: ReplayRequest) {
        for range in asked.ranges {
            if self.may_ask(&asked.request, &range.entity) {
                self.pending.push_back(Pending::Page(PageWanted {
                    request: asked.request.clone(),
                    entity: range.entity.into(),
                    epoch: range.epoch.into(),
                    from: range.from,
                    to: range.to,
                    follow: false,
                }));
            }
        }
    }

    /// Takes a `snapshot`.
    pub fn ask_for_snapshots(&mut self, asked: EntitiesRequest) {
        let entities = self.allowed(&asked);
        for entities in entities.chunks(ANSWERS_IN_A_ROW) {
            let request = asked.request.clone();
            self.pending.push_back(Pending::Snapshots { request, entities: entities.to_vec() });
        }
    }

    /// Takes a `heads`.
    pub fn ask_for_heads(&mut self, asked: EntitiesRequest) {
        let entities = self.allowed(&asked);
        // Asked for nothing that is allowed, the answer is empty, so that the request ends.
        self.pending.push_back(Pending::Heads { request: asked.request, entities });
    }

    fn allowed(&mut self, asked: &EntitiesRequest) -> Vec<Arc<str>> {
        let allowed = |name: &&String| self.may_ask(&asked.request, name);
        asked.entities.iter().filter(allowed).map(|name| Arc::from(name.as_str())).collect()
    }

    fn may_ask(&mut self, request: &Id, entity: &str) -> bool {
        if let Some(fault) = name::fault(entity) {
            self.error("bad_name", fault, Some(request), Some(entity), None);
            false
        } else if !self.access.may_read(entity) {
            self.forbid(Some(request), entity);
            false
        } else {
            true
        }
    }

    /// Answers one thing that was asked.
    pub async fn answer(&mut self, pending: Pending) -> Result<(), End> {
        match pending {
            Pending::Subscribe { request, entry } => self.subscribe(request, entry).await,
            Pending::Behind { request, topic, members } => self.catch_up(&request, &topic, members).await,
            Pending::Page(wanted) => self.page(wanted).await,
            Pending::Join(members) => self.join(members).await,
            Pending::Snapshots { request, entities } => self.snapshots(request, entities).await,
            Pending::Heads { request, entities } => self.heads(request, entities).await,
            Pending::Stale(entity) => self.stale(entity).await,
        }
    }

    async fn subscribe(&mut self, request: Id, entry: Subscription) -> Result<(), End> {
        let entity: Arc<str> = entry.entity.as_str().into();
        let known = self.following.contains(&entity);
        if (self.following.direct() >= MAX_SUBSCRIPTIONS || self.following.len() >= MAX_FOLLOWED) && !known {
            self.error(
                "subscription_limit",
                "This socket has as many subscriptions as it may; use a topic, or unsubscribe.",
                Some(&request),
                Some(&entity),
                None,
            );
            return Ok(());
        }
        // Events from here on are delivered; only then the log is read (G7).
        self.following.subscribe(&entity);
        self.gateway.hub.attach(&entity, &self.mailbox);
        if name::is_topic(&entity) {
            self.subscribe_topic(request, entity, entry).await
        } else {
            self.subscribe_entity(request, entity, entry).await
        }
    }

    async fn subscribe_entity(&mut self, request: Id, entity: Arc<str>, entry: Subscription) -> Result<(), End> {
        let names = [entity.clone()];
        if let (Some(after), Some(epoch)) = (entry.after, entry.epoch) {
            let head = match self.gateway.log.heads(&names).await {
                Ok((mut heads, _)) => heads.pop().filter(|head| *head.epoch == *epoch),
                Err(error) => return self.unavailable(&request, &entity, &error),
            };
            if let Some(EntityHead { epoch, seq: head, .. }) = head {
                self.send(&subscribed(&request, &entity, &epoch, head, None))?;
                if after == head {
                    self.following.answered(&entity, head);
                    return Ok(());
                }
                return self.page(follow(&request, &entity, &epoch, after + 1)).await;
            }
        }
        match self.gateway.log.states(&names).await {
            Ok(states) => {
                for state in states {
                    self.send(&subscribed(&request, &entity, &state.epoch, state.seq, None))?;
                    self.send_state(&state, Some(&request))?;
                    self.following.answered(&entity, state.seq);
                }
                Ok(())
            }
            Err(error) => self.unavailable(&request, &entity, &error),
        }
    }

    async fn subscribe_topic(&mut self, request: Id, topic: Arc<str>, entry: Subscription) -> Result<(), End> {
        let cursor = entry.cursor.as_deref().and_then(Cursor::read);
        // The members must be attached before they are read (G7), and are known only once they are read.
        let read = async {
            let first = self.gateway.log.states(std::slice::from_ref(&topic)).await?;
            let attached: Vec<Arc<str>> = first.into_iter().flat_map(|state| state.members).collect();
            for member in &attached {
                self.gateway.hub.attach(member, &self.mailbox);
            }
            let read = self.gateway.log.topic(&topic, cursor.as_ref().map(|cursor| &cursor.rows)).await?;
            Ok((attached, read))
        };
        let (attached, read) = match read.await {
            Ok(read) => read,
            Err(error) => return self.unavailable(&request, &topic, &error),
        };
        let epoch = &read.state.epoch;
        let after = entry.after.filter(|_| entry.epoch.as_deref() == Some(&**epoch));
        let here = Cursor { epoch: epoch.clone(), rows: read.state.rows.clone() };
        // One of other partitions, or further on than the log, is not of this log, and says nothing.
        let cursor = cursor.filter(|cursor| after.is_some() && here.covers(cursor));
        let too_many = self.following.len() + read.state.members.len() > MAX_FOLLOWED;
        let (allowed, forbidden): (Vec<_>, Vec<_>) =
            read.state.members.iter().cloned().partition(|member| self.access.may_read(member));
        let effect = if too_many {
            Effect::default()
        } else {
            self.following.set_members(&topic, &request, read.state.seq, allowed)
        };
        for member in &effect.begun {
            self.gateway.hub.attach(member, &self.mailbox);
        }
        for member in attached.iter().chain(&effect.ended) {
            if !self.following.contains(member) {
                self.gateway.hub.detach(member, &self.mailbox);
            }
        }
        if too_many {
            self.unsubscribe(&topic);
            let message = "The topic has more members than this socket may follow; use smaller topics.";
            self.error("subscription_limit", message, Some(&request), Some(&topic), None);
            return Ok(());
        }
        // A cursor may only be given for what was sent: to a client that resumes, its own. One that joins
        // has no position of any member yet, and names each as behind until it has.
        let joins = entry.after.is_none();
        let given = cursor.clone().or_else(|| joins.then_some(here));
        self.send(&subscribed(&request, &topic, epoch, read.state.seq, given))?;
        self.answer_topic(&request, &topic, after, &read)?;
        for member in &forbidden {
            self.forbid(Some(&request), member);
        }
        let known_to = after.filter(|_| cursor.is_some());
        self.answer_members(&request, known_to, &read, entry.behind, &effect.begun);
        self.following.owe_cursor(&topic, read.state.rows);
        Ok(())
    }

    fn answer_topic(
        &mut self,
        request: &Id,
        topic: &Arc<str>,
        after: Option<u64>,
        read: &TopicRead,
    ) -> Result<(), End> {
        let state = &read.state;
        match after {
            Some(after) if after == state.seq => self.following.answered(topic, state.seq),
            Some(after) if after > state.seq || after + 1 >= read.oldest => {
                self.pending.push_back(Pending::Page(follow(request, topic, &state.epoch, after + 1)));
            }
            // A topic whose position was trimmed gets its state at once, instead of `gone`: its members'
            // states follow, and they mean something only to a client that knows the members.
            _ => {
                self.send_state(state, Some(request))?;
                self.following.answered(topic, state.seq);
            }
        }
        Ok(())
    }

    /// Brings the members of a topic up to date. Those that joined up to `known_to` are known to the client
    /// as of its cursor, but for what `read` says changed since.
    fn answer_members(
        &mut self,
        request: &Id,
        known_to: Option<u64>,
        read: &TopicRead,
        behind: Vec<Behind>,
        begun: &[Arc<str>],
    ) {
        let mut behind: HashMap<String, Behind> =
            behind.into_iter().map(|position| (position.0.clone(), position)).collect();
        let changed: HashMap<&str, Option<u64>> =
            read.changed.iter().map(|(member, first)| (&**member, *first)).collect();
        let begun: HashSet<&str> = begun.iter().map(|member| &**member).collect();
        let mut joins = Vec::new();
        for (member, joined) in read.state.members.iter().zip(&read.joined) {
            if !self.following.contains(member) {
                continue;
            }
            let epoch = &read.state.epoch;
            match behind.remove(&**member) {
                Some(Behind(_, Some(of), Some(position))) if *of == **epoch => {
                    self.following.hold(member);
                    self.pending.push_back(Pending::Page(follow(request, member, epoch, position + 1)));
                }
                Some(_) => {
                    self.following.hold(member);
                    joins.push(member.clone());
                }
                // Another subscription of this socket has it already, and answered for it.
                None if !begun.contains(&**member) => {}
                None if known_to.is_some_and(|known_to| *joined <= known_to) => match changed.get(&**member) {
                    None => self.following.answered(member, 0),
                    Some(Some(first)) => {
                        self.pending.push_back(Pending::Page(follow(request, member, epoch, *first)));
                    }
                    Some(None) => joins.push(member.clone()),
                },
                None => joins.push(member.clone()),
            }
        }
        self.ask_to_join(joins);
    }

    fn ask_to_join(&mut self, members: Vec<Arc<str>>) {
        for members in members.chunks(ANSWERS_IN_A_ROW) {
            self.pending.push_back(Pending::Join(members.to_vec()));
        }
    }

    async fn catch_up(&mut self, request: &Id, topic: &Arc<str>, members: Vec<Behind>) -> Result<(), End> {
        let epoch = self.gateway.log.epoch();
        let mut joins = Vec::new();
        for Behind(member, of, position) in members {
            if !self.following.is_member(topic, &member) {
                continue;
            }
            let member: Arc<str> = member.into();
            self.following.hold(&member);
            match position {
                Some(position) if of.as_deref() == Some(&*epoch) => {
                    self.pending.push_back(Pending::Page(follow(request, &member, &epoch, position + 1)));
                }
                _ => joins.push(member),
            }
        }
        self.ask_to_join(joins);
        Ok(())
    }

    /// Applies an event of a topic to what is followed; those who join get their states.
    pub fn change_members(&mut self, topic: &str, seq: u64, change: &Change) {
        let access = &self.access;
        let may_read = |member: &str| access.may_read(member);
        let Some(effect) = self.following.change(topic, seq, change, may_read) else { return };
        for member in &effect.ended {
            self.gateway.hub.detach(member, &self.mailbox);
        }
        for member in &effect.begun {
            self.gateway.hub.attach(member, &self.mailbox);
        }
        self.ask_to_join(effect.begun);
        for member in &change.add {
            if !self.access.may_read(member) {
                self.forbid(None, member);
            }
        }
    }

    async fn page(&mut self, wanted: PageWanted) -> Result<(), End> {
        if wanted.follow && !self.following.contains(&wanted.entity) {
            return Ok(());
        }
        if self.stage.as_mut().is_some_and(|stage| stage.refuses_replay()) {
            let message = "The replay is refused, on purpose.";
            self.error("replay_refused", message, Some(&wanted.request), Some(&wanted.entity), Some(1.0));
            return self.go_on_without(&wanted, 0);
        }
        let PageWanted { request, entity, epoch, from, to, follow } = &wanted;
        let page = match self.gateway.log.page(entity, Some(epoch), *from, *to, PAGE_EVENTS).await {
            Ok(page) => page,
            Err(error) => return self.unavailable(request, entity, &error),
        };
        let (request, entity, epoch) = (request.clone(), entity.to_string(), epoch.to_string());
        match page {
            Page::Events { events, head, ended } => {
                let last = events.last().map_or(head, |event| event.seq);
                let changes = topic_changes(&entity, &events);
                self.gateway.metrics.replayed(events.len());
                let events = events.into_iter().map(Stored::replayed).collect();
                let vacant = Vec::new();
                let frame = ServerFrame::Replay(Replay { request, entity, epoch, events, vacant, done: ended });
                if !self.send_answer(&frame, &wanted.request, &wanted.entity)? {
                    return self.go_on_without(&wanted, head);
                }
                self.replayed_topic(&wanted, changes);
                if !ended {
                    self.pending.push_front(Pending::Page(PageWanted { from: last + 1, ..wanted }));
                } else if *follow {
                    self.following.answered(&wanted.entity, last);
                    self.following.replayed(&wanted.entity);
                }
                Ok(())
            }
            Page::Gone { oldest, head } => {
                self.send(&ServerFrame::Gone(Gone { request, entity, epoch, oldest }))?;
                self.go_on_without(&wanted, head)
            }
            Page::Ahead { head } => {
                self.send(&ServerFrame::Ahead(Ahead { request, entity, epoch, head }))?;
                self.go_on_without(&wanted, head)
            }
            Page::OtherEpoch => match self.gateway.log.states(std::slice::from_ref(&wanted.entity)).await {
                Ok(states) => {
                    for state in states {
                        self.send_state(&state, Some(&wanted.request))?;
                        self.go_on_without(&wanted, state.seq)?;
                    }
                    Ok(())
                }
                Err(error) => self.unavailable(&wanted.request, &wanted.entity, &error),
            },
        }
    }

    fn go_on_without(&mut self, wanted: &PageWanted, head: u64) -> Result<(), End> {
        if wanted.follow {
            self.following.answered(&wanted.entity, head);
        }
        Ok(())
    }

    /// A client that is told of members by a replay had no use for their states when these were pushed:
    /// they are pushed again.
    fn replayed_topic(&mut self, wanted: &PageWanted, changes: Vec<(u64, Change)>) {
        let topic = &wanted.entity;
        let mut again = Vec::new();
        for (seq, change) in changes {
            if wanted.follow {
                self.change_members(topic, seq, &change);
            } else {
                again.extend(change.add.into_iter().filter(|member| self.following.is_member(topic, member)));
            }
        }
        for member in &again {
            self.following.hold(member);
        }
        self.ask_to_join(again);
    }

    async fn join(&mut self, members: Vec<Arc<str>>) -> Result<(), End> {
        let wanted = |member: &Arc<str>| self.following.contains(member) && !self.following.is_live(member);
        let members: Vec<Arc<str>> = members.into_iter().filter(wanted).collect();
        match self.gateway.log.states(&members).await {
            Ok(states) => {
                for state in states {
                    self.send_state(&state, None)?;
                    self.following.answered(&state.entity, state.seq);
                    self.doubt(&state.entity);
                }
                Ok(())
            }
            Err(error) => {
                // Live all the same: the client has to ask for what it lacks.
                for member in members {
                    self.following.answered(&member, 0);
                    self.error("unavailable", &error_message(&error), None, Some(&member), Some(1.0));
                }
                Ok(())
            }
        }
    }

    async fn snapshots(&mut self, request: Id, entities: Vec<Arc<str>>) -> Result<(), End> {
        match self.gateway.log.states(&entities).await {
            Ok(states) => {
                if let Some(first) = states.first() {
                    self.covered(&first.rows).await?;
                }
                for state in states {
                    self.doubt(&state.entity);
                    let state = self.perhaps_older(state).await;
                    self.send_state(&state, Some(&request))?;
                }
                Ok(())
            }
            Err(error) => entities.iter().try_for_each(|entity| self.unavailable(&request, entity, &error)),
        }
    }

    /// Where faults are made, a state may be lost or be an old one, and the entity quiet ever after: its head is told with
    /// the next heartbeats (R21). Elsewhere neither can happen, and naming all members of a topic would cost too much.
    fn doubt(&mut self, entity: &Arc<str>) {
        if self.stage.is_some() {
            self.following.replayed(entity);
        }
    }

    /// The state, or an older one if a fault wants so.
    async fn perhaps_older(&mut self, state: State) -> State {
        match self.stage.as_mut().and_then(|stage| stage.staleness()) {
            Some(by) => older(&self.gateway.log, &state, by).await.unwrap_or(state),
            None => state,
        }
    }

    async fn stale(&mut self, entity: Arc<str>) -> Result<(), End> {
        let Ok(states) = self.gateway.log.states(&[entity]).await else { return Ok(()) };
        for state in states {
            if let Some(state) = older(&self.gateway.log, &state, STALE_BY).await {
                self.send_state(&state, None)?;
            }
        }
        Ok(())
    }

    async fn heads(&mut self, request: Id, entities: Vec<Arc<str>>) -> Result<(), End> {
        let (heads, rows) = match self.gateway.log.heads(&entities).await {
            Ok(read) => read,
            Err(error) => {
                self.error("unavailable", &error_message(&error), Some(&request), None, Some(1.0));
                return Ok(());
            }
        };
        self.covered(&rows).await?;
        let heads: Vec<Head> =
            heads.into_iter().map(|head| Head(head.entity.to_string(), head.epoch.to_string(), head.seq)).collect();
        let mut chunks = chunks(heads, |Head(entity, epoch, _)| entity.len() + epoch.len() + 32);
        if chunks.is_empty() {
            chunks.push(Vec::new());
        }
        for heads in chunks {
            self.send(&ServerFrame::Heads(Heads { heads, request: request.clone() }))?;
        }
        Ok(())
    }

    /// Queues everything up to these rows before what was read there (G13).
    async fn covered(&mut self, rows: &Rows) -> Result<(), End> {
        // Early or not, it is told: a head that is early only costs a question.
        let _ = self.gateway.hub.delivered(rows).await;
        self.take_all()
    }

    fn send_state(&mut self, state: &State, request: Option<&Id>) -> Result<(), End> {
        self.gateway.metrics.snapshot();
        for frame in snapshots(state, request) {
            if let Some(request) = request {
                if !self.send_answer(&frame, request, &state.entity)? {
                    break;
                }
            } else {
                // A pushed snapshot takes its chances like an event.
                let text: Arc<str> = outbox::text(&frame).into();
                if self.outbox.count(text.len()) > self.gateway.max_queued {
                    return Err(End::SLOW);
                }
                self.push_text(text)?;
            }
        }
        Ok(())
    }

    /// Sends an answer unless the socket had more answers lately than it may; then an error.
    fn send_answer(&mut self, frame: &ServerFrame, request: &Id, entity: &str) -> Result<bool, End> {
        let text = outbox::text(frame);
        match self.budget.spend(text.len(), MAX_REPLAY_BYTES) {
            Ok(()) => self.send_text(text).map(|()| true),
            Err(retry_after) => {
                let message = "This socket has asked for more than it may within a minute; ask later.";
                self.error("replay_limit", message, Some(request), Some(entity), Some(retry_after));
                Ok(false)
            }
        }
    }

    fn unavailable(&mut self, request: &Id, entity: &str, error: &Unavailable) -> Result<(), End> {
        tracing::error!(%error, entity, "a request can't be answered");
        self.error("unavailable", &error_message(error), Some(request), Some(entity), Some(1.0));
        self.following.answered(entity, 0);
        Ok(())
    }
}

fn error_message(_: &Unavailable) -> String {
    "The log can't be read at the moment; ask again.".to_owned()
}

fn follow(request: &Id, entity: &Arc<str>, epoch: &Arc<str>, from: u64) -> PageWanted {
    let (request, entity, epoch) = (request.clone(), entity.clone(), epoch.clone());
    PageWanted { request, entity, epoch, from, to: None, follow: true }
}

fn subscribed(request: &Id, entity: &str, epoch: &str, head: u64, cursor: Option<Cursor>) -> ServerFrame {
    ServerFrame::Subscribed(Subscribed {
        request: request.clone(),
        entity: entity.to_owned(),
        epoch: epoch.to_owned(),
        head,
        cursor: cursor.map(|cursor| cursor.text()),
    })
}

fn topic_changes(entity: &str, events: &[Stored]) -> Vec<(u64, Change)> {
    if !name::is_topic(entity) {
        return Vec::new();
    }
    let change = |event: &Stored| {
        let change = Change::read(event.data.as_ref().map(wire::Data::text)).unwrap_or_default();
        (event.seq, change)
    };
    events.iter().map(change).collect()
}
