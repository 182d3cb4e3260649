//! What comes in.

use crate::entity::{Epoch, Seq, Status};
use crate::ids::EventId;
use crate::recovery::Request;

/// An event as the wire gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    pub epoch: Epoch,
    /// What the wire gave as `prev`, or as `first` minus one.
    pub prev: Option<Seq>,
    /// `None` if it carries no number, which only `continuity: 'none'` allows.
    pub seq: Option<Seq>,
    pub id: EventId,
    pub status: Status,
    pub has_data: bool,
    /// Its share of the frame's text (R19).
    pub bytes: u32,
}

/// A whole snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The request it answers; pushed if there is none.
    pub request: Option<Request>,
    pub epoch: Epoch,
    pub seq: Seq,
    pub status: Status,
}

/// The classes of `error` frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    Forbidden,
    NotFound,
    TokenExpiring,
    Other,
}
