//! The thread that crashes the machine at a random moment: it sleeps, takes an image of the disk and halts the old one.
//! The simulation starts it.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleavedb::testing::{self, SimDisk};

use crate::ledger::Page;
use crate::operation::Crash;
use crate::plan::{DEVICE, FAST};
use crate::world::World;

/// The image of the disk at the moment of a crash, and the ledger at that moment.
pub struct Image {
    /// The disk as the crash left it.
    pub disk: SimDisk,
    /// The ledger.
    pub page: Page,
    /// The kind of crash.
    pub crash: Crash,
    /// One of several disks lost power alone, or kept it alone.
    pub of_one_disk: bool,
}

/// The disk after a crash.
pub fn image_of(disk: &SimDisk, crash: Crash) -> SimDisk {
    match (crash, disk_apart(disk, crash)) {
        (Crash::Process, _) => disk.process_crash(),
        (Crash::Power(seed), Some(apart)) => {
            let loses = seed.is_multiple_of(4);
            disk.power_loss_of(seed, |directory| (directory == Path::new(apart)) == loses)
        }
        (Crash::Power(seed), None) => disk.power_loss(seed),
    }
}

/// With several disks, the one that loses power alone, or that alone keeps it; in half of all power losses.
fn disk_apart(disk: &SimDisk, crash: Crash) -> Option<&'static str> {
    let Crash::Power(seed) = crash else { return None };
    let is_there = |directory: &&str| disk.files().iter().any(|(path, _)| path.starts_with(directory));
    let apart: Vec<_> = [FAST, DEVICE].into_iter().filter(is_there).collect();
    (seed % 4 < 2 && !apart.is_empty()).then(|| apart[(seed / 4) as usize % apart.len()])
}

/// A pending crash.
pub struct Crasher {
    thread: testing::JoinHandle,
    image: Arc<Mutex<Option<Image>>>,
}

impl Crasher {
    /// Starts the thread.
    pub fn start(disk: &SimDisk, world: &World, after: Duration, crash: Crash) -> Crasher {
        let image = Arc::new(Mutex::new(None));
        let (into, world, disk) = (image.clone(), world.clone(), disk.clone());
        let thread = testing::spawn("crasher", move || {
            testing::sleep(after);
            // No other thread runs until the end of this block, so the page and the image show the same moment.
            world.crashed.store(true, Ordering::SeqCst);
            let page = world.ledger.page();
            let of_one_disk = disk_apart(&disk, crash).is_some();
            let image = Image { disk: image_of(&disk, crash), page, crash, of_one_disk };
            disk.halt();
            *into.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(image);
        });
        Crasher { thread, image }
    }

    /// Waits for the crash; `None` if the thread panicked, which is reported with the run.
    pub fn wait(self) -> Option<Image> {
        let Crasher { thread, image } = self;
        thread.join().ok()?;
        image.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }
}
