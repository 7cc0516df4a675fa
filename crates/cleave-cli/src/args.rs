//! The commands and flags of `cleave`: the single definition behind the parser, the help, the completions and the manual
//! pages. Each command's module takes its own struct.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use cleavedb::limits::KEYSPACE_NAME_BYTES_MAX;
use cleavedb::{DeltaPlacement, KvDeviceName, Options, SsdParameters};

use crate::form::{FileForm, Form};

const EXIT_CODES: &str =
    "Exit codes: 0 success, 1 failure or damage, 2 wrong usage, 3 the database is open in another process.";

/// Inspects and modifies CleaveDB databases.
#[derive(Debug, Parser)]
#[command(name = "cleave", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Demonstrate the store on real data: import, read, scan, merge, snapshot, kill -9 and recovery, a larger load
    Tour(Tour),
    /// Import records from a file; the database is created if missing
    Import(Import),
    /// Ingest a file of sorted records directly into tables, atomically; faster than import
    ///
    /// The keys must be in ascending order, as in the output of `cleave export`; otherwise --sort is needed. The database
    /// and the keyspace are created if missing.
    Ingest(Ingest),
    /// Export all records of one keyspace to a file, from one snapshot
    Export(Export),
    /// Write one record; the database and the keyspace are created if missing
    Put(Put),
    /// Print the value of a key; exit code 1 if the key is missing
    Get(Get),
    /// Delete a key
    Delete(Delete),
    /// Merge an operand into the value of a key; the keyspace must have a merge operator (see `keyspaces`)
    Merge(Merge),
    /// Print records in key order, one per line: key, tab, value
    Scan(Scan),
    /// List, create or drop keyspaces
    ///
    /// The list has a keyspace in each line. Where its merge operands are kept in buckets, a tab and `deltas=buckets` follow the name.
    Keyspaces(Keyspaces),
    /// Show the statistics of a database: logs, index table, runs, levels, memory, write amplification
    Stats(Stats),
    /// Verify all checksums of a closed database and the consistency of its files, without changing anything; exit code 1
    /// if it is damaged
    Check(Check),
    /// Copy a database to another directory as an independent database, using hard links where possible
    ///
    /// All files of the copy are in that one directory. An incomplete copy cannot be opened as a database.
    Checkpoint(Checkpoint),
    /// Print the content of a log, a table, a manifest, CURRENT or STATS, up to the first damage
    Dump(Dump),
    /// Compact all levels, which reclaims the space of overwritten and deleted records
    Compact(Compact),
    /// Print the completions for a shell
    Completions(Completions),
    /// Print the manual page, or write the manual pages of all commands to a directory
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
    /// Directory of the database, missing or empty; the database is kept. Default: a temporary directory
    pub dir: Option<PathBuf>,
    /// Keep the database if it is in a temporary directory
    #[arg(long)]
    pub keep: bool,
    /// Records of the larger steps: the load writes N records, and the killed process about N
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    pub records: u64,
}

/// A database: its directory, and the directories of its tiers if they are elsewhere.
#[derive(Debug, ClapArgs)]
pub struct Database {
    /// Directory of the database
    #[arg(value_name = "DB")]
    pub path: PathBuf,
    /// Directory of logs and the manifest, if not DB
    #[arg(long, value_name = "DIR", global = true)]
    pub fast_dir: Option<PathBuf>,
    /// Directory of tables, if not DB
    #[arg(long, value_name = "DIR", global = true)]
    pub slow_dir: Option<PathBuf>,
    /// KV device on which there are logs of DB: directory of an emulated one, or nvme:/dev/ngXnY or nvme:/dev/ngXnY:BYTES for one with the NVMe
    /// key-value command set, which may hold BYTES (untested on hardware)
    #[arg(long, value_name = "DEVICE", global = true)]
    pub kv_device: Option<KvDeviceName>,
}

impl Database {
    /// A database in one directory.
    pub fn at(path: &Path) -> Database {
        Database { path: path.to_owned(), fast_dir: None, slow_dir: None, kv_device: None }
    }

    /// Options with these directories and the device, which is open as long as they exist.
    pub fn options(&self) -> cleavedb::Result<Options> {
        match &self.kv_device {
            Some(name) => Ok(self.directories().kv_device(name.open(SsdParameters::modern())?)),
            None => Ok(self.directories()),
        }
    }

    /// Options with these directories alone.
    pub fn directories(&self) -> Options {
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
    /// The keyspace
    #[arg(long, short, value_name = "NAME", default_value = "default", value_parser = keyspace_name)]
    pub keyspace: String,
}

/// The formats of keys and values on the command line and in the output.
#[derive(Debug, ClapArgs)]
pub struct Forms {
    /// Format of keys
    #[arg(long, value_name = "FORM", default_value = "text")]
    key_format: Form,
    /// Format of values
    #[arg(long, value_name = "FORM", default_value = "text")]
    value_format: Form,
    /// Keys and values are hexadecimal
    #[arg(long, conflicts_with_all = ["key_format", "value_format", "base64"])]
    hex: bool,
    /// Keys and values are base64
    #[arg(long, conflicts_with_all = ["key_format", "value_format"])]
    base64: bool,
    /// Values are decimal numbers, stored in 8 bytes, little-endian, as the operator u64-add requires
    #[arg(long, conflicts_with = "value_format")]
    u64: bool,
}

impl Forms {
    /// The format of keys.
    pub fn key(&self) -> Form {
        self.both().unwrap_or(self.key_format)
    }

