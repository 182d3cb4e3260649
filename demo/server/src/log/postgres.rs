//! The log in PostgreSQL: many gateways on one database, any of which serves any client (G11).
//!
//! ```text
//!   lock the entities, ──► known ids, states ──► take the rows, store ──► commit ──► NOTIFY
//!   in order of names                            └─ one at a time per partition ┘
//! ```
//!
//! A batch is of one partition. Its transaction takes the rows from the partition's line last and keeps that locked
//! until it is committed. So rows are given in the order of commits: whoever sees a row of a partition sees
//! all below it, and a reader that went on from one misses nothing. A sequence would not do: a transaction with
//! a lower number may commit after one with a higher. Batches of different partitions have no lock in common.
//! NOTIFY would be one: a transaction that notifies commits alone, in all of PostgreSQL. It comes after the commit, in
//! a transaction of its own that has nothing to flush.
//!
//! Readers see all partitions at one moment, and read what is new in the order of transactions. So what was
//! answered before another change was posted is read before that, whatever their partitions: a member's last
//! change before the topic's event that removes it.
//!
//! Every answer is one statement, hence of one moment (G4), and each looks at the place of the log first:
//!
//! - `identity` names the cluster, its timeline, the database and the very table. A dump that is loaded, a
//!   recovery to a point in time and a promoted replica have another one.
//! - No partition's last row goes back while a gateway looks, nor behind the [`Mark`] of one that was away.
//!   A copy of the whole cluster's files has the same identity; this tells.
//!
//! Else the log may have gone backward, and whoever notices renews its epoch (G9) before anything is told.
//! Rows then jump by [`STRIDE`], so that none is given twice. A later epoch than the one known is
//! adopted only if the database knows the latter as one of its past.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inorder::wire::Data;
use serde_json::Value;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgListener, PgPool, PgPoolOptions, PgRow};
use sqlx::{Connection, Row};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::line::Line;
use super::{EntityHead, NotOpened, Opening, Page, Sql, State, Stored, Tail, TopicRead, Unavailable, Write, Written};
use super::{decode, fresh_epoch, int, json, unsigned};
use crate::limits::{LISTEN_RETRY, PAGE_BYTES, PARTITIONS};
use crate::mark::{Found, Mark};
use crate::model::Models;
use crate::name;
use crate::rows::{Cursor, Rows};

/// Connections that read at the same time. With one for each partition, one for what concerns all of them and the
/// listener's, seven gateways fit into PostgreSQL's hundred.
const READERS: u32 = 8;

/// How long a transaction waits for a lock, and how long it may stand idle while it holds some: a gateway
/// that hangs must not stop the others.
const BUSY_MS: &str = "5000";

/// How long a start waits for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Times that a batch is tried when PostgreSQL gives up one of two transactions that wait for each other.
const TRIES: u32 = 3;

/// Names that are remembered to have a line: some tens of megabytes at most.
const NAMES_MADE: usize = 100_000;

/// How far rows jump with a new epoch: more than any restored copy lacks.
const STRIDE: u64 = 1_000_000_000;

/// The schema of the tables, unless the URL names a `search_path`; and the channel that wakes the others.
const SCHEMA: &str = "inorder";

/// Any number: the lock under which the tables are made, once.
const MAKING: i64 = 0x696e_6f72_6465_7200;

/// The tables. An event has no epoch of its own: all that are kept are of the current one, so that
/// `UNIQUE (entity, seq)` is the stronger promise (G1) and renewing the epoch changes few lines.
///
/// The epoch stands in the partitions' lines, too: a transaction that waited for such a line looks at it again as it is
/// by then, and at no other table. Partitions are counted from 1, like what `WITH ORDINALITY` counts.
const TABLES: &str = r#"
    CREATE TABLE IF NOT EXISTS meta (
        id INT PRIMARY KEY CHECK (id = 1),
        epoch TEXT NOT NULL,
        identity TEXT NOT NULL,
        past TEXT[] NOT NULL DEFAULT '{}'
    );
    CREATE TABLE IF NOT EXISTS partition (
        id INT PRIMARY KEY,
        epoch TEXT NOT NULL,
        row BIGINT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS entity (
        name TEXT COLLATE "C" PRIMARY KEY,
        partition INT NOT NULL,
        seq BIGINT NOT NULL DEFAULT 0,
        status TEXT,
        at TEXT,
        state TEXT NOT NULL DEFAULT 'null',
        row BIGINT NOT NULL DEFAULT 0,
        oldest BIGINT NOT NULL DEFAULT 1,
        trimmed BIGINT NOT NULL DEFAULT 0
    );
    CREATE INDEX IF NOT EXISTS entity_row ON entity (partition, row);
    CREATE TABLE IF NOT EXISTS event (
        partition INT NOT NULL,
        row BIGINT NOT NULL,
        transaction BIGINT NOT NULL,
        entity TEXT COLLATE "C" NOT NULL,
        seq BIGINT NOT NULL,
        id TEXT,
        status TEXT,
        at TEXT,
        data TEXT,
        PRIMARY KEY (partition, row),
        UNIQUE (entity, seq)
    );
    CREATE TABLE IF NOT EXISTS event_id (
        entity TEXT COLLATE "C" NOT NULL,
        id TEXT COLLATE "C" NOT NULL,
        seq BIGINT NOT NULL,
        PRIMARY KEY (entity, id)
    );
    CREATE TABLE IF NOT EXISTS member (
        topic TEXT COLLATE "C" NOT NULL,
        entity TEXT COLLATE "C" NOT NULL,
        seq BIGINT NOT NULL,
        PRIMARY KEY (topic, entity)
    );
"#;

/// What the log lies in at this moment, as text.
macro_rules! identity {
    () => {
        "(SELECT concat_ws('/', c.system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8), d.oid,
          pg_relation_filenode('meta')) FROM pg_control_system() c, pg_database d WHERE d.datname = current_database())"
    };
}

