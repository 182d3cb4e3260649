//! Small worlds, visited completely: every order of what may happen, each place once.
//!
//! The server keeps two entries, fewer than there are events, so that what was missed may be gone. From every end,
//! where nothing is left to happen but time, everything must come right.

use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inorder::client::Can;
use inorder::config::{Config, GapLimits, Model};
use inorder::time::Instant;

use super::gateway::{Fold, Frame, Gateway, Moods};
use super::page::Page;
use super::source::Listed;
use super::world::{Checked, Faults, Plan, Socket, World};

/// How much may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub events: u8,
    pub drops: u8,
    pub duplicates: u8,
    pub reconnects: u8,
    pub restarts: u8,
    /// How often time passes while faults may still come.
    pub waits: u8,
}

/// What a search saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub places: u64,
    pub moves: u64,
    /// Ends, from each of which everything came right.
    pub ends: u64,
}

/// A world that is visited completely, and how large it is.
#[derive(Clone, Copy, Debug)]
pub struct Small {
    pub entities: usize,
    pub budget: Budget,
    pub found: Found,
}

/// In `npm test` and in `npm run proof`. The counts are pinned: a search that becomes smaller without anybody knowing
/// why proves less than it says.
pub const ONE_WITH_A_RESTART: Small = Small {
    entities: 1,
    budget: Budget { events: 4, drops: 2, duplicates: 2, reconnects: 1, restarts: 1, waits: 2 },
    found: Found { places: 2_847_149, moves: 6_155_716, ends: 180_119 },
};

/// In `npm test` and in `npm run proof`.
pub const TWO: Small = Small {
    entities: 2,
    budget: Budget { events: 3, drops: 1, duplicates: 1, reconnects: 1, restarts: 0, waits: 2 },
    found: Found { places: 195_777, moves: 331_338, ends: 23_944 },
};

/// In `npm run proof`.
pub const TWO_WITH_A_RESTART: Small = Small {
    entities: 2,
    budget: Budget { events: 3, drops: 1, duplicates: 1, reconnects: 1, restarts: 1, waits: 1 },
    found: Found { places: 1_189_275, moves: 2_142_627, ends: 121_744 },
};

impl Small {
    /// Visits it, and compares the counts.
    pub fn check(&self) -> Result<Found, String> {
        let found = exhaust(self.entities, self.budget)?;
        if found == self.found {
            return Ok(found);
        }
        Err(format!(
            "visited {found:?}, but {:?} is pinned. Nothing was broken: if the core or the world was changed and this \
             is why, write the new counts into tests/world/enumeration.rs; if not, find out what is no longer tried",
            self.found
        ))
    }
}

/// One step of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Produce(usize),
    Down,
    Lose,
    Double,
    Open,
    Cut,
    Restart(usize),
    Wait,
}

/// A world that can be left and come back to.
#[derive(Clone)]
struct Place {
    page: Page,
    gateway: Gateway,
    socket: Option<Socket>,
    now: u64,
    beat_at: u64,
    budget: Budget,
}

/// The moves that led to a place, the last one first.
#[derive(Clone)]
struct Way(Option<Arc<(Move, Way)>>);

impl Way {
    fn and(&self, one: Move) -> Way {
        Way(Some(Arc::new((one, self.clone()))))
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = VecDeque::new();
        let mut way = self;
        while let Way(Some(step)) = way {
            moves.push_front(step.0);
            way = &step.1;
        }
        moves.into()
    }
}

/// What was visited, in parts so that threads seldom wait for each other.
#[allow(clippy::disallowed_types)] // its hasher has no randomness
struct Seen(Vec<Mutex<std::collections::HashSet<u64, BuildHasherDefault<Ready>>>>);

/// The keys are hashes already.
#[derive(Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// Places per part and lock.
const PARTS: usize = 64;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn new() -> Seen {
        Seen((0..PARTS).map(|_| Mutex::default()).collect())
    }

    fn insert(&self, place: u64) -> bool {
        lock(&self.0[place as usize % PARTS]).insert(place)
    }
}

/// A quick hash: a search spends most of its time hashing.
struct Folded(u64);

impl Folded {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64).rotate_left(29) ^ word.rotate_left(17);
    }
}

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        let mut end = Folded(self.0);
        end.mix(0x5851_f42d_4c95_7f2d);
        end.mix(0x1405_7b7e_f767_814f);
        end.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(u64::from(word));
    }

    fn write_u16(&mut self, word: u16) {
        self.mix(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }
}

