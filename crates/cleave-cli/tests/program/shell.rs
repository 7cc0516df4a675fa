//! Shell completions and manual pages.

use crate::support::{cleave, fresh, run};

#[test]
fn completions_and_manual_pages_know_every_command() {
    let (dir, _) = fresh();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(run(&["completions", shell]).contains("keyspaces"), "{shell}");
        assert!(run(&["completions", shell]).contains("checkpoint"), "{shell}");
    }
    assert_eq!(cleave(&["completions", "csh"]).status.code(), Some(2));
    assert!(run(&["man"]).contains("cleave\\-check") || run(&["man"]).contains("cleave-check"));
    let pages = dir.path().join("man");
    run(&["man", pages.to_str().unwrap()]);
    let page = std::fs::read_to_string(pages.join("cleave-dump.1")).unwrap();
    let ingest = std::fs::read_to_string(pages.join("cleave-ingest.1")).unwrap();
    assert!(ingest.contains("sort") && pages.join("cleave-checkpoint.1").exists());
    assert!(page.contains("values") && page.contains("limit"), "{page}");
}
