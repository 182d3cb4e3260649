//! Faults planted on purpose, so that the tests can show that they would notice.
//!
//! Only with the feature `zoo`, which nothing that is shipped turns on. Without it [`has`] is the constant
//! `false`, and nothing of a fault is left.

macro_rules! zoo {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// A fault that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Bug {
            $($(#[$doc])* $name,)*
        }

        /// All of them.
        #[cfg(feature = "zoo")]
        pub const BUGS: &[Bug] = &[$(Bug::$name),*];
    };
}

zoo! {
    /// R1: what was applied last is applied again.
    ApplyTwice
    /// R2: a number is skipped where one is missing.
    OffByOneAtPrev
    /// R4: of the held events the farthest goes first.
    DrainFromBehind
    /// R5: a fork is taken for a duplicate.
    OverlookForks
    /// R6: an id counts as seen while its event is held.
    CountHeldIds
    /// R6: an id is never remembered.
    ForgetIds
    /// R7: frames of another epoch are applied where they fit.
    ForgetEpochCheck
    /// R7: what was held of the old epoch survives a new one.
    KeepHeldAcrossEpochs
    /// R7: an epoch that is over is suspected again.
    RetireNothing
    /// R8: what is final may change.
    ForgetLock
    /// R8: what is final is resumed.
    ResumeFinals
    /// R12: any number is believed.
    BelieveFarAhead
    /// R13: a vacancy covers one number more.
    WidenVacancies
    /// R14: an older snapshot is adopted.
    AcceptOlderSnapshot
    /// R16: a change does not say what it passed over.
    HideSkipped
    /// R7, R14: a change does not say that it starts over.
    HideReset
    /// R18: answers that nobody waits for count.
    TakeEveryAnswer
    /// R19: buffers are not bounded.
    Unbounded
    /// R19: what was dropped from a full buffer is forgotten.
    ForgetDropped
    /// R20: a slot is never given back.
    LeakSlots
    /// R21: heads are ignored.
    IgnoreHeads
    /// R22: a replica that lags is believed at once.
    BelieveLag
    /// R23: a replay has no deadline.
    LoseTimer
    /// Ladder: snapshots are not paced.
    Unpaced
    /// Ladder: `done` is taken for complete.
    TrustDone
    /// Ladder: a retry has an id of its own, so that a late answer serves nobody.
    RenameRetries
    /// R25: a dial that is replaced leaves its socket open.
    KeepSocket
    /// R26: the backoff starts anew as soon as a connection is accepted.
    ResetBackoffOnAccept
    /// R27: positions survive a close that says to begin anew.
    KeepPositionsAnew
    /// R28: silence is never noticed.
    IgnoreSilence
    /// R29: the first token serves for ever.
    KeepOldToken
    /// R30: a resume begins one number too late.
    ResumeTooLate
    /// R30: being subscribed is being up to date.
    ConfirmAnyHead
    /// R31: releasing is at once, whatever the linger.
    NoLinger
    /// R36: a rollback leaves the position.
    RollBackNothing
    /// R39: a cursor is believed while the topic is in doubt, and covers everybody.
    TrustCursors
}

#[cfg(feature = "zoo")]
static PLANTED: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(u8::MAX);

/// Plants a fault in every client of this process, or takes it out again.
#[cfg(feature = "zoo")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(u8::MAX, |bug| bug as u8), core::sync::atomic::Ordering::Relaxed);
}

/// Whether this fault is planted.
#[cfg(feature = "zoo")]
pub(crate) fn has(bug: Bug) -> bool {
    PLANTED.load(core::sync::atomic::Ordering::Relaxed) == bug as u8
}

/// Whether this fault is planted: never.
#[cfg(not(feature = "zoo"))]
#[inline(always)]
pub(crate) const fn has(_: Bug) -> bool {
    false
}
