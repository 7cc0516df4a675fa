//! Cache balance: moves the boundaries between the caches one step towards the cache that would save more reads with more
//! memory (`cache/balance.rs`).

use std::sync::atomic::Ordering;

use crate::base::Result;
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::shortages::Need;
use crate::engine::work::{Class, MemoryShare, Profile};

/// Due when enough look-ups have missed recently evicted entries: it depends on demand, not on time. A reader that
/// notices this wakes the thread, which also checks whenever it wakes for another reason.
pub(crate) const KIND: JobKind = JobKind {
    priority: Priority::Room,
    duties: &[Duty::Logs],
    next: |core, _, _| if core.caches_want_balance() { JobKind::begin(BalanceCaches) } else { None },
};

/// Moves the boundaries one step.
struct BalanceCaches;

impl Job for BalanceCaches {
    fn profile(&self, _: &Core) -> Profile {
        Profile {
            name: "balance caches",
            claims: Claims::sole(Sole::CacheBoundary),
            binds: Binds::CPU,
            class: Class::Mandatory,
            memory: MemoryShare::Nothing,
            need: Need::Flush,
            meets_need: false,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| {
            core.balance_caches();
            Ok(Outcome::nothing())
        })))
    }
}

impl Core {
    fn balance_caches(&self) {
        let memory = &self.memory;
        let (blocks, values, operands) = (&self.readers.cache, memory.value_cache.ghosts(), &memory.operands);
        let others = blocks.demand().plus(values.demand());
        let is_used = operands.capacity() > 0;
        let of_values = memory.balance.step(blocks.demand(), values.demand());
        let of_operands = is_used.then(|| memory.operand_balance.step(others, operands.demand())).flatten();
        if of_values.is_some() {
            blocks.reset_demand();
            values.reset_demand();
        }
        // The others' demand stays, or the boundary between them would never know enough.
        if of_operands.is_some() {
            operands.reset_demand();
        }
        let moved = [of_values, of_operands];
        if moved == [None; 2] {
            return;
        }
        self.counters.cache_balances.fetch_add(1, Ordering::Relaxed);
        if moved.contains(&Some(true)) {
            self.fit_cache();
            // No other job may come for long.
            self.release_memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::engine::tuning::sizes::Tuning;
    use crate::io::SimDisk;
    use crate::sched::sim::simulate;
    use crate::sched::thread::sleep;
    use crate::{Db, DeltaPlacement, KeyspaceOptions, MergeOperator, Options};

    const VALUES: u32 = 600;
    /// More lists than the operand cache holds.
    const LISTS: u32 = 2000;

    fn key(number: u32) -> String {
        format!("{number:04}")
    }

    /// A database with more separated values than the value cache holds.
    fn filled(stats_interval: Option<Duration>) -> Db {
        let tuning = Tuning { stats_interval, cache_bytes: 2 << 20, ..Tuning::tiny() };
        let disk = Arc::new(SimDisk::new());
        let options = Options::new().background_threads(1);
        let db = crate::api::db::open(disk, Path::new("/db"), options, Some(tuning)).unwrap();
        for number in 0..VALUES {
            db.put(key(number), vec![number as u8; 1000]).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        db
    }

    fn read_all(db: &Db, rounds: usize) {
        for number in (0..rounds).flat_map(|_| 0..VALUES) {
            assert!(db.get(key(number)).unwrap().is_some());
        }
    }

    fn balances(db: &Db) -> u64 {
        db.inner.core.counters.cache_balances.load(Ordering::Relaxed)
    }

    fn in_world(test: impl FnOnce() + Send + 'static) {
        simulate(11, test).unwrap_or_else(|failure| panic!("{failure}"));
    }

    #[test]
    fn look_ups_of_evicted_values_have_the_caches_balanced_without_any_timer() {
        in_world(|| {
            let db = filled(None);
            let before = balances(&db);
            read_all(&db, 6);
            sleep(Duration::from_millis(1));
            assert!(balances(&db) > before);
        });
    }

    #[test]
    fn writing_statistics_changes_no_cache() {
        in_world(|| {
            let db = filled(Some(Duration::from_secs(1)));
            // The caches have borrowed from the jobs by then.
            sleep(Duration::from_secs(3));
            let pause = db.pause_background().unwrap();
            let before = balances(&db);
            read_all(&db, 6);
            assert!(db.inner.core.caches_want_balance());
            let capacities = || {
                let core = &db.inner.core;
                (core.readers.cache.capacity(), core.memory.value_cache.capacity())
            };
            let capacities_before = capacities();
            // Statistics are written during a pause, and jobs are not run.
            sleep(Duration::from_secs(5));
            assert_eq!((balances(&db), capacities()), (before, capacities_before));
            assert!(db.inner.core.caches_want_balance());
            drop(pause);
            sleep(Duration::from_millis(1));
            assert!(balances(&db) > before);
        });
    }

    /// Joins operands.
    struct Append;

    impl MergeOperator for Append {
        fn name(&self) -> &str {
            "append"
        }

        fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
            Ok([&[base.unwrap_or_default()][..], operands].concat().concat())
        }

        fn partial_merge(&self, _: &[u8], _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
            None
        }
    }

    #[test]
    fn look_ups_of_evicted_operand_lists_count_as_demand_however_they_are_read() {
        in_world(|| {
            let tuning = Tuning { cache_bytes: 2 << 20, ..Tuning::tiny() };
            let options = Options::new().background_threads(1).merge_operator(Arc::new(Append));
            let db = crate::api::db::open(Arc::new(SimDisk::new()), Path::new("/db"), options, Some(tuning)).unwrap();
            let options = KeyspaceOptions::new().merge_operator("append").deltas(DeltaPlacement::Buckets);
            let lists = db.create_keyspace("lists", options).unwrap();
            (0..LISTS).for_each(|number| lists.put(key(number), "base").unwrap());
            db.flush().unwrap();
            (0..LISTS).for_each(|number| lists.merge(key(number), [number as u8; 100]).unwrap());
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            let _pause = db.pause_background().unwrap();
            let demand_of = |read: &dyn Fn(String)| {
                let operands = &db.inner.core.memory.operands;
                operands.reset_demand();
                (0..2 * LISTS).for_each(|number| read(key(number % LISTS)));
                operands.demand().hits
            };
            let alone = demand_of(&|key| assert!(lists.get(key).unwrap().is_some()));
            let together = demand_of(&|key| assert!(lists.multi_get([key])[0].as_ref().unwrap().is_some()));
            assert!(alone > 0 && together > 0, "{alone} and {together}");
        });
    }
}
