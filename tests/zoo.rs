//! Every planted fault is noticed: by a simulated world, or by a case.
//!
//! `cargo test --release --features zoo --test zoo -- --nocapture` prints who noticed which, and after how many seeds.

#![cfg(feature = "zoo")]

#[path = "world/facade.rs"]
#[allow(dead_code)]
mod facade;
#[path = "world/runner.rs"]
#[allow(dead_code)]
mod runner;
#[path = "cases/script.rs"]
mod script;
#[path = "world/mod.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use inorder::zoo::{BUGS, plant};
use runner::{Case, Verdict};
use world::campaign::campaign;

/// Seeds that are tried for one fault.
const SEEDS: u64 = 10_000;

fn cases() -> Vec<Case> {
    let files = [
        include_str!("cases/field_reports.case"),
        include_str!("cases/order.case"),
        include_str!("cases/epochs.case"),
        include_str!("cases/recovery.case"),
        include_str!("cases/connection.case"),
        include_str!("cases/handover.case"),
        include_str!("cases/mixtures.case"),
    ];
    files.iter().flat_map(|text| script::read(text).expect("the cases can be read")).collect()
}

/// The cases that fail, by name.
fn failing(cases: &[Case]) -> Vec<&str> {
    let holds = |case: &&Case| {
        let verdict = catch_unwind(AssertUnwindSafe(|| case.run()));
        !matches!(verdict, Ok(Verdict::Pass))
    };
    cases.iter().filter(holds).map(|case| case.id.as_str()).collect()
}

#[test]
fn every_planted_fault_is_noticed() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cases = cases();
    assert!(failing(&cases).is_empty(), "the cases hold while nothing is planted");
    assert!(campaign(1_000, 1, threads, 1).failures.is_empty(), "the worlds hold while nothing is planted");

    // A planted fault may well panic; that is noticed, and need not be printed.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut survivors = Vec::new();
    for &bug in BUGS {
        plant(Some(bug));
        let report = campaign(SEEDS, 1, threads, 1);
        let failing = failing(&cases);
        plant(None);
        let world = report.failures.iter().min_by_key(|(seed, ..)| *seed);
        let by_world = world.map_or("no world".to_owned(), |(seed, said, _)| {
            format!("seed {seed} ({})", said.chars().take(90).collect::<String>())
        });
        println!("{bug:?}: {by_world}; {} cases {:?}", failing.len(), failing.iter().take(4).collect::<Vec<_>>());
        if world.is_none() && failing.is_empty() {
            survivors.push(bug);
        }
    }
    std::panic::set_hook(hook);
    println!("{} planted, {} noticed", BUGS.len(), BUGS.len() - survivors.len());
    assert!(survivors.is_empty(), "nobody noticed {survivors:?}");
}
