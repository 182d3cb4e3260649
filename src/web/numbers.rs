//! What crosses the boundary: inputs and outputs as numbers in registers. `pkg/src/boundary.ts` has the same tables.

use super::{Driver, Single, commands};
use crate::client::{
    Can, Change, Client, EntityId, Epoch, ErrorCode, Event, EventId, Output, Position, Seq, Snapshot, Status,
};
use crate::stats::Stats;
use crate::time::Instant;

/// Registers. The widest use is a client's options with four lists of 32 close codes.
pub(super) const COUNT: usize = 192;

/// "None" in a register.
pub(super) const NONE: f64 = -1.0;

static REGISTERS: Single<[f64; COUNT]> = Single::new([0.0; COUNT]);

pub(super) fn address() -> *const f64 {
    REGISTERS.borrow().as_ptr()
}

pub(super) fn number(at: usize) -> f64 {
    REGISTERS.borrow().get(at).map_or(NONE, |&number| number)
}

fn set(at: usize, number: f64) {
    if let Some(register) = REGISTERS.borrow().get_mut(at) {
        *register = number;
    }
}

fn set_all<const N: usize>(numbers: [f64; N]) {
    for (at, number) in numbers.into_iter().enumerate() {
        set(at, number);
    }
}

fn index(at: usize) -> u32 {
    number(at) as u32
}

fn seq(at: usize) -> Seq {
    number(at) as Seq
}

/// Negative numbers and NaN stand for nothing.
fn maybe(at: usize) -> Option<u64> {
    let number = number(at);
    (number >= 0.0).then_some(number as u64)
}

fn entity(at: usize) -> EntityId {
    EntityId(index(at))
}

fn epoch(at: usize) -> Epoch {
    Epoch(index(at))
}

fn status(at: usize) -> Status {
    Status(index(at))
}

fn request(at: usize) -> Option<u32> {
    maybe(at).and_then(|request| u32::try_from(request).ok())
}

/// An event in registers: entity, epoch, prev, seq, id (two halves), status, whether it has data, bytes, slot.
fn event() -> (Event, u32) {
    let event = Event {
        epoch: epoch(1),
        prev: maybe(2),
        seq: maybe(3),
        id: EventId(u64::from(index(4)) << 32 | u64::from(index(5))),
        status: status(6),
        has_data: index(7) != 0,
        bytes: index(8),
    };
    (event, index(9))
}

pub(super) fn handle(client: &mut Client<u32>, input: u32, now: Instant) -> u32 {
    // An answer to a request that does not exist is nobody's: no request has this number.
    let asked = request(1).unwrap_or(u32::MAX);
    match input {
        1 => client.connect(now),
        2 => client.close(now),
        3 => client.subscribe(now, entity(0)),
        4 => client.unsubscribe(now, entity(0)),
        5 => client.release(now, entity(0)),
        6 => client.add_member(now, entity(0), entity(1)),
        7 => client.remove_member(now, entity(0), entity(1)),
        8 => client.handle_opened(now, index(0)),
        9 => client.handle_closed(now, index(0), number(1) as u16),
        10 => client.handle_heard(now),
        11 => {
            let can = Can { replay: index(1) != 0, snapshot: index(2) != 0, heads: index(3) != 0 };
            client.handle_welcome(now, maybe(0), can);
        }
        12 => {
            let (event, slot) = event();
            client.handle_event(now, entity(0), event, slot);
        }
        13 => client.handle_vacant(now, entity(0), epoch(1), seq(2), seq(3)),
        14 => {
            let snapshot = Snapshot { request: request(1), epoch: epoch(2), seq: seq(3), status: status(4) };
            client.handle_snapshot(now, entity(0), snapshot, index(5));
        }
        15 => return client.handle_part(now, entity(0), request(1)).into(),
        16 => client.handle_subscribed(now, entity(0), asked, epoch(2), seq(3)),
        17 => return client.begin_replay(now, entity(0), asked).into(),
        18 => client.end_replay(now, entity(0), asked, index(2) != 0),
        19 => client.handle_gone(now, entity(0), asked),
        20 => client.handle_ahead(now, entity(0), asked, epoch(2), seq(3)),
        21 => client.handle_final(now, entity(0), asked, epoch(2), status(3), Some(index(4))),
        22 => client.handle_head(now, entity(0), epoch(1), seq(2), request(3)),
        23 => client.end_heads(now, index(0)),
        24 => client.handle_cursor(now, entity(0)),
        25 => client.handle_discontinuity(now, maybe(0).map(|_| entity(0))),
        26 => {
            let code = match index(0) {
                0 => ErrorCode::Forbidden,
                1 => ErrorCode::NotFound,
                2 => ErrorCode::TokenExpiring,
                _ => ErrorCode::Other,
            };
            client.handle_error(now, code, request(1), maybe(2).map(|_| entity(2)), maybe(3));
        }
        27 => client.handle_goodbye(now, maybe(0)),
        28 => client.handle_pong(now, index(0)),
        29 => client.handle_count(now, seq(0)),
        30 => client.handle_bad_frame(now),
        31 => client.handle_unknown(),
        32 => client.handle_token(now, index(0), index(1) != 0),
        33 => client.handle_wake(now),
        34 => client.handle_visible(now),
        35 => client.handle_online(now),
        36 => client.handle_offline(now),
        37 => client.handle_pagehide(now),
        38 => client.handle_pageshow(now),
        39 => client.handle_timeout(now),
        40 => client.lock(now, entity(0)),
        41 => {
            let (event, slot) = event();
            client.rollback(now, entity(0), maybe(9).map(|_| (event, slot)));
        }
        42 => {
            let position = maybe(1).map(|_| Position { epoch: epoch(1), seq: seq(2) });
            client.restore(now, entity(0), position, status(3), index(4) != 0);
        }
        43 => {
            let epochs = client.epochs_in_use();
            let from = index(0) as usize;
            let rest = epochs.get(from..).unwrap_or_default();
            for (at, epoch) in rest.iter().take(COUNT).enumerate() {
                set(at, f64::from(epoch.0));
            }
            return rest.len() as u32;
        }
        _ => {}
    }
    0
}

