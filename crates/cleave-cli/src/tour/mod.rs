//! `cleave tour`: what the store does, shown on real data and checked on the way. It ends with exit code 1 and a sentence
//! as soon as anything is not as it must be.

mod cities;
pub mod crash;
mod load;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cleavedb::Db;
use indicatif::HumanCount;
use tempfile::TempDir;

use crate::args::{Database, Tour};
use crate::failure::{Failure, Result};
use crate::picture;

/// `cleave tour`.
pub fn run(args: &Tour, out: &mut dyn Write) -> Result<()> {
    let start = Instant::now();
    let place = Place::new(args)?;
    let mut guide = Guide { out, steps: 0 };

    guide.step("Make a database")?;
    let db = Db::open(place.path()).map_err(|error| Failure::of_database(&Database::at(place.path()), error))?;
    guide.say(&place.path().display().to_string())?;

    cities::show(&db, &mut guide)?;
    db.close()?;
    let db = crash::show(place.path(), args.records, &mut guide)?;
    load::show(&db, args.records, &mut guide)?;

    guide.step("What is where")?;
    picture::draw(&db.stats(), guide.out)?;
    db.close()?;

    writeln!(guide.out, "\nEverything held. The tour took {:.1} s.", start.elapsed().as_secs_f64())?;
    if let Some(path) = place.kept() {
        let path = path.display();
        writeln!(
            guide.out,
            "The database stays in {path}. Go on with: cleave scan {path} --keyspace cities --prefix IS/"
        )?;
    }
    Ok(())
}

/// Where the database lies, and whether it stays there.
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
                    Err(Failure::new(format!("{path} is not empty; the tour needs a directory of its own")))
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

/// Numbers the steps and prints what they say.
pub struct Guide<'a> {
    out: &'a mut dyn Write,
    steps: u32,
}

impl Guide<'_> {
    /// Begins a step.
    fn step(&mut self, title: &str) -> Result<()> {
        let gap = if self.steps == 0 { "" } else { "\n" };
        self.steps += 1;
        writeln!(self.out, "{gap}{}. {title}", self.steps)?;
        // A step may take seconds: the reader should know which one is under way.
        Ok(self.out.flush()?)
    }

    /// Prints a line of the step.
    fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.out, "   {line}")?;
        Ok(self.out.flush()?)
    }
}

/// Ends the tour with a sentence unless `held`.
fn check(held: bool, sentence: impl FnOnce() -> String) -> Result<()> {
    if held { Ok(()) } else { Err(Failure::new(format!("the tour found a fault: {}", sentence()))) }
}

/// "34,006 cities in 0.12 s (283,383 a second)".
fn rate(count: u64, noun: &str, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let per_second = HumanCount((count as f64 / seconds.max(1e-9)) as u64);
    format!("{} {noun} in {seconds:.2} s ({per_second} a second)", HumanCount(count))
}
