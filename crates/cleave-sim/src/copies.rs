//! Checkpoints that a run has made, and what each must hold: at once, and after a crash.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Db, Error, Options};

use crate::model::Model;
use crate::state;
use crate::world::Failure;

/// One checkpoint.
#[derive(Clone)]
struct Copy {
    /// What the database held.
    model: Model,
    /// The first and the last point of history that it may show; `None` if that is not known.
    at: Option<(u64, u64)>,
    /// It was acknowledged, so it must be there.
    acknowledged: bool,
}

/// The checkpoints of one database on a simulated disk.
#[derive(Clone)]
pub struct Copies {
    disk: SimDisk,
    options: Options,
    tuning: Tuning,
    epoch: u64,
    made: Arc<Mutex<Vec<Copy>>>,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Copies {
    /// None yet. `options` are those for a database in one directory.
    pub fn new(disk: &SimDisk, options: Options, tuning: Tuning, epoch: u64) -> Copies {
        Copies { disk: disk.clone(), options, tuning, epoch, made: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Copy>> {
        self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Notes that a checkpoint is about to be made, which will hold what `model` does at one of these points.
    pub fn begin(&self, model: &Model, at: Option<(u64, u64)>) -> usize {
        let mut made = self.lock();
        made.push(Copy { model: model.clone(), at, acknowledged: false });
        made.len() - 1
    }

    /// Where a checkpoint goes.
    pub fn path(&self, number: usize) -> PathBuf {
        PathBuf::from(format!("/copies/{}-{number}", self.epoch))
    }

    /// Notes that a checkpoint was made.
    pub fn acknowledge(&self, number: usize, model: &Model, at: (u64, u64)) {
        self.lock()[number] = Copy { model: model.clone(), at: Some(at), acknowledged: true };
    }

    /// Opens a checkpoint and compares it. The outer error is the engine's.
    pub fn check(&self, number: usize, read_only: bool) -> Result<Result<(), Failure>, Error> {
        let copy = self.lock()[number].clone();
        let options = self.options.clone().create_if_missing(false).read_only(read_only);
        let db = testing::open(Arc::new(self.disk.clone()), &self.path(number), options, self.tuning.clone())?;
        let checked = compare(&db, &copy)?;
        db.close()?;
        Ok(checked.map_err(|Failure(what)| Failure(format!("checkpoint {}: {what}", self.path(number).display()))))
    }

    /// Looks at all checkpoints on a disk after a crash, or a close, and removes them: one that was acknowledged must be
    /// there, another may be, whole, or must not open.
    pub fn check_all_on(&self, disk: &SimDisk) -> Result<(), Failure> {
        let there = Copies { disk: disk.clone(), ..self.clone() };
        let count = self.lock().len();
        for number in 0..count {
            let acknowledged = self.lock()[number].acknowledged;
            match there.check(number, true) {
                Ok(checked) => checked?,
                Err(error) if acknowledged => {
                    return Err(Failure(format!("open {}: {error}", self.path(number).display())));
                }
                Err(_) => {}
            }
            there.remove(&self.path(number));
        }
        self.lock().clear();
        Ok(())
    }

    fn remove(&self, path: &Path) {
        use cleavedb::testing::Storage;
        for (file, _) in self.disk.files().into_iter().filter(|(file, _)| file.starts_with(path)) {
            self.disk.remove(&file).ok();
        }
    }
}

fn compare(db: &Db, copy: &Copy) -> Result<Result<(), Failure>, Error> {
    let Some(at) = copy.at else { return Ok(Ok(())) };
    let found = match state::read_all(db, &copy.model)? {
        Ok(found) => found,
        Err(failure) => return Ok(Err(failure)),
    };
    let differences: Option<Vec<_>> = (at.0..=at.1).map(|at| copy.model.compare(at, &found)).collect();
    Ok(match differences.and_then(|all| all.into_iter().min_by_key(|difference| difference.keys)) {
        None => Ok(()),
        Some(nearest) => Err(Failure(nearest.to_string())),
    })
}
