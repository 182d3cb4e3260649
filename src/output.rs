//! What goes out: changes to show, and what the driver has to do.

use crate::connection::ConnectionState;
use crate::entity::{EntityId, Epoch, NOBODY, Position, Seq, Status, Sync};
use crate::ids::EventId;
use crate::recovery::Request;

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
    /// A member that is behind, of the `subscribe` before it.
    Behind,
}

/// An [`Output`] as it waits, and as it crosses to JavaScript: numbers, of which each kind uses its own.
///
/// A command is as many of them as it names entities, with the same request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Out<P> {
    pub kind: Kind,
    /// The position went back; of `subscribe` whether to add the cursor.
    pub reset: bool,
    pub locks: bool,
    /// The entity; of others the generation, the id of the token call.
    pub subject: u32,
    /// The kind of change, sync, fault, state, close code, attempt, kind of command.
    pub code: u32,
    pub epoch: Epoch,
    pub status: Status,
    pub bytes: u32,
    /// Of a command; of a ping its id.
    pub request: Request,
    pub prev: Seq,
    pub seq: Seq,
    pub id: EventId,
    /// Numbers that are missing or were passed over, first and last; a time.
    pub from: u64,
    pub to: u64,
    pub payload: Option<P>,
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
            request: 0,
            prev: 0,
            seq: 0,
            id: EventId::NONE,
            from: NOTHING,
            to: NOTHING,
            payload: None,
        }
    }
}

impl<P> Out<P> {
    /// What it means. A command has more items, so that is for [`Client::poll_output`] to collect.
    ///
    /// [`Client::poll_output`]: crate::Client::poll_output
    pub(crate) fn output(self) -> Option<Output<P>> {
        let out = self;
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
            Kind::Send => return None,
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
    pub(crate) const ALL: [Fault; 12] = [
        Fault::BadFrame,
        Fault::FarAhead,
        Fault::AfterFinal,
        Fault::Diverged,
        Fault::EpochFlapping,
        Fault::AuthFailed,
        Fault::TokenFailed,
        Fault::Forbidden,
        Fault::NotFound,
        Fault::Server,
        Fault::GaveUp,
        Fault::Stopped,
    ];
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
    /// The command that begins with an item.
    fn of<P>(out: &Out<P>) -> Option<Command> {
        let request = out.request;
        let mut command = if out.is(Sent::Hello) {
            Command::Hello
        } else if out.is(Sent::Auth) {
            Command::Auth
        } else if out.is(Sent::Ping) {
            Command::Ping { id: request }
        } else if out.is(Sent::Subscribe) {
            Command::Subscribe { request, entities: Vec::new() }
        } else if out.is(Sent::Unsubscribe) {
            Command::Unsubscribe { entities: Vec::new() }
        } else if out.is(Sent::Replay) {
            Command::Replay { request, ranges: Vec::new() }
        } else if out.is(Sent::Snapshot) {
            Command::Snapshot { request, entities: Vec::new() }
        } else if out.is(Sent::Heads) {
            Command::Heads { request, entities: Vec::new() }
        } else {
            return None;
        };
        command.add(out);
        Some(command)
    }

    /// Adds another item.
    fn add<P>(&mut self, out: &Out<P>) {
        let entity = EntityId(out.subject);
        let position = (out.epoch != Epoch::NONE).then_some(Position { epoch: out.epoch, seq: out.seq });
        match self {
            Command::Hello | Command::Auth | Command::Ping { .. } => {}
            Command::Subscribe { entities, .. } if out.is(Sent::Behind) => {
                if let Some(resume) = entities.last_mut() {
                    resume.behind.push((entity, position));
                }
            }
            Command::Subscribe { entities, .. } => {
                entities.push(Resume { entity, position, behind: Vec::new(), cursor: out.reset });
            }
            Command::Replay { ranges, .. } => {
                let to = (out.to != NOTHING).then_some(out.to);
                ranges.push(Range { entity, epoch: out.epoch, from: out.from, to });
            }
            Command::Unsubscribe { entities }
            | Command::Snapshot { entities, .. }
            | Command::Heads { entities, .. } => entities.push(entity),
        }
    }
}

impl<P> Out<P> {
    fn is(&self, sent: Sent) -> bool {
        self.kind == Kind::Send && self.code == sent as u32
    }

    /// Whether it belongs to the command that begins with `first`.
    fn continues(&self, first: &Out<P>) -> bool {
        let same = self.code == first.code || self.is(Sent::Behind) && first.is(Sent::Subscribe);
        self.kind == Kind::Send && same && self.request == first.request
    }

    /// The command that begins here, with the rest of it from what waits behind.
    pub(crate) fn command(&self, waiting: &mut Vec<Out<P>>, mut at: usize) -> Option<Command> {
        let mut command = Command::of(self)?;
        while let Some(out) = waiting.get(at) {
            if out.continues(self) {
                command.add(out);
                waiting.remove(at);
            } else {
                at += 1;
            }
        }
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, Kind, Out, Sent};
    use crate::entity::{EntityId, Epoch};

    fn sent(kind: Sent, request: u32, entity: u32) -> Out<()> {
        Out { kind: Kind::Send, code: kind as u32, request, subject: entity, epoch: Epoch::NONE, ..Out::default() }
    }

    /// Pings are numbered by themselves, so that one may have the number of a request.
    #[test]
    fn a_command_takes_what_is_its_own_and_leaves_the_rest() {
        let first = sent(Sent::Subscribe, 1, 5);
        let mut waiting = vec![
            sent(Sent::Ping, 1, 0),
            sent(Sent::Behind, 1, 6),
            sent(Sent::Subscribe, 2, 7),
            sent(Sent::Subscribe, 1, 8),
        ];
        let Some(Command::Subscribe { request: 1, entities }) = first.command(&mut waiting, 0) else {
            panic!("a subscribe");
        };
        let named: Vec<EntityId> = entities.iter().map(|resume| resume.entity).collect();
        assert_eq!(named, [5, 8].map(EntityId));
        assert_eq!(entities[0].behind, [(EntityId(6), None)]);
        assert_eq!(waiting, [sent(Sent::Ping, 1, 0), sent(Sent::Subscribe, 2, 7)]);
        let ping = waiting.remove(0);
        waiting.push(sent(Sent::Behind, 1, 6));
        assert_eq!(ping.command(&mut waiting, 0), Some(Command::Ping { id: 1 }));
        assert_eq!(waiting.len(), 2);
    }
}
