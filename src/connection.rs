//! One socket at a time: dialing, backoff, heartbeat, close codes, tokens (R25–R29).
//!
//! ```text
//! Idle ─▶ Token ─▶ Dialing ─open─▶ Greeting ─welcome─▶ Live
//!           ▲                                             │
//!           └── the wait is over ── Offline ◀── it ended ─┘      Stopped, Closed: nothing is scheduled
//! ```
//!
//! This is a leaf: it answers with an [`Act`] and `client.rs` does it.

pub use crate::config::CloseClass;
use crate::config::{Config, HEARTBEAT_RANGE, PING_INTERVAL, RETRY_AFTER_CAP, SHORTEN_PACE};
use crate::jitter::Jitter;
use crate::time::{Instant, Millis};
use crate::zoo::{self, Bug};

/// How the connection stands, as shown to the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnectionState {
    /// Before the first dial, and when nothing needs a connection.
    #[default]
    Idle = 0,
    /// From a dial to its `welcome`.
    Connecting = 1,
    Live = 2,
    /// The next dial is armed or waited for.
    Offline = 3,
    /// Closed by the application.
    Closed = 4,
    /// Told to stop by a close code; `connect()` starts again.
    Stopped = 5,
}

impl ConnectionState {
    /// All of them, by their numbers.
    pub(crate) const ALL: [ConnectionState; 6] = [
        ConnectionState::Idle,
        ConnectionState::Connecting,
        ConnectionState::Live,
        ConnectionState::Offline,
        ConnectionState::Closed,
        ConnectionState::Stopped,
    ];
}

/// What the server said it can do. What is absent is not asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Can {
    pub replay: bool,
    pub snapshot: bool,
    pub heads: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
enum State {
    #[default]
    Idle,
    /// A token is awaited, then the dial follows.
    Token,
    /// Until `due`, as the next.
    Dialing,
    Greeting,
    Live,
    /// Until `due`; frozen if that is never: then a page event dials.
    Offline,
    Stopped,
    Closed,
}

/// What to do now; the numbers are in the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Act {
    Nothing,
    /// Call `getToken`.
    GetToken,
    /// The call of `getToken` took too long.
    CancelToken,
    /// Open a socket.
    Dial,
    /// Send a token that was refreshed on a live socket.
    Auth,
    Ping,
    /// The socket must go: it is silent, or took too long.
    Replace,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    state: State,
    /// When the state ends by itself.
    due: Instant,
    pub generation: u32,
    /// Whether there was a dial before.
    dialed: bool,
    /// A token was refused since the last stable connection.
    refused: bool,
    /// A token was fetched that no dial has used yet.
    fresh: bool,
    pub can: Can,
    /// Attempts since the last stable connection.
    pub attempts: u32,
    live_since: Instant,
    /// `retryAfter`: not before this.
    not_before: Instant,
    /// Page events shorten the wait again from then on.
    shortens_from: Instant,
    /// The last call of `getToken`, and until when it is awaited.
    pub token: u32,
    token_due: Instant,
    /// After a refused token: not before this, however fast the next token comes.
    pause: Instant,
    /// The interval of the promised heartbeat, 0 if none is promised.
    heartbeat: Millis,
    heard: Instant,
    /// The next ping of a connection that pings at intervals.
    ping_at: Instant,
    /// The last ping, and until when it must be answered.
    pub ping: u32,
    pong_due: Instant,
    /// The page woke, or a request timed out: ping after the messages that wait.
    probe_at: Instant,
    bad_frames: u32,
    /// The last `n`; `u64::MAX` before the first.
    count: u64,
}

impl Connection {
    /// Before the first dial.
    pub(crate) const IDLE: Connection = Connection {
        state: State::Idle,
        due: Instant::NEVER,
        generation: 0,
        dialed: false,
        refused: false,
        fresh: false,
        can: Can { replay: false, snapshot: false, heads: false },
        attempts: 0,
        live_since: Instant(0),
        not_before: Instant(0),
        shortens_from: Instant(0),
        token: 0,
        token_due: Instant::NEVER,
        pause: Instant(0),
        heartbeat: 0,
        heard: Instant(0),
        ping_at: Instant::NEVER,
        ping: 0,
        pong_due: Instant::NEVER,
        probe_at: Instant::NEVER,
        bad_frames: 0,
        count: u64::MAX,
    };

