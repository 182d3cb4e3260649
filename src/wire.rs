//! The frames of `inorder.v1.json`: what a server and a client may say, as Rust values.
//!
//! For native users: gateways, tests and Rust clients. The browser does not come here: there
//! `JSON.parse` reads a frame once and only numbers cross into WebAssembly.
//!
//! Writing is serde's: [`ServerFrame`] and [`ClientFrame`] serialise with `type` first and the other
//! keys in the order of the protocol's tables; what is absent is left out. Reading is
//! [`ServerFrame::decode`] and [`ClientFrame::decode`], which are tolerant in the protocol's sense:
//! unknown types and unknown fields are passed over, of duplicate keys the last one counts, a `null`
//! in an optional field is its absence (but `data: null` is data), and one bad frame of a batch
//! leaves the others usable.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The WebSocket subprotocol that these frames belong to.
pub const SUBPROTOCOL: &str = "inorder.v1.json";

/// The highest usable seq, 2^53 − 1: the largest integer that JavaScript's numbers hold exactly.
pub const MAX_SEQ: u64 = (1 << 53) - 1;

/// JSON text that is carried and not looked into: an event's `data`, a snapshot's state, `params`, `at`.
///
/// Cheap to clone. Two are equal when their text is equal, byte for byte.
#[derive(Clone)]
pub struct Data(Arc<RawValue>);

impl Data {
    /// Takes JSON text as it is, after checking that it is JSON.
    ///
    /// # Errors
    /// When `text` is not exactly one JSON value.
    pub fn from_text(text: String) -> Result<Self, DecodeError> {
        RawValue::from_string(text).map(|raw| Data(raw.into())).map_err(|error| DecodeError::Json(error.to_string()))
    }

    /// Writes a value as JSON.
    ///
    /// # Errors
    /// When `value` can't be written as JSON (a map whose keys are not strings, say).
    pub fn from_value<T: Serialize + ?Sized>(value: &T) -> Result<Self, DecodeError> {
        serde_json::value::to_raw_value(value)
            .map(|raw| Data(raw.into()))
            .map_err(|error| DecodeError::Json(error.to_string()))
    }

    /// The JSON `null`.
    #[must_use]
    pub fn null() -> Self {
        Data(RawValue::NULL.to_owned().into())
    }

    /// The text, as it came or as it will go out.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Reads the text as a value of type `T`.
    ///
    /// # Errors
    /// When the text does not have the shape of `T`.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, DecodeError> {
        serde_json::from_str(self.text()).map_err(|error| DecodeError::Json(error.to_string()))
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Data {}

impl std::hash::Hash for Data {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Data(raw.into()))
    }
}

/// The id of a request or a ping: the client's choice, a string or a whole number, echoed as it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Id {
    /// A whole number.
    Number(u64),
    /// A string.
    Text(String),
}

impl From<u64> for Id {
    fn from(number: u64) -> Self {
        Id::Number(number)
    }
}