/// Visits every place that the budget allows, each once; an error names the moves that led to a broken one.
pub fn exhaust(entities: usize, budget: Budget) -> Result<Found, String> {
    let plan = Arc::new(plan(entities, budget));
    let mut zeros = Listed::new(&[]);
    let mut first = World::new(plan.clone(), &mut zeros, false);
    first.begin(entities)?;
    let first = Place::of(first, budget);
    let seen = Seen::new();
    seen.insert(first.identity());
    let search = Search {
        plan,
        seen,
        shared: Mutex::new(vec![(first, Way(None))]),
        idle: AtomicUsize::new(0),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        broken: Mutex::new(None),
        over: AtomicBool::new(false),
    };
    let found = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..search.threads).map(|_| scope.spawn(|| search.work())).collect();
        workers.into_iter().fold(Found::default(), |sum, worker| {
            let own = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Found { places: sum.places + own.places, moves: sum.moves + own.moves, ends: sum.ends + own.ends }
        })
    });
    let broken = lock(&search.broken).take();
    broken.map_or(Ok(found), Err)
}

fn plan(entities: usize, budget: Budget) -> Plan {
    Plan {
        entities,
        topic: false,
        faults: Faults {
            hostile: budget.drops + budget.duplicates > 0,
            restart: budget.restarts > 0,
            ..Faults::default()
        },
        moods: Moods { ids: true, ..Moods::default() },
        fold: Fold::Mix,
        page_size: 1,
        config: Config { gap: GapLimits { grace: 0, ..Config::default().gap }, ..Config::default() },
        model: Model::default(),
        can: Can { replay: true, snapshot: true, heads: true },
        heartbeat: Some(20_000),
        steps: 0,
        calm: 1,
        fast: true,
        clean: false,
    }
}

struct Search {
    plan: Arc<Plan>,
    seen: Seen,
    /// Places that a thread left for those without work.
    shared: Mutex<Vec<(Place, Way)>>,
    idle: AtomicUsize,
    threads: usize,
    broken: Mutex<Option<String>>,
    over: AtomicBool,
}

impl Search {
    fn work(&self) -> Found {
        let mut found = Found::default();
        let mut own: Vec<(Place, Way)> = Vec::new();
        while let Some((place, way)) = own.pop().or_else(|| self.wait()) {
            if let Err((said, way)) = self.visit(place, &way, &mut own, &mut found) {
                *lock(&self.broken) = Some(format!("{said} after {:?}", way.moves()));
                self.over.store(true, Ordering::SeqCst);
            }
            if own.len() > 1 && self.idle.load(Ordering::SeqCst) > 0 {
                lock(&self.shared).push(own.remove(0));
            }
        }
        found
    }

    /// Waits for a place from another thread; `None` when all wait or the search is over.
    fn wait(&self) -> Option<(Place, Way)> {
        self.idle.fetch_add(1, Ordering::SeqCst);
        loop {
            if self.over.load(Ordering::SeqCst) {
                return None;
            }
            {
                let mut shared = lock(&self.shared);
                if let Some(work) = shared.pop() {
                    self.idle.fetch_sub(1, Ordering::SeqCst);
                    return Some(work);
                }
                if self.idle.load(Ordering::SeqCst) == self.threads {
                    self.over.store(true, Ordering::SeqCst);
                    return None;
                }
            }
            std::thread::yield_now();
        }
    }

    fn visit(
        &self,
        place: Place,
        way: &Way,
        open: &mut Vec<(Place, Way)>,
        found: &mut Found,
    ) -> Result<(), (String, Way)> {
        found.places += 1;
        let mut moves = place.moves(self.plan.entities);
        if moves.iter().all(|one| *one == Move::Wait) {
            found.ends += 1;
            let mut zeros = Listed::new(&[]);
            let mut world = place.clone().enter(&self.plan, &mut zeros);
            world.calm_down().map_err(|said| (said, way.clone()))?;
        }
        found.moves += moves.len() as u64;
        let last = moves.pop();
        for one in moves {
            self.make(place.clone(), one, way, open)?;
        }
        last.map_or(Ok(()), |one| self.make(place, one, way, open))
    }

    fn make(&self, place: Place, one: Move, way: &Way, open: &mut Vec<(Place, Way)>) -> Result<(), (String, Way)> {
        let mut budget = place.budget;
        let mut zeros = Listed::new(&[]);
        let mut world = place.enter(&self.plan, &mut zeros);
        world.make(one, &mut budget).and_then(|()| world.bring_all_up()).map_err(|said| (said, way.and(one)))?;
        let place = Place::of(world, budget);
        if self.seen.insert(place.identity()) {
            open.push((place, way.and(one)));
        }
        Ok(())
    }
}