    pub(crate) fn state(&self) -> ConnectionState {
        match self.state {
            State::Idle => ConnectionState::Idle,
            State::Token if !self.dialed => ConnectionState::Idle,
            State::Token | State::Offline => ConnectionState::Offline,
            State::Dialing | State::Greeting => ConnectionState::Connecting,
            State::Live => ConnectionState::Live,
            State::Stopped => ConnectionState::Stopped,
            State::Closed => ConnectionState::Closed,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Commands may be sent.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Greeting | State::Live)
    }

    /// Requests may be sent: `welcome` said which.
    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    pub(crate) fn has_socket(&self) -> bool {
        matches!(self.state, State::Dialing | State::Greeting | State::Live)
    }

    pub(crate) fn is_current(&self, generation: u32) -> bool {
        self.has_socket() && generation == self.generation
    }

    /// When the next dial is due; never if none is armed.
    pub(crate) fn retry_at(&self) -> Instant {
        if self.state == State::Offline { self.due } else { Instant::NEVER }
    }

    #[inline(never)]
    fn enter(&mut self, state: State, due: Instant) {
        self.state = state;
        self.due = due;
    }

    /// The application wants a connection.
    pub(crate) fn connect(&mut self, now: Instant, config: &Config) -> Act {
        match self.state {
            State::Idle | State::Stopped | State::Offline => self.start(now, config),
            _ => Act::Nothing,
        }
    }

    /// A subscription wants a connection, which does not overrule `stop`.
    pub(crate) fn want(&mut self, now: Instant, config: &Config) -> Act {
        if self.state == State::Idle { self.start(now, config) } else { Act::Nothing }
    }

    #[inline(never)]
    fn start(&mut self, now: Instant, config: &Config) -> Act {
        if config.get_token && !self.fresh && !(zoo::has(Bug::KeepOldToken) && self.dialed) {
            self.enter(State::Token, Instant::NEVER);
            return self.ask_token(now, config);
        }
        self.generation += 1;
        self.dialed = true;
        self.not_before = Instant(0);
        self.fresh = false;
        self.pause = Instant(0);
        self.enter(State::Dialing, now + config.timeout.connect);
        Act::Dial
    }

    #[inline(never)]
    fn ask_token(&mut self, now: Instant, config: &Config) -> Act {
        if self.token_due != Instant::NEVER {
            return Act::Nothing;
        }
        self.token += 1;
        self.token_due = now + config.timeout.user;
        Act::GetToken
    }

    /// `getToken` answered, in time or not. The flag tells whether the answer is a failed attempt (R29).
    pub(crate) fn token_came(
        &mut self,
        now: Instant,
        config: &Config,
        jitter: &mut Jitter,
        id: u32,
        ok: bool,
    ) -> (Act, bool) {
        if self.token_due == Instant::NEVER || self.token != id {
            return (Act::Nothing, false);
        }
        self.token_due = Instant::NEVER;
        let mut act = Act::Nothing;
        match self.state {
            State::Token if ok => {
                self.fresh = true;
                if self.pause > now {
                    self.enter(State::Offline, self.pause);
                } else {
                    act = self.start(now, config);
                }
            }
            State::Token => self.schedule(now, config, jitter),
            State::Greeting | State::Live if ok => act = Act::Auth,
            _ => {}
        }
        (act, !ok)
    }

    /// Whether a call of `getToken` is under way, which is void from now on.
    pub(crate) fn void_token(&mut self) -> bool {
        core::mem::replace(&mut self.token_due, Instant::NEVER) != Instant::NEVER
    }

    /// The server wants a fresh token on this socket.
    pub(crate) fn refresh(&mut self, now: Instant, config: &Config) -> Act {
        if config.get_token && self.is_open() { self.ask_token(now, config) } else { Act::Nothing }
    }

    pub(crate) fn opened(&mut self, now: Instant) {
        if self.state == State::Dialing {
            self.state = State::Greeting;
        }
        self.heard = now;
        self.heartbeat = 0;
        self.ping_at = Instant::NEVER;
        self.pong_due = Instant::NEVER;
        self.probe_at = Instant::NEVER;
        self.bad_frames = 0;
        self.count = u64::MAX;
        self.can = Can::default();
    }

