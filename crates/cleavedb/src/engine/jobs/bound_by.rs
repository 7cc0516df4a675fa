//! What jobs bind by their inputs: the tiers on which these lie now.

use crate::base::{FileId, Tier};
use crate::engine::binds::Binds;
use crate::engine::core::Core;

impl Core {
    /// Reads of tables and delta segments.
    pub fn reads_of_tables<'a>(&self, tables: impl IntoIterator<Item = &'a FileId>) -> Binds {
        let version = self.published.view().version.clone();
        let dirs = tables.into_iter().filter_map(|table| Some(version.find(*table)?.1.key().dir));
        Binds::reads_of(&self.dirs, dirs)
    }

    /// Reads of value files and logs.
    pub fn reads_of_values<'a>(&self, files: impl IntoIterator<Item = &'a FileId>) -> Binds {
        let view = self.published.view();
        let dirs = files.into_iter().filter_map(|file| Some(view.values.files.get(file)?.stored().key().dir));
        Binds::reads_of(&self.dirs, dirs)
    }

    /// The resources that bound a collection of these files: hot survivors are born on the fast tier, all others on the slow one.
    pub fn binds_of_collection(&self, files: &[FileId]) -> Binds {
        self.reads_of_values(files) | Binds::write(Tier::Fast) | Binds::write(self.dirs.slow_tier())
    }
}
