//! Every case of `tests/cases/`, run through the native core and a model of the facade.

#[path = "world/facade.rs"]
#[allow(dead_code)]
mod facade;
#[path = "world/runner.rs"]
#[allow(dead_code)]
mod runner;
#[path = "cases/script.rs"]
mod script;

use runner::Verdict;

/// Runs all cases of a file and names those that do not hold.
fn check(file: &str, text: &str) {
    let cases = script::read(text).unwrap_or_else(|problem| panic!("{file}: {problem}"));
    assert!(!cases.is_empty(), "{file} has no cases");
    let mut failures = Vec::new();
    for case in &cases {
        match case.run() {
            Verdict::Pass => {}
            Verdict::Fail { step, expected, got } => {
                failures.push(format!("{}: step {step}, expected {expected}, got {got}", case.id))
            }
            Verdict::Skip(op) => failures.push(format!("{}: {op} can't be judged", case.id)),
        }
    }
    assert!(failures.is_empty(), "{file}:\n{}", failures.join("\n"));
}

macro_rules! case_files {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let file = concat!("cases/", stringify!($name), ".case");
            check(file, include_str!(concat!("cases/", stringify!($name), ".case")));
        }
    )*};
}

case_files! { field_reports order epochs recovery connection handover mixtures }
