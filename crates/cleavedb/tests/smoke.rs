//! smoke
use cleavedb::testing::*;
use cleavedb::*;
use std::path::Path;
use std::sync::Arc;

fn check(db: &Db, n: u32) {
    for i in 0..n {
        let k = format!("key{:05}", i * 7919 % 5000);
        let got = db.get(&k).unwrap();
        assert!(got.is_some(), "{k} missing");
    }
    let fwd: Vec<_> = db.iter().unwrap().map(|r| r.unwrap().0.to_vec()).collect();
    let mut bwd: Vec<_> = db.iter().unwrap().rev().map(|r| r.unwrap().0.to_vec()).collect();
    bwd.reverse();
    assert_eq!(fwd.len(), 5000);
    assert_eq!(fwd, bwd);
}

#[test]
fn smoke() {
    for backend in [LogBackend::Ring, LogBackend::Plain] {
        let disk = SimDisk::new();
        let open = |disk: &SimDisk| testing::open(Arc::new(disk.clone()), Path::new("/db"), Options::new().log_backend(backend), Tuning::tiny()).unwrap();
        let db = open(&disk);
        for i in 0..5000u32 {
            let k = format!("key{:05}", i * 7919 % 5000);
            db.put(&k, vec![i as u8; (i % 700) as usize]).unwrap();
        }
        check(&db, 5000);
        db.flush().unwrap();
        check(&db, 5000);
        println!("{:#?}", db.stats());
        db.close().unwrap();
        let db = open(&disk);
        check(&db, 5000);
        for i in 0..100u32 { db.put(format!("key{:05}", i), "x").unwrap(); }
        let crashed = disk.process_crash();
        disk.halt();
        drop(db);
        let db = open(&crashed);
        check(&db, 5000);
        assert_eq!(db.get("key00005").unwrap().unwrap(), b"x");
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        check(&db, 5000);
    }
}
