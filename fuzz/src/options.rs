//! Options from bytes: the edges of every range, and what lies between.

use inorder::config::{Config, Continuity, OnGap, Reopen, Timeout};

use crate::facade::{Flush, Options, Reduce, Tokens};

/// The longest time and the largest number that `createClient` lets through.
const TIMES: [u64; 8] = [0, 1, 10, 100, 1_000, 30_000, 0x7fff_ffff, 5_000];
const COUNTS: [u64; 8] = [1, 2, 3, 16, 1_000, 65_535, 1_000_000, (1 << 53) - 1];

/// The options of a client that sets none, with listeners that are called at once.
pub fn default() -> Options {
    Options::default()
}

/// Whether the client may be expected to keep calm. A wait of next to nothing that was asked for is got.
pub fn is_paced(config: &Config) -> bool {
    let Timeout { connect, subscribe, replay, snapshot, probe, .. } = config.timeout;
    let waits = [connect, subscribe, replay, snapshot, probe, config.reconcile, config.ping.unwrap_or(1_000)];
    config.backoff.min >= 100 && waits.iter().all(|&wait| wait >= 1_000)
}

/// Reads options from the first bytes; the rest is left.
pub fn draw(data: &[u8]) -> (Options, &[u8]) {
    let mut rest = data;
    let mut byte = || {
        let (first, more) = rest.split_first().map_or((0, rest), |(first, more)| (*first, more));
        rest = more;
        first
    };
    let mut options = default();
    let config = &mut options.config;
    // One bit for each option that is set; the others keep their default.
    let set = u32::from_le_bytes([byte(), byte(), byte(), byte()]);
    let is_set = |bit: u32| set & 1 << bit != 0;
    let times = [
        &mut config.gap.grace,
        &mut config.linger,
        &mut config.backoff.min,
        &mut config.backoff.base,
        &mut config.backoff.cap,
        &mut config.backoff.stable,
    ];
    for (bit, time) in (0..).zip(times) {
        if is_set(bit) {
            *time = TIMES[usize::from(byte() % 8)];
        }
    }
    let at_least_one = [
        &mut config.timeout.connect,
        &mut config.timeout.subscribe,
        &mut config.timeout.replay,
        &mut config.timeout.snapshot,
        &mut config.timeout.probe,
        &mut config.timeout.user,
        &mut config.reconcile,
    ];
    for (bit, time) in (6..).zip(at_least_one) {
        if is_set(bit) {
            *time = TIMES[usize::from(byte() % 8)].max(1);
        }
    }
    let mut count = |bit: u32| is_set(bit).then(|| COUNTS[usize::from(byte() % 8)]);
    if let Some(events) = count(13) {
        config.gap.max_events = events.min(1_000_000) as usize;
    }
    if let Some(bytes) = count(14) {
        config.gap.max_bytes = bytes;
    }
    if let Some(tries) = count(15) {
        config.replay_tries = tries.min(255) as u8;
    }
    if let Some(requests) = count(16) {
        config.max_requests = requests.min(65_535) as usize;
    }
    if let Some(frames) = count(17) {
        config.max_bad_frames = frames.min(0x7fff_ffff) as u32;
    }
    if let Some(ahead) = count(18) {
        config.max_ahead = ahead;
    }
    if let Some(ping) = count(19) {
        config.ping = Some(ping.min(0x7fff_ffff));
    }
    if let Some(factor) = count(20) {
        config.backoff.factor = factor.min(100) as u32;
    }
    if is_set(21) {
        config.get_token = true;
        options.tokens = Tokens::Auto;
    }
    if is_set(22) {
        config.codes.stop = vec![1_000, 4_400];
        config.codes.resume = vec![4_009];
    }
    options.flush = [Flush::Sync, Flush::Microtask][usize::from(is_set(23))];
    let model = &mut options.shape.model;
    let bits = byte();
    model.continuity =
        [Continuity::PlusOne, Continuity::Range, Continuity::Prev, Continuity::None][usize::from(bits & 3)];
    model.on_gap = [None, Some(OnGap::Replay), Some(OnGap::Snapshot), Some(OnGap::Skip)][usize::from(bits >> 2 & 3)];
    options.shape.reduce =
        [Reduce::Replace, Reduce::Merge, Reduce::Strict, Reduce::Replace][usize::from(bits >> 4 & 3)];
    if model.on_gap == Some(OnGap::Skip) {
        options.shape.reduce = Reduce::Replace;
    }
    model.overlap_absolute = bits & 0x40 != 0;
    model.replay_whole = bits & 0x80 != 0;
    let bits = byte();
    model.reopen = [Reopen::Never, Reopen::Epoch][usize::from(bits & 1)];
    model.reset_seq = [None, None, Some(1), Some(COUNTS[7])][usize::from(bits >> 1 & 3)];
    model.ids = [32, 0, 1, 65_535][usize::from(bits >> 3 & 3)];
    (options, rest)
}
