//! The table of folders in `docs/ARCHITECTURE.md`: the folders of the source, from the ground up, and the folders that each
//! may import.

use std::collections::BTreeSet;
use std::path::Path;

/// A row of the table. It includes the subfolders that have no row of their own.
pub struct Folder {
    /// Its name below `src/`.
    pub name: String,
    /// The folders that it may import.
    pub may_import: BTreeSet<String>,
}

/// The rows of the table, in its order.
pub fn folders() -> Vec<Folder> {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ARCHITECTURE.md");
    let text = std::fs::read_to_string(document).expect("the document is readable");
    parse(&text)
}

fn parse(text: &str) -> Vec<Folder> {
    let table = text.lines().skip_while(|line| !line.starts_with("| folder | may import |")).skip(2);
    let row = |line: &str| {
        let mut columns = line.split('|').skip(1).map(str::trim);
        let mut names = || columns.next().unwrap_or_default().split(", ").map(|name| name.trim_matches('`').to_owned());
        let name = names().collect();
        Folder { name, may_import: names().filter(|name| !name.is_empty()).collect() }
    };
    table.take_while(|line| line.starts_with('|')).map(row).collect()
}

/// The name of the row that a folder belongs to: the longest one that it begins with.
pub fn row_of<'a>(rows: &'a [Folder], folder: &str) -> Option<&'a str> {
    let within = |name: &str| folder == name || folder.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    rows.iter().map(|row| row.name.as_str()).filter(|name| within(name)).max_by_key(|name| name.len())
}

#[test]
fn the_table_of_the_document_is_understood() {
    let text = "text\n\n| folder | may import | contents |\n|---|---|---|\n| `a` |  | x, y |\n| `a/b` | `a`, `c/d` | z |\n\n| `e` | |";
    let rows: Vec<_> = parse(text).into_iter().map(|row| (row.name, Vec::from_iter(row.may_import))).collect();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(rows, [("a".to_owned(), names(&[])), ("a/b".to_owned(), names(&["a", "c/d"]))]);
    let rows = parse(text);
    assert_eq!(
        ["a", "a/x", "a/b", "a/b/c", "ab", "c"].map(|folder| row_of(&rows, folder)),
        [Some("a"), Some("a"), Some("a/b"), Some("a/b"), None, None]
    );
}
