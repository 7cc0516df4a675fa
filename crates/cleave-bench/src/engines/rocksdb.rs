//! RocksDB, with and without blob files. Memtables are charged to the block cache, so that both together are within the
//! memory budget; index and filter blocks are in the cache too.

use std::time::Duration;

use cleavedb::MergeOperator;
use cleavedb::operators::Patches;
use rocksdb::properties::{ACTUAL_DELAYED_WRITE_RATE, CUR_SIZE_ALL_MEM_TABLES, DBSTATS, IS_WRITE_STOPPED};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBPath, Error, MergeOperands, Options, ReadOptions,
    WaitForCompactOptions, WriteBatch, WriteBufferManager, WriteOptions,
};

use crate::engine::{Compression, Durability, Engine, HELD, Kind, Memory, Merges, NO_SLOWDOWN, Settings};
use crate::failure::{Failure, Result};
use crate::waiting::WriterWaits;

/// `rocksdb`.
pub const ROCKSDB: Kind = Kind {
    name: "rocksdb",
    version: env!("VERSION_ROCKSDB"),
    merges: Merges::Native,
    notes: &["memtables charged to the block cache, up to half of it"],
    notes_of: |settings| tiers(settings).collect(),
    direct_io: true,
    buffered_survives_kill: true,
    open: |settings| open(settings, Variant::Tables),
};

/// `rocksdb-no-slowdown`.
pub const ROCKSDB_NO_SLOWDOWN: Kind = Kind {
    name: NO_SLOWDOWN,
    notes: &[
        "memtables charged to the block cache, up to half of it",
        "writers are never slowed down, only stopped: level0_slowdown_writes_trigger is the trigger that stops them, and so is the \
         limit of pending compaction bytes",
    ],
    open: |settings| open(settings, Variant::NoSlowdown),
    ..ROCKSDB
};

/// `rocksdb-held`.
pub const ROCKSDB_HELD: Kind = Kind {
    name: HELD,
    notes_of: |settings| {
        let sentence = "the log on the fast tier, at most half of --fast-bytes if given, and all tables on the slow tier: the first \
                        directory of db_paths takes all of level 0, whatever its size";
        settings.dirs.slow.is_some().then_some(sentence).into_iter().collect()
    },
    open: |settings| open(settings, Variant::Held),
    ..ROCKSDB
};

/// `blobdb`.
pub const BLOBDB: Kind = Kind {
    name: "blobdb",
    version: env!("VERSION_ROCKSDB"),
    merges: Merges::Native,
    notes: &[
        "memtables charged to the block cache, up to half of it",
        "values of 128 bytes and more in blob files, with garbage collection that reads 2 MiB ahead; they share the block cache",
    ],
    notes_of: |settings| {
        let blobs =
            settings.dirs.slow.is_some().then_some("all blob files are on the fast tier, where RocksDB puts them");
        tiers(settings).chain(blobs).collect()
    },
    direct_io: true,
    buffered_survives_kill: true,
    open: |settings| open(settings, Variant::Blobs),
};

/// What differs between the engines of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// Values in tables.
    Tables,
    /// The same, without slowdowns.
    NoSlowdown,
    /// The same, with all tables on the slow tier.
    Held,
    /// Values in blob files.
    Blobs,
}

/// RocksDB's default number of files in level 0 that stops writers. Level 0 slows them down at the same number, so never.
const STOP_TRIGGER: i32 = 36;
/// RocksDB's default limit of pending compaction bytes, at which it stops writers.
const PENDING_BYTES_STOP: usize = 256 << 30;
/// What precedes the total time of stalls in RocksDB's statistics.
const STALL_LINE: &str = "Cumulative stall:";
/// Values of at least this size go to blob files.
const BLOB_BYTES_MIN: u64 = 128;
/// What garbage collection of blob files reads at once; by default it reads each value on its own, which with direct I/O is
/// slower by an order of magnitude.
const BLOB_READ_AHEAD: u64 = 2 << 20;
/// A scan that passes this many neighbouring tombstones writes a range tombstone for them; off by default. The crate has no
/// method for this option.
const SCANNED_TOMBSTONES: &str = "min_tombstones_for_range_conversion=16";

