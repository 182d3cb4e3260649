//! Questions that many entities share: one `subscribe` or `heads` frame, one deadline.
//!
//! A reconnect asks for a hundred thousand entities at once; each keeps two bytes that name its wave.

use crate::recovery::Request;
use crate::time::Instant;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wave {
    pub kind: WaveKind,
    /// How often it was asked before; of members: 1 if they are in a hurry.
    pub tries: u8,
    pub request: Request,
    pub deadline: Instant,
    /// Entities that still wait; nobody's place is free.
    pub waiting: u32,
}

/// A place in the table; entities store it plus one.
pub(crate) type WaveId = u16;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waves {
    waves: Vec<Wave>,
}

impl Waves {
    pub(crate) const NONE: Waves = Waves { waves: Vec::new() };

    /// A place for this wave, which somebody enters at once: that of an equal one, or a free one.
    #[inline(never)]
    pub(crate) fn open(&mut self, wave: Wave) -> Option<WaveId> {
        let mut place = self.waves.len();
        for (at, other) in self.waves.iter().enumerate() {
            if other.waiting == 0 {
                place = at;
            } else if (Wave { waiting: 0, ..*other } == wave) {
                return Some(at as WaveId + 1);
            }
        }
        if place == WAVES {
            return None;
        }
        if place == self.waves.len() {
            self.waves.push(wave);
        }
        self.waves[place] = wave;
        Some(place as WaveId + 1)
    }

    #[inline(never)]
    pub(crate) fn get(&self, id: WaveId) -> Option<&Wave> {
        self.waves.get(usize::from(id).wrapping_sub(1)).filter(|wave| wave.waiting > 0)
    }

    /// An entity goes from one wave to another; 0 is none.
    #[inline(never)]
    pub(crate) fn change(&mut self, from: WaveId, to: WaveId) {
        for (id, by) in [(to, 1), (from, u32::MAX)] {
            if let Some(wave) = self.waves.get_mut(usize::from(id).wrapping_sub(1)) {
                wave.waiting = wave.waiting.wrapping_add(by);
            }
        }
    }

    /// What a topic's subscription brings for its members is still coming.
    pub(crate) fn extend(&mut self, id: WaveId, deadline: Instant) {
        if let Some(wave) = self.waves.get_mut(usize::from(id).wrapping_sub(1))
            && wave.kind == WaveKind::Member
            && wave.tries == 0
        {
            wave.deadline = deadline;
        }
    }

    /// Nobody waits for it any more.
    pub(crate) fn end(&mut self, id: WaveId) {
        if let Some(wave) = self.waves.get_mut(usize::from(id).wrapping_sub(1)) {
            wave.waiting = 0;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.waves.clear();
    }

    /// The wave that is due first.
    #[inline(never)]
    pub(crate) fn first(&self) -> Option<(Instant, WaveId)> {
        let mut first = None;
        for (at, wave) in self.waves.iter().enumerate() {
            if wave.waiting > 0 && first.is_none_or(|(deadline, _)| wave.deadline < deadline) {
                first = Some((wave.deadline, at as WaveId + 1));
            }
        }
        first
    }

    /// Sets the deadlines that have passed to `deadline`: the page slept (R28).
    pub(crate) fn rearm(&mut self, now: Instant, deadline: Instant) {
        for wave in &mut self.waves {
            if wave.deadline <= now {
                wave.deadline = deadline;
            }
        }
    }
}
