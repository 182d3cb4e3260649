//! The browser's driver: numbers in, numbers out.
//!
//! ```text
//!  facade (TypeScript)                      driver (this)                       core
//!  onmessage ─ JSON.parse ─ accept(…) ────▶ accept ───────────────────────────▶ Client::accept
//!              registers ── handle(…) ────▶ registers.rs ─────────────────────▶ Client::handle_*
//!              drain ◀───── poll() ◀─────── registers.rs, commands.rs ◀──────── Client::poll_output
//!  enter ◀───────────────────────────────── socket.rs, timer.rs, lifecycle.rs
//! ```
//!
//! Strings, payloads and callbacks stay with the facade. On the way of a frame only numbers cross: those of
//! `accept` as arguments, all others in [`registers`]. No JavaScript runs while a client is borrowed.
//!
//! What takes and gives numbers only is exported as it is: `wasm-bindgen` would wrap each call in a closure, which
//! costs more than the call. The facade uses the exports directly.

mod commands;
mod lifecycle;
mod numbers;
mod options;
mod socket;
mod timer;

use std::cell::{RefCell, RefMut};

use js_sys::Function;
use serde::Serialize;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use web_sys::Window;

use crate::client::{Client, EntityId, Epoch, EventId, ModelId, Seq, Status};
use crate::time::Instant;

pub use socket::{close_socket, open_socket};

#[global_allocator]
static ALLOCATOR: talc::wasm::WasmDynamicTalc = talc::wasm::new_wasm_dynamic_allocator();

/// A client whose payloads are slots of the facade's slab.
struct Driver {
    client: Client<u32>,
    /// The numbers of the command that was polled last.
    command: Vec<f64>,
}

/// One slot for each client, by its number.
type Table<T> = Vec<Option<T>>;

/// A static of the one thread that there is. `thread_local!` would reach it through a function pointer.
struct Single<T>(RefCell<T>);

#[cfg(target_feature = "atomics")]
compile_error!("the driver is for wasm without threads");

// SAFETY: without atomics there is one thread, so nothing is ever shared between two.
unsafe impl<T> Sync for Single<T> {}

impl<T> Single<T> {
    const fn new(value: T) -> Self {
        Single(RefCell::new(value))
    }

    fn borrow(&self) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }
}

static DRIVERS: Single<Table<Box<Driver>>> = Single::new(Vec::new());

/// Runs `act` on a client; the default if it was destroyed.
fn with<T: Default>(client: u32, act: impl FnOnce(&mut Driver) -> T) -> T {
    match DRIVERS.borrow().get_mut(client as usize) {
        Some(Some(driver)) => act(driver),
        _ => T::default(),
    }
}

/// The place of a client's things in a table.
fn slot<T>(table: &mut Table<T>, client: u32) -> &mut Option<T> {
    let at = client as usize;
    if table.len() <= at {
        table.resize_with(at + 1, || None);
    }
    &mut table[at]
}

/// Milliseconds of `performance.now()`.
fn instant(now: f64) -> Instant {
    Instant(now as u64)
}

/// Where the registers begin in the memory.
#[unsafe(no_mangle)]
pub extern "C" fn registers() -> *const f64 {
    numbers::address()
}

/// Makes a client from the options in the registers and returns its number.
#[unsafe(no_mangle)]
pub extern "C" fn create(seed_high: u32, seed_low: u32) -> u32 {
    let seed = u64::from(seed_high) << 32 | u64::from(seed_low);
    let driver = Box::new(Driver { client: Client::new(options::config(), seed), command: Vec::new() });
    let mut drivers = DRIVERS.borrow();
    let free = drivers.iter().position(Option::is_none).unwrap_or(drivers.len());
    *slot(&mut drivers, free as u32) = Some(driver);
    free as u32
}

/// Frees a client. Its number will be used again.
#[unsafe(no_mangle)]
pub extern "C" fn destroy(client: u32) {
    let driver = slot(&mut DRIVERS.borrow(), client).take();
    drop(driver);
}

