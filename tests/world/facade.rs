//! A native model of the JavaScript facade: names, payloads, listeners and readers around the real core.
//!
//! It does what `pkg/src` does in a page: decodes frames, interns names, joins parts, reduces, locks,
//! calls listeners, encodes commands. It knows no socket and no clock: whoever drives it hands in
//! messages and the time, and takes what happened from [`Facade::take_trace`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use inorder::client::{
    Can, Change, ChangeKind, Client, Command, ConnectionState, EntityId, Epoch, ErrorCode, Event, EventId, Fault,
    ModelId, Output, Request, Resume, Seq, Snapshot, Status, Sync,
};
use inorder::config::{Config, Continuity, MAX_SEQ, Model, OnGap, Reopen};
use inorder::stats::Stats;
use inorder::time::Instant;
use serde_json::{Map, Value, json};

/// Changes that wait for one reader before it is told by a snapshot instead (R35).
const READER_QUEUE: usize = 1_000;

/// Parts of one snapshot; a server that announces more is not believed.
const MAX_PARTS: u64 = 10_000;

/// A command frame is split above this many bytes (R30).
const COMMAND_BYTES: usize = 64 * 1024;

/// Time between two animation frames in the model of `flush: 'frame'`, in ms.
const FRAME_MS: u64 = 16;

/// Page listeners that a connecting client keeps on window and document.
const PAGE_LISTENERS: u64 = 6;

/// A request id that no client gives: what an unreadable `request` becomes, so that nobody wants it.
const NO_REQUEST: Request = Request::MAX;

/// What arrived for an entity and may be shown. The core carries it and never looks inside.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Counts arrivals of this facade; tells two events with the same number apart.
    pub serial: u64,
    pub entity: String,
    pub seq: Option<Seq>,
    pub id: Option<String>,
    pub data: Option<Value>,
}

/// The payload of the core: shared, so that a driver can see whether the core still holds it.
#[derive(Clone, Debug)]
pub struct Payload(pub Rc<Arrival>);

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.0.serial == other.0.serial
    }
}
impl Eq for Payload {}
impl Hash for Payload {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.serial.hash(state);
    }
}

/// How a change becomes state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    Replace,
    /// RFC 7396.
    Merge,
    /// Merges, but throws where the data has a key `fail`.
    Strict,
    /// `{add, remove}` on a list of names (R39).
    Topic,
}

/// When listeners are called (R35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    Sync,
    Microtask,
    Frame,
}

/// Where tokens come from (R29).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokens {
    None,
    Given(String),
    /// `getToken`, answered at once with t1, t2 …
    Auto,
    /// `getToken`, answered by the driver.
    Asked,
}

/// The options of one model, as the facade keeps them.
#[derive(Clone, Debug)]
pub struct Shape {
    pub model: Model,
    pub reduce: Reduce,
    pub terminal: Vec<String>,
}

/// All options of a client.
#[derive(Clone, Debug)]
pub struct Options {
    pub config: Config,
    pub shape: Shape,
    /// Overrides by entity name.
    pub entities: BTreeMap<String, Shape>,
    pub flush: Flush,
    pub tokens: Tokens,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            config: Config::default(),
            shape: Shape {
                model: Model::default(),
                reduce: Reduce::Replace,
                terminal: ["completed", "failed", "cancelled"].map(str::to_owned).to_vec(),
            },
            entities: BTreeMap::new(),
            flush: Flush::Sync,
            tokens: Tokens::None,
        }
    }
}

impl Options {
    /// Reads flat options by the names of the rules; an unknown name or value is returned as the error.
    pub fn parse(options: &Map<String, Value>) -> Result<Options, String> {
        let mut read = Options::default();
        // The overrides of single entities start from the case's model, whatever the order of keys.
        for (key, value) in options.iter().filter(|(key, _)| *key != "entities") {
            if !read.shape.set(key, value)? {
                read.set(key, value)?;
            }
        }
        if let Some(Value::Object(entities)) = options.get("entities") {
            for (name, overrides) in entities {
                let mut shape = read.shape.clone();
                for (key, value) in overrides.as_object().into_iter().flatten() {
                    if !shape.set(key, value)? {
                        return Err(format!("entities.{name}.{key}"));
                    }
                }
                read.entities.insert(name.clone(), shape);
            }
        }
        Ok(read)
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let number = || value.as_u64().ok_or_else(|| key.to_owned());
        let codes = || -> Result<Vec<u16>, String> {
            let list = value.as_array().ok_or_else(|| key.to_owned())?;
            list.iter()
                .map(|code| code.as_u64().and_then(|c| u16::try_from(c).ok()))
                .collect::<Option<_>>()
                .ok_or_else(|| key.to_owned())
        };
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let config = &mut self.config;
        match key {
            "gap.grace" => config.gap.grace = number()?,
            "gap.maxEvents" => config.gap.max_events = small(number()?) as usize,
            "gap.maxBytes" => config.gap.max_bytes = number()?,
            "maxAhead" => config.max_ahead = number()?,
            "linger" => config.linger = number()?,
            "ping" => config.ping = Some(number()?),
            "reconcile" => config.reconcile = number()?,
            "timeout.replay" => config.timeout.replay = number()?,
            "timeout.snapshot" => config.timeout.snapshot = number()?,
            "timeout.subscribe" => config.timeout.subscribe = number()?,
            "timeout.connect" => config.timeout.connect = number()?,
            "timeout.probe" => config.timeout.probe = number()?,
            "timeout.user" => config.timeout.user = number()?,
            "tries.replay" => config.replay_tries = u8::try_from(number()?).unwrap_or(u8::MAX),
            "requests.max" => config.max_requests = small(number()?) as usize,
            "badFrames.max" => config.max_bad_frames = small(number()?),
            "backoff.min" => config.backoff.min = number()?,
            "backoff.base" => config.backoff.base = number()?,
            "backoff.factor" => config.backoff.factor = small(number()?),
            "backoff.cap" => config.backoff.cap = number()?,
            "backoff.stable" => config.backoff.stable = number()?,
            "codes.resume" => config.codes.resume = codes()?,
            "codes.anew" => config.codes.anew = codes()?,
            "codes.auth" => config.codes.auth = codes()?,
            "codes.stop" => config.codes.stop = codes()?,
            "flush" => {
                self.flush = match value.as_str() {
                    Some("sync") => Flush::Sync,
                    Some("microtask") => Flush::Microtask,
                    Some("frame") => Flush::Frame,
                    _ => return Err(key.to_owned()),
                }
            }
            "token" => {
                let token = value.as_str().ok_or_else(|| key.to_owned())?;
                self.tokens = Tokens::Given(token.to_owned());
            }
            "getToken" => {
                config.get_token = true;
                self.tokens = match value.as_str() {
                    Some("auto") => Tokens::Auto,
                    Some("steps") => Tokens::Asked,
                    _ => return Err(key.to_owned()),
                }
            }
            _ => return Err(key.to_owned()),
        }
        Ok(())
    }

    fn shape(&self, entity: &str) -> Shape {
        let mut shape = self.entities.get(entity).unwrap_or(&self.shape).clone();
        if entity.starts_with("topic/") {
            shape.reduce = Reduce::Topic;
            shape.model.topic = true;
        }
        shape
    }
}