impl Place {
    fn of(world: World, budget: Budget) -> Place {
        Place {
            page: world.page,
            gateway: world.gateway,
            socket: world.socket,
            now: world.now,
            beat_at: world.beat_at,
            budget,
        }
    }

    fn enter<'a>(self, plan: &Arc<Plan>, source: &'a mut Listed<'a>) -> World<'a> {
        let mut world = World::at(plan.clone(), source, self.page, self.gateway);
        (world.socket, world.now, world.beat_at) = (self.socket, self.now, self.beat_at);
        world
    }

    /// Two places with one identity have one future. Of three million, the chance that two others share theirs is
    /// one in four million.
    fn identity(&self) -> u64 {
        let mut hasher = Folded(0);
        (self.now, self.beat_at, self.budget, &self.socket).hash(&mut hasher);
        self.page.identify(&mut hasher);
        self.gateway.identify(&mut hasher);
        hasher.finish()
    }

    fn moves(&self, entities: usize) -> Vec<Move> {
        let budget = self.budget;
        let mut moves = Vec::new();
        if budget.events > 0 {
            moves.extend((0..entities).map(Move::Produce));
        }
        if budget.restarts > 0 {
            moves.extend((0..entities).map(Move::Restart));
        }
        match &self.socket {
            Some(socket) if socket.dialing => moves.push(Move::Open),
            Some(socket) => {
                if let Some((_, frame)) = socket.down.front() {
                    moves.push(Move::Down);
                    if *frame != Frame::Welcome && budget.drops > 0 {
                        moves.push(Move::Lose);
                    }
                    if *frame != Frame::Welcome && budget.duplicates > 0 {
                        moves.push(Move::Double);
                    }
                }
                if budget.reconnects > 0 {
                    moves.push(Move::Cut);
                }
            }
            None => {}
        }
        // Time passes where nothing is under way.
        let rests = self.socket.as_ref().is_none_or(|socket| !socket.dialing && socket.down.is_empty());
        if budget.waits > 0 && rests {
            moves.push(Move::Wait);
        }
        moves
    }
}

impl World<'_> {
    /// The server reads what it was sent. Where that stands between what happens at the server and what arrives at
    /// the page makes no difference to either, so it need not be tried in every place.
    fn bring_all_up(&mut self) -> Checked {
        while self.socket.as_ref().is_some_and(|socket| !socket.dialing && !socket.up.is_empty()) {
            self.bring_up()?;
        }
        Ok(())
    }

    fn make(&mut self, one: Move, budget: &mut Budget) -> Checked {
        match one {
            Move::Produce(entity) => {
                budget.events -= 1;
                let mut out = Vec::new();
                self.gateway.produce(entity, self.now, self.source, &mut out);
                // A window of two, so that what was missed may be gone.
                self.gateway.keep(entity, 2);
                self.push(out);
                Ok(())
            }
            Move::Restart(entity) => {
                budget.restarts -= 1;
                self.gateway.restart(entity, self.now, self.source);
                let heads = self.gateway.heads(None);
                self.push(vec![Frame::Heartbeat { heads, cursor: None }]);
                Ok(())
            }
            Move::Down => self.bring_down(),
            Move::Lose => {
                budget.drops -= 1;
                if let Some(socket) = &mut self.socket {
                    socket.down.pop_front();
                }
                Ok(())
            }
            Move::Double => {
                budget.duplicates -= 1;
                if let Some(socket) = &mut self.socket
                    && let Some(frame) = socket.down.front().cloned()
                {
                    // The copy comes last, as brokers' copies do.
                    socket.down.push_back(frame);
                }
                self.bring_down()
            }
            Move::Open => self.dialing(),
            Move::Cut => {
                budget.reconnects -= 1;
                if let Some(socket) = self.socket.take() {
                    self.gateway.disconnect();
                    self.page.socket_ended();
                    self.page.ended(self.now, socket.generation, 1006);
                }
                self.settle()
            }
            Move::Wait => {
                budget.waits -= 1;
                if let Some(at) = self.page.client.poll_timeout() {
                    self.now = self.now.max(at.0);
                    self.beat();
                    self.page.client.handle_timeout(Instant(self.now));
                }
                self.settle()
            }
        }
    }
}
