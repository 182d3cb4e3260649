//! Counters of what was done, and not done, since the client was made.

/// Everything that is counted. Numbers only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[cfg_attr(feature = "wire", derive(serde::Serialize))]
#[cfg_attr(feature = "wire", serde(rename_all = "camelCase"))]
pub struct Stats {
    /// Events that were applied, silent ones included.
    pub applied: u64,
    /// Snapshots that were adopted.
    pub adopted: u64,
    /// Events dropped because their number was covered already (R1).
    pub duplicates: u64,
    /// Events that used a number but changed nothing: vacancies, repeated ids, empty ones (R6, R13).
    pub silent: u64,
    /// Events that were held back at least once (R3).
    pub held: u64,
    /// Events dropped from a full buffer (R19).
    pub overflowed: u64,
    /// Gaps opened (R3, R21).
    pub gaps: u64,
    /// Replay requests, one per entity and try.
    pub replays: u64,
    /// Snapshot requests, one per entity and try; joins are not among them.
    pub snapshots: u64,
    /// Snapshots dropped because they were behind (R14).
    pub stale: u64,
    /// Changes refused because the entity was final (R8).
    pub after_final: u64,
    /// Frames of retired epochs that were dropped (R7).
    pub retired: u64,
    /// Histories that forked (R5, R15).
    pub diverged: u64,
    /// Positions that went back or changed their epoch, all marked `reset`.
    pub resets: u64,
    /// Frames that could not be read or carried no usable number (R11, R12).
    pub bad_frames: u64,
    /// Frames of entities that nobody wants (R39).
    pub unknown: u64,
    /// Answers that nobody waited for any more (R18).
    pub unwanted: u64,
    /// Dials.
    pub dials: u64,
    /// Sockets closed by the client to replace them.
    pub replaced: u64,
}

impl core::hash::Hash for Stats {
    /// Counters never decide anything: clients that differ in them alone behave alike.
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// How many there are.
const COUNTERS: usize = size_of::<Stats>() / size_of::<u64>();

impl Stats {
    pub(crate) const ZERO: Stats = Stats {
        applied: 0,
        adopted: 0,
        duplicates: 0,
        silent: 0,
        held: 0,
        overflowed: 0,
        gaps: 0,
        replays: 0,
        snapshots: 0,
        stale: 0,
        after_final: 0,
        retired: 0,
        diverged: 0,
        resets: 0,
        bad_frames: 0,
        unknown: 0,
        unwanted: 0,
        dials: 0,
        replaced: 0,
    };

    /// The counters in the order of the fields.
    #[must_use]
    pub fn list(&self) -> &[u64; COUNTERS] {
        // SAFETY: the struct is `repr(C)` and has `u64` fields only, so it is laid out like an array of them.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::Stats;

    #[test]
    fn the_list_has_the_counters_in_their_order() {
        let stats = Stats { applied: 1, adopted: 2, duplicates: 3, replaced: 4, ..Stats::ZERO };
        let list = stats.list();
        assert_eq!((&list[..4], list.last()), (&[1, 2, 3, 0][..], Some(&4)));
        assert_eq!(list.iter().sum::<u64>(), 10);
    }
}