/// The first three columns of every answer. `m` is the line of `meta` by its key: of a table that never changes the
/// planner does not know how many lines it has.
macro_rules! place {
    () => {
        concat!("m.epoch, ARRAY(SELECT row FROM partition ORDER BY id), m.identity = ", identity!())
    };
}

type Held = tokio::sync::Mutex<Option<PoolConnection<sqlx::Postgres>>>;

type Question<'q> = sqlx::query::Query<'q, sqlx::Postgres, PgArguments>;

/// The log, kept in PostgreSQL.
pub struct Postgres {
    writer: PgPool,
    /// The connections that batches are written on, one for each partition, kept as long as they work: a pool asks each
    /// time.
    held: Vec<Held>,
    reader: PgPool,
    /// Something was committed that others are to be told of.
    committed: Arc<Notify>,
    /// Names that have their line: they need not be made sure of again.
    made: Mutex<HashSet<Arc<str>>>,
    models: Models,
    retain: Option<u64>,
    mark: Option<Mutex<Mark>>,
    /// Where the log was found to be.
    known: Mutex<Cursor>,
}

/// What a batch adds, column by column.
#[derive(Default)]
struct Events<'a> {
    entity: Vec<&'a str>,
    seq: Vec<i64>,
    id: Vec<Option<&'a str>>,
    status: Vec<Option<&'a str>>,
    at: Vec<&'a str>,
    data: Vec<Option<&'a str>>,
}

/// What a batch does to one member of a topic.
#[derive(Default)]
struct Membership {
    left: bool,
    joined: Option<u64>,
}

type Memberships<'a> = BTreeMap<(&'a str, &'a str), Membership>;

impl Postgres {
    /// Opens the log, making its tables if there are none, and settles its epoch (G9). `wake` is told of commits of
    /// other gateways; without it only the poll of the push finds them.
    ///
    /// # Errors
    /// When the database can't be used, or its log is another than was asked for.
    pub async fn open(url: &str, opening: &Opening<'_>, wake: Option<watch::Sender<u64>>) -> Result<Self, NotOpened> {
        let mut options = PgConnectOptions::from_str(url)?.application_name("inorder-gateway").options([
            ("lock_timeout", BUSY_MS),
            ("idle_in_transaction_session_timeout", BUSY_MS),
            // What is answered must outlive a crash, whatever the server's default is.
            ("synchronous_commit", "on"),
            // Nothing here is worth compiling; where the planner expects too many rows, it would take half a second.
            ("jit", "off"),
        ]);
        if !options.get_options().is_some_and(|options| options.contains("search_path")) {
            options = options.options([("search_path", SCHEMA)]);
        }
        let reader = pool(READERS, options.clone()).await?;
        let partitions = make_tables(&reader, opening.partitions).await?;
        let writer = pool(partitions as u32 + 1, options).await?;
        let (mark, found) = match opening.mark {
            None => (None, Found::Nothing),
            Some(path) => {
                let (mark, found) = Mark::open(path).map_err(Unavailable::from)?;
                (Some(mark), found)
            }
        };
        let torn = found == Found::Unreadable;
        let noted = match found {
            Found::Noted(noted) => Some(noted),
            // A mark that is not there yet says nothing: gateways come and go.
            Found::Nothing | Found::Unreadable => None,
        };
        let known = settle(&writer, noted.as_ref(), opening.new_epoch || torn).await?;
        let log = Postgres {
            writer,
            held: (0..partitions).map(|_| Held::default()).collect(),
            reader,
            committed: Arc::default(),
            made: Mutex::default(),
            models: opening.models.clone(),
            retain: opening.retain,
            mark: mark.map(Mutex::new),
            known: Mutex::new(known.clone()),
        };
        log.note(&known.rows)?;
        let own = fresh_epoch();
        tokio::spawn(announce(log.reader.clone(), log.committed.clone(), own.clone()));
        if let Some(wake) = wake {
            tokio::spawn(listen(log.reader.clone(), wake, own));
        }
        Ok(log)
    }

    fn known(&self) -> Cursor {
        self.lock_known().clone()
    }

    fn lock_known(&self) -> MutexGuard<'_, Cursor> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`super::Log::partitions`].
    pub fn partitions(&self) -> usize {
        self.held.len()
    }

    /// The epoch of the log.
    pub fn epoch(&self) -> Arc<str> {
        self.known().epoch
    }

    /// The rules of the models.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// See [`super::Log::note`].
    pub fn note(&self, rows: &Rows) -> Result<(), Unavailable> {
        if let Some(mark) = &self.mark {
            let mut mark = mark.lock().unwrap_or_else(PoisonError::into_inner);
            let known = self.known();
            // All that is known is noted in one go; who waited meanwhile may find it done.
            if !mark.covers(&Cursor { epoch: known.epoch.clone(), rows: rows.clone() }) {
                mark.note(known)?;
            }
        }
        Ok(())
    }

