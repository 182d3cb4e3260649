//! Inputs: what the registers hold when `handle` is called. `pkg/src/boundary.ts` has the same table.
//!
//! What is about an entity has one layout: entity, request, epoch, seq (or head, or from), status (or to), slot, prev,
//! id (two halves), whether it has data, bytes. Changes come out the same way.

use super::{REGISTERS, Registers};
use crate::client::{
    Can, Client, CloseClass, EntityId, Epoch, ErrorCode, Event, EventId, Position, Seq, Snapshot, Status,
};
use crate::time::Instant;

/// Negative numbers and NaN stand for nothing.
fn maybe(number: f64) -> Option<u64> {
    (number >= 0.0).then_some(number as u64)
}

pub(super) fn handle(client: &mut Client<u32>, input: u32, now: Instant, r: &mut Registers) -> u32 {
    let index = |at: usize| r[at] as u32;
    let seq = |at: usize| r[at] as Seq;
    let entity = EntityId(index(0));
    let request = maybe(r[1]).map(|request| request as u32);
    // An answer to a request that does not exist is nobody's: no request has this number.
    let asked = request.unwrap_or(u32::MAX);
    let epoch = Epoch(index(2));
    let status = Status(index(4));
    match input {
        1 => client.connect(now),
        2 => client.close(now),
        3 => client.subscribe(now, entity),
        4 => client.unsubscribe(now, entity),
        5 => client.release(now, entity),
        6 => client.add_member(now, entity, EntityId(index(1))),
        7 => client.remove_member(now, entity, EntityId(index(1))),
        8 => client.handle_opened(now, index(0)),
        9 => {
            let class = match index(1) {
                1 => CloseClass::Anew,
                2 => CloseClass::Auth,
                3 => CloseClass::Stop,
                4 => CloseClass::Normal,
                _ => CloseClass::Resume,
            };
            client.handle_ended(now, index(0), class);
        }
        10 => client.handle_heard(now),
        11 => {
            let can = Can { replay: r[1] != 0.0, snapshot: r[2] != 0.0, heads: r[3] != 0.0 };
            client.handle_welcome(now, maybe(r[0]), can);
        }
        12 => client.handle_event(now, entity, event(r), index(5)),
        13 => client.handle_vacant(now, entity, epoch, seq(3), seq(4)),
        14 => {
            let snapshot = Snapshot { request, epoch, seq: seq(3), status };
            client.handle_snapshot(now, entity, snapshot, index(5));
        }
        15 => return client.handle_part(now, entity, request).into(),
        16 => client.handle_subscribed(now, entity, asked, epoch, seq(3)),
        17 => return client.begin_replay(now, entity, asked).into(),
        18 => client.end_replay(now, entity, asked, r[3] != 0.0),
        19 => client.handle_gone(now, entity, asked),
        20 => client.handle_ahead(now, entity, asked, epoch, seq(3)),
        21 => client.handle_final(now, entity, asked, epoch, status, Some(index(5))),
        22 => client.handle_head(now, entity, epoch, seq(3), request),
        23 => client.end_heads(now, asked),
        24 => client.handle_cursor(now, entity),
        25 => client.handle_discontinuity(now, maybe(r[0]).map(|_| entity)),
        26 => {
            let code = match index(2) {
                0 => ErrorCode::Forbidden,
                1 => ErrorCode::NotFound,
                2 => ErrorCode::TokenExpiring,
                _ => ErrorCode::Other,
            };
            client.handle_error(now, code, request, maybe(r[0]).map(|_| entity), maybe(r[3]));
        }
        27 => client.handle_goodbye(now, maybe(r[0])),
        28 => client.handle_pong(now, index(0)),
        29 => client.handle_count(now, seq(0)),
        30 => client.handle_bad_frame(now),
        31 => client.handle_unknown(),
        32 => client.handle_token(now, index(0), r[1] != 0.0),
        33 => client.handle_wake(now),
        34 => client.handle_visible(now),
        35 => client.handle_online(now),
        36 => client.handle_offline(now),
        37 => client.handle_pagehide(now),
        38 => client.handle_pageshow(now),
        39 => client.handle_timeout(now),
        40 => client.lock(now, entity),
        41 => client.rollback(now, entity, maybe(r[5]).map(|slot| (event(r), slot as u32))),
        42 => {
            let position = maybe(r[2]).map(|_| Position { epoch, seq: seq(3) });
            client.restore(now, entity, position, status, r[5] != 0.0);
        }
        43 => {
            let epochs = client.epochs_in_use();
            let rest = epochs.get(index(0) as usize..).unwrap_or_default();
            for (register, epoch) in r.iter_mut().zip(rest).take(REGISTERS) {
                *register = f64::from(epoch.0);
            }
            return rest.len() as u32;
        }
        _ => {}
    }
    0
}

fn event(r: &Registers) -> Event {
    Event {
        epoch: Epoch(r[2] as u32),
        prev: maybe(r[6]),
        seq: maybe(r[3]),
        id: EventId(u64::from(r[7] as u32) << 32 | u64::from(r[8] as u32)),
        status: Status(r[4] as u32),
        has_data: r[9] != 0.0,
        bytes: r[10] as u32,
    }
}
