//! Seeded jitter. The driver hands in the seed; the same seed and inputs give the same outputs.

use crate::time::Millis;

/// A small generator (SplitMix64, Steele, Lea and Flood 2014) for spreading waits; not for secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) const fn new(seed: u64) -> Self {
        Jitter(seed)
    }

    /// A wait, uniform in `[low, high]`; `low` if the bounds cross.
    pub(crate) fn between(&mut self, low: Millis, high: Millis) -> Millis {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        if high <= low { low } else { low + z % (high - low + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::Jitter;

    #[test]
    fn stays_within_its_bounds_and_reaches_both_ends() {
        let mut jitter = Jitter::new(1);
        let drawn: Vec<u64> = (0..200).map(|_| jitter.between(3, 6)).collect();
        assert!(drawn.iter().all(|wait| (3..=6).contains(wait)));
        assert!((3..=6).all(|wait| drawn.contains(&wait)));
        assert_eq!(jitter.between(9, 9), 9);
        assert_eq!(jitter.between(9, 2), 9);
    }

    /// Values that others computed with SplitMix64 for this seed.
    #[test]
    fn draws_what_the_published_generator_draws() {
        let mut jitter = Jitter::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(expected.map(|_| jitter.between(0, u64::MAX - 1)), expected);
    }
}
