//! The architecture (`docs/ARCHITECTURE.md`) as a test: imports go down only, stores do not import each other, and only
//! `io/` and `sched/` touch files, clocks, threads and randomness.

use std::path::{Path, PathBuf};

/// The folders and their floors.
const FLOORS: [(&str, u8); 11] = [
    ("base", 0),
    ("format", 1),
    ("io", 1),
    ("cache", 1),
    ("sched", 1),
    ("front", 2),
    ("levels", 2),
    ("values", 2),
    ("engine", 3),
    ("api", 3),
    ("testing", 4),
];
/// Folders on this floor are stores: they never import each other.
const STORES: u8 = 2;
/// Names that only `io/` and `sched/` may use.
const OUTSIDE_WORLD: [&str; 10] = [
    "std::fs",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "parking_lot",
    "rustix",
    "memmap2",
    "rand_xoshiro",
    "RandomState",
    "collections::HashMap",
];

struct Source {
    path: PathBuf,
    room: String,
    text: String,
}

fn floor(room: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == room).map(|(_, floor)| *floor)
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut dirs = vec![root.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("the sources are readable") {
            let path = entry.expect("the source is readable").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path.strip_prefix(&root).expect("found below the root");
                let room = inside
                    .iter()
                    .next()
                    .expect("a file has a name")
                    .to_string_lossy()
                    .trim_end_matches(".rs")
                    .to_owned();
                let text = std::fs::read_to_string(&path).expect("the source is text");
                found.push(Source { room, text, path });
            }
        }
    }
    found
}

/// The folders that a line of code refers to by `crate::folder`.
fn rooms_named(line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap_or_default();
    let after = code.split("crate::").skip(1);
    let word = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    after.map(word).filter(|room| floor(room).is_some()).collect()
}

#[test]
fn imports_go_down_and_stores_do_not_import_each_other() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for source in sources() {
        let is_test = source.path.to_string_lossy().ends_with("_test.rs");
        let Some(own) = floor(&source.room).filter(|_| !is_test) else {
            continue;
        };
        let code = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            for room in rooms_named(line) {
                seen += 1;
                let other = floor(&room).expect("only rooms are named");
                let sibling = other == STORES && own == STORES && room != source.room;
                if other > own || sibling {
                    wrong.push(format!("{}:{}: {line}", source.path.display(), number + 1));
                }
            }
        }
    }
    assert!(seen > 100, "the test did not find the imports");
    assert!(wrong.is_empty(), "imports that go up:\n{}", wrong.join("\n"));
}

#[test]
fn only_io_and_sched_use_the_operating_system() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !["io", "sched"].contains(&source.room.as_str())) {
        for (number, line) in source.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if OUTSIDE_WORLD.iter().any(|name| code.contains(name)) {
                wrong.push(format!("{}:{}: {line}", source.path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "the operating system is used in:\n{}", wrong.join("\n"));
}

#[test]
fn every_folder_of_the_source_has_its_floor() {
    for source in sources() {
        let known = floor(&source.room).is_some() || source.room == "lib";
        assert!(known, "{} is in a folder without a floor", source.path.display());
    }
}

#[test]
fn readers_go_through_the_layers_of_a_view_alone() {
    let by_kind = ["view.active", "view.sealed", "view.runs", "view.version"];
    let readers: Vec<Source> =
        sources().into_iter().filter(|source| source.path.iter().any(|dir| dir == "read")).collect();
    assert!(
        readers.iter().any(|reader| reader.text.contains("view.layers()")),
        "the readers are where this test looks"
    );
    for reader in readers {
        let found = by_kind.iter().find(|kind| reader.text.contains(**kind));
        assert_eq!(found, None, "{} reads a source by its kind", reader.path.display());
    }
}
