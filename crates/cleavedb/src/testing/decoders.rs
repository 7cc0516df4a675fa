//! Every decoder of the engine behind a plain function that accepts any bytes: none may panic, hang, or use much more
//! memory than the input. Called by the fuzz targets in `fuzz/`, and by a test here with random bytes and with damaged valid
//! files.

use std::path::Path;
use std::sync::Arc;

use crate::base::{Address, Bytes, Cursor, DirId, FileId, FileKey, FileKind, Seqno, Stamp};
use crate::cache::block_cache::BlockCache;
use crate::engine::inspect::stats_page;
use crate::engine::manifest::decoders;
use crate::engine::recovery::indexes::read_indexes;
use crate::format::block::{BlockCursor, BlockOrigin};
use crate::format::compression::{Compression, decompress};
use crate::format::edit::Edit;
use crate::format::filter::may_contain;
use crate::format::frame::{FrameHeader, decode_log_header};
use crate::format::meta::TableMeta;
use crate::format::properties::Properties;
use crate::format::range_block::RangeBlock;
use crate::format::record::Record;
use crate::format::table::{BlockHandle, FOOTER_BYTES, Footer, PartitionHandles, check_block};
use crate::front::log_reader::{LogReader, Opened};
use crate::io::file_guard::FileGuard;
use crate::io::handles::Handles;
use crate::io::{Access, SimDisk, Storage};
use crate::levels::table_file::TableFile;
use crate::values::files::StoredFile;
use crate::values::redirect::{self, Redirect};
use crate::values::segment;

/// The file number of fuzzed files.
const FILE: FileId = FileId(7);
/// Size limit of a decompressed block.
const BLOCK_MAX: usize = 1 << 20;

