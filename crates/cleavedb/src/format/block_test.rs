//! Tests of the sorted block: every walk agrees with a sorted vector, and hostile bytes give errors.

use proptest::prelude::*;

use super::*;
use crate::base::cursor::model::{Step, VecCursor, Version, assert_same_walk, sort};
use crate::base::{Kind, Seqno};

fn origin() -> BlockOrigin {
    BlockOrigin { path: Path::new("dir/000007.table").into(), offset: 4096 }
}

fn build(versions: &[Version], restart_entries: usize) -> Vec<u8> {
    let mut builder = BlockBuilder::with_restart_every(restart_entries);
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
    BlockCursor::new(Arc::new(Buffer::new(block)), origin())
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
    fn mutated_blocks_never_panic_or_hang(
        versions in versions(),
        steps in steps(),
        mutations in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut block = build(&versions, 4);
        for (index, byte) in &mutations {
            let at = index.index(block.len());
            block[at] = *byte;
        }
        if let Some(cut) = cut {
            block.truncate(cut.index(block.len()));
        }
        walk_hostile(block, &steps);
    }

    #[test]
    fn random_bytes_never_panic_or_hang(bytes in proptest::collection::vec(any::<u8>(), 0..200), steps in steps()) {
        walk_hostile(bytes, &steps);
    }

    #[test]
    fn small_random_bytes_with_restarts_never_panic_or_hang(
        entries in proptest::collection::vec(0u8..4, 1..120),
        restarts in proptest::collection::vec(0u32..130, 1..5),
        steps in steps(),
    ) {
        let mut bytes = entries;
        restarts.iter().for_each(|restart| bytes.extend_from_slice(&restart.to_le_bytes()));
        bytes.extend_from_slice(&(restarts.len() as u32).to_le_bytes());
        walk_hostile(bytes, &steps);
    }
}

/// Every move either works or says `Corruption`, and what can be read lies within the block.
fn walk_hostile(block: Vec<u8>, steps: &[Step]) {
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
            assert!(cursor.key().len() + cursor.value().len() <= 2 * whole);
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
    panic!("a block has fewer entries than bytes");
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

#[test]
fn a_key_that_shares_more_than_there_is_before_it_is_corrupt() {
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
fn values_are_shared_with_the_block() {
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
fn shared_bytes_are_counted_across_words_and_ends() {
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
