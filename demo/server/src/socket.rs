//! One socket: hears commands, forwards what it follows, answers what it is asked.
//!
//! ```text
//!   commands ──► pending ──► answers ─┐
//!                                     ├──► outbox ──► the wire
//!   hub ──► mailbox ──► forwarded ────┘
//! ```
//!
//! One task does all of it, so that an answer lies behind the events that it covers (G13) and no event
//! falls between an answer and what follows (G7). Only the outbox waits for the peer.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket};
use futures_util::stream::SplitStream;
use futures_util::{FutureExt, StreamExt};
use inorder::wire::{self, ClientFrame, Cursor as WireCursor, Head, Heartbeat, Id, ServerFrame};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::answer::Pending;
use crate::fault::{Action, Deed, Out, Stage};
use crate::follow::Following;
use crate::gateway::Gateway;
use crate::hub::{Beat, Delivery, Mailbox, Push};
use crate::limits::{
    ANSWER_SHARE, ANSWERS_IN_A_ROW, BATCH_BYTES, CLOSE_TIMEOUT, HELLO_TIMEOUT, MAX_BAD_FRAMES, MAX_FRAME_BYTES,
    MAX_PENDING, MESSAGES_IN_A_ROW, REPLAY_WINDOW, SILENCE, SPREAD, SPREAD_PER_SOCKET, TOKEN_NOTICE,
};
use crate::outbox::{Outbox, text};
use crate::rows::{Cursor, Rows};
use crate::token::{Access, Refused};

/// Why a socket ends, and what its peer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    code: u16,
    reason: &'static str,
    abandon: bool,
}

impl End {
    const GONE: End = End { code: 1000, reason: "closed by the client", abandon: true };
    const RESTART: End = End { code: 1012, reason: "the gateway restarts", abandon: false };
    const PUT_BACK: End = End { code: 1012, reason: "the log was put back; resume", abandon: false };
    /// A slow reader (G8).
    pub const SLOW: End = End { code: 1013, reason: "too slow a reader; resume", abandon: true };
    const TOO_LARGE: End = End { code: 1009, reason: "a frame has at most 256 KiB", abandon: false };
    /// Not 4401: a page that was frozen while it dialed has a good token, and resumes.
    const LATE: End = End { code: 4408, reason: "no hello within 5 seconds", abandon: false };
    const UNAUTHORIZED: End = End { code: 4401, reason: "unauthorized", abandon: false };
    const BAD: End = End { code: 4400, reason: "not what this protocol says", abandon: false };
    /// As if the wire was cut: no close frame.
    pub const CUT: End = End { code: 1006, reason: "cut on purpose", abandon: true };
    const SILENT: End = End { code: 4408, reason: "nothing was heard", abandon: true };
}

/// The bytes of answers that a socket has had lately.
#[derive(Debug)]
pub struct Budget {
    since: Instant,
    spent: usize,
}

impl Budget {
    /// Takes bytes from the budget; if it is used up, the seconds until there is a new one.
    pub fn spend(&mut self, bytes: usize, limit: usize) -> Result<(), f64> {
        if self.since.elapsed() >= REPLAY_WINDOW {
            *self = Budget { since: Instant::now(), spent: 0 };
        }
        if self.spent >= limit {
            return Err(REPLAY_WINDOW.saturating_sub(self.since.elapsed()).as_secs_f64().ceil());
        }
        self.spent += bytes;
        Ok(())
    }
}

/// One socket after its hello.
pub struct Socket {
    /// What all sockets share.
    pub gateway: Arc<Gateway>,
    /// Where the hub puts this socket's events.
    pub mailbox: Arc<Mailbox>,
    /// Where its frames wait for the wire.
    pub outbox: Arc<Outbox>,
    deliveries: UnboundedReceiver<Delivery>,
    /// What it may read.
    pub access: Access,
    /// What it follows.
    pub following: Following,
    /// The log's epoch when the socket began. Its cursors are of this one: when the log goes over to another, members
    /// that do not change are told nothing, so no cursor may cover them.
    epoch: Arc<str>,
    /// What it asked and was not answered yet.
    pub pending: VecDeque<Pending>,
    /// What answers it may still ask for.
    pub budget: Budget,
    bad_frames: u32,
    heard: Instant,
    notice: Option<Instant>,
    expiry: Option<Instant>,
    /// Faults on purpose, if they were asked for.
    pub stage: Option<Box<Stage>>,
}

