//! Limits and delays, each with its unit and its reason.
//!
//! Names are those of the JavaScript options, with a dot for nesting: `timeout.replay` is
//! [`Timeout::replay`]. All times are milliseconds.

use crate::time::Millis;
use crate::zoo::{self, Bug};

/// The largest usable sequence number, 2^53−1: above it JSON numbers stop being exact in JavaScript (R11).
pub const MAX_SEQ: u64 = (1 << 53) - 1;

/// Snapshots asked without success before an entity is given up for now (ladder, rung 4).
pub const SNAPSHOT_TRIES: u8 = 5;

/// The longest wait between two snapshot requests, and the pace of an entity that was given up (ladder, rung 4).
pub const SNAPSHOT_CAP: Millis = 30_000;

/// Pace of snapshots asked because of a number that lies absurdly far ahead (R12).
pub const FAR_AHEAD_PACE: Millis = 30_000;

/// At most one snapshot per entity in this span because its history forked (R5).
pub const DIVERGED_PACE: Millis = 60_000;

/// Answers that must agree before an epoch is retired, a flapping one adopted, or a lagging server believed (R7, R14, R22).
pub const AGREEING_ANSWERS: u8 = 3;

/// Retired epochs remembered per entity (R7): a server that flips between more is adopted by its snapshots.
pub const RETIRED_EPOCHS: usize = 8;

/// Epochs under suspicion per entity at a time; frames of further ones are dropped, the snapshot decides anyway (R7).
pub const SUSPECT_EPOCHS: usize = 8;

/// Bytes held back over all entities: what a page can spare for reordering (R19).
pub const HELD_BYTES: u64 = 16 << 20;

/// Released final entities whose position and lock are remembered (R31).
pub const RELEASED_FINALS: usize = 4_096;

/// The first wait after an `error` answer, doubled to [`ERROR_CAP`] (ladder, rung 5).
pub const ERROR_BASE: Millis = 2_000;

/// The longest wait after an `error` answer.
pub const ERROR_CAP: Millis = 30_000;

/// The longest `retryAfter` that is honoured (R26): a typo in a server must not keep a page away for a day.
pub const RETRY_AFTER_CAP: Millis = 300_000;

/// Page events (`online`, `visible`, `pageshow`) shorten the wait for the next dial at most once in this span (R26).
pub const SHORTEN_PACE: Millis = 5_000;

/// A timer that fires later than this, or clocks that part by more, mean that the page slept (R28).
pub const WAKE_AFTER: Millis = 2_000;

/// The heartbeat interval is clamped to this range (R28).
pub const HEARTBEAT_RANGE: (Millis, Millis) = (5_000, 60_000);

/// Ping interval where the server promises no heartbeat (R28): below common idle timeouts of proxies (30–60 s).
pub const PING_INTERVAL: Millis = 25_000;

/// Close code when the client replaces a socket (R26); never 1000, which servers read as leaving for good.
pub const CLOSE_REPLACED: u16 = 4000;

/// Close code after too many bad frames (R11).
pub const CLOSE_BAD_FRAMES: u16 = 4002;

/// Close code when the application closes the client (R26).
pub const CLOSE_NORMAL: u16 = 1000;

/// Deadlines (R23, R25, R28, R30 and the ladder).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timeout {
    /// From dial to `welcome`.
    pub connect: Millis,
    /// From `subscribe` to its answer.
    pub subscribe: Millis,
    /// From `replay` to each page.
    pub replay: Millis,
    /// From `snapshot` or `heads` to the answer.
    pub snapshot: Millis,
    /// From a ping that probes to its pong.
    pub probe: Millis,
    /// For anything awaited from user code.
    pub user: Millis,
}

/// Waits between dials (R26): uniform in `[min, bound]`; the bound starts at `base`, grows by `factor`, ends at `cap`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    pub min: Millis,
    pub base: Millis,
    pub factor: u32,
    pub cap: Millis,
    /// A connection that lasted this long resets the count.
    pub stable: Millis,
}

/// The class of a close code (R27).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseClass {
    /// Resume from the positions.
    Resume,
    /// 1000: resume while something is unfinished.
    Normal,
    /// Positions are void.
    Anew,
    /// The token was refused.
    Auth,
    /// Nothing is scheduled.
    Stop,
}

/// Close codes by class (R27). A code in none of the lists means: resume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Codes {
    /// Codes that would be in another class by default but mean resume here; wins over the other lists.
    pub resume: Vec<u16>,
    /// Forget positions, buffers and ids; keep the shown state, locks and token.
    pub anew: Vec<u16>,
    /// Refresh the token and dial at once.
    pub auth: Vec<u16>,
    /// Nothing is scheduled until `connect()`.
    pub stop: Vec<u16>,
}

impl Codes {
    /// No lists: for drivers that classify codes themselves.
    pub const NONE: Codes = Codes { resume: Vec::new(), anew: Vec::new(), auth: Vec::new(), stop: Vec::new() };

