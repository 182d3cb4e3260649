//! The log: every event with its number, and the state that they add up to.
//!
//! ```text
//!   post ──► writer ──► log ──► hub ──► sockets
//!                        └────────────────┘  snapshots, replays, heads
//! ```
//!
//! Events lie in one order, their rows; an entity's events also lie in the order of their seq. Whatever a
//! client is told is read from here (G2, G13), each answer in one transaction (G4).
//! [`Log`] is the contract; `sqlite` keeps it in SQLite. A second store makes this alias an enum.

use std::fmt;
use std::sync::Arc;

use inorder::wire::{Data, Replayed};

use crate::topic::Change;

pub mod sqlite;

pub use sqlite::Sqlite as Log;

/// The log can't be read or written at the moment; the reason is for the operator.
#[derive(Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The log can't be used at the moment: {}", self.0)
    }
}

impl std::error::Error for Unavailable {}

/// A change that someone wants to make.
#[derive(Clone, Debug)]
pub struct Write {
    /// The entity.
    pub entity: Arc<str>,
    /// The producer's id of the change; the same id again is the same change (G3).
    pub id: Option<String>,
    /// The status from this change on.
    pub status: Option<String>,
    /// When it happened, for display.
    pub at: Data,
    /// What changed.
    pub data: Option<Data>,
    /// For a topic, what `data` says.
    pub topic: Option<Change>,
}

/// What became of a [`Write`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It has this number, now or since before.
    Stored {
        /// The epoch.
        epoch: Arc<str>,
        /// The number.
        seq: u64,
        /// The id was known: the number is from before and nothing was changed.
        duplicate: bool,
    },
    /// The entity is final (G5).
    Terminal {
        /// Its status.
        status: String,
    },
    /// The state would be too large.
    TooLarge,
}

/// An event as it lies in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its place in the log.
    pub row: u64,
    /// The entity.
    pub entity: Arc<str>,
    /// The epoch.
    pub epoch: Arc<str>,
    /// The number.
    pub seq: u64,
    /// The producer's id.
    pub id: Option<String>,
    /// The status from here on.
    pub status: Option<String>,
    /// When it happened.
    pub at: Option<Data>,
    /// What changed.
    pub data: Option<Data>,
}

impl Stored {
    /// The entry of a replay for this event.
    pub fn replayed(self) -> Replayed {
        let Stored { seq, id, status, at, data, .. } = self;
        Replayed { seq: Some(seq), prev: None, first: None, id, status, at, data }
    }
}

/// The head of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityHead {
    /// The entity.
    pub entity: Arc<str>,
    /// The epoch.
    pub epoch: Arc<str>,
    /// The highest seq.
    pub seq: u64,
}

/// The state of an entity and its position, of one transaction (G4).
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The entity.
    pub entity: Arc<str>,
    /// The epoch.
    pub epoch: Arc<str>,
    /// The position; 0 for an entity without events.
    pub seq: u64,
    /// The status.
    pub status: Option<String>,
    /// When the last change happened.
    pub at: Option<Data>,
    /// The state; `null` for an entity without events, `[]` for such a topic.
    pub data: Data,
    /// The members, if it is a topic.
    pub members: Vec<Arc<str>>,
    /// The log's last row at that moment.
    pub row: u64,
}

/// What can be replayed of an entity.
#[derive(Clone, Debug, PartialEq)]
pub enum Page {
    /// Contiguous events from the number that was asked for.
    Events {
        /// The events; fewer than wanted when the page is full.
        events: Vec<Stored>,
        /// The head at that moment.
        head: u64,
        /// Nothing that was wanted is left after these.
        ended: bool,
    },
    /// The first number wanted was trimmed (G6).
    Gone {
        /// The lowest number that is left; head + 1 if none.
        oldest: u64,
        /// The head at that moment.
        head: u64,
    },
    /// The number before the first wanted is above the head.
    Ahead {
        /// The head at that moment.
        head: u64,
    },
    /// The numbers are of another epoch than the log's.
    OtherEpoch,
}

/// What is needed to resume a topic, of one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicRead {
    /// The topic's own state.
    pub state: State,
    /// The lowest seq of the topic that is left.
    pub oldest: u64,
    /// For each member of [`State::members`]: the topic's seq at which it joined.
    pub joined: Vec<u64>,
    /// Members with events after the cursor, and the lowest seq of these events; `None` when some of them
    /// were trimmed.
    pub changed: Vec<(Arc<str>, Option<u64>)>,
}
