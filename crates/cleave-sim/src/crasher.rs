//! The thread that crashes the machine at a random moment: it sleeps, takes an image of the disk and halts the old one.
//! The simulation starts it.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleavedb::testing::{self, SimDisk};

use crate::ledger::Page;
use crate::operation::Crash;
use crate::plan::FAST;
use crate::world::World;

/// The image of the disk at the moment of a crash, and the ledger at that moment.
pub struct Image {
    /// The disk as the crash left it.
    pub disk: SimDisk,
    /// The ledger.
    pub page: Page,
    /// The kind of crash.
    pub crash: Crash,
}

/// The disk after a crash.
pub fn image_of(disk: &SimDisk, crash: Crash) -> SimDisk {
    match crash {
        Crash::Process => disk.process_crash(),
        // With two disks, one of them may lose power alone.
        Crash::Power(seed) => match seed % 4 {
            0 if has_two(disk) => disk.power_loss_of(seed, |directory| directory == Path::new(FAST)),
            1 if has_two(disk) => disk.power_loss_of(seed, |directory| directory != Path::new(FAST)),
            _ => disk.power_loss(seed),
        },
    }
}

fn has_two(disk: &SimDisk) -> bool {
    disk.files().iter().any(|(path, _)| path.starts_with(FAST))
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
            let image = image_of(&disk, crash);
            disk.halt();
            *into.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(Image { disk: image, page, crash });
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
