//! Every limit of the gateway, with its unit and the reason for its size.

use std::time::Duration;

/// Bytes of one frame or HTTP body from a client. More than any command needs; the rules refuse it (G10).
pub const MAX_FRAME_BYTES: usize = 256 * 1024;

/// Bytes of a WebSocket message that are read at all. What lies between [`MAX_FRAME_BYTES`] and this is refused
/// with a close frame that the peer gets to see; what is larger is cut off.
pub const MAX_MESSAGE_BYTES: usize = 4 * MAX_FRAME_BYTES;

/// Bytes that a socket keeps for reading. Commands are short, and it is most of what an idle socket weighs.
pub const READ_BUFFER_BYTES: usize = 4 * 1024;

/// Events in one page of a replay (G6): a page is made and sent in a few milliseconds.
pub const PAGE_EVENTS: usize = 500;

/// Bytes of one page of a replay (G6), and of one part of a large snapshot: no frame stalls the others long.
pub const PAGE_BYTES: usize = 256 * 1024;

/// Bytes of waiting frames that are joined into one message. Large enough that a busy socket sends few
/// messages (each costs a browser about 65 µs), small enough that the first frame is not kept waiting.
pub const BATCH_BYTES: usize = 64 * 1024;

/// Bytes that may wait for one socket before it counts as a slow reader and is closed with 1013 (G8): some
/// seconds of a busy stream, and a thousand such sockets still fit into a machine's memory.
pub const MAX_QUEUED_BYTES: usize = 4 * 1024 * 1024;

/// The least that [`MAX_QUEUED_BYTES`] can be set to: a page of a replay fits beside the share that answers may
/// fill, and half is left for live events.
pub const MIN_QUEUED_BYTES: usize = 4 * PAGE_BYTES;

/// The share of the queue that answers to requests may fill, so that they never close the socket themselves.
pub const ANSWER_SHARE: usize = 4;

/// Entities that one socket may subscribe to by name; topics are for more.
pub const MAX_SUBSCRIPTIONS: usize = 1_000;

/// Entities that one socket may follow, members of topics included: twice the largest topic we test.
pub const MAX_FOLLOWED: usize = 20_000;

/// Requests of one socket that may wait for their answer before no more commands are read from it.
pub const MAX_PENDING: usize = 25_000;

/// Requests answered in a row before live events get their turn again.
pub const ANSWERS_IN_A_ROW: usize = 64;

/// Messages read in a row before answers get their turn: a `behind` list of 20,000 members in frames of 64 KiB.
pub const MESSAGES_IN_A_ROW: usize = 16;

/// Bytes of replays and snapshots that one socket may ask for within [`REPLAY_WINDOW`].
pub const MAX_REPLAY_BYTES: usize = 64 * 1024 * 1024;

/// The window of [`MAX_REPLAY_BYTES`]: a page that reloads in a loop is slowed within a minute.
pub const REPLAY_WINDOW: Duration = Duration::from_secs(60);

/// Bytes of an entity's name: longer than any sensible name, short enough to appear in every frame.
pub const MAX_NAME_BYTES: usize = 256;

/// Bytes of an event's id, its status, and its `at`.
pub const MAX_WORD_BYTES: usize = 256;

/// Bytes of an entity's merged state; a snapshot of it is 16 parts.
pub const MAX_STATE_BYTES: usize = 4 * 1024 * 1024;

/// Names in one `add` or `remove` of a topic's event, so that the event fits one frame.
pub const MAX_TOPIC_CHANGE: usize = 2_000;

/// Writes that wait for the writer, of all partitions together; when there are more, posts are answered with 503.
pub const WRITER_QUEUE: usize = 4_096;

/// Writes in one transaction: enough to share the cost of an fsync, few enough to commit within milliseconds.
pub const WRITER_BATCH: usize = 512;

/// Partitions that a log in PostgreSQL gets unless it is told otherwise. Each makes batches smaller, which costs CPU, and
/// lets one more be flushed at the same time; `docs/deploy.md` has the figures.
pub const PARTITIONS: usize = 4;

/// Partitions that a log may have. Each costs every gateway a connection, and each has its row in every cursor.
pub const MAX_PARTITIONS: usize = 32;

/// Event ids remembered per entity once the log is trimmed (G3): a producer that retries does so much sooner.
pub const IDS_KEPT: u64 = 10_000;

/// Rows that the push reads from the log at a time.
pub const PUSH_ROWS: usize = 1_000;

/// How often the push looks at the log when nothing woke it.
pub const PUSH_POLL: Duration = Duration::from_secs(1);

/// How long until other gateways' commits are listened for again, once the connection for it was lost.
pub const LISTEN_RETRY: Duration = Duration::from_secs(1);

/// How long an answer waits for the push to hand out what the answer covers (G13). Only a push that hangs
/// takes so long.
pub const PUSH_PATIENCE: Duration = Duration::from_secs(2);

/// How long a socket may take for its hello (G10).
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// How long before a token's end its client is told: time for a refresh on a slow network.
pub const TOKEN_NOTICE: Duration = Duration::from_secs(30);

/// Heartbeat intervals whose changed heads a heartbeat carries (R21).
pub const HEARTBEAT_MEMORY: usize = 3;

/// The shortest silence of a client after which its socket is given up. Browsers answer our pings by
/// themselves, so silence means that nobody is there.
pub const SILENCE: Duration = Duration::from_secs(60);

/// Bad frames on one socket before it is closed.
pub const MAX_BAD_FRAMES: u32 = 20;

/// How long a closing socket may take to hear its close frame.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the gateway waits for its sockets and posts when it is told to stop.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(6);

/// `retryAfter` of a goodbye is spread over this many seconds per socket, so that a herd comes back at
/// about a hundred a second.
pub const SPREAD_PER_SOCKET: f64 = 0.01;

/// The least and the most that a goodbye's `retryAfter` is spread over, in seconds.
pub const SPREAD: (f64, f64) = (0.5, 30.0);

/// Entities in one answer of `GET /entities`.
pub const LIST_ENTITIES: usize = 1_000;

/// Events in one answer of `GET /entities/{name}/events`.
pub const LIST_EVENTS: usize = 1_000;