    /// Whether an answer is of the log as it was known before it was asked for, or further on. If not, the epoch has to
    /// be settled first.
    fn goes_on(&self, before: &Cursor, row: &PgRow) -> Sql<bool> {
        let (found, same): (Cursor, bool) = (place(row)?, row.try_get(2)?);
        if !same || !found.covers(before) {
            return Ok(false);
        }
        let mut known = self.lock_known();
        if known.epoch == found.epoch {
            known.rows.raise_all(&found.rows);
        }
        Ok(true)
    }

    async fn settle(&self, before: &Cursor) -> Result<(), Unavailable> {
        let settled = settle(&self.writer, Some(before), false).await?;
        let mut known = self.lock_known();
        if known.epoch != settled.epoch {
            *known = settled;
        }
        Ok(())
    }

    /// Asks a question whose answer begins with the [`place`], until it is of a settled log.
    async fn ask<'q>(&self, question: impl Fn() -> Question<'q>) -> Result<Vec<PgRow>, Unavailable> {
        for tries in 0.. {
            let before = self.known();
            let rows = match question().fetch_all(&self.reader).await {
                // PostgreSQL went away since this connection was used last; a fresh one may do.
                Err(sqlx::Error::Io(_)) if tries < READERS => continue,
                rows => rows?,
            };
            let Some(first) = rows.first() else { return Err(lost()) };
            if self.goes_on(&before, first)? {
                return Ok(rows);
            }
            if tries >= READERS {
                break;
            }
            self.settle(&before).await?;
        }
        Err(lost())
    }

    /// See [`super::Log::commit`].
    pub async fn commit(&self, partition: usize, writes: &[Write]) -> Result<(Vec<Written>, Rows), Unavailable> {
        let mut held = self.held[partition].lock().await;
        for _ in 0..TRIES {
            let before = self.known();
            let connection = match &mut *held {
                Some(connection) => connection,
                none => none.insert(self.writer.acquire().await?),
            };
            match self.try_commit(connection, partition, writes, &before).await {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => {
                    self.made().clear();
                    self.settle(&before).await?;
                }
                Err(error) if is_deadlock(&error) => tracing::warn!(%error, "the batch is tried again"),
                Err(error) => {
                    *held = None;
                    return Err(error.into());
                }
            }
        }
        // Its transaction is rolled back only when it is used again, and holds locks until then.
        *held = None;
        Err(lost())
    }

    fn made(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when the log is not where it was known to be.
    async fn try_commit(
        &self,
        connection: &mut PgConnection,
        partition: usize,
        writes: &[Write],
        before: &Cursor,
    ) -> Sql<Option<(Vec<Written>, Rows)>> {
        let mut names: Vec<&str> = writes.iter().map(|write| &*write.entity).collect();
        names.sort_unstable();
        names.dedup();
        let are_made = {
            let made = self.made();
            names.iter().all(|name| made.contains(*name))
        };
        let mut tx = connection.begin().await?;
        if !are_made {
            make_lines(&mut tx, partition, &names).await?;
        }
        let mut lines = lock_lines(&mut tx, &names).await?;
        if lines.len() < names.len() {
            return Ok(None);
        }
        let mut ids = known_ids(&mut tx, writes).await?;
        let mut written = Vec::with_capacity(writes.len());
        let mut events = Events::default();
        let mut memberships = Memberships::new();
        for write in writes {
            let entity = &*write.entity;
            if let Some(id) = &write.id
                && let Some(seq) = ids.get(&(entity.to_owned(), id.clone()))
            {
                written.push(Written::Stored { epoch: before.epoch.clone(), seq: *seq, duplicate: true });
                continue;
            }
            let line = lines.entry(entity).or_default();
            if let Err(refusal) = line.take(self.models.of(entity), write).map_err(decode)? {
                written.push(refusal);
                continue;
            }
            events.push(write, line.seq);
            // For now its place in the batch; the rows are taken last.
            line.row = events.seq.len() as u64;
            if let Some(id) = &write.id {
                ids.insert((entity.to_owned(), id.clone()), line.seq);
            }
            if let Some(change) = &write.topic {
                for member in &change.remove {
                    *memberships.entry((entity, member)).or_default() = Membership { left: true, joined: None };
                }
                for member in &change.add {
                    memberships.entry((entity, member)).or_default().joined.get_or_insert(line.seq);
                }
            }
            written.push(Written::Stored { epoch: before.epoch.clone(), seq: line.seq, duplicate: false });
        }
        store_members(&mut tx, &memberships).await?;
        lines.retain(|_, line| line.changed);
        let Some(row) = store(&mut tx, partition, before, &events, &lines).await? else { return Ok(None) };
        let kept = lines.iter().filter_map(|(name, line)| Some((*name, line, line.kept_from(self.retain)?)));
        trim(&mut tx, kept).await?;
        tx.commit().await?;
        if !lines.is_empty() {
            self.committed.notify_one();
        }
        if !are_made {
            let mut made = self.made();
            if made.len() + names.len() > NAMES_MADE {
                made.clear();
            }
            made.extend(writes.iter().map(|write| write.entity.clone()));
        }
        let mut rows = Rows::before_all(self.partitions());
        rows.raise(partition, row);
        let mut known = self.lock_known();
        if known.epoch == before.epoch {
            known.rows.raise_all(&rows);
        }
        Ok(Some((written, rows)))
    }

    /// See [`super::Log::trim`].
    pub async fn trim(&self, retain: u64) -> Result<(), Unavailable> {
        let mut connection = self.writer.acquire().await?;
        let mut tx = connection.begin().await?;
        let names = sqlx::query("SELECT name FROM entity ORDER BY name").fetch_all(&mut *tx).await?;
        let names = names.iter().map(|row| row.try_get(0)).collect::<Sql<Vec<&str>>>()?;
        let lines = lock_lines(&mut tx, &names).await?;
        let kept = lines.iter().filter_map(|(name, line)| Some((*name, line, line.kept_from(Some(retain))?)));
        trim(&mut tx, kept).await?;
        tx.commit().await?;
        Ok(())
    }

    /// See [`super::Log::restore`]. Here only the epoch can be renewed: others would not know what was taken back.
    pub async fn restore(&self, events: u64) -> Result<(Arc<str>, Rows), Unavailable> {
        if events > 0 {
            return Err(Unavailable("A log in PostgreSQL is put back with PostgreSQL's own tools.".to_owned()));
        }
        let before = self.known();
        let settled = settle(&self.writer, Some(&before), true).await?;
        *self.lock_known() = settled.clone();
        Ok((settled.epoch, settled.rows))
    }

    /// See [`super::Log::after`].
    pub async fn after(&self, after: &Rows, limit: usize) -> Result<Tail, Unavailable> {
        let after = ints(after);
        let rows = self
            .ask(|| {
                // A transaction is counted when it begins to write, so one that was begun after another was committed
                // has the higher number. In a partition the row decides, hence the highest number up to there.
                sqlx::query(concat!(
                    "SELECT ",
                    place!(),
                    ", v.partition, v.row, v.entity, v.seq, v.id, v.status, v.at, v.data FROM (SELECT * FROM meta WHERE id = 1) m LEFT JOIN LATERAL (
                       SELECT v.*, max(v.transaction) OVER (PARTITION BY v.partition ORDER BY v.row) AS turn
                       FROM unnest($1::bigint[]) WITH ORDINALITY a (row, partition) CROSS JOIN LATERAL (
                         SELECT * FROM event e WHERE e.partition = a.partition AND e.row > a.row
                         ORDER BY e.row LIMIT $2) v
                       ORDER BY turn, v.partition, v.row LIMIT $2
                     ) v ON true ORDER BY v.turn, v.partition, v.row"
                ))
                .bind(&after)
                .bind(int(limit as u64))
            })
            .await?;
        let Cursor { epoch, rows: last } = place_of(&rows)?;
        Ok(Tail { events: stored(&rows, 3, &epoch)?, epoch, rows: last })
    }

    /// See [`super::Log::last_rows`].
    pub async fn last_rows(&self) -> Result<Rows, Unavailable> {
        let rows =
            self.ask(|| sqlx::query(concat!("SELECT ", place!(), " FROM (SELECT * FROM meta WHERE id = 1) m"))).await?;
        Ok(place_of(&rows)?.rows)
    }

    /// See [`super::Log::heads`].
    pub async fn heads(&self, names: &[Arc<str>]) -> Result<(Vec<EntityHead>, Rows), Unavailable> {
        let wanted: Vec<&str> = names.iter().map(|name| &**name).collect();
        let rows = self
            .ask(|| {
                sqlx::query(concat!(
                    "SELECT ",
                    place!(),
                    ", n.name, coalesce(e.seq, 0) FROM (SELECT * FROM meta WHERE id = 1) m LEFT JOIN unnest($1::text[]) WITH ORDINALITY n (name, at)
                     ON true LEFT JOIN entity e ON e.name = n.name ORDER BY n.at"
                ))
                .bind(&wanted)
            })
            .await?;
        heads(&rows)
    }

    /// See [`super::Log::heads_after`].
    pub async fn heads_after(&self, after: &Rows) -> Result<(Vec<EntityHead>, Rows), Unavailable> {
        let after = ints(after);
        let rows = self
            .ask(|| {
                sqlx::query(concat!(
                    "SELECT ",
                    place!(),
                    ", e.name, coalesce(e.seq, 0) FROM (SELECT * FROM meta WHERE id = 1) m LEFT JOIN (
                       unnest($1::bigint[]) WITH ORDINALITY a (row, partition)
                       JOIN entity e ON e.partition = a.partition AND e.row > a.row) ON true"
                ))
                .bind(&after)
            })
            .await?;
        heads(&rows)
    }

    /// See [`super::Log::states`].
    pub async fn states(&self, names: &[Arc<str>]) -> Result<Vec<State>, Unavailable> {
        let wanted: Vec<&str> = names.iter().map(|name| &**name).collect();
        let topics: Vec<bool> = names.iter().map(|name| name::is_topic(name)).collect();
        let rows = self
            .ask(|| {
                sqlx::query(concat!(
                    "SELECT ",
                    place!(),
                    ", n.name, coalesce(e.seq, 0), e.status, e.at, e.state, CASE WHEN n.topic THEN
                     ARRAY(SELECT entity FROM member WHERE topic = n.name ORDER BY entity) END
                     FROM (SELECT * FROM meta WHERE id = 1) m LEFT JOIN unnest($1::text[], $2::bool[]) WITH ORDINALITY n (name, topic, at) ON true
                     LEFT JOIN entity e ON e.name = n.name ORDER BY n.at"
                ))
                .bind(&wanted)
                .bind(&topics)
            })
            .await?;
        let here = place_of(&rows)?;
        let known = rows.iter().filter(|_| !names.is_empty());
        Ok(known.map(|line| state(line, &here)).collect::<Sql<_>>()?)
    }

    /// See [`super::Log::names`].
    pub async fn names(&self, after: &str, limit: usize) -> Result<Vec<Arc<str>>, Unavailable> {
        let rows = sqlx::query("SELECT name FROM entity WHERE name > $1 AND seq > 0 ORDER BY name LIMIT $2")
            .bind(after)
            .bind(int(limit as u64))
            .fetch_all(&self.reader)
            .await?;
        Ok(rows.iter().map(|row| text(row, 0)).collect::<Sql<_>>()?)
    }

    /// See [`super::Log::page`].
    pub async fn page(
        &self,
        entity: &str,
        epoch: Option<&str>,
        from: u64,
        to: Option<u64>,
        limit: usize,
    ) -> Result<Page, Unavailable> {
        // Number 0 stands before the first and is no event.
        let from = from.max(1);
        let rows = self
            .ask(|| {
                // What would make the page too large is left where it is, but for its first event.
                sqlx::query(concat!(
                    "SELECT ",
                    place!(),
                    ", coalesce(e.seq, 0), coalesce(e.oldest, 1), v.partition, v.row, v.entity, v.seq, v.id, v.status, v.at, v.data
                     FROM (SELECT * FROM meta WHERE id = 1) m LEFT JOIN entity e ON e.name = $1 LEFT JOIN LATERAL (
                       SELECT *, sum(64 + coalesce(octet_length(data), 0)) OVER (ORDER BY seq) AS bytes FROM (
                         SELECT * FROM event WHERE entity = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq LIMIT $4) f
                     ) v ON v.bytes <= $5 OR v.seq = $2 ORDER BY v.seq"
                ))
                .bind(entity)
                .bind(int(from))
                .bind(int(to.unwrap_or(u64::MAX)))
                .bind(int(limit as u64))
                .bind(int(PAGE_BYTES as u64))
            })
            .await?;
        let current = place_of(&rows)?.epoch;
        if epoch.is_some_and(|epoch| epoch != &*current) {
            return Ok(Page::OtherEpoch);
        }
        let Some(first) = rows.first() else { return Err(lost()) };
        let (head, oldest) = (number(first, 3)?, number(first, 4)?);
        match Page::last_of(from, to, head, oldest) {
            Ok(last) => Ok(Page::read(stored(&rows, 5, &current)?, head, last)),
            Err(answer) => Ok(answer),
        }
    }

    /// See [`super::Log::topic`].
    pub async fn topic(&self, topic: &Arc<str>, after: Option<&Rows>) -> Result<TopicRead, Unavailable> {
        let after = after.map(ints);
        let rows = self
            .ask(|| {
                sqlx::query(concat!(
                    "WITH t AS (SELECT entity, seq FROM member WHERE topic = $1 ORDER BY entity),
                     c AS (SELECT e.name, CASE WHEN e.trimmed <= a.row THEN
                             (SELECT min(v.seq) FROM event v WHERE v.entity = e.name AND v.row > a.row) END AS first
                           FROM unnest($2::bigint[]) WITH ORDINALITY a (row, partition)
                           JOIN entity e ON e.partition = a.partition AND e.row > a.row JOIN t ON t.entity = e.name)
                     SELECT ",
                    place!(),
                    ", $1::text, coalesce(e.seq, 0), e.status, e.at, e.state, ARRAY(SELECT entity FROM t),
                     ARRAY(SELECT seq FROM t), coalesce(e.oldest, 1),
                     ARRAY(SELECT name FROM c ORDER BY name), ARRAY(SELECT first FROM c ORDER BY name)
                     FROM (SELECT * FROM meta WHERE id = 1) m LEFT JOIN entity e ON e.name = $1"
                ))
                .bind(&**topic)
                .bind(&after)
            })
            .await?;
        let here = place_of(&rows)?;
        let Some(line) = rows.first() else { return Err(lost()) };
        let joined = line.try_get::<Vec<i64>, _>(9)?.into_iter().map(unsigned).collect::<Sql<_>>()?;
        let names: Vec<String> = line.try_get(11)?;
        let first: Vec<Option<i64>> = line.try_get(12)?;
        let first = first.into_iter().map(|first| first.map(unsigned).transpose());
        let changed =
            names.into_iter().zip(first).map(|(name, first)| Ok((name.into(), first?))).collect::<Sql<_>>()?;
        Ok(TopicRead { state: state(line, &here)?, oldest: number(line, 10)?, joined, changed })
    }

    /// See [`super::Log::close`].
    pub async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

