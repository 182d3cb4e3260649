//! What a troubled entity needs: held events, suspicions, and its place on the ladder (R5–R7, R14, R19–R23, R36).
//!
//! ```text
//! Rest ─gap─▶ Grace ─▶ Replay ─cut, twice late, hole left─▶ Snapshot ─5 failures─▶ Failed
//!  ▲                                                            │                     │
//!  └───────────────────── nothing is missing ◀──────────────────┴──── every 30 s ◀────┘
//! ```
//!
//! A recovery is allocated when trouble starts and freed when nothing is left to remember.

use crate::config::{AGREEING_ANSWERS, ERROR_BASE, ERROR_CAP, RETIRED_EPOCHS, SNAPSHOT_CAP, SUSPECT_EPOCHS};
use crate::entity::{Epoch, Position, Seq};
use crate::gap::Gap;
use crate::jitter::Jitter;
use crate::time::{Instant, Millis};
use crate::zoo::{self, Bug};

/// A request's id. Positive, unique per client, never used again.
pub type Request = u32;

/// A place on the ladder. From `Grace` on there is a time when it ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Stage {
    /// Nothing is asked or awaited.
    #[default]
    Rest,
    /// Refused for good, until subscribed anew.
    Denied,
    /// It waits for a slot (R20).
    ReplayReady,
    SnapshotReady,
    /// Waiting out simple reordering.
    Grace,
    /// Paced.
    SnapshotWait,
    /// An `error` was answered: wait, then go on.
    Error,
    /// Given up for now; tried again then.
    Failed,
    /// The pages that answer a resume are coming, until this deadline; takes no slot (R20).
    Resume,
    /// A request is out until this deadline.
    ReplayOut,
    SnapshotOut,
}

impl Stage {
    pub(crate) fn is_out(self) -> bool {
        self >= Stage::ReplayOut
    }

    pub(crate) fn is_ready(self) -> bool {
        matches!(self, Stage::ReplayReady | Stage::SnapshotReady)
    }

    pub(crate) fn is_replay(self) -> bool {
        matches!(self, Stage::ReplayReady | Stage::ReplayOut)
    }

    pub(crate) fn is_snapshot(self) -> bool {
        matches!(self, Stage::SnapshotWait | Stage::SnapshotReady | Stage::SnapshotOut)
    }

    /// A snapshot was asked or will be, or a resume: only an answer ends that (R18).
    pub(crate) fn is_unanswered(self) -> bool {
        self.is_snapshot() || matches!(self, Stage::Error | Stage::Failed | Stage::Resume)
    }

    /// A request, or a resume, whose pages or answer are awaited.
    pub(crate) fn is_awaited(self) -> bool {
        self >= Stage::Resume
    }
}

/// Why a snapshot is asked that is adopted whatever its number (R14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Question {
    #[default]
    None,
    /// R22: the server seems to have gone back.
    Lag,
    /// R5: the history forked.
    Fork,
    /// R36: a change could not be applied; adopted at or above the position.
    Fault,
    /// R27: positions were forgotten.
    Anew,
}

impl Question {
    /// Whether events must wait for the answer, since applying them would mix two histories.
    pub(crate) fn blocks(self) -> bool {
        self >= Question::Fork
    }
}

/// Another epoch than the entity's, and what is known of it (R7).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Other {
    pub epoch: Epoch,
    /// A frame named it, and no snapshot has spoken since.
    pub suspected: bool,
    /// How often a snapshot spoke against it; retired from [`AGREEING_ANSWERS`] on.
    pub refuted: u8,
}

