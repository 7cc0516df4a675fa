//! Tests of the sorted block: every walk agrees with a sorted vector, and malformed bytes give errors.

use proptest::prelude::*;

use super::*;
use crate::base::cursor::model::{Step, VecCursor, Version, assert_same_walk, sort};
use crate::base::limits::SEQNO_MAX;
use crate::base::{FileId, Kind, Seqno};
use crate::format::block_builder::BlockBuilder;

fn origin() -> BlockOrigin {
    BlockOrigin { path: Path::new("dir/000007.table").into(), offset: 4096 }
}

fn build(versions: &[Version], restart_entries: usize) -> Vec<u8> {
    fill(BlockBuilder::with_restart_every(restart_entries), versions)
}

fn build_packing(versions: &[Version], restart_entries: usize) -> Vec<u8> {
    fill(BlockBuilder::with_restart_every(restart_entries).packing(), versions)
}

fn is_packed(block: &[u8]) -> bool {
    block[block.len() - 1] & 0x80 != 0
}

fn fill(mut builder: BlockBuilder, versions: &[Version]) -> Vec<u8> {
    for (key, stamp, value) in versions {
        builder.add(key, *stamp, value);
    }
    let estimate = builder.size_estimate();
    let block = builder.finish();
    assert_eq!(block.len(), estimate);
    assert!(builder.is_empty());
    block
}

fn open(block: Vec<u8>) -> Result<BlockCursor> {
    BlockCursor::new(Bytes::new(block), origin())
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0u8..3, 0..5)
}

fn versions() -> impl Strategy<Value = Vec<Version>> {
    let value = prop_oneof![4 => proptest::collection::vec(any::<u8>(), 0..8), 1 => Just(vec![7u8; 300])];
    proptest::collection::vec((keys(), value), 0..80).prop_map(|list| {
        let stamped = list.into_iter().enumerate();
        let mut versions: Vec<Version> =
            stamped.map(|(index, (key, value))| (key, Stamp::new(Seqno(index as u64 + 1), Kind::Put), value)).collect();
        sort(&mut versions);
        versions
    })
}