struct Rocks {
    db: DB,
    write: WriteOptions,
    cache: Cache,
    buffers: WriteBufferManager,
}

fn tiers(settings: &Settings) -> impl Iterator<Item = &'static str> + use<> {
    let sentence = "the log on the fast tier, tables there up to --fast-bytes and then on the slow tier";
    settings.dirs.slow.is_some().then_some(sentence).into_iter()
}

fn open(settings: &Settings, variant: Variant) -> Result<Box<dyn Engine>> {
    let cache = Cache::new_lru_cache(settings.memory);
    let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(settings.memory / 2, false, cache.clone());
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_bloom_filter(10.0, false);

    let mut options = Options::default().get_options_from_string(SCANNED_TOMBSTONES).map_err(failed)?;
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_manager(&buffers);
    options.set_write_buffer_size((settings.memory / 8).clamp(1 << 20, 64 << 20));
    let compression = match settings.compression {
        Some(Compression::None) => DBCompressionType::None,
        Some(Compression::Lz4) | None => DBCompressionType::Lz4,
    };
    options.set_compression_type(compression);
    options.set_use_direct_reads(settings.direct);
    options.set_use_direct_io_for_flush_and_compaction(settings.direct);
    options.set_max_background_jobs(i32::try_from(settings.background_threads).unwrap_or(i32::MAX));
    options.set_merge_operator("patches", full_merge, partial_merge);
    if variant == Variant::NoSlowdown {
        options.set_level_zero_slowdown_writes_trigger(STOP_TRIGGER);
        options.set_level_zero_stop_writes_trigger(STOP_TRIGGER);
        options.set_soft_pending_compaction_bytes_limit(PENDING_BYTES_STOP);
        options.set_hard_pending_compaction_bytes_limit(PENDING_BYTES_STOP);
    }
    if variant == Variant::Blobs {
        options.set_enable_blob_files(true);
        options.set_min_blob_size(BLOB_BYTES_MIN);
        options.set_enable_blob_gc(true);
        options.set_blob_compaction_readahead_size(BLOB_READ_AHEAD);
        options.set_blob_compression_type(compression);
        // Otherwise values would be cached only by the page cache, outside the memory budget.
        options.set_blob_cache(&cache);
    }
    let dirs = &settings.dirs;
    if let Some(slow) = &dirs.slow {
        let fast = dirs.fast.as_ref().unwrap_or(&dirs.main);
        options.set_wal_dir(fast);
        // The log is always on the fast tier, and so is level 0 unless the slow directory is the only one; without --fast-bytes
        // nothing else is.
        let paths = [(fast, dirs.fast_bytes.unwrap_or(0)), (slow, u64::MAX)];
        let paths = &paths[usize::from(variant == Variant::Held)..];
        let paths: Result<Vec<DBPath>, Error> = paths.iter().map(|(path, bytes)| DBPath::new(path, *bytes)).collect();
        if let (Variant::Held, Some(bytes)) = (variant, dirs.fast_bytes) {
            options.set_max_total_wal_size(bytes / 2);
        }
        options.set_db_paths(&paths.map_err(failed)?);
    }
    let mut write = WriteOptions::default();
    write.set_sync(settings.durability == Durability::Sync);
    Ok(Box::new(Rocks { db: DB::open(&options, &dirs.main).map_err(failed)?, write, cache, buffers }))
}

