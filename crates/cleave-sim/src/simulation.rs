//! One run: the real engine on the simulated disk with simulated threads, compared with the model.
//!
//! A run is a sequence of epochs. Each epoch opens the database that the previous one left, checks it against the
//! acknowledged batches, lets clients work, and ends with a close, a process crash or a power loss. A crash can happen at
//! any moment: a separate thread sleeps for a random time, takes an image of the disk and halts the old one. If the
//! database is still being opened at that moment, the next epoch recovers from an interrupted recovery.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cleavedb::testing::{self, Faults, SimConfig, SimDisk, Tuning};
use cleavedb::{Db, Error, Options};

use crate::checkpoints::Checkpoints;
use crate::client::Client;
use crate::crasher::{Crasher, Image};
use crate::failure::Failure;
use crate::ledger::Page;
use crate::model::Model;
use crate::operation::{Crash, FIRST_CHANGING_SLOT, Operation, name_of_slot, operator_of_slot, options_of_slot};
use crate::order;
use crate::plan::{DEVICE, HOME, Plan};
use crate::recovery::{Expected, Order};
use crate::report::Report;
use crate::rng::Rng;
use crate::workload::Workload;
use crate::world::{Tolerance, World};

/// A run that found a bug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedFailure {
    /// The seed.
    pub seed: u64,
    /// Number of operations started.
    pub operation: u64,
    /// The last of them.
    pub last: String,
    /// What was expected and what was found.
    pub what: String,
}

impl fmt::Display for SeedFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} failed at operation {} ({})", self.seed, self.operation, self.last)?;
        write!(f, "  {}", self.what)
    }
}

impl std::error::Error for SeedFailure {}

/// Runs a plan.
///
/// # Errors
/// What the engine did wrong: an answer that differs from the model, an acknowledged write lost, a panic, a deadlock.
pub fn run(plan: &Plan) -> Result<Report, SeedFailure> {
    let progress = Arc::new(Mutex::new(Progress::default()));
    let (inside, shared) = (plan.clone(), progress.clone());
    let outcome = testing::simulate_with(SimConfig::new(plan.seed), move || Simulation::new(inside, shared).run());
    let what = match outcome.result {
        Ok(Ok(())) => {
            let mut report = lock(&progress).report;
            report.digest = outcome.digest;
            return Ok(report);
        }
        Ok(Err(failure)) => failure.to_string(),
        Err(failure) => failure.to_string(),
    };
    let progress = lock(&progress);
    Err(SeedFailure { seed: plan.seed, operation: progress.report.operations, last: progress.last.clone(), what })
}

/// Progress that is available even if the run panics or hangs.
#[derive(Default)]
struct Progress {
    report: Report,
    last: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

struct Simulation {
    plan: Plan,
    rng: Rng,
    workloads: Vec<Workload>,
    disk: SimDisk,
    expected: Expected,
    epoch: u64,
    progress: Arc<Mutex<Progress>>,
}

impl Simulation {
    fn new(plan: Plan, progress: Arc<Mutex<Progress>>) -> Simulation {
        let workloads = match plan.clients {
            1 => vec![Workload::new(plan.seed)],
            clients => (0..clients).map(|client| Workload::new(plan.seed ^ client << 60).for_one_of_many()).collect(),
        };
        let disk = SimDisk::new();
        // Logs go through the page cache never, while the store is small, or always.
        disk.set_available_memory([0, 64 << 10, u64::MAX][(plan.seed % 3) as usize]);
        disk.set_linking(plan.links());
        Simulation {
            rng: Rng::of(plan.seed, 0x7369_6d75),
            plan,
            workloads,
            disk,
            expected: Expected::nothing(),
            epoch: 0,
            progress,
        }
    }