impl<'a> Events<'a> {
    fn push(&mut self, write: &'a Write, seq: u64) {
        self.entity.push(&write.entity);
        self.seq.push(int(seq));
        self.id.push(write.id.as_deref());
        self.status.push(write.status.as_deref());
        self.at.push(write.at.text());
        self.data.push(write.data.as_ref().map(Data::text));
    }
}

async fn pool(connections: u32, options: PgConnectOptions) -> Sql<PgPool> {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECT)
        .test_before_acquire(false)
        .connect_with(options)
        .await
}

/// Makes the tables unless they are there, and says how many partitions the log has.
async fn make_tables(pool: &PgPool, asked: Option<usize>) -> Result<usize, NotOpened> {
    let mut connection = pool.acquire().await?;
    let server =
        sqlx::query("SELECT current_setting('server_encoding'), pg_is_in_recovery(), current_setting('fsync')")
            .fetch_one(&mut *connection)
            .await?;
    if server.try_get::<&str, _>(0)? != "UTF8" {
        return Err(Unavailable("The database's encoding must be UTF8.".to_owned()).into());
    }
    if server.try_get(1)? {
        return Err(Unavailable("This server is a replica; a gateway needs the primary.".to_owned()).into());
    }
    if server.try_get::<&str, _>(2)? != "on" {
        tracing::warn!("fsync is off: what was answered may be lost with the machine, and nothing here can tell");
    }
    // Who may not make tables may still use them.
    let there = sqlx::query("SELECT to_regclass('meta') IS NOT NULL, to_regclass('partition') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    match (there.try_get(0)?, there.try_get(1)?) {
        (true, true) => {}
        (true, false) => return Err(NotOpened::OtherTables),
        (false, _) => make_all(&mut connection, asked.unwrap_or(PARTITIONS)).await?,
    }
    let counted = sqlx::query("SELECT count(*) FROM partition").fetch_one(&mut *connection).await?;
    let has = number(&counted, 0)? as usize;
    match asked {
        _ if has == 0 => Err(NotOpened::OtherTables),
        Some(asked) if asked != has => Err(NotOpened::Partitions { asked, has }),
        _ => Ok(has),
    }
}

