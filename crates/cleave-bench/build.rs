//! Passes the versions of the engines, from Cargo.lock, and the commit of the sources to the program, and the directory of
//! RocksDB's shared object to the linker.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A package in Cargo.lock, and the environment variable for its version.
const VERSIONS: [(&str, &str); 4] = [
    ("librocksdb-sys", "VERSION_ROCKSDB"),
    ("fjall", "VERSION_FJALL"),
    ("redb", "VERSION_REDB"),
    ("heed", "VERSION_LMDB"),
];

fn main() {
    let manifest = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let lock_path = Path::new(&manifest).join("../../Cargo.lock");
    println!("cargo:rerun-if-changed={}", lock_path.display());
    let lock = fs::read_to_string(&lock_path).expect("the workspace has a Cargo.lock");
    for (package, variable) in VERSIONS {
        let version = version(&lock, package).unwrap_or("unknown");
        println!("cargo:rustc-env={variable}={version}");
    }
    commit(&Path::new(&manifest).join("../.."));
    println!("cargo:rerun-if-env-changed=ROCKSDB_LIB_DIR");
    if env::var_os("CARGO_FEATURE_ROCKSDB").is_some()
        && let Ok(directory) = env::var("ROCKSDB_LIB_DIR")
    {
        if !Path::new(&directory).join("librocksdb.so").exists() {
            println!("cargo::error=feature rocksdb needs {directory}/librocksdb.so; run scripts/get-rocksdb first");
        }
        println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
    }
}

/// Passes the commit of the sources at `root`, with `-dirty` if they differ from it, or `unknown` outside a repository.
fn commit(root: &Path) {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let said = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| said.trim().to_owned())
    };
    let described = git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]);
    println!("cargo:rustc-env=COMMIT={}", described.as_deref().unwrap_or("unknown"));
    // Every commit and checkout appends to this file, and every change of the sources may make them differ.
    let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]);
    log.iter().for_each(|log| println!("cargo:rerun-if-changed={log}"));
    let sources = ["crates/cleave-bench/src", "crates/cleavedb/src"].map(|sources| root.join(sources));
    sources.iter().for_each(|sources| println!("cargo:rerun-if-changed={}", sources.display()));
}

/// The version of `package` in the lock file; for `1.2.3+4.5.6` the part after the plus.
fn version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    let (version, _) = rest.split_once('"')?;
    Some(version.split_once('+').map_or(version, |(_, upstream)| upstream))
}
