//! Where a run's choices come from: a seed, a list, the bytes of a fuzzer, or all of them in turn.

/// One source of choices drives a whole run, so that a run is its list of choices.
pub trait Source {
    /// A number below `n`; `n` is at least 1.
    fn choose(&mut self, n: u32) -> u32;

    /// Nothing is left to choose: the run should come to its end.
    fn is_spent(&self) -> bool {
        false
    }
}

/// Choices drawn from a seed (SplitMix64).
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Seeded {
        Seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }
}

impl Source for Seeded {
    fn choose(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((((z ^ (z >> 31)) >> 32) * u64::from(n)) >> 32) as u32
    }
}

/// A list of choices; behind its end every choice is 0.
pub struct Listed<'a> {
    list: &'a [u32],
    at: usize,
}

impl<'a> Listed<'a> {
    pub fn new(list: &'a [u32]) -> Listed<'a> {
        Listed { list, at: 0 }
    }
}

impl Source for Listed<'_> {
    fn choose(&mut self, n: u32) -> u32 {
        let choice = self.list.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        choice % n
    }

    fn is_spent(&self) -> bool {
        self.at >= self.list.len()
    }
}

/// The bytes of a fuzzer, one or two a choice.
pub struct Bytes<'a>(pub &'a [u8]);

impl Source for Bytes<'_> {
    fn choose(&mut self, n: u32) -> u32 {
        let mut value = 0u32;
        for _ in 0..if n > 256 { 2 } else { 1 } {
            let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
            value = (value << 8) | u32::from(first);
            self.0 = rest;
        }
        value % n
    }

    fn is_spent(&self) -> bool {
        self.0.is_empty()
    }
}

/// All lists of choices, one after another, like the wheels of a counter.
#[derive(Default)]
pub struct Every {
    wheels: Vec<(u32, u32)>,
    at: usize,
}

impl Every {
    /// Turns to the next list; false when all were tried.
    pub fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, n)) = self.wheels.pop() {
            if choice + 1 < n {
                self.wheels.push((choice + 1, n));
                return true;
            }
        }
        false
    }
}

impl Source for Every {
    fn choose(&mut self, n: u32) -> u32 {
        if self.at == self.wheels.len() {
            self.wheels.push((0, n));
        }
        self.at += 1;
        self.wheels[self.at - 1].0
    }
}

/// Writes down what another source chooses.
pub struct Recorder<S> {
    pub source: S,
    pub list: Vec<u32>,
}

impl<S: Source> Recorder<S> {
    pub fn new(source: S) -> Recorder<S> {
        Recorder { source, list: Vec::new() }
    }
}

impl<S: Source> Source for Recorder<S> {
    fn choose(&mut self, n: u32) -> u32 {
        let choice = self.source.choose(n);
        self.list.push(choice);
        choice
    }

    fn is_spent(&self) -> bool {
        self.source.is_spent()
    }
}

/// Makes a failing list shorter and smaller while it keeps failing.
pub fn shrink(list: &[u32], budget: usize, mut fails: impl FnMut(&[u32]) -> bool) -> Vec<u32> {
    let mut best = list.to_vec();
    let mut tries = 0;
    let mut chunk = best.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut improved = false;
        while at < best.len() && tries < budget {
            let mut shorter = best.clone();
            shorter.drain(at..(at + chunk).min(best.len()));
            tries += 1;
            if fails(&shorter) {
                best = shorter;
                improved = true;
            } else {
                at += chunk;
            }
        }
        if chunk == 1 && !improved || tries >= budget {
            break;
        }
        chunk = if improved { chunk } else { (chunk / 2).max(1) };
    }
    for at in 0..best.len() {
        for smaller in [0, best[at] / 2, best[at].saturating_sub(1)] {
            if smaller < best[at] && tries < budget {
                let mut simpler = best.clone();
                simpler[at] = smaller;
                tries += 1;
                if fails(&simpler) {
                    best = simpler;
                }
            }
        }
    }
    best
}
