//! The settings of a run, all determined by its seed: number of clients, log backend, options, sizes, disk faults.

use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{Canary, Spread, Tuning};
use cleavedb::{
    Bypass, Compression, DeltaPlacement, Durability, LogBackend, Options, Rollback, Scheduling, SsdParameters,
};
use cleavedb::{ValuePlacement, ValueReordering, VictimPolicy};

use crate::operator::Chain;
use crate::rng::Rng;
use crate::slow_spell::SlowSpell;

/// Directory of the database on the simulated disk.
pub const HOME: &str = "/db";

/// The fast directory, of a database with two.
pub const FAST: &str = "/fast";
const SLOW: &str = "/slow";
const OTHER: &str = "/other";

/// Where the files of an emulated KV device lie.
pub const DEVICE: &str = "/device";

/// What writers do if there is a device.
const WITH_DEVICE: [Bypass; 5] = [
    Bypass::Device(Rollback::Eager),
    Bypass::Device(Rollback::Lazy),
    Bypass::Device(Rollback::Lazy),
    Bypass::Off,
    Bypass::Spill,
];

/// Which logs the runs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// The memory-mapped ring file in front of large direct writes.
    Ring,
    /// Plain writes.
    Plain,
    /// The seed selects one.
    Both,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Determines everything that is drawn.
    pub seed: u64,
    /// Operations of all clients together.
    pub operations: u64,
    /// One client checks more; two share commit groups.
    pub clients: u64,
    /// The log backend.
    pub backend: LogBackend,
    /// Some epochs inject disk faults that the engine sees as I/O errors.
    pub faults: bool,
    /// A planted bug.
    pub canary: Option<Canary>,
    /// Prints every operation.
    pub verbose: bool,
    durability: Durability,
    compression: Compression,
    block_size: usize,
    filter_bits: u32,
    background_threads: usize,
    two_directories: bool,
    kv_device: bool,
    direct_io: bool,
}

impl Plan {
    /// The run of a seed.
    pub fn new(seed: u64, operations: u64, backend: Backend) -> Plan {
        let kv_device = Rng::of(seed, 0x6b76_6465).one_in(4);
        let mut rng = Rng::of(seed, 0x706c_616e);
        let drawn = *rng.pick(&[LogBackend::Ring, LogBackend::Plain]);
        Plan {
            seed,
            operations,
            clients: *rng.pick(&[1, 1, 2]),
            backend: match backend {
                Backend::Ring => LogBackend::Ring,
                Backend::Plain => LogBackend::Plain,
                Backend::Both => drawn,
            },
            faults: rng.one_in(3),
            canary: None,
            verbose: false,
            durability: *rng.pick(&[
                Durability::Buffered,
                Durability::Buffered,
                Durability::Sync,
                Durability::Interval(Duration::from_millis(5)),
            ]),
            compression: *rng.pick(&[Compression::Lz4, Compression::None]),
            block_size: *rng.pick(&[512, 4096, 4096]),
            filter_bits: *rng.pick(&[0, 10, 10]),
            background_threads: *rng.pick(&[1, 2, 2, 4]),
            two_directories: rng.one_in(3),
            kv_device,
            direct_io: rng.one_in(4),
        }
    }

    /// True if the default durability is `Sync`.
    pub fn syncs_by_default(&self) -> bool {
        matches!(self.durability, Durability::Sync)
    }

    /// The options to open with for writing: in each epoch other directories, another budget of the fast tier, and another way
    /// to schedule background work.
    pub fn options(&self, epoch: u64) -> Options {
        let mut rng = Rng::of(self.seed.wrapping_add(epoch), 0x6275_6467);
        let mut scheduled = Rng::of(self.seed.wrapping_add(epoch), 0x7363_6865);
        let fixed = |merge_runs, flush_bytes| Scheduling::Static { merge_runs, flush_bytes: Some(flush_bytes) };
        let policies = [
            Scheduling::Auto,
            Scheduling::Auto,
            Scheduling::AutoFixedLevels,
            Scheduling::Adoc,
            fixed(Some(4), 4 << 10),
            fixed(None, 1 << 20),
        ];
        let options = self
            .checkpoint_options()
            .scheduling(*scheduled.pick(&policies))
            .background_io_limit(*scheduled.pick(&[None, None, Some(1 << 20), Some(64 << 20)]))
            .bypass(*scheduled.pick(if self.kv_device { &WITH_DEVICE } else { &[Bypass::Off, Bypass::Spill] }));
        let Some(slow) = self.slow_directory(epoch) else { return options };
        let options = options.fast_dir(FAST).slow_dir(slow);
        match slow != FAST && rng.one_in(2) {
            true => options.fast_bytes(*rng.pick(&[400 << 10, 700 << 10, 2 << 20])),
            false => options,
        }
    }

