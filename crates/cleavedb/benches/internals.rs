//! Micro-benchmarks of the components of a put and a get. The ids are stable: figures in `docs/benchmarks/` refer to
//! them.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::components::{
    Address, BlockBuilder, BlockCursor, BlockOrigin, Bytes, Cursor, Edit, FileId, FileReferences, Gauge, Horizon,
    IndexTable, KeyRange, KeyspaceId, Kind, Merging, OperatorSource, References, Retention, Run, RunPart, Stamp,
    TableBuilder, TableOptions, ValuePlace, ValueState, full_key,
};
use cleavedb::testing::{Random, SimDisk, Storage};
use cleavedb::{Compression, MergeOperator, Seqno};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Versions in one index table: about as many as fit into 8 MiB.
const ENTRIES: u64 = 100_000;
const KEYSPACE: KeyspaceId = KeyspaceId(1);

struct NoOperators;

impl OperatorSource for NoOperators {
    fn operator(&self, _keyspace: KeyspaceId) -> Option<Arc<dyn MergeOperator>> {
        None
    }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-....-....-00";
    key[4..12].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

/// A table of versions `first..first + ENTRIES`, keys in random order.
fn index_table(first: u64, value: &[u8]) -> IndexTable {
    let table = IndexTable::new();
    insert_all(&table, first, value);
    table
}

fn insert_all(table: &IndexTable, first: u64, value: &[u8]) {
    let mut inserter = table.insert();
    for number in first..first + ENTRIES {
        let stamp = Stamp::new(Seqno(number + 1), Kind::Put);
        inserter.add(&KEYSPACE.prefix(), &key(number), stamp, value, 0);
    }
}

fn run_of(mut cursor: impl Cursor, seqnos: (Seqno, Seqno)) -> Run {
    cursor.seek_first().expect("memory can be read");
    let horizon = Horizon {
        snapshots: vec![seqnos.1],
        bottom: &|_| false,
        dropped: &|_| false,
        operators: &NoOperators,
        fetch: None,
    };
    let mut source = Retention::new(cursor, horizon);
    let gauge = Arc::new(Gauge::default());
    let part = RunPart::build(&mut source, &mut |_, _, _| false, &gauge).expect("memory can be read");
    Run::join(vec![part], &[], seqnos, 0, &gauge)
}

fn seal_table(table: &IndexTable) -> Run {
    run_of(table.sealed_cursor(&KeyRange::default()), table.seqnos().expect("the table holds versions"))
}

fn insert(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("index_insert");
    group.throughput(Throughput::Elements(ENTRIES));
    for len in [30, 100] {
        let value = vec![7; len];
        group.bench_function(BenchmarkId::from_parameter(len), |bencher| {
            let insert = |table: IndexTable| {
                insert_all(&table, 0, &value);
                table
            };
            bencher.iter_batched(IndexTable::new, insert, BatchSize::PerIteration);
        });
    }
    group.finish();
}

fn index_get(criterion: &mut Criterion) {
    let table = index_table(0, &[7; 100]);
    let mut rng = Random::new(1);
    criterion.bench_function("index_get", |bencher| {
        bencher.iter(|| {
            let mut found = None;
            table.visit(&full_key(KEYSPACE, &key(rng.below(ENTRIES))), Seqno::MAX, &mut |_, value| {
                found = Some(value);
                false
            });
            black_box(found).expect("the key is present")
        });
    });
}

fn seal(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("seal");
    group.throughput(Throughput::Elements(ENTRIES));
    let table = index_table(0, &[7; 30]);
    group.bench_function("30", |bencher| bencher.iter(|| seal_table(&table)));
    group.finish();
}

fn merge_runs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("merge_runs");
    for count in [2, 4] {
        let runs: Vec<Arc<Run>> =
            (0..count).map(|place| Arc::new(seal_table(&index_table(place * ENTRIES, &[7; 30])))).collect();
        group.throughput(Throughput::Elements(count * ENTRIES));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                let newest_first: Vec<_> = runs.iter().rev().map(|run| run.cursor()).collect();
                run_of(Merging::new(newest_first), (Seqno(1), Seqno(count * ENTRIES)))
            });
        });
    }
    group.finish();
}

