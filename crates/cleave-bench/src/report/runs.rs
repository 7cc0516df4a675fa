//! The runs of the page: engines in the order of their colours, and groups of runs of the same work.

use crate::engine::OURS;
use crate::label::labels;
use crate::result::Outcome;

/// One run of the page.
pub struct Entry<'a> {
    /// Its result.
    pub outcome: &'a Outcome,
    /// The engine, with a number if it has several runs in the group.
    pub name: String,
    /// The engine's colour.
    pub color: usize,
}

/// Runs of the same work.
pub struct Group<'a> {
    /// The workload, and the options that distinguish it from other groups.
    pub label: String,
    /// The runs.
    pub entries: Vec<Entry<'a>>,
}

/// Each engine once; CleaveDB first, so that it always has the same colour.
pub fn engines(outcomes: &[Outcome]) -> Vec<&str> {
    let mut engines: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !engines.contains(&&*outcome.engine) {
            engines.push(&outcome.engine);
        }
    }
    engines.sort_by_key(|engine| *engine != OURS);
    engines
}

/// The runs of `outcomes` grouped by their work, in order of first occurrence.
pub fn groups<'a>(outcomes: &'a [Outcome], engines: &[&str]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for (outcome, label) in outcomes.iter().zip(labels(outcomes)) {
        let color = engines.iter().position(|engine| *engine == outcome.engine).unwrap_or(0);
        let position = groups.iter().position(|group| group.label == label).unwrap_or_else(|| {
            groups.push(Group { label, entries: Vec::new() });
            groups.len() - 1
        });
        let entries = &mut groups[position].entries;
        let name = match entries.iter().filter(|entry| entry.outcome.engine == outcome.engine).count() {
            0 => outcome.engine.clone(),
            before => format!("{} ({})", outcome.engine, before + 1),
        };
        entries.push(Entry { outcome, name, color });
    }
    groups
}