impl Shape {
    /// Sets one option; false if it is not a model's option.
    fn set(&mut self, key: &str, value: &Value) -> Result<bool, String> {
        let text = value.as_str();
        let bad = || Err(key.to_owned());
        match key {
            "continuity" => {
                self.model.continuity = match text {
                    Some("+1") => Continuity::PlusOne,
                    Some("range") => Continuity::Range,
                    Some("prev") => Continuity::Prev,
                    Some("none") => Continuity::None,
                    _ => return bad(),
                }
            }
            "overlap" => {
                self.model.overlap_absolute = match (text, value) {
                    (Some("absolute"), _) => true,
                    (_, Value::Null) => false,
                    _ => return bad(),
                }
            }
            "reopen" => {
                self.model.reopen = match text {
                    Some("never") => Reopen::Never,
                    Some("epoch") => Reopen::Epoch,
                    _ => return bad(),
                }
            }
            "resetSeq" => {
                self.model.reset_seq = match value {
                    Value::Null | Value::Bool(false) => None,
                    _ => Some(seq_of(value).ok_or_else(|| key.to_owned())?),
                }
            }
            "onGap" => {
                self.model.on_gap = Some(match text {
                    Some("replay") => OnGap::Replay,
                    Some("snapshot") => OnGap::Snapshot,
                    Some("skip") => OnGap::Skip,
                    _ => return bad(),
                })
            }
            "ids" => {
                let ids = value.as_u64().ok_or_else(|| key.to_owned())?;
                self.model.ids = u16::try_from(ids).unwrap_or(u16::MAX);
            }
            "replay" => {
                self.model.replay_whole = match text {
                    Some("whole") => true,
                    Some("each") | None => false,
                    _ => return bad(),
                }
            }
            "reduce" => {
                self.reduce = match text {
                    Some("replace") => Reduce::Replace,
                    Some("merge") => Reduce::Merge,
                    Some("strict") => Reduce::Strict,
                    _ => return bad(),
                }
            }
            "terminal" => {
                let Some(list) = value.as_array() else {
                    return bad();
                };
                self.terminal = list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Whether a change was an event or a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Event,
    Snapshot,
}

/// A change as a listener or reader sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub entity: String,
    pub kind: Kind,
    pub seq: Option<Seq>,
    pub epoch: String,
    pub id: Option<String>,
    pub status: Option<String>,
    pub data: Value,
    pub reset: bool,
    pub skipped: Option<(Seq, Seq)>,
}

/// One thing that happened; the trace is the order in which things happened.
#[derive(Clone, Debug)]
pub enum Record {
    /// A change handed to the unnamed listener, or to the listener or reader named by `to`.
    Deliver {
        to: Option<String>,
        shown: Shown,
    },
    /// The core committed a change that shows something; `serial` is its arrival, 0 without one.
    Applied {
        serial: u64,
    },
    /// A command, as it goes out.
    Send {
        generation: u32,
        frame: Value,
    },
    Dial {
        generation: u32,
    },
    Close {
        generation: u32,
        code: u16,
    },
    /// A call of `getToken`.
    Token,
    /// Something was reported or counted.
    Flag {
        name: &'static str,
        entity: Option<String>,
        from: Option<Seq>,
        to: Option<Seq>,
    },
    Sync {
        entity: String,
        sync: Sync,
    },
    Connection(ConnectionState),
    /// A `getState` of a plan gave something else than the plan said.
    Refuted(String),
}

/// A call of the application.
#[derive(Clone, Debug)]
pub enum Call {
    Subscribe {
        entity: String,
        params: Option<Value>,
    },
    Unsubscribe {
        entity: String,
    },
    GetState {
        entity: String,
        gives: Map<String, Value>,
    },
    Listen {
        entity: String,
        name: String,
        throws: bool,
    },
    Changes {
        entity: String,
        name: String,
    },
    Read {
        name: String,
    },
    Connect,
    Close,
    Free,
    /// Returns an open promise; nothing waits for it.
    Promise,
    Resolve,
}

/// What a listener does when it is called at a number.
#[derive(Clone, Debug)]
pub struct Plan {
    pub entity: String,
    pub seq: Seq,
    pub calls: Vec<Call>,
}

/// What a socket brings.
#[derive(Clone, Debug)]
pub enum Message {
    Text(String),
    Binary(Vec<u8>),
}

struct View {
    name: String,
    shape: Shape,
    params: Option<Value>,
    /// The runner's own listener, which does nothing.
    heard: bool,
    listeners: Vec<(String, bool)>,
    readers: Vec<String>,
    state: Option<Value>,
    status: Option<String>,
    /// The last position that was shown; what is left of it when the core forgets it.
    shown: Option<(String, Seq)>,
    sync: Sync,
    recovering: bool,
    pending: Option<Shown>,
    cursor: Option<String>,
}

struct Reader {
    entity: String,
    queue: VecDeque<Shown>,
    /// The first number that no longer found room.
    missed: Option<Seq>,
    ended: bool,
}

struct Parts {
    epoch: String,
    seq: Seq,
    status: Option<String>,
    of: u64,
    have: BTreeMap<u64, Value>,
}

enum Joined {
    Waits,
    Unfit,
    Whole(Value),
}

/// Who subscribes.
enum Who {
    Runner,
    Listener(String, bool),
    Reader(String),
}

#[derive(Default)]
struct Names {
    list: Vec<String>,
    index: BTreeMap<String, u32>,
}

impl Names {
    fn intern(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.index.get(name) {
            return number;
        }
        let number = u32::try_from(self.list.len()).expect("fewer than 2^32 names");
        self.list.push(name.to_owned());
        self.index.insert(name.to_owned(), number);
        number
    }

    fn name(&self, number: u32) -> &str {
        self.list.get(number as usize).map_or("", String::as_str)
    }
}

/// A client as an application has it.
pub struct Facade {
    client: Client<Payload>,
    options: Options,
    now: u64,
    views: BTreeMap<EntityId, View>,
    names: BTreeMap<String, EntityId>,
    models: Vec<(Model, ModelId)>,
    epochs: Names,
    statuses: Names,
    parts: BTreeMap<(u32, Option<Request>), Parts>,
    parts_socket: u32,
    readers: BTreeMap<String, Reader>,
    plans: Vec<Plan>,
    dirty: Vec<EntityId>,
    frame_at: Option<u64>,
    token: Option<String>,
    tokens_given: u64,
    calls: Vec<(u32, bool)>,
    serial: u64,
    draining: bool,
    closed: bool,
    freed: bool,
    open_sockets: BTreeSet<u32>,
    counted: Stats,
    about: Option<String>,
    trace: Vec<Record>,
    arrived: Vec<Rc<Arrival>>,
}

impl Facade {
    pub fn new(options: Options, seed: u64) -> Facade {
        let client = Client::new(options.config.clone(), seed);
        let token = match &options.tokens {
            Tokens::Given(token) => Some(token.clone()),
            _ => None,
        };
        let mut facade = Facade {
            counted: client.stats().clone(),
            client,
            options,
            now: 0,
            views: BTreeMap::new(),
            names: BTreeMap::new(),
            models: Vec::new(),
            epochs: Names::default(),
            statuses: Names::default(),
            parts: BTreeMap::new(),
            parts_socket: 0,
            readers: BTreeMap::new(),
            plans: Vec::new(),
            dirty: Vec::new(),
            frame_at: None,
            token,
            tokens_given: 0,
            calls: Vec::new(),
            serial: 0,
            draining: false,
            closed: false,
            freed: false,
            open_sockets: BTreeSet::new(),
            about: None,
            trace: Vec::new(),
            arrived: Vec::new(),
        };
        // 0 is the epoch of a server that gives none, and "no status".
        facade.epochs.intern("");
        facade.statuses.intern("");
        facade
    }

    // ---- what a driver does -------------------------------------------------------------------

    /// Everything that happened since the last call.
    pub fn take_trace(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.trace)
    }

    /// The events and snapshots that reached the core since the last call.
    pub fn take_arrived(&mut self) -> Vec<Rc<Arrival>> {
        std::mem::take(&mut self.arrived)
    }

    /// Sets the clock; it must not go back.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// When something must be done by [`Facade::fire`], if anything waits for time.
    pub fn next_timer(&self) -> Option<u64> {
        if self.freed {
            return None;
        }
        let core = self.client.poll_timeout().map(|at| at.0);
        match (core, self.frame_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Runs the timers that are due.
    pub fn fire(&mut self) {
        if self.freed {
            return;
        }
        if self.frame_at.is_some_and(|at| at <= self.now) {
            self.frame_at = None;
            self.flush();
        }
        if self.client.poll_timeout().is_some_and(|at| at.0 <= self.now) {
            self.client.handle_timeout(self.at());
        }
        self.end_task();
    }

    /// The socket opened.
    pub fn opened(&mut self, generation: u32) {
        if self.listens(generation) {
            self.open_sockets.insert(generation);
            self.client.handle_opened(self.at(), generation);
            self.end_task();
        }
    }

    /// The socket closed, or its dial failed.
    pub fn ended(&mut self, generation: u32, code: u16) {
        if self.listens(generation) {
            self.open_sockets.remove(&generation);
            self.client.handle_closed(self.at(), generation, code);
            self.end_task();
        }
    }

    /// A message arrived; it is a task of its own.
    pub fn message(&mut self, generation: u32, message: &Message) {
        self.message_in_task(generation, message);
        self.end_task();
    }

    /// A message arrived and the task goes on: microtasks don't run yet.
    pub fn message_in_task(&mut self, generation: u32, message: &Message) {
        if !self.listens(generation) || !self.open_sockets.contains(&generation) {
            return;
        }
        self.client.handle_heard(self.at());
        self.drain();
        let (text, bytes) = match message {
            Message::Text(text) => (Some(text.as_str()), text.len()),
            Message::Binary(bytes) => (std::str::from_utf8(bytes).ok(), bytes.len()),
        };
        match text.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
            Some(Value::Array(frames)) => {
                let share = share(bytes, frames.iter().map(changes_in).sum());
                for frame in &frames {
                    if !self.listens(generation) {
                        return;
                    }
                    self.frame(frame, share);
                }
            }
            Some(frame) => {
                let share = share(bytes, changes_in(&frame));
                self.frame(&frame, share);
            }
            None => self.bad_frame(None),
        }
    }

    /// Ends a task that [`Facade::message_in_task`] left open.
    pub fn end_task(&mut self) {
        self.drain();
        if self.options.flush == Flush::Microtask {
            self.flush();
        }
    }

    /// Hands over what waits for an animation frame.
    pub fn flush_now(&mut self) {
        self.frame_at = None;
        self.flush();
    }

    /// Answers the oldest open call of `getToken`; without one, nothing.
    pub fn answer_token(&mut self, token: Option<&str>) {
        // A call that the client gave up is answered only if no other waits.
        let waits = self.calls.iter().position(|(_, void)| !void);
        if !self.calls.is_empty() {
            let index = waits.unwrap_or(0);
            let (id, void) = self.calls.remove(index);
            if let (Some(token), false) = (token, void) {
                self.token = Some(token.to_owned());
            }
            if !self.closed && !self.freed {
                self.client.handle_token(self.at(), id, token.is_some());
                self.end_task();
            }
        }
    }

    /// Whether a `getToken` call waits that is to be answered at once, and with what.
    pub fn wants_token(&mut self) -> Option<String> {
        if self.options.tokens != Tokens::Auto || !self.calls.iter().any(|(_, void)| !void) {
            return None;
        }
        self.tokens_given += 1;
        Some(format!("t{}", self.tokens_given))
    }

    pub fn page_hidden(&mut self) {
        self.end_task();
    }

    pub fn page_visible(&mut self) {
        if self.page_listeners() > 0 {
            self.client.handle_visible(self.at());
            self.end_task();
        }
    }

    pub fn page_online(&mut self) {
        if self.page_listeners() > 0 {
            self.client.handle_online(self.at());
            self.end_task();
        }
    }

    pub fn page_offline(&mut self) {
        if self.page_listeners() > 0 {
            self.client.handle_offline(self.at());
            self.end_task();
        }
    }

    /// The page was frozen and runs again.
    pub fn page_resume(&mut self) {
        if self.page_listeners() > 0 {
            self.client.handle_wake(self.at());
            self.end_task();
        }
    }

    pub fn plan(&mut self, plan: Plan) {
        self.plans.push(plan);
    }

    /// A call of the application; it is a task of its own.
    pub fn call(&mut self, call: &Call) {
        self.perform(call);
        self.end_task();
    }

    // ---- what can be read ---------------------------------------------------------------------

    /// How many listeners the client has on window and document.
    pub fn page_listeners(&self) -> u64 {
        let idle = self.client.connection() == ConnectionState::Idle;
        if self.closed || self.freed || idle { 0 } else { PAGE_LISTENERS }
    }

    pub fn connection(&self) -> &'static str {
        if self.closed {
            return "closed";
        }
        match self.client.connection() {
            ConnectionState::Idle => "idle",
            ConnectionState::Connecting => "connecting",
            ConnectionState::Live => "live",
            ConnectionState::Offline => "offline",
            ConnectionState::Closed => "closed",
            ConnectionState::Stopped => "stopped",
        }
    }

    /// Whether the client has such an entity.
    pub fn present(&self, entity: &str) -> bool {
        self.names.get(entity).is_some_and(|&id| self.client.is_wanted(id))
    }

    /// Events held back for an entity.
    pub fn held(&self, entity: &str) -> u64 {
        self.names.get(entity).map_or(0, |&id| self.client.held(id) as u64)
    }

    /// A field of an entity's state by the name that cases use; `Null` where there is none.
    pub fn field(&self, entity: &str, field: &str) -> Option<Value> {
        let present = self.present(entity);
        let id = self.names.get(entity).copied();
        let view = id.and_then(|id| self.views.get(&id)).filter(|_| present);
        Some(match (field, view) {
            ("present", _) => json!(present),
            ("held", _) => json!(self.held(entity)),
            ("sync" | "seq" | "epoch" | "status" | "data" | "state", None) => Value::Null,
            ("sync", Some(_)) => json!(sync_name(self.client.sync(id?))),
            ("seq", Some(view)) => self.position(id?, view).map_or(Value::Null, |p| json!(p.1)),
            ("epoch", Some(view)) => self.position(id?, view).map_or(Value::Null, |p| json!(p.0)),
            ("status", Some(view)) => match &view.status {
                Some(status) => json!(status),
                // A remembered end that nothing was shown of.
                None if self.client.is_final(id?) => json!(self.statuses.name(self.client.status(id?).0)),
                None => Value::Null,
            },
            ("data" | "state", Some(view)) => view.state.clone().unwrap_or(Value::Null),
            _ => return None,
        })
    }

    fn position(&self, id: EntityId, view: &View) -> Option<(String, Seq)> {
        match self.client.position(id) {
            Some(position) => Some((self.epochs.name(position.epoch.0).to_owned(), position.seq)),
            None => view.shown.clone(),
        }
    }

    // ---- the application ----------------------------------------------------------------------

    fn perform(&mut self, call: &Call) {
        if self.freed {
            return;
        }
        match call {
            Call::Subscribe { entity, params } => self.subscribe(entity, params.as_ref(), Who::Runner),
            Call::Unsubscribe { entity } => self.unsubscribe(entity),
            Call::GetState { entity, gives } => {
                for (field, wanted) in gives {
                    let got = self.field(entity, field).unwrap_or(Value::Null);
                    if !json_eq(wanted, &got) {
                        let said = format!("getState {entity}: {field} {got} instead of {wanted}");
                        self.trace.push(Record::Refuted(said));
                    }
                }
            }
            Call::Listen { entity, name, throws } => {
                let who = Who::Listener(name.clone(), *throws);
                self.subscribe(entity, None, who);
            }
            Call::Changes { entity, name } => {
                self.subscribe(entity, None, Who::Reader(name.clone()));
            }
            Call::Read { name } => self.read(name),
            Call::Connect => {
                if !self.closed {
                    self.client.connect(self.at());
                }
            }
            Call::Close => self.close(),
            Call::Free => {
                // Nobody is left to hand anything to; the socket must not outlive its owner.
                if !self.closed {
                    self.close();
                }
                self.freed = true;
            }
            Call::Promise | Call::Resolve => {}
        }
        self.drain();
    }

    fn close(&mut self) {
        if self.closed {
            return;
        }
        self.client.close(self.at());
        self.closed = true;
        self.dirty.clear();
        self.frame_at = None;
        for view in self.views.values_mut() {
            view.pending = None;
        }
        for reader in self.readers.values_mut() {
            reader.ended = true;
            reader.queue.clear();
            reader.missed = None;
        }
        for (_, void) in &mut self.calls {
            *void = true;
        }
    }

    fn subscribe(&mut self, entity: &str, params: Option<&Value>, who: Who) {
        if self.closed {
            return;
        }
        let mut id = self.entity(entity);
        let view = &self.views[&id];
        let others = view.subscribers();
        if params.is_some() && view.params.as_ref() != params {
            if others > 0 {
                self.flag("params_conflict", Some(entity.to_owned()));
                return;
            }
            if self.client.is_wanted(id) {
                // It lingers under other params, under which its position means nothing (R31).
                self.client.release(self.at(), id);
                self.names.remove(entity);
                id = self.entity(entity);
            }
        }
        if others == 0 && !self.client.is_wanted(id) {
            // A final entity that was released: its number and status are remembered, not its state.
            if let Some(view) = self.views.get_mut(&id) {
                (view.state, view.status, view.shown) = (None, None, None);
            }
        }
        if params.is_some() || others == 0 {
            self.views.get_mut(&id).expect("just found").params = params.cloned();
        }
        let first = match who {
            Who::Runner => {
                let view = self.views.get_mut(&id).expect("just found");
                let again = std::mem::replace(&mut view.heard, true);
                if again {
                    return;
                }
                None
            }
            Who::Listener(name, throws) => {
                let view = self.views.get_mut(&id).expect("just found");
                view.listeners.push((name, throws));
                Some(throws)
            }
            Who::Reader(name) => {
                let mut queue = VecDeque::new();
                if let Some(current) = self.current(id) {
                    queue.push_back(current);
                }
                let ended = self.client.is_final(id);
                let reader = Reader { entity: entity.to_owned(), queue, missed: None, ended };
                self.readers.insert(name.clone(), reader);
                self.views.get_mut(&id).expect("just found").readers.push(name);
                None
            }
        };
        if others == 0 {
            self.client.subscribe(self.at(), id);
        }
        // R32: a new listener is called at once.
        if first == Some(true) {
            self.flag("error", None);
        }
    }

    fn unsubscribe(&mut self, entity: &str) {
        let Some(&id) = self.names.get(entity) else {
            return;
        };
        let Some(view) = self.views.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut view.heard, false) {
            return;
        }
        if view.listeners.is_empty() {
            view.pending = None;
        }
        self.release_if_last(id);
    }

