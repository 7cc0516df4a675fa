//! The file that the statistics page is written to, and what was written last.

use std::sync::Arc;
use std::time::Duration;

use crate::io::File;
use crate::sched::sync::Mutex;

/// Where the page goes.
#[derive(Default)]
pub(crate) struct StatsPage {
    pub state: Mutex<PageState>,
}

#[derive(Default)]
pub(crate) struct PageState {
    /// The file, once it was made or found to be ours.
    pub file: Option<Arc<dyn File>>,
    /// Nobody is to look for the file (again): it is someone else's, or the database is closed.
    pub given_up: bool,
    pub opened: Option<Duration>,
    pub due: Duration,
    pub sequence: u64,
    /// What the page shows.
    pub figures: Vec<u8>,
}