/// Mostly addresses; also deletes, values, addresses that cannot be packed, and bytes that are not an address.
fn addressed_versions() -> impl Strategy<Value = Vec<Version>> {
    let file = prop_oneof![4 => 1u64..9, 1 => any::<u64>()];
    let offset = prop_oneof![4 => 0u64..1 << 24, 1 => any::<u64>()];
    let overhead = prop_oneof![9 => 20u32..40, 1 => 0u32..4];
    // Some values are compressed in their record.
    let stored_part = prop_oneof![4 => Just(1u32), 1 => 2u32..20];
    let place = (file, offset, overhead, prop_oneof![3 => 900u32..1000, 1 => 0u32..1 << 30], stored_part);
    let address = place.prop_map(|(file, offset, overhead, value_len, stored_part)| {
        let mut bytes = Vec::new();
        let len = value_len / stored_part + overhead;
        Address { file: FileId(file), offset, len, value_len }.encode(&mut bytes);
        (Kind::PutAt, bytes)
    });
    let inline = proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| (Kind::Put, bytes));
    let no_address = Just((Kind::DeltaAt, vec![0xff]));
    let payload = prop_oneof![200 => address, 20 => Just((Kind::Delete, Vec::new())), 20 => inline, 1 => no_address];
    let list = proptest::collection::vec((keys(), payload), 0..80);
    (list, prop_oneof![Just(1u64), 0..SEQNO_MAX - 100]).prop_map(|(list, first)| {
        let stamped = list.into_iter().enumerate();
        let version = |(index, (key, (kind, value)))| (key, Stamp::new(Seqno(first + index as u64), kind), value);
        let mut versions: Vec<Version> = stamped.map(version).collect();
        sort(&mut versions);
        versions
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stamp = (0u64..90).prop_map(|seqno| Stamp::at(Seqno(seqno)));
    let step = prop_oneof![
        2 => (keys(), stamp.clone()).prop_map(|(key, stamp)| Step::Seek(key, stamp)),
        2 => (keys(), stamp).prop_map(|(key, stamp)| Step::SeekBefore(key, stamp)),
        1 => Just(Step::SeekFirst),
        1 => Just(Step::SeekLast),
        6 => Just(Step::Next),
        6 => Just(Step::Prev),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn any_walk_over_a_block_equals_the_walk_over_the_vector(
        versions in versions(),
        restart_entries in 1usize..20,
        steps in steps(),
    ) {
        let mut cursor = open(build(&versions, restart_entries)).unwrap();
        assert_same_walk(&mut cursor, &mut VecCursor::new(versions), &steps);
    }

    #[test]
    fn any_walk_over_a_packed_block_equals_the_walk_over_the_vector(
        versions in addressed_versions(),
        restart_entries in 1usize..20,
        steps in steps(),
    ) {
        let block = build_packing(&versions, restart_entries);
        assert!(block.len() <= build(&versions, restart_entries).len());
        assert_same_walk(&mut open(block).unwrap(), &mut VecCursor::new(versions), &steps);
    }

    #[test]
    fn mutated_blocks_never_panic_or_hang(
        versions in prop_oneof![versions(), addressed_versions()],
        steps in steps(),
        mutations in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut block = build_packing(&versions, 4);
        for (index, byte) in &mutations {
            let at = index.index(block.len());
            block[at] = *byte;
        }
        if let Some(cut) = cut {
            block.truncate(cut.index(block.len()));
        }
        walk_malformed(block, &steps);
    }

    #[test]
    fn random_bytes_never_panic_or_hang(bytes in proptest::collection::vec(any::<u8>(), 0..200), steps in steps()) {
        walk_malformed(bytes, &steps);
    }

    #[test]
    fn small_random_bytes_with_restarts_never_panic_or_hang(
        entries in proptest::collection::vec(0u8..4, 1..120),
        restarts in proptest::collection::vec(0u32..130, 1..5),
        flag in prop_oneof![Just(0), Just(PACKED)],
        steps in steps(),
    ) {
        let mut bytes = entries;
        restarts.iter().for_each(|restart| bytes.extend_from_slice(&restart.to_le_bytes()));
        bytes.extend_from_slice(&(restarts.len() as u32 | flag).to_le_bytes());
        walk_malformed(bytes, &steps);
    }
}

/// Every move succeeds or returns `Corruption`, and keys and values stay within the block.
fn walk_malformed(block: Vec<u8>, steps: &[Step]) {
    let whole = block.len();
    let mut cursor = match open(block) {
        Ok(cursor) => cursor,
        Err(error) => return assert_names_the_file(&error),
    };
    for step in steps {
        let moved = match step {
            Step::Seek(key, stamp) => cursor.seek(key, *stamp),
            Step::SeekBefore(key, stamp) => cursor.seek_before(key, *stamp),
            Step::SeekFirst => cursor.seek_first(),
            Step::SeekLast => cursor.seek_last(),
            Step::Next if cursor.valid() => cursor.next(),
            Step::Prev if cursor.valid() => cursor.prev(),
            Step::Next | Step::Prev => Ok(()),
        };
        if let Err(error) = moved {
            assert_names_the_file(&error);
            assert!(!cursor.valid());
        }
        if cursor.valid() {
            assert!(cursor.key().len() + cursor.value().len() <= 2 * whole + Address::ENCODED_BYTES_MAX);
            assert_eq!(cursor.value_slice(), cursor.value());
        }
    }
    let mut moved = cursor.seek_first();
    for _ in 0..=whole {
        if moved.is_err() || !cursor.valid() {
            return;
        }
        moved = cursor.next();
    }
    panic!("a block has at most one entry per byte");
}

fn assert_names_the_file(error: &Error) {
    match error {
        Error::Corruption { path, offset, .. } => {
            assert_eq!(path, Path::new("dir/000007.table"));
            assert!(*offset >= 4096);
        }
        other => panic!("not a corruption: {other}"),
    }
}

#[test]
fn the_longest_key_and_an_empty_key_fit() {
    let versions: Vec<Version> = vec![
        (Vec::new(), Stamp::new(Seqno(2), Kind::Delete), Vec::new()),
        (vec![b'k'; FULL_KEY_BYTES_MAX], Stamp::new(Seqno(9), Kind::Put), vec![1; 1 << 20]),
        (vec![b'k'; FULL_KEY_BYTES_MAX], Stamp::new(Seqno(3), Kind::Put), Vec::new()),
    ];
    let mut cursor = open(build(&versions, 16)).unwrap();
    let steps = [Step::SeekFirst, Step::Next, Step::Next, Step::Prev, Step::Prev];
    assert_same_walk(&mut cursor, &mut VecCursor::new(versions), &steps);
}

#[test]
fn the_bytes_of_a_block_do_not_change() {
    let versions: Vec<Version> =
        vec![(b"abc".to_vec(), Stamp(0x0102), b"V".to_vec()), (b"abd".to_vec(), Stamp(0x0305), Vec::new())];
    let expected = [
        &[0, 3, 1, b'a', b'b', b'c', 2, 1, 0, 0, 0, 0, 0, 0, b'V'][..],
        &[2, 1, 0, b'd', 5, 3, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 1, 0, 0, 0],
    ];
    assert_eq!(build(&versions, 16), expected.concat());
}

/// Versions as a bulk load leaves them: random keys of one length, with values of one size in a few logs.
fn bulk_loaded(count: u64) -> Vec<Version> {
    let mut versions: Vec<Version> = (0..count)
        .map(|number| {
            let mut key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
            key.resize(28, number as u8);
            let mut value = Vec::new();
            let (file, offset) = (FileId(7 + number % 30), number * 100_003 % (1 << 24));
            Address { file, offset, len: 1047, value_len: 1000 }.encode(&mut value);
            (key, Stamp::new(Seqno(1_000_000 + number * 99), Kind::PutAt), value)
        })
        .collect();
    sort(&mut versions);
    versions
}

#[test]
fn an_address_and_its_stamp_take_six_bytes_in_a_packed_block() {
    let versions = bulk_loaded(100);
    let (plain, packed) = (build(&versions, 16), build_packing(&versions, 16));
    assert!(is_packed(&packed) && !is_packed(&plain));
    // Unpacked: two lengths of 1 B, the stamp, and an address of 8 or 9 B. Packed: a row of 6 B; the layout takes 22 B
    // once.
    assert!(plain.len() - packed.len() > 100 * (2 + 8 + 8 - 6), "{} B, {} B packed", plain.len(), packed.len());
}

#[test]
fn a_block_is_packed_only_if_that_makes_it_smaller() {
    let inline: Vec<Version> = (0..50).map(|number| (vec![number], Stamp(0x0102), vec![7; 20])).collect();
    assert_eq!(build_packing(&inline, 16), build(&inline, 16));
    assert!(!is_packed(&build_packing(&bulk_loaded(1), 16)));
    assert!(is_packed(&build_packing(&bulk_loaded(3), 16)));
    // A malformed address prevents packing.
    let mut versions = bulk_loaded(50);
    versions[20].2.push(0);
    assert_eq!(build_packing(&versions, 16), build(&versions, 16));
    // A builder decides for each block on its own.
    let mut builder = BlockBuilder::new().packing();
    for (versions, packs) in [(bulk_loaded(50), true), (inline, false), (bulk_loaded(50), true)] {
        versions.iter().for_each(|(key, stamp, value)| builder.add(key, *stamp, value));
        let block = builder.finish();
        assert_eq!((is_packed(&block), block), (packs, build_packing(&versions, 16)));
    }
}

#[test]
fn the_bytes_of_a_packed_block_do_not_change() {
    let at = |offset| {
        let mut bytes = Vec::new();
        Address { file: FileId(9), offset, len: 1000 + 30 + 3, value_len: 1000 }.encode(&mut bytes);
        bytes
    };
    let versions: Vec<Version> = vec![
        (b"abc".to_vec(), Stamp::new(Seqno(0x0102), Kind::PutAt), at(0x030405)),
        (b"abd".to_vec(), Stamp::new(Seqno(0x0101), Kind::PutAt), at(0x030400)),
        (b"abe".to_vec(), Stamp::new(Seqno(0x0100), Kind::Delete), Vec::new()),
        (b"abf".to_vec(), Stamp::new(Seqno(0x0103), Kind::PutAt), at(0x030407)),
    ];
    let expected = [
        // Widths of kind, seqno, file, offset, overhead and value length; the key length.
        &[2, 2, 0, 3, 0, 0, 3][..],
        // The minima of these columns.
        &[1, 0x80, 2, 9, 0x80, 0x88, 0x0c, 0x80 | 30, 0x80, 0x80, 0x80, 32, 0xe8, 7],
        &[0, b'a', b'b', b'c', 5 << 4 | 2 << 2 | 2],
        &[2, b'd', 1 << 2 | 2],
        &[2, b'e', 0, 0],
        &[2, b'f', 7 << 4 | 3 << 2 | 2],
        &[21, 0, 0, 0, 1, 0, 0, 0x80],
    ];
    assert_eq!(build_packing(&versions, 16), expected.concat());
    let mut cursor = open(build_packing(&versions, 16)).unwrap();
    let steps = [Step::SeekFirst, Step::Next, Step::Next, Step::Next, Step::Prev, Step::Prev];
    assert_same_walk(&mut cursor, &mut VecCursor::new(versions), &steps);
}

#[test]
fn a_packed_block_with_an_impossible_layout_is_corrupt() {
    let block = build_packing(&bulk_loaded(50), 16);
    // Widths of kind, seqno, file and offset; the minimum of the kinds, behind the key length.
    for (at, number) in [(0, 5), (1, 57), (2, 65), (3, 100), (7, 16)] {
        let mut damaged = block.clone();
        damaged[at] = number;
        assert_names_the_file(&open(damaged).err().unwrap());
    }
    let mut longer_keys = block;
    longer_keys[6] = 27;
    let mut cursor = open(longer_keys).unwrap();
    assert!((0..50).any(|_| cursor.seek_last().is_err()) && !cursor.valid());
}

#[test]
fn an_entry_that_shares_more_bytes_than_the_previous_key_has_is_corrupt() {
    let versions: Vec<Version> =
        vec![(b"abc".to_vec(), Stamp(0x0102), b"V".to_vec()), (b"abd".to_vec(), Stamp(0x0305), Vec::new())];
    let mut block = build(&versions, 16);
    block[15] = 4;
    let mut cursor = open(block).unwrap();
    cursor.seek_first().unwrap();
    let error = cursor.next().unwrap_err();
    assert!(matches!(error, Error::Corruption { offset, .. } if offset == 4096 + 15), "{error}");
    assert!(!cursor.valid());
}

#[test]
fn value_slices_share_the_memory_of_the_block() {
    let versions: Vec<Version> = vec![(b"k".to_vec(), Stamp::new(Seqno(1), Kind::Put), b"value".to_vec())];
    let mut cursor = open(build(&versions, 16)).unwrap();
    cursor.seek_first().unwrap();
    let slice = cursor.value_slice();
    assert_eq!(slice.as_ptr(), cursor.value().as_ptr());
    drop(cursor);
    assert_eq!(slice, b"value");
}

#[test]
fn an_empty_block_has_no_entries() {
    let mut cursor = open(BlockBuilder::new().finish()).unwrap();
    cursor.seek(b"x", Stamp::NEWEST).unwrap();
    assert!(!cursor.valid());
    cursor.seek_before(b"x", Stamp::NEWEST).unwrap();
    assert!(!cursor.valid());
    cursor.seek_last().unwrap();
    assert!(!cursor.valid());
}

#[test]
fn shared_bytes_are_counted_across_word_borders_and_up_to_either_end() {
    let bytes: Vec<u8> = (0..40).collect();
    for left_len in 0..40 {
        for right_len in 0..40 {
            for differing in 0..40 {
                let (left, mut right) = (bytes[..left_len].to_vec(), bytes[..right_len].to_vec());
                if let Some(byte) = right.get_mut(differing) {
                    *byte ^= 0x80;
                }
                assert_eq!(shared_bytes(&left, &right), left_len.min(right_len).min(differing));
            }
        }
    }
}
