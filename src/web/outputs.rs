//! Outputs: what the registers hold after `poll`. `pkg/src/boundary.ts` has the same table.

use super::{NONE, Registers};
use crate::client::{Client, EntityId, Status};
use crate::output::{Kind, NOTHING};
use crate::stats::Stats;
use crate::time::Instant;

fn number(number: u64) -> f64 {
    if number == NOTHING { NONE } else { number as f64 }
}

/// All kinds have their numbers in the same registers, those of an event where inputs have them too.
pub(super) fn write(client: &mut Client<u32>, now: Instant, r: &mut Registers) -> u32 {
    let Some(mut out) = client.poll(now) else { return 0 };
    if out.kind == Kind::Connection && out.from != NOTHING {
        out.from = Instant(out.from).since(now);
    }
    let Status(status) = out.status;
    r[..16].copy_from_slice(&[
        f64::from(out.subject),
        f64::from(out.code),
        f64::from(out.epoch.0),
        out.seq as f64,
        f64::from(status),
        out.payload.map_or(NONE, f64::from),
        out.prev as f64,
        (out.id.0 >> 32) as f64,
        (out.id.0 as u32) as f64,
        0.0,
        f64::from(out.bytes),
        f64::from(u8::from(out.reset)),
        number(out.from),
        number(out.to),
        f64::from(u8::from(out.locks)),
        f64::from(out.request),
    ]);
    out.kind as u32
}

/// Sync, held events, epoch or −1 where it has no position, seq, status.
pub(super) fn read(client: &Client<u32>, entity: EntityId, r: &mut Registers) {
    let position = client.position(entity);
    r[0] = f64::from(client.sync(entity) as u8);
    r[1] = client.held(entity) as f64;
    r[2] = position.map_or(NONE, |position| f64::from(position.epoch.0));
    r[3] = position.map_or(NONE, |position| position.seq as f64);
    r[4] = f64::from(client.status(entity).0);
}

/// The counters, in the order of their struct.
pub(super) fn counters(stats: &Stats, r: &mut Registers) {
    for (register, &counter) in r.iter_mut().zip(stats.list()) {
        *register = counter as f64;
    }
}
