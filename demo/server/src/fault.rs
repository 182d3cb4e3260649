//! Faults on purpose: what a network, a broker and a careless operator do, between the log and each socket.
//!
//! Only there with `--faults`. What is lost here is lost before the frame is numbered (`n`), as between a log
//! and a gateway; a TCP connection itself loses nothing.
//!
//! A socket that was opened with `/ws?faults=KEY` has the settings of that key once there are some, so that
//! each page can break its own wire. All chances are drawn from one seed, socket by socket.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

pub mod control;
mod older;
mod stage;

pub use older::older;
pub use stage::{Out, Stage};

/// Keys with settings of their own; a demo has a few pages.
const MAX_KEYS: usize = 1_000;

/// Actions that a socket may be late to see.
const ACTIONS: usize = 64;

/// The chances, each from 0 to 1 per pushed frame unless it says otherwise, and how long things take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// Draws all chances; used by sockets that are opened after it was set.
    pub seed: u64,
    /// An event or a pushed snapshot is not sent.
    pub drop: f64,
    /// It is sent again a little later.
    pub duplicate: f64,
    /// It is sent after some that follow it.
    pub reorder: f64,
    /// The whole wire stalls for up to `delayMs`; nothing overtakes.
    pub delay: f64,
    /// An older state: an answer to a snapshot request is replaced by it, an event is followed by it.
    pub stale_snapshot: f64,
    /// The connection is cut, without a close frame.
    pub cut: f64,
    /// Per connection: it is accepted, then nothing is ever said.
    pub half_open: f64,
    /// Per replay, that of a resume too: it is answered with an error.
    pub refuse_replay: f64,
    /// The push dies between commit and push for `crashMs`; then it reads the log again and sends what was due.
    pub crash: f64,
    /// The longest stall, in milliseconds.
    pub delay_ms: u64,
    /// How long a crashed push is away, in milliseconds.
    pub crash_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            seed: 1,
            drop: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            delay: 0.0,
            stale_snapshot: 0.0,
            cut: 0.0,
            half_open: 0.0,
            refuse_replay: 0.0,
            crash: 0.0,
            delay_ms: 500,
            crash_ms: 2_000,
        }
    }
}

impl Settings {
    /// Says what is wrong with the settings, if anything is.
    pub fn fault(&self) -> Option<&'static str> {
        let chances = [
            self.drop,
            self.duplicate,
            self.reorder,
            self.delay,
            self.stale_snapshot,
            self.cut,
            self.half_open,
            self.refuse_replay,
            self.crash,
        ];
        if !chances.iter().all(|chance| (0.0..=1.0).contains(chance)) {
            Some("A chance is a number from 0 to 1.")
        } else if self.delay_ms > 60_000 || self.crash_ms > 60_000 {
            Some("A fault lasts at most 60,000 ms.")
        } else {
            None
        }
    }
}

/// Something done once, to all sockets or to those of a key.
#[derive(Clone, Debug)]
pub struct Action {
    /// Which sockets; `None` is all.
    pub key: Option<String>,
    /// What.
    pub deed: Deed,
}

/// What can be done once to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Cut the connection.
    Cut,
    /// Never say anything again.
    HalfOpen,
    /// Let the push crash; milliseconds, or as the settings say.
    Crash(Option<u64>),
    /// Push an older state of everything followed.
    StaleSnapshot,
}

/// The settings of all sockets.
pub struct Faults {
    all: Mutex<All>,
    actions: broadcast::Sender<Action>,
    opened: AtomicU64,
}

#[derive(Default)]
struct All {
    default: Settings,
    by_key: HashMap<String, Settings>,
}

impl Faults {
    /// No faults yet.
    pub fn new(seed: u64) -> Faults {
        let default = Settings { seed, ..Settings::default() };
        Faults {
            all: Mutex::new(All { default, by_key: HashMap::new() }),
            actions: broadcast::Sender::new(ACTIONS),
            opened: AtomicU64::new(0),
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings of a key, or those of all.
    pub fn settings(&self, key: Option<&str>) -> Settings {
        let all = self.all();
        key.and_then(|key| all.by_key.get(key)).unwrap_or(&all.default).clone()
    }

    /// Sets them; false when there are too many keys.
    pub fn set(&self, key: Option<&str>, settings: Settings) -> bool {
        let mut all = self.all();
        match key {
            None => all.default = settings,
            Some(key) if all.by_key.len() < MAX_KEYS || all.by_key.contains_key(key) => {
                all.by_key.insert(key.to_owned(), settings);
            }
            Some(_) => return false,
        }
        true
    }

    /// Forgets the settings of a key.
    pub fn forget(&self, key: &str) {
        self.all().by_key.remove(key);
    }

    /// Does something once.
    pub fn act(&self, action: Action) {
        // Without sockets there is nobody to do it to.
        let _ = self.actions.send(action);
    }

    /// Hears what is done from here on.
    pub fn actions(&self) -> broadcast::Receiver<Action> {
        self.actions.subscribe()
    }

    fn rng(&self, key: Option<&str>) -> StdRng {
        let seed = self.settings(key).seed;
        let ordinal = self.opened.fetch_add(1, Ordering::Relaxed);
        // Sockets of one seed must not all draw the same.
        StdRng::seed_from_u64(seed.wrapping_add(ordinal.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}