    fn run(mut self) -> Result<(), Failure> {
        self.set_up()?;
        while lock(&self.progress).report.operations < self.plan.operations {
            self.epoch()?;
        }
        self.note("final check".into());
        self.mend_disk();
        let db = self.open().map_err(|error| Failure(format!("open: {error}")))?;
        self.expected.check(&db).map_err(|error| Failure(format!("read everything: {error}")))??;
        db.close().map_err(|error| Failure(format!("close: {error}")))
    }

    /// Creates the keyspaces that exist during the whole run.
    fn set_up(&mut self) -> Result<(), Failure> {
        let made = self.open().and_then(|db| {
            for slot in 1..FIRST_CHANGING_SLOT {
                let operator = operator_of_slot(slot);
                db.create_keyspace(&name_of_slot(slot), options_of_slot(slot).deltas(self.plan.deltas(slot)))?;
                self.expected.base.create(&name_of_slot(slot), operator);
            }
            db.close()
        });
        made.map_err(|error| Failure(format!("set up: {error}")))
    }

    fn open(&self) -> Result<Db, Error> {
        let options = self.with_device(self.plan.options(self.epoch))?;
        testing::open(Arc::new(self.disk.clone()), Path::new(HOME), options, self.tuning())
    }

    /// The options, with the KV device on this disk if the run has one.
    fn with_device(&self, options: Options) -> Result<Options, Error> {
        match self.plan.kv_device() {
            Some(parameters) => {
                let device = testing::emulated_ssd(Arc::new(self.disk.clone()), Path::new(DEVICE), parameters)?;
                Ok(options.kv_device(device))
            }
            None => Ok(options),
        }
    }

    fn tuning(&self) -> Tuning {
        self.plan.tuning(self.epoch)
    }

    fn epoch(&mut self) -> Result<(), Failure> {
        self.epoch += 1;
        lock(&self.progress).report.epochs += 1;
        for (directory, latency) in self.plan.latencies(self.epoch) {
            self.disk.set_latency(Path::new(directory), latency);
        }
        let checkpoints = Checkpoints::new(&self.disk, self.plan.checkpoint_options(), self.tuning(), self.epoch);
        let mut world = World::new(self.epoch, self.plan.syncs_by_default()).with_checkpoints(checkpoints.clone());
        if self.plan.faults && self.plan.clients == 1 && self.rng.one_in(2) {
            world.tolerance = *self.rng.pick(&[Tolerance::FailingReads, Tolerance::FailingWrites, Tolerance::NoSpace]);
            if self.plan.vanishes(self.epoch) {
                world.tolerance = Tolerance::Vanished;
            }
            lock(&self.progress).report.faulty_epochs += 1;
        }
        // With disk faults crashes are rarer, so that the faults have time to take effect.
        let crash = !self.rng.one_in(if world.tolerance == Tolerance::Nothing { 5 } else { 2 });
        let crash_early = crash && self.rng.one_in(4);
        let mut crasher = crash_early.then(|| self.start_crasher(&world));
        let slow_spell = self.plan.slow_spell(self.epoch).map(|spell| spell.start(&self.disk));
        lock(&self.progress).report.slow_spells += u64::from(slow_spell.is_some());
        let ended = self.open_and_check(&world).and_then(|opened| match opened {
            None => Ok(Ended::Opening),
            Some((db, model)) => {
                if crash && !crash_early {
                    crasher = Some(self.start_crasher(&world));
                }
                self.work(db, model, &world)
            }
        });
        self.mend_disk();
        let image = crasher.and_then(Crasher::wait);
        let ended = ended?;
        if let Some(spell) = slow_spell {
            spell.join().map_err(|_| Failure("the thread of a slow spell panicked".into()))?;
        }
        // What was not synced may have gone with a disk.
        let lost = (world.tolerance == Tolerance::Vanished).then_some(Crash::Power(0));
        match (ended, image) {
            (Ended::Opening, Some(image)) => {
                lock(&self.progress).report.crashes_in_recovery += 1;
                self.take_over(&image, None);
            }
            (Ended::Working(expected), Some(image)) => {
                self.take_over(&image, Some(*expected));
                lost.into_iter().for_each(|crash| self.expected.crashed_again(crash));
            }
            (Ended::Working(expected), None) => {
                if world.tolerance == Tolerance::Nothing {
                    self.check_files()?;
                }
                self.close_cleanly(*expected);
                lost.into_iter().for_each(|crash| self.expected.crashed_again(crash));
            }
            (Ended::Opening, None) => {
                return Err(Failure("opening the database stopped without a crash".into()));
            }
        }
        self.bring_back()?;
        checkpoints.check_all_on(&self.disk)
    }

