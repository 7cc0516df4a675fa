//! The architecture (`docs/ARCHITECTURE.md`) as a test: which folder imports which, no circles of files or folders, and
//! the operating system behind `io/` and `sched/`.

mod folders;
mod imports;
mod sources;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use folders::{folders, row_of};
use sources::{Source, sources};

/// A circle of two files is a pair that is read together; a larger one is a knot.
const CIRCLE_MAX: usize = 2;
/// The walk of a get has at most this many functions, in at most this many files.
const WALK_MAX: (usize, usize) = (62, 24);
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

#[test]
fn every_folder_has_a_row_that_lists_what_it_imports() {
    let (sources, rows) = (sources(), folders());
    for source in sources.iter().filter(|source| !source.folder.is_empty()) {
        assert!(row_of(&rows, &source.folder).is_some(), "{} is in a folder without a row", source.path.display());
    }
    let files = imports::graph(&sources);
    let mut imported = BTreeMap::<&str, BTreeSet<String>>::new();
    for (from, others) in &imports::folders(&sources, &files) {
        let own = row_of(&rows, from).expect("every folder has a row");
        let others = others.iter().filter_map(|to| row_of(&rows, to)).filter(|to| *to != own);
        imported.entry(own).or_default().extend(others.map(str::to_owned));
    }
    assert!(imported.values().map(BTreeSet::len).sum::<usize>() > 50, "the test did not find the imports");
    for row in &rows {
        let imports = imported.remove(row.name.as_str()).expect("every row is about a folder");
        let (undeclared, unused) = (&imports - &row.may_import, &row.may_import - &imports);
        assert_eq!(undeclared, BTreeSet::new(), "{}/ imports what its row does not list", row.name);
        assert_eq!(unused, BTreeSet::new(), "the row of {}/ lists what it does not import", row.name);
    }
}

#[test]
fn the_list_of_folders_goes_from_the_ground_up() {
    let mut below = BTreeSet::new();
    for row in folders() {
        assert!(row.may_import.is_subset(&below), "{}/ may import a folder that comes later", row.name);
        below.insert(row.name);
    }
    // The stores hand their work to the engine and know nothing of one another.
    let stores = ["front", "levels", "values"];
    for row in folders().iter().filter(|row| stores.contains(&row.name.as_str())) {
        assert!(!stores.iter().any(|store| row.may_import.contains(*store)), "{}/ may import a store", row.name);
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
    let (rows, mut wrong) = (folders(), Vec::new());
    for source in
        sources().iter().filter(|source| !["io", "sched"].contains(&row_of(&rows, &source.folder).unwrap_or("lib")))
    {
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

#[test]
fn jobs_end_with_their_edit_and_commit_none_themselves() {
    let commits = ["commit_edit", "commit_to_manifest", ".install("];
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| source.folder.starts_with("engine/jobs") && !source.is_test()) {
        if commits.iter().any(|commit| source.code.contains(commit)) {
            found.push(source.path.display().to_string());
        }
    }
    assert_eq!(found, ["engine/jobs/outcome.rs"], "an edit is committed elsewhere than at the end of a job");
}

#[test]
fn the_walk_of_a_get_is_as_the_document_lists_it() {
    let (sources, steps) = (sources(), walk::walk());
    let mut files: Vec<&str> = steps.iter().map(|step| step.file.as_str()).collect();
    files.dedup();
    let found: Vec<_> = steps
        .iter()
        .map(|step| {
            let source = sources.iter().find(|source| source.path.to_string_lossy() == step.file.as_str());
            let source = source.unwrap_or_else(|| panic!("the walk names {}, which does not exist", step.file));
            walk::find(source, step).unwrap_or_else(|| panic!("{} has no function {step:?}", step.file))
        })
        .collect();
    for (index, step) in steps.iter().enumerate().skip(1) {
        if step.file == steps[index - 1].file {
            assert!(found[index - 1].0 < found[index].0, "{step:?} is listed later than its file has it");
        }
        let is_called = |code: &str| code.contains(&format!("{}(", step.name));
        let callers = found.iter().enumerate().filter(|(at, (_, code))| *at != index && is_called(code));
        assert!(callers.count() > 0, "no function of the walk calls {step:?}");
    }
    assert!(steps.len() > 20, "the test did not find the walk");
    assert!(
        (steps.len() <= WALK_MAX.0) && (files.len() <= WALK_MAX.1),
        "the walk has grown: {} in {}",
        steps.len(),
        files.len()
    );
}