/// Serves a socket until it ends.
pub async fn serve(gateway: Arc<Gateway>, socket: WebSocket, stage: Option<Box<Stage>>) {
    let (sink, mut stream) = socket.split();
    let (mailbox, deliveries) = gateway.hub.mailbox(gateway.max_queued);
    let outbox = Outbox::new(mailbox.queued.clone());
    let mut writer = tokio::spawn(outbox.clone().run(sink));
    let now = Instant::now();
    let mut socket = Socket {
        gateway: gateway.clone(),
        mailbox: mailbox.clone(),
        outbox: outbox.clone(),
        deliveries,
        access: Access::nothing(),
        following: Following::default(),
        epoch: gateway.log.epoch(),
        pending: VecDeque::new(),
        budget: Budget { since: now, spent: 0 },
        bad_frames: 0,
        heard: now,
        notice: None,
        expiry: None,
        stage,
    };
    let end = tokio::select! {
        end = socket.run(&mut stream) => end,
        _ = &mut writer => End::GONE,
    };
    for entity in socket.following.names() {
        gateway.hub.detach(entity, &mailbox);
    }
    gateway.metrics.closed(end.code);
    tracing::info!(code = end.code, reason = end.reason, entities = socket.following.len(), "socket ends");
    drop(socket);
    if end == End::CUT {
        writer.abort();
        gateway.hub.forget(&mailbox);
        return;
    }
    if end.abandon {
        outbox.abandon(end.code, end.reason);
    } else {
        outbox.close(end.code, end.reason);
    }
    // The peer must be read until it has heard the close frame, or the system may throw that away.
    let reading = async {
        while let Some(Ok(message)) = stream.next().await {
            if matches!(message, Message::Close(_)) {
                break;
            }
        }
    };
    let writing = async {
        if !writer.is_finished() {
            // It ends with the close frame, or with the connection.
            let _ = (&mut writer).await;
        }
    };
    let _ = timeout(CLOSE_TIMEOUT, async { tokio::join!(reading, writing) }).await;
    writer.abort();
    gateway.hub.forget(&mailbox);
}

