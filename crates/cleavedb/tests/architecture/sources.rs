//! The source files of the engine, and their code without comments and tests.

use std::path::{Path, PathBuf};

/// One source file.
pub struct Source {
    /// The file, below `src/`.
    pub path: PathBuf,
    /// Its folder below `src/`, with `/` between names; empty for `lib.rs`. A file beside a folder of its name is part of
    /// that folder.
    pub folder: String,
    /// Its module path: `engine::read::get`. That of `mod.rs` is its folder's.
    pub module: Vec<String>,
    /// All of it.
    pub text: String,
    /// Without comments and without inline tests.
    pub code: String,
}

impl Source {
    /// True for a file that holds the tests of another one.
    pub fn is_test(&self) -> bool {
        self.path.to_string_lossy().ends_with("_test.rs")
    }
}

/// All files below `src/`.
pub fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut dirs = vec![root.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("the sources are readable") {
            let path = entry.expect("the sources are readable").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file is text");
                let inside = path.strip_prefix(&root).expect("the file was found below the root");
                found.push(source(inside, text));
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

fn source(inside: &Path, text: String) -> Source {
    let names: Vec<String> =
        inside.iter().map(|name| name.to_string_lossy().trim_end_matches(".rs").to_owned()).collect();
    let folder = match &names[..] {
        [name] if name != "lib" => name.clone(),
        [dirs @ .., _] => dirs.join("/"),
        [] => String::new(),
    };
    let module = names.into_iter().filter(|name| name != "mod").collect();
    let before_tests = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = before_tests.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    Source { path: inside.to_owned(), folder, module, text, code }
}