/// Declares the model in the registers and returns its number.
#[unsafe(no_mangle)]
pub extern "C" fn add_model(client: u32) -> u32 {
    with(client, |driver| u32::from(driver.client.add_model(options::model()).0))
}

/// Makes an entity known and returns its number, which the facade keeps until the entity is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn add_entity(client: u32, model: u32) -> u32 {
    with(client, |driver| driver.client.add_entity(ModelId(model as u8)).0)
}

/// Judges an event; the answer is a `Verdict`. The hot path.
#[unsafe(no_mangle)]
pub extern "C" fn accept(client: u32, entity: u32, prev: f64, seq: f64, epoch: u32, status: u32, visible: bool) -> u32 {
    with(client, |driver| {
        let (prev, seq) = (prev as Seq, seq as Seq);
        driver.client.accept(EntityId(entity), prev, seq, Epoch(epoch), Status(status), visible) as u32
    })
}

/// The same for an event that carries an id.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)] // numbers only, and no detour through the registers
pub extern "C" fn accept_with_id(
    client: u32,
    entity: u32,
    prev: f64,
    seq: f64,
    epoch: u32,
    status: u32,
    visible: bool,
    id_high: u32,
    id_low: u32,
) -> u32 {
    with(client, |driver| {
        let (prev, seq) = (prev as Seq, seq as Seq);
        let id = EventId(u64::from(id_high) << 32 | u64::from(id_low));
        driver.client.accept_with_id(EntityId(entity), prev, seq, Epoch(epoch), Status(status), visible, id) as u32
    })
}

/// Gives the core an input whose numbers are in the registers. Some inputs have an answer.
#[unsafe(no_mangle)]
pub extern "C" fn handle(client: u32, input: u32, now: f64) -> u32 {
    with(client, |driver| numbers::handle(&mut driver.client, input, instant(now)))
}

/// Puts the next output's numbers into the registers and returns its kind; 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn poll(client: u32, now: f64) -> u32 {
    with(client, |driver| {
        let now = instant(now);
        driver.client.poll_output(now).map_or(0, |output| numbers::write(driver, output, now))
    })
}

/// Puts what is known of an entity into the registers: sync, held events, whether placed, epoch, seq, status.
#[unsafe(no_mangle)]
pub extern "C" fn read(client: u32, entity: u32) {
    with(client, |driver| numbers::read(&driver.client, EntityId(entity)));
}

/// The same from an instance that trapped, before it is thrown away (R38).
#[unsafe(no_mangle)]
pub extern "C" fn salvage(client: u32, entity: u32) {
    // SAFETY: the trap left the cell borrowed for ever, but nothing runs any more: there is one thread, and the facade
    // enters this instance only to read. What is half written is numbers.
    let drivers = unsafe { &*DRIVERS.0.as_ptr() };
    if let Some(Some(driver)) = drivers.get(client as usize) {
        numbers::read(&driver.client, EntityId(entity));
    }
}

/// The counters, as a list in the order of `Stats`. As an object they would bring a table of strings and a hash map.
#[wasm_bindgen]
pub fn stats(client: u32) -> JsValue {
    let counters = with(client, |driver| numbers::counters(driver.client.stats()));
    counters.serialize(&serde_wasm_bindgen::Serializer::new()).unwrap_or_default()
}

/// Sets the timer to the core's next deadline.
#[unsafe(no_mangle)]
pub extern "C" fn arm(client: u32, now: f64) {
    let due = with(client, |driver| driver.client.poll_timeout());
    timer::set(client, due, instant(now));
}

/// Puts a client on the page: what its timer calls, and what the page's events call.
///
/// They are functions of the facade, so that every way into the wasm leads through its wrapper (R38). On servers and
/// in workers there is no window, and nothing is listened to.
#[wasm_bindgen]
pub fn attach(client: u32, on_timer: Function, window: Option<Window>, on_page: Function) {
    timer::attach(client, on_timer);
    if let Some(window) = window {
        lifecycle::attach(client, window, on_page);
    }
}

/// Takes everything of a client off the page.
#[unsafe(no_mangle)]
pub extern "C" fn detach(client: u32) {
    timer::detach(client);
    lifecycle::detach(client);
    socket::detach(client);
}