/// A decoder and its name.
pub type Decoder = (&'static str, fn(&[u8]));

/// All decoders.
pub const ALL: [Decoder; 15] = [
    ("records", fuzz_records),
    ("frame", fuzz_frame),
    ("log", fuzz_log),
    ("edit", fuzz_edit),
    ("manifest", fuzz_manifest),
    ("current", fuzz_current),
    ("block", fuzz_block),
    ("table_parts", fuzz_table_parts),
    ("table", fuzz_table),
    ("filter", fuzz_filter),
    ("compression", fuzz_compression),
    ("stats_page", fuzz_stats_page),
    ("segment", fuzz_segment),
    ("redirect", fuzz_redirect),
    ("index", fuzz_index),
];

/// Concatenated records of a log and of a segment.
pub fn fuzz_records(bytes: &[u8]) {
    let mut rest = bytes;
    while Record::take(&mut rest).is_ok() {}
    rest = bytes;
    while let Ok(record) = Record::take_stored(&mut rest) {
        read_value(&record);
    }
}

/// Reads the value of a record of a segment, which may be compressed.
fn read_value(record: &Record<'_>) {
    if let Ok(value) = record.value(BLOCK_MAX) {
        assert!(value.len() <= BLOCK_MAX.max(record.operation.value.len()));
    }
}

/// The headers of a frame and of a log.
pub fn fuzz_frame(bytes: &[u8]) {
    for offset in [0, 4096] {
        let header = FrameHeader::decode(bytes, FILE, offset);
        assert!(header.is_none_or(|header| header.frame_bytes() > u64::from(header.body_len)));
    }
    decode_log_header(bytes);
}

/// A file with these bytes.
fn file_of(bytes: &[u8]) -> Arc<dyn crate::io::File> {
    let disk = SimDisk::new();
    disk.write_file(Path::new("/fuzzed"), bytes);
    disk.open_read(Path::new("/fuzzed"), Access::Buffered).expect("a file written just now can be opened")
}

/// A whole log, without a ring and with the same bytes as the ring.
pub fn fuzz_log(bytes: &[u8]) {
    let file = file_of(bytes);
    let id = LogReader::own_id(&*file).unwrap_or(FILE);
    for ring in [None, Some(bytes).filter(|ring| !ring.is_empty())] {
        if let Ok(Opened::Log(mut reader)) = LogReader::open(&*file, id, ring) {
            while let Ok(Some(_)) = reader.next_frame() {}
            let _ = (reader.explain(), reader.skip_damage(u64::MAX), reader.find_sync_mark(Seqno(1)));
        }
    }
}

/// An edit of the manifest, and the description of a table.
pub fn fuzz_edit(bytes: &[u8]) {
    if let Ok(edit) = Edit::decode(bytes) {
        assert_eq!(Edit::decode(&edit.encode()).as_ref(), Ok(&edit));
    }
    TableMeta::decode(&mut &bytes[..]);
    Address::decode(bytes);
}

/// A manifest file.
pub fn fuzz_manifest(bytes: &[u8]) {
    decoders::file(FILE, bytes);
}

/// `CURRENT`.
pub fn fuzz_current(bytes: &[u8]) {
    decoders::current(bytes);
}

/// A sorted block, iterated in both directions and searched, and the same bytes as a block of range tombstones.
pub fn fuzz_block(bytes: &[u8]) {
    let ranges = RangeBlock::new(Bytes::new(bytes.to_vec()), BlockOrigin::new(Path::new("fuzzed").into(), 0));
    let _ = ranges.fragments();
    for key in [&b""[..], b"m", &bytes[..bytes.len().min(9)]] {
        let _ = ranges.cover(key, Seqno::MAX);
        assert!(ranges.span_at(key, Seqno::MAX).map_or(true, |span| span.holds(key)));
    }
    let origin = BlockOrigin::new(Path::new("fuzzed").into(), 0);
    let Ok(mut cursor) = BlockCursor::new(Bytes::new(bytes.to_vec()), origin) else { return };
    let mut moved = cursor.seek_first();
    while moved.is_ok() && cursor.valid() {
        let _ = (cursor.key().len(), cursor.value().len(), cursor.stamp().kind());
        moved = cursor.next();
    }
    moved = cursor.seek_last();
    for _ in 0..64 {
        if moved.is_err() || !cursor.valid() {
            break;
        }
        moved = cursor.prev();
    }
    let _ = (cursor.seek(&bytes[..bytes.len().min(9)], Stamp::NEWEST), cursor.seek_before(b"m", Stamp::OLDEST));
}

/// Footer, properties, handles and trailers of a table.
pub fn fuzz_table_parts(bytes: &[u8]) {
    if let Some(footer) = bytes.first_chunk::<FOOTER_BYTES>() {
        let _ = Footer::decode(footer, Footer::file_of(footer), Path::new("fuzzed"), 0);
    }
    let _ = (Properties::decode(bytes), BlockHandle::decode(bytes), PartitionHandles::decode(bytes));
    let _ = check_block(bytes, FILE, 0);
}

/// A whole table file.
pub fn fuzz_table(bytes: &[u8]) {
    if let Ok(table) = TableFile::open(file_of(bytes), None) {
        let _ = table.walk(&mut |_| std::ops::ControlFlow::Continue(()));
    }
}

/// A filter; the first bytes are the key to look up.
pub fn fuzz_filter(bytes: &[u8]) {
    let (key, filter) = bytes.split_at(bytes.len().min(8));
    may_contain(filter, key);
}

/// Blocks compressed in each way.
pub fn fuzz_compression(bytes: &[u8]) {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        if let Ok(raw) = decompress(compression, bytes, BLOCK_MAX) {
            assert!(compression == Compression::None || raw.len() <= BLOCK_MAX);
        }
    }
}

/// A whole segment.
pub fn fuzz_segment(bytes: &[u8]) {
    let (file, mut last) = (file_of(bytes), 0);
    let _ = segment::extents(&*file, own_id(bytes), &mut |extent| {
        extent.for_each_record(&*file, &mut |offset, record, stored| {
            assert!(offset > last && offset + stored.len() as u64 <= bytes.len() as u64);
            read_value(record);
            last = offset;
            Ok(())
        })
    });
}

/// A whole file of saved indexes.
pub fn fuzz_index(bytes: &[u8]) {
    let _ = read_indexes(&*file_of(bytes), own_id(bytes), |key| drop(key.older));
}

