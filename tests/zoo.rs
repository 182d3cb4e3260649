//! Every planted fault is noticed: by a simulated world, or by a case. And every invariant notices one.
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

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use inorder::zoo::{BUGS, plant};
use runner::{Case, Verdict};
use world::campaign::campaign;
use world::slips::{self, SLIPS};
use world::world::{INVARIANTS, invariant};

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

/// Failures that are looked at for one fault, to see which invariants notice it.
const LOOKED_AT: usize = 8;

/// For one slip of a driver: others than the one that it is planted for notice it first.
const LOOKED_AT_SLIPS: usize = 200;

#[test]
fn every_planted_fault_is_noticed_and_every_invariant_notices_one() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cases = cases();
    assert!(failing(&cases).is_empty(), "the cases hold while nothing is planted");
    assert!(campaign(1_000, 1, threads, 1).failures.is_empty(), "the worlds hold while nothing is planted");

    // A planted fault may well panic; that is noticed, and need not be printed.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut survivors = Vec::new();
    let mut noticed_by: BTreeMap<&str, usize> = BTreeMap::new();
    for &bug in BUGS {
        plant(Some(bug));
        let report = campaign(SEEDS, 1, threads, LOOKED_AT);
        let failing = failing(&cases);
        plant(None);
        let invariants: BTreeSet<&str> = report.failures.iter().map(|(_, said, _)| invariant(said)).collect();
        for invariant in &invariants {
            *noticed_by.entry(invariant).or_default() += 1;
        }
        let by_worlds = match report.failures.iter().map(|(seed, ..)| seed).min() {
            Some(seed) => format!("seed {seed}, invariants {}", Vec::from_iter(invariants).join(", ")),
            None => "no world".to_owned(),
        };
        println!("{bug:?}: {by_worlds}; {} cases {:?}", failing.len(), failing.iter().take(4).collect::<Vec<_>>());
        if report.failures.is_empty() && failing.is_empty() {
            survivors.push(bug);
        }
    }
    for &slip in SLIPS {
        slips::plant(Some(slip));
        let report = campaign(SEEDS, 1, threads, LOOKED_AT_SLIPS);
        slips::plant(None);
        let invariants: BTreeSet<&str> = report.failures.iter().map(|(_, said, _)| invariant(said)).collect();
        for invariant in &invariants {
            *noticed_by.entry(invariant).or_default() += 1;
        }
        println!("{slip:?} (of a driver): invariants {}", Vec::from_iter(invariants).join(", "));
    }
    std::panic::set_hook(hook);
    for (name, about) in INVARIANTS {
        println!("{name}: noticed {} ({about})", noticed_by.get(name).copied().unwrap_or(0));
    }
    println!("{} planted, {} noticed", BUGS.len(), BUGS.len() - survivors.len());
    assert!(survivors.is_empty(), "nobody noticed {survivors:?}");
    let idle: Vec<_> = INVARIANTS.iter().map(|(name, _)| name).filter(|name| !noticed_by.contains_key(*name)).collect();
    assert!(idle.is_empty(), "these invariants noticed nothing: {idle:?}");
}
