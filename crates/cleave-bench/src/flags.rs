//! Turns options from their JSON form back into command line flags. Used by the commands that `report` and `paper` print.

use serde_json::{Map, Value};

/// Options that are 1 by default.
const DEFAULT_ONE: [&str; 2] = ["burst", "batch"];

/// ` --name value` for each option that differs from its default.
pub fn flags(options: &Map<String, Value>) -> String {
    let mut line = String::new();
    for (name, value) in options {
        let name = name.replace('_', "-");
        match value {
            Value::Null | Value::Bool(false) => {}
            Value::Number(number) if DEFAULT_ONE.contains(&&*name) && number.as_u64() == Some(1) => {}
            Value::Bool(true) => line += &format!(" --{name}"),
            Value::String(text) => line += &format!(" --{name} {text}"),
            other => line += &format!(" --{name} {other}"),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_written_as_on_the_command_line() {
        let options = json!({"burst": 1, "batch": 1, "bursts": "5,10", "key_size": 24, "memory": "1G", "rate": null, "sync": false, "verify": true});
        assert_eq!(flags(options.as_object().unwrap()), " --bursts 5,10 --key-size 24 --memory 1G --verify");
    }
}
