//! Questions that many entities share: one `subscribe` or `heads` frame, one deadline.
//!
//! A reconnect asks for a hundred thousand entities at once; each keeps two bytes that name its wave.

use crate::recovery::Request;
use crate::time::{Instant, earliest};

/// Waves at a time. Further questions wait until one is over: all have deadlines.
pub(crate) const WAVES: usize = 4_096;

/// What the entities of a wave wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WaveKind {
    /// The answer to `subscribe`.
    Subscribe,
    /// What a topic's subscription brings for its members.
    Member,
    /// The answer to `heads`.
    Heads,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wave {
    pub kind: WaveKind,
    pub request: Request,
    pub deadline: Instant,
    /// How often it was asked before.
    pub tries: u8,
    /// Entities that still wait.
    pub waiting: u32,
}

/// A place in the table; entities store it plus one.
pub(crate) type WaveId = u16;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Waves {
    waves: Vec<Option<Wave>>,
}

impl Waves {
    pub(crate) fn open(&mut self, kind: WaveKind, request: Request, deadline: Instant, tries: u8) -> Option<WaveId> {
        let wave = Some(Wave { kind, request, deadline, tries, waiting: 0 });
        if let Some(at) = self.waves.iter().position(Option::is_none) {
            self.waves[at] = wave;
            return Some(at as WaveId + 1);
        }
        if self.waves.len() == WAVES {
            return None;
        }
        self.waves.push(wave);
        Some(self.waves.len() as WaveId)
    }

    /// A wave of this kind, request and deadline, opened if there is none.
    pub(crate) fn join(&mut self, kind: WaveKind, request: Request, deadline: Instant) -> Option<WaveId> {
        let same = |wave: &Option<Wave>| {
            wave.as_ref().is_some_and(|wave| {
                wave.kind == kind && wave.request == request && wave.deadline == deadline && wave.tries == 0
            })
        };
        match self.waves.iter().position(same) {
            Some(at) => Some(at as WaveId + 1),
            None => self.open(kind, request, deadline, 0),
        }
    }

    pub(crate) fn get(&self, id: WaveId) -> Option<&Wave> {
        self.waves.get(usize::from(id).wrapping_sub(1))?.as_ref()
    }

    pub(crate) fn enter(&mut self, id: WaveId) {
        if let Some(Some(wave)) = self.waves.get_mut(usize::from(id).wrapping_sub(1)) {
            wave.waiting += 1;
        }
    }

    /// One entity waits no longer; a wave that nobody waits for is over.
    pub(crate) fn leave(&mut self, id: WaveId) {
        if let Some(slot) = self.waves.get_mut(usize::from(id).wrapping_sub(1))
            && let Some(wave) = slot
        {
            wave.waiting = wave.waiting.saturating_sub(1);
            if wave.waiting == 0 {
                *slot = None;
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.waves.clear();
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waves.iter().flatten().fold(None, |at, wave| earliest(at, Some(wave.deadline)))
    }

    /// A wave whose deadline has passed.
    pub(crate) fn due(&self, now: Instant) -> Option<WaveId> {
        let due = |wave: &Option<Wave>| wave.as_ref().is_some_and(|wave| wave.deadline <= now);
        self.waves.iter().position(due).map(|at| at as WaveId + 1)
    }

    /// Nobody waits for it any more.
    pub(crate) fn end(&mut self, id: WaveId) {
        if let Some(wave) = self.waves.get_mut(usize::from(id).wrapping_sub(1)) {
            *wave = None;
        }
    }

    /// Sets the deadlines that have passed to `deadline`: the page slept (R28).
    pub(crate) fn rearm(&mut self, now: Instant, deadline: Instant) {
        self.waves.iter_mut().flatten().filter(|wave| wave.deadline <= now).for_each(|wave| wave.deadline = deadline);
    }
}