    /// The slow directory of an epoch, beside [`FAST`], in runs with two.
    pub fn slow_directory(&self, epoch: u64) -> Option<&'static str> {
        let mut rng = Rng::of(self.seed.wrapping_add(epoch), 0x7469_6572);
        self.two_directories.then(|| *rng.pick(&[SLOW, SLOW, OTHER, FAST]))
    }

    /// What an emulated KV device is like, in runs that have one.
    pub fn kv_device(&self) -> Option<SsdParameters> {
        let parameters = SsdParameters { memtable_bytes: 16 << 10, ..SsdParameters::unthrottled() };
        // Half of it belongs to the key-value side: few logs, or many.
        let capacity = if self.seed.is_multiple_of(5) { 512 << 10 } else { 16 << 20 };
        self.kv_device.then(|| parameters.with_capacity(capacity))
    }

    /// The directories that have a disk each; none if everything lies on one.
    fn disks(&self) -> Vec<&'static str> {
        let tiers: &[&str] = match (self.two_directories, self.kv_device) {
            (true, _) => &[FAST, SLOW, OTHER],
            (false, true) => &[HOME],
            (false, false) => &[],
        };
        tiers.iter().copied().chain(self.kv_device.then_some(DEVICE)).collect()
    }

    /// True if one of several disks fails, or vanishes, or is full in some epochs.
    pub fn breaks_one_disk(&self) -> bool {
        self.faults && self.clients == 1 && !self.disks().is_empty()
    }

    /// How long an operation on each directory takes in an epoch: two disks are not equally fast.
    pub fn latencies(&self, epoch: u64) -> Vec<(&'static str, Duration)> {
        let mut rng = Rng::of(self.seed.wrapping_add(epoch), 0x6c61_7465);
        let mut latency_of = |directory| {
            let micros: &[u64] = match directory {
                FAST => &[0, 0, 2],
                OTHER => &[0, 40],
                _ => &[0, 0, 20, 200],
            };
            (directory, Duration::from_micros(*rng.pick(micros)))
        };
        self.disks().into_iter().map(&mut latency_of).collect()
    }

    /// A time in an epoch in which one of two disks is far slower than else.
    pub fn slow_spell(&self, epoch: u64) -> Option<SlowSpell> {
        let mut rng = Rng::of(self.seed.wrapping_add(epoch), 0x736c_6f77);
        let mut up_to = |micros: u64| Duration::from_micros(rng.below(micros));
        let (after, lasts) = (up_to(20_000), up_to(200_000));
        let latency = *rng.pick(&[500, 3_000, 20_000]);
        let latencies = self.latencies(epoch);
        if latencies.is_empty() || !rng.one_in(3) {
            return None;
        }
        let (directory, usual) = *rng.pick(&latencies);
        Some(SlowSpell { directory, after, lasts, latency: Duration::from_micros(latency), usual })
    }

    /// True if the disk of one of several directories vanishes in an epoch, in place of other faults. A run with a planted bug
    /// is about that bug.
    pub fn vanishes(&self, epoch: u64) -> bool {
        let mut rng = Rng::of(self.seed.wrapping_add(epoch), 0x7661_6e69);
        self.breaks_one_disk() && self.canary.is_none() && rng.one_in(2)
    }

    /// The directory on whose disk faults occur, if only one of several fails.
    pub fn failing_directory(&self, drawn: u64) -> Option<&'static str> {
        let directories: Vec<_> = [None].into_iter().chain(self.disks().into_iter().map(Some)).collect();
        directories[drawn as usize % directories.len()]
    }

    /// The directory whose disk vanishes; `None` if everything lies on one.
    pub fn vanishing_directory(&self, drawn: u64) -> Option<&'static str> {
        let disks = self.disks();
        self.failing_directory(drawn).or_else(|| disks.first().copied())
    }

    /// The directories of the database in an epoch, without its KV device.
    pub fn directories(&self, epoch: u64) -> Vec<&'static str> {
        match self.slow_directory(epoch) {
            Some(slow) => vec![FAST, slow],
            None => vec![HOME],
        }
    }

    /// The directory whose disk is full, or `None` if all disks are. The disk of a KV device is not: a device promises the space
    /// of a log from its beginning, and one in files cannot keep that while others fill its disk.
    pub fn full_directory(&self, drawn: u64) -> Option<&'static str> {
        let full = self.failing_directory(drawn).filter(|directory| *directory != DEVICE);
        full.or_else(|| self.kv_device.then(|| self.disks()[0]))
    }

    /// The options to look at the database, wherever its files lie.
    pub fn options_to_look(&self) -> Options {
        let options = self.checkpoint_options();
        if self.two_directories { options.fast_dir(FAST).slow_dir(FAST) } else { options }
    }

    /// Where the keyspace in a slot keeps its merge operands at first.
    pub fn deltas(&self, slot: u8) -> DeltaPlacement {
        let mut rng = Rng::of(self.seed.wrapping_add(slot.into()), 0x6465_6c74);
        *rng.pick(&[DeltaPlacement::Levels, DeltaPlacement::Buckets, DeltaPlacement::Buckets])
    }

    /// True if the disk of this run supports hard links.
    pub fn links(&self) -> bool {
        !self.seed.is_multiple_of(3)
    }

    /// The options for a checkpoint, which is in one directory.
    pub fn checkpoint_options(&self) -> Options {
        Options::new()
            .merge_operator(Arc::new(Chain))
            .durability(self.durability)
            .compression(self.compression)
            .block_size(self.block_size)
            .filter_bits(self.filter_bits)
            .background_threads(self.background_threads)
            .direct_io(self.direct_io)
            .log_backend(self.backend)
    }

    /// The sizes to open with: small, so that a few hundred operations fill logs, runs and levels, and in varying
    /// proportions. All opens of a run use the same sizes; only the compression of moved values varies.
    pub fn tuning(&self, epoch: u64) -> Tuning {
        let mut rng = Rng::of(self.seed, 0x7475_6e65);
        let mut tuning = Tuning::tiny();
        tuning.canary = self.canary;
        if self.kv_device {
            // Writers are soon ahead of background work.
            (tuning.logs_bytes_max, tuning.replay_bytes_max) = (24 << 10, 24 << 10);
        }
        let mut of_hashes = Rng::of(self.seed, 0x6861_7368);
        tuning.hash_spread =
            *of_hashes.pick(&[Spread::Even, Spread::OneShard, Spread::Deep, Spread::Deep, Spread::Few]);
        tuning.index_save_part = *of_hashes.pick(&[0, 0, 3]);
        tuning.hash_slack_logs = *of_hashes.pick(&[0, 0, 3]);
        tuning.index_save_bytes = *of_hashes.pick(&[2 << 10, 16 << 10, 64 << 10]);
        let mut of_epoch = Rng::of(self.seed.wrapping_add(epoch), 0x7368_726b);
        tuning.value_compression = *of_epoch.pick(&[Compression::Lz4, Compression::None]);
        if rng.one_in(4) {
            return tuning;
        }
        tuning.index_table_bytes = *rng.pick(&[1 << 10, 4 << 10, 32 << 10]);
        tuning.flush_bytes = *rng.pick(&[4 << 10, 16 << 10, 128 << 10]);
        tuning.compacts_when_idle = !rng.one_in(4);
        tuning.index_merge_runs = *rng.pick(&[2, 2, 4]);
        tuning.log_bytes = *rng.pick(&[16 << 10, 64 << 10, 256 << 10]);
        tuning.chunk_bytes = *rng.pick(&[4 << 10, 8 << 10]);
        tuning.ring_bytes = tuning.chunk_bytes * *rng.pick(&[4, 8]);
        tuning.chunk_threads = *rng.pick(&[1, 2, 4]);
        tuning.chunk_buffers = tuning.chunk_threads + *rng.pick(&[1, 4, 12]);
        tuning.separation_bytes = *rng.pick(&[1, 64, 192, 192, usize::MAX]);
        let log = |look_up_each| ValuePlacement::Log { look_up_each };
        tuning.placement = *rng.pick(&[ValuePlacement::Hash, ValuePlacement::Range, log(false), log(true)]);
        tuning.victims = *rng.pick(&[VictimPolicy::Greedy, VictimPolicy::CostBenefit, VictimPolicy::GreedyRandom(2)]);
        let reordering = [ValueReordering::WhenScanned, ValueReordering::WhenIdle, ValueReordering::Never];
        tuning.reordering = *rng.pick(&reordering);
        tuning.hot_cold = rng.one_in(2);
        tuning.surveyed_records_max = *rng.pick(&[0, 20, 300, 10_000]);
        tuning.survey_bytes = *rng.pick(&[0, 400, 4 << 10, 64 << 10]);
        tuning.group_bytes = *rng.pick(&[4 << 10, 16 << 10, 64 << 10]);
        tuning.garbage_bytes = *rng.pick(&[0, 4 << 10, 32 << 10]);
        tuning.garbage_percent = *rng.pick(&[5, 30, 60]);
        tuning.collects_when_idle = *rng.pick(&[false, true]);
        tuning.stale_percent = *rng.pick(&[0, 50, 100]);
        tuning.cache_bytes = *rng.pick(&[4 << 10, 256 << 10]);
        tuning.table_bytes = *rng.pick(&[4 << 10, 16 << 10, 64 << 10]);
        tuning.level_base_bytes = *rng.pick(&[16 << 10, 64 << 10]);
        tuning.hl0_compact_tables = *rng.pick(&[2, 4]);
        tuning.hl0_stop_tables = tuning.hl0_compact_tables + *rng.pick(&[2, 20]);
        tuning.close_flush_bytes = *rng.pick(&[0, 24 << 10, 1 << 20]);
        tuning.manifest_bytes = *rng.pick(&[1 << 10, 16 << 10]);
        // In less, buffers of logs and jobs leave hash indexes nothing.
        tuning.memory_bytes = *rng.pick(&[700 << 10, 1 << 20]);
        tuning.fetch_bytes = *rng.pick(&[1 << 10, 32 << 10, 256 << 10]);
        tuning.read_ahead_bytes = *rng.pick(&[0, 32 << 10, 256 << 10]);
        tuning.write_bytes = *rng.pick(&[4 << 10, 16 << 10, 1 << 20]);
        tuning.compactions_max = *rng.pick(&[1, 2, 4]);
        tuning.open_files_max = *rng.pick(&[1, 3, 100]);
        tuning.numbers_reserved = *rng.pick(&[16, 24, 100]);
        // Logs and the ring either grow or have their full size from the beginning.
        tuning.log_bytes_min = *rng.pick(&[8 << 10, 16 << 10, 1 << 20]);
        tuning.ring_bytes_min = *rng.pick(&[16 << 10, 16 << 10, 1 << 20]);
        tuning.bucket_bytes = *rng.pick(&[300, 2 << 10, 16 << 10]);
        tuning.bucket_extents_max = *rng.pick(&[1, 3, 8]);
        tuning.buckets_max = *rng.pick(&[1, 6, 100]);
        tuning.bucket_split_percent = *rng.pick(&[None, Some(10), Some(80)]);
        tuning
    }

    /// A short description of the run.
    pub fn describe(&self) -> String {
        let many = if self.clients == 1 { "one client" } else { "two clients" };
        let faults = if self.faults { ", faults" } else { "" };
        format!("{many}, {:?} log, {:?} by default{faults}", self.backend, self.durability)
    }
}
