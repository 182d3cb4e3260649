//! The one timer of a client. It calls a function of the facade, where traps are caught.

use js_sys::Function;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::{Single, Table, slot};
use crate::time::Instant;

#[wasm_bindgen]
extern "C" {
    // Browsers answer with a number, servers with an object.
    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(callback: &Function, ms: i32) -> JsValue;
    #[wasm_bindgen(js_name = clearTimeout)]
    fn clear_timeout(timer: &JsValue);
}

struct Timer {
    callback: Function,
    armed: Option<(Instant, JsValue)>,
}

static TIMERS: Single<Table<Timer>> = Single::new(Vec::new());

/// Remembers what the timer calls when it is due.
pub(super) fn attach(client: u32, callback: Function) {
    *slot(&mut TIMERS.borrow(), client) = Some(Timer { callback, armed: None });
}

/// Arms the timer for `due`, unless it is already.
pub(super) fn set(client: u32, due: Option<Instant>, now: Instant) {
    let mut timers = TIMERS.borrow();
    let Some(timer) = slot(&mut timers, client) else { return };
    // One that is due has fired, or is about to: a page that slept fires late, not never.
    if timer.armed.as_ref().map(|(at, _)| *at) == due && due.is_none_or(|due| due > now) {
        return;
    }
    clear(timer);
    timer.armed = due.map(|due| {
        let wait = i32::try_from(due.since(now)).unwrap_or(i32::MAX);
        (due, set_timeout(&timer.callback, wait))
    });
}

fn clear(timer: &mut Timer) {
    if let Some((_, id)) = timer.armed.take() {
        clear_timeout(&id);
    }
}

pub(super) fn detach(client: u32) {
    if let Some(mut timer) = slot(&mut TIMERS.borrow(), client).take() {
        clear(&mut timer);
    }
}
