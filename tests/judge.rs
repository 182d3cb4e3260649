//! The judge of `npm run mutants`: rules, cases and some simulated worlds in one program that ends at the first thing
//! that does not hold. `cargo test` runs the same, test by test, and leaves this one out.

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

use std::process::ExitCode;

use runner::Verdict;
use world::campaign::{attempt, campaign};

/// As many worlds as take about as long as building a mutant.
const WORLDS: u64 = 3_000;

const CASES: [&str; 7] = [
    include_str!("cases/order.case"),
    include_str!("cases/epochs.case"),
    include_str!("cases/recovery.case"),
    include_str!("cases/connection.case"),
    include_str!("cases/field_reports.case"),
    include_str!("cases/handover.case"),
    include_str!("cases/mixtures.case"),
];

/// The tables of `rules.rs` in the format of the case files: `name: r#"table"#`.
fn rules() -> String {
    let mut tables = String::new();
    let pieces: Vec<&str> = include_str!("rules.rs").split("r#\"").collect();
    for pair in pieces.windows(2) {
        let name = pair[0].trim_end().trim_end_matches(':').rsplit(char::is_whitespace).next().unwrap_or("");
        let table = pair[1].split_once("\"#").map_or("", |(table, _)| table);
        tables += &format!("case {name}\n{table}\n");
    }
    tables
}

fn main() -> ExitCode {
    let mut judged = 0;
    for text in std::iter::once(rules().as_str()).chain(CASES) {
        for case in script::read(text).expect("the cases can be read") {
            match case.run() {
                Verdict::Pass => judged += 1,
                verdict => {
                    println!("{}: {verdict:?}", case.id);
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    for list in include_str!("world/regressions.txt").lines().filter(|line| !line.starts_with('#')) {
        let list: Vec<u32> = list.split(',').filter_map(|choice| choice.trim().parse().ok()).collect();
        if let Some(said) = attempt(&list).violation {
            println!("regression: {said}");
            return ExitCode::FAILURE;
        }
    }
    let report = campaign(WORLDS, 1, 1, 1);
    if let Some((seed, said, _)) = report.failures.first() {
        println!("seed {seed}: {said}");
        return ExitCode::FAILURE;
    }
    println!("{judged} cases, {} worlds hold", report.runs);
    ExitCode::SUCCESS
}