/// Makes all tables, once: who comes at the same time finds those of the first.
async fn make_all(connection: &mut PgConnection, partitions: usize) -> Sql<()> {
    let mut tx = connection.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MAKING).execute(&mut *tx).await?;
    sqlx::raw_sql(
        "DO $$ BEGIN EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I',
           trim(both '\" ' from split_part(current_setting('search_path'), ',', 1))); END $$",
    )
    .execute(&mut *tx)
    .await?;
    sqlx::raw_sql(TABLES).execute(&mut *tx).await?;
    sqlx::query(concat!(
        "WITH m AS (INSERT INTO meta (id, epoch, identity) VALUES (1, $1, ",
        identity!(),
        ") ON CONFLICT DO NOTHING RETURNING epoch)
         INSERT INTO partition (id, epoch, row) SELECT id, m.epoch, 0 FROM m, generate_series(1, $2) id"
    ))
    .bind(&*fresh_epoch())
    .bind(partitions as i32)
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

/// Finds out whether the log may have gone backward since `before`, and renews its epoch if so, or if told to (G9).
async fn settle(writer: &PgPool, before: Option<&Cursor>, renew: bool) -> Sql<Cursor> {
    let mut connection = writer.acquire().await?;
    let mut tx = connection.begin().await?;
    // In a statement of its own, so that the next one sees what the holders of the locks did.
    sqlx::query("SELECT FROM partition ORDER BY id FOR UPDATE").execute(&mut *tx).await?;
    let line = sqlx::query(concat!("SELECT ", place!(), ", m.past FROM (SELECT * FROM meta WHERE id = 1) m"))
        .fetch_one(&mut *tx)
        .await?;
    let found = place(&line)?;
    let past: Vec<String> = line.try_get(3)?;
    let may_have_gone_back = match before {
        _ if !line.try_get::<bool, _>(2)? => true,
        None => false,
        Some(before) if before.epoch == found.epoch => !found.covers(before),
        Some(before) => !past.iter().any(|past| **past == *before.epoch),
    };
    if !may_have_gone_back && !renew {
        return Ok(found);
    }
    let mut rows = found.rows.clone();
    if let Some(before) = before {
        rows.raise_all(&before.rows);
    }
    let next = Cursor { epoch: fresh_epoch(), rows: rows.iter().map(|row| row + STRIDE).collect() };
    sqlx::query(concat!("UPDATE meta SET epoch = $1, past = past || epoch, identity = ", identity!()))
        .bind(&*next.epoch)
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "UPDATE partition p SET epoch = $1, row = a.row FROM unnest($2::bigint[]) WITH ORDINALITY a (row, id)
         WHERE p.id = a.id",
    )
    .bind(&*next.epoch)
    .bind(ints(&next.rows))
    .execute(&mut *tx)
    .await?;
    sqlx::query("SELECT pg_notify($1, '')").bind(SCHEMA).execute(&mut *tx).await?;
    tx.commit().await?;
    tracing::warn!(old = %found.epoch, new = %next.epoch, "the log may have gone back; its epoch is new");
    Ok(next)
}