    fn release_if_last(&mut self, id: EntityId) {
        if self.views.get(&id).is_some_and(|view| view.subscribers() == 0) && !self.closed {
            self.client.unsubscribe(self.at(), id);
        }
    }

    fn read(&mut self, name: &str) {
        let Some(reader) = self.readers.get_mut(name) else {
            return;
        };
        let entity = reader.entity.clone();
        let ended = reader.ended;
        let waiting: Vec<Shown> = reader.queue.drain(..).collect();
        let missed = reader.missed.take();
        for shown in waiting {
            self.trace.push(Record::Deliver { to: Some(name.to_owned()), shown });
        }
        let id = self.names.get(&entity).copied();
        if let (Some(from), Some(mut shown)) = (missed, id.and_then(|id| self.current(id))) {
            shown.skipped = Some((from, shown.seq.unwrap_or(from)));
            self.trace.push(Record::Deliver { to: Some(name.to_owned()), shown });
        }
        if ended {
            self.readers.remove(name);
            if let Some(id) = id {
                if let Some(view) = self.views.get_mut(&id) {
                    view.readers.retain(|reader| reader != name);
                }
                self.release_if_last(id);
            }
        }
    }

    /// The state as a snapshot change, once there is a position.
    fn current(&self, id: EntityId) -> Option<Shown> {
        let view = self.views.get(&id)?;
        let (epoch, seq) = self.position(id, view)?;
        Some(Shown {
            entity: view.name.clone(),
            kind: Kind::Snapshot,
            seq: Some(seq),
            epoch,
            id: None,
            status: view.status.clone(),
            data: view.state.clone().unwrap_or(Value::Null),
            reset: false,
            skipped: None,
        })
    }

