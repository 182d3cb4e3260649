//! Small worlds, visited completely; `tests/world/enumeration.rs` says how, and how large they are.

#[path = "world/mod.rs"]
mod world;

use world::enumeration::{ONE_WITH_A_RESTART, Small, TWO};

fn check(small: Small) {
    match small.check() {
        Ok(found) => println!("{} entities, {:?}: {found:?}", small.entities, small.budget),
        Err(said) => panic!("{said}"),
    }
}

#[test]
fn one_entity_with_a_reconnect_and_a_restart() {
    check(ONE_WITH_A_RESTART);
}

#[test]
fn two_entities_with_a_reconnect() {
    check(TWO);
}
