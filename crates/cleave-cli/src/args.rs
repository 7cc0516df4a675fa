//! The commands and flags of `cleave`: the one definition behind parser and help.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args as ClapArgs, Parser, Subcommand};
use cleavedb::Options;
use cleavedb::limits::KEYSPACE_NAME_BYTES_MAX;

use crate::form::Form;
use crate::transfer::FileForm;

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed or damaged, 2 wrong usage, 3 the database is open elsewhere.";

/// Looks into and works on CleaveDB databases.
#[derive(Debug, Parser)]
#[command(name = "cleave", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what the store does, on real data: import, read, scan, merge, snapshot, kill -9 and recovery, a larger load
    Tour(Tour),
    /// Read records from a file into a database, which is created if missing
    Import(Import),
    /// Load a file of sorted records straight into tables: all of it at once, or nothing. Faster than import
    ///
    /// The keys must ascend, as in what `cleave export` writes; otherwise --sort is needed. The database and the
    /// keyspace are created if missing.
    Ingest(Ingest),
    /// Write all records of one keyspace, as they are at one moment, into a file
    Export(Export),
    /// Write one record; the database and the keyspace are created if missing
    Put(Put),
    /// Print the value of a key as it is; exit code 1 if the key has none
    Get(Get),
    /// Delete a key
    Delete(Delete),
    /// Merge an operand into the value of a key; the keyspace must have a merge operator (see `keyspaces`)
    Merge(Merge),
    /// Print records in key order, one a line: key, tab, value
    Scan(Scan),
    /// List, create or drop keyspaces
    Keyspaces(Keyspaces),
    /// Show what is where: logs, index table, runs, levels, memory, write amplification
    Stats(Stats),
    /// Check every checksum of a closed database and whether its files agree; changes nothing. Exit code 1: damaged
    Check(Check),
    /// Copy a database into another directory, which is then a database by itself; by hard links where that is possible
    ///
    /// Everything lands in that one directory. Until the copy is whole it is no database and no command opens it as
    /// one.
    Checkpoint(Checkpoint),
    /// Show what is in a log, a table, a manifest, CURRENT or STATS, as far as it can be read
    Dump(Dump),
    /// Merge everything down the levels, so that what was overwritten or deleted gives its space back
    Compact(Compact),
    /// Print the completions for a shell
    Completions(Completions),
    /// Print the manual page, or write all of them into a directory
    Man(Man),
    /// The process that the tour kills
    #[command(hide = true)]
    TourLoader {
        /// Directory of the database
        db: PathBuf,
    },
}

/// `cleave tour`.
#[derive(Debug, ClapArgs)]
pub struct Tour {
    /// Where to make the database (an empty or missing directory; it is kept). Default: a temporary directory
    pub dir: Option<PathBuf>,
    /// Keep the database of a tour in a temporary directory
    #[arg(long)]
    pub keep: bool,
    /// Size of the larger steps: the load writes N records, the process that is killed writes about N
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    pub records: u64,
}

/// A database: its directory, and those of its parts if they lie elsewhere.
#[derive(Debug, ClapArgs)]
pub struct Database {
    /// Directory of the database
    #[arg(value_name = "DB")]
    pub path: PathBuf,
    /// Where logs and the manifest lie, if not in DB
    #[arg(long, value_name = "DIR", global = true)]
    pub fast_dir: Option<PathBuf>,
    /// Where tables lie, if not in DB
    #[arg(long, value_name = "DIR", global = true)]
    pub slow_dir: Option<PathBuf>,
}

impl Database {
    /// A database that lies in one directory.
    pub fn at(path: &Path) -> Database {
        Database { path: path.to_owned(), fast_dir: None, slow_dir: None }
    }

