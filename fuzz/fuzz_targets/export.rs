//! What `cleave import` reads: whatever is read is written in both formats, and read again as it was. The program has no library,
//! so its files are compiled in here.
#![no_main]

#[path = "../../crates/cleave-cli/src/transfer"]
mod transfer {
    pub mod record;
    pub mod binary;
    pub mod jsonl;
}

use transfer::record::Record;
use transfer::{binary, jsonl};

fn write_and_read((key, value): &Record) {
    let mut written = binary::MAGIC.to_vec();
    binary::write(&mut written, key, value).expect("memory takes it");
    let mut records = binary::Reader::new(&written[..]).expect("it begins as it should");
    assert_eq!(records.next().as_ref(), Ok(&Some((key.clone(), value.clone()))), "{}", records.place());
    assert_eq!(records.next(), Ok(None));
    let mut written = Vec::new();
    jsonl::write(&mut written, key, value).expect("memory takes it");
    let mut records = jsonl::Reader::new(&written[..]);
    assert_eq!(records.next().as_ref(), Ok(&Some((key.clone(), value.clone()))), "{}", records.place());
    assert_eq!(records.next(), Ok(None));
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut records) = binary::Reader::new(bytes) {
        while let Ok(Some(record)) = records.next() {
            write_and_read(&record);
        }
    }
    let mut records = jsonl::Reader::new(bytes);
    while let Ok(Some(record)) = records.next() {
        write_and_read(&record);
    }
});