    /// Opens the database read-only, compares its content, and checks that no file changed.
    fn check_read_only(&self) -> Result<Result<(), Failure>, Error> {
        // The device begins a log of its own when it is opened.
        let options = self.with_device(self.plan.options_to_look().read_only(true))?;
        let content = || -> Vec<_> {
            let files = self.disk.files().into_iter();
            files.map(|(path, _)| (self.disk.read_file(&path), path)).collect()
        };
        let before = content();
        let db = testing::open(Arc::new(self.disk.clone()), Path::new(HOME), options, self.tuning())?;
        if let Err(failure) = self.expected.check(&db)? {
            return Ok(Err(Failure(format!("read only: {failure}"))));
        }
        if db.put("k", "v").is_ok() {
            return Ok(Err(Failure("a database that was opened read-only accepted a write".into())));
        }
        db.close()?;
        match content() == before {
            true => Ok(Ok(())),
            false => Ok(Err(Failure("a read-only open changed files".into()))),
        }
    }

    /// Checks that the files of a closed database are undamaged and consistent.
    fn check_files(&self) -> Result<(), Failure> {
        let options = self.with_device(self.plan.options_to_look());
        let check = |options| testing::check(Arc::new(self.disk.clone()), Path::new(HOME), &options);
        let report = options.and_then(check);
        let report = report.map_err(|error| Failure(format!("check the files: {error}")))?;
        match report.problems.first() {
            None => Ok(()),
            Some(problem) => Err(Failure(format!("check the files: {problem}"))),
        }
    }

    /// Opens the database and compares it with the expected state; `None` if the machine crashed first.
    fn open_and_check(&mut self, world: &World) -> Result<Option<(Db, Model)>, Failure> {
        if self.rng.one_in(4) {
            self.note(format!("open read-only, epoch {}", self.epoch));
            match self.check_read_only() {
                _ if world.has_crashed() => return Ok(None),
                Err(error) => return Err(Failure(format!("open read-only: {error}"))),
                Ok(checked) => checked?,
            }
        }
        self.note(format!("open, epoch {}", self.epoch));
        let checked = self.open_through_faults(world).and_then(|db| Ok((self.expected.check(&db)?, db)));
        match checked {
            Err(_) | Ok((Err(_), _)) if world.has_crashed() => Ok(None),
            Err(error) => Err(Failure(format!("open after {:?}: {error}", self.expected.crash))),
            Ok((checked, db)) => Ok(Some((db, checked?))),
        }
    }

    /// Lets the clients work until their quota is done or the machine crashes.
    fn work(&mut self, db: Db, model: Model, world: &World) -> Result<Ended, Failure> {
        let mut expected =
            Expected { base: model, page: Page::default(), epoch: self.epoch, order: Order::AsBegun, crash: None };
        if self.plan.clients == 1 {
            self.work_alone(&db, world, &expected)?;
        } else {
            expected.order = Order::Listed(self.work_together(&db, world, &expected)?);
        }
        let crashed = world.has_crashed();
        expected.page = world.ledger.page();
        self.count_jobs(&db);
        let closed = if self.rng.one_in(2) { db.close() } else { Ok(()) };
        match closed {
            Err(error) if !crashed && !world.has_crashed() && world.tolerance == Tolerance::Nothing => {
                Err(Failure(format!("close: {error}")))
            }
            _ => Ok(Ended::Working(Box::new(expected))),
        }
    }

