//! What the gateway counts, as `GET /metrics` tells it in Prometheus' text format.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::gateway::Gateway;
use crate::rows::Rows;

/// Upper bounds of the histogram from commit to push, in seconds.
const BOUNDS: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

/// Commits that wait for their push and are timed; when there are more, the push hangs, and the lag in rows says so.
const TIMED: usize = 1_000;

/// Bytes of a page of memory, as Linux counts it in `statm`.
const PAGE: u64 = 4_096;

/// The counters of one gateway. All start at 0 with the process.
#[derive(Debug, Default)]
pub struct Metrics {
    events: AtomicU64,
    batches: AtomicU64,
    sent: AtomicU64,
    replays: AtomicU64,
    replayed: AtomicU64,
    snapshots: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
    closed: Mutex<BTreeMap<u16, u64>>,
    lag: Mutex<Lag>,
}

/// The time from commit to push.
#[derive(Debug, Default)]
struct Lag {
    waiting: VecDeque<(Rows, Instant)>,
    /// Pushes per bound of [`BOUNDS`], those above it not counted.
    within: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    /// A batch was committed by this gateway.
    pub fn committed(&self, events: u64, rows: Rows) {
        self.events.fetch_add(events, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        let mut lag = lock(&self.lag);
        if lag.waiting.len() < TIMED {
            lag.waiting.push_back((rows, Instant::now()));
        }
    }

    /// Everything up to these rows was handed out.
    pub fn pushed(&self, rows: &Rows) {
        let mut lag = lock(&self.lag);
        while let Some((_, since)) = lag.waiting.pop_front_if(|(committed, _)| rows.covers(committed)) {
            let seconds = since.elapsed().as_secs_f64();
            lag.count += 1;
            lag.seconds += seconds;
            for (bound, count) in BOUNDS.iter().zip(&mut lag.within) {
                *count += u64::from(seconds <= *bound);
            }
        }
    }

    /// An event was handed to so many sockets.
    pub fn sent(&self, sockets: usize) {
        self.sent.fetch_add(sockets as u64, Ordering::Relaxed);
    }

    /// A page of a replay was sent.
    pub fn replayed(&self, events: usize) {
        self.replays.fetch_add(1, Ordering::Relaxed);
        self.replayed.fetch_add(events as u64, Ordering::Relaxed);
    }

    /// A snapshot was sent.
    pub fn snapshot(&self) {
        self.snapshots.fetch_add(1, Ordering::Relaxed);
    }

    /// Something was refused with this code.
    pub fn refused(&self, code: &'static str) {
        *lock(&self.refused).entry(code).or_default() += 1;
    }

    /// A socket ended with this close code.
    pub fn closed(&self, code: u16) {
        *lock(&self.closed).entry(code).or_default() += 1;
    }
}

/// Everything that is counted or can be seen now.
pub async fn text(gateway: &Gateway) -> String {
    let Metrics { events, batches, sent, replays, replayed, snapshots, refused, closed, lag } = &*gateway.metrics;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let last = gateway.log.last_rows().await;
    let mut page = Page::default();
    page.one("inorder_up", "gauge", "1 while the log can be read.", u64::from(last.is_ok()));
    page.one("inorder_sockets", "gauge", "Open sockets.", gateway.hub.sockets());
    let followed = "Entities followed, counted once per socket, members of topics included.";
    page.one("inorder_subscriptions", "gauge", followed, gateway.hub.subscriptions());
    page.one("inorder_events_total", "counter", "Events that this gateway stored.", count(events));
    page.one("inorder_batches_total", "counter", "Transactions that stored them.", count(batches));
    page.one("inorder_sent_total", "counter", "Events handed to sockets, once per socket.", count(sent));
    page.one("inorder_replays_total", "counter", "Pages of replays sent.", count(replays));
    page.one("inorder_replayed_total", "counter", "Events in these pages.", count(replayed));
    page.one("inorder_snapshots_total", "counter", "Snapshots sent.", count(snapshots));
    if let Ok(last) = last {
        page.one("inorder_row", "gauge", "The log's last row, its partitions added up.", last.total());
        let behind = gateway.hub.pushed().behind(&last);
        page.one("inorder_lag_rows", "gauge", "Rows of the log that are not handed out yet.", behind);
    }
    page.head("inorder_lag_seconds", "histogram", "From the commit of this gateway's batches to their hand-out.");
    {
        let lag = lock(lag);
        for (bound, within) in BOUNDS.iter().zip(&lag.within) {
            page.line("inorder_lag_seconds_bucket", &format!("le=\"{bound}\""), within);
        }
        page.line("inorder_lag_seconds_bucket", "le=\"+Inf\"", lag.count);
        page.line("inorder_lag_seconds_sum", "", lag.seconds);
        page.line("inorder_lag_seconds_count", "", lag.count);
    }
    page.head("inorder_refused_total", "counter", "What was refused on sockets and over HTTP, by its code.");
    for (code, times) in &*lock(refused) {
        page.line("inorder_refused_total", &format!("code=\"{code}\""), times);
    }
    page.head("inorder_closed_total", "counter", "Sockets that ended, by their close code.");
    for (code, times) in &*lock(closed) {
        page.line("inorder_closed_total", &format!("code=\"{code}\""), times);
    }
    if let Some(bytes) = resident() {
        page.one("process_resident_memory_bytes", "gauge", "Memory of the process.", bytes);
    }
    page.0
}

fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    statm.split(' ').nth(1)?.parse::<u64>().ok().map(|pages| pages * PAGE)
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string can't fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = if labels.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{labels}}} {value}")
        };
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(name, "", value);
    }
}
