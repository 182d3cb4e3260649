//! Outputs: what the registers hold after `poll`. `pkg/src/boundary.ts` has the same table.

use super::{Driver, NONE, Registers};
use crate::client::{Client, Command, EntityId, Output, Position};
use crate::stats::Stats;
use crate::time::Instant;

pub(super) fn write(driver: &mut Driver, now: Instant, r: &mut Registers) -> u32 {
    let Some(output) = driver.client.poll_output(now) else { return 0 };
    let (kind, first, second, third) = match output {
        Output::Change(change) => {
            let (from, to) = change.skipped.map_or((NONE, NONE), |(from, to)| (from as f64, to as f64));
            r[1] = f64::from(change.kind as u8);
            r[2] = f64::from(change.epoch.0);
            r[3] = change.seq as f64;
            r[4] = f64::from(change.status.0);
            r[5] = change.payload.map_or(NONE, f64::from);
            r[6] = change.prev as f64;
            r[7] = (change.id.0 >> 32) as f64;
            r[8] = (change.id.0 as u32) as f64;
            r[10] = f64::from(change.bytes);
            r[11] = f64::from(u8::from(change.reset));
            r[12] = from;
            r[13] = to;
            r[14] = f64::from(u8::from(change.locks));
            r[0] = f64::from(change.entity.0);
            return 1;
        }
        Output::Discard(slot) => (2, slot, 0, 0),
        Output::Sync { entity, sync } => (3, entity.0, sync as u32, 0),
        Output::Gap { entity, from, to } => {
            r[1] = from as f64;
            r[2] = to as f64;
            r[0] = f64::from(entity.0);
            return 4;
        }
        Output::Final { entity } => (5, entity.0, 0, 0),
        Output::Fault { entity, fault } => {
            r[1] = f64::from(fault as u8);
            r[0] = entity.map_or(NONE, |entity| f64::from(entity.0));
            return 6;
        }
        Output::Forgotten { entity } => (7, entity.0, 0, 0),
        Output::Connection(state) => {
            r[1] = driver.client.retry_at().map_or(NONE, |at| at.since(now) as f64);
            r[0] = f64::from(state as u8);
            return 8;
        }
        Output::Dial { generation } => (9, generation, 0, 0),
        Output::Close { generation, code } => (10, generation, u32::from(code), 0),
        Output::GetToken { id, attempt } => (11, id, attempt, 0),
        Output::CancelToken { id } => (12, id, 0, 0),
        Output::Send(command) => {
            let (kind, request) = flatten(&command, &mut driver.command);
            r[3] = driver.command.len() as f64;
            (13, kind, request, driver.command.as_ptr() as usize as u32)
        }
    };
    r[0] = f64::from(first);
    r[1] = f64::from(second);
    r[2] = f64::from(third);
    kind
}

/// Writes a command's numbers into `list` and returns its kind and its request or ping id.
///
/// `subscribe`, for each entity: entity, epoch or −1, seq, whether to add the cursor, how many are behind, then for
/// each of those entity, epoch or −1, seq. `replay`, for each range: entity, epoch, from, to or −1. Others: entities.
fn flatten(command: &Command, list: &mut Vec<f64>) -> (u32, u32) {
    list.clear();
    let (kind, request, entities) = match command {
        Command::Hello => return (0, 0),
        Command::Auth => return (1, 0),
        Command::Subscribe { request, entities } => {
            for resume in entities {
                place(list, resume.entity, resume.position);
                list.push(f64::from(u8::from(resume.cursor)));
                list.push(resume.behind.len() as f64);
                resume.behind.iter().for_each(|&(member, position)| place(list, member, position));
            }
            return (2, *request);
        }
        Command::Replay { request, ranges } => {
            for range in ranges {
                place(list, range.entity, Some(Position { epoch: range.epoch, seq: range.from }));
                list.push(range.to.map_or(NONE, |to| to as f64));
            }
            return (4, *request);
        }
        Command::Ping { id } => return (7, *id),
        Command::Unsubscribe { entities } => (3, 0, entities),
        Command::Snapshot { request, entities } => (5, *request, entities),
        Command::Heads { request, entities } => (6, *request, entities),
    };
    for entity in entities {
        list.push(f64::from(entity.0));
    }
    (kind, request)
}

#[inline(never)]
fn place(list: &mut Vec<f64>, entity: EntityId, position: Option<Position>) {
    let (epoch, seq) = position.map_or((NONE, NONE), |position| (f64::from(position.epoch.0), position.seq as f64));
    list.push(f64::from(entity.0));
    list.push(epoch);
    list.push(seq);
}

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
    let counters = [
        stats.applied,
        stats.adopted,
        stats.duplicates,
        stats.silent,
        stats.held,
        stats.overflowed,
        stats.gaps,
        stats.replays,
        stats.snapshots,
        stats.stale,
        stats.after_final,
        stats.retired,
        stats.diverged,
        stats.resets,
        stats.bad_frames,
        stats.unknown,
        stats.unwanted,
        stats.dials,
        stats.replaced,
    ];
    for (register, counter) in r.iter_mut().zip(counters) {
        *register = counter as f64;
    }
}