/// What was asked on this socket, and what is known from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    /// The snapshot request that is out, 0 for none.
    pub snapshot: Request,
    /// The replay, or resume, that is wanted while any of its numbers is missing; 0 for none.
    pub replay: Request,
    /// Its last number; `Seq::MAX`: up to the head.
    pub to: Seq,
    /// The highest number known of the server in this epoch (R21), 0 if none.
    pub head: Seq,
    /// The end of the gap that was reported, 0 if none.
    pub gap: Seq,
    /// How often the replay was asked.
    pub tries: u8,
    /// A page of it has come.
    pub paged: bool,
    /// Its `done` confirms the position on this socket (R30).
    pub confirms: bool,
    /// It said `done`: to be judged when what it brought was applied.
    pub done: bool,
    /// A request went out: shown as `recovering`.
    pub shown: bool,
    /// The subscription must be sent again after the wait.
    pub resubscribe: bool,
}

impl Asked {
    /// The replay is no longer wanted.
    pub(crate) fn end_replay(&mut self) {
        self.replay = 0;
        self.confirms = false;
    }
}

/// The fields that are asked for most stand first, as in the client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct Recovery<P> {
    pub stage: Stage,
    /// A snapshot is needed.
    pub wants_snapshot: bool,
    pub question: Question,
    /// Given up: shown as `failed` until nothing is missing.
    pub failed: bool,
    /// The server no longer has what follows the position: don't resume from it.
    pub no_after: bool,
    /// Snapshots asked since the entity was last live.
    pub snapshots: u8,
    /// Stale answers in a row (R14, R22).
    pub lag: u8,
    /// Errors answered in a row.
    pub errors: u8,
    /// Faults of `reduce` or `terminal` in a row (R36).
    pub faults: u8,
    /// How often in a row answers named the retired epoch `flapping` (R7).
    pub flaps: u8,
    pub flapping: Epoch,
    /// When the stage ends by itself.
    pub due: Instant,
    pub asked: Asked,
    pub held: Gap<P>,
    /// In the order in which they were named or retired.
    pub others: Vec<Other>,
    /// What could not be reduced (R36).
    pub fault: Position,
    /// When a released entity is let go (R31).
    pub linger: Instant,
    /// Until then no snapshot is asked because of a number far ahead (R12), or of a fork (R5).
    pub far_pause: Instant,
    pub fork_pause: Instant,
}

impl<P> Default for Recovery<P> {
    fn default() -> Self {
        Recovery {
            stage: Stage::Rest,
            wants_snapshot: false,
            question: Question::None,
            failed: false,
            no_after: false,
            snapshots: 0,
            lag: 0,
            errors: 0,
            faults: 0,
            flaps: 0,
            flapping: Epoch(0),
            due: Instant::NEVER,
            asked: Asked::default(),
            held: Gap::default(),
            others: Vec::new(),
            fault: Position { epoch: Epoch(0), seq: 0 },
            linger: Instant::NEVER,
            far_pause: Instant(0),
            fork_pause: Instant(0),
        }
    }
}

impl<P> Recovery<P> {
    /// When the next thing happens to the entity by itself.
    pub(crate) fn timer(&self) -> Instant {
        if zoo::has(Bug::LoseTimer) && self.stage == Stage::ReplayOut {
            return self.linger;
        }
        self.due.min(self.linger)
    }

    /// Whether what fits must wait: an answer decides first, or only a snapshot leads past what can't be reduced (R36).
    #[inline(never)]
    pub(crate) fn withholds(&self) -> bool {
        self.question.blocks() || self.is_stuck()
    }

    /// Given up because of what can't be reduced (R36).
    pub(crate) fn is_stuck(&self) -> bool {
        self.failed && self.faults >= AGREEING_ANSWERS
    }

    fn other(&mut self, epoch: Epoch) -> Option<&mut Other> {
        self.others.iter_mut().find(|other| other.epoch == epoch)
    }

    pub(crate) fn is_retired(&self, epoch: Epoch) -> bool {
        self.others.iter().any(|other| other.epoch == epoch && other.refuted >= AGREEING_ANSWERS)
    }

    pub(crate) fn suspects(&self) -> bool {
        self.count(true, false).0 > 0
    }

