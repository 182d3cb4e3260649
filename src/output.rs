//! What goes out: changes to show, and what the driver has to do.

use crate::connection::ConnectionState;
use crate::entity::{EntityId, Epoch, Position, Seq, Status, Sync};
use crate::ids::EventId;
use crate::recovery::Request;

/// Nobody, where an entity is asked for: no table is as large.
pub(crate) const NOBODY: EntityId = EntityId(u32::MAX);

/// "None" among numbers.
pub(crate) const NOTHING: u64 = u64::MAX;

/// The kinds of [`Out`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    Change = 1,
    Discard,
    Sync,
    Gap,
    Final,
    Fault,
    Forgotten,
    #[default]
    Connection,
    Dial,
    Close,
    GetToken,
    CancelToken,
    Send,
}

/// The kinds of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Sent {
    Hello = 0,
    Auth,
    Subscribe,
    Unsubscribe,
    Replay,
    Snapshot,
    Heads,
    Ping,
}

/// An [`Output`] as it waits, and as it crosses to JavaScript: numbers, of which each kind uses its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Out<P> {
    pub kind: Kind,
    pub reset: bool,
    pub locks: bool,
    /// The entity; of others the generation, the id of the token call, the request.
    pub subject: u32,
    /// The kind of change, sync, fault, state, close code, attempt, kind of command.
    pub code: u32,
    pub epoch: Epoch,
    pub status: Status,
    pub bytes: u32,
    pub prev: Seq,
    pub seq: Seq,
    pub id: EventId,
    /// Numbers that are missing or were passed over, first and last; a time.
    pub from: u64,
    pub to: u64,
    pub payload: Option<P>,
    /// Of a command. `subscribe`, for each entity: entity, epoch or nothing, seq, whether to add the cursor, how many
    /// are behind, then for each of those entity, epoch or nothing, seq. `replay`, for each range: entity, epoch, from,
    /// to or nothing. Others: entities.
    pub numbers: Vec<u64>,
}

impl<P> Default for Out<P> {
    fn default() -> Self {
        Out {
            kind: Kind::default(),
            reset: false,
            locks: false,
            subject: 0,
            code: 0,
            epoch: Epoch(0),
            status: Status::NONE,
            bytes: 0,
            prev: 0,
            seq: 0,
            id: EventId::NONE,
            from: NOTHING,
            to: NOTHING,
            payload: None,
            numbers: Vec::new(),
        }
    }
}

impl<P> From<Out<P>> for Option<Output<P>> {
    fn from(out: Out<P>) -> Self {
        let Out { subject, code, from, to, .. } = out;
        let entity = EntityId(subject);
        Some(match out.kind {
            Kind::Change => Output::Change(Change {
                entity,
                kind: if code == 0 { ChangeKind::Event } else { ChangeKind::Snapshot },
                epoch: out.epoch,
                prev: out.prev,
                seq: out.seq,
                status: out.status,
                id: out.id,
                reset: out.reset,
                skipped: (from != NOTHING).then_some((from, to)),
                locks: out.locks,
                bytes: out.bytes,
                payload: out.payload,
            }),
            Kind::Discard => Output::Discard(out.payload?),
            Kind::Sync => Output::Sync { entity, sync: *Sync::ALL.get(code as usize)? },
            Kind::Gap => Output::Gap { entity, from, to },
            Kind::Final => Output::Final { entity },
            Kind::Fault => {
                Output::Fault { entity: (entity != NOBODY).then_some(entity), fault: *Fault::ALL.get(code as usize)? }
            }
            Kind::Forgotten => Output::Forgotten { entity },
            Kind::Connection => Output::Connection(*ConnectionState::ALL.get(code as usize)?),
            Kind::Dial => Output::Dial { generation: subject },
            Kind::Close => Output::Close { generation: subject, code: code as u16 },
            Kind::GetToken => Output::GetToken { id: subject, attempt: code },
            Kind::CancelToken => Output::CancelToken { id: subject },
            Kind::Send => Output::Send(Command::read(code, subject, &out.numbers)?),
        })
    }
}

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

impl Fault {
    /// All of them, by their numbers.
    pub(crate) const ALL: [Fault; 12] = [Fault::BadFrame, Fault::FarAhead, Fault::AfterFinal, Fault::Diverged, Fault::EpochFlapping, Fault::AuthFailed, Fault::TokenFailed, Fault::Forbidden, Fault::NotFound, Fault::Server, Fault::GaveUp, Fault::Stopped];
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

impl Command {
    /// Reads a command's numbers, which [`Out`] describes.
    fn read(kind: u32, request: Request, numbers: &[u64]) -> Option<Command> {
        let mut rest = numbers.iter().copied();
        let mut next = move || rest.next();
        let named = |number: u64| EntityId(number as u32);
        let position = |epoch: u64, seq: u64| {
            (epoch != NOTHING).then_some(Position { epoch: Epoch(epoch as u32), seq })
        };
        let entities = || numbers.iter().map(|&number| named(number)).collect();
        const KINDS: [Sent; 8] = [
            Sent::Hello,
            Sent::Auth,
            Sent::Subscribe,
            Sent::Unsubscribe,
            Sent::Replay,
            Sent::Snapshot,
            Sent::Heads,
            Sent::Ping,
        ];
        Some(match *KINDS.get(kind as usize)? {
            Sent::Hello => Command::Hello,
            Sent::Auth => Command::Auth,
            Sent::Subscribe => {
                let mut entities = Vec::new();
                while let Some(entity) = next() {
                    let position_of_entity = position(next()?, next()?);
                    let cursor = next()? != 0;
                    let mut behind = Vec::new();
                    for _ in 0..next()? {
                        behind.push((named(next()?), position(next()?, next()?)));
                    }
                    entities.push(Resume { entity: named(entity), position: position_of_entity, behind, cursor });
                }
                Command::Subscribe { request, entities }
            }
            Sent::Unsubscribe => Command::Unsubscribe { entities: entities() },
            Sent::Replay => {
                let mut ranges = Vec::new();
                while let Some(entity) = next() {
                    let (epoch, from, to) = (Epoch(next()? as u32), next()?, next()?);
                    ranges.push(Range { entity: named(entity), epoch, from, to: (to != NOTHING).then_some(to) });
                }
                Command::Replay { request, ranges }
            }
            Sent::Snapshot => Command::Snapshot { request, entities: entities() },
            Sent::Heads => Command::Heads { request, entities: entities() },
            Sent::Ping => Command::Ping { id: request },
        })
    }
}
