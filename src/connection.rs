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
use crate::time::{Instant, Millis, earliest};
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

/// What the server said it can do. What is absent is not asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Can {
    pub replay: bool,
    pub snapshot: bool,
    pub heads: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    #[default]
    Idle,
    /// A token is awaited, then the dial follows.
    Token,
    Dialing(Instant),
    Greeting(Instant),
    Live,
    /// `None`: frozen, waits for a page event.
    Offline(Option<Instant>),
    Stopped,
    Closed,
}

/// A call of `getToken` that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TokenCall {
    id: u32,
    deadline: Instant,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Act {
    Nothing,
    /// Call `getToken`.
    GetToken {
        id: u32,
        attempt: u32,
    },
    /// The call of `getToken` is void.
    CancelToken {
        id: u32,
    },
    /// Open a socket of this generation.
    Dial {
        generation: u32,
    },
    /// Send a token that was refreshed on a live socket.
    Auth,
    Ping {
        id: u32,
    },
    /// The socket must go: it is silent, or took too long.
    Replace,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    state: State,
    generation: u32,
    /// Whether there was a dial before.
    dialed: bool,
    /// Attempts since the last stable connection.
    attempts: u32,
    /// A token was refused since the last stable connection.
    refused: bool,
    live_since: Instant,
    /// `retryAfter`: not before this.
    not_before: Option<Instant>,
    shortened: Option<Instant>,
    token: Option<TokenCall>,
    /// A token was fetched that no dial has used yet.
    fresh: bool,
    /// After a refused token: not before this, however fast the next token comes.
    pause: Option<Instant>,
    /// The last token call's id, and the last ping's.
    calls: u32,
    pub can: Can,
    heartbeat: Option<Millis>,
    heard: Instant,
    /// The next ping of a connection that pings at intervals.
    ping_at: Option<Instant>,
    /// A ping that must be answered until then.
    pong: Option<(u32, Instant)>,
    /// The page woke, or a request timed out: ping after the messages that wait.
    probe_at: Option<Instant>,
    bad_frames: u32,
    count: Option<u64>,
}

