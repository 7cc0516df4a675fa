//! Placement in order of arrival: all values form one log, collected from its tail (WiscKey section 3.3.2). The
//! baseline for the other placements.

use super::{Candidate, Placement, PlacementContext, Survivor};
use crate::base::FileId;
use crate::format::group::Group;

/// The oldest file is collected first; its live records are appended at the head.
pub struct LogPlacement {
    /// Files with this many live bytes are collected together.
    pub segment_bytes: u64,
    /// Whether records are looked up one by one, as in the paper.
    pub look_up_each: bool,
}

impl Placement for LogPlacement {
    fn victims(&self, candidates: &[Candidate]) -> Vec<FileId> {
        let (mut victims, mut moved) = (Vec::new(), 0);
        let mut oldest: Vec<&Candidate> = candidates.iter().collect();
        oldest.sort_by_key(|candidate| candidate.file);
        for candidate in oldest {
            moved += candidate.live_bytes();
            if !victims.is_empty() && moved > self.segment_bytes {
                break;
            }
            victims.push(candidate.file);
        }
        victims
    }

    fn looks_up_each(&self) -> bool {
        self.look_up_each
    }

    fn groups(&self, survivors: &[Survivor<'_>], _: &PlacementContext) -> Vec<(Group, usize)> {
        vec![(Group::ALL, survivors.len())]
    }

    fn separates_cold(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_collected_first_whatever_its_garbage() {
        let candidate = |file, live| Candidate { file: FileId(file), bytes: 1000, live, part: None };
        let all = [candidate(7, 100), candidate(3, 900), candidate(5, 500)];
        let log = |segment_bytes| LogPlacement { segment_bytes, look_up_each: false };
        assert_eq!(log(1).victims(&all), [FileId(3)]);
        assert_eq!(log(1400).victims(&all), [FileId(3), FileId(5)]);
    }
}
