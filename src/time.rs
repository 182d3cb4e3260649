//! Points on the driver's clock. Nothing in the core reads a clock: every `handle_*` is told the time.

use core::ops::Add;

/// A point in time, in milliseconds since an origin of the driver's choice.
///
/// The clock must be monotonic (`performance.now()` in browsers); a step back is treated as no step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

/// A span of time in milliseconds. Drivers keep spans and clocks below 2^53, so that sums can't overflow.
pub type Millis = u64;

impl Instant {
    /// Later than all others: a timer that is not armed.
    pub(crate) const NEVER: Instant = Instant(u64::MAX);

    /// `None` for [`Instant::NEVER`].
    pub(crate) fn armed(self) -> Option<Instant> {
        (self != Instant::NEVER).then_some(self)
    }

    /// Milliseconds from `earlier` to `self`, 0 if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Millis {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Millis> for Instant {
    type Output = Instant;
    fn add(self, millis: Millis) -> Instant {
        Instant(self.0 + millis)
    }
}
