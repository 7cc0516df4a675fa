//! What a seed makes of a run: how many clients, which log, what breaks and when.

use cleavedb::testing::{Canary, Tuning};
use cleavedb::{Compression, Durability, LogBackend, Options};

use crate::rng::Rng;

/// Which logs the runs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// The mapped ring file in front of large direct writes.
    Ring,
    /// Plain writes.
    Plain,
    /// The seed decides.
    Both,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Everything that is drawn follows from it.
    pub seed: u64,
    /// How many operations the clients do in all.
    pub operations: u64,
    /// One client checks more; two meet each other in commit groups.
    pub clients: u64,
    /// The log.
    pub backend: LogBackend,
    /// Disks fail now and then, in a way that the engine is told of.
    pub faults: bool,
    /// A planted bug.
    pub canary: Option<Canary>,
    /// Prints every operation.
    pub verbose: bool,
    durability: Durability,
    compression: Compression,
    block_size: usize,
    filter_bits: u32,
}

impl Plan {
    /// The run of a seed.
    pub fn new(seed: u64, operations: u64, backend: Backend) -> Plan {
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
                Durability::Interval(std::time::Duration::from_millis(5)),
            ]),
            compression: *rng.pick(&[Compression::Lz4, Compression::None]),
            block_size: *rng.pick(&[512, 4096, 4096]),
            filter_bits: *rng.pick(&[0, 10, 10]),
        }
    }

    /// The database's default acknowledges when it is durable.
    pub fn syncs_by_default(&self) -> bool {
        matches!(self.durability, Durability::Sync)
    }

    /// The options to open with.
    pub fn options(&self) -> Options {
        Options::new()
            .durability(self.durability)
            .compression(self.compression)
            .block_size(self.block_size)
            .filter_bits(self.filter_bits)
            .log_backend(self.backend)
    }

    /// The sizes to open with: small, so that a few hundred operations fill logs, runs and levels.
    pub fn tuning(&self) -> Tuning {
        let mut tuning = Tuning::tiny();
        tuning.canary = self.canary;
        tuning
    }

    /// The run in a few words.
    pub fn describe(&self) -> String {
        let many = if self.clients == 1 { "one client" } else { "two clients" };
        let faults = if self.faults { ", faults" } else { "" };
        format!(
            "{many}, {:?} log, {:?} by default{faults}",
            self.backend, self.durability
        )
    }
}
