//! What a troubled entity needs: held events, suspicions, and its place on the ladder (R5–R7, R14, R19–R23, R36).
//!
//! ```text
//! Rest ─gap─▶ Grace ─▶ Replay ─cut, twice late, hole left─▶ Snapshot ─5 failures─▶ Failed
//!  ▲                                                            │                     │
//!  └───────────────────── nothing is missing ◀──────────────────┴──── every 30 s ◀────┘
//! ```
//!
//! A recovery is allocated when trouble starts and freed when nothing is left to remember.

use crate::config::{AGREEING_ANSWERS, ERROR_BASE, ERROR_CAP, RETIRED_EPOCHS, SNAPSHOT_CAP};
use crate::entity::{EntityId, Epoch, Seq, Status};
use crate::gap::Gap;
use crate::jitter::Jitter;
use crate::time::{Instant, Millis, earliest};
use crate::zoo::{self, Bug};

/// A request's id. Positive, unique per client, never used again.
pub type Request = u32;

/// A place on the ladder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// Nothing is asked or awaited.
    #[default]
    Rest,
    /// Waiting out simple reordering.
    Grace(Instant),
    /// The pages that answer a resume are coming, until this deadline; takes no slot (R20).
    Resume(Instant),
    Replay(Step),
    Snapshot(Step),
    /// An `error` was answered: wait, then go on.
    Error(Instant),
    /// Given up for now; tried again then.
    Failed(Instant),
    /// Refused for good, until subscribed anew.
    Denied,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Paced: it may go out then.
    Wait(Instant),
    /// It waits for a slot (R20).
    Ready,
    /// It is out until this deadline.
    Out(Instant),
}

impl Stage {
    /// When the next thing happens by itself.
    pub(crate) fn timer(self) -> Option<Instant> {
        match self {
            Stage::Replay(Step::Out(_)) if zoo::has(Bug::LoseTimer) => None,
            Stage::Grace(at) | Stage::Resume(at) | Stage::Error(at) | Stage::Failed(at) => Some(at),
            Stage::Replay(Step::Wait(at) | Step::Out(at)) | Stage::Snapshot(Step::Wait(at) | Step::Out(at)) => Some(at),
            _ => None,
        }
    }

    pub(crate) fn is_out(self) -> bool {
        matches!(self, Stage::Replay(Step::Out(_)) | Stage::Snapshot(Step::Out(_)))
    }

    pub(crate) fn is_ready(self) -> bool {
        matches!(self, Stage::Replay(Step::Ready) | Stage::Snapshot(Step::Ready))
    }
}

/// A replay that was asked for and is wanted while any of its numbers is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ask {
    pub request: Request,
    pub from: Seq,
    /// `None`: up to the head.
    pub to: Option<Seq>,
    pub tries: u8,
    /// A page has come.
    pub paged: bool,
    /// Its `done` confirms the position on this socket (R30).
    pub confirms: bool,
}

/// Why a snapshot is asked that is adopted whatever its number (R14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
        matches!(self, Question::Fork | Question::Fault | Question::Anew)
    }
}

/// Frames of an epoch that no snapshot has named (R7).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Suspect<P> {
    pub epoch: Epoch,
    pub held: Gap<P>,
}

/// What is remembered of a final entity that was released and joined again (R31).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Floor {
    pub epoch: Epoch,
    pub seq: Seq,
    pub status: Status,
}

/// The fields that are asked for most stand first, as in the client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct Recovery<P> {
    pub stage: Stage,
    pub entity: EntityId,
    /// The snapshot request that is out, 0 for none.
    pub snapshot: Request,
    /// A snapshot is needed.
    pub wants_snapshot: bool,
    pub question: Question,
    /// The replay said `done`: to be judged when what it brought was applied.
    pub done: bool,
    /// A request went out: shown as `recovering`.
    pub shown: bool,
    /// Given up: shown as `failed` until nothing is missing.
    pub failed: bool,
    /// The server no longer has what follows the position: don't resume from it.
    pub no_after: bool,
    /// The subscription must be sent again after the wait.
    pub resubscribe: bool,
    /// Snapshots asked since the entity was last live.
    pub snapshots: u8,
    /// Stale answers in a row (R14, R22).
    pub lag: u8,
    /// Errors answered in a row.
    pub errors: u8,
    /// Faults of `reduce` or `terminal` in a row, and the number that failed (R36).
    pub faults: u8,
    pub fault_at: Seq,
    /// Early events of the entity's epoch.
    pub held: Gap<P>,
    pub ask: Option<Ask>,
    /// The highest number known of the server in this epoch (R21).
    pub head: Option<Seq>,
    /// The end of the gap that was reported.
    pub gap: Option<Seq>,
    /// What this entity adds to the client's count of held bytes.
    pub counted: u64,
    /// What a replay brought that counts only when it is done (`replay: 'whole'`).
    pub whole: Gap<P>,
    pub suspects: Vec<Suspect<P>>,
    /// Epochs that are over, oldest first (R7).
    pub retired: Vec<Epoch>,
    /// How often a snapshot spoke against a suspected epoch (R7).
    pub refuted: Vec<(Epoch, u8)>,
    /// A retired epoch that answers keep naming, and how often in a row (R7).
    pub flapping: Option<(Epoch, u8)>,
    pub floor: Option<Floor>,
    /// When a released entity is let go (R31).
    pub linger: Option<Instant>,
    pub far_asked: Option<Instant>,
    pub diverged: Option<Instant>,
}

