//! Runs a case: one client (or a few), one virtual clock, a network of scripted sockets, and a judge.
//!
//! A case is steps and expectations. Within a step the input is given, then everything happens that
//! happens without time passing; then the step is judged. Sends, deliveries and flags are kept with
//! their step and judged at the end, states at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};

use serde_json::{Map, Value, json};

use crate::facade::{Arrival, Call, Facade, Kind, Message, Options, Plan, Record, Shown, json_eq};

/// How far `open` and `fail` move the clock to find a dial, in ms.
const DIAL_WAIT: u64 = 60_000;

/// Events of one batch frame of a burst in one task.
const BATCH: usize = 1_000;

/// Things that may happen in one step without time passing; more is a loop.
const RESTLESS: u32 = 200_000;

/// How often an op may be asked to repeat itself; what asks for more would not end.
const MOST: u64 = 10_000_000;

/// Seeds over which a `spread` is taken.
const SPREAD_SEEDS: u64 = 50;

/// Where the virtual clock starts, in ms.
const START: u64 = 10_000;

/// A case as it was read.
#[derive(Clone, Debug)]
pub struct Case {
    pub id: String,
    pub config: Map<String, Value>,
    pub input: Vec<Value>,
    pub expect: Vec<Value>,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Fail {
        step: usize,
        expected: String,
        got: String,
    },
    /// Everything that could be judged held, but this op or key has no native counterpart.
    Skip(String),
}

impl Case {
    /// Reads the cases of a file in the format of the shared cases.
    pub fn read_all(text: &str) -> Result<Vec<Case>, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let list = match value {
            Value::Array(list) => list,
            Value::Object(mut fields) => match fields.remove("cases") {
                Some(Value::Array(list)) => list,
                _ => vec![Value::Object(fields)],
            },
            _ => return Err("expected a list of cases".to_owned()),
        };
        list.into_iter().enumerate().map(|(index, case)| Case::read(index, case)).collect()
    }

    fn read(index: usize, case: Value) -> Result<Case, String> {
        let Value::Object(mut fields) = case else {
            return Err(format!("case {index}: no object"));
        };
        let id = match fields.remove("id") {
            Some(Value::String(id)) => id,
            _ => format!("#{index}"),
        };
        let mut list = |key: &str| match fields.remove(key) {
            Some(Value::Array(list)) => Ok(list),
            None => Ok(Vec::new()),
            Some(_) => Err(format!("{id}: {key} is no list")),
        };
        let (input, expect) = (list("input")?, list("expect")?);
        let config = match fields.remove("config") {
            Some(Value::Object(config)) => config,
            None => Map::new(),
            Some(_) => return Err(format!("{id}: config is no object")),
        };
        Ok(Case { id, config, input, expect })
    }

    /// Runs the case and judges it.
    pub fn run(&self) -> Verdict {
        let mut run = match Run::new(self, 1) {
            Ok(run) => run,
            Err(key) => return Verdict::Skip(format!("config {key}")),
        };
        run.play();
        let mut failures = run.judge();
        for (index, expect) in self.expect.iter().enumerate() {
            if let Some(spread) = expect.get("send").and_then(|send| send.get("spread")) {
                failures.extend(self.judge_spread(index, expect, spread));
            }
        }
        failures.sort_by_key(|failure| failure.step);
        match (failures.into_iter().next(), run.unjudged) {
            (Some(Failure { step, expected, got }), _) => Verdict::Fail { step, expected, got },
            (None, Some(op)) => Verdict::Skip(op),
            (None, None) => Verdict::Pass,
        }
    }

    /// Runs the case with one seed and returns what happened, a line each.
    pub fn story(&self, seed: u64) -> Vec<String> {
        let Ok(mut run) = Run::new(self, seed) else {
            return Vec::new();
        };
        run.log = Some(Vec::new());
        run.play();
        run.log.unwrap_or_default()
    }

    fn judge_spread(&self, index: usize, expect: &Value, spread: &Value) -> Option<Failure> {
        let step = at(expect);
        let delays: Vec<u64> = (1..=SPREAD_SEEDS)
            .filter_map(|seed| {
                let mut run = Run::new(self, seed).ok()?;
                run.play();
                run.first_delay(index)
            })
            .collect();
        let bounds = spread.as_array().map(Vec::as_slice);
        let ok = match (bounds, delays.iter().min(), delays.iter().max()) {
            (Some([a, b]), Some(&min), Some(&max)) => {
                a.as_f64().is_some_and(|a| (min as f64) < a) && b.as_f64().is_some_and(|b| (max as f64) > b)
            }
            _ => false,
        };
        (!ok).then(|| Failure {
            step,
            expected: expect.to_string(),
            got: format!("delays over {SPREAD_SEEDS} seeds: {delays:?}"),
        })
    }
}