    // ---- frames -------------------------------------------------------------------------------

    fn frame(&mut self, frame: &Value, share: u32) {
        let Some(fields) = frame.as_object() else {
            return self.bad_frame(None);
        };
        if let Some(n) = fields.get("n").and_then(seq_of) {
            self.client.handle_count(self.at(), n);
            self.drain();
        }
        let Some(kind) = fields.get("type").and_then(Value::as_str) else {
            return self.bad_frame(None);
        };
        let entity = match fields.get("entity") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name.as_str()),
            Some(_) => return self.bad_frame(None),
        };
        self.about = entity.map(str::to_owned);
        let read = self.read_frame(kind, entity, fields, share);
        if read.is_none() {
            self.bad_frame(entity);
        }
        self.drain();
    }

    /// Hands one frame to the core; `None` if it can't be read.
    #[allow(clippy::too_many_lines)]
    fn read_frame(&mut self, kind: &str, entity: Option<&str>, fields: &Map<String, Value>, share: u32) -> Option<()> {
        let now = self.at();
        let epoch = match fields.get("epoch") {
            None | Some(Value::Null) => "",
            Some(Value::String(epoch)) => epoch.as_str(),
            Some(_) => return None,
        };
        let request = match fields.get("request") {
            None | Some(Value::Null) => None,
            Some(id) => Some(id.as_u64().and_then(|id| Request::try_from(id).ok()).unwrap_or(NO_REQUEST)),
        };
        let number = |key: &str| fields.get(key).and_then(seq_of);
        match kind {
            "welcome" => {
                let heartbeat = fields.get("heartbeat").and_then(millis);
                let can = fields.get("can").and_then(Value::as_array);
                let can = |what| can.is_some_and(|list| list.iter().any(|item| item == what));
                let can = Can { replay: can("replay"), snapshot: can("snapshot"), heads: can("heads") };
                self.client.handle_welcome(now, heartbeat, can);
            }
            "event" => {
                let name = entity?;
                let (event, payload) = self.event(name, epoch, fields, share)?;
                let Some(id) = self.wanted(name) else {
                    return Some(());
                };
                self.arrived.push(payload.0.clone());
                self.client.handle_event(now, id, event, payload);
            }
            "snapshot" => {
                let name = entity?;
                self.snapshot(name, epoch, request, fields)?;
            }
            "subscribed" => {
                let (name, head) = (entity?, number("head")?);
                let request = request?;
                let Some(id) = self.wanted(name) else {
                    return Some(());
                };
                if let Some(cursor) = fields.get("cursor").and_then(Value::as_str) {
                    self.cursor(name, cursor);
                }
                let epoch = self.epoch(epoch);
                self.client.handle_subscribed(now, id, request, epoch, head);
                self.drain();
            }
            "replay" => {
                let name = entity?;
                let request = request?;
                let empty = Vec::new();
                let events = match fields.get("events") {
                    Some(Value::Array(events)) => events,
                    None | Some(Value::Null) => &empty,
                    Some(_) => return None,
                };
                let vacant = match fields.get("vacant") {
                    Some(Value::Array(ranges)) => ranges
                        .iter()
                        .map(|range| match range.as_array()?.as_slice() {
                            [from, to] => Some((seq_of(from)?, seq_of(to)?)),
                            _ => None,
                        })
                        .collect::<Option<Vec<_>>>()?,
                    None | Some(Value::Null) => Vec::new(),
                    Some(_) => return None,
                };
                let done = fields.get("done") == Some(&Value::Bool(true));
                let Some(id) = self.wanted(name) else {
                    return Some(());
                };
                let generation = self.client.current();
                let number = self.epoch(epoch);
                let begun = self.client.begin_replay(now, id, request);
                self.drain();
                if !begun {
                    return Some(());
                }
                for (from, to) in vacant {
                    self.client.handle_vacant(now, id, number, from, to);
                    self.drain();
                }
                for event in events {
                    if !self.listens(generation) || self.names.get(name) != Some(&id) {
                        return Some(());
                    }
                    let read = event.as_object().and_then(|f| self.event(name, epoch, f, share));
                    match read {
                        Some((event, payload)) => {
                            self.arrived.push(payload.0.clone());
                            self.client.handle_event(now, id, event, payload);
                            self.drain();
                        }
                        None => self.bad_frame(Some(name)),
                    }
                }
                if self.listens(generation) && self.names.get(name) == Some(&id) {
                    self.client.end_replay(now, id, request, done);
                }
            }
            "gone" => {
                let (name, request) = (entity?, request?);
                if let Some(id) = self.wanted(name) {
                    self.client.handle_gone(now, id, request);
                }
            }
            "ahead" => {
                let (name, request, head) = (entity?, request?, number("head")?);
                if let Some(id) = self.wanted(name) {
                    let epoch = self.epoch(epoch);
                    self.client.handle_ahead(now, id, request, epoch, head);
                }
            }
            "vacant" => {
                let (name, from, to) = (entity?, number("from")?, number("to")?);
                if let Some(id) = self.wanted(name) {
                    let epoch = self.epoch(epoch);
                    self.client.handle_vacant(now, id, epoch, from, to);
                }
            }
            "final" => {
                let (name, request) = (entity?, request?);
                let status = fields.get("status").and_then(Value::as_str)?;
                if let Some(id) = self.wanted(name) {
                    let (epoch, status) = (self.epoch(epoch), Status(self.statuses.intern(status)));
                    let payload = fields.get("data").map(|data| self.arrival(name, None, None, Some(data.clone())));
                    self.client.handle_final(now, id, request, epoch, status, payload);
                }
            }
            "discontinuity" => match entity {
                Some(name) => {
                    if let Some(id) = self.wanted(name) {
                        self.client.handle_discontinuity(now, Some(id));
                    }
                }
                None => self.client.handle_discontinuity(now, None),
            },
            "heartbeat" | "heads" => {
                let empty = Vec::new();
                let list = |key: &str| match fields.get(key) {
                    Some(Value::Array(list)) => Some(list.clone()),
                    None | Some(Value::Null) => Some(empty.clone()),
                    Some(_) => None,
                };
                let (heads, cursors) = (list("heads")?, list("cursors")?);
                let answer = if kind == "heads" { request } else { None };
                for head in &heads {
                    let read = match head.as_array().map(Vec::as_slice) {
                        Some([Value::String(name), epoch, seq]) => {
                            let epoch = match epoch {
                                Value::String(epoch) => Some(epoch.as_str()),
                                Value::Null => Some(""),
                                _ => None,
                            };
                            epoch.zip(seq_of(seq)).map(|(epoch, seq)| (name, epoch, seq))
                        }
                        _ => None,
                    };
                    let Some((name, epoch, seq)) = read else {
                        self.bad_frame(None);
                        continue;
                    };
                    // Heads are broadcast: one of an entity that is not ours is nothing to count.
                    let Some(&id) = self.names.get(name) else {
                        continue;
                    };
                    if !self.client.is_wanted(id) {
                        continue;
                    }
                    self.about = Some(name.clone());
                    let epoch = self.epoch(epoch);
                    self.client.handle_head(now, id, epoch, seq, answer);
                    self.drain();
                }
                if let (Some(request), "heads") = (request, kind) {
                    self.client.end_heads(now, request);
                    self.drain();
                }
                for cursor in &cursors {
                    if let Some([Value::String(topic), Value::String(cursor)]) = cursor.as_array().map(Vec::as_slice) {
                        self.cursor(topic, cursor);
                    }
                }
            }
            "pong" => {
                let id = fields.get("id").and_then(Value::as_u64);
                let id = id.and_then(|id| u32::try_from(id).ok());
                self.client.handle_pong(now, id.unwrap_or(u32::MAX));
            }
            "error" => {
                let code = match fields.get("code").and_then(Value::as_str)? {
                    "forbidden" => ErrorCode::Forbidden,
                    "not_found" => ErrorCode::NotFound,
                    "token_expiring" => ErrorCode::TokenExpiring,
                    _ => ErrorCode::Other,
                };
                let after = fields.get("retryAfter").and_then(millis);
                let id = match entity {
                    Some(name) => match self.wanted(name) {
                        Some(id) => Some(id),
                        None => return Some(()),
                    },
                    None => None,
                };
                self.client.handle_error(now, code, request, id, after);
            }
            "goodbye" => {
                let after = fields.get("retryAfter").and_then(millis);
                self.client.handle_goodbye(now, after);
            }
            _ => {}
        }
        Some(())
    }

    /// Reads an event's own fields; `None` without a usable number where one is needed (R11).
    fn event(&mut self, name: &str, epoch: &str, fields: &Map<String, Value>, share: u32) -> Option<(Event, Payload)> {
        let optional = |key: &str| match fields.get(key) {
            None | Some(Value::Null) => Some(None),
            Some(value) => seq_of(value).map(Some),
        };
        let (seq, prev, first) = (optional("seq")?, optional("prev")?, optional("first")?);
        let free = self.options.shape(name).model.continuity == Continuity::None;
        if seq.is_none() && !free {
            return None;
        }
        let prev = match (prev, first) {
            (Some(prev), Some(first)) if first.checked_sub(1) != Some(prev) => return None,
            (Some(prev), _) => Some(prev),
            (None, Some(first)) => Some(first.checked_sub(1)?),
            (None, None) => None,
        };
        let status = text(fields, "status")?;
        let id = text(fields, "id")?;
        let data = fields.get("data");
        let payload = self.arrival(name, seq, id, data.cloned());
        let event = Event {
            epoch: self.epoch(epoch),
            prev,
            seq,
            id: id.map_or(EventId(0), fingerprint),
            status: status.map_or(Status(0), |status| Status(self.statuses.intern(status))),
            has_data: data.is_some(),
            bytes: share,
        };
        Some((event, payload))
    }

    fn snapshot(
        &mut self,
        name: &str,
        epoch: &str,
        request: Option<Request>,
        fields: &Map<String, Value>,
    ) -> Option<()> {
        let now = self.at();
        let status = text(fields, "status")?;
        let free = self.options.shape(name).model.continuity == Continuity::None;
        let seq = match fields.get("seq") {
            None | Some(Value::Null) if free => None,
            None => return None,
            Some(seq) => Some(seq_of(seq)?),
        };
        let part = |key: &str| match fields.get(key) {
            None | Some(Value::Null) => Some(None),
            Some(value) => value.as_u64().map(Some),
        };
        let (part, of) = (part("part")?, part("of")?);
        let data = fields.get("data").cloned().unwrap_or(Value::Null);
        let Some(id) = self.wanted(name) else {
            return Some(());
        };
        // Without a number of its own a snapshot stands where the entity stands.
        let seq = seq.unwrap_or_else(|| self.client.position(id).map_or(0, |p| p.seq));
        let data = match (part, of) {
            (None, None) => data,
            (Some(part), Some(of)) if part >= 1 && part <= of && of <= MAX_PARTS => {
                if !self.client.handle_part(now, id, request) {
                    self.parts.remove(&(id.0, request));
                    return Some(());
                }
                self.drain();
                let arrived = Parts {
                    epoch: epoch.to_owned(),
                    seq,
                    status: status.map(str::to_owned),
                    of,
                    have: BTreeMap::from([(part, data)]),
                };
                match self.join(id, request, arrived) {
                    Joined::Waits => return Some(()),
                    Joined::Unfit => return None,
                    Joined::Whole(data) => data,
                }
            }
            _ => return None,
        };
        let payload = self.arrival(name, Some(seq), None, Some(data));
        self.arrived.push(payload.0.clone());
        let snapshot = Snapshot {
            request,
            epoch: self.epoch(epoch),
            seq,
            status: status.map_or(Status(0), |status| Status(self.statuses.intern(status))),
        };
        self.client.handle_snapshot(now, id, snapshot, payload);
        Some(())
    }

    /// Adds a part to those of the same answer on the same socket (R17).
    fn join(&mut self, id: EntityId, request: Option<Request>, arrived: Parts) -> Joined {
        if self.parts_socket != self.client.current() {
            self.parts.clear();
            self.parts_socket = self.client.current();
        }
        let key = (id.0, request);
        match self.parts.get_mut(&key) {
            Some(parts)
                if (&parts.epoch, parts.seq, &parts.status, parts.of)
                    == (&arrived.epoch, arrived.seq, &arrived.status, arrived.of) =>
            {
                parts.have.extend(arrived.have);
            }
            // Parts of another answer: the old ones will never be whole.
            _ => {
                self.parts.insert(key, arrived);
            }
        }
        if self.parts[&key].have.len() as u64 != self.parts[&key].of {
            return Joined::Waits;
        }
        let parts = self.parts.remove(&key).expect("just looked at");
        let mut values = parts.have.into_values();
        let mut whole = values.next().unwrap_or(Value::Null);
        for value in values {
            match (&mut whole, value) {
                (Value::Object(all), Value::Object(more)) => all.extend(more),
                (Value::Array(all), Value::Array(more)) => all.extend(more),
                _ => return Joined::Unfit,
            }
        }
        Joined::Whole(whole)
    }

    fn bad_frame(&mut self, entity: Option<&str>) {
        self.about = entity.map(str::to_owned);
        self.client.handle_bad_frame(self.at());
        self.drain();
    }

    /// The id of an entity that somebody wants; otherwise the frame is counted as unknown (R39).
    fn wanted(&mut self, name: &str) -> Option<EntityId> {
        let id = self.names.get(name).copied().filter(|&id| self.client.is_wanted(id));
        if id.is_none() {
            self.client.handle_unknown();
            self.drain();
        }
        id
    }

    /// The id of an entity, made known to the core if it is new.
    fn entity(&mut self, name: &str) -> EntityId {
        if let Some(&id) = self.names.get(name) {
            return id;
        }
        let shape = self.options.shape(name);
        let known = self.models.iter().find(|(model, _)| *model == shape.model);
        let model = known.map(|(_, id)| *id).unwrap_or_else(|| {
            let id = self.client.add_model(shape.model);
            self.models.push((shape.model, id));
            id
        });
        let id = self.client.add_entity(model);
        self.names.insert(name.to_owned(), id);
        self.views.insert(
            id,
            View {
                name: name.to_owned(),
                shape,
                params: None,
                heard: false,
                listeners: Vec::new(),
                readers: Vec::new(),
                state: None,
                status: None,
                shown: None,
                sync: Sync::Joining,
                recovering: false,
                pending: None,
                cursor: None,
            },
        );
        id
    }

    fn arrival(&mut self, entity: &str, seq: Option<Seq>, id: Option<&str>, data: Option<Value>) -> Payload {
        self.serial += 1;
        let (entity, id) = (entity.to_owned(), id.map(str::to_owned));
        Payload(Rc::new(Arrival { serial: self.serial, entity, seq, id, data }))
    }

    fn epoch(&mut self, name: &str) -> Epoch {
        Epoch(self.epochs.intern(name))
    }

    fn cursor(&mut self, topic: &str, cursor: &str) {
        let Some(&id) = self.names.get(topic) else {
            return;
        };
        if !self.client.is_wanted(id) {
            return;
        }
        if let Some(view) = self.views.get_mut(&id) {
            view.cursor = Some(cursor.to_owned());
        }
        self.client.handle_cursor(self.at(), id);
        self.drain();
    }

    /// Whether handlers of this socket are still attached.
    fn listens(&self, generation: u32) -> bool {
        !self.closed && !self.freed && self.client.current() == generation
    }

    fn at(&self) -> Instant {
        Instant(self.now)
    }

    fn flag(&mut self, name: &'static str, entity: Option<String>) {
        self.trace.push(Record::Flag { name, entity, from: None, to: None });
    }

    // ---- outputs ------------------------------------------------------------------------------

    /// Takes the core's outputs in their one order. Calls from inside a callback are drained by the
    /// loop that made the callback.
    fn drain(&mut self) {
        if self.draining {
            return;
        }
        self.draining = true;
        loop {
            let output = self.client.poll_output(self.at());
            self.count();
            let Some(output) = output else { break };
            self.output(output);
        }
        self.draining = false;
    }

    /// Turns counters that rose into flags, named after the entity that the frame was about.
    fn count(&mut self) {
        let stats = self.client.stats();
        let risen = [
            ("duplicate", stats.duplicates > self.counted.duplicates),
            ("stale", stats.stale > self.counted.stale),
            ("unknown", stats.unknown > self.counted.unknown),
            ("after_final", stats.after_final > self.counted.after_final),
            ("bad_frame", stats.bad_frames > self.counted.bad_frames),
        ];
        if risen.iter().any(|(_, rose)| *rose) {
            self.counted = stats.clone();
            for (name, _) in risen.iter().filter(|(_, rose)| *rose) {
                self.flag(name, self.about.clone());
            }
        }
    }

    fn output(&mut self, output: Output<Payload>) {
        match output {
            Output::Change(change) => self.change(change),
            Output::Discard(_) => {}
            Output::Sync { entity, sync } => self.sync(entity, sync),
            Output::Gap { entity, from, to } => {
                let entity = self.views.get(&entity).map(|view| view.name.clone());
                let (from, to) = (Some(from), Some(to));
                self.trace.push(Record::Flag { name: "gap", entity, from, to });
            }
            Output::Final { entity } => {
                let name = self.views.get(&entity).map(|view| view.name.clone());
                self.flag("final", name);
                if let Some(view) = self.views.get(&entity) {
                    for reader in &view.readers {
                        if let Some(reader) = self.readers.get_mut(reader) {
                            reader.ended = true;
                        }
                    }
                }
            }
            Output::Fault { entity, fault } => {
                let name = entity.and_then(|id| self.views.get(&id)).map(|v| v.name.clone());
                self.flag(fault_name(fault), name);
            }
            Output::Forgotten { entity } => {
                if let Some(view) = self.views.remove(&entity)
                    && self.names.get(&view.name) == Some(&entity)
                {
                    self.names.remove(&view.name);
                }
                self.parts.retain(|(id, _), _| *id != entity.0);
                self.dirty.retain(|id| *id != entity);
            }
            Output::Connection(connection) => self.trace.push(Record::Connection(connection)),
            Output::Dial { generation } => self.trace.push(Record::Dial { generation }),
            Output::Close { generation, code } => {
                self.open_sockets.remove(&generation);
                self.trace.push(Record::Close { generation, code });
            }
            Output::GetToken { id, .. } => {
                self.calls.push((id, false));
                self.trace.push(Record::Token);
            }
            Output::CancelToken { id } => {
                for (call, void) in &mut self.calls {
                    *void |= *call == id;
                }
            }
            Output::Send(command) => {
                let generation = self.client.current();
                for frame in self.encode(&command) {
                    self.trace.push(Record::Send { generation, frame });
                }
            }
        }
    }

    fn sync(&mut self, entity: EntityId, sync: Sync) {
        let Some(view) = self.views.get_mut(&entity) else {
            return;
        };
        let name = view.name.clone();
        view.sync = sync;
        let flag = match sync {
            Sync::Recovering => {
                view.recovering = true;
                Some("recovering")
            }
            Sync::Live | Sync::Final if std::mem::take(&mut view.recovering) => Some("recovered"),
            Sync::Failed => Some("failed"),
            _ => None,
        };
        let throws = view.listeners.iter().filter(|(_, throws)| *throws).count();
        self.trace.push(Record::Sync { entity: name.clone(), sync });
        if let Some(flag) = flag {
            self.flag(flag, Some(name));
        }
        if !self.closed {
            for _ in 0..throws {
                self.flag("error", None);
            }
        }
    }

    /// One committed change: reduce, lock or roll back, show (R34, R36).
    fn change(&mut self, change: Change<Payload>) {
        let id = change.entity;
        let Some(view) = self.views.get_mut(&id) else {
            return;
        };
        let payload = change.payload.as_ref().map(|payload| payload.0.clone());
        let data = payload.as_ref().and_then(|payload| payload.data.as_ref());
        let kind = match change.kind {
            ChangeKind::Event => Kind::Event,
            ChangeKind::Snapshot => Kind::Snapshot,
        };
        let next = match (kind, data) {
            (_, None) => Ok(None),
            (Kind::Snapshot, Some(data)) => view.shape.adopt(data).map(Some),
            (Kind::Event, Some(data)) => view.shape.reduce(view.state.as_ref(), data).map(Some),
        };
        let Ok(next) = next else {
            let name = view.name.clone();
            self.flag("reduce_failed", Some(name));
            let event = (kind == Kind::Event).then(|| {
                let event = Event {
                    epoch: change.epoch,
                    prev: Some(change.prev),
                    seq: Some(change.seq),
                    id: change.id,
                    status: change.status,
                    has_data: data.is_some(),
                    bytes: change.bytes,
                };
                change.payload.map(|payload| (event, payload))
            });
            self.client.rollback(self.at(), id, event.flatten());
            return;
        };
        let members = |state: Option<&Value>| -> Vec<String> {
            let list = state.and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut joined = Vec::new();
        let mut left = Vec::new();
        if view.shape.reduce == Reduce::Topic {
            let (old, new) = (members(view.state.as_ref()), members(next.as_ref().or(view.state.as_ref())));
            joined = new.iter().filter(|name| !old.contains(name)).cloned().collect();
            left = old.into_iter().filter(|name| !new.contains(name)).collect();
        }
        if let Some(next) = next {
            view.state = Some(next);
        }
        let status = (change.status != Status(0)).then(|| self.statuses.name(change.status.0).to_owned());
        if status.is_some() || kind == Kind::Snapshot {
            view.status = status;
        }
        let epoch = self.epochs.name(change.epoch.0).to_owned();
        view.shown = Some((epoch.clone(), change.seq));
        let terminal = view.status.as_ref().is_some_and(|s| view.shape.terminal.contains(s));
        let shown = Shown {
            entity: view.name.clone(),
            kind,
            seq: Some(change.seq),
            epoch,
            id: payload.as_ref().and_then(|payload| payload.id.clone()),
            status: view.status.clone(),
            data: view.state.clone().unwrap_or(Value::Null),
            reset: change.reset,
            skipped: change.skipped,
        };
        if change.locks || terminal {
            self.client.lock(self.at(), id);
        }
        for member in joined {
            let member = self.entity(&member);
            self.client.add_member(self.at(), id, member);
        }
        for member in left {
            if let Some(&member) = self.names.get(&member) {
                self.client.remove_member(self.at(), id, member);
            }
        }
        let serial = payload.map_or(0, |payload| payload.serial);
        self.trace.push(Record::Applied { serial });
        self.show(id, shown);
    }

    fn show(&mut self, id: EntityId, shown: Shown) {
        let Some(view) = self.views.get_mut(&id) else {
            return;
        };
        for name in &view.readers {
            let Some(reader) = self.readers.get_mut(name) else {
                continue;
            };
            if reader.missed.is_some() || reader.queue.len() >= READER_QUEUE {
                reader.missed = reader.missed.or(shown.seq);
            } else {
                reader.queue.push_back(shown.clone());
            }
        }
        if self.options.flush == Flush::Sync {
            self.hand_over(id, shown);
            return;
        }
        let terminal =
            |shown: &Shown, shape: &Shape| shown.status.as_ref().is_some_and(|status| shape.terminal.contains(status));
        let mut shown = shown;
        if let Some(before) = view.pending.take() {
            if terminal(&before, &view.shape) {
                self.hand_over(id, before);
            } else {
                shown.reset |= before.reset;
                shown.skipped = match (before.skipped, shown.skipped) {
                    (Some((from, _)), Some((_, to))) => Some((from, to)),
                    (a, b) => a.or(b),
                };
            }
        }
        if let Some(view) = self.views.get_mut(&id) {
            view.pending = Some(shown);
            if !self.dirty.contains(&id) {
                self.dirty.push(id);
            }
            if self.options.flush == Flush::Frame && self.frame_at.is_none() {
                self.frame_at = Some(self.now + FRAME_MS);
            }
        }
    }

    /// Hands over what waits for the end of the task or for the next animation frame.
    fn flush(&mut self) {
        for id in std::mem::take(&mut self.dirty) {
            if let Some(shown) = self.views.get_mut(&id).and_then(|view| view.pending.take()) {
                self.hand_over(id, shown);
            }
        }
        self.drain();
    }

    /// Calls the listeners of an entity, who may call anything.
    fn hand_over(&mut self, id: EntityId, shown: Shown) {
        if self.closed || self.freed {
            return;
        }
        if self.has_listener(id) {
            self.trace.push(Record::Deliver { to: None, shown: shown.clone() });
        }
        let planned: Vec<Call> = self
            .plans
            .iter()
            .filter(|plan| plan.entity == shown.entity && Some(plan.seq) == shown.seq)
            .flat_map(|plan| plan.calls.clone())
            .collect();
        for call in &planned {
            self.perform(call);
        }
        let listeners = self.views.get(&id).map(|view| view.listeners.clone()).unwrap_or_default();
        for (name, throws) in listeners {
            if self.closed || self.freed {
                return;
            }
            self.trace.push(Record::Deliver { to: Some(name), shown: shown.clone() });
            if throws {
                self.flag("error", None);
            }
        }
    }

    /// Whether the runner hears of the entity: by its own listener, or by that of a topic it is in.
    fn has_listener(&self, id: EntityId) -> bool {
        let Some(view) = self.views.get(&id) else {
            return false;
        };
        view.heard
            || self.views.values().any(|topic| {
                topic.heard
                    && topic.shape.reduce == Reduce::Topic
                    && topic
                        .state
                        .as_ref()
                        .and_then(Value::as_array)
                        .is_some_and(|members| members.iter().any(|member| member.as_str() == Some(&view.name)))
            })
    }

    // ---- commands -----------------------------------------------------------------------------

    fn encode(&self, command: &Command) -> Vec<Value> {
        let name = |id: &EntityId| json!(self.views.get(id).map_or("", |view| &view.name));
        match command {
            Command::Hello => {
                let mut hello = json!({"type": "hello", "client": "inorder/0.1.0"});
                if let Some(token) = &self.token {
                    hello["token"] = json!(token);
                }
                vec![hello]
            }
            Command::Auth => vec![json!({"type": "auth", "token": self.token})],
            Command::Subscribe { request, entities } => {
                let items = entities.iter().map(|resume| self.resume(resume)).collect();
                pieces(json!({"type": "subscribe", "request": request}), "entities", items)
            }
            Command::Unsubscribe { entities } => {
                let items = entities.iter().map(name).collect();
                pieces(json!({"type": "unsubscribe"}), "entities", items)
            }
            Command::Replay { request, ranges } => {
                let items = ranges
                    .iter()
                    .map(|range| {
                        let mut item = json!({
                            "entity": name(&range.entity),
                            "epoch": self.epochs.name(range.epoch.0),
                            "from": range.from,
                        });
                        if let Some(to) = range.to {
                            item["to"] = json!(to);
                        }
                        item
                    })
                    .collect();
                pieces(json!({"type": "replay", "request": request}), "ranges", items)
            }
            Command::Snapshot { request, entities } => {
                let items = entities.iter().map(name).collect();
                pieces(json!({"type": "snapshot", "request": request}), "entities", items)
            }
            Command::Heads { request, entities } => {
                let items = entities.iter().map(name).collect();
                pieces(json!({"type": "heads", "request": request}), "entities", items)
            }
            Command::Ping { id } => vec![json!({"type": "ping", "id": id})],
        }
    }

    fn resume(&self, resume: &Resume) -> Value {
        let view = self.views.get(&resume.entity);
        let mut item = json!({"entity": view.map_or("", |view| &view.name)});
        if let Some(position) = &resume.position {
            item["epoch"] = json!(self.epochs.name(position.epoch.0));
            item["after"] = json!(position.seq);
        }
        if let Some(params) = view.and_then(|view| view.params.as_ref()) {
            item["params"] = params.clone();
        }
        if resume.cursor
            && resume.position.is_some()
            && let Some(cursor) = view.and_then(|view| view.cursor.as_ref())
        {
            item["cursor"] = json!(cursor);
        }
        if !resume.behind.is_empty() {
            let behind = resume.behind.iter().map(|(member, position)| {
                let name = self.views.get(member).map_or("", |view| &view.name);
                match position {
                    Some(position) => {
                        json!([name, self.epochs.name(position.epoch.0), position.seq])
                    }
                    None => json!([name, null, null]),
                }
            });
            item["behind"] = behind.collect();
        }
        item
    }
}

