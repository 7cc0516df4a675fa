//! Sizes the caches: block cache, value cache and operand cache get the memory that the other parts of the budget do not use.
//! The limits are in [`Tuning`](crate::engine::tuning::sizes::Tuning), the boundaries between the caches are in
//! `cache/balance.rs`. Called after changes of the front, the logs, the tables and the keyspaces.

use crate::base::memory::Counted;
use crate::base::{Error, FileId, Result};
use crate::cache::block_cache::PriorityPool;
use crate::engine::core::Core;
use crate::engine::memory::MemoryStats;
use crate::engine::tuning::front_room::FrontRoom;
use crate::engine::view::View;
use crate::format::references::FileReferences;
use crate::format::values::ValuePlace;
use crate::sched::allocator;
use crate::values::files::{Entry, ValueFile, ValueFiles};

/// The caches exceed their size by at most this part of the budget while no job runs.
const LENT_PART: usize = 8;

/// Estimated memory of a value file or a redirect table: the open file, its path and its handle, and an entry of the
/// list.
const VALUE_FILE_BYTES: usize = size_of::<ValueFile>() + size_of::<(FileId, Entry)>() + 256;
/// Estimated memory of the ledger for a file: its place and its references, in the view and in the manifest.
const LEDGER_BYTES: usize = 2 * (size_of::<(FileId, ValuePlace)>() + size_of::<(FileId, FileReferences)>());

/// Memory of the list of value files.
fn value_list_bytes(values: &ValueFiles) -> usize {
    let referenced = values.state.referenced.0.len().max(values.files.len());
    values.files.len() * VALUE_FILE_BYTES + referenced * LEDGER_BYTES
}

impl Core {
    /// Counts a run of `bytes` that is to be built, for which the caches give way.
    pub fn hold_merging(&self, bytes: usize) -> Counted {
        let held = self.memory.merging.hold(bytes);
        self.fit_cache();
        held
    }

    /// Gives the caches the memory that front, runs being built, log buffers, table readers, keyspaces and staged values do not
    /// use, and while no job runs most of the memory for jobs. Called after one of these has changed.
    pub fn fit_cache(&self) {
        let tuning = &self.settings.tuning;
        let view = self.published.view();
        // The active index table counts with its full size.
        let front = view.waiting_bytes() + tuning.index_table_bytes;
        let (merging, staged) = (self.memory.merging.get(), self.memory.staging.get());
        // What is set apart for jobs, of which values are staged unless a compaction needs it. While no job runs the caches
        // borrow most of it, but not all: blocks too large for cells fragment the memory that large buffers need.
        let held = self.memory.jobs.get();
        let jobs = match (self.work.is_compacting(), self.work.is_active()) {
            (true, _) => tuning.job_bytes.max(held) + staged,
            (false, true) => tuning.job_bytes.max(held.max(tuning.job_bytes / 2) + staged),
            (false, false) => tuning.job_bytes / 4 + staged,
        };
        let lent = tuning.job_bytes.saturating_sub(jobs).min(tuning.memory_bytes / LENT_PART);
        let logs = self.logs.buffer_bytes(tuning);
        let lists = self.lists_bytes(&view) + self.keyspaces.index_bytes();
        let others = logs + merging + jobs + front + lists;
        let left = tuning.memory_bytes.saturating_sub(others);
        let most = tuning.cache_bytes + tuning.log_buffer_bytes() - logs + lent;
        let capacity = left.clamp(tuning.cache_bytes_min, most) as u64;
        let for_operands = match (view.directory.seqnos(), tuning.operand_cache_bytes) {
            (None, _) => 0,
            (Some(_), None) => self.memory.operand_balance.share_of(capacity),
            (Some(_), Some(bytes)) => (bytes as u64).min(capacity / 2),
        };
        let capacity = capacity - for_operands;
        let for_values = match view.values.files.is_empty() && !self.memory.value_cache.has_folds() {
            true => 0,
            false => self.memory.balance.share_of(capacity),
        };
        let (blocks, values, operands) = (&self.readers.cache, &self.memory.value_cache, &self.memory.operands);
        let for_blocks = capacity - for_values;
        // Small changes are not worth the cost of resizing a cache.
        let differs = |wanted: u64, has: u64| wanted.abs_diff(has) > tuning.memory_bytes as u64 / 128;
        let is_off = |wanted: u64, has: u64| (wanted == 0) != (has == 0);
        let now = [blocks.capacity(), values.capacity(), operands.capacity()];
        let wanted = [for_blocks, for_values, for_operands];
        let mut changes = wanted.into_iter().zip(now);
        if changes.any(|(wanted, has)| differs(wanted, has) || is_off(wanted, has)) {
            // Shrink before growing.
            for grows in [false, true] {
                if (for_operands > operands.capacity()) == grows {
                    operands.set_capacity(for_operands);
                }
                if (for_values > values.capacity()) == grows {
                    values.set_capacity(for_values);
                }
                if (for_blocks > blocks.capacity()) == grows {
                    blocks.set_capacity(for_blocks);
                }
            }
        }
    }