struct Failure {
    step: usize,
    expected: String,
    got: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SocketState {
    Connecting,
    Open,
    Ended,
}

struct Socket {
    client: usize,
    generation: u32,
    state: SocketState,
    pongs: bool,
    waiting: Vec<Value>,
}

/// Something the client did. `step` is absent for what is not judged.
struct Sent {
    step: Option<usize>,
    time: u64,
    kind: String,
    conn: Option<usize>,
    fields: Map<String, Value>,
    client: usize,
    request: Option<u64>,
    /// Dials: the time since the previous socket ended.
    since_end: Option<u64>,
}

struct Delivered {
    step: Option<usize>,
    to: Option<String>,
    shown: Shown,
}

struct Flagged {
    step: Option<usize>,
    name: String,
    entity: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
}

struct Seen {
    step: Option<usize>,
    client: usize,
    arrival: Weak<Arrival>,
    serial: u64,
    entity: String,
    seq: Option<u64>,
    id: Option<String>,
}

struct Run<'a> {
    case: &'a Case,
    seed: u64,
    options: Options,
    now: u64,
    facades: Vec<Facade>,
    /// The client that `app` steps and page events go to; none after `free`.
    app: Option<usize>,
    sockets: Vec<Socket>,
    replies: VecDeque<(usize, String)>,
    last_end: BTreeMap<usize, u64>,
    step: usize,
    judging: bool,
    starts: Vec<u64>,
    sent: Vec<Sent>,
    delivered: Vec<Delivered>,
    flagged: Vec<Flagged>,
    seen: Vec<Seen>,
    applied: BTreeSet<(usize, u64)>,
    /// Drops that were found: expectation, and the arrivals that must never be applied.
    dropped: Vec<(usize, Vec<(usize, u64)>)>,
    failures: Vec<Failure>,
    unjudged: Option<String>,
    log: Option<Vec<String>>,
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, seed: u64) -> Result<Run<'a>, String> {
        let mut flat = case.config.clone();
        for key in ["subscribe", "heartbeat", "can"] {
            flat.remove(key);
        }
        let options = Options::parse(&flat)?;
        Ok(Run {
            case,
            seed,
            facades: vec![Facade::new(options.clone(), seed)],
            options,
            now: START,
            app: Some(0),
            sockets: Vec::new(),
            replies: VecDeque::new(),
            last_end: BTreeMap::new(),
            step: 0,
            judging: false,
            starts: Vec::new(),
            sent: Vec::new(),
            delivered: Vec::new(),
            flagged: Vec::new(),
            seen: Vec::new(),
            applied: BTreeSet::new(),
            dropped: Vec::new(),
            failures: Vec::new(),
            unjudged: None,
            log: None,
        })
    }

    fn play(&mut self) {
        self.facades[0].set_now(self.now);
        let wanted = self.case.config.get("subscribe").cloned().unwrap_or(Value::Null);
        for entity in wanted.as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.app_call(&Call::Subscribe { entity: entity.to_owned(), params: None });
        }
        self.settle();
        let case = self.case;
        for (index, step) in case.input.iter().enumerate() {
            self.step = index;
            self.judging = true;
            self.starts.push(self.now);
            self.note(&format!("step {index} {step}"));
            if let Err(problem) = self.perform(step) {
                self.fail(index, step.to_string(), problem);
                return;
            }
            self.settle();
            self.await_delays(index);
            self.judge_step(index);
        }
    }

    fn note(&mut self, line: &str) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>8} {line}", self.now - START));
        }
    }

    fn fail(&mut self, step: usize, expected: String, got: String) {
        self.failures.push(Failure { step, expected, got });
    }

    // ---- steps --------------------------------------------------------------------------------

    #[allow(clippy::too_many_lines)]
    fn perform(&mut self, step: &Value) -> Result<(), String> {
        let fields = step.as_object().ok_or("a step is an object")?;
        let op = fields.get("op").and_then(Value::as_str).unwrap_or("");
        let number = |key: &str| fields.get(key).and_then(Value::as_u64);
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let conn = number("conn").map(|conn| conn as usize);
        let span = number("to").unwrap_or(0).saturating_sub(number("from").unwrap_or(0));
        let asked = [number("count"), number("times"), number("nest"), number("pad"), Some(span)];
        if op != "frame" && asked.into_iter().flatten().any(|asked| asked > MOST) {
            return Err(format!("{op} of more than {MOST}"));
        }
        match op {
            "ready" => {
                let was = std::mem::replace(&mut self.judging, false);
                let done = self.ready(fields, conn);
                self.judging = was;
                done?;
            }
            "ready_many" => {
                let was = std::mem::replace(&mut self.judging, false);
                let count = number("count").unwrap_or(0);
                let last = number("last").unwrap_or(0);
                let mut done = Ok(());
                for index in 1..=count {
                    self.app_call(&Call::Subscribe { entity: format!("e{index}"), params: None });
                }
                for index in 1..=count {
                    let fields = json!({"entity": format!("e{index}"), "epoch": "E1",
                        "last": last, "status": "running", "data": {"v": last}});
                    done = self.ready(fields.as_object().expect("an object"), conn);
                    if done.is_err() {
                        break;
                    }
                }
                self.judging = was;
                done?;
            }
            "open" => self.open(conn)?,
            "fail" => {
                if let Some(socket) = self.find_dial(conn)? {
                    self.end(socket, 1006);
                }
            }
            "close" => {
                let code = number("code").and_then(|code| u16::try_from(code).ok());
                let socket = self.socket(conn)?;
                self.end(socket, code.unwrap_or(1006));
            }
            "frame" => {
                let socket = self.socket(conn)?;
                let text = self.frame_text(fields, socket);
                let binary = fields.get("binary").is_some_and(|b| b == &Value::Bool(true));
                let message = if binary { Message::Binary(text.into_bytes()) } else { Message::Text(text) };
                self.deliver(socket, &message);
            }
            "raw" => {
                let socket = self.socket(conn)?;
                let text = match (text("text"), number("nest")) {
                    (Some(text), _) => text.to_owned(),
                    (None, Some(depth)) => {
                        let depth = depth as usize;
                        "[".repeat(depth) + &"]".repeat(depth)
                    }
                    (None, None) => return Err("raw needs text or nest".to_owned()),
                };
                let binary = fields.get("binary").is_some_and(|b| b == &Value::Bool(true));
                let message = if binary { Message::Binary(text.into_bytes()) } else { Message::Text(text) };
                self.deliver(socket, &message);
            }
            "burst" => self.burst(fields, conn)?,
            "advance" => {
                let ms = number("ms").unwrap_or(0);
                let flag = |key: &str| fields.get(key).is_some_and(|v| v == &Value::Bool(true));
                self.advance(ms, flag("heartbeats"), flag("late"));
            }
            "wake" => {
                // Only the wall clock moved; of that the facade learns by the page's events.
                if let Some(app) = self.app {
                    self.facades[app].set_now(self.now);
                    self.facades[app].page_resume();
                    self.facades[app].page_visible();
                }
            }
            "hidden" | "visible" | "online" | "offline" => {
                if let Some(app) = self.app {
                    let facade = &mut self.facades[app];
                    facade.set_now(self.now);
                    match op {
                        "hidden" => facade.page_hidden(),
                        "visible" => facade.page_visible(),
                        "online" => facade.page_online(),
                        _ => facade.page_offline(),
                    }
                }
            }
            "pongs" => {
                let on = fields.get("on") != Some(&Value::Bool(false));
                let socket = self.socket(conn)?;
                self.sockets[socket].pongs = on;
                if on {
                    for id in std::mem::take(&mut self.sockets[socket].waiting) {
                        let pong = json!({"type": "pong", "id": id}).to_string();
                        self.replies.push_back((socket, pong));
                    }
                }
            }
            "token" => {
                if let Some(app) = self.app {
                    self.facades[app].set_now(self.now);
                    self.facades[app].answer_token(text("value"));
                }
            }
            "app" => self.app(fields)?,
            "plan" => {
                let on = fields.get("on").ok_or("plan needs on")?;
                let entity = on.get("entity").and_then(Value::as_str).ok_or("on needs entity")?;
                let seq = on.get("seq").and_then(Value::as_u64).ok_or("on needs seq")?;
                let calls = fields.get("do").and_then(Value::as_array).ok_or("plan needs do")?;
                let calls: Result<Vec<Call>, String> =
                    calls.iter().map(|call| read_call(call.as_object().ok_or("a call is an object")?)).collect();
                if let Some(app) = self.app {
                    let plan = Plan { entity: entity.to_owned(), seq, calls: calls? };
                    self.facades[app].plan(plan);
                }
            }
            "repeat" => {
                let times = number("times").unwrap_or(1);
                let steps = fields.get("steps").and_then(Value::as_array).ok_or("no steps")?;
                for _ in 0..times {
                    for step in steps {
                        self.perform(step)?;
                        self.settle();
                    }
                }
            }
            other => {
                self.unjudged.get_or_insert_with(|| other.to_owned());
            }
        }
        Ok(())
    }

    /// Brings an entity to `live` at a position, on a connection that is opened if it is not.
    fn ready(&mut self, fields: &Map<String, Value>, conn: Option<usize>) -> Result<(), String> {
        let entity = fields.get("entity").and_then(Value::as_str).ok_or("ready needs entity")?;
        self.app_call(&Call::Subscribe { entity: entity.to_owned(), params: None });
        self.pump();
        if let (Some(token), Some(app)) = (fields.get("token").and_then(Value::as_str), self.app) {
            self.facades[app].answer_token(Some(token));
        }
        self.settle();
        let open =
            |run: &Run, conn: usize| run.sockets.get(conn - 1).is_some_and(|socket| socket.state == SocketState::Open);
        let conn = conn.unwrap_or(self.sockets.len().max(1));
        if !open(self, conn) {
            self.open(Some(conn))?;
        }
        self.settle();
        let socket = conn - 1;
        let epoch = fields.get("epoch").cloned().unwrap_or(json!(""));
        let last = fields.get("last").and_then(Value::as_u64).unwrap_or(0);
        let last_id = fields.get("last_id").and_then(Value::as_str);
        let status = fields.get("status").cloned().unwrap_or(Value::Null);
        let mut snapshot = json!({"type": "snapshot", "entity": entity, "epoch": epoch,
            "seq": last, "status": status, "data": fields.get("data")});
        if let Some(request) = self.request("subscribe", None, Some(entity), Some(socket)) {
            snapshot["request"] = json!(request);
        }
        if last_id.is_some() && last > 0 {
            // An id is remembered when its event was applied, so the last change comes as an event.
            snapshot["seq"] = json!(last - 1);
            snapshot["status"] = Value::Null;
        }
        self.deliver(socket, &Message::Text(snapshot.to_string()));
        if let (Some(id), 1..) = (last_id, last) {
            let event = json!({"type": "event", "entity": entity, "epoch": epoch,
                "prev": last - 1, "seq": last, "id": id, "status": status});
            self.deliver(socket, &Message::Text(event.to_string()));
        }
        self.settle();
        let app = self.app.ok_or("no client")?;
        self.facades[app].flush_now();
        self.pump();
        let got = |field: &str| self.facades[app].field(entity, field).unwrap_or(Value::Null);
        let sync = got("sync");
        if sync != "live" && sync != "final" || got("seq") != json!(last) {
            return Err(format!("{entity} is {sync} at {} after ready", got("seq")));
        }
        Ok(())
    }

    /// Finds the dial that is out, moving the clock to it; `None` for one that is over.
    fn find_dial(&mut self, conn: Option<usize>) -> Result<Option<usize>, String> {
        if let Some(conn) = conn.filter(|&conn| conn >= 1 && conn <= self.sockets.len()) {
            let state = self.sockets[conn - 1].state;
            if conn < self.sockets.len() || state != SocketState::Connecting {
                let attached = state == SocketState::Connecting;
                return Ok(attached.then_some(conn - 1));
            }
        }
        let limit = self.now + DIAL_WAIT;
        loop {
            let newest = self.sockets.len();
            let out = newest > 0
                && self.sockets[newest - 1].state == SocketState::Connecting
                && conn.is_none_or(|conn| conn == newest);
            if out {
                return Ok(Some(newest - 1));
            }
            match self.next_timer().filter(|&timer| timer <= limit) {
                Some(timer) => {
                    self.now = self.now.max(timer);
                    self.settle();
                }
                None => return Err("no dial within 60 s".to_owned()),
            }
        }
    }

    fn open(&mut self, conn: Option<usize>) -> Result<(), String> {
        let Some(socket) = self.find_dial(conn)? else {
            return Ok(());
        };
        let Socket { client, generation, .. } = self.sockets[socket];
        self.sockets[socket].state = SocketState::Open;
        self.facades[client].set_now(self.now);
        self.facades[client].opened(generation);
        self.pump();
        let can = json!(["replay", "snapshot", "heads"]);
        let mut welcome = json!({"type": "welcome"});
        welcome["can"] = self.case.config.get("can").cloned().unwrap_or(can);
        if let Some(heartbeat) = self.case.config.get("heartbeat") {
            welcome["heartbeat"] = heartbeat.clone();
        }
        self.deliver(socket, &Message::Text(welcome.to_string()));
        Ok(())
    }

    /// The socket ends from outside.
    fn end(&mut self, socket: usize, code: u16) {
        let Socket { client, generation, state, .. } = self.sockets[socket];
        if state == SocketState::Ended {
            return;
        }
        self.sockets[socket].state = SocketState::Ended;
        self.last_end.insert(client, self.now);
        self.facades[client].set_now(self.now);
        self.facades[client].ended(generation, code);
    }

    fn socket(&self, conn: Option<usize>) -> Result<usize, String> {
        let conn = conn.unwrap_or(self.sockets.len());
        if conn >= 1 && conn <= self.sockets.len() {
            Ok(conn - 1)
        } else {
            Err(format!("there is no connection {conn} yet"))
        }
    }

    fn deliver(&mut self, socket: usize, message: &Message) {
        let Socket { client, generation, state, .. } = self.sockets[socket];
        if state == SocketState::Open {
            self.facades[client].set_now(self.now);
            self.facades[client].message(generation, message);
        }
        self.pump();
    }

    /// The text of a frame step, with the request filled in that it answers.
    fn frame_text(&self, fields: &Map<String, Value>, socket: usize) -> String {
        let mut frame = fields.clone();
        for key in ["op", "conn", "answers", "binary", "pad"] {
            frame.remove(key);
        }
        if let Some(answers) = fields.get("answers").and_then(Value::as_str) {
            let (kind, nth) = match answers.split_once('#') {
                Some((kind, nth)) => (kind, nth.parse::<usize>().ok()),
                None => (answers, None),
            };
            let entity = fields.get("entity").and_then(Value::as_str);
            // A request that was never made gets an id that nobody gave.
            let request = self.request(kind, nth, entity, Some(socket)).unwrap_or(u64::from(u32::MAX));
            frame.insert("request".to_owned(), json!(request));
        }
        let pad = fields.get("pad").and_then(Value::as_u64).unwrap_or(0).min(MOST) as usize;
        Value::Object(frame).to_string() + &" ".repeat(pad)
    }

    /// The latest request of a kind for an entity on a socket, or the n-th distinct one of the case.
    fn request(&self, kind: &str, nth: Option<usize>, entity: Option<&str>, socket: Option<usize>) -> Option<u64> {
        let concerns = |sent: &&Sent| {
            let behind = sent.fields.get("behind").and_then(Value::as_array);
            sent.kind == kind
                && entity.is_none_or(|entity| {
                    sent.fields.get("entity").is_some_and(|name| name == entity)
                        || behind.is_some_and(|list| list.iter().any(|item| item[0] == entity))
                })
        };
        if let Some(nth) = nth {
            let mut known = BTreeSet::new();
            for sent in self.sent.iter().filter(concerns) {
                if known.insert((sent.client, sent.request)) && known.len() == nth {
                    return sent.request;
                }
            }
            return None;
        }
        let here = |sent: &&Sent| sent.conn == socket.map(|socket| socket + 1);
        let direct = self.sent.iter().filter(here).rfind(concerns);
        // A member is covered by the subscription of its topic.
        let topic = || {
            self.sent.iter().filter(here).rfind(|sent| {
                let name = sent.fields.get("entity").and_then(Value::as_str);
                sent.kind == kind && name.is_some_and(|name| name.starts_with("topic/"))
            })
        };
        direct.or_else(topic)?.request
    }

    fn burst(&mut self, fields: &Map<String, Value>, conn: Option<usize>) -> Result<(), String> {
        let number = |key: &str| fields.get(key).and_then(Value::as_u64);
        let (from, to) = (number("from").ok_or("no from")?, number("to").ok_or("no to")?);
        let socket = self.socket(conn)?;
        let event = |seq: u64| {
            json!({"type": "event", "entity": fields.get("entity"), "epoch": fields.get("epoch"),
                "seq": seq, "data": {"v": seq}})
        };
        if fields.get("task").and_then(Value::as_str) == Some("one") {
            let Socket { client, generation, state, .. } = self.sockets[socket];
            if state != SocketState::Open {
                return Ok(());
            }
            self.facades[client].set_now(self.now);
            let all: Vec<u64> = (from..=to).collect();
            for batch in all.chunks(BATCH) {
                let batch: Value = batch.iter().map(|&seq| event(seq)).collect();
                let message = Message::Text(batch.to_string());
                self.facades[client].message_in_task(generation, &message);
            }
            self.facades[client].end_task();
        } else {
            for seq in from..=to {
                self.deliver(socket, &Message::Text(event(seq).to_string()));
                self.settle();
            }
        }
        Ok(())
    }

    fn advance(&mut self, ms: u64, heartbeats: bool, late: bool) {
        let end = self.now.saturating_add(ms);
        let promised = self.case.config.get("heartbeat").and_then(Value::as_f64);
        let interval = promised.filter(|_| heartbeats).map(|s| ((s * 1000.0) as u64).max(1));
        let mut beat = interval.map(|interval| self.now + interval);
        // A clock that moves for ages fires timers for ages.
        for _ in 0..RESTLESS {
            let timer = if late { None } else { self.next_timer() };
            let next = match (timer, beat) {
                (Some(timer), Some(beat)) => Some(timer.min(beat)),
                (timer, beat) => timer.or(beat),
            };
            let Some(next) = next.filter(|&next| next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if beat.is_some_and(|at| at <= self.now) {
                beat = interval.map(|interval| self.now + interval);
                if let Some(newest) = self.sockets.len().checked_sub(1) {
                    let heartbeat = json!({"type": "heartbeat", "heads": []}).to_string();
                    self.deliver(newest, &Message::Text(heartbeat));
                }
            }
            if late { self.pump() } else { self.settle() }
        }
        self.now = self.now.max(end);
        self.settle();
    }

    fn app(&mut self, fields: &Map<String, Value>) -> Result<(), String> {
        match fields.get("call").and_then(Value::as_str) {
            Some("create") => {
                let mut facade = Facade::new(self.options.clone(), self.seed);
                facade.set_now(self.now);
                self.facades.push(facade);
                self.app = Some(self.facades.len() - 1);
            }
            Some("free") => {
                self.app_call(&Call::Free);
                self.pump();
                self.app = None;
            }
            _ => match read_call(fields) {
                Ok(call) => self.app_call(&call),
                Err(op) => {
                    self.unjudged.get_or_insert(op);
                }
            },
        }
        Ok(())
    }

    fn app_call(&mut self, call: &Call) {
        if let Some(app) = self.app {
            self.facades[app].set_now(self.now);
            self.facades[app].call(call);
        }
        self.pump();
    }

    // ---- what happens by itself ---------------------------------------------------------------

    fn next_timer(&self) -> Option<u64> {
        self.facades.iter().filter_map(Facade::next_timer).min()
    }

    /// Lets everything happen that happens without time passing.
    fn settle(&mut self) {
        for _ in 0..RESTLESS {
            self.pump();
            if let Some((socket, text)) = self.replies.pop_front() {
                self.deliver(socket, &Message::Text(text));
                continue;
            }
            let mut rests = true;
            for facade in &mut self.facades {
                facade.set_now(self.now);
                if let Some(token) = facade.wants_token() {
                    facade.answer_token(Some(&token));
                    rests = false;
                } else if facade.next_timer().is_some_and(|timer| timer <= self.now) {
                    facade.fire();
                    rests = false;
                }
            }
            if rests {
                return;
            }
        }
        self.fail(self.step, "comes to rest".to_owned(), "a loop without time".to_owned());
    }

    /// Takes what the clients did, with step and time.
    fn pump(&mut self) {
        let step = self.judging.then_some(self.step);
        for client in 0..self.facades.len() {
            for arrival in self.facades[client].take_arrived() {
                self.seen.push(Seen {
                    step,
                    client,
                    serial: arrival.serial,
                    entity: arrival.entity.clone(),
                    seq: arrival.seq,
                    id: arrival.id.clone(),
                    arrival: Rc::downgrade(&arrival),
                });
            }
            for record in self.facades[client].take_trace() {
                self.note(&format!("    {record:?}"));
                self.record(step, client, record);
            }
        }
    }

    fn record(&mut self, step: Option<usize>, client: usize, record: Record) {
        match record {
            Record::Deliver { to, shown } => self.delivered.push(Delivered { step, to, shown }),
            Record::Applied { serial } => {
                self.applied.insert((client, serial));
            }
            Record::Flag { name, entity, from, to } => {
                self.flagged.push(Flagged { step, name: name.to_owned(), entity, from, to });
            }
            Record::Dial { generation } => {
                self.sockets.push(Socket {
                    client,
                    generation,
                    state: SocketState::Connecting,
                    pongs: true,
                    waiting: Vec::new(),
                });
                let conn = Some(self.sockets.len());
                let since_end = self.last_end.get(&client).map(|end| self.now - end);
                self.push_sent(step, client, "dial", conn, Map::new(), since_end);
            }
            Record::Close { generation, code } => {
                let socket = self.socket_of(client, generation);
                if let Some(socket) = socket {
                    self.sockets[socket].state = SocketState::Ended;
                }
                self.last_end.insert(client, self.now);
                let conn = socket.map(|socket| socket + 1);
                let fields = Map::from_iter([("code".to_owned(), json!(code))]);
                self.push_sent(step, client, "close", conn, fields, None);
            }
            Record::Token => self.push_sent(step, client, "token", None, Map::new(), None),
            Record::Send { generation, frame } => self.sent_frame(step, client, generation, frame),
            Record::Refuted(said) => self.fail(self.step, "what the plan gives".to_owned(), said),
            Record::Sync { .. } | Record::Connection(_) => {}
        }
    }

    /// Takes a command apart: one entry per entity that it names.
    fn sent_frame(&mut self, step: Option<usize>, client: usize, generation: u32, frame: Value) {
        let socket = self.socket_of(client, generation);
        let conn = socket.map(|socket| socket + 1);
        let Value::Object(fields) = frame else { return };
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or("").to_owned();
        if let ("ping", Some(socket)) = (kind.as_str(), socket) {
            let id = fields.get("id").cloned().unwrap_or(Value::Null);
            if self.sockets[socket].pongs {
                let pong = json!({"type": "pong", "id": id}).to_string();
                self.replies.push_back((socket, pong));
            } else {
                self.sockets[socket].waiting.push(id);
            }
        }
        let list = ["entities", "ranges"].iter().find_map(|key| fields.get(*key)?.as_array());
        match list {
            None => self.push_sent(step, client, &kind, conn, fields, None),
            Some(items) => {
                for item in items {
                    let mut apart = match item {
                        Value::Object(item) => item.clone(),
                        name => Map::from_iter([("entity".to_owned(), name.clone())]),
                    };
                    if let Some(request) = fields.get("request") {
                        apart.insert("request".to_owned(), request.clone());
                    }
                    self.push_sent(step, client, &kind, conn, apart, None);
                }
            }
        }
    }

    fn push_sent(
        &mut self,
        step: Option<usize>,
        client: usize,
        kind: &str,
        conn: Option<usize>,
        fields: Map<String, Value>,
        since_end: Option<u64>,
    ) {
        let request = fields.get("request").and_then(Value::as_u64);
        let (kind, time) = (kind.to_owned(), self.now);
        self.sent.push(Sent { step, time, kind, conn, fields, client, request, since_end });
    }

    fn socket_of(&self, client: usize, generation: u32) -> Option<usize> {
        self.sockets.iter().position(|s| s.client == client && s.generation == generation)
    }

    // ---- judging ------------------------------------------------------------------------------

    /// Moves the clock on until what a `delay` of this step waits for has come.
    fn await_delays(&mut self, step: usize) {
        let case = self.case;
        for expect in &case.expect {
            let Some(send) = expect.get("send") else {
                continue;
            };
            let Some([_, Value::Number(max)]) = send.get("delay").and_then(Value::as_array).map(Vec::as_slice) else {
                continue;
            };
            if until(expect) != step {
                continue;
            }
            let max = max.as_f64().unwrap_or(0.0) as u64;
            let begin = if send.get("type").is_some_and(|kind| kind == "dial") {
                self.app.and_then(|app| self.last_end.get(&app).copied())
            } else {
                None
            };
            let limit = begin.unwrap_or(self.starts[at(expect)]) + max;
            while !self.sent.iter().any(|sent| self.matches(sent, expect)) {
                match self.next_timer().filter(|&timer| timer <= limit) {
                    Some(timer) => {
                        self.now = self.now.max(timer);
                        self.settle();
                    }
                    None => break,
                }
            }
        }
    }

    /// Judges what must be seen now: states, held events, and what came at this step to be dropped.
    fn judge_step(&mut self, step: usize) {
        let case = self.case;
        for (index, expect) in case.expect.iter().enumerate() {
            if at(expect) != step {
                continue;
            }
            if let Some(hold) = expect.get("hold") {
                let entity = hold.get("entity").and_then(Value::as_str).unwrap_or("");
                let held = self.app.map_or(0, |app| self.facades[app].held(entity));
                if hold.get("count").and_then(Value::as_u64) != Some(held) {
                    self.fail(step, expect.to_string(), format!("{held} held"));
                }
            }
            if let Some(Value::Object(state)) = expect.get("state") {
                self.judge_state(step, expect, state);
            }
            if let Some(Value::Object(drop)) = expect.get("drop") {
                self.judge_drop(step, index, expect, drop);
            }
        }
    }

    fn judge_state(&mut self, step: usize, expect: &Value, state: &Map<String, Value>) {
        let entity = state.get("entity").and_then(Value::as_str);
        for (key, wanted) in state {
            let got = match key.as_str() {
                "entity" | "note" => continue,
                "clean" => {
                    self.unjudged.get_or_insert_with(|| key.clone());
                    continue;
                }
                "connection" => self.app.map_or(json!("closed"), |app| json!(self.facades[app].connection())),
                "sockets" => {
                    let over = |socket: &&Socket| socket.state != SocketState::Ended;
                    json!(self.sockets.iter().filter(over).count())
                }
                "listeners" => {
                    json!(self.facades.iter().map(Facade::page_listeners).sum::<u64>())
                }
                key => {
                    let field = self.app.zip(entity).and_then(|(app, entity)| self.facades[app].field(entity, key));
                    match field {
                        Some(field) => field,
                        None => {
                            self.unjudged.get_or_insert_with(|| format!("state {key}"));
                            continue;
                        }
                    }
                }
            };
            let within = match (wanted, got.as_u64()) {
                (Value::Array(bounds), Some(got)) if key == "sockets" || key == "listeners" => {
                    let bound = |index: usize| bounds.get(index).and_then(Value::as_u64);
                    bound(0).is_some_and(|min| got >= min) && bound(1).is_some_and(|max| got <= max)
                }
                _ => json_eq(wanted, &got),
            };
            if !within {
                self.fail(step, expect.to_string(), format!("{key} {got}"));
            }
        }
    }

    fn judge_drop(&mut self, step: usize, index: usize, expect: &Value, drop: &Map<String, Value>) {
        let entity = drop.get("entity").and_then(Value::as_str);
        let seq = drop.get("seq").and_then(Value::as_u64);
        let id = drop.get("id").and_then(Value::as_str);
        let came: Vec<&Seen> = self
            .seen
            .iter()
            .filter(|seen| {
                seen.step == Some(step)
                    && Some(seen.entity.as_str()) == entity
                    && (seq.is_none() || seen.seq == seq)
                    && (id.is_none() || seen.id.as_deref() == id)
            })
            .collect();
        let held = came.iter().any(|seen| seen.arrival.strong_count() > 0);
        let serials = came.iter().map(|seen| (seen.client, seen.serial)).collect();
        self.dropped.push((index, serials));
        if held {
            self.fail(step, expect.to_string(), "it is held".to_owned());
        }
        if let Some(counter) = drop.get("as").and_then(Value::as_str) {
            let rose = self.flagged.iter().any(|flag| {
                flag.step == Some(step)
                    && flag.name == counter
                    && (flag.entity.is_none() || flag.entity.as_deref() == entity)
            });
            if !rose {
                self.fail(step, expect.to_string(), format!("no {counter} was counted"));
            }
        }
    }

    /// Judges what needs the whole run, and gives all failures.
    fn judge(&mut self) -> Vec<Failure> {
        if self.starts.len() < self.case.input.len() {
            // The run broke off; that is the failure, what follows from it is not.
            return std::mem::take(&mut self.failures);
        }
        for (index, serials) in std::mem::take(&mut self.dropped) {
            if serials.iter().any(|serial| self.applied.contains(serial)) {
                let expect = &self.case.expect[index];
                self.fail(at(expect), expect.to_string(), "it was applied".to_owned());
            }
        }
        self.judge_deliveries();
        let case = self.case;
        for expect in &case.expect {
            if expect.get("send").is_some() {
                self.judge_send(expect);
            } else if let Some(flag) = expect.get("flag") {
                let (from, to) = (at(expect), until(expect));
                let seen = |step: Option<usize>| step.is_some_and(|s| s >= from && s <= to);
                if !self.flagged.iter().any(|got| seen(got.step) && flag_matches(got, flag)) {
                    let got: Vec<String> = self
                        .flagged
                        .iter()
                        .filter(|got| seen(got.step))
                        .map(|got| format!("{} {:?}", got.name, got.entity))
                        .collect();
                    self.fail(from, expect.to_string(), format!("flags {got:?}"));
                }
            } else if let Some(never) = expect.get("never") {
                self.judge_never(expect, never);
            } else if let Some(deliver) = expect.get("deliver") {
                if let Some(to) = deliver.get("to").and_then(Value::as_str) {
                    let came = self.delivered.iter().any(|got| {
                        got.step == Some(at(expect))
                            && got.to.as_deref() == Some(to)
                            && delivery_matches(&got.shown, deliver)
                    });
                    if !came {
                        let got = format!("nothing such came to {to}");
                        self.fail(at(expect), expect.to_string(), got);
                    }
                }
            } else if !["state", "hold", "drop", "note"].iter().any(|k| expect.get(k).is_some()) {
                self.unjudged.get_or_insert_with(|| format!("expectation {expect}"));
            }
        }
        std::mem::take(&mut self.failures)
    }

    /// Deliveries are complete and in order; optional ones may be missing.
    fn judge_deliveries(&mut self) {
        let mut wanted: Vec<(usize, Value)> = Vec::new();
        for expect in &self.case.expect {
            let Some(deliver) = expect.get("deliver") else {
                continue;
            };
            match (deliver.get("to"), deliver.get("from").and_then(Value::as_u64)) {
                (Some(Value::String(_)), _) => {}
                (Some(to), Some(from)) => {
                    for seq in from..=to.as_u64().unwrap_or(from) {
                        let mut one = deliver.clone();
                        if let Some(fields) = one.as_object_mut() {
                            fields.remove("from");
                            fields.remove("to");
                            fields.insert("seq".to_owned(), json!(seq));
                        }
                        wanted.push((at(expect), one));
                    }
                }
                _ => wanted.push((at(expect), deliver.clone())),
            }
        }
        wanted.sort_by_key(|(step, _)| *step);
        let got: Vec<&Delivered> = self.delivered.iter().filter(|got| got.to.is_none() && got.step.is_some()).collect();
        // The expectations that may come next; more than one because of optional ones.
        let optional = |index: usize| wanted[index].1.get("optional").is_some_and(|value| value == &Value::Bool(true));
        let with_skips = |mut states: BTreeSet<usize>| {
            for index in 0..wanted.len() {
                if states.contains(&index) && optional(index) {
                    states.insert(index + 1);
                }
            }
            states
        };
        let skip_from = |index: usize, states: &mut BTreeSet<usize>| {
            let mut index = index;
            states.insert(index);
            while index < wanted.len() && optional(index) {
                index += 1;
                states.insert(index);
            }
        };
        let mut states = with_skips(BTreeSet::from([0]));
        for delivered in got {
            let step = delivered.step.unwrap_or(0);
            let mut next = BTreeSet::new();
            for &index in &states {
                if let Some((at, deliver)) = wanted.get(index)
                    && *at == step
                    && delivery_matches(&delivered.shown, deliver)
                {
                    skip_from(index + 1, &mut next);
                }
            }
            if next.is_empty() {
                let expected = states
                    .first()
                    .and_then(|&index| wanted.get(index))
                    .map_or("no further delivery".to_owned(), |(at, d)| format!("at {at} {d}"));
                let got = format!("delivery {:?}", delivered.shown);
                self.failures.push(Failure { step, expected, got });
                return;
            }
            states = next;
        }
        if !states.contains(&wanted.len()) {
            let index = states.first().copied().unwrap_or(0);
            if let Some((at, deliver)) = wanted.get(index) {
                let (step, expected) = (*at, format!("delivery {deliver}"));
                let got = "no such delivery".to_owned();
                self.failures.push(Failure { step, expected, got });
            }
        }
    }

    fn judge_send(&mut self, expect: &Value) {
        let found: Vec<&Sent> = self.sent.iter().filter(|s| self.matches(s, expect)).collect();
        let wrong = match expect.get("times").and_then(Value::as_u64) {
            Some(times) => (found.len() as u64 != times).then(|| format!("{} times", found.len())),
            None => found.is_empty().then(|| self.sends_between(at(expect), until(expect))),
        };
        if let Some(got) = wrong {
            self.fail(at(expect), expect.to_string(), got);
            return;
        }
        if expect.get("send").and_then(|send| send.get("each")).is_some_and(|e| e == "entity") {
            let mut names = BTreeSet::new();
            let twice = found.iter().find_map(|sent| {
                let name = sent.fields.get("entity").and_then(Value::as_str).unwrap_or("");
                (!names.insert(name)).then(|| name.to_owned())
            });
            if let Some(name) = twice {
                self.fail(at(expect), expect.to_string(), format!("{name} twice"));
            }
        }
    }

    fn sends_between(&self, from: usize, to: usize) -> String {
        let sent: Vec<String> = self
            .sent
            .iter()
            .filter(|sent| sent.step.is_some_and(|step| step >= from && step <= to))
            .take(12)
            .map(|sent| {
                let delay = sent.since_end.map(|ms| format!(" {ms} ms after")).unwrap_or_default();
                format!("{}{delay} {}", sent.kind, Value::Object(sent.fields.clone()))
            })
            .collect();
        format!("sent [{}]", sent.join(", "))
    }

    /// Whether a send is what an expectation names, the delay included.
    fn matches(&self, sent: &Sent, expect: &Value) -> bool {
        let Some(Value::Object(send)) = expect.get("send") else {
            return false;
        };
        let in_step = sent.step.is_some_and(|s| s >= at(expect) && s <= until(expect));
        if !in_step || !send_matches(sent, send) {
            return false;
        }
        match send.get("delay").and_then(Value::as_array).map(Vec::as_slice) {
            Some([min, max]) => self.delay(sent, expect).is_some_and(|delay| {
                min.as_f64().is_some_and(|min| delay as f64 >= min)
                    && max.as_f64().is_some_and(|max| delay as f64 <= max)
            }),
            _ => true,
        }
    }

    fn delay(&self, sent: &Sent, expect: &Value) -> Option<u64> {
        if sent.kind == "dial" {
            return sent.since_end;
        }
        self.starts.get(at(expect)).map(|start| sent.time.saturating_sub(*start))
    }

    /// The delay of the first send that an expectation names, whether or not in its range.
    fn first_delay(&self, index: usize) -> Option<u64> {
        let expect = self.case.expect.get(index)?;
        let Some(Value::Object(send)) = expect.get("send") else {
            return None;
        };
        let in_step = |sent: &&Sent| sent.step.is_some_and(|s| s >= at(expect) && s <= until(expect));
        let first = self.sent.iter().filter(in_step).find(|sent| send_matches(sent, send))?;
        self.delay(first, expect)
    }

    fn judge_never(&mut self, expect: &Value, never: &Value) {
        let (from, to) = (at(expect), until(expect));
        let within = |step: Option<usize>| step.is_some_and(|s| s >= from && s <= to);
        let mut broken: Option<String> = None;
        if let Some(deliver) = never.get("deliver") {
            broken = broken.or_else(|| {
                let got = self
                    .delivered
                    .iter()
                    .find(|got| within(got.step) && got.to.is_none() && delivery_matches(&got.shown, deliver));
                got.map(|got| format!("delivery {:?} at {:?}", got.shown, got.step))
            });
        }
        for key in ["send", "close"] {
            let Some(Value::Object(send)) = never.get(key) else {
                continue;
            };
            let got = self
                .sent
                .iter()
                .find(|sent| within(sent.step) && (key == "send" || sent.kind == "close") && send_matches(sent, send));
            broken = broken.or_else(|| {
                got.map(|got| {
                    let fields = Value::Object(got.fields.clone());
                    format!("{} {fields} at step {:?}", got.kind, got.step)
                })
            });
        }
        if let Some(flag) = never.get("flag") {
            broken = broken.or_else(|| {
                let got = self.flagged.iter().find(|got| within(got.step) && flag_matches(got, flag));
                got.map(|got| format!("flag {} at step {:?}", got.name, got.step))
            });
        }
        if let Some(got) = broken {
            self.fail(from, expect.to_string(), got);
        }
    }
}

