//! CleaveDB, with the options of `--cleave`, with all values in its tables, and with a hash keyspace.

use std::path::PathBuf;
use std::sync::Arc;

use cleavedb::{
    Db, DecisionStats, DeltaPlacement, JobKindStats, Keyspace, KeyspaceKind, KeyspaceOptions, KvDevice, Options,
    SettingStats, WriteBatch, testing,
};

use crate::cleave_options::CleaveOptions;
use crate::counters;
use crate::engine::{
    BUCKETS, Compression, Durability, Engine, HASHED, INLINE, Kind, Memory, Merges, OURS, Settings, ValueGroup,
    ValueSpace,
};
use crate::failure::{Failure, Result};
use crate::jobs::JobUse;
use crate::redirects::Bypassed;
use crate::tuning::{Decision, Sample, Setting};
use crate::waiting::WriterWaits;

/// `cleave`.
pub const CLEAVE: Kind = Kind {
    name: OURS,
    version: env!("CARGO_PKG_VERSION"),
    merges: Merges::Native,
    notes: &[],
    notes_of,
    direct_io: true,
    buffered_survives_kill: true,
    open: |settings| open(settings, Shape::Separated),
};

/// `cleave-inline`.
pub const CLEAVE_INLINE: Kind = Kind {
    name: INLINE,
    notes: &["no value is separated from its key (`separation=never`)"],
    open: |settings| open(settings, Shape::Inline),
    ..CLEAVE
};

/// `cleave-buckets`.
pub const CLEAVE_BUCKETS: Kind = Kind {
    name: BUCKETS,
    notes: &["operands lie in buckets (`deltas=buckets`)"],
    open: |settings| open(settings, Shape::Buckets),
    ..CLEAVE
};

/// `cleave-hash`.
pub const CLEAVE_HASH: Kind = Kind {
    name: HASHED,
    notes: &["the keyspace is a hash keyspace: all keys are in memory, and there are no scans"],
    open: |settings| open(settings, Shape::Hashed),
    ..CLEAVE
};

/// How the keyspace of the benchmark keeps its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Ordered, with the usual separation threshold.
    Separated,
    /// Ordered, all values in tables.
    Inline,
    /// As [`Separated`](Shape::Separated), with merge operands in buckets.
    Buckets,
    /// By hash.
    Hashed,
}

/// The keyspace of the benchmark.
const KEYSPACE: &str = "bench";

struct Cleave {
    db: Db,
    keyspace: Keyspace,
    /// Directory of tables and value segments.
    slow: PathBuf,
    device: Option<Arc<dyn KvDevice>>,
}

fn open(settings: &Settings, shape: Shape) -> Result<Box<dyn Engine>> {
    let durability = match settings.durability {
        Durability::Buffered => cleavedb::Durability::Buffered,
        Durability::Sync => cleavedb::Durability::Sync,
    };
    let mut options = Options::new()
        .memory_budget(settings.memory)
        .background_threads(settings.background_threads)
        .durability(durability);
    // Otherwise by the directories.
    if settings.direct {
        options = options.direct_io(true);
    }
    if let Some(compression) = settings.compression {
        options = options.compression(match compression {
            Compression::None => cleavedb::Compression::None,
            Compression::Lz4 => cleavedb::Compression::Lz4,
        });
    }
    if let Some(fast) = &settings.dirs.fast {
        options = options.fast_dir(fast);
    }
    if let Some(slow) = &settings.dirs.slow {
        options = options.slow_dir(slow);
        if let Some(bytes) = settings.dirs.fast_bytes {
            options = options.fast_bytes(bytes);
        }
    }
    let (mut storage, mut device) = (None, None);
    if let Some(own) = &settings.cleave {
        (options, storage) = own.apply(options);
        device = own.device(&settings.dirs.main).map_err(failed)?;
        if let Some(device) = &device {
            options = options.kv_device(device.clone());
        }
    }
    if shape == Shape::Inline {
        options = options.separation(None);
    }
    let db = match storage {
        None => options.open(&settings.dirs.main),
        Some(storage) => testing::open_on(Arc::new(storage), &settings.dirs.main, options),
    };
    let db = db.map_err(failed)?;
    let keyspace = if db.keyspaces().iter().any(|name| name == KEYSPACE) {
        db.open_keyspace(KEYSPACE)
    } else {
        let options = match shape {
            Shape::Hashed => KeyspaceOptions::hash(),
            Shape::Separated | Shape::Inline | Shape::Buckets => {
                let options = settings.cleave.as_ref().map(CleaveOptions::keyspace).unwrap_or_default();
                if shape == Shape::Buckets { options.deltas(DeltaPlacement::Buckets) } else { options }
            }
        };
        db.create_keyspace(KEYSPACE, options.merge_operator("patches"))
    };
    let slow = settings.dirs.slow.as_ref().unwrap_or(&settings.dirs.main).clone();
    Ok(Box::new(Cleave { keyspace: keyspace.map_err(failed)?, db, slow, device }))
}

