//! The one socket of a client. Its events go to functions of the facade; a message is never looked at here.

use js_sys::Function;
use wasm_bindgen::prelude::wasm_bindgen;
use web_sys::{BinaryType, WebSocket};

use super::{Single, Table, slot};

static SOCKETS: Single<Table<WebSocket>> = Single::new(Vec::new());

/// Attaches the handlers to a socket that the facade has made; the one before must have been closed.
///
/// `onerror` does nothing, but must be there: some classes throw errors that nobody listens to.
#[wasm_bindgen]
pub fn open_socket(
    client: u32,
    socket: WebSocket,
    onopen: &Function,
    onmessage: &Function,
    onclose: &Function,
    onerror: &Function,
) {
    socket.set_binary_type(BinaryType::Arraybuffer);
    socket.set_onopen(Some(onopen));
    socket.set_onmessage(Some(onmessage));
    socket.set_onclose(Some(onclose));
    socket.set_onerror(Some(onerror));
    *slot(&mut SOCKETS.borrow(), client) = Some(socket);
}

/// Takes the handlers off, then closes: what the old socket does afterwards is nobody's concern (R25).
#[unsafe(no_mangle)]
pub extern "C" fn close_socket(client: u32, code: u16) {
    if let Some(socket) = detach(client) {
        // It fails only for codes that scripts may not use, and the core has none.
        let _ = socket.close_with_code(code);
    }
}

/// Takes the handlers off and forgets the socket.
pub(super) fn detach(client: u32) -> Option<WebSocket> {
    let socket = slot(&mut SOCKETS.borrow(), client).take()?;
    socket.set_onopen(None);
    socket.set_onmessage(None);
    socket.set_onclose(None);
    Some(socket)
}