/// Tells other gateways of commits, of many at a time when there are many, and says which one it is.
async fn announce(pool: PgPool, committed: Arc<Notify>, own: Arc<str>) {
    loop {
        committed.notified().await;
        if pool.is_closed() {
            return;
        }
        if let Err(error) = sqlx::query("SELECT pg_notify($1, $2)").bind(SCHEMA).bind(&*own).execute(&pool).await {
            tracing::warn!(%error, "other gateways are not told of commits; they look for them");
        }
    }
}

/// Wakes the push whenever another gateway committed. What is missed here is found by its poll.
async fn listen(pool: PgPool, wake: watch::Sender<u64>, own: Arc<str>) {
    while !pool.is_closed() {
        let heard = async {
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.listen(SCHEMA).await?;
            loop {
                // Whatever was said while nobody listened, too.
                wake.send_modify(|times| *times += 1);
                // Its own commits have woken the push already.
                while listener.try_recv().await?.is_some_and(|said| said.payload() == &*own) {}
            }
        };
        let ended: Sql<()> = heard.await;
        if let Err(error) = ended
            && !pool.is_closed()
        {
            tracing::warn!(%error, "commits of other gateways are not heard; they are looked for");
        }
        sleep(LISTEN_RETRY).await;
    }
}

/// Makes the lines that are missing. One that someone else has just made is waited for here, before any is locked.
async fn make_lines(tx: &mut PgConnection, partition: usize, names: &[&str]) -> Sql<()> {
    sqlx::query(
        "INSERT INTO entity (name, partition) SELECT name, $2 FROM unnest($1::text[]) name ON CONFLICT DO NOTHING",
    )
    .bind(names)
    .bind(id(partition))
    .execute(tx)
    .await?;
    Ok(())
}

