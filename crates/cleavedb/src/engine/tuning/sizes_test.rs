//! Tests of the internal sizes.

use super::*;

#[test]
fn the_parts_of_every_budget_do_not_exceed_it() {
    for budget in [16, 17, 20, 31, 32, 33, 48, 64, 100, 128, 255, 256, 400, 512, 1024, 4096, 1 << 16] {
        for block_size in [512, 4096, 64 << 10, 1 << 20] {
            for (threads, filter_bits) in [(1, 0), (2, 10), (64, 64)] {
                let Ok(tuning) = Tuning::for_options(budget * MIB, block_size, filter_bits, threads) else {
                    assert!(budget <= 64 && block_size == 1 << 20, "{budget} MiB, blocks of {block_size} B");
                    continue;
                };
                let all = tuning.beside_jobs() + tuning.job_bytes + tuning.cache_bytes_min;
                assert!(all <= budget * MIB, "{budget} MiB: {tuning:?}");
                // While the front is empty the caches have their full size.
                let idle = tuning.log_buffer_bytes() + tuning.merging_bytes() + tuning.job_bytes;
                assert!(idle + tuning.cache_bytes <= budget * MIB);
                let builder = TableOptions::builder_bytes(block_size, filter_bits, tuning.write_bytes);
                let compaction = builder + compaction_bytes(block_size, tuning.hl0_stop_tables);
                let segment = segment_builder_bytes(block_size, filter_bits, tuning.write_bytes);
                let flush = builder + segment + tuning.fetch_bytes / 3 * 4;
                let jobs = flush + tuning.read_ahead_bytes + tuning.compactions_max * compaction;
                assert!(jobs <= tuning.job_bytes, "{budget} MiB: jobs need {jobs} B: {tuning:?}");
                assert!(4 * tuning.chunk_bytes <= tuning.ring_bytes && tuning.compactions_max >= 1);
            }
        }
    }
}

#[test]
fn logs_and_ring_grow_with_the_data_up_to_their_largest_size() {
    for budget in [16, 100, 256, 4096] {
        let tuning = Tuning::for_budget(budget * MIB);
        let mut before = (0, 0);
        for stored in (0..40).map(|shift| (1_u64 << shift) - 1) {
            let log = tuning.log_bytes_for(stored);
            let ring = tuning.ring_bytes_for(log);
            assert!((log, ring) >= before && log <= tuning.log_bytes && ring <= tuning.ring_bytes);
            assert!(
                log <= (stored / 32).max((stored / 2).min(SMALL_LOG_BYTES)).max(MIB as u64) && ring as u64 <= log / 4
            );
            assert!(4 * tuning.chunk_bytes_for(ring) <= ring && ring.is_power_of_two());
            before = (log, ring);
        }
        assert_eq!(before, (tuning.log_bytes, tuning.ring_bytes));
    }
    assert_eq!(Tuning::tiny().log_bytes_for(0), Tuning::tiny().log_bytes);
    assert_eq!(Tuning::tiny().ring_bytes_for(64 << 10), Tuning::tiny().ring_bytes);
}

#[test]
fn the_error_for_a_budget_too_small_states_the_least_sufficient_one() {
    let refused = |budget| match Tuning::for_options(budget, 1 << 20, 10, 2) {
        Err(Error::InvalidInput { message }) => Some(message),
        _ => None,
    };
    let message = refused(16 * MIB).unwrap();
    let least: usize = message.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(refused(least).is_none() && refused(least - MIB).is_some(), "{message}");
    assert!(least <= 64 * MIB, "{message}");
}
