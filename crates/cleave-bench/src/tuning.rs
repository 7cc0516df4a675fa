//! The settings of CleaveDB's scheduler over time: DecouKV's IMTN and DFTS, the capacity of levels, and the queues of
//! background work. The engine reports them, `series.rs` samples them once a second, and results hold them.

use serde::{Deserialize, Serialize};

/// What the scheduler works with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Runs of similar size that are merged in memory (IMTN).
    pub merge_runs: u64,
    /// Bytes of runs in a flush (DFTS).
    pub flush_bytes: u64,
    /// Capacity of the first level below HL0, in bytes.
    pub level_base_bytes: u64,
    /// Tables at which HL0 is compacted.
    #[serde(default)]
    pub hl0_trigger: u64,
    /// Threads that may compact at the same time.
    pub compactions: u64,
}

/// A change of the settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Seconds since the store was opened.
    pub at_s: f64,
    /// What limited background work.
    pub bottleneck: String,
    /// The settings from then on.
    pub setting: Setting,
}

/// The state of a scheduler.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// The settings.
    pub setting: Setting,
    /// The length of the queue of merges in memory.
    pub merge_queue: u64,
    /// The length of the queue of flushes.
    pub flush_queue: f64,
    /// The last changes, oldest first.
    pub decisions: Vec<Decision>,
}

/// The settings over a run or phase. The names of the fields are a stable public format.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// The settings at the start.
    pub first: Setting,
    /// The highest value of each setting.
    pub max: Setting,
    /// The settings at the end.
    pub last: Setting,
    /// The settings at the end of each second.
    pub per_second: Vec<Setting>,
    /// The length of the queue of merges in memory at the end of each second.
    pub merge_queue_per_second: Vec<u64>,
    /// The length of the queue of flushes at the end of each second.
    pub flush_queue_per_second: Vec<f64>,
    /// All changes, oldest first.
    pub changes: Vec<Decision>,
    /// When the last decision before the start was made.
    #[serde(skip)]
    known_until_s: f64,
}

impl Tuning {
    /// A run that starts in the state `sample`.
    pub fn start(sample: &Sample) -> Tuning {
        let known_until_s = sample.decisions.last().map_or(-1.0, |decision| decision.at_s);
        let setting = sample.setting;
        Tuning { first: setting, max: setting, last: setting, known_until_s, ..Tuning::default() }
    }

    /// Appends the state at the end of a second.
    pub fn push(&mut self, sample: Sample) {
        let new = sample.decisions.into_iter().filter(|decision| decision.at_s > self.known_until_s);
        let new: Vec<Decision> = new.collect();
        let settings = new.iter().map(|decision| decision.setting).chain([sample.setting]);
        self.max = settings.fold(self.max, Setting::max);
        self.known_until_s = new.last().map_or(self.known_until_s, |decision| decision.at_s);
        self.changes.extend(new);
        self.last = sample.setting;
        self.per_second.push(sample.setting);
        self.merge_queue_per_second.push(sample.merge_queue);
        self.flush_queue_per_second.push(sample.flush_queue);
    }

    /// The number of times that the setting `value` changed.
    pub fn changes_of(&self, value: fn(Setting) -> u64) -> usize {
        let values: Vec<u64> = std::iter::once(self.first)
            .chain(self.changes.iter().map(|change| change.setting))
            .chain([self.last])
            .map(value)
            .collect();
        values.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }
}

impl Setting {
    fn max(self, other: Setting) -> Setting {
        Setting {
            merge_runs: self.merge_runs.max(other.merge_runs),
            flush_bytes: self.flush_bytes.max(other.flush_bytes),
            level_base_bytes: self.level_base_bytes.max(other.level_base_bytes),
            hl0_trigger: self.hl0_trigger.max(other.hl0_trigger),
            compactions: self.compactions.max(other.compactions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(merge_runs: u64, flush_bytes: u64) -> Setting {
        Setting { merge_runs, flush_bytes, ..Setting::default() }
    }

    fn decision(at_s: f64, setting: Setting) -> Decision {
        Decision { at_s, bottleneck: "devices".to_owned(), setting }
    }

    #[test]
    fn each_change_since_the_start_is_kept_once_and_counts_for_the_maximum() {
        let before = decision(1.0, setting(2, 8));
        let start = Sample { setting: setting(2, 8), decisions: vec![before.clone()], ..Sample::default() };
        let mut tuning = Tuning::start(&start);
        let changes = [decision(2.0, setting(6, 4)), decision(2.5, setting(2, 16))];
        let all: Vec<Decision> = [before].into_iter().chain(changes.clone()).collect();
        let sample = |decisions: &[Decision]| Sample {
            setting: decisions[decisions.len() - 1].setting,
            merge_queue: 3,
            decisions: decisions.to_vec(),
            ..Sample::default()
        };
        tuning.push(sample(&all));
        tuning.push(sample(&all));
        assert_eq!(tuning.changes, changes);
        assert_eq!((tuning.first, tuning.max, tuning.last), (setting(2, 8), setting(6, 16), setting(2, 16)));
        assert_eq!(tuning.changes_of(|setting| setting.merge_runs), 2);
        assert_eq!(tuning.changes_of(|setting| setting.compactions), 0);
        assert_eq!((tuning.per_second.len(), tuning.merge_queue_per_second), (2, vec![3, 3]));
    }
}