fn at(expect: &Value) -> usize {
    expect.get("at").and_then(Value::as_u64).unwrap_or(0) as usize
}

fn until(expect: &Value) -> usize {
    expect.get("until").and_then(Value::as_u64).map_or_else(|| at(expect), |step| step as usize)
}

fn read_call(fields: &Map<String, Value>) -> Result<Call, String> {
    let text =
        |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned).ok_or(format!("app without {key}"));
    let call = text("call")?;
    Ok(match call.as_str() {
        "subscribe" => {
            let params = fields.get("params").filter(|params| !params.is_null()).cloned();
            Call::Subscribe { entity: text("entity")?, params }
        }
        "unsubscribe" => Call::Unsubscribe { entity: text("entity")? },
        "getState" => {
            let gives = fields.get("gives").and_then(Value::as_object).cloned();
            Call::GetState { entity: text("entity")?, gives: gives.unwrap_or_default() }
        }
        "listen" => Call::Listen {
            entity: text("entity")?,
            name: text("name")?,
            throws: fields.get("throws").is_some_and(|throws| throws == &Value::Bool(true)),
        },
        "changes" => Call::Changes { entity: text("entity")?, name: text("name")? },
        "read" => Call::Read { name: text("name")? },
        "connect" => Call::Connect,
        "close" => Call::Close,
        "free" => Call::Free,
        "promise" => Call::Promise,
        "resolve" => Call::Resolve,
        other => return Err(format!("app {other}")),
    })
}

