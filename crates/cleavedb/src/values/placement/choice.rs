//! Which files are collected next, and which are surveyed with them ([`Survey`]).

use super::Placement;
use crate::base::FileId;
use crate::values::candidate::{Candidate, Choice};
use crate::values::survey::Survey;

/// The files to collect next: the best of those in the survey, as long as what that costs in excess of the best of all is
/// less than a walk. O(n log n) for n candidates, as the placement.
pub fn choose(placement: &dyn Placement, candidates: &[Candidate], survey: &Survey) -> Choice {
    let candidates: &[Candidate] = &candidates.iter().map(|candidate| survey.corrected(candidate)).collect::<Vec<_>>();
    let best = placement.victims(candidates);
    let seen: Vec<Candidate> = candidates.iter().filter_map(|candidate| survey.seen(candidate)).collect();
    let known = placement.victims(&seen);
    let sums = |files: &[FileId], candidates: &[Candidate]| {
        let chosen = candidates.iter().filter(|candidate| files.contains(&candidate.file));
        chosen.fold((0, 0), |(live, garbage), file| (live + file.live_bytes(), garbage + file.garbage()))
    };
    let ((live, garbage), (copied, freed)) = (sums(&best, candidates), sums(&known, &seen));
    // To free as much, the best files would have to be copied so far.
    let needed = u128::from(live) * u128::from(freed) / u128::from(garbage.max(1));
    let excess = copied.saturating_sub(u64::try_from(needed).unwrap_or(u64::MAX));
    match freed > 0 && survey.affords(excess) {
        true => Choice { files: known, excess: Some(excess), walks: survey.walks(), copied, freed },
        false => Choice { files: best, excess: None, walks: survey.walks(), copied: live, freed: garbage },
    }
}

/// The files of a survey: those chosen, and those that will be chosen after them, as long as their live records are at most
/// `records_max`, by `records_of`. With `all`, files without garbage too. O(n^2 / files in a job).
pub fn to_survey(
    placement: &dyn Placement,
    candidates: &[Candidate],
    chosen: &[FileId],
    all: bool,
    records_max: u64,
    records_of: &dyn Fn(FileId) -> u64,
) -> Vec<FileId> {
    let mut files = chosen.to_vec();
    let mut records: u64 = chosen.iter().map(|file| records_of(*file)).sum();
    let mut rest: Vec<Candidate> = candidates.iter().filter(|file| !chosen.contains(&file.file)).cloned().collect();
    loop {
        let mut next = placement.victims(&rest);
        if next.is_empty() && all {
            next = rest.iter().map(|candidate| candidate.file).collect();
        }
        if next.is_empty() {
            return files;
        }
        for file in &next {
            records = records.saturating_add(records_of(*file));
            if records > records_max {
                return files;
            }
            files.push(*file);
        }
        rest.retain(|candidate| !next.contains(&candidate.file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::values::placement::VictimPolicy;
    use crate::values::placement::range::RangePlacement;
    use crate::values::survey::Surveyed;

    /// A job takes one file of this size.
    fn placement() -> RangePlacement {
        RangePlacement {
            segment_bytes: 500,
            group_bytes: 1000,
            policy: VictimPolicy::Greedy,
            small_bytes: 0,
            sorted_bytes: u64::MAX,
            extents_max: u64::MAX,
        }
    }

    fn log(file: u64, live: u64) -> Candidate {
        Candidate { file: FileId(file), bytes: 1000, live, part: None }
    }

    fn survey(files: &[(u64, u64)], newest: u64, cost: u64) -> Survey {
        let surveyed = |&(file, bytes)| (FileId(file), Surveyed { live: Arc::default(), bytes, is_loose: true });
        let mut survey = Survey::new(FileId(newest), 1 << 20);
        survey.note_walk(files.iter().map(surveyed).collect(), cost / 10);
        survey
    }

    fn files(choice: &Choice) -> Vec<u64> {
        choice.files.iter().map(|file| file.0).collect()
    }

    #[test]
    fn files_of_the_survey_are_chosen_until_that_has_cost_as_much_as_a_walk() {
        let candidates = [log(1, 700), log(2, 600), log(3, 500)];
        let none = choose(&placement(), &candidates, &Survey::default());
        assert_eq!((files(&none), none.excess), (vec![3], None));
        // File 3 is new. To free 400 bytes of file 2, 600 are copied, and 400 of file 3 would be.
        let mut known = survey(&[(1, 700), (2, 600)], 2, 500);
        let first = choose(&placement(), &candidates, &known);
        assert_eq!((files(&first), first.excess), (vec![2], Some(200)));
        known.charge(200);
        assert_eq!(choose(&placement(), &candidates, &known), first);
        known.charge(200);
        assert_eq!(choose(&placement(), &candidates, &known), Choice { walks: 1, ..none });
    }

    #[test]
    fn records_that_died_since_the_survey_count_against_it() {
        let candidates = [log(1, 100), log(2, 600)];
        let known = survey(&[(1, 900), (2, 600)], 2, 500);
        // 600 bytes are copied to free 400, and 44 of file 1 would be.
        let choice = choose(&placement(), &candidates, &known);
        assert_eq!((files(&choice), choice.excess), (vec![1], None));
        let known = survey(&[(1, 150), (2, 600)], 2, 500);
        let choice = choose(&placement(), &candidates, &known);
        assert_eq!((files(&choice), choice.excess), (vec![1], Some(150 - 94)));
    }

    #[test]
    fn a_survey_covers_what_is_collected_next_as_far_as_there_is_memory() {
        let candidates = [log(1, 700), log(2, 600), log(3, 500), log(4, 1000), log(5, 100)];
        let covered = |chosen: &[u64], all, records_max| {
            let chosen: Vec<FileId> = chosen.iter().copied().map(FileId).collect();
            let files = to_survey(&placement(), &candidates, &chosen, all, records_max, &|_| 10);
            files.iter().map(|file| file.0).collect::<Vec<_>>()
        };
        assert_eq!(covered(&[3], false, 100), [3, 5, 2, 1]);
        assert_eq!(covered(&[3], true, 100), [3, 5, 2, 1, 4]);
        assert_eq!(covered(&[3], true, 30), [3, 5, 2]);
        assert_eq!(covered(&[3, 2], false, 0), [3, 2]);
    }
}
