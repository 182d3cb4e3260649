//! The log: every event with its number, and the state that they add up to.
//!
//! ```text
//!   post ──► writer ──► log ──► hub ──► sockets
//!                        └────────────────┘  snapshots, replays, heads
//! ```
//!
//! Events lie in partitions, each entity's in one, and in a partition in one order, their rows; an entity's
//! events also lie in the order of their seq. Whatever a client is told is read from here (G2, G13), each
//! answer in one transaction (G4).
//! [`Log`] is the contract; `sqlite` keeps it in SQLite for one gateway, `postgres` in PostgreSQL for several.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use inorder::wire::{Data, Replayed};
use rand::{Rng, SeedableRng};
use tokio::sync::watch;

use crate::model::Models;
use crate::rows::Rows;
use crate::topic::Change;

mod line;
mod postgres;
mod sqlite;

use postgres::Postgres;
use sqlite::Sqlite;

/// Where the log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In memory, gone with the process.
    Memory,
    /// In a SQLite file, which is made if there is none.
    File(PathBuf),
    /// In the PostgreSQL database of this URL, where other gateways may be too.
    Postgres(String),
}

/// The log, in one of its stores.
pub enum Log {
    /// One gateway's.
    Sqlite(Sqlite),
    /// Shared by gateways (G11).
    Postgres(Postgres),
}

macro_rules! in_either {
    ($log:expr, $store:ident => $call:expr) => {
        match $log {
            Log::Sqlite($store) => $call,
            Log::Postgres($store) => $call,
        }
    };
}

impl Log {
    /// Opens the log, making it if there is none, and settles its epoch (G9). `wake` is told when there may be new rows
    /// that others committed.
    ///
    /// # Errors
    /// When it can't be used, or is another than was asked for.
    pub async fn open(opening: Opening<'_>, wake: Option<watch::Sender<u64>>) -> Result<Log, NotOpened> {
        let file = match opening.place {
            Place::Postgres(url) => return Postgres::open(url, &opening, wake).await.map(Log::Postgres),
            Place::File(path) => Some(path.as_path()),
            Place::Memory => None,
        };
        if let Some(asked) = opening.partitions.filter(|asked| *asked != 1) {
            return Err(NotOpened::Partitions { asked, has: 1 });
        }
        Ok(Log::Sqlite(Sqlite::open(file, &opening).await?))
    }

    /// How many partitions it has.
    pub fn partitions(&self) -> usize {
        match self {
            Log::Sqlite(_) => 1,
            Log::Postgres(store) => store.partitions(),
        }
    }

    /// Whether other gateways may write to it, and renew its epoch under open sockets.
    pub fn is_shared(&self) -> bool {
        matches!(self, Log::Postgres(_))
    }

    /// The epoch of the log.
    pub fn epoch(&self) -> Arc<str> {
        in_either!(self, store => store.epoch())
    }

    /// The rules of the models.
    pub fn models(&self) -> &Models {
        in_either!(self, store => store.models())
    }

    /// Stores changes of one partition's entities, all in one transaction, each with the next number of its entity (G1),
    /// and returns what became of them and the partition's last row, the others at 0. Those of different partitions
    /// are stored at the same time.
    ///
    /// What comes back is committed, but [`Log::note`] must follow before anyone is told.
    ///
    /// # Errors
    /// When nothing was stored, or it is not known.
    pub async fn commit(&self, partition: usize, writes: &[Write]) -> Result<(Vec<Written>, Rows), Unavailable> {
        match self {
            Log::Sqlite(store) => store.commit(writes).await,
            Log::Postgres(store) => store.commit(partition, writes).await,
        }
    }

    /// Notes in the mark how far the log has come (G9); to be called before anyone is told of it.
    ///
    /// # Errors
    /// When it can't be noted.
    pub fn note(&self, rows: &Rows) -> Result<(), Unavailable> {
        in_either!(self, store => store.note(rows))
    }

    /// Trims every entity's events but the last `retain`.
    ///
    /// # Errors
    /// When nothing was trimmed.
    pub async fn trim(&self, retain: u64) -> Result<(), Unavailable> {
        in_either!(self, store => store.trim(retain).await)
    }

    /// Puts the log back, as a restored backup does: each entity that is not final loses its last changes, and the
    /// epoch is new (G9). To be called by whoever calls [`Log::commit`], and like there [`Log::note`] must follow.
    ///
    /// # Errors
    /// When the log stays as it was.
    pub async fn restore(&self, events: u64) -> Result<(Arc<str>, Rows), Unavailable> {
        in_either!(self, store => store.restore(events).await)
    }

    /// The first events after these rows: those of a partition in the order of rows, and one that was stored before
    /// another was even begun before it, whatever their partitions.
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn after(&self, after: &Rows, limit: usize) -> Result<Tail, Unavailable> {
        in_either!(self, store => store.after(after, limit).await)
    }

    /// The log's last rows.
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn last_rows(&self) -> Result<Rows, Unavailable> {
        in_either!(self, store => store.last_rows().await)
    }

    /// The heads of entities, and the log's last rows at that moment.
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn heads(&self, names: &[Arc<str>]) -> Result<(Vec<EntityHead>, Rows), Unavailable> {
        in_either!(self, store => store.heads(names).await)
    }

