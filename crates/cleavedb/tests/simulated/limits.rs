//! Limits are checked before anything is written.

use cleavedb::testing::SimDisk;
use cleavedb::{Db, Error, WriteBatch};

use crate::support::{open, with_each_log};

/// Neither the rejected write nor the others in its batch may be stored.
fn assert_refused(db: &Db, key: &[u8], value: &[u8]) {
    let seqno = db.stats().seqno;
    let mut batch = WriteBatch::new();
    batch.put(&db.default_keyspace(), "beside", "1");
    batch.put(&db.default_keyspace(), key, value);
    assert!(matches!(db.write(batch), Err(Error::InvalidInput { .. })));
    assert!(matches!(db.put(key, value), Err(Error::InvalidInput { .. })));
    assert_eq!(db.stats().seqno, seqno);
    assert_eq!(db.get("beside").unwrap(), None);
    assert_eq!(db.iter().unwrap().count(), 0);
}

#[test]
fn a_write_beyond_a_limit_is_refused_and_nothing_is_written() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        assert_refused(&db, b"", b"value");
        assert_refused(&db, &[b'k'; 65_536], b"value");
        assert_refused(&db, b"key", &vec![0; 1 << 30]);
        assert!(matches!(db.delete(""), Err(Error::InvalidInput { .. })));
        // Each is small enough by itself, but not together.
        let mut batch = WriteBatch::new();
        batch.put(&db.default_keyspace(), "one", vec![1; 1000]);
        batch.put(&db.default_keyspace(), "two", vec![0; (1 << 30) - 500]);
        assert!(matches!(db.write(batch), Err(Error::InvalidInput { .. })));
        assert_eq!(db.stats().seqno, 0);
        let db = open(&disk.process_crash(), backend).unwrap();
        assert_eq!(db.iter().unwrap().count(), 0);
    });
}

#[test]
fn every_call_refuses_a_key_of_a_wrong_length_in_the_same_words() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        for key in [vec![], vec![b'k'; 65_536]] {
            let refusals = [
                db.put(&key, "v").unwrap_err(),
                db.delete(&key).unwrap_err(),
                db.get(&key).unwrap_err(),
                db.multi_get([&key]).remove(0).unwrap_err(),
                db.ingest([(&key, "v")]).unwrap_err(),
            ];
            let message = format!("a key has from 1 to 65535 bytes, this one has {}", key.len());
            for refusal in refusals {
                assert!(matches!(&refusal, Error::InvalidInput { message: text } if *text == message), "{refusal}");
            }
        }
    });
}

#[test]
fn a_write_exactly_at_the_limits_is_accepted() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        db.put([0], "").unwrap();
        db.put([b'k'; 65_535], "long").unwrap();
        db.put("large", vec![7; 3 << 20]).unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let db = open(&disk, backend).unwrap();
        assert_eq!(db.get([0]).unwrap().unwrap(), "");
        assert_eq!(db.get([b'k'; 65_535]).unwrap().unwrap(), "long");
        assert_eq!(db.get("large").unwrap().unwrap(), vec![7; 3 << 20]);
    });
}

#[test]
fn an_empty_batch_writes_nothing() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        db.write(WriteBatch::new()).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(&db.default_keyspace(), "", "refused");
        batch.clear();
        db.write(batch).unwrap();
        assert_eq!(db.stats().seqno, 0);
    });
}
