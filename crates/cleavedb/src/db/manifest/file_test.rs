//! The manifest over the simulated disk: torn tails are cut, damage is reported.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::base::Seqno;
use crate::io::SimDisk;

fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn make(disk: &SimDisk, edits: u64) -> Manifest {
    disk.create_dir_all(&dir()).unwrap();
    let mut manifest = Manifest::new(Arc::new(disk.clone()), &dir(), 1 << 20);
    let next = AtomicU64::new(100);
    for number in 1..=edits {
        let edit = Edit { last_seqno: Some(Seqno(number)), ..Edit::default() };
        manifest.commit(&edit, &|| FileId(next.fetch_add(1, Ordering::Relaxed))).unwrap();
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
