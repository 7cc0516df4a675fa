//! The labels of runs in tables and reports: the workload, with as few of the differing options as distinguish the runs.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::result::Outcome;
use crate::size;

/// Options that are compared most often, in order of preference; the other options follow by name.
const PREFERRED: [&str; 11] = [
    "phases",
    "distribution",
    "value_size",
    "key_size",
    "threads",
    "rate",
    "durability",
    "memory",
    "records",
    "age",
    VARIANT,
];

/// The field in the settings of an outcome that names CleaveDB's set of options.
pub const VARIANT: &str = "variant";

/// A label for each outcome. Runs of the same work have the same label, whatever the engine.
pub fn labels(outcomes: &[Outcome]) -> Vec<String> {
    let options: Vec<Map<String, Value>> = outcomes.iter().map(options).collect();
    let label = |(outcome, own): (&Outcome, &Map<String, Value>)| {
        let of_workload = outcomes.iter().zip(&options).filter(|(other, _)| other.workload == outcome.workload);
        let of_workload: Vec<&Map<String, Value>> = of_workload.map(|(_, options)| options).collect();
        let distinguishing = distinguishing(&of_workload);
        let words = distinguishing.iter().filter_map(|name| words(name, value(own, name)));
        std::iter::once(outcome.workload.clone()).chain(words).collect::<Vec<_>>().join(", ")
    };
    outcomes.iter().zip(&options).map(label).collect()
}

/// All options that the user chose, in one map. The name of a set of CleaveDB's own options replaces them.
fn options(outcome: &Outcome) -> Map<String, Value> {
    let mut options = outcome.settings["options"].as_object().cloned().unwrap_or_default();
    options.insert("cgroup_memory".to_owned(), outcome.settings["cgroup_memory"].clone());
    if let Some(variant) = outcome.settings.get(VARIANT) {
        options.remove("cleave");
        options.insert(VARIANT.to_owned(), variant.clone());
    }
    options
}

/// The names of the options that distinguish different runs.
fn distinguishing(runs: &[&Map<String, Value>]) -> Vec<String> {
    let names: BTreeSet<&str> = runs.iter().flat_map(|options| options.keys()).map(String::as_str).collect();
    let distinguishing = PREFERRED.into_iter().filter(|name| names.contains(name));
    let others = names.iter().copied().filter(|name| !PREFERRED.contains(name));
    let mut chosen: Vec<&str> = Vec::new();
    let different = |names: &[&str]| {
        let key = |options: &&Map<String, Value>| names.iter().map(|name| words(name, value(options, name))).collect();
        runs.iter().map(key).collect::<BTreeSet<Vec<Option<String>>>>().len()
    };
    for name in distinguishing.chain(others) {
        let with = [&chosen[..], &[name]].concat();
        if different(&with) > different(&chosen) {
            chosen = with;
        }
    }
    chosen.into_iter().map(str::to_owned).collect()
}

fn value<'a>(options: &'a Map<String, Value>, name: &str) -> &'a Value {
    options.get(name).unwrap_or(&Value::Null)
}

/// An option as text; none if it has its default.
fn words(name: &str, value: &Value) -> Option<String> {
    let name = name.replace('_', " ");
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(name),
        Value::String(text) if name == "distribution" || name == VARIANT => Some(text.clone()),
        Value::String(text) => Some(format!("{name} {text}")),
        Value::Number(bytes) if name.ends_with("memory") => {
            Some(format!("{name} {}", size::human(bytes.as_u64().unwrap_or_default())))
        }
        Value::Number(number) => Some(format!("{name} {}", number.as_f64().unwrap_or_default())),
        other => Some(format!("{name} {other}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn as_few_options_as_distinguish_runs_are_named() {
        let run = |value_size: u64, records: u64, rate: Value| {
            let value = json!({"value_size": value_size, "records": records, "rate": rate, "seed": 1});
            value.as_object().unwrap().clone()
        };
        let runs = [run(100, 1000, Value::Null), run(200, 500, Value::Null), run(200, 500, json!(10.0))];
        assert_eq!(distinguishing(&[&runs[0], &runs[0]]), Vec::<String>::new());
        // The number of records differs whenever the size of values does, so it adds nothing.
        assert_eq!(distinguishing(&[&runs[0], &runs[1]]), ["value_size"]);
        assert_eq!(distinguishing(&[&runs[0], &runs[1], &runs[2]]), ["value_size", "rate"]);
    }

    #[test]
    fn options_are_described_in_words() {
        assert_eq!(words("value_size", &json!(100)), Some("value size 100".to_owned()));
        assert_eq!(words("rate", &json!(25000.0)), Some("rate 25000".to_owned()));
        assert_eq!(words("distribution", &json!("uniform")), Some("uniform".to_owned()));
        assert_eq!(words("memory", &json!(16 << 20)), Some("memory 16.00 MiB".to_owned()));
        assert_eq!(words(VARIANT, &json!("vLog")), Some("vLog".to_owned()));
        assert_eq!(words("verify", &json!(false)), None);
    }
}
