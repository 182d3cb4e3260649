//! The one timer of a client.

use gloo_timers::callback::Timeout;
use js_sys::Function;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::{Single, Table, slot};
use crate::time::Instant;

struct Timer {
    callback: Function,
    armed: Option<(Instant, Timeout)>,
}

static TIMERS: Single<Table<Timer>> = Single::new(Vec::new());

/// What the timer calls when it is due.
#[wasm_bindgen]
pub fn on_timer(client: u32, callback: Function) {
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
    let callback = timer.callback.clone();
    timer.armed = due.map(|due| {
        let wait = u32::try_from(due.since(now)).unwrap_or(u32::MAX).min(i32::MAX as u32);
        // The closure only calls the facade, where traps are caught.
        (due, Timeout::new(wait, move || drop(callback.call0(&JsValue::UNDEFINED))))
    });
}

pub(super) fn forget(client: u32) {
    let timer = slot(&mut TIMERS.borrow(), client).take();
    drop(timer);
}