impl View {
    fn subscribers(&self) -> usize {
        usize::from(self.heard) + self.listeners.len() + self.readers.len()
    }
}

impl Shape {
    fn adopt(&self, data: &Value) -> Result<Value, ()> {
        match (self.reduce, data) {
            (Reduce::Topic, Value::Array(names)) if names.iter().all(Value::is_string) => Ok(data.clone()),
            (Reduce::Topic, Value::Null) => Ok(json!([])),
            (Reduce::Topic, _) => Err(()),
            _ => Ok(data.clone()),
        }
    }

    fn reduce(&self, state: Option<&Value>, data: &Value) -> Result<Value, ()> {
        match self.reduce {
            Reduce::Replace => Ok(data.clone()),
            Reduce::Strict if data.get("fail").is_some() => Err(()),
            Reduce::Merge | Reduce::Strict => {
                let mut state = state.cloned().unwrap_or(Value::Null);
                merge(&mut state, data);
                Ok(state)
            }
            Reduce::Topic => {
                let names = |key: &str| match data.get(key) {
                    None | Some(Value::Null) => Ok(Vec::new()),
                    Some(Value::Array(names)) if names.iter().all(Value::is_string) => Ok(names.clone()),
                    Some(_) => Err(()),
                };
                if !data.is_object() {
                    return Err(());
                }
                let (add, remove) = (names("add")?, names("remove")?);
                let mut members = state.and_then(Value::as_array).cloned().unwrap_or_default();
                members.retain(|member| !remove.contains(member));
                for name in add {
                    if !members.contains(&name) {
                        members.push(name);
                    }
                }
                Ok(Value::Array(members))
            }
        }
    }
}

