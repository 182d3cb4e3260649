//! What the page tells: that it is seen, frozen, online. On servers and in workers there is no window, and nothing
//! is listened to.

use gloo_events::EventListener;
use js_sys::Function;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::{Single, Table, slot};

static LISTENERS: Single<Table<Vec<EventListener>>> = Single::new(Vec::new());

/// Has `callback` called with every event of the page that matters.
#[wasm_bindgen]
pub fn attach_page(client: u32, callback: &Function) {
    let Some(window) = web_sys::window() else { return };
    let listen = |target: &web_sys::EventTarget, names: &[&'static str]| -> Vec<EventListener> {
        let each = |&name: &&'static str| {
            let callback = callback.clone();
            // The closure only calls the facade, where traps are caught.
            EventListener::new(target, name, move |event| drop(callback.call1(&JsValue::UNDEFINED, event)))
        };
        names.iter().map(each).collect()
    };
    let mut listeners = listen(&window, &["online", "offline", "pagehide", "pageshow"]);
    if let Some(document) = window.document() {
        listeners.extend(listen(&document, &["visibilitychange", "resume"]));
    }
    *slot(&mut LISTENERS.borrow(), client) = Some(listeners);
}

pub(super) fn detach(client: u32) {
    let listeners = slot(&mut LISTENERS.borrow(), client).take();
    drop(listeners);
}
