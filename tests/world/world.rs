//! A page, a gateway, the network between them, and time: one run is one list of choices.
//!
//! Two fault models. FIFO: what arrives, arrives in order, until the connection is cut or goes silent; so the
//! bounds of liveness hold. Hostile: frames are lost, doubled and swapped inside a connection as well.

use std::collections::VecDeque;
use std::sync::Arc;

use inorder::client::{Can, ConnectionState, Sync};
use inorder::config::{Config, Continuity, Model, OnGap, Reopen};

use super::gateway::{Ask, Entry, Fold, Frame, Gateway, Moods};
use super::page::{Act, Call, MARKS, Mark, Page};
use super::source::Source;

/// Virtual time within which everything is right again after the last fault: two probes, a capped backoff, five
/// snapshots and a round of thirty seconds, three times over because an epoch may flap meanwhile.
const CALM: u64 = 600_000;

/// Timers of one stretch of time, or of the calm; more is a loop.
const RESTLESS: u32 = 20_000;

/// Steps of one run at most.
pub const STEPS: u32 = 400;

/// Faults that a run switches on or off, so that each is met alone and with others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub hostile: bool,
    pub drop: bool,
    pub duplicate: bool,
    pub swap: bool,
    pub cut: bool,
    pub half_open: bool,
    pub restart: bool,
    pub trim: bool,
    pub late: bool,
    pub freeze: bool,
    pub reduce: bool,
    pub app: bool,
    pub codes: bool,
    pub tokens: bool,
    pub bad: bool,
    pub page_events: bool,
    pub callbacks: bool,
    /// Snapshots are pushed unasked.
    pub pushes: bool,
    /// Sockets that are over say something.
    pub ghosts: bool,
    /// Absurd numbers.
    pub poison: bool,
    /// The wasm traps.
    pub traps: bool,
    /// Histories fork.
    pub forks: bool,
    /// Owners start over in the same epoch.
    pub resets: bool,
    /// The server refuses, the page hides.
    pub stops: bool,
}

impl Faults {
    /// Whether any of the rarer ones is on.
    fn is_odd(self) -> bool {
        self.pushes || self.ghosts || self.poison || self.traps || self.forks || self.resets || self.stops
    }
}

/// What must hold after every step, and what that is about. A violation names one of them.
pub const INVARIANTS: &[(&str, &str)] = &[
    ("state", "what is shown is what the log makes of everything up to its number (R2, R4, R13, R16, R17)"),
    ("skipped", "nothing is passed over without being said (R2, R3, R16)"),
    ("once", "each number and each event id is applied once (R1, R6)"),
    ("epoch", "nothing of another epoch is applied; an epoch changes with `reset` only (R7)"),
    ("back", "a position goes down with `reset` only (R14, `resetSeq`)"),
    ("fork", "a fork is noticed, and never mixed (R5)"),
    ("final", "what is final never changes (R8)"),
    ("bounds", "buffers stay within their limits (R19)"),
    ("questions", "one recovery per entity, and so many at a time, are under way (R20)"),
    ("under way", "who is not satisfied has a deadline, a timer or a reconnect (R23)"),
    ("live", "who is live has what the server has"),
    ("resume", "a resume names the position (R30)"),
    ("rollback", "what could not be reduced leaves the position (R36)"),
    ("socket", "there is one socket, and it is open when something is sent (R25)"),
    ("close", "nothing happens after `close` (R34)"),
    ("clean", "a clean stream costs one snapshot an entity and no question (R24)"),
    ("calm", "after the last fault everything comes right in time"),
    ("endless", "no timer and no output comes without end"),
    ("told", "outputs agree with each other and with what can be read"),
    ("panic", "nothing panics"),
    ("same", "two runs of one seed are the same"),
];

/// Which invariant a violation is of.
pub fn invariant(violation: &str) -> &'static str {
    let said =
        if violation.starts_with("at ") { violation.split_once(": ").map_or("", |(_, said)| said) } else { violation };
    let name = said.split_once(": ").map_or("", |(name, _)| name);
    INVARIANTS.iter().map(|(known, _)| *known).find(|known| *known == name).expect("violations name their invariant")
}

/// What was seen in a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub steps: u32,
    pub marks: u64,
    pub trace: u64,
    pub violation: Option<String>,
}

#[derive(Clone, Hash)]
pub struct Socket {
    pub generation: u32,
    /// Not yet open.
    pub dialing: bool,
    /// Nothing passes any more, and nobody is told.
    pub silent: bool,
    /// Frames with their counts on this socket, 0 where frames are not counted.
    pub down: VecDeque<(u64, Frame)>,
    counted: u64,
    pub up: VecDeque<Ask>,
}

/// How a world is made.
#[derive(Clone, Debug)]
pub struct Plan {
    pub entities: usize,
    pub topic: bool,
    pub faults: Faults,
    pub moods: Moods,
    pub fold: Fold,
    pub page_size: usize,
    pub config: Config,
    pub model: Model,
    pub can: Can,
    pub heartbeat: Option<u64>,
    pub steps: u32,
    /// Odds of a fault against plain progress.
    pub calm: u32,
    /// Events take the short way.
    pub fast: bool,
    /// Nothing goes wrong, and everything arrives at once: that must cost nothing (R24).
    pub clean: bool,
}

