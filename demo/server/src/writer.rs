//! The writer: one task that takes posted events and commits many of them in one transaction (G1).

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use crate::limits::{WRITER_BATCH, WRITER_QUEUE};
use crate::log::{Log, Unavailable, Write, Written};
use crate::metrics::Metrics;

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
}

/// What the writer is asked to do, each in its turn.
enum Order {
    Post(Posted),
    /// Put the log back by so many changes, on purpose.
    Restore(u64, oneshot::Sender<Result<Arc<str>, Unavailable>>),
}

/// The way to the writer's task; cheap to clone.
#[derive(Clone)]
pub struct Writer {
    queue: mpsc::Sender<Order>,
}

impl Writer {
    /// Starts the writer. It counts up `wake` when there is something to be told.
    ///
    /// `stop_before_push` is for tests of G2: after so many stored events the task stops between
    /// commit and push, for ever.
    pub fn start(
        log: Arc<Log>,
        wake: watch::Sender<u64>,
        metrics: Arc<Metrics>,
        stop_before_push: Option<u64>,
    ) -> Writer {
        let (queue, orders) = mpsc::channel(WRITER_QUEUE);
        tokio::spawn(Task { log, wake, metrics, stop_before_push, stored: 0 }.run(orders));
        Writer { queue }
    }

    /// Stores a change; what comes back is on the disk.
    ///
    /// # Errors
    /// When the queue is full or the log can't be written.
    pub async fn post(&self, write: Write) -> Result<Written, Failed> {
        let (answer, written) = oneshot::channel();
        match self.queue.try_send(Order::Post(Posted { write, answer })) {
            Ok(()) => written.await.unwrap_or(Err(Failed::Unavailable)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(Failed::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Failed::Unavailable),
        }
    }

    /// Puts the log back by so many changes of each entity, under a new epoch, which comes back; a fault on purpose.
    ///
    /// It takes its turn among the posts, so that each of them is wholly before it or wholly after it (G9).
    ///
    /// # Errors
    /// When the log stays as it was, or its mark can't be written.
    pub async fn restore(&self, events: u64) -> Result<Arc<str>, Unavailable> {
        let (answer, restored) = oneshot::channel();
        // A writer that is gone drops the answer, too.
        let _ = self.queue.send(Order::Restore(events, answer)).await;
        restored.await.unwrap_or_else(|_| Err(Unavailable("The writer has stopped.".to_owned())))
    }
}

struct Task {
    log: Arc<Log>,
    wake: watch::Sender<u64>,
    metrics: Arc<Metrics>,
    stop_before_push: Option<u64>,
    stored: u64,
}

impl Task {
    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
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

    async fn store(&mut self, posts: Vec<Posted>) {
        if posts.is_empty() {
            return;
        }
        let (writes, answers): (Vec<Write>, Vec<_>) =
            posts.into_iter().map(|posted| (posted.write, posted.answer)).unzip();
        match commit(&self.log, &writes).await {
            Ok((written, row)) => {
                let new = written.iter().filter(|w| is_new(w)).count() as u64;
                self.stored += new;
                if self.stop_before_push.is_some_and(|limit| self.stored >= limit) {
                    tracing::warn!(stored = self.stored, "stopped between commit and push");
                    std::future::pending::<()>().await;
                }
                tracing::debug!(writes = writes.len(), row, "committed");
                if new > 0 {
                    self.metrics.committed(new, row);
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
}

async fn commit(log: &Log, writes: &[Write]) -> Result<(Vec<Written>, u64), Unavailable> {
    let (written, row) = log.commit(writes).await?;
    if written.iter().any(is_new) {
        tokio::task::block_in_place(|| log.note(row))?;
    }
    Ok((written, row))
}

async fn restore(log: &Log, events: u64) -> Result<Arc<str>, Unavailable> {
    let (epoch, row) = log.restore(events).await?;
    tokio::task::block_in_place(|| log.note(row))?;
    Ok(epoch)
}

fn is_new(written: &Written) -> bool {
    matches!(written, Written::Stored { duplicate: false, .. })
}