/// Writes a run into a table in memory: blocks, compression, filters, checksums, and no disk.
fn table_build(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("table_build");
    group.throughput(Throughput::Elements(ENTRIES));
    let run = Arc::new(seal_table(&index_table(
        0,
        b"a value of about a hundred bytes, as text is, that can be made smaller: text",
    )));
    for (name, compression) in [("none", Compression::None), ("lz4", Compression::Lz4)] {
        let options = TableOptions { compression, ..TableOptions::default() };
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            let build = |disk: SimDisk| {
                let storage: &dyn Storage = &disk;
                let path = Path::new("/table");
                let mut builder = TableBuilder::create(storage, path, FileId(1), options).expect("the disk works");
                let mut cursor = run.cursor();
                cursor.seek_first().expect("memory can be read");
                while cursor.valid() {
                    builder.add(cursor.key(), cursor.stamp(), cursor.value()).expect("the disk works");
                    cursor.next().expect("memory can be read");
                }
                builder.finish().expect("the disk works")
            };
            bencher.iter_batched(SimDisk::new, build, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// Blocks of 4 KiB of each kind: values inside, addresses, packed addresses.
fn block_search(criterion: &mut Criterion) {
    let mut keys: Vec<_> = (0..1000).map(|number| full_key(KEYSPACE, &key(number))).collect();
    keys.sort();
    let mut group = criterion.benchmark_group("block_search");
    for (name, kind) in [("values", Kind::Put), ("addresses", Kind::PutAt), ("packed", Kind::PutAt)] {
        let mut builder = if name == "packed" { BlockBuilder::new().packing() } else { BlockBuilder::new() };
        let (mut count, mut value) = (0, vec![7; 30]);
        while builder.size_estimate() < 4000 {
            if kind.is_address() {
                value.clear();
                let offset = (count as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
                Address { file: FileId(7 + offset % 30), offset, len: 1039, value_len: 1000 }.encode(&mut value);
            }
            builder.add(&keys[count], Stamp::new(Seqno(500_000 - count as u64 * 999), kind), &value);
            count += 1;
        }
        let block = Bytes::new(builder.finish());
        let mut rng = Random::new(1);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            let origin = BlockOrigin::new(Path::new("/table").into(), 0);
            bencher.iter(|| {
                let mut cursor = BlockCursor::new(block.clone(), origin.clone()).expect("the block is good");
                let key = &keys[rng.below(count as u64) as usize];
                cursor.seek(key, Stamp::NEWEST).expect("the block is good");
                assert!(cursor.valid() && cursor.key() == &key[..]);
                cursor.value_slice()
            });
        });
    }
    group.finish();
}

/// What one edit of a compaction costs the ledger: references to two of many value files come and go.
fn ledger_edit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ledger_edit");
    for files in [100, 10_000_u64] {
        let references = |file: u64| {
            let mut references = References::default();
            references.add(FileId(file), FileReferences { records: 1000, bytes: 1_000_000, end: 1_000_000 });
            references
        };
        let mut whole = Edit::default();
        for file in 1..=files {
            whole.values_placed.push((FileId(file), ValuePlace::Log { end: 2_000_000 }));
            whole.referenced.add_all(&references(file));
        }
        let mut state = ValueState::default();
        state.apply(&whole).expect("an edit that leads from nothing to a state");
        let mut rng = Random::new(1);
        group.bench_function(BenchmarkId::from_parameter(files), |bencher| {
            bencher.iter(|| {
                let (gained, lost) = (1 + rng.below(files), 1 + rng.below(files));
                let gain = Edit { referenced: references(gained), released: references(lost), ..Edit::default() };
                let mut after = state.clone();
                after.apply(&gain).expect("each file is referenced");
                (after.unreachable(), after)
            });
        });
    }
    group.finish();
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
    targets = insert, index_get, seal, merge_runs, table_build, block_search, ledger_edit
}
criterion_main!(benches);
