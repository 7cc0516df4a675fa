//! What `cleave import` reads. The program has no library, so its files are compiled in here.
#![no_main]

#[path = "../../crates/cleave-cli/src/transfer"]
#[allow(dead_code)]
mod transfer {
    mod record;
    pub use record::{Record, check_limits};
    pub mod binary;
    pub mod jsonl;
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut records) = transfer::binary::Reader::new(bytes) {
        while let Ok(Some(_)) = records.next() {}
    }
    let mut records = transfer::jsonl::Reader::new(bytes);
    while let Ok(Some(_)) = records.next() {}
});
