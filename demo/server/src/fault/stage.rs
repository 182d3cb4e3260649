//! The stage where frames of one socket meet their faults.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::Instant;

use super::{AWAY, Deed, Faults, Settings};
use crate::limits::MAX_FRAME_BYTES;

/// How long a frame that is sent late is kept at most, when no others follow.
const LATEST: Duration = Duration::from_millis(400);

/// How long after a frame its copy is sent, in milliseconds: a broker redelivers what was not acknowledged, and by
/// then the entity has gone on.
const COPY_MS: std::ops::RangeInclusive<u64> = 200..=3_000;

/// Copies of one socket that wait to be sent; above it none is made. Enough for a copy of every second event, at a
/// thousand events a second.
const MAX_COPIES: usize = 1_000;

/// Bytes of these copies; as many as one frame may have, so that copies alone never make a slow reader (G8).
const MAX_COPY_BYTES: usize = MAX_FRAME_BYTES;

/// The frames that may pass one that is sent late.
const OVERTAKING: std::ops::RangeInclusive<u32> = 1..=5;

/// How long a crash waits for a commit to come before.
const CRASH: Duration = Duration::from_millis(300);

/// How often the chances per second are drawn.
const SECOND: Duration = Duration::from_secs(1);

/// What leaves the stage.
#[derive(Debug, Default)]
pub struct Out {
    /// Frames to be written now, in this order; their bytes are counted.
    pub ready: Vec<Arc<str>>,
    /// Bytes of frames that will never be written.
    pub lost: usize,
    /// Bytes of copies that are to be counted, before what is ready is written.
    pub added: usize,
    /// The connection is to be cut.
    pub cut: bool,
}

struct Late {
    after: u32,
    by: Instant,
    text: Arc<str>,
}

/// Copies that wait to be sent, by their time and then in the order in which they were made.
#[derive(Default)]
struct Copies {
    waiting: BTreeMap<(Instant, u64), Arc<str>>,
    bytes: usize,
    made: u64,
}

impl Copies {
    /// Keeps a copy until its time, unless too many wait.
    fn keep(&mut self, due: Instant, text: Arc<str>) {
        if self.waiting.len() >= MAX_COPIES || self.bytes + text.len() > MAX_COPY_BYTES {
            return;
        }
        self.made += 1;
        self.bytes += text.len();
        self.waiting.insert((due, self.made), text);
    }

    fn due(&self) -> Option<Instant> {
        self.waiting.keys().next().map(|(due, _)| *due)
    }

    fn take_due(&mut self, now: Instant) -> Option<Arc<str>> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= now)?;
        let text = first.remove();
        self.bytes -= text.len();
        Some(text)
    }
}

/// The faults of one socket.
pub struct Stage {
    faults: Arc<Faults>,
    key: Option<String>,
    rng: StdRng,
    /// The wire, stalled; each frame leaves no earlier than its time and those before it.
    line: VecDeque<(Instant, Arc<str>)>,
    late: Vec<Late>,
    copies: Copies,
    crash_by: Option<Instant>,
    second: Instant,
    silent: bool,
    /// What waits is of this epoch of the log.
    epoch: Arc<str>,
}

impl Stage {
    /// The stage of a socket that was opened with this key, in this epoch of the log.
    pub fn new(faults: Arc<Faults>, key: Option<String>, epoch: Arc<str>) -> Stage {
        let rng = faults.rng(key.as_deref());
        let mut stage = Stage {
            faults,
            key,
            rng,
            line: VecDeque::new(),
            late: Vec::new(),
            copies: Copies::default(),
            crash_by: None,
            second: Instant::now() + SECOND,
            silent: false,
            epoch,
        };
        let half_open = stage.settings().half_open;
        stage.silent = stage.chance(half_open);
        stage
    }

    fn settings(&self) -> Settings {
        self.faults.settings(self.key.as_deref())
    }

    fn chance(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.rng.random_bool(chance.min(1.0))
    }

