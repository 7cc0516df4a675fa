//! The two kinds of storage that a database may have.

/// Storage of one speed. Which directory is which tier is declared at each open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, minicbor::Encode, minicbor::Decode)]
#[non_exhaustive]
pub enum Tier {
    /// The directory of the manifest and the logs, and of all files if the database has one directory.
    #[default]
    #[n(0)]
    Fast,
    /// The directory that the option `slow_dir` names, or one that it named earlier and that still has files.
    #[n(1)]
    Slow,
}
