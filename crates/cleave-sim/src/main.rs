//! `cleave-sim`: runs seeds and reports which fail. Exit code 0: all seeds passed (with `--canary`: the planted bug was
//! caught); 1: a seed failed (the bug was missed); 2: invalid arguments.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use cleave_sim::{Backend, Plan, Report, SeedFailure, run};
use cleavedb::testing::Canary;

/// Runs the real engine on a simulated disk and compares it with a model, one run per seed.
#[derive(Debug, Parser)]
#[command(name = "cleave-sim", version)]
struct Arguments {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 100, conflicts_with = "seed")]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    start: u64,
    /// Run only this seed and print its operations.
    #[arg(long)]
    seed: Option<u64>,
    /// Operations per run.
    #[arg(long, default_value_t = 600)]
    operations: u64,
    /// Log backend of the runs.
    #[arg(long, value_enum, default_value_t = Backend::Both)]
    backend: Backend,
    /// Seeds to run concurrently.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Enable a planted bug; the run succeeds if one of the seeds catches it.
    #[arg(long, value_enum)]
    canary: Option<PlantedBug>,
    /// Print every operation (implied by --seed).
    #[arg(long)]
    verbose: bool,
}

/// Bugs that can be enabled.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PlantedBug {
    /// A `Sync` write syncs only the newest log and not the logs before it.
    SyncSkipsEarlierLogs,
    /// The manifest names a file of saved hash indexes before the records in them are durable.
    IndexSavedBeforeSync,
}

impl Arguments {
    fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::new(seed, self.operations, self.backend);
        plan.canary = self.canary.map(|bug| match bug {
            PlantedBug::SyncSkipsEarlierLogs => Canary::SyncSkipsEarlierLogs,
            PlantedBug::IndexSavedBeforeSync => Canary::IndexSavedBeforeSync,
        });
        plan.verbose = self.verbose || self.seed.is_some();
        plan
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (start, seeds) = arguments.seed.map_or((arguments.start, arguments.seeds), |seed| (seed, 1));
    let next = AtomicU64::new(start);
    let stop = AtomicBool::new(false);
    let tally = Mutex::new(Tally::default());
    let began = Instant::now();
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= start.saturating_add(seeds) {
                return;
            }
            let plan = arguments.plan(seed);
            let result = run(&plan);
            // One catch proves that the planted bug is found.
            if result.is_err() && arguments.canary.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
            let mut tally = tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            tally.add(&arguments, &plan, result);
        }
    };
    std::thread::scope(|scope| (0..arguments.threads.max(1)).for_each(|_| drop(scope.spawn(worker))));
    let tally = tally.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    tally.print(began.elapsed().as_secs_f64());
    match (arguments.canary, tally.failed) {
        (None, 0) => ExitCode::SUCCESS,
        (None, _) => ExitCode::FAILURE,
        (Some(bug), 0) => {
            println!("the planted bug {bug:?} was NOT caught by {seeds} seeds");
            ExitCode::FAILURE
        }
        (Some(bug), _) => {
            println!("the planted bug {bug:?} was caught, as expected, after {} seeds", tally.seeds);
            ExitCode::SUCCESS
        }
    }
}

/// Totals over all runs.
#[derive(Debug, Default)]
struct Tally {
    seeds: u64,
    failed: u64,
    total: Report,
}

impl Tally {
    fn add(&mut self, arguments: &Arguments, plan: &Plan, result: Result<Report, SeedFailure>) {
        self.seeds += 1;
        match result {
            Ok(report) => self.total.add(&report),
            Err(failure) => {
                self.failed += 1;
                println!("{failure}\n  plan: {}", plan.describe());
                println!("  replay: {}", replay(arguments, failure.seed));
            }
        }
    }

    fn print(&self, seconds: f64) {
        println!("{} seeds, {} failed; {}; {seconds:.1} s", self.seeds, self.failed, self.total);
    }
}

/// The command that reproduces a failure.
fn replay(arguments: &Arguments, seed: u64) -> String {
    let backend = format!("{:?}", arguments.backend).to_lowercase();
    let canary = match arguments.canary {
        None => "",
        Some(PlantedBug::SyncSkipsEarlierLogs) => " --canary sync-skips-earlier-logs",
        Some(PlantedBug::IndexSavedBeforeSync) => " --canary index-saved-before-sync",
    };
    format!("cleave-sim --seed {seed} --operations {} --backend {backend}{canary}", arguments.operations)
}
