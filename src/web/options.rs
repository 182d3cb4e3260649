//! Options from the registers, in the order of `pkg/src/client/options.ts`, which has checked them and knows the defaults.
//!
//! Lists of close codes are not among them: the facade tells the class of a close, not its code.

use super::Registers;
use crate::config::{Backoff, Config, Continuity, GapLimits, Model, OnGap, Reopen, Timeout};

pub(super) fn config(r: &Registers, config: &mut Config) {
    let time = |at: usize| r[at] as u64;
    config.timeout = Timeout {
        connect: time(0),
        subscribe: time(1),
        replay: time(2),
        snapshot: time(3),
        probe: time(4),
        user: time(5),
    };
    config.backoff = Backoff { min: time(6), base: time(7), factor: time(8) as u32, cap: time(9), stable: time(10) };
    config.gap = GapLimits { grace: time(11), max_events: time(12) as usize, max_bytes: time(13) };
    config.replay_tries = time(14) as u8;
    config.max_requests = time(15) as usize;
    config.max_bad_frames = time(16) as u32;
    config.max_ahead = time(17);
    config.linger = time(18);
    config.ping = (r[19] >= 0.0).then_some(time(19));
    config.reconcile = time(20);
    config.get_token = r[21] != 0.0;
}

pub(super) fn model(r: &Registers) -> Model {
    Model {
        continuity: match r[0] as u32 {
            1 => Continuity::Range,
            2 => Continuity::Prev,
            3 => Continuity::None,
            _ => Continuity::PlusOne,
        },
        on_gap: Some(match r[1] as u32 {
            1 => OnGap::Snapshot,
            2 => OnGap::Skip,
            _ => OnGap::Replay,
        }),
        overlap_absolute: r[2] != 0.0,
        reopen: if r[3] != 0.0 { Reopen::Epoch } else { Reopen::Never },
        reset_seq: (r[4] >= 0.0).then_some(r[4] as u64),
        ids: r[5] as u16,
        replay_whole: r[6] != 0.0,
        topic: r[7] != 0.0,
    }
}