/// A whole redirect table, scanned and searched.
pub fn fuzz_redirect(bytes: &[u8]) {
    let disk = SimDisk::new();
    let path: Arc<Path> = Path::new("/fuzzed").into();
    disk.write_file(&path, bytes);
    let id = own_id(bytes);
    let mut first = None;
    let read = redirect::read_all(&*file_of(bytes), id, &mut |table, entry| {
        first.get_or_insert((*table, entry));
    });
    let guard =
        FileGuard::new(FileKey { kind: FileKind::Redirect, id, dir: DirId::HOME }, path.clone(), Arc::default());
    let handle = Arc::new(Handles::new(Arc::new(disk), 1)).handle(path, Access::Buffered);
    let cache = Arc::new(BlockCache::new(1 << 20));
    let stored = Arc::new(StoredFile::new(guard, handle, None));
    let shape = if bytes.len().is_multiple_of(2) { redirect::Shape::Pairs } else { redirect::Shape::Lengths };
    let whole = redirect::RedirectTable { of: FILE, start: 4096, len: bytes.len() as u64, shape };
    let table = Redirect::new(stored, first.map_or(whole, |(table, _)| table), vec![FileId(8), FileId(9)], cache);
    let at = |offset| Address { file: FILE, offset, len: 30, value_len: 5 };
    for offset in [0, 1, 4096, u64::MAX] {
        let _ = table.follow(at(offset));
    }
    if let (Ok(_), Some((_, redirect::RedirectEntry { from, to: (index, offset), len }))) = (read, first) {
        match table.follow(at(from)) {
            Ok(to) => assert_eq!(to.map(|to| (to.file.0, to.offset)), Some((8 + index as u64, offset))),
            Err(_) => assert!(index > 1 || len.is_some_and(|len| len > at(from).len)),
        }
    }
}

/// The file number in the header of a segment or a redirect table.
fn own_id(bytes: &[u8]) -> FileId {
    let own = bytes.get(12..).and_then(<[u8]>::first_chunk);
    own.map_or(FILE, |own| FileId(u64::from_le_bytes(*own)))
}

