//! What a run did: what happened to it, and which background jobs ran.

use std::fmt;

/// Totals of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations applied.
    pub operations: u64,
    /// Opens of the database.
    pub epochs: u64,
    /// Process crashes.
    pub crashes: u64,
    /// Power losses.
    pub power_losses: u64,
    /// Of these, those in which one of several disks lost power alone, or kept it alone.
    pub one_disk_losses: u64,
    /// Crashes during recovery.
    pub crashes_in_recovery: u64,
    /// Epochs with disk faults.
    pub faulty_epochs: u64,
    /// Epochs in which the disk of one directory vanished, and those opened while it was still gone.
    pub vanished: u64,
    /// See `vanished`.
    pub opened_without: u64,
    /// How often one of several disks was full.
    pub full_disks: u64,
    /// Epochs in which one disk was far slower for a while.
    pub slow_spells: u64,
    /// Bytes of files that moved between tiers, and logs that were born on the slow one.
    pub bytes_between_tiers: u64,
    /// See `bytes_between_tiers`.
    pub logs_born_slow: u64,
    /// How often writers began to go around background work.
    pub redirects: u64,
    /// Logs that were born on a KV device, and bytes of such logs that have left it.
    pub logs_on_device: u64,
    /// See `logs_on_device`.
    pub bytes_rolled_back: u64,
    /// Compactions that ran before the database was closed or crashed.
    pub compactions: u64,
    /// Their subtasks, not counting the first of each.
    pub compaction_subtasks: u64,
    /// Value GC jobs.
    pub value_gcs: u64,
    /// Of these, those that began while another was running.
    pub value_gcs_beside: u64,
    /// Bytes of values that these jobs compressed.
    pub compressed_bytes: u64,
    /// Runs written by seals and index merges.
    pub runs: u64,
    /// Their subtasks, not counting the first of each.
    pub run_subtasks: u64,
    /// Buckets of operands that were rewritten, split or joined, and keys folded in them.
    pub bucket_rewrites: u64,
    /// See `bucket_rewrites`.
    pub folds: u64,
    /// How often buckets of the indexes of hash keyspaces were split, and joined.
    pub index_splits: u64,
    /// See `index_splits`.
    pub index_joins: u64,
    /// How often these indexes were saved.
    pub index_saves: u64,
    /// Logs of records of hash keyspaces that were freed, and records that were written again for that.
    pub indexed_logs_freed: u64,
    /// See `indexed_logs_freed`.
    pub indexed_records_moved: u64,
    /// Hash of every scheduling decision; equal runs have equal digests.
    pub digest: u64,
}

impl Report {
    /// Adds up the counts of another run.
    pub fn add(&mut self, other: &Report) {
        self.operations += other.operations;
        self.epochs += other.epochs;
        self.crashes += other.crashes;
        self.power_losses += other.power_losses;
        self.one_disk_losses += other.one_disk_losses;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.faulty_epochs += other.faulty_epochs;
        self.vanished += other.vanished;
        self.opened_without += other.opened_without;
        self.full_disks += other.full_disks;
        self.slow_spells += other.slow_spells;
        self.bytes_between_tiers += other.bytes_between_tiers;
        self.logs_born_slow += other.logs_born_slow;
        self.redirects += other.redirects;
        self.logs_on_device += other.logs_on_device;
        self.bytes_rolled_back += other.bytes_rolled_back;
        self.compactions += other.compactions;
        self.compaction_subtasks += other.compaction_subtasks;
        self.value_gcs += other.value_gcs;
        self.value_gcs_beside += other.value_gcs_beside;
        self.compressed_bytes += other.compressed_bytes;
        self.runs += other.runs;
        self.run_subtasks += other.run_subtasks;
        self.bucket_rewrites += other.bucket_rewrites;
        self.folds += other.folds;
        self.index_splits += other.index_splits;
        self.index_joins += other.index_joins;
        self.index_saves += other.index_saves;
        self.indexed_logs_freed += other.indexed_logs_freed;
        self.indexed_records_moved += other.indexed_records_moved;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} opens, {} process crashes, {} power losses ({} of one disk; {} crashes during recovery), ",
            self.operations,
            self.epochs,
            self.crashes,
            self.power_losses,
            self.one_disk_losses,
            self.crashes_in_recovery
        )?;
        write!(
            f,
            "{} epochs with disk faults (in {} of them a disk vanished, {} opens without it; {} full disks), {} with a slow \
             spell; ",
            self.faulty_epochs, self.vanished, self.opened_without, self.full_disks, self.slow_spells
        )?;
        write!(
            f,
            "{} B moved between tiers, {} logs born on the slow one; {} redirects, {} logs on a KV device, {} B rolled back; ",
            self.bytes_between_tiers, self.logs_born_slow, self.redirects, self.logs_on_device, self.bytes_rolled_back
        )?;
        write!(
            f,
            "{} compactions with {} additional subtasks, {} value GC jobs ({} beside others) that compressed {} B of values, \
             {} runs written with {} additional subtasks; ",
            self.compactions,
            self.compaction_subtasks,
            self.value_gcs,
            self.value_gcs_beside,
            self.compressed_bytes,
            self.runs,
            self.run_subtasks
        )?;
        write!(
            f,
            "{} buckets of operands rewritten, {} folds; {} splits and {} joins in indexes of hash keyspaces, which were saved \
             {} times, {} of their logs freed, {} records moved",
            self.bucket_rewrites,
            self.folds,
            self.index_splits,
            self.index_joins,
            self.index_saves,
            self.indexed_logs_freed,
            self.indexed_records_moved
        )
    }
}
