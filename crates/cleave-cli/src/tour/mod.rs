//! `cleave tour`: demonstrates the store on real data and checks every result. The first wrong result ends it with a
//! sentence and exit code 1.

mod cities;
pub mod crash;
mod load;
mod guide;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use cleavedb::Db;
use tempfile::TempDir;

use self::guide::Guide;
use crate::args::{Database, Tour};
use crate::failure::{Failure, Result};
use crate::{open, picture};

/// The last decisions of the scheduler that are shown.
const DECISIONS_SHOWN: usize = 5;

/// `cleave tour`.
pub fn run(args: &Tour, out: &mut dyn Write) -> Result<()> {
    let start = Instant::now();
    let place = Place::new(args)?;
    let mut guide = Guide::new(out);

    guide.step("Create a database")?;
    let db = Db::open(place.path()).map_err(|error| open::failure_of(&Database::at(place.path()), error))?;
    guide.say(&place.path().display().to_string())?;

    cities::show(&db, &mut guide)?;
    db.close()?;
    let db = crash::show(place.path(), args.records, &mut guide)?;
    load::show(&db, args.records, &mut guide)?;

    guide.step("Layout of the store")?;
    picture::draw(&db.stats(), DECISIONS_SHOWN, guide.out)?;
    db.close()?;

    writeln!(guide.out, "\nAll checks passed. The tour took {:.1} s.", start.elapsed().as_secs_f64())?;
    if let Some(path) = place.kept() {
        let path = path.display();
        writeln!(
            guide.out,
            "The database is kept in {path}. Continue with: cleave scan {path} --keyspace cities --prefix IS/"
        )?;
    }
    Ok(())
}

/// The directory of the database, and whether it is kept.
enum Place {
    Kept(PathBuf),
    Temporary(TempDir),
}

impl Place {
    fn new(args: &Tour) -> Result<Place> {
        if let Some(path) = &args.dir {
            return match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
                Ok(true) => Ok(Place::Kept(path.clone())),
                Ok(false) => {
                    let path = path.display();
                    Err(Failure::new(format!("{path} is not empty; the tour needs an empty directory")))
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Place::Kept(path.clone())),
                Err(error) => Err(Failure::file(path, "read", &error)),
            };
        }
        let dir = tempfile::Builder::new().prefix("cleave-tour-").tempdir();
        let dir = dir.map_err(|error| Failure::new(format!("cannot create a temporary directory: {error}")))?;
        Ok(if args.keep { Place::Kept(dir.keep()) } else { Place::Temporary(dir) })
    }

    fn path(&self) -> &Path {
        match self {
            Place::Kept(path) => path,
            Place::Temporary(dir) => dir.path(),
        }
    }

    fn kept(&self) -> Option<&Path> {
        match self {
            Place::Kept(path) => Some(path),
            Place::Temporary(_) => None,
        }
    }
}