    /// Nothing is known of the epoch any more.
    #[inline(never)]
    pub(crate) fn forget(&mut self, epoch: Epoch) {
        if let Some(at) = self.others.iter().position(|other| other.epoch == epoch) {
            self.others.remove(at);
        }
    }

    /// How many are suspected, or retired, and the oldest of them.
    #[inline(never)]
    fn count(&self, suspected: bool, retired: bool) -> (usize, Epoch) {
        let (mut count, mut oldest) = (0, Epoch::NONE);
        for other in &self.others {
            if other.suspected == suspected && (other.refuted >= AGREEING_ANSWERS) == retired {
                count += 1;
                if oldest == Epoch::NONE {
                    oldest = other.epoch;
                }
            }
        }
        (count, oldest)
    }

    /// Notes a suspected epoch. False: there are too many.
    #[inline(never)]
    pub(crate) fn suspect(&mut self, epoch: Epoch) -> bool {
        if let Some(other) = self.other(epoch) {
            other.suspected = true;
            return true;
        }
        if self.count(true, false).0 >= SUSPECT_EPOCHS {
            return false;
        }
        self.note(Other { epoch, suspected: true, refuted: 0 });
        true
    }

    pub(crate) fn retire(&mut self, epoch: Epoch) {
        self.forget(epoch);
        let (retired, oldest) = self.count(false, true);
        if retired == RETIRED_EPOCHS {
            self.forget(oldest);
        }
        self.note(Other { epoch, suspected: false, refuted: AGREEING_ANSWERS });
    }

    /// Makes room at the cost of one that was refuted but not retired: there is one, since the others are bounded.
    fn note(&mut self, other: Other) {
        if self.others.len() == SUSPECT_EPOCHS + RETIRED_EPOCHS {
            self.forget(self.count(false, false).1);
        }
        self.others.push(other);
    }

    /// Counts an answer that named a retired epoch; true when the server has said so often enough.
    pub(crate) fn flaps(&mut self, epoch: Epoch) -> bool {
        if self.flapping != epoch {
            self.flaps = 0;
        }
        self.flapping = epoch;
        self.flaps += 1;
        self.flaps >= AGREEING_ANSWERS
    }

    /// A snapshot spoke against all suspected epochs; those that it spoke against often enough are retired.
    #[inline(never)]
    pub(crate) fn refute(&mut self) {
        let mut at = 0;
        while let Some(other) = self.others.get_mut(at) {
            at += 1;
            if core::mem::take(&mut other.suspected) {
                other.refuted += 1;
                if other.refuted >= AGREEING_ANSWERS {
                    // It goes to the end of the list, and another takes its place.
                    let epoch = other.epoch;
                    self.retire(epoch);
                    at = 0;
                }
            }
        }
    }

    /// Suspicions are void; what snapshots have said stays.
    pub(crate) fn acquit(&mut self) {
        for other in &mut self.others {
            other.suspected = false;
        }
    }

    /// The wait after an `error` answer: 2, 4 … 30 s (ladder, rung 5).
    pub(crate) fn error_wait(&self) -> Millis {
        (ERROR_BASE << self.errors.saturating_sub(1).min(4)).min(ERROR_CAP)
    }

    /// Nothing is missing: what was counted towards giving up is forgotten. The stage is the client's to set.
    pub(crate) fn rest(&mut self) {
        self.asked = Asked::default();
        self.failed = false;
        self.no_after = false;
        self.snapshots = 0;
        self.lag = 0;
        self.errors = 0;
        self.flaps = 0;
        self.flapping = Epoch(0);
    }

    /// A socket ended: requests end with it, held events and suspicions stay (R30).
    pub(crate) fn disconnect(&mut self) {
        if self.stage != Stage::Denied {
            self.stage = Stage::Rest;
        }
        self.due = Instant::NEVER;
        self.asked = Asked::default();
        if core::mem::take(&mut self.failed) {
            // A new socket is a new chance.
            self.snapshots = 0;
        }
    }

