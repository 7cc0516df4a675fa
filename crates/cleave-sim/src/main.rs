//! `cleave-sim`: runs seeds and says which fail. Exit code 0: all held (or, with `--canary`, the planted bug was caught);
//! 1: a seed failed (or the bug was missed); 2: wrong arguments.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use cleave_sim::{Backend, Plan, Report, SeedFailure, run};
use cleavedb::testing::Canary;

/// Runs the real engine over a simulated disk and compares it with a model, one run for each seed.
#[derive(Debug, Parser)]
#[command(name = "cleave-sim", version)]
struct Arguments {
    /// Run this many seeds.
    #[arg(long, default_value_t = 100, conflicts_with = "seed")]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    start: u64,
    /// Run this seed alone and print what it does.
    #[arg(long)]
    seed: Option<u64>,
    /// Operations in each run.
    #[arg(long, default_value_t = 600)]
    operations: u64,
    /// The log that the runs use.
    #[arg(long, value_enum, default_value_t = Backend::Both)]
    backend: Backend,
    /// Seeds that run at the same time.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Switch on a planted bug; it must be caught within the given seeds.
    #[arg(long, value_enum)]
    canary: Option<PlantedBug>,
    /// Print every operation (implied by --seed).
    #[arg(long)]
    verbose: bool,
}

/// Bugs that can be switched on.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PlantedBug {
    /// A `Sync` syncs the newest log only, not the ones before it.
    SyncSkipsEarlierLogs,
}

impl Arguments {
    fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::new(seed, self.operations, self.backend);
        plan.canary = self.canary.map(|bug| match bug {
            PlantedBug::SyncSkipsEarlierLogs => Canary::SyncSkipsEarlierLogs,
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
            // With a planted bug the first catch is enough.
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
            println!("the planted bug {bug:?} was NOT caught within {seeds} seeds");
            ExitCode::FAILURE
        }
        (Some(bug), _) => {
            println!("the planted bug {bug:?} was caught, as it must be, after {} seeds", tally.seeds);
            ExitCode::SUCCESS
        }
    }
}

/// What all runs together did.
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
            Ok(report) => {
                self.total.operations += report.operations;
                self.total.epochs += report.epochs;
                self.total.crashes += report.crashes;
                self.total.power_losses += report.power_losses;
                self.total.crashes_in_recovery += report.crashes_in_recovery;
                self.total.faulty_epochs += report.faulty_epochs;
                self.total.compactions += report.compactions;
                self.total.compaction_subtasks += report.compaction_subtasks;
                self.total.value_collections += report.value_collections;
                self.total.compressed_bytes += report.compressed_bytes;
                self.total.runs += report.runs;
                self.total.run_subtasks_total += report.run_subtasks_total;
            }
            Err(failure) => {
                self.failed += 1;
                println!("{failure}\n  plan: {}", plan.describe());
                println!("  replay: {}", replay(arguments, failure.seed));
            }
        }
    }

    fn print(&self, seconds: f64) {
        let total = &self.total;
        println!(
            "{} seeds, {} failed; {} operations, {} openings, {} process crashes, {} power losses ({} of these crashes \
             during recovery), {} epochs with a failing disk; {} compactions with {} parts more than one, {} \
             value_collections that compressed {} B of values, {} runs made with {} parts more than one; {seconds:.1} s",
            self.seeds,
            self.failed,
            total.operations,
            total.epochs,
            total.crashes,
            total.power_losses,
            total.crashes_in_recovery,
            total.faulty_epochs,
            total.compactions,
            total.compaction_subtasks,
            total.value_collections,
            total.compressed_bytes,
            total.runs,
            total.run_subtasks_total
        );
    }
}

/// The command that shows a failure again.
fn replay(arguments: &Arguments, seed: u64) -> String {
    let backend = format!("{:?}", arguments.backend).to_lowercase();
    let canary = if arguments.canary.is_some() { " --canary sync-skips-earlier-logs" } else { "" };
    format!("cleave-sim --seed {seed} --operations {} --backend {backend}{canary}", arguments.operations)
}