impl<P> Default for Recovery<P> {
    fn default() -> Self {
        Recovery {
            entity: EntityId::default(),
            stage: Stage::Rest,
            held: Gap::default(),
            counted: 0,
            whole: Gap::default(),
            suspects: Vec::new(),
            retired: Vec::new(),
            refuted: Vec::new(),
            flapping: None,
            ask: None,
            done: false,
            snapshot: 0,
            wants_snapshot: false,
            question: Question::None,
            head: None,
            gap: None,
            snapshots: 0,
            lag: 0,
            errors: 0,
            faults: 0,
            fault_at: 0,
            shown: false,
            failed: false,
            no_after: false,
            resubscribe: false,
            floor: None,
            linger: None,
            far_asked: None,
            diverged: None,
        }
    }
}

impl<P> Recovery<P> {
    /// When the next thing happens to the entity by itself.
    pub(crate) fn timer(&self) -> Option<Instant> {
        earliest(self.stage.timer(), self.linger)
    }

    pub(crate) fn held_events(&self) -> usize {
        self.held.len() + self.whole.len() + self.suspects.iter().map(|suspect| suspect.held.len()).sum::<usize>()
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.bytes() + self.whole.bytes() + self.suspects.iter().map(|suspect| suspect.held.bytes()).sum::<u64>()
    }

    pub(crate) fn is_retired(&self, epoch: Epoch) -> bool {
        self.retired.contains(&epoch)
    }

    pub(crate) fn retire(&mut self, epoch: Epoch) {
        self.retired.retain(|&other| other != epoch);
        if self.retired.len() == RETIRED_EPOCHS {
            self.retired.remove(0);
        }
        self.retired.push(epoch);
    }

    /// Counts an answer that named a retired epoch; true when the server has said so often enough.
    pub(crate) fn flaps(&mut self, epoch: Epoch) -> bool {
        let times = match self.flapping {
            Some((named, times)) if named == epoch => times + 1,
            _ => 1,
        };
        self.flapping = Some((epoch, times));
        times >= AGREEING_ANSWERS
    }

    /// Counts a snapshot that spoke against a suspected epoch; retires it after enough of them.
    pub(crate) fn refute(&mut self, epoch: Epoch) {
        let at = match self.refuted.iter().position(|&(named, _)| named == epoch) {
            Some(at) => at,
            None => {
                if self.refuted.len() == RETIRED_EPOCHS {
                    self.refuted.remove(0);
                }
                self.refuted.push((epoch, 0));
                self.refuted.len() - 1
            }
        };
        self.refuted[at].1 += 1;
        if self.refuted[at].1 >= AGREEING_ANSWERS {
            self.refuted.remove(at);
            self.retire(epoch);
        }
    }

    /// The wait after an `error` answer: 2, 4 … 30 s (ladder, rung 5).
    pub(crate) fn error_wait(&self) -> Millis {
        (ERROR_BASE << self.errors.saturating_sub(1).min(4)).min(ERROR_CAP)
    }

    /// Nothing is missing: what was counted towards giving up is forgotten.
    pub(crate) fn rest(&mut self) {
        self.stage = Stage::Rest;
        self.ask = None;
        self.done = false;
        self.snapshot = 0;
        self.head = None;
        self.gap = None;
        self.snapshots = 0;
        self.lag = 0;
        self.errors = 0;
        self.shown = false;
        self.failed = false;
        self.no_after = false;
        self.resubscribe = false;
        self.flapping = None;
    }

    /// A socket ended: requests end with it, held events and suspicions stay (R30).
    pub(crate) fn disconnect(&mut self) {
        if self.stage != Stage::Denied {
            self.stage = Stage::Rest;
        }
        self.ask = None;
        self.done = false;
        self.snapshot = 0;
        self.head = None;
        self.gap = None;
        self.shown = false;
        self.resubscribe = false;
        if self.failed {
            // A new socket is a new chance.
            self.failed = false;
            self.snapshots = 0;
        }
    }

    /// Whether it can be freed.
    pub(crate) fn is_idle(&self) -> bool {
        self.stage == Stage::Rest
            && self.held_events() == 0
            && self.suspects.is_empty()
            && self.retired.is_empty()
            && self.refuted.is_empty()
            && self.flapping.is_none()
            && self.ask.is_none()
            && self.snapshot == 0
            && !self.wants_snapshot
            && self.question == Question::None
            && self.head.is_none()
            && self.faults == 0
            && !self.failed
            && !self.no_after
            && !self.resubscribe
            && self.lag == 0
            && self.floor.is_none()
            && self.linger.is_none()
            && self.far_asked.is_none()
            && self.diverged.is_none()
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
    use super::{Recovery, snapshot_wait};
    use crate::entity::Epoch;
    use crate::jitter::Jitter;

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
        assert!(!recovery.is_retired(Epoch(1)));
        assert!((2..10).all(|epoch| recovery.is_retired(Epoch(epoch))));
    }

    #[test]
    fn an_epoch_is_retired_by_the_third_refutation() {
        let mut recovery = Recovery::<()>::default();
        recovery.refute(Epoch(3));
        recovery.refute(Epoch(3));
        assert!(!recovery.is_retired(Epoch(3)));
        recovery.refute(Epoch(3));
        assert!(recovery.is_retired(Epoch(3)));
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
