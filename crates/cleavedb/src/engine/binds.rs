//! Which resources a job mainly uses while it runs: processors, and reads and writes of each tier. What a job reads and writes
//! may lie on either tier, and in one directory all of it is one device, so jobs say what they bind when they are offered.

use std::ops::BitOr;

use crate::base::{DirId, Tier};
use crate::engine::manifest::files::Dirs;

/// A set of resources.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Binds(u8);

const NAMES: [&str; 5] = ["cpu", "fast reads", "fast writes", "slow reads", "slow writes"];

impl Binds {
    pub const NONE: Binds = Binds(0);
    pub const CPU: Binds = Binds(1);

    /// Reads of a tier.
    pub const fn read(tier: Tier) -> Binds {
        match tier {
            Tier::Fast => Binds(1 << 1),
            Tier::Slow => Binds(1 << 3),
        }
    }

    /// Writes to a tier.
    pub const fn write(tier: Tier) -> Binds {
        match tier {
            Tier::Fast => Binds(1 << 2),
            Tier::Slow => Binds(1 << 4),
        }
    }

    /// Reads of files in these directories.
    pub fn reads_of(dirs: &Dirs, files: impl IntoIterator<Item = DirId>) -> Binds {
        files.into_iter().map(|dir| Binds::read(dirs.tier(dir))).collect()
    }

    /// All of both.
    pub const fn or(self, others: Binds) -> Binds {
        Binds(self.0 | others.0)
    }

    /// True if these have a resource that `others` do not have.
    pub fn has_beside(self, others: Binds) -> bool {
        self.0 & !others.0 != 0
    }

    /// True if all of `others` are among these.
    pub fn contains(self, others: Binds) -> bool {
        !others.has_beside(self)
    }

    /// The names, for statistics and spans.
    pub fn names(self) -> String {
        let has = |at: &usize| self.0 & (1 << at) != 0;
        (0..NAMES.len()).filter(has).map(|at| NAMES[at]).collect::<Vec<_>>().join(", ")
    }
}

impl BitOr for Binds {
    type Output = Binds;

    fn bitor(self, other: Binds) -> Binds {
        self.or(other)
    }
}

impl FromIterator<Binds> for Binds {
    fn from_iter<I: IntoIterator<Item = Binds>>(all: I) -> Binds {
        all.into_iter().fold(Binds::NONE, Binds::bitor)
    }
}

impl std::fmt::Debug for Binds {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.names())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_joined_and_names_it_in_order() {
        let flush = Binds::write(Tier::Slow) | Binds::read(Tier::Fast);
        assert_eq!(flush.names(), "fast reads, slow writes");
        assert!(flush.has_beside(Binds::read(Tier::Fast)) && !flush.has_beside(flush | Binds::CPU));
        assert!(flush.contains(Binds::write(Tier::Slow)) && !flush.contains(Binds::CPU | flush));
        assert_eq!([Binds::CPU, flush].into_iter().collect::<Binds>(), Binds::CPU | flush);
        assert!(Binds::NONE.names().is_empty() && flush.contains(Binds::NONE) && !Binds::NONE.has_beside(Binds::NONE));
    }
}
