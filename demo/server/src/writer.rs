//! The writer: one task that takes posted events and commits many of them in one transaction (G1).

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use crate::limits::{WRITER_BATCH, WRITER_QUEUE};
use crate::log::{Log, Unavailable, Write, Written};

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

/// The way to the writer's task; cheap to clone.
#[derive(Clone)]
pub struct Writer {
    queue: mpsc::Sender<Posted>,
}

impl Writer {
    /// Starts the writer. It tells `committed` the last row that is stored and may be told.
    ///
    /// `stop_before_push` is for tests of G2: after so many stored events the task stops between
    /// commit and push, for ever.
    pub fn start(log: Arc<Log>, committed: watch::Sender<u64>, stop_before_push: Option<u64>) -> Writer {
        let (queue, posts) = mpsc::channel(WRITER_QUEUE);
        tokio::spawn(run(log, posts, committed, stop_before_push));
        Writer { queue }
    }

    /// Stores a change; what comes back is on the disk.
    ///
    /// # Errors
    /// When the queue is full or the log can't be written.
    pub async fn post(&self, write: Write) -> Result<Written, Failed> {
        let (answer, written) = oneshot::channel();
        match self.queue.try_send(Posted { write, answer }) {
            Ok(()) => written.await.unwrap_or(Err(Failed::Unavailable)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(Failed::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Failed::Unavailable),
        }
    }
}

async fn run(
    log: Arc<Log>,
    mut posts: mpsc::Receiver<Posted>,
    committed: watch::Sender<u64>,
    stop_before_push: Option<u64>,
) {
    let mut stored: u64 = 0;
    let mut batch = Vec::with_capacity(WRITER_BATCH);
    while posts.recv_many(&mut batch, WRITER_BATCH).await > 0 {
        let (writes, answers): (Vec<Write>, Vec<_>) =
            batch.drain(..).map(|posted| (posted.write, posted.answer)).unzip();
        match commit(&log, &writes).await {
            Ok((written, row)) => {
                stored += written.iter().filter(|w| is_new(w)).count() as u64;
                if stop_before_push.is_some_and(|limit| stored >= limit) {
                    tracing::warn!(stored, "stopped between commit and push");
                    std::future::pending::<()>().await;
                }
                tracing::debug!(writes = writes.len(), row, "committed");
                committed.send_if_modified(|last| std::mem::replace(last, row) != row);
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

fn is_new(written: &Written) -> bool {
    matches!(written, Written::Stored { duplicate: false, .. })
}
