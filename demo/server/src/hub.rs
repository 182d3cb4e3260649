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
use crate::log::{EntityHead, Log, Stored, Unavailable};
use crate::name;
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
    /// The last row that was handed out before this.
    pub row: u64,
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
    pushed: watch::Sender<u64>,
}

impl Hub {
    /// Starts the hub. It pushes what `committed` announces, and a beat every `heartbeat`.
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn start(
        log: Arc<Log>,
        committed: watch::Receiver<u64>,
        heartbeat: Duration,
    ) -> Result<Arc<Hub>, Unavailable> {
        let row = log.last_row().await?;
        let hub = Arc::new(Hub {
            log,
            followers: Mutex::default(),
            mailboxes: Mutex::default(),
            next_id: AtomicU64::new(1),
            pushed: watch::Sender::new(row),
        });
        tokio::spawn(hub.clone().push(committed));
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

    /// Waits until everything up to a row was delivered, so that what is read at this row can be queued
    /// behind it (G13). Gives up when the push hangs: a head that is early only costs a question.
    pub async fn delivered(&self, row: u64) {
        let mut pushed = self.pushed.subscribe();
        let _ = timeout(PUSH_PATIENCE, pushed.wait_for(|pushed| *pushed >= row)).await;
    }

    fn all_followers(&self) -> MutexGuard<'_, HashMap<Arc<str>, Vec<Arc<Mailbox>>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_mailboxes(&self) -> MutexGuard<'_, HashMap<u64, Arc<Mailbox>>> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn push(self: Arc<Self>, mut committed: watch::Receiver<u64>) {
        let mut pushed = *self.pushed.borrow();
        loop {
            let announced = *committed.borrow_and_update();
            match self.log.after_row(pushed, PUSH_ROWS).await {
                Ok(events) => {
                    let more = events.len() == PUSH_ROWS;
                    pushed = events.last().map_or(pushed, |last| last.row);
                    if !more {
                        // What is not there any more was taken back by a restored backup.
                        pushed = pushed.max(announced);
                    }
                    for event in events {
                        self.hand_out(event);
                    }
                    self.pushed.send_if_modified(|last| std::mem::replace(last, pushed) != pushed);
                    if more {
                        continue;
                    }
                }
                Err(error) => tracing::error!(%error, "nothing can be pushed"),
            }
            match timeout(PUSH_POLL, committed.wait_for(|row| *row > pushed)).await {
                Ok(Ok(_)) | Err(_) => {}
                // The writer is gone, and with it what could be pushed.
                Ok(Err(_)) => return,
            }
        }
    }

    fn hand_out(&self, event: Stored) {
        let followers = self.all_followers();
        let Some(mailboxes) = followers.get(&event.entity) else { return };
        let push = Arc::new(push(event));
        for mailbox in mailboxes {
            mailbox.deliver(&push);
        }
    }

    async fn beat(self: Arc<Self>, heartbeat: Duration) {
        let mut ticks = interval_at(Instant::now() + heartbeat, heartbeat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rows: VecDeque<u64> = VecDeque::from([*self.pushed.borrow()]);
        loop {
            ticks.tick().await;
            let since = rows.front().copied().unwrap_or_default();
            let (heads, row) = match self.log.heads_after(since).await {
                Ok(read) => read,
                Err(error) => {
                    // Still a sign of life: the sockets are fine, only the log is not.
                    tracing::error!(%error, "no heads can be read");
                    (Vec::new(), since)
                }
            };
            self.delivered(row).await;
            let beat = Arc::new(Beat { heads, row });
            for mailbox in self.all_mailboxes().values() {
                let _ = mailbox.deliveries.send(Delivery::Beat(beat.clone()));
            }
            rows.push_back(row);
            if rows.len() > HEARTBEAT_MEMORY {
                rows.pop_front();
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
