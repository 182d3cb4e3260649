//! An entity's line: its number, status and state, as a batch of writes raises them.
//!
//! Every store keeps lines; what a write makes of one is decided here.

use inorder::wire::DecodeError;
use serde_json::Value;

use super::{Write, Written};
use crate::limits::{IDS_KEPT, MAX_STATE_BYTES};
use crate::model::Model;

/// An entity's line, kept while a batch is written.
#[derive(Clone, Debug)]
pub struct Line {
    /// The highest number.
    pub seq: u64,
    /// The status.
    pub status: Option<String>,
    /// When the last change happened, as JSON text.
    pub at: Option<String>,
    /// The state; of topics it is kept by member, not here.
    pub state: Value,
    /// The row of the last change.
    pub row: u64,
    /// The lowest number whose event is kept.
    pub oldest: u64,
    /// The highest row that was trimmed.
    pub trimmed: u64,
    /// It is not any more as it was read.
    pub changed: bool,
}

impl Default for Line {
    fn default() -> Self {
        Line { seq: 0, status: None, at: None, state: Value::Null, row: 0, oldest: 1, trimmed: 0, changed: false }
    }
}

impl Line {
    /// Takes a change with the next number, or says why it is refused.
    ///
    /// # Errors
    /// When the data is not what the writer lets through.
    pub fn take(&mut self, model: &Model, write: &Write) -> Result<Result<(), Written>, DecodeError> {
        if model.is_closed(self.status.as_deref()) {
            return Ok(Err(Written::Terminal { status: self.status.clone().unwrap_or_default() }));
        }
        if let (Some(data), None) = (&write.data, &write.topic) {
            let mut state = self.state.clone();
            model.reduce.apply(&mut state, data)?;
            if state.to_string().len() > MAX_STATE_BYTES {
                return Ok(Err(Written::TooLarge));
            }
            self.state = state;
        }
        self.seq += 1;
        self.at = Some(write.at.text().to_owned());
        if write.status.is_some() {
            self.status.clone_from(&write.status);
        }
        self.changed = true;
        Ok(Ok(()))
    }

    /// The lowest number that is kept when `retain` events are; `None` when there is nothing to trim.
    pub fn kept_from(&self, retain: Option<u64>) -> Option<u64> {
        let oldest = (self.seq + 1).saturating_sub(retain?).max(1);
        (oldest > self.oldest).then_some(oldest)
    }

    /// The lowest number whose id is remembered when events are kept from `oldest` on (G3).
    pub fn ids_kept_from(&self, oldest: u64) -> u64 {
        oldest.min(self.seq.saturating_sub(IDS_KEPT))
    }
}
