//! Runs a file of cases through the native client with a facade model.
//!
//! `cargo run --release --example cases -- FILE.json [ID …]` prints a line per case and the totals;
//! with ids after the file it runs those only and tells what happened in each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

#[path = "../tests/world/facade.rs"]
#[allow(dead_code)]
mod facade;
#[path = "../tests/world/runner.rs"]
mod runner;

use runner::{Case, Verdict};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(file) = args.next() else {
        eprintln!("usage: cases FILE.json [ID …]");
        return ExitCode::from(2);
    };
    let ids: Vec<String> = args.collect();
    let cases =
        std::fs::read_to_string(&file).map_err(|error| error.to_string()).and_then(|text| Case::read_all(&text));
    let cases = match cases {
        Ok(cases) => cases,
        Err(error) => {
            eprintln!("{file}: {error}");
            return ExitCode::from(2);
        }
    };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for case in cases.iter().filter(|case| ids.is_empty() || ids.contains(&case.id)) {
        if !ids.is_empty() {
            for line in case.story(1) {
                println!("{line}");
            }
        }
        let verdict = catch_unwind(AssertUnwindSafe(|| case.run())).unwrap_or(Verdict::Fail {
            step: 0,
            expected: "no panic".to_owned(),
            got: "a panic".to_owned(),
        });
        match verdict {
            Verdict::Pass => {
                passed += 1;
                println!("PASS {}", case.id);
            }
            Verdict::Fail { step, expected, got } => {
                failed += 1;
                println!("FAIL {}: step {step}, expected {expected}, got {got}", case.id);
            }
            Verdict::Skip(op) => {
                skipped += 1;
                println!("SKIP {}: {op}", case.id);
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
