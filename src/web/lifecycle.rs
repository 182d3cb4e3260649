//! What the page tells: that it is seen, frozen, online.

use js_sys::Function;
use web_sys::{EventTarget, Window};

use super::{Single, Table, slot};

static PAGES: Single<Table<(Window, Function)>> = Single::new(Vec::new());

/// Has `callback` called with every event of the page that matters.
pub(super) fn attach(client: u32, window: Window, callback: Function) {
    listen(&window, &callback, true);
    *slot(&mut PAGES.borrow(), client) = Some((window, callback));
}

pub(super) fn detach(client: u32) {
    let page = slot(&mut PAGES.borrow(), client).take();
    if let Some((window, callback)) = page {
        listen(&window, &callback, false);
    }
}

/// Adds the function to all events of the page, or takes it off.
fn listen(window: &Window, callback: &Function, on: bool) {
    let set = |target: &EventTarget, name: &str| {
        // Neither can fail for a name and a function.
        let _ = if on {
            target.add_event_listener_with_callback(name, callback)
        } else {
            target.remove_event_listener_with_callback(name, callback)
        };
    };
    for name in ["online", "offline", "pagehide", "pageshow"] {
        set(window, name);
    }
    if let Some(document) = window.document() {
        for name in ["visibilitychange", "resume"] {
            set(&document, name);
        }
    }
}