impl From<&str> for Id {
    fn from(text: &str) -> Self {
        Id::Text(text.to_owned())
    }
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerFrame {
    /// The connection is accepted; the first frame of a socket.
    Welcome(Welcome),
    /// One live change.
    Event(Event),
    /// The whole state, or a part of it; an answer if it has a `request`.
    Snapshot(Snapshot),
    /// The entity is followed from here on.
    Subscribed(Subscribed),
    /// A page of the changes that were asked for.
    Replay(Replay),
    /// What was asked for is no longer kept.
    Gone(Gone),
    /// The position that was named is above the server's head.
    Ahead(Ahead),
    /// Numbers that will never exist.
    Vacant(Vacant),
    /// An answer: nothing follows any more.
    Final(Final),
    /// Continuity was lost.
    Discontinuity(Discontinuity),
    /// The server lives; heads of what changed lately.
    Heartbeat(Heartbeat),
    /// The heads that were asked for.
    Heads(Heads),
    /// The answer to a ping.
    Pong(Pong),
    /// Something was refused.
    Error(Error),
    /// The server is about to close.
    Goodbye(Goodbye),
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientFrame {
    /// The first frame of a socket; commands may follow at once.
    Hello(Hello),
    /// A fresh token.
    Auth(Auth),
    /// Follow these entities, from a position if one is named.
    Subscribe(Subscribe),
    /// Follow these entities no longer.
    Unsubscribe(Unsubscribe),
    /// Send these changes again.
    Replay(ReplayRequest),
    /// Send the whole state of these entities.
    Snapshot(EntitiesRequest),
    /// Send the heads of these entities.
    Heads(EntitiesRequest),
    /// Answer with a pong.
    Ping(Ping),
}

/// `welcome`: what this server promises and can do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Welcome {
    /// Seconds between two heartbeats; absent if none are promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<f64>,
    /// Of `replay`, `snapshot`, `heads` what may be asked for.
    pub can: Vec<String>,
}

/// `event`: one change of one entity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// The entity's name.
    pub entity: String,
    /// The incarnation of the numbering; empty where none is given.
    pub epoch: String,
    /// The number of the change; absent only where continuity is `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The number before the first that this change covers; seq − 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev: Option<u64>,
    /// The first number that this change covers, another way to say `prev` = `first` − 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// The id that the producer gave the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The entity's status from this change on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// When it happened, for display, in whatever form the producer likes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Data>,
    /// What changed. Absent: the state is left as it is; `null` is data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
}

/// One entry of a `replay`'s `events`: an [`Event`] less what its page says already.
///
/// An entry may repeat `type`, `entity` and `epoch`; they are passed over, the page's count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// As in [`Event`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// As in [`Event`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev: Option<u64>,
    /// As in [`Event`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// As in [`Event`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// As in [`Event`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// As in [`Event`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Data>,
    /// As in [`Event`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
}

/// `snapshot`: the whole state as of a position.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// The entity's name.
    pub entity: String,
    /// The incarnation of the numbering; empty where none is given.
    pub epoch: String,
    /// The position; absent only where continuity is `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The entity's status at this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// When the last change happened, for display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Data>,
    /// The state, or one part of it.
    pub data: Data,
    /// The request that this answers; absent when it is pushed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Id>,
    /// Which part this is, from 1; absent when it is whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<u64>,
    /// How many parts there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
}

/// `subscribed`: the entity is followed; what lies between the named position and `head` is sent next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Subscribed {
    /// The request that this answers.
    pub request: Id,
    /// The entity's name.
    pub entity: String,
    /// The incarnation of the numbering.
    pub epoch: String,
    /// The highest seq that the server has.
    pub head: u64,
    /// Topics: where the log stood, to be named at a resume. Opaque.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// `replay`: a page of the changes that were asked for; only `done` ends it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// The request that this answers.
    pub request: Id,
    /// The entity's name.
    pub entity: String,
    /// The incarnation of the numbering.
    pub epoch: String,
    /// The changes, in order.
    pub events: Vec<Replayed>,
    /// Ranges, both ends included, of numbers that will never exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vacant: Vec<Range>,
    /// Nothing more follows.
    pub done: bool,
}

/// Numbers `from` to `to`, both included; an array of two on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range(#[serde(deserialize_with = "seq")] pub u64, #[serde(deserialize_with = "seq")] pub u64);

/// `gone`: what was asked for was trimmed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gone {
    /// The request that this answers.
    pub request: Id,
    /// The entity's name.
    pub entity: String,
    /// The incarnation of the numbering.
    pub epoch: String,
    /// The lowest seq that is still kept.
    pub oldest: u64,
}

/// `ahead`: the position that was named is above the head.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ahead {
    /// The request that this answers.
    pub request: Id,
    /// The entity's name.
    pub entity: String,
    /// The incarnation of the numbering.
    pub epoch: String,
    /// The highest seq that the server has.
    pub head: u64,
}

/// `vacant`: the numbers `from` to `to`, both included, will never exist.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Vacant {
    /// The entity's name.
    pub entity: String,
    /// The incarnation of the numbering; empty where none is given.
    pub epoch: String,
    /// The first of them.
    pub from: u64,
    /// The last of them.
    pub to: u64,
}

