//! The log in SQLite: one writer, hence one partition, and many readers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use inorder::wire::Data;
use serde_json::Value;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{Connection, Row};

use super::line::Line;
use super::{EntityHead, Opening, Page, Sql, State, Stored, Tail, TopicRead, Unavailable, Write, Written};
use super::{decode, fresh_epoch, int, json, unsigned};
use crate::limits::PAGE_BYTES;
use crate::mark::{Found, Mark};
use crate::model::Models;
use crate::name;
use crate::rows::{Cursor, Rows};

/// Connections that read a file at the same time; more would only wait for the disk.
const READERS: u32 = 4;

/// How long a connection waits for a lock. Only another process on the same file holds one so long.
const BUSY: Duration = Duration::from_secs(5);

/// The pages of a database that is not there yet.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS meta (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        epoch TEXT NOT NULL,
        row INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS entity (
        name TEXT PRIMARY KEY,
        seq INTEGER NOT NULL,
        status TEXT,
        at TEXT,
        state TEXT NOT NULL,
        row INTEGER NOT NULL,
        oldest INTEGER NOT NULL,
        trimmed INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS entity_row ON entity (row);
    CREATE TABLE IF NOT EXISTS event (
        row INTEGER PRIMARY KEY,
        entity TEXT NOT NULL,
        epoch TEXT NOT NULL,
        seq INTEGER NOT NULL,
        id TEXT,
        status TEXT,
        at TEXT,
        data TEXT,
        UNIQUE (entity, epoch, seq)
    );
    CREATE TABLE IF NOT EXISTS event_id (
        entity TEXT NOT NULL,
        id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (entity, id)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS member (
        topic TEXT NOT NULL,
        entity TEXT NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (topic, entity)
    ) WITHOUT ROWID;
";

const EVENT: &str = "row, entity, epoch, seq, id, status, at, data";

/// The log, kept in SQLite.
pub struct Sqlite {
    writer: SqlitePool,
    reader: SqlitePool,
    models: Models,
    retain: Option<u64>,
    mark: Option<Mutex<Mark>>,
    epoch: RwLock<Arc<str>>,
}

impl Sqlite {
    /// Opens the log, making it if there is none, and settles its epoch (G9).
    ///
    /// # Errors
    /// When the file can't be used.
    pub async fn open(file: Option<&Path>, opening: &Opening<'_>) -> Result<Self, Unavailable> {
        let (writer, reader) = match file {
            None => {
                let options = SqliteConnectOptions::new().in_memory(true);
                let pool = pool(1, options).await?;
                (pool.clone(), pool)
            }
            Some(path) => {
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .busy_timeout(BUSY)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full);
                let writer = pool(1, options.clone().create_if_missing(true)).await?;
                sqlx::raw_sql(SCHEMA).execute(&writer).await?;
                (writer, pool(READERS, options.read_only(true)).await?)
            }
        };
        sqlx::raw_sql(SCHEMA).execute(&writer).await?;
        let beside = file.map(Mark::beside);
        let (mark, epoch) =
            settle_epoch(&writer, opening.mark.or(beside.as_deref()).filter(|_| file.is_some()), opening.new_epoch)
                .await?;
        let (mark, epoch) = (mark.map(Mutex::new), RwLock::new(epoch));
        Ok(Sqlite { writer, reader, models: opening.models.clone(), retain: opening.retain, mark, epoch })
    }

    /// The epoch of the log.
    pub fn epoch(&self) -> Arc<str> {
        self.epoch.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The rules of the models.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// Stores changes, all in one transaction, each with the next number of its entity (G1).
    ///
    /// What comes back is committed, but [`Sqlite::note`] must follow before anyone is told.
    ///
    /// # Errors
    /// When nothing was stored.
    pub async fn commit(&self, writes: &[Write]) -> Result<(Vec<Written>, Rows), Unavailable> {
        let mut connection = self.writer.acquire().await?;
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
        let (epoch, mut row) = meta(&mut tx).await?;
        let before = row;
        let mut lines: HashMap<&str, Line> = HashMap::new();
        let mut written = Vec::with_capacity(writes.len());
        for write in writes {
            written.push(self.write(&mut tx, &mut lines, &epoch, &mut row, write).await?);
        }
        for (name, line) in &mut lines {
            if line.changed {
                self.trim_line(&mut tx, name, line, self.retain).await?;
                store_line(&mut tx, name, line).await?;
            }
        }
        if row > before {
            sqlx::query("UPDATE meta SET row = ?").bind(int(row)).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok((written, Rows::one(row)))
    }

    /// Notes beside the database how far it has come (G9); to be called after each commit.
    ///
    /// # Errors
    /// When it can't be noted.
    pub fn note(&self, rows: &Rows) -> Result<(), Unavailable> {
        if let Some(mark) = &self.mark {
            let noted = Cursor { epoch: self.epoch(), rows: rows.clone() };
            mark.lock().unwrap_or_else(PoisonError::into_inner).note(noted)?;
        }
        Ok(())
    }

    async fn write<'a>(
        &self,
        tx: &mut SqliteConnection,
        lines: &mut HashMap<&'a str, Line>,
        epoch: &Arc<str>,
        row: &mut u64,
        write: &'a Write,
    ) -> Sql<Written> {
        let entity = &*write.entity;
        if let Some(id) = &write.id {
            let known = sqlx::query("SELECT seq FROM event_id WHERE entity = ? AND id = ?")
                .bind(entity)
                .bind(id.as_str())
                .fetch_optional(&mut *tx)
                .await?;
            if let Some(known) = known {
                let seq = number(&known, 0)?;
                return Ok(Written::Stored { epoch: epoch.clone(), seq, duplicate: true });
            }
        }
        if !lines.contains_key(entity) {
            let line = load_line(&mut *tx, entity).await?;
            lines.insert(entity, line);
        }
        let Some(line) = lines.get_mut(entity) else { return Err(sqlx::Error::RowNotFound) };
        if let Err(refusal) = line.take(self.models.of(entity), write).map_err(decode)? {
            return Ok(refusal);
        }
        *row += 1;
        line.row = *row;
        sqlx::query(
            "INSERT INTO event (row, entity, epoch, seq, id, status, at, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(int(*row))
        .bind(entity)
        .bind(&**epoch)
        .bind(int(line.seq))
        .bind(write.id.as_deref())
        .bind(write.status.as_deref())
        .bind(write.at.text())
        .bind(write.data.as_ref().map(Data::text))
        .execute(&mut *tx)
        .await?;
        if let Some(id) = &write.id {
            sqlx::query("INSERT INTO event_id (entity, id, seq) VALUES (?, ?, ?)")
                .bind(entity)
                .bind(id.as_str())
                .bind(int(line.seq))
                .execute(&mut *tx)
                .await?;
        }
        if let Some(change) = &write.topic {
            for member in &change.remove {
                sqlx::query("DELETE FROM member WHERE topic = ? AND entity = ?")
                    .bind(entity)
                    .bind(&**member)
                    .execute(&mut *tx)
                    .await?;
            }
            for member in &change.add {
                sqlx::query("INSERT INTO member (topic, entity, seq) VALUES (?, ?, ?) ON CONFLICT DO NOTHING")
                    .bind(entity)
                    .bind(&**member)
                    .bind(int(line.seq))
                    .execute(&mut *tx)
                    .await?;
            }
        }
        Ok(Written::Stored { epoch: epoch.clone(), seq: line.seq, duplicate: false })
    }

    async fn trim_line(&self, tx: &mut SqliteConnection, name: &str, line: &mut Line, retain: Option<u64>) -> Sql<()> {
        let Some(oldest) = line.kept_from(retain) else { return Ok(()) };
        let last = sqlx::query("SELECT MAX(row) FROM event WHERE entity = ? AND seq < ?")
            .bind(name)
            .bind(int(oldest))
            .fetch_one(&mut *tx)
            .await?;
        if let Some(trimmed) = last.try_get::<Option<i64>, _>(0)? {
            line.trimmed = line.trimmed.max(unsigned(trimmed)?);
        }
        line.oldest = oldest;
        sqlx::query("DELETE FROM event WHERE entity = ? AND seq < ?")
            .bind(name)
            .bind(int(oldest))
            .execute(&mut *tx)
            .await?;
        sqlx::query("DELETE FROM event_id WHERE entity = ? AND seq < ?")
            .bind(name)
            .bind(int(line.ids_kept_from(oldest)))
            .execute(&mut *tx)
            .await?;
        Ok(())
    }

    /// Trims every entity's events but the last `retain`.
    ///
    /// # Errors
    /// When nothing was trimmed.
    pub async fn trim(&self, retain: u64) -> Result<(), Unavailable> {
        let mut connection = self.writer.acquire().await?;
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
        let names = sqlx::query("SELECT name FROM entity").fetch_all(&mut *tx).await?;
        for row in names {
            let name: String = row.try_get(0)?;
            let mut line = load_line(&mut tx, &name).await?;
            self.trim_line(&mut tx, &name, &mut line, Some(retain)).await?;
            store_line(&mut tx, &name, &line).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Puts the log back, as a restored backup does: each entity that is not final loses its last changes, and the
    /// epoch is new (G9). Topics stay, and entities whose earlier events are not all kept.
    ///
    /// Both in one transaction, or a number that was taken back could be given again in the old epoch. To be called
    /// by whoever calls [`Sqlite::commit`], and like there [`Sqlite::note`] must follow before anyone is told.
    ///
    /// # Errors
    /// When the log stays as it was.
    pub async fn restore(&self, events: u64) -> Result<(Arc<str>, Rows), Unavailable> {
        let mut connection = self.writer.acquire().await?;
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
        let names = sqlx::query("SELECT name FROM entity WHERE oldest = 1").fetch_all(&mut *tx).await?;
        for row in names {
            let name: Arc<str> = text(&row, 0)?;
            let mut line = load_line(&mut tx, &name).await?;
            let model = self.models.of(&name);
            if name::is_topic(&name) || model.is_closed(line.status.as_deref()) {
                continue;
            }
            if events == 0 {
                break;
            }
            line.seq = line.seq.saturating_sub(events).max(1);
            for table in
                ["DELETE FROM event WHERE entity = ? AND seq > ?", "DELETE FROM event_id WHERE entity = ? AND seq > ?"]
            {
                sqlx::query(table).bind(&*name).bind(int(line.seq)).execute(&mut *tx).await?;
            }
            let kept =
                sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {EVENT} FROM event WHERE entity = ? ORDER BY seq")))
                    .bind(&*name)
                    .fetch_all(&mut *tx)
                    .await?;
            (line.state, line.status) = (Value::Null, None);
            for row in &kept {
                let event = stored(row)?;
                line.status = event.status.or(line.status);
                line.at = event.at.map(|at| at.text().to_owned());
                if let Some(data) = event.data {
                    model.reduce.apply(&mut line.state, &data).map_err(decode)?;
                }
            }
            store_line(&mut tx, &name, &line).await?;
        }
        let (epoch, row) = renew(&mut tx).await?;
        tx.commit().await?;
        *self.epoch.write().unwrap_or_else(PoisonError::into_inner) = epoch.clone();
        Ok((epoch, Rows::one(row)))
    }

    /// See [`super::Log::after`].
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn after(&self, after: &Rows, limit: usize) -> Result<Tail, Unavailable> {
        let mut connection = self.reader.acquire().await?;
        let mut tx = connection.begin().await?;
        let (epoch, row) = meta(&mut tx).await?;
        let rows =
            sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {EVENT} FROM event WHERE row > ? ORDER BY row LIMIT ?")))
                .bind(int(after.of(0)))
                .bind(int(limit as u64))
                .fetch_all(&mut *tx)
                .await?;
        Ok(Tail { events: rows.iter().map(stored).collect::<Sql<_>>()?, epoch, rows: Rows::one(row) })
    }

    /// See [`super::Log::last_rows`].
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn last_rows(&self) -> Result<Rows, Unavailable> {
        let row = sqlx::query("SELECT row FROM meta").fetch_one(&self.reader).await?;
        Ok(Rows::one(number(&row, 0)?))
    }

    /// See [`super::Log::heads`].
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn heads(&self, names: &[Arc<str>]) -> Result<(Vec<EntityHead>, Rows), Unavailable> {
        let mut connection = self.reader.acquire().await?;
        let mut tx = connection.begin().await?;
        let (epoch, row) = meta(&mut tx).await?;
        let mut heads = Vec::with_capacity(names.len());
        for name in names {
            let seq =
                sqlx::query("SELECT seq FROM entity WHERE name = ?").bind(&**name).fetch_optional(&mut *tx).await?;
            let seq = seq.map_or(Ok(0), |seq| number(&seq, 0))?;
            heads.push(EntityHead { entity: name.clone(), epoch: epoch.clone(), seq });
        }
        Ok((heads, Rows::one(row)))
    }

    /// See [`super::Log::heads_after`].
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn heads_after(&self, after: &Rows) -> Result<(Vec<EntityHead>, Rows), Unavailable> {
        let mut connection = self.reader.acquire().await?;
        let mut tx = connection.begin().await?;
        let (epoch, row) = meta(&mut tx).await?;
        let rows = sqlx::query("SELECT name, seq FROM entity WHERE row > ?")
            .bind(int(after.of(0)))
            .fetch_all(&mut *tx)
            .await?;
        let heads = rows
            .iter()
            .map(|row| Ok(EntityHead { entity: text(row, 0)?, epoch: epoch.clone(), seq: number(row, 1)? }))
            .collect::<Sql<_>>()?;
        Ok((heads, Rows::one(row)))
    }

    /// The states of entities, all of one moment (G4).
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn states(&self, names: &[Arc<str>]) -> Result<Vec<State>, Unavailable> {
        let mut connection = self.reader.acquire().await?;
        let mut tx = connection.begin().await?;
        let (epoch, row) = meta(&mut tx).await?;
        let mut states = Vec::with_capacity(names.len());
        for name in names {
            states.push(state(&mut tx, name, &epoch, row).await?);
        }
        Ok(states)
    }

    /// The names of entities in order, after a name.
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn names(&self, after: &str, limit: usize) -> Result<Vec<Arc<str>>, Unavailable> {
        let rows = sqlx::query("SELECT name FROM entity WHERE name > ? ORDER BY name LIMIT ?")
            .bind(after)
            .bind(int(limit as u64))
            .fetch_all(&self.reader)
            .await?;
        Ok(rows.iter().map(|row| text(row, 0)).collect::<Sql<_>>()?)
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
        let mut connection = self.reader.acquire().await?;
        let mut tx = connection.begin().await?;
        let (current, _) = meta(&mut tx).await?;
        if epoch.is_some_and(|epoch| epoch != &*current) {
            return Ok(Page::OtherEpoch);
        }
        let line =
            sqlx::query("SELECT seq, oldest FROM entity WHERE name = ?").bind(entity).fetch_optional(&mut *tx).await?;
        let (head, oldest) = match &line {
            Some(line) => (number(line, 0)?, number(line, 1)?),
            None => (0, 1),
        };
        // Number 0 stands before the first and is no event.
        let from = from.max(1);
        let last = match Page::last_of(from, to, head, oldest) {
            Ok(last) => last,
            Err(answer) => return Ok(answer),
        };
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {EVENT} FROM event WHERE entity = ? AND epoch = ? AND seq BETWEEN ? AND ? ORDER BY seq LIMIT ?"
        )))
        .bind(entity)
        .bind(&*current)
        .bind(int(from))
        .bind(int(last))
        .bind(int(limit as u64))
        .fetch_all(&mut *tx)
        .await?;
        let mut events: Vec<Stored> = Vec::with_capacity(rows.len());
        let mut bytes = 0;
        for row in &rows {
            let event = stored(row)?;
            bytes += event.data.as_ref().map_or(0, |data| data.text().len()) + 64;
            if bytes > PAGE_BYTES && !events.is_empty() {
                break;
            }
            events.push(event);
        }
        Ok(Page::read(events, head, last))
    }

    /// See [`super::Log::topic`].
    ///
    /// # Errors
    /// When the log can't be read.
    pub async fn topic(&self, topic: &Arc<str>, after: Option<&Rows>) -> Result<TopicRead, Unavailable> {
        let mut connection = self.reader.acquire().await?;
        let mut tx = connection.begin().await?;
        let (epoch, row) = meta(&mut tx).await?;
        let state = state(&mut tx, topic, &epoch, row).await?;
        let oldest = sqlx::query("SELECT oldest FROM entity WHERE name = ?")
            .bind(&**topic)
            .fetch_optional(&mut *tx)
            .await?
            .map_or(Ok(1), |line| number(&line, 0))?;
        let joined = sqlx::query("SELECT seq FROM member WHERE topic = ? ORDER BY entity")
            .bind(&**topic)
            .fetch_all(&mut *tx)
            .await?
            .iter()
            .map(|row| number(row, 0))
            .collect::<Sql<Vec<u64>>>()?;
        let mut changed = Vec::new();
        if let Some(after) = after.map(|after| after.of(0)) {
            let rows = sqlx::query(
                "SELECT m.entity, e.trimmed, (SELECT MIN(v.seq) FROM event v WHERE v.entity = m.entity AND v.row > ?1)
                 FROM entity e JOIN member m ON m.topic = ?2 AND m.entity = e.name WHERE e.row > ?1",
            )
            .bind(int(after))
            .bind(&**topic)
            .fetch_all(&mut *tx)
            .await?;
            for row in &rows {
                let first: Option<i64> = row.try_get(2)?;
                let whole = number(row, 1)? <= after;
                let first = first.filter(|_| whole).map(unsigned).transpose()?;
                changed.push((text(row, 0)?, first));
            }
        }
        Ok(TopicRead { state, oldest, joined, changed })
    }

    /// Closes the log; what was committed is on the disk already.
    pub async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

async fn pool(connections: u32, options: SqliteConnectOptions) -> Sql<SqlitePool> {
    // A connection to memory is the memory: it must never be replaced.
    SqlitePoolOptions::new()
        .min_connections(1)
        .max_connections(connections)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(options)
        .await
}

async fn settle_epoch(
    writer: &SqlitePool,
    mark: Option<&Path>,
    new_epoch: bool,
) -> Result<(Option<Mark>, Arc<str>), Unavailable> {
    let (mut mark, found) = match mark {
        None => (None, Found::Nothing),
        Some(path) => {
            let (mark, found) = Mark::open(path)?;
            (Some(mark), found)
        }
    };
    let known = sqlx::query("SELECT epoch, row FROM meta").fetch_optional(writer).await?;
    let (epoch, row) = match known {
        None => {
            let epoch = fresh_epoch();
            sqlx::query("INSERT INTO meta (id, epoch, row) VALUES (1, ?, 0)").bind(&*epoch).execute(writer).await?;
            (epoch, 0)
        }
        Some(line) => {
            let (epoch, row): (Arc<str>, u64) = (text(&line, 0)?, number(&line, 1)?);
            let may_have_gone_back = match &found {
                Found::Noted(noted) => noted.epoch != epoch || !Rows::one(row).covers(&noted.rows),
                Found::Nothing | Found::Unreadable => true,
            };
            if new_epoch || may_have_gone_back {
                let mut connection = writer.acquire().await?;
                let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
                let (renewed, row) = renew(&mut tx).await?;
                tx.commit().await?;
                tracing::warn!(old = %epoch, new = %renewed, row, "the log may have gone back; its epoch is new");
                (renewed, row)
            } else {
                (epoch, row)
            }
        }
    };
    if let Some(mark) = &mut mark {
        mark.note(Cursor { epoch: epoch.clone(), rows: Rows::one(row) })?;
    }
    Ok((mark, epoch))
}

/// Renews the epoch (G9). The kept events go over to it with their numbers.
async fn renew(tx: &mut SqliteConnection) -> Sql<(Arc<str>, u64)> {
    let epoch = fresh_epoch();
    sqlx::query("UPDATE event SET epoch = ?").bind(&*epoch).execute(&mut *tx).await?;
    sqlx::query("UPDATE meta SET epoch = ?").bind(&*epoch).execute(&mut *tx).await?;
    meta(tx).await
}

async fn meta(tx: &mut SqliteConnection) -> Sql<(Arc<str>, u64)> {
    let line = sqlx::query("SELECT epoch, row FROM meta").fetch_one(tx).await?;
    Ok((text(&line, 0)?, number(&line, 1)?))
}

async fn state(tx: &mut SqliteConnection, name: &Arc<str>, epoch: &Arc<str>, row: u64) -> Sql<State> {
    let line = sqlx::query("SELECT seq, status, at, state FROM entity WHERE name = ?")
        .bind(&**name)
        .fetch_optional(&mut *tx)
        .await?;
    let (seq, status, at, mut data) = match &line {
        Some(line) => (
            number(line, 0)?,
            line.try_get(1)?,
            json(line.try_get(2)?)?,
            json(line.try_get(3)?)?.unwrap_or_else(Data::null),
        ),
        None => (0, None, None, Data::null()),
    };
    let mut members = Vec::new();
    if name::is_topic(name) {
        let rows = sqlx::query("SELECT entity FROM member WHERE topic = ? ORDER BY entity")
            .bind(&**name)
            .fetch_all(&mut *tx)
            .await?;
        members = rows.iter().map(|row| text(row, 0)).collect::<Sql<Vec<_>>>()?;
        data = Data::from_value(&members).map_err(decode)?;
    }
    let rows = Rows::one(row);
    Ok(State { entity: name.clone(), epoch: epoch.clone(), seq, status, at, data, members, rows })
}

async fn load_line(tx: &mut SqliteConnection, name: &str) -> Sql<Line> {
    let line = sqlx::query("SELECT seq, status, at, state, row, oldest, trimmed FROM entity WHERE name = ?")
        .bind(name)
        .fetch_optional(tx)
        .await?;
    let Some(line) = line else { return Ok(Line::default()) };
    let state: &str = line.try_get(3)?;
    Ok(Line {
        seq: number(&line, 0)?,
        status: line.try_get(1)?,
        at: line.try_get(2)?,
        state: serde_json::from_str(state).map_err(decode)?,
        row: number(&line, 4)?,
        oldest: number(&line, 5)?,
        trimmed: number(&line, 6)?,
        changed: false,
    })
}

async fn store_line(tx: &mut SqliteConnection, name: &str, line: &Line) -> Sql<()> {
    sqlx::query(
        "INSERT INTO entity (name, seq, status, at, state, row, oldest, trimmed) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, status = excluded.status, at = excluded.at,
         state = excluded.state, row = excluded.row, oldest = excluded.oldest, trimmed = excluded.trimmed",
    )
    .bind(name)
    .bind(int(line.seq))
    .bind(line.status.as_deref())
    .bind(line.at.as_deref())
    .bind(line.state.to_string())
    .bind(int(line.row))
    .bind(int(line.oldest))
    .bind(int(line.trimmed))
    .execute(tx)
    .await?;
    Ok(())
}

fn stored(row: &SqliteRow) -> Sql<Stored> {
    Ok(Stored {
        partition: 0,
        row: number(row, 0)?,
        entity: text(row, 1)?,
        epoch: text(row, 2)?,
        seq: number(row, 3)?,
        id: row.try_get(4)?,
        status: row.try_get(5)?,
        at: json(row.try_get(6)?)?,
        data: json(row.try_get(7)?)?,
    })
}

fn text(row: &SqliteRow, column: usize) -> Sql<Arc<str>> {
    Ok(row.try_get::<&str, _>(column)?.into())
}

fn number(row: &SqliteRow, column: usize) -> Sql<u64> {
    unsigned(row.try_get::<i64, _>(column)?)
}