    /// The class of a code. The list `resume` wins.
    #[must_use]
    pub fn classify(&self, code: u16) -> CloseClass {
        if self.resume.contains(&code) {
            CloseClass::Resume
        } else if self.stop.contains(&code) {
            CloseClass::Stop
        } else if self.anew.contains(&code) {
            CloseClass::Anew
        } else if self.auth.contains(&code) {
            CloseClass::Auth
        } else if code == CLOSE_NORMAL {
            CloseClass::Normal
        } else {
            CloseClass::Resume
        }
    }
}

/// The buffer of early events (R3, R19).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GapLimits {
    /// How long simple reordering may take before anything is asked (ladder, rung 1).
    pub grace: Millis,
    /// Held events per entity.
    pub max_events: usize,
    /// Bytes of frame text held per entity.
    pub max_bytes: u64,
}

/// Everything that can be tuned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    pub timeout: Timeout,
    pub backoff: Backoff,
    pub codes: Codes,
    pub gap: GapLimits,
    /// `tries.replay`: replay requests before the snapshot rung.
    pub replay_tries: u8,
    /// `requests.max`: entities with a recovery request out at a time (R20).
    pub max_requests: usize,
    /// `badFrames.max`: bad frames on one socket before it is closed (R11).
    pub max_bad_frames: u32,
    /// `maxAhead`: the largest believable distance between position and event (R12).
    pub max_ahead: u64,
    /// How long an entity outlives its last subscriber (R31).
    pub linger: Millis,
    /// `ping`: interval of pings sent whatever arrives; `None`: only where no heartbeat is promised (R28).
    pub ping: Option<Millis>,
    /// `reconcile`: how often quiet entities are checked where the server can't send heads (R21).
    pub reconcile: Millis,
    /// Whether a token must be fetched before every dial (R29).
    pub get_token: bool,
}

impl Config {
    /// The defaults, without close codes.
    pub(crate) const DEFAULT: Config = Config {
        timeout: Timeout {
            connect: 15_000,
            subscribe: 5_000,
            replay: 3_000,
            snapshot: 5_000,
            probe: 5_000,
            user: 15_000,
        },
        backoff: Backoff { min: 100, base: 500, factor: 2, cap: 20_000, stable: 5_000 },
        codes: Codes::NONE,
        gap: GapLimits { grace: 100, max_events: 1_000, max_bytes: 1 << 20 },
        replay_tries: 2,
        max_requests: 16,
        max_bad_frames: 20,
        max_ahead: 100_000,
        linger: 1_000,
        ping: None,
        reconcile: 30_000,
        get_token: false,
    };
}

impl Default for Config {
    fn default() -> Self {
        let codes = Codes { resume: vec![], anew: vec![4009], auth: vec![4401], stop: vec![4400, 4403] };
        Config { codes, ..Config::DEFAULT }
    }
}

/// How an entity's events follow each other (rules, section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Continuity {
    /// `'+1'`: every number once; a `prev` other than seq−1 is a bad frame.
    #[default]
    PlusOne,
    /// `'range'`: an event covers first..seq.
    Range,
    /// `'prev'`: each event names its predecessor.
    Prev,
    /// `'none'`: arrival order.
    None,
}

/// What to do about a gap (rules, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnGap {
    /// Ask for the missing events; a snapshot is the fallback.
    Replay,
    /// Ask for the current state.
    Snapshot,
    /// Let the newest win.
    Skip,
}

/// Whether a new epoch may reopen a final entity (R8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reopen {
    #[default]
    Never,
    Epoch,
}

/// What a model declares about its entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Model {
    /// Its entities are topics: their subscription covers their members (R39).
    pub topic: bool,
    pub continuity: Continuity,
    /// `None`: `Snapshot` for [`Continuity::Prev`], else `Replay`.
    pub on_gap: Option<OnGap>,
    /// `overlap: 'absolute'`: a range that straddles the position may be applied (R2).
    pub overlap_absolute: bool,
    pub reopen: Reopen,
    /// The number that means "everything before is void".
    pub reset_seq: Option<u64>,
    /// Event ids remembered per entity (R5, R6); 0 turns the ring off.
    pub ids: u16,
    /// `replay: 'whole'`: nothing of a replay is applied before it is done.
    pub replay_whole: bool,
}

impl Default for Model {
    fn default() -> Self {
        Model::DEFAULT
    }
}

impl Model {
    pub(crate) const DEFAULT: Model = Model {
        topic: false,
        continuity: Continuity::PlusOne,
        on_gap: None,
        overlap_absolute: false,
        reopen: Reopen::Never,
        reset_seq: None,
        ids: 32,
        replay_whole: false,
    };

    /// Whether distances between numbers mean something (R12).
    pub(crate) fn measures(&self) -> bool {
        matches!(self.continuity, Continuity::PlusOne | Continuity::Range)
            && self.on_gap != Some(OnGap::Skip)
            && !zoo::has(Bug::BelieveFarAhead)
    }

    /// What a gap leads to, with the default of the continuity filled in.
    #[must_use]
    pub fn on_gap(&self) -> OnGap {
        self.on_gap.unwrap_or(match self.continuity {
            Continuity::Prev => OnGap::Snapshot,
            _ => OnGap::Replay,
        })
    }
}
