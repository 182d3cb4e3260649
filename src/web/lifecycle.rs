//! What the page tells: that it is seen, frozen, online. On servers and in workers there is no window, and nothing
//! is listened to.

use js_sys::Function;
use wasm_bindgen::JsCast;
use web_sys::{EventTarget, Window};

use super::{Single, Table, slot};

static CALLBACKS: Single<Table<Function>> = Single::new(Vec::new());

/// Has `callback` called with every event of the page that matters.
pub(super) fn attach(client: u32, callback: Function) {
    listen(&callback, true);
    *slot(&mut CALLBACKS.borrow(), client) = Some(callback);
}

pub(super) fn detach(client: u32) {
    let callback = slot(&mut CALLBACKS.borrow(), client).take();
    if let Some(callback) = callback {
        listen(&callback, false);
    }
}

/// Adds the function to all events of the page, or takes it off.
fn listen(callback: &Function, on: bool) {
    let Ok(window) = js_sys::global().dyn_into::<Window>() else { return };
    let set = |target: &EventTarget, name: &str| {
        // Neither can fail for a name and a function.
        let _ = if on {
            target.add_event_listener_with_callback(name, callback)
        } else {
            target.remove_event_listener_with_callback(name, callback)
        };
    };
    for name in ["online", "offline", "pagehide", "pageshow"] {
        set(&window, name);
    }
    if let Some(document) = window.document() {
        for name in ["visibilitychange", "resume"] {
            set(&document, name);
        }
    }
}
