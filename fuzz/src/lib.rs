//! What a fuzzer feeds inorder: frames, choices and options, each against a naive model.
//!
//! ```text
//!  frames   a script of messages, waits and calls ─▶ wire.rs                      ─▶ naive reader
//!                                                 └▶ the facade's model, the core ─▶ naive page
//!  options  options, then such a script           ──▶ the same, by those options  ─▶ naive page
//!  choices  the choices of a simulated world      ──▶ tests/world                 ─▶ its oracle
//! ```
//!
//! `npm run fuzz` builds and runs the three; a target that panics has found something.

#[path = "../../tests/world/facade.rs"]
#[allow(dead_code, clippy::all)]
mod facade;
mod options;
mod page;
mod script;
mod wire;
#[path = "../../tests/world/mod.rs"]
#[allow(clippy::all)]
mod world;

/// A script of what a server and a page may do, under the default options.
pub fn frames(data: &[u8]) {
    wire::check(data);
    script::play(data, options::default());
}

/// Options first, a script after them.
pub fn options(data: &[u8]) {
    let (options, script) = options::draw(data);
    script::play(script, options);
}

/// The choices of one simulated world.
pub fn choices(data: &[u8]) {
    let (outcome, _) = world::world::run(&mut world::source::Bytes(data), false);
    if let Some(violation) = outcome.violation {
        panic!("{violation}");
    }
}