/// `final`: nothing follows; the entity is locked at the position that was named.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Final {
    /// The request that this answers.
    pub request: Id,
    /// The entity's name.
    pub entity: String,
    /// The incarnation of the numbering; empty where none is given.
    pub epoch: String,
    /// The status that is final.
    pub status: String,
    /// The final state, if it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
}

/// `discontinuity`: something was lost on the way to the server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Discontinuity {
    /// The entity concerned; absent when any may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// Why, for people.
    pub reason: String,
}

/// The head of one entity; an array of three on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head(
    /// The entity's name.
    pub String,
    /// The epoch.
    #[serde(deserialize_with = "nullable")]
    pub String,
    /// The highest seq.
    #[serde(deserialize_with = "seq")]
    pub u64,
);

/// Where the log stood for one topic; an array of two on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(
    /// The topic's entity name, `topic/NAME`.
    pub String,
    /// Opaque.
    pub String,
);

/// `heartbeat`: the server lives, and these heads changed during the last three intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Heartbeat {
    /// The heads.
    pub heads: Vec<Head>,
    /// A fresh cursor for each topic that is followed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cursors: Vec<Cursor>,
}

/// `heads`: the heads that were asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Heads {
    /// The heads.
    pub heads: Vec<Head>,
    /// The request that this answers.
    pub request: Id,
}

/// `pong`: the answer to a ping.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pong {
    /// The ping's id.
    pub id: Id,
}

/// `error`: something was refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Error {
    /// What, for machines.
    pub code: String,
    /// What and what to do about it, for people.
    pub message: String,
    /// The request that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Id>,
    /// The entity that it failed for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// Seconds to wait before the next try.
    #[serde(rename = "retryAfter", skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<f64>,
}

/// `goodbye`: the server is about to close.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goodbye {
    /// Why, for people.
    pub reason: String,
    /// Seconds to wait before dialing again; spread, so that not all come at once.
    #[serde(rename = "retryAfter", skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<f64>,
}

/// `hello`: the first frame of a socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Hello {
    /// The token; absent where none is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// `name/version` of the client.
    pub client: String,
}

/// `auth`: a fresh token for this socket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Auth {
    /// The token.
    pub token: String,
}

/// `subscribe`: follow these entities.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Subscribe {
    /// Echoed by every answer.
    pub request: Id,
    /// One entry per entity.
    pub entities: Vec<Subscription>,
}

/// One entry of a `subscribe`.
///
/// An entity that is named again under the same request is the same subscription: its `behind` list was
/// too long for one frame, and this is more of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Subscription {
    /// The entity's name.
    pub entity: String,
    /// The epoch of `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// The position to go on from; absent when there is none, which is not 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Options of the subscription; the server's business.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Data>,
    /// Topics: the cursor that was named last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Topics: the members that were not live at the cursor.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
}

/// The position of one member of a topic; an array of three on the wire, `[entity, null, null]` where the
/// member has none (it is answered with a snapshot).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind(
    /// The member's name.
    pub String,
    /// The epoch.
    pub Option<String>,
    /// The position.
    #[serde(deserialize_with = "optional_seq")]
    pub Option<u64>,
);

/// `unsubscribe`: follow these entities no longer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unsubscribe {
    /// Their names.
    pub entities: Vec<String>,
}

/// `replay`: send these changes again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayRequest {
    /// Echoed by every answer.
    pub request: Id,
    /// One entry per entity.
    pub ranges: Vec<ReplayRange>,
}

/// One entry of a `replay` request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayRange {
    /// The entity's name.
    pub entity: String,
    /// The epoch of the numbers.
    pub epoch: String,
    /// The first number wanted.
    pub from: u64,
    /// The last number wanted; absent: up to the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}

/// `snapshot` and `heads`: send that of these entities.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntitiesRequest {
    /// Echoed by every answer.
    pub request: Id,
    /// Their names.
    pub entities: Vec<String>,
}

/// `ping`: answer with a pong of this id.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ping {
    /// Echoed.
    pub id: Id,
}

