//! Which file refers to which: the paths in code, from `use` lines and in expressions, with re-exports resolved to the file
//! that defines the item. Lines that only declare modules do not count, nor do re-exports in a `mod.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::sources::Source;

/// The files that each file refers to, by module path.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// A path, absolute within the crate.
type Segments = Vec<String>;

/// The graph of all files that are not tests.
pub fn graph(sources: &[Source]) -> Graph {
    let files: BTreeMap<String, &Source> = sources
        .iter()
        .filter(|source| !source.is_test() && !source.folder.is_empty())
        .map(|source| (source.module.join("::"), source))
        .collect();
    let exports = files.iter().map(|(module, source)| (module.clone(), exports(&files, source))).collect();
    let edges = files.iter().map(|(module, source)| {
        let referred = references(&files, source).into_iter().filter_map(|path| defining_file(&files, &exports, path));
        (module.clone(), referred.filter(|other| other != module).collect())
    });
    edges.collect()
}

/// Groups of nodes that reach each other, of at least `least` nodes.
pub fn circles(graph: &Graph, least: usize) -> Vec<Vec<String>> {
    let reachable = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&String> = graph[from].iter().collect();
        while let Some(next) = open.pop() {
            if seen.insert(next.clone()) {
                open.extend(graph.get(next).into_iter().flatten());
            }
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> = graph.keys().map(|node| (node, reachable(node))).collect();
    let mut found = BTreeSet::new();
    for (node, seen) in &reach {
        let circle: Vec<String> =
            seen.iter().filter(|other| reach.get(other).is_some_and(|back| back.contains(*node))).cloned().collect();
        if circle.len() >= least {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// The graph of folders that follows from that of files.
pub fn folders(sources: &[Source], files: &Graph) -> Graph {
    let folder_of: BTreeMap<String, &str> =
        sources.iter().map(|source| (source.module.join("::"), source.folder.as_str())).collect();
    let mut folders = Graph::new();
    for (file, others) in files {
        let from = folder_of[file].to_owned();
        let to = others.iter().map(|other| folder_of[other].to_owned()).filter(|to| *to != from);
        folders.entry(from.clone()).or_default().extend(to);
    }
    let all: Vec<String> = folders.values().flatten().cloned().collect();
    for folder in all {
        folders.entry(folder).or_default();
    }
    folders
}

/// The paths that a file refers to.
fn references(files: &BTreeMap<String, &Source>, source: &Source) -> Vec<Segments> {
    let mut paths = Vec::new();
    let mut rest = String::new();
    let is_mod = source.path.ends_with("mod.rs");
    let mut code = source.code.as_str();
    while let Some((before, statement, after)) = next_use(code) {
        rest.push_str(before);
        code = after;
        let is_nested = before.ends_with(' ');
        let line = before.rsplit('\n').next().unwrap_or_default();
        if is_mod && line.contains("pub") {
            continue;
        }
        for leaf in leaves(statement) {
            // Within a nested module `super` is this file.
            if !(is_nested && leaf[0] == "super" && leaf.get(1).is_none_or(|second| second != "super")) {
                paths.extend(absolute(files, &leaf, &source.module));
            }
        }
    }
    rest.push_str(code);
    paths.extend(inline_paths(&rest).iter().filter_map(|path| absolute(files, path, &source.module)));
    paths
}

/// The items that a file exports from others, by name.
fn exports(files: &BTreeMap<String, &Source>, source: &Source) -> BTreeMap<String, Segments> {
    let mut exports = BTreeMap::new();
    let mut code = source.code.as_str();
    while let Some((before, statement, after)) = next_use(code) {
        code = after;
        if before.rsplit('\n').next().is_some_and(|line| line.contains("pub")) {
            for leaf in leaves(statement) {
                if let Some(path) = absolute(files, &leaf, &source.module) {
                    exports.insert(path.last().cloned().unwrap_or_default(), path);
                }
            }
        }
    }
    exports
}

/// The code before the next `use` line, the tree that it names, and the code behind it.
fn next_use(code: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let at = from + code[from..].find("use ")?;
        let line = code[..at].rsplit('\n').next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with("pub") && !line.contains(' ') {
            let end = at + code[at..].find(';')?;
            return Some((&code[..at], &code[at + 4..end], &code[end + 1..]));
        }
        from = at + 4;
    }
}

/// The paths of a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<Segments> {
    let tree = tree.trim();
    let (prefix, inner) = match tree.find('{') {
        Some(brace) => (&tree[..brace], Some(&tree[brace + 1..tree.rfind('}').unwrap_or(tree.len())])),
        None => (tree.split(" as ").next().unwrap_or_default(), None),
    };
    let prefix: Segments =
        prefix.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let Some(inner) = inner else { return vec![prefix] };
    let mut found = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let branch = &inner[start..at];
                start = at + 1;
                if !branch.trim().is_empty() {
                    found.extend(leaves(branch).into_iter().map(|leaf| [prefix.clone(), leaf].concat()));
                }
            }
            _ => {}
        }
    }
    found
}

/// Paths in expressions and types that begin with `crate`, `super` or `self`.
fn inline_paths(code: &str) -> Vec<Segments> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|letter| !is_word(letter) && letter != ':') {
                let path: String = code[at..].chars().take_while(|&letter| is_word(letter) || letter == ':').collect();
                found.push(path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect());
            }
        }
    }
    found
}

/// A path within the crate, from its root; `None` for one that leads to another crate.
fn absolute(files: &BTreeMap<String, &Source>, path: &[String], module: &[String]) -> Option<Segments> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    match path[0].as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([&module[..module.len().saturating_sub(supers)], &path[supers..]].concat()),
        first => {
            let child = [module, &[first.to_owned()]].concat().join("::");
            files.contains_key(&child).then(|| [module, path].concat())
        }
    }
}

/// The file that defines what a path leads to.
fn defining_file(
    files: &BTreeMap<String, &Source>,
    exports: &BTreeMap<String, BTreeMap<String, Segments>>,
    mut path: Segments,
) -> Option<String> {
    // Re-exports of re-exports are no deeper than this.
    for _ in 0..8 {
        let len = (1..=path.len()).rev().find(|&len| files.contains_key(&path[..len].join("::")))?;
        let file = path[..len].join("::");
        match path.get(len).and_then(|name| exports.get(&file)?.get(name)) {
            Some(exported) if *exported != path[..=len] => path = [&exported[..], &path[len + 1..]].concat(),
            _ => return Some(file),
        }
    }
    None
}
