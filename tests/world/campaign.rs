//! Many worlds: seeds run in parallel, a share of them twice, failures shrunk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::enumeration::{ONE_WITH_A_RESTART, TWO, TWO_WITH_A_RESTART};
use super::source::{Listed, Recorder, Seeded, shrink};
use super::world::{Outcome, missing_marks, run, trace};

/// One seed in so many is run twice and its traces are compared.
const TWICE: u64 = 100;

/// Runs made to shrink one failure.
const SHRINKING: usize = 4_000;

/// What a campaign showed.
#[derive(Debug, Default)]
pub struct Report {
    pub runs: u64,
    pub steps: u64,
    pub marks: u64,
    /// The first failures: seed, what was broken, and the choices that show it.
    pub failures: Vec<(u64, String, Vec<u32>)>,
}

/// Runs a list of choices; a panic is a violation.
pub fn attempt(list: &[u32]) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| run(&mut Listed::new(list), false).0))
        .unwrap_or_else(|_| Outcome { violation: Some("panic: a panic".to_owned()), ..Outcome::default() })
}

fn attempt_seed(seed: u64) -> (Outcome, Vec<u32>) {
    let mut recorder = Recorder::new(Seeded::new(seed));
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut recorder, false).0))
        .unwrap_or_else(|_| Outcome { violation: Some("panic: a panic".to_owned()), ..Outcome::default() });
    (outcome, recorder.list)
}

/// Runs seeds `first` and on, on so many threads, until `runs` are done or `failures` have failed.
pub fn campaign(runs: u64, first: u64, threads: usize, failures: usize) -> Report {
    let next = AtomicU64::new(first);
    let report = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut own = Report::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + runs {
                        break;
                    }
                    let (outcome, list) = attempt_seed(seed);
                    own.runs += 1;
                    own.steps += u64::from(outcome.steps);
                    own.marks |= outcome.marks;
                    let mut broken = outcome.violation.clone();
                    if broken.is_none() && seed.is_multiple_of(TWICE) && attempt_seed(seed).0.trace != outcome.trace {
                        broken = Some("same: two runs of one seed differ".to_owned());
                    }
                    if let Some(broken) = broken {
                        own.failures.push((seed, broken, list));
                        if own.failures.len() >= failures {
                            next.fetch_add(runs, Ordering::Relaxed);
                            break;
                        }
                    }
                }
                let mut all = report.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                all.runs += own.runs;
                all.steps += own.steps;
                all.marks |= own.marks;
                all.failures.extend(own.failures);
            });
        }
    });
    report.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What a violation is about, without its numbers.
fn kind(violation: &str) -> String {
    let said = violation.split_once(": ").map_or(violation, |(_, said)| said);
    said.chars().filter(|letter| !letter.is_ascii_digit()).take(30).collect()
}

/// The shortest list found that still breaks the same.
pub fn shrunk(list: &[u32]) -> Vec<u32> {
    let Some(broken) = attempt(list).violation.map(|said| kind(&said)) else { return list.to_vec() };
    shrink(list, SHRINKING, |list| attempt(list).violation.is_some_and(|said| kind(&said) == broken))
}

/// Prints the story of a list of choices.
pub fn tell(list: &[u32]) -> ExitCode {
    let (outcome, story) = run(&mut Listed::new(list), true);
    for line in story {
        println!("{line}");
    }
    match outcome.violation {
        Some(violation) => {
            println!("{violation}");
            ExitCode::FAILURE
        }
        None => {
            println!("{} steps, nothing was broken", outcome.steps);
            ExitCode::SUCCESS
        }
    }
}

/// Prints the traces of so many seeds, each behind a line that names it.
pub fn traces(first: u64, count: u64) {
    use std::io::Write;

    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for seed in first..first + count {
        // Whoever reads may have seen enough.
        if write!(out, "# {seed}\n{}", trace(&mut Seeded::new(seed))).is_err() {
            return;
        }
    }
}

/// Runs the campaign of a proof and prints its figures.
#[allow(clippy::disallowed_methods)] // the clock is for the figure only
pub fn prove(runs: u64, first: u64) -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let started = std::time::SystemTime::now();
    let report = campaign(runs, first, threads, 3);
    let seconds = started.elapsed().map_or(0.0, |span| span.as_secs_f64());
    println!("{} schedules, {} steps, {} violations, {seconds:.0} s", report.runs, report.steps, report.failures.len());
    for (seed, broken, list) in report.failures.iter().take(3) {
        println!("seed {seed}: {broken}");
        let short = shrunk(list);
        println!("  {}", attempt(&short).violation.unwrap_or_default());
        println!("  replay {}", short.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    }
    let missing = missing_marks(report.marks);
    if !missing.is_empty() {
        println!("never reached: {}", missing.join(", "));
    }
    if report.failures.is_empty() && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Visits every small world and prints how large it is.
pub fn exhaust_all() -> ExitCode {
    let mut holds = true;
    for small in [ONE_WITH_A_RESTART, TWO, TWO_WITH_A_RESTART] {
        match small.check() {
            Ok(found) => println!("{} entities, {:?}: {found:?}", small.entities, small.budget),
            Err(said) => {
                println!("{} entities, {:?}: {said}", small.entities, small.budget);
                holds = false;
            }
        }
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