/// Locks the lines of entities, in the order of their names: two batches never wait for each other.
async fn lock_lines<'a>(tx: &mut PgConnection, names: &[&'a str]) -> Sql<HashMap<&'a str, Line>> {
    let rows = sqlx::query(
        "SELECT name, seq, status, at, state, row, oldest, trimmed FROM entity WHERE name = ANY($1) ORDER BY name
         FOR UPDATE",
    )
    .bind(names)
    .fetch_all(tx)
    .await?;
    let mut lines = HashMap::with_capacity(names.len());
    for row in &rows {
        let Ok(at) = names.binary_search(&row.try_get(0)?) else { continue };
        let state: &str = row.try_get(4)?;
        let line = Line {
            seq: number(row, 1)?,
            status: row.try_get(2)?,
            at: row.try_get(3)?,
            state: serde_json::from_str::<Value>(state).map_err(decode)?,
            row: number(row, 5)?,
            oldest: number(row, 6)?,
            trimmed: number(row, 7)?,
            changed: false,
        };
        lines.insert(names[at], line);
    }
    Ok(lines)
}

/// The numbers of ids that the entities have had already (G3).
async fn known_ids(tx: &mut PgConnection, writes: &[Write]) -> Sql<HashMap<(String, String), u64>> {
    let pairs = writes.iter().filter_map(|write| Some((&*write.entity, write.id.as_deref()?)));
    let (entities, ids): (Vec<&str>, Vec<&str>) = pairs.unzip();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = sqlx::query(
        "SELECT k.entity, k.id, k.seq FROM unnest($1::text[], $2::text[]) w (entity, id)
         JOIN event_id k ON k.entity = w.entity AND k.id = w.id",
    )
    .bind(&entities)
    .bind(&ids)
    .fetch_all(tx)
    .await?;
    rows.iter().map(|row| Ok(((row.try_get(0)?, row.try_get(1)?), number(row, 2)?))).collect()
}

async fn store_members(tx: &mut PgConnection, memberships: &Memberships<'_>) -> Sql<()> {
    let left = memberships.iter().filter(|(_, membership)| membership.left);
    let (topics, members): (Vec<&str>, Vec<&str>) = left.map(|(names, _)| *names).unzip();
    if !topics.is_empty() {
        sqlx::query(
            "DELETE FROM member m USING unnest($1::text[], $2::text[]) w (topic, entity)
             WHERE m.topic = w.topic AND m.entity = w.entity",
        )
        .bind(&topics)
        .bind(&members)
        .execute(&mut *tx)
        .await?;
    }
    let joined = memberships.iter().filter_map(|((topic, member), m)| Some((*topic, (*member, int(m.joined?)))));
    let (topics, (members, seqs)): (Vec<&str>, (Vec<&str>, Vec<i64>)) = joined.unzip();
    if !topics.is_empty() {
        sqlx::query(
            "INSERT INTO member (topic, entity, seq) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
             ON CONFLICT DO NOTHING",
        )
        .bind(&topics)
        .bind(&members)
        .bind(&seqs)
        .execute(tx)
        .await?;
    }
    Ok(())
}

/// Takes the rows, stores events and lines, and says the last row; `None` when the log is not where it was known to be.
/// From here to the commit no other batch of the partition can be here.
async fn store(
    tx: &mut PgConnection,
    partition: usize,
    before: &Cursor,
    events: &Events<'_>,
    lines: &HashMap<&str, Line>,
) -> Sql<Option<u64>> {
    let (mut names, mut seqs, mut statuses, mut ats, mut states, mut places) =
        (vec![], vec![], vec![], vec![], vec![], vec![]);
    for (name, line) in lines {
        names.push(*name);
        seqs.push(int(line.seq));
        statuses.push(line.status.as_deref());
        ats.push(line.at.as_deref());
        states.push(line.state.to_string());
        places.push(int(line.row));
    }
    let taken = sqlx::query(concat!(
        "WITH m AS (
           UPDATE partition p SET row = p.row + $1 FROM meta
           WHERE p.id = $16 AND p.epoch = $2 AND p.row >= $3 AND meta.id = 1 AND meta.identity = ",
        identity!(),
        " RETURNING p.row),
         v AS (
           INSERT INTO event (partition, row, transaction, entity, seq, id, status, at, data)
           SELECT $16, m.row - $1 + w.place, pg_current_xact_id()::text::bigint, w.entity, w.seq, w.id, w.status, w.at, w.data
           FROM m,
             unnest($4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[]) WITH ORDINALITY
             w (entity, seq, id, status, at, data, place)),
         i AS (
           INSERT INTO event_id (entity, id, seq) SELECT w.entity, w.id, w.seq FROM m,
             unnest($4::text[], $5::bigint[], $6::text[]) w (entity, seq, id) WHERE w.id IS NOT NULL),
         l AS (
           UPDATE entity e SET seq = w.seq, status = w.status, at = w.at, state = w.state, row = m.row - $1 + w.place
           FROM m, unnest($10::text[], $11::bigint[], $12::text[], $13::text[], $14::text[], $15::bigint[])
             w (name, seq, status, at, state, place) WHERE e.name = w.name)
         SELECT m.row FROM m"
    ))
    .bind(int(events.seq.len() as u64))
    .bind(&*before.epoch)
    .bind(int(before.rows.of(partition)))
    .bind(&events.entity)
    .bind(&events.seq)
    .bind(&events.id)
    .bind(&events.status)
    .bind(&events.at)
    .bind(&events.data)
    .bind(&names)
    .bind(&seqs)
    .bind(&statuses)
    .bind(&ats)
    .bind(&states)
    .bind(&places)
    .bind(id(partition))
    .fetch_optional(tx)
    .await?;
    taken.map(|row| number(&row, 0)).transpose()
}