/// Why a frame can't be read. Each says in a sentence what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The text is not JSON.
    Json(String),
    /// The text is JSON but neither an object nor an array of objects.
    Shape,
    /// The frame has no `type`, or one that is not a string.
    MissingType,
    /// The frame lacks a field that its type needs.
    MissingField {
        /// The frame's type.
        frame: String,
        /// The field's name.
        field: &'static str,
    },
    /// A field has a value that can't be used.
    Field {
        /// The frame's type.
        frame: String,
        /// The field's name.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Json(reason) => write!(f, "The text is not JSON: {reason}."),
            DecodeError::Shape => {
                f.write_str("A frame is a JSON object, or an array of objects that is not nested; this is neither.")
            }
            DecodeError::MissingType => f.write_str("The frame has no `type`, which must be a string."),
            DecodeError::MissingField { frame, field } => {
                write!(f, "The `{frame}` frame has no `{field}`, which it needs.")
            }
            DecodeError::Field { frame, field, reason } => {
                write!(f, "The field `{field}` of the `{frame}` frame can't be used: {reason}.")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// A frame as it was received.
#[derive(Clone, Debug, PartialEq)]
pub struct Received<F> {
    /// The frame's number on its socket, if the sender counts.
    pub n: Option<u64>,
    /// The frame; `None` for a type that this version does not know, which is to be passed over.
    pub frame: Option<F>,
}

impl ServerFrame {
    /// Reads the frames of one message, each on its own.
    ///
    /// An empty array is no frame at all. Text that is neither an object nor an array is one bad frame.
    #[must_use]
    pub fn decode(text: &str) -> Vec<Result<Received<ServerFrame>, DecodeError>> {
        decode(text, server_frame)
    }
}

impl ClientFrame {
    /// Reads the frames of one message, each on its own, as [`ServerFrame::decode`] does.
    #[must_use]
    pub fn decode(text: &str) -> Vec<Result<Received<ClientFrame>, DecodeError>> {
        decode(text, client_frame)
    }
}

fn decode<F>(
    text: &str,
    read: impl Fn(&mut Fields<'_>) -> Result<Option<F>, DecodeError>,
) -> Vec<Result<Received<F>, DecodeError>> {
    let one = |text: &str| {
        let mut fields = Fields::of_frame(text)?;
        let n = fields.seq("n")?;
        let frame = read(&mut fields)?;
        Ok(Received { n, frame })
    };
    match first_byte(text) {
        Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(members) => members.into_iter().map(|member| one(member.get())).collect(),
            Err(error) => vec![Err(DecodeError::Json(error.to_string()))],
        },
        _ => vec![one(text)],
    }
}

fn first_byte(text: &str) -> Option<u8> {
    text.bytes().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

fn server_frame(f: &mut Fields<'_>) -> Result<Option<ServerFrame>, DecodeError> {
    let frame = match f.frame.as_str() {
        "welcome" => ServerFrame::Welcome(Welcome { heartbeat: f.optional("heartbeat")?, can: f.or_default("can")? }),
        "event" => ServerFrame::Event(Event {
            entity: f.required("entity")?,
            epoch: f.or_default("epoch")?,
            seq: f.seq("seq")?,
            prev: f.seq("prev")?,
            first: f.seq("first")?,
            id: f.optional("id")?,
            status: f.optional("status")?,
            at: f.optional("at")?,
            data: f.data("data")?,
        }),
        "snapshot" => ServerFrame::Snapshot(Snapshot {
            entity: f.required("entity")?,
            epoch: f.or_default("epoch")?,
            seq: f.seq("seq")?,
            status: f.optional("status")?,
            at: f.optional("at")?,
            data: f.data("data")?.ok_or_else(|| f.missing("data"))?,
            request: f.optional("request")?,
            part: f.seq("part")?,
            of: f.seq("of")?,
        }),
        "subscribed" => ServerFrame::Subscribed(Subscribed {
            request: f.required("request")?,
            entity: f.required("entity")?,
            epoch: f.or_default("epoch")?,
            head: f.required_seq("head")?,
            cursor: f.optional("cursor")?,
        }),
        "replay" => ServerFrame::Replay(Replay {
            request: f.required("request")?,
            entity: f.required("entity")?,
            epoch: f.or_default("epoch")?,
            events: f.list("events", |e| {
                Ok(Replayed {
                    seq: e.seq("seq")?,
                    prev: e.seq("prev")?,
                    first: e.seq("first")?,
                    id: e.optional("id")?,
                    status: e.optional("status")?,
                    at: e.optional("at")?,
                    data: e.data("data")?,
                })
            })?,
            vacant: f.or_default("vacant")?,
            done: f.required("done")?,
        }),
        "gone" => ServerFrame::Gone(Gone {
            request: f.required("request")?,
            entity: f.required("entity")?,
            epoch: f.or_default("epoch")?,
            oldest: f.required_seq("oldest")?,
        }),
        "ahead" => ServerFrame::Ahead(Ahead {
            request: f.required("request")?,
            entity: f.required("entity")?,
            epoch: f.or_default("epoch")?,
            head: f.required_seq("head")?,
        }),
        "vacant" => ServerFrame::Vacant(Vacant {
            entity: f.required("entity")?,
            epoch: f.or_default("epoch")?,
            from: f.required_seq("from")?,
            to: f.required_seq("to")?,
        }),
        "final" => ServerFrame::Final(Final {
            request: f.required("request")?,
            entity: f.required("entity")?,
            epoch: f.or_default("epoch")?,
            status: f.required("status")?,
            data: f.data("data")?,
        }),
        "discontinuity" => {
            ServerFrame::Discontinuity(Discontinuity { entity: f.optional("entity")?, reason: f.or_default("reason")? })
        }
        "heartbeat" => {
            ServerFrame::Heartbeat(Heartbeat { heads: f.or_default("heads")?, cursors: f.or_default("cursors")? })
        }
        "heads" => ServerFrame::Heads(Heads { heads: f.required("heads")?, request: f.required("request")? }),
        "pong" => ServerFrame::Pong(Pong { id: f.required("id")? }),
        "error" => ServerFrame::Error(Error {
            code: f.required("code")?,
            message: f.or_default("message")?,
            request: f.optional("request")?,
            entity: f.optional("entity")?,
            retry_after: f.optional("retryAfter")?,
        }),
        "goodbye" => {
            ServerFrame::Goodbye(Goodbye { reason: f.or_default("reason")?, retry_after: f.optional("retryAfter")? })
        }
        _ => return Ok(None),
    };
    Ok(Some(frame))
}

fn client_frame(f: &mut Fields<'_>) -> Result<Option<ClientFrame>, DecodeError> {
    let frame = match f.frame.as_str() {
        "hello" => ClientFrame::Hello(Hello { token: f.optional("token")?, client: f.or_default("client")? }),
        "auth" => ClientFrame::Auth(Auth { token: f.required("token")? }),
        "subscribe" => ClientFrame::Subscribe(Subscribe {
            request: f.required("request")?,
            entities: f.list("entities", |e| {
                Ok(Subscription {
                    entity: e.required("entity")?,
                    epoch: e.optional("epoch")?,
                    after: e.seq("after")?,
                    params: e.optional("params")?,
                    cursor: e.optional("cursor")?,
                    behind: e.or_default("behind")?,
                })
            })?,
        }),
        "unsubscribe" => ClientFrame::Unsubscribe(Unsubscribe { entities: f.required("entities")? }),
        "replay" => ClientFrame::Replay(ReplayRequest {
            request: f.required("request")?,
            ranges: f.list("ranges", |r| {
                Ok(ReplayRange {
                    entity: r.required("entity")?,
                    epoch: r.or_default("epoch")?,
                    from: r.required_seq("from")?,
                    to: r.seq("to")?,
                })
            })?,
        }),
        "snapshot" => ClientFrame::Snapshot(EntitiesRequest {
            request: f.required("request")?,
            entities: f.required("entities")?,
        }),
        "heads" => {
            ClientFrame::Heads(EntitiesRequest { request: f.required("request")?, entities: f.required("entities")? })
        }
        "ping" => ClientFrame::Ping(Ping { id: f.required("id")? }),
        _ => return Ok(None),
    };
    Ok(Some(frame))
}

/// The fields of one object, each still text. Of duplicate keys the last one counts.
struct Fields<'a> {
    frame: String,
    values: BTreeMap<Key<'a>, &'a RawValue>,
}

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Fields<'a> {
    fn of_frame(text: &'a str) -> Result<Self, DecodeError> {
        let mut fields = Fields { frame: String::new(), values: object(text)? };
        let kind = fields.raw("type").and_then(|raw| serde_json::from_str(raw.get()).ok());
        fields.frame = kind.ok_or(DecodeError::MissingType)?;
        Ok(fields)
    }

    fn raw(&self, name: &'static str) -> Option<&'a RawValue> {
        self.values.get(&Key(Cow::Borrowed(name))).copied()
    }

    fn missing(&self, field: &'static str) -> DecodeError {
        DecodeError::MissingField { frame: self.frame.clone(), field }
    }

    fn unusable(&self, field: &'static str, reason: impl fmt::Display) -> DecodeError {
        DecodeError::Field { frame: self.frame.clone(), field, reason: reason.to_string() }
    }

    fn optional<T: DeserializeOwned>(&self, name: &'static str) -> Result<Option<T>, DecodeError> {
        match self.raw(name) {
            None => Ok(None),
            Some(raw) => serde_json::from_str(raw.get()).map_err(|error| self.unusable(name, error)),
        }
    }

    fn required<T: DeserializeOwned>(&self, name: &'static str) -> Result<T, DecodeError> {
        self.optional(name)?.ok_or_else(|| self.missing(name))
    }

    fn or_default<T: DeserializeOwned + Default>(&self, name: &'static str) -> Result<T, DecodeError> {
        Ok(self.optional(name)?.unwrap_or_default())
    }

    fn data(&self, name: &'static str) -> Result<Option<Data>, DecodeError> {
        Ok(self.raw(name).map(|raw| Data(raw.to_owned().into())))
    }

    fn seq(&self, name: &'static str) -> Result<Option<u64>, DecodeError> {
        Ok(self.optional::<Seq>(name)?.map(|seq| seq.0))
    }

    fn required_seq(&self, name: &'static str) -> Result<u64, DecodeError> {
        self.seq(name)?.ok_or_else(|| self.missing(name))
    }

    fn list<T>(
        &self,
        name: &'static str,
        read: impl Fn(&mut Fields<'_>) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let raw = self.raw(name).ok_or_else(|| self.missing(name))?;
        let entries: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(|error| self.unusable(name, error))?;
        let one = |entry: &RawValue| {
            let values =
                object(entry.get()).map_err(|_| self.unusable(name, "every entry of the list must be an object"))?;
            read(&mut Fields { frame: self.frame.clone(), values })
        };
        entries.into_iter().map(one).collect()
    }
}

fn object(text: &str) -> Result<BTreeMap<Key<'_>, &RawValue>, DecodeError> {
    serde_json::from_str(text)
        .map_err(|error| if error.is_data() { DecodeError::Shape } else { DecodeError::Json(error.to_string()) })
}

/// A usable number: an integer from 0 to [`MAX_SEQ`], a JSON number or a string of decimal digits.
struct Seq(u64);

impl<'de> Deserialize<'de> for Seq {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SeqVisitor).map(Seq)
    }
}

fn seq<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(SeqVisitor)
}

fn optional_seq<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Seq>::deserialize(deserializer)?.map(|seq| seq.0))
}

fn nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

struct SeqVisitor;

impl Visitor<'_> for SeqVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer from 0 to 2^53 - 1, as a number or as decimal digits in a string")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        if value <= MAX_SEQ { Ok(value) } else { Err(E::invalid_value(de::Unexpected::Unsigned(value), &self)) }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(value), &self)),
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<u64, E> {
        // 7.0 and 7e0 are the integer 7 to JavaScript, which can't tell them apart.
        if value.fract() == 0.0 && (0.0..=MAX_SEQ as f64).contains(&value) {
            Ok(value as u64)
        } else {
            Err(E::invalid_value(de::Unexpected::Float(value), &self))
        }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<u64, E> {
        let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        match value.parse() {
            Ok(number) if digits => self.visit_u64(number),
            _ => Err(E::invalid_value(de::Unexpected::Str(value), &self)),
        }
    }
}
