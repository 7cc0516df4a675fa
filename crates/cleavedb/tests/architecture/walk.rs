//! The walk of a get: the table of its files and functions in `docs/ARCHITECTURE.md`.

use std::path::Path;

use crate::sources::Source;

/// A function of the walk: its file below `src/`, its type if it has one, and its name.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub file: String,
    pub of: Option<String>,
    pub name: String,
}

/// The steps, in the order of the table.
pub fn walk() -> Vec<Step> {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ARCHITECTURE.md");
    parse(&std::fs::read_to_string(document).expect("the document is readable"))
}

fn parse(text: &str) -> Vec<Step> {
    let table = text.lines().skip_while(|line| !line.starts_with("| file | functions of the walk |")).skip(2);
    let mut steps = Vec::new();
    for row in table.take_while(|line| line.starts_with('|')) {
        let mut columns = row.split('|').skip(1).map(str::trim);
        let file = columns.next().unwrap_or_default().trim_matches('`');
        for function in columns.next().unwrap_or_default().split(", ").map(|name| name.trim_matches('`')) {
            let (of, name) = function.split_once("::").map_or((None, function), |(of, name)| (Some(of), name));
            steps.push(Step { file: file.to_owned(), of: of.map(str::to_owned), name: name.to_owned() });
        }
    }
    steps
}

/// Where the function begins in the code of its file, and its code; `None` if the file has no such function.
pub fn find<'a>(source: &'a Source, step: &Step) -> Option<(usize, &'a str)> {
    let code = source.code.as_str();
    let head = format!("fn {}", step.name);
    let mut candidates = code.match_indices(&head).filter(|(at, found)| {
        let after = code[at + found.len()..].chars().next();
        let line = code[..*at].rsplit('\n').next().unwrap_or_default();
        after.is_some_and(|letter| "(<".contains(letter)) && type_around(code, *at, line.starts_with(' ')) == step.of
    });
    let (at, _) = candidates.next()?;
    let indent = code[..at].rsplit('\n').next().map_or(0, |line| line.len() - line.trim_start().len());
    let end = code[at..].find(&format!("\n{}}}", " ".repeat(indent)))?;
    Some((at, &code[at..at + end]))
}

/// The type of the `impl` block around a place in the code.
fn type_around(code: &str, at: usize, is_indented: bool) -> Option<String> {
    let head = code[..at].lines().rev().find(|line| line.starts_with("impl")).filter(|_| is_indented)?;
    // Behind the parameters of the block: `impl<'a> Record<'a> {`.
    let head = if head.starts_with("impl<") { head.split_once("> ")?.1 } else { head.strip_prefix("impl ")? };
    let named = head.split(" for ").last()?;
    Some(named.trim().chars().take_while(|letter| letter.is_alphanumeric()).collect())
}

#[test]
fn the_table_of_the_walk_is_understood() {
    let text =
        "| file | functions of the walk | what for |\n|---|---|---|\n| `a/b.rs` | `B::get`, `find` | x |\n\n| `c` | |";
    let step = |of: Option<&str>, name: &str| Step {
        file: "a/b.rs".to_owned(),
        of: of.map(str::to_owned),
        name: name.to_owned(),
    };
    let steps = parse(text);
    assert_eq!(steps, [step(Some("B"), "get"), step(None, "find")]);
    let code = "impl<'a> A<'a> {\n    fn get(&self) {\n        1\n    }\n}\n\
        impl Trait for B {\n    pub fn get(&self) {\n        find(2)\n    }\n}\nfn find<T>(t: T) {\n    3\n}\n";
    let source = Source {
        path: "a/b.rs".into(),
        folder: "a".to_owned(),
        module: Vec::new(),
        text: String::new(),
        code: code.to_owned(),
    };
    assert!(find(&source, &steps[0]).is_some_and(|(_, body)| body.contains("find(2)")));
    assert!(find(&source, &steps[1]).is_some_and(|(_, body)| body.ends_with('3')));
    assert_eq!(find(&source, &step(Some("C"), "get")), None);
    assert_eq!(find(&source, &step(Some("A"), "find")), None);
}
