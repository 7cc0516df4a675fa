//! What runs are called where several stand side by side: the workload, with as few of the options in which they differ
//! as tell them apart.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::result::Outcome;
use crate::size;

/// Options that people compare, the most telling first; the others come after, by name.
const TELLING: [&str; 9] =
    ["distribution", "value_size", "key_size", "threads", "rate", "durability", "memory", "records", "age"];

/// In the settings of an outcome: what CleaveDB is called with the options that it had.
pub const VARIANT: &str = "variant";

/// A name for each outcome. Outcomes have the same one if they did the same, whatever the engine.
pub fn labels(outcomes: &[Outcome]) -> Vec<String> {
    let options: Vec<Map<String, Value>> = outcomes.iter().map(options).collect();
    let label = |(outcome, own): (&Outcome, &Map<String, Value>)| {
        let of_workload = outcomes.iter().zip(&options).filter(|(other, _)| other.workload == outcome.workload);
        let of_workload: Vec<&Map<String, Value>> = of_workload.map(|(_, options)| options).collect();
        let telling = telling(&of_workload);
        let words = telling.iter().filter_map(|name| words(name, value(own, name)));
        std::iter::once(outcome.workload.clone()).chain(words).collect::<Vec<_>>().join(", ")
    };
    outcomes.iter().zip(&options).map(label).collect()
}

/// All that the user chose, in one map. Where CleaveDB's own options have a name, it stands for them.
fn options(outcome: &Outcome) -> Map<String, Value> {
    let mut options = outcome.settings["options"].as_object().cloned().unwrap_or_default();
    options.insert("cgroup_memory".to_owned(), outcome.settings["cgroup_memory"].clone());
    if let Some(variant) = outcome.settings.get(VARIANT) {
        options.remove("cleave");
        options.insert(VARIANT.to_owned(), variant.clone());
    }
    options
}

/// The names of options that tell different runs apart.
fn telling(runs: &[&Map<String, Value>]) -> Vec<String> {
    let names: BTreeSet<&str> = runs.iter().flat_map(|options| options.keys()).map(String::as_str).collect();
    let telling = TELLING.into_iter().filter(|name| names.contains(name));
    let others = names.iter().copied().filter(|name| !TELLING.contains(name));
    let mut chosen: Vec<&str> = Vec::new();
    let different = |names: &[&str]| {
        let key = |options: &&Map<String, Value>| names.iter().map(|name| words(name, value(options, name))).collect();
        runs.iter().map(key).collect::<BTreeSet<Vec<Option<String>>>>().len()
    };
    for name in telling.chain(others) {
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

/// An option in words; none if it is the default.
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
    fn as_few_options_as_tell_runs_apart_are_named() {
        let run = |value_size: u64, records: u64, rate: Value| {
            let value = json!({"value_size": value_size, "records": records, "rate": rate, "seed": 1});
            value.as_object().unwrap().clone()
        };
        let runs = [run(100, 1000, Value::Null), run(200, 500, Value::Null), run(200, 500, json!(10.0))];
        assert_eq!(telling(&[&runs[0], &runs[0]]), Vec::<String>::new());
        // The number of records changes with the size of values, and says nothing more.
        assert_eq!(telling(&[&runs[0], &runs[1]]), ["value_size"]);
        assert_eq!(telling(&[&runs[0], &runs[1], &runs[2]]), ["value_size", "rate"]);
    }

    #[test]
    fn options_are_told_in_words() {
        assert_eq!(words("value_size", &json!(100)), Some("value size 100".to_owned()));
        assert_eq!(words("rate", &json!(25000.0)), Some("rate 25000".to_owned()));
        assert_eq!(words("distribution", &json!("uniform")), Some("uniform".to_owned()));
        assert_eq!(words("memory", &json!(16 << 20)), Some("memory 16.00 MiB".to_owned()));
        assert_eq!(words(VARIANT, &json!("vLog")), Some("vLog".to_owned()));
        assert_eq!(words("verify", &json!(false)), None);
    }
}