    /// Gives memory back to the system that the caches and jobs do not need any more. Takes milliseconds: for background
    /// threads.
    pub fn release_memory(&self) {
        self.readers.cache.pack();
        self.memory.value_cache.pack();
        allocator::release_free_memory();
    }

    /// Bytes that the caches can give now.
    pub fn spare_of_caches(&self) -> usize {
        let caches = self.readers.cache.capacity() + self.memory.value_cache.capacity();
        (caches as usize).saturating_sub(self.settings.tuning.cache_bytes_min)
    }

    /// Takes memory from the caches, until it is dropped; they grow again at the next review after that.
    pub fn borrow_from_caches(&self, bytes: usize) -> Counted {
        let lent = self.memory.staging.hold(bytes);
        self.fit_cache();
        self.release_memory();
        lent
    }

    /// Memory of table readers, keyspaces, and the lists of files and buckets.
    fn lists_bytes(&self, view: &View) -> usize {
        let keyspaces = self.keyspaces.bytes();
        self.readers.resident.get() + keyspaces + value_list_bytes(&view.values) + view.directory.memory_bytes()
    }

    /// Memory limit of table readers and keyspaces together: the caches shrink for them down to their least size, and hash
    /// indexes leave a part.
    fn resident_bytes_max(&self) -> usize {
        self.settings.tuning.lists_bytes_max(self.keyspaces.index_bytes())
    }

    /// What the front may hold beside hash indexes.
    pub fn front_room(&self, view: &View) -> FrontRoom {
        let indexes = self.keyspaces.index_bytes();
        let held = if indexes == 0 { 0 } else { indexes + self.lists_bytes(view) };
        self.settings.tuning.front_room(held)
    }

    /// The most memory of hash indexes for which they take new keys.
    pub fn hash_index_bytes_max(&self, view: &View) -> usize {
        self.settings.tuning.hash_index_bytes_max(self.lists_bytes(view))
    }

    /// Rejects a new keyspace if keyspaces and table readers use three quarters of their memory limit.
    pub fn check_keyspace_memory(&self) -> Result<()> {
        let used = self.keyspaces.bytes() + self.readers.resident.get();
        let most = self.resident_bytes_max() / 4 * 3;
        if used < most || self.settings.tuning.memory_bytes != self.settings.memory_budget {
            return Ok(());
        }
        let (count, budget) = (self.keyspaces.len(), self.settings.memory_budget);
        Err(Error::input(format!(
            "{count} keyspaces and the tables take {used} B of memory, and memory_budget {budget} allows {most} B for them"
        )))
    }

    /// The size at which compactions cut tables. It grows if the readers of many small tables take too much memory.
    pub fn table_bytes(&self) -> u64 {
        let share = (self.resident_bytes_max() / 4).max(1);
        self.settings.tuning.table_bytes * (1 + (self.readers.resident.get() / share) as u64)
    }

    /// Memory by use, now.
    pub fn memory_stats(&self, view: &View) -> MemoryStats {
        let (cache, values) = (&self.readers.cache, &self.memory.value_cache);
        let pinned_values = values.pinned_bytes(self.memory.values.get());
        let run_bytes: usize = view.runs.iter().map(|run| run.block_bytes()).sum();
        let merging_bytes = self.memory.merging.get();
        let old_run_bytes = self.memory.runs.get().saturating_sub(run_bytes + merging_bytes);
        MemoryStats {
            front_bytes: view.front_bytes(),
            merging_bytes,
            job_bytes: self.memory.jobs.get() + self.memory.staging.get(),
            cache_bytes: cache.weight() as usize,
            cache_bytes_max: cache.capacity() as usize,
            cache_index_bytes: cache.weight_of(PriorityPool::Metadata) as usize,
            value_cache_bytes: values.weight() as usize,
            value_cache_bytes_max: values.capacity() as usize,
            log_buffer_bytes: self.logs.buffer_bytes(&self.settings.tuning),
            table_reader_bytes: self.readers.resident.get(),
            keyspace_bytes: self.keyspaces.bytes(),
            value_list_bytes: value_list_bytes(&view.values),
            bucket_bytes: view.directory.memory_bytes(),
            hash_index_bytes: self.keyspaces.index_bytes(),
            operand_cache_bytes: self.memory.operands.weight() as usize,
            operand_cache_bytes_max: self.memory.operands.capacity() as usize,
            pinned_bytes: cache.pinned_bytes() + pinned_values + self.memory.scans.get() + old_run_bytes,
        }
    }

    /// True if the caches have gathered enough demand figures to review a boundary between them.
    pub fn caches_want_balance(&self) -> bool {
        let memory = &self.memory;
        let (blocks, values) = (self.readers.cache.demand(), memory.value_cache.ghosts().demand());
        let operands = &memory.operands;
        memory.balance.is_due(blocks, values)
            || operands.capacity() > 0 && memory.operand_balance.is_due(blocks.plus(values), operands.demand())
    }
}
