//! `tour`.

use crate::support::{fail, fresh, run};

#[test]
fn the_tour_runs_and_keeps_its_database_in_the_given_directory() {
    let (_dir, db) = fresh();
    let text = run(&["tour", &db, "--records", "20000"]);
    assert!(text.contains("34,006 cities"), "{text}");
    assert!(text.contains("including every acknowledged one"), "{text}");
    assert!(text.contains("All checks passed."), "{text}");
    assert!(!text.contains('\x1b'), "no terminal, no escape sequences");
    assert!(run(&["get", &db, "IS/Reykjavík/3413829", "-k", "cities"]).starts_with("64.1355;"));
    assert!(fail(&["tour", &db]).contains("not empty"));
}