    /// The heads of all entities that changed after these rows, and the log's last rows at that moment.
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn heads_after(&self, after: &Rows) -> Result<(Vec<EntityHead>, Rows), Unavailable> {
        in_either!(self, store => store.heads_after(after).await)
    }

    /// The states of entities, all of one moment (G4).
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn states(&self, names: &[Arc<str>]) -> Result<Vec<State>, Unavailable> {
        in_either!(self, store => store.states(names).await)
    }

    /// The names of entities in order, after a name.
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn names(&self, after: &str, limit: usize) -> Result<Vec<Arc<str>>, Unavailable> {
        in_either!(self, store => store.names(after, limit).await)
    }

    /// A page of an entity's events from `from` on, up to `to` or the head.
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn page(
        &self,
        entity: &str,
        epoch: Option<&str>,
        from: u64,
        to: Option<u64>,
        limit: usize,
    ) -> Result<Page, Unavailable> {
        in_either!(self, store => store.page(entity, epoch, from, to, limit).await)
    }

    /// A topic, its members, and which of them changed after these rows.
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn topic(&self, topic: &Arc<str>, after: Option<&Rows>) -> Result<TopicRead, Unavailable> {
        in_either!(self, store => store.topic(topic, after).await)
    }

    /// Closes the log; what was committed is on the disk already.
    pub async fn close(&self) {
        in_either!(self, store => store.close().await);
    }
}

/// How a log is opened.
pub struct Opening<'a> {
    /// Where it is kept.
    pub place: &'a Place,
    /// How many partitions it gets or has; `None` takes what there is.
    pub partitions: Option<usize>,
    /// The file of its mark.
    pub mark: Option<&'a Path>,
    /// The rules of the models.
    pub models: Models,
    /// Events kept per entity.
    pub retain: Option<u64>,
    /// Renew the epoch in any case.
    pub new_epoch: bool,
}

/// Why a log is not opened.
#[derive(Debug)]
pub enum NotOpened {
    /// It can't be used.
    Unavailable(Unavailable),
    /// It has another number of partitions than was asked for.
    Partitions {
        /// What was asked for.
        asked: usize,
        /// What it has.
        has: usize,
    },
    /// Its tables are those of another version.
    OtherTables,
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotOpened::Unavailable(error) => error.fmt(f),
            NotOpened::Partitions { asked, has } => write!(
                f,
                "the log has {has} partitions and --partitions asks for {asked}; leave it out, or name another database"
            ),
            NotOpened::OtherTables => write!(
                f,
                "the tables are those of an earlier version, without partitions; name another database or schema"
            ),
        }
    }
}

impl std::error::Error for NotOpened {}

impl From<Unavailable> for NotOpened {
    fn from(error: Unavailable) -> Self {
        NotOpened::Unavailable(error)
    }
}

impl From<sqlx::Error> for NotOpened {
    fn from(error: sqlx::Error) -> Self {
        NotOpened::Unavailable(error.into())
    }
}

/// The log can't be read or written at the moment; the reason is for the operator.
#[derive(Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The log can't be used at the moment: {}", self.0)
    }
}

impl std::error::Error for Unavailable {}

impl From<sqlx::Error> for Unavailable {
    fn from(error: sqlx::Error) -> Self {
        Unavailable(error.to_string())
    }
}

impl From<std::io::Error> for Unavailable {
    fn from(error: std::io::Error) -> Self {
        Unavailable(error.to_string())
    }
}

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
    /// The partition that it lies in, counted from 0.
    pub partition: usize,
    /// Its place there.
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

/// The end of the log, of one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    /// As many events as wanted, or all up to `rows`.
    pub events: Vec<Stored>,
    /// The epoch.
    pub epoch: Arc<str>,
    /// The log's last rows.
    pub rows: Rows,
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
    /// The log's last rows at that moment.
    pub rows: Rows,
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

impl Page {
    /// The last number that is wanted and there; or the answer, when there is no event to read.
    fn last_of(from: u64, to: Option<u64>, head: u64, oldest: u64) -> Result<u64, Page> {
        let last = to.map_or(head, |to| to.min(head));
        if from > head + 1 {
            Err(Page::Ahead { head })
        } else if from > last {
            Err(Page::Events { events: Vec::new(), head, ended: true })
        } else if from < oldest {
            Err(Page::Gone { oldest, head })
        } else {
            Ok(last)
        }
    }

    /// Events that were read, of those up to `last`.
    fn read(events: Vec<Stored>, head: u64, last: u64) -> Page {
        let ended = events.last().is_none_or(|event| event.seq >= last);
        Page::Events { events, head, ended }
    }
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

type Sql<T> = Result<T, sqlx::Error>;

/// Ten letters and digits from the system's randomness: short, since it is in every frame, and no two alike.
fn fresh_epoch() -> Arc<str> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut rng = rand::rngs::StdRng::from_os_rng();
    let letters = (0..10).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())]));
    letters.collect::<String>().into()
}

fn decode(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> sqlx::Error {
    sqlx::Error::Decode(error.into())
}

fn json(text: Option<String>) -> Sql<Option<Data>> {
    text.map(Data::from_text).transpose().map_err(decode)
}

fn unsigned(number: i64) -> Sql<u64> {
    u64::try_from(number).map_err(decode)
}

/// Numbers asked for by clients are below 2^53, rows are counted from 1: all fit.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
