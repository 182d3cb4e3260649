//! The hub: reads what was committed from the log, in order, and hands it to the sockets that follow it.
//!
//! Nothing reaches a socket that is not in the log (G2): the writer only wakes the hub. Heads are put into
//! the same queues behind the events that they cover (G13).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inorder::wire::{Event, ServerFrame};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::limits::{HEARTBEAT_MEMORY, PUSH_PATIENCE, PUSH_POLL, PUSH_ROWS};
use crate::log::{EntityHead, Log, Stored, Tail, Unavailable};
use crate::metrics::Metrics;
use crate::name;
use crate::rows::Rows;
use crate::topic::Change;

/// An event on its way to sockets, written once for all of them.
#[derive(Debug)]
pub struct Push {
    /// The entity.
    pub entity: Arc<str>,
    /// The event's number.
    pub seq: u64,
    /// The `event` frame.
    pub text: Arc<str>,
    /// For a topic, who joins and leaves.
    pub topic: Option<Change>,
}

/// What changed lately, read from the log.
#[derive(Debug)]
pub struct Beat {
    /// The heads of what changed during the last intervals.
    pub heads: Vec<EntityHead>,
    /// The rows that were handed out before this.
    pub rows: Rows,
}

/// What the hub puts into a socket's mailbox.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// An event of an entity that the socket follows.
    Push(Arc<Push>),
    /// It is time for a heartbeat.
    Beat(Arc<Beat>),
    /// The queue is over its limit; nothing more is delivered (G8).
    Overflow,
    /// The log was put back beneath this gateway; positions that sockets were sent mean nothing any more (G9).
    PutBack,
}

/// Where the hub puts what a socket follows. Never blocks the hub: bounded in bytes instead.
#[derive(Debug)]
pub struct Mailbox {
    id: u64,
    deliveries: mpsc::UnboundedSender<Delivery>,
    /// Bytes that wait for the socket, here and in its outbox.
    pub queued: Arc<AtomicUsize>,
    limit: usize,
    overflown: AtomicBool,
}

impl Mailbox {
    fn deliver(&self, push: &Arc<Push>) {
        if self.overflown.load(Ordering::Relaxed) {
            return;
        }
        let bytes = push.text.len();
        if self.queued.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limit {
            self.overflown.store(true, Ordering::Relaxed);
            let _ = self.deliveries.send(Delivery::Overflow);
        } else {
            // The receiver is gone only while its socket closes.
            let _ = self.deliveries.send(Delivery::Push(push.clone()));
        }
    }
}

/// The hub; shared by all sockets.
pub struct Hub {
    log: Arc<Log>,
    followers: Mutex<HashMap<Arc<str>, Vec<Arc<Mailbox>>>>,
    mailboxes: Mutex<HashMap<u64, Arc<Mailbox>>>,
    next_id: AtomicU64,
    pushed: watch::Sender<Rows>,
    metrics: Arc<Metrics>,
}

