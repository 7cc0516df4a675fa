//! Micro-benchmarks through the public API, on a real directory (the system's temporary one, or `CLEAVE_BENCH_DIR`).
//! The ids are stable: figures in `docs/benchmarks/` refer to them.

use std::hint::black_box;
use std::time::Duration;

use cleavedb::testing::Random;
use cleavedb::{Db, Durability, LogBackend, Options, WriteBatch};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tempfile::TempDir;

const BACKENDS: [(LogBackend, &str); 2] = [(LogBackend::Ring, "ring"), (LogBackend::Plain, "plain")];
/// Puts per pass over a new database: enough to pass the start-up phase.
const PUTS: u64 = 20_000;
/// Keys of the database for reads.
const KEYS: u64 = 100_000;

fn directory() -> TempDir {
    let made = match std::env::var_os("CLEAVE_BENCH_DIR") {
        Some(parent) => tempfile::tempdir_in(parent),
        None => tempfile::tempdir(),
    };
    made.expect("a directory to measure in")
}

fn open(directory: &TempDir, backend: LogBackend) -> Db {
    Options::new().log_backend(backend).open(directory.path()).expect("the database opens")
}

/// 24 bytes, spread over the key space.
fn key(number: u64) -> [u8; 24] {
    let mut key = *b"key-0000000000000000-end";
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for (place, byte) in key[4..20].iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(spread >> (60 - 4 * place) & 15) as usize];
    }
    key
}

fn value(len: usize) -> Vec<u8> {
    let mut rng = Random::new(1);
    (0..len).map(|_| rng.draw() as u8).collect()
}

/// Buffered puts: the log, and all background work.
fn log_append(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("log_append");
    group.throughput(Throughput::Elements(PUTS));
    for (backend, name) in BACKENDS {
        for len in [100, 1000] {
            let value = value(len);
            group.bench_function(format!("{name}/{len}"), |bencher| {
                let fresh = || {
                    let directory = directory();
                    (open(&directory, backend), directory)
                };
                let load = |(db, directory): (Db, TempDir)| {
                    for number in 0..PUTS {
                        db.put(key(number), &value).expect("the put is taken");
                    }
                    (db, directory)
                };
                bencher.iter_batched(fresh, load, BatchSize::PerIteration);
            });
        }
    }
    group.finish();
}

/// One writer that waits for each sync.
fn put_sync(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("put_sync");
    for (backend, name) in BACKENDS {
        let directory = directory();
        let db = open(&directory, backend);
        let (default, value) = (db.default_keyspace(), value(100));
        let mut number = 0;
        group.bench_function(format!("{name}/100"), |bencher| {
            bencher.iter(|| {
                number += 1;
                default.put_with(key(number), &value, Durability::Sync).expect("the put is taken");
            });
        });
    }
    group.finish();
}

/// A hundred puts in a batch.
fn batch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write_batch_100");
    group.throughput(Throughput::Elements(100));
    let directory = directory();
    let db = open(&directory, LogBackend::Auto);
    let (default, value) = (db.default_keyspace(), value(100));
    let mut number = 0;
    group.bench_function("auto/100", |bencher| {
        bencher.iter(|| {
            let mut batch = WriteBatch::new();
            for _ in 0..100 {
                number = (number + 1) % KEYS;
                batch.put(&default, key(number), &value);
            }
            db.write(batch).expect("the batch is taken");
        });
    });
    group.finish();
}

fn read_benchmarks(criterion: &mut Criterion, db: &Db, keys: u64, place: &str) {
    let mut rng = Random::new(3);
    criterion.bench_function(&format!("get/{place}"), |bencher| {
        bencher.iter(|| black_box(db.get(key(rng.below(keys))).expect("the read works")).expect("the key is there"));
    });
    criterion.bench_function(&format!("get_missing/{place}"), |bencher| {
        bencher.iter(|| assert!(db.get(key(keys + rng.below(keys))).expect("the read works").is_none()));
    });
    for (name, reverse) in [("scan_100", false), ("scan_100_reverse", true)] {
        criterion.bench_function(&format!("{name}/{place}"), |bencher| {
            bencher.iter(|| {
                let from = key(rng.below(keys)).to_vec();
                let bytes: usize = if reverse {
                    let iter = db.range(..from).expect("the scan starts");
                    iter.rev().take(100).map(|item| item.expect("the scan works").1.len()).sum()
                } else {
                    let iter = db.range(from..).expect("the scan starts");
                    iter.take(100).map(|item| item.expect("the scan works").1.len()).sum()
                };
                black_box(bytes)
            });
        });
    }
}

/// Gets and scans with all data in the front, and with all data in tables (and the block cache).
fn reads(criterion: &mut Criterion) {
    for (len, keys) in [(100, KEYS), (1000, KEYS / 10)] {
        let directory = directory();
        let db = open(&directory, LogBackend::Auto);
        let value = value(len);
        for number in 0..keys / 10 {
            db.put(key(number), &value).expect("the put is taken");
        }
        read_benchmarks(criterion, &db, keys / 10, &format!("front/{len}"));
        for number in 0..keys {
            db.put(key(number), &value).expect("the put is taken");
        }
        db.flush().expect("the flush works");
        db.compact_range(&db.default_keyspace(), ..).expect("the compaction works");
        read_benchmarks(criterion, &db, keys, &format!("tables/{len}"));
    }
}

fn settings() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! {
    name = benches;
    config = settings();
    targets = log_append, put_sync, batch, reads
}
criterion_main!(benches);