impl Socket {
    async fn run(&mut self, stream: &mut SplitStream<WebSocket>) -> End {
        let mut actions = self.gateway.faults.as_ref().map(|faults| faults.actions());
        if self.is_silent() {
            return hush(stream).await;
        }
        if let Err(end) = self.greet(stream).await {
            return end;
        }
        let mut stopping = self.gateway.stopping.clone();
        loop {
            if self.is_silent() {
                return hush(stream).await;
            }
            let fault_due = self.stage.as_ref().and_then(|stage| stage.due());
            let has_room = self.has_room();
            let deadline = self.notice.or(self.expiry);
            let step = tokio::select! {
                delivery = self.deliveries.recv() => match delivery {
                    Some(delivery) => self.deliver(delivery).await,
                    None => Err(End::GONE),
                },
                message = stream.next(), if self.pending.len() < MAX_PENDING => self.hear(message).await,
                () = std::future::ready(()), if has_room && !self.pending.is_empty() => {
                    match self.hear_more(stream).await {
                        Ok(()) => self.answer_some().await,
                        end => end,
                    }
                }
                () = self.outbox.written.notified(), if !has_room && !self.pending.is_empty() => Ok(()),
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => self.token_ages(),
                () = stops(&mut stopping) => Err(self.stop()),
                () = sleep_until(fault_due.unwrap_or_else(Instant::now)), if fault_due.is_some() => self.poll_stage(),
                action = next_action(&mut actions) => self.suffer(action),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    /// Answers may fill only a share of the queue; the rest is for live events.
    fn has_room(&self) -> bool {
        self.outbox.queued() < self.gateway.max_queued / ANSWER_SHARE
    }

    /// Waits for the hello and says welcome (G10). What came with the hello is handled after it.
    async fn greet(&mut self, stream: &mut SplitStream<WebSocket>) -> Result<(), End> {
        let mut stopping = self.gateway.stopping.clone();
        let message = tokio::select! {
            message = timeout(HELLO_TIMEOUT, next_text(stream)) => match message {
                Ok(message) => message?,
                Err(_) => {
                    self.error("hello_required", "No hello came within 5 seconds.", None, None, None);
                    return Err(End::LATE);
                }
            },
            () = stops(&mut stopping) => return Err(self.stop()),
        };
        let mut frames = ClientFrame::decode(&message).into_iter();
        let Some(Ok(wire::Received { frame: Some(ClientFrame::Hello(hello)), .. })) = frames.next() else {
            self.error("hello_required", "The first frame of a socket must be a hello.", None, None, None);
            return Err(End::BAD);
        };
        self.admit(hello.token.as_deref())?;
        tracing::info!(client = hello.client, "socket begins");
        let can = ["replay", "snapshot", "heads"].map(str::to_owned).to_vec();
        let heartbeat = Some(self.gateway.heartbeat.as_secs_f64());
        self.send(&ServerFrame::Welcome(wire::Welcome { heartbeat, can }))?;
        for frame in frames {
            self.obey(frame).await?;
        }
        Ok(())
    }

    fn admit(&mut self, token: Option<&str>) -> Result<(), End> {
        match self.gateway.tokens.check(token) {
            Ok(access) => {
                let now = Instant::now();
                let left = access.left();
                self.expiry = left.and_then(|left| now.checked_add(left));
                // A token that lives for less than twice the notice is announced at half its time.
                self.notice = left.and_then(|left| now.checked_add(left - TOKEN_NOTICE.min(left / 2)));
                self.access = access;
                Ok(())
            }
            Err(refused) => Err(self.refuse(refused)),
        }
    }

    fn refuse(&mut self, refused: Refused) -> End {
        self.error(refused.code(), refused.message(), None, None, None);
        End::UNAUTHORIZED
    }

    fn token_ages(&mut self) -> Result<(), End> {
        if self.notice.take().is_some() {
            self.error("token_expiring", "The token ends soon; send `auth` with another one.", None, None, None);
            return Ok(());
        }
        Err(self.refuse(Refused::Expired))
    }

    async fn hear(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        self.heard = Instant::now();
        let text = match read(message)? {
            Some(text) => text,
            None => return Ok(()),
        };
        for frame in ClientFrame::decode(&text) {
            self.obey(frame).await?;
        }
        Ok(())
    }

    /// Hears what has arrived already, before anything is answered: one command may go on in the next message.
    async fn hear_more(&mut self, stream: &mut SplitStream<WebSocket>) -> Result<(), End> {
        for _ in 0..MESSAGES_IN_A_ROW {
            if self.pending.len() >= MAX_PENDING {
                break;
            }
            let Some(message) = stream.next().now_or_never() else { break };
            self.hear(message).await?;
        }
        Ok(())
    }

    async fn obey(&mut self, received: Result<wire::Received<ClientFrame>, wire::DecodeError>) -> Result<(), End> {
        let frame = match received {
            Ok(wire::Received { frame: Some(frame), .. }) => frame,
            Ok(wire::Received { frame: None, .. }) => return Ok(()),
            Err(error) => {
                self.bad_frames += 1;
                self.error("bad_frame", &error.to_string(), None, None, None);
                return if self.bad_frames >= MAX_BAD_FRAMES { Err(End::BAD) } else { Ok(()) };
            }
        };
        match frame {
            // A second hello says nothing new.
            ClientFrame::Hello(_) => {}
            ClientFrame::Auth(auth) => {
                self.admit(Some(&auth.token))?;
                self.drop_forbidden();
            }
            ClientFrame::Ping(ping) => self.send(&ServerFrame::Pong(wire::Pong { id: ping.id }))?,
            ClientFrame::Subscribe(subscribe) => self.ask_to_subscribe(subscribe),
            ClientFrame::Unsubscribe(unsubscribe) => {
                for entity in unsubscribe.entities {
                    self.unsubscribe(&entity);
                }
            }
            ClientFrame::Replay(request) => self.ask_to_replay(request),
            ClientFrame::Snapshot(request) => self.ask_for_snapshots(request),
            ClientFrame::Heads(request) => self.ask_for_heads(request),
        }
        Ok(())
    }

    /// Follows an entity no longer, and drops what it asked about it.
    pub fn unsubscribe(&mut self, entity: &str) {
        self.pending.retain(|pending| !pending.is_subscription_to(entity));
        for ended in self.following.unsubscribe(entity) {
            self.gateway.hub.detach(&ended, &self.mailbox);
        }
    }

    fn drop_forbidden(&mut self) {
        let forbidden: Vec<Arc<str>> =
            self.following.names().filter(|name| !self.access.may_read(name)).cloned().collect();
        for entity in forbidden {
            self.unsubscribe(&entity);
            self.following.expel(&entity);
            self.gateway.hub.detach(&entity, &self.mailbox);
            self.forbid(None, &entity);
        }
    }

    /// Says that an entity may not be read.
    pub fn forbid(&mut self, request: Option<&Id>, entity: &str) {
        self.error("forbidden", "The token does not cover this entity.", request, Some(entity), None);
    }

    /// Handles what the hub delivered, and then what else is there.
    async fn deliver(&mut self, delivery: Delivery) -> Result<(), End> {
        self.take(delivery)?;
        self.take_all()?;
        tokio::task::consume_budget().await;
        Ok(())
    }

    /// Forwards everything that was delivered so far.
    pub fn take_all(&mut self) -> Result<(), End> {
        while let Ok(delivery) = self.deliveries.try_recv() {
            self.take(delivery)?;
        }
        Ok(())
    }

    fn take(&mut self, delivery: Delivery) -> Result<(), End> {
        match delivery {
            Delivery::Push(push) => self.forward(&push),
            Delivery::Beat(beat) => self.beat(&beat),
            Delivery::Overflow => Err(End::SLOW),
            Delivery::PutBack => Err(self.say_goodbye("The log was put back.", End::PUT_BACK)),
        }
    }

    fn forward(&mut self, push: &Push) -> Result<(), End> {
        if !self.following.forward(&push.entity, push.seq) {
            self.outbox.discount(push.text.len());
            return Ok(());
        }
        self.push_text(push.text.clone())?;
        if let Some(change) = &push.topic {
            self.change_members(&push.entity, push.seq, change);
        }
        if self.stage.as_mut().is_some_and(|stage| stage.staleness().is_some()) {
            self.pending.push_back(Pending::Stale(push.entity.clone()));
        }
        Ok(())
    }

    /// Queues the text of a pushed frame, whose bytes are counted.
    pub fn push_text(&mut self, text: Arc<str>) -> Result<(), End> {
        let Some(stage) = &mut self.stage else {
            self.outbox.push(text);
            return Ok(());
        };
        let mut out = Out::default();
        stage.go_over(self.gateway.log.epoch(), &mut out);
        stage.push(text, Instant::now(), &mut out);
        self.let_out(out)
    }

    fn poll_stage(&mut self) -> Result<(), End> {
        let mut out = Out::default();
        if let Some(stage) = &mut self.stage {
            stage.go_over(self.gateway.log.epoch(), &mut out);
            stage.poll(Instant::now(), &mut out);
        }
        self.let_out(out)
    }

    fn let_out(&mut self, out: Out) -> Result<(), End> {
        self.outbox.count(out.added);
        for text in out.ready {
            self.outbox.push(text);
        }
        self.outbox.discount(out.lost);
        if out.cut { Err(End::CUT) } else { Ok(()) }
    }

    fn is_silent(&self) -> bool {
        self.stage.as_ref().is_some_and(|stage| stage.is_silent())
    }

    fn suffer(&mut self, action: Action) -> Result<(), End> {
        let Some(stage) = self.stage.as_mut().filter(|stage| stage.is_meant(action.key.as_deref())) else {
            return Ok(());
        };
        stage.act(action.deed, Instant::now());
        match action.deed {
            Deed::Cut => return Err(End::CUT),
            Deed::StaleSnapshot => {
                let stale = self.following.names().cloned().map(Pending::Stale);
                self.pending.extend(stale);
            }
            Deed::HalfOpen | Deed::Crash => {}
        }
        Ok(())
    }

    fn beat(&mut self, beat: &Beat) -> Result<(), End> {
        if self.heard.elapsed() > SILENCE.max(self.gateway.heartbeat * 3) {
            return Err(End::SILENT);
        }
        self.outbox.ping();
        let mut heads: Vec<Head> = beat
            .heads
            .iter()
            .filter(|head| self.following.is_live(&head.entity))
            .map(|head| Head(head.entity.to_string(), head.epoch.to_string(), head.seq))
            .collect();
        let epoch = self.epoch.to_string();
        for (entity, seq) in self.following.take_replayed() {
            heads.push(Head(entity.to_string(), epoch.clone(), seq));
        }
        // While answers are outstanding, a cursor would cover events that were not sent.
        let cursors = if self.pending.is_empty() {
            self.cursors(self.following.topics().map(|topic| (topic.clone(), beat.rows.clone())))
        } else {
            Vec::new()
        };
        let mut chunks = chunks(heads, |Head(entity, epoch, _)| entity.len() + epoch.len() + 32).into_iter();
        let heads = chunks.next().unwrap_or_default();
        self.send(&ServerFrame::Heartbeat(Heartbeat { heads, cursors }))?;
        for heads in chunks {
            self.send(&ServerFrame::Heartbeat(Heartbeat { heads, cursors: Vec::new() }))?;
        }
        Ok(())
    }

    async fn answer_some(&mut self) -> Result<(), End> {
        for _ in 0..ANSWERS_IN_A_ROW {
            if !self.has_room() {
                break;
            }
            let Some(pending) = self.pending.pop_front() else { break };
            self.answer(pending).await?;
        }
        if self.pending.is_empty() {
            self.pay_cursors()?;
        }
        Ok(())
    }

    fn pay_cursors(&mut self) -> Result<(), End> {
        let due = self.following.take_cursors();
        let cursors = self.cursors(due.into_iter());
        if cursors.is_empty() {
            return Ok(());
        }
        self.send(&ServerFrame::Heartbeat(Heartbeat { heads: Vec::new(), cursors }))
    }

    fn cursors(&self, topics: impl Iterator<Item = (Arc<str>, Rows)>) -> Vec<WireCursor> {
        let text = |rows| Cursor { epoch: self.epoch.clone(), rows }.text();
        topics.map(|(topic, rows)| WireCursor(topic.to_string(), text(rows))).collect()
    }

    /// Queues a frame for the wire.
    pub fn send(&mut self, frame: &ServerFrame) -> Result<(), End> {
        self.send_text(text(frame))
    }

    /// Queues the text of a frame for the wire.
    pub fn send_text(&mut self, text: String) -> Result<(), End> {
        if self.queue(text) > self.gateway.max_queued { Err(End::SLOW) } else { Ok(()) }
    }

    fn queue(&mut self, text: String) -> usize {
        let queued = self.outbox.count(text.len());
        let text: Arc<str> = text.into();
        match &mut self.stage {
            None => self.outbox.push(text),
            Some(stage) => {
                let mut out = Out::default();
                stage.answer(text, Instant::now(), &mut out);
                // Answers are never a reason to cut.
                let _ = self.let_out(out);
            }
        }
        queued
    }

    /// Queues an error for the wire.
    pub fn error(
        &mut self,
        code: &'static str,
        message: &str,
        request: Option<&Id>,
        entity: Option<&str>,
        retry_after: Option<f64>,
    ) {
        self.gateway.metrics.refused(code);
        self.queue(text(&ServerFrame::Error(wire::Error {
            code: code.to_owned(),
            message: message.to_owned(),
            request: request.cloned(),
            entity: entity.map(str::to_owned),
            retry_after,
        })));
    }

    fn stop(&mut self) -> End {
        self.say_goodbye("The gateway restarts.", End::RESTART)
    }

    fn say_goodbye(&mut self, reason: &str, end: End) -> End {
        #[allow(clippy::cast_precision_loss)]
        let sockets = self.gateway.hub.sockets() as f64;
        let spread = (sockets * SPREAD_PER_SOCKET).clamp(SPREAD.0, SPREAD.1);
        let retry_after = (StdRng::from_os_rng().random_range(0.0..spread) * 1000.0).round() / 1000.0;
        let goodbye = wire::Goodbye { reason: reason.to_owned(), retry_after: Some(retry_after) };
        self.queue(text(&ServerFrame::Goodbye(goodbye)));
        end
    }
}

/// Splits a list so that each chunk makes a frame of about [`BATCH_BYTES`].
pub fn chunks<T>(list: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut chunks = vec![];
    let mut size = BATCH_BYTES;
    for entry in list {
        let more = bytes(&entry);
        if size + more > BATCH_BYTES {
            chunks.push(Vec::new());
            size = 0;
        }
        size += more;
        if let Some(chunk) = chunks.last_mut() {
            chunk.push(entry);
        }
    }
    chunks
}

/// Hears nothing and says nothing until the peer has had enough.
async fn hush(stream: &mut SplitStream<WebSocket>) -> End {
    while let Some(Ok(message)) = stream.next().await {
        if matches!(message, Message::Close(_)) {
            break;
        }
    }
    End::CUT
}

async fn next_action(actions: &mut Option<broadcast::Receiver<Action>>) -> Action {
    let Some(actions) = actions else { return std::future::pending().await };
    loop {
        match actions.recv().await {
            Ok(action) => return action,
            // Missed some: as good as done.
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
        }
    }
}

async fn stops(stopping: &mut watch::Receiver<bool>) {
    // A gateway that is gone has stopped, too.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

async fn next_text(stream: &mut SplitStream<WebSocket>) -> Result<String, End> {
    loop {
        if let Some(text) = read(stream.next().await)? {
            return Ok(text);
        }
    }
}

fn read(message: Option<Result<Message, axum::Error>>) -> Result<Option<String>, End> {
    match message {
        Some(Ok(Message::Text(text))) if text.len() > MAX_FRAME_BYTES => Err(End::TOO_LARGE),
        Some(Ok(Message::Binary(bytes))) if bytes.len() > MAX_FRAME_BYTES => Err(End::TOO_LARGE),
        Some(Ok(Message::Text(text))) => Ok(Some(text.as_str().to_owned())),
        // Binary frames are the same text.
        Some(Ok(Message::Binary(bytes))) => Ok(Some(String::from_utf8(bytes.into()).unwrap_or_default())),
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(None),
        Some(Ok(Message::Close(_))) | None => Err(End::GONE),
        Some(Err(error)) => Err(if is_too_large(&error) { End::TOO_LARGE } else { End::GONE }),
    }
}

fn is_too_large(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.to_string().contains("too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g10_a_budget_is_used_up_and_renewed() {
        let mut budget = Budget { since: Instant::now(), spent: 0 };
        assert_eq!(budget.spend(60, 100), Ok(()));
        assert_eq!(budget.spend(60, 100), Ok(()), "what is begun is sent");
        let wait = budget.spend(1, 100).unwrap_err();
        assert!((1.0..=60.0).contains(&wait), "{wait}");
        let Some(past) = Instant::now().checked_sub(REPLAY_WINDOW) else { return };
        budget.since = past;
        assert_eq!(budget.spend(1, 100), Ok(()));
    }

    #[test]
    fn a_long_list_is_chunked() {
        let lengths = |list: Vec<usize>| chunks(list, |bytes| *bytes).iter().map(Vec::len).collect::<Vec<_>>();
        assert!(lengths(vec![]).is_empty());
        assert_eq!(lengths(vec![BATCH_BYTES / 2, BATCH_BYTES / 2, 1, BATCH_BYTES * 2]), [2, 1, 1]);
    }
}
