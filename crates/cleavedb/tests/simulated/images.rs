//! Crashes at every sync: while a workload runs, images of the disk are taken before and after each sync; each is
//! opened, and must hold a prefix of history with everything that was promised when the image was taken. While images
//! are opened, further images are taken.

use std::sync::{Arc, Mutex};

use cleave_sim::crasher::image_of;
use cleave_sim::ledger::Ledger;
use cleave_sim::operation::{Crash, Operation};
use cleave_sim::operator::Chain;
use cleave_sim::recovery::Expected;
use cleave_sim::rng::Rng;
use cleave_sim::session::{Ground, Session};
use cleave_sim::workload::Workload;
use cleavedb::testing::{SimDisk, Tuning};
use cleavedb::{LogBackend, Options};

use crate::support::{BACKENDS, in_world, open_with};

/// Images taken at syncs, and the promises made by then. Evenly thinned out when full.
struct Album {
    images: Vec<(SimDisk, Crash, cleave_sim::ledger::Page)>,
    turn: u64,
    stride: u64,
    capacity: usize,
    rng: Rng,
}

impl Album {
    fn start(disk: &SimDisk, ledger: Ledger, capacity: usize, seed: u64) -> Arc<Mutex<Album>> {
        let album = Album { images: Vec::new(), turn: 0, stride: 1, capacity, rng: Rng::new(seed) };
        let album = Arc::new(Mutex::new(album));
        let into = album.clone();
        disk.on_sync(move |disk, _| into.lock().unwrap().take(disk, &ledger));
        album
    }

    fn take(&mut self, disk: &SimDisk, ledger: &Ledger) {
        self.turn += 1;
        if !self.turn.is_multiple_of(self.stride) {
            return;
        }
        for crash in [Crash::Process, Crash::Power(self.rng.next()), Crash::Power(self.rng.next())] {
            self.images.push((image_of(disk, crash), crash, ledger.page()));
        }
        if self.images.len() > self.capacity {
            let mut place = 0;
            self.images.retain(|_| {
                place += 1;
                place % 6 < 3
            });
            self.stride *= 2;
        }
    }
}

fn crash_at_every_sync(seed: u64, backend: LogBackend) {
    let disk = SimDisk::new();
    let options = Options::new().log_backend(backend);
    let mut session = Session::new(Ground::Simulated(disk.clone()), options, Tuning::tiny()).unwrap();
    let album = Album::start(&disk, session.world().ledger.clone(), 90, seed);
    let mut workload = Workload::new(seed);
    for _ in 0..160 {
        let operation = workload.next_operation();
        if operation != Operation::Reopen {
            session.apply(&operation).unwrap();
        }
    }
    session.apply(&Operation::Flush).unwrap();
    disk.clear_on_sync();
    let images = std::mem::take(&mut album.lock().unwrap().images);
    assert!(images.len() > 10, "there were too few syncs");
    for (number, (image, crash, page)) in images.into_iter().enumerate() {
        let expected = Expected { page, ..session.expected(crash) };
        open_and_check(&image, backend, &expected, seed, if number % 5 == 0 { 6 } else { 0 });
    }
}

/// Opens an image, taking up to `again` images during the open.
fn open_and_check(image: &SimDisk, backend: LogBackend, expected: &Expected, seed: u64, again: usize) {
    let album = (again > 0).then(|| Album::start(image, Ledger::new(), again, seed));
    let options = Options::new().log_backend(backend).merge_operator(Arc::new(Chain));
    let db =
        open_with(image, options, Tuning::tiny()).unwrap_or_else(|error| panic!("after {:?}: {error}", expected.crash));
    image.clear_on_sync();
    expected.check(&db).unwrap().unwrap();
    db.close().unwrap();
    let images = album.map(|album| std::mem::take(&mut album.lock().unwrap().images)).unwrap_or_default();
    for (image, crash, _) in images {
        let mut expected = expected.clone();
        expected.crashed_again(crash);
        open_and_check(&image, backend, &expected, seed, 0);
    }
}

#[test]
fn an_image_at_any_sync_opens_to_a_prefix_of_history() {
    for seed in 0..4 {
        for backend in BACKENDS {
            in_world(seed, move || crash_at_every_sync(seed, backend));
        }
    }
}