impl Hub {
    /// Starts the hub. It pushes what is new in the log whenever `wake` counts up, and a beat every `heartbeat`.
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn start(
        log: Arc<Log>,
        wake: watch::Receiver<u64>,
        heartbeat: Duration,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Hub>, Unavailable> {
        let rows = log.last_rows().await?;
        let hub = Arc::new(Hub {
            log,
            followers: Mutex::default(),
            mailboxes: Mutex::default(),
            next_id: AtomicU64::new(1),
            pushed: watch::Sender::new(rows),
            metrics,
        });
        tokio::spawn(hub.clone().push(wake));
        tokio::spawn(hub.clone().beat(heartbeat));
        Ok(hub)
    }

    /// Makes a mailbox that holds at most `limit` bytes.
    pub fn mailbox(&self, limit: usize) -> (Arc<Mailbox>, mpsc::UnboundedReceiver<Delivery>) {
        let (deliveries, receiver) = mpsc::unbounded_channel();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let queued = Arc::new(AtomicUsize::new(0));
        let mailbox = Arc::new(Mailbox { id, deliveries, queued, limit, overflown: AtomicBool::new(false) });
        self.all_mailboxes().insert(id, mailbox.clone());
        (mailbox, receiver)
    }

    /// From here on the entity's events are delivered. To be called before its head is read (G7).
    pub fn attach(&self, entity: &Arc<str>, mailbox: &Arc<Mailbox>) {
        let mut followers = self.all_followers();
        let mailboxes = followers.entry(entity.clone()).or_default();
        if mailboxes.iter().all(|other| other.id != mailbox.id) {
            mailboxes.push(mailbox.clone());
        }
    }

    /// From here on the entity's events are not delivered any more.
    pub fn detach(&self, entity: &str, mailbox: &Mailbox) {
        let mut followers = self.all_followers();
        if let Some(mailboxes) = followers.get_mut(entity) {
            mailboxes.retain(|other| other.id != mailbox.id);
            if mailboxes.is_empty() {
                followers.remove(entity);
            }
        }
    }

    /// Forgets a mailbox that is attached to nothing any more.
    pub fn forget(&self, mailbox: &Mailbox) {
        self.all_mailboxes().remove(&mailbox.id);
    }

    /// How many sockets there are.
    pub fn sockets(&self) -> usize {
        self.all_mailboxes().len()
    }

    /// How many entities are followed, each counted once per socket.
    pub fn subscriptions(&self) -> usize {
        self.all_followers().values().map(Vec::len).sum()
    }

    /// The rows up to which everything was delivered.
    pub fn pushed(&self) -> Rows {
        self.pushed.borrow().clone()
    }

    /// Waits until everything up to these rows was delivered, so that what is read there can be queued
    /// behind it (G13). Gives up when the push hangs, and says so: a head that is early costs a question, a cursor
    /// that is early would hide what was not sent.
    pub async fn delivered(&self, rows: &Rows) -> bool {
        let mut pushed = self.pushed.subscribe();
        timeout(PUSH_PATIENCE, pushed.wait_for(|pushed| pushed.covers(rows))).await.is_ok()
    }

    fn all_followers(&self) -> MutexGuard<'_, HashMap<Arc<str>, Vec<Arc<Mailbox>>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_mailboxes(&self) -> MutexGuard<'_, HashMap<u64, Arc<Mailbox>>> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn push(self: Arc<Self>, mut wake: watch::Receiver<u64>) {
        let mut pushed = self.pushed();
        let mut epoch = self.log.epoch();
        loop {
            wake.borrow_and_update();
            match self.read_on(&pushed).await {
                Ok(Tail { events, epoch: current, rows }) => {
                    if epoch != current {
                        epoch = current;
                        self.put_back();
                    }
                    let more = events.len() == PUSH_ROWS;
                    if more {
                        events.iter().for_each(|event| pushed.raise(event.partition, event.row));
                    } else {
                        // Up to the last rows there are, even if those before them were taken back or trimmed.
                        pushed = rows;
                    }
                    for event in events {
                        self.hand_out(event);
                    }
                    self.metrics.pushed(&pushed);
                    self.pushed.send_if_modified(|last| std::mem::replace(last, pushed.clone()) != pushed);
                    if more {
                        continue;
                    }
                }
                Err(error) => tracing::error!(%error, "nothing can be pushed"),
            }
            if let Ok(Err(_)) = timeout(PUSH_POLL, wake.changed()).await {
                // The writer is gone, and with it what could be pushed.
                return;
            }
        }
    }

    async fn read_on(&self, pushed: &Rows) -> Result<Tail, Unavailable> {
        let tail = self.log.after(pushed, PUSH_ROWS).await?;
        if !pushed.covers(&tail.rows) {
            // What others committed is told here, too.
            tokio::task::block_in_place(|| self.log.note(&tail.rows))?;
        }
        Ok(tail)
    }

    /// Lets every socket resume from a log that others put back. What this gateway does to its own log on purpose is
    /// told otherwise.
    fn put_back(&self) {
        if self.log.is_shared() {
            for mailbox in self.all_mailboxes().values() {
                let _ = mailbox.deliveries.send(Delivery::PutBack);
            }
        }
    }

    fn hand_out(&self, event: Stored) {
        let followers = self.all_followers();
        let Some(mailboxes) = followers.get(&event.entity) else { return };
        let push = Arc::new(push(event));
        self.metrics.sent(mailboxes.len());
        for mailbox in mailboxes {
            mailbox.deliver(&push);
        }
    }

    async fn beat(self: Arc<Self>, heartbeat: Duration) {
        let mut ticks = interval_at(Instant::now() + heartbeat, heartbeat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lately = VecDeque::from([self.pushed()]);
        loop {
            ticks.tick().await;
            let since = lately.front().cloned().unwrap_or_else(|| self.pushed());
            let (heads, rows) = match self.log.heads_after(&since).await {
                Ok(read) => read,
                Err(error) => {
                    // Still a sign of life: the sockets are fine, only the log is not.
                    tracing::error!(%error, "no heads can be read");
                    (Vec::new(), since)
                }
            };
            let (heads, rows) = if self.delivered(&rows).await { (heads, rows) } else { (Vec::new(), self.pushed()) };
            lately.push_back(rows.clone());
            let beat = Arc::new(Beat { heads, rows });
            for mailbox in self.all_mailboxes().values() {
                let _ = mailbox.deliveries.send(Delivery::Beat(beat.clone()));
            }
            if lately.len() > HEARTBEAT_MEMORY {
                lately.pop_front();
            }
        }
    }
}

fn push(event: Stored) -> Push {
    let Stored { entity, epoch, seq, id, status, at, data, .. } = event;
    let topic = name::is_topic(&entity).then(|| {
        // The writer checked it before it was stored.
        Change::read(data.as_ref().map(|data| data.text())).unwrap_or_default()
    });
    let frame = ServerFrame::Event(Event {
        entity: entity.to_string(),
        epoch: epoch.to_string(),
        seq: Some(seq),
        prev: None,
        first: None,
        id,
        status,
        at,
        data,
    });
    Push { entity, seq, text: crate::outbox::text(&frame).into(), topic }
}