fn send_matches(sent: &Sent, send: &Map<String, Value>) -> bool {
    send.iter().all(|(key, wanted)| match key.as_str() {
        "delay" | "spread" | "each" | "note" => true,
        "type" => wanted.as_str() == Some(sent.kind.as_str()),
        "conn" => json_eq(wanted, &json!(sent.conn)),
        "behind" => same_list(wanted, sent.fields.get(key).unwrap_or(&Value::Null)),
        key => json_eq(wanted, sent.fields.get(key).unwrap_or(&Value::Null)),
    })
}

/// Lists with the same items in any order.
fn same_list(a: &Value, b: &Value) -> bool {
    match (a.as_array(), b.as_array()) {
        (Some(a), Some(b)) => a.len() == b.len() && a.iter().all(|item| b.iter().any(|other| json_eq(item, other))),
        _ => json_eq(a, b),
    }
}

fn delivery_matches(shown: &Shown, deliver: &Value) -> bool {
    deliver.as_object().into_iter().flatten().all(|(key, wanted)| {
        let got = match key.as_str() {
            "entity" => json!(shown.entity),
            "seq" => json!(shown.seq),
            "kind" => match shown.kind {
                Kind::Event => json!("event"),
                Kind::Snapshot => json!("snapshot"),
            },
            "id" => json!(shown.id),
            "epoch" => json!(shown.epoch),
            "status" => json!(shown.status),
            "data" | "state" => shown.data.clone(),
            "reset" => {
                let wanted = wanted == &Value::Bool(true);
                return wanted == shown.reset;
            }
            "skipped" => match (wanted, shown.skipped) {
                (Value::Bool(wanted), skipped) => return *wanted == skipped.is_some(),
                (_, Some((from, to))) => json!([from, to]),
                (_, None) => Value::Null,
            },
            _ => return true,
        };
        json_eq(wanted, &got)
    })
}

fn flag_matches(got: &Flagged, flag: &Value) -> bool {
    flag.as_object().into_iter().flatten().all(|(key, wanted)| match key.as_str() {
        "name" => wanted.as_str() == Some(got.name.as_str()),
        "entity" => json_eq(wanted, &json!(got.entity)),
        "from" => json_eq(wanted, &json!(got.from)),
        "to" => json_eq(wanted, &json!(got.to)),
        _ => true,
    })
}
