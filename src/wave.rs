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

#[cfg(test)]
mod tests {
    use super::{WAVES, Wave, WaveKind, Waves};
    use crate::time::Instant;

    fn wave(request: u32, deadline: u64) -> Wave {
        Wave { kind: WaveKind::Subscribe, tries: 0, request, deadline: Instant(deadline), waiting: 0 }
    }

    /// Opens a wave, or finds it, and has one more wait in it.
    fn enter(waves: &mut Waves, wave: Wave) -> u16 {
        let id = waves.open(wave).expect("there is room");
        waves.change(0, id);
        id
    }

    #[test]
    fn equal_questions_share_a_wave_and_others_do_not() {
        let mut waves = Waves::NONE;
        let first = enter(&mut waves, wave(1, 9));
        assert_eq!(enter(&mut waves, wave(1, 9)), first);
        let second = enter(&mut waves, wave(2, 5));
        assert_ne!(second, first);
        assert_eq!(waves.first(), Some((Instant(5), second)));
        assert_eq!(waves.get(first).map(|wave| wave.waiting), Some(2));
    }

    #[test]
    fn a_wave_is_over_when_the_last_one_left_and_its_place_is_free() {
        let mut waves = Waves::NONE;
        let [first, other] = [wave(1, 9), wave(2, 9)].map(|wave| enter(&mut waves, wave));
        waves.change(first, other);
        assert_eq!(waves.get(first), None);
        assert_eq!(waves.get(other).map(|wave| wave.waiting), Some(2));
        assert_eq!(enter(&mut waves, wave(3, 4)), first);
        waves.end(other);
        assert_eq!(waves.get(other), None);
        assert_eq!(waves.first(), Some((Instant(4), first)));
        waves.clear();
        assert_eq!((waves.get(first), waves.first()), (None, None));
    }

    #[test]
    fn of_two_that_are_due_together_the_older_comes_first() {
        let mut waves = Waves::NONE;
        let ids = [wave(1, 9), wave(2, 9), wave(3, 10)].map(|wave| enter(&mut waves, wave));
        assert_eq!(waves.first(), Some((Instant(9), ids[0])));
    }

    #[test]
    fn there_are_so_many_waves_and_no_more() {
        let mut waves = Waves::NONE;
        for request in 0..WAVES as u32 {
            enter(&mut waves, wave(request, 9));
        }
        assert_eq!(waves.open(wave(u32::MAX, 9)), None);
        assert!(waves.open(wave(7, 9)).is_some(), "an equal one has a place");
        waves.end(5);
        assert_eq!(waves.open(wave(u32::MAX, 9)), Some(5));
    }

    #[test]
    fn what_is_still_coming_keeps_members_waiting_and_nobody_else() {
        let mut waves = Waves::NONE;
        let member = Wave { kind: WaveKind::Member, ..wave(1, 9) };
        let ids = [wave(1, 9), member, Wave { tries: 1, ..member }].map(|wave| enter(&mut waves, wave));
        for id in ids.into_iter().chain([0, 99]) {
            waves.extend(id, Instant(50));
        }
        let due = ids.map(|id| waves.get(id).map(|wave| wave.deadline));
        assert_eq!(due, [9, 50, 9].map(|at| Some(Instant(at))));
    }

    #[test]
    fn only_deadlines_that_passed_are_set_anew() {
        let mut waves = Waves::NONE;
        let ids = [wave(1, 9), wave(2, 10), wave(3, 11)].map(|wave| enter(&mut waves, wave));
        waves.rearm(Instant(10), Instant(50));
        let due = ids.map(|id| waves.get(id).map(|wave| wave.deadline));
        assert_eq!(due, [50, 50, 11].map(|at| Some(Instant(at))));
    }
}