    /// Adds up the background jobs, so that tests can assert that these paths ran.
    fn count_jobs(&self, db: &Db) {
        let stats = db.stats();
        let mut progress = lock(&self.progress);
        progress.report.compactions += stats.compactions;
        progress.report.redirects += stats.bypass.redirects_begun;
        progress.report.logs_on_device += stats.bypass.logs_born_on_device;
        progress.report.bytes_rolled_back += stats.bypass.bytes_rolled_back;
        progress.report.logs_born_slow += stats.bypass.logs_born_slow;
        progress.report.bytes_between_tiers += stats.tiers.bytes_moved;
        progress.report.compaction_subtasks += stats.compaction_subtasks.saturating_sub(stats.compactions);
        progress.report.value_gcs += stats.value_gcs;
        progress.report.value_gcs_beside += stats.value_gcs_beside;
        progress.report.compressed_bytes += stats.values_compressed_from;
        progress.report.runs += stats.seals + stats.index_merges;
        progress.report.bucket_rewrites += stats.deltas.rewrites;
        progress.report.folds += stats.deltas.folds;
        progress.report.index_splits += stats.hash.bucket_splits;
        progress.report.index_joins += stats.hash.bucket_joins;
        progress.report.index_saves += stats.hash.saves;
        progress.report.indexed_logs_freed += stats.hash.logs_freed;
        progress.report.indexed_records_moved += stats.hash.records_moved;
        progress.report.run_subtasks += stats.run_subtasks.saturating_sub(stats.seals + stats.index_merges);
    }

    /// Opens the database. With failing reads a first attempt may fail; the second one runs on a working disk.
    fn open_through_faults(&self, world: &World) -> Result<Db, Error> {
        if world.tolerance == Tolerance::FailingReads {
            self.disk.set_faults(Faults { fail_read_one_in: Some(30), ..Faults::default() });
            let opened = self.open();
            self.mend_disk();
            if let Ok(db) = opened {
                return Ok(db);
            }
        }
        self.open()
    }

    fn work_alone(&mut self, db: &Db, world: &World, expected: &Expected) -> Result<(), Failure> {
        let mut client = Client::alone(db, &expected.base, world)?;
        client.tolerate(Tolerance::Nothing);
        let operations = self.rng.between(10, 250);
        let faults_from = self.rng.below(operations);
        let faults_until = self.rng.between(faults_from, operations);
        for turn in 0..operations {
            if turn == faults_from && world.tolerance != Tolerance::Nothing {
                self.break_disk(world.tolerance);
                client.tolerate(world.tolerance);
            }
            if turn == faults_until && world.tolerance == Tolerance::Vanished {
                // The engine may not notice; what it had open is lost.
                if self.rng.one_in(2) {
                    self.come_back();
                }
            } else if turn == faults_until && world.tolerance != Tolerance::Nothing {
                self.mend_disk();
                if world.tolerance == Tolerance::NoSpace {
                    // Background jobs that wait for space check for it periodically.
                    testing::sleep(Duration::from_millis(300));
                    client.tolerate(Tolerance::SpaceAgain);
                }
            }
            let operation = self.workloads[0].next_operation();
            if world.has_crashed() || operation == Operation::Reopen {
                break;
            }
            count(&self.progress, self.plan.verbose, "", &operation);
            client.apply(&operation)?;
        }
        if matches!(world.tolerance, Tolerance::FailingWrites | Tolerance::Vanished) {
            // Reads must succeed even if writes are poisoned.
            return client.apply(&Operation::CheckAll);
        }
        Ok(())
    }

