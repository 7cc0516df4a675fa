//! The manifest over the simulated disk: torn tails are cut, damage is reported.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::base::{KeyspaceId, Seqno};
use crate::format::keyspace_record::{DeltaPlacement, KeyspaceKind, KeyspaceRecord, Separation};
use crate::io::{Faults, SimDisk};

fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn make(disk: &SimDisk, edits: u64) -> Manifest {
    disk.create_dir_all(&dir()).unwrap();
    let mut manifest = Manifest::new(Arc::new(disk.clone()), &dir(), 1 << 20);
    let next = AtomicU64::new(100);
    for number in 1..=edits {
        let edit = Edit { last_seqno: Some(Seqno(number)), ..Edit::default() };
        manifest.commit(&edit, &|| Ok(FileId(next.fetch_add(1, Ordering::Relaxed)))).unwrap();
    }
    manifest
}

fn read(disk: &SimDisk) -> Result<Seqno> {
    let manifest = Manifest::read(Arc::new(disk.clone()), &dir(), 1 << 20)?;
    Ok(manifest.map_or(Seqno::ZERO, |manifest| manifest.state().last_seqno))
}

fn manifest_file(disk: &SimDisk) -> (PathBuf, Vec<u8>) {
    let (path, _) = disk.files().into_iter().find(|(path, _)| path.to_string_lossy().ends_with("manifest")).unwrap();
    let bytes = disk.read_file(&path).unwrap();
    (path, bytes)
}

#[test]
fn edits_survive_loss_of_power_as_soon_as_they_are_committed() {
    let disk = SimDisk::new();
    for edits in 1..6 {
        let disk = SimDisk::new();
        make(&disk, edits);
        for seed in 0..20 {
            assert_eq!(read(&disk.power_loss(seed)).unwrap(), Seqno(edits));
        }
    }
    assert_eq!(read(&disk).unwrap(), Seqno::ZERO);
}

#[test]
fn a_torn_last_edit_is_left_out() {
    let disk = SimDisk::new();
    make(&disk, 3);
    let (path, bytes) = manifest_file(&disk);
    disk.write_file(&path, &bytes[..bytes.len() - 1]);
    assert_eq!(read(&disk).unwrap(), Seqno(2));
}

#[test]
fn damage_before_a_whole_edit_or_after_a_clean_close_is_reported() {
    let disk = SimDisk::new();
    let mut manifest = make(&disk, 3);
    let (path, bytes) = manifest_file(&disk);
    let last = bytes.len() - 1;
    let flip = |at: usize| {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        disk.write_file(&path, &bad);
        read(&disk)
    };
    assert!(flip(last).is_ok(), "could be a torn write");
    // The first edit is in the part that CURRENT vouches for, the second is followed by a third.
    for at in 0..last - 20 {
        assert!(matches!(flip(at), Err(Error::Corruption { .. } | Error::Unsupported { .. })), "byte {at}");
    }
    disk.write_file(&path, &bytes);
    manifest.seal().unwrap();
    assert!(matches!(flip(last), Err(Error::Corruption { .. })));
}

#[test]
fn after_a_failure_nothing_more_is_committed() {
    let edit = |number| Edit { last_seqno: Some(Seqno(number)), ..Edit::default() };
    let faults = |after| {
        let sync = Faults { fail_sync_after: Some(after), ..Faults::default() };
        let directory = Faults { fail_directory_after: Some(after), ..Faults::default() };
        let write = Faults { fail_write_after: Some(after), ..Faults::default() };
        [sync, directory, write]
    };
    for edits in [0, 1] {
        for fault in (0..4).flat_map(faults) {
            let disk = SimDisk::new();
            let mut manifest = make(&disk, edits);
            disk.set_faults(fault.clone());
            let failed = manifest.commit(&edit(5), &|| Ok(FileId(200)));
            let sealed = failed.is_ok().then(|| manifest.seal());
            disk.clear_faults();
            if failed.is_ok() && sealed.is_some_and(|sealed| sealed.is_ok()) {
                continue;
            }
            // The disk works again, but what is on it is not known.
            let again = manifest.commit(&edit(6), &|| Ok(FileId(201)));
            assert!(matches!(again, Err(Error::Poisoned { .. })), "{edits} edits, {fault:?}: {again:?}");
            assert!(matches!(manifest.seal(), Err(Error::Poisoned { .. })), "{edits} edits, {fault:?}");
        }
    }
}

