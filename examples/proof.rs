//! Runs many simulated worlds and prints what they showed.
//!
//! `cargo run --release --example proof -- [RUNS] [FIRST_SEED]`. A run that breaks an invariant is shrunk and
//! printed as a list of choices: `proof replay LIST` tells its story, `proof trace LIST` gives the core's inputs and
//! outputs (docs/trace.md). `proof traces FIRST COUNT` does that for seeds. `proof exhaustive` visits small worlds
//! completely.

use std::process::ExitCode;

#[path = "../tests/world/mod.rs"]
mod world;

use world::campaign;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| args.get(index).and_then(|arg| arg.parse().ok()).unwrap_or(default);
    if args.first().is_some_and(|arg| arg == "replay") {
        let list: Vec<u32> = args[1..].join(",").split(',').filter_map(|n| n.trim().parse().ok()).collect();
        return campaign::tell(&list);
    }
    if args.first().is_some_and(|arg| arg == "traces") {
        campaign::traces(number(1, 1), number(2, 1));
        return ExitCode::SUCCESS;
    }
    if args.first().is_some_and(|arg| arg == "trace") {
        let list: Vec<u32> = args[1..].join(",").split(',').filter_map(|n| n.trim().parse().ok()).collect();
        print!("{}", world::world::trace(&mut world::source::Listed::new(&list)));
        return ExitCode::SUCCESS;
    }
    if args.first().is_some_and(|arg| arg == "exhaustive") {
        return campaign::exhaust_all();
    }
    campaign::prove(number(0, 1_000_000), number(1, 1))
}
