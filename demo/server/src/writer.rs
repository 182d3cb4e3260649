//! The writer: a task per partition that takes posted events and commits many of them in one transaction (G1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::limits::{WRITER_BATCH, WRITER_QUEUE};
use crate::log::{Log, Unavailable, Write, Written};
use crate::metrics::Metrics;
use crate::name;
use crate::rows::Rows;

/// Why a write was not even tried, or is not known to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Too many writes wait.
    Full,
    /// The log could not be written; with its id, the same write may be tried again.
    Unavailable,
}

struct Posted {
    write: Write,
    answer: oneshot::Sender<Result<Written, Failed>>,
    /// Its place among the [`WRITER_QUEUE`], given back when it is taken.
    _place: OwnedSemaphorePermit,
}

/// What the writer is asked to do, each in its turn.
enum Order {
    Post(Posted),
    /// Put the log back by so many changes, on purpose.
    Restore(u64, oneshot::Sender<Result<Arc<str>, Unavailable>>),
}

/// The way to the writer's tasks; cheap to clone.
#[derive(Clone)]
pub struct Writer {
    /// One for each partition. They are bounded together.
    queues: Arc<[mpsc::UnboundedSender<Order>]>,
    places: Arc<Semaphore>,
}

impl Writer {
    /// Starts the writer. It counts up `wake` when there is something to be told.
    ///
    /// `stop_before_push` is for tests of G2: after so many stored events its tasks stop between
    /// commit and push, for ever.
    pub fn start(
        log: Arc<Log>,
        wake: watch::Sender<u64>,
        metrics: Arc<Metrics>,
        stop_before_push: Option<u64>,
    ) -> Writer {
        let stored = Arc::new(AtomicU64::new(0));
        let start = |partition| {
            let (queue, orders) = mpsc::unbounded_channel();
            let (log, wake, metrics, stored) = (log.clone(), wake.clone(), metrics.clone(), stored.clone());
            tokio::spawn(Task { partition, log, wake, metrics, stop_before_push, stored }.run(orders));
            queue
        };
        let queues = (0..log.partitions()).map(start).collect();
        Writer { queues, places: Arc::new(Semaphore::new(WRITER_QUEUE)) }
    }

    /// Stores a change; what comes back is on the disk.
    ///
    /// # Errors
    /// When the queue is full or the log can't be written.
    pub async fn post(&self, write: Write) -> Result<Written, Failed> {
        let Ok(place) = self.places.clone().try_acquire_owned() else { return Err(Failed::Full) };
        let queue = &self.queues[name::partition(&write.entity, self.queues.len())];
        let (answer, written) = oneshot::channel();
        // A writer that is gone drops the answer, too.
        let _ = queue.send(Order::Post(Posted { write, answer, _place: place }));
        written.await.unwrap_or(Err(Failed::Unavailable))
    }

    /// Puts the log back by so many changes of each entity, under a new epoch, which comes back; a fault on purpose.
    ///
    /// Where anything is taken back there is one partition, and it takes its turn among the posts: each of them is
    /// wholly before it or wholly after it (G9).
    ///
    /// # Errors
    /// When the log stays as it was, or its mark can't be written.
    pub async fn restore(&self, events: u64) -> Result<Arc<str>, Unavailable> {
        let (answer, restored) = oneshot::channel();
        let _ = self.queues[0].send(Order::Restore(events, answer));
        restored.await.unwrap_or_else(|_| Err(Unavailable("The writer has stopped.".to_owned())))
    }
}

struct Task {
    partition: usize,
    log: Arc<Log>,
    wake: watch::Sender<u64>,
    metrics: Arc<Metrics>,
    stop_before_push: Option<u64>,
    /// By all tasks.
    stored: Arc<AtomicU64>,
}

impl Task {
    async fn run(self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut batch = Vec::with_capacity(WRITER_BATCH);
        while orders.recv_many(&mut batch, WRITER_BATCH).await > 0 {
            let mut posts = Vec::with_capacity(batch.len());
            for order in batch.drain(..) {
                match order {
                    Order::Post(posted) => posts.push(posted),
                    Order::Restore(events, answer) => {
                        self.store(std::mem::take(&mut posts)).await;
                        // Whoever asked may be gone; it is done all the same.
                        let _ = answer.send(restore(&self.log, events).await);
                        self.wake.send_modify(|times| *times += 1);
                    }
                }
            }
            self.store(posts).await;
        }
    }

    async fn store(&self, posts: Vec<Posted>) {
        if posts.is_empty() {
            return;
        }
        let (writes, answers): (Vec<Write>, Vec<_>) =
            posts.into_iter().map(|posted| (posted.write, posted.answer)).unzip();
        match self.commit(&writes).await {
            Ok((written, rows)) => {
                let new = written.iter().filter(|w| is_new(w)).count() as u64;
                let stored = self.stored.fetch_add(new, Ordering::Relaxed) + new;
                if self.stop_before_push.is_some_and(|limit| stored >= limit) {
                    tracing::warn!(stored, "stopped between commit and push");
                    std::future::pending::<()>().await;
                }
                tracing::debug!(writes = writes.len(), partition = self.partition, ?rows, "committed");
                if new > 0 {
                    self.metrics.committed(new, rows);
                    self.wake.send_modify(|times| *times += 1);
                }
                for (answer, written) in answers.into_iter().zip(written) {
                    // A producer that went away gets its number when it posts the same id again.
                    let _ = answer.send(Ok(written));
                }
            }
            Err(error) => {
                tracing::error!(%error, writes = writes.len(), "nothing was stored");
                for answer in answers {
                    let _ = answer.send(Err(Failed::Unavailable));
                }
            }
        }
    }

    async fn commit(&self, writes: &[Write]) -> Result<(Vec<Written>, Rows), Unavailable> {
        let (written, rows) = self.log.commit(self.partition, writes).await?;
        if written.iter().any(is_new) {
            tokio::task::block_in_place(|| self.log.note(&rows))?;
        }
        Ok((written, rows))
    }
}

async fn restore(log: &Log, events: u64) -> Result<Arc<str>, Unavailable> {
    let (epoch, rows) = log.restore(events).await?;
    tokio::task::block_in_place(|| log.note(&rows))?;
    Ok(epoch)
}

fn is_new(written: &Written) -> bool {
    matches!(written, Written::Stored { duplicate: false, .. })
}