#[test]
fn a_full_disk_leaves_the_manifest_as_it_was() {
    for edits in [0, 1] {
        let disk = SimDisk::new();
        let mut manifest = make(&disk, edits);
        let before = disk.files();
        disk.set_capacity(Some(disk.used()));
        let records = (1..200).map(|id| KeyspaceRecord {
            id: KeyspaceId(id),
            kind: KeyspaceKind::Ordered,
            name: "k".repeat(200),
            operator: None,
            compression: None,
            separation: Separation::Default,
            deltas: DeltaPlacement::Levels,
        });
        let edit = Edit { keyspaces_added: records.collect(), last_seqno: Some(Seqno(9)), ..Edit::default() };
        let full = manifest.commit(&edit, &|| Ok(FileId(200)));
        assert!(matches!(full, Err(Error::NoSpace { .. })), "{full:?}");
        assert_eq!(disk.files(), before);
        assert_eq!(read(&disk).unwrap(), Seqno(edits));
        disk.set_capacity(None);
        manifest.commit(&edit, &|| Ok(FileId(201))).unwrap();
        assert_eq!(read(&disk.power_loss(3)).unwrap(), Seqno(9));
    }
}

#[test]
fn a_manifest_with_a_limit_is_written_anew_in_time_and_keeps_to_it_with_the_file_that_replaces_it() {
    const LIMIT: u64 = 12 << 10;
    let (disk, most) = (SimDisk::new(), Arc::new(AtomicU64::new(0)));
    let mut manifest = make(&disk, 1);
    manifest.limit_len(LIMIT);
    let into = most.clone();
    disk.on_sync(move |disk, _| {
        into.fetch_max(disk.used_in(&dir()), Ordering::Relaxed);
    });
    let next = AtomicU64::new(200);
    for id in 1..500 {
        let record = KeyspaceRecord {
            id: KeyspaceId(id),
            kind: KeyspaceKind::Ordered,
            name: format!("{id:0100}"),
            operator: None,
            compression: None,
            separation: Separation::Default,
            deltas: DeltaPlacement::Levels,
        };
        // The state stays small.
        let dropped = if id > 20 { vec![(KeyspaceId(id - 20), Seqno(id.into()))] } else { Vec::new() };
        let edit = Edit {
            keyspaces_added: vec![record],
            keyspaces_forgotten: dropped.iter().map(|(keyspace, _)| *keyspace).collect(),
            keyspaces_dropped: dropped,
            last_seqno: Some(Seqno(u64::from(id) + 1)),
            ..Edit::default()
        };
        manifest.commit(&edit, &|| Ok(FileId(next.fetch_add(1, Ordering::Relaxed)))).unwrap();
        assert!(manifest.len() <= LIMIT && manifest.state_len() <= manifest.len());
    }
    disk.clear_on_sync();
    let files = next.load(Ordering::Relaxed) - 200;
    assert!((3..100).contains(&files), "{files}");
    assert!(most.load(Ordering::Relaxed) <= 2 * LIMIT + 4096, "{most:?}");
    assert_eq!(read(&disk).unwrap(), Seqno(500));
}

#[test]
fn an_edit_that_does_not_fit_is_refused_before_anything_is_written() {
    let disk = SimDisk::new();
    let mut manifest = make(&disk, 1);
    let before = manifest_file(&disk);
    let bad = Edit { logs_removed: vec![FileId(7)], ..Edit::default() };
    assert!(matches!(manifest.commit(&bad, &|| Ok(FileId(200))), Err(Error::Poisoned { .. })));
    assert_eq!(manifest_file(&disk), before);
}

#[test]
fn a_manifest_number_beyond_the_limit_is_damage() {
    let text = encode_current(FileId(FILE_ID_MAX + 1), 100);
    assert!(matches!(parse_current(&dir(), text.as_bytes()), Err(Error::Corruption { .. })));
}
