//! The high-water mark beside the database: how far the log was ever known to have come.
//!
//! A log that is put back (an older copy restored, a failover to a lagging replica) looks like any
//! other from the inside, and would give numbers that clients have seen to other changes. So the writer
//! notes the row that it committed last in a file beside the database, synced before anyone is told
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

/// Bytes of the record: it fits one sector, so that a crash leaves the old or the new one.
const RECORD_BYTES: usize = 64;

/// The open mark file.
#[derive(Debug)]
pub struct Mark {
    file: File,
    last: Option<Noted>,
}

/// What a mark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The epoch.
    pub epoch: String,
    /// The last row of the log that was committed.
    pub row: u64,
}

/// What was found in a mark's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: the file is new.
    Nothing,
    /// Something torn.
    Unreadable,
    /// What was noted last.
    Noted(Noted),
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

    /// Notes a position, synced to the disk when this returns. Of one epoch only the highest counts.
    ///
    /// # Errors
    /// When the file can't be written; nothing may then be told about the commit.
    pub fn note(&mut self, noted: Noted) -> std::io::Result<()> {
        if self.last.as_ref().is_some_and(|last| last.epoch == noted.epoch && last.row >= noted.row) {
            return Ok(());
        }
        let record = format!("{} {}", noted.epoch, noted.row);
        let line = format!("{record} {:08x}", checksum(record.as_bytes()));
        let padded = format!("{line:<width$}\n", width = RECORD_BYTES - 1);
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(padded.as_bytes())?;
        self.file.sync_data()?;
        self.last = Some(noted);
        Ok(())
    }
}

fn parse(text: &str) -> Option<Noted> {
    let line = text.lines().next()?.trim_end();
    let (record, sum) = line.rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != checksum(record.as_bytes()) {
        return None;
    }
    let (epoch, row) = record.split_once(' ')?;
    Some(Noted { epoch: epoch.to_owned(), row: row.parse().ok()? })
}

/// FNV-1a: it only has to notice a torn record.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_what_was_noted_and_a_torn_one_says_nothing() {
        let folder = std::env::temp_dir().join(format!("inorder-mark-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = Mark::beside(&folder.join("log.db"));
        let (mut mark, found) = Mark::open(&path).unwrap();
        assert_eq!(found, Found::Nothing);
        for (epoch, row, expected) in [("e1", 7, 7), ("e1", 123_456, 123_456), ("e1", 8, 123_456), ("e2", 8, 8)] {
            mark.note(Noted { epoch: epoch.to_owned(), row }).unwrap();
            let expected = Noted { epoch: epoch.to_owned(), row: expected };
            assert_eq!(Mark::open(&path).unwrap().1, Found::Noted(expected));
        }
        for torn in [&b"e1 9 00000000"[..], &[0xff, 0xfe]] {
            std::fs::write(&path, torn).unwrap();
            assert_eq!(Mark::open(&path).unwrap().1, Found::Unreadable);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
