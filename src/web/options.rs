//! Options from the registers, in the order of `pkg/src/options.ts`, which has checked them and knows the defaults.

use super::Registers;
use crate::config::{Backoff, Codes, Config, Continuity, GapLimits, Model, OnGap, Reopen, Timeout};

pub(super) fn config(r: &Registers) -> Config {
    let time = |at: usize| r[at] as u64;
    Config {
        timeout: Timeout {
            connect: time(0),
            subscribe: time(1),
            replay: time(2),
            snapshot: time(3),
            probe: time(4),
            user: time(5),
        },
        backoff: Backoff { min: time(6), base: time(7), factor: time(8) as u32, cap: time(9), stable: time(10) },
        // The facade tells the class of a close, not its code.
        codes: Codes::NONE,
        gap: GapLimits { grace: time(11), max_events: time(12) as usize, max_bytes: time(13) },
        replay_tries: time(14) as u8,
        max_requests: time(15) as usize,
        max_bad_frames: time(16) as u32,
        max_ahead: time(17),
        linger: time(18),
        ping: (r[19] >= 0.0).then_some(time(19)),
        reconcile: time(20),
        get_token: r[21] != 0.0,
    }
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