impl Plan {
    /// Draws the limits and the faults of a run.
    pub fn draw(source: &mut dyn Source) -> Plan {
        let mut faults = Faults::default();
        let hostile = source.choose(3) == 0;
        // A run without any reconnect, one without any drop, and everything between.
        let reconnects = source.choose(4) != 0;
        let mut on = |odds: u32| source.choose(odds) == 0;
        faults.hostile = hostile;
        faults.drop = hostile && on(2);
        faults.duplicate = hostile && on(2);
        faults.swap = hostile && on(2);
        faults.cut = reconnects && on(2);
        faults.half_open = reconnects && on(4);
        faults.codes = reconnects && on(3);
        faults.tokens = reconnects && on(4);
        faults.restart = on(3);
        faults.trim = on(3);
        faults.late = on(3);
        faults.freeze = on(4);
        faults.reduce = on(5);
        faults.app = on(3);
        faults.bad = on(8);
        faults.page_events = on(3);
        faults.callbacks = on(6);
        let mut moods = Moods {
            lag: on(4),
            errors: on(6),
            cut_replays: on(4),
            burn: on(3),
            repeat: on(3),
            ids: on(2),
            ends: on(3),
            finals: on(4),
            ..Moods::default()
        };
        let topic = on(4);
        let mut model = Model::default();
        let mut fold = Fold::Mix;
        match source.choose(8) {
            0 => {
                model.continuity = Continuity::Range;
                moods.ranges = true;
            }
            1 => {
                model.continuity = Continuity::Prev;
                moods.ranges = true;
            }
            2 => model.on_gap = Some(OnGap::Snapshot),
            3 => {
                model.on_gap = Some(OnGap::Skip);
                fold = Fold::Replace;
            }
            4 => model.replay_whole = true,
            _ => {}
        }
        if topic && model.on_gap == Some(OnGap::Skip) {
            // Membership is made of changes, which can't be skipped.
            model.on_gap = None;
            fold = Fold::Mix;
        }
        if source.choose(3) == 0 {
            model.reopen = Reopen::Epoch;
        }
        model.ids = [32, 2, 0][source.choose(3) as usize];
        let mut config = Config::default();
        config.gap.grace = [100, 0][source.choose(2) as usize];
        config.gap.max_events = [1_000, 3, 1][source.choose(3) as usize];
        config.max_requests = [16, 1][source.choose(2) as usize];
        config.linger = [1_000, 0][source.choose(2) as usize];
        config.get_token = faults.tokens;
        config.max_ahead = [100_000, 2][usize::from(source.choose(8) == 0)];
        let heartbeat = [Some(5_000), Some(20_000), None][source.choose(3) as usize];
        let mut can = Can { replay: true, snapshot: true, heads: true };
        match source.choose(6) {
            0 => can.replay = false,
            1 => can.heads = false,
            2 => can.snapshot = false,
            _ => {}
        }
        if heartbeat.is_none() {
            // Who never tells heads must be asked.
            can = Can { heads: false, snapshot: true, ..can };
        }
        let mut plan = Plan {
            entities: if topic { 4 } else { 1 + source.choose(3) as usize },
            topic,
            faults,
            moods,
            fold,
            page_size: 1 + source.choose(4) as usize,
            config,
            model,
            can,
            heartbeat,
            steps: [40, 120, STEPS][source.choose(3) as usize],
            calm: [4, 12, 40][source.choose(3) as usize],
            fast: false,
            clean: false,
        };
        plan.draw_more(source);
        plan
    }