    /// Options that name the directories.
    pub fn options(&self) -> Options {
        let options = match &self.fast_dir {
            Some(dir) => Options::new().fast_dir(dir),
            None => Options::new(),
        };
        match &self.slow_dir {
            Some(dir) => options.slow_dir(dir),
            None => options,
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

/// A database and one of its keyspaces.
#[derive(Debug, ClapArgs)]
pub struct Place {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// Keyspace to work on
    #[arg(long, short, value_name = "NAME", default_value = "default", value_parser = keyspace_name)]
    pub keyspace: String,
}

/// How keys and values are written on the command line and in the output.
#[derive(Debug, ClapArgs)]
pub struct Forms {
    /// How keys are written
    #[arg(long, value_name = "FORM", default_value = "text")]
    key_format: Form,
    /// How values are written
    #[arg(long, value_name = "FORM", default_value = "text")]
    value_format: Form,
    /// Keys and values are hexadecimal
    #[arg(long, conflicts_with_all = ["key_format", "value_format", "base64"])]
    hex: bool,
    /// Keys and values are base64
    #[arg(long, conflicts_with_all = ["key_format", "value_format"])]
    base64: bool,
    /// Values are decimal numbers, stored in 8 bytes, little-endian (as the operator u64-add needs them)
    #[arg(long, conflicts_with = "value_format")]
    u64: bool,
}

impl Forms {
    /// How keys are written.
    pub fn key(&self) -> Form {
        self.both().unwrap_or(self.key_format)
    }

    /// How values are written.
    pub fn value(&self) -> Form {
        if self.u64 { Form::U64 } else { self.both().unwrap_or(self.value_format) }
    }

    fn both(&self) -> Option<Form> {
        match (self.hex, self.base64) {
            (true, _) => Some(Form::Hex),
            (_, true) => Some(Form::Base64),
            _ => None,
        }
    }
}

/// `cleave import`.
#[derive(Debug, ClapArgs)]
pub struct Import {
    /// Database and keyspace.
    #[command(flatten)]
    pub place: Place,
    /// Records to read.
    #[command(flatten)]
    pub source: Source,
    /// Keep values of this keyspace of at least so many bytes apart from their keys, or `never`, from now on
    #[arg(long, value_name = "BYTES")]
    pub separation: Option<Separation>,
}

/// From which size on values lie apart from their keys; none: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Separation(pub Option<u32>);

impl FromStr for Separation {
    type Err = String;

    fn from_str(text: &str) -> Result<Separation, String> {
        match text {
            "never" => Ok(Separation(None)),
            _ => {
                text.parse().map(|bytes| Separation(Some(bytes))).map_err(|_| "a number of bytes or `never`".to_owned())
            }
        }
    }
}

/// A file of records.
#[derive(Debug, ClapArgs)]
pub struct Source {
    /// File to read (`-`: standard input)
    pub file: PathBuf,
    /// Form of the file. Default: whichever it is
    #[arg(long)]
    pub format: Option<FileForm>,
}

/// `cleave ingest`.
#[derive(Debug, ClapArgs)]
pub struct Ingest {
    /// Database and keyspace.
    #[command(flatten)]
    pub place: Place,
    /// Records to read.
    #[command(flatten)]
    pub source: Source,
    /// Sort the records first, in a temporary database (cleave-sort-... in TMPDIR, about as large as the file); a key
    /// that comes twice keeps its last value
    #[arg(long)]
    pub sort: bool,
}

/// `cleave export`.
#[derive(Debug, ClapArgs)]
pub struct Export {
    /// Database and keyspace.
    #[command(flatten)]
    pub place: Place,
    /// File to write (`-`: standard output); what is there is overwritten
    pub file: PathBuf,
    /// Form of the file
    #[arg(long, default_value = "jsonl")]
    pub format: FileForm,
}

/// `cleave put`.
#[derive(Debug, ClapArgs)]
pub struct Put {
    /// Database and keyspace.
    #[command(flatten)]
    pub place: Place,
    /// Key to write
    pub key: String,
    /// Value to write
    pub value: String,
    /// Text forms.
    #[command(flatten)]
    pub forms: Forms,
    /// Wait until the record survives power loss
    #[arg(long)]
    pub sync: bool,
}

/// `cleave get`.
#[derive(Debug, ClapArgs)]
pub struct Get {
    /// Database and keyspace.
    #[command(flatten)]
    pub place: Place,
    /// Key to read
    pub key: String,
    /// Text forms.
    #[command(flatten)]
    pub forms: Forms,
}

/// `cleave delete`.
#[derive(Debug, ClapArgs)]
pub struct Delete {
    /// Database and keyspace.
    #[command(flatten)]
    pub place: Place,
    /// Key to delete
    pub key: String,
    /// Text forms.
    #[command(flatten)]
    pub forms: Forms,
    /// Wait until the delete survives power loss
    #[arg(long)]
    pub sync: bool,
}

/// `cleave merge`.
#[derive(Debug, ClapArgs)]
pub struct Merge {
    /// Database and keyspace.
    #[command(flatten)]
    pub place: Place,
    /// Key to merge into
    pub key: String,
    /// What the keyspace's merge operator takes
    pub operand: String,
    /// Text forms.
    #[command(flatten)]
    pub forms: Forms,
    /// Wait until the operand survives power loss
    #[arg(long)]
    pub sync: bool,
}

/// `cleave scan`.
#[derive(Debug, ClapArgs)]
pub struct Scan {
    /// Database and keyspace.
    #[command(flatten)]
    pub place: Place,
    /// First key
    #[arg(long, value_name = "KEY")]
    pub from: Option<String>,
    /// Key to stop before
    #[arg(long, value_name = "KEY")]
    pub to: Option<String>,
    /// Only keys that start with this
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,
    /// From the last key to the first
    #[arg(long)]
    pub reverse: bool,
    /// At most this many records
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// No values
    #[arg(long)]
    pub keys_only: bool,
    /// Text forms.
    #[command(flatten)]
    pub forms: Forms,
}

/// `cleave keyspaces`.
#[derive(Debug, ClapArgs)]
pub struct Keyspaces {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// What to do; without it, the keyspaces are listed.
    #[command(subcommand)]
    pub change: Option<KeyspaceChange>,
}

/// What to do with a keyspace.
#[derive(Debug, Subcommand)]
pub enum KeyspaceChange {
    /// Make a keyspace; the database is created if missing
    Create {
        /// Its name
        #[arg(value_parser = keyspace_name)]
        name: String,
        /// Its merge operator
        #[arg(long, value_parser = ["u64-add", "append", "max", "min", "field-patch"])]
        operator: Option<String>,
        /// Keep values of at least so many bytes apart from their keys, or `never`. Default: from 192 on
        #[arg(long, value_name = "BYTES")]
        separation: Option<Separation>,
    },
    /// Drop a keyspace and everything in it
    Drop {
        /// Its name
        name: String,
    },
}

/// `cleave stats`.
#[derive(Debug, ClapArgs)]
pub struct Stats {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// As one JSON object, with --watch one a line
    #[arg(long)]
    pub json: bool,
    /// Show how the figures of a database go on that another process has open
    #[arg(long, short)]
    pub watch: bool,
    /// Seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval, requires = "watch")]
    pub interval: f64,
    /// Look so many times. Default: until interrupted, or until the database is closed
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u64>,
}

fn keyspace_name(text: &str) -> Result<String, String> {
    match text.len() {
        1..=KEYSPACE_NAME_BYTES_MAX => Ok(text.to_owned()),
        len => Err(format!("a keyspace name has from 1 to {KEYSPACE_NAME_BYTES_MAX} bytes, this one has {len}")),
    }
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.01 to 86400 is needed".to_owned()),
    }
}

/// `cleave check`.
#[derive(Debug, ClapArgs)]
pub struct Check {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `cleave dump`.
#[derive(Debug, ClapArgs)]
pub struct Dump {
    /// The file
    pub file: PathBuf,
    /// Show values, too
    #[arg(long)]
    pub values: bool,
    /// At most this many versions of keys
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
}

/// `cleave checkpoint`.
#[derive(Debug, ClapArgs)]
pub struct Checkpoint {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// Directory for the copy, missing or empty
    pub target: PathBuf,
}

/// `cleave compact`.
#[derive(Debug, ClapArgs)]
pub struct Compact {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// Only this keyspace
    #[arg(long, short, value_name = "NAME")]
    pub keyspace: Option<String>,
}

/// `cleave completions`.
#[derive(Debug, ClapArgs)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `cleave man`.
#[derive(Debug, ClapArgs)]
pub struct Man {
    /// Directory for the pages of all commands
    pub dir: Option<PathBuf>,
}