    /// The format of values.
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
    /// Set the separation threshold of the keyspace: new values of at least this many bytes are stored separately from
    /// their keys; `never` disables separation
    #[arg(long, value_name = "BYTES")]
    pub separation: Option<Separation>,
}

/// The separation threshold in bytes; none: values are never separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Separation(pub Option<u32>);

impl FromStr for Separation {
    type Err = String;

    fn from_str(text: &str) -> Result<Separation, String> {
        match text {
            "never" => Ok(Separation(None)),
            _ => text
                .parse()
                .map(|bytes| Separation(Some(bytes)))
                .map_err(|_| "expected a number of bytes or `never`".to_owned()),
        }
    }
}

/// A file of records.
#[derive(Debug, ClapArgs)]
pub struct Source {
    /// File to read (`-`: standard input)
    pub file: PathBuf,
    /// Format of the file. Default: detected from its first byte
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
    /// Sort the records first, in a temporary database (cleave-sort-... in TMPDIR, about as large as the file); the last
    /// value of a duplicate key is kept
    #[arg(long)]
    pub sort: bool,
}

/// `cleave export`.
#[derive(Debug, ClapArgs)]
pub struct Export {
    /// Database and keyspace.
    #[command(flatten)]
    pub place: Place,
    /// File to write (`-`: standard output); an existing file is overwritten
    pub file: PathBuf,
    /// Format of the file
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
    /// Formats of keys and values.
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
    /// Formats of keys and values.
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
    /// Formats of keys and values.
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
    /// Operand for the keyspace's merge operator
    pub operand: String,
    /// Formats of keys and values.
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
    /// Start of the range, inclusive
    #[arg(long, value_name = "KEY")]
    pub from: Option<String>,
    /// End of the range, exclusive
    #[arg(long, value_name = "KEY")]
    pub to: Option<String>,
    /// Only keys with this prefix
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,
    /// Scan in descending key order
    #[arg(long)]
    pub reverse: bool,
    /// Maximum number of records
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print keys without values
    #[arg(long)]
    pub keys_only: bool,
    /// Formats of keys and values.
    #[command(flatten)]
    pub forms: Forms,
}

/// `cleave keyspaces`.
#[derive(Debug, ClapArgs)]
pub struct Keyspaces {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// The change; without one, the keyspaces are listed.
    #[command(subcommand)]
    pub change: Option<KeyspaceChange>,
}

/// Changes of keyspaces.
#[derive(Debug, Subcommand)]
pub enum KeyspaceChange {
    /// Create a keyspace; the database is created if missing
    Create {
        /// Its name
        #[arg(value_parser = keyspace_name)]
        name: String,
        /// Its merge operator, fixed at creation
        #[arg(long, value_parser = ["u64-add", "append", "max", "min", "field-patch", "patches"])]
        operator: Option<String>,
        /// Separation threshold: values of at least this many bytes are stored separately from their keys; `never` disables
        /// separation. Default: 192
        #[arg(long, value_name = "BYTES")]
        separation: Option<Separation>,
        /// Where operands of merges are kept: with all other versions in the levels, or in buckets by key range, which the
        /// list of keyspaces then says
        #[arg(long, value_enum, value_name = "PLACE", default_value = "levels")]
        deltas: Deltas,
        /// How it keeps its keys: in their order, or by hash in memory, for point access without scans
        #[arg(long, value_enum, value_name = "KIND", default_value = "ordered", conflicts_with_all = ["separation", "deltas"])]
        kind: Kind,
    },
    /// Drop a keyspace and all its records
    Drop {
        /// Its name
        name: String,
    },
}

/// How a keyspace keeps its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// In the order of their bytes.
    Ordered,
    /// In an index in memory.
    Hash,
}

/// Where the merge operands of a keyspace are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Deltas {
    /// In the levels, with all other versions.
    Levels,
    /// In buckets by key range.
    Buckets,
}

impl From<Deltas> for DeltaPlacement {
    fn from(deltas: Deltas) -> DeltaPlacement {
        match deltas {
            Deltas::Levels => DeltaPlacement::Levels,
            Deltas::Buckets => DeltaPlacement::Buckets,
        }
    }
}

/// `cleave stats`.
#[derive(Debug, ClapArgs)]
pub struct Stats {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// Print one JSON object, with --watch one per line
    #[arg(long)]
    pub json: bool,
    /// Keep showing the statistics of a database that another process has open
    #[arg(long, short)]
    pub watch: bool,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval, requires = "watch")]
    pub interval: f64,
    /// Number of updates. Default: until interrupted or until the database is closed
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u64>,
}

fn keyspace_name(text: &str) -> Result<String, String> {
    match text.len() {
        1..=KEYSPACE_NAME_BYTES_MAX => Ok(text.to_owned()),
        len => {
            Err(format!("a keyspace name must have from 1 to {KEYSPACE_NAME_BYTES_MAX} bytes, but this one has {len}"))
        }
    }
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.01 to 86400".to_owned()),
    }
}

/// `cleave check`.
#[derive(Debug, ClapArgs)]
pub struct Check {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `cleave dump`.
#[derive(Debug, ClapArgs)]
pub struct Dump {
    /// The file
    pub file: PathBuf,
    /// Print values too
    #[arg(long)]
    pub values: bool,
    /// Maximum number of versions, moved values and keys of saved indexes to print
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
}

/// `cleave checkpoint`.
#[derive(Debug, ClapArgs)]
pub struct Checkpoint {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// Directory of the copy, missing or empty
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
    /// Directory for the manual pages of all commands
    pub dir: Option<PathBuf>,
}
