//! What goes out: changes to show, and what the driver has to do.

use crate::connection::ConnectionState;
use crate::entity::{EntityId, Epoch, Position, Seq, Status, Sync};
use crate::ids::EventId;
use crate::recovery::Request;

/// What the driver has to do. One queue, one total order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output<P> {
    Change(Change<P>),
    /// A payload that will never be shown.
    Discard(P),
    Sync {
        entity: EntityId,
        sync: Sync,
    },
    /// Numbers are missing, first and last.
    Gap {
        entity: EntityId,
        from: Seq,
        to: Seq,
    },
    Final {
        entity: EntityId,
    },
    Fault {
        entity: Option<EntityId>,
        fault: Fault,
    },
    /// The entity's name may be dropped; its id will be used for another.
    Forgotten {
        entity: EntityId,
    },
    /// The state of the connection, or the time of the next dial, changed.
    Connection(ConnectionState),
    /// Open a socket; what it does is reported with this generation.
    Dial {
        generation: u32,
    },
    /// Detach the handlers of this generation's socket, then close it.
    Close {
        generation: u32,
        code: u16,
    },
    /// Call `getToken` and report with this id.
    GetToken {
        id: u32,
        attempt: u32,
    },
    /// Abort that call; its result is void.
    CancelToken {
        id: u32,
    },
    Send(Command),
}

/// What kind of change is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChangeKind {
    Event = 0,
    Snapshot = 1,
}

/// A change whose position is committed: reduce it and show it.
///
/// Then, before the next [`Client::poll_output`]: [`Client::lock`] if it is terminal or `locks` is set,
/// [`Client::rollback`] if it could not be reduced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change<P> {
    pub entity: EntityId,
    pub kind: ChangeKind,
    pub epoch: Epoch,
    /// An event covers (prev, seq].
    pub prev: Seq,
    pub seq: Seq,
    pub status: Status,
    pub id: EventId,
    /// The position went back or changed its epoch: what was shown before is void.
    pub reset: bool,
    /// Numbers that were passed over, first and last (R16).
    pub skipped: Option<(Seq, Seq)>,
    /// Final whatever its status says.
    pub locks: bool,
    /// The event's share of its frame's text, for a rollback.
    pub bytes: u32,
    pub payload: Option<P>,
}

/// Something that was wrong, for the application to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fault {
    /// A frame could not be read or carries no usable number (R11).
    BadFrame = 0,
    /// A number lies absurdly far ahead (R12).
    FarAhead = 1,
    /// A change came for a final entity and was refused (R8).
    AfterFinal = 2,
    /// Two events share a number: the history forked (R5).
    Diverged = 3,
    /// The server went back to an epoch that was over (R7).
    EpochFlapping = 4,
    /// The token was refused twice (R27).
    AuthFailed = 5,
    /// `getToken` failed or took too long (R29).
    TokenFailed = 6,
    /// The server refuses this entity.
    Forbidden = 7,
    /// The server does not know this entity.
    NotFound = 8,
    /// The server answered with another error.
    Server = 9,
    /// Five snapshots were asked in vain; tried again every 30 s.
    GaveUp = 10,
    /// The server told the client to stop (R27).
    Stopped = 11,
}

/// Where to resume an entity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resume {
    pub entity: EntityId,
    /// `None`: from a snapshot.
    pub position: Option<Position>,
    /// For a topic: members that were not live at its cursor, with their positions.
    pub behind: Vec<(EntityId, Option<Position>)>,
    /// For a topic: whether the driver should add the cursor.
    pub cursor: bool,
}

/// Missing numbers to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    pub entity: EntityId,
    pub epoch: Epoch,
    pub from: Seq,
    /// `None`: up to the head.
    pub to: Option<Seq>,
}

/// What the client says to the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    Hello,
    Auth,
    Subscribe { request: Request, entities: Vec<Resume> },
    Unsubscribe { entities: Vec<EntityId> },
    Replay { request: Request, ranges: Vec<Range> },
    Snapshot { request: Request, entities: Vec<EntityId> },
    Heads { request: Request, entities: Vec<EntityId> },
    Ping { id: u32 },
}

/// The verdict on an event that needs nothing but numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[must_use]
pub enum Verdict {
    /// Nothing was decided: hand it to [`Client::handle_event`].
    Slow = 0,
    /// Committed: reduce it and show it.
    Apply = 1,
    /// Committed; there is nothing to show.
    Advance = 2,
    /// A duplicate or straggler, counted.
    Drop = 3,
}
