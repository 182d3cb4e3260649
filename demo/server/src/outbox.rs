//! The frames that wait to be written to one socket, and the task that writes them.
//!
//! What waits together goes out together: one message with an array of frames, each with its `n`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::SinkExt;
use futures_util::stream::SplitSink;
use inorder::wire::ServerFrame;
use tokio::sync::Notify;

use crate::limits::BATCH_BYTES;

/// Writes a frame as JSON text.
pub fn text(frame: &ServerFrame) -> String {
    // Frames hold strings, numbers and checked JSON; none of it can fail to be written.
    serde_json::to_string(frame).unwrap_or_else(|_| r#"{"type":"discontinuity","reason":"unwritable"}"#.to_owned())
}

#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<Arc<str>>,
    ping: bool,
    close: Option<(u16, &'static str)>,
}

enum Step {
    Write(String, usize),
    Ping,
    Close(u16, &'static str),
    Wait,
}

/// The frames that wait for one socket.
#[derive(Debug)]
pub struct Outbox {
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// Told whenever something was written.
    pub written: Notify,
    queued: Arc<AtomicUsize>,
}

impl Outbox {
    /// Makes an outbox that counts its bytes in `queued`.
    pub fn new(queued: Arc<AtomicUsize>) -> Arc<Outbox> {
        Arc::new(Outbox { waiting: Mutex::default(), wake: Notify::new(), written: Notify::new(), queued })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the bytes of a frame that is going to be queued, and returns those that wait with it.
    pub fn count(&self, bytes: usize) -> usize {
        self.queued.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Queues the text of a frame whose bytes are counted.
    pub fn push(&self, text: Arc<str>) {
        self.waiting().frames.push_back(text);
        self.wake.notify_one();
    }

    /// Takes back the bytes of a frame that was counted and is not sent.
    pub fn discount(&self, bytes: usize) {
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The bytes that wait for this socket.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Asks the peer for a sign of life.
    pub fn ping(&self) {
        self.waiting().ping = true;
        self.wake.notify_one();
    }

    /// Closes once everything that waits is written.
    pub fn close(&self, code: u16, reason: &'static str) {
        self.waiting().close.get_or_insert((code, reason));
        self.wake.notify_one();
    }

    /// Closes without writing what waits: the peer resumes from its position (G8).
    pub fn abandon(&self, code: u16, reason: &'static str) {
        self.waiting().frames.clear();
        self.close(code, reason);
    }

    fn step(&self, n: &mut u64) -> Step {
        let mut waiting = self.waiting();
        if waiting.frames.is_empty() {
            if let Some((code, reason)) = waiting.close {
                return Step::Close(code, reason);
            }
            return if std::mem::take(&mut waiting.ping) { Step::Ping } else { Step::Wait };
        }
        let mut out = String::from("[");
        let mut bytes = 0;
        let mut count = 0;
        while let Some(frame) = waiting.frames.front() {
            if count > 0 && bytes + frame.len() > BATCH_BYTES {
                break;
            }
            if count > 0 {
                out.push(',');
            }
            *n += 1;
            out.push_str(frame.strip_suffix('}').unwrap_or(frame));
            out.push_str(",\"n\":");
            out.push_str(&n.to_string());
            out.push('}');
            bytes += frame.len();
            count += 1;
            waiting.frames.pop_front();
        }
        if count == 1 {
            out.remove(0);
        } else {
            out.push(']');
        }
        Step::Write(out, bytes)
    }

    /// Writes what comes until the socket is closed or broken.
    pub async fn run(self: Arc<Self>, mut sink: SplitSink<WebSocket, Message>) {
        let mut n = 0;
        loop {
            let sent = match self.step(&mut n) {
                Step::Write(text, bytes) => {
                    let sent = sink.send(Message::Text(text.into())).await;
                    self.discount(bytes);
                    self.written.notify_one();
                    sent
                }
                Step::Ping => sink.send(Message::Ping(bytes::Bytes::new())).await,
                Step::Close(code, reason) => {
                    let frame = CloseFrame { code, reason: reason.into() };
                    let _ = sink.send(Message::Close(Some(frame))).await;
                    return;
                }
                Step::Wait => {
                    self.wake.notified().await;
                    Ok(())
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }
}
