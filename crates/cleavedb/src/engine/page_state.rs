//! The file of the statistics page, and the page that was written last. Used by `inspect/`.

use std::sync::Arc;
use std::time::Duration;

use crate::io::File;
use crate::sched::sync::Mutex;

/// The statistics page.
#[derive(Default)]
pub(crate) struct StatsPage {
    pub state: Mutex<PageState>,
}

#[derive(Default)]
pub(crate) struct PageState {
    /// The file, once it was created, or found to belong to this database.
    pub file: Option<Arc<dyn File>>,
    /// The page is not written any more: the existing file does not belong to this database, or the database is closed.
    pub given_up: bool,
    pub opened: Option<Duration>,
    pub due: Duration,
    pub sequence: u64,
    /// The contents of the page.
    pub figures: Vec<u8>,
}
