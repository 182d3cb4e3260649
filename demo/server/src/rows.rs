//! How far the log has come: one row per partition.
//!
//! ```text
//!   entity ──hash──► partition 0   1 2 3 4 5 6
//!                    partition 1   1 2 3           rows 6.3.4
//!                    partition 2   1 2 3 4
//! ```
//!
//! In a partition whoever sees a row sees all below it; between partitions nothing of the kind holds. So where a
//! log with one partition is at a row, this one is at as many.

use std::sync::Arc;

use crate::limits::MAX_PARTITIONS;

/// The base of rows as text: short, since a cursor is in every heartbeat.
const BASE: u32 = 36;

/// A row of each partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows(Arc<[u64]>);

impl Rows {
    /// Before the first row of so many partitions.
    pub fn before_all(partitions: usize) -> Rows {
        Rows(vec![0; partitions].into())
    }

    /// The row of a log with one partition.
    pub fn one(row: u64) -> Rows {
        Rows([row].into())
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> usize {
        self.0.len()
    }

    /// The row of a partition; 0 if there is no such partition.
    pub fn of(&self, partition: usize) -> u64 {
        self.0.get(partition).copied().unwrap_or_default()
    }

    /// The rows, partition by partition.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }

    /// Whether no partition is behind `other`; never if they have not as many partitions.
    pub fn covers(&self, other: &Rows) -> bool {
        self.partitions() == other.partitions() && self.iter().zip(other.iter()).all(|(own, other)| own >= other)
    }

    /// Goes on to a row of a partition, unless it is there or further.
    pub fn raise(&mut self, partition: usize, row: u64) {
        if let Some(own) = Arc::make_mut(&mut self.0).get_mut(partition) {
            *own = row.max(*own);
        }
    }

    /// Goes on to where `other` is, in each partition.
    pub fn raise_all(&mut self, other: &Rows) {
        for (partition, row) in other.iter().enumerate() {
            self.raise(partition, row);
        }
    }

    /// The rows of all partitions together.
    pub fn total(&self) -> u64 {
        self.iter().sum()
    }

    /// How many rows of `last` are not reached.
    pub fn behind(&self, last: &Rows) -> u64 {
        last.iter().enumerate().map(|(partition, row)| row.saturating_sub(self.of(partition))).sum()
    }
}

impl FromIterator<u64> for Rows {
    fn from_iter<T: IntoIterator<Item = u64>>(rows: T) -> Rows {
        Rows(rows.into_iter().collect())
    }
}

/// A place in the log: the rows that it had come to under an epoch.
///
/// A client may name one at a resume, opaque to it; the mark beside a database says one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The epoch.
    pub epoch: Arc<str>,
    /// The last row of each partition.
    pub rows: Rows,
}

impl Cursor {
    /// Whether this place is `other` or further on, of the same epoch and as many partitions.
    pub fn covers(&self, other: &Cursor) -> bool {
        self.epoch == other.epoch && self.rows.covers(&other.rows)
    }

    /// Reads a cursor; `None` when it is not one of ours.
    pub fn read(text: &str) -> Option<Cursor> {
        let (epoch, rows) = text.split_once('.')?;
        let rows: Vec<u64> = rows
            .split('.')
            .map(|row| u64::from_str_radix(row, BASE).ok())
            .take(MAX_PARTITIONS + 1)
            .collect::<Option<_>>()?;
        (rows.len() <= MAX_PARTITIONS).then(|| Cursor { epoch: epoch.into(), rows: rows.into_iter().collect() })
    }

    /// Writes a cursor: `EPOCH.ROW.ROW…`.
    pub fn text(&self) -> String {
        let mut text = self.epoch.to_string();
        for row in self.rows.iter() {
            text.push('.');
            push_number(&mut text, row);
        }
        text
    }
}

fn push_number(text: &mut String, mut number: u64) {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit((number % u64::from(BASE)) as u32, BASE));
        number /= u64::from(BASE);
        if number == 0 {
            break;
        }
    }
    text.extend(digits.iter().rev());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[u64]) -> Rows {
        rows.iter().copied().collect()
    }

    #[test]
    fn rows_cover_what_no_partition_is_behind() {
        let table: [(&[u64], &[u64], bool); 6] = [
            (&[3, 3], &[3, 3], true),
            (&[3, 4], &[3, 3], true),
            (&[9, 2], &[3, 3], false),
            (&[9, 9, 9], &[3, 3], false),
            (&[9], &[3, 3], false),
            (&[], &[], true),
        ];
        for (own, other, expected) in table {
            assert_eq!(rows(own).covers(&rows(other)), expected, "{own:?} {other:?}");
        }
    }

    #[test]
    fn rows_only_rise() {
        let mut own = rows(&[5, 1]);
        own.raise(0, 3);
        own.raise(1, 2);
        own.raise(7, 9);
        assert_eq!(own, rows(&[5, 2]));
        own.raise_all(&rows(&[4, 8]));
        assert_eq!((own.clone(), own.total()), (rows(&[5, 8]), 13));
        assert_eq!((own.behind(&rows(&[7, 7])), own.behind(&rows(&[5, 8]))), (2, 0));
    }

    #[test]
    fn a_cursor_reads_what_it_wrote() {
        for of in [&[77][..], &[0, 1, 35, 36, u64::MAX], &[7; MAX_PARTITIONS]] {
            let cursor = Cursor { epoch: "ab".into(), rows: rows(of) };
            assert_eq!(Cursor::read(&cursor.text()), Some(cursor));
        }
        assert_eq!(Cursor { epoch: "k3".into(), rows: rows(&[36, 0, 1_000_000_035]) }.text(), "k3.10.0.gjdgyr");
        let long = format!("a{}", ".1".repeat(MAX_PARTITIONS + 1));
        for text in ["", "7", "a-7", "a.", "a.1.", "a..1", "a.-1", "a.1 2", "a.zzzzzzzzzzzzzzz", &long] {
            assert_eq!(Cursor::read(text), None, "{text}");
        }
    }
}
