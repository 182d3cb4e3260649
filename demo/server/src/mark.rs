//! The high-water mark beside the database: how far the log was ever known to have come.
//!
//! A log that is put back (an older copy restored, a failover to a lagging replica) looks like any
//! other from the inside, and would give numbers that clients have seen to other changes. So the writer
//! notes the rows that it committed last in a file beside the database, synced before anyone is told
//! about the commit:
//!
//! ```text
//!   commit ──► mark ──► answer and push
//! ```
//!
//! At a start the database must be at the mark or above it, and of the mark's epoch. Else, or when
//! there is no readable mark, it may have gone backward, and its epoch is renewed (G9). Erring that way
//! costs a snapshot per entity and page; erring the other way would mix two histories.
//! A mark that is put back together with the database can't tell: whoever restores both starts once
//! with `--new-epoch`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::name::hash;
use crate::rows::Cursor;

/// Bytes of the record: one sector, so that a crash leaves the old or the new one. The longest cursor fits.
const RECORD_BYTES: usize = 512;

/// The open mark file.
#[derive(Debug)]
pub struct Mark {
    file: File,
    last: Option<Cursor>,
}

/// What was found in a mark's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: the file is new.
    Nothing,
    /// Something torn.
    Unreadable,
    /// What was noted last.
    Noted(Cursor),
}

impl Mark {
    /// Where the mark of a database in a file lies.
    pub fn beside(database: &Path) -> PathBuf {
        let mut path = database.as_os_str().to_owned();
        path.push(".mark");
        PathBuf::from(path)
    }

    /// Opens the mark, making it if there is none, and reads what it says.
    ///
    /// # Errors
    /// When the file can't be opened or read.
    pub fn open(path: &Path) -> std::io::Result<(Mark, Found)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut text = String::new();
        let found = match (&mut file).take(RECORD_BYTES as u64 * 2).read_to_string(&mut text) {
            Ok(0) => Found::Nothing,
            Ok(_) => parse(&text).map_or(Found::Unreadable, Found::Noted),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Found::Unreadable,
            Err(error) => return Err(error),
        };
        // A new file is only there for good once its folder is synced.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok((Mark { file, last: None }, found))
    }

    /// Whether a place was noted, or one further on.
    pub fn covers(&self, place: &Cursor) -> bool {
        self.last.as_ref().is_some_and(|last| last.covers(place))
    }

    /// Notes a place, synced to the disk when this returns. Of one epoch the highest row of each partition counts.
    ///
    /// # Errors
    /// When the file can't be written; nothing may then be told about the commit.
    pub fn note(&mut self, mut noted: Cursor) -> std::io::Result<()> {
        if self.covers(&noted) {
            return Ok(());
        }
        if let Some(last) = self.last.as_ref().filter(|last| last.epoch == noted.epoch) {
            noted.rows.raise_all(&last.rows);
        }
        let record = noted.text();
        let line = format!("{record} {:08x}", hash(record.as_bytes()));
        let padded = format!("{line:<width$}\n", width = RECORD_BYTES - 1);
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(padded.as_bytes())?;
        self.file.sync_data()?;
        self.last = Some(noted);
        Ok(())
    }
}

fn parse(text: &str) -> Option<Cursor> {
    let line = text.lines().next()?.trim_end();
    let (record, sum) = line.rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != hash(record.as_bytes()) {
        return None;
    }
    Cursor::read(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_PARTITIONS;

    #[test]
    fn a_mark_says_what_was_noted_and_a_torn_one_says_nothing() {
        let folder = std::env::temp_dir().join(format!("inorder-mark-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = Mark::beside(&folder.join("log.db"));
        let (mut mark, found) = Mark::open(&path).unwrap();
        assert_eq!(found, Found::Nothing);
        let place = |epoch: &str, rows: &[u64]| Cursor { epoch: epoch.into(), rows: rows.iter().copied().collect() };
        let table: [(&str, &[u64], &[u64]); 6] = [
            ("e1", &[7, 0], &[7, 0]),
            ("e1", &[123_456, 0], &[123_456, 0]),
            ("e1", &[8, 5], &[123_456, 5]),
            ("e1", &[8, 4], &[123_456, 5]),
            ("e2", &[8, 0], &[8, 0]),
            ("e3", &[u64::MAX; MAX_PARTITIONS], &[u64::MAX; MAX_PARTITIONS]),
        ];
        for (epoch, rows, expected) in table {
            mark.note(place(epoch, rows)).unwrap();
            assert_eq!(Mark::open(&path).unwrap().1, Found::Noted(place(epoch, expected)));
            assert_eq!(std::fs::metadata(&path).unwrap().len(), RECORD_BYTES as u64);
        }
        for torn in [&b"e1.9 00000000"[..], &[0xff, 0xfe]] {
            std::fs::write(&path, torn).unwrap();
            assert_eq!(Mark::open(&path).unwrap().1, Found::Unreadable);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
