//! Background work: the job trait, the choice of the next job, and one file for each kind of job. A new kind is a new
//! file and a line in the list of `kinds.rs`.

pub(crate) mod job;
pub(crate) mod outcome;
pub(crate) mod kinds;
pub(crate) mod scheduler;
pub(crate) mod tune;
pub(crate) mod run_job;
pub(crate) mod subtasks;
pub(crate) mod waits;
pub(crate) mod help;
pub(crate) mod build_run;
pub(crate) mod seal;
pub(crate) mod merge_runs;
pub(crate) mod route;
pub(crate) mod write_through;
pub(crate) mod delta_segment;
pub(crate) mod operands;
pub(crate) mod rewrite_buckets;
pub(crate) mod write_tables;
pub(crate) mod flush;
pub(crate) mod front_exit;
pub(crate) mod seal_front;
pub(crate) mod compact;
pub(crate) mod folded_values;
pub(crate) mod refreshed_addresses;
pub(crate) mod collection;
pub(crate) mod collect_garbage;
pub(crate) mod collect_logs;
pub(crate) mod save_indexes;
pub(crate) mod reorder;
pub(crate) mod move_files;
pub(crate) mod find_stale;
pub(crate) mod prepare_log;
pub(crate) mod delete_files;
pub(crate) mod make_reserve;
pub(crate) mod balance_caches;
