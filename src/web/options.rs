//! Options from the registers, in the order of `pkg/src/options.ts`, which has checked them. NaN means the default.

use super::numbers::number;
use crate::config::{Config, Continuity, Model, OnGap, Reopen};

/// Reads registers one after the other.
struct Reader {
    at: usize,
}

impl Reader {
    fn next(&mut self) -> Option<f64> {
        let number = number(self.at);
        self.at += 1;
        (!number.is_nan()).then_some(number)
    }

    fn read(&mut self, into: &mut u64) {
        if let Some(number) = self.next() {
            *into = number as u64;
        }
    }

    fn codes(&mut self, into: &mut Vec<u16>) {
        if let Some(count) = self.next() {
            *into = (0..count as u32).filter_map(|_| self.next()).map(|code| code as u16).collect();
        }
    }
}

pub(super) fn config() -> Config {
    let mut config = Config::default();
    let mut reader = Reader { at: 0 };
    let timeout = &mut config.timeout;
    for time in [
        &mut timeout.connect,
        &mut timeout.subscribe,
        &mut timeout.replay,
        &mut timeout.snapshot,
        &mut timeout.probe,
        &mut timeout.user,
    ] {
        reader.read(time);
    }
    reader.read(&mut config.backoff.min);
    reader.read(&mut config.backoff.base);
    if let Some(factor) = reader.next() {
        config.backoff.factor = factor as u32;
    }
    reader.read(&mut config.backoff.cap);
    reader.read(&mut config.backoff.stable);
    reader.read(&mut config.gap.grace);
    if let Some(events) = reader.next() {
        config.gap.max_events = events as usize;
    }
    reader.read(&mut config.gap.max_bytes);
    if let Some(tries) = reader.next() {
        config.replay_tries = tries as u8;
    }
    if let Some(requests) = reader.next() {
        config.max_requests = requests as usize;
    }
    if let Some(frames) = reader.next() {
        config.max_bad_frames = frames as u32;
    }
    reader.read(&mut config.max_ahead);
    reader.read(&mut config.linger);
    config.ping = reader.next().map(|interval| interval as u64);
    reader.read(&mut config.reconcile);
    config.get_token = reader.next() == Some(1.0);
    reader.codes(&mut config.codes.resume);
    reader.codes(&mut config.codes.anew);
    reader.codes(&mut config.codes.auth);
    reader.codes(&mut config.codes.stop);
    config
}

pub(super) fn model() -> Model {
    let mut model = Model::default();
    let mut reader = Reader { at: 0 };
    model.continuity = match reader.next() {
        Some(1.0) => Continuity::Range,
        Some(2.0) => Continuity::Prev,
        Some(3.0) => Continuity::None,
        _ => Continuity::PlusOne,
    };
    model.on_gap = reader.next().map(|on_gap| match on_gap {
        1.0 => OnGap::Snapshot,
        2.0 => OnGap::Skip,
        _ => OnGap::Replay,
    });
    model.overlap_absolute = reader.next().is_some();
    if reader.next() == Some(1.0) {
        model.reopen = Reopen::Epoch;
    }
    model.reset_seq = reader.next().map(|seq| seq as u64);
    if let Some(ids) = reader.next() {
        model.ids = ids as u16;
    }
    model.replay_whole = reader.next().is_some();
    model.topic = reader.next().is_some();
    model
}
