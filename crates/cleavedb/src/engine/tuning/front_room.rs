//! What hash indexes and the front leave each other of the memory budget. Without indexes the front has the parts that are
//! listed in [`sizes`](crate::engine::tuning::sizes). Indexes may take half of the budget, more than the caches have; then
//! index tables, runs and flushes are smaller, and writers of ordered keyspaces wait earlier.

use crate::engine::tuning::sizes::Tuning;

/// Hash indexes take new keys up to this part of the memory budget.
const HASH_INDEX_PART: usize = 2;
/// The front always has room for this many full index tables: one that is filled, one before it, and runs being built from both.
const TABLES_MIN: usize = 4;

/// What the front may hold now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrontRoom {
    /// Index tables and runs, beside one index table that is filled while writers are stopped.
    pub front_bytes_max: usize,
    /// The largest run that is merged from others; as much is worth a flush.
    pub flush_bytes_max: u64,
}

impl Tuning {
    /// What the front may hold beside `held` bytes of indexes, table readers and lists; 0 if there are no indexes: then all has its
    /// part.
    pub(crate) fn front_room(&self, held: usize) -> FrontRoom {
        let (tables, flush) = (self.front_bytes_max, self.flush_bytes as usize);
        let beside = self.beside_front() + 2 * self.index_table_bytes + held;
        let free = self.memory_bytes.saturating_sub(beside);
        if held == 0 || free >= tables + flush {
            return FrontRoom { front_bytes_max: tables, flush_bytes_max: self.flush_bytes };
        }
        // Both give way in proportion, and keep the size of an index table.
        let least = self.index_table_bytes.min(flush);
        let flush = ((free as u128 * flush as u128 / (tables + flush) as u128) as usize).max(least);
        FrontRoom { front_bytes_max: free.saturating_sub(flush).max(least), flush_bytes_max: flush as u64 }
    }

    /// The most memory of hash indexes for which they take new keys, beside `lists` bytes of table readers and lists: half of
    /// the budget, less only if tables or keyspaces take more than that leaves beside the smallest front.
    pub(crate) fn hash_index_bytes_max(&self, lists: usize) -> usize {
        (self.memory_bytes / HASH_INDEX_PART).min(self.beside_least_front().saturating_sub(lists))
    }

    /// So much of the indexes has room beside whatever table readers and lists there are.
    pub(crate) fn hash_index_bytes_free(&self) -> usize {
        self.hash_index_bytes_max(self.lists_bytes_max(0))
    }

    /// The most memory of table readers and lists beside indexes of `indexes` bytes.
    pub(crate) fn lists_bytes_max(&self, indexes: usize) -> usize {
        let front = self.front_bytes_max + self.index_table_bytes + self.merging_bytes();
        let at_rest = self.memory_bytes.saturating_sub(self.beside_front() + front);
        at_rest.min(self.beside_least_front().saturating_sub(indexes))
    }

    /// What log buffers, jobs and the least caches leave of the budget beside the smallest front.
    fn beside_least_front(&self) -> usize {
        self.memory_bytes.saturating_sub(self.beside_front() + TABLES_MIN * self.index_table_bytes)
    }

    /// Memory of log buffers, jobs and the least caches.
    fn beside_front(&self) -> usize {
        self.log_buffer_bytes() + self.job_bytes + self.cache_bytes_min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn indexes_front_and_lists_never_exceed_the_budget_together() {
        for budget in [16, 17, 33, 64, 100, 256, 1024, 1 << 14] {
            let tuning = Tuning::for_budget(budget * MIB);
            for lists in (0..=20).map(|part| tuning.lists_bytes_max(0) / 20 * part) {
                let index_max = tuning.hash_index_bytes_max(lists);
                assert!(index_max >= tuning.hash_index_bytes_free());
                for index in (0..=20).map(|part| index_max / 20 * part) {
                    assert!(
                        lists <= tuning.lists_bytes_max(index),
                        "{budget} MiB: {lists} B of lists beside {index} B"
                    );
                    let room = tuning.front_room(lists + index);
                    let front = room.front_bytes_max + tuning.index_table_bytes;
                    let merging = room.flush_bytes_max as usize + tuning.index_table_bytes;
                    let all = tuning.beside_front() + front + merging + lists + index;
                    assert!(all <= budget * MIB, "{budget} MiB: {all} B with {lists} and {index} B");
                    assert!(room.front_bytes_max >= tuning.index_table_bytes && room.flush_bytes_max > 0);
                }
            }
        }
    }

    #[test]
    fn the_front_has_all_of_its_parts_while_indexes_are_small() {
        for budget in [16, 64, 256] {
            let tuning = Tuning::for_budget(budget * MIB);
            let rest = FrontRoom { front_bytes_max: tuning.front_bytes_max, flush_bytes_max: tuning.flush_bytes };
            assert_eq!(tuning.front_room(0), rest);
            assert_eq!(tuning.front_room(tuning.cache_bytes / 4), rest, "{budget} MiB");
            let full = tuning.front_room(budget * MIB / 2);
            assert!(full.front_bytes_max < rest.front_bytes_max && full.flush_bytes_max <= rest.flush_bytes_max);
            // Without many tables and keyspaces the share is half, unless the least memory of jobs is a large part of the budget.
            let half = budget * MIB / 2;
            assert_eq!(tuning.hash_index_bytes_max(0), if budget < 32 { 7_778_304 } else { half });
        }
    }
}
