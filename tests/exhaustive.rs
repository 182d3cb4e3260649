//! Small worlds, visited completely: every order of what may happen, each place once.
//!
//! The server keeps two entries, fewer than there are events, so that what was missed may be gone. From every end,
//! where nothing is left to happen but time, everything must come right. The counts are pinned from below: a search
//! that becomes smaller without anybody knowing why proves less than it says. `npm run proof` makes larger ones.

#[path = "world/mod.rs"]
mod world;

use world::world::{Budget, exhaust};

fn check(entities: usize, budget: Budget, places: u64) {
    let found = exhaust(entities, budget).unwrap_or_else(|said| panic!("{said}"));
    println!("{entities} entities, {budget:?}: {found:?}");
    assert!(found.places >= places, "only {found:?}");
}

#[test]
fn one_entity_with_a_reconnect_and_a_restart() {
    let budget = Budget { events: 4, drops: 1, duplicates: 1, reconnects: 1, restarts: 1, waits: 2 };
    check(1, budget, 600_000);
}

#[test]
fn two_entities_with_a_reconnect() {
    let budget = Budget { events: 3, drops: 1, duplicates: 1, reconnects: 1, restarts: 0, waits: 2 };
    check(2, budget, 250_000);
}
