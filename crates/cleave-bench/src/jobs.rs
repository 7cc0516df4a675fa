//! What background jobs of a store use, by kind: processor time, bytes, and records of values that they move. CleaveDB reports
//! the totals since it was opened; `series.rs` takes the differences over a run, and results hold them.

use serde::{Deserialize, Serialize};

/// CleaveDB's name for jobs that move whole logs to the slow tier.
const DEMOTION: &str = "demote logs";
/// Its name for jobs that empty value files record by record.
const EMPTYING: &str = "value GC";

/// The jobs of one kind. The names of the fields are a stable public format.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobUse {
    /// The kind.
    pub kind: String,
    /// Jobs that have ended.
    pub count: u64,
    /// Seconds of processor time.
    pub cpu_s: f64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Records of values moved.
    pub records: u64,
}

impl JobUse {
    /// Microseconds of processor time for a record moved; none if none was.
    pub fn cpu_us_a_record(&self) -> Option<f64> {
        (self.records > 0).then(|| self.cpu_s * 1e6 / self.records as f64)
    }

    /// What was used since `before`.
    fn since(&self, before: &JobUse) -> JobUse {
        JobUse {
            kind: self.kind.clone(),
            count: self.count - before.count,
            cpu_s: self.cpu_s - before.cpu_s,
            bytes: self.bytes - before.bytes,
            records: self.records - before.records,
        }
    }
}

/// What each kind has used between two totals; without the kinds that have used nothing.
pub fn since(before: &[JobUse], now: &[JobUse]) -> Vec<JobUse> {
    let none = JobUse::default();
    let of = |job: &JobUse| job.since(before.iter().find(|other| other.kind == job.kind).unwrap_or(&none));
    now.iter().map(of).filter(|job| job.count > 0 || job.cpu_s > 0.0).collect()
}

/// The jobs that move records, each with the words for it: whole logs to another tier, and record by record.
pub fn moving(jobs: &[JobUse]) -> impl Iterator<Item = (&'static str, &JobUse)> {
    let kinds = [("by demotion", DEMOTION), ("by emptying", EMPTYING)];
    kinds.into_iter().filter_map(|(words, kind)| Some((words, jobs.iter().find(|job| job.kind == kind)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(kind: &str, [count, bytes, records]: [u64; 3], cpu_s: f64) -> JobUse {
        JobUse { kind: kind.to_owned(), count, cpu_s, bytes, records }
    }

    #[test]
    fn a_run_is_charged_for_what_was_used_since_its_start() {
        let before = [job("demote logs", [1, 10, 100], 1.0), job("flush", [3, 4, 0], 0.5)];
        let now =
            [job("demote logs", [3, 40, 1100], 1.5), job("flush", [3, 4, 0], 0.5), job("value GC", [1, 7, 50], 0.0001)];
        let used = since(&before, &now);
        assert_eq!(used, [job("demote logs", [2, 30, 1000], 0.5), job("value GC", [1, 7, 50], 0.0001)]);
        let quotients: Vec<_> = moving(&used).map(|(words, job)| (words, job.cpu_us_a_record())).collect();
        assert_eq!(quotients, [("by demotion", Some(500.0)), ("by emptying", Some(2.0))]);
        assert_eq!(job("value GC", [1, 7, 0], 1.0).cpu_us_a_record(), None);
    }
}