impl Connection {
    pub(crate) fn state(&self) -> ConnectionState {
        match self.state {
            State::Idle => ConnectionState::Idle,
            State::Token if !self.dialed => ConnectionState::Idle,
            State::Token | State::Offline(_) => ConnectionState::Offline,
            State::Dialing(_) | State::Greeting(_) => ConnectionState::Connecting,
            State::Live => ConnectionState::Live,
            State::Stopped => ConnectionState::Stopped,
            State::Closed => ConnectionState::Closed,
        }
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Commands may be sent.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Greeting(_) | State::Live)
    }

    /// Requests may be sent: `welcome` said which.
    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    pub(crate) fn has_socket(&self) -> bool {
        matches!(self.state, State::Dialing(_) | State::Greeting(_) | State::Live)
    }

    pub(crate) fn is_current(&self, generation: u32) -> bool {
        self.has_socket() && generation == self.generation
    }

    /// When the next dial is due, if one is armed.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        match self.state {
            State::Offline(at) => at,
            _ => None,
        }
    }

    /// The application wants a connection.
    pub(crate) fn connect(&mut self, now: Instant, config: &Config) -> Act {
        match self.state {
            State::Idle | State::Stopped | State::Offline(_) => self.start(now, config),
            _ => Act::Nothing,
        }
    }

    /// A subscription wants a connection, which does not overrule `stop`.
    pub(crate) fn want(&mut self, now: Instant, config: &Config) -> Act {
        match self.state {
            State::Idle => self.start(now, config),
            _ => Act::Nothing,
        }
    }

    fn start(&mut self, now: Instant, config: &Config) -> Act {
        if config.get_token && !self.fresh && !(zoo::has(Bug::KeepOldToken) && self.dialed) {
            self.state = State::Token;
            self.ask_token(now, config)
        } else {
            self.dial(now, config)
        }
    }

    fn ask_token(&mut self, now: Instant, config: &Config) -> Act {
        if self.token.is_some() {
            return Act::Nothing;
        }
        self.calls += 1;
        self.token = Some(TokenCall { id: self.calls, deadline: now + config.timeout.user });
        Act::GetToken { id: self.calls, attempt: self.attempts }
    }

    fn dial(&mut self, now: Instant, config: &Config) -> Act {
        self.generation += 1;
        self.dialed = true;
        self.not_before = None;
        self.fresh = false;
        self.pause = None;
        self.state = State::Dialing(now + config.timeout.connect);
        Act::Dial { generation: self.generation }
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
        if self.token.is_none_or(|call| call.id != id) {
            return (Act::Nothing, false);
        }
        self.token = None;
        match self.state {
            State::Token if ok => match self.pause.filter(|&at| at > now) {
                Some(at) => {
                    self.fresh = true;
                    self.state = State::Offline(Some(at));
                    (Act::Nothing, false)
                }
                None => (self.dial(now, config), false),
            },
            State::Token => {
                self.schedule(now, config, jitter);
                (Act::Nothing, true)
            }
            State::Greeting(_) | State::Live if ok => (Act::Auth, false),
            _ => (Act::Nothing, !ok),
        }
    }

    /// The call of `getToken` that is under way, which is void from now on.
    pub(crate) fn take_token(&mut self) -> Option<u32> {
        self.token.take().map(|call| call.id)
    }

    /// The server wants a fresh token on this socket.
    pub(crate) fn refresh(&mut self, now: Instant, config: &Config) -> Act {
        if config.get_token && self.is_open() { self.ask_token(now, config) } else { Act::Nothing }
    }

    pub(crate) fn opened(&mut self, now: Instant) {
        if let State::Dialing(deadline) = self.state {
            self.state = State::Greeting(deadline);
        }
        self.heard = now;
        self.heartbeat = None;
        self.ping_at = None;
        self.pong = None;
        self.probe_at = None;
        self.bad_frames = 0;
        self.count = None;
        self.can = Can::default();
    }

    pub(crate) fn welcomed(&mut self, now: Instant, config: &Config, heartbeat: Option<Millis>, can: Can) -> bool {
        if !matches!(self.state, State::Greeting(_)) {
            return false;
        }
        self.state = State::Live;
        if zoo::has(Bug::ResetBackoffOnAccept) {
            self.attempts = 0;
        }
        self.live_since = now;
        self.can = can;
        self.heartbeat = heartbeat.map(|interval| interval.clamp(HEARTBEAT_RANGE.0, HEARTBEAT_RANGE.1));
        self.ping_at = self.ping_interval(config).map(|interval| now + interval);
        true
    }

    /// The interval of pings that go out whatever arrives (R28).
    fn ping_interval(&self, config: &Config) -> Option<Millis> {
        config.ping.or(if self.heartbeat.is_none() { Some(PING_INTERVAL) } else { None })
    }

    pub(crate) fn heard(&mut self, at: Instant) {
        self.heard = self.heard.max(at);
    }

    pub(crate) fn pong(&mut self, id: u32) {
        if self.pong.is_some_and(|(sent, _)| id <= sent) {
            self.pong = None;
        }
    }

    /// Counts a frame's `n`; true when frames are missing before it (R21).
    pub(crate) fn counted(&mut self, n: u64) -> bool {
        let hole = self.count.is_some_and(|last| n > last + 1);
        if self.count.is_none_or(|last| n > last) {
            self.count = Some(n);
        }
        hole
    }

    /// Counts a bad frame; true when there were too many on this socket (R11).
    pub(crate) fn bad_frame(&mut self, config: &Config) -> bool {
        self.bad_frames += 1;
        self.has_socket() && self.bad_frames >= config.max_bad_frames
    }

    fn is_stable(&self, now: Instant, config: &Config) -> bool {
        self.state == State::Live && now.since(self.live_since) >= config.backoff.stable
    }

    fn note_stability(&mut self, now: Instant, config: &Config) -> bool {
        let stable = self.is_stable(now, config);
        if stable {
            self.attempts = 0;
            self.refused = false;
        }
        stable
    }

    /// The socket ended and the position may be resumed: arm the next dial.
    pub(crate) fn lost(&mut self, now: Instant, config: &Config, jitter: &mut Jitter) {
        self.note_stability(now, config);
        self.schedule(now, config, jitter);
    }

    /// We ended the socket. A stable one is dialed again at once.
    pub(crate) fn replaced(&mut self, now: Instant, config: &Config, jitter: &mut Jitter) -> Act {
        if self.note_stability(now, config) && self.not_before.is_none() {
            return self.start(now, config);
        }
        self.schedule(now, config, jitter);
        Act::Nothing
    }

    /// The server refused the token. The flag tells that it was the second time (R27).
    pub(crate) fn refused(&mut self, now: Instant, config: &Config, jitter: &mut Jitter) -> (Act, bool) {
        self.note_stability(now, config);
        if self.refused || !config.get_token {
            self.schedule(now, config, jitter);
            return (Act::Nothing, true);
        }
        self.refused = true;
        self.pause = Some(now + config.backoff.min);
        self.token = None;
        self.state = State::Token;
        (self.ask_token(now, config), false)
    }

    pub(crate) fn stop(&mut self) {
        self.state = State::Stopped;
        self.token = None;
        self.attempts = 0;
        self.refused = false;
    }

    /// Nothing needs a connection.
    pub(crate) fn idle(&mut self) {
        self.state = State::Idle;
        self.token = None;
    }

    /// The page is put away; a page event will dial.
    pub(crate) fn freeze(&mut self) {
        if self.has_socket() || matches!(self.state, State::Token | State::Offline(_)) {
            self.state = State::Offline(None);
            self.token = None;
        }
    }

    /// The application closes. What was asked of it is void.
    pub(crate) fn close(&mut self) -> Act {
        self.state = State::Closed;
        match self.token.take() {
            Some(call) => Act::CancelToken { id: call.id },
            None => Act::Nothing,
        }
    }

    fn schedule(&mut self, now: Instant, config: &Config, jitter: &mut Jitter) {
        self.fresh = false;
        self.pause = None;
        let backoff = &config.backoff;
        let mut bound = backoff.base;
        for _ in 0..self.attempts {
            bound = bound.saturating_mul(u64::from(backoff.factor)).min(backoff.cap);
            if bound == backoff.cap {
                break;
            }
        }
        self.attempts = self.attempts.saturating_add(1);
        let at = now + jitter.between(backoff.min, bound.max(backoff.min));
        self.token = None;
        self.state = State::Offline(Some(self.not_before.map_or(at, |not_before| at.max(not_before))));
    }

    /// `goodbye` or an `error` asked for a wait before the next dial.
    pub(crate) fn retry_after(&mut self, now: Instant, wait: Millis) {
        let at = now + wait.min(RETRY_AFTER_CAP);
        self.not_before = Some(self.not_before.map_or(at, |other| other.max(at)));
        if let State::Offline(Some(due)) = self.state {
            self.state = State::Offline(Some(due.max(at)));
        }
    }

    /// A page event: shortens the wait, at most once in a while and never against `retryAfter` (R26).
    pub(crate) fn shorten(&mut self, now: Instant, config: &Config) -> Act {
        let State::Offline(due) = self.state else {
            return Act::Nothing;
        };
        if self.not_before.is_some_and(|not_before| not_before > now) {
            if due.is_none() {
                self.state = State::Offline(self.not_before);
            }
            return Act::Nothing;
        }
        let paced = self.shortened.is_some_and(|at| now.since(at) < SHORTEN_PACE);
        if paced && due.is_some() {
            return Act::Nothing;
        }
        self.shortened = Some(now);
        self.start(now, config)
    }

    /// Find out whether the socket is alive, after the messages that wait (one task).
    pub(crate) fn probe(&mut self, now: Instant) {
        if self.is_open() && self.pong.is_none() && self.probe_at.is_none() {
            self.probe_at = Some(now);
        }
    }

    /// The page slept: deadlines that passed meanwhile prove nothing.
    pub(crate) fn rearm(&mut self, now: Instant, config: &Config) {
        match &mut self.state {
            State::Dialing(deadline) | State::Greeting(deadline) if *deadline <= now => {
                *deadline = now + config.timeout.connect
            }
            _ => {}
        }
        if let Some(call) = &mut self.token
            && call.deadline <= now
        {
            call.deadline = now + config.timeout.user;
        }
        if let Some((_, deadline)) = &mut self.pong
            && *deadline <= now
        {
            *deadline = now + config.timeout.probe;
        }
        if self.is_live() {
            if self.silence_at().is_some_and(|at| at <= now) {
                self.heard = now;
            }
            if self.ping_at.is_some_and(|at| at <= now) {
                self.ping_at = self.ping_interval(config).map(|interval| now + interval);
            }
        }
    }

    fn silence_at(&self) -> Option<Instant> {
        let interval = self.heartbeat?;
        (self.is_live() && self.pong.is_none()).then(|| self.heard + 2 * interval)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let state = match self.state {
            State::Dialing(at) | State::Greeting(at) => Some(at),
            State::Offline(at) => at,
            _ => None,
        };
        let socket = if self.is_open() {
            let ping = if self.pong.is_none() { self.ping_at } else { None };
            let pong = self.pong.map(|(_, at)| at);
            earliest(earliest(ping, pong), earliest(self.probe_at, self.silence_at()))
        } else {
            None
        };
        let token = match self.state {
            State::Stopped | State::Closed => None,
            _ => self.token.map(|call| call.deadline),
        };
        earliest(earliest(state, socket), token)
    }

    /// What is due at `now`; to be called until it answers [`Act::Nothing`].
    pub(crate) fn handle_timeout(&mut self, now: Instant, config: &Config, jitter: &mut Jitter) -> Act {
        if let Some(call) = self.token
            && call.deadline <= now
        {
            self.token = None;
            if self.state == State::Token {
                self.schedule(now, config, jitter);
            }
            return Act::CancelToken { id: call.id };
        }
        match self.state {
            State::Dialing(at) | State::Greeting(at) if at <= now => return Act::Replace,
            State::Offline(Some(at)) if at <= now => return self.start(now, config),
            _ => {}
        }
        if !self.is_open() {
            return Act::Nothing;
        }
        if self.pong.is_some_and(|(_, at)| at <= now) {
            self.pong = None;
            if !zoo::has(Bug::IgnoreSilence) {
                return Act::Replace;
            }
        }
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.pong.is_none() && (due(self.probe_at) || due(self.silence_at()) || due(self.ping_at)) {
            self.probe_at = None;
            self.ping_at =
                if self.is_live() { self.ping_interval(config).map(|interval| now + interval) } else { None };
            self.calls += 1;
            self.pong = Some((self.calls, now + config.timeout.probe));
            return Act::Ping { id: self.calls };
        }
        if due(self.probe_at) {
            // A ping is out already; its answer serves.
            self.probe_at = None;
        }
        Act::Nothing
    }
}