    /// Draws what is rarer; where the choice is 0, it is not there.
    fn draw_more(&mut self, source: &mut dyn Source) {
        let mut on = |odds: u32| source.choose(odds) == odds - 1;
        self.fast = on(2);
        self.moods.counts = on(4);
        self.moods.parts = on(4);
        self.faults.pushes = on(4);
        self.faults.ghosts = on(6);
        self.faults.poison = on(6);
        self.faults.traps = on(8);
        self.faults.stops = on(8);
        self.faults.forks = on(5);
        if on(6) {
            self.config.gap.max_bytes = 250;
        }
        if on(6) {
            self.config.ping = Some(10_000);
        }
        match source.choose(12) {
            9 => {
                self.model.continuity = Continuity::None;
                self.model.on_gap = None;
                (self.moods.burn, self.moods.repeat, self.moods.ranges) = (false, false, false);
            }
            10 if !self.topic => {
                self.model.continuity = Continuity::PlusOne;
                self.model.on_gap = None;
                self.model.replay_whole = false;
                self.model.reset_seq = Some(1);
                (self.fold, self.moods.ranges, self.moods.lag, self.moods.resets) = (Fold::Mix, false, false, Some(1));
                let faults = &mut self.faults;
                (faults.resets, faults.restart, faults.app, faults.callbacks) = (true, false, false, false);
                (faults.hostile, faults.forks) = (false, false);
            }
            11 if !self.topic => {
                self.model.continuity = Continuity::Range;
                self.model.on_gap = None;
                self.model.overlap_absolute = source.choose(2) == 1;
                (self.fold, self.moods.ranges, self.moods.straddles) = (Fold::Replace, true, true);
            }
            _ => {}
        }
        let counts = self.model.continuity == Continuity::PlusOne && self.model.on_gap() != OnGap::Skip;
        self.faults.poison &= counts && self.model.reset_seq.is_none();
        self.faults.forks &= counts && !self.topic && self.model.reset_seq.is_none() && self.moods.ids;
        if source.choose(16) == 15 {
            let (moods, plain) = (self.moods, Config::default());
            self.clean = true;
            self.faults = Faults::default();
            self.moods = Moods { ids: moods.ids, ranges: moods.ranges, ends: moods.ends, ..Moods::default() };
            self.moods.resets = moods.resets;
            self.config = Config { get_token: false, ..plain };
            self.can = Can { replay: true, snapshot: true, heads: true };
            self.heartbeat = self.heartbeat.or(Some(20_000));
            (self.topic, self.entities) = (false, self.entities.min(3));
        }
    }
}

pub struct World<'a> {
    plan: Arc<Plan>,
    pub source: &'a mut dyn Source,
    pub page: Page,
    pub gateway: Gateway,
    pub socket: Option<Socket>,
    tokens: VecDeque<u32>,
    pub now: u64,
    pub beat_at: u64,
    /// Faults are over.
    calm: bool,
    /// Frames are on their way that the socket no longer lists.
    cutting: bool,
    pub log: Option<Vec<String>>,
}

pub type Checked = Result<(), String>;

/// Runs the world that a source of choices makes.
pub fn run(source: &mut dyn Source, log: bool) -> (Outcome, Vec<String>) {
    let plan = Plan::draw(source);
    let mut world = World::new(Arc::new(plan), source, false);
    world.log = log.then(Vec::new);
    let (steps, result) = world.play();
    if result.is_err() {
        let client = format!("{:?}", *world.page.client);
        world.note(|| client);
    }
    let outcome = Outcome {
        steps,
        marks: world.page.marks,
        trace: world.page.trace,
        violation: result.err().map(|said| format!("at {} ms: {said}", world.now)),
    };
    (outcome, world.log.take().unwrap_or_default())
}

/// The trace of such a run: what the client was given, and what it gave.
pub fn trace(source: &mut dyn Source) -> String {
    let plan = Plan::draw(source);
    let mut world = World::new(Arc::new(plan), source, true);
    // Whether it breaks anything is another test's.
    let _ = world.play();
    let entities: Vec<_> = world.page.views.iter().filter_map(|view| view.id).collect();
    world.page.client.finish(inorder::time::Instant(world.now), &entities);
    world.page.client.take_lines().unwrap_or_default()
}

impl<'a> World<'a> {
    pub fn new(plan: Arc<Plan>, source: &'a mut dyn Source, traced: bool) -> World<'a> {
        let seed = u64::from(source.choose(1 << 16));
        let mut page = Page::new(plan.config.clone(), plan.model, plan.entities, plan.topic, seed, traced);
        (page.fast, page.forks) = (plan.fast, plan.faults.forks || plan.faults.resets);
        let gateway = Gateway::new(plan.entities, plan.topic, plan.fold, plan.moods, plan.page_size);
        World::at(plan, source, page, gateway)
    }

    /// A world whose page and gateway have been used.
    pub fn at(plan: Arc<Plan>, source: &'a mut dyn Source, page: Page, gateway: Gateway) -> World<'a> {
        World {
            page,
            gateway,
            socket: None,
            tokens: VecDeque::new(),
            now: 1_000,
            beat_at: 0,
            calm: false,
            cutting: false,
            log: None,
            plan,
            source,
        }
    }

    fn note(&mut self, said: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>8} {}", self.now, said()));
        }
    }

    fn play(&mut self) -> (u32, Checked) {
        let mut steps = 0;
        let mut result = self.begin(if self.plan.topic { 1 } else { self.plan.entities });
        while result.is_ok() && steps < self.plan.steps && !self.source.is_spent() && !self.page.closed {
            steps += 1;
            result = self.step();
        }
        if result.is_ok() && !self.page.closed {
            result = self.calm_down();
        }
        (steps, result)
    }

    /// The page opens, and shows the first so many entities.
    pub fn begin(&mut self, entities: usize) -> Checked {
        for entity in 0..entities {
            self.page.join(self.now, entity);
        }
        self.settle()
    }