    /// Whether it can be freed.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.stage == Stage::Rest
            && self.held.len() == 0
            && self.others.iter().all(|other| !other.suspected && other.refuted == 0)
            && self.flaps == 0
            && self.asked.replay == 0
            && self.asked.snapshot == 0
            && self.asked.head == 0
            && !self.asked.resubscribe
            && !self.wants_snapshot
            && self.question == Question::None
            && self.faults == 0
            && !self.failed
            && !self.no_after
            && self.lag == 0
            && self.linger == Instant::NEVER
            && self.far_pause <= now
            && self.fork_pause <= now
    }
}

/// The wait before the next snapshot request, of `asked` since the entity was last live: 0, 1, 2, 4 … 30 s, jittered (ladder, rung 4).
pub(crate) fn snapshot_wait(asked: u8, jitter: &mut Jitter) -> Millis {
    match asked {
        0 => 0,
        n => {
            let wait = (1_000u64 << (n - 1).min(5)).min(SNAPSHOT_CAP);
            jitter.between(wait / 2, wait)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Question, Recovery, Stage, snapshot_wait};
    use crate::entity::{Epoch, Status};
    use crate::gap::Held;
    use crate::ids::EventId;
    use crate::jitter::Jitter;
    use crate::time::Instant;

    #[test]
    fn stages_are_what_they_say() {
        use Stage::*;
        let all = [
            Rest,
            Denied,
            ReplayReady,
            SnapshotReady,
            Grace,
            SnapshotWait,
            Error,
            Failed,
            Resume,
            ReplayOut,
            SnapshotOut,
        ];
        let those = |of: fn(Stage) -> bool| all.into_iter().filter(|stage| of(*stage)).collect::<Vec<Stage>>();
        assert_eq!(those(Stage::is_out), [ReplayOut, SnapshotOut]);
        assert_eq!(those(Stage::is_ready), [ReplayReady, SnapshotReady]);
        assert_eq!(those(Stage::is_replay), [ReplayReady, ReplayOut]);
        assert_eq!(those(Stage::is_snapshot), [SnapshotReady, SnapshotWait, SnapshotOut]);
        assert_eq!(those(Stage::is_unanswered), [SnapshotReady, SnapshotWait, Error, Failed, Resume, SnapshotOut]);
        assert_eq!(those(Stage::is_awaited), [Resume, ReplayOut, SnapshotOut]);
    }

    /// Each of these is something to remember.
    #[test]
    fn a_recovery_is_freed_when_nothing_is_left_to_remember() {
        let now = Instant(50);
        let idle = |change: fn(&mut Recovery<()>)| {
            let mut recovery = Recovery::default();
            change(&mut recovery);
            recovery.is_idle(now)
        };
        assert!(idle(|_| {}));
        assert!(idle(|recovery| recovery.far_pause = Instant(50)));
        assert!(idle(|recovery| recovery.fork_pause = Instant(50)));
        let held = Held {
            prev: 1,
            seq: 2,
            id: EventId::NONE,
            epoch: Epoch(1),
            status: Status::NONE,
            bytes: 0,
            payload: None,
            visible: true,
            whole: false,
        };
        let mut recovery = Recovery::<()>::default();
        assert!(recovery.held.insert(held).is_ok());
        assert!(!recovery.is_idle(now));
        let kept: [fn(&mut Recovery<()>); 18] = [
            |recovery| recovery.stage = Stage::Denied,
            |recovery| assert!(recovery.suspect(Epoch(3))),
            |recovery| {
                recovery.suspect(Epoch(3));
                recovery.refute();
            },
            |recovery| recovery.retire(Epoch(3)),
            |recovery| recovery.flaps = 1,
            |recovery| recovery.asked.replay = 1,
            |recovery| recovery.asked.snapshot = 1,
            |recovery| recovery.asked.head = 1,
            |recovery| recovery.asked.resubscribe = true,
            |recovery| recovery.wants_snapshot = true,
            |recovery| recovery.question = Question::Lag,
            |recovery| recovery.faults = 1,
            |recovery| recovery.failed = true,
            |recovery| recovery.no_after = true,
            |recovery| recovery.lag = 1,
            |recovery| recovery.linger = Instant(51),
            |recovery| recovery.far_pause = Instant(51),
            |recovery| recovery.fork_pause = Instant(51),
        ];
        for (at, change) in kept.into_iter().enumerate() {
            assert!(!idle(change), "{at}");
        }
    }

    #[test]
    fn who_is_acquitted_is_no_suspect_and_keeps_what_was_said_against_it() {
        let mut recovery = Recovery::<()>::default();
        for round in 1..=3 {
            assert!(recovery.suspect(Epoch(3)) && recovery.suspect(Epoch(4)));
            recovery.acquit();
            assert!(!recovery.suspects());
            recovery.refute();
            assert!(recovery.suspect(Epoch(3)));
            recovery.refute();
            assert_eq!(recovery.is_retired(Epoch(3)), round == 3);
            assert!(!recovery.is_retired(Epoch(4)));
        }
    }

    #[test]
    fn snapshot_waits_double_up_to_thirty_seconds() {
        let mut jitter = Jitter::new(7);
        let bounds = [
            (0, 0),
            (500, 1_000),
            (1_000, 2_000),
            (2_000, 4_000),
            (4_000, 8_000),
            (8_000, 16_000),
            (15_000, 30_000),
            (15_000, 30_000),
        ];
        for (n, (low, high)) in bounds.into_iter().enumerate() {
            for _ in 0..50 {
                let wait = snapshot_wait(n as u8, &mut jitter);
                assert!((low..=high).contains(&wait), "n {n}: {wait}");
            }
        }
    }

    #[test]
    fn error_waits_double_up_to_thirty_seconds() {
        let waits: Vec<u64> =
            (1..=7).map(|errors| Recovery::<()> { errors, ..Recovery::default() }.error_wait()).collect();
        assert_eq!(waits, [2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
    }

    #[test]
    fn only_the_last_eight_epochs_stay_retired() {
        let mut recovery = Recovery::<()>::default();
        (0..10).for_each(|epoch| recovery.retire(Epoch(epoch)));
        assert_eq!(recovery.others.len(), 8);
        assert!(!recovery.is_retired(Epoch(1)));
        assert!((2..10).all(|epoch| recovery.is_retired(Epoch(epoch))));
    }

    #[test]
    fn an_epoch_is_retired_by_the_third_refutation() {
        let mut recovery = Recovery::<()>::default();
        for times in 1..=3 {
            assert!(recovery.suspect(Epoch(3)) && recovery.suspects());
            recovery.refute();
            assert!(!recovery.suspects());
            assert_eq!(recovery.is_retired(Epoch(3)), times == 3);
            // While there is room, another one costs it nothing.
            assert!(recovery.suspect(Epoch(10 + times)));
            recovery.acquit();
        }
    }

    #[test]
    fn many_epochs_find_room() {
        let mut recovery = Recovery::<()>::default();
        for epoch in 0..100 {
            assert!(recovery.suspect(Epoch(epoch)));
            recovery.refute();
            if epoch % 3 == 0 {
                recovery.retire(Epoch(epoch));
            }
            assert!(recovery.others.len() <= 16);
        }
        assert_eq!((100..120).filter(|&epoch| recovery.suspect(Epoch(epoch))).count(), 8);
        assert_eq!(recovery.others.len(), 16);
    }

    #[test]
    fn a_flap_counts_answers_in_a_row() {
        let mut recovery = Recovery::<()>::default();
        assert!(!recovery.flaps(Epoch(1)));
        assert!(!recovery.flaps(Epoch(1)));
        assert!(!recovery.flaps(Epoch(2)));
        assert!(!recovery.flaps(Epoch(1)));
        assert!(!recovery.flaps(Epoch(1)));
        assert!(recovery.flaps(Epoch(1)));
    }
}
