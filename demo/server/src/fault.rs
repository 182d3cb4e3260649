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

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::time::Instant;

pub mod control;
mod older;
mod stage;

pub use older::older;
pub use stage::{Out, Stage};

/// Keys with settings of their own; a demo has a few pages.
const MAX_KEYS: usize = 1_000;

/// The longest delay, in milliseconds.
const MAX_DELAY_MS: u64 = 60_000;

/// How long a crashed gateway is away.
pub const AWAY: Duration = Duration::from_millis(1_500);

/// Actions that a socket may be late to see.
const ACTIONS: usize = 64;

/// What goes wrong, and how often. All chances are from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Draws all chances; used by sockets that are opened after it was set.
    pub seed: u64,
    /// The chance of an event or a pushed snapshot not to be sent.
    pub drop: f64,
    /// The chance of it to be sent again later, as brokers do.
    pub duplicate: f64,
    /// The chance of it to be sent after some that follow it.
    pub reorder: f64,
    /// The longest that any frame waits, in milliseconds; nothing overtakes.
    pub delay: u64,
    /// The chance of an older state: an answer to a snapshot request is replaced by it, an event is followed by it.
    pub stale_snapshot: f64,
    /// The chance of a replay, that of a resume too, to be answered with an error.
    pub refuse_replay: f64,
    /// The chance of a socket, per second, to be cut without a close frame.
    pub cut: f64,
    /// The chance of a socket, at its opening and per second, to say nothing any more.
    pub half_open: f64,
    /// The chance of a socket, per second, that its gateway crashes between commit and push.
    pub crash: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            seed: 1,
            drop: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            delay: 0,
            stale_snapshot: 0.0,
            refuse_replay: 0.0,
            cut: 0.0,
            half_open: 0.0,
            crash: 0.0,
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
            self.stale_snapshot,
            self.refuse_replay,
            self.cut,
            self.half_open,
            self.crash,
        ];
        if !chances.iter().all(|chance| (0.0..=1.0).contains(chance)) {
            Some("A chance is a number from 0 to 1.")
        } else if self.delay > MAX_DELAY_MS {
            Some("A frame is delayed by at most 60,000 ms.")
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
    /// Die between the next commit and its push.
    Crash,
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
    /// Until when nobody can connect: all, or those of a key.
    away: Vec<(Option<String>, Instant)>,
}

impl Faults {
    /// No faults yet.
    pub fn new(seed: u64) -> Faults {
        let default = Settings { seed, ..Settings::default() };
        Faults {
            all: Mutex::new(All { default, ..All::default() }),
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

    /// Lets nobody connect for some time: all, or those of a key.
    pub fn go_away(&self, key: Option<&str>, time: Duration) {
        let now = Instant::now();
        let mut all = self.all();
        all.away.retain(|(_, until)| *until > now);
        all.away.push((key.map(str::to_owned), now + time));
    }

    /// Whether a socket of this key can't connect now.
    pub fn is_away(&self, key: Option<&str>) -> bool {
        let now = Instant::now();
        let concerns = |of: &Option<String>| of.is_none() || of.as_deref() == key;
        self.all().away.iter().any(|(of, until)| concerns(of) && *until > now)
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
