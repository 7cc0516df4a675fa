//! The architecture (`docs/ARCHITECTURE.md`) as a test: which folder may import which, no circles of files or folders, and
//! the operating system behind `io/` and `sched/`.

mod imports;
mod sources;

use std::collections::BTreeSet;

use sources::{Source, sources};

/// The folders of the source, from the ground up, and the folders that each may import. Subfolders belong to the folder.
/// The stores `front`, `levels` and `values` never import each other, and nothing imports a folder that comes later.
const FOLDERS: [(&str, &[&str]); 19] = [
    ("base", &[]),
    ("format", &["base"]),
    ("sched", &["base"]),
    ("io", &["base", "sched"]),
    ("cache", &["base", "sched"]),
    ("front", &["base", "format", "io", "sched"]),
    ("levels", &["base", "cache", "format", "io"]),
    ("values", &["base", "cache", "format", "io", "sched"]),
    ("engine/manifest", &["base", "format", "io"]),
    ("engine/tuning", &["base", "format", "front", "levels", "values"]),
    (
        "engine",
        &["base", "cache", "format", "io", "sched", "front", "levels", "values", "engine/manifest", "engine/tuning"],
    ),
    (
        "engine/recovery",
        &["base", "format", "io", "front", "levels", "values", "engine/manifest", "engine/tuning", "engine"],
    ),
    ("engine/read", &["base", "cache", "format", "io", "front", "levels", "values", "engine"]),
    (
        "engine/write",
        &["base", "format", "io", "sched", "front", "levels", "values", "engine/manifest", "engine/tuning", "engine"],
    ),
    (
        "engine/inspect",
        &[
            "base",
            "cache",
            "format",
            "io",
            "sched",
            "front",
            "levels",
            "values",
            "engine/manifest",
            "engine/tuning",
            "engine",
            "engine/recovery",
        ],
    ),
    (
        "engine/jobs",
        &[
            "base",
            "format",
            "io",
            "sched",
            "front",
            "levels",
            "values",
            "engine/manifest",
            "engine/tuning",
            "engine",
            "engine/read",
            "engine/write",
            "engine/inspect",
        ],
    ),
    (
        "engine/lifecycle",
        &[
            "base",
            "cache",
            "format",
            "io",
            "sched",
            "front",
            "levels",
            "values",
            "engine/manifest",
            "engine/tuning",
            "engine",
            "engine/recovery",
            "engine/write",
            "engine/inspect",
        ],
    ),
    (
        "api",
        &[
            "base",
            "format",
            "io",
            "values",
            "engine/manifest",
            "engine/tuning",
            "engine",
            "engine/read",
            "engine/inspect",
            "engine/lifecycle",
        ],
    ),
    ("testing", &["base", "cache", "format", "io", "front", "levels", "values", "engine/manifest", "engine/inspect"]),
];
/// A circle of two files is a pair that is read together; a larger one is a knot.
const CIRCLE_MAX: usize = 2;
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

/// The entry of [`FOLDERS`] that a folder belongs to: the longest one that it begins with.
fn room(folder: &str) -> Option<&'static str> {
    let within = |name: &str| folder == name || folder.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    FOLDERS.iter().map(|(name, _)| *name).filter(|name| within(name)).max_by_key(|name| name.len())
}

#[test]
fn every_folder_has_its_place_and_imports_only_what_it_may() {
    let sources = sources();
    for source in sources.iter().filter(|source| !source.folder.is_empty()) {
        assert!(room(&source.folder).is_some(), "{} is in a folder without a place", source.path.display());
    }
    let files = imports::graph(&sources);
    let folders = imports::folders(&sources, &files);
    let mut seen = 0;
    for (from, others) in &folders {
        let own = room(from).expect("every folder has a place");
        let may = FOLDERS.iter().find(|(name, _)| *name == own).expect("rooms come from the list").1;
        for to in others.iter().filter_map(|to| room(to)).filter(|to| *to != own) {
            seen += 1;
            assert!(may.contains(&to), "{from}/ imports {to}/, which is not allowed");
        }
    }
    assert!(seen > 50, "the test did not find the imports");
}

#[test]
fn the_list_of_folders_goes_from_the_ground_up() {
    let mut below = BTreeSet::new();
    for (name, may) in FOLDERS {
        assert!(may.iter().all(|other| below.contains(other)), "{name}/ may import a folder that comes later");
        below.insert(name);
    }
}

#[test]
fn no_circle_of_files_is_larger_than_two_and_none_is_of_folders() {
    let sources = sources();
    let files = imports::graph(&sources);
    assert!(files.values().map(BTreeSet::len).sum::<usize>() > 500, "the test did not find the imports");
    assert_eq!(imports::circles(&files, CIRCLE_MAX + 1), Vec::<Vec<String>>::new(), "circles of files");
    assert_eq!(
        imports::circles(&imports::folders(&sources, &files), 2),
        Vec::<Vec<String>>::new(),
        "circles of folders"
    );
}

#[test]
fn the_test_finds_circles() {
    let graph = |edges: &[(&str, &str)]| {
        let mut graph = imports::Graph::new();
        for (from, to) in edges {
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            graph.entry((*to).to_owned()).or_default();
        }
        graph
    };
    let circle = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d")]);
    assert_eq!(imports::circles(&circle, 3), [["a", "b", "c"].map(str::to_owned).to_vec()]);
    assert_eq!(imports::circles(&circle, 2).len(), 2);
    assert!(imports::circles(&graph(&[("a", "b"), ("b", "c"), ("a", "c")]), 2).is_empty());
}

#[test]
fn only_io_and_sched_use_the_operating_system() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !["io", "sched"].contains(&room(&source.folder).unwrap_or("lib"))) {
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
fn readers_go_through_the_layers_of_a_view_alone() {
    let by_kind = ["view.active", "view.sealed", "view.runs", "view.version"];
    let readers: Vec<Source> =
        sources().into_iter().filter(|source| source.path.iter().any(|dir| dir == "read")).collect();
    assert!(readers.iter().any(|reader| reader.text.contains("view.layers")), "the readers are where this test looks");
    for reader in readers {
        let found = by_kind.iter().find(|kind| reader.text.contains(**kind));
        assert_eq!(found, None, "{} reads a source by its kind", reader.path.display());
    }
}
