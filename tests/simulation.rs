//! Simulated worlds: many seeds, and the lists of choices that once broke something.

#[path = "world/mod.rs"]
mod world;

use world::campaign::{attempt, campaign, shrunk};
use world::world::missing_marks;

/// Runs in `cargo test`; `npm run proof` makes many more.
const RUNS: u64 = 100_000;

/// Seeds run on so many threads at a time.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[test]
fn worlds_break_nothing_and_reach_every_mark() {
    let report = campaign(RUNS, 1, threads(), 1);
    if let Some((seed, broken, list)) = report.failures.first() {
        let short = shrunk(list);
        let list = short.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        panic!("seed {seed}: {broken}\nshrunk: {:?}\nreplay {list}", attempt(&short).violation);
    }
    assert_eq!(report.runs, RUNS);
    let missing = missing_marks(report.marks);
    assert!(missing.is_empty(), "never reached: {missing:?}");
}

/// Lists of choices that broke something once, shrunk; the first line of each says what.
#[test]
fn what_broke_once_stays_whole() {
    let regressions = include_str!("world/regressions.txt");
    let mut about = "";
    let mut runs = 0;
    for line in regressions.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            about = comment;
        } else if !line.trim().is_empty() {
            let list: Vec<u32> = line.split(',').filter_map(|choice| choice.trim().parse().ok()).collect();
            assert_eq!(attempt(&list).violation, None, "{about}");
            runs += 1;
        }
    }
    assert!(runs > 0, "there are regressions");
}