    pub(crate) fn welcomed(&mut self, now: Instant, config: &Config, heartbeat: Option<Millis>, can: Can) -> bool {
        if self.state != State::Greeting {
            return false;
        }
        self.enter(State::Live, Instant::NEVER);
        if zoo::has(Bug::ResetBackoffOnAccept) {
            self.attempts = 0;
        }
        self.live_since = now;
        self.can = can;
        self.heartbeat = heartbeat.map_or(0, |interval| interval.clamp(HEARTBEAT_RANGE.0, HEARTBEAT_RANGE.1));
        self.arm_ping(now, config);
        true
    }

    /// Pings that go out whatever arrives (R28).
    fn arm_ping(&mut self, now: Instant, config: &Config) {
        self.ping_at = match config.ping {
            Some(interval) => now + interval,
            None if self.heartbeat == 0 => now + PING_INTERVAL,
            None => Instant::NEVER,
        };
    }

    pub(crate) fn heard(&mut self, at: Instant) {
        self.heard = self.heard.max(at);
    }

    pub(crate) fn pong(&mut self, id: u32) {
        if id <= self.ping {
            self.pong_due = Instant::NEVER;
        }
    }

    /// Counts a frame's `n`; true when frames are missing before it (R21).
    pub(crate) fn counted(&mut self, n: u64) -> bool {
        let first = self.count == u64::MAX;
        let hole = !first && n > self.count + 1;
        if first || n > self.count {
            self.count = n;
        }
        hole
    }

    /// Counts a bad frame; true when there were too many on this socket (R11).
    pub(crate) fn bad_frame(&mut self, config: &Config) -> bool {
        self.bad_frames += 1;
        self.has_socket() && self.bad_frames >= config.max_bad_frames
    }

    fn note_stability(&mut self, now: Instant, config: &Config) -> bool {
        let stable = self.is_live() && now.since(self.live_since) >= config.backoff.stable;
        if stable {
            self.attempts = 0;
            self.refused = false;
        }
        stable
    }

    /// The socket ended and the position may be resumed: arm the next dial.
    #[inline(never)]
    pub(crate) fn lost(&mut self, now: Instant, config: &Config, jitter: &mut Jitter) {
        self.note_stability(now, config);
        self.schedule(now, config, jitter);
    }

    /// We ended the socket. A stable one is dialed again at once.
    pub(crate) fn replaced(&mut self, now: Instant, config: &Config, jitter: &mut Jitter) -> Act {
        if self.note_stability(now, config) && self.not_before == Instant(0) {
            return self.start(now, config);
        }
        self.schedule(now, config, jitter);
        Act::Nothing
    }

    /// The server refused the token. Answers [`Act::Nothing`] if it was the second time (R27).
    pub(crate) fn refused(&mut self, now: Instant, config: &Config, jitter: &mut Jitter) -> Act {
        self.note_stability(now, config);
        if self.refused || !config.get_token {
            self.schedule(now, config, jitter);
            return Act::Nothing;
        }
        self.refused = true;
        self.pause = now + config.backoff.min;
        self.token_due = Instant::NEVER;
        self.enter(State::Token, Instant::NEVER);
        self.ask_token(now, config)
    }

    pub(crate) fn stop(&mut self) {
        self.enter(State::Stopped, Instant::NEVER);
        self.attempts = 0;
        self.refused = false;
    }

    /// Nothing needs a connection.
    pub(crate) fn idle(&mut self) {
        self.enter(State::Idle, Instant::NEVER);
    }

    /// The page is put away; a page event will dial.
    pub(crate) fn freeze(&mut self) {
        if self.has_socket() || matches!(self.state, State::Token | State::Offline) {
            self.enter(State::Offline, Instant::NEVER);
        }
    }

    /// The application closes.
    pub(crate) fn close(&mut self) {
        self.enter(State::Closed, Instant::NEVER);
    }

