//! Slips of a driver, planted on purpose: for invariants that no fault planted in the core breaks.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A slip that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Slip {
    /// The client is not told that the application closed it.
    CloseNobody,
    /// Heads are told one too high.
    RaiseHeads,
    /// The timer is always due.
    WakeWithoutEnd,
    /// A gap is told from its end.
    TurnGaps,
    /// A pong panics.
    PanicAtPong,
    /// A run depends on the runs before it.
    RememberRuns,
}

pub const SLIPS: &[Slip] =
    &[Slip::CloseNobody, Slip::RaiseHeads, Slip::WakeWithoutEnd, Slip::TurnGaps, Slip::PanicAtPong, Slip::RememberRuns];

static PLANTED: AtomicU8 = AtomicU8::new(u8::MAX);

/// Plants a slip in every page of this process, or takes it out again.
pub fn plant(slip: Option<Slip>) {
    PLANTED.store(slip.map_or(u8::MAX, |slip| slip as u8), Ordering::Relaxed);
}

pub fn has(slip: Slip) -> bool {
    PLANTED.load(Ordering::Relaxed) == slip as u8
}

/// What a run that remembers others adds to its trace; else nothing.
pub fn remembered() -> u64 {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    if has(Slip::RememberRuns) { RUNS.fetch_add(1, Ordering::Relaxed) } else { 0 }
}
