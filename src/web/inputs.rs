//! Inputs: what the registers hold when `handle` is called. `pkg/src/boundary.ts` has the same table.

use super::{REGISTERS, Registers};
use crate::client::{
    Can, Client, CloseClass, EntityId, Epoch, ErrorCode, Event, EventId, Position, Request, Seq, Snapshot, Status,
};
use crate::time::Instant;

/// Negative numbers and NaN stand for nothing.
fn maybe(number: f64) -> Option<u64> {
    (number >= 0.0).then_some(number as u64)
}

/// What is about an entity has its numbers in the same registers: 0 entity, 1 request, 2 epoch, 3 seq, head or from,
/// 4 status or to, 5 slot, 6 prev, 7 and 8 the halves of the id, 9 whether it has data, 10 bytes.
pub(super) fn handle(client: &mut Client<u32>, input: u32, r: &mut Registers) -> u32 {
    let now = Instant(0); // the client knows it already
    let first = r[0] as u32;
    let entity = EntityId(first);
    let second = r[1] as u32;
    let request = maybe(r[1]).map(|request| request as Request);
    // An answer to a request that does not exist is nobody's: no request has this number.
    let asked = request.unwrap_or(Request::MAX);
    let epoch = Epoch(r[2] as u32);
    let seq = r[3] as Seq;
    let status = Status(r[4] as u32);
    let slot = r[5] as u32;
    let event = Event {
        epoch,
        prev: maybe(r[6]),
        seq: maybe(r[3]),
        id: EventId(u64::from(r[7] as u32) << 32 | u64::from(r[8] as u32)),
        status,
        has_data: r[9] != 0.0,
        bytes: r[10] as u32,
    };
    match input {
        1 => client.connect(now),
        2 => client.close(now),
        3 => client.subscribe(now, entity),
        4 => client.unsubscribe(now, entity),
        5 => client.release(now, entity),
        6 => client.add_member(now, entity, EntityId(second)),
        7 => client.remove_member(now, entity, EntityId(second)),
        8 => client.handle_opened(now, first),
        9 => {
            let class = match second {
                1 => CloseClass::Anew,
                2 => CloseClass::Auth,
                3 => CloseClass::Stop,
                4 => CloseClass::Normal,
                _ => CloseClass::Resume,
            };
            client.handle_ended(now, first, class);
        }
        10 => client.handle_heard(now),
        11 => {
            let can = Can { replay: r[1] != 0.0, snapshot: r[2] != 0.0, heads: r[3] != 0.0 };
            client.handle_welcome(now, maybe(r[0]), can);
        }
        12 => client.handle_event(now, entity, event, slot),
        13 => client.handle_vacant(now, entity, epoch, seq, r[4] as Seq),
        14 => client.handle_snapshot(now, entity, Snapshot { request, epoch, seq, status }, slot),
        15 => return client.handle_part(now, entity, request).into(),
        16 => client.handle_subscribed(now, entity, asked, epoch, seq),
        17 => return client.begin_replay(now, entity, asked).into(),
        18 => client.end_replay(now, entity, asked, r[3] != 0.0),
        19 => client.handle_gone(now, entity, asked),
        20 => client.handle_ahead(now, entity, asked, epoch, seq),
        21 => client.handle_final(now, entity, asked, epoch, status, Some(slot)),
        22 => client.handle_head(now, entity, epoch, seq, request),
        23 => client.end_heads(now, asked),
        24 => client.handle_cursor(now, entity),
        25 => client.handle_discontinuity(now, maybe(r[0]).map(|_| entity)),
        26 => {
            let code = match r[2] as u32 {
                0 => ErrorCode::Forbidden,
                1 => ErrorCode::NotFound,
                2 => ErrorCode::TokenExpiring,
                _ => ErrorCode::Other,
            };
            client.handle_error(now, code, request, maybe(r[0]).map(|_| entity), maybe(r[3]));
        }
        27 => client.handle_goodbye(now, maybe(r[0])),
        28 => client.handle_pong(now, first),
        29 => client.handle_count(now, r[0] as u64),
        30 => client.handle_bad_frame(now),
        31 => client.handle_unknown(),
        32 => client.handle_token(now, first, second != 0),
        33 => client.handle_wake(now),
        34 | 38 => client.handle_visible(now),
        35 => client.handle_online(now),
        36 => client.handle_offline(now),
        37 => client.handle_pagehide(now),
        39 => client.handle_timeout(now),
        40 => client.lock(now, entity),
        41 => client.rollback(now, entity, maybe(r[5]).map(|_| (event, slot))),
        42 => {
            let position = maybe(r[2]).map(|_| Position { epoch, seq });
            client.restore(now, entity, position, status, slot != 0);
        }
        43 => {
            let epochs = client.epochs_in_use();
            let rest = epochs.get(first as usize..).unwrap_or_default();
            for (register, epoch) in r.iter_mut().zip(rest).take(REGISTERS) {
                *register = f64::from(epoch.0);
            }
            return rest.len() as u32;
        }
        _ => {}
    }
    0
}
