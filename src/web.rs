//! The browser's driver: numbers in, numbers out.
//!
//! ```text
//!  facade (TypeScript)                      driver (this)                       core
//!  onmessage ─ JSON.parse ─ accept(…) ────▶ accept ───────────────────────────▶ Client::accept
//!              registers ── handle(…) ────▶ inputs.rs ────────────────────────▶ Client::handle_*
//!              drain ◀───── poll() ◀─────── outputs.rs ◀──────────────────────── Client::poll_output
//! ```
//!
//! One instance of the module is one client. Nothing is imported: sockets, timers, page events, strings, payloads and
//! callbacks are the facade's, so no JavaScript runs while the client is borrowed, and a trap ends up in the one
//! place that called (R38). Numbers cross as arguments of `accept`, all others in the [`registers`].

mod inputs;
#[cfg(feature = "messages")]
mod message;
mod options;
mod outputs;

use core::cell::UnsafeCell;

use crate::client::{Client, EntityId, Epoch, EventId, ModelId, Seq, Status};
use crate::config::Config;
use crate::time::Instant;

#[global_allocator]
static ALLOCATOR: talc::wasm::WasmDynamicTalc = talc::wasm::new_wasm_dynamic_allocator();

/// Registers. The widest use is a list of epochs.
const REGISTERS: usize = 64;

type Registers = [f64; REGISTERS];

/// "None" in a register.
const NONE: f64 = -1.0;

/// A static of the one thread that there is.
struct Single<T>(UnsafeCell<T>);

#[cfg(target_feature = "atomics")]
compile_error!("the driver is for wasm without threads");

// SAFETY: without atomics there is one thread, so nothing is ever shared between two.
unsafe impl<T> core::marker::Sync for Single<T> {}

/// The client of this instance. Its payloads are slots of the facade's slab.
static CLIENT: Single<Client<u32>> = Single(UnsafeCell::new(Client::with(Config::DEFAULT, 0)));
static NUMBERS: Single<Registers> = Single(UnsafeCell::new([0.0; REGISTERS]));

fn client() -> &'static mut Client<u32> {
    // SAFETY: each export takes it once, and there are no imports through which an export could be entered twice.
    unsafe { &mut *CLIENT.0.get() }
}

fn numbers() -> &'static mut Registers {
    // SAFETY: as above.
    unsafe { &mut *NUMBERS.0.get() }
}

/// Where the registers begin in the memory.
#[unsafe(no_mangle)]
pub extern "C" fn registers() -> *mut f64 {
    NUMBERS.0.get().cast()
}

/// Gives the client the options in the registers; to be called first, and once.
#[unsafe(no_mangle)]
pub extern "C" fn create(seed_high: u32, seed_low: u32) {
    #[cfg(feature = "messages")]
    message::keep();
    let seed = u64::from(seed_high) << 32 | u64::from(seed_low);
    options::config(numbers(), client().configure(seed));
}

/// Declares the model in the registers and returns its number.
#[unsafe(no_mangle)]
pub extern "C" fn add_model() -> u32 {
    u32::from(client().add_model(options::model(numbers())).0)
}

/// Makes an entity known and returns its number, which the facade keeps until the entity is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn add_entity(model: u32) -> u32 {
    client().add_entity(ModelId(model as u8)).0
}

/// Judges an event; the answer is a `Verdict`. The hot path.
#[unsafe(no_mangle)]
pub extern "C" fn accept(entity: u32, prev: f64, seq: f64, epoch: u32, status: u32, visible: bool) -> u32 {
    let (prev, seq) = (prev as Seq, seq as Seq);
    client().accept(EntityId(entity), prev, seq, Epoch(epoch), Status(status), visible) as u32
}

/// The same for an event that carries an id.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)] // numbers only, and no detour through the registers
pub extern "C" fn accept_with_id(
    entity: u32,
    prev: f64,
    seq: f64,
    epoch: u32,
    status: u32,
    visible: bool,
    id_high: u32,
    id_low: u32,
) -> u32 {
    let (prev, seq) = (prev as Seq, seq as Seq);
    let id = EventId(u64::from(id_high) << 32 | u64::from(id_low));
    client().accept_with_id(EntityId(entity), prev, seq, Epoch(epoch), Status(status), visible, id) as u32
}

/// Gives the core an input whose numbers are in the registers. Some inputs have an answer.
#[unsafe(no_mangle)]
pub extern "C" fn handle(input: u32, now: f64) -> u32 {
    let client = client();
    client.set_now(Instant(now as u64));
    inputs::handle(client, input, numbers())
}

/// Puts the next output's numbers into the registers and returns its kind; 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn poll(now: f64) -> u32 {
    let now = Instant(now as u64);
    let client = client();
    client.set_now(now);
    outputs::write(client, now, numbers())
}

/// Puts what is known of an entity into the registers: sync, held events, epoch or −1, seq, status.
///
/// It works after a trap too, to find out where the entities stood (R38): what is half written is numbers.
#[unsafe(no_mangle)]
pub extern "C" fn read(entity: u32) {
    outputs::read(client(), EntityId(entity), numbers());
}

/// When `handle` wants to be told of a timeout, in the milliseconds of `now`; −1: never.
#[unsafe(no_mangle)]
pub extern "C" fn timeout() -> f64 {
    client().poll_timeout().map_or(NONE, |due| due.0 as f64)
}

/// Puts the counters into the registers, in the order of `Stats`.
#[unsafe(no_mangle)]
pub extern "C" fn stats() {
    outputs::counters(client().stats(), numbers());
}
