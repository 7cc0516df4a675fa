#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cleavedb::testing::decoders::fuzz_index(bytes));