fn notes_of(settings: &Settings) -> Vec<&'static str> {
    let without_syncs = settings.cleave.as_ref().is_some_and(CleaveOptions::without_syncs);
    without_syncs.then_some("syncs were disabled, which is possible only in this benchmark").into_iter().collect()
}

fn setting(stats: SettingStats) -> Setting {
    Setting {
        merge_runs: stats.merge_runs as u64,
        flush_bytes: stats.flush_bytes,
        level_base_bytes: stats.level_base_bytes,
        hl0_trigger: stats.hl0_trigger as u64,
        compactions: stats.compactions as u64,
    }
}

fn failed(error: cleavedb::Error) -> Failure {
    Failure::new(format!("cleave: {error}"))
}

impl Engine for Cleave {
    fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key).map_err(failed)?;
        Ok(value.is_some_and(|value| {
            read(&value);
            true
        }))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.put(key, value).map_err(failed)
    }

    fn put_all(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = WriteBatch::new();
        pairs.iter().for_each(|(key, value)| batch.put(&self.keyspace, key, value));
        self.db.write(batch).map_err(failed)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.keyspace.delete(key).map_err(failed)
    }

    fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.keyspace.merge(key, operand).map_err(failed)
    }

    fn scan(&self, from: &[u8], count: u64, read: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut found = 0;
        let mut records: Box<dyn Iterator<Item = _>> = match self.keyspace.kind() {
            // All records, in any order, are all that it has.
            KeyspaceKind::Hash if from.is_empty() => Box::new(self.keyspace.iter_unordered().map_err(failed)?),
            _ => Box::new(self.keyspace.range(from.to_vec()..).map_err(failed)?),
        };
        while found < count
            && let Some(record) = records.next()
        {
            let (key, value) = record.map_err(failed)?;
            read(&key, &value);
            found += 1;
        }
        Ok(found)
    }

    fn sync(&self) -> Result<()> {
        self.db.sync().map_err(failed)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush().map_err(failed)
    }

    fn settle(&self) -> Result<()> {
        self.db.wait_for_background().map_err(failed)
    }

    fn value_space(&self) -> Result<Option<ValueSpace>> {
        let groups = self.db.stats().value_group_list;
        let groups =
            groups.iter().map(|group| ValueGroup { bytes: group.bytes, bytes_live: group.bytes_live }).collect();
        let space_bytes = counters::space_of(&self.slow, &|name| name.ends_with(".segment"))?;
        Ok(Some(ValueSpace { groups, space_bytes }))
    }

    fn memory(&self) -> Option<Memory> {
        let memory = self.db.stats().memory;
        let unflushed_bytes = (memory.front_bytes + memory.merging_bytes) as u64;
        Some(Memory { unflushed_bytes, cache_bytes: (memory.cache_bytes + memory.value_cache_bytes) as u64 })
    }

    fn index_bytes_saved(&self) -> u64 {
        self.db.stats().hash.saved_bytes
    }

    fn scheduling(&self) -> Option<Sample> {
        let stats = self.db.stats().scheduling;
        let decision = |decision: &DecisionStats| Decision {
            at_s: decision.at.as_secs_f64(),
            bottleneck: decision.bottleneck.clone(),
            setting: setting(decision.setting),
        };
        Some(Sample {
            setting: setting(stats.setting),
            merge_queue: stats.merge_queue as u64,
            flush_queue: stats.flush_queue,
            decisions: stats.decisions.iter().map(decision).collect(),
        })
    }

    fn waits(&self) -> Option<WriterWaits> {
        let stats = self.db.stats();
        Some(WriterWaits { waited: stats.paced_time + stats.stall_time, limit: stats.pace_bytes_per_second })
    }

    fn bypassed(&self) -> Option<Bypassed> {
        let sent_and_received = |device: &Arc<dyn KvDevice>| {
            let traffic = device.traffic();
            traffic.host_bytes_sent + traffic.host_bytes_received
        };
        let redirected_bytes = self.db.stats().bypass.bytes_redirected;
        Some(Bypassed { redirected_bytes, link_bytes: self.device.as_ref().map(sent_and_received) })
    }

    fn kv_device(&self) -> Option<Arc<dyn KvDevice>> {
        self.device.clone()
    }

    fn jobs(&self) -> Vec<JobUse> {
        let of = |job: &JobKindStats| JobUse {
            kind: job.kind.clone(),
            count: job.count,
            cpu_s: job.cpu_time.as_secs_f64(),
            bytes: job.bytes,
            records: job.records,
        };
        self.db.stats().scheduling.jobs.iter().map(of).collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Cleave { db, keyspace, .. } = *self;
        drop(keyspace);
        db.close().map_err(failed)
    }
}
