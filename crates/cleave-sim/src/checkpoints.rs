//! The checkpoints that a run has taken and what each must contain, both right after it was taken and after a crash.
//! Clients record them; the simulation checks them at the end of each epoch.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Db, Error, Options};

use crate::failure::Failure;
use crate::model::Model;
use crate::state;

/// One checkpoint.
#[derive(Clone)]
struct Checkpoint {
    /// What the database contained.
    model: Model,
    /// The first and the last point of history that it may show; `None` if unknown.
    at: Option<(u64, u64)>,
    /// The call succeeded, so the checkpoint must exist.
    acknowledged: bool,
}

/// The checkpoints of one database on a simulated disk.
#[derive(Clone)]
pub struct Checkpoints {
    disk: SimDisk,
    options: Options,
    tuning: Tuning,
    epoch: u64,
    made: Arc<Mutex<Vec<Checkpoint>>>,
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoints").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Checkpoints {
    /// No checkpoints yet. `options` must place the database in one directory.
    pub fn new(disk: &SimDisk, options: Options, tuning: Tuning, epoch: u64) -> Checkpoints {
        Checkpoints { disk: disk.clone(), options, tuning, epoch, made: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Checkpoint>> {
        self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Records that a checkpoint is about to be taken; it will contain the state of `model` at one of these points.
    pub fn begin(&self, model: &Model, at: Option<(u64, u64)>) -> usize {
        let mut made = self.lock();
        made.push(Checkpoint { model: model.clone(), at, acknowledged: false });
        made.len() - 1
    }

    /// The directory of a checkpoint.
    pub fn path(&self, number: usize) -> PathBuf {
        PathBuf::from(format!("/copies/{}-{number}", self.epoch))
    }

    /// Records that the call succeeded.
    pub fn acknowledge(&self, number: usize, model: &Model, at: (u64, u64)) {
        self.lock()[number] = Checkpoint { model: model.clone(), at: Some(at), acknowledged: true };
    }

    /// Opens a checkpoint and compares it with the model. The outer error is the engine's.
    pub fn check(&self, number: usize, read_only: bool) -> Result<Result<(), Failure>, Error> {
        let checkpoint = self.lock()[number].clone();
        let options = self.options.clone().create_if_missing(false).read_only(read_only);
        let db = testing::open(Arc::new(self.disk.clone()), &self.path(number), options, self.tuning.clone())?;
        let checked = compare(&db, &checkpoint)?;
        db.close()?;
        Ok(checked.map_err(|Failure(what)| Failure(format!("checkpoint {}: {what}", self.path(number).display()))))
    }

    /// Checks all checkpoints on a disk after a crash or a close, and removes them. An acknowledged one must open; any
    /// other must be complete if it opens at all.
    pub fn check_all_on(&self, disk: &SimDisk) -> Result<(), Failure> {
        let there = Checkpoints { disk: disk.clone(), ..self.clone() };
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

fn compare(db: &Db, checkpoint: &Checkpoint) -> Result<Result<(), Failure>, Error> {
    let Some(at) = checkpoint.at else { return Ok(Ok(())) };
    let found = match state::read_all(db, &checkpoint.model)? {
        Ok(found) => found,
        Err(failure) => return Ok(Err(failure)),
    };
    let differences: Option<Vec<_>> = (at.0..=at.1).map(|at| checkpoint.model.compare(at, &found)).collect();
    Ok(match differences.and_then(|all| all.into_iter().min_by_key(|difference| difference.keys)) {
        None => Ok(()),
        Some(nearest) => Err(Failure(nearest.to_string())),
    })
}
