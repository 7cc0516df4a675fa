//! Passes the versions of the engines, from Cargo.lock, to the program, and the directory of RocksDB's shared object to the
//! linker.

use std::env;
use std::fs;
use std::path::Path;

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

/// The version of `package` in the lock file; for `1.2.3+4.5.6` the part after the plus.
fn version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    let (version, _) = rest.split_once('"')?;
    Some(version.split_once('+').map_or(version, |(_, upstream)| upstream))
}
