//! Tests of the internal sizes.

use super::*;
use crate::engine::fast_tier::SMALL_FILES_BYTES;

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
                let idle = tuning.log_buffer_bytes() + tuning.job_bytes;
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
fn the_size_and_the_number_of_buckets_follow_the_budget_within_bounds() {
    for (budget, bytes, count) in
        [(16, 64 << 10, 256), (32, 128 << 10, 512), (256, 256 << 10, 4096), (4096, 256 << 10, 32_768)]
    {
        let tuning = Tuning::for_budget(budget * MIB);
        let sizes = tuning.bucket_sizes();
        assert_eq!((sizes.bytes_max, sizes.buckets_max), (bytes, count), "{budget} MiB");
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

/// What excludes that a small fast tier waits for itself: what cannot leave it is a small part, so that there are always logs
/// that can, and flushes begin before writers stop.
#[test]
fn every_budget_of_the_fast_tier_holds_what_cannot_leave_it_and_several_logs() {
    let doubled = (0..=14).map(|doublings| (64_u64 << 20) << doublings);
    let budgets = doubled.flat_map(|budget| [budget, budget + 1, budget / 3 * 4, budget / 2 * 3 - 1]);
    for (budget, memory) in budgets.flat_map(|budget| [16, 17, 64, 250, 1024, 8192].map(|memory| (budget, memory))) {
        let mut tuning = Tuning::for_budget(memory * MIB);
        tuning.fit_fast_tier(budget);
        let what = format!("{budget} B, {memory} MiB of memory: {tuning:?}");
        let Tuning { log_bytes, log_bytes_min, ring_bytes, ring_bytes_min, manifest_bytes, .. } = tuning;
        // Both rings while one grows, the manifest with the one that replaces it, the reserve, and small files.
        let rings = ring_bytes as u64 * 3 / 2;
        let reserve = manifest_bytes.min(tuning.reserve_bytes);
        let stays = rings + 2 * manifest_bytes + reserve + 2 * SMALL_FILES_BYTES;
        assert!(stays <= budget / 5, "{stays} B stay; {what}");
        // Before room is wanted there are a log that is written, the spare one, and two that can leave.
        assert!(stays + 4 * log_bytes <= budget / 100 * 70, "{what}");
        // A quarter of the budget is flushed at once, and writers are stopped by what recovery would read only beyond twice that.
        assert!(2 * log_bytes <= budget / 4, "{what}");
        assert!(4 * log_bytes <= tuning.replay_bytes_max && 4 * log_bytes <= tuning.logs_bytes_max, "{what}");
        // The least size of a log, where there is no room for a larger one, still has room for records.
        assert!(log_bytes_min <= log_bytes && log_bytes / 16 >= 16 * BLOCK_IO_BYTES as u64, "{what}");
        assert!(
            ring_bytes_min <= ring_bytes && ring_bytes.is_power_of_two() && 2 * ring_bytes as u64 <= log_bytes,
            "{what}"
        );
        assert!(4 * tuning.chunk_bytes <= ring_bytes && tuning.chunk_bytes.is_multiple_of(BLOCK_IO_BYTES), "{what}");
        for stored in (0..44).map(|shift| 1_u64 << shift) {
            let log = tuning.log_bytes_for(stored);
            let ring = tuning.ring_bytes_for(log);
            assert!(
                log <= log_bytes && ring <= ring_bytes && 4 * tuning.chunk_bytes_for(ring) <= ring,
                "{stored}; {what}"
            );
        }
    }
}
