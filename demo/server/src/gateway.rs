//! What all sockets, posts and workloads of one gateway share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use inorder::wire::Data;
use tokio::sync::watch;

use crate::fault::Faults;
use crate::hub::Hub;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::origin::Origins;
use crate::token::Tokens;
use crate::writer::Writer;

/// One gateway.
pub struct Gateway {
    /// The log.
    pub log: Arc<Log>,
    /// The way to change it.
    pub writer: Writer,
    /// The way from it to the sockets.
    pub hub: Arc<Hub>,
    /// Who may do what.
    pub tokens: Tokens,
    /// Which pages may come.
    pub origins: Origins,
    /// The time between two heartbeats.
    pub heartbeat: Duration,
    /// Bytes that may wait for one socket (G8).
    pub max_queued: usize,
    /// Faults on purpose, if they were asked for.
    pub faults: Option<Arc<Faults>>,
    /// Becomes true when the gateway stops.
    pub stopping: watch::Receiver<bool>,
    /// Told to stop: nobody new should be sent here, though all is still served.
    pub draining: AtomicBool,
    /// What it counts.
    pub metrics: Arc<Metrics>,
}

/// Now, as the `at` of events that bring none: milliseconds since 1970.
pub fn now() -> Data {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Data::from_value(&u64::try_from(now.as_millis()).unwrap_or_default()).unwrap_or_else(|_| Data::null())
}