    /// One step: something is produced, arrives, breaks, or time passes.
    #[allow(clippy::too_many_lines)]
    fn step(&mut self) -> Checked {
        let faults = self.plan.faults;
        if self.plan.clean {
            return self.clean_step();
        }
        if self.source.choose(self.plan.calm) == 0 {
            return self.fault();
        }
        if faults.is_odd() && self.source.choose(self.plan.calm) == 0 {
            return self.oddity();
        }
        match self.source.choose(10) {
            0..=2 => self.produce()?,
            3..=5 => self.bring_down()?,
            6..=7 => self.bring_up()?,
            8 => {
                let ms = [10, 120, 1_000, 6_000][self.source.choose(4) as usize];
                let late = faults.late && self.source.choose(4) == 0;
                self.pass(ms, late)?;
            }
            _ => {
                // Everything that is under way arrives.
                for _ in 0..64 {
                    if !self.deliver_one()? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Something is produced and arrives, or time passes.
    fn clean_step(&mut self) -> Checked {
        if self.source.choose(3) == 2 {
            let ms = [10, 1_000, 40_000][self.source.choose(3) as usize];
            self.pass(ms, false)?;
        } else {
            self.produce()?;
        }
        while self.deliver_one()? {}
        Ok(())
    }

    /// A rarer fault.
    fn oddity(&mut self) -> Checked {
        let faults = self.plan.faults;
        let at = inorder::time::Instant(self.now);
        let entity = self.source.choose(self.plan.entities as u32) as usize;
        let mut out = Vec::new();
        match self.source.choose(7) {
            0 if faults.pushes => self.gateway.push_snapshot(entity, self.source, &mut out),
            1 if faults.ghosts => {
                self.note(|| "a socket that is over says something".to_owned());
                let opens = self.source.choose(2) == 0;
                self.page.ghost(self.now, opens);
                self.settle()?;
            }
            2 if faults.poison && self.gateway.covers(entity) => {
                self.page.mark(Mark::Poisoned);
                let (epoch, seq) = (self.gateway.epoch(entity), (1 << 53) - 1 - u64::from(self.source.choose(2)));
                let poison = Entry { prev: seq - 1, seq, value: Some(1), ..Entry::default() };
                out.push(match self.source.choose(2) {
                    0 => Frame::Event { entity, epoch, entry: poison },
                    _ => Frame::Heartbeat { heads: vec![(entity, epoch, seq)], cursor: None },
                });
            }
            3 if faults.traps => {
                self.note(|| "the wasm traps".to_owned());
                self.lose_socket();
                self.tokens.clear();
                let seed = u64::from(self.source.choose(1 << 16));
                self.page.trap(self.now, seed);
                self.settle()?;
            }
            4 if faults.forks => {
                self.note(|| format!("the history of {entity} forks"));
                self.page.mark(Mark::Forked);
                self.gateway.fork(entity, self.now, self.source, &mut out);
            }
            5 if faults.resets => {
                self.note(|| format!("{entity} starts over"));
                self.gateway.reset(entity, self.now, self.source, &mut out);
                let heard = self.socket.as_ref().is_some_and(|socket| !socket.dialing && !socket.silent);
                let holds = self.page.views[entity].id.is_some_and(|id| self.page.client.held(id) > 0);
                if !heard || out.is_empty() || holds {
                    self.page.views[entity].mixed = true;
                }
            }
            6 if faults.stops => match self.source.choose(6) {
                0 => self.cut(4401)?,
                1 => self.cut(4403)?,
                2 => {
                    self.note(|| "the page hides".to_owned());
                    self.page.mark(Mark::Hidden);
                    self.page.hidden = true;
                    self.page.client.handle_pagehide(at);
                    self.settle()?;
                }
                3 => {
                    self.note(|| "the page shows".to_owned());
                    self.page.hidden = false;
                    self.page.client.handle_pageshow(at);
                    self.settle()?;
                }
                _ => {
                    self.note(|| "connect".to_owned());
                    self.page.client.connect(at);
                    self.settle()?;
                }
            },
            _ => {}
        }
        self.push(out);
        Ok(())
    }

    /// The socket is gone, with all that was under way.
    fn lose_socket(&mut self) {
        self.gateway.disconnect();
        self.page.socket_ended();
        let Some(socket) = self.socket.take() else { return };
        for (_, frame) in socket.down {
            if let Frame::Event { entity, entry, .. } = frame
                && Some(entry.seq) == self.plan.moods.resets
            {
                // Nobody will ever say again that everything before was void.
                self.page.views[entity].mixed = true;
            }
        }
    }

    fn produce(&mut self) -> Checked {
        let entity = self.source.choose(self.plan.entities as u32) as usize;
        let mut out = Vec::new();
        self.gateway.produce(entity, self.now, self.source, &mut out);
        self.note(|| format!("produce {entity}"));
        self.push(out);
        Ok(())
    }

    pub fn push(&mut self, frames: Vec<Frame>) {
        if self.is_beating() {
            frames.into_iter().for_each(|frame| self.send_down(frame));
        }
    }

    /// The next frame of the socket.
    fn send_down(&mut self, frame: Frame) {
        if let Some(socket) = &mut self.socket {
            socket.counted += u64::from(self.plan.moods.counts);
            socket.down.push_back((socket.counted, frame));
        }
    }

    /// The next frame reaches the page, or another one in a hostile world.
    pub fn bring_down(&mut self) -> Checked {
        let faults = self.plan.faults;
        let Some(socket) = &mut self.socket else { return self.dialing() };
        if socket.dialing {
            return self.dialing();
        }
        if socket.down.is_empty() {
            return self.bring_up();
        }
        let mut index = 0;
        // The welcome opens the connection; before it nothing is read.
        let hostile = faults.hostile && !self.calm && !socket.down.iter().any(|(_, frame)| *frame == Frame::Welcome);
        if hostile && faults.swap && self.source.choose(3) == 0 {
            index = self.source.choose(socket.down.len() as u32) as usize;
        }
        let Some((count, frame)) = socket.down.remove(index) else { return Ok(()) };
        if hostile && faults.duplicate && self.source.choose(6) == 0 {
            let again = self.source.choose(socket.down.len() as u32 + 1) as usize;
            socket.down.insert(again, (count, frame.clone()));
        }
        if hostile && faults.drop && self.source.choose(6) == 0 {
            self.note(|| format!("lost {frame:?}"));
            return Ok(());
        }
        self.arrive(count, &frame)?;
        self.settle()
    }

    /// A frame reaches the page.
    fn arrive(&mut self, count: u64, frame: &Frame) -> Checked {
        self.note(|| format!("down {frame:?}"));
        if count > 0 {
            self.page.count(self.now, count);
        }
        self.page.frame(self.now, frame, self.plan.can, self.plan.heartbeat, &self.gateway)
    }

    pub fn bring_up(&mut self) -> Checked {
        let Some(socket) = self.socket.as_mut().filter(|socket| !socket.dialing && !socket.silent) else {
            return self.dialing();
        };
        let Some(ask) = socket.up.pop_front() else { return Ok(()) };
        // What a topic pushes looks like the answer to a subscription that was lost; sockets lose no such thing.
        let kept = ask == Ask::Hello || self.plan.topic && matches!(ask, Ask::Subscribe { .. });
        let lossy = self.plan.faults.hostile && self.plan.faults.drop && !self.calm && !kept;
        if lossy && self.source.choose(8) == 0 {
            self.note(|| format!("lost {ask:?}"));
            return Ok(());
        }
        self.note(|| format!("up   {ask:?}"));
        let mut out = Vec::new();
        if self.plan.topic && matches!(&ask, Ask::Subscribe { items, .. } if items.iter().any(|item| item.entity == 0))
        {
            self.gateway.answer(&ask, self.source, &mut out);
            let cursor = self.gateway.cursor();
            out.push(Frame::Heartbeat { heads: Vec::new(), cursor });
        } else {
            self.gateway.answer(&ask, self.source, &mut out);
        }
        self.push(out);
        Ok(())
    }

    /// A dial comes to something.
    pub fn dialing(&mut self) -> Checked {
        let Some(socket) = self.socket.as_mut().filter(|socket| socket.dialing) else { return Ok(()) };
        let generation = socket.generation;
        if !self.calm && self.plan.faults.cut && self.source.choose(5) == 0 {
            self.note(|| "the dial fails".to_owned());
            self.socket = None;
            self.page.ended(self.now, generation, 1006);
        } else {
            socket.dialing = false;
            self.note(|| format!("open {generation}"));
            self.gateway.disconnect();
            self.beat_at = self.now + self.plan.heartbeat.unwrap_or(0);
            self.page.opened(self.now, generation);
        }
        self.settle()
    }

    fn deliver_one(&mut self) -> Result<bool, String> {
        let Some(socket) = &self.socket else { return Ok(false) };
        if socket.silent {
            return Ok(false);
        }
        if socket.dialing {
            self.dialing()?;
        } else if !socket.up.is_empty() {
            self.bring_up()?;
        } else if !socket.down.is_empty() {
            self.bring_down()?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    #[allow(clippy::too_many_lines)]
    fn fault(&mut self) -> Checked {
        let faults = self.plan.faults;
        let entity = self.source.choose(self.plan.entities as u32) as usize;
        match self.source.choose(16) {
            0 if faults.cut => self.cut(1006)?,
            1 if faults.half_open => {
                if let Some(socket) = self.socket.as_mut().filter(|socket| !socket.dialing) {
                    socket.silent = true;
                    socket.up.clear();
                    self.note(|| "the connection goes silent".to_owned());
                }
            }
            2 if faults.restart => {
                if self.source.choose(4) == 3 {
                    self.note(|| format!("fail back of {entity}"));
                    self.gateway.fail_back(entity, self.now, self.source);
                } else {
                    self.note(|| format!("restart of {entity}"));
                    self.gateway.restart(entity, self.now, self.source);
                }
                if self.plan.faults.cut || self.plan.faults.codes {
                    if self.source.choose(2) == 0 {
                        self.cut(1012)?;
                    }
                } else {
                    // The same socket goes on with another history: heads tell.
                    self.push(vec![Frame::Heartbeat { heads: self.gateway.heads(None), cursor: None }]);
                }
            }
            3 if faults.trim => {
                self.note(|| format!("trim {entity}"));
                self.gateway.trim(entity);
            }
            4 if faults.freeze => {
                self.note(|| "the page sleeps".to_owned());
                self.page.mark(Mark::Woken);
                self.now += 120_000;
                self.page.client.handle_wake(inorder::time::Instant(self.now));
                self.settle()?;
            }
            5 if faults.reduce => self.page.faulty = true,
            6 if faults.app => {
                let now = self.now;
                if self.page.views[entity].wanted {
                    self.note(|| format!("leave {entity}"));
                    self.page.leave(now, entity);
                } else {
                    self.note(|| format!("join {entity}"));
                    self.page.join(now, entity);
                }
                self.settle()?;
            }
            7 if faults.codes => {
                let code = [1000, 1012, 1013, 4009][self.source.choose(4) as usize];
                if code == 4009 {
                    self.page.mark(Mark::Anew);
                }
                if self.source.choose(3) == 0
                    && self.socket.as_ref().is_some_and(|socket| !socket.dialing && !socket.silent)
                {
                    self.send_down(Frame::Goodbye { retry_after: Some(3_000) });
                }
                self.cut(code)?;
            }
            8 if faults.tokens => {
                let ok = self.source.choose(3) != 0;
                if let Some(id) = self.tokens.pop_front() {
                    self.note(|| format!("token {id} {ok}"));
                    self.page.client.handle_token(inorder::time::Instant(self.now), id, ok);
                    self.settle()?;
                }
            }
            9 if faults.bad => self.push(vec![Frame::Bad]),
            10 if faults.page_events => {
                let at = inorder::time::Instant(self.now);
                match self.source.choose(4) {
                    0 => self.page.client.handle_visible(at),
                    1 => self.page.client.handle_online(at),
                    2 => self.page.client.handle_offline(at),
                    _ => self.page.client.handle_wake(at),
                }
                self.note(|| "a page event".to_owned());
                self.settle()?;
            }
            11 => {
                let entity = (self.source.choose(2) == 0).then_some(entity);
                self.push(vec![Frame::Discontinuity { entity }]);
            }
            12 if faults.callbacks => {
                let call = match self.source.choose(8) {
                    0 => Call::Close,
                    1..=4 => Call::Leave(entity),
                    _ => Call::Join(entity),
                };
                self.page.call_back(call);
            }
            13 if faults.late => {
                let ms = [3_000, 40_000][self.source.choose(2) as usize];
                self.pass(ms, true)?;
            }
            14 => self.pass(40_000, false)?,
            _ => {
                if let Some(id) = self.tokens.pop_front() {
                    self.page.client.handle_token(inorder::time::Instant(self.now), id, true);
                    self.settle()?;
                }
            }
        }
        Ok(())
    }

    /// The connection ends, and the page is told.
    fn cut(&mut self, code: u16) -> Checked {
        let result = self.cut_off(code);
        self.cutting = false;
        result
    }

    fn cut_off(&mut self, code: u16) -> Checked {
        if let Some(mut socket) = self.socket.take() {
            if !self.plan.faults.hostile && !socket.dialing && !socket.silent {
                // What had arrived in order before the cut arrives; the rest is lost.
                let arrived = self.source.choose(socket.down.len() as u32 + 1) as usize;
                let generation = socket.generation;
                let down = std::mem::take(&mut socket.down);
                self.socket = Some(socket);
                self.cutting = true;
                let mut down = down.into_iter();
                for (count, frame) in down.by_ref().take(arrived) {
                    if self.socket.as_ref().is_none_or(|socket| socket.generation != generation) || self.page.closed {
                        return Ok(());
                    }
                    if matches!(frame, Frame::Replay { done: false, .. }) {
                        self.page.mark(Mark::ReplayCut);
                    }
                    self.arrive(count, &frame)?;
                    self.settle()?;
                }
                if self.socket.as_ref().is_none_or(|socket| socket.generation != generation) || self.page.closed {
                    return Ok(());
                }
                socket = self.socket.take().expect("it was just there");
                socket.down = down.collect();
            }
            let (now, generation) = (self.now, socket.generation);
            self.note(|| format!("cut with {code}"));
            self.socket = Some(socket);
            self.lose_socket();
            if code == 4009 {
                self.page.begin_anew();
            }
            self.page.ended(now, generation, code);
        }
        self.settle()
    }

    /// Time passes; timers fire on time, or all at once at the end.
    fn pass(&mut self, ms: u64, late: bool) -> Checked {
        self.note(|| format!("{ms} ms pass{}", if late { ", timers late" } else { "" }));
        let end = self.now + ms;
        for round in 0.. {
            if round > RESTLESS {
                return Err("endless: timers fire without end".to_owned());
            }
            let timer = if late { None } else { self.page.client.poll_timeout().map(|at| at.0) };
            let beat = self.plan.heartbeat.filter(|_| self.is_beating()).map(|_| self.beat_at);
            let next = timer.into_iter().chain(beat).min().filter(|&next| next <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            self.beat();
            while self.plan.clean && self.deliver_one()? {}
            if timer.is_some_and(|timer| timer <= self.now) {
                self.page.client.handle_timeout(inorder::time::Instant(self.now));
                self.settle()?;
            }
            if self.page.closed {
                return Ok(());
            }
        }
        self.now = self.now.max(end);
        self.page.client.handle_timeout(inorder::time::Instant(self.now));
        self.settle()
    }

    fn is_beating(&self) -> bool {
        self.gateway.is_greeted() && self.socket.as_ref().is_some_and(|socket| !socket.dialing && !socket.silent)
    }

    pub fn beat(&mut self) {
        let Some(interval) = self.plan.heartbeat else { return };
        if !self.is_beating() || self.now < self.beat_at {
            return;
        }
        self.beat_at = self.now + interval;
        let since = if self.calm { None } else { Some(self.now.saturating_sub(3 * interval)) };
        // A lossy network may lose all three heartbeats; a real server's third is not the last thing it says.
        let heads = self.gateway.heads(since);
        let cursor = self.gateway.cursor();
        self.send_down(Frame::Heartbeat { heads, cursor });
    }

    /// Takes what the page wants from the network.
    pub fn settle(&mut self) -> Checked {
        self.page.drain(self.now, &self.gateway)?;
        for act in std::mem::take(&mut self.page.acts) {
            self.note(|| format!("     {act:?}"));
            match act {
                Act::Dial { generation } => {
                    self.lose_socket();
                    self.socket = Some(Socket {
                        generation,
                        dialing: true,
                        silent: false,
                        down: VecDeque::new(),
                        up: VecDeque::new(),
                        counted: 0,
                    });
                }
                Act::Close { code } => {
                    if code == 4000 {
                        self.page.mark(Mark::Replaced);
                    }
                    self.lose_socket();
                }
                Act::Send(ask) => match &mut self.socket {
                    Some(socket) if socket.dialing => return Err(format!("socket: sent before open: {ask:?}")),
                    Some(socket) if socket.silent => {}
                    Some(socket) => socket.up.push_back(ask),
                    None => return Err(format!("socket: sent without a socket: {ask:?}")),
                },
                Act::Token { id } => self.tokens.push_back(id),
            }
        }
        self.live_is_true()
    }

    /// In order, and with nothing under way, `live` means: what the server has.
    fn live_is_true(&self) -> Checked {
        let faults = self.plan.faults;
        let plain = !faults.hostile && !faults.forks && !faults.resets && !self.plan.moods.lag && !self.plan.moods.burn;
        // What is too far ahead is forgotten until a head tells of it again (R12).
        let plain = plain && self.plan.model.continuity != Continuity::None && self.plan.config.max_ahead > 2;
        // A snapshot that could not be shown is forgotten likewise.
        let plain = plain && !self.page.has_rolled_back;
        let Some(socket) = self.socket.as_ref().filter(|socket| !socket.dialing && !socket.silent) else {
            return Ok(());
        };
        // Within the grace a head may be early, and is no gap yet.
        let soon = self.now + self.plan.config.gap.grace;
        let grace = self.plan.config.gap.grace > 0 && self.page.client.poll_timeout().is_some_and(|at| at.0 <= soon);
        // Who waits for a slot has asked nothing yet (R20).
        let queued = self.page.client.requests_out() >= self.plan.config.max_requests;
        if !plain
            || queued
            || grace
            || self.cutting
            || self.page.closed
            || !socket.down.is_empty()
            || !socket.up.is_empty()
            || !self.is_beating()
        {
            return Ok(());
        }
        for entity in 0..self.plan.entities {
            let Some(id) = self.page.views[entity].id.filter(|_| self.page.wants(entity)) else { continue };
            // Who is in a topic that is not in order itself, nobody can tell.
            let topic = if self.plan.topic && entity > 0 { self.page.views[0].id } else { None };
            if topic.is_some_and(|topic| self.page.client.sync(topic) != Sync::Live) {
                continue;
            }
            // Its snapshot may be pushed: an old one that is pushed to who joins looks just so (R39).
            if topic.is_some() && self.plan.faults.pushes {
                continue;
            }
            if self.page.client.sync(id) == Sync::Live {
                let stands = self.page.client.position(id).map(|p| (p.epoch.0, p.seq));
                let has = Some((self.gateway.epoch(entity), self.gateway.history(entity).head()));
                if stands != has && self.plan.can.heads && !self.plan.faults.restart {
                    return Err(format!("live: {entity} is live at {stands:?}, the server is at {has:?}"));
                }
            }
        }
        Ok(())
    }

    /// Faults are over: everything must come right within a bounded time.
    pub fn calm_down(&mut self) -> Checked {
        self.note(|| "faults are over".to_owned());
        self.calm = true;
        self.page.spare();
        self.gateway.moods.lag = false;
        self.gateway.moods.errors = false;
        self.gateway.moods.cut_replays = false;
        let at = inorder::time::Instant(self.now);
        if self.plan.faults.stops {
            self.page.hidden = false;
            self.page.client.handle_pageshow(at);
        }
        self.page.client.connect(at);
        self.settle()?;
        let limit = self.now + CALM;
        let mut satisfied = false;
        let mut rounds = 0;
        while !satisfied {
            rounds += 1;
            if rounds > RESTLESS {
                return Err("endless: timers fire without end".to_owned());
            }
            for _ in 0..100_000 {
                if let Some(id) = self.tokens.pop_front() {
                    self.page.client.handle_token(inorder::time::Instant(self.now), id, true);
                    self.settle()?;
                } else if !self.deliver_one()? {
                    break;
                }
            }
            satisfied = self.unsatisfied().is_none();
            if satisfied {
                break;
            }
            let timer = self.page.client.poll_timeout().map(|at| at.0);
            let beat = self.plan.heartbeat.filter(|_| self.is_beating()).map(|_| self.beat_at);
            let Some(next) = timer.into_iter().chain(beat).min() else {
                return Err(format!("under way: {}, and nothing will happen", self.unsatisfied().unwrap_or_default()));
            };
            if next > limit {
                return Err(format!("calm: {} after {CALM} ms of calm", self.unsatisfied().unwrap_or_default()));
            }
            self.now = self.now.max(next);
            self.beat();
            self.page.client.handle_timeout(inorder::time::Instant(self.now));
            self.settle()?;
        }
        self.page.mark(Mark::Calm);
        if self.plan.clean {
            self.cost_nothing()?;
        }
        let stats = self.page.client.stats();
        let seen = [
            (stats.stale > 0, Mark::StaleSnapshot),
            (stats.duplicates > 0, Mark::DuplicateDropped),
            (stats.overflowed > 0, Mark::Overflowed),
            (stats.overflowed > 0 && self.plan.config.gap.max_bytes < 1_000, Mark::BytesOverflowed),
            (stats.silent > 0 && self.plan.moods.repeat, Mark::RepeatedId),
            (stats.retired > 0, Mark::SuspicionRefuted),
            (stats.resets > 0 && stats.held > 0, Mark::SuspicionHeld),
        ];
        for (seen, mark) in seen {
            if seen {
                self.page.mark(mark);
            }
        }
        Ok(())
    }

    /// R24: one dial, one snapshot for each entity, and no question.
    fn cost_nothing(&mut self) -> Checked {
        self.page.mark(Mark::Clean);
        let (stats, entities) = (self.page.client.stats(), self.plan.entities as u64);
        let cost = (self.page.asked, stats.adopted, stats.dials, stats.gaps, stats.held);
        let least = ((0, 0), entities, 1, 0, 0);
        if cost == least { Ok(()) } else { Err(format!("clean: a clean stream cost {cost:?} instead of {least:?}")) }
    }

    /// Who is not where the server is.
    fn unsatisfied(&self) -> Option<String> {
        let wanted = (0..self.plan.entities).any(|entity| self.page.wants(entity) && !self.page.views[entity].locked);
        if wanted && self.page.client.connection() != ConnectionState::Live {
            return Some(format!("the connection is {:?}", self.page.client.connection()));
        }
        (0..self.plan.entities).find_map(|entity| {
            let view = &self.page.views[entity];
            if !self.page.wants(entity) || view.denied {
                return None;
            }
            let Some(id) = view.id else { return Some(format!("{entity} is not known")) };
            let sync = self.page.client.sync(id);
            let stands = self.page.client.position(id).map(|p| (p.epoch.0, p.seq));
            let has = Some((self.gateway.epoch(entity), self.gateway.history(entity).head()));
            let fine = match sync {
                Sync::Final => {
                    // Nobody asks for what is finished, so only heads can tell that it began anew.
                    self.page.model_of(entity).reopen == Reopen::Never
                        || self.page.model_of(entity).continuity == Continuity::None
                        || !self.plan.can.heads
                        || stands.map(|(epoch, _)| epoch) == has.map(|(epoch, _)| epoch)
                }
                // A fork may have taken numbers away, and nothing new has come to tell.
                Sync::Live if self.plan.faults.forks || view.mixed => {
                    stands.map(|(epoch, _)| epoch) == has.map(|(epoch, _)| epoch) && stands >= has
                }
                Sync::Live => stands == has || self.page.model_of(entity).continuity == Continuity::None,
                // It may hold what was lost since, and never see it confirmed.
                Sync::Failed => self.plan.faults.forks || self.plan.faults.resets,
                _ => false,
            };
            (!fine).then(|| format!("{entity} is {sync:?} at {stands:?}, the server is at {has:?}"))
        })
    }
}

/// The names of marks that were never set.
pub fn missing_marks(marks: u64) -> Vec<String> {
    MARKS.iter().filter(|&&mark| marks & 1 << mark as u64 == 0).map(|mark| format!("{mark:?}")).collect()
}