/// Trims the events of locked lines, each from the lowest number that is kept.
async fn trim<'a>(tx: &mut PgConnection, kept: impl Iterator<Item = (&'a str, &'a Line, u64)>) -> Sql<()> {
    let (mut names, mut oldest, mut ids) = (vec![], vec![], vec![]);
    for (name, line, from) in kept {
        names.push(name);
        oldest.push(int(from));
        ids.push(int(line.ids_kept_from(from)));
    }
    if names.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "WITH t AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) t (name, oldest, id)),
         d AS (DELETE FROM event v USING t WHERE v.entity = t.name AND v.seq < t.oldest RETURNING v.entity, v.row),
         i AS (DELETE FROM event_id k USING t WHERE k.entity = t.name AND k.seq < t.id)
         UPDATE entity e SET oldest = t.oldest, trimmed = greatest(e.trimmed, x.row)
         FROM t LEFT JOIN (SELECT entity, max(row) AS row FROM d GROUP BY entity) x ON x.entity = t.name
         WHERE e.name = t.name",
    )
    .bind(&names)
    .bind(&oldest)
    .bind(&ids)
    .execute(tx)
    .await?;
    Ok(())
}

/// PostgreSQL gave up this transaction so that another could go on.
fn is_deadlock(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "40P01" || code == "40001")
}

fn lost() -> Unavailable {
    Unavailable("The log is being put back.".to_owned())
}

/// The place of the log from the first columns of an answer.
fn place(row: &PgRow) -> Sql<Cursor> {
    let rows = row.try_get::<Vec<i64>, _>(1)?.into_iter().map(unsigned).collect::<Sql<_>>()?;
    Ok(Cursor { epoch: text(row, 0)?, rows })
}

fn place_of(rows: &[PgRow]) -> Sql<Cursor> {
    place(rows.first().ok_or(sqlx::Error::RowNotFound)?)
}

/// A partition as the tables count it.
fn id(partition: usize) -> i32 {
    partition as i32 + 1
}

fn ints(rows: &Rows) -> Vec<i64> {
    rows.iter().map(int).collect()
}

fn heads(answer: &[PgRow]) -> Result<(Vec<EntityHead>, Rows), Unavailable> {
    let Cursor { epoch, rows } = place_of(answer)?;
    let mut heads = Vec::with_capacity(answer.len());
    for line in answer {
        if let Some(entity) = line.try_get::<Option<&str>, _>(3)? {
            heads.push(EntityHead { entity: entity.into(), epoch: epoch.clone(), seq: number(line, 4)? });
        }
    }
    Ok((heads, rows))
}

/// A state from the columns name, seq, status, at, state, members, after the place.
fn state(line: &PgRow, here: &Cursor) -> Sql<State> {
    let members: Option<Vec<String>> = line.try_get(8)?;
    let entity = text(line, 3)?;
    let mut data = json(line.try_get(7)?)?.unwrap_or_else(Data::null);
    let members: Vec<Arc<str>> = members.unwrap_or_default().into_iter().map(Arc::from).collect();
    if name::is_topic(&entity) {
        data = Data::from_value(&members).map_err(decode)?;
    }
    let (status, at) = (line.try_get(5)?, json(line.try_get(6)?)?);
    let Cursor { epoch, rows } = here.clone();
    Ok(State { entity, epoch, seq: number(line, 4)?, status, at, data, members, rows })
}

/// The events from a column on; none when that is null.
fn stored(rows: &[PgRow], from: usize, epoch: &Arc<str>) -> Sql<Vec<Stored>> {
    let mut events = Vec::with_capacity(rows.len());
    for line in rows {
        let Some(id) = line.try_get::<Option<i32>, _>(from)? else { continue };
        events.push(Stored {
            partition: usize::try_from(id - 1).map_err(decode)?,
            row: number(line, from + 1)?,
            entity: text(line, from + 2)?,
            epoch: epoch.clone(),
            seq: number(line, from + 3)?,
            id: line.try_get(from + 4)?,
            status: line.try_get(from + 5)?,
            at: json(line.try_get(from + 6)?)?,
            data: json(line.try_get(from + 7)?)?,
        });
    }
    Ok(events)
}

fn text(row: &PgRow, column: usize) -> Sql<Arc<str>> {
    Ok(row.try_get::<&str, _>(column)?.into())
}

fn number(row: &PgRow, column: usize) -> Sql<u64> {
    unsigned(row.try_get::<i64, _>(column)?)
}