/// The total time of stalls in the statistics `text` of RocksDB, `Cumulative stall: 00:01:05.250 H:M:S, 3.1 percent`.
fn stalled(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(STALL_LINE))?;
    let mut parts = line.split_whitespace().next()?.split(':').map(str::parse::<f64>);
    let mut part = || parts.next()?.ok();
    let (hours, minutes, seconds) = (part()?, part()?, part()?);
    Duration::try_from_secs_f64(hours * 3600.0 + minutes * 60.0 + seconds).ok()
}

fn failed(error: Error) -> Failure {
    Failure::new(format!("rocksdb: {error}"))
}

fn full_merge(key: &[u8], base: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let operands: Vec<&[u8]> = operands.iter().collect();
    Patches.full_merge(key, base, &operands).ok()
}

fn partial_merge(key: &[u8], _: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut operands = operands.iter();
    let oldest = operands.next()?.to_vec();
    operands.try_fold(oldest, |older, newer| Patches.partial_merge(key, &older, newer))
}

impl Engine for Rocks {
    fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned(key).map_err(failed)?;
        Ok(value.is_some_and(|value| {
            read(&value);
            true
        }))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put_opt(key, value, &self.write).map_err(failed)
    }

    fn put_all(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        pairs.iter().for_each(|(key, value)| batch.put(key, value));
        self.db.write_opt(batch, &self.write).map_err(failed)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.db.delete_opt(key, &self.write).map_err(failed)
    }

    fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.db.merge_opt(key, operand, &self.write).map_err(failed)
    }

    fn scan(&self, from: &[u8], count: u64, read: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut found = 0;
        let mut cursor = self.db.raw_iterator_opt(ReadOptions::default());
        cursor.seek(from);
        while found < count
            && let Some((key, value)) = cursor.item()
        {
            read(key, value);
            found += 1;
            if found < count {
                cursor.next();
            }
        }
        cursor.status().map_err(failed)?;
        Ok(found)
    }

    fn sync(&self) -> Result<()> {
        self.db.flush_wal(true).map_err(failed)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush().map_err(failed)
    }

    fn settle(&self) -> Result<()> {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(failed)
    }

    fn memory(&self) -> Option<Memory> {
        let unflushed_bytes = self.db.property_int_value(CUR_SIZE_ALL_MEM_TABLES).ok()??;
        // Memtables are charged to the cache.
        let cache_bytes = self.cache.get_usage().saturating_sub(self.buffers.get_usage()) as u64;
        Some(Memory { unflushed_bytes, cache_bytes })
    }

    fn waits(&self) -> Option<WriterWaits> {
        // Costs nothing while nobody asks, unlike its statistics object.
        let waited = stalled(&self.db.property_value(DBSTATS).ok()??)?;
        let is_stopped = self.db.property_int_value(IS_WRITE_STOPPED).ok()?? > 0;
        let rate = self.db.property_int_value(ACTUAL_DELAYED_WRITE_RATE).ok()??;
        let limit = if is_stopped { Some(0) } else { Some(rate).filter(|rate| *rate > 0) };
        Some(WriterWaits { waited, limit })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_stalls_is_read_from_the_statistics() {
        let text = "** DB Stats **\nUptime(secs): 9.1 total, 1.0 interval\nCumulative stall: 01:02:03.250 H:M:S, 3.1 percent\n\
                    Interval stall: 00:00:0.100 H:M:S, 1.0 percent\n";
        assert_eq!(stalled(text), Some(Duration::from_millis(3_723_250)));
        assert_eq!(stalled("Cumulative stall: soon"), None);
        assert_eq!(stalled(""), None);
    }

    #[test]
    fn a_store_reports_how_long_writers_have_waited() {
        let dir = tempfile::tempdir().unwrap();
        let options = {
            let mut options = Options::default();
            options.create_if_missing(true);
            options
        };
        let db = DB::open(&options, dir.path()).unwrap();
        db.put(b"a", b"b").unwrap();
        let text = db.property_value(DBSTATS).unwrap().unwrap();
        assert_eq!(stalled(&text), Some(Duration::ZERO), "{text}");
    }
}