    /// Runs two clients concurrently. Returns the batch order that each of them observed.
    fn work_together(&mut self, db: &Db, world: &World, expected: &Expected) -> Result<Vec<Vec<usize>>, Failure> {
        match order::reset(db) {
            Err(_) if world.has_crashed() => return Ok(Vec::new()),
            reset => reset.map_err(|error| Failure(format!("reset the order: {error}")))?,
        }
        let operations = self.rng.between(10, 120);
        let mut threads = Vec::new();
        for (number, workload) in self.workloads.iter_mut().enumerate() {
            let mut client = match Client::among_others(db, &expected.base, world) {
                Err(_) if world.has_crashed() => break,
                client => client?,
            };
            let (mut own, world) = (workload.clone(), world.clone());
            let (progress, verbose) = (self.progress.clone(), self.plan.verbose);
            let answer = Arc::new(Mutex::new(None));
            let into = answer.clone();
            let name = format!("client {number}");
            let body = move || {
                let mut result = Ok(());
                for _ in 0..operations {
                    let operation = own.next_operation();
                    if world.has_crashed() || result.is_err() {
                        break;
                    }
                    count(&progress, verbose, &format!("client {number}: "), &operation);
                    result = client.apply(&operation);
                }
                let result = result.and_then(|()| client.apply(&Operation::CheckAll));
                *lock(&into) = Some((result.map(|()| client.into_learned()), own));
            };
            threads.push((testing::spawn(&name, body), answer));
        }
        let mut seen = Vec::new();
        for (number, (thread, answer)) in threads.into_iter().enumerate() {
            thread.join().map_err(|_| Failure(format!("client {number} panicked")))?;
            if let Some((result, workload)) = lock(&answer).take() {
                self.workloads[number] = workload;
                seen.push(result?);
            }
        }
        Ok(seen)
    }

    /// Injects disk faults that start soon.
    fn break_disk(&mut self, how: Tolerance) {
        let soon = self.rng.below(60);
        let lasting = self.rng.one_in(2);
        let mut faults = Faults { lasting, seed: self.rng.next(), ..Faults::default() };
        match how {
            Tolerance::Nothing | Tolerance::SpaceAgain => {}
            Tolerance::Vanished => {
                let Some(directory) = self.plan.vanishing_directory(self.rng.next()) else { return };
                self.note(format!("{directory} vanishes"));
                self.disk.vanish(Path::new(directory), self.rng.next());
                lock(&self.progress).report.vanished += 1;
                return;
            }
            Tolerance::FailingReads => faults.fail_read_one_in = Some(*self.rng.pick(&[2, 10, 100])),
            Tolerance::FailingWrites => match self.rng.below(3) {
                0 => faults.fail_sync_after = Some(soon / 4),
                1 => faults.fail_directory_after = Some(soon / 8),
                _ => faults.fail_write_after = Some(soon),
            },
            Tolerance::NoSpace => match self.plan.full_directory(self.rng.next()) {
                None if lasting => faults.no_space_after_bytes = Some(soon * 1000),
                None => self.disk.set_capacity(Some(self.disk.used() + soon * 1000)),
                Some(directory) => {
                    let directory = Path::new(directory);
                    let used = self.disk.used_in(directory);
                    self.disk.set_directory_capacity(directory, Some(used + soon * 1000));
                    lock(&self.progress).report.full_disks += 1;
                }
            },
        }
        faults.within = self.plan.failing_directory(self.rng.next()).map(PathBuf::from);
        self.note(format!("disk faults injected: {how:?}"));
        self.disk.set_faults(faults);
    }

    /// Removes all disk faults.
    fn mend_disk(&self) {
        self.disk.clear_faults();
        self.disk.set_capacity(None);
        for (directory, _) in self.plan.latencies(self.epoch) {
            self.disk.set_directory_capacity(Path::new(directory), None);
        }
    }