/// Merges as RFC 7396 says; a key such as `__proto__` is a key like any other (R37).
fn merge(state: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *state = patch.clone();
        return;
    };
    if !state.is_object() {
        *state = json!({});
    }
    if let Value::Object(state) = state {
        for (key, value) in patch {
            if value.is_null() {
                state.remove(key);
            } else {
                merge(state.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

/// Splits a list over frames below the limit; the pieces share the head and so the request id.
fn pieces(head: Value, key: &str, items: Vec<Value>) -> Vec<Value> {
    let mut frames = Vec::new();
    let mut room = 0usize;
    for item in items {
        let bytes = item.to_string().len() + 1;
        if frames.is_empty() || bytes > room {
            let mut frame = head.clone();
            room = COMMAND_BYTES.saturating_sub(frame.to_string().len() + key.len() + 6);
            frame[key] = json!([]);
            frames.push(frame);
        }
        room = room.saturating_sub(bytes);
        if let Some(list) = frames.last_mut().and_then(|frame| frame[key].as_array_mut()) {
            list.push(item);
        }
    }
    frames
}

/// A usable number: an integer from 0 to 2^53−1, as a JSON number or a decimal string (R11).
pub fn seq_of(value: &Value) -> Option<Seq> {
    let seq = match value {
        Value::Number(number) => match number.as_u64() {
            Some(seq) => seq,
            // 6.0 and 1e3 are integers to JavaScript.
            None => {
                let float = number.as_f64()?;
                let whole = float.fract() == 0.0 && (0.0..=MAX_SEQ as f64).contains(&float);
                whole.then_some(float as u64)?
            }
        },
        Value::String(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok()?,
        _ => return None,
    };
    (seq <= MAX_SEQ).then_some(seq)
}

/// Seconds as milliseconds; nothing for what is no usable span.
fn millis(value: &Value) -> Option<u64> {
    let seconds = value.as_f64()?;
    (seconds.is_finite() && seconds >= 0.0).then_some((seconds * 1000.0) as u64)
}

/// A text field: absent, or present and a string; `None` where it is something else.
fn text<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<Option<&'a str>> {
    match fields.get(key) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(text)) => Some(Some(text)),
        Some(_) => None,
    }
}

/// How many changes a frame carries, to share its bytes over.
fn changes_in(frame: &Value) -> usize {
    match frame.get("type").and_then(Value::as_str) {
        Some("event" | "snapshot") => 1,
        Some("replay") => frame.get("events").and_then(Value::as_array).map_or(0, Vec::len),
        _ => 0,
    }
}

fn share(bytes: usize, changes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(changes.max(1))).unwrap_or(u32::MAX)
}

/// 64 bits that stand for an id (FNV-1a); never 0, which means "no id".
fn fingerprint(id: &str) -> EventId {
    let hash = id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    EventId(hash.max(1))
}

pub fn sync_name(sync: Sync) -> &'static str {
    match sync {
        Sync::Joining => "joining",
        Sync::Live => "live",
        Sync::Recovering => "recovering",
        Sync::Stale => "stale",
        Sync::Final => "final",
        Sync::Failed => "failed",
    }
}

/// Equality of JSON where 1 and 1.0 are the same number.
pub fn json_eq(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64() && (x.is_f64() || y.is_f64()),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| json_eq(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| json_eq(x, y)))
        }
        _ => a == b,
    }
}

/// The name under which a fault is flagged; what is counted as well is flagged by its counter.
fn fault_name(fault: Fault) -> &'static str {
    match fault {
        Fault::BadFrame | Fault::FarAhead => "bad_frame",
        Fault::AfterFinal => "after_final",
        Fault::Diverged => "diverged",
        Fault::EpochFlapping => "epoch_flapping",
        Fault::AuthFailed => "auth_failed",
        Fault::TokenFailed => "token_failed",
        Fault::Forbidden => "forbidden",
        Fault::NotFound => "not_found",
        Fault::Server => "server_error",
        Fault::GaveUp => "gave_up",
        Fault::Stopped => "stop",
    }
}
