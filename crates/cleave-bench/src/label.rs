//! What runs are called where several stand side by side: the workload, with the options in which they differ.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::result::Outcome;

/// A name for each outcome. Outcomes have the same one if they did the same, whatever the engine.
pub fn labels(outcomes: &[Outcome]) -> Vec<String> {
    outcomes.iter().map(|outcome| label(outcome, outcomes)).collect()
}

fn label(outcome: &Outcome, all: &[Outcome]) -> String {
    let options = options(outcome);
    let mut differing: BTreeSet<String> = BTreeSet::new();
    for other in all.iter().filter(|other| other.workload == outcome.workload) {
        let others = self::options(other);
        let names = options.keys().chain(others.keys());
        differing.extend(names.filter(|name| value(&options, name) != value(&others, name)).cloned());
    }
    let mut words = Vec::new();
    for name in differing {
        match value(&options, &name) {
            Value::Null | Value::Bool(false) => {}
            Value::Bool(true) => words.push(name.replace('_', " ")),
            Value::String(text) => words.push(format!("{} {text}", name.replace('_', " "))),
            other => words.push(format!("{} {other}", name.replace('_', " "))),
        }
    }
    match words.is_empty() {
        true => outcome.workload.clone(),
        false => format!("{}, {}", outcome.workload, words.join(", ")),
    }
}

/// All that the user chose, in one map.
fn options(outcome: &Outcome) -> Map<String, Value> {
    let mut options = outcome.settings["options"].as_object().cloned().unwrap_or_default();
    options.insert("cgroup_memory".to_owned(), outcome.settings["cgroup_memory"].clone());
    options
}

fn value<'a>(options: &'a Map<String, Value>, name: &str) -> &'a Value {
    options.get(name).unwrap_or(&Value::Null)
}