/// The page of statistics.
pub fn fuzz_stats_page(bytes: &[u8]) {
    if let Ok(page) = stats_page::decode(bytes) {
        // Lists may become shorter: a page written by another version can hold more entries than ours, and more levels
        // than there is room for beside the figures that ours has in addition.
        let Some(again) = stats_page::encode(&page) else { return };
        let again = stats_page::decode(&again).expect("a page encoded here can be decoded");
        assert_eq!((again.process, again.sequence, again.uptime), (page.process, page.sequence, page.uptime));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::base::{KeyspaceId, Kind};
    use crate::format::block_builder::BlockBuilder;
    use crate::format::record::Operation;
    use crate::sched::random::Random;
    use crate::testing::Tuning;
    use crate::values::record_compressor::RecordCompressor;
    use crate::{LiveStats, Options, WriteBatch};

    /// Files of a small database, and sections of them.
    fn valid_inputs() -> Vec<Vec<u8>> {
        let disk = SimDisk::new();
        let options = || Options::new().log_backend(crate::LogBackend::Plain);
        let db = crate::testing::open(Arc::new(disk.clone()), Path::new("/db"), options(), Tuning::tiny()).unwrap();
        let hashed = db.create_keyspace("hashed", crate::KeyspaceOptions::hash()).unwrap();
        for round in 0..3 {
            let mut batch = WriteBatch::new();
            for number in 0..60_u32 {
                batch.put(&hashed, number.to_be_bytes(), vec![number as u8; 400]);
                batch.put(&db.default_keyspace(), number.to_be_bytes(), vec![number as u8; 40 * round]);
                batch.delete(&db.default_keyspace(), (number + 1000).to_be_bytes());
            }
            let (from, to) = (round as u32 * 7, round as u32 * 20);
            batch.delete_range(&db.default_keyspace(), from.to_be_bytes().to_vec()..to.to_be_bytes().to_vec());
            db.write(batch).unwrap();
            if round == 1 {
                db.flush().unwrap();
            }
        }
        let (uptime, stats) = (Duration::from_secs(3), db.stats());
        let page = stats_page::encode(&LiveStats { process: 1, sequence: 2, uptime, stats }).unwrap();
        db.close().unwrap();
        let mut inputs: Vec<Vec<u8>> = disk
            .files()
            .iter()
            .map(|(path, _)| disk.read_file(path).unwrap())
            .filter(|bytes| !bytes.is_empty())
            .collect();
        // Decoders receive sections that begin anywhere in a file.
        for bytes in inputs.clone() {
            for start in [24 + 12, 4096, 4096 + 36, bytes.len().saturating_sub(FOOTER_BYTES)] {
                inputs.extend(bytes.get(start..).filter(|part| !part.is_empty()).map(<[u8]>::to_vec));
            }
        }
        let path = Path::new("/values");
        let mut segment = segment::SegmentBuilder::create(&disk, path, FILE, Access::Buffered, (4096, 4096)).unwrap();
        segment.begin_extent(FileId(8), 100 * (23 + 3 + 190));
        let wanted = if Compression::Zstd.is_available() { Compression::Zstd } else { Compression::Lz4 };
        let mut compressors = [Compression::None, Compression::Lz4, wanted].map(RecordCompressor::new);
        for number in 0..100_u64 {
            let operation = Operation { kind: Kind::Put, keyspace: KeyspaceId(1), key: b"key", value: &[7; 190] };
            let (seqno, value) = (Seqno(number), operation.value);
            let header = operation.header(seqno, operation.crc(seqno));
            let record = [&header[..], operation.key, value].concat();
            let stored = compressors[number as usize % 3].compress(&record).unwrap_or(&record);
            segment.add(0, stored, record.len() as u64).unwrap();
        }
        segment.finish().unwrap();
        inputs.push(disk.read_file(path).unwrap());
        // Its records without the headers.
        inputs.push(inputs[inputs.len() - 1][4096 + segment::EXTENT_HEADER_BYTES..].to_vec());
        for (name, shape) in [("/moved", redirect::Shape::Pairs), ("/compressed", redirect::Shape::Lengths)] {
            let mut redirect = redirect::RedirectBuilder::default();
            let table = redirect.begin(FILE);
            (1..400).for_each(|number| redirect.add(table, number * 90, (0, number), 30));
            redirect.write(&disk, (Path::new(name), Access::Buffered), FILE, shape).unwrap();
            inputs.push(disk.read_file(Path::new(name)).unwrap());
        }
        let mut block = BlockBuilder::new().packing();
        for number in 0..60_u64 {
            let mut address = Vec::new();
            Address { file: FileId(number % 3), offset: number * 90, len: 90, value_len: 50 }.encode(&mut address);
            let (kind, value) = if number % 9 == 0 { (Kind::Put, &b"inside"[..]) } else { (Kind::PutAt, &address[..]) };
            block.add(&number.to_be_bytes(), Stamp::new(Seqno(number), kind), value);
        }
        inputs.push(block.finish());
        inputs.push(page.to_vec());
        inputs
    }

    /// Flips bits of, truncates, repeats or overwrites random ranges of the bytes.
    fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
        for _ in 0..=random.below(3) {
            let len = bytes.len() as u64;
            if len == 0 {
                return;
            }
            let at = random.below(len) as usize;
            match random.below(5) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.draw() as u8,
                2 => bytes.truncate(at),
                3 => {
                    let end = (at + random.below(16) as usize).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => {
                    let end = (at + 8).min(bytes.len());
                    bytes[at..end].fill(0xff);
                }
            }
        }
    }

    #[test]
    fn no_decoder_panics_over_random_or_damaged_bytes() {
        const CASES: u64 = 2000;
        let valid = valid_inputs();
        assert!(valid.len() > 8);
        // Writes the seed corpus of the fuzz targets: see `fuzz/README.md`.
        if let Some(corpus) = std::env::var_os("CLEAVE_CORPUS") {
            for (number, bytes) in valid.iter().enumerate() {
                let path = Path::new(&corpus).join(format!("valid-{number}"));
                crate::io::OsStorage::new().create(&path, Access::Buffered).unwrap().write_at(bytes, 0).unwrap();
            }
        }
        for (index, (name, decoder)) in ALL.into_iter().enumerate() {
            // Whole files are slow to read in an unoptimised build.
            let cases = if matches!(name, "log" | "table") { CASES / 4 } else { CASES };
            for case in 0..cases {
                let mut random = Random::new(case << 8 | index as u64);
                let bytes = match random.below(4) {
                    0 => (0..random.below(200)).map(|_| random.draw() as u8).collect(),
                    _ => {
                        let mut bytes = valid[random.below(valid.len() as u64) as usize].clone();
                        damage(&mut bytes, &mut random);
                        bytes
                    }
                };
                let decoded = std::panic::catch_unwind(|| decoder(&bytes));
                assert!(decoded.is_ok(), "decoder {name} panicked in case {case} on {} bytes", bytes.len());
            }
            for bytes in &valid {
                decoder(bytes);
            }
        }
    }
}