    #[inline(never)]
    fn schedule(&mut self, now: Instant, config: &Config, jitter: &mut Jitter) {
        self.fresh = false;
        self.pause = Instant(0);
        let backoff = &config.backoff;
        let mut bound = backoff.base;
        for _ in 0..self.attempts {
            bound = bound.saturating_mul(u64::from(backoff.factor)).min(backoff.cap);
            if bound == backoff.cap {
                break;
            }
        }
        self.attempts = self.attempts.saturating_add(1);
        let at = now + jitter.between(backoff.min, bound);
        self.token_due = Instant::NEVER;
        self.enter(State::Offline, at.max(self.not_before));
    }

    /// `goodbye` or an `error` asked for a wait before the next dial.
    pub(crate) fn retry_after(&mut self, now: Instant, wait: Millis) {
        self.not_before = self.not_before.max(now + wait.min(RETRY_AFTER_CAP));
        if self.state == State::Offline {
            // What is frozen stays so: a page event dials.
            self.due = self.due.max(self.not_before);
        }
    }

    /// A page event: shortens the wait, at most once in a while and never against `retryAfter` (R26).
    pub(crate) fn shorten(&mut self, now: Instant, config: &Config) -> Act {
        if self.state != State::Offline {
            return Act::Nothing;
        }
        let frozen = self.due == Instant::NEVER;
        if self.not_before > now {
            if frozen {
                self.due = self.not_before;
            }
            return Act::Nothing;
        }
        if self.shortens_from > now && !frozen {
            return Act::Nothing;
        }
        self.shortens_from = now + SHORTEN_PACE;
        self.start(now, config)
    }

    /// Find out whether the socket is alive, after the messages that wait (one task).
    #[inline(never)]
    pub(crate) fn probe(&mut self, now: Instant) {
        if self.is_open() && self.pong_due == Instant::NEVER {
            self.probe_at = self.probe_at.min(now);
        }
    }

    /// The page slept: deadlines that passed meanwhile prove nothing.
    pub(crate) fn rearm(&mut self, now: Instant, config: &Config) {
        if self.due <= now && self.state != State::Offline {
            self.due = now + config.timeout.connect;
        }
        if self.token_due <= now {
            self.token_due = now + config.timeout.user;
        }
        if self.pong_due <= now {
            self.pong_due = now + config.timeout.probe;
        }
        if self.ping_at <= now {
            self.arm_ping(now, config);
        }
    }

    /// When the promised heartbeat is missed.
    fn silence_at(&self) -> Instant {
        if self.is_live() && self.heartbeat > 0 { self.heard + 2 * self.heartbeat } else { Instant::NEVER }
    }

    /// When the next ping is due. None goes out while one is out.
    fn next_ping(&self) -> Instant {
        if self.pong_due == Instant::NEVER { self.ping_at.min(self.silence_at()) } else { Instant::NEVER }
    }

    /// When [`Connection::handle_timeout`] wants to be called.
    pub(crate) fn poll_timeout(&self) -> Instant {
        let at = self.due.min(self.token_due);
        if self.is_open() { at.min(self.pong_due).min(self.probe_at).min(self.next_ping()) } else { at }
    }

    /// What is due at `now`; to be called until it answers [`Act::Nothing`].
    pub(crate) fn handle_timeout(&mut self, now: Instant, config: &Config, jitter: &mut Jitter) -> Act {
        if self.token_due <= now {
            self.token_due = Instant::NEVER;
            if self.state == State::Token {
                self.schedule(now, config, jitter);
            }
            return Act::CancelToken;
        }
        if self.due <= now {
            return if self.state == State::Offline { self.start(now, config) } else { Act::Replace };
        }
        if !self.is_open() {
            return Act::Nothing;
        }
        if self.pong_due <= now {
            self.pong_due = Instant::NEVER;
            if !zoo::has(Bug::IgnoreSilence) {
                return Act::Replace;
            }
        }
        let probe = self.probe_at <= now;
        if probe {
            self.probe_at = Instant::NEVER;
        }
        // A ping that is out already serves a probe too.
        if self.pong_due == Instant::NEVER && (probe || self.next_ping() <= now) {
            self.probe_at = Instant::NEVER;
            self.ping_at = Instant::NEVER;
            if self.is_live() {
                self.arm_ping(now, config);
            }
            self.ping += 1;
            self.pong_due = now + config.timeout.probe;
            return Act::Ping;
        }
        Act::Nothing
    }
}