    /// Whether nothing is said any more, nor heard.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether an action is meant for this socket.
    pub fn is_meant(&self, key: Option<&str>) -> bool {
        key.is_none() || key == self.key.as_deref()
    }

    /// Whether this replay is to be refused.
    pub fn refuses_replay(&mut self) -> bool {
        let chance = self.settings().refuse_replay;
        self.chance(chance)
    }

    /// By how many numbers a snapshot is to be older than it should, if it is.
    pub fn staleness(&mut self) -> Option<u64> {
        let chance = self.settings().stale_snapshot;
        self.chance(chance).then(|| self.rng.random_range(1..=5))
    }

    /// Does something once.
    pub fn act(&mut self, deed: Deed, now: Instant) {
        match deed {
            Deed::HalfOpen => self.silent = true,
            Deed::Crash => self.crash_by = Some(now + CRASH),
            Deed::Cut | Deed::StaleSnapshot => {}
        }
    }

    /// The log's epoch is this one now. Whoever comes back from a backup is another process: what the one before had in
    /// its hands is gone, and no late frame or copy of it comes after the new ones.
    pub fn go_over(&mut self, epoch: Arc<str>, out: &mut Out) {
        if epoch == self.epoch {
            return;
        }
        self.epoch = epoch;
        out.lost += self.late.drain(..).map(|late| late.text.len()).sum::<usize>();
        self.copies = Copies::default();
    }

    /// Takes a pushed frame.
    pub fn push(&mut self, text: Arc<str>, now: Instant, out: &mut Out) {
        if self.silent {
            out.lost += text.len();
            return;
        }
        let settings = self.settings();
        if self.crash_by.is_some() {
            // It was committed; nobody is told any more.
            out.lost += text.len();
            out.cut = true;
            return;
        }
        let mut overtaken = Vec::new();
        self.late.retain_mut(|late| {
            late.after = late.after.saturating_sub(1);
            if late.after == 0 {
                overtaken.push(late.text.clone());
            }
            late.after > 0
        });
        if self.chance(settings.drop) {
            out.lost += text.len();
        } else {
            if self.chance(settings.duplicate) {
                let wait = self.rng.random_range(COPY_MS);
                self.copies.keep(now + Duration::from_millis(wait), text.clone());
            }
            if self.chance(settings.reorder) {
                self.postpone(text, now);
            } else {
                self.emit(text, &settings, now, out);
            }
        }
        for text in overtaken {
            self.emit(text, &settings, now, out);
        }
    }

    /// Takes a frame that was asked for, or that the gateway says by itself: only stalls are for it.
    pub fn answer(&mut self, text: Arc<str>, now: Instant, out: &mut Out) {
        if self.silent {
            out.lost += text.len();
        } else {
            let settings = self.settings();
            self.emit(text, &settings, now, out);
        }
    }

    fn postpone(&mut self, text: Arc<str>, now: Instant) {
        let after = self.rng.random_range(OVERTAKING);
        self.late.push(Late { after, by: now + LATEST, text });
    }

    fn emit(&mut self, text: Arc<str>, settings: &Settings, now: Instant, out: &mut Out) {
        let mut due = self.line.back().map(|(due, _)| *due);
        if settings.delay > 0 {
            let stall = now + Duration::from_millis(self.rng.random_range(0..=settings.delay));
            due = Some(due.map_or(stall, |due| due.max(stall)));
        }
        match due {
            Some(due) => self.line.push_back((due, text)),
            None => out.ready.push(text),
        }
    }

    /// When [`Stage::poll`] is to be called.
    pub fn due(&self) -> Option<Instant> {
        let late = self.late.iter().map(|late| late.by).min();
        let line = self.line.front().map(|(due, _)| *due);
        [late, line, self.copies.due(), self.crash_by, Some(self.second)].into_iter().flatten().min()
    }