pub(super) fn read(client: &Client<u32>, entity: EntityId) {
    let position = client.position(entity);
    set_all([
        f64::from(client.sync(entity) as u8),
        client.held(entity) as f64,
        if position.is_some() { 1.0 } else { 0.0 },
        position.map_or(NONE, |position| f64::from(position.epoch.0)),
        position.map_or(NONE, |position| position.seq as f64),
        f64::from(client.status(entity).0),
    ]);
}

pub(super) fn write(driver: &mut Driver, output: Output<u32>, now: Instant) -> u32 {
    match output {
        Output::Change(change) => write_change(&change),
        Output::Discard(slot) => {
            set(0, f64::from(slot));
            2
        }
        Output::Sync { entity, sync } => {
            set_all([f64::from(entity.0), f64::from(sync as u8)]);
            3
        }
        Output::Gap { entity, from, to } => {
            set_all([f64::from(entity.0), from as f64, to as f64]);
            4
        }
        Output::Final { entity } => {
            set(0, f64::from(entity.0));
            5
        }
        Output::Fault { entity, fault } => {
            set_all([entity.map_or(NONE, |entity| f64::from(entity.0)), f64::from(fault as u8)]);
            6
        }
        Output::Forgotten { entity } => {
            set(0, f64::from(entity.0));
            7
        }
        Output::Connection(state) => {
            let wait = driver.client.retry_at().map_or(NONE, |at| at.since(now) as f64);
            set_all([f64::from(state as u8), wait]);
            8
        }
        Output::Dial { generation } => {
            set(0, f64::from(generation));
            9
        }
        Output::Close { generation, code } => {
            set_all([f64::from(generation), f64::from(code)]);
            10
        }
        Output::GetToken { id, attempt } => {
            set_all([f64::from(id), f64::from(attempt)]);
            11
        }
        Output::CancelToken { id } => {
            set(0, f64::from(id));
            12
        }
        Output::Send(command) => {
            let (kind, request) = commands::flatten(&command, &mut driver.command);
            set_all([
                f64::from(kind),
                f64::from(request),
                driver.command.as_ptr() as usize as f64,
                driver.command.len() as f64,
            ]);
            13
        }
    }
}

/// The counters, in the order of their struct.
pub(super) fn counters(stats: &Stats) -> [f64; 19] {
    [
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
    ]
    .map(|counter| counter as f64)
}

fn write_change(change: &Change<u32>) -> u32 {
    let (from, to) = change.skipped.map_or((NONE, NONE), |(from, to)| (from as f64, to as f64));
    set_all([
        f64::from(change.entity.0),
        f64::from(change.kind as u8),
        f64::from(change.epoch.0),
        change.prev as f64,
        change.seq as f64,
        f64::from(change.status.0),
        f64::from(u8::from(change.reset)),
        from,
        to,
        f64::from(u8::from(change.locks)),
        change.payload.map_or(NONE, f64::from),
        (change.id.0 >> 32) as f64,
        (change.id.0 as u32) as f64,
        f64::from(change.bytes),
    ]);
    1
}