    /// Brings back the disks that are gone. Before, in some epochs, the database is opened without them: that is refused, unless
    /// they hold nothing of it; then work goes on without them.
    fn bring_back(&mut self) -> Result<(), Failure> {
        let gone = self.disk.vanished();
        // Without a file in another of its directories nothing tells that the database exists.
        let has_owner = |directory: &str| {
            let directory = Path::new(directory);
            let is_owner = |path: &Path| path.ends_with("OWNER") && path.parent() == Some(directory);
            !gone.iter().any(|gone| gone == directory) && self.disk.files().iter().any(|(path, _)| is_owner(path))
        };
        let is_known = self.plan.directories(self.epoch).into_iter().any(has_owner);
        if let (Some(gone), true) = (gone.first(), is_known && self.rng.one_in(2)) {
            self.note(format!("open without {}", gone.display()));
            lock(&self.progress).report.opened_without += 1;
            self.disk = self.disk.process_crash();
            match self.open() {
                Err(error @ (Error::Corruption { .. } | Error::Closed | Error::Locked { .. })) => {
                    return Err(Failure(format!("open without {}: {error}", gone.display())));
                }
                Err(_) => {}
                Ok(db) => {
                    let whole = |error| Failure(format!("opened without {}: {error}", gone.display()));
                    let base = self.expected.check(&db).map_err(|error| whole(error.to_string()))?;
                    let base = base.map_err(|failure| whole(failure.0))?;
                    db.close().map_err(|error| whole(error.to_string()))?;
                    self.expected = Expected { base, epoch: self.epoch, ..Expected::nothing() };
                    self.disk.forget_vanished();
                }
            }
        }
        self.come_back();
        Ok(())
    }

    fn come_back(&self) {
        for directory in self.disk.vanished() {
            self.note(format!("{} is back", directory.display()));
            self.disk.come_back(&directory);
        }
    }

    /// Starts the thread that crashes the machine after a random time.
    fn start_crasher(&mut self, world: &World) -> Crasher {
        // Delays of every order of magnitude: during the open, during the first batch, after much work.
        let magnitude = self.rng.between(3, 15);
        let after = Duration::from_micros(self.rng.below(1 << magnitude));
        let crash = if self.rng.one_in(3) { Crash::Process } else { Crash::Power(self.rng.next()) };
        Crasher::start(&self.disk, world, after, crash)
    }

    /// Continues from the disk image of a crash. `expected` is `None` if the database was not open yet.
    fn take_over(&mut self, image: &Image, expected: Option<Expected>) {
        let mut report = lock(&self.progress);
        match image.crash {
            Crash::Process => report.report.crashes += 1,
            Crash::Power(_) => report.report.power_losses += 1,
        }
        report.report.one_disk_losses += u64::from(image.of_one_disk);
        drop(report);
        self.note(format!("crash: {:?}", image.crash));
        self.disk = image.disk.clone();
        // The image inherits the capacity limit of the disk.
        self.mend_disk();
        match expected {
            Some(expected) => {
                // The image lacks writes that were acknowledged after it was taken.
                self.expected = Expected { page: image.page.clone(), crash: Some(image.crash), ..expected };
            }
            None => self.expected.crashed_again(image.crash),
        }
    }

    /// Continues after a close, in some epochs with a process crash right after it.
    fn close_cleanly(&mut self, expected: Expected) {
        self.expected = expected;
        if self.rng.one_in(3) {
            self.note("process crash after the close".into());
            self.disk = self.disk.process_crash();
        }
    }

    fn note(&self, what: String) {
        if self.plan.verbose {
            eprintln!("{what}");
        }
        lock(&self.progress).last = what;
    }
}

/// How far an epoch got.
enum Ended {
    /// The machine crashed before the database was open and checked.
    Opening,
    /// Clients worked; this is the state expected at the next open.
    Working(Box<Expected>),
}

fn count(progress: &Mutex<Progress>, verbose: bool, who: &str, operation: &Operation) {
    let mut progress = lock(progress);
    progress.report.operations += 1;
    progress.last = format!("{who}{operation:?}");
    if verbose {
        eprintln!("{:6} {}", progress.report.operations, progress.last);
    }
}