    /// Lets go what is due.
    pub fn poll(&mut self, now: Instant, out: &mut Out) {
        if self.second <= now {
            self.second = now + SECOND;
            self.draw(now, out);
        }
        out.cut |= self.crash_by.is_some_and(|by| by <= now);
        if self.silent {
            let waiting = self.line.drain(..).map(|(_, text)| text).chain(self.late.drain(..).map(|late| late.text));
            out.lost += waiting.map(|text| text.len()).sum::<usize>();
            self.copies = Copies::default();
            return;
        }
        while let Some((_, text)) = self.line.pop_front_if(|(due, _)| *due <= now) {
            out.ready.push(text);
        }
        let settings = self.settings();
        let (due, late): (Vec<Late>, Vec<Late>) = self.late.drain(..).partition(|late| late.by <= now);
        self.late = late;
        for Late { text, .. } in due {
            self.emit(text, &settings, now, out);
        }
        while let Some(text) = self.copies.take_due(now) {
            out.added += text.len();
            self.emit(text, &settings, now, out);
        }
    }

    /// Draws the chances per second.
    fn draw(&mut self, now: Instant, out: &mut Out) {
        let Settings { cut, half_open, crash, .. } = self.settings();
        out.cut |= self.chance(cut);
        self.silent |= self.chance(half_open);
        if self.chance(crash) {
            self.faults.go_away(self.key.as_deref(), AWAY);
            self.act(Deed::Crash, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(settings: Settings) -> Stage {
        let faults = Faults::new(settings.seed);
        faults.set(None, settings);
        Stage::new(Arc::new(faults), None, "e".into())
    }

    /// Pushes frames `0`, `1` … and lets go everything; what was written.
    fn run(settings: Settings, count: u32) -> (Vec<String>, usize, usize) {
        let mut stage = stage(settings);
        let mut now = Instant::now();
        let mut out = Out::default();
        for frame in 0..count {
            now += Duration::from_millis(1);
            stage.push(frame.to_string().into(), now, &mut out);
        }
        stage.poll(now + Duration::from_secs(60), &mut out);
        stage.poll(now + Duration::from_secs(120), &mut out);
        (out.ready.iter().map(ToString::to_string).collect(), out.lost, out.added)
    }

    fn numbers(count: u32) -> Vec<String> {
        (0..count).map(|frame| frame.to_string()).collect()
    }

    #[test]
    fn without_faults_nothing_happens() {
        assert_eq!(run(Settings::default(), 100), (numbers(100), 0, 0));
    }

    #[test]
    fn a_seed_repeats_its_faults() {
        let settings =
            |seed| Settings { seed, drop: 0.2, duplicate: 0.2, reorder: 0.2, delay: 20, ..Settings::default() };
        assert_eq!(run(settings(5), 200), run(settings(5), 200));
        assert_ne!(run(settings(5), 200), run(settings(6), 200));
    }

    #[test]
    fn nothing_late_comes_after_a_new_epoch() {
        let mut stage = stage(Settings { duplicate: 1.0, reorder: 1.0, ..Settings::default() });
        let now = Instant::now();
        let mut out = Out::default();
        for _ in 0..10 {
            stage.push("old".into(), now, &mut out);
        }
        stage.go_over("e".into(), &mut out);
        assert_eq!(stage.copies.waiting.len(), 10, "the same epoch");
        let (ready, late) = (out.ready.len(), stage.late.len());
        assert!(late > 0, "some are late");
        stage.go_over("f".into(), &mut out);
        stage.push("new".into(), now, &mut out);
        stage.poll(now + Duration::from_secs(60), &mut out);
        stage.poll(now + Duration::from_secs(120), &mut out);
        assert_eq!(out.lost, late * "old".len());
        assert!(out.ready[ready..].iter().all(|text| &**text == "new"), "{:?}", out.ready);
    }

    #[test]
    fn a_copy_comes_when_a_broker_would_send_it_again() {
        let mut stage = stage(Settings { duplicate: 1.0, ..Settings::default() });
        let begin = Instant::now();
        let mut out = Out::default();
        for frame in 0..100 {
            stage.push(frame.to_string().into(), begin, &mut out);
        }
        let mut at = |ms: u64| {
            stage.poll(begin + Duration::from_millis(ms), &mut out);
            out.ready.len() - 100
        };
        let copies = [at(199), at(900), at(1_600), at(2_300), at(3_000)];
        assert!(copies[0] == 0 && copies[4] == 100 && copies.windows(2).all(|two| two[1] - two[0] > 10), "{copies:?}");
    }

    #[test]
    fn copies_that_wait_are_bounded() {
        let table = [(1, MAX_COPIES), (1_000, MAX_COPY_BYTES / 1_000), (MAX_COPY_BYTES, 1), (MAX_COPY_BYTES + 1, 0)];
        for (bytes, kept) in table {
            let mut stage = stage(Settings { duplicate: 1.0, ..Settings::default() });
            let now = Instant::now();
            let mut out = Out::default();
            let text: Arc<str> = "x".repeat(bytes).into();
            for _ in 0..MAX_COPIES + 10 {
                stage.push(text.clone(), now, &mut out);
            }
            assert_eq!((stage.copies.waiting.len(), stage.copies.bytes), (kept, kept * bytes));
            stage.poll(now + Duration::from_secs(4), &mut out);
            assert_eq!((out.added, stage.copies.bytes, stage.copies.due()), (kept * bytes, 0, None));
        }
    }

    #[test]
    fn chances_per_second_are_drawn_each_second() {
        for settings in [Settings { cut: 0.2, ..Settings::default() }, Settings { crash: 0.2, ..Settings::default() }] {
            let mut stage = stage(settings);
            let mut out = Out::default();
            let begin = Instant::now();
            let seconds = (1..60).find(|second| {
                stage.poll(begin + Duration::from_millis(second * 1_010), &mut out);
                out.cut
            });
            assert!(seconds.is_some());
        }
        let mut stage = stage(Settings { half_open: 1.0, ..Settings::default() });
        assert!(stage.is_silent());
        stage.silent = false;
        stage.poll(Instant::now() + SECOND * 2, &mut Out::default());
        assert!(stage.is_silent());
    }

    #[test]
    fn a_crash_takes_the_next_frame_with_it() {
        let mut stage = stage(Settings::default());
        let mut out = Out::default();
        stage.act(Deed::Crash, Instant::now());
        stage.push("lost".into(), Instant::now(), &mut out);
        assert!(out.cut && out.ready.is_empty() && out.lost == 4);
    }

    #[test]
    fn each_fault_does_what_it_says() {
        let all = |settings: Settings| run(settings, 200).0;
        let sorted = |mut frames: Vec<String>| {
            frames.sort_by_key(|frame| frame.parse::<u32>().unwrap());
            frames
        };
        let dropped = all(Settings { drop: 0.3, ..Settings::default() });
        assert!((100..180).contains(&dropped.len()) && dropped == sorted(dropped.clone()));

        let doubled = all(Settings { duplicate: 0.3, ..Settings::default() });
        let mut once = sorted(doubled.clone());
        once.dedup();
        assert!(doubled.len() > 220 && once == numbers(200));

        let reordered = all(Settings { reorder: 0.3, ..Settings::default() });
        assert!(reordered != numbers(200) && sorted(reordered) == numbers(200));

        assert_eq!(all(Settings { delay: 30, ..Settings::default() }), numbers(200), "late, but all and in order");
        let mut bytes = run(Settings { drop: 1.0, ..Settings::default() }, 10);
        assert_eq!((bytes.0.len(), bytes.1, bytes.2), (0, 10, 0));
        bytes = run(Settings { duplicate: 1.0, ..Settings::default() }, 10);
        assert_eq!((bytes.0.len(), bytes.1, bytes.2), (20, 0, 10));
    }
}
